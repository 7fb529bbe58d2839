// What changed from one epoch of a table to the next, as engines whose clients keep XORs of rows
// send it: for each changed row u64 row, and the XOR of its record before and after. Rows rise.
#ifndef SHOAL_SRC_PIR_KIT_ROW_CHANGES_H_
#define SHOAL_SRC_PIR_KIT_ROW_CHANGES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"

namespace shoal::pir {

struct RowChange {
  uint64_t row = 0;
  BytesView difference;  // record_bytes
};

// The changes point into `changes`. INVALID_ARGUMENT for rows that there are not, that do not rise,
// or that are cut off.
absl::StatusOr<std::vector<RowChange>> ParseRowChanges(BytesView changes, uint64_t rows,
                                                       uint32_t record_bytes);

// INVALID_ARGUMENT unless all of them are below `rows`, in ascending order.
absl::Status CheckChangedRows(std::span<const uint64_t> changed_rows, uint64_t rows);

// Takes changed rows into a table at a server: each is copied to where `record_at` says. Returns
// the changes, if they have `max_bytes` at most.
std::optional<Bytes> TakeChangedRows(
    std::span<const uint64_t> changed_rows, uint32_t record_bytes, uint64_t max_bytes,
    const std::function<MutableBytes(uint64_t row)>& record_at,
    const std::function<void(uint64_t row, MutableBytes out)>& copy);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_ROW_CHANGES_H_
