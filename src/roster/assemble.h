// A roster from what a deployment's parties have agreed on and what each has announced, and one
// party's signature on it.
#ifndef SHOAL_SRC_ROSTER_ASSEMBLE_H_
#define SHOAL_SRC_ROSTER_ASSEMBLE_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "src/wire/roster.pb.h"

namespace shoal::roster {

inline constexpr uint64_t kDefaultRosterDays = 90;

// The roster for the parties to sign, without a signature: `settings`, whose parties have names and
// addresses but no keys, with the keys of their announcements, in any order. Fills in what settings
// may leave out: epoch 1, the onions' suite, and times, from now on for `valid_days`.
// INVALID_ARGUMENT: an announcement is missing, comes twice or is of nobody, or two parties have or
// had one key. Errors of PartyFromAnnouncement and CheckRoster.
absl::StatusOr<wire::SignedRoster> AssembleRoster(
    const wire::Roster& settings, std::span<const wire::PartyAnnouncement> announcements,
    uint64_t now_s, uint64_t valid_days = kDefaultRosterDays);

// The share of the party whose keys are in the directory, as recorded there first: a party signs
// one content for an epoch. FAILED_PRECONDITION: the roster names another TLS certificate. Errors
// of PartyKeys::Load, SignRoster and RecordSigning.
absl::StatusOr<wire::RosterShare> SignAsParty(const wire::Roster& roster,
                                              const std::string& keys_directory);

}  // namespace shoal::roster

#endif  // SHOAL_SRC_ROSTER_ASSEMBLE_H_
