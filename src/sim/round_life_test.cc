// Tests the life of a round, at a party and at the frontend: what each call does in every stage,
// and that serving clients never waits for a stage, a disk or another client's answers.
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/server/round_stage.h"
#include "src/server/testing/deployment.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

// If set, called before this program reads from a file at an offset, as spools do.
std::atomic<const std::function<void()>*> before_read = nullptr;

}  // namespace

// Replaces the library's pread in this whole program, so that a test can have a slow disk.
extern "C" ssize_t SlowPread(int fd, void* into, size_t bytes, off_t offset) __asm__("pread");
extern "C" ssize_t SlowPread(int fd, void* into, size_t bytes, off_t offset) {
  if (const std::function<void()>* const before = before_read) (*before)();
  return syscall(SYS_pread64, fd, into, bytes, offset);
}

namespace {

using server::FrontendStage;
using server::PartyStage;
using server::testing::AnswerQueries;
using server::testing::Answers;
using server::testing::Client;
using server::testing::Deployment;
using server::testing::Offline;
using server::testing::Queries;
using server::testing::Seal;
using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kSoon = std::chrono::seconds(10);

constexpr size_t kSlots = 6;

class RoundLifeTest : public ::testing::Test {
 protected:
  // Answers lie in files where there is no memory for them.
  explicit RoundLifeTest(uint64_t spool_memory_bytes = 1 << 30)
      : deployment_({.rows = 20,
                     .spool_memory_bytes = spool_memory_bytes,
                     .plan = {.stage_limit_s = 100}}) {}

  // A round that has taken onions.
  void Begin() {
    auto round = deployment_.Announce();
    ASSERT_THAT(round, IsOk());
    round_.emplace(*std::move(round));
    client_.emplace(&deployment_, *round_);
    SHOAL_ASSERT_OK(client_->Obtain(kSlots));
  }
  const Digest& id() const { return round_->id(); }
  std::vector<uint64_t> Rows() const {
    std::vector<uint64_t> rows(kSlots);
    for (size_t i = 0; i < kSlots; ++i) rows[i] = i;
    return rows;
  }

  Deployment deployment_;
  std::optional<round::Round> round_;
  std::optional<Client> client_;
};

// --- at a party ---

class PartyLifeTest : public RoundLifeTest {
 protected:
  enum class Call { kPrepare, kOffline, kQueries, kAnswers };
  static constexpr Call kCalls[] = {Call::kPrepare, Call::kOffline, Call::kQueries, Call::kAnswers};

  // Asks party `number` for one step with the input that an honest chain has for it.
  absl::StatusOr<Bytes> Ask(uint32_t number, Call call) {
    server::Party& party = deployment_.party(number);
    switch (call) {
      case Call::kPrepare: {
        const absl::Status status = party.PrepareNoise(id());
        return status.ok() ? absl::StatusOr<Bytes>(Bytes()) : status;
      }
      case Call::kOffline:
        return number == 1 ? Offline(party, round_->wire(), sealed_)
                           : Offline(party, round_->wire(), lists_[number]);
      case Call::kQueries:
        return number == 3 ? AnswerQueries(party, id(), queries_[3])
                           : Queries(party, id(), queries_[number]);
      case Call::kAnswers:
        return Answers(party, id(), answers_);
    }
    return absl::InternalError("no such call");
  }

  // Brings a round to `stage` at party 2 or 3. The parties before it have done all that they can,
  // so its inputs are there.
  void BringTo(uint32_t number, PartyStage stage) {
    Begin();
    if (::testing::Test::HasFatalFailure()) return;
    const auto sealed = Seal(deployment_.frontend(), id());
    ASSERT_THAT(sealed, IsOk());
    sealed_ = *sealed;
    wire::QueryBatch batch;
    for (uint32_t i = 0; i < kSlots; ++i) {
      batch.positions.push_back(i);
      batch.tallies.push_back(1000 + i);
    }
    queries_[1] = EncodeQueryBatch(batch, kSlots);
    answers_ = {};
    for (uint32_t j = 1; j <= number; ++j) {
      const PartyStage until = j == number ? stage : PartyStage::kQueried;
      if (until == PartyStage::kSigned) return;
      SHOAL_ASSERT_OK(Ask(j, Call::kPrepare));
      if (until == PartyStage::kPrepared) return;
      const auto list = Ask(j, Call::kOffline);
      ASSERT_THAT(list, IsOk());
      if (j < 3) lists_[j + 1] = *list;
      if (until == PartyStage::kReady) return;
      const auto queries = Ask(j, Call::kQueries);
      ASSERT_THAT(queries, IsOk());
      if (j < 3) queries_[j + 1] = *queries;
    }
    if (number == 3) return;  // has answered
    ASSERT_EQ(number, 2u);
    SHOAL_ASSERT_OK(Ask(3, Call::kOffline));
    const auto answers = Ask(3, Call::kQueries);
    ASSERT_THAT(answers, IsOk());
    answers_ = *answers;
    if (stage != PartyStage::kAnswered) return;
    SHOAL_ASSERT_OK(Ask(2, Call::kAnswers));
  }

  server::testing::SealedRound sealed_;  // party 1's
  std::map<uint32_t, Bytes> lists_, queries_;
  Bytes answers_;
};

// What a call leads to in each stage. If the call is refused, its Status names the round's stage
// and the stage that the call would have led to.
TEST_F(PartyLifeTest, EveryCallInEveryStageOfAMiddleParty) {
  using enum PartyStage;
  struct Row {
    PartyStage stage;
    PartyStage prepare;
    std::optional<PartyStage> offline, queries, answers;  // none: refused
  };
  const Row rows[] = {
      {kSigned, kPrepared, kReady, std::nullopt, std::nullopt},
      {kPrepared, kPrepared, kReady, std::nullopt, std::nullopt},
      {kReady, kReady, kReady, kQueried, std::nullopt},
      {kQueried, kQueried, std::nullopt, kQueried, kAnswered},
      {kAnswered, kAnswered, std::nullopt, kQueried, kAnswered},
  };
  server::Party& party = deployment_.party(2);
  for (const Row& row : rows) {
    for (const Call call : kCalls) {
      BringTo(2, row.stage);
      ASSERT_FALSE(HasFatalFailure());
      ASSERT_EQ(*party.Stage(id()), row.stage);
      const std::optional<PartyStage> leads_to = call == Call::kPrepare   ? row.prepare
                                                 : call == Call::kOffline ? row.offline
                                                 : call == Call::kQueries ? row.queries
                                                                          : row.answers;
      const auto out = Ask(2, call);
      if (leads_to.has_value()) {
        SHOAL_EXPECT_OK(out);
        EXPECT_EQ(*party.Stage(id()), *leads_to) << Name(row.stage) << static_cast<int>(call);
        // The same again gives the same bytes and leads to the same stage.
        const auto again = Ask(2, call);
        SHOAL_ASSERT_OK(again);
        EXPECT_EQ(*again, *out);
        EXPECT_EQ(*party.Stage(id()), *leads_to);
      } else {
        const PartyStage wanted = call == Call::kOffline   ? kOffline
                                  : call == Call::kQueries ? kQueried
                                                           : kAnswered;
        EXPECT_THAT(out.status(), StatusIs(kRefused, "is " + std::string(Name(row.stage))));
        EXPECT_THAT(out.status(), StatusIs(kRefused, "is " + std::string(Name(wanted))));
        EXPECT_EQ(*party.Stage(id()), row.stage);
      }
      SHOAL_ASSERT_OK(deployment_.EndRound(id()));
      EXPECT_THAT(party.Stage(id()).status(), StatusIs(absl::StatusCode::kNotFound, "not open"));
      for (const Call late : kCalls) {
        EXPECT_THAT(Ask(2, late).status(), StatusIs(absl::StatusCode::kNotFound, "not open"));
      }
      lists_.clear();
      queries_.clear();
    }
  }
}

TEST_F(PartyLifeTest, TheBackendAnswersWhatItIsAsked) {
  using enum PartyStage;
  server::Party& backend = deployment_.party(3);
  for (const PartyStage stage : {kSigned, kPrepared, kReady, kAnswered}) {
    BringTo(3, stage);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_EQ(*backend.Stage(id()), stage);
    const auto answers = Ask(3, Call::kQueries);
    if (stage == kReady || stage == kAnswered) {
      SHOAL_EXPECT_OK(answers);
      EXPECT_EQ(*backend.Stage(id()), kAnswered);
      EXPECT_EQ(*Ask(3, Call::kQueries), *answers);
    } else {
      EXPECT_THAT(answers.status(), StatusIs(kRefused, "is " + std::string(Name(stage))));
      EXPECT_THAT(answers.status(), StatusIs(kRefused, "is queried"));
    }
    SHOAL_ASSERT_OK(deployment_.EndRound(id()));
  }
}

// A draft's header is signed once. A withdrawn draft has ended.
TEST_F(PartyLifeTest, ADraftIsSignedOnce) {
  wire::RoundHeader header = *deployment_.frontend().NewDraft();
  for (uint32_t j = 1; j <= 3; ++j) header = *deployment_.party(j).ExtendDraft(header);
  wire::SignedHeader complete;
  *complete.mutable_header() = header;
  const Digest id = round::RoundId(header);
  EXPECT_FALSE(deployment_.party(3).Stage(id).ok());
  SHOAL_ASSERT_OK(deployment_.party(3).SignHeader(complete));
  EXPECT_EQ(*deployment_.party(3).Stage(id), PartyStage::kSigned);
  EXPECT_THAT(deployment_.party(3).SignHeader(complete), StatusIs(kRefused, "signed already"));
  EXPECT_EQ(*deployment_.party(3).Stage(id), PartyStage::kSigned);
}

// --- at the frontend ---

class FrontendLifeTest : public RoundLifeTest {
 protected:
  using RoundLifeTest::RoundLifeTest;
  using Step = std::function<absl::Status()>;

  server::Frontend& frontend() { return deployment_.frontend(); }

  void BringTo(FrontendStage stage) {
    using enum FrontendStage;
    Begin();
    if (::testing::Test::HasFatalFailure()) return;
    if (stage == kTakingOnions) return;
    if (stage == kClosed) return frontend().Close(id());
    if (stage == kAborted) return frontend().Abort(id(), "for a test");
    if (stage == kOffline) {
      const auto sealed = Seal(frontend(), id());
      ASSERT_THAT(sealed, IsOk());
      ASSERT_THAT(Offline(deployment_.party(1), round_->wire(), *sealed), IsOk());
      return;
    }
    SHOAL_ASSERT_OK(deployment_.RunOffline(id()));
    SHOAL_ASSERT_OK(client_->Query(Rows()));
    if (stage == kTakingQueries) return;
    if (stage == kOnline) {
      ASSERT_THAT(frontend().CloseQueries(id()), IsOk());
      return;
    }
    SHOAL_ASSERT_OK(deployment_.RunOnline(id()));
  }

  absl::Status Collect(server::AnswerSource& answers) {
    return frontend().AnswersReady(id(), answers, [] { return server::StageReports(); });
  }
  // Answers that come from nowhere.
  class SomeAnswers final : public server::AnswerSource {
   public:
    explicit SomeAnswers(const FrontendLifeTest& test)
        : bytes_(Bytes(kSlots * test.round_->tagged_bytes())) {}
    uint64_t size() const override { return bytes_.size(); }
    absl::StatusOr<BytesView> Next() override { return bytes_.Next(); }
    bool in_memory() const override { return false; }
    Spool TakeList() override { return {}; }

   private:
    BytesSource bytes_;
  };

  // The driver's steps, each with the stage that it leads to.
  std::vector<std::pair<Step, FrontendStage>> Steps() {
    return {
        {[this] { return frontend().Seal(id()).status(); }, FrontendStage::kOffline},
        {[this] { return frontend().OfflineDone(id(), {}); }, FrontendStage::kTakingQueries},
        {[this] { return frontend().CloseQueries(id()).status(); }, FrontendStage::kOnline},
        {[this] {
           SomeAnswers answers(*this);
           return Collect(answers);
         },
         FrontendStage::kCollecting},
    };
  }

  // Tries each step in this stage: the one that `goes_on` names leads to `next`; the others are
  // refused and change nothing. Begins a round for each with `bring`.
  void TryAll(const std::function<void()>& bring, FrontendStage stage,
              std::optional<FrontendStage> goes_on, FrontendStage next) {
    for (size_t i = 0; i < Steps().size(); ++i) {
      bring();
      ASSERT_FALSE(HasFatalFailure());
      ASSERT_EQ(*frontend().Stage(id()), stage);
      EXPECT_EQ(*frontend().State(id()), server::Shown(stage));
      const auto [step, to] = Steps()[i];
      const absl::Status done = step();
      if (goes_on == to) {
        SHOAL_EXPECT_OK(done);
        EXPECT_EQ(*frontend().Stage(id()), next);
      } else {
        EXPECT_THAT(done, StatusIs(kRefused, "is " + std::string(Name(stage))));
        EXPECT_THAT(done, StatusIs(kRefused, "is " + std::string(Name(to))));
        EXPECT_EQ(*frontend().Stage(id()), stage);
      }
      SHOAL_EXPECT_OK(deployment_.EndRound(id()));
    }
  }
};

TEST_F(FrontendLifeTest, EveryStepInEveryStage) {
  using enum FrontendStage;
  struct Row {
    FrontendStage stage;
    std::optional<FrontendStage> goes_on;
    FrontendStage next;
  };
  const Row rows[] = {
      {kTakingOnions, kOffline, kOffline},  {kOffline, kTakingQueries, kTakingQueries},
      {kTakingQueries, kOnline, kOnline},   {kOnline, kCollecting, kAnswered},
      {kAnswered, std::nullopt, kAnswered}, {kClosed, std::nullopt, kClosed},
      {kAborted, std::nullopt, kAborted},
  };
  for (const Row& row : rows) {
    TryAll([&] { BringTo(row.stage); }, row.stage, row.goes_on, row.next);
    ASSERT_FALSE(HasFatalFailure());
    // It may be ended in any stage, and not again.
    for (const bool close : {true, false}) {
      BringTo(row.stage);
      ASSERT_FALSE(HasFatalFailure());
      close ? frontend().Close(id()) : frontend().Abort(id(), "why");
      const FrontendStage ended = row.stage == kClosed || row.stage == kAborted ? row.stage
                                  : close                                       ? kClosed
                                                                                : kAborted;
      EXPECT_EQ(*frontend().Stage(id()), ended);
      SHOAL_EXPECT_OK(deployment_.EndRound(id()));
    }
  }
}

// Whatever made party 1 lose it.
TEST_F(FrontendLifeTest, ARoundThatPartyOneHasLostTakesNoQueries) {
  using enum FrontendStage;
  BringTo(kOffline);
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK(deployment_.party(1).End(id()));
  EXPECT_THAT(frontend().OfflineDone(id(), {}), StatusIs(absl::StatusCode::kNotFound, "not open"));
  EXPECT_EQ(*frontend().Stage(id()), kOffline);
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(*frontend().Stage(id()), kAborted);
  // Nor does one that it has not worked on.
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_THAT(frontend().Seal(id()), IsOk());
  EXPECT_THAT(frontend().OfflineDone(id(), {}), StatusIs(kRefused, "party 1's round is signed"));
  EXPECT_EQ(*frontend().Stage(id()), kOffline);
}

// Clients that ask in such a round wait until they hear that it is over, and do not blame their
// tokens.
TEST_F(FrontendLifeTest, QueriesForARoundThatPartyOneHasLostAreToComeAgain) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK(deployment_.RunOffline(id()));
  SHOAL_ASSERT_OK(deployment_.party(1).End(id()));
  EXPECT_THAT(client_->Query(Rows()),
              StatusIs(absl::StatusCode::kUnavailable, "party 1 has lost the round"));
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_THAT(client_->Query(Rows()), StatusIs(kRefused, "the round is ABORTED"));
}

// A source that waits half way until it is told how to go on.
class SlowSource final : public server::AnswerSource {
 public:
  explicit SlowSource(Bytes all) : all_(std::move(all)) {}
  uint64_t size() const override { return all_.size(); }
  absl::StatusOr<BytesView> Next() override {
    if (std::exchange(given_, true)) return BytesView();
    begun.set_value();
    const absl::Status status = go_on.get_future().get();
    return status.ok() ? absl::StatusOr<BytesView>(all_) : status;
  }
  bool in_memory() const override { return false; }
  Spool TakeList() override { return {}; }
  std::promise<void> begun;
  std::promise<absl::Status> go_on;

 private:
  const Bytes all_;
  bool given_ = false;
};

TEST_F(FrontendLifeTest, WhileAnswersComeInNothingElseBegins) {
  using enum FrontendStage;
  BringTo(kOnline);
  ASSERT_FALSE(HasFatalFailure());
  const size_t bytes = kSlots * round_->tagged_bytes();
  {
    SlowSource broken{Bytes(bytes)};
    auto collected = std::async(std::launch::async, [&] { return Collect(broken); });
    broken.begun.get_future().wait();
    EXPECT_EQ(*frontend().Stage(id()), kCollecting);
    EXPECT_EQ(*frontend().State(id()), wire::ANSWERING);
    for (const auto& [step, to] : Steps()) {
      const absl::Status refused = step();
      EXPECT_THAT(refused, StatusIs(kRefused, "is collecting answers"));
      EXPECT_THAT(refused, StatusIs(kRefused, "is " + std::string(Name(to))));
    }
    for (const server::Due& due : frontend().WhatIsDue()) {
      EXPECT_EQ(due.action, server::Action::kAnnounce);
    }
    broken.go_on.set_value(absl::UnavailableError("the connection broke"));
    EXPECT_THAT(collected.get(), StatusIs(absl::StatusCode::kUnavailable, "broke"));
  }
  // The same answers may come again.
  EXPECT_EQ(*frontend().Stage(id()), kBrokenOff);
  EXPECT_EQ(*frontend().State(id()), wire::ANSWERING);
  {
    SlowSource slow{Bytes(bytes)};
    auto collected = std::async(std::launch::async, [&] { return Collect(slow); });
    slow.begun.get_future().wait();
    frontend().Abort(id(), "meanwhile");
    slow.go_on.set_value(absl::OkStatus());
    EXPECT_THAT(collected.get(), StatusIs(kRefused, "is aborted"));
  }
  EXPECT_EQ(*frontend().Stage(id()), kAborted);
}

// The list in which answers were put in order becomes the clients' once its digest is stored. After
// an error the answers come again, and are masked in a list of their own.
TEST_F(FrontendLifeTest, ClientsGetNoAnswersThatAreNotCommittedTo) {
  BringTo(FrontendStage::kTakingQueries);
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, frontend().CloseQueries(id()));
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, deployment_.node(1).OnlineOfKept(id(), queries));
    ASSERT_TRUE(answers->in_memory());
    EXPECT_DEATH(answers->TakeList(), "committed");
    deployment_.disk(1).writes_left = 0;
    EXPECT_THAT(Collect(*answers), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
    EXPECT_DEATH(answers->TakeList(), "committed");
    deployment_.disk(1).writes_left = -1;
  }
  EXPECT_THAT(client_->Fetch(), StatusIs(kRefused, "has no answers to give"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto again, deployment_.node(1).OnlineOfKept(id(), queries));
  SHOAL_ASSERT_OK(Collect(*again));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client_->Fetch());
  for (size_t i = 0; i < kSlots; ++i) {
    EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(Rows()[i])));
  }
}

// --- serving clients never waits ---

// While it lives, the next write to party 1's disk waits.
class StuckDisk {
 public:
  explicit StuckDisk(server::testing::Disk& disk) : disk_(disk) {
    disk.before_write = [this, finished = finish_.get_future().share(), first = true]() mutable {
      if (std::exchange(first, false)) stuck_.set_value();
      finished.wait();
    };
  }
  // Waits until a write has begun.
  void Wait() { stuck_.get_future().wait(); }
  void GoOn() { finish_.set_value(); }
  ~StuckDisk() { disk_.before_write = nullptr; }

 private:
  server::testing::Disk& disk_;
  std::promise<void> stuck_, finish_;
};

template <typename Work>
auto Start(Work work) {
  return std::async(std::launch::async, std::move(work));
}

TEST_F(FrontendLifeTest, ClientsAreServedWhileTheirRoundIsWorkedOn) {
  BringTo(FrontendStage::kAnswered);
  ASSERT_FALSE(HasFatalFailure());
  const Digest answered = id();
  Client client = *std::move(client_);
  // Another round's queries wait for the disk and hold the journal's lock. This round's queries
  // wait for that lock and hold the round's.
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  SHOAL_ASSERT_OK(deployment_.RunOffline(id()));
  SHOAL_ASSERT_OK(client_->Query(Rows()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, frontend().CloseQueries(id()));
  server::Party& party = deployment_.party(1);
  StuckDisk disk(deployment_.disk(1));
  auto other = Start([&] { return Queries(party, id(), queries).status(); });
  disk.Wait();
  wire::QueryBatch batch;
  for (uint32_t i = 0; i < kSlots; ++i) {
    batch.positions.push_back(i);
    batch.tallies.push_back(1);
  }
  auto working =
      Start([&] { return Queries(party, answered, EncodeQueryBatch(batch, kSlots)).status(); });
  EXPECT_EQ(working.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);

  auto fetched = Start([&] { return client.Fetch(); });
  EXPECT_EQ(fetched.wait_for(kSoon), std::future_status::ready);
  disk.GoOn();
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, fetched.get());
  for (size_t i = 0; i < kSlots; ++i) {
    EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(Rows()[i])));
  }
  SHOAL_EXPECT_OK(other.get());
  EXPECT_THAT(working.get(), StatusIs(kRefused, "another queries"));
}

TEST_F(FrontendLifeTest, ClientsAreServedWhileOnionsOfTheirRoundAreStored) {
  BringTo(FrontendStage::kTakingOnions);
  ASSERT_FALSE(HasFatalFailure());
  const Bytes onion = client_->Make().submission;
  StuckDisk disk(deployment_.disk(1));
  auto stored = Start([&] { return server::testing::Submit(frontend(), id(), onion).status(); });
  disk.Wait();
  auto served = Start([&] {
    EXPECT_EQ(*frontend().State(id()), wire::OPEN_FOR_ONIONS);
    EXPECT_EQ(frontend().Info(id())->onions(), kSlots);
    EXPECT_EQ(frontend().ListRounds().rounds_size(), 1);
    EXPECT_THAT(client_->Query(Rows()), StatusIs(kRefused, "takes no queries"));
  });
  EXPECT_EQ(served.wait_for(kSoon), std::future_status::ready);
  disk.GoOn();
  SHOAL_EXPECT_OK(stored.get());
  served.get();
  EXPECT_EQ(frontend().Info(id())->onions(), kSlots + 1);
}

class ReservedAnswersTest : public FrontendLifeTest {
 protected:
  static constexpr uint64_t kMemory = 1 << 20;  // plenty for one round
  ReservedAnswersTest() : FrontendLifeTest(kMemory) {}
};

// The answers' memory, on their way back and while clients fetch them, is the round's from the
// announcement of its onions on: other rounds that begin later cannot drive them to the disk.
TEST_F(ReservedAnswersTest, OtherRoundsDoNotTakeTheMemoryOfAnswers) {
  BringTo(FrontendStage::kTakingQueries);
  ASSERT_FALSE(HasFatalFailure());
  SpoolPlace& spools = deployment_.spools();
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Spool others, spools.Create(spools.free_bytes()));
    ASSERT_EQ(spools.free_bytes(), 0u);
    SHOAL_ASSERT_OK(deployment_.RunOnline(id()));
    EXPECT_EQ(spools.file_bytes(), 0u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client_->Fetch());
    for (size_t i = 0; i < kSlots; ++i) {
      EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(Rows()[i])));
    }
    SHOAL_ASSERT_OK(deployment_.EndRound(id()));
  }
  EXPECT_EQ(spools.free_bytes(), kMemory);
}

class AnswersInFilesTest : public FrontendLifeTest {
 protected:
  AnswersInFilesTest() : FrontendLifeTest(/*spool_memory_bytes=*/0) {}
};

// Makes the next read of a file wait until GoOn. Later reads do not wait. Must outlive all reads
// that begin while it lives.
class StuckRead {
 public:
  StuckRead() {
    before_ = [this, finished = finish_.get_future().share()] {
      if (!first_.exchange(false)) return;
      stuck_.set_value();
      finished.wait();
    };
    before_read = &before_;
  }
  ~StuckRead() { before_read = nullptr; }
  // Until somebody reads.
  bool Wait() { return stuck_.get_future().wait_for(kSoon) == std::future_status::ready; }
  void GoOn() { finish_.set_value(); }

 private:
  std::atomic<bool> first_ = true;
  std::promise<void> stuck_, finish_;
  std::function<void()> before_;
};

// One client's answers lie on a part of the disk that is slow. Other clients of the same round get
// theirs meanwhile and are told where the round stands. Closing the round does not wait either, and
// the first client still gets its answers.
TEST_F(AnswersInFilesTest, ASlowReadHoldsUpNobodyElse) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  Client other(&deployment_, *round_);
  SHOAL_ASSERT_OK(other.Obtain(2));
  SHOAL_ASSERT_OK(deployment_.RunOffline(id()));
  SHOAL_ASSERT_OK(client_->Query(Rows()));
  SHOAL_ASSERT_OK(other.Query({17, 4}));
  SHOAL_ASSERT_OK(deployment_.RunOnline(id()));

  StuckRead read;
  auto slow = Start([&] { return client_->Fetch(); });
  EXPECT_TRUE(read.Wait()) << "answers are not read from a file";
  auto fetched = Start([&] { return other.Fetch(); });
  EXPECT_EQ(fetched.wait_for(kSoon), std::future_status::ready);
  auto served = Start([&] {
    EXPECT_EQ(*frontend().State(id()), wire::ANSWERED);
    EXPECT_EQ(frontend().ListRounds().rounds_size(), 1);
    SHOAL_EXPECT_OK(deployment_.EndRound(id()));
    EXPECT_EQ(*frontend().State(id()), wire::CLOSED);
  });
  EXPECT_EQ(served.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(slow.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  read.GoOn();
  served.get();
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> others, fetched.get());
  EXPECT_TRUE(std::ranges::equal(others[0], deployment_.Answer(17)));
  EXPECT_TRUE(std::ranges::equal(others[1], deployment_.Answer(4)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, slow.get());
  for (size_t i = 0; i < kSlots; ++i) {
    EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(Rows()[i])));
  }
}

// A client that is fetching answers when the round ends gets all of them or hears that the round is
// over. It never gets half of them or hears that a token is wrong.
TEST_F(AnswersInFilesTest, AFetchEndsWellWhenItsRoundEnds) {
  for (int i = 0; i < 10; ++i) {
    BringTo(FrontendStage::kAnswered);
    ASSERT_FALSE(HasFatalFailure());
    const wire::FetchAnswersRequest request = client_->AnswersRequest();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto right, frontend().FetchAnswers(request));
    std::atomic<int> fetches = 0;
    std::vector<std::future<absl::Status>> fetching;
    for (int t = 0; t < 3; ++t) {
      fetching.push_back(Start([&]() -> absl::Status {
        for (;;) {
          SHOAL_ASSIGN_OR_RETURN(const auto answers, frontend().FetchAnswers(request));
          EXPECT_EQ(answers.answers(), right.answers());
          ++fetches;
        }
      }));
    }
    EXPECT_TRUE(::shoal::testing::Soon([&] { return fetches >= 10; }));
    SHOAL_EXPECT_OK(deployment_.EndRound(id()));
    for (auto& last : fetching) {
      EXPECT_THAT(last.get(), StatusIs(kRefused, "the round is CLOSED"));
    }
  }
}

}  // namespace
}  // namespace shoal::sim
