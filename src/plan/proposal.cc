#include "src/plan/proposal.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/pir/registry/registry.h"

namespace shoal::plan {
namespace {

// What a query costs, with its share of what a client fetches first.
struct QueryCost {
  double seconds, price;  // of one query; at the servers
  double Of(Aim aim) const { return aim == Aim::kTime ? seconds : price; }
};
using CostAtQueries = std::function<std::optional<QueryCost>(double queries, Aim aim)>;

// A way, and what it costs in rounds of other sizes, at the rows that are best there.
struct Way {
  Candidate candidate;
  CostAtQueries at;
};

double PriceOf(const Workload& w, double seconds, double bytes) {
  return seconds / 3600 * w.price_core_hour + bytes / 1e9 * w.price_gb;
}

class Ways {
 public:
  Ways(const Workload& w, uint32_t row_bytes, const noise::Choice& noise, Trust trust,
       const EngineOptions& options, const Plan& plan)
      : w_(w),
        row_bytes_(row_bytes),
        noise_(noise),
        trust_(trust),
        options_(options),
        plan_(plan) {}

  Way Rows() const {
    const EngineCosts& chain = plan_.engine(0);
    const double first_bytes = plan_.table().first_bytes();
    Way way;
    Fill("rows", plan_.table().row_bytes(), first_bytes, plan_.client(),
         chain.server_seconds_per_query(), chain.price_per_million_queries(), way.candidate);
    FillPrivacy(plan_.noise(), way.candidate);
    RefuseUnless(trust_ != Trust::kOne, "rests on one honest party of a chain", "chain",
                 way.candidate);
    way.at = [this, first_bytes](double queries, Aim aim) {
      return RowsAt(queries, aim, first_bytes);
    };
    return way;
  }

  Way TwoTiersWay(const TwoTiers& tiers, const absl::StatusOr<TwoTiersChoice>& choice) const {
    Way way;
    way.candidate.set_way("two tiers");
    way.candidate.set_refused(tiers.refused());
    if (!tiers.refused().empty()) return way;
    const double first_bytes = tiers.table().first_bytes();
    const QueryCost cost = WithFirst(tiers.server_seconds_per_query(),
                                     tiers.price_per_million_queries() / 1e6, first_bytes);
    Fill("two tiers", tiers.table().row_bytes(), first_bytes, tiers.client(), cost.seconds,
         1e6 * cost.price, way.candidate);
    FillPrivacy(tiers.noise(), way.candidate);
    RefuseUnless(trust_ != Trust::kOne, "rests on two parties that do not collude", "two",
                 way.candidate);
    way.at = [this, &choice, first_bytes](double queries, Aim aim) -> std::optional<QueryCost> {
      const auto best = choice->Best(queries, aim);
      if (!best.ok()) return std::nullopt;
      return WithFirst(best->server_seconds_per_query(), best->price_per_million_queries() / 1e6,
                       first_bytes);
    };
    return way;
  }

  Way Engine(const EngineCosts& costs) const {
    Way way;
    way.candidate.set_way(costs.engine());
    way.candidate.set_refused(costs.refused());
    if (!costs.refused().empty()) return way;
    Client client;
    client.set_query_bytes(costs.query_bytes());
    client.set_answer_bytes(costs.answer_bytes());
    Fill(costs.engine(), costs.row_bytes(), costs.first_bytes(), client,
         costs.server_seconds_per_query(), costs.price_per_million_queries(), way.candidate);
    const auto engine = pir::FindEngine(costs.engine());
    const bool two_servers = engine.ok() && *engine != nullptr && (*engine)->roles().size() == 2;
    // Of a chain of two, one is honest exactly if the two do not collude.
    const bool two_do = trust_ == Trust::kTwo || (trust_ == Trust::kChain && w_.parties == 2);
    RefuseUnless(!two_servers || two_do, "rests on two parties that do not collude", "two",
                 way.candidate);
    // A set-up is made for a day's queries.
    const double a_day = plan_.queries() * w_.rounds_per_day;
    const double setup = costs.setup_seconds() / a_day;
    way.at = [this, setup, seconds = costs.server_seconds_per_query(),
              price = costs.price_per_million_queries() / 1e6](double queries, Aim) {
      const double more = setup * (plan_.queries() / queries - 1);
      return std::optional(QueryCost{seconds + more, price + PriceOf(w_, more, 0)});
    };
    return way;
  }

  Way DownloadWay() const {
    const double bytes = plan_.download().client_bytes();
    const FirstShare share = ShareOfFirst(bytes, plan_.costs(), options_);
    const double price = PriceOf(w_, share.seconds, share.bytes);
    Way way;
    Fill("download", 0, bytes, Client(), share.seconds, 1e6 * price, way.candidate);
    way.at = [cost = QueryCost{share.seconds, price}](double, Aim) { return std::optional(cost); };
    return way;
  }

 private:
  static void Fill(const std::string& name, uint32_t row_bytes, double first_bytes,
                   const Client& client, double seconds, double price_per_million,
                   Candidate& candidate) {
    candidate.set_way(name);
    candidate.set_row_bytes(row_bytes);
    candidate.set_first_bytes(first_bytes);
    candidate.set_up_bytes(client.onion_bytes() + client.query_bytes());
    candidate.set_down_bytes(client.answer_bytes());
    candidate.set_server_seconds_per_query(seconds);
    candidate.set_price_per_million_queries(price_per_million);
  }
  static void FillPrivacy(const Noise& noise, Candidate& candidate) {
    candidate.set_epsilon(noise.epsilon());
    candidate.set_delta(noise.delta());
  }
  static void RefuseUnless(bool enough, const char* rests, const char* trust,
                           Candidate& candidate) {
    if (!enough) candidate.set_refused(absl::StrCat(rests, ": with --trust ", trust));
  }
  QueryCost WithFirst(double seconds, double price, double first_bytes) const {
    const FirstShare share = ShareOfFirst(first_bytes, plan_.costs(), options_);
    return {seconds + share.seconds, price + PriceOf(w_, share.seconds, share.bytes)};
  }
  std::optional<QueryCost> RowsAt(double queries, Aim aim, double first_bytes) const {
    Workload w = w_;
    w.queries = static_cast<uint64_t>(queries);
    const auto plan = ChooseRows(w, row_bytes_, noise_, plan_.costs(), aim);
    if (!plan.ok()) return std::nullopt;
    return WithFirst(plan->per_round().core_hours() * 3600 / plan->queries(),
                     plan->price_per_million_queries() / 1e6, first_bytes);
  }

  const Workload& w_;
  const uint32_t row_bytes_;
  const noise::Choice& noise_;
  const Trust trust_;
  const EngineOptions& options_;
  const Plan& plan_;
};

// Two tiers' costs, each number of queries once.
class Remembered {
 public:
  explicit Remembered(const CostAtQueries& at) : at_(at) {}
  std::optional<QueryCost> operator()(double queries, Aim aim) {
    const auto [found, is_new] = known_.try_emplace({queries, aim});
    if (is_new) found->second = at_(queries, aim);
    return found->second;
  }

 private:
  const CostAtQueries& at_;
  std::map<std::pair<double, Aim>, std::optional<QueryCost>> known_;
};

void FillCrossovers(Remembered& two_tiers, Way& other) {
  const auto range = [&](Aim aim) {
    return WhereHolds([&](double queries) -> std::optional<bool> {
      const double whole = std::floor(queries);
      const auto ours = two_tiers(whole, aim), theirs = other.at(whole, aim);
      if (!ours || !theirs) return std::nullopt;
      return ours->Of(aim) <= theirs->Of(aim);
    });
  };
  const Range cpu = range(Aim::kTime), price = range(Aim::kPrice);
  other.candidate.set_two_tiers_beat_cpu_from_queries(cpu.from);
  other.candidate.set_two_tiers_beat_cpu_until_queries(cpu.until);
  other.candidate.set_two_tiers_beat_price_from_queries(price.from);
  other.candidate.set_two_tiers_beat_price_until_queries(price.until);
}

double CostOfCandidate(const Candidate& candidate, Aim aim) {
  return aim == Aim::kTime ? candidate.server_seconds_per_query()
                           : candidate.price_per_million_queries();
}
std::string CostText(const Candidate& candidate, Aim aim) {
  return aim == Aim::kTime
             ? absl::StrFormat("%.3g microseconds of the servers' processors a query",
                               1e6 * candidate.server_seconds_per_query())
             : absl::StrFormat("%.3g a million queries", candidate.price_per_million_queries());
}
std::string TrustText(Trust trust, uint32_t parties) {
  switch (trust) {
    case Trust::kOne:
      return "a client that trusts no server";
    case Trust::kTwo:
      return "a client that trusts two parties not to collude";
    case Trust::kChain:
      return absl::StrCat("a client that trusts one of ", parties, " parties");
  }
  return "";
}

// One sentence.
std::string Why(const Candidate* best, const Candidate* next, Trust trust, Aim aim,
                uint32_t parties) {
  if (best == nullptr) return "Nothing does for what was asked: see what each way is refused for.";
  std::string why = absl::StrCat("For ", TrustText(trust, parties), " the ",
                                 aim == Aim::kTime ? "way with the least work" : "cheapest way",
                                 " is ", best->way(), ", at ", CostText(*best, aim));
  if (next != nullptr) {
    absl::StrAppendFormat(&why, "; the next one is %s, at %.3g times that", next->way(),
                          CostOfCandidate(*next, aim) / CostOfCandidate(*best, aim));
  }
  return why + ".";
}

void FillProposal(std::vector<Way> ways, Trust trust, Aim aim, uint32_t parties,
                  Proposal& proposal) {
  Candidate *best = nullptr, *next = nullptr;
  std::vector<Candidate*> able;
  for (Way& way : ways) {
    Candidate& candidate = way.candidate;
    if (candidate.refused().empty()) able.push_back(&candidate);
  }
  std::ranges::sort(able, {}, [&](const Candidate* c) { return CostOfCandidate(*c, aim); });
  if (!able.empty()) best = able[0];
  if (able.size() > 1) next = able[1];
  if (best != nullptr) {
    best->set_proposed(true);
    proposal.set_way(best->way());
  }
  proposal.set_trust(std::string(TrustName(trust)));
  proposal.set_aim(aim == Aim::kTime ? "time" : "price");
  proposal.set_why(Why(best, next, trust, aim, parties));
  for (Way& way : ways) *proposal.add_candidate() = std::move(way.candidate);
}

}  // namespace

absl::string_view TrustName(Trust trust) {
  return trust == Trust::kOne ? "one" : trust == Trust::kTwo ? "two" : "chain";
}

absl::StatusOr<Trust> ParseTrust(absl::string_view name) {
  for (const Trust trust : {Trust::kOne, Trust::kTwo, Trust::kChain}) {
    if (TrustName(trust) == name) return trust;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--trust ", name, ": there are one, two and chain"));
}

Range WhereHolds(const std::function<std::optional<bool>(double)>& holds) {
  Range range;
  range.from = FirstThatHolds(holds);
  if (range.from == 0) return range;
  range.until = FirstThatHolds(
      [&](double queries) -> std::optional<bool> { return !holds(queries).value_or(true); },
      range.from);
  return range;
}

absl::Status Propose(const Workload& w, uint32_t row_bytes, const noise::Choice& noise,
                     const absl::StatusOr<TwoTiersChoice>& two_tiers, Trust trust,
                     const EngineOptions& options, Plan& plan) {
  if (plan.has_term() || plan.engine_size() == 0) {
    return absl::InvalidArgumentError("a proposal is of a plan of a round, with its engines");
  }
  TwoTiers& tiers = *plan.mutable_two_tiers();
  const auto best = two_tiers.ok() ? two_tiers->Best(plan.queries(), options.aim)
                                   : absl::StatusOr<TwoTiers>(two_tiers.status());
  if (best.ok()) {
    tiers = *best;
    tiers.mutable_table()->set_first_bytes(FirstBytes(w, tiers.table()));
  } else {
    tiers.set_refused(std::string(best.status().message()));
  }
  const Ways all(w, row_bytes, noise, trust, options, plan);
  const Way of_tiers = all.TwoTiersWay(tiers, two_tiers);
  std::vector<Way> ways = {all.Rows(), of_tiers};
  for (const EngineCosts& engine : plan.engine()) {
    if (engine.engine() != "chain") ways.push_back(all.Engine(engine));
  }
  ways.push_back(all.DownloadWay());
  if (best.ok()) {
    Remembered remembered(of_tiers.at);
    for (Way& way : ways) {
      if (way.at && way.candidate.way() != "two tiers") FillCrossovers(remembered, way);
    }
    for (ChainPoint& point : *plan.mutable_chain_by_queries()) {
      const auto cost = two_tiers->Best(point.queries(), Aim::kTime);
      if (cost.ok()) point.set_two_tiers_seconds_per_query(cost->server_seconds_per_query());
    }
  }
  FillProposal(std::move(ways), trust, options.aim, w.parties, *plan.mutable_proposal());
  return absl::OkStatus();
}

}  // namespace shoal::plan
