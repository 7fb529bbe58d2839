#include "src/shoald/config.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/address_block.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/roster/testing/parties.h"
#include "src/storage/file.h"

namespace shoal::shoald {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kGood[] =
    "party: 2 keys_directory: 'keys' roster_file: '../roster' pinned_parties_file: '/etc/pins' "
    "table_directory: './table' state_directory: 'state/here' ";

std::string PathOf(const std::string& name) { return absl::StrCat(::testing::TempDir(), name); }

absl::StatusOr<ServerConfig> Read(const std::string& text) {
  const std::string path = PathOf("party.textproto");
  SHOAL_CHECK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic).ok());
  return ReadServerConfig(path);
}

TEST(ConfigTest, PathsStartAtTheFilesDirectoryAndDefaultsAreFilledIn) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ServerConfig config, Read(kGood));
  const std::filesystem::path base = std::filesystem::path(PathOf("x")).parent_path();
  EXPECT_EQ(config.party(), 2u);
  EXPECT_EQ(config.keys_directory(), (base / "keys").string());
  EXPECT_EQ(config.roster_file(), (base.parent_path() / "roster").string());
  EXPECT_EQ(config.pinned_parties_file(), "/etc/pins");
  EXPECT_EQ(config.table_directory(), (base / "table").string());
  EXPECT_EQ(config.state_directory(), (base / "state/here").string());
  EXPECT_EQ(config.listen_address(), "");
  EXPECT_EQ(config.max_connections(), 4096u);
  EXPECT_EQ(config.stage_limit_s(), 3600u);
  EXPECT_EQ(config.machines_progress_limit_s(), 30u);
  EXPECT_EQ(config.shares().connections(), 10u);
  EXPECT_EQ(config.shares().new_connections(), 10u);
  EXPECT_EQ(config.shares().buffers(), 10u);
  EXPECT_EQ(config.shares().slots(), 25u);
}

// The least is what machines::Machines takes: with less it would end the process.
TEST(ConfigTest, TheLimitOfProgressBetweenMachinesIsTaken) {
  for (const uint32_t limit_s : {15u, 600u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const ServerConfig config,
                               Read(absl::StrCat(kGood, "machines_progress_limit_s: ", limit_s)));
    EXPECT_EQ(config.machines_progress_limit_s(), limit_s);
  }
}

// By default those of this machine, so that a deployment on one machine, with a crowd, works.
TEST(ConfigTest, SharedAddressesAreGroups) {
  const IpAddress here = MappedIpv4({127, 0, 0, 1}), there = MappedIpv4({192, 0, 2, 7});
  SHOAL_ASSERT_OK_AND_ASSIGN(ServerConfig config, Read(kGood));
  EXPECT_TRUE(SharedAddresses(config).Contains(here));
  IpAddress here6 = {};
  here6[15] = 1;
  EXPECT_TRUE(SharedAddresses(config).Contains(here6));
  EXPECT_FALSE(SharedAddresses(config).Contains(there));
  EXPECT_EQ(config.group_shares().connections(), 50u);
  EXPECT_EQ(config.group_shares().new_connections(), 50u);
  EXPECT_EQ(config.group_shares().buffers(), 50u);
  EXPECT_EQ(config.group_shares().slots(), 100u);
  SHOAL_ASSERT_OK_AND_ASSIGN(config, Read(absl::StrCat(kGood, "shared_addresses: '192.0.2.0/24'")));
  EXPECT_FALSE(SharedAddresses(config).Contains(here));
  EXPECT_TRUE(SharedAddresses(config).Contains(there));
}

TEST(ConfigTest, ClientsDoNotConnectWhereTheNeighbourDoes) {
  shoal::testing::TestRandom random(1);
  roster::testing::Parties parties(3, random);
  parties.draft().mutable_parties(1)->set_peer_address("h:1");
  parties.draft().mutable_parties(1)->set_client_address("h:2");
  const roster::Roster roster = parties.roster();
  const auto check = [&](const std::string& more) {
    const auto config = Read(absl::StrCat(kGood, more));
    return config.ok() ? CheckListeners(*config, roster) : config.status();
  };
  SHOAL_EXPECT_OK(check(""));
  SHOAL_EXPECT_OK(check("listen_address: 'h:3' client_listen_address: 'h:4'"));
  for (const char* same : {"listen_address: 'h:2'", "client_listen_address: 'h:1'",
                           "listen_address: 'h:3' client_listen_address: 'h:3'"}) {
    EXPECT_THAT(check(same),
                StatusIs(kInvalid, "give clients another port, client_listen_address"));
  }
}

TEST(ConfigTest, ARelativePathOfTheFileItselfIsFine) {
  SHOAL_ASSERT_OK(Read(kGood));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(::testing::TempDir());
  const auto config = ReadServerConfig("party.textproto");
  std::filesystem::current_path(before);
  SHOAL_ASSERT_OK(config);
  EXPECT_EQ(config->keys_directory(), PathOf("keys"));
}

TEST(ConfigTest, ErrorsNameTheFileAndWhatIsWrong) {
  EXPECT_THAT(ReadServerConfig(PathOf("none")), StatusIs(absl::StatusCode::kNotFound, "none"));
  struct Case {
    std::string text, part;
  };
  std::vector<Case> cases = {
      {"", "party is missing"},
      {absl::StrCat(kGood, "nonsense: 1"), "party.textproto:1:"},
      {absl::StrCat(kGood, "\nparty: 3"), "party.textproto:2:"},
      {absl::StrCat(kGood, "\n\nthreads: -1"), "party.textproto:3:"},
      {absl::StrCat(kGood, "rounds { open_ahead: 1 }"), "rounds are party 1's"},
      {absl::StrCat(kGood, "threads: 1025"), "threads: at most"},
      {absl::StrCat(kGood, "max_connections: 1000001"), "max_connections: at most"},
      {absl::StrCat(kGood, "stage_limit_s: 86401"), "stage_limit_s: at most"},
      {absl::StrCat(kGood, "machines_progress_limit_s: 14"),
       "machines_progress_limit_s: 15 to 600"},
      {absl::StrCat(kGood, "machines_progress_limit_s: 601"), "machines_progress_limit_s: 15 to"},
      {absl::StrCat(kGood, "shares { buffers: 101 }"), "shares: at most 100"},
      {absl::StrCat(kGood, "shares { slots: 101 }"), "shares: at most 100"},
      {absl::StrCat(kGood, "group_shares { slots: 101 }"), "group_shares: at most 100"},
      {absl::StrCat(kGood, "group_shares { connections: 4294967295 }"), "group_shares: at most"},
      {absl::StrCat(kGood, "shared_addresses: '127.0.0.1/8'"),
       "shared_addresses: '127.0.0.1/8': expected"},
      {absl::StrCat(kGood, "monitoring {}"), "monitoring.port: 1 to"},
      {absl::StrCat(kGood, "monitoring { port: 65536 }"), "monitoring.port: 1 to"},
      {std::string(kGood).replace(7, 1, "x"), "party.textproto:1:"},
  };
  const std::string good = kGood;
  for (const std::string field : {"keys_directory", "roster_file", "pinned_parties_file",
                                  "table_directory", "state_directory"}) {
    const size_t at = good.find(field);
    const size_t end = good.find(" ", good.find("'", at)) + 1;
    cases.push_back({good.substr(0, at) + good.substr(end), field + " is missing"});
  }
  for (const Case& c : cases) {
    EXPECT_THAT(Read(c.text), StatusIs(kInvalid, c.part)) << c.text;
    EXPECT_THAT(Read(c.text), StatusIs(kInvalid, "party.textproto")) << c.text;
  }
}

TEST(ConfigTest, MonitoringIsOffUnlessAskedForAndThenForThisMachineAlone) {
  SHOAL_ASSERT_OK_AND_ASSIGN(ServerConfig config, Read(kGood));
  EXPECT_FALSE(config.has_monitoring());
  SHOAL_ASSERT_OK_AND_ASSIGN(config, Read(absl::StrCat(kGood, "monitoring { port: 9464 }")));
  EXPECT_EQ(config.monitoring().host(), "127.0.0.1");
  SHOAL_ASSERT_OK_AND_ASSIGN(config,
                             Read(absl::StrCat(kGood, "monitoring { port: 9464 host: '[::]' }")));
  EXPECT_EQ(config.monitoring().host(), "[::]");
}

TEST(ConfigTest, ThePlanTakesWhatIsGivenAndDefaultsForTheRest) {
  shoal::testing::TestRandom random(1);
  const roster::Roster roster = roster::testing::Parties(3, random).roster();
  SHOAL_ASSERT_OK_AND_ASSIGN(ServerConfig config, Read(kGood));
  server::RoundPlan plan = PlanFrom(config, roster);
  SHOAL_EXPECT_OK(server::CheckPlan(plan, roster));
  EXPECT_EQ(plan.onions_window_s, 60u);
  EXPECT_EQ(plan.queries_window_s, 60u);
  EXPECT_EQ(plan.answers_window_s, 120u);
  EXPECT_EQ(plan.onions_count, 0u);
  EXPECT_EQ(plan.max_slots, roster.max_slots());
  EXPECT_EQ(plan.stage_limit_s, 3600u);

  std::string party1 = kGood;
  party1[7] = '1';
  SHOAL_ASSERT_OK_AND_ASSIGN(
      config, Read(party1 + "rounds { open_ahead: 20 onions_window_s: 2 onions_count: 3 "
                            "queries_window_s: 4 queries_count: 5 answers_window_s: 6 "
                            "max_slots: 7 } stage_limit_s: 8 shares { slots: 9 } "
                            "group_shares { slots: 10 }"));
  plan = PlanFrom(config, roster);
  SHOAL_EXPECT_OK(server::CheckPlan(plan, roster));
  EXPECT_EQ(plan.open_ahead, 20u);
  EXPECT_EQ(plan.onions_window_s, 2u);
  EXPECT_EQ(plan.onions_count, 3u);
  EXPECT_EQ(plan.queries_window_s, 4u);
  EXPECT_EQ(plan.queries_count, 5u);
  EXPECT_EQ(plan.answers_window_s, 6u);
  EXPECT_EQ(plan.max_slots, 7u);
  EXPECT_EQ(plan.stage_limit_s, 8u);
  EXPECT_EQ(plan.block_percent, 9u);
  EXPECT_EQ(plan.group_percent, 10u);
  EXPECT_GE(plan.max_rounds, 20u);
}

TEST(ConfigTest, ThisProgramIsForPartiesOfOneMachine) {
  shoal::testing::TestRandom random(2);
  roster::testing::Parties parties(4, random);
  SHOAL_EXPECT_OK(CheckOneMachine(parties.roster(), 2));
  wire::Party& party = *parties.draft().mutable_parties(1);
  party.set_machines(2);
  party.add_other_machines()->set_peer_address("127.0.0.1:7100");
  EXPECT_THAT(CheckOneMachine(parties.roster(), 2),
              StatusIs(absl::StatusCode::kFailedPrecondition, "shoald-machines"));
  // Neighbours may have several.
  for (const uint32_t other : {1u, 3u, 4u}) {
    SHOAL_EXPECT_OK(CheckOneMachine(parties.roster(), other));
  }
}

TEST(ConfigTest, TermsAreThoseOfTheConfigurationAndNeedARosterThatHasThem) {
  shoal::testing::TestRandom random(1);
  roster::testing::Parties parties(3, random);
  std::string party1 = kGood;
  party1[7] = '1';
  SHOAL_ASSERT_OK_AND_ASSIGN(const ServerConfig config,
                             Read(party1 + "rounds { terms { refreshes: 31 days: 30 } }"));
  const server::RoundPlan plan = PlanFrom(config, parties.roster());
  EXPECT_EQ(plan.terms.refreshes, 31u);
  EXPECT_EQ(plan.terms.days, 30u);
  EXPECT_EQ(plan.terms.every_hours, 24u);
  EXPECT_EQ(plan.terms.open_minutes, 60u);
  EXPECT_THAT(server::CheckPlan(plan, parties.roster()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "need a roster with a term_limit"));
  parties.draft().mutable_term_limit()->set_days(30);
  parties.draft().mutable_term_limit()->set_refreshes(31);
  SHOAL_EXPECT_OK(server::CheckPlan(plan, parties.roster()));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const ServerConfig often,
      Read(party1 + "rounds { terms { refreshes: 1 days: 2 every_hours: 3 open_minutes: 4 } }"));
  const server::TermPlan terms = PlanFrom(often, parties.roster()).terms;
  EXPECT_EQ(terms.days, 2u);
  EXPECT_EQ(terms.every_hours, 3u);
  EXPECT_EQ(terms.open_minutes, 4u);
  EXPECT_THAT(Read(party1 + "rounds { terms { days: 2 } }"),
              StatusIs(kInvalid, "rounds.terms.refreshes is missing"));
}

TEST(ConfigTest, PlansOutsideTheLimitsNameTheField) {
  shoal::testing::TestRandom random(1);
  const roster::Roster roster = roster::testing::Parties(3, random).roster();
  std::string party1 = kGood;
  party1[7] = '1';
  for (const std::string field :
       {"open_ahead: 65", "onions_window_s: 86401", "queries_window_s: 86401",
        "answers_window_s: 86401", "max_slots: 4294967295", "max_rounds: 257"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const ServerConfig config,
                               Read(absl::StrCat(party1, "rounds { ", field, " }")));
    EXPECT_THAT(server::CheckPlan(PlanFrom(config, roster), roster),
                StatusIs(kInvalid, field.substr(0, field.find(':'))));
  }
}

}  // namespace
}  // namespace shoal::shoald
