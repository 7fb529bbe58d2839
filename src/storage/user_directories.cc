#include "src/storage/user_directories.h"

#include <cstdlib>

namespace shoal {
namespace {

// Empty unless it is an absolute path.
std::string PathIn(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value == '/' ? value : "";
}

std::string Directory(const char* variable, const char* below_home) {
  std::string base = PathIn(variable);
  if (base.empty()) {
    base = PathIn("HOME");
    if (base.empty()) return "";
    base += below_home;
  }
  return base + "/shoal";
}

}  // namespace

std::string UserConfigDirectory() { return Directory("XDG_CONFIG_HOME", "/.config"); }
std::string UserStateDirectory() { return Directory("XDG_STATE_HOME", "/.local/state"); }

}  // namespace shoal
