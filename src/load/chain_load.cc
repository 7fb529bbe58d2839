#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/device.h"
#include "src/client/exchange.h"
#include "src/client/refresh.h"
#include "src/load/work.h"
#include "src/onion/onion.h"
#include "src/round/header.h"
#include "src/round/query_bytes.h"

namespace shoal::load {
namespace {

class ChainCrowd {
 public:
  explicit ChainCrowd(const Work& work)
      : work_(work),
        devices_(work.devices),
        report_(work.recorder.report()),
        control_(MakeExchange(work.control)) {}

  absl::StatusOr<std::unique_ptr<CrowdTerm>> Run() {
    const size_t fetched_bytes = work_.deployment.fetched_bytes();
    SHOAL_RETURN_IF_ERROR(devices_.Check(fetched_bytes));
    SHOAL_RETURN_IF_ERROR(devices_.Draw(work_.environment, work_.recorder));
    submitted_s_.resize(devices_.count());
    SHOAL_ASSIGN_OR_RETURN(round_, PickRound());
    report_.round = round_->counter().value();
    report_.parties = round_->parties();
    DrawSecrets();
    if (work_.options.refreshes > 0) BeginTerm();

    Obtain();
    SHOAL_RETURN_IF_ERROR(work_.CheckNotAllLost());
    SHOAL_RETURN_IF_ERROR(CheckSlots());
    SHOAL_RETURN_IF_ERROR(
        Wait("wait offline", wire::OPEN_FOR_QUERIES, round_->header().queries_close_s()));
    Submit();
    SHOAL_RETURN_IF_ERROR(work_.CheckNotAllLost());
    SHOAL_RETURN_IF_ERROR(Wait("wait online", wire::ANSWERED, round_->header().expires_s()));
    FetchAndCheck();
    AskForReport();
    report_.costs.bytes.query_bytes = work_.deployment.query_bytes();
    report_.costs.bytes.answer_bytes = fetched_bytes;
    for (const wire::StageReport& stage : report_.round_report.stages()) {
      (stage.stage() == "noise" ? report_.costs.setup_seconds : report_.costs.answer_seconds) +=
          stage.cpu_seconds();
    }
    report_.costs.answer_seconds /= static_cast<double>(report_.queries);
    return std::move(term_);
  }

 private:
  client::Exchange MakeExchange(client::Transport& transport) const {
    return {&transport, work_.environment.sleep, work_.environment.clock};
  }

  absl::StatusOr<round::Round> PickRound() {
    if (work_.options.refreshes > 0) {
      SHOAL_RETURN_IF_ERROR(client::CheckTermsExist(work_.deployment));
    }
    const uint64_t begun_s = work_.environment.clock->NowSeconds();
    const uint64_t deadline_s = begun_s + work_.options.timeout_s;
    // A frontend of several machines shares a round's room out evenly.
    uint64_t most = 0;  // of the crowd's queries at one machine
    for (const FrontendMachine& machine : work_.machines) {
      most = std::max(most,
                      devices_.First(machine.devices.end) - devices_.First(machine.devices.first));
    }
    for (;;) {
      SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list, control_.ListRounds());
      const uint64_t now_s = work_.environment.clock->NowSeconds();
      const wire::RoundInfo* best = nullptr;
      bool out_of_terms = false;  // left rounds with a term to others
      for (const wire::RoundInfo& info : list.rounds()) {
        const wire::RoundHeader& header = info.header().header();
        if (info.state() != wire::OPEN_FOR_ONIONS) continue;
        if (header.manifest_digest() != AsText(work_.deployment.manifest().digest())) continue;
        if (!client::TermSuits(header, work_.options.refreshes > 0, begun_s, now_s)) {
          out_of_terms |= work_.options.refreshes == 0;
          continue;
        }
        if (header.max_refreshes() < work_.options.refreshes) {
          return absl::FailedPreconditionError(
              absl::StrCat("terms have at most ", header.max_refreshes(), " refreshes, and ",
                           work_.options.refreshes, " are wanted"));
        }
        if (header.max_slots() < report_.queries) {
          return absl::ResourceExhaustedError(absl::StrCat(
              "the crowd has ", report_.queries, " queries, rounds take ", header.max_slots()));
        }
        if (const uint64_t room = header.max_slots() / work_.machines.size(); most > room) {
          return absl::ResourceExhaustedError(
              absl::StrCat("the crowd has ", most, " queries for one machine of the frontend, and ",
                           "each takes ", room, " of a round's: take fewer, or start again"));
        }
        if (info.onions() > header.max_slots() - report_.queries) continue;
        // Half of the window should be left, as a crowd takes a while.
        if (now_s + (header.onions_close_s() - header.announced_s()) / 2 >
            header.onions_close_s()) {
          continue;
        }
        if (best == nullptr || header.counter() < best->header().header().counter()) best = &info;
      }
      if (best != nullptr) {
        return round::Round::Verify(best->header(), work_.deployment.roster(),
                                    work_.deployment.table_facts(),
                                    work_.environment.clock->NowSeconds());
      }
      if (now_s >= deadline_s) {
        return absl::DeadlineExceededError(
            absl::StrCat("no round ", work_.options.refreshes > 0 ? "with a term " : "", "took ",
                         report_.queries, " onions within ", work_.options.timeout_s, " seconds",
                         out_of_terms ? client::kOutOfTerms : ""));
      }
      work_.environment.sleep(kPollMs);
    }
  }

  void BeginTerm() {
    term_ = std::make_unique<CrowdTerm>();
    term_->round_id = round_->id();
    term_->header = round_->header();
    term_->manifest = work_.deployment.manifest().content();
    term_->slots.resize(devices_.queries());
    term_->seeds.resize(devices_.queries() * term_->parties() * Seed::size());
  }
  // Keeps what a refresh takes of a piece's queries.
  void Enrol(const Piece& piece) {
    const size_t each = term_->parties() * Seed::size();
    const std::vector<client::OnionRange> onions = OnionsOf(piece);
    const SecretVector<uint8_t> seeds = client::TermSeedsOf(*round_, onions, /*pool=*/nullptr);
    auto seed = seeds.begin();
    for (const Piece::Part& part : piece.parts) {
      const auto bytes = static_cast<ptrdiff_t>(part.count * each);
      std::copy_n(seed, bytes, term_->seeds.begin() + static_cast<ptrdiff_t>(part.first * each));
      seed += bytes;
      auto slot = term_->slots.begin() + static_cast<ptrdiff_t>(part.first);
      for (const client::OnionRange& range :
           client::Ranges(masters_[part.device], SubmissionsOf(part.device),
                          part.first - devices_.First(part.device), part.count)) {
        std::iota(slot, slot + range.count, *range.submission->first_slot + range.first);
        slot += range.count;
      }
    }
  }

  // Every device's master seed, and how its onions are cut.
  void DrawSecrets() {
    const uint32_t most = client::OnionsPerPiece(*round_, work_.options.piece_bytes);
    masters_.reserve(devices_.count());
    for (uint32_t device = 0; device < devices_.count(); ++device) {
      masters_.push_back(work_.environment.random->NewSeed());
      const auto cut = client::Split(0, static_cast<uint32_t>(devices_.QueriesOf(device)), most);
      submissions_.insert(submissions_.end(), cut.begin(), cut.end());
      submissions_end_.push_back(submissions_.size());
    }
  }
  std::span<client::OnionSubmission> SubmissionsOf(uint32_t device) {
    const size_t first = device == 0 ? 0 : submissions_end_[device - 1];
    return std::span(submissions_).subspan(first, submissions_end_[device] - first);
  }
  std::vector<client::OnionRange> OnionsOf(const Piece& piece) {
    std::vector<client::OnionRange> onions;
    for (const Piece::Part& part : piece.parts) {
      const auto some = client::Ranges(masters_[part.device], SubmissionsOf(part.device),
                                       part.first - devices_.First(part.device), part.count);
      onions.insert(onions.end(), some.begin(), some.end());
    }
    return onions;
  }

  void Obtain() {
    const size_t per_piece = client::OnionsPerPiece(*round_, work_.options.piece_bytes);
    work_.ForUnits("obtain", kUnitPieces * per_piece, [&](const auto& machine, Unit unit) {
      return Work::OverConnection(machine, [&](client::Transport& transport) -> absl::Status {
        client::Exchange exchange = MakeExchange(transport);
        // Small devices' submissions share requests.
        std::vector<client::SubmissionToMake> request;
        size_t bytes = 0;
        for (uint32_t device = unit.first; device < unit.end; ++device) {
          if (devices_.IsLost(device)) continue;
          for (client::OnionSubmission& submission : SubmissionsOf(device)) {
            const size_t more = round_->SubmissionBytes(submission.count);
            if (!request.empty() && bytes + more > work_.options.piece_bytes) {
              SHOAL_RETURN_IF_ERROR(Send(exchange, request));
              request.clear();
              bytes = 0;
            }
            request.push_back({&masters_[device], &submission});
            bytes += more;
          }
        }
        return request.empty() ? absl::OkStatus() : Send(exchange, request);
      });
    });
  }

  absl::Status Send(client::Exchange& exchange,
                    std::span<const client::SubmissionToMake> submissions) {
    const Stopwatch cpu(Stopwatch::kThread);
    std::vector<std::string> sealed =
        client::MakeSubmissions(*round_, submissions, /*pool=*/nullptr);
    work_.recorder.AddSealing(cpu.Seconds());
    SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> first_slots,
                           exchange.SubmitOnions(*round_, std::move(sealed)));
    for (size_t i = 0; i < submissions.size(); ++i) {
      submissions[i].submission->first_slot = first_slots[i];
    }
    return absl::OkStatus();
  }

  absl::Status CheckSlots() {
    for (const FrontendMachine& machine : work_.machines) {
      client::SlotSet given;  // each machine numbers its own
      for (uint32_t device = machine.devices.first; device < machine.devices.end; ++device) {
        if (devices_.IsLost(device)) continue;
        for (const client::OnionSubmission& submission : SubmissionsOf(device)) {
          if (!given.Add(*submission.first_slot, submission.count)) {
            return absl::DataLossError("the frontend gave a slot twice");
          }
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Wait(const std::string& stage, wire::RoundState state, uint64_t until_s) {
    work_.recorder.Progress(stage, 0, 1);
    const Stopwatch stopwatch;
    const uint64_t deadline_s = until_s + work_.deployment.roster().clock_tolerance_s();
    SHOAL_ASSIGN_OR_RETURN(wire::RoundState reached,
                           control_.WaitFor(round_->id(), state, deadline_s));
    // A device waits at its own machine, which may show the state a moment later.
    for (const FrontendMachine& machine : work_.machines) {
      if (work_.machines.size() == 1 || devices_.AllLost(machine.devices)) continue;
      SHOAL_RETURN_IF_ERROR(
          Work::OverConnection(machine, [&](client::Transport& transport) -> absl::Status {
            SHOAL_ASSIGN_OR_RETURN(
                reached, MakeExchange(transport).WaitFor(round_->id(), state, deadline_s));
            return absl::OkStatus();
          }));
      if (reached != state) break;
    }
    work_.recorder.AddStage(stage, stopwatch.Seconds());
    if (reached == state) return absl::OkStatus();
    if (reached == wire::ABORTED) return absl::AbortedError("the round was aborted");
    return absl::FailedPreconditionError(
        absl::StrCat("too late: the round is ", wire::RoundState_Name(reached), " already"));
  }

  void Submit() {
    const size_t per_piece = client::QueriesPerPiece(*round_, work_.options.piece_bytes);
    work_.ForUnits("submit", kUnitPieces * per_piece, [&](const auto& machine, Unit unit) {
      return Work::OverConnection(machine, [&](client::Transport& transport) -> absl::Status {
        client::Exchange exchange = MakeExchange(transport);
        for (uint32_t device = unit.first; device < unit.end; ++device) {
          submitted_s_[device] = since_start_.Seconds();
        }
        for (const Piece& piece : devices_.Cut(unit, per_piece)) {
          const Stopwatch cpu(Stopwatch::kThread);
          const wire::SubmitQueriesRequest request = client::MakeQueries(
              *round_, OnionsOf(piece), piece.Gather(devices_.rows()), /*pool=*/nullptr);
          work_.recorder.AddSealing(cpu.Seconds());
          SHOAL_RETURN_IF_ERROR(exchange.SubmitQueries(request));
        }
        return absl::OkStatus();
      });
    });
  }

  // As every client, fetches all answers, ends the connection, and only then looks at the answers.
  void FetchAndCheck() {
    const size_t fetched_bytes = round_->fetched_bytes();
    const size_t per_piece = client::AnswersPerPiece(*round_, work_.options.piece_bytes);
    work_.ForUnits(
        "fetch", kUnitPieces * per_piece, [&](const auto& machine, Unit unit) -> absl::Status {
          const std::vector<Piece> pieces = devices_.Cut(unit, per_piece);
          size_t count = 0;
          for (const Piece& piece : pieces) count += piece.count;
          Bytes fetched(count * fetched_bytes);
          const auto fetch = [&](client::Transport& transport) -> absl::Status {
            client::Exchange exchange = MakeExchange(transport);
            MutableBytes rest = fetched;
            for (const Piece& piece : pieces) {
              const MutableBytes part = rest.first(piece.count * fetched_bytes);
              SHOAL_RETURN_IF_ERROR(exchange.FetchAnswers(*round_, OnionsOf(piece), part));
              rest = rest.subspan(part.size());
              const double fetched_s = since_start_.Seconds();
              for (const Piece::Part& queries : piece.parts) {
                work_.recorder.AddLatency(fetched_s - submitted_s_[queries.device], queries.count);
              }
            }
            return absl::OkStatus();
          };
          SHOAL_RETURN_IF_ERROR(Work::OverConnection(machine, fetch));
          Check(unit, pieces, fetched);
          return absl::OkStatus();
        });
  }

  void Check(Unit unit, std::span<const Piece> pieces, BytesView fetched) {
    const Stopwatch cpu(Stopwatch::kThread);
    const size_t answer_bytes = round_->answer_bytes(), fetched_bytes = round_->fetched_bytes();
    Bytes unmasked(fetched.size() / fetched_bytes * answer_bytes);
    MutableBytes rest = unmasked;
    for (const Piece& piece : pieces) {
      client::Unmask(*round_, OnionsOf(piece), fetched.first(piece.count * fetched_bytes),
                     rest.first(piece.count * answer_bytes));
      if (term_ != nullptr) Enrol(piece);
      fetched = fetched.subspan(piece.count * fetched_bytes);
      rest = rest.subspan(piece.count * answer_bytes);
    }
    BytesView answers = unmasked;
    std::vector<AnswersOf> all;
    for (uint32_t device = unit.first; device < unit.end; ++device) {
      if (devices_.IsLost(device)) continue;
      const size_t bytes = devices_.QueriesOf(device) * answer_bytes;
      all.push_back({device, answers.first(bytes)});
      answers = answers.subspan(bytes);
    }
    work_.Check(unit.first, all, cpu);
  }

  // Fetches the frontend's report for people and studies. A frontend without one fails no run.
  void AskForReport() {
    const auto status = work_.control.GetStatus(wire::GetStatusRequest());
    if (!status.ok()) return;
    for (const wire::RoundReport& report : status->rounds()) {
      if (report.round().header().header().counter() == report_.round) {
        report_.round_report = report;
      }
    }
  }

  const Work& work_;
  Devices& devices_;
  CrowdReport& report_;
  client::Exchange control_;
  std::optional<round::Round> round_;
  std::unique_ptr<CrowdTerm> term_;                   // null unless there are refreshes
  std::vector<Seed> masters_;                         // by device
  std::vector<client::OnionSubmission> submissions_;  // device by device
  std::vector<size_t> submissions_end_;               // by device
  std::vector<double> submitted_s_;                   // by device
  const Stopwatch since_start_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CrowdTerm>> RunChain(const Work& work) {
  return ChainCrowd(work).Run();
}

}  // namespace shoal::load
