// What a directory names: files of known names, installed Python packages, and what lies below.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/held.h"
#include "src/audit/peek.h"
#include "src/audit/site.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"
#include "src/storage/paths.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;

// Manifests whose lock files name more than one of them.
constexpr absl::string_view kNpm = "package.json", kCargo = "Cargo.toml";
constexpr absl::string_view kPyproject = "pyproject.toml";
constexpr absl::string_view kGo = "go.mod";

constexpr size_t kMaxToolsBytes = size_t{1} << 20;

constexpr absl::string_view kInstalled = "has installed packages, which are not read here";
constexpr absl::string_view kNeedsUnread = "says what the project needs, and is not read here";

// Of which manifest a lock file says the rest, by their names. Empty for another file. Other files
// of the same ecosystem may name other packages. A requirements file is no lock: nobody knows
// whether all that a manifest needs is in it.
absl::string_view KindOfLock(absl::string_view name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kLocks[] = {
      {"package-lock.json", kNpm},
      {"npm-shrinkwrap.json", kNpm},
      {"yarn.lock", kNpm},
      {"pnpm-lock.yaml", kNpm},
      {"bun.lock", kNpm},
      {"bun.lockb", kNpm},
      {"poetry.lock", kPyproject},
      {"uv.lock", kPyproject},
      {"pdm.lock", kPyproject},
      {"Pipfile.lock", "Pipfile"},
      {"Cargo.lock", kCargo},
      {"Gemfile.lock", "Gemfile"},
      {"gems.locked", "gems.rb"},
      {"composer.lock", "composer.json"},
      {"go.sum", kGo}};
  for (const auto& [lock, kind] : kLocks) {
    if (name == lock) return kind;
  }
  return "";
}

// What a manifest without a lock file leaves open. Empty for another file. `kind`: of the lock
// files that say what it does not.
absl::string_view ManifestOf(absl::string_view name, absl::string_view& kind) {
  static constexpr absl::string_view kWithLock[] = {kNpm, kPyproject, "Pipfile", kCargo,
                                                    kGo,  "Gemfile",  "gems.rb", "composer.json"};
  // Many other tools have these in small letters.
  static constexpr absl::string_view kOfJulia[] = {"Manifest.toml", "Project.toml"};
  static constexpr absl::string_view kWithout[] = {"setup.py",
                                                   "setup.cfg",
                                                   "tox.ini",
                                                   "hatch.toml",
                                                   "buildout.cfg",
                                                   "jsr.json",
                                                   "import_map.json",
                                                   "elm.json",
                                                   "shard.yml",
                                                   "dub.json",
                                                   "dub.sdl",
                                                   "Brewfile",
                                                   "Puppetfile",
                                                   "Berksfile",
                                                   "Chart.yaml",
                                                   "pixi.toml",
                                                   "go.work",
                                                   "pom.xml",
                                                   "ivy.xml",
                                                   "build.sbt",
                                                   "packages.config",
                                                   "Directory.Packages.props",
                                                   "paket.dependencies",
                                                   "mix.exs",
                                                   "rebar.config",
                                                   "vcpkg.json",
                                                   "conanfile.txt",
                                                   "conanfile.py",
                                                   "bower.json",
                                                   "deno.json",
                                                   "deno.jsonc",
                                                   "project.clj",
                                                   "deps.edn",
                                                   "Podfile",
                                                   "Cartfile",
                                                   "Package.swift",
                                                   "pubspec.yaml",
                                                   "stack.yaml",
                                                   "cpanfile"};
  static constexpr absl::string_view kEnds[] = {
      ".gradle",  ".gradle.kts", ".csproj", ".fsproj",   ".vbproj", ".vcxproj", ".nuspec",
      ".gemspec", ".cabal",      ".opam",   ".rockspec", ".nimble", ".wrap",    ".versions.toml"};
  if (name == "package.json5" || name == "package.yaml") name = kNpm;  // pnpm's other notations
  // Some file systems make no difference between small and capital letters.
  const auto is_name = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
  if (const auto* const of = std::ranges::find_if(kWithLock, is_name); of != std::end(kWithLock)) {
    kind = *of;
    return "says what the project needs, and no lock file beside it says more";
  }
  const auto ends_with = [&](absl::string_view end) { return absl::EndsWithIgnoreCase(name, end); };
  const bool is_of_conda = absl::StartsWith(name, "environment") &&
                           (absl::EndsWith(name, ".yml") || absl::EndsWith(name, ".yaml"));
  const bool is_known = std::ranges::any_of(kWithout, is_name) ||
                        std::ranges::find(kOfJulia, name) != std::end(kOfJulia);
  if (!is_known && !is_of_conda && std::ranges::none_of(kEnds, ends_with)) return "";
  return kNeedsUnread;
}

// Whether a manifest of Python, which also configures tools, certainly says nothing of packages.
bool IsOfToolsAlone(const fs::path& path) {
  const std::string name = absl::AsciiStrToLower(path.filename().string());
  const bool is_toml = name == kPyproject;
  if (!is_toml && name != "setup.cfg" && name != "tox.ini") return false;
  const absl::StatusOr<std::string> content = ReadRegular(path.string(), kMaxToolsBytes);
  if (!content.ok()) return false;
  const std::string text = absl::AsciiStrToLower(*content);
  // A backslash may write any of these.
  static constexpr absl::string_view kToml[] = {"project", "depend", "require", "deps", "\\"};
  static constexpr absl::string_view kConfig[] = {"options", "require", "files", "deps"};
  const auto has = [&](absl::string_view word) { return absl::StrContains(text, word); };
  return is_toml ? std::ranges::none_of(kToml, has) : std::ranges::none_of(kConfig, has);
}

// Whether this is a source from which pip-tools makes the requirements file beside it.
bool IsRequirementsSource(const fs::path& path) {
  static constexpr absl::string_view kStems[] = {"base", "dev",  "test", "prod",
                                                 "docs", "lint", "ci",   "local"};
  if (path.extension() != ".in") return false;
  const std::string stem = absl::AsciiStrToLower(path.stem().string());
  return absl::StrContains(stem, "requirement") || absl::StrContains(stem, "constraint") ||
         path.parent_path().filename() == "requirements" ||
         std::ranges::find(kStems, stem) != std::end(kStems);
}

// Whether a name says that a file has requirements or constraints of pip's, of which the rest of
// the name decides whether it is read.
bool SaysRequirements(const fs::path& path) {
  static constexpr absl::string_view kEnds[] = {"",     ".txt", ".pip", ".list",
                                                ".lst", ".yml", ".yaml"};
  const std::string name = absl::AsciiStrToLower(path.filename().string());
  const std::string end = path.extension().string();
  if (std::ranges::find(kEnds, absl::AsciiStrToLower(end)) == std::end(kEnds)) return false;
  const std::vector<absl::string_view> words = absl::StrSplit(name, absl::ByAnyChar("._-"));
  const std::string parent = path.parent_path().filename().string();
  return absl::StrContains(name, "requirement") || absl::StrContains(name, "constraints") ||
         std::ranges::find(words, "reqs") != words.end() || parent == "reqs" ||
         (parent == "requirements" && end != ".txt");
}

// Whether a name is that of a bill of materials that is not read. The word "bom" is also that of a
// mark of an encoding, so it counts alone with an ending that a bill has; what else there is, is
// looked into.
bool IsForeignBillName(absl::string_view name) {
  if (!IsBillName(name) || IsCodeOrMedia(name)) return false;
  static constexpr absl::string_view kSure[] = {"sbom", "cyclonedx", "cdx", "spdx", "syft"};
  static constexpr absl::string_view kEnds[] = {"",       ".xml",    ".yaml", ".yml", ".json",
                                                ".jsonl", ".jsonld", ".rdf",  ".ttl", ".csv",
                                                ".tsv",   ".xlsx",   ".xls",  ".pb",  ".bin"};
  const std::string lower = absl::AsciiStrToLower(name);
  const auto has = [&](absl::string_view word) { return absl::StrContains(lower, word); };
  return std::ranges::any_of(kSure, has) ||
         std::ranges::find(kEnds, fs::path(lower).extension().string()) != std::end(kEnds);
}

// Whether a file of this name says which packages a project or a machine has, in a way that is not
// read here.
bool IsForeignName(const fs::path& path) {
  static constexpr absl::string_view kNames[] = {"pnpm-lock.yaml",
                                                 "packages.lock.json",
                                                 "project.assets.json",
                                                 "Package.resolved",
                                                 "Cartfile.resolved",
                                                 "conda-lock.yml",
                                                 "conda-lock.yaml",
                                                 "gems.locked",
                                                 "cabal.project.freeze",
                                                 "go.work.sum",
                                                 "maven_install.json",
                                                 "shrinkwrap.yaml",
                                                 "cpanfile.snapshot",
                                                 "dub.selections.json",
                                                 "Godeps.json",
                                                 "verification-metadata.xml",
                                                 "rpmdb.sqlite",
                                                 "Packages.db",
                                                 ".pnp.cjs",
                                                 ".pnp.js"};
  static constexpr absl::string_view kEnds[] = {".lock",      ".lockb",     ".lockfile",
                                                ".deps.json", ".spdx.yaml", ".spdx.yml"};
  // Under names that say nothing by themselves.
  static constexpr absl::string_view kPaths[] = {
      "/dpkg/status",           "/opkg/status",        "/apk/db/installed",
      "/rpm/Packages",          "/vendor/modules.txt", "/composer/installed.json",
      "/composer/installed.php"};
  const std::string whole = path.string(), name = path.filename().string();
  // Some file systems make no difference between small and capital letters.
  const auto is_name = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
  if (std::ranges::any_of(kNames, is_name)) return true;
  const auto ends_with = [&](absl::string_view end) {
    return absl::EndsWithIgnoreCase(whole, end);
  };
  if (IsPackageArchive(name) || ends_with(".pom")) return true;
  if (absl::StartsWith(name, ".") || IsKnownName(whole)) return false;
  return IsForeignBillName(name) || SaysRequirements(path) ||
         (absl::StartsWith(name, "pylock.") && absl::EndsWith(name, ".toml")) ||
         std::ranges::any_of(kEnds, ends_with) || std::ranges::any_of(kPaths, ends_with);
}

// Whether this is the list of what Go copied into a project: that is in the project's go.mod and
// go.sum, which are read if they lie in `root`, and Go refuses it where it says otherwise.
bool IsListOfCopies(const fs::path& path, const fs::path& root) {
  const fs::path vendor = path.parent_path();
  std::error_code error;
  return path.filename() == "modules.txt" && vendor.filename() == "vendor" && vendor != root &&
         fs::is_regular_file(vendor.parent_path() / std::string(kGo), error) &&
         fs::is_regular_file(vendor.parent_path() / "go.sum", error);
}

// Whether the needs that lie in an egg-info name packages, or cannot be read.
bool HasNeeds(const std::string& requires_txt) {
  std::error_code error;
  if (fs::status(requires_txt, error).type() == fs::file_type::not_found) return false;
  const absl::StatusOr<std::string> content = ReadRegular(requires_txt, kMaxToolsBytes);
  if (!content.ok()) return true;
  const std::vector<absl::string_view> lines =
      absl::StrSplit(*content, absl::ByAnyChar("\r\n"), absl::SkipWhitespace());
  // The others say for which extra or condition the next ones hold.
  return std::ranges::any_of(lines, [](absl::string_view line) {
    return !absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "[");
  });
}

// Directories whose content is that of other projects.
bool IsSite(const fs::path& directory) {
  return directory.filename() == "site-packages" || directory.filename() == "dist-packages";
}
bool IsOfVersionControl(absl::string_view name) {
  return name == ".git" || name == ".hg" || name == ".svn";
}
absl::string_view WhyNotRead(const fs::path& directory) {
  const std::string name = directory.filename().string();
  if (name == "bower_components" || name == "jspm_packages") return kInstalled;
  // The second is dpkg's in images without a shell, the others are pacman's and Portage's.
  if (name == "conda-meta" || name == "status.d") return kNotRead;
  const std::string parent = directory.parent_path().filename().string();
  if ((name == "local" && parent == "pacman") || (name == "pkg" && parent == "db")) return kNotRead;
  return "";
}

bool IsAbsent(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

// What one directory has, each list sorted.
struct Listing {
  std::vector<std::string> known, directories;
  std::vector<Unread> unread;
  size_t size() const { return known.size() + unread.size(); }
};

// Adds the sources of requirements that nothing was made of.
void AddSources(const std::vector<std::string>& sources, Listing& listing) {
  for (const std::string& path : sources) {
    const std::string made = fs::path(path).replace_extension(".txt").string();
    if (std::ranges::find(listing.known, made) == listing.known.end()) {
      listing.unread.push_back(
          {path, "says what the project needs, and no requirements file beside it says more"});
    }
  }
}

class DirectoryReader {
 public:
  DirectoryReader(const std::string& root, const Distribution& distribution, Inventory& inventory)
      : root_(root), distribution_(distribution), inventory_(inventory) {}

  absl::Status Read(Depth depth) {
    std::error_code error;
    canonical_ = fs::weakly_canonical(root_, error);
    if (error) return ErrnoStatus(error.value(), root_);
    SHOAL_ASSIGN_OR_RETURN(const Listing top, List(root_, canonical_, error));
    if (error) return ErrnoStatus(error.value(), root_);
    const size_t first = inventory_.unchecked.size();
    SHOAL_RETURN_IF_ERROR(Take(top));
    SHOAL_RETURN_IF_ERROR(ReadEnvironment());
    // What packages bring along is theirs.
    if (!IsSite(canonical_)) {
      for (const std::string& directory : top.directories) {
        SHOAL_RETURN_IF_ERROR(Descend(directory, depth));
      }
    }
    DropReadRequirements(first);
    if (found_) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(root_, ": no lock file, no SBOM and no installed Python packages here"));
  }

 private:
  // `place`: the directory's canonical path. Sets `error` if it cannot be listed.
  // RESOURCE_EXHAUSTED beyond kMaxEntries.
  absl::StatusOr<Listing> List(const std::string& directory, const fs::path& place,
                               std::error_code& error) {
    Listing listing;
    // Of which there are lock files here.
    std::set<absl::string_view> kinds;
    if (IsNpmMember(directory)) kinds.insert(kNpm);
    std::vector<std::pair<absl::string_view, Unread>> manifests;
    std::vector<std::string> modules, sources;
    // Some files are known by the directory that they lie in, which may be the one that was given.
    const bool is_site = IsSite(place);
    Site site(directory);
    const auto unread = [&](const std::string& path, absl::string_view why) {
      listing.unread.push_back({path, std::string(why)});
    };
    for (auto entry = fs::directory_iterator(directory, error);
         !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (++entries_ > kMaxEntries) {
        return absl::ResourceExhaustedError(absl::StrCat(
            root_, ": more than ", kMaxEntries, " files and directories: audit a part of them"));
      }
      const std::string path = entry->path().string(), name = entry->path().filename().string();
      const fs::path at = place / name;
      std::error_code ignored;
      const bool is_directory = entry->is_directory(ignored);
      if (is_site) site.Take(name, is_directory);
      if (AddPython(path, name, is_directory, is_site, listing)) continue;
      if (is_directory) {
        if (name == "node_modules") {
          modules.push_back(path);
        } else if (const absl::string_view why = WhyNotRead(at); !why.empty()) {
          unread(path, why);
        } else if (!IsOfVersionControl(name)) {
          AddDirectory(*entry, path, listing);
        }
        continue;
      }
      // An empty one says nothing. One whose size nobody can tell is reported below.
      const bool is_empty = entry->file_size(ignored) == 0;
      if (!is_empty) kinds.insert(KindOfLock(name));
      absl::string_view kind;
      if (IsKnownName(path)) {
        listing.known.push_back(path);
      } else if (const absl::string_view why = ManifestOf(name, kind); !why.empty()) {
        manifests.push_back({kind, {path, std::string(why)}});
      } else if (IsRequirementsSource(at)) {
        sources.push_back(path);
      } else if (IsForeignName(at) && !is_empty) {
        // An empty one is the lock of a process.
        if (!IsListOfCopies(at, canonical_)) unread(path, kNotRead);
      } else if (const Held held = HeldIn(at); held.is_read) {
        listing.known.push_back(path);
      } else if (!held.unread.empty()) {
        unread(path, held.unread);
      }
    }
    std::ranges::move(site.NotRead(), std::back_inserter(listing.unread));
    AddSources(sources, listing);
    for (const std::string& path : modules) {
      if (!kinds.contains(kNpm)) unread(path, kInstalled);
    }
    for (auto& [kind, manifest] : manifests) AddManifest(kind, kinds, std::move(manifest), listing);
    std::ranges::sort(listing.known);
    std::ranges::sort(listing.directories);
    std::sort(listing.unread.begin(), listing.unread.end());
    return listing;
  }

  // Adds a manifest, unless one of the lock files beside it, of these kinds, says what it does not.
  void AddManifest(absl::string_view kind, const std::set<absl::string_view>& kinds,
                   Unread manifest, Listing& listing) const {
    if (!kind.empty() &&
        (kinds.contains(kind) || (kind == kCargo && IsCargoMember(manifest.path)))) {
      return;
    }
    if (IsOfToolsAlone(manifest.path)) return;
    // Nor is a lock file made for one that needs nothing. It still says which Go builds it.
    const bool needs_nothing = NeedsNothing(manifest.path);
    if (needs_nothing && kind == kGo) listing.known.push_back(manifest.path);
    if (!needs_nothing) listing.unread.push_back(std::move(manifest));
  }

  // Whether an entry is an installed Python package, or what is left of one.
  static bool AddPython(const std::string& path, absl::string_view name, bool is_directory,
                        bool is_site, Listing& listing) {
    const bool is_wheel = absl::EndsWith(name, ".dist-info");
    const bool is_egg_info = absl::EndsWith(name, ".egg-info");
    const bool is_egg = absl::EndsWith(name, ".egg");
    if (absl::EndsWith(name, ".egg-link")) {
      listing.unread.push_back(
          {path, "is a link to a project elsewhere: give that directory, too"});
      return true;
    }
    if (!is_wheel && !is_egg_info && !is_egg) return false;
    if (absl::StartsWith(name, "~")) {
      listing.unread.push_back({path, "is left over from an uninstall that pip did not finish"});
      return true;
    }
    if (is_egg && !is_directory) {
      listing.unread.push_back({path, std::string(kNotRead)});
      return true;
    }
    // Beside installed packages it has what those need that bring it along.
    if (is_egg_info && is_directory && !is_site && HasNeeds(path + "/requires.txt")) {
      listing.unread.push_back({path + "/requires.txt", std::string(kNeedsUnread)});
    }
    const std::string metadata = is_wheel       ? path + "/METADATA"
                                 : is_egg       ? path + "/EGG-INFO/PKG-INFO"
                                 : is_directory ? path + "/PKG-INFO"
                                                : path;
    std::error_code error;
    if (!fs::exists(metadata, error) && (!error || IsAbsent(error))) {
      listing.unread.push_back({path, absl::StrCat("has no ", BaseName(metadata),
                                                   ": which package it is, is not said")});
    } else {
      listing.known.push_back(metadata);
    }
    return true;
  }

  // Takes a part of the project that a lock file of it names.
  void AddPart(const fs::path& lock, const std::string& part) {
    const fs::path directory = lock.parent_path();
    if (lock.filename() == "Cargo.lock") {
      cargo_[directory.string()].insert(part);
    } else if (const fs::path within = fs::path(part).lexically_normal();
               within.is_relative() && *within.begin() != "..") {
      npm_.insert((directory / within).lexically_normal().string());
    }
  }

  // Whether a lock file of a directory above has its packages.
  bool IsNpmMember(const std::string& directory) const {
    return npm_.contains(fs::path(directory).lexically_normal().string());
  }

  // The same of a Cargo.toml: Cargo's lock file has the names of the workspace's packages, and not
  // where they lie.
  bool IsCargoMember(const fs::path& manifest) const {
    for (fs::path at = manifest.parent_path(); at.has_relative_path(); at = at.parent_path()) {
      const auto names = cargo_.find(at.string());
      if (names == cargo_.end()) continue;
      const absl::StatusOr<std::string> content = ReadRegular(manifest.string());
      if (!content.ok()) return false;
      return names->second.contains(NameOfCargoMember(*content));
    }
    return false;
  }

  void AddDirectory(const fs::directory_entry& entry, const std::string& path, Listing& listing) {
    std::error_code error;
    if (!entry.is_symlink(error)) {
      listing.directories.push_back(path);
      return;
    }
    // What it leads to is read where it lies, or not at all.
    const fs::path to = fs::weakly_canonical(entry.path(), error);
    if (error || !IsWithin(to, canonical_)) {
      listing.unread.push_back({path, "is a link to a directory elsewhere, which is not followed"});
    } else if (IsPassedOver(to)) {
      listing.unread.push_back(
          {path, "is a link into a directory that is not read: give what it leads to"});
    }
  }

  // Whether a directory below the one that was given lies where no audit of that one looks.
  bool IsPassedOver(const fs::path& directory) const {
    for (fs::path at = directory; at != canonical_; at = at.parent_path()) {
      const std::string name = at.filename().string();
      if (name == "node_modules" || IsOfVersionControl(name) || !WhyNotRead(at).empty() ||
          (IsSite(at) && at != directory)) {
        return true;
      }
    }
    return IsSite(canonical_) && directory != canonical_;
  }

  absl::Status Skip(const std::string& path, absl::string_view why) {
    found_ = true;
    return Collector(path, distribution_, inventory_).Skip(BaseName(path), why);
  }

  absl::Status ReadKnown(const std::string& path) {
    if (absl::EqualsIgnoreCase(BaseName(path), kGo))
      return ReadGoMod(path, distribution_, inventory_);
    SHOAL_RETURN_IF_ERROR(ReadInventoryFile(path, distribution_, inventory_));
    std::error_code error;
    const auto format = DetectFormat(path, "");
    if (format.ok() && *format == Format::kRequirements) {
      requirements_.insert(fs::weakly_canonical(path, error).string());
    }
    return absl::OkStatus();
  }

  // Takes back that a requirements file names another one, where that was read, too. `first`: of
  // what is unchecked.
  void DropReadRequirements(size_t first) {
    const auto is_read = [&](const Unchecked& unchecked) {
      absl::string_view name = unchecked.what;
      // What was cut off may name more.
      if (unchecked.why != kNamesAnotherFile || name.size() >= kMaxVersionBytes) return false;
      if (absl::ConsumePrefix(&name, "--requirement")) {
        if (!absl::ConsumePrefix(&name, "=") && !absl::StartsWith(name, " ")) return false;
      } else if (!absl::ConsumePrefix(&name, "-r")) {
        return false;
      }
      name = absl::StripAsciiWhitespace(name);
      // Of these pip makes another name, or more than one.
      if (name.empty() || name.find_first_of(" \t\"'\\$:") != absl::string_view::npos) return false;
      std::error_code error;
      const fs::path other =
          fs::weakly_canonical(fs::path(unchecked.file).parent_path() / std::string(name), error);
      return !error && requirements_.contains(other.string());
    };
    const auto from = inventory_.unchecked.begin() + static_cast<ptrdiff_t>(first);
    inventory_.unchecked.erase(std::remove_if(from, inventory_.unchecked.end(), is_read),
                               inventory_.unchecked.end());
  }

  // Reads what a directory has. A file that cannot be read does not end the audit of the others.
  absl::Status Take(const Listing& listing) {
    for (const std::string& path : listing.known) {
      found_ = true;
      const size_t before = inventory_.parts.size(), first = inventory_.items.size();
      const absl::Status read = ReadKnown(path);
      for (size_t i = before; i < inventory_.parts.size(); ++i) {
        AddPart(path, inventory_.parts[i]);
      }
      if (!read.ok()) {
        SHOAL_RETURN_IF_ERROR(Skip(path, absl::StrCat("cannot be read: ", read.message())));
        continue;
      }
      SHOAL_RETURN_IF_ERROR(CompareWithManifests(path, distribution_, first, inventory_));
    }
    for (const Unread& unread : listing.unread) {
      SHOAL_RETURN_IF_ERROR(Skip(unread.path, unread.why));
    }
    return absl::OkStatus();
  }

  // The Python packages of a virtual environment, if this is one.
  absl::Status ReadEnvironment() {
    std::vector<std::string> sites = {root_ + "/site-packages"};
    for (const char* name : {"/lib", "/lib64", "/Lib"}) {
      const std::string library = root_ + name;
      sites.push_back(library + "/site-packages");
      std::error_code error;
      for (auto python = fs::directory_iterator(library, error);
           !error && python != fs::directory_iterator(); python.increment(error)) {
        const std::string version = python->path().filename().string();
        if (!absl::StartsWith(version, "python") && !absl::StartsWith(version, "pypy")) continue;
        sites.push_back(python->path().string() + "/site-packages");
        sites.push_back(python->path().string() + "/dist-packages");
      }
      if (error && !IsAbsent(error)) return ErrnoStatus(error.value(), library);
    }
    std::ranges::sort(sites);
    for (const std::string& site : sites) {
      std::error_code error;
      const bool is_directory = fs::is_directory(site, error);
      if (error && !IsAbsent(error)) return ErrnoStatus(error.value(), site);
      if (!is_directory) continue;
      const fs::path canonical = fs::canonical(site, error);
      if (error) return ErrnoStatus(error.value(), site);
      // lib64 is a link to lib.
      if (!read_.insert(canonical.string()).second) continue;
      SHOAL_ASSIGN_OR_RETURN(const Listing listing, List(site, canonical, error));
      if (error) return ErrnoStatus(error.value(), site);
      SHOAL_RETURN_IF_ERROR(Take(listing));
    }
    return absl::OkStatus();
  }

  // Reads what lies below, or says that it was not read.
  absl::Status Descend(const std::string& top, Depth depth) {
    std::vector<std::string> left = {top};
    while (!left.empty()) {
      const std::string directory = std::move(left.back());
      left.pop_back();
      std::error_code error;
      const fs::path place = fs::weakly_canonical(directory, error);
      if (!error && read_.contains(place.string())) continue;
      Listing listing;
      if (!error) {
        SHOAL_ASSIGN_OR_RETURN(listing, List(directory, place, error));
      }
      if (error) {
        SHOAL_RETURN_IF_ERROR(Skip(directory, absl::StrCat("cannot be listed: ", error.message())));
        continue;
      }
      if (depth == Depth::kAll) {
        SHOAL_RETURN_IF_ERROR(Take(listing));
      } else if (listing.size() > 0) {
        SHOAL_RETURN_IF_ERROR(
            Skip(directory,
                 absl::StrCat("lies below, and was not read: ", listing.size(),
                              listing.size() == 1 ? " file or directory" : " files or directories",
                              " there (--recursive reads them)")));
      }
      // What packages bring along is theirs.
      if (IsSite(directory)) continue;
      for (auto below = listing.directories.rbegin(); below != listing.directories.rend();
           ++below) {
        left.push_back(*below);
      }
    }
    return absl::OkStatus();
  }

  const std::string& root_;
  const Distribution& distribution_;
  Inventory& inventory_;
  fs::path canonical_;
  std::set<std::string> read_;          // of the environment
  std::set<std::string> requirements_;  // files of requirements that were read
  // What lock files that were read name of their projects: npm's directories, and Cargo's packages
  // by the directory of the lock file.
  std::set<std::string> npm_;
  std::map<std::string, std::set<std::string>> cargo_;
  size_t entries_ = 0;
  bool found_ = false;
};

}  // namespace

absl::Status ReadInventory(const std::string& path, const Distribution& distribution,
                           Inventory& inventory, Depth depth) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return ReadInventoryFile(path, distribution, inventory);
  return DirectoryReader(path, distribution, inventory).Read(depth);
}

}  // namespace shoal::audit
