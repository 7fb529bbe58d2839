#include "src/client/crowd.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/device.h"
#include "src/client/engine_client.h"
#include "src/client/exchange.h"
#include "src/client/hint_cache.h"
#include "src/client/rows.h"
#include "src/client/state.h"
#include "src/onion/onion.h"
#include "src/table/row_map.h"

namespace shoal::client {
namespace {

constexpr uint32_t kMaxDevices = 100'000'000;
constexpr uint32_t kMaxConnections = 1024;
constexpr uint32_t kPollMs = 250;
// Requests that a unit of small devices fills.
constexpr size_t kUnitPieces = 8;
// Queries to an engine and their answers that are held at a time, and what one device may need.
constexpr uint64_t kWaveBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxDeviceBytes = uint64_t{4} << 30;

// Uniform in [0, 1), 53 bits.
double Uniform(RandomSource& random) { return static_cast<double>(random.U64() >> 11) * 0x1p-53; }

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Processor time of the calling thread alone.
class ThreadTimer {
 public:
  double Seconds() const { return Now() - start_; }

 private:
  static double Now() {
    timespec now = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  const double start_ = Now();
};

double ProcessCpuSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

uint64_t PeakMemoryBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// Latencies of many queries. Thread-safe.
class Latencies {
 public:
  void Add(double seconds, uint64_t queries) {
    const std::lock_guard lock(mutex_);
    all_.emplace_back(seconds, queries);
  }
  CrowdReport::Latency Take() {
    CrowdReport::Latency latency;
    if (all_.empty()) return latency;
    std::sort(all_.begin(), all_.end());
    uint64_t total = 0;
    for (const auto& [seconds, queries] : all_) total += queries;
    // The smallest that at least this share of all queries does not exceed.
    const auto quantile = [&](double share) {
      uint64_t before = 0;
      for (const auto& [seconds, queries] : all_) {
        before += queries;
        if (static_cast<double>(before) >= share * static_cast<double>(total)) return seconds;
      }
      return all_.back().first;
    };
    return {quantile(0.5), quantile(0.9), quantile(0.99), all_.back().first};
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<double, uint64_t>> all_;
};

// Digests of answers that were verified, one for each row: a row has one signature that all parties
// gave, so that there is one right answer. Thread-safe.
class VerifiedAnswers {
 public:
  explicit VerifiedAnswers(size_t rows) : digests_(rows), known_(rows) {}

  static Digest DigestOf(BytesView answer) {
    return Transcript("shoal crowd answer v1").Blob(answer).Finish();
  }
  bool Has(uint64_t row, const Digest& digest) const {
    return known_[row].load(std::memory_order_acquire) != 0 && digests_[row] == digest;
  }
  void Add(uint64_t row, const Digest& digest) {
    const std::lock_guard lock(mutex_);
    if (known_[row].load(std::memory_order_relaxed) != 0) return;
    digests_[row] = digest;
    known_[row].store(1, std::memory_order_release);
  }

 private:
  std::mutex mutex_;  // of those who add
  std::vector<Digest> digests_;
  std::vector<std::atomic<uint8_t>> known_;
};

// The whole of one run. Queries are numbered over all devices, a device's one after the other: query
// i asks for rows_[i] in slots_[i].
class Crowd {
 public:
  Crowd(const CrowdOptions& options, const CrowdKeys& keys, const table::UnsignedTable* expected,
        const TransportFactory& connect, Environment environment, const CrowdProgress& progress)
      : options_(options),
        expected_(expected),
        connect_(connect),
        environment_(std::move(environment)),
        progress_(progress),
        keys_(keys) {
    if (options_.connections > 1) threads_.emplace(options_.connections - 1);
  }

  absl::StatusOr<CrowdReport> Run(const roster::PinnedParties& pins) {
    const Stopwatch total;
    const double cpu_before = ProcessCpuSeconds();
    SHOAL_ASSIGN_OR_RETURN(control_, connect_());
    Exchange control(control_.get(), environment_.sleep, environment_.clock);
    State state;
    auto deployment = WithRetries(environment_.sleep, [&] {
      return Deployment::Fetch(*control_, pins, state, environment_.clock->NowSeconds());
    });
    if (!deployment.ok()) return deployment.status();
    deployment_ = *std::move(deployment);
    if (expected_ != nullptr) {
      if (table::ManifestDigest(expected_->manifest()) != deployment_->manifest().digest()) {
        return absl::FailedPreconditionError(
            "the table to compare with is not the deployment's");
      }
      report_.compared = true;
    }
    const uint64_t table_rows = deployment_->manifest().rows();
    popularity_.emplace(options_, &keys_, table_rows);
    if (QueriesOf(0) > table_rows) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a device asks no row twice: its ", QueriesOf(0), " queries are more than the table's ",
          table_rows, " rows; take more devices"));
    }
    connections_.emplace(connect_, &deployment_->roster(), environment_.sleep,
                         /*keep=*/!options_.own_connections);
    if (options_.engine) {
      SHOAL_RETURN_IF_ERROR(RunEngine());
    } else {
      SHOAL_RETURN_IF_ERROR(RunRound(control));
    }
    connections_->HangUp();
    const Traffic traffic = connections_->traffic();
    report_.bytes_sent = traffic.sent;
    report_.bytes_received = traffic.received;
    report_.latency_seconds = latencies_.Take();
    const auto queries = static_cast<double>(report_.queries);
    report_.costs.query_seconds = report_.seal_cpu_seconds / queries;
    report_.costs.recover_seconds = report_.check_cpu_seconds / queries;
    report_.seconds = total.Seconds();
    report_.cpu_seconds = ProcessCpuSeconds() - cpu_before;
    report_.peak_memory_bytes = PeakMemoryBytes();
    return std::move(report_);
  }

 private:
  absl::Status RunRound(Exchange& control) {
    SHOAL_RETURN_IF_ERROR(Draw());
    SHOAL_ASSIGN_OR_RETURN(round_, PickRound(control));
    report_.round = round_->counter().value();
    report_.parties = round_->parties();

    Obtain();
    SHOAL_RETURN_IF_ERROR(LostAll());
    SHOAL_RETURN_IF_ERROR(CheckSlots());
    SHOAL_RETURN_IF_ERROR(Wait(control, "wait offline", wire::OPEN_FOR_QUERIES,
                               round_->header().queries_close_s()));
    Submit();
    SHOAL_RETURN_IF_ERROR(LostAll());
    SHOAL_RETURN_IF_ERROR(
        Wait(control, "wait online", wire::ANSWERED, round_->header().expires_s()));
    FetchAndVerify();
    for (uint32_t device = 0; device < options_.devices; ++device) {
      if (!lost_[device]) continue;
      ++report_.devices_lost;
      report_.answers_failed += QueriesOf(device);
      report_.keys_failed += popularity_->AppsOf(device).size();
    }
    AskForReport();
    report_.costs.bytes.query_bytes =
        onion::OnionBytes(round_->parties()) + kQueryBytes;
    report_.costs.bytes.answer_bytes = report_.answer_bytes;
    for (const wire::StageReport& stage : report_.round_report.stages()) {
      (stage.stage() == "noise" ? report_.costs.setup_seconds : report_.costs.answer_seconds) +=
          stage.cpu_seconds();
    }
    report_.costs.answer_seconds /= static_cast<double>(report_.queries);
    return absl::OkStatus();
  }

  // The whole crowd through the engine, in waves of whole devices: their queries are made, sent, and
  // recovered one after the other, so that what is timed as the server's is the server's.
  absl::Status RunEngine() {
    const pir::Engine engine = *options_.engine;
    report_.engine = std::string(pir::EngineName(engine));
    report_.parties = 1;
    const EngineCall call = EngineCallOf(*control_);
    const Stopwatch stopwatch;
    SHOAL_ASSIGN_OR_RETURN(const wire::GetPirSetupResponse before,
                           FetchSetup(*deployment_, engine, call));
    SHOAL_ASSIGN_OR_RETURN(report_.costs.bytes, pir::SizesOf(before.setup()));
    HintFetch fetch;
    SHOAL_ASSIGN_OR_RETURN(
        engine_client_,
        ObtainHint(before.setup(), /*path=*/"", call, {},
                   [&](uint64_t done, uint64_t total) {
                     if (progress_) progress_("hint", done, total);
                   },
                   fetch));
    AddStage("hint", stopwatch.Seconds());
    SHOAL_RETURN_IF_ERROR(Draw());
    const pir::Sizes& sizes = report_.costs.bytes;
    const uint64_t each = sizes.query_bytes + sizes.answer_bytes;
    if (QueriesOf(0) * each > kMaxDeviceBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a device's ", QueriesOf(0), " queries are held at a time, and take ",
          QueriesOf(0) * each >> 20, " MiB; take more devices"));
    }
    done_ = 0;
    for (uint32_t first = 0, end = 0; first < options_.devices; first = end) {
      while (end < options_.devices &&
             (end == first || (First(end + 1) - First(first)) * each <= kWaveBytes)) {
        ++end;
      }
      Wave(first, end);
    }
    for (const char* stage : {"make", "wait online", "check"}) AddStage(stage, wave_seconds_[stage]);
    for (const auto& lost : lost_) report_.devices_lost += lost != 0;
    SHOAL_RETURN_IF_ERROR(LostAll());
    // As a round's report: a server that says nothing spoils no run.
    const auto after = FetchSetup(*deployment_, engine, call);
    report_.costs.setup_seconds = before.report().setup_seconds();
    report_.costs.open_seconds = fetch.open_seconds;
    if (after.ok() && after->report().queries() > before.report().queries()) {
      const auto queries =
          static_cast<double>(after->report().queries() - before.report().queries());
      report_.costs.answer_seconds =
          (after->report().answer_cpu_seconds() - before.report().answer_cpu_seconds()) / queries;
      report_.queries_per_pass =
          queries / static_cast<double>(after->report().passes() - before.report().passes());
    }
    return absl::OkStatus();
  }

  EngineCall EngineCallOf(Transport& transport) const {
    return [&](const wire::Frame& request, uint64_t max_bulk_bytes) {
      return WithRetries(environment_.sleep,
                         [&] { return transport.CallEngine(request, max_bulk_bytes); });
    };
  }

  // A request to an engine.
  struct EngineRequest;
  // All queries of the devices first .. end - 1.
  void Wave(uint32_t first, uint32_t end);
  void MakeQueries(EngineRequest& request);
  void SendQueries(std::span<EngineRequest> requests);
  void CheckEngineAnswers(EngineRequest& request);

  uint64_t QueriesOf(uint32_t device) const { return popularity_->QueriesOf(device); }
  uint64_t First(uint32_t device) const { return popularity_->QueriesBefore(device); }

  // What every device has, and so asks.
  absl::Status Draw() {
    const Stopwatch stopwatch;
    const table::RowMap& map = deployment_->map();
    report_.devices = options_.devices;
    report_.queries = First(options_.devices);
    report_.table_rows = map.rows();
    report_.answer_bytes = deployment_->manifest().answer_bytes();
    masters_.reserve(options_.devices);
    for (uint32_t device = 0; device < options_.devices; ++device) {
      masters_.push_back(environment_.random->NewSeed());
    }
    seed_ = environment_.random->NewSeed();
    lost_ = std::vector<std::atomic<uint8_t>>(options_.devices);
    submitted_s_.resize(options_.devices);
    rows_.resize(report_.queries);
    slots_.resize(report_.queries);
    const absl::Status drawn = ForPieces(
        options_.devices, 1, environment_.pool, [&](size_t first, size_t) -> absl::Status {
          const auto device = static_cast<uint32_t>(first);
          RowSet wanted;
          for (const uint32_t app : popularity_->AppsOf(device)) {
            const auto row = map.RowOf(popularity_->KeyOf(device, app));
            if (absl::IsOutOfRange(row.status())) continue;
            if (!row.ok()) return row.status();
            wanted.Add(static_cast<uint32_t>(*row));
          }
          const std::vector<uint32_t> rows = wanted.Take();
          const auto queries = static_cast<uint32_t>(QueriesOf(device));
          if (rows.size() > queries) {
            return absl::InvalidArgumentError(absl::StrCat(
                "a device needs ", rows.size(), " rows, more than its ", queries, " queries"));
          }
          SeededRandom random(seed_.view(), "shoal crowd padding v1", device);
          const std::vector<uint32_t> padded = PadRows(rows, queries, map.rows(), random);
          std::copy(padded.begin(), padded.end(),
                    rows_.begin() + static_cast<ptrdiff_t>(First(device)));
          Progress("draw", queries);
          return absl::OkStatus();
        });
    SHOAL_RETURN_IF_ERROR(drawn);
    std::vector<bool> asked(map.rows());
    for (const uint32_t row : rows_) asked[row] = true;
    report_.distinct_rows = static_cast<uint64_t>(std::count(asked.begin(), asked.end(), true));
    if (!options_.verify_each) verified_.emplace(map.rows());
    AddStage("draw", stopwatch.Seconds());
    return absl::OkStatus();
  }

  absl::StatusOr<round::Round> PickRound(Exchange& control) {
    const uint64_t deadline_s = environment_.clock->NowSeconds() + options_.timeout_s;
    for (;;) {
      SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list, control.ListRounds());
      const wire::RoundInfo* best = nullptr;
      for (const wire::RoundInfo& info : list.rounds()) {
        const wire::RoundHeader& header = info.header().header();
        if (info.state() != wire::OPEN_FOR_ONIONS) continue;
        if (header.manifest_digest() != AsText(deployment_->manifest().digest())) continue;
        if (header.max_slots() < report_.queries) {
          return absl::ResourceExhaustedError(
              absl::StrCat("the crowd has ", report_.queries, " queries, rounds take ",
                           header.max_slots()));
        }
        if (info.onions() > header.max_slots() - report_.queries) continue;
        // A crowd takes its time: half of the window should be left.
        const uint64_t now_s = environment_.clock->NowSeconds();
        if (now_s + (header.onions_close_s() - header.announced_s()) / 2 > header.onions_close_s()) {
          continue;
        }
        if (best == nullptr || header.counter() < best->header().header().counter()) best = &info;
      }
      if (best != nullptr) {
        return round::Round::Verify(best->header(), deployment_->roster(),
                                    deployment_->table_facts(),
                                    environment_.clock->NowSeconds());
      }
      if (environment_.clock->NowSeconds() >= deadline_s) {
        return absl::DeadlineExceededError(absl::StrCat(
            "no round took ", report_.queries, " onions within ", options_.timeout_s, " seconds"));
      }
      environment_.sleep(kPollMs);
    }
  }

  // Some queries of one or more devices, for one request.
  struct Piece {
    std::vector<OnionRange> ranges;
    std::vector<uint64_t> firsts;   // each range's first query
    std::vector<uint32_t> devices;  // each range's
    size_t count = 0;
  };
  // The queries of the devices first .. end - 1 that are not lost.
  std::vector<Piece> Cut(uint32_t first, uint32_t end, size_t per_piece) const {
    std::vector<Piece> pieces;
    for (uint32_t device = first; device < end; ++device) {
      if (lost_[device]) continue;
      const auto queries = static_cast<uint32_t>(QueriesOf(device));
      for (uint32_t done = 0; done < queries;) {
        if (pieces.empty() || pieces.back().count == per_piece) pieces.emplace_back();
        Piece& piece = pieces.back();
        const auto count =
            static_cast<uint32_t>(std::min<size_t>(queries - done, per_piece - piece.count));
        piece.ranges.push_back({&masters_[device], done, count});
        piece.firsts.push_back(First(device) + done);
        piece.devices.push_back(device);
        piece.count += count;
        done += count;
      }
    }
    return pieces;
  }
  // The piece's items of an array over all queries, and back.
  static std::vector<uint32_t> Gather(const Piece& piece, const std::vector<uint32_t>& from) {
    std::vector<uint32_t> items;
    items.reserve(piece.count);
    for (size_t i = 0; i < piece.ranges.size(); ++i) {
      const auto first = from.begin() + static_cast<ptrdiff_t>(piece.firsts[i]);
      items.insert(items.end(), first, first + piece.ranges[i].count);
    }
    return items;
  }
  static void Scatter(const Piece& piece, std::span<const uint32_t> items,
                      std::vector<uint32_t>& to) {
    for (size_t i = 0; i < piece.ranges.size(); ++i) {
      const auto part = items.first(piece.ranges[i].count);
      std::copy(part.begin(), part.end(), to.begin() + static_cast<ptrdiff_t>(piece.firsts[i]));
      items = items.subspan(part.size());
    }
  }

  // Every device that is not lost does `work(exchange, first device, end)`: alone, or, where
  // connections are shared, in a unit with others that fills some requests. A unit whose work fails
  // is lost.
  template <typename Work>
  void ForUnits(const std::string& stage, size_t per_piece, const Work& work) {
    const Stopwatch stopwatch;
    done_ = 0;
    std::vector<uint32_t> firsts;
    if (!options_.own_connections) {
      uint64_t queries = 0;
      for (uint32_t device = 0; device < options_.devices; ++device) {
        if (device == 0 || queries + QueriesOf(device) > kUnitPieces * per_piece) {
          firsts.push_back(device);
          queries = 0;
        }
        queries += QueriesOf(device);
      }
      firsts.push_back(options_.devices);
    }
    const size_t units = options_.own_connections ? options_.devices : firsts.size() - 1;
    const absl::Status never_fails = ForPieces(
        units, 1, threads_ ? &*threads_ : nullptr, [&](size_t unit, size_t) -> absl::Status {
          const uint32_t first =
              options_.own_connections ? static_cast<uint32_t>(unit) : firsts[unit];
          const uint32_t end = options_.own_connections ? first + 1 : firsts[unit + 1];
          if (std::all_of(lost_.begin() + first, lost_.begin() + end,
                          [](const auto& lost) { return lost != 0; })) {
            return absl::OkStatus();
          }
          const absl::Status status = OneUnit(first, end, work);
          if (!status.ok()) {
            Remember(Annotate(status, stage));
            for (uint32_t device = first; device < end; ++device) lost_[device] = 1;
          }
          Progress(stage, First(end) - First(first));
          return absl::OkStatus();
        });
    SHOAL_CHECK(never_fails.ok());
    connections_->HangUp();
    AddStage(stage, stopwatch.Seconds());
  }
  template <typename Work>
  absl::Status OneUnit(uint32_t first, uint32_t end, const Work& work) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, connections_->Take());
    Exchange exchange(transport.get(), environment_.sleep, environment_.clock);
    const absl::Status status = work(exchange, first, end);
    connections_->Give(std::move(transport));
    return status;
  }

  void AddStage(const std::string& name, double seconds) {
    report_.stages.push_back({name, seconds});
  }

  void Progress(const std::string& stage, uint64_t more) {
    if (progress_) progress_(stage, done_ += more, report_.queries);
  }

  void Remember(const absl::Status& why) {
    const std::lock_guard lock(mutex_);
    if (report_.first_error.ok()) report_.first_error = why;
  }
  absl::Status LostAll() const {
    return std::find(lost_.begin(), lost_.end(), 0) == lost_.end()
               ? Annotate(report_.first_error, "no device got through")
               : absl::OkStatus();
  }

  void Obtain() {
    const size_t per_piece = OnionsPerPiece(*round_, options_.piece_bytes);
    ForUnits("obtain", per_piece,
             [&](Exchange& exchange, uint32_t first, uint32_t end) -> absl::Status {
               for (const Piece& piece : Cut(first, end, per_piece)) {
                 const ThreadTimer timer;
                 std::string onions = BuildOnions(*round_, piece.ranges, /*pool=*/nullptr);
                 {
                   const std::lock_guard lock(mutex_);
                   report_.seal_cpu_seconds += timer.Seconds();
                 }
                 std::vector<uint32_t> slots(piece.count);
                 SHOAL_RETURN_IF_ERROR(exchange.SubmitOnions(*round_, std::move(onions), slots));
                 Scatter(piece, slots, slots_);
               }
               return absl::OkStatus();
             });
  }

  absl::Status CheckSlots() const {
    std::vector<bool> given(round_->header().max_slots());
    for (uint32_t device = 0; device < options_.devices; ++device) {
      if (lost_[device]) continue;
      for (uint64_t i = First(device), end = First(device + 1); i < end; ++i) {
        if (given[slots_[i]]) return absl::DataLossError("the frontend gave a slot twice");
        given[slots_[i]] = true;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Wait(Exchange& control, const std::string& stage, wire::RoundState state,
                    uint64_t until_s) {
    if (progress_) progress_(stage, 0, 1);
    const Stopwatch stopwatch;
    SHOAL_ASSIGN_OR_RETURN(
        const wire::RoundState reached,
        control.WaitFor(round_->id(), state,
                        until_s + deployment_->roster().clock_tolerance_s()));
    AddStage(stage, stopwatch.Seconds());
    if (reached == state) return absl::OkStatus();
    if (reached == wire::ABORTED) return absl::AbortedError("the round was aborted");
    return absl::FailedPreconditionError(
        absl::StrCat("too late: the round is ", wire::RoundState_Name(reached), " already"));
  }

  void Submit() {
    const size_t per_piece = QueriesPerPiece(options_.piece_bytes);
    ForUnits("submit", per_piece,
             [&](Exchange& exchange, uint32_t first, uint32_t end) -> absl::Status {
               for (uint32_t device = first; device < end; ++device) {
                 submitted_s_[device] = since_start_.Seconds();
               }
               for (const Piece& piece : Cut(first, end, per_piece)) {
                 SHOAL_RETURN_IF_ERROR(exchange.SubmitQueries(
                     *round_, piece.ranges, Gather(piece, slots_), Gather(piece, rows_)));
               }
               return absl::OkStatus();
             });
  }

  // An application whose row is asked in query `query`.
  struct Wanted {
    uint64_t query;
    uint32_t device;
    uint32_t app;
  };
  struct Tally {
    uint64_t correct = 0, wrong = 0, failed = 0;
    uint64_t keys_found = 0, keys_absent = 0, keys_failed = 0;
    double cpu_seconds = 0;
  };

  void FetchAndVerify() {
    const size_t per_piece = AnswersPerPiece(*round_, options_.piece_bytes);
    ForUnits("fetch", per_piece,
             [&](Exchange& exchange, uint32_t first, uint32_t end) -> absl::Status {
               Tally tally;
               const ThreadTimer timer;
               const std::vector<Wanted> wanted = WantedOf(first, end, tally);
               size_t next = 0;
               SeededRandom random(seed_.view(), "shoal crowd weights v1", first);
               tally.cpu_seconds += timer.Seconds();
               for (const Piece& piece : Cut(first, end, per_piece)) {
                 Bytes answers(piece.count * round_->answer_bytes());
                 SHOAL_RETURN_IF_ERROR(exchange.FetchAnswers(*round_, piece.ranges,
                                                             Gather(piece, slots_), answers));
                 const double fetched_s = since_start_.Seconds();
                 for (size_t i = 0; i < piece.ranges.size(); ++i) {
                   latencies_.Add(fetched_s - submitted_s_[piece.devices[i]],
                                  piece.ranges[i].count);
                 }
                 const ThreadTimer check_timer;
                 Unmask(piece, answers);
                 Check(piece, RowsOf(piece, answers), wanted, next, random, tally);
                 tally.cpu_seconds += check_timer.Seconds();
               }
               Count(tally);
               return absl::OkStatus();
             });
  }

  void Count(const Tally& tally) {
    const std::lock_guard lock(mutex_);
    report_.answers_correct += tally.correct;
    report_.answers_wrong += tally.wrong;
    report_.answers_failed += tally.failed;
    report_.keys_found += tally.keys_found;
    report_.keys_absent += tally.keys_absent;
    report_.keys_failed += tally.keys_failed;
    report_.check_cpu_seconds += tally.cpu_seconds;
  }

  // In the order of the queries.
  std::vector<Wanted> WantedOf(uint32_t first, uint32_t end, Tally& tally) const {
    const table::RowMap& map = deployment_->map();
    std::vector<Wanted> wanted;
    for (uint32_t device = first; device < end; ++device) {
      if (lost_[device]) continue;
      std::vector<std::pair<uint32_t, uint64_t>> query_of;  // by row
      query_of.reserve(QueriesOf(device));
      for (uint64_t i = First(device), last = First(device + 1); i < last; ++i) {
        query_of.emplace_back(rows_[i], i);
      }
      std::sort(query_of.begin(), query_of.end());
      for (const uint32_t app : popularity_->AppsOf(device)) {
        const auto row = map.RowOf(popularity_->KeyOf(device, app));
        if (!row.ok()) {
          ++tally.keys_absent;  // out of the table's range: Draw has passed it
          continue;
        }
        const auto at = std::lower_bound(
            query_of.begin(), query_of.end(),
            std::pair<uint32_t, uint64_t>(static_cast<uint32_t>(*row), 0));
        SHOAL_CHECK(at != query_of.end() && at->first == *row);  // Draw saw to it
        wanted.push_back({at->second, device, app});
      }
    }
    std::sort(wanted.begin(), wanted.end(),
              [](const Wanted& a, const Wanted& b) { return a.query < b.query; });
    return wanted;
  }

  void Unmask(const Piece& piece, MutableBytes answers) const {
    for (const OnionRange& range : piece.ranges) {
      const MutableBytes part = answers.first(range.count * round_->answer_bytes());
      client::Unmask(*round_, range, part);
      answers = answers.subspan(part.size());
    }
  }

  // A piece's answers, one after the other, and the rows that they are for.
  std::vector<table::RowAnswer> RowsOf(const Piece& piece, BytesView answers) const {
    std::vector<table::RowAnswer> rows;
    rows.reserve(piece.count);
    const size_t answer_bytes = report_.answer_bytes;
    for (size_t i = 0; i < piece.ranges.size(); ++i) {
      for (uint64_t k = 0; k < piece.ranges[i].count; ++k) {
        rows.push_back({rows_[piece.firsts[i] + k],
                        answers.subspan(rows.size() * answer_bytes, answer_bytes)});
      }
    }
    return rows;
  }

  // Checks the answers of a piece; `wanted` up to `next` were found in earlier ones.
  void Check(const Piece& piece, std::span<const table::RowAnswer> rows,
             std::span<const Wanted> wanted, size_t& next, RandomSource& random, Tally& tally) {
    const std::vector<absl::Status> verified = VerifySignatures(rows, random);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!verified[i].ok()) {
        ++tally.failed;
        Remember(verified[i]);
      } else if (expected_ != nullptr &&
                 !std::equal(expected_->row(rows[i].row).begin(),
                             expected_->row(rows[i].row).end(), rows[i].answer.begin())) {
        ++tally.wrong;
      } else {
        ++tally.correct;
      }
    }
    for (size_t i = 0, before = 0; i < piece.ranges.size(); before += piece.ranges[i++].count) {
      const uint64_t end = piece.firsts[i] + piece.ranges[i].count;
      for (; next < wanted.size() && wanted[next].query < end; ++next) {
        const size_t at = before + (wanted[next].query - piece.firsts[i]);
        if (!verified[at].ok()) {
          ++tally.keys_failed;
          continue;
        }
        const Lookup result =
            ResultOf(deployment_->map(), rows[at],
                     popularity_->KeyOf(wanted[next].device, wanted[next].app));
        if (!result.error.ok()) {
          ++tally.keys_failed;
          Remember(result.error);
        } else {
          ++(result.outcome == Lookup::Outcome::kFound ? tally.keys_found : tally.keys_absent);
        }
      }
    }
  }

  std::vector<absl::Status> VerifySignatures(std::span<const table::RowAnswer> rows,
                                             RandomSource& random) {
    const table::RowMap& map = deployment_->map();
    if (!verified_) return map.VerifyAnswers(deployment_->roster(), rows, random);
    std::vector<Digest> digests(rows.size());
    std::vector<size_t> unknown;
    for (size_t i = 0; i < rows.size(); ++i) {
      digests[i] = VerifiedAnswers::DigestOf(rows[i].answer);
      if (!verified_->Has(rows[i].row, digests[i])) unknown.push_back(i);
    }
    // One of its kind is verified for all.
    const auto kind = [&](size_t i) { return std::pair(rows[i].row, digests[i]); };
    std::sort(unknown.begin(), unknown.end(),
              [&](size_t a, size_t b) { return kind(a) < kind(b); });
    std::vector<table::RowAnswer> some;
    std::vector<size_t> some_of(unknown.size());
    for (size_t k = 0; k < unknown.size(); ++k) {
      if (k == 0 || kind(unknown[k - 1]) != kind(unknown[k])) some.push_back(rows[unknown[k]]);
      some_of[k] = some.size() - 1;
    }
    const std::vector<absl::Status> verified =
        map.VerifyAnswers(deployment_->roster(), some, random);
    std::vector<absl::Status> result(rows.size());
    for (size_t k = 0; k < unknown.size(); ++k) {
      const size_t i = unknown[k];
      result[i] = verified[some_of[k]];
      if (result[i].ok()) verified_->Add(rows[i].row, digests[i]);
    }
    return result;
  }

  // For people and studies; a frontend that says nothing spoils no run.
  void AskForReport() {
    const auto status = control_->GetStatus(wire::GetStatusRequest());
    if (!status.ok()) return;
    for (const wire::RoundReport& report : status->rounds()) {
      if (report.round().header().header().counter() == report_.round) {
        report_.round_report = report;
      }
    }
  }

  const CrowdOptions options_;
  const table::UnsignedTable* const expected_;
  const TransportFactory& connect_;
  const Environment environment_;
  const CrowdProgress& progress_;
  const CrowdKeys& keys_;
  std::optional<Popularity> popularity_;
  std::optional<ThreadPool> threads_;  // of the connections but one

  std::unique_ptr<Transport> control_;
  std::optional<Deployment> deployment_;
  std::optional<Connections> connections_;
  std::optional<round::Round> round_;
  std::vector<Seed> masters_;  // by device
  Seed seed_;                  // of padding, and of weights in verification
  std::vector<std::atomic<uint8_t>> lost_;  // by device
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> rows_;
  std::vector<double> submitted_s_;  // by device
  std::optional<VerifiedAnswers> verified_;
  std::unique_ptr<pir::Client> engine_client_;
  std::map<std::string, double> wave_seconds_;  // by stage
  std::atomic<uint64_t> done_ = 0;

  const Stopwatch since_start_;
  Latencies latencies_;
  std::mutex mutex_;  // of the report, while devices are at work
  CrowdReport report_;
};

struct Crowd::EngineRequest {
  Piece piece;
  std::vector<pir::Asked> asked;
  Bytes answers;
  absl::Status status;
};

void Crowd::Wave(uint32_t first, uint32_t end) {
  std::vector<EngineRequest> requests;
  std::vector<size_t> jobs;  // the first request of each connection
  const auto add = [&](uint32_t from, uint32_t to) {
    for (Piece& piece : Cut(from, to, QueriesPerRequest(report_.costs.bytes))) {
      // A device's own connection carries all its requests, one after the other.
      if (!options_.own_connections || jobs.empty() ||
          requests.back().piece.devices.back() != piece.devices.front()) {
        jobs.push_back(requests.size());
      }
      requests.emplace_back().piece = std::move(piece);
    }
  };
  if (options_.own_connections) {
    for (uint32_t device = first; device < end; ++device) add(device, device + 1);
  } else {
    add(first, end);
  }
  jobs.push_back(requests.size());

  const auto timed = [&](const char* stage, size_t n, ThreadPool* threads, const auto& body) {
    const Stopwatch stopwatch;
    const absl::Status never_fails = ForPieces(n, 1, threads, [&](size_t i, size_t) {
      body(i);
      return absl::OkStatus();
    });
    SHOAL_CHECK(never_fails.ok());
    wave_seconds_[stage] += stopwatch.Seconds();
  };
  timed("make", requests.size(), environment_.pool,
        [&](size_t i) { MakeQueries(requests[i]); });
  timed("wait online", jobs.size() - 1, threads_ ? &*threads_ : nullptr, [&](size_t j) {
    SendQueries(std::span(requests).subspan(jobs[j], jobs[j + 1] - jobs[j]));
  });
  if (!options_.own_connections) connections_->HangUp();
  timed("check", requests.size(), environment_.pool,
        [&](size_t i) { CheckEngineAnswers(requests[i]); });
  for (const EngineRequest& request : requests) {
    if (request.status.ok()) continue;
    for (const uint32_t device : request.piece.devices) lost_[device] = 1;
  }
}

void Crowd::MakeQueries(EngineRequest& request) {
  const ThreadTimer timer;
  SeededRandom random(seed_.view(), "shoal crowd engine v1", request.piece.firsts.front());
  std::vector<uint64_t> rows;
  for (size_t i = 0; i < request.piece.ranges.size(); ++i) {
    const auto first = rows_.begin() + static_cast<ptrdiff_t>(request.piece.firsts[i]);
    rows.insert(rows.end(), first, first + static_cast<ptrdiff_t>(request.piece.ranges[i].count));
  }
  // All at once: the public matrix is expanded once for them.
  auto asked = engine_client_->Ask(rows, random);
  if (asked.ok()) {
    request.asked = *std::move(asked);
  } else {
    request.status = asked.status();
  }
  const std::lock_guard lock(mutex_);
  report_.seal_cpu_seconds += timer.Seconds();
}

void Crowd::SendQueries(std::span<EngineRequest> requests) {
  auto transport = connections_->Take();
  for (EngineRequest& request : requests) {
    if (!transport.ok()) request.status.Update(transport.status());
    if (!request.status.ok()) continue;
    Bytes queries;
    for (pir::Asked& asked : request.asked) {
      Append(queries, asked.query);
      asked.query = {};
    }
    const Stopwatch stopwatch;
    auto answers = FetchEngineAnswers(*options_.engine, report_.costs.bytes, request.piece.count,
                                      std::move(queries), EngineCallOf(**transport));
    if (answers.ok()) {
      latencies_.Add(stopwatch.Seconds(), request.piece.count);
      request.answers = *std::move(answers);
    } else {
      request.status = answers.status();
    }
    Progress("wait online", request.piece.count);
  }
  if (transport.ok()) connections_->Give(*std::move(transport));
}

void Crowd::CheckEngineAnswers(EngineRequest& request) {
  const ThreadTimer timer;
  const Piece& piece = request.piece;
  Tally tally;
  Bytes records;
  for (size_t i = 0; i < piece.count && request.status.ok(); ++i) {
    const size_t each = report_.costs.bytes.answer_bytes;
    const auto record = engine_client_->Recover(
        request.asked[i], BytesView(request.answers).subspan(i * each, each));
    if (record.ok()) {
      Append(records, *record);
    } else {
      request.status = record.status();
    }
  }
  // Keys that have no row at all are counted with their device's first request.
  Tally of_others;
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < piece.ranges.size(); ++i) {
    const uint32_t device = piece.devices[i];
    const uint64_t first = piece.firsts[i], end = first + piece.ranges[i].count;
    for (const Wanted& one :
         WantedOf(device, device + 1, first == First(device) ? tally : of_others)) {
      if (one.query >= first && one.query < end) wanted.push_back(one);
    }
  }
  if (request.status.ok()) {
    size_t next = 0;
    SeededRandom random(seed_.view(), "shoal crowd weights v1", piece.firsts.front());
    Check(piece, RowsOf(piece, records), wanted, next, random, tally);
  } else {
    Remember(request.status);
    tally.failed += piece.count;
    tally.keys_failed += wanted.size();
  }
  tally.cpu_seconds = timer.Seconds();
  Count(tally);
}

}  // namespace

Bytes CrowdKeys::At(uint64_t number) const {
  return dense != 0 ? ToBytes(AsBytes(absl::StrCat(number))) : listed[number];
}

absl::Status CheckCrowd(const CrowdOptions& options, uint64_t keys) {
  const auto check = [](bool ok, absl::string_view what) {
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(what);
  };
  SHOAL_RETURN_IF_ERROR(check(options.devices >= 1 && options.devices <= kMaxDevices,
                              absl::StrCat("devices: 1 to ", kMaxDevices)));
  SHOAL_RETURN_IF_ERROR(check(options.connections >= 1 && options.connections <= kMaxConnections,
                              absl::StrCat("connections: 1 to ", kMaxConnections)));
  SHOAL_RETURN_IF_ERROR(check(options.pad_to >= 1 && options.pad_to <= kMaxPadTo,
                              absl::StrCat("pad: 1 to ", kMaxPadTo)));
  SHOAL_RETURN_IF_ERROR(check(
      options.queries == 0 || (options.queries >= options.devices &&
                               options.queries / options.devices < kMaxPadTo),
      absl::StrCat("queries: at least one and at most ", kMaxPadTo, " of each of the ",
                   options.devices, " devices")));
  SHOAL_RETURN_IF_ERROR(check(keys > 0 && keys < Popularity::kAbsent,
                              absl::StrCat("keys: 1 to ", Popularity::kAbsent - 1)));
  SHOAL_RETURN_IF_ERROR(
      check(options.zipf >= 0 && options.zipf <= 2, "zipf: between 0 and 2"));
  SHOAL_RETURN_IF_ERROR(
      check(options.absent >= 0 && options.absent <= 1, "absent: between 0 and 1"));
  const uint64_t queries =
      options.queries == 0 ? options.pad_to : options.queries / options.devices;
  if (!options.fill) {
    SHOAL_RETURN_IF_ERROR(check(options.min_apps <= options.max_apps,
                                "apps: the first number is the smaller one"));
    SHOAL_RETURN_IF_ERROR(check(options.max_apps <= queries,
                                absl::StrCat("apps: ", options.max_apps, " of a device do not fit ",
                                             queries, " queries")));
  }
  // Sampling popular ones without repetition stays quick.
  const uint64_t most = options.fill ? std::min(queries + 1, keys) : options.max_apps;
  return check(options.zipf == 0 ? most <= keys : most <= std::max<uint64_t>(1, keys / 2),
               absl::StrCat("apps: at most half of the ", keys, " keys, or all with zipf 0"));
}

Popularity::Popularity(const CrowdOptions& options, const CrowdKeys* keys, uint64_t table_rows)
    : options_(options), keys_(keys), pad_to_(std::min<uint64_t>(options.pad_to, table_rows)) {
  SHOAL_CHECK(CheckCrowd(options, keys->size()).ok());
  seed_ = Transcript("shoal crowd v1").U64(options.seed).Finish();
  if (options.zipf == 0) return;
  SeededRandom random(seed_, "shoal crowd ranks v1");
  order_.resize(keys->size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  cumulative_.reserve(order_.size());
  double sum = 0;
  for (size_t rank = 1; rank <= order_.size(); ++rank) {
    sum += std::pow(static_cast<double>(rank), -options.zipf);
    cumulative_.push_back(sum);
  }
}

uint64_t Popularity::QueriesBefore(uint32_t device) const {
  if (options_.queries == 0) return device * pad_to_;
  // The first ones have one more where it does not divide.
  const uint64_t each = options_.queries / options_.devices;
  return device * each + std::min<uint64_t>(device, options_.queries % options_.devices);
}

uint64_t Popularity::QueriesOf(uint32_t device) const {
  return QueriesBefore(device + 1) - QueriesBefore(device);
}

std::vector<uint32_t> Popularity::AppsOf(uint32_t device) const {
  SeededRandom random(seed_, "shoal crowd device v1", device);
  const uint64_t keys = keys_->size();
  const uint64_t apps =
      options_.fill
          ? std::min(QueriesOf(device), keys)
          : options_.min_apps + random.Below(uint64_t{options_.max_apps} - options_.min_apps + 1);
  std::vector<uint32_t> numbers;
  numbers.reserve(apps);
  if (options_.zipf == 0 && options_.absent == 0) {
    if (apps <= keys / 2) {
      DrawDistinct(apps, keys, random, numbers);
      return numbers;
    }
    std::vector<uint32_t> others;
    DrawDistinct(keys - apps, keys, random, others);
    auto other = others.begin();
    for (uint32_t number = 0; number < keys; ++number) {
      if (other != others.end() && *other == number) {
        ++other;
      } else {
        numbers.push_back(number);
      }
    }
    return numbers;
  }
  std::unordered_set<uint32_t> taken;
  while (numbers.size() < apps) {
    if (Uniform(random) < options_.absent) {
      numbers.push_back(kAbsent + static_cast<uint32_t>(numbers.size()));
      continue;
    }
    uint32_t number;
    if (options_.zipf == 0) {
      number = static_cast<uint32_t>(random.Below(keys));
    } else {
      // Popular ones come up again and again: each counts once, as on a device.
      const double at = Uniform(random) * cumulative_.back();
      number = order_[static_cast<size_t>(
          std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at) -
          cumulative_.begin())];
    }
    if (taken.insert(number).second) numbers.push_back(number);
  }
  return numbers;
}

Bytes Popularity::KeyOf(uint32_t device, uint32_t app) const {
  if (app < kAbsent) return keys_->At(app);
  // A dense table takes numbers alone, and has none as large.
  return ToBytes(AsBytes(keys_->dense != 0
                             ? absl::StrCat(uint64_t{1} << 62 | (app - kAbsent))
                             : absl::StrCat("no such application ", device, " ", app - kAbsent)));
}

absl::StatusOr<CrowdReport> RunCrowd(const CrowdOptions& options, const roster::PinnedParties& pins,
                                     const CrowdKeys& keys, const table::UnsignedTable* expected,
                                     const TransportFactory& connect, Environment environment,
                                     const CrowdProgress& progress) {
  SHOAL_RETURN_IF_ERROR(CheckCrowd(options, keys.size()));
  return Crowd(options, keys, expected, connect, std::move(environment), progress).Run(pins);
}

}  // namespace shoal::client
