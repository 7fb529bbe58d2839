// Calls to the next party over the simulated network: what differs from src/shoald/tls_calls.h.
#ifndef SHOAL_SRC_SIM_SIM_CALLS_H_
#define SHOAL_SRC_SIM_SIM_CALLS_H_

#include <functional>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/shoald/peer_calls.h"
#include "src/sim/network.h"

namespace shoal::sim {

class SimCalls final : public shoald::PeerCalls {
 public:
  // `from` is a machine.
  SimCalls(Network* network, Address from) : network_(network), from_(from) {}

  absl::StatusOr<shoald::PeerAnswer> Call(shoald::PeerCall call) override;
  // Every call has a connection of its own.
  void CloseEnded(const std::function<bool(const Digest& round_id)>&) override {}

 private:
  Network* const network_;
  const Address from_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_SIM_CALLS_H_
