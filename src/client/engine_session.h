// What `shoal query --engine` opens and closes: state, connection, the engine's client.
#ifndef SHOAL_SRC_CLIENT_ENGINE_SESSION_H_
#define SHOAL_SRC_CLIENT_ENGINE_SESSION_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "src/cli/command.h"
#include "src/client/client.h"
#include "src/client/commands.h"
#include "src/pir/engine.h"

namespace shoal::client {

// Looks the keys up at the frontend by `engine`; its hint is kept beside the state. The costs go to
// io.err unless `quiet`. Errors as Session::Open, EngineClient::Open and LookUp.
absl::StatusOr<std::vector<Lookup>> LookUpWithEngine(pir::Engine engine, uint32_t pad_to,
                                                     const std::string& config_path,
                                                     const Connector& connect, bool quiet,
                                                     std::span<const Bytes> keys, cli::Io& io);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ENGINE_SESSION_H_
