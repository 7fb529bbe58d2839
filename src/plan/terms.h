// Terms beside what else a device could do that wants the same list at every epoch of the table: a
// round for each epoch, downloads, a single-server engine.
#ifndef SHOAL_SRC_PLAN_TERMS_H_
#define SHOAL_SRC_PLAN_TERMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "src/noise/search.h"
#include "src/plan/engines.h"
#include "src/plan/model.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

// Fills the rest of the term of a plan that ChooseRows made: `way`, `by_queries`, and what they are
// made of. A row size other than 0 holds for every way; otherwise rounds and engines have rows of
// their own, without the term's room. Leaves out what the ledger says of a month. INVALID_ARGUMENT
// for bad options.
absl::Status CompareWays(const Workload& workload, uint32_t row_bytes, const noise::Choice& noise,
                         const UnitCosts& costs, const EngineOptions& options, Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_TERMS_H_
