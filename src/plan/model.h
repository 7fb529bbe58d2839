// The model behind `shoal plan`: predicts what a deployment costs from sizes and unit costs.
//
// With Q queries a round, R rows, m parties, S = mean noise * R noise queries of each party but the
// last, party j has N_j = Q + (j - 1) * S positions. The model assumes that every slot is used. The
// K machines of a party share its positions and its noise equally; what they pass to each other is
// padded as the stages pad it.
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
  uint32_t cores = 1;  // of each machine, or of the shared one
  // Of each party, in their order; empty: one each.
  std::vector<uint32_t> machines = {};
  bool one_machine = false;
  // Bytes that a party's spools may hold in memory (spool_memory_mib of shoald).
  double spool_memory_bytes = 4096.0 * (1 << 20);
  double price_core_hour = 0;
  double price_gb = 0;  // for 10^9 bytes, on every link
  double price_machine_hour = 0;

  // Parties count from 1.
  uint32_t MachinesOf(uint32_t party) const { return machines.empty() ? 1 : machines[party - 1]; }
};

// INVALID_ARGUMENT names the option that is out of range, and the range.
absl::Status CheckWorkload(const Workload& workload);

// The layout of the records in rows of about `row_bytes`. In the dense layout row_bytes is rounded
// down to whole records, as by `shoal table build`; in the hashed layout rows are about as full as
// table::Place makes them for equal records. INVALID_ARGUMENT if a record does not fit, or there
// are more rows than a table can have.
absl::StatusOr<Layout> LayOut(const Workload& workload, uint32_t row_bytes);

// Row sizes to try in a search, rising.
std::vector<uint32_t> RowSizes(const Workload& workload);

// Bytes of a batch of `queries` queries over as many positions (wire/query_batch.h).
double QueryBatchBytes(double queries);

// Predicts everything in the plan but the alternatives. INVALID_ARGUMENT if phi is larger than the
// number of rows, or a party would have more positions than 32 bits can name.
absl::StatusOr<Plan> Predict(const Workload& workload, const Layout& layout,
                             const noise::Choice& noise, const UnitCosts& costs);

// Returns the plan whose row size takes the least processor time among those within 10 % of the
// lowest price. A `row_bytes` other than 0 fixes the row size. Fills `by_row_bytes`.
absl::StatusOr<Plan> ChooseRows(const Workload& workload, uint32_t row_bytes,
                                const noise::Choice& noise, const UnitCosts& costs);

// Processor time in ns to make an onion of so many layers.
double SealNs(const UnitCosts& unit, uint32_t layers);

// One line of a table of alternatives.
Alternative Summarise(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_MODEL_H_
