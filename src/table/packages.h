// Debian packages: those that apt knows, as records; those that dpkg has installed; and the order
// of versions.
//
// The key of a package is its plain name if its architecture is the table's native one or `all`
// ("bash", "adduser"), else name:architecture ("libc6:i386"). That is apt's own rule, by which a
// package that turns from `all` to the native architecture stays the same package. The value is the
// newest version of the indexes with the highest priority, and after it, with a blank before each,
// the newest of those with lower ones, as far as they are newer ("1.0-1 2.1-1~bpo12+1"): what is
// installed from backports is updated from there. A table is made for one native architecture; its
// name says which.
#ifndef SHOAL_SRC_TABLE_PACKAGES_H_
#define SHOAL_SRC_TABLE_PACKAGES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/table/records.h"

namespace shoal::table {

// Order of Debian versions, deb-version(7): negative, 0 or positive as `a` is older than, the same
// as or newer than `b`. Defined for all strings, as dpkg does; an epoch that is no number is 0.
int CompareVersions(absl::string_view a, absl::string_view b);

std::string PackageKey(absl::string_view name, absl::string_view architecture,
                       absl::string_view native_architecture);

struct Package {
  std::string name;
  std::string version;
  std::string architecture;
  // The source package and its version, "glibc (2.36-9)", as the field Source has them. What it
  // lacks is the same as the package's own.
  std::string source = {};
  bool operator==(const Package&) const = default;
};

// The stanzas of a Packages file (deb822). INVALID_ARGUMENT "SOURCE:LINE: .." for a line that is
// no field, or a stanza without Package, Version or Architecture.
absl::StatusOr<std::vector<Package>> ParsePackages(absl::string_view text,
                                                   const std::string& source);

// As ParsePackages for /var/lib/dpkg/status: the packages that apt may upgrade. Those are all but
// the ones of which nothing, or nothing but configuration, is left: also what is held, waits for
// its configuration or for triggers, or is half-installed over a version that is known.
absl::StatusOr<std::vector<Package>> ParseInstalled(absl::string_view text,
                                                    const std::string& source);
// Of them, those whose files are all there: not what is half-installed.
absl::StatusOr<std::vector<Package>> ParseUnpacked(absl::string_view text,
                                                   const std::string& source);
absl::StatusOr<std::vector<Package>> ReadInstalled(
    const std::string& path = "/var/lib/dpkg/status");

// A package of an index, with the priority that apt gives the index (apt_preferences(5)).
struct IndexedPackage {
  Package package;
  int priority;
};

// The versions that every package may be updated to, as records sorted by key.
absl::StatusOr<RecordSet> CandidateVersions(const std::vector<IndexedPackage>& packages,
                                            absl::string_view native_architecture,
                                            std::string source);

// What a package of the version `installed` is updated to, by the value of its record; empty if it
// is up to date. It is apt's candidate (apt_preferences(5)): no version older than the installed
// one counts, and of the others the first of the highest priority. A version that is in no index
// any more counts as one of the lowest priority, as apt has it.
std::string NewerCandidate(absl::string_view installed, absl::string_view value);

// "debian-packages-amd64": the name of a table of packages, or the beginning of it up to a hyphen.
std::string PackagesTableName(absl::string_view native_architecture);
// Whether `name` is such a name.
bool IsPackagesTableName(absl::string_view name, absl::string_view native_architecture);

// `dpkg --print-architecture`.
absl::StatusOr<std::string> NativeArchitecture();

// The packages that apt knows on this machine: every Packages index of its sources (apt-get
// indextargets, apt-helper cat-file), of all architectures, with the priority of the index
// (apt-cache policy). Indexes with a priority below 100, such as experimental, are left out, as apt
// never upgrades to them. Installed packages play no part, nor do pins of single packages.
// UNAVAILABLE if a tool fails, FAILED_PRECONDITION if there is no index (run: apt-get update).
absl::StatusOr<RecordSet> ReadPackageIndex();

// The output of `apt list --upgradable`: key -> newest version, for installed packages that have a
// newer one. A private update check is compared with it.
absl::StatusOr<std::map<std::string, std::string>> AptUpgradable(
    absl::string_view native_architecture);

// Names that the administrator has pinned in /etc/apt/preferences(.d), with "*" for a pin of a
// pattern. A table does not follow pins.
std::set<std::string> PinnedNames();

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_PACKAGES_H_
