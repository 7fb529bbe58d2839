// A machine's queries and answers on their way to and from the other machines of its party.
//
// A machine has queries at its slice of the positions. A query goes on at a place that one of the
// machines owns (party_shuffle.h); the places were learnt in the offline stage. The owner puts its
// places in order, and later gets the answers to all of them:
//
//   all ------- how many queries each machine has, and for whom ------ all
//   machine i --- place and tally of those that have j's places -----> machine j
//   machine i <-- their answers, in the same order ------------------- machine j
//
// What passes is padded to bounds that follow from the numbers of positions and of queries of all
// machines, which the links between the parties show. Places were drawn before anybody chose which
// positions to use. Whoever knows some of the places can choose positions whose places are one
// machine's: so the bounds hold for any choice. At a party of one machine nothing passes.
#ifndef SHOAL_SRC_SERVER_QUERY_ROUTES_H_
#define SHOAL_SRC_SERVER_QUERY_ROUTES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/secret.h"
#include "src/server/forward_memory.h"
#include "src/server/online_material.h"
#include "src/server/round_context.h"
#include "src/shuffle/scatter.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// Queries at one machine have 32-bit numbers from 0 on, noise included, and Scatter has one that
// means nowhere. RESOURCE_EXHAUSTED if so many do not fit.
absl::Status CheckNumbersFit(uint64_t queries);

// Movable. Thread-compatible.
class QueryRoutes {
 public:
  QueryRoutes() = default;  // of one machine

  // Sends the others what is theirs, and puts what comes to `items`, one for each of this machine's
  // places. Queries that come are numbered from `first_number` on, machine after machine. Errors of
  // Machines; DATA_LOSS if a machine announces more than it can have, or sends what it has not
  // announced or a place twice; CANCELLED once the round has ended.
  static absl::StatusOr<QueryRoutes> Forward(const OnlineMaterial& material,
                                             const wire::QueryBatch& queries, uint64_t first_number,
                                             std::span<ForwardMemory::Item> items,
                                             const Resources& resources);

  // How many queries came from each machine, by rank; empty for one machine.
  const SecretVector<uint64_t>& came() const { return came_; }

  // Sends the answers back: others[i] gives those to what came from machine i, in the order in
  // which it came. Puts answers that come to the numbers of this machine's queries. Returns when
  // all machines have all of theirs. Errors as Forward, and those of the sources.
  absl::Status Return(std::span<const std::unique_ptr<ByteSource>> others, shuffle::Scatter& own,
                      size_t tagged_bytes, const Resources& resources) const;

 private:
  // By rank: the queries that go there at most, and those that come from there at most.
  std::vector<uint64_t> most_to_, most_from_;
  std::vector<SecretVector<uint32_t>> sent_;  // the numbers of the queries that went, in order
  SecretVector<uint64_t> came_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_QUERY_ROUTES_H_
