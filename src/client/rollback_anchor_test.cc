// Anchors are private to their user and to one process at a time, and nobody else's files count.
#include "src/client/rollback_anchor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;
using ::testing::HasSubstr;

class RollbackAnchorTest : public ::testing::Test {
 protected:
  RollbackAnchorTest() {
    std::string name = ::testing::TempDir() + "/anchor.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    shared_ = name;
  }
  ~RollbackAnchorTest() override { fs::remove_all(shared_); }

  std::string Own() const { return shared_ + "/shoal-" + std::to_string(::geteuid()); }
  AnchorDirectory Place() const { return AnchorDirectory::Below(shared_); }
  std::string Problem() const {
    const AnchorDirectory place = Place();
    EXPECT_EQ(place.directory(), "");
    return place.problem();
  }

  std::string shared_;
  const AnchorId id_ = {1, 2, 3};
};

AnchorRecord Says(uint64_t generation, const std::string& remains) {
  const Bytes bytes = ToBytes(AsBytes(remains));
  return {.generation = generation, .content = {7}, .remains = {bytes.begin(), bytes.end()}};
}

TEST_F(RollbackAnchorTest, SaysWhatItWasToldLast) {
  const AnchorDirectory place = Place();
  EXPECT_THAT(place.Find(id_, "state"), StatusIs(absl::StatusCode::kNotFound, ""));
  EXPECT_FALSE(place.Peek(id_).has_value());
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto anchor, place.Make(id_, "state"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto first, anchor->Read());
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->generation, 0u);
    SHOAL_ASSERT_OK(anchor->Write(Says(4, "a long text remains")));
    SHOAL_ASSERT_OK(anchor->Write(Says(5, "text")));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto anchor, place.Find(id_, "state"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto said, anchor->Read());
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->generation, 5u);
  EXPECT_EQ(said->content, Digest{7});
  EXPECT_EQ(AsText(said->remains), "text");
  EXPECT_EQ(place.Peek(id_)->generation, 5u);
}

TEST_F(RollbackAnchorTest, IsPrivateAndServesOneProcess) {
  const AnchorDirectory place = Place();
  SHOAL_ASSERT_OK_AND_ASSIGN(auto anchor, place.Make(id_, "state"));
  struct stat info;
  ASSERT_EQ(::stat(place.directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(::stat((place.directory() + "/" + Hex(id_)).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(place.Find(id_, "state"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "uses this state, or a copy of it"));
  EXPECT_THAT(place.Make(id_, "state"), StatusIs(absl::StatusCode::kAlreadyExists, ""));
  EXPECT_TRUE(place.Peek(id_).has_value());
  anchor.reset();
  SHOAL_EXPECT_OK(place.Find(id_, "state"));
}

TEST_F(RollbackAnchorTest, TornItSaysNothing) {
  const AnchorDirectory place = Place();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto anchor, place.Make(id_, "state"));
  SHOAL_ASSERT_OK(anchor->Write(Says(4, "remains")));
  const std::string path = place.directory() + "/" + Hex(id_);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string whole, ReadFile(path));
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    fs::resize_file(path, cut);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto said, anchor->Read());
    EXPECT_FALSE(said.has_value()) << cut;
    // As if the rest had not been written over zeros.
    fs::resize_file(path, whole.size());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto padded, anchor->Read());
    EXPECT_FALSE(padded.has_value()) << cut;
    EXPECT_FALSE(place.Peek(id_).has_value()) << cut;
    SHOAL_ASSERT_OK(anchor->Write(Says(4, "remains")));
  }
}

// The place that anchors share is open to all users. Somebody else may have made, before this
// user did, what is to be private.
TEST_F(RollbackAnchorTest, WhatOthersCouldHavePlantedIsRefused) {
  const std::string elsewhere = shared_ + "/elsewhere";
  ASSERT_EQ(::mkdir(elsewhere.c_str(), 0700), 0);
  fs::create_directory_symlink(elsewhere, Own());
  EXPECT_THAT(Problem(), HasSubstr("not a private directory of this user"));
  fs::remove(Own());

  SHOAL_ASSERT_OK(WriteFileAtomically(Own(), AsBytes("x"), FileMode::kPrivate));
  EXPECT_THAT(Problem(), HasSubstr("not a private directory of this user"));
  fs::remove(Own());

  for (const mode_t open_to : {0710, 0720, 0701, 0702, 0777}) {
    ASSERT_EQ(::mkdir(Own().c_str(), 0700), 0);
    ASSERT_EQ(::chmod(Own().c_str(), open_to), 0);
    EXPECT_THAT(Problem(), HasSubstr("not a private directory of this user")) << open_to;
    fs::remove(Own());
  }
  ASSERT_EQ(::mkdir(Own().c_str(), 0700), 0);
  if (::chown(Own().c_str(), 65534, 65534) == 0) {  // as root
    EXPECT_THAT(Problem(), HasSubstr("not a private directory of this user"));
  }
  fs::remove(Own());

  // Without the sticky bit anybody can rename the directory and put another into its place.
  ASSERT_EQ(::chmod(shared_.c_str(), 0777), 0);
  EXPECT_THAT(Problem(), HasSubstr("lets others rename"));
  ASSERT_EQ(::chmod(shared_.c_str(), 01777), 0);
  EXPECT_EQ(Place().directory(), Own());
}

TEST_F(RollbackAnchorTest, LinksAreNotFollowed) {
  const AnchorDirectory place = Place();
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto anchor, place.Make(id_, "state"));
    SHOAL_ASSERT_OK(anchor->Write(Says(4, "")));
  }
  const std::string path = place.directory() + "/" + Hex(id_);
  fs::rename(path, shared_ + "/moved");
  fs::create_symlink(shared_ + "/moved", path);
  EXPECT_FALSE(place.Find(id_, "state").ok());
  EXPECT_FALSE(place.Peek(id_).has_value());
}

TEST_F(RollbackAnchorTest, WhereThereIsNoPlaceNothingIsFound) {
  ASSERT_EQ(::chmod(shared_.c_str(), 0777), 0);
  const AnchorDirectory place = Place();
  EXPECT_THAT(place.Find(id_, "state"), StatusIs(absl::StatusCode::kNotFound, "lets others"));
  EXPECT_THAT(place.Make(id_, "state"), StatusIs(absl::StatusCode::kFailedPrecondition, ""));
  EXPECT_FALSE(place.Peek(id_).has_value());
}

// Disks are no place: they are set back together with the state.
TEST_F(RollbackAnchorTest, ThePlaceOfThisMachineIsInMemory) {
  ASSERT_EQ(::setenv("XDG_RUNTIME_DIR", "/proc", 1), 0);
  const AnchorDirectory place = AnchorDirectory::OfThisMachine();
  if (place.directory().empty()) {
    EXPECT_THAT(place.problem(), HasSubstr("; /proc is no file system in memory"));
  } else {
    EXPECT_EQ(place.directory(), "/dev/shm/shoal-" + std::to_string(::geteuid()));
  }
}

// A day after its last save, and only if the file is gone and nobody uses it.
TEST_F(RollbackAnchorTest, AbandonedOnesAreRemoved) {
  const AnchorDirectory place = Place();
  const std::string owner = shared_ + "/state";
  SHOAL_ASSERT_OK(WriteFileAtomically(owner, AsBytes("x"), FileMode::kPrivate));
  const auto make = [&](uint8_t number, const std::string& path, int age_hours) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto anchor, place.Make({number}, path));
    fs::last_write_time(place.directory() + "/" + Hex(AnchorId{number}),
                        fs::file_time_type::clock::now() - std::chrono::hours(age_hours));
  };
  make(1, owner, 25);
  make(2, owner + ".gone", 25);
  make(3, owner + ".gone", 23);
  make(4, owner + ".gone", 25);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto used, place.Find({4}, owner + ".gone"));
  make(5, owner, 0);
  EXPECT_TRUE(place.Peek({1}).has_value());
  EXPECT_FALSE(place.Peek({2}).has_value());
  EXPECT_TRUE(place.Peek({3}).has_value());
  EXPECT_TRUE(place.Peek({4}).has_value());
  EXPECT_TRUE(place.Peek({5}).has_value());
}

}  // namespace
}  // namespace shoal::client
