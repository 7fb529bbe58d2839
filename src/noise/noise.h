// Noise queries: how many a party makes up for every row (paper, algorithm 6; docs/privacy.md).
#ifndef SHOAL_SRC_NOISE_NOISE_H_
#define SHOAL_SRC_NOISE_NOISE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/random.h"

namespace shoal::noise {

enum class Mechanism {
  kClampedLaplace = 1,
  kGeometric = 2,
  kSplitGaussian = 3,
};

// The numbers mean the same as in wire::NoiseParameters.
struct Parameters {
  Mechanism mechanism = Mechanism::kGeometric;
  double epsilon = 1;
  double delta = 1e-6;
  uint32_t phi = 1;
  uint32_t mode = 0;
  double left_scale = 0;
  double right_scale = 0;
};

// A distribution of noise per row, as an exact table: the probabilities are integers over 2^128
// that sum to it, within 2^-100 (total variation) of the mechanism's definition.
// Immutable and thread-safe; cheap to copy.
class Distribution {
 public:
  // INVALID_ARGUMENT names the parameter and the allowed range.
  static absl::StatusOr<Distribution> Create(const Parameters& parameters);

  const Parameters& parameters() const;
  double mean() const;
  // The largest number of noise queries that a row can get: bounds memory.
  uint32_t max() const;

  // Fills counts[i] with independent samples; exact: integer comparisons only.
  void Sample(RandomSource& random, std::span<uint32_t> counts) const;

 private:
  struct Table;
  std::shared_ptr<const Table> table_;
};

// OK if the mechanism with these parameters really gives (epsilon, delta) for phi changed queries;
// FAILED_PRECONDITION names the delta that holds. CLAMPED_LAPLACE at phi = 1 misses its stated delta
// by a factor of nearly two under substitution: it passes only a delta that it reaches.
absl::Status VerifyPrivacy(const Parameters& parameters);

}  // namespace shoal::noise

#endif  // SHOAL_SRC_NOISE_NOISE_H_
