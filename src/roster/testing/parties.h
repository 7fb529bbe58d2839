// A deployment's parties for tests: keys, and a roster that all of them signed.
#ifndef SHOAL_SRC_ROSTER_TESTING_PARTIES_H_
#define SHOAL_SRC_ROSTER_TESTING_PARTIES_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"

namespace shoal::roster::testing {

inline constexpr uint64_t kNowS = 1'800'000'000;

// Parties party-1 .. party-n of the deployment "test", valid for a day around kNowS.
class Parties {
 public:
  Parties(uint32_t n, RandomSource& random) {
    draft_.set_deployment("test");
    draft_.set_epoch(3);
    for (uint32_t number = 1; number <= n; ++number) {
      keys_.push_back(*PartyKeys::Generate(absl::StrCat("party-", number), kNowS, random));
      wire::Party& party = *draft_.add_parties();
      party = *PartyFromAnnouncement(keys_.back().announcement(), kNowS);
      party.set_number(number);
      const std::string address = absl::StrCat("127.0.0.1:", 7000 + number);
      if (number == 1) {
        party.set_client_address(address);
      } else {
        party.set_peer_address(address);
      }
    }
    wire::NoiseParameters& noise = *draft_.mutable_noise();
    noise.set_mechanism(wire::GEOMETRIC);
    noise.set_epsilon(1);
    noise.set_delta(1e-6);
    noise.set_phi(1);
    noise.set_mode(15);
    noise.set_left_scale(1.25);
    noise.set_right_scale(5.0);
    draft_.set_valid_from_s(kNowS - 3600);
    draft_.set_expires_s(kNowS + 24 * 3600);
    draft_.set_clock_tolerance_s(60);
    draft_.set_max_slots(1 << 20);
    draft_.set_onion_suite(std::string(kOnionSuite));
  }

  // The roster that the calls below sign. A test may change it first.
  wire::Roster& draft() { return draft_; }
  const PartyKeys& keys(uint32_t number) const { return keys_[number - 1]; }
  uint32_t size() const { return static_cast<uint32_t>(keys_.size()); }

  // Gives a party new keys, in a roster of the next epoch. Its old key signs the new one.
  void Renew(uint32_t number, RandomSource& random) {
    PartyKeys& keys = keys_[number - 1];
    keys = *keys.Renew(/*only_tls=*/false, kNowS, random);
    const wire::Party renewed = *PartyFromAnnouncement(keys.announcement(), kNowS);
    wire::Party& party = *draft_.mutable_parties(static_cast<int>(number) - 1);
    party.set_bls_public_key(renewed.bls_public_key());
    party.set_proof_of_possession(renewed.proof_of_possession());
    party.set_tls_certificate_sha256(renewed.tls_certificate_sha256());
    draft_.set_epoch(draft_.epoch() + 1);
  }

  // The draft with all parties' signature. The draft is not checked.
  wire::SignedRoster Signed() const {
    wire::SignedRoster out;
    *out.mutable_roster() = draft_;
    for (const PartyKeys& keys : keys_) {
      out.mutable_renewals()->MergeFrom(keys.announcement().renewals());
    }
    out.set_signature(ToString(SignByAll(RosterDigest(draft_)).bytes()));
    return out;
  }
  signature::Signature SignByAll(const Digest& digest) const {
    std::vector<signature::Signature> shares;
    for (const PartyKeys& keys : keys_) shares.push_back(keys.bls().Sign(digest));
    return *signature::AggregateSignatures(shares);
  }
  wire::PinnedParties PinsText() const {
    wire::PinnedParties pins;
    pins.set_deployment("test");
    for (const PartyKeys& keys : keys_) {
      pins.add_bls_public_keys_hex(Hex(keys.bls().public_key().bytes()));
    }
    return pins;
  }
  PinnedParties pinned() const { return *PinnedParties::Create(PinsText()); }
  Roster roster(uint64_t now_s = kNowS) const {
    absl::StatusOr<Roster> roster = Roster::Verify(Signed(), pinned(), now_s);
    SHOAL_CHECK(roster.ok());
    return *roster;
  }

 private:
  wire::Roster draft_;
  std::vector<PartyKeys> keys_;
};

}  // namespace shoal::roster::testing

#endif  // SHOAL_SRC_ROSTER_TESTING_PARTIES_H_
