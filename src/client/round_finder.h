// Finds a round for a lookup, and obtains slots in it.
#ifndef SHOAL_SRC_CLIENT_ROUND_FINDER_H_
#define SHOAL_SRC_CLIENT_ROUND_FINDER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/client/chain_call.h"
#include "src/client/held_rounds.h"
#include "src/client/round_status.h"
#include "src/client/state.h"
#include "src/round/header.h"

namespace shoal::client {

// Thread-compatible. Calls block.
class RoundFinder {
 public:
  explicit RoundFinder(const ChainCall& call) : call_(call), held_rounds_(call) {}

  // ChainClient::Obtain: a round with so many slots that carry no rows, whoever took them and when.
  RoundStatusOr<Digest> Obtain(uint32_t slots);
  // The same in a round that this client is not in yet.
  RoundStatusOr<Digest> ObtainAhead(uint32_t slots);

 private:
  struct Search;
  struct Candidates;
  RoundStatusOr<Digest> ObtainNew(uint32_t slots, bool only_new_rounds);
  // The listed rounds that may do, by counter.
  Candidates CandidatesOf(const Search& search, const wire::ListRoundsResponse& list,
                          uint64_t now_s);
  // A round among them in which the client now has its slots; none if all have refused.
  RoundStatusOr<std::optional<Digest>> TryAll(Search& search, const Candidates& candidates);
  // True when the client holds its slots in the round; false if the round takes no more, which
  // `search` then knows.
  RoundStatusOr<bool> TryObtain(Search& search, const wire::RoundInfo& info);
  // DEADLINE_EXCEEDED: no round took the onions in time.
  absl::Status CheckTime(const Search& search, const Candidates& candidates, uint64_t now_s) const;
  void Pause(Search& search, const Candidates& candidates, uint64_t now_s) const;

  // Stores a master seed, if the round is new, and how the onions up to number `slots` are cut.
  absl::StatusOr<HeldRound*> PrepareOnions(const round::Round& round,
                                           const wire::SignedHeader& header, uint32_t slots);
  // Sends the onions that have no slot yet; false as TryObtain.
  RoundStatusOr<bool> SendOnions(Search& search, const round::Round& round, HeldRound& held);
  // NewEpochError if the frontend serves a newer epoch of the table or the roster.
  absl::Status CheckEpoch() const;
  // A round with as many slots that suit and carry no rows yet.
  RoundStatusOr<std::optional<Digest>> FindUnused(uint32_t queries, uint64_t begun_s);
  void BePatient(const Search& search) const;

  const ChainCall& call_;
  HeldRounds held_rounds_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROUND_FINDER_H_
