#include "src/client/tls_transport.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/client/chain_client.h"
#include "src/client/retrieval.h"
#include "src/client/testing/fake_frontend.h"
#include "src/client/testing/tls_frontend.h"
#include "src/net/testing/earlier_server.h"
#include "src/net/testing/test_identity.h"
#include "src/wire/frame.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::FakeFrontend;
using wire::FrameType;

class TlsTransportTest : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> Connect() {
    auto transport = ConnectTls(server_.address());
    SHOAL_CHECK(transport.ok());
    return *std::move(transport);
  }

  testing::TlsFrontend server_;
  FakeFrontend& frontend_ = server_.frontend();
};

TEST_F(TlsTransportTest, AWholeLookup) {
  frontend_.OpenRound();
  MemoryStateStore store;
  const auto transport = Connect();
  const Environment environment = {.clock = &frontend_.clock(),
                                   .random = &frontend_.random(),
                                   .pool = &frontend_.pool(),
                                   .sleep = SleepFor};
  SHOAL_ASSERT_OK_AND_ASSIGN(const Deployment deployment,
                             Deployment::Open(*transport, frontend_.pins(), store, environment));
  ChainOptions options;
  options.pad_to = 8;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto chain,
      ChainClient::Create(&deployment, options, transport.get(), &store, environment));
  const std::vector<Bytes> keys = {ToBytes(AsBytes("key-3")), ToBytes(AsBytes("none"))};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUp(deployment, *chain, keys, environment));
  EXPECT_EQ(ToString(results[0].value), "value of key-3");
  EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
  EXPECT_GT(transport->traffic().sent, 8u * (80 + 24));
  EXPECT_GT(transport->traffic().received, 8u * 304);
  wire::GetStatusRequest status;
  SHOAL_EXPECT_OK(transport->GetStatus(status));
}

// Before the certificate is known to be the frontend's, anybody could be at the other end.
TEST_F(TlsTransportTest, OnlyAsksForTheDeploymentBeforeTheFrontendIsKnown) {
  const auto transport = Connect();
  SHOAL_EXPECT_OK(transport->GetDeployment({}));
  EXPECT_THAT(transport->ListRounds({}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not been checked"));
  EXPECT_EQ(server_.Seen(FrameType::kListRounds), 0);
  SHOAL_EXPECT_OK(transport->RequireParty(frontend_.roster(), 1));
  SHOAL_EXPECT_OK(transport->ListRounds({}));
}

TEST_F(TlsTransportTest, AnotherCertificateThanTheRostersIsRefused) {
  server_.Serve("127.0.0.1:0", testing::MakeTlsIdentity());
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->GetDeployment({}));  // anybody can pass a signed roster on
  EXPECT_THAT(transport->RequireParty(frontend_.roster(), 1),
              StatusIs(absl::StatusCode::kUnauthenticated, "another TLS certificate"));
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  EXPECT_EQ(server_.Seen(FrameType::kListRounds), 0);
}

// Any party may serve clients, and none stands for another.
TEST_F(TlsTransportTest, AnotherPartyIsRefused) {
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->GetDeployment({}));
  EXPECT_THAT(transport->RequireParty(frontend_.roster(), 2),
              StatusIs(absl::StatusCode::kUnauthenticated, "party 2"));
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnauthenticated, ""));
}

TEST_F(TlsTransportTest, ConnectsAgainToTheSameFrontendAlone) {
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->RequireParty(frontend_.roster(), 1));
  SHOAL_ASSERT_OK(transport->ListRounds({}));
  const Traffic before = transport->traffic();
  server_.Stop();
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnavailable, ""));
  server_.Serve(server_.address(), server_.identity());
  SHOAL_EXPECT_OK(transport->ListRounds({}));
  EXPECT_GT(transport->traffic().sent, before.sent) << "traffic counts all connections";
  server_.Stop();
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnavailable, ""));
  server_.Serve(server_.address(), testing::MakeTlsIdentity());
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnauthenticated, ""));
}

// For the next roster, in which the party may have another certificate.
TEST_F(TlsTransportTest, AForgottenPartyIsAskedForTheDeploymentAlone) {
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->RequireParty(frontend_.roster(), 1));
  SHOAL_ASSERT_OK(transport->ListRounds({}));
  server_.Stop();
  server_.Serve(server_.address(), testing::MakeTlsIdentity());
  transport->HangUp();
  EXPECT_THAT(transport->GetDeployment({}), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  transport->ForgetParty();
  SHOAL_EXPECT_OK(transport->GetDeployment({}));
  EXPECT_THAT(transport->ListRounds({}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "not been checked"));
  EXPECT_THAT(transport->RequireParty(frontend_.roster(), 1),
              StatusIs(absl::StatusCode::kUnauthenticated, "another TLS certificate"));
}

TEST_F(TlsTransportTest, ErrorsKeepTheirCodeAndTheConnection) {
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->RequireParty(frontend_.roster(), 1));
  wire::WaitRoundRequest request;
  request.set_round_id(std::string(32, 'x'));
  EXPECT_THAT(transport->WaitRound(request),
              StatusIs(absl::StatusCode::kNotFound, "no such round"));
  SHOAL_EXPECT_OK(transport->ListRounds({}));
}

// A server without room refuses and closes its side of the connection, so the next attempt must use
// a new one.
TEST_F(TlsTransportTest, ConnectsAgainAfterItWasRefusedForLackOfRoom) {
  server_.Serve("127.0.0.1:0", server_.identity(), /*max_buffered_bytes=*/16);
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->RequireParty(frontend_.roster(), 1));
  wire::WaitRoundRequest request;
  request.set_round_id(std::string(32, 'x'));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(transport->WaitRound(request),
                StatusIs(absl::StatusCode::kUnavailable, "too many requests at once"));
  }
  server_.Stop();
  server_.Serve(server_.address(), server_.identity());
  EXPECT_THAT(transport->WaitRound(request),
              StatusIs(absl::StatusCode::kNotFound, "no such round"));
}

// A server of an earlier version takes no frame of this one, and says so in a frame of its own.
TEST_F(TlsTransportTest, AFrontendOfAnEarlierVersionIsNamed) {
  const net::testing::TestIdentity identity(1);
  for (const char digit : {'1', '2'}) {
    const net::testing::EarlierServer server(identity.identity(), digit);
    const std::string address = absl::StrCat("127.0.0.1:", server.port());
    auto transport = ConnectTls(address);
    SHOAL_ASSERT_OK(transport);
    MemoryStateStore store;
    int slept = 0;
    const Environment environment = {.clock = &frontend_.clock(),
                                     .random = &frontend_.random(),
                                     .pool = &frontend_.pool(),
                                     .sleep = [&](uint32_t) { ++slept; }};
    EXPECT_THAT(
        Deployment::Open(**transport, frontend_.pins(), store, environment),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 absl::StrCat(address, ": frame: a message of Shoal 0.", std::string(1, digit),
                              " came to one of Shoal 0.3, and these "
                              "do not understand each other: all programs of a deployment, "
                              "its parties' and its clients', change their version together "
                              "(docs/operations.md)")));
    EXPECT_EQ(slept, 0) << "trying again would not help";
  }
}

TEST(ConnectTls, WantsAnAddress) {
  EXPECT_THAT(ConnectTls("nowhere"), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace shoal::client
