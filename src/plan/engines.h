// The engines beside the chain: what they would cost for the same workload, and from
// how many queries on the chain costs less.
#ifndef SHOAL_SRC_PLAN_ENGINES_H_
#define SHOAL_SRC_PLAN_ENGINES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "src/noise/search.h"
#include "src/pir/engine.h"
#include "src/pir/registry/registry.h"
#include "src/plan/model.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

struct EngineOptions {
  // As shoald's: a larger hint is refused.
  uint64_t max_hint_bytes = uint64_t{1} << 30;
  // A client asks so often with one hint, in one version of the table. Over as many lookups what it
  // fetches before the first one is shared out.
  double lookups_per_hint = 100;
  // By which an engine's rows are chosen.
  Aim aim = Aim::kPrice;
};

// INVALID_ARGUMENT names the option that is out of range.
absl::Status CheckEngineOptions(const EngineOptions& options);

// One engine over rows of a layout, by its own shape, sizes and work (src/pir), and with the
// layout's first_bytes. `refused` says why it would not start, or which of its units has no cost.
EngineCosts PredictEngine(const Workload& workload, const pir::Engine& engine, const Layout& layout,
                          const UnitCosts& costs, const EngineOptions& options);

// Fills `engine`, `chain_by_queries` and the table's first_bytes of a plan that ChooseRows made:
// every engine (those of the registry, but for tests) with the row size of its lowest price, or
// with `row_bytes` if that is not 0.
absl::Status CompareEngines(const Workload& workload, uint32_t row_bytes,
                            const noise::Choice& noise, const UnitCosts& costs,
                            const EngineOptions& options, Plan& plan,
                            std::span<const pir::Engine* const> engines = pir::Engines());

// The row size's layouts, or those of all RowSizes if it is 0, each with its first_bytes.
absl::StatusOr<std::vector<Layout>> LayoutsWithFirstBytes(const Workload& workload,
                                                          uint32_t row_bytes);

// The fewest queries, at least `from`, from which `chain_is_better` holds, to one per mille; 0 if
// it never does. It must hold from some number on: the noise is shared by more.
double FirstThatHolds(const std::function<std::optional<bool>(double)>& chain_is_better,
                      double from = 1);

// What bytes that a client fetches before its first lookup add to each of its lookups: seconds of
// the servers' links, and bytes.
struct FirstShare {
  double seconds, bytes;
};
FirstShare ShareOfFirst(double first_bytes, const UnitCosts& costs, const EngineOptions& options);

// Queries a record, rising, for which curves over queries have a point.
std::vector<double> QueryShares();

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_ENGINES_H_
