#include "src/onion/sealed_box.h"

#include <cstring>

#include "absl/status/status.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal::onion {
namespace {

constexpr size_t kNonceBytes = crypto_secretbox_NONCEBYTES;
static_assert(kSealBytes == crypto_box_SEALBYTES);

// The nonce of a sealed box: both public keys, hashed.
void SealNonce(const uint8_t* ephemeral_public, const PublicKey& recipient,
               uint8_t nonce[kNonceBytes]) {
  uint8_t keys[64];
  std::memcpy(keys, ephemeral_public, 32);
  std::memcpy(keys + 32, recipient.data(), 32);
  SHOAL_CHECK(crypto_generichash(nonce, kNonceBytes, keys, sizeof keys, nullptr, 0) == 0);
}

// False for a point of low order, in the words of libsodium: an all-zero shared point.
[[nodiscard]] bool SharedKey(const uint8_t* scalar, const uint8_t* point, SecretArray<32>& key) {
  SecretArray<32> shared;
  if (crypto_scalarmult(shared.data(), scalar, point) != 0) return false;
  const uint8_t zeros[16] = {};
  SHOAL_CHECK(crypto_core_hsalsa20(key.data(), zeros, shared.data(), nullptr) == 0);
  return true;
}

}  // namespace

struct Recipient::Table {};

KeyPair KeyPairFromSecret(BytesView secret) {
  KeyPair pair;
  pair.secret_key = Seed(secret);
  SHOAL_CHECK(crypto_scalarmult_base(pair.public_key.data(), secret.data()) == 0);
  return pair;
}

absl::StatusOr<Recipient> Recipient::Create(const PublicKey& public_key) {
  // Every clamped scalar is a multiple of the cofactor: one product tells the order.
  const uint8_t scalar[32] = {};
  uint8_t product[32];
  if (crypto_scalarmult(product, scalar, public_key.data()) != 0) {
    return absl::InvalidArgumentError("onion: public key of low order");
  }
  Recipient recipient;
  recipient.public_key_ = public_key;
  return recipient;
}

void SealBatch(const Recipient& recipient, Items ephemeral_secrets, Items messages,
               MutableItems boxes, size_t count) {
  SHOAL_CHECK(ephemeral_secrets.bytes == 32);
  SHOAL_CHECK(boxes.bytes == messages.bytes + kSealBytes);
  SecretArray<32> key;
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* scalar = ephemeral_secrets.data + i * ephemeral_secrets.stride;
    uint8_t* box = boxes.data + i * boxes.stride;
    uint8_t nonce[kNonceBytes];
    SHOAL_CHECK(SharedKey(scalar, recipient.public_key().data(), key));
    SHOAL_CHECK(crypto_scalarmult_base(box, scalar) == 0);
    SealNonce(box, recipient.public_key(), nonce);
    SHOAL_CHECK(crypto_secretbox_easy(box + 32, messages.data + i * messages.stride,
                                      messages.bytes, nonce, key.data()) == 0);
  }
}

void OpenBatch(const KeyPair& key_pair, Items boxes, MutableItems messages,
               std::span<uint8_t> opened) {
  if (boxes.bytes < kSealBytes) {
    SHOAL_CHECK(messages.bytes == 0);
    for (uint8_t& flag : opened) flag = 0;
    return;
  }
  SHOAL_CHECK(messages.bytes == boxes.bytes - kSealBytes);
  SecretArray<32> key;
  for (size_t i = 0; i < opened.size(); ++i) {
    const uint8_t* box = boxes.data + i * boxes.stride;
    uint8_t* message = messages.data + i * messages.stride;
    uint8_t nonce[kNonceBytes];
    SealNonce(box, key_pair.public_key, nonce);
    opened[i] = SharedKey(key_pair.secret_key.data(), box, key) &&
                crypto_secretbox_open_easy(message, box + 32, boxes.bytes - 32, nonce,
                                           key.data()) == 0;
    if (!opened[i] && messages.bytes > 0) std::memset(message, 0, messages.bytes);
  }
}

}  // namespace shoal::onion
