#include "src/wire/query_batch.h"

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::wire {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

// Uses one position in `one_in`; with 0 all but one in a hundred.
QueryBatch RandomBatch(TestRandom& random, uint32_t n, uint32_t one_in) {
  QueryBatch batch;
  for (uint32_t i = 0; i < n; ++i) {
    if (one_in == 0 ? random.Below(100) == 0 : random.Below(one_in) != 0) continue;
    batch.positions.push_back(i);
    batch.tallies.push_back(static_cast<uint32_t>(random.Below(kTallyModulus)));
  }
  return batch;
}

// The check alone must say the same.
absl::StatusOr<QueryBatch> Decoded(BytesView encoded, uint32_t n) {
  absl::StatusOr<QueryBatch> decoded = DecodeQueryBatch(encoded, n);
  EXPECT_EQ(CheckQueryBatch(encoded, n), decoded.status());
  return decoded;
}

TEST(QueryBatchTest, RoundTripsInBothKinds) {
  TestRandom random(1);
  int kinds[2] = {0, 0};
  for (uint32_t n : {0u, 1u, 7u, 8u, 9u, 1000u, 40000u}) {
    for (uint32_t one_in : {0u, 1u, 2u, 5u, 50u, 3000u}) {
      const QueryBatch batch = RandomBatch(random, n, one_in);
      const Bytes encoded = EncodeQueryBatch(batch, n);
      EXPECT_LE(encoded.size(), MaxQueryBatchBytes(n));
      EXPECT_EQ(encoded.size(), EncodedBytes(batch, n));
      ++kinds[encoded[0]];
      SHOAL_ASSERT_OK_AND_ASSIGN(QueryBatch decoded, Decoded(encoded, n));
      EXPECT_EQ(decoded.positions, batch.positions);
      EXPECT_EQ(decoded.tallies, batch.tallies);
      EXPECT_EQ(EncodedQueries(encoded), batch.positions.size());
    }
  }
  EXPECT_GT(kinds[0], 0);
  EXPECT_GT(kinds[1], 0);
}

// A batch that is cut where it lies, and appended again part by part, is the same batch.
TEST(QueryBatchTest, PartsAreCutAndAppended) {
  TestRandom random(6);
  int kinds[2] = {0, 0};
  for (const uint32_t n : {1u, 9u, 700u}) {
    for (const uint32_t one_in : {0u, 1u, 3u, 9u, 300u}) {
      const QueryBatch batch = RandomBatch(random, n, one_in);
      QueryBatch joined;
      for (uint32_t begin = 0; begin < n;) {
        const auto end = std::min(n, begin + static_cast<uint32_t>(1 + random.Below(200)));
        const auto from = std::ranges::lower_bound(batch.positions, begin);
        const auto first = static_cast<size_t>(from - batch.positions.begin());
        const auto count =
            static_cast<size_t>(std::ranges::lower_bound(batch.positions, end) - from);
        const Bytes part = EncodeQueryBatch({std::span(batch.positions).subspan(first, count),
                                             std::span(batch.tallies).subspan(first, count), begin},
                                            end - begin);
        QueryBatch copy;
        for (size_t i = first; i < first + count; ++i) {
          copy.positions.push_back(batch.positions[i] - begin);
          copy.tallies.push_back(batch.tallies[i]);
        }
        EXPECT_EQ(part, EncodeQueryBatch(copy, end - begin));
        ++kinds[part[0]];
        SHOAL_ASSERT_OK(AppendQueryBatch(part, end - begin, begin, joined));
        begin = end;
      }
      EXPECT_EQ(joined.positions, batch.positions);
      EXPECT_EQ(joined.tallies, batch.tallies);
    }
  }
  EXPECT_GT(kinds[0], 0);
  EXPECT_GT(kinds[1], 0);
}

// Slices of a batch, each encoded by itself, are one after the other what encodes the whole batch:
// for slices that begin within a byte of the bitmap, and for empty ones.
TEST(QueryBatchTest, SlicesTogetherAreTheWhole) {
  TestRandom random(5);
  int kinds[2] = {0, 0};
  for (const uint32_t n : {0u, 1u, 7u, 30u, 4001u}) {
    for (const uint32_t one_in : {0u, 1u, 3u, 9u, 20u, 300u}) {
      const QueryBatch batch = RandomBatch(random, n, one_in);
      const Bytes expected = EncodeQueryBatch(batch, n);
      ++kinds[expected[0]];
      for (const uint32_t longest : {2u, 20u, 3000u}) {
        std::vector<QueryBatch> batches;
        std::vector<QuerySlice> slices;
        for (uint32_t begin = 0; begin < n || slices.empty();) {
          const auto end = std::min(n, begin + static_cast<uint32_t>(random.Below(longest + 1)));
          QueryBatch slice;
          for (size_t i = 0; i < batch.positions.size(); ++i) {
            if (batch.positions[i] < begin || batch.positions[i] >= end) continue;
            slice.positions.push_back(batch.positions[i] - begin);
            slice.tallies.push_back(batch.tallies[i]);
          }
          slices.push_back(DescribeSlice(slice, begin, end - begin));
          batches.push_back(std::move(slice));
          begin = end;
        }
        const std::vector<uint64_t> bytes = UsedBytes(slices);
        Bytes joined, tallies;
        for (size_t k = 0; k < slices.size(); ++k) {
          const Bytes used = EncodeUsed(batches[k], slices, k);
          EXPECT_EQ(used.size(), bytes[k]);
          Append(joined, used);
          Append(tallies, EncodedTallies(batches[k]));
        }
        Append(joined, tallies);
        EXPECT_EQ(joined, expected) << n << " positions, one in " << one_in;
      }
    }
  }
  EXPECT_GT(kinds[0], 0);
  EXPECT_GT(kinds[1], 0);
}

// A batch has one encoding, whether its groups of eight positions are written in order or not, and
// whether memory is handed in or not.
TEST(QueryBatchTest, ABatchIsWrittenInParts) {
  TestRandom random(3);
  int full = 0, sparse = 0;
  for (uint32_t n : {0u, 1u, 8u, 13u, 4001u}) {
    for (uint32_t one_in : {1u, 2u, 7u, 9u, 300u}) {
      const QueryBatch batch = RandomBatch(random, n, one_in);
      const Bytes expected = EncodeQueryBatch(batch, n);
      const size_t count = batch.positions.size();
      if (8 * count >= n) {
        ++full;
        EXPECT_EQ(expected[0], 0);
      } else {
        ++sparse;
      }
      for (const size_t room : {size_t{0}, static_cast<size_t>(MaxQueryBatchBytes(n))}) {
        using Form = QueryBatchWriter::Form;
        QueryBatchWriter writer(static_cast<uint32_t>(count), n, Form::kMessage, Bytes(room));
        QueryBatchWriter decoded(static_cast<uint32_t>(count), n, Form::kBatch);
        for (const uint32_t parity : {1u, 0u}) {
          for (size_t i = 0; i < count; ++i) {
            if (batch.positions[i] / 8 % 2 == parity) {
              writer.Put(i, batch.positions[i], batch.tallies[i]);
              decoded.Put(i, batch.positions[i], batch.tallies[i]);
            }
          }
        }
        EXPECT_EQ(std::move(writer).Take(), expected);
        const QueryBatch taken = std::move(decoded).TakeBatch();
        EXPECT_EQ(taken.positions, batch.positions);
        EXPECT_EQ(taken.tallies, batch.tallies);
      }
    }
  }
  EXPECT_GT(full, 8);
  EXPECT_GT(sparse, 1);
}

Bytes Raw(uint8_t kind, uint32_t count, Bytes used, std::vector<uint32_t> tallies) {
  Bytes out = {kind};
  AppendLe(out, count);
  Append(out, used);
  for (uint32_t tally : tallies) AppendLe(out, tally);
  return out;
}

TEST(QueryBatchTest, BadVectorsAreRefused) {
  // Over 16 positions: the bitmap has two bytes.
  SHOAL_EXPECT_OK(Decoded(Raw(0, 2, {0x01, 0x80}, {1, 2}), 16));
  SHOAL_EXPECT_OK(Decoded(Raw(1, 1, {0x0f}, {1}), 16));
  EXPECT_THAT(Decoded(Bytes{0, 1}, 16), StatusIs(kInvalid, "truncated header"));
  EXPECT_THAT(Decoded(Raw(2, 0, {}, {}), 16), StatusIs(kInvalid, "unknown kind"));
  EXPECT_THAT(Decoded(Raw(0, 17, {0xff, 0xff}, std::vector<uint32_t>(17)), 16),
              StatusIs(kInvalid, "17 queries for 16 positions"));
  EXPECT_THAT(Decoded(Raw(0, 5, {0xff}, {1}), 16), StatusIs(kInvalid, "truncated tallies"));
  EXPECT_THAT(Decoded(Raw(0, 2, {0x01}, {1, 2}), 16), StatusIs(kInvalid, "wrong length"));
  EXPECT_THAT(Decoded(Raw(0, 2, {0x01, 0x80, 0}, {1, 2}), 16), StatusIs(kInvalid, "wrong length"));
  EXPECT_THAT(Decoded(Raw(0, 3, {0x01, 0x80}, {1, 2, 3}), 16), StatusIs(kInvalid, "fewer bits"));
  EXPECT_THAT(Decoded(Raw(0, 1, {0x01, 0x80}, {1}), 16), StatusIs(kInvalid, "more bits"));
  EXPECT_THAT(Decoded(Raw(0, 2, {0x01, 0x80}, {1, 2}), 15), StatusIs(kInvalid, "past its end"));
  EXPECT_THAT(Decoded(Raw(0, 1, {0x01, 0x00}, {1}), 16), StatusIs(kInvalid, "gaps are smaller"));
  EXPECT_THAT(Decoded(Raw(1, 2, {0x00, 0x0e}, {1, 2}), 16),
              StatusIs(kInvalid, "bitmap is not larger"));
  EXPECT_THAT(Decoded(Raw(1, 1, {0x10}, {1}), 16), StatusIs(kInvalid, "position 16 of 16"));
  EXPECT_THAT(Decoded(Raw(1, 1, {0x80, 0x00}, {1}), 100), StatusIs(kInvalid, "shortest"));
  EXPECT_THAT(Decoded(Raw(1, 1, {0x80}, {1}), 100), StatusIs(kInvalid, "truncated gaps"));
  EXPECT_THAT(Decoded(Raw(1, 1, {0x01, 0x01}, {1}), 100), StatusIs(kInvalid, "left over"));
  EXPECT_THAT(Decoded(Raw(1, 1, {0xff, 0xff, 0xff, 0xff, 0xff, 1}, {1}), 1000),
              StatusIs(kInvalid, "too long"));
  EXPECT_THAT(Decoded(Raw(1, 1, {0x0f}, {kTallyModulus}), 16), StatusIs(kInvalid, "2^31 - 1"));
}

// Any bytes are either refused or are the one encoding of what they decode to.
TEST(QueryBatchTest, MutationsAreRefusedOrCanonical) {
  TestRandom random(2);
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const uint32_t n = static_cast<uint32_t>(1 + random.Below(100));
    Bytes encoded =
        EncodeQueryBatch(RandomBatch(random, n, static_cast<uint32_t>(1 + random.Below(40))), n);
    for (uint64_t k = 1 + random.Below(3); k > 0 && !encoded.empty(); --k) {
      encoded[random.Below(encoded.size())] ^= static_cast<uint8_t>(1u << random.Below(8));
    }
    if (random.Below(4) == 0) encoded.resize(random.Below(encoded.size() + 5));
    const auto decoded = Decoded(encoded, n);
    if (!decoded.ok()) continue;
    ++accepted;
    ASSERT_EQ(EncodeQueryBatch(*decoded, n), encoded);
  }
  EXPECT_GT(accepted, 100);  // flipped tallies stay well formed
}

// --- Records in place of tallies.

constexpr size_t kRecordBytes = 20;

struct Record {
  uint32_t position;
  Bytes bytes;
};

std::vector<Record> RandomRecords(TestRandom& random, uint32_t n, uint32_t one_in) {
  std::vector<Record> records;
  for (const uint32_t position : RandomBatch(random, n, one_in).positions) {
    random.Fill(records.emplace_back(Record{position, Bytes(kRecordBytes)}).bytes);
  }
  return records;
}

Bytes EncodeRecords(std::span<const Record> records, uint32_t n, size_t record_bytes) {
  RecordBatchWriter writer(static_cast<uint32_t>(records.size()), n, record_bytes);
  // Last ones first.
  for (size_t i = records.size(); i-- > 0;) writer.Put(i, records[i].position, records[i].bytes);
  return std::move(writer).Take();
}

Bytes EncodeBatch(const RecordBatch& batch, uint32_t n) {
  std::vector<Record> records;
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    records.push_back(
        {batch.positions[i],
         ToBytes(BytesView(batch.records).subspan(i * batch.record_bytes, batch.record_bytes))});
  }
  return EncodeRecords(records, n, batch.record_bytes);
}

// Used positions are encoded as those of tallies, byte for byte, and the records follow.
TEST(RecordBatchTest, RoundTripsInBothKinds) {
  TestRandom random(11);
  int kinds[2] = {0, 0};
  for (uint32_t n : {0u, 1u, 7u, 8u, 9u, 1000u, 40000u}) {
    for (uint32_t one_in : {0u, 1u, 2u, 5u, 50u, 3000u}) {
      const std::vector<Record> records = RandomRecords(random, n, one_in);
      const Bytes encoded = EncodeRecords(records, n, kRecordBytes);
      EXPECT_LE(encoded.size(), MaxRecordBatchBytes(n, kRecordBytes));
      ++kinds[encoded[0]];
      SHOAL_ASSERT_OK_AND_ASSIGN(const RecordBatch decoded,
                                 DecodeRecordBatch(encoded, n, kRecordBytes));
      EXPECT_EQ(decoded.record_bytes, kRecordBytes);
      EXPECT_EQ(EncodedQueries(encoded), records.size());
      QueryBatch same;
      Bytes all;
      for (const Record& record : records) {
        same.positions.push_back(record.position);
        same.tallies.push_back(0);
        Append(all, record.bytes);
      }
      EXPECT_EQ(decoded.positions, same.positions);
      EXPECT_EQ(decoded.records, all);
      const Bytes tallies = EncodeQueryBatch(same, n);
      const size_t used = tallies.size() - 4 * records.size();
      EXPECT_TRUE(
          std::ranges::equal(BytesView(tallies).first(used), BytesView(encoded).first(used)));
      EXPECT_EQ(encoded.size(), used + all.size());
    }
  }
  EXPECT_GT(kinds[0], 0);
  EXPECT_GT(kinds[1], 0);
}

TEST(RecordBatchTest, BadVectorsAreRefused) {
  const auto decode = [](uint8_t kind, uint32_t count, Bytes used, size_t record_bytes,
                         uint32_t positions) {
    Bytes encoded = Raw(kind, count, std::move(used), {});
    encoded.resize(encoded.size() + record_bytes, 0xff);  // any bytes are records
    return DecodeRecordBatch(encoded, positions, 3);
  };
  SHOAL_EXPECT_OK(decode(0, 2, {0x01, 0x80}, 6, 16));
  SHOAL_EXPECT_OK(decode(1, 1, {0x0f}, 3, 16));
  SHOAL_EXPECT_OK(decode(0, 0, {}, 0, 0));
  EXPECT_THAT(DecodeRecordBatch(Bytes{0, 1}, 16, 3), StatusIs(kInvalid, "truncated header"));
  EXPECT_THAT(decode(2, 0, {}, 0, 16), StatusIs(kInvalid, "unknown kind"));
  EXPECT_THAT(decode(0, 17, {0xff, 0xff}, 51, 16), StatusIs(kInvalid, "17 queries for 16"));
  EXPECT_THAT(decode(0, 5, {0xff}, 13, 16), StatusIs(kInvalid, "truncated records"));
  EXPECT_THAT(decode(0, 0xffffffff, {}, 3, 0xffffffff), StatusIs(kInvalid, "truncated records"));
  // A record that is longer, or shorter, by a byte.
  EXPECT_THAT(decode(0, 1, {0x01, 0x00}, 4, 16), StatusIs(kInvalid, "wrong length"));
  EXPECT_THAT(decode(0, 2, {0x01, 0x80}, 5, 16), StatusIs(kInvalid, "wrong length"));
  EXPECT_THAT(decode(0, 3, {0x01, 0x80}, 9, 16), StatusIs(kInvalid, "fewer bits"));
  EXPECT_THAT(decode(0, 1, {0x01, 0x80}, 3, 16), StatusIs(kInvalid, "more bits"));
  EXPECT_THAT(decode(0, 2, {0x01, 0x80}, 6, 15), StatusIs(kInvalid, "past its end"));
  EXPECT_THAT(decode(0, 1, {0x01, 0x00}, 3, 16), StatusIs(kInvalid, "gaps are smaller"));
  EXPECT_THAT(decode(1, 2, {0x00, 0x0e}, 6, 16), StatusIs(kInvalid, "bitmap is not larger"));
  EXPECT_THAT(decode(1, 1, {0x10}, 3, 16), StatusIs(kInvalid, "position 16 of 16"));
  EXPECT_THAT(decode(1, 1, {0x80, 0x00}, 3, 100), StatusIs(kInvalid, "shortest"));
}

// Any bytes are either refused or are the one encoding of what they decode to.
TEST(RecordBatchTest, MutationsAreRefusedOrCanonical) {
  TestRandom random(12);
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const uint32_t n = static_cast<uint32_t>(1 + random.Below(100));
    Bytes encoded = EncodeRecords(
        RandomRecords(random, n, static_cast<uint32_t>(1 + random.Below(40))), n, kRecordBytes);
    for (uint64_t k = 1 + random.Below(3); k > 0; --k) {
      // Mostly what stands before the records.
      const size_t end =
          random.Below(4) == 0 ? encoded.size() : std::min<size_t>(20, encoded.size());
      encoded[random.Below(end)] ^= static_cast<uint8_t>(1u << random.Below(8));
    }
    if (random.Below(4) == 0) encoded.resize(random.Below(encoded.size() + 5));
    const auto decoded = DecodeRecordBatch(encoded, n, kRecordBytes);
    if (!decoded.ok()) continue;
    ++accepted;
    ASSERT_EQ(EncodeBatch(*decoded, n), encoded);
  }
  EXPECT_GT(accepted, 100);
}

TEST(RecordBatchDeathTest, AWriterTakesWhatItEncodesAlone) {
  const Bytes record(kRecordBytes);
  RecordBatchWriter writer(2, 16, kRecordBytes);
  writer.Put(0, 7, record);
  EXPECT_DEATH(writer.Put(2, 8, record), "");
  EXPECT_DEATH(writer.Put(1, 16, record), "");
  EXPECT_DEATH(writer.Put(1, 8, BytesView(record).first(kRecordBytes - 1)), "");
  writer.Put(1, 7, record);
  EXPECT_DEATH(std::move(writer).Take(), "");
}

}  // namespace
}  // namespace shoal::wire
