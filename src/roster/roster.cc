#include "src/roster/roster.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/roster/names.h"
#include "src/wire/canonical.h"
#include "src/wire/text.h"

namespace shoal::roster {
namespace {

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// What CheckStructure parses along the way.
struct Checked {
  std::vector<Party> parties;
  std::vector<signature::ProvenKey> keys;
};

// The machines of a party beside its first one. The number of machines is in the digest, so that it
// says how many entries follow there.
absl::Status CheckMachines(const wire::Party& party, const std::string& what) {
  if (party.machines() < 1 || party.machines() > kMaxMachines) {
    return Bad(
        absl::StrCat(what, ", machines: ", party.machines(), " is not in 1..", kMaxMachines));
  }
  if (static_cast<uint32_t>(party.other_machines_size()) != party.machines() - 1) {
    return Bad(absl::StrCat(what, ", other_machines: has ", party.other_machines_size(),
                            " entries, where machines says that there are ", party.machines() - 1,
                            " beside the first one"));
  }
  for (int i = 0; i < party.other_machines_size(); ++i) {
    const wire::Machine& machine = party.other_machines(i);
    const std::string which = absl::StrCat(what, ", machine ", i + 1);
    if (party.number() == 1) {
      SHOAL_RETURN_IF_ERROR(
          CheckAddress(absl::StrCat(which, ", client_address"), machine.client_address()));
      if (!machine.peer_address().empty()) {
        return Bad(absl::StrCat(which, ": no party connects to the first one; no peer_address"));
      }
    } else {
      SHOAL_RETURN_IF_ERROR(
          CheckAddress(absl::StrCat(which, ", peer_address"), machine.peer_address()));
      if (!machine.client_address().empty()) {
        return Bad(absl::StrCat(which,
                                ": engines are served by the first machine of a party; no "
                                "client_address"));
      }
    }
  }
  return absl::OkStatus();
}

// Where a party has several machines, no two in the roster have one address: a part of a list
// would go to another machine than its own, and the round would be lost. Hosts are compared without
// regard to case, and ports as numbers. Two names of one machine are not found.
absl::Status CheckAddressesDiffer(const wire::Roster& roster) {
  bool several = false;
  std::set<std::string> seen;
  std::string twice;
  const auto add = [&](const std::string& address) {
    if (address.empty()) return;
    std::string same = absl::AsciiStrToLower(address);
    const size_t port = same.rfind(':') + 1;
    same.erase(port, same.find_first_not_of('0', port) - port);
    if (!seen.insert(std::move(same)).second) twice = address;
  };
  for (const wire::Party& party : roster.parties()) {
    several = several || party.machines() > 1;
    add(party.peer_address());
    add(party.client_address());
    for (const wire::Machine& machine : party.other_machines()) {
      add(machine.peer_address());
      add(machine.client_address());
    }
  }
  if (!several || twice.empty()) return absl::OkStatus();
  return Bad(absl::StrCat("roster: the address ", twice, " comes twice"));
}

absl::Status CheckParty(const wire::Party& party, uint32_t number) {
  const std::string what = absl::StrCat("roster, party ", number);
  if (party.number() != number) {
    return Bad(absl::StrCat(what, ": has number ", party.number(),
                            "; parties are listed in order from 1"));
  }
  SHOAL_RETURN_IF_ERROR(CheckName(absl::StrCat(what, ", name"), party.name()));
  if (number == 1) {
    SHOAL_RETURN_IF_ERROR(
        CheckAddress(absl::StrCat(what, ", client_address"), party.client_address()));
    if (!party.peer_address().empty()) {
      return Bad(absl::StrCat(what, ": no party connects to the first one; no peer_address"));
    }
  } else {
    SHOAL_RETURN_IF_ERROR(CheckAddress(absl::StrCat(what, ", peer_address"), party.peer_address()));
    // Where the party serves an engine; rounds are entered at party 1.
    if (!party.client_address().empty()) {
      SHOAL_RETURN_IF_ERROR(
          CheckAddress(absl::StrCat(what, ", client_address"), party.client_address()));
    }
  }
  if (party.tls_certificate_sha256().size() != sizeof(Digest)) {
    return Bad(absl::StrCat(what, ", tls_certificate_sha256: has not 32 bytes"));
  }
  return CheckMachines(party, what);
}

// Two tiers are for two parties of one machine each, and without terms.
absl::Status CheckMostInBucket(const wire::Roster& roster) {
  const uint32_t most = roster.most_in_bucket();
  if (most == 0) return absl::OkStatus();
  if (most > kMaxInBucket) {
    return Bad(absl::StrCat("roster, most_in_bucket: ", most, " is not in 0..", kMaxInBucket));
  }
  if (roster.parties_size() != 2) {
    return Bad(absl::StrCat("roster, most_in_bucket: ", most,
                            ", for rounds of two tiers, which are for two parties; the roster has ",
                            roster.parties_size()));
  }
  for (const wire::Party& party : roster.parties()) {
    if (party.machines() > 1) {
      return Bad(absl::StrCat("roster, most_in_bucket: ", most,
                              ", for rounds of two tiers, which are for parties of one machine; "
                              "party ",
                              party.number(), " has ", party.machines()));
    }
  }
  if (roster.has_term_limit()) {
    return Bad(absl::StrCat("roster, most_in_bucket: ", most,
                            ", for rounds of two tiers, which have no terms yet; the roster "
                            "has a term_limit"));
  }
  return absl::OkStatus();
}

// Checks everything but keys, proofs and the noise: no more than comparing.
absl::Status CheckFields(const wire::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckName("roster, deployment", roster.deployment()));
  if (roster.epoch() < 1) return Bad("roster, epoch: begins at 1");
  const auto n = static_cast<uint32_t>(roster.parties_size());
  if (n < kMinParties || n > kMaxParties) {
    return Bad(
        absl::StrCat("roster: has ", n, " parties instead of ", kMinParties, " to ", kMaxParties));
  }
  if (roster.expires_s() > kMaxTimeS || roster.valid_from_s() >= roster.expires_s()) {
    return Bad("roster: valid_from_s must be before expires_s, in seconds since 1970");
  }
  if (roster.expires_s() - roster.valid_from_s() > kMaxValidityS) {
    return Bad("roster: valid for more than ten years");
  }
  if (roster.clock_tolerance_s() > kMaxClockToleranceS) {
    return Bad(absl::StrCat("roster, clock_tolerance_s: more than ", kMaxClockToleranceS));
  }
  if (roster.max_slots() < 1 || roster.max_slots() > kMaxSlots) {
    return Bad(
        absl::StrCat("roster, max_slots: ", roster.max_slots(), " is not in 1..", kMaxSlots));
  }
  if (roster.has_term_limit()) {
    const wire::TermLimit& limit = roster.term_limit();
    if (limit.days() < 1 || limit.days() > kMaxTermDays) {
      return Bad(
          absl::StrCat("roster, term_limit, days: ", limit.days(), " is not in 1..", kMaxTermDays));
    }
    if (limit.refreshes() < 1 || limit.refreshes() > kMaxRefreshes) {
      return Bad(absl::StrCat("roster, term_limit, refreshes: ", limit.refreshes(),
                              " is not in 1..", kMaxRefreshes));
    }
    for (const wire::Party& party : roster.parties()) {
      if (party.machines() > 1) {
        return Bad(absl::StrCat("roster, term_limit: party ", party.number(),
                                " has several machines, which keep no terms"));
      }
    }
  }
  SHOAL_RETURN_IF_ERROR(CheckMostInBucket(roster));
  if (roster.onion_suite().empty()) {
    return Bad(
        absl::StrCat("roster, onion_suite: missing, as in rosters of Shoal 0.1; assemble a "
                     "roster anew, with ",
                     kOnionSuite));
  }
  if (roster.onion_suite() != kOnionSuite) {
    return Bad(absl::StrCat("roster, onion_suite: ", roster.onion_suite(),
                            " is unknown; this program knows ", kOnionSuite));
  }

  std::set<std::string> names, certificates, keys;
  for (uint32_t number = 1; number <= n; ++number) {
    const wire::Party& party = roster.parties(static_cast<int>(number) - 1);
    SHOAL_RETURN_IF_ERROR(CheckParty(party, number));
    const std::string what = absl::StrCat("roster, party ", number);
    if (!names.insert(party.name()).second) {
      return Bad(absl::StrCat(what, ": the name ", party.name(), " comes twice"));
    }
    if (!certificates.insert(party.tls_certificate_sha256()).second) {
      return Bad(absl::StrCat(what, ": has the TLS certificate of another party"));
    }
    // Encodings are canonical: equal keys are equal bytes.
    if (!keys.insert(party.bls_public_key()).second) {
      return Bad(absl::StrCat(what, ": has the BLS key of another party"));
    }
  }
  return CheckAddressesDiffer(roster);
}

// Checks the keys and proofs of a roster that has passed CheckFields: two pairings a party.
absl::StatusOr<Checked> CheckKeys(const wire::Roster& roster) {
  Checked checked;
  for (const wire::Party& party : roster.parties()) {
    const std::string what = absl::StrCat("roster, party ", party.number());
    const absl::StatusOr<signature::ProvenKey> key = signature::ProvenKey::FromBytes(
        AsBytes(party.bls_public_key()), AsBytes(party.proof_of_possession()));
    if (!key.ok()) return Annotate(key.status(), what);
    checked.keys.push_back(*key);
    Party out{.number = party.number(),
              .name = party.name(),
              .peer_address = party.peer_address(),
              .client_address = party.client_address(),
              .key = key->key(),
              .tls_certificate_sha256 = {},
              .machines = party.machines()};
    const BytesView certificate = AsBytes(party.tls_certificate_sha256());
    std::copy(certificate.begin(), certificate.end(), out.tls_certificate_sha256.begin());
    for (const wire::Machine& machine : party.other_machines()) {
      out.other_machines.push_back({machine.peer_address(), machine.client_address()});
    }
    checked.parties.push_back(std::move(out));
  }
  return checked;
}

// Checks everything but the noise: cheap enough for bytes from anybody.
absl::StatusOr<Checked> CheckStructure(const wire::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckFields(roster));
  return CheckKeys(roster);
}

// Checks that the noise gives the privacy that the roster claims. The accountant may need long for
// it.
absl::StatusOr<noise::Parameters> CheckNoise(const wire::Roster& roster) {
  SHOAL_ASSIGN_OR_RETURN(const noise::Parameters noise, NoiseFromWire(roster.noise()));
  // Noise for one query in a bucket does not hide several: without most_in_bucket the claim is far
  // off.
  if (const absl::Status status =
          noise::VerifyPrivacy(noise, std::max(1u, roster.most_in_bucket()));
      !status.ok()) {
    return Annotate(status, "roster, noise");
  }
  return noise;
}

Digest RenewalDigest(absl::string_view old_key, absl::string_view new_key) {
  return Transcript("shoal key renewal v1").Blob(old_key).Blob(new_key).Finish();
}

// What can be seen of a renewal without a pairing.
absl::Status CheckRenewalForm(const wire::KeyRenewal& renewal) {
  if (renewal.old_key().size() != signature::kPublicKeyBytes ||
      renewal.new_key().size() != signature::kPublicKeyBytes ||
      renewal.signature().size() != signature::kSignatureBytes) {
    return Bad("a key or the signature of a renewal has another length");
  }
  if (renewal.old_key() == renewal.new_key()) return Bad("a renewal leads from a key to itself");
  return absl::OkStatus();
}

// Whether the old key has signed the new one. Two pairings.
absl::Status VerifyRenewal(const wire::KeyRenewal& renewal) {
  SHOAL_ASSIGN_OR_RETURN(const signature::PublicKey old_key,
                         signature::PublicKey::FromBytes(AsBytes(renewal.old_key())));
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature signature,
                         signature::Signature::FromBytes(AsBytes(renewal.signature())));
  return Annotate(
      signature::Verify(old_key, RenewalDigest(renewal.old_key(), renewal.new_key()), signature),
      "its renewal is not signed by the key before");
}

}  // namespace

absl::StatusOr<noise::Parameters> NoiseFromWire(const wire::NoiseParameters& parameters) {
  noise::Parameters out;
  switch (parameters.mechanism()) {
    case wire::CLAMPED_LAPLACE:
      out.mechanism = noise::Mechanism::kClampedLaplace;
      break;
    case wire::GEOMETRIC:
      out.mechanism = noise::Mechanism::kGeometric;
      break;
    case wire::SPLIT_GAUSSIAN:
      out.mechanism = noise::Mechanism::kSplitGaussian;
      break;
    default:
      return Bad(
          absl::StrCat("noise, mechanism: ", static_cast<int>(parameters.mechanism()), " is none"));
  }
  for (const double number : {parameters.epsilon(), parameters.delta(), parameters.left_scale(),
                              parameters.right_scale()}) {
    if (!std::isfinite(number)) return Bad("noise: a parameter is not a finite number");
  }
  out.epsilon = parameters.epsilon();
  out.delta = parameters.delta();
  out.phi = parameters.phi();
  out.mode = parameters.mode();
  out.left_scale = parameters.left_scale();
  out.right_scale = parameters.right_scale();
  return out;
}

wire::NoiseParameters NoiseToWire(const noise::Parameters& parameters) {
  wire::NoiseParameters out;
  switch (parameters.mechanism) {
    case noise::Mechanism::kClampedLaplace:
      out.set_mechanism(wire::CLAMPED_LAPLACE);
      break;
    case noise::Mechanism::kGeometric:
      out.set_mechanism(wire::GEOMETRIC);
      break;
    case noise::Mechanism::kSplitGaussian:
      out.set_mechanism(wire::SPLIT_GAUSSIAN);
      break;
  }
  out.set_epsilon(parameters.epsilon);
  out.set_delta(parameters.delta);
  out.set_phi(parameters.phi);
  out.set_mode(parameters.mode);
  out.set_left_scale(parameters.left_scale);
  out.set_right_scale(parameters.right_scale);
  return out;
}

absl::StatusOr<PinnedParties> PinnedParties::Create(const wire::PinnedParties& pinned) {
  PinnedParties out;
  SHOAL_RETURN_IF_ERROR(CheckName("pinned parties, deployment", pinned.deployment()));
  out.deployment_ = pinned.deployment();
  const auto n = static_cast<uint32_t>(pinned.bls_public_keys_hex_size());
  if (n < kMinParties || n > kMaxParties) {
    return Bad(absl::StrCat("pinned parties: has ", n, " keys instead of ", kMinParties, " to ",
                            kMaxParties));
  }
  for (const std::string& hex : pinned.bls_public_keys_hex()) {
    const std::string what = absl::StrCat("pinned parties, key ", out.keys_.size() + 1);
    if (hex.size() != 2 * signature::kPublicKeyBytes ||
        hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      return Bad(
          absl::StrCat(what, ": is not ", 2 * signature::kPublicKeyBytes, " hexadecimal digits"));
    }
    const absl::StatusOr<signature::PublicKey> key =
        signature::PublicKey::FromBytes(AsBytes(absl::HexStringToBytes(hex)));
    if (!key.ok()) return Annotate(key.status(), what);
    out.keys_.push_back(*key);
  }
  out.minimum_roster_epoch_ = pinned.minimum_roster_epoch();
  out.minimum_table_epoch_ = pinned.minimum_table_epoch();
  return out;
}

absl::StatusOr<PinnedParties> PinnedParties::Read(const std::string& path) {
  wire::PinnedParties pinned;
  SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, pinned));
  absl::StatusOr<PinnedParties> out = Create(pinned);
  if (!out.ok()) return Annotate(out.status(), path);
  return out;
}

Digest PinnedParties::digest() const {
  Transcript transcript("shoal pins v1");
  transcript.Blob(deployment_).U64(keys_.size());
  for (const signature::PublicKey& key : keys_) transcript.Blob(key.bytes());
  return transcript.Finish();
}

PinnedParties PinnedParties::After(const std::optional<FollowedKeys>& followed) const {
  PinnedParties out = *this;
  if (followed.has_value() && followed->pins == digest()) out.keys_ = followed->keys;
  return out;
}

std::optional<FollowedKeys> PinnedParties::Follow(const Roster& roster,
                                                  const std::optional<FollowedKeys>& before) const {
  FollowedKeys followed{.pins = digest(), .keys = {}};
  for (const Party& party : roster.parties()) followed.keys.push_back(party.key);
  // What was followed from other pins stays: they may be used again.
  const bool from_others = !before.has_value() || before->pins != followed.pins;
  if (from_others && std::ranges::equal(followed.keys, keys_)) return before;
  return followed;
}

namespace {

// Whether no party has its pinned key.
bool HasNoneOf(const wire::Roster& roster, const PinnedParties& pinned) {
  int place = 0;
  return std::ranges::none_of(pinned.keys(), [&](const signature::PublicKey& key) {
    return roster.parties(place++).bls_public_key() == ToString(key.bytes());
  });
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> CheckPins(const wire::SignedRoster& signed_roster,
                                                const PinnedParties& pinned) {
  const wire::Roster& content = signed_roster.roster();
  if (content.deployment() != pinned.deployment()) {
    return absl::UnauthenticatedError(
        absl::StrCat("roster: of another deployment, \"",
                     absl::CEscape(content.deployment().substr(0, kMaxNameBytes)),
                     "\", than the pins, which are of \"", pinned.deployment(),
                     "\": the pins or the address are of another deployment than was meant"));
  }
  if (static_cast<size_t>(content.parties_size()) != pinned.keys().size()) {
    return absl::UnauthenticatedError(absl::StrCat("roster: has ", content.parties_size(),
                                                   " parties, pinned are ", pinned.keys().size()));
  }
  if (content.epoch() < pinned.minimum_roster_epoch()) {
    return absl::UnauthenticatedError(absl::StrCat("roster: epoch ", content.epoch(),
                                                   " is before the pinned minimum ",
                                                   pinned.minimum_roster_epoch()));
  }
  if (static_cast<size_t>(signed_roster.renewals_size()) > kMaxParties * kMaxRenewals) {
    return Bad("roster: has too many renewals of keys");
  }
  for (const wire::KeyRenewal& renewal : signed_roster.renewals()) {
    SHOAL_RETURN_IF_ERROR(Annotate(CheckRenewalForm(renewal), "roster"));
  }
  std::vector<uint32_t> renewed;
  size_t verified = 0;
  for (size_t i = 0; i < pinned.keys().size(); ++i) {
    const std::string what = absl::StrCat("roster: the BLS key of party ", i + 1);
    const std::string& wanted = content.parties(static_cast<int>(i)).bls_public_key();
    const std::string pinned_key = ToString(pinned.keys()[i].bytes());
    if (pinned_key == wanted) continue;
    // The pinned key and all to which signed renewals lead from it: a renewal that leads elsewhere,
    // or that is signed by nobody, does not hide the one that leads on.
    std::set<std::string> reached = {pinned_key};
    for (const wire::KeyRenewal& renewal : signed_roster.renewals()) {
      if (reached.contains(wanted) || reached.size() > kMaxRenewals) break;
      if (!reached.contains(renewal.old_key()) || reached.contains(renewal.new_key())) continue;
      if (++verified > kMaxParties * kMaxRenewals) {
        return Bad("roster: has renewals that lead to and fro");
      }
      if (VerifyRenewal(renewal).ok()) reached.insert(renewal.new_key());
    }
    if (!reached.contains(wanted)) {
      if (signed_roster.renewals().empty() && HasNoneOf(content, pinned)) {
        return absl::UnauthenticatedError(absl::StrCat(
            "roster: no party has its pinned key: this is another deployment than that of the "
            "pins, which bears the same name, \"",
            pinned.deployment(),
            "\", or was set up anew. Get the pins of this one, and compare them with the parties"));
      }
      return absl::UnauthenticatedError(
          absl::StrCat(what,
                       " is not the pinned one, and the pinned one did not sign it as its "
                       "successor. If the party says that its key was lost, get new pins, "
                       "and compare them with the parties"));
    }
    renewed.push_back(static_cast<uint32_t>(i + 1));
  }
  return renewed;
}

absl::StatusOr<wire::PinnedParties> PinsOf(const wire::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckRoster(roster));
  wire::PinnedParties pins;
  pins.set_deployment(roster.deployment());
  for (const wire::Party& party : roster.parties()) {
    pins.add_bls_public_keys_hex(Hex(AsBytes(party.bls_public_key())));
  }
  pins.set_minimum_roster_epoch(roster.epoch());
  return pins;
}

absl::StatusOr<Roster> Roster::Verify(const wire::SignedRoster& signed_roster,
                                      const PinnedParties& pinned, uint64_t now_s) {
  const wire::Roster& content = signed_roster.roster();
  // Cheap checks come first: bytes from anybody get here.
  SHOAL_RETURN_IF_ERROR(CheckFields(content));
  SHOAL_ASSIGN_OR_RETURN(std::vector<uint32_t> renewed, CheckPins(signed_roster, pinned));
  SHOAL_ASSIGN_OR_RETURN(Checked checked, CheckKeys(content));
  Roster roster;
  roster.wire_ = signed_roster;
  roster.wire_.DiscardUnknownFields();
  roster.digest_ = RosterDigest(content);
  roster.parties_ = std::move(checked.parties);
  SHOAL_ASSIGN_OR_RETURN(roster.aggregate_key_, signature::AggregateKeys(checked.keys));
  roster.minimum_table_epoch_ = pinned.minimum_table_epoch();
  roster.renewed_ = std::move(renewed);
  if (const absl::Status status =
          roster.VerifyByAll(roster.digest_, AsBytes(signed_roster.signature()));
      !status.ok()) {
    return Annotate(status, "roster");
  }
  SHOAL_RETURN_IF_ERROR(roster.CheckTime(now_s));
  // Comes last, so that bytes from strangers do not make the accountant work.
  SHOAL_ASSIGN_OR_RETURN(roster.noise_, CheckNoise(content));
  return roster;
}

const std::string& Party::PeerAddress(uint32_t machine) const {
  SHOAL_CHECK(machine < machines);
  return machine == 0 ? peer_address : other_machines[machine - 1].peer;
}

const std::string& Party::ClientAddress(uint32_t machine) const {
  SHOAL_CHECK(machine < machines);
  return machine == 0 ? client_address : other_machines[machine - 1].client;
}

const Party& Roster::party(uint32_t number) const {
  SHOAL_CHECK(number >= 1 && number <= parties_.size());
  return parties_[number - 1];
}

std::optional<uint32_t> Roster::NumberOf(const signature::PublicKey& key) const {
  for (const Party& party : parties_) {
    if (party.key == key) return party.number;
  }
  return std::nullopt;
}

absl::Status Roster::CheckTime(absl::string_view what, uint64_t from_s, uint64_t until_s,
                               uint64_t now_s) const {
  const uint64_t tolerance_s = clock_tolerance_s();
  if (now_s < from_s && from_s - now_s > tolerance_s) {
    return absl::UnauthenticatedError(absl::StrCat(what, ": not valid for another ", from_s - now_s,
                                                   " seconds; is this machine's clock right?"));
  }
  if (now_s >= until_s && now_s - until_s >= tolerance_s) {
    return absl::UnauthenticatedError(
        absl::StrCat(what, ": expired ", now_s - until_s, " seconds ago"));
  }
  return absl::OkStatus();
}

absl::Status Roster::CheckTime(uint64_t now_s) const {
  return CheckTime("roster", wire_.roster().valid_from_s(), wire_.roster().expires_s(), now_s);
}

absl::Status Roster::VerifyByAll(const Digest& digest, BytesView signature) const {
  const absl::StatusOr<signature::Signature> point = signature::Signature::FromBytes(signature);
  if (!point.ok()) return absl::UnauthenticatedError(point.status().message());
  return signature::Verify(*aggregate_key_, digest, *point);
}

absl::Status Roster::VerifyByParty(uint32_t number, const Digest& digest,
                                   BytesView signature) const {
  const Party& signer = party(number);
  const std::string what = absl::StrCat("party ", number, " (", signer.name, ")");
  const absl::StatusOr<signature::Signature> point = signature::Signature::FromBytes(signature);
  if (!point.ok()) {
    return absl::UnauthenticatedError(absl::StrCat(what, ": ", point.status().message()));
  }
  return Annotate(signature::Verify(signer.key, digest, *point), what);
}

absl::StatusOr<signature::Signature> Roster::Aggregate(const Digest& digest,
                                                       std::span<const Bytes> shares) const {
  if (shares.size() != parties_.size()) {
    return Bad(absl::StrCat("has ", shares.size(), " signatures of ", parties_.size(), " parties"));
  }
  std::vector<signature::Signature> points;
  for (uint32_t number = 1; number <= size(); ++number) {
    SHOAL_RETURN_IF_ERROR(VerifyByParty(number, digest, shares[number - 1]));
    SHOAL_ASSIGN_OR_RETURN(const signature::Signature point,
                           signature::Signature::FromBytes(shares[number - 1]));
    points.push_back(point);
  }
  return signature::AggregateSignatures(points);
}

Digest RosterDigest(const wire::Roster& roster) {
  Transcript transcript("shoal roster v2");
  transcript.Blob(roster.deployment())
      .U64(roster.epoch())
      .U64(static_cast<uint64_t>(roster.parties_size()));
  for (const wire::Party& party : roster.parties()) {
    transcript.U64(party.number())
        .Blob(party.name())
        .Blob(party.peer_address())
        .Blob(party.client_address())
        .Blob(party.bls_public_key())
        .Blob(party.proof_of_possession())
        .Blob(party.tls_certificate_sha256())
        .U64(party.machines());
    for (const wire::Machine& machine : party.other_machines()) {
      transcript.Blob(machine.peer_address()).Blob(machine.client_address());
    }
  }
  wire::AppendNoise(roster.noise(), transcript);
  transcript.U64(roster.valid_from_s())
      .U64(roster.expires_s())
      .U64(roster.clock_tolerance_s())
      .U64(roster.max_slots())
      .Blob(roster.onion_suite());
  // What is missing is 0 where something follows: else two different rosters had one digest.
  const bool has_buckets = roster.most_in_bucket() != 0;
  if (roster.has_term_limit() || has_buckets) {
    transcript.U64(roster.term_limit().days()).U64(roster.term_limit().refreshes());
  }
  if (has_buckets) transcript.U64(roster.most_in_bucket());
  return transcript.Finish();
}

absl::Status CheckOneTier(absl::string_view who, const Roster& roster,
                          std::optional<uint32_t> query_buckets) {
  if (roster.most_in_bucket() == 0 && query_buckets.value_or(0) == 0) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "two tiers (most_in_bucket ", roster.most_in_bucket(), " in the roster",
      query_buckets.has_value() ? absl::StrCat(", query_buckets ", *query_buckets, " in the table")
                                : std::string(),
      ") are not known to ", std::string(who),
      " yet: ask this deployment by `shoal` or libshoal at its frontend, or have it serve a table "
      "that was built without --query-buckets under a roster without most_in_bucket"));
}

absl::Status CheckRoster(const wire::Roster& roster) {
  SHOAL_RETURN_IF_ERROR(CheckStructure(roster).status());
  return CheckNoise(roster).status();
}

absl::StatusOr<wire::RosterShare> SignRoster(const wire::Roster& roster,
                                             const signature::SecretKey& key) {
  SHOAL_RETURN_IF_ERROR(CheckRoster(roster));
  const std::string own = ToString(key.public_key().bytes());
  for (const wire::Party& party : roster.parties()) {
    if (party.bls_public_key() != own) continue;
    const Digest digest = RosterDigest(roster);
    wire::RosterShare share;
    share.set_party(party.number());
    share.set_roster_digest(ToString(digest));
    share.set_signature(ToString(key.Sign(digest).bytes()));
    return share;
  }
  return absl::NotFoundError("the key is no party's of this roster");
}

wire::KeyRenewal SignRenewal(const signature::SecretKey& old_key,
                             const signature::PublicKey& new_key) {
  wire::KeyRenewal renewal;
  renewal.set_old_key(ToString(old_key.public_key().bytes()));
  renewal.set_new_key(ToString(new_key.bytes()));
  renewal.set_signature(
      ToString(old_key.Sign(RenewalDigest(renewal.old_key(), renewal.new_key())).bytes()));
  return renewal;
}

absl::Status CheckRenewals(const google::protobuf::RepeatedPtrField<wire::KeyRenewal>& renewals,
                           absl::string_view key) {
  if (renewals.empty()) return absl::OkStatus();
  if (static_cast<size_t>(renewals.size()) > kMaxRenewals) return Bad("too many renewals");
  for (int i = 0; i < renewals.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(CheckRenewalForm(renewals[i]));
    if (i > 0 && renewals[i].old_key() != renewals[i - 1].new_key()) {
      return Bad("a renewal is of another key than the one before leads to");
    }
  }
  if (renewals[renewals.size() - 1].new_key() != key)
    return Bad("the renewals lead to another key");
  for (const wire::KeyRenewal& renewal : renewals) SHOAL_RETURN_IF_ERROR(VerifyRenewal(renewal));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<size_t>> PlacesOfShares(std::span<const Party> parties,
                                                   std::span<const uint32_t> parties_of_shares) {
  std::vector<std::optional<size_t>> places(parties.size());
  for (size_t i = 0; i < parties_of_shares.size(); ++i) {
    const uint32_t party = parties_of_shares[i];
    if (party < 1 || party > parties.size()) {
      return Bad(absl::StrCat("share of party ", party, ": no such party"));
    }
    if (std::exchange(places[party - 1], i).has_value()) {
      return Bad(absl::StrCat("share of party ", party, ": comes twice"));
    }
  }
  std::vector<size_t> out;
  for (const Party& party : parties) {
    const std::optional<size_t> place = places[out.size()];
    if (!place.has_value()) {
      return Bad(
          absl::StrCat("the share of party ", party.number, " (", party.name, ") is missing"));
    }
    out.push_back(*place);
  }
  return out;
}

absl::StatusOr<wire::SignedRoster> AggregateRoster(const wire::Roster& roster,
                                                   std::span<const wire::RosterShare> shares) {
  SHOAL_ASSIGN_OR_RETURN(const Checked checked, CheckStructure(roster));
  SHOAL_RETURN_IF_ERROR(CheckNoise(roster).status());
  const Digest digest = RosterDigest(roster);
  std::vector<uint32_t> numbers;
  for (const wire::RosterShare& share : shares) numbers.push_back(share.party());
  SHOAL_ASSIGN_OR_RETURN(const std::vector<size_t> places,
                         PlacesOfShares(checked.parties, numbers));
  std::vector<signature::Signature> signatures;
  for (const Party& party : checked.parties) {
    const wire::RosterShare& share = shares[places[party.number - 1]];
    const std::string what = absl::StrCat("share of party ", party.number, " (", party.name, ")");
    if (share.roster_digest() != ToString(digest)) {
      return absl::UnauthenticatedError(absl::StrCat(what, ": is for another roster"));
    }
    const absl::StatusOr<signature::Signature> signature =
        signature::Signature::FromBytes(AsBytes(share.signature()));
    if (!signature.ok()) return Annotate(signature.status(), what);
    SHOAL_RETURN_IF_ERROR(Annotate(signature::Verify(party.key, digest, *signature), what));
    signatures.push_back(*signature);
  }
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum,
                         signature::AggregateSignatures(signatures));
  wire::SignedRoster out;
  *out.mutable_roster() = roster;
  out.DiscardUnknownFields();
  out.set_signature(ToString(sum.bytes()));
  return out;
}

absl::Status AcceptEpoch(absl::string_view what, uint64_t epoch, const Digest& digest,
                         std::optional<SeenEpoch>& seen) {
  if (seen.has_value() && epoch < seen->epoch) {
    return absl::UnauthenticatedError(
        absl::StrCat(what, ": epoch ", epoch, " after epoch ", seen->epoch, " was seen"));
  }
  if (seen.has_value() && epoch == seen->epoch && digest != seen->digest) {
    return absl::UnauthenticatedError(absl::StrCat(what, ": a second content for epoch ", epoch));
  }
  seen = SeenEpoch{.epoch = epoch, .digest = digest};
  return absl::OkStatus();
}

}  // namespace shoal::roster
