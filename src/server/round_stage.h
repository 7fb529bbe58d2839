// The stages of a round, at a party and at the frontend. Only this file says which stage may follow
// which.
#ifndef SHOAL_SRC_SERVER_ROUND_STAGE_H_
#define SHOAL_SRC_SERVER_ROUND_STAGE_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/wire/client.pb.h"

namespace shoal::server {

// A round at one party. Every stage but kEnded may be followed by kEnded.
//
//   kDrafted -> kSigned -> kPrepared -> kOffline -> kReady -> kQueried -> kAnswered
//
// A repeated input leads to the same stage as before: kReady may follow itself, until queries are
// taken, and each of kQueried and kAnswered may be followed by itself or the other. What a party
// holds of a round changes with every stage except from kQueried to kAnswered.
enum class PartyStage : uint8_t {
  kDrafted,   // the onion key is sent on
  kSigned,    // this party has signed the header with all onion keys
  kPrepared,  // the noise is made
  kOffline,   // the offline list is committed to, the keys that opened it are erased
  kReady,     // the offline stage is done: queries may come
  kQueried,   // the queries are committed to and, but at the backend, sent on; the noise is erased
  kAnswered,  // the answers can be handed out
  kEnded,     // nothing is left
};

// A round at the frontend. kClosed and kAborted may follow every stage but these two.
//
//   kTakingOnions -> kOffline -> kTakingQueries -> kOnline -> kCollecting -> kAnswered
//                                                   kCollecting <-> kBrokenOff
//                                                              -> kClosed, kAborted
//
// From kOffline to kTakingQueries, and from kOnline to kAnswered, the driver works on the round.
enum class FrontendStage : uint8_t {
  kTakingOnions,   // clients submit onions
  kOffline,        // the chain's offline stage runs
  kTakingQueries,  // clients submit queries
  kOnline,         // the chain's online stage runs
  kCollecting,     // the answers are coming in
  kBrokenOff,      // the answers broke off, and may come again
  kAnswered,       // clients fetch their answers
  kClosed,         // ended in good order
  kAborted,        // ended for everybody, with a reason
};

// The stage as error messages name it: "drafted", "taking queries".
absl::string_view Name(PartyStage stage);
absl::string_view Name(FrontendStage stage);

// The stages that may come next.
std::span<const PartyStage> After(PartyStage stage);
std::span<const FrontendStage> After(FrontendStage stage);

// The state that clients see.
wire::RoundState Shown(FrontendStage stage);
// Whether the driver works on the round, so that nothing else is due.
bool IsWorkedOn(FrontendStage stage);
bool IsFinal(FrontendStage stage);

// The stage of one round. Thread-compatible.
template <typename Stage>
class RoundStage {
 public:
  explicit RoundStage(Stage first) : stage_(first) {}
  Stage get() const { return stage_; }

  // FAILED_PRECONDITION, naming both stages, unless `to` is one of After(get()).
  absl::Status Check(Stage to) const;
  // Changes the stage if Check is OK.
  absl::Status Advance(Stage to);

 private:
  Stage stage_;
};

extern template class RoundStage<PartyStage>;
extern template class RoundStage<FrontendStage>;

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ROUND_STAGE_H_
