// What `shoald --check` tries of a machine. It must see what a start would trip over, and must not
// change a state that a start relies on.
#include "src/shoald/start_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/net/page_server.h"
#include "src/server/journal.h"
#include "src/storage/file.h"

namespace shoal::shoald {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;

class StartCheckTest : public ::testing::Test {
 protected:
  StartCheckTest() {
    std::string pattern = ::testing::TempDir() + "/start_check.XXXXXX";
    SHOAL_CHECK(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
    ::setenv("TMPDIR", (directory_ + "/tmp").c_str(), 1);
    fs::create_directory(directory_ + "/tmp");
  }
  ~StartCheckTest() override { fs::remove_all(directory_); }
  std::string State() const { return directory_ + "/state"; }
  std::set<std::string> Files(const std::string& of) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(of)) names.insert(entry.path().filename());
    return names;
  }

  std::string directory_;
};

TEST_F(StartCheckTest, ACopyKnowsWhatTheJournalKnowsAndChangesNothing) {
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto journal, server::FileJournal::Open(State()));
    SHOAL_ASSERT_OK(journal->CommitEpoch("roster demo", 4, Digest{1}));
    SHOAL_ASSERT_OK(journal->CommitRound(RoundCounter(7), server::Content::kHeader, Digest{2}));
    SHOAL_ASSERT_OK(journal->AppendSubmission(RoundCounter(7), Bytes(100)));
  }
  const std::set<std::string> files = Files(State());
  const std::string journal = *ReadFile(State() + "/journal");
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto copy, JournalCopy::Take(State()));
    EXPECT_THAT(copy->journal()->CommitEpoch("roster demo", 3, Digest{1}),
                StatusIs(absl::StatusCode::kFailedPrecondition, "older than epoch 4"));
    SHOAL_EXPECT_OK(copy->journal()->CommitEpoch("roster demo", 5, Digest{1}));
    EXPECT_EQ(copy->journal()->highest_round(), RoundCounter(7));
    // Nobody starts meanwhile.
    EXPECT_THAT(server::FileJournal::Open(State()).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, "another process"));
  }
  EXPECT_EQ(Files(State()), files);  // the round's submissions, too
  EXPECT_EQ(*ReadFile(State() + "/journal"), journal);
  EXPECT_TRUE(Files(directory_ + "/tmp").empty());
}

TEST_F(StartCheckTest, AStateThatAStartCouldNotUseIsRefused) {
  SHOAL_EXPECT_OK(JournalCopy::Take(State()));  // a start would make it
  EXPECT_FALSE(fs::exists(State()));
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto running, server::FileJournal::Open(State()));
    EXPECT_THAT(JournalCopy::Take(State()).status(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                              State() + ": another process uses"));
  }
  ASSERT_EQ(::chmod(State().c_str(), 0755), 0);
  EXPECT_THAT(JournalCopy::Take(State()).status(),
              StatusIs(absl::StatusCode::kPermissionDenied, "state_directory: "));
  ASSERT_EQ(::chmod(State().c_str(), 0700), 0);
  std::string journal(200, 'x');
  SHOAL_ASSERT_OK(WriteFileAtomically(State() + "/journal", AsBytes(journal), FileMode::kPrivate));
  EXPECT_THAT(JournalCopy::Take(State()).status(),
              StatusIs(absl::StatusCode::kDataLoss, "journal: damaged record"));
  EXPECT_TRUE(Files(directory_ + "/tmp").empty());
}

TEST_F(StartCheckTest, ADirectoryThatCannotBeWrittenIsNamed) {
  const absl::Status proc = CheckWritable("spool_directory", "/proc/shoal");
  EXPECT_FALSE(proc.ok());
  EXPECT_THAT(std::string(proc.message()), ::testing::HasSubstr("spool_directory: /proc/shoal"));
  SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + "/file", AsBytes("x"), FileMode::kPrivate));
  EXPECT_FALSE(CheckWritable("spool_directory", directory_ + "/file").ok());
  EXPECT_FALSE(CheckWritable("spool_directory", directory_ + "/file/below").ok());
  SHOAL_EXPECT_OK(CheckWritable("spool_directory", directory_ + "/not/there"));
  EXPECT_FALSE(fs::exists(directory_ + "/not"));
}

TEST_F(StartCheckTest, AnAddressIsTriedAndLetGo) {
  std::string address;
  {
    const auto ask = [](absl::string_view) { return net::Page(); };
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto pages,
                               net::PageServer::Start({.address = "127.0.0.1:0"}, ask));
    address = "127.0.0.1:" + std::to_string(pages->port());
    EXPECT_THAT(ListenCheck().Add(address),
                StatusIs(absl::StatusCode::kAlreadyExists, "listening on " + address));
  }
  SHOAL_EXPECT_OK(ListenCheck().Add(address));
  SHOAL_EXPECT_OK(ListenCheck().Add(address));
  EXPECT_FALSE(ListenCheck().Add("198.51.100.7:7000").ok());  // not this machine's
  EXPECT_FALSE(ListenCheck().Add("nowhere").ok());
}

TEST_F(StartCheckTest, AnAddressIsNotTakenTwice) {
  const auto ask = [](absl::string_view) { return net::Page(); };
  std::string port;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto pages,
                               net::PageServer::Start({.address = "127.0.0.1:0"}, ask));
    port = std::to_string(pages->port());
  }
  ListenCheck check;
  SHOAL_EXPECT_OK(check.Add("0.0.0.0:" + port));
  SHOAL_EXPECT_OK(check.Add("127.0.0.1:0"));
  EXPECT_THAT(check.Add("127.0.0.1:" + port),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       "This program is to listen on 0.0.0.0:" + port + ", too"));
}

TEST(FindingsTest, AllAreSaid) {
  Findings findings;
  SHOAL_EXPECT_OK(findings.Summary());
  findings.Add(absl::OkStatus(), "advice");
  SHOAL_EXPECT_OK(findings.Summary());
  findings.Add(absl::DataLossError("one"), "mend it");
  EXPECT_THAT(findings.Summary(), StatusIs(absl::StatusCode::kDataLoss, "one: mend it"));
  findings.Add(absl::NotFoundError("two"));
  EXPECT_THAT(findings.Summary(),
              StatusIs(absl::StatusCode::kDataLoss, "for 2 reasons:\n  one: mend it\n  two"));
}

}  // namespace
}  // namespace shoal::shoald
