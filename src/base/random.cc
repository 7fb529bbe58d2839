#include "src/base/random.h"

#include <algorithm>
#include <cstring>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/sodium_init.h"

namespace shoal {

uint64_t RandomSource::Below(uint64_t bound) {
  SHOAL_CHECK(bound > 0);
  // Lemire 2019, "Fast Random Integer Generation in an Interval", algorithm 5.
  unsigned __int128 product = static_cast<unsigned __int128>(U64()) * bound;
  if (static_cast<uint64_t>(product) < bound) {
    const uint64_t threshold = -bound % bound;
    while (static_cast<uint64_t>(product) < threshold) {
      product = static_cast<unsigned __int128>(U64()) * bound;
    }
  }
  return static_cast<uint64_t>(product >> 64);
}

void SystemRandom::Fill(MutableBytes out) {
  SHOAL_CHECK(InitSodium());
  randombytes_buf(out.data(), out.size());
}

SeededRandom::SeededRandom(BytesView seed, absl::string_view domain, uint64_t stream) {
  SHOAL_CHECK(InitSodium());
  key_ = SeedOf(DeriveKey(seed, domain, stream));
}

void SeededRandom::Refill() {
  static_assert(kBufferBytes % 64 == 0);
  const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES] = {};
  std::memset(buffer_.data(), 0, kBufferBytes);
  crypto_stream_chacha20_xor_ic(buffer_.data(), buffer_.data(), kBufferBytes, nonce, next_block_,
                                key_.data());
  next_block_ += kBufferBytes / 64;
  used_ = 0;
}

void SeededRandom::Fill(MutableBytes out) {
  while (!out.empty()) {
    if (used_ == kBufferBytes) Refill();
    const size_t n = std::min(out.size(), kBufferBytes - used_);
    std::memcpy(out.data(), buffer_.data() + used_, n);
    sodium_memzero(buffer_.data() + used_, n);
    used_ += n;
    out = out.subspan(n);
  }
}

}  // namespace shoal
