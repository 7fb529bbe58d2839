// The functions that one instruction set implements: X25519 and the symmetric part of sealed boxes
// on many items at once. Implementations are made from the templates in field51.h, field51_fma.h,
// curve_batch.h and symmetric_batch.h, one per instruction set and file.
//
// The implementing files are compiled for instructions that the machine may lack. So they include
// nothing whose inline functions the linker could share with other files: no standard library, no
// absl, and pointers in place of spans.
#ifndef SHOAL_SRC_ONION_KERNEL_H_
#define SHOAL_SRC_ONION_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

namespace shoal::onion {

// Items per call: a multiple of every lane count. The state of a batch of this size fits the
// first-level cache, and the one inversion that its items share costs next to nothing.
inline constexpr size_t kKernelBatch = 128;

inline constexpr size_t kKernelTableAlignment = 64;
inline constexpr size_t kKernelStreamKeyBytes = 40;

// All functions are thread-safe. `n` is at most kKernelBatch. Scalars are clamped, points are
// taken modulo 2^255 and p, products are reduced: RFC 7748, section 5. A product of all zeros
// means a point of low order. Constant time in scalars; points and tables are public.
struct Kernel {
  const char* name;

  // products[i] = scalars[i] * points[i]. A stride of 0 repeats one scalar or one point.
  // Products are 32 bytes each, without gaps.
  void (*multiply)(const uint8_t* scalars, size_t scalar_stride, const uint8_t* points,
                   size_t point_stride, uint8_t* products, size_t n);

  // Builds the table of a point, for multiply_fixed: table_bytes bytes aligned to
  // kKernelTableAlignment. False if the point lies on the twist, which has none. The point must
  // not be of low order. Takes about as long as sealing a few dozen boxes.
  size_t table_bytes;
  bool (*build_table)(const uint8_t* point, void* table);

  // products[t][i] = scalars[i] * the point of tables[t], for one or two tables.
  void (*multiply_fixed)(const void* const* tables, size_t table_count, const uint8_t* scalars,
                         size_t scalar_stride, uint8_t* const* products, size_t n);

  // keys[i], kKernelStreamKeyBytes each: HSalsa20 of the box's key and the first 16 bytes of its
  // nonce, then the nonce's last 8 bytes. The box's key is HSalsa20 of shared[i] (32 bytes each)
  // and zeros; the box's nonce is BLAKE2b-192 of the ephemeral key (one every `stride` bytes) and
  // the recipient's key.
  void (*derive_keys)(const uint8_t* shared, const uint8_t* ephemeral, size_t stride,
                      const uint8_t* recipient, uint8_t* keys, size_t n);

  // Block `counter`, 64 bytes, of the Salsa20 stream of each key.
  void (*stream_block)(const uint8_t* keys, uint64_t counter, uint8_t* blocks, size_t n);
};

// Null where the build is for another processor. src/base/instruction_set.h says whether this
// machine can run them.
const Kernel* IfmaKernel();
const Kernel* Avx2Kernel();

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_KERNEL_H_
