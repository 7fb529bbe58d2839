// The program shoal-door.
#ifndef SHOAL_SRC_DOOR_PROGRAM_H_
#define SHOAL_SRC_DOOR_PROGRAM_H_

#include "src/cli/command.h"

namespace shoal::door {

cli::Command DoorCommand();

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_PROGRAM_H_
