// Software bills of materials: CycloneDX, SPDX, and the package URLs in both.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
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
#include "src/base/ascii.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::audit {
namespace {

constexpr size_t kMaxSubpathBytes = 1024;

// "debian-12.5" -> "Debian:12". Empty for what is no release of Debian or Ubuntu.
std::string DistributionOfQualifier(absl::string_view distro) {
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

namespace {

bool IsOfGoItself(absl::string_view name) {
  return name == "std" || name == "stdlib" || name == "toolchain";
}

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

// What a bill of materials says about a package beside its package URL.
struct BillHints {
  // Of a Debian package: whether the tool that wrote it names every source package that is not the
  // package's own name.
  bool names_sources = false;
  // Of Go: whether that tool names modules alone, and no packages in them.
  bool names_modules = false;
  // Whether the names beside package URLs are those of directories, as `npm sbom` has them: the
  // project's, and aliases.
  bool names_directories = false;
  // Of this package, in a property of its own.
  std::string source, source_version;
  // The properties name two sources.
  bool contradicts = false;
};

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
  if (url->type == "pypi") return collector.Add("PyPI", url->name, version);
  if (url->type == "cargo") return collector.Add("crates.io", url->name, version);
  if (url->type == "golang") return AddGo(*url, full, hints.names_modules, collector);
  if (url->type == "npm") {
    const bool is_scope = absl::StartsWith(url->space, "@") && !absl::StrContains(url->space, "/");
    if (!url->space.empty() && !is_scope) {
      return collector.Skip(text, "has a namespace that is no scope of npm");
    }
    return collector.Add("npm", full, version);
  }
  return collector.Skip(text, absl::StrCat("no reader knows packages of type ", url->type));
}

// A package of a bill of materials, in any notation.
struct BillPackage {
  // As the bill has them beside the package URLs, of which each may be missing. SPDX has no group.
  std::string group, name, version;
  std::vector<std::string> urls;
  BillHints hints;
  // What the bill is about, whose parts the other packages are.
  bool is_subject = false;
};

// Whether a name is that of a package URL, or the end of it, where a bill leaves the rest out.
bool IsName(absl::string_view ecosystem, absl::string_view name, absl::string_view full,
            bool may_be_end) {
  const auto key = PackageKey(ecosystem, full), other = PackageKey(ecosystem, name);
  // What is no name may still have a source package that is one.
  if (!other.ok() || !key.ok()) return absl::EqualsIgnoreCase(name, full);
  const absl::string_view end = absl::string_view(*other).substr(ecosystem.size());  // "/NAME"
  return *key == *other || (may_be_end && absl::EndsWith(*key, end));
}

// Whether the group and the name of a package can be those of its package URL. For PyPI, crates.io
// and Debian a group is somebody who publishes.
bool HasNameOf(const BillPackage& package, const PackageUrl& url, absl::string_view ecosystem) {
  const std::string full = FullName(url);
  if (package.name.empty()) return true;
  if (!url.subpath.empty() && ecosystem != "Go") return true;  // it is a part of the package
  if (IsOfGoItself(full)) {
    return IsOfGoItself(package.name) || package.name == "go" || !url.subpath.empty();
  }
  const bool has_groups = ecosystem == "npm" || ecosystem == "Go";
  std::vector<std::string> names = {package.name};
  // "npm:lodash", "libssl3:amd64".
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(package.name, absl::MaxSplits(':', 1));
  if (!halves.second.empty()) names.emplace_back(url.type == "deb" ? halves.first : halves.second);
  const bool has_group =
      has_groups && !package.group.empty() &&
      !absl::StartsWithIgnoreCase(package.name, absl::StrCat(package.group, "/"));
  std::vector<std::string> fulls = {has_groups ? full : url.name};
  if (!url.subpath.empty()) fulls.push_back(absl::StrCat(full, "/", url.subpath));
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
  if (version.empty() || url.version.empty() || version == url.version || version == "NONE" ||
      version == "NOASSERTION") {
    return true;
  }
  const auto same = [&](absl::string_view a, absl::string_view b) {
    return CompareTexts(order, a, b) == 0;
  };
  if (IsOfGoItself(FullName(url))) return same(GoRelease(version), GoRelease(url.version));
  const char* const mark = order == Order::kPep440 ? "!" : ":";
  return same(version, url.version) ||
         (!url.epoch.empty() && same(version, absl::StrCat(url.epoch, mark, url.version)));
}

// Whether what stands beside a package URL is of another package or version. Of types that are not
// read nothing is known.
bool Contradicts(const BillPackage& package, absl::string_view text) {
  const std::optional<PackageUrl> url = ParsePackageUrl(text);
  if (!url.has_value()) return false;
  static constexpr std::pair<absl::string_view, absl::string_view> kEcosystems[] = {
      {"pypi", "PyPI"},
      {"npm", "npm"},
      {"cargo", "crates.io"},
      {"golang", "Go"},
      {"deb", "Debian:0"}};
  for (const auto& [type, ecosystem] : kEcosystems) {
    if (url->type != type) continue;
    return (!package.hints.names_directories && !HasNameOf(package, *url, ecosystem)) ||
           !HasVersionOf(package, *url, *OrderOf(ecosystem));
  }
  return false;
}

// Whether a package URL names an image or a repository: no advisory of a table is about these.
bool IsOfWhole(absl::string_view url) {
  const std::optional<PackageUrl> parsed = ParsePackageUrl(url);
  if (!parsed.has_value()) return false;
  static constexpr absl::string_view kTypes[] = {"oci",    "docker",    "github",
                                                 "gitlab", "bitbucket", "generic"};
  return std::ranges::find(kTypes, parsed->type) != std::end(kTypes);
}

// A package may have several package URLs, each of which names it. The bill's one subject needs
// none, if the bill names something else.
absl::Status AddPackages(const std::vector<BillPackage>& packages, Collector& collector) {
  const auto subjects = std::ranges::count_if(packages, &BillPackage::is_subject);
  for (const BillPackage& package : packages) {
    const bool is_own = package.is_subject && subjects == 1 && packages.size() > 1;
    if (is_own && std::ranges::all_of(package.urls, IsOfWhole)) {
      collector.Own();
      continue;
    }
    if (package.urls.empty()) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(package.name, "has no package URL"));
    }
    for (const std::string& url : package.urls) {
      SHOAL_RETURN_IF_ERROR(AddPackageUrl(url, package.hints, collector));
    }
    // One of several is enough: the others may name what the package is a copy of.
    const auto contradicts = [&](absl::string_view url) { return Contradicts(package, url); };
    if (!package.urls.empty() && std::ranges::all_of(package.urls, contradicts)) {
      const std::string group = package.group.empty() ? "" : absl::StrCat(package.group, "/");
      SHOAL_RETURN_IF_ERROR(collector.Skip(
          absl::StrCat(group, package.name, package.version.empty() ? "" : " ", package.version),
          absl::StrCat("contradicts its package URL: ", package.urls[0])));
    }
  }
  return absl::OkStatus();
}

// What is known of all the tools that wrote a bill. A plugin or a version that is not said may do
// otherwise.
class Tools {
 public:
  void Add(absl::string_view vendor, absl::string_view name, absl::string_view version) {
    // Where a Debian package's source has another name syft says so since 0.37.0.
    const auto is = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
    ++count_;
    name_sources_ +=
        is("syft") && CompareTexts(Order::kSemver, version, "0.37.0").value_or(-1) >= 0;
    name_modules_ += is("syft") || is("trivy") || is("cdxgen");
    name_directories_ += is("cli") && vendor == "npm";
  }
  BillHints hints() const {
    BillHints hints;
    hints.names_sources = count_ > 0 && name_sources_ == count_;
    hints.names_modules = count_ > 0 && name_modules_ == count_;
    hints.names_directories = count_ > 0 && name_directories_ == count_;
    return hints;
  }

 private:
  size_t count_ = 0, name_sources_ = 0, name_modules_ = 0, name_directories_ = 0;
};

absl::StatusOr<std::string> TextOf(const JsonView& object, absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView view, object.Get(name));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view text, view.Text());
  return std::string(text);
}

absl::StatusOr<Tools> ToolsOf(const JsonView& metadata) {
  SHOAL_ASSIGN_OR_RETURN(JsonView tools_view, metadata.Get("tools"));
  // A list in earlier versions of the format.
  if (!tools_view.is_array()) {
    SHOAL_ASSIGN_OR_RETURN(tools_view, tools_view.Get("components"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, tools_view.Items());
  Tools tools;
  for (const JsonView& tool : items) {
    SHOAL_ASSIGN_OR_RETURN(const std::string vendor, TextOf(tool, "vendor"));
    SHOAL_ASSIGN_OR_RETURN(const std::string name, TextOf(tool, "name"));
    SHOAL_ASSIGN_OR_RETURN(const std::string version, TextOf(tool, "version"));
    tools.Add(vendor, name, version);
  }
  return tools;
}

// Trivy writes the source of a Debian package as properties, and not in the package URL; syft did.
absl::Status ReadProperties(const JsonView& component, BillHints& hints) {
  constexpr absl::string_view kTrivy = "aquasecurity:trivy:Src", kSyft = "syft:metadata:source",
                              kFoundBy = "syft:package:foundBy";
  SHOAL_ASSIGN_OR_RETURN(const JsonView properties_view, component.Get("properties"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> properties, properties_view.Items());
  std::map<std::string, std::string> values;
  const auto value_of = [&](absl::string_view prefix, absl::string_view name) -> std::string& {
    return values[absl::StrCat(prefix, name)];
  };
  for (const JsonView& property : properties) {
    SHOAL_ASSIGN_OR_RETURN(const std::string name, TextOf(property, "name"));
    const bool is_read =
        absl::StartsWith(name, kTrivy) || absl::StartsWith(name, kSyft) || name == kFoundBy;
    if (!is_read) continue;
    SHOAL_ASSIGN_OR_RETURN(std::string value, TextOf(property, "value"));
    const auto [at, is_new] = values.try_emplace(name, value);
    hints.contradicts |= !is_new && at->second != value;
  }
  // It takes packages from another bill of materials as they stand there.
  if (value_of(kFoundBy, "") == "sbom-cataloger") {
    hints.names_sources = hints.names_modules = false;
  }
  hints.source = value_of(kSyft, "");
  if (!hints.source.empty()) hints.source_version = value_of(kSyft, "Version");
  const std::string name = value_of(kTrivy, "Name"), version = value_of(kTrivy, "Version");
  if (name.empty() || version.empty()) return absl::OkStatus();
  hints.contradicts |= !hints.source.empty() && hints.source != name;
  const std::string epoch = value_of(kTrivy, "Epoch"), release = value_of(kTrivy, "Release");
  hints.source = name;
  hints.source_version =
      absl::StrCat(epoch, epoch.empty() ? "" : ":", version, release.empty() ? "" : "-", release);
  return absl::OkStatus();
}

// Other documents that something refers to, and in which it may name more packages.
absl::Status SkipOtherBills(const JsonView& object, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonView references_view, object.Get("externalReferences"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> references, references_view.Items());
  for (const JsonView& reference : references) {
    SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(reference, "type"));
    if (type != "bom") continue;
    SHOAL_ASSIGN_OR_RETURN(const std::string url, TextOf(reference, "url"));
    SHOAL_RETURN_IF_ERROR(collector.Skip(url, "is another bill of materials: give that one, too"));
  }
  return absl::OkStatus();
}

// What a bill says of its own completeness. What is incomplete lacks packages, wherever that is;
// what nobody knows about one of the parts is as if nothing were said, as their packages stand in
// the bill beside them.
absl::Status ReadCompositions(const JsonView& bill, const JsonView& subject, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {"bom-ref",      "aggregate",       "assemblies",
                                                   "dependencies", "vulnerabilities", "signature"};
  SHOAL_ASSIGN_OR_RETURN(const std::string serial, TextOf(bill, "serialNumber"));
  SHOAL_ASSIGN_OR_RETURN(const std::string top, TextOf(subject, "bom-ref"));
  SHOAL_ASSIGN_OR_RETURN(const JsonView compositions_view, bill.Get("compositions"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> compositions, compositions_view.Items());
  for (const JsonView& composition : compositions) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(composition, kMembers, "compositions", collector));
    SHOAL_ASSIGN_OR_RETURN(const std::string aggregate, TextOf(composition, "aggregate"));
    bool is_of_whole = false;
    size_t parts = 0;
    for (const char* name : {"assemblies", "dependencies"}) {
      SHOAL_ASSIGN_OR_RETURN(const JsonView parts_view, composition.Get(name));
      SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, parts_view.Items());
      parts += items.size();
      for (const JsonView& item : items) {
        SHOAL_ASSIGN_OR_RETURN(const absl::string_view part, item.Text());
        is_of_whole |= part == top || part == serial || absl::StartsWith(part, "urn:cdx:");
      }
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView vulnerabilities, composition.Get("vulnerabilities"));
    if (parts == 0 && vulnerabilities.exists()) continue;
    const bool is_open = aggregate == "unknown" || aggregate == "not_specified";
    if (aggregate == "complete" || (is_open && parts > 0 && !is_of_whole)) continue;
    SHOAL_RETURN_IF_ERROR(collector.Skip(
        "compositions", absl::StrCat("say that packages may be missing: ", aggregate)));
  }
  return absl::OkStatus();
}

// A component of CycloneDX, and what is nested in it.
absl::Status ReadComponent(const JsonView& component, const BillHints& of_bill, bool is_subject,
                           std::vector<BillPackage>& packages, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {
      "type",       "mime-type", "bom-ref",      "supplier",   "manufacturer", "author",
      "authors",    "publisher", "group",        "name",       "version",      "description",
      "scope",      "hashes",    "licenses",     "copyright",  "cpe",          "purl",
      "omniborId",  "swhid",     "swid",         "modified",   "pedigree",     "externalReferences",
      "components", "evidence",  "releaseNotes", "modelCard",  "data",         "cryptoProperties",
      "properties", "tags",      "signature",    "isExternal", "versionRange", "patentAssertions"};
  SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(component, "type"));
  BillPackage package;
  package.hints = of_bill;
  package.is_subject = is_subject;
  SHOAL_ASSIGN_OR_RETURN(package.group, TextOf(component, "group"));
  SHOAL_ASSIGN_OR_RETURN(package.name, TextOf(component, "name"));
  SHOAL_ASSIGN_OR_RETURN(package.version, TextOf(component, "version"));
  SHOAL_ASSIGN_OR_RETURN(const std::string url, TextOf(component, "purl"));
  SHOAL_RETURN_IF_ERROR(ReadProperties(component, package.hints));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(component, kMembers, package.name, collector));
  SHOAL_RETURN_IF_ERROR(SkipOtherBills(component, collector));
  const bool is_package = type != "file" && type != "operating-system" && type != "data";
  if (!url.empty()) package.urls.push_back(url);
  if (!url.empty() || is_package) packages.push_back(std::move(package));
  SHOAL_ASSIGN_OR_RETURN(const JsonView inner_view, component.Get("components"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> inner, inner_view.Items());
  for (const JsonView& one : inner) {
    SHOAL_RETURN_IF_ERROR(ReadComponent(one, of_bill, false, packages, collector));
  }
  return absl::OkStatus();
}

// What SPDX 2 has as tags, one a line (annex "Tag-value format").
constexpr absl::string_view kSpdxTags[] = {"AnnotationComment",
                                           "AnnotationDate",
                                           "AnnotationType",
                                           "Annotator",
                                           "ArtifactOfProjectHomePage",
                                           "ArtifactOfProjectName",
                                           "ArtifactOfProjectURI",
                                           "BuiltDate",
                                           "Created",
                                           "Creator",
                                           "CreatorComment",
                                           "DataLicense",
                                           "DocumentComment",
                                           "DocumentName",
                                           "DocumentNamespace",
                                           "ExternalDocumentRef",
                                           "ExternalRef",
                                           "ExternalRefComment",
                                           "ExtractedText",
                                           "FileAttributionText",
                                           "FileChecksum",
                                           "FileComment",
                                           "FileContributor",
                                           "FileCopyrightText",
                                           "FileDependency",
                                           "FileName",
                                           "FileNotice",
                                           "FileType",
                                           "FilesAnalyzed",
                                           "LicenseComment",
                                           "LicenseComments",
                                           "LicenseConcluded",
                                           "LicenseCrossReference",
                                           "LicenseID",
                                           "LicenseInfoInFile",
                                           "LicenseInfoInSnippet",
                                           "LicenseListVersion",
                                           "LicenseName",
                                           "PackageAttributionText",
                                           "PackageChecksum",
                                           "PackageComment",
                                           "PackageCopyrightText",
                                           "PackageDescription",
                                           "PackageDownloadLocation",
                                           "PackageFileName",
                                           "PackageHomePage",
                                           "PackageLicenseComments",
                                           "PackageLicenseConcluded",
                                           "PackageLicenseDeclared",
                                           "PackageLicenseInfoFromFiles",
                                           "PackageName",
                                           "PackageOriginator",
                                           "PackageSourceInfo",
                                           "PackageSummary",
                                           "PackageSupplier",
                                           "PackageVerificationCode",
                                           "PackageVersion",
                                           "PrimaryPackagePurpose",
                                           "Relationship",
                                           "RelationshipComment",
                                           "ReleaseDate",
                                           "ReviewComment",
                                           "ReviewDate",
                                           "Reviewer",
                                           "SPDXID",
                                           "SPDXREF",
                                           "SPDXVersion",
                                           "SnippetAttributionText",
                                           "SnippetByteRange",
                                           "SnippetComment",
                                           "SnippetCopyrightText",
                                           "SnippetFromFileSPDXID",
                                           "SnippetLicenseComments",
                                           "SnippetLicenseConcluded",
                                           "SnippetLineRange",
                                           "SnippetName",
                                           "SnippetSPDXID",
                                           "SPDXIdentifier",
                                           "ValidUntilDate"};

// Whether syft took a package from another bill of materials, as it stands there: it says where it
// found each, "acquired package info from DPKG DB: /var/lib/dpkg/status, ..", and takes files of
// these names for bills.
bool IsOfOtherBill(absl::string_view source_info) {
  static constexpr absl::string_view kWithin[] = {"bom.", ".cdx.", ".spdx."};
  static constexpr absl::string_view kEnds[] = {".bom", ".sbom", ".cdx",      ".spdx",
                                                "/bom", "/sbom", ".syft.json"};
  const std::string places = absl::AsciiStrToLower(
      source_info.substr(std::min(source_info.find(": "), source_info.size())));
  for (const absl::string_view place : absl::StrSplit(places, ',')) {
    // Windows has its own slashes.
    const absl::string_view path = absl::StripAsciiWhitespace(place);
    const size_t slash = path.find_last_of("/\\");
    const std::string name =
        absl::StrCat("/", slash == absl::string_view::npos ? path : path.substr(slash + 1));
    if (std::ranges::any_of(kWithin,
                            [&](absl::string_view w) { return absl::StrContains(name, w); }) ||
        std::ranges::any_of(kEnds,
                            [&](absl::string_view end) { return absl::EndsWith(name, end); })) {
      return true;
    }
  }
  return false;
}

// A document of SPDX, in either notation.
struct SpdxDocument {
  struct Package {
    std::string id, source_info;
    BillPackage package;
  };
  std::vector<Package> packages;
  std::set<std::string, std::less<>> described;
  Tools tools;

  void AddCreator(absl::string_view creator) {
    if (!absl::ConsumePrefix(&creator, "Tool:")) return;
    // "syft-1.0.0".
    const std::pair<absl::string_view, absl::string_view> tool =
        absl::StrSplit(absl::StripAsciiWhitespace(creator), absl::MaxSplits('-', 1));
    tools.Add("", tool.first, tool.second);
  }
  void AddRelation(absl::string_view from, absl::string_view type, absl::string_view to) {
    if (type == "DESCRIBES") described.emplace(to);
    if (type == "DESCRIBED_BY") described.emplace(from);
  }
  absl::Status Add(Collector& collector) && {
    std::vector<BillPackage> all;
    for (Package& package : packages) {
      package.package.is_subject = described.contains(package.id);
      if (!IsOfOtherBill(package.source_info)) package.package.hints = tools.hints();
      all.push_back(std::move(package.package));
    }
    return AddPackages(all, collector);
  }
};

bool IsPurlType(absl::string_view type) {
  return absl::EqualsIgnoreCase(type, "purl") || absl::EndsWithIgnoreCase(type, "/purl");
}

}  // namespace

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
    if (name != "epoch" || value->empty()) continue;
    if (!std::ranges::all_of(*value, absl::ascii_isdigit)) return std::nullopt;
    if (value->find_first_not_of('0') != std::string::npos) url.epoch = *value;
  }
  return url;
}

absl::Status ParseCycloneDx(absl::string_view content, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {
      "$schema",      "bomFormat",       "specVersion", "serialNumber",       "version",
      "metadata",     "components",      "services",    "externalReferences", "dependencies",
      "compositions", "vulnerabilities", "annotations", "formulation",        "declarations",
      "definitions",  "properties",      "signature",   "citations"};
  static constexpr absl::string_view kOfMetadata[] = {"timestamp",
                                                      "lifecycles",
                                                      "tools",
                                                      "authors",
                                                      "component",
                                                      "manufacturer",
                                                      "manufacture",
                                                      "supplier",
                                                      "licenses",
                                                      "properties",
                                                      "distributionConstraints"};
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  const JsonView bill = text.root();
  SHOAL_ASSIGN_OR_RETURN(const JsonView format_view, bill.Get("bomFormat"));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view format, format_view.Text());
  if (format != "CycloneDX") return format_view.Wrong("is not CycloneDX");
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, bill.Get("specVersion"));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view version, version_view.Text());
  if (!version.empty() && !absl::StartsWith(version, "1.")) {
    return version_view.Wrong("is not version 1 of CycloneDX");
  }
  SHOAL_RETURN_IF_ERROR(SkipUnknown(bill, kMembers, "", collector));
  SHOAL_RETURN_IF_ERROR(SkipOtherBills(bill, collector));
  SHOAL_ASSIGN_OR_RETURN(const JsonView metadata, bill.Get("metadata"));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(metadata, kOfMetadata, "metadata", collector));
  SHOAL_ASSIGN_OR_RETURN(const Tools tools, ToolsOf(metadata));
  const BillHints hints = tools.hints();
  std::vector<BillPackage> packages;
  SHOAL_ASSIGN_OR_RETURN(const JsonView subject, metadata.Get("component"));
  SHOAL_RETURN_IF_ERROR(ReadCompositions(bill, subject, collector));
  if (subject.exists()) {
    SHOAL_RETURN_IF_ERROR(ReadComponent(subject, hints, true, packages, collector));
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonView components_view, bill.Get("components"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> components, components_view.Items());
  for (const JsonView& component : components) {
    SHOAL_RETURN_IF_ERROR(ReadComponent(component, hints, false, packages, collector));
  }
  return AddPackages(packages, collector);
}

absl::Status ParseSpdxJson(absl::string_view content, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {"SPDXID",
                                                   "spdxVersion",
                                                   "annotations",
                                                   "comment",
                                                   "creationInfo",
                                                   "dataLicense",
                                                   "documentDescribes",
                                                   "documentNamespace",
                                                   "externalDocumentRefs",
                                                   "files",
                                                   "hasExtractedLicensingInfos",
                                                   "name",
                                                   "packages",
                                                   "relationships",
                                                   "revieweds",
                                                   "snippets"};
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  const JsonView root = text.root();
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, root.Get("spdxVersion"));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view version, version_view.Text());
  if (!absl::StartsWith(version, "SPDX-2.")) return version_view.Wrong("is not SPDX 2");
  SHOAL_RETURN_IF_ERROR(SkipUnknown(root, kMembers, "", collector));
  const auto items_of = [](const JsonView& object,
                           absl::string_view name) -> absl::StatusOr<std::vector<JsonView>> {
    SHOAL_ASSIGN_OR_RETURN(const JsonView view, object.Get(name));
    return view.Items();
  };
  SpdxDocument document;
  SHOAL_ASSIGN_OR_RETURN(const JsonView creation, root.Get("creationInfo"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> creators, items_of(creation, "creators"));
  for (const JsonView& creator_view : creators) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view creator, creator_view.Text());
    document.AddCreator(creator);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> others,
                         items_of(root, "externalDocumentRefs"));
  for (const JsonView& other : others) {
    SHOAL_ASSIGN_OR_RETURN(const std::string place, TextOf(other, "spdxDocument"));
    SHOAL_RETURN_IF_ERROR(collector.Skip(place, "is another document: give that one, too"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> described,
                         items_of(root, "documentDescribes"));
  for (const JsonView& id_view : described) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view id, id_view.Text());
    document.described.emplace(id);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> relations, items_of(root, "relationships"));
  for (const JsonView& relation : relations) {
    SHOAL_ASSIGN_OR_RETURN(const std::string from, TextOf(relation, "spdxElementId"));
    SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(relation, "relationshipType"));
    SHOAL_ASSIGN_OR_RETURN(const std::string to, TextOf(relation, "relatedSpdxElement"));
    document.AddRelation(from, type, to);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, items_of(root, "packages"));
  for (const JsonView& item : items) {
    SpdxDocument::Package& package = document.packages.emplace_back();
    SHOAL_ASSIGN_OR_RETURN(package.id, TextOf(item, "SPDXID"));
    SHOAL_ASSIGN_OR_RETURN(package.source_info, TextOf(item, "sourceInfo"));
    SHOAL_ASSIGN_OR_RETURN(package.package.name, TextOf(item, "name"));
    SHOAL_ASSIGN_OR_RETURN(package.package.version, TextOf(item, "versionInfo"));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> references, items_of(item, "externalRefs"));
    for (const JsonView& reference : references) {
      SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(reference, "referenceType"));
      SHOAL_ASSIGN_OR_RETURN(std::string locator, TextOf(reference, "referenceLocator"));
      if (IsPurlType(type)) package.package.urls.push_back(std::move(locator));
    }
  }
  return std::move(document).Add(collector);
}

// Reads SPDX's form of tags and values, a line at a time.
class SpdxTagReader {
 public:
  explicit SpdxTagReader(Collector& collector) : collector_(collector) {}

  absl::Status ReadLine(absl::string_view line);
  // After the last line. `ends`: whether that had an end.
  absl::Status Finish(bool ends) &&;

 private:
  static constexpr absl::string_view kText = "<text>", kEnd = "</text>";

  absl::Status Wrong(absl::string_view what) const { return collector_.Wrong(number_, what); }
  absl::Status ReadWithinText(absl::string_view line);
  // What follows the beginning of a text, or stands in it, and may end it.
  absl::Status ReadEndOfText(absl::string_view rest);
  absl::Status CheckPlace(absl::string_view tag);
  absl::Status Take(absl::string_view tag, absl::string_view value);
  absl::Status TakeReference(absl::string_view value, std::span<const absl::string_view> words);

  Collector& collector_;
  SpdxDocument document_;
  bool is_spdx_ = false, in_package_ = false, in_file_ = false;
  // Of the package, of which there is one each.
  std::set<std::string, std::less<>> once_;
  uint64_t number_ = 0;
  // Texts of several lines stand between <text> and </text>, and may look like tags. Zero: in none.
  uint64_t text_begins_ = 0;
};

absl::Status SpdxTagReader::ReadLine(absl::string_view line) {
  ++number_;
  absl::ConsumeSuffix(&line, "\r");
  // For other readers one of these may end a line.
  if (std::ranges::any_of(line, [](char c) {
        return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t';
      })) {
    return Wrong("has a control character");
  }
  if (text_begins_ > 0) return ReadWithinText(line);
  line = absl::StripAsciiWhitespace(line);
  if (line.empty() || line[0] == '#') return absl::OkStatus();
  const size_t colon = line.find(':');
  if (colon == absl::string_view::npos) return Wrong("is no tag with a value");
  const absl::string_view tag = absl::StripAsciiWhitespace(line.substr(0, colon));
  absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
  if (std::ranges::find(kSpdxTags, tag) == std::end(kSpdxTags)) {
    return Wrong("is a tag that SPDX 2 has not");
  }
  if (absl::ConsumePrefix(&value, kText)) {
    text_begins_ = number_;
    SHOAL_RETURN_IF_ERROR(ReadEndOfText(value));
    value = absl::StripAsciiWhitespace(value.substr(0, value.find(kEnd)));
    // Of several lines only comments are.
    const bool is_name = tag == "PackageName" || tag == "ExternalRef" || tag == "SPDXID";
    if (text_begins_ > 0 && is_name) return Wrong("has more than one line");
  }
  return Take(tag, value);
}

absl::Status SpdxTagReader::ReadWithinText(absl::string_view line) {
  // The one before may have lost its end, and would hide what stands between.
  if (absl::StrContains(line, kText)) return Wrong("a <text> in a <text>");
  absl::string_view name = absl::StripLeadingAsciiWhitespace(line);
  if (absl::ConsumePrefix(&name, "PackageName:")) {
    SHOAL_RETURN_IF_ERROR(collector_.Skip(absl::StripAsciiWhitespace(name),
                                          "stands in a text, and looks like a package"));
  }
  return ReadEndOfText(line);
}

absl::Status SpdxTagReader::ReadEndOfText(absl::string_view rest) {
  const size_t end = rest.find(kEnd);
  if (end == absl::string_view::npos) return absl::OkStatus();
  text_begins_ = 0;
  if (absl::StripAsciiWhitespace(rest.substr(end + kEnd.size())).empty()) return absl::OkStatus();
  return Wrong("something follows a </text>");
}

// Whether the tag may stand where it stands.
absl::Status SpdxTagReader::CheckPlace(absl::string_view tag) {
  if ((absl::StartsWith(tag, "Package") && !in_package_) ||
      (absl::StartsWith(tag, "File") && tag != "FilesAnalyzed" && !in_file_)) {
    // The line before it, with what it is of, may be lost.
    return Wrong("is of no package, or of no file");
  }
  if (in_package_ &&
      (tag == "SPDXID" || tag == "PackageVersion" || tag == "PackageDownloadLocation") &&
      !once_.insert(std::string(tag)).second) {
    return Wrong("is there twice in one package");
  }
  return absl::OkStatus();
}

absl::Status SpdxTagReader::Take(absl::string_view tag, absl::string_view value) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(value, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (tag == "SPDXVersion") {
    is_spdx_ = absl::StartsWith(value, "SPDX-2.");
  } else if (tag == "Creator") {
    document_.AddCreator(value);
  } else if (tag == "ExternalDocumentRef") {
    return collector_.Skip(value, "is another document: give that one, too");
  } else if (tag == "PackageName") {
    document_.packages.emplace_back().package.name = std::string(value);
    in_package_ = true;
    in_file_ = false;
    once_.clear();
  } else if (tag == "FileName" || tag == "SnippetSPDXID") {
    in_package_ = false;  // what follows is not the package's
    in_file_ = tag == "FileName";
  } else {
    SHOAL_RETURN_IF_ERROR(CheckPlace(tag));
    if (tag == "Relationship") {
      if (words.size() != 3) return Wrong("is no relationship");
      document_.AddRelation(words[0], words[1], words[2]);
    } else if (tag == "SPDXID" && in_package_) {
      document_.packages.back().id = std::string(value);
    } else if (tag == "PackageVersion") {
      document_.packages.back().package.version = std::string(value);
    } else if (tag == "PackageSourceInfo") {
      document_.packages.back().source_info = std::string(value);
    } else if (tag == "ExternalRef") {
      return TakeReference(value, words);
    }
  }
  return absl::OkStatus();
}

absl::Status SpdxTagReader::TakeReference(absl::string_view value,
                                          std::span<const absl::string_view> words) {
  if (!in_package_) return Wrong("is of no package");
  if (words.size() >= 2 && IsPurlType(words[1])) {
    if (words.size() != 3) return Wrong("is no reference to a package URL");
    document_.packages.back().package.urls.emplace_back(words[2]);
  } else if (words.size() < 3) {
    return Wrong("is no reference");
  } else if (words.size() > 3) {
    // A blank in the midst of a category makes its rest the type.
    return collector_.Skip(value, "is no reference that is understood");
  }
  return absl::OkStatus();
}

absl::Status SpdxTagReader::Finish(bool ends) && {
  if (text_begins_ > 0) return collector_.Wrong(text_begins_, "a <text> has no end");
  if (!is_spdx_) return collector_.Wrong(1, "is not SPDX 2");
  if (!ends) return Wrong(kEndsWithin);
  return std::move(document_).Add(collector_);
}

absl::Status ParseSpdxTagValue(absl::string_view content, Collector& collector) {
  absl::ConsumePrefix(&content, table::kByteOrderMark);
  SpdxTagReader reader(collector);
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    SHOAL_RETURN_IF_ERROR(reader.ReadLine(line));
  }
  return std::move(reader).Finish(absl::EndsWith(content, "\n"));
}

}  // namespace shoal::audit
