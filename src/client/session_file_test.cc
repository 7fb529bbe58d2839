// A session's state comes back as it was saved, and never from an old copy.
#include "src/client/session_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/testing/restored_files.h"
#include "src/client/witness.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;

class SessionFileTest : public ::testing::Test {
 protected:
  SessionFileTest()
      : base_(fs::path(::testing::TempDir()) / "session"), directory_(base_ / "files") {
    fs::remove_all(base_);
    fs::create_directories(directory_);
    place_ = WitnessPlace::Below(base_);
  }
  std::string path() const { return directory_ / "state"; }
  absl::StatusOr<std::unique_ptr<SessionFile>> Open(const Digest& servers = {1}) {
    return SessionFile::Open(path(), servers, place_, random_);
  }
  // Opens the file, and returns what it holds.
  std::string Saved() {
    const auto file = Open();
    EXPECT_THAT(file, shoal::testing::IsOk());
    return ToString((*file)->saved());
  }
  // Opens the file, and returns the state and the records that it holds.
  std::vector<std::string> Records() {
    const auto file = Open();
    EXPECT_THAT(file, shoal::testing::IsOk());
    std::vector<std::string> all = {ToString((*file)->saved())};
    for (const BytesView record : (*file)->appended()) all.push_back(ToString(record));
    return all;
  }
  void Save(const std::string& state) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    SHOAL_ASSERT_OK(file->Save(AsBytes(state)));
  }
  void Copy(const std::string& from, const std::string& to) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
    fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write);
  }

  shoal::testing::TestRandom random_{4};
  const fs::path base_, directory_;
  WitnessPlace place_;
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
  EXPECT_EQ(file->discarded(), "is an old copy");
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

// Whatever people copy files with.
TEST_F(SessionFileTest, AnOldCopyIsGivenUpHoweverItCameBack) {
  for (const testing::CopyTool& tool : testing::CopyTools()) {
    const fs::path copy = base_ / "copy";
    fs::remove_all(directory_);
    fs::remove_all(copy);
    fs::create_directory(directory_);
    fs::create_directory(copy);
    Save("one");
    testing::RunShell(tool.save, directory_, copy);
    Save("two");
    testing::RunShell(tool.restore, directory_, copy);
    EXPECT_EQ(Saved(), "") << tool.name;
  }
}

TEST_F(SessionFileTest, ASnapshotIsGivenUp) {
  Save("one");
  const testing::Snapshot snapshot(directory_, base_ / "links");
  Save("two");
  snapshot.Restore();
  EXPECT_EQ(Saved(), "");
}

// After a restart of the machine, or in another container.
TEST_F(SessionFileTest, WithoutAWitnessItIsGivenUp) {
  Save("one");
  fs::remove_all(place_.directory());
  fs::create_directory(place_.directory());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
  EXPECT_TRUE(file->saved().empty());
  EXPECT_THAT(file->discarded(), ::testing::HasSubstr("the machine was restarted"));
}

TEST_F(SessionFileTest, WhatAKilledSaveLeftIsWiped) {
  Save("state");
  const std::string left = path() + kTemporarySuffix + "aBcDeF", other = path() + "2";
  for (const std::string& name : {left, other}) std::ofstream(name) << "hints";
  const std::string held = base_ / "held";  // another name of the same file
  fs::create_hard_link(left, held);
  EXPECT_EQ(Saved(), "state");
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(other));
  std::ifstream in(held, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(content.find("hints"), std::string::npos);
}

TEST_F(SessionFileTest, BelongsToItsServersInTheirRoles) {
  Save("one");
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open(Digest{2}));
    EXPECT_EQ(file->discarded(), "is of other servers");
    EXPECT_TRUE(file->saved().empty());
  }
  EXPECT_EQ(Saved(), "") << "given up for ever";
}

TEST_F(SessionFileTest, AStateMayBeMadeOfTheOneBefore) {
  Save("one");
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    const BytesView parts[] = {file->saved().first(2), AsBytes("ly"), BytesView()};
    SHOAL_ASSERT_OK(file->SaveParts(parts));
  }
  EXPECT_EQ(Saved(), "only");
}

TEST_F(SessionFileTest, RecordsComeBackInOrder) {
  Save("one");
  for (int run = 0; run < 2; ++run) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    SHOAL_ASSERT_OK(file->Append(AsBytes(run == 0 ? "a" : "b")));
    SHOAL_ASSERT_OK(file->Append(AsBytes(run == 0 ? "aa" : "bb")));
  }
  EXPECT_EQ(Records(), (std::vector<std::string>{"one", "a", "aa", "b", "bb"}));
  EXPECT_EQ(Records(), (std::vector<std::string>{"one", "a", "aa", "b", "bb"}));
  // A state replaces them.
  Save("two");
  EXPECT_EQ(Records(), (std::vector<std::string>{"two"}));
}

// What a process leaves that is killed while it appends: any part of the record, or as many bytes
// of which the last ones were not written.
TEST_F(SessionFileTest, ATornRecordIsDropped) {
  Save("one");
  { SHOAL_ASSERT_OK((*Open())->Append(AsBytes("first"))); }
  const auto whole = fs::file_size(path());
  for (size_t torn = 0; torn <= 44; ++torn) {
    std::string tail(torn, '\0');
    if (torn > 0) tail[0] = 6;
    std::ofstream(path(), std::ios::app | std::ios::binary) << tail;
    ASSERT_EQ(Records(), (std::vector<std::string>{"one", "first"})) << torn;
    fs::resize_file(path(), whole);
  }
  std::ofstream(path(), std::ios::app | std::ios::binary) << "torn";
  { SHOAL_ASSERT_OK((*Open())->Append(AsBytes("second"))); }
  EXPECT_EQ(Records(), (std::vector<std::string>{"one", "first", "second"}));
}

// A record that is gone was spent.
TEST_F(SessionFileTest, AFileWithoutItsLastRecordsIsAnOldCopy) {
  for (const bool damaged : {false, true}) {
    Save("one");
    { SHOAL_ASSERT_OK((*Open())->Append(AsBytes("first"))); }
    const auto before = fs::file_size(path());
    {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
      SHOAL_ASSERT_OK(file->Append(AsBytes("second")));
      SHOAL_ASSERT_OK(file->Append(AsBytes("third")));
    }
    if (damaged) {
      std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(before) + 5);
      file.put('X');
    } else {
      fs::resize_file(path(), before);
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    EXPECT_EQ(file->discarded(), "is an old copy");
    EXPECT_TRUE(file->saved().empty() && file->appended().empty());
  }
}

TEST_F(SessionFileTest, NothingIsAppendedAfterAnError) {
  Save("one");
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
  fs::rename(path(), path() + ".away");
  EXPECT_THAT(file->Append(AsBytes("a")), StatusIs(absl::StatusCode::kNotFound, ""));
  fs::rename(path() + ".away", path());
  EXPECT_THAT(file->Append(AsBytes("a")),
              StatusIs(absl::StatusCode::kFailedPrecondition, "failed"));
  SHOAL_ASSERT_OK(file->Save(AsBytes("two")));
  SHOAL_EXPECT_OK(file->Append(AsBytes("b")));
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
