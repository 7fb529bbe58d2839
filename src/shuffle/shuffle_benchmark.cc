// Drawing a permutation, items per second, from arrays that fit the cache to arrays that do not.
#include "benchmark/benchmark.h"
#include "src/base/testing/test_random.h"
#include "src/shuffle/permutation.h"

namespace shoal::shuffle {
namespace {

void BM_RandomPermutation(benchmark::State& state) {
  testing::TestRandom random(1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(RandomPermutation(static_cast<size_t>(state.range(0)), random));
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_RandomPermutation)->Range(1 << 10, 1 << 24)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shoal::shuffle
