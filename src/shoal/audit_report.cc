#include "src/shoal/audit_report.h"

#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/base/version.h"
#include "src/shoal/format.h"
#include "src/table/records.h"

namespace shoal::commands {
namespace {

using audit::Finding;

std::string Escaped(absl::string_view text) { return table::EscapeTsv(AsBytes(text)); }

std::string QuotedJson(absl::string_view text) {
  const std::string object = JsonObject().Text("x", text).Take();
  return object.substr(5, object.size() - 6);  // without {"x": and }
}

// RFC 3986: a path as a reference; an absolute one with its scheme.
std::string Uri(absl::string_view path) {
  std::string uri = absl::StartsWith(path, "/") ? "file://" : "";
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
        absl::string_view("-._~/").find(c) != absl::string_view::npos) {
      uri.push_back(c);
    } else {
      absl::StrAppendFormat(&uri, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return uri;
}

std::string Message(const Finding& finding) {
  std::string text = finding.package;
  if (!finding.version.empty()) absl::StrAppend(&text, " ", finding.version);
  if (!finding.ecosystem.empty()) absl::StrAppend(&text, " (", finding.ecosystem, ")");
  absl::StrAppend(&text, ": ", audit::StatusName(finding.status));
  if (!finding.id.empty()) absl::StrAppend(&text, ", ", finding.id);
  if (!finding.alias.empty()) absl::StrAppend(&text, " (", finding.alias, ")");
  if (!finding.fixed.empty()) absl::StrAppend(&text, ", fixed in ", finding.fixed);
  if (!finding.note.empty()) absl::StrAppend(&text, ": ", finding.note);
  return text;
}

// An advisory, or why there is a result without one.
std::string RuleOf(const Finding& finding) {
  if (!finding.id.empty()) return finding.id;
  if (finding.status == Finding::Status::kVulnerable) return "advisories-not-listed";
  return absl::StrCat("package-", audit::StatusName(finding.status));
}

}  // namespace

std::string FindingsAsTsv(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppend(&text, audit::StatusName(finding.status));
    for (const std::string& field :
         {finding.ecosystem, finding.package, finding.version, finding.id, finding.alias,
          finding.fixed, finding.note, absl::StrJoin(finding.files, ",")}) {
      absl::StrAppend(&text, "\t", Escaped(field));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string FindingsAsJson(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::vector<std::string> files;
    for (const std::string& file : finding.files) files.push_back(QuotedJson(file));
    absl::StrAppend(&text,
                    JsonObject()
                        .Text("status", audit::StatusName(finding.status))
                        .Text("ecosystem", finding.ecosystem)
                        .Text("package", finding.package)
                        .Text("version", finding.version)
                        .Text("id", finding.id)
                        .Text("alias", finding.alias)
                        .Text("fixed", finding.fixed)
                        .Text("note", finding.note)
                        .Raw("files", JsonArray(files))
                        .Take(),
                    "\n");
  }
  return text;
}

std::string FindingsAsSarif(std::span<const Finding> findings) {
  std::map<std::string, uint64_t> places;
  std::vector<std::string> rules, results;
  for (const Finding& finding : findings) {
    const std::string rule = RuleOf(finding);
    const auto [place, is_new] = places.try_emplace(rule, rules.size());
    if (is_new) {
      rules.push_back(JsonObject()
                          .Text("id", rule)
                          .Raw("shortDescription", JsonObject().Text("text", rule).Take())
                          .Take());
    }
    std::vector<std::string> locations;
    for (const std::string& file : finding.files) {
      const std::string artifact = JsonObject().Text("uri", Uri(file)).Take();
      locations.push_back(
          JsonObject()
              .Raw("physicalLocation", JsonObject().Raw("artifactLocation", artifact).Take())
              .Take());
    }
    const bool vulnerable = finding.status == Finding::Status::kVulnerable;
    results.push_back(JsonObject()
                          .Text("ruleId", rule)
                          .Integer("ruleIndex", place->second)
                          .Text("level", vulnerable ? "error" : "warning")
                          .Raw("message", JsonObject().Text("text", Message(finding)).Take())
                          .Raw("locations", JsonArray(locations))
                          .Take());
  }
  const std::string driver = JsonObject()
                                 .Text("name", "shoal audit")
                                 .Text("version", cli::kVersion)
                                 .Raw("rules", JsonArray(rules))
                                 .Take();
  const std::string run = JsonObject()
                              .Raw("tool", JsonObject().Raw("driver", driver).Take())
                              .Raw("results", JsonArray(results))
                              .Take();
  return JsonObject()
             .Text("$schema", "https://json.schemastore.org/sarif-2.1.0.json")
             .Text("version", "2.1.0")
             .Raw("runs", JsonArray(std::vector<std::string>{run}))
             .Take() +
         "\n";
}

}  // namespace shoal::commands
