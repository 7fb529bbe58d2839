#include "src/table/displace.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "src/base/check.h"

namespace shoal::table {
namespace {

// Bytes for the statement that `keys` keys, at least one, are displaced, by one mark for each.
uint64_t BytesOfMarks(size_t keys) { return 2 + keys * sizeof(KeyMark); }
// Bytes for the statement that any key may be displaced.
constexpr uint64_t kBytesOfAny = 2;

// The displaced keys if the statement about n of them takes statement_bytes(n). Nothing if no
// choice fits.
template <typename StatementBytes>
std::optional<std::vector<size_t>> Choose(std::span<const RowKey> keys, uint32_t row_bytes,
                                          size_t most, StatementBytes statement_bytes) {
  uint64_t held_bytes = 0;
  for (const RowKey& key : keys) held_bytes += key.record_bytes;
  std::vector<size_t> held(keys.size());
  std::iota(held.begin(), held.end(), size_t{0});
  std::vector<size_t> displaced;
  while (held_bytes + (displaced.empty() ? 0 : statement_bytes(displaced.size())) > row_bytes) {
    if (held.empty() || displaced.size() == most) return std::nullopt;
    // The bytes that a record must have if its key is to be the last one that is displaced.
    const uint64_t wanted = held_bytes + statement_bytes(displaced.size() + 1) - row_bytes;
    const auto better = [&](size_t a, size_t b) {
      const bool a_will_do = keys[a].record_bytes >= wanted;
      const bool b_will_do = keys[b].record_bytes >= wanted;
      if (a_will_do != b_will_do) return a_will_do;
      if (!a_will_do && keys[a].record_bytes != keys[b].record_bytes) {
        return keys[a].record_bytes > keys[b].record_bytes;
      }
      if (keys[a].was_held != keys[b].was_held) return keys[b].was_held;
      return keys[a].record_bytes < keys[b].record_bytes;
    };
    const auto chosen = std::min_element(held.begin(), held.end(), better);
    displaced.push_back(*chosen);
    held_bytes -= keys[*chosen].record_bytes;
    held.erase(chosen);
  }
  std::sort(displaced.begin(), displaced.end());
  return displaced;
}

}  // namespace

Displacement Displace(std::span<const RowKey> keys, uint32_t row_bytes) {
  SHOAL_CHECK(row_bytes >= kBytesOfAny);
  Displacement out;
  if (auto chosen = Choose(keys, row_bytes, kMaxMarks, BytesOfMarks)) {
    out.keys = *std::move(chosen);
    for (const size_t key : out.keys) out.displaced.marks.push_back(keys[key].mark);
    std::sort(out.displaced.marks.begin(), out.displaced.marks.end());
    // Two keys may have one mark.
    out.displaced.marks.erase(std::unique(out.displaced.marks.begin(), out.displaced.marks.end()),
                              out.displaced.marks.end());
    return out;
  }
  auto chosen = Choose(keys, row_bytes, keys.size(), [](size_t) { return kBytesOfAny; });
  SHOAL_CHECK(chosen.has_value());  // no record at all fits
  out.keys = *std::move(chosen);
  out.displaced.any = true;
  return out;
}

}  // namespace shoal::table
