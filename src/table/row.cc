#include "src/table/row.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::table {
namespace {

// Lengths up to kMaxValueBytes take at most three groups of seven bits.
constexpr size_t kMaxVarintBytes = 3;

size_t VarintBytes(size_t value) { return value < 1u << 7 ? 1 : value < 1u << 14 ? 2 : 3; }

void AppendVarint(size_t value, Bytes& to) {
  while (value >= 0x80) {
    to.push_back(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  to.push_back(static_cast<uint8_t>(value));
}

absl::Status BadRow(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("row: ", what));
}

// Takes a varint off the front of `bytes`.
absl::StatusOr<size_t> TakeVarint(BytesView& bytes) {
  size_t value = 0;
  for (size_t i = 0; i < kMaxVarintBytes; ++i) {
    if (i >= bytes.size()) return BadRow("a length is cut off");
    const uint8_t group = bytes[i];
    value |= static_cast<size_t>(group & 0x7f) << (7 * i);
    if ((group & 0x80) == 0) {
      if (i > 0 && group == 0) return BadRow("a length is not in its shortest form");
      bytes = bytes.subspan(i + 1);
      return value;
    }
  }
  return BadRow("a length is too long");
}

bool AllZero(BytesView bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

// Calls visit(key, value) for every record, in order.
template <typename Visit>
absl::Status ForEachRecord(BytesView row, Visit visit) {
  BytesView rest = row;
  BytesView previous;
  bool first = true;
  while (!rest.empty() && rest[0] != 0) {
    SHOAL_ASSIGN_OR_RETURN(const size_t key_bytes_plus_1, TakeVarint(rest));
    SHOAL_ASSIGN_OR_RETURN(const size_t value_bytes, TakeVarint(rest));
    const size_t key_bytes = key_bytes_plus_1 - 1;  // not 0: the first byte is not
    if (key_bytes > rest.size() || value_bytes > rest.size() - key_bytes) {
      return BadRow("a record runs over the end");
    }
    const BytesView key = rest.first(key_bytes);
    const BytesView value = rest.subspan(key_bytes, value_bytes);
    rest = rest.subspan(key_bytes + value_bytes);
    if (!first && AsText(previous) >= AsText(key)) return BadRow("keys are out of order");
    first = false;
    previous = key;
    visit(key, value);
  }
  if (!AllZero(rest)) return BadRow("bytes after the last record");
  return absl::OkStatus();
}

}  // namespace

size_t HashedRecordBytes(size_t key_bytes, size_t value_bytes) {
  return VarintBytes(key_bytes + 1) + VarintBytes(value_bytes) + key_bytes + value_bytes;
}

void AppendHashedRecord(BytesView key, BytesView value, Bytes& row) {
  AppendVarint(key.size() + 1, row);
  AppendVarint(value.size(), row);
  Append(row, key);
  Append(row, value);
}

absl::StatusOr<std::vector<RecordView>> DecodeHashedRow(BytesView row) {
  std::vector<RecordView> records;
  SHOAL_RETURN_IF_ERROR(ForEachRecord(row, [&](BytesView key, BytesView value) {
    records.push_back({key, value});
  }));
  return records;
}

absl::StatusOr<std::optional<BytesView>> FindInHashedRow(BytesView row, BytesView key) {
  std::optional<BytesView> found;
  SHOAL_RETURN_IF_ERROR(ForEachRecord(row, [&](BytesView candidate, BytesView value) {
    if (AsText(candidate) == AsText(key)) found = value;
  }));
  return found;
}

size_t DenseSlotBytes(const wire::DenseLayout& layout) {
  return size_t{layout.length_bytes()} + layout.value_bytes();
}

void WriteDenseSlot(const wire::DenseLayout& layout, uint64_t slot, BytesView value,
                    MutableBytes row) {
  const size_t slot_bytes = DenseSlotBytes(layout);
  SHOAL_CHECK(slot < layout.records_per_row() && (slot + 1) * slot_bytes <= row.size());
  SHOAL_CHECK(layout.length_bytes() == 0 ? value.size() == layout.value_bytes()
                                         : value.size() <= layout.value_bytes());
  MutableBytes out = row.subspan(slot * slot_bytes, slot_bytes);
  std::fill(out.begin(), out.end(), 0);
  for (uint32_t i = 0; i < layout.length_bytes(); ++i) {
    out[i] = static_cast<uint8_t>(value.size() >> (8 * i));
  }
  std::copy(value.begin(), value.end(), out.begin() + layout.length_bytes());
}

absl::StatusOr<std::vector<BytesView>> DecodeDenseRow(const wire::DenseLayout& layout,
                                                      uint64_t used, BytesView row) {
  const size_t slot_bytes = DenseSlotBytes(layout);
  SHOAL_CHECK(used <= layout.records_per_row() && used * slot_bytes <= row.size());
  std::vector<BytesView> values;
  values.reserve(used);
  for (uint64_t slot = 0; slot < used; ++slot) {
    const BytesView bytes = row.subspan(slot * slot_bytes, slot_bytes);
    size_t length = layout.value_bytes();
    if (layout.length_bytes() > 0) {
      length = 0;
      for (uint32_t i = 0; i < layout.length_bytes(); ++i) length |= size_t{bytes[i]} << (8 * i);
      if (length > layout.value_bytes()) return BadRow("a value runs over its slot");
    }
    const BytesView value = bytes.subspan(layout.length_bytes(), length);
    if (!AllZero(bytes.subspan(layout.length_bytes() + length))) {
      return BadRow("bytes after a value");
    }
    values.push_back(value);
  }
  if (!AllZero(row.subspan(used * slot_bytes))) return BadRow("bytes after the last record");
  return values;
}

}  // namespace shoal::table
