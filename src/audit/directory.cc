// What a directory names: files of known names, installed Python packages, and what lies below.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
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
#include "src/audit/peek.h"
#include "src/audit/site.h"
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
                                                   "tox.ini",
                                                   "hatch.toml",
                                                   "buildout.cfg",
                                                   "jsr.json",
                                                   "import_map.json",
                                                   "Manifest.toml",
                                                   "Project.toml",
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
  if (!is_toml && path.filename() != "setup.cfg" && path.filename() != "tox.ini") return false;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const absl::StatusOr<std::string> content = ReadFile(path.string(), kMaxToolsBytes);
  if (!content.ok()) return false;
  const std::string text = absl::AsciiStrToLower(*content);
  // A backslash may write any of these.
  static constexpr absl::string_view kToml[] = {"project", "depend", "require", "\\"};
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

constexpr absl::string_view kNameStarts =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

// Whether a line is a requirement of pip's with a version, and nothing else.
bool IsPinned(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (line.find_first_of(kNameStarts) != 0) return false;
  size_t end = line.find_first_not_of(absl::StrCat(kNameStarts, "._-"));
  if (end == absl::string_view::npos) return false;
  line = absl::StripLeadingAsciiWhitespace(line.substr(end));
  if (absl::StartsWith(line, "[")) {
    end = line.find(']');
    if (end == absl::string_view::npos) return false;
    line = absl::StripLeadingAsciiWhitespace(line.substr(end + 1));
  }
  static constexpr absl::string_view kRelations[] = {"===", "==", "~=", "!=", "<=", ">="};
  if (std::ranges::none_of(kRelations, [&](absl::string_view relation) {
        return absl::ConsumePrefix(&line, relation);
      })) {
    return false;
  }
  line = absl::StripLeadingAsciiWhitespace(line);
  end = line.find_first_not_of(absl::StrCat(kNameStarts, ".*+!-_"));
  if (line.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(line[0]))) return false;
  line = end == absl::string_view::npos ? "" : absl::StripLeadingAsciiWhitespace(line.substr(end));
  return line.empty() || absl::StrContains(",;#\\", line.substr(0, 1)) ||
         absl::StartsWith(line, "--hash");
}

// What a file holds whose name says nothing: one that is read, or why what it holds is not. Nothing
// for another file.
struct Held {
  bool is_read = false;
  absl::string_view unread = "";
};
Held HeldIn(const fs::path& path) {
  const std::string name = path.filename().string();
  if (IsCodeOrMedia(name)) return {};
  if (name == "pyvenv.cfg") {
    if (!SharesTheSystems(path.string())) return {};
    return {.unread = "takes packages from those of the system, which are not read here"};
  }
  const std::optional<std::string> peeked = Peek(path.string());
  if (!peeked.has_value()) {
    return {.unread = "cannot be looked into: it cannot be read, or has more than 64 MiB of JSON"};
  }
  const std::string& text = *peeked;
  if (text.empty()) return {};
  const auto has = [&](absl::string_view mark) { return absl::StrContains(text, mark); };
  const auto has_line = [&](absl::string_view beginning) { return HasLine(text, beginning); };
  // As they are found by what they hold.
  static constexpr absl::string_view kRead[] = {
      "\"bomFormat\"",      "\"spdxVersion\"",           "\"lockfileVersion\"",
      "spdx.org/rdf/3",     "\"artifactRelationships\"", "@generated by Cargo",
      "generated by Poetry"};
  if (std::ranges::any_of(kRead, has) || has_line("SPDXVersion:") || has_line("Metadata-Version:"))
    return {.is_read = true};
  if ((name == "METADATA" || name == "PKG-INFO") && has_line("Name:") && has_line("Version:"))
    return {.is_read = true};
  // SBOMs in XML, RDF and YAML, reports of scanners, lock files.
  static constexpr absl::string_view kUnread[] = {
      "cyclonedx.org/schema/bom", "spdx.org/rdf",
      "<SoftwareIdentity",        "maven.apache.org/POM",
      "<PackageReference",        "\"pip_version\"",
      "\"version_normalized\"",   "\"content-hash\"",
      "\"contentHash\"",          "\"pipfile-spec\"",
      "yarn lockfile v",          " h1:",
      "for dependency locking",   "may be used to create an environment"};
  static constexpr absl::string_view kLines[] = {
      "spdxVersion:", "bomFormat:", "lockfileVersion:", "__metadata:", "@EXPLICIT"};
  // Lock files in TOML, Bundler's, conda's environments, reports of Trivy and npm ls, and the
  // databases of dpkg and opkg, of apk and of pacman.
  static constexpr std::pair<absl::string_view, absl::string_view> kEntries[] = {
      {"[[package]]", "version"},
      {"GEM", "DEPENDENCIES"},
      {"channels:", "dependencies:"},
      {"\"ArtifactName\"", "\"SchemaVersion\""},
      {"\"resolved\"", "\"dependencies\""},
      {"Package:", "Version:"},
      {"P:", "V:"},
      {"%NAME%", "%VERSION%"}};
  if (std::ranges::any_of(kUnread, has) || std::ranges::any_of(kLines, has_line) ||
      std::ranges::any_of(kEntries, [&](const auto& entry) {
        // Those in JSON may stand in one line.
        return absl::StartsWith(entry.first, "\"")
                   ? has(entry.first) && has(entry.second)
                   : has_line(entry.first) && has_line(entry.second);
      })) {
    return {.unread = kNotRead};
  }
  for (const absl::string_view line : absl::StrSplit(text, absl::ByAnyChar("\r\n"))) {
    if (IsPinned(line)) {
      return {.unread = "has requirements of pip's, under a name by which they are not read"};
    }
  }
  return {};
}

// Whether a name is NAME-VERSION of an archive, as package registries have them.
bool IsPackedPackage(absl::string_view name) {
  static constexpr absl::string_view kEnds[] = {".tgz",    ".tar.gz",  ".tar.bz2",
                                                ".tar.xz", ".tar.zst", ".zip"};
  const auto* const end = std::ranges::find_if(
      kEnds, [&](absl::string_view each) { return absl::EndsWithIgnoreCase(name, each); });
  if (end == std::end(kEnds)) return false;
  name.remove_suffix(end->size());
  const std::vector<absl::string_view> words = absl::StrSplit(name, '-');
  return std::ranges::any_of(words, [](absl::string_view word) {
    absl::ConsumePrefix(&word, "v");
    const size_t digits = word.find_first_not_of("0123456789");
    return digits != absl::string_view::npos && digits > 0 && word[digits] == '.';
  });
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
  static constexpr absl::string_view kEnds[] = {
      ".lock", ".lockb", ".lockfile", ".deps.json", ".spdx.yaml", ".spdx.yml",
      // Archives of packages.
      ".whl", ".jar", ".war", ".ear", ".aar", ".nupkg", ".gem", ".crate", ".pex", ".pyz", ".conda",
      ".deb", ".rpm", ".apk", ".pom"};
  // Under names that say nothing by themselves.
  static constexpr absl::string_view kPaths[] = {
      "/dpkg/status",           "/opkg/status",        "/apk/db/installed",
      "/rpm/Packages",          "/vendor/modules.txt", "/composer/installed.json",
      "/composer/installed.php"};
  const std::string whole = path.string(), name = path.filename().string();
  // Some file systems make no difference between small and capital letters.
  const auto is_name = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
  if (std::ranges::any_of(kNames, is_name)) return true;
  if (absl::StartsWith(name, ".") || IsKnownName(whole)) return false;
  const auto ends_with = [&](absl::string_view end) {
    return absl::EndsWithIgnoreCase(whole, end);
  };
  return (IsBillName(name) && !IsCodeOrMedia(name)) || SaysRequirements(path) ||
         IsPackedPackage(name) ||
         (absl::StartsWith(name, "pylock.") && absl::EndsWith(name, ".toml")) ||
         std::ranges::any_of(kEnds, ends_with) || std::ranges::any_of(kPaths, ends_with);
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
    SHOAL_ASSIGN_OR_RETURN(const Listing top, List(root_, error));
    if (error) return ErrnoStatus(error.value(), root_);
    SHOAL_RETURN_IF_ERROR(Take(top));
    SHOAL_RETURN_IF_ERROR(ReadEnvironment());
    // What packages bring along is theirs.
    if (!IsSite(canonical_)) {
      for (const std::string& directory : top.directories) {
        SHOAL_RETURN_IF_ERROR(Descend(directory, depth));
      }
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
    std::vector<std::pair<absl::string_view, Unread>> manifests;
    std::vector<std::string> modules, sources;
    // Some files are known by the directory that they lie in, which may be the one that was given.
    const fs::path place = fs::weakly_canonical(directory, error);
    if (error) return listing;
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
      std::error_code ignored;
      const bool is_directory = entry->is_directory(ignored);
      if (is_site) site.Take(name, is_directory);
      if (AddPython(path, name, is_directory, listing)) continue;
      if (is_directory) {
        if (name == "node_modules") {
          modules.push_back(path);
        } else if (const absl::string_view why = WhyNotRead(place / name); !why.empty()) {
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
        if (!IsOfToolsAlone(path)) manifests.push_back({kind, {path, std::string(why)}});
      } else if (IsRequirementsSource(place / name)) {
        sources.push_back(path);
      } else if (IsForeignName(place / name) && !is_empty) {
        unread(path, kNotRead);  // an empty one is the lock of a process
      } else if (const Held held = HeldIn(place / name); held.is_read) {
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
