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
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/net/page_server.h"
#include "src/net/server.h"
#include "src/net/share_config.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/registry/registry.h"
#include "src/pir/setup/signed_setup.h"
#include "src/roster/fingerprint.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/round/header.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/shoald/client_service.h"
#include "src/shoald/config.h"
#include "src/shoald/log.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/monitoring.h"
#include "src/shoald/notify.h"
#include "src/shoald/party_runtime.h"
#include "src/shoald/peer.h"
#include "src/shoald/pir_service.h"
#include "src/shoald/start_check.h"
#include "src/shoald/table_epochs.h"
#include "src/shoald/tls_calls.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"
#include "src/table/table.h"
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
// process has verified. Errors as Table::Open and round::CheckTiers: a table of the other kind than
// the roster opens no round.
absl::StatusOr<std::shared_ptr<const table::Table>> OpenTable(const ServerConfig& config,
                                                              const roster::Roster& roster,
                                                              ThreadPool& pool,
                                                              const table::Table* known = nullptr) {
  const SystemClock clock;
  SystemRandom random;
  SHOAL_ASSIGN_OR_RETURN(table::Table table,
                         table::Table::Open(config.table_directory(), roster, clock.NowSeconds(),
                                            random, pool, known));
  SHOAL_RETURN_IF_ERROR(round::CheckTiers(
      config.table_directory(), table.manifest().content().query_buckets(), table.rows(), roster));
  return std::make_shared<const table::Table>(std::move(table));
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

uint64_t MaxHintBytes(const cli::Values& values) {
  return cli::MebibytesOr(values, "max-hint-mib", PirServiceOptions().max_hint_bytes >> 20);
}

absl::StatusOr<std::unique_ptr<PirService>> StartEngines(
    const Engines& engines, const cli::Values& values, const ServerConfig& config,
    const roster::Roster& roster, std::shared_ptr<const table::Table> table, ThreadPool& pool) {
  if (engines.pir.empty()) return nullptr;
  PirServiceOptions options{
      .engines = engines.pir, .pool = &pool, .directory = config.state_directory()};
  options.max_hint_bytes = MaxHintBytes(values);
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

// Whether one of the signals waits that WaitForEnd waits for.
bool SignalWaits(const sigset_t& signals) {
  sigset_t pending;
  if (sigpending(&pending) != 0) return false;
  constexpr int kAll[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
  return std::ranges::any_of(kAll, [&](int number) {
    return sigismember(&signals, number) == 1 && sigismember(&pending, number) == 1;
  });
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

// To be called once the process does what it is for. Returns when it is to end. Until then every
// SIGHUP calls `reload`, which takes the next epoch of the table and logs that it has. `probe`
// takes the locks that the process's threads need (Watchdog).
// One of several machines has SIGUSR1 and SIGUSR2 for SIGTERM and SIGHUP, as mpirun passes these
// on.
void WaitForEnd(const Process& process, std::function<void()> probe,
                const std::function<absl::Status()>& reload) {
  const Watchdog watchdog(&process.notifier, std::move(probe));
  process.notifier.Ready("in service");
  int signal_number = 0;
  while (sigwait(&process.signals, &signal_number),
         signal_number == SIGHUP || signal_number == SIGUSR2) {
    process.log.TellCounts();  // whoever sends the signal sees its error, also the second time
    process.notifier.Reloading();
    const absl::Status status = reload();
    if (!status.ok()) spdlog::error("the table was not reloaded: {}", status.ToString());
    process.notifier.Ready(status.ok() ? "in service" : "in service; the table was not reloaded");
  }
  process.notifier.Stopping();
  spdlog::info("ending");
}

bool OnlyChecks(const cli::Values& values) {
  return values.count("check") > 0 || values.count("check-files") > 0;
}

// What a party serves with.
struct Serving {
  const Process& process;
  const roster::Roster& roster;
  const Keys& keys;
  const Engines& engines;
  TableEpochs& epochs;
  Monitoring& monitoring;
  ThreadPool& pool;
  JoinedMachine* joined;  // null but at one of several machines
  PirService* service;    // null if the party runs no engine
  net::Server::Options listen;

  const ServerConfig& config() const { return process.config; }
  const roster::Party& self() const { return roster.party(config().party()); }
};

// The next epoch of the table from the party's directory.
absl::StatusOr<ServedTable> ReadNextEpoch(const Serving& serving) {
  SHOAL_ASSIGN_OR_RETURN(
      std::shared_ptr<const table::Table> table,
      OpenTable(serving.config(), serving.roster, serving.pool, serving.epochs.table().get()));
  return ReadServedTable(serving.config().table_directory(), std::move(table), serving.engines.pir);
}

// Takes requests to engines alone. Party 1 listens where its clients are in any case.
absl::StatusOr<std::unique_ptr<net::Server>> ListenForEngines(const Serving& serving) {
  PirService& service = *serving.service;
  net::Server::Options listen = serving.listen;
  listen.address = EnginesAddress(serving.config(), serving.self());
  if (serving.self().client_address.empty()) return NoClientAddress(serving.config());
  ServeClients(serving.config(), listen);
  listen.limits = [&](wire::FrameType type) { return service.Limits(type); };
  listen.refused = ErrorsTo(kClients, serving.monitoring);
  const std::string address = listen.address;
  auto server = net::Server::Start(std::move(listen), [&](wire::Frame request, net::Reply reply) {
    service.Handle(std::move(request), std::move(reply));
  });
  if (server.ok()) {
    serving.monitoring.Watch(kClients, **server);
    spdlog::info("{} of {} listens on {} for clients of engines", serving.self().name,
                 serving.roster.deployment(), address);
  }
  return server;
}

// Engines without a chain: no rounds, no other party, no state. SIGHUP takes the table's next
// epoch.
absl::Status ServeEngines(const Serving& serving) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<net::Server> server, ListenForEngines(serving));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<net::PageServer> pages,
                         ShowPages(serving.monitoring, serving.config()));
  spdlog::info("{} of {} serves no chain", serving.self().name, serving.roster.deployment());
  WaitForEnd(
      serving.process, [&] { server->connections(); },
      [&]() -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(ServedTable next, ReadNextEpoch(serving));
        const std::shared_ptr<const table::Table> table = next.table;
        SHOAL_RETURN_IF_ERROR(serving.service->Reload(std::move(next), [&] {
          serving.epochs.Serve(
              {table, std::make_shared<const server::TableEpoch>(ChainEpoch(*table))});
          return absl::OkStatus();
        }));
        spdlog::info("serves epoch {} of the table", table->manifest().epoch());
        return absl::OkStatus();
      });
  return absl::OkStatus();
}

// The port of a party with the chain: for its clients at party 1, and for the party before
// elsewhere.
class TlsNetwork final : public PartyNetwork {
 public:
  explicit TlsNetwork(const Serving& serving)
      : identity_(serving.keys.tls()), listen_(serving.listen) {
    const ServerConfig& config = serving.config();
    const uint32_t rank = serving.process.machine.rank;
    if (config.party() == 1) {
      if (listen_.address.empty()) listen_.address = serving.self().ClientAddress(rank);
      ServeClients(config, listen_);
      return;
    }
    if (listen_.address.empty()) listen_.address = serving.self().PeerAddress(rank);
    listen_.clients = {serving.roster.party(config.party() - 1).tls_certificate_sha256};
    // Of this port alone: strangers rest for less.
    listen_.idle_timeout = PeerService::kIdle;
    listen_.another_version = [](const absl::Status& refused) {
      spdlog::warn("refused the party before this one: {}", std::string(refused.message()));
    };
  }
  std::unique_ptr<PeerCalls> CallsTo(const roster::Party& next) override {
    return std::make_unique<TlsCalls>(next, identity_);
  }
  absl::Status Listen(Port port) override {
    listen_.limits = std::move(port.limits);
    listen_.sink = std::move(port.sink);
    SHOAL_ASSIGN_OR_RETURN(server_, net::Server::Start(listen_, std::move(port.handler)));
    return absl::OkStatus();
  }
  void Close() override { server_.reset(); }

  const std::string& address() const { return listen_.address; }
  const net::Server& server() const { return *server_; }

 private:
  const roster::TlsIdentity& identity_;
  net::Server::Options listen_;
  std::unique_ptr<net::Server> server_;
};

// Has the operator see what happens in a party.
PartyEvents EventsFor(Monitoring& monitoring, ProgressLog& progress, bool backend) {
  Metrics& metrics = monitoring.metrics();
  return {
      .journal = {.synced = [&metrics](double seconds) { metrics.Synced(seconds); },
                  // Ends the wait for the end: only another process can go on, which reads what is
                  // there.
                  .broken =
                      [](const absl::Status& why) {
                        spdlog::critical("the journal takes no more records: {}; ending",
                                         why.ToString());
                        kill(getpid(), SIGTERM);
                      }},
      .progress = [&progress](RoundCounter round, uint64_t opened,
                              uint64_t onions) { progress.Tell(round, opened, onions); },
      .round_ended =
          [](RoundCounter round, absl::string_view why) {
            spdlog::info("round {}: {}, erased", round.value(), std::string(why));
          },
      .stage_done =
          [&metrics, backend](const wire::StageReport& report) {
            // A party that is the head of a half is done once that half's answers are back.
            const bool answers_last = !backend || report.half() != 0;
            metrics.StageDone(report, report.stage() == (answers_last ? "answers" : "online"));
          },
      .term_ended =
          [](RoundCounter round, absl::string_view why) {
            spdlog::info("round {}: its term has ended, erased: {}", round.value(),
                         std::string(why));
          },
      .refresh_done =
          [&metrics](const wire::StageReport& report) {
            metrics.StageDone(report, /*last=*/false);
          },
      .refresh_tried = [&metrics](const absl::Status& how) { metrics.RefreshEnded(how.ok()); },
      .job_ended = [] { kill(getpid(), SIGTERM); },
  };
}

void WatchParty(PartyRuntime& runtime, const TlsNetwork& network, const Serving& serving) {
  Monitoring& monitoring = serving.monitoring;
  monitoring.Watch(serving.config().party() == 1 ? kClients : kNeighbour, network.server());
  if (runtime.frontend() != nullptr) monitoring.Watch(*runtime.frontend());
  if (!serving.process.machine.is_head()) return;
  monitoring.Watch(*runtime.states());
  runtime.watch() != nullptr ? monitoring.Watch(*runtime.watch())
                             : monitoring.Watch(*runtime.peers());
}

// Whatever calls a party, and is called by it, until the process is to end.
absl::Status ServeChain(const Serving& serving) {
  const auto& [config, machine, signals, clock, random, log, notifier] = serving.process;
  Monitoring& monitoring = serving.monitoring;
  ProgressLog progress;
  TlsNetwork network(serving);
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<PartyRuntime> runtime,
      PartyRuntime::Create(
          {.config = config,
           .roster = &serving.roster,
           .key = machine.is_head() ? &serving.keys.party->bls() : nullptr,
           .machine = serving.joined,
           .epochs = &serving.epochs,
           .engines = serving.service,
           .network = &network,
           .clock = &clock,
           .random = &random,
           .pool = &serving.pool,
           .state = [&monitoring] { return monitoring.State(); },
           .events = EventsFor(monitoring, progress, config.party() == serving.roster.size())}));
  monitoring.Watch(runtime->party(), runtime->party().max_open_rounds());
  if (runtime->terms() != nullptr) monitoring.Watch(*runtime->terms());
  std::unique_ptr<net::Server> engines_server;  // of another party than the first
  if (serving.service != nullptr && config.party() != 1) {
    SHOAL_ASSIGN_OR_RETURN(engines_server, ListenForEngines(serving));
  }
  // What can fail comes before the first round is opened to clients.
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<net::PageServer> pages, ShowPages(monitoring, config));
  SHOAL_RETURN_IF_ERROR(runtime->Start());
  WatchParty(*runtime, network, serving);
  const table::Manifest& manifest = serving.epochs.table()->manifest();
  spdlog::info("{} of {} listens on {}; table {}, epoch {}: {} rows of {} bytes",
               serving.self().name, serving.roster.deployment(), network.address(), manifest.name(),
               manifest.epoch(), serving.epochs.table()->rows(), manifest.row_bytes());
  const auto probe = [&] {
    network.server().connections();
    runtime->party().open_rounds();
    if (runtime->frontend() != nullptr) runtime->frontend()->ListRounds();
  };
  WaitForEnd(serving.process, probe, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(ServedTable next, ReadNextEpoch(serving));
    const std::shared_ptr<const table::Table> table = next.table;
    SHOAL_RETURN_IF_ERROR(runtime->Take(
        std::move(next), [&waits = serving.process.signals] { return SignalWaits(waits); }));
    spdlog::info("serves epoch {} of the table: {} rows of {} bytes; the next rounds are of it",
                 table->manifest().epoch(), table->rows(), table->manifest().row_bytes());
    return absl::OkStatus();
  });
  pages.reset();
  const absl::Status end = runtime->Stop();
  if (end.ok() && machine.is_one_of_several()) spdlog::info("all machines end in good order");
  return end;
}

// --- what a start checks ---

// Whether the engines' servers fit the memory.
void CheckEngines(const ServedTable& served, uint64_t max_hint_bytes, Findings& findings) {
  const pir::Content content = pir::ContentOf(served.table->AsPrevious());
  for (const auto& [engine, setup] : served.setups) {
    pir::ServerOptions server;
    server.max_hint_bytes = max_hint_bytes;
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
}

// Whether a party can go on from what its state says, which is copied for that.
void CheckState(const ServerConfig& config, const roster::Roster& roster, const Keys& keys,
                const server::TableEpoch& table, const Process& process, Findings& findings) {
  const auto copy = JournalCopy::Take(config.state_directory());
  findings.Add(copy.status(), absl::IsFailedPrecondition(copy.status())
                                  ? "if it is this party, stop it first, or check its files alone "
                                    "(--check-files); never run two over one state"
                                  : "");
  if (!copy.ok()) return;
  server::Party::Options options = PartyOptions(config, roster, table);
  const uint32_t machines = roster.party(config.party()).machines;
  if (machines > 1) {
    options.machines = {
        .count = machines,
        .join = [](uint32_t, const Digest&) -> absl::StatusOr<std::shared_ptr<machines::Machines>> {
          return absl::FailedPreconditionError("a check joins no round");
        }};
  }
  const auto party = server::Party::Create(std::move(options), keys.party->bls(),
                                           (*copy)->journal(), &process.random, &process.clock, {});
  findings.Add(party.status(), "that is what this party's state_directory says");
  if (party.ok() && config.party() == 1) {
    findings.Add(server::Frontend::Create(PlanFrom(config, roster), party->get(),
                                          (*copy)->journal(), &process.clock, {},
                                          {.count = machines})
                     .status());
  }
}

// Whether the process can listen where it is to.
void CheckPorts(const ServerConfig& config, const roster::Party& self, const Keys& keys,
                const Engines& engines, Findings& findings) {
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
}

// Tries what a start does after reading roster, keys and table, and changes nothing. Returns all
// that a start would be refused for.
absl::Status CheckStart(const cli::Values& values, const roster::Roster& roster, const Keys& keys,
                        const Engines& engines, const ServedEpoch& epoch, const Process& process) {
  const ServerConfig& config = process.config;
  SHOAL_ASSIGN_OR_RETURN(const ServedTable served,
                         ReadServedTable(config.table_directory(), epoch.table, engines.pir));
  SHOAL_RETURN_IF_ERROR(CheckSetups(served, engines.pir, roster));
  if (values.count("check-files") > 0) {
    spdlog::info(
        "configuration, keys, roster and table are in order; state and ports were not "
        "looked at");
    return absl::OkStatus();
  }
  Findings findings;
  CheckEngines(served, MaxHintBytes(values), findings);
  if (config.spool_directory() != config.state_directory()) {
    findings.Add(CheckWritable("spool_directory", config.spool_directory()));
  }
  // A machine of several that is not the head has no record of its own but for its clients.
  if (engines.chain && keys.party.has_value()) {
    CheckState(config, roster, keys, *epoch.chain, process, findings);
  } else if (engines.chain) {
    findings.Add(CheckWritable("state_directory", config.state_directory()));
  }
  CheckPorts(config, roster.party(config.party()), keys, engines, findings);
  ConnectionsThatFit(config.max_connections());  // warns
  SHOAL_RETURN_IF_ERROR(findings.Summary());
  spdlog::info("configuration, keys, roster, table, state and ports are in order");
  return absl::OkStatus();
}

// --- the process ---

absl::StatusOr<roster::Roster> ReadRoster(const ServerConfig& config, const Clock& clock) {
  SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned,
                         roster::PinnedParties::Read(config.pinned_parties_file()));
  wire::SignedRoster signed_roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(config.roster_file(), signed_roster));
  SHOAL_ASSIGN_OR_RETURN(roster::Roster roster,
                         roster::Roster::Verify(signed_roster, pinned, clock.NowSeconds()));
  for (const uint32_t number : roster.renewed()) {
    spdlog::warn("{}: has an earlier key of party {}, which has renewed it; make new pins",
                 config.pinned_parties_file(), number);
  }
  if (config.party() > roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", config.party(), ": the roster has ", roster.size(), " parties"));
  }
  return roster;
}

// What all listeners of the process have in common. A party that has clients beside a neighbour
// listens twice, and its files are shared.
net::Server::Options ListenOptions(const ServerConfig& config, const Keys& keys,
                                   const Engines& engines, Monitoring& monitoring) {
  net::Server::Options listen{
      .address = config.listen_address(),
      .identity = {.certificate_pem = keys.tls().certificate_pem,
                   .private_key_pem = keys.tls().private_key_pem},
      .clients = {},
      .limits = nullptr,
      .refused = ErrorsTo(config.party() == 1 ? kClients : kNeighbour, monitoring),
      .shares = {.newcomers = config.shares().new_connections()},
      .shared_addresses = SharedAddresses(config),
      .group_shares = {.newcomers = config.group_shares().new_connections()}};
  const size_t listeners = config.party() != 1 && engines.chain && !engines.pir.empty() ? 2 : 1;
  SetPlaces(ConnectionsThatFit(listeners * config.max_connections()) / listeners, listen);
  return listen;
}

// The first epoch of the table, with what the engines of this party need of it.
absl::StatusOr<ServedEpoch> ReadFirstEpoch(const ServerConfig& config, const roster::Roster& roster,
                                           const Engines& engines, ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<const table::Table> table,
                         OpenTable(config, roster, pool));
  server::TableEpoch chain = ChainEpoch(*table);
  // In two tiers both parties answer from the table.
  if (engines.chain && (config.party() == roster.size() || roster.most_in_bucket() != 0)) {
    SHOAL_RETURN_IF_ERROR(AddAnswers(*table, chain));
  }
  return ServedEpoch{std::move(table),
                     std::make_shared<const server::TableEpoch>(std::move(chain))};
}

// Serves the party's neighbours and clients until the process is to end. `several`: this is the
// program of a party of several machines; without a job it can only check.
absl::Status Serve(const cli::Values& values, const Engines& engines, bool several,
                   const Process& process) {
  const ServerConfig& config = process.config;
  const Machine& machine = process.machine;
  const bool checks = OnlyChecks(values);
  ThreadPool pool(config.threads());
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, ReadRoster(config, process.clock));
  SHOAL_RETURN_IF_ERROR(CheckMachines(roster, config, machine, several));
  SHOAL_ASSIGN_OR_RETURN(Keys keys, LoadKeys(config, machine.is_head(), several, checks));
  SHOAL_RETURN_IF_ERROR(CheckKeys(keys, config, roster));
  std::unique_ptr<JoinedMachine> joined;
  if (machine.is_one_of_several()) {
    SHOAL_ASSIGN_OR_RETURN(
        joined,
        JoinedMachine::Join(machine.job, std::move(keys.machines->secret), config.keys_directory(),
                            &process.clock, &process.random, config.machines_progress_limit_s()));
  }
  SHOAL_ASSIGN_OR_RETURN(ServedEpoch first, ReadFirstEpoch(config, roster, engines, pool));
  if (config.party() == 1) {
    SHOAL_RETURN_IF_ERROR(server::CheckPlan(PlanFrom(config, roster), roster));
  }
  if (engines.chain && !engines.pir.empty()) SHOAL_RETURN_IF_ERROR(CheckListeners(config, roster));
  if (checks) return CheckStart(values, roster, keys, engines, first, process);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PirService> service,
                         StartEngines(engines, values, config, roster, first.table, pool));
  TableEpochs epochs(std::move(first));
  Monitoring monitoring(config, roster, keys.tls(), process.clock);
  monitoring.Watch(epochs);
  const Serving serving{.process = process,
                        .roster = roster,
                        .keys = keys,
                        .engines = engines,
                        .epochs = epochs,
                        .monitoring = monitoring,
                        .pool = pool,
                        .joined = joined.get(),
                        .service = service.get(),
                        .listen = ListenOptions(config, keys, engines, monitoring)};
  return engines.chain ? ServeChain(serving) : ServeEngines(serving);
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
    served =
        Serve(values, engines, several, {config, machine, signals, clock, random, log, notifier});
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
