#include "src/shoal/session.h"

#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/status_macros.h"
#include "src/client/config.h"
#include "src/client/engine_client.h"
#include "src/client/retry_policy.h"
#include "src/pir/costs.h"
#include "src/shoal/format.h"
#include "src/shoal/privacy_text.h"

namespace shoal::commands {
namespace {

std::string SizeText(uint64_t bytes) { return BytesText(static_cast<double>(bytes)); }

// Of --party.
absl::StatusOr<std::vector<uint32_t>> Numbers(const pir::Engine& engine,
                                              const std::vector<std::string>& parties) {
  std::vector<uint32_t> numbers(parties.size());
  for (size_t i = 0; i < parties.size(); ++i) {
    const absl::StatusOr<uint32_t> number = cli::ParseSmallCount(parties[i]);
    if (!number.ok()) {
      return cli::UsageError(absl::StrCat("--party: ", number.status().message()));
    }
    numbers[i] = *number;
  }
  if (absl::Status fit = client::CheckParties(engine, numbers); !fit.ok()) {
    return cli::UsageError(absl::StrCat("--party: ", fit.message()));
  }
  return numbers;
}

// What to say to somebody who is about to ask for so much of a table, padding included, that a copy
// of it would be the better idea. Else empty.
std::string AdviceToDownload(const client::Deployment& deployment, uint64_t queries) {
  const table::Manifest& manifest = deployment.manifest();
  const uint64_t whole = manifest.rows() * manifest.answer_bytes();
  const uint64_t moved = queries * (deployment.query_bytes() + deployment.fetched_bytes());
  if (moved < whole && 2 * queries < manifest.rows()) return "";
  return absl::StrCat(
      "these ", WithCommas(queries), " queries, padding included, move ", SizeText(moved),
      ", and the whole table of ", WithCommas(manifest.rows()), " rows has ", SizeText(whole),
      ": a copy of it from its publisher is the better idea, as nobody sees what is "
      "looked up there");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const std::string& name,
                                                       const std::string& config_path,
                                                       const Connector& connect, bool quiet,
                                                       cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(client::Config config, client::ReadConfig(config_path));
  std::unique_ptr<Session> session(new Session(name, quiet, io));
  Session& s = *session;
  client::Reports reports = {
      .tell = [&s](absl::string_view what) { s.console_.Tell(what); },
      .warn = [&s](absl::string_view what) { s.console_.Warn(what); },
      .count = [&s](absl::string_view stage, uint64_t done,
                    uint64_t total) { s.console_.Count(stage, done, total); },
      .wait =
          [&s](absl::string_view what, uint64_t due_s) {
            const uint64_t now_s = s.clock_.NowSeconds();
            s.console_.Wait(what, due_s > now_s ? due_s - now_s : 0);
          },
      .announce = [&s](const client::Division& division) { s.TellProtection(division); },
      .under_way =
          [&s](const std::optional<client::UnderWay>& under_way) {
            s.PrepareInterruption(under_way);
          },
      .preparing =
          [&s] {
            s.interruption_.Say(
                absl::StrCat(s.console_.name(),
                             ": interrupted; what has come is kept, and the same command goes on "
                             "from there"));
          }};
  SHOAL_ASSIGN_OR_RETURN(s.client_,
                         client::Client::Open(std::move(config), connect, std::move(reports)));
  return session;
}

absl::Status Session::UseEngine(const pir::Engine& engine, const std::vector<std::string>& parties,
                                uint32_t pad_to, uint64_t keys) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers, Numbers(engine, parties));
  return client_->UseEngine(engine, numbers, pad_to, keys);
}

absl::StatusOr<Session::Prepared> Session::PrepareEngine(const pir::Engine& engine,
                                                         const std::vector<std::string>& parties,
                                                         bool anew) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers, Numbers(engine, parties));
  return client_->PrepareEngine(engine, numbers, anew);
}

absl::Status Session::DryRun(client::Keys& keys, bool json, std::ostream& out) {
  SHOAL_ASSIGN_OR_RETURN(const client::Client::Cost cost, client_->CostOf(keys));
  const noise::Parameters& noise = client_->deployment().roster().noise();
  const client::Division& division = cost.division;
  if (json) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    out << JsonObject()
               .Integer("queries", division.queries)
               .Integer("rounds", division.rounds())
               .Integer("queries_in_each", division.in_each)
               .Number("delta", noise.delta)
               .Number("epsilon", cost.lookup.epsilon.value_or(kNone))
               .Number("ledger_epsilon", cost.all.epsilon.value_or(kNone))
               .Take()
        << '\n';
  } else {
    out << "this lookup would send " << WithCommas(division.queries)
        << " queries, padding included, in " << WithCommas(division.rounds())
        << (division.rounds() == 1 ? " round\n" : " rounds\n") << ProtectionText(noise) << '\n'
        << LookupText(cost.lookup, division.queries, division.rounds()) << "\nafter it, "
        << LedgerText(cost.ledger, cost.all) << '\n';
  }
  return cost.stop;
}

void Session::PrepareInterruption(const std::optional<client::UnderWay>& under_way) {
  const std::string begin = absl::StrCat(console_.name(), ": interrupted; ");
  if (!under_way) {
    interruption_.Say(
        absl::StrCat(begin, "no queries are under way. The same command begins anew"));
    return;
  }
  const std::string until = client::TimeText(under_way->until_s, clock_.NowSeconds());
  interruption_.Say(
      under_way->charged
          ? absl::StrCat(begin, "the queries of round ", under_way->round_counter,
                         " are charged. To go on, run the same command again soon, at the latest "
                         "at ",
                         until, ", when the round ends; after that it is charged once more")
          : absl::StrCat(begin, "slots are held in round ", under_way->round_counter,
                         ", and nothing is charged but its delta. To go on, run the same command "
                         "again soon, at the latest at ",
                         until,
                         ", when the round takes no more queries; after that it takes "
                         "another round"));
}

void Session::TellText(const absl::StatusOr<std::string>& text) {
  Tell(absl::StrCat("privacy: ", text.ok() ? *text : text.status().ToString()));
}

void Session::TellProtection(const client::Division& division) {
  if (console_.quiet()) return;
  const noise::Parameters& noise = client_->deployment().roster().noise();
  TellText(ProtectionText(noise));
  // Otherwise the round protects them together, as was just said.
  if (division.queries > noise.phi) {
    TellText(LookupText(noise, client_->deployment().roster().most_in_bucket(), division.queries,
                        division.rounds()));
  }
  const std::string advice = AdviceToDownload(client_->deployment(), division.queries);
  if (!advice.empty()) Tell(advice);
}

void Session::TellCosts() {
  if (const client::EngineClient* const engine = client_->engine(); engine != nullptr) {
    const client::HintFetch& fetch = engine->hint_fetch();
    const absl::string_view name = engine->engine().name();
    if (!fetch.unwritten.ok()) {
      console_.Warn(
          absl::StrCat(name, ": what was fetched cannot be kept: ", fetch.unwritten.message()));
    }
    if (const std::optional<uint64_t> left = engine->budget()) {
      Tell(absl::StrCat(name, ": ", WithCommas(*left), " queries are left of what was prepared",
                        fetch.by_delta ? absl::StrCat(" (brought to this version of the table by ",
                                                      SizeText(fetch.received_bytes), ")")
                                       : "",
                        "; `shoal prepare` prepares the next ones"));
    } else if (engine->engine().keeps_state()) {
      if (fetch.by_delta) {
        Tell(absl::StrCat(name, ": brought to this version of the table by ",
                          SizeText(fetch.received_bytes)));
      }
    } else {
      Tell(absl::StrCat(name, ": hint ", SizeText(engine->costs().bytes.hint_bytes), " (",
                        SizeText(fetch.received_bytes), " fetched",
                        fetch.by_delta ? " as a delta" : "", ")"));
    }
  } else if (const client::Ledger& ledger = state().ledger; ledger.submissions() > 0) {
    // Not computed for nobody: it takes some seconds.
    if (!console_.quiet())
      TellText(LedgerText(ledger, client_->deployment().roster().noise().delta));
  }
  std::vector<std::string> costs;
  pir::ForEachCost(client_->source()->costs(), [&](const char* cost, double value) {
    const int decimals = absl::StrContains(cost, "bytes") ? 0 : 6;
    costs.push_back(absl::StrFormat("%s %.*f", cost, decimals, value));
  });
  Tell(absl::StrCat("costs: ", absl::StrJoin(costs, ", ")));
  const client::Traffic traffic = client_->source()->traffic();
  Tell(absl::StrCat("traffic: ", SizeText(traffic.sent), " sent, ", SizeText(traffic.received),
                    " received"));
}

}  // namespace shoal::commands
