#include "src/base/testing/soon.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace shoal::testing {
namespace {

using namespace std::chrono_literals;

TEST(SoonTest, ComesBackOnceTheConditionHolds) {
  EXPECT_TRUE(Soon([] { return true; }, 0ms));
  std::atomic<bool> done = false;
  std::thread other([&] { done = true; });
  EXPECT_TRUE(Soon([&] { return done.load(); }));
  other.join();
}

TEST(SoonTest, SaysWhetherItHoldsAfterTheLimit) {
  EXPECT_FALSE(Soon([] { return false; }, 10ms));
  // It begins to hold between the last look within the limit and the look at the clock.
  int looks = 0;
  EXPECT_TRUE(Soon([&] { return ++looks == 2; }, 0ms));
  EXPECT_EQ(looks, 2);
}

}  // namespace
}  // namespace shoal::testing
