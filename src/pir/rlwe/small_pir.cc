#include "src/pir/rlwe/small_pir.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::rlwe {
namespace {

absl::StatusOr<wire::PirSetup> SmallSetupOf(const Content& content, const ServerOptions& options) {
  wire::PirSetup setup;
  setup.set_engine(std::string(kSmallPirName));
  setup.set_table_id(ToString(content.table_id));
  setup.set_epoch(content.epoch);
  setup.set_manifest_digest(ToString(content.manifest_digest));
  setup.set_rows(content.rows);
  setup.set_record_bytes(content.record_bytes);
  if (options.shape.has_value() && !options.shape->shape().empty()) {
    setup.set_shape(options.shape->shape());
  } else {
    SHOAL_ASSIGN_OR_RETURN(const SmallShape shape,
                           ChooseSmallShape(content.rows, content.record_bytes));
    setup.set_shape(EncodeSmallShape(shape));
  }
  SHOAL_RETURN_IF_ERROR(ParseSmallShape(setup).status());
  return setup;
}

class SmallPirEngine final : public Engine {
 public:
  absl::string_view name() const override { return kSmallPirName; }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kSingle};
    return kRoles;
  }
  bool keeps_state() const override { return false; }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const override {
    return SmallSetupOf(content, options);
  }
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

  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const override {
    SHOAL_ASSIGN_OR_RETURN(const wire::PirSetup setup, SmallSetupOf(content, options));
    return SmallServer::Create(content, setup, options);
  }
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(std::span<const wire::PirSetup> setups,
                                                       const SessionOptions&) const override {
    SHOAL_CHECK(setups.size() == 1);
    // Also refuses a setup of another engine, or with a hint.
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    return OpenSmallSession(setups[0]);
  }
};

double PositiveCost(double ns) { return std::max(1e-6, ns); }

}  // namespace

const Engine& SmallPir() {
  static const SmallPirEngine engine;
  return engine;
}

std::vector<Amount> MeasureSmallUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool) {
  // An encoded table of about that size, in the usual proportion of terms and outputs. No cost
  // depends on a value.
  const uint64_t rows = std::clamp<uint64_t>(bytes / (kPrimes * kDegree * 4), 256, 1 << 17);
  const Content content = {.table_id = {1},
                           .epoch = 1,
                           .manifest_digest = {2},
                           .rows = rows,
                           .record_bytes = kDegree,
                           .copy = [](uint64_t, MutableBytes out) { std::ranges::fill(out, 1); }};
  const wire::PirSetup setup = *SmallSetupOf(content, {});
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
  const double pass = PositiveCost(one.first_stage * 1e9 / table);
  const double more =
      (all.first_stage - one.first_stage) * 1e9 / table / (SmallShape::kTogether - 1);
  return {
      {"small_encode", PositiveCost((setup_ns - pass * table) / static_cast<double>(rows))},
      {"small_pass_byte", pass},
      {"small_query_byte", PositiveCost(more)},
      {"small_unpack", PositiveCost(one.unpack * 1e9 / static_cast<double>(shape.automorphisms()))},
      {"small_fold", PositiveCost(one.fold * 1e9 /
                                  std::max<double>(1, static_cast<double>(shape.outputs() - 1)))},
      {"small_element",
       PositiveCost(ask_ns / static_cast<double>(asked.size() * shape.elements()))},
      {"small_recover", PositiveCost(recover_ns)},
  };
}

}  // namespace shoal::pir::rlwe
