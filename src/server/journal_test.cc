#include "src/server/journal.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/storage/file.h"

namespace {

// Calls of this program that made a file's content durable. What fdatasync itself does is the
// system's.
std::atomic<int> content_syncs = 0;

}  // namespace

// In place of the C library's, for the whole program.
extern "C" int fdatasync(int fd) {
  ++content_syncs;
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
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
  void Reopen() {
    journal_.reset();
    SHOAL_ASSERT_OK_AND_ASSIGN(journal_, FileJournal::Open(directory_));
  }
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
      journal_, FileJournal::Open(directory_, [&](double s) { seconds.push_back(s); }));
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
