#include "src/client/live_deployment.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"

namespace shoal::client {
namespace {

// A frontend may be away for as long, and whoever comes meanwhile waits.
constexpr uint64_t kOutageS = 60;

}  // namespace

absl::StatusOr<std::unique_ptr<LiveDeployment>> LiveDeployment::Open(
    Transport* transport, const roster::PinnedParties* pins, StateStore* store,
    Environment environment, std::string placement_cache, std::string address) {
  std::unique_ptr<LiveDeployment> live(
      new LiveDeployment(transport, pins, store, std::move(environment), std::move(placement_cache),
                         std::move(address)));
  uint64_t wait_until_s = live->environment_.clock->NowSeconds() + kOutageS;
  for (const HeldRound& held : store->state().rounds) {
    if (!held.over) wait_until_s = std::max(wait_until_s, held.header.header().expires_s());
  }
  SHOAL_ASSIGN_OR_RETURN(live->current_, live->Fetch(wait_until_s));
  return live;
}

absl::StatusOr<std::unique_ptr<const Deployment>> LiveDeployment::Fetch(uint64_t wait_until_s) {
  SHOAL_ASSIGN_OR_RETURN(Deployment deployment,
                         Deployment::Open(*transport_, *pins_, *store_, environment_,
                                          placement_cache_, address_, wait_until_s));
  return std::make_unique<const Deployment>(std::move(deployment));
}

absl::Status LiveDeployment::Follow(ChainClient& chain, const std::function<absl::Status()>& call) {
  for (;;) {
    const absl::Status status = call();
    if (!IsNewEpoch(status)) return status;
    environment_.Tell(absl::StrCat(status.message(), ": fetching it"));
    const uint64_t before = current_->manifest().epoch();
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<const Deployment> next,
                           Fetch(environment_.clock->NowSeconds() + chain.options().timeout_s));
    if (next->manifest().epoch() <= before) {
      return absl::FailedPreconditionError(
          absl::StrCat("the frontend showed a newer epoch of the table than epoch ", before,
                       ", and then did not serve it"));
    }
    chain.Follow(next.get());
    current_ = std::move(next);
  }
}

}  // namespace shoal::client
