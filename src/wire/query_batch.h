// A batch of queries between two parties: which positions are used, and a tally for each.
//
//   u8   kind: 0 = bitmap, 1 = gaps; whichever is smaller, the bitmap on a tie
//   u32  count of used positions
//   kind 0: ceil(N / 8) bytes, position i is bit i % 8 (lowest first) of byte i / 8
//   kind 1: for every used position in order, the number of unused positions between it and the
//           used one before, as an unsigned LEB128 of the shortest form
//   count * u32: tallies, in position order, each below p = 2^31 - 1
//
// In a round of two tiers (docs/protocol.md, section 11) records take the tallies' place: any
// bytes, as many in each as both sides know. One batch has one encoding: the decoder refuses any
// other.
#ifndef SHOAL_SRC_WIRE_QUERY_BATCH_H_
#define SHOAL_SRC_WIRE_QUERY_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/check.h"

namespace shoal::wire {

inline constexpr uint32_t kTallyModulus = (1u << 31) - 1;

struct QueryBatch {
  std::vector<uint32_t> positions;  // strictly rising
  std::vector<uint32_t> tallies;    // of the same length
};

// A batch, or a part of one where it lies: positions are counted from `first`.
struct QueryBatchView {
  std::span<const uint32_t> positions, tallies;
  uint32_t first = 0;
};
inline QueryBatchView ViewOf(const QueryBatch& batch) {
  return {.positions = batch.positions, .tallies = batch.tallies};
}

// `position_count` is N, the number of positions that the receiving party has. The batch must be
// well formed (checked).
Bytes EncodeQueryBatch(const QueryBatchView& batch, uint32_t position_count);
inline Bytes EncodeQueryBatch(const QueryBatch& batch, uint32_t position_count) {
  return EncodeQueryBatch(ViewOf(batch), position_count);
}
// The length of that, without making it.
uint64_t EncodedBytes(const QueryBatch& batch, uint32_t position_count);

// Takes a batch that is made in parts, by one or several threads.
class QueryBatchWriter {
 public:
  enum class Form { kMessage, kBatch };
  // `count` is at most position_count (checked). For a message, writes the encoding to `memory`,
  // which must be zeros, if `memory` is large enough (MaxQueryBatchBytes) and `count` is so high
  // that any positions are encoded as a bitmap.
  QueryBatchWriter(uint32_t count, uint32_t position_count, Form form = Form::kMessage,
                   Bytes memory = {});
  QueryBatchWriter(const QueryBatchWriter&) = delete;
  QueryBatchWriter& operator=(const QueryBatchWriter&) = delete;

  // Writes query number `index`. Every index below the count must be put once, and positions must
  // rise with indices. Two threads must not put positions of the same group of eight. Index and
  // position must be in range (checked).
  void Put(uint64_t index, uint32_t position, uint32_t tally) {
    SHOAL_CHECK(index < count_ && position < position_count_);
    if (bitmap_ != nullptr) {
      bitmap_[position / 8] |= static_cast<uint8_t>(1u << (position % 8));
      StoreLe(tallies_ + 4 * index, tally);
    } else {
      sparse_.positions[index] = position;
      sparse_.tallies[index] = tally;
    }
  }
  // The encoding.
  Bytes Take() &&;
  // What was put, for the form kBatch (checked).
  QueryBatch TakeBatch() &&;

 private:
  const uint32_t count_, position_count_;
  Bytes full_;
  uint8_t *bitmap_ = nullptr, *tallies_ = nullptr;  // in full_, or null
  QueryBatch sparse_;
};

// A batch whose positions are divided into slices, which are at several machines. Its encoding is
// the header, then every slice's part of the used positions, then every slice's tallies. A slice's
// part can be made where the slice is, by whoever knows these facts about all slices, in order.
struct QuerySlice {
  uint64_t first_position = 0, positions = 0;  // of the batch's that are the slice's
  uint64_t used = 0;
  uint64_t first_used = 0, last_used = 0;  // among all positions, if any is used
  uint64_t later_gap_bytes = 0;            // of the gaps after first_used, in kind 1
  // The used ones of the slice's positions that lie in a byte of the bitmap which begins before the
  // slice.
  uint64_t first_bits = 0;
};
// Positions of `batch` are counted from the slice's first one, and below `positions` (checked).
QuerySlice DescribeSlice(const QueryBatch& batch, uint64_t first_position, uint64_t positions);
// Bytes of each slice's part of the used positions; the first one begins with the header.
std::vector<uint64_t> UsedBytes(std::span<const QuerySlice> slices);
// The part of slice `number`.
Bytes EncodeUsed(const QueryBatch& batch, std::span<const QuerySlice> slices, size_t number);
// Its tallies.
BytesView EncodedTallies(const QueryBatch& batch);

// INVALID_ARGUMENT for anything that EncodeQueryBatch cannot have made for this N.
absl::StatusOr<QueryBatch> DecodeQueryBatch(BytesView encoded, uint32_t position_count);

// The same checks, without making the batch: OK exactly if DecodeQueryBatch is, and else its error.
absl::Status CheckQueryBatch(BytesView encoded, uint32_t position_count);
// The number of queries that an encoding of which that holds says.
uint32_t EncodedQueries(BytesView encoded);
// Decodes behind what is in `batch`, with positions counted from `first` on. The errors of
// DecodeQueryBatch, after which the batch is of no use.
absl::Status AppendQueryBatch(BytesView encoded, uint32_t position_count, uint32_t first,
                              QueryBatch& batch);

// Bytes of the longest encoding of any batch over N positions.
uint64_t MaxQueryBatchBytes(uint32_t position_count);

// A batch with records in place of tallies.
struct RecordBatch {
  std::vector<uint32_t> positions;  // strictly rising
  size_t record_bytes = 0;
  Bytes records;  // one after the other, in position order
};

// Takes such a batch record by record, on one or several threads, and encodes it.
class RecordBatchWriter {
 public:
  // `count` is at most position_count, and record_bytes not 0 (checked).
  RecordBatchWriter(uint32_t count, uint32_t position_count, size_t record_bytes);
  RecordBatchWriter(const RecordBatchWriter&) = delete;
  RecordBatchWriter& operator=(const RecordBatchWriter&) = delete;

  // Writes record number `index`, whose length is checked, as the other arguments are. Every index
  // below the count must be put once, and positions must rise with indices (checked by Take).
  void Put(uint64_t index, uint32_t position, BytesView record);
  // The encoding.
  Bytes Take() &&;

 private:
  const uint32_t position_count_;
  const size_t record_bytes_;
  std::vector<uint32_t> positions_;
  Bytes encoded_;  // header and records, with room for a bitmap between them
};

// INVALID_ARGUMENT for anything that a RecordBatchWriter cannot have made for this N and this
// length of a record, which is not 0 (checked).
absl::StatusOr<RecordBatch> DecodeRecordBatch(BytesView encoded, uint32_t position_count,
                                              size_t record_bytes);

// Bytes of the longest encoding of any batch of records over N positions.
uint64_t MaxRecordBatchBytes(uint32_t position_count, size_t record_bytes);

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_QUERY_BATCH_H_
