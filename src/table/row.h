// The bytes of one row. Everything is canonical: one set of records has one encoding, and a
// decoder refuses any other bytes, so that a signed row is a proof about every key.
//
// Hashed layout: records in strictly rising order of their keys (bytewise), each
//     varint(key_bytes + 1)  varint(value_bytes)  key  value
// then zeros to the end of the row. Varints are base 128, low group first, at most 3 bytes, in the
// shortest form.
//
// Dense layout: records_per_row slots, each
//     length (0, 1 or 2 bytes, little endian)  value_bytes bytes, zeros after the value
// then zeros to the end of the row.
#ifndef SHOAL_SRC_TABLE_ROW_H_
#define SHOAL_SRC_TABLE_ROW_H_

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

// The records of a hashed row, views into it. DATA_LOSS for any byte out of place.
absl::StatusOr<std::vector<RecordView>> DecodeHashedRow(BytesView row);

// The value, or nothing if the row proves the key absent. Checks the whole row as DecodeHashedRow
// does, in one pass.
absl::StatusOr<std::optional<BytesView>> FindInHashedRow(BytesView row, BytesView key);

size_t DenseSlotBytes(const wire::DenseLayout& layout);

// Writes the value of slot `slot`. The caller guarantees that slot < records_per_row and that the
// value has at most value_bytes bytes (exactly so many if length_bytes is 0).
void WriteDenseSlot(const wire::DenseLayout& layout, uint64_t slot, BytesView value,
                    MutableBytes row);

// The values of a row of which the first `used` slots are used. DATA_LOSS for any byte out of
// place.
absl::StatusOr<std::vector<BytesView>> DecodeDenseRow(const wire::DenseLayout& layout,
                                                      uint64_t used, BytesView row);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_ROW_H_
