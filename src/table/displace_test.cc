#include "src/table/displace.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal::table {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

KeyMark Mark(uint32_t i) { return {static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i), 0, 0}; }

// Keys with records of these bytes, and the marks 0, 1, ..; `fresh` are those that the row did not
// hold before.
std::vector<RowKey> Keys(const std::vector<uint32_t>& bytes,
                         const std::vector<size_t>& fresh = {}) {
  std::vector<RowKey> keys;
  for (size_t i = 0; i < bytes.size(); ++i) {
    keys.push_back({.record_bytes = bytes[i],
                    .mark = Mark(static_cast<uint32_t>(i)),
                    .was_held = std::ranges::find(fresh, i) == fresh.end()});
  }
  return keys;
}

TEST(Displace, NothingWhereAllFits) {
  const Displacement none = Displace(Keys({40, 40, 20}), 100);
  EXPECT_THAT(none.keys, IsEmpty());
  EXPECT_TRUE(none.displaced.none());
  EXPECT_TRUE(Displace({}, 2).displaced.none());
}

// The row holds what is left and says which key it lacks, in 6 bytes.
TEST(Displace, OneKeyIfOneWillDo) {
  // 110 bytes and 6 for the mark are 16 too many.
  const Displacement shortest = Displace(Keys({40, 15, 16, 20, 19}), 100);
  EXPECT_THAT(shortest.keys, ElementsAre(2));
  EXPECT_THAT(shortest.displaced.marks, ElementsAre(Mark(2)));
  EXPECT_FALSE(shortest.displaced.any);
  // A new key gives way before one that was there, though its record is longer.
  EXPECT_THAT(Displace(Keys({40, 15, 16, 20, 19}, {0, 1}), 100).keys, ElementsAre(0));
  EXPECT_THAT(Displace(Keys({40, 15, 16, 20, 19}, {0, 3}), 100).keys, ElementsAre(3));
}

TEST(Displace, TheLongestWhereNoSingleOneWillDo) {
  // 50 too many, and 6 or 10 for the marks.
  const Displacement two = Displace(Keys({30, 30, 30, 30, 30}, {4}), 100);
  EXPECT_THAT(two.keys, ElementsAre(0, 4));
  EXPECT_THAT(two.displaced.marks, ElementsAre(Mark(0), Mark(4)));
  // After the longest, 15 too many are left: the first of the shortest records that will do.
  EXPECT_THAT(Displace(Keys({14, 45, 26, 25, 40}), 100).keys, ElementsAre(1, 3));
  // A record that no row of this size can hold.
  EXPECT_THAT(Displace(Keys({50, 3000, 40}), 100).keys, ElementsAre(1));
  EXPECT_THAT(Displace(Keys({3000}), 6).displaced.marks, ElementsAre(Mark(0)));
}

TEST(Displace, TwoKeysWithOneMark) {
  std::vector<RowKey> keys = Keys({60, 60, 60});
  keys[1].mark = keys[0].mark;
  const Displacement two = Displace(keys, 100);
  EXPECT_THAT(two.keys, ElementsAre(0, 1));
  EXPECT_THAT(two.displaced.marks, ElementsAre(Mark(0)));
}

// Records no longer than a mark, rows shorter than one, and more keys than a row can mark.
TEST(Displace, AnyKeyWhereMarksHaveNoRoom) {
  const Displacement of_short = Displace(Keys({4, 4, 4, 4, 4}), 18);
  EXPECT_TRUE(of_short.displaced.any);
  EXPECT_THAT(of_short.displaced.marks, IsEmpty());
  EXPECT_THAT(of_short.keys, ElementsAre(0));
  const Displacement in_short = Displace(Keys({10}), 5);
  EXPECT_TRUE(in_short.displaced.any);
  EXPECT_THAT(in_short.keys, ElementsAre(0));
  for (const uint32_t too_many : {0u, 1u}) {
    const uint32_t fits = 100;
    const Displacement many =
        Displace(Keys(std::vector<uint32_t>(fits + 254 + too_many, 20)), fits * 20 + 2 + 254 * 4);
    EXPECT_EQ(many.displaced.any, too_many == 1);
    EXPECT_EQ(many.displaced.marks.size(), too_many == 1 ? 0u : 254u);
    // Without the marks there is room for 50 more.
    EXPECT_EQ(many.keys.size(), too_many == 1 ? 205u : 254u);
  }
}

}  // namespace
}  // namespace shoal::table
