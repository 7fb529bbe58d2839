// The rows that a device asks for: those that it needs, and padding that hides their number.
#ifndef SHOAL_SRC_CLIENT_ROWS_H_
#define SHOAL_SRC_CLIENT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/random.h"

namespace shoal::client {

// A set of row numbers, collected one at a time. Memory: 8 bytes for every distinct row.
class RowSet {
 public:
  void Add(uint32_t row);
  // Returns the rows in rising order and empties the set.
  std::vector<uint32_t> Take();

 private:
  void Compact();
  std::vector<uint32_t> rows_;
};

// The most that PaddedCount's `pad_to` may be.
inline constexpr uint32_t kMaxPadTo = 1 << 24;

// The number of queries for this many distinct rows: the next multiple of `pad_to` (at least one),
// but at most the table's number of rows.
uint32_t PaddedCount(size_t distinct_rows, uint32_t pad_to, uint64_t table_rows);

// Adds uniform numbers below `bound` to `distinct`, which is rising and stays so, until there are
// `count`. `count` is at most half of `bound` (checked).
void DrawDistinct(size_t count, uint64_t bound, RandomSource& random,
                  std::vector<uint32_t>& distinct);

// Returns `rows` (distinct) with other random rows, `count` distinct rows in all, in random order.
// Memory: up to 20 bytes a query.
std::vector<uint32_t> PadRows(std::span<const uint32_t> rows, uint32_t count, uint64_t table_rows,
                              RandomSource& random);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROWS_H_
