#include "src/table/placement.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::table {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

struct Case {
  size_t keys;
  uint32_t smallest;
  uint32_t largest;
  uint32_t row_bytes;
  double least_fill;
};

class PlaceTest : public ::testing::TestWithParam<Case> {};

TEST_P(PlaceTest, FillsRowsAndOverflowsNone) {
  const Case& c = GetParam();
  TestRandom random(c.keys);
  std::vector<std::string> keys;
  std::vector<uint32_t> bytes;
  uint64_t total = 0;
  for (size_t i = 0; i < c.keys; ++i) {
    keys.push_back(absl::StrCat("key-", i));
    bytes.push_back(c.smallest + static_cast<uint32_t>(random.Below(c.largest - c.smallest + 1)));
    total += bytes.back();
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Placement placement,
      Place(bytes, [&](size_t i) { return AsBytes(keys[i]); }, c.row_bytes, random));
  EXPECT_LT(placement.displacements.size(), std::max<size_t>(2, c.keys)) << "a byte a key or more";
  std::vector<uint64_t> load(placement.rows, 0);
  for (size_t i = 0; i < c.keys; ++i) {
    const KeyHash hash = HashKey(placement.seed, AsBytes(keys[i]));
    const uint32_t bucket =
        BucketOf(hash, static_cast<uint32_t>(placement.displacements.size()));
    const uint64_t row = RowOf(hash, placement.displacements[bucket], placement.rows);
    ASSERT_LT(row, placement.rows);
    load[row] += bytes[i];
  }
  for (const uint64_t used : load) EXPECT_LE(used, c.row_bytes);
  const double fill = static_cast<double>(total) / static_cast<double>(placement.rows * c.row_bytes);
  EXPECT_GE(fill, c.least_fill);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, PlaceTest,
    ::testing::Values(Case{0, 1, 1, 64, 0}, Case{1, 10, 10, 64, 0.1}, Case{7, 10, 20, 64, 0.5},
                      Case{100, 10, 40, 256, 0.8}, Case{5000, 10, 60, 1024, 0.95},
                      Case{20000, 20, 50, 1024, 0.97}, Case{20000, 20, 50, 256, 0.92},
                      Case{3000, 1, 400, 1024, 0.9},
                      // One record a row: nearly perfect hashing.
                      Case{2000, 64, 64, 64, 0.9},
                      // Just longer than half a row.
                      Case{3000, 513, 513, 1024, 0.45}));

// For clients in other languages: docs/protocol.md has the same vectors.
TEST(HashKey, KnownAnswers) {
  HashSeed seed;
  for (size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<uint8_t>(i);
  // SipHash-2-4 with 128-bit output, the reference's test vectors (key 00..0f; messages "" and
  // 00): a3817f04ba25a8e66df67214c7550293, da87c1d86b99af44347659119b22fc45.
  const KeyHash empty = HashKey(seed, {});
  EXPECT_EQ(empty.bucket_word, 0xe6a825ba047f81a3u);
  EXPECT_EQ(empty.row_word, 0x930255c71472f66du);
  const uint8_t zero[] = {0};
  const KeyHash one = HashKey(seed, zero);
  EXPECT_EQ(one.bucket_word, 0x44af996bd8c187dau);
  EXPECT_EQ(one.row_word, 0x45fc229b11597634u);
  EXPECT_EQ(BucketOf(empty, 1000), 901u);  // 0xe6a8.. / 2^64 = 0.90100
  // SplitMix64's finaliser maps 0x9e3779b97f4a7c15 to 0xe220a8397b1dcdaf (its first output, seed 0).
  const KeyHash plain{.bucket_word = 0, .row_word = 0};
  EXPECT_EQ(RowOf(plain, 0, 1000), 0u);
  EXPECT_EQ(RowOf(plain, 1, uint64_t{1} << 32), 0xe220a839u);
}

}  // namespace
}  // namespace shoal::table
