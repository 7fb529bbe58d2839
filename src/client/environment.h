// What a client needs from outside: clock, randomness, connections, and retries.
#ifndef SHOAL_SRC_CLIENT_ENVIRONMENT_H_
#define SHOAL_SRC_CLIENT_ENVIRONMENT_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/client/transport.h"
#include "src/parallel/thread_pool.h"

namespace shoal::client {

using Sleep = std::function<void(uint32_t milliseconds)>;

// Sleeps in real time; tests pass another function.
void SleepFor(uint32_t milliseconds);

// Repeats a call that ends with UNAVAILABLE, up to six attempts in all. Pauses start at 0.2 s and
// double.
template <typename Call>
auto WithRetries(const Sleep& sleep, const Call& call) -> decltype(call()) {
  uint32_t pause_ms = 200;
  for (int attempt = 1;; ++attempt) {
    auto result = call();
    if (attempt >= 6 || result.ok() || !absl::IsUnavailable(result.status())) return result;
    sleep(pause_ms);
    pause_ms *= 2;
  }
}

// The pointers must outlive the client.
struct Environment {
  const Clock* clock;
  RandomSource* random;
  ThreadPool* pool;
  Sleep sleep;
  // Told what the client is doing, for people; may be empty.
  std::function<void(absl::string_view what)> progress = nullptr;
  // Told the progress of a long stage; may be empty. Called from any thread, one call at a time.
  std::function<void(absl::string_view stage, uint64_t done, uint64_t total)> count = nullptr;
  // Told what the client waits for, in place of `progress`, and when that is due (seconds since
  // 1970). May be empty.
  std::function<void(absl::string_view what, uint64_t due_s)> waiting = nullptr;
  // Makes further connections to the frontend; if empty, there is only one.
  TransportFactory connect = nullptr;
  // Makes connections to a machine of the frontend, where it has several; if empty, all requests go
  // where the first connection leads.
  MachineFactory connect_to = nullptr;

  void Tell(absl::string_view what) const {
    if (progress) progress(what);
  }
  void Wait(absl::string_view what, uint64_t due_s) const {
    waiting ? waiting(what, due_s) : Tell(what);
  }
  void Count(absl::string_view stage, uint64_t done, uint64_t total) const {
    if (count) count(stage, done, total);
  }
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ENVIRONMENT_H_
