// Two blocks an instruction.
#include "src/pir/aes/counter_stream.h"

#if defined(__AVX2__) && defined(__AES__) && defined(__VAES__)

#include <immintrin.h>

#include "src/pir/aes/counter_stream_impl.h"

namespace shoal::pir {
namespace {

struct Blocks2 {
  static constexpr size_t kBlocks = 2;
  __m256i v;

  SHOAL_INLINE static Blocks2 Repeat(const uint8_t* block) {
    return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)))};
  }
  SHOAL_INLINE static Blocks2 Repeat32(int32_t word) { return {_mm256_set1_epi32(word)}; }
  SHOAL_INLINE static Blocks2 Numbers(uint64_t first) {
    const auto number = static_cast<int64_t>(first);
    return {_mm256_set_epi64x(0, number + 1, 0, number)};
  }
  SHOAL_INLINE static Blocks2 Load(const uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  SHOAL_INLINE void Store(uint8_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
  }
  SHOAL_INLINE Blocks2 operator^(Blocks2 other) const { return {_mm256_xor_si256(v, other.v)}; }
  SHOAL_INLINE Blocks2 PlusNumbers(Blocks2 other) const { return {_mm256_add_epi64(v, other.v)}; }
  SHOAL_INLINE Blocks2 PlusProducts(Blocks2 a, Blocks2 b) const {
    return {_mm256_add_epi32(v, _mm256_mullo_epi32(a.v, b.v))};
  }
  SHOAL_INLINE Blocks2 Turned() const {
    return {_mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_set_epi8(
                                       0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)))};
  }
  SHOAL_INLINE Blocks2 Round(Blocks2 key) const { return {_mm256_aesenc_epi128(v, key.v)}; }
  SHOAL_INLINE Blocks2 LastRound(Blocks2 key) const { return {_mm256_aesenclast_epi128(v, key.v)}; }
};

}  // namespace

const CounterStream* Vaes256Stream() {
  static constexpr CounterStream kStream = StreamOf<Blocks2>("vaes256");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("aes") &&
                 __builtin_cpu_supports("vaes")
             ? &kStream
             : nullptr;
}

}  // namespace shoal::pir

#else

namespace shoal::pir {
const CounterStream* Vaes256Stream() { return nullptr; }
}  // namespace shoal::pir

#endif
