// Parties on both sides of a TLS connection: party 1 calls a real party 2, which calls party 3 in
// this process.
#include "src/shoald/peer.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/net/testing/test_identity.h"
#include "src/noise/noise.h"
#include "src/parallel/mutex.h"
#include "src/server/chain_answers.h"
#include "src/server/slices.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/two_tiers_client.h"
#include "src/shoald/driver.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/tls_calls.h"
#include "src/storage/spool.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

using net::testing::TestIdentity;
using ::shoal::testing::Soon;
using ::shoal::testing::StatusIs;
using wire::FrameType;
using namespace std::chrono_literals;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;

constexpr uint64_t kTagBytes = 16;  // of an answer's tag

const server::OwnRun kThreeOnions = {.rank = 0, .attempt = 0, .run = {3, 0, 3}};  // of 32 bytes

absl::StatusOr<uint64_t> AnswersOf112Bytes(const Digest&) { return 112; }

PeerLink LinkTo(const roster::Party& next, const roster::TlsIdentity* identity,
                PeerLink::AnswerBytes answer_bytes, std::chrono::seconds stage_limit,
                uint32_t later = 0, PeerLink::AnswerBytes refresh_bytes = nullptr) {
  return PeerLink(std::make_unique<TlsCalls>(next, *identity),
                  {.party = next.number,
                   .machines = next.machines,
                   .senders = 1,
                   .later = later,
                   .answer_bytes = std::move(answer_bytes),
                   .refresh_bytes = std::move(refresh_bytes),
                   .stage_limit = stage_limit});
}

class PeerTest : public ::testing::Test {
 protected:
  explicit PeerTest(server::testing::DeploymentOptions options = {.rows = 10,
                                                                  .plan = {.onions_count = 20,
                                                                           .queries_count = 20,
                                                                           .stage_limit_s = 100}})
      : deployment_(std::move(options)) {
    Start();
  }

  void Start(uint16_t port = 0) {
    server_.reset();
    service_.reset();
    stages_ = std::make_unique<PartStages>(PartsOf(deployment_.node(2), 1, &spools_));
    service_ = std::make_unique<PeerService>(stages_.get(), &deployment_.node(2));
    auto server = net::Server::Start(
        {.address = absl::StrCat("127.0.0.1:", port),
         .identity = party2_.identity(),
         .clients = {party1_.digest()},
         .limits = [this](FrameType type) { return service_->Limits(type); },
         .sink = [this](const wire::Frame& request,
                        uint64_t bytes) { return service_->Sink(request, bytes); }},
        [this](wire::Frame request, net::Reply reply) {
          service_->Handle(std::move(request), std::move(reply));
        });
    SHOAL_CHECK(server.ok());
    server_ = *std::move(server);
  }

  roster::Party Party2() const {
    roster::Party party = deployment_.roster().party(2);
    party.peer_address = absl::StrCat("127.0.0.1:", server_->port());
    party.tls_certificate_sha256 = party2_.digest();
    return party;
  }
  PeerLink MakeLink(std::chrono::seconds stage_limit = 60s) const {
    return LinkTo(
        Party2(), &party1_.tls(),
        [this](const Digest&) {
          return deployment_.table().row_bytes + signature::kSignatureBytes + kTagBytes;
        },
        stage_limit);
  }
  absl::StatusOr<round::Round> Announce(server::ChainNode& chain) {
    server::Frontend& frontend = deployment_.frontend();
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundHeader draft, frontend.NewDraft());
    SHOAL_ASSIGN_OR_RETURN(const wire::SignedHeader header, chain.Propose(draft, frontend.Live()));
    SHOAL_ASSIGN_OR_RETURN(round::Round round,
                           round::Round::Verify(header, deployment_.roster(), deployment_.table(),
                                                deployment_.clock().NowSeconds()));
    SHOAL_RETURN_IF_ERROR(frontend.Open(round));
    return round;
  }
  // A peer that holds party 2's key, takes calls, tells so, and never answers.
  std::unique_ptr<net::Server> SilentPeer(std::function<void()> called = [] {}) {
    struct Kept {
      Mutex mutex;
      std::vector<net::Reply> replies ABSL_GUARDED_BY(mutex);
    };
    auto server =
        net::Server::Start({.address = "127.0.0.1:0",
                            .identity = party2_.identity(),
                            .clients = {},
                            .limits = [this](FrameType type) { return service_->Limits(type); }},
                           [kept = std::make_shared<Kept>(), called = std::move(called)](
                               wire::Frame, net::Reply reply) {
                             {
                               const MutexLock lock(kept->mutex);
                               kept->replies.push_back(std::move(reply));
                             }
                             called();
                           });
    SHOAL_CHECK(server.ok());
    return *std::move(server);
  }
  // A frame as party 1 could send it.
  absl::StatusOr<wire::Frame> Send(const wire::Frame& frame) {
    const net::Identity identity = party1_.identity();
    SHOAL_ASSIGN_OR_RETURN(
        const auto connection,
        net::Connection::Connect({.address = absl::StrCat("127.0.0.1:", server_->port()),
                                  .pin = party2_.digest(),
                                  .identity = &identity}));
    return connection->Call(frame, {.control_bytes = 1 << 20, .bulk_bytes = 1 << 20}, 30s);
  }

  // A round of party 1, from its announcement to its end, with every answer verified.
  void RunARound(server::ChainNode& chain) {
    server::Frontend& frontend = deployment_.frontend();
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, Announce(chain));
    server::testing::Client client(&deployment_, round);
    SHOAL_ASSERT_OK(client.Obtain(20));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto onions, frontend.Seal(round.id()));
    SHOAL_ASSERT_OK(chain.Offline(round.wire(), std::move(onions)));
    SHOAL_ASSERT_OK_AND_ASSIGN(server::StageReports reports, chain.Reports(round.id()));
    EXPECT_EQ(PartiesWith("offline", reports), (std::vector<uint32_t>{1, 2, 3}));
    SHOAL_ASSERT_OK(frontend.OfflineDone(round.id(), std::move(reports)));

    const std::vector<uint64_t> rows = {0, 1, 2, 3, 9, 9, 5};
    SHOAL_ASSERT_OK(client.Query(rows));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes queries, frontend.CloseQueries(round.id()));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto masked, chain.OnlineOfKept(round.id(), queries));
    SHOAL_ASSERT_OK(
        frontend.AnswersReady(round.id(), *masked, [&] { return *chain.Reports(round.id()); }));
    const auto stages = frontend.Reports().at(0).stages();
    reports.assign(stages.begin(), stages.end());
    EXPECT_EQ(PartiesWith("offline", reports), (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_EQ(PartiesWith("online", reports), (std::vector<uint32_t>{1, 2, 3}));
    EXPECT_EQ(PartiesWith("answers", reports), (std::vector<uint32_t>{1, 2}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
    ASSERT_EQ(answers.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(rows[i])));
      SHOAL_EXPECT_OK(deployment_.Verify(rows[i], answers[i]));
    }

    frontend.Close(round.id());
    SHOAL_ASSERT_OK(chain.Live(frontend.Live()));
    for (uint32_t j = 1; j <= 3; ++j) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
  }

  static std::vector<uint32_t> PartiesWith(const std::string& stage,
                                           const server::StageReports& reports) {
    std::vector<uint32_t> parties;
    for (const wire::StageReport& report : reports) {
      if (report.stage() == stage) parties.push_back(report.party());
    }
    return parties;
  }

  const TestIdentity party1_{1}, party2_{2};
  server::testing::Deployment deployment_;
  SpoolPlace spools_{::testing::TempDir(), 1 << 24};
  std::unique_ptr<PartStages> stages_;
  std::unique_ptr<PeerService> service_;
  std::unique_ptr<net::Server> server_;
};

TEST_F(PeerTest, AWholeRoundRunsOverTheConnection) {
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  RunARound(chain);
}

// Passes connections on to a port of this machine, until it cuts them.
class Relay {
 public:
  explicit Relay(uint16_t to) : to_(to), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Local(0);
    SHOAL_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    SHOAL_CHECK(::listen(listener_, 16) == 0);
    socklen_t size = sizeof address;
    SHOAL_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~Relay() {
    ::shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    Cut();
    for (std::thread& pump : pumps_) pump.join();
    ::close(listener_);
    for (const int socket : sockets_) ::close(socket);
  }
  uint16_t port() const { return port_; }
  // Breaks all connections there are.
  void Cut() {
    const MutexLock lock(mutex_);
    for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
  }
  // Sends what nobody asked for over all connections that there are, and waits until the other
  // side's system has it. How many there are.
  int Speak() {
    const MutexLock lock(mutex_);
    int told = 0;
    for (size_t i = 0; i < sockets_.size(); i += 2) {
      const int socket = sockets_[i];
      if (::send(socket, "x", 1, MSG_NOSIGNAL) != 1) continue;
      ++told;
      EXPECT_TRUE(Soon([&] {
        int unacknowledged = -1;
        return ::ioctl(socket, SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
      }));
    }
    return told;
  }
  // That have been made.
  size_t connections() {
    const MutexLock lock(mutex_);
    return sockets_.size() / 2;
  }

 private:
  static sockaddr_in Local(uint16_t port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  void Accept() {
    for (;;) {
      const int from = ::accept(listener_, nullptr, nullptr);
      if (from < 0) return;
      const int to = ::socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in address = Local(to_);
      const MutexLock lock(mutex_);
      sockets_.insert(sockets_.end(), {from, to});
      if (::connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        ::shutdown(from, SHUT_RDWR);
        continue;
      }
      pumps_.emplace_back([from, to] { Pump(from, to); });
      pumps_.emplace_back([from, to] { Pump(to, from); });
    }
  }
  static void Pump(int from, int to) {
    char bytes[4096];
    for (;;) {
      const ssize_t n = ::recv(from, bytes, sizeof bytes, 0);
      if (n <= 0 || ::send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL) != n) break;
    }
    ::shutdown(from, SHUT_RDWR);
    ::shutdown(to, SHUT_RDWR);
  }

  const uint16_t to_;
  const int listener_;
  uint16_t port_ = 0;
  std::thread accepting_;
  Mutex mutex_;
  std::vector<int> sockets_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> pumps_;
};

// Calls something at the end of a scope.
class Finally {
 public:
  explicit Finally(std::function<void()> call) : call_(std::move(call)) {}
  ~Finally() { call_(); }
  Finally(const Finally&) = delete;
  Finally& operator=(const Finally&) = delete;

 private:
  const std::function<void()> call_;
};

// A round up to its queries, behind a relay between parties 1 and 2.
class KeptConnectionTest : public PeerTest {
 protected:
  KeptConnectionTest() {
    roster::Party party = Party2();
    party.peer_address = absl::StrCat("127.0.0.1:", relay_.port());
    link_.reset(new PeerLink(LinkTo(
        party, &party1_.tls(),
        [this](const Digest& id) { return deployment_.party(1).AnswerBytes(id); }, 60s)));
    chain_ = std::make_unique<server::ChainNode>(&deployment_.party(1), link_.get());
  }

  void RunToQueries() {
    server::Frontend& frontend = deployment_.frontend();
    auto announced = Announce(*chain_);
    SHOAL_ASSERT_OK(announced);
    round_ = *std::move(announced);
    server::testing::Client client(&deployment_, *round_);
    SHOAL_ASSERT_OK(client.Obtain(20));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto onions, frontend.Seal(round_->id()));
    SHOAL_ASSERT_OK(chain_->Offline(round_->wire(), std::move(onions)));
    SHOAL_ASSERT_OK_AND_ASSIGN(server::StageReports reports, chain_->Reports(round_->id()));
    SHOAL_ASSERT_OK(frontend.OfflineDone(round_->id(), std::move(reports)));
    SHOAL_ASSERT_OK(client.Query({0, 1, 2}));
    SHOAL_ASSERT_OK_AND_ASSIGN(queries_, frontend.CloseQueries(round_->id()));
    before_ = relay_.connections();
  }
  // Runs the online stage, which must succeed, and returns how many connections it made.
  size_t ConnectionsOfOnline() {
    const auto answers = chain_->OnlineOfKept(round_->id(), queries_);
    SHOAL_EXPECT_OK(answers);
    if (answers.ok()) {
      const auto all = ReadAll(**answers);
      SHOAL_EXPECT_OK(all);
      EXPECT_EQ(all.ok() ? all->size() : 0, 3 * (deployment_.Answer(0).size() + kTagBytes));
    }
    return relay_.connections() - before_;
  }
  // Waits until party 2 has so many connections.
  bool Has(size_t connections) {
    return Soon([&] { return server_->connections() == connections; });
  }

  Relay relay_{server_->port()};
  std::unique_ptr<PeerLink> link_;
  std::unique_ptr<server::ChainNode> chain_;
  std::optional<round::Round> round_;
  Bytes queries_;
  size_t before_ = 0;
};

TEST_F(KeptConnectionTest, QueriesGoOverTheConnectionOfTheirList) {
  RunToQueries();
  EXPECT_TRUE(Has(1)) << server_->connections();
  EXPECT_EQ(ConnectionsOfOnline(), 0u);
  // It has done all that it was kept for.
  EXPECT_TRUE(Has(0)) << server_->connections();
}

// As by a relay on the way that forgets connections, or by the other side, which has had enough.
TEST_F(KeptConnectionTest, WhereItWasCutMeanwhileQueriesTakeANewOne) {
  RunToQueries();
  relay_.Cut();
  EXPECT_TRUE(Has(0)) << server_->connections();
  EXPECT_EQ(ConnectionsOfOnline(), 1u);
}

TEST_F(KeptConnectionTest, WhereTheOtherPartyListensAnewQueriesTakeANewOne) {
  RunToQueries();
  Start(server_->port());
  EXPECT_EQ(ConnectionsOfOnline(), 1u);
}

TEST_F(KeptConnectionTest, OneOverWhichSomethingCameUnaskedIsNotUsed) {
  RunToQueries();
  EXPECT_GE(relay_.Speak(), 1);
  EXPECT_EQ(ConnectionsOfOnline(), 1u);
}

TEST_F(KeptConnectionTest, ItEndsWithItsRound) {
  RunToQueries();
  link_->CloseEnded();
  EXPECT_TRUE(Has(1)) << server_->connections();
  SHOAL_ASSERT_OK(deployment_.party(1).End(round_->id()));
  link_->CloseEnded();
  EXPECT_TRUE(Has(0)) << server_->connections();
}

// A caller that keeps nothing, as earlier versions and other programs, is served as ever.
TEST_F(KeptConnectionTest, QueriesOverAConnectionOfTheirOwnAreTaken) {
  RunToQueries();
  PeerLink another = LinkTo(
      Party2(), &party1_.tls(),
      [this](const Digest& id) { return deployment_.party(1).AnswerBytes(id); }, 60s);
  server::ChainNode chain(&deployment_.party(1), &another);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, chain.OnlineOfKept(round_->id(), queries_));
  SHOAL_EXPECT_OK(ReadAll(*answers));
}

// The connection between parties 1 and 2 is cut while party 3 works, in each stage and on the way
// back: the driver runs the stage again over a new connection, and party 2 gives the same bytes.
TEST_F(PeerTest, AStageWhoseConnectionIsCutIsRunAgain) {
  constexpr size_t kSlots = 20;
  Relay relay(server_->port());
  roster::Party party = Party2();
  party.peer_address = absl::StrCat("127.0.0.1:", relay.port());
  PeerLink link = LinkTo(
      party, &party1_.tls(),
      [this](const Digest& id) { return deployment_.party(1).AnswerBytes(id); }, 60s);
  server::ChainNode chain(&deployment_.party(1), &link);
  server::Frontend& frontend = deployment_.frontend();
  // What party 3 got and gave. An earlier try may still be under way when the next one begins.
  Mutex mutex;
  std::vector<Bytes> onions, queries, answers;
  const Finally end([this] {  // an earlier try may run until then
    server_.reset();
    service_.reset();
  });
  const auto cut_once = [&](std::vector<Bytes>& tries) {
    return [&](Bytes& bytes) {
      const MutexLock lock(mutex);
      tries.push_back(bytes);
      if (tries.size() == 1) relay.Cut();
    };
  };
  deployment_.tamper(2).onions = cut_once(onions);
  deployment_.tamper(2).queries = cut_once(queries);
  deployment_.tamper(2).answers = cut_once(answers);
  const Driver driver(&frontend, &chain, &deployment_.clock());
  ASSERT_TRUE(Soon([&] { return frontend.ListRounds().rounds_size() > 0; }));
  const auto first = [&] { return frontend.ListRounds().rounds(0); };
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const round::Round round,
      round::Round::Verify(first().header(), deployment_.roster(), deployment_.table(),
                           deployment_.clock().NowSeconds()));
  server::testing::Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kSlots));
  const auto reached = [&](wire::RoundState state) {
    return Soon([&] { return first().state() >= state; }) && first().state() == state;
  };
  ASSERT_TRUE(reached(wire::OPEN_FOR_QUERIES)) << first().abort_reason();
  const std::vector<uint64_t> rows(kSlots, 7);
  SHOAL_ASSERT_OK(client.Query(rows));
  ASSERT_TRUE(reached(wire::ANSWERED)) << first().abort_reason();
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> rows_got, client.Fetch());
  for (const Bytes& answer : rows_got)
    EXPECT_TRUE(std::ranges::equal(answer, deployment_.Answer(7)));
  const MutexLock lock(mutex);
  // None come again if party 3 had them all before the repeat began.
  EXPECT_GE(onions.size(), 1u);
  EXPECT_LE(onions.size(), 2u);
  EXPECT_GE(queries.size(), 2u);
  EXPECT_LE(queries.size(), 3u);
  for (const auto* tries : {&onions, &queries, &answers}) {
    for (const Bytes& bytes : *tries) EXPECT_EQ(bytes, (*tries)[0]);
  }
}

TEST_F(PeerTest, ErrorsComeBackWithTheirCodeAndParty) {
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  deployment_.tamper(2).down = true;
  EXPECT_THAT(Announce(chain), StatusIs(absl::StatusCode::kUnavailable, "party 3 is down"));
  deployment_.tamper(2).down = false;
  wire::RoundHeader draft = *deployment_.frontend().NewDraft();
  draft.set_max_rows(draft.max_rows() + 1);
  EXPECT_THAT(link.Propose(draft, deployment_.frontend().Live()), StatusIs(kInvalid, "party 2"));
  SHOAL_EXPECT_OK(Announce(chain));
}

TEST_F(PeerTest, AProposalEndsWithTheNextList) {
  PeerLink link = MakeLink();
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::RoundHeader draft,
                             deployment_.party(1).ExtendDraft(*deployment_.frontend().NewDraft()));
  server::Frontend& frontend = deployment_.frontend();
  SHOAL_ASSERT_OK(link.Propose(draft, frontend.Live()));
  SHOAL_EXPECT_OK(link.Live(frontend.Live()));
  for (uint32_t j : {2u, 3u}) EXPECT_EQ(deployment_.party(j).open_rounds(), 1u) << j;
  frontend.Withdraw(RoundCounter(draft.counter()));
  SHOAL_EXPECT_OK(link.Live(frontend.Live()));
  for (uint32_t j : {2u, 3u}) EXPECT_EQ(deployment_.party(j).open_rounds(), 0u) << j;
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kLiveRounds, wire::LiveRoundsRequest())),
              StatusIs(kInvalid, "another roster"));
}

TEST_F(PeerTest, OnlyThePreviousPartyMayCallAndOnlyTheNextIsCalled) {
  const wire::SignedLiveRounds live = deployment_.frontend().Live();
  const TestIdentity stranger(3);
  PeerLink from_stranger = LinkTo(Party2(), &stranger.tls(), AnswersOf112Bytes, 60s);
  EXPECT_THAT(from_stranger.Live(live), StatusIs(kUnauthenticated, "certificate"));
  // The next party may not call back either: its own certificate is not in the list.
  PeerLink from_itself = LinkTo(Party2(), &party2_.tls(), AnswersOf112Bytes, 60s);
  EXPECT_THAT(from_itself.Live(live), StatusIs(kUnauthenticated, "certificate"));

  roster::Party moved = Party2();
  moved.tls_certificate_sha256 = stranger.digest();
  PeerLink to_stranger = LinkTo(moved, &party1_.tls(), AnswersOf112Bytes, 60s);
  EXPECT_THAT(to_stranger.Live(live), StatusIs(kUnauthenticated, "reaching party 2"));

  server_.reset();
  moved = deployment_.roster().party(2);
  moved.peer_address = "127.0.0.1:1";
  PeerLink to_nobody = LinkTo(moved, &party1_.tls(), AnswersOf112Bytes, 60s);
  EXPECT_THAT(to_nobody.Live(live),
              StatusIs(absl::StatusCode::kUnavailable, "reaching party 2: 127.0.0.1:1"));
}

TEST_F(PeerTest, WhatIsNoRequestBetweenPartiesIsRefused) {
  EXPECT_THAT(Send({.type = FrameType::kSubmitOnions, .control = "", .bulk = {}}),
              StatusIs(kInvalid, "serves the party before"));
  EXPECT_THAT(Send({.type = FrameType::kGetStatus, .control = "", .bulk = {}}),
              StatusIs(kInvalid, "serves the party before"));
  for (FrameType type :
       {FrameType::kProposeRound, FrameType::kOffline, FrameType::kOnline, FrameType::kLiveRounds,
        FrameType::kRoundReports, FrameType::kProposeRefresh, FrameType::kRefresh,
        FrameType::kHeadOffline, FrameType::kHeadQueries, FrameType::kHeadAnswers}) {
    EXPECT_THAT(Send({.type = type, .control = "\xff\xff", .bulk = {}}),
                StatusIs(kInvalid, "malformed"));
    EXPECT_THAT(Send({.type = type, .control = std::string((1 << 20) + 1, 'x'), .bulk = {}}),
                StatusIs(absl::StatusCode::kResourceExhausted, "at most"));
  }
  for (FrameType type : {FrameType::kProposeRound, FrameType::kLiveRounds,
                         FrameType::kProposeRefresh, FrameType::kRefresh}) {
    EXPECT_THAT(Send({.type = type, .control = "", .bulk = Bytes(1)}),
                StatusIs(absl::StatusCode::kResourceExhausted, "at most"));
  }
  wire::OnlineRequest online;
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kOnline, online)), StatusIs(kInvalid, "32 bytes"));
  online.set_round_id(std::string(31, 'x'));
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kOnline, online)), StatusIs(kInvalid, "32 bytes"));
  online.set_round_id(std::string(32, 'x'));
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kOnline, online, Bytes(100, 7))),
              StatusIs(absl::StatusCode::kNotFound, "party 2"));
  wire::OfflineRequest offline;
  EXPECT_FALSE(Send(wire::MakeFrame(FrameType::kOffline, offline, Bytes(100))).ok());
}

// Every call takes a thread, and a neighbour gets no more of them than there may be.
TEST_F(PeerTest, MoreCallsThanMayRunAtATimeAreRefused) {
  std::promise<void> finish;
  deployment_.tamper(2).live = [finished = finish.get_future().share()](wire::SignedLiveRounds&) {
    finished.wait();
  };
  wire::LiveRoundsRequest request;
  *request.mutable_live() = deployment_.frontend().Live();
  constexpr int kCalls = 100;
  std::vector<std::future<absl::Status>> calls;
  for (int i = 0; i < kCalls; ++i) {
    auto answered = std::make_shared<std::promise<absl::Status>>();
    calls.push_back(answered->get_future());
    service_->Handle(wire::MakeFrame(FrameType::kLiveRounds, request),
                     net::Reply([answered](wire::Frame frame, std::unique_ptr<ByteSource>) {
                       answered->set_value(frame.type == FrameType::kError ? wire::ErrorOf(frame)
                                                                           : absl::OkStatus());
                     }));
  }
  // Those beyond the bound are answered at once, the others wait.
  int refused = 0;
  for (auto& call : calls) {
    if (call.wait_for(0s) != std::future_status::ready) continue;
    EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kResourceExhausted, "too many calls"));
    ++refused;
  }
  EXPECT_EQ(refused, kCalls - 64);
  finish.set_value();
  for (auto& call : calls) {
    if (!call.valid()) continue;
    SHOAL_EXPECT_OK(call.get());
  }
  deployment_.tamper(2).live = nullptr;
}

// Stages that hang leave calls to what controls the rounds.
TEST_F(PeerTest, StagesLeaveCallsToListsOfLiveRounds) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  server::testing::Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(2));
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query({1, 2}));
  std::promise<Bytes> sent;
  std::promise<void> finish;
  deployment_.tamper(1).queries = [&](Bytes& queries) { sent.set_value(queries); };
  deployment_.tamper(2).queries = [finished = finish.get_future().share()](Bytes&) {
    finished.wait();
  };
  auto online = std::async(std::launch::async, [&] { return deployment_.RunOnline(round.id()); });
  wire::OnlineRequest request;
  request.set_round_id(ToString(round.id()));
  const wire::Frame stage = wire::MakeFrame(FrameType::kOnline, request, sent.get_future().get());
  const auto handle = [&](const wire::Frame& frame) {
    auto answered = std::make_shared<std::promise<absl::Status>>();
    service_->Handle(frame, net::Reply([answered](wire::Frame answer, std::unique_ptr<ByteSource>) {
                       answered->set_value(answer.type == FrameType::kError ? wire::ErrorOf(answer)
                                                                            : absl::OkStatus());
                     }));
    return answered->get_future();
  };
  std::vector<std::future<absl::Status>> stages;
  for (int i = 0; i < 56; ++i) stages.push_back(handle(stage));
  EXPECT_THAT(handle(stage).get(),
              StatusIs(absl::StatusCode::kResourceExhausted, "too many calls"));
  wire::LiveRoundsRequest list;
  *list.mutable_live() = deployment_.frontend().Live();
  SHOAL_EXPECT_OK(handle(wire::MakeFrame(FrameType::kLiveRounds, list)).get());
  finish.set_value();
  for (auto& call : stages) call.wait();  // all but one are told that another has begun
  online.wait();
  deployment_.tamper(1).queries = deployment_.tamper(2).queries = nullptr;
}

TEST_F(PeerTest, NoMoreIsReadThanAnyRoundCanHold) {
  const server::Party::InputLimits limits = deployment_.party(2).MaxInput();
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::FrameLimits offline,
                             service_->Limits(FrameType::kOffline));
  EXPECT_EQ(offline.bulk_bytes, limits.offline_bytes);
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::FrameLimits online, service_->Limits(FrameType::kOnline));
  EXPECT_EQ(online.bulk_bytes, limits.queries_bytes);
  EXPECT_FALSE(service_->Limits(FrameType::kGetDeployment).ok());
}

TEST_F(PeerTest, AStageThatTakesTooLongIsGivenUp) {
  const auto silent = SilentPeer();
  roster::Party party = Party2();
  party.peer_address = absl::StrCat("127.0.0.1:", silent->port());
  PeerLink link = LinkTo(party, &party1_.tls(), AnswersOf112Bytes, 1s);
  EXPECT_THAT(link.Offline({}, kThreeOnions, std::make_unique<BytesSource>(Bytes(96))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, party.peer_address));
}

// Party 3 takes calls and does not answer. The call to party 2 then takes as long, and its error
// names party 3 all the same.
TEST_F(PeerTest, APartyTwoHopsAwayThatHangsIsNamed) {
  const auto silent = SilentPeer();
  roster::Party third = deployment_.roster().party(3);
  third.peer_address = absl::StrCat("127.0.0.1:", silent->port());
  third.tls_certificate_sha256 = party2_.digest();
  PeerLink link2 = LinkTo(third, &party2_.tls(), AnswersOf112Bytes, 60s);
  server::ChainNode node2(&deployment_.party(2), &link2);
  server_.reset();
  service_.reset();
  PartStages stages2(PartsOf(node2, 1, &spools_));
  service_ = std::make_unique<PeerService>(&stages2, &node2);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      server_, net::Server::Start({.address = "127.0.0.1:0",
                                   .identity = party2_.identity(),
                                   .clients = {party1_.digest()},
                                   .limits = [this](FrameType t) { return service_->Limits(t); }},
                                  [this](wire::Frame request, net::Reply reply) {
                                    service_->Handle(std::move(request), std::move(reply));
                                  }));
  PeerLink link1 = LinkTo(Party2(), &party1_.tls(), AnswersOf112Bytes, 60s, /*later=*/1);
  // On a busy machine a call may be late by more than party 2 has in hand.
  absl::Status told;
  for (int i = 0; i < 20 && !absl::StrContains(told.message(), "party 3"); ++i) {
    told = link1.Live(deployment_.frontend().Live()).status();
  }
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kDeadlineExceeded,
                             absl::StrCat("party 3 does not answer: ", third.peer_address)));
  server_.reset();  // which calls the service
  service_.reset();
}

// What a call sends and receives belongs to its round, and must not outlive it.
TEST_F(PeerTest, ACallEndsWithItsRound) {
  std::promise<void> called;
  const auto silent = SilentPeer([&] { called.set_value(); });
  roster::Party party = Party2();
  party.peer_address = absl::StrCat("127.0.0.1:", silent->port());
  std::atomic<bool> open = true;
  PeerLink link = LinkTo(
      party, &party1_.tls(),
      [&](const Digest&) -> absl::StatusOr<uint64_t> {
        if (open) return 112;
        return absl::NotFoundError("not open here");
      },
      1000s);
  auto call = std::async(std::launch::async, [&] {
    return link.Offline({}, kThreeOnions, std::make_unique<BytesSource>(Bytes(96)));
  });
  called.get_future().wait();
  open = false;
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled, party.peer_address));
  EXPECT_THAT(link.Online({}, {}, Bytes(5)).status(),
              StatusIs(absl::StatusCode::kNotFound, "open"));
}

// Lists keep their connection. When the other party has been restarted they take a new one.
TEST_F(PeerTest, ListsGoOnAfterARestart) {
  PeerLink link = MakeLink();
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) SHOAL_EXPECT_OK(link.Live(deployment_.frontend().Live()));
    Start(server_->port());
  }
  server_.reset();
  EXPECT_THAT(link.Live(deployment_.frontend().Live()),
              StatusIs(absl::StatusCode::kUnavailable, "reaching party 2"));
}

TEST_F(PeerTest, WhatPartiesLackComesBackOverTheConnection) {
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, Announce(chain));
  deployment_.Restart(3);
  SHOAL_ASSERT_OK_AND_ASSIGN(server::ListAnswer answer, chain.Live(deployment_.frontend().Live()));
  ASSERT_EQ(answer.lacked.size(), 1u);
  EXPECT_EQ(answer.lacked[0].party, PartyNumber(3));
  EXPECT_EQ(answer.lacked[0].counter, round.counter());
  EXPECT_EQ(answer.reached, 3u);

  const uint16_t port = server_->port();
  server_.reset();
  deployment_.Restart(2);
  deployment_.tamper(2).down = true;
  Start(port);
  SHOAL_ASSERT_OK_AND_ASSIGN(answer, chain.Live(deployment_.frontend().Live()));
  ASSERT_EQ(answer.lacked.size(), 1u);
  EXPECT_EQ(answer.lacked[0].party, PartyNumber(2));
  EXPECT_EQ(answer.reached, 2u);
}

TEST_F(PeerTest, AnswersThatNobodyAskedForAreNotRead) {
  // A next party that answers a batch of two queries with three answers.
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto generous,
      net::Server::Start({.address = "127.0.0.1:0",
                          .identity = party2_.identity(),
                          .clients = {},
                          .limits = [this](FrameType type) { return service_->Limits(type); }},
                         [&](wire::Frame request, net::Reply reply) {
                           reply(wire::MakeFrame(request.type, wire::OnlineResponse(),
                                                 Bytes(3 * 112)));
                         }));
  roster::Party party = Party2();
  party.peer_address = absl::StrCat("127.0.0.1:", generous->port());
  PeerLink link = LinkTo(party, &party1_.tls(), AnswersOf112Bytes, 10s);
  const Bytes two = wire::EncodeQueryBatch({.positions = {1, 3}, .tallies = {7, 8}}, 5);
  EXPECT_THAT(link.Online({}, {}, two).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "224"));
}

class TermPeerTest : public PeerTest {
 protected:
  TermPeerTest() : PeerTest(WithTerms()) {}

  static server::testing::DeploymentOptions WithTerms() {
    wire::TermLimit limit;
    limit.set_days(1);
    limit.set_refreshes(5);
    return {.rows = 10,
            .plan = {.stage_limit_s = 100, .terms = {.refreshes = 5, .every_hours = 1}},
            .term_limit = limit};
  }
  PeerLink MakeTermLink() {
    return LinkTo(
        Party2(), &party1_.tls(), AnswersOf112Bytes, 60s, /*later=*/1,
        [this](const Digest& id) { return deployment_.terms(1).AnswerBytesFromNext(id); });
  }
  // Runs a round, and has all parties take the next epoch.
  void Enrol() {
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
    client_.emplace(&deployment_, round);
    SHOAL_ASSERT_OK(client_->Obtain(kRows.size()));
    SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
    SHOAL_ASSERT_OK(client_->Query(kRows));
    SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
    SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
    deployment_.MakeEpoch(10, deployment_.table().row_bytes);
    for (uint32_t party = 1; party <= 3; ++party) SHOAL_ASSERT_OK(deployment_.Take(party, 2));
  }
  const Digest& id() const { return client_->round().id(); }

  const std::vector<uint64_t> kRows = {0, 1, 9, 5};
  std::optional<server::testing::Client> client_;
};

TEST_F(TermPeerTest, ARefreshRunsOverTheConnection) {
  Enrol();
  PeerLink link = MakeTermLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  SHOAL_ASSERT_OK(deployment_.refreshes().Run(id(), chain));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client_->FetchRefresh());
  for (size_t i = 0; i < kRows.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(kRows[i], 2))) << i;
  }
}

TEST_F(TermPeerTest, ErrorsOfRefreshesComeBackWithTheirParty) {
  Enrol();
  PeerLink link = MakeTermLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  deployment_.tamper(2).proposed_refresh = [](wire::RefreshHeader& header) {
    header.set_number(99);
  };
  EXPECT_THAT(deployment_.refreshes().Run(id(), chain), StatusIs(kInvalid, "party 3"));
  deployment_.tamper(2).proposed_refresh = nullptr;
  deployment_.terms(3).End(id(), "test");
  EXPECT_THAT(deployment_.refreshes().Run(id(), chain),
              StatusIs(absl::StatusCode::kNotFound, "party 3"));
  // A party that keeps no terms.
  PeerLink without = MakeLink();
  EXPECT_THAT(without.ProposeRefresh({}), StatusIs(absl::StatusCode::kNotFound, "no terms"));
  EXPECT_THAT(without.Refresh({}), StatusIs(absl::StatusCode::kNotFound, "no terms"));
}

TEST_F(TermPeerTest, ARefreshEndsWithItsTermAndTakesNoMoreThanItAskedFor) {
  Enrol();
  std::promise<void> called;
  const auto silent = SilentPeer([&] { called.set_value(); });
  roster::Party party = Party2();
  party.peer_address = absl::StrCat("127.0.0.1:", silent->port());
  std::atomic<bool> lives = true;
  const auto bytes = [&](const Digest&) -> absl::StatusOr<uint64_t> {
    if (lives) return 224;
    return absl::NotFoundError("no term");
  };
  wire::SignedRefreshHeader refresh;
  refresh.mutable_header()->set_round_id(ToString(id()));
  PeerLink link = LinkTo(party, &party1_.tls(), AnswersOf112Bytes, 1000s, 0, bytes);
  auto call = std::async(std::launch::async, [&] { return link.Refresh(refresh).status(); });
  called.get_future().wait();
  lives = false;
  EXPECT_THAT(call.get(), StatusIs(absl::StatusCode::kCancelled, party.peer_address));
  EXPECT_THAT(link.Refresh(refresh), StatusIs(absl::StatusCode::kNotFound, "no term"));

  lives = true;
  std::string tags(64, 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto generous,
      net::Server::Start({.address = "127.0.0.1:0",
                          .identity = party2_.identity(),
                          .clients = {},
                          .limits = [this](FrameType type) { return service_->Limits(type); }},
                         [&](wire::Frame request, net::Reply reply) {
                           wire::RefreshResponse response;
                           response.set_tags(tags);
                           reply(wire::MakeFrame(request.type, response, Bytes(2 * 112 + 1)));
                         }));
  party.peer_address = absl::StrCat("127.0.0.1:", generous->port());
  PeerLink greedy = LinkTo(party, &party1_.tls(), AnswersOf112Bytes, 10s, 0, bytes);
  EXPECT_THAT(greedy.Refresh(refresh), StatusIs(absl::StatusCode::kResourceExhausted, "224"));
  PeerLink wide =
      LinkTo(party, &party1_.tls(), AnswersOf112Bytes, 10s, 0, [](const Digest&) { return 225; });
  SHOAL_EXPECT_OK(wide.Refresh(refresh));
  for (const size_t size : {63, 9 * 32}) {
    tags.resize(size);
    EXPECT_THAT(wide.Refresh(refresh), StatusIs(kInvalid, "tags"));
  }
}

// The calls of half B, and those of half A of the same round.
class TwoTiersPeerTest : public PeerTest {
 protected:
  TwoTiersPeerTest()
      : PeerTest({.parties = 2, .rows = 40, .query_buckets = 8, .most_in_bucket = 1}) {}

  void Announce(server::ChainNode& chain) {
    SHOAL_ASSERT_OK_AND_ASSIGN(wire::RoundHeader draft, deployment_.frontend().NewDraft());
    draft.set_query_buckets(deployment_.table().query_buckets);
    SHOAL_ASSERT_OK_AND_ASSIGN(header_, chain.Propose(draft, deployment_.frontend().Live()));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const round::Round round,
        round::Round::Verify(header_, deployment_.roster(), deployment_.table(),
                             deployment_.clock().NowSeconds()));
    id_ = round.id();
    client_.emplace(&deployment_, round);
  }
  // Up to the queries.
  void RunOffline(server::ChainNode& chain) {
    Announce(chain);
    for (int slot = 0; slot < 20; ++slot) client_->Submit();
    SHOAL_ASSERT_OK(chain.OfflineOfHalves(header_, client_->ListA(), client_->ListB()));
    client_->Query({0, 1, 2, 3, 39, 39, 17, 8});
  }
  template <typename Request>
  absl::StatusOr<wire::Frame> SendFor(FrameType type, Bytes bulk) {
    Request request;
    request.set_round_id(ToString(id_));
    return Send(wire::MakeFrame(type, request, std::move(bulk)));
  }

  wire::SignedHeader header_;
  Digest id_ = {};
  std::optional<server::testing::TwoTiersClient> client_;
};

TEST_F(TwoTiersPeerTest, AWholeRoundRunsOverTheConnection) {
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  RunOffline(chain);
  const Bytes a = client_->BatchA(), b = client_->BatchB();
  SHOAL_ASSERT_OK_AND_ASSIGN(const server::HalvesAnswers answers, chain.OnlineOfHalves(id_, a, b));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes of_a, ReadAll(*answers.a));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes of_b, ReadAll(*answers.b));
  const size_t each = deployment_.table().row_bytes + signature::kSignatureBytes + kTagBytes;
  ASSERT_EQ(of_a.size(), 8 * each);
  ASSERT_EQ(of_b.size(), 8 * each);
  Bytes tagged;
  for (size_t i = 0; i < 8; ++i) {
    Append(tagged, BytesView(of_a).subspan(i * each, each));
    Append(tagged, BytesView(of_b).subspan(i * each, each));
  }
  EXPECT_EQ(client_->Right(tagged), std::vector<bool>(8, true));

  SHOAL_ASSERT_OK_AND_ASSIGN(const server::StageReports reports, chain.Reports(id_));
  EXPECT_EQ(reports.size(), 12u);
  EXPECT_EQ(PartiesWith("noise", reports), (std::vector<uint32_t>{1, 2}));
  server::StageReports twice = reports;
  twice.push_back(reports.back());
  const server::Asker party_1 = {PartyNumber(1), 2};
  EXPECT_THAT(server::CheckReports(party_1, {twice.end() - 2, twice.end()}),
              StatusIs(kInvalid, "comes twice"));
  wire::StageReport third = reports.back();
  third.set_half(3);
  EXPECT_THAT(server::CheckReports(party_1, {third}), StatusIs(kInvalid, "no stage or half"));
}

// The table of bounds in docs/protocol.md, section 11.
TEST_F(TwoTiersPeerTest, NobodyReadsMoreThanTheBounds) {
  const uint64_t slots = deployment_.roster().max_slots();
  const auto noise = *noise::Distribution::Create(deployment_.roster().noise());
  const uint64_t positions = slots + 8 * noise.max();
  const auto batch = [](uint64_t over, uint64_t record) {
    return 5 + (over + 7) / 8 + record * over;
  };
  const auto bulk = [&](FrameType type) { return service_->Limits(type)->bulk_bytes; };
  EXPECT_EQ(bulk(FrameType::kHeadOffline), 84 * slots);
  EXPECT_EQ(bulk(FrameType::kOffline), 32 * positions);
  EXPECT_EQ(bulk(FrameType::kOnline), batch(positions, 20 + 8));
  EXPECT_EQ(bulk(FrameType::kHeadQueries), batch(slots, 36));
  EXPECT_EQ(bulk(FrameType::kHeadAnswers), positions * (64 + 48 + 16));
}

TEST_F(TwoTiersPeerTest, CallsOutOfOrderOrOfAWrongLengthAreRefused) {
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  Announce(chain);
  client_->Submit();
  const auto not_yet = absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(SendFor<wire::HeadQueriesRequest>(FrameType::kHeadQueries, {}),
              StatusIs(not_yet, "before the offline stage was done"));
  EXPECT_THAT(SendFor<wire::HeadAnswersRequest>(FrameType::kHeadAnswers, {}),
              StatusIs(not_yet, "answers came before the queries of half B"));
  wire::HeadOfflineRequest pieces;
  *pieces.mutable_header() = header_;
  pieces.set_slots(2);  // there is one
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kHeadOffline, pieces, client_->pieces_b)),
              StatusIs(kInvalid, "offline list"));
  pieces.set_slots(uint64_t{1} << 40);
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kHeadOffline, pieces, client_->pieces_b)),
              StatusIs(kInvalid, "where the header allows"));
  pieces.mutable_header()->set_signature(std::string(48, 'x'));
  EXPECT_FALSE(Send(wire::MakeFrame(FrameType::kHeadOffline, pieces, client_->pieces_b)).ok());

  SHOAL_ASSERT_OK(chain.OfflineOfHalves(header_, client_->ListA(), client_->ListB()));
  client_->Query({7});
  EXPECT_THAT(SendFor<wire::HeadQueriesRequest>(FrameType::kHeadQueries, Bytes(7)),
              StatusIs(kInvalid, "query batch"));
  // Of what comes back no more is taken than is due.
  EXPECT_THAT(link.HeadQueries(id_, {}, client_->BatchB(), 10),
              StatusIs(absl::StatusCode::kResourceExhausted, "taken are at most"));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const wire::Frame batch,
      SendFor<wire::HeadQueriesRequest>(FrameType::kHeadQueries, client_->BatchB()));
  const size_t due = wire::EncodedQueries(batch.bulk) * (64 + 48 + kTagBytes);
  EXPECT_THAT(SendFor<wire::HeadAnswersRequest>(FrameType::kHeadAnswers, Bytes(due - 1)),
              StatusIs(kInvalid, absl::StrCat("answers: ", due - 1, " bytes")));
  EXPECT_THAT(SendFor<wire::HeadAnswersRequest>(FrameType::kHeadAnswers, Bytes(due + 1)),
              StatusIs(kInvalid, absl::StrCat("answers: ", due + 1, " bytes")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const wire::Frame answers, SendFor<wire::HeadAnswersRequest>(
                                                            FrameType::kHeadAnswers, Bytes(due)));
  EXPECT_EQ(answers.bulk.size(), 64 + 48 + kTagBytes);
}

// Gives half of its bytes. Then the caller is gone.
class Cut final : public ByteSource {
 public:
  explicit Cut(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<BytesView> Next() override {
    if (given_) return absl::UnavailableError("cut");
    given_ = true;
    return BytesView(bytes_).first(bytes_.size() / 2);
  }

 private:
  const Bytes bytes_;
  bool given_ = false;
};

TEST_F(TwoTiersPeerTest, CallsThatAreCutLeaveNothing) {
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  const uint64_t free_bytes = deployment_.spools().free_bytes();
  const auto at_once = [](const std::function<void()>& work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 8; ++i) work();
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  Announce(chain);
  for (int slot = 0; slot < 20; ++slot) client_->Submit();
  at_once([&] {
    EXPECT_FALSE(
        link.HeadOffline(header_, {}, {std::make_unique<Cut>(client_->pieces_b), 20}, 1 << 20)
            .ok());
  });
  SHOAL_ASSERT_OK(chain.OfflineOfHalves(header_, client_->ListA(), client_->ListB()));
  client_->Query({0, 1, 2, 3, 39, 39, 17, 8});
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes batch,
                             link.HeadQueries(id_, {}, client_->BatchB(), 1 << 20));
  const size_t each = 64 + 48 + kTagBytes;
  const Bytes due(wire::EncodedQueries(batch) * each);
  at_once(
      [&] { EXPECT_FALSE(link.HeadAnswers(id_, {}, std::make_unique<Cut>(due), 1 << 20).ok()); });
  const Bytes a = client_->BatchA(), b = client_->BatchB();
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const server::HalvesAnswers answers,
                               chain.OnlineOfHalves(id_, a, b));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes of_a, ReadAll(*answers.a));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes of_b, ReadAll(*answers.b));
    Bytes tagged;
    for (size_t i = 0; i < 8; ++i) {
      Append(tagged, BytesView(of_a).subspan(i * each, each));
      Append(tagged, BytesView(of_b).subspan(i * each, each));
    }
    EXPECT_EQ(client_->Right(tagged), std::vector<bool>(8, true));
  }
  deployment_.frontend().Withdraw(RoundCounter(header_.header().counter()));
  SHOAL_ASSERT_OK(chain.Live(deployment_.frontend().Live()));
  EXPECT_EQ(deployment_.spools().free_bytes(), free_bytes);
}

TEST_F(PeerTest, ARoundForRowsHasNoCallsOfHalves) {
  for (const FrameType type :
       {FrameType::kHeadOffline, FrameType::kHeadQueries, FrameType::kHeadAnswers}) {
    EXPECT_EQ(service_->Limits(type)->bulk_bytes, 0u);
  }
  PeerLink link = MakeLink();
  server::ChainNode chain(&deployment_.party(1), &link);
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, Announce(chain));
  const std::string why = "is for rows, and has no half";
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  wire::HeadOfflineRequest pieces;
  *pieces.mutable_header() = round.wire();
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kHeadOffline, pieces)), StatusIs(kRefused, why));
  wire::HeadQueriesRequest queries;
  queries.set_round_id(ToString(round.id()));
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kHeadQueries, queries)), StatusIs(kRefused, why));
  wire::HeadAnswersRequest answers;
  answers.set_round_id(ToString(round.id()));
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kHeadAnswers, answers)), StatusIs(kRefused, why));
  answers.set_round_id("short");
  EXPECT_THAT(Send(wire::MakeFrame(FrameType::kHeadAnswers, answers)), StatusIs(kInvalid, "32"));
}

}  // namespace
}  // namespace shoal::shoald
