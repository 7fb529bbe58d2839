// libsodium's sealed boxes (crypto_box_seal), in batches.
//
//   box = ephemeral public key (32) | Poly1305 tag (16) | XSalsa20 ciphertext
//   shared key = HSalsa20(X25519(ephemeral secret, recipient)), nonce = BLAKE2b-192(ephemeral
//   public key | recipient)
//
// The boxes are byte for byte those of libsodium, so a client in any language that has sealed boxes
// can take part. Unlike libsodium's call, the ephemeral secret is an argument (a client derives it,
// so that a repeated submission has the same bytes), and a call takes many boxes.
#ifndef SHOAL_SRC_ONION_SEALED_BOX_H_
#define SHOAL_SRC_ONION_SEALED_BOX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"

namespace shoal::onion {

inline constexpr size_t kSealBytes = 48;  // a box is this much longer than its message

using PublicKey = std::array<uint8_t, 32>;  // X25519, RFC 7748

struct KeyPair {
  PublicKey public_key;
  Seed secret_key;  // the scalar, clamped when used
};

// Makes a key pair from 32 uniformly random bytes, which are the secret key.
KeyPair KeyPairFromSecret(BytesView secret);

// A public key that many boxes are sealed for, with the fast paths' precomputed values. Immutable,
// thread-safe, cheap to copy.
class Recipient {
 public:
  // INVALID_ARGUMENT for a low-order key, which libsodium refuses to seal for.
  static absl::StatusOr<Recipient> Create(const PublicKey& public_key);

  const PublicKey& public_key() const { return public_key_; }
  struct Table;
  const Table* table() const { return table_.get(); }

 private:
  PublicKey public_key_;
  std::shared_ptr<const Table> table_;
};

// `count` items of `bytes` bytes each, one every `stride` bytes: arrays of records are sealed and
// opened in place, without a copy.
struct Items {
  const uint8_t* data;
  size_t stride;
  size_t bytes;
};
struct MutableItems {
  uint8_t* data;
  size_t stride;
  size_t bytes;
};

// Seals message i under ephemeral secret i (32 bytes each, uniformly random, used once) into box i.
// boxes.bytes must be messages.bytes + kSealBytes. Messages and boxes must not overlap, except that
// message i may start kSealBytes after the start of box i, and is then sealed in place. Cannot
// fail: a key that libsodium refuses never becomes a Recipient. Constant time in messages and
// secrets. One thread: the caller splits batches over threads; from 128 boxes on, larger batches
// are no faster.
void SealBatch(const Recipient& recipient, Items ephemeral_secrets, Items messages,
               MutableItems boxes, size_t count);

// Opens box i into message i and sets opened[i] to 1, or to 0 (message zeroed) where libsodium's
// crypto_box_seal_open refuses; there are opened.size() boxes. messages.bytes must be boxes.bytes -
// kSealBytes. Messages never hold unauthenticated bytes. Boxes shorter than kSealBytes all fail,
// and messages.bytes must then be 0. Messages and boxes do not overlap. Constant time in the key
// and in the messages; which boxes fail is not hidden from this machine. One thread.
void OpenBatch(const KeyPair& key, Items boxes, MutableItems messages, std::span<uint8_t> opened);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_SEALED_BOX_H_
