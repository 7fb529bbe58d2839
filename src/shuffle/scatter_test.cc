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
  bool edited = false;
};

class ScatterTest : public ::testing::TestWithParam<Case> {};

TEST_P(ScatterTest, PutsRecordsInOrderOfTheirPlaces) {
  const Case& c = GetParam();
  SpoolPlace spools(::testing::TempDir(), c.memory_bytes);
  ThreadPool pool(2);
  TestRandom random(1);
  // Without an edit every seventh place stays empty, and records for nowhere are dropped.
  const auto empty = [&](uint64_t place) { return !c.edited && place % 7 == 0; };
  const uint64_t wanted = c.edited ? c.places - c.places / 3 : c.places;
  std::vector<uint32_t> places;
  for (uint32_t place = 0; place < c.places; ++place) {
    places.push_back(empty(place) ? Scatter::kNowhere : place);
  }
  for (size_t i = places.size(); i > 1; --i) std::swap(places[i - 1], places[random.Below(i)]);
  Bytes records(places.size() * c.record_bytes);
  random.Fill(records);
  // An edit sees every record once, beside its place.
  const auto mark = [&](std::span<const uint32_t> at, MutableBytes some) {
    ASSERT_EQ(some.size(), at.size() * c.record_bytes);
    for (size_t i = 0; i < at.size(); ++i) {
      some[i * c.record_bytes] ^= static_cast<uint8_t>(1 + at[i] % 255);
    }
  };
  Bytes expected(wanted * c.record_bytes);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == Scatter::kNowhere || places[i] >= wanted) continue;
    const MutableBytes to =
        MutableBytes(expected).subspan(places[i] * c.record_bytes, c.record_bytes);
    std::copy_n(records.data() + i * c.record_bytes, c.record_bytes, to.data());
    if (c.edited) mark(std::span(&places[i], 1), to);
  }

  SHOAL_ASSERT_OK_AND_ASSIGN(Scatter scatter,
                             Scatter::CreateInBuckets(wanted, c.places, c.record_bytes,
                                                      c.bucket_bytes, spools));
  EXPECT_EQ(spools.file_bytes() == 0, c.memory_bytes > 0 || c.places == 0);
  EXPECT_EQ(scatter.size(), expected.size());
  for (size_t at = 0; at < places.size(); at += 1000) {
    const size_t n = std::min<size_t>(1000, places.size() - at);
    SHOAL_ASSERT_OK(scatter.Put(std::span(places).subspan(at, n),
                                BytesView(records).subspan(at * c.record_bytes,
                                                           n * c.record_bytes),
                                pool, c.edited ? Scatter::Edit(mark) : nullptr));
  }
  EXPECT_EQ(scatter.Whole() != nullptr, spools.file_bytes() == 0);
  if (Spool* const whole = scatter.Whole()) {
    EXPECT_GE(whole->size(), expected.size());
  }
  Bytes out;
  for (;;) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const MutableBytes piece, scatter.Next(pool));
    if (piece.empty()) break;
    Append(out, piece);
  }
  ASSERT_EQ(out.size(), expected.size());
  for (uint32_t place = 0; place < wanted; ++place) {
    if (empty(place)) continue;
    ASSERT_TRUE(std::equal(out.begin() + place * c.record_bytes,
                           out.begin() + (place + 1) * c.record_bytes,
                           expected.begin() + place * c.record_bytes))
        << place;
  }
}

INSTANTIATE_TEST_SUITE_P(
    InMemoryAndInFiles, ScatterTest,
    ::testing::Values(Case{1 << 30, 0, 112, 1 << 20}, Case{1 << 30, 30'000, 112, 1 << 20},
                      Case{1 << 30, 30'000, 112, 1 << 20, true},
                      Case{1 << 30, 100, 70'000, 1 << 20, true}, Case{0, 1, 112, 1 << 20},
                      Case{0, 30'000, 112, 1 << 20}, Case{0, 30'000, 112, 1 << 16},
                      Case{0, 30'000, 112, 1 << 16, true}, Case{0, 3'000, 52, 1},
                      Case{0, 1'000, 4144, 1 << 20}));

TEST(ScatterTest, SaysThatThereIsNoDirectory) {
  SpoolPlace spools("/nowhere/at/all", 0);
  EXPECT_THAT(Scatter::Create(10, 10, spools).status(),
              testing::StatusIs(absl::StatusCode::kNotFound, "/nowhere/at/all"));
}

}  // namespace
}  // namespace shoal::shuffle
