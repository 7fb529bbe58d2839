#include "src/shoal/plan_command.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/util/json_util.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/client/ledger.h"
#include "src/noise/search.h"
#include "src/parallel/thread_pool.h"
#include "src/plan/calibrate.h"
#include "src/plan/engines.h"
#include "src/plan/figure.h"
#include "src/plan/model.h"
#include "src/plan/proposal.h"
#include "src/plan/report.h"
#include "src/plan/terms.h"
#include "src/plan/two_tiers.h"
#include "src/roster/roster.h"
#include "src/shoal/common.h"
#include "src/shoal/privacy_text.h"
#include "src/storage/file.h"
#include "src/storage/memory.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

constexpr double kMonthDays = 30;

// "4": each party; "4,2,1": each its own. Empty: one each.
absl::StatusOr<std::vector<uint32_t>> MachinesOf(const std::string& text, uint32_t parties) {
  std::vector<uint32_t> machines;
  if (text.empty()) return machines;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const absl::StatusOr<uint32_t> number = cli::ParseSmallCount(part);
    if (!number.ok()) {
      return cli::UsageError(absl::StrCat("--machines: \"", part, "\" is no number"));
    }
    machines.push_back(*number);
  }
  if (machines.size() == 1 && parties <= 8) machines.resize(parties, machines[0]);
  return machines;
}

absl::StatusOr<plan::Workload> WorkloadOf(const cli::Values& values) {
  plan::Workload w;
  SHOAL_ASSIGN_OR_RETURN(const bool dense, cli::Chosen(values, "layout", "hashed", "dense"));
  w.layout = dense ? plan::LayoutKind::kDense : plan::LayoutKind::kHashed;
  for (const char* option : {"records", "value-bytes", "queries"}) {
    if (!values.count(option)) return cli::UsageError(absl::StrCat("--", option, " is missing"));
  }
  w.records = cli::NumberOr(values, "records", 0);
  w.key_bytes = cli::SmallOr(values, "key-bytes", 16);
  w.value_bytes = cli::SmallOr(values, "value-bytes", 0);
  w.queries = cli::NumberOr(values, "queries", 0);
  w.parties = cli::SmallOr(values, "parties", 3);
  w.cores = cli::SmallOr(values, "cores", 1);
  w.one_machine = values.count("one-machine") > 0;
  const uint64_t spool_mib = cli::NumberOr(values, "spool-memory-mib", MachineMemory() / 4 >> 20);
  w.spool_memory_bytes = 1048576.0 * static_cast<double>(spool_mib);
  SHOAL_ASSIGN_OR_RETURN(w.rounds_per_day, cli::RealOr(values, "rounds-per-day", 1));
  SHOAL_ASSIGN_OR_RETURN(w.price_core_hour, cli::RealOr(values, "price-core-hour", 0.04));
  SHOAL_ASSIGN_OR_RETURN(w.price_gb, cli::RealOr(values, "price-gb", 0.05));
  SHOAL_ASSIGN_OR_RETURN(w.price_machine_hour, cli::RealOr(values, "price-machine-hour", 0));
  w.refreshes = cli::SmallOr(values, "refreshes", 0);
  SHOAL_ASSIGN_OR_RETURN(w.changed_percent,
                         cli::RealOr(values, "changed-percent", w.changed_percent));
  if (values.count("room-percent")) w.room_percent = cli::SmallOr(values, "room-percent", 0);
  if (w.refreshes == 0 && values.count("room-percent") > 0) {
    return cli::UsageError("--room-percent is of a term: --refreshes says how long it is");
  }
  if (values.count("machines")) {
    const std::string machines = cli::TextOr(values, "machines", "");
    if (machines.empty()) return cli::UsageError("--machines: how many?");
    SHOAL_ASSIGN_OR_RETURN(w.machines, MachinesOf(machines, w.parties));
  }
  if (absl::Status checked = plan::CheckWorkload(w); !checked.ok()) {
    return cli::UsageError(checked.message());
  }
  if (w.refreshes > 0 && w.TermDays() > roster::kMaxTermDays) {
    return cli::UsageError(absl::StrCat("--refreshes: with ", w.rounds_per_day,
                                        " epochs a day (--rounds-per-day) the term has ",
                                        w.TermDays(), " days; at most ", roster::kMaxTermDays));
  }
  return w;
}

absl::StatusOr<plan::EngineOptions> EngineOptionsOf(const cli::Values& values) {
  plan::EngineOptions options;
  options.max_hint_bytes =
      std::min<uint64_t>(cli::NumberOr(values, "max-hint-mib", 1024), uint64_t{1} << 40) << 20;
  SHOAL_ASSIGN_OR_RETURN(options.lookups_per_hint,
                         cli::RealOr(values, "lookups-per-hint", options.lookups_per_hint));
  if (absl::Status checked = plan::CheckEngineOptions(options); !checked.ok()) {
    return cli::UsageError(checked.message());
  }
  return options;
}

// What a proposal is to do for.
struct Wanted {
  plan::Trust trust = plan::Trust::kChain;
  plan::Aim aim = plan::Aim::kPrice;
  uint32_t most_in_bucket = 0;  // 0: found
};
absl::StatusOr<Wanted> WantedOf(const cli::Values& values, const plan::Workload& workload) {
  if (workload.refreshes > 0) {
    for (const char* option : {"trust", "cheapest", "most-in-bucket"}) {
      if (values.count(option)) {
        return cli::UsageError(absl::StrCat(
            "--", option, " is of a round: a term has ways of its own; leave --refreshes out"));
      }
    }
  }
  Wanted wanted;
  auto trust = plan::ParseTrust(cli::TextOr(values, "trust", "chain"));
  if (!trust.ok()) return cli::UsageError(trust.status().message());
  wanted.trust = *trust;
  SHOAL_ASSIGN_OR_RETURN(const bool by_time, cli::Chosen(values, "cheapest", "price", "time"));
  if (by_time) wanted.aim = plan::Aim::kTime;
  if (values.count("most-in-bucket")) {
    wanted.most_in_bucket = cli::SmallOr(values, "most-in-bucket", 0);
    if (wanted.most_in_bucket < 1 || wanted.most_in_bucket > roster::kMaxInBucket) {
      return cli::UsageError(absl::StrFormat("--most-in-bucket must be in [1, %d], got %d",
                                             roster::kMaxInBucket, wanted.most_in_bucket));
    }
  }
  return wanted;
}

absl::StatusOr<noise::Target> TargetOf(const cli::Values& values) {
  noise::Target target;
  SHOAL_ASSIGN_OR_RETURN(target.epsilon, cli::RealOr(values, "epsilon", 1));
  SHOAL_ASSIGN_OR_RETURN(target.delta, cli::RealOr(values, "delta", 1e-6));
  target.exposure.phi = cli::SmallOr(values, "phi", 1);
  if (!(target.epsilon >= noise::kMinEpsilon && target.epsilon <= noise::kMaxEpsilon)) {
    return cli::UsageError(absl::StrFormat("--epsilon must be in [%g, %g], got %g",
                                           noise::kMinEpsilon, noise::kMaxEpsilon, target.epsilon));
  }
  if (!(target.delta >= noise::kMinDelta && target.delta < 1)) {
    return cli::UsageError(
        absl::StrFormat("--delta must be in [%g, 1), got %g", noise::kMinDelta, target.delta));
  }
  if (target.exposure.phi < 1 || target.exposure.phi > noise::kMaxPhi) {
    return cli::UsageError(
        absl::StrFormat("--phi must be in [1, %d], got %d", noise::kMaxPhi, target.exposure.phi));
  }
  return target;
}

absl::StatusOr<noise::Choice> FindNoise(const std::string& mechanism, const noise::Target& target) {
  if (mechanism == "auto") return noise::FindLeastNoise(target);
  for (const auto candidate : {noise::Mechanism::kClampedLaplace, noise::Mechanism::kGeometric,
                               noise::Mechanism::kSplitGaussian}) {
    if (noise::MechanismName(candidate) == mechanism) {
      return noise::FindLeastNoise(candidate, target);
    }
  }
  return cli::UsageError(
      absl::StrCat("--mechanism ", mechanism,
                   ": there are auto, clamped_laplace, geometric and split_gaussian"));
}

absl::StatusOr<plan::UnitCosts> CostsOf(const cli::Values& values, cli::Io& io) {
  const bool named = values.count("costs") > 0;
  const std::string path = cli::TextOr(values, "costs", plan::DefaultCostsPath());
  if (values.count("calibrate")) {
    if (path.empty()) return cli::UsageError("--costs: say where to keep the costs");
    io.err << "shoal plan: measuring this machine; let it do nothing else" << std::endl;
    SystemRandom random;
    ThreadPool pool;
    const plan::UnitCosts costs = plan::Calibrate(random, pool);
    if (const size_t slash = path.rfind('/'); slash != std::string::npos && slash > 0) {
      SHOAL_RETURN_IF_ERROR(MakeDirectory(path.substr(0, slash), FileMode::kPublic));
    }
    SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(path, costs));
    io.err << "shoal plan: unit costs written to " << path << std::endl;
    return costs;
  }
  if (named) return plan::ReadCosts(path);
  if (!path.empty() && FileExists(path)) {
    auto costs = plan::ReadCosts(path);
    if (costs.ok() || !absl::IsInvalidArgument(costs.status())) return costs;
    // Ignores the file, which another version may have written.
    io.err << "shoal plan: not used: " << costs.status().message() << std::endl;
  }
  plan::UnitCosts costs = plan::DefaultCosts();
  costs.set_machine(absl::StrCat("built in, measured on ", costs.machine(),
                                 "; --calibrate measures this machine"));
  return costs;
}

// What `--emit settings` writes: settings for the parties to agree on, with `why` as remarks.
// Parses as a roster without keys; addresses are examples.
std::string SettingsText(const plan::Plan& plan, const plan::Workload& workload,
                         const noise::Choice& choice, const std::string& why) {
  wire::Roster settings;
  settings.set_deployment("demo");
  settings.set_epoch(1);
  for (uint32_t number = 1; number <= workload.parties; ++number) {
    wire::Party& party = *settings.add_parties();
    party.set_name(absl::StrCat("party-", number));
    const auto address = [&](uint32_t machine) {
      return absl::StrCat("party-", number, machine == 0 ? "" : absl::StrCat("-", machine),
                          ".example:7300");
    };
    number == 1 ? party.set_client_address(address(0)) : party.set_peer_address(address(0));
    const uint32_t machines = workload.MachinesOf(number);
    if (machines > 1) party.set_machines(machines);
    for (uint32_t machine = 1; machine < machines; ++machine) {
      wire::Machine& other = *party.add_other_machines();
      number == 1 ? other.set_client_address(address(machine))
                  : other.set_peer_address(address(machine));
    }
  }
  *settings.mutable_noise() = roster::NoiseToWire(choice.parameters);
  settings.set_clock_tolerance_s(60);
  if (workload.refreshes > 0) {
    settings.mutable_term_limit()->set_days(workload.TermDays());
    settings.mutable_term_limit()->set_refreshes(workload.refreshes);
  }
  const uint64_t slots = std::max<uint64_t>(workload.queries, choice.parameters.phi);
  settings.set_max_slots(static_cast<uint32_t>(std::min<uint64_t>(slots, roster::kMaxSlots)));
  std::string text = absl::StrFormat(
      "# Settings of a deployment, by `shoal plan`, for `shoal ceremony` or `shoal roster "
      "assemble`.\n"
      "# Put your own names and addresses; leave the noise as it is: every digit counts.\n"
      "# The table: shoal table build --row-bytes %d%s ..\n",
      plan.table().row_bytes(),
      plan.table().room_percent() > 0
          ? absl::StrCat(" --room-percent ", plan.table().room_percent())
          : "");
  if (workload.refreshes > 0) {
    absl::StrAppendFormat(
        &text, "# Party 1's configuration: rounds { terms { refreshes: %d days: %d } }\n",
        workload.refreshes, workload.TermDays());
  }
  for (const absl::string_view line : absl::StrSplit(why, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, "# ", line, "\n");
  }
  return text + wire::PrintText(settings);
}

// What the ledger of a device shows after a month of its list, `phi` keys, in terms or in a round
// for each epoch.
absl::Status FillMonth(const plan::Workload& w, const noise::Parameters& noise, plan::Term& term) {
  for (plan::Method& way : *term.mutable_way()) {
    const bool in_terms = way.way() == "term";
    if (!way.refused().empty() || !(in_terms || way.way() == "round")) continue;
    const double epochs = kMonthDays * w.rounds_per_day;
    const double submissions = std::ceil(in_terms ? epochs / w.epochs() : epochs);
    way.set_month_submissions(submissions);
    const auto queries = static_cast<uint64_t>(submissions) * noise.phi;
    // What is planned are rounds for rows.
    const absl::StatusOr<client::TotalLoss> loss =
        client::LossOf(noise, queries, noise.delta, /*most_in_bucket=*/0);
    // The noise is one that holds, but there may be more queries than are counted.
    if (absl::IsInvalidArgument(loss.status())) continue;
    SHOAL_RETURN_IF_ERROR(loss.status());
    if (loss->epsilon.has_value()) {
      way.set_month_epsilon(*loss->epsilon);
      way.set_month_delta(loss->delta);
    } else if (loss->beyond.has_value()) {
      way.set_month_epsilon(loss->beyond->epsilon);
      way.set_month_delta(loss->beyond->delta);
    }
  }
  return absl::OkStatus();
}

// What the options ask for.
struct Question {
  plan::Workload workload;
  noise::Target target;
  std::string mechanism;
  uint32_t row_bytes;  // 0: the plan chooses
  plan::EngineOptions engines;
  Wanted wanted;
};
// Without a plan the workload is left out.
absl::StatusOr<Question> QuestionOf(const cli::Values& values, bool plans) {
  Question asked;
  if (plans) {
    SHOAL_ASSIGN_OR_RETURN(asked.workload, WorkloadOf(values));
  }
  SHOAL_ASSIGN_OR_RETURN(asked.target, TargetOf(values));
  asked.mechanism = cli::TextOr(values, "mechanism", "auto");
  asked.row_bytes = cli::SmallOr(values, "row-bytes", 0);
  if (plans && values.count("row-bytes")) {
    if (auto layout = plan::LayOut(asked.workload, asked.row_bytes); !layout.ok()) {
      return cli::UsageError(layout.status().message());
    }
  }
  SHOAL_ASSIGN_OR_RETURN(asked.engines, EngineOptionsOf(values));
  SHOAL_ASSIGN_OR_RETURN(asked.wanted, WantedOf(values, asked.workload));
  asked.engines.aim = asked.wanted.aim;
  return asked;
}

// The plan of the round, and of its term if there is one.
absl::StatusOr<plan::Plan> PlanOf(const Question& asked, const noise::Choice& choice,
                                  const plan::UnitCosts& costs) {
  const plan::Workload& workload = asked.workload;
  SHOAL_ASSIGN_OR_RETURN(plan::Plan plan, plan::ChooseRows(workload, asked.row_bytes, choice, costs,
                                                           asked.wanted.aim));
  if (const auto noise = noise::Distribution::Create(choice.parameters); noise.ok()) {
    plan.mutable_noise()->set_max_per_row(noise->max());
  }
  if (workload.refreshes > 0) {
    SHOAL_RETURN_IF_ERROR(
        plan::CompareWays(workload, asked.row_bytes, choice, costs, asked.engines, plan));
    SHOAL_RETURN_IF_ERROR(FillMonth(workload, choice.parameters, *plan.mutable_term()));
  }
  return plan;
}

// The same workload with other epsilons. If many queries change, a search over mechanisms is slow,
// so the mechanism that was chosen stays.
void AddEpsilons(const Question& asked, const plan::UnitCosts& costs, plan::Plan& plan) {
  const bool single = asked.target.exposure.phi == 1;
  const std::string same = single ? asked.mechanism : plan.noise().mechanism();
  const std::vector<double> factors =
      single ? std::vector<double>{0.1, 0.2, 0.5, 1, 2, 5, 10} : std::vector<double>{0.5, 1, 2};
  for (double factor : factors) {
    noise::Target other = asked.target;
    other.epsilon = asked.target.epsilon * factor;
    if (other.epsilon < noise::kMinEpsilon || other.epsilon > noise::kMaxEpsilon) continue;
    const auto moved = [&]() -> absl::StatusOr<plan::Plan> {
      if (factor == 1) return plan;
      SHOAL_ASSIGN_OR_RETURN(const noise::Choice least, FindNoise(same, other));
      return plan::ChooseRows(asked.workload, asked.row_bytes, least, costs, asked.wanted.aim);
    }();
    plan::Alternative& line = *plan.add_by_epsilon();
    if (moved.ok()) {
      line = plan::Summarise(*moved);
    } else {
      line.set_note(std::string(moved.status().message()));
    }
    line.set_epsilon(other.epsilon);
    line.set_chosen(factor == 1);
  }
}

// Two tiers beside the rest, and which of all ways is proposed.
absl::Status AddProposal(const Question& asked, const noise::Choice& choice,
                         const plan::UnitCosts& costs, plan::Plan& plan) {
  const plan::Workload& workload = asked.workload;
  if (plan.has_term()) {
    plan.mutable_two_tiers()->set_refused(std::string(plan::CheckTwoTiers(workload).message()));
    return absl::OkStatus();
  }
  const plan::NoiseFor noise_for = [&](uint32_t most_in_bucket) {
    noise::Target target = asked.target;
    target.most_in_bucket = most_in_bucket;
    return FindNoise(asked.mechanism, target);
  };
  const auto two_tiers = plan::TwoTiersChoice::Create(
      workload, asked.row_bytes, asked.wanted.most_in_bucket, choice, noise_for, costs);
  return plan::Propose(workload, asked.row_bytes, choice, two_tiers, asked.wanted.trust,
                       asked.engines, plan);
}

absl::Status PrintJson(const plan::Plan& plan, std::ostream& out) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(plan, &json, options).ok()) {
    return absl::InternalError("the plan does not print as JSON");
  }
  out << json << '\n';
  return absl::OkStatus();
}

absl::Status RunPlan(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const bool json_wanted, JsonWanted(values, "table"));
  SHOAL_ASSIGN_OR_RETURN(const bool settings_wanted,
                         cli::Chosen(values, "emit", "plan", "settings"));
  const bool plot_wanted = values.count("plot") > 0;
  if (settings_wanted && (json_wanted || plot_wanted)) {
    return cli::UsageError("--emit settings is a text of its own: leave --format and --plot out");
  }
  // --calibrate may stand alone, without a plan.
  const bool only_calibrate = values.count("calibrate") && !values.count("records") &&
                              !values.count("queries") && !values.count("value-bytes");
  if (only_calibrate && (settings_wanted || plot_wanted)) {
    return cli::UsageError(
        absl::StrCat(settings_wanted ? "--emit settings" : "--plot",
                     ": of which plan? --records, --value-bytes and --queries say"));
  }
  SHOAL_ASSIGN_OR_RETURN(const Question asked, QuestionOf(values, /*plans=*/!only_calibrate));
  SHOAL_ASSIGN_OR_RETURN(const plan::UnitCosts costs, CostsOf(values, io));
  if (only_calibrate) {
    io.out << wire::PrintText(costs);
    return absl::OkStatus();
  }

  if (asked.target.exposure.phi > 1) {
    io.err << "shoal plan: searching the least noise; some ten seconds for phi above 1"
           << std::endl;
  }
  SHOAL_ASSIGN_OR_RETURN(const noise::Choice choice, FindNoise(asked.mechanism, asked.target));
  SHOAL_ASSIGN_OR_RETURN(plan::Plan plan, PlanOf(asked, choice, costs));
  if (settings_wanted) {
    const std::string advice = plan::DownloadAdvice(plan);
    if (!advice.empty()) io.err << "shoal plan: " << advice << std::endl;
    io.out << SettingsText(plan, asked.workload, choice,
                           absl::StrCat(ProtectionText(choice.parameters), "\n", advice));
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(plan::CompareEngines(asked.workload.WithoutTerm(), asked.row_bytes, choice,
                                             costs, asked.engines, plan));
  SHOAL_RETURN_IF_ERROR(AddProposal(asked, choice, costs, plan));
  AddEpsilons(asked, costs, plan);
  if (plot_wanted) {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(cli::TextOr(values, "plot", ""),
                                              AsBytes(plan::DrawPlan(plan)), FileMode::kPublic));
  }
  if (json_wanted) return PrintJson(plan, io.out);
  plan::PrintPlan(plan, io.out);
  return absl::OkStatus();
}

constexpr char kPlanHelp[] =
    R"(Chooses the noise (the least that gives epsilon and delta) and the row size (of those
within 10 % of the lowest price, the one with the least processor time) and predicts,
for one round: noise, processor time of every stage at every party, wall times of the
stages over the whole chain, memory, traffic on every hop and per client, and the cost
of a million queries; then how all of these depend on the row size and on epsilon.
epsilon and delta are those of one round, for phi changed queries of one client.

Times come from unit costs: those of this machine if --calibrate has measured them (in
half a minute, with up to a gigabyte of memory; alone or together with a plan),
otherwise built-in ones. Prices have no currency; the defaults are examples. A gigabyte
is 10^9 bytes and paid on every hop.

With --machines a party has several machines, which share its work: memory and wall times
are those of one of them, processor times those of all. What passes between machines of a
party is padded to bounds that depend on the numbers of positions alone.

The plan also shows what each single-server engine would cost with its own best row
size, and from how many queries a round the chain takes less processor time and costs
less. An engine's set-up is counted once a day, and what a client fetches before its
first lookup (hint, placement, lists of rows' epochs) once for every --lookups-per-hint
queries of a client. Where downloading the table is the better idea than any of it, the
plan says so.

With two parties of one machine each it also plans two tiers: noise for buckets of rows, in
which the row is hidden as by two servers. Of rows, two tiers, every engine and a download
it proposes the cheapest for whom the client trusts: --trust one is no server at all, two
is two parties that do not collude, chain is one honest party among --parties. --cheapest
time counts the servers' processor time in place of the price. It says from how many
queries a round on two tiers are better than each of the others.

With --refreshes the round is the start of a term: a device's list of --phi keys is asked
once, and answered again at so many later epochs, of which there are --rounds-per-day. The
plan then has what a refresh costs, what a term keeps on disk, and which keys have to wait
for room, and compares, for a device and epoch, the term with a round for each epoch, with
downloading the table or what changed in it, and with single-server engines; what 30 days
reveal is counted as the ledger of a device does. A download has all records, or those that
changed, signed once.

--emit settings prints settings for `shoal ceremony` in place of the plan, with the noise to
its last digit and names and addresses to be changed.
)";

constexpr char kPlanExamples[] = R"(  shoal plan --calibrate
  shoal plan --records 1M --key-bytes 24 --value-bytes 60 --queries 1M --epsilon 0.1
  shoal plan --records 1M --layout dense --value-bytes 8 --queries 100k \
      --rounds-per-day 24 --parties 2 --cores 16 --plot plan.svg
  shoal plan --records 1M --value-bytes 60 --queries 1M --phi 64 --emit settings
  shoal plan --records 2500k --layout dense --value-bytes 4 --queries 10k --epsilon 0.1 \
      --parties 2 --cheapest time
  shoal plan --records 100k --value-bytes 12 --queries 10M --phi 20 --refreshes 29 \
      --changed-percent 2 --room-percent 20
  shoal plan --records 100M --layout dense --value-bytes 4 --queries 100M --epsilon 0.1 \
      --parties 2 --machines 8,16 --cores 16 --price-machine-hour 0.8
)";

void AddPlanOptions(cli::Options& options) {
  options.add_options()("records", cli::Number(), "records in the table");
  options.add_options()("key-bytes", cli::Number(), "bytes of a key; hashed layout (16)");
  options.add_options()("value-bytes", cli::Number(), "bytes of a value");
  options.add_options()("layout", cli::Text(), "hashed (default) or dense");
  options.add_options()("queries", cli::Number(), "queries a round, of all clients");
  options.add_options()("rounds-per-day", cli::Text(), "rounds a day (1)");
  options.add_options()("refreshes", cli::Number(),
                        "of the round's term: its answers are given again so often (0)");
  options.add_options()("changed-percent", cli::Text(),
                        "records that change from one epoch to the next (1)");
  options.add_options()("room-percent", cli::Number(),
                        "of a term: what `table build` leaves free in rows (so much that at "
                        "most 1 % of the keys wait for the next term)");
  options.add_options()("parties", cli::Number(), "parties, 2 to 8 (3)");
  options.add_options()("machines", cli::Text(),
                        "machines of each party, or of party 1, 2, ...: 4 or 4,2,1 (1)");
  options.add_options()("cores", cli::Number(), "cores of each machine (1)");
  options.add_options()("one-machine", "all parties share one machine with these cores");
  options.add_options()("spool-memory-mib", cli::Number(),
                        "of each party, as in its configuration; decides whether masks "
                        "are made ahead of time (a quarter of this machine's memory)");
  options.add_options()("lookups-per-hint", cli::Text(),
                        "queries that a client makes with one hint (100)");
  options.add_options()("max-hint-mib", cli::Number(),
                        "refuse an engine whose hint is larger, as shoald does (1024)");
  options.add_options()("epsilon", cli::Text(), "privacy of one round (1)");
  options.add_options()("delta", cli::Text(), "privacy of one round (1e-6)");
  options.add_options()("phi", cli::Number(), "queries of one client to hide together (1)");
  options.add_options()("mechanism", cli::Text(),
                        "auto (default), clamped_laplace, geometric, split_gaussian");
  options.add_options()("trust", cli::Text(),
                        "what is proposed relies on: one (no server), two (two parties do not "
                        "collude), chain (one of all parties is honest; default)");
  options.add_options()("cheapest", cli::Text(),
                        "what is least: price (default), or time: the servers' processors'");
  options.add_options()("most-in-bucket", cli::Number(),
                        "of two tiers: a client's queries for one bucket, at most (the least "
                        "with which a random list of --phi keys is asked)");
  options.add_options()("row-bytes", cli::Number(), "fixes the row size");
  options.add_options()("price-core-hour", cli::Text(), "price of an hour of one core (0.04)");
  options.add_options()("price-machine-hour", cli::Text(),
                        "price of an hour of one machine, for what a round's machines "
                        "cost while it is at work (0)");
  options.add_options()("price-gb", cli::Text(), "price of 10^9 bytes on one hop (0.05)");
  options.add_options()("calibrate", "measure this machine and keep its unit costs");
  options.add_options()("costs", cli::File(),
                        "file of unit costs (~/.config/shoal/costs.textproto)");
  AddFormatOption(options, "table");
  options.add_options()("emit", cli::Text(),
                        "plan (default), or settings: for the parties to agree on");
  options.add_options()("plot", cli::File(), "draw the plan here, as SVG");
}

}  // namespace

cli::Command PlanCommand() {
  return {
      .name = "plan",
      .summary = "predict what a deployment will cost before anything runs",
      .help = kPlanHelp,
      .examples = kPlanExamples,
      .options = AddPlanOptions,
      .positional = "",
      .run = RunPlan,
  };
}

}  // namespace shoal::commands
