// TOML from outside. Used by the sources of this library alone.
#ifndef SHOAL_SRC_AUDIT_TOML_H_
#define SHOAL_SRC_AUDIT_TOML_H_

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "toml++/toml.h"

namespace shoal::audit {

// INVALID_ARGUMENT "FILE:LINE: .." for what is not TOML, or too large or too deep to be read here.
absl::StatusOr<toml::table> ParseToml(absl::string_view content, const std::string& file);

inline absl::string_view KeyOf(const toml::key& key) {
  return {key.str().data(), key.str().size()};
}

// Whether a need of Poetry's has one of these conditions; of several, each for a part of what
// Python and the system may be, whether each has one.
bool IsConditional(const toml::node& need, std::span<const absl::string_view> conditions);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_TOML_H_
