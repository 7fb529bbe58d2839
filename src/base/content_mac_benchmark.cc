// Bytes a second of ContentMac, by the size of its chunks and by threads, beside what it could be
// made of (Poly1305, BLAKE2b) and beside the machine's memory. of_memory is the share of one
// sequential read by as many threads, measured in the same run.
//
//   bazel run --config=opt //src/base:content_mac_benchmark
#include <chrono>
#include <map>

#include "benchmark/benchmark.h"
#include "openssl/evp.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/content_mac.h"
#include "src/base/testing/memory_bandwidth.h"

namespace shoal {
namespace {

constexpr size_t kBytes = size_t{128} << 20;  // far more than the caches hold

const Bytes& Content() {
  static const Bytes content(kBytes, 1);
  return content;
}

double ReadBandwidth(size_t threads) {
  static std::map<size_t, double> measured;
  const auto [at, fresh] = measured.try_emplace(threads);
  if (fresh) at->second = testing::MeasureMemoryBandwidth(threads).read;
  return at->second;
}

// Runs `digest` of all of Content().
template <typename Function>
void Measure(benchmark::State& state, size_t threads, const Function& digest) {
  const double limit = ReadBandwidth(threads);
  const auto before = std::chrono::steady_clock::now();
  for (auto _ : state) digest();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
  const double speed = static_cast<double>(state.iterations()) * kBytes / seconds.count();
  state.counters["GB/s"] = speed / 1e9;
  state.counters["memory_GB/s"] = limit / 1e9;
  state.counters["of_memory"] = speed / limit;
}

void BM_ContentMac(benchmark::State& state) {
  const auto threads = static_cast<size_t>(state.range(1));
  const ContentMac mac(Bytes(32, 1), "benchmark", static_cast<size_t>(state.range(0)) << 10);
  if (threads == 1) {
    ContentMac::Stream stream(mac);
    Measure(state, 1, [&] { stream.Update(Content()); });
  } else {
    ThreadPool pool(threads - 1);  // the caller works, too
    Measure(state, threads, [&] { benchmark::DoNotOptimize(mac.Of(Content(), pool)); });
  }
}
BENCHMARK(BM_ContentMac)
    ->ArgNames({"chunk_KiB", "threads"})
    ->Args({16, 1})
    ->Args({64, 1})
    ->Args({256, 1})
    ->Args({1024, 1})
    ->Args({256, 2})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void BM_Poly1305(benchmark::State& state) {
  const size_t chunk = static_cast<size_t>(state.range(0)) << 10;
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
  EVP_MAC_CTX* context = EVP_MAC_CTX_new(mac);
  const Bytes key(32, 1);
  uint8_t tag[16];
  size_t written = 0;
  Measure(state, 1, [&] {
    for (size_t at = 0; at < kBytes; at += chunk) {
      SHOAL_CHECK(EVP_MAC_init(context, key.data(), key.size(), nullptr) == 1);
      SHOAL_CHECK(EVP_MAC_update(context, Content().data() + at, chunk) == 1);
      SHOAL_CHECK(EVP_MAC_final(context, tag, &written, sizeof tag) == 1);
    }
  });
  EVP_MAC_CTX_free(context);
  EVP_MAC_free(mac);
}
BENCHMARK(BM_Poly1305)->ArgName("chunk_KiB")->Arg(256)->Unit(benchmark::kMillisecond);

void BM_Blake2b(benchmark::State& state) {
  const Bytes key(32, 1);
  uint8_t digest[32];
  Measure(state, 1, [&] {
    crypto_generichash(digest, sizeof digest, Content().data(), kBytes, key.data(), key.size());
  });
}
BENCHMARK(BM_Blake2b)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shoal
