#include "src/server/round_context.h"

#include "src/base/hash.h"

namespace shoal::server {

Seed RoundSecrets::Key(absl::string_view domain) const {
  Digest key = DeriveKey(seed(), domain);
  Seed out(key);
  sodium_memzero(key.data(), key.size());
  return out;
}

onion::KeyPair RoundSecrets::OnionKeyPair() const {
  return onion::KeyPairFromSecret(Key("shoal onion key v1").view());
}

}  // namespace shoal::server
