// Four lanes of AVX2. Products use FMA3, which all of Intel's and AMD's processors with AVX2 have.
#include "src/onion/kernel.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

#include "src/base/inline.h"
#include "src/onion/chacha20_batch.h"
#include "src/onion/curve_batch.h"
#include "src/onion/field51_fma.h"
#include "src/onion/key_schedule_batch.h"
#include "src/onion/poly1305_batch.h"

namespace shoal::onion {
namespace {

struct Vec4 {
  static constexpr size_t kLanes = 4;
  using Word = uint64_t;
  struct Mask {
    __m256i v;  // all ones or all zeros in a lane
  };
  __m256i v;

  SHOAL_INLINE static Vec4 Set1(uint64_t a) {
    return {_mm256_set1_epi64x(static_cast<int64_t>(a))};
  }
  SHOAL_INLINE static Vec4 Load(const uint64_t* from) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(from))};
  }
  SHOAL_INLINE void Store(uint64_t* to) const {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), v);
  }

  SHOAL_INLINE friend Vec4 operator+(Vec4 a, Vec4 b) { return {_mm256_add_epi64(a.v, b.v)}; }
  SHOAL_INLINE friend Vec4 operator-(Vec4 a, Vec4 b) { return {_mm256_sub_epi64(a.v, b.v)}; }
  SHOAL_INLINE friend Vec4 operator&(Vec4 a, Vec4 b) { return {_mm256_and_si256(a.v, b.v)}; }
  SHOAL_INLINE friend Vec4 operator|(Vec4 a, Vec4 b) { return {_mm256_or_si256(a.v, b.v)}; }
  SHOAL_INLINE friend Vec4 operator^(Vec4 a, Vec4 b) { return {_mm256_xor_si256(a.v, b.v)}; }
  template <int kBits>
  SHOAL_INLINE Vec4 Srl() const {
    return {_mm256_srli_epi64(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec4 Sll() const {
    return {_mm256_slli_epi64(v, kBits)};
  }
  SHOAL_INLINE Vec4 SrlBy(int bits) const { return {_mm256_srl_epi64(v, _mm_cvtsi32_si128(bits))}; }
  SHOAL_INLINE Vec4 SllBy(int bits) const { return {_mm256_sll_epi64(v, _mm_cvtsi32_si128(bits))}; }
  SHOAL_INLINE Vec4 Times19() const {
    return {
        _mm256_add_epi64(_mm256_add_epi64(v, _mm256_slli_epi64(v, 1)), _mm256_slli_epi64(v, 4))};
  }

  // acc + 19 a, for a below 2^32 (what is above is ignored).
  SHOAL_INLINE static Vec4 AddTimes19(Vec4 acc, Vec4 a) {
    return {_mm256_add_epi64(acc.v, _mm256_mul_epu32(a.v, _mm256_set1_epi64x(19)))};
  }

  // The product of the low halves.
  SHOAL_INLINE static Vec4 Mul32(Vec4 a, Vec4 b) { return {_mm256_mul_epu32(a.v, b.v)}; }

  // field51_fma.h has the equations.
  using Real = __m256d;
  // Exact, for integers below 2^52: they are the mantissa of 2^52 + a.
  SHOAL_INLINE static Real ToReal(Vec4 a) {
    const __m256d two52 = _mm256_set1_pd(0x1p52);
    return _mm256_sub_pd(_mm256_castsi256_pd(_mm256_or_si256(a.v, _mm256_castpd_si256(two52))),
                         two52);
  }
  // The start of a column whose sum will be value + all h + all l. The numbers of h and l are given
  // in halves, as columns may be doubled on the way.
  SHOAL_INLINE static Vec4 StartColumn(uint64_t value, uint64_t half_lows, uint64_t half_highs) {
    constexpr uint64_t kHigh = uint64_t{1023 + 103} << 52;                        // 2^103
    constexpr uint64_t kLow = (uint64_t{1023 + 52} << 52) + (uint64_t{1} << 51);  // 3 * 2^51
    return Set1(value - half_highs * (kHigh / 2) - half_lows * (kLow / 2));
  }
  // Adds the halves of a b to two columns.
  SHOAL_INLINE static void AddProduct(Real a, Real b, Vec4& low, Vec4& high) {
    const __m256d h = _mm256_fmadd_pd(a, b, _mm256_set1_pd(0x1p103));
    const __m256d l = _mm256_fmadd_pd(a, b, _mm256_sub_pd(_mm256_set1_pd(0x1p103 + 0x1.8p52), h));
    high.v = _mm256_add_epi64(high.v, _mm256_castpd_si256(h));
    low.v = _mm256_add_epi64(low.v, _mm256_castpd_si256(l));
  }

  // Lanes with the one bit of `bit`.
  SHOAL_INLINE static Mask TestBits(Vec4 a, Vec4 bit) {
    return {_mm256_cmpeq_epi64(_mm256_and_si256(a.v, bit.v), bit.v)};
  }
  SHOAL_INLINE static Mask IsZero(Vec4 a) {
    return {_mm256_cmpeq_epi64(a.v, _mm256_setzero_si256())};
  }
  SHOAL_INLINE static bool FirstLane(Mask mask) { return (_mm256_movemask_epi8(mask.v) & 1) != 0; }
  SHOAL_INLINE static Vec4 Select(Mask mask, Vec4 a, Vec4 b) {
    return {_mm256_blendv_epi8(b.v, a.v, mask.v)};
  }
  // mask ? a - b : b.
  SHOAL_INLINE static Vec4 SubIf(Mask mask, Vec4 a, Vec4 b) { return Select(mask, a - b, b); }
  SHOAL_INLINE Vec4 BroadcastFirst() const {
    return {_mm256_broadcastq_epi64(_mm256_castsi256_si128(v))};
  }

  // A look-up reads all 32 entries and picks in registers.
  struct Index {
    __m256i low;     // two bits, for permutations of 32-bit halves: 2 i and 2 i + 1
    __m256d bit[3];  // the bits above, as signs
  };
  SHOAL_INLINE static Index MakeIndex(Vec4 index) {
    const __m256i low = _mm256_slli_epi64(_mm256_and_si256(index.v, _mm256_set1_epi64x(3)), 1);
    return {_mm256_or_si256(_mm256_or_si256(low, _mm256_slli_epi64(low, 32)),
                            _mm256_set1_epi64x(int64_t{1} << 32)),
            {_mm256_castsi256_pd(_mm256_slli_epi64(index.v, 61)),
             _mm256_castsi256_pd(_mm256_slli_epi64(index.v, 60)),
             _mm256_castsi256_pd(_mm256_slli_epi64(index.v, 59))}};
  }
  SHOAL_INLINE static Vec4 LookUp(const uint64_t* entry, const Index& index) {
    __m256d half[2];
    SHOAL_UNROLL for (int i = 0; i < 2; ++i) {
      __m256d part[4];
      SHOAL_UNROLL for (int j = 0; j < 4; ++j) {
        part[j] = _mm256_castsi256_pd(_mm256_permutevar8x32_epi32(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(entry + 16 * i + 4 * j)),
            index.low));
      }
      half[i] = _mm256_blendv_pd(_mm256_blendv_pd(part[0], part[1], index.bit[0]),
                                 _mm256_blendv_pd(part[2], part[3], index.bit[0]), index.bit[1]);
    }
    return {_mm256_castpd_si256(_mm256_blendv_pd(half[0], half[1], index.bit[2]))};
  }
};

// Eight lanes of 32 bits.
struct Vec8x32 {
  static constexpr size_t kLanes = 8;
  using Word = uint32_t;
  __m256i v;

  SHOAL_INLINE static Vec8x32 Set1(uint32_t a) { return {_mm256_set1_epi32(static_cast<int>(a))}; }
  SHOAL_INLINE static Vec8x32 Load(const uint32_t* from) {
    return {_mm256_load_si256(reinterpret_cast<const __m256i*>(from))};
  }
  SHOAL_INLINE void Store(uint32_t* to) const {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), v);
  }
  SHOAL_INLINE friend Vec8x32 operator+(Vec8x32 a, Vec8x32 b) {
    return {_mm256_add_epi32(a.v, b.v)};
  }
  SHOAL_INLINE friend Vec8x32 operator^(Vec8x32 a, Vec8x32 b) {
    return {_mm256_xor_si256(a.v, b.v)};
  }
  template <int kBits>
  SHOAL_INLINE Vec8x32 Srl() const {
    return {_mm256_srli_epi32(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec8x32 Sll() const {
    return {_mm256_slli_epi32(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec8x32 RotateRight() const {
    if constexpr (kBits % 8 == 0) {
      constexpr char k = kBits / 8;
      const __m256i bytes = _mm256_setr_epi8(
          k, (k + 1) % 4, (k + 2) % 4, (k + 3) % 4, 4 + k, 4 + (k + 1) % 4, 4 + (k + 2) % 4,
          4 + (k + 3) % 4, 8 + k, 8 + (k + 1) % 4, 8 + (k + 2) % 4, 8 + (k + 3) % 4, 12 + k,
          12 + (k + 1) % 4, 12 + (k + 2) % 4, 12 + (k + 3) % 4, k, (k + 1) % 4, (k + 2) % 4,
          (k + 3) % 4, 4 + k, 4 + (k + 1) % 4, 4 + (k + 2) % 4, 4 + (k + 3) % 4, 8 + k,
          8 + (k + 1) % 4, 8 + (k + 2) % 4, 8 + (k + 3) % 4, 12 + k, 12 + (k + 1) % 4,
          12 + (k + 2) % 4, 12 + (k + 3) % 4);
      return {_mm256_shuffle_epi8(v, bytes)};
    } else {
      return {_mm256_or_si256(_mm256_srli_epi32(v, kBits), _mm256_slli_epi32(v, 32 - kBits))};
    }
  }

  SHOAL_INLINE static Vec8x32 Xor(Vec8x32 a, Vec8x32 b, Vec8x32 c) { return a ^ b ^ c; }
  // a ? b : c, bit by bit.
  SHOAL_INLINE static Vec8x32 Choose(Vec8x32 a, Vec8x32 b, Vec8x32 c) {
    return {_mm256_xor_si256(_mm256_and_si256(_mm256_xor_si256(b.v, c.v), a.v), c.v)};
  }
  // The majority of a, b and c, bit by bit. `bc` is b ^ c, and becomes a ^ b, for the next round.
  SHOAL_INLINE static Vec8x32 Majority(Vec8x32 a, Vec8x32 b, Vec8x32, Vec8x32& bc) {
    const Vec8x32 ab = a ^ b;
    const Vec8x32 majority = {_mm256_xor_si256(_mm256_and_si256(ab.v, bc.v), b.v)};
    bc = ab;
    return majority;
  }
};

using Batch = CurveBatch<Field51Fma<Vec4>>;
using Schedule = KeyScheduleBatch<Vec8x32>;

// Sets rounding to nearest, for which the bounds of field51_fma.h are proved, and masks traps, as
// high halves are inexact on purpose. The destructor restores the calling thread's settings.
class RoundToNearest {
 public:
  RoundToNearest() : saved_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~RoundToNearest() { _mm_setcsr(saved_); }
  RoundToNearest(const RoundToNearest&) = delete;
  RoundToNearest& operator=(const RoundToNearest&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;  // what a process starts with: all traps masked
  unsigned saved_;
};

void Multiply(const uint8_t* scalars, size_t scalar_stride, const uint8_t* points,
              size_t point_stride, uint8_t* products, size_t n) {
  const RoundToNearest rounding;
  Batch::Multiply(scalars, scalar_stride, points, point_stride, products, n);
}

bool BuildTable(const uint8_t* point, void* table) {
  const RoundToNearest rounding;
  return Batch::BuildTable(point, table);
}

void MultiplyFixed(const void* const* tables, size_t table_count, const uint8_t* scalars,
                   size_t scalar_stride, uint8_t* const* products, size_t n) {
  const RoundToNearest rounding;
  Batch::MultiplyFixed(tables, table_count, scalars, scalar_stride, products, n);
}

}  // namespace

const Kernel* Avx2Kernel() {
  static constexpr Kernel kKernel = {"avx2",
                                     2,
                                     Multiply,
                                     sizeof(Batch::Table),
                                     BuildTable,
                                     MultiplyFixed,
                                     Schedule::KeySchedule,
                                     Schedule::ExportNumbered,
                                     ChaCha20Batch<Vec8x32>::StreamBlock,
                                     Poly1305Batch<Vec4>::Tags};
  return &kKernel;
}

}  // namespace shoal::onion

#else

namespace shoal::onion {
const Kernel* Avx2Kernel() { return nullptr; }
}  // namespace shoal::onion

#endif
