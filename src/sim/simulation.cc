#include "src/sim/simulation.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
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
#include "src/client/state.h"
#include "src/parallel/thread_pool.h"
#include "src/sim/adversary.h"
#include "src/sim/client_transport.h"
#include "src/sim/disk.h"
#include "src/sim/network.h"
#include "src/sim/party_server.h"
#include "src/sim/scheduler.h"

namespace shoal::sim {
namespace {

// After the trouble: the longest that a client may still take, and the time until rounds that ended
// must be gone everywhere.
constexpr Time kClientsEnd = 240 * kSecond;
constexpr Time kSettle = 6 * kSecond;
constexpr uint32_t kStageLimitS = 30;
constexpr char kClientState[] = "/sim/state/client";
constexpr int kInitialClients = 2;

// All randomness of simulated programs; a generator for tests.
Rng* randomness = nullptr;

const char* RandomName() { return "simulated"; }
uint32_t RandomWord() { return static_cast<uint32_t>(randomness->Next()); }
void RandomFill(void* const out, const size_t bytes) {
  auto* at = static_cast<uint8_t*>(out);
  for (size_t left = bytes; left > 0;) {
    const uint64_t word = randomness->Next();
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

class Simulation {
 public:
  Simulation(const Universe& universe, const Options& options);
  Outcome Run();

 private:
  struct Node {  // a party's machine
    uint32_t number = 0;
    Disk disk;
    Machine machine;
    Process* process = nullptr;
    std::unique_ptr<PartyServer> server;  // null while it starts or is down
    uint64_t epoch = 1;                   // that its operator has put there
    bool cuts_power = false;              // how its next crash goes
    bool broken = false;                  // does not start any more
    Node(uint32_t n, uint64_t first_inode) : number(n), disk(first_inode) {}
  };
  struct Lookup {
    std::vector<Bytes> keys;
    std::vector<size_t> indices;
  };
  struct Device {  // a client's machine
    Address address = 0;
    Disk disk;
    Machine machine;
    Process* process = nullptr;
    std::vector<Lookup> lookups;
    size_t next_lookup = 0;
    uint64_t least_epoch = 1;  // that it may still believe
    bool cuts_power = false;
    bool done = false;
    bool must_succeed = false;
    // Nothing has kept it from wiping what it wrote, and no round of its is under way.
    bool undisturbed = true, all_over = false;
    bool restored = false;     // its state was replaced by an old copy
    bool clock_jumps = false;  // some time in this run
    std::vector<Bytes> old_copies;
    std::set<std::string> secrets;  // master seeds that it had
    Device(Address a, uint64_t first_inode) : address(a), disk(first_inode) {}
  };

  Time now() const { return scheduler_.now(); }
  void Tell(const std::string& what) const;
  void StartNode(Node& node);
  void BootNode(Node& node);
  void StartDevice(Device& device);
  void RunDevice(Device& device);
  absl::Status RunLookup(Device& device, client::StateStore& store, const Lookup& lookup);
  Device& AddDevice(size_t lookups);
  void Died(Process* process);
  // The operator puts the table's next epoch there, and the party takes it if it runs.
  void PutEpoch(Node& node, uint64_t epoch);
  void PlanTrouble();
  void Heal();
  void CheckEnd();
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
  std::unique_ptr<Adversary> adversary_;
  server::RoundPlan plan_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Device>> devices_;
  Time trouble_ends_ = 0;
  bool healed_ = false;
  bool restores_copies_ = false;
  std::vector<std::string> troubles_;
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
      oracles_(&scheduler_) {
  randomness = &randomness_;
  scheduler_.set_on_death([this](Process* process) { Died(process); });
  network_.on_request = [this](Address from, Address to, wire::Frame& request) {
    oracles_.Request(from, to, request);
    if (adversary_ != nullptr) adversary_->Request(from, to, request);
  };
  network_.on_answer = [this](Address from, Address to, const wire::Frame& request,
                              wire::Frame& answer) {
    oracles_.Answer(from, to, request, answer);
    if (adversary_ != nullptr) adversary_->Answer(from, to, request, answer);
  };
  plan_ = {.open_ahead = 1,
           .onions_window_s = 2 + static_cast<uint32_t>(rng_.Below(2)),
           .queries_window_s = 1 + static_cast<uint32_t>(rng_.Below(3)),
           .answers_window_s = 2 + static_cast<uint32_t>(rng_.Below(4)),
           .stage_limit_s = kStageLimitS,
           .max_slots = 64,
           .max_rounds = 4};
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
  node.process = new Process{.machine = &node.machine};
  scheduler_.Spawn(node.process, [this, &node] { BootNode(node); });
}

void Simulation::BootNode(Node& node) {
  // Machines set their clocks at boot. A frontend that starts hours ahead gives out counters that
  // the parties refuse for as long (docs/simulation.md).
  node.machine.wall_offset = 0;
  auto server =
      PartyServer::Start(&universe_, &network_, node.process, node.number, node.epoch, plan_);
  if (server.ok()) {
    node.server = *std::move(server);
    Tell(absl::StrCat(node.machine.name, " is up"));
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

void Simulation::Died(Process* process) {
  for (const auto& node : nodes_) {
    if (node->process != process) continue;
    ++outcome_.crashes;
    // What it had in memory is lost, and its objects must not clean up.
    static_cast<void>(node->server.release());
    network_.Died(process, node->cuts_power);
    if (node->cuts_power) node->disk.CutPower(rng_);
    Tell(absl::StrCat(node->machine.name, node->cuts_power ? " loses its power" : " is killed"));
    if (node->broken) return;
    // As systemd would.
    scheduler_.At(now() + rng_.Between(kSecond / 20, healed_ ? kSecond : 8 * kSecond),
                  [this, node = node.get()] { StartNode(*node); });
    return;
  }
  for (const auto& device : devices_) {
    if (device->process != process) continue;
    if (device->done) return;
    ++outcome_.crashes;
    device->undisturbed = false;
    if (device->cuts_power) device->disk.CutPower(rng_);
    Tell(
        absl::StrCat(device->machine.name, device->cuts_power ? " loses its power" : " is killed"));
    scheduler_.At(now() + rng_.Between(kSecond / 20, healed_ ? kSecond : 5 * kSecond),
                  [this, device = device.get()] {
                    if (restores_copies_ && !device->old_copies.empty() && rng_.Chance(0.7)) {
                      device->restored = true;
                      device->disk.RestoreCopy(
                          kClientState, device->old_copies[rng_.Below(device->old_copies.size())],
                          static_cast<uint64_t>(scheduler_.WallTime()));
                      Tell(absl::StrCat(device->machine.name, ": an old state is put back"));
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

// --- clients ---

Simulation::Device& Simulation::AddDevice(size_t lookups) {
  const Address address = kFirstClient + static_cast<Address>(devices_.size());
  devices_.push_back(std::make_unique<Device>(address, static_cast<uint64_t>(address) * 1'000'000));
  Device& device = *devices_.back();
  device.machine = {.name = absl::StrCat("client ", address), .disk = &device.disk};
  device.disk.MakeDirectory("/sim/state");
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

void Simulation::RunDevice(Device& device) {
  SystemRandom random;
  while (device.next_lookup < device.lookups.size()) {
    auto store = client::FileStateStore::Open(kClientState, client::WitnessPlace(), random);
    absl::Status status = store.status();
    if (store.ok()) {
      if (!device.restored) oracles_.CheckLedger(device.address, (*store)->state().ledger);
      status = RunLookup(device, **store, device.lookups[device.next_lookup]);
      if (!device.restored) oracles_.CheckLedger(device.address, (*store)->state().ledger);
      device.all_over =
          std::ranges::all_of((*store)->state().rounds, [](const auto& held) { return held.over; });
    }
    Tell(absl::StrCat(device.machine.name, ": lookup ", device.next_lookup + 1, ": ",
                      status.ToString()));
    status.ok() ? ++outcome_.lookups_answered : ++outcome_.lookups_failed;
    const bool strange = absl::IsInternal(status) || absl::IsDataLoss(status) ||
                         absl::IsInvalidArgument(status) || absl::IsUnknown(status) ||
                         absl::IsUnauthenticated(status);
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

absl::Status Simulation::RunLookup(Device& device, client::StateStore& store,
                                   const Lookup& lookup) {
  SystemRandom random;
  const SystemClock clock;
  ThreadPool pool(1);
  ClientTransport transport(&network_, device.address);
  // Remembers what must not outlive its round, and a copy that a backup could have made.
  const auto look = [&] {
    for (const client::HeldRound& held : store.state().rounds) {
      if (!held.over) device.secrets.insert(ToString(held.master.view()));
    }
    const Disk::FilePointer file = device.disk.Find(kClientState);
    if (file != nullptr && device.old_copies.size() < 16) device.old_copies.push_back(file->seen);
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
      }};
  SHOAL_ASSIGN_OR_RETURN(const auto live, client::LiveDeployment::Open(
                                              &transport, &universe_.pins(), &store, environment));
  client::ChainOptions options;
  options.pad_to = 2;
  options.connections = 2;
  options.max_attempts = healed_ ? client::kMaxAttempts : 3;
  options.timeout_s = 120;
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
  if (epoch < device.least_epoch && !device.restored) {
    oracles_.Violate("value", absl::StrCat(device.machine.name, " believes epoch ", epoch,
                                           " after epoch ", device.least_epoch));
  }
  device.least_epoch = std::max(device.least_epoch, epoch);
  for (size_t i = 0; i < results.size(); ++i) {
    const size_t index = lookup.indices[i];
    const client::Lookup& result = results[i];
    const bool there = index < Universe::Records(epoch);
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
      case client::Lookup::Outcome::kFailed:
        if (adversary_ == nullptr) wrong = result.error.ToString();
        break;
    }
    if (!wrong.empty()) {
      oracles_.Violate("value", absl::StrCat(device.machine.name, ", key ", index, ", epoch ",
                                             epoch, ": ", wrong));
    }
  }
  return absl::OkStatus();
}

// --- trouble ---

void Simulation::PlanTrouble() {
  trouble_ends_ = rng_.Between(6, 16) * kSecond;
  scheduler_.set_interruptions(rng_.Chance(0.5) ? 0.01 : 0);
  if (!options_.faults) {
    scheduler_.set_interruptions(0);
    return;
  }
  const auto some_time = [&] { return rng_.Between(kSecond / 2, trouble_ends_); };
  const auto trouble = [&](const std::string& what) { troubles_.push_back(what); };
  // Each kind of trouble in some runs and not in others, so that none hides another.
  if (rng_.Chance(0.5)) {
    const double rate = rng_.Chance(0.5) ? 0.02 : 0.15;
    Network::Faults faults;
    if (rng_.Chance(0.6)) faults.lost = rate;
    if (rng_.Chance(0.6)) faults.slow = rate;
    if (rng_.Chance(0.6)) faults.repeated = 2 * rate;
    if (rng_.Chance(0.6)) faults.cut = rate;
    trouble(absl::StrCat("network: lost ", faults.lost, ", slow ", faults.slow, ", repeated ",
                         faults.repeated, ", cut ", faults.cut));
    network_.faults() = faults;
  }
  if (rng_.Chance(0.3)) {
    for (uint64_t i = 1 + rng_.Below(2); i > 0; --i) {
      const Address a = static_cast<Address>(1 + rng_.Below(kParties));
      const Address b = a == 1 && rng_.Chance(0.5)
                            ? kFirstClient + static_cast<Address>(rng_.Below(kInitialClients))
                            : a % static_cast<Address>(kParties) + 1;
      const Time from = some_time();
      const Time until = from + rng_.Between(kSecond / 5, 10 * kSecond);
      trouble(absl::StrCat(a, " and ", b, " are apart from ", from / kMillisecond, " to ",
                           until / kMillisecond, " ms"));
      scheduler_.At(from, [this, a, b] { network_.Block(a, b); });
      scheduler_.At(until, [this, a, b] { network_.Unblock(a, b); });
    }
  }
  if (rng_.Chance(0.6)) {
    for (uint64_t i = 1 + rng_.Below(3); i > 0; --i) {
      const size_t which = rng_.Below(kParties + kInitialClients);
      const Time time = some_time();
      const bool power = rng_.Chance(0.4);
      // Few steps mostly: a client takes some hundred for a lookup.
      const uint64_t steps = rng_.Below(uint64_t{1} << (2 + rng_.Below(8)));
      trouble(absl::StrCat("crash of ", which, power ? " (power)" : "", " ", steps, " steps after ",
                           time / kMillisecond, " ms"));
      scheduler_.At(time, [this, which, power, steps] {
        if (healed_) return;
        Process* process = nullptr;
        if (which < kParties) {
          nodes_[which]->cuts_power = power;
          process = nodes_[which]->process;
        } else {
          devices_[which - kParties]->cuts_power = power;
          process = devices_[which - kParties]->process;
        }
        if (process != nullptr && process->alive)
          process->dies_at_step = process->steps + 1 + steps;
      });
    }
  }
  if (rng_.Chance(0.2)) {
    const size_t which = rng_.Below(kParties);
    const Time time = some_time();
    trouble(absl::StrCat("party ", which + 1, " is restarted at ", time / kMillisecond, " ms"));
    scheduler_.At(time, [this, which] {
      Node& node = *nodes_[which];
      if (node.server == nullptr || !node.process->alive) return;
      scheduler_.Spawn(node.process, [this, &node] {
        node.cuts_power = false;
        node.server->Stop();
        scheduler_.Kill(node.process);
      });
    });
  }
  if (rng_.Chance(0.3)) {
    const size_t which = rng_.Below(kParties + kInitialClients);
    Disk* const disk = which < kParties ? &nodes_[which]->disk : &devices_[which - kParties]->disk;
    if (which >= kParties) devices_[which - kParties]->undisturbed = false;
    const Time from = some_time();
    const Time until = from + rng_.Between(kSecond / 5, 5 * kSecond);
    const uint64_t kind = rng_.Below(3);
    trouble(absl::StrCat("disk of ", which,
                         kind == 0   ? " is full"
                         : kind == 1 ? " is read-only"
                                     : " fails to sync",
                         " from ", from / kMillisecond, " ms"));
    scheduler_.At(from, [disk, kind] {
      if (kind == 0) disk->set_full(true);
      if (kind == 1) disk->set_read_only(true);
      if (kind == 2) disk->set_failing_syncs(1);
    });
    scheduler_.At(until, [this, disk, kind, which] {
      disk->set_full(false);
      disk->set_read_only(false);
      disk->set_failing_syncs(0);
      // A party whose journal could not be synced refuses everything until its operator restarts
      // it.
      if (kind == 2 && which < kParties && nodes_[which]->process != nullptr) {
        scheduler_.Kill(nodes_[which]->process);
      }
    });
  }
  if (rng_.Chance(0.2)) {
    const size_t which = rng_.Below(kParties + kInitialClients);
    Machine* const machine =
        which < kParties ? &nodes_[which]->machine : &devices_[which - kParties]->machine;
    const Time from = some_time();
    if (which >= kParties) devices_[which - kParties]->clock_jumps = true;
    constexpr Time kJumps[] = {3 * 3600, 600, 50, 5, -5, -50, -600, -3 * 3600};
    const Time jump = kJumps[rng_.Below(std::size(kJumps))] * kSecond;
    trouble(absl::StrCat("clock of ", which, " jumps by ", jump / kSecond, " s at ",
                         from / kMillisecond, " ms"));
    scheduler_.At(from, [machine, jump] { machine->wall_offset = jump; });
    scheduler_.At(from + rng_.Between(kSecond, 10 * kSecond),
                  [machine] { machine->wall_offset = 0; });
  }
  if (rng_.Chance(0.4)) {
    Time time = some_time();
    for (uint64_t epoch = 2; epoch <= (rng_.Chance(0.3) ? kEpochs : 2); ++epoch) {
      trouble(absl::StrCat("epoch ", epoch, " from ", time / kMillisecond, " ms on"));
      for (const auto& node : nodes_) {
        scheduler_.At(time + rng_.Between(0, 3 * kSecond),
                      [this, node = node.get(), epoch] { PutEpoch(*node, epoch); });
      }
      time += rng_.Between(0, 4 * kSecond);
    }
  }
  if (rng_.Chance(0.25)) {
    adversary_ =
        std::make_unique<Adversary>(&network_, &scheduler_, &universe_,
                                    1 + static_cast<uint32_t>(rng_.Below(kParties)), rng_.Next());
    oracles_.set_malicious(adversary_->party());
    trouble(absl::StrCat("malicious: ", adversary_->Name()));
  }
  if (rng_.Chance(0.2)) {
    restores_copies_ = true;
    trouble("clients' states are put back from old copies");
  }
}

void Simulation::Heal() {
  healed_ = true;
  Tell("nothing goes wrong any more");
  network_.faults() = {};
  network_.UnblockAll();
  restores_copies_ = false;
  if (adversary_ != nullptr) adversary_->Retire();
  for (const auto& node : nodes_) {
    node->disk.set_full(false);
    node->disk.set_read_only(false);
    node->disk.set_failing_syncs(0);
    node->machine.wall_offset = 0;
    if (node->process != nullptr) node->process->dies_at_step = 0;
    PutEpoch(*node, NewestEpoch());
  }
  for (const auto& device : devices_) {
    device->disk.set_full(false);
    device->disk.set_read_only(false);
    device->disk.set_failing_syncs(0);
    device->machine.wall_offset = 0;
    if (device->process != nullptr) device->process->dies_at_step = 0;
  }
  scheduler_.At(now() + 10 * kSecond, [this] {
    Device& late = AddDevice(1);
    late.must_succeed = true;
    StartDevice(late);
  });
}

bool Simulation::AllDone() const {
  return healed_ && devices_.size() > kInitialClients &&
         std::ranges::all_of(devices_, [](const auto& device) { return device->done; });
}

void Simulation::CheckEnd() {
  for (const auto& device : devices_) {
    if (!device->done) {
      oracles_.Violate("alive", absl::StrCat(device->machine.name, " does not end"));
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
  live.insert(list.drafts().begin(), list.drafts().end());
  for (const auto& node : nodes_) {
    if (node->server == nullptr || !node->process->alive) {
      oracles_.Violate("alive", absl::StrCat(node->machine.name, " does not run"));
      continue;
    }
    for (const auto& [id, counter] : oracles_.rounds()) {
      if (live.contains(counter)) continue;
      if (node->server->party().Stage(id).ok()) {
        oracles_.Violate("ended", absl::StrCat(node->machine.name, " still has round ", counter));
      }
    }
    for (const std::string& name : node->disk.Names("/sim/state")) {
      uint64_t counter = 0;
      if (std::sscanf(name.c_str(), "round-%lu.", &counter) == 1 && !live.contains(counter)) {
        oracles_.Violate("erased", absl::StrCat(node->machine.name, " still has ", name));
      }
    }
  }
}

Outcome Simulation::Run() {
  const auto set_up = [&](uint32_t number) {
    nodes_.push_back(std::make_unique<Node>(number, number * uint64_t{1'000'000}));
    Node& node = *nodes_.back();
    node.machine = {.name = absl::StrCat("party ", number), .disk = &node.disk};
    node.disk.on_rename = [this, number](const std::string& to, const Bytes&) {
      if (absl::EndsWith(to, ".seed")) {
        oracles_.Violate("erased", absl::StrCat("party ", number, " stores ", to));
      }
    };
  };
  for (uint32_t number = 1; number <= kParties; ++number) set_up(number);
  for (int i = 0; i < kInitialClients; ++i) AddDevice(1 + rng_.Below(2));
  PlanTrouble();
  for (const std::string& what : troubles_) Tell("trouble: " + what);
  for (const auto& node : nodes_) {
    scheduler_.At(rng_.Between(0, kSecond / 2), [this, node = node.get()] { StartNode(*node); });
  }
  for (const auto& device : devices_) {
    scheduler_.At(rng_.Between(kSecond / 2, 3 * kSecond),
                  [this, device = device.get()] { StartDevice(*device); });
  }
  scheduler_.At(trouble_ends_, [this] { Heal(); });
  scheduler_.Run([this] { return AllDone() || now() > trouble_ends_ + kClientsEnd; });
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
  outcome_.rounds_answered = oracles_.answered();
  outcome_.troubles = absl::StrJoin(troubles_, "; ");
  return outcome_;
}

}  // namespace

void PrepareProcess() {
  static Rng before(0);
  randomness = &before;
  // Whose curve has a stand-in (stand_ins.cc). Equal runs on any machine, too.
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
