// The keys that a command is given: on its command line and in files.
#ifndef SHOAL_SRC_SHOAL_COMMAND_KEYS_H_
#define SHOAL_SRC_SHOAL_COMMAND_KEYS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/cli/command.h"
#include "src/client/retrieval.h"

namespace shoal::commands {

// The keys of the command line, then those of the files, line by line. Files are read every time.
// Input that can be read only once (standard input, a pipe) is held in memory.
class CommandKeys final : public client::Keys {
 public:
  // No keys.
  CommandKeys() = default;
  // The options `key`, `file` and `escapes`. Reads all keys once, so that mistakes in the input are
  // found before a connection is made: a usage error if there is no key, and the errors of ForEach.
  // `command` is who says what was left out, on standard error.
  static absl::StatusOr<CommandKeys> Read(absl::string_view command, const cli::Values& values,
                                          cli::Io& io);

  // INVALID_ARGUMENT for what is no key; errors of the files.
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override;

  // The number of keys in the last complete reading.
  uint64_t count() const { return count_; }

 private:
  struct Source {
    std::string name;
    std::optional<std::string> held = {};
  };

  bool escapes_ = false;
  std::vector<std::string> words_;
  std::vector<Source> sources_;
  uint64_t count_ = 0;
  std::vector<std::string> notes_;  // what that reading left out of the keys, for people
};

// `key`, `file` and `escapes`.
void AddKeyOptions(cli::Options& options);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_COMMAND_KEYS_H_
