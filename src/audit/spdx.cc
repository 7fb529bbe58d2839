// Bills of materials in SPDX 2, as JSON and as tags with values.
#include <algorithm>
#include <functional>
#include <iterator>
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
#include "src/audit/bill.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::audit {
namespace {

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

// Where a package was found, by what syft and Trivy say, and of which source it was made.
void ReadSourceInfo(absl::string_view info, BillHints& hints) {
  if (hints.tool == BillTool::kSyft) {
    const bool is_of_other = IsOfOtherBill(info);
    const bool is_of_dpkg = absl::StrContains(info, "/dpkg/") || absl::EndsWith(info, ".deb") ||
                            absl::StrContains(info, "/opkg/");
    hints.names_sources &=
        !is_of_other && is_of_dpkg && absl::StartsWith(info, "acquired package info from DPKG DB");
    hints.names_modules &=
        !is_of_other && absl::StartsWith(info, "acquired package info from go module information");
  } else if (hints.tool == BillTool::kTrivy) {
    hints.names_modules &= absl::StartsWith(info, "package found in: ");
  }
  if (!absl::ConsumePrefix(&info, "built package from: ")) return;
  const std::vector<absl::string_view> words = absl::StrSplit(info, ' ', absl::SkipEmpty());
  if (words.empty() || words.size() > 2) return;
  hints.source = std::string(words[0]);
  if (words.size() == 2) hints.source_version = std::string(words[1]);
}

// A document of SPDX, in either notation.
class SpdxDocument {
 public:
  struct Package {
    std::string id, source_info, purpose;
    BillPackage package;
  };

  std::vector<Package>& packages() { return packages_; }
  void AddCreator(absl::string_view creator);
  void AddElement(absl::string_view id) { ids_.emplace(id); }
  void AddFile(absl::string_view name) { files_.push_back({std::string(name), ""}); }
  // Of the last one.
  void SetFileId(absl::string_view id) {
    AddElement(id);
    files_.back().id = std::string(id);
  }
  void AddRelation(absl::string_view from, absl::string_view type, absl::string_view to) {
    relations_.push_back({std::string(from), std::string(type), std::string(to)});
  }
  // Says which package a file is in.
  void AddFileOf(absl::string_view package, absl::string_view file) {
    files_of_.emplace_back(package, file);
  }
  absl::Status Add(Collector& collector) &&;

 private:
  static constexpr char kDocument[] = "SPDXRef-DOCUMENT";
  struct Relation {
    std::string from, type, to;
  };
  struct File {
    std::string name, id;
  };

  absl::Status SkipFiles(Collector& collector) const;
  absl::Status SkipWhatIsNotThere(Collector& collector) const;

  std::vector<Package> packages_;
  std::vector<File> files_;
  std::vector<std::pair<std::string, std::string>> files_of_;
  std::vector<Relation> relations_;
  std::set<std::string, std::less<>> ids_ = {kDocument};
  Tools tools_;
};

void SpdxDocument::AddCreator(absl::string_view creator) {
  if (!absl::ConsumePrefix(&creator, "Tool:")) return;
  // "syft-1.0.0".
  const std::pair<absl::string_view, absl::string_view> tool =
      absl::StrSplit(absl::StripAsciiWhitespace(creator), absl::MaxSplits('-', 1));
  tools_.Add("", tool.first, tool.second);
}

absl::Status SpdxDocument::Add(Collector& collector) && {
  std::set<std::string, std::less<>> described, owners;
  for (const Relation& relation : relations_) {
    if (relation.type == "DESCRIBES") described.insert(relation.to);
    if (relation.type == "DESCRIBED_BY") described.insert(relation.from);
    if (relation.type == "CONTAINS" || relation.type == "DEPENDS_ON") owners.insert(relation.from);
  }
  std::vector<BillPackage> all;
  for (const auto& [id, source_info, purpose, package] : packages_) {
    BillPackage one = package;
    one.is_subject = described.contains(id);
    one.hints = tools_.hints();
    const bool is_system = purpose == "OPERATING-SYSTEM" || purpose == "OPERATING_SYSTEM";
    const bool is_place = one.hints.tool == BillTool::kTrivy && purpose == "APPLICATION" &&
                          one.version.empty() && owners.contains(id) &&
                          IsPlaceOfTrivy(one.name, "");
    ReadSourceInfo(source_info, one.hints);
    const bool is_none = one.urls.empty() && !one.is_subject && !IsPackageArchive(one.name) &&
                         ((is_system && IsSystemName(one.name) && !HasCpeOfPackage(one.cpes)) ||
                          (is_place && one.cpes.empty()));
    if (!is_none) all.push_back(std::move(one));
  }
  SHOAL_RETURN_IF_ERROR(AddPackages(all, collector));
  SHOAL_RETURN_IF_ERROR(SkipFiles(collector));
  return SkipWhatIsNotThere(collector);
}

// What a package has in it is that package's.
absl::Status SpdxDocument::SkipFiles(Collector& collector) const {
  std::set<std::string, std::less<>> looked_up, within;
  for (const Package& package : packages_) {
    if (std::ranges::any_of(package.package.urls, IsLookedUp)) looked_up.insert(package.id);
  }
  for (const auto& [package, file] : files_of_) {
    if (looked_up.contains(package)) within.insert(file);
  }
  for (const auto& [from, type, to] : relations_) {
    if (type == "CONTAINS" && looked_up.contains(from)) within.insert(to);
    if (type == "CONTAINED_BY" && looked_up.contains(to)) within.insert(from);
  }
  for (const auto& [name, id] : files_) {
    if (!IsPackageArchive(name) || within.contains(id)) continue;
    SHOAL_RETURN_IF_ERROR(collector.Skip(name, "is an archive, and of no package in the bill"));
  }
  return absl::OkStatus();
}

absl::Status SpdxDocument::SkipWhatIsNotThere(Collector& collector) const {
  std::set<std::string, std::less<>> known = ids_;
  for (const Package& package : packages_) known.insert(package.id);
  for (const Relation& relation : relations_) {
    for (const std::string& id : {relation.from, relation.to}) {
      if (SaysNothing(id) || !known.insert(id).second) continue;
      SHOAL_RETURN_IF_ERROR(
          collector.Skip(id, "is in a relationship, and the document has no element of that id"));
    }
  }
  return absl::OkStatus();
}

bool IsPurlType(absl::string_view type) {
  return absl::EqualsIgnoreCase(type, "purl") || absl::EndsWithIgnoreCase(type, "/purl");
}

bool IsCpeType(absl::string_view type) {
  return absl::EqualsIgnoreCase(type, "cpe23Type") || absl::EqualsIgnoreCase(type, "cpe22Type") ||
         absl::EndsWithIgnoreCase(type, "/cpe23Type") ||
         absl::EndsWithIgnoreCase(type, "/cpe22Type");
}

// The package URL of what package managers have references of their own for: "npm lodash@4.17.20".
// Empty for a reference of another type.
std::string UrlOfReference(absl::string_view type, absl::string_view locator) {
  static constexpr std::pair<absl::string_view, absl::string_view> kTypes[] = {
      {"npm", "npm"}, {"maven-central", "maven"}, {"nuget", "nuget"}, {"bower", "bower"}};
  for (const auto& [known, of_url] : kTypes) {
    if (absl::EqualsIgnoreCase(BaseName(type), known)) {
      return absl::StrCat("pkg:", of_url, "/", locator);
    }
  }
  return "";
}

void KeepReference(absl::string_view type, absl::string_view locator, BillPackage& package) {
  if (std::string url = UrlOfReference(type, locator); !url.empty()) {
    package.urls.push_back(std::move(url));
  }
  if (IsPurlType(type)) package.urls.emplace_back(locator);
  if (IsCpeType(type)) package.cpes.emplace_back(locator);
}

absl::Status ReadPackage(const JsonView& item, SpdxDocument& document, Collector& collector) {
  static constexpr absl::string_view kMembers[] = {"SPDXID",
                                                   "annotations",
                                                   "attributionTexts",
                                                   "builtDate",
                                                   "checksums",
                                                   "comment",
                                                   "copyrightText",
                                                   "description",
                                                   "downloadLocation",
                                                   "externalRefs",
                                                   "filesAnalyzed",
                                                   "hasFiles",
                                                   "homepage",
                                                   "licenseComments",
                                                   "licenseConcluded",
                                                   "licenseDeclared",
                                                   "licenseInfoFromFiles",
                                                   "name",
                                                   "originator",
                                                   "packageFileName",
                                                   "packageVerificationCode",
                                                   "primaryPackagePurpose",
                                                   "releaseDate",
                                                   "sourceInfo",
                                                   "summary",
                                                   "supplier",
                                                   "validUntilDate",
                                                   "versionInfo"};
  static constexpr absl::string_view kOfReference[] = {"referenceCategory", "referenceType",
                                                       "referenceLocator", "comment"};
  SpdxDocument::Package& package = document.packages().emplace_back();
  SHOAL_ASSIGN_OR_RETURN(package.id, TextOf(item, "SPDXID"));
  SHOAL_ASSIGN_OR_RETURN(package.source_info, TextOf(item, "sourceInfo"));
  SHOAL_ASSIGN_OR_RETURN(package.purpose, TextOf(item, "primaryPackagePurpose"));
  SHOAL_ASSIGN_OR_RETURN(package.package.name, TextOf(item, "name"));
  SHOAL_ASSIGN_OR_RETURN(package.package.version, TextOf(item, "versionInfo"));
  for (const char* name : {"downloadLocation", "packageFileName"}) {
    SHOAL_ASSIGN_OR_RETURN(std::string archive, TextOf(item, name));
    package.package.archives.push_back(std::move(archive));
  }
  SHOAL_RETURN_IF_ERROR(SkipUnknown(item, kMembers, package.package.name, collector));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> references, ItemsOf(item, "externalRefs"));
  for (const JsonView& reference : references) {
    SHOAL_RETURN_IF_ERROR(SkipUnknown(reference, kOfReference, "externalRefs", collector));
    SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(reference, "referenceType"));
    SHOAL_ASSIGN_OR_RETURN(const std::string locator, TextOf(reference, "referenceLocator"));
    KeepReference(type, locator, package.package);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> files, ItemsOf(item, "hasFiles"));
  for (const JsonView& file : files) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view id, file.Text());
    document.AddFileOf(package.id, id);
  }
  return absl::OkStatus();
}

// What a document has beside packages, and how it all belongs together.
absl::Status ReadElements(const JsonView& root, SpdxDocument& document) {
  SHOAL_ASSIGN_OR_RETURN(const std::string id_of_document, TextOf(root, "SPDXID"));
  document.AddElement(id_of_document);
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> files, ItemsOf(root, "files"));
  for (const JsonView& file : files) {
    SHOAL_ASSIGN_OR_RETURN(const std::string name, TextOf(file, "fileName"));
    SHOAL_ASSIGN_OR_RETURN(const std::string id, TextOf(file, "SPDXID"));
    document.AddFile(name);
    document.SetFileId(id);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> snippets, ItemsOf(root, "snippets"));
  for (const JsonView& snippet : snippets) {
    SHOAL_ASSIGN_OR_RETURN(const std::string id, TextOf(snippet, "SPDXID"));
    document.AddElement(id);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> described, ItemsOf(root, "documentDescribes"));
  for (const JsonView& id_view : described) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view id, id_view.Text());
    document.AddRelation(id_of_document, "DESCRIBES", id);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> relations, ItemsOf(root, "relationships"));
  for (const JsonView& relation : relations) {
    SHOAL_ASSIGN_OR_RETURN(const std::string from, TextOf(relation, "spdxElementId"));
    SHOAL_ASSIGN_OR_RETURN(const std::string type, TextOf(relation, "relationshipType"));
    SHOAL_ASSIGN_OR_RETURN(const std::string to, TextOf(relation, "relatedSpdxElement"));
    document.AddRelation(from, type, to);
  }
  return absl::OkStatus();
}

}  // namespace

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
  SpdxDocument document;
  SHOAL_ASSIGN_OR_RETURN(const JsonView creation, root.Get("creationInfo"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> creators, ItemsOf(creation, "creators"));
  for (const JsonView& creator_view : creators) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view creator, creator_view.Text());
    document.AddCreator(creator);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> others, ItemsOf(root, "externalDocumentRefs"));
  for (const JsonView& other : others) {
    SHOAL_ASSIGN_OR_RETURN(const std::string place, TextOf(other, "spdxDocument"));
    SHOAL_RETURN_IF_ERROR(collector.Skip(place, "is another document: give that one, too"));
  }
  SHOAL_RETURN_IF_ERROR(ReadElements(root, document));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, ItemsOf(root, "packages"));
  for (const JsonView& item : items) {
    SHOAL_RETURN_IF_ERROR(ReadPackage(item, document, collector));
  }
  return std::move(document).Add(collector);
}

namespace {

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
  // Of two, either may be the right one.
  static constexpr absl::string_view kOnce[] = {
      "SPDXID",          "PackageVersion",    "PackageDownloadLocation",
      "PackageFileName", "PackageSourceInfo", "PrimaryPackagePurpose"};
  if ((absl::StartsWith(tag, "Package") && !in_package_) ||
      (absl::StartsWith(tag, "File") && tag != "FilesAnalyzed" && !in_file_)) {
    // The line before it, with what it is of, may be lost.
    return Wrong("is of no package, or of no file");
  }
  if (in_package_ && std::ranges::find(kOnce, tag) != std::end(kOnce) &&
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
    document_.packages().emplace_back().package.name = std::string(value);
    in_package_ = true;
    in_file_ = false;
    once_.clear();
  } else if (tag == "FileName" || tag == "SnippetSPDXID") {
    in_package_ = false;  // what follows is not the package's
    in_file_ = tag == "FileName";
    if (in_file_) {
      document_.AddFile(value);
    } else {
      document_.AddElement(value);
    }
  } else {
    SHOAL_RETURN_IF_ERROR(CheckPlace(tag));
    if (tag == "Relationship") {
      if (words.size() != 3) return Wrong("is no relationship");
      document_.AddRelation(words[0], words[1], words[2]);
    } else if (tag == "SPDXID" && in_package_) {
      document_.packages().back().id = std::string(value);
    } else if (tag == "SPDXID" && in_file_) {
      document_.SetFileId(value);
    } else if (tag == "SPDXID") {
      document_.AddElement(value);
    } else if (tag == "PrimaryPackagePurpose" && in_package_) {
      document_.packages().back().purpose = std::string(value);
    } else if (tag == "PackageVersion") {
      document_.packages().back().package.version = std::string(value);
    } else if (tag == "PackageDownloadLocation" || tag == "PackageFileName") {
      document_.packages().back().package.archives.emplace_back(value);
    } else if (tag == "PackageSourceInfo") {
      document_.packages().back().source_info = std::string(value);
    } else if (tag == "ExternalRef") {
      return TakeReference(value, words);
    }
  }
  return absl::OkStatus();
}

absl::Status SpdxTagReader::TakeReference(absl::string_view value,
                                          std::span<const absl::string_view> words) {
  if (!in_package_) return Wrong("is of no package");
  const bool is_purl = words.size() >= 2 && IsPurlType(words[1]);
  if (is_purl && words.size() != 3) return Wrong("is no reference to a package URL");
  if (words.size() < 3) return Wrong("is no reference");
  // A blank in the midst of a category makes its rest the type.
  if (words.size() > 3) return collector_.Skip(value, "is no reference that is understood");
  KeepReference(words[1], words[2], document_.packages().back().package);
  return absl::OkStatus();
}

absl::Status SpdxTagReader::Finish(bool ends) && {
  if (text_begins_ > 0) return collector_.Wrong(text_begins_, "a <text> has no end");
  if (!is_spdx_) return collector_.Wrong(1, "is not SPDX 2");
  if (!ends) return Wrong(kEndsWithin);
  return std::move(document_).Add(collector_);
}

}  // namespace

absl::Status ParseSpdxTagValue(absl::string_view content, Collector& collector) {
  absl::ConsumePrefix(&content, table::kByteOrderMark);
  SpdxTagReader reader(collector);
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    SHOAL_RETURN_IF_ERROR(reader.ReadLine(line));
  }
  return std::move(reader).Finish(absl::EndsWith(content, "\n"));
}

}  // namespace shoal::audit
