#include "src/client/round_links.h"

#include <algorithm>
#include <utility>

#include "src/base/status_macros.h"

namespace shoal::client {

// Without retry_policy: other machines may answer.
struct RoundLinks::Link {
  Link(std::unique_ptr<Transport> to, const std::string& address, const Environment& environment,
       const roster::Roster& roster)
      : transport(std::move(to)),
        exchange(transport.get(), environment.sleep, environment.clock),
        connections([connect = environment.connect_to, address] { return connect(address); },
                    &roster, environment.sleep, /*keep=*/true) {}

  Traffic traffic() const { return transport->traffic() + connections.traffic(); }

  const std::unique_ptr<Transport> transport;
  Exchange exchange;
  Connections connections;
};

RoundLinks::RoundLinks(const Deployment* deployment, uint32_t connections, Transport* transport,
                       const Environment& environment)
    : deployment_(deployment),
      most_connections_(connections),
      environment_(environment),
      transport_(transport),
      retry_policy_(environment_),
      exchange_(transport, environment_.sleep, environment_.clock, &retry_policy_),
      connections_(environment_.connect, &deployment->roster(), environment_.sleep,
                   /*keep=*/true) {}

RoundLinks::~RoundLinks() = default;

void RoundLinks::Follow(const Deployment* deployment) {
  deployment_ = deployment;
  connections_.Follow(&deployment->roster());
  for (const auto& [machine, link] : links_) past_ = past_ + link->traffic();
  links_.clear();
}

absl::StatusOr<RoundLinks::Link*> RoundLinks::LinkTo(const HeldRound& held, uint32_t other) {
  if (!held.machine) return nullptr;
  const uint32_t machine = (*held.machine + other) % machines();
  const auto made = links_.find(machine);
  if (made != links_.end()) return made->second.get();
  const std::string& address = deployment_->roster().party(1).ClientAddress(machine);
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, environment_.connect_to(address));
  SHOAL_RETURN_IF_ERROR(transport->RequireParty(deployment_->roster(), 1));
  auto link =
      std::make_unique<Link>(std::move(transport), address, environment_, deployment_->roster());
  return (links_[machine] = std::move(link)).get();
}

absl::StatusOr<Exchange*> RoundLinks::ExchangeOf(const HeldRound& held, uint32_t other) {
  SHOAL_ASSIGN_OR_RETURN(Link* const link, LinkTo(held, other));
  return link == nullptr ? &exchange_ : &link->exchange;
}

absl::Status RoundLinks::ForPieces(
    const HeldRound& held, size_t total, size_t piece,
    const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work) {
  SHOAL_ASSIGN_OR_RETURN(Link* const link, LinkTo(held));
  if (total <= piece || most_connections_ == 1 || (link == nullptr && !environment_.connect)) {
    Exchange& exchange = link == nullptr ? exchange_ : link->exchange;
    for (size_t first = 0; first < total; first += piece) {
      SHOAL_RETURN_IF_ERROR(work(exchange, first, std::min(piece, total - first)));
    }
    return absl::OkStatus();
  }
  Connections& connections = link == nullptr ? connections_ : link->connections;
  RetryPolicy* const retry_policy = link == nullptr ? &retry_policy_ : nullptr;
  if (lanes_ == nullptr) lanes_ = std::make_unique<ThreadPool>(most_connections_ - 1);
  const absl::Status status = client::ForPieces(
      total, piece, lanes_.get(), [&](size_t first, size_t count) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, connections.Take());
        Exchange exchange(transport.get(), environment_.sleep, environment_.clock, retry_policy);
        const absl::Status done = work(exchange, first, count);
        connections.Give(std::move(transport));
        return done;
      });
  // Closes the connections rather than leave them idle until the round's next state.
  connections.HangUp();
  return status;
}

void RoundLinks::HangUp() {
  exchange_.HangUp();
  connections_.HangUp();
  for (const auto& [machine, link] : links_) {
    link->exchange.HangUp();
    link->connections.HangUp();
  }
}

Traffic RoundLinks::traffic() const {
  Traffic sum = past_ + transport_->traffic() + connections_.traffic();
  for (const auto& [machine, link] : links_) sum = sum + link->traffic();
  return sum;
}

}  // namespace shoal::client
