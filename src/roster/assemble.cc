#include "src/roster/assemble.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/status_macros.h"
#include "src/roster/fingerprint.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/signing_record.h"

namespace shoal::roster {
namespace {

constexpr uint64_t kSecondsADay = 24 * 3600;

}  // namespace

absl::StatusOr<wire::SignedRoster> AssembleRoster(
    const wire::Roster& settings, std::span<const wire::PartyAnnouncement> announcements,
    uint64_t now_s, uint64_t valid_days) {
  std::map<std::string, const wire::PartyAnnouncement*> by_name;
  for (const wire::PartyAnnouncement& announcement : announcements) {
    if (!by_name.emplace(announcement.name(), &announcement).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is a second announcement of ", announcement.name()));
    }
  }
  wire::SignedRoster unsigned_roster;
  wire::Roster& roster = *unsigned_roster.mutable_roster();
  roster = settings;
  std::map<std::string, std::string> owners;  // of every key that a party has or had
  uint32_t number = 0;
  for (wire::Party& party : *roster.mutable_parties()) {
    const auto found = by_name.find(party.name());
    if (found == by_name.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no announcement of party ", party.name()));
    }
    const wire::PartyAnnouncement& announcement = *found->second;
    SHOAL_ASSIGN_OR_RETURN(const wire::Party announced, PartyFromAnnouncement(announcement, now_s));
    std::vector<std::string> keys = {announced.bls_public_key()};
    for (const wire::KeyRenewal& renewal : announcement.renewals()) {
      keys.push_back(renewal.old_key());
    }
    for (const std::string& key : keys) {
      const auto owner = owners.emplace(key, party.name()).first;
      if (owner->second != party.name()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the key with the fingerprint ", KeyFingerprint(AsBytes(key)),
                         " is or was that of ", owner->second, " and of ", party.name()));
      }
    }
    unsigned_roster.mutable_renewals()->MergeFrom(announcement.renewals());
    by_name.erase(found);
    party.set_number(++number);
    party.set_bls_public_key(announced.bls_public_key());
    party.set_proof_of_possession(announced.proof_of_possession());
    party.set_tls_certificate_sha256(announced.tls_certificate_sha256());
    if (party.machines() == 0) {
      party.set_machines(1 + static_cast<uint32_t>(party.other_machines_size()));
    }
  }
  if (!by_name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the settings name no party ", by_name.begin()->first));
  }
  if (roster.epoch() == 0) roster.set_epoch(1);
  if (roster.valid_from_s() == 0) roster.set_valid_from_s(now_s);
  if (roster.expires_s() == 0)
    roster.set_expires_s(roster.valid_from_s() + valid_days * kSecondsADay);
  if (roster.onion_suite().empty()) roster.set_onion_suite(std::string(kOnionSuite));
  SHOAL_RETURN_IF_ERROR(CheckRoster(roster));
  return unsigned_roster;
}

absl::StatusOr<wire::RosterShare> SignAsParty(const wire::Roster& roster,
                                              const std::string& keys_directory) {
  SHOAL_ASSIGN_OR_RETURN(const PartyKeys keys, PartyKeys::Load(keys_directory));
  SHOAL_ASSIGN_OR_RETURN(wire::RosterShare share, SignRoster(roster, keys.bls()));
  // The party's entry must pin the certificate of its own TLS key.
  const wire::Party& entry = roster.parties(static_cast<int>(share.party()) - 1);
  if (entry.tls_certificate_sha256() != ToString(keys.tls().certificate_sha256())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the roster names another TLS certificate than ", keys_directory));
  }
  SHOAL_RETURN_IF_ERROR(RecordSigning(keys_directory, absl::StrCat("roster ", roster.deployment()),
                                      roster.epoch(), RosterDigest(roster)));
  return share;
}

}  // namespace shoal::roster
