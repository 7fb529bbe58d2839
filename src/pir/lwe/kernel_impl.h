// The kernels, written once over a vector type V of one instruction set. Private to the kernel_*.cc
// files and their test.
//
// Needed of V for words (kBytes bytes, as pairs of bytes, or signed halves, or sums):
//   LoadKept(p)       kBytes bytes, into a register: not folded into each use of them
//   LowBytes(), HighBytes()    of every 16-bit lane, as a 16-bit number 0..255
//   AddProducts(acc, a, b)     acc + the sum of the two products of 16-bit lanes, in 32-bit lanes
//   Zero()
//   Sums(of, out)     out[i] = the sum of the 32-bit lanes of of[i], modulo 2^32, i < 4
//   PlusShifted<n>(v) in 32-bit lanes, this + v * 2^n
// Needed of V for bytes: LoadKept, Zero, Sums, PlusShifted, and
//   AddProducts(acc, a, b)     acc + the sum of four products of unsigned bytes a, signed bytes b
#ifndef SHOAL_SRC_PIR_LWE_KERNEL_IMPL_H_
#define SHOAL_SRC_PIR_LWE_KERNEL_IMPL_H_

#include <cstddef>
#include <cstdint>

#include "src/base/inline.h"
#include "src/pir/lwe/kernel.h"

namespace shoal::pir::lwe {

inline constexpr size_t kGroupPlaneBytes = kPlaneBytesPerColumn * kGroupColumns;
inline constexpr size_t kGroupTileBytes = kBlockRows * kGroupColumns;

// Functions that do not depend on the shape of the vectors are plain loops: the compiler turns them
// into vector code for the instruction set of the file that includes this. They are `static`, so
// that every such file has its own.
static inline void AddScaledLoop(const uint32_t* const* rows, const int32_t* factors, size_t count,
                                 size_t columns, uint32_t* __restrict sum) {
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const uint32_t* a = rows[i];
    const uint32_t* b = rows[i + 1];
    const uint32_t* c = rows[i + 2];
    const uint32_t* d = rows[i + 3];
    const uint32_t fa = static_cast<uint32_t>(factors[i]);
    const uint32_t fb = static_cast<uint32_t>(factors[i + 1]);
    const uint32_t fc = static_cast<uint32_t>(factors[i + 2]);
    const uint32_t fd = static_cast<uint32_t>(factors[i + 3]);
    for (size_t j = 0; j < columns; ++j) sum[j] += fa * a[j] + fb * b[j] + fc * c[j] + fd * d[j];
  }
  for (; i < count; ++i) {
    const uint32_t* a = rows[i];
    const uint32_t fa = static_cast<uint32_t>(factors[i]);
    for (size_t j = 0; j < columns; ++j) sum[j] += fa * a[j];
  }
}

static inline uint32_t DotLoop(const uint32_t* __restrict a, const int32_t* __restrict b,
                               size_t count) {
  uint32_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += a[i] * static_cast<uint32_t>(b[i]);
  return sum;
}

static inline void CountThresholdsLoop(const uint64_t* high, const uint64_t* low, size_t count,
                                       const uint64_t* threshold_high,
                                       const uint64_t* threshold_low, size_t thresholds,
                                       uint32_t* magnitudes) {
  constexpr size_t kLanes = 8;
  for (size_t first = 0; first < count; first += kLanes) {
    const size_t n = count - first < kLanes ? count - first : kLanes;
    uint64_t h[kLanes] = {}, l[kLanes] = {}, below[kLanes] = {};
    for (size_t i = 0; i < n; ++i) h[i] = high[first + i], l[i] = low[first + i];
    for (size_t t = 0; t < thresholds; ++t) {
      // The top bit of a difference of numbers below 2^63 is its borrow.
      for (size_t i = 0; i < kLanes; ++i) {
        const uint64_t borrow = (l[i] - threshold_low[t]) >> 63;
        below[i] += (h[i] - threshold_high[t] - borrow) >> 63;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      magnitudes[first + i] = static_cast<uint32_t>(thresholds - below[i]);
    }
    __builtin_memset(h, 0, sizeof h);
    __builtin_memset(l, 0, sizeof l);
    __asm__ volatile("" : : "r"(h), "r"(l) : "memory");
  }
}

// ---- words ----

// For every V of columns: low halves of its even columns, of its odd ones, high halves likewise.
template <typename V>
void PackWords(const uint32_t* vector, size_t groups, uint8_t* planes) {
  constexpr size_t kPairs = V::kBytes / 2;
  int16_t* out = reinterpret_cast<int16_t*>(planes);
  for (size_t first = 0; first < groups * kGroupColumns; first += V::kBytes) {
    for (size_t i = 0; i < kPairs; ++i) {
      const uint32_t even = vector[first + 2 * i] + 0x8000u;
      const uint32_t odd = vector[first + 2 * i + 1] + 0x8000u;
      out[i] = static_cast<int16_t>((even & 0xffffu) ^ 0x8000u);
      out[kPairs + i] = static_cast<int16_t>((odd & 0xffffu) ^ 0x8000u);
      out[2 * kPairs + i] = static_cast<int16_t>(even >> 16);
      out[3 * kPairs + i] = static_cast<int16_t>(odd >> 16);
    }
    out += 4 * kPairs;
  }
}

// With one vector, tiles are read from memory in order. Prefetching this far ahead hides the
// latency that the hardware's own prefetching leaves.
inline constexpr size_t kPrefetchBytes = 2048;

// For one vector: its planes stay in registers while the four rows of the block pass.
template <typename V>
SHOAL_INLINE void MultiplyWordsSingle(const uint8_t* tile, size_t groups, const uint8_t* plane,
                                      uint32_t* sums) {
  V low[kBlockRows], high[kBlockRows];
  for (size_t r = 0; r < kBlockRows; ++r) low[r] = high[r] = V::Zero();
  for (size_t g = 0; g < groups; ++g, tile += kGroupTileBytes) {
#pragma GCC unroll 4
    for (size_t r = 0; r < kBlockRows; ++r) {
      __builtin_prefetch(tile + kPrefetchBytes + r * kGroupColumns);
    }
#pragma GCC unroll 2
    for (size_t part = 0; part < kGroupColumns; part += V::kBytes, plane += 4 * V::kBytes) {
      const V low_even = V::LoadKept(plane);
      const V low_odd = V::LoadKept(plane + V::kBytes);
      const V high_even = V::LoadKept(plane + 2 * V::kBytes);
      const V high_odd = V::LoadKept(plane + 3 * V::kBytes);
#pragma GCC unroll 4
      for (size_t r = 0; r < kBlockRows; ++r) {
        const V bytes = V::LoadKept(tile + r * kGroupColumns + part);
        const V even = bytes.LowBytes();
        const V odd = bytes.HighBytes();
        low[r] = V::AddProducts(low[r], even, low_even);
        high[r] = V::AddProducts(high[r], even, high_even);
        low[r] = V::AddProducts(low[r], odd, low_odd);
        high[r] = V::AddProducts(high[r], odd, high_odd);
      }
    }
  }
  for (size_t r = 0; r < kBlockRows; ++r) low[r] = low[r].template PlusShifted<16>(high[r]);
  uint32_t sum[kBlockRows];
  V::Sums(low, sum);
  for (size_t r = 0; r < kBlockRows; ++r) sums[r] += sum[r];
}

// For two vectors and two rows of a block: the unpacked bytes stay in registers.
template <typename V>
SHOAL_INLINE void MultiplyWordsPair(const uint8_t* tile, size_t groups, const uint8_t* first,
                                    const uint8_t* second, uint32_t* sums, size_t sums_stride) {
  V low[2][2], high[2][2];  // [row][vector]
  for (size_t r = 0; r < 2; ++r) {
    for (size_t v = 0; v < 2; ++v) low[r][v] = high[r][v] = V::Zero();
  }
  for (size_t g = 0; g < groups; ++g, tile += kGroupTileBytes) {
#pragma GCC unroll 2
    for (size_t part = 0; part < kGroupColumns;
         part += V::kBytes, first += 4 * V::kBytes, second += 4 * V::kBytes) {
      const V bytes0 = V::LoadKept(tile + part);
      const V bytes1 = V::LoadKept(tile + kGroupColumns + part);
      const V even0 = bytes0.LowBytes(), odd0 = bytes0.HighBytes();
      const V even1 = bytes1.LowBytes(), odd1 = bytes1.HighBytes();
#pragma GCC unroll 2
      for (size_t v = 0; v < 2; ++v) {
        const uint8_t* plane = v == 0 ? first : second;
        const V low_even = V::LoadKept(plane);
        low[0][v] = V::AddProducts(low[0][v], even0, low_even);
        low[1][v] = V::AddProducts(low[1][v], even1, low_even);
        const V low_odd = V::LoadKept(plane + V::kBytes);
        low[0][v] = V::AddProducts(low[0][v], odd0, low_odd);
        low[1][v] = V::AddProducts(low[1][v], odd1, low_odd);
        const V high_even = V::LoadKept(plane + 2 * V::kBytes);
        high[0][v] = V::AddProducts(high[0][v], even0, high_even);
        high[1][v] = V::AddProducts(high[1][v], even1, high_even);
        const V high_odd = V::LoadKept(plane + 3 * V::kBytes);
        high[0][v] = V::AddProducts(high[0][v], odd0, high_odd);
        high[1][v] = V::AddProducts(high[1][v], odd1, high_odd);
      }
    }
  }
  V whole[4];
  for (size_t i = 0; i < 4; ++i) {
    whole[i] = low[i % 2][i / 2].template PlusShifted<16>(high[i % 2][i / 2]);
  }
  uint32_t sum[4];
  V::Sums(whole, sum);
  for (size_t i = 0; i < 4; ++i) sums[i / 2 * sums_stride + i % 2] += sum[i];
}

// Prefetches memory that will be needed soon, a little at every step, into the second-level cache,
// so that the first-level cache keeps the data in use.
struct Prefetcher {
  static constexpr size_t kLine = 64;
  const uint8_t* at;
  size_t left;  // bytes
  size_t step;  // of each step, a multiple of kLine

  SHOAL_INLINE Prefetcher(const uint8_t* first, size_t bytes, size_t steps)
      : at(first), left(bytes), step(steps == 0 ? 0 : (bytes / steps + kLine) / kLine * kLine) {}
  SHOAL_INLINE void Step() {
    const size_t now = step < left ? step : left;
    for (size_t i = 0; i < now; i += kLine) {
      __builtin_prefetch(at + i, /*rw=*/0, /*locality=*/2);
    }
    at += now;
    left -= now;
  }
};

template <typename V>
void MultiplyWords(const uint8_t* tiles, size_t blocks, size_t groups, const uint8_t* planes,
                   size_t vectors, uint32_t* sums, size_t sums_stride, const uint8_t* next,
                   size_t next_bytes) {
  const size_t block_bytes = groups * kGroupTileBytes;
  const size_t plane_bytes = groups * kGroupPlaneBytes;
  constexpr size_t kPairs = kBlockRows / 2;
  Prefetcher next_tiles(next, next_bytes, vectors / 2 * blocks * kPairs);
  size_t v = 0;
  for (; v + 2 <= vectors; v += 2) {
    const uint8_t* first = planes + v * plane_bytes;
    const uint8_t* second = first + plane_bytes;
    const size_t left = vectors - v - 2;
    Prefetcher next_planes(second + plane_bytes, (left < 2 ? left : 2) * plane_bytes,
                           blocks * kPairs);
    for (size_t b = 0; b < blocks; ++b) {
      for (size_t row = 0; row < kBlockRows; row += 2) {
        next_tiles.Step();
        next_planes.Step();
        MultiplyWordsPair<V>(tiles + b * block_bytes + row * kGroupColumns, groups, first, second,
                             sums + v * sums_stride + b * kBlockRows + row, sums_stride);
      }
    }
  }
  if (v < vectors) {
    const uint8_t* single = planes + v * groups * kGroupPlaneBytes;
    for (size_t b = 0; b < blocks; ++b) {
      MultiplyWordsSingle<V>(tiles + b * block_bytes, groups, single,
                             sums + v * sums_stride + b * kBlockRows);
    }
  }
}

// ---- bytes ----

// For every group of columns: the lowest signed byte of every column, then the next, and so on.
template <typename V>
void PackBytes(const uint32_t* vector, size_t groups, uint8_t* planes) {
  static_assert(V::kBytes == kGroupColumns);
  for (size_t g = 0; g < groups; ++g) {
    for (size_t i = 0; i < kGroupColumns; ++i) {
      // q + 0x80808080 has bytes b_i + 128: carries go where they belong.
      const uint32_t shifted = vector[g * kGroupColumns + i] + 0x80808080u;
      for (size_t byte = 0; byte < 4; ++byte) {
        planes[g * kGroupPlaneBytes + byte * kGroupColumns + i] =
            static_cast<uint8_t>((shifted >> (8 * byte)) ^ 0x80u);
      }
    }
  }
}

template <typename V>
SHOAL_INLINE void MultiplyBytesBlock(const uint8_t* tile, size_t groups, const uint8_t* planes,
                                     uint32_t* sums) {
  V acc[kBlockRows][4];
  for (auto& row : acc) {
    for (V& sum : row) sum = V::Zero();
  }
  for (size_t g = 0; g < groups; ++g) {
    V bytes[kBlockRows];
#pragma GCC unroll 4
    for (size_t r = 0; r < kBlockRows; ++r) {
      bytes[r] = V::LoadKept(tile + g * kGroupTileBytes + r * kGroupColumns);
    }
#pragma GCC unroll 4
    for (size_t byte = 0; byte < 4; ++byte) {
      const V plane = V::LoadKept(planes + g * kGroupPlaneBytes + byte * kGroupColumns);
#pragma GCC unroll 4
      for (size_t r = 0; r < kBlockRows; ++r) {
        acc[r][byte] = V::AddProducts(acc[r][byte], bytes[r], plane);
      }
    }
  }
  V whole[kBlockRows];
  for (size_t r = 0; r < kBlockRows; ++r) {
    const V* a = acc[r];
    const V high = a[2].template PlusShifted<8>(a[3]);
    whole[r] = a[0].template PlusShifted<8>(a[1]).template PlusShifted<16>(high);
  }
  uint32_t sum[kBlockRows];
  V::Sums(whole, sum);
  for (size_t r = 0; r < kBlockRows; ++r) sums[r] += sum[r];
}

template <typename V>
void MultiplyBytes(const uint8_t* tiles, size_t blocks, size_t groups, const uint8_t* planes,
                   size_t vectors, uint32_t* sums, size_t sums_stride, const uint8_t* next,
                   size_t next_bytes) {
  const size_t block_bytes = groups * kGroupTileBytes;
  const size_t plane_bytes = groups * kGroupPlaneBytes;
  if (vectors == 1) {
    // Without prefetching, as the hardware's own is enough and more makes it slower (Zen 4).
    for (size_t b = 0; b < blocks; ++b) {
      MultiplyBytesBlock<V>(tiles + b * block_bytes, groups, planes, sums + b * kBlockRows);
    }
    return;
  }
  Prefetcher next_tiles(next, next_bytes, vectors * blocks);
  for (size_t v = 0; v < vectors; ++v) {
    Prefetcher next_planes(planes + (v + 1) * plane_bytes, v + 1 < vectors ? plane_bytes : 0,
                           blocks);
    for (size_t b = 0; b < blocks; ++b) {
      next_tiles.Step();
      next_planes.Step();
      MultiplyBytesBlock<V>(tiles + b * block_bytes, groups, planes + v * plane_bytes,
                            sums + v * sums_stride + b * kBlockRows);
    }
  }
}

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_KERNEL_IMPL_H_
