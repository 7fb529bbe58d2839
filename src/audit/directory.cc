// What a directory names: files of known names, installed Python packages, and what lies below.
#include <algorithm>
#include <filesystem>
#include <fstream>
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
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
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
constexpr size_t kPeekBytes = size_t{1} << 16;

constexpr absl::string_view kInstalled = "has installed packages, which are not read here";
constexpr absl::string_view kNotRead = "is of a format that is not read here";

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
  static constexpr absl::string_view kWithout[] = {"setup.py",
                                                   "setup.cfg",
                                                   "go.work",
                                                   "pom.xml",
                                                   "ivy.xml",
                                                   "build.sbt",
                                                   "libs.versions.toml",
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
  static constexpr absl::string_view kEnds[] = {".gradle", ".gradle.kts", ".csproj",  ".fsproj",
                                                ".vbproj", ".vcxproj",    ".nuspec",  ".gemspec",
                                                ".cabal",  ".opam",       ".rockspec"};
  if (const auto* const of = std::ranges::find(kWithLock, name); of != std::end(kWithLock)) {
    kind = *of;
    return "says what the project needs, and no lock file beside it says more";
  }
  const auto ends_with = [&](absl::string_view end) { return absl::EndsWith(name, end); };
  const bool is_of_conda = absl::StartsWith(name, "environment") &&
                           (absl::EndsWith(name, ".yml") || absl::EndsWith(name, ".yaml"));
  const bool is_known = std::ranges::find(kWithout, name) != std::end(kWithout);
  if (!is_known && !is_of_conda && std::ranges::none_of(kEnds, ends_with)) return "";
  return "says what the project needs, and is not read here";
}

// Whether a manifest of Python, which also configures tools, certainly says nothing of packages.
bool IsOfToolsAlone(const fs::path& path) {
  const bool is_toml = path.filename() == "pyproject.toml";
  if (!is_toml && path.filename() != "setup.cfg") return false;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const absl::StatusOr<std::string> content = ReadFile(path.string(), kMaxToolsBytes);
  if (!content.ok()) return false;
  const std::string text = absl::AsciiStrToLower(*content);
  // A backslash may write any of these.
  static constexpr absl::string_view kToml[] = {"project", "depend", "require", "\\"};
  static constexpr absl::string_view kConfig[] = {"options", "require", "files"};
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

// Whether a file in JSON is one that is read under another name. Its marks stand at its beginning
// or, where a writer sorts them, at its end.
bool IsJsonOfInventory(const fs::path& path) {
  std::error_code error;
  if (path.extension() != ".json" || !fs::is_regular_file(path, error) || error) return false;
  const uintmax_t size = fs::file_size(path, error);
  if (error) return false;
  std::ifstream file(path, std::ios::binary);
  std::string part(kPeekBytes, 0);
  for (const uintmax_t at : {uintmax_t{0}, size - std::min<uintmax_t>(size, kPeekBytes)}) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(at));
    file.read(part.data(), static_cast<std::streamsize>(part.size()));
    std::string read(part.data(), static_cast<size_t>(file.gcount()));
    std::erase(read, '\0');  // UTF-16 has a zero beside every letter
    for (const absl::string_view mark : {"\"bomFormat\"", "\"spdxVersion\"", "\"lockfileVersion\"",
                                         "spdx.org/rdf/3", "\"artifactRelationships\""}) {
      if (absl::StrContains(read, mark)) return true;
    }
  }
  return false;
}

// Whether a file of this name says which packages a project or a machine has, in a way that is not
// read here.
bool IsForeignName(const fs::path& path) {
  static constexpr absl::string_view kNames[] = {
      "pnpm-lock.yaml",       "packages.lock.json",
      "project.assets.json",  "Package.resolved",
      "Cartfile.resolved",    "conda-lock.yml",
      "conda-lock.yaml",      "gems.locked",
      "cabal.project.freeze", "go.work.sum",
      "maven_install.json",   "shrinkwrap.yaml",
      "cpanfile.snapshot",    "dub.selections.json",
      "Godeps.json",          "verification-metadata.xml",
      "rpmdb.sqlite",         "Packages.db"};
  static constexpr absl::string_view kEnds[] = {
      ".lock", ".lockb", ".lockfile", ".deps.json", ".spdx.yaml", ".spdx.yml", "reqs.txt",
      // Archives of packages.
      ".whl", ".jar", ".war", ".ear", ".aar", ".nupkg", ".gem", ".crate", ".pex", ".pyz", ".conda",
      ".deb", ".rpm", ".apk"};
  static constexpr absl::string_view kBillEnds[] = {".xml", ".rdf",  ".txt",   ".tag",   ".csv",
                                                    ".gz",  ".zst",  ".xz",    ".bz2",   ".zip",
                                                    ".yml", ".yaml", ".jsonl", ".jsonld"};
  // Under names that say nothing by themselves.
  static constexpr absl::string_view kPaths[] = {"/dpkg/status", "/apk/db/installed",
                                                 "/rpm/Packages", "/vendor/modules.txt"};
  const std::string whole = path.string(), name = path.filename().string();
  if (absl::StartsWith(name, ".") || IsKnownName(whole)) return false;
  const auto ends_with = [&](absl::string_view end) { return absl::EndsWith(whole, end); };
  const bool is_constraints =
      absl::StrContains(absl::AsciiStrToLower(name), "constraints") && ends_with(".txt");
  return std::ranges::find(kNames, name) != std::end(kNames) || is_constraints ||
         (IsBillName(name) && std::ranges::any_of(kBillEnds, ends_with)) ||
         (absl::StartsWith(name, "requirement") && (ends_with(".txt") || ends_with(".pip"))) ||
         (absl::StartsWith(name, "pylock.") && absl::EndsWith(name, ".toml")) ||
         std::ranges::any_of(kEnds, ends_with) || std::ranges::any_of(kPaths, ends_with);
}

bool IsAbsent(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

// What one directory has, each list sorted.
struct Listing {
  struct Unread {
    std::string path, why;
    bool operator<(const Unread& other) const { return path < other.path; }
  };
  std::vector<std::string> known, directories;
  std::vector<Unread> unread;
  size_t size() const { return known.size() + unread.size(); }
};

class DirectoryReader {
 public:
  DirectoryReader(const std::string& root, const Distribution& distribution, Inventory& inventory)
      : root_(root), distribution_(distribution), inventory_(inventory) {}

  absl::Status Read(Depth depth) {
    std::error_code error;
    canonical_ = fs::weakly_canonical(root_, error);
    if (error) return ErrnoStatus(error.value(), root_);
    SHOAL_ASSIGN_OR_RETURN(const Listing top, List(root_, error));
    if (error) return ErrnoStatus(error.value(), root_);
    SHOAL_RETURN_IF_ERROR(Take(top));
    SHOAL_RETURN_IF_ERROR(ReadEnvironment());
    for (const std::string& directory : top.directories) {
      SHOAL_RETURN_IF_ERROR(Descend(directory, depth));
    }
    if (found_) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(root_, ": no lock file, no SBOM and no installed Python packages here"));
  }

 private:
  // Sets `error` if the directory cannot be listed. RESOURCE_EXHAUSTED beyond kMaxEntries.
  absl::StatusOr<Listing> List(const std::string& directory, std::error_code& error) {
    Listing listing;
    // Of which there are lock files here.
    std::set<absl::string_view> kinds;
    if (IsNpmMember(directory)) kinds.insert(kNpm);
    std::vector<std::pair<absl::string_view, Listing::Unread>> manifests;
    std::vector<std::string> modules, sources;
    // Some files are known by the directory that they lie in, which may be the one that was given.
    const fs::path place = fs::weakly_canonical(directory, error);
    if (error) return listing;
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
      std::error_code ignored;
      const bool is_directory = entry->is_directory(ignored);
      if (AddPython(path, name, is_directory, listing)) continue;
      if (is_directory) {
        if (name == "node_modules") {
          modules.push_back(path);
        } else if (name == "bower_components" || name == "jspm_packages") {
          unread(path, kInstalled);
        } else if (name == "conda-meta" || name == "status.d") {
          unread(path, kNotRead);  // the latter is dpkg's in images without a shell
        } else if (name != ".git" && name != ".hg" && name != ".svn") {
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
        if (!IsOfToolsAlone(path)) manifests.push_back({kind, {path, std::string(why)}});
      } else if (IsRequirementsSource(place / name)) {
        sources.push_back(path);
      } else if (IsForeignName(place / name) && !is_empty) {
        unread(path, kNotRead);  // an empty one is the lock of a process
      } else if (IsJsonOfInventory(path)) {
        listing.known.push_back(path);
      }
    }
    for (const std::string& path : sources) {
      const std::string made = fs::path(path).replace_extension(".txt").string();
      if (std::ranges::find(listing.known, made) == listing.known.end()) {
        unread(path, "says what the project needs, and no requirements file beside it says more");
      }
    }
    for (const std::string& path : modules) {
      if (!kinds.contains(kNpm)) unread(path, kInstalled);
    }
    for (auto& [kind, manifest] : manifests) {
      const bool has_lock =
          kinds.contains(kind) || (kind == kCargo && IsCargoMember(manifest.path));
      if (kind.empty() || !has_lock) listing.unread.push_back(std::move(manifest));
    }
    std::ranges::sort(listing.known);
    std::ranges::sort(listing.directories);
    std::sort(listing.unread.begin(), listing.unread.end());
    return listing;
  }

  // Whether an entry is an installed Python package, or what is left of one.
  static bool AddPython(const std::string& path, absl::string_view name, bool is_directory,
                        Listing& listing) {
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
      std::error_code error;
      if (names == cargo_.end()) continue;
      if (!fs::is_regular_file(manifest, error)) return false;
      const absl::StatusOr<std::string> content = ReadFile(manifest.string(), kMaxFileBytes);
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
    }
  }

  absl::Status Skip(const std::string& path, absl::string_view why) {
    found_ = true;
    return Collector(path, distribution_, inventory_).Skip(BaseName(path), why);
  }

  // Reads what a directory has. A file that cannot be read does not end the audit of the others.
  absl::Status Take(const Listing& listing) {
    for (const std::string& path : listing.known) {
      found_ = true;
      const size_t before = inventory_.parts.size(), first = inventory_.items.size();
      const absl::Status read = ReadInventoryFile(path, distribution_, inventory_);
      for (size_t i = before; i < inventory_.parts.size(); ++i) {
        AddPart(path, inventory_.parts[i]);
      }
      if (!read.ok()) {
        SHOAL_RETURN_IF_ERROR(Skip(path, absl::StrCat("cannot be read: ", read.message())));
        continue;
      }
      SHOAL_RETURN_IF_ERROR(CompareWithManifests(path, distribution_, first, inventory_));
    }
    for (const Listing::Unread& unread : listing.unread) {
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
      SHOAL_ASSIGN_OR_RETURN(const Listing listing, List(site, error));
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
      const fs::path canonical = fs::weakly_canonical(directory, error);
      if (!error && read_.contains(canonical.string())) continue;
      error.clear();
      SHOAL_ASSIGN_OR_RETURN(const Listing listing, List(directory, error));
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
      const absl::string_view name = BaseName(directory);
      if (name == "site-packages" || name == "dist-packages") continue;
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
  std::set<std::string> read_;  // of the environment
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
