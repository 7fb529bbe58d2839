// Macros that return early on an error Status, and functions that decide how much of an error
// others may read.
#ifndef SHOAL_SRC_BASE_STATUS_MACROS_H_
#define SHOAL_SRC_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Puts "context: " before the message and keeps the code.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// An error of this machine's disk. The message names files: it is for this process's own log.
absl::Status StorageError(absl::StatusCode code, absl::string_view message);

// The error as others may see it. A StorageError loses its message but for "storage failed" and the
// contexts that Annotate put before it; any other error stays as it is.
absl::Status ForOthers(const absl::Status& status);

}  // namespace shoal

#define SHOAL_RETURN_IF_ERROR(expression)                                                  \
  do {                                                                                     \
    if (absl::Status shoal_status = (expression); !shoal_status.ok()) return shoal_status; \
  } while (false)

#define SHOAL_CONCAT_INNER(a, b) a##b
#define SHOAL_CONCAT(a, b) SHOAL_CONCAT_INNER(a, b)
#define SHOAL_ASSIGN_OR_RETURN(target, expression) \
  SHOAL_ASSIGN_OR_RETURN_IMPL(SHOAL_CONCAT(shoal_status_or_, __LINE__), target, expression)
#define SHOAL_ASSIGN_OR_RETURN_IMPL(temporary, target, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return std::move(temporary).status();       \
  target = *std::move(temporary)

#endif  // SHOAL_SRC_BASE_STATUS_MACROS_H_
