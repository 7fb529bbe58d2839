#include "src/shoald/program.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/net/page_server.h"
#include "src/net/server.h"
#include "src/net/share_config.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/registry/registry.h"
#include "src/pir/setup/signed_setup.h"
#include "src/roster/fingerprint.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/refreshes.h"
#include "src/server/terms.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/client_service.h"
#include "src/shoald/config.h"
#include "src/shoald/driver.h"
#include "src/shoald/log.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/monitoring.h"
#include "src/shoald/notify.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/peer.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/pir_service.h"
#include "src/shoald/refresh_driver.h"
#include "src/shoald/round_steps.h"
#include "src/shoald/start_check.h"
#include "src/shoald/tls_calls.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"
#include "src/storage/spool.h"
#include "src/table/refresh.h"
#include "src/table/table.h"
#include "src/wire/peer.pb.h"
#include "src/wire/text.h"

namespace shoal::shoald {
namespace {

constexpr char kHelp[] =
    R"(Runs one party of a deployment. Party 1, the frontend, serves clients and drives the
rounds; every other party serves the party before it; the last party answers from the
table. Logs go to standard error. SIGINT and SIGTERM end the process in good order:
open rounds are lost, and their secrets are erased. With --engine, the party answers
queries by itself: its clients hide what they ask by encryption, and the other parties
are not needed. Any party can that has a client_address in the roster, if all parties
have signed the table's setup of that engine (shoal table sign-engine).
SIGHUP reads, verifies and takes the next epoch of the table from the same directory,
with the chain and without. Open rounds end under the epoch that they began with; the
next rounds are of the new one, once all parties have taken it. A table that is damaged,
does not fit the memory or is no newer epoch is refused, and the old one stays in
service. A warning or an error that comes again and again is logged once, and then
counted, every ten minutes.
Exit codes: 0 ended in good order, 1 failed, 2 wrong usage, 3 the roster, table or
journal cannot be trusted.
)";
// Of shoald-machines, before what shoald says.
constexpr char kMachinesHelp[] =
    R"(Runs one machine of a party of several: scripts/party-machines starts this program on all
of them, with the same arguments. Machine 0, the head, has the party's signing key and the
journal; the other machines have the keys that `shoal keys machine` makes. With --check it
checks this machine's files without the others, and may be run by itself; it says whether
they are those of a head. What follows is shoald's help, whose programs of one machine differ
in nothing else; engines are served by the head. SIGUSR1 and SIGUSR2, which mpirun passes
on, do what SIGTERM and SIGHUP do.

)";
constexpr char kMachinesExamples[] =
    R"(  shoald-machines --config party.textproto --check    check this machine's files, and exit
  scripts/party-machines --host 10.1.0.1 --host 10.1.0.2 -- shoald-machines --config party.textproto
)";
constexpr char kExamples[] = R"(  shoald --config party2.textproto            run party 2
  shoald --config party1.textproto --check    would a start be refused? says why, and exits
  shoald --config party1.textproto --engine simplepir    one server alone, no chain
  shoald --config party1.textproto --engine chain --engine simplepir    both on one port
  shoald --config party2.textproto --engine simplepir    the same engine at another party
)";

// Of all clients' requests and answers at a time, and of these what uploads leave to control
// requests.
constexpr uint64_t kMaxClientBufferBytes = 1 << 30;
constexpr uint64_t kControlBufferBytes = kMaxClientBufferBytes / 16;

// Opens and verifies the party's table, but for the rows that are the same in `known`, which this
// process has verified. Errors as Table::Open.
absl::StatusOr<std::shared_ptr<const table::Table>> OpenTable(const ServerConfig& config,
                                                              const roster::Roster& roster,
                                                              ThreadPool& pool,
                                                              const table::Table* known = nullptr) {
  const SystemClock clock;
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(table::Table table,
                         table::Table::Open(config.table_directory(), roster, clock.NowSeconds(),
                                            random, pool, known));
  return std::make_shared<const table::Table>(std::move(table));
}

// A verified manifest's id has 32 bytes.
Digest DigestOf(const std::string& bytes) {
  Digest digest;
  SHOAL_CHECK(bytes.size() == digest.size());
  std::ranges::copy(AsBytes(bytes), digest.begin());
  return digest;
}

// Where a party keeps its terms.
std::string TermsDirectory(const ServerConfig& config) {
  return config.state_directory() + "/terms";
}

// The table as the chain's rounds need it, without the backend's answers.
server::TableEpoch EpochOf(const table::Table& table) {
  return {.facts = {.manifest_digest = table.manifest().digest(),
                    .rows = table.rows(),
                    .row_bytes = table.manifest().row_bytes(),
                    .places = table::PlacesDigest(table.manifest().content())},
          .id = DigestOf(table.manifest().content().table_id()),
          .epoch = table.manifest().epoch(),
          .answers = {}};
}

// Adds the backend's answers to `epoch`, row | signature for every row: a copy, as the table has
// the two apart. RESOURCE_EXHAUSTED as CheckMemory.
absl::Status AddAnswers(const table::Table& table, server::TableEpoch& epoch) {
  const uint64_t bytes = table.rows() * table.answer_bytes();
  SHOAL_RETURN_IF_ERROR(CheckMemory(bytes, "the copy of the table that answers come from"));
  auto answers = std::make_shared<Bytes>(bytes);
  for (uint64_t row = 0; row < table.rows(); ++row) {
    table.CopyAnswer(
        row, MutableBytes(*answers).subspan(row * table.answer_bytes(), table.answer_bytes()));
  }
  epoch.answers = {*answers, table.rows()};
  epoch.holder = std::move(answers);
  return absl::OkStatus();
}

// Logs how far a long stage has got, at most once in two seconds.
class ProgressLog {
 public:
  void Tell(RoundCounter round, uint64_t opened, uint64_t onions) {
    using Clock = std::chrono::steady_clock;
    const int64_t now = Clock::now().time_since_epoch() / std::chrono::milliseconds(1);
    int64_t last = last_ms_;
    if (opened == onions || now < last + 2000 || !last_ms_.compare_exchange_strong(last, now)) {
      return;
    }
    spdlog::info("round {}: opened {} of {} onions ({} %)", round.value(), opened, onions,
                 100 * opened / onions);
  }

 private:
  std::atomic<int64_t> last_ms_ =
      std::chrono::steady_clock::now().time_since_epoch() / std::chrono::milliseconds(1);
};

// No core file, and no other process of the same user reads the memory: it holds the secrets of
// open rounds.
void KeepMemoryPrivate() {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);
}

// Of the party itself: files of its rounds, spools, links.
constexpr rlim_t kOwnDescriptors = 512;

// Takes as many descriptors as the system gives. How many of `wanted` connections fit beside the
// party's own files: a stage that finds no descriptor would abort its round for everybody.
size_t ConnectionsThatFit(size_t wanted) {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  const rlim_t before = std::exchange(files.rlim_cur, files.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_cur = before;
  const rlim_t fit = files.rlim_cur - std::min(kOwnDescriptors, files.rlim_cur / 2);
  if (fit >= wanted) return wanted;
  spdlog::warn(
      "the system allows {} open files: {} connections are taken at a time instead of {}; "
      "raise the hard limit (ulimit -Hn)",
      files.rlim_cur, fit, wanted);
  return static_cast<size_t>(fit);
}

// The rounds of a party that the frontend has forgotten, or cannot reach, end by themselves; terms
// at their time, which the lists do not shorten if nobody sends them. Terms sleep for hours, so
// that a party that keeps some gives the system the memory that a refresh, or a round, has left.
class Expiry {
 public:
  // `terms` may be null, and so may `next`, the link to the next party.
  Expiry(server::Party* party, server::Terms* terms, PeerLink* next, SpoolPlace* spools)
      : thread_([this, party, terms, next, spools] {
          constexpr int kGiveBackEvery = 60;
          for (int seconds = 1; Wait(std::chrono::seconds(1)); ++seconds) {
            party->EndExpired();
            if (terms != nullptr) terms->EndExpired();
            if (next != nullptr) next->CloseEnded();
            if (terms != nullptr && seconds % kGiveBackEvery == 0) spools->GiveBackUnused();
          }
        }) {}
  ~Expiry() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyAll();
    thread_.join();
  }

 private:
  // False once this ends.
  bool Wait(std::chrono::seconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    const MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, until)) {
    }
    return !stopping_;
  }

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// --engine: "chain" is one, those of src/pir/registry are the others.
struct Engines {
  bool chain = false;
  std::vector<const pir::Engine*> pir;  // each once
};
absl::StatusOr<Engines> EnginesOf(const cli::Values& values) {
  Engines engines;
  for (const std::string& name : cli::TextsOf(values, "engine")) {
    const auto engine = pir::FindEngine(name);
    if (!engine.ok()) return cli::UsageError(absl::StrCat("--engine: ", engine.status().message()));
    if (*engine == nullptr) {
      engines.chain = true;
    } else if (std::ranges::find(engines.pir, *engine) == engines.pir.end()) {
      engines.pir.push_back(*engine);
    }
  }
  if (engines.pir.empty()) engines.chain = true;
  return engines;
}

absl::StatusOr<std::unique_ptr<PirService>> StartEngines(
    const Engines& engines, const cli::Values& values, const ServerConfig& config,
    const roster::Roster& roster, std::shared_ptr<const table::Table> table, ThreadPool& pool) {
  if (engines.pir.empty()) return nullptr;
  PirServiceOptions options{
      .engines = engines.pir, .pool = &pool, .directory = config.state_directory()};
  options.max_hint_bytes = cli::MebibytesOr(values, "max-hint-mib", 1024);
  const HeavyWork& heavy = config.heavy_work();
  options.heavy_threads = heavy.threads() != 0
                              ? heavy.threads()
                              : std::max<uint32_t>(1, static_cast<uint32_t>(pool.size() / 4));
  options.heavy.seconds_per_hour = heavy.seconds_per_hour();
  options.progress = [](const pir::Engine& engine, uint64_t done, uint64_t total) {
    if (done == total || done % std::max<uint64_t>(1, total / 10) == 0) {
      spdlog::info("{}: hint {} %", std::string(engine.name()), 100 * done / total);
    }
  };
  SHOAL_ASSIGN_OR_RETURN(ServedTable served,
                         ReadServedTable(config.table_directory(), std::move(table), engines.pir));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<PirService> service,
                         PirService::Create(&roster, std::move(served), std::move(options)));
  for (const pir::Engine* engine : engines.pir) {
    spdlog::info("{} is ready", std::string(engine->name()));
  }
  return service;
}

std::string PagesAddress(const ServerConfig& config) {
  return absl::StrCat(config.monitoring().host(), ":", config.monitoring().port());
}

// Shows the operator the pages of `monitoring`; null if the configuration does not ask for it.
absl::StatusOr<std::unique_ptr<net::PageServer>> ShowPages(const Monitoring& monitoring,
                                                           const ServerConfig& config) {
  if (!config.has_monitoring()) return nullptr;
  const std::string address = PagesAddress(config);
  SHOAL_ASSIGN_OR_RETURN(auto pages, net::PageServer::Start({.address = address},
                                                            [&monitoring](absl::string_view path) {
                                                              return monitoring.PageAt(path);
                                                            }));
  spdlog::info("/metrics and /healthz are at {}", address);
  return pages;
}

// How the process speaks to its operator.
struct Operator {
  Log& log;
  const Notifier& notifier;
  Monitoring& monitoring;
};

// To be called once the process does what it is for. Returns when it is to end. Until then every
// SIGHUP calls `reload`, which takes the next epoch of the table and logs that it has. `probe`
// takes the locks that the process's threads need (Watchdog).
// One of several machines has SIGUSR1 and SIGUSR2 for SIGTERM and SIGHUP, as mpirun passes these
// on.
void WaitForEnd(const sigset_t& signals, const Operator& to, std::function<void()> probe,
                const std::function<absl::Status()>& reload) {
  const Watchdog watchdog(&to.notifier, std::move(probe));
  to.notifier.Ready("in service");
  int signal_number = 0;
  while (sigwait(&signals, &signal_number), signal_number == SIGHUP || signal_number == SIGUSR2) {
    to.log.TellCounts();  // whoever sends the signal sees its error, also the second time
    to.notifier.Reloading();
    const absl::Status status = reload();
    if (!status.ok()) spdlog::error("the table was not reloaded: {}", status.ToString());
    to.notifier.Ready(status.ok() ? "in service" : "in service; the table was not reloaded");
  }
  to.notifier.Stopping();
  spdlog::info("ending");
}

// Places for `connections` at a time in all.
void SetPlaces(size_t connections, net::Server::Options& listen) {
  listen.max_newcomers = std::max<size_t>(1, connections / 4);
  listen.max_connections = std::max<size_t>(1, connections - listen.max_newcomers);
}

// What a listener for clients takes, and what of it clients of one address get.
void ServeClients(const ServerConfig& config, net::Server::Options& listen) {
  listen.clients = {};
  listen.sink = nullptr;
  listen.shares = net::SharesOf(config.shares());
  listen.group_shares = net::SharesOf(config.group_shares());
  listen.max_buffered_bytes = kMaxClientBufferBytes;
  listen.reserved_bytes = kControlBufferBytes;
  listen.in_reserve = &ClientService::IsControl;
}

// How a party asks the next one, if there is one, what it says of itself.
auto AskNext(const PeerLink* next) -> decltype(ChainStates::Options::next) {
  if (next == nullptr) return nullptr;
  return [next](const wire::PartyStatesRequest& request) { return next->States(request); };
}

// Whom a server serves, in figures.
constexpr char kClients[] = "clients";
constexpr char kNeighbour[] = "neighbour";
std::function<void(absl::StatusCode)> ErrorsTo(const char* whom, Monitoring& monitoring) {
  return [whom, &monitoring](absl::StatusCode code) { monitoring.metrics().Refused(whom, code); };
}

// Where clients of engines connect.
std::string EnginesAddress(const ServerConfig& config, const roster::Party& self) {
  const std::string& own =
      config.party() == 1 ? config.listen_address() : config.client_listen_address();
  return own.empty() ? self.client_address : own;
}

absl::Status NoClientAddress(const ServerConfig& config) {
  return absl::FailedPreconditionError(absl::StrCat("--engine: clients cannot find party ",
                                                    config.party(),
                                                    ", as the roster has no client_address of it"));
}

// Takes requests to engines alone. Party 1 listens where its clients are in any case.
absl::StatusOr<std::unique_ptr<net::Server>> ListenForEngines(PirService& service,
                                                              const ServerConfig& config,
                                                              const roster::Roster& roster,
                                                              net::Server::Options listen,
                                                              Monitoring& monitoring) {
  const roster::Party& self = roster.party(config.party());
  listen.address = EnginesAddress(config, self);
  if (self.client_address.empty()) return NoClientAddress(config);
  ServeClients(config, listen);
  listen.limits = [&](wire::FrameType type) { return service.Limits(type); };
  listen.refused = ErrorsTo(kClients, monitoring);
  const std::string address = listen.address;
  auto server = net::Server::Start(std::move(listen), [&](wire::Frame request, net::Reply reply) {
    service.Handle(std::move(request), std::move(reply));
  });
  if (server.ok()) {
    spdlog::info("{} of {} listens on {} for clients of engines", self.name, roster.deployment(),
                 address);
  }
  return server;
}

// Engines without a chain: no rounds, no other party, no state. SIGHUP takes the table's next
// epoch.
absl::Status ServeEngines(PirService& service, const Engines& engines, const ServerConfig& config,
                          const roster::Roster& roster, net::Server::Options listen,
                          const sigset_t& signals, ThreadPool& pool, const Operator& to) {
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<net::Server> server,
      ListenForEngines(service, config, roster, std::move(listen), to.monitoring));
  to.monitoring.Watch(kClients, *server);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<net::PageServer> pages,
                         ShowPages(to.monitoring, config));
  spdlog::info("{} of {} serves no chain", roster.party(config.party()).name, roster.deployment());
  WaitForEnd(
      signals, to, [&] { server->connections(); },
      [&]() -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const table::Table> table,
                               OpenTable(config, roster, pool));
        const uint64_t epoch = table->manifest().epoch();
        SHOAL_ASSIGN_OR_RETURN(ServedTable next,
                               ReadServedTable(config.table_directory(), table, engines.pir));
        SHOAL_RETURN_IF_ERROR(service.Reload(std::move(next)));
        to.monitoring.Serve(*table);
        spdlog::info("serves epoch {} of the table", epoch);
        return absl::OkStatus();
      });
  return absl::OkStatus();
}

// Whether one of the signals waits that WaitForEnd waits for.
bool SignalWaits(const sigset_t& signals) {
  sigset_t pending;
  if (sigpending(&pending) != 0) return false;
  constexpr int kAll[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  return std::ranges::any_of(kAll, [&](int number) {
    return sigismember(&signals, number) == 1 && sigismember(&pending, number) == 1;
  });
}

// What of a party with the chain serves the table.
struct TableUsers {
  server::Party* party;
  MachineControl* control;  // null but at the head of several machines
  ClientService* clients;   // null but at the frontend
  PirService* service;      // null if the party runs no engine
  const Engines& engines;
};

// Takes the next epoch of the table `present` from the party's directory, everywhere or nowhere:
// open rounds go on under the epoch that they began with. Returns the new table. After an error the
// old epoch stays in service. The head of several machines waits for the others, which keep the old
// epoch for its rounds; CANCELLED when one of `signals` comes meanwhile. Other errors: those of
// OpenTable, AddAnswers, Party::TakeEpoch, PirService::Reload and MachineControl::AwaitEpoch.
absl::StatusOr<std::shared_ptr<const table::Table>> TakeNextEpoch(
    const TableUsers& users, const ServerConfig& config, const roster::Roster& roster,
    const table::Table& present, ThreadPool& pool, const sigset_t& signals) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<const table::Table> table,
                         OpenTable(config, roster, pool, &present));
  server::TableEpoch epoch = EpochOf(*table);
  SHOAL_ASSIGN_OR_RETURN(ServedTable served,
                         ReadServedTable(config.table_directory(), table, users.engines.pir));
  // Before the work of engines, which can take minutes.
  SHOAL_RETURN_IF_ERROR(users.party->CheckEpoch(epoch));
  if (users.party->is_backend()) SHOAL_RETURN_IF_ERROR(AddAnswers(*table, epoch));
  if (users.control != nullptr) {
    if (const absl::Status all = users.control->ReadyFor(epoch.epoch); !all.ok()) {
      spdlog::info("epoch {} of the table is read, and is taken when all machines have it: {}",
                   epoch.epoch, std::string(all.message()));
    }
    SHOAL_RETURN_IF_ERROR(
        users.control->AwaitEpoch(epoch.epoch, [&signals] { return SignalWaits(signals); }));
  }
  const auto take = [&]() -> absl::Status {
    SHOAL_RETURN_IF_ERROR(users.party->TakeEpoch(std::move(epoch)));
    if (users.clients != nullptr) users.clients->Serve(table);
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(users.service != nullptr ? users.service->Reload(std::move(served), take)
                                                 : take());
  return table;
}

// This process: the party's only machine, or one of several.
struct Machine {
  MachineJob* job = nullptr;  // null at a party of one machine
  uint32_t rank = 0, count = 1;
  bool is_head() const { return rank == 0; }
  bool is_one_of_several() const { return job != nullptr; }
};

// What of the party's keys a machine has.
struct Keys {
  std::optional<roster::PartyKeys> party;       // at the head
  std::optional<roster::MachineKeys> machines;  // at one of several machines

  const roster::TlsIdentity& tls() const {
    return party.has_value() ? party->tls() : machines->tls;
  }
};

// `checks`: this machine, of a party of several, does not know whether it is the head, but by the
// key that only the head has.
absl::StatusOr<Keys> LoadKeys(const ServerConfig& config, bool head, bool several, bool checks) {
  Keys keys;
  if (several && checks) {
    head = FileExists(config.keys_directory() + "/bls.key");
    spdlog::info("{}: {}", config.keys_directory(),
                 head ? "has the party's signing key: right at the head alone"
                      : "has no signing key: right at every machine but the head");
  }
  if (head) {
    SHOAL_ASSIGN_OR_RETURN(keys.party, roster::PartyKeys::Load(config.keys_directory()));
  }
  if (several) {
    SHOAL_ASSIGN_OR_RETURN(keys.machines, roster::MachineKeys::Load(config.keys_directory()));
  }
  return keys;
}

// Whether the roster says that the party has as many machines as this program is for.
absl::Status CheckMachines(const roster::Roster& roster, const ServerConfig& config,
                           const Machine& machine, bool several) {
  if (!several) return CheckOneMachine(roster, config.party());
  const uint32_t count = roster.party(config.party()).machines;
  if (count == 1) {
    return absl::FailedPreconditionError(absl::StrCat("the roster says that party ", config.party(),
                                                      " has one machine: its program is shoald"));
  }
  if (machine.is_one_of_several() && machine.count != count) {
    return absl::FailedPreconditionError(absl::StrCat("the roster says that party ", config.party(),
                                                      " has ", count, " machines, and ",
                                                      machine.count,
                                                      " were started: the launcher takes a --host "
                                                      "for each"));
  }
  return absl::OkStatus();
}

// Whether these are the keys that the roster has for this party.
absl::Status CheckKeys(const Keys& keys, const ServerConfig& config, const roster::Roster& roster) {
  const roster::Party& self = roster.party(config.party());
  if (const Digest certificate = keys.tls().certificate_sha256();
      certificate != self.tls_certificate_sha256) {
    for (const roster::Party& other : roster.parties()) {
      if (other.tls_certificate_sha256 != certificate) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          config.keys_directory(),
          ": its TLS certificate is not the one that the roster pins for "
          "party ",
          config.party(), " (", self.name, ") but that of party ", other.number, " (", other.name,
          "): either keys_directory or `party: ", config.party(), "` is wrong"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        config.keys_directory(),
        ": its TLS certificate is not the one that the roster pins for "
        "party ",
        config.party(), " (", self.name, "), nor that of another party: these keys or ",
        config.roster_file(), " are of another deployment, or of before a renewal"));
  }
  if (!keys.party.has_value() || keys.party->bls().public_key() == self.key) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      config.keys_directory(), ": its signing key is not the one that the roster has for party ",
      config.party(), " (", self.name, "). The fingerprint of the key there is ",
      roster::KeyFingerprint(keys.party->bls().public_key().bytes()), ", of that in ",
      config.roster_file(), " ", roster::KeyFingerprint(self.key.bytes()),
      ": these keys are of before a renewal, or the roster is"));
}

// How long a machine that is told to end waits for its head to say so.
constexpr std::chrono::seconds kHeadSaysSoWithin(10);

// What the process has before it knows its party.
struct Process {
  const ServerConfig& config;
  const Machine& machine;
  const sigset_t& signals;
  const SystemClock& clock;
  SystemRandom& random;
  Log& log;
  const Notifier& notifier;
};

bool OnlyChecks(const cli::Values& values) {
  return values.count("check") > 0 || values.count("check-files") > 0;
}

// Tries what a start does between reading its files and serving, and changes nothing. `options` are
// those of the party. Returns all that a start would be refused for.
absl::Status CheckStart(const cli::Values& values, const ServerConfig& config,
                        const roster::Roster& roster, const Keys& keys, const Engines& engines,
                        const ServedTable& served, server::Party::Options options,
                        const Process& process) {
  Findings findings;
  const roster::Party& self = roster.party(config.party());
  const pir::Content content = pir::ContentOf(served.table->AsPrevious());
  for (const auto& [engine, setup] : served.setups) {
    pir::ServerOptions server;
    server.max_hint_bytes = cli::MebibytesOr(values, "max-hint-mib", 1024);
    server.shape = setup.setup();
    const auto sizes = [&]() -> absl::StatusOr<pir::Sizes> {
      SHOAL_ASSIGN_OR_RETURN(const wire::PirSetup shape, engine->ShapeOf(content, server));
      return engine->SizesOfShape(shape);
    }();
    findings.Add(sizes.status());
    if (sizes.ok()) {
      findings.Add(CheckMemory(sizes->server_bytes, absl::StrCat(engine->name(), ": its server")));
    }
  }
  if (config.spool_directory() != config.state_directory()) {
    findings.Add(CheckWritable("spool_directory", config.spool_directory()));
  }
  // A machine of several that is not the head has no record of its own but for its clients.
  if (engines.chain && keys.party.has_value()) {
    const auto copy = JournalCopy::Take(config.state_directory());
    findings.Add(copy.status(),
                 absl::IsFailedPrecondition(copy.status())
                     ? "if it is this party, stop it first, or check its files alone "
                       "(--check-files); never run two over one state"
                     : "");
    if (copy.ok()) {
      if (self.machines > 1) {
        options.machines = {
            .count = self.machines,
            .join = [](uint32_t,
                       const Digest&) -> absl::StatusOr<std::shared_ptr<machines::Machines>> {
              return absl::FailedPreconditionError("a check joins no round");
            }};
      }
      const auto party =
          server::Party::Create(std::move(options), keys.party->bls(), (*copy)->journal(),
                                &process.random, &process.clock, {});
      findings.Add(party.status(), "that is what this party's state_directory says");
      if (party.ok() && config.party() == 1) {
        findings.Add(server::Frontend::Create(PlanFrom(config, roster), party->get(),
                                              (*copy)->journal(), &process.clock, {},
                                              {.count = self.machines})
                         .status());
      }
    }
  } else if (engines.chain) {
    findings.Add(CheckWritable("state_directory", config.state_directory()));
  }
  // Where another machine of several listens only its launcher knows, unless it is said.
  std::vector<std::pair<std::string, std::string>> addresses;  // and what says so
  const auto listens = [&](const std::string& configured, const char* field,
                           const std::string& in_roster) {
    if (!configured.empty()) {
      addresses.emplace_back(configured, absl::StrCat(field, " of the configuration"));
    } else if (keys.party.has_value()) {
      addresses.emplace_back(
          in_roster, absl::StrCat("the roster; ", field, " names another address of this host"));
    }
  };
  if (engines.chain) {
    listens(config.listen_address(), "listen_address",
            config.party() == 1 ? self.client_address : self.peer_address);
  }
  if (!engines.pir.empty() && !(engines.chain && config.party() == 1)) {
    if (self.client_address.empty()) findings.Add(NoClientAddress(config));
    addresses.emplace_back(EnginesAddress(config, self),
                           "client_listen_address of the configuration, or the roster");
  }
  if (config.has_monitoring()) {
    addresses.emplace_back(PagesAddress(config), "monitoring of the configuration");
  }
  ListenCheck listen;
  for (const auto& [address, origin] : addresses) {
    if (!address.empty()) findings.Add(listen.Add(address), absl::StrCat("see ", origin));
  }
  ConnectionsThatFit(config.max_connections());  // warns
  return findings.Summary();
}

// Serves the party's neighbours and clients until the process is to end. `several`: this is the
// program of a party of several machines; without a job it can only check.
absl::Status Serve(const cli::Values& values, Engines engines, bool several,
                   const Process& process) {
  const auto& [config, machine, signals, clock, random, log, notifier] = process;
  ThreadPool pool(config.threads());
  const bool checks = OnlyChecks(values);
  SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned,
                         roster::PinnedParties::Read(config.pinned_parties_file()));
  wire::SignedRoster signed_roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(config.roster_file(), signed_roster));
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster,
                         roster::Roster::Verify(signed_roster, pinned, clock.NowSeconds()));
  for (const uint32_t number : roster.renewed()) {
    spdlog::warn("{}: has an earlier key of party {}, which has renewed it; make new pins",
                 config.pinned_parties_file(), number);
  }
  if (config.party() > roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", config.party(), ": the roster has ", roster.size(), " parties"));
  }
  const roster::Party& self = roster.party(config.party());
  SHOAL_RETURN_IF_ERROR(CheckMachines(roster, config, machine, several));
  SHOAL_ASSIGN_OR_RETURN(Keys keys, LoadKeys(config, machine.is_head(), several, checks));
  SHOAL_RETURN_IF_ERROR(CheckKeys(keys, config, roster));
  // Before the table is read, which can take minutes: the others are to wait for this machine.
  std::optional<MachineLinks> links;
  std::shared_ptr<machines::Machines> control_machines;
  if (machine.is_one_of_several()) {
    links.emplace(machine.job, std::move(keys.machines->secret), &clock, &random,
                  config.machines_progress_limit_s());
    SHOAL_ASSIGN_OR_RETURN(control_machines, links->JoinControl());
    SHOAL_RETURN_IF_ERROR(CallRoll(*control_machines, config.keys_directory()));
  }
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const table::Table> table,
                         OpenTable(config, roster, pool));
  const bool backend = config.party() == roster.size();
  server::TableEpoch epoch = EpochOf(*table);
  if (backend) SHOAL_RETURN_IF_ERROR(AddAnswers(*table, epoch));
  Monitoring monitoring(config, roster, keys.tls(), clock);
  monitoring.Serve(*table);
  ProgressLog progress;
  server::Party::Options options{
      .number = PartyNumber(config.party()),
      .roster = roster,
      .table = std::move(epoch),
      .max_open_rounds = std::max<size_t>(16, 2 * config.rounds().max_rounds()),
      .progress = [&progress](RoundCounter round, uint64_t opened,
                              uint64_t onions) { progress.Tell(round, opened, onions); },
      .ended =
          [](RoundCounter round, absl::string_view why) {
            spdlog::info("round {}: {}, erased", round.value(), std::string(why));
          },
      .stage_done =
          [&monitoring, backend](const wire::StageReport& report) {
            monitoring.metrics().StageDone(report,
                                           report.stage() == (backend ? "online" : "answers"));
          },
  };
  // The control of the rounds, once there can be any.
  MachineControl* orders = nullptr;
  if (machine.is_one_of_several()) {
    options.machines = {
        .rank = machine.rank,
        .count = machine.count,
        .join = [&links](uint32_t number, const Digest& id) { return links->Join(number, id); }};
    if (machine.is_head()) {
      options.machines.opened = [&orders](const server::RoundOpening& opening) {
        orders->Opened(opening);
      };
      options.machines.ready = [&orders](uint64_t taken) { return orders->ReadyFor(taken); };
      options.machines.ended = [&orders](const Digest& id) { orders->Ended(id); };
    }
  }
  const size_t max_open_rounds = options.max_open_rounds;
  if (config.party() == 1) {
    SHOAL_RETURN_IF_ERROR(server::CheckPlan(PlanFrom(config, roster), roster));
  }
  if (engines.chain && !engines.pir.empty()) SHOAL_RETURN_IF_ERROR(CheckListeners(config, roster));
  if (checks) {
    SHOAL_ASSIGN_OR_RETURN(const ServedTable served,
                           ReadServedTable(config.table_directory(), table, engines.pir));
    SHOAL_RETURN_IF_ERROR(CheckSetups(served, engines.pir, roster));
    if (values.count("check-files") > 0) {
      spdlog::info(
          "configuration, keys, roster and table are in order; state and ports were not "
          "looked at");
      return absl::OkStatus();
    }
    SHOAL_RETURN_IF_ERROR(
        CheckStart(values, config, roster, keys, engines, served, std::move(options), process));
    spdlog::info("configuration, keys, roster, table, state and ports are in order");
    return absl::OkStatus();
  }
  const size_t listeners = config.party() != 1 && engines.chain && !engines.pir.empty() ? 2 : 1;
  const auto& tls_key = keys.tls().private_key_pem;
  net::Server::Options listen{
      .address = config.listen_address(),
      .identity = {.certificate_pem = keys.tls().certificate_pem,
                   .private_key_pem = {reinterpret_cast<const uint8_t*>(tls_key.data()),
                                       tls_key.size()}},
      .clients = {},
      .limits = nullptr,
      .refused = ErrorsTo(config.party() == 1 ? kClients : kNeighbour, monitoring),
      .shares = {.newcomers = config.shares().new_connections()},
      .shared_addresses = SharedAddresses(config),
      .group_shares = {.newcomers = config.group_shares().new_connections()}};
  // A party that has clients beside a neighbour listens twice, and its files are shared.
  SetPlaces(ConnectionsThatFit(listeners * config.max_connections()) / listeners, listen);
  // Engines alone let go of it when its next epoch comes.
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PirService> pir_service,
                         StartEngines(engines, values, config, roster,
                                      engines.chain ? table : std::move(table), pool));
  if (!engines.chain) {
    return ServeEngines(*pir_service, engines, config, roster, std::move(listen), signals, pool,
                        {log, notifier, monitoring});
  }
  std::atomic<bool> journal_broken = false;
  // The head's is the party's. Another machine has one at party 1 alone, for its own clients.
  std::unique_ptr<server::FileJournal> journal;
  if (machine.is_head() || config.party() == 1) {
    SHOAL_ASSIGN_OR_RETURN(
        journal,
        server::FileJournal::Open(
            config.state_directory(),
            {.synced = [&](double seconds) { monitoring.metrics().Synced(seconds); },
             // Ends the wait below: only another process can go on, which reads what is there.
             .broken =
                 [&](const absl::Status& why) {
                   spdlog::critical("the journal takes no more records: {}; ending",
                                    why.ToString());
                   journal_broken = true;
                   kill(getpid(), SIGTERM);
                 }}));
  } else if (config.spool_directory() == config.state_directory()) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(config.spool_directory(), FileMode::kPrivate));
  }
  SpoolPlace spools(config.spool_directory(), config.spool_memory_mib() << 20);
  // The answers of refreshes wait for days, and so in files alone.
  SpoolPlace refresh_spools(config.spool_directory(), /*memory_bytes=*/0);
  server::Party* self_party = nullptr;  // once it is there: terms ask for its table
  std::unique_ptr<server::Terms> terms;
  if (!machine.is_one_of_several() &&
      (roster.max_refreshes() > 0 || FileExists(TermsDirectory(config)))) {
    // Without a term_limit this erases what is there.
    SHOAL_ASSIGN_OR_RETURN(
        terms, server::Terms::Open({.number = PartyNumber(config.party()),
                                    .roster = roster,
                                    .directory = TermsDirectory(config),
                                    .table = [&self_party] { return self_party->table(); },
                                    .ended =
                                        [](RoundCounter round, absl::string_view why) {
                                          spdlog::info("round {}: its term has ended, erased: {}",
                                                       round.value(), std::string(why));
                                        },
                                    .stage_done =
                                        [&monitoring](const wire::StageReport& report) {
                                          monitoring.metrics().StageDone(report, /*last=*/false);
                                        }},
                                   &keys.party->bls(), journal.get(), &random, &clock,
                                   {.pool = &pool, .spools = &spools}));
    if (roster.max_refreshes() > 0) options.terms = terms.get();
  }
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<server::Party> party,
      machine.is_head()
          ? server::Party::Create(std::move(options), keys.party->bls(), journal.get(), &random,
                                  &clock, {.pool = &pool, .spools = &spools})
          : server::Party::CreateOther(std::move(options), &random, &clock,
                                       {.pool = &pool, .spools = &spools}));

  self_party = party.get();

  std::unique_ptr<PeerLink> next;
  if (!backend) {
    const roster::Party& to = roster.party(config.party() + 1);
    PeerLink::Options link{
        .party = to.number,
        .machines = to.machines,
        .later = roster.size() - to.number,
        .answer_bytes = [&party](const Digest& id) { return party->AnswerBytes(id); },
        .stage_limit = std::chrono::seconds(config.stage_limit_s()),
        .spools = &spools};
    if (party->terms() != nullptr) {
      link.refresh_bytes = [&terms](const Digest& id) { return terms->AnswerBytesFromNext(id); };
    }
    next = std::make_unique<PeerLink>(std::make_unique<TlsCalls>(to, keys.tls()), std::move(link));
  }
  server::ChainNode node(party.get(), next.get());
  monitoring.Watch(*party, max_open_rounds);
  if (terms != nullptr) monitoring.Watch(*terms);
  ChainStates states({.party = config.party(),
                      .parties = roster.size(),
                      .self = [&] { return monitoring.State(); },
                      .next = AskNext(next.get()),
                      .clock = &clock});

  // What listens dies first, then what it calls.
  std::unique_ptr<net::Server> engines_server;  // of another party than the first
  std::unique_ptr<server::Frontend> frontend;
  std::optional<OwnSteps> own_steps;
  std::unique_ptr<MachineControl> control;  // at one of several machines
  std::optional<AllSteps> all_steps;        // at party 1's head, if it has several
  const Expiry expiry(party.get(), terms.get(), next.get(), &spools);
  std::unique_ptr<server::Refreshes> refreshes;  // at party 1, if it keeps terms
  std::unique_ptr<ChainWatch> chain;
  std::unique_ptr<ClientService> clients;
  std::unique_ptr<PartStages> parts;  // if this party or the one before has several machines
  std::unique_ptr<PeerService> peers;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<RefreshDriver> refresh_driver;
  std::unique_ptr<net::Server> server;

  net::Handler handler;
  if (config.party() == 1) {
    if (machine.is_head() && journal->highest_round() == RoundCounter()) {
      spdlog::warn(
          "{}: no round is in the journal. That is right for a new deployment. If the state was "
          "lost, "
          "the other parties end the old rounds by themselves; should they refuse new ones "
          "(counters "
          "only rise), leave their state alone and let this run: within a day they take them",
          config.state_directory());
    }
    if (listen.address.empty()) listen.address = self.ClientAddress(machine.rank);
    SHOAL_ASSIGN_OR_RETURN(
        frontend, server::Frontend::Create(PlanFrom(config, roster), party.get(), journal.get(),
                                           &clock, {.pool = &pool, .spools = &spools},
                                           {.rank = machine.rank, .count = machine.count}));
    own_steps.emplace(frontend.get(), &node);
    if (machine.is_head()) chain = std::make_unique<ChainWatch>(&states, &clock);
    if (party->terms() != nullptr) {
      refreshes = std::make_unique<server::Refreshes>(party.get(), journal.get(), &clock, &pool,
                                                      &refresh_spools);
    }
    clients = std::make_unique<ClientService>(frontend.get(), &roster, table, journal.get(),
                                              chain.get(), refreshes.get());
    ServeClients(config, listen);
    listen.limits = [&](wire::FrameType type) {
      return pir_service != nullptr && PirService::Serves(type) ? pir_service->Limits(type)
                                                                : clients->Limits(type);
    };
    handler = [&](wire::Frame request, net::Reply reply) {
      if (pir_service != nullptr && PirService::Serves(request.type)) {
        pir_service->Handle(std::move(request), std::move(reply));
      } else {
        clients->Handle(std::move(request), std::move(reply));
      }
    };
  } else {
    if (listen.address.empty()) listen.address = self.PeerAddress(machine.rank);
    listen.clients = {roster.party(config.party() - 1).tls_certificate_sha256};
    if (const uint32_t senders = roster.party(config.party() - 1).machines;
        senders > 1 || machine.is_one_of_several()) {
      parts = std::make_unique<PartStages>(PartsOf(node, senders, &spools));
    }
    peers = machine.is_head() ? std::make_unique<PeerService>(&node, &states, parts.get())
                              : std::make_unique<PeerService>(nullptr, nullptr, parts.get());
    listen.limits = [&](wire::FrameType type) { return peers->Limits(type); };
    listen.sink = [&](const wire::Frame& request, uint64_t bulk_bytes) {
      return peers->Sink(request, bulk_bytes);
    };
    handler = [&](wire::Frame request, net::Reply reply) {
      peers->Handle(std::move(request), std::move(reply));
    };
  }
  if (pir_service != nullptr && config.party() != 1) {
    SHOAL_ASSIGN_OR_RETURN(engines_server,
                           ListenForEngines(*pir_service, config, roster, listen, monitoring));
  }
  // Of the port for the party before alone: strangers rest for less.
  if (config.party() != 1) {
    listen.idle_timeout = PeerService::kIdle;
    listen.another_version = [](const absl::Status& refused) {
      spdlog::warn("refused the party before this one: {}", std::string(refused.message()));
    };
  }
  const std::string address = listen.address;
  const auto begin_to_serve = [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(server, net::Server::Start(std::move(listen), std::move(handler)));
    return absl::OkStatus();
  };
  // At a party of several machines the head is the last to listen: a round that it took part in
  // while another machine still reads the table would fail.
  if (!machine.is_head()) SHOAL_RETURN_IF_ERROR(begin_to_serve());
  if (machine.is_one_of_several()) {
    control = std::make_unique<MachineControl>(
        control_machines.get(),
        MachineControl::Options{.party = party.get(),
                                .clock = &clock,
                                .frontend = frontend.get(),
                                .own = own_steps.has_value() ? &*own_steps : nullptr,
                                .ended = [] { kill(getpid(), SIGTERM); }});
    orders = control.get();
    if (frontend != nullptr && machine.is_head()) {
      all_steps.emplace(frontend.get(), &*own_steps, control.get());
    }
    spdlog::info("waits for the party's other machines");
    SHOAL_RETURN_IF_ERROR(control->AwaitAll());
  }
  if (machine.is_head()) SHOAL_RETURN_IF_ERROR(begin_to_serve());
  monitoring.Watch(config.party() == 1 ? kClients : kNeighbour, *server);
  if (engines_server != nullptr) monitoring.Watch(kClients, *engines_server);
  if (frontend != nullptr) monitoring.Watch(*frontend);
  if (machine.is_head()) {
    monitoring.Watch(states);
    frontend != nullptr ? monitoring.Watch(*chain) : monitoring.Watch(*peers);
  }
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<net::PageServer> pages, ShowPages(monitoring, config));
  if (frontend != nullptr && machine.is_head()) {
    driver = std::make_unique<Driver>(frontend.get(), &node, &clock,
                                      all_steps.has_value() ? &*all_steps : nullptr);
  }
  if (refreshes != nullptr) {
    refresh_driver = std::make_unique<RefreshDriver>(
        refreshes.get(), &node, &clock,
        [&monitoring](const absl::Status& how) { monitoring.metrics().RefreshEnded(how.ok()); });
  }
  spdlog::info("{} of {} listens on {}; table {}, epoch {}: {} rows of {} bytes", self.name,
               roster.deployment(), address, table->manifest().name(), table->manifest().epoch(),
               table->rows(), table->manifest().row_bytes());

  const TableUsers users{party.get(), machine.is_head() ? control.get() : nullptr, clients.get(),
                         pir_service.get(), engines};
  const auto probe = [&] {
    server->connections();
    party->open_rounds();
    if (frontend != nullptr) frontend->ListRounds();
  };
  WaitForEnd(signals, {log, notifier, monitoring}, probe, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(table, TakeNextEpoch(users, config, roster, *table, pool, signals));
    spdlog::info("serves epoch {} of the table: {} rows of {} bytes; the next rounds are of it",
                 table->manifest().epoch(), table->rows(), table->manifest().row_bytes());
    monitoring.Serve(*table);
    return absl::OkStatus();
  });
  // The head tells the others once its own part has ended.
  absl::Status end;
  if (!machine.is_head() && !journal_broken) end = control->AwaitEnd(kHeadSaysSoWithin);
  pages.reset();
  server.reset();
  if (next != nullptr) next->CancelStages();
  if (parts != nullptr) parts->CancelAll();
  refresh_driver.reset();
  driver.reset();
  clients.reset();
  chain.reset();
  party->EndAll();  // calls of the party before that wait for another machine end
  peers.reset();
  parts.reset();
  party->EndAll();  // what such a call has opened
  if (machine.is_one_of_several() && machine.is_head()) end = control->Stop();
  if (journal_broken) {
    return absl::UnavailableError(absl::StrCat(
        config.state_directory(),
        ": a write to the journal failed, and what is on the disk is not known: start it again"));
  }
  if (end.ok() && machine.is_one_of_several()) spdlog::info("all machines end in good order");
  return end;
}

absl::Status Run(const cli::Values& values, const JoinJob& join) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_log, cli::Chosen(values, "log-format", "text", "json"));
  SHOAL_ASSIGN_OR_RETURN(const ServerConfig config,
                         ReadServerConfig(values["config"].as<std::string>()));
  SHOAL_ASSIGN_OR_RETURN(Engines engines, EnginesOf(values));
  const bool several = join != nullptr;
  if (several && !engines.chain) {
    return cli::UsageError("--engine: a party of several machines serves engines beside its chain");
  }
  // Before any thread: all of them leave these signals to the wait at the end.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  if (several) {
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGUSR2);
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  KeepMemoryPrivate();

  const SystemClock clock;
  SystemRandom random;
  std::unique_ptr<MachineJob> job;
  Machine machine;
  if (several && !OnlyChecks(values)) {
    SHOAL_ASSIGN_OR_RETURN(job, join(random));
    machine = {job.get(), job->rank(), job->count()};
    if (!machine.is_head()) engines.pir.clear();
  }
  absl::Status served;
  {
    Log log(config.party(),
            machine.is_one_of_several() ? std::optional(machine.rank) : std::nullopt, json_log,
            &clock);
    const Notifier notifier = Notifier::FromEnvironment();
    served = Serve(values, std::move(engines), several,
                   {config, machine, signals, clock, random, log, notifier});
  }
  // Nothing of the party is left here.
  if (served.ok() && job != nullptr) return job->Leave();
  return served;
}

}  // namespace

cli::Command PartyCommand(JoinJob join) {
  const bool several = join != nullptr;
  return {
      .name = several ? "shoald-machines" : "shoald",
      .summary = several ? "one machine of a party of several" : "one party of a deployment",
      .help = absl::StrCat(several ? kMachinesHelp : "", kHelp),
      .examples = several ? kMachinesExamples : kExamples,
      .options =
          [](cli::Options& options) {
            static const std::string engines =
                absl::StrCat("which engine answers: ", pir::EngineNames(), "; may be repeated");
            options.add_options()("config", cli::File()->required(),
                                  "the party's configuration (text-format protobuf)")(
                "check",
                "check all that a start checks: files, keys, memory, state and ports; and exit. "
                "Nothing is changed, and no other party is asked")(
                "check-files", "the same without state and ports, beside a party that runs")(
                "log-format", cli::Text(), "text, or json: one object a line (default text)")(
                "engine", cli::Texts(), engines.c_str())(
                "max-hint-mib", cli::Number(),
                "refuse to start an engine whose hint is larger (default 1024)");
          },
      .positional = "",
      .run = [join = std::move(join)](const cli::Values& values,
                                      cli::Io&) { return Run(values, join); },
  };
}

}  // namespace shoal::shoald
