#include "src/base/query_buckets.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

TEST(QueryBucketsTest, TakesWhatTheRulesSayAndNamesBothNumbers) {
  const auto refused = [](uint64_t rows, uint64_t buckets, const std::string& why) {
    EXPECT_THAT(QueryBuckets::Check(rows, buckets),
                StatusIs(absl::StatusCode::kInvalidArgument, why));
  };
  SHOAL_EXPECT_OK(QueryBuckets::Check(2, 2));
  SHOAL_EXPECT_OK(QueryBuckets::Check(2048, 2));
  SHOAL_EXPECT_OK(QueryBuckets::Check(2'147'483'646, 2'147'483'646));
  refused(2049, 2,
          "2 buckets for 2049 rows have up to 1025 rows each, and 1024 is the most; at "
          "least 3 buckets do");
  refused(10, 0, "0 buckets for 10 rows");
  refused(10, 1, "1 buckets for 10 rows");
  refused(10, 11, "11 buckets for 10 rows");
  refused(1, 1, "1 buckets for 1 rows");
  refused(0, 0, "0 buckets for 0 rows");
  refused(uint64_t{1} << 32, 1 << 30, "too many");
  refused(~uint64_t{0}, ~uint64_t{0}, "too many");
}

// Every row has one place, every place one row, and buckets differ by at most one row.
TEST(QueryBucketsTest, RowsAreDealtOut) {
  for (uint64_t rows = 2; rows <= 70; ++rows) {
    for (uint64_t count = 2; count <= rows; ++count) {
      const QueryBuckets buckets(rows, count);
      std::vector<uint32_t> seen(count);
      for (uint32_t row = 0; row < rows; ++row) {
        const QueryBuckets::Place at = buckets.Of(row);
        ASSERT_EQ(at.bucket, row % count);
        ASSERT_EQ(at.place, row / count);
        ASSERT_EQ(buckets.RowAt(at), row);
        ASSERT_EQ(at.place, seen[at.bucket]++);
      }
      for (uint32_t b = 0; b < count; ++b) ASSERT_EQ(buckets.PlacesIn(b), seen[b]);
      EXPECT_EQ(buckets.most_places(), seen[0]);
    }
  }
}

// A bit for each place, in whole words: as two parties and all clients compute it.
TEST(QueryBucketsTest, SelectionsHaveWholeWords) {
  EXPECT_EQ(QueryBuckets(20, 2).selection_bytes(), 8u);
  EXPECT_EQ(QueryBuckets(128, 2).selection_bytes(), 8u);
  EXPECT_EQ(QueryBuckets(129, 2).selection_bytes(), 16u);
  EXPECT_EQ(QueryBuckets(2048, 2).selection_bytes(), 128u);
}

// The multiplication is the division, for the numbers at which it could first fail, too.
TEST(QueryBucketsTest, DividesEveryNumber) {
  TestRandom random(1);
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t rows = 2 + random.Below(~uint32_t{0} - 1);
    const uint64_t least = std::max<uint64_t>(2, (rows + 1023) / 1024);
    const uint64_t count = i % 3 == 0 ? least : least + random.Below(rows - least + 1);
    const QueryBuckets buckets(rows, count);
    std::vector<uint64_t> numbers = {0, 1, count - 1, count, rows - 1, ~uint32_t{0}};
    for (int k = 0; k < 20; ++k) {
      const uint64_t multiple = count * random.Below(~uint32_t{0} / count + 1);
      numbers.insert(numbers.end(), {random.Below(uint64_t{1} << 32), multiple});
      if (multiple > 0) numbers.push_back(multiple - 1);
    }
    for (const uint64_t number : numbers) {
      const QueryBuckets::Place at = buckets.Divide(static_cast<uint32_t>(number));
      ASSERT_EQ(at.bucket, number % count) << number << " by " << count;
      ASSERT_EQ(at.place, number / count) << number << " by " << count;
    }
  }
}

}  // namespace
}  // namespace shoal
