// Measures the unit costs of this machine.
#ifndef SHOAL_SRC_PLAN_CALIBRATE_H_
#define SHOAL_SRC_PLAN_CALIBRATE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/registry/registry.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

// Slots of a submission, as the model counts: what clients pad their lookups to by default.
inline constexpr size_t kSlotsOfASubmission = 64;

// The two numbers of positions for which every Curve has a cost.
inline constexpr double kFewPositions = 1 << 17, kManyPositions = 1 << 20;
// The two table sizes for which the cost of an answer is measured.
inline constexpr double kNearTableBytes = 1 << 19, kFarTableBytes = 1 << 24;

// Measures the processor time of the parties' and the engines' own functions on made-up rounds and
// tables as large as real ones, over memory fresh from the system, on all of the pool's threads at
// once. Covers all work that a party's stage report counts. Takes half a minute of processor time,
// up to a gigabyte of memory, and some hundred MiB of files in /tmp. `effort` scales the sizes;
// only tests pass other values than 1, and other families than those of the registry.
UnitCosts Calibrate(RandomSource& random, ThreadPool& pool, double effort = 1,
                    std::span<const pir::Family* const> families = pir::Families());

// Built-in costs, measured on the machine that their field `machine` names.
const UnitCosts& DefaultCosts();

// The cost of a unit of an engine's work (pir::Amount), which has that name in
// UnitCosts.engine_unit_ns. UNIMPLEMENTED if there is none.
absl::StatusOr<double> CostOf(const UnitCosts& costs, absl::string_view unit);
// Puts what units cost in the place of what the costs have of them.
void AddUnitCosts(std::span<const pir::Amount> units, UnitCosts& costs);

// "~/.config/shoal/costs.textproto", or below $XDG_CONFIG_HOME; empty without a home.
std::string DefaultCostsPath();

// Reads costs from a file, also from one in which engines' units are fields with names of their own
// (pir_word_ns), as programs wrote it before. INVALID_ARGUMENT names a cost that is missing,
// negative or not finite, or the place of a syntax error.
absl::StatusOr<UnitCosts> ReadCosts(const std::string& path,
                                    std::span<const pir::Family* const> families = pir::Families());

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_CALIBRATE_H_
