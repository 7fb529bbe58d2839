// A session's state comes back as it was saved, and never from an old copy.
#include "src/client/session_file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/rollback_anchor.h"
#include "src/client/testing/restored_files.h"
#include "src/pir/engine.h"
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
    place_ = AnchorDirectory::Below(base_);
  }
  std::string path() const { return directory_ / "state"; }
  absl::StatusOr<std::unique_ptr<SessionFile>> Open(const Digest& servers = {1}) {
    return SessionFile::Open(path(), servers, place_, random_);
  }
  static std::string StateOf(const SessionFile& file) {
    Bytes state(file.state_bytes());
    SHOAL_EXPECT_OK(file.Read(0, state));
    return ToString(state);
  }
  // Opens the file, and returns what it holds.
  std::string Saved() {
    const auto file = Open();
    EXPECT_THAT(file, shoal::testing::IsOk());
    return StateOf(**file);
  }
  // Opens the file, and returns the state and the records that it holds.
  std::vector<std::string> Records() {
    const auto file = Open();
    EXPECT_THAT(file, shoal::testing::IsOk());
    std::vector<std::string> all = {StateOf(**file)};
    for (uint64_t i = 0; i < (*file)->records(); ++i) {
      const auto record = (*file)->ReadRecord(i);
      SHOAL_EXPECT_OK(record.status());
      all.push_back(ToString(BytesView(*record)));
    }
    return all;
  }
  // In place, as the guard knows the files by their numbers.
  static std::string ReadBack(const fs::path& name) {
    std::ifstream in(name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  }
  static void WriteOver(const fs::path& name, const std::string& content) {
    std::ofstream(name, std::ios::in | std::ios::out | std::ios::binary) << content;
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
  AnchorDirectory place_;
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
  EXPECT_EQ(file->state_bytes(), 0u);
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
TEST_F(SessionFileTest, WithoutAnAnchorItIsGivenUp) {
  Save("one");
  fs::remove_all(place_.directory());
  fs::create_directory(place_.directory());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
  EXPECT_EQ(file->state_bytes(), 0u);
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
    EXPECT_EQ(file->state_bytes(), 0u);
  }
  EXPECT_EQ(Saved(), "") << "given up for ever";
}

TEST_F(SessionFileTest, AStateMayBeMadeOfTheOneBefore) {
  Save("one");
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    Bytes first(2);
    SHOAL_ASSERT_OK(file->Read(0, first));
    const BytesView parts[] = {first, AsBytes("ly"), BytesView()};
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
    EXPECT_TRUE(file->state_bytes() == 0 && file->records() == 0);
  }
}

pir::StatePatch At(uint64_t at, const char* bytes) { return {.at = at, .bytes = AsBytes(bytes)}; }

// What a change replaced is nowhere in the file, and neither is a change before the last one.
TEST_F(SessionFileTest, OnlyTheLastChangeIsInTheFile) {
  const std::string state(40'000, '.');
  Save(state);
  std::string now = state;
  for (int i = 0; i < 9; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    ASSERT_EQ(StateOf(*file), now);
    for (const char* name : {"first", "other"}) {
      ASSERT_TRUE(file->CanChange());
      const std::string secret = absl::StrCat(name, i), filler(secret.size(), '0' + i);
      // Over the end of a block, and once more in the same change.
      const pir::StatePatch patches[] = {At(16'382, secret.c_str()), At(39'000, filler.c_str()),
                                         At(39'001, "x")};
      SHOAL_ASSERT_OK(file->Change(patches));
      now.replace(16'382, secret.size(), secret);
      now.replace(39'000, filler.size(), filler);
      now.replace(39'001, 1, "x");
      ASSERT_EQ(StateOf(*file), now);
      for (int j = 0; j <= i; ++j) {
        for (const char* other : {"first", "other"}) {
          const bool is_last = j == i && std::string(other) == name;
          EXPECT_EQ(ReadBack(path()).find(absl::StrCat(other, j)) != std::string::npos, is_last);
        }
      }
    }
    EXPECT_THAT(file->Append(AsBytes("a")),
                StatusIs(absl::StatusCode::kFailedPrecondition, "no records"));
  }
  EXPECT_EQ(Saved(), now);
  // A state replaces all that.
  Save("two");
  EXPECT_EQ(Saved(), "two");
}

TEST_F(SessionFileTest, ALongChangeFindsRoom) {
  const std::string state(300'000, '.'), more(200'000, 'm');
  Save(state);
  std::string now = state;
  now.replace(7, more.size(), more);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    const pir::StatePatch patches[] = {At(7, more.c_str())};
    SHOAL_ASSERT_OK(file->Change(patches));
    SHOAL_ASSERT_OK(file->Change(patches));
  }
  EXPECT_EQ(Saved(), now);
}

// A process is killed at any write of a change: before its record was whole it has not happened,
// and from then on it has, however much of the state was written.
TEST_F(SessionFileTest, AChangeIsMadeWholeOrNotAtAll) {
  const std::string state(20'000, '.');
  Save(state);
  const auto change = [&](const char* text) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    const pir::StatePatch patches[] = {At(100, text), At(16'383, text)};
    SHOAL_ASSERT_OK(file->Change(patches));
  };
  change("one");
  fs::path anchor;
  for (const auto& entry : fs::directory_iterator(place_.directory())) {
    if (entry.is_regular_file() && ReadBack(entry.path()).size() > 8) anchor = entry.path();
  }
  std::string one = state, two = state;
  for (const size_t at : {100, 16'383}) {
    one.replace(at, 3, "one");
    two.replace(at, 3, "two");
  }
  const std::string guard = path() + ".guard";
  const std::string before[] = {ReadBack(path()), ReadBack(guard), ReadBack(anchor)};
  change("two");
  const std::string after[] = {ReadBack(path()), ReadBack(guard), ReadBack(anchor)};
  ASSERT_EQ(before[0].size(), after[0].size());
  std::vector<size_t> differ;
  for (size_t i = 0; i < before[0].size(); ++i) {
    if (before[0][i] != after[0][i]) differ.push_back(i);
  }
  const size_t slots = before[0].size() - 2 * 65'536;
  size_t record_end = 0, patches_end = 0;
  std::vector<size_t> record, patches;
  for (const size_t i : differ) {
    // The second change is in the first slot, and the one before is wiped in the second one.
    (i < slots ? patches : i < slots + 65'536 ? record : patches).push_back(i);
  }
  record_end = record.size();
  patches_end = patches.size();
  ASSERT_GT(record_end, 50u);
  ASSERT_GT(patches_end, 50u);
  const auto put = [&](size_t of_record, size_t of_patches, int named) {
    std::string content = before[0];
    for (size_t i = 0; i < of_record; ++i) content[record[i]] = after[0][record[i]];
    for (size_t i = 0; i < of_patches; ++i) content[patches[i]] = after[0][patches[i]];
    WriteOver(path(), content);
    WriteOver(guard, named > 0 ? after[1] : before[1]);
    WriteOver(anchor, named > 1 ? after[2] : before[2]);
  };
  for (size_t i = 0; i <= record_end; ++i) {
    put(i, 0, 0);
    ASSERT_EQ(Saved(), i < record_end ? one : two) << i;
    ASSERT_EQ(Saved(), i < record_end ? one : two) << i;
  }
  for (const int named : {0, 1, 2}) {
    for (size_t i = 0; i <= patches_end; ++i) {
      put(record_end, i, named);
      ASSERT_EQ(Saved(), two) << i;
      // And nothing of the change before is left.
      ASSERT_EQ(ReadBack(path()), after[0]) << i;
    }
  }
  // What was sent of the second change makes the first one an old copy.
  put(0, 0, 2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
  EXPECT_EQ(file->discarded(), "is an old copy");
}

TEST_F(SessionFileTest, AnOldStateIsGivenUpAfterAChange) {
  Save("one");
  Copy(path(), path() + ".old");
  for (int i = 0; i < 2; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    const pir::StatePatch patches[] = {At(1, "N")};
    SHOAL_ASSERT_OK(file->Change(patches));
  }
  // Over the file in place, and with the guard of then, which is one behind each time.
  std::ofstream(path(), std::ios::in | std::ios::out | std::ios::binary)
      << std::ifstream(path() + ".old", std::ios::binary).rdbuf();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
  EXPECT_EQ(file->discarded(), "is an old copy");
  EXPECT_EQ(file->state_bytes(), 0u);
}

// As version 0.2 wrote it: a digest, servers and guard, the state, records.
TEST_F(SessionFileTest, AFileOfVersionTwoIsReadAndReplaced) {
  Save("a state");
  std::ifstream in(path(), std::ios::binary);
  const std::string now((std::istreambuf_iterator<char>(in)), {});
  Bytes head = ToBytes(AsBytes(now).subspan(8 + 32, 32 + sizeof(Guard::id) + 5 * 8 + 8));
  // A save that the anchor has not seen yet.
  uint8_t* const generation = &head[32 + sizeof(Guard::id) + 2 * 8];
  StoreLe<uint64_t>(generation, LoadLe<uint64_t>(generation) + 1);
  Append(head, AsBytes("a state"));
  const Digest digest = Transcript("shoal client session v2").Blob(head).Finish();
  const Digest of_record =
      Transcript("shoal client session record v1").Blob(digest).Blob(AsBytes("query")).Finish();
  const auto put = [&](bool with_record) {
    Bytes content = ToBytes(digest);
    Append(content, head);
    if (with_record) {
      AppendLe<uint32_t>(content, 5);
      Append(content, AsBytes("query"));
      Append(content, of_record);
    }
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << ToString(content);
  };
  put(false);
  EXPECT_EQ(Records(), (std::vector<std::string>{"a state"}));
  put(true);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    EXPECT_EQ(StateOf(*file), "a state");
    ASSERT_EQ(file->records(), 1u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto record, file->ReadRecord(0));
    EXPECT_EQ(ToString(BytesView(record)), "query");
    EXPECT_FALSE(file->CanChange());
    const pir::StatePatch patches[] = {At(0, "A")};
    EXPECT_THAT(file->Change(patches), StatusIs(absl::StatusCode::kFailedPrecondition, "in place"));
    SHOAL_ASSERT_OK(file->Save(AsBytes("another")));
    EXPECT_TRUE(file->CanChange());
  }
  EXPECT_EQ(Records(), (std::vector<std::string>{"another"}));
  // What was spent stays spent: the file of before is an old copy.
  put(true);
  EXPECT_EQ(Saved(), "");
}

// As it was before 0.3.0: another magic, and no digests of the blocks. With a change that its
// process did not complete, and with a state and a record.
TEST_F(SessionFileTest, AFileWithoutDigestsIsReadAndReplaced) {
  for (const bool changed : {false, true}) {
    SCOPED_TRACE(changed);
    const std::string state(40'000, '.');
    Save(state);
    {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
      const pir::StatePatch patches[] = {At(16'382, "query")};
      if (changed) {
        SHOAL_ASSERT_OK(file->Change(patches));
      } else {
        SHOAL_ASSERT_OK(file->Append(AsBytes("a record")));
      }
    }
    std::string now = state;
    if (changed) now.replace(16'382, 5, "query");
    const std::string content = ReadBack(path());
    constexpr size_t kStateAt = 8 + 32 + 32 + sizeof(Guard::id) + 5 * 8 + 8 + 8 + 32;
    Bytes head = ToBytes(AsBytes(content).subspan(8 + 32, kStateAt - 8 - 32));
    // A save that the anchor has not seen yet.
    uint8_t* const generation = &head[32 + sizeof(Guard::id) + 2 * 8];
    StoreLe<uint64_t>(generation, LoadLe<uint64_t>(generation) + 1);
    const Digest digest = Transcript("shoal client session v3").Blob(head).Finish();
    Bytes before = ToBytes(AsBytes("SHOALSF3"));
    Append(before, digest);
    Append(before, head);
    Append(before, AsBytes(state));
    const size_t slots_at = kStateAt + state.size() + 3 * sizeof(Digest);
    Bytes slots(2 * 65'536);
    Digest last = digest;
    if (changed) {
      // The same change, by the same number, of that head.
      const BytesView slot = AsBytes(content).subspan(slots_at + 65'536);
      const auto length = LoadLe<uint32_t>(slot.data());
      const BytesView change = slot.subspan(4, length);
      last = Transcript("shoal client session change v1").Blob(digest).Blob(change).Finish();
      std::ranges::copy(slot.first(4 + length), slots.begin() + 65'536);
      std::ranges::copy(last, slots.begin() + 65'536 + 4 + length);
    }
    Append(before, slots);
    if (!changed) {
      last = Transcript("shoal client session record v1")
                 .Blob(digest)
                 .Blob(AsBytes("a record"))
                 .Finish();
      AppendLe<uint32_t>(before, 8);
      Append(before, AsBytes("a record"));
      Append(before, last);
    }
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << ToString(before);
    {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
      EXPECT_EQ(file->discarded(), "");
      EXPECT_EQ(StateOf(*file), now);
      EXPECT_EQ(file->records(), changed ? 0u : 1u);
      EXPECT_FALSE(file->CanChange());
      SHOAL_ASSERT_OK(file->Save(AsBytes("another")));
      EXPECT_TRUE(file->CanChange());
    }
    EXPECT_EQ(Saved(), "another");
  }
}

// Whatever byte of a file is another: it is refused, or is an old copy, or what it tells is what
// was written, wherever it is read.
TEST_F(SessionFileTest, ADamagedByteIsFoundWhereItIsRead) {
  const std::string state(40'000, '.');
  Save(state);
  std::string now = state;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, Open());
    const pir::StatePatch patches[] = {At(16'382, "query")};
    SHOAL_ASSERT_OK(file->Change(patches));
    now.replace(16'382, 5, "query");
  }
  const std::string guard = path() + ".guard", good = ReadBack(path()),
                    good_guard = ReadBack(guard);
  const size_t state_at = good.find("....");
  int found_at_once = 0, found_later = 0;
  for (size_t at = 0; at < good.size(); at += at < 300 ? 1 : 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    WriteOver(path(), bad);
    const auto file = Open();
    if (!file.ok()) {
      ASSERT_THAT(file.status(), StatusIs(absl::StatusCode::kDataLoss, "damaged")) << at;
      ++found_at_once;
      continue;
    }
    ASSERT_EQ((*file)->discarded(), "") << at;
    // Block by block: the others can be read.
    for (size_t begin = 0; begin < state.size(); begin += 16'384) {
      Bytes part(std::min<size_t>(16'384, state.size() - begin), 'x');
      const absl::Status read = (*file)->Read(begin, part);
      const bool in_block = at >= state_at + begin && at < state_at + begin + part.size();
      if (read.ok()) {
        ASSERT_EQ(ToString(part), now.substr(begin, part.size())) << at;
      } else {
        ASSERT_TRUE(in_block) << at;
        ASSERT_THAT(read, StatusIs(absl::StatusCode::kDataLoss, "damaged"));
        ASSERT_EQ(part, Bytes(part.size())) << "nothing of it is returned";
        // Nothing is made of it either.
        const pir::StatePatch patches[] = {At(begin + 1, "more")};
        ASSERT_THAT((*file)->Change(patches), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
        ++found_later;
      }
    }
    // Of what is behind the state all is mended that does not count.
    if (at >= state_at + now.size()) {
      ASSERT_EQ(ReadBack(path()), good) << at;
    }
  }
  WriteOver(path(), good);
  WriteOver(guard, good_guard);
  EXPECT_EQ(Saved(), now);
  EXPECT_GT(found_at_once, 200);
  EXPECT_GT(found_later, 50);
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
