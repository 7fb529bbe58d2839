#include "src/shoald/table_service.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/version.h"

namespace shoal::shoald {
namespace {

constexpr uint32_t kMaxPiece = 1 << 20;

// FAILED_PRECONDITION unless the request is for this table.
absl::Status CheckDigest(const table::Table& table, const std::string& manifest_digest) {
  if (AsText(table.manifest().digest()) == manifest_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("another epoch of the table is served, epoch ",
                                                    table.manifest().epoch(),
                                                    ": ask for the deployment again"));
}

// The piece that the request is for. OUT_OF_RANGE beyond the end.
template <typename Response, typename Request>
absl::StatusOr<Response> PieceOf(BytesView whole, const Request& request) {
  if (request.offset() > whole.size()) {
    return absl::OutOfRangeError(absl::StrCat("there are ", whole.size(), " bytes"));
  }
  const BytesView rest = whole.subspan(request.offset());
  Response response;
  response.set_data(
      ToString(rest.first(std::min<size_t>({rest.size(), request.max_bytes(), kMaxPiece}))));
  response.set_total_bytes(whole.size());
  return response;
}

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
  SHOAL_RETURN_IF_ERROR(CheckDigest(table, message.manifest_digest()));
  SHOAL_ASSIGN_OR_RETURN(const auto response,
                         PieceOf<wire::GetPlacementResponse>(table.map().placement(), message));
  return wire::MakeFrame(request.type, response);
}

absl::StatusOr<wire::Frame> GetRowVersions(const table::Table& table, const wire::Frame& request) {
  wire::GetRowVersionsRequest message;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(request, request.type, message));
  SHOAL_RETURN_IF_ERROR(CheckDigest(table, message.manifest_digest()));
  using Part = table::RowVersions::Part;
  Part part;
  switch (message.list()) {
    case wire::ROW_VERSION_LIST_BASE:
      part = Part::kBase;
      break;
    case wire::ROW_VERSION_LIST_PREVIOUS:
      part = Part::kPrevious;
      break;
    case wire::ROW_VERSION_LIST_RECENT:
      part = Part::kRecent;
      break;
    default:
      return absl::InvalidArgumentError("no such list of rows' epochs");
  }
  SHOAL_ASSIGN_OR_RETURN(const auto response, PieceOf<wire::GetRowVersionsResponse>(
                                                  table.content().versions().list(part), message));
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
