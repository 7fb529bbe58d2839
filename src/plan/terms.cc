#include "src/plan/terms.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "src/base/status_macros.h"
#include "src/pir/registry/registry.h"
#include "src/plan/calibrate.h"
#include "src/table/row.h"

namespace shoal::plan {
namespace {

// A run of changes in an engine's delta has a header, and each byte nine bits (src/pir/lwe).
constexpr double kDeltaRunBytes = 20, kDeltaByteBytes = 9.0 / 8;

// One way's costs, of one device and epoch.
Method MakeMethod(const char* name, const Workload& w, const Layout* layout, double client_bytes,
                  double server_seconds, double all_bytes) {
  Method way;
  way.set_way(name);
  if (layout != nullptr) way.set_row_bytes(layout->row_bytes());
  way.set_client_bytes(client_bytes);
  way.set_server_seconds(server_seconds);
  way.set_price(server_seconds / 3600 * w.price_core_hour + all_bytes / 1e9 * w.price_gb);
  return way;
}

Method Refused(const char* name, absl::string_view why) {
  Method way;
  way.set_way(name);
  way.set_refused(std::string(why));
  return way;
}

// Computes the ways for one list of a device and any number of queries, each with the rows that
// cost it least.
class Methods {
 public:
  Methods(const Workload& w, uint32_t row_bytes, const noise::Choice& noise, const UnitCosts& unit,
          const EngineOptions& options)
      : w_(w),
        plain_(w.WithoutTerm()),
        noise_(noise),
        unit_(unit),
        options_(options),
        keys_(noise.parameters.phi),
        term_layouts_(LayoutsOf(w, row_bytes)),
        plain_layouts_(LayoutsOf(plain_, row_bytes)) {
    const bool dense = w.layout == LayoutKind::kDense;
    const double records = static_cast<double>(w.records), changed = w.changed_percent / 100;
    const double gone = dense ? 0 : changed * kGoneOfChanges * records;
    table_bytes_ = records * static_cast<double>(RecordBytes(w)) + kManifestBytes;
    // A dense record has no key, and needs its number.
    changed_record_bytes_ = static_cast<double>(RecordBytes(w)) + (dense ? sizeof(uint32_t) : 0);
    gone_record_bytes_ = dense ? 0 : static_cast<double>(table::HashedRecordBytes(w.key_bytes, 0));
    difference_bytes_ = (changed * records - gone) * changed_record_bytes_ +
                        gone * gone_record_bytes_ + kManifestBytes;
  }

  void Describe(Term& term) const {
    term.set_table_bytes(table_bytes_);
    term.set_difference_bytes(difference_bytes_);
    term.set_changed_record_bytes(changed_record_bytes_);
    term.set_gone_record_bytes(gone_record_bytes_);
  }
  double Devices(double queries) const { return queries / keys_; }

  Method TermAt(double queries) const {
    return Cheapest("term", term_layouts_, [&](const Layout& layout, const EpochChange&) {
      return TermIn(layout, queries);
    });
  }
  Method TermIn(const Layout& layout, double queries) const {
    Workload w = w_;
    w.queries = static_cast<uint64_t>(queries);
    const auto plan = Predict(w, layout, noise_, unit_);
    if (!plan.ok()) return Refused("term", plan.status().message());
    const Term& term = plan->term();
    const double each = Devices(queries) * w.epochs();
    return MakeMethod("term", w_, &layout,
                      (RoundBytes(*plan) + term.placement_bytes()) / w.epochs() +
                          layout.list_bytes() + w.refreshes * term.refresh_client_bytes() / each,
                      term.per_term().core_hours() * 3600 / each,
                      term.per_term().gigabytes() * 1e9 / each);
  }

  Method RoundAt(double queries) const {
    Workload w = plain_;
    w.queries = static_cast<uint64_t>(queries);
    return Cheapest("round", plain_layouts_, [&](const Layout& layout, const EpochChange& change) {
      const auto plan = Predict(w, layout, noise_, unit_);
      if (!plan.ok()) return Refused("round", plan.status().message());
      const double metadata = Metadata(change), devices = Devices(queries);
      return MakeMethod("round", w_, &layout, RoundBytes(*plan) + metadata,
                        plan->per_round().core_hours() * 3600 / devices + LinkSeconds(metadata),
                        plan->per_round().gigabytes() * 1e9 / devices + metadata);
    });
  }

  Method Differences() const {
    Method way = Fetched("differences", difference_bytes_);
    way.set_first_bytes(table_bytes_);
    return way;
  }
  Method Table() const { return Fetched("table", table_bytes_); }

  // A single-server engine. The least that a client fetches, and that the server computes, to
  // follow an epoch: each changed byte of values and of rows' signatures once, where that is less
  // than the whole.
  Method EngineAt(const char* name, double queries) const {
    const auto engine = pir::FindEngine(name);
    if (!engine.ok()) return Refused(name, engine.status().message());
    Workload w = plain_;
    w.queries = static_cast<uint64_t>(queries);
    return Cheapest(name, plain_layouts_, [&](const Layout& layout, const EpochChange& change) {
      const EngineCosts costs = PredictEngine(w, **engine, layout, unit_, options_);
      if (!costs.refused().empty()) return Refused(name, costs.refused());
      const double changed = change.records * w.value_bytes +
                             change.rows * (layout.answer_bytes() - layout.row_bytes());
      const double hint = costs.hint_bytes();
      const double delta = std::min(
          hint, kDeltaByteBytes * changed + kDeltaRunBytes * (change.records + change.rows));
      double setup = costs.setup_seconds();
      if (const auto byte_ns = CostOf(unit_, "pir_public_byte"); hint > 0 && byte_ns.ok()) {
        setup = std::min(setup, 1e-9 * changed * *byte_ns);
      }
      const double fetched = delta + Metadata(change);
      const double bytes = keys_ * (costs.query_bytes() + costs.answer_bytes()) + fetched;
      Method way = MakeMethod(
          name, w_, &layout, bytes,
          keys_ * costs.answer_seconds() + setup / Devices(queries) + LinkSeconds(fetched), bytes);
      way.set_first_bytes(hint);
      return way;
    });
  }

 private:
  using Layouts = std::vector<std::pair<Layout, EpochChange>>;
  static Layouts LayoutsOf(const Workload& w, uint32_t row_bytes) {
    Layouts layouts;
    for (const uint32_t size : row_bytes != 0 ? std::vector{row_bytes} : RowSizes(w)) {
      if (auto layout = LayOut(w, size); layout.ok()) {
        const EpochChange change = ChangeOf(w, *layout);
        layouts.emplace_back(*std::move(layout), change);
      }
    }
    return layouts;
  }
  // The first refusal if all are refused.
  template <typename WayIn>
  static Method Cheapest(const char* name, const Layouts& layouts, const WayIn& way_in) {
    Method best = Refused(name, "no row size will do");
    bool any = false;
    for (const auto& [layout, change] : layouts) {
      Method way = way_in(layout, change);
      const bool refused = !way.refused().empty();
      if (any ? !refused && way.price() < best.price() : !refused || &layout == &layouts[0].first) {
        best = std::move(way);
      }
      any |= !refused;
    }
    return best;
  }
  // Of a client, in its round.
  double RoundBytes(const Plan& plan) const {
    const Client& client = plan.client();
    return keys_ * (client.onion_bytes() + client.query_bytes() + client.answer_bytes());
  }
  // The placement stays for as long as a term, also where there are rounds for each epoch.
  double Metadata(const EpochChange& change) const {
    return change.list_bytes + PlacementBytes(w_) / w_.epochs();
  }
  double LinkSeconds(double bytes) const { return 1e-9 * bytes * unit_.link_byte_ns(); }
  Method Fetched(const char* name, double bytes) const {
    return MakeMethod(name, w_, nullptr, bytes, LinkSeconds(bytes), bytes);
  }

  const Workload w_, plain_;
  const noise::Choice noise_;
  const UnitCosts unit_;
  const EngineOptions options_;
  const double keys_;  // of a device
  const Layouts term_layouts_, plain_layouts_;
  double table_bytes_ = 0, difference_bytes_ = 0, changed_record_bytes_ = 0, gone_record_bytes_ = 0;
};

}  // namespace

absl::Status CompareWays(const Workload& w, uint32_t row_bytes, const noise::Choice& noise,
                         const UnitCosts& unit, const EngineOptions& options, Plan& plan) {
  SHOAL_RETURN_IF_ERROR(CheckEngineOptions(options));
  Term& term = *plan.mutable_term();
  const Methods ways(w, row_bytes, noise, unit, options);
  ways.Describe(term);
  term.set_displaced_keys(DisplacedKeys(w, plan.table()));
  SHOAL_ASSIGN_OR_RETURN(const Layout packed, LayOut(w.WithoutTerm(), plan.table().row_bytes()));
  term.set_rows_without_room(packed.rows());

  const auto add = [&](double queries, const Method& in_terms, auto& into) {
    *into.add_way() = in_terms;
    *into.add_way() = ways.RoundAt(queries);
    *into.add_way() = ways.Differences();
    *into.add_way() = ways.Table();
    for (const char* engine : {"simplepir", "hintless"}) {
      *into.add_way() = ways.EngineAt(engine, queries);
    }
  };
  term.clear_way();
  add(plan.queries(), ways.TermIn(plan.table(), plan.queries()), term);
  const double differences = ways.Differences().price();
  term.set_beats_differences_from_queries(
      FirstThatHolds([&](double queries) -> std::optional<bool> {
        if (ways.Devices(queries) < 1) return std::nullopt;
        const Method way = ways.TermAt(queries);
        return way.refused().empty() && way.price() <= differences;
      }));
  term.clear_by_queries();
  for (const double share : QueryShares()) {
    const double queries = std::round(share * static_cast<double>(w.records));
    if (ways.Devices(queries) < 1) continue;
    const Method in_terms = ways.TermAt(queries);
    if (!in_terms.refused().empty()) continue;
    WaysAt& at = *term.add_by_queries();
    at.set_queries(queries);
    add(queries, in_terms, at);
  }
  return absl::OkStatus();
}

}  // namespace shoal::plan
