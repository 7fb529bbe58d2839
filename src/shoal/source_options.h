// The options of commands that look keys up: through which source of rows, the chain or an engine.
#ifndef SHOAL_SRC_SHOAL_SOURCE_OPTIONS_H_
#define SHOAL_SRC_SHOAL_SOURCE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/cli/command.h"
#include "src/client/chain_client.h"
#include "src/pir/engine.h"
#include "src/shoal/session.h"

namespace shoal::commands {

struct SourceOptions {
  const pir::Engine* engine = nullptr;  // null: the chain
  client::BeyondPhi beyond_phi = client::BeyondPhi::kRefuse;
  bool dry_run = false;
  std::vector<std::string> parties;  // of the engine
  uint32_t pad = 1;                  // with an engine
};

// --over-rounds, --accept-more, --dry-run, --engine, --party and --pad, which is `pad` if it is not
// given.
void AddSourceOptions(cli::Options& options, uint32_t pad);
// A usage error for options that do not go together.
absl::StatusOr<SourceOptions> SourceOptionsOf(const cli::Values& values, uint32_t pad);

// Makes it the source of the session's lookup of so many keys: UseChain or UseEngine.
absl::Status UseSource(const SourceOptions& source, uint64_t keys, Session& session);

// After a lookup of which answers could not be verified: says what that means for a session with
// the engine that is kept, if there is one.
void WarnOfWrongRecords(const SourceOptions& source, Session& session);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_SOURCE_OPTIONS_H_
