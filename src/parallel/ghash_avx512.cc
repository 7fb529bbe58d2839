// Four blocks in a vector, 64 blocks for each reduction.
//
// Field elements are polynomials over GF(2) modulo x^128 + x^7 + x^2 + x + 1 whose first bit is the
// constant term. With their bytes reversed they are 128-bit integers whose bits run backwards, and
// a carry-less product of two of them lacks a factor x. So the table has the powers times x, which
// costs nothing afterwards (Gueron and Kounavis, "Intel Carry-Less Multiplication Instruction and
// its Usage for Computing the GCM Mode").
#include "src/parallel/ghash.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__VPCLMULQDQ__) && defined(__PCLMUL__)

#include <immintrin.h>

namespace shoal {
namespace {

constexpr size_t kPowers = 64;
// The table: H^64, H^63, .., H, each times x; then for each of these the XOR of its halves, twice.
static_assert(GhashKernel::kTableBytes == kPowers * (16 + 16));

// x^64 times this is what folds the low half of a product, bits backwards, into the rest.
constexpr long long kFold = static_cast<long long>(0xc200000000000000);

inline __m128i Reversed(__m128i a) {
  return _mm_shuffle_epi8(a, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// A product of 256 bits as low + middle x^64 + high x^128, reduced. Twice the lowest 64 bits are
// cleared by adding a multiple of the modulus.
inline __m128i Reduce(__m128i low, __m128i middle, __m128i high) {
  const __m128i fold = _mm_set_epi64x(0, kFold);
  middle = _mm_xor_si128(
      middle, _mm_xor_si128(_mm_shuffle_epi32(low, 0x4e), _mm_clmulepi64_si128(low, fold, 0x00)));
  return _mm_xor_si128(high, _mm_xor_si128(_mm_shuffle_epi32(middle, 0x4e),
                                           _mm_clmulepi64_si128(middle, fold, 0x00)));
}

inline __m128i Multiply(__m128i a, __m128i b) {
  return Reduce(_mm_clmulepi64_si128(a, b, 0x00),
                _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01), _mm_clmulepi64_si128(a, b, 0x10)),
                _mm_clmulepi64_si128(a, b, 0x11));
}

void Prepare(const uint8_t* key, uint8_t* table) {
  const __m128i h = Reversed(_mm_loadu_si128(reinterpret_cast<const __m128i*>(key)));
  // Times x: a shift by one bit, and the modulus if the highest bit falls out.
  const __m128i top = _mm_shuffle_epi32(_mm_srai_epi32(h, 31), 0xff);
  const __m128i carry = _mm_slli_si128(_mm_srli_epi64(h, 63), 8);
  const __m128i modulus = _mm_set_epi64x(kFold, 1);
  const __m128i h_x =
      _mm_xor_si128(_mm_or_si128(_mm_slli_epi64(h, 1), carry), _mm_and_si128(top, modulus));
  __m128i power = h_x;
  for (size_t i = kPowers; i-- > 0;) {
    const __m128i halves = _mm_xor_si128(power, _mm_shuffle_epi32(power, 0x4e));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(table) + i, power);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(table) + kPowers + i, halves);
    power = Multiply(power, h_x);
  }
}

// Sums of products, of each of the four lanes.
struct Sums {
  __m512i low, middle, high;
};

// Adds the products of four blocks with four powers (Karatsuba: three multiplications).
inline void AddProducts(__m512i blocks, __m512i power, __m512i halves, Sums& sums) {
  const __m512i both = _mm512_xor_si512(blocks, _mm512_shuffle_epi32(blocks, _MM_PERM_BADC));
  sums.low = _mm512_xor_si512(sums.low, _mm512_clmulepi64_epi128(blocks, power, 0x00));
  sums.middle = _mm512_xor_si512(sums.middle, _mm512_clmulepi64_epi128(both, halves, 0x00));
  sums.high = _mm512_xor_si512(sums.high, _mm512_clmulepi64_epi128(blocks, power, 0x11));
}

inline __m128i SumOfLanes(__m512i a) {
  const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

void Add(const uint8_t* table, uint8_t* y, const uint8_t* blocks, size_t n) {
  const __m512i reverse =
      _mm512_broadcast_i32x4(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  __m128i sum = _mm_loadu_si128(reinterpret_cast<const __m128i*>(y));
  while (n > 0) {
    const size_t now = n < kPowers ? n : kPowers;
    const uint8_t* const powers = table + 16 * (kPowers - now);
    const uint8_t* const halves = powers + 16 * kPowers;
    Sums sums = {};
    __m512i first = _mm512_zextsi128_si512(sum);  // belongs to the first block
    size_t i = 0;
    for (; i + 4 <= now; i += 4) {
      const __m512i four = _mm512_shuffle_epi8(_mm512_loadu_si512(blocks + 16 * i), reverse);
      AddProducts(_mm512_xor_si512(four, first), _mm512_loadu_si512(powers + 16 * i),
                  _mm512_loadu_si512(halves + 16 * i), sums);
      first = _mm512_setzero_si512();
    }
    if (i < now) {
      const auto rest = static_cast<__mmask8>((1u << (2 * (now - i))) - 1);
      const __m512i some =
          _mm512_shuffle_epi8(_mm512_maskz_loadu_epi64(rest, blocks + 16 * i), reverse);
      AddProducts(_mm512_xor_si512(some, first), _mm512_maskz_loadu_epi64(rest, powers + 16 * i),
                  _mm512_maskz_loadu_epi64(rest, halves + 16 * i), sums);
    }
    const __m128i low = SumOfLanes(sums.low), high = SumOfLanes(sums.high);
    sum = Reduce(low, _mm_xor_si128(SumOfLanes(sums.middle), _mm_xor_si128(low, high)), high);
    blocks += 16 * now;
    n -= now;
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), sum);
}

void Finish(uint8_t* y) {
  __m128i* const at = reinterpret_cast<__m128i*>(y);
  _mm_storeu_si128(at, Reversed(_mm_loadu_si128(at)));
}

}  // namespace

const GhashKernel* Avx512Ghash() {
  static constexpr GhashKernel kKernel = {Prepare, Add, Finish};
  return &kKernel;
}

}  // namespace shoal

#else

namespace shoal {
const GhashKernel* Avx512Ghash() { return nullptr; }
}  // namespace shoal

#endif
