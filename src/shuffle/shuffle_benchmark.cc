// Draws a permutation and moves records by it, for arrays that fit the cache and for larger ones.
// Reports items per second, and percent of the memory's bandwidth on two threads.
#include "benchmark/benchmark.h"
#include "src/base/check.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/base/testing/test_random.h"
#include "src/shuffle/permutation.h"
#include "src/shuffle/scatter.h"

namespace shoal::shuffle {
namespace {

// Compares the speed with the memory's: `bytes` are read or written once an iteration.
void SetPercent(double bytes, benchmark::State& state) {
  static const double limit = testing::MeasureMemoryBandwidth(2).copy;
  state.counters["percent"] =
      benchmark::Counter(100 * bytes / limit, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["memory_GB/s"] = limit / 1e9;
}

// Arguments: items, threads.
void BM_RandomPermutation(benchmark::State& state) {
  const Seed key = testing::TestRandom(1).NewSeed();
  ThreadPool pool(static_cast<size_t>(state.range(1)));
  for (auto _ : state) {
    SHOAL_CHECK(RandomPermutation(static_cast<uint64_t>(state.range(0)), key.view(), pool).ok());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  // Numbers are written to their buckets, read, and written in their order.
  SetPercent(12.0 * static_cast<double>(state.range(0)), state);
}
BENCHMARK(BM_RandomPermutation)
    ->ArgNames({"items", "threads"})
    ->ArgsProduct({{1 << 10, 1 << 16, 1 << 20, 1 << 24}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Arguments: records, bytes of each, whether in memory.
void BM_Scatter(benchmark::State& state) {
  const auto n = static_cast<uint64_t>(state.range(0));
  const auto record_bytes = static_cast<size_t>(state.range(1));
  const Seed key = testing::TestRandom(1).NewSeed();
  ThreadPool pool;
  SpoolPlace spools("/tmp", state.range(2) != 0 ? uint64_t{1} << 40 : 0);
  const auto places = *RandomPermutation(n, key.view(), pool);
  const Bytes records(n * record_bytes, 1);
  for (auto _ : state) {
    Scatter scatter =
        *Scatter::Create(n, record_bytes, *spools.Create(Scatter::MemoryBytes(n, record_bytes)));
    SHOAL_CHECK(scatter.Put(places.span(), records, pool).ok());
    while (!scatter.Next(pool)->empty()) {
    }
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(records.size()));
  // Places and records are read and records written. Through a file, records with their places are
  // written and read once more.
  const double record = static_cast<double>(record_bytes);
  SetPercent(
      static_cast<double>(n) * (4 + 2 * record + (state.range(2) != 0 ? 0 : 2 * (record + 4))),
      state);
}
BENCHMARK(BM_Scatter)
    ->ArgNames({"records", "bytes", "memory"})
    ->ArgsProduct({{1 << 16, 1 << 21}, {52, 112}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shoal::shuffle
