#include "src/table/row.h"

#include <map>
#include <string>
#include <vector>

#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::table {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
// Of a key that no row below marks.
constexpr KeyMark kMark = {0xaa, 0xbb, 0xcc, 0xdd};

Bytes HashedRow(const std::map<std::string, std::string>& records, size_t row_bytes) {
  Bytes row;
  size_t expected = 0;
  for (const auto& [key, value] : records) {
    AppendHashedRecord(AsBytes(key), AsBytes(value), row);
    expected += HashedRecordBytes(key.size(), value.size());
    EXPECT_EQ(row.size(), expected);
  }
  row.resize(row_bytes, 0);
  return row;
}

TEST(HashedRow, HoldsKeysAndProvesAbsence) {
  const std::map<std::string, std::string> records = {{"", "the empty key"},
                                                      {"a", ""},
                                                      {std::string("\0", 1), "zero"},
                                                      {"long", std::string(200, 'v')}};
  const Bytes row = HashedRow(records, 300);
  for (const auto& [key, value] : records) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, FindInHashedRow(row, AsBytes(key), kMark));
    ASSERT_TRUE(found.value.has_value());
    EXPECT_EQ(ToString(*found.value), value);
  }
  for (const char* absent : {"b", "aa", "lon", "longer"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, FindInHashedRow(row, AsBytes(absent), kMark));
    EXPECT_FALSE(found.value.has_value()) << absent;
    EXPECT_FALSE(found.may_be_displaced) << absent;
    EXPECT_TRUE(found.complete);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto all, DecodeHashedRow(row));
  EXPECT_EQ(all.records.size(), records.size());
  EXPECT_TRUE(all.displaced.none());
}

TEST(HashedRow, KnownBytes) {
  Bytes row;
  AppendHashedRecord(AsBytes("k"), AsBytes("vv"), row);
  EXPECT_EQ(Hex(row), "02026b7676");
  row.clear();
  AppendHashedRecord(AsBytes(std::string(127, 'k')), AsBytes(std::string(16384, 'v')), row);
  EXPECT_EQ(Hex(BytesView(row).first(5)), "8001808001");
}

TEST(HashedRow, FullToTheLastByteAndEmpty) {
  const Bytes full = HashedRow({{"key", "value"}}, HashedRecordBytes(3, 5));
  SHOAL_EXPECT_OK(FindInHashedRow(full, AsBytes("key"), kMark));
  for (const size_t bytes : {1, 2, 64}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto none,
                               FindInHashedRow(Bytes(bytes, 0), AsBytes("key"), kMark));
    EXPECT_FALSE(none.value.has_value());
    EXPECT_FALSE(none.may_be_displaced);
  }
}

// What a full row says of the keys that it has no room for. Neither may ever read as a proof of
// absence.
TEST(HashedRow, MarksKeysThatHaveNoRoom) {
  const Displaced displaced = {.marks = {{1, 2, 3, 4}, {1, 2, 3, 5}, {9, 0, 0, 0}}};
  Bytes row;
  AppendHashedRecord(AsBytes("k"), AsBytes("v"), row);
  AppendDisplaced(displaced, row);
  EXPECT_EQ(Hex(row),
            "02016b76"
            "0003"
            "01020304"
            "01020305"
            "09000000");
  EXPECT_EQ(DisplacedBytes(displaced), row.size() - 4);
  for (const size_t zeros : {0, 1, 9}) {
    Bytes padded = row;
    padded.resize(row.size() + zeros, 0);
    for (const KeyMark& mark : displaced.marks) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, FindInHashedRow(padded, AsBytes("x"), mark));
      EXPECT_FALSE(found.value.has_value());
      EXPECT_TRUE(found.may_be_displaced);
      EXPECT_FALSE(found.complete);
    }
    // Another key is proved absent, and one that the row holds has its value, whatever its mark.
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto absent, FindInHashedRow(padded, AsBytes("x"), kMark));
    EXPECT_FALSE(absent.may_be_displaced);
    EXPECT_FALSE(absent.complete);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto held,
                               FindInHashedRow(padded, AsBytes("k"), displaced.marks[0]));
    EXPECT_EQ(ToString(held.value.value()), "v");
    EXPECT_FALSE(held.may_be_displaced);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto decoded, DecodeHashedRow(padded));
    EXPECT_EQ(decoded.displaced, displaced);
    EXPECT_EQ(decoded.records.size(), 1u);
  }
}

TEST(HashedRow, MayProveNoKeyAbsent) {
  const Displaced displaced = {.marks = {}, .any = true};
  Bytes row;
  AppendHashedRecord(AsBytes("k"), AsBytes("v"), row);
  AppendDisplaced(displaced, row);
  EXPECT_EQ(Hex(row),
            "02016b76"
            "00ff");
  EXPECT_EQ(DisplacedBytes(displaced), 2u);
  for (const size_t zeros : {0, 1, 9}) {
    row.resize(6 + zeros, 0);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto unknown, FindInHashedRow(row, AsBytes("x"), kMark));
    EXPECT_TRUE(unknown.may_be_displaced);
    EXPECT_FALSE(unknown.complete);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto held, FindInHashedRow(row, AsBytes("k"), kMark));
    EXPECT_EQ(ToString(held.value.value()), "v");
    EXPECT_FALSE(held.may_be_displaced);
    EXPECT_FALSE(held.complete);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto decoded, DecodeHashedRow(row));
    EXPECT_EQ(decoded.displaced, displaced);
  }
}

struct BadRow {
  const char* message;
  Bytes bytes;
};

TEST(HashedRow, RefusesEveryOtherEncoding) {
  const std::vector<BadRow> cases = {
      {"bytes after the last record", {0, 0, 1}},
      {"bytes after the last record", {2, 0, 'a', 0, 0, 9}},
      {"bytes after the last record", {0, 255, 0, 1}},
      {"bytes after the last record", {0, 255, 1, 2, 3, 4}},
      {"marks run over the end", {0, 1}},
      {"marks run over the end", {0, 1, 1, 2, 3}},
      {"marks run over the end", {0, 254, 1, 2, 3, 4, 5, 6, 7, 8}},
      {"marks are out of order", {0, 2, 1, 0, 0, 0, 1, 0, 0, 0}},  // a mark twice
      {"marks are out of order", {0, 2, 2, 0, 0, 0, 1, 0, 0, 9}},
      {"bytes after the last mark", {0, 1, 1, 2, 3, 4, 0, 1}},
      {"runs over the end", {4, 0, 'a'}},
      {"runs over the end", {2, 5, 'a', 'b'}},
      {"cut off", {2}},
      {"cut off", {0x80}},
      {"too long", {0x80, 0x80, 0x80, 1, 0, 0}},
      {"shortest form", {0x82, 0x00, 0, 'a', 0}},
      {"shortest form", {2, 0x81, 0x00, 'a', 'b'}},
      {"out of order", {2, 0, 'b', 2, 0, 'a'}},
      {"out of order", {2, 0, 'a', 2, 0, 'a'}},  // a key twice
      {"out of order", {2, 0, 'a', 1, 0}},       // the empty key comes first
  };
  for (const BadRow& bad : cases) {
    EXPECT_THAT(DecodeHashedRow(bad.bytes), StatusIs(kDataLoss, bad.message)) << Hex(bad.bytes);
    EXPECT_THAT(FindInHashedRow(bad.bytes, AsBytes("a"), kMark), StatusIs(kDataLoss, bad.message))
        << Hex(bad.bytes);
  }
}

// Rows are canonical: if bytes decode, encoding what they hold gives the same bytes.
TEST(HashedRow, WhatDecodesEncodesToTheSameBytes) {
  TestRandom random(1);
  int decoded = 0, incomplete = 0;
  for (int i = 0; i < 20000; ++i) {
    Bytes row(random.Below(12) + 1, 0);
    for (uint8_t& byte : row)
      byte = static_cast<uint8_t>(random.Below(random.Below(4) == 0 ? 256 : 5));
    const auto content = DecodeHashedRow(row);
    if (!content.ok()) continue;
    ++decoded;
    incomplete += !content->displaced.none();
    Bytes again;
    for (const RecordView& record : content->records) {
      AppendHashedRecord(record.key, record.value, again);
    }
    AppendDisplaced(content->displaced, again);
    again.resize(row.size(), 0);
    EXPECT_EQ(again, row) << Hex(row);
  }
  EXPECT_GT(decoded, 500);
  EXPECT_GT(incomplete, 50);
}

wire::DenseLayout Dense(uint64_t records_per_row, uint32_t value_bytes, uint32_t length_bytes) {
  wire::DenseLayout layout;
  layout.set_records_per_row(records_per_row);
  layout.set_value_bytes(value_bytes);
  layout.set_length_bytes(length_bytes);
  return layout;
}

TEST(DenseRow, HoldsValuesOfOneLength) {
  const wire::DenseLayout layout = Dense(3, 2, 0);
  Bytes row(7, 0);
  WriteDenseSlot(layout, 0, AsBytes("ab"), row);
  WriteDenseSlot(layout, 2, AsBytes("ef"), row);
  WriteDenseSlot(layout, 1, AsBytes("cd"), row);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto values, DecodeDenseRow(layout, 3, row));
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(ToString(values[1].value()), "cd");
  // Values of one length have no length that could say that one is displaced.
  EXPECT_FALSE(DenseSlotCanDisplace(layout));
  row[6] = 1;
  EXPECT_THAT(DecodeDenseRow(layout, 3, row), StatusIs(kDataLoss, "after the last record"));
  row[6] = 0;
  EXPECT_THAT(DecodeDenseRow(layout, 2, row), StatusIs(kDataLoss, "after the last record"));
}

TEST(DenseRow, HoldsValuesOfDifferentLengths) {
  for (const uint32_t length_bytes : {1u, 2u}) {
    const wire::DenseLayout layout = Dense(2, 4, length_bytes);
    Bytes row(2 * DenseSlotBytes(layout), 0xff);
    WriteDenseSlot(layout, 0, AsBytes(""), row);
    WriteDenseSlot(layout, 1, AsBytes("abc"), row);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto values, DecodeDenseRow(layout, 2, row));
    EXPECT_EQ(ToString(values[0].value()), "");
    EXPECT_EQ(ToString(values[1].value()), "abc");
    Bytes bad = row;
    bad.back() = 1;
    EXPECT_THAT(DecodeDenseRow(layout, 2, bad), StatusIs(kDataLoss, "after a value"));
    bad = row;
    bad[0] = 5;
    EXPECT_THAT(DecodeDenseRow(layout, 2, bad), StatusIs(kDataLoss, "runs over its slot"));
  }
}

TEST(DenseRow, SaysThatAValueHasNoRoom) {
  for (const uint32_t length_bytes : {1u, 2u}) {
    const wire::DenseLayout layout = Dense(3, 4, length_bytes);
    ASSERT_TRUE(DenseSlotCanDisplace(layout));
    Bytes row(3 * DenseSlotBytes(layout), 7);
    WriteDenseSlot(layout, 0, AsBytes(""), row);
    WriteDisplacedDenseSlot(layout, 1, row);
    WriteDenseSlot(layout, 2, AsBytes("abcd"), row);
    const size_t slot = DenseSlotBytes(layout);
    EXPECT_EQ(Hex(BytesView(row).subspan(slot, slot)),
              length_bytes == 1 ? "ff00000000" : "ffff00000000");
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto values, DecodeDenseRow(layout, 3, row));
    EXPECT_EQ(ToString(values[0].value()), "");
    EXPECT_FALSE(values[1].has_value());
    EXPECT_EQ(ToString(values[2].value()), "abcd");
    row[2 * slot - 1] = 1;
    EXPECT_THAT(DecodeDenseRow(layout, 3, row), StatusIs(kDataLoss, "of a displaced value"));
  }
  // A length of all ones that a value can have is that value's.
  const wire::DenseLayout longest = Dense(1, 255, 1);
  EXPECT_FALSE(DenseSlotCanDisplace(longest));
  Bytes row(DenseSlotBytes(longest), 0);
  WriteDenseSlot(longest, 0, AsBytes(std::string(255, 'v')), row);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto values, DecodeDenseRow(longest, 1, row));
  EXPECT_EQ(values[0].value().size(), 255u);
  EXPECT_TRUE(DenseSlotCanDisplace(Dense(1, 254, 1)));
}

}  // namespace
}  // namespace shoal::table
