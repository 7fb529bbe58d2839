#include "src/server/slices.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::server {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr uint64_t kMost = 1000;

struct Sent {
  uint32_t from, to;
  ListPart part;
};

// All parts of a list whose machines have runs that begin at these records.
std::vector<Sent> AllParts(uint64_t records, const std::vector<uint64_t>& begins,
                           uint32_t receivers) {
  std::vector<Sent> out;
  for (uint32_t from = 0; from < begins.size(); ++from) {
    const uint64_t end = from + 1 < begins.size() ? begins[from + 1] : records;
    const ListPart run{records, begins[from], end - begins[from]};
    for (const PartToSend& shipment : PartsToSend(run, from, receivers)) {
      out.push_back({from, shipment.to, shipment.part});
    }
  }
  return out;
}

// Even runs, and such that some machines have none.
std::vector<std::vector<uint64_t>> SomeRuns(uint64_t records, uint32_t senders) {
  std::vector<uint64_t> even, first_has_all(senders, records), last_has_all(senders, 0), uneven;
  for (uint32_t i = 0; i < senders; ++i) {
    even.push_back(machines::RunOf(records, i, senders).begin);
    uneven.push_back(i == 0 ? 0 : std::min<uint64_t>(records, uint64_t{i} * i));
  }
  first_has_all[0] = 0;
  return {even, first_has_all, last_has_all, uneven};
}

void Shuffle(std::vector<Sent>& parts, RandomSource& random) {
  for (size_t i = parts.size(); i > 1; --i) {
    uint8_t byte;
    random.Fill({&byte, 1});
    std::swap(parts[i - 1], parts[byte % i]);
  }
}

TEST(SlicesTest, EveryReceiverGetsExactlyItsSlice) {
  shoal::testing::TestRandom random(1);
  for (uint32_t senders = 1; senders <= 5; ++senders) {
    for (uint32_t receivers = 1; receivers <= 5; ++receivers) {
      for (const uint64_t records : {0, 1, 2, 3, 4, 5, 7, 25, 60}) {
        for (const std::vector<uint64_t>& begins : SomeRuns(records, senders)) {
          SCOPED_TRACE(absl::StrCat(senders, " to ", receivers, ", ", records));
          std::vector<Sent> parts = AllParts(records, begins, receivers);
          Shuffle(parts, random);
          for (uint32_t to = 0; to < receivers; ++to) {
            Tiling tiling(to, receivers, senders, kMost);
            std::vector<bool> got(records);
            for (const Sent& sent : parts) {
              if (sent.to != to) continue;
              EXPECT_FALSE(tiling.complete());
              SHOAL_ASSERT_OK(tiling.Add(sent.from, sent.part));
              for (uint64_t r = sent.part.first; r < sent.part.end(); ++r) {
                EXPECT_FALSE(got[r]);
                got[r] = true;
              }
            }
            ASSERT_TRUE(tiling.complete());
            const machines::Run slice = tiling.slice();
            EXPECT_EQ(slice.begin, records * to / receivers);
            EXPECT_EQ(slice.end, records * (to + 1) / receivers);
            for (uint64_t r = 0; r < records; ++r) {
              EXPECT_EQ(got[r], r >= slice.begin && r < slice.end) << r;
            }
          }
        }
      }
    }
  }
}

TEST(SlicesTest, NoMachineSendsMoreThanOnePartToAnother) {
  for (const Sent& sent : AllParts(60, {0, 9, 9, 40}, 3)) {
    EXPECT_TRUE(sent.part.count > 0);
    EXPECT_EQ(sent.part.records, 60u);
  }
  // 9 | - | 31 | 20 over 20 | 20 | 20: machine 0 to 0, machine 2 to 0 and 1, machine 3 to 2.
  EXPECT_EQ(AllParts(60, {0, 9, 9, 40}, 3).size(), 4u);
  // Slices that are empty hear of it from the head alone.
  EXPECT_EQ(AllParts(1, {0, 0, 1}, 3).size(), 3u);
  EXPECT_EQ(AllParts(0, {0, 0, 0}, 4).size(), 4u);
}

// The slice of machine 1 of 2 of 20 records is 10 to 20.
class TilingTest : public ::testing::Test {
 protected:
  Tiling tiling_{1, 2, 4, kMost};
};

TEST_F(TilingTest, WhatIsNoTilingIsRefused) {
  SHOAL_ASSERT_OK(tiling_.Add(1, {20, 12, 3}));
  struct Case {
    uint32_t from;
    ListPart part;
    std::string why;
  };
  const std::vector<Case> cases = {
      {4, {20, 15, 5}, "the party has 4 machines"},
      {~uint32_t{0}, {20, 15, 5}, "the party has 4 machines"},
      {2, {kMost + 1, 15, 5}, "1000 are allowed"},
      {2, {21, 15, 5}, "21 records, and 20 by what another"},
      {1, {20, 12, 3}, "a second part"},
      {1, {20, 15, 5}, "a second part"},
      {2, {20, 9, 3}, "not in the slice of machine 1"},
      {2, {20, 15, 6}, "not in the slice of machine 1"},
      {2, {20, 21, 0}, "not in the slice of machine 1"},
      {2, {20, 15, ~uint64_t{0}}, "not in the slice of machine 1"},
      {2, {20, ~uint64_t{0}, 2}, "not in the slice of machine 1"},
      {2, {20, 15, 0}, "an empty part"},
      {0, {20, 10, 0}, "an empty part"},
      {2, {20, 14, 6}, "overlap"},
      {0, {20, 10, 3}, "overlap"},
      {0, {20, 15, 5}, "overlap"},  // what a later machine has
      {3, {20, 10, 2}, "overlap"},  // what an earlier machine has
      {2, {20, 16, 4}, "nobody has records 15 to 16"},
      {0, {20, 10, 1}, "nobody has records 11 to 12"},
      {0, {20, 11, 1}, "nobody has records 10 to 11"},
      {3, {20, 15, 4}, "nobody has records 19 to 20"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(tiling_.Add(c.from, c.part), StatusIs(kInvalid, c.why)) << c.why;
    EXPECT_FALSE(tiling_.complete());
  }
  // What was refused has changed nothing.
  SHOAL_ASSERT_OK(tiling_.Add(3, {20, 16, 4}));
  EXPECT_THAT(tiling_.Add(2, {20, 15, 2}), StatusIs(kInvalid, "overlap"));
  SHOAL_ASSERT_OK(tiling_.Add(0, {20, 10, 2}));
  EXPECT_FALSE(tiling_.complete());
  SHOAL_ASSERT_OK(tiling_.Add(2, {20, 15, 1}));
  EXPECT_TRUE(tiling_.complete());
}

TEST_F(TilingTest, OnlyTheHeadSpeaksOfAnEmptySlice) {
  Tiling tiling(1, 3, 2, kMost);  // of 1 record, machine 2 of 3 has it
  EXPECT_THAT(tiling.Add(1, {1, 0, 0}), StatusIs(kInvalid, "an empty part"));
  EXPECT_FALSE(tiling.complete());
  SHOAL_ASSERT_OK(tiling.Add(0, {1, 0, 0}));
  EXPECT_TRUE(tiling.complete());
  EXPECT_THAT(tiling.Add(0, {1, 0, 0}), StatusIs(kInvalid, "a second part"));
}

TEST(SlicesTest, ABatchIsCutAndJoinedAgain) {
  const wire::QueryBatch batch = {.positions = {0, 3, 4, 9, 10, 19}, .tallies = {5, 6, 7, 8, 9, 1}};
  const ListPart run{100, 40, 20};
  std::vector<BatchPart> parts;
  uint64_t first = 40;
  for (const uint32_t count : {4, 0, 1, 10, 5}) {
    const wire::QueryBatchView cut = CutBatch(batch, run, {100, first, count});
    parts.push_back({wire::EncodeQueryBatch(cut, count), count});
    SHOAL_EXPECT_OK(wire::CheckQueryBatch(parts.back().encoded, count));
    first += count;
  }
  const auto decoded = [&](size_t i) {
    return *wire::DecodeQueryBatch(parts[i].encoded, static_cast<uint32_t>(parts[i].positions));
  };
  EXPECT_EQ(decoded(0).positions, (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(decoded(3).positions, (std::vector<uint32_t>{4, 5}));
  EXPECT_EQ(decoded(3).tallies, (std::vector<uint32_t>{8, 9}));
  const wire::QueryBatch joined = JoinBatches(parts);
  EXPECT_EQ(joined.positions, batch.positions);
  EXPECT_EQ(joined.tallies, batch.tallies);
}

}  // namespace
}  // namespace shoal::server
