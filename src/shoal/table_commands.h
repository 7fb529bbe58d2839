// `shoal table ..`.
#ifndef SHOAL_SRC_SHOAL_TABLE_COMMANDS_H_
#define SHOAL_SRC_SHOAL_TABLE_COMMANDS_H_

#include <string>

#include "absl/status/status.h"
#include "src/cli/command.h"
#include "src/roster/roster.h"
#include "src/table/table.h"

namespace shoal::commands {

cli::Command TableBuild();
cli::Command TableInspect();
cli::Command TableVerify();
cli::Command TableSign();
cli::Command TableAggregate();
cli::Command TableSignEngine();
cli::Command TableAggregateEngine();

// Part of `table verify`: prints the engines whose setups the table's directory has, once all
// parties' signatures on them have been verified. Errors of pir::CheckSetup.
absl::Status VerifySetups(const std::string& directory, const table::Table& table,
                          const roster::Roster& roster, cli::Io& io);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_TABLE_COMMANDS_H_
