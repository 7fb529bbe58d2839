#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/thread_pool.h"
#include "src/cli/progress.h"
#include "src/client/commands.h"
#include "src/client/config.h"
#include "src/client/crowd.h"
#include "src/client/format.h"
#include "src/table/records.h"
#include "src/table/row.h"
#include "src/table/table.h"

namespace shoal::client {
namespace {

constexpr uint64_t kMaxKeysBytes = 1 << 28;

absl::StatusOr<std::vector<Bytes>> KeysOfTable(const table::UnsignedTable& table) {
  std::vector<Bytes> keys;
  if (table.manifest().has_dense()) {
    for (uint64_t i = 0; i < table.manifest().records(); ++i) {
      keys.push_back(ToBytes(AsBytes(absl::StrCat(i))));
    }
    return keys;
  }
  for (uint64_t row = 0; row < table.rows(); ++row) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<table::RecordView> records,
                           table::DecodeHashedRow(table.row(row)));
    for (const table::RecordView& record : records) keys.push_back(ToBytes(record.key));
  }
  return keys;
}

absl::StatusOr<std::vector<Bytes>> KeysOfFile(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeysBytes));
  std::vector<Bytes> keys;
  size_t line = 0;
  for (absl::string_view key : absl::StrSplit(text, '\n')) {
    ++line;
    if (key.empty()) continue;
    auto unescaped = table::UnescapeTsv(key);
    if (!unescaped.ok()) return Annotate(unescaped.status(), absl::StrCat(path, ":", line));
    keys.push_back(*std::move(unescaped));
  }
  return keys;
}

absl::StatusOr<uint32_t> Small(absl::string_view option, absl::string_view text) {
  uint32_t number = 0;
  if (text.empty() || text[0] == '+' || text[0] == '-' || !absl::SimpleAtoi(text, &number)) {
    return cli::UsageError(absl::StrCat("--", option, ": \"", text, "\" is no such number"));
  }
  return number;
}

absl::StatusOr<double> Real(const cli::Values& values, const char* option, double otherwise) {
  const std::string text = cli::TextOr(values, option, "");
  double number = otherwise;
  if (!text.empty() && !absl::SimpleAtod(text, &number)) {
    return cli::UsageError(absl::StrCat("--", option, ": \"", text, "\" is no number"));
  }
  return number;
}

absl::StatusOr<CrowdOptions> OptionsOf(const cli::Values& values, const Config& config) {
  CrowdOptions options;
  const auto number = [&](const char* name, uint32_t otherwise) {
    return static_cast<uint32_t>(
        std::min<uint64_t>(cli::NumberOr(values, name, otherwise), ~uint32_t{0}));
  };
  options.devices = number("devices", options.devices);
  options.connections = number("connections", options.connections);
  options.pad_to = number("pad", config.options.pad_to);
  options.seed = cli::NumberOr(values, "seed", options.seed);
  options.timeout_s = config.options.timeout_s;
  const std::string verify = cli::TextOr(values, "verify", "each");
  if (verify != "each" && verify != "distinct") {
    return cli::UsageError(absl::StrCat("--verify ", verify, ": there are each and distinct"));
  }
  options.verify_each = verify == "each";
  SHOAL_ASSIGN_OR_RETURN(options.zipf, Real(values, "zipf", options.zipf));
  SHOAL_ASSIGN_OR_RETURN(options.absent, Real(values, "absent", options.absent));
  const std::string apps_text = cli::TextOr(values, "apps", "20-60");
  const std::vector<absl::string_view> apps = absl::StrSplit(apps_text, '-');
  if (apps.size() > 2) return cli::UsageError("--apps: N or FROM-TO");
  SHOAL_ASSIGN_OR_RETURN(options.min_apps, Small("apps", apps.front()));
  SHOAL_ASSIGN_OR_RETURN(options.max_apps, Small("apps", apps.back()));
  return options;
}

double PerSecond(uint64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

struct Line {
  std::string name;
  double value;
  bool whole;
};

std::vector<Line> LinesOf(const CrowdReport& report) {
  std::vector<Line> lines;
  const auto whole = [&](const char* name, uint64_t value) {
    lines.push_back({name, static_cast<double>(value), true});
  };
  const auto real = [&](const std::string& name, double value) {
    lines.push_back({name, value, false});
  };
  whole("round", report.round);
  whole("parties", report.parties);
  whole("devices", report.devices);
  whole("devices_lost", report.devices_lost);
  whole("queries", report.queries);
  whole("distinct_rows", report.distinct_rows);
  whole("table_rows", report.table_rows);
  whole("answer_bytes", report.answer_bytes);
  double waited = 0;
  for (const CrowdReport::Stage& stage : report.stages) {
    std::string name = absl::StrCat("seconds_", stage.name);
    for (char& c : name) c = c == ' ' ? '_' : c;
    real(name, stage.seconds);
    if (stage.name == "wait online") waited = stage.seconds;
  }
  real("seconds_total", report.seconds);
  real("queries_per_second_total", PerSecond(report.queries, report.seconds));
  real("queries_per_second_wait_online", PerSecond(report.queries, waited));
  whole("bytes_sent", report.bytes_sent);
  whole("bytes_received", report.bytes_received);
  real("bytes_sent_per_device", static_cast<double>(report.bytes_sent) / report.devices);
  real("bytes_received_per_device", static_cast<double>(report.bytes_received) / report.devices);
  whole("answers_correct", report.answers_correct);
  whole("answers_wrong", report.answers_wrong);
  whole("answers_failed", report.answers_failed);
  whole("answers_compared_with_table", report.compared ? 1 : 0);
  whole("keys_found", report.keys_found);
  whole("keys_absent", report.keys_absent);
  whole("keys_failed", report.keys_failed);
  return lines;
}

// One bar a stage.
class Bars {
 public:
  explicit Bars(cli::Io& io) : io_(io) {}
  void Update(const std::string& stage, uint64_t done, uint64_t total) {
    const std::lock_guard lock(mutex_);
    if (stage != stage_) {
      bar_.reset();
      stage_ = stage;
      if (!io_.err_is_terminal) io_.err << "shoal simulate: " << stage << std::endl;
      bar_.emplace(io_.err, io_.err_is_terminal, stage);
    }
    bar_->Update(done, total);
  }

 private:
  cli::Io& io_;
  std::mutex mutex_;
  std::string stage_;
  std::optional<cli::ProgressBar> bar_;
};

absl::Status RunSimulate(const Connector& connect, const cli::Values& values, cli::Io& io) {
  const std::string format = cli::TextOr(values, "format", "tsv");
  if (format != "tsv" && format != "json") {
    return cli::UsageError(absl::StrCat("--format ", format, ": there are tsv and json"));
  }
  const std::string directory = cli::TextOr(values, "table", "");
  const std::string keys_path = cli::TextOr(values, "keys", "");
  if (directory.empty() && keys_path.empty()) {
    return cli::UsageError("--table or --keys says what the devices can have installed");
  }
  SHOAL_ASSIGN_OR_RETURN(const Config config, ReadConfig(values["config"].as<std::string>()));
  SHOAL_ASSIGN_OR_RETURN(const CrowdOptions options, OptionsOf(values, config));

  std::optional<table::UnsignedTable> expected;
  std::vector<Bytes> keys;
  if (!directory.empty()) {
    SHOAL_ASSIGN_OR_RETURN(expected, table::UnsignedTable::Open(directory));
    SHOAL_ASSIGN_OR_RETURN(keys, KeysOfTable(*expected));
  }
  if (!keys_path.empty()) {
    SHOAL_ASSIGN_OR_RETURN(keys, KeysOfFile(keys_path));
  }
  if (absl::Status checked = CheckCrowd(options, keys.size()); !checked.ok()) {
    return cli::UsageError(absl::StrCat("--", checked.message()));
  }
  SystemRandom random;
  SystemClock clock;
  ThreadPool pool;
  Bars bars(io);
  SHOAL_ASSIGN_OR_RETURN(
      const CrowdReport report,
      RunCrowd(options, config.pins, keys, expected ? &*expected : nullptr,
               [&] { return connect(config.frontend); },
               {.clock = &clock, .random = &random, .pool = &pool, .sleep = SleepFor,
                .progress = {}},
               [&](const std::string& stage, uint64_t done, uint64_t total) {
                 bars.Update(stage, done, total);
               }));
  bars.Update("done", 1, 1);
  if (format == "json") {
    JsonObject object;
    for (const Line& line : LinesOf(report)) {
      if (line.whole) {
        object.Integer(line.name, static_cast<uint64_t>(line.value));
      } else {
        object.Number(line.name, line.value);
      }
    }
    io.out << object.Take() << '\n';
  } else {
    for (const Line& line : LinesOf(report)) {
      io.out << line.name << '\t'
             << (line.whole ? absl::StrCat(static_cast<uint64_t>(line.value))
                            : absl::StrFormat("%.3f", line.value))
             << '\n';
    }
  }
  if (report.answers_wrong > 0) {
    return absl::DataLossError(absl::StrCat(
        report.answers_wrong, " answers are signed but not what the table says"));
  }
  if (report.answers_failed > 0 || report.keys_failed > 0) {
    return Annotate(report.first_error.ok() ? absl::UnauthenticatedError("not verified")
                                            : report.first_error,
                    absl::StrCat(report.answers_failed, " of ", report.queries,
                                 " answers failed; the first"));
  }
  return absl::OkStatus();
}

}  // namespace

cli::Command Simulate(Connector connect) {
  return {
      .name = "simulate",
      .summary = "play a crowd of devices in one round, and check every answer",
      .help =
          "Plays many devices against a running deployment, in one round: each has a master seed,\n"
          "slots, queries and connections of its own, and a number of applications installed. The\n"
          "application of rank r is chosen with probability proportional to r^-ZIPF (the ranks are\n"
          "a random order of the keys, from --seed). Every device pads to the same number of queries.\n"
          "Every answer is verified (see --verify), and with --table its row is compared with the\n"
          "table's. Keys, seeds and padding come from the system's randomness, whatever --seed is.\n"
          "Prints name and value a line, or one JSON object. seconds_* are wall times of the stages:\n"
          "seal the onions, obtain slots, wait for the offline stage (and its window), submit, wait\n"
          "for the online stage, fetch, verify. Bytes are the devices', with frames, without TLS.\n",
      .examples =
          "  shoal simulate --config client.textproto --table table/ --devices 2000 --apps 20-60\n",
      .options =
          [](cli::Options& options) {
            options.add_options()("config", cli::File()->required(),
                                  "a client's configuration; its state is not used");
            options.add_options()("table", cli::Directory(),
                                  "the table: its keys, and what answers must be");
            options.add_options()("keys", cli::File(),
                                  "choose from these keys, one a line with the escapes of TSV");
            options.add_options()("devices", cli::Number(), "devices (1000)");
            options.add_options()("apps", cli::Text(),
                                  "applications of a device: N, or FROM-TO for uniform (20-60)");
            options.add_options()("zipf", cli::Text(), "exponent of the popularity (1.0)");
            options.add_options()("absent", cli::Text(),
                                  "share of applications that the table has not (0)");
            options.add_options()("pad", cli::Number(),
                                  "queries of every device (pad_to of the configuration)");
            options.add_options()("connections", cli::Number(), "at a time (16)");
            options.add_options()("verify", cli::Text(),
                                  "each (default): every answer's signature; distinct: an answer "
                                  "equal to a verified one of its row needs no second time");
            options.add_options()("seed", cli::Number(), "of what is installed where (1)");
            options.add_options()("format", cli::Text(), "tsv (default) or json");
          },
      .positional = "",
      .run =
          [connect = std::move(connect)](const cli::Values& values, cli::Io& io) {
            return RunSimulate(connect, values, io);
          },
  };
}

}  // namespace shoal::client
