// Searches the memory of a deployment, its parties' disks included, for secrets of a round: what a
// stage no longer needs is gone while the round still lives (docs/threat-model.md, "A machine that
// is seized").
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/server/offline.h"
#include "src/server/round_context.h"
#include "src/server/testing/deployment.h"
#include "src/sharing/sharing.h"
#include "src/sim/memory_scan.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

// If set, called before this program reads from or writes to a file at an offset, as spools do.
std::atomic<const std::function<void()>*> before_file = nullptr;

}  // namespace

// Replace the library's functions in this whole program, so that a test can hold a stage up and
// count what it does.
extern "C" ssize_t HeldPread(int fd, void* into, size_t bytes, off_t offset) __asm__("pread");
extern "C" ssize_t HeldPread(int fd, void* into, size_t bytes, off_t offset) {
  if (const std::function<void()>* const before = before_file) (*before)();
  return syscall(SYS_pread64, fd, into, bytes, offset);
}
extern "C" ssize_t HeldPwrite(int fd, const void* from, size_t bytes,
                              off_t offset) __asm__("pwrite");
extern "C" ssize_t HeldPwrite(int fd, const void* from, size_t bytes, off_t offset) {
  if (const std::function<void()>* const before = before_file) (*before)();
  return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

namespace {

using server::testing::Client;
using server::testing::Deployment;
using server::testing::Offline;
using server::testing::Queries;
using server::testing::Seal;
using server::testing::SealedRound;
using ::shoal::testing::StatusIs;

constexpr size_t kSlots = 40;

class ErasureTest : public ::testing::Test {
 protected:
  explicit ErasureTest(uint64_t rows = 20, uint64_t spool_memory_bytes = 1 << 30)
      : deployment_({.rows = rows,
                     .spool_memory_bytes = spool_memory_bytes,
                     .plan = {.stage_limit_s = 100}}) {}

  void Begin() {
    auto round = deployment_.Announce();
    ASSERT_THAT(round, testing::IsOk());
    round_.emplace(*std::move(round));
    client_.emplace(&deployment_, *round_);
    SHOAL_ASSERT_OK(client_->Obtain(kSlots));
    for (uint32_t j = 1; j <= 3; ++j) {
      const Seed root = deployment_.Root(j);
      secrets_.Add(Group("root", j), root.view());
      for (const std::string key : {"onion key", "noise", "permutation"}) {
        Digest derived = DeriveKey(root.view(), absl::StrCat("shoal ", key, " v1"));
        secrets_.Add(Group(key, j), derived);
        derived = {};
      }
    }
  }
  const Digest& id() const { return round_->id(); }
  static std::string Group(const std::string& what, uint32_t party) {
    return absl::StrCat(what, " of party ", party);
  }
  // How much of a group is in memory.
  uint64_t Count(const std::string& what, uint32_t party) {
    const auto found = ScanMemory(getpid(), secrets_);
    EXPECT_THAT(found, testing::IsOk());
    const auto group = found->find(Group(what, party));
    return group == found->end() ? 0 : group->second;
  }

  // What a party's offline stage makes of its input. `onions` counts those in party 1's.
  server::OnlineMaterial MaterialOf(uint32_t party, BytesView input, uint64_t onions) {
    ThreadPool pool(1);
    SpoolPlace spools("/tmp", 1 << 30);
    const server::OfflineSecrets secrets(deployment_.Root(party));
    const wire::RoundHeader& header = round_->header();
    server::RoundContext context{
        .counter = round_->counter(),
        .round_id = id(),
        .party = PartyNumber(party),
        .parties = 3,
        .answer_bytes = header.answer_bytes(),
        .max_rows = header.max_rows(),
        .max_slots = header.max_slots(),
        .noise = *noise::Distribution::Create(server::testing::DeploymentOptions().noise),
        .next_recipients = {}};
    for (uint32_t next = party + 1; next <= 3; ++next) {
      context.next_recipients.push_back(round_->recipients()[next - 1]);
    }
    const server::Resources resources = {.pool = &pool, .spools = &spools};
    auto noise = server::MakeNoise(context, secrets, resources);
    SHOAL_CHECK(noise.ok());
    auto made = RunOffline(context, secrets, *std::move(noise), input, onions, resources);
    SHOAL_CHECK(made.ok());
    // What lies in the memory of these spools goes with them.
    made->material.arena.reset();
    made->material.pads = {};
    made->material.forward_memory = {};
    return std::move(made->material);
  }
  template <typename Items>
  void AddItems(const std::string& what, uint32_t party, const Items& items) {
    secrets_.Add(Group(what, party), {reinterpret_cast<const uint8_t*>(items.data()),
                                      items.size() * sizeof(*items.data())});
  }

  Deployment deployment_;
  std::optional<round::Round> round_;
  std::optional<Client> client_;
  Secrets secrets_;
};

// Whoever takes over a party from then on cannot open the round's onions that were recorded, and
// cannot draw its noise or its permutation again.
TEST_F(ErasureTest, OnceAnOfflineListIsCommittedToNothingOpensIt) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), id()));
  Bytes list;
  for (uint32_t j = 1; j <= 3; ++j) {
    EXPECT_EQ(Count("root", j), 0u) << j;
    for (const std::string key : {"onion key", "noise", "permutation"}) {
      EXPECT_GT(Count(key, j), 0u) << key << ": the test would not see it at party " << j;
    }
    if (j == 1) {
      SHOAL_ASSERT_OK_AND_ASSIGN(list, Offline(deployment_.party(1), round_->wire(), sealed));
    } else {
      SHOAL_ASSERT_OK_AND_ASSIGN(list, Offline(deployment_.party(j), round_->wire(), list));
    }
    for (const std::string key : {"onion key", "noise", "permutation"}) {
      EXPECT_EQ(Count(key, j), 0u) << key << " at party " << j;
    }
  }
}

// A list whose digest could not be stored is not committed to, so that it may come again.
TEST_F(ErasureTest, AListThatCouldNotBeCommittedToMayComeAgain) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), id()));
  server::Party& party = deployment_.party(1);
  deployment_.disk(1).writes_left = 0;
  EXPECT_THAT(Offline(party, round_->wire(), sealed),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  EXPECT_GT(Count("onion key", 1), 0u);
  deployment_.disk(1).writes_left = -1;
  SHOAL_EXPECT_OK(Offline(party, round_->wire(), sealed));
  EXPECT_EQ(Count("onion key", 1), 0u);
}

// What the queries were made of is gone once they are committed to. The queries themselves, which
// the next party has, stay, and are given out again.
TEST_F(ErasureTest, OnceQueriesAreCommittedToNoNoiseAndNoSharesAreLeft) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(Bytes list, Offline(deployment_.party(1), round_->wire(), sealed));
  SHOAL_ASSERT_OK(Offline(deployment_.party(2), round_->wire(), list));
  AddItems("noise queries", 1, MaterialOf(1, sealed.list, sealed.onions).noise);
  AddItems("noise queries", 2, MaterialOf(2, list, 0).noise);
  {
    SecretVector<sharing::QueryShare> shares;
    for (const server::testing::Secret& secret : client_->secrets()) {
      shares.push_back(sharing::Expand(secret.seeds[0].view(), id()).share);
    }
    AddItems("shares", 1, shares);
  }
  EXPECT_GT(Count("shares", 1), 0u) << "the test would not see them";

  wire::QueryBatch batch;
  for (uint32_t i = 0; i < kSlots; ++i) {
    batch.positions.push_back(i);
    batch.tallies.push_back(1000 + i);
  }
  Bytes queries = EncodeQueryBatch(batch, kSlots);
  for (uint32_t j = 1; j <= 2; ++j) {
    EXPECT_GT(Count("noise queries", j), 0u) << "the test would not see them at party " << j;
    server::Party& party = deployment_.party(j);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes forwarded, Queries(party, id(), queries));
    EXPECT_EQ(Count("noise queries", j), 0u) << j;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes again, Queries(party, id(), queries));
    EXPECT_EQ(again, forwarded);
    queries = forwarded;
  }
  EXPECT_EQ(Count("shares", 1), 0u);
}

// --- a round that ends in the middle of a stage ---

// While it lives, the program's next access to a file waits for GoOn, and the others are counted.
class HeldFile {
 public:
  HeldFile() {
    before_ = [this, finished = finish_.get_future().share()] {
      if (first_.exchange(false)) {
        held_.set_value();
        finished.wait();
      } else {
        ++others_;
      }
    };
    before_file = &before_;
  }
  ~HeldFile() { before_file = nullptr; }
  void Wait() { held_.get_future().wait(); }
  void GoOn() { finish_.set_value(); }
  int others() const { return others_; }

 private:
  std::atomic<bool> first_ = true;
  std::atomic<int> others_ = 0;
  std::promise<void> held_, finish_;
  std::function<void()> before_;
};

// Lists are in files. The noise takes some twenty chunks.
class EndedRoundTest : public ErasureTest {
 protected:
  EndedRoundTest() : ErasureTest(/*rows=*/3000, /*spool_memory_bytes=*/0) {}
  static constexpr int kWorkers = 3;  // two threads and the caller
};

TEST_F(EndedRoundTest, NoiseIsNotMadeToTheEnd) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  HeldFile file;
  auto noise =
      std::async(std::launch::async, [&] { return deployment_.party(1).PrepareNoise(id()); });
  file.Wait();
  SHOAL_EXPECT_OK(deployment_.EndRound(id()));  // waits for no stage
  const int before = file.others();
  file.GoOn();
  EXPECT_THAT(noise.get(), StatusIs(absl::StatusCode::kCancelled, "ended"));
  EXPECT_LE(file.others() - before, kWorkers) << "it went on";
  for (const std::string key : {"onion key", "noise", "permutation"}) EXPECT_EQ(Count(key, 1), 0u);
}

// Guarantee 15: before the offline list is committed to, no call of a neighbour waits for the
// noise, and no answer says whether it is made.
TEST_F(EndedRoundTest, NoCallTellsWhetherTheNoiseIsMade) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  server::Party& party = deployment_.party(2);
  const auto ask = [&] {
    std::string said;
    const auto add = [&](const absl::Status& status) {
      absl::StrAppend(&said, status.ToString(), "\n");
    };
    add(Queries(party, id(), Bytes(10)).status());
    server::OnePart answers(std::make_unique<BytesSource>(Bytes(10)));
    add(party.Answers(id(), answers).status());
    const uint64_t bytes = 80;
    auto intake = party.BeginOffline(round_->wire(), bytes);
    add(intake.status());
    if (intake.ok()) {
      add((*intake)->Take(Bytes(bytes - 1)));
      add(party.Offline(*std::move(intake)).status());
    }
    add(deployment_.party(3).AnswerQueries(id(), BytesView()).status());
    return said;
  };
  const std::string before = ask();
  HeldFile file;
  auto noise = std::async(std::launch::async, [&] { return party.PrepareNoise(id()); });
  file.Wait();
  auto meanwhile = std::async(std::launch::async, ask);
  const bool waits = meanwhile.wait_for(std::chrono::seconds(10)) != std::future_status::ready;
  EXPECT_FALSE(waits);
  file.GoOn();
  SHOAL_EXPECT_OK(noise.get());
  EXPECT_EQ(meanwhile.get(), before);
  EXPECT_EQ(ask(), before);
}

// Its length is in no error either: whoever fills a party's disk is told that it is full.
TEST_F(EndedRoundTest, ErrorsDoNotTellHowMuchNoiseThereIs) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  ::rlimit limit = {}, none = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  none = limit;
  none.rlim_cur = 0;
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const absl::Status status = deployment_.party(2).PrepareNoise(id());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find_first_of("0123456789"), absl::string_view::npos) << status;
}

TEST_F(EndedRoundTest, AnOfflineStageGivesUp) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), id()));
  server::Party& party = deployment_.party(1);
  SHOAL_ASSERT_OK(party.PrepareNoise(id()));
  SHOAL_ASSERT_OK_AND_ASSIGN(auto intake, party.BeginOffline(round_->wire(), sealed.list.size(),
                                                             {.records = sealed.onions}));
  SHOAL_ASSERT_OK(intake->Take(sealed.list));
  HeldFile file;  // holds the first of the opened onions that are put in order
  auto list =
      std::async(std::launch::async, [&] { return party.Offline(std::move(intake)).status(); });
  file.Wait();
  SHOAL_EXPECT_OK(deployment_.EndRound(id()));
  file.GoOn();
  EXPECT_THAT(list.get(), StatusIs(absl::StatusCode::kCancelled, "ended"));
  EXPECT_EQ(file.others(), 0) << "it went on to the noise";
}

// Whoever waits for answers holds nothing of a round that has ended, although they never come.
TEST_F(EndedRoundTest, AWaitForAnswersHoldsNothing) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK_AND_ASSIGN(const SealedRound sealed, Seal(deployment_.frontend(), id()));
  server::Party& party = deployment_.party(1);
  SHOAL_ASSERT_OK(Offline(party, round_->wire(), sealed));
  AddItems("places", 1, MaterialOf(1, sealed.list, sealed.onions).target);
  wire::QueryBatch batch;
  for (uint32_t i = 0; i < kSlots; ++i) {
    batch.positions.push_back(i);
    batch.tallies.push_back(1000 + i);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries,
                             Queries(party, id(), EncodeQueryBatch(batch, kSlots)));
  const uint64_t asked = LoadLe<uint32_t>(queries.data() + 1);
  struct Never final : ByteSource {
    explicit Never(uint64_t b) : bytes(b) {}
    uint64_t size() const override { return bytes; }
    absl::StatusOr<BytesView> Next() override {
      waits.set_value();
      given_up.get_future().wait();
      return absl::CancelledError("given up");
    }
    const uint64_t bytes;
    std::promise<void> waits, given_up;
  };
  auto source = std::make_unique<Never>(asked * round_->tagged_bytes());
  Never& never = *source;
  server::OnePart coming(std::move(source));
  auto answers =
      std::async(std::launch::async, [&] { return party.Answers(id(), coming).status(); });
  never.waits.get_future().wait();
  EXPECT_GT(Count("places", 1), 0u) << "the test would not see them";
  SHOAL_EXPECT_OK(deployment_.EndRound(id()));
  EXPECT_EQ(Count("places", 1), 0u);
  never.given_up.set_value();
  EXPECT_FALSE(answers.get().ok());
}

}  // namespace
}  // namespace shoal::sim
