// `shoal keys ..` and `shoal roster ..`.
#ifndef SHOAL_SRC_CLI_PARTY_COMMANDS_H_
#define SHOAL_SRC_CLI_PARTY_COMMANDS_H_

#include "src/cli/command.h"

namespace shoal::cli {

Command KeysGenerate();
Command RosterAssemble();
Command RosterSign();
Command RosterAggregate();
Command RosterPins();
Command RosterInspect();

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_PARTY_COMMANDS_H_
