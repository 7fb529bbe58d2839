// A client's state comes back from an old copy, by the tools that people copy files with and by
// snapshots, and the client goes on. The frontend counts the tallies that it sees in every slot:
// two different ones in a slot would unmask the client (guarantee 7). And the ledger and the
// attempts never go backwards.
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/client/chain_client.h"
#include "src/client/deployment.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/state.h"
#include "src/client/testing/fake_frontend.h"
#include "src/client/testing/restored_files.h"

namespace shoal::client {
namespace {

namespace fs = std::filesystem;
using shoal::testing::StatusIs;
using testing::CopyTool;
using testing::CopyTools;
using testing::FakeFrontend;
using testing::RunShell;
using testing::Snapshot;

// Where a run of the client is interrupted.
enum class Until {
  kSlots,  // the onions are sent, and nothing else
  kRows,   // rows are stored and charged, nothing is sent
  kSent,   // the queries are sent
  kEnd,    // nowhere
};

// The keys of a lookup. Different ones share no row.
enum class Lookups { kFirst, kOther };

class RestoredStateTest : public ::testing::Test {
 protected:
  RestoredStateTest() {
    std::string name = ::testing::TempDir() + "/restored.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    base_ = name;
    place_ = AnchorDirectory::Below(base_);
    SHOAL_CHECK(!place_.directory().empty());
  }
  ~RestoredStateTest() override { fs::remove_all(base_); }

  // A client that has never run, whose files are in `directory`.
  void Begin(const std::string& directory) {
    directory_ = directory;
    copy_ = base_ + "/copy";
    fs::remove_all(directory_);
    fs::remove_all(copy_);
    fs::create_directories(directory_);
    fs::create_directory(copy_);
    frontend_ = std::make_unique<FakeFrontend>(testing::FakeOptions{.dense = true});
  }

  absl::Status Run(Until until, Lookups lookups) {
    frontend_->before = [until](const std::string& name) {
      const bool stops = (until == Until::kSlots && name == "WaitRound") ||
                         (until == Until::kRows && name == "SubmitQueries");
      return stops ? absl::UnavailableError("interrupted") : absl::OkStatus();
    };
    frontend_->after = [until](const std::string& name) {
      return until == Until::kSent && name == "SubmitQueries"
                 ? absl::UnavailableError("interrupted")
                 : absl::OkStatus();
    };
    const Environment environment{.clock = &frontend_->clock(),
                                  .random = &random_,
                                  .pool = &frontend_->pool(),
                                  .sleep = [](uint32_t) {}};
    SHOAL_ASSIGN_OR_RETURN(const auto store, FileStateStore::Open(path(), place_, random_));
    discarded_ = store->discarded_rounds();
    doubt_ = store->doubt();
    SHOAL_ASSIGN_OR_RETURN(
        const Deployment deployment,
        Deployment::Open(*frontend_, frontend_->pins(), *store, environment, ""));
    SHOAL_ASSIGN_OR_RETURN(
        const auto chain,
        ChainClient::Create(&deployment, {.pad_to = 8, .timeout_s = 30, .waits = false},
                            frontend_.get(), store.get(), environment));
    std::vector<Bytes> keys;
    for (size_t i = 0; i < 8; ++i) {
      const size_t key = lookups == Lookups::kFirst ? i : 200 + i;
      keys.push_back(ToBytes(AsBytes(absl::StrCat(key))));
    }
    SHOAL_ASSIGN_OR_RETURN(const auto results, LookUp(deployment, *chain, keys, environment));
    for (const Lookup& result : results) EXPECT_EQ(result.outcome, Lookup::Outcome::kFound);
    return absl::OkStatus();
  }
  void RunInterrupted(Until until) {
    const absl::Status status = Run(until, Lookups::kFirst);
    if (until == Until::kEnd) {
      SHOAL_ASSERT_OK(status);
    } else {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, "interrupted"));
    }
  }

  // Slots of all rounds that saw two tallies. Whatever the frontend did with them, it saw them.
  size_t SlotsWithTwoTallies() const {
    std::map<std::pair<std::string, uint32_t>, std::set<std::string>> tallies;
    for (const auto& [name, bytes] : frontend_->sent) {
      if (name != "SubmitQueries") continue;
      wire::SubmitQueriesRequest request;
      SHOAL_CHECK(request.ParseFromString(bytes));
      for (size_t i = 0; i < request.slots().size() / 4; ++i) {
        const auto slot = LoadLe<uint32_t>(AsBytes(request.slots()).data() + 4 * i);
        tallies[{request.round_id(), slot}].insert(request.tallies().substr(4 * i, 4));
      }
    }
    EXPECT_FALSE(tallies.empty());
    size_t twice = 0;
    for (const auto& [slot, seen] : tallies) twice += seen.size() > 1;
    return twice;
  }
  // The rounds in which the frontend saw queries.
  size_t RoundsAsked() const {
    std::set<std::string> rounds;
    for (const auto& [name, bytes] : frontend_->sent) {
      wire::SubmitQueriesRequest request;
      if (name == "SubmitQueries" && request.ParseFromString(bytes)) {
        rounds.insert(request.round_id());
      }
    }
    return rounds.size();
  }

  // One client's life: it stops at `copied`, its files are copied, it goes on, the copy comes back,
  // and it looks other keys up.
  void Live(const std::string& directory, Until copied, const std::function<void()>& save,
            const std::function<void()>& restore) {
    Begin(directory);
    const Digest first = frontend_->OpenRound();
    RunInterrupted(copied);
    save();
    RunInterrupted(copied == Until::kSlots ? Until::kSent : Until::kEnd);
    restore();
    frontend_->OpenRound();
    // Whoever only looks at the ledger sees no less than what was sent.
    SHOAL_ASSERT_OK_AND_ASSIGN(const State shown, ReadState(path(), place_));
    EXPECT_EQ(shown.ledger.submissions(), 1u);
    // In the first round there are slots to use a second time, if nobody knew.
    frontend_->SetState(first, wire::OPEN_FOR_QUERIES);
    SHOAL_ASSERT_OK(Run(Until::kEnd, Lookups::kOther));
    EXPECT_EQ(discarded_, 1u);
    EXPECT_FALSE(doubt_.empty());
    EXPECT_EQ(SlotsWithTwoTallies(), 0u);
    EXPECT_EQ(RoundsAsked(), 2u);
    // What was asked since the copy is charged, once, and nothing is in doubt.
    SHOAL_ASSERT_OK_AND_ASSIGN(const State state, ReadState(path(), place_));
    EXPECT_EQ(state.ledger.submissions(), RoundsAsked());
    EXPECT_EQ(state.ledger.queries(), 16u);
    EXPECT_EQ(state.ledger.idle_rounds(), 0u);
    EXPECT_EQ(state.ledger.doubts(), 0u);
  }
  // The same with every tool.
  void LiveWithEveryTool(const std::string& directory) {
    for (const CopyTool& tool : CopyTools()) {
      for (const Until copied : {Until::kSlots, Until::kRows, Until::kSent}) {
        SCOPED_TRACE(absl::StrCat(tool.name, ", copied at stage ", static_cast<int>(copied)));
        Live(
            directory, copied, [&] { RunShell(tool.save, directory_, copy_); },
            [&] { RunShell(tool.restore, directory_, copy_); });
      }
    }
  }
  std::string path() const { return directory_ + "/state"; }

  std::string base_, directory_, copy_;
  AnchorDirectory place_;
  SystemRandom random_;
  std::unique_ptr<FakeFrontend> frontend_;
  size_t discarded_ = 0;
  std::string doubt_;
};

TEST_F(RestoredStateTest, ByEveryTool) { LiveWithEveryTool(base_ + "/files"); }

TEST_F(RestoredStateTest, BySnapshot) {
  for (const Until copied : {Until::kSlots, Until::kRows, Until::kSent}) {
    SCOPED_TRACE(static_cast<int>(copied));
    std::optional<Snapshot> snapshot;
    fs::remove_all(base_ + "/links");
    Live(
        base_ + "/files", copied, [&] { snapshot.emplace(directory_, base_ + "/links"); },
        [&] { snapshot->Restore(); });
  }
}

// The same after a restart of the machine: nobody knows what is missing, and the ledger says so.
TEST_F(RestoredStateTest, BySnapshotWithARestart) {
  for (const Until copied : {Until::kSlots, Until::kRows, Until::kSent}) {
    SCOPED_TRACE(static_cast<int>(copied));
    fs::remove_all(base_ + "/links");
    Begin(base_ + "/files");
    const Digest first = frontend_->OpenRound();
    RunInterrupted(copied);
    const Snapshot snapshot(directory_, base_ + "/links");
    RunInterrupted(copied == Until::kSlots ? Until::kSent : Until::kEnd);
    snapshot.Restore();
    for (const auto& entry : fs::directory_iterator(place_.directory())) fs::remove(entry.path());
    frontend_->OpenRound();
    frontend_->SetState(first, wire::OPEN_FOR_QUERIES);
    SHOAL_ASSERT_OK_AND_ASSIGN(const State shown, ReadState(path(), place_));
    EXPECT_EQ(shown.ledger.doubts(), 1u);
    SHOAL_ASSERT_OK(Run(Until::kEnd, Lookups::kOther));
    EXPECT_EQ(SlotsWithTwoTallies(), 0u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const State state, ReadState(path(), place_));
    EXPECT_EQ(state.ledger.doubts(), 1u);
  }
}

// An honest restart in the middle of a lookup costs the round.
TEST_F(RestoredStateTest, ARestartCostsARound) {
  Begin(base_ + "/files");
  frontend_->OpenRound();
  RunInterrupted(Until::kRows);
  for (const auto& entry : fs::directory_iterator(place_.directory())) fs::remove(entry.path());
  const Digest second = frontend_->OpenRound();
  SHOAL_ASSERT_OK(Run(Until::kEnd, Lookups::kFirst));
  EXPECT_EQ(discarded_, 1u);
  EXPECT_EQ(frontend_->Asked(second).size(), 8u);
  EXPECT_EQ(SlotsWithTwoTallies(), 0u);
}

// The attempts of a lookup are capped over all runs, also if its state comes back from a time in
// which it had more of them left.
TEST_F(RestoredStateTest, AttemptsDoNotComeBack) {
  for (const bool restored : {false, true}) {
    Begin(base_ + "/files");
    for (int i = 0; i < 9; ++i) frontend_->OpenRound();
    frontend_->reach = [](const Digest&, wire::RoundState wanted) {
      return wanted == wire::ANSWERED ? wire::ABORTED : wanted;
    };
    RunInterrupted(Until::kSlots);
    RunShell("cp -rp $A/. $B", directory_, copy_);
    EXPECT_THAT(Run(Until::kEnd, Lookups::kFirst),
                StatusIs(absl::StatusCode::kAborted, "sent and charged 3 times"));
    EXPECT_EQ(RoundsAsked(), 3u);
    if (restored) RunShell("cp -rp $B/. $A", directory_, copy_);
    EXPECT_THAT(Run(Until::kEnd, Lookups::kFirst),
                StatusIs(absl::StatusCode::kAborted, "sent and charged 3 times"));
    EXPECT_EQ(discarded_, restored ? 1u : 0u);
    EXPECT_EQ(RoundsAsked(), 3u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const State state, ReadState(path(), place_));
    EXPECT_EQ(state.ledger.submissions(), 3u);
  }
}

// A real file system, which an image of it sets back, with times of birth and without (small
// inodes). Takes root and a loop device.
TEST_F(RestoredStateTest, ByImagesOfAFileSystem) {
  // Mounts end with this process.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    GTEST_SKIP() << "no mounts of one's own here";
  }
  for (const bool with_birth : {true, false}) {
    SCOPED_TRACE(with_birth ? "with times of birth" : "without");
    const std::string image = base_ + "/image", mounted = base_ + "/mounted";
    fs::create_directory(mounted);
    const std::string make =
        absl::StrCat("truncate -s 8M $A && PATH=$PATH:/sbin:/usr/sbin mkfs.ext4 -q -F -I ",
                     with_birth ? 256 : 128, " $A 2>/dev/null && mount -o loop $A $B 2>/dev/null");
    ASSERT_EQ(::setenv("A", image.c_str(), 1), 0);
    ASSERT_EQ(::setenv("B", mounted.c_str(), 1), 0);
    if (std::system(make.c_str()) != 0) GTEST_SKIP() << "an image cannot be mounted here";
    for (const Until copied : {Until::kSlots, Until::kRows, Until::kSent}) {
      SCOPED_TRACE(static_cast<int>(copied));
      Live(
          mounted + "/files", copied,
          [&] { RunShell("umount $B && cp $A $A.old && mount -o loop $A $B", image, mounted); },
          [&] { RunShell("umount $B && cp $A.old $A && mount -o loop $A $B", image, mounted); });
    }
    if (!with_birth) LiveWithEveryTool(mounted + "/files");
    RunShell("umount $B", image, mounted);
  }
}

}  // namespace
}  // namespace shoal::client
