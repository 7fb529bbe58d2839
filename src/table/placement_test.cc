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
      Place(
          bytes, [&](size_t i) { return AsBytes(keys[i]); }, c.row_bytes, random));
  EXPECT_LT(placement.displacements.size(), std::max<size_t>(2, c.keys)) << "a byte a key or more";
  std::vector<uint64_t> load(placement.rows, 0);
  for (size_t i = 0; i < c.keys; ++i) {
    const KeyHash hash = HashKey(placement.seed, AsBytes(keys[i]));
    const uint32_t bucket = BucketOf(hash, static_cast<uint32_t>(placement.displacements.size()));
    const uint64_t row = RowOf(hash, placement.displacements[bucket], placement.rows);
    ASSERT_LT(row, placement.rows);
    load[row] += bytes[i];
  }
  for (const uint64_t used : load) EXPECT_LE(used, c.row_bytes);
  const double fill =
      static_cast<double>(total) / static_cast<double>(placement.rows * c.row_bytes);
  EXPECT_GE(fill, c.least_fill);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PlaceTest,
                         ::testing::Values(Case{0, 1, 1, 64, 0}, Case{1, 10, 10, 64, 0.1},
                                           Case{7, 10, 20, 64, 0.5}, Case{100, 10, 40, 256, 0.8},
                                           Case{5000, 10, 60, 1024, 0.95},
                                           Case{20000, 20, 50, 1024, 0.97},
                                           Case{20000, 20, 50, 256, 0.92},
                                           Case{3000, 1, 400, 1024, 0.9},
                                           // One record a row: nearly perfect hashing.
                                           Case{2000, 64, 64, 64, 0.9},
                                           // Just longer than half a row.
                                           Case{3000, 513, 513, 1024, 0.45}));

// A table's records in one epoch, for rows of 1024 bytes.
struct Epoch {
  std::vector<std::string> keys;
  std::vector<uint32_t> bytes;
  void Add(size_t i, uint32_t n) {
    keys.push_back(absl::StrCat("key-", i));
    bytes.push_back(n);
  }
  absl::StatusOr<Placement> PlaceAfter(const Placement* previous, RandomSource& random) const {
    return Place(
        bytes, [this](size_t i) { return AsBytes(keys[i]); }, 1024, random, previous);
  }
  uint64_t Row(const Placement& placement, size_t i) const {
    const KeyHash hash = HashKey(placement.seed, AsBytes(keys[i]));
    const auto buckets = static_cast<uint32_t>(placement.displacements.size());
    return RowOf(hash, placement.displacements[BucketOf(hash, buckets)], placement.rows);
  }
  void ExpectNoOverflow(const Placement& placement) const {
    std::vector<uint64_t> load(placement.rows, 0);
    for (size_t i = 0; i < keys.size(); ++i) load[Row(placement, i)] += bytes[i];
    for (const uint64_t used : load) EXPECT_LE(used, 1024u);
  }
};

// 20,000 keys in full rows. One key in a hundred goes, one comes, and one gets a longer value: rows
// without room give up a few keys, and all other keys stay.
TEST(Place, KeysKeepTheirRowsInTheNextEpoch) {
  TestRandom random(7);
  Epoch before, after;
  for (size_t i = 0; i < 20'000; ++i) before.Add(i, 20 + i * 7 % 31);
  for (size_t i = 0; i < 20'000; ++i) {
    if (i % 100 != 1) after.Add(i, before.bytes[i] + (i % 100 == 2 ? 9 : 0));
  }
  for (size_t i = 20'000; i < 20'200; ++i) after.Add(i, 30);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement first, before.PlaceAfter(nullptr, random));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement next, after.PlaceAfter(&first, random));
  EXPECT_EQ(next.seed, first.seed);
  EXPECT_EQ(next.rows, first.rows);
  EXPECT_EQ(next.displacements.size(), first.displacements.size());
  after.ExpectNoOverflow(next);
  size_t moved = 0;
  for (size_t i = 0; i < after.keys.size(); ++i) moved += after.Row(next, i) != after.Row(first, i);
  EXPECT_GT(moved, 0u) << "no row overflowed: the test shows nothing";
  EXPECT_LT(moved, after.keys.size() / 20);
  // The same keys again: nothing moves at all.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement again, after.PlaceAfter(&next, random));
  EXPECT_EQ(again.displacements, next.displacements);
}

// Three cases: more than the rows hold; so little that the rows are not worth keeping; and keys
// that somebody chose for the public seed, so that all are in one bucket, which fits nowhere.
TEST(Place, DrawsAnewWhereTheRowsNoLongerSuit) {
  TestRandom random(8);
  Epoch before, more, fewer, few, chosen;
  for (size_t i = 0; i < 5'000; ++i) before.Add(i, 30);
  for (size_t i = 0; i < 5'500; ++i) more.Add(i, 30);
  for (size_t i = 0; i < 4'000; ++i) fewer.Add(i, 30);
  for (size_t i = 0; i < 3'000; ++i) few.Add(i, 30);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement first, before.PlaceAfter(nullptr, random));
  const auto buckets = static_cast<uint32_t>(first.displacements.size());
  chosen = few;
  for (size_t i = 5'000; chosen.keys.size() < few.keys.size() + 40; ++i) {
    if (BucketOf(HashKey(first.seed, AsBytes(absl::StrCat("key-", i))), buckets) == 0) {
      chosen.Add(i, 1000);
    }
  }
  for (const Epoch* next : {&more, &few, &chosen}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Placement anew, next->PlaceAfter(&first, random));
    EXPECT_NE(anew.seed, first.seed);
    next->ExpectNoOverflow(anew);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement kept, fewer.PlaceAfter(&first, random));
  EXPECT_EQ(kept.seed, first.seed);
  EXPECT_EQ(kept.rows, first.rows);
}

// Fewer keys with longer records. The number of rows suits them as well as before, but the old
// number of buckets would cost more than one byte for every key that is left, in every later epoch.
TEST(Place, DrawsAnewWhereBucketsAreMoreThanKeys) {
  TestRandom random(9);
  Epoch before, more, fewer;
  for (size_t i = 0; i < 5'000; ++i) before.Add(i, 30);
  for (size_t i = 0; i < 2'600; ++i) more.Add(i, 48);
  for (size_t i = 0; i < 2'400; ++i) fewer.Add(i, 52);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement first, before.PlaceAfter(nullptr, random));
  ASSERT_EQ(first.displacements.size(), 2'500u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement kept, more.PlaceAfter(&first, random));
  EXPECT_EQ(kept.seed, first.seed) << "the rows do not suit: the test shows nothing";
  SHOAL_ASSERT_OK_AND_ASSIGN(const Placement anew, fewer.PlaceAfter(&first, random));
  EXPECT_NE(anew.seed, first.seed);
  EXPECT_EQ(anew.displacements.size(), 1'200u);
  fewer.ExpectNoOverflow(anew);
}

// docs/protocol.md has the same vectors, for clients in other languages.
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
  // SplitMix64's finaliser maps 0x9e3779b97f4a7c15 to 0xe220a8397b1dcdaf (its first output, seed
  // 0).
  const KeyHash plain{.bucket_word = 0, .row_word = 0};
  EXPECT_EQ(RowOf(plain, 0, 1000), 0u);
  EXPECT_EQ(RowOf(plain, 1, uint64_t{1} << 32), 0xe220a839u);
}

}  // namespace
}  // namespace shoal::table
