#include "src/server/record_cutter.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::server {
namespace {

constexpr size_t kRecordBytes = 5;
constexpr uint64_t kRecords = 7;

// However the stream is cut, the same records come out, whole and in order.
TEST(RecordCutterTest, EveryWayOfCuttingGivesTheSameRecords) {
  Bytes stream(kRecords * kRecordBytes);
  std::iota(stream.begin(), stream.end(), uint8_t{1});
  for (size_t piece_bytes = 1; piece_bytes <= stream.size(); ++piece_bytes) {
    RecordCutter cutter(kRecords, kRecordBytes);
    Bytes taken;
    for (size_t at = 0; at < stream.size(); at += piece_bytes) {
      EXPECT_FALSE(cutter.complete());
      const BytesView piece =
          BytesView(stream).subspan(at, std::min(piece_bytes, stream.size() - at));
      SHOAL_ASSERT_OK(cutter.Cut(piece, "records", [&](BytesView records) {
        EXPECT_FALSE(records.empty());
        EXPECT_EQ(records.size() % kRecordBytes, 0u);
        Append(taken, records);
        return absl::OkStatus();
      }));
    }
    EXPECT_TRUE(cutter.complete());
    EXPECT_EQ(taken, stream) << "in pieces of " << piece_bytes;
  }
}

TEST(RecordCutterTest, TheLastOfSoManyBytesMayBeShorter) {
  for (const size_t bytes : {1, 4, 5, 6, 23}) {
    const Bytes stream(bytes, 'x');
    for (size_t piece_bytes = 1; piece_bytes <= bytes; ++piece_bytes) {
      RecordCutter cutter = RecordCutter::OfBytes(bytes, 5);
      size_t taken = 0;
      for (size_t at = 0; at < bytes; at += piece_bytes) {
        const BytesView piece = BytesView(stream).subspan(at, std::min(piece_bytes, bytes - at));
        SHOAL_ASSERT_OK(cutter.Cut(piece, "blocks", [&](BytesView blocks) {
          EXPECT_TRUE(blocks.size() % 5 == 0 || taken + blocks.size() == bytes);
          taken += blocks.size();
          return absl::OkStatus();
        }));
      }
      EXPECT_TRUE(cutter.complete());
      EXPECT_EQ(taken, bytes) << "in pieces of " << piece_bytes;
    }
  }
}

TEST(RecordCutterTest, RefusesMoreThanWasAnnouncedAndTakesNothingOfIt) {
  RecordCutter cutter(kRecords, kRecordBytes);
  const Bytes stream(kRecords * kRecordBytes + 1);
  int calls = 0;
  const auto count = [&](BytesView) {
    ++calls;
    return absl::OkStatus();
  };
  EXPECT_THAT(cutter.Cut(stream, "a list", count),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "a list: more bytes than"));
  EXPECT_EQ(calls, 0);
  SHOAL_EXPECT_OK(cutter.Cut(BytesView(stream).subspan(1), "a list", count));
  EXPECT_TRUE(cutter.complete());
}

TEST(RecordCutterTest, PassesErrorsOn) {
  RecordCutter cutter(kRecords, kRecordBytes);
  const Bytes piece(kRecordBytes);
  EXPECT_THAT(cutter.Cut(piece, "a list", [](BytesView) { return absl::DataLossError("disk"); }),
              testing::StatusIs(absl::StatusCode::kDataLoss, "disk"));
}

}  // namespace
}  // namespace shoal::server
