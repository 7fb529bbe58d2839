// Single-server engines with real processes: shoald and shoal as users run them, over TLS, on a
// signed table. Also with the chain on the same port, with damaged files, and with requests that no
// client sends.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/net/connection.h"
#include "src/pir/lwe/family.h"
#include "src/sim/processes.h"
#include "src/wire/frame.h"
#include "src/wire/pir.pb.h"

namespace shoal::sim {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::StatusIs;
using wire::FrameType;
using namespace std::chrono_literals;

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Words kSimple = {"--engine", "simplepir"};

// Two parties' keys, roster and table in a directory; shoald of party 1, and of party 2 for the
// chain.
class Deployment {
 public:
  // Keys are the numbers below `records`.
  Deployment(const std::string& name, int records, const Words& table_options,
             const std::string& engine = "simplepir")
      : port_(FreePorts(3)), directory_(fs::path(::testing::TempDir()) / name) {
    const Result created = RunToEnd(
        Words{LocalChain(), "create", directory_, "--parties", "2", "--port", absl::StrCat(port_),
              "--protect", "lookup", "--rounds",
              "onions_window_s: 20 onions_count: 16 queries_window_s: 15 queries_count: 16 "
              "answers_window_s: 60",
              "--", "--tsv", Records(records), "--name", "numbers"} +
        table_options);
    Require(created.code == 0, created.output);
    const Result engine_signed = RunToEnd({LocalChain(), "engine", directory_, engine});
    Require(engine_signed.code == 0, engine_signed.output);
  }

  fs::path path(const std::string& name) const { return directory_ / name; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Where party 2 listens for clients of its engines.
  std::string engine_address() const { return absl::StrCat("127.0.0.1:", port_ + 2); }

  // A TSV file: "KEY<tab>value KEY", but `hundredth` in place of "value" for every hundredth.
  std::string Records(int records, const std::string& hundredth = "value") const {
    std::string text;
    for (int i = 0; i < records; ++i) {
      absl::StrAppend(&text, i, "\t", i % 100 == 0 ? hundredth : "value", " ", i, "\n");
    }
    const fs::path file = fs::path(::testing::TempDir()) / "records.tsv";
    WriteText(file, text);
    return file;
  }
  // A signed table in the directory `name`, with its setup of simplepir, which follows that in
  // `previous` if it is named.
  void MakeTable(const std::string& name, const Words& options, const std::string& previous = "") {
    const Words after = previous.empty() ? Words{} : Words{"--previous", path(previous)};
    const Words trust = {"--roster", path("roster.textproto"), "--pinned",
                         path("pinned.textproto")};
    std::vector<Words> commands = {
        Words{Shoal(), "table", "build", "--deployment", "local", "--out", path(name)} + options +
        after};
    for (const char* party : {"party-1", "party-2"}) {
      commands.push_back(Words{Shoal(), "table", "sign", path(name), "--keys", path(party)} +
                         trust + after);
    }
    commands.push_back(Words{Shoal(), "table", "aggregate", path(name)} + trust);
    for (const char* party : {"party-1", "party-2"}) {
      commands.push_back(Words{Shoal(), "table", "sign-engine", path(name), "--keys", path(party)} +
                         kSimple + Words{"--products", path(absl::StrCat(party, ".products"))} +
                         trust + after);
    }
    commands.push_back(Words{Shoal(), "table", "aggregate-engine", path(name)} + kSimple + trust);
    for (const Words& command : commands) {
      const Result result = RunToEnd(command);
      Require(result.code == 0, result.output);
    }
  }

  Words Server(uint32_t party, const Words& options) const {
    return Words{Shoald(), "--config", path(absl::StrCat("party-", party, ".textproto"))} + options;
  }
  Process Start(uint32_t party, const Words& options) const {
    Process process(Server(party, options));
    Require(process.WaitForOutput("listens on"), process.Output());
    return process;
  }
  // A client of its own: configuration and state. Its hint is at PATH.state.simplepir.hint and so
  // on.
  std::string NewClient() {
    const std::string name = absl::StrCat("client-", ++clients_);
    WriteText(
        path(name + ".textproto"),
        absl::StrCat("frontend: '", address(), "' pinned_parties_file: 'pinned.textproto' state: '",
                     name, ".state' pad_to: 16 timeout_s: 100"));
    return name;
  }
  Result Query(const std::string& client, const Words& options) const {
    return RunToEnd(Words{Shoal(), "query", "--config", path(client + ".textproto")} + options);
  }

 private:
  const uint16_t port_;
  const fs::path directory_;
  int clients_ = 0;
};

class EngineProcessTest : public ::testing::Test {
 protected:
  // Keys are hashed into rows: a key that is not there is proved absent by a signed row.
  static void SetUpTestSuite() {
    deployment_ = new Deployment("hashed", 400, {"--row-bytes", "256"});
  }
  static void TearDownTestSuite() {
    delete deployment_;
    deployment_ = nullptr;
  }
  static Deployment& deployment() { return *deployment_; }

  // Returns what the command said.
  static std::string ExpectServed(const std::string& client, const Words& options = kSimple) {
    const Result result = deployment().Query(client, options + Words{"7", "399", "no-such-key"});
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr("7\tfound\tvalue 7\tyes\n"));
    EXPECT_THAT(result.output, HasSubstr("399\tfound\tvalue 399\tyes\n"));
    EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
    return result.output;
  }

 private:
  static Deployment* deployment_;
};
Deployment* EngineProcessTest::deployment_ = nullptr;

TEST_F(EngineProcessTest, OneServerAlone) {
  Process server = deployment().Start(1, kSimple);
  const std::string client = deployment().NewClient();
  // Before the hint is fetched, it is said that there is an engine without one.
  EXPECT_THAT(ExpectServed(client),
              AllOf(Not(HasSubstr("(0 B fetched)")), HasSubstr("hintless would take")));
  const std::string output = ExpectServed(client);
  EXPECT_THAT(output, AllOf(HasSubstr("(0 B fetched)"), Not(HasSubstr("hintless would take"))));
  // The names that every engine's costs have.
  for (const char* cost :
       {"costs: setup_seconds 0.", ", open_seconds 0.", ", hint_bytes ", ", hint_memory_bytes ",
        ", query_bytes ", ", answer_bytes ", ", server_bytes ", ", query_seconds 0.",
        ", answer_seconds ", ", recover_seconds 0."}) {
    EXPECT_THAT(output, HasSubstr(cost));
  }

  // An interrupted download is continued.
  const fs::path hint = deployment().path(client + ".state.simplepir.hint");
  const auto hint_bytes = fs::file_size(hint);
  ASSERT_GT(hint_bytes, 100'000u);
  fs::resize_file(hint, hint_bytes - 2000);
  EXPECT_THAT(ExpectServed(client), HasSubstr("(2.0 kB fetched)"));
  EXPECT_EQ(fs::file_size(hint), hint_bytes);
  // A damaged hint is fetched again, once.
  std::string content = Text(hint);
  content[content.size() / 2] ^= 1;
  WriteText(hint, content);
  EXPECT_THAT(ExpectServed(client), Not(HasSubstr("(0 B fetched)")));
  EXPECT_THAT(ExpectServed(client), HasSubstr("(0 B fetched)"));
  const fs::path setup = deployment().path(client + ".state.simplepir.setup");
  WriteText(setup, "nonsense");
  ExpectServed(client);
  // A hint that cannot be written still answers the query, with a warning.
  fs::remove(setup);
  fs::create_directory(setup);
  EXPECT_THAT(ExpectServed(client),
              HasSubstr("warning: simplepir: what was fetched cannot be kept"));

  // Without a chain there are no rounds, and no other engine.
  const Result chain = deployment().Query(client, {"7"});
  EXPECT_EQ(chain.code, 1) << chain.output;
  EXPECT_THAT(chain.output, HasSubstr("no chain"));
  const Result other = deployment().Query(client, {"--engine", "doublepir", "7"});
  EXPECT_EQ(other.code, 1) << other.output;
  EXPECT_THAT(other.output, HasSubstr("it runs simplepir"));
  const Result unknown = deployment().Query(client, {"--engine", "triplepir", "7"});
  EXPECT_EQ(unknown.code, 2) << unknown.output;
  EXPECT_THAT(unknown.output, HasSubstr("there are chain, simplepir, doublepir, piano, treepir, "
                                        "permuted, smallpir, hintless and pair"));

  server.Signal(SIGTERM);
  EXPECT_THAT(server.Wait(), ::testing::Optional(0)) << server.Output();
}

// The engines over rings keep nothing at their client, and no hint travels.
TEST(EngineProcess, RingEnginesServeClientsThatKeepNothing) {
  for (const std::string engine : {"smallpir", "hintless"}) {
    Deployment deployment(engine, 60, {"--row-bytes", "64"}, engine);
    const Process server = deployment.Start(1, {"--engine", engine});
    const std::string client = deployment.NewClient();
    const Words query = {"--engine", engine, "7", "59", "no-such-key"};
    for (int run = 0; run < 2; ++run) {
      const Result result = deployment.Query(client, query);
      EXPECT_EQ(result.code, 0) << result.output;
      EXPECT_THAT(result.output, HasSubstr("7\tfound\tvalue 7\tyes\n"));
      EXPECT_THAT(result.output, HasSubstr("59\tfound\tvalue 59\tyes\n"));
      EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
    }
    EXPECT_FALSE(fs::exists(deployment.path(client + ".state." + engine + ".hint")));

    const Result crowd =
        RunToEnd({Shoal(), "simulate", "--config", deployment.path(client + ".textproto"),
                  "--table", deployment.path("table"), "--engine", engine, "--devices", "3",
                  "--apps", "2", "--pad", "4"});
    EXPECT_EQ(crowd.code, 0) << crowd.output;
    EXPECT_THAT(crowd.output, HasSubstr("queries\t12\n"));
    EXPECT_THAT(crowd.output, HasSubstr("cost_hint_bytes\t0\n"));
  }
}

// DoublePIR on rows as narrow as it needs them: its hint has 7.9 MiB for every byte of a record.
TEST(EngineProcess, DoublePirServesNarrowRows) {
  Deployment deployment("narrow", 60, {"--row-bytes", "16"}, "doublepir");
  const Process server = deployment.Start(1, {"--engine", "doublepir"});
  const std::string client = deployment.NewClient();
  const Words query = {"--engine", "doublepir", "7", "59", "no-such-key"};
  const Result result = deployment.Query(client, query);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("7\tfound\tvalue 7\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("59\tfound\tvalue 59\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
  EXPECT_GT(fs::file_size(deployment.path(client + ".state.doublepir.hint")), 400u << 20);
  fs::remove(deployment.path(client + ".state.doublepir.hint"));
}

// Piano: two sessions that `shoal prepare` fills and `shoal query` spends.
TEST(EngineProcess, PianoIsPreparedAndAsked) {
  Deployment deployment("piano", 60, {"--row-bytes", "64"}, "piano");
  Process server = deployment.Start(1, {"--engine", "piano"});
  const std::string client = deployment.NewClient();
  const auto prepare = [&](const Words& options) {
    return RunToEnd(Words{Shoal(), "prepare", "--config", deployment.path(client + ".textproto")} +
                    options);
  };
  const auto query = [&](const Words& options) {
    return deployment.Query(client, Words{"--engine", "piano"} + options);
  };
  const auto prepared = [&](const Words& options = {}) {
    const Result result = prepare(Words{"--engine", "piano"} + options);
    EXPECT_EQ(result.code, 0) << result.output;
    const size_t at = result.output.find("queries\t");
    EXPECT_NE(at, std::string::npos) << result.output;
    return at == std::string::npos ? 0 : std::stoi(result.output.substr(at + 8));
  };
  const int queries = prepared();
  ASSERT_GT(queries, 10);
  EXPECT_EQ(prepared(), 2 * queries) << "the second session";
  EXPECT_EQ(prepared(), 2 * queries) << "nothing to do";

  const Result result = query({"7", "59", "no-such-key"});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("7\tfound\tvalue 7\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("59\tfound\tvalue 59\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr(absl::StrCat(queries - 3, " queries are left")));
  EXPECT_EQ(prepared(), 2 * queries - 3);

  // All of the second session, as the first one has too few. Then there is none with so many.
  const Words many = {"--pad", std::to_string(queries), "8"};
  const Result all = query(many);
  EXPECT_EQ(all.code, 0) << all.output;
  EXPECT_THAT(all.output, HasSubstr("8\tfound\tvalue 8\tyes\n"));
  EXPECT_THAT(all.output, HasSubstr(": 0 queries are left"));
  const Result refused = query(many);
  EXPECT_EQ(refused.code, 1) << refused.output;
  EXPECT_THAT(refused.output,
              HasSubstr(absl::StrCat(queries - 3, " are left of what was prepared")));
  EXPECT_THAT(refused.output, HasSubstr("`shoal prepare --engine piano` prepares the next"));
  EXPECT_EQ(prepared(), 2 * queries - 3);
  EXPECT_EQ(query(many).code, 0);

  // A copy that is brought back is given up, with its queries.
  const fs::path session = deployment.path(client + ".state.piano.session");
  const std::string old = Text(session);
  EXPECT_EQ(query({"9"}).code, 0);
  WriteText(session, old);
  const Result again = query({"9"});
  EXPECT_EQ(again.code, 1) << again.output;
  EXPECT_THAT(again.output, HasSubstr("is an old copy"));
  EXPECT_THAT(again.output, HasSubstr(" 0 are left of what was prepared; `shoal prepare"));
  EXPECT_EQ(prepared(), queries);
  EXPECT_EQ(prepared({"--anew"}), queries);
  // A client that never prepared does so first.
  const Result first = deployment.Query(deployment.NewClient(), {"--engine", "piano", "9"});
  EXPECT_EQ(first.code, 0) << first.output;
  EXPECT_THAT(first.output, HasSubstr("nothing is prepared yet"));
  EXPECT_THAT(first.output, HasSubstr("9\tfound\tvalue 9\tyes\n"));

  for (const Words& wrong : {Words{}, Words{"--engine", "simplepir"}, Words{"--engine", "chain"}}) {
    EXPECT_EQ(prepare(wrong).code, 2);
  }
  server.Signal(SIGTERM);
  EXPECT_THAT(server.Wait(), ::testing::Optional(0)) << server.Output();
}

void ExpectRefused(const Result& result, int code, const char* says) {
  EXPECT_EQ(result.code, code) << result.output;
  EXPECT_THAT(result.output, HasSubstr(says));
}

// Of a query for 7, 59 and a key that the table does not have.
void ExpectServedByTwo(const Result& result) {
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("7\tfound\tvalue 7\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("59\tfound\tvalue 59\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("no-such-key\tabsent\t\tyes\n"));
  EXPECT_THAT(result.output, HasSubstr("both together learn everything"));
}

// TreePIR, permuted: two parties that the client names, one of which makes its hints.
class TwoServers : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Engines, TwoServers, ::testing::Values("treepir", "permuted"));

TEST_P(TwoServers, AreThePartiesThatTheClientNames) {
  const std::string name = GetParam();
  const Words engine = {"--engine", name}, both = {"--party", "1", "--party", "2"};
  Deployment deployment(name, 60, {"--row-bytes", "64"}, name);
  const Process first = deployment.Start(1, engine);
  std::optional<Process> second(deployment.Start(2, engine));
  const std::string client = deployment.NewClient();
  const auto prepare = [&](const Words& options) {
    return RunToEnd(Words{Shoal(), "prepare", "--config", deployment.path(client + ".textproto")} +
                    engine + options);
  };
  const auto query = [&](const Words& options) {
    return deployment.Query(client, engine + options);
  };

  // Nobody chooses them but the client.
  ExpectRefused(query({"7"}), 1, "offline_party and online_party in the configuration");
  ExpectRefused(query({"--party", "1", "7"}), 2, " takes 2, not 1");
  ExpectRefused(query({"--party", "2", "--party", "2", "7"}), 2, "one party must not be both");
  ExpectRefused(query({"--party", "1", "--party", "3", "7"}), 1, "party 3");

  const Result prepared = prepare(both);
  EXPECT_EQ(prepared.code, 0) << prepared.output;
  EXPECT_THAT(prepared.output, HasSubstr("queries\tunlimited"));
  EXPECT_THAT(prepared.output, HasSubstr("party 1 is the offline server, party 2 the online"));
  EXPECT_THAT(prepared.output, HasSubstr("both together learn everything"));
  EXPECT_THAT(prepare(both).output, HasSubstr("there is nothing to do"));

  const auto served = [&](const Words& options) {
    ExpectServedByTwo(query(options + Words{"7", "59", "no-such-key"}));
  };
  served(both);
  // A session's offline server knows its sets: it must never be asked as the online one.
  ExpectRefused(query({"--party", "2", "--party", "1", "7"}), 1, "in swapped roles");

  // Without one of them nothing is asked.
  second->Signal(SIGTERM);
  EXPECT_THAT(second->Wait(), ::testing::Optional(0)) << second->Output();
  second.reset();
  EXPECT_EQ(query(both + Words{"7"}).code, 1);
  second.emplace(deployment.Start(2, engine));
  served(both);

  // The configuration can name them.
  const fs::path config = deployment.path(client + ".textproto");
  const std::string text = Text(config);
  WriteText(config, text + " offline_party: 1 online_party: 2");
  served({});
  WriteText(config, text + " offline_party: 2 online_party: 2");
  ExpectRefused(query({"7"}), 1, "online_party");
}

// pair: two parties that the client names. Nothing is prepared or kept, so that the parties may
// change their roles from one lookup to the next.
TEST(EngineProcess, PairAsksTwoPartiesAndKeepsNothing) {
  const Words engine = {"--engine", "pair"}, both = {"--party", "1", "--party", "2"};
  Deployment deployment("pair", 60, {"--row-bytes", "64"}, "pair");
  const Process first = deployment.Start(1, engine);
  std::optional<Process> second(deployment.Start(2, engine));
  const std::string client = deployment.NewClient();
  const auto query = [&](const Words& options) {
    return deployment.Query(client, engine + options);
  };
  ExpectRefused(query({"7"}), 1, "offline_party and online_party in the configuration");
  ExpectRefused(query({"--party", "1", "7"}), 2, " takes 2, not 1");
  ExpectRefused(query({"--party", "2", "--party", "2", "7"}), 2, "one party must not be both");
  const Words with_config = {"--config", deployment.path(client + ".textproto")};
  ExpectRefused(RunToEnd(Words{Shoal(), "prepare"} + with_config + engine + both), 2,
                "pair prepares nothing");

  const auto served = [&](const Words& options) {
    ExpectServedByTwo(query(options + Words{"7", "59", "no-such-key"}));
  };
  served(both);
  served({"--party", "2", "--party", "1"});
  for (const auto& file : fs::directory_iterator(deployment.path(""))) {
    EXPECT_THAT(file.path().filename().string(), Not(HasSubstr("state.pair")));
  }

  const Result crowd = RunToEnd(
      Words{Shoal(), "simulate"} + with_config +
      Words{"--table", deployment.path("table"), "--devices", "3", "--apps", "2", "--pad", "4"} +
      engine + both);
  EXPECT_EQ(crowd.code, 0) << crowd.output;
  EXPECT_THAT(crowd.output, HasSubstr("queries\t12\n"));
  EXPECT_THAT(crowd.output, HasSubstr("cost_hint_bytes\t0\n"));

  // Without one of them there is no answer.
  second->Signal(SIGTERM);
  EXPECT_THAT(second->Wait(), ::testing::Optional(0)) << second->Output();
  EXPECT_EQ(query(both + Words{"7"}).code, 1);
  second.emplace(deployment.Start(2, engine));
  served(both);
}

// The product that makes a start slow is kept for the next start. A product that is damaged or
// another table's is recognised.
TEST_F(EngineProcessTest, ARestartTakesTheHintFromDisk) {
  const fs::path file = deployment().path("party-1.state") / "simplepir.product";
  fs::remove(file);
  const std::string client = deployment().NewClient();
  const auto restart = [&] {
    Process server = deployment().Start(1, kSimple);
    ExpectServed(client);
    return server.Output();
  };
  EXPECT_THAT(restart(), Not(HasSubstr("is taken from")));
  ASSERT_TRUE(fs::exists(file));
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_THAT(restart(), HasSubstr("the hint of this table is taken from"));
  const std::string good = Text(file);
  for (size_t at : {size_t{3}, size_t{20}, size_t{50}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] ^= 4;
    WriteText(file, bad);
    EXPECT_THAT(restart(), Not(HasSubstr("is taken from"))) << "byte " << at;
    EXPECT_EQ(Text(file), good) << "not made anew";
  }
  WriteText(file, good.substr(0, good.size() - 4));
  EXPECT_THAT(restart(), HasSubstr("made anew: DATA_LOSS"));
  fs::permissions(file, fs::perms::others_read, fs::perm_options::add);
  EXPECT_THAT(restart(), HasSubstr("made anew: PERMISSION_DENIED"));
  EXPECT_THAT(restart(), HasSubstr("is taken from"));
}

TEST_F(EngineProcessTest, RequestsThatNoClientSendsAreRefused) {
  Process server = deployment().Start(1, kSimple);
  auto connection = net::Connection::Connect({.address = deployment().address()});
  SHOAL_ASSERT_OK(connection);
  const auto call = [&](FrameType type, const google::protobuf::MessageLite& message,
                        Bytes bulk = {}) {
    return (*connection)
        ->Call(wire::MakeFrame(type, message, std::move(bulk)),
               {.control_bytes = 1 << 20, .bulk_bytes = 1 << 20}, kLong);
  };
  wire::GetPirSetupRequest setup_request;
  setup_request.set_engine("simplepir");
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::Frame frame, call(FrameType::kGetPirSetup, setup_request));
  wire::GetPirSetupResponse response;
  SHOAL_ASSERT_OK(wire::ParseFrame(frame, FrameType::kGetPirSetup, response));
  const wire::PirSetup& setup = response.setup().setup();
  SHOAL_ASSERT_OK_AND_ASSIGN(const pir::Sizes sizes, pir::lwe::SimplePir().SizesOf(setup));

  // A query that the server takes: a header, and any words.
  const auto query_of = [&](const wire::PirSetup& of) {
    Bytes query;
    AppendLe<uint64_t>(query, of.epoch());
    Append(query, pir::SetupId(of));
    query.resize(sizes.query_bytes, 0x5a);
    return query;
  };
  wire::PirQueryRequest request;
  request.set_engine("simplepir");
  request.set_count(1);
  const auto ask = [&](Bytes query) {
    return call(FrameType::kPirQuery, request, std::move(query)).status();
  };
  SHOAL_EXPECT_OK(ask(query_of(setup)));
  wire::PirSetup other = setup;
  other.set_epoch(setup.epoch() + 1);
  EXPECT_THAT(ask(query_of(other)), StatusIs(absl::StatusCode::kFailedPrecondition, "epoch 2"));
  other = setup;
  other.set_rows_per_column(setup.rows_per_column() + 1);
  EXPECT_THAT(ask(query_of(other)),
              StatusIs(absl::StatusCode::kFailedPrecondition, "set of parameters"));
  Bytes query = query_of(setup);
  query.pop_back();
  EXPECT_THAT(ask(query), StatusIs(absl::StatusCode::kInvalidArgument, "bytes, not"));
  EXPECT_THAT(ask({}), StatusIs(absl::StatusCode::kInvalidArgument, ""));
  request.set_engine("doublepir");
  EXPECT_THAT(ask(query_of(setup)), StatusIs(absl::StatusCode::kNotFound, "it runs simplepir"));
  request.set_engine("nonsense");
  EXPECT_THAT(ask(query_of(setup)), StatusIs(absl::StatusCode::kNotFound, "it runs simplepir"));
  request.set_engine("simplepir");
  request.set_role("offline");
  EXPECT_THAT(ask(query_of(setup)), StatusIs(absl::StatusCode::kInvalidArgument, "offline"));
  request.clear_role();
  wire::GetPirHintRequest hint;
  hint.set_setup_id(ToString(pir::SetupId(other)));
  EXPECT_THAT(call(FrameType::kGetPirHint, hint).status(),
              StatusIs(absl::StatusCode::kNotFound, "setup"));
  wire::GetPirDeltaRequest delta;
  delta.set_engine("simplepir");
  delta.set_from_setup_id("x");
  EXPECT_THAT(call(FrameType::kGetPirDelta, delta).status(),
              StatusIs(absl::StatusCode::kNotFound, "fetch the hint"));
  ExpectServed(deployment().NewClient());
  EXPECT_FALSE(server.Wait(0ms).has_value()) << server.Output();
}

TEST_F(EngineProcessTest, ChainAndEngineOnOnePort) {
  Process backend = deployment().Start(2, {});
  Process frontend = deployment().Start(1, {"--engine", "chain", "--engine", "simplepir"});
  const std::string client = deployment().NewClient();
  ExpectServed(client);
  // There is no next epoch in the directory.
  for (Process* party : {&backend, &frontend}) {
    party->Signal(SIGHUP);
    EXPECT_TRUE(party->WaitForOutput("is not after epoch 1, which is served")) << party->Output();
  }
  ExpectServed(client, {});
  ExpectServed(client);
  for (Process* party : {&frontend, &backend}) {
    party->Signal(SIGTERM);
    EXPECT_THAT(party->Wait(), ::testing::Optional(0)) << party->Output();
  }
}

// Any party that has a client_address can serve an engine, alone or beside the chain.
TEST_F(EngineProcessTest, AnotherPartyServesTheEngine) {
  const std::string client = deployment().NewClient();
  {
    const Process other = deployment().Start(2, kSimple);
    // Its address is in the client's configuration: no other party runs.
    const std::string config = Text(deployment().path(client + ".textproto"));
    std::string changed = config;
    const std::string address = deployment().address();
    changed.replace(changed.find(address), address.size(), deployment().engine_address());
    WriteText(deployment().path(client + ".textproto"), changed);
    ExpectServed(client);
    // It is not the frontend, and says so.
    const Result chain = deployment().Query(client, {"7"});
    EXPECT_EQ(chain.code, 1) << chain.output;
    EXPECT_THAT(chain.output, HasSubstr("the chain begins at party 1"));
    WriteText(deployment().path(client + ".textproto"), config);
  }
  const Process backend = deployment().Start(2, {"--engine", "chain", "--engine", "simplepir"});
  const Process frontend = deployment().Start(1, {});
  ExpectServed(client, kSimple + Words{"--party", "2"});
  ExpectServed(client, {});
  const auto refused = [&](const Words& options, int code, const std::string& part) {
    const Result result = deployment().Query(client, options + Words{"7"});
    EXPECT_EQ(result.code, code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(part));
  };
  refused(kSimple, 1, "runs no engine");
  refused(kSimple + Words{"--party", "3"}, 1, "the parties 1 to 2");
  refused(kSimple + Words{"--party", "two"}, 2, "whole number");
  refused(kSimple + Words{"--party", "1", "--party", "2"}, 2, "simplepir takes 1, not 2");
  refused({"--party", "2"}, 2, "goes with --engine");
}

TEST_F(EngineProcessTest, WhatCannotBeServedIsSaidAtTheStart) {
  const auto refused = [&](uint32_t party, const Words& options, int code,
                           const std::string& part) {
    const Result result = RunToEnd(deployment().Server(party, options));
    EXPECT_EQ(result.code, code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(part));
  };
  refused(1, {"--engine", "triplepir"}, 2,
          "there are chain, simplepir, doublepir, piano, treepir, permuted, smallpir, hintless and "
          "pair");
  refused(1, Words{"--max-hint-mib", "0"} + kSimple, 1, "larger than the allowed 0 MiB");
  refused(1, {"--engine", "doublepir"}, 1,
          "the parties have not signed this table's setup of doublepir (shoal table sign-engine");
  const Result wide = RunToEnd({LocalChain(), "engine", deployment().path(""), "doublepir"});
  EXPECT_EQ(wide.code, 1) << wide.output;
  EXPECT_THAT(wide.output, HasSubstr("use simplepir for wide rows"));
  // Rows of 64 KiB: the second level would have a terabyte.
  deployment().MakeTable(
      "wide", {"--tsv", deployment().Records(20), "--name", "wide", "--row-bytes", "65536"});
  const Words trust = {"--roster", deployment().path("roster.textproto"), "--pinned",
                       deployment().path("pinned.textproto")};
  const Result result = RunToEnd(
      Words{Shoal(), "table", "sign-engine", deployment().path("wide"), "--engine", "doublepir",
            "--max-hint-mib", "99999999999999999", "--keys", deployment().path("party-1")} +
      trust);
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("doublepir: the server takes"));
  EXPECT_THAT(result.output, HasSubstr("MiB are available"));
}

// A party signs one setup of an engine for an epoch; all parties make the same one.
TEST(EngineProcess, EveryPartySignsTheSetup) {
  Deployment deployment("signed-setups", 300, {"--row-bytes", "64"});
  const Words trust = {"--roster", deployment.path("roster.textproto"), "--pinned",
                       deployment.path("pinned.textproto")};
  const auto run = [&](const Words& words, int code, const std::string& part) {
    const Result result = RunToEnd(Words{Shoal(), "table"} + words + trust);
    EXPECT_EQ(result.code, code) << result.output;
    EXPECT_THAT(result.output, HasSubstr(part));
  };
  const auto sign = [&](const std::string& table, const std::string& party,
                        const Words& options = {}) {
    return Words{"sign-engine", deployment.path(table), "--keys", deployment.path(party)} +
           kSimple + options;
  };
  run({"verify", deployment.path("table")}, 0, "verified\tsimplepir\ta hint of ");
  // The same again is the same signature.
  const fs::path share = deployment.path("table") / "shares" / "party-1.simplepir.textproto";
  const std::string before = Text(share);
  run(sign("table", "party-1"), 0, "party-1.simplepir.textproto");
  EXPECT_EQ(Text(share), before);
  run({"sign-engine", deployment.path("table"), "--keys", deployment.path("party-1"), "--engine",
       "chain"},
      2, "the chain has no setup to sign");
  run(sign("table", "party-1", {"--previous", deployment.path("table")}), 1,
      "is no earlier epoch of the same table");
  deployment.MakeTable("next", {"--tsv", deployment.Records(300, "other")}, "table");
  // A party whose products are good, and whose copy of the epoch before is not: a hint that is
  // brought forward from it would be wrong.
  const fs::path shares = deployment.path("next") / "shares";
  const fs::path signatures = deployment.path("table") / "signatures.bin";
  const std::string good = Text(signatures);
  std::string bad = good;
  bad[50] ^= 1;
  WriteText(signatures, bad);
  run(sign("next", "party-1",
           {"--previous", deployment.path("table"), "--products",
            deployment.path("party-1.products")}),
      3, "row 1");
  WriteText(signatures, good);
  run(sign("next", "party-1", {"--previous", ""}), 1, "");
  // Another party has signed with a delta.
  run(sign("next", "party-1"), 1, "party 2 (party-2) signed another setup, with a delta");
  fs::remove(shares / "party-2.simplepir.textproto");
  run(Words{"aggregate-engine", deployment.path("next")} + kSimple, 1,
      "the share of party 2 (party-2) is missing");
  // It has signed this epoch with a delta, and signs none without.
  run(sign("next", "party-1"), 3, "a second content for epoch 2");
  // A setup that was changed after it was signed.
  std::string text = Text(deployment.path("next") / "simplepir.setup.textproto");
  const size_t at = text.find("rows_per_column: ");
  ASSERT_NE(at, std::string::npos) << text;
  text.insert(at + 17, "1");
  WriteText(deployment.path("next") / "simplepir.setup.textproto", text);
  run({"verify", deployment.path("next")}, 1, "");
}

// SIGHUP takes the table's next epoch without interrupting the service, and a client fetches what
// changed. For hashed keys, the next table is built with --previous.
TEST(EngineProcess, TheNextEpochIsTakenOnHangUp) {
  for (const Words& layout :
       {Words{"--layout", "dense", "--row-bytes", "64"}, Words{"--row-bytes", "256"}}) {
    SCOPED_TRACE(layout[1]);
    Deployment deployment("epochs-" + layout[1], 3000, layout);
    Process server = deployment.Start(1, kSimple);
    const std::string client = deployment.NewClient();
    const auto query = [&](const std::string& key) {
      const Result result = deployment.Query(client, kSimple + Words{key});
      EXPECT_EQ(result.code, 0) << result.output;
      return result.output;
    };
    EXPECT_THAT(query("100"), HasSubstr("100\tfound\tvalue 100\tyes\n"));
    EXPECT_THAT(query("3000"), HasSubstr("3000\tabsent\t\tyes\n"));

    // There is nothing new in the directory.
    server.Signal(SIGHUP);
    ASSERT_TRUE(server.WaitForOutput("the table was not reloaded")) << server.Output();
    // If the new table is damaged, the old one stays in service.
    const fs::path table = deployment.path("table");
    fs::rename(table, deployment.path("before"));
    server.Signal(SIGHUP);
    ASSERT_TRUE(server.WaitForOutput(table)) << server.Output();
    EXPECT_THAT(query("100"), HasSubstr("100\tfound\tvalue 100\tyes\n"));
    // A table that is too large for the memory is refused by its manifest, at a start too.
    std::string manifest = Text(deployment.path("before") / "manifest.textproto");
    for (const std::string field : {"  rows: ", "  records: "}) {
      const size_t at = manifest.find(field);
      ASSERT_NE(at, std::string::npos) << manifest;
      manifest.replace(at, manifest.find('\n', at) - at, field + "2000000000");
    }
    if (const size_t at = manifest.find("records_per_row: "); at != std::string::npos) {
      manifest.replace(at, manifest.find('\n', at) - at, "records_per_row: 1");
    }
    fs::create_directory(table);
    WriteText(table / "manifest.textproto", manifest);
    server.Signal(SIGHUP);
    ASSERT_TRUE(server.WaitForOutput("the table takes ")) << server.Output();
    EXPECT_THAT(server.Output(), HasSubstr("MiB are available"));
    EXPECT_THAT(query("101"), HasSubstr("101\tfound\tvalue 101\tyes\n"));
    const Result refused = RunToEnd(deployment.Server(1, kSimple));
    EXPECT_EQ(refused.code, 1) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("the table takes "));
    fs::remove_all(table);

    deployment.MakeTable("table", Words{"--tsv", deployment.Records(2500, "other")} + layout,
                         "before");
    server.Signal(SIGHUP);
    ASSERT_TRUE(server.WaitForOutput("serves epoch 2 of the table")) << server.Output();
    const std::string output = query("100");
    EXPECT_THAT(output, HasSubstr("100\tfound\tother 100\tyes\n"));
    EXPECT_THAT(output, HasSubstr("fetched as a delta"));
    EXPECT_THAT(query("101"), HasSubstr("101\tfound\tvalue 101\tyes\n"));
    // A client that comes for the first time.
    const Result fresh = deployment.Query(deployment.NewClient(), kSimple + Words{"200"});
    EXPECT_THAT(fresh.output, HasSubstr("200\tfound\tother 200\tyes\n"));

    // After a restart the server has the same hint, though there are fewer rows than at its first
    // start.
    server.Signal(SIGTERM);
    ASSERT_TRUE(server.Wait().has_value()) << server.Output();
    const Process again = deployment.Start(1, kSimple);
    EXPECT_THAT(again.Output(), HasSubstr("is taken from"));
    EXPECT_THAT(query("300"), HasSubstr("(0 B fetched)"));
  }
}

// With the chain and an engine in one process, both take the next epoch or neither does. Clients of
// the engine fetch what changed, and those of the chain find the new rows in the next round.
TEST(EngineProcess, ChainAndEngineTakeTheNextEpochTogether) {
  const Words dense = {"--layout", "dense", "--row-bytes", "64"};
  Deployment deployment("both", 3000, dense);
  Process backend = deployment.Start(2, {"--engine", "chain", "--engine", "simplepir"});
  Process frontend = deployment.Start(1, {"--engine", "chain", "--engine", "simplepir"});
  const std::string client = deployment.NewClient();
  const auto expect = [&](const Words& options, const std::string& line) {
    const Result result = deployment.Query(client, options);
    EXPECT_EQ(result.code, 0) << result.output;
    EXPECT_THAT(result.output, HasSubstr(line));
    return result.output;
  };
  const std::string before = "100\tfound\tvalue 100\tyes\n", after = "100\tfound\tother 100\tyes\n";
  expect(kSimple + Words{"100"}, before);
  expect({"100"}, before);
  const fs::path table = deployment.path("table");
  fs::rename(table, deployment.path("before"));
  deployment.MakeTable("table", Words{"--tsv", deployment.Records(3000, "other")} + dense,
                       "before");
  // A damaged table: one byte of the last row's signature.
  const std::string signatures = Text(table / "signatures.bin");
  std::string damaged = signatures;
  damaged.back() ^= 1;
  WriteText(table / "signatures.bin", damaged);
  for (Process* party : {&backend, &frontend}) {
    party->Signal(SIGHUP);
    EXPECT_TRUE(party->WaitForOutput("the table was not reloaded: ")) << party->Output();
  }
  expect(kSimple + Words{"100"}, before);
  expect({"100"}, before);
  WriteText(table / "signatures.bin", signatures);
  for (Process* party : {&frontend, &backend}) {
    party->Signal(SIGHUP);
    EXPECT_TRUE(party->WaitForOutput("serves epoch 2 of the table")) << party->Output();
  }
  EXPECT_THAT(expect(kSimple + Words{"100"}, after), HasSubstr("fetched as a delta"));
  expect({"100"}, after);
  expect(kSimple + Words{"--party", "2", "100"}, after);
}

}  // namespace
}  // namespace shoal::sim
