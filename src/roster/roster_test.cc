#include "src/roster/roster.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/logging.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/roster/names.h"
#include "src/roster/testing/parties.h"

namespace shoal::roster {
namespace {

using ::shoal::roster::testing::kNowS;
using ::shoal::roster::testing::Parties;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;

TEST(Roster, VerifiesAndTells) {
  TestRandom random(1);
  const Parties parties(3, random);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Roster roster,
                             Roster::Verify(parties.Signed(), parties.pinned(), kNowS));
  EXPECT_EQ(roster.size(), 3u);
  EXPECT_EQ(roster.deployment(), "test");
  EXPECT_EQ(roster.epoch(), 3u);
  EXPECT_EQ(roster.party(2).name, "party-2");
  EXPECT_EQ(roster.party(2).peer_address, "127.0.0.1:7002");
  EXPECT_EQ(roster.party(3).tls_certificate_sha256, parties.keys(3).tls().certificate_sha256());
  EXPECT_EQ(roster.noise().mode, 15u);
  EXPECT_EQ(roster.NumberOf(parties.keys(3).bls().public_key()), 3u);
  EXPECT_EQ(roster.NumberOf(signature::SecretKey::Generate(random).public_key()), std::nullopt);
}

TEST(Roster, TakesTwoToEightParties) {
  TestRandom random(2);
  for (const uint32_t n : {2u, 8u}) {
    const Parties parties(n, random);
    SHOAL_EXPECT_OK(Roster::Verify(parties.Signed(), parties.pinned(), kNowS));
  }
  for (const uint32_t n : {1u, 9u}) {
    Parties parties(n, random);
    EXPECT_THAT(CheckRoster(parties.draft()), StatusIs(kInvalid, "parties instead of 2 to 8"));
    EXPECT_THAT(PinnedParties::Create(parties.PinsText()), StatusIs(kInvalid, "2 to 8"));
  }
}

TEST(Roster, RefusesASignatureThatIsNotAllParties) {
  TestRandom random(3);
  const Parties parties(3, random);
  wire::SignedRoster roster = parties.Signed();
  roster.set_signature(ToString(parties.keys(1).bls().Sign(RosterDigest(roster.roster())).bytes()));
  EXPECT_THAT(Roster::Verify(roster, parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "does not match"));
  roster.clear_signature();
  EXPECT_THAT(Roster::Verify(roster, parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "0 bytes"));
}

// Every field is under the signature: the test walks over the message's own description, so that a
// field that is added and forgotten in the digest fails here.
void ForEachField(google::protobuf::Message& message,
                  const std::function<void(std::string)>& check) {
  const auto* descriptor = message.GetDescriptor();
  const auto* reflection = message.GetReflection();
  using Field = google::protobuf::FieldDescriptor;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const Field* field = descriptor->field(i);
    if (field->is_repeated()) {
      ASSERT_EQ(field->cpp_type(), Field::CPPTYPE_MESSAGE) << field->full_name();
      for (int k = 0; k < reflection->FieldSize(message, field); ++k) {
        ForEachField(*reflection->MutableRepeatedMessage(&message, field, k), check);
      }
      continue;
    }
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        ForEachField(*reflection->MutableMessage(&message, field), check);
        break;
      case Field::CPPTYPE_STRING: {
        const std::string old = reflection->GetString(message, field);
        reflection->SetString(&message, field, old + "x");
        check(field->full_name());
        reflection->SetString(&message, field, old);
        break;
      }
      case Field::CPPTYPE_UINT32: {
        const uint32_t old = reflection->GetUInt32(message, field);
        reflection->SetUInt32(&message, field, old + 1);
        check(field->full_name());
        reflection->SetUInt32(&message, field, old);
        break;
      }
      case Field::CPPTYPE_UINT64: {
        const uint64_t old = reflection->GetUInt64(message, field);
        reflection->SetUInt64(&message, field, old + 1);
        check(field->full_name());
        reflection->SetUInt64(&message, field, old);
        break;
      }
      case Field::CPPTYPE_DOUBLE: {
        const double old = reflection->GetDouble(message, field);
        reflection->SetDouble(&message, field, std::nextafter(old, 1e9));
        check(field->full_name());
        reflection->SetDouble(&message, field, old);
        break;
      }
      case Field::CPPTYPE_ENUM: {
        const int old = reflection->GetEnumValue(message, field);
        reflection->SetEnumValue(&message, field, old + 1);
        check(field->full_name());
        reflection->SetEnumValue(&message, field, old);
        break;
      }
      default:
        FAIL() << field->full_name() << " has a type that this test does not know";
    }
  }
}

TEST(RosterDigest, CoversEveryField) {
  TestRandom random(4);
  Parties parties(2, random);
  const Digest without = RosterDigest(parties.draft());
  parties.draft().mutable_term_limit()->set_days(30);
  parties.draft().mutable_term_limit()->set_refreshes(40);
  const Digest digest = RosterDigest(parties.draft());
  EXPECT_NE(digest, without);
  int fields = 0;
  ForEachField(parties.draft(), [&](const std::string& name) {
    ++fields;
    EXPECT_NE(RosterDigest(parties.draft()), digest) << name;
  });
  EXPECT_EQ(fields, 8 + 2 + 7 + 2 * 8);
  EXPECT_EQ(RosterDigest(parties.draft()), digest);
}

// Each optional field follows all those before it: no roster of one kind has the digest, and so the
// signature, of one of another kind.
TEST(RosterDigest, OptionalFieldsDoNotStandInForEachOther) {
  TestRandom random(4);
  Parties parties(2, random);
  wire::Roster& draft = parties.draft();
  std::set<Digest> digests = {RosterDigest(draft)};
  draft.set_most_in_bucket(31);
  digests.insert(RosterDigest(draft));
  draft.set_most_in_bucket(30);
  digests.insert(RosterDigest(draft));
  draft.mutable_term_limit()->set_days(30);
  draft.mutable_term_limit()->set_refreshes(30);
  digests.insert(RosterDigest(draft));
  draft.clear_most_in_bucket();
  digests.insert(RosterDigest(draft));
  EXPECT_EQ(digests.size(), 5u);
}

// What one query in a bucket is hidden by does not hide four: the roster's claim is for as many as
// it lets a client send.
TEST(Roster, RefusesNoiseThatIgnoresMostInBucket) {
  TestRandom random(20);
  Parties parties(std::vector<uint32_t>{1, 1}, random);
  wire::NoiseParameters& noise = *parties.draft().mutable_noise();
  noise.set_mechanism(wire::SPLIT_GAUSSIAN);
  noise.set_phi(64);
  noise.set_mode(126);
  noise.set_left_scale(23.82);
  noise.set_right_scale(107.97);
  SHOAL_EXPECT_OK(CheckRoster(parties.draft()));
  parties.draft().set_most_in_bucket(1);
  SHOAL_EXPECT_OK(CheckRoster(parties.draft()));
  parties.draft().set_most_in_bucket(4);
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition, "gives delta 0.004067");
  EXPECT_THAT(CheckRoster(parties.draft()), refused);
  EXPECT_THAT(CheckRoster(parties.draft()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "for phi = 64 with up to 4 of them in one bucket, not the claimed 1e-06"));
  // Clients and signers alike.
  EXPECT_THAT(Roster::Verify(parties.Signed(), parties.pinned(), kNowS), refused);
  EXPECT_THAT(SignRoster(parties.draft(), parties.key(1)), refused);
  // The paper's noise is not log-concave, whatever it costs.
  noise.set_mechanism(wire::CLAMPED_LAPLACE);
  noise.set_phi(1);
  noise.set_mode(400);
  noise.clear_left_scale();
  noise.clear_right_scale();
  EXPECT_THAT(CheckRoster(parties.draft()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                     "clamped_laplace is not log-concave"));
  parties.draft().set_most_in_bucket(1);
  SHOAL_EXPECT_OK(CheckRoster(parties.draft()));
}

// A table of geometric noise is log-concave but for its last bit: the mechanism counts.
TEST(Roster, TakesGeometricNoiseForManyInABucket) {
  TestRandom random(21);
  Parties parties(std::vector<uint32_t>{1, 1}, random);
  wire::NoiseParameters& noise = *parties.draft().mutable_noise();
  noise.set_mode(300);
  noise.set_left_scale(15);
  noise.set_right_scale(60);
  noise.set_phi(4);
  parties.draft().set_most_in_bucket(4);
  const Roster roster = parties.roster();
  EXPECT_EQ(roster.most_in_bucket(), 4u);
  EXPECT_THAT(CheckOneTier("this door", roster, 0),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "two tiers (most_in_bucket 4 in the roster, query_buckets 0 in the table) "
                       "are not known to this door yet: ask this deployment by `shoal`"));
  parties.draft().clear_most_in_bucket();
  SHOAL_EXPECT_OK(CheckOneTier("this door", parties.roster(), 0));
  SHOAL_EXPECT_OK(CheckOneTier("this door", parties.roster(), std::nullopt));
  EXPECT_THAT(CheckOneTier("this door", parties.roster(), 7),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "most_in_bucket 0 in the roster, query_buckets 7 in the table"));
}

TEST(Roster, RefusesChangedContentUnderAnOldSignature) {
  TestRandom random(5);
  const Parties parties(3, random);
  wire::SignedRoster roster = parties.Signed();
  roster.mutable_roster()->mutable_parties(1)->set_peer_address("10.0.0.1:7002");
  EXPECT_THAT(Roster::Verify(roster, parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "does not match"));
}

TEST(Roster, RefusesOtherPartiesThanThePinnedOnes) {
  TestRandom random(6);
  const Parties parties(3, random);
  const Parties strangers(3, random);
  EXPECT_THAT(Roster::Verify(strangers.Signed(), parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "no party has its pinned key"));
  // Every key counts, the last one too.
  for (int i = 0; i < 3; ++i) {
    wire::PinnedParties pins = parties.PinsText();
    pins.set_bls_public_keys_hex(i, strangers.PinsText().bls_public_keys_hex(i));
    SHOAL_ASSERT_OK_AND_ASSIGN(const PinnedParties pinned, PinnedParties::Create(pins));
    EXPECT_THAT(
        Roster::Verify(parties.Signed(), pinned, kNowS),
        StatusIs(kUnauthenticated, absl::StrCat("party ", i + 1, " is not the pinned one")));
  }
  const Parties fewer(2, random);
  EXPECT_THAT(Roster::Verify(fewer.Signed(), parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "pinned are 3"));
  Parties renamed(3, random);
  renamed.draft().set_deployment("other");
  EXPECT_THAT(Roster::Verify(renamed.Signed(), parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "another deployment"));
  // The same parties in another order are another chain.
  Parties swapped(3, random);
  wire::PinnedParties pins = swapped.PinsText();
  pins.mutable_bls_public_keys_hex()->SwapElements(0, 1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PinnedParties pinned, PinnedParties::Create(pins));
  EXPECT_THAT(Roster::Verify(swapped.Signed(), pinned, kNowS),
              StatusIs(kUnauthenticated, "not the pinned one"));
}

// A party that chooses its key as a function of the others' keys could sign for all of them alone.
TEST(Roster, RefusesARogueKey) {
  TestRandom random(7);
  Parties parties(2, random);
  // The last party announces a key without knowing its secret: the proof is another key's.
  const signature::SecretKey other = signature::SecretKey::Generate(random);
  wire::Party& rogue = *parties.draft().mutable_parties(1);
  rogue.set_bls_public_key(ToString(other.public_key().bytes()));
  EXPECT_THAT(CheckRoster(parties.draft()), StatusIs(kUnauthenticated, "party 2"));
  wire::PinnedParties pins = parties.PinsText();
  pins.set_bls_public_keys_hex(1, Hex(other.public_key().bytes()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PinnedParties pinned, PinnedParties::Create(pins));
  EXPECT_THAT(Roster::Verify(parties.Signed(), pinned, kNowS),
              StatusIs(kUnauthenticated, "proof of possession"));
}

TEST(Roster, KeepsItsTimes) {
  TestRandom random(8);
  const Parties parties(2, random);
  const wire::SignedRoster roster = parties.Signed();
  const PinnedParties pinned = parties.pinned();
  const uint64_t from = roster.roster().valid_from_s(), until = roster.roster().expires_s();
  EXPECT_THAT(Roster::Verify(roster, pinned, from - 61),
              StatusIs(kUnauthenticated, "not valid for another 61 seconds"));
  SHOAL_EXPECT_OK(Roster::Verify(roster, pinned, from - 60));
  SHOAL_EXPECT_OK(Roster::Verify(roster, pinned, until + 59));
  EXPECT_THAT(Roster::Verify(roster, pinned, until + 60),
              StatusIs(kUnauthenticated, "expired 60 seconds ago"));
}

TEST(Roster, EpochsDoNotGoBack) {
  TestRandom random(9);
  const Parties parties(2, random);
  wire::PinnedParties pins = parties.PinsText();
  pins.set_minimum_roster_epoch(4);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PinnedParties pinned, PinnedParties::Create(pins));
  EXPECT_THAT(Roster::Verify(parties.Signed(), pinned, kNowS),
              StatusIs(kUnauthenticated, "epoch 3 is before"));

  std::optional<SeenEpoch> seen;
  const Digest one = {1}, two = {2};
  SHOAL_EXPECT_OK(AcceptEpoch("table", 5, one, seen));
  SHOAL_EXPECT_OK(AcceptEpoch("table", 5, one, seen));
  EXPECT_THAT(AcceptEpoch("table", 5, two, seen), StatusIs(kUnauthenticated, "second content"));
  EXPECT_THAT(AcceptEpoch("table", 4, one, seen), StatusIs(kUnauthenticated, "after epoch 5"));
  EXPECT_EQ(seen->epoch, 5u);
  SHOAL_EXPECT_OK(AcceptEpoch("table", 6, two, seen));
  EXPECT_EQ(seen->epoch, 6u);
}

TEST(Roster, RefusesNoiseThatDoesNotGiveItsPrivacy) {
  TestRandom random(10);
  Parties parties(2, random);
  parties.draft().mutable_noise()->set_mode(2);
  EXPECT_THAT(Roster::Verify(parties.Signed(), parties.pinned(), kNowS),
              StatusIs(absl::StatusCode::kFailedPrecondition, "noise"));
}

// The accountant may need long, so it runs only for rosters that all parties have signed.
TEST(Roster, NoiseIsLookedAtOnceTheSignatureHolds) {
  TestRandom random(16);
  Parties parties(2, random);
  wire::SignedRoster roster = parties.Signed();
  roster.mutable_roster()->mutable_noise()->set_mode(2);
  EXPECT_THAT(Roster::Verify(roster, parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "does not match"));
  roster.mutable_roster()->mutable_noise()->clear_mechanism();
  EXPECT_THAT(Roster::Verify(roster, parties.pinned(), kNowS),
              StatusIs(kUnauthenticated, "does not match"));
}

// Gives a party machines, at addresses of their own.
void SetMachines(wire::Roster& roster, uint32_t number, uint32_t machines) {
  wire::Party& party = *roster.mutable_parties(static_cast<int>(number) - 1);
  party.set_machines(machines);
  for (uint32_t i = 1; i < machines; ++i) {
    wire::Machine& machine = *party.add_other_machines();
    const std::string address = absl::StrCat("machine-", number, "-", i, ":7000");
    number == 1 ? machine.set_client_address(address) : machine.set_peer_address(address);
  }
}

struct BadDraft {
  const char* message;
  std::function<void(wire::Roster&)> change;
};

TEST(CheckRoster, NamesTheFieldThatIsWrong) {
  TestRandom random(11);
  Parties parties(3, random);
  const wire::Roster good = parties.draft();
  SHOAL_ASSERT_OK(CheckRoster(good));
  const std::vector<BadDraft> cases = {
      {"deployment", [](auto& r) { r.set_deployment("a b"); }},
      {"deployment", [](auto& r) { r.set_deployment(""); }},
      {"deployment", [](auto& r) { r.set_deployment(std::string(65, 'a')); }},
      {"deployment", [](auto& r) { r.set_deployment("../x"); }},
      {"epoch", [](auto& r) { r.set_epoch(0); }},
      {"in order from 1", [](auto& r) { r.mutable_parties(0)->set_number(2); }},
      {"party 2, name", [](auto& r) { r.mutable_parties(1)->set_name("a/b"); }},
      {"comes twice", [](auto& r) { r.mutable_parties(1)->set_name("party-1"); }},
      {"client_address", [](auto& r) { r.mutable_parties(0)->set_client_address("host"); }},
      {"no peer_address", [](auto& r) { r.mutable_parties(0)->set_peer_address("a:1"); }},
      {"peer_address", [](auto& r) { r.mutable_parties(2)->set_peer_address(""); }},
      {"party 3, client_address", [](auto& r) { r.mutable_parties(2)->set_client_address("a"); }},
      {"party 2, machines: 0 is not in 1..64",
       [](auto& r) { r.mutable_parties(1)->set_machines(0); }},
      {"party 2, machines: 65 is not in 1..64", [](auto& r) { SetMachines(r, 2, 65); }},
      {"party 2, other_machines: has 0 entries",
       [](auto& r) { r.mutable_parties(1)->set_machines(2); }},
      {"party 2, other_machines: has 1 entries",
       [](auto& r) { r.mutable_parties(1)->add_other_machines()->set_peer_address("b:1"); }},
      {"party 2, machine 3, peer_address",
       [](auto& r) {
         SetMachines(r, 2, 4);
         r.mutable_parties(1)->mutable_other_machines(2)->clear_peer_address();
       }},
      {"party 2, machine 1: engines are served by the first",
       [](auto& r) {
         SetMachines(r, 2, 2);
         r.mutable_parties(1)->mutable_other_machines(0)->set_client_address("b:1");
       }},
      {"party 1, machine 1, client_address",
       [](auto& r) {
         SetMachines(r, 1, 2);
         r.mutable_parties(0)->mutable_other_machines(0)->set_client_address("b");
       }},
      {"party 1, machine 1: no party connects",
       [](auto& r) {
         SetMachines(r, 1, 2);
         r.mutable_parties(0)->mutable_other_machines(0)->set_peer_address("b:1");
       }},
      {"127.0.0.1:7002 comes twice",
       [](auto& r) {
         SetMachines(r, 2, 2);
         r.mutable_parties(1)->mutable_other_machines(0)->set_peer_address("127.0.0.1:7002");
       }},
      {"127.0.0.1:07002 comes twice",
       [](auto& r) {
         SetMachines(r, 2, 2);
         r.mutable_parties(1)->mutable_other_machines(0)->set_peer_address("127.0.0.1:07002");
       }},
      {"HOST:7100 comes twice",
       [](auto& r) {
         SetMachines(r, 2, 3);
         r.mutable_parties(1)->mutable_other_machines(0)->set_peer_address("host:7100");
         r.mutable_parties(1)->mutable_other_machines(1)->set_peer_address("HOST:7100");
       }},
      {"127.0.0.1:7001 comes twice",
       [](auto& r) {
         SetMachines(r, 3, 2);
         r.mutable_parties(2)->mutable_other_machines(0)->set_peer_address("127.0.0.1:7001");
       }},
      {"tls_certificate_sha256",
       [](auto& r) { r.mutable_parties(1)->set_tls_certificate_sha256("short"); }},
      {"TLS certificate of another",
       [](auto& r) {
         r.mutable_parties(1)->set_tls_certificate_sha256(r.parties(0).tls_certificate_sha256());
       }},
      {"BLS key of another",
       [](auto& r) {
         r.mutable_parties(1)->set_bls_public_key(r.parties(0).bls_public_key());
         r.mutable_parties(1)->set_proof_of_possession(r.parties(0).proof_of_possession());
       }},
      {"party 2: public key", [](auto& r) { r.mutable_parties(1)->set_bls_public_key("x"); }},
      {"party 3: proof of possession",
       [](auto& r) { r.mutable_parties(2)->set_proof_of_possession(""); }},
      {"before expires_s", [](auto& r) { r.set_expires_s(r.valid_from_s()); }},
      {"before expires_s", [](auto& r) { r.set_expires_s(std::numeric_limits<uint64_t>::max()); }},
      {"ten years", [](auto& r) { r.set_expires_s(r.valid_from_s() + kMaxValidityS + 1); }},
      {"clock_tolerance_s", [](auto& r) { r.set_clock_tolerance_s(3601); }},
      {"rosters of Shoal 0.1", [](auto& r) { r.clear_onion_suite(); }},
      {"x-wing is unknown", [](auto& r) { r.set_onion_suite("x-wing"); }},
      {"max_slots", [](auto& r) { r.set_max_slots(0); }},
      {"max_slots", [](auto& r) { r.set_max_slots(kMaxSlots + 1); }},
      {"term_limit, days", [](auto& r) { r.mutable_term_limit()->set_refreshes(1); }},
      {"term_limit, days",
       [](auto& r) {
         r.mutable_term_limit()->set_days(kMaxTermDays + 1);
         r.mutable_term_limit()->set_refreshes(1);
       }},
      {"term_limit, refreshes", [](auto& r) { r.mutable_term_limit()->set_days(1); }},
      {"term_limit, refreshes",
       [](auto& r) {
         r.mutable_term_limit()->set_days(1);
         r.mutable_term_limit()->set_refreshes(kMaxRefreshes + 1);
       }},
      {"most_in_bucket: 4, for rounds of two tiers, which are for two parties; the roster has 3",
       [](auto& r) { r.set_most_in_bucket(4); }},
      {"most_in_bucket: 10001 is not in 0..10000", [](auto& r) { r.set_most_in_bucket(10'001); }},
      {"most_in_bucket: 4294967295 is not", [](auto& r) { r.set_most_in_bucket(~0u); }},
      {"most_in_bucket: 4, for rounds of two tiers, which are for parties of one machine; party 2 "
       "has 2",
       [](auto& r) {
         r.mutable_parties()->RemoveLast();
         SetMachines(r, 2, 2);
         r.set_most_in_bucket(4);
       }},
      {"most_in_bucket: 4, for rounds of two tiers, which have no terms yet; the roster has a "
       "term_limit",
       [](auto& r) {
         r.mutable_parties()->RemoveLast();
         r.set_most_in_bucket(4);
         r.mutable_term_limit()->set_days(1);
         r.mutable_term_limit()->set_refreshes(1);
       }},
      {"party 3 has several machines",
       [](auto& r) {
         SetMachines(r, 3, 2);
         r.mutable_term_limit()->set_days(1);
         r.mutable_term_limit()->set_refreshes(1);
       }},
      {"mechanism", [](auto& r) { r.mutable_noise()->clear_mechanism(); }},
      {"finite", [](auto& r) { r.mutable_noise()->set_epsilon(std::nan("")); }},
      {"finite",
       [](auto& r) { r.mutable_noise()->set_left_scale(std::numeric_limits<double>::infinity()); }},
  };
  for (const BadDraft& bad : cases) {
    wire::Roster draft = good;
    bad.change(draft);
    EXPECT_THAT(CheckRoster(draft), StatusIs(kInvalid, bad.message));
  }
}

// A billion queries fit one round.
TEST(Roster, HasAtMost2To30Slots) {
  TestRandom random(19);
  Parties parties(2, random);
  parties.draft().set_max_slots(1u << 30);
  EXPECT_EQ(parties.roster().max_slots(), 1u << 30);
  for (const uint32_t slots : {(1u << 30) + 1, std::numeric_limits<uint32_t>::max()}) {
    parties.draft().set_max_slots(slots);
    EXPECT_THAT(
        CheckRoster(parties.draft()),
        StatusIs(kInvalid, absl::StrCat("roster, max_slots: ", slots, " is not in 1..1073741824")));
    EXPECT_THAT(Roster::Verify(parties.Signed(), parties.pinned(), kNowS),
                StatusIs(kInvalid, absl::StrCat("max_slots: ", slots)));
  }
}

TEST(Roster, HasAnAddressForEveryMachine) {
  TestRandom random(17);
  Parties parties(3, random);
  SetMachines(parties.draft(), 1, 3);
  SetMachines(parties.draft(), 2, 64);
  const Roster roster = parties.roster();
  EXPECT_EQ(roster.party(1).machines, 3u);
  EXPECT_EQ(roster.party(1).ClientAddress(0), "127.0.0.1:7001");
  EXPECT_EQ(roster.party(1).ClientAddress(2), "machine-1-2:7000");
  EXPECT_EQ(roster.party(2).PeerAddress(0), "127.0.0.1:7002");
  EXPECT_EQ(roster.party(2).PeerAddress(63), "machine-2-63:7000");
  EXPECT_EQ(roster.party(3).machines, 1u);
  EXPECT_EQ(roster.party(3).PeerAddress(0), "127.0.0.1:7003");
}

// All parties sign which machine is where.
TEST(Roster, TheSignatureCoversEveryMachine) {
  TestRandom random(18);
  Parties parties(3, random);
  SetMachines(parties.draft(), 2, 3);
  const wire::SignedRoster good = parties.Signed();
  SHOAL_ASSERT_OK(Roster::Verify(good, parties.pinned(), kNowS).status());
  const std::vector<std::function<void(wire::Party&)>> changes = {
      [](auto& p) { p.mutable_other_machines(1)->set_peer_address("elsewhere:7000"); },
      [](auto& p) { p.mutable_other_machines()->SwapElements(0, 1); },
      [](auto& p) {
        p.mutable_other_machines()->RemoveLast();
        p.set_machines(2);
      },
  };
  for (const auto& change : changes) {
    wire::SignedRoster changed = good;
    change(*changed.mutable_roster()->mutable_parties(1));
    EXPECT_THAT(Roster::Verify(changed, parties.pinned(), kNowS),
                StatusIs(kUnauthenticated, "does not match"));
  }
}

// Rosters of one machine each have the digest that they always had. Two addresses may then be
// equal, as they always might.
TEST(Roster, OneMachineEachIsTheRosterOfBefore) {
  wire::Roster roster;
  roster.set_deployment("test");
  roster.set_epoch(3);
  for (uint32_t number = 1; number <= 2; ++number) {
    wire::Party& party = *roster.add_parties();
    party.set_number(number);
    party.set_name(absl::StrCat("party-", number));
    number == 1 ? party.set_client_address("a:1") : party.set_peer_address("a:1");
    party.set_machines(1);
  }
  EXPECT_EQ(Hex(RosterDigest(roster)),
            "668dd62a63da15d8c247b5b0360921ff526aca01d7c78f81b3f9fa1b26babba5");
  // With most_in_bucket the missing term_limit is two zeros (docs/protocol.md, section 11).
  wire::Roster tiers = roster;
  tiers.set_most_in_bucket(5);
  EXPECT_EQ(Hex(RosterDigest(tiers)),
            "1b84f65976915431ea479879fe7d9865ff872885991af5d1f4e8a0bdd9459e93");

  TestRandom random(19);
  Parties parties(3, random);
  parties.draft().mutable_parties(2)->set_peer_address("127.0.0.1:7002");
  SHOAL_EXPECT_OK(CheckRoster(parties.draft()));
}

// Every party can serve an engine.
TEST(CheckRoster, AnyPartyMayHaveAClientAddress) {
  TestRandom random(13);
  Parties parties(3, random);
  wire::Roster draft = parties.draft();
  draft.mutable_parties(1)->set_client_address("b:1");
  draft.mutable_parties(2)->set_client_address("c:1");
  SHOAL_EXPECT_OK(CheckRoster(draft));
}

TEST(SignRoster, SharesAddUp) {
  TestRandom random(12);
  Parties parties(3, random);
  std::vector<wire::RosterShare> shares;
  for (const uint32_t number : {3u, 1u, 2u}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(shares.emplace_back(),
                               SignRoster(parties.draft(), parties.keys(number).bls()));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::SignedRoster roster,
                             AggregateRoster(parties.draft(), shares));
  SHOAL_EXPECT_OK(Roster::Verify(roster, parties.pinned(), kNowS));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::PinnedParties pins, PinsOf(parties.draft()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PinnedParties pinned, PinnedParties::Create(pins));
  SHOAL_EXPECT_OK(Roster::Verify(roster, pinned, kNowS));

  std::vector<wire::RosterShare> bad = shares;
  bad.pop_back();
  EXPECT_THAT(AggregateRoster(parties.draft(), bad),
              StatusIs(kInvalid, "party 2 (party-2) is missing"));
  bad = shares;
  bad[0] = bad[1];
  EXPECT_THAT(AggregateRoster(parties.draft(), bad), StatusIs(kInvalid, "comes twice"));
  bad = shares;
  bad[0].set_signature(shares[1].signature());
  EXPECT_THAT(AggregateRoster(parties.draft(), bad),
              StatusIs(kUnauthenticated, "party 3 (party-3): signature does not match"));
  bad = shares;
  bad[0].set_party(4);
  EXPECT_THAT(AggregateRoster(parties.draft(), bad), StatusIs(kInvalid, "no such party"));
  wire::Roster other = parties.draft();
  other.set_epoch(4);
  EXPECT_THAT(AggregateRoster(other, shares), StatusIs(kUnauthenticated, "another roster"));
  EXPECT_THAT(SignRoster(parties.draft(), signature::SecretKey::Generate(random)),
              StatusIs(absl::StatusCode::kNotFound, "no party's"));
}

// A party does not sign what promises more privacy than its noise gives, and nobody adds up the
// shares of those who did.
TEST(SignRoster, LooksAtTheNoise) {
  TestRandom random(13);
  Parties parties(2, random);
  std::vector<wire::RosterShare> shares;
  parties.draft().mutable_noise()->set_mode(5);
  EXPECT_THAT(SignRoster(parties.draft(), parties.keys(1).bls()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "roster, noise"));
  EXPECT_THAT(AggregateRoster(parties.draft(), shares),
              StatusIs(absl::StatusCode::kFailedPrecondition, "roster, noise"));
}

TEST(Roster, VerifiesSharesOfOtherDigests) {
  TestRandom random(13);
  const Parties parties(3, random);
  const Roster roster = parties.roster();
  const Digest digest = {7};
  std::vector<Bytes> shares;
  for (uint32_t number = 1; number <= 3; ++number) {
    shares.push_back(ToBytes(parties.keys(number).bls().Sign(digest).bytes()));
    SHOAL_EXPECT_OK(roster.VerifyByParty(number, digest, shares.back()));
  }
  EXPECT_THAT(roster.VerifyByParty(1, digest, shares[1]),
              StatusIs(kUnauthenticated, "party 1 (party-1)"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const signature::Signature sum, roster.Aggregate(digest, shares));
  SHOAL_EXPECT_OK(roster.VerifyByAll(digest, sum.bytes()));
  EXPECT_THAT(roster.VerifyByAll(Digest{8}, sum.bytes()),
              StatusIs(kUnauthenticated, "does not match"));
  std::swap(shares[0], shares[2]);
  EXPECT_THAT(roster.Aggregate(digest, shares), StatusIs(kUnauthenticated, "party 1"));
  shares.pop_back();
  EXPECT_THAT(roster.Aggregate(digest, shares), StatusIs(kInvalid, "2 signatures of 3"));
}

TEST(PinnedParties, RefusesBadKeys) {
  TestRandom random(14);
  const Parties parties(2, random);
  wire::PinnedParties pins = parties.PinsText();
  pins.set_bls_public_keys_hex(1, "zz");
  EXPECT_THAT(PinnedParties::Create(pins), StatusIs(kInvalid, "key 2: is not 192 hex"));
  pins.set_bls_public_keys_hex(1, std::string(192, '0'));
  EXPECT_THAT(PinnedParties::Create(pins), StatusIs(kInvalid, "key 2: public key"));
  pins = parties.PinsText();
  pins.set_deployment("");
  EXPECT_THAT(PinnedParties::Create(pins), StatusIs(kInvalid, "deployment"));
}

TEST(Renewals, PinsOfEarlierKeysTakeTheRoster) {
  TestRandom random(17);
  Parties parties(3, random);
  const PinnedParties first = parties.pinned();
  parties.Renew(2, random);
  const PinnedParties second = parties.pinned();
  parties.Renew(2, random);
  parties.Renew(3, random);
  const wire::SignedRoster roster = parties.Signed();
  SHOAL_ASSERT_OK_AND_ASSIGN(Roster verified, Roster::Verify(roster, first, kNowS));
  EXPECT_EQ(verified.renewed(), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(verified.NumberOf(parties.keys(2).bls().public_key()), 2u);
  SHOAL_EXPECT_OK(Roster::Verify(roster, second, kNowS));
  SHOAL_ASSERT_OK_AND_ASSIGN(verified, Roster::Verify(roster, parties.pinned(), kNowS));
  EXPECT_TRUE(verified.renewed().empty());

  wire::SignedRoster broken = roster;
  broken.clear_renewals();
  EXPECT_THAT(Roster::Verify(broken, first, kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  broken = roster;
  broken.mutable_renewals()->DeleteSubrange(1, 1);  // the second step of party 2
  EXPECT_THAT(Roster::Verify(broken, first, kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  broken = roster;
  broken.mutable_renewals()->SwapElements(0, 1);
  EXPECT_THAT(Roster::Verify(broken, first, kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  broken = roster;
  broken.mutable_renewals(0)->set_signature("short");
  EXPECT_THAT(Roster::Verify(broken, first, kNowS), StatusIs(kInvalid, "another length"));
  broken = roster;
  broken.mutable_renewals(0)->set_new_key(broken.renewals(0).old_key());
  EXPECT_THAT(Roster::Verify(broken, first, kNowS), StatusIs(kInvalid, "to itself"));
  // What costs no pairing comes first.
  broken.mutable_roster()->set_max_slots(0);
  EXPECT_THAT(Roster::Verify(broken, first, kNowS), StatusIs(kInvalid, "max_slots"));
  broken = roster;
  while (broken.renewals_size() <= 8 * 16) *broken.add_renewals() = roster.renewals(0);
  EXPECT_THAT(Roster::Verify(broken, first, kNowS), StatusIs(kInvalid, "too many"));
}

// Renewals are no part of what all sign: anybody on the way can add some, which must not keep
// clients with old pins away.
TEST(Renewals, OthersBesideDoNotHideTheWay) {
  TestRandom random(22), same_random(22), others(23);
  const Parties before(3, same_random);
  Parties parties(3, random);
  parties.Renew(2, random);
  wire::SignedRoster roster;
  const auto add = [&](const wire::KeyRenewal& renewal) { *roster.add_renewals() = renewal; };
  const auto& first_key = before.keys(2).bls();
  const signature::SecretKey thiefs = signature::SecretKey::Generate(others);
  add(SignRenewal(first_key, thiefs.public_key()));
  add(SignRenewal(thiefs, before.keys(3).bls().public_key()));
  add(parties.Signed().renewals(0));
  roster.mutable_renewals(2)->set_signature(roster.renewals(0).signature());  // is none of it
  roster.MergeFrom(parties.Signed());
  // The way goes on from the roster's key.
  add(SignRenewal(parties.keys(2).bls(), thiefs.public_key()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Roster verified, Roster::Verify(roster, before.pinned(), kNowS));
  EXPECT_EQ(verified.renewed(), std::vector<uint32_t>{2});
}

// Renewals cost whoever follows them two pairings each.
TEST(Renewals, LeadOverABoundedNumberOfKeys) {
  TestRandom random(24), same_random(24);
  const Parties before(2, same_random);
  Parties parties(2, random);
  parties.Renew(1, random);
  const PinnedParties second = parties.pinned();
  const wire::KeyRenewal first_step = parties.Signed().renewals(0);
  for (int i = 0; i < 16; ++i) parties.Renew(1, random);
  wire::SignedRoster roster = parties.Signed();
  roster.clear_renewals();
  *roster.add_renewals() = first_step;
  roster.mutable_renewals()->MergeFrom(parties.Signed().renewals());
  ASSERT_EQ(roster.renewals_size(), 17);
  SHOAL_EXPECT_OK(Roster::Verify(roster, second, kNowS));
  EXPECT_THAT(Roster::Verify(roster, before.pinned(), kNowS),
              StatusIs(kUnauthenticated, "party 1 is not the pinned one"));

  // Both parties' old keys, which somebody has, lead to one key and from there to many.
  TestRandom third_random(24);
  Parties renewed(2, third_random);
  renewed.Renew(1, random);
  renewed.Renew(2, random);
  const wire::SignedRoster real = renewed.Signed();
  const signature::SecretKey thiefs = signature::SecretKey::Generate(random);
  wire::SignedRoster maze = real;
  maze.clear_renewals();
  for (const uint32_t number : {1u, 2u}) {
    *maze.add_renewals() = SignRenewal(before.keys(number).bls(), thiefs.public_key());
  }
  while (maze.renewals_size() < 8 * 16 - 2) {
    wire::KeyRenewal& nowhere = *maze.add_renewals();
    nowhere = SignRenewal(thiefs, before.keys(1).bls().public_key());
    nowhere.set_new_key(std::string(96, static_cast<char>(maze.renewals_size())));
  }
  maze.mutable_renewals()->MergeFrom(real.renewals());
  EXPECT_THAT(Roster::Verify(maze, before.pinned(), kNowS), StatusIs(kInvalid, "to and fro"));
}

// Whoever replaced an honest party's key would have the one secret that protects everybody.
TEST(Renewals, NobodyElseReplacesAKey) {
  TestRandom random(18);
  const Parties before(3, random);
  TestRandom same_random(18);
  Parties others(3, same_random);  // the same keys
  others.Renew(2, random);         // signs with the old key
  wire::SignedRoster roster = others.Signed();
  SHOAL_ASSERT_OK(Roster::Verify(roster, before.pinned(), kNowS));
  // The new key is one that the other parties know, and each of them signs that it is.
  for (const uint32_t signer : {1u, 3u}) {
    *roster.mutable_renewals(0) =
        SignRenewal(before.keys(signer).bls(), others.keys(2).bls().public_key());
    EXPECT_THAT(Roster::Verify(roster, before.pinned(), kNowS),
                StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
    roster.mutable_renewals(0)->set_old_key(ToString(before.keys(2).bls().public_key().bytes()));
    EXPECT_THAT(Roster::Verify(roster, before.pinned(), kNowS),
                StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  }
  // The renewal does not replace the signature of all.
  roster = others.Signed();
  roster.set_signature(ToString(others.keys(2).bls().Sign(RosterDigest(others.draft())).bytes()));
  EXPECT_THAT(Roster::Verify(roster, before.pinned(), kNowS),
              StatusIs(kUnauthenticated, "does not match"));
}

// A key is renewed because others may have it. Who has followed the renewal takes no roster of the
// old key any more, however high its epoch.
TEST(Renewals, WhoHasFollowedOneDoesNotGoBack) {
  TestRandom random(19), same_random(19);
  Parties before(3, random);
  const PinnedParties pins = before.pinned();
  Parties after(3, same_random);
  after.Renew(2, random);
  EXPECT_EQ(pins.Follow(before.roster(), std::nullopt), std::nullopt);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Roster roster, Roster::Verify(after.Signed(), pins, kNowS));
  const std::optional<FollowedKeys> followed = pins.Follow(roster, std::nullopt);
  ASSERT_TRUE(followed.has_value());
  SHOAL_EXPECT_OK(Roster::Verify(after.Signed(), pins.After(followed), kNowS));
  before.draft().set_epoch(99);
  SHOAL_EXPECT_OK(Roster::Verify(before.Signed(), pins.After(std::nullopt), kNowS));
  EXPECT_THAT(Roster::Verify(before.Signed(), pins.After(followed), kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  // The thief of the old key names a successor of his own. Only who has not followed the owner's
  // takes it, and to whoever has, both chains together are the owner's.
  TestRandom thief_random(19), others(20);
  Parties thief(3, thief_random);
  thief.Renew(2, others);
  thief.draft().set_epoch(99);
  wire::SignedRoster stolen = thief.Signed();
  SHOAL_EXPECT_OK(Roster::Verify(stolen, pins, kNowS));
  *stolen.add_renewals() = after.Signed().renewals(0);
  EXPECT_THAT(Roster::Verify(stolen, pins.After(followed), kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  // Nor does anybody go back by the renewal that led away, turned around.
  wire::SignedRoster back = before.Signed();
  *back.add_renewals() = after.Signed().renewals(0);
  back.mutable_renewals(0)->mutable_old_key()->swap(*back.mutable_renewals(0)->mutable_new_key());
  EXPECT_THAT(Roster::Verify(back, pins.After(followed), kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  // Nor by a run with the new pins in between, which have nothing to follow.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Roster same,
                             Roster::Verify(after.Signed(), after.pinned().After(followed), kNowS));
  const std::optional<FollowedKeys> kept = after.pinned().Follow(same, followed);
  EXPECT_THAT(Roster::Verify(before.Signed(), pins.After(kept), kNowS),
              StatusIs(kUnauthenticated, "party 2 is not the pinned one"));
  // An owner may go back to the key of before, and is followed there.
  *back.mutable_renewals(0) = SignRenewal(after.keys(2).bls(), before.keys(2).bls().public_key());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Roster gone_back,
                             Roster::Verify(back, pins.After(followed), kNowS));
  SHOAL_EXPECT_OK(
      Roster::Verify(before.Signed(), pins.After(pins.Follow(gone_back, followed)), kNowS));
  // Pins of the configuration that were changed by hand count anew.
  TestRandom other_random(20);
  const Parties strangers(3, other_random);
  EXPECT_EQ(strangers.pinned().After(followed).digest(), strangers.pinned().digest());
}

TEST(Renewals, AnnouncedOnesAreChecked) {
  TestRandom random(21), same_random(21);
  const Parties first(2, same_random);
  Parties parties(2, random);
  parties.Renew(1, random);
  parties.Renew(1, random);
  const wire::PartyAnnouncement good = parties.keys(1).announcement();
  ASSERT_EQ(good.renewals_size(), 2);
  SHOAL_EXPECT_OK(PartyFromAnnouncement(good, kNowS));
  const auto refuses = [&](auto change, absl::StatusCode code, const char* why) {
    wire::PartyAnnouncement bad = good;
    change(bad);
    EXPECT_THAT(PartyFromAnnouncement(bad, kNowS), StatusIs(code, why));
  };
  refuses([&](auto& a) { a.mutable_renewals()->RemoveLast(); }, kInvalid, "to another key");
  refuses([&](auto& a) { a.mutable_renewals()->SwapElements(0, 1); }, kInvalid, "of another key");
  refuses([&](auto& a) { a.mutable_renewals(0)->clear_signature(); }, kInvalid, "another length");
  refuses(
      [&](auto& a) {
        *a.mutable_renewals(1) =
            SignRenewal(parties.keys(1).bls(), parties.keys(1).bls().public_key());
      },
      kInvalid, "to itself");
  // Structure comes before signatures.
  refuses(
      [&](auto& a) {
        a.mutable_renewals(0)->set_signature(good.renewals(1).signature());
        a.mutable_renewals()->RemoveLast();
      },
      kInvalid, "to another key");
  refuses(
      [&](auto& a) {
        *a.mutable_renewals(0) = SignRenewal(first.keys(2).bls(), first.keys(1).bls().public_key());
        a.mutable_renewals(0)->set_old_key(good.renewals(0).old_key());
        a.mutable_renewals(0)->set_new_key(good.renewals(0).new_key());
      },
      kUnauthenticated, "not signed by the key before");
  refuses(
      [&](auto& a) {
        while (a.renewals_size() <= 16) *a.add_renewals() = good.renewals(1);
      },
      kInvalid, "too many");
  // What a party announces stays bounded.
  for (int i = 0; i < 20; ++i) parties.Renew(1, random);
  EXPECT_EQ(parties.keys(1).announcement().renewals_size(), 16);
  SHOAL_EXPECT_OK(PartyFromAnnouncement(parties.keys(1).announcement(), kNowS));
  SHOAL_EXPECT_OK(Roster::Verify(parties.Signed(), parties.pinned(), kNowS));
}

TEST(CheckAddress, TakesHostsAndPorts) {
  for (const char* good : {"localhost:1", "127.0.0.1:65535", "[::1]:7001", "a-b.example:443"}) {
    SHOAL_EXPECT_OK(CheckAddress("address", good)) << good;
  }
  for (const char* bad : {"", ":1", "host", "host:", "host:0", "host:65536", "host:+1", "host: 1",
                          "ho st:1", "::1:80", "[]:1", "[::1:1", "host:1x"}) {
    EXPECT_THAT(CheckAddress("address", bad), StatusIs(kInvalid, "host:port")) << bad;
  }
}

// Bytes from anybody: a mutated roster is refused, or is the one that was signed.
TEST(Roster, MutatedBytesAreNeverAcceptedChanged) {
  const google::protobuf::LogSilencer silence;  // protobuf logs a line for every mutation of text
  TestRandom random(15);
  const Parties parties(2, random);
  const PinnedParties pinned = parties.pinned();
  const std::string good = parties.Signed().SerializeAsString();
  const Digest digest = RosterDigest(parties.Signed().roster());
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    bytes[random.Below(bytes.size())] ^= static_cast<char>(1 << random.Below(8));
    if (random.Below(4) == 0) bytes.resize(random.Below(bytes.size()));
    wire::SignedRoster parsed;
    if (!parsed.ParseFromString(bytes)) continue;
    const absl::StatusOr<Roster> roster = Roster::Verify(parsed, pinned, kNowS);
    if (!roster.ok()) continue;
    ++accepted;
    EXPECT_EQ(roster->digest(), digest);
  }
  EXPECT_LT(accepted, 100);
}

}  // namespace
}  // namespace shoal::roster
