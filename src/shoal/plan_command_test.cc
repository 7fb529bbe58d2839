#include "src/shoal/plan_command.h"

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/util/json_util.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/cli/command.h"
#include "src/client/ledger.h"
#include "src/noise/noise.h"
#include "src/pir/registry/registry.h"
#include "src/plan/calibrate.h"
#include "src/plan/plan.pb.h"
#include "src/plan/report.h"
#include "src/roster/assemble.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

using ::testing::HasSubstr;

struct Result {
  cli::ExitCode code;
  std::string out, err;
};

Result RunPlanCommand(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  std::ostringstream out, err;
  std::istringstream in;
  cli::Io io{.out = out, .err = err, .in = in, .err_is_terminal = false};
  const std::vector<cli::Command> commands = {PlanCommand()};
  const cli::ExitCode code = cli::RunProgram("shoal", "", commands, arguments, io);
  return {code, out.str(), err.str()};
}

std::string Path(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// A file of unit costs for every test, so that no test depends on the home directory.
std::string Costs() {
  const std::string path = Path("costs.textproto");
  plan::UnitCosts costs = plan::DefaultCosts();
  costs.set_machine("a test");
  const std::string text = wire::PrintText(costs);
  EXPECT_TRUE(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic).ok());
  return path;
}

std::vector<std::string> Good(std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"--costs",       Costs(), "--records", "10k", "--key-bytes", "20",
                                  "--value-bytes", "40",    "--queries", "1000"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(PlanCommandTest, PrintsThePlan) {
  const Result result = RunPlanCommand(Good());
  ASSERT_EQ(result.code, cli::kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("unit costs: a test"));
  EXPECT_THAT(result.out, HasSubstr("10,000 records in"));
  EXPECT_THAT(result.out, HasSubstr("if epsilon moves"));
  EXPECT_THAT(result.out, HasSubstr("the chain beats simplepir in processor time never"));
  EXPECT_THAT(result.out, HasSubstr("its online stage alone from"));
  EXPECT_THAT(result.out, HasSubstr("the chain beats doublepir in processor time from"));
  EXPECT_THAT(result.out, HasSubstr("wall time over the whole chain: offline stage"));
}

TEST(PlanCommandTest, JsonIsThePlanAndThePlotIsSvg) {
  const std::string plot = Path("plan.svg");
  const Result result =
      RunPlanCommand(Good({"--format", "json", "--plot", plot, "--row-bytes", "1000", "--mechanism",
                           "clamped_laplace", "--parties", "2"}));
  ASSERT_EQ(result.code, cli::kExitOk) << result.err;
  plan::Plan plan;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &plan).ok()) << result.out;
  EXPECT_EQ(plan.table().row_bytes(), 1000u);
  EXPECT_EQ(plan.noise().mechanism(), "clamped_laplace");
  EXPECT_LE(plan.noise().true_delta(), 1e-6);
  EXPECT_GT(plan.noise().max_per_row(), plan.noise().mean_per_row());
  EXPECT_EQ(plan.party_size(), 2);
  ASSERT_EQ(plan.engine_size(), 1 + static_cast<int>(pir::Engines().size()));
  for (int i = 1; i < plan.engine_size(); ++i) {
    const plan::EngineCosts& engine = plan.engine(i);
    EXPECT_EQ(engine.engine(), std::string(pir::Engines()[i - 1]->name()));
    if (engine.engine() == "doublepir") {
      EXPECT_THAT(engine.refused(), HasSubstr("use simplepir for wide rows"));
      continue;
    }
    EXPECT_EQ(engine.refused(), "") << engine.engine();
    EXPECT_GT(engine.alone_seconds(), 0) << engine.engine();
    EXPECT_EQ(engine.row_bytes(), 1000u) << engine.engine();
  }
  EXPECT_GT(plan.engine(1).chain_online_beats_cpu_from_queries(), 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string svg, ReadFile(plot));
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_THAT(svg, HasSubstr("price of a million queries"));
  EXPECT_THAT(svg, HasSubstr(">simplepir</text>"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
}

// Rows, two tiers, every engine and a download stand beside each other, in the text and in JSON.
TEST(PlanCommandTest, ProposesAWay) {
  const std::vector<std::string> options = {"--parties", "2", "--cheapest", "time"};
  const Result text = RunPlanCommand(Good(options));
  ASSERT_EQ(text.code, cli::kExitOk) << text.err;
  EXPECT_THAT(text.out, HasSubstr("two tiers: noise for "));
  EXPECT_THAT(text.out,
              HasSubstr("For a client that trusts one of 2 parties the way with the least "
                        "work is "));
  EXPECT_THAT(text.out, HasSubstr("two tiers take less processor time than rows "));
  EXPECT_THAT(text.out, HasSubstr("two tiers take less processor time than pair "));
  EXPECT_THAT(text.out, HasSubstr("two tiers take less processor time than download "));
  std::vector<std::string> json = options;
  json.insert(json.end(), {"--format", "json"});
  const Result result = RunPlanCommand(Good(json));
  plan::Plan plan;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &plan).ok()) << result.out;
  EXPECT_EQ(plan.proposal().trust(), "chain");
  EXPECT_EQ(plan.proposal().aim(), "time");
  ASSERT_EQ(plan.proposal().candidate_size(), 3 + static_cast<int>(pir::Engines().size()));
  EXPECT_EQ(plan.proposal().candidate(0).way(), "rows");
  EXPECT_EQ(plan.proposal().candidate(1).way(), "two tiers");
  EXPECT_THAT(text.out, HasSubstr(plan.proposal().why()));
  EXPECT_GT(plan.two_tiers().buckets(), 1);
  EXPECT_GT(plan.two_tiers().noise().mean_per_row(), 0);
  // A chain of three has none, and says why; a term, too.
  const Result three = RunPlanCommand(Good({"--trust", "two"}));
  EXPECT_THAT(three.out, HasSubstr("two tiers are for exactly two parties, got --parties 3"));
  EXPECT_THAT(three.out, HasSubstr("For a client that trusts two parties not to collude"));
  const Result term =
      RunPlanCommand(Good({"--parties", "2", "--refreshes", "2", "--format", "json"}));
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(term.out, &plan).ok()) << term.out;
  EXPECT_THAT(plan.two_tiers().refused(), HasSubstr("--refreshes 2"));
  EXPECT_FALSE(plan.has_proposal());
}

// A plan proposes them to whom trusts two parties, where they take the least work.
TEST(PlanCommandTest, TwoTiersAreProposed) {
  const Result result =
      RunPlanCommand({"--costs", Costs(), "--records", "2500k", "--layout", "dense",
                      "--value-bytes", "4", "--queries", "100k", "--epsilon", "0.1", "--parties",
                      "2", "--trust", "two", "--cheapest", "time"});
  ASSERT_EQ(result.code, cli::kExitOk) << result.err;
  EXPECT_THAT(result.out, HasSubstr("* two tiers"));
}

// The parties' numbers of machines, and what they cost, are in the text and in the JSON.
TEST(PlanCommandTest, PartiesHaveMachines) {
  const Result text = RunPlanCommand(Good({"--machines", "4,1,2", "--price-machine-hour", "1.5"}));
  ASSERT_EQ(text.code, cli::kExitOk) << text.err;
  EXPECT_THAT(text.out, HasSubstr("what each sends to the others of its party"));
  EXPECT_THAT(text.out, HasSubstr("7 machines for the "));
  EXPECT_THAT(text.out, HasSubstr(" at 1.5 an hour"));
  const Result json = RunPlanCommand(Good({"--machines", "3", "--format", "json"}));
  plan::Plan plan;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json.out, &plan).ok()) << json.out;
  EXPECT_EQ(plan.rental().machines(), 9);
  for (const plan::Party& party : plan.party()) {
    EXPECT_EQ(party.machines(), 3u);
    EXPECT_GT(party.sent_offline_bytes(), 0);
  }
  EXPECT_EQ(RunPlanCommand(Good()).out.find("machines for the"), std::string::npos);
}

TEST(PlanCommandTest, BadParametersAreNamedWithTheirRange) {
  const struct {
    std::vector<std::string> options;
    const char* message;
  } kBad[] = {
      {{"--epsilon", "0"}, "--epsilon must be in [1e-06, 50], got 0"},
      {{"--epsilon", "51"}, "--epsilon must be in [1e-06, 50], got 51"},
      {{"--epsilon", "nan"}, "--epsilon: \"nan\" is no number"},
      {{"--delta", "1"}, "--delta must be in [1e-15, 1), got 1"},
      {{"--delta", "1e-30"}, "--delta must be in [1e-15, 1), got 1e-30"},
      {{"--phi", "0"}, "--phi must be in [1, 1000000], got 0"},
      {{"--parties", "1"}, "--parties must be in [2, 8], got 1"},
      {{"--cores", "0"}, "--cores must be in [1, 65536], got 0"},
      {{"--rounds-per-day", "0"}, "--rounds-per-day must be above 0"},
      {{"--price-gb", "-1"}, "--price-gb must be in [0, 1e6], got -1"},
      {{"--row-bytes", "30"}, "--row-bytes must be at least 62"},
      {{"--row-bytes", "2M"}, "--row-bytes must be in [1, 1048576], got 2e+06"},
      {{"--layout", "round"}, "there are hashed and dense"},
      {{"--mechanism", "none"}, "there are auto, clamped_laplace"},
      {{"--max-hint-mib", "0"}, "--max-hint-mib must be in [1, 1048576], got 0"},
      {{"--lookups-per-hint", "0.5"}, "--lookups-per-hint must be in [1, 1e9], got 0.5"},
      {{"--lookups-per-hint", "few"}, "--lookups-per-hint: \"few\" is no number"},
      {{"--format", "xml"}, "there are table and json"},
      {{"--machines", "0"}, "--machines must be in [1, 64], got 0"},
      {{"--machines", "1,65,1"}, "--machines must be in [1, 64], got 65"},
      {{"--machines", "2,2"}, "--machines names 2 parties, --parties 3"},
      {{"--machines", "2,,2"}, "--machines: \"\" is no number"},
      {{"--machines", "-2"}, "--machines: \"-2\" is no number"},
      {{"--machines", ""}, "--machines: how many?"},
      {{"--machines", "2", "--one-machine"}, "with --one-machine all parties share one machine"},
      {{"--price-machine-hour", "x"}, "--price-machine-hour: \"x\" is no number"},
      {{"--room-percent", "10"}, "--refreshes says how long it is"},
      {{"--changed-percent", "101"}, "--changed-percent must be above 0 and at most 100, got 101"},
      {{"--trust", "nobody"}, "--trust nobody: there are one, two and chain"},
      {{"--cheapest", "best"}, "there are price and time"},
      {{"--most-in-bucket", "0"}, "--most-in-bucket must be in [1, 10000], got 0"},
      {{"--most-in-bucket", "10001"}, "--most-in-bucket must be in [1, 10000], got 10001"},
      {{"--most-in-bucket", "2", "--refreshes", "2"}, "--most-in-bucket is of a round"},
      {{"--trust", "one", "--refreshes", "2"}, "--trust is of a round"},
      {{"--refreshes", "29", "--room-percent", "91"}, "--room-percent must be at most 90, got 91"},
      {{"--refreshes", "29", "--changed-percent", "few"}, "\"few\" is no number"},
      {{"--refreshes", "92"}, "the term has 93 days; at most 92"},
      {{"--refreshes", "2", "--machines", "2"}, "keeps no terms"},
  };
  for (const auto& bad : kBad) {
    const Result result = RunPlanCommand(Good(bad.options));
    EXPECT_EQ(result.code, cli::kExitUsage) << bad.message;
    EXPECT_THAT(result.err, HasSubstr(bad.message));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_THAT(RunPlanCommand({"--records", "5"}).err, HasSubstr("--value-bytes is missing"));
  // Noise beyond what a roster can name, and more positions than there are numbers for.
  const Result noise = RunPlanCommand(Good({"--epsilon", "1e-6", "--delta", "1e-15"}));
  EXPECT_EQ(noise.code, cli::kExitFailed);
  EXPECT_THAT(noise.err, HasSubstr("noise"));
}

// What is emitted is what parties can sign: with keys it is a roster whose noise gives what it
// claims, to the last digit.
TEST(PlanCommandTest, SettingsMakeARoster) {
  for (const char* machines : {"1", "1,3,2"}) {
    const Result result =
        RunPlanCommand(Good({"--emit", "settings", "--machines", machines, "--epsilon", "0.7"}));
    ASSERT_EQ(result.code, cli::kExitOk) << result.err;
    wire::Roster settings;
    SHOAL_ASSERT_OK(wire::ParseText(result.out, "settings", settings));
    EXPECT_EQ(settings.max_slots(), 1000u);
    EXPECT_THAT(result.out, HasSubstr("\n# a round protects single lookups"));
    shoal::testing::TestRandom random(3);
    std::vector<wire::PartyAnnouncement> announcements;
    for (const wire::Party& party : settings.parties()) {
      const auto keys = roster::PartyKeys::Generate(party.name(), roster::testing::kNowS, random);
      announcements.push_back(keys->announcement());
    }
    SHOAL_EXPECT_OK(
        roster::AssembleRoster(settings, announcements, roster::testing::kNowS).status());
  }
  EXPECT_EQ(RunPlanCommand(Good({"--emit", "settings", "--format", "json"})).code, cli::kExitUsage);
  EXPECT_EQ(RunPlanCommand(Good({"--emit", "roster"})).code, cli::kExitUsage);
  EXPECT_EQ(RunPlanCommand({"--calibrate", "--emit", "settings"}).code, cli::kExitUsage);
}

// A billion queries fit the slots of one round. Beyond what a roster allows, settings have that.
TEST(PlanCommandTest, SettingsOfABillionQueriesAreOneRound) {
  for (const auto& [queries, slots] : {std::pair<const char*, uint32_t>{"1000000000", 1000000000},
                                       {"1100000000", roster::kMaxSlots}}) {
    const Result result = RunPlanCommand(
        {"--costs", Costs(), "--records", "10k", "--key-bytes", "20", "--value-bytes", "40",
         "--queries", queries, "--parties", "2", "--machines", "8", "--emit", "settings"});
    ASSERT_EQ(result.code, cli::kExitOk) << result.err;
    wire::Roster settings;
    SHOAL_ASSERT_OK(wire::ParseText(result.out, "settings", settings));
    EXPECT_EQ(settings.max_slots(), slots);
  }
}

TEST(PlanCommandTest, APlotIsDrawnOrRefused) {
  const std::string plot = Path("none.svg");
  Result result = RunPlanCommand(Good({"--emit", "settings", "--plot", plot}));
  EXPECT_EQ(result.code, cli::kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("leave --format and --plot out"));
  result = RunPlanCommand({"--calibrate", "--plot", plot});
  EXPECT_EQ(result.code, cli::kExitUsage);
  EXPECT_THAT(result.err, HasSubstr("--plot: of which plan?"));
  EXPECT_FALSE(ReadFile(plot).ok());
}

TEST(PlanCommandTest, SaysWhenADownloadIsTheBetterIdea) {
  const std::string better = "Downloading the table is the better idea";
  // Ten records are a kilobyte; a million records are not.
  const auto with = [](const std::string& records, const std::string& queries) {
    return std::vector<std::string>{"--costs",       Costs(), "--records", records,
                                    "--value-bytes", "40",    "--queries", queries};
  };
  Result result = RunPlanCommand(with("10", "100"));
  EXPECT_THAT(result.out, HasSubstr(better)) << result.err;
  std::vector<std::string> emit = with("10", "100");
  emit.insert(emit.end(), {"--emit", "settings"});
  result = RunPlanCommand(emit);
  EXPECT_THAT(result.out, HasSubstr("# " + better));
  EXPECT_THAT(result.err, HasSubstr(better));
  result = RunPlanCommand(with("1M", "10M"));
  ASSERT_EQ(result.code, cli::kExitOk) << result.err;
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr(better)));
}

std::vector<std::string> InTerms(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"--parties", "2", "--refreshes", "29"});
  return Good(more);
}

TEST(PlanCommandTest, ATermIsPlannedBesideItsAlternatives) {
  const Result result = RunPlanCommand(InTerms());
  ASSERT_EQ(result.code, cli::kExitOk) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("a term: a list of 1 key, asked once and answered at 30 epochs, "
                        "30 days; 1 % of the records change at each"));
  EXPECT_THAT(result.out, HasSubstr("a round for each epoch"));
  EXPECT_THAT(result.out, HasSubstr("download: what changed"));
  EXPECT_THAT(result.out, HasSubstr("keys wait for the next term, as their rows are full"));
  EXPECT_THAT(result.out, HasSubstr("a record that is new or changed is 62 B of a difference, one "
                                    "that goes 22 B"));
  const Result json = RunPlanCommand(InTerms({"--format", "json", "--phi", "1"}));
  plan::Plan plan;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json.out, &plan).ok()) << json.out;
  ASSERT_EQ(plan.term().way_size(), 6);
  // A month of terms is one question; a month of rounds is what the ledger says of 30.
  const plan::Method &term = plan.term().way(0), &round = plan.term().way(1);
  EXPECT_EQ(term.month_submissions(), 1);
  EXPECT_EQ(round.month_submissions(), 30);
  EXPECT_NEAR(term.month_epsilon(), 1, 0.01);
  EXPECT_EQ(term.month_delta(), 1e-6);
  noise::Parameters noise = {.mechanism = noise::Mechanism::kGeometric,
                             .epsilon = plan.noise().epsilon(),
                             .delta = plan.noise().delta(),
                             .phi = 1,
                             .mode = plan.noise().mode(),
                             .left_scale = plan.noise().left_scale(),
                             .right_scale = plan.noise().right_scale()};
  ASSERT_EQ(plan.noise().mechanism(), "geometric");
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::TotalLoss loss, client::LossOf(noise, 30, 1e-6, 0));
  ASSERT_TRUE(loss.beyond.has_value());
  EXPECT_EQ(round.month_epsilon(), loss.beyond->epsilon);
  EXPECT_EQ(round.month_delta(), loss.beyond->delta);
  // A week's terms are five in a month.
  const Result weeks = RunPlanCommand(Good({"--refreshes", "6", "--format", "json"}));
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(weeks.out, &plan).ok()) << weeks.out;
  EXPECT_EQ(plan.term().way(0).month_submissions(), 5);
  EXPECT_GT(plan.term().way(0).month_epsilon(), term.month_epsilon());
}

// 10,000 records of 62 bytes change by 6 kB a day: nobody needs a chain for that. What is emitted
// says so, too, and allows the term.
TEST(PlanCommandTest, SaysWhenDifferencesAreTheBetterIdea) {
  const std::string better = "Downloading what changed at every epoch is the better idea";
  EXPECT_THAT(RunPlanCommand(InTerms()).out, HasSubstr(better));
  const Result settings = RunPlanCommand(InTerms({"--emit", "settings"}));
  EXPECT_THAT(settings.out, HasSubstr("# " + better));
  EXPECT_THAT(settings.err, HasSubstr(better));
  EXPECT_THAT(settings.out, HasSubstr("--room-percent "));
  EXPECT_THAT(settings.out, HasSubstr("# Party 1's configuration: rounds { terms { refreshes: 29 "
                                      "days: 30 } }"));
  wire::Roster roster;
  SHOAL_ASSERT_OK(wire::ParseText(settings.out, "settings", roster));
  EXPECT_EQ(roster.term_limit().days(), 30u);
  EXPECT_EQ(roster.term_limit().refreshes(), 29u);
  const Result large = RunPlanCommand({"--costs", Costs(), "--records", "2M", "--value-bytes", "40",
                                       "--queries", "20M", "--refreshes", "29"});
  ASSERT_EQ(large.code, cli::kExitOk) << large.err;
  EXPECT_THAT(large.out, ::testing::Not(HasSubstr("better idea")));
  EXPECT_THAT(large.out, HasSubstr("Of the downloads none is cheaper than the term"));
}

// A client whose queries of one round move more than the table has should take the table.
TEST(PlanCommandTest, AListThatIsLargerThanTheTableIsNoUse) {
  plan::Plan plan;
  plan.set_queries(1000);
  plan.mutable_noise()->set_phi(64);
  plan.mutable_download()->set_client_bytes(5000);
  plan.mutable_download()->set_break_even_lookups(63);
  plan.mutable_download()->set_break_even_queries(10);
  EXPECT_THAT(plan::DownloadAdvice(plan),
              HasSubstr("a client that asks 64 queries in a round moves "
                        "more bytes than the whole table has, 5 kB"));
  plan.mutable_download()->set_break_even_lookups(64);
  EXPECT_EQ(plan::DownloadAdvice(plan), "");
  plan.mutable_download()->set_break_even_queries(1001);
  EXPECT_THAT(plan::DownloadAdvice(plan), HasSubstr("at these prices"));
  plan.mutable_download()->set_break_even_queries(0);
  EXPECT_THAT(plan::DownloadAdvice(plan), HasSubstr("at these prices"));
}

// A file of another version in the default place is reported and not used.
TEST(PlanCommandTest, OldCostsGiveWayToBuiltInOnes) {
  const std::string home = Path("config");
  ASSERT_TRUE(MakeDirectory(home, FileMode::kPublic).ok());
  ASSERT_TRUE(MakeDirectory(home + "/shoal", FileMode::kPublic).ok());
  ASSERT_TRUE(WriteFileAtomically(home + "/shoal/costs.textproto", AsBytes("box_byte_ns: 1"),
                                  FileMode::kPublic)
                  .ok());
  ASSERT_EQ(setenv("XDG_CONFIG_HOME", home.c_str(), 1), 0);
  const Result result =
      RunPlanCommand({"--records", "10k", "--value-bytes", "8", "--queries", "10"});
  unsetenv("XDG_CONFIG_HOME");
  EXPECT_EQ(result.code, cli::kExitOk) << result.err;
  EXPECT_THAT(result.err, HasSubstr("not used:"));
  EXPECT_THAT(result.out, HasSubstr("built in, measured on"));
}

TEST(PlanCommandTest, CostsThatMissOneAreRefused) {
  const std::string path = Path("short.textproto");
  ASSERT_TRUE(
      WriteFileAtomically(path, AsBytes("seal_ns: 5 place { few_ns: 3 }"), FileMode::kPublic).ok());
  const Result result = RunPlanCommand(Good({"--costs", path}));
  EXPECT_NE(result.code, cli::kExitOk);
  const Result other =
      RunPlanCommand({"--costs", path, "--records", "10", "--value-bytes", "8", "--queries", "10"});
  EXPECT_EQ(other.code, cli::kExitFailed);
  EXPECT_THAT(other.err, HasSubstr("must be above 0 and below 1e9, got 0"));
}

}  // namespace
}  // namespace shoal::commands
