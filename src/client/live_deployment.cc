#include "src/client/live_deployment.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/noise/noise.h"
#include "src/wire/canonical.h"

namespace shoal::client {
namespace {

// A frontend may be away for as long, and whoever comes meanwhile waits.
constexpr uint64_t kOutageS = 60;

std::string NoiseText(const noise::Parameters& noise) {
  return absl::StrCat(noise::MechanismName(noise.mechanism), ", epsilon ", noise.epsilon,
                      ", delta ", noise.delta, ", phi ", noise.phi, ", mode ", noise.mode,
                      ", scales ", noise.left_scale, " and ", noise.right_scale);
}

// Nobody who waits has agreed to less protection, or to another party. Whether other noise protects
// less depends on what else the client asks, so that any other noise ends the call.
absl::Status CheckSameTerms(const Deployment& now, const Deployment& next) {
  const roster::Roster &roster = now.roster(), &next_roster = next.roster();
  if (!wire::SameNoise(roster.wire().roster().noise(), next_roster.wire().roster().noise())) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ", next_roster.epoch(), " of the roster is served now, with other noise (",
        NoiseText(next_roster.noise()), ") than epoch ", roster.epoch(), " (",
        NoiseText(roster.noise()), "), under which this began: run it again to ask under that"));
  }
  if (roster.most_in_bucket() != next_roster.most_in_bucket()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ", next_roster.epoch(), " of the roster is served now, with most_in_bucket ",
        next_roster.most_in_bucket(), " where epoch ", roster.epoch(),
        ", under which this began, has ", roster.most_in_bucket(),
        ": the same noise protects another list then; run it again to ask under that"));
  }
  if (now.party() != next.party()) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", next_roster.epoch(), " of the roster is served now, where party ",
                     next.party(), " has the address that party ", now.party(),
                     " had when this began: run it again to ask there"));
  }
  return absl::OkStatus();
}

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
    if (!IsNewEpoch(status) && !IsPerhapsOfNewRoster(status)) return status;
    environment_.Tell(IsNewEpoch(status)
                          ? absl::StrCat(status.message(), ": fetching it")
                          : absl::StrCat(status.message(), ": looking for a newer roster"));
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<const Deployment> next,
                           Fetch(environment_.clock->NowSeconds() + chain.options().timeout_s));
    if (next->roster().epoch() <= current_->roster().epoch() &&
        next->manifest().epoch() <= current_->manifest().epoch()) {
      if (IsPerhapsOfNewRoster(status)) return status;
      return absl::FailedPreconditionError(
          absl::StrCat("the frontend showed a newer epoch than epoch ",
                       current_->manifest().epoch(), " of the table and epoch ",
                       current_->roster().epoch(), " of the roster, and then did not serve it"));
    }
    SHOAL_RETURN_IF_ERROR(CheckSameTerms(*current_, *next));
    chain.Follow(next.get());
    current_ = std::move(next);
  }
}

}  // namespace shoal::client
