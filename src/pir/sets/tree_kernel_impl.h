// What the kernels share. The expansion of nodes is written once over a register V of one width.
// Private to the tree_kernel_*.cc files.
//
// Needed of V:
//   kBlocks             of 16 bytes in a register
//   Repeat(block)       one block in all places
//   Numbers(first)      64-bit number first + i in the low half of block i, 0 in the high one
//   Load(p), Store(p)   kBlocks * 16 bytes, anywhere
//   a ^ b, Round(key), LastRound(key)    of AES
#ifndef SHOAL_SRC_PIR_SETS_TREE_KERNEL_IMPL_H_
#define SHOAL_SRC_PIR_SETS_TREE_KERNEL_IMPL_H_

#include <cstring>

#include "src/base/inline.h"
#include "src/pir/sets/tree_kernel.h"

namespace shoal::pir::sets {

// `static`: every file that includes this has its own, for its own instruction set.
static inline uint32_t FindLeaf(const uint32_t* leaves, const uint32_t* shifts, uint32_t wanted,
                                uint32_t count) {
  // The least of the numbers i, where those of other leaves are made larger than all: in vectors,
  // and without a branch.
  uint32_t least = count;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t differ = leaves[i] ^ shifts[i] ^ wanted;
    const uint32_t at = i | ((differ | (0 - differ)) & 0x8000'0000u);
    least = at < least ? at : least;
  }
  return least;
}

// Registers of blocks at a time: enough to hide an instruction's latency.
inline constexpr size_t kExpandRegisters = 8;

// AES(x) ^ x of all blocks.
template <typename V>
SHOAL_INLINE void HashBlocks(const V (&keys)[11], V (&x)[kExpandRegisters]) {
  V state[kExpandRegisters];
#pragma GCC unroll 8
  for (size_t i = 0; i < kExpandRegisters; ++i) state[i] = x[i] ^ keys[0];
#pragma GCC unroll 10
  for (int r = 1; r < 10; ++r) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kExpandRegisters; ++i) state[i] = state[i].Round(keys[r]);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kExpandRegisters; ++i) x[i] = state[i].LastRound(keys[10]) ^ x[i];
}

template <typename V>
void ExpandNodes(const uint8_t* nodes, size_t count, uint64_t first, size_t blocks, uint8_t* out) {
  constexpr size_t kBlock = TreeKernel::kBlockBytes;
  constexpr size_t kTogether = kExpandRegisters * V::kBlocks;
  V keys[11];
  for (int r = 0; r < 11; ++r) keys[r] = V::Repeat(kTreeRoundKeys[r]);
  V x[kExpandRegisters];
  if (blocks == 1) {
    uint8_t number[kBlock] = {};
    std::memcpy(number, &first, 8);
    const V same = V::Repeat(number);
    for (; count >= kTogether; count -= kTogether) {
#pragma GCC unroll 8
      for (size_t i = 0; i < kExpandRegisters; ++i) {
        x[i] = V::Load(nodes + i * V::kBlocks * kBlock) ^ same;
      }
      HashBlocks(keys, x);
#pragma GCC unroll 8
      for (size_t i = 0; i < kExpandRegisters; ++i) x[i].Store(out + i * V::kBlocks * kBlock);
      nodes += kTogether * kBlock;
      out += kTogether * kBlock;
    }
    if (count == 0) return;
    uint8_t rest[kTogether * kBlock] = {};
    std::memcpy(rest, nodes, count * kBlock);
    for (size_t i = 0; i < kExpandRegisters; ++i) {
      x[i] = V::Load(rest + i * V::kBlocks * kBlock) ^ same;
    }
    HashBlocks(keys, x);
    for (size_t i = 0; i < kExpandRegisters; ++i) x[i].Store(rest + i * V::kBlocks * kBlock);
    std::memcpy(out, rest, count * kBlock);
    return;
  }
  // A register has blocks of one node; its last one may be partly used.
  const size_t registers = (blocks + V::kBlocks - 1) / V::kBlocks;
  size_t node = 0, in_node = 0;
  while (node < count) {
    uint8_t* to[kExpandRegisters];
    size_t wanted[kExpandRegisters];
#pragma GCC unroll 8
    for (size_t i = 0; i < kExpandRegisters; ++i) {
      // Behind the last node: the last one again, to nowhere.
      const size_t from = node < count ? node : count - 1;
      x[i] = V::Repeat(nodes + from * kBlock) ^ V::Numbers(first + in_node * V::kBlocks);
      to[i] = out + (from * blocks + in_node * V::kBlocks) * kBlock;
      const size_t left = blocks - in_node * V::kBlocks;
      wanted[i] = node < count ? (left < V::kBlocks ? left : V::kBlocks) : 0;
      if (++in_node == registers) {
        in_node = 0;
        ++node;
      }
    }
    HashBlocks(keys, x);
#pragma GCC unroll 8
    for (size_t i = 0; i < kExpandRegisters; ++i) {
      if (wanted[i] == V::kBlocks) {
        x[i].Store(to[i]);
      } else {
        uint8_t some[V::kBlocks * kBlock];
        x[i].Store(some);
        std::memcpy(to[i], some, wanted[i] * kBlock);
      }
    }
  }
}

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_TREE_KERNEL_IMPL_H_
