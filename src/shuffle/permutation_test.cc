#include "src/shuffle/permutation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::shuffle {
namespace {

using ::shoal::testing::TestRandom;

std::vector<uint32_t> Permutation(uint64_t n, uint32_t buckets, uint64_t seed, ThreadPool& pool) {
  const Seed key = TestRandom(seed).NewSeed();
  auto target = RandomPermutationInBuckets(n, buckets, key.view(), pool);
  SHOAL_EXPECT_OK(target.status());
  return {target->begin(), target->end()};
}

// The slices of `machines` machines: machine i has items bounds[i] to bounds[i + 1] - 1.
std::vector<uint64_t> EvenSlices(uint64_t n, uint32_t machines) {
  std::vector<uint64_t> bounds;
  for (uint32_t i = 0; i <= machines; ++i) bounds.push_back(n * i / machines);
  return bounds;
}

constexpr uint32_t kNobody = 0xffffffff;

// What machines make together when each draws for its slice and permutes its run of the buckets:
// where every item goes, kNobody for those that do not live, and which machine permuted it.
struct Together {
  std::vector<uint32_t> target, owner;
};
Together PermuteTogether(std::span<const uint64_t> bounds, uint32_t buckets, BytesView key,
                         std::span<const uint8_t> living, ThreadPool& pool) {
  const uint32_t machines = static_cast<uint32_t>(bounds.size() - 1);
  const uint64_t n = bounds.back();
  std::vector<BucketDraw> slices;
  for (uint32_t i = 0; i < machines; ++i) {
    const uint64_t count = bounds[i + 1] - bounds[i];
    const auto mine = living.empty() ? living : living.subspan(bounds[i], count);
    slices.push_back(*BucketDraw::Create(buckets, bounds[i], count, mine, key, pool));
  }
  Together out = {std::vector<uint32_t>(n, kNobody), std::vector<uint32_t>(n, kNobody)};
  uint32_t first_place = 0;
  for (uint32_t owner = 0; owner < machines; ++owner) {
    const uint32_t begin = buckets * owner / machines, end = buckets * (owner + 1) / machines;
    std::vector<uint32_t> sizes(end - begin), before(end - begin);
    for (const BucketDraw& slice : slices) {
      for (uint32_t b = begin; b < end; ++b) sizes[b - begin] += slice.counts()[b];
    }
    const BucketRun run = *BucketRun::Permute(begin, first_place, sizes, key, pool);
    for (uint32_t i = 0; i < machines; ++i) {
      run.Place(slices[i], before,
                std::span(out.target).subspan(bounds[i], slices[i].bucket_of().size()), pool);
      for (uint32_t b = begin; b < end; ++b) before[b - begin] += slices[i].counts()[b];
    }
    EXPECT_EQ(before, sizes);
    for (uint64_t item = 0; item < n; ++item) {
      const bool mine = out.target[item] >= first_place && out.target[item] < run.end_place();
      if (mine && out.target[item] != kNobody) out.owner[item] = owner;
    }
    first_place = run.end_place();
  }
  return out;
}

TEST(RandomPermutationTest, IsABijection) {
  ThreadPool pool(2);
  for (uint32_t buckets : {1u, 8u, kMaxBuckets}) {
    for (uint64_t n : {0u, 1u, 2u, 1000u, 300'000u}) {
      std::vector<int> hits(n, 0);
      const std::vector<uint32_t> target = Permutation(n, buckets, 1, pool);
      ASSERT_EQ(target.size(), n);
      for (uint32_t t : target) {
        ASSERT_LT(t, n);
        ++hits[t];
      }
      for (int h : hits) EXPECT_EQ(h, 1);
    }
  }
}

// Chi-squared over all permutations of up to 6 items, made by 1 to 3 machines in 1 and in 4
// buckets. The bound is the quantile of 1 - 1e-5 by Wilson and Hilferty's approximation.
TEST(RandomPermutationTest, AllPermutationsAreEquallyLikely) {
  ThreadPool pool(1);
  uint64_t seed = 0;
  uint64_t permutations = 1;
  for (uint64_t n = 2; n <= 6; ++n) {
    permutations *= n;
    for (uint32_t machines = 1; machines <= 3; ++machines) {
      for (uint32_t buckets : {1u, 4u}) {
        std::map<std::vector<uint32_t>, uint64_t> counts;
        constexpr uint64_t kEach = 8;
        for (uint64_t i = 0; i < kEach * permutations; ++i) {
          const Seed key = TestRandom(++seed).NewSeed();
          ++counts[PermuteTogether(EvenSlices(n, machines), buckets, key.view(), {}, pool).target];
        }
        double chi_squared = static_cast<double>((permutations - counts.size()) * kEach);
        for (const auto& [permutation, count] : counts) {
          const double d = static_cast<double>(count) - kEach;
          chi_squared += d * d / kEach;
        }
        const double freedom = static_cast<double>(permutations - 1), part = 2 / (9 * freedom);
        EXPECT_LT(chi_squared, freedom * std::pow(1 - part + 4.26 * std::sqrt(part), 3))
            << n << " items, " << machines << " machines, " << buckets << " buckets";
      }
    }
  }
}

// The permutation is a function of n and its key. Slices may be empty, of any length, begin and end
// within the chunks that share a stream, and there may be more machines than items or buckets.
TEST(RandomPermutationTest, IsTheSameForAnyMachines) {
  ThreadPool pool(2);
  for (const uint64_t n : {0u, 1u, 3u, 1000u, 300'000u}) {
    for (const uint32_t buckets : {1u, 4u, 256u}) {
      const Seed key = TestRandom(n).NewSeed();
      const auto one = *RandomPermutationInBuckets(n, buckets, key.view(), pool);
      const std::vector<uint32_t> expected(one.begin(), one.end());
      for (const uint32_t machines : {1u, 2u, 3u, 4u, 8u}) {
        EXPECT_EQ(PermuteTogether(EvenSlices(n, machines), buckets, key.view(), {}, pool).target,
                  expected)
            << n << " items, " << machines << " machines";
      }
      const std::vector<uint64_t> uneven = {0, 0, n / 7, n / 7, std::min<uint64_t>(n, 1 << 18),
                                            n, n};
      EXPECT_EQ(PermuteTogether(uneven, buckets, key.view(), {}, pool).target, expected) << n;
    }
  }
}

// An item that does not live leaves its word unused. The living ones still fill all places, and
// which machine has what makes no difference.
TEST(RandomPermutationTest, OnlyLivingItemsGetPlaces) {
  ThreadPool pool(2);
  constexpr uint64_t kItems = 300'000;
  const Seed key = TestRandom(9).NewSeed();
  std::vector<uint8_t> living(kItems, 1);
  for (uint64_t i = 0; i < kItems; i += 1 + i % 5) living[i] = 0;
  const auto live = static_cast<uint32_t>(std::ranges::count(living, 1));
  const auto one = PermuteTogether(EvenSlices(kItems, 1), 64, key.view(), living, pool).target;
  const auto three = PermuteTogether(EvenSlices(kItems, 3), 64, key.view(), living, pool).target;
  EXPECT_EQ(one, three);
  std::vector<int> hits(live, 0);
  for (uint64_t i = 0; i < kItems; ++i) {
    ASSERT_EQ(one[i] != kNobody, living[i] == 1);
    if (one[i] == kNobody) continue;
    ASSERT_LT(one[i], live);
    ++hits[one[i]];
  }
  EXPECT_EQ(std::ranges::count(hits, 1), live);
}

// To which machine an item goes does not depend on the machine that it came to.
TEST(RandomPermutationTest, TheMachineOutDoesNotDependOnTheMachineIn) {
  ThreadPool pool(1);
  constexpr uint32_t kMachines = 3, kItems = 9;
  constexpr int kTrials = 3000;
  std::array<std::array<int, kMachines>, kItems> seen = {};
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const Seed key = TestRandom(1'000'000 + trial).NewSeed();
    const Together out = PermuteTogether(EvenSlices(kItems, kMachines), 8, key.view(), {}, pool);
    for (uint32_t item = 0; item < kItems; ++item) ++seen[item][out.owner[item]];
  }
  // Of 8 buckets the machines own 2, 3 and 3.
  constexpr std::array<double, kMachines> kShare = {2.0 / 8, 3.0 / 8, 3.0 / 8};
  for (const auto& counts : seen) {
    double chi_squared = 0;
    for (uint32_t machine = 0; machine < kMachines; ++machine) {
      const double expected = kTrials * kShare[machine], d = counts[machine] - expected;
      chi_squared += d * d / expected;
    }
    EXPECT_LT(chi_squared, 23.0);  // 2 degrees of freedom, p = 1e-5
  }
}

// A bucket's order is its own, and the same whether its owner has other buckets or not.
TEST(RandomPermutationTest, BucketsArePermutedByThemselves) {
  ThreadPool pool(1);
  const Seed key = TestRandom(3).NewSeed();
  const std::vector<uint32_t> sizes = {100, 100};
  const BucketRun both = *BucketRun::Permute(6, 1000, sizes, key.view(), pool);
  const BucketRun second = *BucketRun::Permute(7, 1100, std::span(sizes).last(1), key.view(), pool);
  EXPECT_TRUE(std::ranges::equal(both.places(7), second.places(7)));
  EXPECT_FALSE(std::ranges::equal(both.places(6), both.places(7), {},
                                  [](uint32_t place) { return place + 100; }));
  EXPECT_EQ(both.end_place(), 1200u);
  EXPECT_EQ(both.end_bucket(), 8u);
}

// A machine can find the items of some places alone.
TEST(RandomPermutationTest, ItemsAtIsTheInverse) {
  ThreadPool pool(2);
  for (const uint64_t n : {1u, 5u, 70'000u, 300'000u}) {
    const Seed key = TestRandom(n).NewSeed();
    const auto target = *RandomPermutation(n, key.view(), pool);
    for (const uint32_t machines : {1u, 3u, 8u}) {
      const std::vector<uint64_t> bounds = EvenSlices(n, machines);
      for (uint32_t i = 0; i < machines; ++i) {
        const auto items = *ItemsAt(bounds[i], bounds[i + 1], n, key.view(), pool);
        ASSERT_EQ(items.size(), bounds[i + 1] - bounds[i]);
        for (size_t k = 0; k < items.size(); ++k) ASSERT_EQ(target[items[k]], bounds[i] + k);
      }
    }
  }
}

// What byte identity rests on: nothing but n decides.
TEST(RandomPermutationTest, TheNumberOfBucketsFollowsFromTheItems) {
  EXPECT_EQ(BucketCount(0), 1u);
  EXPECT_EQ(BucketCount(1), 1u);
  EXPECT_EQ(BucketCount(0xffffffff), kMaxBuckets);
  for (uint64_t n = 2; n < 0xffffffff; n *= 3) {
    EXPECT_TRUE(std::has_single_bit(BucketCount(n)));
    EXPECT_LE(BucketCount(n - 1), BucketCount(n));
  }
  // Four machines and more have about equal shares of lists that are long enough to divide.
  EXPECT_GE(BucketCount(200'000), 64u);
}

// What a key gives is fixed: whoever changes it gives the streams other domains. Repeats by another
// version of the program would otherwise show two permutations of the same queries.
TEST(RandomPermutationTest, KnownAnswers) {
  ThreadPool pool(2);
  const Bytes key(32, 7);
  const auto few = *RandomPermutationInBuckets(10, 4, key, pool);
  EXPECT_EQ(std::vector<uint32_t>(few.begin(), few.end()),
            (std::vector<uint32_t>{4, 7, 2, 0, 9, 1, 8, 3, 5, 6}));
  Transcript places("shoal permutation test");
  const auto many = *RandomPermutation(300'000, key, pool);
  for (const uint32_t place : many) places.U64(place);
  EXPECT_EQ(Hex(places.Finish()),
            "d4c1459b1d7ef82f14607b7e26403cb8175ea7db143a1e794e1f3507f8df1452");
}

// How even the shares of a party's machines are, for lists of 64 buckets and more.
TEST(RandomPermutationTest, MachinesHaveEvenShares) {
  for (uint32_t buckets = BucketCount((1 << 15) + 1); buckets <= kMaxBuckets; buckets *= 2) {
    ASSERT_GE(buckets, 64u);
    for (uint32_t machines = 1; machines <= 64; ++machines) {
      const std::vector<uint64_t> bounds = EvenSlices(buckets, machines);
      for (uint32_t i = 0; i < machines; ++i) {
        const auto share = static_cast<double>((bounds[i + 1] - bounds[i]) * machines) / buckets;
        EXPECT_GT(share, 0);
        EXPECT_LT(share, machines <= 8 ? 1.1 : 2.0) << machines << " machines";
      }
    }
  }
}

// A party that repeats a round must come to the same places on any machine.
TEST(RandomPermutationTest, IsTheSameForAnyNumberOfThreads) {
  ThreadPool one(1), three(3);
  EXPECT_EQ(Permutation(600'000, 16, 5, one), Permutation(600'000, 16, 5, three));
  EXPECT_NE(Permutation(1000, 1, 5, one), Permutation(1000, 1, 6, one));
}

// With several buckets, too, an item's place is uniform.
TEST(RandomPermutationTest, PlacesAreUniformAcrossBuckets) {
  ThreadPool pool(1);
  constexpr uint64_t kItems = 64, kTrials = 4000;
  // counts[p]: how often the first item came to place p.
  std::vector<int> counts(kItems, 0);
  for (uint64_t i = 0; i < kTrials; ++i) ++counts[Permutation(kItems, 8, i, pool)[0]];
  double chi_squared = 0;
  const double expected = static_cast<double>(kTrials) / kItems;
  for (int count : counts) chi_squared += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_squared, 103.4);  // 63 degrees of freedom, p = 0.001
}

// The buckets of items in different chunks (2^18 items) are drawn independently: whether two items,
// a chunk apart, come to the same of 8 buckets happens with probability 1/8. The count over 2^18
// pairs is within 8 standard deviations.
TEST(RandomPermutationTest, ChunksDrawBucketsOfTheirOwn) {
  ThreadPool pool(2);
  constexpr uint64_t kApart = 1 << 18, kItems = 2 * kApart, kBucket = kItems / 8;
  const std::vector<uint32_t> target = Permutation(kItems, 8, 7, pool);
  int same = 0;
  for (uint64_t i = 0; i < kApart; ++i) {
    same += target[i] / kBucket == target[i + kApart] / kBucket ? 1 : 0;
  }
  // The deviation is the square root of 2^18 * 1/8 * 7/8, 169. Buckets are only about as long as
  // kBucket, by some hundreds, which moves the count by less than that.
  EXPECT_NEAR(same, kApart / 8, 8 * 169);
}

}  // namespace
}  // namespace shoal::shuffle
