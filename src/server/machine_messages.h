// Messages between the machines of a party that lie in memory, for its stages.
#ifndef SHOAL_SRC_SERVER_MACHINE_MESSAGES_H_
#define SHOAL_SRC_SERVER_MACHINE_MESSAGES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/secret.h"
#include "src/machines/machines.h"

namespace shoal::server {

// DATA_LOSS: a machine does not keep to what it has told the others.
absl::Status Unannounced(uint32_t from);

// Tells all machines some numbers, as many at each; returns those of all, by rank. Errors of
// Machines. The numbers of other machines are anything at all: the caller checks them.
absl::StatusOr<std::vector<SecretVector<uint64_t>>> GatherNumbers(machines::Machines& machines,
                                                                  absl::string_view stage,
                                                                  std::span<const uint64_t> mine);

// Sends to[j] to machine j, padded to most_to[j] bytes, and returns what came, by rank: at most
// most_from[i] bytes of machine i, and to[rank] itself. Errors of Machines.
absl::StatusOr<std::vector<SecretVector<uint8_t>>> ExchangeBytes(
    machines::Machines& machines, absl::string_view stage, std::vector<SecretVector<uint8_t>> to,
    std::span<const uint64_t> most_to, std::span<const uint64_t> most_from);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_MACHINE_MESSAGES_H_
