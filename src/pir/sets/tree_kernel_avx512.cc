// Four blocks an instruction, and sums of records by 64 bytes.
#include "src/pir/sets/tree_kernel.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AES__) && \
    defined(__VAES__)

#include <immintrin.h>

#include <array>
#include <utility>

#include "src/pir/sets/tree_kernel_impl.h"

namespace shoal::pir::sets {
namespace {

struct Blocks4 {
  static constexpr size_t kBlocks = 4;
  __m512i v;

  SHOAL_INLINE static Blocks4 Repeat(const uint8_t* block) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block)))};
  }
  SHOAL_INLINE static Blocks4 Number(uint64_t n) {
    return {_mm512_maskz_set1_epi64(0x55, static_cast<int64_t>(n))};
  }
  SHOAL_INLINE static Blocks4 Numbers(uint64_t first) {
    return {_mm512_add_epi64(_mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0), Number(first).v)};
  }
  SHOAL_INLINE static Blocks4 Load(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
  SHOAL_INLINE void Store(uint8_t* to) const { _mm512_storeu_si512(to, v); }
  SHOAL_INLINE void StoreWords(uint32_t word, uint32_t mask, uint32_t* to) const {
    const auto lanes = static_cast<__mmask16>(0x1111u << word);
    const __m128i words = _mm512_castsi512_si128(_mm512_maskz_compress_epi32(lanes, v));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_and_si128(words, _mm_set1_epi32(static_cast<int>(mask))));
  }
  SHOAL_INLINE Blocks4 operator^(Blocks4 other) const { return {_mm512_xor_si512(v, other.v)}; }
  SHOAL_INLINE Blocks4 Round(Blocks4 key) const { return {_mm512_aesenc_epi128(v, key.v)}; }
  SHOAL_INLINE Blocks4 LastRound(Blocks4 key) const { return {_mm512_aesenclast_epi128(v, key.v)}; }
};

// Bytes of a record behind its last whole register of 64: a half one, and some of another half.
enum Tail { kNoTail = 0, kHalf = 1, kPart = 2, kHalfAndPart = 3 };

// N registers of each record, from byte `column` on, and then a tail.
template <int N, int kTail>
void SumColumn(const RowSums& job, size_t column, uint8_t* sums) {
  const size_t part = kTail & kPart ? job.record_bytes % 32 : 0;
  const __mmask32 mask = (uint32_t{1} << part) - 1;
  constexpr size_t kHalfAt = 64 * N, kPartAt = kHalfAt + (kTail & kHalf ? 32 : 0);
  for (size_t s = 0; s < job.sums; ++s) {
    const uint8_t* chunk = job.rows + s * job.step_bytes + column;
    const uint32_t* offsets = job.offsets + s * job.stride;
    uint8_t* sum = sums + s * job.record_bytes + column;
    __m512i total[N > 0 ? N : 1];
    __m256i half, some;
    SHOAL_UNROLL
    for (int i = 0; i < N; ++i) total[i] = _mm512_loadu_si512(sum + 64 * i);
    if constexpr (kTail & kHalf) {
      half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum + kHalfAt));
    }
    if constexpr (kTail & kPart) some = _mm256_maskz_loadu_epi8(mask, sum + kPartAt);
    for (size_t t = 0; t < job.each; ++t, chunk += job.chunk_bytes) {
      const uint8_t* record = chunk + size_t{offsets[t]} * job.record_bytes;
      SHOAL_UNROLL
      for (int i = 0; i < N; ++i) {
        total[i] = _mm512_xor_si512(total[i], _mm512_loadu_si512(record + 64 * i));
      }
      if constexpr (kTail & kHalf) {
        half = _mm256_xor_si256(
            half, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(record + kHalfAt)));
      }
      if constexpr (kTail & kPart) {
        some = _mm256_xor_si256(some, _mm256_maskz_loadu_epi8(mask, record + kPartAt));
      }
    }
    SHOAL_UNROLL
    for (int i = 0; i < N; ++i) _mm512_storeu_si512(sum + 64 * i, total[i]);
    if constexpr (kTail & kHalf) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(sum + kHalfAt), half);
    }
    if constexpr (kTail & kPart) _mm256_mask_storeu_epi8(sum + kPartAt, mask, some);
  }
}

using Column = void (*)(const RowSums&, size_t, uint8_t*);
constexpr size_t kMostRegisters = 16;

template <size_t... I>
constexpr std::array<Column, sizeof...(I)> ColumnsOf(std::index_sequence<I...>) {
  return {SumColumn<I / 4, I % 4>...};
}
constexpr auto kColumns = ColumnsOf(std::make_index_sequence<4 * kMostRegisters>());

void SumRows(const RowSums& job, uint8_t* sums) {
  constexpr size_t kWhole = 64 * kMostRegisters;
  size_t column = 0;
  // The last column has the tail. One of 16 registers and a tail is a single one.
  for (; job.record_bytes - column > kWhole + 63; column += kWhole) {
    SumColumn<kMostRegisters, kNoTail>(job, column, sums);
  }
  const size_t left = job.record_bytes - column;
  const int tail = (left % 64 >= 32 ? kHalf : 0) | (left % 32 > 0 ? kPart : 0);
  if (left < kWhole) {
    kColumns[4 * (left / 64) + tail](job, column, sums);
  } else if (tail == kHalfAndPart) {
    SumColumn<kMostRegisters, kHalfAndPart>(job, column, sums);
  } else if (tail == kHalf) {
    SumColumn<kMostRegisters, kHalf>(job, column, sums);
  } else if (tail == kPart) {
    SumColumn<kMostRegisters, kPart>(job, column, sums);
  } else {
    SumColumn<kMostRegisters, kNoTail>(job, column, sums);
  }
}

void Add(const uint8_t* a, const uint8_t* b, size_t bytes, uint8_t* out) {
  for (; bytes >= 64; bytes -= 64, a += 64, b += 64, out += 64) {
    _mm512_storeu_si512(out, _mm512_xor_si512(_mm512_loadu_si512(a), _mm512_loadu_si512(b)));
  }
  if (bytes == 0) return;
  const __mmask64 mask = (uint64_t{1} << bytes) - 1;
  _mm512_mask_storeu_epi8(
      out, mask,
      _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, a), _mm512_maskz_loadu_epi8(mask, b)));
}

}  // namespace

const TreeKernel* Avx512TreeKernel() {
  static constexpr TreeKernel kKernel = {.name = "avx512",
                                         .expand = ExpandNodes<Blocks4>,
                                         .leaves = LeavesOfTrees<Blocks4>,
                                         .sum_rows = SumRows,
                                         .find = FindLeaf,
                                         .add = Add};
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("aes") &&
                 __builtin_cpu_supports("vaes")
             ? &kKernel
             : nullptr;
}

}  // namespace shoal::pir::sets

#else

namespace shoal::pir::sets {
const TreeKernel* Avx512TreeKernel() { return nullptr; }
}  // namespace shoal::pir::sets

#endif
