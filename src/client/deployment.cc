#include "src/client/deployment.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/retry_policy.h"
#include "src/round/query_bytes.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

constexpr char kNewEpochMark[] = "shoal/new-epoch";
constexpr char kNewRosterMark[] = "shoal/perhaps-new-roster";
// How often a fetch begins again because the next epoch went live meanwhile.
constexpr int kMaxFetches = 3;

// The party whose clients connect to this address: the frontend if the roster does not say.
uint32_t PartyAt(const std::string& address, const roster::Roster& roster) {
  for (const roster::Party& party : roster.parties()) {
    for (uint32_t machine = 0; machine < party.machines; ++machine) {
      if (!address.empty() && party.ClientAddress(machine) == address) return party.number;
    }
  }
  return 1;
}

// Fetches `total` bytes in pieces: calls `ask` for each with the offset and the most bytes.
template <typename Ask>
absl::StatusOr<Bytes> FetchPieces(absl::string_view what, uint64_t total, const Ask& ask) {
  Bytes whole;
  while (whole.size() < total) {
    const auto most =
        static_cast<uint32_t>(std::min<uint64_t>(kMaxBulkBytes, total - whole.size()));
    SHOAL_ASSIGN_OR_RETURN(const auto response, ask(whole.size(), most));
    if (response.total_bytes() != total || response.data().empty() ||
        response.data().size() > most) {
      return absl::DataLossError(absl::StrCat("the frontend sent ", response.data().size(),
                                              " bytes of ", what, " of ", response.total_bytes(),
                                              ", the manifest has ", total));
    }
    Append(whole, AsBytes(response.data()));
  }
  return whole;
}

// Whether the placement is the manifest's.
bool IsPlacement(const table::Manifest& manifest, BytesView placement) {
  return placement.size() == manifest.placement_bytes() &&
         AsText(table::PlacementDigest(placement)) ==
             manifest.content().hashed().placement_digest();
}

absl::StatusOr<Bytes> ObtainPlacement(Transport& transport, const table::Manifest& manifest,
                                      const std::string& cache) {
  if (manifest.placement_bytes() == 0) return Bytes();
  if (!cache.empty()) {
    // Ignores errors of the cache, as the frontend has the placement.
    const auto cached = ReadFile(cache, manifest.placement_bytes());
    if (cached.ok() && IsPlacement(manifest, AsBytes(*cached))) return ToBytes(AsBytes(*cached));
  }
  SHOAL_ASSIGN_OR_RETURN(
      Bytes placement,
      FetchPieces("a placement", manifest.placement_bytes(), [&](uint64_t offset, uint32_t most) {
        wire::GetPlacementRequest request;
        request.set_manifest_digest(ToString(manifest.digest()));
        request.set_offset(offset);
        request.set_max_bytes(most);
        return transport.GetPlacement(request);
      }));
  if (!cache.empty() && IsPlacement(manifest, placement)) {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(cache, placement, FileMode::kPublic));
  }
  return placement;
}

absl::StatusOr<Bytes> FetchVersions(Transport& transport, const table::Manifest& manifest,
                                    wire::RowVersionList list, uint64_t bytes) {
  return FetchPieces("a list of rows' epochs", bytes, [&](uint64_t offset, uint32_t most) {
    wire::GetRowVersionsRequest request;
    request.set_manifest_digest(ToString(manifest.digest()));
    request.set_list(list);
    request.set_offset(offset);
    request.set_max_bytes(most);
    return transport.GetRowVersions(request);
  });
}

// `previous` and `recent` are fetched whole, so that nobody sees which epoch this client saw last;
// `base` is fetched if the cache has neither it nor the one of the block before.
absl::StatusOr<table::RowVersions::Lists> ObtainVersions(Transport& transport,
                                                         const table::Manifest& manifest,
                                                         const std::string& cache) {
  const wire::RowVersionLists& signed_lists = manifest.content().row_versions();
  table::RowVersions::Lists lists;
  SHOAL_ASSIGN_OR_RETURN(lists.previous,
                         FetchVersions(transport, manifest, wire::ROW_VERSION_LIST_PREVIOUS,
                                       signed_lists.previous_bytes()));
  SHOAL_ASSIGN_OR_RETURN(lists.recent,
                         FetchVersions(transport, manifest, wire::ROW_VERSION_LIST_RECENT,
                                       signed_lists.recent_bytes()));
  const auto is_base = [&](BytesView list) {
    return AsText(table::VersionListDigest(list)) == signed_lists.base_digest();
  };
  if (!cache.empty()) {
    // Ignores errors of the cache, as the frontend has the list.
    const auto cached = ReadFile(cache, table::MaxVersionListBytes(16 * signed_lists.base_rows()));
    if (cached.ok() && is_base(AsBytes(*cached))) {
      lists.base = ToBytes(AsBytes(*cached));
      return lists;
    }
    if (cached.ok()) {
      auto derived = table::DeriveBase(AsBytes(*cached), manifest.content(), lists.previous);
      if (derived.ok() && is_base(*derived)) lists.base = *std::move(derived);
    }
  }
  if (lists.base.empty()) {
    SHOAL_ASSIGN_OR_RETURN(
        lists.base,
        FetchVersions(transport, manifest, wire::ROW_VERSION_LIST_BASE, signed_lists.base_bytes()));
  }
  if (!cache.empty() && is_base(lists.base)) {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(cache, lists.base, FileMode::kPublic));
  }
  return lists;
}

absl::StatusOr<table::RowMap> MakeMap(Transport& transport, const table::Manifest& manifest,
                                      const std::string& cache) {
  SHOAL_ASSIGN_OR_RETURN(Bytes placement, ObtainPlacement(transport, manifest, cache));
  SHOAL_ASSIGN_OR_RETURN(
      table::RowVersions::Lists lists,
      ObtainVersions(transport, manifest, cache.empty() ? "" : cache + ".versions"));
  return table::RowMap::Create(manifest, std::move(placement), std::move(lists));
}

}  // namespace

absl::Status NewEpochError(absl::string_view what, uint64_t epoch) {
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("epoch ", epoch, " of the ", what, " is served now"));
  status.SetPayload(kNewEpochMark, absl::Cord());
  return status;
}

bool IsNewEpoch(const absl::Status& status) { return status.GetPayload(kNewEpochMark).has_value(); }

absl::Status MarkAsPerhapsOfNewRoster(absl::Status status) {
  if (absl::IsUnauthenticated(status)) status.SetPayload(kNewRosterMark, absl::Cord());
  return status;
}

bool IsPerhapsOfNewRoster(const absl::Status& status) {
  return status.GetPayload(kNewRosterMark).has_value();
}

bool Deployment::IsFollowedBy(const wire::SignedRoster& roster, uint64_t now_s) const {
  return roster.roster().epoch() > roster_.epoch() &&
         roster::Roster::Verify(roster, trusted_, now_s).ok();
}

size_t Deployment::query_bytes() const {
  const std::optional<QueryBuckets> of = buckets();
  return of ? round::TwoTiersQueryBytes(of->selection_bytes()) : round::QueryBytes(roster_.size());
}

size_t Deployment::fetched_bytes() const {
  const uint32_t answer_bytes = manifest_.answer_bytes();
  return buckets() ? round::TwoTiersFetchedBytes(answer_bytes) : round::FetchedBytes(answer_bytes);
}

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
  // The party may show another certificate since the last time. The roster says which.
  transport.ForgetParty();
  SHOAL_ASSIGN_OR_RETURN(const wire::GetDeploymentResponse response,
                         transport.GetDeployment(wire::GetDeploymentRequest()));
  SHOAL_ASSIGN_OR_RETURN(
      roster::Roster roster,
      roster::Roster::Verify(response.roster(), pins.After(state.followed_keys), now_s));
  const uint32_t party = PartyAt(address, roster);
  SHOAL_RETURN_IF_ERROR(transport.RequireParty(roster, party));
  SHOAL_ASSIGN_OR_RETURN(table::Manifest manifest,
                         table::Manifest::Verify(response.manifest(), roster, now_s));
  SHOAL_RETURN_IF_ERROR(
      round::CheckTiers("the table", manifest.content().query_buckets(), manifest.rows(), roster));
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
  state.followed_keys = pins.Follow(roster, state.followed_keys);
  return Deployment(pins.After(state.followed_keys), party, std::move(roster), std::move(manifest),
                    std::move(map));
}

absl::StatusOr<Deployment> Deployment::Open(Transport& transport, const roster::PinnedParties& pins,
                                            StateStore& store, const Environment& environment,
                                            const std::string& placement_cache,
                                            const std::string& address, uint64_t wait_until_s) {
  RetryPolicy retry_policy(environment);
  retry_policy.Until(wait_until_s, "this client gives up");
  uint64_t now_s = 0;
  absl::StatusOr<Deployment> deployment = retry_policy.Try([&] {
    now_s = environment.clock->NowSeconds();
    return Fetch(transport, pins, store.state(), now_s, placement_cache, address);
  });
  if (!deployment.ok()) return deployment;
  const uint32_t tolerance_s = deployment->roster().clock_tolerance_s();
  store.state().DropExpired(now_s > tolerance_s ? now_s - tolerance_s : 0);
  SHOAL_RETURN_IF_ERROR(store.Save());
  return deployment;
}

}  // namespace shoal::client
