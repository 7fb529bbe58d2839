// The chain's client where queries are for buckets of rows (docs/protocol.md, section 11), from
// keys to verified values, with both halves of every round in one process.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/query_buckets.h"
#include "src/base/testing/matchers.h"
#include "src/client/chain_client.h"
#include "src/client/chain_client_fixture.h"
#include "src/client/device.h"
#include "src/client/ledger.h"
#include "src/client/retrieval.h"
#include "src/client/state.h"
#include "src/client/testing/fake_frontend.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/sharing/halves.h"
#include "src/wire/client.pb.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::ClientTest;
using testing::Device;
using testing::FakeFrontend;
using testing::FakeOptions;
using testing::FileState;
using testing::Keys;
using Outcome = Lookup::Outcome;

constexpr uint32_t kBuckets = 12;

// Numbers as keys, which a dense table of one record a row has in the row of that number.
std::vector<Bytes> Numbers(const std::vector<uint32_t>& numbers) {
  std::vector<std::string> texts;
  for (const uint32_t number : numbers) texts.push_back(absl::StrCat(number));
  return Keys(texts);
}

template <typename Request>
Request Parsed(const std::string& bytes) {
  Request request;
  EXPECT_TRUE(request.ParseFromString(bytes));
  return request;
}

class TwoTiersTest : public ClientTest {
 protected:
  static FakeOptions Options(uint32_t most_in_bucket = 1) {
    return {.parties = 2,
            .dense = true,
            .records = 300,
            .row_bytes = 32,
            .most_in_bucket = most_in_bucket,
            .query_buckets = kBuckets};
  }
  void Begin(const FakeOptions& options = Options()) {
    Start(options);
    store_.state() = State();
    options_.pad_to = 4;
    options_.beyond_phi = BeyondPhi::kAcceptMore;
  }
  QueryBuckets Buckets() const { return {frontend_->table().rows(), kBuckets}; }

  // The bytes of all requests with this name.
  std::vector<std::string> Sent(const std::string& name) const {
    std::vector<std::string> all;
    for (const auto& [of, bytes] : frontend_->sent) {
      if (of == name) all.push_back(bytes);
    }
    return all;
  }
  // How often each bucket was asked in a round.
  std::map<uint32_t, uint32_t> AskedOfBuckets(const Digest& round_id) const {
    std::map<uint32_t, uint32_t> asked;
    for (const auto& [slot, row] : frontend_->Asked(round_id)) ++asked[Buckets().Of(row).bucket];
    return asked;
  }
};

TEST_F(TwoTiersTest, FindsValuesAndProvesAbsence) {
  FakeOptions hashed = Options(4);
  hashed.dense = false;
  hashed.row_bytes = 256;
  for (const FakeOptions& options : {Options(1), Options(4), hashed}) {
    Begin(options);
    frontend_->OpenRound();
    auto client = Open();
    ASSERT_NE(client, nullptr);
    ASSERT_EQ(client->deployment().buckets()->count(), kBuckets);
    const std::vector<Bytes> keys = options.dense
                                        ? Numbers({7, 600, 299, 7})
                                        : Keys({"key-7", "no such key", "key-299", "key-7"});
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Lookup> results, client->LookUp(keys));
    ASSERT_EQ(results.size(), 4u);
    EXPECT_EQ(ToString(results[0].value), "value of key-7");
    EXPECT_EQ(results[1].outcome, Outcome::kAbsent);
    EXPECT_EQ(ToString(results[2].value), "value of key-299");
    EXPECT_EQ(ToString(results[3].value), "value of key-7");
    for (const Lookup& result : results) SHOAL_EXPECT_OK(result.error);
  }
}

// Condition 15: a slot's parts of both halves go in one request, and both of its answers come in
// one, whatever they hold. Nothing is sent once somebody has looked at an answer.
TEST_F(TwoTiersTest, BothHalvesGoTogetherAndAreFetchedAlways) {
  std::optional<std::vector<std::string>> names;
  for (const bool spoilt : {false, true}) {
    Begin();
    frontend_->OpenRound();
    if (spoilt) {
      frontend_->lost_half = [](uint32_t row, sharing::Half half) {
        return row == 5 && half == sharing::Half::kB;
      };
    }
    auto client = Open();
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Lookup> results, client->LookUp(Numbers({5, 6})));
    EXPECT_EQ(results[0].outcome, spoilt ? Outcome::kFailed : Outcome::kFound);
    EXPECT_EQ(results[1].outcome, Outcome::kFound);
    const size_t parts_bytes = sharing::PartsBytes(Buckets().selection_bytes());
    ASSERT_EQ(Sent("SubmitQueries").size(), 1u);
    const auto queries = Parsed<wire::SubmitQueriesRequest>(Sent("SubmitQueries")[0]);
    EXPECT_EQ(queries.slots().size(), 4 * 4u);
    EXPECT_EQ(queries.parts().size(), 4 * parts_bytes);
    EXPECT_TRUE(queries.tokens().empty() && queries.tallies().empty());
    ASSERT_EQ(Sent("FetchAnswers").size(), 1u);
    EXPECT_EQ(Parsed<wire::FetchAnswersRequest>(Sent("FetchAnswers")[0]).slots(), queries.slots());
    ASSERT_EQ(Sent("SubmitOnions").size(), 1u);
    const auto onions = Parsed<wire::SubmitOnionsRequest>(Sent("SubmitOnions")[0]);
    ASSERT_EQ(onions.submissions_size(), 1);
    EXPECT_EQ(onions.submissions(0).size(), 96 + 4 * 64u);
    if (!names) names = SentNames();
    EXPECT_EQ(SentNames(), *names);
    EXPECT_EQ(names->back(), "HangUp");
    EXPECT_EQ(client->chain().costs().bytes.query_bytes, 64 + 4 + parts_bytes);
    EXPECT_EQ(client->chain().costs().bytes.answer_bytes,
              2 * (client->deployment().manifest().answer_bytes() + 16u));
  }
}

// Whoever alters an answer on its way, in either half, or gives the half of another slot, loses
// that slot's answer and no other, and is not told which row it was by what the client does next.
TEST_F(TwoTiersTest, AnAlteredHalfLosesItsSlotAlone) {
  const size_t half = 32 + 48 + 16, each = 2 * half;
  using Spoil = std::function<void(std::string & answers)>;
  const auto flip = [](size_t at) -> Spoil {
    return [at](std::string& answers) { answers[at] = static_cast<char>(answers[at] ^ 1); };
  };
  const std::vector<std::pair<std::set<size_t>, Spoil>> cases = {
      {{}, [](std::string&) {}},
      {{0}, flip(0)},              // z_A
      {{0}, flip(half - 16)},      // T'_A
      {{0}, flip(half)},           // z_B
      {{0}, flip(each - 1)},       // T'_B
      {{2}, flip(2 * each + 40)},  // the signature in half A
      {{1},
       [&](std::string& a) {  // half A in place of half B
         std::copy_n(a.begin() + each, half, a.begin() + each + half);
       }},
      {{1},
       [&](std::string& a) {  // the halves are exchanged
         std::swap_ranges(a.begin() + each, a.begin() + each + half, a.begin() + each + half);
       }},
      {{0, 1},
       [&](std::string& a) {  // two slots' halves B are exchanged
         std::swap_ranges(a.begin() + half, a.begin() + each, a.begin() + each + half);
       }},
      {{3}, [&](std::string& a) {  // no answer at all
         std::fill(a.begin() + 3 * each, a.begin() + 4 * each, 0);
       }}};
  for (size_t c = 0; c < cases.size(); ++c) {
    SCOPED_TRACE(c);
    Begin();
    options_.pad_to = 1;
    const Digest round_id = frontend_->OpenRound();
    std::map<uint32_t, size_t> place_of;  // of a row, in the response
    frontend_->spoil_fetch = [&](wire::FetchAnswersResponse& response) {
      size_t place = 0;
      for (const auto& [slot, row] : frontend_->Asked(round_id)) place_of[row] = place++;
      cases[c].second(*response.mutable_answers());
    };
    auto client = Open();
    const std::vector<uint32_t> rows = {5, 6, 7, 8};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(Numbers(rows)));
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool lost = cases[c].first.contains(place_of.at(rows[i]));
      EXPECT_EQ(results[i].outcome, lost ? Outcome::kFailed : Outcome::kFound) << i;
      if (lost) {
        EXPECT_THAT(results[i].error, StatusIs(absl::StatusCode::kUnauthenticated, "altered"));
      }
    }
    EXPECT_EQ(Sent("FetchAnswers").size(), 1u);
    EXPECT_EQ(SentNames().back(), "HangUp");
  }
}

// A tail that selects a wrong row, or spoils what it has selected, gets as far as a backend that
// serves a row that nobody signed.
TEST_F(TwoTiersTest, ARowThatNobodySignedIsNotTaken) {
  Begin();
  frontend_->OpenRound();
  frontend_->spoil = [](uint32_t row, MutableBytes result) {
    if (row == 5) result[3] ^= 1;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Numbers({5, 6})));
  EXPECT_EQ(results[0].outcome, Outcome::kFailed);
  EXPECT_THAT(results[0].error,
              StatusIs(absl::StatusCode::kUnauthenticated, "not signed by all parties"));
  EXPECT_EQ(results[1].outcome, Outcome::kFound);
}

// A half without the other is no answer: nothing is looked at, and what is asked again has the same
// bytes.
TEST_F(TwoTiersTest, AHalfWithoutTheOtherIsRefused) {
  Begin();
  frontend_->OpenRound();
  const size_t each = 2 * (32 + 48 + 16);
  frontend_->spoil_fetch = [&](wire::FetchAnswersResponse& response) {
    response.mutable_answers()->resize(response.answers().size() / 2);
  };
  EXPECT_THAT(Open()->LookUp(Numbers({5})),
              StatusIs(absl::StatusCode::kDataLoss,
                       absl::StrCat("sent ", 4 * each / 2, " bytes for 4 answers of ", each)));
  EXPECT_EQ(store_.state().ledger.submissions(), 1u);
}

// Answers of another round have other keys, whatever frontend puts them there.
TEST_F(TwoTiersTest, HalvesOfAnotherRoundAreLost) {
  Begin();
  std::vector<std::string> kept;
  for (int round = 0; round < 2; ++round) {
    frontend_->OpenRound();
    frontend_->spoil_fetch = [&](wire::FetchAnswersResponse& response) {
      kept.push_back(response.answers());
      if (round == 1) {
        // Half B of the first round's answers.
        const size_t half = 32 + 48 + 16;
        for (size_t i = 0; i < response.answers().size(); i += 2 * half) {
          response.mutable_answers()->replace(i + half, half, kept[0], i + half, half);
        }
      }
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Numbers({5})));
    EXPECT_EQ(results[0].outcome, round == 0 ? Outcome::kFound : Outcome::kFailed);
  }
}

// Condition 7: a slot sends one query for ever, in both halves. After a lost response and a crash
// the same lookup sends the same bytes.
TEST_F(TwoTiersTest, GoesOnAfterACrashWithTheSameBytes) {
  Begin(Options(4));
  options_.piece_bytes = 300;  // several submissions and requests of each kind
  frontend_->OpenRound();
  const std::vector<Bytes> keys = Numbers({5, 17, 29, 41, 100, 200, 250});
  for (const std::string stage : {"SubmitOnions", "SubmitQueries", "FetchAnswers"}) {
    auto client = Open();
    frontend_->after = [&](const std::string& name) {
      return name == stage ? absl::UnavailableError("connection lost") : absl::OkStatus();
    };
    EXPECT_THAT(client->LookUp(keys), StatusIs(absl::StatusCode::kUnavailable, "connection lost"));
    // Started anew with another setting, it keeps the cut that it has.
    options_.piece_bytes = 1000;
  }
  frontend_->after = nullptr;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(keys));
  for (const Lookup& result : results) EXPECT_EQ(result.outcome, Outcome::kFound);
  // By the slots or the first enc that a request names: its bytes.
  std::map<std::string, std::set<std::string>> onions, parts;
  for (const std::string& bytes : Sent("SubmitOnions")) {
    const auto request = Parsed<wire::SubmitOnionsRequest>(bytes);
    for (const std::string& s : request.submissions()) onions[s.substr(0, 32)].insert(s);
  }
  const size_t parts_bytes = sharing::PartsBytes(Buckets().selection_bytes());
  for (const std::string& bytes : Sent("SubmitQueries")) {
    const auto request = Parsed<wire::SubmitQueriesRequest>(bytes);
    for (size_t i = 0; i < request.slots().size() / 4; ++i) {
      parts[request.slots().substr(4 * i, 4)].insert(
          request.parts().substr(i * parts_bytes, parts_bytes));
    }
  }
  EXPECT_EQ(onions.size(), 3u) << "(300 - 96) / 64 onions in each";
  EXPECT_EQ(parts.size(), 8u);
  for (const auto& [of, bytes] : onions) EXPECT_EQ(bytes.size(), 1u);
  for (const auto& [of, bytes] : parts) EXPECT_EQ(bytes.size(), 1u);
  EXPECT_EQ(store_.state().ledger.submissions(), 1u) << "one submission, one charge";
}

// Condition 7 again: what is stored before the onions, and before the queries, is all that a client
// needs to go on, and no other keys go into slots that were used.
TEST_F(TwoTiersTest, StoresBeforeItSendsAndUsesNoSlotTwice) {
  Begin();
  const Digest first = frontend_->OpenRound();
  bool onions_checked = false, queries_checked = false;
  frontend_->before = [&](const std::string& name) {
    if (name == "SubmitOnions") {
      EXPECT_EQ(store_.durable_onions, 4u);
      EXPECT_EQ(store_.durable_charges, 0u);
      onions_checked = true;
    }
    if (name == "SubmitQueries") {
      EXPECT_FALSE(store_.durable_rows.empty());
      EXPECT_EQ(store_.durable_charges, 1u);
      queries_checked = true;
    }
    return absl::OkStatus();
  };
  frontend_->after = [](const std::string& name) {
    return name == "SubmitQueries" ? absl::UnavailableError("lost") : absl::OkStatus();
  };
  EXPECT_FALSE(Open()->LookUp(Numbers({5})).ok());
  EXPECT_TRUE(onions_checked && queries_checked);
  frontend_->after = nullptr;
  frontend_->before = nullptr;
  const auto asked = frontend_->Asked(first);
  const Digest second = frontend_->OpenRound();
  SHOAL_ASSERT_OK(Open()->LookUp(Numbers({77})));
  EXPECT_EQ(frontend_->Asked(first), asked);
  EXPECT_EQ(frontend_->Asked(second).size(), 4u);
}

// The state on disk gives both pieces, their cut and slot -> row again, in another process.
TEST_F(TwoTiersTest, AStateOnDiskGivesBothPiecesAgain) {
  Begin(Options(4));
  options_.piece_bytes = 300;
  FileState file;
  frontend_->OpenRound();
  std::map<std::string, std::set<std::string>> requests;
  for (const std::string stage : {"SubmitOnions", "SubmitQueries", "FetchAnswers", ""}) {
    SCOPED_TRACE(stage);
    const std::unique_ptr<FileStateStore> store = file.Open();
    EXPECT_EQ(store->discarded_rounds(), 0u);
    frontend_->after = [&](const std::string& name) {
      return name == stage ? absl::UnavailableError("connection lost") : absl::OkStatus();
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto device,
        Device::Open(frontend_->pins(), options_, "", frontend_.get(), store.get(),
                     {.clock = &frontend_->clock(),
                      .random = &frontend_->random(),
                      .pool = &frontend_->pool(),
                      .sleep = [this](uint32_t milliseconds) { Sleep(milliseconds); }}));
    const auto results = device->LookUp(Numbers({5, 17, 29, 250}));
    EXPECT_EQ(results.ok(), stage.empty());
    if (results.ok()) {
      EXPECT_EQ(ToString(results->back().value), "value of key-250");
      EXPECT_EQ(store->state().ledger.submissions(), 1u);
      EXPECT_TRUE(store->state().rounds[0].over);
      EXPECT_EQ(ToBytes(store->state().rounds[0].master.view()), Bytes(Seed::size()));
    }
  }
  for (const auto& [name, bytes] : frontend_->sent) requests[name].insert(bytes);
  EXPECT_EQ(requests["SubmitOnions"].size(), 2u) << "one of three onions, and one of one";
  EXPECT_EQ(requests["SubmitQueries"].size(), 2u) << "two of at most three queries";
}

// Condition 16: the number of queries follows from the number of different keys alone, and is at
// most c B: not from how many keys share a row or a bucket, are impossible or repeated.
TEST_F(TwoTiersTest, TheNumberOfQueriesFollowsFromTheKeysAlone) {
  FakeOptions options = Options();
  Begin(options);
  const auto count = [&](const std::vector<Bytes>& keys) {
    const Digest round_id = frontend_->OpenRound();
    SHOAL_EXPECT_OK(Open()->LookUp(keys));
    const size_t queries = frontend_->Asked(round_id).size();
    frontend_->SetState(round_id, wire::CLOSED);
    return queries;
  };
  EXPECT_EQ(count(Numbers({0, 1, 2, 3, 4})), 8u) << "five buckets";
  EXPECT_EQ(count(Numbers({0, 12, 24, 36, 48})), 8u) << "one bucket";
  EXPECT_EQ(count(Numbers({0, 1, 600, 601, 602})), 8u) << "no rows";
  EXPECT_EQ(count(Numbers({0, 1, 2, 3, 3, 2, 1, 0})), 4u) << "repeated";
  EXPECT_EQ(count({}), 4u);
  std::vector<uint32_t> many;
  for (uint32_t i = 0; i < 100; ++i) many.push_back(i);
  EXPECT_EQ(count(Numbers(many)), kBuckets);

  // Of a hashed table a row has several keys.
  options = Options(4);
  options.dense = false;
  options.row_bytes = 512;
  Begin(options);
  std::vector<std::string> sharing_a_row;
  auto client = Open();
  for (size_t i = 0; sharing_a_row.size() < 5; ++i) {
    ASSERT_LT(i, 300u);
    if (*client->deployment().map().RowOf(AsBytes(FakeFrontend::Key(i))) == 0) {
      sharing_a_row.push_back(FakeFrontend::Key(i));
    }
  }
  EXPECT_EQ(count(Keys(sharing_a_row)), 8u);
  EXPECT_EQ(count(Keys({"a", "b", "c", "d", "e"})), 8u);
}

// Condition 17: of a bucket no more than c are asked, padding included. The other keys are unknown,
// now and whenever the lookup is made again: to ask them later would show that there are such.
TEST_F(TwoTiersTest, KeysBeyondMostInBucketAreUnknownAndNotAskedLater) {
  Begin(Options(4));
  options_.pad_to = 16;
  std::vector<uint32_t> rows = {1, 2, 3};
  for (uint32_t place = 0; place < 7; ++place) rows.push_back(4 + kBuckets * (10 - place));
  for (int again = 0; again < 2; ++again) {
    const Digest round_id = frontend_->OpenRound();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Numbers(rows)));
    for (const auto& [bucket, asked] : AskedOfBuckets(round_id)) EXPECT_LE(asked, 4u) << bucket;
    std::set<uint32_t> asked;
    for (const auto& [slot, row] : frontend_->Asked(round_id)) asked.insert(row);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(rows[i]);
      const bool unknown = i >= 3 && i < 6;  // the highest
      EXPECT_EQ(results[i].outcome, unknown ? Outcome::kUnknown : Outcome::kFound);
      EXPECT_EQ(asked.contains(rows[i]), !unknown);
      if (!unknown) {
        EXPECT_EQ(ToString(results[i].value), absl::StrCat("value of key-", rows[i]));
        continue;
      }
      EXPECT_TRUE(results[i].value.empty());
      EXPECT_THAT(results[i].error, StatusIs(absl::StatusCode::kUnavailable,
                                             "most_in_bucket of the roster, which is 4"));
    }
    EXPECT_EQ(frontend_->Asked(round_id).size(), 16u);
    EXPECT_EQ(store_.state().rounds.size(), static_cast<size_t>(again) + 1)
        << "one round for each lookup";
    EXPECT_TRUE(store_.state().lookups.empty());
    frontend_->SetState(round_id, wire::CLOSED);
  }
}

// A lookup of more queries than a round protects goes over rounds, each with its share of the same
// virtual places: no bucket is asked more than c times in all of them together.
TEST_F(TwoTiersTest, RoundsShareTheVirtualPlaces) {
  Begin(Options(4));
  options_.beyond_phi = BeyondPhi::kOverRounds;
  options_.pad_to = 12;
  std::vector<Digest> rounds;
  for (int i = 0; i < 3; ++i) rounds.push_back(frontend_->OpenRound());
  std::vector<uint32_t> rows = {1, 2, 3, 5, 6};
  for (uint32_t place = 0; place < 6; ++place) rows.push_back(4 + kBuckets * place);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, Open()->LookUp(Numbers(rows)));
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i < 9 ? Outcome::kFound : Outcome::kUnknown) << rows[i];
  }
  std::map<uint32_t, uint32_t> of_bucket;
  std::vector<size_t> queries;
  for (const Digest& id : rounds) {
    queries.push_back(frontend_->Asked(id).size());
    for (const auto& [bucket, asked] : AskedOfBuckets(id)) of_bucket[bucket] += asked;
  }
  EXPECT_EQ(queries, (std::vector<size_t>{5, 5, 2}));
  for (const auto& [bucket, asked] : of_bucket) EXPECT_LE(asked, 4u) << bucket;
  EXPECT_EQ(store_.state().ledger.submissions(), 3u);
}

// The ledger counts a submission as its fullest pattern: floor(n / c) pairs of c and one of the
// rest.
TEST_F(TwoTiersTest, TheLedgerChargesWithMostInBucket) {
  Begin(Options(4));
  options_.pad_to = 6;
  frontend_->OpenRound();
  auto client = Open();
  SHOAL_ASSERT_OK(client->LookUp(Numbers({1, 2, 3})));
  const noise::Parameters& noise = client->deployment().roster().noise();
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss charged, store_.state().ledger.LossAt(noise.delta));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss expected, LossOf(noise, 6, noise.delta, 4));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss as_singles, LossOf(noise, 6, noise.delta, 1));
  EXPECT_EQ(charged.epsilon, expected.epsilon);
  EXPECT_GT(*charged.epsilon, *as_singles.epsilon);
}

// Condition 19: header, manifest and roster agree, or the error names both values, and nothing is
// stored of a round, charged or sent.
TEST_F(TwoTiersTest, NothingIsSentUnlessHeaderManifestAndRosterAgree) {
  using Change = std::function<void(wire::RoundHeader&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"its query_buckets are 11, and the table's 12",
       [](wire::RoundHeader& h) { h.set_query_buckets(11); }},
      {"its query_buckets are 0, and the table's 12",
       [](wire::RoundHeader& h) {
         h.clear_query_buckets();
         h.mutable_onion_keys()->DeleteSubrange(2, 2);
       }},
      {"2 onion keys instead of 4",
       [](wire::RoundHeader& h) { h.mutable_onion_keys()->DeleteSubrange(2, 2); }},
      {"the same onion key", [](wire::RoundHeader& h) { h.set_onion_keys(3, h.onion_keys(0)); }},
      {"noise for 12 rows of a table of 300", [](wire::RoundHeader& h) { h.set_max_rows(12); }}};
  for (const auto& [why, change] : cases) {
    SCOPED_TRACE(why);
    Begin();
    frontend_->OpenRound();
    frontend_->spoil_round = [&, change = change](wire::RoundInfo& info) {
      wire::RoundHeader header = info.header().header();
      change(header);
      *info.mutable_header() = frontend_->Sign(header);
    };
    const auto results = Open()->LookUp(Numbers({5}));
    ASSERT_FALSE(results.ok());
    EXPECT_THAT(results.status(), StatusIs(results.status().code(), why));
    EXPECT_TRUE(frontend_->sent.empty());
    EXPECT_TRUE(store_.state().rounds.empty());
    EXPECT_EQ(store_.state().ledger.submissions() + store_.state().ledger.idle_rounds(), 0u);
  }
}

// A header for two tiers in a deployment for rows: the same.
TEST_F(TwoTiersTest, ARoundOfTwoTiersIsNotEnteredUnderARosterForRows) {
  Begin({.parties = 2});
  frontend_->OpenRound();
  frontend_->spoil_round = [&](wire::RoundInfo& info) {
    wire::RoundHeader header = info.header().header();
    header.set_query_buckets(12);
    for (char i = 1; i < 3; ++i) header.add_onion_keys(std::string(32, i));
    *info.mutable_header() = frontend_->Sign(header);
  };
  EXPECT_THAT(Open()->LookUp(Keys({"key-1"})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "its query_buckets are 12, and the table's 0"));
  EXPECT_TRUE(frontend_->sent.empty());
  EXPECT_TRUE(store_.state().rounds.empty());
}

// Terms come later: a list that is watched waits for no round of two tiers in vain.
TEST_F(TwoTiersTest, AWatchedListIsRefused) {
  Begin();
  options_.term = TermOptions{.enrolled = [](const Enrolled&) { return absl::OkStatus(); }};
  frontend_->OpenRound();
  EXPECT_THAT(
      Open()->LookUp(Numbers({5})),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               "two tiers (most_in_bucket 1 in the roster, query_buckets 12 in the table)"));
  EXPECT_TRUE(frontend_->sent.empty());
}

// --- Bytes

class TwoTiersDeviceTest : public TwoTiersTest {
 protected:
  round::Round NextRound() {
    auto round = round::Round::Verify(frontend_->Sign(frontend_->MakeHeader(++counter_)),
                                      frontend_->roster(),
                                      {.manifest_digest = frontend_->table().manifest().digest(),
                                       .rows = frontend_->table().rows(),
                                       .row_bytes = frontend_->table().manifest().row_bytes(),
                                       .query_buckets = kBuckets},
                                      frontend_->clock().now_s);
    SHOAL_CHECK(round.ok());
    return *std::move(round);
  }
  static std::string Make(const round::Round& round, const Seed& master, uint32_t first,
                          uint32_t count) {
    OnionSubmission submission{
        .first = first, .count = count, .plaintext = {}, .first_slot = std::nullopt};
    const SubmissionToMake to_make{&master, &submission};
    return MakeSubmissions(round, {&to_make, 1}, nullptr).at(0);
  }
  uint64_t counter_ = 0;
};

// No enc comes twice in what a client sends: not in the two pieces of a submission, not in another
// cut, not in another round. (Those of the inner onions of piece A are sealed for P1 alone.)
TEST_F(TwoTiersDeviceTest, NoEncComesTwice) {
  Begin();
  const Seed master = frontend_->random().NewSeed();
  std::set<std::string> encs;
  size_t made = 0;
  for (int r = 0; r < 2; ++r) {
    const round::Round round = NextRound();
    for (const auto& [first, count] :
         std::vector<std::pair<uint32_t, uint32_t>>{{0, 5}, {0, 3}, {3, 2}, {0, 4}}) {
      const std::string whole = Make(round, master, first, count);
      ASSERT_EQ(whole.size(), round.SubmissionBytes(count));
      EXPECT_EQ(whole, Make(round, master, first, count)) << "the same cut has the same bytes";
      for (const size_t at : {size_t{0}, whole.size() / 2}) {
        encs.insert(whole.substr(at, onion::kEncBytes));
        ++made;
      }
    }
  }
  EXPECT_EQ(encs.size(), made);
}

// Many devices' submissions are sealed together, each as if it were alone.
TEST_F(TwoTiersDeviceTest, SubmissionsOfManyDevices) {
  Begin();
  const round::Round round = NextRound();
  std::vector<Seed> masters;
  std::vector<OnionSubmission> submissions;
  for (uint32_t i = 0; i < 5; ++i) {
    masters.push_back(frontend_->random().NewSeed());
    submissions.push_back(
        {.first = 7 * i, .count = 1 + 60 * i, .plaintext = {}, .first_slot = 10 * i});
  }
  std::vector<SubmissionToMake> to_make;
  for (size_t i = 0; i < 5; ++i) to_make.push_back({&masters[i], &submissions[i]});
  const std::vector<std::string> all = MakeSubmissions(round, to_make, &frontend_->pool());
  std::vector<OnionRange> ranges;
  Bytes seeds_alone;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(all[i], Make(round, masters[i], submissions[i].first, submissions[i].count));
    ranges.push_back({&masters[i], &submissions[i], 0, submissions[i].count});
    Append(seeds_alone, BytesView(SeedsOf(round, {&ranges.back(), 1}, nullptr)));
  }
  const SecretVector<uint8_t> seeds = SeedsOf(round, ranges, &frontend_->pool());
  EXPECT_EQ(ToBytes(BytesView(seeds)), seeds_alone);
  EXPECT_EQ(seeds.size(), sharing::kSeedsPerQuery * 32 * (5 + 60 * 10));
}

}  // namespace
}  // namespace shoal::client
