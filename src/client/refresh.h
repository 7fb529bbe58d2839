// What a device computes for the refreshes of a term, without I/O (docs/protocol.md, "Refreshes"):
// from the seeds of its round what it keeps, from the frontend's latest refresh whether to take it,
// and from both the requests for its answers and the masks on them.
//
// Seeds of several parties lie one after the other, 32 bytes each, those of a slot together and
// party 1's first.
#ifndef SHOAL_SRC_CLIENT_REFRESH_H_
#define SHOAL_SRC_CLIENT_REFRESH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/client/deployment.h"
#include "src/client/device.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"
#include "src/round/refresh.h"
#include "src/wire/client.pb.h"
#include "src/wire/manifest.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::client {

// The most runs of adjacent slots in one request for answers of a refresh.
inline constexpr size_t kMaxSlotRuns = 256;

// A refresh that all parties have signed.
struct VerifiedRefresh {
  wire::RefreshHeader header;
  std::vector<round::RefreshTag> tags;  // of all parties in order
};

// The round of a term.
struct TermRound {
  const Digest& id;
  const wire::RoundHeader& header;
  const wire::Manifest& manifest;  // of the table under which its rows were asked
};

// FAILED_PRECONDITION: the roster allows no terms, so that waiting for a round with one is in vain.
absl::Status CheckTermsExist(const Deployment& deployment);

// For so long a client that wants no refreshes keeps out of rounds with a term, of which parties
// keep until its end what links clients to rows.
inline constexpr uint64_t kOutOfTermsS = 60;
// Why a wait for a round ended so early, for the end of its message.
inline constexpr absl::string_view kOutOfTerms =
    "; there are rounds with a term, which a lookup enters only after 60 seconds without another";

// Whether a round's term, or that it has none, suits a client that has waited for a round since
// `begun_s`: one that wants refreshes takes rounds with a term alone, any other one takes those
// only if there has been no other round for kOutOfTermsS.
bool TermSuits(const wire::RoundHeader& header, bool wants_refreshes, uint64_t begun_s,
               uint64_t now_s);

// Checks all of the frontend's response but whether the number is new. FAILED_PRECONDITION: not one
// that may be taken under this deployment (another epoch of the table is served meanwhile, the rows
// have moved, the roster is another one); UNAUTHENTICATED, INVALID_ARGUMENT: not signed by all, or
// malformed. Costs about 1 ms.
absl::StatusOr<VerifiedRefresh> VerifyRefresh(const wire::GetRefreshResponse& response,
                                              const TermRound& term, const Deployment& deployment);

// The term seeds of all onions of the ranges. Takes as long as SeedsOf. Without a pool, on the
// caller's thread.
SecretVector<uint8_t> TermSeedsOf(const round::Round& round, std::span<const OnionRange> ranges,
                                  ThreadPool* pool);

// The masks ids of all parties.
std::vector<Digest> MasksOf(const VerifiedRefresh& refresh);

// How many of the first slots fit one request: at most `most`, and at most kMaxSlotRuns runs.
size_t SlotsInRequest(std::span<const uint32_t> slots, size_t most);

// A request for the answers of a refresh at these slots, whose term seeds are at `seeds`.
// `masks`: MasksOf.
wire::FetchRefreshRequest MakeRefreshFetch(const wire::RefreshHeader& refresh,
                                           std::span<const Digest> masks,
                                           std::span<const uint32_t> slots, const uint8_t* seeds);

// Removes all parties' masks from what was fetched, and writes the answers, `answer_bytes` each. An
// answer whose tag is wrong becomes zeros, as in Unmask (device.h). Do not trust a row before its
// signature is verified. One thread.
void UnmaskRefresh(std::span<const Digest> masks, const uint8_t* seeds, size_t answer_bytes,
                   BytesView tagged, MutableBytes answers);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_REFRESH_H_
