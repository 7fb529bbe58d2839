// The driver over a whole chain in this process: what happens to rounds that fail.
#include "src/shoald/driver.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/server/testing/deployment.h"

namespace shoal::shoald {
namespace {

using ::shoal::testing::Soon;
using ::shoal::testing::StatusIs;
using namespace std::chrono_literals;

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() : deployment_({.rows = 10, .plan = {.onions_count = 1, .stage_limit_s = 100}}) {}

  void ExpectNothingHeld() {
    for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
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
  ExpectNothingHeld();
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
  ExpectNothingHeld();
}

// A party says that it lacks a round, as one that was restarted does: the round is aborted, and the
// next one opens.
TEST_F(DriverTest, ARoundThatAPartyHasLostIsAborted) {
  std::atomic<uint64_t> lost = 0;
  deployment_.tamper(2).list_answer = [&](const wire::LiveRounds& list,
                                          server::ListAnswer& answer) {
    const uint64_t counter = lost;
    // A list that was made before the round opened, or after its end, does not ask for it.
    if (std::ranges::binary_search(list.rounds(), counter)) {
      answer.lacked.push_back({PartyNumber(3), RoundCounter(counter)});
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
  ExpectNothingHeld();
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

// A frontend that starts while its clock is hours off, also without its journal. Once the clock is
// right, the next round opens.
TEST_F(DriverTest, AFrontendThatStartsUnderAWrongClockOpensRoundsOnceItIsRight) {
  for (const bool lost_journal : {false, true}) {
    for (const int64_t wrong_by_s : {-3 * 3600, 3 * 3600}) {
      SCOPED_TRACE(absl::StrCat(wrong_by_s, " s, journal lost: ", lost_journal));
      // Those after it have heard of a counter of the right time.
      SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round before, deployment_.Announce());
      SHOAL_ASSERT_OK(deployment_.EndRound(before.id()));
      const uint64_t right_s = deployment_.clock().now_s;
      deployment_.clock().now_s = right_s + static_cast<uint64_t>(wrong_by_s);
      if (lost_journal) {
        server::testing::Disk& disk = deployment_.disk(1);
        const MutexLock lock(disk.mutex);
        disk.records.clear();
      }
      deployment_.Restart(1);
      deployment_.clock().now_s = right_s + 1;
      deployment_.clock().steady_s += 1;
      SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round after, deployment_.Announce());
      EXPECT_GT(after.counter(), before.counter());
      SHOAL_ASSERT_OK(deployment_.EndRound(after.id()));
    }
    // Counters that were given out ahead are behind by then.
    deployment_.clock().now_s += 4 * 3600;
    deployment_.clock().steady_s += 4 * 3600;
  }
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

// A round that a driver runs while links break.
class RepeatTest : public ::testing::Test {
 protected:
  using Break = server::testing::Break;
  enum class Stage { kOffline, kOnline };
  static constexpr size_t kSlots = 3;
  // What went over links 1 and 2, try by try.
  using Tries = std::vector<Bytes>;

  RepeatTest() { Renew(); }

  void Renew(uint32_t stage_limit_s = 100) {
    deployment_.emplace(server::testing::DeploymentOptions{
        .rows = 10,
        .plan = {.onions_count = kSlots, .queries_count = kSlots, .stage_limit_s = stage_limit_s}});
    for (uint32_t link : {1u, 2u}) {
      const auto note = [](Tries& tries) {
        return [&tries](Bytes& bytes) { tries.push_back(bytes); };
      };
      for (auto* tries : {&onions_[link], &queries_[link], &answers_[link]}) tries->clear();
      server::testing::Tamper& tamper = deployment_->tamper(link);
      tamper.onions = note(onions_[link]);
      tamper.queries = note(queries_[link]);
      tamper.answers = note(answers_[link]);
    }
  }
  std::function<bool(Break)>& breaks(uint32_t link, Stage stage) {
    server::testing::Tamper& tamper = deployment_->tamper(link);
    return stage == Stage::kOffline ? tamper.breaks_offline : tamper.breaks_online;
  }
  // Breaks a link at this place the first `times` times.
  static std::function<bool(Break)> At(Break place, int times) {
    return [place, left = times](Break here) mutable { return here == place && left-- > 0; };
  }
  // Breaks the link to party 2 in the offline stage, tells so, and never makes it whole.
  void BreakForGood(std::promise<void>& broke) {
    deployment_->tamper(1).loses_lists = true;
    breaks(1, Stage::kOffline) = [&broke, first = true](Break) mutable {
      if (std::exchange(first, false)) broke.set_value();
      return true;
    };
  }

  wire::RoundInfo First() { return deployment_->frontend().ListRounds().rounds(0); }
  bool Reached(wire::RoundState state) {
    return Soon([&] { return First().state() >= state || First().state() == wire::ABORTED; });
  }
  // Runs a round until it is answered or aborted, and returns what clients are told of it.
  // `meanwhile` is called after the onions were submitted.
  wire::RoundInfo Run(const std::function<void()>& meanwhile = [] {}) {
    server::Frontend& frontend = deployment_->frontend();
    const Driver driver(&frontend, &deployment_->node(1), &deployment_->clock());
    SHOAL_CHECK(Soon([&] { return frontend.ListRounds().rounds_size() > 0; }));
    const auto round =
        round::Round::Verify(First().header(), deployment_->roster(), deployment_->table(),
                             deployment_->clock().NowSeconds());
    SHOAL_CHECK(round.ok());
    server::testing::Client client(&*deployment_, *round);
    SHOAL_EXPECT_OK(client.Obtain(kSlots));
    meanwhile();
    EXPECT_TRUE(Reached(wire::OPEN_FOR_QUERIES));
    if (First().state() == wire::ABORTED) return First();
    SHOAL_EXPECT_OK(client.Query({1, 2, 3}));
    EXPECT_TRUE(Reached(wire::ANSWERED));
    const wire::RoundInfo end = First();
    if (end.state() == wire::ANSWERED) {
      const auto answers = client.Fetch();
      EXPECT_THAT(answers, ::shoal::testing::IsOk());
      for (uint64_t i = 0; answers.ok() && i < kSlots; ++i) {
        EXPECT_TRUE(std::ranges::equal((*answers)[i], deployment_->Answer(1 + i)));
      }
    }
    return end;
  }

  std::optional<server::testing::Deployment> deployment_;
  std::map<uint32_t, Tries> onions_, queries_, answers_;
};

// Wherever a link breaks once, in whichever direction, the round is answered, and every neighbour
// gets the same bytes in both tries.
TEST_F(RepeatTest, AStageWhoseLinkBrokeIsRunAgainWithTheSameBytes) {
  for (const Stage stage : {Stage::kOffline, Stage::kOnline}) {
    for (const uint32_t link : {1u, 2u}) {
      for (const Break place : {Break::kBefore, Break::kHalfWay, Break::kAfter}) {
        SCOPED_TRACE(absl::StrCat("stage ", static_cast<int>(stage), ", link ", link, ", place ",
                                  static_cast<int>(place)));
        Renew();
        breaks(link, stage) = At(place, 1);
        EXPECT_EQ(Run().state(), wire::ANSWERED);
        EXPECT_EQ(onions_[1].size(), stage == Stage::kOffline ? 2u : 1u);
        EXPECT_EQ(queries_[1].size(), stage == Stage::kOnline ? 2u : 1u);
        // Party 2 has erased its list once party 3 has it.
        if (link == 1 && place == Break::kAfter) {
          EXPECT_EQ(onions_[2].size(), 1u);
        }
        for (auto* tries : {&onions_, &queries_, &answers_}) {
          for (const uint32_t l : {1u, 2u}) {
            ASSERT_FALSE((*tries)[l].empty());
            EXPECT_LE((*tries)[l].size(), 2u);
            for (const Bytes& bytes : (*tries)[l]) EXPECT_EQ(bytes, (*tries)[l][0]);
          }
        }
      }
    }
  }
}

// Two repeats are enough, whichever link breaks: parties in the middle do not repeat anything, or
// the tries would multiply.
TEST_F(RepeatTest, AStageWhoseLinkBreaksThreeTimesIsGivenUp) {
  for (const Stage stage : {Stage::kOffline, Stage::kOnline}) {
    for (const uint32_t link : {1u, 2u}) {
      SCOPED_TRACE(absl::StrCat("stage ", static_cast<int>(stage), ", link ", link));
      for (const int breaks_times : {2, 3}) {
        Renew();
        breaks(link, stage) = At(Break::kBefore, breaks_times);
        const wire::RoundInfo end = Run();
        EXPECT_EQ(end.state(), breaks_times == 2 ? wire::ANSWERED : wire::ABORTED);
        const auto& tries = stage == Stage::kOffline ? onions_ : queries_;
        for (uint32_t l = 1; l <= link; ++l) EXPECT_EQ(tries.at(l).size(), 3u) << l;
        if (breaks_times == 2) continue;
        EXPECT_THAT(end.abort_reason(), ::testing::HasSubstr("UNAVAILABLE"));
      }
    }
  }
}

// What a party refuses, it refuses for ever: another content after a broken link, for example.
TEST_F(RepeatTest, ARefusalIsNotRepeated) {
  breaks(1, Stage::kOffline) = At(Break::kAfter, 3);
  deployment_->tamper(1).onions = [&](Bytes& bytes) {
    onions_[1].push_back(bytes);
    if (onions_[1].size() == 2) {
      bytes[0] ^= 1;
      breaks(1, Stage::kOffline) = nullptr;
    }
  };
  const wire::RoundInfo end = Run();
  EXPECT_EQ(end.state(), wire::ABORTED);
  EXPECT_THAT(end.abort_reason(), ::testing::HasSubstr("another offline list"));
  EXPECT_EQ(onions_[1].size(), 2u);
}

TEST_F(RepeatTest, WhatAPartyHasLostIsNotRepeated) {
  std::atomic<uint64_t> counter = 0;
  deployment_->tamper(1).onions = [&](Bytes& bytes) {
    onions_[1].push_back(bytes);
    counter = First().header().header().counter();
  };
  breaks(1, Stage::kOffline) = At(Break::kAfter, 1);
  deployment_->tamper(1).list_answer = [&](const wire::LiveRounds& list,
                                           server::ListAnswer& answer) {
    if (!std::ranges::binary_search(list.rounds(), counter.load())) return;
    answer.lacked.push_back({PartyNumber(2), RoundCounter(counter)});
  };
  const wire::RoundInfo end = Run();
  EXPECT_EQ(end.abort_reason(), "party 2 has lost the round");
  EXPECT_EQ(onions_[1].size(), 1u);
}

// A party that ends just after its part of the offline stage has lost the round, and says so once
// it runs again. No client has paid by then.
TEST_F(RepeatTest, WhatAPartyHasLostAfterItsStageIsNotOpened) {
  deployment_->tamper(2).list_answer = [&](const wire::LiveRounds& list,
                                           server::ListAnswer& answer) {
    if (deployment_->frontend().ListRounds().rounds().empty()) return;
    const wire::SignedHeader first = First().header();
    const auto stage = deployment_->party(3).Stage(round::RoundId(first.header()));
    const uint64_t counter = first.header().counter();
    if (stage.ok() && *stage == server::PartyStage::kReady &&
        std::ranges::binary_search(list.rounds(), counter)) {
      answer.lacked.push_back({PartyNumber(3), RoundCounter(counter)});
    }
  };
  const wire::RoundInfo end = Run();
  EXPECT_EQ(end.state(), wire::ABORTED);
  EXPECT_EQ(end.abort_reason(), "party 3 has lost the round");
  // It was not open before: then it would have the reports of the stage.
  EXPECT_EQ(deployment_->frontend().Reports().at(0).stages_size(), 0);
}

// Party 2 lacks some other round, so that it answers to lists although party 3 is not reached,
// which may have lost this one since its stage. No client pays before party 3 has said that it has
// not.
TEST_F(RepeatTest, ARoundIsNotOpenedWhileAPartyIsNotReached) {
  int partial = 0;
  std::atomic<bool> opened = false;
  deployment_->tamper(1).list_answer = [&](const wire::LiveRounds&, server::ListAnswer& answer) {
    if (deployment_->frontend().ListRounds().rounds().empty()) return;
    const wire::RoundInfo first = First();
    const auto stage = deployment_->party(3).Stage(round::RoundId(first.header().header()));
    if (!stage.ok() || *stage != server::PartyStage::kReady || ++partial > 4) return;
    answer.reached = 2;
    if (first.state() != wire::SEALED) opened = true;
  };
  EXPECT_EQ(Run().state(), wire::ANSWERED);
  EXPECT_GT(partial, 4);
  EXPECT_FALSE(opened);
}

// Every party's clock jumps while the offline stage runs, and each looks for what has expired.
TEST_F(RepeatTest, AClockThatJumpsInAStageLosesNoRound) {
  for (const int64_t jump_s : {3 * 3600, -3 * 3600}) {
    Renew();
    deployment_->tamper(2).onions = [&](Bytes&) {
      deployment_->clock().now_s += static_cast<uint64_t>(jump_s);
      for (uint32_t j = 1; j <= 3; ++j) deployment_->party(j).EndExpired();
    };
    EXPECT_EQ(Run().state(), wire::ANSWERED);
  }
}

TEST_F(RepeatTest, WhatPartyOneHasLostInAStageIsAborted) {
  deployment_->tamper(2).onions = [&](Bytes&) {
    SHOAL_EXPECT_OK(deployment_->party(1).End(round::RoundId(First().header().header())));
  };
  const wire::RoundInfo end = Run();
  EXPECT_EQ(end.state(), wire::ABORTED);
  EXPECT_THAT(end.abort_reason(), ::testing::AnyOf(::testing::HasSubstr("opening for queries"),
                                                   "party 1 has lost the round"));
  // It was not open before: then it would have the reports of the stage.
  EXPECT_EQ(deployment_->frontend().Reports().at(0).stages_size(), 0);
}

// A link that stays broken holds up clients for a minute.
TEST_F(RepeatTest, AChainThatIsNotWholeForAMinuteLosesTheRound) {
  std::promise<void> broke;
  BreakForGood(broke);
  const wire::RoundInfo end = Run([&] {
    broke.get_future().wait();
    // The driver begins to wait at some time after that: steps of less than its limit.
    while (First().state() != wire::ABORTED && deployment_->clock().steady_s < 1099) {
      deployment_->clock().steady_s += 1;
      std::this_thread::sleep_for(20ms);
    }
  });
  EXPECT_THAT(end.abort_reason(), ::testing::HasSubstr("offline stage: "));
  EXPECT_EQ(onions_[1].size(), 1u);
}

TEST_F(RepeatTest, TheTimeLimitHoldsOverAllTries) {
  Renew(/*stage_limit_s=*/30);
  std::promise<void> broke;
  BreakForGood(broke);
  const wire::RoundInfo end = Run([&] {
    broke.get_future().wait();
    deployment_->clock().steady_s += 31;
  });
  EXPECT_EQ(end.abort_reason(), "in its offline stage for more than 30 s");
  EXPECT_EQ(onions_[1].size(), 1u);
}

}  // namespace
}  // namespace shoal::shoald
