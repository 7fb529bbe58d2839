#include "src/pir/aes/aes128.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>

#include "src/base/check.h"
#include "src/pir/aes/streams.h"

namespace shoal::pir {
namespace {

const CounterStream* FastestStream() {
  static const CounterStream* const fastest =
      SupportedStreams().empty() ? nullptr : SupportedStreams().back();
  return fastest;
}

}  // namespace

struct Aes128::OpenSsl {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  ~OpenSsl() { EVP_CIPHER_CTX_free(context); }  // wipes the key
};

Aes128::Aes128(const SecretArray<16>& key) : Aes128(key, FastestStream()) {}

Aes128::Aes128(const SecretArray<16>& key, const CounterStream* stream) : stream_(stream) {
  if (stream_ != nullptr) {
    stream_->schedule(key.data(), round_keys_.data());
    return;
  }
  openssl_ = std::make_unique<OpenSsl>();
  SHOAL_CHECK(openssl_->context != nullptr);
  SHOAL_CHECK(
      EVP_EncryptInit_ex(openssl_->context, EVP_aes_128_ecb(), nullptr, key.data(), nullptr) == 1 &&
      EVP_CIPHER_CTX_set_padding(openssl_->context, 0) == 1);
}
Aes128::~Aes128() = default;

void Aes128::StoreNumber(uint64_t number, uint8_t* block) {
  std::memset(block, 0, 8);
  StoreLe<uint64_t>(block + 8, __builtin_bswap64(number));
}

void Aes128::Numbers(uint64_t first, MutableBytes out) const {
  const size_t blocks = out.size() / kBlockBytes;
  SHOAL_CHECK(out.size() % kBlockBytes == 0 && blocks <= ~uint64_t{0} - first);
  if (stream_ != nullptr) {
    stream_->fill(round_keys_.data(), first, blocks, out.data());
    return;
  }
  for (size_t i = 0; i < blocks; ++i) StoreNumber(first + i, &out[i * kBlockBytes]);
  Encrypt(out);
}

void Aes128::Encrypt(MutableBytes blocks) const {
  SHOAL_CHECK(blocks.size() % kBlockBytes == 0);
  if (stream_ != nullptr) {
    stream_->encrypt(round_keys_.data(), blocks.size() / kBlockBytes, blocks.data());
    return;
  }
  constexpr size_t kAtATime = size_t{1} << 20;  // OpenSSL counts in int
  for (size_t at = 0; at < blocks.size(); at += kAtATime) {
    const MutableBytes part = blocks.subspan(at, std::min(kAtATime, blocks.size() - at));
    int written = 0;
    SHOAL_CHECK(EVP_EncryptUpdate(openssl_->context, part.data(), &written, part.data(),
                                  static_cast<int>(part.size())) == 1 &&
                static_cast<size_t>(written) == part.size());
  }
}

}  // namespace shoal::pir
