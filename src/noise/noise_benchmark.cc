// Samples a second and core of every mechanism, with the generator that a party uses.
#include <vector>

#include "benchmark/benchmark.h"
#include "src/base/random.h"
#include "src/noise/noise.h"

namespace shoal::noise {
namespace {

void Sample(benchmark::State& state, const Parameters& parameters) {
  const Distribution distribution = Distribution::Create(parameters).value();
  const Bytes seed(32, 7);
  SeededRandom random(seed, "noise benchmark");
  std::vector<uint32_t> counts(1 << 16);
  for (auto _ : state) {
    distribution.Sample(random, counts);
    benchmark::DoNotOptimize(counts.data());
  }
  state.SetItemsProcessed(state.iterations() * counts.size());
}

BENCHMARK_CAPTURE(Sample, geometric_1, Parameters{Mechanism::kGeometric, 1, 1e-6, 1, 15, 1.25, 5});
BENCHMARK_CAPTURE(Sample, geometric_0_1,
                  Parameters{Mechanism::kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74});
BENCHMARK_CAPTURE(Sample, clamped_laplace_0_1,
                  Parameters{Mechanism::kClampedLaplace, 0.1, 1e-6, 1, 277});
BENCHMARK_CAPTURE(Sample, split_gaussian_0_1_phi_100,
                  Parameters{Mechanism::kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177});

void Verify(benchmark::State& state, const Parameters& parameters) {
  for (auto _ : state) benchmark::DoNotOptimize(VerifyPrivacy(parameters).ok());
}
BENCHMARK_CAPTURE(Verify, geometric_0_1,
                  Parameters{Mechanism::kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74});
BENCHMARK_CAPTURE(Verify, split_gaussian_0_1_phi_100,
                  Parameters{Mechanism::kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177});

}  // namespace
}  // namespace shoal::noise
