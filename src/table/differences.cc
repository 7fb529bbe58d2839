#include "src/table/differences.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/table/row.h"

namespace shoal::table {
namespace {

// A record of a row that is not the same in both epochs. Keys of a dense table are numbers, whose
// text is made here.
struct Placed {
  std::string dense_key = {};
  BytesView hashed_key = {};
  BytesView value = {};
  uint64_t row = 0;

  absl::string_view key() const { return dense_key.empty() ? AsText(hashed_key) : dense_key; }
};

absl::Status AddRecords(const UnsignedTable& table, uint64_t row, std::vector<Placed>& to) {
  const wire::Manifest& manifest = table.manifest();
  if (manifest.has_dense()) {
    const uint64_t per_row = manifest.dense().records_per_row();
    const uint64_t first = row * per_row;
    SHOAL_ASSIGN_OR_RETURN(
        const std::vector<std::optional<BytesView>> values,
        DecodeDenseRow(manifest.dense(), std::min(per_row, manifest.records() - first),
                       table.row(row)));
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].has_value()) continue;
      to.push_back({.dense_key = absl::StrCat(first + i), .value = *values[i], .row = row});
    }
    return absl::OkStatus();
  }
  SHOAL_ASSIGN_OR_RETURN(const HashedRow decoded, DecodeHashedRow(table.row(row)));
  for (const RecordView& record : decoded.records) {
    to.push_back({.hashed_key = record.key, .value = record.value, .row = row});
  }
  return absl::OkStatus();
}

// Whether the table has no room for the key, or may have none.
bool IsDisplaced(const UnsignedTable& table, absl::string_view key) {
  if (table.manifest().incomplete_rows() == 0) return false;
  const absl::StatusOr<uint64_t> row = table.map().RowOf(AsBytes(key));
  return row.ok() &&
         absl::IsUnavailable(table.map().Find(*row, table.row(*row), AsBytes(key)).status());
}

}  // namespace

absl::StatusOr<Differences> Compare(const UnsignedTable& before, const UnsignedTable& after) {
  Differences out;
  // A row with the same bytes has the same records, unless the layout says otherwise.
  const bool same_layout =
      before.row_bytes() == after.row_bytes() &&
      before.manifest().has_dense() == after.manifest().has_dense() &&
      before.manifest().dense().records_per_row() == after.manifest().dense().records_per_row() &&
      before.manifest().dense().value_bytes() == after.manifest().dense().value_bytes() &&
      before.manifest().dense().length_bytes() == after.manifest().dense().length_bytes() &&
      (before.manifest().records() == after.manifest().records() || before.manifest().has_hashed());
  std::vector<Placed> old_records, new_records;
  for (uint64_t row = 0; row < std::max(before.rows(), after.rows()); ++row) {
    const bool was = row < before.rows(), is = row < after.rows();
    const bool same = was && is && std::ranges::equal(before.row(row), after.row(row));
    out.rows_changed += was && is && !same;
    out.rows_new += !was;
    out.rows_gone += !is;
    if (same && same_layout) continue;
    if (was) SHOAL_RETURN_IF_ERROR(AddRecords(before, row, old_records));
    if (is) SHOAL_RETURN_IF_ERROR(AddRecords(after, row, new_records));
  }
  const auto by_key = [](const Placed& a, const Placed& b) { return a.key() < b.key(); };
  std::ranges::sort(old_records, by_key);
  std::ranges::sort(new_records, by_key);
  const auto gone = [&](const Placed& record) {
    ++(IsDisplaced(after, record.key()) ? out.keys_displaced : out.keys_removed);
  };
  auto old = old_records.begin();
  for (const Placed& record : new_records) {
    for (; old != old_records.end() && old->key() < record.key(); ++old) gone(*old);
    if (old == old_records.end() || old->key() != record.key()) {
      ++(IsDisplaced(before, record.key()) ? out.keys_back : out.keys_added);
      continue;
    }
    out.keys_moved += old->row != record.row;
    out.values_changed += !std::ranges::equal(old->value, record.value);
    ++old;
  }
  for (; old != old_records.end(); ++old) gone(*old);
  return out;
}

}  // namespace shoal::table
