// AVX-512 with byte dot products.
#include "src/pir/lwe/kernel.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

#include <immintrin.h>

#include "src/pir/lwe/kernel_impl.h"

namespace shoal::pir::lwe {
namespace {

struct Bytes64 {
  static constexpr size_t kBytes = 64;
  __m512i v;

  SHOAL_INLINE static Bytes64 LoadKept(const uint8_t* from) { return {_mm512_load_si512(from)}; }
  SHOAL_INLINE static Bytes64 Zero() { return {_mm512_setzero_si512()}; }
  SHOAL_INLINE static Bytes64 AddProducts(Bytes64 acc, Bytes64 a, Bytes64 b) {
    return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)};
  }
  template <int kBits>
  SHOAL_INLINE Bytes64 PlusShifted(Bytes64 other) const {
    return {_mm512_add_epi32(v, _mm512_slli_epi32(other.v, kBits))};
  }
  SHOAL_INLINE static void Sums(const Bytes64 (&of)[4], uint32_t* out) {
    const __m512i first = AddHalves(of[0].v, of[1].v), second = AddHalves(of[2].v, of[3].v);
    // Every 128 bits hold a partial sum of each of the four.
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(first, second),
                                         _mm512_unpackhi_epi64(first, second));
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out),
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
  }

 private:
  // In every 128 bits: two sums of two lanes of a, alternating with those of b.
  SHOAL_INLINE static __m512i AddHalves(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
};

}  // namespace

const Kernel* VnniKernel() {
  static constexpr Kernel kKernel = {
      .name = "avx512vnni",
      .pack = PackBytes<Bytes64>,
      .multiply = MultiplyBytes<Bytes64>,
      .add_scaled = AddScaledLoop,
      .dot = DotLoop,
      .count_thresholds = CountThresholdsLoop,
  };
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vnni")
             ? &kKernel
             : nullptr;
}

}  // namespace shoal::pir::lwe

#else

namespace shoal::pir::lwe {
const Kernel* VnniKernel() { return nullptr; }
}  // namespace shoal::pir::lwe

#endif
