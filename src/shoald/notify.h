// What a process says to the service manager that started it, in systemd's protocol: datagrams of
// VARIABLE=VALUE lines to the socket that NOTIFY_SOCKET names (sd_notify(3), "Notes"). Without a
// manager nothing is said.
#ifndef SHOAL_SRC_SHOALD_NOTIFY_H_
#define SHOAL_SRC_SHOALD_NOTIFY_H_

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "src/parallel/mutex.h"

namespace shoal::shoald {

// Thread-safe. A message that cannot be sent is lost, as the manager's own time limits find that.
class Notifier {
 public:
  // `socket` is a path, or "@" and an abstract name; empty: there is no manager. `watchdog`: the
  // longest silence that the manager takes, if it takes none for ever.
  Notifier(std::string socket, std::optional<std::chrono::microseconds> watchdog)
      : socket_(std::move(socket)), watchdog_(watchdog) {}
  // From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
  static Notifier FromEnvironment();

  // The process does what it is for; `status` is a line for people.
  void Ready(absl::string_view status) const;
  // It takes a new configuration, until it is Ready again.
  void Reloading() const;
  // It has begun to end.
  void Stopping() const;
  // It is not stuck; to be said more often than every `watchdog()`.
  void Alive() const;

  std::optional<std::chrono::microseconds> watchdog() const { return watchdog_; }

 private:
  void Send(const std::string& message) const;

  const std::string socket_;
  const std::optional<std::chrono::microseconds> watchdog_;
};

// Says Alive twice in every watchdog() as long as `probe` returns: a probe takes the locks that the
// process's threads need, and hangs if one of them is stuck. Does nothing without a watchdog.
class Watchdog {
 public:
  // `notifier` and what `probe` uses must outlive the watchdog.
  Watchdog(const Notifier* notifier, std::function<void()> probe);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Loop();

  const Notifier* const notifier_;
  const std::function<void()> probe_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // runs with a watchdog alone
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_NOTIFY_H_
