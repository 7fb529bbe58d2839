#include "src/client/tls_transport.h"

#include <map>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/random.h"
#include "src/base/testing/matchers.h"
#include "src/client/client.h"
#include "src/client/testing/fake_frontend.h"
#include "src/net/server.h"
#include "src/roster/party_keys.h"
#include "src/wire/frame.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::FakeFrontend;
using wire::FrameType;

roster::TlsIdentity MakeIdentity() {
  SystemRandom random;
  auto identity = roster::GenerateTlsIdentity("frontend", 1'800'000'000, random);
  SHOAL_CHECK(identity.ok());
  return *std::move(identity);
}

// A fake frontend behind a real server.
class TlsTransportTest : public ::testing::Test {
 protected:
  TlsTransportTest()
      : identity_(MakeIdentity()),
        frontend_({.certificate_sha256 = identity_.certificate_sha256()}) {
    Serve("127.0.0.1:0", identity_);
  }

  void Serve(const std::string& address, const roster::TlsIdentity& identity) {
    auto server = net::Server::Start(
        {.address = address,
         .identity = {.certificate_pem = identity.certificate_pem,
                      .private_key_pem = BytesView(
                          reinterpret_cast<const uint8_t*>(identity.private_key_pem.data()),
                          identity.private_key_pem.size())},
         .clients = {},
         .limits =
             [](FrameType) {
               return absl::StatusOr<wire::FrameLimits>(
                   {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0});
             }},
        [this](wire::Frame frame, net::Reply reply) { Handle(frame, reply); });
    SHOAL_CHECK(server.ok());
    server_ = *std::move(server);
    address_ = absl::StrCat("127.0.0.1:", server_->port());
  }

  template <typename Request, typename Response>
  void Answer(const wire::Frame& frame, net::Reply& reply,
              absl::StatusOr<Response> (FakeFrontend::*method)(const Request&)) {
    Request request;
    SHOAL_CHECK(wire::ParseFrame(frame, frame.type, request).ok());
    const auto response = (frontend_.*method)(request);
    response.ok() ? reply(wire::MakeFrame(frame.type, *response)) : reply(response.status());
  }

  void Handle(const wire::Frame& frame, net::Reply& reply) {
    const std::lock_guard lock(mutex_);
    ++seen_[frame.type];
    switch (frame.type) {
      case FrameType::kGetDeployment:
        return Answer(frame, reply, &FakeFrontend::GetDeployment);
      case FrameType::kGetPlacement:
        return Answer(frame, reply, &FakeFrontend::GetPlacement);
      case FrameType::kListRounds:
        return Answer(frame, reply, &FakeFrontend::ListRounds);
      case FrameType::kWaitRound:
        return Answer(frame, reply, &FakeFrontend::WaitRound);
      case FrameType::kSubmitOnions:
        return Answer(frame, reply, &FakeFrontend::SubmitOnions);
      case FrameType::kSubmitQueries:
        return Answer(frame, reply, &FakeFrontend::SubmitQueries);
      case FrameType::kFetchAnswers:
        return Answer(frame, reply, &FakeFrontend::FetchAnswers);
      case FrameType::kGetStatus:
        return Answer(frame, reply, &FakeFrontend::GetStatus);
      default:
        return reply(absl::InvalidArgumentError("no such request"));
    }
  }

  std::unique_ptr<Transport> Connect() {
    auto transport = ConnectTls(address_);
    SHOAL_CHECK(transport.ok());
    return *std::move(transport);
  }

  roster::TlsIdentity identity_;
  FakeFrontend frontend_;
  std::mutex mutex_;
  std::map<FrameType, int> seen_;
  std::unique_ptr<net::Server> server_;
  std::string address_;
};

TEST_F(TlsTransportTest, AWholeLookup) {
  frontend_.OpenRound();
  MemoryStateStore store;
  const auto transport = Connect();
  ClientOptions options;
  options.pad_to = 8;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto client,
      Client::Open(frontend_.pins(), options, transport.get(), &store,
                   {.clock = &frontend_.clock(),
                    .random = &frontend_.random(),
                    .pool = &frontend_.pool(),
                    .sleep = SleepFor,
                    .progress = {}}));
  const std::vector<Bytes> keys = {ToBytes(AsBytes("key-3")), ToBytes(AsBytes("none"))};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, client->LookUp(keys));
  EXPECT_EQ(ToString(results[0].value), "value of key-3");
  EXPECT_EQ(results[1].outcome, Lookup::Outcome::kAbsent);
  EXPECT_GT(transport->traffic().sent, 8u * 336);
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
  EXPECT_EQ(seen_[FrameType::kListRounds], 0);
  SHOAL_EXPECT_OK(transport->RequireFrontend(frontend_.roster()));
  SHOAL_EXPECT_OK(transport->ListRounds({}));
}

TEST_F(TlsTransportTest, AnotherCertificateThanTheRostersIsRefused) {
  server_.reset();
  Serve("127.0.0.1:0", MakeIdentity());
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->GetDeployment({}));  // anybody can pass a signed roster on
  EXPECT_THAT(transport->RequireFrontend(frontend_.roster()),
              StatusIs(absl::StatusCode::kUnauthenticated, "another TLS certificate"));
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnauthenticated, ""));
  EXPECT_EQ(seen_[FrameType::kListRounds], 0);
}

TEST_F(TlsTransportTest, ConnectsAgainToTheSameFrontendAlone) {
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->RequireFrontend(frontend_.roster()));
  SHOAL_ASSERT_OK(transport->ListRounds({}));
  const Traffic before = transport->traffic();
  server_.reset();
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnavailable, ""));
  Serve(address_, identity_);
  SHOAL_EXPECT_OK(transport->ListRounds({}));
  EXPECT_GT(transport->traffic().sent, before.sent) << "traffic counts all connections";
  server_.reset();
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnavailable, ""));
  Serve(address_, MakeIdentity());
  EXPECT_THAT(transport->ListRounds({}), StatusIs(absl::StatusCode::kUnauthenticated, ""));
}

TEST_F(TlsTransportTest, ErrorsKeepTheirCodeAndTheConnection) {
  const auto transport = Connect();
  SHOAL_ASSERT_OK(transport->RequireFrontend(frontend_.roster()));
  wire::WaitRoundRequest request;
  request.set_round_id(std::string(32, 'x'));
  EXPECT_THAT(transport->WaitRound(request),
              StatusIs(absl::StatusCode::kNotFound, "no such round"));
  SHOAL_EXPECT_OK(transport->ListRounds({}));
}

TEST(ConnectTls, WantsAnAddress) {
  EXPECT_THAT(ConnectTls("nowhere"), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

}  // namespace
}  // namespace shoal::client
