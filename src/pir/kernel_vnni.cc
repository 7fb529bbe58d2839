// AVX-512 with byte dot products.
#include "src/pir/kernel.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

#include <immintrin.h>

#include "src/pir/kernel_impl.h"

namespace shoal::pir {
namespace {

struct Bytes64 {
  static constexpr size_t kBytes = 64;
  __m512i v;

  SHOAL_PIR_INLINE static Bytes64 LoadKept(const uint8_t* from) {
    return {_mm512_load_si512(from)};
  }
  SHOAL_PIR_INLINE static Bytes64 Zero() { return {_mm512_setzero_si512()}; }
  SHOAL_PIR_INLINE static Bytes64 AddProducts(Bytes64 acc, Bytes64 a, Bytes64 b) {
    return {_mm512_dpbusd_epi32(acc.v, a.v, b.v)};
  }
  template <int kBits>
  SHOAL_PIR_INLINE Bytes64 PlusShifted(Bytes64 other) const {
    return {_mm512_add_epi32(v, _mm512_slli_epi32(other.v, kBits))};
  }
  SHOAL_PIR_INLINE uint32_t Sum() const {
    return static_cast<uint32_t>(_mm512_reduce_add_epi32(v));
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

}  // namespace shoal::pir

#else

namespace shoal::pir {
const Kernel* VnniKernel() { return nullptr; }
}  // namespace shoal::pir

#endif
