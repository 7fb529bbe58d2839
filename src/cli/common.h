// What several commands share: options for the roster, the clock, the bar of a long job.
#ifndef SHOAL_SRC_CLI_COMMON_H_
#define SHOAL_SRC_CLI_COMMON_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/cli/command.h"
#include "src/roster/roster.h"

namespace shoal::cli {

// Seconds since 1970, UTC.
uint64_t NowSeconds();

// "2026-11-21T07:30:00Z".
std::string FormatTime(uint64_t seconds);

// --roster and --pinned, both required.
void AddRosterOptions(Options& options);
absl::StatusOr<roster::Roster> ReadRoster(const Values& values);

// To the file of --out, or to io.out.
void AddOutOption(Options& options);
absl::Status WriteResult(const Values& values, Io& io, absl::string_view text);

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_COMMON_H_
