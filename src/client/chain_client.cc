#include "src/client/chain_client.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/chain_answers.h"
#include "src/client/chain_call.h"
#include "src/client/division.h"
#include "src/client/held_rounds.h"
#include "src/client/limits.h"
#include "src/client/query_submission.h"
#include "src/client/round_finder.h"
#include "src/client/round_links.h"
#include "src/client/round_status.h"
#include "src/client/rows.h"

namespace shoal::client {
namespace {

// The round in which the part was begun, or one in which it gets slots. `last`: why the round
// before was left.
RoundStatusOr<Digest> FindRound(const ChainCall& call, const Portion& part,
                                const absl::Status& last) {
  HeldRounds held_rounds(call);
  SHOAL_RETURN_IF_ERROR(held_rounds.DropUnusable());
  std::optional<Digest> round_id = held_rounds.FindBegun(part);  // begun before an interruption
  if (round_id) return *round_id;
  SHOAL_RETURN_IF_ERROR(Attempts(call).Check(last));
  const uint32_t count = part.queries;
  // Another attempt must not take slots in vain.
  if (!last.ok()) {
    SHOAL_RETURN_IF_ERROR(LimitOf(call).Check(count, {.queries = count, .in_each = count}));
  }
  // Checks for room first, as a submission whose answers have none would be charged in vain.
  SHOAL_RETURN_IF_ERROR(AnswerSpool::CheckRoom(call.store.AnswersPath(0),
                                               uint64_t{count} * call.deployment.fetched_bytes()));
  return RoundFinder(call).Obtain(count);
}

// Asks for a part of a lookup in one round.
RoundStatusOr<std::unique_ptr<AnswersOfRound>> AskIn(const ChainCall& call, const Portion& part,
                                                     HeldRound& held) {
  const Stopwatch asking;
  SHOAL_ASSIGN_OR_RETURN(round::Round round, HeldRounds(call).Verify(held));
  std::unique_ptr<AnswerSpool> spool;
  if (!held.rows.empty()) {
    SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(call.store, call.options, held));
  }
  if (spool == nullptr || !spool->complete()) {
    RoundStatus submitted = SubmitPart(call, held.id, part);
    if (!submitted.ok()) return submitted;
    if (spool == nullptr) {
      SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(call.store, call.options, held));
    }
    RoundStatus collected = Collect(call, held.id, *spool);
    if (!collected.ok()) return collected;
    // The next part of the lookup has attempts of its own. Not if this one was answered in an
    // earlier run: then the attempts are those of a later part.
    if (part.number + 1 < part.parts && call.store.state().DropLookup(*call.lookup)) {
      SHOAL_RETURN_IF_ERROR(call.store.Save());
    }
  }
  call.costs.answer_seconds = asking.Seconds() / static_cast<double>(held.rows.size());
  if (call.options.term) SHOAL_RETURN_IF_ERROR(TellEnrolled(call, held, round));
  return std::make_unique<AnswersOfRound>(call, &held, std::move(round), std::move(spool));
}

RoundStatusOr<std::unique_ptr<AnswersOfRound>> AskOnce(const ChainCall& call, const Portion& part,
                                                       const absl::Status& last) {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, FindRound(call, part, last));
  HeldRound* const held = call.store.state().FindRound(round_id);
  RoundStatusOr<std::unique_ptr<AnswersOfRound>> answers = AskIn(call, part, *held);
  if (answers.status().left_round()) ShowUnderWay(call.options, nullptr);
  return answers;
}

// Asks for a part of a lookup in one round after another, until one has answered.
absl::StatusOr<std::unique_ptr<AnswersOfRound>> AskPart(const ChainCall& call,
                                                        const Portion& part) {
  absl::Status last;  // why the round before was left
  for (;;) {
    RoundStatusOr<std::unique_ptr<AnswersOfRound>> answers = AskOnce(call, part, last);
    if (!answers.status().left_round()) return std::move(answers).AsStatusOr();
    last = answers.status().reason();
    call.environment.Tell(absl::StrCat(last.message(), "; asking in another round"));
  }
}

absl::StatusOr<std::unique_ptr<RowAnswers>> AskOn(const ChainCall& call, const Wanted& wanted) {
  SHOAL_ASSIGN_OR_RETURN(const Division division, Divide(call.deployment, call.options, wanted));
  if (call.options.term && division.rounds() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("a watched list goes into one round, and this one takes ", division.queries,
                     " queries, padding included, where a round protects ", division.in_each,
                     " together; nothing was sent. Watch fewer keys, or --accept-more"));
  }
  if (call.options.announce) call.options.announce(division);
  call.costs.query_seconds = call.costs.answer_seconds = 0;
  Asked asked = AskedOf(call.deployment, wanted.rows);
  std::vector<uint32_t> spread;
  if (division.rounds() > 1) {
    SHOAL_ASSIGN_OR_RETURN(spread, Spread(call, division, asked.rows));
  } else {
    spread = asked.rows;
  }
  const std::vector<Portion> parts = PartsOf(division, wanted.rows, spread);
  // Checks for all rounds at once what Submit checks for each. Parts that were begun before an
  // interruption are charged already, and again if their round is of another table or roster.
  HeldRounds held_rounds(call);
  SHOAL_RETURN_IF_ERROR(held_rounds.DropUnusable());
  uint64_t uncharged = 0;
  for (const Portion& part : parts) {
    if (!held_rounds.FindBegun(part)) uncharged += part.queries;
  }
  if (uncharged > 0) SHOAL_RETURN_IF_ERROR(LimitOf(call).Check(uncharged, division));
  if (parts.size() == 1) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<AnswersOfRound> answers, AskPart(call, parts[0]));
    answers->set_unasked(std::move(asked.unasked));
    return answers;
  }
  auto all =
      std::make_unique<AnswersOfRounds>(call, SpreadDigest(call.deployment, division, asked.rows));
  all->set_unasked(std::move(asked.unasked));
  double answer_seconds = 0;
  for (const Portion& part : parts) {
    call.environment.Tell(
        absl::StrCat("asking in round ", part.number + 1, " of ", part.parts, " of this lookup"));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<AnswersOfRound> answers, AskPart(call, part));
    SHOAL_RETURN_IF_ERROR(all->Add(*answers));
    answer_seconds += call.costs.answer_seconds * part.queries;
  }
  call.costs.query_seconds /= static_cast<double>(parts.size());
  call.costs.answer_seconds = answer_seconds / division.queries;
  return all;
}

}  // namespace

ChainClient::~ChainClient() = default;

ChainClient::ChainClient(const Deployment* deployment, ChainOptions options, Transport* transport,
                         StateStore* store, Environment environment)
    : deployment_(deployment),
      options_(options),
      store_(store),
      environment_(std::move(environment)),
      links_(
          std::make_unique<RoundLinks>(deployment, options_.connections, transport, environment_)) {
  Follow(deployment);
}

void ChainClient::Follow(const Deployment* deployment) {
  deployment_ = deployment;
  links_->Follow(deployment);
  costs_.bytes.query_bytes = deployment->query_bytes();
  costs_.bytes.answer_bytes = deployment->fetched_bytes();
}

absl::StatusOr<std::unique_ptr<ChainClient>> ChainClient::Create(const Deployment* deployment,
                                                                 ChainOptions options,
                                                                 Transport* transport,
                                                                 StateStore* store,
                                                                 Environment environment) {
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad_to must be 1 to ", kMaxPadTo));
  }
  if (options.max_attempts == 0 || options.max_attempts > kMaxAttempts) {
    return absl::InvalidArgumentError(absl::StrCat("max_attempts must be 1 to ", kMaxAttempts));
  }
  if (options.term &&
      (options.term->max_enrolments == 0 || options.term->max_enrolments > State::kMaxEnrolments)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_enrolments must be 1 to ", State::kMaxEnrolments));
  }
  if (options.connections == 0 || options.connections > kMaxClientConnections) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections must be 1 to ", kMaxClientConnections));
  }
  return std::unique_ptr<ChainClient>(
      new ChainClient(deployment, options, transport, store, std::move(environment)));
}

ChainCall ChainClient::NewCall(std::optional<Digest> lookup) {
  return {*deployment_, options_, *store_, environment_, *links_, costs_, lookup};
}

absl::StatusOr<Division> ChainClient::Divide(const Wanted& wanted) const {
  return client::Divide(*deployment_, options_, wanted);
}

Ledger ChainClient::LedgerWith(uint64_t queries, const Division& division) const {
  return PrivacyLimit{*deployment_, options_, store_->state(), environment_.clock->NowSeconds()}
      .LedgerWith(queries, division);
}

absl::Status ChainClient::CheckLimit(uint64_t queries, const Division& division) const {
  return PrivacyLimit{*deployment_, options_, store_->state(), environment_.clock->NowSeconds()}
      .Check(queries, division);
}

absl::StatusOr<Digest> ChainClient::Obtain(uint32_t queries) {
  const ChainCall call = NewCall();
  return RoundFinder(call).Obtain(queries).AsStatusOr();
}

absl::StatusOr<Digest> ChainClient::ObtainAhead(uint32_t slots) {
  if (slots == 0) return absl::InvalidArgumentError("no slots asked for");
  const uint32_t phi = deployment_->roster().noise().phi;
  if (phi > 1 && slots > phi && options_.beyond_phi != BeyondPhi::kAcceptMore) {
    return absl::FailedPreconditionError(
        absl::StrCat(slots, " slots in one round, and a round of this deployment protects only ",
                     phi, " queries of a device together; nothing was sent. Take ", phi,
                     " slots at most, or --accept-more"));
  }
  const ChainCall call = NewCall();
  for (uint32_t tries = 1;; ++tries) {
    SHOAL_RETURN_IF_ERROR(CheckLimit(0, {.queries = slots, .in_each = slots}));
    const RoundStatusOr<Digest> round_id = RoundFinder(call).ObtainAhead(slots);
    if (round_id.ok()) return *round_id;
    const absl::Status& why = round_id.status().reason();
    if (!round_id.status().left_round() || tries == kMaxLostRounds) {
      return MarkAsPerhapsOfNewRoster(why);
    }
    environment_.Tell(absl::StrCat(why.message(), "; taking another round"));
  }
}

absl::Status ChainClient::Submit(const Digest& round_id, std::span<const uint32_t> rows) {
  std::vector<uint32_t> rising(rows.begin(), rows.end());
  std::ranges::sort(rising);
  const ChainCall call = NewCall();
  return SubmitPart(call, round_id,
                    {.rows = rising,
                     .queries = Padded(*deployment_, options_,
                                       {.rows = rising, .distinct_keys = rising.size()}),
                     .lookup = rising})
      .reason();
}

absl::StatusOr<std::unique_ptr<AnswerSpool>> ChainClient::OpenSpool(const HeldRound& held) {
  return client::OpenSpool(*store_, options_, held);
}

absl::Status ChainClient::Collect(const Digest& round_id, AnswerSpool& spool) {
  const ChainCall call = NewCall();
  return client::Collect(call, round_id, spool).reason();
}

absl::StatusOr<std::unique_ptr<RowAnswers>> ChainClient::Ask(const Wanted& wanted) {
  ShowUnderWay(options_, nullptr);
  const ChainCall call = NewCall(wanted.lookup);
  absl::StatusOr<std::unique_ptr<RowAnswers>> answers = AskOn(call, wanted);
  links_->WaitUntil(0, "");
  if (!answers.ok()) return MarkAsPerhapsOfNewRoster(answers.status());
  return answers;
}

void ChainClient::HangUp() { links_->HangUp(); }

Traffic ChainClient::traffic() const { return links_->traffic(); }

}  // namespace shoal::client
