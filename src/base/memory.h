// Memory that there is for this process, so that what does not fit is refused before it is promised.
#ifndef SHOAL_SRC_BASE_MEMORY_H_
#define SHOAL_SRC_BASE_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Bytes of memory that the machine has, used or not; limits of control groups do not count.
uint64_t MachineMemory();

// Bytes that this process may still take: of the machine, of its control group (version 2) and of all
// groups above that. Files' pages count as available, as the system takes those back first. What cannot
// be read is no limit. The two directories are where the system tells; tests have others.
uint64_t AvailableMemory(const std::string& proc = "/proc",
                         const std::string& groups = "/sys/fs/cgroup");

// What is smaller is never refused: looking would cost more than it saves, and what a single query needs
// must not depend on it.
inline constexpr uint64_t kUncheckedMemoryBytes = uint64_t{16} << 20;

// RESOURCE_EXHAUSTED if that much memory is not available now (the system would promise it, and
// kill the process when it is used); `what` names it.
absl::Status CheckMemory(uint64_t bytes, absl::string_view what);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_MEMORY_H_
