#ifndef SHOAL_SRC_CLI_VERSION_H_
#define SHOAL_SRC_CLI_VERSION_H_

namespace shoal::cli {

// Of all programs; CHANGELOG.md tells what is in it.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_VERSION_H_
