#include "src/shoald/driver.h"

#include <chrono>
#include <utility>

#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/round/header.h"

namespace shoal::shoald {
namespace {

constexpr std::chrono::milliseconds kTick(20);
constexpr uint64_t kPauseAfterFailureS = 2;
constexpr std::chrono::seconds kBetweenLists(1);
constexpr int kMostRepeats = 2;  // of a stage whose link broke

std::string ShortId(const Digest& id) { return Hex(BytesView(id).first(8)); }

}  // namespace

Driver::Driver(server::Frontend* frontend, server::ChainNode* node, const Clock* clock)
    : frontend_(frontend), node_(node), clock_(clock), loop_([this] { Loop(); }), lists_([this] {
        SendLists();
      }) {}

Driver::~Driver() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  loop_.join();
  tasks_.Wait();
  lists_.join();
  const wire::ListRoundsResponse left = frontend_->ListRounds();
  for (const wire::RoundInfo& round : left.rounds()) {
    if (round.state() == wire::CLOSED || round.state() == wire::ABORTED) continue;
    End(round::RoundId(round.header().header()), "the frontend ends");
  }
  SendList();
}

void Driver::SendLists() {
  for (;;) {
    SendList();
    const auto next = std::chrono::steady_clock::now() + kBetweenLists;
    const MutexLock lock(mutex_);
    while (!stopping_ && !list_has_changed_ && wake_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
    list_has_changed_ = false;
  }
}

void Driver::SendList() {
  uint64_t number;
  {
    const MutexLock lock(mutex_);
    number = ++list_begun_;
  }
  const auto lacked = node_->Live(frontend_->Live());
  if (list_failed_ == lacked.ok()) {
    list_failed_ = !lacked.ok();
    if (lacked.ok()) {
      spdlog::info("all parties know again which rounds have ended");
    } else {
      spdlog::warn("not all parties know which rounds have ended: {}; trying again every second",
                   lacked.status().ToString());
    }
  }
  if (!lacked.ok()) return;
  const std::vector<Digest> aborted = frontend_->AbortLacked(*lacked);
  for (const Digest& id : aborted) {
    spdlog::error("round {}..: aborted: {}; was it restarted?", ShortId(id),
                  frontend_->Info(id).value_or(wire::RoundInfo()).abort_reason());
  }
  {
    const MutexLock lock(mutex_);
    list_arrived_ = number;
    if (!aborted.empty()) list_has_changed_ = true;
  }
  wake_.NotifyAll();
}

void Driver::ListHasChanged() {
  {
    const MutexLock lock(mutex_);
    list_has_changed_ = true;
  }
  wake_.NotifyAll();
}

void Driver::Loop() {
  for (;;) {
    for (const server::Due& due : frontend_->WhatIsDue()) Run(due);
    const auto next = std::chrono::steady_clock::now() + kTick;
    const MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
  }
}

// Changes the state on the loop's thread, so that nothing is started twice. The work gets its own
// thread.
void Driver::Run(const server::Due& due) {
  switch (due.action) {
    case server::Action::kAnnounce:
      if (announcing_ || clock_->SteadySeconds() < next_announcement_s_) return;
      announcing_ = true;
      tasks_.Spawn([this] { Announce(); });
      return;
    case server::Action::kSeal: {
      // std::function must be copyable, so the submissions are shared.
      auto shared =
          std::make_shared<absl::StatusOr<server::Submissions>>(frontend_->Seal(due.round_id));
      tasks_.Spawn([this, id = due.round_id, shared] {
        if (shared->ok()) {
          RunOffline(id, *std::move(*shared));
        } else {
          Fail(id, "sealing", shared->status());
        }
      });
      return;
    }
    case server::Action::kAnswer: {
      absl::StatusOr<Bytes> queries = frontend_->CloseQueries(due.round_id);
      if (!queries.ok()) return;
      tasks_.Spawn(
          [this, id = due.round_id, bytes = *std::move(queries)] { RunOnline(id, bytes); });
      return;
    }
    case server::Action::kClose:
      End(due.round_id, "");
      return;
    case server::Action::kAbort: {
      if (!due.why.ok()) {
        spdlog::error("round {}..: {}: {}", ShortId(due.round_id), due.reason, due.why.ToString());
      }
      End(due.round_id, due.reason);
      return;
    }
  }
}

void Driver::Announce() {
  const absl::StatusOr<wire::RoundHeader> draft = frontend_->NewDraft();
  absl::Status status = draft.status();
  absl::StatusOr<wire::SignedHeader> header;
  if (draft.ok()) {
    header = node_->Propose(*draft, frontend_->Live());
    status = header.status();
  }
  if (status.ok()) {
    const auto round = round::Round::Verify(*header, node_->party().roster(),
                                            node_->party().table()->facts, clock_->NowSeconds());
    status = round.ok() ? frontend_->Open(*round) : round.status();
    if (status.ok()) {
      spdlog::info("round {} ({}..): open for onions", round->counter().value(),
                   ShortId(round->id()));
      announcing_ = false;
      // Makes the noise ahead of time, while onions come in.
      if (absl::Status noise = node_->party().PrepareNoise(round->id()); !noise.ok()) {
        spdlog::warn("round {}: {}", ShortId(round->id()), noise.ToString());
      }
      return;
    }
  }
  if (draft.ok()) {
    // Parties may have signed it.
    frontend_->Withdraw(RoundCounter(draft->counter()));
    ListHasChanged();
  }
  spdlog::error("no round could be opened: {}; trying again in {} s", status.ToString(),
                kPauseAfterFailureS);
  next_announcement_s_ = clock_->SteadySeconds() + kPauseAfterFailureS;
  announcing_ = false;
}

server::StageReports Driver::Reports(const Digest& round_id) {
  absl::StatusOr<server::StageReports> reports = node_->Reports(round_id);
  if (reports.ok()) return *std::move(reports);
  spdlog::warn("round {}..: what it cost is not known: {}", ShortId(round_id),
               reports.status().ToString());
  return {};
}

bool Driver::WaitForWholeChain(const Digest& round_id) {
  uint64_t next;
  {
    const MutexLock lock(mutex_);
    next = list_begun_ + 1;
  }
  ListHasChanged();
  // Parties that have heard no list for as long have erased the round.
  const uint64_t until_s = clock_->SteadySeconds() + server::kUnheardLimitS;
  for (;;) {
    const auto stage = frontend_->Stage(round_id);
    if (!stage.ok() || server::IsFinal(*stage)) return false;
    const MutexLock lock(mutex_);
    if (stopping_ || clock_->SteadySeconds() > until_s) return false;
    // What the list has ended is not run again: the stage is looked at once more.
    if (list_arrived_ >= next) break;
    wake_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kTick);
  }
  const auto stage = frontend_->Stage(round_id);
  return stage.ok() && !server::IsFinal(*stage);
}

absl::Status Driver::RunRepeatedly(const Digest& round_id, absl::string_view stage,
                                   const std::function<absl::Status()>& run) {
  for (int repeats = 0;; ++repeats) {
    const absl::Status done = run();
    if (!absl::IsUnavailable(done) || repeats == kMostRepeats) return done;
    spdlog::warn("round {}..: {}: {}; to be repeated once all parties are reached",
                 ShortId(round_id), std::string(stage), done.ToString());
    if (!WaitForWholeChain(round_id)) return done;
  }
}

void Driver::RunOffline(const Digest& round_id, server::Submissions submissions) {
  const absl::StatusOr<wire::SignedHeader> header = frontend_->Header(round_id);
  if (!header.ok()) return;
  const Stopwatch stopwatch;
  absl::StatusOr<server::Submissions> next = std::move(submissions);
  const absl::Status done = RunRepeatedly(round_id, "offline stage", [&] {
    if (next->list == nullptr) next = frontend_->SubmissionsAgain(round_id);
    if (!next.ok()) return next.status();
    return node_->Offline(*header, *std::exchange(next, server::Submissions()));
  });
  if (!done.ok()) {
    Fail(round_id, "offline stage", done);
    return;
  }
  if (const absl::Status open = frontend_->OfflineDone(round_id, Reports(round_id)); !open.ok()) {
    // It may have ended meanwhile, which was said.
    const auto stage = frontend_->Stage(round_id);
    if (!stage.ok() || server::IsFinal(*stage)) return;
    Fail(round_id, "opening for queries", open);
    return;
  }
  spdlog::info("round {}..: open for queries; the offline stage took {:.2f} s", ShortId(round_id),
               stopwatch.Seconds());
}

void Driver::RunOnline(const Digest& round_id, const Bytes& queries) {
  const Stopwatch stopwatch;
  const absl::Status done = RunRepeatedly(round_id, "online stage", [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(const auto answers, node_->OnlineOfKept(round_id, queries));
    return frontend_->AnswersReady(round_id, *answers, [&] { return Reports(round_id); });
  });
  if (!done.ok()) {
    Fail(round_id, "online stage", done);
    return;
  }
  spdlog::info("round {}..: answered; the online stage took {:.2f} s", ShortId(round_id),
               stopwatch.Seconds());
}

void Driver::Fail(const Digest& round_id, const std::string& stage, const absl::Status& why) {
  const absl::Status told = ForOthers(why);
  if (told != why) spdlog::error("round {}..: {}: {}", ShortId(round_id), stage, why.ToString());
  End(round_id, stage + ": " + told.ToString());
}

void Driver::End(const Digest& round_id, const std::string& reason) {
  if (reason.empty()) {
    frontend_->Close(round_id);
    spdlog::info("round {}..: closed", ShortId(round_id));
  } else {
    frontend_->Abort(round_id, reason);
    spdlog::error("round {}..: aborted: {}", ShortId(round_id), reason);
  }
  ListHasChanged();
}

}  // namespace shoal::shoald
