#include "src/plan/engines.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/pir/registry/registry.h"
#include "src/plan/calibrate.h"
#include "src/round/query_bytes.h"

namespace shoal::plan {
namespace {

// Queries that share a pass at a busy server.
constexpr double kPass = pir::kMaxQueriesPerRequest;

// Nanoseconds of some work.
absl::StatusOr<double> NsOf(std::span<const pir::Amount> work, const UnitCosts& unit) {
  double ns = 0;
  for (const pir::Amount& amount : work) {
    SHOAL_ASSIGN_OR_RETURN(const double cost, CostOf(unit, amount.unit));
    ns += amount.amount * cost;
  }
  return ns;
}

// In seconds.
struct Times {
  double setup = 0, query = 0, answer = 0, alone = 0, recover = 0, prepare = 0;
};
absl::StatusOr<Times> TimesOf(const pir::Engine& engine, const wire::PirSetup& shape,
                              const UnitCosts& unit) {
  const pir::Work full = engine.WorkOf(shape, kPass), alone = engine.WorkOf(shape, 1);
  Times times;
  for (const auto& [seconds, work] :
       {std::pair(&times.setup, &full.setup), std::pair(&times.query, &full.query),
        std::pair(&times.answer, &full.answer), std::pair(&times.alone, &alone.answer),
        std::pair(&times.recover, &full.recover), std::pair(&times.prepare, &full.prepare)}) {
    SHOAL_ASSIGN_OR_RETURN(const double ns, NsOf(*work, unit));
    *seconds = 1e-9 * ns;
  }
  return times;
}

double Price(const Workload& w, double server_seconds, double bytes) {
  return server_seconds / 3600 * w.price_core_hour + bytes / 1e9 * w.price_gb;
}

double ServerSeconds(const Plan& plan) { return plan.per_round().core_hours() * 3600; }

// Of it, what is done once the queries are there.
double OnlineSeconds(const Plan& plan) {
  double seconds = 0, bytes = 0;
  for (const Party& party : plan.party()) seconds += party.online_cpu_s() + party.answers_cpu_s();
  // Both ends of every hop, one end of the clients'.
  for (const Hop& hop : plan.hop()) {
    bytes += (hop.from() == 0 ? 1 : 2) * (hop.query_bytes() + hop.answer_bytes());
  }
  return seconds + 1e-9 * bytes * plan.costs().link_byte_ns();
}

// The chain as an engine.
EngineCosts ChainAsEngine(const Workload& w, const EngineOptions& options, const Plan& plan) {
  EngineCosts chain;
  chain.set_engine("chain");
  chain.set_row_bytes(plan.table().row_bytes());
  chain.set_rows(plan.table().rows());
  double noise = 0;
  for (const Party& party : plan.party()) noise += party.noise_cpu_s();
  chain.set_setup_seconds(noise);
  chain.set_query_bytes(static_cast<double>(round::QueryBytes(plan.parties())));
  chain.set_answer_bytes(plan.client().answer_bytes());
  // A client makes the onions for party 2 and seals them for party 1, which costs what opening
  // does. It computes the seeds once more for its tallies, and again to take the masks off.
  const double seeds_ns = SealNs(plan.costs(), plan.parties() - 1) + plan.costs().slot_ns();
  chain.set_query_seconds(
      1e-9 * (2 * seeds_ns + plan.client().onion_bytes() * plan.costs().seal_byte_ns()));
  // As the backend's answer, once for every party, and the mask once more: a client takes the masks
  // off, and then masks and tags what it got as the parties have.
  const double answer = plan.table().answer_bytes();
  const double mask_ns = plan.costs().answer().few_ns() +
                         answer * plan.costs().answer_byte().few_ns() +
                         plan.costs().mask().few_ns() + answer * plan.costs().mask_byte().few_ns();
  chain.set_recover_seconds(1e-9 * (seeds_ns + plan.parties() * mask_ns));
  chain.set_answer_seconds((ServerSeconds(plan) - noise) / plan.queries());
  chain.set_alone_seconds(ServerSeconds(plan));
  const FirstShare first = ShareOfFirst(plan.table().first_bytes(), plan.costs(), options);
  chain.set_first_bytes(plan.table().first_bytes());
  chain.set_server_seconds_per_query(ServerSeconds(plan) / plan.queries() + first.seconds);
  chain.set_price_per_million_queries(plan.price_per_million_queries() +
                                      1e6 * Price(w, first.seconds, first.bytes));
  return chain;
}

// The engine's costs with the rows that are best for it, which are `chosen`: none, if it is refused
// with all.
EngineCosts ChooseRowsOf(const pir::Engine& engine, const Workload& w,
                         std::span<const Layout> layouts, const UnitCosts& unit,
                         const EngineOptions& options, std::optional<Layout>& chosen) {
  const auto cost = [&](const EngineCosts& of) {
    return options.aim == Aim::kTime ? of.server_seconds_per_query()
                                     : of.price_per_million_queries();
  };
  EngineCosts best;
  for (const Layout& layout : layouts) {
    EngineCosts costs = PredictEngine(w, engine, layout, unit, options);
    if (!costs.refused().empty()) {
      // The narrowest rows say best what would have to change.
      if (best.engine().empty()) best = std::move(costs);
      continue;
    }
    if (!chosen || cost(costs) < cost(best)) {
      best = std::move(costs);
      chosen = layout;
    }
  }
  return best;
}

}  // namespace

absl::StatusOr<std::vector<Layout>> LayoutsWithFirstBytes(const Workload& w, uint32_t row_bytes) {
  std::vector<Layout> layouts;
  for (const uint32_t size : row_bytes != 0 ? std::vector{row_bytes} : RowSizes(w)) {
    SHOAL_ASSIGN_OR_RETURN(Layout layout, LayOut(w, size));
    layout.set_first_bytes(FirstBytes(w, layout));
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

FirstShare ShareOfFirst(double first_bytes, const UnitCosts& unit, const EngineOptions& options) {
  const double bytes = first_bytes / options.lookups_per_hint;
  return {1e-9 * bytes * unit.link_byte_ns(), bytes};
}

double FirstThatHolds(const std::function<std::optional<bool>(double)>& chain_is_better,
                      double from) {
  constexpr double kMost = 4e9;
  double low = from, high = from;
  while (!chain_is_better(high).value_or(false)) {
    if (high >= kMost) return 0;
    low = high;
    high = std::min(kMost, 2 * high);
  }
  while (high > low + 1 && high > low * 1.001) {
    const double middle = std::sqrt(low * high);
    (chain_is_better(middle).value_or(false) ? high : low) = middle;
  }
  return std::ceil(high);
}

std::vector<double> QueryShares() {
  std::vector<double> shares;
  for (double share = 1e-3; share < 2e3; share *= std::sqrt(10.0)) shares.push_back(share);
  return shares;
}

absl::Status CheckEngineOptions(const EngineOptions& options) {
  if (options.max_hint_bytes < (1 << 20) || options.max_hint_bytes > (uint64_t{1} << 40)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--max-hint-mib must be in [1, 1048576], got %d", options.max_hint_bytes >> 20));
  }
  if (!(options.lookups_per_hint >= 1 && options.lookups_per_hint <= 1e9)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--lookups-per-hint must be in [1, 1e9], got %g", options.lookups_per_hint));
  }
  return absl::OkStatus();
}

EngineCosts PredictEngine(const Workload& w, const pir::Engine& engine, const Layout& layout,
                          const UnitCosts& unit, const EngineOptions& options) {
  EngineCosts costs;
  costs.set_engine(std::string(engine.name()));
  costs.set_row_bytes(layout.row_bytes());
  costs.set_rows(layout.rows());
  pir::Content content;
  content.rows = static_cast<uint64_t>(layout.rows());
  content.record_bytes = layout.answer_bytes();
  pir::ServerOptions server;
  server.max_hint_bytes = options.max_hint_bytes;
  const auto setup = engine.ShapeOf(content, server);
  const auto sizes = setup.ok() ? engine.SizesOfShape(*setup) : setup.status();
  const auto times = sizes.ok() ? TimesOf(engine, *setup, unit) : sizes.status();
  if (!times.ok()) {
    costs.set_refused(std::string(times.status().message()));
    return costs;
  }
  const auto hint = static_cast<double>(sizes->hint_bytes);
  const auto prepare = static_cast<double>(sizes->prepare_bytes);
  const auto bytes = static_cast<double>(sizes->query_bytes + sizes->answer_bytes);
  costs.set_hint_bytes(hint);
  costs.set_prepare_bytes(prepare);
  costs.set_hint_memory_bytes(static_cast<double>(sizes->hint_memory_bytes));
  costs.set_query_bytes(static_cast<double>(sizes->query_bytes));
  costs.set_answer_bytes(static_cast<double>(sizes->answer_bytes));
  costs.set_server_bytes(static_cast<double>(sizes->server_bytes));
  costs.set_setup_seconds(times->setup);
  costs.set_prepare_seconds(times->prepare);
  costs.set_query_seconds(times->query);
  const double links = 1e-9 * bytes * unit.link_byte_ns();
  costs.set_answer_seconds(times->answer + links);
  costs.set_alone_seconds(times->alone + links);
  costs.set_recover_seconds(times->recover);
  const double a_day = static_cast<double>(w.queries) * w.rounds_per_day;
  // A session that a server prepares for a client is shared out as a hint is.
  costs.set_first_bytes(layout.first_bytes() + hint + prepare);
  const FirstShare first = ShareOfFirst(costs.first_bytes(), unit, options);
  costs.set_server_seconds_per_query(costs.answer_seconds() + costs.setup_seconds() / a_day +
                                     first.seconds +
                                     costs.prepare_seconds() / options.lookups_per_hint);
  costs.set_price_per_million_queries(
      1e6 * Price(w, costs.server_seconds_per_query(), bytes + first.bytes));
  return costs;
}

absl::Status CompareEngines(const Workload& w, uint32_t row_bytes, const noise::Choice& noise,
                            const UnitCosts& unit, const EngineOptions& options, Plan& plan,
                            std::span<const pir::Engine* const> engines) {
  SHOAL_RETURN_IF_ERROR(CheckEngineOptions(options));
  plan.set_lookups_per_hint(options.lookups_per_hint);
  plan.clear_engine();
  plan.mutable_table()->set_first_bytes(FirstBytes(w, plan.table()));
  *plan.add_engine() = ChainAsEngine(w, options, plan);
  const FirstShare first = ShareOfFirst(plan.table().first_bytes(), unit, options);
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Layout> layouts, LayoutsWithFirstBytes(w, row_bytes));
  const auto chain_of = [&](double queries) -> std::optional<Plan> {
    Workload other = w;
    other.queries = static_cast<uint64_t>(queries);
    auto moved = Predict(other, plan.table(), noise, unit);
    if (!moved.ok()) return std::nullopt;
    return *std::move(moved);
  };
  for (const pir::Engine* engine : engines) {
    std::optional<Layout> layout;
    EngineCosts best = ChooseRowsOf(*engine, w, layouts, unit, options, layout);
    if (layout) {
      const auto first_that = [&](const auto& better) {
        return FirstThatHolds([&](double queries) -> std::optional<bool> {
          const std::optional<Plan> chain = chain_of(queries);
          if (!chain) return std::nullopt;
          Workload other = w;
          other.queries = static_cast<uint64_t>(queries);
          return better(*chain, PredictEngine(other, *engine, *layout, unit, options));
        });
      };
      const auto records = static_cast<double>(w.records);
      const double cpu = first_that([&](const Plan& chain, const EngineCosts& other) {
        return ServerSeconds(chain) / chain.queries() + first.seconds <=
               other.server_seconds_per_query();
      });
      const double online = first_that([](const Plan& chain, const EngineCosts& other) {
        return OnlineSeconds(chain) / chain.queries() <= other.answer_seconds();
      });
      const double first_price = 1e6 * Price(w, first.seconds, first.bytes);
      const double price = first_that([&](const Plan& chain, const EngineCosts& other) {
        return chain.price_per_million_queries() + first_price <= other.price_per_million_queries();
      });
      best.set_chain_beats_cpu_from_queries(cpu);
      best.set_chain_beats_cpu_from_queries_per_record(cpu / records);
      best.set_chain_online_beats_cpu_from_queries(online);
      best.set_chain_online_beats_cpu_from_queries_per_record(online / records);
      best.set_chain_beats_price_from_queries(price);
      best.set_chain_beats_price_from_queries_per_record(price / records);
    }
    *plan.add_engine() = std::move(best);
  }
  plan.clear_chain_by_queries();
  for (const double share : QueryShares()) {
    const double queries = std::round(share * static_cast<double>(w.records));
    const auto chain = queries >= 1 ? chain_of(queries) : std::nullopt;
    if (!chain) continue;
    ChainPoint& point = *plan.add_chain_by_queries();
    point.set_queries(queries);
    point.set_queries_per_record(queries / static_cast<double>(w.records));
    point.set_server_seconds_per_query(ServerSeconds(*chain) / queries);
    point.set_online_seconds_per_query(OnlineSeconds(*chain) / queries);
    point.set_price_per_million_queries(chain->price_per_million_queries());
  }
  return absl::OkStatus();
}

}  // namespace shoal::plan
