// `shoal plan`.
#ifndef SHOAL_SRC_SHOAL_PLAN_COMMAND_H_
#define SHOAL_SRC_SHOAL_PLAN_COMMAND_H_

#include "src/cli/command.h"

namespace shoal::commands {

cli::Command PlanCommand();

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_PLAN_COMMAND_H_
