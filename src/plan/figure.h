// Draws a plan.
#ifndef SHOAL_SRC_PLAN_FIGURE_H_
#define SHOAL_SRC_PLAN_FIGURE_H_

#include <string>

#include "src/plan/plan.pb.h"

namespace shoal::plan {

// Returns SVG 1.1 with three charts: price per million queries against the row size; noise per row
// against epsilon; servers' processor time of a query against queries a record, by every engine.
// Axes are logarithmic. Marks show the plan's own points, and where the chain begins to beat
// another engine.
std::string DrawPlan(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_FIGURE_H_
