// A deployment's parties for tests: keys, and a roster that all of them signed.
#ifndef SHOAL_SRC_ROSTER_TESTING_PARTIES_H_
#define SHOAL_SRC_ROSTER_TESTING_PARTIES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/testing/test_clock.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/signature/bls.h"

namespace shoal::roster::testing {

using shoal::testing::kNowS;

// Parties party-1 .. party-n of the deployment "test", valid for a day around kNowS.
class Parties {
 public:
  // With all keys that a party has.
  Parties(uint32_t n, RandomSource& random) {
    for (uint32_t number = 1; number <= n; ++number) {
      whole_.push_back(*PartyKeys::Generate(absl::StrCat("party-", number), kNowS, random));
      Add(*PartyFromAnnouncement(whole_.back().announcement(), kNowS), /*machines=*/1);
    }
    FillDraft();
  }
  // Of so many machines each, with keys that sign and, in place of certificates, random bytes: a
  // function of what `random` gives.
  Parties(const std::vector<uint32_t>& machines, RandomSource& random) {
    for (const uint32_t count : machines) {
      signing_.push_back(signature::SecretKey::Generate(random));
      wire::Party party;
      party.set_name(absl::StrCat("party-", signing_.size()));
      SetKey(signing_.back(), party);
      Digest certificate;
      random.Fill(certificate);
      party.set_tls_certificate_sha256(ToString(certificate));
      Add(std::move(party), count);
    }
    FillDraft();
  }

  // The roster that the calls below sign. A test may change it first.
  wire::Roster& draft() { return draft_; }
  // Where the parties have them.
  const PartyKeys& keys(uint32_t number) const { return whole_.at(number - 1); }
  const signature::SecretKey& key(uint32_t number) const {
    return whole_.empty() ? signing_.at(number - 1) : keys(number).bls();
  }
  uint32_t size() const { return static_cast<uint32_t>(whole_.size() + signing_.size()); }

  // Gives a party new keys, in a roster of the next epoch. Its old key signs the new one.
  void Renew(uint32_t number, RandomSource& random) {
    wire::Party& party = *draft_.mutable_parties(static_cast<int>(number) - 1);
    if (whole_.empty()) {
      signature::SecretKey next = signature::SecretKey::Generate(random);
      renewals_.push_back(SignRenewal(key(number), next.public_key()));
      signing_[number - 1] = std::move(next);
    } else {
      whole_[number - 1] = *keys(number).Renew(/*only_tls=*/false, kNowS, random);
      const wire::Party renewed = *PartyFromAnnouncement(keys(number).announcement(), kNowS);
      party.set_tls_certificate_sha256(renewed.tls_certificate_sha256());
    }
    SetKey(key(number), party);
    draft_.set_epoch(draft_.epoch() + 1);
  }

  // The draft with all parties' signature. The draft is not checked.
  wire::SignedRoster Signed() const {
    wire::SignedRoster out;
    *out.mutable_roster() = draft_;
    for (const PartyKeys& keys : whole_) {
      out.mutable_renewals()->MergeFrom(keys.announcement().renewals());
    }
    for (const wire::KeyRenewal& renewal : renewals_) *out.add_renewals() = renewal;
    out.set_signature(SignatureByAll(RosterDigest(draft_)));
    return out;
  }
  signature::Signature SignByAll(const Digest& digest) const {
    std::vector<signature::Signature> shares;
    for (uint32_t number = 1; number <= size(); ++number)
      shares.push_back(key(number).Sign(digest));
    return *signature::AggregateSignatures(shares);
  }
  // The same as a message has it.
  std::string SignatureByAll(const Digest& digest) const {
    return ToString(SignByAll(digest).bytes());
  }
  wire::PinnedParties PinsText() const {
    wire::PinnedParties pins;
    pins.set_deployment(draft_.deployment());
    for (uint32_t number = 1; number <= size(); ++number) {
      pins.add_bls_public_keys_hex(Hex(key(number).public_key().bytes()));
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
  static void SetKey(const signature::SecretKey& key, wire::Party& party) {
    party.set_bls_public_key(ToString(key.public_key().bytes()));
    party.set_proof_of_possession(ToString(key.ProvePossession().bytes()));
  }
  void Add(wire::Party added, uint32_t machines) {
    wire::Party& party = *draft_.add_parties();
    party = std::move(added);
    const uint32_t number = size();
    party.set_number(number);
    party.set_machines(machines);
    const auto set = [number](uint32_t rank, auto& machine) {
      const std::string address = absl::StrCat("127.0.0.1:", 7000 + number + 100 * rank);
      number == 1 ? machine.set_client_address(address) : machine.set_peer_address(address);
    };
    set(0, party);
    for (uint32_t rank = 1; rank < machines; ++rank) set(rank, *party.add_other_machines());
  }
  void FillDraft() {
    draft_.set_deployment("test");
    draft_.set_epoch(3);
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

  wire::Roster draft_;
  std::vector<PartyKeys> whole_;               // these,
  std::vector<signature::SecretKey> signing_;  // or these
  std::vector<wire::KeyRenewal> renewals_;     // of these
};

}  // namespace shoal::roster::testing

#endif  // SHOAL_SRC_ROSTER_TESTING_PARTIES_H_
