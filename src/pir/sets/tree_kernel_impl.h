// What the kernels share. The expansion of nodes is written once over a register V of one width.
// Private to the tree_kernel_*.cc files.
//
// Needed of V:
//   kBlocks             of 16 bytes in a register
//   Repeat(block)       one block in all places
//   Number(n)           64-bit number n in the low half of each block, 0 in the high one
//   Numbers(first)      the same with first + i in block i
//   Load(p), Store(p)   kBlocks * 16 bytes, anywhere
//   StoreWords(w, mask, p)    kBlocks words: `mask` of word w of each block
//   a ^ b, Round(key), LastRound(key)    of AES
#ifndef SHOAL_SRC_PIR_SETS_TREE_KERNEL_IMPL_H_
#define SHOAL_SRC_PIR_SETS_TREE_KERNEL_IMPL_H_

#include <cstring>

#include "sodium.h"
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
template <typename V, size_t kRegisters>
SHOAL_INLINE void HashBlocks(const V (&keys)[11], V (&x)[kRegisters]) {
  V state[kRegisters];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters; ++i) state[i] = x[i] ^ keys[0];
#pragma GCC unroll 10
  for (int r = 1; r < 10; ++r) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kRegisters; ++i) state[i] = state[i].Round(keys[r]);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters; ++i) x[i] = state[i].LastRound(keys[10]) ^ x[i];
}

template <typename V>
void ExpandNodes(const uint8_t* nodes, size_t count, uint64_t first, size_t blocks, uint8_t* out) {
  constexpr size_t kBlock = TreeKernel::kBlockBytes;
  constexpr size_t kTogether = kExpandRegisters * V::kBlocks;
  V keys[11];
  for (int r = 0; r < 11; ++r) keys[r] = V::Repeat(kTreeRoundKeys[r]);
  V x[kExpandRegisters];
  if (blocks == 1) {
    const V same = V::Number(first);
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
    // One register at a time; the last one may be partly used.
    while (count > 0) {
      const size_t now = count < V::kBlocks ? count : V::kBlocks;
      uint8_t rest[V::kBlocks * kBlock] = {};
      std::memcpy(rest, nodes, now * kBlock);
      V one[1] = {V::Load(rest) ^ same};
      HashBlocks(keys, one);
      one[0].Store(rest);
      std::memcpy(out, rest, now * kBlock);
      sodium_memzero(rest, sizeof rest);
      nodes += now * kBlock;
      out += now * kBlock;
      count -= now;
    }
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
        sodium_memzero(some, sizeof some);
      }
    }
  }
}

// As many leaves as registers have blocks.
template <typename V, size_t kRegisters>
SHOAL_INLINE void LeavesOfSome(const V (&keys)[11], const uint8_t* roots, const uint32_t* numbers,
                               size_t levels, uint32_t word, uint32_t mask, uint32_t* out) {
  constexpr size_t kStep = V::kBlocks * TreeKernel::kBlockBytes;
  V x[kRegisters];
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters; ++i) x[i] = V::Load(roots + i * kStep);
  for (size_t level = 0; level < levels; ++level) {
    const V same = V::Number(numbers[level]);
#pragma GCC unroll 8
    for (size_t i = 0; i < kRegisters; ++i) x[i] = x[i] ^ same;
    HashBlocks(keys, x);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters; ++i) x[i].StoreWords(word, mask, out + i * V::kBlocks);
}

template <typename V>
void LeavesOfTrees(const uint8_t* roots, size_t count, const uint32_t* numbers, size_t levels,
                   uint32_t word, uint32_t mask, uint32_t* out) {
  constexpr size_t kBlock = TreeKernel::kBlockBytes;
  constexpr size_t kTogether = kExpandRegisters * V::kBlocks;
  V keys[11];
  for (int r = 0; r < 11; ++r) keys[r] = V::Repeat(kTreeRoundKeys[r]);
  for (; count >= kTogether; count -= kTogether) {
    LeavesOfSome<V, kExpandRegisters>(keys, roots, numbers, levels, word, mask, out);
    roots += kTogether * kBlock;
    out += kTogether;
  }
  // One register at a time; the last one may be partly used.
  while (count > 0) {
    const size_t now = count < V::kBlocks ? count : V::kBlocks;
    uint8_t rest[V::kBlocks * kBlock] = {};
    uint32_t words[V::kBlocks];
    std::memcpy(rest, roots, now * kBlock);
    LeavesOfSome<V, 1>(keys, rest, numbers, levels, word, mask, words);
    std::memcpy(out, words, now * sizeof *words);
    sodium_memzero(rest, sizeof rest);
    sodium_memzero(words, sizeof words);
    roots += now * kBlock;
    out += now;
    count -= now;
  }
}

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_TREE_KERNEL_IMPL_H_
