// Fingerprints are all that stands between people who set a deployment up and a swapped key.
#include "src/roster/fingerprint.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"
#include "src/roster/testing/parties.h"

namespace shoal::roster {
namespace {

PinnedParties PinsOfDraft(const wire::Roster& draft) {
  return *PinnedParties::Create(*PinsOf(draft));
}

TEST(FingerprintTest, HasTenGroupsOfFiveDigits) {
  shoal::testing::TestRandom random(1);
  testing::Parties parties(3, random);
  std::set<std::string> all = {KeyFingerprint(parties.keys(1).bls().public_key().bytes()),
                               KeyFingerprint(parties.keys(2).bls().public_key().bytes()),
                               PinsFingerprint(PinsOfDraft(parties.draft())),
                               RosterFingerprint(parties.draft())};
  EXPECT_EQ(all.size(), 4u);
  for (const std::string& text : all) {
    const std::vector<std::string> groups = absl::StrSplit(text, ' ');
    ASSERT_EQ(groups.size(), 10u) << text;
    for (const std::string& group : groups) {
      EXPECT_EQ(group.size(), 5u) << text;
      EXPECT_EQ(group.find_first_not_of("0123456789"), std::string::npos) << text;
    }
  }
}

// What users compare does not depend on the program's version.
TEST(FingerprintTest, StaysTheSame) {
  EXPECT_EQ(KeyFingerprint(AsBytes(absl::string_view("a key"))),
            "52631 59827 84992 68838 09109 60423 28346 47955 24272 25344");
}

// Each change of what is pinned changes the pins' fingerprint, and each of what parties sign the
// roster's.
TEST(FingerprintTest, DependsOnEverything) {
  shoal::testing::TestRandom random(2);
  testing::Parties parties(3, random);
  const std::string pins = PinsFingerprint(PinsOfDraft(parties.draft()));
  const std::string roster = RosterFingerprint(parties.draft());
  wire::Roster swapped = parties.draft();
  std::swap(*swapped.mutable_parties(1)->mutable_bls_public_key(),
            *swapped.mutable_parties(2)->mutable_bls_public_key());
  std::swap(*swapped.mutable_parties(1)->mutable_proof_of_possession(),
            *swapped.mutable_parties(2)->mutable_proof_of_possession());
  EXPECT_NE(PinsFingerprint(PinsOfDraft(swapped)), pins);
  wire::Roster named = parties.draft();
  named.set_deployment("other");
  EXPECT_NE(PinsFingerprint(PinsOfDraft(named)), pins);
  wire::Roster moved = parties.draft();
  moved.mutable_parties(1)->set_peer_address("127.0.0.1:9999");
  EXPECT_NE(RosterFingerprint(moved), roster);
  EXPECT_EQ(PinsFingerprint(PinsOfDraft(moved)), pins);
  wire::Roster weaker = parties.draft();
  weaker.mutable_noise()->set_epsilon(1.5);
  EXPECT_NE(RosterFingerprint(weaker), roster);
}

TEST(FingerprintTest, IsComparedAsItIsTyped) {
  const std::string fingerprint = "01234 56789";
  EXPECT_TRUE(IsFingerprint("01234 56789", fingerprint));
  EXPECT_TRUE(IsFingerprint(" 01234-56789\n", fingerprint));
  EXPECT_TRUE(IsFingerprint("0123456789", fingerprint));
  for (const char* other :
       {"", "01234", "01234 56780", "01234 567890", "01234 5678g", "O1234 56789"}) {
    EXPECT_FALSE(IsFingerprint(other, fingerprint)) << other;
  }
}

}  // namespace
}  // namespace shoal::roster
