// What clients and the frontend say to each other in rounds of two tiers (docs/protocol.md, section
// 11): submissions of two pieces, queries of two parts, answers of two halves. Clients are those of
// src/client; both parties are real.
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/byte_source.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/client/device.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/server/frontend.h"
#include "src/server/testing/deployment.h"
#include "src/shoald/driver.h"
#include "src/wire/client.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::Soon;
using ::shoal::testing::StatusIs;
using testing::Deployment;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;

constexpr uint64_t kRows = 40;
constexpr uint32_t kBuckets = 8;

// A client with all its slots in one submission.
struct Device {
  Seed master;
  client::OnionSubmission submission;
  std::string sealed;

  std::vector<client::OnionRange> onions() const {
    return {{&master, &submission, 0, submission.count}};
  }
};

Device MakeDevice(const round::Round& round, uint32_t slots, RandomSource& random) {
  Device device{.master = random.NewSeed(),
                .submission = {.first = 0, .count = slots, .plaintext = {}, .first_slot = {}},
                .sealed = {}};
  const client::SubmissionToMake to_make{&device.master, &device.submission};
  device.sealed = client::MakeSubmissions(round, {&to_make, 1}, nullptr).at(0);
  return device;
}

class TwoTiersFrontendTest : public ::testing::Test {
 protected:
  TwoTiersFrontendTest() {
    auto round = deployment_.Announce();
    EXPECT_THAT(round.status(), IsOk());
    round_ = *std::move(round);
  }

  Frontend& frontend() { return deployment_.frontend(); }
  const Digest& id() const { return round_->id(); }

  Device Make(uint32_t slots) { return MakeDevice(*round_, slots, deployment_.random()); }
  absl::StatusOr<std::vector<uint32_t>> SubmitAll(const std::vector<std::string>& submissions) {
    std::vector<BytesView> views;
    for (const std::string& one : submissions) views.push_back(AsBytes(one));
    SHOAL_ASSIGN_OR_RETURN(auto submitted, frontend().SubmitOnions(id(), views, std::nullopt));
    return submitted.first_slots;
  }
  Device Enter(uint32_t slots) {
    Device device = Make(slots);
    const auto first_slots = SubmitAll({device.sealed});
    EXPECT_THAT(first_slots.status(), IsOk());
    device.submission.first_slot = first_slots->at(0);
    return device;
  }
  absl::Status RunOffline() { return deployment_.RunOffline(id()); }
  absl::Status RunOnline() { return deployment_.RunOnline(id()); }
  wire::SubmitQueriesRequest Queries(const Device& device,
                                     const std::vector<uint32_t>& rows) const {
    std::vector<client::OnionRange> ranges = device.onions();
    ranges[0].count = static_cast<uint32_t>(rows.size());
    return client::MakeQueries(*round_, ranges, rows, nullptr);
  }
  absl::StatusOr<std::vector<Bytes>> Fetch(const Device& device, uint32_t count) {
    std::vector<client::OnionRange> ranges = device.onions();
    ranges[0].count = count;
    SHOAL_ASSIGN_OR_RETURN(const wire::FetchAnswersResponse response,
                           frontend().FetchAnswers(client::MakeFetch(*round_, ranges)));
    EXPECT_EQ(response.answers().size(), count * round_->fetched_bytes());
    Bytes all(count * round_->answer_bytes());
    client::Unmask(*round_, ranges, AsBytes(response.answers()), all);
    std::vector<Bytes> answers;
    for (size_t i = 0; i < count; ++i) {
      answers.push_back(
          ToBytes(BytesView(all).subspan(i * round_->answer_bytes(), round_->answer_bytes())));
    }
    return answers;
  }

  Deployment deployment_{
      {.parties = 2, .rows = kRows, .query_buckets = kBuckets, .most_in_bucket = 1}};
  std::optional<round::Round> round_;
};

TEST_F(TwoTiersFrontendTest, ClientsGetTheRowsThatTheyAskFor) {
  EXPECT_EQ(round_->header().query_buckets(), kBuckets);
  EXPECT_EQ(round_->recipients().size(), 4u);
  std::vector<Device> devices;
  for (const uint32_t slots : {1u, 3u, 8u}) devices.push_back(Enter(slots));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundInfo taking, frontend().Info(id()));
  EXPECT_EQ(taking.onions(), 12u);
  EXPECT_EQ(taking.state(), wire::OPEN_FOR_ONIONS);
  SHOAL_ASSERT_OK(RunOffline());
  // The middle one uses two of its slots, and all rows of a bucket are asked for in the end.
  const std::vector<std::vector<uint32_t>> rows = {{5}, {39, 0}, {7, 15, 23, 31, 39, 1, 2, 5}};
  for (size_t d = 0; d < devices.size(); ++d) {
    SHOAL_ASSERT_OK(frontend().SubmitQueries(Queries(devices[d], rows[d])));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundInfo open, frontend().Info(id()));
  EXPECT_EQ(open.queries(), 11u);
  EXPECT_EQ(open.state(), wire::OPEN_FOR_QUERIES);
  SHOAL_ASSERT_OK(RunOnline());
  EXPECT_EQ(*frontend().State(id()), wire::ANSWERED);
  for (size_t d = 0; d < devices.size(); ++d) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers,
                               Fetch(devices[d], static_cast<uint32_t>(rows[d].size())));
    for (size_t i = 0; i < rows[d].size(); ++i) {
      EXPECT_EQ(answers[i], ToBytes(deployment_.Answer(rows[d][i]))) << d << " " << i;
    }
  }
  EXPECT_THAT(Fetch(devices[1], 3).status(), StatusIs(kRefused, "was not used"));
  // Tokens are those of the heads of half A.
  wire::FetchAnswersRequest other = client::MakeFetch(*round_, devices[0].onions());
  other.mutable_tokens()->back() ^= 1;
  EXPECT_THAT(frontend().FetchAnswers(other).status(), StatusIs(kDenied, "token"));
  // Both halves count towards what one request may fetch.
  wire::FetchAnswersRequest too_many;
  too_many.set_round_id(ToString(id()));
  const size_t most = (2 << 20) / round_->fetched_bytes();
  too_many.mutable_slots()->resize(4 * (most + 1));
  too_many.mutable_tokens()->resize(16 * (most + 1));
  EXPECT_THAT(frontend().FetchAnswers(too_many).status(),
              StatusIs(kInvalid, absl::StrCat(most + 1, " answers of ", round_->fetched_bytes(),
                                              " bytes in one request; at most ", most)));
}

TEST_F(TwoTiersFrontendTest, OnlySubmissionsOfTwoPiecesAreTaken) {
  const Device first = Make(3), second = Make(2);
  const std::string piece_a = first.sealed.substr(0, first.sealed.size() / 2);
  for (const std::string& other :
       {std::string(), piece_a, first.sealed.substr(1), first.sealed + first.sealed,
        std::string(onion::TwoPiecesBytes(0), 'x'),
        std::string(onion::TwoPiecesBytes(onion::kMaxTwoPiecesOnions + 1), 'x')}) {
    EXPECT_THAT(SubmitAll({second.sealed, other}).status(),
                StatusIs(kInvalid, absl::StrCat(other.size(), " bytes are not a submission")));
  }
  EXPECT_THAT(SubmitAll({}).status(), StatusIs(kInvalid, "no submission"));
  EXPECT_EQ(frontend().Info(id())->onions(), 0u) << "a refusal takes nothing";
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto slots, SubmitAll({first.sealed, second.sealed}));
  EXPECT_EQ(slots, (std::vector<uint32_t>{0, 3}));
  // The same bytes have the same slots, in whatever request.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto again,
                             SubmitAll({second.sealed, first.sealed, second.sealed}));
  EXPECT_EQ(again, (std::vector<uint32_t>{3, 0, 3}));
  EXPECT_EQ(frontend().Info(id())->onions(), 5u);
}

// An encapsulated key comes with one submission, in either piece: two plaintexts under one key
// would be sealed with one nonce, and a piece that goes on twice names its client to party 2.
TEST_F(TwoTiersFrontendTest, AnEncapsulatedKeyComesWithOneSubmission) {
  const Device known = Enter(2), other = Make(2);
  const size_t half = known.sealed.size() / 2;
  const std::string known_a = known.sealed.substr(0, half), known_b = known.sealed.substr(half);
  const std::string other_a = other.sealed.substr(0, half), other_b = other.sealed.substr(half);
  std::string changed = known.sealed;
  changed.back() ^= 1;
  for (const std::string& submission :
       {known_a + other_b, other_a + known_b, known_b + other_b, changed}) {
    EXPECT_THAT(SubmitAll({submission}).status(), StatusIs(kInvalid, "same encapsulated key"));
  }
  EXPECT_THAT(SubmitAll({other.sealed, other_a + known_b}).status(),
              StatusIs(kInvalid, "same encapsulated key"));
  // In one request, and in one submission.
  const Device third = Make(2);
  EXPECT_THAT(SubmitAll({third.sealed, third.sealed.substr(0, half) + other_b}).status(),
              StatusIs(kInvalid, "same encapsulated key"));
  EXPECT_THAT(SubmitAll({other_a + other_a}).status(),
              StatusIs(kInvalid, "both pieces of a submission have one encapsulated key"));
  EXPECT_EQ(frontend().Info(id())->onions(), 2u);
  SHOAL_ASSERT_OK(SubmitAll({other.sealed}));
}

// The journal has submissions as they came; each half gets its pieces of them, as often as it has
// to send them.
TEST_F(TwoTiersFrontendTest, TheJournalKeepsSubmissionsAsReceived) {
  Bytes whole, a, b;
  for (const uint32_t slots : {1u, 5u, 2u}) {
    const Device device = Enter(slots);
    const size_t half = device.sealed.size() / 2;
    AppendLe(whole, static_cast<uint32_t>(2 * half));
    Append(whole, AsBytes(device.sealed));
    AppendLe(a, static_cast<uint32_t>(half));
    Append(a, AsBytes(device.sealed).first(half));
    AppendLe(b, static_cast<uint32_t>(half));
    Append(b, AsBytes(device.sealed).last(half));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(HalvesSubmissions pieces, frontend().SealHalves(id()));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(pieces.a.onions, 8u);
    EXPECT_EQ(pieces.b.onions, 8u);
    EXPECT_EQ(pieces.a.list->size(), a.size());
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got_a, ReadAll(*pieces.a.list));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got_b, ReadAll(*pieces.b.list));
    EXPECT_EQ(got_a, a);
    EXPECT_EQ(got_b, b);
    SHOAL_ASSERT_OK_AND_ASSIGN(pieces, frontend().PiecesAgain(id()));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Submissions kept, frontend().SubmissionsAgain(id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, ReadAll(*kept.list));
  EXPECT_EQ(got, whole);
}

// Lengths are refused as such, and tags as tokens are; nothing of a refused request is taken.
TEST_F(TwoTiersFrontendTest, PartsAreTakenAllOrNothing) {
  const Device device = Enter(3), stranger = Enter(3);
  SHOAL_ASSERT_OK(RunOffline());
  const wire::SubmitQueriesRequest right = Queries(device, {5, 6, 7});
  const size_t each = round_->parts_bytes();
  using Change = std::function<void(wire::SubmitQueriesRequest&)>;
  const auto refused = [&](absl::StatusCode code, const std::string& why, const Change& change) {
    wire::SubmitQueriesRequest request = right;
    change(request);
    EXPECT_THAT(frontend().SubmitQueries(request).status(), StatusIs(code, why)) << why;
    EXPECT_EQ(frontend().Info(id())->queries(), 0u);
  };
  const std::string of_slots = absl::StrCat(" bytes of parts for 3 slots, of ", each);
  refused(kInvalid, absl::StrCat(0, of_slots), [](auto& r) { r.clear_parts(); });
  refused(kInvalid, absl::StrCat(3 * each - 1, of_slots),
          [](auto& r) { r.mutable_parts()->pop_back(); });
  refused(kInvalid, absl::StrCat(3 * each + 1, of_slots),
          [](auto& r) { r.mutable_parts()->push_back('x'); });
  // A part A without its part B.
  refused(kInvalid, absl::StrCat(3 * (each - 36), of_slots), [&](auto& r) {
    std::string only_a;
    for (size_t i = 0; i < 3; ++i) only_a += r.parts().substr(i * each, each - 36);
    r.set_parts(only_a);
  });
  refused(kInvalid, "array of slots", [](auto& r) { r.mutable_slots()->push_back('x'); });
  refused(kInvalid, "bytes of parts for 0 slots", [](auto& r) {
    r.clear_slots();
    r.clear_parts();
  });
  refused(kInvalid, "16 bytes of tokens and 0 of tallies",
          [](auto& r) { r.set_tokens(std::string(16, 'x')); });
  refused(kInvalid, "0 bytes of tokens and 12 of tallies",
          [](auto& r) { r.set_tallies(std::string(12, 'x')); });
  refused(kInvalid, "slot 6: the round gave out 6", [](auto& r) { (*r.mutable_slots())[0] = 6; });
  refused(kInvalid, "slot 0 is named twice", [&](auto& r) {
    r.mutable_slots()->replace(4, 4, r.slots().substr(0, 4));
    r.mutable_parts()->replace(each, each, r.parts().substr(0, each));
  });
  // Every bit of both parts is under the tag of part A.
  for (const size_t at : {size_t{0}, each - 36 - 16, each - 37, each - 36, each - 16, each - 1}) {
    refused(kDenied, "slot 1: the tag of its part A is not this slot's", [&](auto& r) {
      std::string& parts = *r.mutable_parts();
      parts[each + at] = static_cast<char>(parts[each + at] ^ 4);
    });
  }
  // Another slot's parts, and part B of one with part A of another.
  refused(kDenied, "slot 0: the tag", [&](auto& r) {
    r.set_parts(r.parts().substr(each, each) + r.parts().substr(0, each) +
                r.parts().substr(2 * each));
  });
  refused(kDenied, "slot 0: the tag", [&](auto& r) {
    r.mutable_parts()->replace(each - 36, 36, r.parts().substr(2 * each - 36, 36));
  });
  refused(kDenied, "slot 3: the tag", [&](auto& r) { (*r.mutable_slots())[8] = 3; });
}

// A slot sends one query for ever: the same bytes may come again, others are refused.
TEST_F(TwoTiersFrontendTest, ASlotTakesOneQueryForEver) {
  const Device device = Enter(3);
  SHOAL_ASSERT_OK(RunOffline());
  const wire::SubmitQueriesRequest first = Queries(device, {5, 6});
  EXPECT_EQ(*frontend().SubmitQueries(first), 2u);
  EXPECT_EQ(*frontend().SubmitQueries(first), 2u);
  EXPECT_THAT(frontend().SubmitQueries(Queries(device, {5, 7})).status(),
              StatusIs(kRefused, "slot 1: was used for another query"));
  // The third slot is not taken with a request that is refused for another.
  EXPECT_THAT(frontend().SubmitQueries(Queries(device, {7, 6, 8})).status(),
              StatusIs(kRefused, "slot 0: was used for another query"));
  EXPECT_EQ(frontend().Info(id())->queries(), 2u);
  EXPECT_EQ(*frontend().SubmitQueries(Queries(device, {5, 6, 8})), 3u);
  SHOAL_ASSERT_OK(RunOnline());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, Fetch(device, 3));
  EXPECT_EQ(answers[1], ToBytes(deployment_.Answer(6)));
  EXPECT_EQ(answers[2], ToBytes(deployment_.Answer(8)));
  EXPECT_THAT(frontend().SubmitQueries(first).status(), StatusIs(kRefused, "takes no queries"));
}

// Piece A of garbage opens for nobody: its slots are dead, and no part has their tag. Piece B of
// garbage is party 2's to notice: the slot is used, and answered with noise.
TEST_F(TwoTiersFrontendTest, PiecesThatDoNotOpen) {
  Device dead_a = Make(1), dead_b = Make(1);
  const size_t half = dead_a.sealed.size() / 2;
  dead_a.sealed[half - 1] ^= 1;
  dead_b.sealed[2 * half - 1] ^= 1;
  for (Device* device : {&dead_a, &dead_b}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto slots, SubmitAll({device->sealed}));
    device->submission.first_slot = slots[0];
  }
  const Device good = Enter(1);
  SHOAL_ASSERT_OK(RunOffline());
  EXPECT_THAT(frontend().SubmitQueries(Queries(dead_a, {5})).status(),
              StatusIs(kDenied,
                       "slot 0: the tag of its part A is not this slot's, or its piece A "
                       "did not open"));
  SHOAL_ASSERT_OK(frontend().SubmitQueries(Queries(dead_b, {5})));
  SHOAL_ASSERT_OK(frontend().SubmitQueries(Queries(good, {5})));
  SHOAL_ASSERT_OK(RunOnline());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto lost, Fetch(dead_b, 1));
  EXPECT_EQ(lost[0], Bytes(round_->answer_bytes())) << "its tag is wrong";
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, Fetch(good, 1));
  EXPECT_EQ(found[0], ToBytes(deployment_.Answer(5)));
}

// The batches for the halves have the same slots, and only the head of half A sees parts A.
TEST_F(TwoTiersFrontendTest, TheBatchesOfBothHalves) {
  const Device device = Enter(4);
  SHOAL_ASSERT_OK(RunOffline());
  wire::SubmitQueriesRequest request = Queries(device, {5, 6, 7, 9});
  const size_t each = round_->parts_bytes();
  request.mutable_slots()->erase(4, 4);
  request.mutable_parts()->erase(each, each);
  SHOAL_ASSERT_OK(frontend().SubmitQueries(request));
  SHOAL_ASSERT_OK_AND_ASSIGN(const HalvesQueries queries, frontend().CloseParts(id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RecordBatch a,
                             wire::DecodeRecordBatch(queries.a, 4, each));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RecordBatch b, wire::DecodeRecordBatch(queries.b, 4, 36));
  EXPECT_EQ(a.positions, (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(b.positions, a.positions);
  EXPECT_EQ(ToString(a.records), request.parts());
  std::string parts_b;
  for (size_t i = 0; i < 3; ++i) parts_b += request.parts().substr((i + 1) * each - 36, 36);
  EXPECT_EQ(ToString(b.records), parts_b);
}

// A plan with terms is refused where a round can have none.
TEST_F(TwoTiersFrontendTest, APlanWithTermsIsRefused) {
  RoundPlan plan;
  plan.terms.refreshes = 3;
  EXPECT_THAT(CheckPlan(plan, deployment_.roster()),
              StatusIs(kRefused, "two tiers (most_in_bucket 1)"));
}

// The driver takes the steps of both halves, and takes them again with the same bytes after a link
// has broken in any of party 1's calls.
class TwoTiersDriverTest : public ::testing::TestWithParam<testing::HeadCall> {
 protected:
  Deployment deployment_{{.parties = 2,
                          .rows = kRows,
                          .plan = {.onions_count = 3, .queries_count = 2, .stage_limit_s = 100},
                          .query_buckets = kBuckets,
                          .most_in_bucket = 1}};
};

TEST_P(TwoTiersDriverTest, RunsBothHalves) {
  std::atomic<int> calls = 0, broken = 0;
  deployment_.tamper(1).breaks_head = [&](testing::HeadCall call, testing::Break at) {
    if (call != GetParam()) return false;
    calls += at == testing::Break::kBefore;
    return at == testing::Break::kAfter && broken.exchange(1) == 0;
  };
  Frontend& frontend = deployment_.frontend();
  const shoald::Driver driver(&frontend, &deployment_.node(1), &deployment_.clock());
  ASSERT_TRUE(Soon([&] { return frontend.ListRounds().rounds_size() > 0; }));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const round::Round round,
      round::Round::Verify(frontend.ListRounds().rounds(0).header(), deployment_.roster(),
                           deployment_.table(), deployment_.clock().NowSeconds()));
  Device device = MakeDevice(round, 3, deployment_.random());
  const BytesView sealed = AsBytes(device.sealed);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto submitted,
                             frontend.SubmitOnions(round.id(), {&sealed, 1}, std::nullopt));
  device.submission.first_slot = submitted.first_slots[0];
  const auto reaches = [&](wire::RoundState state) {
    return Soon([&] { return frontend.State(round.id()).value_or(wire::CLOSED) == state; });
  };
  ASSERT_TRUE(reaches(wire::OPEN_FOR_QUERIES)) << frontend.AbortReason(round.id());
  std::vector<client::OnionRange> ranges = device.onions();
  ranges[0].count = 2;
  SHOAL_ASSERT_OK(frontend.SubmitQueries(
      client::MakeQueries(round, ranges, std::vector<uint32_t>{17, 4}, nullptr)));
  ASSERT_TRUE(reaches(wire::ANSWERED)) << frontend.AbortReason(round.id());
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::FetchAnswersResponse response,
                             frontend.FetchAnswers(client::MakeFetch(round, ranges)));
  Bytes answers(2 * round.answer_bytes());
  client::Unmask(round, ranges, AsBytes(response.answers()), answers);
  Bytes expected = ToBytes(deployment_.Answer(17));
  Append(expected, deployment_.Answer(4));
  EXPECT_EQ(answers, expected);
  EXPECT_EQ(calls.load(), 2) << "the first try, and the one after the link broke";
}

INSTANTIATE_TEST_SUITE_P(Calls, TwoTiersDriverTest,
                         ::testing::Values(testing::HeadCall::kOffline, testing::HeadCall::kQueries,
                                           testing::HeadCall::kAnswers));

// In a round for rows a request with parts is refused, and takes nothing.
TEST(RowsFrontendTest, PartsAreRefused) {
  Deployment deployment({.parties = 2});
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment.Announce());
  EXPECT_EQ(round.header().query_buckets(), 0u);
  testing::Client client(&deployment, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  SHOAL_ASSERT_OK(deployment.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query({5}));
  wire::SubmitQueriesRequest request = client.QueriesRequest();
  request.set_parts(std::string(80, 'x'));
  EXPECT_THAT(deployment.frontend().SubmitQueries(request).status(),
              StatusIs(kInvalid, "80 bytes of parts, which are for rounds of two tiers"));
  request.clear_tokens();
  request.clear_tallies();
  EXPECT_THAT(deployment.frontend().SubmitQueries(request).status(), StatusIs(kInvalid, "parts"));
}

}  // namespace
}  // namespace shoal::server
