// Where paths lie.
#ifndef SHOAL_SRC_STORAGE_PATHS_H_
#define SHOAL_SRC_STORAGE_PATHS_H_

#include <algorithm>
#include <filesystem>

namespace shoal {

// Whether a path is `root` or lies below it, by their parts. Both are as they are after all links.
inline bool IsWithin(const std::filesystem::path& path, const std::filesystem::path& root) {
  return std::ranges::mismatch(root, path).in1 == root.end();
}

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_PATHS_H_
