// A made-up round for calibration, benchmarks and tests of the stages: the parties' contexts and
// secrets, without rosters, headers and clients.
#ifndef SHOAL_SRC_SERVER_SYNTHETIC_ROUND_H_
#define SHOAL_SRC_SERVER_SYNTHETIC_ROUND_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/query_buckets.h"
#include "src/base/random.h"
#include "src/noise/noise.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/server/round_context.h"
#include "src/sharing/halves.h"

namespace shoal::server {

class SyntheticRound {
 public:
  struct Shape {
    uint32_t parties = 2;
    size_t answer_bytes = 32;
    uint64_t max_rows = 1;
    uint32_t max_slots = 1000;
    noise::Distribution noise;
    Digest round_id = {};
    std::optional<RoundContext::OfHalf> half = std::nullopt;
  };
  // Draws one seed for each party, in order.
  SyntheticRound(const Shape& shape, RandomSource& random);
  // With the secrets of each party.
  SyntheticRound(const Shape& shape, std::vector<RoundSecrets> secrets);

  // What honest clients send for `count` slots, as party 1's input: submissions of `each` slots
  // (the last one may have fewer), each after its length. Also all slots' seeds, for onion i and
  // party j at (i * parties + j - 1) * 32.
  struct Input {
    Bytes list;
    Bytes seeds;
  };
  Input MakeInput(size_t count, size_t each, RandomSource& random, ThreadPool& pool) const;

  // `party` counts from 1.
  const RoundContext& context(uint32_t party) const { return contexts_[party - 1]; }
  const RoundSecrets& secrets(uint32_t party) const { return secrets_[party - 1]; }
  // The parties that clients seal onions for, party 1 first.
  const std::vector<onion::Recipient>& recipients() const { return recipients_; }

 private:
  std::vector<RoundSecrets> secrets_;
  std::vector<onion::Recipient> recipients_;
  std::vector<RoundContext> contexts_;
};

// The same of a round of two tiers.
class SyntheticTwoTiers {
 public:
  struct Shape {
    size_t answer_bytes = 80;
    uint64_t rows = 2;
    uint32_t buckets = 2;
    uint32_t max_slots = 1000;
    noise::Distribution noise;
    Digest round_id = {};
  };
  // Draws one root for each party, in order.
  SyntheticTwoTiers(const Shape& shape, RandomSource& random);

  // Its party 1 is the half's head.
  const SyntheticRound& of(sharing::Half half) const {
    return half == sharing::Half::kA ? halves_.first : halves_.second;
  }
  const sharing::HalfIds& ids() const { return ids_; }
  const QueryBuckets& buckets() const { return buckets_; }

  // What honest clients send for `count` slots: the input of each head, and the seeds of slot i in
  // the order of sharing::QuerySeed, at 32 * sharing::kSeedsPerQuery * i.
  struct Input {
    Bytes a, b;
    Bytes seeds;
  };
  Input MakeInput(size_t count, size_t each, RandomSource& random, ThreadPool& pool) const;

 private:
  const sharing::HalfIds ids_;
  const QueryBuckets buckets_;
  const std::pair<SyntheticRound, SyntheticRound> halves_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_SYNTHETIC_ROUND_H_
