#include "src/round/refresh.h"

#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/round/header.h"
#include "src/round/live_rounds.h"

namespace shoal::round {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

wire::RoundHeader TermRound() {
  wire::RoundHeader header;
  header.set_counter(7);
  header.set_manifest_digest(std::string(32, 'm'));
  header.set_max_refreshes(3);
  header.set_term_expires_s(1000);
  return header;
}

wire::RefreshHeader RefreshOf(const wire::RoundHeader& round) {
  wire::RefreshHeader header;
  header.set_round_id(ToString(RoundId(round)));
  header.set_number(2);
  header.set_epoch(5);
  header.set_manifest_digest(std::string(32, 'n'));
  return header;
}

struct Change {
  std::string names;
  std::function<void(wire::RefreshHeader&)> make;
};
const std::vector<Change>& Changes() {
  static const auto* const changes = new std::vector<Change>{
      {"another round", [](auto& h) { h.set_round_id(std::string(32, 'x')); }},
      {"number 0", [](auto& h) { h.set_number(0); }},
      {"number 4 of a term with 3", [](auto& h) { h.set_number(4); }},
      {"names no epoch", [](auto& h) { h.set_epoch(0); }},
      {"names no table", [](auto& h) { h.set_manifest_digest("short"); }},
      {"the round's table", [](auto& h) { h.set_manifest_digest(std::string(32, 'm')); }},
  };
  return *changes;
}

TEST(RefreshTest, OnlyRefreshesOfTheTermAreTaken) {
  const wire::RoundHeader round = TermRound();
  const Digest id = RoundId(round);
  const wire::RefreshHeader good = RefreshOf(round);
  SHOAL_EXPECT_OK(CheckRefresh(good, id, round));
  for (const Change& change : Changes()) {
    wire::RefreshHeader bad = good;
    change.make(bad);
    EXPECT_THAT(CheckRefresh(bad, id, round), StatusIs(kInvalid, change.names));
  }
  wire::RoundHeader without = round;
  without.clear_max_refreshes();
  EXPECT_THAT(CheckRefresh(good, id, without), StatusIs(kInvalid, "of a term with 0"));
}

TEST(RefreshTest, EveryFieldIsSignedAndChangesTheMasks) {
  const wire::RefreshHeader good = RefreshOf(TermRound());
  RefreshTag tag = {1, 2, 3};
  for (const Change& change : Changes()) {
    wire::RefreshHeader other = good;
    change.make(other);
    EXPECT_NE(RefreshDigest(other), RefreshDigest(good)) << change.names;
    EXPECT_NE(RefreshMasksId(other, tag), RefreshMasksId(good, tag)) << change.names;
  }
  const Digest masks = RefreshMasksId(good, tag);
  tag[31] ^= 1;
  EXPECT_NE(RefreshMasksId(good, tag), masks);
}

TEST(RefreshTest, TermSeedsDependOnSeedAndRound) {
  Bytes seed(32, 9);
  Digest id = {4};
  const Seed first = TermSeed(seed, id);
  EXPECT_TRUE(EqualSecret(first.view(), TermSeed(seed, id).view()));
  id[0] ^= 1;
  EXPECT_FALSE(EqualSecret(first.view(), TermSeed(seed, id).view()));
  id[0] ^= 1;
  seed[31] ^= 1;
  EXPECT_FALSE(EqualSecret(first.view(), TermSeed(seed, id).view()));
}

TEST(RefreshTest, TheRoundIdBindsTheTerm) {
  const wire::RoundHeader term = TermRound();
  wire::RoundHeader other = term;
  other.set_max_refreshes(4);
  EXPECT_NE(RoundId(other), RoundId(term));
  other = term;
  other.set_term_expires_s(1001);
  EXPECT_NE(RoundId(other), RoundId(term));
  other.clear_max_refreshes();
  other.clear_term_expires_s();
  EXPECT_NE(RoundId(other), RoundId(term));
}

TEST(RefreshTest, AListBindsItsTerms) {
  wire::LiveRounds list;
  list.set_highest_counter(9);
  list.add_rounds(3);
  const Digest without = LiveRoundsDigest(list);
  list.add_terms(4);
  const Digest with = LiveRoundsDigest(list);
  EXPECT_NE(with, without);
  list.set_terms(0, 5);
  EXPECT_NE(LiveRoundsDigest(list), with);
}

}  // namespace
}  // namespace shoal::round
