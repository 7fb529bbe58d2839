// The model behind `shoal plan`: predicts what a deployment costs from sizes and unit costs.
//
// With Q queries a round, R rows, m parties, S = mean noise * R noise queries of each party but the
// last, party j has N_j = Q + (j - 1) * S positions. The model assumes that every slot is used. The
// K machines of a party share its positions and its noise equally; what they pass to each other is
// padded as the stages pad it.
#ifndef SHOAL_SRC_PLAN_MODEL_H_
#define SHOAL_SRC_PLAN_MODEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/noise/search.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

enum class LayoutKind { kDense, kHashed };

// What a plan is to have least of: the price, or the parties' processor time.
enum class Aim { kPrice, kTime };

// Prices that differ by less count as the same: neither the price of traffic nor unit costs are
// known more precisely (docs/planner.md).
inline constexpr double kSamePrice = 1.1;

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
  // A term: the round's answers are given again at so many later epochs, of which there are
  // rounds_per_day. 0: no term.
  uint32_t refreshes = 0;
  // Of the records, from one epoch to the next. Half of the changes give a key another value of the
  // same length; for a quarter a key goes, and for a quarter one comes. In the dense layout all
  // give another value.
  double changed_percent = 1;
  // What `shoal table build` leaves free in every row for the epochs of a term; hashed layout. If
  // nothing is said, so much that at most one key in a hundred waits for the next term.
  std::optional<uint32_t> room_percent = std::nullopt;

  // Parties count from 1.
  uint32_t MachinesOf(uint32_t party) const { return machines.empty() ? 1 : machines[party - 1]; }
  Workload WithoutTerm() const;
  // The round's, and one for each refresh.
  double epochs() const { return 1.0 + refreshes; }
  // From the round to the end of the last refresh's day, rounded up.
  uint32_t TermDays() const;
};

// INVALID_ARGUMENT names the option that is out of range, and the range.
absl::Status CheckWorkload(const Workload& workload);

// Of a hashed table's changes: a key goes, and for as many another one comes.
inline constexpr double kGoneOfChanges = 0.25;

// What a record takes in a row, with its lengths.
size_t RecordBytes(const Workload& workload);

// About what a table's signed manifest takes.
inline constexpr double kManifestBytes = 400;

// Keys whose rows are full at the last epoch of the workload's term, so that they have to wait for
// the next one (`shoal table build --keep-rows`). Records have one length; where lengths differ,
// more rows are full.
double DisplacedKeys(const Workload& workload, const Layout& layout);

// The layout of the records in rows of about `row_bytes`. In the dense layout row_bytes is rounded
// down to whole records, as by `shoal table build`; in the hashed layout rows are about as full as
// table::Place makes them for equal records. INVALID_ARGUMENT if a record does not fit, or there
// are more rows than a table can have. RESOURCE_EXHAUSTED if no room is enough for the workload's
// term.
absl::StatusOr<Layout> LayOut(const Workload& workload, uint32_t row_bytes);

// What changes between two epochs of a table in rows of this layout, and what every client fetches
// for that at each epoch.
struct EpochChange {
  double rows = 0;     // of which another epoch has other bytes
  double records = 0;  // that are new or have another value
  double gone = 0;
  // Manifest, and the lists that say which epoch changed each row last (table/row_versions.h), as
  // their encoder makes them of random changes; on average over the epochs of a block.
  double list_bytes = 0;
  double base_bytes = 0;  // of the list that a client fetches once, when it begins
};
EpochChange ChangeOf(const Workload& workload, const Layout& layout);

// Of the placement: a byte for every bucket.
double PlacementBytes(const Workload& workload);

// What a client fetches before its first lookup in a table of this layout: manifest, placement, and
// all lists that say which epoch changed each row last. Takes some milliseconds.
double FirstBytes(const Workload& workload, const Layout& layout);

// Row sizes to try in a search, rising.
std::vector<uint32_t> RowSizes(const Workload& workload);

// Bytes of a batch of `queries` queries over as many positions (wire/query_batch.h).
double QueryBatchBytes(double queries);

// Predicts everything in the plan but the alternatives, and of a term everything but the ways
// beside it (terms.h). INVALID_ARGUMENT if phi is larger than the number of rows, or a party would
// have more positions than 32 bits can name.
absl::StatusOr<Plan> Predict(const Workload& workload, const Layout& layout,
                             const noise::Choice& noise, const UnitCosts& costs);

// Returns the plan whose row size takes the least processor time among those within 10 % of the
// lowest price: of the round, or of the whole term if there is one; with Aim::kTime among all. A
// `row_bytes` other than 0 fixes the row size. Fills `by_row_bytes`.
absl::StatusOr<Plan> ChooseRows(const Workload& workload, uint32_t row_bytes,
                                const noise::Choice& noise, const UnitCosts& costs,
                                Aim aim = Aim::kPrice);

// The cost in ns of one of `count` items.
double CostAt(const Curve& curve, double count);
// The wall time of `cpu_s` of processor time, a share `serial` of which one thread spends alone.
double WallSeconds(double cpu_s, double serial, double cores);
// At the workload's prices.
void FillCost(const Workload& workload, double core_hours, double gigabytes, Cost& cost);
// All but max_per_row.
void FillNoise(const noise::Choice& noise, Noise& n);

// Processor time in ns to make an onion of so many layers.
double SealNs(const UnitCosts& unit, uint32_t layers);

// One line of a table of alternatives.
Alternative Summarise(const Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_MODEL_H_
