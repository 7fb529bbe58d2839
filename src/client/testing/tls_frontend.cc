#include "src/client/testing/tls_frontend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/random.h"

namespace shoal::client::testing {
namespace {

using wire::FrameType;

FakeOptions WithCertificate(FakeOptions options, const roster::TlsIdentity& identity) {
  options.certificate_sha256 = identity.certificate_sha256();
  return options;
}

}  // namespace

roster::TlsIdentity MakeTlsIdentity() {
  SystemRandom random;
  auto identity = roster::GenerateTlsIdentity("frontend", 1'800'000'000, random);
  SHOAL_CHECK(identity.ok());
  return *std::move(identity);
}

TlsFrontend::TlsFrontend(FakeOptions options)
    : identity_(MakeTlsIdentity()), frontend_(WithCertificate(std::move(options), identity_)) {
  Serve("127.0.0.1:0", identity_);
}

void TlsFrontend::Serve(const std::string& address, const roster::TlsIdentity& identity,
                        uint64_t max_buffered_bytes) {
  auto server = net::Server::Start(
      {.address = address,
       .identity = {.certificate_pem = identity.certificate_pem,
                    .private_key_pem = identity.private_key_pem},
       .clients = {},
       .limits =
           [](FrameType) {
             return absl::StatusOr<wire::FrameLimits>(
                 {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = 0});
           },
       .max_buffered_bytes = max_buffered_bytes},
      [this](wire::Frame frame, net::Reply reply) { Handle(frame, reply); });
  SHOAL_CHECK(server.ok());
  server_ = *std::move(server);
  address_ = absl::StrCat("127.0.0.1:", server_->port());
}

int TlsFrontend::Seen(FrameType type) {
  const std::lock_guard lock(mutex_);
  return seen_[type];
}

template <typename Request, typename Response>
void TlsFrontend::Answer(const wire::Frame& frame, net::Reply& reply,
                         absl::StatusOr<Response> (FakeFrontend::*method)(const Request&)) {
  Request request;
  SHOAL_CHECK(wire::ParseFrame(frame, frame.type, request).ok());
  const auto response = (frontend_.*method)(request);
  response.ok() ? reply(wire::MakeFrame(frame.type, *response)) : reply(response.status());
}

void TlsFrontend::Handle(const wire::Frame& frame, net::Reply& reply) {
  const std::lock_guard lock(mutex_);
  ++seen_[frame.type];
  switch (frame.type) {
    case FrameType::kGetDeployment:
      return Answer(frame, reply, &FakeFrontend::GetDeployment);
    case FrameType::kGetPlacement:
      return Answer(frame, reply, &FakeFrontend::GetPlacement);
    case FrameType::kGetRowVersions:
      return Answer(frame, reply, &FakeFrontend::GetRowVersions);
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

}  // namespace shoal::client::testing
