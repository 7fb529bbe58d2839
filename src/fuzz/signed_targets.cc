// Rosters, pins, announcements of parties.
#include <memory>

#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/target.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/wire/roster.pb.h"
#include "src/wire/text.h"

namespace shoal::fuzz {
namespace {

using roster::testing::kNowS;

struct World {
  testing::TestRandom random{1};
  roster::testing::Parties parties{3, random};
  roster::Roster roster = parties.roster();
  roster::PinnedParties pins = parties.pinned();
};

}  // namespace

void AddSignedTargets(std::vector<Target>& targets) {
  const auto world = std::make_shared<World>();
  targets.push_back({.name = "roster",
                     .seeds = {InputOf(wire::PrintText(world->parties.Signed()))},
                     .parse =
                         [world](BytesView input) {
                           wire::SignedRoster roster;
                           if (!wire::ParseText(TextOf(input), "roster", roster).ok()) return false;
                           const bool taken = roster::CheckRoster(roster.roster()).ok();
                           const bool verified =
                               roster::Roster::Verify(roster, world->pins, kNowS).ok();
                           SHOAL_CHECK(taken || !verified);
                           return taken;
                         },
                     .mutations = 500});
  targets.push_back({.name = "pins",
                     .seeds = {InputOf(wire::PrintText(world->parties.PinsText()))},
                     .parse =
                         [](BytesView input) {
                           wire::PinnedParties pins;
                           return wire::ParseText(TextOf(input), "pins", pins).ok() &&
                                  roster::PinnedParties::Create(pins).ok();
                         },
                     .mutations = 500});
  targets.push_back({.name = "announcement",
                     .seeds = {InputOf(world->parties.keys(1).announcement())},
                     .parse =
                         [](BytesView input) {
                           wire::PartyAnnouncement announcement;
                           return announcement.ParseFromArray(input.data(),
                                                              static_cast<int>(input.size())) &&
                                  roster::PartyFromAnnouncement(announcement, kNowS).ok();
                         },
                     .mutations = 500});
}

}  // namespace shoal::fuzz
