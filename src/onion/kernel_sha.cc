// The AVX2 kernel with the processor's own instructions for SHA-256, for processors that have both
// and no AVX-512: AMD's from Zen 1 to Zen 3, Intel's from Alder Lake.
#include "src/onion/kernel.h"

#if defined(__AVX2__) && defined(__SHA__)

#include <immintrin.h>

#include "src/base/inline.h"
#include "src/onion/key_schedule_batch.h"
#include "src/onion/sha256_constants.h"

namespace shoal::onion {
namespace {

// Four lanes of 32 bits. The instructions take one item at a time, with its words in two registers:
// so lanes are transposed before the rounds and after them. A round waits for the one before it;
// rounds of four items in turns keep the processor busy meanwhile.
struct Vec4x32 {
  static constexpr size_t kLanes = 4;
  using Word = uint32_t;
  __m128i v;

  SHOAL_INLINE static Vec4x32 Set1(uint32_t a) { return {_mm_set1_epi32(static_cast<int>(a))}; }
  SHOAL_INLINE static Vec4x32 Load(const uint32_t* from) {
    return {_mm_load_si128(reinterpret_cast<const __m128i*>(from))};
  }
  SHOAL_INLINE void Store(uint32_t* to) const {
    _mm_store_si128(reinterpret_cast<__m128i*>(to), v);
  }
  SHOAL_INLINE friend Vec4x32 operator^(Vec4x32 a, Vec4x32 b) { return {_mm_xor_si128(a.v, b.v)}; }
  template <int kBits>
  SHOAL_INLINE Vec4x32 Srl() const {
    return {_mm_srli_epi32(v, kBits)};
  }
  template <int kBits>
  SHOAL_INLINE Vec4x32 Sll() const {
    return {_mm_slli_epi32(v, kBits)};
  }

  // What Sha256Batch calls in place of its own rounds.
  SHOAL_INLINE static void Sha256Rounds(Vec4x32 state[8], Vec4x32 w[16]) {
    __m128i schedule[4][kLanes];
    SHOAL_UNROLL for (int i = 0; i < 4; ++i) {
      Transpose(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3], schedule[i]);
    }
    Rounds(state, [&](int r, size_t lane) SHOAL_INLINE_LAMBDA {
      __m128i& word = schedule[r % 4][lane];
      const __m128i& last = schedule[(r + 3) % 4][lane];
      if (r >= 4) {
        // Words 16 to 13, 15 to 12, 7 to 4 and 2 and 1 before.
        word = _mm_add_epi32(_mm_sha256msg1_epu32(word, schedule[(r + 1) % 4][lane]),
                             _mm_alignr_epi8(last, schedule[(r + 2) % 4][lane], 4));
        word = _mm_sha256msg2_epu32(word, last);
      }
      return _mm_add_epi32(word, LoadFour(kSha256Rounds + 4 * r));
    });
    __builtin_memset(schedule, 0, sizeof schedule);
    __asm__ __volatile__("" : : "r"(schedule) : "memory");
  }
  SHOAL_INLINE static void Sha256FixedRounds(Vec4x32 state[8], const uint32_t round[64]) {
    Rounds(state, [&](int r, size_t) SHOAL_INLINE_LAMBDA { return LoadFour(round + 4 * r); });
  }

 private:
  SHOAL_INLINE static __m128i LoadFour(const uint32_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }

  // out[l] = lane l of a, b, c, d, the first in the lowest word.
  SHOAL_INLINE static void Transpose(Vec4x32 a, Vec4x32 b, Vec4x32 c, Vec4x32 d, __m128i out[4]) {
    const __m128i ab0 = _mm_unpacklo_epi32(a.v, b.v), ab2 = _mm_unpackhi_epi32(a.v, b.v);
    const __m128i cd0 = _mm_unpacklo_epi32(c.v, d.v), cd2 = _mm_unpackhi_epi32(c.v, d.v);
    out[0] = _mm_unpacklo_epi64(ab0, cd0);
    out[1] = _mm_unpackhi_epi64(ab0, cd0);
    out[2] = _mm_unpacklo_epi64(ab2, cd2);
    out[3] = _mm_unpackhi_epi64(ab2, cd2);
  }

  // `kw(r, lane)` are the sums of constant and schedule word of rounds 4 r to 4 r + 3.
  template <typename Kw>
  SHOAL_INLINE static void Rounds(Vec4x32 state[8], const Kw& kw) {
    __m128i abef[kLanes], cdgh[kLanes];
    Transpose(state[5], state[4], state[1], state[0], abef);
    Transpose(state[7], state[6], state[3], state[2], cdgh);
    SHOAL_UNROLL for (int r = 0; r < 16; ++r) {
      SHOAL_UNROLL for (size_t lane = 0; lane < kLanes; ++lane) {
        const __m128i four = kw(r, lane);
        cdgh[lane] = _mm_sha256rnds2_epu32(cdgh[lane], abef[lane], four);
        abef[lane] = _mm_sha256rnds2_epu32(abef[lane], cdgh[lane], _mm_shuffle_epi32(four, 0x0e));
      }
    }
    __m128i after[4];
    constexpr int kAbef[4] = {5, 4, 1, 0}, kCdgh[4] = {7, 6, 3, 2};
    Transpose({abef[0]}, {abef[1]}, {abef[2]}, {abef[3]}, after);
    SHOAL_UNROLL for (int i = 0; i < 4; ++i) {
      state[kAbef[i]].v = _mm_add_epi32(state[kAbef[i]].v, after[i]);
    }
    Transpose({cdgh[0]}, {cdgh[1]}, {cdgh[2]}, {cdgh[3]}, after);
    SHOAL_UNROLL for (int i = 0; i < 4; ++i) {
      state[kCdgh[i]].v = _mm_add_epi32(state[kCdgh[i]].v, after[i]);
    }
  }
};

using Schedule = KeyScheduleBatch<Vec4x32>;

Kernel WithSha(const Kernel& avx2) {
  Kernel kernel = avx2;
  kernel.name = "avx2sha";
  kernel.key_schedule = Schedule::KeySchedule;
  kernel.export_numbered = Schedule::ExportNumbered;
  return kernel;
}

}  // namespace

const Kernel* Avx2ShaKernel() {
  static const Kernel kernel = WithSha(*Avx2Kernel());
  return &kernel;
}

}  // namespace shoal::onion

#else

namespace shoal::onion {
const Kernel* Avx2ShaKernel() { return nullptr; }
}  // namespace shoal::onion

#endif
