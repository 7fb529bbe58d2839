// Whether the frontend answers, asked beside whatever else goes on.
#ifndef SHOAL_SRC_DOOR_HEALTH_H_
#define SHOAL_SRC_DOOR_HEALTH_H_

#include <chrono>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "src/parallel/mutex.h"

namespace shoal::door {

// Asks again and again on a thread of its own, so that whoever wants to know waits for nobody: a
// frontend that hangs holds up no page. Thread-safe.
class Health {
 public:
  // Returns what is wrong, and soon after `stops` has become true.
  using Probe = std::function<absl::Status(const std::function<bool()>& stops)>;

  // Asks at once, and then this long after each answer. An answer counts for `lasts` at most.
  Health(Probe probe, std::chrono::milliseconds pause, std::chrono::milliseconds lasts);
  // Ends the probe that runs, and waits for it.
  ~Health();
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  // The latest answer, at once. UNAVAILABLE also before the first one, and when it is too old.
  absl::Status Last() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Clock = std::chrono::steady_clock;
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  bool Stops() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Probe probe_;
  const std::chrono::milliseconds pause_, lasts_;
  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_ ABSL_GUARDED_BY(mutex_) =
      absl::UnavailableError("the frontend was not asked yet");
  Clock::time_point answered_ ABSL_GUARDED_BY(mutex_) = Clock::time_point::max();
  std::thread thread_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_HEALTH_H_
