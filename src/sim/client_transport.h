// A client's connection to the frontend over the simulated network.
#ifndef SHOAL_SRC_SIM_CLIENT_TRANSPORT_H_
#define SHOAL_SRC_SIM_CLIENT_TRANSPORT_H_

#include <chrono>
#include <utility>

#include "src/client/framed_transport.h"
#include "src/sim/network.h"

namespace shoal::sim {

class ClientTransport final : public client::FramedTransport {
 public:
  // To a machine of the frontend.
  ClientTransport(Network* network, Address self, uint32_t rank = 0)
      : client::FramedTransport("the frontend"),
        network_(network),
        self_(self),
        frontend_(MachineAddress(1, rank)) {}

  absl::Status RequireParty(const roster::Roster&, uint32_t) override { return absl::OkStatus(); }
  void ForgetParty() override {}
  void HangUp() override {}
  client::Traffic traffic() const override { return {}; }

 private:
  absl::StatusOr<wire::Frame> Call(const wire::Frame& request,
                                   std::chrono::milliseconds timeout) override {
    auto answer = network_->Call(self_, frontend_, request, timeout.count() * kMillisecond);
    if (!answer.ok()) return Unreached(answer.status());
    return std::move(answer->frame);
  }

  Network* const network_;
  const Address self_, frontend_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_CLIENT_TRANSPORT_H_
