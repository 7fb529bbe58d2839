#include "src/client/deployment.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

constexpr char kNewEpochMark[] = "shoal/new-epoch";
// How often a fetch begins again because the next epoch went live meanwhile.
constexpr int kMaxFetches = 3;

// The party whose clients connect to this address: the frontend if the roster does not say.
uint32_t PartyAt(const std::string& address, const roster::Roster& roster) {
  for (const roster::Party& party : roster.parties()) {
    if (!address.empty() && party.client_address == address) return party.number;
  }
  return 1;
}

absl::StatusOr<Bytes> FetchPlacement(Transport& transport, const table::Manifest& manifest) {
  Bytes placement;
  const uint64_t total = manifest.placement_bytes();
  while (placement.size() < total) {
    wire::GetPlacementRequest request;
    request.set_manifest_digest(ToString(manifest.digest()));
    request.set_offset(placement.size());
    request.set_max_bytes(
        static_cast<uint32_t>(std::min<uint64_t>(kMaxBulkBytes, total - placement.size())));
    SHOAL_ASSIGN_OR_RETURN(const wire::GetPlacementResponse response,
                           transport.GetPlacement(request));
    if (response.total_bytes() != total || response.data().empty() ||
        response.data().size() > request.max_bytes()) {
      return absl::DataLossError(absl::StrCat("the frontend sent ", response.data().size(),
                                              " bytes of a placement of ", response.total_bytes(),
                                              ", the manifest has ", total));
    }
    Append(placement, AsBytes(response.data()));
  }
  return placement;
}

absl::StatusOr<table::RowMap> MakeMap(Transport& transport, const table::Manifest& manifest,
                                      const std::string& cache) {
  if (manifest.placement_bytes() == 0) return table::RowMap::Create(manifest, {});
  if (!cache.empty()) {
    // Ignores errors of the cache, as the frontend has the placement.
    if (auto cached = ReadFile(cache, manifest.placement_bytes()); cached.ok()) {
      if (auto map = table::RowMap::Create(manifest, ToBytes(AsBytes(*cached))); map.ok()) {
        return map;
      }
    }
  }
  SHOAL_ASSIGN_OR_RETURN(Bytes placement, FetchPlacement(transport, manifest));
  SHOAL_ASSIGN_OR_RETURN(table::RowMap map, table::RowMap::Create(manifest, std::move(placement)));
  if (!cache.empty()) {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(cache, map.placement(), FileMode::kPublic));
  }
  return map;
}

}  // namespace

absl::Status NewEpochError(uint64_t epoch) {
  absl::Status status =
      absl::FailedPreconditionError(absl::StrCat("epoch ", epoch, " of the table is served now"));
  status.SetPayload(kNewEpochMark, absl::Cord());
  return status;
}

bool IsNewEpoch(const absl::Status& status) { return status.GetPayload(kNewEpochMark).has_value(); }

absl::StatusOr<Deployment> Deployment::Fetch(Transport& transport,
                                             const roster::PinnedParties& pins, State& state,
                                             uint64_t now_s, const std::string& placement_cache,
                                             const std::string& address) {
  if (!state.deployment.empty() && state.deployment != pins.deployment()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state is of the deployment \"", state.deployment, "\", the pins are of \"",
        pins.deployment(), "\": one state file serves one deployment"));
  }
  for (int fetches = 1;; ++fetches) {
    auto deployment = FetchOnce(transport, pins, state, now_s, placement_cache, address);
    // The server's answer to a request for an earlier epoch's placement.
    if (fetches >= kMaxFetches || !absl::IsFailedPrecondition(deployment.status())) {
      return deployment;
    }
  }
}

absl::StatusOr<Deployment> Deployment::FetchOnce(Transport& transport,
                                                 const roster::PinnedParties& pins, State& state,
                                                 uint64_t now_s, const std::string& placement_cache,
                                                 const std::string& address) {
  SHOAL_ASSIGN_OR_RETURN(const wire::GetDeploymentResponse response,
                         transport.GetDeployment(wire::GetDeploymentRequest()));
  SHOAL_ASSIGN_OR_RETURN(roster::Roster roster,
                         roster::Roster::Verify(response.roster(), pins, now_s));
  const uint32_t party = PartyAt(address, roster);
  SHOAL_RETURN_IF_ERROR(transport.RequireParty(roster, party));
  SHOAL_ASSIGN_OR_RETURN(table::Manifest manifest,
                         table::Manifest::Verify(response.manifest(), roster, now_s));
  // Accepts both epochs or neither.
  std::optional<roster::SeenEpoch> seen_roster = state.roster;
  std::optional<roster::SeenEpoch> seen_table = state.table;
  SHOAL_RETURN_IF_ERROR(
      roster::AcceptEpoch("roster", roster.epoch(), roster.digest(), seen_roster));
  SHOAL_RETURN_IF_ERROR(
      roster::AcceptEpoch("table", manifest.epoch(), manifest.digest(), seen_table));
  SHOAL_ASSIGN_OR_RETURN(table::RowMap map, MakeMap(transport, manifest, placement_cache));
  state.deployment = pins.deployment();
  state.roster = seen_roster;
  state.table = seen_table;
  return Deployment(party, std::move(roster), std::move(manifest), std::move(map));
}

absl::StatusOr<Deployment> Deployment::Open(Transport& transport, const roster::PinnedParties& pins,
                                            StateStore& store, const Environment& environment,
                                            const std::string& placement_cache,
                                            const std::string& address) {
  const uint64_t now_s = environment.clock->NowSeconds();
  auto deployment = WithRetries(environment.sleep, [&] {
    return Fetch(transport, pins, store.state(), now_s, placement_cache, address);
  });
  if (!deployment.ok()) return deployment;
  const uint32_t tolerance_s = deployment->roster().clock_tolerance_s();
  store.state().DropExpired(now_s > tolerance_s ? now_s - tolerance_s : 0);
  SHOAL_RETURN_IF_ERROR(store.Save());
  return deployment;
}

}  // namespace shoal::client
