// Measures the memory that this process can get, so that data that does not fit is refused before
// it is allocated.
#ifndef SHOAL_SRC_STORAGE_MEMORY_H_
#define SHOAL_SRC_STORAGE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Bytes of memory that the machine has, used or not, without limits of control groups.
uint64_t MachineMemory();

// Bytes of memory that this process has now; 0 where the system does not tell.
uint64_t ResidentMemory();

// Bytes that this process may still take: the least that is left to the machine, the process's
// control group (version 2) and all groups above it. Pages of files count as available, since the
// system reclaims them first. Numbers that cannot be read set no limit. The two directories hold
// the system's numbers; tests pass others.
uint64_t AvailableMemory(const std::string& proc = "/proc",
                         const std::string& groups = "/sys/fs/cgroup");

// Amounts up to this are never refused: checking would cost more than it saves, and a single query
// must not depend on it.
inline constexpr uint64_t kUncheckedMemoryBytes = uint64_t{16} << 20;

// RESOURCE_EXHAUSTED if that much memory is not available now. The system would still grant it, and
// kill the process when it is used. `what` names the data in the message.
absl::Status CheckMemory(uint64_t bytes, absl::string_view what);

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_MEMORY_H_
