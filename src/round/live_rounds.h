// Live lists: the frontend's word on which of its rounds live (docs/protocol.md, "Rounds that
// end").
//
// A list speaks of all counters up to its highest one, and of no other: those that it names live,
// the rest have ended. A counter is given out once, and a round that has ended does not come back.
// So a list never becomes wrong: taken late, twice or in another order it ends nothing that lives.
// Counters are enough to name rounds, as an honest party signs one header for a counter.
#ifndef SHOAL_SRC_ROUND_LIVE_ROUNDS_H_
#define SHOAL_SRC_ROUND_LIVE_ROUNDS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/roster/roster.h"
#include "src/signature/bls.h"
#include "src/wire/round.pb.h"

namespace shoal::round {

// The most rounds, drafts and terms in a list. A frontend runs at most half as many.
inline constexpr int kMaxLiveRounds = 512;

// Transcript("shoal live rounds v1") over: roster digest, made_s, highest_counter, number of rounds
// and each, number of drafts and each; if there are terms, their number and each. The list need not
// have been checked.
Digest LiveRoundsDigest(const wire::LiveRounds& list);

// `key` is party 1's.
wire::SignedLiveRounds SignLiveRounds(wire::LiveRounds list, const signature::SecretKey& key);

// INVALID_ARGUMENT: made for another roster; too long; counters that do not rise strictly, are
// above the highest one, or are named in two of its three parts. UNAUTHENTICATED: not signed by
// party 1, or not made at `now_s`, give or take the roster's tolerance. Costs about 1 ms.
absl::Status CheckLiveRounds(const wire::SignedLiveRounds& live, const roster::Roster& roster,
                             uint64_t now_s);

}  // namespace shoal::round

#endif  // SHOAL_SRC_ROUND_LIVE_ROUNDS_H_
