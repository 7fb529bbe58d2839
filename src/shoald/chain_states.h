// What the parties say of themselves, for people and for monitoring: is each of them there, with
// which version, epochs and clock, and until when are its things valid?
//
//   party 1 --- PartyStates ---> 2 --- PartyStates ---> ... ---> party m      every five seconds
//   party 1 <-- states 2..m ---- 2 <-- states 3..m ---- ... <--- party m
//
// A party that does not answer does not hide those before it: the party before it says so in its
// place. Nobody signs any of this, and nothing else depends on it.
#ifndef SHOAL_SRC_SHOALD_CHAIN_STATES_H_
#define SHOAL_SRC_SHOALD_CHAIN_STATES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"
#include "src/wire/client.pb.h"
#include "src/wire/peer.pb.h"

namespace shoal::shoald {

using PartyStates = std::vector<wire::PartyState>;

// One party's part in this. Thread-safe.
class ChainStates {
 public:
  struct Options {
    uint32_t party;
    uint32_t parties;
    // What this party says of itself, with clock_offset_s 0.
    std::function<wire::PartyState()> self;
    // Asks the next party (PeerLink::States); null at the backend.
    std::function<absl::StatusOr<wire::PartyStatesResponse>(const wire::PartyStatesRequest&)> next;
    const Clock* clock;
  };
  explicit ChainStates(Options options) : options_(std::move(options)) {}

  // Asks all later parties. Returns as many states as there are parties from this one on; offsets
  // are from this party's clock. What an honest party would not say counts as no answer.
  PartyStates Ask() ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for the party before this one.
  wire::PartyStatesResponse Answer(const wire::PartyStatesRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // The clocks of the two neighbours less this party's, when they were last heard of.
  std::optional<int64_t> previous_offset_s() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::optional<int64_t> next_offset_s() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // INVALID_ARGUMENT unless it is one state of every later party, with text that can be shown.
  absl::Status Check(const wire::PartyStatesResponse& response) const;
  int64_t OffsetOf(uint64_t clock_s) const;

  const Options options_;
  mutable Mutex mutex_;
  std::optional<int64_t> previous_offset_s_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> next_offset_s_ ABSL_GUARDED_BY(mutex_);
};

// The frontend's view of the chain: asks every five seconds, and logs when a party is missing or
// answers again. Thread-safe.
class ChainWatch {
 public:
  // `states` and `clock` must outlive the watch.
  ChainWatch(ChainStates* states, const Clock* clock);
  // Waits for a question that is under way.
  ~ChainWatch();
  ChainWatch(const ChainWatch&) = delete;
  ChainWatch& operator=(const ChainWatch&) = delete;

  // What was heard last; empty before the first time.
  struct View {
    PartyStates parties;
    uint64_t age_s = 0;
  };
  View Last() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop();
  void Tell(const PartyStates& parties);

  ChainStates* const states_;
  const Clock* const clock_;
  std::vector<bool> missing_;  // of the loop alone
  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  PartyStates parties_ ABSL_GUARDED_BY(mutex_);
  uint64_t heard_s_ ABSL_GUARDED_BY(mutex_) = 0;  // on the steady clock
  std::thread thread_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_CHAIN_STATES_H_
