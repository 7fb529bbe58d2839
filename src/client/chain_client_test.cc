#include "src/client/chain_client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/client/chain_client_fixture.h"
#include "src/client/device.h"
#include "src/client/exchange.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/testing/fake_frontend.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using shoal::testing::IsOk;
using shoal::testing::StatusIs;
using testing::ClientTest;
using testing::Device;
using testing::FakeFrontend;
using testing::FakeOptions;
using testing::FileState;
using testing::Keys;
using Outcome = Lookup::Outcome;

TEST_F(ClientTest, FindsValuesAndProvesAbsence) {
  for (uint32_t parties : {2u, 3u, 5u}) {
    Start({.parties = parties});
    store_.state() = State();
    frontend_->OpenRound();
    auto client = Open();
    ASSERT_NE(client, nullptr);
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const std::vector<Lookup> results,
        client->LookUp(Keys({"key-7", "no such key", "key-299", "key-7", "", "key-300"})));
    ASSERT_EQ(results.size(), 6u);
    EXPECT_EQ(results[0].outcome, Outcome::kFound);
    EXPECT_EQ(ToString(results[0].value), "value of key-7");
    EXPECT_EQ(results[1].outcome, Outcome::kAbsent);
    EXPECT_EQ(results[2].outcome, Outcome::kFound);
    EXPECT_EQ(ToString(results[2].value), "value of key-299");
    EXPECT_EQ(ToString(results[3].value), "value of key-7");
    EXPECT_EQ(results[4].outcome, Outcome::kAbsent);
    EXPECT_EQ(results[5].outcome, Outcome::kAbsent);
    for (const Lookup& result : results) SHOAL_EXPECT_OK(result.error);
  }
}

TEST_F(ClientTest, DenseTables) {
  Start({.dense = true});
  frontend_->OpenRound();
  auto client = Open();
  EXPECT_THAT(client->LookUp(Keys({"1", "01"})),
              StatusIs(absl::StatusCode::kInvalidArgument, "key 2"));
  EXPECT_TRUE(frontend_->sent.empty()) << "a bad key is found before anything is sent";
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Lookup> results,
                             client->LookUp(Keys({"0", "299", "300"})));
  EXPECT_EQ(ToString(results[0].value), "value of key-0");
  EXPECT_EQ(ToString(results[1].value), "value of key-299");
  EXPECT_EQ(results[2].outcome, Outcome::kAbsent);
}

// A key that is out of the table's range takes as many queries as any other, so that nobody sees
// it.
TEST_F(ClientTest, AKeyWithoutARowIsPaddedLikeAnyOther) {
  Start({.dense = true});
  const Digest round_id = frontend_->OpenRound();
  SHOAL_ASSERT_OK(Open()->LookUp(Keys({"300"})));
  EXPECT_EQ(frontend_->Asked(round_id).size(), 8u);
}

TEST_F(ClientTest, AFixedNumberOfDistinctRows) {
  Start({.records = 2000});
  std::vector<size_t> counts;
  for (size_t n : {1u, 3u, 30u}) {
    const Digest round_id = frontend_->OpenRound();
    std::vector<std::string> keys;
    for (size_t i = 0; i < n; ++i) {
      keys.push_back(FakeFrontend::Key(i));
      keys.push_back(FakeFrontend::Key(i));
    }
    auto client = Open();
    SHOAL_ASSERT_OK(client->LookUp(Keys(keys)));
    std::set<uint32_t> wanted, asked;
    for (const std::string& key : keys) {
      wanted.insert(static_cast<uint32_t>(*client->deployment().map().RowOf(AsBytes(key))));
    }
    const auto by_slot = frontend_->Asked(round_id);
    for (const auto& [slot, row] : by_slot) asked.insert(row);
    EXPECT_EQ(asked.size(), by_slot.size()) << "no row is asked twice in a round";
    EXPECT_TRUE(std::includes(asked.begin(), asked.end(), wanted.begin(), wanted.end()));
    counts.push_back(by_slot.size());
    frontend_->SetState(round_id, wire::CLOSED);
  }
  EXPECT_EQ(counts, (std::vector<size_t>{8, 8, 32}));
}

// Guarantees 3, 6 and 7: the seed and the cut before the onions, the rows and the charge before the
// queries.
TEST_F(ClientTest, StateIsDurableBeforeAnythingIsSent) {
  Start();
  const Digest round_id = frontend_->OpenRound();
  auto client = Open();
  bool onions_checked = false, queries_checked = false;
  frontend_->before = [&](const std::string& name) {
    if (name == "SubmitOnions") {
      EXPECT_EQ(store_.durable_rounds, 1u);
      EXPECT_EQ(store_.durable_onions, 8u);
      EXPECT_EQ(store_.durable_charges, 0u) << "onions say nothing yet";
      onions_checked = true;
    }
    if (name == "SubmitQueries") {
      EXPECT_EQ(store_.durable_rows.size(), 8u);
      EXPECT_EQ(store_.durable_charges, 1u);
      queries_checked = true;
    }
    return absl::OkStatus();
  };
  SHOAL_ASSERT_OK(client->LookUp(Keys({"key-1"})));
  EXPECT_TRUE(onions_checked);
  EXPECT_TRUE(queries_checked);
  for (const auto& [slot, row] : frontend_->Asked(round_id)) {
    EXPECT_FALSE(store_.durable_rows.contains(row)) << "wiped once the answers are there";
  }
  EXPECT_EQ(store_.state().ledger.queries(), 8u);
}

TEST_F(ClientTest, NothingIsSentWhenTheStateCannotBeSaved) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  store_.fail = absl::ResourceExhaustedError("disk full");
  EXPECT_THAT(client->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_TRUE(frontend_->sent.empty());

  // The disk is full only when the rows are written.
  Start();
  store_.fail = absl::OkStatus();
  store_.state() = State();
  frontend_->OpenRound();
  client = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest round_id, client->chain().Obtain(8));
  store_.fail = absl::ResourceExhaustedError("disk full");
  const std::vector<uint32_t> rows = {1};
  EXPECT_THAT(client->chain().Submit(round_id, rows),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_EQ(SentCount("SubmitQueries"), 0u);
}

// After a lost response and a crash, the same lookup sends the same bytes (guarantees 3 and 7).
TEST_F(ClientTest, GoesOnAfterACrashWithTheSameBytes) {
  Start();
  frontend_->OpenRound();
  for (const std::string stage : {"SubmitOnions", "SubmitQueries", "FetchAnswers"}) {
    auto client = Open();
    frontend_->after = [&](const std::string& name) {
      return name == stage ? absl::UnavailableError("connection lost") : absl::OkStatus();
    };
    EXPECT_THAT(client->LookUp(Keys({"key-1", "key-2"})),
                StatusIs(absl::StatusCode::kUnavailable, "connection lost"));
  }
  frontend_->after = nullptr;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"key-1", "key-2"})));
  EXPECT_EQ(ToString(results[1].value), "value of key-2");
  std::map<std::string, std::set<std::string>> distinct;
  for (const auto& [name, bytes] : frontend_->sent) distinct[name].insert(bytes);
  EXPECT_GT(frontend_->sent.size(), 10u);
  EXPECT_EQ(distinct["SubmitOnions"].size(), 1u);
  EXPECT_EQ(distinct["SubmitQueries"].size(), 1u);
  EXPECT_EQ(distinct["FetchAnswers"].size(), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u) << "one submission, one charge";
}

// After a crash between submission and answers, other keys go into another round.
TEST_F(ClientTest, ASlotNeverCarriesASecondRow) {
  Start();
  const Digest first = frontend_->OpenRound();
  frontend_->after = [](const std::string& name) {
    return name == "SubmitQueries" ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_FALSE(Open()->LookUp(Keys({"key-1"})).ok());
  frontend_->after = nullptr;
  const auto asked = frontend_->Asked(first);
  const Digest second = frontend_->OpenRound();
  std::vector<std::string> others;
  for (size_t i = 100; i < 120; ++i) others.push_back(FakeFrontend::Key(i));
  SHOAL_ASSERT_OK(Open()->LookUp(Keys(others)));
  EXPECT_EQ(frontend_->Asked(first), asked);
  EXPECT_FALSE(frontend_->Asked(second).empty());
}

TEST_F(ClientTest, EverySlotIsUsedOnce) {
  Start();
  for (int i = 0; i < 3; ++i) frontend_->OpenRound();
  auto client = Open();
  for (int i = 0; i < 3; ++i) SHOAL_ASSERT_OK(client->LookUp(Keys({"key-1"})));
  std::set<std::string> onions;
  for (const auto& [name, bytes] : frontend_->sent) {
    if (name != "SubmitOnions") continue;
    wire::SubmitOnionsRequest request;
    ASSERT_TRUE(request.ParseFromString(bytes));
    EXPECT_TRUE(onions.insert(request.round_id()).second) << "a round is entered once";
  }
  EXPECT_EQ(onions.size(), 3u);
}

// A frontend claims that a round takes onions again whose secrets are erased or in use.
TEST_F(ClientTest, ARoundIsNotEnteredAgain) {
  Start();
  const Digest round_id = frontend_->OpenRound();
  auto client = Open();
  SHOAL_ASSERT_OK(client->LookUp(Keys({"key-1"})));
  frontend_->SetState(round_id, wire::OPEN_FOR_ONIONS);
  EXPECT_THAT(client->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_EQ(SentCount("SubmitOnions"), 1u);

  // The same while its queries are under way.
  const Digest second = frontend_->OpenRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest obtained, client->chain().Obtain(8));
  EXPECT_EQ(obtained, second);
  const std::vector<uint32_t> rows = {1};
  SHOAL_ASSERT_OK(client->chain().Submit(second, rows));
  frontend_->SetState(second, wire::OPEN_FOR_ONIONS);
  EXPECT_THAT(client->chain().Obtain(8), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_EQ(SentCount("SubmitOnions"), 2u);
}

// They are one client: the second does not ask in a round in which the first has asked, where both
// would have more changed queries than its noise protects, and is charged to the same ledger.
TEST_F(ClientTest, ProgramsWithOneStateShareItsRoundsAndItsLedger) {
  Start();
  const Digest round_id = frontend_->OpenRound();
  auto first = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest obtained, first->chain().Obtain(8));
  SHOAL_ASSERT_OK(first->chain().Submit(obtained, std::vector<uint32_t>{1}));
  frontend_->SetState(round_id, wire::OPEN_FOR_ONIONS);
  first.reset();
  auto second = Open();
  EXPECT_THAT(second->LookUp(Keys({"key-2"})), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_EQ(frontend_->Asked(round_id).size(), 8u);
  const Digest another = frontend_->OpenRound();
  SHOAL_ASSERT_OK(second->LookUp(Keys({"key-2"})));
  EXPECT_EQ(frontend_->Asked(another).size(), 8u);
  EXPECT_EQ(store_.state().ledger.submissions(), 2u);
  EXPECT_EQ(store_.state().ledger.queries(), 16u);
}

TEST_F(ClientTest, SlotsCanBeHadAhead) {
  Start();
  const Digest a = frontend_->OpenRound();
  const Digest b = frontend_->OpenRound();
  auto client = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest first, client->chain().ObtainAhead(16));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest second, client->chain().ObtainAhead(8));
  EXPECT_EQ((std::set<Digest>{first, second}), (std::set<Digest>{a, b}));
  EXPECT_EQ(store_.state().ledger.submissions(), 0u) << "slots cost no privacy";
  const size_t before = SentCount("SubmitOnions");
  SHOAL_ASSERT_OK(client->LookUp(Keys({"key-1"})));
  SHOAL_ASSERT_OK(client->LookUp(Keys({"key-2"})));
  EXPECT_EQ(SentCount("SubmitOnions"), before) << "slots at hand are used";
}

TEST_F(ClientTest, LargeSubmissionsAreCut) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  const auto count = static_cast<uint32_t>(onion::MaxSubmissionOnions(3)) + 10;
  SHOAL_ASSERT_OK(client->chain().ObtainAhead(count));
  EXPECT_EQ(SentCount("SubmitOnions"), 2u);
  const HeldRound& held = store_.state().rounds[0];
  EXPECT_EQ(held.slots(), count);
  ASSERT_EQ(held.submissions.size(), 2u);
  EXPECT_EQ(held.submissions[1].count, 10u);
}

// The state has a digest for each submission, from a response or from the same bytes sent again.
TEST_F(ClientTest, ARestartWithOtherPiecesUsesTheStoredCut) {
  for (const bool served : {false, true}) {
    Start({.parties = 2, .dense = true, .records = 2000});
    store_.state() = State();
    const Digest round_id = frontend_->OpenRound();
    options_.pad_to = 64;
    options_.piece_bytes = 48 + 32 * 20;  // 20, 20, 20 and 4 onions
    int requests = 0;
    const auto breaks = [&](const std::string& name) {
      requests += name == "SubmitOnions";
      return requests >= 3 ? absl::UnavailableError("lost") : absl::OkStatus();
    };
    (served ? frontend_->after : frontend_->before) = breaks;
    EXPECT_FALSE(Open()->LookUp(Keys({"1"})).ok());
    frontend_->before = frontend_->after = nullptr;
    std::set<std::string> before;
    for (const auto& [name, bytes] : frontend_->sent) {
      if (name == "SubmitOnions") before.insert(bytes);
    }
    EXPECT_EQ(before.size(), 3u);
    frontend_->sent.clear();

    options_.piece_bytes = kMaxBulkBytes;
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"1"})));
    EXPECT_EQ(ToString(results[0].value), FakeFrontend::Value(1));
    std::vector<std::string> after;
    for (const auto& [name, bytes] : frontend_->sent) {
      if (name == "SubmitOnions") after.push_back(bytes);
    }
    ASSERT_EQ(after.size(), 2u) << "the third submission and the last";
    EXPECT_TRUE(before.contains(after[0])) << "the same bytes again";
    EXPECT_FALSE(before.contains(after[1]));
    EXPECT_EQ(frontend_->Asked(round_id).size(), 64u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto list, frontend_->ListRounds({}));
    EXPECT_EQ(list.rounds(0).onions(), 64u) << "no slot was given in vain";
  }
}

// A lookup that needs more slots than an interrupted one adds submissions, and leaves the others as
// they were cut.
TEST_F(ClientTest, MoreSlotsInTheSameRoundAreSubmissionsOfTheirOwn) {
  Start({.parties = 2, .dense = true, .records = 2000});
  const Digest round_id = frontend_->OpenRound();
  frontend_->after = [](const std::string& name) {
    return name == "SubmitOnions" ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_FALSE(Open()->LookUp(Keys({"1"})).ok());
  frontend_->after = nullptr;
  options_.pad_to = 50;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest obtained, Open()->chain().Obtain(50));
  EXPECT_EQ(obtained, round_id);
  const HeldRound& held = *store_.state().FindRound(round_id);
  ASSERT_EQ(held.submissions.size(), 2u);
  EXPECT_EQ(held.submissions[0].count, 8u);
  EXPECT_EQ(held.submissions[1].count, 42u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"1"})));
  EXPECT_EQ(ToString(results[0].value), FakeFrontend::Value(1));
  EXPECT_EQ(frontend_->Asked(round_id).size(), 50u);
}

TEST_F(ClientTest, AQueryCostsAsManyBytesAsTheDesignSays) {
  for (const auto& [parties, bytes] : std::map<uint32_t, size_t>{{2, 32}, {3, 80}, {5, 176}}) {
    Start({.parties = parties});
    store_.state() = State();
    EXPECT_EQ(Open()->chain().costs().bytes.query_bytes, bytes + 24);
  }
}

// Guarantee 6. What is sent, and when, is the same whether or not an answer is wrong.
TEST_F(ClientTest, ABadAnswerChangesNothingThatIsSent) {
  std::vector<std::vector<std::string>> names;
  std::vector<uint64_t> slept;
  for (bool spoiled : {false, true}) {
    Start();
    store_.state() = State();
    slept_ms_ = 0;
    frontend_->OpenRound();
    auto client = Open();
    const auto row = client->deployment().map().RowOf(AsBytes("key-1"));
    SHOAL_ASSERT_OK(row);
    if (spoiled) {
      frontend_->spoil = [&](uint32_t r, MutableBytes answer) {
        if (r == *row) answer[0] ^= 1;
      };
    }
    std::vector<std::string> keys;
    for (size_t i = 0; i < 40; ++i) keys.push_back(FakeFrontend::Key(i));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Keys(keys)));
    for (size_t i = 0; i < keys.size(); ++i) {
      const bool hit = spoiled && *client->deployment().map().RowOf(AsBytes(keys[i])) == *row;
      EXPECT_EQ(results[i].outcome, hit ? Outcome::kFailed : Outcome::kFound) << i;
      if (hit) {
        EXPECT_THAT(results[i].error, StatusIs(absl::StatusCode::kUnauthenticated, ""));
      }
    }
    names.push_back(SentNames());
    slept.push_back(slept_ms_);
  }
  EXPECT_EQ(names[0], names[1]);
  EXPECT_EQ(slept[0], slept[1]);
}

// Guarantee 6. The time to verify answers depends on them, so the connection is closed before.
TEST_F(ClientTest, HangsUpBeforeItLooksAtTheAnswers) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  bool verifying = false;
  told_ = [&](absl::string_view what) {
    if (!absl::StartsWith(what, "verifying")) return;
    verifying = true;
    EXPECT_EQ(frontend_->sent.back().first, "HangUp");
  };
  SHOAL_ASSERT_OK(client->LookUp(Keys({"key-1"})));
  EXPECT_TRUE(verifying);
  EXPECT_EQ(frontend_->sent.back().first, "HangUp");
}

TEST_F(ClientTest, AnotherRowInPlaceOfTheRightOneIsRefused) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  const auto row = client->deployment().map().RowOf(AsBytes("key-1"));
  frontend_->spoil = [&](uint32_t r, MutableBytes answer) {
    if (r == *row) frontend_->table().CopyAnswer((r + 1) % frontend_->table().rows(), answer);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFailed);
}

// A response with fewer or more bytes than the answers have, or none, is an error, without a second
// attempt.
TEST_F(ClientTest, AnswersOfAnotherSizeAreRefused) {
  for (int change : {-1, 1}) {
    Start();
    store_.state() = State();
    frontend_->OpenRound();
    frontend_->OpenRound();
    frontend_->spoil_fetch = [&](wire::FetchAnswersResponse& response) {
      response.mutable_answers()->resize(
          static_cast<size_t>(static_cast<int>(response.answers().size()) + change));
    };
    EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
                StatusIs(absl::StatusCode::kDataLoss, "8 answers of 320"));
    EXPECT_TRUE(store_.state().rounds[0].over);
    EXPECT_EQ(SentCount("SubmitQueries"), 1u);
    EXPECT_EQ(SentCount("FetchAnswers"), 1u);
  }
}

TEST_F(ClientTest, ARefusalToAnswerIsFinal) {
  Start();
  frontend_->OpenRound();
  frontend_->OpenRound();
  frontend_->after = [&](const std::string& name) {
    return name == "FetchAnswers" ? absl::PermissionDeniedError("no") : absl::OkStatus();
  };
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kPermissionDenied, "fetching answers"));
  EXPECT_TRUE(store_.state().rounds[0].over);
  EXPECT_EQ(SentCount("SubmitQueries"), 1u);
}

TEST_F(ClientTest, AbortedRoundsAreRetriedAndCharged) {
  Start();
  std::vector<Digest> rounds;
  for (int i = 0; i < 5; ++i) rounds.push_back(frontend_->OpenRound());
  int aborted = 0;
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    if (wanted == wire::ANSWERED && aborted < 2) {
      ++aborted;
      return wire::ABORTED;
    }
    return wanted;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFound);
  EXPECT_EQ(store_.state().ledger.submissions(), 3u) << "each submission is charged";
  EXPECT_EQ(SentCount("SubmitQueries"), 3u);
}

TEST_F(ClientTest, RetriesAreCapped) {
  Start();
  for (int i = 0; i < 5; ++i) frontend_->OpenRound();
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
  };
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kAborted, "giving up"));
  EXPECT_EQ(store_.state().ledger.submissions(), 3u);
  EXPECT_EQ(SentCount("SubmitQueries"), 3u);
}

// The cap holds for a lookup, not for a run: whoever runs the program again does not pay again,
// until a day has passed.
TEST_F(ClientTest, AttemptsCountOverRuns) {
  Start();
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
  };
  for (int run = 0; run < 2; ++run) {
    for (int i = 0; i < 5; ++i) frontend_->OpenRound();
    EXPECT_THAT(
        Open()->LookUp(Keys({"key-1"})),
        StatusIs(absl::StatusCode::kAborted, "giving up: this lookup was sent and charged 3"));
    EXPECT_EQ(store_.state().ledger.submissions(), 3u);
  }
  // A client that was killed after one attempt has two left.
  options_.max_attempts = 1;
  EXPECT_FALSE(Open()->LookUp(Keys({"key-2"})).ok());
  EXPECT_EQ(store_.state().ledger.submissions(), 4u);
  options_.max_attempts = 3;
  EXPECT_FALSE(Open()->LookUp(Keys({"key-2"})).ok());
  EXPECT_EQ(store_.state().ledger.submissions(), 6u);
  EXPECT_EQ(store_.state().lookups.size(), 2u);
  frontend_->clock().now_s += State::kLookupS + 100;
  frontend_->OpenRound();
  frontend_->reach = nullptr;
  SHOAL_ASSERT_OK(Open()->LookUp(Keys({"key-1"})));
  EXPECT_TRUE(store_.state().lookups.empty()) << "an answered lookup leaves nothing behind";
  EXPECT_EQ(store_.state().lookups_key, Digest());
}

// A device's clock that jumps a day ahead, and back, gives nobody more attempts: they are forgotten
// by the time at which all parties announce rounds.
TEST_F(ClientTest, AClockThatJumpsForgetsNoAttempts) {
  Start();
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
  };
  for (int i = 0; i < 5; ++i) frontend_->OpenRound();
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kAborted, "giving up"));
  EXPECT_EQ(store_.state().ledger.submissions(), 3u);
  const size_t rounds = store_.state().rounds.size();
  frontend_->clock().now_s += State::kLookupS + 100;
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kAborted, "giving up"));
  frontend_->clock().now_s -= State::kLookupS + 100;
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kAborted, "giving up"));
  EXPECT_EQ(store_.state().ledger.submissions(), 3u);
  EXPECT_EQ(store_.state().rounds.size(), rounds) << "rounds that could be entered again";
}

// Rounds that were lost before anything was sent cost delta, and are capped too, over all runs.
TEST_F(ClientTest, LostRoundsAreCapped) {
  Start();
  for (uint32_t i = 0; i < kMaxLostRounds + 5; ++i) frontend_->OpenRound();
  frontend_->reach = [](const Digest&, wire::RoundState) { return wire::ABORTED; };
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kAborted, "giving up"));
    EXPECT_EQ(SentCount("SubmitOnions"), kMaxLostRounds);
  }
  EXPECT_EQ(store_.state().ledger.submissions(), 0u) << "a round known to be dead is not paid for";
  EXPECT_EQ(store_.state().ledger.idle_rounds(), kMaxLostRounds);
}

// A round can end between the client's question for its state and the next request.
TEST_F(ClientTest, ARoundThatIsAbortedDuringARequestIsLeftForAnother) {
  for (const std::string stage : {"SubmitQueries", "FetchAnswers"}) {
    Start();
    store_.state() = State();
    const Digest first = frontend_->OpenRound();
    const Digest second = frontend_->OpenRound();
    bool ended = false;
    frontend_->before = [&](const std::string& name) {
      if (name != stage || std::exchange(ended, true)) return absl::OkStatus();
      frontend_->SetState(first, wire::ABORTED);
      return absl::FailedPreconditionError("the round is ABORTED");
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"key-1"})));
    EXPECT_EQ(results[0].outcome, Outcome::kFound);
    EXPECT_EQ(frontend_->Asked(second).size(), 8u);
    EXPECT_EQ(store_.state().ledger.submissions(), 2u);
  }
}

// Whatever ends a round without its answers after the charge, the client asks in another one, which
// is charged, and gets its answer.
TEST_F(ClientTest, ARoundThatEndsAfterTheChargeCostsARoundAndNotTheLookup) {
  struct Case {
    const char* name;
    std::function<absl::Status(FakeFrontend&, const Digest& round, const std::string& request)>
        before;
    std::function<wire::RoundState(FakeFrontend&, wire::RoundState wanted)> reach;
  };
  const auto nothing = [](FakeFrontend&, const Digest&, const std::string&) {
    return absl::OkStatus();
  };
  const auto as_wanted = [](FakeFrontend&, wire::RoundState wanted) { return wanted; };
  const std::vector<Case> cases = {
      {"a stall of the client or its link that outlasts the window",
       [](FakeFrontend& frontend, const Digest& round, const std::string& request) {
         if (request == "SubmitQueries") frontend.SetState(round, wire::ANSWERING);
         return absl::OkStatus();
       },
       as_wanted},
      {"a stall that outlasts the round",
       [](FakeFrontend& frontend, const Digest& round, const std::string& request) {
         if (request != "SubmitQueries") return absl::OkStatus();
         frontend.clock().now_s += 7200;
         frontend.SetState(round, wire::CLOSED);
         frontend.OpenRound();
         return absl::NotFoundError("no such round");
       },
       as_wanted},
      {"closed before the answers are fetched", nothing,
       [](FakeFrontend&, wire::RoundState wanted) {
         return wanted == wire::ANSWERED ? wire::CLOSED : wanted;
       }},
      {"closed while the answers are fetched",
       [](FakeFrontend& frontend, const Digest& round, const std::string& request) {
         if (request == "FetchAnswers") frontend.SetState(round, wire::CLOSED);
         return absl::OkStatus();
       },
       as_wanted},
      {"forgotten while the answers are fetched",
       [](FakeFrontend& frontend, const Digest& round, const std::string& request) {
         if (request != "FetchAnswers") return absl::OkStatus();
         frontend.SetState(round, wire::CLOSED);
         return absl::NotFoundError("no such round");
       },
       as_wanted},
      {"never answered", nothing,
       [](FakeFrontend& frontend, wire::RoundState wanted) {
         if (wanted != wire::ANSWERED) return wanted;
         frontend.clock().now_s += 7200;
         frontend.OpenRound();
         return wire::ANSWERING;
       }},
  };
  for (const Case& how : cases) {
    SCOPED_TRACE(how.name);
    Start();
    store_.state() = State();
    const Digest first = frontend_->OpenRound();
    frontend_->OpenRound();
    bool first_is_over = false;
    frontend_->before = [&](const std::string& name) {
      if (first_is_over) return absl::OkStatus();
      const absl::Status status = how.before(*frontend_, first, name);
      first_is_over = !status.ok();
      return status;
    };
    frontend_->reach = [&](const Digest& id, wire::RoundState wanted) {
      return id == first && !first_is_over ? how.reach(*frontend_, wanted) : wanted;
    };
    auto client = Open();
    told_ = [&](absl::string_view what) {
      first_is_over |= absl::StrContains(what, "asking in another round");
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Keys({"key-1"})));
    EXPECT_EQ(results[0].outcome, Outcome::kFound);
    EXPECT_TRUE(first_is_over);
    EXPECT_EQ(store_.state().ledger.submissions(), 2u) << "each attempt is charged";
    EXPECT_TRUE(store_.state().lookups.empty());
    told_ = [](absl::string_view) {};
  }
}

// Such rounds count like aborted ones.
TEST_F(ClientTest, RoundsThatEndAfterTheChargeAreCapped) {
  Start();
  for (int i = 0; i < 5; ++i) frontend_->OpenRound();
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::CLOSED : wanted;
  };
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
                StatusIs(absl::StatusCode::kAborted, "sent and charged 3 times"));
    EXPECT_EQ(store_.state().ledger.submissions(), 3u);
    EXPECT_EQ(SentCount("SubmitQueries"), 3u);
  }
}

// Only the response was lost, and the window closed meanwhile: nobody pays for a second round.
TEST_F(ClientTest, QueriesThatAreInAreNotPaidTwice) {
  Start();
  const Digest first = frontend_->OpenRound();
  frontend_->OpenRound();
  bool lost = false;
  frontend_->after = [&](const std::string& name) {
    if (name != "SubmitQueries" || std::exchange(lost, true)) return absl::OkStatus();
    frontend_->SetState(first, wire::ANSWERING);
    return absl::UnavailableError("lost");
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFound);
  EXPECT_TRUE(lost);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

// A round that never takes queries costs the slots, and another one is taken.
TEST_F(ClientTest, ARoundThatTakesNoQueriesInItsTimeIsLeft) {
  Start();
  const Digest first = frontend_->OpenRound();
  frontend_->reach = [&](const Digest& id, wire::RoundState wanted) {
    if (id != first) return wanted;
    frontend_->clock().now_s += 600;
    frontend_->OpenRound();
    return wire::SEALED;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFound);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  EXPECT_EQ(store_.state().ledger.idle_rounds(), 1u);
}

// In flight, a client waits for the frontend until the round ends, says so once, and does not
// hammer.
TEST_F(ClientTest, WaitsForAFrontendThatDoesNotAnswer) {
  for (const std::string stage :
       {"ListRounds", "SubmitOnions", "WaitRound", "SubmitQueries", "FetchAnswers"}) {
    Start();
    options_.waits = true;
    options_.timeout_s = 300;
    store_.state() = State();
    frontend_->OpenRound();
    std::vector<std::string> told;
    told_ = [&](absl::string_view what) { told.emplace_back(what); };
    uint64_t back_s = 0;
    int refused = 0;
    frontend_->before = [&](const std::string& name) {
      const uint64_t now_s = frontend_->clock().now_s;
      if (name == stage && back_s == 0) back_s = now_s + 50;
      if (now_s >= back_s) return absl::OkStatus();
      ++refused;
      return absl::UnavailableError("connection refused");
    };
    const bool in_round = stage != "ListRounds" && stage != "SubmitOnions";
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Keys({"key-1"})));
    EXPECT_EQ(results[0].outcome, Outcome::kFound);
    EXPECT_EQ(store_.state().ledger.submissions(), 1u);
    EXPECT_GT(refused, 10);
    EXPECT_LT(refused, 30);
    const auto count = [&](const std::string& part) {
      return std::count_if(told.begin(), told.end(),
                           [&](const std::string& line) { return absl::StrContains(line, part); });
    };
    EXPECT_EQ(count("the frontend does not answer (connection refused); waiting until "), 1);
    EXPECT_EQ(count(in_round ? ", when round 1 ends" : ", when this lookup gives up"), 1) << stage;
    EXPECT_EQ(count("the frontend answers again"), 1);
    // It does not wait for ever.
    back_s = ~uint64_t{0};
    frontend_->OpenRound();
    EXPECT_THAT(TryOpen().status(), StatusIs(absl::StatusCode::kUnavailable, "refused"));
  }
}

// The wait for a round in which slots are held takes nothing of the time for another round.
TEST_F(ClientTest, TheTimeForANewRoundBeginsAfterTheWaitForAnOldOne) {
  Start();
  options_.waits = true;
  const Digest old = frontend_->OpenRound();
  auto client = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest held, client->chain().ObtainAhead(8));
  ASSERT_EQ(held, old);
  // The frontend is away for longer than a lookup waits for a round, and when it is back, the old
  // round is over and the next one opens in a while.
  const uint64_t back_s = frontend_->clock().now_s + 2 * options_.timeout_s;
  bool opened = false;
  frontend_->before = [&](const std::string& name) -> absl::Status {
    const uint64_t now_s = frontend_->clock().now_s;
    if (now_s < back_s) return absl::UnavailableError("connection refused");
    if (!opened && name == "WaitRound") return absl::NotFoundError("no such round");
    if (!opened && now_s >= back_s + options_.timeout_s / 2) {
      opened = true;
      frontend_->OpenRound();
    }
    return absl::OkStatus();
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFound);
  EXPECT_TRUE(opened);
}

// Only the state of the round says that it was aborted for everybody.
// A frontend of several machines.
class FrontendMachinesTest : public ClientTest {
 protected:
  static constexpr uint32_t kMachines = 4;
  FrontendMachinesTest() { Start({.machines = kMachines}); }

  std::unique_ptr<Device> OpenDevice() {
    const Environment environment = {
        .clock = &frontend_->clock(),
        .random = &frontend_->random(),
        .pool = &frontend_->pool(),
        .sleep = [this](uint32_t milliseconds) { Sleep(milliseconds); },
        .connect = [] { return absl::InternalError("not over the first address"); },
        .connect_to =
            [this](const std::string& address) {
              return testing::ConnectTo(
                  frontend_.get(), &mutex_, [=, this](const std::string& name) {
                    if (down_.contains(address)) return absl::UnavailableError("down");
                    asked_[address].push_back(name);
                    return on_request_ ? on_request_(address, name) : absl::OkStatus();
                  });
            }};
    auto device = Device::Open(frontend_->pins(), options_, placement_cache_, frontend_.get(),
                               &store_, environment);
    EXPECT_THAT(device.status(), IsOk());
    return device.ok() ? *std::move(device) : nullptr;
  }
  // The machines that took such requests.
  std::set<std::string> Took(const std::string& name) const {
    std::set<std::string> out;
    for (const auto& [address, names] : asked_) {
      if (std::ranges::find(names, name) != names.end()) out.insert(address);
    }
    return out;
  }

  std::mutex mutex_;
  std::set<std::string> down_;
  std::map<std::string, std::vector<std::string>> asked_;  // by address
  std::function<absl::Status(const std::string& address, const std::string& name)> on_request_;
};

TEST_F(FrontendMachinesTest, EverythingOfARoundGoesToOneThatIsDrawnForIt) {
  options_.piece_bytes = 100;  // several requests, and so several connections
  std::map<std::string, int> drawn;
  constexpr int kRounds = 24;
  for (int i = 0; i < kRounds; ++i) {
    const Digest round_id = frontend_->OpenRound();
    asked_.clear();
    frontend_->sent.clear();
    SHOAL_ASSERT_OK(OpenDevice()->LookUp(Keys({"key-1"})));
    const std::set<std::string> machine = Took("SubmitOnions");
    ASSERT_EQ(machine.size(), 1u);
    for (const std::string name : {"SubmitQueries", "FetchAnswers", "WaitRound"}) {
      EXPECT_EQ(Took(name), machine) << name;
    }
    // Nothing of the round went over the first address, where lists of rounds come from.
    for (const std::string name : {"SubmitOnions", "SubmitQueries", "FetchAnswers"}) {
      EXPECT_EQ(SentCount(name),
                static_cast<size_t>(std::ranges::count(asked_[*machine.begin()], name)))
          << name;
    }
    EXPECT_EQ(frontend_->Asked(round_id).size(), 8u);
    ++drawn[*machine.begin()];
  }
  EXPECT_EQ(drawn.size(), kMachines);  // how often each is, the next test looks at
}

// Chi-squared with three degrees of freedom: an even draw exceeds the bound with probability 0.1 %,
// and the seed is fixed. One machine of the four that is drawn twice as often as any other gives 51
// on average.
TEST_F(FrontendMachinesTest, EveryMachineIsDrawnEquallyOften) {
  constexpr int kRounds = 400;
  std::array<int, kMachines> drawn = {};
  const auto device = OpenDevice();
  for (int i = 0; i < kRounds; ++i) {
    const Digest round_id = frontend_->OpenRound();
    SHOAL_ASSERT_OK(device->chain().ObtainAhead(1));
    ASSERT_EQ(store_.state().rounds.size(), 1u);
    ++drawn[store_.state().rounds[0].machine.value()];
    store_.state().rounds.clear();
    frontend_->SetState(round_id, wire::CLOSED);
  }
  constexpr double kExpected = double{kRounds} / kMachines;
  double chi_squared = 0;
  for (const int count : drawn) {
    chi_squared += (count - kExpected) * (count - kExpected) / kExpected;
  }
  EXPECT_LT(chi_squared, 16.27) << ::testing::PrintToString(drawn);
}

TEST_F(FrontendMachinesTest, TheMachineIsStoredBeforeAnythingIsSentAndKeptOverRestarts) {
  frontend_->OpenRound();
  on_request_ = [&](const std::string&, const std::string& name) {
    if (name != "SubmitOnions") return absl::OkStatus();
    EXPECT_EQ(store_.durable_machines, 1u);
    return absl::OkStatus();
  };
  SHOAL_ASSERT_OK(OpenDevice()->chain().ObtainAhead(8));
  for (int run = 0; run < 6; ++run) SHOAL_ASSERT_OK(OpenDevice()->chain().Obtain(8));
  SHOAL_ASSERT_OK(OpenDevice()->LookUp(Keys({"key-1"})));
  std::set<std::string> machines;
  for (const auto& [address, names] : asked_) machines.insert(address);
  EXPECT_EQ(machines.size(), 1u);
}

TEST_F(FrontendMachinesTest, AMachineThatFailsCostsTheRoundAndNotTheLookup) {
  // Before it has given slots, before it takes queries, and before it gives answers.
  for (const std::string stage : {"SubmitOnions", "SubmitQueries", "FetchAnswers"}) {
    down_.clear();
    asked_.clear();
    store_.state() = State();
    const Digest first = frontend_->OpenRound();
    std::vector<Digest> later;
    for (int i = 0; i < 8; ++i) later.push_back(frontend_->OpenRound());
    on_request_ = [&](const std::string& address, const std::string& name) {
      if (name != stage || !down_.empty()) return absl::OkStatus();
      down_.insert(address);
      // The party notices, and the others say so.
      frontend_->SetState(first, wire::ABORTED);
      return absl::UnavailableError("its last words");
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, OpenDevice()->LookUp(Keys({"key-1"})));
    EXPECT_EQ(results[0].outcome, Outcome::kFound) << stage;
    EXPECT_EQ(down_.size(), 1u);
    EXPECT_EQ(store_.state().ledger.submissions(), stage == "SubmitOnions" ? 1u : 2u) << stage;
    for (const Digest& id : later) frontend_->SetState(id, wire::CLOSED);
  }
}

// A machine has its part of a round's room alone. A client for whom that is used up asks in another
// round, of which it draws a machine anew, and pays for one round.
TEST_F(FrontendMachinesTest, AClientWhoseMachineIsFullTriesAnotherRound) {
  const Digest first = frontend_->OpenRound();
  frontend_->OpenRound();
  std::string full;
  on_request_ = [&](const std::string& address, const std::string& name) {
    if (name != "SubmitOnions" || !full.empty()) return absl::OkStatus();
    full = address;
    return absl::ResourceExhaustedError("the round has 3 of 3 slots given out at this machine");
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, OpenDevice()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFound);
  EXPECT_FALSE(full.empty());
  EXPECT_TRUE(frontend_->Asked(first).empty());
  EXPECT_EQ(SentCount("SubmitQueries"), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

// Machines that take onions and say nothing, and a frontend that shows round after round.
TEST_F(FrontendMachinesTest, RoundsThatEndInSilenceAreCountedAndCharged) {
  for (int i = 0; i < 30; ++i) frontend_->OpenRound();
  on_request_ = [](const std::string&, const std::string& name) -> absl::Status {
    if (name == "WaitRound") return absl::NotFoundError("no such round");
    return absl::UnavailableError("silence");
  };
  EXPECT_THAT(OpenDevice()->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kAborted, "10 rounds came to nothing"));
  EXPECT_EQ(store_.state().ledger.idle_rounds(), kMaxLostRounds);
  EXPECT_EQ(store_.state().rounds.size(), kMaxLostRounds);
  // Slots ahead of time end, too.
  EXPECT_THAT(OpenDevice()->chain().ObtainAhead(8),
              StatusIs(absl::StatusCode::kAborted, "is over"));
  EXPECT_EQ(store_.state().ledger.idle_rounds(), 2 * kMaxLostRounds);
  // A limit makes no difference: nothing was asked.
  store_.state() = State();
  options_.max_epsilon = 0.01;
  EXPECT_THAT(OpenDevice()->chain().ObtainAhead(8),
              StatusIs(absl::StatusCode::kAborted, "is over"));
  EXPECT_EQ(store_.state().ledger.idle_rounds(), kMaxLostRounds);
}

// Overload, for example: a machine that refuses for a while is not given up while others say that
// the round lives and takes what this client has to send.
TEST_F(FrontendMachinesTest, AMachineThatIsSilentForAWhileIsWaitedFor) {
  options_.waits = true;
  for (const std::string stage : {"SubmitOnions", "SubmitQueries"}) {
    store_.state() = State();
    const Digest round_id = frontend_->OpenRound();
    const Digest other = frontend_->OpenRound();
    int refused = 0;
    on_request_ = [&](const std::string&, const std::string& name) {
      if (name != stage || refused == 15) return absl::OkStatus();
      ++refused;
      return absl::UnavailableError("too many requests at once");
    };
    SHOAL_ASSERT_OK(OpenDevice()->LookUp(Keys({"key-1"})));
    EXPECT_EQ(refused, 15) << stage;
    EXPECT_EQ(frontend_->Asked(round_id).size(), 8u) << stage;
    EXPECT_EQ(store_.state().ledger.idle_rounds(), 0u);
    frontend_->SetState(round_id, wire::CLOSED);
    frontend_->SetState(other, wire::CLOSED);
  }
}

TEST_F(FrontendMachinesTest, WhoDoesNotWaitKeepsTheRound) {
  frontend_->OpenRound();
  bool silent = true;
  on_request_ = [&](const std::string&, const std::string& name) {
    return silent && name == "SubmitOnions" ? absl::UnavailableError("silence") : absl::OkStatus();
  };
  EXPECT_THAT(OpenDevice()->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kUnavailable, "silence"));
  EXPECT_EQ(store_.state().ledger.idle_rounds(), 0u);
  silent = false;
  SHOAL_EXPECT_OK(OpenDevice()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(store_.state().rounds.size(), 1u);
}

TEST_F(FrontendMachinesTest, ASilentMachineIsLeftWhenItsWindowIsOver) {
  options_.waits = true;
  const Digest first = frontend_->OpenRound();
  const uint64_t began_s = frontend_->clock().now_s;
  bool opened = false;
  on_request_ = [&](const std::string&, const std::string& name) {
    if (name != "SubmitOnions" || opened) return absl::OkStatus();
    if (frontend_->clock().now_s >= began_s + 60) {
      opened = true;
      frontend_->OpenRound();
      frontend_->SetState(first, wire::ANSWERING);
    }
    return absl::UnavailableError("silence");
  };
  SHOAL_EXPECT_OK(OpenDevice()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(store_.state().ledger.idle_rounds(), 1u);
  EXPECT_GE(frontend_->clock().now_s, began_s + 60);
}

TEST_F(ClientTest, AnErrorThatSaysAbortedIsNoReasonToAskAgain) {
  for (const std::string stage : {"SubmitQueries", "FetchAnswers"}) {
    Start();
    store_.state() = State();
    for (int i = 0; i < 3; ++i) frontend_->OpenRound();
    frontend_->before = [&](const std::string& name) {
      return name == stage ? absl::AbortedError("try again") : absl::OkStatus();
    };
    EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
                StatusIs(absl::StatusCode::kInternal, "try again"));
    EXPECT_EQ(store_.state().ledger.submissions(), 1u);
    EXPECT_EQ(SentCount("SubmitQueries"), 1u);
  }
}

// A disk's error may have any code (ESTALE is ABORTED): it is not taken for a round that was left.
TEST_F(ClientTest, ADiskErrorThatSaysAbortedIsNoReasonToAskAgain) {
  Start();
  for (int i = 0; i < 3; ++i) frontend_->OpenRound();
  auto client = Open();
  store_.fail = absl::AbortedError("stale file handle");
  EXPECT_THAT(client->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kAborted, "stale file handle"));
  EXPECT_EQ(store_.state().rounds.size(), 1u) << "no other round was entered";
}

// A disk that is full once the slots have come is not taken for a round without room.
TEST_F(ClientTest, AFullDiskUnderTheSlotsIsNoRefusal) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  frontend_->after = [&](const std::string& name) {
    if (name == "SubmitOnions") store_.fail = absl::ResourceExhaustedError("disk full");
    return absl::OkStatus();
  };
  EXPECT_THAT(client->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_EQ(SentCount("SubmitQueries"), 0u);
  // Its slots are used once there is room.
  store_.fail = absl::OkStatus();
  frontend_->after = nullptr;
  SHOAL_EXPECT_OK(client->LookUp(Keys({"key-1"})));
  EXPECT_EQ(SentCount("SubmitOnions"), 1u);
}

TEST_F(ClientTest, ARoundThatClosedTooEarlyIsNotChargedAndAnotherOneTaken) {
  Start();
  frontend_->OpenRound();
  frontend_->OpenRound();
  bool missed = false;
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    if (wanted == wire::OPEN_FOR_QUERIES && !std::exchange(missed, true)) return wire::ANSWERING;
    return wanted;
  };
  SHOAL_ASSERT_OK(Open()->LookUp(Keys({"key-1"})));
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

TEST_F(ClientTest, NoRoundInTime) {
  Start();
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "no round took 8 onions within 30"));
}

// Slots are never given back, so that asking again would only cost both sides work. Who waited in
// vain learns why: a device behind a large NAT, for example.
// A frontend may take onions, wait for the total of the noise, and then say that it refuses them.
TEST_F(ClientTest, ARefusalMayComeLate) {
  Start();
  frontend_->OpenRound();
  frontend_->before = [](const std::string& name) {
    return name == "SubmitOnions" ? absl::ResourceExhaustedError("no room") : absl::OkStatus();
  };
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kDeadlineExceeded, ""));
  EXPECT_EQ(SentCount("SubmitOnions"), 1u);
  State& state = store_.state();
  ASSERT_EQ(state.rounds.size(), 1u);
  EXPECT_EQ(state.rounds[0].slots(), 0u);
  EXPECT_EQ(state.ledger.idle_rounds(), 0u);
  EXPECT_TRUE(state.DropExpired(state.rounds[0].header.header().expires_s() + 1));
  EXPECT_EQ(state.ledger.idle_rounds(), 1u);
}

TEST_F(ClientTest, ARoundWithoutRoomIsAskedOnce) {
  Start();
  frontend_->OpenRound();
  frontend_->OpenRound();
  frontend_->before = [](const std::string& name) {
    return name == "SubmitOnions" ? absl::ResourceExhaustedError("192.0.2.1 has its share")
                                  : absl::OkStatus();
  };
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "within 30 seconds; the last one refused: 192.0.2.1 has its share"));
  EXPECT_EQ(SentCount("SubmitOnions"), 2u);
}

TEST_F(ClientTest, ForgedRoundsAreRefused) {
  Start();
  frontend_->OpenRound();
  frontend_->spoil_round = [](wire::RoundInfo& info) {
    // The parties signed another key.
    (*info.mutable_header()->mutable_header()->mutable_onion_keys(1))[3] ^= 1;
  };
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  EXPECT_TRUE(frontend_->sent.empty());
}

TEST_F(ClientTest, OneCounterHasOneHeader) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  SHOAL_ASSERT_OK(client->chain().ObtainAhead(8));
  wire::SignedHeader fork = frontend_->Sign(frontend_->MakeHeader(1));
  frontend_->spoil_round = [&](wire::RoundInfo& info) { *info.mutable_header() = fork; };
  EXPECT_THAT(client->chain().ObtainAhead(8),
              StatusIs(absl::StatusCode::kInvalidArgument, "two headers"));
}

// The number of rounds kept is bounded, however many a frontend shows.
TEST_F(ClientTest, KeepsABoundedNumberOfRounds) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  std::vector<HeldRound>& rounds = store_.state().rounds;
  rounds.resize(State::kMaxRounds);
  for (size_t i = 0; i < rounds.size(); ++i) {
    rounds[i].header.mutable_header()->set_counter(1000 + i);
    rounds[i].over = true;
  }
  EXPECT_THAT(client->chain().ObtainAhead(8),
              StatusIs(absl::StatusCode::kResourceExhausted, "keeps 4096 rounds"));
  EXPECT_EQ(rounds.size(), State::kMaxRounds);
  EXPECT_TRUE(frontend_->sent.empty());
  rounds.pop_back();
  SHOAL_EXPECT_OK(client->chain().ObtainAhead(8));
}

TEST_F(ClientTest, SlotsThatMakeNoSenseAreRefused) {
  Start();
  const Digest round_id = frontend_->OpenRound();
  auto client = Open();
  const auto obtain = [&](uint32_t slots, auto spoil) {
    frontend_->spoil_submission = spoil;
    return client->chain().Obtain(slots);
  };
  // The round has 65,536 slots.
  for (const uint32_t first : {65'529u, 65'536u, ~0u}) {
    EXPECT_THAT(obtain(8, [&](auto& r) { r.set_first_slots(0, first); }),
                StatusIs(absl::StatusCode::kDataLoss, "a slot that does not exist"));
  }
  EXPECT_THAT(obtain(8, [](auto& r) { r.add_first_slots(8); }),
              StatusIs(absl::StatusCode::kDataLoss, "slots for 2 submissions instead of 1"));
  EXPECT_THAT(obtain(8, [](auto& r) { r.clear_first_slots(); }),
              StatusIs(absl::StatusCode::kDataLoss, "slots for 0 submissions instead of 1"));
  EXPECT_EQ(store_.state().rounds[0].slots(), 0u);
  SHOAL_ASSERT_OK(obtain(8, [](auto& r) { r.set_first_slots(0, 100); }));
  // Slots 100 to 107 are given: no other submission may have one of them.
  for (const uint32_t first : {93u, 100u, 107u}) {
    EXPECT_THAT(obtain(16, [&](auto& r) { r.set_first_slots(0, first); }),
                StatusIs(absl::StatusCode::kDataLoss, "slot twice"));
  }
  SHOAL_EXPECT_OK(obtain(16, [](auto& r) { r.set_first_slots(0, 92); }));
  EXPECT_EQ(frontend_->Asked(round_id).size(), 0u);
}

// Submissions that share a request.
TEST_F(ClientTest, SlotsOfOneResponseMustDiffer) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto list, frontend_->ListRounds({}));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto round,
      round::Round::Verify(list.rounds(0).header(), frontend_->roster(),
                           client->deployment().table_facts(), frontend_->clock().now_s));
  const Seed master = frontend_->random().NewSeed();
  std::vector<OnionSubmission> submissions = Split(0, 10, 4);
  std::vector<SubmissionToMake> to_make;
  for (OnionSubmission& submission : submissions) to_make.push_back({&master, &submission});
  const std::vector<std::string> sealed = MakeSubmissions(round, to_make, nullptr);
  Exchange exchange(
      frontend_.get(), [](uint32_t) {}, &frontend_->clock());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<uint32_t> given,
                             exchange.SubmitOnions(round, sealed));
  EXPECT_EQ(given, (std::vector<uint32_t>{0, 4, 8}));
  for (const std::vector<uint32_t>& slots :
       std::vector<std::vector<uint32_t>>{{0, 0, 8}, {0, 3, 8}, {4, 1, 8}, {4, 0, 7}, {4, 0, 3}}) {
    frontend_->spoil_submission = [&](auto& r) {
      r.mutable_first_slots()->Assign(slots.begin(), slots.end());
    };
    EXPECT_THAT(exchange.SubmitOnions(round, sealed),
                StatusIs(absl::StatusCode::kDataLoss, "slot twice"));
  }
}

// The frontend of the tests refuses what a client never sends, so that a client that does is found.
TEST_F(ClientTest, AnEncWithAnotherBodyIsRefusedAndChangesNothing) {
  Start();
  const Digest round_id = frontend_->OpenRound();
  SHOAL_ASSERT_OK(Open()->chain().ObtainAhead(8));
  wire::SubmitOnionsRequest request;
  ASSERT_TRUE(request.ParseFromString(frontend_->sent[0].second));
  SHOAL_EXPECT_OK(frontend_->SubmitOnions(request)) << "the same once more";
  wire::SubmitOnionsRequest other = request;
  other.add_submissions(std::string(onion::SubmissionBytes(3, 1), 'x'));
  (*other.mutable_submissions(0))[100] ^= 1;
  EXPECT_THAT(frontend_->SubmitOnions(other),
              StatusIs(absl::StatusCode::kInvalidArgument, "same encapsulated key"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto response, frontend_->SubmitOnions(request));
  EXPECT_EQ(response.first_slots(0), 0u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto list, frontend_->ListRounds({}));
  EXPECT_EQ(list.rounds(0).onions(), 8u) << frontend_->counter(round_id);
}

TEST_F(ClientTest, EpochsNeverGoBack) {
  Start({.roster_epoch = 5, .table_epoch = 9});
  ASSERT_NE(Open(), nullptr);
  EXPECT_EQ(store_.state().roster->epoch, 5u);
  EXPECT_EQ(store_.state().table->epoch, 9u);
  // The same parties sign an older table: the pins are the same, the client has seen a newer one.
  wire::Manifest older = frontend_->table().manifest().content();
  older.set_epoch(8);
  *frontend_->deployment.mutable_manifest() = frontend_->Sign(older);
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, "table"));
  // Another table of the same epoch.
  wire::Manifest fork = frontend_->table().manifest().content();
  fork.set_created_s(fork.created_s() + 1);
  *frontend_->deployment.mutable_manifest() = frontend_->Sign(fork);
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, "table"));
  EXPECT_EQ(store_.state().table->epoch, 9u);
}

// The pins are of before the renewal all the time, as nobody changes them on every device.
TEST_F(ClientTest, ARenewedKeyIsFollowedAndTheOldOneTakenNoMore) {
  Start({.roster_epoch = 5, .table_epoch = 9});
  // Whoever has all of the old keys, one day.
  const FakeFrontend thief({.roster_epoch = 99, .table_epoch = 99});
  ASSERT_NE(Open(), nullptr);
  EXPECT_EQ(store_.state().followed_keys, std::nullopt);
  frontend_->RenewKey(2);
  ASSERT_NE(Open(), nullptr);
  EXPECT_EQ(store_.state().roster->epoch, 6u);
  ASSERT_TRUE(store_.state().followed_keys.has_value());
  ASSERT_NE(Open(), nullptr);
  const wire::GetDeploymentResponse real = frontend_->deployment;
  frontend_->deployment = thief.deployment;
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, "party 2"));
  frontend_->deployment = real;
  frontend_->RenewKey(1);
  frontend_->RenewKey(2);
  ASSERT_NE(Open(), nullptr);
  frontend_->deployment.mutable_roster()->clear_renewals();
  ASSERT_NE(Open(), nullptr) << "this client has followed them";
  store_.state() = State();
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, "compare them"));
  // Nothing but the followed keys is against the thief.
  SHOAL_EXPECT_OK(roster::Roster::Verify(thief.deployment.roster(), frontend_->pins(),
                                         frontend_->clock().now_s));
}

// A client that follows no deployment (LiveDeployment does) is told why its lookup ends.
TEST_F(ClientTest, ALookupEndsAtANewRosterAndIsRunAgain) {
  Start();
  auto client = Open();
  ASSERT_NE(client, nullptr);
  frontend_->RenewKey(2);
  frontend_->OpenRound();
  EXPECT_THAT(client->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kFailedPrecondition, "of the roster is served now"));
  client = Open();
  ASSERT_NE(client, nullptr);
  SHOAL_EXPECT_OK(client->LookUp(Keys({"key-1"})));
}

TEST_F(ClientTest, ForeignDeploymentsAreRefused) {
  Start();
  const FakeFrontend other({.seed = 2});
  const wire::GetDeploymentResponse real = frontend_->deployment;
  frontend_->deployment = other.deployment;
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  frontend_->deployment = real;
  (*frontend_->deployment.mutable_manifest()->mutable_signature()) =
      other.deployment.manifest().signature();
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  frontend_->deployment = real;
  frontend_->clock().now_s += 200'000;  // the table's expiry is past
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  frontend_->clock().now_s -= 200'000;
  store_.state().deployment = "another";
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kFailedPrecondition, "one state file"));
}

// The whole lookup fails without a result, as no signature proves anything about the present table.
// Nothing is erased, so that a clock that was wrong for a while costs no second round.
TEST_F(ClientTest, ATableThatExpiresMeanwhileIsNotBelieved) {
  Start();
  frontend_->OpenRound();
  auto client = Open();
  frontend_->after = [&](const std::string& name) {
    if (name == "FetchAnswers") frontend_->clock().now_s += 200'000;
    return absl::OkStatus();
  };
  EXPECT_THAT(client->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kFailedPrecondition, "expired"));
  EXPECT_EQ(frontend_->sent.back().first, "HangUp");
  EXPECT_FALSE(store_.state().rounds[0].over);

  frontend_->clock().now_s -= 200'000;
  frontend_->after = nullptr;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Keys({"key-1"})));
  EXPECT_EQ(results[0].outcome, Outcome::kFound);
  EXPECT_EQ(SentCount("SubmitQueries"), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

TEST_F(ClientTest, ThePlacementIsCachedAndNotTrusted) {
  Start();
  placement_cache_ = ::testing::TempDir() + "/placement";
  int fetched = 0;
  frontend_->before = [&](const std::string& name) {
    fetched += name == "GetPlacement";
    return absl::OkStatus();
  };
  ASSERT_NE(Open(), nullptr);
  const int once = fetched;
  EXPECT_GT(once, 1) << "in several pieces";
  ASSERT_NE(Open(), nullptr);
  EXPECT_EQ(fetched, once);
  SHOAL_ASSERT_OK(WriteFileAtomically(placement_cache_, AsBytes("spoiled"), FileMode::kPublic));
  ASSERT_NE(Open(), nullptr);
  EXPECT_EQ(fetched, 2 * once);
}

// A batch that takes many requests, over several connections at a time.
class BatchTest : public ClientTest {
 protected:
  BatchTest() {
    // A round has room for this batch, and for nothing else.
    Start({.parties = 2, .dense = true, .records = 900, .row_bytes = 64, .max_slots = 300});
    control_ = testing::ConnectTo(frontend_.get(), &mutex_);
    options_.piece_bytes = 2048;  // 62 onions, 85 queries, 16 answers
    for (size_t i = 0; i < 900; ++i) keys_.push_back(std::to_string(899 - i));
    keys_.push_back("5");
    keys_.push_back("900");
  }
  std::unique_ptr<Device> OpenLanes(StateStore* store) {
    auto client = Device::Open(frontend_->pins(), options_, placement_cache_, control_.get(), store,
                               {.clock = &frontend_->clock(),
                                .random = &frontend_->random(),
                                .pool = &frontend_->pool(),
                                .sleep = [](uint32_t) {},
                                .progress = nullptr,
                                .count =
                                    [this](absl::string_view stage, uint64_t done, uint64_t total) {
                                      const std::lock_guard lock(count_mutex_);
                                      EXPECT_LE(done, total);
                                      if (done == total) finished_.insert(std::string(stage));
                                    },
                                .connect =
                                    [this] {
                                      ++connections_;
                                      return absl::StatusOr<std::unique_ptr<Transport>>(
                                          testing::ConnectTo(frontend_.get(), &mutex_));
                                    }});
    EXPECT_THAT(client.status(), IsOk());
    return client.ok() ? *std::move(client) : nullptr;
  }
  std::unique_ptr<Device> OpenLanes() { return OpenLanes(&store_); }
  void ExpectRight(const std::vector<Lookup>& results) {
    ASSERT_EQ(results.size(), keys_.size());
    for (size_t i = 0; i + 1 < keys_.size(); ++i) {
      ASSERT_EQ(results[i].outcome, Outcome::kFound) << i << ": " << results[i].error;
      EXPECT_EQ(ToString(results[i].value), "value of key-" + keys_[i]);
    }
    EXPECT_EQ(results.back().outcome, Outcome::kAbsent);
  }

  std::mutex mutex_;
  std::unique_ptr<Transport> control_;
  std::vector<Digest> rounds_;
  std::vector<std::string> keys_;
  std::mutex count_mutex_;
  std::set<std::string> finished_;
  std::atomic<int> connections_ = 0;
};

TEST_F(BatchTest, GoesOverSeveralConnections) {
  const Digest round_id = frontend_->OpenRound();
  auto client = OpenLanes();
  const uint64_t rows = frontend_->table().rows();
  ASSERT_EQ(rows, 300u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Keys(keys_)));
  ExpectRight(results);
  const auto asked = frontend_->Asked(round_id);
  EXPECT_EQ(asked.size(), rows) << "each row once, though most keys share theirs";
  EXPECT_EQ(SentCount("SubmitOnions"), (rows + 61) / 62);
  EXPECT_EQ(SentCount("SubmitQueries"), (rows + 84) / 85);
  EXPECT_EQ(SentCount("FetchAnswers"), (rows + 15) / 16);
  EXPECT_GT(connections_, 1);
  EXPECT_LE(connections_, 3 * 4) << "four at a time, anew in each stage";
  EXPECT_GT(client->chain().traffic().received, rows * 112);
  const pir::Costs costs = client->chain().costs();
  EXPECT_EQ(costs.bytes.query_bytes, 32u + 24);
  EXPECT_EQ(costs.bytes.answer_bytes, 64u + 48 + 16);
  EXPECT_GT(costs.query_seconds, 0);
  EXPECT_GT(costs.answer_seconds, 0);
  EXPECT_EQ(finished_, (std::set<std::string>{"obtaining slots", "sending queries",
                                              "fetching answers", "verifying"}));
  EXPECT_EQ(store_.state().ledger.queries(), rows);
}

// Wherever a run breaks, the next one continues, and no slot or secret gets a second content (the
// frontend would refuse it).
TEST_F(BatchTest, GoesOnWhereverItWasInterrupted) {
  FileState files;
  for (const std::string stage : {"SubmitOnions", "SubmitQueries", "FetchAnswers"}) {
    const int last = stage == "SubmitOnions" ? 5 : stage == "SubmitQueries" ? 4 : 15;
    for (const int at : {1, 3, last}) {
      for (const bool served : {false, true}) {
        SCOPED_TRACE(absl::StrCat(stage, " ", at, served ? " after" : " before"));
        for (auto& info : rounds_) frontend_->SetState(info, wire::CLOSED);
        const Digest round_id = frontend_->OpenRound();
        rounds_.push_back(round_id);
        // From request number `at` on nothing gets through.
        int requests = 0;
        const auto breaks = [&](const std::string& name) {
          requests += name == stage;
          return requests >= at ? absl::UnavailableError("lost") : absl::OkStatus();
        };
        (served ? frontend_->after : frontend_->before) = breaks;
        const uint64_t submissions = files.Submissions();
        {
          auto store = files.Open();
          EXPECT_THAT(OpenLanes(store.get())->LookUp(Keys(keys_)),
                      StatusIs(absl::StatusCode::kUnavailable, "lost"));
        }
        frontend_->before = frontend_->after = nullptr;
        {
          auto store = files.Open();
          EXPECT_EQ(store->discarded_rounds(), 0u);
          SHOAL_ASSERT_OK_AND_ASSIGN(const auto results,
                                     OpenLanes(store.get())->LookUp(Keys(keys_)));
          ExpectRight(results);
        }
        EXPECT_EQ(frontend_->Asked(round_id).size(), frontend_->table().rows());
        EXPECT_EQ(files.Submissions(), submissions + 1) << "one submission, one charge";
        EXPECT_EQ(files.Leftovers(), std::set<std::string>{});
      }
    }
  }
}

// Other lookups get their own rounds and leave an interrupted one alone, even if they share a row
// with it.
TEST_F(BatchTest, OtherLookupsLeaveAnInterruptedOneAlone) {
  FileState files;
  const Digest first = frontend_->OpenRound();
  frontend_->before = [&](const std::string& name) {
    return name == "FetchAnswers" ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_FALSE(OpenLanes(files.Open().get())->LookUp(Keys(keys_)).ok());
  frontend_->before = nullptr;
  options_.pad_to = 8;
  for (const std::string key : {"17", "900"}) {
    const Digest other = frontend_->OpenRound();
    SHOAL_ASSERT_OK(OpenLanes(files.Open().get())->LookUp(Keys({key})));
    EXPECT_EQ(frontend_->Asked(other).size(), 8u);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results,
                             OpenLanes(files.Open().get())->LookUp(Keys(keys_)));
  ExpectRight(results);
  EXPECT_EQ(files.Submissions(), 3u);
  EXPECT_EQ(frontend_->Asked(first).size(), 300u);
}

// Slots and answers that came before the connection broke are not requested again.
TEST_F(BatchTest, WhatCameIsKept) {
  FileState files;
  frontend_->OpenRound();
  options_.connections = 1;
  int requests = 0;
  frontend_->before = [&](const std::string& name) {
    requests += name == "SubmitOnions" || name == "FetchAnswers";
    return requests > 3 ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  const size_t rows = frontend_->table().rows();
  EXPECT_FALSE(OpenLanes(files.Open().get())->LookUp(Keys(keys_)).ok());
  frontend_->sent.clear();
  requests = -1000;
  frontend_->before = [&](const std::string& name) {
    requests += name == "FetchAnswers";
    return requests > -1000 + 10 ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_FALSE(OpenLanes(files.Open().get())->LookUp(Keys(keys_)).ok());
  EXPECT_EQ(SentCount("SubmitOnions"), (rows - 3 * 62 + 61) / 62);
  frontend_->sent.clear();
  frontend_->before = nullptr;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results,
                             OpenLanes(files.Open().get())->LookUp(Keys(keys_)));
  ExpectRight(results);
  EXPECT_EQ(SentCount("SubmitOnions"), 0u);
  EXPECT_EQ(SentCount("FetchAnswers"), (rows + 15) / 16 - 10);
}

// Once all answers are there, lost results can be made again, any number of times, without asking.
TEST_F(BatchTest, ResultsThatWereNotKeptComeAgain) {
  FileState files;
  const Digest round_id = frontend_->OpenRound();
  class LosingResults final : public Results {
   public:
    absl::Status Add(BytesView, const Lookup&) override {
      return ++added_ < 500 ? absl::OkStatus() : absl::ResourceExhaustedError("disk full");
    }
    absl::Status Finish() override { return absl::OkStatus(); }

   private:
    int added_ = 0;
  } losing;
  class VectorKeys final : public client::Keys {
   public:
    explicit VectorKeys(std::vector<Bytes> keys) : keys_(std::move(keys)) {}
    absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
      for (const Bytes& key : keys_) SHOAL_RETURN_IF_ERROR(take(key));
      return absl::OkStatus();
    }

   private:
    const std::vector<Bytes> keys_;
  } keys(Keys(keys_));
  EXPECT_THAT(OpenLanes(files.Open().get())->LookUp(keys, losing),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  frontend_->SetState(round_id, wire::CLOSED);
  frontend_->sent.clear();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results,
                             OpenLanes(files.Open().get())->LookUp(Keys(keys_)));
  ExpectRight(results);
  for (const auto& [name, bytes] : frontend_->sent) EXPECT_EQ(name, "HangUp");
  EXPECT_EQ(files.Leftovers(), std::set<std::string>{});
}

// A submission survives a full disk under the answers.
TEST_F(BatchTest, AFullDiskUnderTheAnswersIsNoReasonToGiveUp) {
  FileState files;
  const std::string answers =
      absl::StrCat(files.path(), ".answers-", frontend_->counter(frontend_->OpenRound()));
  fs::create_directory(answers);  // a directory stands for a file on a full disk
  EXPECT_FALSE(OpenLanes(files.Open().get())->LookUp(Keys(keys_)).ok());
  fs::remove(answers);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results,
                             OpenLanes(files.Open().get())->LookUp(Keys(keys_)));
  ExpectRight(results);
  EXPECT_EQ(files.Submissions(), 1u);
}

TEST_F(ClientTest, OptionsAreChecked) {
  Start();
  options_.pad_to = 0;
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kInvalidArgument, "pad_to"));
  options_.pad_to = 8;
  options_.max_attempts = 11;
  EXPECT_THAT(TryOpen(), StatusIs(absl::StatusCode::kInvalidArgument, "max_attempts"));
}

// ---- More queries than a round protects ---------------------------------------------------------

class BeyondPhiTest : public ClientTest {
 protected:
  // A deployment that protects five queries of a device together, with four rounds that take
  // onions.
  void StartWith(BeyondPhi beyond_phi, uint32_t pad_to) {
    Start({.dense = true, .records = 2000, .protects_five = true});
    options_.beyond_phi = beyond_phi;
    options_.pad_to = pad_to;
    for (int i = 0; i < 4; ++i) ids_.push_back(frontend_->OpenRound());
  }
  std::vector<size_t> QueriesByRound() const {
    std::vector<size_t> queries;
    for (const Digest& id : ids_) queries.push_back(frontend_->Asked(id).size());
    return queries;
  }
  static absl::StatusOr<std::unique_ptr<RowAnswers>> AskRows(Device& device,
                                                             std::vector<uint32_t> rows) {
    const uint64_t keys = rows.size();
    return device.chain().Ask({.rows = std::move(rows), .keys = keys});
  }

  std::vector<Digest> ids_;
};

TEST_F(BeyondPhiTest, StopsBeforeAnythingIsSent) {
  StartWith(BeyondPhi::kRefuse, 8);
  auto device = Open();
  frontend_->sent.clear();
  EXPECT_THAT(AskRows(*device, {1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "this lookup takes 8 queries, padding included, and a round of this "
                       "deployment protects only 5 queries of a device together; nothing was sent. "
                       "--over-rounds spreads them over 2 rounds, 5 at most in each"));
  EXPECT_THAT(device->chain().ObtainAhead(6),
              StatusIs(absl::StatusCode::kFailedPrecondition, "Take 5 slots at most"));
  EXPECT_TRUE(frontend_->sent.empty());
  EXPECT_EQ(store_.state().ledger.submissions(), 0u);
  EXPECT_TRUE(store_.state().rounds.empty());
}

TEST_F(BeyondPhiTest, AsManyAsPhiGoIntoOneRound) {
  StartWith(BeyondPhi::kRefuse, 5);
  SHOAL_ASSERT_OK(AskRows(*Open(), {1, 2}).status());
  EXPECT_EQ(QueriesByRound(), (std::vector<size_t>{5, 0, 0, 0}));
}

TEST_F(BeyondPhiTest, AllGoIntoOneRoundIfThatIsAccepted) {
  StartWith(BeyondPhi::kAcceptMore, 8);
  SHOAL_ASSERT_OK(AskRows(*Open(), {1, 2}).status());
  EXPECT_EQ(QueriesByRound(), (std::vector<size_t>{8, 0, 0, 0}));
}

// What anybody sees, the rounds and the number of queries in each, depends on the padded number of
// queries alone: no wanted row, one, or as many as fit.
TEST_F(BeyondPhiTest, RoundsDependOnThePaddedNumberAlone) {
  for (const size_t wanted : {0, 1, 5, 6, 11, 12}) {
    ids_.clear();
    store_.state() = State();
    StartWith(BeyondPhi::kOverRounds, 12);
    std::vector<uint32_t> rows;
    for (size_t i = 0; i < wanted; ++i) rows.push_back(static_cast<uint32_t>(2 * i));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, AskRows(*Open(), rows));
    EXPECT_EQ(QueriesByRound(), (std::vector<size_t>{5, 5, 2, 0})) << wanted;
    EXPECT_EQ(store_.state().ledger.submissions(), 3u);
    EXPECT_EQ(store_.state().ledger.queries(), 12u);
    // Every wanted row has an answer, and no round asks a row twice.
    std::set<uint32_t> answered(answers->rows().begin(), answers->rows().end());
    for (const uint32_t row : rows) EXPECT_TRUE(answered.contains(row)) << row;
    for (const Digest& id : ids_) {
      std::set<uint32_t> distinct;
      for (const auto& [slot, row] : frontend_->Asked(id)) {
        EXPECT_TRUE(distinct.insert(row).second);
      }
    }
    SHOAL_EXPECT_OK(answers->Erase());
    for (const HeldRound& held : store_.state().rounds) EXPECT_TRUE(held.over);
  }
}

TEST_F(BeyondPhiTest, GivesTheValuesOfAllRounds) {
  StartWith(BeyondPhi::kOverRounds, 12);
  auto device = Open();
  std::vector<Bytes> keys;
  for (size_t i = 0; i < 30; i += 3) keys.push_back(ToBytes(AsBytes(absl::StrCat(i))));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Lookup> results, device->LookUp(keys));
  ASSERT_EQ(results.size(), 10u);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(ToString(results[i].value), FakeFrontend::Value(3 * i));
  }
}

// After an interruption in the second round, the first one's answers are not asked for again.
TEST_F(BeyondPhiTest, GoesOnInTheRoundWhereItStopped) {
  StartWith(BeyondPhi::kOverRounds, 12);
  int submissions = 0;
  frontend_->before = [&](const std::string& name) {
    return name == "SubmitQueries" && ++submissions == 2 ? absl::PermissionDeniedError("no")
                                                         : absl::OkStatus();
  };
  EXPECT_FALSE(AskRows(*Open(), {3, 4}).ok());
  frontend_->before = nullptr;
  EXPECT_EQ(QueriesByRound(), (std::vector<size_t>{5, 0, 0, 0}));
  SHOAL_ASSERT_OK(AskRows(*Open(), {3, 4}).status());
  // The second round was given up when it refused the queries, which were charged already.
  EXPECT_EQ(QueriesByRound(), (std::vector<size_t>{5, 0, 5, 2}));
  EXPECT_EQ(store_.state().ledger.submissions(), 4u);
}

// Which round a row is asked in depends neither on the row, nor on its place in the list, nor on
// whether it is padding: each of 12 goes to the rounds of 5, 5 and 2 with those chances.
TEST_F(BeyondPhiTest, RowsGoToRoundsInASecretOrder) {
  constexpr int kTimes = 24;
  StartWith(BeyondPhi::kOverRounds, 12);
  frontend_->SetState(ids_[3], wire::ABORTED);
  auto device = Open();
  for (const size_t wanted : {1, 12}) {
    std::array<int, 3> lowest = {}, highest = {};
    for (int time = 0; time < kTimes; ++time) {
      if (time > 0 || wanted > 1) ids_.clear();
      while (ids_.size() < 3) ids_.push_back(frontend_->OpenRound());
      std::vector<uint32_t> rows;
      for (size_t i = 0; i < wanted; ++i) rows.push_back(static_cast<uint32_t>(2 * i));
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, AskRows(*device, rows));
      for (size_t round = 0; round < 3; ++round) {
        for (const auto& [slot, row] : frontend_->Asked(ids_[round])) {
          lowest[round] += row == rows.front();
          highest[round] += row == rows.back();
        }
      }
      SHOAL_ASSERT_OK(answers->Erase());
      EXPECT_TRUE(store_.state().spreads.empty());
      store_.state() = State();
      ASSERT_NE(device = Open(), nullptr);
    }
    // Binomials of (24, 5/12) and (24, 1/6), of which one is outside with a chance below 2e-5.
    for (const auto& seen : {lowest, highest}) {
      EXPECT_NEAR(seen[0], 10, 9) << wanted;
      EXPECT_NEAR(seen[1], 10, 9) << wanted;
      EXPECT_LT(seen[2], 14) << wanted;
      EXPECT_EQ(seen[0] + seen[1] + seen[2], kTimes) << wanted;
    }
  }
}

// Another order for the attempt after an aborted round would move the rows of every round.
TEST_F(BeyondPhiTest, TheOrderIsDrawnOnce) {
  StartWith(BeyondPhi::kOverRounds, 12);
  const auto rows_of = [&](const Digest& id) {
    std::set<uint32_t> rows;
    for (const auto& [slot, row] : frontend_->Asked(id)) rows.insert(row);
    return rows;
  };
  frontend_->reach = [&](const Digest& id, wire::RoundState wanted) {
    return wanted == wire::ANSWERED && id == ids_[1] ? wire::ABORTED : wanted;
  };
  std::string killed_at = "FetchAnswers";
  int fetches = 0;
  frontend_->before = [&](const std::string& name) {
    if (name == "SubmitOnions") {
      EXPECT_EQ(store_.durable_spreads, 1u);
    }
    return name == killed_at && ++fetches == 2 ? absl::CancelledError("killed") : absl::OkStatus();
  };
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < 11; ++i) rows.push_back(3 * i);
  EXPECT_THAT(AskRows(*Open(), rows), StatusIs(absl::StatusCode::kCancelled, "killed"));
  const std::set<uint32_t> first = rows_of(ids_[0]), second = rows_of(ids_[1]);
  EXPECT_EQ(second, rows_of(ids_[2])) << "the attempt after the aborted one";
  killed_at = "";
  SHOAL_ASSERT_OK(AskRows(*Open(), rows).status());
  EXPECT_EQ(rows_of(ids_[0]), first);
  EXPECT_EQ(rows_of(ids_[2]), second);
  std::set<uint32_t> all = rows_of(ids_[3]);
  EXPECT_EQ(all.size(), 2u);
  all.insert(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all.size(), 12u) << "a row or padding was asked in two rounds";
  EXPECT_EQ(store_.state().ledger.submissions(), 4u);
}

TEST_F(BeyondPhiTest, NothingIsSentWhenTheOrderCannotBeSaved) {
  StartWith(BeyondPhi::kOverRounds, 12);
  auto device = Open();
  frontend_->sent.clear();
  store_.fail = absl::ResourceExhaustedError("full");
  EXPECT_THAT(AskRows(*device, {1}), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_TRUE(frontend_->sent.empty());
  EXPECT_TRUE(store_.state().spreads.empty());
}

TEST_F(BeyondPhiTest, RefusesMoreRoundsThanAStateHolds) {
  Start({.dense = true, .records = 20'000});  // phi is 1
  options_.beyond_phi = BeyondPhi::kOverRounds;
  options_.pad_to = kMaxRoundsOfLookup + 1;
  auto device = Open();
  ASSERT_GT(device->deployment().manifest().rows(), options_.pad_to);
  EXPECT_THAT(AskRows(*device, {1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "more than 1024; nothing was sent"));
}

// ---- A limit on what the ledger may reach -------------------------------------------------------

class LimitTest : public BeyondPhiTest {
 protected:
  // The exact epsilon of so many queries at the deployment's delta.
  double EpsilonOf(uint64_t queries) const {
    const noise::Parameters& noise = frontend_->roster().noise();
    return LossOf(noise, queries, noise.delta, 0)->epsilon.value();
  }
};

TEST_F(LimitTest, AQueryStopsBeforeItIsSent) {
  StartWith(BeyondPhi::kRefuse, 5);
  const double one = EpsilonOf(5), two = EpsilonOf(10);
  ASSERT_LT(one, two);
  options_.max_epsilon = (one + two) / 2;
  SHOAL_ASSERT_OK(AskRows(*Open(), {1}).status());
  auto device = Open();
  frontend_->sent.clear();
  EXPECT_THAT(AskRows(*device, {2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "with 5 more queries everything"));
  EXPECT_TRUE(frontend_->sent.empty()) << "no onions either";
  EXPECT_EQ(store_.state().ledger.queries(), 5u);
  // What was charged already may go on: the answers are there.
  SHOAL_EXPECT_OK(AskRows(*device, {1}).status());
}

// All rounds of a lookup are checked before the first, which alone would be allowed.
TEST_F(LimitTest, ALookupOverRoundsStopsBeforeItsFirst) {
  StartWith(BeyondPhi::kOverRounds, 10);
  options_.max_epsilon = (EpsilonOf(5) + EpsilonOf(10)) / 2;
  auto device = Open();
  frontend_->sent.clear();
  EXPECT_THAT(AskRows(*device, {2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "with 10 more queries"));
  EXPECT_TRUE(frontend_->sent.empty());
}

// A round is aborted after its queries were charged: the next attempt would be a second charge.
TEST_F(LimitTest, AnotherAttemptStops) {
  StartWith(BeyondPhi::kRefuse, 5);
  options_.max_epsilon = (EpsilonOf(5) + EpsilonOf(10)) / 2;
  frontend_->reach = [](const Digest&, wire::RoundState wanted) {
    return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
  };
  EXPECT_THAT(AskRows(*Open(), {2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "max_epsilon"));
  EXPECT_EQ(SentCount("SubmitQueries"), 1u);
  EXPECT_EQ(SentCount("SubmitOnions"), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

// Submit checks by itself, for callers that take the steps one by one.
TEST_F(LimitTest, SubmitStops) {
  StartWith(BeyondPhi::kRefuse, 5);
  options_.max_epsilon = EpsilonOf(5) / 2;
  auto device = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Digest id, device->chain().Obtain(5));
  EXPECT_THAT(device->chain().Submit(id, std::vector<uint32_t>{1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "max_epsilon"));
  EXPECT_EQ(SentCount("SubmitQueries"), 0u);
  EXPECT_EQ(store_.state().ledger.submissions(), 0u);
}

// Slots that no query needs count as lost, and so do those that are to be taken. The limit is
// looked at where the ledger is then: an abort locks nobody out.
TEST_F(LimitTest, SlotsAreCounted) {
  StartWith(BeyondPhi::kRefuse, 5);
  options_.max_epsilon = EpsilonOf(5) * 1.01;
  auto device = Open();
  SHOAL_ASSERT_OK(device->chain().ObtainAhead(5).status());
  SHOAL_ASSERT_OK(device->chain().ObtainAhead(5).status());
  const Division division{.queries = 5, .in_each = 5};
  EXPECT_EQ(device->chain().LedgerWith(5, division).idle_rounds(), 1u);
  EXPECT_EQ(device->chain().LedgerWith(0, division).idle_rounds(), 2u);
  SHOAL_EXPECT_OK(AskRows(*device, {1}).status());
  EXPECT_THAT(AskRows(*device, {2}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a larger max_epsilon, or none"));
}

TEST_F(LimitTest, AnAbortLocksNobodyOut) {
  StartWith(BeyondPhi::kRefuse, 5);
  options_.max_epsilon = EpsilonOf(5) * 1.01;
  int aborts = 0;
  frontend_->reach = [&](const Digest&, wire::RoundState wanted) {
    return wanted == wire::OPEN_FOR_QUERIES && ++aborts <= 2 ? wire::ABORTED : wanted;
  };
  auto device = Open();
  SHOAL_ASSERT_OK(AskRows(*device, {1}).status());
  EXPECT_EQ(store_.state().ledger.idle_rounds(), 2u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
  frontend_->sent.clear();
  EXPECT_THAT(AskRows(*device, {2}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "at delta 3e-06, which is the deployment's, 3-fold for 2 rounds that it "
                       "entered without a query; nothing was sent"));
  EXPECT_TRUE(frontend_->sent.empty());
}

}  // namespace
}  // namespace shoal::client
