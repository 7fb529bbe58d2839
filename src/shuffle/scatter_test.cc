#include "src/shuffle/scatter.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::shuffle {
namespace {

using ::shoal::testing::TestRandom;

struct Case {
  uint64_t memory_bytes;
  uint64_t places;
  size_t record_bytes;
  uint64_t bucket_bytes;
  unsigned forgotten = 0;  // percent
};

class ScatterTest : public ::testing::TestWithParam<Case> {};

TEST_P(ScatterTest, PutsRecordsInOrderOfTheirPlaces) {
  const Case& c = GetParam();
  SpoolPlace spools(::testing::TempDir(), c.memory_bytes);
  ThreadPool pool(3);
  TestRandom random(1);
  // Every seventh place stays empty, and records for nowhere are dropped.
  std::vector<uint32_t> places;
  for (uint32_t place = 0; place < c.places; ++place) {
    places.push_back(place % 7 == 0 ? Scatter::kNowhere : place);
  }
  for (size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.Below(i)]);
  Bytes records(places.size() * c.record_bytes);
  random.Fill(records);
  const uint64_t wanted = c.places - c.places * c.forgotten / 100;
  Bytes expected(wanted * c.record_bytes);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] >= wanted) continue;
    std::copy_n(records.data() + i * c.record_bytes, c.record_bytes,
                expected.data() + places[i] * c.record_bytes);
  }

  SHOAL_ASSERT_OK_AND_ASSIGN(
      Scatter scatter,
      Scatter::CreateFor(wanted, c.places, c.record_bytes, c.bucket_bytes,
                         *spools.Create(Scatter::MemoryBytes(c.places, c.record_bytes))));
  EXPECT_EQ(spools.file_bytes() == 0, c.memory_bytes > 0 || c.places == 0);
  EXPECT_EQ(scatter.size(), expected.size());
  // Few at a time, and many.
  for (size_t at = 0, n = 1; at < places.size(); at += n, n = 3 * n) {
    n = std::min(n, places.size() - at);
    SHOAL_ASSERT_OK(scatter.Put(std::span(places).subspan(at, n),
                                BytesView(records).subspan(at * c.record_bytes, n * c.record_bytes),
                                pool));
  }
  // Records that are on their way in need no memory for a bucket.
  EXPECT_EQ(scatter.buffer_bytes(), 0u);
  // All of it, some of it, and all of it again.
  for (const size_t pieces : {SIZE_MAX, size_t{2}, SIZE_MAX}) {
    Bytes out;
    for (size_t p = 0; p < pieces; ++p) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const MutableBytes piece, scatter.Next(pool));
      if (piece.empty()) break;
      Append(out, piece);
      EXPECT_LE(scatter.buffer_bytes(),
                2 * std::max<uint64_t>(c.bucket_bytes, c.record_bytes + sizeof(uint32_t)));
    }
    scatter.Rewind();
    if (pieces == SIZE_MAX) {
      ASSERT_EQ(out.size(), expected.size());
    }
    for (uint32_t place = 0; place < out.size() / c.record_bytes; ++place) {
      if (place % 7 == 0) continue;
      ASSERT_TRUE(std::equal(out.begin() + place * c.record_bytes,
                             out.begin() + (place + 1) * c.record_bytes,
                             expected.begin() + place * c.record_bytes))
          << place;
    }
  }
}

TEST(ScatterDeathTest, APlaceIsThereAndIsPutOnce) {
  ThreadPool pool(1);
  SpoolPlace memory(::testing::TempDir(), 1 << 20), files(::testing::TempDir(), 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(Scatter in_memory,
                             Scatter::Create(2, 8, *memory.Create(Scatter::MemoryBytes(2, 8))));
  SHOAL_ASSERT_OK_AND_ASSIGN(Scatter in_file,
                             Scatter::Create(2, 8, *files.Create(Scatter::MemoryBytes(2, 8))));
  const std::vector<uint32_t> outside = {2}, twice = {1, 1, 1};
  EXPECT_DEATH(in_memory.Put(outside, Bytes(8), pool).IgnoreError(), "invariant");
  EXPECT_DEATH(in_file.Put(outside, Bytes(8), pool).IgnoreError(), "invariant");
  // In a file the records would run into the next bucket.
  SHOAL_ASSERT_OK(in_file.Put(twice, Bytes(24), pool));
  EXPECT_DEATH(in_file.Next(pool).IgnoreError(), "invariant");
}

INSTANTIATE_TEST_SUITE_P(
    InMemoryAndInFiles, ScatterTest,
    ::testing::Values(Case{1 << 30, 0, 112, 1 << 20}, Case{1 << 30, 1, 112, 1 << 20},
                      Case{1 << 30, 30'000, 112, 1 << 20}, Case{1 << 30, 300'000, 52, 1 << 20, 10},
                      Case{1 << 30, 3'000, 52, 1, 100}, Case{1 << 30, 100, 70'000, 1 << 20, 30},
                      Case{0, 1, 112, 1 << 20}, Case{0, 30'000, 112, 1 << 20, 40},
                      Case{0, 30'000, 112, 1 << 16}, Case{0, 30'000, 112, 1 << 16, 50},
                      Case{0, 3'000, 52, 1}, Case{0, 1'000, 4144, 1 << 20},
                      // Read back in parts.
                      Case{0, 300'000, 112, 128 << 20}));

}  // namespace
}  // namespace shoal::shuffle
