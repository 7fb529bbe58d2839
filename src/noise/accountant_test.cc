#include "src/noise/accountant.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::noise {
namespace {

using ::shoal::testing::StatusIs;

std::vector<Weight> Weights(const std::vector<double>& frequencies) {
  return WeightsFrom(frequencies).value();
}

// delta by its definition: sums over every outcome of the 2n rows, for world 0 against world 1 or,
// with `reverse`, the other way round.
double BruteForce(const std::vector<double>& pmf, double epsilon, int n, int copies, bool reverse) {
  const int values = static_cast<int>(pmf.size()) + copies;
  const auto p = [&](int k) { return k < 0 || k >= static_cast<int>(pmf.size()) ? 0.0 : pmf[k]; };
  std::vector<std::pair<double, double>> outcomes = {{1, 1}};
  for (int row = 0; row < 2 * n; ++row) {
    std::vector<std::pair<double, double>> next;
    for (const auto& [a, b] : outcomes) {
      for (int x = 0; x < values; ++x) {
        const double moved = p(x - copies), still = p(x);
        next.emplace_back(a * (row % 2 == 0 ? moved : still), b * (row % 2 == 0 ? still : moved));
      }
    }
    outcomes = std::move(next);
  }
  double delta = 0;
  for (const auto& [a, b] : outcomes) {
    delta += std::max(0.0, reverse ? b - std::exp(epsilon) * a : a - std::exp(epsilon) * b);
  }
  return delta;
}

// A small, lopsided distribution with a hole and without any order, as the accountant may not rely
// on a nice shape.
const std::vector<double> kOdd = {0.02, 0.3, 0.1, 0.0, 0.25, 0.2, 0.1, 0.03};
const std::vector<double> kSmooth = {0.03, 0.1, 0.17, 0.2, 0.19, 0.14, 0.1, 0.07};

TEST(SubstitutionDeltaTest, IsTheDefinitionInBothDirections) {
  for (const std::vector<double>& pmf : {kOdd, kSmooth}) {
    for (double epsilon : {0.0, 0.1, 0.7, 2.0}) {
      for (uint32_t copies : {1, 2}) {
        const double forward = BruteForce(pmf, epsilon, 1, copies, false);
        EXPECT_NEAR(forward, BruteForce(pmf, epsilon, 1, copies, true), 1e-12);
        SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds delta,
                                   SubstitutionDelta(Weights(pmf), epsilon, {.copies = copies}));
        EXPECT_LE(delta.lower, delta.upper);
        EXPECT_NEAR(delta.lower, forward, 1e-12);
        EXPECT_NEAR(delta.upper, forward, 1e-12);
      }
    }
  }
}

TEST(SubstitutionDeltaTest, ConvolutionBracketsTheDefinition) {
  for (const std::vector<double>& pmf : {kOdd, kSmooth}) {
    for (double epsilon : {0.0, 0.3, 1.5, 4.0}) {
      const double exact = BruteForce(pmf, epsilon, 2, 1, false);
      SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds delta,
                                 SubstitutionDelta(Weights(pmf), epsilon, {.phi = 2}));
      EXPECT_LE(delta.lower, exact + 1e-13) << epsilon;
      EXPECT_GE(delta.upper, exact - 1e-13) << epsilon;
      EXPECT_NEAR(delta.lower, exact, 1e-4 * exact + 1e-12) << epsilon;
      EXPECT_NEAR(delta.upper, exact, 1e-5 * exact + 1e-12) << epsilon;
    }
  }
}

TEST(SubstitutionDeltaTest, RoundsAndRetriesCountLikeChanges) {
  const std::vector<Weight> weights = Weights(kSmooth);
  SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds phi, SubstitutionDelta(weights, 1, {.phi = 6}));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const DeltaBounds mixed,
      SubstitutionDelta(weights, 1, {.phi = 1, .rounds = 3, .submissions = 2}));
  EXPECT_EQ(phi.upper, mixed.upper);
  SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds one, SubstitutionDelta(weights, 1, {}));
  EXPECT_GT(phi.upper, one.upper);
}

TEST(SubstitutionDeltaTest, ManyChangesOfOneBitAreABinomial) {
  // Noise of 0 or 1 with equal probability: each of the two rows of a change gives the change away
  // with probability 1/2 and is neutral otherwise.
  const std::vector<Weight> coin = Weights({1, 1});
  for (uint32_t n : {1, 2, 5}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds delta, SubstitutionDelta(coin, 0.5, {.phi = n}));
    EXPECT_NEAR(delta.upper, 1 - std::pow(0.25, n), 1e-12);
    EXPECT_NEAR(delta.lower, 1 - std::pow(0.25, n), 1e-12);
  }
}

// Symmetric geometric noise cut at both ends, the classical choice: 217 queries a row for (0.1,
// 1e-6). No mechanism here offers it, as it costs more.
TEST(SubstitutionDeltaTest, SymmetricGeometricCutAtBothEnds) {
  std::vector<double> frequencies(2 * 217 + 1);
  for (int k = 0; k <= 2 * 217; ++k) frequencies[k] = std::exp(-std::abs(k - 217) / 20.0);
  double total = 0, weighted = 0;
  for (size_t k = 0; k < frequencies.size(); ++k) {
    total += frequencies[k];
    weighted += static_cast<double>(k) * frequencies[k];
  }
  EXPECT_NEAR(weighted / total, 217, 1e-9);
  SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds delta,
                             SubstitutionDelta(Weights(frequencies), 0.1, {}));
  EXPECT_NEAR(delta.upper, 9.7e-7, 0.05e-7);
  EXPECT_LE(delta.lower, delta.upper);
}

TEST(SubstitutionDeltaTest, BadArgumentsAreNamed) {
  const std::vector<Weight> weights = Weights(kSmooth);
  const auto expect = [](const auto& result, const char* message) {
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  expect(SubstitutionDelta(weights, -0.1, {}), "epsilon must be in [0, 50]");
  expect(SubstitutionDelta(weights, NAN, {}), "epsilon must be in [0, 50]");
  expect(SubstitutionDelta(weights, 1, {.phi = 0}), "at least 1");
  expect(SubstitutionDelta(weights, 1, {.rounds = 0}), "at least 1");
  expect(SubstitutionDelta(weights, 1, {.phi = 1 << 20, .rounds = 1 << 20}), "at most 1000000000");
  expect(SubstitutionDelta(weights, 1, {.copies = 0}), "copies must be in [1, 10000]");
  std::vector<Weight> wrong = weights;
  wrong[3] -= 1;
  expect(SubstitutionDelta(wrong, 1, {}), "must sum to 2^128");
  expect(SubstitutionDelta({}, 1, {}), "must sum to 2^128");
  expect(SubstitutionDelta(std::vector<Weight>(4, Weight{1} << 127), 1, {}), "over 2^128");
  expect(WeightsFrom(std::vector<double>{1, -1}), "finite and not negative");
  expect(WeightsFrom(std::vector<double>{1, INFINITY}), "finite and not negative");
  expect(WeightsFrom(std::vector<double>{0, 0}), "all zero");
}

TEST(FullestPatternTest, IsAsFullAsCanBe) {
  const auto expect = [](uint32_t phi, uint32_t most, uint32_t pairs, uint32_t copies) {
    const Exposure pattern = FullestPattern(phi, most);
    EXPECT_EQ(pattern.phi, pairs) << phi << " " << most;
    EXPECT_EQ(pattern.copies, copies) << phi << " " << most;
    EXPECT_EQ(pattern.rounds, 1u);
    EXPECT_EQ(pattern.submissions, 1u);
  };
  expect(1, 1, 1, 1);
  expect(64, 1, 64, 1);
  expect(64, 4, 16, 4);
  expect(64, 17, 4, 17);
  expect(65, 4, 17, 4);
  expect(3, 8, 1, 3);
  expect(~0u, ~0u, 1, ~0u);
  expect(~0u, 2, 1u << 31, 2);
}

// delta of a pattern by its definition: bucket b's count falls by pattern[b] from one world to the
// other, or rises where that is negative. For each total of the noise, or for all together.
std::vector<double> DeltaOfPattern(const std::vector<double>& pmf, const std::vector<int>& pattern,
                                   double factor) {
  const int values = static_cast<int>(pmf.size());
  const auto p = [&](int k) { return k < 0 || k >= values ? 0.0 : pmf[k]; };
  struct Outcome {
    double here, there;
    int total;
  };
  std::vector<Outcome> outcomes = {{1, 1, 0}};
  for (const int falls : pattern) {
    std::vector<Outcome> next;
    for (const Outcome& outcome : outcomes) {
      for (int v = 0; v < values; ++v) {
        next.push_back({outcome.here * p(v), outcome.there * p(v + falls), outcome.total + v});
      }
    }
    outcomes = std::move(next);
  }
  std::vector<double> of_total(static_cast<size_t>(values) * pattern.size());
  for (const Outcome& outcome : outcomes) {
    of_total[outcome.total] += std::max(0.0, outcome.here - factor * outcome.there);
  }
  return of_total;
}

// All patterns of up to `phi` changes of at most `most` in a bucket.
void EachPattern(size_t buckets, int phi, int most, std::vector<int>& pattern,
                 const std::function<void()>& check) {
  if (pattern.size() == buckets) {
    int sum = 0, falls = 0;
    for (const int w : pattern) sum += w, falls += std::max(w, 0);
    if (sum == 0 && falls <= phi) check();
    return;
  }
  for (int w = -most; w <= most; ++w) {
    pattern.push_back(w);
    EachPattern(buckets, phi, most, pattern, check);
    pattern.pop_back();
  }
}

// The lemma of docs/privacy.md, in small cases: under log-concave noise nothing that a client could
// ask in place of something else is worse than the fullest pattern, at any epsilon, below 0 too,
// and for any total of the noise, after which an adversary could choose.
TEST(FullestPatternTest, NoPatternIsWorseThanTheFullest) {
  const std::vector<std::vector<double>> shapes = {
      {0.1, 0.2, 0.4, 0.2, 0.1},       // geometric, both sides
      {0.05, 0.24, 0.42, 0.24, 0.05},  // steeper at its ends
      {0.25, 0.25, 0.25, 0.25},        // uniform
      {0.6, 0.3, 0.1},                 // falling, cut hard
  };
  for (const std::vector<double>& pmf : shapes) {
    for (const auto& [phi, most] : {std::pair{2, 1}, {2, 2}, {3, 2}, {4, 2}}) {
      const Exposure full = FullestPattern(phi, most);
      std::vector<int> fullest;
      int left = phi;
      while (left > 0) {
        const int own = std::min<int>(left, most);
        fullest.insert(fullest.end(), {own, -own});
        left -= own;
      }
      EXPECT_EQ(fullest.size(), 2 * full.phi);
      const size_t buckets = std::max<size_t>(4, fullest.size());
      fullest.resize(buckets);
      for (const double factor : {0.1, 0.7, 1.0, 1.5, 4.0}) {
        const std::vector<double> worst = DeltaOfPattern(pmf, fullest, factor);
        std::vector<int> pattern;
        EachPattern(buckets, phi, most, pattern, [&] {
          const std::vector<double> delta = DeltaOfPattern(pmf, pattern, factor);
          for (size_t total = 0; total < delta.size(); ++total) {
            ASSERT_LE(delta[total], worst[total] + 1e-14) << total;
          }
        });
      }
    }
  }
  // Clamped Laplace has a lump at zero, and is not log-concave: there spreading is worse.
  const std::vector<double> lump = {0.4, 0.1, 0.15, 0.2, 0.15};
  const auto sum = [](const std::vector<double>& of) {
    return std::accumulate(of.begin(), of.end(), 0.0);
  };
  bool worse = false;
  for (const double factor : {1.5, 2.0, 3.0, 4.5}) {
    worse = worse || sum(DeltaOfPattern(lump, {1, 1, -1, -1}, factor)) >
                         sum(DeltaOfPattern(lump, {2, -2, 0, 0}, factor)) + 1e-3;
  }
  EXPECT_TRUE(worse);
}

// Pairs of several copies in a composition, too, are the definition's.
TEST(CompositionTest, CopiesAreThoseOfTheDefinition) {
  const std::vector<Weight> weights = Weights(kSmooth);
  for (const uint32_t copies : {1, 2, 3}) {
    for (const double epsilon : {0.3, 1.5}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const DeltaBounds composed,
          ComposedDelta({.noise = {{weights, 2, copies}}, .claims = {}}, epsilon));
      const double exact = BruteForce(kSmooth, epsilon, 2, static_cast<int>(copies), false);
      EXPECT_NEAR(composed.upper, exact, 1e-5 * exact + 1e-12);
      // One of each kind.
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const DeltaBounds mixed,
          ComposedDelta({.noise = {{weights, 1, copies}, {weights, 1}}, .claims = {}}, epsilon));
      EXPECT_LE(mixed.upper, composed.upper * (1 + 1e-6));
    }
  }
  EXPECT_THAT(ComposedDelta({.noise = {{weights, 1, 0}}, .claims = {}}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "copies must be in [1, 10000]"));
  EXPECT_THAT(ComposedDelta({.noise = {{weights, 1, 10'001}}, .claims = {}}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, "copies must be in [1, 10000]"));
}

// One setting in a composition is the same as as many changes.
TEST(CompositionTest, OneSettingIsManyChanges) {
  const std::vector<Weight> weights = Weights(kSmooth);
  for (const uint32_t changes : {2, 6, 40}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds same,
                               SubstitutionDelta(weights, 1, {.phi = changes}));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const DeltaBounds composed,
        ComposedDelta({.noise = {{weights, changes - 1}, {weights, 1}}, .claims = {}}, 1));
    EXPECT_NEAR(composed.upper, same.upper, 1e-4 * same.upper);
    EXPECT_LE(composed.lower, same.upper);
    EXPECT_GE(composed.upper, same.lower);
  }
}

// Two settings that either give a change away or say nothing: the probabilities multiply.
TEST(CompositionTest, DifferentCoinsMultiply) {
  const std::vector<Weight> coin = Weights({1, 1}), die = Weights({1, 1, 1, 1});
  SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds delta,
                             ComposedDelta({.noise = {{coin, 2}, {die, 3}}, .claims = {}}, 0.5));
  // A row gives a change away with probability 1/2 and 1/4; a change has two rows.
  const double expected = 1 - std::pow(0.5, 4) * std::pow(0.75, 6);
  EXPECT_NEAR(delta.upper, expected, 1e-12);
  EXPECT_NEAR(delta.lower, expected, 1e-12);
}

// Kairouz, Oh, Viswanath 2015, theorem 3.3: the exact privacy of n claims, by their formula.
TEST(CompositionTest, ClaimsComposeAsInTheTheorem) {
  const double epsilon = 0.3, delta = 1e-4;
  constexpr int kTimes = 7;
  for (int i = 0; i <= 3; ++i) {
    double sum = 0, binomial = 1;
    for (int l = 0; l < i; ++l) {
      sum +=
          binomial * (std::exp((kTimes - l) * epsilon) - std::exp((kTimes - 2 * i + l) * epsilon));
      binomial *= static_cast<double>(kTimes - l) / (l + 1);
    }
    const double expected =
        1 - std::pow(1 - delta, kTimes) * (1 - sum / std::pow(1 + std::exp(epsilon), kTimes));
    SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds composed,
                               ComposedDelta({.noise = {}, .claims = {{epsilon, delta, kTimes}}},
                                             (kTimes - 2 * i) * epsilon));
    EXPECT_NEAR(composed.upper, expected, 1e-9) << i;
    EXPECT_NEAR(composed.lower, expected, 1e-9) << i;
  }
}

TEST(CompositionTest, EpsilonIsTheInverseOfDelta) {
  const std::vector<Weight> weights = Weights(kSmooth);
  const Composition composition{.noise = {{weights, 4}}, .claims = {{0.2, 1e-9, 2}}};
  SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds delta, ComposedDelta(composition, 0.8));
  SHOAL_ASSERT_OK_AND_ASSIGN(const double epsilon, ComposedEpsilon(composition, delta.upper));
  EXPECT_NEAR(epsilon, 0.8, 1e-3);
  SHOAL_ASSERT_OK_AND_ASSIGN(const DeltaBounds again, ComposedDelta(composition, epsilon));
  EXPECT_LE(again.upper, delta.upper);
}

TEST(CompositionTest, NothingCostsNothing) {
  EXPECT_EQ(*ComposedEpsilon({}, 0), 0);
  EXPECT_EQ(ComposedDelta({}, 0)->upper, 0);
  const std::vector<Weight> weights = Weights(kSmooth);
  EXPECT_EQ(*ComposedEpsilon({.noise = {{weights, 0}}, .claims = {{1, 1e-6, 0}}}, 0), 0);
}

TEST(CompositionTest, NoEpsilonHoldsBelowWhatIsGivenAway) {
  // One claim gives its change away with probability 1e-6, and so three do with three times that.
  const Composition composition{.noise = {}, .claims = {{1, 1e-6, 3}}};
  EXPECT_THAT(ComposedEpsilon(composition, 1e-6),
              StatusIs(absl::StatusCode::kOutOfRange, "no epsilon up to 50 holds at delta 1e-06"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const double epsilon, ComposedEpsilon(composition, 3e-6));
  EXPECT_NEAR(epsilon, 3, 1e-3);
}

TEST(CompositionTest, BadArgumentsAreNamed) {
  const std::vector<Weight> weights = Weights(kSmooth);
  const auto expect = [](const auto& result, const char* message) {
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  expect(ComposedDelta({.noise = {{weights, 1}}, .claims = {}}, -1), "epsilon must be in [0, 50]");
  expect(ComposedEpsilon({.noise = {{weights, 1}}, .claims = {}}, NAN), "delta must be in [0, 1]");
  expect(ComposedEpsilon({.noise = {{weights, kMaxChanges}, {weights, 1}}, .claims = {}}, 0.1),
         "at most 1000000000 changes");
  expect(ComposedEpsilon({.noise = {{weights, ~uint64_t{0}}}, .claims = {}}, 0.1),
         "at most 1000000000 changes");
  expect(ComposedEpsilon({.noise = {}, .claims = {{INFINITY, 0, 1}}}, 0.1), "out of range");
  expect(ComposedEpsilon({.noise = {}, .claims = {{1, 1, 1}}}, 0.1), "out of range");
  std::vector<Weight> wrong = weights;
  wrong[3] -= 1;
  expect(ComposedDelta({.noise = {{wrong, 1}}, .claims = {}}, 1), "must sum to 2^128");
}

}  // namespace
}  // namespace shoal::noise
