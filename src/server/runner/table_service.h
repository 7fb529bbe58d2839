// What every server on the clients' port answers about its table, whatever engines it runs.
#ifndef SHOAL_SRC_SERVER_RUNNER_TABLE_SERVICE_H_
#define SHOAL_SRC_SERVER_RUNNER_TABLE_SERVICE_H_

#include "absl/status/statusor.h"
#include "src/roster/roster.h"
#include "src/table/table.h"
#include "src/wire/frame.h"

namespace shoal::server {

// GET_DEPLOYMENT.
absl::StatusOr<wire::Frame> GetDeployment(const roster::Roster& roster, const table::Table& table,
                                          const wire::Frame& request);

// GET_PLACEMENT: a piece. NOT_FOUND for another table's, OUT_OF_RANGE.
absl::StatusOr<wire::Frame> GetPlacement(const table::Table& table, const wire::Frame& request);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_RUNNER_TABLE_SERVICE_H_
