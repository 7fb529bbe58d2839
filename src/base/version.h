#ifndef SHOAL_SRC_BASE_VERSION_H_
#define SHOAL_SRC_BASE_VERSION_H_

namespace shoal::cli {

// The version of all programs. CHANGELOG.md says what it contains. With "-dev" it is what will be
// released under that number.
inline constexpr char kVersion[] = "0.3.0-dev";

}  // namespace shoal::cli

#endif  // SHOAL_SRC_BASE_VERSION_H_
