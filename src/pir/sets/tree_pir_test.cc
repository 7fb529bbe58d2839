#include "src/pir/sets/tree_pir.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/kit/testing/pair_contract.h"

namespace shoal::pir::sets {
namespace {

using pir::testing::MemoryStore;
using pir::testing::PairContract;
using pir::testing::Records;
using pir::testing::TwoVersions;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr uint64_t kRows = 300;
constexpr uint32_t kRecordBytes = 20;

class TreePirTest : public PairContract {
 protected:
  // Small PIR reads answers if `read`, although that saves nothing where records are short.
  explicit TreePirTest(uint64_t rows = kRows, uint32_t record_bytes = kRecordBytes,
                       bool read = false)
      : PairContract(TreePir(), rows, record_bytes) {
    if (!read) return;
    ServerOptions options;
    options.shape = TreePir().ShapeOf(records_.content(), {}).value();
    options.shape->set_shape(EncodeTreeSetupShape(3, /*read=*/true));
    MakeServers(options);
  }
};

TEST_F(TreePirTest, RecordsComeBackInEveryRun) { ExpectRecordsInEveryRun(); }

// Hints come in pieces, and an interrupted preparation goes on where it stopped.
TEST_F(TreePirTest, PreparationGoesOnWhereItStopped) {
  const Records wide(3, 400'000);
  records_ = wide;
  for (auto& server : servers_) {
    SHOAL_ASSERT_OK_AND_ASSIGN(server, TreePir().CreateServer(records_.content(), {}));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeSetup parsed, ParseTreeSetup(servers_[0]->setup()));
  const TreeShape& shape = parsed.shape;
  EXPECT_EQ(TreeHintsOf(shape), 20u);
  ExpectPreparationGoesOn((shape.hints + 19) / 20, 20, kTreeSeedBytes, "bytes of hints");
}

// The process ends after a query was spent: before it was sent, or before an answer came. What is
// sent afterwards are the same bytes, and no hint is spoilt.
TEST_F(TreePirTest, AQueryWithoutAnswersIsSentAgain) { ExpectLostAnswersAreAskedForAgain(); }

// Nothing that is not durable is sent, and after a write that failed nothing is sent at all.
TEST_F(TreePirTest, AStateThatCannotBeSavedEndsTheSession) { ExpectAnEndWhenNothingIsDurable(); }

// The process is killed at every write, which is durable or not. What is sent of one state is one
// pair of queries, whatever was asked for, and the hints go on.
TEST_F(TreePirTest, KilledAtEveryWrite) { ExpectNothingIsSentTwiceByKilledClients(); }

// Answers that are read by Small PIR.
class TreePirReadTest : public TreePirTest {
 protected:
  TreePirReadTest() : TreePirTest(kRows, kRecordBytes, /*read=*/true) {}
};

TEST_F(TreePirReadTest, RecordsComeBackAndMessagesLookAlike) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeSetup parsed, ParseTreeSetup(servers_[0]->setup()));
  ASSERT_TRUE(parsed.reader.has_value());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, TreePir().SizesOf(servers_[0]->setup()));
  for (uint64_t run = 0; run < 2; ++run) {
    const auto session = Open();
    Prepare(*session);
    sent_.clear();
    Fetch(*session, {0, 299, 7, 7, 150 + run}, 6);
    ASSERT_EQ(sent_.size(), 12u);
    for (const Request& request : sent_) {
      EXPECT_EQ(2 * request.body.size(), sizes.query_bytes);
      EXPECT_EQ(2 * request.answer_bytes, sizes.answer_bytes);
      EXPECT_LE(request.body.size(), servers_[0]->max_request_bytes());
    }
  }
}

// What is sent again is the same tree, of which the answer is read by a fresh query: one key never
// encrypts two things, and nothing of it has to be kept.
TEST_F(TreePirReadTest, AQueryWithoutAnswersIsSentAgain) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeSetup parsed, ParseTreeSetup(servers_[0]->setup()));
  const size_t tree_bytes = 32 + parsed.shape.query_bytes();
  Prepare(*Open());
  for (const uint64_t i : {3, 100, 299}) {
    std::vector<Request> requests;
    {
      const auto session = Open();
      const std::vector<uint64_t> rows = {i};
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
      SHOAL_ASSERT_OK_AND_ASSIGN(requests, batch->Next(random_));
      EXPECT_THAT(batch->Finish(std::vector<BytesView>(2)), StatusIs(kInvalid, "bytes"));
    }
    sent_.clear();
    const auto session = Open();
    Prepare(*session);
    ASSERT_EQ(sent_.size(), 2u);
    for (const Request& request : sent_) {
      const Request& before = requests[request.role == Role::kOffline ? 0 : 1];
      ASSERT_EQ(request.body.size(), before.body.size());
      EXPECT_EQ(ToBytes(BytesView(request.body).first(tree_bytes)),
                ToBytes(BytesView(before.body).first(tree_bytes)));
      // Behind the header that all of Small PIR's queries have.
      EXPECT_NE(ToBytes(BytesView(request.body).subspan(tree_bytes + 40)),
                ToBytes(BytesView(before.body).subspan(tree_bytes + 40)));
    }
    Fetch(*session, {i, 299 - i}, 2);
  }
}

TEST_F(TreePirReadTest, BadRequestsAreRefusedAndTheServerGoesOn) {
  const auto session = Open();
  Prepare(*session);
  const std::vector<uint64_t> rows = {5};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = rows, .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeSetup parsed, ParseTreeSetup(servers_[0]->setup()));
  const size_t tree_bytes = 32 + parsed.shape.query_bytes();
  Request bad = requests[0];
  bad.body.pop_back();
  EXPECT_THAT(Send(bad), StatusIs(kInvalid, "no request of this engine"));
  bad.body.resize(tree_bytes);  // as where answers come whole
  EXPECT_THAT(Send(bad), StatusIs(kInvalid, "no request of this engine"));
  bad = requests[0];
  bad.body[tree_bytes + 8] ^= 1;  // another reader
  EXPECT_THAT(Send(bad), StatusIs(kPrecondition, "smallpir"));
  bad = requests[0];
  std::fill_n(bad.body.begin() + static_cast<ptrdiff_t>(tree_bytes + 40), 64, uint8_t{0xff});
  EXPECT_THAT(Send(bad), StatusIs(kInvalid, ""));  // no residues
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes offline, Send(requests[0]));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes online, Send(requests[1]));
  const BytesView answers[] = {offline, online};
  SHOAL_ASSERT_OK(batch->Finish(answers));
  EXPECT_EQ(ToBytes(batch->TakeRecords()), records_.at(5));
}

TEST_F(TreePirReadTest, EpochsAreTaken) {
  const auto session = Open();
  Prepare(*session);
  const std::vector<uint64_t> changed = {0, 7, 8, 299};
  for (const uint64_t row : changed) records_.Fill(row, static_cast<uint8_t>(row + 99));
  std::optional<Delta> delta;
  for (auto& server : servers_) {
    SHOAL_ASSERT_OK_AND_ASSIGN(delta, server->Refresh(records_.content(2), changed));
    ASSERT_TRUE(delta.has_value());
  }
  SHOAL_ASSERT_OK(session->Advance(*delta));
  Fetch(*session, {0, 7, 8, 9, 299}, 5);
}

// The engine has answers read where that makes all bytes of a query an eighth.
TEST(TreePirRuleTest, WideRecordsAreRead) {
  for (const auto& [rows, record_bytes, read] :
       {std::tuple<uint64_t, uint32_t, bool>{1 << 20, 64, false},
        {1 << 20, 1072, false},
        {1 << 20, 4144, true},
        {1 << 20, 16'432, true},
        {1 << 24, 80, false},
        {1 << 16, 4144, false},
        {1 << 16, 16'432, true},
        {1 << 24, 1072, true}}) {
    SCOPED_TRACE(record_bytes);
    Content content;
    content.rows = rows;
    content.record_bytes = record_bytes;
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PirSetup setup, TreePir().ShapeOf(content, {}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const TreeSetup parsed, ParseTreeSetup(setup));
    EXPECT_EQ(parsed.reader.has_value(), read);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Sizes sizes, TreePir().SizesOf(setup));
    const uint64_t whole = 2 * parsed.shape.answer_bytes();
    if (read) {
      EXPECT_LE(8 * (sizes.query_bytes + sizes.answer_bytes), whole + 16 * 2'000);
    } else {
      EXPECT_EQ(sizes.answer_bytes, whole);
    }
  }
}

// Who finds the file learns the last query's row at most, beside the sets of the hints that there
// are: nothing is kept of a query whose hint was replaced again.
TEST_F(TreePirTest, TheFileTellsTheLastQueryAtMost) {
  ExpectFileWithoutQueries([](const Bytes& state, uint64_t queries) {
    // The hints' head has the number of queries, that all are there, and no question.
    const BytesView head = BytesView(state).subspan(124, 26);
    EXPECT_EQ(LoadLe<uint64_t>(head.data()), queries);
    EXPECT_TRUE(std::ranges::all_of(head.subspan(12), [](uint8_t byte) { return byte == 0; }));
  });
}

// A query reads the XOR of its hint, and no other one.
TEST_F(TreePirTest, AQueryReadsItsParityAlone) {
  const uint64_t hints = ParseTreeSetup(servers_[0]->setup())->shape.hints;
  ExpectReads(hints * kRecordBytes, kRecordBytes);
}

// Sessions as version 0.2 left them, with the hints, a query and its answers in a journal.
class TreePirOfTwoVersionsTest : public TreePirTest {
 protected:
  // Asks for row 1.
  TwoVersions Ask() {
    TwoVersions versions;
    const auto session = Open();
    const Request hints = *session->Prepare(random_);
    versions.first = store_->disk();
    Bytes came = {1}, spent = {2}, answered = {3};
    const Bytes parities = *Send(hints);
    Append(came, parities);
    SHOAL_EXPECT_OK(session->TakePrepared(parities));
    const auto batch = *session->Ask({.rows = std::vector<uint64_t>{1}, .keys = 1});
    const std::vector<Request> requests = *batch->Next(random_);
    versions.asked = store_->disk();
    const Bytes offline = *Send(requests[0]), online = *Send(requests[1]);
    const BytesView answers[] = {offline, online};
    SHOAL_EXPECT_OK(batch->Finish(answers));
    versions.now = store_->disk();

    // The question behind the head and the numbers of queries and hints; the hint's XOR.
    const BytesView question = BytesView(versions.asked.state).subspan(124 + 13, 13);
    Append(spent, question.first(8));
    AppendLe<uint64_t>(spent, 0);
    Append(spent, question.subspan(8));
    Append(answered, BytesView(versions.now.state)
                         .last(parities.size())
                         .subspan(LoadLe<uint32_t>(&question[8]) * kRecordBytes, kRecordBytes));
    versions.first.records = {came, spent, answered};
    return versions;
  }
};

TEST_F(TreePirOfTwoVersionsTest, ASessionOfVersionTwoIsReadAndKeepsNoQueries) {
  const TwoVersions versions = Ask();
  pir::testing::ExpectReadAndWithoutQueries(versions,
                                            [&](SessionStore& store) { return OpenOn(store); });
  store_.emplace(versions.first);
  Fetch(*Open(), {1, 2}, 3);
}

TEST_F(TreePirOfTwoVersionsTest, AStateOfAnotherTableOrADamagedOneIsNotUsed) {
  const MemoryStore::Disk good = Ask().first;
  ASSERT_EQ(good.records.size(), 3u);  // the hints, a query, its answers
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  for (const size_t bytes : {size_t{1}, size_t{50}, good.state.size() - 1, good.state.size() + 1}) {
    MemoryStore::Disk bad = good;
    bad.state.resize(bytes);
    ExpectRefused(bad, kLoss, "malformed");
  }
  MemoryStore::Disk bad = good;
  bad.state[0] ^= 1;
  ExpectRefused(bad, kLoss, "malformed");
  bad = good;
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
  for (size_t record = 0; record < 3; ++record) {
    for (const int change : {0, 1, 2, 3}) {
      bad = good;
      Bytes& entry = bad.records[record];
      if (change == 0) entry[0] = 9;
      if (change == 1) entry.pop_back();
      if (change == 2) entry.push_back(0);
      if (change == 3) bad.records.insert(bad.records.begin() + 2, entry);
      if (change == 3 && record == 2) continue;  // the answers themselves
      ExpectRefused(bad, kLoss, "malformed");
    }
  }
  for (const auto& [at, value] :
       {std::pair<size_t, uint8_t>{8, 0xff}, {16, 0xff}, {20, 0xff}, {21, 2}}) {
    bad = good;
    bad.records[1][at] = value;
    ExpectRefused(bad, kLoss, "malformed");
  }
  store_.emplace(good);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, TryOpen());
  Fetch(*session, {1}, 1);
}

TEST_F(TreePirTest, BadRequestsAreRefused) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TreeSetup parsed, ParseTreeSetup(servers_[0]->setup()));
  const TreeShape& shape = parsed.shape;
  ExpectBadRequestsRefused(kTreeSeedBytes, shape.hints, "hints from");
  std::vector<Request> requests;
  const auto session = Open();
  const auto batch = AskFor(*session, 5, requests);
  ASSERT_NE((shape.query_leaves() + 1) * shape.offset_bits % 8, 0u);
  requests[1].body.back() |= 0x80;
  EXPECT_THAT(Send(requests[1]), StatusIs(kInvalid, "behind its end"));
}

TEST_F(TreePirTest, ServersMustStateTheSame) {
  ExpectServersToStateTheSame();
  // Answers that nobody could use.
  wire::PirSetup large = servers_[0]->setup();
  large.set_rows(1 << 20);
  large.set_record_bytes(1 << 17);
  EXPECT_THAT(TreePir().SizesOf(large), StatusIs(kInvalid, "is the most"));
}

TEST_F(TreePirTest, SizesAreThoseOfTheMessages) { ExpectSizesOfMessages(); }

// A session follows the servers' epochs by deltas; without them it begins anew.
TEST_F(TreePirTest, EpochsAreTaken) { ExpectEpochsToBeTaken(7, 299); }

class TreePirJudgeTest : public TreePirTest {
 protected:
  static constexpr int kNobody = -1, kOffline = 0, kOnline = 1;
  // Asks for the row, and for some more, with answers that `liar` made up. Returns whether the
  // record is right, which the session is told if `judge`.
  bool Ask(Session& session, uint64_t row, int liar = kNobody, bool judge = true,
           uint64_t keys = 1) {
    const std::vector<uint64_t> rows = {row};
    auto batch = session.Ask({.rows = rows, .keys = keys}).value();
    while (batch->steps() > 0) {
      const auto requests = batch->Next(random_).value();
      Bytes answers[2];
      for (int i = 0; i < 2; ++i) {
        answers[i] = Send(requests[i]).value();
        if (i == liar && batch->steps() == keys) lies_.Fill(answers[i]);
      }
      const BytesView views[] = {answers[0], answers[1]};
      SHOAL_EXPECT_OK(batch->Finish(views));
    }
    const auto record = batch->TakeRecords();
    const bool right = ToBytes(record) == records_.at(row);
    if (judge) {
      SHOAL_EXPECT_OK(batch->Judge(record, {right}));
    }
    return right;
  }
  int WrongOf(Session& session, int times) {
    int wrong = 0;
    for (int i = 0; i < times; ++i) wrong += !Ask(session, random_.Below(kRows));
    return wrong;
  }
  TestRandom lies_{7};
};

// A wrong answer costs one lookup, or a later one; nothing of it stays.
TEST_F(TreePirJudgeTest, WrongAnswersAreTakenOutOfTheHints) {
  for (const bool restarts : {false, true}) {
    store_.emplace();
    auto session = Open();
    Prepare(*session);
    // A wrong XOR of the online server's spoils the record, and the hint that it would be in.
    for (uint64_t row = 0; row < 20; ++row) EXPECT_FALSE(Ask(*session, row, kOnline));
    if (restarts) session = Open();
    // Each of these rows by another hint; then the hints that wait for it get it.
    for (uint64_t row = 0; row < 20; ++row) {
      while (!Ask(*session, row)) {
      }
    }
    if (restarts) session = Open();
    EXPECT_EQ(WrongOf(*session, 400), 0);
    // A wrong XOR of the offline server's is not noticed before its hint is used. Then it costs as
    // much.
    int wrong = 0;
    for (uint64_t row = 0; row < 100; ++row) wrong += !Ask(*session, row, kOffline);
    EXPECT_LT(wrong, 20);
    wrong = WrongOf(*session, 500);
    EXPECT_GT(wrong, 10) << restarts;
    EXPECT_LT(wrong, 100) << restarts;
  }
}

// If nobody says that a record was wrong, the error stays in the hints.
TEST_F(TreePirJudgeTest, WithoutAVerdictAnErrorStays) {
  const auto session = Open();
  Prepare(*session);
  for (uint64_t row = 0; row < 20; ++row) Ask(*session, row, kOnline, /*judge=*/false);
  int wrong = 0;
  for (int i = 0; i < 400; ++i) wrong += !Ask(*session, random_.Below(kRows), kNobody, false);
  EXPECT_GT(wrong, 5);
}

// The wrong record's hint may serve padding of the same lookup, which nobody verifies.
TEST_F(TreePirJudgeTest, PaddingCarriesNoErrorOn) {
  const auto session = Open();
  Prepare(*session);
  for (uint64_t row = 0; row < 10; ++row) EXPECT_FALSE(Ask(*session, row, kOnline, true, 30));
  // Many hints that wait, which padding then uses.
  for (uint64_t row = 0; row < 150; ++row) Ask(*session, row, kOnline);
  for (uint64_t i = 0; i < 30; ++i) Ask(*session, i, kNobody, true, 30);
  // What waits may be a record of padding, of any row.
  for (uint64_t row = 0; row < kRows; ++row) {
    while (!Ask(*session, row)) {
    }
  }
  EXPECT_EQ(WrongOf(*session, 500), 0);
}

// What is sent is the same, whatever the verdict.
TEST_F(TreePirJudgeTest, AVerdictChangesNoLaterQuery) {
  Prepare(*Open());
  const MemoryStore::Disk disk = store_->disk();
  std::vector<Bytes> sent[2];
  for (const bool judge : {false, true}) {
    store_.emplace(disk);
    random_ = TestRandom(5);
    sent_.clear();
    auto session = TryOpen().value();
    for (uint64_t i = 0; i < 60; ++i) {
      Ask(*session, i * 7 % kRows, i % 3 == 0 ? kOnline : i % 3 == 1 ? kOffline : kNobody, judge);
    }
    for (const Request& request : sent_) sent[judge].push_back(request.body);
  }
  EXPECT_EQ(sent[0], sent[1]);
}

// A row that changes while hints wait for its record: they get the new one.
TEST_F(TreePirJudgeTest, HintsThatWaitFollowEpochs) {
  auto session = Open();
  Prepare(*session);
  for (uint64_t row = 0; row < 20; ++row) EXPECT_FALSE(Ask(*session, row, kOnline));
  std::vector<uint64_t> changed;
  for (uint64_t row = 0; row < 30; row += 2) changed.push_back(row);
  for (const uint64_t row : changed) records_.Fill(row, static_cast<uint8_t>(row + 99));
  std::optional<Delta> delta;
  for (auto& server : servers_) {
    SHOAL_ASSERT_OK_AND_ASSIGN(delta, server->Refresh(records_.content(2), changed));
  }
  SHOAL_ASSERT_OK(session->Advance(*delta));
  session = Open();
  for (uint64_t row = 0; row < 20; ++row) {
    while (!Ask(*session, row)) {
    }
  }
  EXPECT_EQ(WrongOf(*session, 300), 0);
}

// Hints are made for as long as the epoch lasts.
TEST_F(TreePirTest, HintsEndWhenTheyAreToldTo) { ExpectHintsToEndWhenTold(nullptr); }

// ---- What the paper's authors' program did otherwise ----

// There an empty answer stood for "no set matches": whoever saw it knew that the row was in none.
TEST_F(TreePirTest, AClientWithoutAMatchingHintSendsAllTheSame) {
  // A table of which hints hold few rows: a record so wide that there are few hints.
  records_ = Records(3, 400'000);
  for (auto& server : servers_) {
    SHOAL_ASSERT_OK_AND_ASSIGN(server, TreePir().CreateServer(records_.content(), {}));
  }
  const auto session = Open();
  Prepare(*session);
  sent_.clear();
  for (int i = 0; i < 20; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                               session->Ask({.rows = std::vector<uint64_t>{2}, .keys = 1}));
    Step(*batch);
  }
  ASSERT_EQ(sent_.size(), 40u);
  for (const Request& request : sent_) EXPECT_EQ(request.body.size(), sent_[0].body.size());
}

// There one dummy query went to both servers, which could have compared. Here the two are of
// different sets.
TEST_F(TreePirTest, PaddingIsTwoQueries) {
  const auto session = Open();
  Prepare(*session);
  sent_.clear();
  Fetch(*session, {}, 50);
  for (size_t i = 0; i < sent_.size(); i += 2) EXPECT_NE(sent_[i].body, sent_[i + 1].body);
}

// There heights were a variable of the process, so that two tables could not be served.
TEST_F(TreePirTest, TwoTablesInOneProcess) {
  const Records other(70'000, 8);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto server, TreePir().CreateServer(other.content(), {}));
  const auto session = Open();
  Prepare(*session);
  Fetch(*session, {1}, 1);
  // More rows than 16 bits count, and no power of four.
  const wire::PirSetup setups[] = {server->setup(), server->setup()};
  MemoryStore store;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto wide, TreePir().OpenSession(setups, {.store = &store}));
  const auto send = [&](const Request& request) {
    const RequestView view = {.kind = request.kind, .count = 1, .body = request.body};
    return *server->Answer(request.role, {&view, 1})[0];
  };
  while (wide->needed(1) == Session::Need::kRequests) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Request request, wide->Prepare(random_));
    SHOAL_ASSERT_OK(wide->TakePrepared(send(request)));
  }
  for (const uint64_t row : {uint64_t{0}, uint64_t{65'535}, uint64_t{65'536}, uint64_t{69'999}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                               wide->Ask({.rows = std::vector<uint64_t>{row}, .keys = 1}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random_));
    const Bytes offline = send(requests[0]), online = send(requests[1]);
    const BytesView answers[] = {offline, online};
    SHOAL_ASSERT_OK(batch->Finish(answers));
    EXPECT_EQ(ToBytes(batch->TakeRecords()), other.at(row)) << row;
  }
  Fetch(*session, {2}, 1);
}

}  // namespace
}  // namespace shoal::pir::sets
