#include "src/shoal/party_commands.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/roster/assemble.h"
#include "src/roster/fingerprint.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/roster/signing_record.h"
#include "src/shoal/common.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

std::string MechanismName(wire::Mechanism mechanism) { return wire::Mechanism_Name(mechanism); }

std::string Fingerprint(const std::string& key) { return roster::KeyFingerprint(AsBytes(key)); }

absl::Status Generate(const cli::Values& values, cli::Io& io) {
  SystemRandom random;
  const std::string directory = values["out"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(
      const roster::PartyKeys keys,
      roster::PartyKeys::Generate(values["name"].as<std::string>(), NowSeconds(), random));
  SHOAL_RETURN_IF_ERROR(keys.Save(directory));
  io.err << "keys of " << keys.name() << " are in " << directory
         << "; the others need its announcement.textproto. Its key has the fingerprint\n"
         << Fingerprint(keys.announcement().bls_public_key()) << "\n";
  io.out << wire::PrintText(keys.announcement());
  return absl::OkStatus();
}

absl::Status Renew(const cli::Values& values, cli::Io& io) {
  SystemRandom random;
  const std::string directory = values["keys"].as<std::string>();
  const std::string out = values["out"].as<std::string>();
  const bool only_tls = values.count("only-tls") > 0;
  SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys, roster::PartyKeys::Load(directory));
  SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys renewed,
                         keys.Renew(only_tls, NowSeconds(), random));
  if (FileExists(out)) return absl::AlreadyExistsError(absl::StrCat(out, ": exists"));
  // Comes first, so that no keys exist that could sign without the record.
  SHOAL_RETURN_IF_ERROR(roster::HandRecordOn(directory, out));
  SHOAL_RETURN_IF_ERROR(renewed.Save(out));
  io.err << (only_tls ? "the TLS key and certificate" : "the keys") << " of " << keys.name()
         << " are renewed in " << out << ", with which the next roster is signed. `shoal` signs no "
         << "roster, table or setup from " << directory
         << " any more; shoald serves with it until that roster is in service\n";
  io.out << wire::PrintText(renewed.announcement());
  return absl::OkStatus();
}

absl::Status Machine(const cli::Values& values, cli::Io& io) {
  SystemRandom random;
  const std::string directory = values["keys"].as<std::string>();
  const std::string out = values["out"].as<std::string>();
  SHOAL_RETURN_IF_ERROR(roster::MachineKeys::HandOut(directory, out, random));
  io.err << out << " has what a machine of the party needs that is not its head: no signing key. "
         << "Bring it there over a channel that nobody else can read\n";
  return absl::OkStatus();
}

absl::Status Assemble(const cli::Values& values, cli::Io& io) {
  const std::string settings_path = values["settings"].as<std::string>();
  wire::Roster settings;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(settings_path, settings));
  std::vector<wire::PartyAnnouncement> announcements;
  for (const std::string& path : cli::TextsOf(values, "announcement")) {
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, announcements.emplace_back()));
  }
  absl::StatusOr<wire::SignedRoster> roster =
      roster::AssembleRoster(settings, announcements, NowSeconds(),
                             cli::NumberOr(values, "valid-days", roster::kDefaultRosterDays));
  if (!roster.ok()) return Annotate(roster.status(), settings_path);
  return WriteResult(values, io, wire::PrintText(*roster));
}

absl::StatusOr<wire::SignedRoster> ReadAnyRoster(const cli::Values& values) {
  wire::SignedRoster roster;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(values["roster"].as<std::string>(), roster));
  return roster;
}

// Says which parties have other keys than the pinned ones, and which keys. The roster may be
// anybody's.
void TellRenewed(const wire::Roster& roster, const roster::PinnedParties& pinned,
                 const std::vector<uint32_t>& renewed, cli::Io& io) {
  for (const uint32_t number : renewed) {
    const wire::Party& party = roster.parties(static_cast<int>(number) - 1);
    io.err << "party " << number << " has another key than the pinned one, which signed it: "
           << absl::CEscape(party.name()) << ", " << Fingerprint(party.bls_public_key())
           << " after " << roster::KeyFingerprint(pinned.keys()[number - 1].bytes()) << "\n";
  }
}

// Whether the operator has named the parties with other keys than the pinned ones, and no others:
// the successor of a stolen key is signed by it, too.
absl::Status CheckRenewedAreNamed(const wire::Roster& roster, const std::vector<uint32_t>& renewed,
                                  std::vector<std::string> named) {
  for (const uint32_t number : renewed) {
    const std::string& name = roster.parties(static_cast<int>(number) - 1).name();
    if (std::erase(named, name) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("party ", number,
                       " has another key than the pinned one. Ask it by another "
                       "way whether the key is its own, and if so, sign with --renewed ",
                       absl::CEscape(name)));
    }
  }
  if (named.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--renewed ", named.front(), ": no party of that name has renewed its key"));
}

absl::Status Sign(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster roster, ReadAnyRoster(values));
  const std::vector<std::string> named = cli::TextsOf(values, "renewed");
  if (values.count("pinned") > 0) {
    SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned, ReadPins(values));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> renewed, roster::CheckPins(roster, pinned));
    TellRenewed(roster.roster(), pinned, renewed, io);
    SHOAL_RETURN_IF_ERROR(CheckRenewedAreNamed(roster.roster(), renewed, named));
  } else if (!named.empty()) {
    return cli::UsageError("--renewed: makes sense with --pinned alone");
  }
  const std::string directory = values["keys"].as<std::string>();
  SHOAL_ASSIGN_OR_RETURN(const wire::RosterShare share,
                         roster::SignAsParty(roster.roster(), directory));
  return WriteResult(values, io, wire::PrintText(share));
}

absl::Status Aggregate(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster roster, ReadAnyRoster(values));
  std::vector<wire::RosterShare> shares;
  for (const std::string& path : cli::TextsOf(values, "share")) {
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, shares.emplace_back()));
  }
  SHOAL_ASSIGN_OR_RETURN(wire::SignedRoster signed_roster,
                         roster::AggregateRoster(roster.roster(), shares));
  *signed_roster.mutable_renewals() = roster.renewals();
  return WriteResult(values, io, wire::PrintText(signed_roster));
}

absl::Status Pins(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster roster, ReadAnyRoster(values));
  SHOAL_ASSIGN_OR_RETURN(const wire::PinnedParties pins, roster::PinsOf(roster.roster()));
  SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties checked, roster::PinnedParties::Create(pins));
  io.err << "the pins have the fingerprint, for all to compare who are to trust them:\n"
         << roster::PinsFingerprint(checked) << "\n";
  return WriteResult(values, io, wire::PrintText(pins));
}

absl::Status Inspect(const cli::Values& values, cli::Io& io) {
  SHOAL_ASSIGN_OR_RETURN(const wire::SignedRoster signed_roster, ReadAnyRoster(values));
  const wire::Roster& roster = signed_roster.roster();
  io.out << "deployment\t" << roster.deployment() << "\n"
         << "epoch\t" << roster.epoch() << "\n"
         << "valid\t" << FormatTime(roster.valid_from_s()) << " to "
         << FormatTime(roster.expires_s()) << "\n"
         << "clock tolerance\t" << roster.clock_tolerance_s() << " s\n"
         << "slots a round\t" << roster.max_slots() << "\n"
         << "onions\t" << roster.onion_suite() << "\n"
         << "noise\t" << MechanismName(roster.noise().mechanism()) << ", epsilon "
         << roster.noise().epsilon() << ", delta " << roster.noise().delta() << ", phi "
         << roster.noise().phi() << "\n"
         << "digest\t" << Hex(roster::RosterDigest(roster)) << "\n"
         << "fingerprint\t" << roster::RosterFingerprint(roster) << "\n";
  if (roster.has_term_limit()) {
    io.out << "terms\tup to " << roster.term_limit().days() << " days and "
           << roster.term_limit().refreshes() << " refreshes\n";
  }
  if (roster.most_in_bucket() != 0) {
    io.out << "two tiers\tup to " << roster.most_in_bucket()
           << " queries of a client in a bucket\n";
  }
  for (const wire::Party& party : roster.parties()) {
    const bool both = !party.client_address().empty() && !party.peer_address().empty();
    io.out << "party " << party.number() << "\t" << party.name() << "\t" << party.peer_address()
           << (both ? ", clients " : "") << party.client_address() << "\t"
           << Fingerprint(party.bls_public_key()) << "\n";
    int machine = 0;
    for (const wire::Machine& other : party.other_machines()) {
      io.out << "  machine " << ++machine << "\t" << other.peer_address()
             << (other.client_address().empty() ? "" : "clients ") << other.client_address()
             << "\n";
    }
  }
  if (values.count("pinned") > 0) {
    SHOAL_ASSIGN_OR_RETURN(const roster::Roster verified, ReadRoster(values));
    SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned, ReadPins(values));
    TellRenewed(roster, pinned, verified.renewed(), io);
    io.out << "pins\t" << roster::PinsFingerprint(pinned) << "\n";
    io.out << "verified\tby all " << verified.size() << " pinned parties\n";
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(roster::CheckRoster(roster));
  io.out << "verified\tno: only well-formed; give --pinned to check who signed it\n";
  return absl::OkStatus();
}

}  // namespace

cli::Command KeysGenerate() {
  return {
      .name = "keys generate",
      .summary = "make a party's long-lived keys",
      .help =
          R"(Makes a party's BLS12-381 signing key and its TLS certificate in a new directory that
only its owner may enter, and prints the announcement that the other parties need.
Existing keys are never overwritten. Onion keys are not made here, as each lives for
one round only.
)",
      .examples =
          R"(  shoal keys generate --name alice --out parties/alice > alice.announcement.textproto
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("name", cli::Text()->required(), "the party's name")(
                "out", cli::Directory()->required(), "the directory for its secrets");
          },
      .positional = "",
      .run = Generate,
  };
}

cli::Command KeysRenew() {
  return {
      .name = "keys renew",
      .summary = "make keys that take the place of a party's present ones",
      .help =
          R"(Makes a fresh signing key and a fresh TLS certificate for the party whose keys are
given, in a new directory, and prints the announcement for the next roster. The present
key signs the new one, so that clients that pin the present key take a roster with the
new one. With --only-tls the signing key stays, and with it pins and tables. From then on
`shoal` signs rosters, tables and setups from the new directory alone, which goes on with the
record of what was signed; shoald serves with the present directory until the next roster
does. docs/operations.md says what follows.
)",
      .examples =
          R"(  shoal keys renew --keys keys --out keys-new > alice.announcement
  shoal keys renew --keys keys --only-tls --out keys-new > alice.announcement
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("keys", cli::Directory()->required(), "the party's keys")(
                "out", cli::Directory()->required(), "the new directory for its secrets")(
                "only-tls", "keep the signing key");
          },
      .positional = "",
      .run = Renew,
  };
}

cli::Command KeysMachine() {
  return {
      .name = "keys machine",
      .summary = "make the directory of keys of a party's other machines",
      .help =
          R"(A party of several machines has its keys at the first one, the head. This makes a new
directory for the others, the same for each: the TLS key and certificate, the announcement,
and machines.key, the secret of the party's machines, which is made in the head's directory,
too, if there is none. The signing key stays where it is.
)",
      .examples =
          R"(  shoal keys machine --keys keys --out keys-of-others
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("keys", cli::Directory()->required(), "the party's keys")(
                "out", cli::Directory()->required(), "the new directory");
          },
      .positional = "",
      .run = Machine,
  };
}

cli::Command RosterAssemble() {
  return {
      .name = "roster assemble",
      .summary = "make a roster from the parties' announcements",
      .help =
          R"(Reads the deployment's settings (a roster in text format whose parties have names and
addresses but no keys yet), adds the keys that the parties announced, and prints the
roster for all of them to sign. If the settings name no times, the roster is valid from
now on. A party of several machines has an entry other_machines for each one but the first.
)",
      .examples =
          R"(  shoal roster assemble --settings demo.textproto --announcement alice.textproto \
      --announcement bob.textproto --out roster.textproto
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("settings", cli::File()->required(), "the deployment's settings")(
                "announcement", cli::Files()->required(),
                "one party's announcement; repeat for every party")(
                "valid-days", cli::Number(),
                "days that the roster is valid, if the settings name no end (default 90)");
            AddOutOption(options);
          },
      .positional = "",
      .run = Assemble,
  };
}

cli::Command RosterSign() {
  return {
      .name = "roster sign",
      .summary = "sign a roster as one of its parties",
      .help =
          R"(Checks the roster (proofs of possession, limits, and that the noise gives the privacy
that the roster claims) and prints this party's share of the signature. With --pinned, for
every roster but the first, it also checks that every party has the pinned key. Where a
party has one that the pinned key signed, it shows both and refuses, unless --renewed names
the party: whoever has stolen the pinned key can sign another, so ask the party first. A
party signs only one content for an epoch, for ever: it keeps a record of what it has
signed beside its keys.
)",
      .examples =
          R"(  shoal roster sign --roster roster.textproto --keys parties/alice --out alice.share
  shoal roster sign --roster next.textproto --pinned pinned.textproto --keys parties/alice \
      --out alice.share
  shoal roster sign --roster next.textproto --pinned pinned.textproto --renewed bob \
      --keys parties/alice --out alice.share
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("roster", cli::File()->required(),
                                  "from `shoal roster assemble`")(
                "keys", cli::Directory()->required(), "the party's keys")(
                "pinned", cli::File(), "the parties that are pinned until now")(
                "renewed", cli::Texts(),
                "a party that says that it has this other key; repeat for every one");
            AddOutOption(options);
          },
      .positional = "",
      .run = Sign,
  };
}

cli::Command RosterAggregate() {
  return {
      .name = "roster aggregate",
      .summary = "add up the parties' shares of a roster's signature",
      .help = R"(Verifies every party's share and prints the roster with all parties' signature.
)",
      .examples = R"(  shoal roster aggregate --roster roster.textproto --share alice.share \
      --share bob.share --out roster.signed.textproto
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("roster", cli::File()->required(),
                                  "from `shoal roster assemble`")(
                "share", cli::Files()->required(), "one party's share; repeat for every party");
            AddOutOption(options);
          },
      .positional = "",
      .run = Aggregate,
  };
}

cli::Command RosterPins() {
  return {
      .name = "roster pins",
      .summary = "print the keys that clients and parties pin",
      .help =
          R"(Prints the deployment's name and the parties' public keys, which everybody who trusts
this roster puts into the configuration. Compare the keys with the parties first, by
phone if need be: from here on these keys are the root of trust.
)",
      .examples = "  shoal roster pins --roster roster.textproto --out pinned.textproto\n",
      .options =
          [](cli::Options& options) {
            options.add_options()("roster", cli::File()->required(), "the roster, signed or not");
            AddOutOption(options);
          },
      .positional = "",
      .run = Pins,
  };
}

cli::Command RosterInspect() {
  return {
      .name = "roster inspect",
      .summary = "show a roster, and check who signed it",
      .help =
          R"(Prints a roster in words. With --pinned the roster is verified as a client does it:
exit code 0 if it can be trusted, 3 if a signature, time, epoch or pin does not hold, 1
if it is malformed or its noise does not give the privacy that it claims.
)",
      .examples =
          R"(  shoal roster inspect --roster roster.signed.textproto --pinned pinned.textproto
)",
      .options =
          [](cli::Options& options) {
            options.add_options()("roster", cli::File()->required(), "the roster")(
                "pinned", cli::File(), "the parties that you trust");
          },
      .positional = "",
      .run = Inspect,
  };
}

}  // namespace shoal::commands
