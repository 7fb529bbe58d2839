#include "src/plan/model.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "google/protobuf/message.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/family.h"
#include "src/pir/registry/registry.h"
#include "src/pir/testing/xor_engine.h"
#include "src/plan/calibrate.h"
#include "src/plan/engines.h"
#include "src/plan/terms.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/synthetic_round.h"
#include "src/storage/file.h"
#include "src/storage/spool.h"
#include "src/table/records.h"
#include "src/table/table.h"
#include "src/wire/query_batch.h"
#include "src/wire/text.h"

namespace shoal::plan {
namespace {

using ::testing::HasSubstr;

Workload SomeWorkload() {
  return {.records = 100'000,
          .key_bytes = 24,
          .value_bytes = 60,
          .layout = LayoutKind::kHashed,
          .queries = 50'000,
          .rounds_per_day = 24,
          .parties = 3,
          .cores = 4,
          .price_core_hour = 0.04,
          .price_gb = 0.05};
}

const noise::Choice& SomeNoise() {
  static const noise::Choice* const choice =
      new noise::Choice(*noise::FindLeastNoise({.epsilon = 1, .delta = 1e-6, .exposure = {}}));
  return *choice;
}

Plan PlanOf(const Workload& workload, uint32_t row_bytes = 1024) {
  return *ChooseRows(workload, row_bytes, SomeNoise(), DefaultCosts());
}

double Cpu(const Party& p) {
  return p.noise_cpu_s() + p.offline_cpu_s() + p.online_cpu_s() + p.answers_cpu_s();
}

TEST(QueryBatchBytesTest, IsWhatTheEncoderMakes) {
  for (uint32_t count : {1u, 7u, 8u, 9u, 1000u}) {
    wire::QueryBatch batch;
    batch.positions.resize(count);
    std::iota(batch.positions.begin(), batch.positions.end(), 0u);
    batch.tallies.assign(count, 1);
    EXPECT_EQ(QueryBatchBytes(count),
              static_cast<double>(wire::EncodeQueryBatch(batch, count).size()));
  }
}

TEST(LayOutTest, IsWhatTheBuilderMakes) {
  testing::TestRandom random(1);
  std::string tsv, dense;
  Workload w = SomeWorkload();
  w.records = 8'000;
  for (uint64_t i = 0; i < w.records; ++i) {
    const std::string digits = std::to_string(i);
    tsv += std::string(w.key_bytes - digits.size(), '0') + digits + "\t" +
           std::string(w.value_bytes, 'v') + "\n";
    dense += digits + "\t" + std::string(w.value_bytes, 'v') + "\n";
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto hashed_records, table::ParseTsv(tsv, "hashed"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto dense_records, table::ParseTsv(dense, "dense"));
  table::TableOptions options{.name = "t", .deployment = "d", .created_s = 1, .expires_s = 1000};
  for (uint32_t row_bytes : {256u, 768u, 4096u}) {
    options.row_bytes = row_bytes;
    w.layout = LayoutKind::kHashed;
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto hashed,
                               table::BuildHashed(hashed_records, options, random));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Layout layout, LayOut(w, row_bytes));
    EXPECT_NEAR(layout.rows(), static_cast<double>(hashed.rows()), 0.03 * layout.rows())
        << row_bytes;
    EXPECT_EQ(layout.row_bytes(), hashed.row_bytes());
    w.layout = LayoutKind::kDense;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Layout flat, LayOut(w, row_bytes));
    options.row_bytes = flat.row_bytes();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto built, table::BuildDense(dense_records, options, random));
    EXPECT_EQ(flat.rows(), static_cast<double>(built.rows()));
    EXPECT_EQ(flat.row_bytes(), built.row_bytes());
  }
}

// A round run by the real stages has the sizes that are predicted for the same amount of noise.
TEST(PredictTest, SizesAreThoseOfTheStages) {
  constexpr uint32_t kParties = 3;
  constexpr uint64_t kQueries = 300, kRows = 40;
  testing::TestRandom random(2);
  ThreadPool pool(2);
  const noise::Distribution noise = *noise::Distribution::Create(SomeNoise().parameters);
  const server::SyntheticRound round({.parties = kParties,
                                      .answer_bytes = 112,
                                      .max_rows = kRows,
                                      .max_slots = kQueries,
                                      .noise = noise},
                                     random);
  Bytes list = round.MakeInput(kQueries, kSlotsOfASubmission, random, pool).list;

  wire::QueryBatch batch;
  batch.positions.resize(kQueries);
  std::iota(batch.positions.begin(), batch.positions.end(), 0u);
  batch.tallies.assign(kQueries, 5);
  double noise_queries = 0;
  SpoolPlace spools("/tmp", 1 << 30);
  const server::Resources resources = {.pool = &pool, .spools = &spools};
  for (uint32_t j = 1; j <= kParties; ++j) {
    const server::RoundContext& context = round.context(j);
    // The model's workload, with the actual noise so far in place of its mean.
    Workload w = SomeWorkload();
    w.queries = batch.positions.size();
    w.parties = kParties;
    Layout layout;
    layout.set_rows(kRows);
    layout.set_answer_bytes(112);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Plan plan, Predict(w, layout, SomeNoise(), DefaultCosts()));
    // The model leaves out a submission's length, and counts parts of submissions.
    EXPECT_NEAR(static_cast<double>(list.size()),
                j == 1 ? plan.hop(0).onion_bytes()
                       : static_cast<double>(onion::OnionBytes(kParties - j + 1) * w.queries),
                j == 1 ? 48 + 4 * 6 : 0);
    EXPECT_EQ(
        static_cast<double>(wire::EncodeQueryBatch(batch, static_cast<uint32_t>(w.queries)).size()),
        QueryBatchBytes(static_cast<double>(w.queries)));
    SHOAL_ASSERT_OK_AND_ASSIGN(server::NoiseBatch made,
                               MakeNoise(context, round.secrets(j), resources));
    noise_queries += static_cast<double>(made.size());
    SHOAL_ASSERT_OK_AND_ASSIGN(auto out, RunOffline(context, round.secrets(j), std::move(made),
                                                    list, kQueries, resources));
    if (j == kParties) {
      Bytes table(kRows * 112);
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const auto answers,
          AnswerQueries(server::AnswerKeys::Of(context, round.secrets(j), out.material, batch),
                        {table, kRows}, resources));
      EXPECT_EQ(static_cast<double>(answers->size()), plan.hop(0).answer_bytes());
      break;
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(server::Forwarding forwarding,
                               ForwardQueries(context, out.material, batch, resources));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        batch, wire::DecodeQueryBatch(forwarding.queries, out.material.next_positions));
    SHOAL_ASSERT_OK_AND_ASSIGN(list, ReadAll(out.onions));
  }
  // The noise is near the model's mean: 80 rows with a standard deviation of about 5.
  EXPECT_NEAR(noise_queries, 2 * kRows * SomeNoise().mean, 5 * 5 * 9);
}

TEST(PredictTest, MoreOfAnythingCostsMore) {
  const Plan base = PlanOf(SomeWorkload());
  const auto more = [&](const char* what, auto change) {
    Workload w = SomeWorkload();
    change(w);
    const Plan plan = PlanOf(w);
    EXPECT_GT(plan.per_round().price(), base.per_round().price()) << what;
    EXPECT_GT(plan.per_round().core_hours(), base.per_round().core_hours()) << what;
    for (int j = 0; j < base.party_size(); ++j) {
      EXPECT_GT(Cpu(plan.party(j)), Cpu(base.party(j))) << what << " party " << j + 1;
      EXPECT_GE(plan.party(j).peak_memory_bytes(), base.party(j).peak_memory_bytes()) << what;
    }
  };
  more("queries", [](Workload& w) { w.queries *= 2; });
  more("records", [](Workload& w) { w.records *= 2; });
  more("parties", [](Workload& w) { w.parties += 1; });
}

TEST(PredictTest, UnitsFitEachOther) {
  const Plan plan = PlanOf(SomeWorkload());
  double bytes = 0, cpu = 0;
  for (const Hop& hop : plan.hop()) {
    bytes += hop.onion_bytes() + hop.query_bytes() + hop.answer_bytes();
  }
  for (const Party& p : plan.party()) cpu += Cpu(p) + p.links_cpu_s();
  EXPECT_DOUBLE_EQ(plan.per_round().gigabytes(), bytes / 1e9);
  EXPECT_DOUBLE_EQ(plan.per_round().core_hours(), cpu / 3600);
  EXPECT_DOUBLE_EQ(plan.per_round().price(), 0.04 * cpu / 3600 + 0.05 * bytes / 1e9);
  EXPECT_DOUBLE_EQ(plan.per_day().price(), 24 * plan.per_round().price());
  EXPECT_DOUBLE_EQ(plan.price_per_million_queries(), plan.per_round().price() / 50'000 * 1e6);
  // Noise answers weigh mean noise times table size, with signatures and answer tags, whatever the
  // rows.
  const double noise_answers = plan.hop(1).answer_bytes() - plan.hop(0).answer_bytes();
  EXPECT_NEAR(noise_answers,
              SomeNoise().mean * plan.table().rows() * (plan.table().answer_bytes() + 16), 1);
  // One box per position is most of the backend's offline stage.
  EXPECT_GT(plan.party(2).offline_cpu_s(),
            1e-9 * DefaultCosts().open_ns() * plan.party(2).positions_in());
}

TEST(PredictTest, BreakEvenIsWhereThePricesMeet) {
  Workload w = SomeWorkload();
  const Plan plan = PlanOf(w);
  w.queries = static_cast<uint64_t>(plan.download().break_even_queries());
  ASSERT_GT(w.queries, 0u);
  const Plan there = PlanOf(w);
  const double download = there.download().client_bytes() / 1e9 * w.price_gb;
  EXPECT_NEAR(there.per_round().price() / static_cast<double>(w.queries), download,
              0.05 * download);
}

// Among row sizes within 10 % of the lowest price, takes the one with the least work.
TEST(ChooseRowsTest, TakesTheCheapest) {
  // The paper's Table 2 workload: the price is flat where the offline stage is not.
  const Workload table2 = {.records = 100'000,
                           .value_bytes = 4,
                           .layout = LayoutKind::kDense,
                           .queries = 1'000'000,
                           .parties = 2,
                           .price_core_hour = 0.04,
                           .price_gb = 0.05};
  const noise::Choice noise =
      *noise::FindLeastNoise({.epsilon = 0.1, .delta = 1e-6, .exposure = {}});
  bool dearer = false;
  for (const Workload& w : {SomeWorkload(), table2}) {
    const Plan plan = *ChooseRows(w, 0, noise, DefaultCosts());
    double lowest = plan.price_per_million_queries();
    for (const Alternative& line : plan.by_row_bytes()) {
      lowest = std::min(lowest, line.price_per_million());
    }
    EXPECT_LE(plan.price_per_million_queries(), 1.1 * lowest);
    dearer |= plan.price_per_million_queries() > lowest;
    int chosen = 0;
    for (const Alternative& line : plan.by_row_bytes()) {
      if (line.price_per_million() <= 1.1 * lowest) {
        EXPECT_GE(line.cpu_s(), Summarise(plan).cpu_s()) << line.row_bytes();
      }
      chosen += line.chosen();
    }
    EXPECT_EQ(chosen, 1);
    EXPECT_GT(plan.by_row_bytes_size(), 5);
  }
  EXPECT_TRUE(dearer);
}

TEST(PredictTest, BadParametersAreNamed) {
  Workload w = SomeWorkload();
  noise::Choice noise = SomeNoise();
  noise.parameters.phi = 200'000;
  EXPECT_THAT(ChooseRows(w, 1024, noise, DefaultCosts()).status().message(),
              HasSubstr("phi must be at most the number of rows"));
  w.records = 1'000'000'000'000;
  EXPECT_THAT(ChooseRows(w, 65536, SomeNoise(), DefaultCosts()).status().message(),
              HasSubstr("noise overflow"));
  EXPECT_THAT(LayOut(SomeWorkload(), 50).status().message(),
              HasSubstr("--row-bytes must be at least 86"));
  w = SomeWorkload();
  w.parties = 9;
  EXPECT_EQ(CheckWorkload(w).message(), "--parties must be in [2, 8], got 9");
  w = SomeWorkload();
  w.rounds_per_day = -1;
  EXPECT_THAT(CheckWorkload(w).message(), HasSubstr("--rounds-per-day"));
}

// A workload whose layout has rows of one short dense record.
Workload ShortRecords() {
  Workload w = SomeWorkload();
  w.layout = LayoutKind::kDense;
  w.records = 5000;
  w.value_bytes = 4;
  w.queries = 5000;
  return w;
}

// An engine's server and client make as many bytes as predicted.
TEST(EnginesTest, SizesAreThoseOfTheEngine) {
  Workload w = ShortRecords();
  w.records = 300;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Layout layout, LayOut(w, 64));
  const pir::Engine& simple = pir::lwe::SimplePir();
  const pir::Engine& twofold = pir::lwe::DoublePir();
  const EngineCosts predicted = PredictEngine(w, simple, layout, DefaultCosts(), {});
  EXPECT_EQ(predicted.refused(), "");
  const pir::Content content{.table_id = {1},
                             .epoch = 3,
                             .manifest_digest = {2},
                             .rows = static_cast<uint64_t>(layout.rows()),
                             .record_bytes = layout.answer_bytes(),
                             .copy = [](uint64_t, MutableBytes out) { std::ranges::fill(out, 7); }};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto server, simple.CreateServer(content, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, simple.OpenSession({&server->setup(), 1}, {}));
  SHOAL_ASSERT_OK(session->TakeHint(server->hint()));
  testing::TestRandom random(4);
  const uint64_t row = 3;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto batch, session->Ask({.rows = {&row, 1}, .keys = 1}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto requests, batch->Next(random));
  const pir::RequestView view = {requests[0].kind, requests[0].count, requests[0].body};
  const auto answers = server->Answer(requests[0].role, {&view, 1});
  SHOAL_ASSERT_OK(answers[0].status());
  EXPECT_EQ(predicted.hint_bytes(), static_cast<double>(server->hint().size()));
  EXPECT_EQ(predicted.query_bytes(), static_cast<double>(view.body.size()));
  EXPECT_EQ(predicted.answer_bytes(), static_cast<double>(answers[0]->size()));
  // DoublePIR, whose hint is too large to make here: its own sizes, and its own refusal.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto setup, twofold.ShapeOf(content, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const pir::Sizes sizes, twofold.SizesOfShape(setup));
  const EngineCosts twice = PredictEngine(w, twofold, layout, DefaultCosts(), {});
  EXPECT_EQ(twice.hint_bytes(), static_cast<double>(sizes.hint_bytes));
  EXPECT_EQ(twice.query_bytes(), static_cast<double>(sizes.query_bytes));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Layout wide, LayOut(w, 200));
  EXPECT_THAT(PredictEngine(w, twofold, wide, DefaultCosts(), {}).refused(),
              HasSubstr("use simplepir for wide rows"));
  w.records = 300'000;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Layout long_one, LayOut(w, 200));
  EXPECT_THAT(
      PredictEngine(w, simple, long_one, DefaultCosts(), {.max_hint_bytes = 1 << 20}).refused(),
      HasSubstr("larger than the allowed 1 MiB"));
}

// Every unit that an engine names has a cost, and no other name has.
TEST(EnginesTest, EveryUnitHasACost) {
  pir::Content content;
  content.rows = 1000;
  content.record_bytes = 4;
  for (const pir::Engine* engine : pir::Engines()) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto shape, engine->ShapeOf(content, {}));
    const pir::Work work = engine->WorkOf(shape, 16);
    EXPECT_EQ(work.prepare.empty(), engine->SizesOfShape(shape)->prepare_bytes == 0);
    for (const auto* amounts :
         {&work.setup, &work.query, &work.answer, &work.recover, &work.prepare}) {
      EXPECT_TRUE(!amounts->empty() || amounts == &work.prepare);
      for (const pir::Amount& amount : *amounts) {
        SHOAL_ASSERT_OK_AND_ASSIGN(const double cost, CostOf(DefaultCosts(), amount.unit));
        EXPECT_GT(cost, 0);
        EXPECT_GT(amount.amount, 0);
      }
    }
  }
  EXPECT_THAT(CostOf(DefaultCosts(), "machine"),
              testing::StatusIs(absl::StatusCode::kUnimplemented, ""));
  EXPECT_THAT(CostOf(DefaultCosts(), "ring_product"),
              testing::StatusIs(absl::StatusCode::kUnimplemented, "ring_product"));
}

// An engine that is added brings its units and what they cost: nothing here names them.
TEST(EnginesTest, AnAddedEngineIsPlannedByWhatItsFamilySays) {
  std::vector<const pir::Family*> families(pir::Families().begin(), pir::Families().end());
  families.push_back(&pir::testing::XorFamily());
  const pir::Engine* const added[] = {&pir::testing::XorEngine()};
  const Workload w = ShortRecords();
  SHOAL_ASSERT_OK_AND_ASSIGN(Plan plan, ChooseRows(w, 1024, SomeNoise(), DefaultCosts()));
  SHOAL_ASSERT_OK(
      CompareEngines(w, 1024, SomeNoise(), DefaultCosts(), EngineOptions(), plan, added));
  ASSERT_EQ(plan.engine_size(), 2);
  EXPECT_THAT(plan.engine(1).refused(), HasSubstr("no cost is known for the unit row_gathered"));

  UnitCosts costs = DefaultCosts();
  AddUnitCosts(pir::testing::XorFamily().units(), costs);
  SHOAL_ASSERT_OK(CompareEngines(w, 1024, SomeNoise(), costs, EngineOptions(), plan, added));
  ASSERT_EQ(plan.engine_size(), 2);
  EXPECT_EQ(plan.engine(1).engine(), "xor");
  EXPECT_EQ(plan.engine(1).refused(), "");
  EXPECT_NEAR(plan.engine(1).answer_seconds(),
              1e-9 * (20 * plan.engine(1).rows() +
                      (plan.engine(1).query_bytes() + plan.engine(1).answer_bytes()) *
                          costs.link_byte_ns()),
              1e-12);

  // What is measured is kept in a file, which has to have every unit.
  const std::string path = ::testing::TempDir() + "added.textproto";
  SHOAL_ASSERT_OK(wire::WriteTextFile(path, DefaultCosts(), FileMode::kPublic));
  SHOAL_ASSERT_OK(ReadCosts(path).status());
  EXPECT_THAT(ReadCosts(path, families),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                "engine_unit_ns of row_gathered must be above 0"));
  testing::TestRandom random(6);
  ThreadPool pool(1);
  AddUnitCosts(pir::testing::XorFamily().MeasureUnits(1 << 20, random, pool), costs);
  SHOAL_ASSERT_OK(wire::WriteTextFile(path, costs, FileMode::kPublic));
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitCosts read, ReadCosts(path, families));
  EXPECT_EQ(*CostOf(read, "row_gathered"), 10);
  // Where that engine is not, its unit does no harm.
  SHOAL_EXPECT_OK(ReadCosts(path).status());
  (*costs.mutable_engine_unit_ns())["row_gathered"] = -1;
  SHOAL_ASSERT_OK(wire::WriteTextFile(path, costs, FileMode::kPublic));
  EXPECT_THAT(ReadCosts(path), testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                                 "row_gathered must be above 0"));
}

// Files that have a field for each unit, as before, are read.
TEST(EnginesTest, CostsOfEnginesInFieldsOfTheirOwnAreRead) {
  UnitCosts plain = DefaultCosts();
  plain.clear_engine_unit_ns();
  std::string text = wire::PrintText(plain);
  for (const auto& [unit, ns] : DefaultCosts().engine_unit_ns()) {
    absl::StrAppend(&text, unit, "_ns: ", ns, "\n");
  }
  const std::string path = ::testing::TempDir() + "fields.textproto";
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic));
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitCosts read, ReadCosts(path));
  for (const auto& [unit, ns] : DefaultCosts().engine_unit_ns()) {
    EXPECT_NEAR(*CostOf(read, unit), ns, 1e-5 * ns) << unit;
  }
  text += "ring_product_ns: 1\n";
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic));
  EXPECT_THAT(ReadCosts(path),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "ring_product_ns"));
}

// What clients and crowds count as a query's bytes (ClientTest,
// AQueryCostsAsManyBytesAsTheDesignSays) is what the plan compares; a hop's traffic has the layer
// around a submission in addition.
TEST(EnginesTest, AQueryOfTheChainHasTheBytesThatItsClientsCount) {
  for (const auto& [parties, bytes] : std::map<uint32_t, double>{{2, 56}, {3, 104}, {5, 200}}) {
    Workload w = ShortRecords();
    w.parties = parties;
    Plan plan = PlanOf(w, 64);
    SHOAL_ASSERT_OK(CompareEngines(w, 64, SomeNoise(), DefaultCosts(), {}, plan));
    EXPECT_EQ(plan.engine(0).query_bytes(), bytes);
    EXPECT_DOUBLE_EQ(plan.client().onion_bytes() + plan.client().query_bytes(), bytes + 48. / 64);
  }
}

// At the crossover both cost the same; below it the chain costs more, above it less.
TEST(EnginesTest, TheChainBeatsThemFromTheCrossoverOn) {
  Workload w = ShortRecords();
  w.records = 2'000'000;
  Plan plan = PlanOf(w, 64);
  SHOAL_ASSERT_OK(CompareEngines(w, 64, SomeNoise(), DefaultCosts(), {}, plan));
  // The chain, and every engine.
  ASSERT_EQ(plan.engine_size(), 1 + static_cast<int>(pir::Engines().size()));
  EXPECT_EQ(plan.engine(0).engine(), "chain");
  // What a client fetches before its first lookup counts on both sides.
  EXPECT_GT(plan.engine(0).first_bytes(), plan.table().rows());
  const FirstShare first = ShareOfFirst(plan.engine(0).first_bytes(), DefaultCosts(), {});
  const double first_price = 1e6 * (first.seconds / 3600 * 0.04 + first.bytes / 1e9 * 0.05);
  EXPECT_DOUBLE_EQ(plan.engine(0).server_seconds_per_query(),
                   plan.per_round().core_hours() * 3600 / plan.queries() + first.seconds);
  for (int e = 1; e < 3; ++e) {
    const EngineCosts& engine = plan.engine(e);
    ASSERT_EQ(engine.refused(), "");
    ASSERT_GT(engine.chain_beats_cpu_from_queries(), 1) << engine.engine();
    ASSERT_GT(engine.chain_beats_price_from_queries(), 1) << engine.engine();
    EXPECT_DOUBLE_EQ(engine.chain_beats_cpu_from_queries_per_record(),
                     engine.chain_beats_cpu_from_queries() / 2e6);
    for (const double factor : {0.9, 1.1}) {
      Workload other = w;
      const auto chain_at = [&](double queries) {
        other.queries = static_cast<uint64_t>(queries * factor);
        return PlanOf(other, 64);
      };
      const auto engine_at = [&] {
        const auto kind = *pir::FindEngine(engine.engine());
        return PredictEngine(other, *kind, plan.table(), DefaultCosts(), {});
      };
      Plan chain = chain_at(engine.chain_beats_cpu_from_queries());
      EXPECT_EQ(chain.per_round().core_hours() * 3600 / chain.queries() +
                first.seconds<engine_at().server_seconds_per_query(), factor> 1)
          << engine.engine();
      chain = chain_at(engine.chain_beats_price_from_queries());
      EXPECT_EQ(chain.price_per_million_queries() +
                first_price<engine_at().price_per_million_queries(), factor> 1)
          << engine.engine();
    }
  }
  for (int e = 1; e < 3; ++e) {
    // The offline stage is the larger part.
    EXPECT_GT(plan.engine(e).chain_online_beats_cpu_from_queries(), 1);
    EXPECT_LT(plan.engine(e).chain_online_beats_cpu_from_queries(),
              plan.engine(e).chain_beats_cpu_from_queries());
  }
  // The chain's own curve falls, as more queries share the same noise.
  for (int i = 1; i < plan.chain_by_queries_size(); ++i) {
    EXPECT_LT(plan.chain_by_queries(i).server_seconds_per_query(),
              plan.chain_by_queries(i - 1).server_seconds_per_query());
  }
  // A server reads this table in less time than an onion is opened: the chain is ahead only online.
  w.records = 5000;
  Plan small = PlanOf(w, 64);
  SHOAL_ASSERT_OK(CompareEngines(w, 64, SomeNoise(), DefaultCosts(), {}, small));
  EXPECT_EQ(small.engine(1).chain_beats_cpu_from_queries(), 0);
  w.records = 2'000'000;
  // More privacy takes more noise, so the chain needs more queries to be ahead.
  const auto stricter = *noise::FindLeastNoise({.epsilon = 0.5, .delta = 1e-6, .exposure = {}});
  Plan strict = *ChooseRows(w, 64, stricter, DefaultCosts());
  SHOAL_ASSERT_OK(CompareEngines(w, 64, stricter, DefaultCosts(), {}, strict));
  EXPECT_GT(strict.engine(1).chain_beats_cpu_from_queries(),
            plan.engine(1).chain_beats_cpu_from_queries());
}

TEST(EnginesTest, EveryEngineHasItsOwnBestRows) {
  const Workload w = ShortRecords();
  Plan plan = PlanOf(w, 0);
  SHOAL_ASSERT_OK(CompareEngines(w, 0, SomeNoise(), DefaultCosts(), {}, plan));
  for (const EngineCosts& engine : plan.engine()) {
    if (engine.engine() == "chain") continue;
    const auto kind = *pir::FindEngine(engine.engine());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto layouts, LayoutsWithFirstBytes(w, 0));
    EXPECT_EQ(layouts.size(), RowSizes(w).size());
    for (const Layout& layout : layouts) {
      const EngineCosts other = PredictEngine(w, *kind, layout, DefaultCosts(), {});
      if (!other.refused().empty()) continue;
      EXPECT_GE(other.price_per_million_queries(), engine.price_per_million_queries())
          << layout.row_bytes();
    }
  }
}

// `pair` has one vector a server where that is shorter than a key, and one pass for 16 queries.
TEST(EnginesTest, PairIsPlannedAsItIsServed) {
  Workload w = ShortRecords();
  const auto pair = *pir::FindEngine("pair");
  for (const auto& [records, row_bytes] :
       std::map<uint64_t, uint32_t>{{800, 64}, {2'000'000, 64}}) {
    w.records = records;
    const Layout layout = *LayOut(w, row_bytes);
    const EngineCosts costs = PredictEngine(w, *pair, layout, DefaultCosts(), {});
    ASSERT_EQ(costs.refused(), "");
    // To each: epoch, setup's id, and a bit for each row, or a key.
    const double vector = 8 * std::ceil(layout.rows() / 64);
    const double levels = std::ceil(std::log2(std::max(1.0, std::ceil(layout.rows() / 128))));
    EXPECT_EQ(costs.query_bytes(), 2 * (40 + std::min(vector, 16 * levels + 52))) << records;
    EXPECT_EQ(costs.answer_bytes(), 2 * layout.answer_bytes());
    EXPECT_EQ(costs.hint_bytes() + costs.prepare_bytes(), 0);
    EXPECT_GT(costs.alone_seconds(), costs.answer_seconds());
    EXPECT_LT(costs.alone_seconds(), 16 * costs.answer_seconds());
  }
}

TEST(EnginesTest, BadOptionsAreNamed) {
  EXPECT_THAT(CheckEngineOptions({.max_hint_bytes = 5}).message(), HasSubstr("--max-hint-mib"));
  EXPECT_THAT(CheckEngineOptions({.lookups_per_hint = 0}).message(),
              HasSubstr("--lookups-per-hint must be in [1, 1e9], got 0"));
}

// Masks are made ahead of time where there is room for them, online where there is none.
TEST(PredictTest, MasksNeedRoom) {
  Workload w = SomeWorkload();
  UnitCosts costs = DefaultCosts();
  costs.set_fresh_byte_ns(0);
  const Plan roomy = *ChooseRows(w, 1024, SomeNoise(), costs);
  w.spool_memory_bytes = 1 << 20;
  const Plan tight = *ChooseRows(w, 1024, SomeNoise(), costs);
  for (int j = 0; j < roomy.party_size(); ++j) {
    const Party &a = roomy.party(j), &b = tight.party(j);
    EXPECT_TRUE(a.masks_ready());
    EXPECT_FALSE(b.masks_ready());
    EXPECT_GT(a.offline_cpu_s(), b.offline_cpu_s());
    EXPECT_LT(a.online_cpu_s() + a.answers_cpu_s(), b.online_cpu_s() + b.answers_cpu_s());
    EXPECT_NEAR(Cpu(a), Cpu(b), 1e-9 * Cpu(b));  // the same work
    EXPECT_GT(a.rest_memory_bytes(), b.rest_memory_bytes());
  }
  // The backend, which has no lists, touches new memory only for the masks and the keys of tags.
  const Party dear_tight = PlanOf(w).party(roomy.party_size() - 1);
  const Party dear = PlanOf(SomeWorkload()).party(roomy.party_size() - 1);
  const double pads = dear.positions_in() * (roomy.table().answer_bytes() + 32);
  EXPECT_NEAR(Cpu(dear) - Cpu(dear_tight), 1e-9 * pads * DefaultCosts().fresh_byte_ns(),
              1e-9 * Cpu(dear));
}

// Short answers reuse the memory of the offline stage's lists. Where memory is plentiful those
// lists also make room for long answers; elsewhere long answers touch new memory while clients
// wait.
TEST(PredictTest, MemoryOfListsIsUsedAgain) {
  UnitCosts free = DefaultCosts(), dear = DefaultCosts();
  free.set_fresh_byte_ns(0);
  dear.set_fresh_byte_ns(3);
  Workload w = SomeWorkload();
  w.key_bytes = w.value_bytes = 8;
  const auto fresh = [&](uint32_t row_bytes) {
    const auto answers = [&](const UnitCosts& unit) {
      return ChooseRows(w, row_bytes, SomeNoise(), unit)->party(0).answers_cpu_s();
    };
    return answers(dear) - answers(free);
  };
  EXPECT_EQ(fresh(128), 0);
  EXPECT_EQ(fresh(4096), 0);
  w.spool_memory_bytes = 1 << 20;
  w.parties = 4;  // whose onions for party 2 have 128 bytes, and answers of 32 have 96
  EXPECT_EQ(fresh(32), 0);
  EXPECT_GT(fresh(4096), 0);
}

// Parties work one after the other. On one machine they also share its cores with the next round's
// noise.
TEST(PredictTest, WallTimes) {
  Workload w = SomeWorkload();
  const Plan apart = PlanOf(w);
  double offline = 0, online = 0;
  for (const Party& party : apart.party()) {
    // More cores help, except with what one thread does alone.
    EXPECT_GE(party.offline_seconds(), party.offline_cpu_s() / w.cores);
    EXPECT_LE(party.offline_seconds(), party.offline_cpu_s());
    offline += party.offline_seconds();
    online += party.online_seconds() + party.answers_seconds();
  }
  EXPECT_GT(apart.chain_times().offline_seconds(), offline);
  EXPECT_GT(apart.chain_times().online_seconds(), online);
  w.one_machine = true;
  const Plan together = PlanOf(w);
  EXPECT_GT(together.chain_times().offline_seconds(), apart.chain_times().offline_seconds());
  EXPECT_GT(apart.chain_times().offline_beside_noise_seconds(),
            apart.chain_times().offline_seconds());
  EXPECT_GT(together.chain_times().offline_beside_noise_seconds(),
            apart.chain_times().offline_beside_noise_seconds());
  EXPECT_DOUBLE_EQ(together.per_round().price(), apart.per_round().price());
  w.cores *= 2;
  EXPECT_LT(PlanOf(w).chain_times().offline_seconds(), together.chain_times().offline_seconds());
}

void ExpectPositive(const google::protobuf::Message& costs) {
  const auto* fields = costs.GetDescriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* field = fields->field(i);
    if (field->is_map()) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE) {
      EXPECT_GT(costs.GetReflection()->GetDouble(costs, field), 0) << field->full_name();
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      ASSERT_TRUE(costs.GetReflection()->HasField(costs, field)) << field->full_name();
      ExpectPositive(costs.GetReflection()->GetMessage(costs, field));
    }
  }
}

// One machine each is what a plan is without machines.
TEST(MachinesTest, OneMachineEachChangesNothing) {
  Workload w = SomeWorkload();
  const Plan plain = PlanOf(w);
  w.machines = {1, 1, 1};
  EXPECT_EQ(wire::PrintText(PlanOf(w)), wire::PrintText(plain));
  EXPECT_EQ(plain.rental().machines(), 3);
  EXPECT_EQ(plain.rental().inside_gigabytes(), 0);
  for (const Party& party : plain.party()) {
    EXPECT_EQ(party.machines(), 1u);
    EXPECT_EQ(party.sent_offline_bytes() + party.sent_online_bytes() + party.padding_bytes(), 0);
  }
}

// Machines share time and memory, take a little more of both over all, and what passes between
// parties stays the same.
TEST(MachinesTest, MachinesShareAPartysWork) {
  Workload w = SomeWorkload();
  w.queries = 10'000'000;
  const Plan one = PlanOf(w);
  w.machines = {1, 8, 2};
  w.price_machine_hour = 3;
  const Plan plan = PlanOf(w);
  EXPECT_EQ(plan.per_round().gigabytes(), one.per_round().gigabytes());
  EXPECT_LT(plan.chain_times().offline_seconds(), 0.5 * one.chain_times().offline_seconds());
  EXPECT_LT(plan.chain_times().online_seconds(), one.chain_times().online_seconds());
  for (int i = 0; i < 3; ++i) {
    const Party &many = plan.party(i), &single = one.party(i);
    const uint32_t machines = w.machines[static_cast<size_t>(i)];
    EXPECT_EQ(many.machines(), machines);
    EXPECT_NEAR(many.positions_in(), single.positions_in(), 1);
    EXPECT_NEAR(many.noise_queries(), single.noise_queries(), 1);
    EXPECT_GE(Cpu(many), 0.99 * Cpu(single));
    // Forwarding and placing few items costs less of each in the caches.
    EXPECT_LT(Cpu(many), 1.3 * Cpu(single));
    EXPECT_NEAR(many.links_cpu_s(), single.links_cpu_s(), 1e-3 * single.links_cpu_s());
    EXPECT_NEAR(many.offline_seconds(), single.offline_seconds() / machines,
                0.12 * single.offline_seconds() / machines)
        << i;
    EXPECT_LT(many.peak_memory_bytes(), (machines == 1 ? 1.5 : 0.9) * single.peak_memory_bytes());
    // The last party passes fingerprints alone.
    EXPECT_EQ(many.sent_offline_bytes() > 0, machines > 1);
    EXPECT_EQ(many.sent_online_bytes() > 0, machines > 1 && i < 2);
    EXPECT_LT(many.padding_bytes(),
              0.3 * (many.sent_offline_bytes() + many.sent_online_bytes()) + 1);
  }
  // A party of one takes the answers of several machines as they come.
  EXPECT_DOUBLE_EQ(plan.party(0).answers_cpu_s(), one.party(0).answers_cpu_s());
  const Rental& rental = plan.rental();
  EXPECT_EQ(rental.machines(), 11);
  EXPECT_NEAR(
      60 * rental.minutes(),
      plan.chain_times().offline_beside_noise_seconds() + plan.chain_times().online_seconds(),
      1e-6);
  EXPECT_NEAR(rental.machines_price(), 11 * 3 * rental.minutes() / 60, 1e-9);
  EXPECT_NEAR(rental.price(), rental.machines_price() + plan.per_round().traffic_price(), 1e-9);
  const auto sent = [&](int i) {
    return plan.party(i).sent_offline_bytes() + plan.party(i).sent_online_bytes();
  };
  EXPECT_NEAR(1e9 * rental.inside_gigabytes(), 8 * sent(1) + 2 * sent(2), 1);
}

// What machines of a party send each other in the offline stage is what the stage sends.
TEST(MachinesTest, WhatPassesIsPaddedAsTheStagesPadIt) {
  constexpr uint32_t kMachines = 4, kEach = 64, kSlots = 300 * kEach, kRows = 300;
  testing::TestRandom random(5);
  const server::SyntheticRound round(
      {.parties = 2,
       .answer_bytes = 112,
       .max_rows = kRows,
       .max_slots = kSlots,
       .noise = *noise::Distribution::Create(SomeNoise().parameters)},
      random);
  ThreadPool many(2);
  const Bytes list = round.MakeInput(kSlots, kEach, random, many).list;
  const size_t record_bytes = server::kSubmissionLengthBytes + onion::SubmissionBytes(2, kEach);
  machines::testing::LocalCluster cluster(kMachines);
  for (const absl::Status& done : cluster.Run([&](machines::Machines& all) -> absl::Status {
         ThreadPool pool(1);
         SpoolPlace spools(::testing::TempDir(), 1 << 30);
         const server::Resources resources = {.pool = &pool, .spools = &spools, .machines = &all};
         const auto& secrets = round.secrets(1);
         SHOAL_ASSIGN_OR_RETURN(auto noise,
                                server::MakeNoise(round.context(1), secrets, resources));
         const machines::Run run = machines::RunOf(kSlots / kEach, all.rank(), kMachines);
         return server::RunOffline(
                    round.context(1), secrets, std::move(noise),
                    BytesView(list).subspan(run.begin * record_bytes, run.size() * record_bytes),
                    run.size() * kEach, resources)
             .status();
       })) {
    SHOAL_ASSERT_OK(done);
  }
  uint64_t sent = 0;
  for (uint32_t to = 1; to < kMachines; ++to) sent += cluster.sent_bytes(0, to);
  Workload w = SomeWorkload();
  w.layout = LayoutKind::kDense;
  w.parties = 2;
  w.machines = {kMachines, 1};
  w.queries = kSlots;
  w.records = kRows;
  w.value_bytes = 64;
  const Plan plan = PlanOf(w, 64);
  ASSERT_EQ(plan.table().rows(), kRows);
  // Beside it pass greetings and seals.
  EXPECT_NEAR(static_cast<double>(sent), plan.party(0).sent_offline_bytes(),
              0.02 * static_cast<double>(sent));
}

// An answer that moves is digested where it came from the next party, and not again where it goes.
TEST(MachinesTest, AnAnswerThatMovesIsDigestedOnce) {
  Workload w = SomeWorkload();
  w.machines = {8, 1, 1};
  UnitCosts costs = DefaultCosts();
  const Plan before = *ChooseRows(w, 1024, SomeNoise(), costs);
  costs.set_digest_byte_ns(costs.digest_byte_ns() + 0.01);
  const Plan after = *ChooseRows(w, 1024, SomeNoise(), costs);
  const Party& party = before.party(0);
  const double moved = party.positions_in() * 7 / 8;
  EXPECT_NEAR(party.answers_cpu_s() - after.party(0).answers_cpu_s(),
              1e-9 * 0.01 * moved * static_cast<double>(before.table().answer_bytes() + 16),
              1e-6 * party.answers_cpu_s());
  EXPECT_EQ(before.party(1).answers_cpu_s(), after.party(1).answers_cpu_s());
}

TEST(MachinesTest, BadNumbersAreNamed) {
  Workload w = SomeWorkload();
  const auto refused = [&](const char* message) {
    EXPECT_THAT(CheckWorkload(w), testing::StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  w.machines = {1, 2};
  refused("--machines names 2 parties, --parties 3");
  w.machines = {1, 0, 1};
  refused("--machines must be in [1, 64], got 0");
  w.machines = {1, 1, 65};
  refused("--machines must be in [1, 64], got 65");
  w.machines = {1, 2, 1};
  w.one_machine = true;
  refused("with --one-machine");
  w.machines = {};
  w.price_machine_hour = -1;
  refused("--price-machine-hour must be in [0, 1e6], got -1");
}

Workload SomeTerm() {
  Workload w = SomeWorkload();
  w.rounds_per_day = 1;
  w.refreshes = 29;
  return w;
}

const Method& MethodOf(const google::protobuf::RepeatedPtrField<Method>& ways,
                       absl::string_view name) {
  const auto found =
      std::ranges::find_if(ways, [&](const Method& way) { return way.way() == name; });
  SHOAL_CHECK(found != ways.end());
  return *found;
}

Plan WithWays(const Workload& w, uint32_t row_bytes = 1024) {
  Plan plan = PlanOf(w, row_bytes);
  SHOAL_CHECK(CompareWays(w, row_bytes, SomeNoise(), DefaultCosts(), {}, plan).ok());
  return plan;
}

// The rows that room takes, the keys for which it is not enough after a term, the placement and the
// manifest are those of the builder.
TEST(TermTest, RoomIsWhatTheBuilderMakesOfIt) {
  Workload w = SomeTerm();
  w.records = 6'000;
  w.key_bytes = 9;
  w.value_bytes = 20;
  w.refreshes = 10;
  w.changed_percent = 4;
  testing::TestRandom random(11);
  uint64_t serial = 100'000'000;
  double expected = 0, displaced = 0;
  for (const uint32_t room : {5u, 20u}) {
    w.room_percent = room;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Layout layout, LayOut(w, 512));
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < w.records; ++i) keys.push_back(std::to_string(serial++));
    const auto records_of = [&] {
      table::RecordSet records("t.tsv");
      for (uint64_t i = 0; i < keys.size(); ++i) {
        const std::string value(w.value_bytes, 'v');
        SHOAL_CHECK(records.Add(AsBytes(keys[i]), AsBytes(value), i + 1).ok());
      }
      return records;
    };
    table::TableOptions options{.name = "t",
                                .deployment = "d",
                                .created_s = 1,
                                .expires_s = 1000,
                                .row_bytes = 512,
                                .room_percent = room};
    absl::StatusOr<table::UnsignedTable> table = BuildHashed(records_of(), options, random);
    SHOAL_ASSERT_OK(table.status());
    EXPECT_NEAR(layout.rows(), static_cast<double>(table->rows()), 0.03 * layout.rows()) << room;
    EXPECT_NEAR(PlacementBytes(w), static_cast<double>(table->map().placement().size()), 1);
    EXPECT_NEAR(kManifestBytes, static_cast<double>(table->manifest().ByteSizeLong()) + 48, 150);
    // A quarter of the changes are keys that go, as many are keys that come.
    const size_t moves = w.records / 100;
    table::RecordSet records("none");
    for (uint32_t epoch = 0; epoch < w.refreshes; ++epoch) {
      for (size_t i = 0; i < moves; ++i) keys[random.Below(keys.size())] = std::to_string(serial++);
      records = records_of();
      const table::PreviousEpoch previous{.content = *table, .manifest = {}, .signatures = nullptr};
      options.epoch = table->manifest().epoch() + 1;
      options.previous = &previous;
      options.sign_all_rows = options.keep_rows = true;
      options.room_percent = 0;
      absl::StatusOr<table::UnsignedTable> next = BuildHashed(records, options, random);
      SHOAL_ASSERT_OK(next.status());
      table = *std::move(next);
    }
    expected += DisplacedKeys(w, layout);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto without_room, DisplacedRecords(records, *table));
    displaced += static_cast<double>(without_room.size());
  }
  EXPECT_NEAR(expected, displaced, 0.3 * displaced);
  EXPECT_GT(displaced, 100);
}

TEST(TermTest, TheRoomIsChosenByTheKeysThatWait) {
  Workload w = SomeTerm();
  for (const double changed : {0.5, 5.0}) {
    w.changed_percent = changed;
    SHOAL_ASSERT_OK_AND_ASSIGN(const Layout layout, LayOut(w, 1024));
    EXPECT_LE(DisplacedKeys(w, layout), 0.01 * layout.records());
    ASSERT_GT(layout.room_percent(), 0u);
    Workload less = w;
    less.room_percent = layout.room_percent() - 5;
    EXPECT_GT(DisplacedKeys(less, *LayOut(less, 1024)), 0.01 * layout.records());
  }
  // Rows of one key have no room for any other.
  EXPECT_THAT(LayOut(w, 100).status(),
              testing::StatusIs(absl::StatusCode::kResourceExhausted, "no room is enough"));
  EXPECT_EQ(LayOut(w.WithoutTerm(), 1024)->room_percent(), 0u);
  w.layout = LayoutKind::kDense;
  EXPECT_EQ(LayOut(w, 1024)->room_percent(), 0u);
  EXPECT_EQ(DisplacedKeys(w, *LayOut(w, 1024)), 0);
}

TEST(TermTest, UnitsFitEachOther) {
  const Workload w = SomeTerm();
  const Plan plan = WithWays(w);
  const Term& term = plan.term();
  EXPECT_EQ(term.epochs(), 30);
  EXPECT_EQ(w.TermDays(), 30u);
  double refresh = 0, keep = 0;
  for (const TermParty& party : term.party()) {
    refresh += party.refresh_cpu_s() + party.fetch_cpu_s() + party.links_cpu_s();
    keep += party.keep_cpu_s();
    EXPECT_EQ(party.fetch_cpu_s() > 0, party.party() == 1);
    EXPECT_EQ(party.answers_bytes() > 0, party.party() == 1);
  }
  EXPECT_GT(keep, 0);
  EXPECT_DOUBLE_EQ(term.per_refresh().core_hours() * 3600, refresh);
  const double devices = plan.queries() / plan.noise().phi();
  const double beside = devices * (30 * plan.table().list_bytes() + term.placement_bytes());
  EXPECT_NEAR(term.per_term().core_hours() * 3600,
              plan.per_round().core_hours() * 3600 + 29 * refresh + keep +
                  1e-9 * beside * DefaultCosts().link_byte_ns(),
              1e-6);
  EXPECT_NEAR(term.per_term().gigabytes(),
              plan.per_round().gigabytes() + 29 * term.per_refresh().gigabytes() + beside / 1e9,
              1e-9);
  // A refresh moves the answers of the round, and no onion.
  double answers = 0;
  for (const Hop& hop : plan.hop()) answers += hop.from() == 0 ? 0 : hop.answer_bytes();
  EXPECT_EQ(term.refresh_link_bytes(), answers);
  EXPECT_LT(term.per_refresh().core_hours(), 0.5 * plan.per_round().core_hours());
  EXPECT_GT(term.at_rest_bytes_per_position(), 36);
  EXPECT_LE(term.at_rest_bytes_per_position(), 48);
  // A term of which nothing is refreshed is a round that is kept.
  const Method& way = MethodOf(term.way(), "term");
  EXPECT_NEAR(way.price(), term.per_term().price() / 30 / devices, 1e-12);
  EXPECT_EQ(way.row_bytes(), 1024u);
  EXPECT_NEAR(MethodOf(term.way(), "table").client_bytes(), plan.download().client_bytes(), 1e-6);
  EXPECT_EQ(MethodOf(term.way(), "differences").first_bytes(), plan.download().client_bytes());
  // Three quarters of 1 % have 86 bytes, a quarter are keys of 24 with their lengths.
  EXPECT_NEAR(MethodOf(term.way(), "differences").client_bytes(),
              750 * 86 + 250 * 26 + kManifestBytes, 1);
}

// Where the prices meet, and that more changes cost downloads most.
TEST(TermTest, ATermIsCheaperThanDifferencesFromTheCrossoverOn) {
  Workload w = SomeTerm();
  w.records = 2'000'000;
  const Plan plan = WithWays(w, 0);
  const double meets = plan.term().beats_differences_from_queries();
  ASSERT_GT(meets, 1);
  for (const double factor : {0.9, 1.1}) {
    w.queries = static_cast<uint64_t>(meets * factor);
    const Plan there = WithWays(w, 0);
    // The plan takes rows within a tenth of the lowest price.
    const double price = MethodOf(there.term().way(), "term").price();
    EXPECT_NEAR(price / MethodOf(there.term().way(), "differences").price(), 1, 0.25) << factor;
    for (const WaysAt& at : plan.term().by_queries()) {
      EXPECT_EQ(MethodOf(at.way(), "term").price() <= MethodOf(at.way(), "differences").price(),
                at.queries() >= meets * 0.999)
          << at.queries();
    }
  }
  Workload more = w;
  more.changed_percent = 5;
  const auto grows = [&](const char* way) {
    return MethodOf(WithWays(more, 1024).term().way(), way).client_bytes() /
           MethodOf(WithWays(w, 1024).term().way(), way).client_bytes();
  };
  EXPECT_NEAR(grows("differences"), 5, 0.1);
  EXPECT_EQ(grows("table"), 1);
  EXPECT_LT(grows("round"), 5);
}

// The row size of a term is that of the cheapest term, with the lists that every device fetches.
TEST(TermTest, RowsAreThoseOfTheCheapestTerm) {
  const Workload w = SomeTerm();
  const Plan plan = PlanOf(w, 0);
  double lowest = 1e300;
  for (const Alternative& line : plan.by_row_bytes()) {
    if (line.note().empty()) lowest = std::min(lowest, line.price_per_million());
  }
  const Alternative chosen = Summarise(plan);
  EXPECT_LE(chosen.price_per_million(), 1.1 * lowest);
  EXPECT_NEAR(chosen.price_per_million() * plan.queries() / 1e6 * 30,
              plan.term().per_term().price(), 1e-9);
}

TEST(TermTest, BadTermsAreNamed) {
  Workload w = SomeTerm();
  const auto refused = [&](const char* message) {
    EXPECT_THAT(CheckWorkload(w), testing::StatusIs(absl::StatusCode::kInvalidArgument, message));
  };
  w.refreshes = 10'001;
  refused("--refreshes must be at most 10000, got 10001");
  w = SomeTerm();
  w.changed_percent = 0;
  refused("--changed-percent must be above 0 and at most 100, got 0");
  w = SomeTerm();
  w.room_percent = 91;
  refused("--room-percent must be at most 90, got 91");
  w.room_percent = 10;
  w.layout = LayoutKind::kDense;
  refused("--room-percent is for hashed tables");
  w = SomeTerm();
  w.machines = {1, 2, 1};
  refused("a party of several machines keeps no terms");
}

TEST(CalibrateTest, EveryCostIsPositiveAndKept) {
  testing::TestRandom random(3);
  ThreadPool pool(2);
  const UnitCosts costs = Calibrate(random, pool, 0.01);
  EXPECT_FALSE(costs.machine().empty());
  ExpectPositive(costs);
  ExpectPositive(DefaultCosts());
  // Every unit that a family has, and no other one, is measured.
  EXPECT_EQ(costs.engine_unit_ns().size(), DefaultCosts().engine_unit_ns().size());
  for (const auto& [unit, ns] : DefaultCosts().engine_unit_ns()) {
    EXPECT_GT(ns, 0) << unit;
    EXPECT_GT(CostOf(costs, unit).value_or(0), 0) << unit;
  }
}

}  // namespace
}  // namespace shoal::plan
