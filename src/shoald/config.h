// Reads a party's configuration file.
#ifndef SHOAL_SRC_SHOALD_CONFIG_H_
#define SHOAL_SRC_SHOALD_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/address_block.h"
#include "src/roster/roster.h"
#include "src/server/frontend.h"
#include "src/shoald/config.pb.h"

namespace shoal::shoald {

// Parses the file, makes its paths absolute and fills in the defaults. INVALID_ARGUMENT names the
// file, the line and the fault; NOT_FOUND without a file.
absl::StatusOr<ServerConfig> ReadServerConfig(const std::string& path);

// Fills in what is not given, as ReadServerConfig does. Where files of rounds lie is the state
// directory unless said.
void FillDefaults(ServerConfig& config);

// The plan in the configuration of party 1. Windows that are not given take 60 s, and 120 s for
// answers.
server::RoundPlan PlanFrom(const ServerConfig& config, const roster::Roster& roster);

// The groups of addresses, of a configuration that ReadServerConfig returned.
AddressRanges SharedAddresses(const ServerConfig& config);

// INVALID_ARGUMENT if clients of engines at this party would connect where the party before it
// does. A neighbour has a listener of its own, whose places no client can take.
absl::Status CheckListeners(const ServerConfig& config, const roster::Roster& roster);

// FAILED_PRECONDITION if this party has several machines: shoald is the program of a party of one.
absl::Status CheckOneMachine(const roster::Roster& roster, uint32_t party);

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_CONFIG_H_
