// Refreshes: the answers of a round given once more, from a newer epoch of the table, under fresh
// masks (docs/protocol.md, "Terms"; docs/threat-model.md has the argument).
#ifndef SHOAL_SRC_ROUND_REFRESH_H_
#define SHOAL_SRC_ROUND_REFRESH_H_

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/roster/roster.h"
#include "src/wire/round.pb.h"

namespace shoal::round {

// A party's tag says what it has masked. All parties' tags go to the clients, whose masks depend on
// them.
using RefreshTag = Digest;

// Transcript("shoal refresh v1") over: round id, number, epoch, manifest digest. The header need
// not have been checked.
Digest RefreshDigest(const wire::RefreshHeader& header);

// Whether this can be a refresh of the round with this id, which has a term. INVALID_ARGUMENT names
// the field.
absl::Status CheckRefresh(const wire::RefreshHeader& header, const Digest& round_id,
                          const wire::RoundHeader& round);

// The same, and UNAUTHENTICATED without all parties' signature. Costs about 1 ms.
absl::Status VerifyRefresh(const wire::SignedRefreshHeader& signed_header, const Digest& round_id,
                           const wire::RoundHeader& round, const roster::Roster& roster);

// What client and party j keep of seed_j for a term. One cannot go back to the seed: keyed
// Transcript("shoal term seed v1") over the round id.
Seed TermSeed(BytesView seed, const Digest& round_id);

// In place of the round id, this expands term seeds to a refresh's tokens and masks
// (src/sharing/batch.h): Transcript("shoal refresh masks v1") over the fields of RefreshDigest and
// the party's tag.
Digest RefreshMasksId(const wire::RefreshHeader& header, const RefreshTag& tag);

}  // namespace shoal::round

#endif  // SHOAL_SRC_ROUND_REFRESH_H_
