// Tests that freed blocks are wiped: their content is not found again in the same place.
#include "src/storage/wiping_heap.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "openssl/crypto.h"
#include "src/base/bytes.h"

namespace shoal {
namespace {

// Runs before any call of OpenSSL.
const bool kInstalled = (WipeWhatIsFreed(), true);

constexpr uint8_t kMark = 0xa7;

// malloc writes its own lists into free blocks, and a byte of an address may equal the mark. So
// only so many marks in a row count as old content.
constexpr size_t kMarksInARow = 8;

// Frees blocks of one size and allocates them again. Returns how many of them still hold old
// content.
template <typename Allocate, typename Free>
size_t MarksLeft(size_t bytes, const Allocate& allocate, const Free& free) {
  constexpr size_t kBlocks = 32;
  std::vector<uint8_t*> blocks(kBlocks);
  for (uint8_t*& block : blocks) std::fill_n(block = allocate(bytes), bytes, kMark);
  for (uint8_t* block : blocks) free(block);
  size_t left = 0;
  for (uint8_t*& block : blocks) {
    block = allocate(bytes);
    left += std::search_n(block, block + bytes, kMarksInARow, kMark) != block + bytes;
  }
  for (uint8_t* block : blocks) free(block);
  return left;
}

TEST(WipingHeapTest, WhatIsDeletedIsWiped) {
  ASSERT_TRUE(kInstalled);
  for (const size_t bytes : {40, 100, 1000, 5000, 70'000}) {
    EXPECT_EQ(MarksLeft(
                  bytes, [](size_t n) { return static_cast<uint8_t*>(::operator new(n)); },
                  [](uint8_t* block) { ::operator delete(block); }),
              0u)
        << bytes;
    constexpr std::align_val_t kLine{64};
    EXPECT_EQ(MarksLeft(
                  bytes, [&](size_t n) { return static_cast<uint8_t*>(::operator new(n, kLine)); },
                  [&](uint8_t* block) { ::operator delete(block, kLine); }),
              0u)
        << bytes;
  }
}

TEST(WipingHeapTest, WhatOpenSslFreesIsWiped) {
  EXPECT_EQ(MarksLeft(
                1000, [](size_t n) { return static_cast<uint8_t*>(OPENSSL_malloc(n)); },
                [](uint8_t* block) { OPENSSL_free(block); }),
            0u);
  EXPECT_EQ(MarksLeft(
                1000, [](size_t n) { return static_cast<uint8_t*>(OPENSSL_malloc(n)); },
                [](uint8_t* block) { OPENSSL_free(OPENSSL_realloc(block, 100'000)); }),
            0u);
}

TEST(WipingHeapTest, ReallocKeepsTheContent) {
  auto* block = static_cast<uint8_t*>(OPENSSL_malloc(100));
  std::fill_n(block, 100, kMark);
  block = static_cast<uint8_t*>(OPENSSL_realloc(block, 100'000));
  EXPECT_EQ(std::count(block, block + 100, kMark), 100);
  OPENSSL_free(block);
}

}  // namespace
}  // namespace shoal
