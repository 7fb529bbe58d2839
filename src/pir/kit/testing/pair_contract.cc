#include "src/pir/kit/testing/pair_contract.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/pir/kit/table_server.h"

namespace shoal::pir::testing {
namespace {

using shoal::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

Bytes BehindTheId(const Request& request) {
  return {request.body.begin() + sizeof(Digest), request.body.end()};
}

}  // namespace

void ExpectReadAndWithoutQueries(
    TwoVersions versions,
    const std::function<absl::StatusOr<std::unique_ptr<Session>>(SessionStore&)>& open) {
  {
    MemoryStore store(versions.first);
    SHOAL_ASSERT_OK(open(store).status());
    EXPECT_EQ(store.disk(), versions.now);
  }
  versions.first.records.pop_back();
  MemoryStore store(versions.first);
  SHOAL_ASSERT_OK(open(store).status());
  EXPECT_EQ(store.disk(), versions.asked);
  MemoryStore again(store.disk());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, open(again));
  EXPECT_EQ(session->needed(0), Session::Need::kRequests) << "the same query is sent again";
  EXPECT_EQ(again.writes(), 0u);
}

PairContract::PairContract(const Engine& engine, uint64_t rows, uint32_t record_bytes)
    : engine_(engine), records_(rows, record_bytes) {
  MakeServers();
}

void PairContract::MakeServers(ServerOptions options) {
  for (auto& server : servers_) {
    auto made = engine_.CreateServer(records_.content(), options);
    SHOAL_EXPECT_OK(made.status());
    server = *std::move(made);
  }
}

std::unique_ptr<Session> PairContract::Open() {
  store_.emplace(MemoryStore::Disk(store_->disk()));
  auto session = TryOpen();
  SHOAL_EXPECT_OK(session.status());
  return *std::move(session);
}

absl::StatusOr<std::unique_ptr<Session>> PairContract::OpenOn(SessionStore& store) {
  const wire::PirSetup setups[] = {servers_[0]->setup(), servers_[1]->setup()};
  return engine_.OpenSession(setups, {.store = &store, .check = check_});
}

absl::StatusOr<Bytes> PairContract::Send(const Request& request) {
  const RequestView view = {.kind = request.kind, .count = request.count, .body = request.body};
  sent_.push_back(request);
  const size_t server = request.role == Role::kOffline ? 0 : 1;
  auto answers = servers_[server]->Answer(request.role, {&view, 1});
  if (answers[0].ok()) {
    EXPECT_EQ(answers[0]->size(), request.answer_bytes);
  }
  return answers[0];
}

void PairContract::Prepare(Session& session) {
  while (session.needed(1) == Session::Need::kRequests) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session.Prepare(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
    SHOAL_ASSERT_OK(session.TakePrepared(answer));
  }
}

void PairContract::Fetch(Session& session, const std::vector<uint64_t>& rows, uint64_t keys) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session.Ask({.rows = rows, .keys = keys}));
  Bytes expected;
  for (const uint64_t row : rows) Append(expected, records_.at(row));
  while (batch->steps() > 0) Step(*batch);
  const auto fetched = batch->TakeRecords();
  EXPECT_EQ(ToBytes(fetched), expected);
}

void PairContract::Step(Batch& batch) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch.Next(random_));
  ASSERT_EQ(requests.size(), 2u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(requests[0]));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(requests[1]));
  const BytesView answers[] = {offline, online};
  SHOAL_ASSERT_OK(batch.Finish(answers));
}

std::unique_ptr<Batch> PairContract::AskFor(Session& session, uint64_t row,
                                            std::vector<Request>& requests) {
  auto batch = session.Ask({.rows = {&row, 1}, .keys = 1});
  SHOAL_EXPECT_OK(batch.status());
  auto made = (*batch)->Next(random_);
  SHOAL_EXPECT_OK(made.status());
  requests = *std::move(made);
  return *std::move(batch);
}

void PairContract::ExpectRecordsInEveryRun() {
  for (uint64_t run = 0; run < 3; ++run) {
    const auto session = Open();
    sent_.clear();
    Prepare(*session);
    EXPECT_EQ(sent_.size(), run == 0 ? 1u : 0u);
    Fetch(*session, {0, rows() - 1, 7, 7, run}, 5);
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

void PairContract::ExpectPreparationGoesOn(uint32_t pieces, uint32_t each, size_t seed_bytes,
                                           const char* refusal) {
  ASSERT_GT(pieces, 2u);
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    const auto session = Open();
    EXPECT_EQ(session->progress().done, each * piece);
    EXPECT_THAT(session->Ask({.rows = {}, .keys = 1}), StatusIs(kPrecondition, "not prepared"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
    EXPECT_EQ(LoadLe<uint32_t>(request.body.data() + kIdBytes + seed_bytes), each * piece);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
    EXPECT_THAT(session->TakePrepared(BytesView(answer).first(answer.size() - 1)),
                StatusIs(kInvalid, refusal));
    // It is asked for again.
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request again, session->Prepare(random_));
    EXPECT_EQ(again.body, request.body);
    SHOAL_ASSERT_OK(session->TakePrepared(answer));
  }
  EXPECT_TRUE(store_->disk().records.empty());
  const auto session = Open();
  EXPECT_EQ(session->needed(0), Session::Need::kNothing);
  EXPECT_THAT(session->Prepare(random_), StatusIs(kPrecondition, "nothing is to be prepared"));
  EXPECT_THAT(session->TakePrepared({}), StatusIs(kPrecondition, "before its request"));
  Fetch(*session, {2, rows() - 1, 0}, 3);
}

// The process ends after a query was spent: before it was sent, or before an answer came. What is
// sent afterwards are the same bytes, and no hint is spoilt.
void PairContract::ExpectLostAnswersAreAskedForAgain() {
  Prepare(*Open());
  for (uint64_t i = 0; i < 40; ++i) {
    std::vector<Request> requests;
    {
      const auto session = Open();
      const auto batch = AskFor(*session, i, requests);
      if (i % 2 == 0) {
        // The session itself does not go on either.
        EXPECT_THAT(batch->Next(random_), StatusIs(kPrecondition, "not finished"));
        EXPECT_THAT(batch->Finish(std::vector<BytesView>(2)),
                    StatusIs(kInvalid, "bytes instead of"));
        EXPECT_THAT(session->Ask({.rows = {&i, 1}, .keys = 1}),
                    StatusIs(kPrecondition, "prepared"));
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
  // In one process: once the query has been sent again, answers to what was sent before are not
  // taken for its answers.
  const auto session = Open();
  std::vector<Request> requests;
  const auto batch = AskFor(*session, 3, requests);
  const Bytes offline = *Send(requests[0]), online = *Send(requests[1]);
  SHOAL_ASSERT_OK(session->Prepare(random_).status());
  const BytesView answers[] = {offline, online};
  EXPECT_THAT(batch->Finish(answers), StatusIs(kPrecondition, "without their query"));
  Prepare(*session);
  EXPECT_THAT(batch->Finish(answers), StatusIs(kPrecondition, "without their query"));
  Fetch(*session, {3, 4}, 2);
}

void PairContract::ExpectAnEndWhenNothingIsDurable() {
  const auto session = Open();
  Prepare(*session);
  const std::vector<uint64_t> rows = {5};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
  store_->KillAfter(0, /*durable=*/false);
  EXPECT_THAT(batch->Next(random_), StatusIs(kUnavailable, "killed"));
  EXPECT_THAT(batch->Next(random_), StatusIs(kPrecondition, "opened anew"));
  EXPECT_THAT(session->Ask({.rows = rows, .keys = 1}), StatusIs(kPrecondition, "opened anew"));
  EXPECT_THAT(session->Prepare(random_), StatusIs(kPrecondition, "opened anew"));
  Fetch(*Open(), {5}, 1);
}

absl::Status PairContract::RunToTheEnd(uint64_t row) {
  absl::StatusOr<std::unique_ptr<Session>> opened = TryOpen();
  SHOAL_RETURN_IF_ERROR(opened.status());
  Session& session = **opened;
  const auto sent = [&](const Bytes& offline, const Bytes& online) {
    EXPECT_EQ(pairs_[0].emplace(offline, online).first->second, online);
    EXPECT_EQ(pairs_[1].emplace(online, offline).first->second, offline);
  };
  Bytes again[2];
  while (session.needed(1) == Session::Need::kRequests) {
    SHOAL_ASSIGN_OR_RETURN(const Request request, session.Prepare(random_));
    if (request.kind == PairServer::kQuery) again[request.role == Role::kOnline] = request.body;
    SHOAL_ASSIGN_OR_RETURN(const Bytes answer, Send(request));
    SHOAL_RETURN_IF_ERROR(session.TakePrepared(answer));
  }
  if (!again[0].empty()) sent(again[0], again[1]);
  const std::vector<uint64_t> rows = {row, row / 2};
  SHOAL_ASSIGN_OR_RETURN(const auto batch, session.Ask({.rows = rows, .keys = 3}));
  while (batch->steps() > 0) {
    SHOAL_ASSIGN_OR_RETURN(const auto requests, batch->Next(random_));
    sent(requests[0].body, requests[1].body);
    SHOAL_ASSIGN_OR_RETURN(const Bytes offline, Send(requests[0]));
    SHOAL_ASSIGN_OR_RETURN(const Bytes online, Send(requests[1]));
    const BytesView answers[] = {offline, online};
    SHOAL_RETURN_IF_ERROR(batch->Finish(answers));
  }
  Bytes expected(records_.at(row));
  Append(expected, records_.at(row / 2));
  EXPECT_EQ(ToBytes(batch->TakeRecords()), expected);
  return absl::OkStatus();
}

void PairContract::ExpectNothingIsSentTwiceByKilledClients() {
  const MemoryStore::Disk empty;
  uint64_t killed = 0;
  for (const bool durable : {false, true}) {
    for (uint64_t write = 0;; ++write) {
      store_.emplace(empty);
      store_->KillAfter(write, durable);
      const absl::Status first = RunToTheEnd(100 + write);
      if (first.ok()) break;
      ASSERT_THAT(first, StatusIs(kUnavailable, "killed"));
      ++killed;
      for (uint64_t i = 0; i < 3; ++i) {
        store_.emplace(MemoryStore::Disk(store_->disk()));
        // The same row before and after, and another one.
        SHOAL_ASSERT_OK(RunToTheEnd(100 + write + i / 2));
      }
    }
  }
  // The key, the hints, and three queries with their answers.
  EXPECT_EQ(killed, 2u * 8);
  EXPECT_GT(pairs_[0].size(), 100u);
}

void PairContract::ExpectFileWithoutQueries(
    const std::function<void(const Bytes& state, uint64_t queries)>& check) {
  Prepare(*Open());
  const size_t bytes = store_->disk().state.size();
  for (uint64_t row = 0; row < 20; ++row) {
    const auto session = Open();
    Fetch(*session, {row, 2 * row}, 3);
    EXPECT_TRUE(store_->disk().records.empty());
    ASSERT_EQ(store_->disk().state.size(), bytes);
    check(store_->disk().state, 3 * (row + 1));
  }
}

void PairContract::ExpectReads(uint64_t bytes_of_all_parities, uint64_t bytes_of_a_query) {
  Prepare(*Open());
  const auto session = Open();
  const uint64_t head = store_->bytes_read();
  EXPECT_EQ(head, store_->disk().state.size() - bytes_of_all_parities);
  for (uint64_t i = 1; i < 5; ++i) {
    Fetch(*session, {7 * i}, 1);
    EXPECT_EQ(store_->bytes_read(), head + i * bytes_of_a_query);
  }
}

void PairContract::ExpectRefused(MemoryStore::Disk disk, absl::StatusCode code, const char* part) {
  store_.emplace(std::move(disk));
  EXPECT_THAT(TryOpen(), StatusIs(code, part));
}

void PairContract::ExpectBadRequestsRefused(size_t at, uint32_t hints, const char* refusal) {
  const auto session = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Request of_hints, session->Prepare(random_));
  Prepare(*session);
  std::vector<Request> requests;
  const auto batch = AskFor(*session, 5, requests);
  requests.push_back(of_hints);
  const auto expect = [&](const Request& request, absl::StatusCode code, const char* part) {
    EXPECT_THAT(Send(request), StatusIs(code, part));
  };
  for (const Request& request : requests) {
    EXPECT_LE(request.body.size(), servers_[0]->max_request_bytes());
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
  Request bad = of_hints;
  bad.role = Role::kOnline;  // makes none
  expect(bad, kInvalid, "to this role");
  for (const uint32_t first : {hints, ~0u}) {
    bad = of_hints;
    StoreLe<uint32_t>(bad.body.data() + kIdBytes + at, first);
    expect(bad, kInvalid, refusal);
  }
  const uint64_t beyond = rows();
  EXPECT_THAT(session->Ask({.rows = {&beyond, 1}, .keys = 1}), StatusIs(kPrecondition, "prepared"));
  const Bytes offline = *Send(requests[0]), online = *Send(requests[1]);
  const BytesView answers[] = {offline, online};
  SHOAL_ASSERT_OK(batch->Finish(answers));
  EXPECT_EQ(ToBytes(batch->TakeRecords()), records_.at(5)) << "the servers go on";
  EXPECT_THAT(session->Ask({.rows = {&beyond, 1}, .keys = 1}),
              StatusIs(absl::StatusCode::kOutOfRange, "no such row"));
}

void PairContract::ExpectServersToStateTheSame() {
  wire::PirSetup setups[] = {servers_[0]->setup(), servers_[1]->setup()};
  setups[1].set_manifest_digest(std::string(32, 'x'));
  EXPECT_THAT(engine_.OpenSession(setups, {.store = &*store_}), StatusIs(kInvalid, "different"));
  EXPECT_THAT(engine_.OpenSession(std::span(setups).first(1), {.store = &*store_}),
              StatusIs(kInvalid, "two setups"));
  EXPECT_THAT(engine_.OpenSession(setups, {}), StatusIs(kInvalid, "a place for the state"));
  for (const int change : {0, 1, 2, 3, 4, 5, 6, 7}) {
    wire::PirSetup bad = servers_[0]->setup();
    if (change == 0) bad.set_engine("xor");
    if (change == 1) bad.set_shape("other sets");
    if (change == 2) bad.set_rows(0);
    if (change == 3) bad.set_rows(~uint64_t{0});
    if (change == 4) bad.set_record_bytes(kMaxRecordBytes + 1);
    if (change == 5) bad.set_columns(64);
    if (change == 6) bad.set_hint_bytes(1);
    if (change == 7) bad.set_record_bytes(0);
    setups[0] = setups[1] = bad;
    EXPECT_THAT(engine_.OpenSession(setups, {.store = &*store_}), StatusIs(kInvalid, "")) << change;
  }
}

void PairContract::ExpectSizesOfMessages() {
  const wire::PirSetup& setup = servers_[0]->setup();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, engine_.SizesOf(setup));
  const auto session = Open();
  Prepare(*session);
  uint64_t prepared = 0;
  for (const Request& request : sent_) {
    prepared += request.answer_bytes;
    EXPECT_TRUE(engine_.IsHeavy(request.role, request.kind));
  }
  EXPECT_EQ(prepared, sizes.prepare_bytes);
  sent_.clear();
  Fetch(*session, {9}, 1);
  for (const Request& request : sent_) EXPECT_FALSE(engine_.IsHeavy(request.role, request.kind));
  EXPECT_EQ(sent_[0].body.size() + sent_[1].body.size(), sizes.query_bytes);
  EXPECT_EQ(sent_[0].answer_bytes + sent_[1].answer_bytes, sizes.answer_bytes);
  EXPECT_FALSE(engine_.WorkOf(setup, 1).answer.empty());
  EXPECT_TRUE(engine_.keeps_state());
  ASSERT_EQ(engine_.roles().size(), 2u);
}

void PairContract::ExpectEpochsToBeTaken(uint64_t row, uint64_t asked) {
  const uint64_t rows = this->rows();
  const std::vector<uint64_t> changed = {row, asked};
  std::optional<Delta> delta;
  std::vector<Request> waiting;
  {
    const auto session = Open();
    Prepare(*session);
    Fetch(*session, {row, row + 1}, 2);
    // One on its way.
    const auto batch = AskFor(*session, asked, waiting);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(waiting[0]));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(waiting[1]));
    records_.Fill(row, 0x77);
    records_.Fill(asked, 0x99);
    for (auto& server : servers_) {
      EXPECT_THAT(server->Refresh(records_.content(1), changed), StatusIs(kInvalid, "later epoch"));
      EXPECT_THAT(server->RefreshShare(records_.content(2), std::vector<uint64_t>{asked, row}),
                  StatusIs(kInvalid, "do not rise"));
      EXPECT_THAT(server->RefreshShare(records_.content(2), std::vector<uint64_t>{rows}),
                  StatusIs(kInvalid, "not there"));
      SHOAL_ASSERT_OK_AND_ASSIGN(delta, server->Refresh(records_.content(2), changed));
    }
    ASSERT_TRUE(delta.has_value());
    EXPECT_EQ(delta->changes.size(), 2u * (8 + record_bytes()));
    EXPECT_THAT(Send(waiting[0]), StatusIs(kPrecondition, "another setup"));
    Delta bad = *delta;
    bad.changes.pop_back();
    EXPECT_THAT(session->Advance(bad), StatusIs(kInvalid, "within a row"));
    bad = *delta;
    bad.from[0] ^= 1;
    EXPECT_THAT(session->Advance(bad), StatusIs(kPrecondition, "other epochs"));
    bad = *delta;
    bad.to.set_rows(rows + 1);
    EXPECT_THAT(session->Advance(bad), StatusIs(kInvalid, "another shape"));
    // Answers of the epoch before would spoil hints.
    const MemoryStore::Disk disk = store_->disk();
    SHOAL_ASSERT_OK(session->Advance(*delta));
    const BytesView answers[] = {offline, online};
    EXPECT_THAT(batch->Finish(answers), StatusIs(kPrecondition, "without their query"));
    store_.emplace(disk);
  }
  const MemoryStore::Disk before = store_->disk();
  {
    const auto session = Open();
    ASSERT_TRUE(session->behind().has_value());
    EXPECT_EQ(*session->behind(), delta->from);
    EXPECT_EQ(session->needed(0), Session::Need::kRequests);
    SHOAL_ASSERT_OK(session->Advance(*delta));
    EXPECT_FALSE(session->behind().has_value());
  }
  {
    // The question is in the state now.
    EXPECT_TRUE(store_->disk().records.empty());
    const auto session = Open();
    sent_.clear();
    Prepare(*session);
    // The same query, of which the servers learn nothing new: behind the setup's id the same bytes.
    ASSERT_EQ(sent_.size(), 2u);
    for (const Request& request : sent_) {
      const Request& first = waiting[request.role == Role::kOffline ? 0 : 1];
      EXPECT_NE(request.body, first.body);
      EXPECT_EQ(BehindTheId(request), BehindTheId(first));
    }
    for (uint64_t i = 0; i < rows; i += 7) Fetch(*session, {i, row, asked}, 3);
  }
  // Killed before the delta was durable: it is applied again, to what was there before.
  store_.emplace(before);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
    store_->KillAfter(0, /*durable=*/false);
    EXPECT_THAT(session->Advance(*delta), StatusIs(kUnavailable, "killed"));
  }
  {
    const auto session = Open();
    SHOAL_ASSERT_OK(session->Advance(*delta));
    Prepare(*session);
    Fetch(*session, {row, asked, row + 1}, 3);
  }
  // Without a delta, by other hints.
  store_.emplace(before);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
  sent_.clear();
  Prepare(*session);
  EXPECT_EQ(sent_[0].kind, PairServer::kHints);
  Fetch(*session, {row, asked, row + 1}, 3);
  const Records other(rows + 1, record_bytes());
  EXPECT_THAT(servers_[0]->Refresh(other.content(3), {}), StatusIs(kInvalid, "this table"));
}

void PairContract::ExpectHintsToEndWhenTold(ThreadPool* heavy_pool) {
  store_.emplace();
  std::atomic<bool> stop = false;
  const auto session = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Request hints, session->Prepare(random_));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto server,
      engine_.CreateServer(records_.content(), {.heavy_pool = heavy_pool, .stop_heavy = &stop}));
  const auto send = [&](const Request& request) {
    const RequestView view = {.kind = request.kind, .count = 1, .body = request.body};
    return server->Answer(Role::kOffline, {&view, 1})[0];
  };
  SHOAL_EXPECT_OK(send(hints).status());
  stop = true;
  EXPECT_THAT(send(hints), StatusIs(kPrecondition, "a new epoch"));
  // Queries go on.
  Prepare(*session);
  std::vector<Request> requests;
  const auto batch = AskFor(*session, 5, requests);
  SHOAL_EXPECT_OK(send(requests[0]).status());
}

}  // namespace shoal::pir::testing
