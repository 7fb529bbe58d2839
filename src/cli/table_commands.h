// `shoal table ..`.
#ifndef SHOAL_SRC_CLI_TABLE_COMMANDS_H_
#define SHOAL_SRC_CLI_TABLE_COMMANDS_H_

#include "src/cli/command.h"

namespace shoal::cli {

Command TableBuild();
Command TableInspect();
Command TableVerify();
Command TableSign();
Command TableAggregate();

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_TABLE_COMMANDS_H_
