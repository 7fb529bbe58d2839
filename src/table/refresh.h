// Whether a later epoch of a table can answer the rows that were asked under an earlier one.
#ifndef SHOAL_SRC_TABLE_REFRESH_H_
#define SHOAL_SRC_TABLE_REFRESH_H_

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/wire/manifest.pb.h"

namespace shoal::table {

// OK if every key has in `next` the row that it has in `enrolled`, whether the table has the key or
// not, and if answers have the same size: a row number that was asked under `enrolled` then asks
// for the same keys under `next`. FAILED_PRECONDITION names the field that differs, or says that
// `next` is not a later epoch.
//
// CheckManifest has accepted both. What acts on the answer for a client or a party has verified
// both (Manifest::content), and checks times itself.
absl::Status CanRefresh(const wire::Manifest& enrolled, const wire::Manifest& next);

// Says which key is in which row, and which row in which bucket, and how large rows are: of two
// epochs, the later one can refresh rows of the earlier one if and only if both have the same. For
// parties, which keep this and not the manifest. Nobody signs it, and it is in no message.
Digest PlacesDigest(const wire::Manifest& manifest);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_REFRESH_H_
