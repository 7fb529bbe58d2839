// Tables that all parties of a test have signed.
#ifndef SHOAL_SRC_TABLE_TESTING_SIGNED_TABLE_H_
#define SHOAL_SRC_TABLE_TESTING_SIGNED_TABLE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/table/records.h"
#include "src/table/table.h"

namespace shoal::table::testing {

enum class Layout { kHashed, kDense };

// Of a table of the deployment "test" that lasts a day.
inline TableOptions Options(uint32_t row_bytes = 0, uint64_t epoch = 1) {
  return {.name = "words",
          .deployment = "test",
          .epoch = epoch,
          .created_s = roster::testing::kNowS - 100,
          .expires_s = roster::testing::kNowS + 24 * 3600,
          .row_bytes = row_bytes};
}

// Records with the keys "key-0", "key-1" .. or, in a dense table, 0, 1 ..
inline RecordSet Records(size_t n, Layout layout, const std::function<std::string(size_t)>& value) {
  RecordSet records("records");
  for (size_t i = 0; i < n; ++i) {
    const std::string key = absl::StrCat(layout == Layout::kDense ? "" : "key-", i);
    SHOAL_CHECK(records.Add(AsBytes(key), AsBytes(value(i)), i + 1).ok());
  }
  return records;
}

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
