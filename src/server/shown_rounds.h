// What clients are shown of the frontend's rounds, apart from what it keeps of them (frontend.h).
//
// A round's stage (round_stage.h) is where this machine is with it; its state (wire::RoundState) is
// what clients are shown. Where party 1 has one machine, clients are shown the state of the stage.
// Where it has several, the head decides the next state, tells it, and all show it from a moment
// on.
#ifndef SHOAL_SRC_SERVER_SHOWN_ROUNDS_H_
#define SHOAL_SRC_SERVER_SHOWN_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/base/bytes.h"
#include "src/roster/roster.h"
#include "src/server/round_stage.h"
#include "src/wire/client.pb.h"

namespace shoal::server {

// What all machines show clients of a round.
struct Told {
  Digest round_id;
  // Has the header if the round is one of an earlier process, and not otherwise.
  wire::RoundReport report;
};
// Bytes of an encoded report. One with more, which no honest parties have, is told without the
// costs of its stages. Longer reasons of aborted rounds are cut where party 1 has several machines.
inline constexpr size_t kMostToldReportBytes = 2560;
inline constexpr size_t kMostToldReasonBytes = 256;

// Whether there is room for a report of so many bytes among those that are told now.
using FitsTold = std::function<bool(size_t bytes)>;

// At most `most` bytes of a text, and no half character.
std::string Cut(std::string text, size_t most);

// What clients are shown of one round. Moments are on this machine's steady clock.
// Thread-compatible.
class ShownRound {
 public:
  // `alone`: party 1 has one machine.
  explicit ShownRound(bool alone)
      : alone_(alone), next_(alone ? wire::OPEN_FOR_ONIONS : wire::ROUND_STATE_UNSPECIFIED) {}

  // The state that clients are to be shown. Where there are several machines, the head's alone, and
  // unspecified until they are to hear of the round.
  wire::RoundState next() const { return next_; }
  void Decide(wire::RoundState state) { next_ = state; }
  // The frontend has come to this stage.
  void CameTo(FrontendStage stage);

  // --- at the head of several machines

  // Whether the next state was not told yet, and in which call of Tell anything was told last.
  bool has_new_state() const { return next_ != told_state_; }
  uint64_t last_tell() const { return last_tell_; }
  // True if this report is to be told now, which is then remembered; drops costs that are too long.
  bool Tell(wire::RoundReport& report, uint64_t tell, const FitsTold& fits);

  // --- at all of several machines

  // What the head has told, to be shown from `from_ms` on. True if its state is a new one.
  bool Take(wire::RoundReport report, uint64_t from_ms, uint64_t now_ms);
  // What the head has told that holds now; null if nothing.
  const wire::RoundReport* ToldAt(uint64_t now_ms) const;

  // The state that clients are shown. Unspecified if they have not heard of the round.
  wire::RoundState StateAt(uint64_t now_ms) const;

 private:
  const bool alone_;
  wire::RoundState next_;
  // What Tell has told last, and in which of its calls.
  std::string last_told_;
  wire::RoundState told_state_ = wire::ROUND_STATE_UNSPECIFIED;
  uint64_t last_tell_ = 0;
  // What the head has told, each from a moment on; both rise.
  struct From {
    uint64_t from_ms;
    wire::RoundReport report;
  };
  std::deque<From> told_;
};

// The rounds of an earlier process, which clients are shown as ABORTED. What was shown of one stays
// as it is. Thread-compatible.
class EarlierRounds {
 public:
  explicit EarlierRounds(bool alone) : alone_(alone) {}

  // Takes the rounds that an earlier process did not close, from what the journal has kept. Nothing
  // depends on them but what clients are told, so that a damaged list counts as none.
  void Load(BytesView kept, const roster::Roster& roster, uint64_t now_s);

  // Null if no such round is shown.
  const wire::RoundInfo* Find(const Digest& round_id, uint64_t now_ms) const;
  // All that are shown now, by counter.
  std::vector<wire::RoundInfo> ShownAt(uint64_t now_ms) const;
  // All, shown or not.
  std::vector<wire::RoundInfo> All() const;

  // At one of several machines: from `from_ms` on, it knows all of them, so that another round is
  // none.
  void AllAreKnownFrom(uint64_t from_ms);
  bool AllAreKnown(uint64_t now_ms) const { return alone_ || now_ms >= known_from_ms_; }
  // At the head: those that were not told yet, as long as they fit; whether there are none left.
  void Tell(const FitsTold& fits, std::vector<Told>& out);
  bool AllAreTold() const;
  // At all: what the head has told, if it has a header.
  void Take(const Told& told, uint64_t from_ms);

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};  // of a moment
  struct Earlier {
    wire::RoundInfo info;
    uint64_t from_ms;   // from when on clients are shown it
    bool told = false;  // at the head of several machines
  };
  const bool alone_;
  std::map<Digest, Earlier> rounds_;
  uint64_t known_from_ms_ = kNever;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_SHOWN_ROUNDS_H_
