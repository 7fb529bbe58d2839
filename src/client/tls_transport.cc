#include "src/client/tls_transport.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/net/connection.h"
#include "src/net/tls.h"
#include "src/wire/frame.h"

namespace shoal::client {
namespace {

using std::chrono::milliseconds;

// A frontend that takes longer to answer counts as unreachable. The time is long because
// acknowledgements wait for a disk.
constexpr milliseconds kCallTimeout(60'000);
constexpr wire::FrameLimits kResponseLimits = {.control_bytes = wire::kMaxClientControlBytes,
                                               .bulk_bytes = 0};

class TlsTransport final : public Transport {
 public:
  explicit TlsTransport(std::string address) : address_(std::move(address)) {}

  absl::StatusOr<wire::GetDeploymentResponse> GetDeployment(
      const wire::GetDeploymentRequest& request) override {
    return Call<wire::GetDeploymentResponse>(wire::FrameType::kGetDeployment, request);
  }
  absl::StatusOr<wire::GetPlacementResponse> GetPlacement(
      const wire::GetPlacementRequest& request) override {
    return Call<wire::GetPlacementResponse>(wire::FrameType::kGetPlacement, request);
  }
  absl::StatusOr<wire::GetRowVersionsResponse> GetRowVersions(
      const wire::GetRowVersionsRequest& request) override {
    return Call<wire::GetRowVersionsResponse>(wire::FrameType::kGetRowVersions, request);
  }
  absl::StatusOr<wire::ListRoundsResponse> ListRounds(
      const wire::ListRoundsRequest& request) override {
    return Call<wire::ListRoundsResponse>(wire::FrameType::kListRounds, request);
  }
  absl::StatusOr<wire::WaitRoundResponse> WaitRound(
      const wire::WaitRoundRequest& request) override {
    return Call<wire::WaitRoundResponse>(wire::FrameType::kWaitRound, request,
                                         kCallTimeout + milliseconds(request.timeout_ms()));
  }
  absl::StatusOr<wire::SubmitOnionsResponse> SubmitOnions(
      const wire::SubmitOnionsRequest& request) override {
    return Call<wire::SubmitOnionsResponse>(wire::FrameType::kSubmitOnions, request);
  }
  absl::StatusOr<wire::SubmitQueriesResponse> SubmitQueries(
      const wire::SubmitQueriesRequest& request) override {
    return Call<wire::SubmitQueriesResponse>(wire::FrameType::kSubmitQueries, request);
  }
  absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest& request) override {
    return Call<wire::FetchAnswersResponse>(wire::FrameType::kFetchAnswers, request);
  }
  absl::StatusOr<wire::GetStatusResponse> GetStatus(
      const wire::GetStatusRequest& request) override {
    return Call<wire::GetStatusResponse>(wire::FrameType::kGetStatus, request);
  }

  absl::StatusOr<wire::Frame> CallEngine(const wire::Frame& request,
                                         uint64_t max_bulk_bytes) override {
    return Exchange(request,
                    {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = max_bulk_bytes},
                    kCallTimeout);
  }

  absl::Status RequireParty(const roster::Roster& roster, uint32_t party) override {
    pin_ = roster.party(party).tls_certificate_sha256;
    if (connection_ != nullptr && connection_->certificate_sha256() != *pin_) {
      Disconnect();
      return absl::UnauthenticatedError(absl::StrCat(
          address_, " shows another TLS certificate than party ", party,
          " of the roster: something stands between it and this client, or it runs with other "
          "keys"));
    }
    return absl::OkStatus();
  }

  void HangUp() override { Disconnect(); }

  Traffic traffic() const override {
    Traffic traffic = past_;
    if (connection_ != nullptr) {
      traffic.sent += connection_->bytes_sent();
      traffic.received += connection_->bytes_received();
    }
    return traffic;
  }

 private:
  void Disconnect() {
    past_ = traffic();
    connection_.reset();
  }

  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(wire::FrameType type, const Request& request,
                                milliseconds timeout = kCallTimeout) {
    SHOAL_ASSIGN_OR_RETURN(const wire::Frame frame,
                           Exchange(wire::MakeFrame(type, request), kResponseLimits, timeout));
    Response response;
    SHOAL_RETURN_IF_ERROR(Annotate(wire::ParseFrame(frame, type, response), address_));
    return response;
  }

  absl::StatusOr<wire::Frame> Exchange(const wire::Frame& request, const wire::FrameLimits& limits,
                                       milliseconds timeout) {
    if (!pin_ && request.type != wire::FrameType::kGetDeployment) {
      return absl::FailedPreconditionError("the party's certificate has not been checked yet");
    }
    if (connection_ != nullptr && !connection_->usable()) Disconnect();
    if (connection_ == nullptr) {
      auto connection = net::Connection::Connect({.address = address_, .pin = pin_});
      if (!connection.ok()) return Broken(connection.status());
      connection_ = *std::move(connection);
    }
    absl::StatusOr<wire::Frame> frame = connection_->Call(request, limits, timeout);
    if (!frame.ok() && !connection_->usable()) return Broken(frame.status());
    // A server without room for a request closes the connection after its answer, so another
    // attempt on this connection would be lost.
    if (absl::IsUnavailable(frame.status())) Disconnect();
    return frame;
  }

  // A frontend that is too slow counts as unreachable, so that the request may be repeated.
  static absl::Status Broken(const absl::Status& status) {
    return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
  }

  const std::string address_;
  std::optional<Digest> pin_;
  std::unique_ptr<net::Connection> connection_;
  Traffic past_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address) {
  SHOAL_RETURN_IF_ERROR(net::ParseHostPort(address).status());
  return std::make_unique<TlsTransport>(address);
}

}  // namespace shoal::client
