#include "src/onion/key_schedule.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/onion/sha256_constants.h"

namespace shoal::onion {
namespace {

constexpr absl::string_view kVersion = "HPKE-v1";
constexpr absl::string_view kKemSuite{"KEM\x00\x20", 5};
constexpr absl::string_view kExpandLength{"\x00\x20", 2};  // 32, HKDF-Expand's first two bytes
constexpr absl::string_view kExpandEnd = "\x01";           // its last: block 1 of the output
constexpr absl::string_view kEaePrk = "eae_prk";
constexpr absl::string_view kSharedSecret = "shared_secret";
constexpr absl::string_view kSecret = "secret";
constexpr absl::string_view kKey = "key";
constexpr absl::string_view kBaseNonce = "base_nonce";
constexpr absl::string_view kExp = "exp";
constexpr absl::string_view kSec = "sec";
constexpr size_t kNonceBytes = 12;
constexpr absl::string_view kNonceLength{"\x00\x0c", 2};

// "HPKE", the KEM, the KDF, the AEAD.
std::array<uint8_t, 10> SuiteId(Aead aead) {
  const auto id = static_cast<uint16_t>(aead);
  return {'H',
          'P',
          'K',
          'E',
          0x00,
          0x20,
          0x00,
          0x01,
          static_cast<uint8_t>(id >> 8),
          static_cast<uint8_t>(id)};
}

// HMAC-SHA-256 over parts, with libsodium.
class Hmac {
 public:
  explicit Hmac(BytesView key) {
    const uint8_t nothing = 0;  // libsodium takes no null
    crypto_auth_hmacsha256_init(&state_, key.empty() ? &nothing : key.data(), key.size());
  }
  Hmac(const Hmac&) = default;
  Hmac& operator=(const Hmac&) = delete;
  ~Hmac() { sodium_memzero(&state_, sizeof state_); }
  Hmac& Add(BytesView bytes) {
    crypto_auth_hmacsha256_update(&state_, bytes.data(), bytes.size());
    return *this;
  }
  Hmac& Add(absl::string_view text) { return Add(AsBytes(text)); }
  void Finish(uint8_t* tag) { crypto_auth_hmacsha256_final(&state_, tag); }

 private:
  crypto_auth_hmacsha256_state state_;
};

// RFC 9180, section 4. `suite` is the suite_id.
void LabeledExtract(BytesView suite, BytesView salt, absl::string_view label, BytesView ikm,
                    uint8_t out[32]) {
  Hmac(salt).Add(kVersion).Add(suite).Add(label).Add(ikm).Finish(out);
}

// `length` is that of the output, which is the start of one block of HKDF-Expand.
void LabeledExpand(const Hmac& key, BytesView suite, absl::string_view length,
                   absl::string_view label, BytesView info, uint8_t out[32]) {
  Hmac(key).Add(length).Add(kVersion).Add(suite).Add(label).Add(info).Add(kExpandEnd).Finish(out);
}

// Blocks of SHA-256 that follow the block of HMAC's key, put together from parts.
template <size_t kBlocks>
class Message {
 public:
  Message& Add(BytesView bytes) {
    SHOAL_CHECK(bytes_ + bytes.size() <= sizeof block_ - 9);
    std::copy(bytes.begin(), bytes.end(), block_ + bytes_);
    bytes_ += bytes.size();
    return *this;
  }
  Message& Add(absl::string_view text) { return Add(AsBytes(text)); }
  // Leaves zeros where an item's bytes belong: they must be at `at`.
  Message& Skip(size_t at, size_t bytes) {
    SHOAL_CHECK(bytes_ == at);
    bytes_ += bytes;
    return *this;
  }
  // Padding and length.
  Message& End() {
    SHOAL_CHECK(bytes_ + 9 > sizeof block_ - 64);
    block_[bytes_] = 0x80;
    const uint64_t bits = (64 + bytes_) * 8;
    for (size_t i = 0; i < 8; ++i) {
      block_[sizeof block_ - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
    }
    return *this;
  }
  size_t bytes() const { return bytes_; }

  void Words(size_t block, uint32_t word[16]) const {
    for (size_t i = 0; i < 16; ++i) {
      const uint8_t* b = block_ + 64 * block + 4 * i;
      word[i] = static_cast<uint32_t>(b[0]) << 24 | static_cast<uint32_t>(b[1]) << 16 |
                static_cast<uint32_t>(b[2]) << 8 | b[3];
    }
  }
  void Fix(size_t block, FixedBlock& fixed) const {
    const auto small_sum = [](uint32_t x, int a, int b, int c) {
      return std::rotr(x, a) ^ std::rotr(x, b) ^ x >> c;
    };
    uint32_t w[64];
    Words(block, w);
    for (size_t t = 16; t < 64; ++t) {
      w[t] =
          small_sum(w[t - 2], 17, 19, 10) + w[t - 7] + small_sum(w[t - 15], 7, 18, 3) + w[t - 16];
    }
    for (size_t t = 0; t < 64; ++t) fixed.round[t] = w[t] + kSha256Rounds[t];
  }
  void Fix(FixedBlock (&fixed)[kBlocks]) const {
    for (size_t i = 0; i < kBlocks; ++i) Fix(i, fixed[i]);
  }

 private:
  uint8_t block_[64 * kBlocks] = {};
  size_t bytes_ = 0;
};

// The state of SHA-256 after a block of one repeated byte.
void StateAfter(uint8_t byte, uint32_t state[8]) {
  uint8_t block[64];
  std::memset(block, byte, sizeof block);
  crypto_hash_sha256_state hash;
  crypto_hash_sha256_init(&hash);
  crypto_hash_sha256_update(&hash, block, sizeof block);
  std::memcpy(state, hash.state, sizeof hash.state);
}

KeyScheduleBlocks MakeBlocks(const Info& info, const PublicKey& recipient,
                             absl::string_view exporter_context) {
  KeyScheduleBlocks blocks;
  StateAfter(0x36, blocks.empty_inner);
  StateAfter(0x5c, blocks.empty_outer);
  Message<1>().Add(kVersion).Add(kKemSuite).Add(kEaePrk).Skip(19, 32).End().Words(0,
                                                                                  blocks.eae_prk);
  Message<2> kem;
  kem.Add(kExpandLength).Add(kVersion).Add(kKemSuite).Add(kSharedSecret).Skip(27, 32);
  kem.Add(recipient).Add(kExpandEnd).End();
  kem.Words(0, blocks.kem_context);
  kem.Fix(1, blocks.recipient);

  const auto suite = SuiteId(info.aead());
  Message<1>().Add(kVersion).Add(suite).Add(kSecret).End().Fix(0, blocks.secret);
  const auto expand = [&](absl::string_view length, absl::string_view label,
                          FixedBlock(&fixed)[2]) {
    Message<2> message;
    message.Add(length).Add(kVersion).Add(suite).Add(label).Add(info.key_schedule_context());
    message.Add(kExpandEnd).End().Fix(fixed);
  };
  if (info.aead() != Aead::kExportOnly) {
    expand(kExpandLength, kKey, blocks.key);
    expand(kNonceLength, kBaseNonce, blocks.base_nonce);
  }
  expand(kExpandLength, kExp, blocks.exporter_secret);
  Message<1> exported;
  exported.Add(kExpandLength).Add(kVersion).Add(suite).Add(kSec).Add(exporter_context);
  exported.Add(kExpandEnd).End().Fix(0, blocks.exported);
  return blocks;
}

}  // namespace

// Without a psk.
Info::Info(Aead aead, BytesView info) : aead_(aead) {
  const auto suite = SuiteId(aead);
  context_[0] = 0;  // base mode
  LabeledExtract(suite, {}, "psk_id_hash", {}, context_.data() + 1);
  LabeledExtract(suite, {}, "info_hash", info, context_.data() + 33);
}

KeySchedule::KeySchedule(const Kernel* kernel, const Info& info, const PublicKey& recipient,
                         absl::string_view exporter_context)
    : kernel_(kernel), info_(info), recipient_(recipient), exporter_context_(exporter_context) {
  SHOAL_CHECK(exporter_context.size() <= kMaxExporterContext);
  if (kernel != nullptr) blocks_ = MakeBlocks(info, recipient, exporter_context);
}

void KeySchedule::Run(const uint8_t* shared, const uint8_t* encs, size_t enc_stride,
                      const KeyScheduleOutputs& out, size_t n) const {
  SHOAL_CHECK(out.stream_keys == nullptr || info_.aead() != Aead::kExportOnly);
  if (kernel_ != nullptr) {
    kernel_->key_schedule(blocks_, shared, encs, enc_stride, out, n);
    return;
  }
  const auto at = [](uint8_t* items, size_t offset) {
    return items == nullptr ? nullptr : items + offset;
  };
  for (size_t i = 0; i < n; ++i) {
    RunPortable(shared + i * 32, encs + i * enc_stride,
                at(out.stream_keys, i * kKernelStreamKeyBytes), at(out.exporter_secrets, i * 32),
                at(out.exports, i * out.export_stride));
  }
}

void KeySchedule::RunPortable(const uint8_t* shared, const uint8_t* enc, uint8_t* stream_key,
                              uint8_t* exporter_secret, uint8_t* exported) const {
  SecretArray<32> secret;
  LabeledExtract(AsBytes(kKemSuite), {}, kEaePrk, {shared, 32}, secret.data());
  uint8_t kem_context[64];
  std::memcpy(kem_context, enc, 32);
  std::memcpy(kem_context + 32, recipient_.data(), 32);
  LabeledExpand(Hmac(secret.view()), AsBytes(kKemSuite), kExpandLength, kSharedSecret, kem_context,
                secret.data());
  const auto suite = SuiteId(info_.aead());
  LabeledExtract(suite, secret.view(), kSecret, {}, secret.data());
  const Hmac key(secret.view());
  const auto expand = [&](absl::string_view length, absl::string_view label) {
    LabeledExpand(key, suite, length, label, info_.key_schedule_context(), secret.data());
  };
  if (stream_key != nullptr) {
    expand(kExpandLength, kKey);
    std::memcpy(stream_key, secret.data(), 32);
    expand(kNonceLength, kBaseNonce);
    std::memcpy(stream_key + 32, secret.data(), kNonceBytes);
  }
  expand(kExpandLength, kExp);
  if (exporter_secret != nullptr) std::memcpy(exporter_secret, secret.data(), 32);
  if (exported != nullptr) {
    LabeledExpand(Hmac(secret.view()), suite, kExpandLength, kSec, AsBytes(exporter_context_),
                  exported);
  }
}

void NumberedExports(const Kernel* kernel, Aead aead, const uint8_t* exporter_secret,
                     absl::string_view prefix, uint32_t first, uint8_t* exports, size_t n) {
  SHOAL_CHECK(prefix.size() + 4 <= kMaxExporterContext);
  const auto suite = SuiteId(aead);
  if (kernel != nullptr) {
    Message<1> message;
    message.Add(kExpandLength).Add(kVersion).Add(suite).Add(kSec).Add(prefix);
    NumberedBlock block;
    block.number_at = message.bytes();
    message.Skip(message.bytes(), 4).Add(kExpandEnd).End().Words(0, block.word);
    kernel->export_numbered(block, first, exporter_secret, exports, n);
    return;
  }
  const Hmac key(BytesView(exporter_secret, 32));
  std::array<uint8_t, kMaxExporterContext> context;
  std::copy(prefix.begin(), prefix.end(), context.begin());
  for (size_t i = 0; i < n; ++i) {
    StoreLe(context.data() + prefix.size(), static_cast<uint32_t>(first + i));
    LabeledExpand(key, suite, kExpandLength, kSec, {context.data(), prefix.size() + 4},
                  exports + i * 32);
  }
}

}  // namespace shoal::onion
