// What is installed or locked: packages with their versions, from the files in which package
// managers keep them.
#ifndef SHOAL_SRC_AUDIT_INVENTORY_H_
#define SHOAL_SRC_AUDIT_INVENTORY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal::audit {

// How well a file says which package an item is. Nothing but what is certain may read as clean.
enum class Certainty {
  kCertain,
  // The file leaves open whether the package has this name or this version: it is unclear where it
  // is not vulnerable.
  kDoubtful,
  // The package may be this one rather than the one that the file names: it is unclear where it
  // would be vulnerable, and says nothing where it would not.
  kPossible,
};

struct Item {
  std::string ecosystem;  // as CanonicalEcosystem has it; one that OrderOf knows
  std::string name;       // as the file has it
  std::string version;
  std::string file;
  Certainty certainty = Certainty::kCertain;
  std::string doubt = {};  // what is not certain, for people
  bool operator==(const Item&) const = default;
};

// Something that a file names and that cannot be looked up, and why: it must not read as clean.
struct Unchecked {
  std::string what;
  std::string why;
  std::string file;
  bool operator==(const Unchecked&) const = default;
};

struct Inventory {
  std::vector<Item> items;
  std::vector<Unchecked> unchecked;
  // What the files name of their own project: it has no advisories of others.
  uint64_t own = 0;
  // Of these the ones with a manifest of their own, whose packages are in the same file: the
  // directory of a workspace of npm, the name of a package of Cargo's workspace.
  std::vector<std::string> parts = {};
};

enum class Format {
  kDpkgStatus,      // /var/lib/dpkg/status
  kRequirements,    // requirements.txt, pip's
  kPythonMetadata,  // METADATA of a .dist-info, PKG-INFO of an .egg-info
  kPoetryLock,
  kPackageLock,  // npm's package-lock.json and npm-shrinkwrap.json, versions 1 to 3
  kCargoLock,
  kGoSum,
  kCycloneDx,  // JSON
  kSpdxJson,
  kSpdxTagValue,
};

// "poetry.lock", for people.
absl::string_view FormatName(Format format);

// The format of a file, by its name, and for a name that says nothing by its content.
// INVALID_ARGUMENT names those that are known.
absl::StatusOr<Format> DetectFormat(absl::string_view name, absl::string_view content);

// The ecosystem of Debian packages ("Debian:12"). What is not known is empty.
struct Distribution {
  std::string here = {};    // this machine's: that of a dpkg status file, unless
  std::string stated = {};  // who asks says another. Only this counts for packages of an SBOM.
};

// Adds what a file names. Without a distribution the packages of a dpkg status file are an error,
// and those of an SBOM that do not name theirs are unchecked. So is a file that names nothing at
// all (kNamesNoPackages). INVALID_ARGUMENT "FILE:LINE: .." for what is not of the format;
// RESOURCE_EXHAUSTED beyond kMaxItems.
inline constexpr size_t kMaxItems = size_t{1} << 20;
inline constexpr absl::string_view kNamesNoPackages = "names no packages";
absl::Status ParseInventory(Format format, absl::string_view content, const std::string& file,
                            const Distribution& distribution, Inventory& inventory);

// Adds what a path names: a regular file, or a directory with files of known names, with
// *.dist-info, *.egg-info and *.egg, or with lib/python*/site-packages that has these (a virtual
// environment). What a directory has and could not be read is unchecked: a file with something
// wrong in it, a lock file that no reader knows, a manifest without a lock file. So is every
// directory below it with something of that, unless these are to be read, too. NOT_FOUND for a
// directory with nothing at all; RESOURCE_EXHAUSTED for a file of more than kMaxFileBytes that is
// `path`, or for more than kMaxEntries in directories.
inline constexpr size_t kMaxFileBytes = size_t{1} << 26;
inline constexpr size_t kMaxEntries = size_t{1} << 24;
enum class Depth { kOne, kAll };
absl::Status ReadInventory(const std::string& path, const Distribution& distribution,
                           Inventory& inventory, Depth depth = Depth::kOne);

// The ecosystem of this machine's Debian packages by the content of /etc/os-release: "Debian:12",
// "Ubuntu:22.04:LTS". Empty if it is of another system.
std::string DistributionOf(absl::string_view os_release);

// A package URL: pkg:TYPE/NAMESPACE/NAME@VERSION?QUALIFIERS#SUBPATH.
struct PackageUrl {
  std::string type, space, name, version;
  // Of a Debian package: the qualifiers `distro`, `upstream`, its source package, and `epoch`,
  // which stands before the version.
  std::string distro, upstream, epoch;
  std::string kind;  // the qualifier `type`: "module", of Go
  // The qualifiers `download_url`, `vcs_url` and `file_name`: where it comes from.
  std::string download, repository, file;
  // Without slashes at its ends.
  std::string subpath;
};
// Nothing if it is none: also where a qualifier is there twice, or a name has an @ that is not
// written as %40.
std::optional<PackageUrl> ParsePackageUrl(absl::string_view text);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_INVENTORY_H_
