// The functions of batch.h as one instruction set implements them. Implementations are made from
// the template in kernel_lanes.h, one per instruction set and file.
//
// The implementing files are compiled for instructions that the machine may lack. So they include
// nothing whose inline functions the linker could share with other files: no standard library, no
// absl, and pointers in place of spans.
#ifndef SHOAL_SRC_SHARING_KERNEL_H_
#define SHOAL_SRC_SHARING_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

namespace shoal::sharing {

// Bytes that a kernel may leave on the stack below its caller; gcc uses at most half of them.
inline constexpr size_t kKernelStackBytes = 8192;

// batch.h says what the functions do. `nonce` is 12 bytes. Seeds are 32 bytes each, seed i of a
// call at 32 * positions[i].
struct Kernel {
  size_t lanes;

  // x and y of seed i at shares[2 * i].
  void (*expand_shares)(const uint8_t* seeds, const uint32_t* positions, size_t n,
                        const uint8_t* nonce, uint32_t* shares);
  // XORs the stream of seed i from `first_block` on into answer i, which is at stride * i; the
  // stride is at least answer_bytes.
  void (*xor_masks)(const uint8_t* seeds, const uint32_t* positions, size_t n, const uint8_t* nonce,
                    uint32_t first_block, size_t answer_bytes, size_t stride, uint8_t* answers);
  // The first 32 bytes of block `counter` of seed i, to keys + stride * i.
  void (*expand_tag_keys)(const uint8_t* seeds, const uint32_t* positions, size_t n,
                          const uint8_t* nonce, uint32_t counter, size_t stride, uint8_t* keys);
  // The same of its last 32 bytes.
  void (*expand_second_keys)(const uint8_t* seeds, const uint32_t* positions, size_t n,
                             const uint8_t* nonce, uint32_t counter, size_t stride, uint8_t* keys);
  // Writes the Poly1305 tag (RFC 8439, section 2.5) of the first `covered` bytes of answer i, which
  // is at answers + stride * i, under key i, at keys + 32 * i, to the answer's byte `tag_at`.
  void (*tag_answers)(const uint8_t* keys, size_t n, size_t covered, size_t tag_at, size_t stride,
                      uint8_t* answers);
  void (*expand_tokens)(const uint8_t* seeds, const uint32_t* positions, size_t n,
                        const uint8_t* nonce, uint8_t* tokens);
  // wrong[i] = 1 if tokens[i] is not the seed's, else 0.
  void (*compare_tokens)(const uint8_t* seeds, const uint32_t* positions, size_t n,
                         const uint8_t* nonce, const uint8_t* tokens, uint8_t* wrong);
  void (*first_tallies)(const uint8_t* seeds, size_t parties, size_t n, const uint8_t* nonce,
                        const uint32_t* queries, uint32_t* tallies);

  // For tests alone: the shares of `n` given key-stream blocks of 64 bytes each, n a multiple of
  // `lanes`. Tests make up blocks with unusable words, as no known seed expands to any.
  void (*shares_of_blocks)(const uint8_t* blocks, size_t n, uint32_t* x, uint32_t* y);
};

// Null where the build is for another processor.
const Kernel* PortableKernel();
const Kernel* Avx2Kernel();
const Kernel* Avx512Kernel();

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_KERNEL_H_
