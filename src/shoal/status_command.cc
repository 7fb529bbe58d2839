#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/clock.h"
#include "src/base/status_macros.h"
#include "src/client/config.h"
#include "src/client/deployment.h"
#include "src/client/state.h"
#include "src/shoal/common.h"
#include "src/shoal/format.h"
#include "src/shoal/lookup_commands.h"
#include "src/shoal/privacy_text.h"
#include "src/wire/visible.h"

namespace shoal::commands {
namespace {

// A round's next event, and the seconds until then.
struct Next {
  const char* what;
  uint64_t in_s;
};
Next NextOf(const wire::RoundInfo& round, uint64_t now_s) {
  const wire::RoundHeader& header = round.header().header();
  const auto left = [&](uint64_t time_s) { return time_s > now_s ? time_s - now_s : 0; };
  switch (round.state()) {
    case wire::OPEN_FOR_ONIONS:
      return {"onions close in", left(header.onions_close_s())};
    case wire::SEALED:
    case wire::OPEN_FOR_QUERIES:
      return {"queries close in", left(header.queries_close_s())};
    case wire::ANSWERING:
    case wire::ANSWERED:
      return {"erased within", left(header.expires_s())};
    default:
      return {"", 0};
  }
}

// Whether the frontend still has something of the round for its clients.
bool IsAlive(const wire::RoundReport& report) {
  const wire::RoundState state = report.round().state();
  return state != wire::CLOSED && state != wire::ABORTED;
}

// "online", or "online B" in a half.
std::string StageText(const wire::StageReport& stage) {
  const std::string name = Printable(stage.stage());
  return stage.half() == 0 ? name : absl::StrCat(name, " ", wire::HalfName(stage.half()));
}

std::string StagesJson(const google::protobuf::RepeatedPtrField<wire::StageReport>& reports) {
  std::vector<std::string> stages;
  for (const wire::StageReport& stage : reports) {
    JsonObject object;
    object.Integer("party", stage.party()).Text("stage", stage.stage());
    if (stage.half() != 0) object.Text("half", wire::HalfName(stage.half()));
    stages.push_back(object.Number("seconds", stage.seconds())
                         .Number("cpu_seconds", stage.cpu_seconds())
                         .Integer("positions_in", stage.positions_in())
                         .Integer("positions_out", stage.positions_out())
                         .Integer("noise_queries", stage.noise_queries())
                         .Integer("bytes_in", stage.bytes_in())
                         .Integer("bytes_out", stage.bytes_out())
                         .Take());
  }
  return JsonArray(stages);
}

std::string RoundJson(const wire::RoundReport& report, uint64_t now_s) {
  const wire::RoundInfo& round = report.round();
  const wire::RoundHeader& header = round.header().header();
  JsonObject object;
  object.Integer("round", header.counter())
      .Text("state", StateName(round.state()))
      .Integer("slots", round.onions())
      .Integer("max_slots", header.max_slots())
      .Integer("queries", round.queries())
      .Integer("onions_close_s", header.onions_close_s())
      .Integer("queries_close_s", header.queries_close_s())
      .Integer("expires_s", header.expires_s())
      .Integer("seconds_left", NextOf(round, now_s).in_s)
      .Integer("offline_ms", report.offline_ms())
      .Integer("online_ms", report.online_ms());
  if (!round.abort_reason().empty()) object.Text("abort_reason", round.abort_reason());
  return object.Raw("stages", StagesJson(report.stages())).Take();
}

std::string TermJson(const wire::TermReport& term) {
  JsonObject object;
  object.Integer("round", term.counter())
      .Integer("max_refreshes", term.max_refreshes())
      .Integer("term_expires_s", term.term_expires_s())
      .Integer("positions", term.positions())
      .Integer("refresh", term.number())
      .Integer("table_epoch", term.epoch())
      .Integer("age_s", term.age_s())
      .Integer("refresh_ms", term.refresh_ms())
      .Raw("stages", StagesJson(term.stages()));
  if (!term.problem().empty()) object.Text("problem", term.problem());
  return object.Take();
}

void PrintTerms(const wire::GetStatusResponse& status, uint64_t now_s, std::ostream& out) {
  if (status.terms().empty()) return;
  out << absl::StrFormat("\n%8s  %12s %10s %8s %12s %12s  %s\n", "term of", "positions", "refresh",
                         "epoch", "since", "ends in", "");
  for (const wire::TermReport& term : status.terms()) {
    const bool done = term.number() > 0;
    out << absl::StrFormat(
        "%8d  %12s %10s %8s %12s %12s  %s\n", term.counter(), WithCommas(term.positions()),
        absl::StrCat(term.number(), "/", term.max_refreshes()),
        done ? absl::StrCat(term.epoch()) : "", done ? DurationText(term.age_s()) : "",
        DurationText(term.term_expires_s() > now_s ? term.term_expires_s() - now_s : 0),
        Printable(term.problem()));
  }
}

void PrintTables(const wire::GetStatusResponse& status, uint64_t now_s, std::ostream& out) {
  if (status.rounds().empty()) {
    out << "\nno open rounds\n";
    return;
  }
  out << absl::StrFormat("\n%8s  %-16s %12s %12s  %s\n", "round", "state", "slots", "queries",
                         "next");
  bool stages = false;
  for (const wire::RoundReport& report : status.rounds()) {
    const wire::RoundInfo& round = report.round();
    const Next next = NextOf(round, now_s);
    std::string what = *next.what ? absl::StrCat(next.what, " ", DurationText(next.in_s)) : "";
    if (!round.abort_reason().empty()) what = Printable(round.abort_reason());
    out << absl::StrFormat("%8d  %-16s %12s %12s  %s\n", round.header().header().counter(),
                           StateName(round.state()), WithCommas(round.onions()),
                           WithCommas(round.queries()), what);
    stages |= report.stages_size() > 0;
  }
  if (!stages) return;
  out << absl::StrFormat("\n%8s  %5s  %-9s %9s %9s %12s %12s %12s %9s %9s\n", "round", "party",
                         "stage", "seconds", "cpu", "in", "out", "own noise", "received", "sent");
  for (const wire::RoundReport& report : status.rounds()) {
    for (const wire::StageReport& stage : report.stages()) {
      out << absl::StrFormat("%8d  %5d  %-9s %9.2f %9.2f %12s %12s %12s %9s %9s\n",
                             report.round().header().header().counter(), stage.party(),
                             StageText(stage), stage.seconds(), stage.cpu_seconds(),
                             WithCommas(stage.positions_in()), WithCommas(stage.positions_out()),
                             WithCommas(stage.noise_queries()),
                             BytesText(static_cast<double>(stage.bytes_in())),
                             BytesText(static_cast<double>(stage.bytes_out())));
    }
  }
}

// `epsilon` is null if none holds at the deployment's delta.
absl::StatusOr<std::string> LedgerJson(const client::Ledger& ledger, double delta) {
  SHOAL_ASSIGN_OR_RETURN(const client::TotalLoss loss, ledger.LossAt(delta));
  constexpr double kNone = std::numeric_limits<double>::infinity();
  JsonObject json;
  json.Integer("submissions", ledger.submissions())
      .Integer("queries", ledger.queries())
      .Integer("idle_rounds", ledger.idle_rounds())
      .Integer("doubts", ledger.doubts())
      .Number("epsilon", loss.epsilon.value_or(kNone))
      .Number("delta", delta);
  if (loss.beyond) {
    json.Number("beyond_epsilon", loss.beyond->epsilon).Number("beyond_delta", loss.beyond->delta);
  }
  return json.Take();
}

// What is wrong with a party, as its state shows it to somebody who has verified this deployment;
// empty if nothing is.
std::string FaultOf(const wire::PartyState& state, const client::Deployment& deployment,
                    uint64_t now_s) {
  if (!state.problem().empty()) return absl::StrCat("missing: ", Printable(state.problem()));
  const roster::Roster& roster = deployment.roster();
  const uint64_t epoch = deployment.manifest().content().epoch();
  if (state.roster_epoch() != roster.epoch()) {
    return absl::StrCat("has roster ", state.roster_epoch(), " instead of ", roster.epoch());
  }
  if (state.table_epoch() != epoch) {
    return absl::StrCat("has epoch ", state.table_epoch(), " of the table instead of ", epoch);
  }
  if (std::min(state.roster_expires_s(), state.table_expires_s()) <= now_s) {
    return "its roster or table has expired";
  }
  const int64_t tolerance_s = roster.clock_tolerance_s();
  if (state.clock_offset_s() > tolerance_s || state.clock_offset_s() < -tolerance_s) {
    return absl::StrCat("its clock differs from the frontend's by ", state.clock_offset_s(), " s");
  }
  if (state.rounds() >= state.max_rounds()) {
    return absl::StrCat("holds ", state.rounds(), " rounds, and takes no more");
  }
  if (state.unwell()) return "its own health check fails: see its /healthz or log";
  return "";
}

// What the frontend last heard may be no older than this.
constexpr uint64_t kStaleS = 60;

struct ChainHealth {
  std::vector<std::string> faults;   // of each party; empty if there is none
  std::vector<std::string> summary;  // all of them, with the parties' numbers
};
ChainHealth HealthOf(const wire::GetStatusResponse& status, const client::Deployment& deployment,
                     uint64_t now_s) {
  ChainHealth health;
  if (status.parties_size() != static_cast<int>(deployment.roster().size())) {
    health.summary.push_back(
        "the frontend does not say how the parties are: it has just started, or is older");
    return health;
  }
  if (status.parties_age_s() > kStaleS) {
    health.summary.push_back(
        absl::StrCat("the parties were last heard of ", status.parties_age_s(), " s ago"));
  }
  for (int i = 0; i < status.parties_size(); ++i) {
    const wire::PartyState& state = status.parties(i);
    health.faults.push_back(state.party() == static_cast<uint32_t>(i + 1)
                                ? FaultOf(state, deployment, now_s)
                                : "missing: another party's state is in its place");
    if (health.faults.back().empty()) continue;
    health.summary.push_back(absl::StrCat("party ", i + 1, ": ", health.faults.back()));
  }
  return health;
}

std::string PartyJson(const wire::PartyState& state, const std::string& name,
                      const std::string& fault) {
  JsonObject object;
  object.Integer("party", state.party()).Text("name", name).Bool("healthy", fault.empty());
  if (!fault.empty()) object.Text("fault", fault);
  if (!state.problem().empty()) return object.Take();
  return object.Text("version", Printable(state.version()))
      .Integer("roster_epoch", state.roster_epoch())
      .Integer("table_epoch", state.table_epoch())
      .Integer("rounds", state.rounds())
      .Integer("max_rounds", state.max_rounds())
      .Number("clock_offset_s", static_cast<double>(state.clock_offset_s()))
      .Integer("roster_expires_s", state.roster_expires_s())
      .Integer("table_expires_s", state.table_expires_s())
      .Integer("certificate_expires_s", state.certificate_expires_s())
      .Take();
}

// Prints a line for every party, and whether the chain is healthy. FAILED_PRECONDITION, with all
// that is wrong, if it is not.
absl::Status ShowParties(const wire::GetStatusResponse& status,
                         const client::Deployment& deployment, uint64_t now_s, bool json,
                         std::ostream& out) {
  const ChainHealth health = HealthOf(status, deployment, now_s);
  const auto name = [&](size_t i) {
    return deployment.roster().party(static_cast<uint32_t>(i + 1)).name;
  };
  if (json) {
    std::vector<std::string> parties;
    for (size_t i = 0; i < health.faults.size(); ++i) {
      parties.push_back(PartyJson(status.parties(static_cast<int>(i)), name(i), health.faults[i]));
    }
    out << JsonObject()
               .Text("deployment", deployment.roster().deployment())
               .Bool("healthy", health.summary.empty())
               .Raw("parties", JsonArray(parties))
               .Take()
        << '\n';
  } else {
    const auto left = [&](uint64_t time_s) {
      return time_s > now_s ? DurationText(time_s - now_s) : std::string("expired");
    };
    if (!health.faults.empty()) {
      out << absl::StrFormat("%5s  %-16s %-8s %6s %6s %7s %7s  %-12s %-12s %s\n", "party", "name",
                             "version", "roster", "table", "rounds", "clock", "roster for",
                             "table for", "certificate for");
    }
    for (size_t i = 0; i < health.faults.size(); ++i) {
      const wire::PartyState& state = status.parties(static_cast<int>(i));
      out << absl::StrFormat("%5d  %-16s ", i + 1, name(i));
      if (state.problem().empty()) {
        out << absl::StrFormat("%-8s %6d %6d %7s %+5d s  %-12s %-12s %s\n",
                               Printable(state.version()), state.roster_epoch(),
                               state.table_epoch(),
                               absl::StrCat(state.rounds(), "/", state.max_rounds()),
                               state.clock_offset_s(), left(state.roster_expires_s()),
                               left(state.table_expires_s()), left(state.certificate_expires_s()));
      } else {
        out << health.faults[i] << '\n';
      }
    }
    if (health.summary.empty()) out << "the chain is healthy\n";
  }
  if (health.summary.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the chain is not healthy: ", absl::StrJoin(health.summary, "; ")));
}

std::string StatusJson(const client::Deployment& deployment, const wire::GetStatusResponse& status,
                       const std::string& ledger, uint64_t now_s) {
  const wire::Manifest& manifest = deployment.manifest().content();
  const noise::Parameters& noise = deployment.roster().noise();
  std::vector<std::string> rounds;
  for (const wire::RoundReport& report : status.rounds()) {
    rounds.push_back(RoundJson(report, now_s));
  }
  std::vector<std::string> terms;
  for (const wire::TermReport& term : status.terms()) terms.push_back(TermJson(term));
  return JsonObject()
      .Text("deployment", deployment.roster().deployment())
      .Text("version", status.version())
      .Number("uptime_seconds", status.uptime_seconds())
      .Integer("parties", deployment.roster().size())
      .Integer("roster_epoch", deployment.roster().epoch())
      .Text("table", manifest.name())
      .Integer("table_epoch", manifest.epoch())
      .Integer("records", manifest.records())
      .Integer("rows", manifest.rows())
      .Integer("row_bytes", manifest.row_bytes())
      .Integer("table_expires_s", manifest.expires_s())
      .Number("epsilon", noise.epsilon)
      .Number("delta", noise.delta)
      .Integer("phi", noise.phi)
      .Raw("rounds", JsonArray(rounds))
      .Raw("terms", JsonArray(terms))
      .Raw("ledger", ledger)
      .Take();
}

absl::Status RunStatus(const Connector& connect, const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_wanted, JsonWanted(values, "table"));
  SHOAL_ASSIGN_OR_RETURN(const std::string config_path, ConfigPathOf(values));
  SHOAL_ASSIGN_OR_RETURN(const client::Config config, client::ReadConfig(config_path));
  // Reads the state, so that epochs cannot go back, but writes nothing.
  SHOAL_ASSIGN_OR_RETURN(client::State state, StateAt(config.state_path));
  const uint64_t now_s = SystemClock().NowSeconds();
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<client::Transport> transport,
                         connect(config.frontend));
  SHOAL_ASSIGN_OR_RETURN(
      const client::Deployment deployment,
      client::Deployment::Fetch(*transport, config.pins, state, now_s, config.placement_cache));
  // The ledger counts rounds that were entered for nothing once they have expired.
  const uint32_t tolerance_s = deployment.roster().clock_tolerance_s();
  state.DropExpired(now_s > tolerance_s ? now_s - tolerance_s : 0);
  SHOAL_ASSIGN_OR_RETURN(wire::GetStatusResponse status,
                         transport->GetStatus(wire::GetStatusRequest()));
  if (values.count("parties") > 0) {
    return ShowParties(status, deployment, now_s, json_wanted, io.out);
  }
  // What is alive first.
  std::stable_partition(status.mutable_rounds()->pointer_begin(),
                        status.mutable_rounds()->pointer_end(),
                        [](const wire::RoundReport* report) { return IsAlive(*report); });
  const wire::Manifest& manifest = deployment.manifest().content();
  const noise::Parameters& noise = deployment.roster().noise();
  if (json_wanted) {
    SHOAL_ASSIGN_OR_RETURN(const std::string ledger, LedgerJson(state.ledger, noise.delta));
    io.out << StatusJson(deployment, status, ledger, now_s) << '\n';
    return absl::OkStatus();
  }
  io.out << "deployment " << deployment.roster().deployment() << ": " << deployment.roster().size()
         << " parties, roster " << deployment.roster().epoch() << ", frontend version "
         << Printable(status.version()) << ", up "
         << DurationText(static_cast<uint64_t>(std::max(0.0, status.uptime_seconds()))) << '\n'
         << "table " << manifest.name() << ", epoch " << manifest.epoch() << ": "
         << WithCommas(manifest.records()) << " records in " << WithCommas(manifest.rows())
         << " rows of " << WithCommas(manifest.row_bytes()) << " bytes, expires in "
         << DurationText(manifest.expires_s() > now_s ? manifest.expires_s() - now_s : 0) << '\n'
         << "privacy: " << ProtectionText(noise) << '\n';
  PrintTables(status, now_s, io.out);
  PrintTerms(status, now_s, io.out);
  SHOAL_ASSIGN_OR_RETURN(const std::string ledger, LedgerText(state.ledger, noise.delta));
  io.out << "\nledger: " << ledger << '\n';
  return absl::OkStatus();
}

}  // namespace

cli::Command Status(Connector connect) {
  return {
      .name = "status",
      .summary = "show a deployment's parties or rounds, and this client's ledger",
      .help =
          R"(Asks the frontend for its rounds, those that live first: what they wait for, how many
slots and queries they hold, and what their stages cost at every party. Roster and
table are verified; everything else is only what the frontend says. At the end it
shows what all lookups of this client reveal together so far (its ledger): the exact
epsilon at the deployment's delta. In JSON, ledger.epsilon is null if none holds at
that delta; then beyond_epsilon holds at the larger beyond_delta. ledger.doubts counts
how often the state could have been an old copy, whose ledger lacks what was asked
later.
)",
      .examples =
          "  shoal status --config client.textproto\n"
          "  shoal status --config client.textproto --parties    is the chain healthy?\n",
      .options =
          [](cli::Options& options) {
            AddConfigOption(options);
            options.add_options()(
                "parties",
                "a line for every party instead: is it there, with which version, epochs, clock "
                "and times of expiry? Exit code 1 unless the chain is healthy");
            AddFormatOption(options, "table");
          },
      .positional = "",
      .run = std::bind_front(RunStatus, std::move(connect)),
  };
}

}  // namespace shoal::commands
