// Rounds end everywhere: lists of live rounds in whole chains, and what lost, late and forged ones
// do. No list ends what lives.
#include "src/round/live_rounds.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/server/testing/deployment.h"

namespace shoal::sim {
namespace {

using server::testing::Client;
using server::testing::Deployment;
using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

class LiveRoundsTest : public ::testing::Test {
 protected:
  LiveRoundsTest() : deployment_({.rows = 20, .plan = {.stage_limit_s = 100}}) {}

  round::Round Announce() {
    absl::StatusOr<round::Round> round = deployment_.Announce();
    SHOAL_CHECK(round.ok());
    return *std::move(round);
  }
  wire::SignedLiveRounds List() { return deployment_.frontend().Live(); }
  // How many rounds and drafts each party holds.
  std::vector<size_t> Held() {
    std::vector<size_t> held;
    for (uint32_t j = 1; j <= 3; ++j) held.push_back(deployment_.party(j).open_rounds());
    return held;
  }
  void ExpectOpen(const round::Round& round) {
    for (uint32_t j = 1; j <= 3; ++j) SHOAL_EXPECT_OK(deployment_.party(j).Stage(round.id()));
  }
  // Runs it to its end and expects right answers.
  void ExpectWorks(const round::Round& round) {
    Client client(&deployment_, round);
    SHOAL_ASSERT_OK(client.Obtain(3));
    SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
    SHOAL_ASSERT_OK(client.Query({4, 5, 6}));
    SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
    for (uint64_t i = 0; i < 3; ++i) SHOAL_EXPECT_OK(deployment_.Verify(4 + i, answers[i]));
    SHOAL_EXPECT_OK(deployment_.EndRound(round.id()));
  }

  Deployment deployment_;
};

TEST_F(LiveRoundsTest, ALostEndIsMadeGood) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  deployment_.tamper(2).loses_lists = true;
  EXPECT_THAT(deployment_.EndRound(round.id()), StatusIs(kUnavailable, "lost"));
  EXPECT_EQ(Held(), (std::vector<size_t>{0, 0, 1}));
  EXPECT_THAT(deployment_.SendList(), StatusIs(kUnavailable, "lost"));
  deployment_.tamper(2).loses_lists = false;
  SHOAL_EXPECT_OK(deployment_.SendList());
  EXPECT_EQ(Held(), (std::vector<size_t>{0, 0, 0}));
  EXPECT_THAT(deployment_.party(3).Stage(round.id()).status(),
              StatusIs(absl::StatusCode::kNotFound, "not open"));
  ExpectWorks(Announce());
}

TEST_F(LiveRoundsTest, ALostWithdrawalIsMadeGood) {
  for (const uint32_t link : {1u, 2u}) {
    deployment_.tamper(link).loses_headers = true;
    deployment_.tamper(link).loses_lists = true;
    EXPECT_FALSE(deployment_.Announce().ok());
    EXPECT_EQ(Held(), (std::vector<size_t>{0, link == 1 ? 1u : 0u, 1}));
    deployment_.tamper(link).loses_headers = false;
    deployment_.tamper(link).loses_lists = false;
    SHOAL_EXPECT_OK(deployment_.SendList());
    EXPECT_EQ(Held(), (std::vector<size_t>{0, 0, 0}));
  }
}

// A party takes at most sixteen rounds at a time. A proposal brings the list that makes room.
TEST_F(LiveRoundsTest, SixteenLostMessagesDoNotStopTheChain) {
  deployment_.tamper(1).loses_lists = true;
  for (int i = 0; i < 20; ++i) {
    const auto round = deployment_.Announce();
    SHOAL_ASSERT_OK(round);
    EXPECT_EQ(Held(), (std::vector<size_t>{1, 1, 1}));
    EXPECT_THAT(deployment_.EndRound(round->id()), StatusIs(kUnavailable, "lost"));
  }
  for (int i = 0; i < 20; ++i) {
    deployment_.tamper(2).loses_headers = true;
    EXPECT_FALSE(deployment_.Announce().ok());
    deployment_.tamper(2).loses_headers = false;
  }
  ExpectOpen(Announce());
}

TEST_F(LiveRoundsTest, WhatARestartedPartyHasLostIsAbortedAtOnce) {
  for (uint32_t restarted = 1; restarted <= 3; ++restarted) {
    const round::Round round = Announce();
    Client client(&deployment_, round);
    SHOAL_ASSERT_OK(client.Obtain(3));
    SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
    deployment_.Restart(restarted);
    const auto aborted = deployment_.SendList();
    SHOAL_ASSERT_OK(aborted);
    if (restarted == 1) {
      // The frontend has lost all it had, and its first list says so.
      EXPECT_TRUE(aborted->empty());
      SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundInfo info,
                                 deployment_.frontend().Info(round.id()));
      EXPECT_EQ(info.state(), wire::ABORTED);
      EXPECT_EQ(info.abort_reason(), "the frontend was restarted");
      EXPECT_THAT(client.Query({1}), StatusIs(absl::StatusCode::kFailedPrecondition, "ABORTED"));
    } else {
      EXPECT_EQ(*aborted, std::vector<Digest>{round.id()});
      SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundInfo info,
                                 deployment_.frontend().Info(round.id()));
      EXPECT_EQ(info.state(), wire::ABORTED);
      EXPECT_EQ(info.abort_reason(), absl::StrCat("party ", restarted, " has lost the round"));
      EXPECT_THAT(client.Query({1}), StatusIs(absl::StatusCode::kFailedPrecondition, "ABORTED"));
      // The next list ends it at those that still have it.
      SHOAL_ASSERT_OK(deployment_.SendList());
    }
    EXPECT_EQ(Held(), (std::vector<size_t>{0, 0, 0})) << restarted;
    ExpectWorks(Announce());
  }
}

// Once a round is answered the frontend has all of it: clients fetch what they have paid for,
// whichever party is restarted.
TEST_F(LiveRoundsTest, AnAnsweredRoundOutlivesTheOtherParties) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query({4, 5, 6}));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  for (const uint32_t restarted : {2u, 3u}) {
    deployment_.Restart(restarted);
    const auto aborted = deployment_.SendList();
    SHOAL_ASSERT_OK(aborted);
    EXPECT_TRUE(aborted->empty());
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
  for (uint64_t i = 0; i < 3; ++i) SHOAL_EXPECT_OK(deployment_.Verify(4 + i, answers[i]));
  SHOAL_EXPECT_OK(deployment_.EndRound(round.id()));
  EXPECT_EQ(Held(), (std::vector<size_t>{0, 0, 0}));
}

// A restarted frontend remembers every round that it had not closed until the round would have
// expired, and shows each as aborted, with its first reason.
TEST_F(LiveRoundsTest, ARestartedFrontendShowsTheRoundsOfBeforeAsAborted) {
  const round::Round closed = Announce(), aborted = Announce(), open = Announce();
  deployment_.frontend().Close(closed.id());
  deployment_.frontend().Abort(aborted.id(), "a stage failed");
  const auto reasons = [&] {
    std::map<std::string, std::string> shown;
    for (const wire::RoundReport& report : deployment_.frontend().Reports()) {
      EXPECT_EQ(report.round().state(), wire::ABORTED);
      shown[absl::StrCat(report.round().header().header().counter())] =
          report.round().abort_reason();
    }
    return shown;
  };
  const auto name = [](const round::Round& round) { return absl::StrCat(round.counter().value()); };
  const std::map<std::string, std::string> expected = {{name(aborted), "a stage failed"},
                                                       {name(open), "the frontend was restarted"}};
  for (int i = 0; i < 2; ++i) {
    deployment_.Restart(1);
    EXPECT_EQ(reasons(), expected) << i;
    EXPECT_THAT(deployment_.frontend().Info(closed.id()),
                StatusIs(absl::StatusCode::kNotFound, "no round"));
    EXPECT_EQ(deployment_.frontend().ListRounds().rounds_size(), 0) << "no client can enter them";
  }
  ExpectWorks(Announce());
  // What is damaged tells nothing, and stops nobody.
  deployment_.disk(1).rounds.pop_back();
  deployment_.Restart(1);
  EXPECT_TRUE(reasons().empty());
  // Neither does what has expired.
  const round::Round last = Announce();
  deployment_.Restart(1);
  EXPECT_EQ(reasons().size(), 1u);
  deployment_.clock().now_s = last.header().expires_s() + 61;
  deployment_.Restart(1);
  EXPECT_TRUE(reasons().empty());
}

// An honest list is true for ever, so an old one ends nothing that lives: not rounds, not proposals
// on their way.
TEST_F(LiveRoundsTest, HonestListsOfAnyAgeAndOrderEndNothingThatLives) {
  std::vector<wire::SignedLiveRounds> lists = {List()};
  const round::Round first = Announce();
  lists.push_back(List());
  const round::Round second = Announce();
  SHOAL_ASSERT_OK(deployment_.EndRound(first.id()));
  lists.push_back(List());
  deployment_.tamper(1).live = [&](wire::SignedLiveRounds& live) { lists.push_back(live); };
  const round::Round third = Announce();
  lists.push_back(List());
  deployment_.tamper(1).live = nullptr;
  std::mt19937_64 order(1);
  for (int turn = 0; turn < 50; ++turn) {
    std::shuffle(lists.begin(), lists.end(), order);
    for (const wire::SignedLiveRounds& list : lists)
      SHOAL_EXPECT_OK(deployment_.node(2).Live(list));
    ExpectOpen(second);
    ExpectOpen(third);
  }
  ExpectWorks(second);
  ExpectWorks(third);
}

TEST_F(LiveRoundsTest, AProposalOnItsWayIsNotEndedByAnOlderList) {
  const round::Round round = Announce();
  const wire::SignedLiveRounds before = List();
  wire::RoundHeader draft = *deployment_.frontend().NewDraft();
  const wire::SignedLiveRounds with = List();
  for (uint32_t j = 1; j <= 3; ++j) draft = *deployment_.party(j).ExtendDraft(draft);
  wire::SignedHeader header;
  *header.mutable_header() = draft;
  for (uint32_t j = 3; j >= 1; --j) {
    for (const auto& list : {before, with, before}) {
      // A draft is not what a party lacks: not all have it yet.
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto answer, deployment_.node(1).Live(list));
      EXPECT_TRUE(answer.lacked.empty());
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(header, deployment_.party(j).SignHeader(header));
  }
  SHOAL_ASSERT_OK(deployment_.node(1).Live(before));
  for (uint32_t j = 1; j <= 3; ++j) {
    SHOAL_EXPECT_OK(deployment_.party(j).Stage(round::RoundId(header.header())));
  }
  // Given up, it ends, signed or not.
  deployment_.frontend().Withdraw(RoundCounter(draft.counter()));
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Held(), (std::vector<size_t>{1, 1, 1}));
  ExpectOpen(round);
}

TEST_F(LiveRoundsTest, ForgedAndStaleListsAreRefusedAndEndNothing) {
  const round::Round round = Announce();
  const uint64_t counter = round.counter().value();
  const auto sign = [&](const std::function<void(wire::LiveRounds&)>& change, uint32_t party) {
    wire::LiveRounds list = List().list();
    list.clear_rounds();
    change(list);
    return round::SignLiveRounds(list, deployment_.key(party));
  };
  const auto unchanged = [](wire::LiveRounds&) {};
  wire::SignedLiveRounds unsigned_list = List();
  unsigned_list.mutable_list()->clear_rounds();
  struct Case {
    wire::SignedLiveRounds live;
    absl::StatusCode code;
    std::string why;
  };
  const uint64_t now_s = deployment_.clock().now_s, tolerance_s = 60;
  const std::vector<Case> cases = {
      {wire::SignedLiveRounds(), kInvalid, "another roster"},
      {sign([](auto& list) { list.mutable_roster_digest()->at(3) ^= 1; }, 1), kInvalid,
       "another roster"},
      {unsigned_list, kUnauthenticated, "not signed by party 1"},
      {sign(unchanged, 2), kUnauthenticated, "not signed by party 1"},
      {sign([&](auto& list) { list.set_made_s(now_s - tolerance_s - 1); }, 1), kUnauthenticated,
       "61 seconds ago"},
      {sign([&](auto& list) { list.set_made_s(now_s + tolerance_s + 1); }, 1), kUnauthenticated,
       "61 seconds from now"},
      {sign(
           [&](auto& list) {
             list.add_rounds(5);
             list.add_rounds(5);
           },
           1),
       kInvalid, "do not rise"},
      {sign([&](auto& list) { list.add_drafts(counter + 1); }, 1), kInvalid, "yet to come"},
      {sign(
           [&](auto& list) {
             list.add_rounds(5);
             list.add_drafts(5);
           },
           1),
       kInvalid, "a draft is a round"},
      {sign(
           [&](auto& list) {
             for (uint64_t i = 1; i <= 513; ++i) list.add_drafts(i);
           },
           1),
       kInvalid, "longer than 512"},
  };
  for (const Case& bad : cases) {
    for (uint32_t j = 1; j <= 3; ++j) {
      EXPECT_THAT(deployment_.node(j).Live(bad.live).status(), StatusIs(bad.code, bad.why)) << j;
      EXPECT_THAT(deployment_.node(j).Propose(round.header(), bad.live).status(),
                  StatusIs(bad.code, bad.why));
    }
    ExpectOpen(round);
  }
  ExpectWorks(round);
}

// Nobody but the frontend begins rounds: a party between cannot fill those after it.
TEST_F(LiveRoundsTest, AProposalNeedsTheFrontendsWord) {
  const round::Round round = Announce();
  wire::RoundHeader draft = *deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft());
  const wire::SignedLiveRounds live = List();
  draft.set_counter(draft.counter() + 1);
  EXPECT_THAT(deployment_.node(2).Propose(draft, live).status(),
              StatusIs(kInvalid, "not a draft of the frontend's"));
  draft.set_counter(round.counter().value());
  EXPECT_THAT(deployment_.node(2).Propose(draft, live).status(),
              StatusIs(kInvalid, "not a draft of the frontend's"));
  ExpectOpen(round);
}

// Who holds lists back, or replays old ones, keeps a round's secrets for a minute more and not
// until it expires.
TEST_F(LiveRoundsTest, WithoutListsARoundEndsByItself) {
  const round::Round round = Announce();
  const wire::SignedLiveRounds old = List();
  const auto pass = [&](uint64_t seconds) {
    deployment_.clock().now_s += seconds;
    deployment_.clock().steady_s += seconds;
    for (uint32_t j = 1; j <= 3; ++j) deployment_.party(j).EndExpired();
  };
  for (int i = 0; i < 5; ++i) {
    pass(server::kUnheardLimitS - 1);
    SHOAL_ASSERT_OK(deployment_.SendList());
  }
  ExpectOpen(round);
  deployment_.tamper(2).live = [&](wire::SignedLiveRounds& live) { live = old; };
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(deployment_.SendList(), StatusIs(kUnauthenticated, "seconds ago"));
    EXPECT_EQ(Held(), (std::vector<size_t>{1, 1, 1}));
    pass(server::kUnheardLimitS / 2 + 1);
  }
  EXPECT_EQ(Held(), (std::vector<size_t>{1, 1, 0}));
  deployment_.tamper(2).live = nullptr;
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Digest> aborted, deployment_.SendList());
  EXPECT_EQ(aborted, std::vector<Digest>{round.id()});
}

// A clock that is set wrong makes a party refuse lists, and refused lists end nothing.
TEST_F(LiveRoundsTest, AClockThatJumpsEndsNothingAtOnce) {
  const round::Round round = Announce();
  const wire::SignedLiveRounds live = List();
  const uint64_t right_s = deployment_.clock().now_s;
  for (const int64_t wrong_by_s : {-300, 300, -3 * 3600, 3 * 3600, 30 * 24 * 3600}) {
    deployment_.clock().now_s = right_s + static_cast<uint64_t>(wrong_by_s);
    EXPECT_THAT(deployment_.node(2).Live(live).status(), StatusIs(kUnauthenticated, "clock"));
    for (uint32_t j = 1; j <= 3; ++j) deployment_.party(j).EndExpired();
    ExpectOpen(round);
  }
}

// A counter of a clock that is ahead, which a full disk has not taken, would be above all later
// ones once the clock is right: the frontend goes on from it.
TEST_F(LiveRoundsTest, AfterAFullDiskUnderAWrongClockRoundsBeginAgain) {
  deployment_.clock().now_s += 30 * 3600;
  deployment_.disk(1).writes_left = 0;
  EXPECT_THAT(deployment_.frontend().NewDraft(),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  deployment_.disk(1).writes_left = -1;
  deployment_.clock().now_s -= 30 * 3600;
  for (int i = 0; i < 2; ++i) ExpectWorks(Announce());
}

// A round goes through all of its stages while the wall clocks are hours off, either way.
TEST_F(LiveRoundsTest, ARoundThatIsOpenNeedsNoWallClock) {
  const uint64_t right_s = deployment_.clock().now_s;
  for (const int64_t wrong_by_s : {-3 * 3600, 3 * 3600, 30 * 24 * 3600}) {
    const round::Round round = Announce();
    deployment_.clock().now_s = right_s + static_cast<uint64_t>(wrong_by_s);
    for (uint32_t j = 1; j <= 3; ++j) deployment_.party(j).EndExpired();
    ExpectWorks(round);
    deployment_.clock().now_s = right_s;
  }
}

// A clock that is wrong while other rounds open and end makes the frontend forget no round: clients
// of those that a restart loses are told so.
TEST_F(LiveRoundsTest, AWrongClockForgetsNoRoundThatARestartLoses) {
  const round::Round lost = Announce(), other = Announce();
  deployment_.clock().now_s += 30 * 24 * 3600;
  SHOAL_ASSERT_OK(deployment_.EndRound(other.id()));
  deployment_.clock().now_s -= 30 * 24 * 3600;
  deployment_.Restart(1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundState state, deployment_.frontend().State(lost.id()));
  EXPECT_EQ(state, wire::ABORTED);
}

TEST_F(LiveRoundsTest, WhatNoHonestPartyLacksIsRefused) {
  const round::Round round = Announce();
  const std::vector<server::LackedRound> bad = {
      {PartyNumber(1), round.counter()},
      {PartyNumber(2), round.counter()},
      {PartyNumber(4), round.counter()},
      {PartyNumber(3), RoundCounter(round.counter().value() - 1)},
  };
  for (const server::LackedRound& lack : bad) {
    deployment_.tamper(2).list_answer = [&](auto&, auto& answer) { answer.lacked = {lack}; };
    EXPECT_THAT(deployment_.SendList().status(), StatusIs(kInvalid, "lacked rounds"));
  }
  const server::LackedRound good = {PartyNumber(3), round.counter()};
  deployment_.tamper(2).list_answer = [&](auto&, auto& answer) { answer.lacked = {good, good}; };
  EXPECT_THAT(deployment_.SendList().status(), StatusIs(kInvalid, "comes twice"));
  for (const uint32_t reached : {0u, 1u, 2u, 4u}) {
    deployment_.tamper(2).list_answer = [&](auto&, auto& answer) { answer.reached = reached; };
    EXPECT_THAT(deployment_.SendList().status(), StatusIs(kInvalid, "cannot have reached"));
  }
  // Party 2 cannot know what party 3 lacks if the list has not reached it.
  deployment_.tamper(2).list_answer = nullptr;
  deployment_.tamper(1).list_answer = [&](auto&, auto& answer) {
    answer = {.lacked = {good}, .reached = 2};
  };
  EXPECT_THAT(deployment_.SendList().status(), StatusIs(kInvalid, "no later party"));
  deployment_.tamper(1).list_answer = nullptr;
  // A party that lies ends the round, as every party can.
  deployment_.tamper(2).list_answer = [&](auto&, auto& answer) { answer.lacked = {good}; };
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Digest> aborted, deployment_.SendList());
  EXPECT_EQ(aborted, std::vector<Digest>{round.id()});
}

// What a party lacks is told even if those after it cannot be reached.
TEST_F(LiveRoundsTest, ALackIsToldAlthoughALaterPartyIsDown) {
  const round::Round round = Announce();
  deployment_.Restart(2);
  deployment_.tamper(2).down = true;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto answer, deployment_.node(1).Live(List()));
  EXPECT_EQ(answer.reached, 2u);  // what party 3 lacks is not known
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Digest> aborted, deployment_.SendList());
  EXPECT_EQ(aborted, std::vector<Digest>{round.id()});
}

// A thousand rounds a second have counters, for as long as it takes.
TEST_F(LiveRoundsTest, ThereAreCountersForManyRoundsASecond) {
  for (int second = 0; second < 3; ++second) {
    for (int i = 0; i < 1000; ++i) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundHeader draft, deployment_.frontend().NewDraft());
      deployment_.frontend().Withdraw(RoundCounter(draft.counter()));
    }
    SHOAL_ASSERT_OK(deployment_.EndRound(Announce().id()));
    deployment_.clock().now_s += 1;
  }
  EXPECT_LE(deployment_.frontend().NewDraft()->counter(), 1000 * deployment_.clock().now_s + 10);
}

// A clock that is set closes no window, and none stays open for it.
TEST_F(LiveRoundsTest, WindowsRunOnTheSteadyClock) {
  const round::Round round = Announce();
  const auto is_due = [&] {
    for (const server::Due& due : deployment_.frontend().WhatIsDue()) {
      if (due.action == server::Action::kClose && due.round_id == round.id()) return true;
    }
    return false;
  };
  deployment_.clock().now_s += 100'000;
  EXPECT_FALSE(is_due());
  deployment_.clock().now_s -= 200'000;
  deployment_.clock().steady_s += 59;
  EXPECT_FALSE(is_due());
  deployment_.clock().steady_s += 1;
  EXPECT_TRUE(is_due());
}

// Also if it begins at the end of a second: clients have the whole of it to send what they have
// paid for.
TEST_F(LiveRoundsTest, AWindowLastsAsLongAsItSays) {
  deployment_.clock().steady_ms = 900;
  const round::Round round = Announce();
  const auto is_due = [&] {
    for (const server::Due& due : deployment_.frontend().WhatIsDue()) {
      if (due.action == server::Action::kClose && due.round_id == round.id()) return true;
    }
    return false;
  };
  deployment_.clock().steady_s += 59;
  deployment_.clock().steady_ms = 1899;
  EXPECT_FALSE(is_due());
  deployment_.clock().steady_ms = 1900;
  EXPECT_TRUE(is_due());
}

TEST_F(LiveRoundsTest, TheWindowForQueriesLastsAsLongAsItSays) {
  const round::Round round = Announce();
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  deployment_.clock().steady_ms = 900;
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query({4, 5}));
  const auto is_due = [&] {
    for (const server::Due& due : deployment_.frontend().WhatIsDue()) {
      if (due.round_id == round.id()) return true;
    }
    return false;
  };
  deployment_.clock().steady_s += 59;
  deployment_.clock().steady_ms = 1899;
  EXPECT_FALSE(is_due());
  deployment_.clock().steady_ms = 1900;
  EXPECT_TRUE(is_due());
}

// Even proposals that came to nothing use their counter up, and a clock that is set back changes
// nothing: old lists speak of counters that are never given out again.
TEST_F(LiveRoundsTest, ACounterIsGivenOutOnce) {
  uint64_t highest = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const uint64_t counter = deployment_.frontend().NewDraft()->counter();
      EXPECT_GT(counter, highest);
      highest = counter;
    }
    EXPECT_EQ(List().list().highest_counter(), highest);
    deployment_.Restart(1);
    EXPECT_GE(List().list().highest_counter(), highest);
    EXPECT_EQ(List().list().drafts_size(), 0);
    deployment_.clock().now_s -= 40;
  }
  // One that the journal does not take is not spoken of.
  deployment_.disk(1).writes_left = 0;
  highest = List().list().highest_counter();
  EXPECT_FALSE(deployment_.frontend().NewDraft().ok());
  EXPECT_EQ(List().list().highest_counter(), highest);
  EXPECT_EQ(List().list().drafts_size(), 0);
}

}  // namespace
}  // namespace shoal::sim
