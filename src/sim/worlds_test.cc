// What coalitions see in two worlds with the same seed and other secrets (worlds.h), for all sets
// of roles that leave an honest party, in chains of two, three and five parties.
#include "src/sim/worlds.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/sanitized.h"
#include "src/sim/simulation.h"
#include "src/sim/universe.h"

namespace shoal::sim {
namespace {

const Universe& UniverseOf(uint32_t parties) {
  static auto* const universes = new std::map<uint32_t, std::unique_ptr<const Universe>>();
  std::unique_ptr<const Universe>& made = (*universes)[parties];
  if (made == nullptr) {
    if (universes->size() == 1) PrepareProcess();
    made = std::make_unique<const Universe>(parties);
  }
  return *made;
}

// Keys whose rows are different, with rising rows.
std::vector<size_t> KeysOfRows(const Universe& universe) {
  std::map<uint64_t, size_t> keys;
  for (size_t i = 0; i < universe.Records(1); ++i) {
    keys.try_emplace(*universe.table(1)->content().map().RowOf(AsBytes(Universe::Key(i))), i);
  }
  std::vector<size_t> out;
  for (const auto& [row, key] : keys) out.push_back(key);
  return out;
}

std::string TextOf(const World& world, uint32_t parties) {
  return absl::StrCat("seed ", world.seed, ", ", parties, " parties, coalition of ",
                      NameOf(world.coalition), ", ", world.tricks.Name());
}

Seen RunWhole(uint32_t parties, const World& world) {
  const Seen seen = RunWorld(UniverseOf(parties), world);
  EXPECT_EQ(seen.problem, "") << TextOf(world, parties);
  return seen;
}

struct Shape {
  uint32_t parties;
  uint64_t seeds;  // for each coalition
};

class WorldsTest : public ::testing::TestWithParam<Shape> {
 protected:
  static uint32_t parties() { return GetParam().parties; }
  // Three clients, of which two have other keys in other worlds.
  World Of(Roles coalition, uint64_t seed, size_t key_0, size_t key_1) const {
    const std::vector<size_t> keys = KeysOfRows(UniverseOf(parties()));
    World world{.seed = seed, .coalition = coalition, .tricks = Tricks::FromSeed(seed)};
    world.tricks.marked_key = keys[0];
    world.lookups = {{keys[key_0], keys[2]}, {keys[key_1], keys[0]}, {keys[1], keys[1]}};
    return world;
  }
};

// For every coalition and some tricks.
TEST_P(WorldsTest, NoCoalitionSeesWhoAsksWhichRow) {
  uint64_t runs = 0, lines = 0, pairs = 0, turned = 0;
  for (const Roles coalition : Coalitions(parties())) {
    for (uint64_t i = 0; i < (kSanitized ? 1 : GetParam().seeds); ++i) {
      const uint64_t seed = 1000 * coalition + i;
      const World world = Of(coalition, seed, 0, 1);
      const Seen seen = RunWhole(parties(), world);
      const Seen another = RunWhole(parties(), Of(coalition, seed, 2, 1));
      EXPECT_EQ(Difference(seen.view, another.view), "")
          << TextOf(world, parties()) << "; client 0 asks another row";
      const Seen exchanged = RunWhole(parties(), Of(coalition, seed, 1, 0));
      EXPECT_EQ(Difference(seen.view, exchanged.view), "")
          << TextOf(world, parties()) << "; clients 0 and 1 ask each other's rows";
      ++runs;
      lines += seen.view.size();
      pairs += seen.pairs;
      turned += seen.exchanged;
    }
  }
  // They are about something.
  EXPECT_GT(lines, 30 * runs);
  if (kSanitized) return;
  // Each honest party exchanges two clients in half of its rounds.
  EXPECT_GT(pairs, runs / 2);
  EXPECT_NEAR(static_cast<double>(turned), static_cast<double>(pairs) / 2,
              3 * std::sqrt(static_cast<double>(pairs)));
}

INSTANTIATE_TEST_SUITE_P(Chains, WorldsTest,
                         ::testing::Values(Shape{2, 12}, Shape{3, 6}, Shape{5, 1}));

// Who is served is what a coalition has done to a client, or to a row, and not to both together:
// with the same mark on a row's answers, at the last party, and on a client's, by the frontend or a
// door.
TEST(AimTest, NobodyAimsAtAClientAndARow) {
  uint64_t aimed = 0, tried = 0;
  for (const uint32_t parties : {2u, 3u, 5u}) {
    const std::vector<size_t> keys = KeysOfRows(UniverseOf(parties));
    for (const Roles coalition : Coalitions(parties)) {
      // One with which marks meet: at both ends, with an honest party between.
      if (!Has(coalition, parties) || !((coalition & kDoor) != 0 || Has(coalition, 1))) continue;
      if (kSanitized && parties == 5) continue;
      const auto served = [&](const Tricks& tricks) {
        bool table[2][2];
        for (const size_t exchanged : {0, 1}) {
          World world{.seed = 7000 + coalition, .coalition = coalition, .tricks = tricks};
          world.tricks.marked_key = keys[0];
          world.lookups = {{keys[exchanged]}, {keys[1 - exchanged]}};
          const Seen seen = RunWhole(parties, world);
          table[0][exchanged] = seen.served[0][0];
          table[1][1 - exchanged] = seen.served[1][0];
        }
        return Aims(table);
      };
      ++tried;
      aimed += served({.marks_row = true, .marks_client = true});
      // What is done to one of both is no aim.
      EXPECT_FALSE(served({.marks_row = true})) << NameOf(coalition);
      EXPECT_FALSE(served({.marks_client = true})) << NameOf(coalition);
      EXPECT_FALSE(served({.marks_row = true, .marks_client = true, .other_mark = true}))
          << NameOf(coalition);
    }
  }
  EXPECT_GE(tried, kSanitized ? 5u : 21u);
  EXPECT_EQ(aimed, 0u);
}

// With other secrets, and so other noise, honest parties have sent the same in form until they send
// their lists.
TEST(NoiseTest, NothingTellsOfNoiseBeforeClientsAreBound) {
  uint64_t lines = 0;
  for (const uint32_t parties : {2u, 3u, 5u}) {
    const std::vector<size_t> keys = KeysOfRows(UniverseOf(parties));
    for (const Roles coalition : Coalitions(parties)) {
      if (kSanitized && coalition % 4 != 0) continue;
      World world{.seed = 9000 + coalition,
                  .coalition = coalition,
                  .tricks = {.chooses_rounds = true},
                  .lookups = {{keys[0]}, {keys[1]}}};
      const Seen seen = RunWhole(parties, world);
      world.honest_secrets = 1;
      const Seen other = RunWhole(parties, world);
      EXPECT_EQ(Difference(seen.told, other.told), "")
          << TextOf(world, parties) << "; honest parties have other noise";
      lines += seen.told.size();
    }
  }
  EXPECT_GT(lines, kSanitized ? 50u : 500u);
}

// Lists with one other key, whose row was the first and is then the last.
TEST(OverRoundsTest, AnotherKeyChangesOneRound) {
  const std::vector<size_t> keys = KeysOfRows(UniverseOf(2));
  ASSERT_GE(keys.size(), 4u);
  const uint64_t samples = kSanitized ? 6 : 60;
  std::vector<std::vector<uint32_t>> asked[2];
  for (const size_t other : {0, 1}) {
    for (uint64_t i = 0; i < samples; ++i) {
      const World world{.seed = 20'000 + other * samples + i,
                        .coalition = Roles{1} << 2,
                        .tricks = {},
                        .lookups = {{keys[other], keys[other + 1], keys[other + 2]}},
                        .over_rounds = true};
      asked[other].push_back(RunWhole(2, world).asked);
      ASSERT_EQ(asked[other].back().size(), 3u);
    }
  }
  // One, and what two samples of six orders differ.
  EXPECT_LT(Distance(asked[0], asked[1]), kSanitized ? 2.9 : 1.5);
}

TEST(ProductTest, Aims) {
  EXPECT_FALSE(Aims({{true, true}, {true, true}}));
  EXPECT_FALSE(Aims({{true, false}, {true, false}}));
  EXPECT_FALSE(Aims({{false, false}, {true, true}}));
  EXPECT_FALSE(Aims({{false, false}, {true, false}}));
  EXPECT_TRUE(Aims({{true, false}, {false, true}}));
  EXPECT_TRUE(Aims({{false, true}, {true, true}}));
}

TEST(DistanceTest, IsOfTheBestMatch) {
  EXPECT_EQ(Distance({{1, 2, 3}, {4, 5, 6}}, {{4, 5, 6}, {1, 2, 3}}), 0);
  EXPECT_EQ(Distance({{1, 2, 3}, {2, 3, 1}}, {{2, 3, 4}, {4, 2, 3}}), 1);
  EXPECT_EQ(Distance({{1, 2, 3}}, {{2, 3, 4}}), 3);
}

}  // namespace
}  // namespace shoal::sim
