#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal {
namespace {

// The type of the payload that marks a storage error. The payload holds the text for others;
// ToString, and so the log, shows it too.
constexpr char kTold[] = "told to others";

}  // namespace

std::string Hex(BytesView bytes) { return absl::BytesToHexString(AsText(bytes)); }

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  if (const auto told = status.GetPayload(kTold); told.has_value()) {
    annotated.SetPayload(kTold, absl::Cord(absl::StrCat(context, ": ", std::string(*told))));
  }
  return annotated;
}

absl::Status StorageError(absl::StatusCode code, absl::string_view message) {
  absl::Status error(code, message);
  error.SetPayload(kTold, absl::Cord("storage failed"));
  return error;
}

absl::Status ForOthers(const absl::Status& status) {
  const auto told = status.GetPayload(kTold);
  return told.has_value() ? absl::Status(status.code(), std::string(*told)) : status;
}

namespace internal {
void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}
}  // namespace internal

}  // namespace shoal
