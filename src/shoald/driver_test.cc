// The driver over a whole chain in this process: what happens to rounds that fail.
#include "src/shoald/driver.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/server/testing/deployment.h"

namespace shoal::shoald {
namespace {

using ::shoal::testing::StatusIs;
using namespace std::chrono_literals;

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() : deployment_({.rows = 10, .plan = {.onions_count = 1, .stage_limit_s = 100}}) {}

  template <typename Condition>
  static bool Soon(const Condition& condition) {
    for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(10ms);
    return condition();
  }
  void ExpectNoSeeds() {
    for (uint32_t j = 1; j <= 3; ++j) EXPECT_TRUE(deployment_.disk(j).seeds.empty()) << j;
  }

  server::testing::Deployment deployment_;
};

// Party 2 answers with a signature that is not of this round: the parties have signed the round,
// and nobody can open it.
TEST_F(DriverTest, ARoundThatCannotBeOpenedIsEndedEverywhere) {
  std::atomic<bool> proposed = false;
  deployment_.tamper(1).signed_back = [&](wire::SignedHeader& header) {
    header.set_signature(ToString(deployment_.key(2).Sign(Digest{7}).bytes()));
    proposed = true;
  };
  {
    const Driver driver(&deployment_.frontend(), &deployment_.node(1), &deployment_.clock());
    ASSERT_TRUE(Soon([&] { return proposed.load(); }));
  }
  EXPECT_EQ(deployment_.frontend().ListRounds().rounds_size(), 0);
  ExpectNoSeeds();
}

// Clients and other parties are told that the round is over, without the name of a file.
TEST_F(DriverTest, ARoundWhoseOnionsCannotBeStoredIsAbortedEverywhere) {
  server::Frontend& frontend = deployment_.frontend();
  const auto first = [&] { return frontend.ListRounds().rounds(0); };
  {
    const Driver driver(&frontend, &deployment_.node(1), &deployment_.clock());
    ASSERT_TRUE(Soon([&] { return frontend.ListRounds().rounds_size() > 0; }));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const round::Round round,
        round::Round::Verify(first().header(), deployment_.roster(), deployment_.table(),
                             deployment_.clock().NowSeconds()));
    deployment_.disk(1).writes_left = 0;  // from here on rounds are not even announced
    EXPECT_THAT(
        server::testing::Submit(frontend, round.id(),
                                server::testing::Client(&deployment_, round).Make().submission),
        StatusIs(absl::StatusCode::kFailedPrecondition, "takes no onions"));
    ASSERT_TRUE(Soon([&] { return first().state() == wire::ABORTED; }));
  }
  EXPECT_EQ(first().abort_reason(), "what clients sent could not be stored");
  ExpectNoSeeds();
}

// A party says that it lacks a round, as one that was restarted does: the round is aborted, and the
// next one opens.
TEST_F(DriverTest, ARoundThatAPartyHasLostIsAborted) {
  std::atomic<uint64_t> lost = 0;
  deployment_.tamper(2).lacked = [&](server::LackedRounds& lacked) {
    if (const uint64_t counter = lost.exchange(0); counter != 0) {
      lacked.push_back({PartyNumber(3), RoundCounter(counter)});
    }
  };
  server::Frontend& frontend = deployment_.frontend();
  {
    const Driver driver(&frontend, &deployment_.node(1), &deployment_.clock());
    ASSERT_TRUE(Soon([&] { return frontend.ListRounds().rounds_size() > 0; }));
    lost = frontend.ListRounds().rounds(0).header().header().counter();
    ASSERT_TRUE(Soon([&] { return frontend.ListRounds().rounds_size() > 1; }));
    EXPECT_EQ(frontend.ListRounds().rounds(0).abort_reason(), "party 3 has lost the round");
    EXPECT_EQ(frontend.ListRounds().rounds(1).state(), wire::OPEN_FOR_ONIONS);
  }
  ExpectNoSeeds();
}

// An announcement fails while the frontend's clock is hours ahead. Once the clock is right again,
// the next round opens within seconds, not hours.
TEST_F(DriverTest, AFailureUnderAWrongClockHoldsUpNoLaterRound) {
  deployment_.tamper(1).down = true;
  deployment_.clock().now_s += 3 * 3600;
  server::Frontend& frontend = deployment_.frontend();
  // The journal has the draft's counter before it is proposed.
  const auto counters = [&] {
    const server::testing::Disk& disk = deployment_.disk(1);
    const MutexLock lock(disk.mutex);
    return disk.records.size();
  };
  const size_t before = counters();
  const Driver driver(&frontend, &deployment_.node(1), &deployment_.clock());
  ASSERT_TRUE(Soon([&] { return counters() > before && frontend.Live().list().drafts().empty(); }));
  deployment_.clock().now_s -= 3 * 3600;
  deployment_.tamper(1).down = false;
  ASSERT_TRUE(Soon([&] {
    deployment_.clock().steady_s += 3;
    return frontend.ListRounds().rounds_size() > 0;
  }));
}

// The same if a stage fails at any party's disk: others are told which party it was, but not the
// names of its files.
TEST_F(DriverTest, WhyAStageFailedNamesNoFile) {
  for (uint32_t j = 1; j <= 2; ++j) {
    server::testing::Deployment deployment(
        {.rows = 10, .plan = {.onions_count = 1, .stage_limit_s = 100}});
    deployment.disk(j).failure =
        StorageError(absl::StatusCode::kResourceExhausted, "/state/journal: disk full");
    server::Frontend& frontend = deployment.frontend();
    const auto first = [&] { return frontend.ListRounds().rounds(0); };
    const Driver driver(&frontend, &deployment.node(1), &deployment.clock());
    ASSERT_TRUE(Soon([&] { return frontend.ListRounds().rounds_size() > 0; }));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const round::Round round,
        round::Round::Verify(first().header(), deployment.roster(), deployment.table(),
                             deployment.clock().NowSeconds()));
    const Bytes onion = server::testing::Client(&deployment, round).Make().submission;
    // At the frontend the onion can be written, but not the digest that the offline stage commits
    // to.
    deployment.disk(j).writes_left = j == 1 ? 1 : 0;
    SHOAL_ASSERT_OK(server::testing::Submit(frontend, round.id(), onion));
    ASSERT_TRUE(Soon([&] { return first().state() == wire::ABORTED; }));
    EXPECT_EQ(first().abort_reason(),
              absl::StrCat("offline stage: RESOURCE_EXHAUSTED: party ", j, ": storage failed"));
  }
}

}  // namespace
}  // namespace shoal::shoald
