// Eight lanes.
#include "src/pir/rlwe/small_kernel.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>

#include "src/base/instruction_set.h"
#include "src/pir/rlwe/small_kernel_impl.h"

namespace shoal::pir::rlwe {
namespace {

struct Lanes8 {
  static constexpr size_t kLanes = 8;
  static constexpr size_t kTogether = 2;
  __m512i v;

  SHOAL_INLINE static Lanes8 Load(const uint32_t* from) {
    return {_mm512_loadu_si512(reinterpret_cast<const __m512i*>(from))};
  }
  SHOAL_INLINE void Store(uint32_t* to) const {
    _mm512_storeu_si512(reinterpret_cast<__m512i*>(to), v);
  }
  SHOAL_INLINE static Lanes8 Repeat(uint64_t value) {
    return {_mm512_set1_epi64(static_cast<long long>(value))};  // NOLINT: the intrinsic's type
  }
  SHOAL_INLINE static Lanes8 Multiply(Lanes8 a, Lanes8 b) { return {_mm512_mul_epu32(a.v, b.v)}; }
  SHOAL_INLINE static Lanes8 Add(Lanes8 a, Lanes8 b) { return {_mm512_add_epi64(a.v, b.v)}; }
  SHOAL_INLINE static Lanes8 Subtract(Lanes8 a, Lanes8 b) { return {_mm512_sub_epi64(a.v, b.v)}; }
  SHOAL_INLINE static Lanes8 Subtract32(Lanes8 a, Lanes8 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
  SHOAL_INLINE static Lanes8 Add32(Lanes8 a, Lanes8 b) { return {_mm512_add_epi32(a.v, b.v)}; }
  SHOAL_INLINE static Lanes8 MultiplyLow32(Lanes8 a, Lanes8 b) {
    return {_mm512_mullo_epi32(a.v, b.v)};
  }
  SHOAL_INLINE static Lanes8 Right(Lanes8 a, uint32_t bits) {
    return {_mm512_srl_epi64(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
  }
  SHOAL_INLINE static Lanes8 Left(Lanes8 a, uint32_t bits) {
    return {_mm512_sll_epi64(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
  }
  SHOAL_INLINE static Lanes8 And(Lanes8 a, Lanes8 b) { return {_mm512_and_si512(a.v, b.v)}; }
  SHOAL_INLINE static Lanes8 Min32(Lanes8 a, Lanes8 b) { return {_mm512_min_epu32(a.v, b.v)}; }
};

}  // namespace

const SmallKernel* Avx512SmallKernel() {
  static constexpr SmallKernel kernel = SmallKernelOf<Lanes8>::Make("avx512");
  return IsSupported(InstructionSet::kAvx512) ? &kernel : nullptr;
}

}  // namespace shoal::pir::rlwe

#else

namespace shoal::pir::rlwe {

const SmallKernel* Avx512SmallKernel() { return nullptr; }

}  // namespace shoal::pir::rlwe

#endif
