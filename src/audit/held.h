// What files hold whose names say nothing. Used by the sources of this library alone.
#ifndef SHOAL_SRC_AUDIT_HELD_H_
#define SHOAL_SRC_AUDIT_HELD_H_

#include <filesystem>

#include "absl/strings/string_view.h"

namespace shoal::audit {

inline constexpr absl::string_view kNotRead = "is of a format that is not read here";

// What a file holds: one that is read, or why what it holds is not. Nothing for a file that names
// no packages, as far as is known here.
struct Held {
  bool is_read = false;
  absl::string_view unread = "";
};
Held HeldIn(const std::filesystem::path& path);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_HELD_H_
