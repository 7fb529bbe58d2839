// Two parties of two tiers and their clients as processes on this machine, as scripts/local-chain
// sets them up: what a user sees if all works, if a party comes back in the middle of a round, over
// a new epoch, and what parties and tools refuse.
#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/sim/process_chain.h"
#include "src/sim/processes.h"

namespace shoal::sim {
namespace {

namespace fs = std::filesystem;
using ::shoal::testing::Soon;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using Words = std::vector<std::string>;

// A client's lookup of 16 queries fills a round, so that it waits for no window. Fewer queries wait
// for it. No lookup here has more keys than fit one bucket.
class TwoTiersProcessTest : public ::testing::Test {
 protected:
  ProcessChain chain_{::testing::UnitTest::GetInstance()->current_test_info()->name(),
                      {.records = 200,
                       .rounds = "onions_window_s: 15 onions_count: 16 queries_window_s: 15 "
                                 "queries_count: 16 answers_window_s: 60",
                       .create = {"--most-in-bucket", "16"},
                       .table = {"--query-buckets", "8"},
                       .pad_to = 16,
                       .ports = 2,
                       .parties = 2}};

  std::string path(const std::string& name) const { return chain_.path(name); }

  // Looks up keys that are there and one that is not. The values are those that were built first,
  // or of MakeTable with this text.
  void ExpectServed(const std::string& client, const std::string& of = "") {
    const Result result = RunToEnd(chain_.Query(client, {"key-7", "key-199", "no-such-key"}));
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr(absl::StrCat("key-7\tfound\tvalue 49", of, "\tyes\n")));
    EXPECT_THAT(result.output,
                HasSubstr(absl::StrCat("key-199\tfound\tvalue 39601", of, "\tyes\n")));
    EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
  }
  void ExpectServed() { ExpectServed(chain_.NewClient()); }

  // Builds and signs a table like the chain's, whose values end with `of`: the epoch after that in
  // another directory, or another table.
  void MakeTable(const std::string& name, const std::string& of, const Words& options,
                 const std::string& previous = "") {
    std::string records;
    for (int i = 0; i < 200; ++i) {
      absl::StrAppend(&records, "key-", i, "\tvalue ", i * i, of, "\n");
    }
    WriteText(path(name + ".tsv"), records);
    const Words trust = {"--roster", path("roster.textproto"), "--pinned",
                         path("pinned.textproto")};
    Words build = {
        Shoal(), "table",   "build", "--deployment", "local", "--tsv", path(name + ".tsv"),
        "--out", path(name)};
    build.insert(build.end(), options.begin(), options.end());
    const Words after = previous.empty() ? Words{} : Words{"--previous", path(previous)};
    build.insert(build.end(), after.begin(), after.end());
    std::vector<Words> commands = {build};
    for (const std::string party : {"party-1", "party-2"}) {
      commands.push_back({Shoal(), "table", "sign", path(name), "--keys", path(party)});
      commands.back().insert(commands.back().end(), after.begin(), after.end());
    }
    commands.push_back({Shoal(), "table", "aggregate", path(name)});
    for (Words& command : commands) {
      if (command[2] != "build") command.insert(command.end(), trust.begin(), trust.end());
      const Result result = RunToEnd(command);
      ASSERT_EQ(result.code, 0) << result.output;
    }
  }

  // Expects that shoald with these replacements in a party's configuration does not start, nor with
  // --check, and says `part`. Exit code 3 if something cannot be trusted.
  void ExpectRefused(uint32_t party,
                     const std::vector<std::pair<std::string, std::string>>& replacements,
                     const std::string& part, int code = 1) {
    const std::string config = path("changed.textproto");
    const std::string text = Text(chain_.config(party));
    const std::string changed = absl::StrReplaceAll(text, replacements);
    ASSERT_NE(changed, text);
    WriteText(config, changed);
    for (const Words& how : {Words{}, Words{"--check"}, Words{"--check-files"}}) {
      Words command = {Shoald(), "--config", config};
      command.insert(command.end(), how.begin(), how.end());
      const Result result = RunToEnd(command);
      EXPECT_EQ(result.code, code) << result.output;
      EXPECT_THAT(result.output, HasSubstr(part));
    }
  }

  // Signals a party, and waits until it says one of both. Whether it is the first.
  bool Reload(uint32_t party, const std::string& expected, const std::string& other) {
    Process& process = chain_.process(party);
    const size_t before = process.Output().size();
    process.Signal(SIGHUP);
    return process.WaitForAnyOutput({expected, other}, kLong, before) == 0u;
  }
};

TEST_F(TwoTiersProcessTest, KeysAreFoundAndAbsentAndBothHalvesAreReported) {
  chain_.StartAll();
  ExpectServed();
  // A list, with more keys than there are buckets, and the same client's next one.
  const std::string client = chain_.NewClient();
  Words keys;
  for (int i = 0; i < 12; ++i) keys.push_back(absl::StrCat("key-", 16 * i));
  keys.push_back("key-200");
  const Result list = RunToEnd(chain_.Query(client, keys));
  EXPECT_EQ(list.code, 0) << list.output;
  for (int i = 0; i < 12; ++i) {
    EXPECT_THAT(list.output,
                HasSubstr(absl::StrCat("key-", 16 * i, "\tfound\tvalue ", 256 * i * i, "\tyes\n")));
  }
  EXPECT_THAT(list.output, HasSubstr("key-200\tabsent\t\tyes\n"));
  ExpectServed(client);

  const Words status = {Shoal(), "status", "--config", client};
  const Result shown = RunToEnd(status);
  EXPECT_EQ(shown.code, 0) << shown.output;
  for (const char* stage : {"offline A", "offline B", "online A", "online B", "answers B"}) {
    EXPECT_THAT(shown.output, HasSubstr(stage));
  }
  Words json = status;
  json.insert(json.end(), {"--format", "json"});
  const Result structured = RunToEnd(json);
  EXPECT_EQ(structured.code, 0) << structured.output;
  for (const char* half : {"\"half\":\"A\"", "\"half\":\"B\""}) {
    EXPECT_THAT(absl::StrReplaceAll(structured.output, {{": ", ":"}}), HasSubstr(half));
  }
  Words parties = status;
  parties.push_back("--parties");
  Result healthy;
  EXPECT_TRUE(Soon([&] {
    healthy = RunToEnd(parties);
    return healthy.code == 0;
  })) << healthy.output;

  // A user who has nothing but the pins.
  const std::string home = path("home");
  fs::create_directory(home);
  const Words user = {"/usr/bin/env", "-u",           "XDG_CONFIG_HOME", "-u",   "XDG_STATE_HOME",
                      "-u",           "SHOAL_CONFIG", "HOME=" + home,    Shoal()};
  const auto run = [&](const Words& more) {
    Words command = user;
    command.insert(command.end(), more.begin(), more.end());
    return RunToEnd(command);
  };
  const Result init = run({"init", chain_.address(1), "--pins", path("pinned.textproto")});
  EXPECT_EQ(init.code, 0) << init.output;
  EXPECT_THAT(init.output, HasSubstr("What that protects: "));
  const Result simple = run({"query", "key-3"});
  EXPECT_EQ(simple.code, 0) << simple.output;
  EXPECT_THAT(simple.output, HasSubstr("key-3\tfound\tvalue 9\tyes\n"));

  // What knows rounds for rows alone says so.
  const Result crowd = RunToEnd({Shoal(), "simulate", "--config", client, "--devices", "2",
                                 "--apps", "2-4", "--table", path("table")});
  EXPECT_EQ(crowd.code, 1) << crowd.output;
  EXPECT_THAT(crowd.output,
              HasSubstr("two tiers (most_in_bucket 16 in the roster, query_buckets 8 in the table) "
                        "are not known to the load generator (shoal simulate) yet"));
}

// Either party has secrets of both halves in its memory alone. Without one of them the round is
// lost for all, and the client enters the next one.
TEST_F(TwoTiersProcessTest, ARoundWhosePartyComesBackWithoutItIsLostAndTheNextOneWorks) {
  for (const uint32_t party : {2u, 1u}) {
    SCOPED_TRACE(party);
    chain_.KillAll();
    chain_.StartAll();
    const std::string client = chain_.NewClient();
    chain_.SetTimeout(client, 150);
    // Half of what fills a round: this client has slots, and waits until the window is over.
    WriteText(client, absl::StrReplaceAll(Text(client), {{"pad_to: 16", "pad_to: 8"}}));
    Process query(chain_.Query(client, {"key-7", "no-such-key"}));
    ASSERT_TRUE(query.WaitForOutput("to take queries")) << query.Output();
    chain_.Kill(party);
    chain_.Start(party);
    if (party == 2) {
      EXPECT_TRUE(chain_.process(1).WaitForOutput("aborted: party 2 has lost the round"))
          << chain_.process(1).Output();
    } else {
      EXPECT_TRUE(chain_.process(2).WaitForOutput("ended by the frontend"))
          << chain_.process(2).Output();
    }
    EXPECT_THAT(query.Wait(), Optional(0)) << query.Output();
    EXPECT_THAT(query.Output(), HasSubstr("key-7\tfound\tvalue 49\tyes\n"));
    EXPECT_THAT(query.Output(), HasSubstr("no-such-key\tabsent\t\tyes\n"));
    EXPECT_THAT(query.Output(), HasSubstr("aborted before this client sent its queries; asking in "
                                          "another round"));
    ExpectServed();
  }
}

TEST_F(TwoTiersProcessTest, ANewEpochIsTakenIfItHasBuckets) {
  chain_.StartAll();
  const std::string client = chain_.NewClient();
  ExpectServed(client);
  fs::rename(path("table"), path("first"));
  // Without buckets it is no table for this roster, and the old one stays.
  ASSERT_NO_FATAL_FAILURE(MakeTable("table", "", {"--query-buckets", "0"}, "first"));
  for (const uint32_t party : {1u, 2u}) {
    EXPECT_TRUE(Reload(party, "the table was not reloaded: ", "serves epoch "));
    EXPECT_TRUE(chain_.process(party).WaitForOutput(
        "its query_buckets are 0, and most_in_bucket is 16 in the roster of 2 parties"))
        << chain_.process(party).Output();
  }
  ExpectServed(client);
  // As many buckets as the first, of other values.
  fs::rename(path("table"), path("second"));
  ASSERT_NO_FATAL_FAILURE(MakeTable("table", " of epoch 3", {"--query-buckets", "8"}, "second"));
  for (const uint32_t party : {2u, 1u}) {
    EXPECT_TRUE(Reload(party, "serves epoch 3 of the table", "the table was not reloaded: "))
        << chain_.process(party).Output();
  }
  ExpectServed(client, " of epoch 3");
  EXPECT_THAT(chain_.process(1).Output(), Not(HasSubstr("aborted")));
}

TEST_F(TwoTiersProcessTest, WhatDoesNotFitIsRefusedAtTheStart) {
  ASSERT_NO_FATAL_FAILURE(MakeTable("rows", "", {"--name", "rows", "--row-bytes", "128"}));
  for (const uint32_t party : {1u, 2u}) {
    ExpectRefused(party, {{"\"table\"", "\"rows\""}},
                  absl::StrCat(path("rows"),
                               ": its query_buckets are 0, and most_in_bucket is 16 "
                               "in the roster of 2 parties"));
  }
  ExpectRefused(
      1, {{"rounds {", "rounds { terms { refreshes: 5 days: 1 every_hours: 1 open_minutes: 60 } "}},
      "terms.refreshes is 5, and the roster is of two tiers (most_in_bucket 16)");
  // What the parties would sign.
  const auto create = [&](const Words& more) {
    Words command = {LocalChain(), "create",           path("none"), "--protect",
                     "lookup",     "--most-in-bucket", "16"};
    command.insert(command.end(), more.begin(), more.end());
    command.insert(command.end(),
                   {"--", "--tsv", chain_.path("").parent_path().string() + ".tsv", "--name",
                    "squares", "--row-bytes", "128", "--query-buckets", "8"});
    const Result result = RunToEnd(command);
    EXPECT_NE(result.code, 0) << result.output;
    return result.output;
  };
  EXPECT_THAT(create({"--parties", "3"}), HasSubstr("which are for two parties; the roster has 3"));
  EXPECT_THAT(create({"--parties", "2", "--machines", "1 2"}),
              HasSubstr("which are for parties of one machine; party 2 has 2"));
  EXPECT_THAT(create({"--parties", "2", "--term-limit", "days: 30 refreshes: 31"}),
              HasSubstr("which have no terms yet; the roster has a term_limit"));
  EXPECT_FALSE(fs::exists(path("none")));
}

// Both parties answer from the table: a row with a bad signature at one of them fails those who ask
// for it, and nobody else.
TEST_F(TwoTiersProcessTest, NeitherPartyTakesATableWithABadSignature) {
  fs::copy(path("table"), path("bad"), fs::copy_options::recursive);
  std::string signatures = Text(path("bad/signatures.bin"));
  signatures[signatures.size() / 2] ^= 1;
  WriteText(path("bad/signatures.bin"), signatures);
  for (const uint32_t party : {1u, 2u}) {
    ExpectRefused(party, {{"\"table\"", "\"bad\""}}, "signature", 3);
  }
}

}  // namespace
}  // namespace shoal::sim
