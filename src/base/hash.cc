#include "src/base/hash.h"

#include "src/base/check.h"

namespace shoal {

Transcript::Transcript(absl::string_view domain) {
  crypto_generichash_init(&state_, nullptr, 0, sizeof(Digest));
  Blob(domain);
}

Transcript::Transcript(absl::string_view domain, BytesView key) {
  SHOAL_CHECK(key.size() == 32);
  crypto_generichash_init(&state_, key.data(), key.size(), sizeof(Digest));
  Blob(domain);
}

Transcript& Transcript::U64(uint64_t value) {
  SHOAL_CHECK(blob_left_ == 0);
  uint8_t encoded[8];
  StoreLe(encoded, value);
  crypto_generichash_update(&state_, encoded, sizeof encoded);
  return *this;
}

Transcript& Transcript::Blob(BytesView bytes) { return BeginBlob(bytes.size()).BlobPiece(bytes); }

Transcript& Transcript::BeginBlob(uint64_t length) {
  U64(length);
  blob_left_ = length;
  return *this;
}

Transcript& Transcript::BlobPiece(BytesView piece) {
  SHOAL_CHECK(piece.size() <= blob_left_);
  blob_left_ -= piece.size();
  crypto_generichash_update(&state_, piece.data(), piece.size());
  return *this;
}

Digest Transcript::Finish() {
  SHOAL_CHECK(!finished_ && blob_left_ == 0);
  finished_ = true;
  Digest digest;
  crypto_generichash_final(&state_, digest.data(), digest.size());
  sodium_memzero(&state_, sizeof state_);
  return digest;
}

Digest DeriveKey(BytesView secret, absl::string_view domain, uint64_t number) {
  return Transcript(domain, secret).U64(number).Finish();
}

}  // namespace shoal
