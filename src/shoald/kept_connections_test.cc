#include "src/shoald/kept_connections.h"

#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/soon.h"
#include "src/net/server.h"
#include "src/net/testing/test_identity.h"
#include "src/wire/frame.h"

namespace shoal::shoald {
namespace {

using namespace std::chrono_literals;

constexpr wire::FrameLimits kLimits = {.control_bytes = 100, .bulk_bytes = 1 << 20};

Digest Round(uint8_t number) { return Digest{number}; }

// A server that sends back what it gets.
class KeptConnectionsTest : public ::testing::Test {
 protected:
  KeptConnectionsTest() {
    auto server = net::Server::Start(
        {.address = "127.0.0.1:0",
         .identity = identity_.identity(),
         .clients = {},
         .limits = [](wire::FrameType) { return kLimits; }},
        [](wire::Frame request, net::Reply reply) { reply(std::move(request)); });
    SHOAL_CHECK(server.ok());
    server_ = *std::move(server);
  }

  std::unique_ptr<net::Connection> Connect() {
    auto connection =
        net::Connection::Connect({.address = absl::StrCat("127.0.0.1:", server_->port())});
    SHOAL_CHECK(connection.ok());
    SHOAL_CHECK(Echoes(**connection));
    return *std::move(connection);
  }
  static bool Echoes(net::Connection& connection) {
    const wire::Frame frame = {
        .type = wire::FrameType::kOnline, .control = "", .bulk = Bytes(300'000, 7)};
    const auto answer = connection.Call(frame, kLimits, 30s);
    return answer.ok() && answer->bulk == frame.bulk;
  }
  bool Has(size_t connections) {
    return ::shoal::testing::Soon([&] { return server_->connections() == connections; });
  }

  const net::testing::TestIdentity identity_{1};
  std::unique_ptr<net::Server> server_;
};

TEST_F(KeptConnectionsTest, GivesOutEachOnceForItsRoundAndMachine) {
  KeptConnections kept;
  kept.Keep(Round(1), 0, Connect());
  kept.Keep(Round(1), 1, Connect());
  kept.Keep(Round(2), 0, Connect());
  EXPECT_EQ(kept.Take(Round(2), 1), nullptr);
  EXPECT_EQ(kept.Take(Round(3), 0), nullptr);
  const auto taken = kept.Take(Round(1), 1);
  ASSERT_NE(taken, nullptr);
  EXPECT_TRUE(Echoes(*taken));
  EXPECT_EQ(kept.Take(Round(1), 1), nullptr);
  EXPECT_NE(kept.Take(Round(1), 0), nullptr);
  EXPECT_NE(kept.Take(Round(2), 0), nullptr);
}

TEST_F(KeptConnectionsTest, ALaterOneTakesThePlaceOfAnEarlierOne) {
  KeptConnections kept;
  kept.Keep(Round(1), 0, Connect());
  kept.Keep(Round(1), 0, Connect());
  EXPECT_TRUE(Has(1)) << server_->connections();
  EXPECT_NE(kept.Take(Round(1), 0), nullptr);
}

TEST_F(KeptConnectionsTest, BeyondTheMostTheOldestEnds) {
  KeptConnections kept({.most = 3});
  for (uint8_t i = 1; i <= 5; ++i) kept.Keep(Round(i), 0, Connect());
  EXPECT_TRUE(Has(3)) << server_->connections();
  EXPECT_EQ(kept.Take(Round(2), 0), nullptr);
  for (uint8_t i = 3; i <= 5; ++i) EXPECT_NE(kept.Take(Round(i), 0), nullptr);
}

TEST_F(KeptConnectionsTest, OneThatHasWaitedForTooLongIsNotGivenOut) {
  KeptConnections kept({.longest = 0ms});
  kept.Keep(Round(1), 0, Connect());
  std::this_thread::sleep_for(1ms);
  EXPECT_EQ(kept.Take(Round(1), 0), nullptr);
  EXPECT_TRUE(Has(0)) << server_->connections();
}

TEST_F(KeptConnectionsTest, ThoseOfRoundsThatAreOverEnd) {
  KeptConnections kept;
  for (uint8_t i = 1; i <= 3; ++i) {
    kept.Keep(Round(i), 0, Connect());
    kept.Keep(Round(i), 1, Connect());
  }
  kept.End([](const Digest& id) { return id != Round(2); });
  EXPECT_TRUE(Has(2)) << server_->connections();
  for (uint32_t machine : {0u, 1u}) {
    EXPECT_EQ(kept.Take(Round(1), machine), nullptr);
    EXPECT_NE(kept.Take(Round(2), machine), nullptr);
  }
}

}  // namespace
}  // namespace shoal::shoald
