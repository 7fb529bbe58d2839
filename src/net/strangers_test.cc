// Attacks by strangers from one address on real servers, and what others still get. The stranger
// has 127.0.0.2, everybody else another address of the loopback network. Each attack would work if
// the guard that it aims at were missing: the others would find no place or no room.
#include <sys/resource.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/address_block.h"
#include "src/base/bytes.h"
#include "src/base/testing/matchers.h"
#include "src/net/connection.h"
#include "src/net/server.h"
#include "src/net/testing/raw_tls.h"
#include "src/net/testing/test_identity.h"
#include "src/wire/frame.h"

namespace shoal::net {
namespace {

using namespace std::chrono_literals;
using net::testing::RawSocket;
using net::testing::RawTls;
using net::testing::TestIdentity;
using ::shoal::testing::StatusIs;
using wire::Frame;
using wire::FrameType;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

constexpr char kStranger[] = "127.0.0.2";
// Longer than anything here takes, and than RawSocket waits: a connection that is not cut must not
// look like one. No limit of time ends an attack: shares alone must.
constexpr auto kLong = 600s;

const TestIdentity& ServerIdentity() {
  static const TestIdentity identity(1);
  return identity;
}
const TestIdentity& NeighbourIdentity() {
  static const TestIdentity identity(2);
  return identity;
}

// Shares as shoald's by default, places for a tenth as many connections, no time limits.
Server::Options Options() {
  return {.address = "127.0.0.1:0",
          .identity = ServerIdentity().identity(),
          .clients = {},
          .limits = [](FrameType) -> absl::StatusOr<wire::FrameLimits> {
            return wire::FrameLimits{.control_bytes = 4 << 20, .bulk_bytes = 0};
          },
          .max_connections = 307,
          .max_newcomers = 102,
          .max_buffered_bytes = 1 << 30,
          .shares = {.connections = 10, .newcomers = 10, .buffers = 10},
          .handshake_timeout = kLong,
          .header_timeout = kLong,
          .progress_timeout = kLong,
          .idle_timeout = kLong};
}

constexpr size_t kLargeAnswer = 4 << 20;

std::unique_ptr<Server> Start(Server::Options options) {
  auto server = Server::Start(std::move(options), [](Frame request, Reply reply) {
    if (request.type == FrameType::kFetchAnswers) request.control.assign(kLargeAnswer, 'a');
    reply(std::move(request));
  });
  EXPECT_THAT(server, ::shoal::testing::IsOk());
  return server.ok() ? *std::move(server) : nullptr;
}

absl::StatusOr<Frame> Call(const Server& server, const Frame& request,
                           const Identity* identity = nullptr) {
  auto connection = Connection::Connect({.address = absl::StrCat("127.0.0.1:", server.port()),
                                         .pin = ServerIdentity().digest(),
                                         .identity = identity,
                                         .connect_timeout = kLong});
  if (!connection.ok()) return connection.status();
  return (*connection)->Call(request, {.control_bytes = 4 << 20, .bulk_bytes = 0}, kLong);
}

Frame List() { return {.type = FrameType::kListRounds, .control = "which?", .bulk = {}}; }
Frame Upload() {
  return {.type = FrameType::kSubmitOnions, .control = std::string(4 << 20, 'o'), .bulk = {}};
}
Frame Fetch() { return {.type = FrameType::kFetchAnswers, .control = "mine", .bulk = {}}; }

// A client from another address takes what a lookup takes.
void ExpectServed(const Server& server) {
  SHOAL_EXPECT_OK(Call(server, List()));
  SHOAL_EXPECT_OK(Call(server, Upload()));
  SHOAL_EXPECT_OK(Call(server, Fetch()));
}

constexpr char kGroup[] = "127.7.0.0/16";

// Whether the system allows so many open files.
bool MayOpen(rlim_t files) {
  rlimit limit;
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit.rlim_cur >= files;
}

// 4,200 at a server with the places of shoald.
TEST(StrangersTest, IdleSocketsTakeNoPlaceOfANeighbour) {
  constexpr int kSockets = 4200;
  if (!MayOpen(kSockets + 2000)) GTEST_SKIP() << "too few descriptors on this machine";
  Server::Options options = Options();
  options.clients = {NeighbourIdentity().digest()};
  options.max_connections = 3072;
  options.max_newcomers = 1024;
  const auto server = Start(std::move(options));
  std::vector<std::unique_ptr<RawSocket>> idle;
  for (int i = 0; i < kSockets; ++i) {
    idle.push_back(std::make_unique<RawSocket>(*server, kStranger));
  }
  const Identity neighbour = NeighbourIdentity().identity();
  for (int i = 0; i < 3; ++i) SHOAL_EXPECT_OK(Call(*server, List(), &neighbour));
  // The oldest ones have gone.
  EXPECT_TRUE(idle.front()->ReadToEnd());
}

// Sockets of many blocks fill all places of newcomers, and still the newest gets in.
TEST(StrangersTest, IdleSocketsOfManyBlocksTakeNoPlaceOfANeighbour) {
  Server::Options options = Options();
  options.clients = {NeighbourIdentity().digest()};
  const auto server = Start(std::move(options));
  std::vector<std::unique_ptr<RawSocket>> idle;
  for (int block = 0; block < 100; ++block) {
    for (int i = 0; i < 4; ++i) {
      idle.push_back(std::make_unique<RawSocket>(*server, absl::StrCat("127.0.1.", block)));
    }
  }
  const Identity neighbour = NeighbourIdentity().identity();
  for (int i = 0; i < 3; ++i) SHOAL_EXPECT_OK(Call(*server, List(), &neighbour));
  EXPECT_TRUE(idle.front()->ReadToEnd());
}

// A tenth of 4,096, as the server has a tenth of the places.
TEST(StrangersTest, IdleTlsSessionsTakeNoPlaceOfClients) {
  const auto server = Start(Options());
  std::vector<std::unique_ptr<RawTls>> idle;
  for (int i = 0; i < 410; ++i) idle.push_back(std::make_unique<RawTls>(*server, kStranger));
  ExpectServed(*server);
  // With a first request each, and then idle.
  size_t welcome = 0;
  for (int i = 0; i < 410; ++i) {
    idle.push_back(std::make_unique<RawTls>(*server, kStranger));
    if (!idle.back()->WriteFrame(List())) continue;
    const auto answer = idle.back()->ReadFrame();
    if (answer.ok()) {
      ++welcome;
    } else {
      EXPECT_THAT(answer, StatusIs(kUnavailable, "connections of 127.0.0.2"));
    }
  }
  EXPECT_EQ(welcome, 30u) << "a tenth of 307";
  ExpectServed(*server);
}

// 270 requests of 4 MiB would hold 1,080 MiB, where there are 1,024 for all.
TEST(StrangersTest, RequestsWithheldByOneByteTakeNoRoomOfClients) {
  Server::Options options = Options();
  options.max_connections = 3072;
  const auto server = Start(std::move(options));
  const Frame upload = Upload();
  std::vector<std::unique_ptr<RawTls>> withheld;
  for (int i = 0; i < 270; ++i) {
    withheld.push_back(std::make_unique<RawTls>(*server, kStranger));
    withheld.back()->WriteHeader(wire::HeaderOf(upload));
    withheld.back()->Write(AsBytes(upload.control).first(upload.control.size() - 1));
  }
  ExpectServed(*server);
  // A tenth of the room holds 25 such requests. The last ones were refused.
  EXPECT_THAT(withheld.back()->ReadError(), StatusIs(kUnavailable, "too many requests at once"));
  withheld.front()->Write(Bytes(1, 'o'));
  SHOAL_EXPECT_OK(withheld.front()->ReadFrame());
}

// 4 MiB each for 64 readers would be 256 MiB, where there are 128 for all.
TEST(StrangersTest, SlowReadersOfLargeAnswersTakeNoRoomOfClients) {
  Server::Options options = Options();
  options.max_buffered_bytes = 128 << 20;
  options.max_connections = 3072;
  const auto server = Start(std::move(options));
  std::vector<std::unique_ptr<RawTls>> slow;
  size_t refused = 0;
  for (int i = 0; i < 64; ++i) {
    slow.push_back(std::make_unique<RawTls>(*server, kStranger));
    slow.back()->WriteFrame(Fetch());
    Bytes piece(64);
    EXPECT_GT(slow.back()->ReadSome(piece), 0u);
    refused += absl::StrContains(AsText(piece), "too many answers") ? 1 : 0;
  }
  EXPECT_EQ(refused, 64u - 3) << "a tenth of the room holds three answers";
  ExpectServed(*server);
}

// A handler that keeps the uploads of all but the honest client, as for a slow disk.
class Keeper {
 public:
  Handler handler() {
    return [this](Frame request, Reply reply) {
      const bool honest = reply.from() == AddressBlock(MappedIpv4({127, 0, 0, 1}));
      if (honest || request.type != FrameType::kSubmitOnions) return reply(std::move(request));
      const std::lock_guard lock(mutex_);
      kept_.emplace_back(std::move(request), std::move(reply));
      changed_.notify_all();
    };
  }
  void WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return kept_.size() == count; }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<Frame, Reply>> kept_;
};

// The uploads of many blocks take all the room but the reserve.
TEST(StrangersTest, UploadsLeaveTheReserveToControlRequests) {
  Server::Options options = Options();
  options.max_buffered_bytes = 64 << 20;
  options.reserved_bytes = 4 << 20;
  options.in_reserve = [](FrameType type) { return type == FrameType::kListRounds; };
  Keeper keeper;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto server,
                             Server::Start(std::move(options), keeper.handler()));
  std::vector<std::unique_ptr<RawTls>> uploads;
  for (size_t i = 1; i <= 15; ++i) {
    uploads.push_back(std::make_unique<RawTls>(*server, absl::StrCat("127.0.1.", i)));
    uploads.back()->WriteFrame(Upload());
    keeper.WaitFor(i);
  }
  EXPECT_THAT(Call(*server, Upload()), StatusIs(kUnavailable, "too many requests at once"));
  SHOAL_EXPECT_OK(Call(*server, List()));
}

// What waits in a handler counts as well.
TEST(StrangersTest, RequestsThatAHandlerKeepsTakeNoRoomOfClients) {
  Server::Options options = Options();
  options.max_buffered_bytes = 128 << 20;
  Keeper keeper;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto server,
                             Server::Start(std::move(options), keeper.handler()));
  std::vector<std::unique_ptr<RawTls>> uploads;
  for (size_t i = 1; i <= 4; ++i) {
    uploads.push_back(std::make_unique<RawTls>(*server, kStranger));
    uploads.back()->WriteFrame(Upload());
    if (i <= 3) keeper.WaitFor(i);  // a tenth of the room holds three
  }
  EXPECT_THAT(uploads.back()->ReadError(), StatusIs(kUnavailable, "too many requests at once"));
  SHOAL_EXPECT_OK(Call(*server, Upload()));
}

// Nor do those behind one address that many share.
TEST(StrangersTest, AGroupTakesItsShareAndNoMore) {
  Server::Options options = Options();
  options.max_connections = options.max_newcomers = 20;
  options.group_shares = {.connections = 60, .newcomers = 60, .buffers = 60};
  SHOAL_ASSERT_OK(options.shared_addresses.Add(kGroup));
  const std::unique_ptr<Server> server = Start(std::move(options));
  std::vector<std::unique_ptr<RawTls>> group;
  for (int i = 0; i < 12; ++i) {
    group.push_back(std::make_unique<RawTls>(*server, absl::StrCat("127.7.0.", 1 + i)));
    group.back()->WriteFrame(List());
    SHOAL_ASSERT_OK(group.back()->ReadFrame());
  }
  RawTls one_more(*server, "127.7.9.9");
  one_more.WriteFrame(List());
  EXPECT_THAT(one_more.ReadError(), StatusIs(kUnavailable, "connections of 127.7.0.0/16 at once"));
  // Those who say nothing have a share of the places for newcomers.
  std::vector<std::unique_ptr<RawSocket>> idle;
  for (int i = 0; i < 60; ++i) {
    idle.push_back(std::make_unique<RawSocket>(*server, absl::StrCat("127.7.1.", 1 + i)));
  }
  ExpectServed(*server);
}

}  // namespace
}  // namespace shoal::net
