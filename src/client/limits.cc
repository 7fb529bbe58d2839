#include "src/client/limits.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/held_rounds.h"
#include "src/client/refresh.h"
#include "src/client/retry_policy.h"

namespace shoal::client {

uint64_t Attempts::Time() const {
  return std::max(call_.store.state().signed_s, call_.NowSeconds());
}

TriedLookup* Attempts::Tried() {
  if (!call_.lookup) return nullptr;
  return &call_.store.state().AddLookup(*call_.lookup, Time(), *call_.environment.random);
}

absl::Status Attempts::CheckLookup(const absl::Status& last) const {
  const TriedLookup* const tried =
      call_.lookup ? call_.store.state().FindLookup(*call_.lookup) : nullptr;
  if (tried == nullptr ||
      (tried->submissions < call_.options.max_attempts && tried->lost < kMaxLostRounds)) {
    return absl::OkStatus();
  }
  const std::string why = last.ok() ? "" : absl::StrCat("; the last time, ", last.message());
  const std::string when = TimeText(tried->latest_s + State::kLookupS, call_.NowSeconds());
  if (tried->submissions >= call_.options.max_attempts) {
    return absl::AbortedError(absl::StrCat(
        "giving up: this lookup was sent and charged ", tried->submissions,
        " times, which max_attempts of the configuration allows, in rounds that came to nothing",
        why, ". The attempts are forgotten at ", when));
  }
  return absl::AbortedError(absl::StrCat("giving up: ", tried->lost,
                                         " rounds came to nothing before this lookup was sent", why,
                                         ". They are forgotten at ", when));
}

absl::Status Attempts::CheckEnrolments() const {
  if (!call_.options.term) return absl::OkStatus();
  const State& state = call_.store.state();
  const auto lasting = static_cast<size_t>(std::ranges::count_if(
      state.enrolments, [&](uint64_t until_s) { return until_s >= state.signed_s; }));
  if (lasting < call_.options.term->max_enrolments) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this device has enrolled ", lasting,
                   " times in terms that last, which max_enrolments "
                   "allows; each showed its rows in a round. It may enrol again at ",
                   TimeText(*std::ranges::min_element(state.enrolments), call_.NowSeconds())));
}

absl::Status Attempts::LearnTime() {
  SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list, call_.links.frontend().ListRounds());
  State& state = call_.store.state();
  for (const wire::RoundInfo& info : list.rounds()) {
    const uint64_t announced_s = info.header().header().announced_s();
    if (announced_s > state.signed_s && VerifyRound(call_, info.header()).ok()) {
      state.SawSignedTime(announced_s);
    }
  }
  const uint64_t now_s = call_.NowSeconds();
  const uint32_t tolerance_s = call_.deployment.roster().clock_tolerance_s();
  state.DropExpired(now_s > tolerance_s ? now_s - tolerance_s : 0);
  return call_.store.Save();
}

absl::Status Attempts::Check(const absl::Status& last) {
  const auto check = [&]() -> absl::Status {
    SHOAL_RETURN_IF_ERROR(CheckLookup(last));
    return CheckEnrolments();
  };
  if (check().ok()) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(LearnTime());
  return check();
}

void Attempts::CountSubmission(const HeldRound& held) {
  State& state = call_.store.state();
  state.ledger.Add({.sent_s = call_.NowSeconds(),
                    .round_counter = held.counter(),
                    .queries = static_cast<uint32_t>(held.rows.size()),
                    .noise = call_.deployment.roster().noise(),
                    .most_in_bucket = call_.deployment.roster().most_in_bucket()});
  if (TriedLookup* const tried = Tried(); tried != nullptr) ++tried->submissions;
  if (call_.options.term) state.enrolments.push_back(EnrolmentLasts(held.header.header()));
}

void Attempts::CountLost() {
  if (TriedLookup* const tried = Tried(); tried != nullptr) ++tried->lost;
}

uint64_t Attempts::EnrolmentLasts(const wire::RoundHeader& header) const {
  // For as long as terms may last by what all parties have signed: the frontend alone chooses how
  // long this one does, and short ones must not bring more histograms.
  return std::max(header.term_expires_s(),
                  header.announced_s() + call_.deployment.roster().term_limit_s());
}

bool Suits(const ChainOptions& options, const HeldRound& held, uint64_t begun_s, uint64_t now_s) {
  if (!options.term && held.for_lookup) return true;  // it has waited, if it had to
  return TermSuits(held.header.header(), options.term.has_value(), begun_s, now_s);
}

Ledger PrivacyLimit::LedgerWith(uint64_t queries, const Division& division) const {
  Ledger ledger = state.ledger;
  uint32_t usable = queries == 0 ? 0 : division.rounds();
  for (const HeldRound& held : state.rounds) {
    if (!held.IsIdle()) continue;
    if (usable > 0 && held.slots() >= division.in_each && Suits(options, held, now_s, now_s)) {
      --usable;
    } else {
      ledger.AddIdleRound();
    }
  }
  while (queries > 0) {
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(queries, division.in_each));
    ledger.Add({.sent_s = now_s,
                .round_counter = 0,
                .queries = part,
                .noise = deployment.roster().noise(),
                .most_in_bucket = deployment.roster().most_in_bucket()});
    queries -= part;
  }
  return ledger;
}

absl::Status PrivacyLimit::Check(uint64_t queries, const Division& division) const {
  if (!options.max_epsilon) return absl::OkStatus();
  Ledger ledger = LedgerWith(queries, division);
  if (queries == 0) ledger.AddIdleRound();  // a round that is entered, and no more
  // Where the ledger would be: rounds that came to nothing have made its delta larger, and whoever
  // can abort rounds must not be able to lock clients out.
  const double delta = ledger.Grown(deployment.roster().noise().delta);
  SHOAL_ASSIGN_OR_RETURN(const TotalLoss loss, ledger.LossAt(delta));
  if (loss.epsilon && *loss.epsilon <= *options.max_epsilon) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "max_epsilon of the configuration is ", *options.max_epsilon, ", and with ", queries,
      " more queries everything that this device has asked would have ",
      loss.epsilon ? absl::StrCat("epsilon ", *loss.epsilon) : std::string("no epsilon at all"),
      " at delta ", delta, ", which is the deployment's",
      ledger.idle_rounds() == 0
          ? std::string()
          : absl::StrCat(", ", 1 + ledger.idle_rounds(), "-fold for ", ledger.idle_rounds(),
                         " rounds that it entered without a query"),
      "; nothing was sent. ",
      loss.epsilon ? "Ask for less, or allow more: a larger max_epsilon, or none"
                   : "No max_epsilon helps any more: to go on all the same, take it out",
      ". shoal status shows what this device has asked"));
}

}  // namespace shoal::client
