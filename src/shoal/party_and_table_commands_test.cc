// Makes keys, a roster and a table only with commands, as operators do.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "src/base/bytes.h"
#include "src/base/testing/matchers.h"
#include "src/roster/fingerprint.h"
#include "src/roster/roster.h"
#include "src/shoal/party_commands.h"
#include "src/shoal/table_commands.h"
#include "src/storage/file.h"

namespace shoal::commands {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CommandsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::string(::getenv("TEST_TMPDIR")) + "/commands.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }

  // Words beginning with @ are files in the test's directory.
  int RunShoal(std::vector<std::string> arguments) {
    const std::vector<cli::Command> commands = {
        KeysGenerate(),   KeysRenew(),       KeysMachine(),         RosterAssemble(),
        RosterSign(),     RosterAggregate(), RosterPins(),          RosterInspect(),
        TableBuild(),     TableInspect(),    TableVerify(),         TableSign(),
        TableAggregate(), TableSignEngine(), TableAggregateEngine()};
    for (std::string& argument : arguments) {
      if (argument[0] == '@') argument = Path(argument.substr(1));
    }
    std::ostringstream out, err;
    std::istringstream in;
    cli::Io io{.out = out, .err = err, .in = in, .err_is_terminal = false};
    const int code = cli::RunProgram("shoal", "", commands, arguments, io);
    out_ = out.str();
    err_ = err.str();
    return code;
  }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    SHOAL_ASSERT_OK(WriteFileAtomically(Path(name), AsBytes(text), FileMode::kPublic));
  }

  void MakeRoster() {
    for (const std::string name : {"alice", "bob", "carol"}) {
      ASSERT_EQ(RunShoal({"keys", "generate", "--name", name, "--out", "@" + name}), cli::kExitOk)
          << err_;
      Write(name + ".announcement", out_);
    }
    ASSERT_EQ(Assemble(1), cli::kExitOk) << err_;
    SignRoster({"alice", "bob", "carol"});
    ASSERT_EQ(RunShoal({"roster", "pins", "--roster", "@signed", "--out", "@pinned"}), cli::kExitOk)
        << err_;
  }
  // Makes `signed` of `roster`, with the parties' keys in these directories.
  void SignRoster(const std::vector<std::string>& keys, const std::vector<std::string>& more = {}) {
    std::vector<std::string> aggregate = {"roster",  "aggregate", "--roster",
                                          "@roster", "--out",     "@signed"};
    for (const std::string& name : keys) {
      std::vector<std::string> sign = {"roster", "sign",     "--roster", "@roster",
                                       "--keys", "@" + name, "--out",    "@" + name + ".share"};
      sign.insert(sign.end(), more.begin(), more.end());
      ASSERT_EQ(RunShoal(sign), cli::kExitOk) << err_;
      aggregate.insert(aggregate.end(), {"--share", "@" + name + ".share"});
    }
    ASSERT_EQ(RunShoal(aggregate), cli::kExitOk) << err_;
  }
  // Makes `roster` again from the parties' announcements, as `epoch`.
  int Assemble(int epoch) {
    const absl::StatusOr<std::string> settings = ReadFile("configs/roster.settings.textproto");
    Write("settings",
          absl::StrReplaceAll(*settings, {{"epoch: 1", absl::StrCat("epoch: ", epoch)}}));
    return RunShoal({"roster", "assemble", "--settings", "@settings", "--announcement",
                     "@alice.announcement", "--announcement", "@bob.announcement", "--announcement",
                     "@carol.announcement", "--out", "@roster"});
  }
  // What commands show of bob's pinned key.
  std::string KeyOfBob() const {
    const absl::StatusOr<roster::PinnedParties> pins = roster::PinnedParties::Read(Path("pinned"));
    return roster::KeyFingerprint(pins->keys()[1].bytes());
  }
  int OnTable(const std::string& command, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"table",   command,    "@table", "--roster",
                                          "@signed", "--pinned", "@pinned"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunShoal(arguments);
  }

  // A table with the records of a file, after another one if it is named, signed by all.
  void MakeSigned(const std::string& records, const std::string& table,
                  const std::string& previous = "", const std::string& layout = "hashed") {
    const std::vector<std::string> after =
        previous.empty() ? std::vector<std::string>()
                         : std::vector<std::string>{"--previous", "@" + previous};
    std::vector<std::string> build = {"table",       "build", "--tsv",     "@" + records,  "--name",
                                      "t",           "--out", "@" + table, "--deployment", "demo",
                                      "--row-bytes", "128",   "--layout",  layout};
    build.insert(build.end(), after.begin(), after.end());
    ASSERT_EQ(RunShoal(build), cli::kExitOk) << err_;
    const std::vector<std::string> trust = {"--roster", "@signed", "--pinned", "@pinned"};
    for (const std::string name : {"alice", "bob", "carol"}) {
      std::vector<std::string> sign = {"table", "sign", "@" + table, "--keys", "@" + name};
      sign.insert(sign.end(), trust.begin(), trust.end());
      sign.insert(sign.end(), after.begin(), after.end());
      ASSERT_EQ(RunShoal(sign), cli::kExitOk) << err_;
    }
    std::vector<std::string> aggregate = {"table", "aggregate", "@" + table};
    aggregate.insert(aggregate.end(), trust.begin(), trust.end());
    ASSERT_EQ(RunShoal(aggregate), cli::kExitOk) << err_;
  }

  std::string directory_;
  std::string out_, err_;
};

TEST_F(CommandsTest, FromKeysToASignedTable) {
  MakeRoster();
  ASSERT_EQ(RunShoal({"roster", "inspect", "--roster", "@signed", "--pinned", "@pinned"}),
            cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("verified\tby all 3 pinned parties"));

  std::string tsv;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&tsv, "key-", i, "\tvalue ", i, "\n");
  Write("words.tsv", tsv);
  ASSERT_EQ(RunShoal({"table", "build", "--tsv", "@words.tsv", "--name", "words", "--deployment",
                      "demo", "--row-bytes", "512", "--out", "@table"}),
            cli::kExitOk)
      << err_;
  EXPECT_THAT(out_, HasSubstr("records\t500\n"));
  EXPECT_EQ(OnTable("verify"), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("not signed yet"));
  for (const std::string name : {"alice", "bob", "carol"}) {
    ASSERT_EQ(OnTable("sign", {"--keys", "@" + name}), cli::kExitOk) << err_;
  }
  ASSERT_EQ(OnTable("aggregate"), cli::kExitOk) << err_;
  ASSERT_EQ(OnTable("verify"), cli::kExitOk) << err_;
  ASSERT_EQ(RunShoal({"table", "inspect", "@table", "--key", "key-77"}), cli::kExitOk);
  EXPECT_EQ(out_, "key-77\tpresent\tvalue 77\n");
  ASSERT_EQ(RunShoal({"table", "inspect", "@table", "--key", "key-\\x39\\\\"}), cli::kExitOk);
  EXPECT_EQ(out_, "key-9\\\\\tabsent\t\n");
  ASSERT_EQ(RunShoal({"table", "inspect", "@table"}), cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("signed\tyes"));

  // Changes one bit of a row.
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string rows, ReadFile(Path("table/rows.bin")));
  rows[100] ^= 1;
  Write("table/rows.bin", rows);
  EXPECT_EQ(OnTable("verify"), cli::kExitVerification);
  EXPECT_EQ(RunShoal({"table", "inspect", "@table"}), cli::kExitVerification);

  // The next epoch has the same table id.
  rows[100] ^= 1;
  Write("table/rows.bin", rows);
  ASSERT_EQ(RunShoal({"table", "build", "--tsv", "@words.tsv", "--previous", "@table",
                      "--deployment", "demo", "--out", "@table-2"}),
            cli::kExitOk)
      << err_;
  ASSERT_EQ(RunShoal({"table", "inspect", "@table-2"}), cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("epoch\t2\n"));
  EXPECT_THAT(out_, HasSubstr("name\twords\n"));
  EXPECT_THAT(out_, HasSubstr("row bytes\t512\n"));
}

// A table for two tiers is built, signed and shown; a table without is what it always was.
TEST_F(CommandsTest, QueryBucketsAreBuiltAndShown) {
  std::string tsv;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&tsv, "key-", i, "\tvalue ", i, "\n");
  Write("words.tsv", tsv);
  const auto build = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"table",        "build", "--tsv",       "@words.tsv",
                                          "--name",       "words", "--row-bytes", "128",
                                          "--deployment", "demo",  "--out",       "@" + name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunShoal(arguments);
  };
  for (const auto& [name, more] :
       {std::pair{"plain", std::vector<std::string>{}}, {"zero", {"--query-buckets", "0"}}}) {
    ASSERT_EQ(build(name, more), cli::kExitOk) << err_;
    EXPECT_THAT(out_, Not(HasSubstr("query buckets")));
    EXPECT_THAT(err_, Not(HasSubstr("query buckets")));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string manifest,
                               ReadFile(Path(absl::StrCat(name, "/manifest.textproto"))));
    EXPECT_THAT(manifest, Not(HasSubstr("query_buckets")));
  }
  ASSERT_EQ(build("five", {"--query-buckets", "5"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("query buckets\t5, of at most "));
  EXPECT_THAT(err_, HasSubstr("is for two parties whose roster has most_in_bucket"));
  ASSERT_EQ(RunShoal({"table", "inspect", "@five"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("query buckets\t5, of at most "));
  for (const char* bad : {"1", "4000000000", "99999999999999999"}) {
    EXPECT_NE(build("bad", {"--query-buckets", bad}), cli::kExitOk);
    EXPECT_THAT(err_, HasSubstr("query_buckets: ")) << bad;
    EXPECT_FALSE(ReadFile(Path("bad/manifest.textproto")).ok());
  }

  // The next epoch has as many, and says so where it has others.
  MakeRoster();
  for (const std::string name : {"alice", "bob", "carol"}) {
    ASSERT_EQ(RunShoal({"table", "sign", "@five", "--keys", "@" + name, "--roster", "@signed",
                        "--pinned", "@pinned"}),
              cli::kExitOk)
        << err_;
  }
  ASSERT_EQ(RunShoal({"table", "aggregate", "@five", "--roster", "@signed", "--pinned", "@pinned"}),
            cli::kExitOk)
      << err_;
  ASSERT_EQ(build("next", {"--previous", "@five"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("query buckets\t5, of at most "));
  EXPECT_THAT(err_, Not(HasSubstr("the previous epoch has 5 query buckets")));
  // As many buckets of other rows are others, too: by another seed, and in another layout.
  const char* const new_rows =
      "the previous epoch has 5 query buckets, as this one, but every key has a new row";
  std::string more_keys = tsv;
  for (int i = 500; i < 2000; ++i) absl::StrAppend(&more_keys, "key-", i, "\tvalue ", i, "\n");
  Write("words.tsv", more_keys);
  ASSERT_EQ(build("seed", {"--previous", "@five"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("query buckets\t5, of at most "));
  EXPECT_THAT(err_, HasSubstr(new_rows));
  std::string numbers;
  for (int i = 0; i < 500; ++i) absl::StrAppend(&numbers, i, "\tvalue\n");
  Write("words.tsv", numbers);
  ASSERT_EQ(build("dense", {"--previous", "@five", "--layout", "dense"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("query buckets\t5, of at most "));
  EXPECT_THAT(err_, HasSubstr(new_rows));
  Write("words.tsv", tsv);
  ASSERT_EQ(build("other", {"--previous", "@five", "--query-buckets", "7"}), cli::kExitOk) << err_;
  EXPECT_THAT(err_, HasSubstr("the previous epoch has 5 query buckets, and this one 7"));
  ASSERT_EQ(build("none", {"--previous", "@five", "--query-buckets", "0"}), cli::kExitOk) << err_;
  EXPECT_THAT(
      err_,
      HasSubstr("the previous epoch has 5 query buckets, and this one none: its rounds show rows"));
}

// Standard error tells operators whether keys keep their rows in the next epoch.
TEST_F(CommandsTest, TheNextEpochSaysWhetherKeysKeepTheirRows) {
  const auto write = [&](const std::string& name, int keys) {
    std::string tsv;
    for (int i = 0; i < keys; ++i) absl::StrAppend(&tsv, "key-", i, "\tvalue ", i, "\n");
    Write(name, tsv);
  };
  write("some.tsv", 500);
  write("others.tsv", 2000);
  const auto build = [&](const std::string& records, const std::string& out,
                         std::vector<std::string> more) {
    std::vector<std::string> command = {"table",        "build", "--tsv", records,
                                        "--deployment", "demo",  "--out", out};
    command.insert(command.end(), more.begin(), more.end());
    EXPECT_EQ(RunShoal(command), cli::kExitOk) << err_;
    return err_;
  };
  EXPECT_THAT(build("@some.tsv", "@first", {"--name", "t", "--row-bytes", "512"}),
              Not(HasSubstr("row")));
  // Only a signed epoch keeps its signatures.
  EXPECT_EQ(RunShoal({"table", "build", "--tsv", "@some.tsv", "--deployment", "demo", "--out",
                      "@none", "--previous", "@first"}),
            cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("is not signed by all parties"));
  EXPECT_THAT(build("@some.tsv", "@same", {"--previous", "@first", "--sign-all"}),
              AllOf(HasSubstr("keys keep their rows, but for those of 0 in 250 buckets\n"),
                    HasSubstr("terms go on: every key has the row that it had\n")));
  EXPECT_THAT(build("@others.tsv", "@more", {"--previous", "@first", "--sign-all"}),
              AllOf(HasSubstr("every key has a new row: the records no longer suit"),
                    HasSubstr("terms end: epoch 2 of table t cannot refresh rows of epoch 1")));
  EXPECT_THAT(
      build("@some.tsv", "@longer", {"--previous", "@first", "--sign-all", "--row-bytes", "600"}),
      HasSubstr("every key has a new row: rows have another size"));
}

// Within a term keys keep their rows, and the operator learns which of them have no room.
TEST_F(CommandsTest, KeptRowsSayWhichKeysMustMove) {
  MakeRoster();
  std::string tsv;
  for (int i = 0; i < 100; ++i) absl::StrAppend(&tsv, "key-", i, "\tvalue ", i, "\n");
  Write("some.tsv", tsv);
  MakeSigned("some.tsv", "one");
  for (int i = 0; i < 20; ++i) absl::StrAppend(&tsv, "new\\t", i, "\tvalue ", i, "\n");
  Write("more.tsv", tsv);
  const auto build = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> command = {"table",        "build", "--tsv", "@more.tsv",
                                        "--deployment", "demo",  "--out", "@" + out};
    command.insert(command.end(), more.begin(), more.end());
    return RunShoal(command);
  };
  EXPECT_EQ(build("none", {"--name", "t", "--keep-rows"}), cli::kExitUsage);
  EXPECT_EQ(build("none", {"--previous", "@one", "--keep-rows", "--room-percent", "5"}),
            cli::kExitUsage);
  EXPECT_EQ(build("none", {"--previous", "@one", "--displaced", "@list"}), cli::kExitUsage);
  EXPECT_EQ(build("none", {"--name", "t", "--room-percent", "91"}), cli::kExitFailed);

  ASSERT_EQ(build("two", {"--previous", "@one", "--keep-rows", "--displaced", "@list"}),
            cli::kExitOk)
      << err_;
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string list, ReadFile(Path("list")));
  const std::vector<std::string> lines = absl::StrSplit(list, '\n', absl::SkipEmpty());
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(err_, AllOf(HasSubstr(absl::StrCat(lines.size(), " of 120 keys must move")),
                          HasSubstr("terms go on: every key has the row that it had\n")));
  EXPECT_THAT(list, HasSubstr("new\\t"));
  const std::string key = lines[0].substr(0, lines[0].find('\t'));
  ASSERT_EQ(RunShoal({"table", "inspect", "@two", "--key", key}), cli::kExitOk) << err_;
  EXPECT_EQ(out_, key + "\tunknown\t\n");
  ASSERT_EQ(RunShoal({"table", "inspect", "@two"}), cli::kExitOk);
  EXPECT_THAT(out_, AllOf(HasSubstr(absl::StrCat("records\t", 120 - lines.size(), "\n")),
                          Not(HasSubstr("incomplete rows\t0\n"))));
  // Who signs it is told.
  ASSERT_EQ(RunShoal({"table", "sign", "@two", "--previous", "@one", "--keys", "@alice", "--roster",
                      "@signed", "--pinned", "@pinned"}),
            cli::kExitOk)
      << err_;
  EXPECT_THAT(err_, HasSubstr("clients learn nothing of the keys that "));

  // The next term places all of them.
  ASSERT_EQ(build("three", {"--previous", "@one", "--epoch", "3"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("incomplete rows\t0\n"));
  EXPECT_THAT(err_, HasSubstr("terms end: "));
  ASSERT_EQ(RunShoal({"table", "inspect", "@three", "--key", key}), cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("\tpresent\t"));
}

// A party signs one content for an epoch: a second content is refused.
TEST_F(CommandsTest, APartySignsOneTableForAnEpoch) {
  MakeRoster();
  Write("a.tsv", "a\t1\n");
  Write("b.tsv", "a\t2\n");
  MakeSigned("a.tsv", "earlier");
  for (const std::string name : {"a", "b"}) {
    ASSERT_EQ(RunShoal({"table", "build", "--tsv", "@" + name + ".tsv", "--previous", "@earlier",
                        "--deployment", "demo", "--out", "@table-" + name}),
              cli::kExitOk)
        << err_;
  }
  const auto sign = [&](const std::string& table) {
    std::vector<std::string> arguments = {"table",    "sign",    table,    "--roster", "@signed",
                                          "--pinned", "@pinned", "--keys", "@alice"};
    if (table != "@earlier") arguments.insert(arguments.end(), {"--previous", "@earlier"});
    return RunShoal(arguments);
  };
  EXPECT_EQ(sign("@table-a"), cli::kExitOk) << err_;
  EXPECT_EQ(sign("@table-a"), cli::kExitOk) << err_;
  EXPECT_EQ(sign("@table-b"), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("second content for epoch 2"));
  EXPECT_EQ(sign("@earlier"), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("after epoch 2"));
}

// A person who signs is told what the signature would say, and is asked again where the table does
// not follow what this party signed last.
TEST_F(CommandsTest, ATableIsNotSignedInSilenceWithoutItsPredecessor) {
  MakeRoster();
  std::string tsv;
  for (int i = 0; i < 200; ++i) absl::StrAppend(&tsv, i, "\tvalue ", i, "\n");
  Write("one.tsv", tsv);
  Write("two.tsv", "0\tother 0\n" + tsv.substr(tsv.find('\n') + 1) + "200\tvalue\n");
  Write("three.tsv", tsv + "200\tthird\n");
  MakeSigned("one.tsv", "one", "", "dense");
  const auto build = [&](const std::string& records, const std::string& out,
                         std::vector<std::string> more) {
    std::vector<std::string> command = {
        "table", "build", "--tsv",   "@" + records, "--name", "t",        "--deployment",
        "demo",  "--out", "@" + out, "--row-bytes", "128",    "--layout", "dense"};
    command.insert(command.end(), more.begin(), more.end());
    ASSERT_EQ(RunShoal(command), cli::kExitOk) << err_;
  };
  const auto sign = [&](const std::string& table, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"table",    "sign",    "@" + table, "--roster", "@signed",
                                          "--pinned", "@pinned", "--keys",    "@alice"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunShoal(arguments);
  };
  // Its rows are kept: the party must have the epoch that it follows.
  build("two.tsv", "two", {"--previous", "@one"});
  EXPECT_EQ(sign("two", {}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("follows an earlier epoch"));
  ASSERT_EQ(sign("two", {"--previous", "@one"}), cli::kExitOk) << err_;
  EXPECT_THAT(err_, HasSubstr("epoch 2 of t: 201 records in "));
  EXPECT_THAT(err_, HasSubstr("since epoch 1: "));
  EXPECT_THAT(err_, HasSubstr("1 keys added, 0 removed, 0 moved to another row, 1 values changed"));

  // A table rebuilt under the same name: another id, an epoch of its own.
  build("two.tsv", "old", {"--epoch", "1"});
  EXPECT_EQ(sign("old", {"--without-previous"}), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("after epoch 2"));
  build("three.tsv", "rebuilt", {"--epoch", "3"});
  EXPECT_EQ(sign("rebuilt", {}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("this party signed epoch 2 of t, and this table was built without"));
  EXPECT_THAT(err_, HasSubstr("--without-previous"));
  EXPECT_EQ(sign("rebuilt", {"--previous", "@one"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("is not what this table follows"));

  // Epoch 2 is given up; epoch 3 follows epoch 1.
  build("three.tsv", "three", {"--previous", "@one", "--epoch", "3"});
  EXPECT_EQ(sign("three", {"--previous", "@one"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("was the other one given up?"));
  ASSERT_EQ(sign("three", {"--previous", "@one", "--not-after-last"}), cli::kExitOk) << err_;
  EXPECT_THAT(err_, HasSubstr("warning: this party signed epoch 2 last"));
  // The same again needs no second answer.
  EXPECT_EQ(sign("three", {"--previous", "@one"}), cli::kExitOk) << err_;
  build("three.tsv", "rebuilt-4", {"--epoch", "4"});
  EXPECT_EQ(sign("rebuilt-4", {"--without-previous"}), cli::kExitOk) << err_;
}

// The record of what a party signed, set back to an old copy, is older than the party's own
// signature on the previous epoch.
TEST_F(CommandsTest, ARestoredRecordIsNoticedBySigningAfterALaterEpoch) {
  MakeRoster();
  Write("a.tsv", "a\t1\n");
  Write("b.tsv", "a\t2\n");
  MakeSigned("a.tsv", "one");
  std::filesystem::copy(Path("alice/signed"), Path("copy"));
  MakeSigned("b.tsv", "two", "one");
  std::filesystem::remove_all(Path("alice/signed"));
  std::filesystem::copy(Path("copy"), Path("alice/signed"));
  ASSERT_EQ(RunShoal({"table", "build", "--tsv", "@a.tsv", "--deployment", "demo", "--previous",
                      "@two", "--out", "@three"}),
            cli::kExitOk)
      << err_;
  EXPECT_EQ(RunShoal({"table", "sign", "@three", "--previous", "@two", "--roster", "@signed",
                      "--pinned", "@pinned", "--keys", "@alice"}),
            cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("is an old copy: it ends with epoch 1, before epoch 2"));
}

TEST_F(CommandsTest, APartySignsOneRosterForAnEpoch) {
  MakeRoster();
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string roster, ReadFile(Path("roster")));
  const size_t at = roster.find(":7301");
  ASSERT_NE(at, std::string::npos);
  roster.replace(at, 5, ":7309");
  Write("other", roster);
  EXPECT_EQ(RunShoal({"roster", "sign", "--roster", "@other", "--keys", "@bob"}),
            cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("second content"));
}

TEST_F(CommandsTest, RefusesARosterOfStrangers) {
  MakeRoster();
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string pinned, ReadFile(Path("pinned")));
  // The keys of alice and bob, exchanged.
  const size_t first = pinned.find("bls_public_keys_hex");
  const size_t second = pinned.find("bls_public_keys_hex", first + 1);
  const size_t third = pinned.find("bls_public_keys_hex", second + 1);
  Write("pinned", pinned.substr(0, first) + pinned.substr(second, third - second) +
                      pinned.substr(first, second - first) + pinned.substr(third));
  EXPECT_EQ(RunShoal({"roster", "inspect", "--roster", "@signed", "--pinned", "@pinned"}),
            cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("party 1 is not the pinned one"));
}

// Records are cut to the rows, and do not decide how long these are.
TEST_F(CommandsTest, ATableOfAdvisoriesFromOsvRecords) {
  std::filesystem::create_directories(Path("osv/PyPI"));
  for (int i = 0; i < 50; ++i) {
    Write(absl::StrCat("osv/PyPI/", i, ".json"),
          absl::StrCat(R"({"id":"PYSEC-2021-)", i, R"(","modified":"2021-01-01T00:00:00Z",)",
                       R"("affected":[{"package":{"ecosystem":"PyPI","name":"Big.One"},)",
                       R"("versions":["1.)", i, R"("]}]})"));
  }
  Write("osv/other.json", R"({"id":"X-1","modified":"2021-01-01T00:00:00Z","affected":[{"package":
                          {"ecosystem":"Maven","name":"a:b"},"versions":["1"]}]})");
  const auto build = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"table", "build",       "--osv",        "@osv",
                                          "--out", "@advisories", "--deployment", "demo"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunShoal(arguments);
  };
  EXPECT_EQ(build({"--name", "words"}), cli::kExitUsage);
  EXPECT_EQ(build({"--layout", "dense"}), cli::kExitUsage);
  EXPECT_EQ(build({"--packages"}), cli::kExitUsage);
  ASSERT_EQ(build({"--row-bytes", "512"}), cli::kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("row bytes\t512\n"));
  EXPECT_THAT(err_, HasSubstr("51 OSV records, 0 of them withdrawn"));
  EXPECT_THAT(err_, HasSubstr("left out: 1 packages of Maven"));
  EXPECT_THAT(err_, HasSubstr("of 1 packages a row of 512 bytes does not hold all advisories"));
  ASSERT_EQ(RunShoal({"table", "inspect", "@advisories", "--key", "PyPI/big-one"}), cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("PyPI/big-one\tpresent\t"));
  ASSERT_EQ(RunShoal({"table", "inspect", "@advisories"}), cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("name\tadvisories\n"));
  Write("osv/bad.json", "{\n  \"id\": 7\n}");
  EXPECT_EQ(build({"--out", "@more"}), cli::kExitUsage) << "given twice";
  EXPECT_EQ(RunShoal({"table", "build", "--osv", "@osv", "--strict", "--out", "@more",
                      "--deployment", "demo"}),
            cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("osv/bad.json: id: is not a text"));
  // One odd record does not stop the others, and is said.
  Write("osv/odd.json", R"({"id":"X-2","modified":"2021-01-01T00:00:00Z","affected":[{"package":
                        {"ecosystem":"PyPI","name":"odd"},"ranges":[{"type":"NEW"}]}]})");
  EXPECT_EQ(RunShoal({"table", "build", "--osv", "@osv", "--out", "@more", "--deployment", "demo"}),
            cli::kExitOk);
  EXPECT_THAT(err_, HasSubstr("left out: 2 files that are no records"));
  EXPECT_THAT(err_, HasSubstr("osv/bad.json: id: is not a text"));
  ASSERT_EQ(RunShoal({"table", "inspect", "@more", "--key", "PyPI/odd"}), cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("PyPI/odd\tpresent\t"));
  Write("osv/cut.json", "{");
  EXPECT_EQ(RunShoal({"table", "build", "--osv", "@osv", "--out", "@less", "--deployment", "demo"}),
            cli::kExitOk);
  EXPECT_THAT(err_, HasSubstr("1 of them do not say which packages they are about"));
  EXPECT_EQ(RunShoal({"table", "build", "--tsv", "@x", "--name", "x", "--strict", "--out", "@none",
                      "--deployment", "demo"}),
            cli::kExitUsage);
}

TEST_F(CommandsTest, BadInputNamesFileAndLine) {
  Write("bad.tsv", "a\t1\nb\n");
  const std::vector<std::string> build = {"table",        "build", "--name", "t",
                                          "--deployment", "demo",  "--out",  "@table"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = build;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunShoal(arguments);
  };
  EXPECT_EQ(with({"--tsv", "@bad.tsv"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("bad.tsv:2: no tab between key and value"));
  EXPECT_EQ(with({"--tsv", "@none.tsv"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("none.tsv: No such file"));
  Write("marked.tsv",
        "\xef\xbb\xbf"
        "a\t1\nb\n");
  EXPECT_EQ(with({"--tsv", "@marked.tsv"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("marked.tsv:2: no tab"));
  Write("wide.tsv",
        "\xff\xfe"
        "a");
  EXPECT_EQ(with({"--tsv", "@wide.tsv"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("wide.tsv:1: the text is UTF-16"));
  Write("twice.csv", "k,v\na,1\na,2\n");
  EXPECT_EQ(with({"--csv", "@twice.csv", "--csv-header"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("twice.csv:3: the key \"a\" is there twice, first at line 2"));
  EXPECT_EQ(with({}), cli::kExitUsage);
  EXPECT_EQ(with({"--csv", "@twice.csv", "--tsv", "@bad.tsv"}), cli::kExitUsage);
  EXPECT_EQ(with({"--tsv", "@bad.tsv", "--layout", "cuckoo"}), cli::kExitUsage);
  EXPECT_EQ(with({"--tsv", "@bad.tsv", "--csv-header"}), cli::kExitUsage);
  EXPECT_FALSE(FileExists(Path("table")));

  Write("settings", "deployment: \"demo\"\nparty { }\n");
  EXPECT_EQ(
      RunShoal({"roster", "assemble", "--settings", "@settings", "--announcement", "@bad.tsv"}),
      cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("settings:2:"));
}

// One long value makes all rows long: the command says which, and what the others need.
TEST_F(CommandsTest, BuildSaysWhichRecordMakesRowsLong) {
  std::string records;
  for (int i = 0; i < 300; ++i) records += std::to_string(i) + "\tshort\n";
  const auto build = [&](const std::string& text, const std::string& out,
                         std::vector<std::string> more = {}) {
    Write("records.tsv", text);
    std::vector<std::string> arguments = {"table", "build", "--name",       "t",     "--deployment",
                                          "demo",  "--tsv", "@records.tsv", "--out", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(RunShoal(arguments), cli::kExitOk) << err_;
    return err_;
  };
  EXPECT_THAT(build(records, "@even"), ::testing::Not(HasSubstr("warning")));
  const std::string with_long = records + "300\t" + std::string(5000, 'x') + "\n";
  EXPECT_THAT(build(with_long, "@uneven"),
              HasSubstr("records.tsv:301: its record of 5003 bytes decides that all rows have"));
  EXPECT_THAT(build(with_long, "@dense", {"--layout", "dense"}), HasSubstr("records.tsv:301"));
  EXPECT_THAT(build(with_long, "@chosen", {"--row-bytes", "8192"}),
              ::testing::Not(HasSubstr("warning")));
}

TEST_F(CommandsTest, ARosterNamesEveryMachine) {
  MakeRoster();
  EXPECT_THAT(out_, Not(HasSubstr("machine 1")));
  const absl::StatusOr<std::string> settings = ReadFile("configs/roster.settings.textproto");
  Write("settings",
        absl::StrReplaceAll(*settings, {{"peer_address: \"127.0.0.1:7301\"",
                                         "peer_address: \"127.0.0.1:7301\" other_machines { "
                                         "peer_address: \"127.0.0.1:7401\" }"},
                                        {"epoch: 1", "epoch: 2"}}));
  ASSERT_EQ(RunShoal({"roster", "assemble", "--settings", "@settings", "--announcement",
                      "@alice.announcement", "--announcement", "@bob.announcement",
                      "--announcement", "@carol.announcement", "--out", "@roster"}),
            cli::kExitOk)
      << err_;
  SignRoster({"alice", "bob", "carol"});
  ASSERT_EQ(RunShoal({"roster", "inspect", "--roster", "@signed", "--pinned", "@pinned"}),
            cli::kExitOk);
  EXPECT_THAT(out_, HasSubstr("  machine 1\t127.0.0.1:7401\n"));
  EXPECT_THAT(out_, HasSubstr("verified\tby all 3 pinned parties"));
}

TEST_F(CommandsTest, KeysAreRenewed) {
  MakeRoster();
  std::string records;
  for (int i = 0; i < 40; ++i) absl::StrAppend(&records, "key-", i, "\tvalue ", i, "\n");
  Write("one.tsv", records);
  Write("two.tsv", absl::StrReplaceAll(records, {{"value 7\n", "another\n"}}));
  MakeSigned("one.tsv", "table");
  const std::vector<std::string> inspect = {"roster",  "inspect",  "--roster",
                                            "@signed", "--pinned", "@pinned"};

  ASSERT_EQ(RunShoal({"keys", "renew", "--keys", "@bob", "--out", "@bob-new"}), cli::kExitOk)
      << err_;
  Write("bob.announcement", out_);
  EXPECT_THAT(err_, HasSubstr("signs no roster, table or setup from"));
  EXPECT_EQ(RunShoal({"keys", "renew", "--keys", "@bob", "--out", "@bob-other"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("has gone on to renewed keys"));
  EXPECT_EQ(RunShoal({"keys", "renew", "--keys", "@carol", "--out", "@bob"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("bob: exists"));

  // The next roster, which the old pins take. The old keys sign none of it.
  ASSERT_EQ(Assemble(2), cli::kExitOk) << err_;
  EXPECT_NE(RunShoal({"roster", "sign", "--roster", "@roster", "--keys", "@bob"}), cli::kExitOk);
  const std::string before = KeyOfBob();
  SignRoster({"alice", "bob-new", "carol"}, {"--pinned", "@pinned", "--renewed", "bob"});
  ASSERT_EQ(RunShoal(inspect), cli::kExitOk) << err_;
  const std::string told = err_;
  // New pins take the new keys alone.
  ASSERT_EQ(RunShoal({"roster", "pins", "--roster", "@signed", "--out", "@pinned"}), cli::kExitOk);
  ASSERT_EQ(RunShoal(inspect), cli::kExitOk) << err_;
  EXPECT_EQ(err_, "");
  EXPECT_EQ(told, "party 2 has another key than the pinned one, which signed it: bob, " +
                      KeyOfBob() + " after " + before + "\n");

  // The old table has the old keys' signatures; the next one has every row signed anew.
  EXPECT_EQ(OnTable("verify"), cli::kExitVerification);
  EXPECT_NE(RunShoal({"table", "build", "--tsv", "@two.tsv", "--deployment", "demo", "--row-bytes",
                      "128", "--previous", "@table", "--out", "@kept"}),
            cli::kExitUsage);
  ASSERT_EQ(RunShoal({"table", "build", "--tsv", "@two.tsv", "--deployment", "demo", "--row-bytes",
                      "128", "--previous", "@table", "--sign-all", "--out", "@next"}),
            cli::kExitOk)
      << err_;
  const std::vector<std::string> trust = {"--roster", "@signed", "--pinned", "@pinned"};
  const auto on = [&](const std::string& command, const std::string& table,
                      std::vector<std::string> more) {
    more.insert(more.begin(), {"table", command, "@" + table});
    more.insert(more.end(), trust.begin(), trust.end());
    return RunShoal(more);
  };
  EXPECT_NE(on("sign", "kept", {"--keys", "@bob-new", "--previous", "@table"}), cli::kExitOk);
  EXPECT_THAT(err_, HasSubstr("only a roster with the same keys keeps rows"));
  for (const std::string keys : {"alice", "bob-new", "carol"}) {
    EXPECT_NE(on("sign", "next", {"--keys", "@" + keys}), cli::kExitOk)
        << "the record says that there is an epoch before";
    EXPECT_THAT(err_, HasSubstr("this party signed epoch 1"));
    ASSERT_EQ(on("sign", "next", {"--keys", "@" + keys, "--previous", "@table"}), cli::kExitOk)
        << err_;
    EXPECT_THAT(err_, HasSubstr("1 values changed"));
  }
  ASSERT_EQ(on("aggregate", "next", {}), cli::kExitOk) << err_;
  ASSERT_EQ(on("verify", "next", {}), cli::kExitOk) << err_;
}

// As the assembler, or another party, would.
TEST_F(CommandsTest, NobodySignsARosterInWhichAnotherKeyWasReplaced) {
  MakeRoster();
  ASSERT_EQ(RunShoal({"keys", "generate", "--name", "bob", "--out", "@mallory"}), cli::kExitOk);
  Write("bob.announcement", out_);
  ASSERT_EQ(Assemble(2), cli::kExitOk) << err_;
  const std::vector<std::string> sign = {"roster", "sign",   "--roster", "@roster",
                                         "--keys", "@alice", "--pinned", "@pinned"};
  EXPECT_EQ(RunShoal(sign), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("the BLS key of party 2 is not the pinned one"));
  // A renewal of mallory's key is none of bob's.
  ASSERT_EQ(RunShoal({"keys", "renew", "--keys", "@mallory", "--out", "@mallory-new"}),
            cli::kExitOk);
  Write("bob.announcement", out_);
  ASSERT_EQ(Assemble(2), cli::kExitOk) << err_;
  EXPECT_EQ(RunShoal(sign), cli::kExitVerification);
  EXPECT_THAT(err_, HasSubstr("the BLS key of party 2 is not the pinned one"));
}

// A successor is signed by the key before, which somebody may have stolen: its owner is asked
// first.
TEST_F(CommandsTest, ASuccessorIsSignedOnceItIsNamed) {
  MakeRoster();
  const std::string before = KeyOfBob();
  ASSERT_EQ(RunShoal({"keys", "renew", "--keys", "@bob", "--out", "@bob-new"}), cli::kExitOk);
  Write("bob.announcement", out_);
  ASSERT_EQ(Assemble(2), cli::kExitOk) << err_;
  const auto sign = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"roster", "sign", "--roster", "@roster", "--keys", "@alice", "--out", "@share"});
    return RunShoal(more);
  };
  EXPECT_EQ(sign({"--pinned", "@pinned"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("which signed it: bob, "));
  EXPECT_THAT(err_, HasSubstr(" after " + before + "\n"));
  EXPECT_THAT(err_, HasSubstr("sign with --renewed bob"));
  EXPECT_EQ(sign({"--pinned", "@pinned", "--renewed", "carol"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("sign with --renewed bob"));
  EXPECT_EQ(sign({"--pinned", "@pinned", "--renewed", "bob", "--renewed", "carol"}),
            cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("--renewed carol: no party of that name"));
  EXPECT_EQ(sign({"--renewed", "bob"}), cli::kExitUsage);
  EXPECT_FALSE(FileExists(Path("share")));
  EXPECT_EQ(sign({"--pinned", "@pinned", "--renewed", "bob"}), cli::kExitOk) << err_;
}

// Otherwise clients that pin carol's key would be led to bob's.
TEST_F(CommandsTest, NoKeyIsOfTwoParties) {
  MakeRoster();
  ASSERT_EQ(RunShoal({"keys", "renew", "--keys", "@carol", "--out", "@carol-new"}), cli::kExitOk);
  Write("bob.announcement", absl::StrReplaceAll(out_, {{"name: \"carol\"", "name: \"bob\""}}));
  EXPECT_EQ(Assemble(2), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("is or was that of bob and of carol"));
}

TEST_F(CommandsTest, ACertificateIsRenewedAlone) {
  MakeRoster();
  ASSERT_EQ(RunShoal({"keys", "renew", "--keys", "@alice", "--only-tls", "--out", "@alice-new"}),
            cli::kExitOk)
      << err_;
  Write("alice.announcement", out_);
  ASSERT_EQ(Assemble(2), cli::kExitOk) << err_;
  EXPECT_NE(RunShoal({"roster", "sign", "--roster", "@roster", "--keys", "@alice"}), cli::kExitOk);
  EXPECT_THAT(err_, HasSubstr("another TLS certificate"));
  SignRoster({"alice-new", "bob", "carol"}, {"--pinned", "@pinned"});
  ASSERT_EQ(RunShoal({"roster", "inspect", "--roster", "@signed", "--pinned", "@pinned"}),
            cli::kExitOk);
  EXPECT_EQ(err_, "") << "no key differs";
}

TEST_F(CommandsTest, KeysAreNeverOverwritten) {
  ASSERT_EQ(RunShoal({"keys", "generate", "--name", "a", "--out", "@a"}), cli::kExitOk);
  EXPECT_EQ(RunShoal({"keys", "generate", "--name", "a", "--out", "@a"}), cli::kExitFailed);
  EXPECT_THAT(err_, HasSubstr("never overwritten"));
}

}  // namespace
}  // namespace shoal::commands
