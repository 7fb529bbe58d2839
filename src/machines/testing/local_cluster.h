// Machines of one party in one process: threads, and queues in place of links. Counts what passes,
// keeps it if asked, and breaks what it is told to break. For tests alone (BUILD keeps it
// testonly).
#ifndef SHOAL_SRC_MACHINES_TESTING_LOCAL_CLUSTER_H_
#define SHOAL_SRC_MACHINES_TESTING_LOCAL_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/machines/machines.h"
#include "src/machines/transport.h"
#include "src/parallel/mutex.h"

namespace shoal::machines::testing {

// Thread-safe.
class LocalCluster {
 public:
  explicit LocalCluster(uint32_t machines);

  // Runs `work` for each machine, on a thread of its own, and finishes the Machines of those whose
  // work has succeeded. Returns what each returned. Signs of life are given by hand.
  std::vector<absl::Status> Run(const std::function<absl::Status(Machines&)>& work);
  // The same for work that makes its own Machines, with options().
  std::vector<absl::Status> RunLinks(
      const std::function<absl::Status(Transport&, const Clock&)>& work);
  Machines::Options options() const;
  // A machine's links and clock, for work that has threads of its own; must not outlive the
  // cluster.
  struct Joined {
    std::shared_ptr<Transport> transport;
    const Clock* clock;  // as long as the transport
  };
  Joined Join(uint32_t rank);
  // The same for work that has a clock.
  std::unique_ptr<Transport> Open(uint32_t rank);

  // What happens to chunk `number`, counted from 0 over the cluster's life, from one machine to
  // another.
  enum class Fault {
    kNone,
    kWithhold,        // and all after it, and signs of life: a link that is dead without a word
    kWithholdChunks,  // and all after it, but signs of life pass
    kCorrupt,         // one bit is changed
    kRepeat,          // it comes twice
    kAbort,  // the sender ends before it sends the chunk, and the transport tells everybody
    kDie,    // the sender dies instead: from then on nothing comes from it, nothing goes to it
  };
  void Break(Fault fault, uint32_t from, uint32_t to, uint64_t number);
  // From then on a machine gives up when nothing has moved anywhere for 0.3 s, so that a stall
  // takes a test a moment. Without this call it does after some minutes.
  void BeImpatient() { impatient_ = true; }
  // From then on, each wait of this machine takes so many seconds of its clock.
  void SlowClock(uint32_t machine, uint64_t wait_s);
  // How often a machine has waited.
  uint64_t waits(uint32_t machine) const;
  // Keeps all that passes.
  void Capture() { capturing_ = true; }

  // Bytes of chunks that were sent from one machine to another, seals included.
  uint64_t sent_bytes(uint32_t from, uint32_t to) const;
  // Bytes that a machine was sent.
  uint64_t received_bytes(uint32_t machine) const;
  // The chunks, in the order in which they were sent; the signs of life.
  std::vector<Bytes> captured() const;
  std::vector<Bytes> captured_signs() const;

 private:
  class Link;
  struct Pair {
    std::deque<Bytes> waiting;
    std::optional<Bytes> sign;
    uint64_t chunks = 0, bytes = 0;
    Fault fault = Fault::kNone;
    uint64_t faulty = 0;
  };
  // One machine.
  struct State {
    uint64_t changes = 0;  // chunks for it, and room for its own
    uint64_t waits = 0, wait_s = 0;
    bool ended = false;   // it has heard that the job has
    bool silent = false;  // it is dead
    CondVar changed;
  };
  // What a machine had seen when it last waited: its own changes, and those of all.
  struct Seen {
    uint64_t own = 0, all = 0;
  };
  absl::StatusOr<bool> Send(uint32_t from, uint32_t to, BytesView chunk);
  absl::StatusOr<std::optional<Bytes>> Receive(uint32_t from, uint32_t to);
  void SendSign(uint32_t from, uint32_t to, BytesView sign);
  std::optional<Bytes> TakeSign(uint32_t from, uint32_t to);
  // Waits for a change of the machine's own since `seen`, for 10 ms at most. Returns how long that
  // was by its clock: a second if nothing has moved anywhere, and what SlowClock says.
  uint64_t Wait(uint32_t rank, Seen& seen);
  void Abort(uint32_t rank);
  void EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ChangeLocked(uint32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Pair& pair(uint32_t from, uint32_t to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pairs_[from * machines_ + to];
  }

  const uint32_t machines_;
  bool impatient_ = false, capturing_ = false;
  uint64_t runs_ = 0;
  mutable Mutex mutex_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
  std::vector<State> states_ ABSL_GUARDED_BY(mutex_);
  std::vector<Bytes> captured_ ABSL_GUARDED_BY(mutex_);
  std::vector<Bytes> captured_signs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::machines::testing

#endif  // SHOAL_SRC_MACHINES_TESTING_LOCAL_CLUSTER_H_
