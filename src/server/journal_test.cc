#include "src/server/journal.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/storage/file.h"

namespace {

// Steps of this program by which files become durable: "sync", "rename", "sync directory".
std::vector<std::string>* steps = nullptr;
// Calls of this program that made a file's content durable. What fdatasync itself does is the
// system's.
std::atomic<int> content_syncs = 0;
// The error of every fdatasync, or of every fsync; 0 for none.
std::atomic<int> sync_error = 0, directory_sync_error = 0;
// When not negative: the process dies in the step that comes after so many others. A write is a
// step, too, and half of it is done.
int dies_in = -1;

bool Dies() { return dies_in >= 0 && dies_in-- == 0; }

int Step(const char* name, int error, const std::function<long()>& call) {
  if (steps != nullptr) steps->push_back(name);
  if (Dies()) _exit(9);
  if (error == 0) return static_cast<int>(call());
  errno = error;
  return -1;
}

}  // namespace

// In place of the C library's, for the whole program.
extern "C" {
int fdatasync(int fd) {
  ++content_syncs;
  return Step("sync", sync_error, [&] { return ::syscall(SYS_fdatasync, fd); });
}
int fsync(int fd) {
  return Step("sync directory", directory_sync_error, [&] { return ::syscall(SYS_fsync, fd); });
}
int rename(const char* from, const char* to) noexcept {
  return Step("rename", 0, [&] { return ::syscall(SYS_rename, from, to); });
}
ssize_t write(int fd, const void* bytes, size_t size) {
  if (!Dies()) return ::syscall(SYS_write, fd, bytes, size);
  ::syscall(SYS_write, fd, bytes, size / 2);
  _exit(9);
}
}

namespace shoal::server {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

Digest D(uint8_t fill) {
  Digest digest;
  digest.fill(fill);
  return digest;
}

// While it lives, no file of this process can grow beyond `bytes`, as on a full disk. Nothing may
// be printed meanwhile, as the test's output may go to a file.
class FullDisk {
 public:
  explicit FullDisk(uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullDisk() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*const handler_)(int);
  rlimit before_;
};

// While it lives, there is no free file descriptor, as if clients held all of them.
class NoDescriptors {
 public:
  NoDescriptors() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = 0;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_;
};

class FileJournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        absl::StrCat(::testing::TempDir(), "/journal-",
                     std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(directory_);
    Reopen();
  }
  void Reopen(FileJournalOptions options = {}) {
    journal_.reset();
    SHOAL_ASSERT_OK_AND_ASSIGN(journal_, FileJournal::Open(directory_, std::move(options)));
  }
  uint64_t JournalBytes() const { return std::filesystem::file_size(directory_ + "/journal"); }
  bool RoundFilesAreGone() const {
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().filename().string().starts_with("round-")) return false;
    }
    return true;
  }
  std::string directory_;
  std::unique_ptr<FileJournal> journal_;
  const RoundCounter round_{7};
};

// Monitoring is told of every record of the journal, and of every sync of submissions.
TEST_F(FileJournalTest, TellsHowLongTheDiskTook) {
  std::vector<double> seconds;
  journal_.reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(
      journal_, FileJournal::Open(directory_, {.synced = [&](double s) { seconds.push_back(s); }}));
  seconds.clear();
  SHOAL_EXPECT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  EXPECT_EQ(seconds.size(), 1u);
  SHOAL_EXPECT_OK(journal_->AppendSubmission(round_, Bytes(10)));
  EXPECT_EQ(seconds.size(), 1u) << "not yet durable";
  SHOAL_EXPECT_OK(journal_->Sync(round_));
  EXPECT_EQ(seconds.size(), 2u);
  EXPECT_GE(*std::ranges::min_element(seconds), 0);
}

TEST_F(FileJournalTest, OneContentForARoundAndDirection) {
  SHOAL_EXPECT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_EXPECT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  EXPECT_THAT(journal_->CommitRound(round_, Content::kHeader, D(2)),
              StatusIs(kRefused, "another header"));
  for (Content content : {Content::kOfflineInput, Content::kQueriesInput, Content::kAnswersInput}) {
    SHOAL_EXPECT_OK(journal_->CommitRound(round_, content, D(3)));
    SHOAL_EXPECT_OK(journal_->CommitRound(round_, content, D(3)));
    EXPECT_THAT(journal_->CommitRound(round_, content, D(4)), StatusIs(kRefused, "for ever"));
  }
}

// They end with their round.
TEST_F(FileJournalTest, HalvesHaveContentsOfTheirOwn) {
  SHOAL_EXPECT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  for (const Content content :
       {Content::kOfflineInput, Content::kAnswersOutput, Content::kPieces}) {
    EXPECT_EQ(OfHalf(content, 0), content);
    SHOAL_EXPECT_OK(journal_->CommitRound(round_, OfHalf(content, 1), D(3)));
    SHOAL_EXPECT_OK(journal_->CommitRound(round_, OfHalf(content, 2), D(4)));
    SHOAL_EXPECT_OK(journal_->CommitRound(round_, content, D(5)));
    SHOAL_EXPECT_OK(journal_->CommitRound(round_, OfHalf(content, 1), D(3)));
    EXPECT_EQ(ContentName(OfHalf(content, 2)), ContentName(content));
  }
  EXPECT_THAT(journal_->CommitRound(round_, OfHalf(Content::kPieces, 2), D(3)),
              StatusIs(kRefused, "another pieces of half B was taken before"));
  EXPECT_THAT(journal_->CommitRound(round_, OfHalf(Content::kOfflineInput, 1), D(4)),
              StatusIs(kRefused, "another offline list of half A was taken before"));
  SHOAL_ASSERT_OK(journal_->EndRound(round_));
  EXPECT_THAT(journal_->CommitRound(round_, OfHalf(Content::kPieces, 2), D(4)),
              StatusIs(kRefused, "not open"));
}

TEST_F(FileJournalTest, CountersOnlyRiseAlsoAfterARestart) {
  SHOAL_EXPECT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  EXPECT_THAT(journal_->CommitRound(RoundCounter(6), Content::kHeader, D(1)),
              StatusIs(kRefused, "only rise"));
  EXPECT_THAT(journal_->CommitRound(RoundCounter(9), Content::kOfflineInput, D(1)),
              StatusIs(kRefused, "not open"));
  Reopen();
  EXPECT_EQ(journal_->highest_round(), round_);
  EXPECT_THAT(journal_->CommitRound(round_, Content::kHeader, D(1)), StatusIs(kRefused, "rise"));
  SHOAL_EXPECT_OK(journal_->CommitRound(RoundCounter(8), Content::kHeader, D(1)));
}

TEST_F(FileJournalTest, ARestartEndsOpenRoundsAndRemovesTheirFiles) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->AppendSubmission(round_, Bytes(10, 1)));
  SHOAL_ASSERT_OK(journal_->Sync(round_));
  // Versions up to 0.2 stored seeds.
  std::ofstream(directory_ + "/round-8.seed") << std::string(32, 's');
  EXPECT_TRUE(FileExists(directory_ + "/round-7.submissions"));
  Reopen();
  EXPECT_FALSE(FileExists(directory_ + "/round-7.submissions"));
  EXPECT_FALSE(FileExists(directory_ + "/round-8.seed"));
  EXPECT_THAT(journal_->CommitRound(round_, Content::kQueriesInput, D(1)),
              StatusIs(kRefused, "not open"));
}

// A party may start on a disk that clients' submissions have filled. Nothing can be written, but
// submissions are removed.
TEST_F(FileJournalTest, AStartOnAFullDiskErasesEveryRound) {
  for (uint64_t round : {7, 8, 9}) {
    SHOAL_ASSERT_OK(journal_->CommitRound(RoundCounter(round), Content::kHeader, D(1)));
    SHOAL_ASSERT_OK(journal_->AppendSubmission(RoundCounter(round), Bytes(1000, 1)));
  }
  journal_.reset();
  absl::Status opened;
  {
    const FullDisk full(std::filesystem::file_size(directory_ + "/journal"));
    opened = FileJournal::Open(directory_).status();
  }
  EXPECT_THAT(opened, StatusIs(absl::StatusCode::kUnavailable, "/journal: File too large"));
  EXPECT_TRUE(RoundFilesAreGone());
  // Once there is room, the rounds end as at any start.
  Reopen();
  EXPECT_EQ(journal_->highest_round(), RoundCounter(9));
}

// Clients can take all descriptors with their connections; that must not abort the round for
// everybody.
TEST_F(FileJournalTest, WithoutDescriptorsNoSubmissionIsLost) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  const Bytes record(10, 1);
  {
    const NoDescriptors none;
    EXPECT_THAT(journal_->AppendSubmission(round_, record),
                StatusIs(absl::StatusCode::kUnavailable, "Too many open files"));
    SHOAL_EXPECT_OK(journal_->Sync(round_));  // nothing was appended
  }
  SHOAL_EXPECT_OK(journal_->AppendSubmission(round_, record));
  {
    const NoDescriptors none;  // only a round's first onions need one
    SHOAL_EXPECT_OK(journal_->AppendSubmission(round_, record));
    SHOAL_EXPECT_OK(journal_->Sync(round_));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto source, journal_->ReadSubmissions(round_, 20));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes all, ReadAll(*source));
  EXPECT_EQ(all, Bytes(20, 1));
}

TEST_F(FileJournalTest, OnAFullDiskSubmissionsAreLost) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->AppendSubmission(round_, Bytes(10, 1)));
  absl::Status first, second;
  {
    const FullDisk full(50);
    first = journal_->AppendSubmission(round_, Bytes(10, 1));
    second = journal_->AppendSubmission(round_, Bytes(10, 1));
  }
  EXPECT_THAT(first, StatusIs(absl::StatusCode::kDataLoss, ".submissions: File too large"));
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kDataLoss, "an earlier write failed"));
  EXPECT_THAT(journal_->Sync(round_), StatusIs(absl::StatusCode::kDataLoss, "the round is lost"));
}

TEST_F(FileJournalTest, ADamagedJournalKeepsNoSubmissions) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->CommitRound(RoundCounter(8), Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->AppendSubmission(RoundCounter(8), Bytes(32, 5)));
  journal_.reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string damaged, ReadFile(directory_ + "/journal"));
  damaged[10] ^= 1;
  SHOAL_ASSERT_OK(
      WriteFileAtomically(directory_ + "/journal", AsBytes(damaged), FileMode::kPrivate));
  EXPECT_THAT(FileJournal::Open(directory_), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  EXPECT_TRUE(RoundFilesAreGone());
}

// What is acknowledged survives a loss of power: a call returns once its record, or the
// submissions, are on the disk and not only with the system.
TEST_F(FileJournalTest, EveryRecordIsSynced) {
  const auto syncs = [](const auto& call) {
    const int before = content_syncs;
    SHOAL_EXPECT_OK(call());
    return content_syncs - before;
  };
  EXPECT_EQ(syncs([&] { return journal_->CommitRound(round_, Content::kHeader, D(1)); }), 1);
  EXPECT_EQ(syncs([&] { return journal_->CommitRound(round_, Content::kOfflineInput, D(1)); }), 1);
  EXPECT_EQ(syncs([&] { return journal_->CommitEpoch("roster", 3, D(1)); }), 1);
  SHOAL_ASSERT_OK(journal_->AppendSubmission(round_, Bytes(10, 1)));
  EXPECT_EQ(syncs([&] { return journal_->Sync(round_); }), 1);
  EXPECT_EQ(syncs([&] { return journal_->EndRound(round_); }), 1);
}

TEST_F(FileJournalTest, EndedRoundsStayEndedAndTheirFilesAreGone) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->AppendSubmission(round_, Bytes(10, 1)));
  SHOAL_EXPECT_OK(journal_->EndRound(round_));
  SHOAL_EXPECT_OK(journal_->EndRound(round_));
  EXPECT_FALSE(FileExists(directory_ + "/round-7.submissions"));
  EXPECT_THAT(journal_->CommitRound(round_, Content::kOfflineInput, D(1)),
              StatusIs(kRefused, "not open"));
}

TEST_F(FileJournalTest, KeepsTheListOfRounds) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes none, journal_->LoadRounds());
  EXPECT_TRUE(none.empty());
  SHOAL_ASSERT_OK(journal_->StoreRounds(AsBytes("first")));
  SHOAL_ASSERT_OK(journal_->StoreRounds(AsBytes("second")));
  // A write that was broken off leaves the list as it was, and no file behind.
  const std::string half = absl::StrCat(directory_, "/rounds", kTemporarySuffix, "aaaaaa");
  std::ofstream(half) << "half";
  Reopen();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes kept, journal_->LoadRounds());
  EXPECT_EQ(ToString(kept), "second");
  EXPECT_FALSE(FileExists(half));
}

TEST_F(FileJournalTest, EpochsNeitherGoBackNorFork) {
  SHOAL_EXPECT_OK(journal_->CommitEpoch("roster", 3, D(1)));
  SHOAL_EXPECT_OK(journal_->CommitEpoch("roster", 3, D(1)));
  EXPECT_THAT(journal_->CommitEpoch("roster", 3, D(2)), StatusIs(kRefused, "another content"));
  EXPECT_THAT(journal_->CommitEpoch("roster", 2, D(1)), StatusIs(kRefused, "older"));
  SHOAL_EXPECT_OK(journal_->CommitEpoch("table x", 1, D(1)));
  SHOAL_EXPECT_OK(journal_->CommitEpoch("roster", 5, D(2)));
  Reopen();
  EXPECT_THAT(journal_->CommitEpoch("roster", 4, D(2)), StatusIs(kRefused, "older"));
  SHOAL_EXPECT_OK(journal_->CommitEpoch("roster", 5, D(2)));
}

// A new process has to read what is on the disk after a sync that failed: the party must not sit
// there and refuse everything. It is told once, whichever write it was.
TEST_F(FileJournalTest, SaysThatItIsBroken) {
  std::vector<std::string> broken;
  const auto tell = [&](const absl::Status& why) { broken.push_back(std::string(why.message())); };
  Reopen({.broken = tell});
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  sync_error = EIO;
  EXPECT_THAT(journal_->CommitRound(round_, Content::kOfflineInput, D(1)),
              StatusIs(absl::StatusCode::kUnavailable, "journal: Input/output error"));
  sync_error = 0;
  EXPECT_THAT(journal_->EndRound(round_), StatusIs(absl::StatusCode::kDataLoss, "the party ends"));
  EXPECT_THAT(broken, ::testing::ElementsAre(::testing::HasSubstr("Input/output error")));
  // A directory that may name the old file or the new one.
  broken.clear();
  Reopen({.broken = tell, .compact_bytes = 1});
  directory_sync_error = EIO;
  const absl::Status replaced = journal_->CommitRound(RoundCounter(9), Content::kHeader, D(1));
  directory_sync_error = 0;
  EXPECT_THAT(replaced, StatusIs(absl::StatusCode::kUnavailable, "/journal: Input/output error"));
  EXPECT_THAT(broken, ::testing::SizeIs(1));
  EXPECT_THAT(journal_->CommitRound(RoundCounter(9), Content::kHeader, D(1)),
              StatusIs(absl::StatusCode::kDataLoss, "the party ends"));
  // What was committed is there; what was not may be.
  Reopen();
  EXPECT_THAT(journal_->CommitRound(round_, Content::kHeader, D(1)), StatusIs(kRefused, "rise"));
}

// Of 1,000 rounds, an epoch with each, as many bytes stay as of one.
TEST_F(FileJournalTest, RoundsThatHaveEndedTakeNoRoom) {
  Reopen({.compact_bytes = 1 << 12});
  uint64_t most_bytes = 0;
  for (uint64_t round = 100; round < 1100; ++round) {
    SHOAL_ASSERT_OK(journal_->CommitEpoch("counters", round, Digest()));
    SHOAL_ASSERT_OK(journal_->CommitRound(RoundCounter(round), Content::kHeader, D(1)));
    SHOAL_ASSERT_OK(journal_->EndRound(RoundCounter(round)));
    most_bytes = std::max(most_bytes, JournalBytes());
  }
  EXPECT_LT(most_bytes, (1 << 12) + 1000u);
  Reopen();
  EXPECT_EQ(journal_->highest_round(), RoundCounter(1099));
  EXPECT_EQ(journal_->highest_epoch("counters"), 1099u);
}

// Whatever was refused before the records were replaced is refused after, also after a restart.
TEST_F(FileJournalTest, CompactionForgetsNothingThatIsRefused) {
  const RoundCounter open(5), ended(6);
  Reopen({.compact_bytes = 1});
  SHOAL_ASSERT_OK(journal_->CommitEpoch("roster", 3, D(1)));
  SHOAL_ASSERT_OK(journal_->CommitEpoch("table x", 8, D(2)));
  SHOAL_ASSERT_OK(journal_->CommitRound(open, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->CommitRound(open, Content::kQueriesInput, D(2)));
  SHOAL_ASSERT_OK(journal_->CommitRound(ended, Content::kHeader, D(3)));
  SHOAL_ASSERT_OK(journal_->CommitRound(ended, Content::kOfflineInput, D(3)));
  SHOAL_ASSERT_OK(journal_->EndRound(ended));
  const auto expect_refused = [&] {
    EXPECT_THAT(journal_->CommitEpoch("roster", 2, D(1)), StatusIs(kRefused, "older"));
    EXPECT_THAT(journal_->CommitEpoch("roster", 3, D(2)), StatusIs(kRefused, "another content"));
    EXPECT_THAT(journal_->CommitEpoch("table x", 7, D(2)), StatusIs(kRefused, "older"));
    EXPECT_THAT(journal_->CommitEpoch("table x", 8, D(1)), StatusIs(kRefused, "another content"));
    for (uint64_t counter : {1, 5, 6}) {
      EXPECT_THAT(journal_->CommitRound(RoundCounter(counter), Content::kHeader, D(9)),
                  StatusIs(kRefused, ""));
      EXPECT_THAT(journal_->CommitRound(RoundCounter(counter), Content::kQueriesInput, D(9)),
                  StatusIs(kRefused, ""));
    }
  };
  expect_refused();
  // An open round goes on in the file that replaced the first: a restart reads it there.
  SHOAL_EXPECT_OK(journal_->CommitRound(open, Content::kQueriesInput, D(2)));
  SHOAL_EXPECT_OK(journal_->CommitRound(open, Content::kAnswersInput, D(4)));
  EXPECT_THAT(journal_->CommitRound(open, Content::kAnswersInput, D(5)),
              StatusIs(kRefused, "another answers"));
  for (int restarts = 0; restarts < 3; ++restarts) {
    Reopen({.compact_bytes = 1});
    expect_refused();
    SHOAL_EXPECT_OK(journal_->CommitRound(RoundCounter(10 + restarts), Content::kHeader, D(1)));
    EXPECT_EQ(journal_->highest_round(), RoundCounter(10 + restarts));
  }
}

// The new file is complete on the disk before it has the name, and has the name before a record
// is added to it.
TEST_F(FileJournalTest, CompactionSyncsEachStep) {
  Reopen({.compact_bytes = 1});
  SHOAL_ASSERT_OK(journal_->CommitEpoch("roster", 3, D(1)));
  std::vector<std::string> seen;
  steps = &seen;
  const absl::Status committed = journal_->CommitEpoch("roster", 4, D(1));
  steps = nullptr;
  SHOAL_EXPECT_OK(committed);
  EXPECT_THAT(seen, ::testing::ElementsAre("sync", "rename", "sync directory", "sync"));
}

// A process that dies in any step of it leaves the old records or the new ones, and no other file.
TEST_F(FileJournalTest, ADeathInAnyStepOfACompactionLosesNothing) {
  int step = 0;
  for (bool died = true; died; ++step) {
    SCOPED_TRACE(step);
    std::filesystem::remove_all(directory_);
    Reopen();
    SHOAL_ASSERT_OK(journal_->CommitEpoch("table x", 8, D(2)));
    SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
    journal_.reset();
    int acknowledged[2];
    ASSERT_EQ(pipe(acknowledged), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto journal = FileJournal::Open(directory_, {.compact_bytes = 1});
      if (!journal.ok()) _exit(1);
      dies_in = step;
      for (uint8_t epoch = 9; epoch < 12; ++epoch) {
        if (!(*journal)->CommitEpoch("table x", epoch, D(epoch)).ok()) _exit(1);
        ::syscall(SYS_write, acknowledged[1], &epoch, 1);
      }
      _exit(0);
    }
    close(acknowledged[1]);
    uint8_t last = 8;
    for (uint8_t epoch; read(acknowledged[0], &epoch, 1) == 1;) last = epoch;
    close(acknowledged[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_THAT(WEXITSTATUS(status), ::testing::AnyOf(0, 9));
    died = WEXITSTATUS(status) == 9;
    Reopen();
    EXPECT_GE(journal_->highest_epoch("table x"), last);
    EXPECT_THAT(journal_->CommitEpoch("table x", last, D(99)), StatusIs(kRefused, ""));
    EXPECT_THAT(journal_->CommitRound(round_, Content::kHeader, D(1)), StatusIs(kRefused, "rise"));
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("journal", "lock"));
    }
  }
  EXPECT_GT(step, 10) << "three compactions have more steps";
}

// What has no room, or no descriptor, for a second file keeps its records and goes on.
TEST_F(FileJournalTest, CompactionIsPutOffWithoutADescriptor) {
  Reopen({.compact_bytes = 1});
  const uint64_t before_bytes = JournalBytes();
  {
    const NoDescriptors none;
    for (uint64_t epoch = 1; epoch < 20; ++epoch) {
      SHOAL_EXPECT_OK(journal_->CommitEpoch("roster", epoch, D(1)));
    }
  }
  const uint64_t grown_bytes = JournalBytes();
  EXPECT_GT(grown_bytes, before_bytes + 19 * 40);
  SHOAL_EXPECT_OK(journal_->CommitEpoch("roster", 20, D(1)));
  EXPECT_LT(JournalBytes(), grown_bytes / 2);
  Reopen();
  EXPECT_EQ(journal_->highest_epoch("roster"), 20u);
}

TEST_F(FileJournalTest, FilesAreTheOwnersAlone) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->AppendSubmission(round_, Bytes(10, 1)));
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    struct stat info;
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
  }
}

TEST_F(FileJournalTest, OneProcessUsesADirectory) {
  EXPECT_THAT(FileJournal::Open(directory_), StatusIs(kRefused, "another process"));
}

TEST_F(FileJournalTest, ATornTailIsCutOffAndDamageIsDataLoss) {
  SHOAL_ASSERT_OK(journal_->CommitRound(round_, Content::kHeader, D(1)));
  SHOAL_ASSERT_OK(journal_->EndRound(round_));
  SHOAL_ASSERT_OK(journal_->CommitRound(RoundCounter(8), Content::kHeader, D(1)));
  journal_.reset();
  const std::string path = directory_ + "/journal";
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string whole, ReadFile(path));
  // Cuts the file at every byte: complete records are known, the rest is gone, and records can be
  // appended.
  for (size_t size = 0; size <= whole.size(); ++size) {
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(whole).first(size), FileMode::kPrivate));
    Reopen();
    SHOAL_EXPECT_OK(journal_->CommitRound(RoundCounter(20), Content::kHeader, D(9)));
    Reopen();
    EXPECT_EQ(journal_->highest_round(), RoundCounter(20));
    journal_.reset();
  }
  // A power cut may leave the file's length without its last record, which then reads as zeros.
  // More of them than one record has were records once.
  const auto with_zeros = [&](size_t zeros) {
    const std::string longer = whole + std::string(zeros, '\0');
    SHOAL_EXPECT_OK(WriteFileAtomically(path, AsBytes(longer), FileMode::kPrivate));
  };
  for (const size_t zeros : {1, 20, 21, 62, 1024}) {
    with_zeros(zeros);
    Reopen();
    EXPECT_EQ(journal_->highest_round(), RoundCounter(8)) << zeros;
    SHOAL_EXPECT_OK(journal_->CommitRound(RoundCounter(20), Content::kHeader, D(9)));
    Reopen();
    EXPECT_EQ(journal_->highest_round(), RoundCounter(20)) << zeros;
    journal_.reset();
  }
  with_zeros(2000);
  EXPECT_THAT(FileJournal::Open(directory_), StatusIs(absl::StatusCode::kDataLoss, ""));
  // Flips one bit in a record that is not the last.
  for (size_t at : {0u, 3u, 10u, 25u, 40u}) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(damaged), FileMode::kPrivate));
    EXPECT_THAT(FileJournal::Open(directory_), StatusIs(absl::StatusCode::kDataLoss, "")) << at;
  }
}

}  // namespace
}  // namespace shoal::server
