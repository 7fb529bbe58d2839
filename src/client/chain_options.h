// What a device asks of the chain, and what it is told meanwhile (chain_client.h).
#ifndef SHOAL_SRC_CLIENT_CHAIN_OPTIONS_H_
#define SHOAL_SRC_CLIENT_CHAIN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/client/rows.h"
#include "src/client/transport.h"
#include "src/wire/round.pb.h"

namespace shoal::client {

inline constexpr uint32_t kDefaultPadTo = 64;
inline constexpr uint32_t kMaxAttempts = 10;
// The most rounds that a lookup may lose before it has sent anything in them. Each costs delta.
inline constexpr uint32_t kMaxLostRounds = 10;
inline constexpr uint32_t kDefaultConnections = 4;
inline constexpr uint32_t kMaxClientConnections = 64;

// What becomes of a lookup whose queries, padding included, are more than a round protects
// together.
enum class BeyondPhi {
  kRefuse,      // nothing is sent (unless phi is 1, which protects no two queries together)
  kOverRounds,  // phi queries at most in each round
  kAcceptMore,  // all in one round
};

// The most rounds of one lookup. Their entries must fit the state.
inline constexpr uint32_t kMaxRoundsOfLookup = 1024;

// How a lookup's queries are divided over rounds. Depends on the padded number of queries alone.
struct Division {
  uint32_t queries = 0;
  // In every round but the last, which has the rest.
  uint32_t in_each = 1;

  uint32_t rounds() const { return (queries + in_each - 1) / in_each; }
  uint32_t InRound(uint32_t number) const {
    return number + 1 < rounds() ? in_each : queries - number * in_each;
  }
};

// What an interruption would leave behind, for people.
struct UnderWay {
  uint64_t round_counter = 0;
  // Whether the queries are charged. Before, the client has only slots.
  bool charged = false;
  // When the round takes no more queries, at the latest, or expires.
  uint64_t until_s = 0;
};

// What a device keeps of a round in which it has enrolled in a term: the rows that it asked for,
// padding included, their slots, and what is left of their seeds.
struct Enrolled {
  const wire::SignedHeader& header;
  std::span<const uint32_t> rows;
  std::span<const uint32_t> slots;  // of the rows
  // The term seeds of all parties for a slot, party 1's first, slot after slot: 32 bytes each.
  BytesView seeds;
};

// For a device that asks once for a term (watch.h).
struct TermOptions {
  // The most submissions to rounds with a term at a time, attempts included: those whose terms
  // would still last. 1 to State::kMaxEnrolments.
  uint32_t max_enrolments = 3;
  // Stores what the term needs, durably: called when all answers of the round are there, and before
  // Ask returns them.
  std::function<absl::Status(const Enrolled&)> enrolled;
};

struct ChainOptions {
  uint32_t pad_to = kDefaultPadTo;  // 1 to kMaxPadTo
  uint32_t max_attempts = 3;
  // How long to wait for a round that takes onions, and how long to wait past a round's own times.
  uint32_t timeout_s = 600;
  // Connections at a time, for steps of several requests. How many are used depends only on the
  // number of queries.
  uint32_t connections = kDefaultConnections;
  // Bytes of arrays in one request or response; of a round's onions, when they are cut.
  size_t piece_bytes = kMaxBulkBytes;
  BeyondPhi beyond_phi = BeyondPhi::kRefuse;
  // The most that everything in the ledger may reveal together: no submission takes its epsilon
  // above this, at the deployment's delta, (1 + idle rounds)-fold (Ledger::Grown). No limit if it
  // is not set.
  std::optional<double> max_epsilon = {};
  // If set, only rounds with a term are entered, and a lookup goes into one of them. Otherwise
  // rounds without, of which parties keep nothing; after a minute without one, any. Slots that are
  // held already are used by the same rule, and a round that was charged for one kind of lookup is
  // not gone on with by the other.
  std::optional<TermOptions> term = {};
  // Ask calls it before anything is sent.
  std::function<void(const Division&)> announce = {};
  // Ask calls it whenever that changes; with nothing, if nothing is under way.
  std::function<void(const std::optional<UnderWay>&)> under_way = {};
  // Whether to wait while the frontend does not answer. If not, requests are made six times.
  bool waits = true;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CHAIN_OPTIONS_H_
