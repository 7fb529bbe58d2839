// MachineControl at all machines of a first party in one process: real parties, frontends and
// steps, and queues in place of the party's network. Whole rounds with their stages are in
// party_chain_test.cc.
#include "src/shoald/machine_control.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/cli/exit_code.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/machines/testing/round_clusters.h"
#include "src/machines/transport.h"
#include "src/round/header.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/server/party.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/memory_journal.h"

namespace shoal::shoald {
namespace {

using machines::Machines;
using machines::testing::LocalCluster;
using machines::testing::RoundClusters;
using server::Party;
using ::shoal::testing::Soon;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
using namespace std::chrono_literals;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

constexpr server::RoundPlan kPlan = {.onions_window_s = 3600,
                                     .queries_window_s = 3600,
                                     .answers_window_s = 3600,
                                     .block_percent = 100};

// A first party of so many machines, and a second one of one machine behind it.
class Job {
 public:
  // The chunk of this number from machine 1 to the head has a bit flipped on its way.
  explicit Job(uint32_t count, std::optional<uint64_t> altered = std::nullopt,
               std::chrono::milliseconds heard_within = 100s)
      : count_(count),
        heard_within_(heard_within),
        world_({.rows = 6}, {count, 1}),
        control_(count),
        rounds_(count) {
    world_.clock().passes = true;  // what machines show waits for the moment that all are told
    backend_journal_ = std::make_unique<server::testing::MemoryJournal>(&backend_disk_);
    backend_ = *Party::Create(
        {.number = PartyNumber(2), .roster = world_.roster(), .table = world_.Epoch(1, 2)},
        world_.key(2), backend_journal_.get(), &backend_random_, &world_.clock(),
        world_.resources());
    backend_node_ = std::make_unique<server::ChainNode>(backend_.get(), nullptr);
    for (uint32_t rank = 0; rank < count; ++rank) {
      machines_.push_back(std::make_unique<Machine>(rank));
    }
    if (altered.has_value()) control_.Break(LocalCluster::Fault::kCorrupt, 1, 0, *altered);
    for (uint32_t rank = 0; rank < count; ++rank) Start(rank);
    steps.emplace(machines_[0]->frontend.get(), &*machines_[0]->own, machines_[0]->control.get());
  }
  // As a process ends that is told to, or whose control has ended.
  ~Job() {
    for (const auto& machine : machines_) machine->party->EndAll();
    EXPECT_TRUE(stopped_ || machines_[0]->control == nullptr || !ended(0).ok());
    for (const auto& machine : machines_) machine->control.reset();
  }

  Party& party(uint32_t rank) { return *machines_[rank]->party; }
  server::Frontend& frontend(uint32_t rank) { return *machines_[rank]->frontend; }
  MachineControl& control(uint32_t rank) { return *machines_[rank]->control; }
  uint32_t count() const { return count_; }
  server::testing::World& world() { return world_; }
  // The machine has an error of its own.
  void GiveUp(uint32_t rank) { machines_[rank]->control_machines->GiveUp(); }
  // From now on nothing comes to the head from another machine.
  void CutOff(uint32_t rank) { control_.Break(LocalCluster::Fault::kWithholdChunks, rank, 0, 0); }
  // How often it has been called that control has ended, once nothing calls it any more.
  int TimesEnded(uint32_t rank) {
    party(rank).EndAll();
    machines_[rank]->control.reset();
    return machines_[rank]->ended;
  }
  // As AwaitEnd does, of control that has ended.
  absl::Status ended(uint32_t rank) { return control(rank).AwaitEnd(100s); }

  absl::StatusOr<round::Round> Announce() {
    // As the program does, which has no driver before.
    SHOAL_RETURN_IF_ERROR(control(0).AwaitAll());
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundHeader draft, frontend(0).NewDraft());
    SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header,
                           machines_[0]->node->Propose(draft, frontend(0).Live()));
    return round::Round::Verify(header, world_.roster(), party(0).table()->facts,
                                world_.clock().NowSeconds());
  }
  absl::Status TakeAtBackend(uint64_t epoch) { return backend_->TakeEpoch(world_.Epoch(epoch, 2)); }
  // Waits until clients of this machine are shown the state.
  absl::Status Shown(uint32_t rank, const Digest& id, wire::RoundState state) {
    return control(rank).WaitUntilShown(id, state);
  }
  absl::Status Stop() {
    stopped_ = true;
    return control(0).Stop();
  }
  std::optional<AllSteps> steps;

 private:
  struct Machine {
    explicit Machine(uint32_t rank) : random(rank + 1), control_random(rank + 101) {}
    TestRandom random, control_random;
    server::testing::Disk disk;
    std::unique_ptr<server::testing::MemoryJournal> journal;
    LocalCluster::Joined link;
    std::unique_ptr<Machines> control_machines;
    std::atomic<int> ended = 0;
    std::unique_ptr<Party> party;
    std::unique_ptr<server::ChainNode> node;
    std::unique_ptr<server::Frontend> frontend;
    std::optional<OwnSteps> own;
    std::unique_ptr<MachineControl> control;
  };

  void Start(uint32_t rank) {
    Machine& self = *machines_[rank];
    self.journal = std::make_unique<server::testing::MemoryJournal>(&self.disk);
    Party::Options options{
        .number = PartyNumber(1), .roster = world_.roster(), .table = world_.Epoch(1, 1)};
    options.machines = {
        .rank = rank,
        .count = count_,
        .join = [this, rank](uint32_t,
                             const Digest& id) -> absl::StatusOr<std::shared_ptr<Machines>> {
          if (rank == refuses) return absl::ResourceExhaustedError("this machine has no room");
          return rounds_.Join(rank, id);
        }};
    if (rank == 0) {
      options.machines.opened = [&self](const server::RoundOpening& opening) {
        self.control->Opened(opening);
      };
      options.machines.ready = [&self](uint64_t epoch) { return self.control->ReadyFor(epoch); };
      options.machines.ended = [&self](const Digest& id) { self.control->Ended(id); };
    }
    const server::Resources resources = world_.resources();
    self.party = rank == 0 ? *Party::Create(std::move(options), world_.key(1), self.journal.get(),
                                            &self.random, &world_.clock(), resources)
                           : *Party::CreateOther(std::move(options), &self.random, &world_.clock(),
                                                 resources);
    self.node = std::make_unique<server::ChainNode>(self.party.get(), backend_node_.get());
    self.frontend =
        *server::Frontend::Create(kPlan, self.party.get(), self.journal.get(), &world_.clock(),
                                  resources, {.rank = rank, .count = count_});
    self.own.emplace(self.frontend.get(), self.node.get());
    self.link = control_.Join(rank);
    self.control_machines =
        std::make_unique<Machines>(self.link.transport.get(), RoundClusters::Key({}),
                                   self.link.clock, &self.control_random, control_.options());
    self.control = std::make_unique<MachineControl>(
        self.control_machines.get(), MachineControl::Options{.party = self.party.get(),
                                                             .clock = &world_.clock(),
                                                             .frontend = self.frontend.get(),
                                                             .own = &*self.own,
                                                             .ended = [&self] { ++self.ended; },
                                                             .period = 10ms,
                                                             .heard_within = heard_within_});
  }

  const uint32_t count_;
  const std::chrono::milliseconds heard_within_;
  server::testing::World world_;
  TestRandom backend_random_{99};
  server::testing::Disk backend_disk_;
  std::unique_ptr<server::testing::MemoryJournal> backend_journal_;
  std::unique_ptr<Party> backend_;
  std::unique_ptr<server::ChainNode> backend_node_;
  LocalCluster control_;
  RoundClusters rounds_;
  std::vector<std::unique_ptr<Machine>> machines_;
  bool stopped_ = false;

 public:
  std::atomic<uint32_t> refuses = ~0u;  // the machine that can join no round
};

// A client of each machine has a slot; what each counts comes to the head, and all are shown what
// the head has decided. The round is sealed at all of them, and ends at all of them.
TEST(MachineControlTest, ARoundIsOpenedSealedAndEndedAtAllMachines) {
  for (const uint32_t count : {2u, 3u}) {
    SCOPED_TRACE(count);
    Job job(count);
    for (uint32_t rank = 0; rank < count; ++rank) SHOAL_ASSERT_OK(job.control(rank).AwaitAll());
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, job.Announce());
    SHOAL_ASSERT_OK(job.steps->Open(round));
    for (uint32_t rank = 0; rank < count; ++rank) {
      EXPECT_EQ(job.party(rank).open_rounds(), 1u);
      SHOAL_ASSERT_OK(job.Shown(rank, round.id(), wire::OPEN_FOR_ONIONS));
      server::testing::Client client(&job.world(), round, std::nullopt, &job.frontend(rank));
      SHOAL_ASSERT_OK(client.Obtain(rank + 1));
    }
    SHOAL_ASSERT_OK(job.frontend(0).Decide(round.id(), wire::SEALED));
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t onions, job.steps->Seal(round.id()));
    EXPECT_EQ(onions, count * (count + 1) / 2);
    for (uint32_t rank = 0; rank < count; ++rank) {
      SHOAL_EXPECT_OK(job.Shown(rank, round.id(), wire::SEALED));
    }
    SHOAL_EXPECT_OK(job.party(0).End(round.id()));
    // After that no order is under way.
    SHOAL_EXPECT_OK(job.Stop());
    for (uint32_t rank = 0; rank < count; ++rank) {
      SHOAL_EXPECT_OK(job.ended(rank));
      EXPECT_EQ(job.party(rank).open_rounds(), 0u);
      EXPECT_EQ(job.TimesEnded(rank), 1);
    }
  }
}

// One machine cannot open the round: it ends everywhere, and the next one is opened.
TEST(MachineControlTest, ARoundThatOneMachineRefusesEndsAtAll) {
  Job job(3);
  job.refuses = 2;
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round refused, job.Announce());
  EXPECT_FALSE(job.steps->Open(refused).ok());
  // By the head's own thread (Control::Options::failed), and then by its orders.
  for (uint32_t rank = 0; rank < job.count(); ++rank) {
    EXPECT_TRUE(Soon([&] { return job.party(rank).open_rounds() == 0; }));
  }
  job.refuses = ~0u;
  job.frontend(0).Abort(refused.id(), "refused");
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round next, job.Announce());
  SHOAL_ASSERT_OK(job.steps->Open(next));
  for (uint32_t rank = 0; rank < job.count(); ++rank) {
    EXPECT_EQ(job.party(rank).open_rounds(), 1u);
  }
  job.party(0).EndAll();
  SHOAL_EXPECT_OK(job.Stop());
}

// A machine is cut off from the head. Rounds could only fail until the job ends, long after that,
// and each would cost its clients an attempt: so the head drafts none.
TEST(MachineControlTest, NoRoundIsDraftedWhileTheMachinesDoNotHearEachOther) {
  Job job(2, std::nullopt, 3s);
  SHOAL_ASSERT_OK(job.control(0).AwaitAll());
  job.CutOff(1);
  ASSERT_TRUE(Soon([&] { return !job.control(0).ReadyFor(1).ok(); }));
  EXPECT_THAT(job.Announce(), StatusIs(kUnavailable, "do not hear each other"));
  job.GiveUp(1);
  EXPECT_THAT(job.ended(0), StatusIs(kUnavailable, ""));
}

// The head takes the next epoch of the table when all others have it, and these open rounds of the
// earlier one until then and for a while after: no round is lost, whoever takes it first.
TEST(MachineControlTest, NoRoundIsLostWhileMachinesTakeTheNextEpoch) {
  Job job(3);
  SHOAL_ASSERT_OK(job.control(0).AwaitAll());
  const uint64_t next = job.world().MakeEpoch(6, job.world().table().row_bytes);
  const auto take = [&](uint32_t rank) {
    return job.party(rank).TakeEpoch(job.world().Epoch(next, 1));
  };
  const auto open = [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(const round::Round round, job.Announce());
    const absl::Status opened = job.steps->Open(round);
    job.party(0).End(round.id()).IgnoreError();
    return opened;
  };
  SHOAL_ASSERT_OK(take(2));
  std::atomic<bool> done = false;
  auto taken = std::async(std::launch::async, [&]() -> absl::Status {
    const absl::Status all = job.control(0).AwaitEpoch(next, [] { return false; });
    done = true;
    return all.ok() ? take(0) : all;
  });
  // Machine 2 has it, machine 1 does not.
  for (int i = 0; i < 5; ++i) SHOAL_EXPECT_OK(open());
  EXPECT_FALSE(done);
  EXPECT_EQ(job.party(2).OpenableEpochs(), (std::vector<uint64_t>{1, next}));
  SHOAL_ASSERT_OK(take(1));
  SHOAL_EXPECT_OK(taken.get());
  // Of the newer epoch now; the second party has it, too.
  SHOAL_ASSERT_OK(job.TakeAtBackend(next));
  SHOAL_EXPECT_OK(open());
  EXPECT_EQ(job.party(0).OpenableEpochs(), std::vector<uint64_t>{next});
  SHOAL_EXPECT_OK(job.Stop());
}

// A head that has an epoch which another machine lacks, as after a start from other files, signs
// nothing until that machine has it, and says where it is missing.
TEST(MachineControlTest, NoRoundIsDraftedOfAnEpochThatAMachineLacks) {
  Job job(3);
  SHOAL_ASSERT_OK(job.control(0).AwaitAll());
  const uint64_t next = job.world().MakeEpoch(6, job.world().table().row_bytes);
  for (const uint32_t rank : {0u, 1u}) {
    SHOAL_ASSERT_OK(job.party(rank).TakeEpoch(job.world().Epoch(next, 1)));
  }
  SHOAL_ASSERT_OK(job.TakeAtBackend(next));
  // Once machine 1 has said so.
  ASSERT_TRUE(Soon(
      [&] { return absl::StrContains(job.control(0).ReadyFor(next).message(), "machine 2"); }));
  EXPECT_THAT(job.Announce(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       "machine 2 of the party does not have epoch 2 of the table, "
                                       "but epoch 1: put the same table there"));
  EXPECT_EQ(job.party(0).open_rounds(), 0u);
  std::atomic<bool> cancelled = false;
  auto waiting = std::async(std::launch::async, [&] {
    return job.control(0).AwaitEpoch(next, [&] { return cancelled.load(); });
  });
  cancelled = true;
  EXPECT_THAT(waiting.get(), StatusIs(absl::StatusCode::kCancelled, "machine 2"));
  SHOAL_ASSERT_OK(job.party(2).TakeEpoch(job.world().Epoch(next, 1)));
  SHOAL_EXPECT_OK(job.control(0).AwaitEpoch(next, [] { return false; }));
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, job.Announce());
  SHOAL_EXPECT_OK(job.steps->Open(round));
  job.party(0).EndAll();
  SHOAL_EXPECT_OK(job.Stop());
}

// While threads still end rounds, the head stops: that waits for the last of them, and no machine
// has a round then.
TEST(MachineControlTest, StopWaitsForRoundsThatEnd) {
  for (int i = 0; i < 10; ++i) {
    Job job(2);
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round first, job.Announce());
    SHOAL_ASSERT_OK(job.steps->Open(first));
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round second, job.Announce());
    SHOAL_ASSERT_OK(job.steps->Open(second));
    const auto stopped = std::async(std::launch::async, [&job] { return job.Stop(); });
    const auto ending =
        std::async(std::launch::async, [&] { job.party(0).End(first.id()).IgnoreError(); });
    std::this_thread::yield();
    job.party(0).EndAll();
    ending.wait();
    stopped.wait();
    SHOAL_EXPECT_OK(job.ended(0));
    SHOAL_EXPECT_OK(job.ended(1));
    EXPECT_EQ(job.party(1).open_rounds(), 0u);
  }
}

// Any machine that gives up, before any step, ends control at all of them, for each once, and with
// an error after which a process is started again. No step waits for it.
TEST(MachineControlTest, AMachineThatGivesUpAtAnyStepEndsAll) {
  for (const uint32_t which : {0u, 1u}) {
    for (size_t at = 0; at < 5; ++at) {
      SCOPED_TRACE(absl::StrCat("machine ", which, ", step ", at));
      Job job(2);
      std::optional<round::Round> round;
      const std::vector<std::function<absl::Status()>> steps = {
          [&] { return job.control(0).AwaitAll(); },
          [&]() -> absl::Status {
            SHOAL_ASSIGN_OR_RETURN(round, job.Announce());
            return job.steps->Open(*round);
          },
          [&]() -> absl::Status {
            server::testing::Client client(&job.world(), *round, std::nullopt, &job.frontend(1));
            SHOAL_RETURN_IF_ERROR(job.Shown(1, round->id(), wire::OPEN_FOR_ONIONS));
            SHOAL_RETURN_IF_ERROR(client.Obtain(1));
            SHOAL_RETURN_IF_ERROR(job.frontend(0).Decide(round->id(), wire::SEALED));
            return job.Shown(0, round->id(), wire::SEALED);
          },
          [&] { return job.steps->Seal(round->id()).status(); },
          [&]() -> absl::Status {
            job.party(0).EndAll();
            return job.Stop();
          }};
      for (size_t step = 0; step < at; ++step) SHOAL_ASSERT_OK(steps[step]());
      job.GiveUp(which);
      for (uint32_t rank = 0; rank < 2; ++rank) {
        EXPECT_THAT(job.ended(rank), StatusIs(kUnavailable, ""));
      }
      // Its first tick may have come before. A state that nobody tells is waited for 10 s.
      if (at != 0 && at != 2) {
        EXPECT_THAT(steps[at](), StatusIs(kUnavailable, ""));
      }
      for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(job.TimesEnded(rank), 1);
    }
  }
}

// A byte is altered on its way between the machines: no error that keeps a service manager from
// starting the party again.
TEST(MachineControlTest, AnAlteredByteIsNoReasonNotToStartAgain) {
  Job job(2, 5);
  for (const uint32_t rank : {0u, 1u}) {
    const absl::Status why = job.ended(rank);
    EXPECT_THAT(why, StatusIs(kUnavailable, ""));
    EXPECT_EQ(cli::ExitCodeOf(why), cli::kExitFailed);
  }
}

// The links of machine 0 to another one of which nothing ever comes. Each wait for it takes a
// second of this clock.
class Silence final : public MachineJob, public Clock {
 public:
  uint32_t rank() const override { return 0; }
  uint32_t count() const override { return 2; }
  const Digest& id() const override { return id_; }
  absl::StatusOr<std::unique_ptr<machines::Transport>> OpenLane(uint32_t) override {
    return std::make_unique<Lane>(this);
  }
  absl::Status Leave() override { return absl::OkStatus(); }
  uint64_t NowSeconds() const override { return now_s_; }
  uint64_t SteadyMilliseconds() const override { return now_s_ * 1000; }

 private:
  class Lane final : public machines::Transport {
   public:
    explicit Lane(Silence* silence) : silence_(silence) {}
    uint32_t rank() const override { return 0; }
    uint32_t count() const override { return 2; }
    absl::StatusOr<bool> TrySend(uint32_t, BytesView) override { return true; }
    absl::StatusOr<std::optional<Bytes>> TryReceive(uint32_t) override { return std::nullopt; }
    void Wait() override { ++silence_->now_s_; }
    void SendSign(uint32_t, BytesView) override {}
    std::optional<Bytes> TakeSign(uint32_t) override { return std::nullopt; }
    void Abort() override {}

   private:
    Silence* const silence_;
  };

  const Digest id_ = {};
  std::atomic<uint64_t> now_s_ = 1000;
};

// The limit of the configuration is that of control and of each round: a machine of which nothing
// comes is waited for so long and no longer.
TEST(MachineLinksTest, ControlAndRoundsGiveUpAfterTheLimitOfProgress) {
  for (const uint64_t limit_s : {15, 47}) {
    Silence silence;
    TestRandom random(5);
    MachineLinks links(&silence, random.NewSeed(), &silence, &random, limit_s);
    for (const uint32_t number : {0u, 1u, 2u}) {
      const Digest round_id = {static_cast<uint8_t>(number)};
      SHOAL_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Machines> joined,
                                 number == 0 ? links.JoinControl() : links.Join(number, round_id));
      const uint64_t began_s = silence.NowSeconds();
      EXPECT_THAT(joined->Gather("anything", {}, 0).status(),
                  StatusIs(absl::StatusCode::kDeadlineExceeded,
                           absl::StrCat("from machine 1 for ", limit_s, " s")));
      EXPECT_EQ(silence.NowSeconds() - began_s, limit_s + 1);
    }
  }
}

// How CallRoll ends at two machines with these secrets; `altered`: a byte of the head's greeting.
std::vector<absl::Status> RollOf(uint8_t first, uint8_t second,
                                 std::optional<uint64_t> altered = std::nullopt) {
  LocalCluster cluster(2);
  if (altered.has_value()) cluster.Break(LocalCluster::Fault::kCorrupt, 0, 1, *altered);
  std::vector<absl::Status> ended(2);
  std::vector<TestRandom> randoms;
  std::vector<LocalCluster::Joined> links;
  std::vector<std::unique_ptr<Machines>> machines;
  for (const uint32_t rank : {0u, 1u}) {
    randoms.emplace_back(rank + 1);
    links.push_back(cluster.Join(rank));
  }
  for (const uint32_t rank : {0u, 1u}) {
    const Bytes secret(32, rank == 0 ? first : second);
    Machines::Options options = cluster.options();
    options.secret_name = machines::SecretName(secret);
    machines.push_back(std::make_unique<Machines>(links[rank].transport.get(),
                                                  machines::RoundKey(secret, {}, {}),
                                                  links[rank].clock, &randoms[rank], options));
  }
  std::vector<std::thread> threads;
  for (const uint32_t rank : {0u, 1u}) {
    threads.emplace_back([&, rank] { ended[rank] = CallRoll(*machines[rank], "/keys"); });
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

// To start again is no help then, and the program says so by its exit code (configs/
// shoald-machines.service has no restart for it). A byte that was altered is another matter.
TEST(CallRollTest, AnotherSecretIsAReasonNotToStartAgain) {
  for (const absl::Status& ended : RollOf(3, 3)) SHOAL_EXPECT_OK(ended);
  int known = 0;
  for (const absl::Status& ended : RollOf(3, 4)) {
    // The other one may have ended before.
    if (absl::IsUnavailable(ended)) continue;
    ++known;
    EXPECT_THAT(ended, StatusIs(absl::StatusCode::kUnauthenticated,
                                "/keys/machines.key: roll call: machine "));
    EXPECT_THAT(ended, StatusIs(absl::StatusCode::kUnauthenticated,
                                " has another secret than this machine, "));
    EXPECT_THAT(ended, StatusIs(absl::StatusCode::kUnauthenticated, "`shoal keys machine`"));
    EXPECT_EQ(cli::ExitCodeOf(ended), cli::kExitVerification);
  }
  EXPECT_GT(known, 0);
  for (const absl::Status& ended : RollOf(3, 3, 0)) {
    EXPECT_THAT(ended, StatusIs(kUnavailable, ""));
    EXPECT_EQ(cli::ExitCodeOf(ended), cli::kExitFailed);
  }
}

}  // namespace
}  // namespace shoal::shoald
