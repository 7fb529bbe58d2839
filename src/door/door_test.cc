// The door between clients that write their own bytes and a frontend that answers as it is told.
#include "src/door/door.h"

#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/door/spent_tokens.h"
#include "src/door/test_issuer.h"
#include "src/door/tokens.h"
#include "src/net/server.h"
#include "src/net/testing/earlier_server.h"
#include "src/net/testing/raw_tls.h"
#include "src/net/testing/test_identity.h"
#include "src/parallel/mutex.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"
#include "src/wire/round.pb.h"

namespace shoal::door {
namespace {

using net::testing::kLoopback;
using net::testing::RawTls;
using net::testing::TestIdentity;
using ::shoal::testing::Soon;
using wire::Frame;
using wire::FrameType;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr char kPage[] = "https://page.example.org";
constexpr size_t kLongAnswer = 4 << 20;

Bytes BytesOf(const Frame& frame) {
  const auto head = wire::EncodeFrameHeader(wire::HeaderOf(frame));
  Bytes bytes(head.begin(), head.end());
  Append(bytes, AsBytes(frame.control));
  return bytes;
}

Frame FrameOf(FrameType type, std::string control) {
  return {.type = type, .control = std::move(control), .bulk = {}};
}

absl::Status ErrorIn(BytesView bytes) {
  if (bytes.size() < wire::kFrameHeaderBytes) return absl::DataLossError("no frame");
  wire::FrameHeaderBytes head;
  std::ranges::copy(bytes.first(head.size()), head.begin());
  const auto header = wire::ParseFrameHeader(head);
  if (!header.ok()) return header.status();
  return wire::ErrorOf(
      {.type = header->type, .control = ToString(bytes.subspan(head.size())), .bulk = {}});
}

struct Response {
  int status = 0;  // 0: the connection ended
  std::string head;
  Bytes body;
};

// A client over TLS that writes HTTP and WebSocket by hand.
class Web {
 public:
  explicit Web(uint16_t port, const std::string& from = kLoopback) : tls_(port, from) {}

  bool Write(absl::string_view text) { return tls_.Write(AsBytes(text)); }
  bool Write(BytesView bytes) { return tls_.Write(bytes); }

  static std::string Head(absl::string_view first_line, absl::string_view fields = "") {
    return absl::StrCat(first_line, " HTTP/1.1\r\nHost: door\r\n", fields, "\r\n");
  }
  Response Post(const Bytes& body, absl::string_view fields = "") {
    Write(Head("POST /v1/call", absl::StrCat("Content-Length: ", body.size(), "\r\n", fields)));
    Write(body);
    return Read();
  }
  Response Ask(absl::string_view first_line, absl::string_view fields = "") {
    Write(Head(first_line, fields));
    return Read();
  }
  Response Read() {
    Response response;
    size_t end;
    while ((end = AsText(read_).find("\r\n\r\n")) == absl::string_view::npos) {
      if (!ReadMore()) return {};
    }
    response.head = std::string(AsText(read_).substr(0, end + 4));
    read_.erase(read_.begin(), read_.begin() + static_cast<ptrdiff_t>(end + 4));
    if (!absl::SimpleAtoi(response.head.substr(9, 3), &response.status)) return {};
    const std::string lower = absl::AsciiStrToLower(response.head);
    const size_t at = lower.find("content-length: ");
    size_t length = 0;
    if (at != std::string::npos) {
      const std::string rest = lower.substr(at + 16);
      EXPECT_TRUE(absl::SimpleAtoi(rest.substr(0, rest.find('\r')), &length));
    }
    if (!ReadTo(length)) return {};
    response.body.assign(read_.begin(), read_.begin() + static_cast<ptrdiff_t>(length));
    read_.erase(read_.begin(), read_.begin() + static_cast<ptrdiff_t>(length));
    return response;
  }

  // --- WebSocket (RFC 6455) ---

  Response Open(absl::string_view fields = "") {
    return Ask("GET /v1/ws", absl::StrCat("Connection: Upgrade\r\nUpgrade: websocket\r\n"
                                          "Sec-WebSocket-Version: 13\r\n"
                                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
                                          fields));
  }
  static constexpr uint8_t kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9,
                           kPong = 10;
  static Bytes Piece(uint8_t opcode, BytesView payload, bool last = true) {
    Bytes bytes = {static_cast<uint8_t>(opcode | (last ? 0x80 : 0))};
    if (payload.size() < 126) {
      bytes.push_back(static_cast<uint8_t>(0x80 | payload.size()));
    } else {
      const bool small = payload.size() < 1 << 16;  // the shortest form is the only one
      bytes.push_back(static_cast<uint8_t>(0x80 | (small ? 126 : 127)));
      for (int shift = small ? 8 : 56; shift >= 0; shift -= 8) {
        bytes.push_back(static_cast<uint8_t>(uint64_t{payload.size()} >> shift));
      }
    }
    bytes.insert(bytes.end(), 4, 0);  // a mask of zeros
    Append(bytes, payload);
    return bytes;
  }
  bool Send(BytesView message) { return Write(Piece(kBinary, message)); }
  // The next message, or nothing if the connection ends or a close comes. Pongs are passed over.
  std::optional<Bytes> Receive() {
    for (;;) {
      if (!ReadTo(2)) return std::nullopt;
      const uint8_t opcode = read_[0] & 15;
      uint64_t length = read_[1];
      size_t head = 2;
      if (length >= 126) {
        head += length == 126 ? 2 : 8;
        if (!ReadTo(head)) return std::nullopt;
        length = 0;
        for (size_t i = 2; i < head; ++i) length = length << 8 | read_[i];
      }
      if (!ReadTo(head + length)) return std::nullopt;
      Bytes payload(read_.begin() + static_cast<ptrdiff_t>(head),
                    read_.begin() + static_cast<ptrdiff_t>(head + length));
      read_.erase(read_.begin(), read_.begin() + static_cast<ptrdiff_t>(head + length));
      if (opcode == kClose) return std::nullopt;
      if (opcode == kBinary) return payload;
      if (opcode == kText) {
        EXPECT_EQ(AsText(payload), "ok");
      }
    }
  }
  std::optional<Bytes> Ask(const Frame& frame) {
    Send(BytesOf(frame));
    return Receive();
  }

  // The opcode of the next frame, whatever it is; nothing if the connection ends.
  std::optional<uint8_t> NextOpcode() {
    if (!ReadTo(2)) return std::nullopt;
    const uint8_t opcode = read_[0] & 15;
    const size_t size = 2 + read_[1];
    EXPECT_LT(read_[1], 126) << "a short frame was expected";
    if (!ReadTo(size)) return std::nullopt;
    read_.erase(read_.begin(), read_.begin() + static_cast<ptrdiff_t>(size));
    return opcode;
  }
  // All that comes until the door ends the connection.
  std::string All() {
    Ends();
    return ToString(std::exchange(read_, {}));
  }

  bool ReadMore() {
    uint8_t bytes[16 << 10];
    const size_t n = tls_.ReadSome(bytes);
    Append(read_, BytesView(bytes, n));
    return n > 0;
  }
  bool ReadTo(size_t size) {
    while (read_.size() < size) {
      if (!ReadMore()) return false;
    }
    return true;
  }
  // Whether the door ends the connection, whatever it says before.
  bool Ends() {
    while (ReadMore()) {
    }
    return true;
  }
  RawTls& tls() { return tls_; }

 private:
  RawTls tls_;
  Bytes read_;
};

class DoorTest : public ::testing::Test {
 protected:
  ~DoorTest() override {
    held_.clear();
    door_.reset();
    frontend_.reset();
  }

  void StartFrontend(const TestIdentity& identity, uint16_t port = 0) {
    auto started = net::Server::Start(
        {.address = absl::StrCat("127.0.0.1:", port),
         .identity = identity.identity(),
         .clients = {},
         .limits =
             [](FrameType) {
               return wire::FrameLimits{.control_bytes = 4 << 20, .bulk_bytes = 1 << 20};
             }},
        [this](Frame request, net::Reply reply) {
          ++asked_;
          if (IsHeld(request)) {  // answered when the test says so
            const MutexLock lock(mutex_);
            held_.push_back(std::move(reply));
          } else if (request.type == FrameType::kFetchAnswers) {
            reply(FrameOf(FrameType::kFetchAnswers, std::string(kLongAnswer, 'a')));
          } else if (request.type == FrameType::kGetPlacement) {
            reply(absl::FailedPreconditionError("another epoch"));
          } else {
            reply(FrameOf(request.type, absl::StrCat("answer to ", request.control)));
          }
        });
    SHOAL_ASSERT_OK(started.status());
    frontend_ = *std::move(started);
  }
  // FetchRefresh stands for whatever takes its time. A client that does not wait for a round is
  // told how it is.
  static bool IsHeld(const Frame& request) {
    wire::WaitRoundRequest wait;
    if (request.type != FrameType::kWaitRound) return request.type == FrameType::kFetchRefresh;
    return wait.ParseFromString(request.control) &&
           (wait.round_id().empty() || wait.timeout_ms() > 0);
  }
  // A round in this state, for whoever waits.
  static Frame RoundIn(wire::RoundState state) {
    wire::WaitRoundResponse response;
    response.mutable_round()->set_state(state);
    return wire::MakeFrame(FrameType::kWaitRound, response);
  }
  static Bytes Wait(char round, int state, uint32_t timeout_ms) {
    wire::WaitRoundRequest request;
    request.set_round_id(std::string(32, round));
    request.set_state(static_cast<wire::RoundState>(state));
    request.set_timeout_ms(timeout_ms);
    return BytesOf(wire::MakeFrame(FrameType::kWaitRound, request));
  }
  size_t held() {
    const MutexLock lock(mutex_);
    return held_.size();
  }
  void AnswerHeld(const Frame& answer) {
    const MutexLock lock(mutex_);
    for (net::Reply& reply : held_) reply(answer);
    held_.clear();
  }
  void Start(const std::function<void(Door::Options&)>& change = [](Door::Options&) {}) {
    StartFrontend(frontend_identity_);
    const std::vector<std::string> allowed = {kPage};
    Door::Options options{.address = "127.0.0.1:0",
                          .identity = door_identity_.identity(),
                          .frontend = {.address = absl::StrCat("127.0.0.1:", frontend_->port()),
                                       .pin = frontend_identity_.digest()},
                          .origins = *OriginRules::Create(allowed)};
    change(options);
    auto started = Door::Start(std::move(options), &figures_);
    SHOAL_ASSERT_OK(started.status());
    door_ = *std::move(started);
  }
  uint16_t port() const { return door_->port(); }

  // Whether the door cuts whoever goes on writing, within less than it has for its largest message.
  static bool IsCut(const std::function<bool()>& write) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < until) {
      if (!write()) return true;
    }
    return false;
  }
  // A new client is served.
  void ExpectServed(const std::string& from = kLoopback) {
    Web web(port(), from);
    const Response response = web.Post(BytesOf(kList));
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(AsText(response.body), AsText(BytesOf(FrameOf(kList.type, "answer to x"))));
  }

  const Frame kList = FrameOf(FrameType::kListRounds, "x");
  const TestIdentity frontend_identity_{1}, door_identity_{2};
  Figures figures_;
  std::unique_ptr<net::Server> frontend_;
  std::atomic<int> asked_ = 0;
  Mutex mutex_;
  std::vector<net::Reply> held_;
  std::unique_ptr<Door> door_;
};

TEST_F(DoorTest, APostIsACall) {
  Start();
  Web web(port());
  for (int i = 0; i < 3; ++i) {  // over one connection
    const Response response =
        web.Post(BytesOf(FrameOf(FrameType::kGetDeployment, absl::StrCat("call ", i))));
    EXPECT_EQ(response.status, 200) << response.head;
    EXPECT_THAT(response.head, HasSubstr("Content-Type: application/octet-stream\r\n"));
    EXPECT_THAT(response.head, HasSubstr("Cache-Control: no-store\r\n"));
    EXPECT_EQ(response.body,
              BytesOf(FrameOf(FrameType::kGetDeployment, absl::StrCat("answer to call ", i))));
  }
  // An error of the frontend is an answer.
  const Response refused = web.Post(BytesOf(FrameOf(FrameType::kGetPlacement, "")));
  EXPECT_EQ(refused.status, 200);
  EXPECT_THAT(ErrorIn(refused.body),
              shoal::testing::StatusIs(absl::StatusCode::kFailedPrecondition, "another epoch"));
  // One connection to the frontend was enough.
  EXPECT_EQ(frontend_->connections(), 1u);
  EXPECT_EQ(figures_.requests, 4u);
}

TEST_F(DoorTest, AWebSocketIsAConnection) {
  Start();
  Web web(port());
  const Response opened = web.Open();
  ASSERT_EQ(opened.status, 101) << opened.head;
  // The value that RFC 6455 gives for the key.
  EXPECT_THAT(opened.head, HasSubstr("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(web.Ask(FrameOf(FrameType::kGetStatus, absl::StrCat(i))),
              BytesOf(FrameOf(FrameType::kGetStatus, absl::StrCat("answer to ", i))));
  }
  const std::string onions(3 << 20, 'o');
  EXPECT_EQ(web.Ask(FrameOf(FrameType::kSubmitOnions, onions)),
            BytesOf(FrameOf(FrameType::kSubmitOnions, "answer to " + onions)));
  EXPECT_EQ(web.Ask(FrameOf(FrameType::kFetchAnswers, ""))->size(), 20 + kLongAnswer);
  // Requests that come together are answered in order.
  for (int i = 0; i < 50; ++i) web.Send(BytesOf(FrameOf(FrameType::kGetStatus, absl::StrCat(i))));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(web.Receive(),
              BytesOf(FrameOf(FrameType::kGetStatus, absl::StrCat("answer to ", i))));
  }
}

// Of a frame in as many pieces as it has bytes, with pings between.
TEST_F(DoorTest, AMessageMayComeInSmallPieces) {
  Start();
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  const Bytes frame = BytesOf(kList);
  for (size_t i = 0; i < frame.size(); ++i) {
    web.Write(Web::Piece(i == 0 ? Web::kBinary : Web::kContinuation, BytesView(frame).subspan(i, 1),
                         i + 1 == frame.size()));
    web.Write(Web::Piece(Web::kPing, {}));
  }
  EXPECT_EQ(web.Receive(), BytesOf(FrameOf(kList.type, "answer to x")));
}

TEST_F(DoorTest, NoRequestOfAPartyPasses) {
  Start();
  for (const FrameType type : {FrameType::kProposeRound, FrameType::kOnline, FrameType::kLiveRounds,
                               FrameType::kPirQuery, FrameType::kError}) {
    Web web(port());
    const Response response = web.Post(BytesOf(FrameOf(type, "")));
    EXPECT_EQ(response.status, 400);
    EXPECT_THAT(ErrorIn(response.body),
                shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument, ""));
    Web socket(port());
    ASSERT_EQ(socket.Open().status, 101);
    const auto answer = socket.Ask(FrameOf(type, ""));
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(ErrorIn(*answer), shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument, ""));
    EXPECT_EQ(socket.Receive(), std::nullopt);
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(DoorTest, WhatIsNoRequestIsRefused) {
  Start();
  const auto status = [&](absl::string_view request) {
    Web web(port());
    web.Write(request);
    return web.Read().status;
  };
  EXPECT_EQ(status(Web::Head("GET /v1/call")), 405);
  EXPECT_EQ(status(Web::Head("GET /v1/ws")), 405);
  EXPECT_EQ(status(Web::Head("GET /")), 404);
  EXPECT_EQ(status(Web::Head("GET /v1/ohttp-keys")), 404);
  Web lost(port());
  EXPECT_THAT(ErrorIn(lost.Ask("GET /").body),
              shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                       "this door has POST /v1/call, a WebSocket at /v1/ws"));
  EXPECT_EQ(status("nonsense\r\n\r\n"), 400);
  EXPECT_EQ(status(Web::Head("POST /v1/call", "Content-Length: 0\r\n")), 400);
  EXPECT_EQ(status(Web::Head("POST /v1/call", "Content-Length: -1\r\n")), 400);
  EXPECT_EQ(status(Web::Head("POST /v1/call", "Content-Length: 3\r\n") + "SHL"), 400);
  EXPECT_EQ(status(Web::Head("POST /v1/call", "Content-Length: 99999999\r\n")), 413);
  EXPECT_EQ(status(Web::Head("GET /", absl::StrCat("X: ", std::string(9000, 'x'), "\r\n"))), 413);
  Web text(port());
  ASSERT_EQ(text.Open().status, 101);
  text.Write(Web::Piece(Web::kText, AsBytes("hello")));
  EXPECT_THAT(ErrorIn(text.Receive().value_or(Bytes())),
              shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument, "binary"));
  EXPECT_EQ(asked_, 0);
  ExpectServed();
}

TEST_F(DoorTest, ClientsOfEarlierVersionsReadWhyTheyAreRefused) {
  Start();
  const auto expect_refusal = [](Bytes answer, char digit) {
    ASSERT_GE(answer.size(), 4u);
    EXPECT_EQ(answer[3], digit);
    std::ranges::copy(AsBytes("SHL3"), answer.begin());
    EXPECT_THAT(ErrorIn(answer), shoal::testing::StatusIs(
                                     absl::StatusCode::kInvalidArgument,
                                     absl::StrCat("a message of Shoal 0.", std::string(1, digit),
                                                  " came to one of Shoal 0.3")));
  };
  for (const char digit : {'1', '2'}) {
    Bytes request = BytesOf(kList);
    request[3] = static_cast<uint8_t>(digit);
    Web web(port()), socket(port());
    const Response refused = web.Post(request);
    EXPECT_EQ(refused.status, 400);
    expect_refusal(refused.body, digit);
    ASSERT_EQ(socket.Open().status, 101);
    socket.Send(request);
    expect_refusal(socket.Receive().value_or(Bytes()), digit);
    EXPECT_EQ(socket.Receive(), std::nullopt);
  }
  EXPECT_EQ(asked_, 0);
  ExpectServed();
}

TEST_F(DoorTest, AFrontendOfAnEarlierVersionIsNamed) {
  const net::testing::EarlierServer frontend(frontend_identity_.identity(), '2');
  Start([&](Door::Options& options) {
    options.frontend.address = absl::StrCat("127.0.0.1:", frontend.port());
  });
  const auto named = shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                              "a message of Shoal 0.2 came to one of Shoal 0.3");
  Web web(port()), socket(port());
  const Response response = web.Post(BytesOf(kList));
  EXPECT_EQ(response.status, 502);
  EXPECT_EQ(absl::AsciiStrToLower(response.head).find("retry-after:"), std::string::npos);
  EXPECT_THAT(ErrorIn(response.body), named);
  ASSERT_EQ(socket.Open().status, 101);
  EXPECT_THAT(ErrorIn(socket.Ask(kList).value_or(Bytes())), named);
}

TEST_F(DoorTest, ABodyThatNeverEndsIsCut) {
  Start();
  Web web(port());
  web.Write(Web::Head("POST /v1/call", "Transfer-Encoding: chunked\r\n"));
  Bytes frame = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(4 << 20, 'o')));
  const std::string chunk = absl::StrCat("10000\r\n", std::string(1 << 16, 'o'), "\r\n");
  web.Write(absl::StrCat("14\r\n", AsText(BytesView(frame).first(20)), "\r\n"));
  EXPECT_TRUE(IsCut([&] { return web.Write(chunk); }));
  EXPECT_EQ(asked_, 0);

  // The same as a message of a WebSocket, whose first piece says that more will come.
  Web socket(port());
  ASSERT_EQ(socket.Open().status, 101);
  socket.Write(Web::Piece(Web::kBinary, BytesView(frame).first(20), false));
  const Bytes piece = Web::Piece(Web::kContinuation, Bytes(1 << 16), false);
  EXPECT_TRUE(IsCut([&] { return socket.Write(piece); }));
  EXPECT_EQ(asked_, 0);
  ExpectServed();
}

TEST_F(DoorTest, AMillionSmallFramesEndTheirOwnConnection) {
  Start();
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  Bytes pings;
  for (int i = 0; i < 1000; ++i) Append(pings, Web::Piece(Web::kPing, {}));
  EXPECT_TRUE(IsCut([&] { return web.Write(pings); }));
  ExpectServed();
}

// Parts of a message that have nothing in them never make one.
TEST_F(DoorTest, EmptyPartsOfAMessageEndTheirOwnConnection) {
  Start();
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  ASSERT_TRUE(web.Write(Web::Piece(Web::kBinary, {}, /*last=*/false)));
  Bytes parts;
  for (int i = 0; i < 10'000; ++i) Append(parts, Web::Piece(0, {}, /*last=*/false));
  EXPECT_TRUE(IsCut([&] { return web.Write(parts); }));
  ExpectServed();
}

TEST_F(DoorTest, AForeignPageIsRefused) {
  Start();
  for (const char* origin : {"https://evil.example", "null", "https://page.example.org:8443"}) {
    const std::string field = absl::StrCat("Origin: ", origin, "\r\n");
    Web post(port()), preflight(port()), socket(port());
    const Response response = post.Post(BytesOf(kList), field);
    EXPECT_EQ(response.status, 403);
    EXPECT_FALSE(absl::StrContains(response.head, "Access-Control-Allow-Origin"));
    const Response options =
        preflight.Ask("OPTIONS /v1/call", field + "Access-Control-Request-Method: POST\r\n");
    EXPECT_EQ(options.status, 403);
    EXPECT_FALSE(absl::StrContains(options.head, "Access-Control-Allow-Origin"));
    EXPECT_EQ(socket.Open(field).status, 403);
  }
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(figures_.refusals(Refusal::kForeignOrigin), 9u);
}

TEST_F(DoorTest, AnAllowedPageIsServed) {
  Start();
  const std::string field = absl::StrCat("Origin: ", kPage, "\r\n");
  const std::string allows = absl::StrCat("Access-Control-Allow-Origin: ", kPage, "\r\n");
  Web web(port());
  const Response preflight =
      web.Ask("OPTIONS /v1/call", field + "Access-Control-Request-Method: POST\r\n");
  EXPECT_EQ(preflight.status, 204);
  EXPECT_THAT(preflight.head, HasSubstr(allows));
  EXPECT_THAT(preflight.head, HasSubstr("Access-Control-Allow-Methods: POST\r\n"));
  EXPECT_THAT(preflight.head, HasSubstr("content-type"));
  const Response response = web.Post(BytesOf(kList), field);
  EXPECT_EQ(response.status, 200);
  EXPECT_THAT(response.head, HasSubstr(allows));
  EXPECT_THAT(response.head, HasSubstr("Vary: Origin\r\n"));
  // Refusals, too, can be read by the page.
  const Response refused = web.Post(BytesOf(FrameOf(FrameType::kOnline, "")), field);
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.head, HasSubstr(allows));
  Web socket(port());
  EXPECT_EQ(socket.Open(field).status, 101);
  EXPECT_EQ(socket.Ask(kList), BytesOf(FrameOf(kList.type, "answer to x")));
}

// Each of these is one request to the door's parser, or to another program on the way, and two to
// the other: behind a proxy the second would be another client's, or get another client's answer.
// (All kinds are in src/net/http_rules_test.cc.)
TEST_F(DoorTest, WhatLeavesInDoubtWhereARequestEndsIsRefused) {
  Start();
  const Bytes frame = BytesOf(kList);
  const std::string length = absl::StrCat("Content-Length: ", frame.size(), "\r\n");
  const std::string hidden = absl::StrCat(Web::Head("POST /v1/call", length), AsText(frame));
  const std::string chunk = absl::StrCat("15\r\n", AsText(frame), "\r\n0\r\n\r\n");
  const auto expect_refused = [&](const std::string& request) {
    Web web(port());
    web.Write(absl::StrCat(request, hidden));
    EXPECT_EQ(web.Read().status, 400) << request;
    EXPECT_EQ(web.Read().status, 0) << request;
  };
  for (const char* fields :
       {"Transfer-Encoding: gzip\r\n", "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: identity\r\n", "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n",
        "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: xchunked\r\n", "X: y\r\n z\r\n",
        "Transfer-Encoding:\r\n chunked\r\n", "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: 0, 0\r\n", "Content-Length: +0\r\n", "Content-Length : 0\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "Host: other\r\n"}) {
    for (const char* line : {"POST /v1/call", "OPTIONS /v1/call", "GET /v1/token-challenge"}) {
      expect_refused(Web::Head(line, fields));
    }
  }
  expect_refused("POST /v1/call HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk);
  expect_refused(absl::StrCat("POST /v1/call HTTP/1.1\nHost: x\n", length, "\n"));
  expect_refused(absl::StrCat("POST /v1/call HTTP/1.1\r\n", length, "\r\n"));
  expect_refused("\r\n");
  // In a body of chunks.
  const std::string head = Web::Head("POST /v1/call", "Transfer-Encoding: chunked\r\n");
  for (const std::string& body :
       {absl::StrCat("15;x\r\n", AsText(frame), "\r\n0\r\n\r\n"),
        absl::StrCat("15;x=\"\n\"\r\n", AsText(frame), "\r\n0\r\n\r\n"),
        absl::StrCat("15\r\n", AsText(frame), "\r\n0;x\r\n\r\n"),
        absl::StrCat("15 \r\n", AsText(frame), "\r\n0\r\n\r\n"),
        absl::StrCat("15\r\n", AsText(frame), "xx0\r\n\r\n"),
        absl::StrCat("+15\r\n", AsText(frame), "\r\n0\r\n\r\n"),
        absl::StrCat("0x15\r\n", AsText(frame), "\r\n0\r\n\r\n"),
        absl::StrCat("15\r\n", AsText(frame), "\r\n0\r\nX: y\r\n\r\n"),
        absl::StrCat("15\r\n", AsText(frame), "\r\n0\r\nContent-Length: 5\r\n\r\n"),
        absl::StrCat("10000000000000015\r\n", AsText(frame), "\r\n0\r\n\r\n"),
        absl::StrCat("\r\n", AsText(frame), "\r\n0\r\n\r\n")}) {
    expect_refused(head + body);
  }
  EXPECT_EQ(asked_, 0);
  // And each is served where there is no doubt.
  Web web(port());
  web.Write(absl::StrCat(head, chunk, hidden,
                         Web::Head("POST /v1/call", "transfer-encoding:CHUNKED\t\r\n"), chunk));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(web.Read().status, 200) << i;
  EXPECT_EQ(asked_, 3);
}

// A WebSocket that has a body before it, for whoever reads one.
TEST_F(DoorTest, AWebSocketBeginsWithoutABody) {
  Start();
  for (const char* field : {"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"}) {
    Web web(port());
    EXPECT_EQ(web.Open(field).status, 400) << field;
    EXPECT_EQ(web.Read().status, 0);
  }
}

TEST_F(DoorTest, ATargetMayNameTheDoor) {
  Start();
  const Bytes frame = BytesOf(kList);
  Web web(port());
  web.Write(Web::Head("POST https://door.example/v1/call?x",
                      absl::StrCat("Content-Length: ", frame.size(), "\r\n")));
  web.Write(frame);
  EXPECT_EQ(web.Read().status, 200);
  Web socket(port());
  socket.Write(Web::Head("GET wss://door.example/v1/ws",
                         "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                         "Sec-WebSocket-Version: 13\r\n"
                         "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"));
  EXPECT_EQ(socket.Read().status, 101);
}

TEST_F(DoorTest, ABodyIsAskedForWhereItsClientWaits) {
  Start();
  const Bytes frame = BytesOf(kList);
  const std::string length = absl::StrCat("Content-Length: ", frame.size(), "\r\n");
  Web web(port());
  web.Write(Web::Head("POST /v1/call", length + "Expect: 100-Continue\r\n"));
  EXPECT_EQ(web.Read().status, 100);
  web.Write(frame);
  EXPECT_EQ(web.Read().status, 200);
  // Not where none comes, where the client does not know of it, and where the answer is no.
  EXPECT_EQ(web.Ask("OPTIONS /v1/call", "Expect: 100-continue\r\n").status, 204);
  EXPECT_EQ(web.Ask("POST /v1/call", "Content-Length: 0\r\nExpect: 100-continue\r\n").status, 400);
  Web old(port());
  old.Write(absl::StrCat("POST /v1/call HTTP/1.0\r\n", length, "Expect: 100-continue\r\n\r\n"));
  old.Write(frame);
  EXPECT_EQ(old.Read().status, 200);
  EXPECT_EQ(old.Read().status, 0) << "a client of HTTP/1.0 waits for the end";
  for (const char* line : {"POST /nothing", "PUT /v1/call"}) {
    Web refused(port());
    EXPECT_GE(refused.Ask(line, length + "Expect: 100-continue\r\n").status, 400) << line;
  }
}

TEST_F(DoorTest, WhatIsNoBodyIsNotSent) {
  Start();
  for (const char* line : {"HEAD /", "HEAD /v1/call", "HEAD /v1/ws"}) {
    Web web(port());
    web.Write(Web::Head(line));
    const std::string all = web.All();
    EXPECT_THAT(all, ::testing::StartsWith("HTTP/1.1 40")) << line;
    EXPECT_THAT(all, ::testing::EndsWith("\r\n\r\n")) << line;
    EXPECT_FALSE(absl::StrContains(all, "Content-Length: 0\r\n")) << line;
  }
  // RFC 9110: 204 has no length, 405 says which methods there are.
  Web web(port());
  EXPECT_FALSE(absl::StrContains(web.Ask("OPTIONS /v1/call").head, "Content-Length"));
  EXPECT_THAT(web.Ask("GET /v1/call").head, HasSubstr("Allow: POST, OPTIONS\r\n"));
}

// A body that is not read must not be taken for a request.
TEST_F(DoorTest, NoRequestHidesInABody) {
  Start();
  const Bytes frame = BytesOf(kList);
  const std::string hidden = absl::StrCat(
      Web::Head("POST /v1/call", absl::StrCat("Content-Length: ", frame.size(), "\r\n")),
      AsText(frame));
  for (const char* line : {"OPTIONS /v1/call", "GET /v1/call", "GET /", "PUT /v1/call"}) {
    Web web(port());
    web.Write(Web::Head(line, absl::StrCat("Content-Length: ", hidden.size(), "\r\n")) + hidden);
    EXPECT_GE(web.Read().status, 400) << line;
    EXPECT_EQ(web.Read().status, 0) << line;
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(DoorTest, AnAddressHasARate) {
  Start([](Door::Options& options) { options.address_requests = 4; });
  for (int i = 0; i < 4; ++i) ExpectServed("127.0.0.2");
  Web web(port(), "127.0.0.2");
  const Response response = web.Post(BytesOf(kList));
  EXPECT_EQ(response.status, 429);
  EXPECT_THAT(response.head, HasSubstr("Retry-After: 15\r\n"));
  EXPECT_THAT(ErrorIn(response.body), shoal::testing::StatusIs(absl::StatusCode::kUnavailable, ""));
  ExpectServed("127.0.0.3");
  EXPECT_EQ(asked_, 5);
}

// A handshake costs the door more than its peer, who need not even wait for it.
TEST_F(DoorTest, AnAddressHasARateOfConnections) {
  Start([](Door::Options& options) {
    options.address_connections = 4;
    SHOAL_CHECK(options.proxies.Add("127.0.0.4").ok());
    SHOAL_CHECK(options.shared_addresses.Add("127.0.0.5").ok());
  });
  for (int i = 0; i < 4; ++i) ExpectServed("127.0.0.2");
  EXPECT_EQ(figures_.refusals(Refusal::kTooFast), 0u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Web(port(), "127.0.0.2").tls().handshake_error);
  EXPECT_EQ(figures_.refusals(Refusal::kTooFast), 3u);
  ExpectServed("127.0.0.3");
  // Those behind which there are many have none.
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(Web(port(), "127.0.0.4").tls().handshake_error);
    ExpectServed("127.0.0.5");
  }
}

TEST_F(DoorTest, AnAddressHasAShareOfSlots) {
  Start();
  const Bytes onions = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(3 << 20, 'o')));
  Web first(port(), "127.0.0.2"), second(port(), "127.0.0.2"), other(port(), "127.0.0.3");
  EXPECT_EQ(first.Post(onions).status, 200);
  EXPECT_EQ(second.Post(onions).status, 429);
  EXPECT_EQ(other.Post(onions).status, 200);
  // Over a WebSocket it waits, and what it asks otherwise waits behind it.
  Web socket(port(), "127.0.0.2");
  ASSERT_EQ(socket.Open().status, 101);
  const uint64_t too_fast = figures_.refusals(Refusal::kTooFast);
  socket.Send(onions);
  EXPECT_TRUE(Soon([&] { return figures_.refusals(Refusal::kTooFast) > too_fast; }));
  socket.Send(BytesOf(kList));
  socket.Write(Web::Piece(Web::kPing, {}));
  EXPECT_EQ(socket.NextOpcode(), Web::kPong);
  ExpectServed("127.0.0.3");
  EXPECT_EQ(asked_, 3);
}

TEST_F(DoorTest, AConnectionThatSendsFasterWaits) {
  Start([](Door::Options& options) { options.connection_requests = 120; });
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 122; ++i) web.Send(BytesOf(kList));
  for (int i = 0; i < 122; ++i) ASSERT_TRUE(web.Receive().has_value()) << i;
  EXPECT_GE(std::chrono::steady_clock::now() - start, 900ms);
}

TEST_F(DoorTest, AnAddressHasAShareOfPlaces) {
  Start([](Door::Options& options) {
    options.max_connections = 20;
    options.max_newcomers = 20;
    options.shares = {.connections = 50, .newcomers = 50, .buffers = 50};
  });
  std::vector<std::unique_ptr<Web>> open;
  for (int i = 0; i < 10; ++i) {
    open.push_back(std::make_unique<Web>(port(), "127.0.0.2"));
    EXPECT_EQ(open.back()->Open().status, 101) << i;
  }
  Web one_more(port(), "127.0.0.2");
  EXPECT_EQ(one_more.Open().status, 503);
  ExpectServed("127.0.0.3");
  // Those who say nothing have places of their own.
  std::vector<std::unique_ptr<net::testing::RawSocket>> idle;
  for (int i = 0; i < 60; ++i) {
    idle.push_back(std::make_unique<net::testing::RawSocket>(port(), "127.0.0.2"));
  }
  ExpectServed("127.0.0.3");
}

TEST_F(DoorTest, WhoeverIsSlowIsCut) {
  Start([](Door::Options& options) {
    options.handshake_timeout = 300ms;
    options.head_timeout = 300ms;
    options.progress_timeout = 500ms;
    options.idle_timeout = 500ms;
  });
  // A handshake, a head and a body, a byte at a time; a message that stops; a WebSocket that rests.
  net::testing::RawSocket silent(port());
  Web head(port()), body(port()), message(port()), rests(port());
  head.Write("POST /v1/");
  body.Write(Web::Head("POST /v1/call", "Content-Length: 1000\r\n"));
  const Bytes onions = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(980, 'o')));
  ASSERT_EQ(message.Open().status, 101);
  ASSERT_EQ(rests.Open().status, 101);
  message.Write(Web::Piece(Web::kBinary, BytesView(onions).first(100), false));
  const auto start = std::chrono::steady_clock::now();
  std::thread drips([&] {
    for (size_t i = 0; i < 40 && head.Write("c") && body.Write(BytesView(onions).subspan(i, 1));
         ++i) {
      std::this_thread::sleep_for(50ms);
    }
  });
  EXPECT_TRUE(silent.ReadToEnd());
  EXPECT_TRUE(message.Ends());
  EXPECT_TRUE(rests.Ends());
  drips.join();
  EXPECT_TRUE(head.Ends());
  EXPECT_TRUE(body.Ends());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_EQ(asked_, 0);
}

// Whoever rests may, but a head that has begun ends in time: also one that is not the first.
TEST_F(DoorTest, ALaterHeadHasAsLongAsTheFirst) {
  Start([](Door::Options& options) {
    options.head_timeout = 300ms;
    options.idle_timeout = 6s;
  });
  Web kept(port());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(kept.Post(BytesOf(kList)).status, 200);
    std::this_thread::sleep_for(600ms);
  }
  const auto start = std::chrono::steady_clock::now();
  // What comes of it makes it no longer.
  for (int i = 0; i < 40 && kept.Write("P"); ++i) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(kept.Ends());
  EXPECT_LT(std::chrono::steady_clock::now() - start, 4s);
  EXPECT_EQ(figures_.refusals(Refusal::kTooSlow), 1u);
  // Also if it came with the request before.
  Web eager(port());
  const Bytes list = BytesOf(kList);
  Bytes both = ToBytes(
      AsBytes(Web::Head("POST /v1/call", absl::StrCat("Content-Length: ", list.size(), "\r\n"))));
  Append(both, list);
  Append(both, AsBytes("POST"));
  eager.Write(both);
  EXPECT_EQ(eager.Read().status, 200);
  const auto then = std::chrono::steady_clock::now();
  EXPECT_TRUE(eager.Ends());
  EXPECT_LT(std::chrono::steady_clock::now() - then, 4s);
}

// What RFC 6455 has a server refuse is answered, counted, and its connection ends.
TEST_F(DoorTest, AWebSocketThatBeginsWronglyIsRefused) {
  Start([](Door::Options& options) { options.idle_timeout = options.progress_timeout = 6s; });
  const std::string upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  const std::string version = "Sec-WebSocket-Version: 13\r\n";
  const std::string key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  const std::vector<std::string> wrong = {
      key,
      version,
      version + key + key,
      "Sec-WebSocket-Version: 8\r\n" + key,
      version + "Sec-WebSocket-Version: 8\r\n" + key,
      version + "Sec-WebSocket-Key: \r\n",
      version + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ\r\n",
      version + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZSE=\r\n",
      version + "Sec-WebSocket-Key: " + std::string(1000, 'a') + "\r\n"};
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& fields : wrong) {
    Web web(port());
    const Response response = web.Ask("GET /v1/ws", upgrade + fields);
    EXPECT_EQ(response.status, 400) << fields;
    EXPECT_THAT(ErrorIn(response.body),
                shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument, "WebSocket"))
        << fields;
    EXPECT_TRUE(web.Ends());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_EQ(figures_.refusals(Refusal::kMalformed), wrong.size());
  EXPECT_EQ(figures_.web_sockets, 0u);
}

// Its end waits for no client that goes on to hold the connection.
TEST_F(DoorTest, AWebSocketThatEndsIsCutSoon) {
  Start([](Door::Options& options) { options.idle_timeout = 8s; });
  const auto start = std::chrono::steady_clock::now();
  Web unmasked(port()), closes(port()), busy(port());
  for (Web* web : {&unmasked, &closes, &busy}) ASSERT_EQ(web->Open().status, 101);
  unmasked.Write("\x82\x01x");
  EXPECT_TRUE(unmasked.Ends());
  EXPECT_EQ(figures_.refusals(Refusal::kMalformed), 1u);
  closes.Write(Web::Piece(Web::kClose, {}));
  EXPECT_TRUE(closes.Ends());
  // Also while its request waits.
  busy.Send(Wait('r', wire::ANSWERED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  busy.Write(Web::Piece(Web::kClose, {}));
  EXPECT_TRUE(busy.Ends());
  EXPECT_TRUE(Soon([&] { return figures_.connections == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 6s);
  EXPECT_EQ(figures_.refusals(Refusal::kMalformed), 1u);
  EXPECT_EQ(figures_.refusals(Refusal::kTooSlow), 0u);
  EXPECT_EQ(figures_.refusals(Refusal::kNoFrontend), 0u) << "whoever leaves is not refused";
}

// What is under way for it does not hold it up.
TEST_F(DoorTest, NothingIsAskedForAClientThatHasLeft) {
  Start();
  const Frame slow = FrameOf(FrameType::kFetchRefresh, "");
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  web.Send(BytesOf(slow));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  web.Send(BytesOf(slow));
  const auto start = std::chrono::steady_clock::now();
  web.Write(Web::Piece(Web::kClose, {}));
  EXPECT_EQ(web.NextOpcode(), Web::kClose);
  AnswerHeld(slow);  // the answer finds nobody
  EXPECT_TRUE(web.Ends());
  EXPECT_TRUE(Soon([&] { return figures_.connections == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_EQ(asked_, 1);
}

// A client that does not read its answers holds its own connection up, until it is cut.
TEST_F(DoorTest, AWebSocketThatStallsHoldsUpNobodyElse) {
  Start([](Door::Options& options) {
    options.progress_timeout = 500ms;
    options.shares.buffers = 10;
    options.max_buffered_bytes = 100 << 20;
  });
  Web stalled(port(), "127.0.0.2");
  ASSERT_EQ(stalled.Open().status, 101);
  for (int i = 0; i < 20; ++i) stalled.Send(BytesOf(FrameOf(FrameType::kFetchAnswers, "")));
  for (int i = 0; i < 20; ++i) ExpectServed("127.0.0.3");
  EXPECT_TRUE(Soon([&] { return figures_.web_sockets == 0; }));
  EXPECT_LT(asked_, 20 + 20);
}

TEST_F(DoorTest, AFrontendThatIsAwayIsSaidAndFoundAgain) {
  Start();
  const uint16_t frontend_port = frontend_->port();
  Web web(port()), socket(port());
  ASSERT_EQ(socket.Open().status, 101);
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 200);
  frontend_.reset();
  const Response response = web.Post(BytesOf(kList));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(ErrorIn(response.body), shoal::testing::StatusIs(absl::StatusCode::kUnavailable, ""));
  const auto answer = socket.Ask(kList);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(ErrorIn(*answer), shoal::testing::StatusIs(absl::StatusCode::kUnavailable, ""));
  StartFrontend(frontend_identity_, frontend_port);
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 200);
  EXPECT_EQ(socket.Ask(kList), BytesOf(FrameOf(kList.type, "answer to x")));
  // A rested connection that has ended is replaced without a word.
  frontend_.reset();
  StartFrontend(frontend_identity_, frontend_port);
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 200);
}

TEST_F(DoorTest, AnotherServerThanTheFrontendIsAskedNothing) {
  Start([](Door::Options& options) { options.frontend.pin[0] ^= 1; });
  Web web(port());
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 503);
  EXPECT_EQ(asked_, 0);
}

TEST_F(DoorTest, AnAnswerThatDoesNotComeIsGivenUp) {
  Start([](Door::Options& options) { options.answer_timeout = 300ms; });
  Web web(port()), socket(port());
  ASSERT_EQ(socket.Open().status, 101);
  const Frame wait = FrameOf(FrameType::kWaitRound, "");
  EXPECT_EQ(web.Post(BytesOf(wait)).status, 503);
  const auto answer = socket.Ask(wait);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(ErrorIn(*answer), shoal::testing::StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_EQ(socket.Ask(kList), BytesOf(FrameOf(kList.type, "answer to x")));
  EXPECT_TRUE(Soon([&] { return figures_.frontend_connections <= 1; }));
}

TEST_F(DoorTest, ConnectionsToTheFrontendAreBounded) {
  Start([](Door::Options& options) { options.frontend.max_links = 2; });
  Web one(port()), two(port()), three(port());
  const Bytes wait = BytesOf(FrameOf(FrameType::kWaitRound, ""));
  for (Web* web : {&one, &two}) {
    ASSERT_EQ(web->Open().status, 101);
    web->Send(wait);
  }
  EXPECT_TRUE(Soon([&] { return asked_ == 2; }));
  EXPECT_EQ(three.Post(BytesOf(kList)).status, 503);
  {
    const MutexLock lock(mutex_);
    for (net::Reply& reply : held_) reply(FrameOf(FrameType::kWaitRound, "now"));
    held_.clear();
  }
  EXPECT_EQ(one.Receive(), BytesOf(FrameOf(FrameType::kWaitRound, "now")));
  EXPECT_EQ(two.Receive(), BytesOf(FrameOf(FrameType::kWaitRound, "now")));
  EXPECT_EQ(three.Post(BytesOf(kList)).status, 200);
}

TEST_F(DoorTest, AnAddressHasAShareOfWaitingRequests) {
  constexpr int kShare = 8;  // the least
  Start([](Door::Options& options) {
    options.frontend.max_links = 20;
    options.shares.connections = 10;
  });
  const std::string kGreedy = "127.0.0.7";
  std::vector<std::unique_ptr<Web>> waiting;
  for (int i = 0; i < kShare; ++i) {
    waiting.push_back(std::make_unique<Web>(port(), kGreedy));
    ASSERT_EQ(waiting.back()->Open().status, 101);
    waiting.back()->Send(BytesOf(FrameOf(FrameType::kWaitRound, "")));
  }
  EXPECT_TRUE(Soon([&] { return asked_ == kShare; }));
  EXPECT_EQ(Web(port(), kGreedy).Post(BytesOf(kList)).status, 503);
  ExpectServed("127.0.0.8");
  // A place is free again when its request is answered, or its connection ends.
  {
    const MutexLock lock(mutex_);
    for (net::Reply& reply : held_) reply(FrameOf(FrameType::kWaitRound, "now"));
    held_.clear();
  }
  EXPECT_EQ(waiting[0]->Receive(), BytesOf(FrameOf(FrameType::kWaitRound, "now")));
  ExpectServed(kGreedy);
}

// Of an address that many share, or of a relay's clients: they wait for the same.
TEST_F(DoorTest, AWaitHoldsNoConnectionToTheFrontend) {
  constexpr int kWaiters = 64;
  Start([](Door::Options& options) {
    options.frontend.max_links = kWaiters;
    SHOAL_CHECK(options.shared_addresses.Add("127.0.0.7").ok());
  });
  std::vector<std::unique_ptr<Web>> waiting;
  for (int i = 0; i < kWaiters; ++i) {
    waiting.push_back(std::make_unique<Web>(port(), "127.0.0.7"));
    if (i % 2 == 0) {
      ASSERT_EQ(waiting.back()->Open().status, 101);
    }
    const Bytes wait = Wait('r', wire::ANSWERED, 60'000 - static_cast<uint32_t>(i));
    if (i % 2 == 0) {
      waiting.back()->Send(wait);
    } else {
      waiting.back()->Write(
          Web::Head("POST /v1/call", absl::StrCat("Content-Length: ", wait.size(), "\r\n")));
      waiting.back()->Write(wait);
    }
  }
  EXPECT_TRUE(Soon([&] { return figures_.requests == kWaiters && held() == 1; }));
  ExpectServed("127.0.0.7");
  ExpectServed("127.0.0.8");
  EXPECT_LE(frontend_->connections(), 2u);
  EXPECT_EQ(asked_, 3);
  // The frontend's time is up, and those who wait are not told: it is asked again. (It is taken at
  // its word if it says so at once.)
  std::this_thread::sleep_for(1200ms);
  AnswerHeld(RoundIn(wire::SEALED));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  AnswerHeld(RoundIn(wire::CLOSED));
  const Bytes answer = BytesOf(RoundIn(wire::CLOSED));
  for (int i = 0; i < kWaiters; ++i) {
    EXPECT_EQ(i % 2 == 0 ? waiting[i]->Receive() : waiting[i]->Read().body, answer) << i;
  }
}

TEST_F(DoorTest, WhoeverWaitsIsAnsweredWhenTheTimeIsUp) {
  Start();
  Web patient(port()), hasty(port()), other(port());
  for (Web* web : {&patient, &hasty, &other}) ASSERT_EQ(web->Open().status, 101);
  patient.Send(Wait('r', wire::ANSWERED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  other.Send(Wait('r', wire::CLOSED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 2; }));
  hasty.Send(Wait('r', wire::ANSWERED, 300));
  // How the round is then, which is asked anew.
  const auto answer = hasty.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(std::string(AsText(*answer)), HasSubstr("answer to "));
  EXPECT_EQ(held(), 2u);
  EXPECT_EQ(asked_, 3);
  // What is no wish of a client's own is passed on as it is.
  EXPECT_THAT(std::string(AsText(*hasty.Ask(FrameOf(FrameType::kWaitRound, "\xff")))),
              HasSubstr("answer to \xff"));
  // Each state has its own answer, and an error is one.
  {
    const MutexLock lock(mutex_);
    held_[0](RoundIn(wire::ANSWERED));
    held_[1](absl::NotFoundError("no such round"));
    held_.clear();
  }
  EXPECT_EQ(patient.Receive(), BytesOf(RoundIn(wire::ANSWERED)));
  EXPECT_THAT(ErrorIn(other.Receive().value_or(Bytes())),
              shoal::testing::StatusIs(absl::StatusCode::kNotFound, "no such round"));
}

// A subscription for which there is no connection answers at once, and within the call that makes
// it.
TEST_F(DoorTest, AWaitWithoutAConnectionIsAnsweredAndTheDoorGoesOn) {
  Start([](Door::Options& options) { options.frontend.max_links = 4; });
  std::vector<std::unique_ptr<Web>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(std::make_unique<Web>(port(), absl::StrCat("127.0.1.", 1 + i)));
    ASSERT_EQ(busy.back()->Open().status, 101);
    busy.back()->Send(BytesOf(FrameOf(FrameType::kFetchRefresh, "")));
  }
  EXPECT_TRUE(Soon([&] { return held() == 4; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Web(port(), "127.0.2.1").Post(Wait('r', wire::CLOSED, 60'000)).status, 503);
  }
  AnswerHeld(FrameOf(FrameType::kFetchRefresh, ""));
  for (const auto& web : busy) EXPECT_TRUE(web->Receive().has_value());
  ExpectServed();
}

// All whose time is up at once ask together.
TEST_F(DoorTest, ManyWhoseTimeIsUpAskOnce) {
  constexpr int kWaiters = 24;
  Start([](Door::Options& options) { options.frontend.max_links = 8; });
  std::vector<std::unique_ptr<Web>> waiting;
  for (int i = 0; i < kWaiters; ++i) {
    waiting.push_back(std::make_unique<Web>(port(), absl::StrCat("127.0.3.", 1 + i)));
    ASSERT_EQ(waiting.back()->Open().status, 101);
  }
  for (const auto& web : waiting) web->Send(Wait('r', wire::ANSWERED, 1'500));
  for (const auto& web : waiting) {
    const auto answer = web->Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(std::string(AsText(*answer)), HasSubstr("answer to "));
  }
  EXPECT_LE(frontend_->connections(), 4u);
}

TEST_F(DoorTest, ASubscriptionLastsForAsLongAsSomebodyWaits) {
  Start([](Door::Options& options) { options.frontend.max_links = 8; });
  auto one = std::make_unique<Web>(port());
  Web two(port());
  ASSERT_EQ(one->Open().status, 101);
  ASSERT_EQ(two.Open().status, 101);
  one->Send(Wait('r', wire::CLOSED, 60'000));
  two.Send(Wait('r', wire::CLOSED, 60'000));
  EXPECT_TRUE(Soon([&] { return figures_.requests == 2 && held() == 1; }));
  one.reset();
  EXPECT_TRUE(Soon([&] { return figures_.web_sockets == 1; }));
  two.tls().Close();
  EXPECT_TRUE(Soon([&] { return figures_.web_sockets == 0; }));
  // Whoever comes before the frontend has answered finds it.
  Web late(port());
  ASSERT_EQ(late.Open().status, 101);
  late.Send(Wait('r', wire::CLOSED, 60'000));
  EXPECT_TRUE(Soon([&] { return figures_.requests == 3; }));
  EXPECT_EQ(held(), 1u);
  late.tls().Close();
  EXPECT_TRUE(Soon([&] { return figures_.web_sockets == 0; }));
  // Then it is not asked again, and its connection serves the next request.
  std::this_thread::sleep_for(1200ms);  // so that the frontend would be asked again
  AnswerHeld(RoundIn(wire::SEALED));
  ExpectServed();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(figures_.frontend_handshakes, 1u);
  const uint64_t requests = figures_.requests;
  // There are at most a quarter as many as connections. States that no round reaches are one.
  std::vector<std::unique_ptr<Web>> waiting;
  for (const int state : {wire::CLOSED + 2, 100, 1 << 30, int{wire::CLOSED}}) {
    waiting.push_back(std::make_unique<Web>(port()));
    ASSERT_EQ(waiting.back()->Open().status, 101);
    waiting.back()->Send(Wait('r', state, 60'000));
    EXPECT_TRUE(Soon([&] { return figures_.requests == requests + waiting.size(); }));
  }
  EXPECT_TRUE(Soon([&] { return held() == 2; }));
  Web one_more(port());
  EXPECT_EQ(one_more.Post(Wait('s', wire::CLOSED, 60'000)).status, 503);
  ExpectServed();
}

TEST_F(DoorTest, AnAddressHasAShareOfSubscriptions) {
  constexpr int kShare = 8;  // the least
  Start([](Door::Options& options) {
    options.frontend.max_links = 80;  // and a quarter as many subscriptions
    options.shares.connections = 10;
  });
  const std::string kGreedy = "127.0.0.7", kOther = "127.0.0.8";
  std::vector<std::unique_ptr<Web>> waiting;
  const auto wait = [&](const std::string& from, char round) {
    waiting.push_back(std::make_unique<Web>(port(), from));
    ASSERT_EQ(waiting.back()->Open().status, 101);
    const uint64_t before = figures_.requests;
    waiting.back()->Send(Wait(round, wire::ANSWERED, 60'000));
    EXPECT_TRUE(Soon([&] { return figures_.requests == before + 1; }));
  };
  for (int i = 0; i < kShare; ++i) wait(kGreedy, static_cast<char>('a' + i));
  EXPECT_TRUE(Soon([&] { return held() == kShare; }));
  EXPECT_EQ(Web(port(), kGreedy).Post(Wait('y', wire::ANSWERED, 2'000)).status, 503);
  EXPECT_GT(figures_.refusals(Refusal::kNoRoom), 0u);
  EXPECT_EQ(figures_.refusals(Refusal::kNoFrontend), 0u) << "one reason for one refusal";
  // It may wait for what it waits for already, and others for anything.
  wait(kGreedy, 'a');
  wait(kOther, 'a');
  wait(kOther, 'z');
  EXPECT_TRUE(Soon([&] { return held() == kShare + 1; }));
  ExpectServed(kGreedy);
  // What others go on to wait for does not count for who has left.
  waiting.erase(waiting.begin());
  EXPECT_TRUE(Soon([&] { return figures_.web_sockets == kShare + 2; }));
  EXPECT_EQ(Web(port(), kGreedy).Post(Wait('y', wire::ANSWERED, 100)).status, 503);
  waiting.erase(waiting.begin() + kShare - 1);  // the other one that waited for a
  EXPECT_TRUE(Soon([&] { return figures_.web_sockets == kShare + 1; }));
  wait(kGreedy, 'y');
  EXPECT_TRUE(Soon([&] { return held() == kShare + 2; }));
}

// Whoever was let wait gets an answer, though all that may be waited for is.
TEST_F(DoorTest, AWaitThatEndsNeedsNoPlaceForItsAnswer) {
  Start([](Door::Options& options) { options.frontend.max_links = 4; });  // one subscription
  Web web(port());
  for (int i = 0; i < 3; ++i) {
    const Response response = web.Post(Wait('r', wire::ANSWERED, 100));
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(std::string(AsText(response.body)), HasSubstr("answer to "));
  }
  EXPECT_EQ(web.Post(Wait('s', wire::ANSWERED, 100)).status, 503);
}

TEST_F(DoorTest, AShortWaitCostsTheFrontendNoHandshake) {
  Start();
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  constexpr int kWaits = 100;
  for (int i = 0; i < kWaits; ++i) {
    web.Send(Wait('r', wire::ANSWERED, 1));
    const auto answer = web.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(std::string(AsText(*answer)), HasSubstr("answer to "));
  }
  RecordProperty("handshakes", static_cast<int>(figures_.frontend_handshakes));
  EXPECT_LE(figures_.frontend_handshakes, 2u) << "for " << kWaits << " waits";
  EXPECT_LE(held(), 1u);
  // The door ends though the frontend has not answered.
  const auto start = std::chrono::steady_clock::now();
  door_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
}

// It is asked for a moment at a time, so that a door notices what a client would wait for in vain.
TEST_F(DoorTest, AFrontendThatHangsHoldsNobodyUp) {
  Start([](Door::Options& options) { options.wait_step = 300ms; });
  Web patient(port()), hasty(port());
  for (Web* web : {&patient, &hasty}) ASSERT_EQ(web->Open().status, 101);
  const auto start = std::chrono::steady_clock::now();
  patient.Send(Wait('r', wire::ANSWERED, 60'000));
  hasty.Send(Wait('s', wire::ANSWERED, 1));
  EXPECT_TRUE(hasty.Receive().has_value());
  const auto answer = patient.Receive();
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(ErrorIn(*answer),
              shoal::testing::StatusIs(absl::StatusCode::kUnavailable, "does not answer"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
  EXPECT_EQ(figures_.refusals(Refusal::kNoFrontend), 1u);
  // Nor does anything stay of what nobody waits for.
  EXPECT_TRUE(Soon([&] { return figures_.frontend_connections <= 1; }));
  ExpectServed();
}

TEST_F(DoorTest, AGroupHasAShareOfConnectionsAndOfRequests) {
  Start([](Door::Options& options) {
    options.max_connections = 40;
    options.frontend.max_links = 20;
    options.shares = {.connections = 50, .newcomers = 50, .buffers = 50};
    options.group_shares = {.connections = 60, .newcomers = 60, .buffers = 60};
    SHOAL_CHECK(options.shared_addresses.Add("127.1.0.0/16").ok());
  });
  std::vector<std::unique_ptr<Web>> group;
  for (int i = 0; i < 24; ++i) {
    group.push_back(std::make_unique<Web>(port(), absl::StrCat("127.1.0.", 1 + i)));
    ASSERT_EQ(group.back()->Open().status, 101) << i;
  }
  EXPECT_EQ(Web(port(), "127.1.9.9").Open().status, 503);
  ExpectServed("127.0.0.8");
  for (int i = 0; i < 12; ++i) group[i]->Send(BytesOf(FrameOf(FrameType::kFetchRefresh, "")));
  EXPECT_TRUE(Soon([&] { return held() == 12; }));
  const auto answer = group[12]->Ask(kList);
  ASSERT_TRUE(answer.has_value());
  EXPECT_THAT(ErrorIn(*answer),
              shoal::testing::StatusIs(absl::StatusCode::kUnavailable, "too many"));
  ExpectServed("127.0.0.8");
}

// A client's library pings while its request waits for a minute, and gives up without an answer.
TEST_F(DoorTest, APingIsAnsweredWhileARequestWaits) {
  Start([](Door::Options& options) { options.wait_step = 60s; });
  Web web(port());
  ASSERT_EQ(web.Open().status, 101);
  web.Send(Wait('r', wire::ANSWERED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  web.Write(Web::Piece(Web::kPing, {}));
  EXPECT_EQ(web.NextOpcode(), Web::kPong);
  // Also behind the next requests, which wait for their turn.
  for (int i = 0; i < 20; ++i) web.Send(BytesOf(FrameOf(FrameType::kGetStatus, absl::StrCat(i))));
  web.Write(Web::Piece(Web::kPing, AsBytes("x")));
  EXPECT_EQ(web.NextOpcode(), Web::kPong);
  EXPECT_EQ(asked_, 1);
  AnswerHeld(RoundIn(wire::ANSWERED));
  EXPECT_EQ(web.Receive(), BytesOf(RoundIn(wire::ANSWERED)));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(web.Receive(),
              BytesOf(FrameOf(FrameType::kGetStatus, absl::StrCat("answer to ", i))));
  }
}

// What a client sends while its request waits is kept, up to a limit; then it waits for itself.
TEST_F(DoorTest, AClientThatWaitsFillsNoMemory) {
  constexpr int kMessages = 16;
  Start([](Door::Options& options) {
    options.address_onion_bytes = 1e9;
    options.wait_step = 60s;  // so that the frontend is asked once for who waits
  });
  Web web(port(), "127.0.0.2");
  ASSERT_EQ(web.Open().status, 101);
  web.Send(Wait('r', wire::ANSWERED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  const Bytes onions = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(1 << 20, 'o')));
  std::atomic<int> sent = 0;
  std::thread sends([&] {
    for (int i = 0; i < kMessages; ++i) {
      web.Send(onions);
      ++sent;
    }
  });
  // Longer than the door takes for as much of somebody who does not wait.
  constexpr int kServed = 4 * kMessages;
  Web served(port(), "127.0.0.3");
  for (int i = 0; i < kServed; ++i) EXPECT_EQ(served.Post(onions).status, 200) << i;
  EXPECT_LT(sent, kMessages) << "the systems' buffers hold less";
  EXPECT_EQ(asked_, 1 + kServed);
  ::shutdown(web.tls().descriptor(), SHUT_RDWR);
  sends.join();
}

TEST_F(DoorTest, AnotherFrontendTakesTheNextRequests) {
  Start();
  Web web(port()), waits(port());
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 200);
  ASSERT_EQ(waits.Open().status, 101);
  waits.Send(Wait('r', wire::ANSWERED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 1; }));
  std::unique_ptr<net::Server> before = std::move(frontend_);
  const TestIdentity next(7);
  StartFrontend(next);
  const int asked = asked_;
  FrontendOptions where{.address = absl::StrCat("127.0.0.1:", frontend_->port()),
                        .pin = frontend_identity_.digest()};
  SHOAL_EXPECT_OK(door_->UseFrontend(where));
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 503) << "it has another certificate";
  where.pin = next.digest();
  SHOAL_EXPECT_OK(door_->UseFrontend(where));
  ExpectServed();
  EXPECT_EQ(asked_, asked + 1);
  // What the one before has is answered.
  AnswerHeld(RoundIn(wire::ANSWERED));
  EXPECT_EQ(waits.Receive(), BytesOf(RoundIn(wire::ANSWERED)));
  before.reset();
  ExpectServed();
}

// What a frontend that was left still has takes nothing from the next one.
TEST_F(DoorTest, TheNextFrontendHasAllConnections) {
  Start([](Door::Options& options) {
    options.frontend.max_links = 4;
    options.shares.connections = 1;  // 8 places, so that it is all that one address may have
  });
  Web first(port()), second(port()), waits(port());
  for (Web* web : {&first, &second, &waits}) ASSERT_EQ(web->Open().status, 101);
  for (Web* web : {&first, &second}) web->Send(BytesOf(FrameOf(FrameType::kFetchRefresh, "")));
  waits.Send(Wait('r', wire::ANSWERED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 3; }));
  ExpectServed();  // over a connection that rests then
  EXPECT_EQ(frontend_->connections(), 4u);
  std::unique_ptr<net::Server> before = std::move(frontend_);
  const TestIdentity next(7);
  StartFrontend(next);
  SHOAL_ASSERT_OK(door_->UseFrontend(
      {.address = absl::StrCat("127.0.0.1:", frontend_->port()), .pin = next.digest()}));
  EXPECT_TRUE(Soon([&] { return before->connections() == 3; }));
  std::vector<std::unique_ptr<Web>> busy;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(std::make_unique<Web>(port()));
    ASSERT_EQ(busy.back()->Open().status, 101);
    busy.back()->Send(BytesOf(FrameOf(FrameType::kFetchRefresh, "")));
  }
  EXPECT_TRUE(Soon([&] { return held() == 6; }));
  ExpectServed();
  // What the one before answers is passed on, and then nothing is left of it.
  AnswerHeld(RoundIn(wire::ANSWERED));
  for (Web* web : {&first, &second, &waits}) EXPECT_TRUE(web->Receive().has_value());
  EXPECT_TRUE(Soon([&] { return before->connections() == 0; }));
}

// Clients that come, wait, stall, break the rules and go, many at a time, while the frontend
// changes: then nothing of them is left, and who comes next is served.
TEST_F(DoorTest, NothingStaysOfClientsThatComeAndGo) {
  Start([](Door::Options& options) {
    options.max_connections = options.max_newcomers = 64;
    options.frontend.max_links = 32;
    options.shares = {.connections = 25, .newcomers = 25, .buffers = 25};
    options.group_shares = {.connections = 50, .newcomers = 50, .buffers = 50};
    options.address_connections = options.address_requests = 1e6;
    options.handshake_timeout = options.head_timeout = options.progress_timeout = 500ms;
    options.wait_step = 200ms;
    SHOAL_CHECK(options.shared_addresses.Add("127.1.0.0/16").ok());
  });
  std::atomic<bool> done = false;
  std::vector<std::thread> clients;
  for (unsigned number = 0; number < 6; ++number) {
    clients.emplace_back([&, number] {
      std::minstd_rand draw(number + 1);
      std::deque<std::unique_ptr<Web>> stalled;  // and go on to hold their connections
      while (!done) {
        const std::string from = absl::StrCat("127.", number % 2, ".0.", 2 + draw() % 3);
        stalled.push_back(std::make_unique<Web>(port(), from));
        if (stalled.size() > 4) stalled.pop_front();
        Web& web = *stalled.back();
        if (draw() % 4 != 0) stalled.erase(stalled.begin(), std::prev(stalled.end()));
        if (draw() % 8 == 0) continue;
        if (draw() % 4 == 0) {  // half a head, or a call whose client does not wait
          web.Write(draw() % 2 == 0 ? "POST /v1"
                                    : Web::Head("POST /v1/call", "Content-Length: 20\r\n"));
          if (draw() % 2 == 0) web.Write(BytesOf(FrameOf(FrameType::kFetchRefresh, "")));
          continue;
        }
        if (web.Open().status != 101) continue;
        for (unsigned i = draw() % 6; i > 0; --i) {
          const auto round = static_cast<char>('a' + draw() % 4);
          const int state = 1 + static_cast<int>(draw() % 4);
          switch (draw() % 6) {
            case 0:
              web.Send(Wait(round, state, 60'000));
              break;  // and does not wait for the answer
            case 1:
              web.Write(Web::Piece(Web::kPing, {}));
              break;
            case 2:
              if (draw() % 4 == 0) web.Write("\x82\x01x");
              break;
            default:
              web.Send(Wait(round, state, 1 + draw() % 50));
              (void)web.Receive();
          }
        }
        if (draw() % 4 == 0) web.Write(Web::Piece(Web::kClose, {}));
      }
    });
  }
  std::vector<std::unique_ptr<net::Server>> before;
  for (int i = 0; i < 60; ++i) {
    std::this_thread::sleep_for(50ms);
    AnswerHeld(RoundIn(i % 3 == 0 ? wire::CLOSED : wire::SEALED));
    if (i % 20 != 10) continue;
    before.push_back(std::move(frontend_));
    StartFrontend(frontend_identity_);
    SHOAL_EXPECT_OK(door_->UseFrontend({.address = absl::StrCat("127.0.0.1:", frontend_->port()),
                                        .pin = frontend_identity_.digest()}));
  }
  done = true;
  std::thread answers([&] {
    while (done) {
      AnswerHeld(RoundIn(wire::CLOSED));
      std::this_thread::sleep_for(50ms);
    }
  });
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Soon([&] { return figures_.connections == 0 && figures_.web_sockets == 0; }));
  EXPECT_TRUE(Soon([&] {
    return std::ranges::all_of(before, [](const auto& one) { return one->connections() == 0; });
  }));
  done = false;
  answers.join();
  EXPECT_EQ(figures_.frontend_connections, frontend_->connections());
  // Every place is free again: as many as there are wait for rounds, and one more is served.
  std::vector<std::unique_ptr<Web>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::make_unique<Web>(port(), "127.0.0.2"));
    ASSERT_EQ(waiting.back()->Open().status, 101);
    waiting.back()->Send(Wait(static_cast<char>('A' + i), wire::ANSWERED, 60'000));
  }
  EXPECT_TRUE(Soon([&] { return held() == 8; }));
  ExpectServed("127.0.0.2");
  for (int i = 0; i < 12; ++i) ExpectServed(absl::StrCat("127.1.0.", 1 + i));
}

TEST_F(DoorTest, TheWatchdogsProbeComesBack) {
  Start();
  std::promise<void> back;
  std::thread probe([&] {
    door_->Probe();
    back.set_value();
  });
  EXPECT_EQ(back.get_future().wait_for(60s), std::future_status::ready);
  probe.join();
}

TEST_F(DoorTest, OnlyAProxyOfTheOperatorNamesClients) {
  Start([](Door::Options& options) {
    ASSERT_TRUE(options.proxies.Add("127.0.0.9").ok());
    options.address_requests = 2;
  });
  const auto ask = [&](const std::string& from, absl::string_view fields) {
    Web web(port(), from);
    return web.Post(BytesOf(kList), fields).status;
  };
  const std::string kProxy = "127.0.0.9";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ask(kProxy, "X-Forwarded-For: 192.0.2.1\r\n"), 200);
  }
  EXPECT_EQ(ask(kProxy, "X-Forwarded-For: 192.0.2.1\r\n"), 429);
  // The client in front of the proxy cannot choose another address.
  EXPECT_EQ(ask(kProxy, "X-Forwarded-For: 192.0.2.9, 192.0.2.1\r\n"), 429);
  EXPECT_EQ(ask(kProxy, "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-For: 192.0.2.1\r\n"), 429);
  EXPECT_EQ(ask(kProxy, "X-Forwarded-For: 192.0.2.2\r\n"), 200);
  EXPECT_EQ(ask(kProxy, ""), 400);
  // With its port it is the same client.
  EXPECT_EQ(ask(kProxy, "X-Forwarded-For: 192.0.2.1:4711\r\n"), 429);
  EXPECT_EQ(ask(kProxy, "X-Forwarded-For: [2001:db8::1]:4711\r\n"), 200);
  // Nobody else can either.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ask("127.0.0.2", absl::StrCat("X-Forwarded-For: 192.0.2.", 100 + i, "\r\n")), 200);
  }
  EXPECT_EQ(ask("127.0.0.2", "X-Forwarded-For: 192.0.2.102\r\n"), 429);
}

TEST_F(DoorTest, ANewCertificateIsShownToNewConnections) {
  Start();
  const auto shown = [&] {
    boost::asio::io_context io;
    boost::asio::ssl::context context(boost::asio::ssl::context::tls_client);
    boost::asio::ssl::stream<boost::asio::ip::tcp::socket> stream(io, context);
    stream.next_layer().connect({boost::asio::ip::make_address(kLoopback), port()});
    stream.handshake(boost::asio::ssl::stream_base::client);
    return *net::PeerCertificateSha256(stream.native_handle());
  };
  EXPECT_EQ(shown(), door_identity_.digest());
  Web before(port());
  EXPECT_EQ(before.Post(BytesOf(kList)).status, 200);
  const TestIdentity next(3);
  net::Identity wrong = next.identity();
  wrong.certificate_pem = door_identity_.identity().certificate_pem;
  EXPECT_FALSE(door_->UseCertificate(wrong).ok());
  EXPECT_EQ(shown(), door_identity_.digest());
  SHOAL_EXPECT_OK(door_->UseCertificate(next.identity()));
  EXPECT_EQ(shown(), next.digest());
  EXPECT_EQ(before.Post(BytesOf(kList)).status, 200);
}

TEST_F(DoorTest, WithoutACertificateItSpeaksPlainHttp) {
  Start([](Door::Options& options) { options.identity = {}; });
  net::testing::RawSocket plain(port());
  const Bytes frame = BytesOf(kList);
  const std::string request = absl::StrCat(
      Web::Head("POST /v1/call",
                absl::StrCat("Content-Length: ", frame.size(), "\r\nConnection: close\r\n")),
      AsText(frame));
  boost::asio::write(plain.socket, boost::asio::buffer(request));
  std::string answer;
  boost::system::error_code error;
  boost::asio::read(plain.socket, boost::asio::dynamic_buffer(answer), error);
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("answer to x"));
}

// With tokens for onions.
class TokenDoorTest : public DoorTest {
 protected:
  static constexpr char kName[] = "issuer.example";
  static constexpr char kOrigin[] = "door.example";

  static const TestIssuer& issuer() {
    static const TestIssuer made;
    return made;
  }
  static std::string Token(uint32_t number) {
    return TestIssuer::Authorization(issuer().Token(number, kName, kOrigin));
  }
  static std::string Field(const std::string& token) {
    return absl::StrCat("Authorization: ", token, "\r\n");
  }
  void StartWithTokens() {
    const std::vector<Issuer> issuers = {{.name = kName, .public_key_der = issuer().public_der()}};
    rules_.emplace(*TokenRules::Create(issuers, kOrigin));
    const std::string directory = absl::StrCat(
        ::testing::TempDir(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
    SHOAL_ASSERT_OK(SpentTokens::Begin(directory, rules_->key_ids().front()));
    auto opened = SpentTokens::Open(directory, rules_->key_ids(), 100);
    SHOAL_ASSERT_OK(opened.status());
    spent_ = *std::move(opened);
    Start([&](Door::Options& options) {
      options.tokens = &*rules_;
      options.spent = spent_.get();
      options.token_onion_bytes = 10'000;
    });
  }
  ~TokenDoorTest() override { door_.reset(); }

  const Bytes onions_ = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(4000, 'o')));
  std::optional<TokenRules> rules_;
  std::unique_ptr<SpentTokens> spent_;
};

TEST_F(TokenDoorTest, OnionsNeedATokenAndNothingElseDoes) {
  StartWithTokens();
  Web web(port());
  EXPECT_EQ(web.Post(BytesOf(kList)).status, 200);
  const Response refused = web.Post(onions_);
  EXPECT_EQ(refused.status, 401);
  EXPECT_THAT(refused.head, HasSubstr("WWW-Authenticate: PrivateToken challenge=\""));
  EXPECT_THAT(ErrorIn(refused.body),
              shoal::testing::StatusIs(absl::StatusCode::kPermissionDenied, "token"));
  EXPECT_EQ(asked_, 1);
  Web challenge(port());
  const Response asked = challenge.Ask("GET /v1/token-challenge");
  EXPECT_EQ(asked.status, 401);
  EXPECT_THAT(asked.head, HasSubstr(absl::StrCat("WWW-Authenticate: ", rules_->challenges())));
  Web lost(port());
  EXPECT_THAT(ErrorIn(lost.Ask("GET /").body),
              shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                       "at /v1/ws, GET /v1/token-challenge"));
  Web paid(port());
  EXPECT_EQ(paid.Post(onions_, Field(Token(1))).status, 200);
  EXPECT_EQ(asked_, 2);
}

TEST_F(TokenDoorTest, ATokenIsSpentOnce) {
  StartWithTokens();
  Web first(port()), second(port()), socket(port());
  EXPECT_EQ(first.Post(onions_, Field(Token(1))).status, 200);
  const Response again = second.Post(onions_, Field(Token(1)));
  EXPECT_EQ(again.status, 401);
  EXPECT_THAT(ErrorIn(again.body),
              shoal::testing::StatusIs(absl::StatusCode::kPermissionDenied, "spent before"));
  ASSERT_EQ(socket.Open().status, 101);
  socket.Write(Web::Piece(Web::kText, AsBytes(Token(1))));
  EXPECT_THAT(ErrorIn(socket.Receive().value_or(Bytes())),
              shoal::testing::StatusIs(absl::StatusCode::kPermissionDenied, "spent before"));
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(figures_.refusals(Refusal::kSpentToken), 2u);
  // At the same time, over eight connections: one is served.
  std::atomic<int> served = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      Web web(port());
      served += web.Post(onions_, Field(Token(2))).status == 200;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 1);
  EXPECT_EQ(asked_, 2);
}

TEST_F(TokenDoorTest, ATokenPaysForSoManyOnions) {
  StartWithTokens();
  Web web(port());
  const Bytes many = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(10'000, 'o')));
  EXPECT_EQ(web.Post(many, Field(Token(1))).status, 413);
  EXPECT_EQ(spent_->count(0), 0u);
  Web socket(port());
  ASSERT_EQ(socket.Open().status, 101);
  socket.Send(onions_);
  EXPECT_THAT(ErrorIn(socket.Receive().value_or(Bytes())),
              shoal::testing::StatusIs(absl::StatusCode::kPermissionDenied, "text message"));
  EXPECT_EQ(asked_, 0);
  socket.Write(Web::Piece(Web::kText, AsBytes(Token(1))));
  // Two times 4,020 bytes, and not a third time.
  for (int i = 0; i < 2; ++i) {
    socket.Send(onions_);
    const auto answer = socket.Receive();
    ASSERT_TRUE(answer.has_value());
    EXPECT_THAT(std::string(AsText(*answer)), HasSubstr("answer to ooo"));
  }
  socket.Send(onions_);
  EXPECT_THAT(ErrorIn(socket.Receive().value_or(Bytes())),
              shoal::testing::StatusIs(absl::StatusCode::kPermissionDenied, ""));
  EXPECT_EQ(socket.Ask(kList), BytesOf(FrameOf(kList.type, "answer to x")));
  EXPECT_EQ(asked_, 3);
}

TEST_F(TokenDoorTest, TheShareOfAnAddressDoesNotApplyToOnions) {
  StartWithTokens();
  const Bytes onions = BytesOf(FrameOf(FrameType::kSubmitOnions, std::string(9'000, 'o')));
  for (uint32_t i = 0; i < 20; ++i) {
    Web web(port());
    EXPECT_EQ(web.Post(onions, Field(Token(i))).status, 200);
  }
}

// A stand-in for shoal-ohttp: what is sealed has a byte 's' before it. A request that begins with
// 'g' is one for something else, one with 'k' was sealed for another key.
class FakeOhttp {
 public:
  explicit FakeOhttp(const std::string& path)
      : acceptor_(io_, boost::asio::local::stream_protocol::endpoint(path)), thread_([this] {
          std::vector<std::thread> serving;
          for (;;) {
            Socket socket(io_);
            boost::system::error_code error;
            acceptor_.accept(socket, error);
            if (stopping_ || error) break;
            serving.emplace_back([socket = std::move(socket)]() mutable {
              boost::system::error_code failed;
              Serve(socket, failed);
            });
          }
          for (std::thread& one : serving) one.join();
        }) {}
  ~FakeOhttp() {
    stopping_ = true;
    boost::asio::local::stream_protocol::socket wake(io_);
    boost::system::error_code ignored;
    wake.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }

 private:
  using Socket = boost::asio::local::stream_protocol::socket;
  static Bytes Read(Socket& socket, size_t size, boost::system::error_code& error) {
    Bytes bytes(size);
    boost::asio::read(socket, boost::asio::buffer(bytes), error);
    return bytes;
  }
  static void Write(Socket& socket, Bytes head, BytesView blob, boost::system::error_code& error) {
    AppendLe<uint32_t>(head, static_cast<uint32_t>(blob.size()));
    Append(head, blob);
    boost::asio::write(socket, boost::asio::buffer(head), error);
  }
  static void Serve(Socket& socket, boost::system::error_code& error) {
    const Bytes request = Read(socket, LoadLe<uint32_t>(Read(socket, 4, error).data()), error);
    if (error) return;
    if (request.empty()) return Write(socket, {1}, AsBytes("the keys"), error);
    if (request[0] == 'g') return Write(socket, {1}, AsBytes("s not here"), error);
    if (request[0] != 's') {
      const Bytes what = {static_cast<uint8_t>(request[0] == 'k' ? 3 : 0)};
      boost::asio::write(socket, boost::asio::buffer(what), error);
      return;
    }
    Write(socket, {2, 3, 0, 'a', 'b', 'c'}, BytesView(request).subspan(1), error);
    const uint16_t status = LoadLe<uint16_t>(Read(socket, 2, error).data());
    Read(socket, LoadLe<uint16_t>(Read(socket, 2, error).data()), error);
    const Bytes body = Read(socket, LoadLe<uint32_t>(Read(socket, 4, error).data()), error);
    const std::string sealed = absl::StrCat("s", status, " ", AsText(body));
    Write(socket, {}, AsBytes(sealed), error);
  }

  boost::asio::io_context io_;
  boost::asio::local::stream_protocol::acceptor acceptor_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

TEST_F(DoorTest, WhatARelayBringsIsOpenedAnsweredAndSealed) {
  char directory[] = "/tmp/door-XXXXXX";  // the path of a socket is short
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string path = absl::StrCat(directory, "/ohttp");
  Start([&](Door::Options& options) { options.ohttp_socket = path; });
  const std::string type = "Content-Type: message/ohttp-req\r\n";
  const auto post = [&](const Bytes& body, const std::string& fields) {
    Web web(port());
    web.Write(
        Web::Head("POST /v1/ohttp", absl::StrCat("Content-Length: ", body.size(), "\r\n", fields)));
    web.Write(body);
    return web.Read();
  };
  Bytes sealed = {'s'};
  Append(sealed, BytesOf(kList));
  EXPECT_EQ(post(sealed, type).status, 503);
  {
    const FakeOhttp ohttp(path);
    Web web(port());
    const Response keys = web.Ask("GET /v1/ohttp-keys");
    EXPECT_EQ(keys.status, 200);
    EXPECT_THAT(keys.head, HasSubstr("Content-Type: application/ohttp-keys\r\n"));
    EXPECT_EQ(AsText(keys.body), "the keys");
    const Response response = post(sealed, type);
    EXPECT_EQ(response.status, 200);
    EXPECT_THAT(response.head, HasSubstr("Content-Type: message/ohttp-res\r\n"));
    EXPECT_EQ(AsText(response.body),
              absl::StrCat("s200 ", AsText(BytesOf(FrameOf(kList.type, "answer to x")))));
    EXPECT_EQ(asked_, 1);
    // Nothing of a party passes here either, and the refusal is sealed.
    Bytes peers = {'s'};
    Append(peers, BytesOf(FrameOf(FrameType::kOnline, "")));
    EXPECT_THAT(std::string(AsText(post(peers, type).body)), ::testing::StartsWith("s400 SHL3"));
    Bytes of_02 = sealed;
    of_02[4] = '2';
    EXPECT_THAT(std::string(AsText(post(of_02, type).body)), ::testing::StartsWith("s400 SHL2"));
    EXPECT_EQ(AsText(post({'g'}, type).body), "s not here");
    Web lost(port());
    EXPECT_THAT(ErrorIn(lost.Ask("GET /").body),
                shoal::testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                         "at /v1/ws, POST /v1/ohttp, GET /v1/ohttp-keys"));
    EXPECT_EQ(post({'x'}, type).status, 400);
    EXPECT_EQ(post({}, type).status, 400);
    // RFC 9458, section 5.3.
    const Response stale = post({'k'}, type);
    EXPECT_EQ(stale.status, 400);
    EXPECT_THAT(stale.head, HasSubstr("Content-Type: application/problem+json\r\n"));
    EXPECT_EQ(AsText(stale.body),
              "{\"type\":\"https://iana.org/assignments/http-problem-types#ohttp-key\","
              "\"title\":\"key identifier unknown\"}");
    EXPECT_EQ(post(sealed, "").status, 415);
    EXPECT_EQ(post(sealed, "Content-Type: message/ohttp-res\r\n").status, 415);
    EXPECT_EQ(post({'g'}, "Content-Type: Message/OHTTP-Req ; x=y\r\n").status, 200);
    // The body is asked for here, too.
    Web waits(port());
    waits.Write(Web::Head("POST /v1/ohttp",
                          absl::StrCat(type, "Content-Length: 1\r\n", "Expect: 100-Continue\r\n")));
    EXPECT_EQ(waits.Read().status, 100);
    waits.Write("g");
    EXPECT_EQ(waits.Read().status, 200);
    // HEAD is GET without the body, and the next request is read as one.
    Web head(port());
    head.Write(Web::Head("HEAD /v1/ohttp-keys"));
    head.Write(Web::Head("HEAD /v1/ohttp-keys", "Connection: close\r\n"));
    const std::string all = head.All();
    EXPECT_THAT(all, HasSubstr("Content-Length: 8\r\n"));
    EXPECT_THAT(all, ::testing::EndsWith("\r\n\r\n"));
    EXPECT_FALSE(absl::StrContains(all, "the keys"));
    EXPECT_EQ(post({}, absl::StrCat(type, "X: y\r\n")).status, 400);
    EXPECT_EQ(post(Bytes(5 << 20, 's'), type).status, 413);
    EXPECT_EQ(asked_, 1);
  }
  EXPECT_EQ(post(sealed, type).status, 503);
  EXPECT_EQ(figures_.refusals(Refusal::kNoOhttp), 2u);
  std::filesystem::remove_all(directory);
}

// All that come over shoal-ohttp are one group, whichever relays bring them.
TEST_F(DoorTest, ClientsOfRelaysLeaveTheFrontendToOthers) {
  char directory[] = "/tmp/door-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string path = absl::StrCat(directory, "/ohttp");
  Start([&](Door::Options& options) {
    options.ohttp_socket = path;
    options.frontend.max_links = 64;
    options.group_shares.connections = 50;
    SHOAL_CHECK(options.shared_addresses.Add("127.0.0.7").ok());
    SHOAL_CHECK(options.shared_addresses.Add("127.0.0.9").ok());
  });
  auto ohttp = std::make_unique<FakeOhttp>(path);
  std::vector<std::unique_ptr<Web>> relayed;
  const auto send = [&](const Bytes& frame, const std::string& relay) {
    relayed.push_back(std::make_unique<Web>(port(), relay));
    relayed.back()->Write(
        Web::Head("POST /v1/ohttp", absl::StrCat("Content-Type: message/ohttp-req\r\n"
                                                 "Content-Length: ",
                                                 1 + frame.size(), "\r\n")));
    relayed.back()->Write("s");
    relayed.back()->Write(frame);
  };
  for (int i = 0; i < 64; ++i) send(Wait('r', wire::ANSWERED, 60'000), "127.0.0.7");
  EXPECT_TRUE(Soon([&] { return figures_.requests == 64 && held() == 1; }));
  EXPECT_EQ(figures_.frontend_connections, 1u);
  ExpectServed("127.0.0.8");
  // Requests that take their time, of two relays.
  const Bytes slow = BytesOf(FrameOf(FrameType::kFetchRefresh, ""));
  for (int i = 0; i < 32; ++i) send(slow, i % 2 == 0 ? "127.0.0.7" : "127.0.0.9");
  EXPECT_TRUE(Soon([&] { return held() == 33; }));
  send(slow, "127.0.0.9");
  EXPECT_THAT(std::string(AsText(relayed.back()->Read().body)), ::testing::StartsWith("s503 "));
  ExpectServed("127.0.0.8");
  AnswerHeld(RoundIn(wire::ANSWERED));
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(AsText(relayed[i]->Read().body),
              absl::StrCat("s200 ", AsText(BytesOf(RoundIn(wire::ANSWERED)))));
  }
  // Subscriptions, of which there are a quarter as many as connections.
  relayed.clear();
  EXPECT_TRUE(Soon([&] { return held() == 0 && figures_.connections == 0; }));
  for (int i = 0; i < 8; ++i) {
    send(Wait(static_cast<char>('a' + i), wire::CLOSED, 60'000),
         i % 2 == 0 ? "127.0.0.7" : "127.0.0.9");
  }
  EXPECT_TRUE(Soon([&] { return held() == 8; }));
  send(Wait('z', wire::CLOSED, 2'000), "127.0.0.9");
  EXPECT_THAT(std::string(AsText(relayed.back()->Read().body)), ::testing::StartsWith("s503 "));
  Web other(port(), "127.0.0.8");
  ASSERT_EQ(other.Open().status, 101);
  other.Send(Wait('z', wire::CLOSED, 60'000));
  EXPECT_TRUE(Soon([&] { return held() == 9; }));
  relayed.clear();
  ohttp.reset();
  std::filesystem::remove_all(directory);
}

TEST_F(DoorTest, FiguresAreOfNoSingleClient) {
  Start();
  for (int i = 0; i < 13; ++i) ExpectServed();
  const std::string page = figures_.Page(1'000'000 + 86400, 1'000'000);
  EXPECT_THAT(page, HasSubstr("shoal_door_requests_total 10\n"));
  EXPECT_THAT(page, HasSubstr("shoal_door_certificate_expires_days 1\n"));
  EXPECT_THAT(page, HasSubstr("shoal_door_refused_total{reason=\"foreign_origin\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("shoal_door_received_bytes_total 0\n"));
  EXPECT_FALSE(absl::StrContains(page, "127.0.0"));
}

}  // namespace
}  // namespace shoal::door
