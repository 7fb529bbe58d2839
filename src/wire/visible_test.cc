#include "src/wire/visible.h"

#include "gtest/gtest.h"

namespace shoal::wire {
namespace {

// Reports do not show differences below a hundredth of a second.
TEST(VisibleTest, StagesAreToldInHundredthsOfASecond) {
  EXPECT_EQ(VisibleSeconds(0), 0);
  EXPECT_EQ(VisibleSeconds(0.0049), 0);
  EXPECT_EQ(VisibleSeconds(1.2351), 1.24);
  EXPECT_EQ(VisibleSeconds(1.2360001), VisibleSeconds(1.2442));
  EXPECT_EQ(VisibleSeconds(3600.001), 3600);
}

TEST(VisibleTest, TheWholeChainIsToldInMilliseconds) {
  EXPECT_EQ(VisibleMilliseconds(0), 0u);
  EXPECT_EQ(VisibleMilliseconds(0.0019999), 1u);
  EXPECT_EQ(VisibleMilliseconds(12.5), 12'500u);
}

TEST(VisibleTest, WhatClientsCauseIsToldInTensAndInMebibytes) {
  EXPECT_EQ(VisibleRequests(9), 0u);
  EXPECT_EQ(VisibleRequests(10), 10u);
  EXPECT_EQ(VisibleRequests(1239), 1230u);
  EXPECT_EQ(VisibleBytes((1 << 20) - 1), 0u);
  EXPECT_EQ(VisibleBytes((3 << 20) + 5), 3u << 20);
  EXPECT_EQ(VisibleBytes(~uint64_t{0}), ~uint64_t{0} << 20);
}

TEST(VisibleTest, AHalfHasALetterWhateverAnotherPartyReports) {
  EXPECT_STREQ(HalfName(1), "A");
  EXPECT_STREQ(HalfName(2), "B");
  EXPECT_STREQ(HalfName(3), "?");
  EXPECT_STREQ(HalfName(~uint32_t{0}), "?");
}

}  // namespace
}  // namespace shoal::wire
