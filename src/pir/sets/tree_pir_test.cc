#include "src/pir/sets/tree_pir.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::sets {
namespace {

using shoal::testing::StatusIs;
using shoal::testing::TestRandom;
using testing::Records;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr uint64_t kRows = 300;
constexpr uint32_t kRecordBytes = 20;

// A state that tests look into and change.
class StateStore final : public SessionStore {
 public:
  BytesView saved() const override { return state; }
  std::span<const BytesView> appended() const override { return {}; }
  absl::Status SaveParts(std::span<const BytesView> parts) override {
    if (fails) return absl::UnavailableError("no disk");
    state.clear();
    for (const BytesView part : parts) shoal::Append(state, part);
    ++saves;
    return absl::OkStatus();
  }
  absl::Status Append(BytesView) override {
    return absl::UnimplementedError("these sessions append nothing");
  }
  Bytes state;
  bool fails = false;
  int saves = 0;
};

class TreePirTest : public ::testing::Test {
 protected:
  TreePirTest() : records_(kRows, kRecordBytes) {
    for (auto& server : servers_) {
      auto made = TreePirEngine().CreateServer(records_.content(), {});
      SHOAL_EXPECT_OK(made.status());
      server = *std::move(made);
    }
  }
  std::unique_ptr<Session> Open() {
    const wire::PirSetup setups[] = {servers_[0]->setup(), servers_[1]->setup()};
    auto session = TreePirEngine().OpenSession(setups, {.store = &store_});
    SHOAL_EXPECT_OK(session.status());
    return *std::move(session);
  }
  absl::StatusOr<Bytes> Send(const Request& request) {
    const RequestView view = {.kind = request.kind, .count = request.count, .body = request.body};
    sent_.push_back(request);
    const size_t server = request.role == Role::kOffline ? 0 : 1;
    auto answers = servers_[server]->Answer(request.role, {&view, 1});
    if (answers[0].ok()) {
      EXPECT_EQ(answers[0]->size(), request.answer_bytes);
    }
    return answers[0];
  }
  void Prepare(Session& session) {
    while (session.needed(1) == Session::Need::kRequests) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session.Prepare(random_));
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
      SHOAL_ASSERT_OK(session.TakePrepared(answer));
    }
  }
  void Fetch(Session& session, const std::vector<uint64_t>& rows, uint64_t keys) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session.Ask({.rows = rows, .keys = keys}));
    Bytes expected;
    for (const uint64_t row : rows) Append(expected, records_.at(row));
    while (batch->steps() > 0) Step(*batch);
    const auto fetched = batch->TakeRecords();
    EXPECT_EQ(ToBytes(fetched), expected);
  }
  void Step(Batch& batch) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch.Next(random_));
    ASSERT_EQ(requests.size(), 2u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(requests[0]));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(requests[1]));
    const BytesView answers[] = {offline, online};
    SHOAL_ASSERT_OK(batch.Finish(answers));
  }

  Records records_;
  std::unique_ptr<Server> servers_[2];  // offline, online
  StateStore store_;
  TestRandom random_{1};
  std::vector<Request> sent_;
};

TEST_F(TreePirTest, RecordsComeBackInEveryRun) {
  for (uint64_t run = 0; run < 3; ++run) {
    const auto session = Open();
    sent_.clear();
    Prepare(*session);
    EXPECT_EQ(sent_.size(), run == 0 ? 1u : 0u);
    Fetch(*session, {0, 299, 7, 7, run}, 5);
    Fetch(*session, {run * 20}, 4);
    Fetch(*session, {}, 3);
    EXPECT_EQ(session->Budget(), std::nullopt);
    // Padding looks like the queries that it stands beside.
    ASSERT_EQ(sent_.size(), 24u + (run == 0));
    for (size_t i = sent_.size() - 24; i < sent_.size(); ++i) {
      EXPECT_EQ(sent_[i].role, (sent_.size() - i) % 2 == 0 ? Role::kOffline : Role::kOnline);
      EXPECT_EQ(sent_[i].body.size(), sent_.back().body.size());
    }
  }
}

// Hints come in pieces, and an interrupted preparation goes on where it stopped.
TEST_F(TreePirTest, PreparationGoesOnWhereItStopped) {
  const Records wide(3, 400'000);
  records_ = wide;
  for (auto& server : servers_) {
    SHOAL_ASSERT_OK_AND_ASSIGN(server, TreePirEngine().CreateServer(records_.content(), {}));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape shape, TreeShapeOf(servers_[0]->setup()));
  EXPECT_EQ(TreeHintsOf(shape), 20u);
  const uint32_t pieces = (shape.hints + 19) / 20;
  ASSERT_GT(pieces, 2u);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    const auto session = Open();
    EXPECT_THAT(session->Ask({.rows = {}, .keys = 1}), StatusIs(kPrecondition, "not prepared"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
    EXPECT_EQ(LoadLe<uint32_t>(request.body.data() + 48), 20 * piece);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
    EXPECT_THAT(session->TakePrepared(BytesView(answer).first(answer.size() - 1)),
                StatusIs(kInvalid, "bytes of hints"));
    SHOAL_ASSERT_OK(session->TakePrepared(answer));
  }
  const auto session = Open();
  EXPECT_EQ(session->needed(0), Session::Need::kNothing);
  EXPECT_THAT(session->Prepare(random_), StatusIs(kPrecondition, "nothing is needed"));
  EXPECT_THAT(session->TakePrepared({}), StatusIs(kPrecondition, "nothing is needed"));
  Fetch(*session, {2, 0}, 2);
}

// The process ends after a query was spent: before it was sent, or before an answer came. What is
// sent afterwards are the same bytes, and no hint is spoilt.
TEST_F(TreePirTest, AQueryWithoutAnswersIsSentAgain) {
  Prepare(*Open());
  for (uint64_t i = 0; i < 40; ++i) {
    std::vector<Request> requests;
    {
      const auto session = Open();
      const std::vector<uint64_t> rows = {i};
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
      SHOAL_ASSERT_OK_AND_ASSIGN(requests, batch->Next(random_));
      if (i % 2 == 0) {
        // The session itself does not go on either.
        EXPECT_THAT(batch->Next(random_), StatusIs(kPrecondition, "not finished"));
        EXPECT_THAT(batch->Finish({}), StatusIs(kInvalid, "wrong length"));
        EXPECT_THAT(session->Ask({.rows = rows, .keys = 1}), StatusIs(kPrecondition, "prepared"));
      }
    }
    sent_.clear();
    const auto session = Open();
    EXPECT_EQ(session->needed(0), Session::Need::kRequests);
    Prepare(*session);
    ASSERT_EQ(sent_.size(), 2u);
    for (const Request& request : sent_) {
      const Request& before = requests[request.role == Role::kOffline ? 0 : 1];
      EXPECT_EQ(request.role, before.role);
      EXPECT_EQ(request.body, before.body);
    }
    Fetch(*session, {i, i + 1}, 2);
  }
}

// Nothing that is not durable is sent.
TEST_F(TreePirTest, AStateThatCannotBeSavedEndsTheQuery) {
  const auto session = Open();
  Prepare(*session);
  const std::vector<uint64_t> rows = {5};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
  store_.fails = true;
  EXPECT_THAT(batch->Next(random_), StatusIs(absl::StatusCode::kUnavailable, "no disk"));
  store_.fails = false;
  Prepare(*session);
  Fetch(*session, {5}, 1);
  const int saves = store_.saves;
  Fetch(*session, {5}, 1);
  EXPECT_EQ(store_.saves, saves + 2);
}

TEST_F(TreePirTest, AStateOfAnotherSetupOrADamagedOneIsNotUsed) {
  Prepare(*Open());
  const Bytes good = store_.state;
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape shape, TreeShapeOf(servers_[0]->setup()));
  EXPECT_EQ(Open()->needed(0), Session::Need::kNothing);
  // The first bytes of the id, of the hints taken, of whether a query waits, of its row and hint.
  for (const size_t at : {0, 64 + 11, 64 + 12, 64 + 20, 64 + 32, 64 + 33}) {
    store_.state = good;
    store_.state[at] = 0xff;
    EXPECT_EQ(Open()->needed(0), Session::Need::kRequests) << at;
  }
  for (const size_t bytes : {size_t{0}, size_t{40}, size_t{64}, good.size() - 1}) {
    store_.state.assign(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_EQ(Open()->needed(0), Session::Need::kRequests) << bytes;
  }
  // A shift of more bits than there are.
  store_.state = good;
  store_.state[64 + 34 + 16 * shape.hints + 3] = 1;
  EXPECT_EQ(Open()->needed(0), Session::Need::kRequests);
  store_.state = good;
  const auto session = Open();
  Fetch(*session, {1}, 1);
}

TEST_F(TreePirTest, BadRequestsAreRefused) {
  const auto session = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Request hints, session->Prepare(random_));
  Prepare(*session);
  const std::vector<uint64_t> rows = {5};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
  EXPECT_LE(requests[0].body.size(), servers_[0]->max_request_bytes());
  EXPECT_LE(hints.body.size(), servers_[0]->max_request_bytes());
  const auto expect = [&](Request request, absl::StatusCode code, const char* part) {
    EXPECT_THAT(Send(request), StatusIs(code, part));
  };
  for (Request request : {requests[0], requests[1], hints}) {
    SHOAL_EXPECT_OK(Send(request));
    for (const int change : {0, 1, 2, 3, 4}) {
      Request bad = request;
      if (change == 0) bad.body.push_back(0);
      if (change == 1) bad.body.pop_back();
      if (change == 2) bad.body.clear();
      if (change == 3) bad.kind = 2;
      if (change == 4) bad.count = 2;
      expect(bad, kInvalid, "no request of this engine");
    }
    Request bad = request;
    bad.role = Role::kSingle;
    expect(bad, kInvalid, "to this role");
    bad = request;
    bad.body[3] ^= 1;
    expect(bad, kPrecondition, "another setup");
  }
  Request bad = hints;
  bad.role = Role::kOnline;  // makes no hints
  expect(bad, kInvalid, "to this role");
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeShape shape, TreeShapeOf(servers_[0]->setup()));
  for (const uint32_t first : {shape.hints, ~0u}) {
    bad = hints;
    StoreLe<uint32_t>(bad.body.data() + 48, first);
    expect(bad, kInvalid, "hints from");
  }
  bad = requests[1];
  ASSERT_NE((shape.query_leaves() + 1) * shape.offset_bits % 8, 0u);
  bad.body.back() |= 0x80;
  expect(bad, kInvalid, "behind its end");
  EXPECT_THAT(session->Ask({.rows = std::vector<uint64_t>{kRows}, .keys = 1}),
              StatusIs(kPrecondition, "prepared"));
}

TEST_F(TreePirTest, ServersMustStateTheSame) {
  wire::PirSetup setups[] = {servers_[0]->setup(), servers_[1]->setup()};
  const Engine& engine = TreePirEngine();
  setups[1].set_manifest_digest(std::string(32, 'x'));
  EXPECT_THAT(engine.OpenSession(setups, {.store = &store_}), StatusIs(kInvalid, "different"));
  EXPECT_THAT(engine.OpenSession(std::span(setups).first(1), {.store = &store_}),
              StatusIs(kInvalid, "two setups"));
  EXPECT_THAT(engine.OpenSession(setups, {}), StatusIs(kInvalid, "a place for the state"));
  for (const int change : {0, 1, 2, 3, 4, 5, 6}) {
    wire::PirSetup bad = servers_[0]->setup();
    if (change == 0) bad.set_engine("xor");
    if (change == 1) bad.set_shape("other sets");
    if (change == 2) bad.set_rows(0);
    if (change == 3) bad.set_rows(~uint64_t{0});
    if (change == 4) bad.set_record_bytes(kMaxRecordBytes + 1);
    if (change == 5) bad.set_columns(64);
    if (change == 6) bad.set_hint_bytes(1);
    setups[0] = setups[1] = bad;
    EXPECT_THAT(engine.OpenSession(setups, {.store = &store_}), StatusIs(kInvalid, "")) << change;
  }
  // Answers that nobody could use.
  wire::PirSetup large = servers_[0]->setup();
  large.set_rows(1 << 20);
  large.set_record_bytes(1 << 17);
  EXPECT_THAT(engine.SizesOf(large), StatusIs(kInvalid, "is the most"));
}

TEST_F(TreePirTest, SizesAreThoseOfTheMessages) {
  const wire::PirSetup& setup = servers_[0]->setup();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, TreePirEngine().SizesOf(setup));
  const auto session = Open();
  Prepare(*session);
  sent_.clear();
  Fetch(*session, {9}, 1);
  EXPECT_EQ(sent_[0].body.size() + sent_[1].body.size(), sizes.query_bytes);
  EXPECT_EQ(sent_[0].answer_bytes + sent_[1].answer_bytes, sizes.answer_bytes);
  EXPECT_FALSE(TreePirEngine().WorkOf(setup, 1).answer.empty());
  EXPECT_TRUE(TreePirEngine().keeps_state());
  ASSERT_EQ(TreePirEngine().roles().size(), 2u);
}

// A server takes the next epoch; sessions of the one before are refused, and begin anew.
TEST_F(TreePirTest, EpochsAreTaken) {
  {
    const auto session = Open();
    Prepare(*session);
    records_.Fill(7, 0x77);
    records_.Fill(299, 0x99);
    const std::vector<uint64_t> changed = {7, 299};
    for (auto& server : servers_) {
      EXPECT_THAT(server->Refresh(records_.content(1), changed), StatusIs(kInvalid, "epoch"));
      EXPECT_THAT(server->RefreshShare(records_.content(2), std::vector<uint64_t>{299, 7}),
                  StatusIs(kInvalid, "out of order"));
      EXPECT_THAT(server->RefreshShare(records_.content(2), std::vector<uint64_t>{kRows}),
                  StatusIs(kInvalid, "no such row"));
      SHOAL_ASSERT_OK_AND_ASSIGN(const double share,
                                 server->RefreshShare(records_.content(2), changed));
      EXPECT_LT(share, 0.01);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta, server->Refresh(records_.content(2), changed));
      EXPECT_FALSE(delta.has_value());
    }
    const std::vector<uint64_t> rows = {7};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
    EXPECT_THAT(Send(requests[0]), StatusIs(kPrecondition, "another setup"));
    EXPECT_THAT(session->Advance({}), StatusIs(kInvalid, "do not follow"));
  }
  const auto session = Open();
  EXPECT_EQ(session->needed(0), Session::Need::kRequests);
  Prepare(*session);
  Fetch(*session, {7, 299, 8}, 3);
  const Records other(kRows + 1, kRecordBytes);
  EXPECT_THAT(servers_[0]->Refresh(other.content(3), {}), StatusIs(kInvalid, "another table"));
}

// A server that lies gets a record wrong, and nothing else happens.
TEST_F(TreePirTest, AnyAnswerOfTheRightLengthIsTaken) {
  const auto session = Open();
  Prepare(*session);
  for (int liar = 0; liar < 2; ++liar) {
    const std::vector<uint64_t> rows = {5};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
    Bytes answers[2];
    for (int i = 0; i < 2; ++i) {
      SHOAL_ASSERT_OK_AND_ASSIGN(answers[i], Send(requests[i]));
      if (i == liar) random_.Fill(answers[i]);
    }
    const BytesView views[] = {answers[0], answers[1]};
    SHOAL_ASSERT_OK(batch->Finish(views));
    const auto record = batch->TakeRecords();
    // The offline server spoils the hint that comes, the online one the record. The second query
    // is for the same row, and uses that hint.
    EXPECT_EQ(ToBytes(record) == records_.at(5), liar == 0 && record.size() == kRecordBytes);
  }
}

}  // namespace
}  // namespace shoal::pir::sets
