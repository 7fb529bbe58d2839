// Bytes a second of ContentMac, by chunk size and threads, beside two other MACs (Poly1305,
// BLAKE2b) and the machine's memory. Rates are per second of processor time, summed over the
// threads, which other programs do not change. `percent` compares the rate with one sequential read
// by as many threads in the same run.
//
//   bazel run --config=opt //src/parallel:content_mac_benchmark
#include <map>
#include <string>

#include "benchmark/benchmark.h"
#include "openssl/evp.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/parallel/content_mac.h"

namespace shoal {
namespace {

constexpr size_t kBytes = size_t{128} << 20;  // far more than the caches hold
constexpr size_t kCached = size_t{256} << 10;

BytesView Content(size_t bytes) {
  static const Bytes content(kBytes, 1);
  return BytesView(content).first(bytes);
}

double ReadBandwidth(size_t threads) {
  static std::map<size_t, double> measured;
  const auto [at, fresh] = measured.try_emplace(threads);
  if (fresh) at->second = testing::MeasureMemoryBandwidth(threads).read;
  return at->second;
}

// Runs `digest` of Content(bytes).
template <typename Function>
void Measure(benchmark::State& state, size_t bytes, size_t threads, const Function& digest) {
  const double limit = ReadBandwidth(threads);
  const Stopwatch cpu(Stopwatch::kProcess);
  for (auto _ : state) digest();
  const double seconds = cpu.Seconds() / static_cast<double>(threads);
  const double speed =
      static_cast<double>(state.iterations()) * static_cast<double>(bytes) / seconds;
  state.counters["GB/s"] = speed / 1e9;
  state.counters["memory_GB/s"] = limit / 1e9;
  state.counters["percent"] = 100 * speed / limit;
}

void BM_ContentMac(benchmark::State& state) {
  const auto threads = static_cast<size_t>(state.range(1));
  const ContentMac mac(Bytes(32, 1), "benchmark", static_cast<size_t>(state.range(0)) << 10);
  if (threads == 1) {
    ContentMac::Stream stream(mac);
    Measure(state, kBytes, 1, [&] { stream.Update(Content(kBytes)); });
  } else {
    ThreadPool pool(threads - 1);  // the caller works, too
    Measure(state, kBytes, threads,
            [&] { benchmark::DoNotOptimize(mac.Of(Content(kBytes), pool)); });
  }
}
BENCHMARK(BM_ContentMac)
    ->ArgNames({"chunk_KiB", "threads"})
    ->Args({16, 1})
    ->Args({64, 1})
    ->Args({256, 1})
    ->Args({1024, 1})
    ->Args({64, 2})
    ->Args({256, 2})
    ->Unit(benchmark::kMillisecond);

// Argument: the instruction set. Cached content, so that the multiplications are the limit.
void BM_ChunkTagCached(benchmark::State& state) {
  const auto set = static_cast<InstructionSet>(state.range(0));
  if (!IsSupported(set)) return state.SkipWithError("this machine has no such instructions");
  const InstructionSet before = ActiveInstructionSet();
  UseInstructionSet(set);
  const ContentMac mac(Bytes(32, 1), "benchmark", kCached);
  UseInstructionSet(before);
  Measure(state, kCached, 1, [&] { benchmark::DoNotOptimize(mac.ChunkTag(1, Content(kCached))); });
  state.SetLabel(std::string(NameOf(set)));
}
BENCHMARK(BM_ChunkTagCached)
    ->Arg(static_cast<int>(InstructionSet::kPortable))
    ->Arg(static_cast<int>(InstructionSet::kAvx512));

// In chunks of 256 KiB.
void BM_Poly1305(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0)) << 10;
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
  EVP_MAC_CTX* context = EVP_MAC_CTX_new(mac);
  const Bytes key(32, 1);
  uint8_t tag[16];
  size_t written = 0;
  Measure(state, bytes, 1, [&] {
    for (size_t at = 0; at < bytes; at += kCached) {
      SHOAL_CHECK(EVP_MAC_init(context, key.data(), key.size(), nullptr) == 1);
      SHOAL_CHECK(EVP_MAC_update(context, Content(bytes).data() + at, kCached) == 1);
      SHOAL_CHECK(EVP_MAC_final(context, tag, &written, sizeof tag) == 1);
    }
  });
  EVP_MAC_CTX_free(context);
  EVP_MAC_free(mac);
}
BENCHMARK(BM_Poly1305)->ArgName("KiB")->Arg(kBytes >> 10)->Arg(kCached >> 10);

void BM_Blake2b(benchmark::State& state) {
  const Bytes key(32, 1);
  uint8_t digest[32];
  Measure(state, kBytes, 1, [&] {
    crypto_generichash(digest, sizeof digest, Content(kBytes).data(), kBytes, key.data(),
                       key.size());
  });
}
BENCHMARK(BM_Blake2b)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shoal
