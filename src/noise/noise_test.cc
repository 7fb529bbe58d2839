#include "src/noise/noise.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::noise {
namespace {

using enum Mechanism;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;

constexpr Parameters kDefault = {kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74};

long double Real(Weight weight) { return std::ldexp(static_cast<long double>(weight), -128); }

std::vector<Parameters> OneOfEach() {
  return {kDefault,
          {kGeometric, 1, 1e-6, 1, 15, 1.25, 5.0},
          {kClampedLaplace, 0.1, 1e-6, 1, 277},
          {kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177},
          {kGeometric, 50, 0.5, 1, 0, 0.1, 0.1}};
}

TEST(DistributionTest, TablesSumToOneAndKeepTheirDefinition) {
  for (const Parameters& p : OneOfEach()) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d, Distribution::Create(p));
    Weight sum = 0;
    for (Weight w : d.weights()) sum += w;
    EXPECT_EQ(static_cast<uint64_t>(sum), 0u);  // 2^128
    EXPECT_EQ(static_cast<uint64_t>(sum >> 64), 0u);
    ASSERT_EQ(d.weights().size(), size_t{d.max()} + 1);
    // Log ratios of neighbours around the mode, where they are large enough for long doubles.
    const auto w = d.weights();
    const auto ratio = [&](uint32_t k) { return std::log(Real(w[k + 1]) / Real(w[k])); };
    for (uint32_t k = p.mode > 50 ? p.mode - 50 : 0; k < p.mode + 50 && k + 1 < w.size(); ++k) {
      long double expected = 0;
      const long double from = static_cast<long double>(k) - p.mode;  // to the left end
      if (w[k] < Weight{1} << 90 || w[k + 1] < Weight{1} << 90) continue;
      switch (p.mechanism) {
        case kClampedLaplace:
          // k has the mass of [k, k + 1): it falls by the same factor a step on both sides, and the
          // two values around the mode are equal.
          expected = from < -1 ? 0.05L : from == -1 ? 0 : -0.05L;
          break;
        case kGeometric:
          expected = from < 0 ? 1.0L / p.left_scale : -1.0L / p.right_scale;
          break;
        case kSplitGaussian: {
          const long double s = from < 0 ? p.left_scale : p.right_scale;
          expected = -(2 * from + 1) / (2 * s * s);
          break;
        }
      }
      EXPECT_NEAR(ratio(k), expected, 1e-10L) << MechanismName(p.mechanism) << " at " << k;
    }
  }
}

TEST(DistributionTest, ClampedLaplaceIsThePapersAlgorithmSix) {
  // P(k) by the distribution function of Laplace(0, 20), clamped to [0, 2B].
  SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d,
                             Distribution::Create({kClampedLaplace, 0.1, 1e-6, 1, 277}));
  const auto cdf = [](long double u) {
    return u < 0 ? std::exp(u / 20) / 2 : 1 - std::exp(-u / 20) / 2;
  };
  ASSERT_EQ(d.max(), 554u);
  EXPECT_NEAR(Real(d.weights()[0]), cdf(-276), 1e-16L);
  for (int k = 1; k < 554; ++k) {
    EXPECT_NEAR(Real(d.weights()[k]), cdf(k + 1 - 277) - cdf(k - 277), 1e-16L) << k;
  }
  EXPECT_NEAR(Real(d.weights()[554]), 1 - cdf(277), 1e-16L);
}

TEST(DistributionTest, ZeroAndTheLastValueAreRoundedLikeTheRest) {
  // One-sided geometric with e^-10 a step: P(k) = (1 - e^-10) e^(-10 k), by hand.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d,
                             Distribution::Create({kGeometric, 50, 0.5, 1, 0, 0.1, 0.1}));
  for (uint32_t k = 0; k <= 3; ++k) {
    EXPECT_NEAR(Real(d.weights()[k]) / (-std::expm1(-10.0L) * std::exp(-10.0L * k)), 1, 1e-14L);
  }
  EXPECT_LE(d.max(), 9u);  // 2^-128 is e^-88.7
}

TEST(ClampedLaplaceBoundTest, IsThePapersTable3) {
  // The paper prints the bound without its rounding up.
  for (const auto& [epsilon, delta, bound] :
       std::vector<std::tuple<double, double, uint32_t>>{{1, 1e-5, 24},
                                                         {1, 1e-6, 28},
                                                         {0.1, 1e-5, 231},
                                                         {0.1, 1e-6, 277},
                                                         {0.1, 1e-7, 323},
                                                         {0.01, 1e-6, 2764},
                                                         {0.0001, 1e-6, 276311}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint32_t got, ClampedLaplaceBound(epsilon, delta, 1));
    EXPECT_EQ(got, bound) << epsilon << " " << delta;
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const uint32_t many, ClampedLaplaceBound(0.1, 1e-6, 100));
  EXPECT_EQ(many, 27632u);
  EXPECT_THAT(ClampedLaplaceBound(0.0001, 1e-6, 100),
              StatusIs(absl::StatusCode::kInvalidArgument, "at most 524288"));
}

// Shapes with the mean noise and the delta that each really gives.
struct Line {
  Parameters parameters;
  double mean;
  double delta;
};

TEST(VerifyPrivacyTest, HoldsExactlyWhereTheExactDeltaDoes) {
  const std::vector<Line> lines = {
      {{kClampedLaplace, 0.1, 1e-6, 1, 277}, 276.5, 1.92558e-6},
      {{kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74}, 157.678, 9.92708e-7},
      {{kClampedLaplace, 1, 1e-6, 1, 28}, 27.5, 1.10124e-6},
      {{kGeometric, 1, 1e-6, 1, 15, 1.25, 5.0}, 18.701, 9.70249e-7},
      {{kClampedLaplace, 0.1, 1e-9, 1, 415}, 414.5, 1.94058e-9},
      {{kGeometric, 0.1, 1e-9, 1, 205, 12.38, 52.08}, 244.695, 9.98127e-10},
      {{kClampedLaplace, std::log(3.0), 1e-4, 1, 17}, 16.5, 1.20203e-4},
      // With its scales rounded to two digits this shape misses 1e-4 slightly.
      {{kGeometric, std::log(3.0), 1e-4, 1, 9, 1.19, 3.89}, 11.653, 1.00441e-4},
      {{kClampedLaplace, 0.1, 1e-6, 100, 27631}, 27630.5, 1.99977e-4},
      {{kSplitGaussian, 0.1, 1e-6, 100, 2612, 532, 532}, 2612.0, 9.9962e-7},
      {{kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177}, 1953.224, 9.8347e-7},
  };
  for (const Line& line : lines) {
    Parameters p = line.parameters;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d, Distribution::Create(p));
    EXPECT_NEAR(d.mean(), line.mean, 1e-5 * line.mean + 1e-3);
    p.delta = line.delta * 1.001;
    SHOAL_EXPECT_OK(VerifyPrivacy(p));
    p.delta = line.delta * (p.phi == 1 ? 0.999 : 0.98);
    EXPECT_THAT(VerifyPrivacy(p), StatusIs(absl::StatusCode::kFailedPrecondition, "gives delta"));
  }
}

TEST(VerifyPrivacyTest, NamesTheDeltaThatHolds) {
  EXPECT_THAT(VerifyPrivacy({kClampedLaplace, 0.1, 1e-6, 1, 277}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "clamped_laplace with mode 277, left_scale 0, right_scale 0 gives delta "
                       "1.926e-06 at epsilon 0.1 for phi = 1, not the claimed 1e-06"));
}

TEST(ParametersTest, BadOnesAreNamedWithTheirRange) {
  struct Bad {
    void (*spoil)(Parameters&);
    std::string message;
  };
  const std::vector<Bad> bad = {
      {[](Parameters& p) { p.epsilon = 0; }, "epsilon must be in [1e-06, 50], got 0"},
      {[](Parameters& p) { p.epsilon = NAN; }, "epsilon must be in [1e-06, 50], got nan"},
      {[](Parameters& p) { p.epsilon = 51; }, "epsilon must be in [1e-06, 50], got 51"},
      {[](Parameters& p) { p.delta = 1; }, "delta must be in [1e-15, 1), got 1"},
      {[](Parameters& p) { p.delta = 1e-16; }, "delta must be in [1e-15, 1), got 1e-16"},
      {[](Parameters& p) { p.phi = 0; }, "phi must be in [1, 1000000], got 0"},
      {[](Parameters& p) { p.phi = 1'000'001; }, "phi must be in [1, 1000000]"},
      {[](Parameters& p) { p.mode = (1 << 19) + 1; }, "mode must be in [0, 524288], got 524289"},
      {[](Parameters& p) { p.left_scale = 0; }, "left_scale must be in [0.1, 7000], got 0"},
      {[](Parameters& p) { p.right_scale = 7001; }, "right_scale must be in [0.1, 7000]"},
      {[](Parameters& p) { p.right_scale = INFINITY; }, "right_scale must be in [0.1, 7000]"},
      {[](Parameters& p) { p.mechanism = kClampedLaplace; }, "left_scale must be zero"},
      {[](Parameters& p) {
         p = {kClampedLaplace, 0.1, 1e-6, 1, 0};
       },
       "mode must be in [1,"},
      {[](Parameters& p) { p.mechanism = kSplitGaussian, p.left_scale = 40001; },
       "left_scale must be in [0.1, 40000]"},
      {[](Parameters& p) { p.mechanism = static_cast<Mechanism>(0); }, "mechanism must be"},
  };
  for (const Bad& b : bad) {
    Parameters p = kDefault;
    b.spoil(p);
    EXPECT_THAT(Distribution::Create(p), StatusIs(absl::StatusCode::kInvalidArgument, b.message));
    EXPECT_THAT(VerifyPrivacy(p), StatusIs(absl::StatusCode::kInvalidArgument, b.message));
  }
  Parameters many = kDefault;
  many.phi = 11;
  SHOAL_EXPECT_OK(CheckPhi(many, 11));
  EXPECT_THAT(CheckPhi(many, 10), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "at most the number of rows, 10, got 11"));
}

TEST(DistributionTest, TheLargestParametersFit) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Distribution d,
      Distribution::Create({kGeometric, 1e-6, 1e-15, 1, kMaxMode, 7000, kMaxGeometricScale}));
  EXPECT_GT(d.max(), kMaxMode);
}

std::vector<uint32_t> Draw(const Distribution& d, uint64_t seed, size_t n) {
  TestRandom random(seed);
  std::vector<uint32_t> counts(n);
  d.Sample(random, counts);
  return counts;
}

// Chi-squared of 2^20 samples against the exact table, in cells of at least 50 expected, as a
// number of standard deviations of the normal approximation (Wilson and Hilferty).
double ChiSquaredSigmas(const Distribution& d, uint64_t seed) {
  constexpr size_t kSamples = 1 << 20;
  std::vector<double> observed(d.weights().size());
  for (uint32_t count : Draw(d, seed, kSamples)) observed.at(count) += 1;
  double chi_squared = 0, cells = 0, cell_expected = 0, cell_observed = 0;
  for (size_t k = 0; k < observed.size(); ++k) {
    cell_expected += kSamples * static_cast<double>(Real(d.weights()[k]));
    cell_observed += observed[k];
    if (cell_expected < 50) continue;
    chi_squared +=
        (cell_observed - cell_expected) * (cell_observed - cell_expected) / cell_expected;
    cells += 1;
    cell_expected = cell_observed = 0;
  }
  if (cell_expected > 0) {
    chi_squared +=
        (cell_observed - cell_expected) * (cell_observed - cell_expected) / cell_expected;
  }
  const double v = cells;  // degrees of freedom: the last cell holds what is left over
  return (std::cbrt(chi_squared / v) - (1 - 2 / (9 * v))) / std::sqrt(2 / (9 * v));
}

TEST(SampleTest, ChiSquaredAgainstTheExactTable) {
  for (const Parameters& p : OneOfEach()) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d, Distribution::Create(p));
    for (uint64_t seed : {1, 2}) {
      EXPECT_LT(std::abs(ChiSquaredSigmas(d, seed)), 3.5) << MechanismName(p.mechanism);
    }
  }
}

// A stored seed must give the same noise in every version and on every machine, as a party that
// repeats a round draws it again. The vectors come from ChaCha20 under a fixed key, and pin the
// table and the alias search too.
TEST(SampleTest, ReferenceVectors) {
  const Bytes key(32, 7);
  const std::vector<std::pair<Parameters, std::vector<uint32_t>>> vectors = {
      {{kClampedLaplace, 0.1, 2e-6, 1, 277},
       {270, 279, 297, 304, 266, 276, 259, 315, 269, 269, 286, 248, 246, 329, 249, 283}},
      {{kGeometric, 0.1, 1e-6, 1, 128, 13.06, 42.74},
       {138, 154, 197, 214, 134, 149, 115, 129, 137, 137, 170, 125, 224, 130, 125, 164}},
      {{kSplitGaussian, 0.1, 1e-6, 100, 1208, 243, 1177},
       {1409, 1795, 2536, 2762, 1283, 1672, 2338, 1121, 1358, 1378, 2109, 994, 898, 1152, 4007,
        1998}},
  };
  for (const auto& [parameters, expected] : vectors) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d, Distribution::Create(parameters));
    SeededRandom random(key, "reference vectors");
    std::vector<uint32_t> counts(16);
    d.Sample(random, counts);
    EXPECT_EQ(counts, expected) << MechanismName(parameters.mechanism);
  }
}

TEST(SampleTest, ZeroIsAsRareAsItShouldBe) {
  // A delta that is large enough to count: for this mechanism it is mostly the mass at zero.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Distribution d,
                             Distribution::Create({kGeometric, 1, 1e-2, 1, 5, 1.25, 5.0}));
  constexpr size_t kSamples = 1 << 22;
  const std::vector<uint32_t> counts = Draw(d, 3, kSamples);
  const double expected = kSamples * static_cast<double>(Real(d.weights()[0]));
  const double observed = std::count(counts.begin(), counts.end(), 0u);
  EXPECT_GT(expected, 10'000);
  EXPECT_LT(std::abs(observed - expected), 4 * std::sqrt(expected));
  // At the other end, the mass beyond 60 is that of the right side's tail.
  double tail = 0;
  for (size_t k = 60; k < d.weights().size(); ++k) {
    tail += kSamples * static_cast<double>(Real(d.weights()[k]));
  }
  const double far =
      std::count_if(counts.begin(), counts.end(), [](uint32_t c) { return c >= 60; });
  EXPECT_LT(std::abs(far - tail), 4 * std::sqrt(tail));
}

}  // namespace
}  // namespace shoal::noise
