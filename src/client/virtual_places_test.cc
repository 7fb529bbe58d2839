#include "src/client/virtual_places.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/query_buckets.h"
#include "src/base/testing/test_random.h"

namespace shoal::client {
namespace {

using ::shoal::testing::TestRandom;
using Rows = std::vector<uint32_t>;

// Every set of up to `most` of the numbers below `bound`.
std::vector<Rows> Subsets(uint32_t bound, size_t most) {
  std::vector<Rows> out;
  for (uint32_t bits = 0; bits < 1u << bound; ++bits) {
    Rows rows;
    for (uint32_t row = 0; row < bound; ++row) {
      if (bits >> row & 1) rows.push_back(row);
    }
    if (rows.size() <= most) out.push_back(rows);
  }
  return out;
}

// How many numbers the first has and the second lacks.
size_t OnlyIn(const Rows& a, const Rows& b) {
  Rows only;
  std::ranges::set_difference(a, b, std::back_inserter(only));
  return only.size();
}

// Condition 16. Neither how many keys share a row, nor how many overflow their bucket, shows.
TEST(TwoTiersRowsTest, TheNumberFollowsFromTheKeysAlone) {
  const QueryBuckets buckets(30, 3);
  const VirtualPlaces places(buckets, 4);
  EXPECT_EQ(places.count(), 12u);
  EXPECT_EQ(places.Queries(0, 8), 8u);
  EXPECT_EQ(places.Queries(8, 8), 8u);
  EXPECT_EQ(places.Queries(9, 8), 12u) << "all places there are";
  EXPECT_EQ(places.Queries(1'000'000, 8), 12u);
  EXPECT_EQ(VirtualPlaces(QueryBuckets(3000, 300), 4).Queries(9, 8), 16u);
  TestRandom random(1);
  // Eight keys, in eight rows of all buckets, in eight of one, in two rows, and in none.
  for (const Rows& rows :
       {Rows{0, 1, 2, 3, 4, 5, 6, 7}, Rows{0, 3, 6, 9, 12, 15, 18, 21}, Rows{0, 3}, Rows{}}) {
    EXPECT_EQ(places.Draw(rows, places.Queries(8, 8), random).rows.size(), 8u);
  }
  // More keys than there are places: what remains is unknown.
  Rows all(30);
  for (uint32_t row = 0; row < 30; ++row) all[row] = row;
  const auto drawn = places.Draw(all, places.Queries(30, 8), random);
  EXPECT_EQ(drawn.rows.size(), 12u);
  EXPECT_EQ(drawn.unknown.size(), 18u);
}

// Each wanted row that has a place is asked once, at most c queries are for one bucket, and what
// has none is unknown: never silently left out, never asked beside the others.
TEST(TwoTiersRowsTest, KeysBeyondMostInBucketAreUnknown) {
  TestRandom random(2);
  for (const uint32_t count : {2u, 3u, 5u}) {
    const QueryBuckets buckets(11, count);
    for (const uint32_t most : {1u, 2u, 4u}) {
      const VirtualPlaces places(buckets, most);
      for (const Rows& wanted : Subsets(11, 5)) {
        const uint32_t queries = places.Queries(wanted.size(), 2);
        const auto drawn = places.Draw(wanted, queries, random);
        ASSERT_EQ(drawn.rows.size(), queries);
        std::map<uint32_t, uint32_t> of_bucket, wanted_of_bucket;
        for (const uint32_t row : drawn.rows) {
          ASSERT_LT(row, 11u);
          ASSERT_LE(++of_bucket[buckets.Of(row).bucket], most);
        }
        Rows lost;
        for (const uint32_t row : wanted) {
          const bool has_place = ++wanted_of_bucket[buckets.Of(row).bucket] <= most;
          if (!has_place) lost.push_back(row);
          ASSERT_TRUE(!has_place || std::ranges::find(drawn.rows, row) != drawn.rows.end());
          // A full bucket has no padding, which could ask for it by chance.
          ASSERT_TRUE(has_place || std::ranges::find(drawn.rows, row) == drawn.rows.end());
        }
        Rows unknown = drawn.unknown;
        std::ranges::sort(unknown);
        ASSERT_EQ(unknown, lost);
      }
    }
  }
}

// Of `queries` queries, how many are for each bucket: the distribution that Draw has, and that of
// the list's places with each padding equally often.
void ExpectDrawsPadUniformly(const QueryBuckets& buckets, const VirtualPlaces& places,
                             const Rows& wanted, uint32_t queries, RandomSource& random) {
  const Rows taken = places.Take(wanted).places;
  std::map<Rows, int> expected, drawn;
  int paddings = 0;
  for (const Rows& whole : Subsets(static_cast<uint32_t>(places.count()), queries)) {
    if (whole.size() != queries || OnlyIn(taken, whole) > 0) continue;
    Rows histogram(buckets.count());
    for (const uint32_t place : whole) ++histogram[buckets.Divide(place).bucket];
    ++expected[histogram];
    ++paddings;
  }
  constexpr int kRuns = 500;
  for (int i = 0; i < kRuns; ++i) {
    Rows histogram(buckets.count());
    for (const uint32_t row : places.Draw(wanted, queries, random).rows) {
      ++histogram[buckets.Of(row).bucket];
    }
    ASSERT_TRUE(expected.contains(histogram));
    ++drawn[histogram];
  }
  // Six standard deviations.
  for (const auto& [histogram, times] : expected) {
    const double share = static_cast<double>(times) / paddings;
    EXPECT_NEAR(drawn[histogram], kRuns * share, 6 * std::sqrt(kRuns * share * (1 - share)));
  }
}

// Condition 17, for every two lists that differ in one key, among them such with full buckets:
// places differ by at most one each way, so that there is a coupling of the padding in which one
// place of the whole differs. That coupling is made here, and it pads the other list uniformly.
// What Draw sends for each list has the buckets of its places with such a padding, as often.
TEST(TwoTiersRowsTest, OneKeyChangesOnePlace) {
  TestRandom random(4);
  for (const uint32_t count : {2u, 3u}) {
    const QueryBuckets buckets(6, count);
    for (const uint32_t most : {1u, 2u}) {
      const VirtualPlaces places(buckets, most);
      const auto all = static_cast<uint32_t>(places.count());
      for (const Rows& one : Subsets(6, 4)) {
        ExpectDrawsPadUniformly(buckets, places, one, places.Queries(4, 2), random);
        for (const Rows& other : Subsets(6, 4)) {
          // One key exchanged, or one more or less, as where two keys share a row.
          if (OnlyIn(one, other) > 1 || OnlyIn(other, one) > 1) continue;
          const Rows from = places.Take(one).places, to = places.Take(other).places;
          ASSERT_LE(OnlyIn(from, to), 1u);
          ASSERT_LE(OnlyIn(to, from), 1u);
          const uint32_t queries = places.Queries(4, 2);
          ASSERT_LE(std::max(from.size(), to.size()), queries);
          // How much of the whole, a set of places, each padding of `one` gives each of `other`, in
          // parts of `unit`.
          constexpr uint64_t kUnit = 60;  // divided by up to six choices
          std::map<Rows, uint64_t> padded;
          size_t paddings = 0;
          for (const Rows& whole : Subsets(all, queries)) {
            if (whole.size() != queries || OnlyIn(from, whole) > 0) continue;
            ++paddings;
            std::vector<Rows> next;
            const auto with = [&](const Rows& gone, const Rows& come) {
              std::set<uint32_t> set(whole.begin(), whole.end());
              for (const uint32_t place : gone) set.erase(place);
              for (const uint32_t place : come) set.insert(place);
              next.emplace_back(set.begin(), set.end());
            };
            Rows lost, gained;
            std::ranges::set_difference(from, to, std::back_inserter(lost));
            std::ranges::set_difference(to, from, std::back_inserter(gained));
            const auto has = [&](const Rows& rows) {
              return !rows.empty() && std::ranges::binary_search(whole, rows[0]);
            };
            if (!gained.empty() && has(gained)) {
              next.push_back(
                  whole);  // it was padding there already, and `lost` becomes padding here
            } else if (!gained.empty() && !lost.empty()) {
              with(lost, gained);
            } else if (!gained.empty()) {
              // A random place of the padding gives way.
              for (const uint32_t place : whole) {
                if (!std::ranges::binary_search(from, place)) with({place}, gained);
              }
            } else if (!lost.empty()) {
              // What was lost stays as padding, or a place beyond takes it: as often as uniform
              // padding has it.
              const size_t free = all - to.size(), wanted = queries - to.size();
              for (size_t i = 0; i < free; ++i) {
                if (i < wanted) next.push_back(whole);
              }
              for (uint32_t place = 0; place < all; ++place) {
                if (!std::ranges::binary_search(whole, place)) with(lost, {place});
              }
            } else {
              next.push_back(whole);
            }
            ASSERT_FALSE(next.empty());
            ASSERT_EQ(kUnit % next.size(), 0u) << next.size();
            for (const Rows& coupled : next) {
              ASSERT_LE(OnlyIn(whole, coupled), 1u);
              ASSERT_EQ(OnlyIn(to, coupled), 0u);
              ASSERT_EQ(coupled.size(), queries);
              padded[coupled] += kUnit / next.size();
            }
          }
          // Every padding of `other` has the same share.
          size_t theirs = 0;
          for (const Rows& whole : Subsets(all, queries)) {
            theirs += whole.size() == queries && OnlyIn(to, whole) == 0;
          }
          ASSERT_EQ(padded.size(), theirs);
          for (const auto& [whole, share] : padded) {
            ASSERT_EQ(share * theirs, kUnit * paddings);
          }
        }
      }
    }
  }
}

// Padding is uniform over all virtual places, and its rows over their bucket.
TEST(TwoTiersRowsTest, PaddingIsUniform) {
  const QueryBuckets buckets(6, 2);
  const VirtualPlaces places(buckets, 2);
  TestRandom random(3);
  constexpr int kRuns = 30'000;
  // Row 4 has copy 0 of bucket 0; the one other query is one of the three other places.
  std::map<uint32_t, int> rows;
  int first = 0;
  for (int i = 0; i < kRuns; ++i) {
    const auto drawn = places.Draw(Rows{4}, 2, random);
    ASSERT_EQ(drawn.rows.size(), 2u);
    const bool at_first = drawn.rows[0] == 4;
    ASSERT_TRUE(at_first || drawn.rows[1] == 4);
    first += at_first;
    ++rows[drawn.rows[at_first ? 1 : 0]];
  }
  // One third for copy 1 of bucket 0, two thirds for bucket 1; a third of each for each of its
  // rows. Six standard deviations: wrong by chance once in 10^8.
  for (const auto& [row, expected] : std::map<uint32_t, double>{
           {0, 1. / 9}, {2, 1. / 9}, {4, 1. / 9}, {1, 2. / 9}, {3, 2. / 9}, {5, 2. / 9}}) {
    EXPECT_NEAR(rows[row], kRuns * expected, 6 * std::sqrt(kRuns * expected * (1 - expected)))
        << row;
  }
  // Where both are row 4, the first counts: one ninth more.
  EXPECT_NEAR(first, kRuns * (0.5 + 0.5 / 9), 6 * std::sqrt(kRuns * 0.25));
}

TEST(VirtualPlacesDeathTest, RefusesWhatNoHeaderHas) {
  EXPECT_DEATH(VirtualPlaces(QueryBuckets(4, 2), 0), "most_in_bucket");
  EXPECT_DEATH(VirtualPlaces(QueryBuckets(1u << 30, 1u << 30), 5), "count");
  const VirtualPlaces places(QueryBuckets(4, 2), 2);
  EXPECT_DEATH(places.Take(Rows{1, 1}), "adjacent_find");
}

}  // namespace
}  // namespace shoal::client
