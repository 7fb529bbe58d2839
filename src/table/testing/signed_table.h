// Tables that all parties of a test have signed.
#ifndef SHOAL_SRC_TABLE_TESTING_SIGNED_TABLE_H_
#define SHOAL_SRC_TABLE_TESTING_SIGNED_TABLE_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/table/records.h"
#include "src/table/table.h"

namespace shoal::table::testing {

enum class Layout { kHashed, kDense };

// What each party signs of a table that comes after `previous`, if that is not null.
inline std::vector<TableShare> SharesOf(const UnsignedTable& content, const PreviousEpoch* previous,
                                        const roster::testing::Parties& parties,
                                        const roster::Roster& roster, ThreadPool& pool) {
  std::vector<TableShare> shares;
  for (uint32_t number = 1; number <= parties.size(); ++number) {
    absl::StatusOr<TableShare> share =
        SignTable(content, previous, roster, parties.key(number), pool);
    SHOAL_CHECK(share.ok());
    shares.push_back(*std::move(share));
  }
  return shares;
}

// Builds a table, and has all parties sign it at this time.
inline Table MakeTable(const RecordSet& records, const TableOptions& options, Layout layout,
                       const roster::testing::Parties& parties, const roster::Roster& roster,
                       uint64_t now_s, RandomSource& random, ThreadPool& pool) {
  const absl::StatusOr<UnsignedTable> content = layout == Layout::kDense
                                                    ? BuildDense(records, options, random)
                                                    : BuildHashed(records, options, random);
  SHOAL_CHECK(content.ok());
  absl::StatusOr<Table> table =
      AggregateTable(*content, roster, SharesOf(*content, options.previous, parties, roster, pool),
                     now_s, random, pool);
  SHOAL_CHECK(table.ok());
  return *std::move(table);
}

}  // namespace shoal::table::testing

#endif  // SHOAL_SRC_TABLE_TESTING_SIGNED_TABLE_H_
