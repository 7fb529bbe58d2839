#include "src/server/round_context.h"

#include <algorithm>

#include "src/base/hash.h"

namespace shoal::server {

namespace {

Seed KeyOf(const Seed& root, absl::string_view domain) {
  return SeedOf(DeriveKey(root.view(), domain));
}

}  // namespace

absl::StatusOr<Digest> ParseRoundId(absl::string_view bytes) {
  Digest id;
  if (bytes.size() != id.size()) return absl::InvalidArgumentError("a round id has 32 bytes");
  std::ranges::copy(AsBytes(bytes), id.begin());
  return id;
}

OfflineSecrets::OfflineSecrets(const Seed& root)
    : onion_(KeyOf(root, "shoal onion key v1")),
      noise_(KeyOf(root, "shoal noise v1")),
      noise_order_(KeyOf(root, "shoal noise order v1")),
      permutation_(KeyOf(root, "shoal permutation v1")),
      fingerprints_(KeyOf(root, "shoal fingerprints v1")) {}

LastingSecrets::LastingSecrets(const Seed& root)
    : contents_(KeyOf(root, "shoal round contents v1")),
      dead_answers_(KeyOf(root, "shoal dead answers v1")),
      term_(KeyOf(root, "shoal term v1")) {}

}  // namespace shoal::server
