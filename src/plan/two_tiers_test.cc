#include "src/plan/two_tiers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/registry/registry.h"
#include "src/plan/calibrate.h"
#include "src/plan/engines.h"
#include "src/plan/proposal.h"
#include "src/server/half_online.h"
#include "src/server/offline.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/halves.h"
#include "src/storage/spool.h"
#include "src/table/row_versions.h"
#include "src/wire/query_batch.h"

namespace shoal::plan {
namespace {

using sharing::Half;
using ::testing::HasSubstr;
using testing::StatusIs;

// What the design's table is for: records of 4 bytes in a dense table.
Workload DenseRecords(uint64_t records, uint64_t queries) {
  return {.records = records,
          .value_bytes = 4,
          .layout = LayoutKind::kDense,
          .queries = queries,
          .rounds_per_day = 24,
          .parties = 2,
          .price_core_hour = 0.04,
          .price_gb = 0.05};
}

noise::Choice NoiseOf(double epsilon, uint32_t phi = 1, uint32_t most_in_bucket = 1) {
  noise::Target target = {.epsilon = epsilon, .delta = 1e-6, .exposure = {.phi = phi}};
  target.most_in_bucket = most_in_bucket;
  return *noise::FindLeastNoise(target);
}
const noise::Choice& SomeNoise() {
  static const auto* const choice = new noise::Choice(NoiseOf(1));
  return *choice;
}
absl::StatusOr<noise::Choice> NoSearch(uint32_t) {
  return absl::InternalError("no noise is looked for");
}

absl::StatusOr<TwoTiersChoice> ChoiceOf(const Workload& w, const noise::Choice& noise,
                                        uint32_t row_bytes = 0, uint32_t most_in_bucket = 0) {
  return TwoTiersChoice::Create(w, row_bytes, most_in_bucket, noise, NoSearch, DefaultCosts());
}

// Both halves, run by the real stages, have the sizes that are predicted for as much noise.
TEST(PredictTwoTiersTest, SizesAreThoseOfTheStages) {
  constexpr uint32_t kQueries = 5 * kSlotsOfASubmission, kBuckets = 30, kAnswer = 112;
  constexpr uint64_t kRows = 30 * 70;
  testing::TestRandom random(2);
  ThreadPool pool(2);
  SpoolPlace spools("/tmp", 1 << 30);
  const server::Resources resources = {.pool = &pool, .spools = &spools};
  const server::SyntheticTwoTiers round(
      {.answer_bytes = kAnswer,
       .rows = kRows,
       .buckets = kBuckets,
       .max_slots = kQueries,
       .noise = *noise::Distribution::Create(SomeNoise().parameters)},
      random);
  const auto input = round.MakeInput(kQueries, kSlotsOfASubmission, random, pool);
  const size_t s = round.buckets().selection_bytes();
  const size_t both = sharing::PartsBytes(s), of_a = sharing::PartBytes(Half::kA, s);
  std::vector<uint32_t> slots(kQueries);
  std::iota(slots.begin(), slots.end(), 0u);
  Bytes parts(kQueries * both);
  sharing::MakeParts(input.seeds, round.ids(), round.buckets(), slots, parts);
  const Bytes table(kRows * kAnswer, 3);
  // The pieces of B lie before the other party with their lengths, as a submission's are.
  double noise = 0, noise_of_a = 0, between = static_cast<double>(input.b.size());
  for (const Half half : {Half::kA, Half::kB}) {
    const server::SyntheticRound& of = round.of(half);
    SHOAL_ASSERT_OK_AND_ASSIGN(auto made, MakeNoise(of.context(1), of.secrets(1), resources));
    noise += static_cast<double>(made.size());
    if (half == Half::kA) noise_of_a = noise;
    SHOAL_ASSERT_OK_AND_ASSIGN(
        auto head, RunOffline(of.context(1), of.secrets(1), std::move(made),
                              half == Half::kA ? input.a : input.b, kQueries, resources));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes list, ReadAll(head.onions));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto tail,
                               RunOffline(of.context(2), of.secrets(2), {}, list, 0, resources));
    const size_t record = half == Half::kA ? both : both - of_a;
    wire::RecordBatchWriter writer(kQueries, kQueries, record);
    for (uint32_t i = 0; i < kQueries; ++i) {
      writer.Put(i, i, BytesView(parts).subspan(i * both + (both - record), record));
    }
    const Bytes batch = std::move(writer).Take();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto decoded,
                               wire::DecodeRecordBatch(batch, kQueries, record));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto forwarding,
                               ForwardParts(of.context(1), head.material, decoded, resources));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto forwarded,
                               wire::DecodeRecordBatch(forwarding.queries, tail.material.positions,
                                                       sharing::ForwardedBytes(half, s)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Spool answers,
                               AnswerHalf(of.context(2), of.secrets(2), tail.material, forwarded,
                                          {table, kRows}, resources));
    between += static_cast<double>(list.size() + forwarding.queries.size() + answers.size());
    // What B's head takes from party 1, and gives it back.
    if (half == Half::kB) between += static_cast<double>(batch.size() + kQueries * (kAnswer + 16));
  }
  Layout layout;
  layout.set_rows(kRows);
  layout.set_answer_bytes(kAnswer);
  BucketNoise actual = {1, SomeNoise()};
  actual.choice.mean = noise / 2 / kBuckets;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const TwoTiers tiers,
      PredictTwoTiers(DenseRecords(1000, kQueries), layout, kBuckets, actual, DefaultCosts()));
  EXPECT_EQ(tiers.most_places(), 70u);
  // The model has the same noise in both halves, of which A's has selections. Bitmaps are rounded
  // up.
  between -= static_cast<double>(s) * (noise_of_a - noise / 2);
  EXPECT_NEAR(tiers.link_bytes(), between, 4);
  const double submissions = kQueries / kSlotsOfASubmission;
  EXPECT_NEAR(tiers.client().onion_bytes() * kQueries,
              static_cast<double>(input.a.size() + input.b.size()) - 8 * submissions, 1e-6);
  EXPECT_EQ(tiers.client().query_bytes(), static_cast<double>(4 + both));
  EXPECT_EQ(tiers.client().query_bytes(), static_cast<double>(76 + s));
  EXPECT_EQ(tiers.client().answer_bytes(), 2 * (kAnswer + 16));
  EXPECT_NEAR(1e9 * tiers.per_round().gigabytes(),
              between + kQueries * (tiers.client().onion_bytes() + tiers.client().query_bytes() +
                                    tiers.client().answer_bytes()),
              4);
}

TEST(PredictTwoTiersTest, MoreOfAnythingCostsMore) {
  Layout layout = *LayOut(DenseRecords(2'500'000, 10'000), 256);
  const BucketNoise noise = {1, SomeNoise()};
  const Workload w = DenseRecords(2'500'000, 10'000);
  const TwoTiers base = *PredictTwoTiers(w, layout, 100, noise, DefaultCosts());
  const auto more = [&](const char* what, const absl::StatusOr<TwoTiers>& other) {
    SHOAL_ASSERT_OK(other.status()) << what;
    EXPECT_GT(other->per_round().price(), base.per_round().price()) << what;
    EXPECT_GT(other->per_round().core_hours(), base.per_round().core_hours()) << what;
    for (int j = 0; j < 2; ++j) {
      EXPECT_GT(other->party(j).offline_cpu_s() + other->party(j).online_cpu_s(),
                base.party(j).offline_cpu_s() + base.party(j).online_cpu_s())
          << what;
      EXPECT_GE(other->party(j).peak_memory_bytes(), base.party(j).peak_memory_bytes()) << what;
    }
  };
  more("queries",
       PredictTwoTiers(DenseRecords(2'500'000, 20'000), layout, 100, noise, DefaultCosts()));
  more("buckets", PredictTwoTiers(w, layout, 300, noise, DefaultCosts()));
  more("noise", PredictTwoTiers(w, layout, 100, {1, NoiseOf(0.1)}, DefaultCosts()));
  layout.set_rows(2 * layout.rows());
  more("rows", PredictTwoTiers(w, layout, 200, noise, DefaultCosts()));
  // Parties do the same work, but for links: one of them has the clients.
  EXPECT_NEAR(base.party(0).offline_cpu_s(), base.party(1).offline_cpu_s(),
              0.01 * base.party(0).offline_cpu_s());
  EXPECT_GT(base.party(0).links_cpu_s(), base.party(1).links_cpu_s());
  double cpu = 0;
  for (const TwoTiersParty& p : base.party()) {
    cpu += p.noise_cpu_s() + p.offline_cpu_s() + p.online_cpu_s() + p.links_cpu_s();
  }
  EXPECT_DOUBLE_EQ(base.per_round().core_hours() * 3600, cpu);
  EXPECT_DOUBLE_EQ(base.server_seconds_per_query(), cpu / 10'000);
}

TEST(TwoTiersChoiceTest, TakesTheCheapest) {
  const Workload w = DenseRecords(2'500'000, 10'000);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TwoTiersChoice choice, ChoiceOf(w, SomeNoise()));
  const TwoTiers by_price = *choice.Best(10'000, Aim::kPrice);
  const TwoTiers by_time = *choice.Best(10'000, Aim::kTime);
  double lowest = 1e300;
  for (const uint32_t size : RowSizes(w)) {
    const Layout layout = *LayOut(w, size);
    for (const uint64_t buckets : BucketCounts(static_cast<uint64_t>(layout.rows()))) {
      const TwoTiers other = *PredictTwoTiers(w, layout, buckets, choice.noise(), DefaultCosts());
      EXPECT_LE(other.most_places(), 1024u);
      EXPECT_GE(other.server_seconds_per_query(), by_time.server_seconds_per_query());
      lowest = std::min(lowest, other.price_per_million_queries());
    }
  }
  EXPECT_LE(by_price.price_per_million_queries(), 1.1 * lowest);
  EXPECT_LE(by_time.server_seconds_per_query(), by_price.server_seconds_per_query());
  // More queries share the same noise.
  EXPECT_LT(choice.Best(100'000, Aim::kTime)->server_seconds_per_query(),
            by_time.server_seconds_per_query());
}

// The design's estimates (AVX2), which are right to a third. Where noise is most of the work, at
// epsilon 0.1 for few queries, it takes rows of 512 bytes; longer ones take less time and more
// traffic.
TEST(TwoTiersChoiceTest, CostsAboutWhatTheDesignSays) {
  const struct {
    uint64_t records;
    double queries, epsilon, us;
    uint32_t row_bytes = 0;
  } kEstimates[] = {
      {2'500'000, 1e3, 0.1, 229, 512}, {2'500'000, 1e4, 0.1, 68}, {2'500'000, 1e5, 0.1, 44},
      {2'500'000, 1e6, 0.1, 38},       {2'500'000, 1e3, 1, 72},   {2'500'000, 1e4, 1, 46},
      {2'500'000, 1e5, 1, 38},         {2'500'000, 1e6, 1, 35},   {100'000'000, 1e4, 0.1, 735, 512},
      {100'000'000, 1e4, 1, 136},
  };
  for (const auto& estimate : kEstimates) {
    const Workload w = DenseRecords(estimate.records, static_cast<uint64_t>(estimate.queries));
    SHOAL_ASSERT_OK_AND_ASSIGN(const TwoTiersChoice choice,
                               ChoiceOf(w, NoiseOf(estimate.epsilon), estimate.row_bytes));
    const TwoTiers best = *choice.Best(estimate.queries, Aim::kTime);
    EXPECT_NEAR(1e6 * best.server_seconds_per_query(), estimate.us, estimate.us / 3)
        << estimate.records << " records, " << estimate.queries << " queries, epsilon "
        << estimate.epsilon << ": rows of " << best.table().row_bytes() << ", " << best.buckets()
        << " buckets";
  }
}

// For a list, as many of its queries may be for one bucket as random lists need.
TEST(TwoTiersChoiceTest, AListGetsRoomInABucket) {
  const Workload w = DenseRecords(2'500'000, 10'000);
  noise::Choice one;
  one.parameters = SomeNoise().parameters;
  one.parameters.phi = 64;
  one.mean = 193;
  std::vector<uint32_t> searched;
  const auto choice = TwoTiersChoice::Create(
      w, 0, 0, one,
      [&](uint32_t most) -> absl::StatusOr<noise::Choice> {
        searched.push_back(most);
        noise::Choice found = one;
        found.mean = 193 * std::pow(most, 0.6);
        return found;
      },
      DefaultCosts());
  SHOAL_ASSERT_OK(choice.status());
  ASSERT_EQ(searched.size(), 1u);
  EXPECT_EQ(choice->noise().most_in_bucket, searched[0]);
  EXPECT_GT(searched[0], 1u);
  for (const double queries : {1e3, 1e6}) {
    const TwoTiers best = *choice->Best(queries, Aim::kPrice);
    const auto rows = static_cast<uint64_t>(best.table().rows());
    EXPECT_LE(noise::LeastMostInBucket(64, rows / best.most_places()), searched[0]);
  }
  // One in a bucket would take more buckets than there are rows.
  EXPECT_THAT(
      TwoTiersChoice::Create(DenseRecords(10'000, 1000), 0, 1, one, NoSearch, DefaultCosts())
          .status(),
      StatusIs(absl::StatusCode::kResourceExhausted,
               "a random list of 64 keys has more than 1 in a bucket"));
}

TEST(TwoTiersChoiceTest, WhatTwoTiersCannotHaveIsNamed) {
  Workload w = DenseRecords(2'500'000, 10'000);
  const auto refused = [&](const char* message) {
    EXPECT_THAT(ChoiceOf(w, SomeNoise()).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, message));
    EXPECT_THAT(
        PredictTwoTiers(w, *LayOut(w.WithoutTerm(), 256), 100, {1, SomeNoise()}, DefaultCosts())
            .status(),
        StatusIs(absl::StatusCode::kFailedPrecondition, message));
  };
  w.parties = 3;
  refused("two tiers are for exactly two parties, got --parties 3");
  w.parties = 2;
  w.machines = {1, 4};
  refused("party 2 has 4");
  w.machines = {};
  w.refreshes = 3;
  refused("two tiers have no terms, got --refreshes 3");
  w.refreshes = 0;
  const Layout layout = *LayOut(w, 256);
  EXPECT_THAT(PredictTwoTiers(w, layout, 1, {1, SomeNoise()}, DefaultCosts()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ""));
  EXPECT_THAT(PredictTwoTiers(w, layout, 10, {1, SomeNoise()}, DefaultCosts()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ""));
  noise::Choice many = SomeNoise();
  many.parameters.phi = 500;
  EXPECT_THAT(PredictTwoTiers(w, layout, 100, {4, many}, DefaultCosts()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "--phi 500 is more than 4 for each"));
  many.parameters.phi = 1;
  many.mean = 1e8;
  EXPECT_THAT(PredictTwoTiers(w, layout, 100, {1, many}, DefaultCosts()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "noise overflow"));
  // One row has no two buckets.
  w.records = 1;
  EXPECT_THAT(ChoiceOf(w, SomeNoise()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "too few rows"));
}

TEST(WhereHoldsTest, FindsBothEnds) {
  const auto between = [](double low, double high) {
    return WhereHolds([=](double q) { return std::optional(q >= low && q < high); });
  };
  EXPECT_NEAR(between(700, 9e5).from, 700, 2);
  EXPECT_NEAR(between(700, 9e5).until, 9e5, 1e3);
  EXPECT_EQ(between(0, 5000).from, 1);
  EXPECT_NEAR(between(0, 5000).until, 5000, 6);
  EXPECT_EQ(between(300, 1e18).until, 0);
  EXPECT_EQ(between(1e17, 1e18).from, 0);
  // Where nothing is known it does not hold, and does not end.
  const Range unknown = WhereHolds([](double q) -> std::optional<bool> {
    if (q > 1e6) return std::nullopt;
    return q > 100;
  });
  EXPECT_NEAR(unknown.from, 100, 2);
  EXPECT_EQ(unknown.until, 0);
}

const Candidate& CandidateOf(const Plan& plan, absl::string_view way) {
  for (const Candidate& candidate : plan.proposal().candidate()) {
    if (candidate.way() == way) return candidate;
  }
  SHOAL_CHECK(false);
}

Plan Proposed(const Workload& w, Trust trust, const noise::Choice& noise,
              const EngineOptions& options = {}) {
  Plan plan = *ChooseRows(w, 0, noise, DefaultCosts(), options.aim);
  SHOAL_CHECK(CompareEngines(w, 0, noise, DefaultCosts(), options, plan).ok());
  SHOAL_CHECK(Propose(w, 0, noise, ChoiceOf(w, noise), trust, options, plan).ok());
  return plan;
}

// Where two tiers begin and cease to be cheaper, against the design's: 520 queries (70 at epsilon
// 1) against two servers and one bucket, which it takes for 224 microseconds, and 0.9 (0.1) of the
// records against rows.
TEST(ProposeTest, TwoTiersAreBetterWithinTheirCrossovers) {
  const Workload w = DenseRecords(2'500'000, 10'000);
  const struct {
    double epsilon, from, until;
  } kDesign[] = {{0.1, 520, 0.9 * 2.5e6}, {1, 70, 0.1 * 2.5e6}};
  for (const auto& design : kDesign) {
    const noise::Choice noise = NoiseOf(design.epsilon);
    const Plan plan = Proposed(w, Trust::kChain, noise, {.aim = Aim::kTime});
    SHOAL_ASSERT_OK_AND_ASSIGN(const TwoTiersChoice choice, ChoiceOf(w, noise));
    const auto seconds_at = [&](double queries) {
      return choice.Best(queries, Aim::kTime)->server_seconds_per_query();
    };
    const Candidate &rows = CandidateOf(plan, "rows"), &pair = CandidateOf(plan, "pair");
    EXPECT_EQ(rows.two_tiers_beat_cpu_from_queries(), 1);
    EXPECT_NEAR(rows.two_tiers_beat_cpu_until_queries(), design.until, design.until / 3);
    const Range below = WhereHolds(
        [&](double queries) { return std::optional(seconds_at(std::floor(queries)) <= 224e-6); });
    EXPECT_NEAR(below.from, design.from, design.from / 3);
    EXPECT_GT(pair.two_tiers_beat_cpu_from_queries(), 1);
    EXPECT_EQ(pair.two_tiers_beat_cpu_until_queries(), 0);
    for (const double factor : {0.9, 1.1}) {
      EXPECT_EQ(seconds_at(std::floor(factor * pair.two_tiers_beat_cpu_from_queries())) <
                    pair.server_seconds_per_query(),
                factor > 1);
      Workload other = w;
      other.queries = static_cast<uint64_t>(factor * rows.two_tiers_beat_cpu_until_queries());
      const Plan of_rows = *ChooseRows(other, 0, noise, DefaultCosts(), Aim::kTime);
      EXPECT_EQ(seconds_at(static_cast<double>(other.queries)) <
                    of_rows.per_round().core_hours() * 3600 / of_rows.queries(),
                factor < 1);
    }
    // The curve of the figure falls.
    double last = 1e300;
    for (const ChainPoint& point : plan.chain_by_queries()) {
      EXPECT_LT(point.two_tiers_seconds_per_query(), last);
      last = point.two_tiers_seconds_per_query();
      EXPECT_GT(last, 0);
    }
  }
}

// What is proposed is the cheapest of those that do for the trust, and that parties serve.
TEST(ProposeTest, TheCheapestOfThoseThatDo) {
  Workload w = DenseRecords(2'500'000, 1'000'000);
  for (const Trust trust : {Trust::kOne, Trust::kTwo, Trust::kChain}) {
    for (const Aim aim : {Aim::kPrice, Aim::kTime}) {
      for (const uint32_t parties : {2u, 3u}) {
        w.parties = parties;
        const Plan plan = Proposed(w, trust, SomeNoise(), {.aim = aim});
        const auto cost = [&](const Candidate& of) {
          return aim == Aim::kTime ? of.server_seconds_per_query() : of.price_per_million_queries();
        };
        const Proposal& proposal = plan.proposal();
        EXPECT_EQ(proposal.trust(), std::string(TrustName(trust)));
        const Candidate& best = CandidateOf(plan, proposal.way());
        EXPECT_TRUE(best.proposed());
        EXPECT_EQ(best.refused(), "");
        EXPECT_EQ(std::ranges::count(proposal.candidate(), true, &Candidate::proposed), 1);
        for (const Candidate& other : proposal.candidate()) {
          if (other.refused().empty()) {
            EXPECT_GE(cost(other), cost(best)) << other.way();
          }
        }
        EXPECT_THAT(proposal.why(), HasSubstr(proposal.way()));
        // A sentence.
        EXPECT_EQ(proposal.why().find(". "), std::string::npos) << proposal.why();
        EXPECT_EQ(proposal.why().back(), '.');
        // Who relies on what.
        const bool chain = trust != Trust::kOne,
                   two = chain && (trust == Trust::kTwo || parties == 2);
        EXPECT_EQ(CandidateOf(plan, "rows").refused().empty(), chain);
        EXPECT_EQ(CandidateOf(plan, "pair").refused().empty(), two);
        EXPECT_EQ(CandidateOf(plan, "simplepir").refused(), "");
        EXPECT_EQ(CandidateOf(plan, "download").refused(), "");
        EXPECT_EQ(CandidateOf(plan, "two tiers").refused().empty(), chain && parties == 2);
        if (parties == 3) {
          EXPECT_THAT(CandidateOf(plan, "two tiers").refused(), HasSubstr("--parties 3"));
          EXPECT_THAT(plan.two_tiers().refused(), HasSubstr("exactly two parties"));
        }
      }
    }
  }
}

// Every line has what its client fetches before it can ask, and its price.
TEST(ProposeTest, WhatAClientFetchesFirstCounts) {
  Workload w = DenseRecords(300'000, 10'000);
  w.layout = LayoutKind::kHashed;
  w.key_bytes = 16;
  const Plan plan = Proposed(w, Trust::kTwo, SomeNoise());
  for (const Candidate& candidate : plan.proposal().candidate()) {
    if (candidate.price_per_million_queries() == 0) continue;
    if (candidate.way() == "download") {
      EXPECT_EQ(candidate.first_bytes(), plan.download().client_bytes());
      continue;
    }
    const double first = FirstBytes(w, *LayOut(w, candidate.row_bytes()));
    EXPECT_GT(first, 150'000 + kManifestBytes) << candidate.way();
    double ahead = 0;
    for (const EngineCosts& engine : plan.engine()) {
      if (engine.engine() != candidate.way()) continue;
      ahead = engine.hint_bytes() + engine.prepare_bytes();
      EXPECT_DOUBLE_EQ(engine.first_bytes(), first + ahead) << candidate.way();
    }
    EXPECT_DOUBLE_EQ(candidate.first_bytes(), first + ahead) << candidate.way();
    // 100 lookups pay for it.
    EXPECT_GT(candidate.price_per_million_queries(), 1e6 * w.price_gb * (first + ahead) / 100 / 1e9)
        << candidate.way();
  }
  EngineOptions few;
  few.lookups_per_hint = 1;
  const Plan dear = Proposed(w, Trust::kTwo, SomeNoise(), few);
  for (const char* way : {"rows", "two tiers", "pair", "download"}) {
    EXPECT_GT(CandidateOf(dear, way).price_per_million_queries(),
              CandidateOf(plan, way).price_per_million_queries())
        << way;
  }
}

// The lists that a new client fetches, with as many records changed at random as are said.
TEST(FirstBytesTest, ListsAreThoseOfRandomChanges) {
  Workload w = DenseRecords(3000, 100);
  w.changed_percent = 2;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Layout layout, LayOut(w, 8));
  const auto rows = static_cast<uint64_t>(layout.rows());
  ASSERT_EQ(rows, 1500u);
  testing::TestRandom random(7);
  const auto version = [](uint64_t epoch) {
    return table::RowVersion{.epoch = epoch, .rows_digest = Digest{static_cast<uint8_t>(epoch)}};
  };
  auto versions = table::RowVersions::First(version(1), rows);
  double bytes = 0;
  for (uint64_t epoch = 2; epoch <= 24; ++epoch) {
    std::vector<bool> changed(rows);
    for (size_t i = 0; i < w.records / 50; ++i) changed[random.Below(w.records) / 2] = true;
    versions = versions.Next(version(epoch), rows, [&](uint64_t row) { return changed[row]; });
    const auto& lists = versions.lists();
    if (epoch > 16) {
      bytes +=
          static_cast<double>(lists.base.size() + lists.previous.size() + lists.recent.size()) / 8;
    }
  }
  EXPECT_NEAR(FirstBytes(w, layout) - kManifestBytes, bytes, 0.1 * bytes);
  EXPECT_GT(FirstBytes(w, layout), ChangeOf(w, layout).list_bytes);
}

}  // namespace
}  // namespace shoal::plan
