// A plan as a drawing.
#ifndef SHOAL_SRC_PLAN_FIGURE_H_
#define SHOAL_SRC_PLAN_FIGURE_H_

#include <string>

#include "src/plan/plan.pb.h"

namespace shoal::plan {

// SVG 1.1: price per million queries against the row size, and noise per row against epsilon; both
// axes logarithmic, the plan's own point marked.
std::string DrawPlan(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_FIGURE_H_
