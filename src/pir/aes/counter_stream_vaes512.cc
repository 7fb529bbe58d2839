// Four blocks an instruction.
#include "src/pir/aes/counter_stream.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AES__) && defined(__VAES__)

#include <immintrin.h>

#include "src/pir/aes/counter_stream_impl.h"

namespace shoal::pir {
namespace {

struct Blocks4 {
  static constexpr size_t kBlocks = 4;
  __m512i v;

  SHOAL_INLINE static Blocks4 Repeat(const uint8_t* block) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)))};
  }
  SHOAL_INLINE static Blocks4 Repeat32(int32_t word) { return {_mm512_set1_epi32(word)}; }
  SHOAL_INLINE static Blocks4 Numbers(uint64_t first) {
    const auto number = static_cast<int64_t>(first);
    return {_mm512_set_epi64(0, number + 3, 0, number + 2, 0, number + 1, 0, number)};
  }
  SHOAL_INLINE static Blocks4 Load(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
  SHOAL_INLINE void Store(uint8_t* to) const { _mm512_storeu_si512(to, v); }
  SHOAL_INLINE Blocks4 operator^(Blocks4 other) const { return {_mm512_xor_si512(v, other.v)}; }
  SHOAL_INLINE Blocks4 PlusNumbers(Blocks4 other) const { return {_mm512_add_epi64(v, other.v)}; }
  SHOAL_INLINE Blocks4 PlusProducts(Blocks4 a, Blocks4 b) const {
    return {_mm512_add_epi32(v, _mm512_mullo_epi32(a.v, b.v))};
  }
  SHOAL_INLINE Blocks4 Turned() const {
    return {_mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
                                                                       10, 11, 12, 13, 14, 15)))};
  }
  SHOAL_INLINE Blocks4 Round(Blocks4 key) const { return {_mm512_aesenc_epi128(v, key.v)}; }
  SHOAL_INLINE Blocks4 LastRound(Blocks4 key) const { return {_mm512_aesenclast_epi128(v, key.v)}; }
};

}  // namespace

const CounterStream* Vaes512Stream() {
  static constexpr CounterStream kStream = StreamOf<Blocks4>("vaes512");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("aes") && __builtin_cpu_supports("vaes")
             ? &kStream
             : nullptr;
}

}  // namespace shoal::pir

#else

namespace shoal::pir {
const CounterStream* Vaes512Stream() { return nullptr; }
}  // namespace shoal::pir

#endif
