// Which keys of a row that is too full are displaced, until a table with another placement.
#ifndef SHOAL_SRC_TABLE_DISPLACE_H_
#define SHOAL_SRC_TABLE_DISPLACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/table/row.h"

namespace shoal::table {

// A key of a hashed row, with its record.
struct RowKey {
  uint32_t record_bytes;
  KeyMark mark;
  // Whether the row held the key in the epoch before.
  bool was_held;
};

struct Displacement {
  std::vector<size_t> keys;  // indices of the displaced keys, rising; the row holds all others
  Displaced displaced;       // what the row says about them
};

// Displaces few keys, so that the other records and what the row says about the displaced ones fit
// `row_bytes`: one key if one will do, of these one that the row did not hold before, of these the
// one with the shortest record; where no single one will do, the one with the longest record, and
// then others. So a key that somebody watches rarely gives way to a new one, and the same keys are
// displaced in an epoch in which nothing changes.
//
// If marks have no room, because records are hardly longer than marks or more than kMaxMarks keys
// are displaced, the row says that it may lack any key. row_bytes >= 2 (checked).
Displacement Displace(std::span<const RowKey> keys, uint32_t row_bytes);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_DISPLACE_H_
