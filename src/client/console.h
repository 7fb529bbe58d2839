// What a command says on standard error while it runs: lines, and on a terminal a bar for what takes
// long.
#ifndef SHOAL_SRC_CLIENT_CONSOLE_H_
#define SHOAL_SRC_CLIENT_CONSOLE_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "src/cli/command.h"
#include "src/cli/progress.h"

namespace shoal::client {

// Thread-safe. A bar on the terminal is erased when the console dies.
class Console {
 public:
  // `name` begins every line ("shoal query"); `quiet`: nothing but warnings. With `announce`, where
  // no bar can be drawn a line says when a stage begins. `io` outlives this.
  Console(std::string name, bool quiet, bool announce, cli::Io& io)
      : name_(std::move(name)), quiet_(quiet), announce_(announce), io_(io) {}

  void Tell(absl::string_view what);
  void Warn(absl::string_view what);
  void Count(absl::string_view stage, uint64_t done, uint64_t total);

 private:
  void Line(absl::string_view what);

  const std::string name_;
  const bool quiet_, announce_;
  cli::Io& io_;
  std::mutex mutex_;
  std::string stage_;
  std::optional<cli::ProgressBar> bar_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CONSOLE_H_
