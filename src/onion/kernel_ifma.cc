// Eight lanes of AVX-512 with 52-bit integer fused multiply-add (IFMA).
#include "src/onion/kernel.h"

#if defined(__AVX512IFMA__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <immintrin.h>

#include "src/base/inline.h"
#include "src/onion/chacha20_batch.h"
#include "src/onion/curve_batch.h"
#include "src/onion/field51.h"
#include "src/onion/key_schedule_batch.h"
#include "src/onion/poly1305_batch.h"

namespace shoal::onion {
namespace {

struct Vec8 {
  static constexpr size_t kLanes = 8;
  using Word = uint64_t;
  using Mask = __mmask8;
  __m512i v;

  SHOAL_INLINE static Vec8 Set1(uint64_t a) { return {_mm512_set1_epi64(static_cast<int64_t>(a))}; }
  SHOAL_INLINE static Vec8 Load(const uint64_t* from) { return {_mm512_load_si512(from)}; }
  SHOAL_INLINE void Store(uint64_t* to) const { _mm512_store_si512(to, v); }

  SHOAL_INLINE friend Vec8 operator+(Vec8 a, Vec8 b) { return {_mm512_add_epi64(a.v, b.v)}; }
  SHOAL_INLINE friend Vec8 operator-(Vec8 a, Vec8 b) { return {_mm512_sub_epi64(a.v, b.v)}; }
  SHOAL_INLINE friend Vec8 operator&(Vec8 a, Vec8 b) { return {_mm512_and_si512(a.v, b.v)}; }
  SHOAL_INLINE friend Vec8 operator|(Vec8 a, Vec8 b) { return {_mm512_or_si512(a.v, b.v)}; }
  SHOAL_INLINE friend Vec8 operator^(Vec8 a, Vec8 b) { return {_mm512_xor_si512(a.v, b.v)}; }
  template <int kBits>
  SHOAL_INLINE Vec8 Srl() const {
    return {_mm512_srli_epi64(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec8 Sll() const {
    return {_mm512_slli_epi64(v, kBits)};
  }
  SHOAL_INLINE Vec8 SrlBy(int bits) const { return {_mm512_srl_epi64(v, _mm_cvtsi32_si128(bits))}; }
  SHOAL_INLINE Vec8 SllBy(int bits) const { return {_mm512_sll_epi64(v, _mm_cvtsi32_si128(bits))}; }
  SHOAL_INLINE Vec8 Times19() const {
    return {
        _mm512_add_epi64(_mm512_add_epi64(v, _mm512_slli_epi64(v, 1)), _mm512_slli_epi64(v, 4))};
  }

  // acc + the low or the high 52 bits of the 104-bit product of a and b, both below 2^52.
  SHOAL_INLINE static Vec8 MaddLo(Vec8 acc, Vec8 a, Vec8 b) {
    return {_mm512_madd52lo_epu64(acc.v, a.v, b.v)};
  }
  SHOAL_INLINE static Vec8 MaddHi(Vec8 acc, Vec8 a, Vec8 b) {
    return {_mm512_madd52hi_epu64(acc.v, a.v, b.v)};
  }

  // acc + 19 a, for a below 2^32.
  SHOAL_INLINE static Vec8 AddTimes19(Vec8 acc, Vec8 a) { return MaddLo(acc, a, Set1(19)); }

  // The product of the low halves.
  SHOAL_INLINE static Vec8 Mul32(Vec8 a, Vec8 b) { return {_mm512_mul_epu32(a.v, b.v)}; }

  // Lanes with any bit of `bits`.
  SHOAL_INLINE static Mask TestBits(Vec8 a, Vec8 bits) {
    return _mm512_test_epi64_mask(a.v, bits.v);
  }
  SHOAL_INLINE static Mask IsZero(Vec8 a) { return _mm512_testn_epi64_mask(a.v, a.v); }
  SHOAL_INLINE static bool FirstLane(Mask mask) { return (mask & 1) != 0; }
  SHOAL_INLINE static Vec8 Select(Mask mask, Vec8 a, Vec8 b) {
    return {_mm512_mask_mov_epi64(b.v, mask, a.v)};
  }
  // mask ? a - b : b.
  SHOAL_INLINE static Vec8 SubIf(Mask mask, Vec8 a, Vec8 b) {
    return {_mm512_mask_sub_epi64(b.v, mask, a.v, b.v)};
  }
  SHOAL_INLINE Vec8 BroadcastFirst() const {
    return {_mm512_broadcastq_epi64(_mm512_castsi512_si128(v))};
  }

  // A look-up reads all 32 entries and picks in registers.
  struct Index {
    __m512i low;  // the permutation looks at four bits
    Mask high;
  };
  SHOAL_INLINE static Index MakeIndex(Vec8 index) {
    return {index.v, _mm512_test_epi64_mask(index.v, _mm512_set1_epi64(16))};
  }
  SHOAL_INLINE static Vec8 LookUp(const uint64_t* entry, const Index& index) {
    const __m512i low = _mm512_permutex2var_epi64(_mm512_load_si512(entry), index.low,
                                                  _mm512_load_si512(entry + 8));
    const __m512i high = _mm512_permutex2var_epi64(_mm512_load_si512(entry + 16), index.low,
                                                   _mm512_load_si512(entry + 24));
    return {_mm512_mask_mov_epi64(low, index.high, high)};
  }
};

// Sixteen lanes of 32 bits.
struct Vec16 {
  static constexpr size_t kLanes = 16;
  using Word = uint32_t;
  __m512i v;

  SHOAL_INLINE static Vec16 Set1(uint32_t a) { return {_mm512_set1_epi32(static_cast<int>(a))}; }
  SHOAL_INLINE static Vec16 Load(const uint32_t* from) { return {_mm512_load_si512(from)}; }
  SHOAL_INLINE void Store(uint32_t* to) const { _mm512_store_si512(to, v); }
  SHOAL_INLINE friend Vec16 operator+(Vec16 a, Vec16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
  SHOAL_INLINE friend Vec16 operator^(Vec16 a, Vec16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
  template <int kBits>
  SHOAL_INLINE Vec16 Srl() const {
    return {_mm512_srli_epi32(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec16 Sll() const {
    return {_mm512_slli_epi32(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec16 RotateRight() const {
    return {_mm512_ror_epi32(v, kBits)};
  }

  // The constants are truth tables: bit 4 a + 2 b + c.
  SHOAL_INLINE static Vec16 Xor(Vec16 a, Vec16 b, Vec16 c) {
    return {_mm512_ternarylogic_epi32(a.v, b.v, c.v, 0x96)};
  }
  // a ? b : c, bit by bit.
  SHOAL_INLINE static Vec16 Choose(Vec16 a, Vec16 b, Vec16 c) {
    return {_mm512_ternarylogic_epi32(a.v, b.v, c.v, 0xca)};
  }
  // The majority of a, b and c, bit by bit. Instruction sets without it use the last argument.
  SHOAL_INLINE static Vec16 Majority(Vec16 a, Vec16 b, Vec16 c, Vec16&) {
    return {_mm512_ternarylogic_epi32(a.v, b.v, c.v, 0xe8)};
  }
};

using Batch = CurveBatch<Field51<Vec8>>;
using Schedule = KeyScheduleBatch<Vec16>;

}  // namespace

const Kernel* IfmaKernel() {
  static constexpr Kernel kKernel = {"ifma",
                                     1,
                                     Batch::Multiply,
                                     sizeof(Batch::Table),
                                     Batch::BuildTable,
                                     Batch::MultiplyFixed,
                                     Schedule::KeySchedule,
                                     Schedule::ExportNumbered,
                                     ChaCha20Batch<Vec16>::StreamBlock,
                                     Poly1305Batch<Vec8>::Tags};
  return &kKernel;
}

}  // namespace shoal::onion

#else

namespace shoal::onion {
const Kernel* IfmaKernel() { return nullptr; }
}  // namespace shoal::onion

#endif
