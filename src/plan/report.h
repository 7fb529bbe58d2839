// Prints a plan as text for people.
#ifndef SHOAL_SRC_PLAN_REPORT_H_
#define SHOAL_SRC_PLAN_REPORT_H_

#include <ostream>

#include "src/plan/plan.pb.h"

namespace shoal::plan {

void PrintPlan(const Plan& plan, std::ostream& out);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_REPORT_H_
