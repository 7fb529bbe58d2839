// A transport that sends every request as a frame: which type of frame each one is stands here.
#ifndef SHOAL_SRC_CLIENT_FRAMED_TRANSPORT_H_
#define SHOAL_SRC_CLIENT_FRAMED_TRANSPORT_H_

#include <chrono>
#include <string>

#include "src/client/transport.h"

namespace shoal::client {

// Thread-compatible.
class FramedTransport : public Transport {
 public:
  absl::StatusOr<wire::GetDeploymentResponse> GetDeployment(
      const wire::GetDeploymentRequest& request) final;
  absl::StatusOr<wire::GetPlacementResponse> GetPlacement(
      const wire::GetPlacementRequest& request) final;
  absl::StatusOr<wire::GetRowVersionsResponse> GetRowVersions(
      const wire::GetRowVersionsRequest& request) final;
  absl::StatusOr<wire::ListRoundsResponse> ListRounds(const wire::ListRoundsRequest& request) final;
  absl::StatusOr<wire::WaitRoundResponse> WaitRound(const wire::WaitRoundRequest& request) final;
  absl::StatusOr<wire::SubmitOnionsResponse> SubmitOnions(
      const wire::SubmitOnionsRequest& request) final;
  absl::StatusOr<wire::SubmitQueriesResponse> SubmitQueries(
      const wire::SubmitQueriesRequest& request) final;
  absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest& request) final;
  absl::StatusOr<wire::GetStatusResponse> GetStatus(const wire::GetStatusRequest& request) final;
  absl::StatusOr<wire::GetRefreshResponse> GetRefresh(const wire::GetRefreshRequest& request) final;
  absl::StatusOr<wire::FetchRefreshResponse> FetchRefresh(
      const wire::FetchRefreshRequest& request) final;

 protected:
  // `address` is named in errors.
  explicit FramedTransport(std::string address) : address_(std::move(address)) {}

  // A frontend that takes longer to answer counts as unreachable. The time is long because
  // acknowledgements wait for a disk.
  static constexpr std::chrono::milliseconds kCallTimeout{60'000};

  // Sends a request and waits for the response, at most so long. UNAVAILABLE if none comes.
  virtual absl::StatusOr<wire::Frame> Call(const wire::Frame& request,
                                           std::chrono::milliseconds timeout) = 0;

  // A peer that is too slow counts as unreachable, so that the request may be repeated.
  static absl::Status Unreached(const absl::Status& status) {
    return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
  }

  const std::string& address() const { return address_; }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> CallFor(wire::FrameType type, const Request& request,
                                   std::chrono::milliseconds timeout = kCallTimeout);

  const std::string address_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_FRAMED_TRANSPORT_H_
