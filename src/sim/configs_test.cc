// Every sample in configs/ is accepted by its program.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/config.h"
#include "src/roster/testing/parties.h"
#include "src/shoald/config.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::sim {
namespace {

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

TEST(ConfigsTest, EverySampleIsTaken) {
  testing::TestRandom random(1);
  const roster::testing::Parties parties(3, random);
  std::set<std::string> unknown;
  for (const auto& file : std::filesystem::directory_iterator("configs")) {
    if (file.path().extension() == ".textproto") unknown.insert(file.path().stem());
  }
  std::vector<std::string> listens;  // of each party; empty: its address in the roster
  for (uint32_t party = 1; party <= 3; ++party) {
    const std::string name = "party" + std::to_string(party);
    SHOAL_ASSERT_OK_AND_ASSIGN(const shoald::ServerConfig config,
                               shoald::ReadServerConfig("configs/" + name + ".textproto"));
    EXPECT_EQ(config.party(), party);
    listens.push_back(config.listen_address());
    if (party == 1) {
      SHOAL_EXPECT_OK(
          server::CheckPlan(shoald::PlanFrom(config, parties.roster()), parties.roster()));
    }
    unknown.erase(name);
  }

  // A client reads its pins together with its configuration.
  const std::string directory = ::testing::TempDir();
  SHOAL_ASSERT_OK(
      wire::WriteTextFile(directory + "/pinned.textproto", parties.PinsText(), FileMode::kPublic));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string text, ReadFile("configs/client.textproto"));
  SHOAL_ASSERT_OK(
      WriteFileAtomically(directory + "/client.textproto", AsBytes(text), FileMode::kPublic));
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::Config config,
                             client::ReadConfig(directory + "/client.textproto"));
  EXPECT_EQ(config.options.pad_to, 64u);
  EXPECT_EQ(config.pins.keys().size(), 3u);
  unknown.erase("client");

  wire::Roster settings;
  SHOAL_EXPECT_OK(wire::ReadTextFile("configs/roster.settings.textproto", settings));
  ASSERT_EQ(settings.parties_size(), 3);
  unknown.erase("roster.settings");

  // The samples belong to one deployment: a user who copies all of them gets parties that find each
  // other.
  for (int i = 0; i < 3; ++i) {
    const wire::Party& party = settings.parties(i);
    const std::string& listen = listens[static_cast<size_t>(i)];
    const std::string& address = i == 0 ? party.client_address() : party.peer_address();
    if (!listen.empty()) {
      EXPECT_EQ(PortOf(listen), PortOf(address)) << party.name();
    }
  }
  EXPECT_EQ(config.frontend, settings.parties(0).client_address());

  EXPECT_TRUE(unknown.empty()) << "no test reads configs/" << *unknown.begin();
}

}  // namespace
}  // namespace shoal::sim
