// Answers clients' requests about the table and the server, whatever engines the server runs.
#ifndef SHOAL_SRC_SHOALD_TABLE_SERVICE_H_
#define SHOAL_SRC_SHOALD_TABLE_SERVICE_H_

#include "absl/status/statusor.h"
#include "src/base/stopwatch.h"
#include "src/roster/roster.h"
#include "src/table/table.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"

namespace shoal::shoald {

// GET_DEPLOYMENT.
absl::StatusOr<wire::Frame> GetDeployment(const roster::Roster& roster, const table::Table& table,
                                          const wire::Frame& request);

// GET_PLACEMENT: a piece of the placement. FAILED_PRECONDITION if the request is for another epoch
// or another table, OUT_OF_RANGE beyond the end.
absl::StatusOr<wire::Frame> GetPlacement(const table::Table& table, const wire::Frame& request);

// GET_ROW_VERSIONS: a piece of one of the table's lists of rows' epochs. Errors as GetPlacement,
// and INVALID_ARGUMENT if there is no such list.
absl::StatusOr<wire::Frame> GetRowVersions(const table::Table& table, const wire::Frame& request);

// GET_STATUS, without rounds.
wire::GetStatusResponse StatusOf(const roster::Roster& roster, const Stopwatch& since_start);

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_TABLE_SERVICE_H_
