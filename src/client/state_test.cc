#include "src/client/state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "gtest/gtest.h"
#include "src/base/file.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/testing/fake_frontend.h"
#include "src/round/header.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
namespace fs = std::filesystem;

class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    std::string name = ::testing::TempDir() + "/state.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    path_ = name + "/client.state";
  }
  ~StateTest() override { fs::remove_all(directory_); }

  std::unique_ptr<FileStateStore> Open() {
    auto store = FileStateStore::Open(path_, random_);
    EXPECT_THAT(store.status(), shoal::testing::IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  HeldRound MakeRound(uint64_t counter) {
    HeldRound round;
    round.header.mutable_header()->set_counter(counter);
    round.header.mutable_header()->set_expires_s(1000 + counter);
    round.id = round::RoundId(round.header.header());
    round.master = random_.NewSeed();
    round.slots = {5, 3, 9};
    round.rows = {70, 71, 72};
    return round;
  }

  // A state with one round, saved, its store closed.
  void SaveOne() {
    auto store = Open();
    store->state().deployment = "d";
    store->state().rounds.push_back(MakeRound(1));
    SHOAL_ASSERT_OK(store->Save());
  }

  shoal::testing::TestRandom random_{1};
  std::string directory_;
  std::string path_;
};

TEST_F(StateTest, KeepsEverything) {
  Digest digest;
  random_.Fill(digest);
  Seed master;
  {
    auto store = Open();
    State& state = store->state();
    state.deployment = "packages";
    state.roster = roster::SeenEpoch{3, digest};
    state.rounds.push_back(MakeRound(7));
    master = state.rounds[0].master.Clone();
    state.rounds.push_back(MakeRound(8));
    state.rounds[1].End();
    state.ledger.Add({.sent_s = 5, .round_counter = 7, .queries = 64, .epsilon = 1,
                      .delta = 1e-6, .phi = 64});
    SHOAL_ASSERT_OK(store->Save());
  }
  auto store = Open();
  const State& state = store->state();
  EXPECT_EQ(store->discarded_rounds(), 0u);
  EXPECT_EQ(state.deployment, "packages");
  ASSERT_TRUE(state.roster.has_value());
  EXPECT_EQ(state.roster->epoch, 3u);
  EXPECT_EQ(state.roster->digest, digest);
  EXPECT_FALSE(state.table.has_value());
  ASSERT_EQ(state.rounds.size(), 2u);
  EXPECT_EQ(ToBytes(state.rounds[0].master.view()), ToBytes(master.view()));
  EXPECT_EQ(state.rounds[0].counter(), 7u);
  EXPECT_EQ(state.rounds[0].slots, (std::vector<uint32_t>{5, 3, 9}));
  EXPECT_EQ(state.rounds[0].rows, (std::vector<uint32_t>{70, 71, 72}));
  EXPECT_FALSE(state.rounds[0].over);
  EXPECT_TRUE(state.rounds[1].over);
  EXPECT_TRUE(state.rounds[1].rows.empty());
  EXPECT_EQ(state.ledger.submissions(), 1u);
  EXPECT_EQ(state.ledger.queries(), 64u);
  ASSERT_EQ(state.ledger.latest().size(), 1u);
  EXPECT_EQ(state.ledger.latest()[0].round_counter, 7u);
  EXPECT_DOUBLE_EQ(state.ledger.loss().epsilon, 1);
}

TEST_F(StateTest, IsPrivate) {
  SaveOne();
  for (const char* suffix : {"", ".guard", ".lock"}) {
    struct stat info;
    ASSERT_EQ(0, ::stat((path_ + suffix).c_str(), &info));
    EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
  }
  ASSERT_EQ(0, ::chmod(path_.c_str(), 0644));
  EXPECT_THAT(FileStateStore::Open(path_, random_),
              StatusIs(absl::StatusCode::kPermissionDenied, "client.state"));
}

TEST_F(StateTest, IsUsedByOneAtATime) {
  auto store = Open();
  EXPECT_THAT(FileStateStore::Open(path_, random_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "another process"));
  store.reset();
  EXPECT_NE(Open(), nullptr);
}

// Guarantee 7: an old copy has forgotten which row a slot carries.
TEST_F(StateTest, AnOldCopyLosesItsRounds) {
  SaveOne();
  const std::string copy = path_ + ".copy";
  fs::copy_file(path_, copy);
  {
    auto store = Open();
    store->state().rounds[0].rows[0] = 99;
    SHOAL_ASSERT_OK(store->Save());
  }
  fs::rename(copy, path_);
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 1u);
  ASSERT_EQ(store->state().rounds.size(), 1u) << "remembered, so that it is not entered again";
  EXPECT_TRUE(store->state().rounds[0].over);
  const Bytes zeros(32);
  EXPECT_EQ(ToBytes(store->state().rounds[0].master.view()), zeros);
}

TEST_F(StateTest, AnOldCopyOfBothFilesLosesItsRounds) {
  SaveOne();
  fs::copy(directory_, directory_ + ".copy");
  {
    auto store = Open();
    store->state().rounds[0].rows[0] = 99;
    SHOAL_ASSERT_OK(store->Save());
  }
  fs::remove_all(directory_);
  fs::rename(directory_ + ".copy", directory_);
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
}

TEST_F(StateTest, WithoutItsGuardLosesItsRounds) {
  SaveOne();
  fs::remove(path_ + ".guard");
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
  EXPECT_EQ(Open()->discarded_rounds(), 0u) << "once";
}

TEST_F(StateTest, WithATornGuardLosesItsRounds) {
  SaveOne();
  fs::resize_file(path_ + ".guard", 20);
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
}

// The state is durable before its guard: nothing was sent in between.
TEST_F(StateTest, SurvivesACrashBetweenStateAndGuard) {
  SaveOne();
  const auto old_guard = ReadFile(path_ + ".guard");
  SHOAL_ASSERT_OK(old_guard);
  {
    auto store = Open();
    store->state().deployment = "e";
    SHOAL_ASSERT_OK(store->Save());
  }
  // In place, as a save that never came: the inode stays.
  FILE* const guard = std::fopen((path_ + ".guard").c_str(), "r+");
  std::fwrite(old_guard->data(), 1, old_guard->size(), guard);
  std::fclose(guard);
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 0u);
  EXPECT_EQ(store->state().deployment, "e");
}

TEST_F(StateTest, DamageIsSeen) {
  SaveOne();
  const auto content = ReadFile(path_);
  SHOAL_ASSERT_OK(content);
  for (size_t at : {size_t{0}, size_t{31}, size_t{40}, content->size() - 1}) {
    Bytes bad = ToBytes(AsBytes(*content));
    bad[at] ^= 1;
    SHOAL_ASSERT_OK(WriteFileAtomically(path_, bad, FileMode::kPrivate));
    EXPECT_THAT(FileStateStore::Open(path_, random_),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  }
  SHOAL_ASSERT_OK(WriteFileAtomically(path_, AsBytes("short"), FileMode::kPrivate));
  EXPECT_THAT(FileStateStore::Open(path_, random_),
              StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  EXPECT_THAT(ReadState(path_), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
}

// What a save replaces stays reachable through another link: there must be no seed in it.
TEST_F(StateTest, OverwritesWhatItReplaces) {
  SaveOne();
  const std::string link = path_ + ".link";
  fs::create_hard_link(path_, link);
  {
    auto store = Open();
    SHOAL_ASSERT_OK(store->Save());
  }
  const auto old = ReadFile(link);
  SHOAL_ASSERT_OK(old);
  EXPECT_GT(old->size(), 100u);
  EXPECT_EQ(old->find_first_not_of('\0'), std::string::npos);
}

TEST_F(StateTest, ExpiredRoundsAreDropped) {
  State state;
  state.rounds.push_back(MakeRound(1));  // expires at 1001
  state.rounds.push_back(MakeRound(2));
  EXPECT_FALSE(state.DropExpired(1001));
  EXPECT_TRUE(state.DropExpired(1002));
  ASSERT_EQ(state.rounds.size(), 1u);
  EXPECT_EQ(state.rounds[0].counter(), 2u);
}

TEST(Ledger, GroupPrivacy) {
  // Within phi: what the noise claims.
  const Loss one = LossOf({.queries = 64, .epsilon = 1, .delta = 1e-6, .phi = 64});
  EXPECT_DOUBLE_EQ(one.epsilon, 1);
  EXPECT_DOUBLE_EQ(one.delta, 1e-6);
  // One more query than phi: two groups.
  const Loss two = LossOf({.queries = 65, .epsilon = 1, .delta = 1e-6, .phi = 64});
  EXPECT_DOUBLE_EQ(two.epsilon, 2);
  EXPECT_NEAR(two.delta, 1e-6 * (1 + std::exp(1.0)), 1e-15);
  // Many more: delta says that nothing is claimed.
  EXPECT_EQ(LossOf({.queries = 5000, .epsilon = 1, .delta = 1e-6, .phi = 1}).delta, 1);
  EXPECT_EQ(LossOf({.queries = 1, .epsilon = 1, .delta = 1e-6, .phi = 0}).delta, 1);
  EXPECT_EQ(LossOf({.queries = 0, .epsilon = 1, .delta = 1e-6, .phi = 1}).epsilon, 0);
}

TEST(Ledger, CountsAllAndKeepsTheLatest) {
  Ledger ledger;
  for (uint64_t i = 0; i < Ledger::kDetailed + 10; ++i) {
    ledger.Add({.round_counter = i, .queries = 2, .epsilon = 0.5, .delta = 1e-9, .phi = 2});
  }
  EXPECT_EQ(ledger.submissions(), Ledger::kDetailed + 10);
  EXPECT_EQ(ledger.queries(), 2 * (Ledger::kDetailed + 10));
  EXPECT_NEAR(ledger.loss().epsilon, 0.5 * (Ledger::kDetailed + 10), 1e-9);
  EXPECT_EQ(ledger.latest().size(), Ledger::kDetailed);
  EXPECT_EQ(ledger.latest().front().round_counter, 10u);
}

}  // namespace
}  // namespace shoal::client
