#include "src/client/crowd.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/client/deployment.h"
#include "src/client/device.h"
#include "src/client/exchange.h"
#include "src/client/state.h"
#include "src/onion/onion.h"
#include "src/table/row_map.h"

namespace shoal::client {
namespace {

// Queries whose onions or answers are in memory at a time.
constexpr size_t kGroupQueries = 8192;
constexpr uint32_t kMaxDevices = 10'000'000;
constexpr uint32_t kMaxConnections = 1024;
constexpr uint32_t kPollMs = 250;

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

// The whole of one run. Devices are numbered from 0; device d's queries are the items
// d * pad .. (d + 1) * pad - 1 of rows_ and slots_.
class Crowd {
 public:
  Crowd(const CrowdOptions& options, std::span<const Bytes> keys,
        const table::UnsignedTable* expected, const TransportFactory& connect,
        Environment environment, const CrowdProgress& progress)
      : options_(options),
        expected_(expected),
        connect_(connect),
        environment_(std::move(environment)),
        progress_(progress),
        popularity_(options, keys),
        connections_(options.connections) {}

  absl::StatusOr<CrowdReport> Run(const roster::PinnedParties& pins) {
    const Stopwatch total;
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
    pad_ = PaddedCount(options_.pad_to, options_.pad_to, deployment_->manifest().rows());
    SHOAL_RETURN_IF_ERROR(Draw());
    SHOAL_ASSIGN_OR_RETURN(round_, PickRound(control));
    report_.round = round_->counter().value();
    report_.parties = round_->parties();

    Obtain();
    SHOAL_RETURN_IF_ERROR(LostAll());
    SHOAL_RETURN_IF_ERROR(Wait(control, "wait offline", wire::OPEN_FOR_QUERIES,
                               round_->header().queries_close_s()));
    Submit();
    SHOAL_RETURN_IF_ERROR(LostAll());
    SHOAL_RETURN_IF_ERROR(
        Wait(control, "wait online", wire::ANSWERED, round_->header().expires_s()));
    FetchAndVerify();
    for (uint32_t device = 0; device < options_.devices; ++device) {
      report_.devices_lost += lost_[device];
    }
    report_.seconds = total.Seconds();
    return std::move(report_);
  }

 private:
  absl::Status Draw() {
    const table::RowMap& map = deployment_->map();
    report_.devices = options_.devices;
    report_.queries = uint64_t{options_.devices} * pad_;
    report_.table_rows = map.rows();
    report_.answer_bytes = deployment_->manifest().answer_bytes();
    masters_.resize(options_.devices);
    lost_.assign(options_.devices, 0);
    slots_.resize(report_.queries);
    rows_.resize(report_.queries);
    std::vector<bool> asked(map.rows());
    for (uint32_t device = 0; device < options_.devices; ++device) {
      masters_[device] = environment_.random->NewSeed();
      std::set<uint32_t> wanted;
      for (const Bytes& key : popularity_.KeysOf(device)) {
        const auto row = map.RowOf(key);
        if (absl::IsOutOfRange(row.status())) continue;
        if (!row.ok()) return row.status();
        wanted.insert(static_cast<uint32_t>(*row));
      }
      if (wanted.size() > pad_) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a device needs ", wanted.size(), " rows, more than its ", pad_, " queries"));
      }
      const std::vector<uint32_t> list(wanted.begin(), wanted.end());
      const std::vector<uint32_t> padded =
          PadRows(list, pad_, map.rows(), *environment_.random);
      std::copy(padded.begin(), padded.end(), rows_.begin() + uint64_t{device} * pad_);
      for (uint32_t row : padded) asked[row] = true;
    }
    report_.distinct_rows = static_cast<uint64_t>(std::count(asked.begin(), asked.end(), true));
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

  OnionRange Range(uint32_t device) const { return {&masters_[device], 0, pad_}; }
  std::span<uint32_t> Slots(uint32_t device) {
    return std::span(slots_).subspan(uint64_t{device} * pad_, pad_);
  }
  std::span<const uint32_t> Rows(uint32_t device) const {
    return std::span(rows_).subspan(uint64_t{device} * pad_, pad_);
  }
  // Devices first..end of the next group.
  uint32_t GroupEnd(uint32_t first) const {
    const uint32_t size = static_cast<uint32_t>(std::max<size_t>(1, kGroupQueries / pad_));
    return std::min(options_.devices, first + size);
  }

  void AddStage(const std::string& name, double seconds) {
    for (CrowdReport::Stage& stage : report_.stages) {
      if (stage.name == name) {
        stage.seconds += seconds;
        return;
      }
    }
    report_.stages.push_back({name, seconds});
  }

  void Tell(const std::string& stage, uint64_t done, uint64_t total) const {
    if (progress_) progress_(stage, done, total);
  }

  void Lose(uint32_t device, const absl::Status& why) {
    lost_[device] = 1;
    Remember(why);
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

  // Every device first..end - 1 that is not lost does `work` over a connection of its own.
  template <typename Work>
  void ForDevices(const std::string& stage, uint32_t first, uint32_t end, const Work& work) {
    connections_.ParallelFor(end - first, 1, [&](size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) {
        const uint32_t device = first + static_cast<uint32_t>(i);
        if (lost_[device]) continue;
        const absl::Status status = OneDevice(device, work);
        if (!status.ok()) Lose(device, Annotate(status, stage));
        Tell(stage, done_.fetch_add(1) + 1, options_.devices);
      }
    });
  }
  template <typename Work>
  absl::Status OneDevice(uint32_t device, const Work& work) {
    auto transport = WithRetries(environment_.sleep, connect_);
    if (!transport.ok()) return transport.status();
    SHOAL_RETURN_IF_ERROR((*transport)->RequireFrontend(deployment_->roster()));
    Exchange exchange(transport->get(), environment_.sleep, environment_.clock);
    const absl::Status status = work(device, exchange);
    const Traffic traffic = (*transport)->traffic();
    const std::lock_guard lock(mutex_);
    report_.bytes_sent += traffic.sent;
    report_.bytes_received += traffic.received;
    return status;
  }

  void Obtain() {
    done_ = 0;
    const size_t onion_bytes = onion::OnionBytes(round_->parties());
    for (uint32_t first = 0; first < options_.devices;) {
      const uint32_t end = GroupEnd(first);
      std::vector<OnionRange> ranges;
      for (uint32_t device = first; device < end; ++device) ranges.push_back(Range(device));
      const Stopwatch seal;
      const Bytes onions = BuildOnions(*round_, ranges, *environment_.pool);
      AddStage("seal", seal.Seconds());
      const Stopwatch obtain;
      ForDevices("obtain", first, end, [&](uint32_t device, Exchange& exchange) {
        const size_t bytes = pad_ * onion_bytes;
        const auto slots = exchange.SubmitOnions(
            *round_, BytesView(onions).subspan((device - first) * bytes, bytes));
        if (slots.ok()) std::copy(slots->begin(), slots->end(), Slots(device).begin());
        return slots.status();
      });
      AddStage("obtain", obtain.Seconds());
      first = end;
    }
  }

  absl::Status Wait(Exchange& control, const std::string& stage, wire::RoundState state,
                    uint64_t until_s) {
    Tell(stage, 0, 1);
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
    done_ = 0;
    const Stopwatch stopwatch;
    ForDevices("submit", 0, options_.devices, [&](uint32_t device, Exchange& exchange) {
      return exchange.SubmitQueries(*round_, Range(device), Slots(device), Rows(device));
    });
    AddStage("submit", stopwatch.Seconds());
  }

  void FetchAndVerify() {
    done_ = 0;
    const size_t answer_bytes = round_->answer_bytes();
    const size_t device_bytes = pad_ * answer_bytes;
    for (uint32_t first = 0; first < options_.devices;) {
      const uint32_t end = GroupEnd(first);
      Bytes answers((end - first) * device_bytes);
      const Stopwatch fetch;
      ForDevices("fetch", first, end, [&](uint32_t device, Exchange& exchange) {
        return exchange.FetchAnswers(
            *round_, Range(device), Slots(device),
            MutableBytes(answers).subspan((device - first) * device_bytes, device_bytes));
      });
      AddStage("fetch", fetch.Seconds());
      const Stopwatch verify;
      Verify(first, end, answers);
      AddStage("verify", verify.Seconds());
      first = end;
    }
  }

  void Verify(uint32_t first, uint32_t end, BytesView answers) {
    const size_t answer_bytes = round_->answer_bytes();
    std::vector<table::RowAnswer> rows;
    std::vector<size_t> begin_of(end - first);  // in `rows`
    for (uint32_t device = first; device < end; ++device) {
      begin_of[device - first] = rows.size();
      if (lost_[device]) continue;
      for (uint32_t i = 0; i < pad_; ++i) {
        const size_t item = uint64_t{device - first} * pad_ + i;
        rows.push_back({Rows(device)[i], answers.subspan(item * answer_bytes, answer_bytes)});
      }
    }
    const std::vector<absl::Status> verified = VerifySignatures(rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!verified[i].ok()) {
        ++report_.answers_failed;
        Remember(verified[i]);
      } else if (expected_ != nullptr &&
                 !std::equal(expected_->row(rows[i].row).begin(),
                             expected_->row(rows[i].row).end(), rows[i].answer.begin())) {
        ++report_.answers_wrong;
      } else {
        ++report_.answers_correct;
      }
    }
    for (uint32_t device = first; device < end; ++device) {
      if (lost_[device]) report_.answers_failed += pad_;
      CountKeys(device, std::span(rows).subspan(begin_of[device - first], lost_[device] ? 0 : pad_),
                std::span(verified).subspan(begin_of[device - first], lost_[device] ? 0 : pad_));
    }
  }

  std::vector<absl::Status> VerifySignatures(std::span<const table::RowAnswer> rows) {
    const table::RowMap& map = deployment_->map();
    if (options_.verify_each) {
      return map.VerifyAnswers(deployment_->roster(), rows, *environment_.random,
                               environment_.pool);
    }
    std::vector<Digest> digests(rows.size());
    environment_.pool->ParallelFor(rows.size(), 256, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        digests[i] = Transcript("shoal crowd answer v1").Blob(rows[i].answer).Finish();
      }
    });
    known_.resize(map.rows());
    // The first of its kind is verified, unless it was in an earlier group.
    std::map<std::pair<uint64_t, Digest>, size_t> first_of;  // index in `some`
    std::vector<table::RowAnswer> some;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (known_[rows[i].row] == digests[i]) continue;
      if (first_of.emplace(std::pair(rows[i].row, digests[i]), some.size()).second) {
        some.push_back(rows[i]);
      }
    }
    const std::vector<absl::Status> verified = map.VerifyAnswers(
        deployment_->roster(), some, *environment_.random, environment_.pool);
    std::vector<absl::Status> result(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (known_[rows[i].row] == digests[i]) continue;
      result[i] = verified[first_of.at({rows[i].row, digests[i]})];
      if (result[i].ok()) known_[rows[i].row] = digests[i];
    }
    return result;
  }

  void CountKeys(uint32_t device, std::span<const table::RowAnswer> rows,
                 std::span<const absl::Status> verified) {
    const table::RowMap& map = deployment_->map();
    for (const Bytes& key : popularity_.KeysOf(device)) {
      const auto row = map.RowOf(key);
      if (!row.ok()) {
        ++report_.keys_absent;  // out of the table's range: Draw has passed it
        continue;
      }
      const auto at = std::find_if(rows.begin(), rows.end(),
                                   [&](const table::RowAnswer& a) { return a.row == *row; });
      if (at == rows.end() || !verified[static_cast<size_t>(at - rows.begin())].ok()) {
        ++report_.keys_failed;
        continue;
      }
      const auto value = map.Find(*row, at->answer.first(map.row_bytes()), key);
      if (!value.ok()) {
        ++report_.keys_failed;
        Remember(value.status());
      } else {
        ++(value->has_value() ? report_.keys_found : report_.keys_absent);
      }
    }
  }

  const CrowdOptions options_;
  const table::UnsignedTable* const expected_;
  const TransportFactory& connect_;
  const Environment environment_;
  const CrowdProgress& progress_;
  const Popularity popularity_;
  ThreadPool connections_;

  std::unique_ptr<Transport> control_;
  std::optional<Deployment> deployment_;
  std::optional<round::Round> round_;
  uint32_t pad_ = 0;
  std::vector<Seed> masters_;
  std::vector<uint8_t> lost_;  // bytes, not bits: threads write their own
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> rows_;
  std::atomic<uint64_t> done_ = 0;
  std::vector<Digest> known_;  // by row: of an answer that was verified; zeros: none yet

  std::mutex mutex_;  // of the report, while devices are at work
  CrowdReport report_;
};

}  // namespace

absl::Status CheckCrowd(const CrowdOptions& options, size_t keys) {
  const auto check = [](bool ok, absl::string_view what) {
    return ok ? absl::OkStatus() : absl::InvalidArgumentError(what);
  };
  SHOAL_RETURN_IF_ERROR(check(options.devices >= 1 && options.devices <= kMaxDevices,
                              absl::StrCat("devices: 1 to ", kMaxDevices)));
  SHOAL_RETURN_IF_ERROR(check(options.connections >= 1 && options.connections <= kMaxConnections,
                              absl::StrCat("connections: 1 to ", kMaxConnections)));
  SHOAL_RETURN_IF_ERROR(check(options.min_apps <= options.max_apps,
                              "apps: the first number is the smaller one"));
  SHOAL_RETURN_IF_ERROR(check(options.pad_to >= 1 && options.pad_to <= kMaxPadTo,
                              absl::StrCat("pad: 1 to ", kMaxPadTo)));
  SHOAL_RETURN_IF_ERROR(check(options.max_apps <= options.pad_to,
                              absl::StrCat("apps: ", options.max_apps, " of a device do not fit ",
                                           options.pad_to, " queries")));
  // Sampling without repetition stays quick.
  SHOAL_RETURN_IF_ERROR(check(keys > 0 && options.max_apps <= std::max<size_t>(1, keys / 2),
                              absl::StrCat("apps: at most half of the ", keys, " keys")));
  SHOAL_RETURN_IF_ERROR(
      check(options.zipf >= 0 && options.zipf <= 2, "zipf: between 0 and 2"));
  return check(options.absent >= 0 && options.absent <= 1, "absent: between 0 and 1");
}

Popularity::Popularity(const CrowdOptions& options, std::span<const Bytes> keys)
    : options_(options), keys_(keys) {
  SHOAL_CHECK(CheckCrowd(options, keys.size()).ok());
  seed_ = Transcript("shoal crowd v1").U64(options.seed).Finish();
  SeededRandom random(seed_, "shoal crowd ranks v1");
  order_.resize(keys.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = static_cast<uint32_t>(i);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.Below(i)]);
  cumulative_.reserve(keys.size());
  double sum = 0;
  for (size_t rank = 1; rank <= keys.size(); ++rank) {
    sum += std::pow(static_cast<double>(rank), -options.zipf);
    cumulative_.push_back(sum);
  }
}

std::vector<Bytes> Popularity::KeysOf(uint32_t device) const {
  SeededRandom random(seed_, "shoal crowd device v1", device);
  const uint64_t apps =
      options_.min_apps + random.Below(uint64_t{options_.max_apps} - options_.min_apps + 1);
  std::vector<Bytes> keys;
  std::unordered_set<size_t> taken;
  while (keys.size() < apps) {
    if (Uniform(random) < options_.absent) {
      keys.push_back(ToBytes(
          AsBytes(absl::StrCat("no such application ", device, " ", keys.size()))));
      continue;
    }
    // Popular ones come up again and again: each counts once, as on a device.
    const double at = Uniform(random) * cumulative_.back();
    const size_t rank = static_cast<size_t>(
        std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at) - cumulative_.begin());
    if (taken.insert(rank).second) keys.push_back(keys_[order_[rank]]);
  }
  return keys;
}

absl::StatusOr<CrowdReport> RunCrowd(const CrowdOptions& options, const roster::PinnedParties& pins,
                                     std::span<const Bytes> keys,
                                     const table::UnsignedTable* expected,
                                     const TransportFactory& connect, Environment environment,
                                     const CrowdProgress& progress) {
  SHOAL_RETURN_IF_ERROR(CheckCrowd(options, keys.size()));
  return Crowd(options, keys, expected, connect, std::move(environment), progress).Run(pins);
}

}  // namespace shoal::client
