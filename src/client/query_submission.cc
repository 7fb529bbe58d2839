#include "src/client/query_submission.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/device.h"
#include "src/client/exchange.h"
#include "src/client/limits.h"
#include "src/parallel/mutex.h"

namespace shoal::client {
namespace {

// False if the round takes no more queries, and some were sent: whether they arrived is found out
// with their answers.
RoundStatusOr<bool> WaitUntilOpen(const ChainCall& call, HeldRound& held,
                                  const round::Round& round) {
  HeldRounds held_rounds(call);
  held_rounds.BePatient(held);
  ShowUnderWay(call.options, &held);
  call.environment.Wait(absl::StrCat("waiting for ", RoundName(held), " to take queries"),
                        round.header().onions_close_s());
  const RoundStatusOr<wire::RoundState> state = held_rounds.WaitFor(
      held, wire::OPEN_FOR_QUERIES,
      round.header().queries_close_s() + call.deployment.roster().clock_tolerance_s());
  // As long as nothing was sent, only the slots are lost.
  if (absl::IsDeadlineExceeded(state.status().reason())) {
    return held_rounds.Leave(held, "took no queries in its time");
  }
  if (!state.ok()) return state.status();
  const bool begun = !held.rows.empty();
  if (*state == wire::ABORTED) {
    return held_rounds.Leave(
        held, begun ? "was aborted" : "was aborted before this client sent its queries");
  }
  if (*state == wire::OPEN_FOR_QUERIES) return true;
  if (begun) return false;
  return held_rounds.Leave(held, "closed before this client could send its queries");
}

// Fixes the rows of the slots for ever, and charges them.
absl::Status ChargeQueries(const ChainCall& call, HeldRound& held, const Portion& part) {
  const uint32_t count = part.queries;
  if (count > held.slots()) {
    return absl::FailedPreconditionError(
        absl::StrCat(count, " queries, but only ", held.slots(), " slots in ", RoundName(held)));
  }
  SHOAL_RETURN_IF_ERROR(LimitOf(call).Check(count, {.queries = count, .in_each = count}));
  Attempts attempts(call);
  SHOAL_RETURN_IF_ERROR(attempts.CheckEnrolments());
  const bool wants_term = call.options.term.has_value();
  if (wants_term && held.header.header().max_refreshes() == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(RoundName(held), " has no term, and a watched list asks in one that has"));
  }
  held.rows = QueriesOf(call.deployment, part, *call.environment.random);
  held.wanted = WantedDigest(held, part, wants_term);
  attempts.CountSubmission(held);
  // Saves the rows, the charge and the attempt first. From here on these slots carry these rows
  // for ever.
  if (absl::Status saved = call.store.Save(); !saved.ok()) {
    held.End();  // what is on disk is unknown, so the slots must not be used
    return saved;
  }
  return absl::OkStatus();
}

RoundStatus Send(const ChainCall& call, HeldRound& held, const round::Round& round) {
  const size_t total = held.rows.size();
  call.environment.Tell(absl::StrCat("sending ", total, " queries"));
  struct {
    Mutex mutex;
    size_t done ABSL_GUARDED_BY(mutex) = 0;
  } queries;
  const auto send = [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
    const Stopwatch making;
    const wire::SubmitQueriesRequest request =
        MakeQueries(round, held.Onions(first, count), std::span(held.rows).subspan(first, count),
                    call.environment.pool);
    const double seconds = making.Seconds();
    SHOAL_RETURN_IF_ERROR(exchange.SubmitQueries(request));
    const MutexLock lock(queries.mutex);
    call.costs.query_seconds += seconds / static_cast<double>(total);
    call.environment.Count("sending queries", queries.done += count, total);
    return absl::OkStatus();
  };
  HeldRounds held_rounds(call);
  const RoundStatus sent = held_rounds.AtMachine(held, [&] {
    {
      const MutexLock lock(queries.mutex);
      queries.done = 0;
    }
    return call.links.ForPieces(held, total, QueriesPerPiece(round, call.options.piece_bytes),
                                send);
  });
  if (sent.ok() || sent.left_round()) return sent;
  if (absl::IsFailedPrecondition(sent.reason())) {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundState now, held_rounds.StateOf(held));
    // The window closed. The queries can be in all the same, if only the response was lost: who
    // collects finds out.
    if (now == wire::ANSWERING || now == wire::ANSWERED) return absl::OkStatus();
  }
  return held_rounds.AfterFailure(held, sent.reason()).Annotated("sending queries");
}

}  // namespace

RoundStatus SubmitPart(const ChainCall& call, const Digest& round_id, const Portion& part) {
  HeldRounds held_rounds(call);
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, held_rounds.Find(round_id));
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, held_rounds.Verify(*held));
  SHOAL_ASSIGN_OR_RETURN(const bool open, WaitUntilOpen(call, *held, round));
  if (!open) return absl::OkStatus();
  if (held->rows.empty()) {
    SHOAL_RETURN_IF_ERROR(ChargeQueries(call, *held, part));
    ShowUnderWay(call.options, held);
  } else {
    std::vector<uint32_t> asked = held->rows;
    std::ranges::sort(asked);
    if (!std::ranges::includes(asked, part.rows)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the slots in ", RoundName(*held), " carry other rows"));
    }
  }
  return Send(call, *held, round);
}

}  // namespace shoal::client
