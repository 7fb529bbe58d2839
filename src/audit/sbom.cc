// What bills of materials of all notations name: package URLs, and what stands beside them.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/bill.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/audit/version.h"
#include "src/base/ascii.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

constexpr size_t kMaxSubpathBytes = 1024;

// "debian-12.5" -> "Debian:12". Empty for what is no release of Debian or Ubuntu.
std::string DistributionOfQualifier(absl::string_view distro) {
  // A line's end would begin another line of an os-release.
  if (!IsOfAlnumAnd("-.", distro)) return "";
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(distro, absl::MaxSplits('-', 1));
  absl::string_view release = parts.second;
  if (parts.first == "debian") release = release.substr(0, release.find('.'));
  if (release.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(release[0]))) return "";
  return DistributionOf(absl::StrCat("ID=", parts.first, "\nVERSION_ID=", release));
}

}  // namespace

std::string GoRelease(absl::string_view text) {
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, "go")) absl::ConsumePrefix(&rest, "v");
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  std::string release;
  for (int part = 0; part < 3; ++part) {
    const size_t end = std::find_if_not(rest.begin(), rest.end(), is_digit) - rest.begin();
    if (end == 0) return std::string(text);
    absl::StrAppend(&release, part == 0 ? "" : ".", rest.substr(0, end));
    rest.remove_prefix(end);
    if (part < 2 && !absl::ConsumePrefix(&rest, ".")) {
      for (; part < 2; ++part) absl::StrAppend(&release, ".0");
    }
  }
  // SemVer would have "-rc10" before "-rc9".
  absl::ConsumePrefix(&rest, "-");
  for (const absl::string_view stage : {"rc", "beta"}) {
    if (!absl::ConsumePrefix(&rest, stage)) continue;
    absl::ConsumePrefix(&rest, ".");
    if (rest.empty() || !std::all_of(rest.begin(), rest.end(), is_digit)) return std::string(text);
    return absl::StrCat(release, "-", stage, ".", rest);
  }
  return rest.empty() ? release : std::string(text);
}

absl::Status AddGoToolchain(absl::string_view module, absl::string_view version,
                            Collector& collector) {
  if (!absl::EqualsIgnoreCase(module, "golang.org/toolchain")) return absl::OkStatus();
  // What is written otherwise says no version of Go.
  std::string release;
  if (absl::ConsumePrefix(&version, "v0.0.1-") && absl::StartsWith(version, "go")) {
    const size_t dot = version.rfind('.');
    const bool is_system =
        dot != absl::string_view::npos && absl::StrContains(version.substr(dot), "-");
    release = GoRelease(version.substr(0, is_system ? dot : absl::string_view::npos));
  }
  for (const char* part : {"stdlib", "toolchain"}) {
    SHOAL_RETURN_IF_ERROR(collector.Add("Go", part, release));
  }
  return absl::OkStatus();
}

namespace {

// The major version that the last part of a module's path names: 2 for "v2" and "yaml.v2". Nothing
// if it names none.
std::optional<absl::string_view> MajorOfPath(absl::string_view path) {
  absl::string_view part = BaseName(path);
  const size_t dot = part.rfind(".v");
  if (dot != absl::string_view::npos && absl::StartsWith(path, "gopkg.in/")) {
    part.remove_prefix(dot + 1);
  }
  if (!absl::ConsumePrefix(&part, "v") || part.empty() ||
      !std::ranges::all_of(part, absl::ascii_isdigit)) {
    return std::nullopt;
  }
  return part;
}

// The paths of modules that may hold what a package URL names, the shortest first: what stands
// before a part of it. The path of a module begins with a host, and has the major version in it
// from the second on.
std::vector<absl::string_view> ModulesAround(absl::string_view path, absl::string_view version) {
  // What a host has before the names of its modules.
  static constexpr std::pair<absl::string_view, size_t> kBegins[] = {
      {"github.com/", 2}, {"gitlab.com/", 2}, {"bitbucket.org/", 2}, {"golang.org/x/", 2}};
  absl::ConsumePrefix(&version, "v");
  // A commit, or nothing, says no major version: then a module may have any.
  const bool says_major = Version::Parse(Order::kSemver, version).has_value();
  const absl::string_view major = version.substr(0, version.find('.'));
  std::vector<absl::string_view> modules;
  if (!absl::StrContains(path.substr(0, path.find('/')), ".")) return modules;
  size_t least = 0;
  for (const auto& [begin, parts] : kBegins) {
    if (absl::StartsWithIgnoreCase(path, begin)) least = parts;
  }
  size_t parts = 0;
  for (size_t end = path.find('/'); end != absl::string_view::npos; end = path.find('/', end + 1)) {
    const absl::string_view module = path.substr(0, end);
    if (parts++ < least) continue;
    const std::optional<absl::string_view> named = MajorOfPath(module);
    const bool is_of_major = says_major && named == major;
    if (is_of_major) modules.clear();
    if (!says_major || !named.has_value() || is_of_major) modules.push_back(module);
  }
  if (says_major && MajorOfPath(path) == major) modules.clear();
  return modules;
}

// A module of Go, or a package in one: which of its parts the module's path has, a package URL
// leaves open. The whole is what it names; what is shorter may hold it. `is_module`: no package in
// one is named without a subpath.
absl::Status AddGo(const PackageUrl& url, absl::string_view full, bool is_module,
                   Collector& collector) {
  if (IsOfGoItself(full)) {
    return collector.Add("Go", full == "std" ? "stdlib" : full, GoRelease(url.version));
  }
  if (!PackageKey("Go", full).ok()) return collector.Add("Go", full, url.version);  // says why
  SHOAL_RETURN_IF_ERROR(AddGoToolchain(full, url.version, collector));
  // Every part of it may be where the module ends.
  constexpr size_t kMostOfPath = 4096;
  if (full.size() + url.subpath.size() > kMostOfPath) {
    return collector.Skip(full.substr(0, 64), "is longer than a path of Go can be");
  }
  const auto add = [&](absl::string_view path, bool is_whole) {
    if (is_whole) return collector.Add("Go", path, url.version);
    return collector.Add("Go", path, url.version, Certainty::kPossible,
                         absl::StrCat("it may be the module of ", full,
                                      url.subpath.empty() ? "" : "/", url.subpath));
  };
  if (url.subpath.empty() && !is_module && url.kind != "module") {
    for (const absl::string_view module : ModulesAround(full, url.version)) {
      SHOAL_RETURN_IF_ERROR(add(module, false));
    }
  }
  std::string path = std::string(full);
  for (const absl::string_view part : absl::StrSplit(url.subpath, '/', absl::SkipEmpty())) {
    SHOAL_RETURN_IF_ERROR(add(path, false));
    absl::StrAppend(&path, "/", part);
  }
  return add(path, true);
}

// An action of GitHub, OWNER/REPOSITORY. What stands behind these is its place in the repository.
absl::Status AddAction(const PackageUrl& url, absl::string_view full, Collector& collector) {
  const std::vector<absl::string_view> parts = absl::StrSplit(full, '/');
  if (parts.size() > 2) {
    SHOAL_RETURN_IF_ERROR(collector.Add(kGitHubActions, absl::StrCat(parts[0], "/", parts[1]),
                                        url.version, Certainty::kPossible,
                                        absl::StrCat("it is the repository of ", full)));
  }
  return collector.Add(kGitHubActions, full, url.version);
}

absl::Status AddDebianUrl(absl::string_view text, const PackageUrl& url, const BillHints& hints,
                          Collector& collector) {
  // This machine's distribution need not be that of a bill of materials.
  const std::string named = DistributionOfQualifier(url.distro);
  if (named.empty() && !url.distro.empty()) {
    return collector.Skip(text,
                          absl::StrCat("is of a distribution that is not known: ", url.distro));
  }
  const std::string& distribution = named.empty() ? collector.distribution().stated : named;
  if (distribution.empty()) {
    return collector.Skip(text, "does not say of which distribution it is; --distribution would");
  }
  const bool without_space = url.space.empty() && !named.empty();
  if (!without_space &&
      !absl::EqualsIgnoreCase(url.space, distribution.substr(0, distribution.find(':')))) {
    return collector.Skip(text, absl::StrCat("is no package of ", distribution));
  }
  DebianPackage package{.name = url.name,
                        .version = url.version,
                        .source = hints.source,
                        .source_version = hints.source_version};
  bool contradicts = hints.contradicts;
  if (!url.upstream.empty()) {
    const std::pair<absl::string_view, absl::string_view> source =
        absl::StrSplit(url.upstream, absl::MaxSplits('@', 1));
    contradicts |= !package.source.empty() && package.source != source.first;
    contradicts |= !package.source_version.empty() && !source.second.empty() &&
                   package.source_version != source.second;
    package.source = std::string(source.first);
    if (!source.second.empty()) package.source_version = std::string(source.second);
  }
  if (contradicts) return collector.Skip(text, "has two source packages");
  package.source_is_known = hints.names_sources || !package.source.empty();
  if (!url.epoch.empty()) {
    const std::string prefix = absl::StrCat(url.epoch, ":");
    const size_t colon = package.version.find(':');
    if (package.version.empty()) {
      // Any version.
    } else if (colon == std::string::npos) {
      package.version.insert(0, prefix);
    } else if (package.version.substr(0, colon + 1) != prefix) {
      return collector.Skip(text, "has two epochs");
    }
    // That of the source need not be the same.
    if (!package.source_version.empty() && !absl::StrContains(package.source_version, ":")) {
      return collector.Skip(text, "does not say the epoch of its source package");
    }
  }
  return AddDebian(distribution, package, collector);
}

std::string FullName(const PackageUrl& url) {
  return url.space.empty() ? url.name : absl::StrCat(url.space, "/", url.name);
}

// What an address says about a crate: registries have it as NAME-VERSION.crate, and as
// NAME/VERSION/download.
Said SaidOfCrate(absl::string_view address, absl::string_view name, absl::string_view version) {
  const std::string path = PathOfAddress(address);
  absl::string_view way = path;
  const bool is_download = absl::ConsumeSuffix(&way, "/download");
  if (!is_download && !absl::ConsumeSuffix(&way, ".crate")) return Said::kNothing;
  const size_t end = is_download ? way.rfind('/') : std::string::npos;
  const std::string whole = end == std::string::npos
                                ? std::string(BaseName(way))
                                : absl::StrCat(BaseName(way.substr(0, end)), "-", BaseName(way));
  // Names and versions may have hyphens.
  const absl::string_view file = whole;
  for (size_t at = file.find('-'); at != absl::string_view::npos; at = file.find('-', at + 1)) {
    if (IsSamePackage("crates.io", file.substr(0, at), name) &&
        CompareTexts(Order::kSemver, file.substr(at + 1), version) == 0) {
      return Said::kSame;
    }
  }
  return Said::kOther;
}

// The revision that the address of a repository names: behind an @, or as npm writes it behind a
// number sign, where others have a directory. Empty if it names none.
absl::string_view RevisionOf(absl::string_view address) {
  constexpr size_t kLeastOfCommit = 7;
  const size_t hash = address.find('#');
  const absl::string_view repository = address.substr(0, hash);
  // One before the host's end is of a user, and one that begins a name of an owner.
  const size_t scheme = repository.find("://");
  const size_t host = repository.find('/', scheme == absl::string_view::npos ? 0 : scheme + 3);
  const size_t at = repository.rfind('@');
  if (at != absl::string_view::npos && host < at && repository[at - 1] != '/') {
    return repository.substr(at + 1);
  }
  if (hash == absl::string_view::npos) return "";
  const absl::string_view fragment = address.substr(hash + 1);
  const bool is_revision =
      (fragment.size() >= kLeastOfCommit && std::ranges::all_of(fragment, absl::ascii_isxdigit)) ||
      absl::StartsWith(fragment, "semver:") || Version::Parse(Order::kSemver, fragment).has_value();
  return is_revision ? fragment : "";
}

// What the address or the name of an archive says about what a package URL names.
Said SaidOfArchive(const PackageUrl& url, absl::string_view archive) {
  const bool is_repository = absl::StartsWith(archive, "git+") ||
                             absl::StartsWith(archive, "git:") || absl::StartsWith(archive, "git@");
  if (is_repository) {
    const absl::string_view order = url.type == "pypi" ? "PyPI" : "npm";
    const std::optional<int> compared =
        CompareTexts(*OrderOf(order), RevisionOf(archive), url.version);
    const bool is_read = url.type == "npm" || url.type == "pypi" || url.type == "cargo";
    return is_read && compared.value_or(0) != 0 ? Said::kOther : Said::kNothing;
  }
  if (url.type == "npm") return SaidOfNpm(archive, FullName(url), url.version);
  if (url.type == "cargo") return SaidOfCrate(archive, url.name, url.version);
  if (url.type != "pypi") return Said::kNothing;
  const std::string with_epoch = absl::StrCat(url.epoch, "!", url.version);
  const absl::string_view versions[] = {url.version, with_epoch};
  return SaidOfPython(BaseName(PathOfAddress(archive)), url.name, versions);
}

// Why a package need not be the registry's, by where its package URL says that it comes from. Empty
// if that says nothing of the kind.
absl::string_view DoubtOfOrigin(const PackageUrl& url) {
  if (!url.download.empty()) {
    const Said said = SaidOfArchive(url, url.download);
    // Crates of the project are at "file://.".
    const bool is_own = url.type == "cargo" && absl::StartsWith(url.download, "file:");
    if (said == Said::kOther || (said == Said::kNothing && !is_own)) return DoubtOf(said);
  }
  if (!url.file.empty() && SaidOfArchive(url, url.file) == Said::kOther) {
    return DoubtOf(Said::kOther);
  }
  if (url.repository.empty()) return "";
  // Tools write the repository of every package of npm, and of others where they come from it.
  const absl::string_view revision = RevisionOf(url.repository);
  const bool is_from_there =
      url.type != "npm" ||
      (!revision.empty() && CompareTexts(Order::kSemver, revision, url.version) != 0);
  return is_from_there ? DoubtOf(Said::kNothing) : "";
}

absl::Status AddPackageUrl(absl::string_view text, const BillHints& hints, Collector& collector) {
  const std::optional<PackageUrl> url = ParsePackageUrl(text);
  if (!url.has_value()) return collector.Skip(text, "is no package URL");
  const std::string full = FullName(*url);
  if (url->type == "deb") return AddDebianUrl(text, *url, hints, collector);
  std::string version = url->version;
  if (!url->epoch.empty()) {
    if (url->type != "pypi" || absl::StrContains(version, "!")) {
      return collector.Skip(text, "has an epoch, which its version cannot have");
    }
    if (!version.empty()) version = absl::StrCat(url->epoch, "!", version);
  }
  if ((url->type == "pypi" || url->type == "cargo") && !url->space.empty()) {
    return collector.Skip(text, "has a namespace, which packages of its type have not");
  }
  const auto add = [&](absl::string_view ecosystem, absl::string_view name) {
    return AddWithDoubt(ecosystem, name, version, DoubtOfOrigin(*url), collector);
  };
  if (url->type == "pypi") return add("PyPI", url->name);
  if (url->type == "cargo") return add("crates.io", url->name);
  if (url->type == "golang") return AddGo(*url, full, hints.names_modules, collector);
  if (url->type == "githubactions") return AddAction(*url, full, collector);
  if (url->type == "npm") {
    const bool is_scope = absl::StartsWith(url->space, "@") && !absl::StrContains(url->space, "/");
    if (!url->space.empty() && !is_scope) {
      return collector.Skip(text, "has a namespace that is no scope of npm");
    }
    return add("npm", full);
  }
  return collector.Skip(text, absl::StrCat("no reader knows packages of type ", url->type));
}

// Whether a name is that of a package URL, or the end of it, where a bill leaves the rest out.
bool IsName(absl::string_view ecosystem, absl::string_view name, absl::string_view full,
            bool may_be_end) {
  const auto key = PackageKey(ecosystem, full), other = PackageKey(ecosystem, name);
  if (may_be_end && absl::EndsWithIgnoreCase(full, absl::StrCat("/", name))) return true;
  // What is no name may still have a source package that is one.
  return key.ok() && other.ok() ? *key == *other : absl::EqualsIgnoreCase(name, full);
}

// Whether the group and the name of a package can be those of its package URL. For PyPI, crates.io
// and Debian a group is somebody who publishes.
bool HasNameOf(const BillPackage& package, const PackageUrl& url, absl::string_view ecosystem) {
  const std::string full = FullName(url);
  if (package.name.empty()) return true;
  if (IsOfGoItself(full)) {
    return IsOfGoItself(package.name) || package.name == "go" || !url.subpath.empty();
  }
  const bool has_groups = ecosystem == "npm" || ecosystem == "Go" || ecosystem == kGitHubActions;
  std::vector<std::string> names = {package.name};
  // "npm:lodash", "libssl3:amd64".
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(package.name, absl::MaxSplits(':', 1));
  if (!halves.second.empty()) names.emplace_back(url.type == "deb" ? halves.first : halves.second);
  const bool has_group =
      has_groups && !package.group.empty() &&
      !absl::StartsWithIgnoreCase(package.name, absl::StrCat(package.group, "/"));
  std::vector<std::string> fulls = {has_groups ? full : url.name};
  if (ecosystem == "Go" && !url.subpath.empty()) {
    fulls.push_back(absl::StrCat(full, "/", url.subpath));
  }
  for (std::string& name : names) {
    if (has_group) name = absl::StrCat(package.group, "/", name);
    if (ecosystem == "npm" && absl::StrContains(name, "/") && name[0] != '@') name.insert(0, "@");
    for (const std::string& one : fulls) {
      if (IsName(ecosystem, name, one, has_groups && !has_group)) return true;
    }
  }
  return false;
}

bool HasVersionOf(const BillPackage& package, const PackageUrl& url, Order order) {
  const absl::string_view version = package.version;
  if (SaysNothing(version) || url.version.empty() || version == url.version) return true;
  const auto same = [&](absl::string_view a, absl::string_view b) {
    return CompareTexts(order, a, b) == 0;
  };
  if (IsOfGoItself(FullName(url))) return same(GoRelease(version), GoRelease(url.version));
  const char* const mark = order == Order::kPep440 ? "!" : ":";
  return same(version, url.version) ||
         (!url.epoch.empty() && same(version, absl::StrCat(url.epoch, mark, url.version)));
}

// The ecosystem of the package URLs of a type, by whose rules names and versions are compared.
// Empty for a type that is not read.
absl::string_view EcosystemOfType(absl::string_view type) {
  static constexpr std::pair<absl::string_view, const char*> kEcosystems[] = {
      {"pypi", "PyPI"}, {"npm", "npm"},      {"cargo", "crates.io"},
      {"golang", "Go"}, {"deb", "Debian:0"}, {"githubactions", kGitHubActions}};
  for (const auto& [known, ecosystem] : kEcosystems) {
    if (type == known) return ecosystem;
  }
  return "";
}

bool HasOtherName(const BillPackage& package, const PackageUrl& url) {
  const absl::string_view ecosystem = EcosystemOfType(url.type);
  return !ecosystem.empty() && !HasNameOf(package, url, ecosystem);
}

// Whether what stands beside a package URL is of another package or version. Of types that are not
// read nothing is known.
bool Contradicts(const BillPackage& package, absl::string_view text) {
  const std::optional<PackageUrl> url = ParsePackageUrl(text);
  if (!url.has_value()) return false;
  const absl::string_view ecosystem = EcosystemOfType(url->type);
  if (ecosystem.empty()) return false;
  // `npm sbom` names the directories that packages lie in: the project's, and aliases.
  const bool is_directory = package.hints.tool == BillTool::kNpm;
  // A part of a package has any name.
  const bool is_part = !url->subpath.empty() && ecosystem != "Go" && url->type != "deb";
  return (!is_directory && !is_part && HasOtherName(package, *url)) ||
         !HasVersionOf(package, *url, *OrderOf(ecosystem));
}

// Whether something else that a bill says of a package is of what the package URL names.
bool IsSame(const BillPackage& other, absl::string_view text) {
  const std::optional<PackageUrl> url = ParsePackageUrl(text);
  if (!url.has_value()) return false;
  // What is said to be a part is one of the package itself.
  if (url->type != "golang") text = text.substr(0, text.find('#'));
  for (const std::string& of_other : other.urls) {
    const std::optional<PackageUrl> named = ParsePackageUrl(of_other);
    if (!named.has_value() || named->type != url->type) return false;
    BillPackage as_beside{.group = named->space, .name = named->name, .version = named->version};
    if (Contradicts(as_beside, text)) return false;
  }
  // Names without a package URL are compared where it is known how.
  if (other.name.empty() && other.version.empty()) return true;
  return !EcosystemOfType(url->type).empty() && !Contradicts(other, text);
}

// The product and the version in a CPE, of 2.2 or 2.3. Empty for any.
struct Cpe {
  std::string product, version;
};
Cpe ParseCpe(absl::string_view text) {
  std::vector<std::string> parts(1);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':') {
      parts.emplace_back();
    } else {
      if (text[i] == '\\' && i + 1 < text.size()) ++i;
      parts.back().push_back(text[i]);
    }
  }
  const bool is_old = parts.size() > 1 && absl::StartsWith(parts[1], "/");  // "cpe:/a:.."
  const auto part = [&](size_t at) -> std::string {
    at += is_old ? 0 : 1;
    if (parts.size() <= at || parts[at] == "*" || parts[at] == "-") return "";
    return is_old ? PercentDecoded(parts[at]).value_or(parts[at]) : parts[at];
  };
  return {.product = part(3), .version = part(4)};
}

// Whether a version can be that of a CPE, which may leave out what a distribution or a release
// candidate adds. What a product is called there is a matter of its own.
bool IsOfCpe(Order order, absl::string_view version, absl::string_view of_cpe) {
  const auto plain = [](absl::string_view text) {
    const size_t colon = text.find_first_of(":!");  // of an epoch
    if (colon != absl::string_view::npos) text.remove_prefix(colon + 1);
    if (!absl::ConsumePrefix(&text, "go")) absl::ConsumePrefix(&text, "v");
    return absl::AsciiStrToLower(text);
  };
  const std::string whole = plain(version), begin = plain(of_cpe);
  if (CompareTexts(order, whole, begin) == 0) return true;
  absl::string_view rest = whole;
  if (!absl::ConsumePrefix(&rest, begin)) return false;
  const auto is_digit = [&](size_t i) {
    return i < rest.size() && absl::ascii_isdigit(static_cast<unsigned char>(rest[i]));
  };
  return !is_digit(0) && !(absl::StartsWith(rest, ".") && is_digit(1));
}

// Whether no version of a package is that of one of its CPEs.
bool HasOtherCpe(const BillPackage& package, absl::string_view cpe) {
  const std::string of_cpe = ParseCpe(cpe).version;
  if (of_cpe.empty()) return false;
  bool is_any = false;
  const auto is_of = [&](Order order, absl::string_view version) {
    if (SaysNothing(version)) return false;
    is_any = true;
    return IsOfCpe(order, version, of_cpe);
  };
  for (const std::string& text : package.urls) {
    const std::optional<PackageUrl> url = ParsePackageUrl(text);
    if (!url.has_value() || EcosystemOfType(url->type).empty()) continue;
    const Order order = *OrderOf(EcosystemOfType(url->type));
    if (is_of(order, url->version) || is_of(order, package.version)) return false;
  }
  return is_any;
}

// Whether a package URL names an image, a repository or a module that nobody else can have: no
// advisory of a table is about these.
bool NamesWhole(const PackageUrl& url) {
  static constexpr absl::string_view kTypes[] = {"oci",    "docker",    "github",
                                                 "gitlab", "bitbucket", "generic"};
  const std::string full = FullName(url);
  return std::ranges::find(kTypes, url.type) != std::end(kTypes) ||
         (url.type == "golang" && !IsOfGoItself(full) &&
          !absl::StrContains(full.substr(0, full.find('/')), "."));
}
bool IsOfWhole(absl::string_view text) {
  const std::optional<PackageUrl> url = ParsePackageUrl(text);
  return url.has_value() && NamesWhole(*url);
}

std::string Shown(const BillPackage& package) {
  if (package.name.empty() && !package.urls.empty()) return package.urls[0];
  const std::string group = package.group.empty() ? "" : absl::StrCat(package.group, "/");
  return absl::StrCat(group, package.name,
                      package.name.empty() || package.version.empty() ? "" : " ", package.version);
}

// What else a bill says of a package is of one of its package URLs. The others may name what the
// package is a copy of.
absl::Status SkipWhatContradicts(const BillPackage& package, bool is_own, Collector& collector) {
  const auto is_of_none = [&](const auto& is_of) {
    return std::ranges::none_of(package.urls, is_of);
  };
  const std::string beside =
      absl::StrCat("contradicts its package URL: ", package.urls.empty() ? "" : package.urls[0]);
  if (!is_own && !package.urls.empty() &&
      is_of_none([&](absl::string_view url) { return !Contradicts(package, url); })) {
    SHOAL_RETURN_IF_ERROR(collector.Skip(Shown(package), beside));
  }
  for (const std::string& cpe : package.cpes) {
    if (HasOtherCpe(package, cpe)) SHOAL_RETURN_IF_ERROR(collector.Skip(cpe, beside));
  }
  for (const std::string& archive : package.archives) {
    if (!is_own && !package.urls.empty() && is_of_none([&](absl::string_view text) {
          const std::optional<PackageUrl> url = ParsePackageUrl(text);
          return !url.has_value() || SaidOfArchive(*url, archive) != Said::kOther;
        })) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(archive, beside));
    }
  }
  for (const BillPackage& other : package.also) {
    const bool is_whole = is_own && other.name.empty() && other.version.empty() &&
                          std::ranges::all_of(other.urls, IsOfWhole);
    if (!is_whole && is_of_none([&](absl::string_view url) { return IsSame(other, url); })) {
      SHOAL_RETURN_IF_ERROR(
          collector.Skip(Shown(other), absl::StrCat("is also said to be what ", Shown(package),
                                                    " is or is made from, and is not looked up")));
    }
  }
  return absl::OkStatus();
}

// Whether a place in a package is one of its own code, and not of another package in it.
bool IsOfOwnCode(absl::string_view subpath) {
  static constexpr absl::string_view kOwn[] = {"src", "bin", "examples", "tests", "benches"};
  static constexpr absl::string_view kOfOthers[] = {"node_modules", "site-packages", "third_party",
                                                    "vendor"};
  const std::vector<absl::string_view> parts = absl::StrSplit(subpath, '/');
  return std::ranges::find(kOwn, parts[0]) != std::end(kOwn) &&
         std::ranges::none_of(parts, [&](absl::string_view part) {
           return std::ranges::find(kOfOthers, part) != std::end(kOfOthers);
         });
}

// The name beside a package URL, where that may be of another package: of something that lies in
// the one that is named; of npm also that of a directory, or without the scope.
absl::Status AddOther(const BillPackage& package, Collector& collector) {
  if (package.name.empty() || package.urls.empty()) return absl::OkStatus();
  // "npm:lodash".
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(package.name, absl::MaxSplits(':', 1));
  const absl::string_view bare = halves.second.empty() ? halves.first : halves.second;
  bool is_part = false;
  const auto is_other = [&](absl::string_view text) {
    const std::optional<PackageUrl> url = ParsePackageUrl(text);
    if (!url.has_value() || (url->type != "npm" && url->type != "pypi" && url->type != "cargo")) {
      return false;
    }
    if (!url->subpath.empty() && !IsOfOwnCode(url->subpath) && HasOtherName(package, *url)) {
      is_part = true;
      return true;
    }
    if (url->type != "npm" || package.is_subject) return false;
    const bool is_bare =
        !url->space.empty() && package.group.empty() && absl::EqualsIgnoreCase(bare, url->name);
    return is_bare || (package.hints.tool == BillTool::kNpm && HasOtherName(package, *url));
  };
  if (!std::ranges::all_of(package.urls, is_other)) return absl::OkStatus();
  const std::optional<PackageUrl> url = ParsePackageUrl(package.urls[0]);
  const absl::string_view ecosystem = EcosystemOfType(url->type);
  const bool has_scope = ecosystem == "npm" && !package.group.empty();
  const std::string name = has_scope ? absl::StrCat(absl::StartsWith(package.group, "@") ? "" : "@",
                                                    package.group, "/", bare)
                                     : std::string(bare);
  if (!PackageKey(ecosystem, name).ok()) return absl::OkStatus();
  absl::string_view version = package.version;
  if (SaysNothing(version)) version = "";
  // The package URL's is of what the part lies in.
  if (version.empty() && !is_part) version = url->version;
  return collector.Add(ecosystem, name, version, Certainty::kPossible,
                       absl::StrCat("it is the name beside ", package.urls[0]));
}

// Products of CPEs beside package URLs, whose names are often others than the packages': where a
// registry has a package of a product's name, it may be that one.
absl::Status AddProducts(const BillPackage& package, Collector& collector) {
  std::set<std::string> keys;
  absl::string_view ecosystem;
  std::optional<PackageUrl> url;
  for (const std::string& text : package.urls) {
    url = ParsePackageUrl(text);
    if (!url.has_value() || (url->type != "npm" && url->type != "pypi" && url->type != "cargo")) {
      return absl::OkStatus();
    }
    ecosystem = EcosystemOfType(url->type);
    keys.insert(KeyOrName(ecosystem, FullName(*url)));
    keys.insert(KeyOrName(ecosystem, url->name));
  }
  if (package.urls.empty()) return absl::OkStatus();
  const absl::string_view version = SaysNothing(package.version) ? url->version : package.version;
  for (const std::string& text : package.cpes) {
    const Cpe cpe = ParseCpe(text);
    if (!HasCpeOfPackage({text}) || !PackageKey(ecosystem, cpe.product).ok() ||
        !keys.insert(KeyOrName(ecosystem, cpe.product)).second) {
      continue;
    }
    SHOAL_RETURN_IF_ERROR(collector.Add(
        ecosystem, cpe.product, cpe.version.empty() ? version : cpe.version, Certainty::kPossible,
        absl::StrCat("it is the product in a CPE of ", package.urls[0])));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLookedUp(absl::string_view url) {
  const std::optional<PackageUrl> parsed = ParsePackageUrl(url);
  return parsed.has_value() && !EcosystemOfType(parsed->type).empty() && !NamesWhole(*parsed);
}

bool IsSystemName(absl::string_view name) {
  // "linux" and "busybox" are packages of distributions.
  static constexpr absl::string_view kSystems =
      "almalinux alma alpaquita alpine altlinux amazon amzn android arch archarm azurelinux "
      "bottlerocket cbl-mariner centos chainguard clear-linux-os cos debian devuan echo "
      "elementary endeavouros euleros fedora flatcar freebsd gentoo guix ios kali linuxmint mac "
      "macos mageia manjaro mariner microsoft minimos netbsd nixos ol openbsd openeuler "
      "opensuse opensuse-leap opensuse-tumbleweed opensuse.leap opensuse.tumbleweed openwrt "
      "oracle oraclelinux photon pop postmarketos raspbian red redhat rhcos rhel rocky "
      "rockylinux slackware sle-micro sled slem sles suse talos ubuntu void windows wolfi";
  // No package has a blank in its name: "debian gnu/linux 12".
  const std::string lower = absl::AsciiStrToLower(name);
  const std::vector<absl::string_view> systems = absl::StrSplit(kSystems, ' ');
  return std::ranges::find(systems, lower.substr(0, lower.find(' '))) != systems.end();
}

bool IsPlaceOfTrivy(absl::string_view name, absl::string_view type) {
  static constexpr std::pair<absl::string_view, absl::string_view> kGroups[] = {
      {"Python", "python-pkg"},
      {"Node.js", "node-pkg"},
      {"Java", "jar"},
      {"Ruby", "gemspec"},
      {"Conda", "conda-pkg"}};
  for (const auto& [group, of_type] : kGroups) {
    if (name == group) return type.empty() || type == of_type;
  }
  if (type == "gobinary" || type == "rustbinary") return true;
  static constexpr absl::string_view kFiles[] = {
      ".json", ".lock",  ".lockb",  ".lockfile", ".yaml", ".yml", ".txt", ".xml", ".toml",
      ".mod",  ".props", ".config", ".resolved", ".exs",  ".jar", ".war", ".ear", ".par"};
  const auto ends_with = [&](absl::string_view end) { return absl::EndsWithIgnoreCase(name, end); };
  if (std::ranges::any_of(kFiles, ends_with)) return true;
  // A program: its path, which begins neither with a scope nor with a host.
  const size_t slash = name.find('/');
  return type.empty() && slash != absl::string_view::npos && !absl::StartsWith(name, "@") &&
         !absl::StrContains(name.substr(0, slash), ".");
}

bool HasCpeOfPackage(const std::vector<std::string>& cpes) {
  return std::ranges::any_of(cpes, [](absl::string_view cpe) {
    return !absl::StartsWith(cpe, "cpe:/o:") && !absl::StartsWith(cpe, "cpe:2.3:o:");
  });
}

absl::Status AddPackages(const std::vector<BillPackage>& packages, Collector& collector) {
  const auto subjects = std::ranges::count_if(packages, &BillPackage::is_subject);
  for (const BillPackage& package : packages) {
    const bool is_own = package.is_subject && subjects == 1 && packages.size() > 1 &&
                        std::ranges::all_of(package.urls, IsOfWhole);
    if (is_own) {
      collector.Own();
    } else if (package.urls.empty()) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(package.name, "has no package URL"));
    } else {
      for (const std::string& url : package.urls) {
        SHOAL_RETURN_IF_ERROR(AddPackageUrl(url, package.hints, collector));
      }
    }
    SHOAL_RETURN_IF_ERROR(AddOther(package, collector));
    SHOAL_RETURN_IF_ERROR(AddProducts(package, collector));
    SHOAL_RETURN_IF_ERROR(SkipWhatContradicts(package, is_own, collector));
  }
  return absl::OkStatus();
}

void Tools::Add(absl::string_view vendor, absl::string_view name, absl::string_view version) {
  const auto is = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
  const BillTool tool = is("syft")                     ? BillTool::kSyft
                        : is("trivy")                  ? BillTool::kTrivy
                        : is("cdxgen")                 ? BillTool::kCdxgen
                        : is("cli") && vendor == "npm" ? BillTool::kNpm
                                                       : BillTool::kOther;
  tool_ = !is_any_ || tool_ == tool ? tool : BillTool::kOther;
  is_any_ = true;
  // Where a Debian package's source has another name syft says so since 0.37.0.
  names_sources_ &= CompareTexts(Order::kSemver, version, "0.37.0").value_or(-1) >= 0;
}

BillHints Tools::hints() const {
  BillHints hints;
  hints.tool = tool_;
  hints.names_sources = tool_ == BillTool::kSyft && names_sources_;
  hints.names_modules =
      tool_ == BillTool::kSyft || tool_ == BillTool::kTrivy || tool_ == BillTool::kCdxgen;
  return hints;
}

bool IsPackageArchive(absl::string_view name) {
  static constexpr absl::string_view kEnds[] = {
      ".tgz",   ".whl", ".jar", ".war",   ".ear", ".aar", ".nupkg", ".gem",
      ".crate", ".pex", ".pyz", ".conda", ".deb", ".rpm", ".apk",   ".egg"};
  static constexpr absl::string_view kOthers[] = {".zip",    ".tar",  ".tar.gz", ".tar.bz2",
                                                  ".tar.xz", ".tbz2", ".txz",    ".tar.zst"};
  const auto ends_with = [&](absl::string_view end) { return absl::EndsWithIgnoreCase(name, end); };
  if (std::ranges::any_of(kEnds, ends_with)) return true;
  absl::string_view file = BaseName(name);
  const auto* const end = std::ranges::find_if(kOthers, ends_with);
  if (end == std::end(kOthers)) return false;
  file.remove_suffix(end->size());
  const auto is_digit = [](absl::string_view text, size_t at) {
    return at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
  };
  const size_t dot = file.rfind('.');
  const auto has_dot = [&](size_t at) { return dot != absl::string_view::npos && dot > at; };
  for (size_t at = file.find_first_of("-_"); at != absl::string_view::npos;
       at = file.find_first_of("-_", at + 1)) {
    absl::string_view version = file.substr(at + 1);
    absl::ConsumePrefix(&version, "v");
    // Behind an underscore a number alone is more often one of something else.
    if (is_digit(version, 0) && (file[at] == '-' || has_dot(at))) return true;
  }
  return false;
}

absl::StatusOr<std::string> TextOf(const JsonView& object, absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView view, object.Get(name));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view text, view.Text());
  return std::string(text);
}

absl::StatusOr<std::vector<JsonView>> ItemsOf(const JsonView& object, absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView view, object.Get(name));
  return view.Items();
}

std::optional<std::string> PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      return std::nullopt;
    }
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    decoded.push_back(static_cast<char>(16 * digit(text[i + 1]) + digit(text[i + 2])));
    i += 2;
  }
  return decoded;
}

std::optional<PackageUrl> ParsePackageUrl(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "pkg:")) return std::nullopt;
  while (absl::ConsumePrefix(&text, "/")) {
  }
  PackageUrl url;
  const size_t hash = text.find('#');
  if (hash != absl::string_view::npos) {
    for (const absl::string_view part :
         absl::StrSplit(text.substr(hash + 1), '/', absl::SkipEmpty())) {
      const std::optional<std::string> decoded = PercentDecoded(part);
      if (!decoded.has_value() || absl::StrContains(*decoded, "/")) return std::nullopt;
      if (*decoded == "." || *decoded == "..") continue;
      absl::StrAppend(&url.subpath, url.subpath.empty() ? "" : "/", *decoded);
    }
    if (url.subpath.size() > kMaxSubpathBytes) return std::nullopt;
  }
  text = text.substr(0, hash);
  const size_t question = text.find('?');
  absl::string_view qualifiers;
  if (question != absl::string_view::npos) qualifiers = text.substr(question + 1);
  text = text.substr(0, question);
  const size_t slash = text.find('/');
  if (slash == absl::string_view::npos || slash == 0) return std::nullopt;
  url.type = absl::AsciiStrToLower(text.substr(0, slash));
  text.remove_prefix(slash + 1);
  // The @ of a version comes after the last slash: that of npm's scopes may be written as it is.
  const size_t last = text.rfind('/'), at = text.rfind('@');
  if (at != absl::string_view::npos && at > 0 && (last == absl::string_view::npos || at > last)) {
    const std::optional<std::string> version = PercentDecoded(text.substr(at + 1));
    if (!version.has_value()) return std::nullopt;
    url.version = *version;
    text = text.substr(0, at);
  }
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(text, '/', absl::SkipEmpty())) {
    std::optional<std::string> decoded = PercentDecoded(part);
    // Any other @ is that of a version, which then has a slash in it.
    const bool is_scope = url.type == "npm" && parts.empty() && part.rfind('@') == 0;
    if (!decoded.has_value() || (absl::StrContains(part, "@") && !is_scope)) return std::nullopt;
    parts.push_back(*std::move(decoded));
  }
  if (parts.empty()) return std::nullopt;
  url.name = parts.back();
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    absl::StrAppend(&url.space, i == 0 ? "" : "/", parts[i]);
  }
  std::set<std::string> names;
  for (const absl::string_view qualifier : absl::StrSplit(qualifiers, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(qualifier, absl::MaxSplits('=', 1));
    const std::optional<std::string> value = PercentDecoded(pair.second);
    const std::string name = absl::AsciiStrToLower(pair.first);
    const bool is_name = absl::StrContains(qualifier, "=") && IsOfAlnumAnd(".-_", name);
    if (!value.has_value() || !is_name || !names.insert(name).second) return std::nullopt;
    if (name == "distro") url.distro = *value;
    if (name == "upstream") url.upstream = *value;
    if (name == "type") url.kind = *value;
    if (name == "download_url") url.download = *value;
    if (name == "vcs_url") url.repository = *value;
    if (name == "file_name") url.file = *value;
    if (name != "epoch" || value->empty()) continue;
    if (!std::ranges::all_of(*value, absl::ascii_isdigit)) return std::nullopt;
    if (value->find_first_not_of('0') != std::string::npos) url.epoch = *value;
  }
  return url;
}

}  // namespace shoal::audit
