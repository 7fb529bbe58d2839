#include "src/pir/sets/single_pass.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/kit/testing/pair_contract.h"

namespace shoal::pir::sets {
namespace {

using pir::testing::MemoryStore;
using pir::testing::PairContract;
using pir::testing::TwoVersions;
using shoal::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kLoss = absl::StatusCode::kDataLoss;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
// Chunks of ten rows, the last one filled up.
constexpr uint64_t kRows = 305;
constexpr uint32_t kRecordBytes = 20;

class SinglePassTest : public PairContract {
 protected:
  explicit SinglePassTest(uint64_t rows = kRows, uint32_t record_bytes = kRecordBytes)
      : PairContract(SinglePass(), rows, record_bytes) {
    check_ = [this](std::span<const uint64_t> of, BytesView records) {
      checked_ += of.size();
      Bytes expected;
      for (const uint64_t row : of) Append(expected, records_.at(row));
      return std::ranges::equal(records, expected) ? absl::OkStatus()
                                                   : absl::DataLossError("not these");
    };
  }
  SinglePassShape shape() const { return SinglePassShapeOf(servers_[0]->setup()).value(); }

  uint64_t checked_ = 0;  // records
};

TEST_F(SinglePassTest, RecordsComeBackInEveryRun) { ExpectRecordsInEveryRun(); }

// Every row, many times: exchanges spoil nothing.
TEST_F(SinglePassTest, QueriesUseNothingUp) {
  const auto session = Open();
  Prepare(*session);
  std::vector<uint64_t> rows;
  for (uint64_t i = 0; i < 5 * kRows; ++i) rows.push_back(i % kRows);
  Fetch(*session, rows, rows.size());
  Fetch(*Open(), {5, 300}, 2);
}

// Records so wide that parities come in pieces.
class SinglePassOfWideRecordsTest : public SinglePassTest {
 protected:
  SinglePassOfWideRecordsTest() : SinglePassTest(40, 1'000'000) {
    wire::PirSetup wide = servers_[0]->setup();
    wide.set_shape(EncodePermutedSetupShape(2));
    MakeServers({.shape = wide});
  }
};

// An interrupted preparation goes on where it stopped. What is kept of it afterwards does not tell
// the seed, with which the first permutations could be made again.
TEST_F(SinglePassOfWideRecordsTest, PreparationGoesOnWhereItStopped) {
  ASSERT_EQ(shape().chunk_rows, 20u);
  ASSERT_EQ(SinglePassPartOf(shape()), 8u);
  ExpectPreparationGoesOn(3, 8, Seed::size(), "bytes of parities");
  EXPECT_EQ(sent_[0].answer_bytes, 8'000'000u);
  EXPECT_EQ(sent_[2].answer_bytes, 4'000'000u);
  const BytesView seed = BytesView(sent_[0].body).subspan(kIdBytes, Seed::size());
  EXPECT_TRUE(std::ranges::search(store_->disk().state, seed).empty());
}

// Threads change no byte.
TEST_F(SinglePassTest, ThreadsMakeTheSameParities) {
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
TEST_F(SinglePassTest, AQueryWithoutAnswersIsSentAgain) { ExpectLostAnswersAreAskedForAgain(); }

// Nothing that is not durable is sent, and after a write that failed nothing is sent at all.
TEST_F(SinglePassTest, AStateThatCannotBeSavedEndsTheSession) { ExpectAnEndWhenNothingIsDurable(); }

// The process is killed at every write, which is durable or not. What is sent of one state is one
// pair of queries, whatever was asked for, and the parities stay right.
class SinglePassKilledTest : public SinglePassTest {};

TEST_F(SinglePassKilledTest, KilledAtEveryWrite) {
  ExpectNothingIsSentTwiceByKilledClients();
  // Two queries of one state for rows of one chunk agree in all chunks but one.
  for (const auto& [one, of_one] : pairs_[1]) {
    for (const auto& [other, of_other] : pairs_[1]) {
      if (other == one) continue;
      int same = 0;
      for (size_t at = kIdBytes; at < one.size(); at += 4) {
        same += LoadLe<uint32_t>(&other[at]) == LoadLe<uint32_t>(&one[at]);
      }
      EXPECT_LT(same, 20) << "of 31";
    }
  }
}

// Who finds the file, and has seen nothing else, learns the last query's row at most: what is on
// disk after many queries has no trace of those before.
TEST_F(SinglePassTest, TheFileTellsTheLastQueryAtMost) {
  const size_t question = 8 + 4 + 4 * size_t{shape().chunks};
  ExpectFileWithoutQueries([&](const Bytes& state, uint64_t) {
    // Behind the head is a question's place.
    EXPECT_TRUE(std::ranges::all_of(BytesView(state).subspan(89, question),
                                    [](uint8_t byte) { return byte == 0; }));
  });
}

// A query reads the parities that it exchanges rows of, and no other ones.
TEST_F(SinglePassTest, AQueryReadsItsParitiesAlone) {
  ExpectReads(shape().parity_bytes(), (1 + shape().chunks) * shape().record_bytes);
}

// Sessions as version 0.2 left them, with a query and its answers in a journal.
class SinglePassOfTwoVersionsTest : public SinglePassTest {
 protected:
  // Asks for row 1.
  TwoVersions Ask() {
    Prepare(*Open());
    TwoVersions versions{.first = store_->disk(), .asked = {}, .now = {}};
    const SinglePassShape shape = this->shape();
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
    SinglePassTable table = *SinglePassTable::Restore(shape, std::move(places), parities);
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

TEST_F(SinglePassOfTwoVersionsTest, ASessionOfVersionTwoIsReadAndKeepsNoQueries) {
  const TwoVersions versions = Ask();
  pir::testing::ExpectReadAndWithoutQueries(versions,
                                            [&](SessionStore& store) { return OpenOn(store); });
  store_.emplace(versions.first);
  Fetch(*Open(), {1, 2}, 3);
}

TEST_F(SinglePassOfTwoVersionsTest, AStateOfAnotherTableOrADamagedOneIsNotUsed) {
  const MemoryStore::Disk good = Ask().first;
  ASSERT_EQ(good.records.size(), 2u);  // a query, its answers
  for (const size_t bytes :
       {size_t{1}, size_t{50}, size_t{88}, good.state.size() - 1, good.state.size() + 1}) {
    MemoryStore::Disk bad = good;
    bad.state.resize(bytes);
    ExpectRefused(bad, kLoss, "malformed");
  }
  for (const auto& [at, value] : {std::pair<size_t, uint8_t>{0, 'X'},
                                  {88, 0},     // in a preparation, with all parities
                                  {88, 2},     // with a query
                                  {88, 3},     // no phase
                                  {89, 99},    // no permutation
                                  {92, 1}}) {  // an offset beyond the chunk
    MemoryStore::Disk bad = good;
    bad.state[at] = value;
    ExpectRefused(bad, kLoss, "malformed");
  }
  MemoryStore::Disk bad = good;
  bad.state[45] ^= 1;
  ExpectRefused(bad, kPrecondition, "another table");
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
      ExpectRefused(bad, kLoss, "malformed");
    }
  }
  // The row, the dummy, the last place.
  for (const size_t at : {size_t{8}, size_t{9}, good.records[0].size() - 4}) {
    bad = good;
    bad.records[0][at] = 0xff;
    ExpectRefused(bad, kLoss, "malformed");
  }
  store_.emplace(good);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
  Fetch(*session, {1}, 1);
}

TEST_F(SinglePassTest, BadRequestsAreRefused) {
  ExpectBadRequestsRefused(Seed::size(), shape().chunk_rows, "parities from");
  std::vector<Request> requests;
  const auto session = Open();
  const auto batch = AskFor(*session, 5, requests);
  for (const uint32_t offset : {shape().chunk_rows, ~uint32_t{0}}) {
    Request bad = requests[1];
    StoreLe<uint32_t>(bad.body.data() + bad.body.size() - 4, offset);
    EXPECT_THAT(Send(bad), StatusIs(kInvalid, "of a chunk of"));
  }
}

TEST_F(SinglePassTest, ServersMustStateTheSame) {
  ExpectServersToStateTheSame();
  const Engine& engine = SinglePass();
  for (const uint32_t chunks : {uint32_t{0}, kMaxPermutedChunks + 1}) {
    wire::PirSetup bad = servers_[0]->setup();
    bad.set_shape(EncodePermutedSetupShape(chunks));
    EXPECT_THAT(engine.SizesOf(bad), StatusIs(kInvalid, ""));
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

TEST_F(SinglePassTest, SizesAreThoseOfTheMessages) {
  ExpectSizesOfMessages();
  const wire::PirSetup& setup = servers_[0]->setup();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, SinglePass().SizesOf(setup));
  // A head, a question, and what it costs.
  EXPECT_EQ(store_->disk().state.size(),
            89 + 12 + 4 * size_t{shape().chunks} + sizes.hint_memory_bytes);
  // A gigabyte's table.
  wire::PirSetup gigabyte = setup;
  gigabyte.set_rows(1 << 20);
  gigabyte.set_record_bytes(1072);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes large, SinglePass().SizesOf(gigabyte));
  EXPECT_EQ(large.prepare_bytes, 35'127'296u);
  EXPECT_EQ(large.hint_memory_bytes, 35'127'296u + (4u << 20));
  EXPECT_EQ(large.query_bytes + large.answer_bytes, 68'928u);
}

// A session follows the servers' epochs by deltas; without them it begins anew.
TEST_F(SinglePassTest, EpochsAreTaken) { ExpectEpochsToBeTaken(7, 304); }

// Also in the middle of a preparation.
TEST_F(SinglePassOfWideRecordsTest, AnEpochThatComesBetweenTwoParts) {
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
TEST_F(SinglePassTest, ParitiesEndWhenTheyAreToldTo) {
  ThreadPool pool(2);
  ExpectHintsToEndWhenTold(nullptr);
  ExpectHintsToEndWhenTold(&pool);
  // No permutation is drawn to the end for nothing.
  const std::atomic<bool> stop = true;
  const auto drawn = PermutationsOf(shape(), random_.NewSeed(), nullptr, &stop);
  EXPECT_EQ(std::ranges::count(drawn, 0u), static_cast<ptrdiff_t>(drawn.size()));
}

// A record of an answer that is not the table's, in whatever chunk: nothing is taken, the client
// does the same whatever row it asked for, and goes on once the server does not lie.
TEST_F(SinglePassTest, WrongAnswersAreFoundWhicheverRecordIsWrong) {
  Prepare(*Open());
  const SinglePassShape shape = this->shape();
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
TEST_F(SinglePassTest, RecordsBehindTheEndAreZeros) {
  const auto session = Open();
  Prepare(*session);
  const SinglePassShape shape = this->shape();
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
TEST_F(SinglePassTest, ASpoiltParityGoesFromPlaceToPlaceAndIsNeverMended) {
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
TEST_F(SinglePassTest, AnyAnswerIsTakenWithoutACheck) {
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
