// Every sample in configs/ is accepted by its program, and noise gives the privacy beside it.
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/config.h"
#include "src/door/config.h"
#include "src/roster/testing/parties.h"
#include "src/shoald/config.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::sim {
namespace {

using ::shoal::testing::StatusIs;

// OK if parties and clients accept a roster with this noise: by the exact accountant, its delta
// holds at its epsilon for its phi.
absl::Status CheckNoise(const wire::NoiseParameters& noise) {
  testing::TestRandom random(1);
  roster::testing::Parties parties(2, random);
  *parties.draft().mutable_noise() = noise;
  return roster::Roster::Verify(parties.Signed(), parties.pinned(), roster::testing::kNowS)
      .status();
}

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

  SHOAL_ASSERT_OK_AND_ASSIGN(const door::DoorConfig door,
                             door::ReadDoorConfig("configs/door.textproto"));
  EXPECT_EQ(door::OptionsFrom(door, parties.roster()).frontend.pin,
            parties.roster().party(1).tls_certificate_sha256);
  unknown.erase("door");

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
  // The noise protects all that this client asks in a round, padding included.
  SHOAL_EXPECT_OK(CheckNoise(settings.noise()));
  EXPECT_GE(settings.noise().phi(), config.options.pad_to);
  EXPECT_LE(settings.noise().epsilon(), 1);
  EXPECT_LE(settings.noise().delta(), 1e-6);

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

// scripts/local-chain takes the first of its lines whose phi is at least the client's pad.
TEST(ConfigsTest, EveryPresetOfLocalChainGivesTheEpsilonAndDeltaThatItPrints) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string script, ReadFile("scripts/local-chain"));
  std::istringstream lines(script);
  uint32_t presets = 0, phi = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("mechanism: ")) continue;
    wire::NoiseParameters noise;
    SHOAL_ASSERT_OK(wire::ParseText(line, "scripts/local-chain", noise));
    SHOAL_EXPECT_OK(CheckNoise(noise));
    EXPECT_EQ(noise.epsilon(), 1) << line;
    EXPECT_EQ(noise.delta(), 1e-6) << line;
    EXPECT_GT(noise.phi(), phi) << line;
    phi = noise.phi();
    if (++presets == 1) {
      EXPECT_EQ(phi, 1u) << "--protect lookup";
    }
  }
  EXPECT_GE(presets, 10u);

  // The check can fail: with scales rounded down, the second preset misses its delta.
  wire::NoiseParameters noise;
  SHOAL_ASSERT_OK(wire::ParseText(
      "mechanism: GEOMETRIC epsilon: 1 delta: 1e-6 phi: 2 mode: 31 left_scale: 2.57 "
      "right_scale: 9",
      "", noise));
  EXPECT_THAT(CheckNoise(noise), StatusIs(absl::StatusCode::kFailedPrecondition, "gives delta"));
}

}  // namespace
}  // namespace shoal::sim
