#include "src/pir/lwe/kernel.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include "src/pir/lwe/kernel_impl.h"

namespace shoal::pir::lwe {
namespace {

struct Words32 {
  static constexpr size_t kBytes = 32;
  __m256i v;

  SHOAL_INLINE static Words32 LoadKept(const uint8_t* from) {
    __m256i v = _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
    __asm__("" : "+x"(v));
    return {v};
  }
  SHOAL_INLINE static Words32 Zero() { return {_mm256_setzero_si256()}; }
  SHOAL_INLINE Words32 LowBytes() const { return {_mm256_and_si256(v, _mm256_set1_epi16(0xff))}; }
  SHOAL_INLINE Words32 HighBytes() const { return {_mm256_srli_epi16(v, 8)}; }
  SHOAL_INLINE static Words32 AddProducts(Words32 acc, Words32 a, Words32 b) {
    __m256i sum = _mm256_add_epi32(acc.v, _mm256_madd_epi16(a.v, b.v));
    __asm__("" : "+x"(sum));
    return {sum};
  }
  template <int kBits>
  SHOAL_INLINE Words32 PlusShifted(Words32 other) const {
    return {_mm256_add_epi32(v, _mm256_slli_epi32(other.v, kBits))};
  }
  SHOAL_INLINE static void Sums(const Words32 (&of)[4], uint32_t* out) {
    // Each half holds a partial sum of each of the four.
    const __m256i all =
        _mm256_hadd_epi32(_mm256_hadd_epi32(of[0].v, of[1].v), _mm256_hadd_epi32(of[2].v, of[3].v));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
  }
};

}  // namespace

const Kernel* Avx2Kernel() {
  static constexpr Kernel kKernel = {
      .name = "avx2",
      .pack = PackWords<Words32>,
      .multiply = MultiplyWords<Words32>,
      .add_scaled = AddScaledLoop,
      .dot = DotLoop,
      .count_thresholds = CountThresholdsLoop,
  };
  return __builtin_cpu_supports("avx2") ? &kKernel : nullptr;
}

}  // namespace shoal::pir::lwe

#else

namespace shoal::pir::lwe {
const Kernel* Avx2Kernel() { return nullptr; }
}  // namespace shoal::pir::lwe

#endif
