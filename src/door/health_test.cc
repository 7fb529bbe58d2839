#include "src/door/health.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"

namespace shoal::door {
namespace {

using shoal::testing::Soon;
using shoal::testing::StatusIs;
using namespace std::chrono_literals;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

TEST(HealthTest, WhoeverAsksWaitsForNoProbe) {
  std::atomic<bool> runs = false;
  const auto hangs = [&](const std::function<bool()>& stops) {
    runs = true;
    while (!stops()) std::this_thread::sleep_for(1ms);
    return absl::OkStatus();
  };
  const auto start = std::chrono::steady_clock::now();
  {
    const Health health(hangs, 1h, 1h);
    EXPECT_TRUE(Soon([&] { return runs.load(); }));
    for (int i = 0; i < 1000; ++i) {
      EXPECT_THAT(health.Last(), StatusIs(kUnavailable, "not asked yet"));
    }
  }  // and the probe ends
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
}

TEST(HealthTest, TheLatestAnswerCounts) {
  std::atomic<bool> well = false;
  const Health health(
      [&](const std::function<bool()>&) {
        return well ? absl::OkStatus() : absl::UnavailableError("away");
      },
      1ms, 1h);
  EXPECT_TRUE(Soon([&] { return absl::StrContains(health.Last().message(), "away"); }));
  well = true;
  EXPECT_TRUE(Soon([&] { return health.Last().ok(); }));
  well = false;
  EXPECT_TRUE(Soon([&] { return !health.Last().ok(); }));
}

// A probe that hangs leaves an answer of before.
TEST(HealthTest, AnOldAnswerIsNone) {
  std::atomic<int> asked = 0;
  const Health health(
      [&](const std::function<bool()>& stops) {
        while (++asked > 1 && !stops()) std::this_thread::sleep_for(1ms);
        return absl::OkStatus();
      },
      1ms, 300ms);
  EXPECT_TRUE(Soon([&] { return asked > 1; }));
  EXPECT_TRUE(Soon([&] { return !health.Last().ok(); }));
  EXPECT_THAT(health.Last(), StatusIs(kUnavailable, "nothing is known"));
}

}  // namespace
}  // namespace shoal::door
