#include "src/shuffle/permutation.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/random.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::shuffle {
namespace {

using ::shoal::testing::TestRandom;

std::vector<uint32_t> Permutation(uint64_t n, uint64_t bucket_items, uint64_t seed,
                                  ThreadPool& pool) {
  const Seed key = TestRandom(seed).NewSeed();
  auto target = RandomPermutationInBuckets(n, bucket_items, key.view(), pool);
  SHOAL_EXPECT_OK(target.status());
  return {target->begin(), target->end()};
}

TEST(RandomPermutationTest, IsABijection) {
  ThreadPool pool(2);
  for (uint64_t bucket_items : {1u, 7u, 1u << 16}) {
    for (uint64_t n : {0u, 1u, 2u, 1000u, 300'000u}) {
      std::vector<int> hits(n, 0);
      const std::vector<uint32_t> target = Permutation(n, bucket_items, 1, pool);
      ASSERT_EQ(target.size(), n);
      for (uint32_t t : target) {
        ASSERT_LT(t, n);
        ++hits[t];
      }
      for (int h : hits) EXPECT_EQ(h, 1);
    }
  }
}

TEST(RandomPermutationTest, AllPermutationsAreEquallyLikely) {
  ThreadPool pool(1);
  // In one bucket, and in four.
  for (uint64_t bucket_items : {4u, 1u}) {
    std::map<std::vector<uint32_t>, int> counts;
    constexpr int kTrials = 12000;  // 500 for each of 4! = 24
    for (int i = 0; i < kTrials; ++i) {
      ++counts[Permutation(4, bucket_items, static_cast<uint64_t>(i), pool)];
    }
    ASSERT_EQ(counts.size(), 24u);
    double chi_squared = 0;
    for (const auto& [permutation, count] : counts) {
      chi_squared += (count - 500.0) * (count - 500.0) / 500.0;
    }
    EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, p = 0.001
  }
}

// A party that repeats a round must come to the same places on any machine.
TEST(RandomPermutationTest, IsTheSameForAnyNumberOfThreads) {
  ThreadPool one(1), three(3);
  EXPECT_EQ(Permutation(600'000, 1 << 16, 5, one), Permutation(600'000, 1 << 16, 5, three));
  EXPECT_NE(Permutation(1000, 1 << 16, 5, one), Permutation(1000, 1 << 16, 6, one));
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
  const std::vector<uint32_t> target = Permutation(kItems, kBucket, 7, pool);
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
