// What a deployment will cost, from sizes and unit costs: the model behind `shoal plan`.
//
// With Q queries a round, R rows, m parties, S = mean noise * R noise queries of each party but the
// last, party j has N_j = Q + (j - 1) * S positions. The model assumes that every slot is used and
// that every party has one machine.
#ifndef SHOAL_SRC_PLAN_MODEL_H_
#define SHOAL_SRC_PLAN_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/noise/search.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

enum class LayoutKind { kDense, kHashed };

struct Workload {
  uint64_t records = 0;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  LayoutKind layout = LayoutKind::kHashed;
  uint64_t queries = 0;  // a round
  double rounds_per_day = 1;
  uint32_t parties = 3;
  uint32_t cores = 1;  // of a party's machine, or of the one that all of them share
  bool one_machine = false;
  // The bytes that a party's spools may hold in memory, as shoald's spool_memory_mib.
  double spool_memory_bytes = 4096.0 * (1 << 20);
  double price_core_hour = 0;
  double price_gb = 0;  // 10^9 bytes, on every link alike
};

// INVALID_ARGUMENT names the option that is out of range, and the range.
absl::Status CheckWorkload(const Workload& workload);

// The number of rows that the records take, with rows of about `row_bytes`. In the dense layout
// row_bytes is rounded down to whole records, as `shoal table build` does; in the hashed layout
// rows are about as full as table::Place makes them for equal records. INVALID_ARGUMENT if a record
// does not fit, or there are more rows than a table can have.
absl::StatusOr<Layout> LayOut(const Workload& workload, uint32_t row_bytes);

// Sensible row sizes for a search, rising.
std::vector<uint32_t> RowSizes(const Workload& workload);

// Bytes of a batch of `queries` queries over as many positions (wire/query_batch.h).
double QueryBatchBytes(double queries);

// Predicts everything in the plan but the alternatives. INVALID_ARGUMENT if phi is larger than the
// number of rows, or a party would have more positions than 32 bits can name.
absl::StatusOr<Plan> Predict(const Workload& workload, const Layout& layout,
                             const noise::Choice& noise, const UnitCosts& costs);

// The plan with the row size that takes the least processor time among those whose price is the
// lowest, or within 2 % of it; `row_bytes` other than 0 fixes it. Fills `by_row_bytes`.
absl::StatusOr<Plan> ChooseRows(const Workload& workload, uint32_t row_bytes,
                                const noise::Choice& noise, const UnitCosts& costs);

// One line of a table of alternatives.
Alternative Summarise(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_MODEL_H_
