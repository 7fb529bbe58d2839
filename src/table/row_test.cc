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
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, FindInHashedRow(row, AsBytes(key)));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(ToString(*found), value);
  }
  for (const char* absent : {"b", "aa", "lon", "longer"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto found, FindInHashedRow(row, AsBytes(absent)));
    EXPECT_FALSE(found.has_value()) << absent;
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto all, DecodeHashedRow(row));
  EXPECT_EQ(all.size(), records.size());
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
  SHOAL_EXPECT_OK(FindInHashedRow(full, AsBytes("key")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto none, FindInHashedRow(Bytes(64, 0), AsBytes("key")));
  EXPECT_FALSE(none.has_value());
}

struct BadRow {
  const char* message;
  Bytes bytes;
};

TEST(HashedRow, RefusesEveryOtherEncoding) {
  const std::vector<BadRow> cases = {
      {"bytes after the last record", {0, 0, 1}},
      {"bytes after the last record", {2, 0, 'a', 0, 0, 9}},
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
    EXPECT_THAT(FindInHashedRow(bad.bytes, AsBytes("a")), StatusIs(kDataLoss, bad.message))
        << Hex(bad.bytes);
  }
}

// Rows are canonical: if bytes decode, encoding their records gives the same bytes.
TEST(HashedRow, WhatDecodesEncodesToTheSameBytes) {
  TestRandom random(1);
  int decoded = 0;
  for (int i = 0; i < 20000; ++i) {
    Bytes row(random.Below(12) + 1, 0);
    for (uint8_t& byte : row)
      byte = static_cast<uint8_t>(random.Below(random.Below(4) == 0 ? 256 : 5));
    const auto records = DecodeHashedRow(row);
    if (!records.ok()) continue;
    ++decoded;
    Bytes again;
    for (const RecordView& record : *records) AppendHashedRecord(record.key, record.value, again);
    again.resize(row.size(), 0);
    EXPECT_EQ(again, row) << Hex(row);
  }
  EXPECT_GT(decoded, 500);
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
  EXPECT_EQ(ToString(values[1]), "cd");
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
    EXPECT_EQ(ToString(values[0]), "");
    EXPECT_EQ(ToString(values[1]), "abc");
    Bytes bad = row;
    bad.back() = 1;
    EXPECT_THAT(DecodeDenseRow(layout, 2, bad), StatusIs(kDataLoss, "after a value"));
    bad = row;
    bad[0] = 5;
    EXPECT_THAT(DecodeDenseRow(layout, 2, bad), StatusIs(kDataLoss, "runs over its slot"));
  }
}

}  // namespace
}  // namespace shoal::table
