#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/engine_client.h"
#include "src/load/work.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/storage/memory.h"

namespace shoal::load {
namespace {

// A session's state, in memory alone. The crowd makes copies of one that is prepared.
class StateStore final : public pir::SessionStore {
 public:
  StateStore() = default;
  // A copy.
  explicit StateStore(const StateStore* of) : state_(of->state_), records_(of->records_) {}

  uint64_t state_bytes() const override { return state_.size(); }
  uint64_t records() const override { return records_.size(); }
  absl::Status Read(uint64_t at, MutableBytes out) const override {
    SHOAL_CHECK(at <= state_.size() && out.size() <= state_.size() - at);
    std::copy_n(state_.begin() + static_cast<ptrdiff_t>(at), out.size(), out.begin());
    return absl::OkStatus();
  }
  absl::StatusOr<SecretVector<uint8_t>> ReadRecord(uint64_t number) const override {
    return records_[number];
  }
  absl::Status SaveParts(std::span<const BytesView> parts) override {
    SecretVector<uint8_t> state;
    for (const BytesView part : parts) state.insert(state.end(), part.begin(), part.end());
    state_ = std::move(state);
    records_.clear();
    return absl::OkStatus();
  }
  absl::Status Append(BytesView record) override {
    records_.emplace_back(record.begin(), record.end());
    return absl::OkStatus();
  }
  absl::Status Change(std::span<const pir::StatePatch> patches) override {
    if (!CanChange()) return absl::FailedPreconditionError("no state that can be changed");
    for (const pir::StatePatch& patch : patches) {
      SHOAL_CHECK(patch.at <= state_.size() && patch.bytes.size() <= state_.size() - patch.at);
      std::ranges::copy(patch.bytes, state_.begin() + static_cast<ptrdiff_t>(patch.at));
    }
    return absl::OkStatus();
  }
  bool CanChange() const override { return !state_.empty() && records_.empty(); }

 private:
  SecretVector<uint8_t> state_;
  std::vector<SecretVector<uint8_t>> records_;
};

// The crowd through an engine whose sessions are prepared, or that has two servers. What is to be
// prepared is prepared once, and every connection has a session of the state that comes of it: to
// the server, queries of one state look like those of many, and take it as long. (They hide
// nothing: these devices are no people.) A session asks for one device after the other, a step at a
// time.
class SessionCrowd {
 public:
  SessionCrowd(const Work& work, const pir::Engine& engine)
      : work_(work),
        engine_(engine),
        devices_(work.devices),
        report_(work.recorder.report()),
        record_bytes_(work.deployment.manifest().answer_bytes()) {}

  absl::Status Run() {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<wire::PirReport> before, FetchReports());
    SHOAL_ASSIGN_OR_RETURN(report_.costs.bytes, engine_.SizesOf(setups_[0]));
    const pir::Sizes& sizes = report_.costs.bytes;
    SHOAL_RETURN_IF_ERROR(devices_.Check(sizes.query_bytes + sizes.answer_bytes + record_bytes_));
    const uint64_t count = std::clamp<uint64_t>(work_.options.connections, 1, devices_.count());
    SHOAL_RETURN_IF_ERROR(
        CheckMemory((count + 2) * sizes.hint_memory_bytes, "a session for each connection"));

    const Stopwatch preparing;
    StateStore prepared;
    uint64_t budget = 0;
    {
      SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<pir::Session> session, Open(prepared));
      while (session->needed(0) == pir::Session::Need::kRequests) {
        SHOAL_ASSIGN_OR_RETURN(pir::Request request, session->Prepare(*work_.environment.random));
        SHOAL_ASSIGN_OR_RETURN(
            const Bytes answer,
            client::FetchAnswer(engine_, request,
                                work_.CallOver(*work_.servers[ServerOf(request)].control)));
        SHOAL_RETURN_IF_ERROR(session->TakePrepared(answer));
        const pir::Session::Progress progress = session->progress();
        work_.recorder.Progress("hint", progress.done, progress.total);
      }
      budget = session->Budget().value_or(~uint64_t{0});
    }
    work_.recorder.AddStage("hint", preparing.Seconds());

    SHOAL_RETURN_IF_ERROR(devices_.Draw(work_.environment, work_.recorder));
    std::vector<std::vector<uint32_t>> devices_of(count);
    std::vector<uint64_t> queries_of(count);
    for (uint32_t device = 0; device < devices_.count(); ++device) {
      devices_of[device % count].push_back(device);
      queries_of[device % count] += devices_.QueriesOf(device);
    }
    if (std::ranges::max(queries_of) > budget) {
      return absl::InvalidArgumentError(absl::StrCat(
          report_.engine, ": a session answers ", budget, " queries, and one of these would have ",
          std::ranges::max(queries_of), ": take fewer devices, or more connections"));
    }
    work_.recorder.BeginQueries();
    const Stopwatch asking;
    const absl::Status asked = client::ForPieces(count, 1, work_.threads, [&](size_t i, size_t) {
      AskFor(devices_of[i], prepared);
      return absl::OkStatus();
    });
    SHOAL_CHECK(asked.ok());
    for (const EngineServer& server : work_.servers) server.connections->HangUp();
    work_.recorder.AddStage("wait online", asking.Seconds());
    SHOAL_RETURN_IF_ERROR(work_.CheckNotAllLost());
    // As a round's report: servers that say nothing spoil no run.
    const auto after = FetchReports();
    for (size_t i = 0; i < before.size(); ++i) {
      report_.costs.setup_seconds += before[i].setup_seconds();
      if (!after.ok() || (*after)[i].queries() <= before[i].queries()) continue;
      const wire::PirReport& now = (*after)[i];
      const auto queries = static_cast<double>(now.queries() - before[i].queries());
      // Added up over the servers, as each has a part of every query.
      report_.costs.answer_seconds +=
          (now.answer_cpu_seconds() - before[i].answer_cpu_seconds()) / queries;
      report_.costs.prepare_seconds += now.heavy_cpu_seconds() - before[i].heavy_cpu_seconds();
      report_.queries_per_pass = queries / static_cast<double>(now.passes() - before[i].passes());
    }
    return absl::OkStatus();
  }

 private:
  size_t ServerOf(const pir::Request& request) const {
    return static_cast<size_t>(std::ranges::find(engine_.roles(), request.role) -
                               engine_.roles().begin());
  }
  // What each server says of itself; also takes its setup.
  absl::StatusOr<std::vector<wire::PirReport>> FetchReports() {
    setups_.clear();
    std::vector<wire::PirReport> reports;
    for (const EngineServer& server : work_.servers) {
      SHOAL_ASSIGN_OR_RETURN(
          const wire::GetPirSetupResponse response,
          client::FetchSetup(work_.deployment, engine_, work_.CallOver(*server.control)));
      setups_.push_back(response.setup().setup());
      reports.push_back(response.report());
    }
    return reports;
  }
  absl::StatusOr<std::unique_ptr<pir::Session>> Open(StateStore& store) const {
    return engine_.OpenSession(setups_, {.store = &store});
  }

  // With a session of their own.
  void AskFor(std::span<const uint32_t> devices, const StateStore& prepared) {
    StateStore store(&prepared);
    const auto session = Open(store);
    // One thread for each server but one.
    std::optional<ThreadPool> threads;
    if (work_.servers.size() > 1) threads.emplace(work_.servers.size() - 1);
    for (const uint32_t device : devices) {
      SecretVector<uint8_t> records;
      const absl::Status status =
          !session.ok() ? session.status()
                        : Ask(**session, device, threads ? &*threads : nullptr, records);
      if (!status.ok()) {
        work_.recorder.AddError(status);
        devices_.Lose({device, device + 1});
        continue;
      }
      const Stopwatch cpu(Stopwatch::kThread);
      const AnswersOf answers[] = {{device, records}};
      work_.Check(device, answers, cpu);
    }
  }

  // Over connections of its own to all servers.
  absl::Status Ask(pir::Session& session, uint32_t device, ThreadPool* threads,
                   SecretVector<uint8_t>& records) {
    std::vector<std::unique_ptr<client::Transport>> transports;
    absl::Status status;
    for (const EngineServer& server : work_.servers) {
      auto transport = server.connections->Take();
      if (!transport.ok()) {
        status = transport.status();
        break;
      }
      transports.push_back(*std::move(transport));
    }
    if (status.ok()) status = AskOver(session, device, transports, threads, records);
    for (size_t i = 0; i < transports.size(); ++i) {
      work_.servers[i].connections->Give(std::move(transports[i]));
    }
    return status;
  }

  absl::Status AskOver(pir::Session& session, uint32_t device,
                       const std::vector<std::unique_ptr<client::Transport>>& transports,
                       ThreadPool* threads, SecretVector<uint8_t>& records) {
    SeededRandom random = devices_.Random("shoal crowd engine v1", device);
    const std::span<const uint32_t> rows = devices_.RowsOf(device);
    const std::vector<uint64_t> wide(rows.begin(), rows.end());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<pir::Batch> batch,
                           session.Ask({.rows = wide, .keys = wide.size()}));
    while (batch->steps() > 0) {
      Stopwatch cpu(Stopwatch::kThread);
      SHOAL_ASSIGN_OR_RETURN(std::vector<pir::Request> requests, batch->Next(random));
      work_.recorder.AddSealing(cpu.Seconds());
      const Stopwatch stopwatch;
      std::vector<Bytes> answers(requests.size());
      SHOAL_RETURN_IF_ERROR(
          client::ForPieces(requests.size(), 1, threads, [&](size_t i, size_t) -> absl::Status {
            SHOAL_ASSIGN_OR_RETURN(
                answers[i],
                client::FetchAnswer(engine_, requests[i],
                                    work_.CallOver(*transports[ServerOf(requests[i])])));
            return absl::OkStatus();
          }));
      work_.recorder.AddLatency(stopwatch.Seconds(), requests[0].count);
      cpu = Stopwatch(Stopwatch::kThread);
      SHOAL_RETURN_IF_ERROR(batch->Finish(std::vector<BytesView>(answers.begin(), answers.end())));
      work_.recorder.AddChecked({}, cpu.Seconds());
      work_.recorder.CountQueries("wait online", requests[0].count);
    }
    records = batch->TakeRecords();
    return absl::OkStatus();
  }

  const Work& work_;
  const pir::Engine& engine_;
  Devices& devices_;
  CrowdReport& report_;
  const size_t record_bytes_;
  std::vector<wire::PirSetup> setups_;  // in the order of the engine's roles
};

}  // namespace

absl::Status RunSessions(const Work& work, const pir::Engine& engine) {
  return SessionCrowd(work, engine).Run();
}

}  // namespace shoal::load
