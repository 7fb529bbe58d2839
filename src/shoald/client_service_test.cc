// The frontend's answers to clients, frame by frame, over a whole deployment in this process.
#include "src/shoald/client_service.h"

#include <future>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/roster/testing/parties.h"
#include "src/server/testing/deployment.h"
#include "src/shoald/table_epochs.h"
#include "src/table/testing/signed_table.h"

namespace shoal::shoald {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using table::testing::Layout;
using wire::Frame;
using wire::FrameType;
using namespace std::chrono_literals;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kLong = 30s;

// Counts what is made durable, and can be made to wait or to fail.
class GatedJournal final : public server::Journal {
 public:
  absl::Status AppendSubmission(RoundCounter, BytesView) override { return absl::OkStatus(); }
  absl::Status Sync(RoundCounter) override {
    std::unique_lock lock(mutex_);
    ++syncs_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return result_;
  }

  absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter, uint64_t) override {
    return absl::UnimplementedError("not asked for in these tests");
  }
  absl::Status StoreRounds(BytesView) override { return absl::OkStatus(); }
  absl::StatusOr<Bytes> LoadRounds() const override { return Bytes(); }

  void Shut() { Set(false, absl::OkStatus()); }
  void Open(absl::Status result = absl::OkStatus()) { Set(true, std::move(result)); }
  void WaitForSync(int count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return syncs_ >= count; }));
  }
  int syncs() {
    std::lock_guard lock(mutex_);
    return syncs_;
  }

 protected:
  absl::Status Persist(BytesView) override { return absl::OkStatus(); }
  absl::Status DeleteSubmissions(RoundCounter) override { return absl::OkStatus(); }

 private:
  void Set(bool open, absl::Status result) {
    std::lock_guard lock(mutex_);
    open_ = open;
    result_ = std::move(result);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  absl::Status result_;
  int syncs_ = 0;
};

struct TestTable {
  TestTable() : random(7), pool(1), parties(3, random), roster(parties.roster()) {
    table = Make(1);
    next = Make(2);
  }
  std::shared_ptr<const table::Table> Make(uint64_t epoch) {
    return std::make_shared<const table::Table>(table::testing::MakeTable(
        table::testing::Records(500, Layout::kHashed, [](size_t) { return "value"; }),
        table::testing::Options(2048, epoch), Layout::kHashed, parties, roster,
        roster::testing::kNowS, random, pool));
  }
  shoal::testing::TestRandom random;
  ThreadPool pool;
  roster::testing::Parties parties;
  roster::Roster roster;
  std::shared_ptr<const table::Table> table, next;
};
const TestTable& SharedTable() {
  static const TestTable* const table = new TestTable;
  return *table;
}

class ClientServiceTest : public ::testing::Test {
 protected:
  explicit ClientServiceTest(
      server::testing::DeploymentOptions options = {.rows = 10, .plan = {.stage_limit_s = 100}})
      : deployment_(std::move(options)) {
    service_ = std::make_unique<ClientService>(&deployment_.frontend(), &SharedTable().roster,
                                               &epochs_, &journal_);
  }
  ~ClientServiceTest() override { journal_.Open(); }

  std::future<Frame> Send(Frame request) {
    auto promise = std::make_shared<std::promise<Frame>>();
    std::future<Frame> future = promise->get_future();
    service_->Handle(std::move(request),
                     net::Reply([promise](Frame frame, std::unique_ptr<ByteSource>) {
                       promise->set_value(std::move(frame));
                     }));
    return future;
  }
  template <typename Response>
  absl::StatusOr<Response> Read(std::future<Frame> future, FrameType type) {
    if (future.wait_for(kLong) != std::future_status::ready) {
      return absl::DeadlineExceededError("no answer");
    }
    const Frame frame = future.get();
    if (frame.type == FrameType::kError) return wire::ErrorOf(frame);
    Response response;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(frame, type, response));
    return response;
  }
  template <typename Response, typename Request>
  absl::StatusOr<Response> Ask(FrameType type, const Request& request) {
    return Read<Response>(Send(wire::MakeFrame(type, request)), type);
  }
  static bool Answered(const std::future<Frame>& future) {
    return future.wait_for(0s) == std::future_status::ready;
  }

  wire::SubmitOnionsRequest Onions(server::testing::Client& client, size_t count) {
    wire::SubmitOnionsRequest request;
    request.set_round_id(ToString(client.round().id()));
    for (size_t i = 0; i < count; ++i) {
      client.Add(client.Make());
      request.add_submissions(ToString(client.secrets().back().submission));
    }
    return request;
  }
  std::future<Frame> WaitFor(const round::Round& round, wire::RoundState state,
                             uint32_t timeout_ms) {
    wire::WaitRoundRequest request;
    request.set_round_id(ToString(round.id()));
    request.set_state(state);
    request.set_timeout_ms(timeout_ms);
    return Send(wire::MakeFrame(FrameType::kWaitRound, request));
  }

  server::testing::Deployment deployment_;
  GatedJournal journal_;
  std::promise<void> entered_, gate_;
  TableEpochs epochs_{SharedTable().table};
  std::unique_ptr<ClientService> service_;
};

TEST_F(ClientServiceTest, TheDeploymentIsToldAsItWasSigned) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto response,
      (Ask<wire::GetDeploymentResponse>(FrameType::kGetDeployment, wire::GetDeploymentRequest())));
  EXPECT_EQ(response.roster().SerializeAsString(), SharedTable().roster.wire().SerializeAsString());
  EXPECT_EQ(response.manifest().SerializeAsString(),
            SharedTable().table->manifest().wire().SerializeAsString());
}

TEST_F(ClientServiceTest, ThePlacementComesInPieces) {
  const table::Table& table = *SharedTable().table;
  const BytesView placement = table.map().placement();
  ASSERT_GT(placement.size(), 3u);
  wire::GetPlacementRequest request;
  request.set_manifest_digest(ToString(table.manifest().digest()));
  const auto ask = [&] {
    return Ask<wire::GetPlacementResponse>(FrameType::kGetPlacement, request);
  };
  std::string all;
  request.set_max_bytes(static_cast<uint32_t>(placement.size() / 3));
  for (;;) {
    request.set_offset(all.size());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto piece, ask());
    EXPECT_EQ(piece.total_bytes(), placement.size());
    EXPECT_LE(piece.data().size(), placement.size() / 3);
    if (piece.data().empty()) break;  // at the end
    all += piece.data();
  }
  EXPECT_EQ(all, ToString(placement));

  request.set_offset(placement.size() + 1);
  EXPECT_THAT(ask(), StatusIs(absl::StatusCode::kOutOfRange, "bytes"));
  request.set_offset(~0ull);
  EXPECT_THAT(ask(), StatusIs(absl::StatusCode::kOutOfRange, "bytes"));
  request.set_offset(0);
  request.set_manifest_digest(std::string(32, 'x'));
  EXPECT_THAT(ask(), StatusIs(kRefused, "another epoch"));
  request.set_manifest_digest("");
  EXPECT_THAT(ask(), StatusIs(kRefused, "another epoch"));
}

// A client that holds the epoch before is told to ask for the deployment again.
TEST_F(ClientServiceTest, TheNextEpochIsToldFromWhenItIsServed) {
  wire::GetPlacementRequest request;
  request.set_max_bytes(1000);
  const auto ask = [&](const table::Table& table) {
    request.set_manifest_digest(ToString(table.manifest().digest()));
    return Ask<wire::GetPlacementResponse>(FrameType::kGetPlacement, request);
  };
  EXPECT_THAT(ask(*SharedTable().next), StatusIs(kRefused, "another epoch"));
  epochs_.Serve(TableEpochs(SharedTable().next).newest());
  // One that was taken at the same time, and comes late.
  epochs_.Serve(TableEpochs(SharedTable().table).newest());
  EXPECT_THAT(ask(*SharedTable().table),
              StatusIs(kRefused, "epoch 2: ask for the deployment again"));
  SHOAL_EXPECT_OK(ask(*SharedTable().next).status());
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto response,
      (Ask<wire::GetDeploymentResponse>(FrameType::kGetDeployment, wire::GetDeploymentRequest())));
  EXPECT_EQ(response.manifest().SerializeAsString(),
            SharedTable().next->manifest().wire().SerializeAsString());
}

TEST_F(ClientServiceTest, WhatIsNoClientsRequestIsRefused) {
  for (FrameType type : {FrameType::kError, FrameType::kProposeRound, FrameType::kOffline,
                         FrameType::kOnline, FrameType::kLiveRounds}) {
    EXPECT_FALSE(service_->Limits(type).ok());
    EXPECT_THAT(Read<wire::Error>(Send({.type = type, .control = "", .bulk = {}}), type),
                StatusIs(kInvalid, "client"));
  }
  for (FrameType type : {FrameType::kGetPlacement, FrameType::kWaitRound, FrameType::kSubmitOnions,
                         FrameType::kSubmitQueries, FrameType::kFetchAnswers,
                         FrameType::kGetRefresh, FrameType::kFetchRefresh}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::FrameLimits limits, service_->Limits(type));
    EXPECT_LE(limits.control_bytes, wire::kMaxClientControlBytes);
    EXPECT_EQ(limits.bulk_bytes, 0u);
    EXPECT_THAT(Read<wire::Error>(Send({.type = type, .control = "\xff\xff", .bulk = {}}), type),
                StatusIs(kInvalid, "malformed"));
  }
  // Ids of other lengths, and ids of no round.
  for (const std::string id : {"", "short", "one byte too long for a round id."}) {
    wire::WaitRoundRequest wait;
    wait.set_round_id(id);
    EXPECT_THAT(Ask<wire::WaitRoundResponse>(FrameType::kWaitRound, wait),
                StatusIs(kInvalid, "32 bytes"));
    wire::SubmitOnionsRequest onions;
    onions.set_round_id(id);
    EXPECT_THAT(Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, onions),
                StatusIs(kInvalid, "32 bytes"));
  }
  wire::WaitRoundRequest wait;
  wait.set_round_id(std::string(32, 'x'));
  wait.set_timeout_ms(60'000);
  EXPECT_THAT(Ask<wire::WaitRoundResponse>(FrameType::kWaitRound, wait),
              StatusIs(kNotFound, "no round"));
  wire::SubmitOnionsRequest onions;
  onions.set_round_id(std::string(32, 'x'));
  EXPECT_THAT(Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, onions),
              StatusIs(kNotFound, "no round"));
}

// A submission of no bytes has two in the request and forty once it is parsed: 4 MiB of them would
// take 80 MB.
TEST_F(ClientServiceTest, ManyShortSubmissionsAreRefusedBeforeTheyAreParsed) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  wire::SubmitOnionsRequest request;
  request.set_round_id(ToString(round.id()));
  for (int i = 0; i < 100'000; ++i) request.add_submissions("");
  EXPECT_THAT(Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request),
              StatusIs(kInvalid, "more than 2501 fields"));
  // As many submissions of the shortest length as fit are looked at, and a few short ones.
  request.clear_submissions();
  for (size_t i = 0; i < 1000; ++i) {
    request.add_submissions(std::string(server::kShortestSubmissionBytes, 'x'));
  }
  EXPECT_THAT(Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request),
              StatusIs(kInvalid, "are not a submission"));
  request.clear_submissions();
  request.add_submissions(std::string(50, 'x'));
  EXPECT_THAT(Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request),
              StatusIs(kInvalid, "are not a submission"));
}

TEST_F(ClientServiceTest, ARoundRunsFrameByFrame) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto rounds,
      (Ask<wire::ListRoundsResponse>(FrameType::kListRounds, wire::ListRoundsRequest())));
  ASSERT_EQ(rounds.rounds_size(), 1);
  EXPECT_EQ(rounds.rounds(0).header().SerializeAsString(), round.wire().SerializeAsString());

  server::testing::Client client(&deployment_, round);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto submitted,
      (Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, Onions(client, 5))));
  ASSERT_EQ(submitted.first_slots_size(), 5);
  for (int i = 0; i < 5; ++i) client.secrets()[i].slot = submitted.first_slots(i);
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query({3, 1, 4, 1, 5}));  // chooses the rows
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto accepted,
      (Ask<wire::SubmitQueriesResponse>(FrameType::kSubmitQueries, client.QueriesRequest())));
  EXPECT_EQ(accepted.accepted(), 5u);
  EXPECT_THAT(Ask<wire::FetchAnswersResponse>(FrameType::kFetchAnswers, client.AnswersRequest()),
              StatusIs(kFailedPrecondition, "no answers"));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto answers,
      (Ask<wire::FetchAnswersResponse>(FrameType::kFetchAnswers, client.AnswersRequest())));
  const size_t tagged_bytes = round.tagged_bytes();
  ASSERT_EQ(answers.answers().size(), 5 * tagged_bytes);
  Bytes last = ToBytes(AsBytes(answers.answers()).last(tagged_bytes));
  EXPECT_TRUE(client.secrets()[4].Unmask(round.id(), last));
  EXPECT_TRUE(std::ranges::equal(last, deployment_.Answer(5)));

  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto status,
      (Ask<wire::GetStatusResponse>(FrameType::kGetStatus, wire::GetStatusRequest())));
  EXPECT_EQ(status.deployment(), "test");
  ASSERT_EQ(status.rounds_size(), 1);
  EXPECT_EQ(status.rounds(0).round().state(), wire::ANSWERED);
  EXPECT_GE(status.rounds(0).stages_size(), 6);  // offline and online at three parties
}

// From the batch at the frontend until all parties are done: what lies between counts, wherever it
// was spent.
TEST_F(ClientServiceTest, StatusTellsHowLongAStageTookOverTheWholeChain) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  server::testing::Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(5));
  server::Frontend& frontend = deployment_.frontend();
  const auto report = [&] { return frontend.Reports().at(0); };

  const auto start = std::chrono::steady_clock::now();
  SHOAL_ASSERT_OK_AND_ASSIGN(auto onions, frontend.Seal(round.id()));
  std::this_thread::sleep_for(30ms);
  SHOAL_ASSERT_OK(deployment_.node(1).Offline(round.wire(), std::move(onions)));
  EXPECT_EQ(report().offline_ms(), 0u);
  SHOAL_ASSERT_OK(frontend.OfflineDone(round.id(), *deployment_.node(1).Reports(round.id())));
  const std::chrono::duration<double, std::milli> offline =
      std::chrono::steady_clock::now() - start;
  EXPECT_GE(report().offline_ms(), 30u);
  EXPECT_LE(static_cast<double>(report().offline_ms()), offline.count());

  SHOAL_ASSERT_OK(client.Query({3, 1, 4, 1, 5}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, frontend.CloseQueries(round.id()));
  std::this_thread::sleep_for(30ms);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers,
                             deployment_.node(1).OnlineOfKept(round.id(), queries));
  EXPECT_EQ(report().online_ms(), 0u);
  SHOAL_ASSERT_OK(
      frontend.AnswersReady(round.id(), *answers, [] { return server::StageReports(); }));
  EXPECT_GE(report().online_ms(), 30u);
}

TEST_F(ClientServiceTest, SlotsAreAcknowledgedOnceTheyAreDurableAndInGroups) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  journal_.Shut();
  server::testing::Client client(&deployment_, round);
  std::vector<std::future<Frame>> answers;
  answers.push_back(Send(wire::MakeFrame(FrameType::kSubmitOnions, Onions(client, 1))));
  journal_.WaitForSync(1);
  // While the first group is on its way to the disk the next one gathers.
  for (int i = 0; i < 50; ++i) {
    answers.push_back(Send(wire::MakeFrame(FrameType::kSubmitOnions, Onions(client, 1))));
  }
  for (const auto& answer : answers) EXPECT_FALSE(Answered(answer));
  journal_.Open();
  std::set<uint32_t> slots;
  for (auto& answer : answers) {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto response,
        Read<wire::SubmitOnionsResponse>(std::move(answer), FrameType::kSubmitOnions));
    ASSERT_EQ(response.first_slots_size(), 1);
    slots.insert(response.first_slots(0));
  }
  EXPECT_EQ(slots.size(), 51u);
  EXPECT_EQ(journal_.syncs(), 2);
}

// Requests come on the threads that serve all connections.
TEST_F(ClientServiceTest, NoRequestWaitsForTheDisk) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  server::testing::Client client(&deployment_, round);
  std::promise<void> stuck, finish;
  deployment_.disk(1).before_write = [&, finished = finish.get_future().share(),
                                      first = true]() mutable {
    if (std::exchange(first, false)) stuck.set_value();
    finished.wait();
  };
  auto submitted = Send(wire::MakeFrame(FrameType::kSubmitOnions, Onions(client, 1)));
  stuck.get_future().wait();
  auto more = Send(wire::MakeFrame(FrameType::kSubmitOnions, Onions(client, 1)));
  SHOAL_EXPECT_OK(Ask<wire::ListRoundsResponse>(FrameType::kListRounds, wire::ListRoundsRequest()));
  SHOAL_EXPECT_OK(
      Read<wire::WaitRoundResponse>(WaitFor(round, wire::SEALED, 0), FrameType::kWaitRound));
  EXPECT_FALSE(Answered(submitted));
  EXPECT_FALSE(Answered(more));
  finish.set_value();
  SHOAL_EXPECT_OK(Read<wire::SubmitOnionsResponse>(std::move(submitted), FrameType::kSubmitOnions));
  SHOAL_EXPECT_OK(Read<wire::SubmitOnionsResponse>(std::move(more), FrameType::kSubmitOnions));
  deployment_.disk(1).before_write = nullptr;
}

TEST_F(ClientServiceTest, SlotsThatCouldNotBeMadeDurableAreNotAcknowledged) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  server::testing::Client client(&deployment_, round);
  const absl::Status full = absl::ResourceExhaustedError("/state/round-7: disk full");
  journal_.Open(full);
  const wire::SubmitOnionsRequest request = Onions(client, 3);
  const auto ask = [&] {
    return Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request);
  };
  const absl::Status refused = ask().status();
  EXPECT_THAT(refused, StatusIs(kFailedPrecondition, "takes no onions any more"));
  EXPECT_EQ(refused.message().find("/state"), absl::string_view::npos) << refused;
  // What one sync has lost no other brings back.
  journal_.Open();
  EXPECT_THAT(ask(), StatusIs(kFailedPrecondition, "takes no onions any more"));
  const std::vector<server::Due> due = deployment_.frontend().WhatIsDue();
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].action, server::Action::kAbort);
  EXPECT_EQ(due[0].round_id, round.id());
  EXPECT_EQ(due[0].why, full);
}

TEST_F(ClientServiceTest, SlotsThatAreNotDurableYetAreAcknowledgedToWhoTriesAgain) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  server::testing::Client client(&deployment_, round);
  const wire::SubmitOnionsRequest request = Onions(client, 3);
  const auto ask = [&] {
    return Ask<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request);
  };
  journal_.Open(absl::UnavailableError("/state: not now"));
  EXPECT_THAT(ask(), StatusIs(absl::StatusCode::kUnavailable, "stored just now"));
  EXPECT_TRUE(deployment_.frontend().WhatIsDue().empty());
  journal_.Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto response, ask());
  EXPECT_EQ(response.first_slots_size(), 3);
}

TEST_F(ClientServiceTest, WhoWaitsHearsOfTheStateOrOfTheDeadline) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  const auto read = [&](std::future<Frame> future) -> absl::StatusOr<wire::RoundState> {
    SHOAL_ASSIGN_OR_RETURN(const auto response,
                           Read<wire::WaitRoundResponse>(std::move(future), FrameType::kWaitRound));
    return response.round().state();
  };
  // Reached already; no time to wait.
  EXPECT_TRUE(Answered(WaitFor(round, wire::OPEN_FOR_ONIONS, 60'000)));
  EXPECT_TRUE(Answered(WaitFor(round, wire::CLOSED, 0)));
  std::future<Frame> queries = WaitFor(round, wire::OPEN_FOR_QUERIES, 60'000);
  std::future<Frame> closed = WaitFor(round, wire::CLOSED, 60'000);
  // The deadline of one who came later.
  const auto start = std::chrono::steady_clock::now();
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundState state, read(WaitFor(round, wire::CLOSED, 200)));
  EXPECT_EQ(state, wire::OPEN_FOR_ONIONS);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 200ms);

  EXPECT_FALSE(Answered(queries));
  EXPECT_FALSE(Answered(closed));
  server::testing::Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(2));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundState reached, read(std::move(queries)));
  EXPECT_EQ(reached, wire::OPEN_FOR_QUERIES);
  EXPECT_FALSE(Answered(closed));
  // An abort is later than every state: nobody waits in vain.
  std::future<Frame> answered = WaitFor(round, wire::ANSWERED, 60'000);
  deployment_.frontend().Abort(round.id(), "party 2 is gone");
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto aborted, Read<wire::WaitRoundResponse>(
                                                     std::move(answered), FrameType::kWaitRound));
  EXPECT_EQ(aborted.round().state(), wire::ABORTED);
  EXPECT_EQ(aborted.round().abort_reason(), "party 2 is gone");
  EXPECT_THAT(read(std::move(closed)), IsOk());
}

// The code that has a client ask again.
TEST_F(ClientServiceTest, WhoWaitsBesideTooManyOthersIsToldToTryAgain) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  std::vector<std::future<Frame>> waiting;
  for (int i = 0; i < 1 << 16; ++i) waiting.push_back(WaitFor(round, wire::ANSWERED, 60'000));
  EXPECT_FALSE(Answered(waiting.back()));
  EXPECT_THAT(
      Read<wire::WaitRoundResponse>(WaitFor(round, wire::ANSWERED, 60'000), FrameType::kWaitRound),
      StatusIs(absl::StatusCode::kUnavailable, "too many clients wait"));
  EXPECT_TRUE(Answered(WaitFor(round, wire::ANSWERED, 0)));  // does not wait
}

TEST_F(ClientServiceTest, WhoWaitsIsDroppedWhenTheServiceEnds) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  std::vector<std::future<Frame>> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(WaitFor(round, wire::CLOSED, 60'000));
  service_.reset();
  for (auto& future : waiting) {
    EXPECT_THAT(Read<wire::WaitRoundResponse>(std::move(future), FrameType::kWaitRound),
                StatusIs(absl::StatusCode::kInternal, "dropped"));
  }
}

server::testing::DeploymentOptions WithTerms() {
  wire::TermLimit limit;
  limit.set_days(1);
  limit.set_refreshes(5);
  return {.rows = 10,
          .plan = {.stage_limit_s = 100, .terms = {.refreshes = 5, .every_hours = 1}},
          .term_limit = limit};
}

class TermServiceTest : public ClientServiceTest {
 protected:
  TermServiceTest() : ClientServiceTest(WithTerms()) {
    service_ =
        std::make_unique<ClientService>(&deployment_.frontend(), &SharedTable().roster, &epochs_,
                                        &journal_, nullptr, &deployment_.refreshes());
  }
};

TEST_F(TermServiceTest, RefreshesAreServedFrameByFrame) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  server::testing::Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(3));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query({4, 5, 9}));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  wire::GetRefreshRequest get;
  get.set_round_id(ToString(round.id()));
  const auto latest = [&] { return Ask<wire::GetRefreshResponse>(FrameType::kGetRefresh, get); };
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::GetRefreshResponse none, latest());
  EXPECT_FALSE(none.has_refresh());
  const auto status = [&] {
    return Ask<wire::GetStatusResponse>(FrameType::kGetStatus, wire::GetStatusRequest());
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::GetStatusResponse before, status());
  ASSERT_EQ(before.terms_size(), 1);
  EXPECT_EQ(before.terms(0).counter(), round.counter().value());
  EXPECT_EQ(before.terms(0).number(), 0);

  deployment_.MakeEpoch(10, deployment_.table().row_bytes);
  for (uint32_t party = 1; party <= 3; ++party) SHOAL_ASSERT_OK(deployment_.Take(party, 2));
  deployment_.refreshes().SetProblem(round.id(), "party 2 is away");
  EXPECT_EQ(status()->terms(0).problem(), "party 2 is away");
  SHOAL_ASSERT_OK(deployment_.RunRefresh(round.id()));
  deployment_.clock().steady_s += 70;
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::GetStatusResponse after, status());
  const wire::TermReport& term = after.terms(0);
  EXPECT_EQ(term.number(), 1);
  EXPECT_EQ(term.epoch(), 2);
  EXPECT_EQ(term.max_refreshes(), 5);
  EXPECT_EQ(term.positions(), 3);
  EXPECT_EQ(term.age_s(), 70);
  EXPECT_EQ(term.problem(), "");

  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::GetRefreshResponse shown, latest());
  EXPECT_EQ(shown.tags().size(), 3 * sizeof(round::RefreshTag));
  wire::FetchRefreshRequest fetch = client.RefreshRequest(shown);
  const auto fetched = [&] {
    return Ask<wire::FetchRefreshResponse>(FrameType::kFetchRefresh, fetch);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::FetchRefreshResponse answers, fetched());
  EXPECT_EQ(answers.answers().size(), 3 * round.tagged_bytes());
  fetch.set_number(2);
  EXPECT_THAT(fetched(), StatusIs(kRefused, "latest"));
  deployment_.refreshes().End(round.id(), "test");
  EXPECT_THAT(latest(), StatusIs(kNotFound, "no term"));
  EXPECT_THAT(fetched(), StatusIs(kNotFound, "no term"));
}

// One of many requests of a block that ask for much does not hold up those of another block.
TEST_F(TermServiceTest, BlocksTakeTurnsAtTheDisk) {
  const auto ask = [&](uint8_t block, std::vector<int>& order, int number) {
    wire::FetchRefreshRequest fetch;
    fetch.set_round_id(std::string(32, 'x'));
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> future = done->get_future();
    service_->Handle(wire::MakeFrame(FrameType::kFetchRefresh, fetch),
                     net::Reply(
                         [this, done, &order, number](Frame, std::unique_ptr<ByteSource>) {
                           if (number < 0) {
                             entered_.set_value();
                             gate_.get_future().wait();
                           }
                           order.push_back(number);  // on the one thread that fetches
                           done->set_value();
                         },
                         Origin(AddressBlock(MappedIpv4({192, 0, 2, block})))));
    return future;
  };
  std::vector<int> order;
  std::vector<std::future<void>> asked;
  asked.push_back(ask(1, order, -1));  // holds the thread until all others wait
  entered_.get_future().wait();
  for (int i = 0; i < 3; ++i) asked.push_back(ask(1, order, i));
  asked.push_back(ask(2, order, 10));
  asked.push_back(ask(3, order, 20));
  gate_.set_value();
  for (std::future<void>& one : asked) ASSERT_EQ(one.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(order, (std::vector<int>{-1, 0, 10, 20, 1, 2}));
}

}  // namespace
}  // namespace shoal::shoald
