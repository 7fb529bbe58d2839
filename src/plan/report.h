// Prints a plan as text for people.
#ifndef SHOAL_SRC_PLAN_REPORT_H_
#define SHOAL_SRC_PLAN_REPORT_H_

#include <ostream>
#include <string>

#include "src/plan/plan.pb.h"

namespace shoal::plan {

void PrintPlan(const Plan& plan, std::ostream& out);

// A sentence that says so if downloading the table is the better idea than this plan, and why;
// empty otherwise. It is where a client that asks phi queries in a round moves more bytes than the
// table has, and where a query costs more than a download. Of a plan with a term: where a device
// pays less, or gets fewer bytes, by downloading what changed at every epoch, or the table.
std::string DownloadAdvice(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_REPORT_H_
