// The driver of refreshes over a whole chain in this process.
#include "src/shoald/refresh_driver.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_clock.h"
#include "src/server/testing/deployment.h"

namespace shoal::shoald {
namespace {

using server::testing::Break;
using server::testing::Client;
using server::testing::Deployment;
using ::shoal::testing::Soon;
using ::shoal::testing::TestClock;

server::testing::DeploymentOptions WithTerms() {
  wire::TermLimit limit;
  limit.set_days(1);
  limit.set_refreshes(2);
  return {.rows = 10,
          .plan = {.stage_limit_s = 100, .terms = {.refreshes = 2, .every_hours = 1}},
          .term_limit = limit};
}

class RefreshDriverTest : public ::testing::Test {
 protected:
  RefreshDriverTest() : deployment_(WithTerms()) {
    absl::StatusOr<round::Round> round = deployment_.Announce();
    SHOAL_CHECK(round.ok());
    client_.emplace(&deployment_, *round);
    SHOAL_EXPECT_OK(client_->Obtain(2));
    SHOAL_EXPECT_OK(deployment_.RunOffline(round->id()));
    SHOAL_EXPECT_OK(client_->Query({3, 7}));
    SHOAL_EXPECT_OK(deployment_.RunOnline(round->id()));
    SHOAL_EXPECT_OK(deployment_.EndRound(round->id()));
  }
  void StartDriver() {
    driver_ = std::make_unique<RefreshDriver>(
        &deployment_.refreshes(), &deployment_.node(1), &clock_,
        [this](const absl::Status& how) { ++(how.ok() ? done_ : failed_); });
  }
  uint64_t NextEpoch(uint32_t parties = 3) {
    const uint64_t epoch = deployment_.MakeEpoch(10, deployment_.table().row_bytes);
    for (uint32_t party = 1; party <= parties; ++party) {
      SHOAL_EXPECT_OK(deployment_.Take(party, epoch));
    }
    return epoch;
  }
  // Waits until the driver has looked, with the clock as it is, at what is due. What the first of
  // these turns begins, and the time of the next try, have ended by the third.
  void LetTheDriverLook() {
    const uint64_t before = clock_.steady_reads;
    ASSERT_TRUE(Soon([&] { return clock_.steady_reads >= before + 3; }));
  }
  // Answers of an epoch are shown.
  bool Shows(uint64_t epoch) {
    const auto answers = client_->FetchRefresh();
    return answers.ok() && std::ranges::equal((*answers)[0], deployment_.Answer(3, epoch)) &&
           std::ranges::equal((*answers)[1], deployment_.Answer(7, epoch));
  }

  Deployment deployment_;
  // The driver's alone. It reads it for each refresh that has failed.
  TestClock clock_;
  std::optional<Client> client_;
  std::atomic<int> done_ = 0, failed_ = 0;
  std::unique_ptr<RefreshDriver> driver_;
};

TEST_F(RefreshDriverTest, EveryEpochIsGivenUntilTheTermHasHadAll) {
  StartDriver();
  for (int i = 1; i <= 2; ++i) {
    const uint64_t epoch = NextEpoch();
    ASSERT_TRUE(Soon([&] { return done_ == i; })) << i;
    EXPECT_TRUE(Shows(epoch));
  }
  EXPECT_EQ(failed_, 0);
  NextEpoch();
  EXPECT_TRUE(Soon([&] { return failed_ == 1; }));
  EXPECT_TRUE(deployment_.terms(1).All().empty());
  // The others hear of it.
  SHOAL_EXPECT_OK(deployment_.SendList());
  for (const uint32_t party : {2u, 3u}) EXPECT_TRUE(deployment_.terms(party).All().empty());
}

// Tried again after a pause that grows, with the same header, until it is done.
TEST_F(RefreshDriverTest, WhatFailsIsTriedAgainAfterAPause) {
  std::atomic<int> tries = 0;
  deployment_.tamper(1).breaks_refresh = [&](Break at) {
    return at == Break::kBefore && ++tries <= 2;
  };
  StartDriver();
  const uint64_t epoch = NextEpoch();
  ASSERT_TRUE(Soon([&] { return failed_ == 1; }));
  LetTheDriverLook();
  EXPECT_EQ(failed_ + done_, 1);
  EXPECT_NE(deployment_.refreshes().Reports()[0].problem(), "");
  clock_.steady_s += 2;
  ASSERT_TRUE(Soon([&] { return failed_ == 2; }));
  clock_.steady_s += 3;
  LetTheDriverLook();
  EXPECT_EQ(failed_ + done_, 2);
  clock_.steady_s += 1;
  ASSERT_TRUE(Soon([&] { return done_ == 1; }));
  EXPECT_EQ(deployment_.refreshes().Reports()[0].number(), 1);
  EXPECT_EQ(deployment_.refreshes().Reports()[0].problem(), "");
  EXPECT_TRUE(Shows(epoch));
}

TEST_F(RefreshDriverTest, APartyThatTakesTheEpochLaterIsWaitedFor) {
  StartDriver();
  const uint64_t epoch = NextEpoch(/*parties=*/2);
  ASSERT_TRUE(Soon([&] { return failed_ == 1; }));
  SHOAL_ASSERT_OK(deployment_.Take(3, epoch));
  clock_.steady_s += 2;
  ASSERT_TRUE(Soon([&] { return done_ == 1; }));
  EXPECT_TRUE(Shows(epoch));
}

TEST_F(RefreshDriverTest, ATermThatAPartyHasLostEnds) {
  deployment_.terms(2).End(client_->round().id(), "test");
  StartDriver();
  NextEpoch();
  EXPECT_TRUE(Soon([&] { return deployment_.terms(1).All().empty(); }));
}

}  // namespace
}  // namespace shoal::shoald
