// SinglePass's servers (permuted_pir.h).
#ifndef SHOAL_SRC_PIR_SETS_SINGLE_PASS_SERVER_H_
#define SHOAL_SRC_PIR_SETS_SINGLE_PASS_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"

namespace shoal::pir::sets {

// For both roles. Errors as Engine::CreateServer.
absl::StatusOr<std::unique_ptr<Server>> CreatePermutedServer(wire::PirSetup setup,
                                                             const Content& content,
                                                             const ServerOptions& options);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_SINGLE_PASS_SERVER_H_
