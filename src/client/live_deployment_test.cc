// Tests that a client that waits while a new epoch of the table goes live fetches it and goes on,
// and that nothing that a server sees depends on what the client wants to know.
#include "src/client/live_deployment.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/client/ledger.h"
#include "src/client/retrieval.h"
#include "src/client/testing/fake_frontend.h"
#include "src/noise/noise.h"
#include "src/round/header.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::FakeFrontend;
using Outcome = Lookup::Outcome;

constexpr uint32_t kPadTo = 8;

// A frontend, and one client that has opened the first epoch.
class LiveDeploymentTest : public ::testing::Test {
 protected:
  explicit LiveDeploymentTest(testing::FakeOptions options = {}) : frontend_(options) {}

  void Start(uint32_t max_attempts = 3, uint32_t timeout_s = 60) {
    Start({.pad_to = kPadTo, .max_attempts = max_attempts, .timeout_s = timeout_s});
  }
  void Start(const ChainOptions& options) {
    frontend_.before = [this](const std::string& name) {
      deployments_asked_ += name == "GetDeployment";
      return absl::OkStatus();
    };
    environment_ = {.clock = &frontend_.clock(),
                    .random = &frontend_.random(),
                    .pool = &frontend_.pool(),
                    .sleep = [this](uint32_t milliseconds) { Sleep(milliseconds); }};
    auto live = LiveDeployment::Open(&frontend_, &frontend_.pins(), &store_, environment_,
                                     placement_cache_, address_);
    ASSERT_TRUE(live.ok()) << live.status();
    live_ = *std::move(live);
    auto chain = ChainClient::Create(&live_->current(), options, &frontend_, &store_, environment_);
    ASSERT_TRUE(chain.ok()) << chain.status();
    chain_ = *std::move(chain);
  }

  // Time passes, and after two seconds happens what the test has planned, once.
  void Sleep(uint32_t milliseconds) {
    slept_ms_ += milliseconds;
    frontend_.clock().now_s = started_s_ + slept_ms_ / 1000;
    if (later_ && slept_ms_ >= 2000) std::exchange(later_, nullptr)();
  }

  absl::StatusOr<std::vector<Lookup>> LookUp(const std::vector<std::string>& keys) {
    std::vector<Bytes> bytes;
    for (const std::string& key : keys) bytes.push_back(ToBytes(AsBytes(key)));
    std::vector<Lookup> found;
    SHOAL_RETURN_IF_ERROR(live_->Follow(*chain_, [&]() -> absl::Status {
      ++calls_;
      SHOAL_ASSIGN_OR_RETURN(found, client::LookUp(live_->current(), *chain_, bytes, environment_));
      return absl::OkStatus();
    }));
    return found;
  }
  // Looks up a key that is there from the start and one that only later epochs have.
  void ExpectValues(uint64_t epoch) {
    const auto found = LookUp({FakeFrontend::Key(7), FakeFrontend::Key(350)});
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ((*found)[0].outcome, Outcome::kFound) << (*found)[0].error;
    EXPECT_EQ(ToString((*found)[0].value), FakeFrontend::Value(7, epoch));
    EXPECT_EQ((*found)[1].outcome, epoch == 1 ? Outcome::kAbsent : Outcome::kFound);
  }
  void NextEpochWithARound() {
    frontend_.NextEpoch(900);
    rounds_.push_back(frontend_.OpenRound());
  }
  const Ledger& ledger() { return store_.state().ledger; }

  FakeFrontend frontend_;
  const uint64_t started_s_ = frontend_.clock().now_s;
  MemoryStateStore store_;
  std::string placement_cache_;
  std::string address_;
  Environment environment_ = {};
  std::unique_ptr<LiveDeployment> live_;
  std::unique_ptr<ChainClient> chain_;
  std::function<void()> later_;
  uint64_t slept_ms_ = 0;
  int deployments_asked_ = 0;
  int calls_ = 0;
  std::vector<Digest> rounds_;
};

// Not only a client that has something under way: whoever comes while the frontend is started
// again, or its link is down, waits for it.
TEST_F(LiveDeploymentTest, AClientThatComesWhileTheFrontendIsAwayWaitsForAMinute) {
  environment_ = {.clock = &frontend_.clock(),
                  .random = &frontend_.random(),
                  .pool = &frontend_.pool(),
                  .sleep = [this](uint32_t milliseconds) { Sleep(milliseconds); }};
  uint64_t away_until_ms = 50'000;
  frontend_.before = [&](const std::string&) {
    return slept_ms_ < away_until_ms ? absl::UnavailableError("Network is unreachable")
                                     : absl::OkStatus();
  };
  const auto open = [&] {
    return LiveDeployment::Open(&frontend_, &frontend_.pins(), &store_, environment_,
                                placement_cache_)
        .status();
  };
  SHOAL_EXPECT_OK(open());
  EXPECT_GE(slept_ms_, 50'000u);
  away_until_ms = 1'000'000;
  EXPECT_THAT(open(), StatusIs(absl::StatusCode::kUnavailable, "Network is unreachable"));
  EXPECT_LT(slept_ms_, 150'000u);
}

TEST_F(LiveDeploymentTest, AClientThatWaitsForARoundGoesOnInTheNextEpoch) {
  Start();
  const uint64_t rows = live_->current().manifest().rows();
  later_ = [&] { NextEpochWithARound(); };
  ExpectValues(2);
  EXPECT_GT(live_->current().manifest().rows(), rows);
  EXPECT_LT(slept_ms_, 10'000u);
  EXPECT_EQ(calls_, 2);
  // It asked before the wait, on seeing the round, and to take the epoch.
  EXPECT_EQ(deployments_asked_, 3);
  EXPECT_EQ(store_.state().table->epoch, 2u);
  // One submission, as large as any.
  EXPECT_EQ(ledger().submissions(), 1u);
  EXPECT_EQ(frontend_.Asked(rounds_[0]).size(), kPadTo);
}

// A party's BLS key is renewed, and with it the table, while a client waits for a round.
TEST_F(LiveDeploymentTest, AClientThatWaitsForARoundGoesOnWithTheNextRoster) {
  Start();
  later_ = [&] {
    frontend_.RenewKey(2);
    rounds_.push_back(frontend_.OpenRound());
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, LookUp({FakeFrontend::Key(7)}));
  ASSERT_EQ(found[0].outcome, Outcome::kFound);
  EXPECT_EQ(ToString(found[0].value), FakeFrontend::Value(7, 2));
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(live_->current().roster().epoch(), frontend_.roster().epoch());
  EXPECT_EQ(store_.state().roster->epoch, frontend_.roster().epoch());
  EXPECT_EQ(ledger().submissions(), 1u);
  EXPECT_EQ(frontend_.Asked(rounds_[0]).size(), kPadTo);
}

// The table and what the frontend shows stay, so that nothing but the rounds tells of the roster.
TEST_F(LiveDeploymentTest, AClientThatWaitsForARoundGoesOnWithAnyNextRoster) {
  Start();
  const std::vector<std::function<void(wire::Roster&)>> changes = {
      [](auto& roster) { roster.set_expires_s(roster.expires_s() + 100); },
      [](auto& roster) { roster.set_max_slots(roster.max_slots() + 1); },
      [](auto& roster) {
        roster.mutable_parties(1)->set_tls_certificate_sha256(std::string(32, 'c'));
      },
  };
  for (const auto& change : changes) {
    slept_ms_ = 0;
    later_ = [&] {
      frontend_.NextRoster(change);
      rounds_.push_back(frontend_.OpenRound());
    };
    calls_ = 0;
    ExpectValues(1);
    EXPECT_EQ(calls_, 2);
    EXPECT_EQ(live_->current().roster().digest(), frontend_.roster().digest());
    EXPECT_EQ(frontend_.Asked(rounds_.back()).size(), kPadTo);
    frontend_.SetState(rounds_.back(), wire::CLOSED);
  }
  EXPECT_EQ(ledger().submissions(), changes.size());
}

// A round of a roster that nobody serves is passed over, as one of another table is.
TEST_F(LiveDeploymentTest, ARoundOfAnUnknownRosterIsNoReasonToEnd) {
  Start();
  const Digest spoiled = frontend_.OpenRound();
  frontend_.spoil_round = [&](wire::RoundInfo& info) {
    if (round::RoundId(info.header().header()) != spoiled) return;
    info.mutable_header()->mutable_header()->set_roster_digest(std::string(32, 'x'));
  };
  later_ = [&] { rounds_.push_back(frontend_.OpenRound()); };
  ExpectValues(1);
  EXPECT_EQ(calls_, 1);
}

// Whoever waits has agreed to the noise under which it began, and to no other.
TEST_F(LiveDeploymentTest, ARosterWithOtherNoiseEndsTheLookup) {
  const std::vector<std::function<void(wire::NoiseParameters&)>> changes = {
      [](auto& noise) { noise.set_epsilon(2); },
      [](auto& noise) { noise.set_delta(1e-2); },
      [](auto& noise) { noise.set_mode(16); },
      [](auto& noise) { noise.set_right_scale(5.5); },
  };
  for (const auto& change : changes) {
    Start();
    const uint64_t before = live_->current().roster().epoch();
    slept_ms_ = 0;
    later_ = [&] {
      frontend_.NextRoster([&](wire::Roster& roster) { change(*roster.mutable_noise()); });
      rounds_.push_back(frontend_.OpenRound());
    };
    EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
                StatusIs(absl::StatusCode::kFailedPrecondition, "other noise"));
    EXPECT_EQ(live_->current().roster().epoch(), before);
    EXPECT_TRUE(frontend_.Asked(rounds_.back()).empty());
    frontend_.SetState(rounds_.back(), wire::CLOSED);
  }
  EXPECT_EQ(ledger().submissions(), 0u);
  // Who begins under it has agreed.
  Start();
  rounds_.push_back(frontend_.OpenRound());
  ExpectValues(1);
}

TEST_F(LiveDeploymentTest, ARosterThatGivesTheAddressToAnotherPartyEndsTheLookup) {
  address_ = "127.0.0.1:7000";
  Start();
  later_ = [&] {
    frontend_.NextRoster([&](wire::Roster& roster) {
      roster.mutable_parties(0)->set_client_address("127.0.0.1:7999");
      roster.mutable_parties(1)->set_client_address(address_);
    });
    rounds_.push_back(frontend_.OpenRound());
  };
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "party 2 has the address"));
  EXPECT_TRUE(frontend_.Asked(rounds_[0]).empty());
}

// The error was not of a new roster, but the fetch has accepted a new table.
TEST_F(LiveDeploymentTest, ANewerTableIsTakenWhateverLedToTheFetch) {
  Start();
  frontend_.before = [this, first = true](const std::string& name) mutable {
    if (name != "ListRounds" || !std::exchange(first, false)) return absl::OkStatus();
    NextEpochWithARound();
    return absl::UnauthenticatedError("another certificate");
  };
  ExpectValues(2);
  EXPECT_EQ(calls_, 2);
}

// A lookup over two rounds, the first of which is answered when the roster changes.
class LiveDeploymentOverRoundsTest : public LiveDeploymentTest {
 protected:
  LiveDeploymentOverRoundsTest() : LiveDeploymentTest({.protects_five = true}) {}
  void StartWithLimit(uint64_t queries) {
    const noise::Parameters noise = frontend_.roster().noise();
    SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, LossOf(noise, queries, noise.delta, 0));
    Start({.pad_to = kPadTo,
           .timeout_s = 60,
           .beyond_phi = BeyondPhi::kOverRounds,
           .max_epsilon = *loss.epsilon * 1.001});
    rounds_.push_back(frontend_.OpenRound());
    later_ = [this] {
      frontend_.NextRoster([](auto& roster) { roster.set_expires_s(roster.expires_s() + 100); });
      rounds_.push_back(frontend_.OpenRound());
      rounds_.push_back(frontend_.OpenRound());
    };
  }
};

TEST_F(LiveDeploymentOverRoundsTest, AnsweredRoundsOfTheOldRosterArePaidAgain) {
  StartWithLimit(13);
  ExpectValues(1);
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(ledger().submissions(), 3u);
  EXPECT_EQ(ledger().queries(), 13u);
}

// All of it is compared with the limit before any of it is sent again.
TEST_F(LiveDeploymentOverRoundsTest, WhatIsPaidAgainCountsBeforeItIsSent) {
  StartWithLimit(10);
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "max_epsilon"));
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(ledger().queries(), 5u);
  EXPECT_TRUE(frontend_.Asked(rounds_.back()).empty());
}

// The frontend is started again with another certificate while a client waits for answers: nothing
// is heard of it over connections that require the old one, and the round is lost.
TEST_F(LiveDeploymentTest, AClientThatWaitsForAnswersGoesOnWithTheNextCertificate) {
  Start();
  rounds_.push_back(frontend_.OpenRound());
  frontend_.after = [&](const std::string& name) {
    if (name == "SubmitQueries" && rounds_.size() == 1) {
      frontend_.RenewCertificate();
      frontend_.SetState(rounds_[0], wire::ABORTED);
      rounds_.push_back(frontend_.OpenRound());
    }
    return absl::OkStatus();
  };
  ExpectValues(1);
  EXPECT_EQ(calls_, 2);
  // Both rounds are charged: the first one's queries were sent.
  EXPECT_EQ(ledger().submissions(), 2u);
  for (const Digest& round : rounds_) EXPECT_EQ(frontend_.Asked(round).size(), kPadTo);
}

// Nobody's roster is no reason to stop waiting, and what does not verify under the present one is
// told as it is.
TEST_F(LiveDeploymentTest, ARosterThatIsNotSignedIsNotFollowed) {
  Start();
  const wire::GetDeploymentResponse genuine = frontend_.deployment;
  later_ = [&] {
    frontend_.deployment.mutable_roster()->mutable_roster()->set_epoch(1000);
    frontend_.OpenRound();
    frontend_.spoil_round = [](wire::RoundInfo& info) {
      info.mutable_header()->mutable_header()->set_manifest_digest(std::string(32, 'x'));
    };
  };
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "no round took"));
  EXPECT_EQ(calls_, 1);

  frontend_.spoil_round = nullptr;
  *frontend_.deployment.mutable_roster() = genuine.roster();
  frontend_.before = [&](const std::string& name) {
    return name == "ListRounds" ? absl::UnauthenticatedError("another certificate")
                                : absl::OkStatus();
  };
  const int calls = calls_;
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kUnauthenticated, "another certificate"));
  EXPECT_EQ(calls_, calls + 1);
}

TEST_F(LiveDeploymentTest, SlotsOfTheOldEpochAreUsedInTheirRound) {
  Start();
  rounds_.push_back(frontend_.OpenRound());
  SHOAL_ASSERT_OK(chain_->ObtainAhead(kPadTo));
  NextEpochWithARound();
  ExpectValues(1);
  EXPECT_EQ(frontend_.Asked(rounds_[0]).size(), kPadTo);
  EXPECT_TRUE(frontend_.Asked(rounds_[1]).empty());
  // The next lookup finds no round of the old epoch.
  frontend_.SetState(rounds_[0], wire::CLOSED);
  ExpectValues(2);
  EXPECT_EQ(frontend_.Asked(rounds_[1]).size(), kPadTo);
}

TEST_F(LiveDeploymentTest, SlotsObtainedAheadAreThoseOfTheNextEpoch) {
  Start();
  later_ = [&] { NextEpochWithARound(); };
  Digest round_id = {};
  SHOAL_ASSERT_OK(live_->Follow(*chain_, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(round_id, chain_->ObtainAhead(kPadTo));
    return absl::OkStatus();
  }));
  EXPECT_EQ(round_id, rounds_[0]);
  ExpectValues(2);
  EXPECT_EQ(frontend_.Asked(rounds_[0]).size(), kPadTo);
}

// The old epoch's round is aborted after the queries were sent: the next attempt is in the new
// epoch, is charged too, and counts with the first.
TEST_F(LiveDeploymentTest, AttemptsCountOverEpochs) {
  Start(/*max_attempts=*/2);
  rounds_.push_back(frontend_.OpenRound());
  frontend_.reach = [&](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
  };
  later_ = [&] { NextEpochWithARound(); };
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}), StatusIs(absl::StatusCode::kAborted, "giving up"));
  ASSERT_EQ(rounds_.size(), 2u);
  for (const Digest& round : rounds_) EXPECT_EQ(frontend_.Asked(round).size(), kPadTo);
  EXPECT_EQ(ledger().submissions(), 2u);
  EXPECT_EQ(ledger().queries(), 2 * kPadTo);
  EXPECT_EQ(live_->current().manifest().epoch(), 2u);
  // Another lookup has its own attempts.
  frontend_.reach = nullptr;
  rounds_.push_back(frontend_.OpenRound());
  ExpectValues(2);
}

// Requests, their sizes and their times are the same for every key, present or absent.
class LiveDeploymentKeysTest : public LiveDeploymentTest,
                               public ::testing::WithParamInterface<std::string> {};
TEST_P(LiveDeploymentKeysTest, WhatIsSentOverAChangeDependsOnNoKey) {
  Start();
  later_ = [&] { NextEpochWithARound(); };
  SHOAL_ASSERT_OK(LookUp({GetParam()}));
  std::vector<std::string> sent;
  for (const auto& [name, bytes] : frontend_.sent) {
    if (name != "HangUp") sent.push_back(absl::StrCat(name, " ", bytes.size()));
  }
  EXPECT_EQ(sent.size(), 3u);  // onions, queries, answers
  static const std::vector<std::string> first = sent;
  static const uint64_t first_ms = slept_ms_;
  EXPECT_EQ(sent, first);
  EXPECT_EQ(slept_ms_, first_ms);
  EXPECT_EQ(deployments_asked_, 3);
}
INSTANTIATE_TEST_SUITE_P(Keys, LiveDeploymentKeysTest,
                         ::testing::Values(FakeFrontend::Key(7), FakeFrontend::Key(350),
                                           "no such key"));

// A frontend that shows rounds of a table that nobody signed costs the client one request in five
// seconds, and no more.
TEST_F(LiveDeploymentTest, ARoundOfAnUnknownTableIsNoReasonToGoOn) {
  Start(3, /*timeout_s=*/60);
  frontend_.OpenRound();
  frontend_.spoil_round = [n = 0](wire::RoundInfo& info) mutable {
    info.mutable_header()->mutable_header()->set_manifest_digest(
        absl::StrCat(std::string(28, 'x'), 1000 + n++ % 9000));
  };
  // A later epoch, not signed.
  frontend_.deployment.mutable_manifest()->mutable_manifest()->set_epoch(2);
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "no round took"));
  EXPECT_EQ(calls_, 1);
  EXPECT_GE(deployments_asked_, 10);
  EXPECT_LE(deployments_asked_, 15);
}

TEST_F(LiveDeploymentTest, AFrontendThatTakesTheNewEpochBackIsNotFollowed) {
  placement_cache_ = ::testing::TempDir() + "/placement";
  Start();
  const wire::GetDeploymentResponse first = frontend_.deployment;
  NextEpochWithARound();
  frontend_.before = [&](const std::string& name) {
    if (name == "GetDeployment" && ++deployments_asked_ == 3) frontend_.deployment = first;
    return absl::OkStatus();
  };
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "then did not serve it"));
  EXPECT_EQ(ledger().submissions(), 0u);
}

// The epoch changes between the two requests of a fetch.
TEST_F(LiveDeploymentTest, AFetchThatTheNextEpochOvertakesBeginsAgain) {
  frontend_.before = [&](const std::string& name) {
    if (name == "GetPlacement" && later_) std::exchange(later_, nullptr)();
    return absl::OkStatus();
  };
  later_ = [&] { frontend_.NextEpoch(900); };
  State state;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Deployment deployment,
                             Deployment::Fetch(frontend_, frontend_.pins(), state, started_s_));
  EXPECT_EQ(deployment.manifest().epoch(), 2u);
  EXPECT_EQ(state.table->epoch, 2u);
  // A frontend that never has the placement that it names is not asked for ever.
  int asked = 0;
  frontend_.before = [&](const std::string& name) {
    asked += name == "GetDeployment";
    return name == "GetPlacement" ? absl::FailedPreconditionError("another epoch")
                                  : absl::OkStatus();
  };
  EXPECT_THAT(Deployment::Fetch(frontend_, frontend_.pins(), state, started_s_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "another epoch"));
  EXPECT_EQ(asked, 3);
}

// The noise is for one query in a bucket, as all that has the same claim for more of them would be.
class TwoTiersLiveTest : public LiveDeploymentTest {
 protected:
  TwoTiersLiveTest()
      : LiveDeploymentTest({.parties = 2, .most_in_bucket = 1, .query_buckets = kPadTo}) {}
};

TEST_F(TwoTiersLiveTest, AClientThatWaitsGoesOnInTheNextEpochUnderTheSameTerms) {
  Start();
  later_ = [&] { NextEpochWithARound(); };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, LookUp({FakeFrontend::Key(7)}));
  ASSERT_EQ(found[0].outcome, Outcome::kFound) << found[0].error;
  EXPECT_EQ(ToString(found[0].value), FakeFrontend::Value(7, 2));
  EXPECT_EQ(calls_, 2);
}

// The same noise protects other lists where a client may send more queries for a bucket: whoever
// waits has agreed to one number.
TEST_F(TwoTiersLiveTest, ARosterWithAnotherMostInBucketEndsTheLookup) {
  Start();
  later_ = [&] {
    frontend_.NextRoster([](wire::Roster& roster) { roster.set_most_in_bucket(2); });
    rounds_.push_back(frontend_.OpenRound());
  };
  EXPECT_THAT(LookUp({FakeFrontend::Key(7)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "with most_in_bucket 2 where epoch 1, under which this began, has 1"));
  EXPECT_EQ(live_->current().roster().most_in_bucket(), 1u);
  EXPECT_EQ(ledger().submissions(), 0u);
  for (const auto& asked : rounds_) EXPECT_TRUE(frontend_.Asked(asked).empty());
}

// No error that a server sends is taken for the mark of a new epoch.
TEST_F(LiveDeploymentTest, OnlyThisClientSaysThatThereIsANewEpoch) {
  EXPECT_TRUE(IsNewEpoch(NewEpochError("table", 2)));
  EXPECT_FALSE(IsNewEpoch(absl::FailedPreconditionError(NewEpochError("table", 2).message())));
  EXPECT_FALSE(IsNewEpoch(absl::OkStatus()));
}

}  // namespace
}  // namespace shoal::client
