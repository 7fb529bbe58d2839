// Bills of materials in CycloneDX, as JSON.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/audit/bill.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

constexpr absl::string_view kTrivyPrefix = "aquasecurity:trivy:";

// What programs say of a package in properties, by their names.
using Properties = std::map<std::string, std::string>;

// Trivy writes the source of a Debian package as properties, and not in the package URL; syft did.
void ReadSource(Properties& values, BillHints& hints) {
  constexpr absl::string_view kSyft = "syft:metadata:source";
  const auto of_trivy = [&](absl::string_view name) -> const std::string& {
    return values[absl::StrCat(kTrivyPrefix, "Src", name)];
  };
  hints.source = values[std::string(kSyft)];
  if (!hints.source.empty()) hints.source_version = values[absl::StrCat(kSyft, "Version")];
  const std::string &name = of_trivy("Name"), &version = of_trivy("Version");
  if (name.empty() || version.empty()) return;
  hints.contradicts |= !hints.source.empty() && hints.source != name;
  const std::string &epoch = of_trivy("Epoch"), &release = of_trivy("Release");
  hints.source = name;
  hints.source_version =
      absl::StrCat(epoch, epoch.empty() ? "" : ":", version, release.empty() ? "" : "-", release);
}

// What syft and Trivy say of where they found a package. Either takes packages from other bills of
// materials, as they stand there, and a program that passes a bill on may take properties out.
void ReadFinder(Properties& values, BillHints& hints) {
  const std::string& finder = values["syft:package:foundBy"];
  if (hints.tool == BillTool::kSyft) {
    hints.names_sources &= absl::StartsWith(finder, "dpkg") || absl::StartsWith(finder, "deb-");
    hints.names_modules &= absl::StartsWith(finder, "go-");
  } else if (hints.tool == BillTool::kTrivy) {
    const std::string& type = values[absl::StrCat(kTrivyPrefix, "PkgType")];
    hints.names_modules &= type == "gomod" || type == "gobinary";
  }
}

absl::StatusOr<Properties> ReadProperties(const JsonView& component, BillHints& hints) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> properties, ItemsOf(component, "properties"));
  static constexpr absl::string_view kRead[] = {"syft:package:foundBy", "syft:metadata:source",
                                                "syft:metadata:sourceVersion"};
  static constexpr absl::string_view kOfTrivy[] = {
      "SrcName", "SrcVersion", "SrcRelease", "SrcEpoch", "PkgType", "Class", "Type"};
  Properties values;
  for (const JsonView& property : properties) {
    SHOAL_ASSIGN_OR_RETURN(const std::string name, TextOf(property, "name"));
    absl::string_view rest = name;
    const bool is_read = std::ranges::find(kRead, name) != std::end(kRead) ||
                         (absl::ConsumePrefix(&rest, kTrivyPrefix) &&
                          std::ranges::find(kOfTrivy, rest) != std::end(kOfTrivy));
    if (!is_read) continue;
    SHOAL_ASSIGN_OR_RETURN(std::string value, TextOf(property, "value"));
    const auto [at, is_new] = values.try_emplace(name, value);
    hints.contradicts |= !is_new && at->second != value;
  }
  if (hints.contradicts) hints.names_sources = hints.names_modules = false;
  ReadFinder(values, hints);
  ReadSource(values, hints);
  return values;
}

// Other documents that something refers to, and in which it may name more packages.
absl::Status SkipOtherBills(const JsonView& object, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> references,
                         ItemsOf(object, "externalReferences"));
  for (const JsonView& reference : references) {
    SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(reference, "type"));
    if (type != "bom") continue;
    SHOAL_ASSIGN_OR_RETURN(const std::string url, TextOf(reference, "url"));
    SHOAL_RETURN_IF_ERROR(collector.Skip(url, "is another bill of materials: give that one, too"));
  }
  return absl::OkStatus();
}

// The archives that a component is said to come in.
absl::Status ReadArchives(const JsonView& component, BillPackage& package) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> references,
                         ItemsOf(component, "externalReferences"));
  for (const JsonView& reference : references) {
    SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(reference, "type"));
    if (type != "distribution" && type != "source-distribution") continue;
    SHOAL_ASSIGN_OR_RETURN(std::string url, TextOf(reference, "url"));
    package.archives.push_back(std::move(url));
  }
  return absl::OkStatus();
}

// Takes a text that says, as a package URL or a CPE, which package a component is.
void TakeIdentity(absl::string_view text, BillPackage& package) {
  if (absl::StartsWith(text, "cpe:")) package.cpes.emplace_back(text);
  if (ParsePackageUrl(text).has_value()) {
    package.also.push_back({.urls = {std::string(text)}});
  }
}

// Reads a bill. Call Read() once.
class CycloneDxReader {
 public:
  explicit CycloneDxReader(Collector& collector) : collector_(collector) {}

  absl::Status Read(const JsonView& bill);

 private:
  absl::Status ReadTools(const JsonView& metadata);
  absl::Status TakeToolRefs(const JsonView& owner);
  absl::Status ReadDependencies(const JsonView& bill);
  // The components of an object, and what is nested in them. `within`: in a package that is looked
  // up.
  absl::Status ReadComponents(const JsonView& owner, bool within = false);
  absl::Status ReadComponent(const JsonView& component, bool is_subject, bool within);
  // `is_package`: whether something says that it is one, even if its type is that of none.
  absl::Status ReadIdentity(const JsonView& component, BillPackage& package, bool& is_package);
  // `has_identity`: whether that is the name or the version of a package.
  absl::Status ReadEvidence(const JsonView& component, BillPackage& package, bool& has_identity);
  // A range says that the version beside it may be another.
  absl::Status SkipRange(const JsonView& component, const BillPackage& package);
  absl::Status ReadPedigree(const JsonView& component, BillPackage& package);
  absl::Status ReadServices(const JsonView& owner);
  // What else of a bill may have components.
  absl::Status ReadOthers(const JsonView& bill);
  // What a bill says of its own completeness. What is incomplete lacks packages, wherever that is;
  // what nobody knows about one of the parts is as if nothing were said, as their packages stand in
  // the bill beside them.
  absl::Status ReadCompositions(const JsonView& bill, const JsonView& subject);
  absl::Status CheckReferences(const JsonView& bill);
  absl::Status CheckAnnotations(const JsonView& bill);
  // Of what else has references by `ref` and `target`, which may be to parts of any other kind: to
  // packages, wherever they stand in it.
  absl::Status CheckReferencesWithin(const JsonView& value);
  // Takes what refers to a component. One that the bill does not have may be a package.
  absl::Status Refer(absl::string_view ref);
  // Of a text that may be the reference of a part of any other kind.
  absl::Status ReferIfPackage(absl::string_view ref);

  Collector& collector_;
  BillHints hints_;
  std::vector<BillPackage> packages_;
  // What may be referred to: by its bom-ref, or as some write it by its package URL.
  std::set<std::string, std::less<>> known_;
  std::set<std::string, std::less<>> of_tools_, unknown_;
  // What depends on something.
  std::set<std::string, std::less<>> dependents_;
};

absl::Status CycloneDxReader::ReadTools(const JsonView& metadata) {
  SHOAL_ASSIGN_OR_RETURN(JsonView tools_view, metadata.Get("tools"));
  // A list in earlier versions of the format.
  if (!tools_view.is_array()) {
    SHOAL_RETURN_IF_ERROR(TakeToolRefs(tools_view));
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
  hints_ = tools.hints();
  return absl::OkStatus();
}

absl::Status CycloneDxReader::TakeToolRefs(const JsonView& owner) {
  for (const char* name : {"components", "services"}) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, ItemsOf(owner, name));
    for (const JsonView& item : items) {
      SHOAL_ASSIGN_OR_RETURN(std::string ref, TextOf(item, "bom-ref"));
      of_tools_.insert(std::move(ref));
      SHOAL_RETURN_IF_ERROR(TakeToolRefs(item));
    }
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::ReadDependencies(const JsonView& bill) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> entries, ItemsOf(bill, "dependencies"));
  for (const JsonView& entry : entries) {
    SHOAL_ASSIGN_OR_RETURN(std::string ref, TextOf(entry, "ref"));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> on, ItemsOf(entry, "dependsOn"));
    if (!on.empty()) dependents_.insert(std::move(ref));
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::ReadComponents(const JsonView& owner, bool within) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> components, ItemsOf(owner, "components"));
  for (const JsonView& component : components) {
    SHOAL_RETURN_IF_ERROR(ReadComponent(component, false, within));
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::ReadComponent(const JsonView& component, bool is_subject,
                                            bool within) {
  static constexpr absl::string_view kMembers[] = {
      "type",       "mime-type", "bom-ref",      "supplier",   "manufacturer", "author",
      "authors",    "publisher", "group",        "name",       "version",      "description",
      "scope",      "hashes",    "licenses",     "copyright",  "cpe",          "purl",
      "omniborId",  "swhid",     "swid",         "modified",   "pedigree",     "externalReferences",
      "components", "evidence",  "releaseNotes", "modelCard",  "data",         "cryptoProperties",
      "properties", "tags",      "signature",    "isExternal", "versionRange", "patentAssertions"};
  static constexpr absl::string_view kNotes[] = {
      "type",      "title",   "featuredImage", "socialImage", "description", "properties",
      "timestamp", "aliases", "tags",          "resolves",    "notes"};
  SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(component, "type"));
  BillPackage package;
  package.hints = hints_;
  package.is_subject = is_subject;
  SHOAL_ASSIGN_OR_RETURN(package.group, TextOf(component, "group"));
  SHOAL_ASSIGN_OR_RETURN(package.name, TextOf(component, "name"));
  SHOAL_ASSIGN_OR_RETURN(package.version, TextOf(component, "version"));
  SHOAL_ASSIGN_OR_RETURN(const std::string url, TextOf(component, "purl"));
  SHOAL_ASSIGN_OR_RETURN(const std::string ref, TextOf(component, "bom-ref"));
  SHOAL_ASSIGN_OR_RETURN(Properties properties, ReadProperties(component, package.hints));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(component, kMembers, package.name, collector_));
  SHOAL_RETURN_IF_ERROR(SkipOtherBills(component, collector_));
  SHOAL_ASSIGN_OR_RETURN(const JsonView notes, component.Get("releaseNotes"));
  SHOAL_RETURN_IF_ERROR(
      SkipUnknown(notes, kNotes, absl::StrCat(package.name, ".releaseNotes"), collector_));
  known_.insert(ref);
  if (!url.empty()) {
    known_.insert(url);
    package.urls.push_back(url);
  }
  bool is_package = false;
  SHOAL_RETURN_IF_ERROR(ReadIdentity(component, package, is_package));
  SHOAL_RETURN_IF_ERROR(ReadArchives(component, package));
  SHOAL_RETURN_IF_ERROR(SkipRange(component, package));
  const bool has_no_version = package.version.empty() && package.group.empty();
  // What else has no package URL is no package, if nothing says that it is one.
  const bool is_archive = !within && IsPackageArchive(package.name);
  const bool is_other = ((type == "file" || type == "data") && has_no_version) ||
                        (type == "operating-system" && IsSystemName(package.name));
  const auto trivy = [&](absl::string_view name) -> const std::string& {
    return properties[absl::StrCat(kTrivyPrefix, name)];
  };
  const bool is_place = hints_.tool == BillTool::kTrivy && type == "application" &&
                        has_no_version && dependents_.contains(ref) &&
                        trivy("Class") == "lang-pkgs" && !trivy("Type").empty() &&
                        IsPlaceOfTrivy(package.name, trivy("Type"));
  const bool is_looked_up = IsLookedUp(url);
  if (is_package || is_archive || !(is_other || is_place)) packages_.push_back(std::move(package));
  return ReadComponents(component, within || is_looked_up);
}

absl::Status CycloneDxReader::ReadIdentity(const JsonView& component, BillPackage& package,
                                           bool& is_package) {
  SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(component, "type"));
  SHOAL_ASSIGN_OR_RETURN(const std::string ref, TextOf(component, "bom-ref"));
  SHOAL_ASSIGN_OR_RETURN(const std::string cpe, TextOf(component, "cpe"));
  if (!cpe.empty()) package.cpes.push_back(cpe);
  // A file in a package has a place there.
  const std::optional<PackageUrl> of_ref = ParsePackageUrl(ref);
  const bool is_name = of_ref.has_value() && (!package.urls.empty() || of_ref->subpath.empty());
  if (is_name) TakeIdentity(ref, package);
  SHOAL_ASSIGN_OR_RETURN(const JsonView tag, component.Get("swid"));
  SHOAL_ASSIGN_OR_RETURN(const std::string version, TextOf(tag, "version"));
  if (!version.empty() && !package.urls.empty()) package.also.push_back({.version = version});
  bool has_identity = false;
  SHOAL_RETURN_IF_ERROR(ReadEvidence(component, package, has_identity));
  SHOAL_RETURN_IF_ERROR(ReadPedigree(component, package));
  const bool is_system = type == "operating-system";  // which have names of both kinds
  is_package = has_identity || !package.urls.empty() || !package.also.empty() ||
               (is_system ? HasCpeOfPackage(package.cpes) : tag.exists() || !package.cpes.empty());
  return absl::OkStatus();
}

absl::Status CycloneDxReader::ReadEvidence(const JsonView& component, BillPackage& package,
                                           bool& has_identity) {
  static constexpr absl::string_view kMembers[] = {"identity", "occurrences", "callstack",
                                                   "licenses", "copyright"};
  SHOAL_ASSIGN_OR_RETURN(const JsonView evidence, component.Get("evidence"));
  SHOAL_RETURN_IF_ERROR(
      SkipUnknown(evidence, kMembers, absl::StrCat(package.name, ".evidence"), collector_));
  SHOAL_ASSIGN_OR_RETURN(const JsonView identity, evidence.Get("identity"));
  std::vector<JsonView> identities = {identity};
  // A list in later versions of the format.
  if (identity.is_array()) {
    SHOAL_ASSIGN_OR_RETURN(identities, identity.Items());
  }
  for (const JsonView& one : identities) {
    SHOAL_ASSIGN_OR_RETURN(const std::string field, TextOf(one, "field"));
    SHOAL_ASSIGN_OR_RETURN(std::string concluded, TextOf(one, "concludedValue"));
    TakeIdentity(concluded, package);
    has_identity |= field == "name" || field == "version" || field == "group";
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> methods, ItemsOf(one, "methods"));
    for (const JsonView& method : methods) {
      SHOAL_ASSIGN_OR_RETURN(const std::string value, TextOf(method, "value"));
      TakeIdentity(value, package);
    }
    if (concluded.empty() || package.urls.empty()) continue;
    BillPackage also;
    if (field == "name") also.name = std::move(concluded);
    if (field == "version") also.version = std::move(concluded);
    if (field == "name" || field == "version") package.also.push_back(std::move(also));
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::SkipRange(const JsonView& component, const BillPackage& package) {
  SHOAL_ASSIGN_OR_RETURN(const std::string range, TextOf(component, "versionRange"));
  const auto has_version = [](absl::string_view url) {
    const std::optional<PackageUrl> parsed = ParsePackageUrl(url);
    return parsed.has_value() && !parsed->version.empty();
  };
  if (range.empty() ||
      (package.version.empty() && std::ranges::none_of(package.urls, has_version))) {
    return absl::OkStatus();
  }
  return collector_.Skip(absl::StrCat(package.name, " ", range),
                         "is a range of versions beside a version");
}

// What a component was made from may have what an advisory is about.
absl::Status CycloneDxReader::ReadPedigree(const JsonView& component, BillPackage& package) {
  static constexpr absl::string_view kMembers[] = {"ancestors", "descendants", "variants",
                                                   "commits",   "patches",     "notes"};
  SHOAL_ASSIGN_OR_RETURN(const JsonView pedigree, component.Get("pedigree"));
  SHOAL_RETURN_IF_ERROR(
      SkipUnknown(pedigree, kMembers, absl::StrCat(package.name, ".pedigree"), collector_));
  for (const char* kin : {"ancestors", "descendants", "variants"}) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> others, ItemsOf(pedigree, kin));
    for (const JsonView& other : others) {
      BillPackage also;
      SHOAL_ASSIGN_OR_RETURN(also.group, TextOf(other, "group"));
      SHOAL_ASSIGN_OR_RETURN(also.name, TextOf(other, "name"));
      SHOAL_ASSIGN_OR_RETURN(also.version, TextOf(other, "version"));
      SHOAL_ASSIGN_OR_RETURN(std::string url, TextOf(other, "purl"));
      if (!url.empty()) also.urls.push_back(std::move(url));
      package.also.push_back(std::move(also));
      // It has parts of its own, and what it was made from.
      SHOAL_RETURN_IF_ERROR(ReadComponents(other));
      SHOAL_RETURN_IF_ERROR(ReadPedigree(other, package));
    }
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::ReadServices(const JsonView& owner) {
  static constexpr absl::string_view kMembers[] = {"bom-ref",
                                                   "provider",
                                                   "group",
                                                   "name",
                                                   "version",
                                                   "description",
                                                   "endpoints",
                                                   "authenticated",
                                                   "x-trust-boundary",
                                                   "trustZone",
                                                   "data",
                                                   "licenses",
                                                   "services",
                                                   "patentAssertions",
                                                   "externalReferences",
                                                   "releaseNotes",
                                                   "properties",
                                                   "tags",
                                                   "signature"};
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> services, ItemsOf(owner, "services"));
  for (const JsonView& service : services) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(service, kMembers, "services", collector_));
    SHOAL_RETURN_IF_ERROR(SkipOtherBills(service, collector_));
    SHOAL_ASSIGN_OR_RETURN(std::string ref, TextOf(service, "bom-ref"));
    known_.insert(std::move(ref));
    SHOAL_RETURN_IF_ERROR(ReadServices(service));
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::ReadOthers(const JsonView& bill) {
  static constexpr absl::string_view kOfFormula[] = {"bom-ref", "components", "services",
                                                     "workflows", "properties"};
  static constexpr absl::string_view kDeclarations[] = {
      "assessors", "attestations", "claims", "evidence", "targets", "affirmation", "signature"};
  static constexpr absl::string_view kTargets[] = {"organizations", "components", "services"};
  static constexpr absl::string_view kDefinitions[] = {"standards", "patents"};
  SHOAL_RETURN_IF_ERROR(ReadServices(bill));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> formulas, ItemsOf(bill, "formulation"));
  for (const JsonView& formula : formulas) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(formula, kOfFormula, "formulation", collector_));
    SHOAL_RETURN_IF_ERROR(ReadComponents(formula));
    SHOAL_RETURN_IF_ERROR(ReadServices(formula));
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonView declarations, bill.Get("declarations"));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(declarations, kDeclarations, "declarations", collector_));
  SHOAL_ASSIGN_OR_RETURN(const JsonView targets, declarations.Get("targets"));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(targets, kTargets, "declarations.targets", collector_));
  SHOAL_ASSIGN_OR_RETURN(const JsonView definitions, bill.Get("definitions"));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(definitions, kDefinitions, "definitions", collector_));
  SHOAL_RETURN_IF_ERROR(ReadServices(targets));
  return ReadComponents(targets);
}

absl::Status CycloneDxReader::ReadCompositions(const JsonView& bill, const JsonView& subject) {
  static constexpr absl::string_view kMembers[] = {"bom-ref",      "aggregate",       "assemblies",
                                                   "dependencies", "vulnerabilities", "signature"};
  SHOAL_ASSIGN_OR_RETURN(const std::string serial, TextOf(bill, "serialNumber"));
  SHOAL_ASSIGN_OR_RETURN(const std::string top, TextOf(subject, "bom-ref"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> compositions, ItemsOf(bill, "compositions"));
  for (const JsonView& composition : compositions) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(composition, kMembers, "compositions", collector_));
    SHOAL_ASSIGN_OR_RETURN(const std::string aggregate, TextOf(composition, "aggregate"));
    bool is_of_whole = false;
    size_t parts = 0;
    for (const char* name : {"assemblies", "dependencies"}) {
      SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, ItemsOf(composition, name));
      parts += items.size();
      for (const JsonView& item : items) {
        SHOAL_ASSIGN_OR_RETURN(const absl::string_view part, item.Text());
        const bool is_bill = part == serial || absl::StartsWith(part, "urn:cdx:");
        is_of_whole |= part == top || is_bill;
        if (!is_bill) {
          SHOAL_RETURN_IF_ERROR(Refer(part));
        }
      }
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView vulnerabilities, composition.Get("vulnerabilities"));
    if (parts == 0 && vulnerabilities.exists()) continue;
    const bool is_open = aggregate == "unknown" || aggregate == "not_specified";
    if (aggregate == "complete" || (is_open && parts > 0 && !is_of_whole)) continue;
    SHOAL_RETURN_IF_ERROR(collector_.Skip(
        "compositions", absl::StrCat("say that packages may be missing: ", aggregate)));
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::CheckReferences(const JsonView& bill) {
  static constexpr absl::string_view kMembers[] = {"ref", "dependsOn", "provides"};
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> entries, ItemsOf(bill, "dependencies"));
  for (const JsonView& entry : entries) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(entry, kMembers, "dependencies", collector_));
    SHOAL_ASSIGN_OR_RETURN(const std::string ref, TextOf(entry, "ref"));
    // What the tools that wrote the bill are made of is no part of what it is about.
    if (of_tools_.contains(ref) && !known_.contains(ref)) continue;
    SHOAL_RETURN_IF_ERROR(Refer(ref));
    for (const char* name : {"dependsOn", "provides"}) {
      SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, ItemsOf(entry, name));
      for (const JsonView& item : items) {
        SHOAL_ASSIGN_OR_RETURN(const absl::string_view on, item.Text());
        SHOAL_RETURN_IF_ERROR(Refer(on));
      }
    }
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> vulnerabilities,
                         ItemsOf(bill, "vulnerabilities"));
  for (const JsonView& vulnerability : vulnerabilities) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> affects, ItemsOf(vulnerability, "affects"));
    for (const JsonView& affected : affects) {
      SHOAL_ASSIGN_OR_RETURN(const std::string ref, TextOf(affected, "ref"));
      // That of another bill is not this one's.
      if (!absl::StartsWith(ref, "urn:cdx:")) {
        SHOAL_RETURN_IF_ERROR(Refer(ref));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::CheckAnnotations(const JsonView& bill) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> annotations, ItemsOf(bill, "annotations"));
  for (const JsonView& annotation : annotations) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> subjects, ItemsOf(annotation, "subjects"));
    for (const JsonView& subject : subjects) {
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view ref, subject.Text());
      SHOAL_RETURN_IF_ERROR(ReferIfPackage(ref));
    }
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::CheckReferencesWithin(const JsonView& value) {
  if (value.is_array()) {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, value.Items());
    for (const JsonView& item : items) SHOAL_RETURN_IF_ERROR(CheckReferencesWithin(item));
  }
  if (!value.is_object()) return absl::OkStatus();
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, value.Members());
  for (const auto& [name, member] : members) {
    SHOAL_RETURN_IF_ERROR(CheckReferencesWithin(member));
    if (!member.is_text() || (name != "ref" && name != "target")) continue;
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view ref, member.Text());
    SHOAL_RETURN_IF_ERROR(ReferIfPackage(ref));
  }
  return absl::OkStatus();
}

absl::Status CycloneDxReader::Refer(absl::string_view ref) {
  if (ref.empty() || known_.contains(ref) || !unknown_.emplace(ref).second) return absl::OkStatus();
  return collector_.Skip(ref, "is referred to, and the bill has no component of that bom-ref");
}

absl::Status CycloneDxReader::ReferIfPackage(absl::string_view ref) {
  if (!ParsePackageUrl(ref).has_value() || of_tools_.contains(ref)) return absl::OkStatus();
  return Refer(ref);
}

absl::Status CycloneDxReader::Read(const JsonView& bill) {
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
  SHOAL_RETURN_IF_ERROR(SkipUnknown(bill, kMembers, "", collector_));
  SHOAL_RETURN_IF_ERROR(SkipOtherBills(bill, collector_));
  SHOAL_ASSIGN_OR_RETURN(const JsonView metadata, bill.Get("metadata"));
  SHOAL_RETURN_IF_ERROR(SkipUnknown(metadata, kOfMetadata, "metadata", collector_));
  SHOAL_RETURN_IF_ERROR(ReadTools(metadata));
  SHOAL_RETURN_IF_ERROR(ReadDependencies(bill));
  SHOAL_ASSIGN_OR_RETURN(const JsonView subject, metadata.Get("component"));
  if (subject.exists()) {
    SHOAL_RETURN_IF_ERROR(ReadComponent(subject, true, false));
  }
  SHOAL_RETURN_IF_ERROR(ReadComponents(bill));
  SHOAL_RETURN_IF_ERROR(ReadOthers(bill));
  SHOAL_RETURN_IF_ERROR(ReadCompositions(bill, subject));
  SHOAL_RETURN_IF_ERROR(AddPackages(packages_, collector_));
  SHOAL_RETURN_IF_ERROR(CheckReferences(bill));
  for (const char* name : {"formulation", "declarations"}) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView part, bill.Get(name));
    SHOAL_RETURN_IF_ERROR(CheckReferencesWithin(part));
  }
  return CheckAnnotations(bill);
}

}  // namespace

absl::Status ParseCycloneDx(absl::string_view content, Collector& collector) {
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
  return CycloneDxReader(collector).Read(bill);
}

}  // namespace shoal::audit
