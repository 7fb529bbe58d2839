// The messages of a command on standard error while it runs: lines, and on a terminal a bar for
// long stages.
#ifndef SHOAL_SRC_SHOAL_CONSOLE_H_
#define SHOAL_SRC_SHOAL_CONSOLE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "src/cli/command.h"
#include "src/cli/progress.h"
#include "src/parallel/mutex.h"

namespace shoal::commands {

// Thread-safe. What is drawn on the terminal is erased when the console dies.
class Console {
 public:
  // `name` begins every line ("shoal query"). With `quiet` only warnings are printed. With
  // `announce`, if no bar can be drawn, a line says that a stage begins. `io` must outlive the
  // console.
  Console(std::string name, bool quiet, bool announce, cli::Io& io)
      : name_(std::move(name)), quiet_(quiet), announce_(announce), io_(io) {}

  const std::string& name() const { return name_; }
  bool quiet() const { return quiet_; }
  void Tell(absl::string_view what);
  void Warn(absl::string_view what);
  void Count(absl::string_view stage, uint64_t done, uint64_t total);
  // The same as Tell, and on a terminal counts the seconds down until something else is said.
  void Wait(absl::string_view what, uint64_t seconds);

 private:
  void LineLocked(absl::string_view what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string name_;
  const bool quiet_, announce_;
  cli::Io& io_;
  Mutex mutex_;
  std::string stage_ ABSL_GUARDED_BY(mutex_);
  // At most one of them is drawn.
  std::optional<cli::ProgressBar> bar_ ABSL_GUARDED_BY(mutex_);
  std::optional<cli::Countdown> countdown_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_CONSOLE_H_
