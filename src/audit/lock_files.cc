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
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/audit/toml.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

constexpr int64_t kNewestPackageLock = 3;
constexpr size_t kMaxNeedingBytes = 128;

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

// Why what `of` needs is unchecked. A name of millions of bytes is not said for each of its needs.
std::string NeededBy(absl::string_view of) {
  return absl::StrCat("is needed by ", of.substr(0, kMaxNeedingBytes), ", and is not in the file");
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
constexpr absl::string_view kFromAddress = "it comes from an address";

}  // namespace

absl::string_view DoubtOf(Said said) {
  return said == Said::kOther ? kOfOther : said == Said::kNothing ? kFromAddress : "";
}

absl::Status AddWithDoubt(absl::string_view ecosystem, absl::string_view name,
                          absl::string_view version, absl::string_view doubt,
                          Collector& collector) {
  return collector.Add(ecosystem, name, version,
                       doubt.empty() ? Certainty::kCertain : Certainty::kDoubtful, doubt);
}

namespace {

// Whether both texts are one version. What is no version is the same as its own text alone.
bool IsSameVersion(Order order, absl::string_view a, absl::string_view b) {
  return a == b || CompareTexts(order, a, b) == 0;
}

}  // namespace

std::string PathOfAddress(absl::string_view address) {
  const std::string lower = absl::AsciiStrToLower(address);
  absl::string_view rest = lower;
  if (!absl::ConsumePrefix(&rest, "https://") && !absl::ConsumePrefix(&rest, "http://") &&
      !absl::ConsumePrefix(&rest, "file:") && absl::StrContains(rest, ":")) {
    return "";
  }
  return PercentDecoded(rest.substr(0, rest.find_first_of("?#"))).value_or("");
}

namespace {

// What parts the name of a package from that of its archive at registries of npm.
constexpr char kLoneHyphen[] = "/-/";

// The package whose archives lie in a directory of a registry of npm: the last part of the way,
// with its scope.
std::string OwnerOf(absl::string_view way) {
  const absl::string_view scope = BaseName(way.substr(0, way.rfind('/')));
  return absl::StartsWith(scope, "@") ? absl::StrCat(scope, "/", BaseName(way))
                                      : std::string(BaseName(way));
}

// The package and the version that an address of a registry names. Nothing of any other address.
std::optional<std::pair<std::string, std::string>> NamedByAddress(absl::string_view address) {
  const std::string path = PathOfAddress(address);
  const size_t lone = path.rfind(kLoneHyphen);
  if (lone == std::string::npos) return std::nullopt;
  const std::string owner = OwnerOf(path.substr(0, lone));
  absl::string_view file = BaseName(path);
  if (!ConsumeArchiveEnd(&file) ||
      !absl::ConsumePrefix(&file, absl::StrCat(BaseName(owner), "-"))) {
    return std::nullopt;
  }
  return std::pair(owner, std::string(file));
}

}  // namespace

// Registries and their mirrors have archives at
// WAY/NAME/-/FILE-VERSION.tgz, where NAME may have a scope; that is known by the lone hyphen.
// Others have a way of their own, which counts where the archive is called after the package, as
// npm pack calls it, or lies below NAME/VERSION. Of a repository, or of a file of any other name,
// nobody knows which package and version it has: npm copies what the package says of itself.
Said SaidOfNpm(absl::string_view address, absl::string_view name, absl::string_view version) {
  const std::string path = PathOfAddress(address), whole = absl::AsciiStrToLower(name),
                    number = absl::AsciiStrToLower(version), last = std::string(BaseName(whole));
  absl::string_view file = BaseName(path);
  const bool is_archive = ConsumeArchiveEnd(&file);
  // The last one: a way may have others, as that of GitLab's groups.
  const size_t lone = path.rfind(kLoneHyphen);
  if (lone != std::string::npos && OwnerOf(path.substr(0, lone)) != whole) return Said::kOther;
  if (!is_archive) {
    return lone == std::string::npos && absl::EndsWith(path.substr(0, path.rfind('/')),
                                                       absl::StrCat("/", whole, "/", number))
               ? Said::kSame
               : Said::kNothing;
  }
  const std::string packed = absl::StrReplaceAll(whole, {{"@", ""}, {"/", "-"}});
  for (const std::string& of : {last, packed}) {
    absl::string_view rest = file;
    if (!absl::ConsumePrefix(&rest, absl::StrCat(of, "-"))) continue;
    if (IsSameVersion(Order::kSemver, rest, number)) return Said::kSame;
    return Said::kOther;
  }
  // A file of another name, that is of something with a version.
  const size_t hyphen = file.find('-');
  if (hyphen != absl::string_view::npos && absl::StrContains(file.substr(hyphen), ".")) {
    return Said::kOther;
  }
  // Some registries call archives by their hashes.
  return lone == std::string::npos ? Said::kNothing : Said::kSame;
}

Said SaidOfPython(absl::string_view file, absl::string_view name,
                  std::span<const absl::string_view> versions) {
  const auto is_name = [&](absl::string_view text) { return IsSamePackage("PyPI", text, name); };
  const auto is_version = [&](absl::string_view text) {
    return std::ranges::any_of(versions, [&](absl::string_view version) {
      return IsSameVersion(Order::kPep440, text, version);
    });
  };
  if (absl::EndsWith(file, ".whl")) {
    const std::vector<absl::string_view> parts = absl::StrSplit(file, '-');
    if (parts.size() < 5) return Said::kNothing;
    // A wheel's name has an underscore in place of what its version may not have there.
    const bool is_same = is_version(parts[1]) ||
                         is_version(absl::StrReplaceAll(parts[1], {{"_", "-"}})) ||
                         is_version(absl::StrReplaceAll(parts[1], {{"_", "+"}})) ||
                         is_version(absl::StrReplaceAll(parts[1], {{"_", "!"}}));
    return is_name(parts[0]) && is_same ? Said::kSame : Said::kOther;
  }
  if (!absl::ConsumeSuffix(&file, ".tar.gz") && !absl::ConsumeSuffix(&file, ".tgz") &&
      !absl::ConsumeSuffix(&file, ".tar.bz2") && !absl::ConsumeSuffix(&file, ".tar.xz") &&
      !absl::ConsumeSuffix(&file, ".zip")) {
    return Said::kNothing;
  }
  // Names and versions may have hyphens.
  for (size_t at = file.find('-'); at != absl::string_view::npos; at = file.find('-', at + 1)) {
    if (is_name(file.substr(0, at)) && is_version(file.substr(at + 1))) return Said::kSame;
  }
  return absl::StrContains(file, "-") ? Said::kOther : Said::kNothing;
}

namespace {

// The same of a list of files, of which each may contradict.
Said SaidOfFiles(const toml::node* files, absl::string_view name,
                 std::span<const absl::string_view> versions) {
  const toml::array* const list = files == nullptr ? nullptr : files->as_array();
  if (list == nullptr) return Said::kNothing;
  Said said = Said::kNothing;
  for (const toml::node& file : *list) {
    const toml::table* const table = file.as_table();
    if (table == nullptr) continue;
    const Said of_file = SaidOfPython((*table)["file"].value_or(std::string()), name, versions);
    if (of_file == Said::kOther) return of_file;
    if (of_file == Said::kSame) said = of_file;
  }
  return said;
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
  absl::string_view doubt;
  if (absl::StrContains(version, ":")) {
    doubt = kFromAddress;
  } else if (!address.empty()) {
    doubt = DoubtOf(SaidOfNpm(address, name, version));
  }
  if (doubt == kOfOther) {
    // npm installs what is at the address.
    if (const auto other = NamedByAddress(address); other.has_value()) {
      SHOAL_RETURN_IF_ERROR(collector.Add("npm", other->first, other->second, Certainty::kPossible,
                                          absl::StrCat("it is at the address of ", name)));
    }
  }
  return AddWithDoubt("npm", name, version, doubt, collector);
}

// The packages in one node_modules by the names of their directories, and in all of them that a
// package can use, the nearest first.
using Names = std::map<absl::string_view, NpmPackage>;
using Scopes = std::vector<const Names*>;
using Exempt = std::set<absl::string_view>;

}  // namespace

std::optional<NpmPackage> ExactOfNpm(absl::string_view name, absl::string_view asked) {
  NpmPackage exact = {name, absl::StripAsciiWhitespace(asked)};
  if (absl::ConsumePrefix(&exact.version, "npm:")) {
    const absl::string_view real = exact.version;
    const size_t at = real.rfind('@');
    if (at == absl::string_view::npos || at == 0) return std::nullopt;
    exact = {real.substr(0, at), real.substr(at + 1)};
  }
  absl::ConsumePrefix(&exact.version, "=");
  exact.version = absl::StripLeadingAsciiWhitespace(exact.version);
  if (!Version::Parse(Order::kSemver, exact.version).has_value()) return std::nullopt;
  return exact;
}

absl::Status AddAskedFor(absl::string_view ecosystem, absl::string_view name,
                         absl::string_view version, absl::string_view by, Collector& collector) {
  return collector.Add(ecosystem, name, version, Certainty::kPossible,
                       absl::StrCat(by.substr(0, kMaxNeedingBytes),
                                    " asks for this version, and the lock file has another"));
}

namespace {

// What needs something. Empty `place`: the project itself.
struct Needing {
  absl::string_view place;
  // Of the project and its workspaces. What a package asks for the project may override.
  bool is_project = false;
};

// Marks what is needed and nothing in reach provides, or in another version than the one that is
// asked for.
absl::Status SkipMissing(const std::vector<JsonView::Member>& needs, const Exempt& exempt,
                         const Scopes& scopes, const Needing& needing, Collector& collector) {
  const absl::string_view of = needing.place.empty() ? "the project" : needing.place;
  for (const JsonView::Member& need : needs) {
    const auto scope = std::ranges::find_if(
        scopes, [&](const Names* names) { return names->contains(need.name); });
    if (scope == scopes.end()) {
      if (!exempt.contains(need.name)) {
        SHOAL_RETURN_IF_ERROR(collector.Skip(need.name, NeededBy(of)));
      }
      continue;
    }
    if (!needing.is_project) continue;
    const NpmPackage& found = (*scope)->at(need.name);
    const std::optional<NpmPackage> exact =
        ExactOfNpm(need.name, need.value.Text().value_or(absl::string_view()));
    // A link has no version.
    if (!exact.has_value() || found.version.empty() ||
        (found.name == exact->name &&
         CompareTexts(Order::kSemver, found.version, exact->version) == 0)) {
      continue;
    }
    SHOAL_RETURN_IF_ERROR(AddAskedFor("npm", exact->name, exact->version, of, collector));
  }
  return absl::OkStatus();
}

// A package as `dependencies` names it.
bool IsAddress(const NpmPackage& package) { return absl::StrContains(package.version, ":"); }
absl::StatusOr<NpmPackage> ReadDependency(absl::string_view name, const JsonView& package) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
  SHOAL_ASSIGN_OR_RETURN(absl::string_view version, version_view.Text());
  // "npm:lodash@4.17.20" is a package under another name.
  if (!absl::ConsumePrefix(&version, "npm:")) return NpmPackage{name, version};
  const size_t at = version.rfind('@');
  if (at == absl::string_view::npos || at == 0) {
    return version_view.Wrong("has no version behind the name");
  }
  return NpmPackage{version.substr(0, at), version.substr(at + 1)};
}

// All that one `dependencies` names.
absl::StatusOr<Names> NamesOf(const JsonView& dependencies) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  Names names;
  for (const auto& [name, package] : members) {
    SHOAL_ASSIGN_OR_RETURN(names[name], ReadDependency(name, package));
  }
  return names;
}

// Version 1 of npm's lock files: packages in packages. `outer`: the names around these.
absl::Status ParseDependencies(const JsonView& dependencies, const Scopes& outer,
                               Collector& collector) {
  static constexpr absl::string_view kMembers[] = {
      "version", "resolved", "integrity", "bundled",      "dev",  "optional",   "devOptional",
      "peer",    "requires", "from",      "dependencies", "name", "extraneous", "inBundle"};
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  SHOAL_ASSIGN_OR_RETURN(const Names names, NamesOf(dependencies));
  Scopes scopes = outer;
  scopes.insert(scopes.begin(), &names);
  for (const auto& [name, package] : members) {
    const NpmPackage& named = names.at(name);
    if (absl::StartsWith(named.version, "file:") && !IsArchive(named.version)) {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(AddNpm(named.name, named.version, package, collector));
    }
    SHOAL_RETURN_IF_ERROR(SkipUnknown(package, kMembers, name, collector));
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, package.Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(ParseDependencies(inner, scopes, collector));
    // What it requires may lie below it.
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> below, inner.Members());
    Exempt own;
    for (const JsonView::Member& member : below) own.insert(member.name);
    SHOAL_ASSIGN_OR_RETURN(const JsonView requires_view, package.Get("requires"));
    if (requires_view.Bool().ok()) continue;  // as the whole file has it
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> needs, requires_view.Members());
    SHOAL_RETURN_IF_ERROR(SkipMissing(needs, own, scopes, {.place = name}, collector));
  }
  return absl::OkStatus();
}

// Longer ones than any that a file system has would take very long to look through.
constexpr size_t kMaxPlaceBytes = 4096;

// What is read of an entry of `packages`.
struct NpmEntry {
  absl::string_view name, version;  // the name may be that of the directory
  std::string address;              // of a link, to where it leads; the project itself is at ""
  bool is_link = false, has_address = false;
};
absl::StatusOr<NpmEntry> ReadEntry(absl::string_view place, const JsonView& package) {
  NpmEntry entry;
  SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, package.Get("name"));
  SHOAL_ASSIGN_OR_RETURN(entry.name, name_view.Text());
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
  SHOAL_ASSIGN_OR_RETURN(entry.version, version_view.Text());
  SHOAL_ASSIGN_OR_RETURN(const JsonView link_view, package.Get("link"));
  SHOAL_ASSIGN_OR_RETURN(entry.is_link, link_view.Bool());
  SHOAL_ASSIGN_OR_RETURN(const JsonView address_view, package.Get("resolved"));
  entry.has_address = address_view.is_text();
  SHOAL_ASSIGN_OR_RETURN(entry.address, AddressOf(package));
  const size_t at = place.rfind(kModules);
  if (entry.name.empty() && at != absl::string_view::npos) {
    entry.name = place.substr(at + kModules.size());
  }
  return entry;
}

// The entries of `packages` by their places.
using NpmPlaces = std::map<absl::string_view, NpmEntry>;

// Which packages lie in which node_modules, by the directories that have these.
class NpmTree {
 public:
  void Add(absl::string_view place, const NpmEntry& entry) {
    const size_t at = place.rfind(kModules);
    if (at == absl::string_view::npos || (at > 0 && place[at - 1] != '/')) return;
    names_[place.substr(0, at == 0 ? 0 : at - 1)].emplace(place.substr(at + kModules.size()),
                                                          NpmPackage{entry.name, entry.version});
  }

  // What a package at this place finds there and in the directories above, as node looks for it.
  Scopes Reach(absl::string_view place) const {
    Scopes scopes;
    // What lies outside of the project does not reach it.
    const bool is_outside = absl::StartsWith(place, "..") || absl::StartsWith(place, "/") ||
                            absl::StrContains(place, ":");
    for (absl::string_view at = place; !at.empty() || !is_outside;) {
      if (const auto found = names_.find(at); found != names_.end()) {
        scopes.push_back(&found->second);
      }
      if (at.empty()) break;
      const size_t slash = at.rfind('/');
      at = at.substr(0, slash == absl::string_view::npos ? 0 : slash);
    }
    return scopes;
  }

 private:
  std::map<absl::string_view, Names, std::less<>> names_;
};

// Marks what an entry of `packages` needs and the file does not name. What is optional for a
// package may be missing; npm keeps what is optional for the project, whatever the system. Peers
// may be missing, too: not every version of npm installs these.
absl::Status SkipMissingOf(absl::string_view place, const JsonView& package, const Scopes& scopes,
                           Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView optional_view, package.Get("optionalDependencies"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> optional, optional_view.Members());
  Exempt exempt;
  for (const JsonView::Member& member : optional) exempt.insert(member.name);
  // Tools to work on a package are there for the project and its workspaces.
  const bool is_project = !absl::StrContains(place, kModules) && !absl::StartsWith(place, "..");
  const Needing needing = {.place = place, .is_project = is_project};
  for (const char* const kind : {"dependencies", "devDependencies"}) {
    if (!is_project && kind == absl::string_view("devDependencies")) continue;
    SHOAL_ASSIGN_OR_RETURN(const JsonView needs_view, package.Get(kind));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> needs, needs_view.Members());
    SHOAL_RETURN_IF_ERROR(SkipMissing(needs, exempt, scopes, needing, collector));
  }
  return is_project ? SkipMissing(optional, {}, scopes, needing, collector) : absl::OkStatus();
}

// Version 2 has each package twice: in `packages`, which npm reads since its version 7, and in
// `dependencies` for those before. Whatever these say else is unchecked. `parent`: the place of the
// package that has them.
absl::Status SkipContradictions(const JsonView& dependencies, const std::string& parent,
                                const NpmPlaces& places, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  for (const auto& [name, package] : members) {
    std::string place = absl::StrCat(parent, parent.empty() ? "" : "/", kModules, name);
    SHOAL_ASSIGN_OR_RETURN(const NpmPackage named, ReadDependency(name, package));
    const auto found = places.find(place);
    if (found == places.end()) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(place, "is in `dependencies`, and not in `packages`"));
    } else {
      const NpmEntry& entry = found->second;
      // An address stands for whatever is there: so both have to name the same one.
      const bool is_same = IsAddress(named)
                               ? named.version == entry.address ||
                                     named.version == absl::StrCat("file:", entry.address)
                               : named.version == entry.version && named.name == entry.name;
      if (!named.version.empty() && !is_same) {
        SHOAL_RETURN_IF_ERROR(
            collector.Skip(place, absl::StrCat("is another package in `dependencies`: ", named.name,
                                               " ", named.version)));
      }
      SHOAL_ASSIGN_OR_RETURN(const std::string own_address, AddressOf(package));
      if (!IsAddress(named) && !own_address.empty() &&
          SaidOfNpm(own_address, named.name, named.version) != Said::kSame) {
        SHOAL_RETURN_IF_ERROR(
            collector.Skip(place, "is at the address of something else in `dependencies`"));
      }
      if (entry.is_link) place = entry.address;
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, package.Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(SkipContradictions(inner, place, places, collector));
  }
  return absl::OkStatus();
}

using PoetryVersions = std::map<std::string, std::vector<absl::string_view>>;

// Marks what a package needs under all circumstances and the file does not list.
absl::Status SkipMissingOf(const LockedPackage& package, const PoetryVersions& versions,
                           Collector& collector) {
  const toml::node* const node = package.table->get("dependencies");
  if (node == nullptr) return absl::OkStatus();
  if (!node->is_table()) {
    return collector.Wrong(node->source().begin.line, "`dependencies` is no table");
  }
  static constexpr absl::string_view kConditions[] = {"optional", "markers", "marker", "python",
                                                      "platform"};
  for (const auto& [key, need] : *node->as_table()) {
    if (IsConditional(need, kConditions)) continue;
    if (versions.contains(KeyOrName("PyPI", KeyOf(key)))) continue;
    SHOAL_RETURN_IF_ERROR(collector.Skip(KeyOf(key), NeededBy(package.name)));
  }
  return absl::OkStatus();
}

// Until version 1.1 files and hashes of all packages stand together, by the packages' names. Finds
// the files. What these name and no package is, or what is not known there, is unchecked.
absl::Status ReadPoetryMetadata(const toml::table& metadata, const PoetryVersions& versions,
                                std::map<std::string, const toml::node*>& files,
                                Collector& collector) {
  static constexpr absl::string_view kKnown[] = {"lock-version", "python-versions", "content-hash",
                                                 "platform"};
  for (const auto& [key, node] : metadata) {
    const absl::string_view part = KeyOf(key);
    if (std::ranges::find(kKnown, part) != std::end(kKnown)) continue;
    if (part != "files" && part != "hashes") {
      SHOAL_RETURN_IF_ERROR(collector.Skip(absl::StrCat("metadata.", part), kUnknownPart));
      continue;
    }
    if (!node.is_table()) {
      return collector.Wrong(node.source().begin.line, absl::StrCat(part, " is no table"));
    }
    for (const auto& [name, list] : *node.as_table()) {
      const std::string of = KeyOrName("PyPI", KeyOf(name));
      if (!versions.contains(of)) {
        SHOAL_RETURN_IF_ERROR(
            collector.Skip(KeyOf(name), absl::StrCat("is named in metadata.", part,
                                                     ", and is no package of the "
                                                     "file")));
      }
      if (part == "files") files[of] = &list;
    }
  }
  return absl::OkStatus();
}

// The packages of a lock file of Cargo.
class CargoPackages {
 public:
  void Add(const LockedPackage& package, bool has_source) {
    const std::string version = absl::StrCat(package.name, " ", package.version);
    known_.insert({package.name, version});
    if (has_source) known_.insert(absl::StrCat(version, " ("));
  }

  // Whether the file lists what a dependency names: "NAME", "NAME VERSION" or "NAME VERSION
  // (SOURCE)". What has a source there is no package of the project, which have none.
  bool Have(absl::string_view dependency) const {
    const size_t source = dependency.find(" (");
    return known_.contains(
        dependency.substr(0, source == absl::string_view::npos ? source : source + 2));
  }

 private:
  std::set<std::string, std::less<>> known_;
};

// Marks what dependencies of a package name and the file does not list.
absl::Status SkipMissingOf(const LockedPackage& package, const CargoPackages& packages,
                           Collector& collector) {
  const toml::node* const node = package.table->get("dependencies");
  if (node == nullptr) return absl::OkStatus();
  const toml::array* const list = node->as_array();
  if (list == nullptr) {
    return collector.Wrong(node->source().begin.line, "`dependencies` is not a list of texts");
  }
  for (const toml::node& item : *list) {
    if (!item.is_string()) {
      return collector.Wrong(item.source().begin.line, "`dependencies` is not a list of texts");
    }
    const std::string& dependency = item.as_string()->get();
    if (packages.Have(dependency)) continue;
    SHOAL_RETURN_IF_ERROR(collector.Skip(dependency, NeededBy(package.name)));
  }
  return absl::OkStatus();
}

// The first version has checksums apart: "checksum NAME VERSION (SOURCE)".
absl::Status SkipOtherChecksums(const toml::table& file, const CargoPackages& packages,
                                Collector& collector) {
  const toml::node* const node = file.get("metadata");
  if (node == nullptr) return absl::OkStatus();
  if (!node->is_table()) {
    return collector.Wrong(node->source().begin.line, "`metadata` is no table");
  }
  for (const auto& [key, value] : *node->as_table()) {
    absl::string_view of = KeyOf(key);
    if (!absl::ConsumePrefix(&of, "checksum ")) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(absl::StrCat("metadata.", of), kUnknownPart));
    } else if (!packages.Have(of)) {
      SHOAL_RETURN_IF_ERROR(
          collector.Skip(of, "has a checksum in the file, and is no package of it"));
    }
  }
  return absl::OkStatus();
}

// Marks what replaces a package and the file does not list.
absl::Status SkipMissingReplacement(const LockedPackage& package, const CargoPackages& packages,
                                    Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::string replacement,
                         TextOf(*package.table, "replace", collector));
  if (replacement.empty() || packages.Have(replacement)) return absl::OkStatus();
  return collector.Skip(replacement,
                        absl::StrCat("replaces ", package.name.substr(0, kMaxNeedingBytes),
                                     ", and is not in the file"));
}

// Reads a lock file of npm. Call Read() once.
class PackageLockReader {
 public:
  explicit PackageLockReader(Collector& collector) : collector_(collector) {}

  absl::Status Read(const JsonView& lock);

 private:
  absl::Status FindPlaces(const std::vector<JsonView::Member>& members);
  // What an entry of `packages` says beside which package it is. `alone`: what it may need, where
  // `packages` has the project alone.
  absl::Status CheckEntry(absl::string_view place, const JsonView& package, const Names* alone);
  absl::Status TakeEntry(absl::string_view place, const JsonView& package);

  Collector& collector_;
  NpmPlaces places_;
  NpmTree tree_;
  // To where links lead: to the project's workspaces.
  std::set<std::string, std::less<>> linked_;
};

absl::Status PackageLockReader::FindPlaces(const std::vector<JsonView::Member>& members) {
  for (const auto& [place, package] : members) {
    SHOAL_ASSIGN_OR_RETURN(NpmEntry entry, ReadEntry(place, package));
    if (entry.is_link && entry.has_address) linked_.insert(entry.address);
    tree_.Add(place, entry);
    places_.emplace(place, std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status PackageLockReader::CheckEntry(absl::string_view place, const JsonView& package,
                                           const Names* alone) {
  // Those of a package.json that npm copies, and its own.
  static constexpr absl::string_view kMembers[] = {"name",
                                                   "version",
                                                   "resolved",
                                                   "integrity",
                                                   "link",
                                                   "dev",
                                                   "optional",
                                                   "devOptional",
                                                   "peer",
                                                   "ideallyInert",
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
  SHOAL_RETURN_IF_ERROR(SkipUnknown(package, kMembers, place, collector_));
  if (place.size() > kMaxPlaceBytes) {
    return collector_.Skip(place, "is a place that no file system has");
  }
  return SkipMissingOf(place, package, alone != nullptr ? Scopes{alone} : tree_.Reach(place),
                       collector_);
}

absl::Status PackageLockReader::TakeEntry(absl::string_view place, const JsonView& package) {
  const NpmEntry& entry = places_.at(place);
  if (place.empty()) {
    collector_.Own();
    return absl::OkStatus();
  }
  if (entry.is_link) {
    const auto to = places_.find(entry.address);
    if (!entry.has_address || to == places_.end() || to->second.is_link) {
      return collector_.Skip(place, "is a link to what the file does not name");
    }
    collector_.Own();
    return absl::OkStatus();
  }
  // What lies in node_modules is a package even if a link leads there, as npm's strategy "linked"
  // has it.
  if (absl::StrContains(place, kModules)) {
    return AddNpm(entry.name, entry.version, package, collector_);
  }
  if (!linked_.contains(place)) {
    return collector_.Skip(place,
                           "is neither the project nor one of its workspaces nor in node_modules");
  }
  collector_.OwnPart(place);
  return absl::OkStatus();
}

absl::Status PackageLockReader::Read(const JsonView& lock) {
  static constexpr absl::string_view kMembers[] = {
      "name",         "version",          "lockfileVersion",  "requires", "packages",
      "dependencies", "preserveSymlinks", "packageIntegrity", "engines",  "lockfile-version",
      "_from",        "_resolved"};
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, lock.Get("lockfileVersion"));
  SHOAL_ASSIGN_OR_RETURN(const std::optional<int64_t> version, version_view.Integer());
  if (version.has_value() && (*version < 1 || *version > kNewestPackageLock)) {
    return version_view.Wrong("is a version of npm's format that is not read");
  }
  SHOAL_RETURN_IF_ERROR(SkipUnknown(lock, kMembers, "", collector_));
  SHOAL_ASSIGN_OR_RETURN(const JsonView packages, lock.Get("packages"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, packages.Members());
  SHOAL_ASSIGN_OR_RETURN(const JsonView dependencies, lock.Get("dependencies"));
  SHOAL_RETURN_IF_ERROR(FindPlaces(members));
  // Unless `packages` names the project alone, or is not there.
  const bool has_places = std::ranges::any_of(members, [&](const JsonView::Member& member) {
    return absl::StrContains(member.name, kModules);
  });
  Names alone;
  if (!has_places) {
    SHOAL_RETURN_IF_ERROR(ParseDependencies(dependencies, {}, collector_));
    SHOAL_ASSIGN_OR_RETURN(alone, NamesOf(dependencies));
  }
  for (const auto& [place, package] : members) {
    SHOAL_RETURN_IF_ERROR(CheckEntry(place, package, has_places ? nullptr : &alone));
    SHOAL_RETURN_IF_ERROR(TakeEntry(place, package));
  }
  return has_places ? SkipContradictions(dependencies, "", places_, collector_) : absl::OkStatus();
}

}  // namespace

absl::Status ParsePackageLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  return PackageLockReader(collector).Read(text.root());
}

absl::Status ParsePoetryLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const toml::table file, ParseToml(content, collector.file()));
  const toml::table* const metadata = file["metadata"].as_table();
  if (metadata != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(const std::string version, TextOf(*metadata, "lock-version", collector));
    const bool is_known =
        version.empty() || absl::StartsWith(version, "1.") || absl::StartsWith(version, "2.");
    if (!is_known) return collector.Wrong(1, "is of a version of Poetry's format that is not read");
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LockedPackage> packages,
                         ReadPackages(file, {"metadata", "extras"}, collector));
  // Poetry writes it last, and refuses a file without it.
  if (metadata == nullptr) return collector.Wrong(1, "has no [metadata]: it is cut off");
  // One package may be there in several versions, for several versions of Python.
  std::map<std::string, std::vector<absl::string_view>> versions;
  for (const LockedPackage& package : packages) {
    versions[KeyOrName("PyPI", package.name)].push_back(package.version);
  }
  std::map<std::string, const toml::node*> files;
  SHOAL_RETURN_IF_ERROR(ReadPoetryMetadata(*metadata, versions, files, collector));
  // Of all versions of Poetry's format.
  static constexpr absl::string_view kKnown[] = {
      "name",   "version", "description", "category",     "optional",    "python-versions",
      "marker", "markers", "groups",      "files",        "hashes",      "develop",
      "extras", "source",  "platform",    "requirements", "dependencies"};
  for (const LockedPackage& package : packages) {
    SHOAL_RETURN_IF_ERROR(SkipUnknownKeys(package, kKnown, collector));
    SHOAL_RETURN_IF_ERROR(SkipMissingOf(package, versions, collector));
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
    const std::string key = KeyOrName("PyPI", package.name);
    const absl::string_view version = package.version;
    absl::string_view doubt;
    // An index is asked for a package by name and version. What comes from elsewhere is what it is.
    if (!type.empty() && type != "legacy") {
      doubt = DoubtOf(SaidOfPython(BaseName(PathOfAddress(address)), package.name, {&version, 1}));
    }
    if (SaidOfFiles(package.table->get("files"), package.name, {&version, 1}) == Said::kOther ||
        SaidOfFiles(files[key], package.name, versions[key]) == Said::kOther) {
      doubt = kOfOther;
    }
    SHOAL_RETURN_IF_ERROR(AddWithDoubt("PyPI", package.name, version, doubt, collector));
  }
  return absl::OkStatus();
}

std::string NameOfCargoMember(absl::string_view content) {
  const absl::StatusOr<toml::table> manifest = ParseToml(content, "");
  if (!manifest.ok() || manifest->contains("workspace")) return "";
  return (*manifest)["package"]["name"].value_or(std::string());
}

absl::Status ParseCargoLock(absl::string_view content, Collector& collector) {
  constexpr int64_t kNewest = 4;
  SHOAL_ASSIGN_OR_RETURN(const toml::table file, ParseToml(content, collector.file()));
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
  std::vector<std::string> sources;
  CargoPackages known;
  for (const LockedPackage& package : packages) {
    SHOAL_ASSIGN_OR_RETURN(std::string source, TextOf(*package.table, "source", collector));
    known.Add(package, !source.empty());
    sources.push_back(std::move(source));
  }
  SHOAL_RETURN_IF_ERROR(SkipOtherChecksums(file, known, collector));
  for (size_t i = 0; i < packages.size(); ++i) {
    const LockedPackage& package = packages[i];
    // What has no source lies in the project. So it must be sure that it has none.
    SHOAL_RETURN_IF_ERROR(SkipUnknownKeys(package, kKnown, collector));
    SHOAL_RETURN_IF_ERROR(SkipMissingOf(package, known, collector));
    SHOAL_RETURN_IF_ERROR(SkipMissingReplacement(package, known, collector));
    if (sources[i].empty()) {
      collector.OwnPart(package.name);
      continue;
    }
    // A registry is asked for a package by name and version. The version of what comes from a
    // repository is the one that it says of itself, at any commit.
    const bool is_registry =
        absl::StartsWith(sources[i], "registry+") || absl::StartsWith(sources[i], "sparse+");
    SHOAL_RETURN_IF_ERROR(AddWithDoubt("crates.io", package.name, package.version,
                                       is_registry ? "" : kFromAddress, collector));
  }
  return absl::OkStatus();
}

}  // namespace shoal::audit
