// The rounds in which a client holds slots: whether each can still be used, and leaving it when it
// cannot.
#ifndef SHOAL_SRC_CLIENT_HELD_ROUNDS_H_
#define SHOAL_SRC_CLIENT_HELD_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/client/chain_call.h"
#include "src/client/division.h"
#include "src/client/exchange.h"
#include "src/client/round_status.h"
#include "src/client/state.h"
#include "src/round/header.h"

namespace shoal::client {

inline std::string RoundName(const HeldRound& held) {
  return absl::StrCat("round ", held.counter());
}

absl::StatusOr<round::Round> VerifyRound(const ChainCall& call, const wire::SignedHeader& header);

// Tells ChainOptions::under_way about the round; null: nothing is under way.
void ShowUnderWay(const ChainOptions& options, const HeldRound* held);

// Thread-compatible. Errors are those of saving the state, and of the call if there is one.
class HeldRounds {
 public:
  explicit HeldRounds(const ChainCall& call) : call_(call) {}

  // NOT_FOUND if there is none, or it is over.
  absl::StatusOr<HeldRound*> Find(const Digest& round_id);
  // A round in which queries for exactly this part are charged.
  std::optional<Digest> FindBegun(const Portion& part) const;
  // Gives up the rounds of another table or roster, and those that have expired.
  absl::Status DropUnusable();

  // Leaves a round that is over, and counts it as lost if nothing was sent in it. `why` is the end
  // of a sentence whose subject is the round.
  RoundStatus Leave(HeldRound& held, absl::string_view why);
  // Leaves a round whose slots can no longer be used, without a word.
  absl::Status Lose(HeldRound& held);

  // The round, verified; leaves it if it has expired.
  RoundStatusOr<round::Round> Verify(HeldRound& held);
  // Makes a call of the round, again while its machine does not answer and the round lives.
  // `obtains`: the call sends onions.
  RoundStatus AtMachine(HeldRound& held, const std::function<absl::Status()>& call,
                        bool obtains = false);
  RoundStatusOr<wire::RoundState> StateOf(HeldRound& held);
  RoundStatusOr<wire::RoundState> WaitFor(HeldRound& held, wire::RoundState state,
                                          uint64_t deadline_s);
  // What to return after a request to the round has failed: leaves the round if it is over. Gives
  // the round up, unless the same bytes can still be sent later.
  RoundStatus AfterFailure(HeldRound& held, const absl::Status& failed);

  // Waits from now on until the round expires, while the frontend does not answer.
  void BePatient(const HeldRound& held);

 private:
  using StateCall = std::function<absl::StatusOr<wire::RoundState>(Exchange&)>;
  RoundStatusOr<wire::RoundState> AskState(HeldRound& held, const StateCall& ask);
  absl::Status GiveUp(HeldRound& held);
  // What to do when the machine of a round did not answer, with `silence`: OK once it may be asked
  // again, `silence` if the client does not wait.
  RoundStatus AfterSilence(HeldRound& held, const absl::Status& silence, bool obtains);

  const ChainCall& call_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_HELD_ROUNDS_H_
