// Every sample in configs/ is one that its program takes.
#include <filesystem>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "src/base/file.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/config.h"
#include "src/roster/testing/parties.h"
#include "src/server/runner/config.h"
#include "src/wire/text.h"

namespace shoal::sim {
namespace {

TEST(ConfigsTest, EverySampleIsTaken) {
  testing::TestRandom random(1);
  const roster::testing::Parties parties(3, random);
  std::set<std::string> unknown;
  for (const auto& file : std::filesystem::directory_iterator("configs")) {
    if (file.path().extension() == ".textproto") unknown.insert(file.path().stem());
  }
  for (uint32_t party = 1; party <= 3; ++party) {
    const std::string name = "party" + std::to_string(party);
    SHOAL_ASSERT_OK_AND_ASSIGN(const server::ServerConfig config,
                               server::ReadServerConfig("configs/" + name + ".textproto"));
    EXPECT_EQ(config.party(), party);
    if (party == 1) {
      SHOAL_EXPECT_OK(server::CheckPlan(server::PlanFrom(config, parties.roster()),
                                        parties.roster()));
    }
    unknown.erase(name);
  }

  // A client reads its pins together with its configuration.
  const std::string directory = ::testing::TempDir();
  SHOAL_ASSERT_OK(wire::WriteTextFile(directory + "/pinned.textproto", parties.PinsText(),
                                      FileMode::kPublic));
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
  EXPECT_EQ(settings.parties_size(), 3);
  unknown.erase("roster.settings");

  EXPECT_TRUE(unknown.empty()) << "no test reads configs/" << *unknown.begin();
}

}  // namespace
}  // namespace shoal::sim
