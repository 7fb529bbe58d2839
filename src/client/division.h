// How a lookup is divided over rounds, and what each of them carries of it.
#ifndef SHOAL_SRC_CLIENT_DIVISION_H_
#define SHOAL_SRC_CLIENT_DIVISION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/client/chain_call.h"
#include "src/client/chain_options.h"
#include "src/client/deployment.h"
#include "src/client/row_source.h"
#include "src/client/state.h"

namespace shoal::client {

// What one round carries of a lookup.
struct Portion {
  // Rising. Of a lookup that is spread over rounds, `queries` of its rows and of its padding, where
  // a row may come twice if queries are for buckets.
  std::span<const uint32_t> rows;
  uint32_t queries = 0;              // the number of `rows`, and padding
  std::span<const uint32_t> lookup;  // all rows of the lookup, rising
  uint32_t number = 0;
  uint32_t parts = 1;
};

// What a lookup asks for, of the rows that it wants (rising): all of them, or as many of each
// bucket as the roster allows where queries are for buckets.
struct Asked {
  std::vector<uint32_t> rows;     // rising
  std::vector<uint32_t> unasked;  // rising
};
Asked AskedOf(const Deployment& deployment, std::span<const uint32_t> wanted);

// The number of queries for a lookup: of its distinct rows, or of its distinct keys where queries
// are for buckets.
uint32_t Padded(const Deployment& deployment, const ChainOptions& options, const Wanted& wanted);

// FAILED_PRECONDITION of ChainClient::Divide.
absl::StatusOr<Division> Divide(const Deployment& deployment, const ChainOptions& options,
                                const Wanted& wanted);

// The digest by which the state knows how a lookup of these rows is spread over rounds.
Digest SpreadDigest(const Deployment& deployment, const Division& division,
                    std::span<const uint32_t> rows);
// The rows and their padding in the secret order in which they go to the rounds: durable.
absl::StatusOr<std::vector<uint32_t>> Spread(const ChainCall& call, const Division& division,
                                             std::span<const uint32_t> rows);
// `spread`: the rows, or Spread's, each round's made rising.
std::vector<Portion> PartsOf(const Division& division, std::span<const uint32_t> rows,
                             std::span<uint32_t> spread);

// The rows of a round's queries: those of its part, and padding, in random order.
std::vector<uint32_t> QueriesOf(const Deployment& deployment, const Portion& part,
                                RandomSource& random);

// The digest by which the state knows what a round is for. A lookup for other rows does not match,
// even if some are the same, and neither does another part of the same lookup, which may be for no
// row but padding. Nor does a lookup of the other kind: a term's round answers the watch that has
// enrolled in it.
Digest WantedDigest(const HeldRound& held, const Portion& part, bool wants_term);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_DIVISION_H_
