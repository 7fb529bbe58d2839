// A progress bar on a terminal: "signing rows  [#####.....]  1024/2048  3 s left". Draws nothing
// elsewhere, so that logs stay readable.
#ifndef SHOAL_SRC_CLI_PROGRESS_H_
#define SHOAL_SRC_CLI_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "src/parallel/mutex.h"

namespace shoal::cli {

// Thread-safe. Redraws at most ten times a second; clears its line when it dies.
class ProgressBar {
 public:
  ProgressBar(std::ostream& out, bool is_terminal, absl::string_view label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(uint64_t done, uint64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  std::ostream& out_;
  const bool is_terminal_;
  const std::string label_;
  const Clock::time_point start_;
  Mutex mutex_;
  Clock::time_point drawn_ ABSL_GUARDED_BY(mutex_);
  bool visible_ ABSL_GUARDED_BY(mutex_) = false;
};

// Counts down to a moment on a terminal: "waiting for round 17 to take queries  43 s left". Draws
// at once and then every second, on a thread of its own, so that nobody else may write to `out`
// while it lives; clears its line when it dies. Draws nothing elsewhere.
class Countdown {
 public:
  using Clock = std::chrono::steady_clock;
  Countdown(std::ostream& out, bool is_terminal, absl::string_view label, Clock::time_point end);
  ~Countdown();
  Countdown(const Countdown&) = delete;
  Countdown& operator=(const Countdown&) = delete;

  // What is drawn: seconds are rounded up, and nothing is promised once they are over.
  static std::string Text(const std::string& label, Clock::duration left);

 private:
  void Loop();

  std::ostream& out_;
  const std::string label_;
  const Clock::time_point end_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // runs on a terminal alone
};

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_PROGRESS_H_
