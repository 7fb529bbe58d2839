// Large zeroed memory, refused before it is promised.
#ifndef SHOAL_SRC_PIR_PAGES_H_
#define SHOAL_SRC_PIR_PAGES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir {

// In huge pages where the system has them. RESOURCE_EXHAUSTED as CheckMemory
// (src/storage/memory.h).
absl::StatusOr<PageBuffer> AllocatePages(uint64_t bytes, absl::string_view what);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_PAGES_H_
