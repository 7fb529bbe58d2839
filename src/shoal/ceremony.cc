#include "src/shoal/ceremony.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/message_differencer.h"
#include "src/base/status_macros.h"
#include "src/roster/assemble.h"
#include "src/roster/fingerprint.h"
#include "src/roster/names.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/shoal/common.h"
#include "src/shoal/privacy_text.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

namespace fs = std::filesystem;
using google::protobuf::util::MessageDifferencer;

constexpr char kSettings[] = "settings.textproto";
constexpr char kUnsigned[] = "roster.unsigned";
constexpr char kCompared[] = "compared";
constexpr char kRoster[] = "roster.textproto";
constexpr char kPins[] = "pinned.textproto";
constexpr char kConfig[] = "party.textproto";

absl::Status Altered(std::string message) { return absl::UnauthenticatedError(message); }

std::string KeyOf(const wire::Party& party) {
  return roster::KeyFingerprint(AsBytes(party.bls_public_key()));
}

// "bob and carol".
std::string And(std::vector<std::string> names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), " and ", last);
}

// What differs in one party's entry, keys first; empty if nothing does. `mine` follows from the
// settings and the announcements, `theirs` is in the roster.
std::string KeyDifference(const wire::Party& mine, const wire::Party& theirs,
                          const std::string& self) {
  const std::string whose = mine.name() == self ? "your own, " + self : mine.name();
  const std::string ask = mine.name() == self
                              ? "Somebody has put other keys in the place of yours: do not sign"
                              : absl::StrCat("Ask ", mine.name(), " which fingerprint is right");
  if (mine.bls_public_key() != theirs.bls_public_key()) {
    return absl::StrCat("it has another key of ", whose, " than ", mine.name(),
                        ".announcement:\n  ", KeyOf(theirs), "  in ", kUnsigned, "\n  ",
                        KeyOf(mine), "  announced\n", ask);
  }
  if (mine.tls_certificate_sha256() != theirs.tls_certificate_sha256() ||
      mine.proof_of_possession() != theirs.proof_of_possession()) {
    return absl::StrCat("it has another TLS certificate or proof of ", whose, " than ", mine.name(),
                        ".announcement. ", ask);
  }
  return "";
}

class Ceremony {
 public:
  Ceremony(const std::string& directory, std::string name, std::string compared, uint64_t now_s,
           RandomSource& random)
      : directory_(directory),
        self_(std::move(name)),
        compared_(std::move(compared)),
        now_s_(now_s),
        random_(random) {}

  absl::StatusOr<std::vector<CeremonyStep>> Run() {
    using Do = absl::StatusOr<bool> (Ceremony::*)(CeremonyStep&);
    const std::vector<std::pair<const char*, Do>> all = {
        {"your keys", &Ceremony::Keys},
        {"the settings, the same at every party", &Ceremony::Settings},
        {"every party's announcement", &Ceremony::Announcements},
        {"the roster to sign", &Ceremony::Unsigned},
        {"all parties have compared the roster's fingerprint", &Ceremony::Compare},
        {"your signature", &Ceremony::Sign},
        {"every party's signature", &Ceremony::Shares},
        {"the signed roster, the pins and your configuration", &Ceremony::Finish},
    };
    std::vector<CeremonyStep> steps;
    bool reached = false;
    for (const auto& [title, act] : all) {
      CeremonyStep& step = steps.emplace_back(CeremonyStep{.title = title});
      if (reached) continue;
      SHOAL_ASSIGN_OR_RETURN(const bool done, (this->*act)(step));
      step.state = done ? CeremonyStep::kDone : CeremonyStep::kNow;
      reached = !done;
    }
    if (!compared_.empty() && !compared_used_) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--compared: there is no ", kUnsigned, " yet whose fingerprint could be compared"));
    }
    return steps;
  }

 private:
  // Each does its part, and returns whether it is done.

  absl::StatusOr<bool> Keys(CeremonyStep& step) {
    SHOAL_RETURN_IF_ERROR(RemoveLeftovers());
    if (!FileExists(Path("keys"))) {
      if (self_.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(directory_,
                         ": a new ceremony needs --name, this party's name in the "
                         "settings"));
      }
      SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys,
                             roster::PartyKeys::Generate(self_, now_s_, random_));
      // Keys are whole or not there.
      SHOAL_RETURN_IF_ERROR(keys.Save(Path("keys.part")));
      if (::rename(Path("keys.part").c_str(), Path("keys").c_str()) != 0) {
        return ErrnoStatus(errno, Path("keys"));
      }
      SHOAL_RETURN_IF_ERROR(SyncDirectory(directory_));
    }
    SHOAL_ASSIGN_OR_RETURN(const roster::PartyKeys keys, roster::PartyKeys::Load(Path("keys")));
    if (!self_.empty() && keys.name() != self_) {
      return absl::InvalidArgumentError(
          absl::StrCat("--name ", self_, ": the keys in ", Path("keys"), " are of ", keys.name()));
    }
    self_ = keys.name();
    const std::string file = AnnouncementOf(self_);
    const wire::PartyAnnouncement own = keys.announcement();
    if (!FileExists(Path(file))) SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(Path(file), own));
    wire::PartyAnnouncement there;
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(Path(file), there));
    if (!MessageDifferencer::Equals(own, there)) {
      return Altered(
          absl::StrCat(Path(file),
                       ": is not the announcement of the keys here: it was altered, or is "
                       "of other keys. Delete it, and this command writes it again; if "
                       "it was sent to others, send the new one"));
    }
    step.lines = {absl::StrCat(self_, "'s key has the fingerprint"),
                  "  " + roster::KeyFingerprint(AsBytes(own.bls_public_key()))};
    return true;
  }

  absl::StatusOr<bool> Settings(CeremonyStep& step) {
    const std::string path = Path(kSettings);
    if (!FileExists(path)) {
      step.lines = {
          absl::StrCat("agree with the other parties on one file, and put it here: ", path),
          "configs/roster.settings.textproto is a sample; `shoal plan --emit settings` writes one"};
      return false;
    }
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, settings_));
    std::set<std::string> names;
    for (const wire::Party& party : settings_.parties()) {
      if (absl::Status named = roster::CheckName("a party's name", party.name()); !named.ok()) {
        return Annotate(named, path);
      }
      if (!names.insert(party.name()).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": two parties are named ", party.name()));
      }
      if (!party.bls_public_key().empty() || !party.tls_certificate_sha256().empty()) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": has keys of ", party.name(),
                                                       ", which come from its announcement alone"));
      }
      if (party.name() != self_) others_.push_back(party.name());
    }
    if (names.size() < roster::kMinParties || names.size() > roster::kMaxParties) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has ", names.size(), " parties, not ",
                                                     roster::kMinParties, " to ",
                                                     roster::kMaxParties));
    }
    if (!names.contains(self_)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": names no party ", self_,
                                                     ", whose keys are here; it names ",
                                                     And({names.begin(), names.end()})));
    }
    const auto noise = roster::NoiseFromWire(settings_.noise());
    if (!noise.ok()) return Annotate(noise.status(), path);
    // Whether the noise gives that is looked at with the roster.
    step.lines = {absl::StrCat("deployment ", settings_.deployment(),
                               " is to have: ", ProtectionText(*noise))};
    for (const wire::Party& party : settings_.parties()) {
      step.lines.push_back(absl::StrCat("  ", party.name(), "  ", party.peer_address(),
                                        party.client_address().empty() ? "" : "  clients ",
                                        party.client_address()));
    }
    return true;
  }

  absl::StatusOr<bool> Announcements(CeremonyStep& step) {
    std::vector<std::string> missing;
    for (const wire::Party& party : settings_.parties()) {
      const std::string file = AnnouncementOf(party.name());
      if (!FileExists(Path(file))) {
        missing.push_back(party.name());
        continue;
      }
      wire::PartyAnnouncement announcement;
      SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(Path(file), announcement));
      const auto checked = roster::PartyFromAnnouncement(announcement, now_s_);
      if (!checked.ok()) {
        return absl::Status(
            checked.status().code(),
            absl::StrCat(Path(file), ": ", checked.status().message(),
                         ": it was altered on its way; have ", party.name(), " send it again"));
      }
      if (announcement.name() != party.name()) {
        return Altered(absl::StrCat(Path(file), ": is the announcement of ", announcement.name()));
      }
      if (party.name() != self_) {
        step.lines.push_back(absl::StrCat("  ", KeyOf(*checked), "  ", party.name()));
      }
      announcements_.push_back(std::move(announcement));
    }
    if (missing.empty()) return true;
    step.lines = {absl::StrCat("send ", Path(AnnouncementOf(self_)), " to ", And(others_))};
    for (const std::string& name : missing) {
      step.lines.push_back(absl::StrCat("get ", AnnouncementOf(name), " from ", name,
                                        ", and put it into ", directory_));
    }
    return false;
  }

  absl::StatusOr<bool> Unsigned(CeremonyStep& step) {
    const std::string path = Path(kUnsigned);
    const std::string& first = settings_.parties(0).name();
    if (!FileExists(path) && first != self_) {
      step.lines = {
          absl::StrCat("get ", kUnsigned, " from ", first, ", and put it into ", directory_)};
      return false;
    }
    if (!FileExists(path)) {
      auto assembled = roster::AssembleRoster(settings_, announcements_, now_s_);
      if (!assembled.ok()) return Annotate(assembled.status(), Path(kSettings));
      SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(path, *assembled));
    }
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, unsigned_));
    SHOAL_RETURN_IF_ERROR(CompareWithOwn(path));
    SHOAL_RETURN_IF_ERROR(Annotate(roster::CheckRoster(unsigned_.roster()), path));
    if (unsigned_.roster().expires_s() <= now_s_) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": expired at ", FormatTime(unsigned_.roster().expires_s()), "; ", first,
          " deletes it and runs this command again, with a higher epoch in the settings if anybody "
          "has signed"));
    }
    step.lines = {absl::StrCat("has these settings and announcements; valid from ",
                               FormatTime(unsigned_.roster().valid_from_s()), " to ",
                               FormatTime(unsigned_.roster().expires_s()))};
    if (first == self_ && !FileExists(Path(ShareOf(self_)))) {
      step.lines.push_back(absl::StrCat("send ", path, " to ", And(others_)));
    }
    return true;
  }

  absl::StatusOr<bool> Compare(CeremonyStep& step) {
    const std::string fingerprint = roster::RosterFingerprint(unsigned_.roster());
    const std::string path = Path(kCompared);
    if (!compared_.empty()) {
      compared_used_ = true;
      if (!roster::IsFingerprint(compared_, fingerprint)) {
        return Altered(absl::StrCat("what you heard is not the fingerprint of ", Path(kUnsigned),
                                    ", which is\n  ", fingerprint,
                                    "\nDo not sign: one of you has another roster. Compare the "
                                    "keys' fingerprints one by one, "
                                    "and the settings, to find what was altered"));
      }
      SHOAL_RETURN_IF_ERROR(
          WriteFileAtomically(path, AsBytes(fingerprint + "\n"), FileMode::kPublic));
    }
    std::string before;
    if (FileExists(path)) {
      SHOAL_ASSIGN_OR_RETURN(before, ReadFile(path, 4096));
    }
    if (roster::IsFingerprint(before, fingerprint)) {
      step.lines = {"  " + fingerprint};
      return true;
    }
    step.lines = {};
    if (!before.empty()) {
      step.lines.push_back(
          absl::StrCat(kUnsigned, " is another one than you have compared before:"));
    }
    step.lines.push_back(
        absl::StrCat("call ", And(others_),
                     ", or meet: have each read out what stands there, and compare "
                     "all ten groups with"));
    step.lines.push_back("  " + fingerprint);
    step.lines.push_back(
        "not by the way by which the files came. If all are the same, run this with what you "
        "heard:");
    step.lines.push_back(absl::StrCat("  shoal ceremony ", directory_, " --compared \"GROUPS\""));
    return false;
  }

  absl::StatusOr<bool> Sign(CeremonyStep& step) {
    const std::string path = Path(ShareOf(self_));
    if (!FileExists(path)) {
      const auto share = roster::SignAsParty(unsigned_.roster(), Path("keys"));
      if (absl::IsUnauthenticated(share.status())) {
        return Altered(absl::StrCat(share.status().message(),
                                    ". This party has signed another roster with that epoch: all "
                                    "parties take a higher epoch "
                                    "in ",
                                    kSettings, ", and ", settings_.parties(0).name(), " makes ",
                                    kUnsigned, " anew"));
      }
      SHOAL_RETURN_IF_ERROR(share.status());
      SHOAL_RETURN_IF_ERROR(wire::WriteTextFile(path, *share));
    }
    step.lines = {absl::StrCat("send ", path, " to ", And(others_))};
    return true;
  }

  absl::StatusOr<bool> Shares(CeremonyStep& step) {
    std::vector<std::string> missing;
    const std::string digest = ToString(roster::RosterDigest(unsigned_.roster()));
    for (const wire::Party& party : unsigned_.roster().parties()) {
      const std::string path = Path(ShareOf(party.name()));
      if (!FileExists(path)) {
        missing.push_back(party.name());
        continue;
      }
      wire::RosterShare share;
      SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(path, share));
      if (share.party() != party.number()) {
        return Altered(absl::StrCat(path, ": is not the share of ", party.name(), " but of party ",
                                    share.party()));
      }
      if (share.roster_digest() != digest) {
        return Altered(absl::StrCat(
            path, ": ", party.name() == self_ ? "you have" : party.name() + " has",
            " signed another roster than ", Path(kUnsigned),
            party.name() == self_ ? ". Delete the share if it is of before, and run this again"
                                  : absl::StrCat(": compare the fingerprints again, and have ",
                                                 party.name(), " send the share of this one")));
      }
      shares_.push_back(std::move(share));
    }
    if (missing.empty()) return true;
    for (const std::string& name : missing) {
      step.lines.push_back(
          absl::StrCat("get ", ShareOf(name), " from ", name, ", and put it into ", directory_));
    }
    return false;
  }

  absl::StatusOr<bool> Finish(CeremonyStep& step) {
    auto made = roster::AggregateRoster(unsigned_.roster(), shares_);
    if (!made.ok()) {
      return absl::Status(made.status().code(),
                          absl::StrCat(made.status().message(),
                                       ": the file was altered; have that party send it again"));
    }
    *made->mutable_renewals() = unsigned_.renewals();
    SHOAL_ASSIGN_OR_RETURN(const wire::PinnedParties pins, roster::PinsOf(made->roster()));
    SHOAL_ASSIGN_OR_RETURN(const roster::PinnedParties pinned, roster::PinnedParties::Create(pins));
    SHOAL_RETURN_IF_ERROR(roster::Roster::Verify(*made, pinned, now_s_).status());
    SHOAL_RETURN_IF_ERROR(Keep(kRoster, *made));
    SHOAL_RETURN_IF_ERROR(Keep(kPins, pins));
    uint32_t number = 0;
    for (const wire::Party& party : made->roster().parties()) {
      if (party.name() == self_) number = party.number();
    }
    if (!FileExists(Path(kConfig))) {
      const std::string config = absl::StrCat(
          "# The configuration of ", self_,
          ", for shoald. Fields: src/shoald/config.proto.\nparty: ", number,
          "\nkeys_directory: \"keys\"\nroster_file: \"", kRoster, "\"\npinned_parties_file: \"",
          kPins, "\"\ntable_directory: \"table\"\nstate_directory: \"state\"\n");
      SHOAL_RETURN_IF_ERROR(WriteFileAtomically(Path(kConfig), AsBytes(config), FileMode::kPublic));
    }
    const std::string frontend = made->roster().parties(0).client_address();
    step.lines = {
        absl::StrCat("for clients: ", Path(kPins), ", by another way than from ", frontend,
                     ". Its fingerprint, for you to publish:"),
        "  " + roster::PinsFingerprint(pinned),
        absl::StrCat("  shoal init ", frontend, " --pins ", kPins),
        absl::StrCat("for the parties: ", kRoster,
                     ", which all have made alike, and a signed table in ", Path("table"),
                     " (shoal table build, sign, aggregate: docs/operations.md)"),
        absl::StrCat("  shoald --config ", Path(kConfig), " --check    then without --check")};
    return true;
  }

  // --- helpers ---

  std::string Path(absl::string_view file) const { return absl::StrCat(directory_, "/", file); }
  static std::string AnnouncementOf(absl::string_view party) {
    return absl::StrCat(party, ".announcement");
  }
  static std::string ShareOf(absl::string_view party) {
    return absl::StrCat(party, ".roster-share");
  }

  // Whether a file is one that was to become a file of the ceremony. Others are not ours to delete.
  static bool IsOwnTemporary(absl::string_view name) {
    const size_t at = name.rfind(kTemporarySuffix);
    if (at == absl::string_view::npos || name.size() - at != sizeof(kTemporarySuffix) - 1 + 6) {
      return false;
    }
    const absl::string_view of = name.substr(0, at);
    for (const absl::string_view own : {kSettings, kUnsigned, kCompared, kRoster, kPins, kConfig}) {
      if (of == own) return true;
    }
    return absl::EndsWith(of, ".announcement") || absl::EndsWith(of, ".roster-share");
  }

  // Of a run that was killed: keys that nobody has seen, and files without a name of their own.
  absl::Status RemoveLeftovers() {
    std::error_code error;
    std::vector<std::string> files;
    if (FileExists(Path("keys.part"))) {
      for (const auto& entry : fs::directory_iterator(Path("keys.part"), error)) {
        files.push_back(entry.path().string());
      }
    }
    for (const std::string& file : files) SHOAL_RETURN_IF_ERROR(WipeFile(file));
    fs::remove(Path("keys.part"), error);
    for (const auto& entry : fs::directory_iterator(directory_, error)) {
      if (IsOwnTemporary(entry.path().filename().string())) {
        SHOAL_RETURN_IF_ERROR(DeleteFile(entry.path().string()));
      }
    }
    return error ? ErrnoStatus(error.value(), directory_) : absl::OkStatus();
  }

  // Whether the roster is the one that follows from the settings and announcements here. Only when
  // it begins to be valid is its maker's to say.
  absl::Status CompareWithOwn(const std::string& path) const {
    const wire::Roster& theirs = unsigned_.roster();
    const uint64_t from_s = theirs.valid_from_s();
    auto own = roster::AssembleRoster(settings_, announcements_, from_s);
    if (!own.ok()) return Annotate(own.status(), Path(kSettings));
    const wire::Roster& mine = own->roster();
    if (mine.parties_size() == theirs.parties_size()) {
      for (int i = 0; i < mine.parties_size(); ++i) {
        if (mine.parties(i).name() != theirs.parties(i).name()) continue;  // said below
        const std::string keys = KeyDifference(mine.parties(i), theirs.parties(i), self_);
        if (!keys.empty()) return Altered(absl::StrCat(path, ": ", keys));
      }
    }
    if (MessageDifferencer::Equals(*own, unsigned_)) return absl::OkStatus();
    std::string differences;
    MessageDifferencer differencer;
    // Keys and proofs would be shown as bytes; where they differ, so do names or parties.
    for (const char* field : {"bls_public_key", "proof_of_possession", "tls_certificate_sha256"}) {
      differencer.IgnoreField(wire::Party::descriptor()->FindFieldByName(field));
    }
    differencer.ReportDifferencesToString(&differences);
    differencer.Compare(mine, theirs);
    if (differences.empty()) differences = "signature or renewals: there must be none\n";
    return Altered(absl::StrCat(
        path, ": is not made of ", kSettings,
        " and the announcements here (-> is the roster's):\n  ",
        absl::StrJoin(absl::StrSplit(differences, '\n', absl::SkipEmpty()), "\n  "), "\nAsk ",
        mine.parties(0).name(), ", who made it, which settings all have agreed on"));
  }

  // Writes what everybody makes alike. What is there already must be the same.
  absl::Status Keep(const char* file, const google::protobuf::Message& made) const {
    if (!FileExists(Path(file))) return wire::WriteTextFile(Path(file), made);
    const std::unique_ptr<google::protobuf::Message> there(made.New());
    SHOAL_RETURN_IF_ERROR(wire::ReadTextFile(Path(file), *there));
    if (MessageDifferencer::Equals(made, *there)) return absl::OkStatus();
    return Altered(
        absl::StrCat(Path(file),
                     ": is not the one that these signatures make: it was altered. Delete "
                     "it, and this command writes it again"));
  }

  const std::string directory_;
  std::string self_;
  const std::string compared_;
  bool compared_used_ = false;
  const uint64_t now_s_;
  RandomSource& random_;
  wire::Roster settings_;
  std::vector<std::string> others_;
  std::vector<wire::PartyAnnouncement> announcements_;
  wire::SignedRoster unsigned_;
  std::vector<wire::RosterShare> shares_;
};

}  // namespace

absl::StatusOr<std::vector<CeremonyStep>> ContinueCeremony(const std::string& directory,
                                                           const std::string& name,
                                                           const std::string& compared,
                                                           uint64_t now_s, RandomSource& random) {
  SHOAL_RETURN_IF_ERROR(MakeDirectory(directory, FileMode::kPublic));
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, directory);
  const auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": another `shoal ceremony` is at work here"));
  }
  return Ceremony(directory, name, compared, now_s, random).Run();
}

}  // namespace shoal::commands
