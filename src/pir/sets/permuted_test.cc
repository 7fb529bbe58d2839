#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/sets/pair_fixture.h"
#include "src/pir/sets/permuted_pir.h"
#include "src/pir/sets/two_versions.h"

namespace shoal::pir::sets {
namespace {

using shoal::testing::StatusIs;
using testing::MemoryStore;
using testing::Records;
using testing::TwoVersions;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kLoss = absl::StatusCode::kDataLoss;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
// Chunks of ten rows, the last one filled up.
constexpr uint64_t kRows = 305;
constexpr uint32_t kRecordBytes = 20;
constexpr size_t kIdBytes = sizeof(Digest);

class PermutedTest : public testing::PairFixture {
 protected:
  explicit PermutedTest(uint64_t rows = kRows, uint32_t record_bytes = kRecordBytes)
      : PairFixture(PermutedPir(), rows, record_bytes) {
    check_ = [this](std::span<const uint64_t> of, BytesView records) {
      checked_ += of.size();
      Bytes expected;
      for (const uint64_t row : of) Append(expected, records_.at(row));
      return std::ranges::equal(records, expected) ? absl::OkStatus()
                                                   : absl::DataLossError("not these");
    };
  }
  PermutedShape shape() const { return PermutedShapeOf(servers_[0]->setup()).value(); }

  uint64_t checked_ = 0;  // records
};

TEST_F(PermutedTest, RecordsComeBackInEveryRun) {
  for (uint64_t run = 0; run < 3; ++run) {
    const auto session = Open();
    sent_.clear();
    Prepare(*session);
    EXPECT_EQ(sent_.size(), run == 0 ? 1u : 0u);
    Fetch(*session, {0, 304, 7, 7, run}, 5);
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

// Every row, many times: exchanges spoil nothing.
TEST_F(PermutedTest, QueriesUseNothingUp) {
  const auto session = Open();
  Prepare(*session);
  std::vector<uint64_t> rows;
  for (uint64_t i = 0; i < 5 * kRows; ++i) rows.push_back(i % kRows);
  Fetch(*session, rows, rows.size());
  Fetch(*Open(), {5, 300}, 2);
}

// Records so wide that parities come in pieces.
class PermutedOfWideRecordsTest : public PermutedTest {
 protected:
  PermutedOfWideRecordsTest() : PermutedTest(40, 1'000'000) {
    wire::PirSetup wide = servers_[0]->setup();
    wide.set_shape(EncodePermutedSetupShape(2));
    MakeServers({.shape = wide});
  }
};

// An interrupted preparation goes on where it stopped. What is kept of it afterwards does not tell
// the seed, with which the first permutations could be made again.
TEST_F(PermutedOfWideRecordsTest, PreparationGoesOnWhereItStopped) {
  const PermutedShape shape = this->shape();
  ASSERT_EQ(shape.chunk_rows, 20u);
  ASSERT_EQ(PermutedPartOf(shape), 8u);
  Bytes seed;
  for (uint32_t piece = 0; piece < 3; ++piece) {
    const auto session = Open();
    EXPECT_EQ(session->progress().done, 8 * piece);
    EXPECT_THAT(session->Ask({.rows = {}, .keys = 1}), StatusIs(kPrecondition, "not prepared"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
    EXPECT_EQ(LoadLe<uint32_t>(request.body.data() + kIdBytes + 32), 8 * piece);
    seed = Bytes(request.body.begin() + kIdBytes, request.body.end() - 4);
    EXPECT_FALSE(std::ranges::search(store_->disk().state, seed).empty());
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
    EXPECT_EQ(answer.size(), piece < 2 ? 8'000'000u : 4'000'000u);
    EXPECT_THAT(session->TakePrepared(BytesView(answer).first(answer.size() - 1)),
                StatusIs(kInvalid, "bytes of parities"));
    // It is asked for again.
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request again, session->Prepare(random_));
    EXPECT_EQ(again.body, request.body);
    SHOAL_ASSERT_OK(session->TakePrepared(answer));
  }
  EXPECT_TRUE(std::ranges::search(store_->disk().state, seed).empty());
  EXPECT_TRUE(store_->disk().records.empty());
  const auto session = Open();
  EXPECT_EQ(session->needed(0), Session::Need::kNothing);
  EXPECT_THAT(session->Prepare(random_), StatusIs(kPrecondition, "nothing is to be prepared"));
  EXPECT_THAT(session->TakePrepared({}), StatusIs(kPrecondition, "before its request"));
  Fetch(*session, {2, 39}, 2);
}

// Threads change no byte.
TEST_F(PermutedTest, ThreadsMakeTheSameParities) {
  const auto session = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes alone, Send(request));
  ThreadPool pool(3);
  MakeServers({.pool = &pool, .heavy_pool = &pool});
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes together, Send(request));
  EXPECT_EQ(alone, together);
}

// The process ends after a query was spent: before it was sent, or before an answer came. What is
// sent afterwards are the same bytes, and no parity is spoilt.
TEST_F(PermutedTest, AQueryWithoutAnswersIsSentAgain) {
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
        EXPECT_THAT(batch->Finish(std::vector<BytesView>(2)),
                    StatusIs(kInvalid, "bytes instead of"));
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

// Nothing that is not durable is sent, and after a write that failed nothing is sent at all.
TEST_F(PermutedTest, AStateThatCannotBeSavedEndsTheSession) {
  const auto session = Open();
  Prepare(*session);
  const std::vector<uint64_t> rows = {5};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
  store_->KillAfter(0, /*durable=*/false);
  EXPECT_THAT(batch->Next(random_), StatusIs(absl::StatusCode::kUnavailable, "killed"));
  EXPECT_THAT(batch->Next(random_), StatusIs(kPrecondition, "opened anew"));
  EXPECT_THAT(session->Ask({.rows = rows, .keys = 1}), StatusIs(kPrecondition, "opened anew"));
  EXPECT_THAT(session->Prepare(random_), StatusIs(kPrecondition, "opened anew"));
  Fetch(*Open(), {5}, 1);
}

// The process is killed at every write, which is durable or not. What is sent of one state is one
// pair of queries, whatever was asked for, and the parities stay right.
class PermutedKilledTest : public PermutedTest {
 protected:
  absl::Status Run(uint64_t row) {
    absl::StatusOr<std::unique_ptr<Session>> opened = TryOpen();
    SHOAL_RETURN_IF_ERROR(opened.status());
    Session& session = **opened;
    Bytes again[2];
    while (session.needed(1) == Session::Need::kRequests) {
      SHOAL_ASSIGN_OR_RETURN(const Request request, session.Prepare(random_));
      if (request.kind == kPermutedQuery) again[request.role == Role::kOnline] = request.body;
      SHOAL_ASSIGN_OR_RETURN(const Bytes answer, Send(request));
      SHOAL_RETURN_IF_ERROR(session.TakePrepared(answer));
    }
    if (!again[0].empty()) Sent(again[0], again[1]);
    const std::vector<uint64_t> rows = {row, row / 2};
    SHOAL_ASSIGN_OR_RETURN(const auto batch, session.Ask({.rows = rows, .keys = 3}));
    while (batch->steps() > 0) {
      SHOAL_ASSIGN_OR_RETURN(const auto requests, batch->Next(random_));
      Sent(requests[0].body, requests[1].body);
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
  void Sent(const Bytes& offline, const Bytes& online) {
    EXPECT_EQ(pairs_[0].emplace(offline, online).first->second, online);
    EXPECT_EQ(pairs_[1].emplace(online, offline).first->second, offline);
    // Two queries of one state for rows of one chunk agree in all chunks but one.
    for (const auto& [other, of_offline] : pairs_[1]) {
      if (other == online) continue;
      int same = 0;
      for (size_t at = kIdBytes; at < online.size(); at += 4) {
        same += LoadLe<uint32_t>(&other[at]) == LoadLe<uint32_t>(&online[at]);
      }
      EXPECT_LT(same, 20) << "of 31";
    }
  }

  std::map<Bytes, Bytes> pairs_[2];  // from a query to one server to that to the other
};

TEST_F(PermutedKilledTest, KilledAtEveryWrite) {
  const MemoryStore::Disk empty;
  uint64_t killed = 0;
  for (const bool durable : {false, true}) {
    for (uint64_t write = 0;; ++write) {
      store_.emplace(empty);
      store_->KillAfter(write, durable);
      // The same row before and after: from one state it would have the same offsets.
      const absl::Status first = Run(100 + write);
      if (first.ok()) break;
      ASSERT_THAT(first, StatusIs(absl::StatusCode::kUnavailable, "killed"));
      ++killed;
      for (uint64_t i = 0; i < 3; ++i) {
        store_.emplace(MemoryStore::Disk(store_->disk()));
        SHOAL_ASSERT_OK(Run(100 + write));
      }
    }
  }
  // The seed, the parities, and three queries with their answers.
  EXPECT_EQ(killed, 2u * 8);
  EXPECT_GT(pairs_[0].size(), 100u);
}

// Who finds the file, and has seen nothing else, learns the last query's row at most: what is on
// disk after many queries has no trace of those before.
TEST_F(PermutedTest, TheFileTellsTheLastQueryAtMost) {
  Prepare(*Open());
  const size_t bytes = store_->disk().state.size();
  const size_t question = 8 + 4 + 4 * size_t{shape().chunks};
  for (uint64_t row = 0; row < 20; ++row) {
    const auto session = Open();
    Fetch(*session, {row, 2 * row}, 3);
    EXPECT_TRUE(store_->disk().records.empty());
    ASSERT_EQ(store_->disk().state.size(), bytes);
    // Behind the head is a question's place.
    EXPECT_TRUE(std::ranges::all_of(BytesView(store_->disk().state).subspan(89, question),
                                    [](uint8_t byte) { return byte == 0; }));
  }
}

// A query reads the parities that it exchanges rows of, and no other ones.
TEST_F(PermutedTest, AQueryReadsItsParitiesAlone) {
  Prepare(*Open());
  const auto session = Open();
  const uint64_t head = store_->bytes_read();
  EXPECT_EQ(head, store_->disk().state.size() - shape().parity_bytes());
  for (uint64_t i = 1; i < 5; ++i) {
    Fetch(*session, {7 * i}, 1);
    EXPECT_EQ(store_->bytes_read(), head + i * (1 + shape().chunks) * shape().record_bytes);
  }
}

// Sessions as version 0.2 left them, with a query and its answers in a journal.
class PermutedOfTwoVersionsTest : public PermutedTest {
 protected:
  // Asks for row 1.
  TwoVersions Ask() {
    Prepare(*Open());
    TwoVersions versions{.first = store_->disk(), .asked = {}, .now = {}};
    const PermutedShape shape = this->shape();
    const size_t question_bytes = 12 + 4 * size_t{shape.chunks}, head_bytes = 89;
    const auto session = Open();
    const auto batch = *session->Ask({.rows = std::vector<uint64_t>{1}, .keys = 1});
    const std::vector<Request> requests = *batch->Next(random_);
    versions.asked = store_->disk();
    const Bytes offline = *Send(requests[0]), online = *Send(requests[1]);
    const BytesView answers[] = {offline, online};
    SHOAL_EXPECT_OK(batch->Finish(answers));
    versions.now = store_->disk();

    Bytes& state = versions.first.state;
    state.erase(state.begin() + head_bytes,
                state.begin() + static_cast<ptrdiff_t>(head_bytes + question_bytes));
    state[7] = '1';
    const BytesView question = BytesView(versions.asked.state).subspan(head_bytes, question_bytes);
    Bytes spent = {2}, answered = {3};
    Append(spent, question);
    SecretVector<uint32_t> places(shape.places());
    for (size_t i = 0; i < places.size(); ++i) {
      places[i] = LoadLe<uint32_t>(&state[head_bytes + 4 * i]);
    }
    const BytesView parities = BytesView(state).subspan(head_bytes + 4 * shape.places());
    PermutedTable table = *PermutedTable::Restore(shape, std::move(places), parities);
    SecretVector<uint32_t> exchanged(shape.chunks);
    for (size_t c = 0; c < exchanged.size(); ++c) {
      exchanged[c] = LoadLe<uint32_t>(&question[12 + 4 * c]);
    }
    SHOAL_EXPECT_OK(table.Redo({.row = LoadLe<uint64_t>(question.data()),
                                .dummy = LoadLe<uint32_t>(&question[8]),
                                .exchanged = std::move(exchanged)}));
    Bytes record(shape.record_bytes);
    Append(answered, table.Finish(online, offline, record));
    EXPECT_EQ(record, records_.at(1));
    versions.first.records = {spent, answered};
    return versions;
  }
};

TEST_F(PermutedOfTwoVersionsTest, ASessionOfVersionTwoIsReadAndKeepsNoQueries) {
  const TwoVersions versions = Ask();
  testing::ExpectReadAndWithoutQueries(versions,
                                       [&](SessionStore& store) { return OpenOn(store); });
  store_.emplace(versions.first);
  Fetch(*Open(), {1, 2}, 3);
}

TEST_F(PermutedOfTwoVersionsTest, AStateOfAnotherTableOrADamagedOneIsNotUsed) {
  const MemoryStore::Disk good = Ask().first;
  ASSERT_EQ(good.records.size(), 2u);  // a query, its answers
  const auto expect = [&](MemoryStore::Disk disk, absl::StatusCode code, const char* part) {
    store_.emplace(std::move(disk));
    EXPECT_THAT(TryOpen(), StatusIs(code, part));
  };
  for (const size_t bytes :
       {size_t{1}, size_t{50}, size_t{88}, good.state.size() - 1, good.state.size() + 1}) {
    MemoryStore::Disk bad = good;
    bad.state.resize(bytes);
    expect(bad, kLoss, "malformed");
  }
  for (const auto& [at, value] : {std::pair<size_t, uint8_t>{0, 'X'},
                                  {88, 0},     // in a preparation, with all parities
                                  {88, 2},     // with a query
                                  {88, 3},     // no phase
                                  {89, 99},    // no permutation
                                  {92, 1}}) {  // an offset beyond the chunk
    MemoryStore::Disk bad = good;
    bad.state[at] = value;
    expect(bad, kLoss, "malformed");
  }
  MemoryStore::Disk bad = good;
  bad.state[45] ^= 1;
  expect(bad, kPrecondition, "another table");
  // Another shape: the session begins anew.
  bad = good;
  bad.state[80] ^= 1;
  store_.emplace(bad);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
    EXPECT_EQ(session->needed(0), Session::Need::kRequests);
  }
  // Records of the journal that cannot follow.
  for (size_t record = 0; record < 2; ++record) {
    for (const int change : {0, 1, 2, 3, 4}) {
      bad = good;
      Bytes& entry = bad.records[record];
      if (change == 0) entry[0] = 9;
      if (change == 1) entry.pop_back();
      if (change == 2) entry.push_back(0);
      if (change == 3) bad.records.insert(bad.records.begin() + record, Bytes(entry));
      if (change == 4) entry[0] = 1;  // a part of parities that are all there
      expect(bad, kLoss, "malformed");
    }
  }
  // The row, the dummy, the last place.
  for (const size_t at : {size_t{8}, size_t{9}, good.records[0].size() - 4}) {
    bad = good;
    bad.records[0][at] = 0xff;
    expect(bad, kLoss, "malformed");
  }
  store_.emplace(good);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
  Fetch(*session, {1}, 1);
}

TEST_F(PermutedTest, BadRequestsAreRefused) {
  const auto session = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Request parities, session->Prepare(random_));
  Prepare(*session);
  const std::vector<uint64_t> rows = {5};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
  EXPECT_LE(requests[0].body.size(), servers_[0]->max_request_bytes());
  EXPECT_LE(parities.body.size(), servers_[0]->max_request_bytes());
  const auto expect = [&](const Request& request, absl::StatusCode code, const char* part) {
    EXPECT_THAT(Send(request), StatusIs(code, part));
  };
  for (const Request& request : {requests[0], requests[1], parities}) {
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
  Request bad = parities;
  bad.role = Role::kOnline;  // makes none
  expect(bad, kInvalid, "to this role");
  for (const uint32_t first : {shape().chunk_rows, ~0u}) {
    bad = parities;
    StoreLe<uint32_t>(bad.body.data() + kIdBytes + 32, first);
    expect(bad, kInvalid, "parities from");
  }
  for (const uint32_t offset : {shape().chunk_rows, kNoOffset}) {
    bad = requests[1];
    StoreLe<uint32_t>(bad.body.data() + bad.body.size() - 4, offset);
    expect(bad, kInvalid, "of a chunk of");
  }
  EXPECT_THAT(session->Ask({.rows = std::vector<uint64_t>{kRows}, .keys = 1}),
              StatusIs(kPrecondition, "prepared"));
}

TEST_F(PermutedTest, ServersMustStateTheSame) {
  wire::PirSetup setups[] = {servers_[0]->setup(), servers_[1]->setup()};
  const Engine& engine = PermutedPir();
  setups[1].set_manifest_digest(std::string(32, 'x'));
  EXPECT_THAT(engine.OpenSession(setups, {.store = &*store_}), StatusIs(kInvalid, "different"));
  EXPECT_THAT(engine.OpenSession(std::span(setups).first(1), {.store = &*store_}),
              StatusIs(kInvalid, "two setups"));
  EXPECT_THAT(engine.OpenSession(setups, {}), StatusIs(kInvalid, "a place for the state"));
  for (const int change : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    wire::PirSetup bad = servers_[0]->setup();
    if (change == 0) bad.set_engine("xor");
    if (change == 1) bad.set_shape("other sets");
    if (change == 2) bad.set_rows(0);
    if (change == 3) bad.set_rows(~uint64_t{0});
    if (change == 4) bad.set_record_bytes(kMaxRecordBytes + 1);
    if (change == 5) bad.set_columns(64);
    if (change == 6) bad.set_hint_bytes(1);
    if (change == 7) bad.set_shape(EncodePermutedSetupShape(0));
    if (change == 8) bad.set_shape(EncodePermutedSetupShape(kMaxPermutedChunks + 1));
    if (change == 9) bad.set_record_bytes(0);
    setups[0] = setups[1] = bad;
    EXPECT_THAT(engine.OpenSession(setups, {.store = &*store_}), StatusIs(kInvalid, "")) << change;
  }
  // Permutations that would keep a server busy for seconds.
  wire::PirSetup large = servers_[0]->setup();
  large.set_rows((1 << 26) + 1);
  EXPECT_THAT(engine.SizesOf(large), StatusIs(kInvalid, "are the most"));
  large.set_rows(1 << 26);
  SHOAL_EXPECT_OK(engine.SizesOf(large));
  // Answers that nobody could use.
  large.set_rows(1 << 20);
  large.set_record_bytes(1 << 20);
  SHOAL_EXPECT_OK(engine.SizesOf(large));
  large.set_shape(EncodePermutedSetupShape(65));
  EXPECT_THAT(engine.SizesOf(large), StatusIs(kInvalid, "is the most"));
  // The parties may have signed another number of chunks.
  large = servers_[0]->setup();
  large.set_shape(EncodePermutedSetupShape(100));
  MakeServers({.shape = large});
  EXPECT_EQ(shape().chunks, 77u);
  const auto session = Open();
  Prepare(*session);
  Fetch(*session, {1, 304}, 2);
}

TEST_F(PermutedTest, SizesAreThoseOfTheMessages) {
  const wire::PirSetup& setup = servers_[0]->setup();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, PermutedPir().SizesOf(setup));
  const auto session = Open();
  Prepare(*session);
  uint64_t prepared = 0;
  for (const Request& request : sent_) {
    prepared += request.answer_bytes;
    EXPECT_TRUE(PermutedPir().IsHeavy(request.role, request.kind));
  }
  EXPECT_EQ(prepared, sizes.prepare_bytes);
  // A head, a question, and what it costs.
  EXPECT_EQ(store_->disk().state.size(),
            89 + 12 + 4 * size_t{shape().chunks} + sizes.hint_memory_bytes);
  sent_.clear();
  Fetch(*session, {9}, 1);
  for (const Request& request : sent_) {
    EXPECT_FALSE(PermutedPir().IsHeavy(request.role, request.kind));
  }
  EXPECT_EQ(sent_[0].body.size() + sent_[1].body.size(), sizes.query_bytes);
  EXPECT_EQ(sent_[0].answer_bytes + sent_[1].answer_bytes, sizes.answer_bytes);
  EXPECT_TRUE(PermutedPir().keeps_state());
  ASSERT_EQ(PermutedPir().roles().size(), 2u);
  // A gigabyte's table.
  wire::PirSetup gigabyte = setup;
  gigabyte.set_rows(1 << 20);
  gigabyte.set_record_bytes(1072);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes large, PermutedPir().SizesOf(gigabyte));
  EXPECT_EQ(large.prepare_bytes, 35'127'296u);
  EXPECT_EQ(large.hint_memory_bytes, 35'127'296u + (4u << 20));
  EXPECT_EQ(large.query_bytes + large.answer_bytes, 68'928u);
}

// A session follows the servers' epochs by deltas; without them it begins anew.
TEST_F(PermutedTest, EpochsAreTaken) {
  std::optional<Delta> delta;
  std::vector<Request> waiting;
  {
    const auto session = Open();
    Prepare(*session);
    Fetch(*session, {7, 8}, 2);
    // One on its way.
    const std::vector<uint64_t> rows = {304};
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(waiting, batch->Next(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(waiting[0]));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(waiting[1]));
    records_.Fill(7, 0x77);
    records_.Fill(304, 0x99);
    const std::vector<uint64_t> changed = {7, 304};
    for (auto& server : servers_) {
      EXPECT_THAT(server->Refresh(records_.content(1), changed), StatusIs(kInvalid, "later epoch"));
      EXPECT_THAT(server->RefreshShare(records_.content(2), std::vector<uint64_t>{304, 7}),
                  StatusIs(kInvalid, "do not rise"));
      EXPECT_THAT(server->RefreshShare(records_.content(2), std::vector<uint64_t>{kRows}),
                  StatusIs(kInvalid, "not there"));
      SHOAL_ASSERT_OK_AND_ASSIGN(delta, server->Refresh(records_.content(2), changed));
    }
    ASSERT_TRUE(delta.has_value());
    EXPECT_EQ(delta->changes.size(), 2u * (8 + kRecordBytes));
    EXPECT_THAT(Send(waiting[0]), StatusIs(kPrecondition, "another setup"));
    Delta bad = *delta;
    bad.changes.pop_back();
    EXPECT_THAT(session->Advance(bad), StatusIs(kInvalid, "within a row"));
    bad = *delta;
    bad.from[0] ^= 1;
    EXPECT_THAT(session->Advance(bad), StatusIs(kPrecondition, "other epochs"));
    bad = *delta;
    bad.to.set_rows(kRows + 1);
    EXPECT_THAT(session->Advance(bad), StatusIs(kInvalid, "another shape"));
    // Answers of the epoch before would spoil parities.
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
      EXPECT_EQ(Bytes(request.body.begin() + kIdBytes, request.body.end()),
                Bytes(first.body.begin() + kIdBytes, first.body.end()));
    }
    for (uint64_t i = 0; i < kRows; i += 7) Fetch(*session, {i, 7, 304}, 3);
  }
  // Killed before the delta was durable: it is applied again, to what was there before.
  store_.emplace(before);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
    store_->KillAfter(0, /*durable=*/false);
    EXPECT_THAT(session->Advance(*delta), StatusIs(absl::StatusCode::kUnavailable, "killed"));
  }
  {
    const auto session = Open();
    SHOAL_ASSERT_OK(session->Advance(*delta));
    Prepare(*session);
    Fetch(*session, {7, 304, 8}, 3);
  }
  // Without a delta, by parities of other permutations.
  store_.emplace(before);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
  sent_.clear();
  Prepare(*session);
  EXPECT_EQ(sent_[0].kind, kPermutedParities);
  Fetch(*session, {7, 304, 8}, 3);
  const Records other(kRows + 1, kRecordBytes);
  EXPECT_THAT(servers_[0]->Refresh(other.content(3), {}), StatusIs(kInvalid, "this table"));
}

// Also in the middle of a preparation.
TEST_F(PermutedOfWideRecordsTest, AnEpochThatComesBetweenTwoParts) {
  const auto part = [&](Session& session) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session.Prepare(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Send(request));
    SHOAL_ASSERT_OK(session.TakePrepared(answer));
  };
  {
    const auto session = Open();
    part(*session);
  }
  std::optional<Delta> delta;
  std::vector<uint64_t> changed;
  for (uint64_t row = 0; row < 40; row += 7) changed.push_back(row);
  for (const uint64_t row : changed) records_.Fill(row, static_cast<uint8_t>(row + 1));
  for (auto& server : servers_) {
    SHOAL_ASSERT_OK_AND_ASSIGN(delta, server->Refresh(records_.content(2), changed));
  }
  ASSERT_TRUE(delta.has_value());
  SHOAL_ASSERT_OK(Open()->Advance(*delta));
  const auto session = Open();
  EXPECT_EQ(session->progress().done, 8u);
  sent_.clear();
  Prepare(*session);
  EXPECT_EQ(sent_.size(), 2u);
  for (uint64_t row = 0; row < 40; ++row) Fetch(*session, {row}, 1);
}

// Parities are made for as long as the epoch lasts, also on threads.
TEST_F(PermutedTest, ParitiesEndWhenTheyAreToldTo) {
  std::atomic<bool> stop = false;
  ThreadPool pool(2);
  const auto session = Open();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Request parities, session->Prepare(random_));
  const RequestView view = {.kind = parities.kind, .count = 1, .body = parities.body};
  for (ThreadPool* heavy_pool : {static_cast<ThreadPool*>(nullptr), &pool}) {
    stop = false;
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto server, PermutedPir().CreateServer(records_.content(), {.heavy_pool = heavy_pool,
                                                                           .stop_heavy = &stop}));
    SHOAL_EXPECT_OK(server->Answer(Role::kOffline, {&view, 1})[0].status());
    stop = true;
    EXPECT_THAT(server->Answer(Role::kOffline, {&view, 1})[0],
                StatusIs(kPrecondition, "a new epoch"));
  }
  // No permutation is drawn to the end for nothing.
  const auto drawn = PermutationsOf(shape(), random_.NewSeed(), nullptr, &stop);
  EXPECT_EQ(std::ranges::count(drawn, 0u), static_cast<ptrdiff_t>(drawn.size()));
}

// A record of an answer that is not the table's, in whatever chunk: nothing is taken, the client
// does the same whatever row it asked for, and goes on once the server does not lie.
TEST_F(PermutedTest, WrongAnswersAreFoundWhicheverRecordIsWrong) {
  Prepare(*Open());
  const PermutedShape shape = this->shape();
  for (uint32_t i = 0; i < 2 * shape.chunks; ++i) {
    const uint32_t chunk = i / 2, liar = i % 2;
    const auto spoil = [&](const Request& request, Bytes& answer) {
      if ((request.role == Role::kOnline) == (liar == 1)) answer[chunk * kRecordBytes] ^= 1;
    };
    const MemoryStore::Disk before = store_->disk();
    // Once the row is in that chunk, once in another.
    for (const uint64_t row : {uint64_t{chunk} * shape.chunk_rows, (chunk * 10 + 50) % kRows}) {
      store_.emplace(before);
      std::vector<Request> requests;
      {
        const auto session = Open();
        SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                                   session->Ask({.rows = std::vector<uint64_t>{row}, .keys = 2}));
        SHOAL_ASSERT_OK_AND_ASSIGN(requests, batch->Next(random_));
        Bytes answers[2];
        for (int server = 0; server < 2; ++server) {
          SHOAL_ASSERT_OK_AND_ASSIGN(answers[server], Send(requests[server]));
          spoil(requests[server], answers[server]);
        }
        const BytesView views[] = {answers[0], answers[1]};
        const MemoryStore::Disk spent = store_->disk();
        checked_ = 0;
        const absl::Status refused = batch->Finish(views);
        EXPECT_THAT(refused,
                    StatusIs(kLoss, liar == 1 ? "the online server" : "the offline server"));
        // Whoever follows an advice after a failed lookup tells a server that it failed.
        EXPECT_EQ(std::string(refused.message()).find("prepare"), std::string::npos);
        // One a chunk was looked at, also where it was behind the table's end.
        EXPECT_EQ(checked_, 2 * shape.chunks);
        EXPECT_EQ(store_->disk(), spent);
        EXPECT_THAT(batch->Next(random_), StatusIs(kPrecondition, "not finished"));
      }
      // Again: the liar's answer is refused as soon as it is there.
      const auto session = Open();
      sent_.clear();
      for (const Role role : {Role::kOnline, Role::kOffline}) {
        SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
        EXPECT_EQ(request.role, role);
        EXPECT_EQ(request.body, requests[role == Role::kOnline].body);
        SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes good, Send(request));
        Bytes bad = good;
        spoil(request, bad);
        if (bad != good) {
          EXPECT_THAT(session->TakePrepared(bad), StatusIs(kLoss, "have not signed"));
          SHOAL_ASSERT_OK_AND_ASSIGN(const Request again, session->Prepare(random_));
          EXPECT_EQ(again.body, request.body);
        }
        SHOAL_ASSERT_OK(session->TakePrepared(good));
      }
      for (uint64_t other = 0; other < kRows; other += 50) Fetch(*session, {other, row}, 2);
    }
  }
}

// What is behind the table's end is zeros.
TEST_F(PermutedTest, RecordsBehindTheEndAreZeros) {
  const auto session = Open();
  Prepare(*session);
  const PermutedShape shape = this->shape();
  int behind = 0;
  for (int i = 0; i < 40; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = {}, .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(requests[0]));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(requests[1]));
    const uint32_t last = LoadLe<uint32_t>(&requests[1].body[requests[1].body.size() - 4]);
    if ((shape.chunks - 1) * uint64_t{shape.chunk_rows} + last >= kRows) {
      ++behind;
      Bytes bad = online;
      EXPECT_EQ(bad.back(), 0);
      bad.back() = 1;
      const BytesView views[] = {offline, bad};
      EXPECT_THAT(batch->Finish(views), StatusIs(kLoss, "online"));
    }
    const BytesView views[] = {offline, online};
    SHOAL_ASSERT_OK(batch->Finish(views));
  }
  EXPECT_GT(behind, 5);
}

// A parity that the offline server spoilt stays: a lookup of any of its rows gives a wrong record,
// and takes the error to another parity, of which there is always one. What is sent has nothing to
// do with it.
TEST_F(PermutedTest, ASpoiltParityGoesFromPlaceToPlaceAndIsNeverMended) {
  const uint32_t places = shape().chunk_rows;
  {
    const auto session = Open();
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(Bytes parities, Send(request));
    parities[3 * kRecordBytes] ^= 1;
    SHOAL_ASSERT_OK(session->TakePrepared(parities));
  }
  const auto is_wrong = [&](Session& session, uint64_t row) {
    const std::vector<uint64_t> rows = {row};
    const auto batch = session.Ask({.rows = rows, .keys = 1});
    SHOAL_EXPECT_OK(batch.status());
    if (!batch.ok()) return false;
    Step(**batch);
    return ToBytes((*batch)->TakeRecords()) != records_.at(row);
  };
  constexpr uint64_t kLookups = 6 * kRows;
  std::vector<uint64_t> wrong;
  {
    const auto session = Open();
    for (uint64_t i = 0; i < kLookups; ++i) {
      if (is_wrong(*session, i % kRows)) wrong.push_back(i % kRows);
    }
  }
  // One of so many places, with a deviation of 13 lookups; each row has one of them by chance.
  EXPECT_NEAR(wrong.size(), kLookups / places, 80);
  EXPECT_GT(std::set<uint64_t>(wrong.begin(), wrong.end()).size(), kRows / 4);
  // From one state exactly the rows of one place are wrong: one of each chunk, and perhaps none of
  // the last, which is filled up.
  const MemoryStore::Disk disk = store_->disk();
  std::vector<int> wrong_of(shape().chunks);
  for (uint64_t row = 0; row < kRows; ++row) {
    store_.emplace(disk);
    wrong_of[row / places] += is_wrong(*Open(), row);
  }
  EXPECT_LE(wrong_of.back(), 1);
  wrong_of.pop_back();
  EXPECT_EQ(wrong_of, std::vector<int>(wrong_of.size(), 1));
}

// Without a check, any answer gives some record, and the queries after it are like all others.
TEST_F(PermutedTest, AnyAnswerIsTakenWithoutACheck) {
  check_ = nullptr;
  const auto session = Open();
  Prepare(*session);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                             session->Ask({.rows = std::vector<uint64_t>{5}, .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
  Bytes answer(requests[0].answer_bytes);
  random_.Fill(answer);
  const BytesView views[] = {answer, answer};
  SHOAL_ASSERT_OK(batch->Finish(views));
  EXPECT_NE(ToBytes(batch->TakeRecords()), records_.at(5));
  sent_.clear();
  for (int i = 0; i < 20; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto next,
                               session->Ask({.rows = std::vector<uint64_t>{5}, .keys = 1}));
    Step(*next);
  }
  for (const Request& request : sent_) EXPECT_EQ(request.body.size(), sent_[0].body.size());
}

}  // namespace
}  // namespace shoal::pir::sets
