// Three parties set a deployment up, each in a directory of its own: in good order, killed at every
// write, and with files that somebody altered on their way.
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/matchers.h"
#include "src/cli/command.h"
#include "src/roster/fingerprint.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/shoal/party_commands.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace {

// In a child process: how many more calls of fsync and rename return. Negative: all.
int calls_left = -1;

void Count() {
  if (calls_left > 0) {
    --calls_left;
  } else if (calls_left == 0) {
    ::kill(::getpid(), SIGKILL);
  }
}

}  // namespace

// In place of the C library's, also for the code under test: where a write becomes durable, and
// where it becomes visible, are the moments that a crash can tell apart.
extern "C" int fsync(int fd) {
  Count();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  Count();
  return static_cast<int>(::syscall(SYS_rename, from, to));
}

namespace shoal::commands {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSettings[] = R"(
deployment: "demo"
parties { name: "alice" client_address: "127.0.0.1:7300" }
parties { name: "bob" peer_address: "127.0.0.1:7301" }
parties { name: "carol" peer_address: "127.0.0.1:7302" }
noise {
  mechanism: GEOMETRIC epsilon: 1 delta: 1e-6 phi: 1 mode: 15 left_scale: 1.25 right_scale: 5
}
clock_tolerance_s: 60
max_slots: 1000
)";

class CeremonyTest : public ::testing::Test {
 protected:
  CeremonyTest() {
    std::string pattern = ::testing::TempDir() + "/ceremony.XXXXXX";
    SHOAL_CHECK(::mkdtemp(pattern.data()) != nullptr);
    directory_ = pattern;
  }
  ~CeremonyTest() override { fs::remove_all(directory_); }

  const std::vector<std::string> names_ = {"alice", "bob", "carol"};

  std::string Path(const std::string& party, const std::string& file = "") const {
    return directory_ + "/" + party + (file.empty() ? "" : "/" + file);
  }
  void Write(const std::string& path, const std::string& text) const {
    SHOAL_CHECK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic).ok());
  }
  std::string Read(const std::string& path) const {
    const auto text = ReadFile(path);
    SHOAL_CHECK(text.ok());
    return *text;
  }
  // `from` sends the file to all others.
  void Send(const std::string& from, const std::string& file) const {
    for (const std::string& to : names_) {
      if (to != from) Write(Path(to, file), Read(Path(from, file)));
    }
  }

  int Run(const std::string& party, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"ceremony", Path(party)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::ostringstream out, err;
    std::istringstream in;
    cli::Io io{.out = out, .err = err, .in = in, .err_is_terminal = false};
    const std::vector<cli::Command> commands = {Ceremony()};
    const int code = cli::RunProgram("shoal", "", commands, arguments, io);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  // Runs it in another process, which is killed after so many writes; whether it was.
  bool KilledAfter(int writes, const std::string& party, const std::vector<std::string>& more) {
    const pid_t child = ::fork();
    SHOAL_CHECK(child >= 0);
    if (child == 0) {
      calls_left = writes;
      ::_exit(Run(party, more));
    }
    int status = 0;
    SHOAL_CHECK(::waitpid(child, &status, 0) == child);
    EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
                                    : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
  }

  // How a step is run. The default is once.
  using Runner =
      std::function<void(const std::string& party, const std::vector<std::string>& more)>;
  void Once(const std::string& party, const std::vector<std::string>& more) {
    ASSERT_EQ(Run(party, more), cli::kExitOk) << err_;
  }

  // The steps, which a test may leave at any of them.
  void Begin(const Runner& run) {
    for (const std::string& name : names_) run(name, {"--name", name});
    for (const std::string& name : names_) {
      Write(Path(name, "settings.textproto"), kSettings);
      Send(name, name + ".announcement");
    }
  }
  void Assemble(const Runner& run) {
    run("alice", {});
    Send("alice", "roster.unsigned");
  }
  std::string Fingerprint() const {
    wire::SignedRoster roster;
    SHOAL_CHECK(wire::ReadTextFile(Path("alice", "roster.unsigned"), roster).ok());
    return roster::RosterFingerprint(roster.roster());
  }
  void Sign(const Runner& run) {
    for (const std::string& name : names_) run(name, {"--compared", Fingerprint()});
    for (const std::string& name : names_) Send(name, name + ".roster-share");
  }
  void Finish(const Runner& run) {
    for (const std::string& name : names_) run(name, {});
  }
  Runner AsOne() {
    return [this](const std::string& party, const std::vector<std::string>& more) {
      Once(party, more);
    };
  }

  // All have the same roster and pins, which hold.
  void ExpectDone() {
    for (const std::string& name : names_) {
      ASSERT_EQ(Run(name), cli::kExitOk) << err_;
      EXPECT_THAT(out_, HasSubstr("The ceremony is complete"));
      EXPECT_EQ(Read(Path(name, "roster.textproto")), Read(Path("alice", "roster.textproto")));
      EXPECT_EQ(Read(Path(name, "pinned.textproto")), Read(Path("alice", "pinned.textproto")));
      for (const auto& entry : fs::directory_iterator(Path(name))) {
        EXPECT_THAT(entry.path().filename().string(),
                    Not(AnyOf(HasSubstr(".tmp-"), HasSubstr(".part"))));
      }
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(const roster::PinnedParties pins,
                               roster::PinnedParties::Read(Path("bob", "pinned.textproto")));
    wire::SignedRoster roster;
    SHOAL_ASSERT_OK(wire::ReadTextFile(Path("bob", "roster.textproto"), roster));
    SHOAL_ASSERT_OK(roster::Roster::Verify(roster, pins, roster.roster().valid_from_s()));
    EXPECT_THAT(out_, HasSubstr(roster::PinsFingerprint(pins)));
    EXPECT_THAT(out_, HasSubstr("shoal init 127.0.0.1:7300 --pins pinned.textproto"));
    EXPECT_THAT(Read(Path("carol", "party.textproto")), HasSubstr("party: 3\n"));
  }
  // The party's run is refused as untrustworthy, with this in the message, and nothing is signed.
  void ExpectAltered(const std::string& party, const std::string& part,
                     const std::vector<std::string>& more = {}) {
    EXPECT_EQ(Run(party, more), cli::kExitVerification) << out_ << err_;
    EXPECT_THAT(err_, HasSubstr(part));
    EXPECT_FALSE(FileExists(Path(party, "roster.textproto")));
  }

  std::string directory_, out_, err_;
};

TEST_F(CeremonyTest, LeadsThreePartiesToARoster) {
  ASSERT_EQ(Run("alice"), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("needs --name"));
  ASSERT_EQ(Run("alice", {"--name", "alice"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("[x] 1. your keys"));
  EXPECT_THAT(out_, HasSubstr("[>] 2. the settings"));
  EXPECT_THAT(out_, HasSubstr("[ ] 8."));
  Write(Path("alice", "settings.textproto"), kSettings);
  ASSERT_EQ(Run("alice"), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("send " + Path("alice", "alice.announcement") + " to bob and carol"));
  EXPECT_THAT(out_, HasSubstr("get carol.announcement from carol"));
  EXPECT_THAT(out_, HasSubstr("a round protects single lookups"));
  Begin(AsOne());
  ASSERT_EQ(Run("bob"), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("get roster.unsigned from alice"));
  // Bytes of keys are shown as fingerprints.
  EXPECT_THAT(out_, Not(HasSubstr("\\")));
  Assemble(AsOne());
  EXPECT_THAT(out_, HasSubstr("send " + Path("alice", "roster.unsigned") + " to bob and carol"));
  ASSERT_EQ(Run("bob"), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("[>] 5."));
  EXPECT_THAT(out_, HasSubstr(Fingerprint()));
  EXPECT_FALSE(FileExists(Path("bob", "bob.roster-share")));
  Sign(AsOne());
  Finish(AsOne());
  ExpectDone();
}

// After a kill at any write of any step, the same command goes on, and what others may have seen
// stays.
TEST_F(CeremonyTest, GoesOnAfterAKillAtEveryWrite) {
  int kills = 0;
  const Runner killed = [&](const std::string& party, const std::vector<std::string>& more) {
    const fs::path before = directory_ + "/before", here = Path(party);
    fs::remove_all(before);
    const bool began = fs::exists(here);
    if (began) fs::copy(here, before, fs::copy_options::recursive);
    for (int writes = 0;; ++writes) {
      fs::remove_all(here);
      if (began) fs::copy(before, here, fs::copy_options::recursive);
      if (!KilledAfter(writes, party, more)) break;
      ++kills;
      const std::string announcement = Path(party, party + ".announcement");
      const std::string seen = FileExists(announcement) ? Read(announcement) : "";
      ASSERT_EQ(Run(party, more), cli::kExitOk) << "after " << writes << " writes: " << err_;
      if (!seen.empty()) {
        EXPECT_EQ(Read(announcement), seen);
      }
    }
  };
  Begin(killed);
  Assemble(killed);
  Sign(killed);
  Finish(killed);
  ExpectDone();
  EXPECT_GT(kills, 60);
}

TEST_F(CeremonyTest, AnAlteredAnnouncementIsNoticed) {
  Begin(AsOne());
  // A letter of the key, on the way to alice.
  const std::string good = Read(Path("alice", "bob.announcement"));
  wire::PartyAnnouncement altered;
  SHOAL_ASSERT_OK(wire::ReadTextFile(Path("alice", "bob.announcement"), altered));
  altered.mutable_bls_public_key()->back() ^= 1;
  Write(Path("alice", "bob.announcement"), wire::PrintText(altered));
  EXPECT_NE(Run("alice"), cli::kExitOk);
  EXPECT_THAT(err_, HasSubstr("have bob send it again"));
  // Another party's in its place.
  Write(Path("alice", "bob.announcement"), Read(Path("carol", "carol.announcement")));
  ExpectAltered("alice", "is the announcement of carol");
  // One's own.
  Write(Path("alice", "bob.announcement"), good);
  Write(Path("alice", "alice.announcement"), absl::StrReplaceAll(good, {{"\"bob\"", "\"alice\""}}));
  ExpectAltered("alice", "is not the announcement of the keys here");
}

// Whoever carries the files makes keys for "bob" and gives alice and carol those.
TEST_F(CeremonyTest, ASwappedKeyIsNoticed) {
  Begin(AsOne());
  Run("mallory", {"--name", "bob"});
  for (const char* to : {"alice", "carol"}) {
    Write(Path(to, "bob.announcement"), Read(Path("mallory", "bob.announcement")));
  }
  Assemble(AsOne());
  // Carol has the same files as alice. Bob has his own key.
  EXPECT_EQ(Run("carol"), cli::kExitOk) << err_;
  ExpectAltered("bob", "it has another key of your own, bob");
  // Bob is given a roster with his key instead: then the fingerprints differ.
  const std::string heard = Fingerprint();
  wire::SignedRoster roster;
  SHOAL_ASSERT_OK(wire::ReadTextFile(Path("alice", "roster.unsigned"), roster));
  wire::PartyAnnouncement own;
  SHOAL_ASSERT_OK(wire::ReadTextFile(Path("bob", "bob.announcement"), own));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::Party entry,
                             roster::PartyFromAnnouncement(own, roster.roster().valid_from_s()));
  wire::Party& bob = *roster.mutable_roster()->mutable_parties(1);
  bob.set_bls_public_key(entry.bls_public_key());
  bob.set_proof_of_possession(entry.proof_of_possession());
  bob.set_tls_certificate_sha256(entry.tls_certificate_sha256());
  Write(Path("bob", "roster.unsigned"), wire::PrintText(roster));
  EXPECT_EQ(Run("bob"), cli::kExitOk) << err_;
  ExpectAltered("bob", "Do not sign", {"--compared", heard});
  EXPECT_FALSE(FileExists(Path("bob", "bob.roster-share")));
}

TEST_F(CeremonyTest, ARosterWithOtherSettingsIsNoticed) {
  Begin(AsOne());
  Assemble(AsOne());
  const std::string good = Read(Path("bob", "roster.unsigned"));
  const auto with = [&](const std::function<void(wire::Roster&)>& change) {
    wire::SignedRoster roster;
    SHOAL_CHECK(wire::ParseText(good, "", roster).ok());
    change(*roster.mutable_roster());
    Write(Path("bob", "roster.unsigned"), wire::PrintText(roster));
  };
  with([](wire::Roster& r) { r.mutable_noise()->set_epsilon(2); });
  ExpectAltered("bob", "noise.epsilon: 1 -> 2");
  EXPECT_THAT(err_, HasSubstr("Ask alice, who made it"));
  with([](wire::Roster& r) { r.mutable_parties(2)->set_peer_address("10.0.0.1:7302"); });
  ExpectAltered("bob", "\"127.0.0.1:7302\" -> \"10.0.0.1:7302\"");
  with([](wire::Roster& r) { r.set_expires_s(r.expires_s() + 1); });
  ExpectAltered("bob", "expires_s");
  with([](wire::Roster& r) { r.mutable_parties()->SwapElements(1, 2); });
  ExpectAltered("bob", "\"bob\" -> \"carol\"");
  with([](wire::Roster& r) { r.mutable_parties()->RemoveLast(); });
  ExpectAltered("bob", "parties");
  // Another one after it was compared is not signed.
  Write(Path("bob", "roster.unsigned"), good);
  ASSERT_EQ(Run("bob", {"--compared", Fingerprint()}), cli::kExitOk) << err_;
  fs::remove(Path("bob", "bob.roster-share"));
  with([](wire::Roster& r) {
    r.set_valid_from_s(r.valid_from_s() + 1);
    r.set_expires_s(r.expires_s() + 1);
  });
  ASSERT_EQ(Run("bob"), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("another one than you have compared before"));
  EXPECT_FALSE(FileExists(Path("bob", "bob.roster-share")));
  // Nor is a second roster of the same epoch, whatever is said of it.
  wire::SignedRoster second;
  SHOAL_ASSERT_OK(wire::ReadTextFile(Path("bob", "roster.unsigned"), second));
  ExpectAltered("bob", "take a higher epoch",
                {"--compared", roster::RosterFingerprint(second.roster())});
}

TEST_F(CeremonyTest, AShareOfAnotherRosterIsNoticed) {
  Begin(AsOne());
  Assemble(AsOne());
  Sign(AsOne());
  const std::string good = Read(Path("alice", "bob.roster-share"));
  wire::RosterShare share;
  SHOAL_ASSERT_OK(wire::ParseText(good, "", share));
  share.mutable_roster_digest()->back() ^= 1;
  Write(Path("alice", "bob.roster-share"), wire::PrintText(share));
  ExpectAltered("alice", "bob has signed another roster");
  Write(Path("alice", "bob.roster-share"), Read(Path("carol", "carol.roster-share")));
  ExpectAltered("alice", "is not the share of bob but of party 3");
  SHOAL_ASSERT_OK(wire::ParseText(Read(Path("carol", "carol.roster-share")), "", share));
  share.set_party(2);
  Write(Path("alice", "bob.roster-share"), wire::PrintText(share));
  ExpectAltered("alice", "share of party 2 (bob)");
  Write(Path("alice", "bob.roster-share"), good);
  ASSERT_EQ(Run("alice"), cli::kExitOk) << err_;
  // What came out is looked at each time.
  const std::string roster = Read(Path("alice", "roster.textproto"));
  Write(Path("alice", "roster.textproto"),
        absl::StrReplaceAll(roster, {{"max_slots: 1000", "max_slots: 1001"}}));
  EXPECT_EQ(Run("alice"), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("roster.textproto: is not the one that these signatures make"));
}

TEST_F(CeremonyTest, BadInputIsNamed) {
  EXPECT_EQ(Run("alice", {"--name", "no/name"}), cli::kExitFailed);
  ASSERT_EQ(Run("alice", {"--name", "alice"}), cli::kExitOk) << err_;
  EXPECT_EQ(Run("alice", {"--name", "bob"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("are of alice"));
  EXPECT_EQ(Run("alice", {"--compared", "12345"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("there is no roster.unsigned yet"));
  const auto with = [&](const std::vector<std::pair<std::string, std::string>>& changes,
                        const std::string& part) {
    Write(Path("alice", "settings.textproto"), absl::StrReplaceAll(kSettings, changes));
    EXPECT_EQ(Run("alice"), cli::kExitFailed) << out_;
    EXPECT_THAT(err_, HasSubstr(part));
  };
  with({{"\"alice\"", "\"eve\""}}, "names no party alice");
  with({{"\"bob\"", "\"carol\""}}, "two parties are named carol");
  with({{"GEOMETRIC", "NONE"}}, "settings.textproto:");
  with({{"name: \"bob\"", "name: \"bob\" bls_public_key: \"x\""}}, "has keys of bob");
  with({{"parties { name: \"bob\"", "# "}, {"parties { name: \"carol\"", "# "}}, "has 1 parties");
}

}  // namespace
}  // namespace shoal::commands
