#include "src/pir/kit/row_changes.h"

#include <algorithm>
#include <utility>

#include "src/storage/memory.h"

namespace shoal::pir {

absl::StatusOr<std::vector<RowChange>> ParseRowChanges(BytesView changes, uint64_t rows,
                                                       uint32_t record_bytes) {
  const uint64_t each = 8 + uint64_t{record_bytes};
  if (changes.size() % each != 0) {
    return absl::InvalidArgumentError("a delta that ends within a row");
  }
  std::vector<RowChange> parsed(changes.size() / each);
  for (size_t i = 0; i < parsed.size(); ++i) {
    const BytesView change = changes.subspan(i * each, each);
    parsed[i] = {.row = LoadLe<uint64_t>(change.data()), .difference = change.subspan(8)};
    if (parsed[i].row >= rows || (i > 0 && parsed[i].row <= parsed[i - 1].row)) {
      return absl::InvalidArgumentError("a delta whose rows do not rise, or are not there");
    }
  }
  return parsed;
}

absl::Status CheckChangedRows(std::span<const uint64_t> changed_rows, uint64_t rows) {
  for (size_t i = 0; i < changed_rows.size(); ++i) {
    if (changed_rows[i] >= rows || (i > 0 && changed_rows[i] <= changed_rows[i - 1])) {
      return absl::InvalidArgumentError("changed rows that do not rise, or are not there");
    }
  }
  return absl::OkStatus();
}

std::optional<Bytes> TakeChangedRows(
    std::span<const uint64_t> changed_rows, uint32_t record_bytes, uint64_t max_bytes,
    const std::function<MutableBytes(uint64_t row)>& record_at,
    const std::function<void(uint64_t row, MutableBytes out)>& copy) {
  const uint64_t bytes = changed_rows.size() * (8 + uint64_t{record_bytes});
  const bool wanted = bytes <= max_bytes && CheckMemory(bytes, "what changed").ok();
  Bytes changes, old(record_bytes);
  if (wanted) changes.reserve(bytes);
  for (const uint64_t row : changed_rows) {
    const MutableBytes record = record_at(row);
    std::ranges::copy(record, old.begin());
    copy(row, record);
    if (!wanted) continue;
    AppendLe<uint64_t>(changes, row);
    for (size_t i = 0; i < old.size(); ++i) old[i] ^= record[i];
    Append(changes, old);
  }
  if (!wanted) return std::nullopt;
  return changes;
}

}  // namespace shoal::pir
