#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/client.h"
#include "src/client/environment.h"
#include "src/client/retry_policy.h"
#include "src/shoal/command_keys.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/session.h"
#include "src/storage/file.h"
#include "src/table/records.h"

namespace shoal::commands {
namespace {

// The shortest time between two steps of --every.
constexpr uint64_t kLeastEveryS = 10;
constexpr uint64_t kMostEveryS = 7 * 24 * 3600;
// How long to wait for a round with a term: parties announce some a day.
constexpr uint64_t kWaitS = 25 * 3600;

bool HasNul(BytesView bytes) { return std::ranges::find(bytes, 0) != bytes.end(); }

// Prints news, and runs the command for each.
class NewsPrinter final : public client::Client::NewsSink {
 public:
  NewsPrinter(bool json, std::string command, std::function<void(absl::string_view)> warn,
              std::ostream& out)
      : json_(json), command_(std::move(command)), warn_(std::move(warn)), out_(out) {}

  absl::Status Add(BytesView key, const client::Lookup& result, const client::News& news) override {
    const char* const what = news.first ? "first" : "changed";
    if (json_) {
      JsonObject object;
      object.Blob("key", key).Text("status", OutcomeName(result.outcome));
      if (result.outcome == client::Lookup::Outcome::kFound) object.Blob("value", result.value);
      object.Text("news", what).Integer("epoch", news.epoch);
      absl::StrAppend(&text_, object.Take(), "\n");
    } else {
      absl::StrAppend(&text_, table::EscapeTsv(key), "\t", OutcomeName(result.outcome), "\t",
                      table::EscapeTsv(result.value), "\t", what, "\n");
    }
    if (!command_.empty()) calls_.push_back({ToBytes(key), result, news});
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    out_ << text_;
    text_.clear();
    if (!out_.flush()) {
      return absl::UnavailableError("standard output cannot be written; is its disk full?");
    }
    return absl::OkStatus();
  }

  // Runs the command for all news. To be called when the client is gone: it may take its time.
  // Returns how many failed.
  uint64_t RunCommands() {
    uint64_t failed = 0;
    for (const Call& call : std::exchange(calls_, {})) failed += !Run(call);
    return failed;
  }
  // The same in a process of its own, which nobody waits for: how long commands take must not show
  // in when the next step is taken.
  void RunCommandsAside() {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (calls_.empty()) return;
    const pid_t aside = ::fork();
    if (aside == 0) {
      RunCommands();
      ::_exit(0);
    }
    if (aside < 0) warn_(absl::StrCat("--exec: ", ErrnoStatus(errno, "fork").message()));
    calls_.clear();
  }

 private:
  struct Call {
    Bytes key;
    client::Lookup result;
    client::News news;
  };

  bool Run(const Call& call) {
    if (HasNul(call.key) || HasNul(call.result.value)) {
      warn_("a key or value with a zero byte cannot be given to --exec");
      return false;
    }
    const pid_t child = ::fork();
    if (child < 0) {
      warn_(absl::StrCat("--exec: ", ErrnoStatus(errno, "fork").message()));
      return false;
    }
    if (child == 0) {
      ::setenv("SHOAL_KEY", ToString(call.key).c_str(), 1);
      ::setenv("SHOAL_STATUS", OutcomeName(call.result.outcome), 1);
      ::setenv("SHOAL_VALUE", ToString(call.result.value).c_str(), 1);
      ::setenv("SHOAL_NEWS", call.news.first ? "first" : "changed", 1);
      ::signal(SIGPIPE, SIG_DFL);
      ::execl("/bin/sh", "sh", "-c", command_.c_str(), static_cast<char*>(nullptr));
      ::_exit(127);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    warn_(absl::StrCat("--exec: the command failed for ", table::EscapeTsv(call.key)));
    return false;
  }

  const bool json_;
  const std::string command_;
  const std::function<void(absl::string_view)> warn_;
  std::ostream& out_;
  std::string text_;
  std::vector<Call> calls_;
};

void TellWatched(const client::Client::Watched& watched, uint64_t now_s, Console& console) {
  const std::string until =
      watched.term_expires_s == 0 ? "" : client::TimeText(watched.term_expires_s, now_s);
  if (watched.enrolled) {
    console.Tell(
        absl::StrCat("enrolled; the keys are answered from every new epoch of the table until ",
                     until, ", without being asked again"));
  } else if (watched.refreshed) {
    console.Tell(absl::StrCat("refreshed from epoch ", watched.epoch, " of the table"));
  } else if (absl::IsNotFound(watched.no_news)) {
    console.Warn(absl::StrCat("no news: the parties have ended the term (",
                              watched.no_news.message(), "). This device enrols again at ", until,
                              ", and not earlier, as that would show that it noticed"));
  } else if (!watched.no_news.ok()) {
    console.Tell(absl::StrCat("no news: ", watched.no_news.message()));
  } else {
    console.Tell(absl::StrCat("no new refresh; what is known is from epoch ", watched.epoch));
  }
  if (watched.failed > 0) {
    console.Warn(
        absl::StrCat(watched.failed,
                     " keys have no verified answer, and no news. They are not asked again "
                     "before the next refresh, which may have one"));
  }
  if (watched.waiting > 0) {
    console.Tell(absl::StrCat(watched.waiting,
                              " keys were not in the list when this device enrolled: "
                              "they wait until ",
                              until));
  }
}

absl::Status RunWatch(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json, JsonWanted(values, "tsv"));
  const bool again = values.count("every") > 0;
  const uint64_t every_s = cli::NumberOr(values, "every", 0);
  if (again && (every_s < kLeastEveryS || every_s > kMostEveryS)) {
    return cli::UsageError(
        absl::StrCat("--every: ", kLeastEveryS, " to ", kMostEveryS, " seconds"));
  }
  const uint64_t wait_s = cli::NumberOr(values, "wait", kWaitS);
  if (wait_s == 0 || wait_s > kMostEveryS) {
    return cli::UsageError(absl::StrCat("--wait: 1 to ", kMostEveryS, " seconds"));
  }
  const std::string command = cli::TextOr(values, "exec", "");
  if (values.count("exec") > 0 && absl::StripAsciiWhitespace(command).empty()) {
    return cli::UsageError("--exec: which command? Leave it out to have news printed alone");
  }
  SHOAL_ASSIGN_OR_RETURN(const client::BeyondPhi beyond_phi, BeyondPhiOf(values));
  SHOAL_ASSIGN_OR_RETURN(CommandKeys keys, CommandKeys::Read("shoal watch", values, io));
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  // A reader that has gone away is an error like any other, and not the end of the process: a
  // device that dies when it has news would show that.
  ::signal(SIGPIPE, SIG_IGN);
  NewsPrinter printer(
      json, command, [&io](absl::string_view what) { io.err << "shoal watch: " << what << '\n'; },
      io.out);
  const auto begun = std::chrono::steady_clock::now();
  for (;;) {
    const absl::Status step = [&]() -> absl::Status {
      SHOAL_ASSIGN_OR_RETURN(
          const std::unique_ptr<Session> session,
          Session::Open("shoal watch", config_path, connect, values.count("quiet") > 0, io));
      SHOAL_ASSIGN_OR_RETURN(
          const client::Client::Watched watched,
          session->WatchOnce(keys, beyond_phi, static_cast<uint32_t>(wait_s), printer));
      if (watched.enrolled) session->TellCosts();
      TellWatched(watched, UndisturbedClock().NowSeconds(), session->console());
      return absl::OkStatus();
    }();
    if (!again) {
      SHOAL_RETURN_IF_ERROR(step);
      const uint64_t failed = printer.RunCommands();
      return failed == 0 ? absl::OkStatus()
                         : absl::UnknownError(absl::StrCat(failed, " commands of --exec failed"));
    }
    if (!step.ok()) io.err << "shoal watch: " << step.message() << "; the next try follows\n";
    printer.RunCommandsAside();
    // Steps are at the same times, whatever one of them took.
    const auto every = std::chrono::seconds(every_s);
    const auto steps = (std::chrono::steady_clock::now() - begun) / every + 1;
    std::this_thread::sleep_until(begun + steps * every);
  }
}

}  // namespace

cli::Command Watch(Connector connect) {
  return {
      .name = "watch",
      .summary = "ask keys once, and be told what changes, privately",
      .help =
          R"(Asks a list of keys once, in a round with a term, and takes the answers from every new
epoch of the table until the term ends. Run it as often as the table changes, from a
timer: the first run enrols and prints all keys, later ones print what has changed,
  key, found | absent | unknown, value, first | changed            with tabs, or
  {"key":..,"status":..,"value":..,"news":..,"epoch":..}           with --format json
A run in a term asks nothing: it fetches the answers to all of the list, changed or not,
and days without a run cost nothing but the days. A key that is unknown has moved to
another row, and is known again in the next term.

Everything that the parties together may learn of the list is what one round shows; a
term is charged once. That holds as long as nobody can see what the answers say. So the
command never asks a second time what failed, and enrols again when the term is over,
not when it fails. What you do with the news is yours: who fetches a new version right
away shows that it was watched. --exec runs a command for every line, with SHOAL_KEY,
SHOAL_STATUS, SHOAL_VALUE and SHOAL_NEWS in its environment, once all connections have
ended; what the command does on the network can be seen, and so can one that runs so long
that a timer leaves the next run out. With --every, steps keep their times: commands run
beside them.

Keys that are added to the list wait for the next term. max_enrolments of the
configuration limits how often a device enrols, whatever aborts. PATH.term and PATH.seen
beside the state keep the term and a digest of what is known; both are readable by their
owner alone.

With --every the command stays, and takes a step every so many seconds. Exit code 0
means that the step was taken, whether there is news or not.
)",
      .examples = R"(  shoal watch --config client.textproto --file keys
  shoal watch --config client.textproto --file keys --exec 'echo "$SHOAL_KEY is $SHOAL_VALUE"'
  shoal watch --config client.textproto --file keys --format json --every 3600
)",
      .options =
          [](cli::Options& options) {
            AddConfigOption(options);
            AddKeyOptions(options);
            AddFormatOption(options, "tsv");
            options.add_options()("exec", cli::Text(), "run this shell command for every line");
            options.add_options()("every", cli::Number(),
                                  "stay, and take a step every so many seconds");
            options.add_options()("wait", cli::Number(),
                                  "wait so many seconds for a round with a term, if one is needed "
                                  "(90000)");
            options.add_options()("accept-more",
                                  "enrol a list that is larger than a round protects together, at "
                                  "the protection that is printed first");
            options.add_options()("quiet", "print only errors on standard error");
          },
      .positional = "key",
      .run = std::bind_front(RunWatch, std::move(connect))};
}

}  // namespace shoal::commands
