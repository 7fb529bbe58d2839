// How the machines of a party know of its rounds: the head says, the others do.
//
//   every 250 ms, all machines to all, 4,096 bytes each:
//   head    --- orders: open a round, take a step of it, end it; what clients are shown ---> others
//   others  --- how earlier orders ended; what their clients have -------------------------> head
//
// One tick is a gather (src/machines) over machines of its own, so that no round delays it. It
// takes place whether there is anything to say or not. A gather that succeeds has delivered what
// all had to say, and a machine at which it fails ends; so an order passes once, and so does its
// result. docs/machines.md has the argument.
#ifndef SHOAL_SRC_SHOALD_CONTROL_H_
#define SHOAL_SRC_SHOALD_CONTROL_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/machines/machines.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/wire/control.h"

namespace shoal::shoald {

// Thread-safe.
class Control {
 public:
  static constexpr size_t kMostEpochs = wire::kMostControlEntries;

  // What is not set, is not done. Callbacks may take their time only where that is said: the next
  // tick waits for the others. None may call Stop or destroy the object.
  struct Options {
    std::chrono::milliseconds period{250};  // 0: in tests, nobody calls Tick but the test

    // At the others: does an order, and returns how that ended. May take long: each order gets a
    // thread, and those of one round come one after the other. Only the round's end does not wait
    // for a step that is under way; whoever ends the round makes that step return. Must not return
    // from an end before nothing is left of the round.
    std::function<absl::Status(const Digest& round_id, const wire::RoundOrder& order)> obey;
    // At party 1's others: what their clients have of a round that is open.
    std::function<void(const Digest& round_id, wire::MachineCounts& counts)> count;

    // Of which epochs of the table rounds can be opened here; the last one at the head is that of
    // its next rounds. Rising, kMostEpochs at most (checked). Asked in every tick.
    std::function<std::vector<uint64_t>()> epochs;
    // What machine `rank` has said of that, in every tick; of all machines, this one too.
    std::function<void(uint32_t rank, std::vector<uint64_t> epochs)> epochs_said;

    // At the head: a round could not be opened at another machine, and should end. May take long.
    std::function<void(const Digest& round_id, const absl::Status& why)> failed;
    // At party 1's head: what machine `rank` has said of its clients. What it counts after a step
    // is here before WaitForOthers returns for that step.
    std::function<void(uint32_t rank, const Digest& round_id, const wire::MachineCounts& counts)>
        counted;
    // At party 1's head: what clients are to be shown next, of about so many bytes, and of
    // wire::kMostToldBytes at most each (checked). What is more waits for the next tick.
    std::function<std::vector<wire::ToldRound>(size_t most_bytes)> tell;

    // At all of party 1's machines, the head as well: the head has told this.
    std::function<void(const wire::ToldRound& told)> told;
    // At party 1's head: whether `tell` has returned all rounds of before this job. At all of its
    // machines, once: that, and all of them were given to `told`.
    std::function<bool()> has_told_before;
    std::function<void()> before_is_told;
    // Called once, when no tick follows: OK if the head has said so, else why. Then this process
    // ends.
    std::function<void(const absl::Status& why)> ended;
  };

  // `machines` are the party's, for control alone, and at least two. They must outlive the object.
  Control(machines::Machines* machines, Options options);
  // If ticks have not ended in good order, the others' end as well. Waits for orders under way: all
  // rounds must have ended here.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Waits until all machines have an object like this one, and what they said in their first tick
  // was taken. UNAVAILABLE if ticks have ended before.
  absl::Status AwaitFirstTick();
  // Since the last tick was done, or since this object was made.
  std::chrono::steady_clock::duration SinceTick() const;

  // --- at the head ---

  // Orders the others to open a round that is new; `round` rises (checked). The seed is wiped as
  // soon as it has been sent.
  void Open(uint32_t round, const wire::SignedHeader& header, const Seed& root);
  // Orders a step of an open round. NOT_FOUND if it has ended.
  absl::Status Order(const Digest& round_id, wire::RoundStep step, uint64_t attempt = 0);
  // Waits until all others have done what was ordered for the round. Returns the first error since
  // the last call, by the orders' numbers and then by rank. NOT_FOUND if the round has ended;
  // UNAVAILABLE if ticks have.
  absl::Status WaitForOthers(const Digest& round_id);
  // Orders the others to erase a round. No effect if it is not open.
  void End(const Digest& round_id);
  // Once all orders are done everywhere, says that no tick follows, and returns after that tick, or
  // when ticks have ended otherwise. Waits for the end of all rounds.
  void Stop();

  // One tick. UNAVAILABLE once ticks have ended; errors of Machines; DATA_LOSS for what no machine
  // says. After an error there are no more ticks.
  absl::Status Tick();

 private:
  // At the head.
  struct OrderedRound {
    uint32_t number = 0;
    uint64_t opening = 0;                           // the number of the first order
    std::map<uint64_t, std::set<uint32_t>> undone;  // orders, and who has still to do them
    std::map<std::pair<uint64_t, uint32_t>, absl::Status> errors;  // by order and rank
    bool ended = false;
  };
  // At the others.
  struct ObeyedRound {
    Digest id;
    std::deque<wire::RoundOrder> orders;  // to be done
    bool open = false;                    // the first order is done, well or not
    bool at_work = false;                 // on an order that is no end
    bool ending = false, ended = false;   // the end is begun; done
  };
  struct Result {
    uint32_t round;
    wire::OrderResult result;
  };

  bool is_head() const { return machines_->rank() == 0; }
  absl::Status TryTick();
  // With what all machines say.
  wire::Control Begin() const;
  wire::Control ComposeOrders() ABSL_LOCKS_EXCLUDED(mutex_);
  wire::Control ComposeResults() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeResults(uint32_t rank, const wire::Control& said) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status TakeOrders(const wire::Control& said) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddLocked(const Digest& round_id, OrderedRound& round, wire::RoundOrder order)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins what may begin of a round's orders.
  void BeginLocked(uint32_t number, ObeyedRound& round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Obey(uint32_t number, const Digest& round_id, const wire::RoundOrder& order)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AddResultLocked(uint32_t round, uint64_t order, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickUntilEnded();

  machines::Machines* const machines_;
  const Options options_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::chrono::steady_clock::time_point last_tick_ ABSL_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::now();
  bool ticked_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t orders_ ABSL_GUARDED_BY(mutex_) = 0;  // their highest number
  uint32_t rounds_ ABSL_GUARDED_BY(mutex_) = 0;  // the same
  std::deque<wire::RoundOrder> to_send_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, OrderedRound> ordered_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Digest> ids_ ABSL_GUARDED_BY(mutex_);  // of these
  std::deque<wire::ToldRound> to_tell_;                     // used by Tick alone
  bool before_told_ = false;                                // the same
  std::deque<Result> results_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, ObeyedRound> obeyed_ ABSL_GUARDED_BY(mutex_);
  uint32_t counted_ ABSL_GUARDED_BY(mutex_) = 0;  // the round whose counts were sent last
  TaskGroup tasks_;
  std::thread ticks_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_CONTROL_H_
