// GHASH (NIST SP 800-38D), the polynomial hash of GCM, as one instruction set computes it. Private
// to src/parallel.
//
// The implementing files are compiled for instructions that the machine may lack. So they include
// nothing whose inline functions the linker could share with other files, and take pointers in
// place of spans. No branch and no address depends on a secret.
#ifndef SHOAL_SRC_PARALLEL_GHASH_H_
#define SHOAL_SRC_PARALLEL_GHASH_H_

#include <stddef.h>
#include <stdint.h>

namespace shoal {

struct GhashKernel {
  static constexpr size_t kBlockBytes = 16;
  // Of a table of powers of the key, aligned to a block.
  static constexpr size_t kTableBytes = 2048;
  // Bytes that `add` may leave on the stack below its caller.
  static constexpr size_t kStackBytes = 1024;

  // Makes the table of H, the hash key: 16 bytes, as AES gives them.
  void (*prepare)(const uint8_t* key, uint8_t* table);
  // Y becomes (..((Y + X_1) H + X_2) H + .. + X_n) H, for n blocks X. Y is 16 bytes, in the order
  // of bytes that the kernel likes: `finish` gives those of the standard.
  void (*add)(const uint8_t* table, uint8_t* y, const uint8_t* blocks, size_t n);
  void (*finish)(uint8_t* y);
};

// For AVX-512 with VPCLMULQDQ: Intel from Ice Lake, AMD from Zen 4. Null where the build is for
// another processor.
const GhashKernel* Avx512Ghash();

}  // namespace shoal

#endif  // SHOAL_SRC_PARALLEL_GHASH_H_
