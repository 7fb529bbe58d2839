// BLAKE2b-256 over an unambiguous encoding. Makes every digest, id and signed message of Shoal, so
// that no two meanings share one byte string.
#ifndef SHOAL_SRC_BASE_HASH_H_
#define SHOAL_SRC_BASE_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "sodium.h"
#include "src/base/bytes.h"

namespace shoal {

// Feeds fields to BLAKE2b-256. The encoding, which clients in other languages
// repeat (docs/protocol.md): integers are 8 bytes little endian; byte strings
// are their length as such an integer, then their bytes. The first field is
// always the domain.
//
//   Digest id = Transcript("shoal round v2").U64(counter).Blob(key).Finish();
//
// Thread-compatible. Costs one pass over the input, about 1 byte a cycle.
class Transcript {
 public:
  explicit Transcript(absl::string_view domain);

  // Keyed: a MAC with a 32-byte key.
  Transcript(absl::string_view domain, BytesView key);

  Transcript& U64(uint64_t value);
  Transcript& Blob(BytesView bytes);
  Transcript& Blob(absl::string_view text) { return Blob(AsBytes(text)); }

  // Begins a Blob whose bytes come in pieces: exactly `length` bytes must be added before the next
  // field (checked).
  Transcript& BeginBlob(uint64_t length);
  Transcript& BlobPiece(BytesView piece);

  // Call it once.
  Digest Finish();

 private:
  crypto_generichash_state state_;
  uint64_t blob_left_ = 0;  // missing bytes of a blob in pieces
  bool finished_ = false;
};

// Derives an independent 32-byte key from a 32-byte secret: keyed BLAKE2b over
// the domain and a number.
Digest DeriveKey(BytesView secret, absl::string_view domain, uint64_t number = 0);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_HASH_H_
