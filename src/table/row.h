// The bytes of one row. Everything is canonical: one set of records has one encoding, and a
// decoder refuses any other bytes, so that a signed row is a proof about every key.
//
// Hashed layout: records in strictly rising order of their keys (bytewise), each
//     varint(key_bytes + 1)  varint(value_bytes)  key  value
// then zeros to the end of the row. Varints are base 128, low group first, at most 3 bytes, in the
// shortest form.
//
// A row is incomplete if it has no room for all of its keys: those that have none are displaced. It
// holds, between the records and the zeros,
//     a zero  n (1..254)  n marks of 4 bytes, strictly rising bytewise: those of the displaced keys
// or, if marks of all displaced keys have no room either,
//     a zero  255: any key that the row does not hold may be displaced
// A key's mark is the first 4 bytes of its hash (placement.h). A key that is in no record is proved
// absent if its mark is not there, and a row with the byte 255 proves no key absent. Each mark
// makes one absent key in 2^32 look displaced.
//
// Dense layout: records_per_row slots, each
//     length (0, 1 or 2 bytes, little endian)  value_bytes bytes, zeros after the value
// then zeros to the end of the row. A length of all ones that is more than value_bytes says that
// the value is displaced; the slot's other bytes are zeros.
#ifndef SHOAL_SRC_TABLE_ROW_H_
#define SHOAL_SRC_TABLE_ROW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/wire/manifest.pb.h"

namespace shoal::table {

struct RecordView {
  BytesView key;
  BytesView value;
};

// Bytes that a record takes in a hashed row.
size_t HashedRecordBytes(size_t key_bytes, size_t value_bytes);

// Appends one record to a hashed row. The caller guarantees order and room.
void AppendHashedRecord(BytesView key, BytesView value, Bytes& row);

using KeyMark = std::array<uint8_t, 4>;

// The most marks that a row can have.
inline constexpr size_t kMaxMarks = 254;

// Which keys a hashed row has no room for.
struct Displaced {
  std::vector<KeyMark> marks;  // strictly rising
  bool any = false;            // any key may be displaced; there are no marks

  bool none() const { return marks.empty() && !any; }
  friend bool operator==(const Displaced&, const Displaced&) = default;
};

// Bytes that these take in a hashed row.
size_t DisplacedBytes(const Displaced& displaced);

// Appends them to the records of a hashed row. The caller guarantees order, at most kMaxMarks, and
// room.
void AppendDisplaced(const Displaced& displaced, Bytes& row);

// The content of a hashed row. Keys and values are views into it.
struct HashedRow {
  std::vector<RecordView> records;
  Displaced displaced;
};

// DATA_LOSS for any byte out of place.
absl::StatusOr<HashedRow> DecodeHashedRow(BytesView row);

// What a hashed row says about one key.
struct HashedFind {
  std::optional<BytesView> value;
  // There is no value, and this row proves nothing: the key may be displaced.
  bool may_be_displaced = false;
  // The row has room for all of its keys.
  bool complete = true;
};

// `mark` is the key's. Checks the whole row as DecodeHashedRow does, in one pass.
absl::StatusOr<HashedFind> FindInHashedRow(BytesView row, BytesView key, const KeyMark& mark);

size_t DenseSlotBytes(const wire::DenseLayout& layout);

// Whether a slot can say that its value is displaced.
bool DenseSlotCanDisplace(const wire::DenseLayout& layout);

// Writes the value of slot `slot`. The caller guarantees that slot < records_per_row and that the
// value has at most value_bytes bytes (exactly so many if length_bytes is 0).
void WriteDenseSlot(const wire::DenseLayout& layout, uint64_t slot, BytesView value,
                    MutableBytes row);

// Writes that the value of the slot is displaced. The caller guarantees that the slot can say so.
void WriteDisplacedDenseSlot(const wire::DenseLayout& layout, uint64_t slot, MutableBytes row);

// The values of a row of which the first `used` slots are used; nothing for one that is displaced.
// DATA_LOSS for any byte out of place.
absl::StatusOr<std::vector<std::optional<BytesView>>> DecodeDenseRow(
    const wire::DenseLayout& layout, uint64_t used, BytesView row);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_ROW_H_
