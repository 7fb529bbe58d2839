// The scan of select.h over a few rows and queries as one instruction set implements it.
// Implementations are made from the template in kernel_impl.h, one per instruction set and file.
//
// The implementing files are compiled for instructions that the machine may lack. So they include
// nothing whose inline functions the linker could share with other files: no standard library, no
// absl, and pointers in place of spans.
#ifndef SHOAL_SRC_SELECT_KERNEL_H_
#define SHOAL_SRC_SELECT_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"

namespace shoal::select {

// Rows of a block: one word of a selection.
inline constexpr size_t kBlockRows = 64;
// Queries for which a row is read once.
inline constexpr size_t kGroup = 16;
// Bytes that a kernel may leave on the stack below its caller; gcc uses at most half of them.
inline constexpr size_t kKernelStackBytes = 4096;

// Bytes of a kernel's sum over rows of `bytes` bytes.
SHOAL_INLINE constexpr size_t PaddedBytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Rows of one length at equal distances.
struct Places {
  const uint8_t* first;
  size_t stride;
};

struct Block {
  Places rows;                 // `count` of them
  size_t count;                // 1 to kBlockRows
  size_t bytes;                // of a row, at least 1
  Places ahead;                // as many, which are read next, to be fetched; or null
  const uint64_t* selections;  // of query q: bit i is that of row i, and bits past the rows count
                               // for nothing
  size_t queries;              // 1 to kGroup
};

// Constant time in the selections: neither branches nor addresses depend on them.
struct Kernel {
  // Adds the selected rows to the sums. That of query q is at sums + q * PaddedBytes(bytes), zeros
  // at first, in an order of bytes that is the kernel's own. Leaves the selections in `masks`,
  // which has room for kBlockRows words a query.
  void (*add)(const Block& block, uint32_t* masks, uint8_t* sums);
  // out[0 .. bytes) ^= a sum.
  void (*take)(const uint8_t* sum, size_t bytes, uint8_t* out);
};

// Null where the build is for another processor.
const Kernel* PortableKernel();
const Kernel* Avx2Kernel();
const Kernel* Avx512Kernel();

}  // namespace shoal::select

#endif  // SHOAL_SRC_SELECT_KERNEL_H_
