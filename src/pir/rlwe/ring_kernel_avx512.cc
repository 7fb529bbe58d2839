// Eight lanes.
#include "src/pir/rlwe/ring_kernel.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>

#include "src/base/instruction_set.h"
#include "src/pir/rlwe/ring_kernel_impl.h"

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
  SHOAL_INLINE static void Transpose16(uint32_t* block) {
    __m512i a[16], b[16];
    SHOAL_UNROLL for (size_t i = 0; i < 16; ++i) a[i] = Load(block + 16 * i).v;
    // Words of neighbouring rows side by side, then pairs of them: each quarter of a register is a
    // column of four rows.
    SHOAL_UNROLL for (size_t i = 0; i < 16; i += 2) {
      b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    SHOAL_UNROLL for (size_t i = 0; i < 16; i += 4) {
      a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
      a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
      a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
      a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    // Quarter q of a[4 g + c] is column 4 q + c of rows 4 g to 4 g + 3.
    SHOAL_UNROLL for (size_t c = 0; c < 4; ++c) {
      const __m512i low = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88);
      const __m512i low_odd = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd);
      const __m512i high = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88);
      const __m512i high_odd = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd);
      Lanes8{_mm512_shuffle_i32x4(low, high, 0x88)}.Store(block + 16 * c);
      Lanes8{_mm512_shuffle_i32x4(low_odd, high_odd, 0x88)}.Store(block + 16 * (4 + c));
      Lanes8{_mm512_shuffle_i32x4(low, high, 0xdd)}.Store(block + 16 * (8 + c));
      Lanes8{_mm512_shuffle_i32x4(low_odd, high_odd, 0xdd)}.Store(block + 16 * (12 + c));
    }
  }
};

}  // namespace

const RingKernel* Avx512RingKernel() {
  static constexpr RingKernel kernel = RingKernelOf<Lanes8>::Make("avx512");
  return IsSupported(InstructionSet::kAvx512) ? &kernel : nullptr;
}

}  // namespace shoal::pir::rlwe

#else

namespace shoal::pir::rlwe {

const RingKernel* Avx512RingKernel() { return nullptr; }

}  // namespace shoal::pir::rlwe

#endif
