// A client's privacy ledger: what it has asked under which noise, and what all of it reveals
// together.
//
// Every submission is charged before it is sent. A round for which the client made onions and in
// which it asked nothing counts once it is over, whatever the frontend says became of it, and of
// the onions: who can have rounds come to nothing may wait for one whose noise suits him. So what
// is quoted has (1 + such rounds) times the delta that the queries have together at that epsilon
// (docs/privacy.md). Nothing is ever taken back.
//
// Queries of one round are for distinct rows, and rounds have fresh noise, so that all of a
// client's queries are independent changes (noise/accountant.h): their privacy losses are added up
// exactly, by convolution. With two tiers up to c of them are for one bucket, and a submission of n
// is charged as its fullest pattern, whatever its list is: n div c pairs of buckets that change by
// c, and one pair that changes by n mod c. Charged as n single changes it would seem to reveal less
// than it does (docs/privacy.md, "The ledger").
#ifndef SHOAL_SRC_CLIENT_LEDGER_H_
#define SHOAL_SRC_CLIENT_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "src/noise/noise.h"

namespace shoal::client {

// Queries that one round takes, padding included.
struct Submission {
  uint64_t sent_s = 0;
  uint64_t round_counter = 0;
  uint32_t queries = 0;
  // The round's, from a verified roster.
  noise::Parameters noise;
  // How many of the queries may be for one bucket, as the roster has it: 0, which counts as 1,
  // where they are for rows, and all different. Without a default: too small a number shows too
  // small a loss.
  uint32_t most_in_bucket;
};

// What is kept of one of the latest submissions.
struct Charge {
  uint64_t sent_s = 0;
  uint64_t round_counter = 0;
  uint32_t queries = 0;
  // The privacy that the round's noise claims for `phi` changed queries.
  double epsilon = 0;
  double delta = 0;
  uint32_t phi = 0;
};

// What was asked under one noise setting, as changes of one kind: pairs of rows, of which one falls
// and one rises by one, or pairs of buckets, which do so by `copies`.
struct ChargedNoise {
  noise::Parameters noise;
  uint64_t submissions = 0;  // each under one kind, if its changes are of two
  uint64_t queries = 0;      // a multiple of copies
  uint32_t copies = 1;
};

// With probability at least 1 - delta, nobody's odds between any two lists of queries are moved by
// a factor of more than e^epsilon.
struct Loss {
  double epsilon = 0;
  double delta = 0;
};

// The exact loss of several queries together.
struct TotalLoss {
  // The delta that was asked for, and the epsilon that holds there; nothing if none up to
  // noise::kMaxComposedEpsilon does, because a query is given away with a higher probability.
  double delta = 0;
  std::optional<double> epsilon;
  // If none does: the epsilon at 10, 100, .. times that delta, the first that there is below 1.
  std::optional<Loss> beyond;
};

class Ledger {
 public:
  // How many submissions are kept one by one.
  static constexpr size_t kDetailed = 256;

  void Add(const Submission& submission);
  // A round for which onions were made, and in which nothing was asked.
  void AddIdleRound() { ++idle_rounds_; }
  // The ledger was read from a file that may have been an old copy. What that lacks is lost.
  void AddDoubt() { ++doubts_; }

  const std::deque<Charge>& latest() const { return latest_; }
  uint64_t submissions() const { return submissions_; }
  uint64_t queries() const { return queries_; }
  uint64_t idle_rounds() const { return idle_rounds_; }
  // What `delta` grows to if each of the rounds could have been another one.
  double Grown(double delta) const { return delta * (1 + static_cast<double>(idle_rounds_)); }
  // How often AddDoubt was called. If ever, everything may have revealed more than LossAt says.
  uint64_t doubts() const { return doubts_; }

  // The loss of everything that was charged. Takes up to some seconds. Errors are those of noise
  // settings that no roster can have.
  absl::StatusOr<TotalLoss> LossAt(double delta) const;

 private:
  friend class StateCodec;
  // Adds changes to those of this kind.
  void AddChanges(const noise::Parameters& noise, uint32_t copies, uint64_t submissions,
                  uint64_t queries);
  absl::StatusOr<std::optional<double>> EpsilonAt(double delta) const;

  std::deque<Charge> latest_;
  uint64_t submissions_ = 0;
  uint64_t queries_ = 0;
  std::vector<ChargedNoise> noise_;
  uint64_t idle_rounds_ = 0;
  uint64_t doubts_ = 0;
};

// The loss of `queries` queries of one client under this noise, in one submission, of which at most
// `most_in_bucket` are for one bucket (as in Submission).
absl::StatusOr<TotalLoss> LossOf(const noise::Parameters& noise, uint64_t queries, double delta,
                                 uint32_t most_in_bucket);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_LEDGER_H_
