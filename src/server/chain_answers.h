// What the next party answers for itself and for all parties after it: what a round has cost, which
// rounds of a list they lack, and their parts of a refresh. A malicious party makes up what it
// likes.
#ifndef SHOAL_SRC_SERVER_CHAIN_ANSWERS_H_
#define SHOAL_SRC_SERVER_CHAIN_ANSWERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/tagged.h"
#include "src/round/refresh.h"
#include "src/signature/bls.h"
#include "src/wire/client.pb.h"
#include "src/wire/peer.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::server {

// The party that got an answer, in a chain of `parties`.
struct Asker {
  PartyNumber number;
  uint32_t parties;
};

using StageReports = std::vector<wire::StageReport>;

// A round that the frontend runs and a party does not have.
struct LackedRound {
  PartyNumber party;
  RoundCounter counter;
};
using LackedRounds = std::vector<LackedRound>;

// What a party says of a list of live rounds, for itself and for those after it that the list has
// reached. A party that it has not reached may hold all of the rounds, or none.
struct ListAnswer {
  LackedRounds lacked;
  // The last party that has taken the list.
  uint32_t reached = 0;
};

// As they came; not checked.
StageReports StageReportsOf(const wire::RoundReportsResponse& response);
ListAnswer ListAnswerOf(const wire::LiveRoundsResponse& response);

// What a party answers in a refresh. INVALID_ARGUMENT: not a signature; not whole tags, or more
// than a roster has parties.
absl::StatusOr<signature::Signature> SumOf(const wire::ProposeRefreshResponse& response);
absl::StatusOr<std::vector<round::RefreshTag>> TagsOf(const wire::RefreshResponse& response);

// Drops fields that this version does not know. As the frontend keeps reports and shows them to
// everybody, INVALID_ARGUMENT unless there is at most one report for each stage, and half, of the
// parties after `own`, with times that are some.
absl::StatusOr<StageReports> CheckReports(const Asker& own, StageReports reports);

// INVALID_ARGUMENT unless the list has reached a party after `own`, and each lack is of a round of
// the list, at one of those that it has reached, and comes once.
absl::StatusOr<ListAnswer> CheckListAnswer(const Asker& own, const wire::LiveRounds& list,
                                           ListAnswer answer);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_CHAIN_ANSWERS_H_
