// Three parties as processes, and clients of a term: one asks once, and is answered from every
// epoch of the table, whichever party is killed between and during refreshes; and a crowd of them.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/net/connection.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"
#include "src/sim/process_chain.h"
#include "src/sim/processes.h"
#include "src/sim/term_client.h"
#include "src/table/table.h"
#include "src/wire/frame.h"
#include "src/wire/text.h"

namespace shoal::sim {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kRefreshes = 12;

// Three parties whose rounds all have terms, and so many slots. They begin when as many queries are
// there.
class TermProcessTest : public ::testing::Test {
 protected:
  TermProcessTest() : TermProcessTest("terms", 4, 3) {}
  TermProcessTest(const std::string& name, int slots, int queries)
      : chain_(name, {.rounds = absl::StrCat("onions_window_s: 60 onions_count: ", slots,
                                             " queries_window_s: 60 queries_count: ", queries,
                                             " answers_window_s: 5 max_slots: ", slots,
                                             " terms { refreshes: 12 days: 30 every_hours: 1 }"),
                      .create = {"--term-limit", "days: 30 refreshes: 20", "--max-slots",
                                 absl::StrCat(slots)}}),
        pool_(2),
        roster_(ReadRoster()) {
    table_ = OpenTable();
    chain_.StartAll();
  }

  roster::Roster ReadRoster() const {
    auto pins = roster::PinnedParties::Read(chain_.path("pinned.textproto"));
    wire::SignedRoster signed_roster;
    SHOAL_CHECK(wire::ReadTextFile(chain_.path("roster.textproto"), signed_roster).ok());
    auto roster = roster::Roster::Verify(signed_roster, *pins, SystemClock().NowSeconds());
    Require(roster.ok(), roster.status().ToString());
    return *std::move(roster);
  }
  std::unique_ptr<table::Table> OpenTable() {
    auto table = table::Table::Open(chain_.path("table"), roster_, SystemClock().NowSeconds(),
                                    random_, pool_);
    Require(table.ok(), table.status().ToString());
    return std::make_unique<table::Table>(*std::move(table));
  }

  // --- the operators

  // Puts the next epoch into the directory of the table: other values, keys where they were.
  void PutNextEpoch() {
    const uint64_t epoch = table_->manifest().epoch() + 1;
    std::string records;
    for (int i = 0; i < 100; ++i) {
      // As long as before, so that the table has as many rows.
      absl::StrAppend(&records, "key-", i, "\tep", 100 + epoch, " ", i * i, "\n");
    }
    const fs::path tsv = chain_.path("records.tsv");
    WriteText(tsv, records);
    fs::remove_all(chain_.path("next"));
    const Words trust = {"--roster", chain_.path("roster.textproto"), "--pinned",
                         chain_.path("pinned.textproto")};
    std::vector<Words> commands = {{Shoal(), "table", "build", "--deployment", "local", "--tsv",
                                    tsv, "--previous", chain_.path("table"), "--out",
                                    chain_.path("next")}};
    for (uint32_t party = 1; party <= 3; ++party) {
      commands.push_back({Shoal(), "table", "sign", chain_.path("next"), "--previous",
                          chain_.path("table"), "--keys",
                          chain_.path(absl::StrCat("party-", party))});
    }
    commands.push_back({Shoal(), "table", "aggregate", chain_.path("next")});
    for (Words& command : commands) {
      if (command[2] != "build") command.insert(command.end(), trust.begin(), trust.end());
      const Result result = RunToEnd(command);
      Require(result.code == 0, result.output);
    }
    fs::remove_all(chain_.path("before"));
    fs::rename(chain_.path("table"), chain_.path("before"));
    fs::rename(chain_.path("next"), chain_.path("table"));
    table_ = OpenTable();
  }
  void Take(uint32_t party) {
    const size_t before = chain_.process(party).Output().size();
    chain_.process(party).Signal(SIGHUP);
    EXPECT_TRUE(chain_.process(party).WaitForOutput("serves epoch", kLong, before));
  }
  void Kill(uint32_t party) { chain_.Kill(party); }

  // --- the client

  absl::StatusOr<wire::Frame> Call(const wire::Frame& request) {
    SHOAL_ASSIGN_OR_RETURN(
        const auto connection,
        net::Connection::Connect(
            {.address = chain_.address(1), .pin = roster_.party(1).tls_certificate_sha256}));
    return connection->Call(request,
                            {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0}, 90s);
  }
  // Waits for a round that takes onions.
  absl::StatusOr<std::vector<Bytes>> Enrol(const std::vector<uint32_t>& rows) {
    const auto until = SteadyClock::now() + kLong;
    for (;;) {
      auto answers = client_.Enrol(rows);
      if (!absl::IsUnavailable(answers.status()) || SteadyClock::now() > until) return answers;
      std::this_thread::sleep_for(100ms);
    }
  }
  // They are the rows of the table's present epoch with their signatures.
  void ExpectRows(const std::vector<Bytes>& answers) {
    ASSERT_EQ(answers.size(), client_.rows().size());
    for (size_t i = 0; i < answers.size(); ++i) {
      Bytes right(table_->answer_bytes());
      table_->CopyAnswer(client_.rows()[i], right);
      EXPECT_EQ(answers[i], right) << "query " << i << ", epoch " << table_->manifest().epoch();
    }
  }
  // Waits for the refresh from the table's present epoch, and checks its answers. Its number.
  absl::StatusOr<uint32_t> FetchRefresh() {
    const auto until = SteadyClock::now() + kLong;
    for (; SteadyClock::now() < until; std::this_thread::sleep_for(100ms)) {
      const auto latest = client_.Latest();
      if (absl::IsNotFound(latest.status())) return latest.status();
      if (!latest.ok()) continue;  // the frontend does not run just now
      const wire::RefreshHeader& header = latest->refresh().header();
      if (header.epoch() != table_->manifest().epoch()) continue;
      EXPECT_EQ(header.manifest_digest(), AsText(table_->manifest().digest()));
      SHOAL_ASSIGN_OR_RETURN(const std::vector<Bytes> answers, client_.Fetch(*latest));
      ExpectRows(answers);
      return header.number();
    }
    return absl::DeadlineExceededError("no refresh");
  }

  ProcessChain chain_;
  ThreadPool pool_;
  SystemRandom random_;
  const roster::Roster roster_;
  std::unique_ptr<table::Table> table_;  // the newest epoch
  TermClient client_{&roster_, &random_, [this](const wire::Frame& frame) { return Call(frame); }};
};

TEST_F(TermProcessTest, OneQuestionIsAnsweredAtEveryEpochWhoeverIsKilled) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers,
                             Enrol({0, 1, static_cast<uint32_t>(table_->rows() - 1)}));
  ExpectRows(answers);
  EXPECT_EQ(client_.round().max_refreshes(), kRefreshes);
  // The round is over before the first refresh.
  ASSERT_TRUE(chain_.process(1).WaitForOutput(": closed"));

  PutNextEpoch();
  for (const uint32_t party : {3u, 1u, 2u}) Take(party);
  SHOAL_ASSERT_OK_AND_ASSIGN(uint32_t number, FetchRefresh());
  EXPECT_EQ(number, 1);

  // Each party is killed between two refreshes, and comes back with what is on its disk.
  for (const uint32_t killed : {1u, 2u, 3u}) {
    SCOPED_TRACE(absl::StrCat("killed before a refresh: ", killed));
    Kill(killed);
    chain_.Start(killed);
    // The same refresh again, if party 1 has lost its answers.
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint32_t again, FetchRefresh());
    EXPECT_EQ(again, number);
    PutNextEpoch();
    for (const uint32_t party : {1u, 2u, 3u}) Take(party);
    SHOAL_ASSERT_OK_AND_ASSIGN(number, FetchRefresh());
  }
  EXPECT_EQ(number, 4);

  // And while one is under way: party 1 has the epoch and proposes, the others follow.
  for (const uint32_t killed : {1u, 2u, 3u}) {
    SCOPED_TRACE(absl::StrCat("killed during a refresh: ", killed));
    PutNextEpoch();
    for (const uint32_t party : {3u, 2u, 1u}) Take(party);
    Kill(killed);
    chain_.Start(killed);
    SHOAL_ASSERT_OK_AND_ASSIGN(number, FetchRefresh());
  }
  EXPECT_GE(number, 7);

  // `shoal status` tells of the term, which lives on.
  const Result status = RunToEnd({Shoal(), "status", "--config", chain_.NewClient()});
  EXPECT_NE(status.output.find(absl::StrCat(number, "/", kRefreshes)), std::string::npos)
      << status.output;
  for (uint32_t party = 1; party <= 3; ++party) {
    EXPECT_FALSE(fs::is_empty(chain_.state(party) / "terms")) << party;
  }

  // A party whose terms are lost ends the term for all: nothing is left on any disk.
  Kill(2);
  fs::remove_all(chain_.state(2) / "terms");
  chain_.Start(2);
  PutNextEpoch();
  for (const uint32_t party : {1u, 2u, 3u}) Take(party);
  EXPECT_THAT(FetchRefresh(), ::shoal::testing::StatusIs(absl::StatusCode::kNotFound, "no term"));
  EXPECT_TRUE(chain_.process(1).WaitForOutput("its term ends: NOT_FOUND: party 2"));
  for (const uint32_t party : {1u, 3u}) {
    EXPECT_TRUE(chain_.process(party).WaitForOutput("its term has ended"));
    EXPECT_TRUE(fs::is_empty(chain_.state(party) / "terms")) << party;
  }
}

// `shoal simulate --refreshes`.
class TermCrowdProcessTest : public TermProcessTest {
 protected:
  static constexpr int kDevices = 4, kPad = 8;
  TermCrowdProcessTest() : TermProcessTest("term-crowd", kDevices * kPad, kDevices * kPad) {}

  Words Simulate(const Words& more) {
    Words command = {Shoal(),   "simulate",          "--config", chain_.NewClient(),
                     "--table", chain_.path("table")};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  // What was printed: names and values.
  static std::map<std::string, double> ValuesIn(const std::string& output) {
    std::map<std::string, double> values;
    for (const absl::string_view line : absl::StrSplit(output, '\n')) {
      const std::vector<std::string> words = absl::StrSplit(line, '\t');
      double value = 0;
      if (words.size() == 2 && absl::SimpleAtod(words[1], &value)) values[words[0]] = value;
    }
    return values;
  }
};

TEST_F(TermCrowdProcessTest, ACrowdEnrolsOnceAndFetchesEveryRefresh) {
  // This seed has one device sleep through the second refresh.
  Process crowd(
      Simulate({"--devices", absl::StrCat(kDevices), "--pad", absl::StrCat(kPad), "--apps", "2-6",
                "--refreshes", "3", "--asleep", "0.1", "--seed", "6", "--wait", "200"}));
  for (int number = 1; number <= 3; ++number) {
    ASSERT_TRUE(crowd.WaitForOutput(absl::StrCat("wait for refresh ", number))) << crowd.Output();
    PutNextEpoch();
    for (const uint32_t party : {3u, 1u, 2u}) Take(party);
  }
  EXPECT_THAT(crowd.Wait(), ::testing::Optional(0)) << crowd.Output();
  std::map<std::string, double> values = ValuesIn(crowd.Output());
  constexpr double kQueries = kDevices * kPad;
  EXPECT_EQ(values["answers_correct"], kQueries) << crowd.Output();
  double asleep = 0;
  for (int number = 1; number <= 3; ++number) {
    const auto value = [&](const std::string& name) {
      return values[absl::StrCat("refresh", number, "_", name)];
    };
    EXPECT_EQ(value("number"), number);
    EXPECT_EQ(value("epoch"), 1 + number);
    EXPECT_EQ(value("devices") + value("devices_asleep"), kDevices);
    EXPECT_EQ(value("answers_correct"), value("devices") * kPad);
    EXPECT_EQ(value("answers_wrong") + value("answers_failed") + value("answers_missing"), 0);
    EXPECT_EQ(value("answers_compared_with_table"), 1);
    EXPECT_GT(value("keys_found"), 0);
    EXPECT_EQ(value("keys_failed") + value("keys_unknown"), 0);
    EXPECT_GT(value("seconds_to_last_answer"), 0);
    // 176 bytes an answer: a row of 128 and its signature.
    EXPECT_GT(value("bytes_received"), value("devices") * kPad * 176);
    EXPECT_GT(value("bytes_received_for_news"), 0);
    EXPECT_EQ(value("chain_positions"), kQueries);
    EXPECT_EQ(value("parties_reporting"), 3);
    EXPECT_EQ(value("party1_refresh_positions_out"), kQueries);
    EXPECT_GT(value("party3_refresh_positions_in"), kQueries);  // noise is answered, too
    asleep += value("devices_asleep");
  }
  EXPECT_EQ(asleep, 1);

  // What does not fit is refused before anything is asked of anybody.
  const std::vector<std::pair<Words, std::string>> refused = {
      {{"--refreshes", "0"}, "--refreshes: at least one"},
      {{"--refreshes", "2", "--engine", "simplepir"},
       "--refreshes: rounds of the chain have terms"},
      {{"--refreshes", "2", "--asleep", "1"}, "--asleep: a share of the refreshes"},
      {{"--asleep", "0.5"}, "--asleep is for a crowd that stays for --refreshes"},
      {{"--wait", "10"}, "--wait is for a crowd that stays for --refreshes"},
      {{"--refreshes", "2", "--wait", "0"}, "--wait: 1 to "}};
  chain_.KillAll();
  for (const auto& [options, why] : refused) {
    const Result result = RunToEnd(Simulate(options));
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, ::testing::HasSubstr(why));
  }
}

}  // namespace
}  // namespace shoal::sim
