// The work of tree sets (tree_sets.h) in two loops: nodes of the trees, which are blocks of 16
// bytes, become their children, and records become sums. One file for each instruction set.
//
// Nodes at the client and leaves made from them are secret: neither time nor addresses of `expand`,
// `leaves` and `find` depend on them. `sum_rows` runs at servers, which know the offsets.
#ifndef SHOAL_SRC_PIR_SETS_TREE_KERNEL_H_
#define SHOAL_SRC_PIR_SETS_TREE_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::pir::sets {

// Sums (XORs) of records. Sum s is over `each` records: record number offsets[s * stride + t] of
// the chunk at `rows` + s * step_bytes + t * chunk_bytes, t < each.
struct RowSums {
  const uint8_t* rows = nullptr;
  size_t chunk_bytes = 0;
  size_t record_bytes = 0;
  size_t sums = 0;
  size_t each = 0;
  size_t step_bytes = 0;  // 0: all sums are over the same chunks
  const uint32_t* offsets = nullptr;
  size_t stride = 0;
};

struct TreeKernel {
  static constexpr size_t kBlockBytes = 16;

  const char* name;

  // H(x) = AES(x) ^ x under the fixed key below; block i * blocks + b of `out` is H(node i ^ (first
  // + b)), the number little-endian in the block's first eight bytes. `out` is not `nodes`.
  void (*expand)(const uint8_t* nodes, size_t count, uint64_t first, size_t blocks, uint8_t* out);

  // A leaf of each of `count` trees: out[i] is `mask` of the little-endian 32-bit word `word` of
  // the node that is reached from root i with H(node ^ numbers[0]), H(node ^ numbers[1]), .., in
  // `levels` steps.
  void (*leaves)(const uint8_t* roots, size_t count, const uint32_t* numbers, size_t levels,
                 uint32_t word, uint32_t mask, uint32_t* out);

  // sums[s * record_bytes ..] ^= sum s.
  void (*sum_rows)(const RowSums& job, uint8_t* sums);

  // The first i with leaves[i] ^ shifts[i] == wanted, or `count`, below 2^31.
  uint32_t (*find)(const uint32_t* leaves, const uint32_t* shifts, uint32_t wanted, uint32_t count);

  // out = a ^ b; out may be a or b.
  void (*add)(const uint8_t* a, const uint8_t* b, size_t bytes, uint8_t* out);
};

// The kernels that this processor can run, the slowest (portable) first.
std::vector<const TreeKernel*> SupportedTreeKernels();
const TreeKernel& FastestTreeKernel();

// Null if this processor, or this build, does not have the instructions.
const TreeKernel& PortableTreeKernel();
const TreeKernel* Avx2TreeKernel();    // with AES-NI
const TreeKernel* Avx512TreeKernel();  // with VAES

// The fixed key is the text "Shoal tree sets.", and these are its round keys (FIPS 197, section
// 5.2; tree_kernel_test compares them with OpenSSL's AES).
inline constexpr uint8_t kTreeRoundKeys[11][16] = {
    {0x53, 0x68, 0x6f, 0x61, 0x6c, 0x20, 0x74, 0x72, 0x65, 0x65, 0x20, 0x73, 0x65, 0x74, 0x73,
     0x2e},
    {0xc0, 0xe7, 0x5e, 0x2c, 0xac, 0xc7, 0x2a, 0x5e, 0xc9, 0xa2, 0x0a, 0x2d, 0xac, 0xd6, 0x79,
     0x03},
    {0x34, 0x51, 0x25, 0xbd, 0x98, 0x96, 0x0f, 0xe3, 0x51, 0x34, 0x05, 0xce, 0xfd, 0xe2, 0x7c,
     0xcd},
    {0xa8, 0x41, 0x98, 0xe9, 0x30, 0xd7, 0x97, 0x0a, 0x61, 0xe3, 0x92, 0xc4, 0x9c, 0x01, 0xee,
     0x09},
    {0xdc, 0x69, 0x99, 0x37, 0xec, 0xbe, 0x0e, 0x3d, 0x8d, 0x5d, 0x9c, 0xf9, 0x11, 0x5c, 0x72,
     0xf0},
    {0x86, 0x29, 0x15, 0xb5, 0x6a, 0x97, 0x1b, 0x88, 0xe7, 0xca, 0x87, 0x71, 0xf6, 0x96, 0xf5,
     0x81},
    {0x36, 0xcf, 0x19, 0xf7, 0x5c, 0x58, 0x02, 0x7f, 0xbb, 0x92, 0x85, 0x0e, 0x4d, 0x04, 0x70,
     0x8f},
    {0x84, 0x9e, 0x6a, 0x14, 0xd8, 0xc6, 0x68, 0x6b, 0x63, 0x54, 0xed, 0x65, 0x2e, 0x50, 0x9d,
     0xea},
    {0x57, 0xc0, 0xed, 0x25, 0x8f, 0x06, 0x85, 0x4e, 0xec, 0x52, 0x68, 0x2b, 0xc2, 0x02, 0xf5,
     0xc1},
    {0x3b, 0x26, 0x95, 0x00, 0xb4, 0x20, 0x10, 0x4e, 0x58, 0x72, 0x78, 0x65, 0x9a, 0x70, 0x8d,
     0xa4},
    {0x5c, 0x7b, 0xdc, 0xb8, 0xe8, 0x5b, 0xcc, 0xf6, 0xb0, 0x29, 0xb4, 0x93, 0x2a, 0x59, 0x39,
     0x37},
};

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_TREE_KERNEL_H_
