// What differs between two epochs of a table, for the person who signs the later one.
#ifndef SHOAL_SRC_TABLE_DIFFERENCES_H_
#define SHOAL_SRC_TABLE_DIFFERENCES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/table/table.h"

namespace shoal::table {

struct Differences {
  uint64_t rows_changed = 0;  // in both epochs, with other bytes
  uint64_t rows_new = 0;
  uint64_t rows_gone = 0;
  uint64_t keys_added = 0;
  uint64_t keys_removed = 0;
  uint64_t keys_displaced = 0;  // held before, and now without room (row.h): not known to clients
  uint64_t keys_back = 0;       // displaced before, and now held
  uint64_t keys_moved = 0;      // to another row
  uint64_t values_changed = 0;  // of keys in both epochs
};

// DATA_LOSS if a row is malformed. Keys of rows that differ are held in memory, 32 bytes each.
absl::StatusOr<Differences> Compare(const UnsignedTable& before, const UnsignedTable& after);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_DIFFERENCES_H_
