// Finds the least noise that gives a wanted privacy.
#ifndef SHOAL_SRC_NOISE_SEARCH_H_
#define SHOAL_SRC_NOISE_SEARCH_H_

#include "absl/status/statusor.h"
#include "src/noise/accountant.h"
#include "src/noise/noise.h"

namespace shoal::noise {

struct Target {
  double epsilon = 1;
  double delta = 1e-6;
  // What (epsilon, delta) must cover, taken together. Its `copies` is 1.
  Exposure exposure;
  // How many of the changed queries of a round may be for one bucket, at most: 1 where queries are
  // for rows. All changes that the exposure counts are covered as their fullest pattern is.
  uint32_t most_in_bucket = 1;
};

struct Choice {
  // The parameters for a roster, which VerifyPrivacy accepts with the target's most_in_bucket.
  // Their phi counts all changes that the target covers: phi * rounds * submissions.
  Parameters parameters;
  double mean = 0;   // noise queries per row, or per bucket
  double delta = 0;  // the upper bound that holds at epsilon
};

// The parameters of the smallest mean (to about half a per cent) for which the exact delta is at
// most the target's. Deterministic. Takes milliseconds where one query changes and the
// noise is geometric, some ten seconds where many do. INVALID_ARGUMENT names a target's number that
// is out of range, or a mechanism that is not known to protect several queries in one bucket
// (IsLogConcave); OUT_OF_RANGE if the noise that would be needed is beyond the mechanism's limits
// (noise.h).
absl::StatusOr<Choice> FindLeastNoise(Mechanism mechanism, const Target& target);

// The same with the cheapest mechanism ("auto"): the geometric for a few changes, the split
// Gaussian for many.
absl::StatusOr<Choice> FindLeastNoise(const Target& target);

// The least most_in_bucket with which a list of so many keys, each in a uniformly random one of
// `buckets`, has more in some bucket with probability at most 2^-20, by the sum over the buckets.
// Keys of uniformly random rows are so where B divides the rows. Elsewhere the fullest buckets, of
// K = ceil(rows / B), have a key each with probability K / rows, which is more than 1 / B: there
// the number for floor(rows / K) buckets holds, and that for B may be too small. Keys beyond it are
// unknown to who asks. Both at least 1 (checked).
uint32_t LeastMostInBucket(uint32_t keys, uint64_t buckets);

}  // namespace shoal::noise

#endif  // SHOAL_SRC_NOISE_SEARCH_H_
