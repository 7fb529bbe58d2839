#include "src/shoald/driver.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
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

Driver::Driver(server::Frontend* frontend, server::ChainNode* node, const Clock* clock,
               RoundSteps* steps)
    : frontend_(frontend),
      node_(node),
      clock_(clock),
      own_(frontend, node),
      steps_(steps != nullptr ? steps : &own_),
      loop_([this] { Loop(); }),
      lists_([this] { SendLists(); }) {}

Driver::~Driver() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  loop_.join();
  tasks_.Wait();
  lists_.join();
  for (const Digest& round_id : frontend_->OpenRounds()) End(round_id, "the frontend ends");
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
  const auto answer = node_->Live(frontend_->Live());
  absl::Status reached_all = answer.status();
  if (answer.ok() && answer->reached < node_->party().roster().size()) {
    reached_all = absl::UnavailableError(absl::StrCat(
        "party ", answer->reached + 1, " has not taken the list, by what those before it say"));
  }
  if (list_failed_ == reached_all.ok()) {
    list_failed_ = !reached_all.ok();
    if (reached_all.ok()) {
      spdlog::info("all parties know again which rounds have ended");
    } else {
      spdlog::warn("not all parties know which rounds have ended: {}; trying again every second",
                   reached_all.ToString());
    }
  }
  if (!answer.ok()) return;
  const std::vector<Digest> aborted = frontend_->AbortLacked(answer->lacked);
  for (const Digest& id : aborted) {
    const std::string reason = frontend_->AbortReason(id);
    steps_->End(id, reason);
    spdlog::error("round {}..: aborted: {}; was it restarted?", ShortId(id), reason);
  }
  {
    const MutexLock lock(mutex_);
    if (reached_all.ok()) list_arrived_ = number;
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

// Decides on the loop's thread, so that nothing is started twice. The work gets its own thread.
void Driver::Run(const server::Due& due) {
  switch (due.action) {
    case server::Action::kAnnounce:
      if (announcing_ || clock_->SteadySeconds() < next_announcement_s_) return;
      announcing_ = true;
      tasks_.Spawn([this] { Announce(); });
      return;
    case server::Action::kSeal:
      if (!frontend_->Decide(due.round_id, wire::SEALED).ok()) return;
      tasks_.Spawn([this, id = due.round_id] { RunOffline(id); });
      return;
    case server::Action::kAnswer:
      if (!frontend_->Decide(due.round_id, wire::ANSWERING).ok()) return;
      tasks_.Spawn([this, id = due.round_id] { RunOnline(id); });
      return;
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
    status = round.ok() ? steps_->Open(*round) : round.status();
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
    // And machines may have opened it.
    if (header.ok()) steps_->End(round::RoundId(header->header()), "could not be opened");
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
    if (HasEnded(round_id)) return false;
    const MutexLock lock(mutex_);
    if (stopping_ || clock_->SteadySeconds() > until_s) return false;
    // What the list has ended is not run again: the stage is looked at once more.
    if (list_arrived_ >= next) break;
    wake_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kTick);
  }
  return !HasEnded(round_id);
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

bool Driver::HasEnded(const Digest& round_id) const {
  const auto stage = frontend_->Stage(round_id);
  return !stage.ok() || server::IsFinal(*stage);
}

bool Driver::GoesOn(const Digest& round_id, const std::string& step,
                    const absl::StatusOr<uint64_t>& count) {
  if (!count.ok()) {
    if (!HasEnded(round_id)) Fail(round_id, step, count.status());
    return false;
  }
  // Known only now at several machines.
  if (*count == 0) End(round_id, "");
  return *count > 0;
}

void Driver::RunOffline(const Digest& round_id) {
  if (!GoesOn(round_id, "sealing", steps_->Seal(round_id))) return;
  const Stopwatch stopwatch;
  const absl::Status done =
      RunRepeatedly(round_id, "offline stage", [&] { return steps_->Offline(round_id); });
  if (!done.ok()) {
    Fail(round_id, "offline stage", done);
    return;
  }
  server::StageReports reports = Reports(round_id);
  // Clients pay as soon as the round takes queries. A party that has ended since its part of the
  // stage says in answer to a list that it lacks the round, which aborts it.
  absl::Status open = absl::UnavailableError("not all parties say that they hold the round");
  if (WaitForWholeChain(round_id)) open = steps_->OpenForQueries(round_id, std::move(reports));
  if (!open.ok()) {
    // It may have ended meanwhile, which was said.
    if (!HasEnded(round_id)) Fail(round_id, "opening for queries", open);
    return;
  }
  spdlog::info("round {}..: open for queries; the offline stage took {:.2f} s", ShortId(round_id),
               stopwatch.Seconds());
}

void Driver::RunOnline(const Digest& round_id) {
  if (!GoesOn(round_id, "closing for queries", steps_->CloseQueries(round_id))) return;
  const Stopwatch stopwatch;
  const absl::Status done = RunRepeatedly(round_id, "online stage", [&] {
    return steps_->Online(round_id, [&] { return Reports(round_id); });
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
  steps_->End(round_id, reason);
  if (reason.empty()) {
    spdlog::info("round {}..: closed", ShortId(round_id));
  } else {
    spdlog::error("round {}..: aborted: {}", ShortId(round_id), reason);
  }
  ListHasChanged();
}

}  // namespace shoal::shoald
