// HPKE (RFC 9180) in batches: base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, and either
// ChaCha20-Poly1305 with an empty aad or the export-only suite.
//
//   sealed message = enc (32) | ChaCha20 ciphertext | Poly1305 tag (16)
//   exported secret = Export(exporter context, 32)
//
// The bytes are those of any other implementation of the RFC, so a client in any language can take
// part. Unlike a library's call, the ephemeral secret key is an argument (a client derives it, so
// that a repeated submission has the same bytes), and a call takes many messages.
#ifndef SHOAL_SRC_ONION_HPKE_H_
#define SHOAL_SRC_ONION_HPKE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/onion/suite.h"

namespace shoal::onion {

inline constexpr size_t kEncBytes = 32;  // an encapsulated key: the ephemeral public key
inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kSealBytes = kEncBytes + kTagBytes;  // what a seal adds to a message
inline constexpr size_t kSeedBytes = 32;                     // an exported secret

struct KeyPair {
  PublicKey public_key;
  Seed secret_key;  // the scalar, clamped when used
};

// Makes a key pair from 32 uniformly random bytes, which are the secret key.
KeyPair KeyPairFromSecret(BytesView secret);

// A public key that many messages are sealed for, with the fast paths' precomputed values.
// Immutable, thread-safe, cheap to copy.
class Recipient {
 public:
  // INVALID_ARGUMENT for a low-order key: every shared point would be zero.
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

// The calls below work on `count` items and take one thread: the caller splits batches over
// threads; from 128 items on, larger batches are no faster. Ephemeral secrets are 32 uniformly
// random bytes each, used for one message alone. Constant time in secrets and messages.

// Encapsulates to `recipient`: writes enc i (32 bytes; none if encs.data is null) and exports
// secret i (32 bytes) for `exporter_context`. Cannot fail, as no Recipient has a low order.
void ExportBatch(const Recipient& recipient, const Info& info, absl::string_view exporter_context,
                 Items ephemeral_secrets, MutableItems encs, MutableItems exports, size_t count);

// The same, and seals message i: box i = enc | ciphertext | tag. `info` must be of
// kChaCha20Poly1305. boxes.bytes must be messages.bytes + kSealBytes. Messages and boxes must not
// overlap, except that message i may start kEncBytes after the start of box i, and is then sealed
// in place. No secrets are exported if exports.data is null.
void SealBatch(const Recipient& recipient, const Info& info, absl::string_view exporter_context,
               Items ephemeral_secrets, Items messages, MutableItems boxes, MutableItems exports,
               size_t count);

// Decapsulates enc i (32 bytes): exports secret i, and sets alive[i] to 1, or to 0 (secret zeroed)
// where the shared point is all zeros. There are alive.size() items.
void DecapsulateBatch(const KeyPair& key, const Info& info, absl::string_view exporter_context,
                      Items encs, MutableItems exports, std::span<uint8_t> alive);

// Opens box i into message i, exports secret i, and sets opened[i] to 1, or to 0 (message and
// secret zeroed) where the RFC refuses. There are opened.size() boxes. messages.bytes must be
// boxes.bytes - kSealBytes. Messages and boxes do not overlap. Which boxes fail is not hidden from
// this machine.
void OpenBatch(const KeyPair& key, const Info& info, absl::string_view exporter_context,
               Items boxes, MutableItems messages, MutableItems exports, std::span<uint8_t> opened);

// One message of any length, and many secrets exported from its context. For submissions
// (onion.h).
struct Context {
  SecretArray<32> key;
  SecretArray<12> nonce;
  SecretArray<32> exporter_secret;
};

// The contexts of encapsulations to `recipient`: writes `encs` (32 bytes each) and contexts, one
// for each of contexts.size() ephemeral secrets. `info` must be of kChaCha20Poly1305.
void SenderContexts(const Recipient& recipient, const Info& info, Items ephemeral_secrets,
                    MutableItems encs, std::span<Context> contexts);
// The recipient's contexts. alive[i] is 0 where the shared point is all zeros.
void RecipientContexts(const KeyPair& key, const Info& info, Items encs,
                       std::span<Context> contexts, std::span<uint8_t> alive);
// Seals `message` into `sealed` (kTagBytes longer), which may start where the message does.
void Seal(const Context& context, BytesView message, MutableBytes sealed);
// False, and the message zeroed, where the tag is wrong. message.size() must be sealed.size() -
// kTagBytes, which must not be negative.
bool Open(const Context& context, BytesView sealed, MutableBytes message);
// Exports one secret for each of exports.size() / 32 contexts: prefix | LE32(first), prefix |
// LE32(first + 1), ..
void ExportNumbered(const Context& context, absl::string_view prefix, uint32_t first,
                    MutableBytes exports);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_HPKE_H_
