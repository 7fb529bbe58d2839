// The frontends of party 1 on one to three machines, and the steps that the head orders, over a
// control in this process that passes the calls between them.
#include "src/shoald/round_steps.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/address_block.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/onion/onion.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/memory_journal.h"
#include "src/sharing/sharing.h"
#include "src/shoald/driver.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using server::Action;
using server::Counts;
using server::Frontend;
using server::FrontendMachine;
using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using namespace std::chrono_literals;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

Origin BlockOf(uint8_t last) { return AddressBlock(MappedIpv4({192, 0, 2, last})); }

// Gives another machine of party 1 the secrets that the head's party has drawn for a round.
class RootSource final : public RandomSource {
 public:
  void Fill(MutableBytes out) override {
    SHOAL_CHECK(out.size() == root.view().size());
    std::ranges::copy(root.view(), out.begin());
  }
  Seed root;
};

// What stands behind a machine that is not the head: takes a list, and answers queries with zeros.
class StandInChain final : public server::Link {
 public:
  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader&,
                                             const wire::SignedLiveRounds&) override {
    return absl::UnimplementedError("the head's");
  }
  absl::Status Offline(const wire::SignedHeader& header, const server::OwnRun&,
                       std::unique_ptr<ByteSource> onions) override {
    SHOAL_ASSIGN_OR_RETURN(const Bytes list, ReadAll(*onions));
    positions_ = list.size() / onion::OnionBytes(2);
    answer_bytes_ = round::TaggedAnswerBytes(header.header());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<server::PartedSource>> Online(
      const Digest&, const server::OwnRun&, server::QueriesOut queries) override {
    ++tries;
    if (before_online) SHOAL_RETURN_IF_ERROR(before_online());
    SHOAL_ASSIGN_OR_RETURN(
        const wire::QueryBatch batch,
        wire::DecodeQueryBatch(std::get<Bytes>(queries), static_cast<uint32_t>(positions_)));
    return std::make_unique<server::OnePart>(
        std::make_unique<BytesSource>(Bytes(batch.positions.size() * answer_bytes_)));
  }
  absl::StatusOr<server::StageReports> Reports(const Digest&) override {
    return server::StageReports();
  }
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds&) override {
    return server::ListAnswer();
  }

  std::function<absl::Status()> before_online;
  std::atomic<int> tries = 0;

 private:
  uint64_t positions_ = 0, answer_bytes_ = 0;
};

// Party 1 on several machines. The head is party 1 of a deployment, with the chain behind it. Each
// other machine has a party of its own, with the same secrets of every round, over a stand-in for
// the chain. This object is the control between them.
class Machines final : public Orders {
 public:
  Machines(uint32_t count, const server::RoundPlan& plan)
      : deployment({.rows = 10, .plan = plan}), plan_(plan), disks_(count), late_ticks(count, 0) {
    deployment.tamper(1).signed_back = [this](wire::SignedHeader& header) {
      const MutexLock lock(mutex_);
      from_next_ = header;
    };
    for (uint32_t rank = 0; rank < count; ++rank) disks_[rank] = std::make_unique<Disk>();
    Start();
  }

  // All processes end, and start again over what is on their disks.
  void Restart() {
    all_.reset();
    machines_.clear();
    {
      const MutexLock lock(mutex_);
      on_their_way_.clear();
    }
    deployment.Restart(1);
    Start();
  }

  uint32_t count() const { return static_cast<uint32_t>(machines_.size()); }
  Frontend& frontend(uint32_t rank) { return *machines_[rank]->frontend; }
  OwnSteps& own(uint32_t rank) { return *machines_[rank]->steps; }
  StandInChain& chain(uint32_t rank) { return machines_[rank]->chain; }
  server::testing::Disk& disk(uint32_t rank) { return disks_[rank]->frontend; }
  RoundSteps& steps() { return count() == 1 ? static_cast<RoundSteps&>(own(0)) : *all_; }

  // --- the control ---

  // A quarter of a second passes, and what the machines say reaches the others. Shown two ticks
  // later, by machines that hear of it up to as much later, too.
  void Tick() {
    const MutexLock lock(mutex_);
    ticks_ += 1;
    deployment.clock().steady_ms += tick_ms;
    const uint64_t now_ms = deployment.clock().SteadyMilliseconds();
    if (count() > 1) {
      for (const Digest& id : frontend(0).OpenRounds()) TakeCounts(id);
      for (server::Told& told : frontend(0).Tell(3000)) {
        for (uint32_t rank = 0; rank < count(); ++rank) {
          on_their_way_.push_back({rank, ticks_ + late_ticks[rank], now_ms + 2 * tick_ms, told});
        }
      }
      if (frontend(0).HasToldBefore()) {
        for (uint32_t rank = 0; rank < count(); ++rank) {
          on_their_way_.push_back({rank, ticks_ + late_ticks[rank], now_ms + 2 * tick_ms, {}});
        }
      }
      std::erase_if(on_their_way_, [this](const Message& message) {
        if (message.due_tick > ticks_) return false;
        if (message.told.has_value()) {
          frontend(message.rank).Show(*message.told, message.from_ms);
        } else {
          frontend(message.rank).BeforeIsTold(message.from_ms);
        }
        return true;
      });
    }
    if (all_show_the_same) ExpectAllShowTheSame();
  }
  void Ticks(int n) {
    for (int i = 0; i < n; ++i) Tick();
  }

  absl::Status OpenAtAll(const round::Round& round,
                         const std::function<absl::Status()>& own_step) override {
    return AtAll(round.id(), own_step, [&](uint32_t rank) -> absl::Status {
      Machine& machine = *machines_[rank];
      wire::SignedHeader from_next;
      {
        const MutexLock lock(mutex_);
        from_next = from_next_;
      }
      wire::RoundHeader draft = from_next.header();
      draft.clear_onion_keys();
      machine.random.root = deployment.Root(1);
      SHOAL_RETURN_IF_ERROR(machine.party->ExtendDraft(draft).status());
      SHOAL_RETURN_IF_ERROR(machine.party->SignHeader(from_next).status());
      if (!fails_to_open.ok()) return fails_to_open;
      return machine.steps->Open(round);
    });
  }
  absl::Status DoAtAll(const Digest& round_id, wire::RoundStep step, uint64_t attempt,
                       const std::function<absl::Status()>& own_step) override {
    if (attempt > 0) {
      EXPECT_GT(attempt, last_attempt.exchange(attempt));
    }
    EXPECT_EQ(attempt > 0, step == wire::RUN_OFFLINE || step == wire::RUN_ONLINE);
    return AtAll(round_id, own_step, [&](uint32_t rank) {
      return machines_[rank]->steps->Do(round_id, step, attempt);
    });
  }
  absl::Status WaitUntilShown(const Digest& round_id, wire::RoundState state) override {
    for (;;) {
      SHOAL_ASSIGN_OR_RETURN(const wire::RoundState shown, frontend(0).State(round_id));
      if (shown >= state) return absl::OkStatus();
      Tick();
    }
  }

  // --- the driver's steps ---

  absl::StatusOr<round::Round> Announce() {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundHeader draft, frontend(0).NewDraft());
    SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header,
                           deployment.node(1).Propose(draft, frontend(0).Live()));
    SHOAL_ASSIGN_OR_RETURN(round::Round round,
                           round::Round::Verify(header, deployment.roster(), deployment.table(),
                                                deployment.clock().NowSeconds()));
    SHOAL_RETURN_IF_ERROR(steps().Open(round));
    return round;
  }
  // A round that all clients are shown.
  round::Round Begin() {
    absl::StatusOr<round::Round> round = Announce();
    SHOAL_CHECK(round.ok());
    Ticks(3);
    return *std::move(round);
  }
  absl::StatusOr<uint64_t> Seal(const Digest& id) {
    SHOAL_RETURN_IF_ERROR(frontend(0).Decide(id, wire::SEALED));
    return steps().Seal(id);
  }
  absl::Status RunOffline(const Digest& id) {
    SHOAL_RETURN_IF_ERROR(Seal(id).status());
    SHOAL_RETURN_IF_ERROR(steps().Offline(id));
    return steps().OpenForQueries(id, Reports(id));
  }
  absl::StatusOr<uint64_t> CloseQueries(const Digest& id) {
    SHOAL_RETURN_IF_ERROR(frontend(0).Decide(id, wire::ANSWERING));
    return steps().CloseQueries(id);
  }
  absl::Status Online(const Digest& id) {
    return steps().Online(id, [this, &id] { return Reports(id); });
  }
  // What the parties report. Those of several machines report totals
  // (PartyChainTest.ReportsAreOfTheWholeParty). Here each machine is a party of its own, and the
  // parties behind it get the head's clients alone, so that the numbers are made up from what all
  // clients have; the length of party 1's queries follows from what each machine's have.
  server::StageReports Reports(const Digest& id) {
    server::StageReports reports = *deployment.node(1).Reports(id);
    if (count() == 1) return reports;
    const server::Counts totals = *frontend(0).Totals(id);
    uint64_t query_bytes = 0;
    for (uint32_t rank = 0; rank < count(); ++rank) {
      query_bytes +=
          wire::MaxQueryBatchBytes(static_cast<uint32_t>(frontend(rank).Own(id)->onions));
    }
    for (wire::StageReport& report : reports) {
      const bool takes_queries = report.party() == 1 && report.stage() == "online";
      report.set_positions_in(totals.onions);
      report.set_positions_out(totals.onions + 200);
      report.set_noise_queries(200);
      report.set_bytes_in(takes_queries ? query_bytes : 80 * totals.onions);
      report.set_bytes_out(100 * totals.onions);
    }
    return reports;
  }

  // What is due, but the next announcement.
  std::vector<Action> Due() {
    std::vector<Action> actions;
    for (const server::Due& due : frontend(0).WhatIsDue()) {
      if (due.action != Action::kAnnounce) actions.push_back(due.action);
    }
    return actions;
  }

  void ExpectAllShowTheSame() {
    const auto shown = [&](uint32_t rank) {
      std::string all = frontend(rank).ListRounds().SerializeAsString();
      for (const wire::RoundReport& report : frontend(rank).Reports()) {
        all += report.SerializeAsString();
      }
      return all;
    };
    for (uint32_t rank = 1; rank < count(); ++rank) {
      EXPECT_EQ(shown(rank), shown(0)) << "machine " << rank << ", tick " << ticks_;
    }
  }

  server::testing::Deployment deployment;

 private:
  struct Disk {
    server::testing::Disk frontend, party;
  };
  struct Machine {
    std::unique_ptr<server::testing::MemoryJournal> journal, party_journal;
    RootSource random;
    StandInChain chain;
    std::unique_ptr<server::Party> party;     // null at the head
    std::unique_ptr<server::ChainNode> node;  // null at the head
    std::unique_ptr<Frontend> frontend;
    std::unique_ptr<OwnSteps> steps;
  };
  struct Message {
    uint32_t rank;
    uint64_t due_tick, from_ms;
    std::optional<server::Told> told;  // none: all rounds of before are
  };

  void Start() {
    const auto count = static_cast<uint32_t>(disks_.size());
    const server::Resources resources{.pool = &pool_, .spools = &deployment.spools()};
    for (uint32_t rank = 0; rank < count; ++rank) {
      auto machine = std::make_unique<Machine>();
      machine->journal = std::make_unique<server::testing::MemoryJournal>(&disks_[rank]->frontend);
      server::Party* party = &deployment.party(1);
      server::ChainNode* node = &deployment.node(1);
      if (rank > 0) {
        machine->party_journal =
            std::make_unique<server::testing::MemoryJournal>(&disks_[rank]->party);
        machine->party = *server::Party::Create({.number = PartyNumber(1),
                                                 .roster = deployment.roster(),
                                                 .table = deployment.Epoch(1, 1)},
                                                deployment.key(1), machine->party_journal.get(),
                                                &machine->random, &deployment.clock(), resources);
        machine->node = std::make_unique<server::ChainNode>(machine->party.get(), &machine->chain);
        party = machine->party.get();
        node = machine->node.get();
      }
      machine->frontend = *Frontend::Create(plan_, party, machine->journal.get(),
                                            &deployment.clock(), resources, {rank, count});
      machine->steps = std::make_unique<OwnSteps>(machine->frontend.get(), node);
      machines_.push_back(std::move(machine));
    }
    all_.emplace(machines_[0]->frontend.get(), machines_[0]->steps.get(), this);
  }

  void TakeCounts(const Digest& round_id) {
    const MutexLock lock(counts_mutex_);  // none is overtaken by an older one
    for (uint32_t rank = 1; rank < count(); ++rank) {
      if (const auto own = frontend(rank).Own(round_id); own.ok()) {
        frontend(0).TakeCounts(rank, round_id, *own);
      }
    }
  }

  absl::Status AtAll(const Digest& round_id, const std::function<absl::Status()>& own_step,
                     const std::function<absl::Status(uint32_t rank)>& step) {
    std::vector<std::future<absl::Status>> others;
    for (uint32_t rank = 1; rank < count(); ++rank) {
      others.push_back(std::async(std::launch::async, step, rank));
    }
    absl::Status first = own_step();
    for (std::future<absl::Status>& other : others) first.Update(other.get());
    TakeCounts(round_id);
    return first;
  }

  const server::RoundPlan plan_;
  std::vector<std::unique_ptr<Disk>> disks_;
  ThreadPool pool_{1};
  std::vector<std::unique_ptr<Machine>> machines_;
  std::optional<AllSteps> all_;

  Mutex mutex_, counts_mutex_;
  wire::SignedHeader from_next_ ABSL_GUARDED_BY(mutex_);
  std::vector<Message> on_their_way_ ABSL_GUARDED_BY(mutex_);
  uint64_t ticks_ ABSL_GUARDED_BY(mutex_) = 0;

 public:
  // How many ticks later than the others each machine hears what it is told.
  std::vector<uint64_t> late_ticks;
  bool all_show_the_same = true;  // false if one is later than that
  uint64_t tick_ms = 250;
  std::atomic<uint64_t> last_attempt = 0;
  absl::Status fails_to_open;  // at machines that are not the head
};

// A client of one machine.
class Client {
 public:
  Client(Machines* machines, uint32_t rank, const round::Round& round, Origin from = std::nullopt)
      : frontend_(&machines->frontend(rank)),
        round_(round),
        maker_(&machines->deployment, round),
        from_(std::move(from)) {}

  absl::Status Obtain(size_t count) {
    std::vector<BytesView> submissions;
    const size_t before = secrets_.size();
    for (size_t i = 0; i < count; ++i) secrets_.push_back(maker_.Make());
    for (size_t i = before; i < secrets_.size(); ++i) {
      submissions.push_back(secrets_[i].submission);
    }
    const auto submitted = frontend_->SubmitOnions(round_.id(), submissions, from_);
    if (!submitted.ok()) {
      secrets_.resize(before);
      return submitted.status();
    }
    for (size_t i = 0; i < count; ++i) secrets_[before + i].slot = submitted->first_slots[i];
    return absl::OkStatus();
  }
  // The i-th slot asks for row i.
  absl::Status Query(size_t count) {
    wire::SubmitQueriesRequest request;
    Bytes slots, tallies;
    request.set_round_id(ToString(round_.id()));
    for (size_t i = 0; i < count; ++i) {
      secrets_[i].row = i;
      AppendLe(slots, secrets_[i].slot);
      AppendLe(tallies, secrets_[i].FirstTally(round_.id()));
      request.mutable_tokens()->append(ToString(secrets_[i].token(round_.id())));
    }
    request.set_slots(ToString(slots));
    request.set_tallies(ToString(tallies));
    fetch_.set_round_id(request.round_id());
    fetch_.set_slots(request.slots());
    fetch_.set_tokens(request.tokens());
    return frontend_->SubmitQueries(request).status();
  }
  absl::StatusOr<wire::FetchAnswersResponse> Fetch() const {
    return frontend_->FetchAnswers(fetch_);
  }
  std::vector<server::testing::Secret>& secrets() { return secrets_; }

 private:
  Frontend* const frontend_;
  const round::Round round_;
  server::testing::Client maker_;
  const Origin from_;
  std::vector<server::testing::Secret> secrets_;
  wire::FetchAnswersRequest fetch_;
};

constexpr server::RoundPlan kPlan = {.onions_window_s = 3600,
                                     .queries_window_s = 3600,
                                     .answers_window_s = 3600,
                                     .block_percent = 100};

class FrontendMachinesTest : public ::testing::Test {
 protected:
  void Use(uint32_t count, const server::RoundPlan& plan = kPlan) {
    machines_ = std::make_unique<Machines>(count, plan);
  }
  Machines& machines() { return *machines_; }
  Frontend& frontend(uint32_t rank) { return machines_->frontend(rank); }
  wire::RoundState Shown(const round::Round& round, uint32_t rank) {
    return frontend(rank).State(round.id()).value_or(wire::ROUND_STATE_UNSPECIFIED);
  }
  void ExpectAll(const round::Round& round, wire::RoundState state) {
    for (uint32_t rank = 0; rank < machines().count(); ++rank) {
      EXPECT_EQ(Shown(round, rank), state) << rank;
    }
  }

  std::unique_ptr<Machines> machines_;
};

// A whole round, on one machine and on several, one of which hears everything two ticks late. At
// every tick all show the same states, totals and costs (Tick).
TEST_F(FrontendMachinesTest, AllShowTheSameInEveryTickOfARound) {
  for (const uint32_t count : {1u, 2u, 3u}) {
    SCOPED_TRACE(count);
    Use(count);
    machines().late_ticks.back() = count == 1 ? 0 : 2;
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, machines().Announce());
    if (count > 1) {
      // Nobody has been told.
      EXPECT_EQ(frontend(0).ListRounds().rounds_size(), 0);
      Client early(&machines(), count - 1, round);
      EXPECT_THAT(early.Obtain(1), StatusIs(kNotFound, "no round"));
    }
    machines().Ticks(3);
    ExpectAll(round, wire::OPEN_FOR_ONIONS);
    std::vector<Client> clients;
    for (uint32_t rank = 0; rank < count; ++rank) {
      clients.emplace_back(&machines(), rank, round);
      SHOAL_ASSERT_OK(clients.back().Obtain(rank + 1));
      // Each machine numbers its own.
      EXPECT_EQ(clients.back().secrets()[0].slot, 0u);
    }
    machines().Ticks(3);
    const uint64_t onions = count * (count + 1) / 2;
    EXPECT_EQ(frontend(count - 1).Info(round.id())->onions(), onions);
    SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
    machines().Ticks(3);
    ExpectAll(round, wire::OPEN_FOR_QUERIES);
    for (uint32_t rank = 0; rank < count; ++rank) {
      SHOAL_ASSERT_OK(clients[rank].Query(rank + 1));
      // A token is checked by the machine that gave the slot.
      std::swap(clients[rank].secrets()[0].seeds[0], clients[rank].secrets()[0].seeds[1]);
      EXPECT_THAT(clients[rank].Query(1), StatusIs(absl::StatusCode::kPermissionDenied, "token"));
      std::swap(clients[rank].secrets()[0].seeds[0], clients[rank].secrets()[0].seeds[1]);
      SHOAL_ASSERT_OK(clients[rank].Query(rank + 1));
    }
    machines().Ticks(3);
    EXPECT_EQ(frontend(count - 1).Info(round.id())->queries(), onions);
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t queries, machines().CloseQueries(round.id()));
    EXPECT_EQ(queries, onions);
    SHOAL_ASSERT_OK(machines().Online(round.id()));
    machines().Ticks(3);
    ExpectAll(round, wire::ANSWERED);
    EXPECT_GT(frontend(count - 1).Reports().at(0).stages_size(), 0);
    for (uint32_t rank = 0; rank < count; ++rank) {
      SHOAL_ASSERT_OK_AND_ASSIGN(auto response, clients[rank].Fetch());
      ASSERT_EQ(response.answers().size(), (rank + 1) * round.tagged_bytes());
      if (rank > 0) continue;  // from a stand-in
      Bytes answer = ToBytes(AsBytes(response.answers()));
      EXPECT_TRUE(clients[0].secrets()[0].Unmask(round.id(), answer));
      EXPECT_TRUE(std::ranges::equal(answer, machines().deployment.Answer(0)));
    }
    machines().steps().End(round.id(), "");
    machines().Ticks(3);
    ExpectAll(round, wire::CLOSED);
  }
}

// A machine whose own slice has come further than the others shows nothing of it.
TEST_F(FrontendMachinesTest, NoMachineShowsWhatItAloneHasSeen) {
  Use(3);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(2));
  EXPECT_EQ(frontend(1).Info(round.id())->onions(), 0u);
  machines().Ticks(2);
  EXPECT_EQ(frontend(1).Info(round.id())->onions(), 0u);
  machines().Tick();
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(frontend(rank).Info(round.id())->onions(), 2u) << rank;
  }
  SHOAL_ASSERT_OK(machines().Seal(round.id()));
  SHOAL_ASSERT_OK(machines().steps().Offline(round.id()));
  // The head and machine 1 take queries, machine 2 does not yet.
  SHOAL_ASSERT_OK(machines().own(0).OpenForQueries(round.id(), {}));
  SHOAL_ASSERT_OK(machines().own(1).OpenForQueries(round.id(), {}));
  machines().Ticks(4);
  ExpectAll(round, wire::SEALED);
  EXPECT_THAT(client.Query(1), StatusIs(kRefused, "the round is SEALED"));
  EXPECT_TRUE(machines().Due().empty());
  SHOAL_ASSERT_OK(machines().own(2).OpenForQueries(round.id(), {}));
  SHOAL_ASSERT_OK(frontend(0).Decide(round.id(), wire::OPEN_FOR_QUERIES));
  machines().Ticks(2);
  EXPECT_THAT(client.Query(1), StatusIs(kRefused, "the round is SEALED"));
  machines().Tick();
  SHOAL_EXPECT_OK(client.Query(1));
}

// Nobody seals or closes a slice while clients are shown that it takes onions, or queries.
TEST_F(FrontendMachinesTest, NothingIsSealedBeforeClientsAreTold) {
  Use(2);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  EXPECT_THAT(frontend(1).Seal(round.id()), StatusIs(kRefused, "not told yet"));
  SHOAL_ASSERT_OK(frontend(0).Decide(round.id(), wire::SEALED));
  EXPECT_THAT(frontend(0).Seal(round.id()), StatusIs(kRefused, "not told yet"));
  // Until then it takes onions, and they are in the round.
  machines().Tick();
  SHOAL_ASSERT_OK(client.Obtain(1));
  SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t onions, machines().steps().Seal(round.id()));
  EXPECT_EQ(onions, 2u);
  EXPECT_THAT(client.Obtain(1), StatusIs(kRefused, "the round is SEALED"));
  SHOAL_ASSERT_OK(machines().steps().Offline(round.id()));
  SHOAL_ASSERT_OK(machines().steps().OpenForQueries(round.id(), {}));
  machines().Ticks(3);
  EXPECT_THAT(frontend(1).CloseQueries(round.id()), StatusIs(kRefused, "not told yet"));
}

// A machine that hears of a state after the moment from which it holds is waited for, but not for
// good.
TEST_F(FrontendMachinesTest, AMachineThatIsLateIsWaitedFor) {
  Use(2);
  const round::Round round = machines().Begin();
  machines().late_ticks[1] = 5;  // shows everything three ticks later than the head
  machines().all_show_the_same = false;
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  const auto ordered = [&](wire::RoundState state, wire::RoundStep step) {
    SHOAL_EXPECT_OK(frontend(0).Decide(round.id(), state));
    while (Shown(round, 0) != state) machines().Tick();
    EXPECT_LT(Shown(round, 1), state);
    return std::async(std::launch::async,
                      [this, &round, step] { return machines().own(1).Do(round.id(), step, 0); });
  };
  std::future<absl::Status> sealed = ordered(wire::SEALED, wire::SEAL);
  EXPECT_EQ(sealed.wait_for(50ms), std::future_status::timeout);
  machines().Ticks(3);
  SHOAL_ASSERT_OK(sealed.get());
  SHOAL_ASSERT_OK(machines().own(0).Seal(round.id()));
  SHOAL_ASSERT_OK(machines().steps().Offline(round.id()));
  SHOAL_ASSERT_OK(machines().steps().OpenForQueries(round.id(), {}));
  machines().Ticks(6);
  SHOAL_ASSERT_OK(client.Query(1));
  std::future<absl::Status> closed = ordered(wire::ANSWERING, wire::CLOSE_QUERIES);
  EXPECT_EQ(closed.wait_for(50ms), std::future_status::timeout);
  machines().Ticks(3);
  SHOAL_ASSERT_OK(closed.get());

  const round::Round next = machines().Begin();
  machines().Ticks(3);
  auto never = std::async(std::launch::async,
                          [&] { return machines().own(1).Do(next.id(), wire::SEAL, 0); });
  while (never.wait_for(1ms) != std::future_status::ready) {
    machines().deployment.clock().steady_s += 1;
  }
  EXPECT_THAT(never.get(), StatusIs(kRefused, "not told yet"));
}

// The head goes from state to state, in their order, and with its own stage.
TEST_F(FrontendMachinesTest, TheHeadDecidesWhatItHasComeTo) {
  Use(2);
  const round::Round round = machines().Begin();
  for (const wire::RoundState state :
       {wire::OPEN_FOR_ONIONS, wire::OPEN_FOR_QUERIES, wire::ANSWERING, wire::ANSWERED,
        wire::CLOSED, wire::ABORTED}) {
    EXPECT_THAT(frontend(0).Decide(round.id(), state), StatusIs(kRefused, "does not become"));
  }
  SHOAL_EXPECT_OK(frontend(0).Decide(round.id(), wire::SEALED));
  EXPECT_THAT(frontend(0).Decide(round.id(), wire::SEALED), StatusIs(kRefused, "does not become"));
  frontend(0).Abort(round.id(), "for a test");
  machines().Ticks(3);
  ExpectAll(round, wire::ABORTED);
}

// No machine gives an answer before all have theirs, however long one of them takes.
TEST_F(FrontendMachinesTest, NoAnswersBeforeAllMachinesHaveTheirs) {
  Use(3);
  const round::Round round = machines().Begin();
  std::vector<Client> clients;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    clients.emplace_back(&machines(), rank, round);
    SHOAL_ASSERT_OK(clients.back().Obtain(1));
  }
  SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
  machines().Ticks(3);
  for (Client& client : clients) SHOAL_ASSERT_OK(client.Query(1));
  SHOAL_ASSERT_OK(machines().CloseQueries(round.id()));
  std::promise<void> go_on;
  machines().chain(2).before_online = [&] {
    go_on.get_future().wait();
    return absl::OkStatus();
  };
  auto online = std::async(std::launch::async, [&] { return machines().Online(round.id()); });
  const auto answered = [&](uint32_t rank) {
    return *frontend(rank).Stage(round.id()) == server::FrontendStage::kAnswered;
  };
  EXPECT_TRUE(::shoal::testing::Soon([&] { return answered(0) && answered(1); }));
  machines().Ticks(4);
  ExpectAll(round, wire::ANSWERING);
  for (const Client& client : clients) {
    EXPECT_THAT(client.Fetch(), StatusIs(kRefused, "the round is ANSWERING"));
  }
  go_on.set_value();
  SHOAL_ASSERT_OK(online.get());
  machines().Ticks(2);
  for (const Client& client : clients) {
    EXPECT_THAT(client.Fetch(), StatusIs(kRefused, "the round is ANSWERING"));
  }
  machines().Tick();
  for (const Client& client : clients) EXPECT_THAT(client.Fetch(), IsOk());
}

// A broken link at one machine is the whole party's: all run the stage again with their own input.
TEST_F(FrontendMachinesTest, AStageIsRunAgainWithTheSameQueries) {
  for (const uint32_t count : {2u, 3u}) {
    SCOPED_TRACE(count);
    Use(count);
    const round::Round round = machines().Begin();
    std::vector<Client> clients;
    for (uint32_t rank = 0; rank < count; ++rank) {
      clients.emplace_back(&machines(), rank, round);
      SHOAL_ASSERT_OK(clients[rank].Obtain(1));
    }
    SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
    machines().Ticks(3);
    for (Client& client : clients) SHOAL_ASSERT_OK(client.Query(1));
    SHOAL_ASSERT_OK(machines().CloseQueries(round.id()));
    StandInChain& chain = machines().chain(count - 1);
    chain.before_online = [&] {
      return chain.tries < 3 ? absl::UnavailableError("broke") : absl::OkStatus();
    };
    for (int i = 0; i < 2; ++i) {
      // The others have their answers, and keep them to themselves.
      EXPECT_THAT(machines().Online(round.id()), StatusIs(kUnavailable, "broke"));
      machines().Ticks(3);
      ExpectAll(round, wire::ANSWERING);
    }
    SHOAL_ASSERT_OK(machines().Online(round.id()));
    machines().Ticks(3);
    ExpectAll(round, wire::ANSWERED);
    for (const Client& client : clients) EXPECT_THAT(client.Fetch(), IsOk());
  }
}

// What is told of a round, and what strangers are refused with, is the same however clients are
// spread over the machines.
TEST_F(FrontendMachinesTest, NothingTellsHowClientsAreSpread) {
  std::vector<std::string> told;
  for (const auto& spread : std::vector<std::vector<size_t>>{{9, 1}, {1, 9}, {5, 5}}) {
    SCOPED_TRACE(spread[0]);
    server::RoundPlan plan = kPlan;
    plan.max_slots = 20;
    Use(2, plan);
    const round::Round round = machines().Begin();
    std::vector<Client> clients;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      clients.emplace_back(&machines(), rank, round);
      SHOAL_ASSERT_OK(clients[rank].Obtain(spread[rank]));
    }
    std::string all;
    // Too many for any spread.
    Client stranger(&machines(), 1, round);
    all += stranger.Obtain(10).ToString();
    SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
    machines().Ticks(3);
    const auto refusals = [&](uint32_t rank, bool fetch) {
      for (uint32_t slot = 0; slot < 12; ++slot) {
        Bytes slots, tally;
        AppendLe(slots, slot);
        AppendLe(tally, uint32_t{1});
        wire::SubmitQueriesRequest query;
        wire::FetchAnswersRequest answers;
        query.set_round_id(ToString(round.id()));
        query.set_slots(ToString(slots));
        query.set_tokens(std::string(sharing::kTokenBytes, 'x'));
        query.set_tallies(ToString(tally));
        answers.set_round_id(query.round_id());
        answers.set_slots(query.slots());
        answers.set_tokens(query.tokens());
        const absl::Status refused = fetch ? frontend(rank).FetchAnswers(answers).status()
                                           : frontend(rank).SubmitQueries(query).status();
        EXPECT_EQ(refused.code(), slot < 10 ? absl::StatusCode::kPermissionDenied
                                            : absl::StatusCode::kInvalidArgument)
            << slot;
        all += refused.ToString();
      }
    };
    for (uint32_t rank = 0; rank < 2; ++rank) refusals(rank, false);
    for (uint32_t rank = 0; rank < 2; ++rank) SHOAL_ASSERT_OK(clients[rank].Query(spread[rank]));
    SHOAL_ASSERT_OK(machines().CloseQueries(round.id()).status());
    SHOAL_ASSERT_OK(machines().Online(round.id()));
    machines().Ticks(3);
    for (uint32_t rank = 0; rank < 2; ++rank) refusals(rank, true);
    ASSERT_EQ(frontend(1).Reports().size(), 1u);
    wire::RoundReport report = frontend(1).Reports()[0];
    EXPECT_GT(report.stages_size(), 0);
    report.mutable_round()->clear_header();
    report.clear_offline_ms();  // times
    report.clear_online_ms();
    for (wire::StageReport& stage : *report.mutable_stages()) {
      stage.clear_seconds();
      stage.clear_cpu_seconds();
    }
    told.push_back(all + report.DebugString());
  }
  EXPECT_EQ(told[1], told[0]);
  EXPECT_EQ(told[2], told[0]);
}

// All machines show what the parties report, but for the one number that tells how clients are
// spread. One machine shows that, too.
TEST_F(FrontendMachinesTest, ReportsShowThePartiesTotals) {
  for (const uint32_t count : {1u, 3u}) {
    SCOPED_TRACE(count);
    Use(count);
    const round::Round round = machines().Begin();
    std::vector<Client> clients;
    for (uint32_t rank = 0; rank < count; ++rank) {
      clients.emplace_back(&machines(), rank, round);
      SHOAL_ASSERT_OK(clients[rank].Obtain(rank + 1));
    }
    SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
    machines().Ticks(3);
    for (uint32_t rank = 0; rank < count; ++rank) SHOAL_ASSERT_OK(clients[rank].Query(rank + 1));
    SHOAL_ASSERT_OK(machines().CloseQueries(round.id()).status());
    SHOAL_ASSERT_OK(machines().Online(round.id()));
    machines().Ticks(3);
    const server::StageReports told = machines().Reports(round.id());
    EXPECT_GE(told.size(), 10u);  // three parties
    for (uint32_t rank = 0; rank < count; ++rank) {
      ASSERT_EQ(frontend(rank).Reports().size(), 1u);
      const wire::RoundReport report = frontend(rank).Reports()[0];
      ASSERT_EQ(report.stages_size(), told.size());
      for (size_t i = 0; i < told.size(); ++i) {
        wire::StageReport wanted = told[i];
        if (count > 1 && wanted.party() == 1 && wanted.stage() == "online") {
          EXPECT_GT(wanted.bytes_in(), 0u);
          wanted.clear_bytes_in();
        }
        EXPECT_GT(wanted.positions_in() + wanted.noise_queries() + wanted.bytes_in(), 0u);
        EXPECT_EQ(report.stages(static_cast<int>(i)).DebugString(), wanted.DebugString());
      }
    }
  }
}

// max_slots is shared out. A client for whom its machine has no room tries another round, though
// other machines have room.
TEST_F(FrontendMachinesTest, RoomIsSharedOut) {
  server::RoundPlan plan = kPlan;
  plan.max_slots = 11;
  for (const uint32_t count : {1u, 2u, 3u}) {
    SCOPED_TRACE(count);
    Use(count, plan);
    const round::Round round = machines().Begin();
    const size_t room = 11 / count;
    for (uint32_t rank = 0; rank < count; ++rank) {
      EXPECT_TRUE(machines().Due().empty());
      Client client(&machines(), rank, round);
      SHOAL_ASSERT_OK(client.Obtain(room));
      EXPECT_THAT(client.Obtain(1),
                  StatusIs(kExhausted, count == 1 ? "11 of 11" : "not as much room"));
      machines().Tick();
    }
    // Full.
    EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kSeal});
    // As many as all machines have, and no more positions than the header allows.
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t onions, machines().Seal(round.id()));
    EXPECT_EQ(onions, count * room);
  }
}

// From one address, at one machine and at all of them.
TEST_F(FrontendMachinesTest, AStrangersFloodTakesItsShareAndClosesNoWindow) {
  server::RoundPlan plan = kPlan;
  plan.max_slots = 80;
  plan.onions_count = 48;
  plan.queries_count = 24;
  plan.block_percent = 25;
  Use(2, plan);
  const round::Round round = machines().Begin();
  // 40 slots at each machine, of which one block takes 10 and counts as 6.
  std::vector<Client> strangers;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    strangers.emplace_back(&machines(), rank, round, BlockOf(66));
    for (int i = 0; i < 10; ++i) SHOAL_ASSERT_OK(strangers[rank].Obtain(1));
    EXPECT_THAT(strangers[rank].Obtain(1), StatusIs(kExhausted, "10 of the 10 slots"));
  }
  machines().Tick();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Counts totals, frontend(0).Totals(round.id()));
  EXPECT_EQ(totals.onions, 20u);
  EXPECT_EQ(totals.counted_onions, 12u);
  // Others have the rest of both machines. The window is full at 48 that count.
  std::vector<Client> honest;
  for (uint8_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(machines().Due().empty());
    honest.emplace_back(&machines(), i % 2u, round, BlockOf(i));
    SHOAL_ASSERT_OK(honest.back().Obtain(3));
    machines().Tick();
  }
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kSeal});
  SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
  machines().Ticks(3);
  // 12 at each machine close the window for queries; a block counts as 3 there.
  for (Client& stranger : strangers) SHOAL_ASSERT_OK(stranger.Query(10));
  machines().Tick();
  EXPECT_TRUE(machines().Due().empty());
  for (uint8_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(machines().Due().empty());
    SHOAL_ASSERT_OK(honest[i].Query(3));
    machines().Tick();
  }
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kAnswer});
}

// By what all machines have, however few each has.
TEST_F(FrontendMachinesTest, AWindowClosesByACountOverAll) {
  server::RoundPlan plan = kPlan;
  plan.onions_count = 6;
  plan.queries_count = 3;
  Use(3, plan);
  const round::Round round = machines().Begin();
  std::vector<Client> clients;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    machines().Tick();
    EXPECT_TRUE(machines().Due().empty());
    clients.emplace_back(&machines(), rank, round);
    SHOAL_ASSERT_OK(clients.back().Obtain(2));
  }
  EXPECT_TRUE(machines().Due().empty());  // the head has not heard of the last ones
  machines().Tick();
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kSeal});
  SHOAL_ASSERT_OK(machines().RunOffline(round.id()));
  machines().Ticks(3);
  for (Client& client : clients) {
    EXPECT_TRUE(machines().Due().empty());
    SHOAL_ASSERT_OK(client.Query(1));
    machines().Tick();
  }
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kAnswer});
}

// A window begins when clients hear of it, not when the head has come so far, and none ends while
// the machines are on their way to the next state.
TEST_F(FrontendMachinesTest, AWindowBeginsWhenClientsHearOfIt) {
  server::RoundPlan plan = kPlan;
  plan.queries_window_s = 2;
  Use(2, plan);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(2));
  SHOAL_ASSERT_OK(machines().Seal(round.id()));
  SHOAL_ASSERT_OK(machines().steps().Offline(round.id()));
  SHOAL_ASSERT_OK(machines().own(0).OpenForQueries(round.id(), {}));
  machines().Ticks(12);  // machine 1 takes three seconds
  EXPECT_TRUE(machines().Due().empty());
  SHOAL_ASSERT_OK(machines().own(1).OpenForQueries(round.id(), {}));
  SHOAL_ASSERT_OK(frontend(0).Decide(round.id(), wire::OPEN_FOR_QUERIES));
  machines().Ticks(3);
  ExpectAll(round, wire::OPEN_FOR_QUERIES);
  machines().Ticks(7);
  EXPECT_TRUE(machines().Due().empty());
  machines().Tick();
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kAnswer});
}

// What another machine has got since it last told is in the round.
TEST_F(FrontendMachinesTest, ARoundThatSeemsEmptyIsLookedAtOnceSealed) {
  Use(2);
  const round::Round round = machines().Begin();
  machines().deployment.clock().steady_s += 3600;
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kSeal});
  SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t onions, machines().Seal(round.id()));
  EXPECT_EQ(onions, 1u);
}

// The round of a machine that cannot store what its clients send is aborted for all.
TEST_F(FrontendMachinesTest, ADiskThatFailsAtOneMachineAbortsTheRound) {
  Use(2);
  const round::Round round = machines().Begin();
  {
    server::testing::Disk& disk = machines().disk(1);
    const MutexLock lock(disk.mutex);
    disk.writes_left = 0;
  }
  Client client(&machines(), 1, round);
  EXPECT_THAT(client.Obtain(1), StatusIs(kRefused, "could not be stored"));
  machines().Tick();
  EXPECT_EQ(machines().Due(), std::vector<Action>{Action::kAbort});
}

// A round that one machine could not open is shown to nobody, and ends at all.
TEST_F(FrontendMachinesTest, ARoundThatNotAllHaveOpenedIsShownToNobody) {
  Use(2);
  machines().fails_to_open = absl::InternalError("for a test");
  EXPECT_THAT(machines().Announce(), StatusIs(absl::StatusCode::kInternal, "for a test"));
  ASSERT_EQ(frontend(0).OpenRounds().size(), 1u);
  machines().steps().End(frontend(0).OpenRounds()[0], "could not be opened");
  EXPECT_TRUE(frontend(0).OpenRounds().empty());
  machines().Ticks(4);
  for (uint32_t rank : {0u, 1u}) EXPECT_EQ(frontend(rank).ListRounds().rounds_size(), 0);
  machines().Restart();
  machines().Ticks(4);
  for (uint32_t rank : {0u, 1u}) EXPECT_TRUE(frontend(rank).Reports().empty());
}

// While machines go on to a state, the limit of stages holds, and says what they do not come to.
TEST_F(FrontendMachinesTest, AStateThatMachinesDoNotComeToIsNamed) {
  server::RoundPlan plan = kPlan;
  plan.stage_limit_s = 5;
  Use(2, plan);
  const round::Round round = machines().Begin();
  SHOAL_ASSERT_OK(frontend(0).Decide(round.id(), wire::SEALED));
  machines().deployment.clock().steady_s += 6;
  const std::vector<server::Due> due = frontend(0).WhatIsDue();
  ASSERT_FALSE(due.empty());
  EXPECT_EQ(due[0].action, Action::kAbort);
  EXPECT_EQ(due[0].reason, "SEALED for more than 5 s");
}

// A machine that has ended a round does not blame its clients.
TEST_F(FrontendMachinesTest, ClientsOfAMachineThatHasEndedARoundAreToAskAgain) {
  Use(2);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  {
    server::testing::Disk& disk = machines().disk(1);
    const MutexLock lock(disk.mutex);
    EXPECT_EQ(disk.submissions.size(), 1u);
  }
  machines().own(1).End(round.id(), "");
  EXPECT_THAT(client.Obtain(1), StatusIs(kUnavailable, "has ended"));
  {
    server::testing::Disk& disk = machines().disk(1);
    const MutexLock lock(disk.mutex);
    EXPECT_TRUE(disk.submissions.empty());
  }
  machines().own(0).End(round.id(), "why");
  machines().Ticks(3);
  ExpectAll(round, wire::ABORTED);
  EXPECT_EQ(frontend(1).Info(round.id())->abort_reason(), "why");
  EXPECT_THAT(client.Obtain(1), StatusIs(kRefused, "the round is ABORTED"));
}

// A submission that is on its way to the disk when the round ends is deleted with the others.
TEST_F(FrontendMachinesTest, NoSubmissionComesToTheDiskAfterTheEnd) {
  Use(2);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  server::testing::Disk& disk = machines().disk(1);
  std::future<void> end;
  disk.before_write = [&] {
    if (end.valid()) return;
    end = std::async(std::launch::async, [&] { machines().own(1).End(round.id(), "why"); });
    // It waits for the disk.
    EXPECT_EQ(end.wait_for(50ms), std::future_status::timeout);
  };
  client.Obtain(1).IgnoreError();
  ASSERT_TRUE(end.valid());
  end.get();
  EXPECT_THAT(client.Obtain(1), StatusIs(kUnavailable, "has ended"));
  const MutexLock lock(disk.mutex);
  EXPECT_TRUE(disk.submissions.empty());
}

// After a restart of all machines, each says of the rounds of before what the head says, and knows
// nothing before that.
TEST_F(FrontendMachinesTest, AfterARestartAllShowTheRoundsOfBeforeAsAborted) {
  for (const uint32_t count : {1u, 3u}) {
    SCOPED_TRACE(count);
    Use(count);
    const round::Round round = machines().Begin();
    for (uint32_t rank = 0; rank < count; ++rank) {
      Client client(&machines(), rank, round);
      SHOAL_ASSERT_OK(client.Obtain(1));
    }
    machines().Restart();
    for (uint32_t rank = 0; count > 1 && rank < count; ++rank) {
      // A client must not take the round for one that never was.
      EXPECT_THAT(frontend(rank).State(round.id()), StatusIs(kUnavailable, "does not know yet"));
      EXPECT_TRUE(frontend(rank).Reports().empty());
    }
    machines().late_ticks.back() = count == 1 ? 0 : 2;
    machines().Ticks(3);
    ExpectAll(round, wire::ABORTED);
    for (uint32_t rank = 0; rank < count; ++rank) {
      EXPECT_THAT(frontend(rank).State({}), StatusIs(kNotFound, "no round"));
    }
    for (uint32_t rank = 0; rank < count; ++rank) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundInfo info, frontend(rank).Info(round.id()));
      EXPECT_EQ(info.header().SerializeAsString(), round.wire().SerializeAsString());
      EXPECT_EQ(info.abort_reason(), "the frontend was restarted");
      EXPECT_EQ(frontend(rank).Reports().size(), 1u);
      Client client(&machines(), rank, round);
      EXPECT_THAT(client.Obtain(1), StatusIs(kRefused, "the round is ABORTED"));
      server::testing::Disk& disk = machines().disk(rank);
      const MutexLock lock(disk.mutex);
      EXPECT_TRUE(disk.submissions.empty());
    }
    // The next round goes on as if nothing had been.
    machines().deployment.clock().now_s += 1;
    machines().deployment.clock().steady_s += 1;
    const round::Round next = machines().Begin();
    ExpectAll(next, wire::OPEN_FOR_ONIONS);
    EXPECT_GT(next.counter(), round.counter());
  }
}

// What does not fit a tick goes with a later one, what waits longest first, and a long reason is
// cut at a whole character.
TEST_F(FrontendMachinesTest, WhatIsToldFitsTheTick) {
  server::RoundPlan plan = kPlan;
  plan.open_ahead = 3;
  Use(2, plan);
  std::vector<round::Round> rounds;
  for (int i = 0; i < 3; ++i) rounds.push_back(machines().Begin());
  EXPECT_TRUE(frontend(0).Tell(3000).empty());  // nothing has changed
  for (int tick = 0; tick < 6; ++tick) {
    // All rounds change in each tick.
    for (const round::Round& round : rounds) {
      frontend(0).TakeCounts(1, round.id(), {.onions = static_cast<uint64_t>(tick + 1)});
    }
    const std::vector<server::Told> told = frontend(0).Tell(1);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].round_id, rounds[static_cast<size_t>(tick) % 3].id());
  }
  frontend(0).Abort(rounds[0].id(),
                    std::string(server::kMostToldReasonBytes - 1, 'x') + "\xc3\xa9");
  frontend(0).Abort(rounds[1].id(), std::string(5000, 'x'));
  for (const server::Told& told : frontend(0).Tell(1 << 20)) {
    const std::string& reason = told.report.round().abort_reason();
    if (told.round_id == rounds[0].id()) {
      EXPECT_EQ(reason, std::string(server::kMostToldReasonBytes - 1, 'x'));
    } else if (told.round_id == rounds[1].id()) {
      EXPECT_EQ(reason, std::string(server::kMostToldReasonBytes, 'x'));
    }
  }
}

// New states, upon which clients may do something, are told before rounds of before a restart, and
// these before new numbers, in ticks that hold one report each.
TEST_F(FrontendMachinesTest, StatesAreToldBeforeRoundsOfBeforeAndNumbersLast) {
  Use(2);
  const round::Round before = machines().Begin();
  machines().Restart();
  machines().deployment.clock().now_s += 1;
  machines().deployment.clock().steady_s += 1;
  const auto tell = [this] {
    const std::vector<server::Told> told = frontend(0).Tell(1);
    SHOAL_CHECK(told.size() == 1);
    return told[0].round_id;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round live, machines().Announce());
  EXPECT_EQ(tell(), live.id());
  frontend(0).TakeCounts(1, live.id(), {.onions = 1});
  EXPECT_FALSE(frontend(0).HasToldBefore());
  EXPECT_EQ(tell(), before.id());
  EXPECT_TRUE(frontend(0).HasToldBefore());
  EXPECT_EQ(tell(), live.id());
  EXPECT_TRUE(frontend(0).Tell(1).empty());
}

// The longest report of honest parties is told whole: eight of them, lists of as many positions as
// there can be, and rows of a mebibyte.
TEST_F(FrontendMachinesTest, CostsOfHonestPartiesAreTold) {
  Use(2);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  SHOAL_ASSERT_OK(machines().Seal(round.id()));
  SHOAL_ASSERT_OK(machines().steps().Offline(round.id()));
  server::StageReports reports;
  for (uint32_t party = 1; party <= 8; ++party) {
    for (const char* stage : {"noise", "offline", "online", "answers"}) {
      wire::StageReport& report = reports.emplace_back();
      report.set_party(party);
      report.set_stage(stage);
      report.set_seconds(86400.01);
      report.set_cpu_seconds(864000.01);
      report.set_positions_in(0xfffffffe);
      report.set_positions_out(0xfffffffe);
      report.set_noise_queries(0xfffffffe);
      report.set_bytes_in(uint64_t{1} << 52);
      report.set_bytes_out(uint64_t{1} << 52);
    }
  }
  SHOAL_ASSERT_OK(machines().steps().OpenForQueries(round.id(), reports));
  frontend(0).Abort(round.id(), std::string(2 * server::kMostToldReasonBytes, 'x'));
  const std::vector<server::Told> told = frontend(0).Tell(1 << 20);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].report.round().abort_reason().size(), server::kMostToldReasonBytes);
  EXPECT_EQ(told[0].report.stages_size(), static_cast<int>(reports.size()));
}

// Numbers that a neighbour makes up do not make a report too long to be told.
TEST_F(FrontendMachinesTest, CostsThatNoHonestPartyHasAreNotTold) {
  Use(2);
  const round::Round round = machines().Begin();
  Client client(&machines(), 1, round);
  SHOAL_ASSERT_OK(client.Obtain(1));
  SHOAL_ASSERT_OK(machines().Seal(round.id()));
  SHOAL_ASSERT_OK(machines().steps().Offline(round.id()));
  wire::StageReport report;
  report.set_party(2);
  report.set_stage("offline");
  report.set_bytes_in(~uint64_t{0});
  SHOAL_ASSERT_OK(machines().steps().OpenForQueries(round.id(), server::StageReports(200, report)));
  const std::vector<server::Told> told = frontend(0).Tell(1 << 20);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].report.round().state(), wire::OPEN_FOR_QUERIES);
  EXPECT_LE(told[0].report.ByteSizeLong(), server::kMostToldReportBytes);
}

// The driver at the head, over all machines.
class DriverOfMachinesTest : public FrontendMachinesTest {
 protected:
  bool Soon(const std::function<bool()>& condition) {
    return ::shoal::testing::Soon([&] {
      machines().Tick();
      return condition();
    });
  }
};

// Notes which rounds end, and why.
class NotedSteps final : public RoundSteps {
 public:
  explicit NotedSteps(RoundSteps* steps) : steps_(steps) {}

  absl::Status Open(const round::Round& round) override { return steps_->Open(round); }
  absl::StatusOr<uint64_t> Seal(const Digest& id) override { return steps_->Seal(id); }
  absl::Status Offline(const Digest& id) override { return steps_->Offline(id); }
  absl::Status OpenForQueries(const Digest& id, server::StageReports reports) override {
    return steps_->OpenForQueries(id, std::move(reports));
  }
  absl::StatusOr<uint64_t> CloseQueries(const Digest& id) override {
    return steps_->CloseQueries(id);
  }
  absl::Status Online(const Digest& id, const MakeReports& reports) override {
    return steps_->Online(id, reports);
  }
  void End(const Digest& id, const std::string& reason) override {
    steps_->End(id, reason);
    const MutexLock lock(mutex_);
    ends_.emplace(id, reason);
  }
  std::string Why(const Digest& id) const {
    const MutexLock lock(mutex_);
    const auto found = ends_.find(id);
    return found == ends_.end() ? "" : found->second;
  }

 private:
  RoundSteps* const steps_;
  mutable Mutex mutex_;
  std::map<Digest, std::string> ends_ ABSL_GUARDED_BY(mutex_);
};

// What a list of live rounds ends is ended in all that holds something of it.
TEST_F(DriverOfMachinesTest, ARoundThatAPartyHasLostEndsInItsSteps) {
  Use(2);
  machines().tick_ms = 1;
  std::atomic<uint64_t> lost = 0;
  machines().deployment.tamper(2).list_answer = [&](const wire::LiveRounds& list,
                                                    server::ListAnswer& answer) {
    const uint64_t counter = lost;
    if (std::ranges::binary_search(list.rounds(), counter)) {
      answer.lacked.push_back({PartyNumber(3), RoundCounter(counter)});
    }
  };
  NotedSteps steps(&machines().steps());
  Driver driver(&frontend(0), &machines().deployment.node(1), &machines().deployment.clock(),
                &steps);
  ASSERT_TRUE(Soon([&] { return frontend(1).ListRounds().rounds_size() > 0; }));
  const wire::RoundHeader header = frontend(1).ListRounds().rounds(0).header().header();
  lost = header.counter();
  const Digest id = round::RoundId(header);
  ASSERT_TRUE(Soon([&] { return !steps.Why(id).empty(); }));
  EXPECT_EQ(steps.Why(id), "party 3 has lost the round");
  ASSERT_TRUE(Soon([&] { return frontend(1).State(id).value() == wire::ABORTED; }));
}

TEST_F(DriverOfMachinesTest, ARoundIsAnsweredAtAllMachines) {
  server::RoundPlan plan = kPlan;
  plan.onions_count = 6;
  plan.queries_count = 6;
  for (const uint32_t count : {2u, 3u}) {
    SCOPED_TRACE(count);
    Use(count, plan);
    machines().late_ticks.back() = 1;
    machines().tick_ms = 1;  // however long the driver takes, no window ends
    Driver driver(&frontend(0), &machines().deployment.node(1), &machines().deployment.clock(),
                  &machines().steps());
    ASSERT_TRUE(Soon([&] { return frontend(count - 1).ListRounds().rounds_size() > 0; }));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const round::Round round,
        round::Round::Verify(frontend(count - 1).ListRounds().rounds(0).header(),
                             machines().deployment.roster(), machines().deployment.table(),
                             machines().deployment.clock().NowSeconds()));
    std::vector<Client> clients;
    for (uint32_t rank = 0; rank < count; ++rank) {
      clients.emplace_back(&machines(), rank, round);
      SHOAL_ASSERT_OK(clients.back().Obtain(6 / count));
    }
    ASSERT_TRUE(Soon([&] { return Shown(round, 0) == wire::OPEN_FOR_QUERIES; }));
    for (Client& client : clients) SHOAL_ASSERT_OK(client.Query(6 / count));
    ASSERT_TRUE(Soon([&] { return Shown(round, 0) == wire::ANSWERED; }));
    ExpectAll(round, wire::ANSWERED);
    for (const Client& client : clients) EXPECT_THAT(client.Fetch(), IsOk());
  }
}

// Rounds into which nobody has sent anything are closed, at all machines, and not carried through
// the chain.
TEST_F(DriverOfMachinesTest, ARoundWithoutOnionsIsClosed) {
  server::RoundPlan plan = kPlan;
  plan.onions_window_s = 1;
  Use(2, plan);
  machines().tick_ms = 1;
  machines().deployment.tamper(1).onions = [](Bytes&) { ADD_FAILURE() << "an offline stage"; };
  Driver driver(&frontend(0), &machines().deployment.node(1), &machines().deployment.clock(),
                &machines().steps());
  const auto state_of_first = [&] {
    const wire::ListRoundsResponse list = frontend(1).ListRounds();
    return list.rounds_size() > 0 ? list.rounds(0).state() : wire::ROUND_STATE_UNSPECIFIED;
  };
  ASSERT_TRUE(Soon([&] { return state_of_first() == wire::OPEN_FOR_ONIONS; }));
  machines().deployment.clock().steady_s += 1;
  ASSERT_TRUE(Soon([&] { return state_of_first() == wire::CLOSED; }));
}

}  // namespace
}  // namespace shoal::shoald
