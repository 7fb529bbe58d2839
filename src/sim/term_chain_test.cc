// Terms in whole chains in one process: refreshes give the right rows of every epoch, whatever is
// broken off, repeated or restarted in between, and lists of live rounds end terms everywhere. What
// a party makes of refreshes alone is tested in //src/sim:terms_test.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/server/refreshes.h"
#include "src/server/terms.h"
#include "src/server/testing/deployment.h"
#include "src/wire/visible.h"

namespace shoal::sim {
namespace {

using server::testing::Break;
using server::testing::Client;
using server::testing::Deployment;
using server::testing::DeploymentOptions;
using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;

constexpr uint64_t kRows = 20;
constexpr uint32_t kRowBytes = 64;

DeploymentOptions WithTerms(uint32_t parties) {
  wire::TermLimit limit;
  limit.set_days(30);
  limit.set_refreshes(10);
  return {.parties = parties,
          .rows = kRows,
          .row_bytes = kRowBytes,
          .plan = {.stage_limit_s = 100,
                   .terms = {.refreshes = 3, .days = 30, .every_hours = 1, .open_minutes = 60}},
          .term_limit = limit};
}

class TermChainTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  explicit TermChainTest(uint32_t parties = 3) : deployment_(WithTerms(parties)) {}

  // A round with a term that is over.
  struct Enrolled {
    round::Round round;
    Client client;
    std::vector<uint64_t> rows;
    const Digest& id() const { return round.id(); }
  };
  Enrolled Enrol(const std::vector<uint64_t>& rows, bool close = true) {
    absl::StatusOr<round::Round> round = deployment_.Announce();
    SHOAL_CHECK(round.ok());
    Client client(&deployment_, *round);
    EXPECT_THAT(client.Obtain(rows.size() + 3), IsOk());  // three are not used
    EXPECT_THAT(deployment_.RunOffline(round->id()), IsOk());
    EXPECT_THAT(client.Query(rows), IsOk());
    EXPECT_THAT(deployment_.RunOnline(round->id()), IsOk());
    if (close) {
      EXPECT_THAT(deployment_.EndRound(round->id()), IsOk());
    }
    return {*std::move(round), std::move(client), rows};
  }
  // All parties take a new epoch.
  uint64_t NextEpoch(uint64_t rows = kRows, uint32_t row_bytes = kRowBytes, uint8_t places = 0) {
    const uint64_t epoch = deployment_.MakeEpoch(rows, row_bytes, places);
    for (uint32_t party = 1; party <= deployment_.parties(); ++party) {
      EXPECT_THAT(deployment_.Take(party, epoch), IsOk());
    }
    return epoch;
  }
  // How many of the client's answers are right in an epoch.
  size_t Right(Enrolled& enrolled, uint64_t epoch) {
    const auto answers = enrolled.client.FetchRefresh();
    EXPECT_THAT(answers, IsOk());
    if (!answers.ok()) return 0;
    size_t right = 0;
    for (size_t i = 0; i < enrolled.rows.size(); ++i) {
      right += std::ranges::equal((*answers)[i], deployment_.Answer(enrolled.rows[i], epoch));
    }
    return right;
  }
  void ExpectAllRight(Enrolled& enrolled, uint64_t epoch) {
    EXPECT_EQ(Right(enrolled, epoch), enrolled.rows.size()) << "epoch " << epoch;
  }
  wire::GetRefreshResponse Latest(const Enrolled& enrolled) {
    wire::GetRefreshRequest request;
    request.set_round_id(ToString(enrolled.id()));
    const auto latest = deployment_.refreshes().GetRefresh(request);
    EXPECT_THAT(latest, IsOk());
    return latest.value_or(wire::GetRefreshResponse());
  }
  // The masked answers, as they come.
  std::string Fetched(const Enrolled& enrolled) {
    const auto answers =
        deployment_.refreshes().FetchRefresh(enrolled.client.RefreshRequest(Latest(enrolled)));
    EXPECT_THAT(answers, IsOk());
    return answers.ok() ? answers->answers() : "";
  }
  // How many terms each party has, by its own word and by its files.
  std::vector<size_t> Kept() {
    std::vector<size_t> kept;
    for (uint32_t party = 1; party <= deployment_.parties(); ++party) {
      kept.push_back(deployment_.terms(party).All().size());
      const std::filesystem::directory_iterator files(deployment_.TermsDirectory(party));
      EXPECT_EQ(kept.back() == 0, begin(files) == end(files)) << "party " << party;
    }
    return kept;
  }
  // What a refresh has cost: every party says so, for anybody to see.
  void ExpectReports(const Enrolled& enrolled, uint32_t number) {
    const uint64_t queries = enrolled.rows.size();
    for (const wire::TermReport& report : deployment_.refreshes().Reports()) {
      if (report.counter() != enrolled.round.counter().value()) continue;
      EXPECT_EQ(report.number(), number);
      ASSERT_EQ(report.stages_size(), static_cast<int>(deployment_.parties()));
      for (int i = 0; i < report.stages_size(); ++i) {
        const wire::StageReport& stage = report.stages(i);
        EXPECT_EQ(stage.party(), static_cast<uint32_t>(i + 1));
        EXPECT_EQ(stage.stage(), "refresh");
        // Later parties answer the noise of those before, too.
        EXPECT_GE(stage.positions_in(), queries);
        EXPECT_EQ(stage.noise_queries(), 0);
        for (const double seconds : {stage.seconds(), stage.cpu_seconds()}) {
          EXPECT_GE(seconds, 0);
          EXPECT_EQ(seconds, wire::VisibleSeconds(seconds));
        }
      }
      EXPECT_EQ(report.stages(0).positions_out(), report.positions());
      EXPECT_EQ(report.stages(0).bytes_out(), queries * enrolled.round.tagged_bytes());
    }
  }
  std::vector<size_t> AllKeep(size_t count) {
    return std::vector<size_t>(deployment_.parties(), count);
  }

  Deployment deployment_;
};

class WholeTermTest : public TermChainTest {
 protected:
  WholeTermTest() : TermChainTest(GetParam()) {}
};

TEST_P(WholeTermTest, EveryEpochIsAnswered) {
  Enrolled first = Enrol({3, 4, 5, 19, 0});
  Enrolled second = Enrol({7, 3}, /*close=*/false);  // still gives the round's own answers
  EXPECT_TRUE(deployment_.refreshes().WhatIsDue().empty());
  EXPECT_FALSE(Latest(first).has_refresh());
  const uint64_t free_bytes = deployment_.spools().free_bytes();
  for (uint32_t number = 1; number <= 3; ++number) {
    const uint64_t epoch = NextEpoch();
    EXPECT_EQ(deployment_.refreshes().WhatIsDue(), (std::vector<Digest>{first.id(), second.id()}));
    for (const Enrolled* enrolled : {&second, &first}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto done, deployment_.RunRefresh(enrolled->id()));
      EXPECT_EQ(done.answers, enrolled->rows.size());
      EXPECT_EQ(done.header.number(), number);
      EXPECT_EQ(done.header.epoch(), epoch);
    }
    EXPECT_TRUE(deployment_.refreshes().WhatIsDue().empty());
    ExpectReports(first, number);
    ExpectReports(second, number);
    ExpectAllRight(first, epoch);
    ExpectAllRight(second, epoch);
    // What the stages of a refresh held is given back, and answers wait in files.
    EXPECT_EQ(deployment_.spools().free_bytes(), free_bytes);
    EXPECT_EQ(deployment_.spools().file_bytes(), 0);
    SHOAL_ASSERT_OK(deployment_.SendList());
  }
  EXPECT_EQ(Kept(), AllKeep(2));
  // The next one would be one too many.
  NextEpoch();
  EXPECT_THAT(deployment_.RunRefresh(first.id()), StatusIs(kNotFound, "has had its 3 refreshes"));
}

INSTANTIATE_TEST_SUITE_P(Parties, WholeTermTest, ::testing::Values(2, 3, 5));

TEST_F(TermChainTest, AnyPartyMayBeRestarted) {
  Enrolled enrolled = Enrol({1, 2, 3, 4});
  for (uint32_t restarted = 1; restarted <= 3; ++restarted) {
    SCOPED_TRACE(restarted);
    const uint64_t epoch = NextEpoch();
    deployment_.Restart(restarted);
    SHOAL_ASSERT_OK(deployment_.SendList());
    SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
    ExpectAllRight(enrolled, epoch);
    const wire::GetRefreshResponse latest = Latest(enrolled);
    const std::string answers = Fetched(enrolled);
    deployment_.Restart(restarted);
    SHOAL_ASSERT_OK(deployment_.SendList());
    if (restarted == 1) {
      // The answers were in a file without a name. The same refresh gives the same bytes.
      EXPECT_FALSE(Latest(enrolled).has_refresh());
      EXPECT_EQ(deployment_.refreshes().WhatIsDue(), std::vector<Digest>{enrolled.id()});
      SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
    }
    EXPECT_EQ(Latest(enrolled).SerializeAsString(), latest.SerializeAsString());
    EXPECT_EQ(Fetched(enrolled), answers);
    EXPECT_EQ(Kept(), AllKeep(1));
  }
}

// What is broken off at any place, at any link, changes nothing for clients, and can be repeated.
TEST_F(TermChainTest, WhatIsBrokenOffIsRepeated) {
  Enrolled enrolled = Enrol({1, 2, 3, 4});
  const uint64_t before = NextEpoch();
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  const uint64_t epoch = NextEpoch();
  for (const uint32_t link : {1u, 2u}) {
    for (const Break at : {Break::kBefore, Break::kAfter}) {
      deployment_.tamper(link).breaks_proposal = [&](Break place) { return place == at; };
      EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kUnavailable, "broke"));
      deployment_.tamper(link).breaks_proposal = nullptr;
    }
  }
  for (const uint32_t link : {1u, 2u}) {
    for (const Break at : {Break::kBefore, Break::kHalfWay, Break::kAfter}) {
      deployment_.tamper(link).breaks_refresh = [&](Break place) { return place == at; };
      EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kUnavailable, "broke"));
      deployment_.tamper(link).breaks_refresh = nullptr;
      EXPECT_EQ(Latest(enrolled).refresh().header().number(), 1);
      ExpectAllRight(enrolled, before);
    }
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto done, deployment_.RunRefresh(enrolled.id()));
  EXPECT_EQ(done.header.number(), 2);
  ExpectAllRight(enrolled, epoch);
}

// A number stands for one epoch, also where the answer to the proposal was lost and party 1 does
// not know that others have signed: the next epoch takes the next number.
TEST_F(TermChainTest, AProposalThatWasLostUsesItsNumberUp) {
  for (const bool restart : {false, true}) {
    Enrolled enrolled = Enrol({1, 2});
    NextEpoch();
    deployment_.tamper(1).breaks_proposal = [](Break place) { return place == Break::kAfter; };
    EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kUnavailable, "broke"));
    deployment_.tamper(1).breaks_proposal = nullptr;
    if (restart) deployment_.Restart(1);
    const uint64_t epoch = NextEpoch();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto done, deployment_.RunRefresh(enrolled.id()));
    EXPECT_EQ(done.header.number(), 2);
    ExpectAllRight(enrolled, epoch);
  }
}

TEST_F(TermChainTest, APartyThatTakesTheEpochLaterIsWaitedFor) {
  Enrolled enrolled = Enrol({1, 2});
  for (const uint32_t last : {1u, 2u, 3u}) {
    const uint64_t epoch = deployment_.MakeEpoch(kRows, kRowBytes);
    for (uint32_t party = 1; party <= 3; ++party) {
      if (party == last) continue;
      SHOAL_ASSERT_OK(deployment_.Take(party, epoch));
    }
    if (last == 1 && epoch == 2) {
      EXPECT_TRUE(deployment_.refreshes().WhatIsDue().empty());
    } else {
      EXPECT_THAT(deployment_.RunRefresh(enrolled.id()),
                  StatusIs(kRefused, absl::StrCat("party ", last)));
    }
    SHOAL_ASSERT_OK(deployment_.Take(last, epoch));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto done, deployment_.RunRefresh(enrolled.id()));
    EXPECT_EQ(done.header.number(), epoch - 1);  // no number is lost
    ExpectAllRight(enrolled, epoch);
  }
}

// Guarantee 2, and that a wrong answer is never accepted.
TEST_F(TermChainTest, TamperedAnswersAreWrongAndNothingElse) {
  Enrolled enrolled = Enrol({1, 2, 3, 4, 5, 6});
  // The answer of one position: noise is dropped on the way, so that the byte may be of one.
  uint64_t epoch = NextEpoch();
  deployment_.tamper(1).refreshed = [](Bytes& answers, auto&) { answers[answers.size() / 2] ^= 1; };
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  EXPECT_GE(Right(enrolled, epoch), 5);
  // All answers depend on all tags.
  epoch = NextEpoch();
  deployment_.tamper(1).refreshed = [](Bytes&, auto& tags) { tags[1][0] ^= 1; };
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  EXPECT_EQ(Right(enrolled, epoch), 0);
  const std::string shown = Latest(enrolled).SerializeAsString();
  epoch = NextEpoch();
  deployment_.tamper(1).refreshed = [](Bytes&, auto& tags) { tags.pop_back(); };
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kInvalid, "tags"));
  deployment_.tamper(1).refreshed = [](Bytes& answers, auto&) { answers.pop_back(); };
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kInvalid, "party 1"));
  EXPECT_EQ(Latest(enrolled).SerializeAsString(), shown);
  deployment_.tamper(1).refreshed = nullptr;
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  ExpectAllRight(enrolled, epoch);
}

TEST_F(TermChainTest, TamperedHeadersAreRefused) {
  Enrolled enrolled = Enrol({1, 2});
  const uint64_t epoch = NextEpoch();
  // What the later parties sign is not what party 1 has proposed.
  deployment_.tamper(2).proposed_refresh = [](wire::RefreshHeader& header) {
    header.set_number(header.number() + 1);
  };
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kUnauthenticated, "refresh"));
  deployment_.tamper(2).proposed_refresh = nullptr;
  EXPECT_FALSE(Latest(enrolled).has_refresh());
  // Party 3 has signed number 2 and so signs no number 1 any more. The next epoch has the next one.
  EXPECT_FALSE(deployment_.RunRefresh(enrolled.id()).ok());
  const uint64_t next = NextEpoch();
  EXPECT_FALSE(deployment_.RunRefresh(enrolled.id()).ok());
  const uint64_t last = NextEpoch();
  deployment_.tamper(2).refresh = [](wire::SignedRefreshHeader& refresh) {
    refresh.mutable_header()->set_epoch(refresh.header().epoch() - 1);
  };
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kUnauthenticated, "party 3"));
  deployment_.tamper(2).refresh = nullptr;
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  EXPECT_LT(epoch, next);
  ExpectAllRight(enrolled, last);
}

TEST_F(TermChainTest, AnOlderRefreshIsNotAnsweredAgain) {
  Enrolled enrolled = Enrol({1, 2});
  NextEpoch();
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  const wire::SignedRefreshHeader older = Latest(enrolled).refresh();
  const uint64_t epoch = NextEpoch();
  // It is the last one that all have signed, and the backend has another table.
  EXPECT_THAT(deployment_.node(1).Refresh(older).status(), StatusIs(kRefused, "party 3"));
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  for (const uint32_t party : {1u, 2u, 3u}) {
    EXPECT_THAT(deployment_.node(party).Refresh(older).status(),
                StatusIs(kRefused, absl::StrCat("party ", party)));
    EXPECT_THAT(deployment_.node(party).ProposeRefresh(older.header()).status(),
                StatusIs(kRefused, absl::StrCat("party ", party)));
  }
  ExpectAllRight(enrolled, epoch);
}

TEST_F(TermChainTest, AnotherLayoutEndsTheTerm) {
  Enrolled enrolled = Enrol({1, 2});
  NextEpoch(kRows, kRowBytes, /*places=*/1);
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kRefused, "other places of keys"));
  NextEpoch(kRows + 1, kRowBytes);
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kNotFound, "other number or size"));
  NextEpoch(kRows, kRowBytes + 1);
  EXPECT_THAT(deployment_.RunRefresh(enrolled.id()), StatusIs(kNotFound, "other number or size"));
  deployment_.refreshes().End(enrolled.id(), "test");
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Kept(), AllKeep(0));
}

// Guarantee 5: a list that names neither round nor term erases what is kept.
TEST_F(TermChainTest, ListsEndTermsEverywhere) {
  Enrolled stays = Enrol({1, 2});
  Enrolled ends = Enrol({3, 4});
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK(deployment_.RunRefresh(ends.id()));
  EXPECT_EQ(Kept(), AllKeep(2));
  deployment_.tamper(2).loses_lists = true;
  deployment_.refreshes().End(ends.id(), "test");
  EXPECT_THAT(deployment_.SendList(), StatusIs(kUnavailable, "lost"));
  EXPECT_EQ(Kept(), (std::vector<size_t>{1, 1, 2}));
  deployment_.tamper(2).loses_lists = false;
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Kept(), AllKeep(1));
  EXPECT_THAT(ends.client.FetchRefresh(), StatusIs(kNotFound, "no term"));
  EXPECT_EQ(deployment_.refreshes().WhatIsDue(), std::vector<Digest>{stays.id()});
  SHOAL_ASSERT_OK(deployment_.RunRefresh(stays.id()));
  ExpectAllRight(stays, epoch);
}

// A party that has lost its state makes the term end for all.
TEST_F(TermChainTest, ALostPartyEndsTheTerm) {
  for (uint32_t lost = 1; lost <= 3; ++lost) {
    SCOPED_TRACE(lost);
    Enrolled enrolled = Enrol({1, 2});
    std::filesystem::remove_all(deployment_.TermsDirectory(lost));
    deployment_.Restart(lost);
    NextEpoch();
    if (lost > 1) {
      EXPECT_EQ(deployment_.refreshes().WhatIsDue(), std::vector<Digest>{enrolled.id()});
      const auto done = deployment_.RunRefresh(enrolled.id());
      EXPECT_THAT(done, StatusIs(kNotFound, absl::StrCat("party ", lost)));
      deployment_.refreshes().End(enrolled.id(), done.status().message());
    }
    SHOAL_ASSERT_OK(deployment_.SendList());
    EXPECT_EQ(Kept(), AllKeep(0));
  }
}

// A round that was not answered leaves nothing, even where some parties have kept its term.
TEST_F(TermChainTest, AnAbortedRoundLeavesNoTerm) {
  for (const uint32_t link : {1u, 2u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
    Client client(&deployment_, round);
    SHOAL_ASSERT_OK(client.Obtain(2));
    SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
    SHOAL_ASSERT_OK(client.Query({1, 2}));
    deployment_.tamper(link).breaks_online = [](Break at) { return at == Break::kHalfWay; };
    EXPECT_THAT(deployment_.RunOnline(round.id()), StatusIs(kUnavailable, "broke"));
    deployment_.tamper(link).breaks_online = nullptr;
    EXPECT_EQ(Kept(), link == 1 ? (std::vector<size_t>{0, 1, 1}) : (std::vector<size_t>{0, 0, 1}));
    deployment_.frontend().Abort(round.id(), "test");
    SHOAL_ASSERT_OK(deployment_.SendList());
    EXPECT_EQ(Kept(), AllKeep(0));
  }
}

// Who has the answers of a round can use its term, however the frontend's process ended.
TEST_F(TermChainTest, AnAnsweredRoundLeavesItsTermAlsoWhenTheFrontendEnds) {
  Enrolled enrolled = Enrol({1, 2}, /*close=*/false);
  deployment_.frontend().Abort(enrolled.id(), "the frontend ends");
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Kept(), AllKeep(1));
  Enrolled killed = Enrol({3, 4}, /*close=*/false);
  deployment_.Restart(1);
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Kept(), AllKeep(2));
  const uint64_t epoch = NextEpoch();
  for (Enrolled* one : {&enrolled, &killed}) {
    SHOAL_ASSERT_OK(deployment_.RunRefresh(one->id()));
    ExpectAllRight(*one, epoch);
  }
}

TEST_F(TermChainTest, RequestsAreChecked) {
  Enrolled enrolled = Enrol({1, 2, 3});
  server::Refreshes& refreshes = deployment_.refreshes();
  NextEpoch();
  wire::FetchRefreshRequest early;
  early.set_round_id(ToString(enrolled.id()));
  early.set_number(1);
  EXPECT_THAT(refreshes.FetchRefresh(early), StatusIs(kRefused, "no refresh yet"));
  SHOAL_ASSERT_OK(deployment_.RunRefresh(enrolled.id()));
  const wire::FetchRefreshRequest good = enrolled.client.RefreshRequest(Latest(enrolled));
  SHOAL_ASSERT_OK(refreshes.FetchRefresh(good));
  const auto expect = [&](absl::StatusCode code, const std::string& what,
                          const std::function<void(wire::FetchRefreshRequest&)>& change) {
    wire::FetchRefreshRequest request = good;
    change(request);
    EXPECT_THAT(refreshes.FetchRefresh(request), StatusIs(code, what));
  };
  expect(kInvalid, "round id", [](auto& request) { request.mutable_round_id()->pop_back(); });
  expect(kNotFound, "no term", [](auto& request) { request.mutable_round_id()->front() ^= 1; });
  expect(kRefused, "refresh 1 is the latest", [](auto& request) { request.set_number(2); });
  expect(kInvalid, "different lengths", [](auto& request) { request.mutable_slots()->pop_back(); });
  expect(kInvalid, "different lengths",
         [](auto& request) { request.mutable_tokens()->pop_back(); });
  expect(absl::StatusCode::kPermissionDenied, "token",
         [](auto& request) { request.mutable_tokens()->back() ^= 1; });
  // A token of the round is none of the refresh.
  expect(absl::StatusCode::kPermissionDenied, "token", [&](auto& request) {
    *request.mutable_tokens() = enrolled.client.QueriesRequest().tokens();
  });
  expect(kInvalid, "was not used", [](auto& request) {
    (*request.mutable_slots())[8] = 3;  // the first that the client has not used
  });
  expect(kInvalid, "named twice", [](auto& request) {
    request.mutable_slots()->replace(4, 4, request.slots(), 0, 4);
    request.mutable_tokens()->replace(16, 16, request.tokens(), 0, 16);
  });
  expect(kInvalid, "258 runs", [](auto& request) {
    Bytes slots;
    for (uint32_t i = 0; i < 258; ++i) AppendLe(slots, 2 * i);
    request.set_slots(ToString(slots));
    request.set_tokens(std::string(258 * 16, 0));
  });
  expect(kInvalid, "answers of 128 bytes in one request", [](auto& request) {
    request.set_slots(std::string(4 * 20'000, 0));
    request.set_tokens(std::string(16 * 20'000, 0));
  });
}

// Terms are given by the calendar, and only as many as parties keep.
TEST_F(TermChainTest, RoundsGetTermsByTheCalendar) {
  DeploymentOptions options = WithTerms(2);
  options.plan.terms.every_hours = 2;
  options.plan.terms.open_minutes = 30;
  Deployment deployment(options);
  constexpr uint64_t kPeriodS = 7200, kOpenS = 1800;
  const uint64_t begin_s = (deployment.clock().now_s / kPeriodS + 1) * kPeriodS;
  struct Case {
    uint64_t into_s;
    bool term;
  };
  for (const auto& [into_s, term] :
       {Case{0, true}, Case{kOpenS - 1, true}, Case{kOpenS, false}, Case{kPeriodS - 1, false}}) {
    deployment.clock().now_s = begin_s + into_s;
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundHeader draft, deployment.frontend().NewDraft());
    EXPECT_EQ(draft.max_refreshes(), term ? 3 : 0) << into_s;
    EXPECT_EQ(draft.term_expires_s(), term ? draft.announced_s() + 30 * 24 * 3600 : 0) << into_s;
    deployment.frontend().Withdraw(RoundCounter(draft.counter()));
  }
  // Drafts that may come to have a term count.
  deployment.clock().now_s = begin_s;
  for (size_t i = 0; i < server::kMaxTerms; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundHeader draft, deployment.frontend().NewDraft());
    EXPECT_EQ(draft.max_refreshes(), 3) << i;
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundHeader draft, deployment.frontend().NewDraft());
  EXPECT_EQ(draft.max_refreshes(), 0);
}

TEST_F(TermChainTest, PlansAreChecked) {
  const auto check = [&](const std::function<void(server::RoundPlan&)>& change,
                         const roster::Roster& roster) {
    server::RoundPlan plan = WithTerms(3).plan;
    change(plan);
    return server::CheckPlan(plan, roster);
  };
  const roster::Roster& roster = deployment_.roster();
  SHOAL_EXPECT_OK(check([](auto&) {}, roster));
  EXPECT_THAT(check([](auto& plan) { plan.terms.refreshes = 11; }, roster),
              StatusIs(kInvalid, "terms.refreshes is 11; allowed are 1 to 10"));
  EXPECT_THAT(check([](auto& plan) { plan.terms.days = 31; }, roster),
              StatusIs(kInvalid, "terms.days is 31; allowed are 1 to 30"));
  EXPECT_THAT(check([](auto& plan) { plan.terms.every_hours = 0; }, roster),
              StatusIs(kInvalid, "terms.every_hours"));
  EXPECT_THAT(check([](auto& plan) { plan.terms.open_minutes = 61; }, roster),
              StatusIs(kInvalid, "terms.open_minutes is 61; allowed are 1 to 60"));
  EXPECT_THAT(check(
                  [](auto& plan) {
                    plan.terms.days = 1;
                    plan.stage_limit_s = 24 * 3600;
                  },
                  roster),
              StatusIs(kInvalid, "terms.days is 1, and rounds may live for"));
  const Deployment without({.parties = 3});
  EXPECT_THAT(check([](auto&) {}, without.roster()), StatusIs(kRefused, "term_limit"));
}

}  // namespace
}  // namespace shoal::sim
