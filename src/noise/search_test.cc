#include "src/noise/search.h"

#include <cmath>
#include <cstdio>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::noise {
namespace {

using enum Mechanism;
using ::shoal::testing::StatusIs;

// The parameters that the search finds hold by the exact sum, and their mean is at most `mean`,
// which was found by hand.
void ExpectAtMost(double mean, const Target& target, Mechanism mechanism) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Choice choice, FindLeastNoise(target));
  const Parameters& p = choice.parameters;
  std::printf(
      "epsilon %g, delta %g, phi %u: %s mode %u left %.4f right %.4f mean %.3f delta %.4g\n",
      p.epsilon, p.delta, p.phi, std::string(MechanismName(p.mechanism)).c_str(), p.mode,
      p.left_scale, p.right_scale, choice.mean, choice.delta);
  EXPECT_EQ(p.mechanism, mechanism);
  EXPECT_LE(choice.mean, mean);
  EXPECT_LE(choice.delta, target.delta);
  EXPECT_GT(choice.delta, 0.8 * target.delta);
  SHOAL_EXPECT_OK(VerifyPrivacy(p));
}

TEST(FindLeastNoiseTest, OneChangedQuery) {
  ExpectAtMost(158, {0.1, 1e-6, {}}, kGeometric);
  ExpectAtMost(18.8, {1, 1e-6, {}}, kGeometric);
  ExpectAtMost(245, {0.1, 1e-9, {}}, kGeometric);
  ExpectAtMost(11.75, {std::log(3.0), 1e-4, {}}, kGeometric);
}

TEST(FindLeastNoiseTest, AHundredChangedQueries) {
  ExpectAtMost(1960, {0.1, 1e-6, {.phi = 100}}, kSplitGaussian);
}

TEST(FindLeastNoiseTest, RoundsCountLikeChangedQueries) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Choice choice,
                             FindLeastNoise({1, 1e-6, {.phi = 1, .rounds = 2}}));
  EXPECT_EQ(choice.parameters.phi, 2u);
  EXPECT_LT(choice.mean, 2 * 18.8 * 1.1);
  EXPECT_GT(choice.mean, 18.8);
}

TEST(FindLeastNoiseTest, ClampedLaplaceTakesTheLeastBoundThatHolds) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Choice choice, FindLeastNoise(kClampedLaplace, {0.1, 1e-6, {}}));
  EXPECT_GT(choice.parameters.mode, 277u);
  Parameters one_less = choice.parameters;
  one_less.mode -= 1;
  EXPECT_FALSE(VerifyPrivacy(one_less).ok());
}

TEST(FindLeastNoiseTest, BadTargetsAreNamed) {
  EXPECT_THAT(FindLeastNoise({0, 1e-6, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "epsilon must be in"));
  EXPECT_THAT(FindLeastNoise({1, 1e-16, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "delta must be in"));
  EXPECT_THAT(FindLeastNoise({1, 1e-6, {.phi = 0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "phi * rounds * submissions"));
  EXPECT_THAT(FindLeastNoise({1, 1e-6, {.phi = 1'000'000, .rounds = 2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "phi * rounds * submissions"));
  EXPECT_THAT(FindLeastNoise(kGeometric, {0.0001, 1e-6, {}}),
              StatusIs(absl::StatusCode::kOutOfRange, "within its limits"));
}

}  // namespace
}  // namespace shoal::noise
