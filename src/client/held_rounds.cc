#include "src/client/held_rounds.h"

#include "src/base/status_macros.h"
#include "src/client/limits.h"

namespace shoal::client {

absl::StatusOr<round::Round> VerifyRound(const ChainCall& call, const wire::SignedHeader& header) {
  return round::Round::Verify(header, call.deployment.roster(), call.deployment.table_facts(),
                              call.NowSeconds());
}

void ShowUnderWay(const ChainOptions& options, const HeldRound* held) {
  if (!options.under_way) return;
  if (held == nullptr) return options.under_way(std::nullopt);
  const bool charged = !held->rows.empty();
  const wire::RoundHeader& header = held->header.header();
  options.under_way(UnderWay{.round_counter = held->counter(),
                             .charged = charged,
                             .until_s = charged ? header.expires_s() : header.queries_close_s()});
}

absl::StatusOr<HeldRound*> HeldRounds::Find(const Digest& round_id) {
  HeldRound* const held = call_.store.state().FindRound(round_id);
  if (held == nullptr || held->over) {
    return absl::NotFoundError("this client holds no slots in that round");
  }
  return held;
}

std::optional<Digest> HeldRounds::FindBegun(const Portion& part) const {
  for (const HeldRound& held : call_.store.state().rounds) {
    if (!held.rows.empty() &&
        held.wanted == WantedDigest(held, part, call_.options.term.has_value())) {
      return held.id;
    }
  }
  return std::nullopt;
}

absl::Status HeldRounds::DropUnusable() {
  for (HeldRound& held : call_.store.state().rounds) {
    // The round is of another table or roster, or has expired: its slots are lost.
    if (!held.over && !VerifyRound(call_, held.header).ok()) SHOAL_RETURN_IF_ERROR(GiveUp(held));
  }
  return absl::OkStatus();
}

absl::Status HeldRounds::GiveUp(HeldRound& held) {
  call_.store.state().End(held);
  return call_.store.Save();
}

absl::Status HeldRounds::Lose(HeldRound& held) {
  Attempts(call_).CountLost();
  return GiveUp(held);
}

RoundStatus HeldRounds::Leave(HeldRound& held, absl::string_view why) {
  SHOAL_RETURN_IF_ERROR(held.rows.empty() ? Lose(held) : GiveUp(held));
  return RoundStatus::Left(absl::StrCat(RoundName(held), " ", why));
}

RoundStatusOr<round::Round> HeldRounds::Verify(HeldRound& held) {
  absl::StatusOr<round::Round> round = VerifyRound(call_, held.header);
  // It was valid when it was entered: it has expired since then.
  if (!round.ok()) return Leave(held, absl::StrCat("is over: ", round.status().message()));
  return *std::move(round);
}

RoundStatus HeldRounds::AfterFailure(HeldRound& held, const absl::Status& failed) {
  // Whoever cancels a lookup may go on with it later, as after a crash.
  if (absl::IsUnavailable(failed) || absl::IsCancelled(failed)) return failed;
  if (absl::IsFailedPrecondition(failed) || absl::IsNotFound(failed)) {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundState state, StateOf(held));
    if (state == wire::ABORTED) return Leave(held, "was aborted");
    if (state == wire::CLOSED) return Leave(held, "was closed before its answers were fetched");
    if (state == wire::ANSWERED) return Leave(held, "was answered without all of the queries");
  }
  SHOAL_RETURN_IF_ERROR(GiveUp(held));
  return failed;
}

RoundStatus HeldRounds::AfterSilence(HeldRound& held, const absl::Status& silence, bool obtains) {
  constexpr uint32_t kPauseMs = 5000;
  const wire::RoundHeader& header = held.header.header();
  // The last state in which the round is worth waiting for, and until when it can be in it.
  wire::RoundState last = wire::ANSWERED;
  uint64_t until_s = header.expires_s();
  if (obtains) {
    last = wire::OPEN_FOR_ONIONS;
    until_s = header.onions_close_s();
  } else if (held.rows.empty()) {
    last = wire::OPEN_FOR_QUERIES;
    until_s = header.queries_close_s();
  }
  const uint32_t others = call_.links.machines() - 1;
  const uint32_t other =
      others == 0 ? 0 : static_cast<uint32_t>(1 + call_.environment.random->Below(others));
  SHOAL_ASSIGN_OR_RETURN(Exchange* const exchange, call_.links.ExchangeOf(held, other));
  const absl::StatusOr<wire::RoundState> state = exchange->StateOf(held.id);
  absl::string_view why;
  if (state.ok() && *state == wire::ABORTED) {
    why = "was aborted";
  } else if (state.ok() && *state == wire::CLOSED) {
    why = "is over";
  } else if ((state.ok() && *state > last) || call_.NowSeconds() >= until_s) {
    why = "is given up, as its machine does not answer";
  }
  if (!why.empty()) return Leave(held, why);
  if (!call_.options.waits) return silence;
  call_.environment.Tell(absl::StrCat("the machine that has this client's slots in ",
                                      RoundName(held), " does not answer"));
  call_.environment.sleep(kPauseMs);
  return absl::OkStatus();
}

RoundStatus HeldRounds::AtMachine(HeldRound& held, const std::function<absl::Status()>& call,
                                  bool obtains) {
  for (;;) {
    absl::Status result = call();
    if (!held.machine || !absl::IsUnavailable(result)) return result;
    RoundStatus after = AfterSilence(held, result, obtains);
    if (!after.ok()) return after;
  }
}

RoundStatusOr<wire::RoundState> HeldRounds::AskState(HeldRound& held, const StateCall& ask) {
  SHOAL_ASSIGN_OR_RETURN(Exchange* const exchange, call_.links.ExchangeOf(held));
  wire::RoundState state = {};
  const RoundStatus asked = AtMachine(held, [&]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(state, ask(*exchange));
    return absl::OkStatus();
  });
  if (!asked.ok()) return asked;
  return state;
}

RoundStatusOr<wire::RoundState> HeldRounds::StateOf(HeldRound& held) {
  return AskState(held, [&](Exchange& exchange) { return exchange.StateOf(held.id); });
}

RoundStatusOr<wire::RoundState> HeldRounds::WaitFor(HeldRound& held, wire::RoundState state,
                                                    uint64_t deadline_s) {
  return AskState(held,
                  [&](Exchange& exchange) { return exchange.WaitFor(held.id, state, deadline_s); });
}

void HeldRounds::BePatient(const HeldRound& held) {
  if (!call_.options.waits) return;
  call_.links.WaitUntil(held.header.header().expires_s(), absl::StrCat(RoundName(held), " ends"));
}

}  // namespace shoal::client
