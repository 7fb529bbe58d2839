// A round's header and its id. The id binds everything that a round means (docs/protocol.md): an
// honest party signs one header for a counter, and opens no onion that was made for another id.
#ifndef SHOAL_SRC_ROUND_HEADER_H_
#define SHOAL_SRC_ROUND_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/query_buckets.h"
#include "src/base/tagged.h"
#include "src/onion/hpke.h"
#include "src/roster/roster.h"
#include "src/sharing/halves.h"
#include "src/wire/round.pb.h"

namespace shoal::round {

// The longest life of a round. Once its keys are erased, recorded traffic cannot be opened.
inline constexpr uint64_t kMaxLifetimeS = 7 * 24 * 3600;
// Counters of each second, and so the most rounds in a second over a long time. A frontend gives
// out none below those of its time, so that counters rise even if it has lost its journal.
inline constexpr uint64_t kCountersPerSecond = 1000;
// The most seconds by which a counter may be ahead of the time of its announcement. As counters
// only rise, one very high signed counter would otherwise end the deployment; with this limit the
// deployment only has to wait. A day, because a frontend that starts with a clock that is hours
// ahead gives out counters of that time.
inline constexpr uint64_t kMaxCounterLeadS = 24 * 3600;

// The facts about the table that a round's header is checked against.
struct TableFacts {
  Digest manifest_digest;
  uint64_t rows;
  uint32_t row_bytes;
  // Says which key is in which row: epochs with the same one may refresh each other's rounds.
  Digest places = {};
  // The manifest's: 0 if queries are for rows.
  uint32_t query_buckets = 0;
};

// The most that most_in_bucket times query_buckets may be: a client's queries are for places that
// have 32-bit numbers.
inline constexpr uint64_t kMaxVirtualPlaces = uint64_t{1} << 32;

// Onion keys of a round of two tiers: of a head and a tail of each half.
inline constexpr uint32_t kTwoTiersKeys = 4;

// Whether a table's queries are for rows under a roster for rows, or for buckets under one of two
// tiers. `query_buckets` and `rows`: the table's, or those that `of` names, which is what a refusal
// begins with. FAILED_PRECONDITION names both values; INVALID_ARGUMENT: no table of so many rows
// has so many buckets.
absl::Status CheckTiers(absl::string_view of, uint32_t query_buckets, uint64_t rows,
                        const roster::Roster& roster);

// The onion keys of a complete header: one for each party, or kTwoTiersKeys.
uint32_t OnionKeysOf(const wire::RoundHeader& header, const roster::Roster& roster);

// The same of a draft when it comes to `party`, which is from 1 on: each party adds one, or two in
// a round of two tiers.
uint32_t OnionKeysBefore(const wire::RoundHeader& draft, uint32_t party);
// Adds what a party adds to the onion keys of a draft: behind them, or in a round of two tiers, in
// which party 1 has the first and the last key, in the middle.
void AddOnionKeys(std::span<const std::string> keys, wire::RoundHeader& draft);
// Whether `header` is the draft with onion keys of later parties, and no other change.
bool Completes(const wire::RoundHeader& draft, const wire::RoundHeader& header);

// Transcript("shoal round v3") over: counter, roster digest, manifest digest, number of onion keys
// and each of them, max_rows, answer_bytes; the noise as in the roster's digest; number of machine
// counts and each; max_slots, announced_s, onions_close_s, queries_close_s, expires_s; onion_suite;
// if the round has a term or query_buckets is not 0, max_refreshes and term_expires_s; if
// query_buckets is not 0, it. The header need not have been checked.
Digest RoundId(const wire::RoundHeader& header);

// Checks everything about a header except its signature, for a deployment and a table, at time
// `now_s`. `keys` is the required number of onion keys: a draft on its way down the chain has fewer
// than there are parties. INVALID_ARGUMENT: the header is malformed or contradicts the roster or
// the table; the message names the field. FAILED_PRECONDITION: header, roster and table are not all
// for rows or all of the same two tiers; the message names both values. UNAUTHENTICATED: announced
// in the future or expired, beyond the roster's tolerance.
absl::Status CheckHeader(const wire::RoundHeader& header, uint32_t keys,
                         const roster::Roster& roster, const TableFacts& table, uint64_t now_s);

// The bytes that parties send for a query, in a round of two tiers in each half: row, signature and
// answer tag.
size_t TaggedAnswerBytes(const wire::RoundHeader& header);
// The bytes that clients fetch for a query: the same, of both halves where there are two.
size_t FetchedAnswerBytes(const wire::RoundHeader& header);

// A header that all parties have signed. Immutable, thread-safe for reading.
class Round {
 public:
  // As CheckHeader, and UNAUTHENTICATED without all parties' signature.
  static absl::StatusOr<Round> Verify(const wire::SignedHeader& signed_header,
                                      const roster::Roster& roster, const TableFacts& table,
                                      uint64_t now_s);

  const Digest& id() const { return id_; }
  RoundCounter counter() const { return RoundCounter(wire_.header().counter()); }
  const wire::RoundHeader& header() const { return wire_.header(); }
  const wire::SignedHeader& wire() const { return wire_; }
  uint32_t parties() const { return static_cast<uint32_t>(wire_.header().machines_size()); }
  // Of a row and its signature.
  size_t answer_bytes() const { return wire_.header().answer_bytes(); }
  // The same with its answer tag: what parties send for a query, in each half if there are two.
  size_t tagged_bytes() const { return TaggedAnswerBytes(wire_.header()); }
  // What clients fetch for a query.
  size_t fetched_bytes() const { return FetchedAnswerBytes(wire_.header()); }

  // Of a round of two tiers: where rows are in the buckets that queries are for. None in a round
  // for rows.
  const std::optional<QueryBuckets>& buckets() const { return buckets_; }
  // What a client sends for a query in a round of two tiers: part A and part B.
  size_t parts_bytes() const { return sharing::PartsBytes(buckets_->selection_bytes()); }

  // The submission of so many slots, in bytes; the most slots of one; and the slots of one that has
  // so many bytes, 0 if none has that length.
  size_t SubmissionBytes(size_t slots) const;
  size_t MaxSubmissionSlots() const;
  size_t SubmissionSlots(size_t bytes) const;

  // All parties' onion keys of the round, party 1 first; with query_buckets in the header's order.
  const std::vector<onion::Recipient>& recipients() const { return recipients_; }

 private:
  Round() = default;
  Digest id_;
  wire::SignedHeader wire_;
  std::vector<onion::Recipient> recipients_;
  std::optional<QueryBuckets> buckets_;
};

}  // namespace shoal::round

#endif  // SHOAL_SRC_ROUND_HEADER_H_
