// A plan as a drawing.
#ifndef SHOAL_SRC_PLAN_FIGURE_H_
#define SHOAL_SRC_PLAN_FIGURE_H_

#include <string>

#include "src/plan/plan.pb.h"

namespace shoal::plan {

// SVG 1.1: price per million queries against the row size; noise per row against epsilon; servers'
// processor time of a query against queries a record, by every engine. Axes are logarithmic. Marked
// are the plan's own points, and the points from which the chain beats another engine.
std::string DrawPlan(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_FIGURE_H_
