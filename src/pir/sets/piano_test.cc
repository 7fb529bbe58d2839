// Piano as an engine: sessions that are prepared, asked, killed at every write, and brought to the
// next epoch; servers that lie; bytes of any kind.
#include "src/pir/sets/piano.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/kit/testing/pair_contract.h"
#include "src/pir/sets/family.h"
#include "src/pir/sets/stream.h"
#include "src/pir/testing/memory_store.h"
#include "src/pir/testing/records.h"

namespace shoal::pir::sets {
namespace {

// Here `testing` is shoal::testing, not shoal::pir::testing.
namespace testing = shoal::testing;
using pir::testing::MemoryStore;
using pir::testing::Records;
using testing::StatusIs;
using testing::TestRandom;

using Need = Session::Need;

std::unique_ptr<Server> Serve(const Content& content, ServerOptions options = {}) {
  auto server = Piano().CreateServer(content, std::move(options));
  EXPECT_THAT(server, testing::IsOk());
  return *std::move(server);
}

absl::StatusOr<std::unique_ptr<Session>> Open(const wire::PirSetup& setup, SessionStore& store) {
  return Piano().OpenSession(std::span(&setup, 1), {.store = &store});
}

absl::StatusOr<Bytes> Answer(const Server& server, const Request& request) {
  const RequestView view = {.kind = request.kind, .count = request.count, .body = request.body};
  EXPECT_LE(request.body.size(), server.max_request_bytes());
  absl::StatusOr<Bytes> answer = server.Answer(request.role, std::span(&view, 1))[0];
  EXPECT_TRUE(!answer.ok() || answer->size() == request.answer_bytes);
  return answer;
}

// Answers requests of the session until it needs nothing, and counts them.
absl::StatusOr<int> Prepare(Session& session, const Server& server, RandomSource& random) {
  int requests = 0;
  while (session.needed(0) == Need::kRequests) {
    SHOAL_ASSIGN_OR_RETURN(const Request request, session.Prepare(random));
    SHOAL_ASSIGN_OR_RETURN(const Bytes answer, Answer(server, request));
    SHOAL_RETURN_IF_ERROR(session.TakePrepared(answer));
    ++requests;
  }
  return requests;
}

// One lookup.
absl::StatusOr<Bytes> Fetch(Session& session, const Server& server, std::vector<uint64_t> rows,
                            uint64_t keys, RandomSource& random) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Batch> batch,
                         session.Ask({.rows = rows, .keys = keys}));
  while (batch->steps() > 0) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<Request> requests, batch->Next(random));
    SHOAL_ASSIGN_OR_RETURN(const Bytes answer, Answer(server, requests.at(0)));
    const BytesView view = answer;
    SHOAL_RETURN_IF_ERROR(batch->Finish(std::span(&view, 1)));
  }
  const SecretVector<uint8_t> records = batch->TakeRecords();
  return Bytes(records.begin(), records.end());
}
absl::StatusOr<Bytes> Fetch(Session& session, const Server& server, uint64_t row,
                            RandomSource& random) {
  return Fetch(session, server, {row}, 1, random);
}

class PianoTest : public ::testing::Test {
 protected:
  TestRandom random_{12};
};

// Every row of every shape, also when the session is opened anew for each.
TEST_F(PianoTest, EveryRecordIsFetched) {
  struct Case {
    uint64_t rows;
    uint32_t record_bytes;
  };
  ThreadPool pool(2);
  for (const Case& c :
       {Case{1, 1}, Case{2, 9}, Case{7, 1}, Case{13, 70}, Case{64, 8}, Case{65, 8}}) {
    SCOPED_TRACE(c.rows);
    const Records records(c.rows, c.record_bytes);
    const auto server = Serve(records.content(), {.pool = &pool});
    MemoryStore::Disk disk;
    {
      MemoryStore store;
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
      EXPECT_EQ(session->needed(0), Need::kRequests);
      EXPECT_EQ(session->Budget(), 0u);
      SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
      disk = store.disk();
    }
    for (uint64_t row = 0; row < c.rows; ++row) {
      MemoryStore store(disk);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
      if (session->Budget() == 0) break;
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, row, random_));
      ASSERT_EQ(record, records.at(row)) << row;
      disk = store.disk();
    }
  }
}

// A lookup of more keys than rows: as many queries as keys, and the records of the rows.
TEST_F(PianoTest, QueriesForNoKey) {
  const Records records(50, 4);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t before = *session->Budget();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, Fetch(*session, *server, {3, 49}, 5, random_));
  Bytes expected = records.at(3);
  Append(expected, records.at(49));
  EXPECT_EQ(got, expected);
  EXPECT_EQ(session->Budget(), before - 5);
}

TEST_F(PianoTest, ASessionThatIsSpentAsksNothing) {
  const Records records(20, 3);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  EXPECT_THAT(session->Ask({.rows = {}, .keys = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not prepared"));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t budget = *session->Budget();
  const uint64_t written = store.writes();
  EXPECT_THAT(session->Ask({.rows = {}, .keys = budget + 1}),
              StatusIs(absl::StatusCode::kResourceExhausted, "nothing was sent"));
  const uint64_t row = 20;
  EXPECT_THAT(session->Ask({.rows = std::span(&row, 1), .keys = 1}),
              StatusIs(absl::StatusCode::kOutOfRange, "row"));
  EXPECT_EQ(store.writes(), written);
  EXPECT_EQ(session->Budget(), budget);
  // The same row all the time: each query spends one.
  for (uint64_t left = budget; left > 0; --left) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, 19, random_));
    ASSERT_EQ(record, records.at(19));
    ASSERT_EQ(session->Budget(), left - 1);
  }
  EXPECT_EQ(session->needed(1), Need::kNothing);
  EXPECT_THAT(Fetch(*session, *server, 19, random_),
              StatusIs(absl::StatusCode::kResourceExhausted, "0 queries are left"));
}

// Who finds the file learns the last query's row at most, beside the rows that the hints name: no
// record is kept, and nothing of a query whose hint was replaced again.
TEST_F(PianoTest, TheFileTellsTheLastQueryAtMost) {
  const Records records(300, 5);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const size_t bytes = store.disk().state.size();
  for (uint64_t row = 1; row < 20; ++row) {
    SHOAL_ASSERT_OK(Fetch(*session, *server, row, random_).status());
    EXPECT_TRUE(store.disk().records.empty());
    ASSERT_EQ(store.disk().state.size(), bytes);
    MemoryStore again(store.disk());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto read, Open(server->setup(), again));
    EXPECT_EQ(read->Budget(), session->Budget());
    EXPECT_EQ(read->needed(0), Need::kNothing) << "no question is left";
    EXPECT_EQ(again.writes(), 0u);
  }
}

// A query reads the parities that it needs, whatever the state has beside them.
TEST_F(PianoTest, AQueryReadsItsParitiesAlone) {
  const Records records(3000, 500);
  const auto server = Serve(records.content());
  MemoryStore prepared;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), prepared));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, SetShapeOf(server->setup()));
  MemoryStore store(prepared.disk());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  const uint64_t head = store.bytes_read();
  EXPECT_EQ(head, store.disk().state.size() - shape.parity_bytes());
  for (uint64_t i = 1; i < 5; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, 7 * i, random_));
    EXPECT_EQ(record, records.at(7 * i));
    EXPECT_EQ(store.bytes_read(), head + i * 3 * 500) << "a hint's, and both of a backup";
  }
}

// With a query, its answer, and what came before in a journal.
TEST_F(PianoTest, ASessionOfVersionTwoIsReadAndKeepsNoQueries) {
  const Records records(300, 5);
  const auto server = Serve(records.content());
  pir::testing::TwoVersions versions;
  {
    MemoryStore store;
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
    versions.first = store.disk();
    for (const uint64_t row : {17, 222, 17}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                                 session->Ask({.rows = std::span(&row, 1), .keys = 1}));
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
      versions.asked = store.disk();
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, requests[0]));
      const BytesView view = answer;
      SHOAL_ASSERT_OK(batch->Finish(std::span(&view, 1)));
      versions.now = store.disk();
      // Behind the head and the numbers of chunks and queries: row, backup, hint, dummy; then
      // whether it waits, the coin, whether a hint held the row.
      const BytesView question = BytesView(versions.asked.state).subspan(106 + 8);
      Bytes spent = {3}, answered = {4};
      Append(spent, question.first(18));
      Append(spent, question.subspan(19, 2));
      Append(answered, records.at(row));
      versions.first.records.insert(versions.first.records.end(), {spent, answered});
    }
  }
  pir::testing::ExpectReadAndWithoutQueries(
      versions, [&](SessionStore& store) { return Open(server->setup(), store); });
  MemoryStore store(versions.first);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  for (const uint64_t row : {17, 222, 3}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, row, random_));
    EXPECT_EQ(record, records.at(row));
  }
  // Entries that cannot follow are refused.
  for (size_t i = 0; i < versions.first.records.size(); ++i) {
    for (const int change : {0, 1, 2}) {
      MemoryStore::Disk bad = versions.first;
      if (change == 0) bad.records[i][0] = 9;
      if (change == 1) bad.records[i].pop_back();
      if (change == 2)
        bad.records.insert(bad.records.begin() + static_cast<ptrdiff_t>(i), bad.records[i]);
      MemoryStore malformed(bad);
      EXPECT_THAT(Open(server->setup(), malformed),
                  StatusIs(absl::StatusCode::kDataLoss, "malformed"))
          << i << " " << change;
    }
  }
}

// A preparation that ends after any of its requests asks for nothing twice, but for the chunk that
// had not come whole.
TEST_F(PianoTest, APreparationGoesOnWhereItStopped) {
  const Records records(300, 5);
  const auto server = Serve(records.content());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, SetShapeOf(server->setup()));
  MemoryStore::Disk disk;
  int requests = 0;
  for (bool ready = false; !ready; ++requests) {
    MemoryStore store(disk);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, request));
    SHOAL_ASSERT_OK(session->TakePrepared(answer));
    EXPECT_EQ(session->progress().total, shape.chunks);
    EXPECT_EQ(session->progress().done, std::max(0, requests));
    ready = session->needed(0) == Need::kNothing;
    disk = store.disk();
  }
  EXPECT_EQ(requests, 1 + static_cast<int>(shape.chunks));
  EXPECT_TRUE(disk.records.empty()) << "the table is kept beside its hints";
  MemoryStore store(disk);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  for (const uint64_t row : {0, 123, 299}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, row, random_));
    EXPECT_EQ(record, records.at(row));
  }
}

TEST_F(PianoTest, ChunksComeInPieces) {
  const SetShape shape = *ShapeFor(70, 300'000, 16);
  ASSERT_EQ(shape.chunk_rows(), 8u);
  const StreamPieces pieces(shape);
  std::vector<uint64_t> sizes;
  uint64_t next = 0;
  for (uint32_t chunk = 0; chunk < shape.chunks; ++chunk) {
    for (uint64_t at = 0; at < pieces.ChunkRows(chunk);) {
      const StreamPieces::Piece piece = pieces.At(chunk, at);
      EXPECT_EQ(piece.first_row, next);
      EXPECT_TRUE(pieces.Begins(next));
      EXPECT_LE(piece.rows * shape.record_bytes, kPieceBytes);
      at += piece.rows;
      next += piece.rows;
      EXPECT_EQ(piece.ends_chunk, at == pieces.ChunkRows(chunk));
      sizes.push_back(piece.rows);
    }
  }
  EXPECT_EQ(next, 70u);
  EXPECT_EQ(sizes.front(), 2u);
  EXPECT_FALSE(pieces.Begins(1));
  EXPECT_FALSE(pieces.Begins(70));

  const Records records(2, 600'000);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK_AND_ASSIGN(const int requests, Prepare(*session, *server, random_));
  EXPECT_EQ(requests, 1 + 2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, 1, random_));
  EXPECT_EQ(record, records.at(1));
}

// A client's life, in which it may be killed once, at any of its writes; and all queries that its
// server has seen.
class Life {
 public:
  // Prepares, asks three times, follows an epoch, asks three times. The write number `kill_at` and
  // all later ones fail, and another process goes on with what is durable. Returns the writes of
  // the first process.
  uint64_t Run(uint64_t kill_at, bool durable) {
    MemoryStore first;
    first.KillAfter(kill_at, durable);
    if (RunProcess(first)) return first.writes();
    EXPECT_GE(first.writes(), kill_at) << "an error that nobody made";
    MemoryStore second(first.disk());
    EXPECT_TRUE(RunProcess(second));
    return first.writes();
  }

 private:
  // False if it was killed.
  bool RunProcess(MemoryStore& store) {
    const auto session = *Open(server_->setup(), store);
    if (session->behind() && !session->Advance(*delta_).ok()) return false;
    for (;;) {
      while (session->needed(0) == Need::kRequests) {
        const auto request = session->Prepare(random_);
        if (!request.ok()) return false;
        if (!session->TakePrepared(Send(*request, *session)).ok()) return false;
      }
      for (; asked_ < 3 * epoch_; ++asked_) {
        const uint64_t row = asked_ % 2 == 0 ? 5 : 12;
        const auto batch = *session->Ask({.rows = std::span(&row, 1), .keys = 1});
        const auto requests = batch->Next(random_);
        if (!requests.ok()) return false;
        const Bytes answer = Send(requests->at(0), *session);
        const BytesView view = answer;
        if (!batch->Finish(std::span(&view, 1)).ok()) return false;
        const SecretVector<uint8_t> record = batch->TakeRecords();
        EXPECT_EQ(Bytes(record.begin(), record.end()), records_.at(row)) << "query " << asked_;
      }
      if (epoch_ == 2) return true;
      epoch_ = 2;
      for (const uint64_t row : {5, 33}) records_.Fill(row, 77);
      delta_ = *server_->Refresh(records_.content(2), std::vector<uint64_t>{5, 33});
      if (!session->Advance(*delta_).ok()) return false;
    }
  }

  Bytes Send(const Request& request, const Session& session) {
    if (request.kind == kQuery) {
      // The choices alone: a query may be sent once more to the next epoch.
      queries_.insert(Bytes(request.body.begin() + sizeof(Digest), request.body.end()));
      // Each query that was ever sent has its backup, which is not there any more.
      EXPECT_LE(*session.Budget() + queries_.size(), SetShapeOf(server_->setup())->backups);
    }
    auto answer = Answer(*server_, request);
    EXPECT_THAT(answer, testing::IsOk());
    return *std::move(answer);
  }

  TestRandom random_{5};
  Records records_{40, 6};
  const std::unique_ptr<Server> server_ = Serve(records_.content());
  std::optional<Delta> delta_;
  uint64_t epoch_ = 1, asked_ = 0;
  std::set<Bytes> queries_;
};

TEST_F(PianoTest, KilledAtEveryWrite) {
  const uint64_t writes = Life().Run(~uint64_t{0}, false);
  // Two of the preparation beside its chunks, two for each query, one for the epoch.
  EXPECT_EQ(writes, 2 + 5 + 12 + 1);
  for (uint64_t write = 0; write < writes; ++write) {
    for (const bool durable : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "write " << write << (durable ? ", durable" : ""));
      Life().Run(write, durable);
    }
  }
}

// A server that is not the table's is found before anything of it is kept, and the client goes on
// with another one.
TEST_F(PianoTest, OtherRecordsThanTheSignedOnesAreRefused) {
  const Records records(300, 5);
  Records others(300, 5);
  others.FillByte(200, 4, static_cast<uint8_t>(records.at(200)[4] ^ 1));
  const auto server = Serve(records.content()), liar = Serve(others.content());
  ASSERT_NE(SetupId(server->setup()), SetupId(liar->setup()));
  const auto lie = [&](Request request) {
    std::ranges::copy(SetupId(liar->setup()), request.body.begin());
    return *Answer(*liar, request);
  };
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK_AND_ASSIGN(Request request, session->Prepare(random_));
  EXPECT_EQ(request.kind, kDigests);
  MemoryStore::Disk before = store.disk();
  EXPECT_THAT(session->TakePrepared(lie(request)),
              StatusIs(absl::StatusCode::kDataLoss, "not the signed ones"));
  EXPECT_EQ(store.disk(), before);
  EXPECT_THAT(session->TakePrepared({}), StatusIs(absl::StatusCode::kFailedPrecondition, ""));
  int refused = 0;
  while (session->needed(0) == Need::kRequests) {
    SHOAL_ASSERT_OK_AND_ASSIGN(request, session->Prepare(random_));
    if (request.kind == kRecords) {
      before = store.disk();
      const absl::Status status = session->TakePrepared(lie(request));
      if (status.ok()) continue;
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, "chunk 6 "));
      EXPECT_EQ(store.disk(), before);
      ++refused;
      SHOAL_ASSERT_OK_AND_ASSIGN(request, session->Prepare(random_));
    }
    // Cut off, and then whole.
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, request));
    EXPECT_THAT(session->TakePrepared(BytesView(answer).first(answer.size() - 1)),
                StatusIs(absl::StatusCode::kInvalidArgument, "length"));
    SHOAL_ASSERT_OK_AND_ASSIGN(request, session->Prepare(random_));
    SHOAL_ASSERT_OK(session->TakePrepared(answer));
  }
  EXPECT_EQ(refused, 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, 200, random_));
  EXPECT_EQ(record, records.at(200));
}

// Whatever the answers hold, the client takes them, goes on and sends queries of the same length.
TEST_F(PianoTest, AnyAnswerOfTheRightLengthIsTaken) {
  const Records records(60, 7);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t row = 8;
  int wrong = 0;
  for (uint64_t left = *session->Budget(); left > 0; --left) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                               session->Ask({.rows = std::span(&row, 1), .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
    SHOAL_ASSERT_OK_AND_ASSIGN(Bytes answer, Answer(*server, requests[0]));
    if (left % 3 == 0) random_.Fill(answer);
    const BytesView view = answer;
    for (const BytesView bad : {view.first(view.size() - 1), BytesView()}) {
      EXPECT_THAT(batch->Finish(std::span(&bad, 1)),
                  StatusIs(absl::StatusCode::kInvalidArgument, "bytes instead of"));
    }
    SHOAL_ASSERT_OK(batch->Finish(std::span(&view, 1)));
    EXPECT_THAT(batch->Finish(std::span(&view, 1)),
                StatusIs(absl::StatusCode::kFailedPrecondition, "without their query"));
    EXPECT_EQ(session->Budget(), left - 1);
    EXPECT_EQ(session->needed(1), Need::kNothing);
    const SecretVector<uint8_t> record = batch->TakeRecords();
    wrong += Bytes(record.begin(), record.end()) != records.at(row);
  }
  EXPECT_GT(wrong, 5);
}

// A record that is said to be wrong is taken out of its hint, which gets the right one when that
// has come: an error costs a lookup or two, also over restarts and epochs. What is sent stays the
// same.
TEST_F(PianoTest, WrongAnswersAreTakenOutOfTheHints) {
  const wire::PirSetup before = Serve(Records(1500, 7).content())->setup();
  MemoryStore prepared;
  {
    const auto server = Serve(Records(1500, 7).content());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(before, prepared));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  }
  std::vector<Bytes> sent[2];
  int wrong_later[2] = {};
  for (const bool judge : {false, true}) {
    TestRandom random(5), lies(6);
    Records records(1500, 7);
    const auto server = Serve(records.content());
    auto store = std::make_unique<MemoryStore>(prepared.disk());
    SHOAL_ASSERT_OK_AND_ASSIGN(auto session, Open(before, *store));
    const auto ask = [&](uint64_t row, bool lie) {
      auto batch = session->Ask({.rows = std::span(&row, 1), .keys = 2}).value();
      while (batch->steps() > 0) {
        const auto requests = batch->Next(random).value();
        sent[judge].push_back(requests[0].body);
        Bytes answer = Answer(*server, requests[0]).value();
        if (lie && batch->steps() == 2) lies.Fill(answer);
        const BytesView view = answer;
        SHOAL_EXPECT_OK(batch->Finish(std::span(&view, 1)));
      }
      const auto record = batch->TakeRecords();
      const bool right = Bytes(record.begin(), record.end()) == records.at(row);
      if (judge) {
        SHOAL_EXPECT_OK(batch->Judge(record, {right}));
      }
      return right;
    };
    const auto restart = [&] {
      session.reset();
      store = std::make_unique<MemoryStore>(store->disk());
      session = Open(server->setup(), *store).value();
    };
    for (uint64_t row = 0; row < 20; ++row) EXPECT_FALSE(ask(row, true));
    restart();
    // Some rows that hints wait for change before they come.
    const std::vector<uint64_t> changed = {1, 5, 9, 700};
    for (const uint64_t row : changed) records.Fill(row, 77);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta, server->Refresh(records.content(2), changed));
    restart();
    SHOAL_ASSERT_OK(session->Advance(*delta));
    restart();
    for (uint64_t row = 0; row < 20; ++row) {
      int times = 0;
      while (!ask(row, false) && ++times < 4) {
      }
    }
    for (uint64_t i = 0; *session->Budget() >= 2; ++i) {
      wrong_later[judge] += !ask(i % 3 == 0 ? i % 20 : i * 37 % 1500, false);
    }
    if (judge) break;
  }
  EXPECT_GT(wrong_later[false], 5);
  EXPECT_LT(wrong_later[true], wrong_later[false] / 3);
  const size_t common = 40;  // of the lies; then the two ask as often as they fail
  for (size_t i = 0; i < common; ++i) EXPECT_EQ(sent[0][i], sent[1][i]) << i;
}

// A query whose answer is lost is sent again as it is, before another one, also by another process.
TEST_F(PianoTest, ALostAnswerIsAskedForAgain) {
  const Records records(60, 7);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t budget = *session->Budget(), row = 31;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                             session->Ask({.rows = std::span(&row, 1), .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
  EXPECT_EQ(session->needed(1), Need::kRequests);
  EXPECT_THAT(batch->Next(random_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not finished"));
  EXPECT_THAT(session->Ask({.rows = std::span(&row, 1), .keys = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition, ""));
  MemoryStore other(store.disk());
  for (const bool again : {false, true}) {
    if (again) {
      SHOAL_ASSERT_OK_AND_ASSIGN(session, Open(server->setup(), other));
    }
    ASSERT_EQ(session->needed(0), Need::kRequests);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
    EXPECT_EQ(request.kind, kQuery);
    EXPECT_EQ(request.body, requests[0].body);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, request));
    SHOAL_ASSERT_OK(session->TakePrepared(answer));
    EXPECT_EQ(session->Budget(), budget - 1);
    for (const uint64_t each : {31, 5}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, each, random_));
      EXPECT_EQ(record, records.at(each));
    }
  }
}

// An error of the store ends the session: what is on disk is not known.
TEST_F(PianoTest, NothingIsSentThatIsNotDurable) {
  const Records records(60, 7);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t row = 31;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                             session->Ask({.rows = std::span(&row, 1), .keys = 2}));
  store.KillAfter(0, false);
  EXPECT_THAT(batch->Next(random_), StatusIs(absl::StatusCode::kUnavailable, "killed"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(batch->Next(random_), StatusIs(absl::StatusCode::kFailedPrecondition, "anew"));
    EXPECT_THAT(session->Prepare(random_), StatusIs(absl::StatusCode::kFailedPrecondition, "anew"));
  }
}

// Changed rows reach hints, backups, rows beside, and a query that is under way; a preparation goes
// on with the chunks that it lacks.
TEST_F(PianoTest, EpochsAreFollowed) {
  for (const int prepared : {0, 1, 7, 1000}) {
    SCOPED_TRACE(prepared);
    Records records(100, 6);
    const auto server = Serve(records.content());
    MemoryStore::Disk disk;
    wire::PirSetup old = server->setup();
    {
      MemoryStore store;
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(old, store));
      for (int i = 0; i < prepared && session->needed(0) == Need::kRequests; ++i) {
        SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
        SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, request));
        SHOAL_ASSERT_OK(session->TakePrepared(answer));
      }
      if (session->needed(0) == Need::kNothing) {
        // Rows that are beside hints from now on, and one that is under way.
        for (const uint64_t row : {3, 4, 50, 3}) {
          SHOAL_ASSERT_OK(Fetch(*session, *server, row, random_).status());
        }
        const uint64_t row = 50;
        SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                                   session->Ask({.rows = std::span(&row, 1), .keys = 1}));
        SHOAL_ASSERT_OK(batch->Next(random_).status());
      }
      disk = store.disk();
    }
    for (uint64_t epoch = 2; epoch < 5; ++epoch) {
      const std::vector<uint64_t> changed = {3, 50, 51, 99};
      for (const uint64_t row : changed) records.Fill(row, static_cast<uint8_t>(epoch + row));
      EXPECT_EQ(*server->RefreshShare(records.content(epoch), changed), 0.04);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta,
                                 server->Refresh(records.content(epoch), changed));
      ASSERT_TRUE(delta.has_value());
      // A server that is made of the new table is the same.
      EXPECT_EQ(SetupId(server->setup()), SetupId(Serve(records.content(epoch))->setup()));
      MemoryStore store(disk);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
      if (prepared > 0) {
        ASSERT_EQ(session->behind(), SetupId(old));
        EXPECT_EQ(session->Budget(), 0u);
        EXPECT_THAT(session->Ask({.rows = {}, .keys = 1}),
                    StatusIs(absl::StatusCode::kFailedPrecondition, ""));
        Delta other = *delta;
        other.from[0] ^= 1;
        EXPECT_THAT(session->Advance(other), StatusIs(absl::StatusCode::kFailedPrecondition, ""));
        SHOAL_ASSERT_OK(session->Advance(*delta));
        EXPECT_EQ(session->behind(), std::nullopt);
      }
      if (prepared < 1000 && epoch < 4) {
        disk = store.disk();
        old = server->setup();
        continue;
      }
      SHOAL_ASSERT_OK_AND_ASSIGN(const int requests, Prepare(*session, *server, random_));
      // The digests, and the chunks that had not come; or the query that was under way.
      EXPECT_EQ(requests, prepared == 0   ? 1 + 7
                          : prepared == 1 ? 1 + 7
                          : prepared == 7 ? 1 + 1
                          : epoch == 2    ? 1
                                          : 0);
      for (const uint64_t row : {50, 3, 4, 99, 51, 3, 0}) {
        SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, row, random_));
        ASSERT_EQ(record, records.at(row)) << row;
      }
      disk = store.disk();
      old = server->setup();
    }
  }
}

// Without a delta a session begins anew, and only when it is told to.
TEST_F(PianoTest, AnEpochWithoutADeltaBeginsAnew) {
  Records records(100, 6);
  const auto server = Serve(records.content());
  MemoryStore store;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  }
  records.Fill(2, 1);
  const auto next = Serve(records.content(2));
  MemoryStore kept(store.disk());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(next->setup(), kept));
  EXPECT_TRUE(session->behind().has_value());
  EXPECT_EQ(kept.writes(), 0u);
  SHOAL_ASSERT_OK(Prepare(*session, *next, random_).status());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *next, 2, random_));
  EXPECT_EQ(record, records.at(2));
}

TEST_F(PianoTest, MostOfATableIsNoDelta) {
  Records records(100, 6);
  const auto server = Serve(records.content());
  std::vector<uint64_t> changed;
  for (uint64_t row = 0; row < 90; ++row) changed.push_back(row);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta, server->Refresh(records.content(2), changed));
  EXPECT_FALSE(delta.has_value());
  EXPECT_THAT(server->Refresh(records.content(3), std::vector<uint64_t>{2, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, "rise"));
  EXPECT_THAT(server->Refresh(records.content(3), std::vector<uint64_t>{100}),
              StatusIs(absl::StatusCode::kInvalidArgument, "rise"));
  const Records larger(101, 6);
  EXPECT_THAT(server->Refresh(larger.content(3), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, "shape"));
}

// A query of another epoch or table, a kind that there is not, other lengths.
TEST_F(PianoTest, BadRequestsAreRefusedAndTheServerGoesOn) {
  const Records records(100, 6);
  const auto server = Serve(records.content()), next = Serve(records.content(2));
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t row = 31;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                             session->Ask({.rows = std::span(&row, 1), .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
  const Request& good = requests[0];
  EXPECT_THAT(Answer(*next, good), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch"));
  const auto refused = [&](Request request) {
    return absl::IsInvalidArgument(Answer(*server, request).status());
  };
  Request bad = good;
  bad.role = Role::kOnline;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.kind = 3;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.count = 2;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.body.pop_back();
  EXPECT_TRUE(refused(bad));
  bad.body.clear();
  EXPECT_TRUE(refused(bad));
  for (const Kind kind : {kRecords, kDigests}) {
    for (const uint64_t at : {uint64_t{100}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
      bad = good;
      bad.kind = kind;
      bad.body.resize(sizeof(Digest));
      AppendLe<uint64_t>(bad.body, at);
      EXPECT_TRUE(refused(bad)) << kind << " " << at;
    }
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, good));
  const BytesView view = answer;
  SHOAL_ASSERT_OK(batch->Finish(std::span(&view, 1)));
  const SecretVector<uint8_t> record = batch->TakeRecords();
  EXPECT_EQ(Bytes(record.begin(), record.end()), records.at(31));
}

TEST_F(PianoTest, ASessionOfAnotherTableIsRefused) {
  const Records records(100, 6);
  const auto server = Serve(records.content());
  MemoryStore store;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  }
  wire::PirSetup other = server->setup();
  other.set_table_id(std::string(32, 'x'));
  MemoryStore kept(store.disk());
  EXPECT_THAT(Open(other, kept), StatusIs(absl::StatusCode::kFailedPrecondition, "another table"));
  EXPECT_EQ(kept.disk(), store.disk());
}

TEST_F(PianoTest, HostileSetupsAreRefused) {
  const Records records(100, 6);
  const wire::PirSetup good = Serve(records.content())->setup();
  SHOAL_EXPECT_OK(Piano().SizesOf(good).status());
  const auto refused = [](const wire::PirSetup& setup) {
    MemoryStore store;
    const absl::Status status = Piano().SizesOf(setup).status();
    EXPECT_EQ(Open(setup, store).ok(), status.ok());
    return absl::IsInvalidArgument(status);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    wire::PirSetup bad = good;
    const uint64_t number = random_.U64() >> random_.Below(64);
    switch (trial % 7) {
      case 0:
        bad.set_rows(number);
        break;
      case 1:
        bad.set_record_bytes(static_cast<uint32_t>(number));
        break;
      case 2:
        bad.set_rows_per_column(number | 1);
        break;
      case 3:
        bad.set_columns(number | 1);
        break;
      case 4:
        bad.set_hint_bytes(number);
        break;
      case 5:
        bad.mutable_shape()->resize(random_.Below(12));
        if (!bad.shape().empty())
          random_.Fill(MutableBytes(reinterpret_cast<uint8_t*>(bad.mutable_shape()->data()),
                                    bad.shape().size()));
        break;
      default:
        bad.mutable_hint_digest()->resize(random_.Below(40));
        break;
    }
    if (SetupId(bad) == SetupId(good)) continue;
    if (bad.hint_digest().size() == 32 && trial % 7 == 6) continue;
    EXPECT_TRUE(refused(bad)) << bad.ShortDebugString();
  }
  // The largest that is a shape at all: nothing overflows, and the memory is refused.
  wire::PirSetup large = good;
  large.set_rows(uint64_t{1} << 31);
  large.set_record_bytes(kMaxRecordBytes);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, Piano().SizesOfShape(large));
  large.set_hint_bytes(sizes.hint_bytes);
  MemoryStore store;
  EXPECT_THAT(Open(large, store), StatusIs(absl::StatusCode::kResourceExhausted, "hints"));
}

// A state of any bytes is refused or taken, and a session that was made of it keeps running.
TEST_F(PianoTest, MutatedStates) {
  Records records(40, 6);
  const auto server = Serve(records.content());
  MemoryStore store;
  std::vector<MemoryStore::Disk> disks;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    while (session->needed(0) == Need::kRequests) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, session->Prepare(random_));
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes answer, Answer(*server, request));
      SHOAL_ASSERT_OK(session->TakePrepared(answer));
      disks.push_back(store.disk());
    }
    for (const uint64_t row : {1, 2, 3}) {
      SHOAL_ASSERT_OK(Fetch(*session, *server, row, random_).status());
    }
    disks.push_back(store.disk());
  }
  int taken = 0, refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    MemoryStore::Disk disk = disks[random_.Below(disks.size())];
    const uint64_t which = random_.Below(1 + disk.records.size());
    Bytes& bytes = which == 0 ? disk.state : disk.records[which - 1];
    if (trial % 5 == 0) {
      bytes.resize(1 + random_.Below(bytes.size() + 9));
    } else {
      // Mostly numbers: behind the table's head, parities may be anything.
      const uint64_t most = trial % 2 == 0 ? bytes.size() : std::min<uint64_t>(bytes.size(), 160);
      bytes[random_.Below(most)] ^= static_cast<uint8_t>(1u << random_.Below(8));
    }
    MemoryStore mutated(disk);
    const auto session = Open(server->setup(), mutated);
    if (!session.ok()) {
      ++refused;
      ASSERT_TRUE(absl::IsDataLoss(session.status()) ||
                  absl::IsFailedPrecondition(session.status()))
          << session.status();
      continue;
    }
    ++taken;
    const auto prepared = Prepare(**session, *server, random_);
    if (!prepared.ok()) {
      ASSERT_THAT(prepared.status(), StatusIs(absl::StatusCode::kDataLoss, ""));
    } else {
      const auto record = Fetch(**session, *server, 7, random_);
      ASSERT_TRUE(record.ok() || absl::IsResourceExhausted(record.status())) << record.status();
    }
  }
  EXPECT_GT(taken, 300);
  EXPECT_GT(refused, 300);
}

TEST_F(PianoTest, DeltasOfAnyBytes) {
  Records records(40, 6);
  const auto server = Serve(records.content());
  const wire::PirSetup before = server->setup();
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, Open(before, store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  records.Fill(9, 1);
  records.Fill(30, 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto delta,
                             server->Refresh(records.content(2), std::vector<uint64_t>{9, 30}));
  for (int trial = 0; trial < 500; ++trial) {
    Delta bad = *delta;
    if (trial % 3 == 0) {
      bad.changes.resize(random_.Below(40));
    } else {
      bad.changes[trial % 3 == 1 ? random_.Below(8) : 14 + random_.Below(8)] ^=
          static_cast<uint8_t>(1u << random_.Below(8));
    }
    MemoryStore copy(store.disk());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, Open(before, copy));
    const absl::Status status = other->Advance(bad);
    if (!status.ok()) {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "delta"));
      ASSERT_EQ(SetupId(other->setup()), SetupId(before));
      ASSERT_EQ(copy.writes(), 0u);
    }
  }
  SHOAL_ASSERT_OK(session->Advance(*delta));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, 30, random_));
  EXPECT_EQ(record, records.at(30));
}

// ---- What the authors' programs did otherwise (docs/half-sets.md) ----

// There the key was drawn from the time, or fixed: here it is 16 bytes of the source that is given.
TEST_F(PianoTest, TheKeyIsDrawnFromTheSourceThatIsGiven) {
  const Records records(60, 7);
  const auto server = Serve(records.content());
  constexpr size_t kKeyAt = 8 + 32 + 32 + 16;
  std::vector<Bytes> keys;
  for (const uint64_t seed : {1, 2, 1}) {
    MemoryStore store;
    TestRandom random(seed), same(seed);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random).status());
    Bytes expected(16);
    same.Fill(expected);
    keys.push_back(ToBytes(BytesView(store.disk().state).subspan(kKeyAt, 16)));
    EXPECT_EQ(keys.back(), expected);
  }
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_EQ(keys[0], keys[2]);
}

// There a chunk had so many replacements, and no more: then the program ended, or XORed zeros. And
// a row that had been asked for ended it.
TEST_F(PianoTest, AllQueriesMayBeForOneChunkOrForOneRow) {
  const Records records(400, 7);
  const auto server = Serve(records.content());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, SetShapeOf(server->setup()));
  for (const uint64_t rows : {shape.chunk_rows(), uint64_t{1}}) {
    MemoryStore store;
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
    SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
    for (uint64_t i = 0; *session->Budget() > 0; ++i) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, i % rows, random_));
      ASSERT_EQ(record, records.at(i % rows)) << i;
    }
    EXPECT_TRUE(absl::IsResourceExhausted(Fetch(*session, *server, 0, random_).status()) ||
                session->needed(1) == Need::kRequests);
  }
}

// There a row's number was compared with the number of words, of which a row has several.
TEST_F(PianoTest, RowsAreCountedAsRows) {
  const Records records(100, 24);
  const auto server = Serve(records.content());
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, Open(server->setup(), store));
  SHOAL_ASSERT_OK(Prepare(*session, *server, random_).status());
  const uint64_t budget = *session->Budget();
  for (const uint64_t row : {uint64_t{100}, uint64_t{299}, uint64_t{300}, ~uint64_t{0}}) {
    EXPECT_THAT(session->Ask({.rows = std::span(&row, 1), .keys = 1}),
                StatusIs(absl::StatusCode::kOutOfRange, "no such row"));
  }
  EXPECT_EQ(session->Budget(), budget);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Fetch(*session, *server, 99, random_));
  EXPECT_EQ(record, records.at(99));
}

// What docs/engines.md says.
TEST_F(PianoTest, SizesOfTables) {
  struct Case {
    uint64_t rows;
    uint32_t record_bytes;
    double state_mb, queries;
  };
  for (const Case& c : {Case{1 << 20, 1072, 114, 14'000}, Case{1 << 22, 256, 57, 31'000},
                        Case{1 << 24, 64, 29, 68'000}}) {
    Content content;
    content.rows = c.rows;
    content.record_bytes = c.record_bytes;
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup setup, Piano().ShapeOf(content, {}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, Piano().SizesOfShape(setup));
    SHOAL_ASSERT_OK_AND_ASSIGN(const SetShape shape, SetShapeOf(setup));
    EXPECT_NEAR(shape.backups, c.queries, 0.05 * c.queries);
    EXPECT_NEAR(static_cast<double>(sizes.hint_memory_bytes), c.state_mb * 1e6, 0.2e6 * c.state_mb);
    EXPECT_EQ(sizes.answer_bytes, 2u * c.record_bytes);
  }
}

}  // namespace
}  // namespace shoal::pir::sets
