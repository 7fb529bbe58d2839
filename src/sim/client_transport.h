// A client's connection to the frontend over the simulated network.
#ifndef SHOAL_SRC_SIM_CLIENT_TRANSPORT_H_
#define SHOAL_SRC_SIM_CLIENT_TRANSPORT_H_

#include "src/base/status_macros.h"
#include "src/client/transport.h"
#include "src/sim/network.h"

namespace shoal::sim {

class ClientTransport final : public client::Transport {
 public:
  ClientTransport(Network* network, Address self) : network_(network), self_(self) {}

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
                                         request.timeout_ms() * kMillisecond);
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
  absl::Status RequireParty(const roster::Roster&, uint32_t) override { return absl::OkStatus(); }
  void HangUp() override {}
  client::Traffic traffic() const override { return {}; }

 private:
  // As src/client/tls_transport.cc.
  static constexpr Time kCallTimeout = 60 * kSecond;

  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(wire::FrameType type, const Request& request, Time longer = 0) {
    auto answer = network_->Call(self_, 1, wire::MakeFrame(type, request), kCallTimeout + longer);
    if (absl::IsDeadlineExceeded(answer.status())) {
      return absl::UnavailableError(answer.status().message());
    }
    if (!answer.ok()) return answer.status();
    Response response;
    SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer->frame, type, response));
    return response;
  }

  Network* const network_;
  const Address self_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_CLIENT_TRANSPORT_H_
