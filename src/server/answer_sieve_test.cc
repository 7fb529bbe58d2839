#include "src/server/answer_sieve.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"

namespace shoal::server {
namespace {

using ::shoal::testing::TestRandom;

// Origins as a party keeps them: queries at `dead` of the positions were not forwarded.
std::vector<uint32_t> Origins(uint64_t positions, uint64_t dead, uint64_t noise, uint64_t seed) {
  TestRandom random(seed);
  std::vector<uint32_t> origins;
  for (uint32_t i = 0; i < positions + noise; ++i) origins.push_back(i);
  origins.erase(origins.begin(), origins.begin() + static_cast<ptrdiff_t>(dead));
  for (size_t i = origins.size(); i > 1; --i) std::swap(origins[i - 1], origins[random.Below(i)]);
  return origins;
}

struct Case {
  uint64_t positions, dead, noise;
  size_t block;
};

class AnswerSieveTest : public ::testing::TestWithParam<Case> {};

TEST_P(AnswerSieveTest, KeepsAllQueriesAndTheSameNumberOfEveryBlock) {
  const Case& c = GetParam();
  std::set<std::vector<size_t>> numbers_kept;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<uint32_t> origins = Origins(c.positions, c.dead, c.noise, seed);
    AnswerSieve sieve(origins.size(), c.positions - c.dead, c.positions, c.block);
    std::set<uint32_t> places;
    std::vector<size_t> kept_of_block;
    for (size_t at = 0; at < origins.size(); at += c.block) {
      const auto block = std::span(origins).subspan(at, std::min(c.block, origins.size() - at));
      const AnswerSieve::Kept kept = sieve.Next(block);
      ASSERT_EQ(kept.numbers.size(), kept.places.size());
      std::set<uint32_t> numbers(kept.numbers.begin(), kept.numbers.end());
      ASSERT_EQ(numbers.size(), kept.numbers.size());
      for (size_t i = 0; i < kept.numbers.size(); ++i) {
        ASSERT_LT(kept.numbers[i], block.size());
        const uint32_t origin = block[kept.numbers[i]];
        if (origin < c.positions) {
          ASSERT_EQ(kept.places[i], origin);
        } else {
          ASSERT_GE(kept.places[i], c.positions);
        }
        ASSERT_LT(kept.places[i], sieve.places());
        ASSERT_TRUE(places.insert(kept.places[i]).second) << "a place twice";
      }
      for (size_t i = 0; i < block.size(); ++i) {
        ASSERT_TRUE(block[i] >= c.positions || numbers.contains(static_cast<uint32_t>(i)));
      }
      kept_of_block.push_back(kept.numbers.size());
    }
    numbers_kept.insert(kept_of_block);
  }
  // Whatever the order, so that the time that a block takes tells nothing of it.
  EXPECT_EQ(numbers_kept.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AnswerSieveTest,
                         ::testing::Values(Case{1, 0, 0, 10}, Case{0, 0, 7, 3}, Case{5, 5, 3, 2},
                                           Case{40, 3, 500, 16}, Case{2'000, 0, 40'000, 1'956},
                                           Case{2'000, 500, 40'000, 1'956},
                                           Case{30'000, 100, 3'000, 1'956},
                                           Case{30'000, 0, 0, 100}));

TEST(AnswerSieveTest, KeepsLittleOfTheNoise) {
  const AnswerSieve sieve(6'500'000, 1'000'000, 1'000'000, 1'956);
  EXPECT_LT(sieve.places(), 1'600'000u);
  EXPECT_GT(sieve.places(), 1'500'000u);
}

// Nothing is lost where the order is not uniform.
TEST(AnswerSieveTest, ABlockOfQueriesAloneIsKept) {
  std::vector<uint32_t> origins = Origins(1'000, 0, 9'000, 1);
  std::ranges::sort(origins);
  AnswerSieve sieve(origins.size(), 1'000, 1'000, 1'000);
  EXPECT_EQ(sieve.Next(std::span(origins).first(1'000)).numbers.size(), 1'000u);
  std::set<uint32_t> places;
  for (size_t at = 1'000; at < origins.size(); at += 1'000) {
    for (const uint32_t place : sieve.Next(std::span(origins).subspan(at, 1'000)).places) {
      EXPECT_TRUE(place >= 1'000 && place < sieve.places() && places.insert(place).second);
    }
  }
}

}  // namespace
}  // namespace shoal::server
