// Errors and secrets: exact samples of the discrete Gaussian, in constant time.
#ifndef SHOAL_SRC_PIR_LWE_GAUSSIAN_H_
#define SHOAL_SRC_PIR_LWE_GAUSSIAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/random.h"
#include "src/pir/lwe/kernel.h"

namespace shoal::pir::lwe {

// P(x) ~ exp(-x^2 / (2 sigma^2)) over the integers, sigma = kSigma, cut at kTail sigmas: an integer
// table of the probabilities (noise::Distribution, within 2^-100 of the definition), inverted by
// comparing 126 random bits with every threshold. No branch and no address depends on a sample.
// Immutable, thread-safe.
class GaussianSampler {
 public:
  // The only instance. The first call builds its table.
  static const GaussianSampler& Get();

  // Samples are within [-max(), max()].
  uint32_t max() const { return static_cast<uint32_t>(threshold_high_.size()); }

  // Fills `samples`. Draws 16 bytes from `random` for each. About 40 ns each on AVX2.
  void Sample(const Kernel& kernel, RandomSource& random, std::span<int32_t> samples) const;

  // The threshold of magnitude m + 1 is high * 2^63 + low: the probability, over 2^126, that
  // |x| <= m. For tests.
  std::span<const uint64_t> threshold_high() const { return threshold_high_; }
  std::span<const uint64_t> threshold_low() const { return threshold_low_; }

 private:
  GaussianSampler();
  std::vector<uint64_t> threshold_high_;
  std::vector<uint64_t> threshold_low_;
};

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_GAUSSIAN_H_
