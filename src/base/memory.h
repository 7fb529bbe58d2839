// Memory that there is for this process, so that what does not fit is refused before it is promised.
#ifndef SHOAL_SRC_BASE_MEMORY_H_
#define SHOAL_SRC_BASE_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

// RESOURCE_EXHAUSTED if that much memory is not available now (the system would promise it, and
// kill the process when it is used); `what` names it.
absl::Status CheckMemory(uint64_t bytes, absl::string_view what);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_MEMORY_H_
