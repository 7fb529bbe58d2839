// Frames over TLS between a server and clients: good ones, malicious ones, and ones with another
// certificate. Raw clients use sockets directly, so that they can do what a Connection never would.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio.hpp"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_random.h"
#include "src/net/connection.h"
#include "src/net/server.h"
#include "src/net/testing/earlier_server.h"
#include "src/net/testing/raw_tls.h"
#include "src/net/testing/test_identity.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::shoal::testing::Soon;
using ::shoal::testing::StatusIs;
using namespace std::chrono_literals;
using net::testing::RawSocket;
using net::testing::RawTls;
using net::testing::TestIdentity;
using wire::Frame;
using wire::FrameHeader;
using wire::FrameType;
using Clock = std::chrono::steady_clock;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
constexpr auto kTimedOut = absl::StatusCode::kDeadlineExceeded;

constexpr wire::FrameLimits kLimits = {.control_bytes = 1 << 16, .bulk_bytes = 80 << 20};
// Longer than anything here takes, even under a sanitizer on a busy machine.
constexpr auto kLong = 120s;
// A limit of the server that the test reaches. What it must not reach takes a hundredth of it on an
// idle machine.
constexpr auto kShort = 1000ms;

const TestIdentity& ServerIdentity() {
  static const TestIdentity identity(1);
  return identity;
}
const TestIdentity& ClientIdentity() {
  static const TestIdentity identity(2);
  return identity;
}
const TestIdentity& OtherIdentity() {
  static const TestIdentity identity(3);
  return identity;
}

Server::Options ServerOptions() {
  return {.address = "127.0.0.1:0",
          .identity = ServerIdentity().identity(),
          .clients = {},
          .limits = [](FrameType type) -> absl::StatusOr<wire::FrameLimits> {
            if (type == FrameType::kOnline) return absl::InvalidArgumentError("not on this port");
            return kLimits;
          }};
}

void Echo(Frame request, Reply reply) { reply(std::move(request)); }

std::unique_ptr<Server> StartServer(Server::Options options = ServerOptions(),
                                    Handler handler = Echo) {
  auto server = Server::Start(std::move(options), std::move(handler));
  EXPECT_THAT(server, ::shoal::testing::IsOk());
  return server.ok() ? *std::move(server) : nullptr;
}

std::string AddressOf(const Server& server) { return absl::StrCat("127.0.0.1:", server.port()); }

absl::StatusOr<std::unique_ptr<Connection>> ConnectTo(const Server& server,
                                                      const Identity* identity = nullptr) {
  return Connection::Connect({.address = AddressOf(server),
                              .pin = ServerIdentity().digest(),
                              .identity = identity,
                              .connect_timeout = kLong});
}

Frame Request(std::string control = "hello", Bytes bulk = {}) {
  return {.type = FrameType::kOffline, .control = std::move(control), .bulk = std::move(bulk)};
}

absl::StatusOr<Frame> CallOnce(const Server& server, const Frame& request = Request(),
                               const Identity* identity = nullptr) {
  auto connection = ConnectTo(server, identity);
  if (!connection.ok()) return connection.status();
  return (*connection)->Call(request, kLimits, kLong);
}

size_t OpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

// Of this process, resident and virtual.
struct Memory {
  uint64_t resident_bytes, virtual_bytes;
};
Memory MemoryNow() {
  uint64_t virtual_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  return {resident_pages * 4096, virtual_pages * 4096};
}

// Counts the requests that come through.
class Counting {
 public:
  Handler handler() {
    return [this](Frame request, Reply reply) {
      ++calls;
      Echo(std::move(request), std::move(reply));
    };
  }
  std::atomic<int> calls = 0;
};

// Keeps requests until the test answers them.
class Pending {
 public:
  Handler handler() {
    return [this](Frame request, Reply reply) {
      std::lock_guard lock(mutex_);
      requests_.push_back(std::move(request));
      replies_.push_back(std::move(reply));
      arrived_.notify_all();
    };
  }
  void WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(arrived_.wait_for(lock, kLong, [&] { return replies_.size() >= count; }));
  }
  std::vector<Reply> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(replies_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Frame> requests_;
  std::vector<Reply> replies_;
};

TEST(NetTest, RequestsAndAnswersComeThroughUnchanged) {
  const auto server = StartServer();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  EXPECT_EQ(connection->certificate_sha256(), ServerIdentity().digest());
  shoal::testing::TestRandom random(1);
  uint64_t bytes = 0;
  for (size_t size : {0, 1, 19, 20, 21, 16384, 65536}) {
    Bytes bulk(3 * size);
    random.Fill(bulk);
    const Frame request = Request(std::string(size, 'c'), bulk);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Frame answer, connection->Call(request, kLimits, kLong));
    EXPECT_EQ(answer.type, FrameType::kOffline);
    EXPECT_EQ(answer.control, request.control);
    EXPECT_EQ(answer.bulk, bulk);
    bytes += wire::kFrameHeaderBytes + 4 * size;
  }
  EXPECT_EQ(connection->bytes_sent(), bytes);
  EXPECT_EQ(connection->bytes_received(), bytes);
  EXPECT_EQ(server->bytes_received(), bytes);
  // The server counts what it has sent after it has sent it.
  EXPECT_TRUE(Soon([&] { return server->bytes_sent() >= bytes; }));
  EXPECT_EQ(server->bytes_sent(), bytes);
}

TEST(NetTest, LargeBulkGoesBothWays) {
  const auto server = StartServer();
  shoal::testing::TestRandom random(2);
  Bytes bulk((64 << 20) + 12345);
  random.Fill(bulk);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Frame answer, CallOnce(*server, Request("bulk", bulk)));
  EXPECT_TRUE(answer.bulk == bulk);
}

TEST(NetTest, AnErrorIsAnAnswerAndTheConnectionGoesOn) {
  const auto server = StartServer(ServerOptions(), [](Frame request, Reply reply) {
    if (request.control == "bad") return reply(absl::NotFoundError("no such slot"));
    reply(std::move(request));
  });
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  EXPECT_THAT(connection->Call(Request("bad"), kLimits, kLong),
              StatusIs(absl::StatusCode::kNotFound, "no such slot"));
  EXPECT_TRUE(connection->usable());
  SHOAL_EXPECT_OK(connection->Call(Request(), kLimits, kLong));
}

// ---- who is who ----

TEST(NetTest, AnotherServerThanThePinnedOneGetsNothing) {
  Counting counting;
  const auto server = StartServer(ServerOptions(), counting.handler());
  const auto connection = Connection::Connect(
      {.address = AddressOf(*server), .pin = OtherIdentity().digest(), .connect_timeout = kLong});
  EXPECT_THAT(connection, StatusIs(kUnauthenticated, "not the party that was expected"));
  EXPECT_THAT(connection, StatusIs(kUnauthenticated, AddressOf(*server)));
  EXPECT_EQ(server->bytes_received(), 0u);
  EXPECT_EQ(counting.calls, 0);
}

TEST(NetTest, OnlyListedCertificatesMayConnect) {
  Counting counting;
  Server::Options options = ServerOptions();
  options.clients = {OtherIdentity().digest(), ClientIdentity().digest()};
  const auto server = StartServer(std::move(options), counting.handler());

  // None: a client at the port of a neighbour, which is not to try again.
  EXPECT_THAT(CallOnce(*server), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          AddressOf(*server) + ": only a neighbouring party"));
  const TestIdentity stranger(4);
  const Identity strange = stranger.identity();
  EXPECT_THAT(CallOnce(*server, Request(), &strange), StatusIs(kUnauthenticated, "certificate"));
  // The bulk is larger than any socket buffer: the refusal arrives although sending fails.
  EXPECT_THAT(CallOnce(*server, Request("", Bytes(32 << 20)), &strange),
              StatusIs(kUnauthenticated, "certificate"));
  EXPECT_EQ(counting.calls, 0);
  const Identity listed = ClientIdentity().identity();
  SHOAL_EXPECT_OK(CallOnce(*server, Request(), &listed));
  EXPECT_EQ(counting.calls, 1);
}

TEST(NetTest, TheSameNameIsNotTheSameCertificate) {
  Server::Options options = ServerOptions();
  options.clients = {ClientIdentity().digest()};
  const auto server = StartServer(std::move(options));
  shoal::testing::TestRandom random(99);
  SHOAL_ASSERT_OK_AND_ASSIGN(const roster::TlsIdentity forged,
                             roster::GenerateTlsIdentity("test-2", 1'700'000'000, random));
  const Identity identity = {.certificate_pem = forged.certificate_pem,
                             .private_key_pem = forged.private_key_pem};
  EXPECT_THAT(CallOnce(*server, Request(), &identity), StatusIs(kUnauthenticated, "certificate"));
}

TEST(NetTest, OlderTlsIsRefused) {
  const auto server = StartServer();
  EXPECT_TRUE(RawTls(*server, net::testing::kLoopback, TLS1_2_VERSION).handshake_error);
  EXPECT_FALSE(RawTls(*server, net::testing::kLoopback, TLS1_3_VERSION).handshake_error);
}

// ---- bytes that are no requests ----

TEST(NetTest, GarbageInsteadOfTlsIsCutAndOthersAreServed) {
  const auto server = StartServer();
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100'000, '\0'),
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(70'000, '\xff')}) {
    RawSocket raw(*server);
    boost::system::error_code ignored;
    asio::write(raw.socket, asio::buffer(garbage), ignored);
    EXPECT_TRUE(raw.ReadToEnd());
  }
  SHOAL_EXPECT_OK(CallOnce(*server));
}

TEST(NetTest, FramesThatAreNoneAreRefusedByName) {
  Counting counting;
  const auto server = StartServer(ServerOptions(), counting.handler());
  const FrameHeader good = {.type = FrameType::kOffline, .control_bytes = 3, .bulk_bytes = 0};
  struct Case {
    wire::FrameHeaderBytes header;
    absl::StatusCode code;
    std::string part;
  };
  std::vector<Case> cases;
  auto add = [&](const FrameHeader& header, absl::StatusCode code, const std::string& part) {
    cases.push_back({wire::EncodeFrameHeader(header), code, part});
  };
  add({.type = static_cast<FrameType>(999), .control_bytes = 3, .bulk_bytes = 0}, kInvalid,
      "unknown type 999");
  add({.type = FrameType::kOnline, .control_bytes = 3, .bulk_bytes = 0}, kInvalid,
      "not on this port");
  add({.type = FrameType::kOffline, .control_bytes = kLimits.control_bytes + 1, .bulk_bytes = 0},
      kExhausted, "at most");
  add({.type = FrameType::kOffline, .control_bytes = 0, .bulk_bytes = kLimits.bulk_bytes + 1},
      kExhausted, "at most");
  add({.type = FrameType::kOffline, .control_bytes = ~0u, .bulk_bytes = ~0ull}, kExhausted,
      "at most");
  add(good, kInvalid, "not a message");
  cases.back().header[0] ^= 1;
  add(good, kInvalid, "not a message");
  cases.back().header[6] = 1;
  for (const Case& c : cases) {
    RawTls raw(*server);
    raw.Write(c.header);
    raw.Write(Bytes(3, 'x'));
    EXPECT_THAT(raw.ReadError(), StatusIs(c.code, c.part));
    EXPECT_TRUE(raw.ReadToEnd());
  }
  EXPECT_EQ(counting.calls, 0);
  SHOAL_EXPECT_OK(CallOnce(*server));
}

TEST(NetTest, EarlierVersionsAreRefusedInFramesThatTheyRead) {
  Counting counting;
  Server::Options options = ServerOptions();
  std::atomic<int> told = 0;
  options.another_version = [&](const absl::Status& refused) {
    told += wire::IsOfAnotherVersion(refused);
  };
  const auto server = StartServer(std::move(options), counting.handler());
  for (const char digit : {'1', '2', '4'}) {
    wire::FrameHeaderBytes header =
        wire::EncodeFrameHeader({.type = FrameType::kOffline, .control_bytes = 3, .bulk_bytes = 0});
    header[3] = static_cast<uint8_t>(digit);
    RawTls raw(*server);
    raw.Write(header);
    raw.Write(Bytes(3, 'x'));
    Bytes answer, piece(4096);
    while (const size_t n = raw.ReadSome(piece)) Append(answer, BytesView(piece).first(n));
    ASSERT_GT(answer.size(), wire::kFrameHeaderBytes);
    EXPECT_EQ(answer[3], digit == '4' ? '3' : digit);
    std::ranges::copy(AsBytes("SHL3"), answer.begin());
    wire::FrameHeaderBytes answered;
    std::copy_n(answer.begin(), answered.size(), answered.begin());
    SHOAL_ASSERT_OK_AND_ASSIGN(const FrameHeader parsed, wire::ParseFrameHeader(answered));
    EXPECT_EQ(parsed.control_bytes, answer.size() - answered.size());
    EXPECT_THAT(wire::ErrorOf({.type = parsed.type,
                               .control = ToString(BytesView(answer).subspan(answered.size())),
                               .bulk = {}}),
                StatusIs(kInvalid, "came to one of Shoal 0.3"));
  }
  EXPECT_EQ(told, 3);
  EXPECT_EQ(counting.calls, 0);
  SHOAL_EXPECT_OK(CallOnce(*server));
  EXPECT_EQ(told, 3);
}

// Not UNAVAILABLE, after which the same would be sent again.
TEST(NetTest, AServerOfAnEarlierVersionIsNamed) {
  const TestIdentity identity(1);
  const net::testing::EarlierServer server(identity.identity(), '2');
  auto connection = Connection::Connect({.address = absl::StrCat("127.0.0.1:", server.port())});
  SHOAL_ASSERT_OK(connection.status());
  EXPECT_THAT((*connection)->Call(Request("", Bytes(8 << 20)), kLimits, std::chrono::seconds(60)),
              StatusIs(kInvalid, "a message of Shoal 0.2 came to one of Shoal 0.3"));
  EXPECT_FALSE((*connection)->usable());
}

TEST(NetTest, ASenderOfTooMuchLearnsWhy) {
  Server::Options options = ServerOptions();
  options.limits = [](FrameType) {
    return wire::FrameLimits{.control_bytes = 10, .bulk_bytes = 0};
  };
  const auto server = StartServer(std::move(options));
  EXPECT_THAT(CallOnce(*server, Request("", Bytes(64 << 20))), StatusIs(kExhausted, "at most 10"));
  EXPECT_THAT(CallOnce(*server, Request(std::string(11, 'x'))), StatusIs(kExhausted, "at most 10"));
}

TEST(NetTest, MemoryGrowsWithWhatArrivesNotWithWhatIsAnnounced) {
  Server::Options options = ServerOptions();
  options.limits = [](FrameType) {
    return wire::FrameLimits{.control_bytes = ~0u, .bulk_bytes = 1ull << 40};
  };
  Counting counting;
  const auto server = StartServer(std::move(options), counting.handler());
  SHOAL_ASSERT_OK(CallOnce(*server));
  const Memory before = MemoryNow();
  std::vector<std::unique_ptr<RawTls>> raws;
  const uint64_t received = server->bytes_received();
  for (int i = 0; i < 8; ++i) {
    raws.push_back(std::make_unique<RawTls>(*server));
    raws.back()->WriteHeader({.type = FrameType::kOffline,
                              .control_bytes = i % 2 ? 0 : 4000u << 20,
                              .bulk_bytes = 1ull << 40});
    raws.back()->Write(Bytes((1 << 20) + 1));  // one piece arrives in full
  }
  EXPECT_TRUE(Soon([&] { return server->bytes_received() >= received + (8 << 20); }));
  // The one thread takes room for the next piece before it serves anybody else.
  SHOAL_EXPECT_OK(CallOnce(*server));
  const Memory after = MemoryNow();
  EXPECT_LT(after.resident_bytes, before.resident_bytes + (200 << 20));
  EXPECT_LT(after.virtual_bytes, before.virtual_bytes + (1 << 30));
  EXPECT_EQ(counting.calls, 2);
}

TEST(NetTest, RequestsTogetherStayWithinTheServersMemory) {
  Server::Options options = ServerOptions();
  options.max_buffered_bytes = 3 << 20;
  Pending pending;
  const auto server = StartServer(std::move(options), pending.handler());
  // Two requests that stop in their second megabyte hold four megabytes together.
  RawTls first(*server);
  first.WriteHeader({.type = FrameType::kOffline, .control_bytes = 0, .bulk_bytes = 2 << 20});
  first.Write(Bytes((1 << 20) + 1));
  EXPECT_TRUE(Soon([&] { return server->bytes_received() >= (1 << 20); }));
  {
    RawTls second(*server);
    second.WriteHeader({.type = FrameType::kOffline, .control_bytes = 0, .bulk_bytes = 2 << 20});
    second.Write(Bytes((1 << 20) + 1));
    EXPECT_THAT(second.ReadError(), StatusIs(absl::StatusCode::kUnavailable, "try again later"));
  }
  // Requests that were handed on, refused or given up free their room.
  first.Close();
  std::thread answers([&] {
    for (int i = 0; i < 5; ++i) {
      pending.WaitFor(1);
      for (Reply& reply : pending.Take()) reply(Request("done"));
    }
  });
  const auto deadline = Clock::now() + kLong;
  absl::Status status = absl::UnavailableError("");
  for (int served = 0; served < 5 && Clock::now() < deadline;) {
    status = CallOnce(*server, Request("", Bytes(3 << 20))).status();
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kUnavailable) << status;
    served += status.ok() ? 1 : 0;
  }
  SHOAL_EXPECT_OK(status);
  answers.join();
}

// A peer that announces much and sends little does not take the room of others.
TEST(NetTest, RoomIsTakenByWhatHasCome) {
  Server::Options options = ServerOptions();
  options.max_buffered_bytes = 3 << 20;
  Counting counting;
  const auto server = StartServer(std::move(options), counting.handler());
  constexpr size_t kSilent = 50, kSent = 100;
  std::vector<std::unique_ptr<RawTls>> silent;
  for (size_t i = 0; i < kSilent; ++i) {
    silent.push_back(std::make_unique<RawTls>(*server));
    silent.back()->WriteHeader(
        {.type = FrameType::kOffline, .control_bytes = 0, .bulk_bytes = 2 << 20});
    silent.back()->Write(Bytes(kSent));
  }
  EXPECT_TRUE(
      Soon([&] { return server->bytes_received() >= kSilent * sizeof(wire::FrameHeaderBytes); }));
  SHOAL_EXPECT_OK(CallOnce(*server, Request("", Bytes(1 << 20))).status());
  EXPECT_EQ(counting.calls, 1);
}

// A peer that reads slowly must not make the server hold all that it asked for: answers share the
// limit with requests.
TEST(NetTest, AnswersTogetherStayWithinTheServersMemory) {
  Server::Options options = ServerOptions();
  options.max_buffered_bytes = 3 << 20;
  const auto server = StartServer(std::move(options), [](wire::Frame request, Reply reply) {
    reply({.type = request.type,
           .control = "",
           .bulk = Bytes(request.control == "much" ? 4 << 20 : 2 << 20)});
  });
  EXPECT_THAT(CallOnce(*server, Request("much")).status(),
              StatusIs(absl::StatusCode::kUnavailable, "too many answers"));
  for (int i = 0; i < 3; ++i) SHOAL_EXPECT_OK(CallOnce(*server, Request("little")).status());
}

TEST(NetTest, AFrameThatEndsEarlyReachesNobody) {
  Counting counting;
  const auto server = StartServer(ServerOptions(), counting.handler());
  const auto header = wire::EncodeFrameHeader(
      {.type = FrameType::kOffline, .control_bytes = 100, .bulk_bytes = 100});
  Bytes frame(header.begin(), header.end());
  frame.resize(frame.size() + 200);
  for (size_t size : {size_t{1}, header.size() - 1, header.size(), header.size() + 99,
                      header.size() + 100, frame.size() - 1}) {
    RawTls raw(*server);
    raw.Write(BytesView(frame).first(size));
    raw.Close();
  }
  SHOAL_EXPECT_OK(CallOnce(*server));
  EXPECT_EQ(counting.calls, 1);
}

// ---- peers that make no progress ----

// The server ends the connection after about `timeout`, not at once and not never.
template <typename Raw>
void ExpectCutAfter(std::chrono::milliseconds timeout, Raw& raw) {
  const auto start = Clock::now();
  EXPECT_TRUE(raw.ReadToEnd());
  EXPECT_GE(Clock::now() - start, timeout / 2);
}

TEST(NetTest, SlowHandshakesAreCut) {
  Server::Options options = ServerOptions();
  options.handshake_timeout = kShort;
  const auto server = StartServer(std::move(options));
  RawSocket raw(*server);
  ExpectCutAfter(kShort, raw);
  // A byte now and then is no progress: the limit is for the handshake as a whole.
  RawSocket dripping(*server);
  std::atomic<bool> done = false;
  std::atomic<size_t> dripped = 0;
  const std::string hello("\x16\x03\x01\x02\x00\x01", 6);  // of a record of 512 bytes
  std::thread dripper([&] {
    for (size_t i = 0; !done; ++i, ++dripped) {
      const char byte = i < hello.size() ? hello[i] : '\0';
      send(dripping.socket.native_handle(), &byte, 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(30ms);
    }
  });
  EXPECT_TRUE(dripping.ReadToEnd());
  done = true;
  dripper.join();
  // Not because of what the record says, which the server does not know before all of it is there.
  EXPECT_LT(dripped, 512);
}

TEST(NetTest, SlowFramesAreCut) {
  Server::Options options = ServerOptions();
  options.progress_timeout = kShort;
  const auto server = StartServer(std::move(options));
  RawTls raw(*server);
  raw.WriteHeader({.type = FrameType::kOffline, .control_bytes = 0, .bulk_bytes = 1 << 20});
  raw.Write(Bytes(1000));
  ExpectCutAfter(kShort, raw);

  // The limit is for a piece, not for the frame: a slow but steady sender is served.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  SHOAL_EXPECT_OK(connection->Call(Request("", Bytes(20 << 20)), kLimits, kLong));
}

TEST(NetTest, IdleConnectionsAreCut) {
  Server::Options options = ServerOptions();
  options.idle_timeout = kShort;
  options.header_timeout = kLong;
  const auto server = StartServer(std::move(options));
  RawTls raw(*server);
  raw.WriteFrame(Request());
  SHOAL_ASSERT_OK(raw.ReadFrame());
  ExpectCutAfter(kShort, raw);

  // Cut between two calls, sooner or later.
  absl::Status status;
  for (auto pause = 2 * kShort; status.ok() && pause < kLong; pause *= 2) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
    SHOAL_EXPECT_OK(connection->Call(Request(), kLimits, kLong));
    std::this_thread::sleep_for(pause);
    status = connection->Call(Request(), kLimits, kLong).status();
    EXPECT_EQ(connection->usable(), status.ok());
  }
  EXPECT_THAT(status, StatusIs(kUnavailable, ""));
}

// Whoever rests may, but a header that has begun ends in time.
TEST(NetTest, ALaterHeaderHasAsLongAsTheFirst) {
  Server::Options options = ServerOptions();
  options.header_timeout = kShort;
  options.idle_timeout = kLong;
  const auto server = StartServer(std::move(options));
  RawTls half_a_header(*server);
  half_a_header.WriteFrame(Request());
  SHOAL_ASSERT_OK(half_a_header.ReadFrame());
  std::this_thread::sleep_for(2 * kShort);
  half_a_header.Write(Bytes(1));
  ExpectCutAfter(kShort, half_a_header);
}

// A session without a request has no other use than to take a place.
TEST(NetTest, WhoSendsNoFirstRequestIsCut) {
  Server::Options options = ServerOptions();
  options.header_timeout = kShort;
  const auto server = StartServer(std::move(options));
  RawTls raw(*server);
  ExpectCutAfter(kShort, raw);
  RawTls half_a_header(*server);
  half_a_header.Write(Bytes(10));
  ExpectCutAfter(kShort, half_a_header);
  // The limit is for headers, not for requests.
  RawTls late(*server);
  late.WriteFrame(Request());
  SHOAL_ASSERT_OK(late.ReadFrame());
  RawTls later(*server);
  ExpectCutAfter(kShort, later);  // as the other one would have been before
  late.WriteFrame(Request());
  SHOAL_EXPECT_OK(late.ReadFrame());
}

TEST(NetTest, WaitingForTheHandlerIsNotIdling) {
  Server::Options options = ServerOptions();
  options.idle_timeout = options.progress_timeout = options.handshake_timeout =
      options.header_timeout = kShort;
  Pending pending;
  const auto server = StartServer(std::move(options), pending.handler());
  std::thread answers([&] {
    pending.WaitFor(1);
    RawTls idle(*server);
    ExpectCutAfter(kShort, idle);  // as the one that waits would have been before
    pending.Take()[0](Request("late"));
  });
  const auto answer = CallOnce(*server);
  SHOAL_EXPECT_OK(answer);
  answers.join();
}

TEST(NetTest, AClientThatNeverReadsItsAnswerIsCut) {
  Server::Options options = ServerOptions();
  options.progress_timeout = 300ms;
  options.max_connections = 1;
  const auto server = StartServer(std::move(options), [](Frame request, Reply reply) {
    reply(request.control == "much" ? Request("", Bytes(64 << 20)) : std::move(request));
  });
  RawTls raw(*server);
  raw.WriteFrame(Request("much"));
  // Its place becomes free although it has not read or closed anything.
  EXPECT_TRUE(Soon([&] { return CallOnce(*server).ok(); }));
}

TEST(NetTest, NoMoreConnectionsThanAllowed) {
  Server::Options options = ServerOptions();
  options.max_connections = 3;
  const auto server = StartServer(std::move(options));
  std::vector<std::unique_ptr<Connection>> open;
  for (int i = 0; i < 3; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto connection, ConnectTo(*server));
    SHOAL_EXPECT_OK(connection->Call(Request(), kLimits, kLong));
    open.push_back(std::move(connection));
  }
  EXPECT_THAT(CallOnce(*server), StatusIs(kUnavailable, "too many connections"));
  for (const auto& connection : open) {
    SHOAL_EXPECT_OK(connection->Call(Request(), kLimits, kLong));
  }
  open.pop_back();
  EXPECT_TRUE(Soon([&] { return CallOnce(*server).ok(); }));
}

// ---- handlers ----

TEST(NetTest, ADroppedRequestIsAnsweredWithAnError) {
  const auto server = StartServer(ServerOptions(), [](Frame, Reply) {});
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(connection->Call(Request(), kLimits, kLong),
                StatusIs(absl::StatusCode::kInternal, "dropped"));
  }
}

TEST(NetTest, OnlyTheFirstAnswerCounts) {
  const auto server = StartServer(ServerOptions(), [](Frame, Reply reply) {
    reply(Request("first"));
    reply(Request("second"));
    Reply other = std::move(reply);
    other(Request("third"));
  });
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  for (int i = 0; i < 3; ++i) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Frame answer, connection->Call(Request(), kLimits, kLong));
    EXPECT_EQ(answer.control, "first");
  }
}

TEST(NetTest, AHandlerThatThrowsEndsItsConnectionAlone) {
  const auto server = StartServer(ServerOptions(), [](Frame request, Reply reply) {
    if (request.control == "throw") throw std::runtime_error("handler");
    reply(std::move(request));
  });
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, ConnectTo(*server));
  EXPECT_THAT(CallOnce(*server, Request("throw")), StatusIs(kUnavailable, AddressOf(*server)));
  SHOAL_EXPECT_OK(other->Call(Request(), kLimits, kLong));
}

TEST(NetTest, AnswersMayComeFromOtherThreadsLater) {
  std::mutex mutex;
  std::vector<std::thread> threads;
  Server::Options options = ServerOptions();
  options.threads = 1;  // waiting for one request blocks no other
  const auto server = StartServer(std::move(options), [&](Frame request, Reply reply) {
    auto shared = std::make_shared<std::pair<Frame, Reply>>(std::move(request), std::move(reply));
    std::lock_guard lock(mutex);
    threads.emplace_back([shared] {
      std::this_thread::sleep_for(1ms * (shared->first.control.size() % 7));
      shared->second(std::move(shared->first));
    });
  });
  std::vector<std::thread> clients;
  for (size_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
      for (size_t i = 0; i < 20; ++i) {
        const Frame request = Request(std::string(c * 20 + i, 'x'));
        SHOAL_ASSERT_OK_AND_ASSIGN(const Frame answer, connection->Call(request, kLimits, kLong));
        EXPECT_EQ(answer.control, request.control);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (std::thread& thread : threads) thread.join();
}

TEST(NetTest, HundredsOfClientsAtATimeAndNoDescriptorStays) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur < 4096) GTEST_SKIP() << "too few descriptors on this machine";

  const size_t files_before = OpenFiles();
  {
    Pending pending;
    Server::Options options = ServerOptions();
    options.header_timeout = kLong;
    const auto server = StartServer(std::move(options), pending.handler());
    constexpr size_t kThreads = 10, kEach = 50;
    std::atomic<size_t> right = 0;
    std::vector<std::thread> threads;
    std::atomic<size_t> connected = 0;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::unique_ptr<Connection>> connections;
        for (size_t i = 0; i < kEach; ++i) {
          SHOAL_ASSERT_OK_AND_ASSIGN(auto connection, ConnectTo(*server));
          connections.push_back(std::move(connection));
        }
        ++connected;
        EXPECT_TRUE(Soon([&] { return connected == kThreads; }));  // all are open at once
        for (size_t i = 0; i < kEach; ++i) {
          const auto answer = connections[i]->Call(Request(), kLimits, kLong);
          right += answer.ok() ? 1 : 0;
        }
      });
    }
    std::thread answers([&] {
      for (size_t done = 0; done < kThreads * kEach;) {
        for (Reply& reply : pending.Take()) {
          reply(Request("answer"));
          ++done;
        }
        std::this_thread::sleep_for(1ms);
      }
    });
    for (std::thread& thread : threads) thread.join();
    answers.join();
    EXPECT_EQ(right, kThreads * kEach);
  }
  EXPECT_EQ(OpenFiles(), files_before);
}

// ---- the end of a server ----

TEST(NetTest, AServerEndsUnderPendingRequestsAndLateAnswersAreDropped) {
  const size_t files_before = OpenFiles();
  {
    Pending pending;
    auto server = StartServer(ServerOptions(), pending.handler());
    constexpr size_t kClients = 8;
    std::vector<std::thread> clients;
    std::atomic<size_t> told = 0;
    for (size_t c = 0; c < kClients; ++c) {
      clients.emplace_back([&] {
        SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
        EXPECT_THAT(connection->Call(Request(), kLimits, kLong), StatusIs(kUnavailable, ""));
        ++told;
      });
    }
    pending.WaitFor(kClients);
    RawSocket in_handshake(*server);
    RawTls idle(*server);
    std::vector<Reply> replies = pending.Take();
    server.reset();
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(told, kClients);
    EXPECT_TRUE(in_handshake.ReadToEnd());
    EXPECT_TRUE(idle.ReadToEnd());
    for (size_t i = 0; i < replies.size() / 2; ++i) replies[i](Request("too late"));
  }  // the other half is dropped
  EXPECT_EQ(OpenFiles(), files_before);
}

TEST(NetTest, AServerEndsWhileAnswersComeIn) {
  for (int round = 0; round < 20; ++round) {
    Pending pending;
    auto server = StartServer(ServerOptions(), pending.handler());
    std::vector<std::thread> clients;
    std::atomic<int> told = 0;
    for (size_t c = 0; c < 4; ++c) {
      clients.emplace_back([&] {
        SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
        const absl::Status ended = connection->Call(Request(), kLimits, kLong).status();
        EXPECT_TRUE(ended.ok() || absl::IsUnavailable(ended)) << ended;
        ++told;
      });
    }
    pending.WaitFor(4);
    std::thread answers([replies = pending.Take()]() mutable {
      for (Reply& reply : replies) reply(Request("in a race"));
    });
    server.reset();
    answers.join();
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(told, 4);
  }
}

TEST(NetTest, AServerComesBackOnItsPort) {
  auto server = StartServer();
  const uint16_t port = server->port();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  server.reset();
  Server::Options options = ServerOptions();
  options.address = absl::StrCat("127.0.0.1:", port);
  server = StartServer(std::move(options));
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(connection->Call(Request(), kLimits, kLong), StatusIs(kUnavailable, ""));
  SHOAL_EXPECT_OK(CallOnce(*server));
}

// ---- starting ----

TEST(NetTest, AnAddressInUseIsNamed) {
  const auto server = StartServer();
  Server::Options options = ServerOptions();
  options.address = AddressOf(*server);
  EXPECT_THAT(Server::Start(std::move(options), Echo),
              StatusIs(absl::StatusCode::kAlreadyExists, AddressOf(*server)));
}

TEST(NetTest, AServerThatCannotStartSaysWhy) {
  Server::Options options = ServerOptions();
  options.address = "127.0.0.1";
  EXPECT_THAT(Server::Start(options, Echo), StatusIs(kInvalid, "'127.0.0.1': expected host:port"));
  options.address = "192.0.2.1:7000";  // nobody's (RFC 5737)
  EXPECT_THAT(Server::Start(options, Echo).status().message(), ::testing::HasSubstr("192.0.2.1"));
  options.address = "no-such-host.invalid:7000";
  EXPECT_THAT(Server::Start(options, Echo), StatusIs(kInvalid, "no-such-host.invalid"));
  options = ServerOptions();
  const Identity other = OtherIdentity().identity();
  options.identity.private_key_pem = other.private_key_pem;
  EXPECT_THAT(Server::Start(options, Echo), StatusIs(kInvalid, "do not fit"));
  options.identity.certificate_pem = "garbage";
  EXPECT_THAT(Server::Start(options, Echo), StatusIs(kInvalid, "do not fit"));
}

TEST(NetTest, Ipv6) {
  Server::Options options = ServerOptions();
  options.address = "[::1]:0";
  const auto server = Server::Start(std::move(options), Echo);
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.status();
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto connection,
      Connection::Connect({.address = absl::StrCat("[::1]:", (*server)->port()),
                           .pin = ServerIdentity().digest()}));
  SHOAL_EXPECT_OK(connection->Call(Request(), kLimits, kLong));
}

TEST(NetTest, Addresses) {
  for (const auto& [address, host, port] :
       std::vector<std::array<std::string, 3>>{{"127.0.0.1:7000", "127.0.0.1", "7000"},
                                               {"[::1]:0", "::1", "0"},
                                               {"[fe80::1%eth0]:65535", "fe80::1%eth0", "65535"},
                                               {"example.org:443", "example.org", "443"}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const HostPort parsed, ParseHostPort(address));
    EXPECT_EQ(parsed.host, host);
    EXPECT_EQ(parsed.port, port);
  }
  for (const std::string bad : {"",
                                ":",
                                "host",
                                "host:",
                                ":80",
                                "host:65536",
                                "host:-1",
                                "host:+80",
                                "host: 80",
                                "host:80 ",
                                "host:8o",
                                "host:0x50",
                                "host:99999999999999999999",
                                "::1:80",
                                "::1",
                                "[::1]",
                                "[::1]:",
                                "[]:80",
                                "[:80",
                                "]:80",
                                "[::1:80",
                                "ho st:80",
                                "host\n:80",
                                "http://host:80"}) {
    EXPECT_THAT(ParseHostPort(bad), StatusIs(kInvalid, "expected host:port")) << bad;
  }
  EXPECT_THAT(ParseHostPort(absl::string_view("ho\0st:80", 8)), StatusIs(kInvalid, "expected"));
}

// ---- servers that do not behave ----

// Accepts connections and leaves them to the test.
class RawServer {
 public:
  std::string address() const {
    return absl::StrCat("127.0.0.1:", acceptor_.local_endpoint().port());
  }
  tcp::socket Accept() { return acceptor_.accept(); }

 private:
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::make_address("127.0.0.1"), 0}};
};

TEST(NetTest, ConnectingToNobodyOrToSomethingElseFailsWithTheAddress) {
  std::string address;
  {
    const RawServer gone;
    address = gone.address();
  }
  EXPECT_THAT(Connection::Connect({.address = address}), StatusIs(kUnavailable, address));

  RawServer plain;
  std::thread accepts([&] {
    tcp::socket socket = plain.Accept();
    boost::system::error_code ignored;
    asio::write(socket, asio::buffer(std::string("220 mail ESMTP\r\n")), ignored);
    Bytes bytes(4096);
    while (!ignored) socket.read_some(asio::buffer(bytes), ignored);
  });
  EXPECT_THAT(Connection::Connect({.address = plain.address()}),
              StatusIs(kUnavailable, "does a Shoal server"));
  accepts.join();
}

TEST(NetTest, AServerThatSaysNothingIsGivenUp) {
  const RawServer silent;
  const auto start = Clock::now();
  EXPECT_THAT(Connection::Connect({.address = silent.address(), .connect_timeout = 200ms}),
              StatusIs(kTimedOut, silent.address()));
  EXPECT_LT(Clock::now() - start, kLong);

  Pending pending;
  const auto server = StartServer(ServerOptions(), pending.handler());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  EXPECT_THAT(connection->Call(Request(), kLimits, 200ms), StatusIs(kTimedOut, "answer"));
  EXPECT_FALSE(connection->usable());
  EXPECT_THAT(connection->Call(Request(), kLimits, kLong), StatusIs(kUnavailable, "before"));
}

// Both ends ask the system to notice a machine that vanished without a word. That the system does
// is not tested.
TEST(NetTest, ASilentPeerIsNoticedWithin30Seconds) {
  const auto server = StartServer(ServerOptions());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  SHOAL_ASSERT_OK(connection->Call(Request(), kLimits, kLong));
  int ends = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.sin_family != AF_INET) continue;
    const auto option = [&](int level, int name) {
      int value = 0;
      socklen_t bytes = sizeof(value);
      EXPECT_EQ(getsockopt(fd, level, name, &value, &bytes), 0);
      return value;
    };
    ++ends;
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 30'000);
    EXPECT_NE(option(SOL_SOCKET, SO_KEEPALIVE), 0);
    EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE) +
                  option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT),
              30);
    EXPECT_NE(option(IPPROTO_TCP, TCP_NODELAY), 0);
  }
  EXPECT_GE(ends, 2);
}

TEST(NetTest, ACallCanBeCancelled) {
  Pending pending;
  const auto server = StartServer(ServerOptions(), pending.handler());
  std::atomic<bool> cancelled = false;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection,
                             Connection::Connect({.address = AddressOf(*server),
                                                  .pin = ServerIdentity().digest(),
                                                  .cancelled = [&] { return cancelled.load(); }}));
  std::thread canceller([&] {
    pending.WaitFor(1);
    cancelled = true;
  });
  EXPECT_THAT(connection->Call(Request(), kLimits, kLong),
              StatusIs(absl::StatusCode::kCancelled, AddressOf(*server)));
  EXPECT_FALSE(connection->usable());
  canceller.join();
  const RawServer silent;
  EXPECT_THAT(Connection::Connect(
                  {.address = silent.address(), .cancelled = [&] { return cancelled.load(); }}),
              StatusIs(absl::StatusCode::kCancelled, silent.address()));
}

TEST(NetTest, AnswersAreBoundedAndOfTheRightType) {
  const auto server = StartServer(ServerOptions(), [](Frame request, Reply reply) {
    if (request.control == "type")
      return reply({.type = FrameType::kGetStatus, .control = "", .bulk = {}});
    reply(Request(std::string(100, 'x'), Bytes(100)));
  });
  for (const wire::FrameLimits limits :
       {wire::FrameLimits{.control_bytes = 99, .bulk_bytes = 100},
        wire::FrameLimits{.control_bytes = 100, .bulk_bytes = 99}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
    EXPECT_THAT(connection->Call(Request(), limits, kLong), StatusIs(kExhausted, "at most"));
    EXPECT_FALSE(connection->usable());
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto connection, ConnectTo(*server));
  EXPECT_THAT(connection->Call(Request("type"), kLimits, kLong),
              StatusIs(absl::StatusCode::kInternal, "type"));
  EXPECT_FALSE(connection->usable());
}

// Collects the bytes that it is given, refuses a certain byte, and tells when it is destroyed.
class TestSink final : public BulkSink {
 public:
  explicit TestSink(std::atomic<int>* alive) : alive_(alive) { ++*alive_; }
  ~TestSink() override { --*alive_; }
  absl::Status Take(BytesView piece) override {
    if (std::ranges::find(piece, 0xee) != piece.end()) return absl::DataLossError("0xee");
    Append(taken_, piece);
    return absl::OkStatus();
  }
  void Done(Reply reply) override { reply(Request("sunk", std::move(taken_))); }

 private:
  std::atomic<int>* const alive_;
  Bytes taken_;
};

TEST(NetTest, BulkIsTakenAsItComes) {
  std::atomic<int> alive = 0;
  Server::Options options = ServerOptions();
  options.sink = [&](const Frame& request,
                     uint64_t bytes) -> absl::StatusOr<std::unique_ptr<BulkSink>> {
    if (request.control == "refuse") return absl::InvalidArgumentError("no sink for this");
    if (request.control == "gather") return nullptr;
    EXPECT_GT(bytes, 0u);
    return std::make_unique<TestSink>(&alive);
  };
  const auto server = StartServer(std::move(options));
  Bytes bulk(3'500'001);
  for (size_t i = 0; i < bulk.size(); ++i) bulk[i] = static_cast<uint8_t>(i % 200);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Frame sunk, CallOnce(*server, Request("sink", bulk)));
  EXPECT_EQ(sunk.control, "sunk");
  EXPECT_EQ(sunk.bulk, bulk);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Frame gathered, CallOnce(*server, Request("gather", bulk)));
  EXPECT_EQ(gathered.control, "gather");
  EXPECT_EQ(gathered.bulk, bulk);
  EXPECT_THAT(CallOnce(*server, Request("refuse", bulk)),
              StatusIs(absl::StatusCode::kInvalidArgument, "no sink"));
  bulk[2'000'000] = 0xee;
  EXPECT_THAT(CallOnce(*server, Request("sink", bulk)),
              StatusIs(absl::StatusCode::kDataLoss, "0xee"));
  {  // A sender that disappears half way leaves nothing behind.
    RawTls client(*server);
    client.WriteHeader({.type = FrameType::kOffline, .control_bytes = 0, .bulk_bytes = 3 << 20});
    client.Write(Bytes(1 << 20));
  }
  EXPECT_TRUE(Soon([&] { return alive == 0; }));
}

}  // namespace
}  // namespace shoal::net
