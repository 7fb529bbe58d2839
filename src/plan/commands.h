// `shoal plan`.
#ifndef SHOAL_SRC_PLAN_COMMANDS_H_
#define SHOAL_SRC_PLAN_COMMANDS_H_

#include "src/cli/command.h"

namespace shoal::plan {

cli::Command PlanCommand();

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_COMMANDS_H_
