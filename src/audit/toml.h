// TOML from outside. Used by the sources of this library alone.
#ifndef SHOAL_SRC_AUDIT_TOML_H_
#define SHOAL_SRC_AUDIT_TOML_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/collector.h"
#include "toml++/toml.h"

namespace shoal::audit {

// INVALID_ARGUMENT "FILE:LINE: .." for what is not TOML, or too large or too deep to be read here.
absl::StatusOr<toml::table> ParseToml(absl::string_view content, const Collector& collector);

inline absl::string_view KeyOf(const toml::key& key) {
  return {key.str().data(), key.str().size()};
}

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_TOML_H_
