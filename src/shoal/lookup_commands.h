// `shoal init`, `shoal query`, `shoal watch`, `shoal prepare`, `shoal updates`, `shoal audit`,
// `shoal simulate`, `shoal status`.
#ifndef SHOAL_SRC_SHOAL_LOOKUP_COMMANDS_H_
#define SHOAL_SRC_SHOAL_LOOKUP_COMMANDS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/cli/command.h"
#include "src/client/transport.h"

namespace shoal::commands {

// Connects to a frontend (host:port), in the program over TLS. Thread-safe.
using Connector =
    std::function<absl::StatusOr<std::unique_ptr<client::Transport>>(const std::string& address)>;

cli::Command Init(Connector connect);
cli::Command Query(Connector connect);
cli::Command Watch(Connector connect);
cli::Command Prepare(Connector connect);
cli::Command Updates(Connector connect);
cli::Command Audit(Connector connect);
cli::Command Simulate(Connector connect);
cli::Command Status(Connector connect);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_LOOKUP_COMMANDS_H_
