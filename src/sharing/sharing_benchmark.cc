// Costs of sharing, per message: expanding a seed, a party's step, a client's first tally, and
// masking an answer (bytes per second: the limit is ChaCha20).
#include <vector>

#include "benchmark/benchmark.h"
#include "src/base/testing/test_random.h"
#include "src/sharing/sharing.h"

namespace shoal::sharing {
namespace {

using ::shoal::testing::TestRandom;

void BM_Expand(benchmark::State& state) {
  const Seed seed = TestRandom(1).NewSeed();
  const Digest id = {};
  for (auto _ : state) benchmark::DoNotOptimize(Expand(seed.view(), id));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_Expand);

void BM_Advance(benchmark::State& state) {
  TestRandom random(1);
  std::vector<QueryShare> shares(1 << 12);
  std::vector<uint32_t> tallies(shares.size(), 1);
  for (QueryShare& share : shares) share = Expand(random.NewSeed().view(), Digest{}).share;
  for (auto _ : state) {
    for (size_t i = 0; i < shares.size(); ++i) tallies[i] = Advance(shares[i], tallies[i]);
    benchmark::DoNotOptimize(tallies.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(shares.size()));
}
BENCHMARK(BM_Advance);

void BM_FirstTally(benchmark::State& state) {
  TestRandom random(1);
  std::vector<QueryShare> shares(static_cast<size_t>(state.range(0)));
  for (QueryShare& share : shares) share = Expand(random.NewSeed().view(), Digest{}).share;
  for (auto _ : state) benchmark::DoNotOptimize(FirstTally(shares, 123));
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_FirstTally)->Arg(2)->Arg(3)->Arg(8);

void BM_XorMask(benchmark::State& state) {
  const Seed seed = TestRandom(1).NewSeed();
  Bytes answer(static_cast<size_t>(state.range(0)));
  for (auto _ : state) {
    XorMask(seed.view(), Digest{}, answer);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_XorMask)->Arg(52)->Arg(112)->Arg(1072);

}  // namespace
}  // namespace shoal::sharing
