#include "src/shoald/table_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/version.h"

namespace shoal::shoald {
namespace {

constexpr uint32_t kMaxPlacementPiece = 1 << 20;

}  // namespace

absl::StatusOr<wire::Frame> GetDeployment(const roster::Roster& roster, const table::Table& table,
                                          const wire::Frame& request) {
  wire::GetDeploymentResponse response;
  *response.mutable_roster() = roster.wire();
  *response.mutable_manifest() = table.manifest().wire();
  return wire::MakeFrame(request.type, response);
}

absl::StatusOr<wire::Frame> GetPlacement(const table::Table& table, const wire::Frame& request) {
  wire::GetPlacementRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  if (AsText(table.manifest().digest()) != message.manifest_digest()) {
    return absl::FailedPreconditionError(
        absl::StrCat("another epoch of the table is served, epoch ", table.manifest().epoch(),
                     ": ask for the deployment again"));
  }
  const BytesView placement = table.map().placement();
  if (message.offset() > placement.size()) {
    return absl::OutOfRangeError(absl::StrCat("the placement has ", placement.size(), " bytes"));
  }
  const BytesView rest = placement.subspan(message.offset());
  const size_t bytes = std::min<size_t>({rest.size(), message.max_bytes(), kMaxPlacementPiece});
  wire::GetPlacementResponse response;
  response.set_data(ToString(rest.first(bytes)));
  response.set_total_bytes(placement.size());
  return wire::MakeFrame(request.type, response);
}

wire::GetStatusResponse StatusOf(const roster::Roster& roster, const Stopwatch& since_start) {
  wire::GetStatusResponse response;
  response.set_deployment(roster.deployment());
  response.set_version(cli::kVersion);
  response.set_uptime_seconds(since_start.Seconds());
  return response;
}

}  // namespace shoal::shoald
