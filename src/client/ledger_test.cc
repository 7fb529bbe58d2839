#include "src/client/ledger.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/noise/accountant.h"
#include "src/noise/noise.h"

namespace shoal::client {
namespace {

// Protects five queries together at (1, 1e-6).
noise::Parameters Wide() {
  return {.mechanism = noise::Mechanism::kSplitGaussian,
          .epsilon = 1,
          .delta = 1e-6,
          .phi = 5,
          .mode = 70,
          .left_scale = 14,
          .right_scale = 60};
}
// Protects single lookups.
noise::Parameters Single() {
  return {.mechanism = noise::Mechanism::kGeometric,
          .epsilon = 1,
          .delta = 1e-6,
          .phi = 1,
          .mode = 15,
          .left_scale = 1.25,
          .right_scale = 5};
}

Ledger With(const std::vector<Submission>& submissions) {
  Ledger ledger;
  for (const Submission& submission : submissions) ledger.Add(submission);
  return ledger;
}

// At the epsilon that the ledger shows, the accountant gives a delta that is just below.
TEST(LedgerTest, AddsUpExactly) {
  const noise::Parameters noise = Wide();
  const Ledger ledger = With({{.queries = 5, .noise = noise, .most_in_bucket = 1},
                              {.queries = 10, .noise = noise, .most_in_bucket = 1}});
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, ledger.LossAt(1e-5));
  ASSERT_TRUE(loss.epsilon.has_value());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto distribution, noise::Distribution::Create(noise));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const noise::DeltaBounds delta,
      noise::SubstitutionDelta(distribution.weights(), *loss.epsilon, {.phi = 5, .rounds = 3}));
  EXPECT_LE(delta.upper, 1e-5);
  SHOAL_ASSERT_OK_AND_ASSIGN(const noise::DeltaBounds below,
                             noise::SubstitutionDelta(distribution.weights(), *loss.epsilon * 0.999,
                                                      {.phi = 5, .rounds = 3}));
  EXPECT_GT(below.upper, 1e-5);
  // Far below basic composition.
  EXPECT_LT(*loss.epsilon, 2);
}

// Only the number of queries under each setting counts, not their order or their rounds.
TEST(LedgerTest, AddsUpOverSettings) {
  const Ledger ledger = With({{.queries = 5, .noise = Wide(), .most_in_bucket = 1},
                              {.queries = 1, .noise = Single(), .most_in_bucket = 1},
                              {.queries = 5, .noise = Wide(), .most_in_bucket = 1}});
  const Ledger other = With({{.queries = 1, .noise = Single(), .most_in_bucket = 1},
                             {.queries = 10, .noise = Wide(), .most_in_bucket = 1}});
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, ledger.LossAt(1e-5));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss same, other.LossAt(1e-5));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss wide, LossOf(Wide(), 10, 1e-5, 1));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss one, LossOf(Single(), 1, 1e-6, 1));
  ASSERT_TRUE(loss.epsilon && same.epsilon && wide.epsilon && one.epsilon);
  EXPECT_NEAR(*loss.epsilon, *same.epsilon, 1e-4);
  EXPECT_GT(*loss.epsilon, *wide.epsilon);
  EXPECT_LT(*loss.epsilon, *wide.epsilon + *one.epsilon);
  EXPECT_LE(*one.epsilon, 1.06) << "one lookup costs what the roster claims";
}

// Who can have rounds come to nothing may wait for one whose noise suits him: each adds another
// choice, and so once more the delta that the queries have at the epsilon that is shown.
TEST(LedgerTest, IdleRoundsCostTheirDelta) {
  const noise::Parameters noise{.mechanism = noise::Mechanism::kSplitGaussian,
                                .epsilon = 1,
                                .delta = 1e-6,
                                .phi = 64,
                                .mode = 126,
                                .left_scale = 23.82,
                                .right_scale = 107.97};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto distribution, noise::Distribution::Create(noise));
  for (const uint32_t queries : {1u, 64u}) {
    Ledger ledger = With({{.queries = queries, .noise = noise, .most_in_bucket = 1}});
    SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss without, ledger.LossAt(1e-4));
    for (int i = 0; i < 10; ++i) ledger.AddIdleRound();
    EXPECT_EQ(ledger.idle_rounds(), 10u);
    EXPECT_EQ(ledger.submissions(), 1u);
    SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss with, ledger.LossAt(1e-4));
    ASSERT_TRUE(without.epsilon && with.epsilon);
    EXPECT_GT(*with.epsilon, *without.epsilon);
    const auto delta = [&](double epsilon) {
      const auto bounds =
          noise::SubstitutionDelta(distribution.weights(), epsilon, {.phi = queries});
      return bounds.ok() ? bounds->upper : 1;
    };
    EXPECT_LE(11 * delta(*with.epsilon), 1e-4) << queries;
    EXPECT_GT(11 * delta(*with.epsilon * 0.998), 1e-4) << queries;
    SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss grown, ledger.LossAt(ledger.Grown(1e-4)));
    EXPECT_NEAR(grown.epsilon.value_or(-1), *without.epsilon, 1e-6);
  }
}

// The least noise for 64 changes of which four are in one bucket, as privacy.md has it.
noise::Parameters ForBuckets() {
  return {.mechanism = noise::Mechanism::kSplitGaussian,
          .epsilon = 1,
          .delta = 1e-6,
          .phi = 64,
          .mode = 297,
          .left_scale = 57.24,
          .right_scale = 196.9};
}
Submission Asked(uint32_t queries, uint32_t most_in_bucket) {
  return {.queries = queries, .noise = ForBuckets(), .most_in_bucket = most_in_bucket};
}

// Of up to c queries in a bucket a submission of n counts as its fullest pattern: n div c pairs of
// buckets that change by c, and one that changes by the rest. Another most_in_bucket of the roster,
// or rows under the same noise, begin another kind.
TEST(LedgerTest, ChargesTheFullestPattern) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto distribution, noise::Distribution::Create(ForBuckets()));
  const auto weights = distribution.weights();
  const Ledger mixed =
      With({Asked(64, 4), Asked(5, 4), Asked(1, 4), Asked(64, 8), Asked(7, 1), Asked(11, 4)});
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, mixed.LossAt(1e-3));
  ASSERT_TRUE(loss.epsilon.has_value());
  const auto delta_of = [&](double epsilon) {
    const auto delta = noise::ComposedDelta(
        {.noise = {{weights, 19, 4}, {weights, 9, 1}, {weights, 8, 8}, {weights, 1, 3}},
         .claims = {}},
        epsilon);
    return delta.ok() ? delta->upper : 1;
  };
  EXPECT_LE(delta_of(*loss.epsilon), 1e-3);
  EXPECT_GT(delta_of(*loss.epsilon * 0.999), 1e-3);
  EXPECT_EQ(mixed.queries(), 152u);
  EXPECT_EQ(mixed.submissions(), 6u);

  // Whatever the list, 64 queries of a round cost what the roster's claim says. Charged as single
  // changes, those of four rounds would seem to reveal less than half of what they do.
  SHOAL_EXPECT_OK(noise::VerifyPrivacy(ForBuckets(), 4));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss one, LossOf(ForBuckets(), 64, 1e-6, 4));
  EXPECT_LE(one.epsilon.value_or(9), 1.0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss four, LossOf(ForBuckets(), 256, 1e-4, 4));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss single, LossOf(ForBuckets(), 256, 1e-4, 1));
  ASSERT_TRUE(four.epsilon && single.epsilon);
  EXPECT_GT(*four.epsilon, 2 * *single.epsilon);
}

// A roster without buckets has 0.
TEST(LedgerTest, NoBucketsAreChargedAsRows) {
  const auto loss_of = [](uint32_t most_in_bucket) {
    const auto loss = LossOf(ForBuckets(), 11, 1e-6, most_in_bucket);
    return loss.ok() ? loss->epsilon.value_or(-1) : -1;
  };
  EXPECT_GT(loss_of(0), 0);
  EXPECT_EQ(loss_of(0), loss_of(1));
}

TEST(LedgerTest, IdleRoundsAloneRevealNothing) {
  Ledger ledger;
  ledger.AddIdleRound();
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, ledger.LossAt(1e-6));
  EXPECT_EQ(loss.epsilon, 0.0);
}

// Under noise for single lookups, a row that shows no noise gives its query away with a chance of
// nearly delta. Eight queries have a larger chance.
TEST(LedgerTest, SeveralQueriesAreNotProtectedBySingleNoise) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, LossOf(Single(), 8, 1e-6, 1));
  EXPECT_FALSE(loss.epsilon.has_value());
  ASSERT_TRUE(loss.beyond.has_value());
  EXPECT_DOUBLE_EQ(loss.beyond->delta, 1e-5);
  EXPECT_GT(loss.beyond->epsilon, 3);
}

TEST(LedgerTest, NothingCostsNothing) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, Ledger().LossAt(1e-6));
  EXPECT_EQ(loss.epsilon, 0.0);
}

TEST(LedgerTest, TooManyQueriesAreNotProtected) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TotalLoss loss, LossOf(Wide(), uint64_t{1} << 40, 1e-6, 1));
  EXPECT_FALSE(loss.epsilon.has_value());
  EXPECT_FALSE(loss.beyond.has_value());
}

TEST(LedgerTest, CountsAllAndKeepsTheLatest) {
  Ledger ledger;
  for (uint64_t i = 0; i < Ledger::kDetailed + 10; ++i) {
    ledger.Add({.round_counter = i, .queries = 2, .noise = Wide(), .most_in_bucket = 1});
  }
  EXPECT_EQ(ledger.submissions(), Ledger::kDetailed + 10);
  EXPECT_EQ(ledger.queries(), 2 * (Ledger::kDetailed + 10));
  EXPECT_EQ(ledger.latest().size(), Ledger::kDetailed);
  EXPECT_EQ(ledger.latest().front().round_counter, 10u);
  EXPECT_EQ(ledger.latest().front().phi, 5u);
}

}  // namespace
}  // namespace shoal::client
