// Where a round stands: at a party, and at the frontend, which has the clients' side of it. The
// only place that says which stage may follow which.
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
// Noise need not be made ahead of time: kOffline may follow kSigned. The same input again leads to
// the stage that it led to before: kOffline, which an error has interrupted, is followed by itself,
// and of the last three stages each by itself and by those of them before it. What a party holds of
// a round changes with its stage, except from kQueried to kAnswered.
enum class PartyStage : uint8_t {
  kDrafted,   // its seed is stored, its onion key sent on
  kSigned,    // this party has signed the header that all onion keys are in
  kPrepared,  // its noise is made
  kOffline,   // the offline stage has begun, and used the noise up
  kReady,     // the offline stage is done: queries may come
  kQueried,   // the queries are committed to, and sent on except by the backend
  kAnswered,  // answers are there to be handed out
  kEnded,     // nothing is left
};

// A round at the frontend. Every stage but the last two may be followed by these.
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
  kCollecting,     // its answers are coming in
  kBrokenOff,      // they have broken off, and may come again
  kAnswered,       // clients fetch their answers
  kClosed,         // ended in good order
  kAborted,        // ended for everybody, with a reason
};

// In the words of errors: "drafted", "taking queries".
absl::string_view Name(PartyStage stage);
absl::string_view Name(FrontendStage stage);

// The stages that may come next.
std::span<const PartyStage> After(PartyStage stage);
std::span<const FrontendStage> After(FrontendStage stage);

// What clients see.
wire::RoundState Shown(FrontendStage stage);
// The driver works on the round: nothing else is due.
bool IsWorkedOn(FrontendStage stage);
bool IsFinal(FrontendStage stage);

// The stage of one round. Thread-compatible.
template <typename Stage>
class RoundStage {
 public:
  explicit RoundStage(Stage first) : stage_(first) {}
  Stage get() const { return stage_; }

  // FAILED_PRECONDITION, naming both, unless `to` is one of After(get()).
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
