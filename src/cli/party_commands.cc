#include "src/cli/party_commands.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/cli/common.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/signing_record.h"
#include "src/wire/text.h"

namespace shoal::cli {
namespace {

constexpr uint64_t kDefaultRosterDays = 90;
constexpr uint64_t kSecondsADay = 24 * 3600;

std::string MechanismName(wire::Mechanism mechanism) { return wire::Mechanism_Name(mechanism); }

absl::Status Generate(const Values& values, Io& io) {
  SystemRandom random;
  const std::string directory = values["out"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(
      const roster::PartyKeys keys,
      roster::PartyKeys::Generate(values["name"].as<std::string>(), NowSeconds(), random));
  SHOAL_RETURN_IF_ERROR(keys.Save(directory));
  io.err << "keys of " << keys.name() << " are in " << directory
         << "; the others need its announcement.textproto\n";
  io.out << wire::PrintText(keys.announcement());
  return absl::OkStatus();
}

absl::Status Assemble(const Values& values, Io& io) {
  const std::string settings_path = values["settings"].as<std::string>();
  wire::Roster roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(settings_path, roster));
  std::map<std::string, wire::PartyAnnouncement> announcements;
  for (const std::string& path : TextsOf(values, "announcement")) {
    wire::PartyAnnouncement announcement;
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, announcement));
    if (!announcements.emplace(announcement.name(), announcement).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": a second announcement of ", announcement.name()));
    }
  }
  uint32_t number = 0;
  for (wire::Party& party : *roster.mutable_parties()) {
    const auto announcement = announcements.find(party.name());
    if (announcement == announcements.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(settings_path, ": no announcement of party ", party.name()));
    }
    SHOAL_ASSIGN_OR_RETURN(const wire::Party announced,
                           roster::PartyFromAnnouncement(announcement->second));
    announcements.erase(announcement);
    party.set_number(++number);
    party.set_bls_public_key(announced.bls_public_key());
    party.set_proof_of_possession(announced.proof_of_possession());
    party.set_tls_certificate_sha256(announced.tls_certificate_sha256());
    if (party.machines() == 0) party.set_machines(1);
  }
  if (!announcements.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(settings_path, ": names no party ",
                                                   announcements.begin()->first));
  }
  if (roster.epoch() == 0) roster.set_epoch(1);
  if (roster.valid_from_s() == 0) roster.set_valid_from_s(NowSeconds());
  if (roster.expires_s() == 0) {
    roster.set_expires_s(roster.valid_from_s() +
                         NumberOr(values, "valid-days", kDefaultRosterDays) * kSecondsADay);
  }
  SHOAL_RETURN_IF_ERROR(roster::CheckRoster(roster));
  wire::SignedRoster unsigned_roster;
  *unsigned_roster.mutable_roster() = std::move(roster);
  return WriteResult(values, io, wire::PrintText(unsigned_roster));
}

absl::StatusOr<wire::SignedRoster> ReadAnyRoster(const Values& values) {
  wire::SignedRoster roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(values["roster"].as<std::string>(), roster));
  return roster;
}

absl::Status Sign(const Values& values, Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster roster, ReadAnyRoster(values));
  const std::string directory = values["keys"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys, roster::PartyKeys::Load(directory));
  SHOAL_ASSIGN_OR_RETURN(const wire::RosterShare share,
                         roster::SignRoster(roster.roster(), keys.bls()));
  // The party's own entry must lead to its own TLS key.
  const wire::Party& entry = roster.roster().parties(static_cast<int>(share.party()) - 1);
  if (entry.tls_certificate_sha256() != ToString(keys.tls().certificate_sha256())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the roster names another TLS certificate than ", directory));
  }
  SHOAL_RETURN_IF_ERROR(roster::RecordSigning(
      directory, absl::StrCat("roster ", roster.roster().deployment()), roster.roster().epoch(),
      roster::RosterDigest(roster.roster())));
  return WriteResult(values, io, wire::PrintText(share));
}

absl::Status Aggregate(const Values& values, Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster roster, ReadAnyRoster(values));
  std::vector<wire::RosterShare> shares;
  for (const std::string& path : TextsOf(values, "share")) {
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, shares.emplace_back()));
  }
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster signed_roster,
                         roster::AggregateRoster(roster.roster(), shares));
  return WriteResult(values, io, wire::PrintText(signed_roster));
}

absl::Status Pins(const Values& values, Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster roster, ReadAnyRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const wire::PinnedParties pins, roster::PinsOf(roster.roster()));
  return WriteResult(values, io, wire::PrintText(pins));
}

absl::Status Inspect(const Values& values, Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster signed_roster, ReadAnyRoster(values));
  const wire::Roster& roster = signed_roster.roster();
  io.out << "deployment\t" << roster.deployment() << "\n"
         << "epoch\t" << roster.epoch() << "\n"
         << "valid\t" << FormatTime(roster.valid_from_s()) << " to "
         << FormatTime(roster.expires_s()) << "\n"
         << "clock tolerance\t" << roster.clock_tolerance_s() << " s\n"
         << "slots a round\t" << roster.max_slots() << "\n"
         << "noise\t" << MechanismName(roster.noise().mechanism()) << ", epsilon "
         << roster.noise().epsilon() << ", delta " << roster.noise().delta() << ", phi "
         << roster.noise().phi() << "\n"
         << "digest\t" << Hex(roster::RosterDigest(roster)) << "\n";
  for (const wire::Party& party : roster.parties()) {
    io.out << "party " << party.number() << "\t" << party.name() << "\t"
           << (party.client_address().empty() ? party.peer_address() : party.client_address())
           << "\t" << Hex(AsBytes(party.bls_public_key())).substr(0, 16) << "..\n";
  }
  if (values.count("pinned") > 0) {
    SHOAL_ASSIGN_OR_RETURN(const roster::Roster verified, ReadRoster(values));
    io.out << "verified\tby all " << verified.size() << " pinned parties\n";
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(roster::CheckRoster(roster));
  io.out << "verified\tno: only well-formed; give --pinned to check who signed it\n";
  return absl::OkStatus();
}

}  // namespace

Command KeysGenerate() {
  return {
      .name = "keys generate",
      .summary = "make a party's long-lived keys",
      .help = "Makes a party's BLS12-381 signing key and its TLS certificate in a new directory "
              "that only\nits owner may enter, and prints the announcement that the other "
              "parties need. Keys that\nexist are never overwritten. Onion keys are not made "
              "here: they live for one round.\n",
      .examples = "  shoal keys generate --name alice --out parties/alice > "
                  "alice.announcement.textproto\n",
      .options =
          [](Options& options) {
            options.add_options()("name", Text()->required(), "the party's name")(
                "out", Directory()->required(), "the directory for its secrets");
          },
      .positional = "",
      .run = Generate,
  };
}

Command RosterAssemble() {
  return {
      .name = "roster assemble",
      .summary = "put the parties' announcements into a roster",
      .help = "Reads the deployment's settings, a roster in text format whose parties have names "
              "and\naddresses but no keys yet, adds the keys that the parties announced, and "
              "prints the\nroster for all of them to sign. Missing times begin now.\n",
      .examples = "  shoal roster assemble --settings demo.textproto --announcement "
                  "alice.textproto \\\n      --announcement bob.textproto --out "
                  "roster.textproto\n",
      .options =
          [](Options& options) {
            options.add_options()("settings", File()->required(), "the deployment's settings")(
                "announcement", Files()->required(), "of one party; repeat for every party")(
                "valid-days", Number(), "if the settings name no end (default 90)");
            AddOutOption(options);
          },
      .positional = "",
      .run = Assemble,
  };
}

Command RosterSign() {
  return {
      .name = "roster sign",
      .summary = "sign a roster as one of its parties",
      .help = "Checks the roster (proofs of possession, limits, that the noise gives the privacy "
              "it claims)\nand prints this party's share of the signature. A party signs one "
              "content for an epoch, for\never: what it has signed is kept beside its keys.\n",
      .examples = "  shoal roster sign --roster roster.textproto --keys parties/alice --out "
                  "alice.share\n",
      .options =
          [](Options& options) {
            options.add_options()("roster", File()->required(), "from `shoal roster assemble`")(
                "keys", Directory()->required(), "the party's keys");
            AddOutOption(options);
          },
      .positional = "",
      .run = Sign,
  };
}

Command RosterAggregate() {
  return {
      .name = "roster aggregate",
      .summary = "add up all parties' shares of a roster's signature",
      .help = "Verifies every party's share and prints the roster with all parties' signature.\n",
      .examples = "  shoal roster aggregate --roster roster.textproto --share alice.share \\\n"
                  "      --share bob.share --out roster.signed.textproto\n",
      .options =
          [](Options& options) {
            options.add_options()("roster", File()->required(), "from `shoal roster assemble`")(
                "share", Files()->required(), "of one party; repeat for every party");
            AddOutOption(options);
          },
      .positional = "",
      .run = Aggregate,
  };
}

Command RosterPins() {
  return {
      .name = "roster pins",
      .summary = "print what clients and parties pin",
      .help = "Prints the deployment's name and the parties' public keys: what everybody who "
              "trusts this\nroster puts into its configuration. Compare the keys with the parties "
              "first, over the phone\nif need be: from here on they are the root of trust.\n",
      .examples = "  shoal roster pins --roster roster.textproto --out pinned.textproto\n",
      .options =
          [](Options& options) {
            options.add_options()("roster", File()->required(), "the roster, signed or not");
            AddOutOption(options);
          },
      .positional = "",
      .run = Pins,
  };
}

Command RosterInspect() {
  return {
      .name = "roster inspect",
      .summary = "show a roster, and check who signed it",
      .help = "Prints a roster in words. With --pinned it is verified as a client does: exit code 0 "
              "if it is\nto be trusted, 3 for a signature, time, epoch or pin that does not hold, 1 "
              "if it is malformed\nor its noise does not give what it claims.\n",
      .examples = "  shoal roster inspect --roster roster.signed.textproto --pinned "
                  "pinned.textproto\n",
      .options =
          [](Options& options) {
            options.add_options()("roster", File()->required(), "the roster")(
                "pinned", File(), "the parties that you trust");
          },
      .positional = "",
      .run = Inspect,
  };
}

}  // namespace shoal::cli
