// A client of rounds of two tiers, for tests: what it sends in both halves, and what it makes of
// what comes back (docs/protocol.md, section 11).
#ifndef SHOAL_SRC_SERVER_TESTING_TWO_TIERS_CLIENT_H_
#define SHOAL_SRC_SERVER_TESTING_TWO_TIERS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/query_buckets.h"
#include "src/base/secret.h"
#include "src/round/header.h"
#include "src/server/offline.h"
#include "src/server/testing/deployment.h"
#include "src/sharing/halves.h"

namespace shoal::server::testing {

// All clients of a round, each with one slot in a submission of its own.
class TwoTiersClient {
 public:
  TwoTiersClient(Deployment* deployment, round::Round round)
      : deployment_(deployment),
        round_(std::move(round)),
        ids_(round_.id()),
        buckets_(round_.header().max_rows(), round_.header().query_buckets()) {}

  // One more submission; with these ephemeral keys of the submission and of its onion, in half A
  // and in half B.
  void Submit();
  void Submit(const Seed& submission_a, const Seed& onion_a, const Seed& submission_b,
              const Seed& onion_b);
  // As the frontend has them.
  Submissions ListA() const { return List(pieces_a); }
  Submissions ListB() const { return List(pieces_b); }

  // Makes the query for wanted[i] of slot i.
  void Query(std::vector<uint32_t> wanted);
  // Over all slots: part A | part B of each query, and part B alone.
  Bytes BatchA() const;
  Bytes BatchB() const;

  // Which queries got their rows from z_A | T'_A | z_B | T'_B of each. Expects that all others got
  // zeros: nobody gets a wrong row.
  std::vector<bool> Right(BytesView tagged) const;

  // Every piece after its length, in the order of the slots.
  Bytes pieces_a, pieces_b;
  SecretVector<uint8_t> seeds;  // of each slot those of sharing::QuerySeed
  Bytes parts;                  // of each query part A | part B
  uint64_t slots = 0;
  std::vector<uint32_t> rows;

 private:
  Submissions List(const Bytes& pieces) const {
    return {.list = std::make_unique<BytesSource>(Bytes(pieces)), .onions = slots};
  }
  Bytes Piece(sharing::Half half, const Seed& submission_key, const Seed& onion_key,
              MutableBytes head, MutableBytes tail) const;
  Bytes BatchOf(size_t begin, size_t record_bytes) const;
  size_t selection_bytes() const { return buckets_.selection_bytes(); }

  Deployment* const deployment_;
  const round::Round round_;
  const sharing::HalfIds ids_;
  const QueryBuckets buckets_;
};

}  // namespace shoal::server::testing

#endif  // SHOAL_SRC_SERVER_TESTING_TWO_TIERS_CLIENT_H_
