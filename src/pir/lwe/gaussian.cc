#include "src/pir/lwe/gaussian.h"

#include <algorithm>
#include <cmath>

#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/noise/noise.h"
#include "src/pir/lwe/lwe.h"

namespace shoal::pir::lwe {
namespace {

// exp(-12.2^2 / 2) is below 2^-107.
constexpr double kTail = 12.2;
constexpr uint64_t kLow63 = (uint64_t{1} << 63) - 1;

}  // namespace

const GaussianSampler& GaussianSampler::Get() {
  static const GaussianSampler sampler;
  return sampler;
}

GaussianSampler::GaussianSampler() {
  // The table of a Gaussian around `mode`, the same on both sides.
  const uint32_t mode = static_cast<uint32_t>(std::ceil(kTail * kSigma));
  const auto table = noise::Distribution::Create({.mechanism = noise::Mechanism::kSplitGaussian,
                                                  .mode = mode,
                                                  .left_scale = kSigma,
                                                  .right_scale = kSigma});
  SHOAL_CHECK(table.ok());
  const auto weights = table->weights();
  noise::Weight sum = 0;
  for (uint32_t magnitude = 0; magnitude < mode; ++magnitude) {
    sum += weights[mode - magnitude];
    if (magnitude > 0 && mode + magnitude < weights.size()) sum += weights[mode + magnitude];
    const noise::Weight threshold = sum >> 2;  // over 2^126
    threshold_high_.push_back(static_cast<uint64_t>(threshold >> 63));
    threshold_low_.push_back(static_cast<uint64_t>(threshold) & kLow63);
  }
}

void GaussianSampler::Sample(const Kernel& kernel, RandomSource& random,
                             std::span<int32_t> samples) const {
  constexpr size_t kBlock = 256;
  SecretArray<16 * kBlock> bytes;
  SecretVector<uint32_t> magnitudes(kBlock);
  while (!samples.empty()) {
    const size_t n = std::min(samples.size(), kBlock);
    random.Fill(bytes.mutable_view().first(16 * n));
    SecretVector<uint64_t> high(n), low(n);
    for (size_t i = 0; i < n; ++i) {
      high[i] = LoadLe<uint64_t>(bytes.data() + 16 * i) & kLow63;
      low[i] = LoadLe<uint64_t>(bytes.data() + 16 * i + 8) & kLow63;
    }
    kernel.count_thresholds(high.data(), low.data(), n, threshold_high_.data(),
                            threshold_low_.data(), threshold_high_.size(), magnitudes.data());
    for (size_t i = 0; i < n; ++i) {
      // All ones for a negative sample, chosen by a bit that neither half uses: (m ^ -1) + 1 = -m.
      const uint32_t sign = -static_cast<uint32_t>(bytes.data()[16 * i + 15] >> 7);
      samples[i] = static_cast<int32_t>((magnitudes[i] ^ sign) - sign);
    }
    samples = samples.subspan(n);
  }
}

}  // namespace shoal::pir::lwe
