// One block an instruction. Valgrind has these instructions, but no wider ones, so
// constant_time_test checks the template with them.
#include "src/pir/aes/counter_stream.h"

#if defined(__AES__) && defined(__SSE4_1__)

#include <immintrin.h>

#include "src/pir/aes/counter_stream_impl.h"

namespace shoal::pir {
namespace {

struct Blocks1 {
  static constexpr size_t kBlocks = 1;
  __m128i v;

  SHOAL_INLINE static Blocks1 Repeat(const uint8_t* block) { return Load(block); }
  SHOAL_INLINE static Blocks1 Repeat32(int32_t word) { return {_mm_set1_epi32(word)}; }
  SHOAL_INLINE static Blocks1 Numbers(uint64_t first) {
    return {_mm_set_epi64x(0, static_cast<int64_t>(first))};
  }
  SHOAL_INLINE static Blocks1 Load(const uint8_t* from) {
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))};
  }
  SHOAL_INLINE void Store(uint8_t* to) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v);
  }
  SHOAL_INLINE Blocks1 operator^(Blocks1 other) const { return {_mm_xor_si128(v, other.v)}; }
  SHOAL_INLINE Blocks1 PlusNumbers(Blocks1 other) const { return {_mm_add_epi64(v, other.v)}; }
  SHOAL_INLINE Blocks1 PlusProducts(Blocks1 a, Blocks1 b) const {
    return {_mm_add_epi32(v, _mm_mullo_epi32(a.v, b.v))};
  }
  SHOAL_INLINE Blocks1 Turned() const {
    return {
        _mm_shuffle_epi8(v, _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
  }
  SHOAL_INLINE Blocks1 Round(Blocks1 key) const { return {_mm_aesenc_si128(v, key.v)}; }
  SHOAL_INLINE Blocks1 LastRound(Blocks1 key) const { return {_mm_aesenclast_si128(v, key.v)}; }
};

}  // namespace

const CounterStream* AesNiStream() {
  static constexpr CounterStream kStream = StreamOf<Blocks1>("aesni");
  return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("aes") ? &kStream : nullptr;
}

}  // namespace shoal::pir

#else

namespace shoal::pir {
const CounterStream* AesNiStream() { return nullptr; }
}  // namespace shoal::pir

#endif
