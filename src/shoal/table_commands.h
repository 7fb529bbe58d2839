// `shoal table ..`.
#ifndef SHOAL_SRC_SHOAL_TABLE_COMMANDS_H_
#define SHOAL_SRC_SHOAL_TABLE_COMMANDS_H_

#include "src/cli/command.h"

namespace shoal::commands {

cli::Command TableBuild();
cli::Command TableInspect();
cli::Command TableVerify();
cli::Command TableSign();
cli::Command TableAggregate();

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_TABLE_COMMANDS_H_
