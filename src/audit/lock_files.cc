// Lock files in JSON (npm) and TOML (Poetry, Cargo).
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"
#include "toml++/toml.h"

namespace shoal::audit {
namespace {

constexpr int64_t kNewestPackageLock = 3;

// A key of so many parts makes as many tables in tables, which are freed by as many nested calls.
constexpr size_t kMaxKeyParts = 32;
// What is parsed takes up to fifty times the bytes of its text.
constexpr size_t kMaxTomlBytes = size_t{1} << 24;

// The place behind the string that begins at `at`. The end of the text if the string has no end.
size_t AfterString(absl::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool is_long = absl::StartsWith(text.substr(at), three);
  const absl::string_view close = absl::string_view(three).substr(0, is_long ? 3 : 1);
  for (at += close.size(); at < text.size(); ++at) {
    if (!is_long && text[at] == '\n') return text.size();
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (absl::StartsWith(text.substr(at), close)) {
      return at + close.size();
    }
  }
  return text.size();
}

// What the parser takes, but this program cannot bear: keys of very many parts. Also what TOML has
// not, so that this function and the parser agree on where a line ends.
absl::Status CheckToml(absl::string_view text, const Collector& collector) {
  if (text.size() > kMaxTomlBytes) {
    return collector.Wrong(1, absl::StrCat("has more than ", kMaxTomlBytes >> 20, " MiB"));
  }
  uint64_t line = 1;
  size_t parts = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const bool ends_line = c == '\n' || (c == '\r' && absl::StartsWith(text.substr(at), "\r\n"));
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t' && !ends_line) {
      return collector.Wrong(line, "not TOML: a control character");
    }
    // toml++ asks of what is not ASCII, here and behind a backslash, whether it is white space, and
    // what its function then does is undefined for most of it. In TOML it stands in strings and
    // comments alone.
    if (!absl::ascii_isascii(static_cast<unsigned char>(c))) {
      return collector.Wrong(line, "not TOML: a character outside of strings that is not ASCII");
    }
    if (c == '"' || c == '\'') {
      const size_t after = AfterString(text, at);
      for (size_t i = at; c == '"' && i + 1 < after; ++i) {
        if (text[i] != '\\') continue;
        // A backslash may stand before white space that ends at the next character of the string.
        const size_t next = std::min(text.find_first_not_of(" \t\r\n", i + 1), after - 1);
        if (!absl::ascii_isascii(static_cast<unsigned char>(text[next]))) {
          return collector.Wrong(line, "a character that is not ASCII behind a backslash");
        }
        i = next == i + 1 ? next : next - 1;  // what is escaped is no backslash of its own
      }
      line += static_cast<uint64_t>(std::count(text.begin() + at, text.begin() + after, '\n'));
      at = after;
      continue;
    }
    if (c == '#') {
      const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
      at = end;
      continue;
    }
    line += c == '\n';
    // Between these there is one key at most.
    if (absl::string_view("\n=,[{").find(c) != absl::string_view::npos) parts = 1;
    parts += c == '.';
    if (parts > kMaxKeyParts) {
      return collector.Wrong(line, absl::StrCat("a key has more than ", kMaxKeyParts, " parts"));
    }
    ++at;
  }
  return absl::OkStatus();
}

absl::StatusOr<toml::table> ParseToml(absl::string_view content, const Collector& collector) {
  if (const absl::Status utf16 = table::RefuseUtf16(content); !utf16.ok()) {
    return collector.Wrong(1, utf16.message());
  }
  absl::ConsumePrefix(&content, "\xef\xbb\xbf");  // a byte order mark
  SHOAL_RETURN_IF_ERROR(CheckToml(content, collector));
  toml::parse_result parsed = toml::parse(std::string_view(content.data(), content.size()));
  if (!parsed) {
    const std::string_view what = parsed.error().description();
    return collector.Wrong(parsed.error().source().begin.line,
                           absl::StrCat("not TOML: ", absl::string_view(what.data(), what.size())));
  }
  return std::move(parsed).table();
}

absl::string_view KeyOf(const toml::key& key) { return {key.str().data(), key.str().size()}; }

// The member's text; empty if it is not there.
absl::StatusOr<std::string> TextOf(const toml::table& table, absl::string_view name,
                                   const Collector& collector) {
  const toml::node* const node = table.get(std::string_view(name.data(), name.size()));
  if (node == nullptr) return "";
  if (!node->is_string()) {
    return collector.Wrong(node->source().begin.line, absl::StrCat(name, " is no text"));
  }
  return node->as_string()->get();
}

// A package of a lock file, with its name and its version.
struct LockedPackage {
  const toml::table* table;
  std::string name, version;
};

absl::StatusOr<LockedPackage> ReadPackage(const toml::table& table, const Collector& collector) {
  LockedPackage package{.table = &table, .name = {}, .version = {}};
  SHOAL_ASSIGN_OR_RETURN(package.name, TextOf(table, "name", collector));
  SHOAL_ASSIGN_OR_RETURN(package.version, TextOf(table, "version", collector));
  if (package.name.empty() || package.version.empty()) {
    return collector.Wrong(table.source().begin.line, "a package has no name or no version");
  }
  return package;
}

// The tables of [[package]]. What else stands on the first level, but for `known`, is unchecked: it
// may name packages, too.
absl::StatusOr<std::vector<LockedPackage>> ReadPackages(
    const toml::table& file, std::initializer_list<absl::string_view> known, Collector& collector) {
  std::vector<LockedPackage> packages;
  for (const auto& [key, node] : file) {
    const absl::string_view name = KeyOf(key);
    if (name != "package") {
      if (std::ranges::find(known, name) != known.end()) continue;
      SHOAL_RETURN_IF_ERROR(collector.Skip(name, kUnknownPart));
      continue;
    }
    const toml::array* const list = node.as_array();
    if (list == nullptr) {
      return collector.Wrong(node.source().begin.line, "`package` is not a list of tables");
    }
    for (const toml::node& item : *list) {
      if (!item.is_table()) {
        return collector.Wrong(item.source().begin.line, "`package` is not a list of tables");
      }
      SHOAL_ASSIGN_OR_RETURN(LockedPackage package, ReadPackage(*item.as_table(), collector));
      packages.push_back(std::move(package));
    }
  }
  return packages;
}

// What else a package has may name more packages.
absl::Status SkipUnknownKeys(const LockedPackage& package, std::span<const absl::string_view> known,
                             Collector& collector) {
  for (const auto& [key, node] : *package.table) {
    if (std::ranges::find(known, KeyOf(key)) != known.end()) continue;
    SHOAL_RETURN_IF_ERROR(
        collector.Skip(absl::StrCat(package.name, ".", KeyOf(key)), kUnknownPart));
  }
  return absl::OkStatus();
}

constexpr absl::string_view kModules = "node_modules/";

// Takes the end of an archive's name off. False if it has none.
bool ConsumeArchiveEnd(absl::string_view* place) {
  return absl::ConsumeSuffix(place, ".tgz") || absl::ConsumeSuffix(place, ".tar.gz") ||
         absl::ConsumeSuffix(place, ".tar");
}

// Whether a place is an archive, of which a package may have any name, and not a directory.
bool IsArchive(absl::string_view place) { return ConsumeArchiveEnd(&place); }

constexpr absl::string_view kOfOther = "its archive's name is that of another package or version";

// Whether both are versions, and not the same one.
bool AreOtherVersions(Order order, absl::string_view a, absl::string_view b) {
  return CompareTexts(order, a, b).value_or(0) != 0;
}

// The path of an address on the web, or of a file, in small letters and with no escapes. Empty for
// anything else, which says nothing that is understood.
std::string PathOfAddress(absl::string_view address) {
  const std::string lower = absl::AsciiStrToLower(address);
  absl::string_view rest = lower;
  if (!absl::ConsumePrefix(&rest, "https://") && !absl::ConsumePrefix(&rest, "http://") &&
      !absl::ConsumePrefix(&rest, "file:") && absl::StrContains(rest, ":")) {
    return "";
  }
  return PercentDecoded(rest.substr(0, rest.find_first_of("?#"))).value_or("");
}

// What parts the name of a package from that of its archive at registries of npm.
constexpr char kLoneHyphen[] = "/-/";

// Whether an address is that of an archive of another package of npm, or of another version of it.
// Registries and their mirrors have archives at WAY/NAME/-/FILE-VERSION.tgz, where NAME may have a
// scope; that is known by the lone hyphen. Others have a way of their own, and say something only
// where the archive is called after the package.
bool IsOfOtherNpm(absl::string_view address, absl::string_view name, absl::string_view version) {
  const std::string path = PathOfAddress(address), whole = absl::AsciiStrToLower(name),
                    last = std::string(BaseName(whole));
  absl::string_view file = BaseName(path);
  if (!ConsumeArchiveEnd(&file)) return false;
  // The last one: a way may have others, as that of GitLab's groups.
  const size_t lone = path.rfind(kLoneHyphen);
  if (lone != std::string::npos) {
    const absl::string_view before = absl::string_view(path).substr(0, lone);
    const absl::string_view scope = BaseName(before.substr(0, before.rfind('/')));
    const std::string owner =
        absl::StrCat(absl::StartsWith(scope, "@") ? scope : "",
                     absl::StartsWith(scope, "@") ? "/" : "", BaseName(before));
    if (owner != whole) return true;
  }
  if (absl::ConsumePrefix(&file, absl::StrCat(last, "-"))) {
    return AreOtherVersions(Order::kSemver, file, absl::AsciiStrToLower(version));
  }
  // A file of another name, that is of something with a version.
  const size_t hyphen = file.find('-');
  return lone != std::string::npos && hyphen != absl::string_view::npos &&
         absl::StrContains(file.substr(hyphen), ".");
}

// The same of what Poetry names: a wheel (NAME-VERSION-..) or a source distribution.
bool IsOfOtherPython(absl::string_view file, absl::string_view name, absl::string_view version) {
  const auto is_name = [&](absl::string_view text) {
    const auto one = PackageKey("PyPI", text), other = PackageKey("PyPI", name);
    return one.ok() && other.ok() && *one == *other;
  };
  if (absl::EndsWith(file, ".whl")) {
    const std::vector<absl::string_view> parts = absl::StrSplit(file, '-');
    return parts.size() >= 5 &&
           (!is_name(parts[0]) || AreOtherVersions(Order::kPep440, parts[1], version));
  }
  if (!absl::ConsumeSuffix(&file, ".tar.gz") && !absl::ConsumeSuffix(&file, ".tar.bz2") &&
      !absl::ConsumeSuffix(&file, ".tar.xz") && !absl::ConsumeSuffix(&file, ".zip")) {
    return false;
  }
  const size_t hyphen = file.rfind('-');
  return hyphen != absl::string_view::npos && is_name(file.substr(0, hyphen)) &&
         AreOtherVersions(Order::kPep440, file.substr(hyphen + 1), version);
}

bool HasFilesOfOther(const LockedPackage& package) {
  const toml::array* const files = (*package.table)["files"].as_array();
  return files != nullptr && std::any_of(files->begin(), files->end(), [&](const toml::node& file) {
           const toml::table* const table = file.as_table();
           if (table == nullptr) return false;
           const std::string name = (*table)["file"].value_or(std::string());
           return IsOfOtherPython(name, package.name, package.version);
         });
}

// The text of a member, if it has one: npm writes `true` where there is no address.
absl::StatusOr<std::string> AddressOf(const JsonView& package) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView view, package.Get("resolved"));
  const absl::StatusOr<absl::string_view> text = view.Text();
  return text.ok() ? std::string(*text) : "";
}

// An entry of a lock file, which may contradict its address.
absl::Status AddNpm(absl::string_view name, absl::string_view version, const JsonView& package,
                    Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::string address, AddressOf(package));
  // In place of a version an address says neither that nor the package's name for sure.
  const absl::string_view doubt = absl::StrContains(version, ":") ? "it comes from an address"
                                  : IsOfOtherNpm(address, name, version) ? kOfOther
                                                                         : "";
  return collector.Add("npm", name, version,
                       doubt.empty() ? Certainty::kCertain : Certainty::kDoubtful, doubt);
}

// A package as `dependencies` names it.
struct NpmDependency {
  absl::string_view name, version;
  bool is_address() const { return absl::StrContains(version, ":"); }
};
absl::StatusOr<NpmDependency> ReadDependency(absl::string_view name, const JsonView& package) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
  SHOAL_ASSIGN_OR_RETURN(absl::string_view version, version_view.Text());
  // "npm:lodash@4.17.20" is a package under another name.
  if (!absl::ConsumePrefix(&version, "npm:")) return NpmDependency{name, version};
  const size_t at = version.rfind('@');
  if (at == absl::string_view::npos || at == 0) {
    return version_view.Wrong("has no version behind the name");
  }
  return NpmDependency{version.substr(0, at), version.substr(at + 1)};
}

// Versions 1 of npm's lock files: packages in packages.
absl::Status ParseDependencies(const JsonView& dependencies, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {
      "version", "resolved", "integrity", "bundled",      "dev",  "optional",   "devOptional",
      "peer",    "requires", "from",      "dependencies", "name", "extraneous", "inBundle"};
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  for (const auto& [name, package] : members) {
    SHOAL_ASSIGN_OR_RETURN(const NpmDependency named, ReadDependency(name, package));
    if (absl::StartsWith(named.version, "file:") && !IsArchive(named.version)) {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(AddNpm(named.name, named.version, package, collector));
    }
    SHOAL_RETURN_IF_ERROR(SkipUnknown(package, kMembers, name, collector));
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, package.Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(ParseDependencies(inner, collector));
  }
  return absl::OkStatus();
}

// The entries of `packages` by their places.
using NpmPlaces = std::map<std::string, JsonView, std::less<>>;

// Version 2 has each package twice: in `packages`, which npm reads since its version 7, and in
// `dependencies` for those before. Whatever these say else is unchecked. `parent`: the place of the
// package that has them.
absl::Status SkipContradictions(const JsonView& dependencies, const std::string& parent,
                                const NpmPlaces& places, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  for (const auto& [name, package] : members) {
    std::string place = absl::StrCat(parent, parent.empty() ? "" : "/", kModules, name);
    SHOAL_ASSIGN_OR_RETURN(const NpmDependency named, ReadDependency(name, package));
    const auto found = places.find(place);
    if (found == places.end()) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(place, "is in `dependencies`, and not in `packages`"));
    } else {
      const JsonView& entry = found->second;
      SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, entry.Get("name"));
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view other_name, name_view.Text());
      SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, entry.Get("version"));
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view other_version, version_view.Text());
      SHOAL_ASSIGN_OR_RETURN(const std::string address, AddressOf(entry));
      // An address stands for whatever is there: so both have to name the same one.
      const bool is_same =
          named.is_address()
              ? named.version == address || named.version == absl::StrCat("file:", address)
              : named.version == other_version &&
                    named.name == (other_name.empty() ? name : other_name);
      if (!named.version.empty() && !is_same) {
        SHOAL_RETURN_IF_ERROR(
            collector.Skip(place, absl::StrCat("is another package in `dependencies`: ", named.name,
                                               " ", named.version)));
      }
      SHOAL_ASSIGN_OR_RETURN(const JsonView link_view, entry.Get("link"));
      SHOAL_ASSIGN_OR_RETURN(const bool link, link_view.Bool());
      if (link) place = address;
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, package.Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(SkipContradictions(inner, place, places, collector));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParsePackageLock(absl::string_view content, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {
      "name",         "version",          "lockfileVersion",  "requires", "packages",
      "dependencies", "preserveSymlinks", "packageIntegrity", "engines",  "lockfile-version",
      "_from",        "_resolved"};
  // Of an entry of `packages`: those of a package.json that npm copies, and its own.
  static constexpr absl::string_view kEntryMembers[] = {"name",
                                                        "version",
                                                        "resolved",
                                                        "integrity",
                                                        "link",
                                                        "dev",
                                                        "optional",
                                                        "devOptional",
                                                        "peer",
                                                        "extraneous",
                                                        "inBundle",
                                                        "hasShrinkwrap",
                                                        "_hasShrinkwrap",
                                                        "_integrity",
                                                        "hasInstallScript",
                                                        "dependencies",
                                                        "devDependencies",
                                                        "optionalDependencies",
                                                        "peerDependencies",
                                                        "peerDependenciesMeta",
                                                        "bundleDependencies",
                                                        "bundledDependencies",
                                                        "acceptDependencies",
                                                        "requires",
                                                        "workspaces",
                                                        "engines",
                                                        "os",
                                                        "cpu",
                                                        "libc",
                                                        "bin",
                                                        "funding",
                                                        "license",
                                                        "deprecated"};
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const JsonView lock_view, text.root().Get("lockfileVersion"));
  SHOAL_ASSIGN_OR_RETURN(const std::optional<int64_t> lock_version, lock_view.Integer());
  if (lock_version.has_value() && (*lock_version < 1 || *lock_version > kNewestPackageLock)) {
    return lock_view.Wrong("is a version of npm's format that is not read");
  }
  SHOAL_RETURN_IF_ERROR(SkipUnknown(text.root(), kMembers, "", collector));
  SHOAL_ASSIGN_OR_RETURN(const JsonView packages, text.root().Get("packages"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, packages.Members());
  SHOAL_ASSIGN_OR_RETURN(const JsonView dependencies, text.root().Get("dependencies"));
  // Unless `packages` names the project alone, or is not there.
  const bool has_places = std::ranges::any_of(members, [&](const JsonView::Member& member) {
    return absl::StrContains(member.name, kModules);
  });
  if (!has_places) SHOAL_RETURN_IF_ERROR(ParseDependencies(dependencies, collector));
  // The packages of the project's workspaces are those to which a link leads.
  std::set<absl::string_view> linked, paths;
  const auto is_link = [](const JsonView& package) -> absl::StatusOr<bool> {
    SHOAL_ASSIGN_OR_RETURN(const JsonView link_view, package.Get("link"));
    return link_view.Bool();
  };
  for (const auto& [path, package] : members) {
    SHOAL_ASSIGN_OR_RETURN(const bool link, is_link(package));
    SHOAL_ASSIGN_OR_RETURN(const JsonView to_view, package.Get("resolved"));
    if (!link) {
      paths.insert(path);
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view to, to_view.Text());
    linked.insert(to);
  }
  for (const auto& [path, package] : members) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(package, kEntryMembers, path, collector));
    const size_t at = path.rfind(kModules);
    SHOAL_ASSIGN_OR_RETURN(const bool link, is_link(package));
    if (path.empty()) {
      collector.Own();
      continue;
    }
    if (link) {
      SHOAL_ASSIGN_OR_RETURN(const JsonView to_view, package.Get("resolved"));
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view to, to_view.Text());
      if (paths.contains(to)) {
        collector.Own();
      } else {
        SHOAL_RETURN_IF_ERROR(collector.Skip(path, "is a link to what the file does not name"));
      }
      continue;
    }
    // What lies in node_modules is a package even if a link leads there, as npm's strategy "linked"
    // has it.
    if (at == absl::string_view::npos && linked.contains(path)) {
      collector.OwnPart(path);
      continue;
    }
    if (at == absl::string_view::npos) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(
          path, "is neither the project nor one of its workspaces nor in node_modules"));
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, package.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view version, version_view.Text());
    SHOAL_RETURN_IF_ERROR(AddNpm(name.empty() ? path.substr(at + kModules.size()) : name, version,
                                 package, collector));
  }
  if (!has_places) return absl::OkStatus();
  NpmPlaces places;
  for (const auto& [path, package] : members) places.emplace(std::string(path), package);
  return SkipContradictions(dependencies, "", places, collector);
}

absl::Status ParsePoetryLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const toml::table file, ParseToml(content, collector));
  if (const toml::table* const metadata = file["metadata"].as_table(); metadata != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(const std::string version, TextOf(*metadata, "lock-version", collector));
    const bool is_known =
        version.empty() || absl::StartsWith(version, "1.") || absl::StartsWith(version, "2.");
    if (!is_known) return collector.Wrong(1, "is of a version of Poetry's format that is not read");
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LockedPackage> packages,
                         ReadPackages(file, {"metadata", "extras"}, collector));
  // Poetry writes it last, and refuses a file without it.
  if (file.get("metadata") == nullptr)
    return collector.Wrong(1, "has no [metadata]: it is cut off");
  // Of all versions of Poetry's format.
  static constexpr absl::string_view kKnown[] = {
      "name",   "version", "description", "category",     "optional",    "python-versions",
      "marker", "markers", "groups",      "files",        "hashes",      "develop",
      "extras", "source",  "platform",    "requirements", "dependencies"};
  for (const LockedPackage& package : packages) {
    SHOAL_RETURN_IF_ERROR(SkipUnknownKeys(package, kKnown, collector));
    std::string type, address;
    if (const toml::node* const source = package.table->get("source"); source != nullptr) {
      if (!source->is_table()) {
        return collector.Wrong(source->source().begin.line, "a source is no table");
      }
      SHOAL_ASSIGN_OR_RETURN(type, TextOf(*source->as_table(), "type", collector));
      SHOAL_ASSIGN_OR_RETURN(address, TextOf(*source->as_table(), "url", collector));
    }
    if (type == "directory") {
      collector.Own();
      continue;
    }
    const bool is_of_other =
        IsOfOtherPython(BaseName(PathOfAddress(address)), package.name, package.version) ||
        HasFilesOfOther(package);
    SHOAL_RETURN_IF_ERROR(collector.Add("PyPI", package.name, package.version,
                                        is_of_other ? Certainty::kDoubtful : Certainty::kCertain,
                                        is_of_other ? kOfOther : ""));
  }
  return absl::OkStatus();
}

std::string NameOfCargoMember(absl::string_view content) {
  Inventory ignored;
  const std::string file;
  const Distribution distribution;
  const Collector collector(file, distribution, ignored);
  const absl::StatusOr<toml::table> manifest = ParseToml(content, collector);
  if (!manifest.ok() || manifest->contains("workspace")) return "";
  return (*manifest)["package"]["name"].value_or(std::string());
}

absl::Status ParseCargoLock(absl::string_view content, Collector& collector) {
  constexpr int64_t kNewest = 4;
  SHOAL_ASSIGN_OR_RETURN(const toml::table file, ParseToml(content, collector));
  if (const toml::node* const version = file.get("version"); version != nullptr) {
    const int64_t number = version->value<int64_t>().value_or(0);
    if (number < 1 || number > kNewest) {
      return collector.Wrong(version->source().begin.line,
                             "is of a version of Cargo's format that is not read");
    }
  }
  SHOAL_ASSIGN_OR_RETURN(std::vector<LockedPackage> packages,
                         ReadPackages(file, {"version", "root", "metadata", "patch"}, collector));
  // In the first version the project itself stands apart.
  if (const toml::node* const root = file.get("root"); root != nullptr) {
    if (!root->is_table()) return collector.Wrong(root->source().begin.line, "`root` is no table");
    SHOAL_ASSIGN_OR_RETURN(LockedPackage package, ReadPackage(*root->as_table(), collector));
    packages.push_back(std::move(package));
  }
  static constexpr absl::string_view kKnown[] = {"name",     "version",      "source",
                                                 "checksum", "dependencies", "replace"};
  for (const LockedPackage& package : packages) {
    SHOAL_ASSIGN_OR_RETURN(const std::string source, TextOf(*package.table, "source", collector));
    // What has no source lies in the project. So it must be sure that it has none.
    SHOAL_RETURN_IF_ERROR(SkipUnknownKeys(package, kKnown, collector));
    if (source.empty()) {
      collector.OwnPart(package.name);
    } else {
      SHOAL_RETURN_IF_ERROR(collector.Add("crates.io", package.name, package.version));
    }
  }
  return absl::OkStatus();
}

}  // namespace shoal::audit
