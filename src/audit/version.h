// Versions of packages, in the order of each ecosystem, and the names of packages.
#ifndef SHOAL_SRC_AUDIT_VERSION_H_
#define SHOAL_SRC_AUDIT_VERSION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal::audit {

enum class Order : uint8_t {
  kSemver,  // semver.org 2.0.0: npm, crates.io, Go
  kPep440,  // PyPI
  kDebian,  // deb-version(7)
};

// Longer texts are no versions.
inline constexpr size_t kMaxVersionBytes = 256;

// A version that can be compared with others of its order. Numbers may have any length.
class Version {
 public:
  // Nothing if the text is no version of this order. Taken beyond the rules: for kSemver a leading
  // "v", and a version of one or two numbers, whose others are then zero; for kPep440 what its
  // appendix B takes.
  static std::optional<Version> Parse(Order order, absl::string_view text);

  // Below, at or above zero, as a is before, equal to or after b. Build metadata (kSemver) is left
  // out of account, as the rules say. Both must have the same order.
  friend int Compare(const Version& a, const Version& b);
  friend bool operator<(const Version& a, const Version& b) { return Compare(a, b) < 0; }

 private:
  Version(Order order, std::string key) : order_(order), key_(std::move(key)) {}

  Order order_;
  // kDebian: the version. Otherwise bytes whose order is that of the versions.
  std::string key_;
};

int Compare(const Version& a, const Version& b);

// The order of an ecosystem that the readers of inventory.h know, by its name in OSV records:
// "PyPI", "npm", "crates.io", "Go", and "Debian:12", "Ubuntu:22.04:LTS" and so on. Nothing for any
// other.
std::optional<Order> OrderOf(absl::string_view ecosystem);

// The key of a package in a table of advisories: "PyPI/django". Names that an ecosystem takes for
// the same give the same key: PyPI's are normalised as PEP 503 says, and in those of crates.io case
// and the difference between hyphens and underscores are left out. So is case in those of Go, whose
// package URLs are written in lower case. INVALID_ARGUMENT for a name that is empty, longer than
// 512 bytes, or has a control character or a blank.
absl::StatusOr<std::string> PackageKey(absl::string_view ecosystem, absl::string_view name);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_VERSION_H_
