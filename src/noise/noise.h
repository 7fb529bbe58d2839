// The number of noise queries that a party makes for every row (paper, algorithm 6;
// docs/privacy.md).
#ifndef SHOAL_SRC_NOISE_NOISE_H_
#define SHOAL_SRC_NOISE_NOISE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/random.h"
#include "src/noise/accountant.h"

namespace shoal::noise {

enum class Mechanism {
  // The paper's algorithm 6: floor(max(0, B + min(B, u))), u ~ Laplace(0, 2 phi / epsilon), with
  // the bound B in `mode`.
  kClampedLaplace = 1,
  // P(k) ~ exp(-(mode - k) / left_scale) up to the mode, exp(-(k - mode) / right_scale) above it;
  // cut at zero and renormalised.
  kGeometric = 2,
  // P(k) ~ exp(-(mode - k)^2 / (2 left_scale^2)) up to the mode, the same with right_scale above
  // it; cut at zero and renormalised.
  kSplitGaussian = 3,
};

// "clamped_laplace", "geometric", "split_gaussian".
absl::string_view MechanismName(Mechanism mechanism);

// The numbers mean the same as in wire::NoiseParameters. epsilon, delta and phi are the claimed
// privacy, which VerifyPrivacy checks. Of the mechanisms, only the clamped Laplace takes its scale
// from them.
struct Parameters {
  Mechanism mechanism = Mechanism::kGeometric;
  double epsilon = 1;
  double delta = 1e-6;
  // Changed queries of one client in one round.
  uint32_t phi = 1;
  // Where the distribution peaks, in noise queries; for the clamped Laplace, the bound B.
  uint32_t mode = 0;
  // Scales in noise queries; zero for the clamped Laplace.
  double left_scale = 0;
  double right_scale = 0;
};

// The limits of what Create and VerifyPrivacy accept.
inline constexpr double kMinEpsilon = 1e-6, kMaxEpsilon = 50;
inline constexpr double kMinDelta = 1e-15;  // below 1
inline constexpr uint32_t kMaxPhi = 1'000'000;
inline constexpr uint32_t kMaxMode = 1 << 19;
inline constexpr double kMinScale = 0.1, kMaxGeometricScale = 7'000, kMaxGaussianScale = 40'000;

// A distribution of noise per row, as an exact table: the probabilities are integers over 2^128
// that sum to 2^128. The table is within 2^-100 (total variation) of the mechanism's definition.
// The far right end, of mass below 2^-103, is cut off. Immutable and thread-safe; cheap to copy.
// About 40 bytes a value.
class Distribution {
 public:
  // INVALID_ARGUMENT names the parameter and the allowed range. Takes some 2 microseconds a value.
  static absl::StatusOr<Distribution> Create(const Parameters& parameters);

  double mean() const;
  // The largest number of noise queries that a row can get: bounds memory.
  uint32_t max() const;
  // weights()[k] / 2^128 is the probability of k, for k from 0 to max().
  std::span<const Weight> weights() const;

  // Fills counts[i] with independent samples, by integer comparisons only, so that they are exact.
  // Takes 8 bytes from `random` for each, in blocks, and 16 more once in about 2^32. The same
  // stream and the same number of counts give the same counts. The time depends on the counts in
  // two ways only: by those rare 16 bytes, and by the cache, as a sample reads a table at a random
  // place that narrows its count down to two values (docs/privacy.md).
  void Sample(RandomSource& random, std::span<uint32_t> counts) const;

 private:
  struct Table;
  explicit Distribution(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
  std::shared_ptr<const Table> table_;
};

// The paper's B = ceil(|inverse CDF of Laplace(0, 2 phi / epsilon) at nominal_delta / 2|), 277 for
// (0.1, 1e-6) and phi = 1. The delta that really holds with this B is larger than the nominal one.
// INVALID_ARGUMENT if a parameter, or the bound, is out of range.
absl::StatusOr<uint32_t> ClampedLaplaceBound(double epsilon, double nominal_delta, uint32_t phi);

// Whether the lemma about patterns of changes (FullestPattern) holds for a mechanism: for the
// geometric noise and the split Gaussian. Tables of their probabilities are not log-concave in
// their last bit, so that it is the mechanism that counts (docs/privacy.md).
constexpr bool IsLogConcave(Mechanism mechanism) {
  return mechanism == Mechanism::kGeometric || mechanism == Mechanism::kSplitGaussian;
}

// OK if the mechanism with these parameters really gives (epsilon, delta) for phi changed queries
// of a client that asks each row, or bucket, at most `most_in_bucket` times in a round;
// FAILED_PRECONDITION names the delta that holds, or a mechanism of which that is not known for
// several queries in a bucket; INVALID_ARGUMENT a parameter that is out of range. The clamped
// Laplace with the paper's bound misses its nominal delta by a factor of nearly two under
// substitution: it passes only with a delta that it reaches. Takes milliseconds for phi = 1, a
// fraction of a second above.
absl::Status VerifyPrivacy(const Parameters& parameters, uint32_t most_in_bucket = 1);

// INVALID_ARGUMENT if phi is larger than the number of rows: that many distinct rows cannot change.
absl::Status CheckPhi(const Parameters& parameters, uint64_t rows);

}  // namespace shoal::noise

#endif  // SHOAL_SRC_NOISE_NOISE_H_
