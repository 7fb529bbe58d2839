#include "src/shoal/lookup_commands.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/base/clock.h"
#include "src/base/printable.h"
#include "src/base/testing/matchers.h"
#include "src/client/config.h"
#include "src/client/rollback_anchor.h"
#include "src/client/testing/fake_frontend.h"
#include "src/roster/fingerprint.h"
#include "src/storage/file.h"
#include "src/table/row_map.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

namespace fs = std::filesystem;
using client::testing::FakeFrontend;
using shoal::testing::StatusIs;

class CommandsTest : public ::testing::Test {
 protected:
  explicit CommandsTest(bool protects_five = false)
      : frontend_({.now_s = SystemClock().NowSeconds(), .protects_five = protects_five}) {
    std::string name = ::testing::TempDir() + "/commands.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    // Whoever runs the test may have a configuration.
    ::setenv("XDG_CONFIG_HOME", (directory_ + "/etc").c_str(), 1);
    WriteConfig("");
  }
  ~CommandsTest() override { fs::remove_all(directory_); }

  void WriteConfig(const std::string& more) {
    const auto pins = roster::PinsOf(frontend_.roster().wire().roster());
    SHOAL_CHECK(pins.ok());
    SHOAL_CHECK(wire::WriteTextFile(directory_ + "/pins.textproto", *pins).ok());
    const std::string config = absl::StrCat(
        "frontend: \"localhost:7000\"\npinned_parties_file: \"pins.textproto\"\n"
        "state: \"state\"\npad_to: 8\ntimeout_s: 1\n",
        more);
    SHOAL_CHECK(WriteFileAtomically(ConfigPath(), AsBytes(config), FileMode::kPublic).ok());
  }
  std::string ConfigPath() const { return directory_ + "/client.textproto"; }

  struct Outcome {
    cli::ExitCode code;
    std::string out;
    std::string err;
  };
  Outcome Run(std::vector<std::string> arguments, const std::string& input = "") {
    const Connector connect =
        [this](const std::string& address) -> absl::StatusOr<std::unique_ptr<client::Transport>> {
      EXPECT_EQ(address, "localhost:7000");
      return client::testing::ConnectTo(&frontend_, &mutex_);
    };
    const std::vector<cli::Command> commands = {Init(connect),   Query(connect), Simulate(connect),
                                                Status(connect), Watch(connect), Updates(connect)};
    std::ostringstream out, err;
    std::istringstream in(input);
    cli::Io io{.out = out, .err = err, .in = in, .err_is_terminal = terminal_};
    const cli::ExitCode code = cli::RunProgram("shoal", "", commands, arguments, io);
    return {code, out.str(), err.str()};
  }
  Outcome RunQuery(std::vector<std::string> more, const std::string& input = "") {
    more.insert(more.begin(), {"query", "--config", ConfigPath()});
    return Run(more, input);
  }

  FakeFrontend frontend_;
  std::mutex mutex_;
  std::string directory_;
  bool terminal_ = false;
};

// A deployment whose rounds protect five queries of a device together.
class FiveCommandsTest : public CommandsTest {
 protected:
  FiveCommandsTest() : CommandsTest(/*protects_five=*/true) {}
};

TEST_F(CommandsTest, QueryPrintsTsvInOrder) {
  frontend_.OpenRound();
  const Outcome outcome =
      RunQuery({"key-5", "--file", "-", "absent", "--escapes"}, "key-3\nkey-5\n\\xff\\xfe\nlast");
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out,
            "key-5\tfound\tvalue of key-5\tyes\n"
            "absent\tabsent\t\tyes\n"
            "key-3\tfound\tvalue of key-3\tyes\n"
            "key-5\tfound\tvalue of key-5\tyes\n"
            "\\xff\\xfe\tabsent\t\tyes\n"
            "last\tabsent\t\tyes\n");
  // The roster protects single lookups, and eight queries were sent.
  EXPECT_NE(outcome.err.find("privacy: a round protects single lookups, any one query of a device "
                             "by itself: nobody's odds between what was asked and anything else "
                             "change by more than a factor of 2.72, but for a chance of 0.001 "
                             "(epsilon 1, delta 0.001)"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("privacy: all 8 queries of this lookup together, padding included: "
                             "nobody's odds between what was asked and anything else change by "
                             "more than a factor of 303, but for a chance of 0.001 (epsilon 5.713, "
                             "delta 0.001)"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("privacy: all 8 queries in 1 submission of this device so far"),
            std::string::npos)
      << outcome.err;
}

TEST_F(FiveCommandsTest, QueryStopsWhenARoundProtectsLess) {
  frontend_.OpenRound();
  frontend_.OpenRound();
  Outcome outcome = RunQuery({"key-1"});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.err.find("takes 8 queries, padding included, and a round of this deployment "
                             "protects only 5"),
            std::string::npos)
      << outcome.err;
  EXPECT_TRUE(frontend_.sent.empty());
  EXPECT_EQ(RunQuery({"--over-rounds", "--accept-more", "key-1"}).code, cli::kExitUsage);
  outcome = RunQuery({"--over-rounds", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "key-1\tfound\tvalue of key-1\tyes\n");
  EXPECT_NE(
      outcome.err.find("all 8 queries of this lookup together, padding included, in 2 rounds: "
                       "nobody's odds"),
      std::string::npos)
      << outcome.err;
  frontend_.OpenRound();
  outcome = RunQuery({"--accept-more", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  // What is accepted is said before anything is sent.
  EXPECT_LT(outcome.err.find("all 8 queries of this lookup together, padding included: "),
            outcome.err.find("obtaining"))
      << outcome.err;
}

TEST_F(FiveCommandsTest, DryRunSaysTheCostAndSendsNothing) {
  frontend_.OpenRound();
  frontend_.OpenRound();
  Outcome outcome = RunQuery({"--dry-run", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitFailed) << "it would be stopped";
  outcome = RunQuery({"--dry-run", "--over-rounds", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  const std::vector<std::string> lines = absl::StrSplit(outcome.out, '\n');
  ASSERT_EQ(lines.size(), 5u) << outcome.out;
  EXPECT_EQ(lines[0], "this lookup would send 8 queries, padding included, in 2 rounds");
  EXPECT_EQ(lines[1].find("a round protects up to 5 queries of a device together"), 0u);
  EXPECT_EQ(lines[2].find("all 8 queries of this lookup together"), 0u);
  EXPECT_EQ(lines[3].find("after it, all 8 queries in 2 submissions of this device so far"), 0u);
  EXPECT_TRUE(frontend_.sent.empty());
  WriteConfig("max_epsilon: 0.2");
  outcome = RunQuery({"--dry-run", "--over-rounds", "--format", "json", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_EQ(outcome.out.find(R"({"queries":8,"rounds":2,"queries_in_each":5,"delta":1e-06,)"), 0u)
      << outcome.out;
  EXPECT_NE(outcome.err.find("max_epsilon of the configuration is 0.2"), std::string::npos)
      << outcome.err;
  outcome = RunQuery({"--over-rounds", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_TRUE(frontend_.sent.empty());
  EXPECT_EQ(RunQuery({"--engine", "simplepir", "--dry-run", "key-1"}).code, cli::kExitUsage);
}

TEST_F(CommandsTest, QueryPrintsJsonLines) {
  frontend_.OpenRound();
  const Outcome outcome =
      RunQuery({"--format", "json", "--escapes", "--quiet", "key\\x2d7", "\\xff"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out,
            R"({"key":"key-7","status":"found","value":"value of key-7","verified":true})"
            "\n"
            R"({"key_hex":"ff","status":"absent","verified":true})"
            "\n");
  EXPECT_EQ(outcome.err, "");
}

// Keys without room in their rows have a word and an exit code of their own.
TEST_F(CommandsTest, QuerySaysWhichKeysAreUnknown) {
  frontend_.NextEpoch(360, /*keep_rows=*/true);
  std::string unknown;
  for (size_t i = 0; i < 360 && unknown.empty(); ++i) {
    const std::string key = FakeFrontend::Key(i);
    const table::RowMap& map = frontend_.table().map();
    const uint64_t row = *map.RowOf(AsBytes(key));
    if (absl::IsUnavailable(map.Find(row, frontend_.table().row(row), AsBytes(key)).status())) {
      unknown = key;
    }
  }
  ASSERT_FALSE(unknown.empty());
  frontend_.OpenRound();
  const Outcome tsv = RunQuery({"no-such-key", unknown, "--quiet"});
  EXPECT_EQ(tsv.code, cli::kExitIncomplete);
  EXPECT_EQ(tsv.out, absl::StrCat("no-such-key\tabsent\t\tyes\n", unknown, "\tunknown\t\tyes\n"));
  EXPECT_EQ(tsv.err,
            "shoal query: 1 of 2 keys are not known until the next term: their rows of the table "
            "are full, and may lack them\n");
  frontend_.OpenRound();
  const Outcome json = RunQuery({"--format", "json", "--quiet", unknown});
  EXPECT_EQ(json.code, cli::kExitIncomplete);
  EXPECT_EQ(json.out,
            absl::StrCat(R"({"key":")", unknown, R"(","status":"unknown","verified":true})", "\n"));
}

TEST_F(CommandsTest, QueryReadsThousandsFromAFile) {
  frontend_.OpenRound();
  std::string keys;
  for (size_t i = 0; i < 3000; ++i) absl::StrAppend(&keys, FakeFrontend::Key(i), "\n");
  SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + "/keys", AsBytes(keys), FileMode::kPublic));
  const Outcome outcome = RunQuery({"--file", directory_ + "/keys"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  const std::vector<std::string> lines = absl::StrSplit(outcome.out, '\n');
  ASSERT_EQ(lines.size(), 3001u);
  for (size_t i = 0; i < 3000; ++i) {
    EXPECT_EQ(lines[i], i < 300 ? absl::StrCat(FakeFrontend::Key(i), "\tfound\t",
                                               FakeFrontend::Value(i), "\tyes")
                                : absl::StrCat(FakeFrontend::Key(i), "\tabsent\t\tyes"));
  }
}

TEST_F(CommandsTest, QueryWritesAFileThatIsWhole) {
  frontend_.OpenRound();
  const std::string path = directory_ + "/results";
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("earlier results"), FileMode::kPublic));
  // Interrupts the command, as a broken connection would.
  frontend_.after = [&](const std::string& name) {
    return name == "FetchAnswers" ? absl::PermissionDeniedError("no") : absl::OkStatus();
  };
  EXPECT_EQ(RunQuery({"--output", path, "key-1"}).code, cli::kExitFailed);
  EXPECT_EQ(*ReadFile(path), "earlier results");
  EXPECT_FALSE(fs::exists(path + ".part"));
  frontend_.after = nullptr;
  frontend_.OpenRound();
  // Another user has put a link to their own file where the results will be written at first.
  SHOAL_ASSERT_OK(WriteFileAtomically(path + ".theirs", BytesView(), FileMode::kPublic));
  fs::create_hard_link(path + ".theirs", path + ".part");
  const Outcome outcome = RunQuery({"--output", path, "key-1", "key-2"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(*ReadFile(path),
            "key-1\tfound\tvalue of key-1\tyes\nkey-2\tfound\tvalue of key-2\tyes\n");
  EXPECT_EQ(*ReadFile(path + ".theirs"), "");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(fs::exists(path + ".part"));
}

// After results could not be written, the next run writes them without asking again.
TEST_F(CommandsTest, QueryGivesResultsAgainThatCouldNotBeWritten) {
  const Digest round_id = frontend_.OpenRound();
  const std::string folder = directory_ + "/folder";
  fs::create_directory(folder);
  // The directory is gone when the results are there.
  frontend_.after = [&](const std::string& name) {
    if (name == "FetchAnswers") fs::remove_all(folder);
    return absl::OkStatus();
  };
  const Outcome full = RunQuery({"--output", folder + "/results", "key-1"});
  frontend_.after = nullptr;
  EXPECT_EQ(full.code, cli::kExitFailed);
  EXPECT_NE(full.err.find("/folder/results.part"), std::string::npos) << full.err;
  const size_t sent = frontend_.sent.size();
  frontend_.SetState(round_id, wire::CLOSED);
  EXPECT_EQ(RunQuery({"key-1"}).out, "key-1\tfound\tvalue of key-1\tyes\n");
  frontend_.sent.resize(sent);  // nothing was sent but the end of a connection
  EXPECT_EQ(std::count_if(frontend_.sent.begin(), frontend_.sent.end(),
                          [](const auto& request) { return request.first == "SubmitQueries"; }),
            1);
  // Once the results are written, the round is over.
  EXPECT_EQ(RunQuery({"key-1"}).code, cli::kExitFailed) << "there is no round";
  for (const auto& entry : fs::directory_iterator(directory_)) {
    EXPECT_EQ(entry.path().string().find("answers"), std::string::npos) << entry.path();
  }
}

// A mistyped directory must be found before a round is waited for and charged.
TEST_F(CommandsTest, QueryLooksWhereResultsGoBeforeItAsks) {
  frontend_.OpenRound();
  const Outcome outcome = RunQuery({"--output", directory_ + "/none/results", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.err.find("/none/results.part: No such file"), std::string::npos) << outcome.err;
  const Outcome directory = RunQuery({"--output", directory_, "key-1"});
  EXPECT_EQ(directory.code, cli::kExitFailed);
  EXPECT_NE(directory.err.find("is a directory"), std::string::npos) << directory.err;
  EXPECT_TRUE(frontend_.sent.empty());
  EXPECT_FALSE(fs::exists(directory_ + "/state")) << "nothing was begun";
}

// Lines may have any length below the limit, which is less than a megabyte.
TEST_F(CommandsTest, QueryReadsLinesOfAnyFile) {
  const std::string path = directory_ + "/keys";
  const auto write = [&](const std::string& text) {
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic));
  };
  // A line that crosses the border between two pieces that are read.
  frontend_.OpenRound();
  const std::string filler(65'530, 'x');
  write(filler + "\nkey-1\nkey-2");
  EXPECT_EQ(RunQuery({"--file", path}).out,
            filler +
                "\tabsent\t\tyes\nkey-1\tfound\tvalue of key-1\tyes\n"
                "key-2\tfound\tvalue of key-2\tyes\n");
  write("");
  EXPECT_EQ(RunQuery({"--file", path}).code, cli::kExitUsage);
  write("key-1\n" + std::string(70'000, 'x') + "\n");
  const Outcome outcome = RunQuery({"--file", path});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.err.find("keys:2: has more than 65536 bytes"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(RunQuery({"--file", directory_}).code, cli::kExitFailed);
}

// A file from another system has the keys that its editor shows. What is no key is refused before
// anything is sent: its answer would be "absent", with a proof.
TEST_F(CommandsTest, QueryReadsKeysAsTextFilesHaveThem) {
  const std::string path = directory_ + "/keys";
  const auto query = [&](const std::string& text, const std::vector<std::string>& more = {}) {
    EXPECT_TRUE(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic).ok());
    std::vector<std::string> arguments = {"--file", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunQuery(arguments);
  };
  const std::string found =
      "key-1\tfound\tvalue of key-1\tyes\nkey-2\tfound\tvalue of key-2\tyes\n";
  struct Case {
    std::string text, note;
  };
  for (const Case& c :
       {Case{"\xef\xbb\xbfkey-1\r\nkey-2\r\n",
             "keys: left out of the keys: a byte order mark and the carriage returns of 2 lines\n"},
        Case{"key-1\r\nkey-2", "keys: left out of the keys: the carriage returns of 1 line\n"},
        Case{"\xef\xbb\xbfkey-1\nkey-2\n", "keys: left out of the keys: a byte order mark\n"}}) {
    frontend_.OpenRound();
    const Outcome outcome = query(c.text);
    EXPECT_EQ(outcome.out, found);
    EXPECT_NE(outcome.err.find(c.note), std::string::npos) << outcome.err;
  }
  frontend_.OpenRound();
  EXPECT_EQ(query("key-1\nkey-2\n").err.find("left out"), std::string::npos);
  // A key that ends with a carriage return can be asked for.
  frontend_.OpenRound();
  EXPECT_EQ(query("key-1\\r\n", {"--escapes"}).out, "key-1\\r\tabsent\t\tyes\n");
  frontend_.sent.clear();
  for (const Case& c :
       {Case{"\nkey-1\n", "keys:1: the line is blank"},
        Case{"key-1\n\n", "keys:2: the line is blank"},
        Case{"key-1\r\n\r\nkey-2", "keys:2: the line is blank"},
        Case{"key-1\n\r\r\n", "keys:2: the line is blank"},
        Case{"key-1\n \t\n", "keys:2: the line is blank"},
        Case{std::string("\xff\xfek\0\n\0", 6), "keys:1: the text is UTF-16"},
        // UTF-16 of both orders without a mark, and UTF-32.
        Case{std::string("k\0001\0\n\0", 6), "keys:1: the key has a NUL byte"},
        Case{std::string("\0k\0001\0\n", 6), "keys:1: the key has a NUL byte"},
        Case{std::string("k\0\0\0\n\0\0\0", 8), "keys:1: the key has a NUL byte"},
        Case{std::string("\0\n", 2), "keys:1: the key has a NUL byte"},
        Case{std::string("key-1\nkey\0002\n", 12), "keys:2: the key has a NUL byte"},
        // UTF-16 of Chinese, and Latin-1: the byte is named.
        Case{"\x97\x67\x57\x5b", "\\x97 is the byte"},
        Case{"key-1\nM\xfcller\n", "keys:2: the key is not UTF-8"},
        Case{"key-1 \n", "keys:1: the key ends with a blank"},
        Case{" key-1\n", "keys:1: the key begins with a blank"},
        Case{"key-1\xc2\xa0\r\n", "keys:1: the key ends with a blank"},
        Case{"key-1\tvalue\n", "keys:1: the key has \\t, which nobody sees"},
        Case{"key-1\rkey-2\n", "keys:1: the key has \\r, which nobody sees"},
        Case{"key-1\n\xef\xbb\xbfkey-2\n", "keys:2: the key has \\xef\\xbb\\xbf"},
        Case{"key\xe2\x80\x8b-1\n", "keys:1: the key has \\xe2\\x80\\x8b"},
        Case{"key-1\xe2\x80\xac", "keys:1: the key has \\xe2\\x80\\xac"},
        Case{"key-1\x1b\n", "keys:1: the key has \\x1b"},
        Case{"key\xc2\xad-1\n", "keys:1: the key has \\xc2\\xad"}}) {
    for (const bool escapes : {false, true}) {
      const Outcome outcome = escapes ? query(c.text, {"--escapes"}) : query(c.text);
      EXPECT_EQ(outcome.code, cli::kExitFailed) << c.note;
      EXPECT_NE(outcome.err.find(c.note), std::string::npos) << outcome.err;
    }
    // From standard input too, and one of the same on the command line.
    EXPECT_EQ(RunQuery({"--file", "-"}, c.text).code, cli::kExitFailed) << c.note;
  }
  for (const char* word : {"key-1 ", "\tkey-1", "key-1\r", "key-1\n", "M\xfcller",
                           "\xef\xbb\xbfkey-1", "key-1\xe2\x80\x8f"}) {
    const Outcome outcome = RunQuery({word});
    EXPECT_EQ(outcome.code, cli::kExitFailed) << Printable(word);
    EXPECT_NE(outcome.err.find("on the command line: the key "), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(RunQuery({"key-1", ""}).code, cli::kExitFailed);
  EXPECT_TRUE(frontend_.sent.empty());
  // What scripts and emoji need is a key, and so is one whose accents stand apart, with a word.
  frontend_.OpenRound();
  const Outcome taken = query(
      "\xe2\x9d\xa4\xef\xb8\x8f\n\xd9\x85\xdb\x8c\xe2\x80\x8c\xd8\xae\nMu\xcc\x88ller\nM\xc3\xbclle"
      "r\n");
  EXPECT_EQ(taken.code, cli::kExitOk) << taken.err;
  EXPECT_NE(taken.err.find("1 key has accents apart from their letters (NFD"), std::string::npos)
      << taken.err;
}

// A pipe can be read only once, so it is read once.
TEST_F(CommandsTest, QueryReadsAPipe) {
  frontend_.OpenRound();
  const std::string path = directory_ + "/pipe";
  ASSERT_EQ(0, ::mkfifo(path.c_str(), 0600));
  std::thread writer([&] { std::ofstream(path) << "key-3\nkey-4\n"; });
  EXPECT_EQ(RunQuery({"--file", path}).out,
            "key-3\tfound\tvalue of key-3\tyes\nkey-4\tfound\tvalue of key-4\tyes\n");
  writer.join();
}

// What has no end is not read until memory is full.
TEST_F(CommandsTest, QueryReadsNoDevices) {
  for (const char* device : {"/dev/zero", "/dev/null", "/dev/urandom"}) {
    const Outcome outcome = RunQuery({"--file", device});
    EXPECT_EQ(outcome.code, cli::kExitFailed) << device;
    EXPECT_NE(outcome.err.find(absl::StrCat(device, ": is no regular file and no pipe")),
              std::string::npos)
        << outcome.err;
  }
  // A pipe is refused at the first line that is no key, while its writer still holds it open.
  terminal_ = true;
  const std::string path = directory_ + "/endless";
  ASSERT_EQ(0, ::mkfifo(path.c_str(), 0600));
  std::signal(SIGPIPE, SIG_IGN);
  uint64_t written = 0;
  std::thread writer([&] {
    std::ofstream out(path);
    const std::string piece(1 << 16, 'x');
    while (written < (uint64_t{1} << 28) && out.write(piece.data(), 1 << 16).flush()) {
      written += piece.size();
    }
  });
  const Outcome outcome = RunQuery({"--file", path});
  writer.join();
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.err.find("endless is a pipe: waiting"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("endless:1: has more than 65536 bytes"), std::string::npos)
      << outcome.err;
  EXPECT_LT(written, uint64_t{1} << 20);
}

TEST_F(CommandsTest, QueryNoticesThatTheKeysHaveChanged) {
  frontend_.OpenRound();
  const std::string path = directory_ + "/keys";
  SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes("key-1\nkey-2\n"), FileMode::kPublic));
  frontend_.after = [&](const std::string& name) {
    if (name == "FetchAnswers") {
      EXPECT_TRUE(WriteFileAtomically(path, AsBytes("key-1\nkey-250\n"), FileMode::kPublic).ok());
    }
    return absl::OkStatus();
  };
  const Outcome changed = RunQuery({"--file", path});
  EXPECT_EQ(changed.code, cli::kExitFailed);
  EXPECT_NE(changed.err.find("key 2: was not among the keys"), std::string::npos) << changed.err;
  EXPECT_EQ(changed.out.find("key-250"), std::string::npos);
  frontend_.after = nullptr;
  EXPECT_EQ(RunQuery({"key-1", "key-2"}).out,
            "key-1\tfound\tvalue of key-1\tyes\nkey-2\tfound\tvalue of key-2\tyes\n")
      << "its answers are there still";
}

TEST_F(CommandsTest, QueryDrawsBarsOnATerminal) {
  frontend_.OpenRound();
  terminal_ = true;
  std::string keys;
  for (size_t i = 0; i < 300; ++i) absl::StrAppend(&keys, FakeFrontend::Key(i), "\n");
  const Outcome outcome = RunQuery({"--file", "-"}, keys);
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  for (const std::string stage :
       {"obtaining slots", "sending queries", "fetching answers", "verifying", "writing results"}) {
    EXPECT_NE(outcome.err.find("\r" + stage + "  ["), std::string::npos) << stage;
  }
  EXPECT_EQ(outcome.err.find("key-"), std::string::npos);
}

TEST_F(CommandsTest, SimulateTakesKeysByTheirNumber) {
  frontend_.OpenRound();
  EXPECT_EQ(Run({"simulate", "--config", ConfigPath()}).code, cli::kExitUsage);
  EXPECT_EQ(
      Run({"simulate", "--config", ConfigPath(), "--dense-keys", "10", "--queries", "0"}).code,
      cli::kExitUsage);
  // The fake table is hashed, so that any bytes are a key; these keys are absent.
  const Outcome outcome = Run({"simulate", "--config", ConfigPath(), "--dense-keys", "1k",
                               "--queries", "50", "--devices", "7", "--apps", "all", "--zipf", "0",
                               "--share-connections", "--verify", "distinct", "--format", "json"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_NE(outcome.out.find(R"("queries":50,)"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(R"("answers_correct":50,)"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find(R"("keys_absent":50,)"), std::string::npos) << outcome.out;
}

TEST_F(CommandsTest, QueryEndsWithItsOwnCodeWhenAnAnswerIsWrong) {
  frontend_.OpenRound();
  frontend_.spoil = [](uint32_t, MutableBytes answer) { answer[0] ^= 1; };
  const Outcome outcome = RunQuery({"--format", "json", "key-1"});
  EXPECT_EQ(outcome.code, cli::kExitVerification);
  EXPECT_NE(outcome.out.find(R"("status":"failed","verified":false,"error":)"), std::string::npos)
      << outcome.out;
  EXPECT_EQ(outcome.out.find("value\""), std::string::npos);
  EXPECT_NE(outcome.err.find("1 of 1 keys"), std::string::npos);
}

TEST_F(CommandsTest, QuerySaysWhatIsWrongWithItsUse) {
  EXPECT_EQ(RunQuery({}).code, cli::kExitUsage);
  EXPECT_EQ(RunQuery({"--format", "xml", "a"}).code, cli::kExitUsage);
  EXPECT_EQ(RunQuery({"--obtain", "8", "a"}).code, cli::kExitUsage);
  EXPECT_EQ(RunQuery({"--obtain", "0"}).code, cli::kExitUsage);
  EXPECT_EQ(RunQuery({"--obtain", "-5"}).code, cli::kExitUsage);
  const Outcome padded = RunQuery({"--pad", "8", "a"});
  EXPECT_EQ(padded.code, cli::kExitUsage);
  EXPECT_NE(padded.err.find("--pad goes with --engine"), std::string::npos) << padded.err;
  EXPECT_EQ(Run({"query", "a"}).code, cli::kExitUsage);
  EXPECT_EQ(RunQuery({"--escapes", "a\\q"}).code, cli::kExitFailed);
  EXPECT_EQ(RunQuery({"--file", directory_ + "/none"}).code, cli::kExitFailed);
  EXPECT_EQ(RunQuery({"a"}).code, cli::kExitFailed) << "there is no round";
}

TEST_F(CommandsTest, QueryObtainsSlotsAhead) {
  frontend_.OpenRound();
  const Outcome outcome = RunQuery({"--obtain", "8"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "round\t1\nslots\t8\n");
  const size_t sent = frontend_.sent.size();
  EXPECT_EQ(RunQuery({"key-1"}).out, "key-1\tfound\tvalue of key-1\tyes\n");
  EXPECT_EQ(frontend_.sent.size(), sent + 2) << "queries and answers, no onions";
}

TEST_F(CommandsTest, QueryWarnsAboutAnOldState) {
  frontend_.OpenRound();
  EXPECT_EQ(RunQuery({"--obtain", "8"}).code, cli::kExitOk);
  fs::remove(directory_ + "/state.guard");
  const Outcome outcome = RunQuery({"key-1"});
  EXPECT_NE(outcome.err.find("state is a copy; gave up the slots of 1 rounds"), std::string::npos)
      << outcome.err;
}

// What a copy lacks is in memory: the ledger does not go back with it. After a restart of the
// machine it may have, and everything that shows it says so.
TEST_F(CommandsTest, ALedgerThatMayLackSomethingSaysSo) {
  for (int i = 0; i < 4; ++i) frontend_.OpenRound();
  EXPECT_EQ(RunQuery({"key-1"}).code, cli::kExitOk);
  const std::string old = directory_ + "/old";
  for (const std::string name : {"state", "state.guard"}) {
    fs::copy_file(directory_ + "/" + name, old + name);
  }
  EXPECT_EQ(RunQuery({"key-2"}).code, cli::kExitOk);
  for (const std::string name : {"state", "state.guard"}) {
    fs::copy_file(old + name, directory_ + "/" + name, fs::copy_options::overwrite_existing);
  }
  const std::vector<std::string> status = {"status", "--config", ConfigPath()};
  const std::string two = "all 16 queries in 2 submissions of this device so far";
  EXPECT_NE(Run(status).out.find(two), std::string::npos) << Run(status).out;
  EXPECT_EQ(Run(status).out.find("; or more: "), std::string::npos);

  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string guard, ReadFile(directory_ + "/state.guard"));
  const std::string anchor = absl::StrCat(client::AnchorDirectory::OfThisMachine().directory(), "/",
                                          Hex(AsBytes(guard).first(sizeof(client::AnchorId))));
  EXPECT_TRUE(fs::remove(anchor)) << anchor;
  const std::string one = "all 8 queries in 1 submission of this device so far";
  const std::string doubt = "; or more: 1 time the state could have been an old copy";
  EXPECT_NE(Run(status).out.find(one), std::string::npos) << Run(status).out;
  EXPECT_NE(Run(status).out.find(doubt), std::string::npos) << Run(status).out;
  const Outcome query = RunQuery({"key-3"});
  EXPECT_NE(query.err.find("nothing is given up"), std::string::npos) << query.err;
  EXPECT_NE(query.err.find(two), std::string::npos) << query.err;
  EXPECT_NE(query.err.find(doubt), std::string::npos) << query.err;
  EXPECT_NE(Run(status).out.find(doubt), std::string::npos) << "for ever";
  const Outcome json = Run({"status", "--config", ConfigPath(), "--format", "json"});
  EXPECT_NE(json.out.find(R"("idle_rounds":0,"doubts":1,)"), std::string::npos) << json.out;
}

// A client that got its answer ends well, whatever became of the rounds before.
TEST_F(CommandsTest, QueryGoesOnWhenItsRoundEndsAfterTheCharge) {
  const Digest first = frontend_.OpenRound();
  frontend_.OpenRound();
  frontend_.reach = [first](const Digest& round, wire::RoundState wanted) {
    return round == first && wanted == wire::ANSWERED ? wire::CLOSED : wanted;
  };
  const Outcome outcome = RunQuery({"key-1"});
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_EQ(outcome.out, "key-1\tfound\tvalue of key-1\tyes\n");
  EXPECT_NE(outcome.err.find("round 1 was closed before its answers were fetched; asking in "
                             "another round"),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("all 16 queries in 2 submissions of this device so far"),
            std::string::npos)
      << outcome.err;
}

TEST_F(CommandsTest, StatusShowsRoundsAndLedger) {
  const Digest first = frontend_.OpenRound();
  RunQuery({"key-1"});
  frontend_.SetState(first, wire::CLOSED);
  frontend_.OpenRound();
  const Outcome table = Run({"status", "--config", ConfigPath()});
  EXPECT_EQ(table.code, cli::kExitOk) << table.err;
  EXPECT_NE(table.out.find("open for onions"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("onions close in"), std::string::npos);
  EXPECT_NE(table.out.find("ledger: all 8 queries in 1 submission of this device"),
            std::string::npos);
  const Outcome json = Run({"status", "--config", ConfigPath(), "--format", "json"});
  EXPECT_EQ(json.code, cli::kExitOk) << json.err;
  EXPECT_NE(json.out.find(R"("state":"open for onions")"), std::string::npos) << json.out;
  EXPECT_NE(json.out.find(R"("ledger":{"submissions":1,"queries":8,"idle_rounds":0,)"
                          R"("doubts":0,"epsilon":5.71)"),
            std::string::npos)
      << json.out;
}

TEST_F(CommandsTest, StatusShowsWhatIsAliveFirst) {
  for (const wire::RoundState state :
       {wire::ABORTED, wire::CLOSED, wire::ABORTED, wire::OPEN_FOR_ONIONS, wire::CLOSED,
        wire::ABORTED, wire::CLOSED}) {
    frontend_.SetState(frontend_.OpenRound(), state);
  }
  const Outcome table = Run({"status", "--config", ConfigPath()});
  EXPECT_LT(table.out.find("open for onions"), table.out.find("aborted")) << table.out;
  EXPECT_LT(table.out.find("open for onions"), table.out.find("closed")) << table.out;
}

TEST_F(CommandsTest, StatusShowsTerms) {
  EXPECT_EQ(Run({"status", "--config", ConfigPath()}).out.find("term of"), std::string::npos);
  wire::TermReport term;
  term.set_counter(17);
  term.set_max_refreshes(31);
  term.set_term_expires_s(4'000'000'000);
  term.set_positions(1234);
  frontend_.terms.push_back(term);
  term.set_counter(18);
  term.set_number(5);
  term.set_epoch(9);
  term.set_age_s(3600);
  term.set_problem("UNAVAILABLE: party 2\x1b is away");
  frontend_.terms.push_back(term);
  const Outcome table = Run({"status", "--config", ConfigPath()});
  EXPECT_EQ(table.code, cli::kExitOk) << table.err;
  for (const char* part : {"term of", "1,234", "0/31", "5/31", "UNAVAILABLE: party 2"}) {
    EXPECT_NE(table.out.find(part), std::string::npos) << part << "\n" << table.out;
  }
  EXPECT_EQ(table.out.find('\x1b'), std::string::npos);
  const Outcome json = Run({"status", "--config", ConfigPath(), "--format", "json"});
  EXPECT_EQ(json.code, cli::kExitOk) << json.err;
  EXPECT_NE(
      json.out.find(
          R"("terms":[{"round":17,"max_refreshes":31,"term_expires_s":4000000000,)"
          R"("positions":1234,"refresh":0,"table_epoch":0,"age_s":0,"refresh_ms":0,"stages":[]},)"
          R"({"round":18,)"),
      std::string::npos)
      << json.out;
}

// A state of every party that nothing is wrong with, as the frontend says.
std::vector<wire::PartyState> HealthyParties(FakeFrontend& frontend) {
  std::vector<wire::PartyState> states;
  for (const roster::Party& party : frontend.roster().parties()) {
    wire::PartyState state;
    state.set_party(party.number);
    state.set_version("0.3.0");
    state.set_roster_epoch(frontend.roster().epoch());
    state.set_table_epoch(frontend.table().manifest().epoch());
    state.set_rounds(2);
    state.set_max_rounds(16);
    state.set_roster_expires_s(frontend.roster().expires_s());
    state.set_table_expires_s(frontend.table().manifest().content().expires_s());
    state.set_certificate_expires_s(4'000'000'000);
    states.push_back(state);
  }
  return states;
}

TEST_F(CommandsTest, StatusTellsAtAGlanceWhetherTheChainIsHealthy) {
  const std::vector<std::string> command = {"status", "--config", ConfigPath(), "--parties"};
  Outcome outcome = Run(command);
  EXPECT_EQ(outcome.code, cli::kExitFailed) << "an older frontend";
  EXPECT_NE(outcome.err.find("does not say how the parties are"), std::string::npos) << outcome.err;

  const std::vector<wire::PartyState> healthy = HealthyParties(frontend_);
  frontend_.parties = healthy;
  outcome = Run(command);
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_NE(outcome.out.find("the chain is healthy\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("0.3.0"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("2/16"), std::string::npos) << outcome.out;

  const struct {
    const char* told;
    std::function<void(wire::PartyState&)> spoil;
  } faults[] = {
      {"missing: reaching party 2", [](auto& p) { p.set_problem("reaching party 2: \x1b[2J"); }},
      {"has roster 99", [](auto& p) { p.set_roster_epoch(99); }},
      {"has epoch 99 of the table", [](auto& p) { p.set_table_epoch(99); }},
      {"expired", [](auto& p) { p.set_table_expires_s(1); }},
      {"expired", [](auto& p) { p.set_roster_expires_s(1); }},
      {"its clock differs from the frontend's by 99999 s",
       [](auto& p) { p.set_clock_offset_s(99999); }},
      {"by -99999 s", [](auto& p) { p.set_clock_offset_s(-99999); }},
      {"holds 16 rounds", [](auto& p) { p.set_rounds(16); }},
      {"its own health check fails", [](auto& p) { p.set_unwell(true); }},
      {"another party's state", [](auto& p) { p.set_party(3); }},
  };
  for (const auto& fault : faults) {
    frontend_.parties = healthy;
    fault.spoil(frontend_.parties[1]);
    outcome = Run(command);
    EXPECT_EQ(outcome.code, cli::kExitFailed) << fault.told;
    EXPECT_NE(outcome.err.find("the chain is not healthy: party 2: "), std::string::npos)
        << outcome.err;
    EXPECT_NE(outcome.err.find(fault.told), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out.find("the chain is healthy"), std::string::npos);
    EXPECT_EQ((outcome.out + outcome.err).find('\x1b'), std::string::npos) << "for terminals";
  }
  frontend_.parties = healthy;
  frontend_.parties_age_s = 61;
  EXPECT_EQ(Run(command).code, cli::kExitFailed) << "heard of too long ago";
}

TEST_F(CommandsTest, StatusOfThePartiesAsJson) {
  frontend_.parties = HealthyParties(frontend_);
  frontend_.parties[2].Clear();
  frontend_.parties[2].set_party(3);
  frontend_.parties[2].set_problem("reaching party 3: refused");
  const Outcome outcome =
      Run({"status", "--config", ConfigPath(), "--parties", "--format", "json"});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.out.find(R"("healthy":false,"parties":[{"party":1,)"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find(R"("healthy":true,"version":"0.3.0",)"), std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find(R"("fault":"missing: reaching party 3: refused"})"), std::string::npos)
      << outcome.out;
}

TEST_F(CommandsTest, WhoWaitsSeesTheSecondsOnATerminal) {
  frontend_.OpenRound();
  Outcome outcome = RunQuery({"key-1"});
  EXPECT_EQ(outcome.err.find(" s left"), std::string::npos) << outcome.err;
  terminal_ = true;
  frontend_.OpenRound();
  outcome = RunQuery({"key-1"});
  EXPECT_NE(outcome.err.find(" to take queries  "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(" s left"), std::string::npos) << outcome.err;
}

TEST_F(CommandsTest, StatusBelievesNoOtherDeployment) {
  FakeFrontend other({.seed = 2, .now_s = SystemClock().NowSeconds()});
  frontend_.deployment = other.deployment;
  EXPECT_EQ(Run({"status", "--config", ConfigPath()}).code, cli::kExitVerification);
}

// That nothing is known to be installed does not mean that nothing is out of date.
TEST_F(CommandsTest, UpdatesOfNothingAreIncomplete) {
  const std::string path = directory_ + "/status";
  for (const char* text :
       {"", "Package: a\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 1\n"}) {
    SHOAL_ASSERT_OK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic));
    const Outcome outcome = Run({"updates", "--config", ConfigPath(), "--installed", path});
    EXPECT_EQ(outcome.code, cli::kExitIncomplete) << outcome.err;
    EXPECT_NE(outcome.err.find(path + ": names no installed packages"), std::string::npos)
        << outcome.err;
  }
}

TEST_F(CommandsTest, SimulateChecksACrowd) {
  frontend_.OpenRound();
  SHOAL_ASSERT_OK(frontend_.table().content().Save(directory_ + "/table"));
  const std::vector<std::string> arguments = {
      "simulate", "--config", ConfigPath(), "--table", directory_ + "/table", "--devices", "5",
      "--apps",   "2-6",      "--absent",   "0.3",     "--connections",       "2"};
  const Outcome outcome = Run(arguments);
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  for (const char* line :
       {"devices\t5\n", "queries\t40\n", "answers_correct\t40\n", "answers_wrong\t0\n",
        "answers_failed\t0\n", "keys_failed\t0\n", "answers_compared_with_table\t1\n",
        "seconds_wait_online\t", "engine\tchain\n", "cost_hint_bytes\t0\n", "cost_query_bytes\t",
        "cost_query_seconds\t", "latency_seconds_p99\t"}) {
    EXPECT_NE(outcome.out.find(line), std::string::npos) << line << outcome.out;
  }
  EXPECT_FALSE(FileExists(directory_ + "/state")) << "a crowd leaves the client's state alone";

  frontend_.OpenRound();
  frontend_.spoil = [](uint32_t, MutableBytes answer) { answer[0] ^= 1; };
  std::vector<std::string> json = arguments;
  json.insert(json.end(), {"--format", "json"});
  const Outcome spoiled = Run(json);
  EXPECT_EQ(spoiled.code, cli::kExitVerification) << spoiled.err;
  EXPECT_NE(spoiled.out.find(R"("answers_failed":40)"), std::string::npos) << spoiled.out;
}

TEST_F(CommandsTest, WatchRunsNoCommandThatIsNone) {
  for (const char* command : {"", " "}) {
    const Outcome outcome =
        Run({"watch", "--config", ConfigPath(), "--wait", "1", "--exec", command, "key-1"});
    EXPECT_EQ(outcome.code, cli::kExitUsage);
    EXPECT_NE(outcome.err.find("--exec: which command?"), std::string::npos) << outcome.err;
  }
}

TEST_F(CommandsTest, SimulateSaysWhatIsWrongWithItsUse) {
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"simulate", "--config", ConfigPath()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments).code;
  };
  SHOAL_ASSERT_OK(frontend_.table().content().Save(directory_ + "/table"));
  const std::string table = directory_ + "/table";
  EXPECT_EQ(run({}), cli::kExitUsage);
  EXPECT_EQ(run({"--table", table, "--apps", "5-x"}), cli::kExitUsage);
  EXPECT_EQ(run({"--table", table, "--apps", "1-2-3"}), cli::kExitUsage);
  EXPECT_EQ(run({"--table", table, "--apps", "9"}), cli::kExitUsage) << "do not fit 8 queries";
  EXPECT_EQ(run({"--table", table, "--apps", "2", "--zipf", "much"}), cli::kExitUsage);
  EXPECT_EQ(run({"--table", table, "--apps", "2", "--devices", "0"}), cli::kExitUsage);
  EXPECT_EQ(run({"--table", table, "--apps", "2", "--verify", "none"}), cli::kExitUsage);
  EXPECT_EQ(run({"--table", table + "x", "--apps", "2"}), cli::kExitFailed);
  EXPECT_EQ(run({"--table", table, "--apps", "2", "--engine", "triplepir"}), cli::kExitUsage);
  // The chain's frontend has no such engine.
  EXPECT_EQ(run({"--table", table, "--apps", "2", "--engine", "simplepir"}), cli::kExitFailed);
}

TEST_F(CommandsTest, ConfigErrorsNameTheField) {
  const auto with = [&](const std::string& text) {
    SHOAL_CHECK(WriteFileAtomically(ConfigPath(), AsBytes(text), FileMode::kPublic).ok());
    return client::ReadConfig(ConfigPath()).status();
  };
  const std::string pins = "pinned_parties_file: 'pins.textproto' ";
  EXPECT_THAT(with("frontend: 'host' state: 's' " + pins),
              StatusIs(absl::StatusCode::kInvalidArgument, "frontend"));
  EXPECT_THAT(with("frontend: 'h:1' " + pins),
              StatusIs(absl::StatusCode::kInvalidArgument, "state"));
  EXPECT_THAT(with("frontend: 'h:1' state: 's'"),
              StatusIs(absl::StatusCode::kInvalidArgument, "pinned_parties"));
  EXPECT_THAT(with("frontend: 'h:1' state: 's' pad_to: 16777217 " + pins),
              StatusIs(absl::StatusCode::kInvalidArgument, "pad_to"));
  EXPECT_THAT(with("frontend: 'h:1' state: 's' max_attempts: 11 " + pins),
              StatusIs(absl::StatusCode::kInvalidArgument, "max_attempts"));
  EXPECT_THAT(with("frontend: 'h:1' no_such_field: 3"),
              StatusIs(absl::StatusCode::kInvalidArgument, "client.textproto:1"));
  EXPECT_THAT(with("frontend: 'h:1' state: 's' pinned_parties_file: 'none'"),
              StatusIs(absl::StatusCode::kNotFound, "none"));
  SHOAL_EXPECT_OK(with("frontend: 'h:1' state: 's' " + pins));
}

// The user's own places, which commands use without --config.
class InitTest : public CommandsTest {
 protected:
  explicit InitTest(bool protects_five = false) : CommandsTest(protects_five) {
    ::setenv("XDG_STATE_HOME", (directory_ + "/var").c_str(), 1);
    ::unsetenv("SHOAL_CONFIG");
  }
  ~InitTest() override {
    ::unsetenv("XDG_STATE_HOME");
    ::unsetenv("SHOAL_CONFIG");
  }
  Outcome RunInit(std::vector<std::string> more = {}, const std::string& input = "") {
    std::vector<std::string> arguments = {"init", "localhost:7000", "--pins",
                                          directory_ + "/pins.textproto"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments, input);
  }
  std::string Own() const { return directory_ + "/etc/shoal/client.textproto"; }
};
class FiveInitTest : public InitTest {
 protected:
  FiveInitTest() : InitTest(/*protects_five=*/true) {}
};

TEST_F(InitTest, AfterItNoCommandNeedsAConfiguration) {
  Outcome outcome = Run({"status"});
  EXPECT_EQ(outcome.code, cli::kExitUsage);
  EXPECT_NE(outcome.err.find("shoal init FRONTEND --pins FILE"), std::string::npos) << outcome.err;
  outcome = RunInit();
  ASSERT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  // Whom one trusts: each party by its name and key, and all of them together.
  for (const roster::Party& party : frontend_.roster().parties()) {
    EXPECT_NE(outcome.out.find(party.name), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find(roster::KeyFingerprint(party.key.bytes())), std::string::npos);
  }
  EXPECT_NE(outcome.out.find(roster::PinsFingerprint(frontend_.pins())), std::string::npos);
  // What that protects, and no more.
  EXPECT_NE(
      outcome.out.find("a round protects single lookups, any one query of a device by itself"),
      std::string::npos)
      << outcome.out;
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::Config config, client::ReadConfig(Own()));
  EXPECT_EQ(config.frontend, "localhost:7000");
  EXPECT_EQ(config.state_path, directory_ + "/var/shoal/fake.state");
  EXPECT_EQ(config.pins.digest(), frontend_.pins().digest());
  EXPECT_EQ(fs::status(directory_ + "/var/shoal").permissions(), fs::perms::owner_all);
  frontend_.OpenRound();
  outcome = Run({"query", "key-5"});
  EXPECT_EQ(outcome.out, "key-5\tfound\tvalue of key-5\tyes\n") << outcome.err;
  EXPECT_EQ(Run({"status"}).code, cli::kExitOk);
}

// Where a round protects five queries together, a padding of 64 would stop every lookup.
TEST_F(FiveInitTest, ThePaddingIsWhatARoundProtects) {
  const Outcome outcome = RunInit();
  ASSERT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  SHOAL_ASSERT_OK_AND_ASSIGN(const client::Config config, client::ReadConfig(Own()));
  EXPECT_EQ(config.options.pad_to, 5u);
  frontend_.OpenRound();
  EXPECT_EQ(Run({"query", "key-5"}).code, cli::kExitOk);
}

// --config, then the environment, then the user's own.
TEST_F(InitTest, TheOrderOfConfigurations) {
  ASSERT_EQ(RunInit().code, cli::kExitOk);
  ::setenv("SHOAL_CONFIG", (directory_ + "/none").c_str(), 1);
  Outcome outcome = Run({"status"});
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.err.find(directory_ + "/none"), std::string::npos) << outcome.err;
  EXPECT_EQ(Run({"status", "--config", ConfigPath()}).code, cli::kExitOk);
  EXPECT_NE(RunInit().err.find("SHOAL_CONFIG is set"), std::string::npos);
  ::setenv("SHOAL_CONFIG", "", 1);
  EXPECT_EQ(Run({"status"}).code, cli::kExitOk);
  EXPECT_EQ(Run({"status", "--config", ""}).code, cli::kExitUsage);
}

TEST_F(InitTest, NothingIsReplacedUnasked) {
  ASSERT_EQ(RunInit().code, cli::kExitOk);
  // The same again changes nothing, also what the user has changed.
  const std::string changed = *ReadFile(Own()) + "max_epsilon: 3\n";
  SHOAL_ASSERT_OK(WriteFileAtomically(Own(), AsBytes(changed), FileMode::kPublic));
  Outcome outcome = RunInit();
  EXPECT_EQ(outcome.code, cli::kExitOk) << outcome.err;
  EXPECT_NE(outcome.out.find("says so already"), std::string::npos) << outcome.out;
  EXPECT_EQ(*ReadFile(Own()), changed);
  // Another state, or a file that is not understood, is another configuration.
  const std::vector<std::string> other = {"--state", directory_ + "/other.state"};
  outcome = RunInit(other);
  EXPECT_EQ(outcome.code, cli::kExitFailed);
  EXPECT_NE(outcome.err.find("of the deployment \"fake\" at localhost:7000. --force replaces it"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(*ReadFile(Own()), changed);
  terminal_ = true;
  for (const char* answer : {"", "n\n", "what\n"}) {
    EXPECT_EQ(RunInit(other, answer).code, cli::kExitFailed);
    EXPECT_EQ(*ReadFile(Own()), changed);
  }
  EXPECT_EQ(RunInit(other, "y\n").code, cli::kExitOk);
  SHOAL_ASSERT_OK_AND_ASSIGN(client::Config config, client::ReadConfig(Own()));
  EXPECT_EQ(config.state_path, directory_ + "/other.state");
  terminal_ = false;
  SHOAL_ASSERT_OK(WriteFileAtomically(Own(), AsBytes("garbage"), FileMode::kPublic));
  EXPECT_EQ(RunInit().code, cli::kExitFailed);
  EXPECT_EQ(RunInit({"--force"}).code, cli::kExitOk);
  SHOAL_EXPECT_OK(client::ReadConfig(Own()));
}

// Every error says what was found, and leaves nothing behind.
TEST_F(InitTest, WhatDoesNotFitIsNotWritten) {
  const std::string pins = directory_ + "/pins.textproto";
  const std::string good = *ReadFile(pins);
  const auto refused = [&](const std::string& text, cli::ExitCode code, const std::string& part) {
    SHOAL_CHECK(WriteFileAtomically(pins, AsBytes(text), FileMode::kPublic).ok());
    const Outcome outcome = RunInit();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(directory_ + "/etc"));
    EXPECT_FALSE(fs::exists(directory_ + "/var"));
  };
  refused(absl::StrReplaceAll(good, {{"\"fake\"", "\"other\""}}), cli::kExitVerification,
          "of another deployment, \"fake\", than the pins, which are of \"other\"");
  FakeFrontend anew({.seed = 9, .now_s = SystemClock().NowSeconds()});
  refused(wire::PrintText(*roster::PinsOf(anew.roster().wire().roster())), cli::kExitVerification,
          "no party has its pinned key: this is another deployment");
  refused(wire::PrintText(frontend_.roster().wire()), cli::kExitFailed, "is a roster, and no pins");
  refused("garbage", cli::kExitFailed, "pins.textproto:1");
  refused("", cli::kExitFailed, "deployment");
  frontend_.before = [](const std::string&) { return absl::UnavailableError("nobody there"); };
  refused(good, cli::kExitFailed, "nobody there. Is localhost:7000 the client_address");
  frontend_.before = nullptr;
  frontend_.deployment.mutable_roster()->mutable_roster()->set_max_slots(7);
  refused(good, cli::kExitVerification, "roster");
  EXPECT_EQ(Run({"init", "--pins", pins}).code, cli::kExitUsage);
  EXPECT_EQ(Run({"init", "localhost:7000"}).code, cli::kExitUsage);
}

// configs/client.textproto is complete but for the file with the pins, which every deployment makes
// for itself.
TEST(ClientConfig, TheSampleIsValid) {
  EXPECT_THAT(client::ReadConfig("configs/client.textproto"),
              StatusIs(absl::StatusCode::kNotFound, "configs/pinned.textproto"));
}

}  // namespace
}  // namespace shoal::commands
