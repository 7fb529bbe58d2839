#include "src/server/refreshes.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/server/slot_requests.h"
#include "src/wire/visible.h"

namespace shoal::server {
namespace {

// Names the numbers of a term that were proposed, in the journal.
std::string ProposalsOf(const Digest& round_id) {
  return absl::StrCat("refresh proposed ", Hex(round_id));
}

// What the refresh that was just done has cost each party. Empty where a party does not say it: the
// answers are there all the same.
StageReports ReportsOf(const Digest& round_id, Link& first) {
  absl::StatusOr<StageReports> reports = first.Reports(round_id);
  if (!reports.ok()) return {};
  // Those of the round may be there, too.
  std::erase_if(*reports,
                [](const wire::StageReport& report) { return report.stage() != "refresh"; });
  return *std::move(reports);
}

bool IsOf(const wire::RefreshHeader& header, const TableEpoch& table) {
  return header.epoch() == table.epoch &&
         header.manifest_digest() == AsText(table.facts.manifest_digest);
}

size_t CountRuns(const std::vector<uint32_t>& slots) {
  size_t runs = slots.empty() ? 0 : 1;
  for (size_t i = 1; i < slots.size(); ++i) runs += slots[i] != slots[i - 1] + 1 ? 1 : 0;
  return runs;
}

}  // namespace

Refreshes::Refreshes(Party* party, Journal* journal, const Clock* clock, ThreadPool* pool,
                     SpoolPlace* spools)
    : party_(party),
      terms_(party->terms()),
      journal_(journal),
      clock_(clock),
      pool_(pool),
      spools_(spools) {
  SHOAL_CHECK(party->number() == PartyNumber(1) && terms_ != nullptr);
}

std::vector<Digest> Refreshes::WhatIsDue() {
  const std::shared_ptr<const TableEpoch> table = party_->table();
  std::vector<Digest> due;
  std::set<Digest> terms;
  std::vector<ShownPointer> dropped;  // without the lock
  const std::vector<Terms::Known> all = terms_->All();
  const MutexLock lock(mutex_);
  for (const Terms::Known& term : all) {
    terms.insert(term.round_id);
    // The round's own answers are of this epoch.
    if (term.header.manifest_digest() == AsText(table->facts.manifest_digest)) continue;
    const auto shown = shown_.find(term.round_id);
    if (shown != shown_.end() && IsOf(shown->second->refresh.header(), *table)) continue;
    due.push_back(term.round_id);
  }
  for (auto it = shown_.begin(); it != shown_.end();) {
    if (terms.contains(it->first)) {
      ++it;
      continue;
    }
    dropped.push_back(std::move(it->second));
    it = shown_.erase(it);
  }
  const auto has_ended = [&](const auto& of) { return !terms.contains(of.first); };
  std::erase_if(problems_, has_ended);
  std::erase_if(costs_, has_ended);
  return due;
}

absl::StatusOr<wire::RefreshHeader> Refreshes::NextHeader(const Terms::Known& term,
                                                          const TableEpoch& table) const {
  const std::string subject = ProposalsOf(term.round_id);
  const uint64_t signed_number = term.refresh.has_value() ? term.refresh->header().number() : 0;
  const uint64_t proposed = journal_->highest_epoch(subject);
  wire::RefreshHeader header;
  header.set_round_id(ToString(term.round_id));
  header.set_epoch(table.epoch);
  header.set_manifest_digest(ToString(table.facts.manifest_digest));
  const auto commit = [&](uint64_t number) {
    header.set_number(static_cast<uint32_t>(number));
    return journal_->CommitEpoch(subject, number, round::RefreshDigest(header));
  };
  // What was proposed of this epoch, and not signed by all, is proposed again.
  if (proposed > signed_number) {
    const absl::Status again = commit(proposed);
    if (again.ok()) return header;
    if (!absl::IsFailedPrecondition(again)) return again;
  }
  const uint64_t next = std::max(proposed, signed_number) + 1;
  if (next > term.header.max_refreshes()) {
    return absl::NotFoundError(
        absl::StrCat("the term has had its ", term.header.max_refreshes(), " refreshes"));
  }
  // A table that this party would not sign takes no number.
  header.set_number(static_cast<uint32_t>(next));
  SHOAL_RETURN_IF_ERROR(terms_->CheckProposal(header));
  SHOAL_RETURN_IF_ERROR(commit(next));
  return header;
}

absl::StatusOr<Refreshes::Done> Refreshes::Run(const Digest& round_id, Link& first) {
  absl::StatusOr<Done> done = RunOne(round_id, first);
  const MutexLock lock(mutex_);
  if (done.ok()) problems_.erase(round_id);
  return done;
}

absl::StatusOr<Refreshes::Done> Refreshes::RunOne(const Digest& round_id, Link& first) {
  SHOAL_ASSIGN_OR_RETURN(const Terms::Known term, terms_->Find(round_id));
  const std::shared_ptr<const TableEpoch> table = party_->table();
  const uint64_t answer_bytes = term.header.answer_bytes();
  if (table->facts.rows != term.header.max_rows() ||
      table->facts.row_bytes + signature::kSignatureBytes != answer_bytes) {
    return absl::NotFoundError(
        absl::StrCat("epoch ", table->epoch, " of the table has rows of other number or size"));
  }
  wire::SignedRefreshHeader refresh;
  if (term.refresh.has_value() && IsOf(term.refresh->header(), *table)) {
    refresh = *term.refresh;
  } else {
    SHOAL_ASSIGN_OR_RETURN(*refresh.mutable_header(), NextHeader(term, *table));
    SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum, first.ProposeRefresh(refresh.header()));
    refresh.set_signature(ToString(sum.bytes()));
    SHOAL_RETURN_IF_ERROR(terms_->StoreRefresh(refresh));
  }
  const Stopwatch wall;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<RefreshAnswers> answers, first.Refresh(refresh));
  SHOAL_CHECK(answers->size() == term.positions * round::TaggedAnswerBytes(term.header));
  SHOAL_CHECK(answers->tags().size() == party_->roster().size());
  absl::StatusOr<Spool> all = spools_->Create(answers->size());
  if (!all.ok()) return NoEndOfTheTerm(all.status());
  SHOAL_RETURN_IF_ERROR(FillSpool(*answers, *all, pool_));
  const uint64_t wall_ms = wire::VisibleMilliseconds(wall.Seconds());
  const Done done{.round = RoundCounter(term.header.counter()),
                  .header = refresh.header(),
                  .answers = term.positions,
                  .bytes = all->size()};
  ShownPointer next = std::make_shared<const Shown>(
      std::move(refresh), answers->tags(), *std::move(all), clock_->SteadySeconds(), wall_ms);
  {
    const MutexLock lock(mutex_);
    shown_[round_id].swap(next);
    costs_.erase(round_id);
  }
  // No client waits for this.
  StageReports costs = ReportsOf(round_id, first);
  const MutexLock lock(mutex_);
  costs_[round_id] = std::move(costs);
  return done;
}

void Refreshes::SetProblem(const Digest& round_id, absl::string_view problem) {
  const MutexLock lock(mutex_);
  problems_[round_id] = std::string(problem);
}

void Refreshes::End(const Digest& round_id, absl::string_view why) {
  terms_->End(round_id, why);
  ShownPointer dropped;
  const MutexLock lock(mutex_);
  const auto found = shown_.find(round_id);
  if (found == shown_.end()) return;
  dropped = std::move(found->second);
  shown_.erase(found);
}

Refreshes::ShownPointer Refreshes::Find(const Digest& round_id) const {
  const MutexLock lock(mutex_);
  const auto found = shown_.find(round_id);
  return found == shown_.end() ? nullptr : found->second;
}

absl::StatusOr<Refreshes::ShownPointer> Refreshes::FindFor(const Digest& round_id) const {
  // First: what is shown may be of a term that has ended just now.
  if (!terms_->Find(round_id).ok()) {
    return absl::NotFoundError(absl::StrCat("no term ", Hex(BytesView(round_id).first(8)), ".."));
  }
  return Find(round_id);
}

absl::StatusOr<wire::GetRefreshResponse> Refreshes::GetRefresh(
    const wire::GetRefreshRequest& request) const {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, ParseRoundId(request.round_id()));
  SHOAL_ASSIGN_OR_RETURN(const ShownPointer shown, FindFor(round_id));
  wire::GetRefreshResponse response;
  if (shown == nullptr) return response;
  *response.mutable_refresh() = shown->refresh;
  for (const round::RefreshTag& tag : shown->tags) {
    absl::StrAppend(response.mutable_tags(), AsText(tag));
  }
  return response;
}

absl::StatusOr<wire::FetchRefreshResponse> Refreshes::FetchRefresh(
    const wire::FetchRefreshRequest& request) const {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, ParseRoundId(request.round_id()));
  // Keeps the answers until this call has read them, even if the term ends.
  SHOAL_ASSIGN_OR_RETURN(const ShownPointer shown, FindFor(round_id));
  if (shown == nullptr) return absl::FailedPreconditionError("the term has no refresh yet");
  const wire::RefreshHeader& header = shown->refresh.header();
  if (request.number() != header.number()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "refresh ", header.number(), " is the latest one, and not ", request.number()));
  }
  SHOAL_ASSIGN_OR_RETURN(const Terms::Known term, terms_->Find(round_id));
  const uint64_t tagged_bytes = round::TaggedAnswerBytes(term.header);
  SHOAL_RETURN_IF_ERROR(CheckFetch(request.slots().size() / 4, tagged_bytes));
  SHOAL_ASSIGN_OR_RETURN(const SlotRequest parsed, ParseSlots(request.slots(), request.tokens()));
  if (const size_t runs = CountRuns(parsed.slots); runs > kMaxSlotRuns) {
    return absl::InvalidArgumentError(absl::StrCat(
        "slots in ", runs, " runs of adjacent ones; at most ", kMaxSlotRuns, " in a request"));
  }
  SHOAL_RETURN_IF_ERROR(CheckDistinct(parsed.slots));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint64_t> places,
                         terms_->Places(header, shown->tags.front(), parsed.slots, parsed.tokens));
  wire::FetchRefreshResponse response;
  const Spool* const answers[] = {&shown->answers};
  SHOAL_ASSIGN_OR_RETURN(*response.mutable_answers(), ReadAnswers(answers, places, tagged_bytes));
  return response;
}

std::vector<wire::TermReport> Refreshes::Reports() const {
  std::vector<wire::TermReport> reports;
  const std::vector<Terms::Known> all = terms_->All();
  const MutexLock lock(mutex_);
  for (const Terms::Known& term : all) {
    wire::TermReport& report = reports.emplace_back();
    report.set_counter(term.header.counter());
    report.set_max_refreshes(term.header.max_refreshes());
    report.set_term_expires_s(term.header.term_expires_s());
    report.set_positions(term.positions);
    if (const auto shown = shown_.find(term.round_id); shown != shown_.end()) {
      report.set_number(shown->second->refresh.header().number());
      report.set_epoch(shown->second->refresh.header().epoch());
      report.set_age_s(clock_->SteadySeconds() - shown->second->since_s);
      if (const auto costs = costs_.find(term.round_id); costs != costs_.end()) {
        report.mutable_stages()->Assign(costs->second.begin(), costs->second.end());
      }
      report.set_refresh_ms(shown->second->wall_ms);
    }
    if (const auto problem = problems_.find(term.round_id); problem != problems_.end()) {
      report.set_problem(problem->second);
    }
  }
  return reports;
}

}  // namespace shoal::server
