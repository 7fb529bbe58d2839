#include "src/shuffle/permutation.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"

namespace shoal::shuffle {
namespace {

using ::shoal::testing::TestRandom;

TEST(RandomPermutationTest, IsABijection) {
  TestRandom random(1);
  for (size_t n : {0u, 1u, 2u, 1000u}) {
    std::vector<int> hits(n, 0);
    const auto target = RandomPermutation(n, random);
    ASSERT_EQ(target.size(), n);
    for (uint32_t t : target) {
      ASSERT_LT(t, n);
      ++hits[t];
    }
    for (int h : hits) EXPECT_EQ(h, 1);
  }
}

TEST(RandomPermutationTest, AllPermutationsAreEquallyLikely) {
  TestRandom random(2);
  std::map<std::vector<uint32_t>, int> counts;
  constexpr int kTrials = 120000;  // 5000 for each of 4! = 24
  for (int i = 0; i < kTrials; ++i) {
    const auto target = RandomPermutation(4, random);
    ++counts[std::vector<uint32_t>(target.begin(), target.end())];
  }
  ASSERT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [permutation, count] : counts) {
    chi_squared += (count - 5000.0) * (count - 5000.0) / 5000.0;
  }
  EXPECT_LT(chi_squared, 49.7);  // 23 degrees of freedom, p = 0.001
}

}  // namespace
}  // namespace shoal::shuffle
