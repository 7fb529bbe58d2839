#include "src/wire/visible_time.h"

#include "gtest/gtest.h"

namespace shoal::wire {
namespace {

// Reports do not show differences below a hundredth of a second.
TEST(VisibleTimeTest, StagesAreToldInHundredthsOfASecond) {
  EXPECT_EQ(VisibleSeconds(0), 0);
  EXPECT_EQ(VisibleSeconds(0.0049), 0);
  EXPECT_EQ(VisibleSeconds(1.2351), 1.24);
  EXPECT_EQ(VisibleSeconds(1.2360001), VisibleSeconds(1.2442));
  EXPECT_EQ(VisibleSeconds(3600.001), 3600);
}

TEST(VisibleTimeTest, TheWholeChainIsToldInMilliseconds) {
  EXPECT_EQ(VisibleMilliseconds(0), 0u);
  EXPECT_EQ(VisibleMilliseconds(0.0019999), 1u);
  EXPECT_EQ(VisibleMilliseconds(12.5), 12'500u);
}

}  // namespace
}  // namespace shoal::wire
