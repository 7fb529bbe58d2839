// `shoal audit` against a frontend in this process, with a table of hand-written OSV records.
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/audit/json.h"
#include "src/audit/osv.h"
#include "src/base/clock.h"
#include "src/base/testing/matchers.h"
#include "src/client/testing/fake_frontend.h"
#include "src/shoal/lookup_commands.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

namespace fs = std::filesystem;
using client::testing::FakeFrontend;

std::vector<std::pair<std::string, Bytes>> Advisories() {
  audit::OsvRecords records;
  for (const char* json :
       {R"({"id":"PYSEC-2021-98","modified":"2021-06-05T00:00:00Z","aliases":["CVE-2021-31542"],
            "affected":[{"package":{"ecosystem":"PyPI","name":"django"},"ranges":[{"type":
            "ECOSYSTEM","events":[{"introduced":"2.2"},{"fixed":"2.2.21"},{"introduced":"3.0"},
            {"fixed":"3.1.9"},{"introduced":"3.2"},{"fixed":"3.2.1"}]}]}]})",
        R"({"id":"GHSA-35jh-r3h4-6jhm","modified":"2021-05-06T00:00:00Z","aliases":
            ["CVE-2021-23337"],"affected":[{"package":{"ecosystem":"npm","name":"lodash"},
            "ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"4.17.21"}]}]}]})"}) {
    SHOAL_CHECK(records.Add(json, "test").ok());
  }
  const auto set = records.Finish(200);
  SHOAL_CHECK(set.ok());
  std::vector<std::pair<std::string, Bytes>> content;
  for (size_t i = 0; i < set->size(); ++i) {
    content.emplace_back(ToString(set->key(i)), ToBytes(set->value(i)));
  }
  // So that the table has many rows.
  for (int i = 0; i < 60; ++i) content.emplace_back(absl::StrCat("filler/", i), Bytes(40, 7));
  return content;
}

class AuditCommandTest : public ::testing::Test {
 protected:
  AuditCommandTest()
      : frontend_({.records = 0,
                   .content = Advisories(),
                   .table_name = "advisories",
                   .now_s = SystemClock().NowSeconds()}) {
    std::string name = ::testing::TempDir() + "/audit.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    const auto pins = roster::PinsOf(frontend_.roster().wire().roster());
    SHOAL_CHECK(pins.ok());
    SHOAL_CHECK(wire::WriteTextFile(directory_ + "/pins", *pins).ok());
    Write(
        "client",
        "frontend: \"h:1\" pinned_parties_file: \"pins\" state: \"state\" pad_to: 8 timeout_s: 1");
  }
  ~AuditCommandTest() override { fs::remove_all(directory_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(directory_, "/", name);
    SHOAL_CHECK(WriteFileAtomically(path, AsBytes(text), FileMode::kPublic).ok());
    return path;
  }

  struct Outcome {
    cli::ExitCode code;
    std::string out, err;
  };
  Outcome Run(FakeFrontend& frontend, std::vector<std::string> more) {
    const Connector connect =
        [&](const std::string&) -> absl::StatusOr<std::unique_ptr<client::Transport>> {
      return client::testing::ConnectTo(&frontend, &mutex_);
    };
    more.insert(more.begin(), {"audit", "--config", directory_ + "/client"});
    std::ostringstream out, err;
    std::istringstream in;
    cli::Io io{.out = out, .err = err, .in = in, .err_is_terminal = false};
    const std::vector<cli::Command> commands = {Audit(connect)};
    const cli::ExitCode code = cli::RunProgram("shoal", "", commands, more, io);
    return {code, out.str(), err.str()};
  }
  // In a round of its own.
  Outcome Run(std::vector<std::string> more) {
    round_ = frontend_.OpenRound();
    return Run(frontend_, std::move(more));
  }

  FakeFrontend frontend_;
  Digest round_ = {};
  std::mutex mutex_;
  std::string directory_;
};

TEST_F(AuditCommandTest, SaysWhatIsVulnerableInSeveralInputsAtOnce) {
  const std::string python = Write("requirements.txt", "Django==3.1.8\nflask==1.0\n");
  const std::string npm = Write("package-lock.json",
                                R"({"lockfileVersion":3,"packages":{"":{},
      "node_modules/lodash":{"version":"4.17.20"},"node_modules/react":{"version":"17.0.0"}}})");
  const Outcome outcome = Run({python, npm});
  EXPECT_EQ(outcome.code, cli::kExitFailed) << outcome.err;
  EXPECT_EQ(
      outcome.out,
      absl::StrCat("vulnerable\tPyPI\tDjango\t3.1.8\tPYSEC-2021-98\tCVE-2021-31542\t3.1.9\t\t",
                   python, "\n",
                   "vulnerable\tnpm\tlodash\t4.17.20\tGHSA-35jh-r3h4-6jhm\tCVE-2021-23337\t"
                   "4.17.21\t\t",
                   npm, "\n"));
  EXPECT_TRUE(absl::StrContains(outcome.err,
                                "shoal audit: of 4 packages audited: 2 packages with a known "
                                "vulnerability\n"))
      << outcome.err;
  EXPECT_TRUE(absl::StrContains(outcome.err,
                                "the table has 1 advisory about 1 package of PyPI, the newest "
                                "of 2021-06-05T00:00:00Z"))
      << outcome.err;
  EXPECT_TRUE(absl::StrContains(outcome.err, "left out: 1 of the project's own")) << outcome.err;
  EXPECT_TRUE(absl::StrContains(outcome.err, "privacy: all 8 queries of this lookup together"))
      << outcome.err;
  // The directory has the same files.
  EXPECT_EQ(Run({directory_}).out, Run({npm, python}).out);
}

TEST_F(AuditCommandTest, OnlyWhatIsWhollyCheckedAndCleanEndsWithZero) {
  const Outcome clean = Run({Write("requirements.txt", "django==3.2.1\nflask==1.0\n")});
  EXPECT_EQ(clean.code, cli::kExitOk) << clean.err;
  EXPECT_EQ(clean.out, "");
  // No version; nothing to look up; an ecosystem that the table does not cover.
  struct Case {
    std::string name, text, status;
  };
  for (const Case& c :
       {Case{"requirements.txt", "django>=3\n", "unclear\tPyPI\tdjango\t"},
        Case{"requirements.txt", "-r more.txt\n", "unchecked\t\t-r more.txt\t"},
        Case{"go.sum", "example.org/a v1.0.0 h1:x\n",
             "unchecked\tGo\texample.org/a\tv1.0.0\t\t\t\tthe table has no advisories "
             "of Go\t"}}) {
    const std::string path = Write(c.name, c.text);
    const Outcome outcome = Run({path});
    EXPECT_EQ(outcome.code, cli::kExitIncomplete) << outcome.err;
    EXPECT_TRUE(absl::StartsWith(outcome.out, c.status)) << outcome.out;
    const Outcome partial = Run({"--partial", path});
    EXPECT_EQ(partial.code, cli::kExitOk) << partial.err;
    EXPECT_EQ(partial.out, outcome.out);
  }
  EXPECT_EQ(Run({"--partial", Write("requirements.txt", "django==3.1.8\n")}).code,
            cli::kExitFailed);
}

// An empty file must not read as a project without vulnerabilities, nor cost a round.
TEST_F(AuditCommandTest, WhatNamesNoPackagesIsSaidBeforeAnythingIsSent) {
  const std::string empty = Write("Cargo.lock", "version = 3\n");
  const std::string full = Write("requirements.txt", "flask==1.0\n");
  for (const std::vector<std::string>& inputs :
       std::vector<std::vector<std::string>>{{empty}, {empty, full}, {directory_}}) {
    const Outcome outcome = Run(frontend_, inputs);
    EXPECT_EQ(outcome.code, cli::kExitIncomplete) << outcome.err;
    EXPECT_TRUE(absl::StrContains(outcome.err, "Cargo.lock: names no packages")) << outcome.err;
    EXPECT_TRUE(frontend_.sent.empty());
  }
  EXPECT_EQ(Run({"--partial", empty, full}).code, cli::kExitOk);
  EXPECT_FALSE(frontend_.sent.empty());
  frontend_.sent.clear();
  // Nor does a round pay for a list in which nothing can be looked up.
  fs::create_directory(directory_ + "/project");
  const std::string other = Write("project/yarn.lock", "lodash@1:\n");
  const std::string python = Write("more-requirements.txt", "-r other.txt\n-e .\n");
  const Outcome nothing = Run(frontend_, {python});
  EXPECT_EQ(nothing.code, cli::kExitIncomplete) << nothing.err;
  EXPECT_TRUE(absl::StrContains(nothing.err, "names no packages that could")) << nothing.err;
  EXPECT_TRUE(absl::StartsWith(nothing.out, "unchecked\t\t-r other.txt\t")) << nothing.out;
  const Outcome partial = Run(frontend_, {"--partial", python});
  EXPECT_EQ(partial.code, cli::kExitOk);
  EXPECT_EQ(partial.out, nothing.out);
  EXPECT_TRUE(absl::StrContains(partial.err, "nothing was")) << partial.err;
  const Outcome directory = Run(frontend_, {directory_ + "/project"});
  EXPECT_EQ(directory.code, cli::kExitIncomplete) << directory.err;
  EXPECT_TRUE(absl::StrContains(directory.out, absl::StrCat("not read here\t", other)))
      << directory.out;
  EXPECT_TRUE(frontend_.sent.empty());
}

// What lies below a directory is read, or said.
TEST_F(AuditCommandTest, ADirectoryIsReadToTheBottomOrNotClean) {
  fs::create_directories(directory_ + "/project/api");
  const std::string project = directory_ + "/project";
  Write("project/requirements.txt", "flask==1.0\n");
  EXPECT_EQ(Run({project}).code, cli::kExitOk);
  Write("project/api/requirements.txt", "django==3.1.8\n");
  const Outcome above = Run({project});
  EXPECT_EQ(above.code, cli::kExitIncomplete) << above.err;
  EXPECT_TRUE(absl::StartsWith(above.out, "unchecked\t\tapi\t")) << above.out;
  const Outcome whole = Run({"--recursive", project});
  EXPECT_EQ(whole.code, cli::kExitFailed) << whole.err;
  EXPECT_TRUE(absl::StartsWith(whole.out, "vulnerable\tPyPI\tdjango\t3.1.8\t")) << whole.out;
  Write("project/api/requirements.txt", "flask==1.0\n");
  EXPECT_EQ(Run({"--recursive", project}).code, cli::kExitOk);
  Write("project/go.mod", "module x\nrequire h.org/a v1.0.0\n");
  EXPECT_EQ(Run({"--recursive", project}).code, cli::kExitIncomplete);
}

// Neither the list nor its length shows: as many queries leave, whatever is installed.
TEST_F(AuditCommandTest, AsManyQueriesLeaveWhateverIsInstalled) {
  const auto queries = [&](const std::string& text) {
    const Outcome outcome = Run({Write("requirements.txt", text)});
    EXPECT_NE(outcome.code, cli::kExitVerification) << outcome.err;
    return frontend_.Asked(round_).size();
  };
  EXPECT_EQ(queries("flask==1.0\n"), 8u);
  EXPECT_EQ(queries("django==3.1.8\n"), 8u);
  EXPECT_EQ(queries("a==1\nb==2\nc==3\nd==4\ne==5\n"), 8u);
}

TEST_F(AuditCommandTest, AnAnswerThatIsWrongIsNoCleanPackage) {
  frontend_.spoil = [](uint32_t, MutableBytes answer) { answer[0] ^= 1; };
  const Outcome outcome = Run({Write("requirements.txt", "flask==1.0\n")});
  EXPECT_EQ(outcome.code, cli::kExitVerification);
  EXPECT_TRUE(absl::StartsWith(outcome.out, "unverified\tPyPI\tflask\t1.0\t")) << outcome.out;
  EXPECT_TRUE(absl::StrContains(outcome.err, "there is none")) << outcome.err;
}

// Within a term a row may be full, and then does not prove that a key is absent.
TEST_F(AuditCommandTest, WhatAFullRowMayLackIsUnclear) {
  frontend_.NextEpoch(2000, /*keep_rows=*/true);
  const Outcome outcome = Run({Write("requirements.txt", "flask==1.0\n")});
  EXPECT_EQ(outcome.code, cli::kExitIncomplete) << outcome.err;
  EXPECT_TRUE(absl::StartsWith(outcome.out, "unclear\tPyPI\tflask\t1.0\t")) << outcome.out;
}

// In a table of something else every package would be absent, and so clean.
TEST_F(AuditCommandTest, AnotherTableIsRefused) {
  FakeFrontend other({.records = 0, .content = Advisories(), .now_s = SystemClock().NowSeconds()});
  const auto pins = roster::PinsOf(other.roster().wire().roster());
  SHOAL_ASSERT_OK(wire::WriteTextFile(directory_ + "/pins", *pins));
  const Outcome outcome = Run(other, {Write("requirements.txt", "flask==1.0\n")});
  EXPECT_EQ(outcome.code, cli::kExitNotDone);
  EXPECT_TRUE(absl::StrContains(outcome.err, "is not one of advisories")) << outcome.err;
  EXPECT_TRUE(other.sent.empty());
}

TEST_F(AuditCommandTest, ReportsAsJsonAndSarif) {
  const std::string python = Write("requirements.txt", "Django==3.1.8\nb\xff==1\ndjango>=1\n");
  const Outcome json = Run({"--format", "json", python});
  const std::vector<std::string> lines = absl::StrSplit(json.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 3u) << json.out;
  EXPECT_EQ(lines[1],
            absl::StrCat(R"({"status":"vulnerable","ecosystem":"PyPI","package":"Django",)",
                         R"("version":"3.1.8","id":"PYSEC-2021-98","alias":"CVE-2021-31542",)",
                         R"("fixed":"3.1.9","note":"","files":[")", python, R"("]})"));
  EXPECT_TRUE(absl::StrContains(lines[2], R"("package":"b\\xff==1")")) << lines[2];

  const std::string path = directory_ + "/a.sarif";
  EXPECT_EQ(Run({"--format", "sarif", "--out", path, python}).code, cli::kExitFailed);
  const auto text = audit::JsonText::Parse(*ReadFile(path), path);
  ASSERT_TRUE(text.ok()) << text.status();
  // What the specification (OASIS, SARIF 2.1.0) requires: version (3.13.2), runs (3.13.4), tool
  // (3.14.6), driver (3.18.2), name (3.19.8), id of a rule (3.49.3), message of a result (3.27.11).
  const audit::JsonView root = text->root();
  EXPECT_EQ(*root.Get("version")->Text(), "2.1.0");
  const auto runs = *root.Get("runs")->Items();
  ASSERT_EQ(runs.size(), 1u);
  const audit::JsonView driver = *runs[0].Get("tool")->Get("driver");
  EXPECT_EQ(*driver.Get("name")->Text(), "shoal audit");
  const auto rules = *driver.Get("rules")->Items();
  const auto results = *runs[0].Get("results")->Items();
  ASSERT_EQ(rules.size(), 3u);
  ASSERT_EQ(results.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(*results[i].Get("ruleId")->Text(), *rules[i].Get("id")->Text());
    EXPECT_FALSE(results[i].Get("message")->Get("text")->Text()->empty());
    const auto locations = *results[i].Get("locations")->Items();
    ASSERT_EQ(locations.size(), 1u);
    EXPECT_EQ(*locations[0].Get("physicalLocation")->Get("artifactLocation")->Get("uri")->Text(),
              absl::StrCat("file://", python));
  }
  EXPECT_EQ(*results[0].Get("level")->Text(), "warning") << "no version is pinned";
  EXPECT_EQ(*results[1].Get("level")->Text(), "error");
  EXPECT_EQ(*results[1].Get("message")->Get("text")->Text(),
            "Django 3.1.8 (PyPI): vulnerable, PYSEC-2021-98 (CVE-2021-31542), fixed in 3.1.9");
}

TEST_F(AuditCommandTest, SaysWhatIsWrongWithItsUse) {
  const auto run = [&](std::vector<std::string> more) { return Run(frontend_, std::move(more)); };
  EXPECT_EQ(run({}).code, cli::kExitUsage);
  const std::string path = Write("requirements.txt", "flask==1.0\n");
  EXPECT_EQ(run({"--format", "xml", path}).code, cli::kExitUsage);
  EXPECT_EQ(run({"--distribution", "bookworm", path}).code, cli::kExitUsage);
  EXPECT_EQ(run({"--pad", "8", path}).code, cli::kExitUsage);
  // A script must not take these for something found.
  EXPECT_EQ(run({directory_ + "/none"}).code, cli::kExitNotDone);
  EXPECT_EQ(run({Write("notes", "hello")}).code, cli::kExitNotDone);
  EXPECT_EQ(run({Write("Cargo.lock", "[[package]]\n")}).code, cli::kExitNotDone);
  EXPECT_TRUE(frontend_.sent.empty());
  const Outcome dry = run({"--dry-run", path});
  EXPECT_EQ(dry.code, cli::kExitOk) << dry.err;
  EXPECT_TRUE(absl::StartsWith(dry.out, "this lookup would send 8 queries")) << dry.out;
  EXPECT_TRUE(frontend_.sent.empty());
}

}  // namespace
}  // namespace shoal::commands
