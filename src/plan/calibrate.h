// Unit costs of the machine at hand.
#ifndef SHOAL_SRC_PLAN_CALIBRATE_H_
#define SHOAL_SRC_PLAN_CALIBRATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "src/base/random.h"
#include "src/base/thread_pool.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

// The ends of every Curve.
inline constexpr double kFewPositions = 1 << 17, kManyPositions = 1 << 20;
// The ends of what a table's size does to an answer.
inline constexpr double kNearTableBytes = 1 << 19, kFarTableBytes = 1 << 24;

// Runs the parties' own functions, and the engines', on made-up rounds and tables, as large as real
// ones are and over memory fresh from the system, with everything that a party's report of a stage
// counts; takes their processor time, on all of the pool's threads at once. Ten or twenty seconds in
// all, and up to a gigabyte of memory. `effort` scales the sizes; 1 is what users get.
UnitCosts Calibrate(RandomSource& random, ThreadPool& pool, double effort = 1);

// Measured on the machine that its `machine` names.
const UnitCosts& DefaultCosts();

// "~/.config/shoal/costs.textproto", or below $XDG_CONFIG_HOME; empty without a home.
std::string DefaultCostsPath();

// INVALID_ARGUMENT names a cost that is missing, negative or not finite, or what is no text format.
absl::StatusOr<UnitCosts> ReadCosts(const std::string& path);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_CALIBRATE_H_
