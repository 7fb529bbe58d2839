// `shoal keys ..` and `shoal roster ..`.
#ifndef SHOAL_SRC_SHOAL_PARTY_COMMANDS_H_
#define SHOAL_SRC_SHOAL_PARTY_COMMANDS_H_

#include "src/cli/command.h"

namespace shoal::commands {

cli::Command Ceremony();
cli::Command KeysGenerate();
cli::Command KeysRenew();
cli::Command KeysMachine();
cli::Command RosterAssemble();
cli::Command RosterSign();
cli::Command RosterAggregate();
cli::Command RosterPins();
cli::Command RosterInspect();

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_PARTY_COMMANDS_H_
