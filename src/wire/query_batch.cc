#include "src/wire/query_batch.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"

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

// Bytes of the positions, which are counted from `first`, encoded as gaps if below `enough`;
// otherwise any number not below `enough`.
uint64_t GapBytes(std::span<const uint32_t> positions, uint32_t first, uint64_t enough) {
  if (SurelyBitmap(positions.size(), enough)) return enough;
  uint64_t total = 0;
  uint32_t next = first;  // the lowest position not yet passed
  for (uint32_t position : positions) {
    total += VarintBytes(position - next);
    next = position + 1;
  }
  return total;
}

// Bytes of the positions in the shorter encoding.
uint64_t GapOrBitmapBytes(std::span<const uint32_t> positions, uint64_t bitmap_bytes) {
  return std::min(GapBytes(positions, 0, bitmap_bytes), bitmap_bytes);
}

void PutHeader(uint8_t kind, uint32_t count, Bytes& encoded) {
  encoded[0] = kind;
  StoreLe(encoded.data() + 1, count);
}

// Begins an encoding: only kind and count are written. It uses `memory`, which must be zeros, if
// that is large enough.
Bytes Begin(uint8_t kind, uint64_t used_bytes, uint32_t count, Bytes memory = {}) {
  memory.resize(kHeaderBytes + used_bytes + 4 * uint64_t{count});
  PutHeader(kind, count, memory);
  return memory;
}

// Written so that compilers use vectors.
bool Rises(std::span<const uint32_t> positions) {
  uint32_t wrong = 0;
  for (size_t i = 1; i < positions.size(); ++i) {
    wrong |= static_cast<uint32_t>(positions[i - 1] >= positions[i]);
  }
  return wrong == 0;
}

// Whether eight positions follow each other without a gap from number i on, in a batch whose
// positions rise: most batches use nearly all positions, and are handled eight at a time.
bool EightInARow(std::span<const uint32_t> positions, size_t i) {
  return i + 8 <= positions.size() && positions[i + 7] - positions[i] == 7;
}

// The same for 64.
bool SixtyFourInARow(std::span<const uint32_t> positions, size_t i) {
  return i + 64 <= positions.size() && positions[i + 63] - positions[i] == 63;
}

// Sets the bits of base + positions (modulo 2^64) in a bitmap that begins with bit 8 * first_byte.
// Leaves out those before it.
void SetBits(std::span<const uint32_t> positions, uint64_t base, uint64_t first_byte,
             uint8_t* bitmap) {
  for (size_t i = 0; i < positions.size();) {
    const uint64_t used = base + positions[i];
    if (used / 8 < first_byte) {
      ++i;
    } else if (used % 8 == 0 && SixtyFourInARow(positions, i)) {
      StoreLe(bitmap + (used / 8 - first_byte), ~uint64_t{0});
      i += 64;
    } else if (used % 8 == 0 && EightInARow(positions, i)) {
      bitmap[used / 8 - first_byte] = 0xff;
      i += 8;
    } else {
      bitmap[used / 8 - first_byte] |= static_cast<uint8_t>(1u << (used % 8));
      ++i;
    }
  }
}

// Writes a gap at `at`; returns its end.
uint8_t* PutGap(uint8_t* at, uint32_t gap) {
  for (; gap >= 0x80; gap >>= 7) *at++ = static_cast<uint8_t>(gap | 0x80);
  *at++ = static_cast<uint8_t>(gap);
  return at;
}

// Writes the used positions, counted from `first`, in one of the kinds. A bitmap must be zeros.
void PutUsed(bool gaps, std::span<const uint32_t> positions, uint32_t first, uint8_t* at) {
  if (!gaps) {
    SetBits(positions, uint64_t{0} - first, 0, at);
    return;
  }
  uint64_t next = first;
  for (const uint32_t position : positions) {
    at = PutGap(at, static_cast<uint32_t>(position - next));
    next = uint64_t{position} + 1;
  }
}

// How the used positions of a batch in slices are encoded.
struct UsedEncoding {
  bool gaps;
  uint64_t count;
  std::vector<uint64_t> bytes;   // of each slice, without the header
  std::vector<uint64_t> passed;  // for each slice, the lowest position that is after all used ones
                                 // of earlier slices
};

UsedEncoding EncodingOf(std::span<const QuerySlice> slices) {
  UsedEncoding encoding = {};
  std::vector<uint64_t> bitmap_bytes;
  uint64_t gap_bytes = 0, bitmap_total = 0, next = 0;
  for (const QuerySlice& slice : slices) {
    encoding.count += slice.used;
    encoding.passed.push_back(next);
    uint64_t mine = 0;
    if (slice.used > 0) {
      mine = VarintBytes(static_cast<uint32_t>(slice.first_used - next)) + slice.later_gap_bytes;
      next = slice.last_used + 1;
    }
    encoding.bytes.push_back(mine);
    gap_bytes += mine;
    // A byte of the bitmap belongs to the slice of its first position.
    const uint64_t end = (slice.first_position + slice.positions + 7) / 8;
    bitmap_bytes.push_back(end - bitmap_total);
    bitmap_total = end;
  }
  encoding.gaps = gap_bytes < bitmap_total;
  if (!encoding.gaps) encoding.bytes = std::move(bitmap_bytes);
  return encoding;
}

BytesView TallyBytes(std::span<const uint32_t> tallies) {
  return {reinterpret_cast<const uint8_t*>(tallies.data()), 4 * tallies.size()};
}

absl::Status Bad(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("query batch: ", why));
}

// What an encoding begins with, and what follows.
struct Parsed {
  uint8_t kind = 0;
  uint32_t count = 0;
  BytesView used, entries;
};
// `entries` says what they are, of `entry_bytes` each.
absl::StatusOr<Parsed> Parse(BytesView encoded, uint32_t position_count, uint64_t entry_bytes,
                             absl::string_view entries) {
  if (encoded.size() < kHeaderBytes) return Bad("truncated header");
  Parsed parsed;
  parsed.kind = encoded[0];
  parsed.count = EncodedQueries(encoded);
  if (parsed.kind > kGaps) return Bad(absl::StrCat("unknown kind ", parsed.kind));
  if (parsed.count > position_count) {
    return Bad(absl::StrCat(parsed.count, " queries for ", position_count, " positions"));
  }
  const BytesView rest = encoded.subspan(kHeaderBytes);
  if (rest.size() / entry_bytes < parsed.count) return Bad(absl::StrCat("truncated ", entries));
  parsed.used = rest.first(rest.size() - entry_bytes * parsed.count);
  parsed.entries = rest.subspan(parsed.used.size());
  return parsed;
}

// Whether all tallies are below the modulus, 2^31 - 1: whatever is not has bit 31, or gets it by
// adding 1. Written so that compilers use vectors.
bool AreBelowModulus(BytesView tallies) {
  uint32_t high = 0;
  for (size_t at = 0; at < tallies.size(); at += 4) {
    const auto tally = LoadLe<uint32_t>(tallies.data() + at);
    high |= tally | (tally + 1);
  }
  return high >> 31 == 0;
}

// Whether this is a valid encoding by a bitmap that is so full that gaps are surely not shorter.
// False says nothing.
bool IsValidFullBitmap(const Parsed& parsed, uint32_t position_count) {
  const uint64_t bytes = BitmapBytes(position_count);
  if (parsed.kind != kBitmap || parsed.used.size() != bytes || !SurelyBitmap(parsed.count, bytes)) {
    return false;
  }
  if (position_count % 8 != 0 && parsed.used.back() >> (position_count % 8) != 0) return false;
  uint64_t bits = 0;
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    bits += static_cast<uint64_t>(std::popcount(LoadLe<uint64_t>(parsed.used.data() + at)));
  }
  for (; at < bytes; ++at) bits += static_cast<uint64_t>(std::popcount(parsed.used[at]));
  return bits == parsed.count && AreBelowModulus(parsed.entries);
}

// Appends the used positions, with `base` added. The errors of DecodeQueryBatch.
absl::Status AppendBitmap(const Parsed& parsed, uint32_t position_count, uint32_t base,
                          std::vector<uint32_t>& positions) {
  const BytesView used = parsed.used;
  const uint64_t bitmap_bytes = BitmapBytes(position_count);
  const size_t before = positions.size();
  if (used.size() != bitmap_bytes) return Bad("wrong length of the bitmap");
  positions.resize(before + parsed.count);
  uint32_t* at = positions.data() + before;
  const uint32_t* const end = at + parsed.count;
  for (size_t byte = 0; byte < used.size(); ++byte) {
    const auto first = base + static_cast<uint32_t>(8 * byte);
    // Shortcuts for 64 used positions and for eight, as nearly all positions are used in most
    // batches.
    if (byte + 8 <= used.size() && LoadLe<uint64_t>(used.data() + byte) == ~uint64_t{0} &&
        end - at >= 64 && 8 * (byte + 8) <= position_count) {
      for (uint32_t i = 0; i < 64; ++i) at[i] = first + i;
      at += 64;
      byte += 7;
      continue;
    }
    if (used[byte] == 0xff && end - at >= 8 && 8 * (byte + 1) <= position_count) {
      for (uint32_t i = 0; i < 8; ++i) at[i] = first + i;
      at += 8;
      continue;
    }
    for (uint32_t bits = used[byte]; bits != 0; bits &= bits - 1) {
      const uint64_t position = 8 * byte + static_cast<uint64_t>(std::countr_zero(bits));
      if (position >= position_count) return Bad("bitmap has bits past its end");
      if (at == end) return Bad("bitmap has more bits than its count");
      *at++ = base + static_cast<uint32_t>(position);
    }
  }
  if (at != end) return Bad("bitmap has fewer bits than its count");
  if (GapBytes(std::span(positions).subspan(before), base, bitmap_bytes) < bitmap_bytes) {
    return Bad("bitmap where gaps are smaller");
  }
  return absl::OkStatus();
}
absl::Status AppendGaps(const Parsed& parsed, uint32_t position_count, uint32_t base,
                        std::vector<uint32_t>& positions) {
  const BytesView used = parsed.used;
  if (used.size() >= BitmapBytes(position_count)) return Bad("gaps where the bitmap is not larger");
  positions.reserve(positions.size() + parsed.count);
  uint64_t next = 0;
  size_t at = 0;
  for (uint32_t i = 0; i < parsed.count; ++i) {
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
    positions.push_back(base + static_cast<uint32_t>(position));
    next = position + 1;
  }
  if (at != used.size()) return Bad("bytes left over after the gaps");
  return absl::OkStatus();
}
absl::Status AppendUsed(const Parsed& parsed, uint32_t position_count, uint32_t base,
                        std::vector<uint32_t>& positions) {
  return parsed.kind == kBitmap ? AppendBitmap(parsed, position_count, base, positions)
                                : AppendGaps(parsed, position_count, base, positions);
}

}  // namespace

uint64_t MaxQueryBatchBytes(uint32_t position_count) {
  return MaxRecordBatchBytes(position_count, 4);
}

QueryBatchWriter::QueryBatchWriter(uint32_t count, uint32_t position_count, Form form, Bytes memory)
    : count_(count), position_count_(position_count) {
  SHOAL_CHECK(count <= position_count);
  const uint64_t bitmap_bytes = BitmapBytes(position_count);
  if (form == Form::kMessage && SurelyBitmap(count, bitmap_bytes)) {
    full_ = Begin(kBitmap, bitmap_bytes, count, std::move(memory));
    bitmap_ = full_.data() + kHeaderBytes;
    tallies_ = bitmap_ + bitmap_bytes;
  } else {
    sparse_.positions.resize(count);
    sparse_.tallies.resize(count);
  }
}

QueryBatch QueryBatchWriter::TakeBatch() && {
  SHOAL_CHECK(bitmap_ == nullptr);
  return std::move(sparse_);
}

Bytes QueryBatchWriter::Take() && {
  return bitmap_ != nullptr ? std::move(full_) : EncodeQueryBatch(sparse_, position_count_);
}

uint64_t EncodedBytes(const QueryBatch& batch, uint32_t position_count) {
  return kHeaderBytes + GapOrBitmapBytes(batch.positions, BitmapBytes(position_count)) +
         4 * uint64_t{batch.positions.size()};
}

Bytes EncodeQueryBatch(const QueryBatchView& batch, uint32_t position_count) {
  const size_t count = batch.positions.size();
  SHOAL_CHECK(batch.tallies.size() == count && Rises(batch.positions));
  SHOAL_CHECK(count == 0 || (batch.positions.front() >= batch.first &&
                             batch.positions.back() - batch.first < position_count));
  const uint64_t bitmap_bytes = BitmapBytes(position_count);
  const uint64_t gap_bytes = GapBytes(batch.positions, batch.first, bitmap_bytes);
  const bool gaps = gap_bytes < bitmap_bytes;
  Bytes out =
      Begin(gaps ? kGaps : kBitmap, gaps ? gap_bytes : bitmap_bytes, static_cast<uint32_t>(count));
  uint8_t* const at = out.data() + kHeaderBytes;
  PutUsed(gaps, batch.positions, batch.first, at);
  std::ranges::copy(TallyBytes(batch.tallies), at + (gaps ? gap_bytes : bitmap_bytes));
  return out;
}

QuerySlice DescribeSlice(const QueryBatch& batch, uint64_t first_position, uint64_t positions) {
  SHOAL_CHECK(batch.tallies.size() == batch.positions.size());
  QuerySlice slice = {
      .first_position = first_position, .positions = positions, .used = batch.positions.size()};
  if (slice.used == 0) return slice;
  SHOAL_CHECK(Rises(batch.positions) && batch.positions.back() < positions);
  slice.first_used = first_position + batch.positions.front();
  slice.last_used = first_position + batch.positions.back();
  for (size_t i = 1; i < batch.positions.size();) {
    const uint32_t last = batch.positions[i - 1];
    if (batch.positions[i] == last + 1 && SixtyFourInARow(batch.positions, i)) {
      slice.later_gap_bytes += 64;
      i += 64;
      continue;
    }
    if (batch.positions[i] == last + 1 && EightInARow(batch.positions, i)) {
      slice.later_gap_bytes += 8;
      i += 8;
      continue;
    }
    slice.later_gap_bytes += VarintBytes(batch.positions[i] - last - 1);
    ++i;
  }
  const uint64_t own_byte = (first_position + 7) / 8;
  for (const uint32_t position : batch.positions) {
    const uint64_t at = first_position + position;
    if (at / 8 >= own_byte) break;
    slice.first_bits |= uint64_t{1} << (at % 8);
  }
  return slice;
}

std::vector<uint64_t> UsedBytes(std::span<const QuerySlice> slices) {
  std::vector<uint64_t> bytes = EncodingOf(slices).bytes;
  if (!bytes.empty()) bytes[0] += kHeaderBytes;
  return bytes;
}

Bytes EncodeUsed(const QueryBatch& batch, std::span<const QuerySlice> slices, size_t number) {
  const UsedEncoding encoding = EncodingOf(slices);
  const QuerySlice& slice = slices[number];
  const size_t header = number == 0 ? kHeaderBytes : 0;
  Bytes out(header + encoding.bytes[number]);
  if (number == 0) {
    out[0] = encoding.gaps ? kGaps : kBitmap;
    StoreLe(out.data() + 1, static_cast<uint32_t>(encoding.count));
  }
  uint8_t* at = out.data() + header;
  if (encoding.gaps) {
    uint64_t next = encoding.passed[number];
    for (const uint32_t position : batch.positions) {
      const uint64_t used = slice.first_position + position;
      at = PutGap(at, static_cast<uint32_t>(used - next));
      next = used + 1;
    }
    return out;
  }
  const uint64_t first_byte = (slice.first_position + 7) / 8;
  // What lies in the byte of an earlier slice goes there as first_bits.
  SetBits(batch.positions, slice.first_position, first_byte, at);
  // Later slices that begin within this one's last byte.
  for (size_t later = number + 1; later < slices.size(); ++later) {
    if (slices[later].first_bits == 0) continue;
    const uint64_t byte = slices[later].first_position / 8;
    if (byte >= first_byte && byte - first_byte < encoding.bytes[number]) {
      at[byte - first_byte] |= static_cast<uint8_t>(slices[later].first_bits);
    }
  }
  return out;
}

BytesView EncodedTallies(const QueryBatch& batch) { return TallyBytes(batch.tallies); }

absl::StatusOr<QueryBatch> DecodeQueryBatch(BytesView encoded, uint32_t position_count) {
  QueryBatch batch;
  SHOAL_RETURN_IF_ERROR(AppendQueryBatch(encoded, position_count, 0, batch));
  return batch;
}

absl::Status CheckQueryBatch(BytesView encoded, uint32_t position_count) {
  SHOAL_ASSIGN_OR_RETURN(const Parsed parsed, Parse(encoded, position_count, 4, "tallies"));
  if (IsValidFullBitmap(parsed, position_count)) return absl::OkStatus();
  return DecodeQueryBatch(encoded, position_count).status();
}

uint32_t EncodedQueries(BytesView encoded) {
  SHOAL_CHECK(encoded.size() >= kHeaderBytes);
  return LoadLe<uint32_t>(encoded.data() + 1);
}

absl::Status AppendQueryBatch(BytesView encoded, uint32_t position_count, uint32_t base,
                              QueryBatch& batch) {
  SHOAL_CHECK(uint64_t{base} + position_count <= uint64_t{1} << 32);
  SHOAL_ASSIGN_OR_RETURN(const Parsed parsed, Parse(encoded, position_count, 4, "tallies"));
  const size_t before = batch.positions.size();
  SHOAL_CHECK(batch.tallies.size() == before);
  SHOAL_RETURN_IF_ERROR(AppendUsed(parsed, position_count, base, batch.positions));
  batch.tallies.resize(before + parsed.count);
  const std::span<uint32_t> mine = std::span(batch.tallies).subspan(before);
  if (parsed.count > 0) std::memcpy(mine.data(), parsed.entries.data(), parsed.entries.size());
  if (!AreBelowModulus(parsed.entries)) {
    return Bad(absl::StrCat("tally ", std::ranges::max(mine), " is not below 2^31 - 1"));
  }
  return absl::OkStatus();
}

RecordBatchWriter::RecordBatchWriter(uint32_t count, uint32_t position_count, size_t record_bytes)
    : position_count_(position_count), record_bytes_(record_bytes) {
  SHOAL_CHECK(count <= position_count && record_bytes > 0);
  positions_.resize(count);
  encoded_.resize(kHeaderBytes + BitmapBytes(position_count) + record_bytes * uint64_t{count});
}

void RecordBatchWriter::Put(uint64_t index, uint32_t position, BytesView record) {
  SHOAL_CHECK(index < positions_.size() && position < position_count_ &&
              record.size() == record_bytes_);
  positions_[index] = position;
  std::ranges::copy(
      record, encoded_.end() - static_cast<ptrdiff_t>(record_bytes_ * (positions_.size() - index)));
}

Bytes RecordBatchWriter::Take() && {
  SHOAL_CHECK(Rises(positions_));
  const uint64_t bitmap_bytes = BitmapBytes(position_count_);
  const uint64_t gap_bytes = GapBytes(positions_, 0, bitmap_bytes);
  const bool gaps = gap_bytes < bitmap_bytes;
  if (gaps) {
    const auto room = encoded_.begin() + kHeaderBytes;
    encoded_.erase(room, room + static_cast<ptrdiff_t>(bitmap_bytes - gap_bytes));
  }
  PutHeader(gaps ? kGaps : kBitmap, static_cast<uint32_t>(positions_.size()), encoded_);
  PutUsed(gaps, positions_, 0, encoded_.data() + kHeaderBytes);
  return std::move(encoded_);
}

absl::StatusOr<RecordBatch> DecodeRecordBatch(BytesView encoded, uint32_t position_count,
                                              size_t record_bytes) {
  SHOAL_CHECK(record_bytes > 0);
  SHOAL_ASSIGN_OR_RETURN(const Parsed parsed,
                         Parse(encoded, position_count, record_bytes, "records"));
  RecordBatch batch;
  SHOAL_RETURN_IF_ERROR(AppendUsed(parsed, position_count, 0, batch.positions));
  batch.record_bytes = record_bytes;
  batch.records = ToBytes(parsed.entries);
  return batch;
}

uint64_t MaxRecordBatchBytes(uint32_t position_count, size_t record_bytes) {
  return kHeaderBytes + BitmapBytes(position_count) + record_bytes * uint64_t{position_count};
}

}  // namespace shoal::wire
