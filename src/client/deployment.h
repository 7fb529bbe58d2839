// What a client knows about a deployment, all verified: the roster, the table's manifest, and the
// map from keys to rows.
#ifndef SHOAL_SRC_CLIENT_DEPLOYMENT_H_
#define SHOAL_SRC_CLIENT_DEPLOYMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/query_buckets.h"
#include "src/client/environment.h"
#include "src/client/state.h"
#include "src/client/transport.h"
#include "src/roster/roster.h"
#include "src/round/header.h"
#include "src/table/manifest.h"
#include "src/table/row_map.h"

namespace shoal::client {

// The error of a call that waited while a newer epoch of `what` (the table, the roster) went live:
// FAILED_PRECONDITION, with a mark by which IsNewEpoch knows it. No server's error has the mark.
// Annotate drops it.
absl::Status NewEpochError(absl::string_view what, uint64_t epoch);
bool IsNewEpoch(const absl::Status& status);

// What does not verify, a certificate or a round, may be that of a newer roster. Returns the error
// with a mark for that, if it is UNAUTHENTICATED. Only for errors from before a client looks at its
// answers: what it does on seeing the mark is visible.
absl::Status MarkAsPerhapsOfNewRoster(absl::Status status);
bool IsPerhapsOfNewRoster(const absl::Status& status);

// Immutable, thread-safe.
class Deployment {
 public:
  // Asks the party at the other end, which is the one with this client_address in the roster, or
  // the frontend if none has it, and verifies everything: the roster against the pins, the party's
  // certificate against the roster, the manifest, the epochs against those in `state`, the
  // placement against its digest. Puts the new epochs into `state`, which the caller saves. Begins
  // again if the next epoch of the table goes live meanwhile.
  // `placement_cache` is a file that keeps the placement between runs (empty: none), and
  // `placement_cache`.versions one that keeps the base list of rows' epochs (row_versions.h); their
  // content is not trusted. The two other lists are fetched whole each time, whatever the client
  // has. UNAUTHENTICATED, DATA_LOSS, INVALID_ARGUMENT: the frontend's responses are malformed or
  // not this deployment's. FAILED_PRECONDITION: the state belongs to another deployment, or one of
  // roster and table is of two tiers and the other is not (round::CheckTiers).
  static absl::StatusOr<Deployment> Fetch(Transport& transport, const roster::PinnedParties& pins,
                                          State& state, uint64_t now_s,
                                          const std::string& placement_cache = "",
                                          const std::string& address = "");

  // The same for a client that goes on to look up. Tries again while the frontend cannot be
  // reached, six times and then until `wait_until_s` (retry_policy.h); drops expired rounds from
  // the state, and saves it.
  static absl::StatusOr<Deployment> Open(Transport& transport, const roster::PinnedParties& pins,
                                         StateStore& store, const Environment& environment,
                                         const std::string& placement_cache = "",
                                         const std::string& address = "",
                                         uint64_t wait_until_s = 0);

  // Whether this is a roster of a later epoch that a client with the same pins takes.
  bool IsFollowedBy(const wire::SignedRoster& roster, uint64_t now_s) const;

  // The party that was asked.
  uint32_t party() const { return party_; }
  const roster::Roster& roster() const { return roster_; }
  const table::Manifest& manifest() const { return manifest_; }
  const table::RowMap& map() const { return map_; }
  round::TableFacts table_facts() const {
    return {.manifest_digest = manifest_.digest(),
            .rows = manifest_.rows(),
            .row_bytes = manifest_.row_bytes(),
            .query_buckets = manifest_.content().query_buckets()};
  }
  // Where rows are in the buckets that queries of the chain are for; none where they are for rows.
  std::optional<QueryBuckets> buckets() const {
    if (manifest_.content().query_buckets() == 0) return std::nullopt;
    return QueryBuckets(manifest_.rows(), manifest_.content().query_buckets());
  }
  // What a client of the chain sends and fetches for a query (src/round/query_bytes.h).
  size_t query_bytes() const;
  size_t fetched_bytes() const;

 private:
  static absl::StatusOr<Deployment> FetchOnce(Transport& transport,
                                              const roster::PinnedParties& pins, State& state,
                                              uint64_t now_s, const std::string& placement_cache,
                                              const std::string& address);
  Deployment(roster::PinnedParties trusted, uint32_t party, roster::Roster roster,
             table::Manifest manifest, table::RowMap map)
      : trusted_(std::move(trusted)),
        party_(party),
        roster_(std::move(roster)),
        manifest_(std::move(manifest)),
        map_(std::move(map)) {}
  roster::PinnedParties trusted_;  // with the keys that were followed
  uint32_t party_;
  roster::Roster roster_;
  table::Manifest manifest_;
  table::RowMap map_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_DEPLOYMENT_H_
