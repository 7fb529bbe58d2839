// Compares all ways to look records up, those for one server, for two and for a chain, and proposes
// the cheapest of those that do for what was asked.
#ifndef SHOAL_SRC_PLAN_PROPOSAL_H_
#define SHOAL_SRC_PLAN_PROPOSAL_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/noise/search.h"
#include "src/plan/engines.h"
#include "src/plan/model.h"
#include "src/plan/plan.pb.h"
#include "src/plan/two_tiers.h"

namespace shoal::plan {

// On whom a client relies not to learn what it asks.
enum class Trust {
  kOne,    // on nobody: one server, which may be malicious
  kTwo,    // on two parties that do not collude
  kChain,  // on one honest party among all
};
// "one", "two", "chain".
absl::string_view TrustName(Trust trust);
// INVALID_ARGUMENT names the option --trust.
absl::StatusOr<Trust> ParseTrust(absl::string_view name);

// Queries a round from which on something holds, and up to which; `until` is 0 if it holds for all
// above, both are 0 if it never does.
struct Range {
  double from = 0, until = 0;
};
// The first range of numbers of queries, to one per mille of each end.
Range WhereHolds(const std::function<std::optional<bool>(double)>& holds);

// Fills `two_tiers`, `proposal` and the points' two_tiers_seconds_per_query of a plan of a round
// that CompareEngines has filled. The engines' and the chain's costs are those of the plan.
// `two_tiers` says why there are none if it is an error. INVALID_ARGUMENT if the plan has a term.
absl::Status Propose(const Workload& workload, uint32_t row_bytes, const noise::Choice& noise,
                     const absl::StatusOr<TwoTiersChoice>& two_tiers, Trust trust,
                     const EngineOptions& options, Plan& plan);

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_PROPOSAL_H_
