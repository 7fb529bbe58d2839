#ifndef SHOAL_SRC_BASE_VERSION_H_
#define SHOAL_SRC_BASE_VERSION_H_

namespace shoal::cli {

// The version of all programs. CHANGELOG.md says what it contains.
inline constexpr char kVersion[] = "0.2.0";

}  // namespace shoal::cli

#endif  // SHOAL_SRC_BASE_VERSION_H_
