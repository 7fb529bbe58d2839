// A crowd's devices in the refreshes of a term.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/exchange.h"
#include "src/client/refresh.h"
#include "src/client/retrieval.h"
#include "src/load/work.h"
#include "src/round/header.h"
#include "src/table/manifest.h"

namespace shoal::load {
namespace {

// The parties' reports come after the answers, which do not wait for them.
constexpr int kReportTries = 20;

client::Traffic operator-(const client::Traffic& a, const client::Traffic& b) {
  return {a.sent - b.sent, a.received - b.received};
}

class TermCrowd {
 public:
  TermCrowd(const Work& work, const CrowdTerm& term,
            const std::function<absl::StatusOr<client::Deployment>()>& fetch_deployment,
            const TableOpener& open_table)
      : work_(work),
        term_(term),
        fetch_deployment_(fetch_deployment),
        open_table_(open_table),
        control_(MakeExchange(work.control)) {}

  absl::Status Run() {
    for (uint32_t number = 1; number <= work_.options.refreshes; ++number) {
      const std::string name = absl::StrCat("refresh ", number);
      CrowdReport::Refresh refresh;
      SHOAL_ASSIGN_OR_RETURN(const client::VerifiedRefresh taken, Await(name, refresh));
      Fetch(name, number, taken, refresh);
      AskForReport(refresh);
      seen_ = taken.header.number();
      work_.recorder.report().refreshes.push_back(std::move(refresh));
    }
    return absl::OkStatus();
  }

 private:
  client::Exchange MakeExchange(client::Transport& transport) const {
    return {&transport, work_.environment.sleep, work_.environment.clock};
  }

  // Waits for a refresh that was not there before. What does not verify is no news. NOT_FOUND: the
  // parties have ended the term. DEADLINE_EXCEEDED.
  absl::StatusOr<client::VerifiedRefresh> Await(const std::string& name,
                                                CrowdReport::Refresh& refresh) {
    work_.recorder.Progress(absl::StrCat("wait for ", name), 0, 1);
    const Stopwatch waited;
    const uint64_t deadline_s = work_.environment.clock->NowSeconds() + work_.options.timeout_s;
    absl::Status last;
    client::Traffic fetched;
    for (;;) {
      const client::Traffic before = work_.control.traffic();
      absl::StatusOr<wire::GetRefreshResponse> latest = control_.GetRefresh(term_.round_id);
      const double now_s = waited.Seconds();
      if (absl::IsNotFound(latest.status())) {
        return Annotate(latest.status(), absl::StrCat(name, ": the term has ended"));
      }
      last = latest.status();
      if (latest.ok() && latest->refresh().header().number() > seen_) {
        // Each device has to fetch what tells the rows' epochs, whichever came first.
        if (latest->refresh().header().epoch() > deployment().manifest().epoch()) {
          last = FetchDeployment();
        }
        const auto verify = [&]() -> absl::StatusOr<client::VerifiedRefresh> {
          SHOAL_RETURN_IF_ERROR(last);
          return client::VerifyRefresh(
              *latest, {.id = term_.round_id, .header = term_.header, .manifest = term_.manifest},
              deployment());
        };
        const absl::StatusOr<client::VerifiedRefresh> verified = verify();
        fetched = fetched + (work_.control.traffic() - before);
        if (verified.ok()) {
          since_shown_.emplace();
          refresh.waited_seconds = now_s;
          refresh.news_bytes_sent = fetched.sent;
          refresh.news_bytes_received = fetched.received;
          return verified;
        }
        last = verified.status();
      }
      if (work_.environment.clock->NowSeconds() >= deadline_s) {
        return absl::DeadlineExceededError(
            absl::StrCat(name, ": none came within ", work_.options.timeout_s, " seconds",
                         last.ok() ? "" : "; the last answer: ", last.message()));
      }
      work_.environment.sleep(kPollMs);
    }
  }

  absl::Status FetchDeployment() {
    SHOAL_ASSIGN_OR_RETURN(client::Deployment next, fetch_deployment_());
    deployment_.emplace(std::move(next));
    return absl::OkStatus();
  }
  const client::Deployment& deployment() const {
    return deployment_ ? *deployment_ : work_.deployment;
  }

  // The table of this epoch, if it can be had.
  std::optional<table::UnsignedTable> TableToCompare() const {
    if (!open_table_) return std::nullopt;
    absl::StatusOr<table::UnsignedTable> table = open_table_();
    if (!table.ok() ||
        table::ManifestDigest(table->manifest()) != deployment().manifest().digest()) {
      return std::nullopt;
    }
    return *std::move(table);
  }

  // `number` counts the refreshes that this crowd has seen.
  void Fetch(const std::string& name, uint32_t number, const client::VerifiedRefresh& taken,
             CrowdReport::Refresh& refresh) {
    const client::Traffic before = TrafficOfDevices();
    const std::optional<table::UnsignedTable> expected = TableToCompare();
    Recorder recorder(work_.recorder.progress());
    recorder.report().queries = work_.devices.queries();
    Checker checker(&deployment(), &work_.devices, expected ? &*expected : nullptr,
                    work_.options.verify_each);
    const Work work = {work_.options,  work_.environment, deployment(),  work_.control,
                       work_.machines, work_.servers,     work_.threads, work_.devices,
                       checker,        recorder};
    const std::vector<Digest> masks = client::MasksOf(taken);
    const size_t per_piece =
        std::max<size_t>(1, work.options.piece_bytes / round::TaggedAnswerBytes(term_.header));
    std::vector<std::atomic<uint8_t>> without_news(work.devices.count());
    work.ForUnits(name, kUnitPieces * per_piece, [&](const auto& machine, Unit unit) {
      const std::vector<uint32_t> awake = Awake(unit, number);
      if (awake.empty()) return absl::OkStatus();
      const absl::Status fetched =
          FetchUnit(work, machine, awake, taken.header, masks, per_piece, number);
      if (fetched.ok()) return fetched;
      recorder.AddError(Annotate(fetched, name));
      for (const uint32_t device : awake) without_news[device] = 1;
      return absl::OkStatus();  // the devices are there in the next refresh
    });
    CrowdReport result = recorder.Take();

    refresh.number = taken.header.number();
    refresh.epoch = taken.header.epoch();
    refresh.compared = expected.has_value();
    static_cast<Tally&>(refresh) = result;
    for (uint32_t device = 0; device < work.devices.count(); ++device) {
      if (work.devices.IsLost(device)) continue;
      if (work.devices.IsAsleep(device, number)) {
        ++refresh.devices_asleep;
        continue;
      }
      ++refresh.devices;
      refresh.queries += work.devices.QueriesOf(device);
      if (without_news[device] == 0) continue;
      ++refresh.devices_without_news;
      refresh.answers_missing += work.devices.QueriesOf(device);
      refresh.keys_failed += work.devices.NumberOfKeys(device);
    }
    refresh.answers_failed += refresh.answers_missing;
    if (const absl::Status valid = client::CheckNotExpired(deployment(), *work.environment.clock);
        !valid.ok()) {
      DropAll(valid, refresh);
    }
    refresh.latency_seconds = result.latency_seconds;
    refresh.fetch_seconds = result.latency_seconds.most;
    refresh.check_cpu_seconds = result.check_cpu_seconds;
    const client::Traffic traffic = TrafficOfDevices() - before;
    refresh.bytes_sent = traffic.sent;
    refresh.bytes_received = traffic.received;
  }

  std::vector<uint32_t> Awake(Unit unit, uint32_t number) const {
    std::vector<uint32_t> awake;
    for (uint32_t device = unit.first; device < unit.end; ++device) {
      if (!work_.devices.IsLost(device) && !work_.devices.IsAsleep(device, number)) {
        awake.push_back(device);
      }
    }
    return awake;
  }

  // Fetches all answers of these devices, ends the connection, and only then looks at them.
  absl::Status FetchUnit(const Work& work, const FrontendMachine& machine,
                         std::span<const uint32_t> awake, const wire::RefreshHeader& header,
                         std::span<const Digest> masks, size_t per_piece, uint32_t number) const {
    const size_t seed_bytes = term_.parties() * Seed::size();
    const size_t answer_bytes = term_.header.answer_bytes();
    const size_t tagged_bytes = round::TaggedAnswerBytes(term_.header);
    std::vector<uint32_t> slots;
    SecretVector<uint8_t> seeds;
    for (const uint32_t device : awake) {
      const uint64_t first = work.devices.First(device), count = work.devices.QueriesOf(device);
      const auto some = std::span(term_.slots).subspan(first, count);
      slots.insert(slots.end(), some.begin(), some.end());
      const auto own = std::span(term_.seeds).subspan(first * seed_bytes, count * seed_bytes);
      seeds.insert(seeds.end(), own.begin(), own.end());
    }
    Bytes tagged(slots.size() * tagged_bytes);
    const auto fetch = [&](client::Transport& transport) -> absl::Status {
      client::Exchange exchange = MakeExchange(transport);
      for (size_t first = 0; first < slots.size();) {
        const auto rest = std::span<const uint32_t>(slots).subspan(first);
        const size_t count = client::SlotsInRequest(rest, per_piece);
        SHOAL_RETURN_IF_ERROR(exchange.FetchRefresh(
            client::MakeRefreshFetch(header, masks, rest.first(count),
                                     seeds.data() + first * seed_bytes),
            MutableBytes(tagged).subspan(first * tagged_bytes, count * tagged_bytes)));
        work.recorder.AddLatency(since_shown_->Seconds(), count);
        first += count;
      }
      return absl::OkStatus();
    };
    SHOAL_RETURN_IF_ERROR(Work::OverConnection(machine, fetch));
    const Stopwatch cpu(Stopwatch::kThread);
    Bytes answers(slots.size() * answer_bytes);
    client::UnmaskRefresh(masks, seeds.data(), answer_bytes, tagged, answers);
    std::vector<AnswersOf> all;
    BytesView rest = answers;
    for (const uint32_t device : awake) {
      all.push_back({device, rest.first(work.devices.QueriesOf(device) * answer_bytes)});
      rest = rest.subspan(all.back().answers.size());
    }
    SeededRandom random =
        work.devices.Random(absl::StrCat("shoal crowd weights v1 of ", number), awake.front());
    const Tally tally = work.checker.Check(all, random);
    work.recorder.AddChecked(tally, cpu.Seconds());
    return absl::OkStatus();
  }

  // No answer of a table that has expired meanwhile is used.
  static void DropAll(const absl::Status& why, CrowdReport::Refresh& refresh) {
    refresh.answers_failed += refresh.answers_correct + refresh.answers_wrong;
    refresh.answers_correct = refresh.answers_wrong = 0;
    refresh.keys_failed += refresh.keys_found + refresh.keys_absent + refresh.keys_unknown;
    refresh.keys_found = refresh.keys_absent = refresh.keys_unknown = 0;
    refresh.first_error.Update(why);
  }

  client::Traffic TrafficOfDevices() const {
    client::Traffic sum;
    for (const FrontendMachine& machine : work_.machines) {
      sum = sum + machine.connections->traffic();
    }
    return sum;
  }

  // What the refresh has cost the parties. A frontend that does not say it fails no run.
  void AskForReport(CrowdReport::Refresh& refresh) {
    for (int tries = 0; tries < kReportTries; ++tries) {
      const auto status = work_.control.GetStatus(wire::GetStatusRequest());
      if (!status.ok()) return;
      bool found = false;
      for (const wire::TermReport& report : status->terms()) {
        if (report.counter() != term_.header.counter() || report.number() != refresh.number) {
          continue;
        }
        refresh.report = report;
        found = true;
      }
      if (!found || refresh.report.stages_size() > 0) return;
      work_.environment.sleep(kPollMs);
    }
  }

  const Work& work_;
  const CrowdTerm& term_;
  const std::function<absl::StatusOr<client::Deployment>()>& fetch_deployment_;
  const TableOpener& open_table_;
  client::Exchange control_;
  std::optional<client::Deployment> deployment_;  // the newest; empty: the round's
  uint32_t seen_ = 0;                             // number of the last refresh
  std::optional<Stopwatch> since_shown_;
};

}  // namespace

void RunRefreshes(const Work& work, const CrowdTerm& term,
                  const std::function<absl::StatusOr<client::Deployment>()>& fetch_deployment,
                  const TableOpener& open_table) {
  work.recorder.report().no_more_refreshes =
      TermCrowd(work, term, fetch_deployment, open_table).Run();
}

}  // namespace shoal::load
