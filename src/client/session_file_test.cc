// A session's state comes back as it was saved, and never from an old copy.
#include "src/client/session_file.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using testing::StatusIs;

class SessionFileTest : public ::testing::Test {
 protected:
  SessionFileTest() : directory_(fs::path(::testing::TempDir()) / "session") {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  std::string path() const { return directory_ / "state"; }
  absl::StatusOr<std::unique_ptr<SessionFile>> Open(const Digest& servers = {1}) {
    return SessionFile::Open(path(), servers, random_);
  }
  // Opens the file, and returns what it holds.
  std::string Saved() {
    const auto file = Open();
    EXPECT_THAT(file, testing::IsOk());
    return ToString((*file)->saved());
  }
  void Save(const std::string& state) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    SHOAL_ASSERT_OK(file->Save(AsBytes(state)));
  }
  void Copy(const std::string& from, const std::string& to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
    fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write);
  }

  testing::TestRandom random_{4};
  const fs::path directory_;
};

TEST_F(SessionFileTest, ComesBackAsItWasSaved) {
  EXPECT_EQ(Saved(), "");
  Save("one");
  EXPECT_EQ(Saved(), "one");
  EXPECT_EQ(Saved(), "one");
  Save("a longer two");
  EXPECT_EQ(Saved(), "a longer two");
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(SessionFileTest, AnOldCopyIsGivenUp) {
  Save("one");
  Copy(path(), path() + ".old");
  Save("two");
  Copy(path() + ".old", path());
  SHOAL_ASSERT_OK_AND_ASSIGN(auto file, Open());
  EXPECT_TRUE(file->discarded());
  EXPECT_TRUE(file->saved().empty());
  file.reset();
  // For ever, and what is saved from now on counts.
  EXPECT_EQ(Saved(), "");
  Save("three");
  EXPECT_EQ(Saved(), "three");
}

// State and guard copied back together: the guard is another file.
TEST_F(SessionFileTest, AnOldCopyWithItsGuardIsGivenUp) {
  Save("one");
  for (const char* suffix : {"", ".guard"}) Copy(path() + suffix, path() + suffix + ".old");
  Save("two");
  for (const char* suffix : {"", ".guard"}) {
    fs::remove(path() + suffix);
    Copy(path() + suffix + ".old", path() + suffix);
  }
  EXPECT_EQ(Saved(), "");
}

// Copied over both files in place, as `cp` does: they keep inode and time of birth, but the content
// names those of the file that it was saved in.
TEST_F(SessionFileTest, AnOldCopyOverBothFilesIsGivenUp) {
  Save("one");
  for (const char* suffix : {"", ".guard"}) Copy(path() + suffix, path() + suffix + ".old");
  Save("two");
  for (const char* suffix : {"", ".guard"}) {
    std::ofstream(path() + suffix, std::ios::in | std::ios::out | std::ios::trunc)
        << std::ifstream(path() + suffix + ".old").rdbuf();
  }
  EXPECT_EQ(Saved(), "");
}

TEST_F(SessionFileTest, BelongsToItsServersInTheirRoles) {
  Save("one");
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open(Digest{2}));
    EXPECT_TRUE(file->discarded());
    EXPECT_TRUE(file->saved().empty());
  }
  EXPECT_EQ(Saved(), "") << "given up for ever";
}

TEST_F(SessionFileTest, SavedIsWhatWasSavedLast) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
  SHOAL_ASSERT_OK(file->Save(AsBytes("one")));
  EXPECT_EQ(ToString(file->saved()), "one");
  SHOAL_ASSERT_OK(file->Save(file->saved().first(2)));
  EXPECT_EQ(ToString(file->saved()), "on");
}

TEST_F(SessionFileTest, IsLockedAndPrivateAndWhole) {
  Save("one");
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, "another process"));
  }
  fs::permissions(path(), fs::perms::others_read, fs::perm_options::add);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kPermissionDenied, ""));
  fs::permissions(path(), fs::perms::others_read, fs::perm_options::remove);
  fs::resize_file(path(), fs::file_size(path()) - 1);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  fs::resize_file(path(), 3);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
}

}  // namespace
}  // namespace shoal::client
