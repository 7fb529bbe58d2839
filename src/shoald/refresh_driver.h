// Drives the refreshes of terms at party 1: whenever the party has a new epoch of the table, it has
// every term refreshed over the chain, one after the other. Handles only threads and time;
// server::Refreshes does the work. Rounds do not wait for it.
//
// A refresh that fails is tried again with the same header, after two seconds at first and after a
// minute at most: other parties may not have taken the epoch yet, or a link broke. It goes on until
// the table has the next epoch. A term that a party does not have any more, or that can have no
// more refreshes, ends for all.
#ifndef SHOAL_SRC_SHOALD_REFRESH_DRIVER_H_
#define SHOAL_SRC_SHOALD_REFRESH_DRIVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"
#include "src/server/chain.h"
#include "src/server/refreshes.h"

namespace shoal::shoald {

class RefreshDriver {
 public:
  // The pointers must outlive the driver. `first` is party 1's node. `ended` is told how each try
  // of a refresh ended; may be empty.
  RefreshDriver(server::Refreshes* refreshes, server::Link* first, const Clock* clock,
                std::function<void(const absl::Status& how)> ended = nullptr);
  // Waits for a refresh that is under way: calls to the next party should be cancelled before.
  ~RefreshDriver();
  RefreshDriver(const RefreshDriver&) = delete;
  RefreshDriver& operator=(const RefreshDriver&) = delete;

 private:
  struct Failed {
    uint64_t again_ms = 0;  // on the steady clock
    uint64_t pause_ms = 0;
  };
  void Loop();
  // One try. How it ended, for everybody.
  absl::Status Run(const Digest& round_id);

  server::Refreshes* const refreshes_;
  server::Link* const first_;
  const Clock* const clock_;
  const std::function<void(const absl::Status& how)> ended_;

  std::map<Digest, Failed> failed_;  // of the thread alone
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_REFRESH_DRIVER_H_
