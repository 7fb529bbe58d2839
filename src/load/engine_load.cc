#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/engine_client.h"
#include "src/client/hint_cache.h"
#include "src/load/work.h"
#include "src/pir/engine.h"

namespace shoal::load {
namespace {

// Queries and their answers that are held at a time.
constexpr uint64_t kWaveBytes = uint64_t{256} << 20;
// Answers of small devices that are verified together where connections are shared.
constexpr uint64_t kCheckedTogether = 256;

// The whole crowd through the engine, in waves of whole devices: their queries are made, sent, and
// recovered one after the other, so that what is timed as the server's is the server's.
class EngineCrowd {
 public:
  EngineCrowd(const Work& work, const pir::Engine& engine)
      : work_(work),
        engine_(engine),
        devices_(work.devices),
        report_(work.recorder.report()),
        record_bytes_(work.deployment.manifest().answer_bytes()) {}

  absl::Status Run() {
    report_.engine = std::string(engine_.name());
    report_.parties = static_cast<uint32_t>(engine_.roles().size());
    if (engine_.keeps_state() || engine_.roles().size() != 1) return RunSessions(work_, engine_);
    const client::EngineCall call = work_.CallOver(work_.control);
    const Stopwatch stopwatch;
    SHOAL_ASSIGN_OR_RETURN(const wire::GetPirSetupResponse before,
                           client::FetchSetup(work_.deployment, engine_, call));
    SHOAL_ASSIGN_OR_RETURN(report_.costs.bytes, engine_.SizesOf(before.setup().setup()));
    const Stopwatch open;
    SHOAL_ASSIGN_OR_RETURN(session_, engine_.OpenSession({&before.setup().setup(), 1}, {}));
    double open_seconds = open.Seconds();
    if (session_->needed(0) == pir::Session::Need::kHint) {
      client::HintFetch fetch;
      SHOAL_ASSIGN_OR_RETURN(
          session_,
          client::ObtainHint(
              engine_, before.setup(), work_.deployment.roster(), /*path=*/"", call, {},
              [&](uint64_t done, uint64_t total) { work_.recorder.Progress("hint", done, total); },
              fetch));
      open_seconds = fetch.open_seconds;
    }
    work_.recorder.AddStage("hint", stopwatch.Seconds());
    const pir::Sizes& sizes = report_.costs.bytes;
    const uint64_t each = sizes.query_bytes + sizes.answer_bytes + record_bytes_;
    SHOAL_RETURN_IF_ERROR(devices_.Check(each));
    SHOAL_RETURN_IF_ERROR(devices_.Draw(work_.environment, work_.recorder));
    work_.recorder.BeginQueries();
    for (uint32_t first = 0, end = 0; first < devices_.count(); first = end) {
      while (end < devices_.count() &&
             (end == first ||
              (devices_.First(end + 1) - devices_.First(first)) * each <= kWaveBytes)) {
        ++end;
      }
      Wave({first, end});
    }
    work_.recorder.AddStage("make", make_seconds_);
    work_.recorder.AddStage("wait online", wait_seconds_);
    work_.recorder.AddStage("check", check_seconds_);
    SHOAL_RETURN_IF_ERROR(work_.CheckNotAllLost());
    report_.costs.setup_seconds = before.report().setup_seconds();
    report_.costs.open_seconds = open_seconds;
    // As a round's report: a server that says nothing spoils no run.
    const auto after = client::FetchSetup(work_.deployment, engine_, call);
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

 private:
  struct Request {
    Piece piece;
    std::unique_ptr<pir::Batch> batch;  // of one step
    pir::Request message;
    Bytes answer;
    absl::Status status;
  };

  // body(i) for all i below n; adds the wall time to `seconds`.
  static void Timed(double& seconds, size_t n, ThreadPool* threads,
                    const std::function<void(size_t i)>& body) {
    const Stopwatch stopwatch;
    const absl::Status never_fails = client::ForPieces(n, 1, threads, [&](size_t i, size_t) {
      body(i);
      return absl::OkStatus();
    });
    SHOAL_CHECK(never_fails.ok());
    seconds += stopwatch.Seconds();
  }

  void Wave(Unit wave) {
    std::vector<Request> requests;
    std::vector<size_t> jobs;  // the first request of each connection
    for (const Unit unit :
         work_.options.own_connections ? devices_.Units(wave, 0) : std::vector<Unit>{wave}) {
      const size_t before = requests.size();
      for (Piece& piece : devices_.Cut(unit, session_->KeysPerStep())) {
        // A device's own connection carries all its requests, one after the other.
        if (!work_.options.own_connections || requests.size() == before) {
          jobs.push_back(requests.size());
        }
        requests.emplace_back().piece = std::move(piece);
      }
    }
    jobs.push_back(requests.size());
    // Of all queries of the wave, in their order.
    SecretVector<uint8_t> records((devices_.First(wave.end) - devices_.First(wave.first)) *
                                  record_bytes_);

    ThreadPool* const pool = work_.environment.pool;
    Timed(make_seconds_, requests.size(), pool, [&](size_t i) { MakeQueries(requests[i]); });
    Timed(wait_seconds_, jobs.size() - 1, work_.threads, [&](size_t j) {
      SendQueries(std::span(requests).subspan(jobs[j], jobs[j + 1] - jobs[j]));
    });
    work_.machines[0].connections->HangUp();
    Timed(check_seconds_, requests.size(), pool,
          [&](size_t i) { Recover(requests[i], devices_.First(wave.first), records); });
    for (const Request& request : requests) {
      if (request.status.ok()) continue;
      work_.recorder.AddError(request.status);
      for (const Piece::Part& part : request.piece.parts) {
        devices_.Lose({part.device, part.device + 1});
      }
    }
    const std::vector<Unit> units = devices_.Units(wave, kCheckedTogether);
    Timed(check_seconds_, units.size(), pool,
          [&](size_t i) { Check(units[i], devices_.First(wave.first), records); });
  }

  void MakeQueries(Request& request) {
    const Stopwatch cpu(Stopwatch::kThread);
    SeededRandom random =
        devices_.Random("shoal crowd engine v1", request.piece.parts.front().first);
    const std::vector<uint32_t> rows = request.piece.Gather(devices_.rows());
    request.status = [&]() -> absl::Status {
      const std::vector<uint64_t> wide(rows.begin(), rows.end());
      SHOAL_ASSIGN_OR_RETURN(request.batch, session_->Ask({.rows = wide, .keys = wide.size()}));
      SHOAL_CHECK(request.batch->steps() == 1);
      SHOAL_ASSIGN_OR_RETURN(std::vector<pir::Request> messages, request.batch->Next(random));
      request.message = std::move(messages.at(0));
      return absl::OkStatus();
    }();
    work_.recorder.AddSealing(cpu.Seconds());
  }

  void SendQueries(std::span<Request> requests) {
    const absl::Status connected =
        Work::OverConnection(work_.machines[0], [&](client::Transport& transport) -> absl::Status {
          for (Request& request : requests) {
            if (request.status.ok()) request.status = Send(transport, request);
            work_.recorder.CountQueries("wait online", request.piece.count);
          }
          return absl::OkStatus();
        });
    for (Request& request : requests) request.status.Update(connected);
  }

  absl::Status Send(client::Transport& transport, Request& request) {
    const Stopwatch stopwatch;
    SHOAL_ASSIGN_OR_RETURN(
        request.answer, client::FetchAnswer(engine_, request.message, work_.CallOver(transport)));
    work_.recorder.AddLatency(stopwatch.Seconds(), request.piece.count);
    return absl::OkStatus();
  }

  // Decrypts the answers into their queries' places in `records`, which begin with query `first`.
  void Recover(Request& request, uint64_t first, MutableBytes records) {
    const Stopwatch cpu(Stopwatch::kThread);
    if (request.status.ok()) {
      const BytesView answer = request.answer;
      request.status = request.batch->Finish({&answer, 1});
    }
    if (request.status.ok()) {
      const SecretVector<uint8_t> found = request.batch->TakeRecords();
      auto from = found.begin();
      for (const Piece::Part& part : request.piece.parts) {
        const auto bytes = static_cast<ptrdiff_t>(part.count * record_bytes_);
        std::copy_n(from, bytes,
                    records.begin() + static_cast<ptrdiff_t>((part.first - first) * record_bytes_));
        from += bytes;
      }
    }
    request.batch.reset();
    work_.recorder.AddChecked({}, cpu.Seconds());
  }

  void Check(Unit unit, uint64_t first, BytesView records) {
    const Stopwatch cpu(Stopwatch::kThread);
    std::vector<AnswersOf> all;
    for (uint32_t device = unit.first; device < unit.end; ++device) {
      if (devices_.IsLost(device)) continue;
      all.push_back({device, records.subspan((devices_.First(device) - first) * record_bytes_,
                                             devices_.QueriesOf(device) * record_bytes_)});
    }
    work_.Check(unit.first, all, cpu);
  }

  const Work& work_;
  const pir::Engine& engine_;
  Devices& devices_;
  CrowdReport& report_;
  const size_t record_bytes_;
  std::unique_ptr<pir::Session> session_;
  double make_seconds_ = 0, wait_seconds_ = 0, check_seconds_ = 0;
};

}  // namespace

absl::Status RunEngine(const Work& work, const pir::Engine& engine) {
  return EngineCrowd(work, engine).Run();
}

}  // namespace shoal::load
