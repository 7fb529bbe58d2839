#include "src/base/testing/memory_bandwidth.h"

#include <sys/mman.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "src/base/check.h"
#include "src/base/stopwatch.h"

namespace shoal::testing {
namespace {

constexpr size_t kBytes = size_t{128} << 20;
constexpr int kPasses = 9;

class Pages {
 public:
  Pages()
      : memory_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    SHOAL_CHECK(memory_ != MAP_FAILED);
    madvise(memory_, kBytes, MADV_HUGEPAGE);  // a kernel that has none says no
    std::memset(memory_, 1, kBytes);
  }
  ~Pages() { munmap(memory_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint64_t* words() { return static_cast<uint64_t*>(memory_); }

 private:
  void* memory_;
};

typedef uint64_t Vector __attribute__((vector_size(64)));

void Read(Pages& pages) {
  const Vector* const from = reinterpret_cast<const Vector*>(pages.words());
  Vector sum[4] = {};
  for (size_t i = 0; i < kBytes / sizeof(Vector); i += 4) {
    for (size_t k = 0; k < 4; ++k) sum[k] ^= from[i + k];
  }
  const Vector all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  asm volatile("" : : "m"(all));
}

void Write(Pages& pages) {
#ifdef __x86_64__
  typedef long long Half __attribute__((vector_size(16)));
  Half* const to = reinterpret_cast<Half*>(pages.words());
  for (size_t i = 0; i < kBytes / sizeof(Half); ++i) __builtin_ia32_movntdq(to + i, Half{1, 2});
  __builtin_ia32_sfence();
#else
  std::memset(pages.words(), 2, kBytes);
#endif
}

// Bytes a second, all threads together.
double Best(size_t threads, const std::function<void(Pages& from, Pages& to)>& pass) {
  std::vector<double> best(threads);
  std::barrier together(static_cast<std::ptrdiff_t>(threads));
  const auto run = [&](double& mine) {
    Pages from, to;
    for (int i = 0; i < kPasses; ++i) {
      together.arrive_and_wait();
      const Stopwatch cpu(Stopwatch::kThread);
      pass(from, to);
      mine = std::max(mine, static_cast<double>(kBytes) / cpu.Seconds());
    }
    together.arrive_and_wait();
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(run, std::ref(best[i]));
  run(best[0]);
  for (std::thread& other : others) other.join();
  return std::accumulate(best.begin(), best.end(), 0.0);
}

uint64_t ReadOnce(const uint8_t* data, uint64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (uint64_t i = 0; i < bytes / 8; i += 4) {
    a += words[i];
    b += words[i + 1];
    c += words[i + 2];
    d += words[i + 3];
  }
  return a + b + c + d;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t ReadOnceAvx2(const uint8_t* data, uint64_t bytes) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (uint64_t i = 0; i < bytes; i += 256) {
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2112), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2176), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2240), _MM_HINT_T0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      sums[k] = _mm256_add_epi64(
          sums[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
    }
  }
  for (int k = 1; k < 8; ++k) sums[0] = _mm256_add_epi64(sums[0], sums[k]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0));
}

__attribute__((target("avx512f"))) uint64_t ReadOnceAvx512(const uint8_t* data, uint64_t bytes) {
  __m512i sums[8];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (uint64_t i = 0; i < bytes; i += 512) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      sums[k] = _mm512_add_epi64(sums[k], _mm512_load_si512(data + i + 64 * k));
    }
  }
  for (int k = 1; k < 8; ++k) sums[0] = _mm512_add_epi64(sums[0], sums[k]);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sums[0]);
  return words[0];
}
#endif

}  // namespace

std::vector<Reader> Readers() {
  std::vector<Reader> readers = {{"words", ReadOnce}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) readers.push_back({"avx2", ReadOnceAvx2});
  if (__builtin_cpu_supports("avx512f")) readers.push_back({"avx512", ReadOnceAvx512});
#endif
  return readers;
}

double FastestReadRate(const uint8_t* data, uint64_t bytes) {
  double best = 0;
  for (const Reader& reader : Readers()) {
    const Stopwatch cpu(Stopwatch::kThread);
    volatile uint64_t sink = reader.read(data, bytes);
    static_cast<void>(sink);
    best = std::max(best, static_cast<double>(bytes) / cpu.Seconds());
  }
  return best;
}

MemoryBandwidth MeasureMemoryBandwidth(size_t threads) {
  MemoryBandwidth bandwidth;
  bandwidth.read = Best(threads, [](Pages& from, Pages&) { Read(from); });
  bandwidth.write = Best(threads, [](Pages&, Pages& to) { Write(to); });
  bandwidth.copy = 2 * Best(threads, [](Pages& from, Pages& to) {
                     std::memcpy(to.words(), from.words(), kBytes);
                   });
  return bandwidth;
}

}  // namespace shoal::testing
