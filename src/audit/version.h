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
  // "v"; for kPep440 what its appendix B takes.
  static std::optional<Version> Parse(Order order, absl::string_view text);
  // The same for what an advisory names, which for kSemver may have one or two numbers: the others
  // are then zero. Of an item these say a whole range, and not which version of it.
  static std::optional<Version> ParseBound(Order order, absl::string_view text);

  // Below, at or above zero, as a is before, equal to or after b. Build metadata (kSemver) is left
  // out of account, as the rules say. Both must have the same order.
  friend int Compare(const Version& a, const Version& b);
  friend bool operator<(const Version& a, const Version& b) { return Compare(a, b) < 0; }
  // The same for the end of a range: one without a local label ("1.13.0") leaves that of the
  // version
  // ("1.13.0+cu117") out of account, as PEP 440 has it ("Version specifiers").
  friend int CompareWithBound(const Version& version, const Version& bound);
  // Whether it has a local label, which kPep440 alone knows.
  bool is_local() const { return public_bytes_ + 1 < key_.size(); }

 private:
  static std::optional<Version> Read(Order order, absl::string_view text, bool is_bound);

  Version(Order order, std::string key, size_t public_bytes)
      : order_(order), key_(std::move(key)), public_bytes_(public_bytes) {}

  Order order_;
  // kDebian: the version. Otherwise bytes whose order is that of the versions.
  std::string key_;
  // As many bytes of key_ stand before a local label, and before the mark that ends the key.
  size_t public_bytes_;
};

int Compare(const Version& a, const Version& b);
int CompareWithBound(const Version& version, const Version& bound);
// The same of two texts. Nothing if one of them is no version.
std::optional<int> CompareTexts(Order order, absl::string_view a, absl::string_view b);

inline constexpr char kGitHubActions[] = "GitHub Actions";

// The order of an ecosystem that the readers of inventory.h know, by its name in OSV records:
// "PyPI", "npm", "crates.io", "Go", "GitHub Actions", and "Debian:12", "Ubuntu:22.04:LTS" and so
// on. Nothing for any other.
std::optional<Order> OrderOf(absl::string_view ecosystem);

// The one name of an ecosystem under which a table has its packages, for any that a record or a
// person may give it. Case is that of the schema ("pypi"), and a suffix of a language's ecosystem,
// which names a registry, is left out ("npm:https://.."). Ubuntu's packages under Pro are those of
// the release, whose fixes are newer ("Ubuntu:Pro:16.04:LTS" is "Ubuntu:16.04:LTS"), but for FIPS:
// these have versions of their own.
std::string CanonicalEcosystem(absl::string_view ecosystem);
// "Ubuntu:22.04:LTS" for 22.04, "Ubuntu:22.10" for 22.10: as OSV names it.
std::string UbuntuEcosystem(absl::string_view release);

// Whether a name of Go is that of a part of its own, and no module's: "stdlib".
bool IsOfGoItself(absl::string_view name);

// The key of a package in a table of advisories: "PyPI/django". Names that an ecosystem takes for
// the same give the same key: PyPI's are normalised as PEP 503 says, and in those of crates.io case
// and the difference between hyphens and underscores are left out. So is case in those of Go and
// npm, whose package URLs are written in lower case; Go's may also be escaped as in its module
// cache ("!masterminds"). INVALID_ARGUMENT for a name that is longer than 512 bytes, or that the
// ecosystem's registry cannot have ("django[bcrypt]", "lodash@4.17.20", "openssl:amd64",
// "text" of Go, whose modules begin with a host).
absl::StatusOr<std::string> PackageKey(absl::string_view ecosystem, absl::string_view name);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_VERSION_H_
