// How a lookup is divided over rounds, and what each of them carries of it.
#ifndef SHOAL_SRC_CLIENT_DIVISION_H_
#define SHOAL_SRC_CLIENT_DIVISION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/client/chain_call.h"
#include "src/client/chain_options.h"
#include "src/client/deployment.h"
#include "src/client/state.h"

namespace shoal::client {

// What one round carries of a lookup.
struct Portion {
  // Rising. Of a lookup that is spread over rounds, `queries` of its rows and of its padding.
  std::span<const uint32_t> rows;
  uint32_t queries = 0;              // the number of `rows`, and padding
  std::span<const uint32_t> lookup;  // all rows of the lookup, rising
  uint32_t number = 0;
  uint32_t parts = 1;
};

// The number of queries for this many distinct rows.
uint32_t Padded(const Deployment& deployment, const ChainOptions& options, size_t rows);

// FAILED_PRECONDITION of ChainClient::Divide.
absl::StatusOr<Division> Divide(const Deployment& deployment, const ChainOptions& options,
                                size_t distinct_rows);

// The digest by which the state knows how a lookup of these rows is spread over rounds.
Digest SpreadDigest(const Deployment& deployment, const Division& division,
                    std::span<const uint32_t> rows);
// The rows and their padding in the secret order in which they go to the rounds: durable.
absl::StatusOr<std::vector<uint32_t>> Spread(const ChainCall& call, const Division& division,
                                             std::span<const uint32_t> rows);
// `spread`: the rows, or Spread's, each round's made rising.
std::vector<Portion> PartsOf(const Division& division, std::span<const uint32_t> rows,
                             std::span<uint32_t> spread);

// The digest by which the state knows what a round is for. A lookup for other rows does not match,
// even if some are the same, and neither does another part of the same lookup, which may be for no
// row but padding. Nor does a lookup of the other kind: a term's round answers the watch that has
// enrolled in it.
Digest WantedDigest(const HeldRound& held, const Portion& part, bool wants_term);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_DIVISION_H_
