#include "src/pir/rlwe/small_pir.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/pir/kit/measure.h"
#include "src/pir/kit/shaped_engine.h"
#include "src/pir/kit/stateless_session.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::rlwe {
namespace {

class SmallPirEngine final : public ShapedEngine {
 public:
  SmallPirEngine() : ShapedEngine(kSmallPirName, Servers::kOne, /*keeps_state=*/false) {}

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const SmallShape shape, ParseSmallShape(setup));
    Sizes sizes;
    sizes.query_bytes = shape.query_bytes();
    sizes.answer_bytes = shape.answer_bytes();
    sizes.server_bytes = shape.server_bytes();
    return sizes;
  }
  Work WorkOf(const wire::PirSetup& setup, double together) const override {
    const absl::StatusOr<SmallShape> shape = ParseSmallShape(setup);
    SHOAL_CHECK(shape.ok());
    // Of what shares a pass, no more than so many.
    const double shared = std::min<double>(together, SmallShape::kTogether);
    const auto bytes = static_cast<double>(shape->table_bytes());
    const double slices = shape->slices;
    const double rings = slices * shape->terms * static_cast<double>(shape->outputs());
    Work work = {.setup = {{"small_encode", rings}, {"small_pass_byte", bytes}},
                 .query = {{"small_element", static_cast<double>(shape->elements())}},
                 .answer = {{"small_pass_byte", bytes / shared}},
                 .recover = {{"small_recover", slices}}};
    // A small table is not unpacked or folded at all.
    for (const auto& [unit, amount] :
         {Amount{"small_query_byte", bytes * (shared - 1) / shared},
          Amount{"small_unpack", static_cast<double>(shape->automorphisms())},
          Amount{"small_fold", slices * static_cast<double>(shape->outputs() - 1)}}) {
      if (amount > 0) work.answer.push_back({unit, amount});
    }
    return work;
  }

 protected:
  absl::StatusOr<std::string> ChooseShape(const wire::PirSetup& table) const override {
    SHOAL_ASSIGN_OR_RETURN(const SmallShape shape,
                           ChooseSmallShape(table.rows(), table.record_bytes()));
    return EncodeSmallShape(shape);
  }
  absl::StatusOr<std::unique_ptr<Server>> MakeServer(wire::PirSetup setup, const Content& content,
                                                     const ServerOptions& options) const override {
    return SmallServer::Create(content, setup, options);
  }
  absl::StatusOr<std::unique_ptr<Session>> MakeSession(const wire::PirSetup& setup,
                                                       const SessionOptions&) const override {
    return OpenStatelessSession<SmallClient>(setup);
  }
};

}  // namespace

const Engine& SmallPir() {
  static const SmallPirEngine engine;
  return engine;
}

std::vector<Amount> MeasureSmallUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool) {
  // An encoded table of about that size, in the usual proportion of terms and outputs. No cost
  // depends on a value.
  const uint64_t rows = std::clamp<uint64_t>(bytes / (kPrimes * kDegree * 4), 256, 1 << 17);
  const Content content = ContentToMeasure(rows, kDegree);
  const wire::PirSetup setup = *SmallPir().ShapeOf(content, {});
  const SmallShape shape = *ParseSmallShape(setup);
  std::unique_ptr<SmallServer> server;
  const Stopwatch set_up(Stopwatch::kProcess);
  server = *SmallServer::Create(content, setup, {.pool = &pool});
  const auto setup_ns = static_cast<double>(set_up.Nanoseconds());
  const auto client = *SmallClient::Create(setup);

  std::vector<SmallAsked> asked(SmallShape::kTogether);
  const double ask_ns = TypicalNanoseconds([&] {
    for (size_t i = 0; i < asked.size(); ++i) asked[i] = client->Ask(i % rows, random);
  });
  std::vector<BytesView> queries;
  for (const SmallAsked& each : asked) queries.push_back(each.query);
  const auto measure = [&](size_t count) {
    SmallServer::Phases best = *server->Measure(std::span(queries).first(count));
    for (int i = 0; i < 3; ++i) {
      const SmallServer::Phases again = *server->Measure(std::span(queries).first(count));
      best.unpack = std::min(best.unpack, again.unpack);
      best.first_stage = std::min(best.first_stage, again.first_stage);
      best.fold = std::min(best.fold, again.fold);
    }
    return best;
  };
  const SmallServer::Phases one = measure(1), all = measure(SmallShape::kTogether);
  const RequestView view = {.kind = 0, .count = 1, .body = queries[0]};
  const Bytes answer = *server->Answer(Role::kSingle, {&view, 1})[0];
  const double recover_ns =
      TypicalNanoseconds([&] { SHOAL_CHECK(client->Recover(asked[0], answer).ok()); });

  const auto table = static_cast<double>(shape.table_bytes());
  const double pass = CostOf(one.first_stage * 1e9 / table);
  const double more =
      (all.first_stage - one.first_stage) * 1e9 / table / (SmallShape::kTogether - 1);
  return {
      {"small_encode", CostOf((setup_ns - pass * table) / static_cast<double>(rows))},
      {"small_pass_byte", pass},
      {"small_query_byte", CostOf(more)},
      {"small_unpack", CostOf(one.unpack * 1e9 / static_cast<double>(shape.automorphisms()))},
      {"small_fold",
       CostOf(one.fold * 1e9 / std::max<double>(1, static_cast<double>(shape.outputs() - 1)))},
      {"small_element", CostOf(ask_ns / static_cast<double>(asked.size() * shape.elements()))},
      {"small_recover", CostOf(recover_ns)},
  };
}

}  // namespace shoal::pir::rlwe
