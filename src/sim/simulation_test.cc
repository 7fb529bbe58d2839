// A thousand runs of whole deployments with faults, from the seeds 1 to 1,000, and two hundred each
// of deployments whose parties have several machines, and whose rounds have terms
// (docs/simulation.md).
#include "src/sim/simulation.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/sim/runner.h"

namespace shoal::sim {
namespace {

constexpr uint64_t kGroups = 20, kGroupsOfMachines = 4, kGroupsOfTerms = 4, kSeedsInGroup = 50;

const Runner& TheRunner() {
  static const auto* const runner = new Runner();
  return *runner;
}

const Runner& MachinesRunner() {
  static const auto* const runner = new Runner(Kind::kMachines);
  return *runner;
}

const Runner& TermsRunner() {
  static const auto* const runner = new Runner(Kind::kTerms);
  return *runner;
}

std::string Text(const Outcome& outcome) {
  std::string text = absl::StrCat("troubles: ", outcome.troubles, "\n");
  for (const Violation& violation : outcome.violations) {
    absl::StrAppend(&text, violation.oracle, ": ", violation.what, "\n");
  }
  return text;
}

// Returns how many refreshes clients of terms have fetched.
uint64_t RunFiftySeeds(const Runner& runner, uint64_t group, const std::string& replay) {
  uint64_t answered = 0, crashes = 0, refreshes = 0;
  for (uint64_t i = 0; i < kSeedsInGroup; ++i) {
    const uint64_t seed = 1 + group * kSeedsInGroup + i;
    const Outcome outcome = runner.Run({.seed = seed});
    EXPECT_TRUE(outcome.violations.empty()) << replay << seed << "\n" << Text(outcome);
    answered += outcome.lookups_answered;
    crashes += outcome.crashes;
    refreshes += outcome.refreshes_fetched;
  }
  // The runs are about something.
  EXPECT_GT(answered, kSeedsInGroup);
  EXPECT_GT(crashes, kSeedsInGroup / 5);
  return refreshes;
}

// Groups of seeds, so that Bazel can divide them among shards.
class SeedsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SeedsTest, FiftySeeds) { RunFiftySeeds(TheRunner(), GetParam(), "scripts/soak --replay="); }

class MachinesSeedsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(MachinesSeedsTest, FiftySeeds) {
  RunFiftySeeds(MachinesRunner(), GetParam(), "scripts/soak --machines --replay=");
}

class TermsSeedsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(TermsSeedsTest, FiftySeeds) {
  // One for each watcher that comes last, and many of those in trouble.
  EXPECT_GT(RunFiftySeeds(TermsRunner(), GetParam(), "scripts/soak --terms --replay="),
            2 * kSeedsInGroup);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SeedsTest, ::testing::Range<uint64_t>(0, kGroups));
INSTANTIATE_TEST_SUITE_P(Seeds, MachinesSeedsTest,
                         ::testing::Range<uint64_t>(0, kGroupsOfMachines));
INSTANTIATE_TEST_SUITE_P(Seeds, TermsSeedsTest, ::testing::Range<uint64_t>(0, kGroupsOfTerms));

void ExpectEqualRuns(const Runner& runner) {
  for (const uint64_t seed : {1, 5, 14}) {
    const Outcome once = runner.Run({.seed = seed});
    const Outcome again = runner.Run({.seed = seed});
    EXPECT_NE(once.digest, 0u);
    EXPECT_EQ(once.digest, again.digest) << seed;
    EXPECT_EQ(once.events, again.events) << seed;
  }
  EXPECT_NE(runner.Run({.seed = 1}).digest, runner.Run({.seed = 2}).digest);
}

TEST(SimulationTest, EqualSeedsGiveEqualRuns) {
  ExpectEqualRuns(TheRunner());
  ExpectEqualRuns(MachinesRunner());
  ExpectEqualRuns(TermsRunner());
}

// A round of a frontend of several machines ends when its clients have been told that no queries
// are taken any more: before, while and after its machines close theirs. Nothing of the round is
// left, nobody waits, and clients go on in other rounds.
TEST(SimulationTest, RoundsEndWhileTheirQueriesAreClosed) {
  uint64_t between = 0, answered = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Outcome outcome =
        MachinesRunner().Run({.seed = seed, .faults = false, .ends_while_closing = true});
    EXPECT_TRUE(outcome.violations.empty()) << seed << "\n" << Text(outcome);
    EXPECT_EQ(outcome.crashes, 0u) << seed;
    between += outcome.ended_while_closing;
    answered += outcome.lookups_answered;
  }
  EXPECT_GT(between, 5u);  // one machine had closed them, and another had not
  EXPECT_GT(answered, 60u);
}

// A party withholds records of its lists at one machine of the next party, sends them twice, moves
// parts by one, or says another length than to the other machines; some alter what is in the parts,
// too, or send one onion to two machines. Nothing of it is accepted, and once the party is honest
// everybody is served.
TEST(SimulationTest, MachinesTakeNoMiscutParts) {
  uint64_t miscut = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Outcome outcome =
        MachinesRunner().Run({.seed = seed, .faults = false, .miscuts_parts = true});
    EXPECT_TRUE(outcome.violations.empty()) << seed << "\n" << Text(outcome);
    EXPECT_GT(outcome.lookups_answered, 0u) << seed;
    miscut += outcome.parts_miscut;
  }
  EXPECT_GT(miscut, 30u);
}

// A party alters answers, tags, sizes and signatures of refreshes, withholds them, gives those of
// an earlier one, or proposes two for one number; as the frontend, it shows clients what none has
// signed. Nobody takes a wrong row, and once the party is honest every term has the last epoch, or
// has ended.
TEST(SimulationTest, NobodyTakesATamperedRefresh) {
  uint64_t tampered = 0, not_taken = 0, fetched = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const Outcome outcome =
        TermsRunner().Run({.seed = seed, .faults = false, .tampers_refreshes = true});
    EXPECT_TRUE(outcome.violations.empty()) << seed << "\n" << Text(outcome);
    EXPECT_GT(outcome.refreshes_fetched, 0u) << seed;
    tampered += outcome.refreshes_tampered;
    not_taken += outcome.refreshes_not_taken;
    fetched += outcome.refreshes_fetched;
  }
  EXPECT_GT(tampered, 300u);
  EXPECT_GT(not_taken, 30u);
  EXPECT_GT(fetched, 300u);
}

// In the middle of pieces of lists, answers and refreshes that parties make, rounds and terms end
// at the frontend or at the party, processes die or end, tables get an epoch, and connections
// break: by themselves, and beside all other trouble. No piece of what has ended leaves, nothing
// that a piece is made of goes before it is made, and everybody is served afterwards.
TEST(SimulationTest, NoPieceLeavesOfWhatEndsInItsMiddle) {
  const struct {
    const Runner& runner;
    uint64_t seeds, within, ended;
  } kinds[] = {
      {TheRunner(), 100, 90, 40}, {MachinesRunner(), 100, 30, 10}, {TermsRunner(), 24, 15, 8}};
  for (const auto& kind : kinds) {
    uint64_t within = 0, ended = 0, answered = 0;
    for (uint64_t seed = 1; seed <= kind.seeds; ++seed) {
      const Outcome outcome =
          kind.runner.Run({.seed = seed, .faults = seed % 2 == 0, .within_pieces = true});
      EXPECT_TRUE(outcome.violations.empty()) << seed << "\n" << Text(outcome);
      within += outcome.within_pieces;
      ended += outcome.ended_within_pieces;
      answered += outcome.lookups_answered;
    }
    EXPECT_GT(within, kind.within);
    EXPECT_GT(ended, kind.ended);
    EXPECT_GT(answered, 2 * kind.seeds);
  }
}

TEST(SimulationTest, WithoutFaultsEverybodyIsAnswered) {
  for (const Runner* runner : {&TheRunner(), &MachinesRunner(), &TermsRunner()}) {
    const Outcome outcome = runner->Run({.seed = 3, .faults = false});
    EXPECT_TRUE(outcome.violations.empty()) << Text(outcome);
    EXPECT_EQ(outcome.lookups_failed, 0u);
    EXPECT_EQ(outcome.crashes, 0u);
    EXPECT_GT(outcome.lookups_answered, 2u);
  }
}

}  // namespace
}  // namespace shoal::sim
