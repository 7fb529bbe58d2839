#include "src/shoald/pass_times.h"

#include "gtest/gtest.h"

namespace shoal::shoald {
namespace {

const PassTimes::Of kSlow = {nullptr, pir::Role::kOnline};
const PassTimes::Of kQuick = {nullptr, pir::Role::kOffline};

TEST(PassTimesTest, EveryRoleHasItsOwnTimeAndAllAreAddedUp) {
  PassTimes times(16);
  times.Passed(kSlow, 16, 2.0);
  times.Passed(kQuick, 16, 0.001);  // the last pass
  times.Add(kSlow, 1700);
  EXPECT_DOUBLE_EQ(times.WaitSeconds(), 1700 * 2.0 / 16);
  times.Add(kQuick, 16);
  EXPECT_DOUBLE_EQ(times.WaitSeconds(), 1700 * 2.0 / 16 + 0.001);
  times.Take(kSlow, 1700);
  EXPECT_DOUBLE_EQ(times.WaitSeconds(), 0.001);
  times.Take(kQuick, 16);
  EXPECT_EQ(times.WaitSeconds(), 0);
}

TEST(PassTimesTest, ASmallPassStandsForAFullOne) {
  PassTimes times(16);
  times.Passed(kSlow, 1, 1.0);
  times.Add(kSlow, 16);
  EXPECT_DOUBLE_EQ(times.WaitSeconds(), 8.0);
  times.Passed(kSlow, 8, 1.0);
  EXPECT_DOUBLE_EQ(times.WaitSeconds(), 1.0);
}

}  // namespace
}  // namespace shoal::shoald
