// The kernel, written once over registers of one width. Private to the kernel_*.cc files, each of
// which is compiled for its own instruction set.
//
// The sums of some queries stay in registers while the rows of a block pass. A bit of a selection
// becomes a word of ones or zeros beforehand. A row is added to a query's sum by an AND with that
// word in every lane and an XOR; AVX-512 does both in one instruction.
//
// No byte beside a row is read. A row is read as registers at its bytes 0, 1, 2 .. widths. The last
// one ends with the row, and so overlaps with the one before it. A row shorter than a register is
// read as two halves that overlap. The sums keep this order of bytes, until Take.
//
// Two rows of 32 bytes that follow one another are a register of 64, for one query: its sum is in
// two parts then, that of rows with even and that of rows with odd numbers, which Take adds.
#ifndef SHOAL_SRC_SELECT_KERNEL_IMPL_H_
#define SHOAL_SRC_SELECT_KERNEL_IMPL_H_

#if defined(__AVX512F__) && defined(__AVX512VL__)
#include <immintrin.h>
#endif

#include "src/base/inline.h"
#include "src/select/kernel.h"

namespace shoal::select {
namespace {  // NOLINT: every file that includes this has its own, for its own instruction set

// Registers that hold sums: half of those that there are.
#if defined(__AVX512F__) && defined(__AVX512VL__)
constexpr size_t kSums = 16;
#else
constexpr size_t kSums = 8;
#endif

// The end of the chain of halves.
struct Nothing {
  static constexpr size_t kBytes = 0;
  unsigned v;
};

// 1, 2, 4 or 8 bytes.
template <typename T, typename HalfRegister>
struct Word {
  static constexpr size_t kBytes = sizeof(T);
  using Half = HalfRegister;
  T v;
  SHOAL_INLINE static Word Load(const uint8_t* from) {
    Word out;
    __builtin_memcpy(&out.v, from, kBytes);
    return out;
  }
  SHOAL_INLINE static Word Join(Half low, Half high) {
    return {static_cast<T>(low.v | static_cast<T>(high.v) << 4 * kBytes)};
  }
  SHOAL_INLINE void Store(uint8_t* to) const { __builtin_memcpy(to, &v, kBytes); }
  SHOAL_INLINE void AddIf(uint32_t mask, Word row) {
    v = static_cast<T>(v ^ (row.v & static_cast<T>(static_cast<int32_t>(mask))));
  }
};
using Bytes1 = Word<uint8_t, Nothing>;
using Bytes2 = Word<uint16_t, Bytes1>;
using Bytes4 = Word<uint32_t, Bytes2>;
using Bytes8 = Word<uint64_t, Bytes4>;

template <size_t kWidth>
struct HalfOf;

// 16, 32 or 64 bytes.
template <size_t kWidth>
struct Register {
  static constexpr size_t kBytes = kWidth;
  using Half = typename HalfOf<kWidth>::Type;
  typedef uint32_t Lanes __attribute__((vector_size(kWidth)));
  Lanes v;

  SHOAL_INLINE static Register Load(const uint8_t* from) {
    Register out;
    __builtin_memcpy(&out.v, from, kBytes);
    return out;
  }
  SHOAL_INLINE static Register Join(Half low, Half high) {
    if constexpr (kBytes == 16) {
      typedef uint64_t Halves __attribute__((vector_size(16)));
      return {reinterpret_cast<Lanes>(Halves{low.v, high.v})};
    } else if constexpr (kBytes == 32) {
      return {__builtin_shufflevector(low.v, high.v, 0, 1, 2, 3, 4, 5, 6, 7)};
    } else {
      return {__builtin_shufflevector(low.v, high.v, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                      14, 15)};
    }
  }
  SHOAL_INLINE void Store(uint8_t* to) const { __builtin_memcpy(to, &v, kBytes); }
  SHOAL_INLINE void AddIf(uint32_t mask, Register row) {
#if defined(__AVX512F__) && defined(__AVX512VL__)
    // Of gcc's own accord the two operations stay two.
    constexpr int kAXorBAndC = 0x78;
    const Lanes all = Lanes{} + mask;
    if constexpr (kBytes == 64) {
      v = (Lanes)_mm512_ternarylogic_epi32((__m512i)v, (__m512i)row.v, (__m512i)all, kAXorBAndC);
    } else if constexpr (kBytes == 32) {
      v = (Lanes)_mm256_ternarylogic_epi32((__m256i)v, (__m256i)row.v, (__m256i)all, kAXorBAndC);
    } else {
      v = (Lanes)_mm_ternarylogic_epi32((__m128i)v, (__m128i)row.v, (__m128i)all, kAXorBAndC);
    }
#else
    v ^= row.v & mask;
#endif
  }
};
template <>
struct HalfOf<16> {
  using Type = Bytes8;
};
template <>
struct HalfOf<32> {
  using Type = Register<16>;
};
template <>
struct HalfOf<64> {
  using Type = Register<32>;
};

// masks[i] is bit i of the word, in all its bits.
template <typename Lanes>
SHOAL_INLINE void Expand(uint64_t word, uint32_t* masks) {
  constexpr unsigned kCount = sizeof(Lanes) / 4;
  Lanes bits;
  SHOAL_UNROLL
  for (unsigned i = 0; i < kCount; ++i) bits[i] = 1u << i;
  SHOAL_UNROLL
  for (unsigned i = 0; i < kBlockRows; i += kCount) {
    const Lanes here = Lanes{} + static_cast<uint32_t>(word >> i);
    const Lanes expanded = (Lanes)((here & bits) == bits);
    __builtin_memcpy(masks + i, &expanded, sizeof expanded);
  }
}

// Where the registers of a row begin. `last` is that of the last one, or of the upper half of the
// only one.
template <typename V>
struct Shape {
  size_t registers, last;
  bool joined;
};

template <typename V>
SHOAL_INLINE Shape<V> ShapeOf(size_t bytes) {
  if (bytes < V::kBytes) return {1, bytes - V::Half::kBytes, true};
  return {(bytes + V::kBytes - 1) / V::kBytes, bytes - V::kBytes, false};
}

// kColumns registers of each row, of which the first is number `column`, for kQueries queries.
template <typename V, size_t kQueries, size_t kColumns, bool kJoined>
SHOAL_INLINE void AddColumns(const Block& block, bool fetch, size_t column, size_t last,
                             const uint32_t* masks, uint8_t* sums) {
  const size_t stride = PaddedBytes(block.bytes), first = column * V::kBytes;
  const size_t end = first + (kColumns - 1) * V::kBytes;
  const size_t final = kJoined || last < end ? last : end;
  V sum[kQueries][kColumns];
  SHOAL_UNROLL
  for (size_t q = 0; q < kQueries; ++q) {
    SHOAL_UNROLL
    for (size_t c = 0; c < kColumns; ++c) {
      sum[q][c] = V::Load(sums + q * stride + first + c * V::kBytes);
    }
  }
  const uint8_t* row = block.rows.first;
  // The lines that hold bytes 0, 64, 128 .. of a row to come. Where rows do not follow one another,
  // also that of the last byte. Without any, a line that is there already.
  const bool apart = fetch && block.ahead.stride >= block.bytes + 64;
  const uint8_t* ahead = fetch ? block.ahead.first : row;
  const size_t ahead_stride = fetch ? block.ahead.stride : 0;
  const size_t fetch_at = apart ? block.bytes - 1 : 0;
  const size_t fetch_from = apart ? 0 : 64, fetch_end = fetch ? block.bytes : 0;
  for (size_t i = 0; i < block.count; ++i) {
    V of[kColumns];
    if constexpr (kJoined) {
      of[0] = V::Join(V::Half::Load(row), V::Half::Load(row + final));
    } else {
      SHOAL_UNROLL
      for (size_t c = 0; c + 1 < kColumns; ++c) of[c] = V::Load(row + first + c * V::kBytes);
      of[kColumns - 1] = V::Load(row + final);
    }
    __builtin_prefetch(ahead + fetch_at);
    for (size_t at = fetch_from; at < fetch_end; at += 64) __builtin_prefetch(ahead + at);
    SHOAL_UNROLL
    for (size_t q = 0; q < kQueries; ++q) {
      const uint32_t mask = masks[q * kBlockRows + i];
      SHOAL_UNROLL
      for (size_t c = 0; c < kColumns; ++c) sum[q][c].AddIf(mask, of[c]);
    }
    row += block.rows.stride;
    ahead += ahead_stride;
  }
  SHOAL_UNROLL
  for (size_t q = 0; q < kQueries; ++q) {
    SHOAL_UNROLL
    for (size_t c = 0; c < kColumns; ++c) {
      sum[q][c].Store(sums + q * stride + first + c * V::kBytes);
    }
  }
}

// The whole rows for kQueries queries.
template <typename V, size_t kQueries>
void AddRows(const Block& block, bool fetch, const uint32_t* masks, uint8_t* sums) {
  const Shape<V> shape = ShapeOf<V>(block.bytes);
  if constexpr (V::kBytes > 1) {
    if (shape.joined) {
      AddColumns<V, kQueries, 1, true>(block, fetch, 0, shape.last, masks, sums);
      return;
    }
  }
  size_t column = 0;
  const auto columns = [&]<size_t kColumns>() SHOAL_INLINE_LAMBDA {
    AddColumns<V, kQueries, kColumns, false>(block, fetch && column == 0, column, shape.last, masks,
                                             sums);
    column += kColumns;
  };
  if constexpr (V::kBytes >= 16) {  // narrower rows have one register
    constexpr size_t kMost = kSums / kQueries;
    if constexpr (kMost >= 16) {
      while (shape.registers - column >= 16) columns.template operator()<16>();
    }
    if constexpr (kMost >= 8) {
      while (shape.registers - column >= 8) columns.template operator()<8>();
    }
    if constexpr (kMost >= 4) {
      while (shape.registers - column >= 4) columns.template operator()<4>();
    }
    if constexpr (kMost >= 2) {
      while (shape.registers - column >= 2) columns.template operator()<2>();
    }
  }
  while (column < shape.registers) columns.template operator()<1>();
}

#if defined(__AVX512F__) && defined(__AVX512VL__)
constexpr size_t kTwinBytes = 32;

// Rows of kTwinBytes that follow one another, for one query.
inline void AddTwins(const Block& block, const uint32_t* masks, uint8_t* sums) {
  using Pair = Register<2 * kTwinBytes>;
  const __m512i twice = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
  constexpr int kAXorBAndC = 0x78;
  constexpr size_t kAtATime = 4;
  __m512i sum[kAtATime] = {(__m512i)Pair::Load(sums).v};
  SHOAL_UNROLL
  for (size_t i = 1; i < kAtATime; ++i) sum[i] = _mm512_setzero_si512();
  // Without rows to come, lines that are there already.
  const uint8_t* row = block.rows.first;
  const uint8_t* ahead = block.ahead.first != nullptr ? block.ahead.first : row;
  const auto add = [&](__m512i& to, size_t pair) SHOAL_INLINE_LAMBDA {
    const __m512i both = (__m512i)Pair::Load(row + pair * Pair::kBytes).v;
    const __m128i two = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(masks + 2 * pair));
    const __m512i mask = _mm512_permutexvar_epi32(twice, _mm512_castsi128_si512(two));
    to = _mm512_ternarylogic_epi32(to, both, mask, kAXorBAndC);
    __builtin_prefetch(ahead + pair * Pair::kBytes);
  };
  const size_t pairs = block.count / 2;
  size_t pair = 0;
  for (; pair + kAtATime <= pairs; pair += kAtATime) {
    SHOAL_UNROLL
    for (size_t i = 0; i < kAtATime; ++i) add(sum[i], pair + i);
  }
  for (; pair < pairs; ++pair) add(sum[0], pair);
  Pair all;
  all.v = (Pair::Lanes)_mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]),
                                        _mm512_xor_si512(sum[2], sum[3]));
  all.Store(sums);
  if (block.count % 2 != 0) {
    Pair::Half last = Pair::Half::Load(sums);
    last.AddIf(masks[block.count - 1], Pair::Half::Load(row + (block.count - 1) * kTwinBytes));
    last.Store(sums);
  }
}
#endif

template <typename V>
void AddBlock(const Block& block, const uint32_t* masks, uint8_t* sums) {
#if defined(__AVX512F__) && defined(__AVX512VL__)
  if constexpr (V::kBytes == 2 * kTwinBytes) {
    if (block.queries == 1 && block.bytes == kTwinBytes && block.rows.stride == kTwinBytes &&
        (block.ahead.first == nullptr || block.ahead.stride == kTwinBytes)) {
      AddTwins(block, masks, sums);
      return;
    }
  }
#endif
  if constexpr (V::kBytes > 1) {
    if (block.bytes <= V::Half::kBytes) {
      AddBlock<typename V::Half>(block, masks, sums);
      return;
    }
  }
  const size_t stride = PaddedBytes(block.bytes);
  size_t done = 0;
  const auto queries = [&]<size_t kQueries>() SHOAL_INLINE_LAMBDA {
    while (block.queries - done >= kQueries) {
      AddRows<V, kQueries>(block, block.ahead.first != nullptr && done == 0,
                           masks + done * kBlockRows, sums + done * stride);
      done += kQueries;
    }
  };
  queries.template operator()<kSums>();
  queries.template operator()<4>();
  queries.template operator()<1>();
}

template <typename V>
void Add(const Block& block, uint32_t* masks, uint8_t* sums) {
  for (size_t q = 0; q < block.queries; ++q) {
    Expand<typename V::Lanes>(block.selections[q], masks + q * kBlockRows);
  }
  AddBlock<V>(block, masks, sums);
}

template <typename V>
void Take(const uint8_t* sum, size_t bytes, uint8_t* out) {
#if defined(__AVX512F__) && defined(__AVX512VL__)
  if constexpr (V::kBytes == 2 * kTwinBytes) {
    if (bytes == kTwinBytes) {
      // The second part is zeros if nothing was added to it.
      for (size_t i = 0; i < bytes; ++i) out[i] ^= sum[i] ^ sum[kTwinBytes + i];
      return;
    }
  }
#endif
  if constexpr (V::kBytes > 1) {
    if (bytes <= V::Half::kBytes) {
      Take<typename V::Half>(sum, bytes, out);
      return;
    }
  }
  const Shape<V> shape = ShapeOf<V>(bytes);
  const size_t before = shape.joined ? V::Half::kBytes : (shape.registers - 1) * V::kBytes;
  const size_t twice = shape.registers * V::kBytes - bytes;  // bytes that are there twice
  for (size_t i = 0; i < before; ++i) out[i] ^= sum[i];
  for (size_t i = before; i < bytes; ++i) out[i] ^= sum[i + twice];
}

template <typename V>
constexpr Kernel KernelOf() {
  return {.add = Add<V>, .take = Take<V>};
}

}  // namespace
}  // namespace shoal::select

#endif  // SHOAL_SRC_SELECT_KERNEL_IMPL_H_
