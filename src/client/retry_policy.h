// What a client in flight does while the frontend does not answer: it repeats its request, at
// random and ever longer intervals, until a time that it says.
#ifndef SHOAL_SRC_CLIENT_RETRY_POLICY_H_
#define SHOAL_SRC_CLIENT_RETRY_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "src/client/environment.h"
#include "src/parallel/mutex.h"

namespace shoal::client {

// A time of day on this machine, "12:03:10", with the date if it is not within half a day of
// `now_s`.
std::string TimeText(uint64_t at_s, uint64_t now_s);

// Shared by the connections of one client. Thread-safe.
class RetryPolicy {
 public:
  // What `environment` points to must outlive this. Its random source is used by one thread at a
  // time here, and by nobody else meanwhile.
  explicit RetryPolicy(Environment environment) : environment_(std::move(environment)) {}

  // From now on waits until `until_s`, when `event` ("round 17 ends"). With 0, which is the
  // beginning, a request is made six times in all, as after that time.
  void Until(uint64_t until_s, std::string event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes a call that returns a StatusOr, and makes it again while it ends with UNAVAILABLE and
  // Pause allows it. CANCELLED is no answer.
  template <typename Call>
  auto Try(const Call& call) -> decltype(call()) {
    for (int attempt = 1;; ++attempt) {
      auto result = call();
      if (absl::IsCancelled(result.status())) return result;
      if (!absl::IsUnavailable(result.status())) {
        Answered();
        return result;
      }
      if (!Pause(attempt, result.status())) return result;
    }
  }

 private:
  // Sleeps before a request is repeated whose `attempt`-th attempt (from 1) failed with `why`.
  // Tells people once that the client waits. False if it should not be repeated. Intervals double
  // from 0.2 s to 5 s; each is drawn from its upper half, so that clients that lost the frontend
  // together do not come back together.
  bool Pause(int attempt, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes back what was told.
  void Answered() ABSL_LOCKS_EXCLUDED(mutex_);

  const Environment environment_;
  Mutex mutex_;
  uint64_t until_s_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string event_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_RETRY_POLICY_H_
