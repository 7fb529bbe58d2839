// Drives the rounds of a frontend: watches windows and counts, runs every stage over the whole
// chain, and tells all parties which rounds live. Handles only threads and time; RoundSteps do the
// work. Where party 1 has several machines, the driver runs at the head.
//
// When a link of the chain breaks during a stage, the driver runs the stage again with the same
// input, as soon as a list of live rounds has reached all parties and none of them lacks the round.
// It does so twice at most; time limits hold over all of it. No other party repeats anything, so
// that repeats do not multiply along the chain. In the same way it waits after the offline stage,
// before the round takes queries: clients pay only for a round that all parties hold.
#ifndef SHOAL_SRC_SHOALD_DRIVER_H_
#define SHOAL_SRC_SHOALD_DRIVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/shoald/round_steps.h"

namespace shoal::shoald {

class Driver {
 public:
  // The pointers must outlive the driver. The first thing that the parties hear is that no round of
  // an earlier process lives. The destructor waits for running stages and ends all open rounds at
  // all parties. `steps`: how the steps of rounds are done; null: by this machine alone.
  Driver(server::Frontend* frontend, server::ChainNode* node, const Clock* clock,
         RoundSteps* steps = nullptr);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

 private:
  void Loop();
  // Sends lists of live rounds, every second and after each change.
  void SendLists();
  void SendList();
  void ListHasChanged() ABSL_LOCKS_EXCLUDED(mutex_);
  void Run(const server::Due& due);
  void Announce();
  // Runs a stage, and again while it returns UNAVAILABLE (above).
  absl::Status RunRepeatedly(const Digest& round_id, absl::string_view stage,
                             const std::function<absl::Status()>& run);
  // Waits until a list that is sent from now on has reached all parties. False if that takes longer
  // than server::kUnheardLimitS, or the round or the driver ends before.
  bool WaitForWholeChain(const Digest& round_id) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasEnded(const Digest& round_id) const;
  // Whether the round goes on after a step that says how many onions or queries it has. Otherwise
  // it has ended now: because of the error, or in good order, as it has none.
  bool GoesOn(const Digest& round_id, const std::string& step,
              const absl::StatusOr<uint64_t>& count);
  void RunOffline(const Digest& round_id);
  // What the round cost at all parties; empty if one of them cannot be asked.
  server::StageReports Reports(const Digest& round_id);
  void RunOnline(const Digest& round_id);
  // Ends the round; an empty `reason` means in good order. The other parties hear of it at once.
  void End(const Digest& round_id, const std::string& reason);
  // Ends the round at all parties because of an error; clients and parties are told ForOthers(why).
  void Fail(const Digest& round_id, const std::string& stage, const absl::Status& why);

  server::Frontend* const frontend_;
  server::ChainNode* const node_;
  const Clock* const clock_;
  OwnSteps own_;
  RoundSteps* const steps_;

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool list_has_changed_ ABSL_GUARDED_BY(mutex_) = false;
  // Lists are numbered from 1: the last one that was begun, and the last that reached all parties.
  uint64_t list_begun_ ABSL_GUARDED_BY(mutex_) = 0, list_arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  bool list_failed_ = false;  // the last one; of SendList, which runs on one thread at a time
  std::atomic<bool> announcing_ = false;
  // On the steady clock; later after a failure.
  std::atomic<uint64_t> next_announcement_s_ = 0;
  TaskGroup tasks_;

  std::thread loop_, lists_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_DRIVER_H_
