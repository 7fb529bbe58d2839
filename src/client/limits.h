// What bounds a device: how often it may send a lookup, how many rounds it may lose, how often it
// may enrol in terms, and what its ledger may come to. All is counted in the state, and so holds
// over all runs.
#ifndef SHOAL_SRC_CLIENT_LIMITS_H_
#define SHOAL_SRC_CLIENT_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "src/client/chain_call.h"
#include "src/client/ledger.h"
#include "src/client/state.h"

namespace shoal::client {

// Thread-compatible. Changes the state; who calls saves it.
class Attempts {
 public:
  explicit Attempts(const ChainCall& call) : call_(call) {}

  // ABORTED, which names `last`, if the lookup has no attempts left; FAILED_PRECONDITION of
  // CheckEnrolments. Learns the signed time anew, and saves the state, before either is final.
  absl::Status Check(const absl::Status& last);
  // FAILED_PRECONDITION if as many enrolments last as there may be.
  absl::Status CheckEnrolments() const;

  // The lookup is sent in `held`, for the first time there. Charges the ledger too.
  void CountSubmission(const HeldRound& held);
  // A round was lost before anything was sent in it.
  void CountLost();

  // What a lookup's day is counted from. The signed time alone may be old: perhaps no header was
  // verified since the last lookup. A device's clock that is ahead makes the day longer.
  uint64_t Time() const;

 private:
  absl::Status CheckLookup(const absl::Status& last) const;
  // Takes the signed time from the rounds that are listed.
  absl::Status LearnTime();
  // When a term that this round begins may last until: what its enrolment is remembered for.
  uint64_t EnrolmentLasts(const wire::RoundHeader& header) const;
  // The lookup's entry in the state, which the next save stores; null outside of Ask.
  TriedLookup* Tried();

  const ChainCall& call_;
};

// Whether slots that are held in the round may take queries of a client that has waited for a round
// since `begun_s`: the rule of TermSuits, for slots that were taken earlier.
bool Suits(const ChainOptions& options, const HeldRound& held, uint64_t begun_s, uint64_t now_s);

// Reads the state as it is at `now_s`.
struct PrivacyLimit {
  const Deployment& deployment;
  const ChainOptions& options;
  const State& state;
  uint64_t now_s;

  // ChainClient::LedgerWith and CheckLimit.
  Ledger LedgerWith(uint64_t queries, const Division& division) const;
  absl::Status Check(uint64_t queries, const Division& division) const;
};
inline PrivacyLimit LimitOf(const ChainCall& call) {
  return {call.deployment, call.options, call.store.state(), call.NowSeconds()};
}

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_LIMITS_H_
