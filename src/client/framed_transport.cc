#include "src/client/framed_transport.h"

#include "src/base/status_macros.h"

namespace shoal::client {

using std::chrono::milliseconds;
using wire::FrameType;

template <typename Response, typename Request>
absl::StatusOr<Response> FramedTransport::CallFor(FrameType type, const Request& request,
                                                  milliseconds timeout) {
  SHOAL_ASSIGN_OR_RETURN(const wire::Frame frame, Call(wire::MakeFrame(type, request), timeout));
  Response response;
  SHOAL_RETURN_IF_ERROR(Annotate(wire::ParseFrame(frame, type, response), address_));
  return response;
}

absl::StatusOr<wire::GetDeploymentResponse> FramedTransport::GetDeployment(
    const wire::GetDeploymentRequest& request) {
  return CallFor<wire::GetDeploymentResponse>(FrameType::kGetDeployment, request);
}
absl::StatusOr<wire::GetPlacementResponse> FramedTransport::GetPlacement(
    const wire::GetPlacementRequest& request) {
  return CallFor<wire::GetPlacementResponse>(FrameType::kGetPlacement, request);
}
absl::StatusOr<wire::GetRowVersionsResponse> FramedTransport::GetRowVersions(
    const wire::GetRowVersionsRequest& request) {
  return CallFor<wire::GetRowVersionsResponse>(FrameType::kGetRowVersions, request);
}
absl::StatusOr<wire::ListRoundsResponse> FramedTransport::ListRounds(
    const wire::ListRoundsRequest& request) {
  return CallFor<wire::ListRoundsResponse>(FrameType::kListRounds, request);
}
absl::StatusOr<wire::WaitRoundResponse> FramedTransport::WaitRound(
    const wire::WaitRoundRequest& request) {
  return CallFor<wire::WaitRoundResponse>(FrameType::kWaitRound, request,
                                          kCallTimeout + milliseconds(request.timeout_ms()));
}
absl::StatusOr<wire::SubmitOnionsResponse> FramedTransport::SubmitOnions(
    const wire::SubmitOnionsRequest& request) {
  return CallFor<wire::SubmitOnionsResponse>(FrameType::kSubmitOnions, request);
}
absl::StatusOr<wire::SubmitQueriesResponse> FramedTransport::SubmitQueries(
    const wire::SubmitQueriesRequest& request) {
  return CallFor<wire::SubmitQueriesResponse>(FrameType::kSubmitQueries, request);
}
absl::StatusOr<wire::FetchAnswersResponse> FramedTransport::FetchAnswers(
    const wire::FetchAnswersRequest& request) {
  return CallFor<wire::FetchAnswersResponse>(FrameType::kFetchAnswers, request);
}
absl::StatusOr<wire::GetStatusResponse> FramedTransport::GetStatus(
    const wire::GetStatusRequest& request) {
  return CallFor<wire::GetStatusResponse>(FrameType::kGetStatus, request);
}
absl::StatusOr<wire::GetRefreshResponse> FramedTransport::GetRefresh(
    const wire::GetRefreshRequest& request) {
  return CallFor<wire::GetRefreshResponse>(FrameType::kGetRefresh, request);
}
absl::StatusOr<wire::FetchRefreshResponse> FramedTransport::FetchRefresh(
    const wire::FetchRefreshRequest& request) {
  return CallFor<wire::FetchRefreshResponse>(FrameType::kFetchRefresh, request);
}

}  // namespace shoal::client
