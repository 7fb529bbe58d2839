// Whole rounds of parties of any numbers of machines in one process: real parties, nodes and
// control, TLS between parties, and queues in place of a party's own network.
#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/machines/testing/round_clusters.h"
#include "src/net/server.h"
#include "src/net/testing/test_identity.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/round/header.h"
#include "src/round/testing/headers.h"
#include "src/server/chain.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/slices.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/memory_journal.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/peer.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/tls_calls.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using machines::Machines;
using machines::testing::LocalCluster;
using machines::testing::RoundClusters;
using net::testing::TestIdentity;
using server::OwnRun;
using server::Party;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
using wire::FrameType;
using namespace std::chrono_literals;

constexpr uint64_t kRows = 6;
constexpr size_t kSlots = 23;

// What a machine sent on in its latest try of each stage, and got back.
struct Sent {
  server::ListPart query_run;
  bool as_batch = false;                        // what queries were sent as
  std::optional<Bytes> list, queries, answers;  // once whole
};

class CapturingSource final : public ByteSource {
 public:
  CapturingSource(std::unique_ptr<ByteSource> from, std::function<void(Bytes)> whole)
      : from_(std::move(from)), whole_(std::move(whole)) {
    if (from_->size() == 0) whole_({});
  }
  uint64_t size() const override { return from_->size(); }
  absl::StatusOr<BytesView> Next() override {
    auto piece = from_->Next();
    if (piece.ok() && !piece->empty()) {
      Append(bytes_, *piece);
      if (bytes_.size() == size()) whole_(bytes_);
    }
    return piece;
  }

 private:
  const std::unique_ptr<ByteSource> from_;
  const std::function<void(Bytes)> whole_;
  Bytes bytes_;
};

// The same of answers that are read as they come.
class CapturingParts final : public server::PartedSource {
 public:
  CapturingParts(std::unique_ptr<server::PartedSource> from, std::optional<Bytes>* whole)
      : from_(std::move(from)), whole_(whole), bytes_(from_->size()) {
    whole_->reset();
    if (bytes_.empty()) whole_->emplace();
  }
  uint64_t size() const override { return from_->size(); }
  std::span<const uint64_t> part_bytes() const override { return from_->part_bytes(); }
  absl::StatusOr<Piece> NextOfAny() override {
    auto piece = from_->NextOfAny();
    if (piece.ok() && !piece->bytes.empty()) {
      std::ranges::copy(piece->bytes, bytes_.begin() + static_cast<ptrdiff_t>(piece->offset));
      came_ += piece->bytes.size();
      if (came_ == size()) *whole_ = bytes_;
    }
    return piece;
  }

 private:
  const std::unique_ptr<server::PartedSource> from_;
  std::optional<Bytes>* const whole_;
  Bytes bytes_;
  uint64_t came_ = 0;
};

class BrokenSource final : public server::PartedSource {
 public:
  explicit BrokenSource(uint64_t size) : size_(size) {}
  uint64_t size() const override { return size_; }
  std::span<const uint64_t> part_bytes() const override { return {&size_, 1}; }
  absl::StatusOr<Piece> NextOfAny() override { return absl::UnavailableError("the link broke"); }

 private:
  const uint64_t size_;
};

enum class Call { kOffline, kOnline, kAnswers };

// A machine's link to the next party, which is watched and may break.
class Tap final : public server::Link {
 public:
  Tap(server::Link* to, uint32_t rank, Sent* sent,
      const std::function<bool(Call, uint32_t rank)>* breaks)
      : to_(to), rank_(rank), sent_(sent), breaks_(breaks) {}

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override {
    return to_->Propose(draft, live);
  }
  absl::Status Offline(const wire::SignedHeader& header, const OwnRun& mine,
                       std::unique_ptr<ByteSource> onions) override {
    if (Breaks(Call::kOffline)) return absl::UnavailableError("the link broke");
    return to_->Offline(header, mine, Capture(std::move(onions), sent_->list));
  }
  absl::StatusOr<std::unique_ptr<server::PartedSource>> Online(
      const Digest& id, const OwnRun& mine, server::QueriesOut queries) override {
    sent_->query_run = mine.run;
    if (Breaks(Call::kOnline)) return absl::UnavailableError("the link broke");
    const auto* const whole = std::get_if<Bytes>(&queries);
    sent_->as_batch = whole == nullptr;
    sent_->queries =
        whole != nullptr
            ? *whole
            : wire::EncodeQueryBatch(*std::get<std::shared_ptr<const wire::QueryBatch>>(queries),
                                     static_cast<uint32_t>(mine.run.count));
    auto answers = to_->Online(id, mine, std::move(queries));
    if (!answers.ok()) return answers;
    if (Breaks(Call::kAnswers)) return std::make_unique<BrokenSource>((*answers)->size());
    return std::make_unique<CapturingParts>(*std::move(answers), &sent_->answers);
  }
  absl::StatusOr<server::StageReports> Reports(const Digest& id) override {
    return to_->Reports(id);
  }
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds& live) override {
    return to_->Live(live);
  }

 private:
  bool Breaks(Call call) const { return *breaks_ && (*breaks_)(call, rank_); }
  static std::unique_ptr<ByteSource> Capture(std::unique_ptr<ByteSource> source,
                                             std::optional<Bytes>& into) {
    into.reset();
    return std::make_unique<CapturingSource>(std::move(source),
                                             [&into](Bytes bytes) { into = std::move(bytes); });
  }

  server::Link* const to_;
  const uint32_t rank_;
  Sent* const sent_;
  const std::function<bool(Call, uint32_t rank)>* const breaks_;
};

// A chain of parties of so many machines each.
class Chain {
 public:
  explicit Chain(std::vector<uint32_t> counts) : world_({.rows = kRows}, counts) {
    for (uint32_t number = 1; number <= counts.size(); ++number) {
      parties_.push_back(std::make_unique<PartyOfMachines>());
      parties_.back()->count = counts[number - 1];
      parties_.back()->identity = std::make_unique<TestIdentity>(number);
    }
    for (uint32_t number = size(); number >= 1; --number) Start(number);
  }
  ~Chain() {
    for (const auto& party : parties_) {
      for (const auto& machine : party->machines) {
        machine->server.reset();
        if (machine->link != nullptr) machine->link->CancelStages();
        if (machine->stages != nullptr) machine->stages->CancelAll();
      }
    }
    for (const auto& party : parties_) {
      for (const auto& machine : party->machines) machine->party->EndAll();
      for (const auto& machine : party->machines) machine->service.reset();
      for (const auto& machine : party->machines) machine->stages.reset();
      MachineControl* const control = party->machines[0]->control.get();
      if (control != nullptr) {
        SHOAL_EXPECT_OK(control->Stop());
      }
      for (const auto& machine : party->machines) machine->control.reset();
    }
  }

  struct MachineOfParty {
    explicit MachineOfParty(uint64_t seed) : random(seed), control_random(seed + 1000) {}
    TestRandom random, control_random;
    LocalCluster::Joined control_link;
    std::unique_ptr<Machines> control_machines;
    std::unique_ptr<Party> party;
    std::unique_ptr<MachineControl> control;
    std::unique_ptr<PeerLink> link;
    std::unique_ptr<Tap> tap;
    std::unique_ptr<server::ChainNode> node;
    std::unique_ptr<PartStages> stages;
    std::unique_ptr<PeerService> service;
    std::unique_ptr<net::Server> server;
    Sent sent;
  };
  struct PartyOfMachines {
    uint32_t count = 1;
    std::unique_ptr<TestIdentity> identity;
    server::testing::Disk disk;
    std::unique_ptr<server::testing::MemoryJournal> journal;
    std::unique_ptr<LocalCluster> control_cluster;
    std::unique_ptr<RoundClusters> rounds;
    std::function<bool(Call, uint32_t rank)> breaks;
    std::vector<std::unique_ptr<MachineOfParty>> machines;
  };

  uint32_t size() const { return static_cast<uint32_t>(parties_.size()); }
  PartyOfMachines& party(uint32_t number) { return *parties_[number - 1]; }
  MachineOfParty& machine(uint32_t number, uint32_t rank) { return *party(number).machines[rank]; }
  const round::Round& round() const { return *round_; }
  server::testing::World& world() { return world_; }
  // What the party draws its round's secrets from.
  Seed Root(uint32_t number) const { return TestRandom(number).NewSeed(); }

  absl::Status Announce() {
    const uint64_t now_s = world_.clock().now_s;
    const wire::RoundHeader draft = round::testing::DraftOf(
        round::kCountersPerSecond * now_s + rounds_++, world_.roster(), world_.table(), now_s);
    wire::LiveRounds list;
    list.set_highest_counter(draft.counter());
    list.add_drafts(draft.counter());
    SHOAL_ASSIGN_OR_RETURN(
        const wire::SignedHeader header,
        machine(1, 0).node->Propose(draft, machine(1, 0).party->SignLive(std::move(list))));
    SHOAL_ASSIGN_OR_RETURN(round_,
                           round::Round::Verify(header, world_.roster(), world_.table(), now_s));
    for (const auto& party : parties_) {
      if (party->count == 1) continue;
      SHOAL_RETURN_IF_ERROR(
          party->machines[0]->control->OpenAtAll(*round_, [] { return absl::OkStatus(); }));
    }
    return absl::OkStatus();
  }

  // The submissions of so many clients with a slot each, of whom each machine of party 1 has the
  // same share.
  void Submit(size_t slots) {
    std::vector<size_t> spread;
    for (uint32_t rank = 0; rank < party(1).count; ++rank) {
      spread.push_back(machines::RunOf(slots, rank, party(1).count).size());
    }
    Submit(spread);
  }
  // Of whom each machine of party 1 has so many.
  void Submit(const std::vector<size_t>& spread) {
    server::testing::Client client(&world_, *round_, std::nullopt, /*frontend=*/nullptr);
    const size_t slots = std::accumulate(spread.begin(), spread.end(), size_t{0});
    spread_ = spread;
    secrets_.clear();
    for (size_t i = 0; i < slots; ++i) {
      secrets_.push_back(client.Make());
      secrets_.back().row = i % kRows;
      secrets_.back().slot = static_cast<uint32_t>(i);
    }
  }
  machines::Run SlotsOf(uint32_t rank) {
    const auto before = spread_.begin() + rank;
    const uint64_t first = std::accumulate(spread_.begin(), before, uint64_t{0});
    return {first, first + *before};
  }
  Bytes SubmissionsOf(machines::Run slots) {
    Bytes list;
    for (uint64_t i = slots.begin; i < slots.end; ++i) {
      AppendLe(list, static_cast<uint32_t>(secrets_[i].submission.size()));
      Append(list, secrets_[i].submission);
    }
    return list;
  }
  // Two of three slots are used.
  wire::QueryBatch QueriesOf(machines::Run slots) {
    wire::QueryBatch batch;
    for (uint64_t i = slots.begin; i < slots.end; ++i) {
      if (i % 3 == 1) continue;
      batch.positions.push_back(static_cast<uint32_t>(i - slots.begin));
      batch.tallies.push_back(secrets_[i].FirstTally(round_->id()));
    }
    return batch;
  }

  // Of all machines of party 1.
  std::vector<absl::Status> Offline(uint64_t attempt) {
    return ByAll([this, attempt](uint32_t rank) {
      const machines::Run slots = SlotsOf(rank);
      return machine(1, rank).node->Offline(
          round_->wire(), {std::make_unique<BytesSource>(SubmissionsOf(slots)), slots.size()},
          attempt);
    });
  }
  std::vector<absl::Status> Online(uint64_t attempt) {
    answers_.assign(party(1).count, {});
    return ByAll([this, attempt](uint32_t rank) -> absl::Status {
      const machines::Run slots = SlotsOf(rank);
      const Bytes queries =
          wire::EncodeQueryBatch(QueriesOf(slots), static_cast<uint32_t>(slots.size()));
      SHOAL_ASSIGN_OR_RETURN(const auto answers,
                             machine(1, rank).node->OnlineOfKept(round_->id(), queries, attempt));
      SHOAL_ASSIGN_OR_RETURN(answers_[rank], ReadAll(*answers));
      return absl::OkStatus();
    });
  }
  const std::vector<Bytes>& answers() const { return answers_; }

  // Each answer is the row that its client asks for, byte for byte.
  void ExpectAnswers() {
    const size_t tagged_bytes = round_->tagged_bytes();
    for (uint32_t rank = 0; rank < party(1).count; ++rank) {
      const machines::Run slots = SlotsOf(rank);
      const wire::QueryBatch batch = QueriesOf(slots);
      ASSERT_EQ(answers_[rank].size(), batch.positions.size() * tagged_bytes);
      for (size_t i = 0; i < batch.positions.size(); ++i) {
        const server::testing::Secret& secret = secrets_[slots.begin + batch.positions[i]];
        Bytes answer = ToBytes(BytesView(answers_[rank]).subspan(i * tagged_bytes, tagged_bytes));
        EXPECT_TRUE(secret.Unmask(round_->id(), answer));
        EXPECT_TRUE(std::ranges::equal(answer, world_.Answer(secret.row)));
      }
    }
  }

  // What the machines of a party sent on, joined.
  Bytes List(uint32_t number) {
    Bytes list;
    for (const auto& machine : party(number).machines) {
      SHOAL_CHECK(machine->sent.list.has_value());
      Append(list, *machine->sent.list);
    }
    return list;
  }
  wire::QueryBatch Queries(uint32_t number, uint32_t& positions) {
    std::vector<server::BatchPart> parts;
    positions = 0;
    for (const auto& machine : party(number).machines) {
      const uint32_t count = party(number).count == 1
                                 ? PositionsOf(*machine->sent.list, number + 1)
                                 : static_cast<uint32_t>(machine->sent.query_run.count);
      positions += count;
      // Nothing is encoded before it is cut.
      EXPECT_EQ(machine->sent.as_batch, party(number).count > 1 || party(number + 1).count > 1);
      SHOAL_CHECK(wire::CheckQueryBatch(*machine->sent.queries, count).ok());
      parts.push_back({*machine->sent.queries, count});
    }
    return server::JoinBatches(std::move(parts));
  }
  Bytes Answers(uint32_t number) {
    Bytes joined;
    for (const auto& machine : party(number).machines) Append(joined, *machine->sent.answers);
    return joined;
  }
  uint32_t PositionsOf(const Bytes& list, uint32_t number) const {
    return static_cast<uint32_t>(list.size() /
                                 server::OnionBytesFor(world_.roster().size(), number));
  }

  // What the parties have sent, as one machine each makes it from the same seeds and the same
  // input; and the head's journal holds the digests of that.
  void ExpectWhatOneMachineMakes() {
    ThreadPool pool(2);
    SpoolPlace spools(::testing::TempDir(), 1 << 26);
    const server::Resources resources{.pool = &pool, .spools = &spools};
    const noise::Distribution noise = *noise::Distribution::Create(world_.roster().noise());
    struct Made {
      server::RoundContext context;
      server::LastingSecrets secrets;
      server::OnlineMaterial material;
      wire::QueryBatch queries;
      server::Forwarding forwarding;
    };
    struct Batch {
      wire::QueryBatch batch;
      uint32_t positions;
    };
    std::vector<std::unique_ptr<Made>> made;
    Bytes input = SubmissionsOf({0, secrets_.size()});
    for (uint32_t number = 1; number <= size(); ++number) {
      const Seed root = Root(number);
      auto& one = *made.emplace_back(
          new Made{.context = {.counter = round_->counter(),
                               .round_id = round_->id(),
                               .party = PartyNumber(number),
                               .parties = size(),
                               .answer_bytes = round_->answer_bytes(),
                               .max_rows = kRows,
                               .max_slots = 1000,
                               .noise = noise,
                               .next_recipients = {round_->recipients().begin() + number,
                                                   round_->recipients().end()}},
                   .secrets = server::LastingSecrets(root),
                   .material = {},
                   .queries = {},
                   .forwarding = {}});
      const server::OfflineSecrets secrets(root);
      auto noise_batch = server::MakeNoise(one.context, secrets, resources);
      SHOAL_ASSERT_OK(noise_batch.status());
      auto out = server::RunOffline(one.context, secrets, *std::move(noise_batch), input,
                                    secrets_.size(), resources);
      SHOAL_ASSERT_OK(out.status());
      one.material = std::move(out->material);
      ExpectDigest(number, server::Content::kOfflineInput, input);
      SHOAL_ASSERT_OK_AND_ASSIGN(input, ReadAll(out->onions));
      ExpectDigest(number, server::Content::kOfflineOutput, input);
      if (number < size()) {
        EXPECT_EQ(List(number), input);
      }
    }
    Batch queries{QueriesOf({0, secrets_.size()}), static_cast<uint32_t>(secrets_.size())};
    for (uint32_t number = 1; number < size(); ++number) {
      Made& one = *made[number - 1];
      one.queries = queries.batch;
      ExpectDigest(number, server::Content::kQueriesInput,
                   wire::EncodeQueryBatch(queries.batch, queries.positions));
      auto forwarding = server::ForwardQueries(one.context, one.material, one.queries, resources);
      SHOAL_ASSERT_OK(forwarding.status());
      one.forwarding = *std::move(forwarding);
      ExpectDigest(number, server::Content::kQueriesOutput, one.forwarding.queries);
      uint32_t positions;
      const wire::QueryBatch sent = Queries(number, positions);
      EXPECT_EQ(wire::EncodeQueryBatch(sent, positions), one.forwarding.queries);
      queries = {sent, positions};
    }
    Made& last = *made.back();
    last.queries = queries.batch;
    const auto last_keys =
        server::AnswerKeys::Of(last.context, last.secrets, last.material, last.queries);
    auto source =
        server::AnswerQueries(last_keys, world_.Epoch(1, world_.parties()).answers, resources);
    SHOAL_ASSERT_OK(source.status());
    SHOAL_ASSERT_OK_AND_ASSIGN(Bytes answers, ReadAll(**source));
    ExpectDigest(size(), server::Content::kAnswersOutput, answers);
    for (uint32_t number = size() - 1; number >= 1; --number) {
      Made& one = *made[number - 1];
      EXPECT_EQ(Answers(number), answers);
      auto intake = server::AnswerIntake::Begin(one.context, one.queries, one.forwarding,
                                                answers.size(), resources);
      SHOAL_ASSERT_OK(intake.status());
      SHOAL_ASSERT_OK(intake->Take(answers));
      ExpectDigest(number, server::Content::kAnswersInput, answers);
      const auto keys = server::AnswerKeys::Of(one.context, one.secrets, one.material, one.queries);
      auto back = server::ReturnAnswers(keys, *std::move(intake), resources);
      SHOAL_ASSERT_OK(back.status());
      SHOAL_ASSERT_OK_AND_ASSIGN(answers, ReadAll(**back));
      ExpectDigest(number, server::Content::kAnswersOutput, answers);
    }
    Bytes joined;
    for (const Bytes& each : answers_) Append(joined, each);
    EXPECT_EQ(joined, answers);
  }

  // The journal takes the digest of these bytes, and so has no other one.
  void ExpectDigest(uint32_t number, server::Content content, BytesView bytes) {
    SHOAL_EXPECT_OK(party(number).journal->CommitRound(
        round_->counter(), content, server::testing::DigestOf(Root(number), content, bytes)))
        << number << " " << server::ContentName(content);
  }
  // The journal has none yet: it would take any.
  bool Committed(uint32_t number, server::Content content) {
    return !party(number).journal->CommitRound(round_->counter(), content, Digest{1, 2, 3}).ok();
  }
  void ExpectRoundIsGone(uint32_t number) {
    for (const auto& machine : party(number).machines) {
      // The end takes a tick.
      EXPECT_TRUE(::shoal::testing::Soon([&] { return machine->party->open_rounds() == 0; }));
    }
  }
  // The party's processes die and come back with what is on the head's disk.
  void Restart(uint32_t number) {
    PartyOfMachines& old = party(number);
    for (const auto& machine : old.machines) machine->server.reset();
    for (const auto& machine : old.machines) {
      if (machine->stages != nullptr) machine->stages->CancelAll();
      machine->party->EndAll();
      machine->service.reset();
      machine->stages.reset();
    }
    if (old.count > 1) {
      SHOAL_EXPECT_OK(old.machines[0]->control->Stop());
    }
    for (const auto& machine : old.machines) machine->control.reset();
    old.machines.clear();
    old.journal.reset();
    Start(number);
  }
  roster::Party Addresses(uint32_t number) {
    roster::Party party = world_.roster().party(number);
    const PartyOfMachines& own = this->party(number);
    party.tls_certificate_sha256 = own.identity->digest();
    party.other_machines.clear();
    for (const auto& machine : own.machines) {
      const std::string address = absl::StrCat("127.0.0.1:", machine->server->port());
      if (machine == own.machines.front()) {
        party.peer_address = address;
      } else {
        party.other_machines.push_back({address, ""});
      }
    }
    return party;
  }

 private:
  std::vector<absl::Status> ByAll(const std::function<absl::Status(uint32_t rank)>& work) {
    std::vector<std::future<absl::Status>> calls;
    for (uint32_t rank = 0; rank < party(1).count; ++rank) {
      calls.push_back(std::async(std::launch::async, [&work, rank] { return work(rank); }));
    }
    std::vector<absl::Status> out;
    for (auto& call : calls) out.push_back(call.get());
    return out;
  }

  void Start(uint32_t number) {
    PartyOfMachines& own = party(number);
    own.journal = std::make_unique<server::testing::MemoryJournal>(&own.disk);
    own.rounds = std::make_unique<RoundClusters>(own.count);
    if (own.count > 1) own.control_cluster = std::make_unique<LocalCluster>(own.count);
    for (uint32_t rank = 0; rank < own.count; ++rank) {
      own.machines.push_back(std::make_unique<MachineOfParty>(number + 100 * rank));
    }
    for (uint32_t rank = 0; rank < own.count; ++rank) StartMachine(number, rank);
  }

  void StartMachine(uint32_t number, uint32_t rank) {
    PartyOfMachines& own = party(number);
    MachineOfParty& self = *own.machines[rank];
    const bool backend = number == size();
    server::TableEpoch epoch = world_.Epoch(1, number);
    Party::Options options{
        .number = PartyNumber(number), .roster = world_.roster(), .table = std::move(epoch)};
    if (own.count > 1) {
      options.machines = {
          .rank = rank,
          .count = own.count,
          .join = [&own, rank](uint32_t, const Digest& id) { return own.rounds->Join(rank, id); },
          .opened = [&self](const server::RoundOpening& opening) { self.control->Opened(opening); },
          .ended =
              [&self](const Digest& id) {
                if (self.party->rank() == 0) self.control->Ended(id);
              }};
    }
    const server::Resources resources = world_.resources();
    auto party =
        rank == 0
            ? Party::Create(std::move(options), world_.key(number), own.journal.get(), &self.random,
                            &world_.clock(), resources)
            : Party::CreateOther(std::move(options), &self.random, &world_.clock(), resources);
    SHOAL_CHECK(party.ok());
    self.party = *std::move(party);
    if (own.count > 1) {
      self.control_link = own.control_cluster->Join(rank);
      self.control_machines = std::make_unique<Machines>(
          self.control_link.transport.get(), RoundClusters::Key({}), self.control_link.clock,
          &self.control_random, own.control_cluster->options());
      self.control = std::make_unique<MachineControl>(
          self.control_machines.get(),
          MachineControl::Options{
              .party = self.party.get(), .clock = &world_.clock(), .period = 10ms});
    }
    if (!backend) {
      const roster::Party to = Addresses(number + 1);
      self.link = std::make_unique<PeerLink>(
          std::make_unique<TlsCalls>(to, own.identity->tls()),
          PeerLink::Options{
              .party = to.number,
              .machines = to.machines,
              .senders = own.count,
              .answer_bytes = [&self](const Digest& id) { return self.party->AnswerBytes(id); },
              .stage_limit = 100s,
              .spools = &world_.spools()});
      self.tap = std::make_unique<Tap>(self.link.get(), rank, &self.sent, &own.breaks);
    }
    self.node = std::make_unique<server::ChainNode>(self.party.get(), self.tap.get());
    if (number == 1) return;
    const uint32_t senders = this->party(number - 1).count;
    self.stages = std::make_unique<PartStages>(PartsOf(*self.node, senders, &world_.spools()));
    self.service =
        std::make_unique<PeerService>(self.stages.get(), rank == 0 ? self.node.get() : nullptr);
    auto server = net::Server::Start(
        {.address = "127.0.0.1:0",
         .identity = own.identity->identity(),
         .clients = {this->party(number - 1).identity->digest()},
         .limits = [&self](FrameType type) { return self.service->Limits(type); },
         .sink = [&self](const wire::Frame& request,
                         uint64_t bytes) { return self.service->Sink(request, bytes); }},
        [&self](wire::Frame request, net::Reply reply) {
          self.service->Handle(std::move(request), std::move(reply));
        });
    SHOAL_CHECK(server.ok());
    self.server = *std::move(server);
  }

  server::testing::World world_;
  uint64_t rounds_ = 0;
  std::vector<std::unique_ptr<PartyOfMachines>> parties_;
  std::optional<round::Round> round_;
  std::vector<size_t> spread_;  // of slots over the machines of party 1
  std::vector<server::testing::Secret> secrets_;
  std::vector<Bytes> answers_;
};

void ExpectAllOk(const std::vector<absl::Status>& all) {
  for (const absl::Status& status : all) SHOAL_EXPECT_OK(status);
}

class PartyRoundTest : public ::testing::TestWithParam<std::vector<uint32_t>> {};

TEST_P(PartyRoundTest, ARoundIsWhatOneMachineEachMakes) {
  Chain chain(GetParam());
  SHOAL_ASSERT_OK(chain.Announce());
  chain.Submit(kSlots);
  ExpectAllOk(chain.Offline(1));
  ExpectAllOk(chain.Online(2));
  chain.ExpectAnswers();
  chain.ExpectWhatOneMachineMakes();
  // All of it again: the same bytes.
  const std::vector<Bytes> answers = chain.answers();
  ExpectAllOk(chain.Online(3));
  EXPECT_EQ(chain.answers(), answers);
}

INSTANTIATE_TEST_SUITE_P(Machines, PartyRoundTest,
                         ::testing::Values(std::vector<uint32_t>{1, 1}, std::vector<uint32_t>{1, 2},
                                           std::vector<uint32_t>{2, 1}, std::vector<uint32_t>{2, 4},
                                           std::vector<uint32_t>{4, 3},
                                           std::vector<uint32_t>{2, 3, 1},
                                           std::vector<uint32_t>{2, 1, 1},
                                           std::vector<uint32_t>{1, 1, 2},
                                           std::vector<uint32_t>{2, 1, 2}),
                         [](const auto& counts) {
                           std::string name = "Of";
                           for (const uint32_t count : counts.param)
                             absl::StrAppend(&name, "_", count);
                           return name;
                         });

// Reports are the party's, and the same as those of one machine but for times.
TEST(PartyChainTest, ReportsAreOfTheWholeParty) {
  Chain chain({2, 3, 1});
  SHOAL_ASSERT_OK(chain.Announce());
  chain.Submit(kSlots);
  ExpectAllOk(chain.Offline(1));
  ExpectAllOk(chain.Online(2));
  SHOAL_ASSERT_OK_AND_ASSIGN(const server::StageReports reports,
                             chain.machine(1, 0).node->Reports(chain.round().id()));
  uint64_t in = kSlots;
  for (uint32_t party = 1; party <= 3; ++party) {
    uint64_t noise = 0, onward = 0;
    for (const wire::StageReport& report : reports) {
      if (report.party() != party) continue;
      if (report.stage() == "noise") noise = report.noise_queries();
      if (report.stage() == "offline") {
        EXPECT_EQ(report.positions_in(), in);
        EXPECT_EQ(report.noise_queries(), noise);
        onward = report.positions_out();
        if (party < 3) {
          EXPECT_EQ(onward, in + noise);
        }
      }
    }
    in = onward;
  }
  EXPECT_EQ(reports.size(), 4u + 4u + 2u);
}

// What all machines of a party say of a round in which party 1's machines have so many clients,
// without times, and without the length of the queries that party 1 takes.
void ReportsOfSpread(const std::vector<size_t>& spread, std::string& told, uint64_t& query_bytes) {
  Chain chain({2, 3, 1});
  SHOAL_ASSERT_OK(chain.Announce());
  chain.Submit(spread);
  ExpectAllOk(chain.Offline(1));
  ExpectAllOk(chain.Online(2));
  chain.ExpectAnswers();
  for (uint32_t rank = 0; rank < 2; ++rank) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const server::StageReports reports,
                               chain.machine(1, rank).node->Reports(chain.round().id()));
    std::string all;
    for (wire::StageReport report : reports) {
      report.clear_seconds();
      report.clear_cpu_seconds();
      if (report.party() == 1 && report.stage() == "online") {
        query_bytes = report.bytes_in();
        report.clear_bytes_in();
      }
      all += report.DebugString();
    }
    if (rank > 0) {
      EXPECT_EQ(all, told);
    }
    told = all;
  }
}

// A frontend of several machines shows reports, all but the one number that does depend on it.
TEST(PartyChainTest, ReportsDoNotTellHowClientsAreSpread) {
  std::vector<std::string> told;
  std::vector<uint64_t> query_bytes;
  for (const auto& spread : std::vector<std::vector<size_t>>{{12, 11}, {7, 16}, {22, 1}}) {
    SCOPED_TRACE(spread[0]);
    ReportsOfSpread(spread, told.emplace_back(), query_bytes.emplace_back());
  }
  EXPECT_NE(told[0], "");
  EXPECT_EQ(told[1], told[0]);
  EXPECT_EQ(told[2], told[0]);
  EXPECT_NE(query_bytes[1], query_bytes[0]);
}

// A link of one machine breaks: all machines say so, and the next try goes through.
TEST(PartyChainTest, ALinkThatBreaksAtOneMachineIsTriedAgainByAll) {
  for (const uint32_t breaking : {0u, 1u}) {
    Chain chain({2, 3, 2});
    SHOAL_ASSERT_OK(chain.Announce());
    chain.Submit(kSlots);
    // At both parties, each call once.
    std::map<std::pair<uint32_t, Call>, int> calls;
    Mutex mutex;
    for (const uint32_t number : {1u, 2u}) {
      chain.party(number).breaks = [&, number](Call call, uint32_t rank) {
        const MutexLock lock(mutex);
        return rank == breaking && ++calls[{number, call}] == 1;
      };
    }
    uint64_t attempt = 0;
    const auto until_ok = [&](const std::function<std::vector<absl::Status>(uint64_t)>& run) {
      for (int tries = 0;; ++tries) {
        ASSERT_LT(tries, 8);
        const std::vector<absl::Status> done = run(++attempt);
        for (const absl::Status& each : done) EXPECT_EQ(each, done[0]);
        if (done[0].ok()) return;
        EXPECT_THAT(done[0], StatusIs(absl::StatusCode::kUnavailable, ""));
      }
    };
    until_ok([&](uint64_t number) { return chain.Offline(number); });
    until_ok([&](uint64_t number) { return chain.Online(number); });
    chain.ExpectAnswers();
    chain.ExpectWhatOneMachineMakes();
  }
}

// Whatever fails between the machines of a party in a stage: none of them succeeds, what was to
// leave stays, and the round is gone at all of them.
TEST(PartyChainTest, AFaultBetweenMachinesEndsTheRoundAtAllOfThem) {
  using Fault = LocalCluster::Fault;
  int failed = 0;
  for (const Fault fault : {Fault::kCorrupt, Fault::kAbort}) {
    for (const uint64_t chunk : {0, 2, 4, 6, 9, 12, 16, 20, 25, 30}) {
      Chain chain({3, 1});
      chain.party(1).rounds->on_cluster = [&](LocalCluster& cluster) {
        cluster.Break(fault, 1, 2, chunk);
      };
      SHOAL_ASSERT_OK(chain.Announce());
      chain.Submit(kSlots);
      std::vector<absl::Status> done = chain.Offline(1);
      const bool offline = std::ranges::all_of(done, [](const auto& each) { return each.ok(); });
      if (offline) done = chain.Online(2);
      if (std::ranges::all_of(done, [](const auto& each) { return each.ok(); })) continue;
      ++failed;
      for (const absl::Status& each : done) {
        EXPECT_FALSE(absl::IsUnavailable(each)) << each;  // nobody is to try it again
      }
      if (!chain.Committed(1, server::Content::kOfflineOutput)) {
        EXPECT_FALSE(chain.Committed(2, server::Content::kOfflineInput));
      }
      if (!chain.Committed(1, server::Content::kQueriesOutput)) {
        EXPECT_FALSE(chain.Committed(2, server::Content::kQueriesInput));
      }
      // A fault in the last message of a stage may let some succeed, whose next call fails.
      if (std::ranges::none_of(done, [](const auto& each) { return each.ok(); })) {
        chain.ExpectRoundIsGone(1);
      }
    }
  }
  EXPECT_GT(failed, 10);
}

// The machines of a party are told of a list by different machines of the one before.
TEST(PartyChainTest, MachinesBeginOneTryOfOneList) {
  Chain chain({1, 2});
  SHOAL_ASSERT_OK(chain.Announce());
  constexpr size_t kOnion = 32;
  const auto offline = [&](uint32_t rank, uint64_t attempt, uint64_t records) {
    return std::async(std::launch::async, [&chain, rank, attempt, records]() -> absl::Status {
      const uint64_t bytes = kOnion * machines::RunOf(records, rank, 2).size();
      SHOAL_ASSIGN_OR_RETURN(
          auto intake, chain.machine(2, rank).party->BeginOffline(
                           chain.round().wire(), bytes, {.attempt = attempt, .records = records}));
      SHOAL_RETURN_IF_ERROR(intake->Take(Bytes(bytes)));
      return chain.machine(2, rank).node->Offline(chain.round().wire(), std::move(intake));
    });
  };
  // Of lists of different lengths.
  auto first = offline(0, 1, 10);
  auto second = offline(1, 1, 11);
  for (auto* call : {&first, &second}) {
    EXPECT_THAT(call->get(), StatusIs(absl::StatusCode::kInvalidArgument, "was told a list of"));
  }
  EXPECT_LE(*chain.machine(2, 0).party->Stage(chain.round().id()), server::PartyStage::kPrepared);
  // A slice that is not one of the list.
  EXPECT_THAT(chain.machine(2, 1).party->BeginOffline(chain.round().wire(), 3 * kOnion,
                                                      {.attempt = 2, .records = 10}),
              StatusIs(absl::StatusCode::kInvalidArgument, "are not slice"));
  // Without the length of the whole list.
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(chain.machine(1, 0).party->BeginOffline(chain.round().wire(), 0),
              StatusIs(kInvalid, "gets submissions"));
  EXPECT_THAT(chain.machine(2, 1).party->BeginOffline(chain.round().wire(), 0, {.attempt = 2}),
              StatusIs(kInvalid, "a whole list"));
  // One machine is at a later try: it waits, and the other one comes again.
  auto later = offline(0, 4, 10);
  EXPECT_THAT(offline(1, 3, 10).get(), StatusIs(absl::StatusCode::kAborted, "a later try"));
  EXPECT_FALSE(chain.machine(2, 1).party->IsAtWork(chain.round().id(), 3));
  SHOAL_EXPECT_OK(offline(1, 4, 10).get());
  SHOAL_EXPECT_OK(later.get());
  EXPECT_TRUE(chain.machine(2, 1).party->IsAtWork(chain.round().id(), 4));
  EXPECT_THAT(offline(1, 3, 10).get(), StatusIs(absl::StatusCode::kAborted, "a later try"));
  EXPECT_THAT(chain.machine(2, 1).party->AnswerQueries(chain.round().id(), wire::QueryBatch(),
                                                       {.attempt = 5}),
              StatusIs(kInvalid, "a whole list"));
}

TEST(PartyChainTest, ARestartedHeadRefusesItsOldRounds) {
  Chain chain({1, 3});
  SHOAL_ASSERT_OK(chain.Announce());
  chain.Submit(kSlots);
  chain.Restart(2);
  for (const auto& machine : chain.party(2).machines) {
    EXPECT_EQ(machine->party->open_rounds(), 0u);
  }
  // Its counter is used up, and nothing was kept from which the round could go on.
  EXPECT_THAT(chain.party(2).journal->CommitRound(chain.round().counter(), server::Content::kHeader,
                                                  chain.round().id()),
              StatusIs(absl::StatusCode::kFailedPrecondition, ""));
  for (const absl::Status& each : chain.Offline(1)) EXPECT_FALSE(each.ok());
}

}  // namespace
}  // namespace shoal::shoald
