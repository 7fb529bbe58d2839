#include "src/client/rows.h"

#include <algorithm>
#include <map>
#include <set>

#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"

namespace shoal::client {
namespace {

using shoal::testing::TestRandom;

TEST(RowSet, KeepsEveryRowOnce) {
  RowSet set;
  std::set<uint32_t> expected;
  TestRandom random(1);
  for (int i = 0; i < 100'000; ++i) {
    const auto row = static_cast<uint32_t>(random.Below(5000));
    set.Add(row);
    expected.insert(row);
  }
  EXPECT_EQ(set.Take(), std::vector<uint32_t>(expected.begin(), expected.end()));
  EXPECT_TRUE(set.Take().empty());
  set.Add(3);
  EXPECT_EQ(set.Take(), std::vector<uint32_t>{3});
}

TEST(PadRows, NeverExceedsTheTable) {
  EXPECT_EQ(PaddedCount(0, 8, 100), 8u);
  EXPECT_EQ(PaddedCount(8, 8, 100), 8u);
  EXPECT_EQ(PaddedCount(9, 8, 100), 16u);
  EXPECT_EQ(PaddedCount(9, 8, 10), 10u);
  EXPECT_EQ(PaddedCount(0, 8, 3), 3u);
  TestRandom random(1);
  const std::vector<uint32_t> rows = {9, 2};
  for (uint32_t count : {2u, 5u, 10u}) {
    std::vector<uint32_t> padded = PadRows(rows, count, 10, random);
    std::sort(padded.begin(), padded.end());
    EXPECT_EQ(std::unique(padded.begin(), padded.end()), padded.end());
    EXPECT_EQ(padded.size(), count);
    EXPECT_TRUE(std::binary_search(padded.begin(), padded.end(), 9u));
    EXPECT_TRUE(std::binary_search(padded.begin(), padded.end(), 2u));
    EXPECT_LT(padded.back(), 10u);
  }
}

// The wanted row must be at any place among the padding with the same probability.
TEST(PadRows, HidesThePlace) {
  for (const uint64_t table_rows : {1000u, 5u}) {  // both ways of drawing
    TestRandom random(2);
    const std::vector<uint32_t> rows = {4};
    std::vector<int> places(4);
    for (int i = 0; i < 4000; ++i) {
      const auto padded = PadRows(rows, 4, table_rows, random);
      ++places[static_cast<size_t>(std::find(padded.begin(), padded.end(), 4u) - padded.begin())];
    }
    // 1000 each; standard deviation 27.
    for (int count : places) EXPECT_NEAR(count, 1000, 140);
  }
}

// Every set of other rows is equally likely: six pairs of the rows 0, 2, 3, 4 in a table of five
// (where rows to leave out are drawn), 28 pairs of eight others in a table of nine (where rows are
// drawn until they are distinct).
TEST(PadRows, OthersAreUniform) {
  for (const uint64_t table_rows : {5u, 9u}) {
    TestRandom random(3);
    const std::vector<uint32_t> rows = {1};
    std::map<std::set<uint32_t>, double> seen;
    const size_t sets = (table_rows - 1) * (table_rows - 2) / 2;
    const double each = 1000;
    for (size_t i = 0; i < 1000 * sets; ++i) {
      const auto padded = PadRows(rows, 3, table_rows, random);
      std::set<uint32_t> others(padded.begin(), padded.end());
      others.erase(1);
      ++seen[others];
    }
    ASSERT_EQ(seen.size(), sets);
    double chi2 = 0;
    for (const auto& [set, count] : seen) chi2 += (count - each) * (count - each) / each;
    // 5 and 27 degrees of freedom: above with probability below 1e-5.
    EXPECT_LT(chi2, table_rows == 5 ? 32 : 72);
  }
}

TEST(DrawDistinct, GoesOnFromWhatIsThere) {
  TestRandom random(4);
  std::vector<uint32_t> distinct = {7, 8};
  DrawDistinct(500, 1000, random, distinct);
  EXPECT_EQ(distinct.size(), 500u);
  EXPECT_TRUE(std::is_sorted(distinct.begin(), distinct.end()));
  EXPECT_EQ(std::set<uint32_t>(distinct.begin(), distinct.end()).size(), 500u);
  EXPECT_TRUE(std::binary_search(distinct.begin(), distinct.end(), 7u));
}

}  // namespace
}  // namespace shoal::client
