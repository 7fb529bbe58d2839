#include "src/sim/simulation.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sodium.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/base/sodium_init.h"
#include "src/base/status_macros.h"
#include "src/client/chain_client.h"
#include "src/client/live_deployment.h"
#include "src/client/retrieval.h"
#include "src/client/rollback_anchor.h"
#include "src/client/state.h"
#include "src/parallel/thread_pool.h"
#include "src/sim/adversary.h"
#include "src/sim/client_transport.h"
#include "src/sim/disk.h"
#include "src/sim/machine_job.h"
#include "src/sim/network.h"
#include "src/sim/party_server.h"
#include "src/sim/scheduler.h"
#include "src/sim/term_client.h"
#include "src/sim/troubles.h"
#include "src/storage/file.h"

namespace shoal::sim {
namespace {

// After the trouble: the longest that a client may still take, and the time until rounds that ended
// must be gone everywhere.
constexpr Time kClientsEnd = 240 * kSecond;
constexpr Time kSettle = 6 * kSecond, kEndsArrive = 2 * kSecond;
constexpr uint32_t kStageLimitS = 30;
constexpr Time kMostWrongAtStart = 12 * 3600 * kSecond;
constexpr char kPartyState[] = "/sim/state";
constexpr char kJournal[] = "/sim/state/journal";
constexpr char kClientState[] = "/sim/state/client";
constexpr char kClientGuard[] = "/sim/state/client.guard";
constexpr size_t kMaxCopies = 24;
constexpr int kInitialWatchers = 2;
constexpr Address kFirstWatcher = kFirstClient + 50;
constexpr Time kWatcherCall = 70 * kSecond;
constexpr char kTerms[] = "/sim/state/terms";
// At a party of several machines: until the launcher hears that one has ended, and for which time
// the others then may still erase (scripts/party-machines).
constexpr Time kEndNoticed = 10 * kSecond, kKillAfter = 4 * kSecond;
// How likely something happens within a piece; and within one of a round that is to have a term.
constexpr double kWithinPiece = 0.5, kBeforeATerm = 0.05;

// All randomness of simulated programs that have none of their own; a generator for tests.
Rng* randomness = nullptr;

Rng& Randomness() {
  const Process* const process = Scheduler::CurrentProcess();
  return process != nullptr && process->randomness != nullptr ? *process->randomness : *randomness;
}

const char* RandomName() { return "simulated"; }
uint32_t RandomWord() { return static_cast<uint32_t>(Randomness().Next()); }
void RandomFill(void* const out, const size_t bytes) {
  auto* at = static_cast<uint8_t*>(out);
  for (size_t left = bytes; left > 0;) {
    const uint64_t word = Randomness().Next();
    const size_t n = std::min(left, sizeof word);
    std::copy_n(reinterpret_cast<const uint8_t*>(&word), n, at);
    at += n;
    left -= n;
  }
}
randombytes_implementation simulated_randomness = {.implementation_name = RandomName,
                                                   .random = RandomWord,
                                                   .stir = nullptr,
                                                   .uniform = nullptr,
                                                   .buf = RandomFill,
                                                   .close = nullptr};

// The programs' own log, with simulated time.
class LogSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const Process* const process = Scheduler::CurrentProcess();
    std::fprintf(stderr, "%10.4f  %s: %.*s\n",
                 static_cast<double>(Scheduler::Current()->now()) / kSecond,
                 process == nullptr ? "?" : process->machine->name.c_str(),
                 static_cast<int>(message.payload.size()), message.payload.data());
  }
  void flush_() override {}
};

class Simulation : public Victims {
 public:
  Simulation(const Universe& universe, const Options& options);
  Outcome Run();

 private:
  struct PartyMachines;
  struct Node {  // a party's machine
    Address address = 0;
    PartyMachines* party = nullptr;
    Disk disk;
    Machine machine;
    Process* process = nullptr;
    std::unique_ptr<PartyServer> server;  // null while it starts or is down
    uint64_t epoch = 1;                   // that its operator has put there
    bool cuts_power = false;              // how its next crash goes
    bool starts_soon = false;             // after it
    bool broken = false;                  // does not start any more
    bool ending = false;                  // in good order
    Node(Address a, uint64_t first_inode) : address(a), disk(first_inode) {}
    bool runs() const { return server != nullptr && process->alive; }
  };
  struct PartyMachines {
    std::vector<Node*> nodes;         // by rank
    std::unique_ptr<MachineJob> job;  // null at a party of one machine
    uint64_t jobs = 0;                // that were started
    bool ending = false;              // the job: its launcher ends the processes that are left
    bool several() const { return nodes.size() > 1; }
  };
  struct Lookup {
    std::vector<Bytes> keys;
    std::vector<size_t> indices;
  };
  // What a backup could have.
  struct Copy {
    Bytes state, guard;
    Disk::Snapshot disk;
  };
  struct Device {  // a client's machine
    Address address = 0;
    Disk disk, memory;
    Machine machine;
    Process* process = nullptr;
    std::vector<Lookup> lookups;
    size_t next_lookup = 0;
    uint64_t least_epoch = 0;  // that it may still believe
    bool cuts_power = false, starts_soon = false;
    bool done = false;
    bool must_succeed = false;
    size_t piece_bytes = 0;
    uint32_t max_attempts = 1;
    bool over_rounds = false;
    // Nothing has kept it from wiping what it wrote, and no round of its is under way.
    bool undisturbed = true, all_over = false;
    bool restored = false;     // its state was replaced by an old copy
    bool lost_power = false;   // and with it what is in memory
    bool clock_jumps = false;  // some time in this run
    std::deque<Copy> old_copies;
    std::set<std::string> secrets;  // master seeds that it had
    Device(Address a, uint64_t first_inode)
        : address(a), disk(first_inode), memory(first_inode + 500'000) {}
    // Whether nobody can know what an old copy lacks.
    bool may_lack() const { return restored && lost_power; }
  };
  // A client of terms (term_client.h): asks once, and looks at every refresh. It never crashes.
  struct Watcher {
    Address address = 0;
    Machine machine;
    Process process;
    bool must_succeed = false;  // comes after all trouble, and must see the last epoch
    bool done = false;
  };
  Time now() const { return scheduler_.now(); }
  void Tell(const std::string& what) const;
  void StartNode(Node& node);
  // Starts the processes of a party, or what is left of that to do.
  void StartParty(PartyMachines& party);
  // As the launcher of a party of several machines, of which one has ended: the others end, too,
  // and the party is started again.
  void EndJob(PartyMachines& party);
  // As SIGTERM.
  void Terminate(Node& node);
  void BootNode(Node& node);
  void StartDevice(Device& device);
  void RunDevice(Device& device);
  void CheckState(Device& device, client::FileStateStore& store);
  absl::Status RunLookup(Device& device, client::FileStateStore& store, const Lookup& lookup);
  void CheckResults(const Device& device, const Lookup& lookup,
                    const std::vector<client::Lookup>& results, uint64_t epoch);
  Device& AddDevice(size_t lookups);
  void StartWatcher(bool must_succeed);
  void RunWatcher(Watcher& watcher);
  // Watches one term to its end, or until the last watcher has seen what it must.
  void WatchTerm(Watcher& watcher, TermClient& client);
  // Whether `answers` are the rows that the watcher asked for, in an epoch. Those that are not are
  // a violation if nobody is malicious, or if a client would take them.
  bool CheckRows(const Watcher& watcher, const TermClient& client, uint64_t epoch,
                 const std::vector<Bytes>& answers);
  // The epoch of the table with this manifest; 0 if there is none.
  uint64_t EpochOf(const std::string& manifest_digest) const;
  bool has_terms() const { return universe_.roster().max_refreshes() > 0; }
  void Died(Process* process);
  // On a fiber that makes a piece of what the machine sends for a round, or a refresh of its term,
  // and has found that it lives. Lets the round or term end there, at the frontend or at this
  // party, the process die or end, the table get an epoch, or connections break, and waits
  // meanwhile. No piece may come of what has ended (on_next), and what it is made of must be there
  // all the time.
  void WithinPiece(Node& node, const Digest& round_id, bool of_term);
  // One of these, which begins now. Returns what the round or term meets.
  const char* Interfere(Node& node, const Digest& id, bool of_term);
  // At the head of party 1, which has several machines: ends rounds while their queries are closed.
  void EndRoundsWhileClosing(Node& node);
  // The operator puts the table's next epoch there, and the party takes it if it runs.
  void PutEpoch(Node& node, uint64_t epoch);
  Process* ProcessOf(size_t which);
  Address AddressOf(size_t which) const override;
  Machine& MachineOf(size_t which) override;
  MachineJob* JobOf(size_t party) override { return parties_[party]->job.get(); }
  void Crash(size_t which, uint64_t steps, bool power, bool starts_soon) override;
  void Restart(size_t party) override;
  void PutEpoch(size_t machine, uint64_t epoch) override { PutEpoch(*nodes_[machine], epoch); }
  void DiskWillFail(size_t which) override;
  void ClockWillJump(size_t which) override;
  void Message(Address from, Address to, wire::FrameType type, bool answer);
  void KeepCopy(Device& device);
  void BringBackCopy(Device& device);
  // Before the run: machine `rank` of party `number`, and what goes wrong.
  void SetUpMachine(uint32_t number, uint32_t rank);
  void MakeTroubles();
  void Heal();
  void CheckEnd();
  // All of them have ended as they must, and keep no seed of a round that is over.
  void CheckClients();
  // No term stays behind: it has the last epoch, or has ended.
  void CheckTerms(const Node& first, const wire::LiveRounds& list);
  // The machine has nothing of rounds and terms that have ended.
  void CheckErased(const Node& node, const std::map<Digest, uint64_t>& ended,
                   const std::set<uint64_t>& live_terms, uint64_t highest_counter);
  bool AllDone() const;
  uint64_t NewestEpoch() const;

  const Universe& universe_;
  const Options options_;
  Rng seeds_;  // of the generators below
  Rng rng_;
  Rng randomness_;
  Scheduler scheduler_;
  Network network_;
  Oracles oracles_;
  std::unique_ptr<Troubles> troubles_;
  Adversary* adversary_ = nullptr;  // of troubles_
  shoald::Rounds plan_;
  uint64_t compact_bytes_ = 0;  // of the parties' journals
  std::vector<std::unique_ptr<PartyMachines>> parties_;
  std::vector<std::unique_ptr<Node>> nodes_;  // heads first
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Watcher>> watchers_;
  bool healed_ = false;
  Rng pieces_rng_;                                      // of what happens within pieces
  std::map<const Fiber*, std::string> must_not_leave_;  // who makes a piece of what has ended
  uint64_t ends_while_closing_ = 0;                     // rounds that are still to end so
  Outcome outcome_;
};

Simulation::Simulation(const Universe& universe, const Options& options)
    : universe_(universe),
      options_(options),
      seeds_(options.seed * 0x9E3779B97F4A7C15u + 1),
      rng_(seeds_.Next()),
      randomness_(seeds_.Next()),
      scheduler_(seeds_.Next()),
      network_(&scheduler_, seeds_.Next()),
      oracles_(&scheduler_, universe.parties()),
      pieces_rng_(options.seed * 0xD1342543DE82EF95u + 3) {
  randomness = &randomness_;
  scheduler_.set_on_death([this](Process* process) { Died(process); });
  network_.on_request = [this](Address from, Address to, wire::Frame& request) {
    oracles_.Request(from, to, request);
    if (adversary_ != nullptr) adversary_->Request(from, to, request);
    oracles_.Leaves(to, request);
    Message(from, to, request.type, /*answer=*/false);
  };
  network_.on_answer = [this](Address from, Address to, const wire::Frame& request,
                              Network::Answer& answer) {
    oracles_.Answer(from, to, request, answer);
    if (adversary_ != nullptr) adversary_->Answer(from, to, request, answer.frame);
    Message(from, to, request.type, /*answer=*/true);
  };
  network_.on_next = [this](bool given) {
    const auto made = must_not_leave_.extract(Scheduler::CurrentFiber());
    if (given && !made.empty()) oracles_.Violate("pieces", made.mapped());
  };
  oracles_.is_durable = [this](Address party, BytesView bytes) {
    return nodes_[static_cast<size_t>(party) - 1]->disk.HoldsDurably(kJournal, bytes);
  };
  for (size_t i = 0; i < universe.parties(); ++i) {
    parties_.push_back(std::make_unique<PartyMachines>());
  }
  const bool rare_rounds = rng_.Chance(0.15);
  plan_.set_onions_window_s((rare_rounds ? 9 : 2) + static_cast<uint32_t>(rng_.Below(2)));
  plan_.set_queries_window_s(1 + static_cast<uint32_t>(rng_.Below(3)));
  plan_.set_answers_window_s(2 + static_cast<uint32_t>(rng_.Below(4)));
  plan_.set_max_slots(64);
  plan_.set_max_rounds(4);
  if (has_terms()) {
    shoald::Terms& terms = *plan_.mutable_terms();
    terms.set_refreshes(2 + static_cast<uint32_t>(rng_.Below(9)));
    terms.set_days(1 + static_cast<uint32_t>(rng_.Below(3)));
    terms.set_every_hours(1);
    terms.set_open_minutes(60);
  }
  // A round has seven records of 62 bytes.
  compact_bytes_ =
      rng_.Chance(0.4) ? 1 + rng_.Below(1500) : server::FileJournalOptions().compact_bytes;
}

void Simulation::Tell(const std::string& what) const {
  if (!options_.verbose) return;
  std::fprintf(stderr, "%10.4f  %s\n", static_cast<double>(now()) / kSecond, what.c_str());
}

uint64_t Simulation::NewestEpoch() const {
  uint64_t newest = 1;
  for (const auto& node : nodes_) newest = std::max(newest, node->epoch);
  return newest;
}

// --- parties ---

void Simulation::StartNode(Node& node) {
  if (node.process != nullptr && node.process->alive) return;
  ++outcome_.restarts;
  node.ending = false;
  node.process = new Process{.machine = &node.machine};
  scheduler_.Spawn(node.process, [this, &node] { BootNode(node); });
}

void Simulation::StartParty(PartyMachines& party) {
  if (!party.several()) return StartNode(*party.nodes[0]);
  party.ending = false;
  // What is left of an earlier job stays where its processes may look for it.
  static_cast<void>(party.job.release());
  party.job = std::make_unique<MachineJob>(&scheduler_, rng_.Next(),
                                           static_cast<uint32_t>(party.nodes.size()));
  ++party.jobs;
  for (Node* const node : party.nodes) {
    scheduler_.At(now() + rng_.Between(0, kSecond / 5), [this, node, job = party.jobs] {
      if (node->party->jobs == job && !node->party->ending) StartNode(*node);
    });
  }
}

void Simulation::EndJob(PartyMachines& party) {
  const auto down = [](const Node* node) {
    return node->process == nullptr || !node->process->alive;
  };
  if (!party.ending) {
    party.ending = true;
    const Time told = now() + rng_.Between(kMillisecond, kEndNoticed);
    for (Node* const node : party.nodes) {
      if (down(node)) continue;
      Process* const process = node->process;
      scheduler_.At(told, [this, node, process] {
        if (node->process == process) Terminate(*node);
      });
      scheduler_.At(told + kKillAfter, [this, process] { scheduler_.Kill(process); });
    }
  }
  if (!std::ranges::all_of(party.nodes, down)) return;
  if (std::ranges::any_of(party.nodes, [](const Node* node) { return node->broken; })) return;
  const bool soon = healed_ || std::ranges::any_of(party.nodes, &Node::starts_soon);
  scheduler_.At(now() + rng_.Between(kSecond / 20, soon ? kSecond / 2 : 8 * kSecond),
                [this, &party] { StartParty(party); });
}

void Simulation::Terminate(Node& node) {
  if (!node.process->alive || node.ending) return;
  node.ending = true;
  node.cuts_power = false;
  if (node.server == nullptr) return scheduler_.Kill(node.process);
  oracles_.Ends(static_cast<Address>(PartyAt(node.address)));
  scheduler_.Spawn(node.process, [this, &node] {
    node.server->Stop();
    scheduler_.Kill(node.process);
  });
}

void Simulation::BootNode(Node& node) {
  // A frontend that starts a day ahead gives out counters that the parties refuse for as long
  // (docs/simulation.md): a machine whose clock is as wrong sets it at boot.
  if (std::abs(node.machine.wall_offset) > kMostWrongAtStart) node.machine.wall_offset = 0;
  Process* const process = node.process;
  server::FileJournalOptions options{.compact_bytes = compact_bytes_};
  // As shoald does, whose journal says so with its lock held.
  options.broken = [this, process](const absl::Status&) {
    scheduler_.At(now(), [this, process] { scheduler_.Kill(process); });
  };
  PartyServer::Options start{.universe = &universe_,
                             .network = &network_,
                             .process = process,
                             .address = node.address,
                             .epoch = node.epoch,
                             .rounds = plan_,
                             .stage_limit_s = kStageLimitS,
                             .events = {.journal = std::move(options)}};
  if (options_.within_pieces) {
    start.events.making_piece = [this, &node](const Digest& id) { WithinPiece(node, id, false); };
    start.events.making_piece_of_term = [this, &node](const Digest& id) {
      WithinPiece(node, id, true);
    };
  }
  if (node.party->several()) {
    start.job = node.party->job->Member(RankAt(node.address));
    start.events.job_ended = [this, &node, process] {
      scheduler_.At(now(), [this, &node, process] {
        if (node.process == process) Terminate(node);
      });
    };
    start.events.not_opened = [this, &node](const absl::Status& why) {
      if (!absl::IsFailedPrecondition(why)) return;
      oracles_.Violate("epochs",
                       absl::StrCat(node.machine.name, " has signed a round: ", why.ToString()));
    };
  }
  auto server = PartyServer::Start(std::move(start));
  if (server.ok()) {
    node.server = *std::move(server);
    Tell(absl::StrCat(node.machine.name, " is up"));
    if (node.server->is_head()) {
      oracles_.Started(node.address, node.server->journal().highest_round().value());
    }
    if (adversary_ != nullptr && adversary_->party() + 1 == node.address) {
      adversary_->NextIsUp();
    }
    if (ends_while_closing_ > 0 && PartyAt(node.address) == 1 && node.server->is_head()) {
      scheduler_.Spawn(node.process, [this, &node] { EndRoundsWhileClosing(node); });
    }
    // The operator has put a newer epoch there meanwhile.
    if (node.server->party().table()->epoch < node.epoch) {
      node.server->Take(node.epoch).IgnoreError();
    }
    return;
  }
  Tell(absl::StrCat(node.machine.name, " does not start: ", server.status().ToString()));
  const bool disk = absl::IsResourceExhausted(server.status()) ||
                    absl::IsUnavailable(server.status()) ||
                    absl::IsPermissionDenied(server.status());
  if (!disk) {
    oracles_.Violate(
        "alive", absl::StrCat(node.machine.name, " does not start: ", server.status().ToString()));
    node.broken = true;
  }
  scheduler_.Kill(node.process);
}

const char* Simulation::Interfere(Node& node, const Digest& id, bool of_term) {
  const auto end_at = [this, id, of_term](Node& where) {
    if (!where.runs()) return;
    scheduler_.Spawn(where.process, [&where, id, of_term] {
      if (of_term) return where.server->terms()->End(id, "the simulation ends it");
      if (where.server->frontend() != nullptr && where.server->is_head()) {
        return where.server->EndRound(id, "the simulation ends it");
      }
      where.server->party().End(id).IgnoreError();
    });
  };
  switch (pieces_rng_.Below(6)) {
    case 0:
      end_at(*nodes_[0]);
      return "ends at the frontend";
    case 1:
      end_at(node);
      return "ends at this party";
    case 2: {
      const auto which = static_cast<size_t>(
          std::ranges::find(nodes_, &node, [](const auto& one) { return one.get(); }) -
          nodes_.begin());
      Crash(which, pieces_rng_.Below(uint64_t{1} << pieces_rng_.Below(6)), pieces_rng_.Chance(0.3),
            /*starts_soon=*/true);
      return "meets a crash";
    }
    case 3:
      Terminate(node);
      return "meets the end of the process in good order";
    case 4: {
      const uint64_t most = has_terms() ? universe_.epochs() - 1 : kEpochs;
      for (const auto& one : nodes_) {
        scheduler_.At(now() + pieces_rng_.Between(0, kSecond),
                      [this, one = one.get(), epoch = std::min(most, NewestEpoch() + 1)] {
                        PutEpoch(*one, epoch);
                      });
      }
      return "meets a new epoch";
    }
    default:
      network_.BreakCalls(node.process);
      return "meets connections that break";
  }
}

void Simulation::WithinPiece(Node& node, const Digest& round_id, bool of_term) {
  if (healed_ || !node.runs()) return;
  if (!pieces_rng_.Chance(has_terms() && !of_term ? kBeforeATerm : kWithinPiece)) return;
  PartyServer& server = *node.server;
  const Digest id = round_id;
  const auto lives = [&] {
    return of_term ? server.terms()->Find(id).ok() : server.party().Stage(id).ok();
  };
  // Another fiber may have ended it since the program looked. A term that ends while its files
  // cannot be erased leaves them until the next start.
  if (!lives() || (of_term && troubles_->disk_fails())) return;
  ++outcome_.within_pieces;
  const char* const what = Interfere(node, id, of_term);
  Tell(absl::StrCat(node.machine.name, ": a piece of ", of_term ? "term " : "round ",
                    Hex(BytesView(id).first(4)), ".. ", what));
  scheduler_.Sleep(pieces_rng_.Between(0, pieces_rng_.Chance(0.5) ? kSecond : 50 * kMillisecond));
  if (round_id != id) {
    oracles_.Violate("pieces", absl::StrCat(node.machine.name,
                                            ": what a piece is made of is gone before it is made"));
  }
  if (lives()) return;
  ++outcome_.ended_within_pieces;
  must_not_leave_[Scheduler::CurrentFiber()] =
      absl::StrCat(node.machine.name, ": a piece leaves although its ", of_term ? "term" : "round",
                   " has ended while it was made; it ", what);
}

void Simulation::EndRoundsWhileClosing(Node& node) {
  PartyServer& server = *node.server;
  std::set<Digest> seen;
  while (!healed_ && ends_while_closing_ > 0) {
    scheduler_.Sleep(rng_.Between(kMillisecond, 20 * kMillisecond));
    for (const Digest& id : server.frontend()->OpenRounds()) {
      const auto state = server.frontend()->State(id);
      if (!state.ok() || *state != wire::ANSWERING || !seen.insert(id).second) continue;
      // At once, so that the end comes with the orders to close, or when they are under way.
      if (rng_.Chance(0.7)) scheduler_.Sleep(rng_.Between(0, 400 * kMillisecond));
      uint64_t closed = 0, machines = 0;
      for (const Node* const one : node.party->nodes) {
        if (!one->runs()) continue;
        const auto stage = one->server->frontend()->Stage(id);
        ++machines;
        closed += stage.ok() && *stage == server::FrontendStage::kOnline ? 1 : 0;
      }
      if (0 < closed && closed < machines) ++outcome_.ended_while_closing;
      --ends_while_closing_;
      Tell("a round ends while its queries are closed");
      server.EndRound(id, "the simulation ends it");
    }
  }
}

void Simulation::Died(Process* process) {
  for (const auto& node : nodes_) {
    if (node->process != process) continue;
    ++outcome_.crashes;
    // What it had in memory is lost, and its objects must not clean up.
    static_cast<void>(node->server.release());
    network_.Died(process, node->cuts_power);
    oracles_.Stopped(static_cast<Address>(PartyAt(node->address)));
    if (node->cuts_power) node->disk.CutPower(rng_);
    Tell(absl::StrCat(node->machine.name, node->cuts_power ? " loses its power"
                                          : node->ending   ? " has ended"
                                                           : " is killed"));
    if (node->party->several()) return EndJob(*node->party);
    if (node->broken) return;
    // As systemd would.
    const Time longest = healed_ || node->starts_soon ? kSecond / 2 : 8 * kSecond;
    scheduler_.At(now() + rng_.Between(kSecond / 20, longest),
                  [this, node = node.get()] { StartNode(*node); });
    return;
  }
  for (const auto& device : devices_) {
    if (device->process != process) continue;
    if (device->done) return;
    ++outcome_.crashes;
    device->undisturbed = false;
    if (device->cuts_power) {
      device->disk.CutPower(rng_);
      device->memory.Lose();
      device->lost_power = true;
    }
    Tell(
        absl::StrCat(device->machine.name, device->cuts_power ? " loses its power" : " is killed"));
    const Time longest = healed_ || device->starts_soon ? kSecond / 2 : 5 * kSecond;
    scheduler_.At(now() + rng_.Between(kSecond / 20, longest), [this, device = device.get()] {
      if (troubles_->restores_copies() && !device->old_copies.empty() && rng_.Chance(0.7)) {
        BringBackCopy(*device);
      }
      StartDevice(*device);
    });
    return;
  }
}

void Simulation::PutEpoch(Node& node, uint64_t epoch) {
  node.epoch = std::max(node.epoch, epoch);
  if (node.server == nullptr || !node.process->alive) return;
  scheduler_.Spawn(node.process, [this, &node] {
    if (node.server->party().table()->epoch >= node.epoch) return;
    const absl::Status taken = node.server->Take(node.epoch);
    Tell(absl::StrCat(node.machine.name, " takes epoch ", node.epoch, ": ", taken.ToString()));
  });
}

// --- crashes ---

Process* Simulation::ProcessOf(size_t which) {
  return which < nodes_.size() ? nodes_[which]->process : devices_[which - nodes_.size()]->process;
}

Address Simulation::AddressOf(size_t which) const {
  return which < nodes_.size() ? nodes_[which]->address : devices_[which - nodes_.size()]->address;
}

Machine& Simulation::MachineOf(size_t which) {
  return which < nodes_.size() ? nodes_[which]->machine : devices_[which - nodes_.size()]->machine;
}

void Simulation::Restart(size_t party) {
  for (Node* const node : parties_[party]->nodes) {
    if (node->runs()) Terminate(*node);
  }
}

void Simulation::DiskWillFail(size_t which) {
  if (which >= nodes_.size()) devices_[which - nodes_.size()]->undisturbed = false;
}

void Simulation::ClockWillJump(size_t which) {
  if (which >= nodes_.size()) {
    devices_[which - nodes_.size()]->clock_jumps = true;
  } else if (PartyAt(nodes_[which]->address) == 1) {
    oracles_.set_frontend_clock_jumps();
  }
}

void Simulation::Crash(size_t which, uint64_t steps, bool power, bool starts_soon) {
  Process* const process = ProcessOf(which);
  if (healed_ || process == nullptr || !process->alive) return;
  if (which < nodes_.size()) {
    nodes_[which]->cuts_power = power;
    nodes_[which]->starts_soon = starts_soon;
  } else {
    devices_[which - nodes_.size()]->cuts_power = power;
    devices_[which - nodes_.size()]->starts_soon = starts_soon;
  }
  process->dies_at_step = process->steps + 1 + steps;
}

void Simulation::Message(Address from, Address to, wire::FrameType type, bool answer) {
  if (troubles_->restores_copies() && from >= kFirstClient && from < kFirstWatcher) {
    KeepCopy(*devices_[static_cast<size_t>(from - kFirstClient)]);
  }
  troubles_->OnMessage(from, to, type, answer);
}

void Simulation::KeepCopy(Device& device) {
  const Disk::FilePointer state = device.disk.Find(kClientState);
  const Disk::FilePointer guard = device.disk.Find(kClientGuard);
  if (state == nullptr || guard == nullptr) return;
  if (!device.old_copies.empty() && device.old_copies.back().state == state->seen) return;
  if (device.old_copies.size() == kMaxCopies) device.old_copies.pop_front();
  device.old_copies.push_back(
      {.state = state->seen, .guard = guard->seen, .disk = device.disk.Take()});
}

void Simulation::BringBackCopy(Device& device) {
  device.restored = true;
  // Mostly a late one, whose rounds still run.
  const size_t ago =
      rng_.Below(std::min<size_t>(device.old_copies.size(), rng_.Chance(0.7) ? 4 : kMaxCopies));
  const Copy& copy = device.old_copies[device.old_copies.size() - 1 - ago];
  const char* how = "";
  switch (rng_.Below(4)) {
    case 0:
      how = "an old state is put back";
      device.disk.RestoreCopy(kClientState, copy.state,
                              static_cast<uint64_t>(scheduler_.WallTime()));
      break;
    case 1:
      how = "an old state is copied over the new one";
      device.disk.OverwriteInPlace(kClientState, copy.state);
      break;
    case 2:
      how = "an old state and its guard are copied over the new ones";
      device.disk.OverwriteInPlace(kClientState, copy.state);
      device.disk.OverwriteInPlace(kClientGuard, copy.guard);
      break;
    case 3:
      how = "the disk is set back to a snapshot";
      device.disk.Restore(copy.disk);
      break;
  }
  Tell(absl::StrCat(device.machine.name, ": ", how));
}

// --- clients ---

Simulation::Device& Simulation::AddDevice(size_t lookups) {
  const Address address = kFirstClient + static_cast<Address>(devices_.size());
  devices_.push_back(std::make_unique<Device>(address, static_cast<uint64_t>(address) * 1'000'000));
  Device& device = *devices_.back();
  device.machine = {
      .name = absl::StrCat("client ", address), .disk = &device.disk, .memory = &device.memory};
  device.disk.MakeDirectory("/sim/state");
  device.memory.MakeDirectory(kSimulatedMemory);
  // Small pieces: several requests for one step.
  device.piece_bytes = rng_.Chance(0.5) ? client::ChainOptions().piece_bytes : 1 + rng_.Below(400);
  device.max_attempts = 1 + static_cast<uint32_t>(rng_.Below(3));
  // A lookup that needs no term waits a minute for a round without one, in each of its rounds.
  device.over_rounds = rng_.Chance(0.1) && !has_terms();
  for (size_t i = 0; i < lookups; ++i) {
    Lookup lookup;
    const size_t keys = 1 + rng_.Below(3);
    for (size_t k = 0; k < keys; ++k) {
      lookup.indices.push_back(rng_.Below(kRecords));
      lookup.keys.push_back(ToBytes(AsBytes(Universe::Key(lookup.indices.back()))));
    }
    device.lookups.push_back(std::move(lookup));
  }
  return device;
}

void Simulation::StartDevice(Device& device) {
  device.process = new Process{.machine = &device.machine};
  scheduler_.Spawn(device.process, [this, &device] { RunDevice(device); });
}

void Simulation::CheckState(Device& device, client::FileStateStore& store) {
  const client::State& state = store.state();
  if (!device.may_lack()) oracles_.CheckLedger(device.address, state.ledger);
  const uint64_t epoch = state.table ? state.table->epoch : 0;
  if (epoch < device.least_epoch && !device.may_lack()) {
    oracles_.Violate("value", absl::StrCat(device.machine.name, " believes epoch ", epoch,
                                           " after epoch ", device.least_epoch));
  }
}

void Simulation::RunDevice(Device& device) {
  SystemRandom random;
  while (device.next_lookup < device.lookups.size()) {
    auto store = client::FileStateStore::Open(
        kClientState, client::AnchorDirectory::Below(kSimulatedMemory), random);
    absl::Status status = store.status();
    if (store.ok()) {
      CheckState(device, **store);
      // Only what was stored counts as seen.
      if ((*store)->state().table) device.least_epoch = (*store)->state().table->epoch;
      status = RunLookup(device, **store, device.lookups[device.next_lookup]);
      if (!status.ok()) oracles_.GaveUp(device.address);
      CheckState(device, **store);
      device.all_over =
          std::ranges::all_of((*store)->state().rounds, [](const auto& held) { return held.over; });
      for (const client::HeldRound& held : (*store)->state().rounds) {
        if (status.ok() && !held.over && oracles_.Fetched(device.address, held.id)) {
          oracles_.Violate("erased", absl::StrCat(device.machine.name, " keeps the seed of round ",
                                                  held.counter(), ", which is answered"));
        }
      }
    }
    Tell(absl::StrCat(device.machine.name, ": lookup ", device.next_lookup + 1, ": ",
                      status.ToString()));
    status.ok() ? ++outcome_.lookups_answered : ++outcome_.lookups_failed;
    // Also the code of a disk that is read-only.
    const bool denied =
        absl::IsPermissionDenied(status) && absl::StrContains(status.message(), "token");
    const bool strange = denied || absl::IsInternal(status) || absl::IsDataLoss(status) ||
                         absl::IsInvalidArgument(status) || absl::IsUnknown(status) ||
                         absl::IsNotFound(status) || absl::IsUnauthenticated(status);
    const bool clock = absl::IsUnauthenticated(status) && device.clock_jumps;
    if (strange && !clock && adversary_ == nullptr && !device.restored) {
      oracles_.Violate("kept", absl::StrCat(device.machine.name, ": ", status.ToString()));
    }
    if (!status.ok() && device.must_succeed) {
      oracles_.Violate("alive", absl::StrCat(device.machine.name,
                                             " comes after all trouble: ", status.ToString()));
    }
    if (status.ok() || healed_) {
      ++device.next_lookup;
    } else if (rng_.Chance(0.5)) {
      ++device.next_lookup;  // gives it up
    } else {
      scheduler_.Sleep(rng_.Between(0, 3 * kSecond));  // tries again by hand
    }
  }
  device.done = true;
}

absl::Status Simulation::RunLookup(Device& device, client::FileStateStore& store,
                                   const Lookup& lookup) {
  SystemRandom random;
  const UndisturbedClock clock;
  ThreadPool pool(1);
  ClientTransport transport(&network_, device.address);
  // Remembers what must not outlive its round.
  const auto look = [&] {
    for (const client::HeldRound& held : store.state().rounds) {
      if (!held.over) device.secrets.insert(ToString(held.master.view()));
    }
    CheckState(device, store);
  };
  const client::Environment environment{
      .clock = &clock,
      .random = &random,
      .pool = &pool,
      .sleep = [this](uint32_t ms) { scheduler_.Sleep(ms * kMillisecond); },
      .progress =
          [&](absl::string_view what) {
            Tell(absl::StrCat(device.machine.name, ": ", std::string(what)));
            look();
          },
      .connect = [this, &device]() -> absl::StatusOr<std::unique_ptr<client::Transport>> {
        return std::make_unique<ClientTransport>(&network_, device.address);
      },
      .connect_to = [this, &device](const std::string& address)
          -> absl::StatusOr<std::unique_ptr<client::Transport>> {
        return std::make_unique<ClientTransport>(&network_, device.address,
                                                 universe_.FrontendMachine(address));
      }};
  SHOAL_ASSIGN_OR_RETURN(const auto live, client::LiveDeployment::Open(
                                              &transport, &universe_.pins(), &store, environment));
  client::ChainOptions options;
  options.pad_to = 2;
  options.connections = 2;
  options.max_attempts = healed_ ? client::kMaxAttempts : device.max_attempts;
  options.timeout_s = 120;
  options.piece_bytes = device.piece_bytes;
  if (device.over_rounds) options.beyond_phi = client::BeyondPhi::kOverRounds;
  // Each of a lookup's rounds has attempts of its own.
  const size_t rounds = device.over_rounds ? lookup.keys.size() + options.pad_to : 1;
  oracles_.Begins(device.address, device.next_lookup,
                  device.may_lack() ? client::kMaxAttempts * 100
                                    : options.max_attempts * static_cast<uint32_t>(rounds),
                  /*one_at_a_time=*/rounds == 1 && !device.restored && !device.lost_power &&
                      !device.clock_jumps && !troubles_->epochs_change());
  SHOAL_ASSIGN_OR_RETURN(
      const auto chain,
      client::ChainClient::Create(&live->current(), options, &transport, &store, environment));
  std::vector<client::Lookup> results;
  SHOAL_RETURN_IF_ERROR(live->Follow(*chain, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(results,
                           client::LookUp(live->current(), *chain, lookup.keys, environment));
    return absl::OkStatus();
  }));
  const uint64_t epoch = live->current().manifest().epoch();
  device.least_epoch = std::max(device.least_epoch, epoch);
  CheckResults(device, lookup, results, epoch);
  return absl::OkStatus();
}

void Simulation::CheckResults(const Device& device, const Lookup& lookup,
                              const std::vector<client::Lookup>& results, uint64_t epoch) {
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t index = lookup.indices[i];
    const client::Lookup& result = results[i];
    const bool there = index < universe_.Records(epoch);
    std::string wrong;
    switch (result.outcome) {
      case client::Lookup::Outcome::kFound:
        if (!there || AsText(result.value) != Universe::Value(index, epoch)) {
          wrong = absl::StrCat("found ", std::string(AsText(result.value)));
        }
        break;
      case client::Lookup::Outcome::kAbsent:
        if (there) wrong = "absent";
        break;
      case client::Lookup::Outcome::kUnknown:
        wrong = "unknown, and no epoch keeps its rows";
        break;
      case client::Lookup::Outcome::kFailed:
        if (adversary_ == nullptr) wrong = result.error.ToString();
        break;
    }
    if (!wrong.empty()) {
      oracles_.Violate("value", absl::StrCat(device.machine.name, ", key ", index, ", epoch ",
                                             epoch, ": ", wrong));
    }
  }
}

// --- clients of terms ---

void Simulation::StartWatcher(bool must_succeed) {
  watchers_.push_back(std::make_unique<Watcher>());
  Watcher& watcher = *watchers_.back();
  watcher.address = kFirstWatcher + static_cast<Address>(watchers_.size() - 1);
  watcher.machine = {.name = absl::StrCat("watcher ", watcher.address)};
  watcher.process = {.machine = &watcher.machine};
  watcher.must_succeed = must_succeed;
  scheduler_.Spawn(&watcher.process, [this, &watcher] { RunWatcher(watcher); });
}

uint64_t Simulation::EpochOf(const std::string& manifest_digest) const {
  for (uint64_t epoch = 1; epoch <= universe_.epochs(); ++epoch) {
    if (AsText(universe_.table(epoch)->manifest().digest()) == manifest_digest) return epoch;
  }
  return 0;
}

bool Simulation::CheckRows(const Watcher& watcher, const TermClient& client, uint64_t epoch,
                           const std::vector<Bytes>& answers) {
  bool right = epoch > 0 && answers.size() == client.rows().size();
  bool taken = !right && adversary_ == nullptr;
  if (epoch > 0) {
    const table::Table& table = *universe_.table(epoch);
    SystemRandom random;
    for (size_t i = 0; i < std::min(answers.size(), client.rows().size()); ++i) {
      const uint32_t number = client.rows()[i];
      Bytes row(table.answer_bytes());
      table.CopyAnswer(number, row);
      if (row == answers[i]) continue;
      right = false;
      // As every client, which looks at signatures alone.
      const table::RowAnswer answer = {number, answers[i]};
      taken |=
          adversary_ == nullptr ||
          (answers[i].size() == row.size() &&
           table.content().map().VerifyAnswers(universe_.roster(), {&answer, 1}, random)[0].ok());
    }
  }
  if (taken) {
    oracles_.Violate("value", absl::StrCat(watcher.machine.name, " takes wrong rows of epoch ",
                                           epoch, " in round ", client.round().counter()));
  }
  return right;
}

void Simulation::RunWatcher(Watcher& watcher) {
  SystemRandom random;
  for (size_t lookup = 0; !watcher.done; ++lookup) {
    oracles_.Begins(watcher.address, lookup, 1, /*one_at_a_time=*/false);
    TermClient client(&universe_.roster(), &random,
                      [&](const wire::Frame& request) -> absl::StatusOr<wire::Frame> {
                        SHOAL_ASSIGN_OR_RETURN(
                            Network::Answer answer,
                            network_.Call(watcher.address, 1, request, kWatcherCall));
                        return std::move(answer.frame);
                      });
    std::vector<uint32_t> rows(1 + rng_.Below(3));
    for (uint32_t& row : rows) row = static_cast<uint32_t>(rng_.Below(universe_.table(1)->rows()));
    const auto answers = client.Enrol(rows);
    Tell(absl::StrCat(watcher.machine.name, ": enrols in round ", client.round().counter(), ": ",
                      answers.status().ToString()));
    if (answers.ok()) {
      CheckRows(watcher, client, EpochOf(client.round().manifest_digest()), *answers);
      WatchTerm(watcher, client);
    }
    scheduler_.Sleep(rng_.Between(kSecond / 5, 2 * kSecond));
  }
}

void Simulation::WatchTerm(Watcher& watcher, TermClient& client) {
  const uint64_t enrolled = EpochOf(client.round().manifest_digest());
  // After all trouble the table has one more epoch.
  uint64_t last = 0;
  if (watcher.must_succeed) {
    last = NewestEpoch() + 1;
    for (const auto& node : nodes_) {
      scheduler_.At(now() + rng_.Between(0, 3 * kSecond),
                    [this, node = node.get(), last] { PutEpoch(*node, last); });
    }
  }
  uint32_t number = 0;
  uint64_t epoch = enrolled;
  while (!watcher.done) {
    scheduler_.Sleep(rng_.Between(kSecond / 5, 2 * kSecond));
    const auto latest = client.Latest();
    if (absl::IsNotFound(latest.status())) {
      Tell(absl::StrCat(watcher.machine.name, ": ", latest.status().ToString()));
      if (watcher.must_succeed) {
        oracles_.Violate("alive", absl::StrCat(watcher.machine.name,
                                               " comes after all trouble, and its term has ended"));
        watcher.done = true;
      }
      return;
    }
    const bool lied_to = adversary_ != nullptr && adversary_->lies_about_refreshes();
    if (!latest.ok()) {
      if (!absl::IsUnavailable(latest.status()) && !absl::IsDeadlineExceeded(latest.status()) &&
          !lied_to) {
        oracles_.Violate("value",
                         absl::StrCat(watcher.machine.name, ": ", latest.status().ToString()));
      }
      continue;
    }
    if (!latest->has_refresh()) continue;  // none yet, or the frontend was restarted
    const wire::RefreshHeader& header = latest->refresh().header();
    // An earlier one again, which all have signed: a client has seen it.
    if (lied_to && (header.number() < number || header.epoch() < epoch)) {
      ++outcome_.refreshes_not_taken;
      continue;
    }
    if (header.epoch() <= enrolled || header.number() < number || header.epoch() < epoch ||
        EpochOf(header.manifest_digest()) != header.epoch()) {
      oracles_.Violate(
          "value", absl::StrCat(watcher.machine.name, ": is given refresh ", header.number(),
                                " of epoch ", header.epoch(), " after ", number, " of ", epoch));
    }
    number = header.number();
    epoch = header.epoch();
    const auto answers = client.Fetch(*latest);
    if (answers.ok()) {
      const bool right = CheckRows(watcher, client, epoch, *answers);
      ++(right ? outcome_.refreshes_fetched : outcome_.refreshes_not_taken);
      if (right && epoch == last) watcher.done = true;
    } else if (lied_to) {
      ++outcome_.refreshes_not_taken;
    } else if (absl::IsInvalidArgument(answers.status()) ||
               absl::IsPermissionDenied(answers.status()) || absl::IsInternal(answers.status())) {
      oracles_.Violate("kept",
                       absl::StrCat(watcher.machine.name, ": ", answers.status().ToString()));
    }
  }
}

// --- the end of trouble, and of the run ---

void Simulation::Heal() {
  healed_ = true;
  Tell("nothing goes wrong any more");
  troubles_->End();
  for (const auto& node : nodes_) {
    if (node->process != nullptr) node->process->dies_at_step = 0;
    PutEpoch(*node, NewestEpoch());
  }
  for (const auto& device : devices_) {
    if (device->process != nullptr) device->process->dies_at_step = 0;
  }
  scheduler_.At(now() + 10 * kSecond, [this] {
    Device& late = AddDevice(1);
    late.must_succeed = true;
    StartDevice(late);
    if (has_terms()) StartWatcher(/*must_succeed=*/true);
  });
}

bool Simulation::AllDone() const {
  return healed_ && devices_.size() > kInitialClients &&
         std::ranges::all_of(devices_, [](const auto& device) { return device->done; }) &&
         std::ranges::all_of(watchers_, [](const auto& watcher) {
           return watcher->done || !watcher->must_succeed;
         });
}

void Simulation::CheckClients() {
  for (const auto& device : devices_) {
    if (!device->done) {
      oracles_.Violate("alive", absl::StrCat(device->machine.name, " does not end"));
    }
  }
  for (const auto& watcher : watchers_) {
    if (watcher->must_succeed && !watcher->done) {
      oracles_.Violate("alive", absl::StrCat(watcher->machine.name,
                                             " is not given the last epoch of the table"));
    }
  }
  for (const auto& device : devices_) {
    if (!device->undisturbed || !device->all_over) continue;
    for (const std::string& secret : device->secrets) {
      const std::string where = device->disk.Search(AsBytes(secret));
      if (!where.empty()) {
        oracles_.Violate("erased", absl::StrCat(device->machine.name,
                                                ": the seed of a round is still in ", where));
      }
    }
  }
}

void Simulation::CheckTerms(const Node& first, const wire::LiveRounds& list) {
  if (first.server->refreshes() == nullptr) return;
  for (const wire::TermReport& report : first.server->refreshes()->Reports()) {
    const uint64_t epoch = report.epoch();
    if (list.highest_counter() == report.counter() || epoch == NewestEpoch()) continue;
    // The round's own answers may be of that epoch.
    if (report.number() == 0 && report.problem().empty()) continue;
    // A malicious party has had another header signed for the number, which is lost: the next
    // epoch's refresh has another one.
    if (adversary_ != nullptr && absl::StrContains(report.problem(), "was signed")) continue;
    oracles_.Violate("alive", absl::StrCat("the term of round ", report.counter(),
                                           " stays at epoch ", epoch, ": ", report.problem()));
  }
}

void Simulation::CheckErased(const Node& node, const std::map<Digest, uint64_t>& ended,
                             const std::set<uint64_t>& live_terms, uint64_t highest_counter) {
  for (const auto& [id, counter] : ended) {
    if (node.server->HoldsQueries(id)) {
      oracles_.Violate(
          "erased", absl::StrCat(node.machine.name, " still has the queries of round ", counter));
    }
    if (node.server->party().Stage(id).ok()) {
      oracles_.Violate("ended", absl::StrCat(node.machine.name, " still has round ", counter));
    }
  }
  // A round that has opened meanwhile may have left a term since.
  for (const std::string& name : node.disk.Names(kTerms)) {
    uint64_t counter = 0;
    if (std::sscanf(name.c_str(), "term-%lu", &counter) == 1 && counter <= highest_counter &&
        !live_terms.contains(counter)) {
      oracles_.Violate("erased", absl::StrCat(node.machine.name, " still has ", name));
    }
  }
  for (const std::string& name : node.disk.Names(kPartyState)) {
    uint64_t counter = 0;
    const bool of_ended =
        std::sscanf(name.c_str(), "round-%lu.", &counter) == 1 &&
        std::ranges::any_of(ended, [&](const auto& round) { return round.second == counter; });
    if (of_ended) {
      oracles_.Violate("erased", absl::StrCat(node.machine.name, " still has ", name));
    }
  }
}

void Simulation::CheckEnd() {
  CheckClients();
  Node& first = *nodes_[0];
  if (first.server == nullptr || !first.process->alive) {
    return oracles_.Violate("alive", "the frontend does not run");
  }
  std::set<uint64_t> live;
  const wire::ListRoundsResponse listed = first.server->frontend()->ListRounds();
  for (const wire::RoundInfo& info : listed.rounds()) {
    if (info.state() != wire::CLOSED && info.state() != wire::ABORTED) {
      live.insert(info.header().header().counter());
    }
  }
  const wire::LiveRounds list = first.server->frontend()->Live().list();
  // Where the party has several machines, clients are not shown a round before all have opened it.
  live.insert(list.rounds().begin(), list.rounds().end());
  live.insert(list.drafts().begin(), list.drafts().end());
  std::set<uint64_t> live_terms = live;
  live_terms.insert(list.terms().begin(), list.terms().end());
  CheckTerms(first, list);
  // The end of a round may be on its way just now.
  std::map<Digest, uint64_t> ended = oracles_.rounds();
  std::erase_if(ended, [&](const auto& round) { return live.contains(round.second); });
  scheduler_.Sleep(kEndsArrive);
  for (const auto& node : nodes_) {
    if (node->server == nullptr || !node->process->alive) {
      oracles_.Violate("alive", absl::StrCat(node->machine.name, " does not run"));
      continue;
    }
    CheckErased(*node, ended, live_terms, list.highest_counter());
  }
}

void Simulation::SetUpMachine(uint32_t number, uint32_t rank) {
  const Address address = MachineAddress(number, rank);
  const size_t index = nodes_.size();
  nodes_.push_back(std::make_unique<Node>(address, static_cast<uint64_t>(address) * 1'000'000));
  Node& node = *nodes_.back();
  node.party = parties_[number - 1].get();
  node.party->nodes.push_back(&node);
  node.machine = {.name = absl::StrCat("party ", number, rank == 0 ? "" : absl::StrCat(".", rank)),
                  .disk = &node.disk};
  node.disk.on_rename = [this, number, rank](const Disk::File& file, const Disk::File* replaced) {
    if (absl::EndsWith(file.path, ".seed")) {
      oracles_.Violate("erased", absl::StrCat("party ", number, " stores ", file.path));
    }
    if (rank == 0 && file.path == kJournal && replaced != nullptr) {
      // The name may be durable before the content: what counts is what a power cut would leave.
      oracles_.JournalReplaced(static_cast<Address>(number), replaced->durable, file.durable);
    }
  };
  node.disk.on_create = [this, index](const Disk::File& file) {
    if (absl::StartsWith(file.path, absl::StrCat(kJournal, kTemporarySuffix))) {
      troubles_->OnJournal(index, /*compaction=*/true);
    }
  };
  node.disk.on_write = [this, index](const Disk::File& file) {
    if (file.path == kJournal) troubles_->OnJournal(index, /*compaction=*/false);
  };
}

void Simulation::MakeTroubles() {
  troubles_ = std::make_unique<Troubles>(Troubles::Place{
      .universe = universe_,
      .options = options_,
      .rng = rng_,
      .scheduler = scheduler_,
      .network = network_,
      .oracles = oracles_,
      .victims = *this,
      .journals_shrink = compact_bytes_ < server::FileJournalOptions().compact_bytes});
  adversary_ = troubles_->adversary();
  ends_while_closing_ = troubles_->ends_while_closing();
  for (const std::string& what : troubles_->names()) Tell("trouble: " + what);
  oracles_.set_whole(!troubles_->links_fail() && adversary_ == nullptr);
}

Outcome Simulation::Run() {
  // Heads first, so that party j is the node before number j.
  for (uint32_t number = 1; number <= universe_.parties(); ++number) SetUpMachine(number, 0);
  for (uint32_t number = 1; number <= universe_.parties(); ++number) {
    const uint32_t machines = universe_.roster().party(number).machines;
    for (uint32_t rank = 1; rank < machines; ++rank) SetUpMachine(number, rank);
  }
  for (int i = 0; i < kInitialClients; ++i) AddDevice(1 + rng_.Below(2));
  MakeTroubles();
  for (const auto& party : parties_) {
    scheduler_.At(rng_.Between(0, kSecond / 2),
                  [this, party = party.get()] { StartParty(*party); });
  }
  for (const auto& device : devices_) {
    scheduler_.At(rng_.Between(kSecond / 2, 3 * kSecond),
                  [this, device = device.get()] { StartDevice(*device); });
  }
  for (int i = 0; has_terms() && i < kInitialWatchers; ++i) {
    scheduler_.At(rng_.Between(kSecond / 2, 3 * kSecond),
                  [this] { StartWatcher(/*must_succeed=*/false); });
  }
  scheduler_.At(troubles_->ends(), [this] { Heal(); });
  scheduler_.Run([this] {
    return AllDone() || now() > troubles_->ends() + (has_terms() ? 3 : 1) * kClientsEnd;
  });
  const Time end = now() + kSettle;
  scheduler_.At(end, [] {});
  scheduler_.Run([this, end] { return now() >= end; });
  // On a fiber, as a program may hold a lock just now.
  Machine observer{.name = "observer"};
  Process observation{.machine = &observer};
  bool checked = false;
  scheduler_.Spawn(&observation, [this, &checked] {
    CheckEnd();
    checked = true;
  });
  scheduler_.Run([&] { return checked; });
  outcome_.digest = scheduler_.digest();
  outcome_.events = scheduler_.events();
  outcome_.simulated_seconds = static_cast<double>(now()) / kSecond;
  outcome_.violations = oracles_.violations();
  outcome_.rounds = oracles_.rounds().size();
  outcome_.parts_miscut = adversary_ == nullptr ? 0 : adversary_->miscut();
  outcome_.refreshes_tampered = adversary_ == nullptr ? 0 : adversary_->tampered();
  outcome_.rounds_answered = oracles_.answered();
  outcome_.troubles = absl::StrJoin(troubles_->names(), "; ");
  return outcome_;
}

}  // namespace

void PrepareProcess() {
  static Rng before(0);
  randomness = &before;
  // Whose curve has a stand-in (fake_curves.cc). Equal runs on any machine, too.
  UseInstructionSet(InstructionSet::kPortable);
  SHOAL_CHECK(randombytes_set_implementation(&simulated_randomness) == 0);
  SHOAL_CHECK(InitSodium());
}

Outcome Simulate(const Universe& universe, const Options& options) {
  // Never deleted: its processes are not torn down.
  auto* const simulation = new Simulation(universe, options);
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("simulation", std::make_shared<LogSink>()));
  spdlog::set_level(options.verbose ? spdlog::level::info : spdlog::level::off);
  return simulation->Run();
}

}  // namespace shoal::sim
