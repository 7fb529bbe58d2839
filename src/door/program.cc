#include "src/door/program.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "spdlog/spdlog.h"
#include "src/base/clock.h"
#include "src/base/status_macros.h"
#include "src/door/config.h"
#include "src/door/door.h"
#include "src/door/health.h"
#include "src/door/spent_tokens.h"
#include "src/door/tokens.h"
#include "src/net/connection.h"
#include "src/net/page_server.h"
#include "src/parallel/mutex.h"
#include "src/roster/roster.h"
#include "src/shoald/log.h"
#include "src/shoald/notify.h"
#include "src/shoald/start_check.h"
#include "src/wire/frame.h"

namespace shoal::door {
namespace {

using namespace std::chrono_literals;

constexpr char kHelp[] =
    R"(Serves browsers, phones and other clients of the web for party 1 of a deployment, over
HTTPS and WebSocket: the same messages, which it passes to party 1's port for clients. It
has no key of the party and reads no message; what it sees is what the frontend sees,
sealed, with the addresses of clients. It sets limits for each address by itself, as to
the frontend all its clients are one. Logs go to standard error and name no client.
SIGINT and SIGTERM end the process; clients ask again elsewhere, or later. SIGHUP reads
the roster, the pins and the certificate again, the last of which also happens within a
minute of a change of its files; open connections stay, and what cannot be trusted
changes nothing.
Exit codes: 0 ended in good order, 1 failed, 2 wrong usage, 3 the roster cannot be
trusted.
)";
constexpr char kExamples[] =
    R"(  shoal-door --config door.textproto            run the door
  shoal-door --config door.textproto --check    would a start be refused? says why, and exits
  shoal-door --config door.textproto --check-files    the same of its files, beside a door that runs
  shoal-door --config door.textproto --begin-keys    take new issuers' tokens, after a restart
)";

// How often the files of the certificate are looked at.
constexpr std::chrono::seconds kLookAgain(30);
// How long the frontend has to take a connection, and to answer. It is asked again after a pause.
constexpr std::chrono::milliseconds kProbeTimeout(3'000);
constexpr std::chrono::milliseconds kProbePause(5'000);
constexpr std::chrono::milliseconds kProbeLasts = kProbePause + 3 * kProbeTimeout;

// Whether the frontend answers. Ends soon after `stops` has become true.
absl::Status Probe(const FrontendOptions& frontend, const std::function<bool()>& stops = nullptr) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<net::Connection> connection,
                         net::Connection::Connect({.address = frontend.address,
                                                   .pin = frontend.pin,
                                                   .connect_timeout = kProbeTimeout,
                                                   .cancelled = stops}));
  return connection
      ->Call({.type = wire::FrameType::kListRounds, .control = {}, .bulk = {}},
             {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0}, kProbeTimeout)
      .status();
}

// The frontend that the roster in force describes. Thread-safe.
class FrontendInForce {
 public:
  explicit FrontendInForce(FrontendOptions frontend) : frontend_(std::move(frontend)) {}

  FrontendOptions Get() const {
    const MutexLock lock(mutex_);
    return frontend_;
  }
  void Set(const FrontendOptions& frontend) {
    const MutexLock lock(mutex_);
    frontend_ = frontend;
  }

 private:
  mutable Mutex mutex_;
  FrontendOptions frontend_ ABSL_GUARDED_BY(mutex_);
};

// Reads roster and pins again. An error leaves all as it was.
absl::Status FollowRoster(const DoorConfig& config, const Clock& clock, roster::Roster& roster,
                          FrontendInForce& frontend, Door& door) {
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster next, ReadRoster(config, clock.NowSeconds()));
  SHOAL_RETURN_IF_ERROR(CheckSuccessor(roster, next));
  const FrontendOptions before = frontend.Get(), now = OptionsFrom(config, next).frontend;
  if (now.address != before.address || now.pin != before.pin) {
    SHOAL_RETURN_IF_ERROR(door.UseFrontend(now));
    frontend.Set(now);
    spdlog::info("passes requests to {} from now on", now.address);
  }
  if (next.epoch() != roster.epoch())
    spdlog::info("the roster of epoch {} is in force", next.epoch());
  roster = next;
  return absl::OkStatus();
}

// What the pages of the door's operator show.
net::Page PageAt(absl::string_view path, const Figures& figures, uint64_t certificate_expires_s,
                 uint64_t now_s, const Health& health) {
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
            .body = figures.Page(certificate_expires_s, now_s)};
  }
  if (path != "/healthz") return {.status = 404, .body = "there are /metrics and /healthz\n"};
  const absl::Status well = health.Last();
  if (well.ok()) return {.body = "ok\n"};
  return {.status = 503, .body = absl::StrCat(well.message(), "\n")};
}

std::string PagesAddress(const DoorConfig& config) {
  return absl::StrCat(config.monitoring().host(), ":", config.monitoring().port());
}

// No core file, and no other process of the same user reads the memory, which holds the key of the
// certificate and the addresses of clients.
void KeepMemoryPrivate() {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  setrlimit(RLIMIT_CORE, &none);
  prctl(PR_SET_DUMPABLE, 0);
}

// As many descriptors as the system gives; a connection of a client and one to the frontend each
// take one.
void TakeDescriptors(uint64_t wanted) {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < wanted) {
    spdlog::warn(
        "the system allows {} open files, and {} connections may need as many: raise the "
        "hard limit (ulimit -Hn), or lower max_connections",
        files.rlim_cur, wanted);
  }
}

// Waits for a signal of `signals`, or for `time`: 0 then.
int WaitFor(const sigset_t& signals, std::chrono::seconds time) {
  const timespec limit = {.tv_sec = time.count(), .tv_nsec = 0};
  const int signal_number = sigtimedwait(&signals, nullptr, &limit);
  return signal_number < 0 ? 0 : signal_number;
}

absl::Status Check(const DoorConfig& config, const Door::Options& options) {
  shoald::Findings findings;
  shoald::ListenCheck listen;
  findings.Add(listen.Add(options.address), "see listen_address of the configuration");
  if (config.has_monitoring()) {
    findings.Add(listen.Add(PagesAddress(config)), "see monitoring of the configuration");
  }
  if (!options.ohttp_socket.empty()) {
    boost::asio::io_context io;
    boost::asio::local::stream_protocol::socket socket(io);
    boost::system::error_code error;
    socket.connect(options.ohttp_socket, error);
    if (error) {
      findings.Add(
          absl::UnavailableError(absl::StrCat(options.ohttp_socket, ": ", error.message())),
          "shoal-ohttp must run, and this user must be in its group");
    }
  }
  findings.Add(Probe(options.frontend),
               "party 1 must run, and frontend_address, or the roster, must lead there");
  return findings.Summary();
}

// Shows the certificate that is there now, unless it is the one in force, or is of no use.
void FollowCertificate(const DoorConfig& config, const Clock& clock, Certificate& in_force,
                       Door& door) {
  absl::StatusOr<Certificate> read = Certificate::Read(config, clock.NowSeconds());
  absl::Status taken = read.status();
  if (read.ok() && !(*read == in_force)) {
    taken = door.UseCertificate(read->identity());
    if (taken.ok()) {
      in_force = *std::move(read);
      spdlog::info("shows another certificate from now on");
    }
  }
  if (!taken.ok()) spdlog::error("the certificate was not read again: {}", taken.ToString());
}

// What a start does.
enum class Start { kServe, kCheck, kCheckFiles };

absl::Status Serve(const DoorConfig& config, Start start, const sigset_t& signals,
                   const Clock& clock, const shoald::Notifier& notifier, shoald::Log& log) {
  SHOAL_ASSIGN_OR_RETURN(roster::Roster roster, ReadRoster(config, clock.NowSeconds()));
  SHOAL_ASSIGN_OR_RETURN(Certificate certificate, Certificate::Read(config, clock.NowSeconds()));
  Door::Options options = OptionsFrom(config, roster);
  std::optional<TokenRules> tokens;
  std::unique_ptr<SpentTokens> spent;
  if (config.has_tokens()) {
    SHOAL_ASSIGN_OR_RETURN(tokens, ReadTokenRules(config));
  }
  if (start == Start::kCheckFiles) return absl::OkStatus();
  if (tokens.has_value()) {
    SHOAL_ASSIGN_OR_RETURN(spent,
                           SpentTokens::Open(config.tokens().state_directory(), tokens->key_ids(),
                                             config.tokens().max_spent()));
    options.tokens = &*tokens;
    options.spent = spent.get();
  }
  if (start == Start::kCheck) return Check(config, options);
  TakeDescriptors(options.max_connections + options.max_newcomers + options.frontend.max_links);
  options.identity = certificate.identity();
  FrontendInForce frontend(options.frontend);

  Figures figures;
  std::atomic<uint64_t> expires_s = certificate.expires_s();
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Door> door,
                         Door::Start(std::move(options), &figures));
  std::unique_ptr<Health> health;
  std::unique_ptr<net::PageServer> pages;
  if (config.has_monitoring()) {
    health = std::make_unique<Health>(
        [&](const std::function<bool()>& stops) { return Probe(frontend.Get(), stops); },
        kProbePause, kProbeLasts);
    SHOAL_ASSIGN_OR_RETURN(
        pages,
        net::PageServer::Start({.address = PagesAddress(config)}, [&](absl::string_view path) {
          return PageAt(path, figures, expires_s, clock.NowSeconds(), *health);
        }));
    spdlog::info("/metrics and /healthz are at {}", PagesAddress(config));
  }
  spdlog::info("the door of {} listens on {}, and passes requests to {}", roster.deployment(),
               config.listen_address(), frontend.Get().address);
  const shoald::Watchdog watchdog(&notifier, [&] { door->Probe(); });
  notifier.Ready("in service");
  for (;;) {
    const int signal_number = WaitFor(signals, kLookAgain);
    if (signal_number == SIGINT || signal_number == SIGTERM) break;
    if (signal_number == SIGHUP) {
      log.TellCounts();
      notifier.Reloading();
      const absl::Status followed = FollowRoster(config, clock, roster, frontend, *door);
      if (!followed.ok()) {
        spdlog::error("the roster in force stays: {}", followed.ToString());
      }
    }
    FollowCertificate(config, clock, certificate, *door);
    expires_s = certificate.expires_s();
    if (signal_number == SIGHUP) notifier.Ready("in service");
  }
  notifier.Stopping();
  spdlog::info("ending");
  return absl::OkStatus();
}

// Makes the records of issuers' keys that have none.
absl::Status BeginKeys(const DoorConfig& config, std::ostream& out) {
  if (!config.has_tokens()) return cli::UsageError("--begin-keys: the configuration has no tokens");
  SHOAL_ASSIGN_OR_RETURN(const TokenRules tokens, ReadTokenRules(config));
  for (const Digest& key_id : tokens.key_ids()) {
    const absl::Status begun = SpentTokens::Begin(config.tokens().state_directory(), key_id);
    if (!begun.ok() && !absl::IsAlreadyExists(begun)) return begun;
    out << "key " << Hex(key_id) << (begun.ok() ? ": begun\n" : ": was begun before\n");
  }
  return absl::OkStatus();
}

absl::Status Run(const cli::Values& values, std::ostream& out) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_log, cli::Chosen(values, "log-format", "text", "json"));
  SHOAL_ASSIGN_OR_RETURN(const DoorConfig config,
                         ReadDoorConfig(values["config"].as<std::string>()));
  if (values.count("begin-keys") > 0) return BeginKeys(config, out);
  // Before any thread: all of them leave these signals to the wait at the end.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  KeepMemoryPrivate();
  const SystemClock clock;
  shoald::Log log(/*party=*/1, std::nullopt, json_log, &clock);
  const shoald::Notifier notifier = shoald::Notifier::FromEnvironment();
  const Start start = values.count("check-files") > 0 ? Start::kCheckFiles
                      : values.count("check") > 0     ? Start::kCheck
                                                      : Start::kServe;
  return Serve(config, start, signals, clock, notifier, log);
}

}  // namespace

cli::Command DoorCommand() {
  return {
      .name = "shoal-door",
      .summary = "HTTPS and WebSocket for the clients of a frontend",
      .help = kHelp,
      .examples = kExamples,
      .options =
          [](cli::Options& options) {
            options.add_options()("config", cli::File()->required(),
                                  "the door's configuration (text-format protobuf)")(
                "check",
                "check all that a start checks, and whether the frontend answers; and exit")(
                "check-files",
                "check the files that it reads, without its state, ports and the frontend; and "
                "exit")(
                "begin-keys",
                "begin the issuers' keys that are new: make the records of what is spent under "
                "them; "
                "and exit. Never for a key whose record was lost")(
                "log-format", cli::Text(), "text, or json: one object a line (default text)");
          },
      .positional = "",
      .run = [](const cli::Values& values, cli::Io& io) { return Run(values, io.out); },
  };
}

}  // namespace shoal::door
