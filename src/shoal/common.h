// Functions that several commands share: the clock, and options for roster and output.
#ifndef SHOAL_SRC_SHOAL_COMMON_H_
#define SHOAL_SRC_SHOAL_COMMON_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/cli/command.h"
#include "src/client/chain_client.h"
#include "src/client/retrieval.h"
#include "src/client/state.h"
#include "src/pir/engine.h"
#include "src/roster/roster.h"

namespace shoal::commands {

// Seconds since 1970, UTC.
uint64_t NowSeconds();

// "2026-11-21T07:30:00Z".
std::string FormatTime(uint64_t seconds);

// --roster and --pinned, both required.
void AddRosterOptions(cli::Options& options);
absl::StatusOr<roster::Roster> ReadRoster(const cli::Values& values);
absl::StatusOr<roster::PinnedParties> ReadPins(const cli::Values& values);

// --config, which may be left out: then it is that of client::FindConfig.
void AddConfigOption(cli::Options& options);
absl::StatusOr<std::string> ConfigPathOf(const cli::Values& values);

// What the state file has, of a client that may have none yet. Writes nothing. Errors as
// client::ReadState, but NOT_FOUND.
absl::StatusOr<client::State> StateAt(const std::string& path);

// --engine: the engine of that name, or null for the chain, which is the default. A usage error
// names those there are.
void AddEngineOption(cli::Options& options);
absl::StatusOr<const pir::Engine*> EngineOf(const cli::Values& values);

// --over-rounds, --accept-more and --dry-run. A usage error if the first
// two are both given.
void AddBeyondPhiOptions(cli::Options& options);
absl::StatusOr<client::BeyondPhi> BeyondPhiOf(const cli::Values& values);

// --format: json, or `plain` ("tsv", "table"), which is the default. A usage error for another.
void AddFormatOption(cli::Options& options, const std::string& plain);
absl::StatusOr<bool> JsonWanted(const cli::Values& values, const std::string& plain);

// "found", "absent", "unknown" or "failed".
const char* OutcomeName(client::Lookup::Outcome outcome);

// The end of a lookup in which `unknown` of `all` keys, or of what `what` calls them, are unknown,
// of which `unasked` were not asked for (Lookup::is_unasked).
absl::Status UnknownError(uint64_t unknown, uint64_t unasked, uint64_t all, absl::string_view what);

// --out. WriteResult writes to its file, or without it to io.out.
void AddOutOption(cli::Options& options);
absl::Status WriteResult(const cli::Values& values, cli::Io& io, absl::string_view text);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_COMMON_H_
