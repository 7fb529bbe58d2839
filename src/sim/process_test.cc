// Three parties and their clients as processes on this machine, as scripts/local-chain sets them
// up. The tests show what a user sees if all works, if a party is missing, if a file is wrong, and
// if somebody sends garbage to the ports.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "boost/asio.hpp"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/net/connection.h"
#include "src/net/testing/test_identity.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/sim/process_chain.h"
#include "src/sim/processes.h"
#include "src/storage/file.h"
#include "src/table/table.h"
#include "src/wire/frame.h"
#include "src/wire/peer.pb.h"
#include "src/wire/text.h"

namespace shoal::sim {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using asio::ip::tcp;
using ::shoal::testing::Soon;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr uint32_t kParties = ProcessChain::kParties;

// A deployment that is made once. Every client's lookup fills a round, so that none waits for a
// window. The table has more rows than a lookup asks for.
class ProcessTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    chain_ = new ProcessChain("chain", {.records = 200,
                                        .rounds = "onions_window_s: 20 onions_count: 16 "
                                                  "queries_window_s: 15 queries_count: 16 "
                                                  "answers_window_s: 60",
                                        .pad_to = 16});
  }
  static void TearDownTestSuite() {
    delete chain_;
    chain_ = nullptr;
  }
  ProcessChain& chain() { return *chain_; }

  void ExpectServed(const std::string& client) {
    const Result result = RunToEnd(chain().Query(client, {"key-7", "key-199", "no-such-key"}));
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("key-7\tfound\tvalue 49\tyes\n"));
    EXPECT_THAT(result.output, HasSubstr("key-199\tfound\tvalue 39601\tyes\n"));
    EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
  }
  void ExpectServed() { ExpectServed(chain().NewClient()); }

  // Expects that shoald with a changed configuration of `party` ends with this code and says
  // `part`.
  void ExpectRefused(uint32_t party,
                     const std::vector<std::pair<std::string, std::string>>& replacements, int code,
                     const std::string& part) {
    std::string text = Text(chain().config(party));
    for (const auto& [from, to] : replacements) {
      ASSERT_THAT(text, HasSubstr(from));
      text = absl::StrReplaceAll(text, {{from, to}});
    }
    const std::string path = chain().path("changed.textproto");
    WriteText(path, text);
    const Result result = RunToEnd({Shoald(), "--config", path});
    EXPECT_EQ(result.code, code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(part));
    // What a start refuses, --check refuses, too.
    const Result check = RunToEnd({Shoald(), "--config", path, "--check"});
    EXPECT_EQ(check.code, code) << check.output;
    EXPECT_THAT(check.output, HasSubstr(part));
  }

 private:
  static ProcessChain* chain_;
};
ProcessChain* ProcessTest::chain_ = nullptr;

TEST_F(ProcessTest, TheScriptStartsAndStopsAChainThatAnswers) {
  const Result started = RunToEnd({LocalChain(), "start", chain().path("")});
  ASSERT_EQ(started.code, 0) << started.output;
  ExpectServed();
  const Result status = RunToEnd({Shoal(), "status", "--config", chain().NewClient()});
  EXPECT_EQ(status.code, 0) << status.output;
  EXPECT_THAT(status.output, HasSubstr("local"));
  const Result stopped = RunToEnd({LocalChain(), "stop", chain().path("")});
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_THAT(Text(chain().path("party-1.log")), HasSubstr("no round is in the journal"));
  // No process is left, and no secret file.
  for (uint32_t party = 1; party <= kParties; ++party) {
    EXPECT_THAT(Text(chain().path(absl::StrCat("party-", party, ".log"))), HasSubstr("ending"));
    asio::io_context io;
    tcp::socket socket(io);
    boost::system::error_code error;
    socket.connect({asio::ip::make_address("127.0.0.1"), chain().port(party)}, error);
    EXPECT_TRUE(error) << "party " << party << " still listens";
  }
}

TEST_F(ProcessTest, AnOrderlyEndLeavesNothingOfARound) {
  chain().StartAll();
  ExpectServed();
  // A round that holds somebody's slots is open when the parties end.
  const Result obtained =
      RunToEnd({Shoal(), "query", "--config", chain().NewClient(), "--obtain", "8"});
  EXPECT_EQ(obtained.code, 0) << obtained.output;
  bool submissions = false;
  for (const auto& file : fs::directory_iterator(chain().state(1))) {
    submissions |= file.path().extension() == ".submissions";
  }
  EXPECT_TRUE(submissions) << "the test would not see what is left";
  for (uint32_t party = 1; party <= kParties; ++party) EXPECT_EQ(chain().Stop(party), 0);
  for (uint32_t party = 1; party <= kParties; ++party) {
    EXPECT_EQ(fs::status(chain().state(party)).permissions(), fs::perms::owner_all);
    for (const auto& file : fs::directory_iterator(chain().state(party))) {
      const std::string name = file.path().filename();
      EXPECT_TRUE(name == "journal" || name == "lock" || name == "rounds") << party << ": " << name;
    }
  }
}

TEST_F(ProcessTest, APartyThatIsDownAbortsTheRoundAndIsMissedByName) {
  chain().StartAll();
  ExpectServed();  // rounds are being opened
  ASSERT_TRUE(chain().process(1).WaitForOutput("open for onions"));
  chain().Kill(2);
  const std::string client = chain().NewClient();
  chain().SetTimeout(client, 8);
  Process query(chain().Query(client, {"key-7"}));
  EXPECT_TRUE(chain().process(1).WaitForOutput("aborted: offline stage: ")) << query.Output();
  EXPECT_THAT(chain().process(1).Output(), HasSubstr("reaching party 2: " + chain().address(2)));
  EXPECT_TRUE(chain().process(1).WaitForOutput("no round could be opened: "));
  // The frontend continues to serve, and says what is wrong.
  const Result status = RunToEnd({Shoal(), "status", "--config", chain().NewClient()});
  EXPECT_EQ(status.code, 0) << status.output;
  EXPECT_THAT(status.output, HasSubstr("reaching party 2"));
  EXPECT_THAT(query.Wait(), ::testing::Optional(1)) << query.Output();
  EXPECT_THAT(query.Output(), HasSubstr("no round took"));
  chain().Start(2);
  ExpectServed();
  chain().SetTimeout(client, 100);
  ExpectServed(client);
}

TEST_F(ProcessTest, AFrontendThatDiesComesBack) {
  chain().StartAll();
  for (int i = 0; i < 3; ++i) {
    chain().Kill(1);
    chain().Start(1);
  }
  ExpectServed();
}

TEST_F(ProcessTest, AFrontendThatEndsEndsItsRoundsEverywhere) {
  chain().StartAll();
  // More rounds than a party may have open, so none may be left behind.
  for (int i = 0; i < 18; ++i) {
    ASSERT_TRUE(chain().process(1).WaitForOutput("open for onions")) << chain().process(1).Output();
    ASSERT_EQ(chain().Stop(1), 0);
    chain().Start(1);
  }
  ExpectServed();
}

// The frontend hears within a second or two that a party came back without its rounds, and aborts
// them; it need not wait for a stage that fails after clients have sent their queries.
TEST_F(ProcessTest, APartyThatComesBackWithoutItsRoundsIsNoticed) {
  for (const uint32_t party : {2u, 3u}) {
    chain().Kill(1);
    chain().StartAll();
    ASSERT_TRUE(chain().process(1).WaitForOutput("open for onions"));
    chain().Kill(party);
    chain().Start(party);
    EXPECT_TRUE(chain().process(1).WaitForOutput(
        absl::StrCat("aborted: party ", party, " has lost the round")))
        << chain().process(1).Output();
    ExpectServed();
  }
}

TEST_F(ProcessTest, APartyThatMissedTheEndOfItsRoundsHearsOfItAgain) {
  chain().StartAll();
  ASSERT_EQ(RunToEnd({Shoal(), "query", "--config", chain().NewClient(), "--obtain", "8"}).code, 0);
  chain().process(3).Signal(SIGSTOP);
  // The frontend's last list does not arrive. The first one of the next process does.
  EXPECT_EQ(chain().Stop(1), 0);
  chain().Start(1);
  chain().process(3).Signal(SIGCONT);
  EXPECT_TRUE(chain().process(3).WaitForOutput("ended by the frontend"))
      << chain().process(3).Output();
  ExpectServed();
}

TEST_F(ProcessTest, ThePartiesEndAlthoughOneOfThemHangs) {
  chain().StartAll();
  ASSERT_TRUE(chain().process(1).WaitForOutput("open for onions"));
  chain().process(3).Signal(SIGSTOP);
  Process query(chain().Query(chain().NewClient(), {"key-7"}));
  // The offline stage, which waits for party 3, and goes on waiting until the parties end.
  const auto status = [&] {
    return RunToEnd({Shoal(), "status", "--config", chain().NewClient()}).output;
  };
  ASSERT_TRUE(Soon([&] { return absl::StrContains(status(), "sealed"); }, kLong)) << status();
  for (const uint32_t party : {1u, 2u}) {
    chain().process(party).Signal(SIGTERM);
    EXPECT_THAT(chain().process(party).Wait(), ::testing::Optional(0));
  }
  EXPECT_THAT(chain().process(1).Output(), HasSubstr("aborted: offline stage: "));
  for (const uint32_t party : {1u, 2u}) chain().Kill(party);
  chain().process(3).Signal(SIGCONT);
  query.Kill();
  chain().StartAll();
  ExpectServed();
}

TEST_F(ProcessTest, WrongFilesAreNamed) {
  chain().StartAll();
  const auto config = [](const std::string& field, const std::string& value) {
    return absl::StrCat(field, ": \"", value, "\"");
  };
  const std::vector<std::pair<std::string, std::string>> other_state = {
      {config("state_directory", "party-2.state"), config("state_directory", "other.state")}};
  const auto with = [&](const std::string& field, const std::string& from, const std::string& to) {
    auto replacements = other_state;
    replacements.emplace_back(config(field, from), config(field, to));
    return replacements;
  };
  ExpectRefused(2, with("keys_directory", "party-2", "party-3"), 1,
                "not the one that the roster pins for party 2");
  ExpectRefused(2, with("keys_directory", "party-2", "none"), 1, chain().path("none"));
  ExpectRefused(2, with("table_directory", "table", "none"), 1, chain().path("none"));
  ExpectRefused(2, with("roster_file", "roster.textproto", "none"), 1, chain().path("none"));
  ExpectRefused(2, with("pinned_parties_file", "pinned.textproto", "none"), 1,
                chain().path("none"));
  ExpectRefused(2, {{"party: 2", "party: 4"}}, 1, "the roster has 3 parties");
  ExpectRefused(2, {{"party: 2", "party: 2 unknown_field: 1"}}, 1, "changed.textproto:1:");

  // Another deployment's roster: well formed, but signed by parties that are not pinned.
  const std::string roster = Text(chain().path("roster.textproto"));
  WriteText(chain().path("altered"),
            absl::StrReplaceAll(roster, {{"max_slots: 4194304", "max_slots: 4194303"}}));
  ExpectRefused(2, with("roster_file", "roster.textproto", "altered"), 3, "signature");
  wire::PinnedParties pins;
  SHOAL_ASSERT_OK(wire::ReadTextFile(chain().path("pinned.textproto"), pins));
  pins.mutable_bls_public_keys_hex()->SwapElements(0, 1);
  WriteText(chain().path("altered"), wire::PrintText(pins));
  ExpectRefused(2, with("pinned_parties_file", "pinned.textproto", "altered"), 3, "pin");
  pins.mutable_bls_public_keys_hex()->SwapElements(0, 1);
  pins.set_minimum_roster_epoch(2);
  WriteText(chain().path("altered"), wire::PrintText(pins));
  ExpectRefused(2, with("pinned_parties_file", "pinned.textproto", "altered"), 3, "epoch");

  // Keys that others may read.
  for (const char* file : {"bls.key", "tls.key"}) {
    const fs::path key = chain().path("party-2") / file;
    fs::permissions(key, fs::perms::group_read, fs::perm_options::add);
    ExpectRefused(2, other_state, 1, key);
    fs::permissions(key, fs::perms::group_read, fs::perm_options::remove);
  }
  // A port and a directory that a running process uses.
  ExpectRefused(2, other_state, 1,
                "listening on " + chain().address(2) + ": the address is in use");
  ExpectRefused(1, {{"party-1.state", "other-1.state"}}, 1, "listening on " + chain().address(1));
  ExpectRefused(2, {{"party: 2", "listen_address: '127.0.0.1:0' party: 2"}}, 1, chain().state(2));
  ExpectRefused(2, {{"party: 2", "listen_address: 'nowhere' party: 2"}, other_state[0]}, 1,
                "'nowhere'");
  // The command line.
  EXPECT_EQ(RunToEnd({Shoald()}).code, 2);
  EXPECT_EQ(RunToEnd({Shoald(), "--config", chain().config(2), "--nonsense"}).code, 2);
  // Good files pass --check-files while the party is running. --check says all that a start would
  // be refused for.
  const Result files = RunToEnd({Shoald(), "--config", chain().config(2), "--check-files"});
  EXPECT_EQ(files.code, 0) << files.output;
  const Result check = RunToEnd({Shoald(), "--config", chain().config(2), "--check"});
  EXPECT_EQ(check.code, 1) << check.output;
  EXPECT_THAT(check.output, HasSubstr("for 2 reasons"));
  EXPECT_THAT(check.output, HasSubstr("another process uses this directory"));
  EXPECT_THAT(check.output, HasSubstr("listening on " + chain().address(2)));
}

// Clients' connections leave file descriptors for the rounds: the soft limit is raised, and with a
// low hard limit fewer connections are taken.
TEST_F(ProcessTest, TheLimitOfOpenFilesIsRaisedOrSaid) {
  chain().StartAll();
  const std::string path = chain().path("limits.textproto");
  // The run ends because the address is in use, after shoald has looked at its limits.
  WriteText(path, absl::StrReplaceAll(Text(chain().config(2)),
                                      {{"party-2.state", "limits.state"},
                                       {"party: 2", "party: 2 max_connections: 100"}}));
  const auto run = [&](const std::string& limit) {
    return RunToEnd({"/bin/sh", "-c", limit + "; exec \"$0\" --config \"$1\"", Shoald(), path});
  };
  const Result raised = run("ulimit -S -n 64");
  EXPECT_THAT(raised.output, HasSubstr("the address is in use"));
  EXPECT_THAT(raised.output, ::testing::Not(HasSubstr("open files")));
  const Result low = run("ulimit -n 64");
  EXPECT_THAT(low.output, HasSubstr("the address is in use"));
  EXPECT_THAT(low.output, HasSubstr("allows 64 open files: 32 connections are taken at a time "
                                    "instead of 100"));
}

TEST_F(ProcessTest, WhatHasExpiredIsRefused) {
  // A table with the same records, signed by the same parties, but expired.
  const SystemClock clock;
  const uint64_t yesterday_s = clock.NowSeconds() - 24 * 3600;
  SystemRandom random;
  ThreadPool pool(2);
  std::vector<roster::PartyKeys> keys;
  for (uint32_t party = 1; party <= kParties; ++party) {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        roster::PartyKeys loaded,
        roster::PartyKeys::Load(chain().path(absl::StrCat("party-", party))));
    keys.push_back(std::move(loaded));
  }
  wire::SignedRoster signed_roster;
  SHOAL_ASSERT_OK(wire::ReadTextFile(chain().path("roster.textproto"), signed_roster));
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::PinnedParties pins,
                             roster::PinnedParties::Read(chain().path("pinned.textproto")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::Roster roster,
                             roster::Roster::Verify(signed_roster, pins, clock.NowSeconds()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const table::UnsignedTable content,
                             table::BuildHashed(table::RecordSet("none"),
                                                {.name = "old",
                                                 .deployment = "local",
                                                 .created_s = yesterday_s,
                                                 .expires_s = yesterday_s + 3600,
                                                 .row_bytes = 1024},
                                                random));
  std::vector<table::TableShare> shares;
  for (const roster::PartyKeys& party : keys) {
    SHOAL_ASSERT_OK_AND_ASSIGN(table::TableShare share,
                               table::SignTable(content, nullptr, roster, party.bls(), pool));
    shares.push_back(std::move(share));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const table::Table table,
      table::AggregateTable(content, roster, shares, yesterday_s + 60, random, pool));
  SHOAL_ASSERT_OK(content.Save(chain().path("old-table")));
  SHOAL_ASSERT_OK(table.SaveSignatures(chain().path("old-table")));
  ExpectRefused(3, {{"table_directory: \"table\"", "table_directory: \"old-table\""}}, 3,
                "expired");

  wire::Roster old = signed_roster.roster();
  old.set_valid_from_s(yesterday_s);
  old.set_expires_s(yesterday_s + 3600);
  std::vector<wire::RosterShare> roster_shares;
  for (const roster::PartyKeys& party : keys) {
    SHOAL_ASSERT_OK_AND_ASSIGN(wire::RosterShare share, roster::SignRoster(old, party.bls()));
    roster_shares.push_back(std::move(share));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::SignedRoster old_signed,
                             roster::AggregateRoster(old, roster_shares));
  WriteText(chain().path("old-roster"), wire::PrintText(old_signed));
  ExpectRefused(3, {{"\"roster.textproto\"", "\"old-roster\""}}, 3, "expired");
}

// Sends garbage of many kinds to clients' and parties' ports until it is told to stop.
class Vandal {
 public:
  explicit Vandal(const ProcessChain& chain) {
    for (uint32_t party = 1; party <= kParties; ++party) {
      threads_.emplace_back([this, address = chain.address(party), port = chain.port(party)] {
        const net::testing::TestIdentity stranger(party_seed_++);
        const net::Identity identity = stranger.identity();
        while (!done_) {
          Plain(port);
          Framed(address, nullptr);
          Framed(address, &identity);
          ++rounds_;
        }
      });
    }
    // A malicious previous party, which connects with its own key.
    auto keys = roster::PartyKeys::Load(chain.path("party-1"));
    SHOAL_CHECK(keys.ok());
    threads_.emplace_back([this, address = chain.address(2), keys = *std::move(keys)] {
      const net::Identity identity = {.certificate_pem = keys.tls().certificate_pem,
                                      .private_key_pem = keys.tls().private_key_pem};
      while (!done_) Framed(address, &identity);
    });
  }
  ~Vandal() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  int rounds() const { return rounds_; }

 private:
  static void Plain(uint16_t port) {
    for (const std::string& bytes :
         {std::string(), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(50'000, '\xff'),
          std::string("\x16\x03\x01\x40\x00", 5)}) {
      asio::io_context io;
      tcp::socket socket(io);
      boost::system::error_code ignored;
      socket.connect({asio::ip::make_address("127.0.0.1"), port}, ignored);
      asio::write(socket, asio::buffer(bytes), ignored);
    }
  }
  static void Framed(const std::string& address, const net::Identity* identity) {
    using wire::FrameType;
    const std::string large((5 << 20), 'x');
    wire::OnlineRequest online;
    online.set_round_id(std::string(32, 'r'));
    for (const wire::Frame& frame : std::vector<wire::Frame>{
             {.type = FrameType::kSubmitOnions, .control = large, .bulk = {}},
             {.type = FrameType::kSubmitOnions, .control = "\xff", .bulk = {}},
             {.type = FrameType::kSubmitOnions, .control = "", .bulk = Bytes(1 << 20)},
             {.type = FrameType::kProposeRound, .control = "", .bulk = {}},
             {.type = FrameType::kOffline, .control = "\xff", .bulk = Bytes(1 << 20)},
             wire::MakeFrame(FrameType::kOnline, online, Bytes(1 << 16, 7)),
             {.type = FrameType::kLiveRounds, .control = "", .bulk = {}},
             {.type = static_cast<FrameType>(77), .control = "", .bulk = {}}}) {
      auto connection = net::Connection::Connect(
          {.address = address, .identity = identity, .connect_timeout = kLong});
      if (!connection.ok()) continue;
      const auto answer =
          (*connection)->Call(frame, {.control_bytes = 1 << 20, .bulk_bytes = 0}, kLong);
      EXPECT_FALSE(answer.ok());
      EXPECT_NE(answer.status().code(), absl::StatusCode::kDeadlineExceeded) << answer.status();
    }
  }

  std::atomic<bool> done_ = false;
  std::atomic<int> rounds_ = 0;
  std::atomic<uint64_t> party_seed_ = 100;
  std::vector<std::thread> threads_;
};

TEST_F(ProcessTest, GarbageOnThePortsDisturbsNobodyElse) {
  chain().StartAll();
  {
    Vandal vandal(chain());
    ExpectServed();
    EXPECT_TRUE(Soon([&] { return vandal.rounds() > 0; }, kLong));
    ExpectServed();
  }
  for (uint32_t party = 1; party <= kParties; ++party) {
    EXPECT_FALSE(chain().process(party).Wait(0ms).has_value()) << chain().process(party).Output();
  }
  ExpectServed();
}

TEST_F(ProcessTest, AClientThatIsKilledGoesOnAndNobodyWaitsForIt) {
  chain().StartAll();
  const std::string killed = chain().NewClient();
  {
    // Clients are killed at different points: while they take slots, send queries, and wait for
    // answers.
    for (const char* point :
         {"obtaining", "to take queries", "sending", "waiting for the answers"}) {
      Process query(chain().Query(killed, {"key-7", "key-199", "no-such-key"}));
      (void)query.WaitForOutput(point);
      query.Kill();
    }
  }
  // A client submits half and never comes back.
  {
    auto connection = net::Connection::Connect({.address = chain().address(1)});
    SHOAL_ASSERT_OK(connection);
    EXPECT_THAT((*connection)
                    ->Call({.type = wire::FrameType::kSubmitOnions,
                            .control = std::string((4 << 20) - 1, 'x'),
                            .bulk = {}},
                           {}, 1ms),
                ::testing::Not(::shoal::testing::IsOk()));
  }
  ExpectServed(killed);
  ExpectServed();
}

}  // namespace
}  // namespace shoal::sim
