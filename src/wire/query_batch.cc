#include "src/wire/query_batch.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace shoal::wire {
namespace {

constexpr uint8_t kBitmap = 0;
constexpr uint8_t kGaps = 1;
constexpr size_t kHeaderBytes = 1 + 4;

uint64_t BitmapBytes(uint32_t position_count) { return (uint64_t{position_count} + 7) / 8; }

size_t VarintBytes(uint32_t value) {
  size_t n = 1;
  while (value >= 0x80) value >>= 7, ++n;
  return n;
}

// Whether the bitmap is surely the smaller encoding, as every gap takes at least one byte.
bool SurelyBitmap(uint64_t count, uint64_t bitmap_bytes) { return count >= bitmap_bytes; }

// Bytes of the positions encoded as gaps if below `enough`; otherwise any number not below
// `enough`.
uint64_t GapBytes(const std::vector<uint32_t>& positions, uint64_t enough) {
  if (SurelyBitmap(positions.size(), enough)) return enough;
  uint64_t total = 0;
  uint32_t next = 0;  // the lowest position not yet passed
  for (uint32_t position : positions) {
    total += VarintBytes(position - next);
    next = position + 1;
  }
  return total;
}

// Begins an encoding: only kind and count are written. It uses `memory`, which must be zeros, if
// that is large enough.
Bytes Begin(uint8_t kind, uint64_t used_bytes, uint32_t count, Bytes memory = {}) {
  memory.resize(kHeaderBytes + used_bytes + 4 * uint64_t{count});
  memory[0] = kind;
  StoreLe(memory.data() + 1, count);
  return memory;
}

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("query batch: ", why));
}

}  // namespace

uint64_t MaxQueryBatchBytes(uint32_t position_count) {
  return kHeaderBytes + BitmapBytes(position_count) + 4 * uint64_t{position_count};
}

QueryBatchWriter::QueryBatchWriter(uint32_t count, uint32_t position_count, Bytes memory)
    : count_(count), position_count_(position_count) {
  SHOAL_CHECK(count <= position_count);
  const uint64_t bitmap_bytes = BitmapBytes(position_count);
  if (SurelyBitmap(count, bitmap_bytes)) {
    full_ = Begin(kBitmap, bitmap_bytes, count, std::move(memory));
    bitmap_ = full_.data() + kHeaderBytes;
    tallies_ = bitmap_ + bitmap_bytes;
  } else {
    sparse_.positions.resize(count);
    sparse_.tallies.resize(count);
  }
}

Bytes QueryBatchWriter::Take() && {
  return bitmap_ != nullptr ? std::move(full_) : EncodeQueryBatch(sparse_, position_count_);
}

Bytes EncodeQueryBatch(const QueryBatch& batch, uint32_t position_count) {
  const size_t count = batch.positions.size();
  SHOAL_CHECK(batch.tallies.size() == count);
  const uint64_t bitmap_bytes = BitmapBytes(position_count);
  const uint64_t gap_bytes = GapBytes(batch.positions, bitmap_bytes);
  const bool gaps = gap_bytes < bitmap_bytes;
  Bytes out =
      Begin(gaps ? kGaps : kBitmap, gaps ? gap_bytes : bitmap_bytes, static_cast<uint32_t>(count));
  uint8_t* at = out.data() + kHeaderBytes;
  uint64_t next = 0;
  for (uint32_t position : batch.positions) {
    SHOAL_CHECK(position >= next && position < position_count);
    if (gaps) {
      uint32_t gap = static_cast<uint32_t>(position - next);
      for (; gap >= 0x80; gap >>= 7) *at++ = static_cast<uint8_t>(gap | 0x80);
      *at++ = static_cast<uint8_t>(gap);
    } else {
      at[position / 8] |= static_cast<uint8_t>(1u << (position % 8));
    }
    next = uint64_t{position} + 1;
  }
  if (!gaps) at += bitmap_bytes;
  if (count > 0) std::memcpy(at, batch.tallies.data(), 4 * count);
  return out;
}

absl::StatusOr<QueryBatch> DecodeQueryBatch(BytesView encoded, uint32_t position_count) {
  if (encoded.size() < kHeaderBytes) return Bad("truncated header");
  const uint8_t kind = encoded[0];
  const uint32_t count = LoadLe<uint32_t>(encoded.data() + 1);
  if (kind > kGaps) return Bad(absl::StrCat("unknown kind ", kind));
  if (count > position_count) {
    return Bad(absl::StrCat(count, " queries for ", position_count, " positions"));
  }
  BytesView rest = encoded.subspan(kHeaderBytes);
  if (rest.size() < 4 * uint64_t{count}) return Bad("truncated tallies");
  const BytesView used = rest.first(rest.size() - 4 * uint64_t{count});
  const BytesView tallies = rest.subspan(used.size());
  const uint64_t bitmap_bytes = BitmapBytes(position_count);

  QueryBatch batch;
  batch.positions.reserve(count);
  if (kind == kBitmap) {
    if (used.size() != bitmap_bytes) return Bad("wrong length of the bitmap");
    for (size_t byte = 0; byte < used.size(); ++byte) {
      // A shortcut for eight used positions, as nearly all positions are used in most batches.
      if (used[byte] == 0xff && batch.positions.size() + 8 <= count &&
          8 * (byte + 1) <= position_count) {
        const size_t at = batch.positions.size();
        batch.positions.resize(at + 8);
        for (uint32_t i = 0; i < 8; ++i) {
          batch.positions[at + i] = static_cast<uint32_t>(8 * byte) + i;
        }
        continue;
      }
      for (uint32_t bits = used[byte]; bits != 0; bits &= bits - 1) {
        const uint64_t position = 8 * byte + static_cast<uint64_t>(std::countr_zero(bits));
        if (position >= position_count) return Bad("bitmap has bits past its end");
        if (batch.positions.size() == count) return Bad("bitmap has more bits than its count");
        batch.positions.push_back(static_cast<uint32_t>(position));
      }
    }
    if (batch.positions.size() != count) return Bad("bitmap has fewer bits than its count");
    if (GapBytes(batch.positions, bitmap_bytes) < bitmap_bytes)
      return Bad("bitmap where gaps are smaller");
  } else {
    if (used.size() >= bitmap_bytes) return Bad("gaps where the bitmap is not larger");
    uint64_t next = 0;
    size_t at = 0;
    for (uint32_t i = 0; i < count; ++i) {
      uint64_t gap = 0;
      for (int shift = 0;; shift += 7) {
        if (at == used.size()) return Bad("truncated gaps");
        if (shift > 28) return Bad("gap too long");
        const uint8_t byte = used[at++];
        gap |= uint64_t{byte & 0x7fu} << shift;
        if (byte < 0x80) {
          if (byte == 0 && shift > 0) return Bad("gap not in shortest form");
          break;
        }
      }
      const uint64_t position = next + gap;
      if (position >= position_count) {
        return Bad(absl::StrCat("position ", position, " of ", position_count));
      }
      batch.positions.push_back(static_cast<uint32_t>(position));
      next = position + 1;
    }
    if (at != used.size()) return Bad("bytes left over after the gaps");
  }

  batch.tallies.resize(count);
  if (count > 0) std::memcpy(batch.tallies.data(), tallies.data(), tallies.size());
  uint32_t largest = 0;
  for (uint32_t tally : batch.tallies) largest = std::max(largest, tally);
  if (largest >= kTallyModulus) {
    return Bad(absl::StrCat("tally ", largest, " is not below 2^31 - 1"));
  }
  return batch;
}

}  // namespace shoal::wire
