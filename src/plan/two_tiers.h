// What a round of two tiers costs (docs/protocol.md, section 11): noise for buckets of rows, and
// the row inside its bucket hidden as by two servers that do not collude.
//
// A round has two halves. Each is a chain of two parties, whose head shuffles Q queries with its
// own S noise queries, S = mean noise * B for B buckets, and whose tail answers Q + S. Each party
// is the head of one half and the tail of the other.
#ifndef SHOAL_SRC_PLAN_TWO_TIERS_H_
#define SHOAL_SRC_PLAN_TWO_TIERS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/query_buckets.h"
#include "src/noise/search.h"
#include "src/plan/model.h"
#include "src/plan/plan.pb.h"

namespace shoal::plan {

// The least noise for the plan's privacy if at most so many of a client's queries are for one
// bucket. Errors as noise::FindLeastNoise.
using NoiseFor = std::function<absl::StatusOr<noise::Choice>(uint32_t most_in_bucket)>;

// FAILED_PRECONDITION names what two tiers cannot have: other than two parties, several machines of
// one, a term.
absl::Status CheckTwoTiers(const Workload& workload);

// The noise of buckets, and what it is for.
struct BucketNoise {
  uint32_t most_in_bucket = 1;
  noise::Choice choice;
};

// One round over so many buckets of the layout's rows. INVALID_ARGUMENT if a table of that layout
// cannot have them, if phi is larger than what most_in_bucket allows over all buckets, or if a
// party would have more positions than 32 bits can name.
absl::StatusOr<TwoTiers> PredictTwoTiers(const Workload& workload, const Layout& layout,
                                         uint64_t buckets, const BucketNoise& noise,
                                         const UnitCosts& costs);

// Numbers of buckets to try for a table of so many rows, rising: those of 64 rows and more, up to
// the most that a bucket can have. None if the table is too small for two.
std::vector<uint64_t> BucketCounts(uint64_t rows);

// Rows and buckets for a workload, as ChooseRows chooses rows: of those within 10 % of the lowest
// price the ones with the least processor time (Aim::kPrice), or the least processor time of all.
class TwoTiersChoice {
 public:
  // Looks for the noise once. A `most_in_bucket` other than 0 is given; else it is the least that
  // lets a random list of phi keys be asked (noise::LeastMostInBucket) with about the best number
  // of buckets. Layouts are those of row_bytes, or of all RowSizes if that is 0.
  // FAILED_PRECONDITION as CheckTwoTiers; RESOURCE_EXHAUSTED if no layout has buckets that do;
  // errors of `noise_for`.
  static absl::StatusOr<TwoTiersChoice> Create(const Workload& workload, uint32_t row_bytes,
                                               uint32_t most_in_bucket,
                                               const noise::Choice& one_in_bucket,
                                               const NoiseFor& noise_for, const UnitCosts& costs);

  // With another number of queries. The first error if no layout has buckets that do.
  absl::StatusOr<TwoTiers> Best(double queries, Aim aim) const;
  const BucketNoise& noise() const { return noise_; }

 private:
  struct Shape {
    Layout layout;
    uint64_t buckets;
    uint32_t least_in_bucket;  // queries of a random list that one bucket has to take
  };
  static std::vector<Shape> ShapesOf(const Workload& workload, uint32_t row_bytes, uint32_t phi);
  TwoTiersChoice(Workload workload, UnitCosts costs, std::vector<Shape> shapes, BucketNoise noise);

  Workload workload_;
  UnitCosts costs_;
  std::vector<Shape> shapes_;
  BucketNoise noise_;
};

}  // namespace shoal::plan

#endif  // SHOAL_SRC_PLAN_TWO_TIERS_H_
