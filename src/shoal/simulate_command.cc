#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/client/config.h"
#include "src/load/load_generator.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/costs.h"
#include "src/shoal/common.h"
#include "src/shoal/console.h"
#include "src/shoal/format.h"
#include "src/shoal/key_lines.h"
#include "src/shoal/lookup_commands.h"
#include "src/storage/file.h"
#include "src/table/records.h"
#include "src/table/row.h"
#include "src/table/table.h"

namespace shoal::commands {
namespace {

constexpr uint64_t kMaxKeysBytes = 1 << 28;
// How long to wait for a round with a term, and for each refresh: parties announce some a day, and
// a table changes about as often.
constexpr uint64_t kWaitForTermS = 25 * 3600;
constexpr uint64_t kMostWaitForTermS = 31 * 24 * 3600;

absl::StatusOr<load::CrowdKeys> KeysOfTable(const table::UnsignedTable& table) {
  load::CrowdKeys keys;
  if (table.manifest().has_dense()) {
    keys.dense = table.manifest().records();
    return keys;
  }
  for (uint64_t row = 0; row < table.rows(); ++row) {
    SHOAL_ASSIGN_OR_RETURN(const table::HashedRow decoded, table::DecodeHashedRow(table.row(row)));
    for (const table::RecordView& record : decoded.records) {
      keys.listed.push_back(ToBytes(record.key));
    }
  }
  return keys;
}

absl::StatusOr<load::CrowdKeys> KeysOfFile(const std::string& path, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxKeysBytes));
  load::CrowdKeys keys;
  const KeyLines::Take take = [&](absl::string_view line) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(Bytes key, table::UnescapeTsv(line));
    keys.listed.push_back(std::move(key));
    return absl::OkStatus();
  };
  KeyLines lines(path, take);
  SHOAL_RETURN_IF_ERROR(lines.Feed(text));
  SHOAL_RETURN_IF_ERROR(lines.Finish());
  if (const std::string note = lines.Note(); !note.empty()) {
    io.err << "shoal simulate: " << note << '\n';
  }
  return keys;
}

absl::StatusOr<uint32_t> Small(absl::string_view option, absl::string_view text) {
  const absl::StatusOr<uint32_t> number = cli::ParseSmallCount(text);
  if (number.ok()) return number;
  return cli::UsageError(absl::StrCat("--", option, ": ", number.status().message()));
}

// --refreshes and what goes with it.
absl::Status ReadTermOptions(const cli::Values& values, load::CrowdOptions& options) {
  options.refreshes = cli::SmallOr(values, "refreshes", 0);
  SHOAL_ASSIGN_OR_RETURN(options.asleep, cli::RealOr(values, "asleep", 0));
  if (values.count("refreshes") == 0) {
    for (const char* option : {"asleep", "wait"}) {
      if (values.count(option) > 0) {
        return cli::UsageError(
            absl::StrCat("--", option, " is for a crowd that stays for --refreshes"));
      }
    }
    return absl::OkStatus();
  }
  if (options.refreshes == 0) return cli::UsageError("--refreshes: at least one");
  const uint64_t wait_s = cli::NumberOr(values, "wait", kWaitForTermS);
  if (wait_s == 0 || wait_s > kMostWaitForTermS) {
    return cli::UsageError(absl::StrCat("--wait: 1 to ", kMostWaitForTermS, " seconds"));
  }
  options.timeout_s = static_cast<uint32_t>(wait_s);
  return absl::OkStatus();
}

absl::StatusOr<load::CrowdOptions> OptionsOf(const cli::Values& values,
                                             const client::Config& config) {
  load::CrowdOptions options;
  SHOAL_ASSIGN_OR_RETURN(options.engine, EngineOf(values));
  const std::vector<std::string> parties = cli::TextsOf(values, "party");
  if (options.engine != nullptr && options.engine->roles().size() == 2) {
    options.parties = {config.offline_party, config.online_party};
    for (size_t i = 0; i < parties.size() && parties.size() == 2; ++i) {
      SHOAL_ASSIGN_OR_RETURN(options.parties[i], Small("party", parties[i]));
    }
    if (options.parties[0] == 0 || parties.size() == 1 || parties.size() > 2) {
      return cli::UsageError(
          absl::StrCat("--party: ", options.engine->name(),
                       " takes two parties, offline first, unless the configuration names them"));
    }
  } else if (!parties.empty()) {
    return cli::UsageError("--party is for engines of two servers; others ask the frontend");
  }
  options.devices = cli::SmallOr(values, "devices", options.devices);
  options.connections = cli::SmallOr(values, "connections", options.connections);
  options.pad_to = cli::SmallOr(values, "pad", config.options.pad_to);
  options.queries = cli::NumberOr(values, "queries", 0);
  if (values.count("queries") > 0 && options.queries == 0) {
    return cli::UsageError("--queries: at least one");
  }
  if (values.count("queries") > 0 && values.count("pad") > 0) {
    return cli::UsageError("--queries and --pad: one of them says how many queries there are");
  }
  options.own_connections = values.count("share-connections") == 0;
  options.seed = cli::NumberOr(values, "seed", options.seed);
  options.timeout_s = config.options.timeout_s;
  SHOAL_RETURN_IF_ERROR(ReadTermOptions(values, options));
  SHOAL_ASSIGN_OR_RETURN(const bool distinct, cli::Chosen(values, "verify", "each", "distinct"));
  options.verify_each = !distinct;
  SHOAL_ASSIGN_OR_RETURN(options.zipf, cli::RealOr(values, "zipf", options.zipf));
  SHOAL_ASSIGN_OR_RETURN(options.absent, cli::RealOr(values, "absent", options.absent));
  const std::string apps_text = cli::TextOr(values, "apps", "20-60");
  options.fill = apps_text == "all";
  if (options.fill) return options;
  const std::vector<absl::string_view> apps = absl::StrSplit(apps_text, '-');
  if (apps.size() > 2) return cli::UsageError("--apps: N, FROM-TO or all");
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

class Lines {
 public:
  void Whole(const std::string& name, uint64_t value) {
    lines_.push_back({name, static_cast<double>(value), true});
  }
  void Real(const std::string& name, double value) { lines_.push_back({name, value, false}); }
  void Latency(const std::string& prefix, const load::CrowdReport::Latency& seconds) {
    Real(prefix + "latency_seconds_p50", seconds.p50);
    Real(prefix + "latency_seconds_p90", seconds.p90);
    Real(prefix + "latency_seconds_p99", seconds.p99);
    Real(prefix + "latency_seconds_max", seconds.most);
  }
  void Counts(const std::string& prefix, const load::Tally& tally, bool compared) {
    Whole(prefix + "answers_correct", tally.answers_correct);
    Whole(prefix + "answers_wrong", tally.answers_wrong);
    Whole(prefix + "answers_failed", tally.answers_failed);
    Whole(prefix + "answers_compared_with_table", compared ? 1 : 0);
    Whole(prefix + "keys_found", tally.keys_found);
    Whole(prefix + "keys_absent", tally.keys_absent);
    Whole(prefix + "keys_unknown", tally.keys_unknown);
    Whole(prefix + "keys_failed", tally.keys_failed);
  }
  // Every party's own part of a stage.
  void Stage(const std::string& prefix, const wire::StageReport& stage) {
    const std::string name = absl::StrCat(prefix, "party", stage.party(), "_", stage.stage(), "_");
    Real(name + "seconds", stage.seconds());
    Real(name + "cpu_seconds", stage.cpu_seconds());
    Whole(name + "positions_in", stage.positions_in());
    Whole(name + "positions_out", stage.positions_out());
    Whole(name + "noise_queries", stage.noise_queries());
    Whole(name + "bytes_in", stage.bytes_in());
    Whole(name + "bytes_out", stage.bytes_out());
  }
  std::vector<Line> Take() { return std::move(lines_); }

 private:
  std::vector<Line> lines_;
};

// `number` counts the refreshes that the crowd has seen.
void AddRefresh(uint32_t number, const load::CrowdReport::Refresh& refresh, Lines& lines) {
  const std::string prefix = absl::StrCat("refresh", number, "_");
  const auto whole = [&](const char* name, uint64_t value) { lines.Whole(prefix + name, value); };
  const auto real = [&](const char* name, double value) { lines.Real(prefix + name, value); };
  const auto per_device = [&](uint64_t bytes, uint64_t news_bytes) {
    return refresh.devices == 0
               ? 0
               : static_cast<double>(bytes) / refresh.devices + static_cast<double>(news_bytes);
  };
  whole("number", refresh.number);
  whole("epoch", refresh.epoch);
  whole("devices", refresh.devices);
  whole("devices_asleep", refresh.devices_asleep);
  whole("devices_without_news", refresh.devices_without_news);
  whole("queries", refresh.queries);
  lines.Counts(prefix, refresh, refresh.compared);
  whole("answers_missing", refresh.answers_missing);
  real("seconds_waited", refresh.waited_seconds);
  real("seconds_to_last_answer", refresh.fetch_seconds);
  lines.Latency(prefix, refresh.latency_seconds);
  real("cpu_seconds_check", refresh.check_cpu_seconds);
  whole("bytes_sent", refresh.bytes_sent);
  whole("bytes_received", refresh.bytes_received);
  whole("bytes_sent_for_news", refresh.news_bytes_sent);
  whole("bytes_received_for_news", refresh.news_bytes_received);
  real("bytes_sent_per_device", per_device(refresh.bytes_sent, refresh.news_bytes_sent));
  real("bytes_received_per_device",
       per_device(refresh.bytes_received, refresh.news_bytes_received));
  double parties_cpu = 0;
  for (const wire::StageReport& stage : refresh.report.stages()) parties_cpu += stage.cpu_seconds();
  whole("parties_reporting", static_cast<uint64_t>(refresh.report.stages_size()));
  real("parties_cpu_seconds", parties_cpu);
  whole("chain_positions", refresh.report.positions());
  real("chain_seconds", 1e-3 * static_cast<double>(refresh.report.refresh_ms()));
  for (const wire::StageReport& stage : refresh.report.stages()) lines.Stage(prefix, stage);
}

std::vector<Line> LinesOf(const load::CrowdReport& report) {
  Lines lines;
  const auto whole = [&](const std::string& name, uint64_t value) { lines.Whole(name, value); };
  const auto real = [&](const std::string& name, double value) { lines.Real(name, value); };
  whole("round", report.round);
  whole("parties", report.parties);
  whole("devices", report.devices);
  whole("devices_lost", report.devices_lost);
  whole("queries", report.queries);
  whole("distinct_rows", report.distinct_rows);
  whole("table_rows", report.table_rows);
  whole("answer_bytes", report.answer_bytes);
  // Costs have the same names for every engine.
  pir::ForEachCost(report.costs, [&](const char* name, double value) {
    const std::string cost = absl::StrCat("cost_", name);
    absl::StrContains(name, "bytes") ? whole(cost, static_cast<uint64_t>(value))
                                     : real(cost, value);
  });
  real("queries_per_pass", report.queries_per_pass);
  double waited = 0;
  for (const load::CrowdReport::Stage& stage : report.stages) {
    std::string name = absl::StrCat("seconds_", stage.name);
    for (char& c : name) c = c == ' ' ? '_' : c;
    real(name, stage.seconds);
    if (stage.name == "wait online") waited = stage.seconds;
  }
  real("seconds_total", report.seconds);
  real("queries_per_second_total", PerSecond(report.queries, report.seconds));
  real("queries_per_second_wait_online", PerSecond(report.queries, waited));
  lines.Latency("", report.latency_seconds);
  real("cpu_seconds_seal", report.seal_cpu_seconds);
  real("cpu_seconds_check", report.check_cpu_seconds);
  real("cpu_seconds_total", report.cpu_seconds);
  whole("peak_memory_bytes", report.peak_memory_bytes);
  whole("bytes_sent", report.bytes_sent);
  whole("bytes_received", report.bytes_received);
  real("bytes_sent_per_device", static_cast<double>(report.bytes_sent) / report.devices);
  // One device fetched the hint for all; every real device would fetch it.
  real("bytes_received_per_device", static_cast<double>(report.bytes_received) / report.devices +
                                        static_cast<double>(report.costs.bytes.hint_bytes));
  lines.Counts("", report, report.compared);
  // The frontend's report: of each stage over the whole chain, from the moment the frontend holds
  // the batch, and of every party's own part.
  real("chain_offline_seconds", 1e-3 * static_cast<double>(report.round_report.offline_ms()));
  real("chain_online_seconds", 1e-3 * static_cast<double>(report.round_report.online_ms()));
  for (const wire::StageReport& stage : report.round_report.stages()) lines.Stage("", stage);
  for (size_t i = 0; i < report.refreshes.size(); ++i) {
    AddRefresh(static_cast<uint32_t>(i + 1), report.refreshes[i], lines);
  }
  return lines.Take();
}

// What is wrong with some answers, of the round or of a refresh; its name is in `which`.
absl::Status StatusOf(const load::Tally& tally, uint64_t queries, absl::string_view which) {
  if (tally.answers_wrong > 0) {
    return absl::DataLossError(absl::StrCat(which, tally.answers_wrong,
                                            " answers are signed but not what the table says"));
  }
  if (tally.answers_failed == 0 && tally.keys_failed == 0) return absl::OkStatus();
  return Annotate(
      tally.first_error.ok() ? absl::UnauthenticatedError("not verified") : tally.first_error,
      absl::StrCat(which, tally.answers_failed, " of ", queries, " answers failed; the first"));
}

// Of the whole run. What is worse comes first.
absl::Status StatusOf(const load::CrowdReport& report, uint32_t refreshes) {
  absl::Status worst = StatusOf(report, report.queries, "");
  for (size_t i = 0; i < report.refreshes.size(); ++i) {
    const load::CrowdReport::Refresh& refresh = report.refreshes[i];
    const absl::Status status =
        StatusOf(refresh, refresh.queries, absl::StrCat("refresh ", i + 1, ": "));
    if (worst.ok() || (absl::IsDataLoss(status) && !absl::IsDataLoss(worst))) worst = status;
  }
  if (!worst.ok() || report.no_more_refreshes.ok()) return worst;
  return Annotate(report.no_more_refreshes,
                  absl::StrCat(report.refreshes.size(), " of ", refreshes, " refreshes came"));
}

// A directory that is removed with all that is in it.
class ScratchDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<ScratchDirectory>> Make() {
    std::error_code error;
    std::string path = std::filesystem::temp_directory_path(error) / "shoal-simulate-XXXXXX";
    if (error || ::mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, path);
    return std::make_unique<ScratchDirectory>(std::move(path));
  }
  explicit ScratchDirectory(std::string path) : path_(std::move(path)) {}
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

void PrintReport(const load::CrowdReport& report, bool json_wanted, std::ostream& out) {
  if (json_wanted) {
    JsonObject object;
    object.Text("engine", report.engine);
    for (const Line& line : LinesOf(report)) {
      if (line.whole) {
        object.Integer(line.name, static_cast<uint64_t>(line.value));
      } else {
        object.Number(line.name, line.value);
      }
    }
    out << object.Take() << '\n';
  } else {
    out << "engine\t" << report.engine << '\n';
    for (const Line& line : LinesOf(report)) {
      // Six decimals for the time of one query.
      const int decimals = absl::StartsWith(line.name, "cost_") ? 6 : 3;
      out << line.name << '\t'
          << (line.whole ? absl::StrCat(static_cast<uint64_t>(line.value))
                         : absl::StrFormat("%.*f", decimals, line.value))
          << '\n';
    }
  }
}

absl::Status RunSimulate(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_wanted, JsonWanted(values, "tsv"));
  const std::string directory = cli::TextOr(values, "table", "");
  const std::string keys_path = cli::TextOr(values, "keys", "");
  const uint64_t dense = cli::NumberOr(values, "dense-keys", 0);
  if (directory.empty() && keys_path.empty() && dense == 0) {
    return cli::UsageError(
        "--table, --keys or --dense-keys says what the devices can have installed");
  }
  if (!keys_path.empty() && dense != 0) {
    return cli::UsageError("--keys and --dense-keys: one of them");
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  SHOAL_ASSIGN_OR_RETURN(const client::Config config, client::ReadConfig(config_path));
  SHOAL_ASSIGN_OR_RETURN(load::CrowdOptions options, OptionsOf(values, config));

  std::optional<table::UnsignedTable> expected;
  load::CrowdKeys keys;
  if (!directory.empty()) {
    SHOAL_ASSIGN_OR_RETURN(expected, table::UnsignedTable::Open(directory));
  }
  if (!keys_path.empty()) {
    SHOAL_ASSIGN_OR_RETURN(keys, KeysOfFile(keys_path, io));
  } else if (dense != 0) {
    keys.dense = dense;
  } else {
    SHOAL_ASSIGN_OR_RETURN(keys, KeysOfTable(*expected));
  }
  if (absl::Status checked = load::CheckCrowd(options, keys.size()); !checked.ok()) {
    return cli::UsageError(absl::StrCat("--", checked.message()));
  }
  load::TableOpener open_table;
  std::unique_ptr<ScratchDirectory> scratch;
  if (options.refreshes > 0) {
    SHOAL_ASSIGN_OR_RETURN(scratch, ScratchDirectory::Make());
    options.placement_cache = scratch->path() + "/placement";
    if (expected) open_table = [&] { return table::UnsignedTable::Open(directory); };
  }
  SystemRandom random;
  UndisturbedClock clock;
  ThreadPool pool;
  Console console("shoal simulate", /*quiet=*/false, /*announce=*/true, io);
  SHOAL_ASSIGN_OR_RETURN(const load::CrowdReport report,
                         load::RunLoad(
                             options, config.pins, keys, expected ? &*expected : nullptr,
                             [&] { return connect(config.frontend); },
                             {.clock = &clock,
                              .random = &random,
                              .pool = &pool,
                              .sleep = client::SleepFor,
                              .connect_to = connect},
                             [&](const std::string& stage, uint64_t done, uint64_t total) {
                               console.Count(stage, done, total);
                             },
                             open_table));
  PrintReport(report, json_wanted, io.out);
  return StatusOf(report, options.refreshes);
}

constexpr char kSimulateHelp[] =
    R"(Plays many devices against a running deployment, in one round. Each device has its own
master seed, slots, queries and installed applications. The application of rank r is
chosen with probability proportional to r^-ZIPF (the ranks are a random order of the
keys, from --seed); with --zipf 0 all are equally likely. Every device asks for the
rows of its applications, each row once, and pads to its number of queries. Every
answer is verified (see --verify), and with --table its row is compared with the
table's. Where the frontend has several machines, each device draws one of them. Secrets
and padding always come from the system's randomness, whatever --seed is.
Exit code 3: an answer was wrong or not verified; 1: an answer never came, or another
failure.
Memory: 8 bytes a query, 57 a device, 12 a key unless --zipf 0, and with --verify
distinct 33 a row of the table.

Prints names and values, one pair a line, or one JSON object. seconds_* are wall times
of the steps: drawing what devices have, obtaining slots (sealing, sending), waiting
for the offline stage (and its window), submitting, waiting for the online stage,
fetching (and checking). cpu_seconds_* are processor times of this process: for
sealing, for unmasking and checking, and in all. Bytes are those of the devices, with
frames but without TLS. chain_* are the frontend's report of a stage over the whole
chain, from having the batch to having what comes back; party*_* are each party's own
part.

With --engine simplepir or doublepir the same devices ask the frontend's engine
instead, and there is no round. The hint is fetched once for all devices of this
process, and counts in every device's bytes. Queries are made first, then sent over
--connections connections at a time (seconds_wait_online), then recovered and checked,
256 MiB of them at a time; each key has a query of its own. With --engine piano the
table is read once, and each connection has a session of what comes of it, a query at a
time (seconds_wait_online has the client's work, too). cost_* are the costs of one
query, by the same names for all engines. For the chain, set-up is the noise of the
round, and seconds are those of all parties' processors.

With --refreshes the crowd takes a round with a term, and stays until that many epochs of
the table have come. Whenever the frontend shows a refresh, every device fetches the
answers to all of its queries, whatever it got before, but for the refreshes that it
sleeps through (--asleep; which ones follows from --seed). What fails is not asked again.
--table is opened anew for each: refresh*_answers_compared_with_table says whether it was
the refresh's epoch by then. Each has lines of its own, refresh1_* the first:
answers_failed are not verified or, answers_missing of them, never came;
seconds_to_last_answer counts from when the frontend showed the refresh, as latencies do;
bytes_*_for_news are the header, manifest and lists of rows' epochs that a device needs
to verify, fetched once for all and counted in *_per_device; parties_cpu_seconds and
party*_refresh_* are what the parties say that it cost them, in hundredths of a second.
Other lines are about the round, but cpu_seconds_*, seconds_total and the memory, which
are those of the whole run. Exit code 1 if fewer refreshes came. 36 bytes of memory more
for a query at one party, and 32 for each further party.
)";

constexpr char kSimulateExamples[] =
    R"(  shoal simulate --config client.textproto --table table/ --devices 2000 --apps 20-60
  shoal simulate --config client.textproto --dense-keys 2500k --queries 100M \
      --devices 1000 --apps all --zipf 0 --share-connections --verify distinct
  shoal simulate --config client.textproto --table table/ --engine simplepir --devices 200 \
      --apps 1 --pad 1
  shoal simulate --config client.textproto --table table/ --devices 2000 --refreshes 30 \
      --asleep 0.1
)";

void AddSimulateOptions(cli::Options& options) {
  AddConfigOption(options);  // its state is not used
  options.add_options()("table", cli::Directory(),
                        "the table: devices choose from its keys, answers must equal it");
  options.add_options()("keys", cli::File(),
                        "choose from these keys, one a line with the escapes of TSV");
  options.add_options()("dense-keys", cli::Number(),
                        "choose from the keys 0 to N - 1 of a dense table");
  AddEngineOption(options);
  options.add_options()("devices", cli::Number(), "devices (1000)");
  options.add_options()("apps", cli::Text(),
                        "applications of a device: N, or FROM-TO to draw uniformly (20-60), or "
                        "all: as many as it has queries");
  options.add_options()("zipf", cli::Text(), "exponent of the popularity (1.0)");
  options.add_options()("absent", cli::Text(),
                        "share of applications that are not in the table (0)");
  options.add_options()("pad", cli::Number(),
                        "queries of every device (pad_to of the configuration)");
  options.add_options()("queries", cli::Number(),
                        "queries of all devices together, shared evenly, instead of "
                        "--pad");
  options.add_options()("party", cli::Texts(),
                        "with an engine of two servers: its parties, offline first "
                        "(those of the configuration)");
  options.add_options()("connections", cli::Number(), "connections at a time (16)");
  options.add_options()("share-connections",
                        "the devices share --connections connections and requests of up "
                        "to a megabyte; otherwise each device has its own for every "
                        "stage");
  options.add_options()("verify", cli::Text(),
                        "each (default): verify every answer's signature; distinct: do "
                        "not verify an answer that equals a verified one of its row");
  options.add_options()("refreshes", cli::Number(),
                        "enter a round with a term, and stay for so many refreshes");
  options.add_options()("asleep", cli::Text(),
                        "share of the refreshes that each device misses (0)");
  options.add_options()("wait", cli::Number(),
                        "with --refreshes: wait so many seconds for a round with a term, "
                        "and for each refresh (90000)");
  options.add_options()("seed", cli::Number(), "seed of what is installed where (1)");
  AddFormatOption(options, "tsv");
}

}  // namespace

cli::Command Simulate(Connector connect) {
  return {
      .name = "simulate",
      .summary = "play a crowd in a round, a term or at an engine, and check every answer",
      .help = kSimulateHelp,
      .examples = kSimulateExamples,
      .options = AddSimulateOptions,
      .positional = "",
      .run = std::bind_front(RunSimulate, std::move(connect)),
  };
}

}  // namespace shoal::commands
