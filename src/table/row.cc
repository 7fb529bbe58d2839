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

// In the place of a number of marks.
constexpr uint8_t kAnyKey = 255;
static_assert(kMaxMarks < kAnyKey);

// What follows the last record: a zero or nothing, and then what has no room.
template <typename VisitMark>
absl::Status ForEachMark(BytesView rest, VisitMark visit_mark, bool& any) {
  any = false;
  if (rest.size() < 2 || rest[1] == 0) {
    return AllZero(rest) ? absl::OkStatus() : BadRow("bytes after the last record");
  }
  const uint8_t count = rest[1];
  rest = rest.subspan(2);
  if (count == kAnyKey) {
    any = true;
    return AllZero(rest) ? absl::OkStatus() : BadRow("bytes after the last record");
  }
  if (rest.size() / sizeof(KeyMark) < count) return BadRow("marks run over the end");
  KeyMark previous;
  for (uint8_t i = 0; i < count; ++i) {
    KeyMark mark;
    std::copy_n(rest.begin(), mark.size(), mark.begin());
    rest = rest.subspan(mark.size());
    if (i > 0 && previous >= mark) return BadRow("marks are out of order");
    previous = mark;
    visit_mark(mark);
  }
  return AllZero(rest) ? absl::OkStatus() : BadRow("bytes after the last mark");
}

// Calls visit(key, value) for every record and visit_mark(mark) for every mark, in order. `any`:
// any key may be displaced.
template <typename Visit, typename VisitMark>
absl::Status ParseHashedRow(BytesView row, Visit visit, VisitMark visit_mark, bool& any) {
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
  return ForEachMark(rest, visit_mark, any);
}

// The length that says that a slot has no room for its value.
size_t DisplacedLength(const wire::DenseLayout& layout) {
  return (size_t{1} << (8 * layout.length_bytes())) - 1;
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

size_t DisplacedBytes(const Displaced& displaced) {
  return displaced.none() ? 0 : 2 + displaced.marks.size() * sizeof(KeyMark);
}

void AppendDisplaced(const Displaced& displaced, Bytes& row) {
  if (displaced.none()) return;
  SHOAL_CHECK(displaced.marks.size() <= kMaxMarks);
  SHOAL_CHECK(!displaced.any || displaced.marks.empty());
  row.push_back(0);
  row.push_back(displaced.any ? kAnyKey : static_cast<uint8_t>(displaced.marks.size()));
  for (const KeyMark& mark : displaced.marks) Append(row, mark);
}

absl::StatusOr<HashedRow> DecodeHashedRow(BytesView row) {
  HashedRow out;
  SHOAL_RETURN_IF_ERROR(ParseHashedRow(
      row,
      [&](BytesView key, BytesView value) {
        out.records.push_back({key, value});
      },
      [&](const KeyMark& mark) { out.displaced.marks.push_back(mark); }, out.displaced.any));
  return out;
}

absl::StatusOr<HashedFind> FindInHashedRow(BytesView row, BytesView key, const KeyMark& mark) {
  HashedFind found;
  bool marked = false, any = false;
  SHOAL_RETURN_IF_ERROR(ParseHashedRow(
      row,
      [&](BytesView candidate, BytesView value) {
        if (AsText(candidate) == AsText(key)) found.value = value;
      },
      [&](const KeyMark& candidate) {
        found.complete = false;
        marked = marked || candidate == mark;
      },
      any));
  found.complete = found.complete && !any;
  found.may_be_displaced = !found.value.has_value() && (marked || any);
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

bool DenseSlotCanDisplace(const wire::DenseLayout& layout) {
  return DisplacedLength(layout) > layout.value_bytes();
}

void WriteDisplacedDenseSlot(const wire::DenseLayout& layout, uint64_t slot, MutableBytes row) {
  SHOAL_CHECK(DenseSlotCanDisplace(layout));
  WriteDenseSlot(layout, slot, {}, row);
  const MutableBytes length = row.subspan(slot * DenseSlotBytes(layout), layout.length_bytes());
  std::fill(length.begin(), length.end(), uint8_t{0xff});
}

absl::StatusOr<std::vector<std::optional<BytesView>>> DecodeDenseRow(
    const wire::DenseLayout& layout, uint64_t used, BytesView row) {
  const size_t slot_bytes = DenseSlotBytes(layout);
  SHOAL_CHECK(used <= layout.records_per_row() && used * slot_bytes <= row.size());
  std::vector<std::optional<BytesView>> values;
  values.reserve(used);
  for (uint64_t slot = 0; slot < used; ++slot) {
    const BytesView bytes = row.subspan(slot * slot_bytes, slot_bytes);
    size_t length = layout.value_bytes();
    if (layout.length_bytes() > 0) {
      length = 0;
      for (uint32_t i = 0; i < layout.length_bytes(); ++i) length |= size_t{bytes[i]} << (8 * i);
      if (length == DisplacedLength(layout) && DenseSlotCanDisplace(layout)) {
        if (!AllZero(bytes.subspan(layout.length_bytes()))) {
          return BadRow("bytes in the slot of a displaced value");
        }
        values.emplace_back();
        continue;
      }
      if (length > layout.value_bytes()) return BadRow("a value runs over its slot");
    }
    const BytesView value = bytes.subspan(layout.length_bytes(), length);
    if (!AllZero(bytes.subspan(layout.length_bytes() + length))) {
      return BadRow("bytes after a value");
    }
    values.emplace_back(value);
  }
  if (!AllZero(row.subspan(used * slot_bytes))) return BadRow("bytes after the last record");
  return values;
}

}  // namespace shoal::table
