// Sessions of engines that keep state, in files, of which any write can be the last one of its
// process: against the same sessions in memory that never end; with bytes that are damaged; and
// as version 0.2 left them.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/rollback_anchor.h"
#include "src/client/session_file.h"
#include "src/pir/engine.h"
#include "src/pir/registry/registry.h"
#include "src/pir/testing/memory_store.h"
#include "src/pir/testing/records.h"

namespace {

// What this program's writes and reads go through. (Calls within the C library do not.)
struct Disk {
  bool watched = false;
  uint64_t events = 0, bytes_read = 0;
  // The process ends at this event: before it, in the middle of what it writes, or behind it.
  uint64_t end_at = ~uint64_t{0};
  int part = 0;  // halves
} disk;

struct Ended {};

// Throws if the process ends here; else says whether it ends behind this event.
bool EndsBehind() {
  if (!disk.watched) return false;
  if (disk.events++ != disk.end_at) return false;
  if (disk.part == 0) throw Ended();
  return true;
}

template <typename Write>
ssize_t Written(size_t bytes, const Write& write) {
  if (!EndsBehind()) return write(bytes);
  // What is shorter than a sector is written whole or not at all.
  constexpr size_t kWhole = 128;
  write(disk.part == 1 && bytes > kWhole ? bytes / 2 : bytes);
  throw Ended();
}

int Synced(long number, int fd) {
  const bool ends = EndsBehind();
  const auto result = static_cast<int>(syscall(number, fd));
  if (ends) throw Ended();
  return result;
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t bytes) {
  return Written(bytes, [&](size_t part) { return syscall(SYS_write, fd, data, part); });
}
ssize_t pwrite(int fd, const void* data, size_t bytes, off_t at) {
  return Written(bytes, [&](size_t part) { return syscall(SYS_pwrite64, fd, data, part, at); });
}
ssize_t pread(int fd, void* data, size_t bytes, off_t at) {
  const ssize_t got = syscall(SYS_pread64, fd, data, bytes, at);
  if (disk.watched && got > 0) disk.bytes_read += static_cast<uint64_t>(got);
  return got;
}
int fsync(int fd) { return Synced(SYS_fsync, fd); }
int fdatasync(int fd) { return Synced(SYS_fdatasync, fd); }

}  // extern "C"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using pir::testing::MemoryStore;
using pir::testing::Records;
using shoal::testing::StatusIs;
using shoal::testing::TestRandom;
using Need = pir::Session::Need;

std::string ReadBack(const fs::path& name) {
  std::ifstream in(name, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

class EngineSessionsTest : public ::testing::TestWithParam<const char*> {
 protected:
  EngineSessionsTest() { MakeWorld(300, 40); }

  // A table, its server for all roles, and a place for files.
  void MakeWorld(uint64_t rows, uint32_t record_bytes) {
    records_.emplace(rows, record_bytes);
    rows_ = rows;
    record_bytes_ = record_bytes;
    epoch_ = 1;
    server_ = *engine_.CreateServer(records_->content(epoch_), {});
    fs::remove_all(base_);
    fs::create_directories(base_);
    place_ = AnchorDirectory::Below(base_);
  }
  std::string path() const { return base_ / "session"; }
  std::unique_ptr<pir::Session> OpenOn(pir::SessionStore& store) const {
    auto session = TryOpen(store);
    EXPECT_THAT(session, shoal::testing::IsOk());
    return *std::move(session);
  }
  absl::StatusOr<std::unique_ptr<pir::Session>> TryOpen(pir::SessionStore& store) const {
    const std::vector<wire::PirSetup> setups(engine_.roles().size(), server_->setup());
    return engine_.OpenSession(setups, {.store = &store});
  }
  absl::StatusOr<std::unique_ptr<SessionFile>> OpenFile() {
    return SessionFile::Open(path(), {1}, place_, random_);
  }
  Bytes Answer(const pir::Request& request) const {
    const pir::RequestView view = {
        .kind = request.kind, .count = request.count, .body = request.body};
    auto answers = server_->Answer(request.role, std::span(&view, 1));
    EXPECT_THAT(answers[0], shoal::testing::IsOk());
    return *std::move(answers[0]);
  }

  // The next step of the preparation, or of a query that waits for its answers.
  void PrepareStep(pir::Session& session, uint64_t seed) const {
    TestRandom random(seed);
    const auto request = session.Prepare(random);
    SHOAL_ASSERT_OK(request.status());
    SHOAL_ASSERT_OK(session.TakePrepared(Answer(*request)));
  }
  // `asked` is called when the query is spent.
  template <typename Asked>
  absl::StatusOr<Bytes> Query(pir::Session& session, uint64_t row, uint64_t seed,
                              const Asked& asked) const {
    TestRandom random(seed);
    SHOAL_ASSIGN_OR_RETURN(const auto batch, session.Ask({.rows = std::span(&row, 1), .keys = 1}));
    SHOAL_ASSIGN_OR_RETURN(const auto requests, batch->Next(random));
    asked();
    std::vector<Bytes> answers;
    for (const pir::Request& request : requests) answers.push_back(Answer(request));
    SHOAL_RETURN_IF_ERROR(batch->Finish(std::vector<BytesView>(answers.begin(), answers.end())));
    const auto record = batch->TakeRecords();
    return Bytes(record.begin(), record.end());
  }
  absl::StatusOr<Bytes> Query(pir::Session& session, uint64_t row, uint64_t seed) const {
    return Query(session, row, seed, [] {});
  }
  // Prepares a session in the file.
  void Prepare() {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
    const auto session = OpenOn(*file);
    for (uint64_t seed = 1; session->needed(1) == Need::kRequests; ++seed) {
      PrepareStep(*session, seed);
    }
  }

  const pir::Engine& engine_ = **pir::FindEngine(GetParam());
  const fs::path base_ = fs::path(::testing::TempDir()) / absl::StrCat("sessions-", GetParam());
  std::optional<Records> records_;
  uint64_t rows_ = 0, epoch_ = 0;
  uint32_t record_bytes_ = 0;
  std::unique_ptr<pir::Server> server_;
  AnchorDirectory place_;
  TestRandom random_{4};
};
INSTANTIATE_TEST_SUITE_P(Engines, EngineSessionsTest,
                         ::testing::Values("piano", "treepir", "permuted"),
                         [](const auto& of) { return std::string(of.param); });

// The file against a store in memory whose session never ends. Both are told to do the same with
// the same randomness; the file's process ends at any of its writes, and the next one goes on with
// what it finds, which must be what the other store had at one of its own writes.
class DifferentialTest : public EngineSessionsTest {
 protected:
  void SetUp() override {
    model_ = OpenOn(model_store_);
    states_ = {model_store_.disk()};
    Reopen();
  }
  // Another process.
  void Reopen() {
    session_.reset();
    file_.reset();
    SHOAL_ASSERT_OK_AND_ASSIGN(file_, OpenFile());
    ASSERT_EQ(file_->discarded(), "");
    session_ = OpenOn(*file_);
  }
  MemoryStore::Disk Kept() const {
    MemoryStore::Disk kept;
    kept.state.resize(file_->state_bytes());
    SHOAL_EXPECT_OK(file_->Read(0, kept.state));
    for (uint64_t i = 0; i < file_->records(); ++i) {
      const auto record = file_->ReadRecord(i);
      SHOAL_EXPECT_OK(record.status());
      kept.records.emplace_back(record->begin(), record->end());
    }
    return kept;
  }
  // What the model has stored since the step began.
  void Note() {
    if (model_store_.disk() != states_.back()) states_.push_back(model_store_.disk());
  }

  // Has the model make a step, and then the file's session, whose process ends at event `end_at`,
  // if it has so many, and some more times. Returns how many events the first one had.
  template <typename OfModel, typename OfFile>
  uint64_t Step(uint64_t end_at, int part, const OfModel& of_model, const OfFile& of_file) {
    states_ = {model_store_.disk()};
    of_model();
    Note();
    uint64_t events = 0;
    for (int process = 0; process < 20; ++process) {
      disk = {.watched = true, .end_at = end_at, .part = part};
      bool ended = false;
      try {
        of_file(process);
      } catch (const Ended&) {
        ended = true;
      }
      disk.watched = false;
      if (process == 0) events = disk.events;
      if (::testing::Test::HasFatalFailure()) return 0;
      if (!ended) break;
      ++ended_;
      // The next one may end, too, while it opens the file.
      disk = {
          .watched = true, .end_at = crash_.Below(12), .part = static_cast<int>(crash_.Below(3))};
      try {
        Reopen();
      } catch (const Ended&) {
      }
      disk.watched = false;
      Reopen();
      EXPECT_TRUE(std::ranges::count(states_, Kept()) == 1) << "what no process has left";
      end_at = crash_.Below(40);
      part = static_cast<int>(crash_.Below(3));
    }
    EXPECT_EQ(Kept(), model_store_.disk());
    return events;
  }

  uint64_t PrepareStep(uint64_t end_at, int part, uint64_t seed) {
    return Step(
        end_at, part,
        [&] {
          TestRandom random(seed);
          const auto request = model_->Prepare(random);
          SHOAL_ASSERT_OK(request.status());
          Note();
          SHOAL_ASSERT_OK(model_->TakePrepared(Answer(*request)));
        },
        [&](int) {
          // What came is not asked for again.
          while (Kept() != model_store_.disk()) EngineSessionsTest::PrepareStep(*session_, seed);
        });
  }

  uint64_t QueryStep(uint64_t end_at, int part, uint64_t row, uint64_t seed) {
    Bytes record;
    return Step(
        end_at, part,
        [&] {
          SHOAL_ASSERT_OK_AND_ASSIGN(record, Query(*model_, row, seed, [&] { Note(); }));
          EXPECT_EQ(record, records_->at(row));
        },
        [&](int process) {
          if (Kept() == model_store_.disk()) return;
          if (session_->needed(1) == Need::kNothing) {
            SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, Query(*session_, row, seed));
            EXPECT_EQ(got, record);
            return;
          }
          EXPECT_GT(process, 0);
          while (session_->needed(1) == Need::kRequests) {
            EngineSessionsTest::PrepareStep(*session_, seed);
          }
        });
  }

  // A query whose record is judged, answered with a lie or not. No process ends: what a record was
  // is told once, or never. Whether it was right.
  void JudgeStep(uint64_t row, uint64_t seed, bool lie, bool& right) {
    for (const bool is_model : {true, false}) {
      pir::Session& session = is_model ? *model_ : *session_;
      TestRandom random(seed), lies(seed + 1);
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch,
                                 session.Ask({.rows = std::span(&row, 1), .keys = 1}));
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random));
      std::vector<Bytes> answers;
      for (const pir::Request& request : requests) {
        answers.push_back(Answer(request));
        // What an offline server lies in stays in the hint.
        if (lie && request.role != pir::Role::kOffline) lies.Fill(answers.back());
      }
      SHOAL_ASSERT_OK(batch->Finish(std::vector<BytesView>(answers.begin(), answers.end())));
      const auto record = batch->TakeRecords();
      right = ToBytes(record) == records_->at(row);
      SHOAL_ASSERT_OK(batch->Judge(record, {right}));
    }
    EXPECT_EQ(Kept(), model_store_.disk());
  }

  uint64_t EpochStep(uint64_t end_at, int part, const std::vector<uint64_t>& changed) {
    ++epoch_;
    for (const uint64_t row : changed) {
      records_->Fill(row, static_cast<uint8_t>(37 * epoch_ + row));
    }
    const auto delta = server_->Refresh(records_->content(epoch_), changed);
    SHOAL_EXPECT_OK(delta.status());
    return Step(
        end_at, part, [&] { SHOAL_ASSERT_OK(model_->Advance(**delta)); },
        [&](int process) {
          if (process == 0 || session_->behind().has_value()) {
            SHOAL_ASSERT_OK(session_->Advance(**delta));
          }
        });
  }

  MemoryStore model_store_;
  std::unique_ptr<pir::Session> model_;
  std::vector<MemoryStore::Disk> states_;
  std::unique_ptr<SessionFile> file_;
  std::unique_ptr<pir::Session> session_;
  TestRandom crash_{8};
  int ended_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Engines, DifferentialTest,
                         ::testing::Values("piano", "treepir", "permuted"),
                         [](const auto& of) { return std::string(of.param); });

// Every event of every kind of step is the last one of a process once, in each of three ways.
TEST_P(DifferentialTest, AProcessMayEndAtEveryWrite) {
  uint64_t seed = 1;
  // Each step until it goes through without an end.
  const auto at_every_event = [&](const auto& step) {
    uint64_t events = 0;
    for (uint64_t end_at = 0; end_at <= events; ++end_at) {
      for (int part = 0; part < 3; ++part) {
        SCOPED_TRACE(::testing::Message() << "event " << end_at << ", part " << part);
        const uint64_t had = step(end_at, part);
        ASSERT_FALSE(HasFailure());
        events = std::max(events, had == end_at + 1 ? had + 1 : had);
      }
    }
    // As many as a change has at least: its record, guard and anchor, the state, digests, zeros.
    EXPECT_GT(events, 7u);
  };
  for (; model_->needed(1) == Need::kRequests; ++seed) {
    PrepareStep(seed % 14, static_cast<int>(seed % 3), seed);
    ASSERT_FALSE(HasFailure());
  }
  at_every_event([&](uint64_t end_at, int part) {
    ++seed;
    return QueryStep(end_at, part, seed * 7 % rows_, seed);
  });
  at_every_event([&](uint64_t end_at, int part) {
    return EpochStep(end_at, part, {seed % 250, 250, 299});
  });
  EXPECT_GT(ended_, 60);
}

TEST_P(DifferentialTest, RandomSequences) {
  const uint64_t steps = 200;
  uint64_t seed = 1;
  for (; model_->needed(1) == Need::kRequests; ++seed) {
    PrepareStep(random_.Below(30), static_cast<int>(random_.Below(3)), seed);
    ASSERT_FALSE(HasFailure());
  }
  for (uint64_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(::testing::Message() << "step " << step);
    if (model_->Budget().has_value() && *model_->Budget() < 25) break;
    const uint64_t row = random_.Below(3) == 0 ? random_.Below(5) : random_.Below(rows_);
    const uint64_t end_at = random_.Below(2) == 0 ? random_.Below(25) : ~uint64_t{0};
    const auto part = static_cast<int>(random_.Below(3));
    switch (random_.Below(10)) {
      case 0:
        EpochStep(end_at, part, {row < 9 ? row : 9, 250});
        break;
      case 1:
        Reopen();
        break;
      case 2: {
        // Its wrong answers, taken without a check, spoil parities for good.
        if (engine_.name() == "permuted") break;
        bool right = true;
        JudgeStep(row, seed, /*lie=*/true, right);
        EXPECT_FALSE(right);
        // Another process may have to bring the record to the hints that are without it.
        if (random_.Below(2) == 0) Reopen();
        for (int i = 0; i < 20 && !right; ++i) JudgeStep(row, ++seed, /*lie=*/false, right);
        EXPECT_TRUE(right);
        break;
      }
      default:
        QueryStep(end_at, part, row, seed);
        break;
    }
    ++seed;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(ended_, 30);
}

// A query reads of a large state what it needs, and checks that: not the state.
TEST_P(EngineSessionsTest, AQueryReadsAPartOfTheFile) {
  MakeWorld(3000, 1200);
  Prepare();
  disk = {.watched = true};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
  const auto session = OpenOn(*file);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Query(*session, 2345, 1));
  disk.watched = false;
  EXPECT_EQ(record, records_->at(2345));
  // The head, the slots of changes, a digest a block, the sets or permutations, and the blocks that
  // the query reaches, twice: read, and changed.
  const uint64_t blocks = engine_.name() == "permuted" ? 2 * 33 + 64 : 12;
  EXPECT_LT(disk.bytes_read, blocks * 16'384 + 3 * 131'072 + file->state_bytes() / 8);
  // Of the others the state is larger than all that.
  if (engine_.name() != "permuted") {
    EXPECT_LT(disk.bytes_read, file->state_bytes() / 3);
  }
}

// However long records are, a query changes the file in place.
TEST_P(EngineSessionsTest, AQueryOfLongRecordsChangesTheFileInPlace) {
  MakeWorld(40, 30'000);
  Prepare();
  struct stat before, after;
  ASSERT_EQ(stat(path().c_str(), &before), 0);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
    const auto session = OpenOn(*file);
    for (const uint64_t row : {uint64_t{3}, uint64_t{39}}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Query(*session, row, row));
      EXPECT_EQ(record, records_->at(row));
    }
  }
  ASSERT_EQ(stat(path().c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(before.st_size, after.st_size);
}

// A byte of the file is another: a command says that the file is damaged, or its record is the
// table's.
TEST_P(EngineSessionsTest, ADamagedFileGivesNoWrongRecord) {
  Prepare();
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
    const auto session = OpenOn(*file);
    for (uint64_t row = 0; row < 5; ++row) SHOAL_ASSERT_OK(Query(*session, row, row).status());
  }
  std::vector<fs::path> names = {path(), path() + ".guard"};
  for (const auto& entry : fs::directory_iterator(place_.directory())) {
    if (entry.is_regular_file()) names.push_back(entry.path());
  }
  std::vector<std::string> good;
  for (const fs::path& name : names) good.push_back(ReadBack(name));
  const auto put = [&](size_t i, const std::string& content) {
    std::ofstream(names[i], std::ios::in | std::ios::out | std::ios::binary) << content;
  };
  int refused = 0, right = 0;
  for (int trial = 0; trial < 90; ++trial) {
    for (size_t i = 0; i < names.size(); ++i) put(i, good[i]);
    std::string bad = good[0];
    // A byte, or a piece that an earlier or another place has.
    // More than half of the file are places of changes.
    const size_t slots = 2 * 65'536;
    const size_t at = random_.Below(trial % 8 == 0 ? bad.size() : bad.size() - slots);
    if (trial % 3 != 0) {
      bad[at] = static_cast<char>(bad[at] ^ (1 << random_.Below(8)));
    } else {
      const size_t bytes = std::min<size_t>(1 + random_.Below(20'000), bad.size() - at);
      bad.replace(at, bytes, good[0].substr(random_.Below(bad.size() - bytes + 1), bytes));
    }
    if (bad == good[0]) continue;
    put(0, bad);
    const auto file = OpenFile();
    if (!file.ok()) {
      ASSERT_THAT(file.status(), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
      ++refused;
      continue;
    }
    ASSERT_EQ((*file)->discarded(), "");
    const auto session = TryOpen(**file);
    if (!session.ok()) {
      ASSERT_THAT(session.status(), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
      ++refused;
      continue;
    }
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t row = random_.Below(rows_);
      const auto record = Query(**session, row, random_.U64());
      if (!record.ok()) {
        ASSERT_THAT(record.status(), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
        ++refused;
        break;
      }
      ASSERT_EQ(*record, records_->at(row));
      ++right;
    }
  }
  EXPECT_GT(refused, 30);
  EXPECT_GT(right, 40);
}

// A session's file of version 0.2 with a journal of queries: read, replaced by a file as it is now,
// and right. Neither the records nor the rows of what was asked are in it, but for the rows that
// hints have to know.
class PianoOfVersionTwoTest : public EngineSessionsTest {
 protected:
  // The state that the file has, with these records, as that version wrote it.
  void WriteFirstFormat(const std::vector<Bytes>& records) {
    const std::string now = ReadBack(path());
    constexpr size_t kNumbers = 32 + sizeof(Guard::id) + 5 * 8 + 8;
    constexpr size_t kStateAt = 8 + 32 + kNumbers + 8 + 32;
    Bytes head = ToBytes(AsBytes(now).subspan(8 + 32, kNumbers));
    const auto state_bytes = LoadLe<uint64_t>(&head[kNumbers - 8]);
    // A save that the anchor has not seen yet.
    uint8_t* const generation = &head[32 + sizeof(Guard::id) + 2 * 8];
    StoreLe<uint64_t>(generation, LoadLe<uint64_t>(generation) + 1 - records.size());
    Append(head, AsBytes(now).subspan(kStateAt, state_bytes));
    Digest digest = Transcript("shoal client session v2").Blob(head).Finish();
    Bytes content = ToBytes(digest);
    Append(content, head);
    for (const Bytes& record : records) {
      AppendLe<uint32_t>(content, static_cast<uint32_t>(record.size()));
      Append(content, record);
      digest = Transcript("shoal client session record v1").Blob(digest).Blob(record).Finish();
      Append(content, digest);
    }
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << ToString(content);
  }
};
INSTANTIATE_TEST_SUITE_P(Engines, PianoOfVersionTwoTest, ::testing::Values("piano"),
                         [](const auto& of) { return std::string(of.param); });

TEST_P(PianoOfVersionTwoTest, AJournalOfQueriesIsReadAndGone) {
  // So many chunks that no hint is the XOR of one record.
  MakeWorld(3000, 40);
  Prepare();
  // Where the state has the query on its way: behind its head and two numbers.
  constexpr size_t kQuestionAt = 106 + 8;
  std::vector<Bytes> records;
  Bytes asked;
  uint64_t budget = 0;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
    Bytes state(file->state_bytes());
    SHOAL_ASSERT_OK(file->Read(0, state));
    MemoryStore store({.state = state, .records = {}});
    const auto session = OpenOn(store);
    for (uint64_t i = 0; i < 40; ++i) {
      const uint64_t row = i % 2 == 0 ? 70 * i : 2900;
      SHOAL_ASSERT_OK(Query(*session, row, i, [&] {
                        const BytesView question =
                            BytesView(store.disk().state).subspan(kQuestionAt);
                        records.push_back({3});
                        Append(records.back(), question.first(18));
                        Append(records.back(), question.subspan(19, 2));
                      }).status());
      records.push_back({4});
      Append(records.back(), records_->at(row));
    }
    asked = store.disk().state;
    budget = *session->Budget();
  }
  WriteFirstFormat(records);
  const fs::path before = base_ / "before";  // another name of the same file
  fs::create_hard_link(path(), before);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
    EXPECT_EQ(file->discarded(), "");
    ASSERT_EQ(file->records(), records.size());
    const auto session = OpenOn(*file);
    EXPECT_EQ(session->Budget(), budget) << "what was spent stays spent";
    EXPECT_EQ(file->records(), 0u);
    EXPECT_TRUE(file->CanChange());
  }
  EXPECT_EQ(ReadBack(before), std::string(fs::file_size(before), '\0')) << "wiped";
  const std::string now = ReadBack(path());
  for (const Bytes& record : records) {
    const std::string told = ToString(record).substr(1);
    EXPECT_EQ(now.find(told), std::string::npos) << "a question, or its record";
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, OpenFile());
  Bytes state(file->state_bytes());
  SHOAL_ASSERT_OK(file->Read(0, state));
  EXPECT_EQ(state, asked) << "no rows but those that the same queries leave now";
  const auto session = OpenOn(*file);
  for (const uint64_t row : {uint64_t{2900}, uint64_t{0}, uint64_t{140}, uint64_t{2999}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes record, Query(*session, row, row));
    EXPECT_EQ(record, records_->at(row));
  }
}

}  // namespace
}  // namespace shoal::client
