// Products of a matrix of bytes with vectors of 32-bit words modulo 2^32: all of the work of these
// engines' servers. Every instruction set has one table of functions.
//
// The matrix comes in tiles (byte_matrix.h): blocks of kBlockRows rows; in a block, for every group
// of kGroupColumns columns, kGroupColumns bytes of each row, one row after the other. A block is
// read front to back.
//
// A vector is first taken apart into planes (the layout is the kernel's own, 4 bytes a column):
//   words   two signed halves, q = low + 2^16 high. A pair of bytes times a pair of halves fits 32
//           bits, and one instruction does sixteen products (vpmaddwd).
//   bytes   four signed bytes, q = sum of 2^(8 i) b_i. One instruction adds four products of a byte
//           of the matrix and a byte of a plane to a 32-bit sum (vpdpbusd).
// Sums and results are modulo 2^32, so nothing can overflow.
#ifndef SHOAL_SRC_PIR_LWE_KERNEL_H_
#define SHOAL_SRC_PIR_LWE_KERNEL_H_

#include <cstddef>
#include <cstdint>

namespace shoal::pir::lwe {

inline constexpr size_t kBlockRows = 4;
inline constexpr size_t kGroupColumns = 64;
// Planes and tiles start at multiples of this many bytes.
inline constexpr size_t kKernelAlignment = 64;
inline constexpr size_t kPlaneBytesPerColumn = 4;

struct Kernel {
  const char* name;

  // planes[0 .. 4 * 64 * groups) of vector[0 .. 64 * groups).
  void (*pack)(const uint32_t* vector, size_t groups, uint8_t* planes);

  // sums[v * sums_stride + r] += sum over columns j of matrix[r][j] * vector_v[j], for all rows of
  // `blocks` blocks of `groups` groups each and `vectors` vectors, whose planes are 4 * 64 * groups
  // bytes apart. next[0 .. next_bytes) are the tiles of the next call, which are only prefetched;
  // next_bytes may be 0.
  void (*multiply)(const uint8_t* tiles, size_t blocks, size_t groups, const uint8_t* planes,
                   size_t vectors, uint32_t* sums, size_t sums_stride, const uint8_t* next,
                   size_t next_bytes);

  // sum[j] += factors[0] * rows[0][j] + ... + factors[count - 1] * rows[count - 1][j].
  void (*add_scaled)(const uint32_t* const* rows, const int32_t* factors, size_t count,
                     size_t columns, uint32_t* sum);

  // Sum of a[i] * b[i].
  uint32_t (*dot)(const uint32_t* a, const int32_t* b, size_t count);

  // magnitudes[i] = how many of the thresholds t have t <= u_i, where u_i is the 126-bit number
  // high[i] * 2^63 + low[i], halves below 2^63, likewise the thresholds. Neither time nor addresses
  // depend on the values. gaussian.h uses it.
  void (*count_thresholds)(const uint64_t* high, const uint64_t* low, size_t count,
                           const uint64_t* threshold_high, const uint64_t* threshold_low,
                           size_t thresholds, uint32_t* magnitudes);
};

// Null if this processor, or this build, does not have the instructions.
const Kernel& PortableKernel();
const Kernel* Avx2Kernel();
const Kernel* VnniKernel();

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_KERNEL_H_
