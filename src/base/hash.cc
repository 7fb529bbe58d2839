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
  uint8_t encoded[8];
  StoreLe(encoded, value);
  crypto_generichash_update(&state_, encoded, sizeof encoded);
  return *this;
}

Transcript& Transcript::Blob(BytesView bytes) {
  U64(bytes.size());
  crypto_generichash_update(&state_, bytes.data(), bytes.size());
  return *this;
}

Digest Transcript::Finish() {
  SHOAL_CHECK(!finished_);
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
