#include "src/client/state.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "gtest/gtest.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/guarded_file.h"
#include "src/client/rollback_anchor.h"
#include "src/client/state.pb.h"
#include "src/client/testing/fake_frontend.h"
#include "src/client/testing/restored_files.h"
#include "src/round/header.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
namespace fs = std::filesystem;

noise::Parameters Noise(uint32_t phi) {
  return {.mechanism = noise::Mechanism::kGeometric,
          .epsilon = 1,
          .delta = 1e-6,
          .phi = phi,
          .mode = 15,
          .left_scale = 1.25,
          .right_scale = 5};
}

class StateTest : public ::testing::Test {
 protected:
  StateTest() {
    std::string name = ::testing::TempDir() + "/state.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    base_ = name;
    directory_ = name + "/files";
    fs::create_directory(directory_);
    path_ = directory_ + "/client.state";
    place_ = AnchorDirectory::Below(base_);
    SHOAL_CHECK(!place_.directory().empty());
  }
  ~StateTest() override { fs::remove_all(base_); }

  std::unique_ptr<FileStateStore> Open() {
    auto store = FileStateStore::Open(path_, place_, random_);
    EXPECT_THAT(store.status(), shoal::testing::IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  HeldRound MakeRound(uint64_t counter) {
    HeldRound round;
    round.header.mutable_header()->set_counter(counter);
    round.header.mutable_header()->set_expires_s(1000 + counter);
    round.id = round::RoundId(round.header.header());
    round.master = random_.NewSeed();
    round.submissions = MakeSubmissions({2, 1});
    round.rows = {70, 71, 72};
    round.wanted.fill(static_cast<uint8_t>(counter));
    round.machine = static_cast<uint32_t>(counter % 64);
    return round;
  }

  // Submissions of these sizes that have slots, the first one those from 5 on.
  static std::vector<OnionSubmission> MakeSubmissions(const std::vector<uint32_t>& counts) {
    std::vector<OnionSubmission> submissions;
    uint32_t first = 0;
    for (const uint32_t count : counts) {
      OnionSubmission submission{
          .first = first, .count = count, .plaintext = {}, .first_slot = 2 * first + 5};
      submission.plaintext.fill(static_cast<uint8_t>(first + 1));
      submissions.push_back(submission);
      first += count;
    }
    return submissions;
  }

  // Replaces the state's content.
  void WriteAs(const char* domain, const std::string& body) {
    Bytes content = ToBytes(Transcript(domain).Blob(body).Finish());
    Append(content, AsBytes(body));
    SHOAL_CHECK(WriteFileAtomically(path_, content, FileMode::kPrivate).ok());
  }

  // Saves a state with one round and closes its store.
  void SaveOne() {
    auto store = Open();
    store->state().deployment = "d";
    store->state().rounds.push_back(MakeRound(1));
    SHOAL_ASSERT_OK(store->Save());
  }

  roster::FollowedKeys MakeFollowed() {
    roster::FollowedKeys followed{.pins = {7}, .keys = {}};
    for (int i = 0; i < 2; ++i) {
      followed.keys.push_back(signature::SecretKey::Generate(random_).public_key());
    }
    return followed;
  }

  // As a restart of the machine does.
  void LoseAnchors() const {
    for (const auto& entry : fs::directory_iterator(place_.directory())) fs::remove(entry.path());
  }
  std::string AnchorFile() const { return fs::directory_iterator(place_.directory())->path(); }
  // In place: it stays the same file.
  static void Overwrite(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::in | std::ios::out | std::ios::trunc) << content;
  }

  shoal::testing::TestRandom random_{1};
  std::string base_;
  std::string directory_;
  std::string path_;
  AnchorDirectory place_;
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
    state.followed_keys = MakeFollowed();
    state.rounds.push_back(MakeRound(7));
    state.rounds[0].for_lookup = true;
    master = state.rounds[0].master.Clone();
    state.rounds.push_back(MakeRound(8));
    state.rounds[1].End();
    state.ledger.Add(
        {.sent_s = 5, .round_counter = 7, .queries = 64, .noise = Noise(64), .most_in_bucket = 1});
    state.ledger.Add(
        {.sent_s = 6, .round_counter = 8, .queries = 1, .noise = Noise(1), .most_in_bucket = 1});
    state.ledger.AddIdleRound();
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
  ASSERT_TRUE(state.followed_keys.has_value());
  EXPECT_EQ(state.followed_keys->pins, Digest{7});
  EXPECT_EQ(state.followed_keys->keys.size(), 2u);
  ASSERT_EQ(state.rounds.size(), 2u);
  EXPECT_EQ(ToBytes(state.rounds[0].master.view()), ToBytes(master.view()));
  EXPECT_EQ(state.rounds[0].counter(), 7u);
  ASSERT_EQ(state.rounds[0].submissions.size(), 2u);
  const OnionSubmission& second = state.rounds[0].submissions[1];
  EXPECT_EQ(second.first, 2u);
  EXPECT_EQ(second.count, 1u);
  EXPECT_EQ(second.first_slot, 9u);
  EXPECT_EQ(second.plaintext[31], 3);
  EXPECT_EQ(state.rounds[0].rows, (std::vector<uint32_t>{70, 71, 72}));
  EXPECT_EQ(state.rounds[0].wanted[31], 7);
  EXPECT_EQ(state.rounds[0].machine, 7u);
  EXPECT_TRUE(state.rounds[0].for_lookup);
  EXPECT_FALSE(state.rounds[0].over);
  EXPECT_TRUE(state.rounds[1].over);
  EXPECT_TRUE(state.rounds[1].rows.empty());
  EXPECT_EQ(state.ledger.submissions(), 2u);
  EXPECT_EQ(state.ledger.queries(), 65u);
  EXPECT_EQ(state.ledger.idle_rounds(), 1u);
  ASSERT_EQ(state.ledger.latest().size(), 2u);
  EXPECT_EQ(state.ledger.latest()[0].round_counter, 7u);
  EXPECT_EQ(state.ledger.latest()[0].phi, 64u);
  Ledger same;
  same.Add({.queries = 64, .noise = Noise(64), .most_in_bucket = 1});
  same.Add({.queries = 1, .noise = Noise(1), .most_in_bucket = 1});
  same.AddIdleRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, state.ledger.LossAt(1e-3));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss expected, same.LossAt(1e-3));
  ASSERT_TRUE(loss.epsilon.has_value());
  EXPECT_EQ(loss.epsilon, expected.epsilon);
}

// How often a lookup was tried is kept over runs, under a digest, until it is answered or a day has
// passed.
TEST_F(StateTest, KeepsTheAttemptsOfLookups) {
  Digest first, second;
  random_.Fill(first);
  random_.Fill(second);
  {
    auto store = Open();
    TriedLookup& tried = store->state().AddLookup(first, /*now_s=*/1000, random_);
    tried.submissions = 2;
    tried.lost = 1;
    store->state().AddLookup(second, /*now_s=*/2000, random_).lost = 3;
    SHOAL_ASSERT_OK(store->Save());
  }
  auto store = Open();
  State& state = store->state();
  ASSERT_NE(state.FindLookup(first), nullptr);
  EXPECT_NE(state.FindLookup(first)->id, first) << "not without the key";
  EXPECT_EQ(state.FindLookup(first)->submissions, 2u);
  EXPECT_EQ(state.FindLookup(first)->lost, 1u);
  EXPECT_EQ(&state.AddLookup(second, 2000, random_), state.FindLookup(second));
  EXPECT_EQ(state.FindLookup(second)->lost, 3u);
  state.SawSignedTime(1000 + State::kLookupS);
  state.SawSignedTime(5);  // it does not go back
  EXPECT_FALSE(state.DropExpired(9999 + State::kLookupS)) << "the device's clock alone";
  state.SawSignedTime(1001 + State::kLookupS);
  EXPECT_TRUE(state.DropExpired(0));
  EXPECT_EQ(state.FindLookup(first), nullptr);
  EXPECT_TRUE(state.DropLookup(second));
  EXPECT_FALSE(state.DropLookup(second));
  EXPECT_EQ(state.lookups_key, Digest());
  for (size_t i = 0; i < State::kMaxLookups + 5; ++i) {
    random_.Fill(first);
    state.AddLookup(first, i, random_);
  }
  EXPECT_EQ(state.lookups.size(), State::kMaxLookups);
  SHOAL_ASSERT_OK(store->Save());
  store.reset();
  EXPECT_EQ(Open()->state().lookups.size(), State::kMaxLookups);
}

// How a lookup is spread over rounds is kept over runs, until it is answered or a day has passed.
TEST_F(StateTest, KeepsHowLookupsAreSpread) {
  const Digest first = {1}, second = {2};
  Seed seed;
  {
    auto store = Open();
    State& state = store->state();
    seed = state.AddSpread(first, /*now_s=*/1000, random_).seed.Clone();
    EXPECT_EQ(&state.AddSpread(first, 1000, random_), state.FindSpread(first));
    state.AddSpread(second, /*now_s=*/2000, random_);
    EXPECT_NE(state.FindSpread(first)->id, first) << "not without the seed";
    SHOAL_ASSERT_OK(store->Save());
  }
  auto store = Open();
  State& state = store->state();
  ASSERT_EQ(state.spreads.size(), 2u);
  ASSERT_NE(state.FindSpread(first), nullptr);
  EXPECT_EQ(ToBytes(state.FindSpread(first)->seed.view()), ToBytes(seed.view()));
  state.SawSignedTime(1000 + State::kLookupS);
  EXPECT_FALSE(state.DropExpired(9999 + State::kLookupS)) << "the device's clock alone";
  state.SawSignedTime(1001 + State::kLookupS);
  EXPECT_TRUE(state.DropExpired(0));
  EXPECT_EQ(state.FindSpread(first), nullptr);
  state.DropSpread(second);
  EXPECT_TRUE(state.spreads.empty());
  for (uint8_t i = 0; i < State::kMaxSpreads + 5; ++i) state.AddSpread({i}, i, random_);
  EXPECT_EQ(state.spreads.size(), State::kMaxSpreads);
  EXPECT_EQ(state.FindSpread({0}), nullptr);
  SHOAL_ASSERT_OK(store->Save());
  store.reset();
  EXPECT_EQ(Open()->state().spreads.size(), State::kMaxSpreads);
}

TEST_F(StateTest, AsManyRoundsAsAreKeptAreReadAgain) {
  {
    auto store = Open();
    for (size_t i = 0; i < State::kMaxRounds; ++i) store->state().rounds.push_back(MakeRound(i));
    SHOAL_ASSERT_OK(store->Save());
  }
  auto store = Open();
  EXPECT_EQ(store->state().rounds.size(), State::kMaxRounds);
  EXPECT_EQ(store->discarded_rounds(), 0u);
}

TEST_F(StateTest, IsPrivate) {
  SaveOne();
  for (const char* suffix : {"", ".guard", ".lock"}) {
    struct stat info;
    ASSERT_EQ(0, ::stat((path_ + suffix).c_str(), &info));
    EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
  }
  ASSERT_EQ(0, ::chmod(path_.c_str(), 0644));
  EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
              StatusIs(absl::StatusCode::kPermissionDenied, "client.state"));
}

TEST_F(StateTest, IsUsedByOneAtATime) {
  auto store = Open();
  EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
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

// Copied over the files in place, as `cp` does: they keep inode and time of birth.
TEST_F(StateTest, AnOldCopyOverBothFilesLosesItsRounds) {
  SaveOne();
  std::map<std::string, std::string> copies;
  for (const char* suffix : {"", ".guard"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(copies[suffix], ReadFile(path_ + suffix));
  }
  {
    auto store = Open();
    store->state().rounds[0].rows[0] = 99;
    SHOAL_ASSERT_OK(store->Save());
  }
  for (const auto& [suffix, content] : copies) {
    std::ofstream(path_ + suffix, std::ios::in | std::ios::out | std::ios::trunc) << content;
  }
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
}

// The guard of a copied directory may have the same inode as the one that was there: its time of
// birth counts as much, and so does that of the file itself.
TEST_F(StateTest, AGuardThatWasBornAtAnotherTimeIsAnother) {
  const SecretVector<uint8_t> content(10);
  const auto accepts = [&](const std::function<void(Guard&)>& change) {
    Guard kept;
    {
      SHOAL_CHECK(fs::remove_all(directory_) > 0 && fs::create_directory(directory_));
      auto file = *GuardedFile::Open(path_, place_);
      SHOAL_CHECK(file->Accept(std::nullopt, random_).ok());
      SHOAL_EXPECT_OK(file->Save(
          [&](const Guard& guard) {
            kept = guard;
            return content;
          },
          {}));
    }
    change(kept);
    const FoundContent found{.guard = kept, .bytes = content, .remains = {}};
    return (*GuardedFile::Open(path_, place_))->Accept(found, random_)->latest;
  };
  EXPECT_TRUE(accepts([](Guard&) {}));
  EXPECT_FALSE(accepts([](Guard& guard) { ++guard.file.birth_ns; }));
  EXPECT_FALSE(accepts([](Guard& guard) { ++guard.file.inode; }));
  EXPECT_FALSE(accepts([](Guard& guard) { ++guard.self.birth_ns; }));
  EXPECT_FALSE(accepts([](Guard& guard) { ++guard.self.inode; }));
}

// Everything on the file system is what it was, inodes and times of birth too. Only the anchor
// knows. A file system without times of birth, which gives inodes out again, lets a copy over the
// files look the same.
TEST_F(StateTest, ASnapshotLosesItsRounds) {
  SaveOne();
  const testing::Snapshot snapshot(directory_, base_ + "/links");
  {
    auto store = Open();
    EXPECT_EQ(store->doubt(), "");
    store->state().rounds[0].rows[0] = 99;
    store->state().rounds.push_back(MakeRound(2));
    store->state().ledger.Add({.queries = 64, .noise = Noise(64), .most_in_bucket = 1});
    store->state().ledger.Add({.queries = 64, .noise = Noise(64), .most_in_bucket = 1});
    store->state().roster = roster::SeenEpoch{3, {}};
    store->state().followed_keys = MakeFollowed();
    store->state().AddLookup({5}, 1000, random_).submissions = 2;
    SHOAL_ASSERT_OK(store->Save());
  }
  snapshot.Restore();
  // Whoever only looks sees what is known of the latest, too.
  for (int run = 0; run < 3; ++run) {
    SHOAL_ASSERT_OK_AND_ASSIGN(State seen, ReadState(path_, place_));
    auto store = run == 0 ? nullptr : Open();
    State& state = run == 0 ? seen : store->state();
    EXPECT_EQ(state.ledger.queries(), 128u) << run;
    EXPECT_EQ(state.ledger.doubts(), 0u) << "nothing is missing";
    EXPECT_EQ(state.ledger.idle_rounds(), 0u) << "both rounds were charged";
    EXPECT_EQ(state.roster->epoch, 3u);
    EXPECT_TRUE(state.followed_keys.has_value());
    ASSERT_NE(state.FindLookup({5}), nullptr);
    EXPECT_EQ(state.FindLookup({5})->submissions, 2u);
    ASSERT_EQ(state.rounds.size(), 2u) << "neither is entered again";
    for (const HeldRound& round : state.rounds) {
      EXPECT_TRUE(round.over);
      EXPECT_EQ(ToBytes(round.master.view()), Bytes(32));
    }
    if (run == 1) {
      EXPECT_EQ(store->discarded_rounds(), 1u);
      EXPECT_EQ(store->doubt(), "is an old copy");
    }
    if (run == 2) {
      EXPECT_EQ(store->doubt(), "") << "once";
    }
  }
}

// The same after the snapshot was already found to be old once: no old content is ever the latest.
TEST_F(StateTest, ASnapshotLosesItsRoundsAsOftenAsItComesBack) {
  SaveOne();
  const testing::Snapshot snapshot(directory_, base_ + "/links");
  for (int i = 0; i < 3; ++i) {
    {
      auto store = Open();
      store->state().rounds.push_back(MakeRound(2 + static_cast<uint64_t>(i)));
      SHOAL_ASSERT_OK(store->Save());
    }
    snapshot.Restore();
    auto store = Open();
    EXPECT_EQ(store->discarded_rounds(), 1u) << i;
    EXPECT_EQ(store->state().rounds.size(), 2u + static_cast<size_t>(i));
  }
}

// A save that was killed before its anchor was written, and another one in its place: the first is
// of the same generation, and its rounds carry other rows.
TEST_F(StateTest, ASaveThatAnotherTookThePlaceOfLosesItsRounds) {
  SaveOne();
  const testing::Snapshot before(directory_, base_ + "/before");
  const std::string anchor = *ReadFile(AnchorFile());
  {
    auto store = Open();
    store->state().rounds[0].rows[0] = 98;
    SHOAL_ASSERT_OK(store->Save());
  }
  const testing::Snapshot killed(directory_, base_ + "/killed");
  Overwrite(AnchorFile(), anchor);
  before.Restore();
  {
    auto store = Open();
    EXPECT_EQ(store->discarded_rounds(), 0u);
    store->state().rounds[0].rows[0] = 99;
    SHOAL_ASSERT_OK(store->Save());
  }
  killed.Restore();
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
}

// A restart of the machine, or another container: what is there may be the latest or not.
TEST_F(StateTest, WithoutItsAnchorLosesItsRoundsAndDoubtsItsLedger) {
  SaveOne();
  LoseAnchors();
  SHOAL_ASSERT_OK_AND_ASSIGN(const State seen, ReadState(path_, place_));
  EXPECT_EQ(seen.ledger.doubts(), 1u) << "said at once";
  EXPECT_TRUE(seen.rounds[0].over);
  {
    auto store = Open();
    EXPECT_EQ(store->discarded_rounds(), 1u);
    EXPECT_THAT(store->doubt(),
                ::testing::HasSubstr("nothing in " + place_.directory() + " shows"));
    ASSERT_EQ(store->state().rounds.size(), 1u);
    EXPECT_TRUE(store->state().rounds[0].over);
    EXPECT_EQ(store->state().ledger.doubts(), 1u);
  }
  auto store = Open();
  EXPECT_EQ(store->doubt(), "");
  EXPECT_EQ(store->state().ledger.doubts(), 1u) << "said for ever";
}

TEST_F(StateTest, ATornAnchorIsNone) {
  SaveOne();
  fs::resize_file(AnchorFile(), 100);
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 1u);
  EXPECT_EQ(store->state().ledger.doubts(), 1u);
}

// An old content that was read without an anchor goes on with an id of its own: a later content of
// the old id must not count as ahead of the new anchor.
TEST_F(StateTest, AnAnchorSaysNothingOfContentsBeforeIt) {
  SaveOne();
  const testing::Snapshot earlier(directory_, base_ + "/earlier");
  {
    auto store = Open();
    SHOAL_ASSERT_OK(store->Save());
    SHOAL_ASSERT_OK(store->Save());
  }
  const testing::Snapshot later(directory_, base_ + "/later");
  for (int saves = 0; saves < 5; ++saves) {
    LoseAnchors();
    earlier.Restore();
    {
      auto store = Open();
      for (int i = 0; i < saves; ++i) SHOAL_ASSERT_OK(store->Save());
    }
    later.Restore();
    EXPECT_EQ(Open()->discarded_rounds(), 1u) << saves;
  }
}

// Without a place for anchors no round outlives its process.
TEST_F(StateTest, WithoutAPlaceForAnchorsLosesItsRounds) {
  fs::permissions(base_, fs::perms::all);
  place_ = AnchorDirectory::Below(base_);
  ASSERT_EQ(place_.directory(), "");
  SaveOne();
  for (int i = 0; i < 2; ++i) {
    auto store = Open();
    EXPECT_EQ(store->discarded_rounds(), 1u);
    EXPECT_THAT(store->doubt(), ::testing::HasSubstr("no place in memory"));
    EXPECT_THAT(store->doubt(), ::testing::HasSubstr("lets others rename"));
    store->state().rounds.push_back(MakeRound(10 + static_cast<uint64_t>(i)));
    SHOAL_ASSERT_OK(store->Save());
  }
}

// Two containers with one disk, each with its own memory: neither trusts what the other left.
TEST_F(StateTest, TwoContainersWithOneDiskLoseTheirRounds) {
  fs::create_directory(base_ + "/other");
  fs::permissions(base_ + "/other", fs::perms::owner_all);
  AnchorDirectory other = AnchorDirectory::Below(base_ + "/other");
  SaveOne();
  for (uint64_t i = 2; i < 6; ++i) {
    std::swap(place_, other);
    auto store = Open();
    EXPECT_EQ(store->discarded_rounds(), 1u) << i;
    EXPECT_EQ(store->state().ledger.doubts(), i - 1);
    store->state().rounds.push_back(MakeRound(i));
    SHOAL_ASSERT_OK(store->Save());
  }
}

// Two copies of a disk, and one memory: at most one of them is the latest, and only one at a time
// is in use.
TEST_F(StateTest, ACopyIsNotUsedBesideTheOriginal) {
  SaveOne();
  fs::copy(directory_, base_ + "/copy");
  auto store = Open();
  EXPECT_THAT(FileStateStore::Open(base_ + "/copy/client.state", place_, random_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "or a copy of it"));
  store.reset();
  {
    auto copy = FileStateStore::Open(base_ + "/copy/client.state", place_, random_);
    SHOAL_ASSERT_OK(copy.status());
    EXPECT_EQ((*copy)->discarded_rounds(), 1u);
    EXPECT_EQ((*copy)->doubt(), "is a copy");
    EXPECT_EQ((*copy)->state().ledger.doubts(), 0u) << "a whole one";
  }
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
}

// Slots that were held when the latest was saved are charged once, also those of which an old copy
// knows nothing.
TEST_F(StateTest, IdleRoundsThatAnOldCopyLacksAreCharged) {
  const auto idle = [&](uint64_t counter) {
    HeldRound round = MakeRound(counter);
    round.rows.clear();
    return round;
  };
  {
    auto store = Open();
    store->state().rounds.push_back(idle(1));
    store->state().rounds.push_back(idle(2));
    SHOAL_ASSERT_OK(store->Save());
  }
  const testing::Snapshot snapshot(directory_, base_ + "/links");
  {
    auto store = Open();
    store->state().rounds[0].rows = {1, 2, 3};
    store->state().ledger.Add({.queries = 3, .noise = Noise(1), .most_in_bucket = 1});
    store->state().rounds.push_back(idle(3));
    SHOAL_ASSERT_OK(store->Save());
  }
  snapshot.Restore();
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 2u);
  EXPECT_EQ(store->state().ledger.submissions(), 1u);
  EXPECT_EQ(store->state().ledger.idle_rounds(), 2u) << "the second and the third";
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

// The state is durable before its guard, and that is written before the anchor; nothing is sent in
// between. A crash between them may happen any number of times.
TEST_F(StateTest, SurvivesCrashesBetweenStateAndGuardAndAnchor) {
  SaveOne();
  int crashes = 0;
  for (const bool guard_written : {false, true, false}) {
    std::string old_guard, old_anchor;
    {
      auto store = Open();
      EXPECT_EQ(store->discarded_rounds(), 0u) << crashes;
      old_guard = *ReadFile(path_ + ".guard");
      old_anchor = *ReadFile(AnchorFile());
      store->state().deployment = std::to_string(++crashes);
      SHOAL_ASSERT_OK(store->Save());
    }
    // As if the last save had never reached them.
    if (!guard_written) Overwrite(path_ + ".guard", old_guard);
    Overwrite(AnchorFile(), old_anchor);
  }
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 0u);
  EXPECT_EQ(store->doubt(), "");
  EXPECT_EQ(store->state().deployment, "3");
}

// A content that is two generations ahead of its anchor was not made by this program.
TEST_F(StateTest, AStateFarAheadOfItsAnchorLosesItsRounds) {
  SaveOne();
  const std::string old_anchor = *ReadFile(AnchorFile());
  {
    auto store = Open();
    SHOAL_ASSERT_OK(store->Save());
    SHOAL_ASSERT_OK(store->Save());
  }
  Overwrite(AnchorFile(), old_anchor);
  EXPECT_EQ(Open()->discarded_rounds(), 1u);
}

TEST_F(StateTest, DamageIsSeen) {
  SaveOne();
  const auto content = ReadFile(path_);
  SHOAL_ASSERT_OK(content);
  for (size_t at : {size_t{0}, size_t{31}, size_t{40}, content->size() - 1}) {
    Bytes bad = ToBytes(AsBytes(*content));
    bad[at] ^= 1;
    SHOAL_ASSERT_OK(WriteFileAtomically(path_, bad, FileMode::kPrivate));
    EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  }
  SHOAL_ASSERT_OK(WriteFileAtomically(path_, AsBytes("short"), FileMode::kPrivate));
  EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
              StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  EXPECT_THAT(ReadState(path_, place_), StatusIs(absl::StatusCode::kDataLoss, "damaged"));
}

// The content that a save replaces can be reachable through another link, so the seed in it must be
// overwritten.
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

// Rounds with more items than the state itself keeps.
class LongStateTest : public StateTest {
 protected:
  static constexpr uint32_t kMany = 100'000;
  HeldRound MakeLong(uint64_t counter) {
    HeldRound round = MakeRound(counter);
    round.submissions = MakeSubmissions({kMany / 2, kMany / 2});
    round.rows.resize(kMany);
    for (uint32_t i = 0; i < kMany; ++i) round.rows[i] = 3 * i;
    return round;
  }
  void SaveLong() {
    auto store = Open();
    store->state().rounds.push_back(MakeLong(1));
    SHOAL_ASSERT_OK(store->Save());
  }
  // The files beside the state whose names continue with `suffix`.
  std::vector<std::string> Files(const std::string& suffix) const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path();
      if (name.starts_with(path_ + suffix)) files.push_back(name);
    }
    std::sort(files.begin(), files.end());
    return files;
  }
  std::string RowsFile() const { return Files(".array-").at(0); }
};

TEST_F(LongStateTest, ManyRowsHaveAFileOfTheirOwn) {
  SaveLong();
  EXPECT_LT(fs::file_size(path_), 2000u) << "what is saved often stays small";
  ASSERT_EQ(Files(".array-").size(), 1u);
  EXPECT_EQ(fs::status(RowsFile()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 0u);
  ASSERT_EQ(store->state().rounds.size(), 1u);
  EXPECT_EQ(store->state().rounds[0].slots(), kMany);
  EXPECT_EQ(store->state().rounds[0].rows, MakeLong(1).rows);

  // Only what changed is written again.
  const std::vector<std::string> files = Files(".array-");
  store->state().ledger.Add({.queries = 1, .noise = Noise(1), .most_in_bucket = 1});
  SHOAL_ASSERT_OK(store->Save());
  EXPECT_EQ(Files(".array-"), files);
  store->state().rounds[0].rows[17] = 5;
  SHOAL_ASSERT_OK(store->Save());
  EXPECT_EQ(Files(".array-").size(), 1u);
  EXPECT_NE(Files(".array-"), files);
  store.reset();
  EXPECT_EQ(Open()->state().rounds[0].rows[17], 5u);
}

// Guarantee 7: the state is current, but the rows are of an earlier time, changed, or gone.
TEST_F(LongStateTest, ARoundWhoseRowsAreNotTheLatestIsGivenUp) {
  for (const std::string how : {"old", "changed", "short", "missing"}) {
    for (const auto& entry : fs::directory_iterator(directory_)) fs::remove(entry.path());
    SaveLong();
    const std::string copy = directory_ + "/copy";
    fs::copy_file(RowsFile(), copy);
    {
      auto store = Open();
      store->state().rounds[0].rows[0] = 99;
      store->state().rounds.push_back(MakeRound(2));
      SHOAL_ASSERT_OK(store->Save());
    }
    const std::string rows = RowsFile();
    if (how == "old") fs::rename(copy, rows);
    if (how == "changed") {
      std::string content = *ReadFile(rows);
      content[1000] ^= 1;
      SHOAL_ASSERT_OK(WriteFileAtomically(rows, AsBytes(content), FileMode::kPrivate));
    }
    if (how == "short") fs::resize_file(rows, 400);
    if (how == "missing") fs::remove(rows);
    {
      auto store = Open();
      EXPECT_EQ(store->discarded_rounds(), 1u) << how;
      ASSERT_EQ(store->state().rounds.size(), 2u);
      EXPECT_TRUE(store->state().rounds[0].over) << how;
      EXPECT_TRUE(store->state().rounds[0].rows.empty());
      EXPECT_EQ(ToBytes(store->state().rounds[0].master.view()), Bytes(32));
      EXPECT_FALSE(store->state().rounds[1].over) << "it harms no other round";
    }
    auto store = Open();
    EXPECT_EQ(store->discarded_rounds(), 0u) << "given up for good";
    EXPECT_TRUE(store->state().rounds[0].over);
  }
}

TEST_F(LongStateTest, ArraysAreWipedWithTheirRound) {
  SaveLong();
  const std::string link = directory_ + "/link";
  fs::create_hard_link(RowsFile(), link);
  {
    auto store = Open();
    SHOAL_ASSERT_OK(WriteFileAtomically(store->AnswersPath(1), BytesView(), FileMode::kPrivate));
    SHOAL_ASSERT_OK(store->Save());
    EXPECT_EQ(Files(".answers-").size(), 1u);
    store->state().rounds[0].End();
    SHOAL_ASSERT_OK(store->Save());
  }
  EXPECT_TRUE(Files(".array-").empty());
  EXPECT_TRUE(Files(".answers-").empty());
  const auto old = ReadFile(link);
  SHOAL_ASSERT_OK(old);
  EXPECT_EQ(old->size(), 4 * kMany);
  EXPECT_EQ(old->find_first_not_of('\0'), std::string::npos);
}

// Runs `work` in a child process and kills that (kill -9) before its `at`-th system call. False if
// the child ended before; none if processes cannot be traced here.
std::optional<bool> KillAtSystemCall(int at, const std::function<void()>& work) {
  const pid_t pid = fork();
  SHOAL_CHECK(pid >= 0);
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status = 0;
  SHOAL_CHECK(waitpid(pid, &status, 0) == pid);
  if (WIFEXITED(status)) return std::nullopt;
  // Stops twice at a system call: before and after.
  for (int stops = 0; stops < 2 * at - 1; ++stops) {
    SHOAL_CHECK(ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) == 0);
    SHOAL_CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status)) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
      return false;
    }
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) == pid && !WIFSIGNALED(status)) {
  }
  return true;
}

// Guarantee 7, wherever the process is killed: the state is that of the last save or of the save in
// progress, never damaged and never taken for an old copy. Files that it does not name are removed.
TEST_F(LongStateTest, SurvivesAKillAtEverySystemCall) {
  int kills = 0;
  for (int at = 1;; at += 1 + at / 40) {
    for (const auto& entry : fs::directory_iterator(directory_)) fs::remove(entry.path());
    {
      auto store = Open();
      store->state().rounds.push_back(MakeRound(1));
      store->state().rounds[0].submissions = MakeSubmissions({kMany});
      SHOAL_ASSERT_OK(store->Save());
    }
    const auto killed = KillAtSystemCall(at, [&] {
      auto store = FileStateStore::Open(path_, place_, random_);
      SHOAL_CHECK(store.ok());
      State& state = (*store)->state();
      state.rounds[0].rows = MakeLong(1).rows;
      state.ledger.Add({.queries = 1, .noise = Noise(1), .most_in_bucket = 1});
      SHOAL_CHECK((*store)->Save().ok());
      state.rounds[0].End();
      SHOAL_CHECK((*store)->Save().ok());
    });
    if (!killed.has_value()) GTEST_SKIP() << "processes cannot be traced here";
    {
      auto store = Open();
      ASSERT_NE(store, nullptr) << at;
      EXPECT_EQ(store->discarded_rounds(), 0u) << at;
      ASSERT_EQ(store->state().rounds.size(), 1u);
      const HeldRound& round = store->state().rounds[0];
      const uint64_t charges = store->state().ledger.submissions();
      if (round.over) {
        EXPECT_EQ(charges, 1u);
      } else if (charges == 1) {
        EXPECT_EQ(round.rows, MakeLong(1).rows) << at;
      } else {
        EXPECT_EQ(round.rows, MakeRound(1).rows) << at << ": rows and charge come together";
      }
      EXPECT_TRUE(Files(".tmp-").empty()) << at;
      EXPECT_EQ(Files(".array-").size(), round.over ? 0u : charges) << at;
    }
    if (!*killed) break;
    ++kills;
  }
  EXPECT_GT(kills, 30);
}

// Guarantee 7: once a save has returned, something may have been sent. From then on a snapshot of
// before is old, wherever the process is killed afterwards. Killed before, it may go on.
TEST_F(LongStateTest, ASnapshotIsNoticedWhereverTheProcessWasKilled) {
  int noticed = 0, went_on = 0;
  for (int at = 1;; at += 1 + at / 40) {
    const std::string links = base_ + "/links", sent = base_ + "/sent";
    for (const std::string& directory : {directory_, place_.directory(), links}) {
      if (!fs::exists(directory)) continue;
      for (const auto& entry : fs::directory_iterator(directory)) fs::remove(entry.path());
    }
    fs::remove(links);
    fs::remove(sent);
    SaveOne();
    const testing::Snapshot snapshot(directory_, links);
    const auto killed = KillAtSystemCall(at, [&] {
      auto store = FileStateStore::Open(path_, place_, random_);
      SHOAL_CHECK(store.ok());
      (*store)->state().rounds[0].rows[0] = 99;
      SHOAL_CHECK((*store)->Save().ok());
      SHOAL_CHECK(WriteFileAtomically(sent, BytesView(), FileMode::kPrivate).ok());
    });
    if (!killed.has_value()) GTEST_SKIP() << "processes cannot be traced here";
    snapshot.Restore();
    const size_t discarded = Open()->discarded_rounds();
    if (fs::exists(sent)) {
      EXPECT_EQ(discarded, 1u) << at;
      ++noticed;
    } else if (discarded == 0) {
      ++went_on;
    }
    if (!*killed) break;
  }
  EXPECT_GT(noticed, 0);
  EXPECT_GT(went_on, 10);
}

// Files of a process that was killed while it wrote are wiped.
TEST_F(LongStateTest, LeftoversAreWiped) {
  SaveLong();
  const std::vector<std::string> files = Files(".array-");
  std::vector<std::string> links;
  for (const std::string leftover : {".array-99-0", ".array-99-1.tmp-abcdef", ".tmp-ghijkl"}) {
    SHOAL_ASSERT_OK(WriteFileAtomically(path_ + leftover, AsBytes("secret"), FileMode::kPrivate));
    links.push_back(directory_ + "/link" + std::to_string(links.size()));
    fs::create_hard_link(path_ + leftover, links.back());
  }
  SHOAL_ASSERT_OK(WriteFileAtomically(path_ + ".answers-77", AsBytes("x"), FileMode::kPrivate));
  SHOAL_ASSERT_OK(WriteFileAtomically(path_ + ".mine", AsBytes("kept"), FileMode::kPrivate));
  EXPECT_EQ(Open()->discarded_rounds(), 0u);
  EXPECT_EQ(Files(".array-"), files);
  EXPECT_TRUE(Files(".tmp-").empty());
  EXPECT_TRUE(Files(".answers-").empty());
  EXPECT_EQ(Files(".mine").size(), 1u);
  for (const std::string& link : links) EXPECT_EQ(*ReadFile(link), std::string(6, '\0'));
}

// A program that is killed before it knows the slots must find what it was about to send.
TEST_F(StateTest, KeepsTheCutOfWhatHasNoSlotsYet) {
  {
    auto store = Open();
    HeldRound round = MakeRound(1);
    round.rows.clear();
    round.submissions = MakeSubmissions({4, 5, 6});
    round.submissions[1].first_slot.reset();
    store->state().rounds.push_back(std::move(round));
    SHOAL_ASSERT_OK(store->Save());
  }
  auto store = Open();
  const HeldRound& round = store->state().rounds[0];
  ASSERT_EQ(round.submissions.size(), 3u);
  EXPECT_EQ(round.submissions[1].first, 4u);
  EXPECT_EQ(round.submissions[1].count, 5u);
  EXPECT_FALSE(round.submissions[1].first_slot.has_value());
  EXPECT_EQ(round.submissions[2].first_slot, 23u);
  EXPECT_EQ(round.onions(), 15u);
  EXPECT_EQ(round.slots(), 4u) << "those without a gap before them";
}

// How many queries may have been for one bucket counts over all runs, and a file that contradicts
// itself about it is refused.
TEST_F(StateTest, KeepsHowManyWereInABucket) {
  Ledger ledger;
  {
    auto store = Open();
    for (const uint32_t queries : {8u, 3u}) {
      const Submission asked{.queries = queries, .noise = Noise(1), .most_in_bucket = 4};
      store->state().ledger.Add(asked);
      ledger.Add(asked);
    }
    SHOAL_ASSERT_OK(store->Save());
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss expected, ledger.LossAt(0.5));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss single, LossOf(Noise(1), 11, 0.5, 1));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, Open()->state().ledger.LossAt(0.5));
  ASSERT_TRUE(loss.epsilon && single.epsilon);
  EXPECT_EQ(loss.epsilon, expected.epsilon);
  EXPECT_GT(*loss.epsilon, *single.epsilon);

  const std::string content = *ReadFile(path_);
  for (const uint32_t copies : {3u, 10'001u, ~0u}) {
    StateRecord record;
    ASSERT_TRUE(record.ParseFromString(content.substr(sizeof(Digest))));
    ASSERT_EQ(record.noise_size(), 2);
    ASSERT_EQ(record.noise(0).copies(), 4u);
    ASSERT_EQ(record.noise(1).copies(), 3u);
    record.mutable_noise(0)->set_copies(copies);
    WriteAs("shoal client state v5", record.SerializeAsString());
    EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  }
}

TEST_F(StateTest, SubmissionsThatMakeNoSenseAreDamage) {
  const auto refused = [&](const std::function<void(RoundRecord&)>& change) {
    for (const auto& entry : fs::directory_iterator(directory_)) fs::remove(entry.path());
    SaveOne();
    const std::string content = *ReadFile(path_);
    StateRecord record;
    SHOAL_CHECK(record.ParseFromString(content.substr(sizeof(Digest))));
    change(*record.mutable_rounds(0));
    WriteAs("shoal client state v5", record.SerializeAsString());
    EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
                StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  };
  refused([](auto& r) { r.mutable_submissions(0)->set_count(0); });
  refused([](auto& r) { r.mutable_submissions(1)->set_count(~uint32_t{0}); });
  refused([](auto& r) { r.mutable_submissions(0)->set_first_slot(~uint32_t{0}); });
  refused([](auto& r) { r.mutable_submissions(0)->clear_plaintext_digest(); });
  refused([](auto& r) { r.mutable_submissions(1)->clear_first_slot(); });  // more rows than slots
}

// Shoal 0.1 had three versions of the state. None is read, and none is taken for damage.
TEST_F(StateTest, AStateOf01IsRefusedByName) {
  SaveOne();
  const std::string body = ReadFile(path_)->substr(sizeof(Digest));
  for (const char* domain :
       {"shoal client state v1", "shoal client state v2", "shoal client state v3"}) {
    WriteAs(domain, body);
    for (const absl::Status& status : {FileStateStore::Open(path_, place_, random_).status(),
                                       ReadState(path_, place_).status()}) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, path_));
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   "Shoal 0.1 wrote this state, and this version does not read it; "
                                   "move it away to begin anew, and keep it, as its ledger"));
    }
  }
  // As it says.
  fs::rename(path_, path_ + ".old");
  auto store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->state().rounds.empty());
}

// States as version 0.2 wrote them, which had the same message under another domain.
class StateOf02Test : public StateTest {
 protected:
  static Digest LookupId() { return {5}; }

  // With a round that was asked in, one with slots alone, one without slots and one that was over.
  StateRecord MakeRecord() {
    auto made = FileStateStore::Open(directory_ + "/made", place_, random_);
    SHOAL_CHECK(made.ok());
    State& state = (*made)->state();
    state.deployment = "d";
    state.table = roster::SeenEpoch{4, Digest{9}};
    for (const uint64_t counter : {7, 8, 9, 10}) state.rounds.push_back(MakeRound(counter));
    state.rounds[1].rows.clear();
    state.rounds[2].rows.clear();
    for (OnionSubmission& submission : state.rounds[2].submissions) submission.first_slot.reset();
    state.rounds[3].End();
    state.ledger.Add(
        {.sent_s = 5, .round_counter = 7, .queries = 3, .noise = Noise(64), .most_in_bucket = 1});
    state.ledger.AddIdleRound();
    state.AddLookup(LookupId(), /*now_s=*/900, random_).submissions = 2;
    state.enrolments = {5000};
    SHOAL_CHECK((*made)->Save().ok());
    made->reset();
    StateRecord record;
    SHOAL_CHECK(record.ParseFromString(ReadFile(directory_ + "/made")->substr(sizeof(Digest))));
    return record;
  }
  // What version 0.2 left to its anchor of that record.
  static StateRecord RemainsOf(StateRecord record) {
    for (RoundRecord& round : *record.mutable_rounds()) {
      wire::SignedHeader header = round.header();
      round.Clear();
      *round.mutable_header() = std::move(header);
    }
    record.mutable_total()->set_idle_rounds(record.total().idle_rounds() + 1);
    return record;
  }
  static SecretVector<uint8_t> Encoded(const StateRecord& record) {
    const std::string body = record.SerializeAsString();
    const Digest digest = Transcript("shoal client state v4").Blob(body).Finish();
    SecretVector<uint8_t> encoded(digest.begin(), digest.end());
    encoded.insert(encoded.end(), body.begin(), body.end());
    return encoded;
  }
  void Save(GuardedFile& file, StateRecord record) {
    SHOAL_ASSERT_OK(file.Save(
        [&](const Guard& guard) {
          record.set_guard_id(ToString(guard.id));
          record.set_guard_inode(guard.file.inode);
          record.set_guard_birth_ns(guard.file.birth_ns);
          record.set_own_inode(guard.self.inode);
          record.set_own_birth_ns(guard.self.birth_ns);
          record.set_generation(guard.generation);
          return Encoded(record);
        },
        Encoded(RemainsOf(record))));
  }
  std::unique_ptr<GuardedFile> Begin() {
    auto file = GuardedFile::Open(path_, place_);
    SHOAL_CHECK(file.ok() && (*file)->Accept(std::nullopt, random_).ok());
    return *std::move(file);
  }

  static void ExpectKept(State& state, uint64_t idle_rounds = 3) {
    EXPECT_TRUE(state.rounds.empty());
    EXPECT_EQ(state.deployment, "d");
    ASSERT_TRUE(state.table.has_value());
    EXPECT_EQ(state.table->epoch, 4u);
    EXPECT_EQ(state.ledger.submissions(), 1u);
    EXPECT_EQ(state.ledger.queries(), 3u);
    EXPECT_EQ(state.ledger.idle_rounds(), idle_rounds);
    EXPECT_EQ(state.enrolments, std::vector<uint64_t>{5000});
    const TriedLookup* const tried = state.FindLookup(LookupId());
    ASSERT_NE(tried, nullptr);
    EXPECT_EQ(tried->submissions, 2u);
  }
};

TEST_F(StateOf02Test, ItsRoundsAreOverAndChargedAndNothingElseIsForgotten) {
  Save(*Begin(), MakeRecord());
  SHOAL_ASSERT_OK_AND_ASSIGN(State shown, ReadState(path_, place_));
  ExpectKept(shown);
  {
    auto store = Open();
    EXPECT_EQ(store->rounds_of_02(), 3u);
    EXPECT_EQ(store->discarded_rounds(), 0u);
    EXPECT_EQ(store->doubt(), "");
    ExpectKept(store->state());
  }
  // It is charged once, as it was written anew at once.
  auto store = Open();
  EXPECT_EQ(store->rounds_of_02(), 0u);
  ExpectKept(store->state());
  EXPECT_EQ(store->state().ledger.doubts(), 0u);
}

// Rows that were many were in a file.
TEST_F(StateOf02Test, FilesOfRowsAreWipedAndTheirRoundWasCharged) {
  StateRecord record = MakeRecord();
  const Bytes rows(4 * 3, 1);
  RoundRecord& round = *record.mutable_rounds(0);
  round.clear_rows();
  round.mutable_rows_file()->set_name(".array-3-0");
  round.mutable_rows_file()->set_count(3);
  round.mutable_rows_file()->set_digest(std::string(sizeof(Digest), 'x'));
  const std::string file = path_ + ".array-3-0", link = directory_ + "/link";
  SHOAL_ASSERT_OK(WriteFileAtomically(file, rows, FileMode::kPrivate));
  fs::create_hard_link(file, link);
  Save(*Begin(), record);
  auto store = Open();
  EXPECT_EQ(store->rounds_of_02(), 3u);
  EXPECT_EQ(store->discarded_rounds(), 0u);
  ExpectKept(store->state());
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(*ReadFile(link), std::string(rows.size(), '\0'));
}

TEST_F(StateOf02Test, WithoutAnAnchorItIsInDoubt) {
  Save(*Begin(), MakeRecord());
  LoseAnchors();
  auto store = Open();
  EXPECT_EQ(store->rounds_of_02(), 3u);
  ExpectKept(store->state());
  EXPECT_EQ(store->state().ledger.doubts(), 1u);
}

// What its anchor kept of a later save is of version 0.2, too.
TEST_F(StateOf02Test, AnOldCopyHasTheLedgerOfTheLatest) {
  StateRecord record = MakeRecord();
  std::string old;
  {
    const auto file = Begin();
    Save(*file, record);
    old = *ReadFile(path_);
    record.mutable_total()->set_idle_rounds(6);
    Save(*file, record);
  }
  Overwrite(path_, old);
  auto store = Open();
  EXPECT_EQ(store->doubt(), "is an old copy");
  ExpectKept(store->state(), /*idle_rounds=*/7);
  EXPECT_EQ(store->state().ledger.doubts(), 0u);
}

TEST_F(StateOf02Test, DamageIsStillFound) {
  StateRecord record = MakeRecord();
  record.mutable_rounds(0)->set_master_seed("short");
  Save(*Begin(), record);
  EXPECT_THAT(FileStateStore::Open(path_, place_, random_),
              StatusIs(absl::StatusCode::kDataLoss, "a seed's length"));
}

// A round for which onions were cut and in which nothing was asked is charged its delta when it is
// over, however it ends. A round that was asked in is not.
TEST_F(StateTest, IdleRoundsAreChargedWhenTheyAreOver) {
  const auto idle = [&](uint64_t counter) {
    HeldRound round = MakeRound(counter);
    round.header.mutable_header()->mutable_noise()->set_delta(1e-6);
    round.rows.clear();
    return round;
  };
  State state;
  state.rounds.push_back(idle(1));       // expires
  state.rounds.push_back(idle(2));       // is given up
  state.rounds.push_back(MakeRound(3));  // was asked in
  state.rounds.push_back(idle(4));       // has no slots, or so the frontend says
  for (OnionSubmission& submission : state.rounds[3].submissions) submission.first_slot.reset();
  state.rounds.push_back(idle(5));  // goes on
  state.rounds.push_back(idle(4));  // nothing was cut for it, so that nothing was sent
  state.rounds[5].submissions.clear();
  state.End(state.rounds[1]);
  EXPECT_EQ(state.ledger.idle_rounds(), 1u);
  state.End(state.rounds[1]);
  EXPECT_EQ(state.ledger.idle_rounds(), 1u) << "once";
  state.SawSignedTime(1005);
  EXPECT_TRUE(state.DropExpired(1005));
  EXPECT_EQ(state.rounds.size(), 1u);
  EXPECT_EQ(state.ledger.idle_rounds(), 3u);
  EXPECT_DOUBLE_EQ(state.ledger.Grown(1e-6), 4e-6);
}

// A state that was restored from an old copy gives its rounds up: their slots were held.
TEST_F(StateTest, IdleRoundsOfAnOldCopyAreCharged) {
  {
    auto store = Open();
    store->state().rounds.push_back(MakeRound(1));
    store->state().rounds.push_back(MakeRound(2));
    store->state().rounds[1].rows.clear();
    SHOAL_ASSERT_OK(store->Save());
  }
  LoseAnchors();
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 2u);
  EXPECT_EQ(store->state().ledger.idle_rounds(), 1u) << "the first was charged with its rows";
}

// The same with rows in a file, which is not read then.
TEST_F(LongStateTest, ChargedRoundsOfAnOldCopyAreNotIdle) {
  SaveLong();
  LoseAnchors();
  SHOAL_ASSERT_OK_AND_ASSIGN(const State seen, ReadState(path_, place_));
  EXPECT_EQ(seen.ledger.idle_rounds(), 0u);
  auto store = Open();
  EXPECT_EQ(store->discarded_rounds(), 1u);
  EXPECT_EQ(store->state().ledger.idle_rounds(), 0u);
}

TEST_F(StateTest, ExpiredRoundsAreDropped) {
  State state;
  state.rounds.push_back(MakeRound(1));  // expires at 1001
  state.rounds.push_back(MakeRound(2));
  EXPECT_FALSE(state.DropExpired(1001));
  EXPECT_TRUE(state.DropExpired(1002));
  ASSERT_EQ(state.rounds.size(), 2u) << "a clock that jumps must not bring it back";
  EXPECT_TRUE(state.rounds[0].over);
  EXPECT_FALSE(state.rounds[1].over);
  state.SawSignedTime(1002);
  EXPECT_TRUE(state.DropExpired(1002));
  ASSERT_EQ(state.rounds.size(), 1u);
  EXPECT_EQ(state.rounds[0].counter(), 2u);
}

// What caps a device goes by the time that all parties have signed, over runs, and by no clock.
TEST_F(StateTest, AClockThatJumpsForgetsNoEnrolment) {
  {
    auto store = Open();
    store->state().enrolments = {5000};
    store->state().SawSignedTime(4000);
    EXPECT_FALSE(store->state().DropExpired(9000));
    SHOAL_ASSERT_OK(store->Save());
  }
  {
    auto store = Open();
    EXPECT_EQ(store->state().signed_s, 4000u);
    ASSERT_EQ(store->state().enrolments.size(), 1u);
  }
  LoseAnchors();
  auto store = Open();
  EXPECT_EQ(store->state().signed_s, 4000u);
  store->state().SawSignedTime(5001);
  EXPECT_TRUE(store->state().DropExpired(0));
  EXPECT_TRUE(store->state().enrolments.empty());
}

}  // namespace
}  // namespace shoal::client
