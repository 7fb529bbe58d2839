// How the readers of single formats hand on what they find. Used by the sources of this library
// alone.
#ifndef SHOAL_SRC_AUDIT_COLLECTOR_H_
#define SHOAL_SRC_AUDIT_COLLECTOR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/audit/inventory.h"
#include "src/audit/json.h"

namespace shoal::audit {

// INVALID_ARGUMENT "FILE:LINE: WHAT".
absl::Status WrongAt(const std::string& file, uint64_t line, absl::string_view what);

// Adds what one file names to an inventory, which must outlive it.
class Collector {
 public:
  Collector(const std::string& file, const Distribution& distribution, Inventory& inventory)
      : file_(file), distribution_(distribution), inventory_(inventory) {}

  const std::string& file() const { return file_; }
  const Distribution& distribution() const { return distribution_; }

  // A package. What has no name that a package can have is unchecked. An empty version is one that
  // the file does not say. RESOURCE_EXHAUSTED beyond kMaxItems, as Skip.
  absl::Status Add(absl::string_view ecosystem, absl::string_view name, absl::string_view version,
                   Certainty certainty = Certainty::kCertain, absl::string_view doubt = "");
  // Something that cannot be looked up.
  absl::Status Skip(absl::string_view what, absl::string_view why);
  void Own() { ++inventory_.own; }
  void OwnPart(absl::string_view part) {
    Own();
    inventory_.parts.emplace_back(part);
  }

  // WrongAt a line of the file.
  absl::Status Wrong(uint64_t line, absl::string_view what) const;

 private:
  absl::Status CheckRoom() const;

  const std::string& file_;
  const Distribution& distribution_;
  Inventory& inventory_;
};

// Why what a format has not, as far as is known here, is unchecked: it may name packages.
inline constexpr absl::string_view kUnknownPart = "is a part of the file that is not known here";
// Why a requirements file is not all that is needed. In a directory the other one may be read, too.
inline constexpr absl::string_view kNamesAnotherFile = "names another file: give that one, too";
// What is wrong with the last line of a text whose writers end every line.
inline constexpr absl::string_view kEndsWithin = "ends within a line: it is cut off";
// Marks the members of an object as unchecked that are not among `known`: "OF.MEMBER".
absl::Status SkipUnknown(const JsonView& object, std::span<const absl::string_view> known,
                         absl::string_view of, Collector& collector);

// A Debian package as a file names it.
struct DebianPackage {
  std::string name, version;
  // Its source package and that one's version. What is empty is the same as the package's own, if
  // `source_is_known`; else nobody knows.
  std::string source, source_version;
  bool source_is_known = true;
};
// Adds the source packages that it is made of, which advisories are about. Those of a signed copy
// ("linux-signed-amd64") are that source and the one that was signed ("linux").
absl::Status AddDebian(absl::string_view distribution, const DebianPackage& package,
                       Collector& collector);

// "name (version)", as the field Source of a Debian package has them; version may be missing.
// False for anything else.
bool ReadSourceField(absl::string_view field, DebianPackage& package);

// Whether a file of this name in a directory is read; what is in it says the format.
bool IsKnownName(absl::string_view path);
// Whether a name is one of those that a bill of materials has, whatever its format.
bool IsBillName(absl::string_view name);
absl::string_view BaseName(absl::string_view path);
// A file; what is none, such as a directory or a pipe, is INVALID_ARGUMENT. Otherwise as ReadFile.
absl::StatusOr<std::string> ReadRegular(const std::string& path,
                                        uint64_t max_bytes = kMaxFileBytes);
absl::Status ReadInventoryFile(const std::string& path, const Distribution& distribution,
                               Inventory& inventory);

// Whether a file of this name is an archive that a registry or a distribution has, or may be one:
// NAME-VERSION.tar.gz.
bool IsPackageArchive(absl::string_view name);

// What the name of an archive, or its address, says about the package that it is said to be of.
enum class Said { kSame, kOther, kNothing };
// Why a package whose address says this is doubtful. Empty if it is not.
absl::string_view DoubtOf(Said said);
// Adds a package, which is doubtful unless `doubt` is empty.
absl::Status AddWithDoubt(absl::string_view ecosystem, absl::string_view name,
                          absl::string_view version, absl::string_view doubt, Collector& collector);
// The path of an address on the web, or of a file, in small letters and with no escapes. Empty for
// anything else, which says nothing that is understood.
std::string PathOfAddress(absl::string_view address);
// What an address says about a package of npm.
Said SaidOfNpm(absl::string_view address, absl::string_view name, absl::string_view version);
// A package of npm as a lock file names it. Views into that.
struct NpmPackage {
  absl::string_view name, version;
};
// What is asked for under a name, if that is one version alone: "1.0.0" or "npm:NAME@1.0.0", but
// no range and no address. Views into both.
std::optional<NpmPackage> ExactOfNpm(absl::string_view name, absl::string_view asked);
// Marks a version as possible that is asked for alone, where the lock file has another.
absl::Status AddAskedFor(absl::string_view ecosystem, absl::string_view name,
                         absl::string_view version, absl::string_view by, Collector& collector);
// What the name of a file says about a package of Python that has these versions: of a wheel
// (NAME-VERSION-..) or a source distribution (NAME-VERSION.tar.gz).
Said SaidOfPython(absl::string_view file, absl::string_view name,
                  std::span<const absl::string_view> versions);

// RFC 3986. Nothing for a cut-off or wrong escape.
std::optional<std::string> PercentDecoded(absl::string_view text);

// A version of Go itself, as the module "stdlib" has it in advisories: "1.21.0-rc.2" for
// "go1.21rc2". The text itself where it is none of those.
std::string GoRelease(absl::string_view text);
// Adds Go itself, about which advisories are, where a module is the one that brings it:
// golang.org/toolchain at "v0.0.1-go1.21.0.linux-amd64".
absl::Status AddGoToolchain(absl::string_view module, absl::string_view version,
                            Collector& collector);

// Whether both are names of one package of the ecosystem.
bool IsSamePackage(absl::string_view ecosystem, absl::string_view a, absl::string_view b);
// One text for all spellings of a package. What is no name is a text of its own.
std::string KeyOrName(absl::string_view ecosystem, absl::string_view name);
// Takes what stands before a version (PEP 440). Empty if it is nothing of that.
absl::string_view TakeRelation(absl::string_view& clause);

// Marks what the manifests beside a lock file need and the lock file does not say: one of
// yesterday, or of another project. Of package.json, those of workspaces too, and of go.mod, which
// also says what of go.sum is used: the items from `first` on are those of the lock file.
absl::Status CompareWithManifests(const std::string& lock, const Distribution& distribution,
                                  size_t first, Inventory& inventory);

// Whether a package.json, a pyproject.toml or a go.mod certainly needs no packages, beside tools
// that build it and, for Go, that itself. False for what cannot be read.
bool NeedsNothing(const std::string& path);
// Adds which Go a go.mod that needs nothing else asks for.
absl::Status ReadGoMod(const std::string& path, const Distribution& distribution,
                       Inventory& inventory);

absl::Status ParsePackageLock(absl::string_view content, Collector& collector);
absl::Status ParsePoetryLock(absl::string_view content, Collector& collector);
// The name of the package whose Cargo.toml this is. Empty if it cannot be read, or is the root of a
// workspace of its own.
std::string NameOfCargoMember(absl::string_view content);
absl::Status ParseCargoLock(absl::string_view content, Collector& collector);
absl::Status ParseCycloneDx(absl::string_view content, Collector& collector);
absl::Status ParseSpdxJson(absl::string_view content, Collector& collector);
absl::Status ParseSpdxTagValue(absl::string_view content, Collector& collector);

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_COLLECTOR_H_
