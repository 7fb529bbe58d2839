// Four lanes.
#include "src/pir/rlwe/ring_kernel.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include "src/base/instruction_set.h"
#include "src/pir/rlwe/ring_kernel_impl.h"

namespace shoal::pir::rlwe {
namespace {

struct Lanes4 {
  static constexpr size_t kLanes = 4;
  static constexpr size_t kTogether = 1;
  __m256i v;

  SHOAL_INLINE static Lanes4 Load(const uint32_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  SHOAL_INLINE void Store(uint32_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
  }
  SHOAL_INLINE static Lanes4 Repeat(uint64_t value) {
    return {_mm256_set1_epi64x(static_cast<long long>(value))};  // NOLINT: the intrinsic's type
  }
  SHOAL_INLINE static Lanes4 Multiply(Lanes4 a, Lanes4 b) { return {_mm256_mul_epu32(a.v, b.v)}; }
  SHOAL_INLINE static Lanes4 Add(Lanes4 a, Lanes4 b) { return {_mm256_add_epi64(a.v, b.v)}; }
  SHOAL_INLINE static Lanes4 Subtract(Lanes4 a, Lanes4 b) { return {_mm256_sub_epi64(a.v, b.v)}; }
  SHOAL_INLINE static Lanes4 Subtract32(Lanes4 a, Lanes4 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
  SHOAL_INLINE static Lanes4 Add32(Lanes4 a, Lanes4 b) { return {_mm256_add_epi32(a.v, b.v)}; }
  SHOAL_INLINE static Lanes4 MultiplyLow32(Lanes4 a, Lanes4 b) {
    return {_mm256_mullo_epi32(a.v, b.v)};
  }
  SHOAL_INLINE static Lanes4 Right(Lanes4 a, uint32_t bits) {
    return {_mm256_srl_epi64(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
  }
  SHOAL_INLINE static Lanes4 Left(Lanes4 a, uint32_t bits) {
    return {_mm256_sll_epi64(a.v, _mm_cvtsi32_si128(static_cast<int>(bits)))};
  }
  SHOAL_INLINE static Lanes4 And(Lanes4 a, Lanes4 b) { return {_mm256_and_si256(a.v, b.v)}; }
  SHOAL_INLINE static Lanes4 Min32(Lanes4 a, Lanes4 b) { return {_mm256_min_epu32(a.v, b.v)}; }
};

}  // namespace

const RingKernel* Avx2RingKernel() {
  static constexpr RingKernel kernel = RingKernelOf<Lanes4>::Make("avx2");
  return IsSupported(InstructionSet::kAvx2) ? &kernel : nullptr;
}

}  // namespace shoal::pir::rlwe

#else

namespace shoal::pir::rlwe {

const RingKernel* Avx2RingKernel() { return nullptr; }

}  // namespace shoal::pir::rlwe

#endif
