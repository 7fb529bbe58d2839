// Reads a party's configuration file.
#ifndef SHOAL_SRC_SERVER_RUNNER_CONFIG_H_
#define SHOAL_SRC_SERVER_RUNNER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "src/server/frontend.h"
#include "src/server/runner/config.pb.h"

namespace shoal::server {

// Parses the file, makes its paths absolute and fills in the defaults. INVALID_ARGUMENT names
// file, line and what is wrong; NOT_FOUND.
absl::StatusOr<ServerConfig> ReadServerConfig(const std::string& path);

// The plan in the configuration of party 1. Windows that are not given: 60 s, answers 120 s.
RoundPlan PlanFrom(const ServerConfig& config, const roster::Roster& roster);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_RUNNER_CONFIG_H_
