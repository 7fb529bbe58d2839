// Machines of one party in one process: threads, and queues in place of links. Counts what passes,
// keeps it if asked, and breaks what it is told to break. For tests alone (BUILD keeps it
// testonly).
#ifndef SHOAL_SRC_MACHINES_TESTING_LOCAL_CLUSTER_H_
#define SHOAL_SRC_MACHINES_TESTING_LOCAL_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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

  // Runs `work` for each machine, on a thread of its own. Returns what each returned.
  std::vector<absl::Status> Run(const std::function<absl::Status(Machines&)>& work);

  // What happens to chunk `number`, counted from 0 over the cluster's life, from one machine to
  // another.
  enum class Fault {
    kNone,
    kWithhold,  // and all after it: a link that is dead without a word
    kCorrupt,   // one bit is changed
    kRepeat,    // it comes twice
    kDie,       // the sender dies before it sends the chunk
  };
  void Break(Fault fault, uint32_t from, uint32_t to, uint64_t number);
  // From then on a machine gives up when nothing has moved anywhere for 0.3 s, so that a stall
  // takes a test a moment. Without this call it does after some minutes.
  void BeImpatient() { impatient_ = true; }
  // Keeps all that passes.
  void Capture() { capturing_ = true; }

  // Bytes of chunks that were sent from one machine to another, seals included.
  uint64_t sent_bytes(uint32_t from, uint32_t to) const;
  // Bytes that a machine was sent.
  uint64_t received_bytes(uint32_t machine) const;
  Bytes captured() const;

 private:
  class Link;
  struct Pair {
    std::deque<Bytes> waiting;
    uint64_t chunks = 0, bytes = 0;
    Fault fault = Fault::kNone;
    uint64_t faulty = 0;
  };
  absl::StatusOr<bool> Send(uint32_t from, uint32_t to, BytesView chunk);
  absl::StatusOr<std::optional<Bytes>> Receive(uint32_t from, uint32_t to);
  // Waits for a change since `seen`, and sets it; false if there was none for 10 ms.
  bool Wait(uint64_t& seen);
  void Abort();
  Pair& pair(uint32_t from, uint32_t to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return pairs_[from * machines_ + to];
  }

  const uint32_t machines_;
  bool impatient_ = false, capturing_ = false;
  uint64_t runs_ = 0;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Pair> pairs_ ABSL_GUARDED_BY(mutex_);
  Bytes captured_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::machines::testing

#endif  // SHOAL_SRC_MACHINES_TESTING_LOCAL_CLUSTER_H_
