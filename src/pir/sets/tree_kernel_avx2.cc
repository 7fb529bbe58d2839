// One block an instruction, as AES-NI has it, and sums of records by 32 bytes.
#include "src/pir/sets/tree_kernel.h"

#if defined(__AVX2__) && defined(__AES__)

#include <immintrin.h>

#include <cstring>

#include "src/pir/sets/tree_kernel_impl.h"

namespace shoal::pir::sets {
namespace {

struct Blocks1 {
  static constexpr size_t kBlocks = 1;
  __m128i v;

  SHOAL_INLINE static Blocks1 Repeat(const uint8_t* block) { return Load(block); }
  SHOAL_INLINE static Blocks1 Number(uint64_t n) { return Numbers(n); }
  SHOAL_INLINE static Blocks1 Numbers(uint64_t first) {
    return {_mm_set_epi64x(0, static_cast<int64_t>(first))};
  }
  SHOAL_INLINE static Blocks1 Load(const uint8_t* from) {
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))};
  }
  SHOAL_INLINE void Store(uint8_t* to) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), v);
  }
  SHOAL_INLINE void StoreWords(uint32_t word, uint32_t mask, uint32_t* to) const {
    // The word's four bytes, to each place.
    const auto bytes = static_cast<int32_t>(0x03020100u + word * 0x04040404u);
    const __m128i words = _mm_shuffle_epi8(v, _mm_set1_epi32(bytes));
    *to = static_cast<uint32_t>(_mm_cvtsi128_si32(words)) & mask;
  }
  SHOAL_INLINE Blocks1 operator^(Blocks1 other) const { return {_mm_xor_si128(v, other.v)}; }
  SHOAL_INLINE Blocks1 Round(Blocks1 key) const { return {_mm_aesenc_si128(v, key.v)}; }
  SHOAL_INLINE Blocks1 LastRound(Blocks1 key) const { return {_mm_aesenclast_si128(v, key.v)}; }
};

SHOAL_INLINE __m256i Load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
SHOAL_INLINE void Store(uint8_t* to, __m256i v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
}

void Add(const uint8_t* a, const uint8_t* b, size_t bytes, uint8_t* out) {
  for (; bytes >= 32; bytes -= 32, a += 32, b += 32, out += 32) {
    Store(out, _mm256_xor_si256(Load(a), Load(b)));
  }
  for (; bytes >= 8; bytes -= 8, a += 8, b += 8, out += 8) {
    uint64_t x, y;
    std::memcpy(&x, a, 8);
    std::memcpy(&y, b, 8);
    x ^= y;
    std::memcpy(out, &x, 8);
  }
  for (size_t i = 0; i < bytes; ++i) out[i] = a[i] ^ b[i];
}

// N registers of each record, from byte `column` on.
template <int N>
void SumColumn(const RowSums& job, size_t column, uint8_t* sums) {
  for (size_t s = 0; s < job.sums; ++s) {
    const uint8_t* chunk = job.rows + s * job.step_bytes + column;
    const uint32_t* offsets = job.offsets + s * job.stride;
    uint8_t* sum = sums + s * job.record_bytes + column;
    __m256i total[N];
    SHOAL_UNROLL
    for (int i = 0; i < N; ++i) total[i] = Load(sum + 32 * i);
    for (size_t t = 0; t < job.each; ++t, chunk += job.chunk_bytes) {
      const uint8_t* record = chunk + size_t{offsets[t]} * job.record_bytes;
      SHOAL_UNROLL
      for (int i = 0; i < N; ++i) total[i] = _mm256_xor_si256(total[i], Load(record + 32 * i));
    }
    SHOAL_UNROLL
    for (int i = 0; i < N; ++i) Store(sum + 32 * i, total[i]);
  }
}

void SumRows(const RowSums& job, uint8_t* sums) {
  size_t column = 0;
  for (; job.record_bytes - column >= 256; column += 256) SumColumn<8>(job, column, sums);
  for (; job.record_bytes - column >= 32; column += 32) SumColumn<1>(job, column, sums);
  if (column == job.record_bytes) return;
  for (size_t s = 0; s < job.sums; ++s) {
    uint8_t* sum = sums + s * job.record_bytes + column;
    for (size_t t = 0; t < job.each; ++t) {
      const uint8_t* record = job.rows + s * job.step_bytes + t * job.chunk_bytes +
                              size_t{job.offsets[s * job.stride + t]} * job.record_bytes + column;
      Add(sum, record, job.record_bytes - column, sum);
    }
  }
}

}  // namespace

const TreeKernel* Avx2TreeKernel() {
  static constexpr TreeKernel kKernel = {.name = "avx2",
                                         .expand = ExpandNodes<Blocks1>,
                                         .leaves = LeavesOfTrees<Blocks1>,
                                         .sum_rows = SumRows,
                                         .find = FindLeaf,
                                         .add = Add};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("aes") ? &kKernel : nullptr;
}

}  // namespace shoal::pir::sets

#else

namespace shoal::pir::sets {
const TreeKernel* Avx2TreeKernel() { return nullptr; }
}  // namespace shoal::pir::sets

#endif
