// Lock files in JSON (npm) and TOML (Poetry, Cargo).
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/base/status_macros.h"
// Errors come as values, in bounded depth: TOML_MAX_NESTED_VALUES, 256.
#define TOML_EXCEPTIONS 0
#include "toml++/toml.h"

namespace shoal::audit {
namespace {

// A key "a.a.a." makes a table in a table, and so on, for which the library has no limit: what
// holds them would be freed in as many nested calls. A key does not go on in the next line.
constexpr size_t kMaxTomlLineBytes = 8192;

absl::Status CheckLines(absl::string_view content, const Collector& collector) {
  uint64_t number = 1;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    if (line.size() > kMaxTomlLineBytes) {
      return collector.Wrong(number,
                             absl::StrCat("a line of more than ", kMaxTomlLineBytes, " bytes"));
    }
    ++number;
  }
  return absl::OkStatus();
}

absl::string_view TextOf(const toml::table& table, std::string_view name) {
  const std::string* const text =
      table[name].as_string() != nullptr ? &table[name].as_string()->get() : nullptr;
  return text != nullptr ? absl::string_view(*text) : absl::string_view();
}

// Calls visit(table) -> Status for every [[package]].
template <typename Visit>
absl::Status ForEachPackage(absl::string_view content, const Collector& collector, Visit visit) {
  SHOAL_RETURN_IF_ERROR(CheckLines(content, collector));
  const toml::parse_result parsed =
      toml::parse(std::string_view(content.data(), content.size()), collector.file());
  if (!parsed) {
    return collector.Wrong(parsed.error().source().begin.line,
                           absl::StrCat("not TOML: ", std::string(parsed.error().description())));
  }
  const toml::node* const packages = parsed.table().get("package");
  if (packages == nullptr) return absl::OkStatus();
  if (!packages->is_array()) {
    return collector.Wrong(packages->source().begin.line, "`package` is not a list of tables");
  }
  for (const toml::node& node : *packages->as_array()) {
    const toml::table* const package = node.as_table();
    const uint64_t line = node.source().begin.line;
    if (package == nullptr) return collector.Wrong(line, "a package is not a table");
    if (TextOf(*package, "name").empty() || TextOf(*package, "version").empty()) {
      return collector.Wrong(line, "a package has no name or no version");
    }
    SHOAL_RETURN_IF_ERROR(visit(*package));
  }
  return absl::OkStatus();
}

// Versions 1 of npm's lock files: packages in packages.
absl::Status ParseDependencies(const JsonView& dependencies, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  for (const auto& [name, package] : members) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
    SHOAL_ASSIGN_OR_RETURN(absl::string_view version, version_view.Text());
    absl::string_view real = name;
    // "npm:lodash@4.17.20" is a package under another name.
    if (absl::ConsumePrefix(&version, "npm:")) {
      const size_t at = version.rfind('@');
      if (at == absl::string_view::npos || at == 0) {
        return version_view.Wrong("has no version behind the name");
      }
      real = version.substr(0, at);
      version = version.substr(at + 1);
    }
    if (absl::StartsWith(version, "file:")) {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(collector.Add("npm", real, version));
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, package.Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(ParseDependencies(inner, collector));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParsePackageLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const JsonView packages, text.root().Get("packages"));
  if (!packages.exists()) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView dependencies, text.root().Get("dependencies"));
    return ParseDependencies(dependencies, collector);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, packages.Members());
  for (const auto& [path, package] : members) {
    constexpr absl::string_view kModules = "node_modules/";
    const size_t at = path.rfind(kModules);
    SHOAL_ASSIGN_OR_RETURN(const JsonView link_view, package.Get("link"));
    SHOAL_ASSIGN_OR_RETURN(const bool link, link_view.Bool());
    // The project itself, and the packages of its workspaces.
    if (at == absl::string_view::npos || link) {
      collector.Own();
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, package.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view version, version_view.Text());
    SHOAL_RETURN_IF_ERROR(
        collector.Add("npm", name.empty() ? path.substr(at + kModules.size()) : name, version));
  }
  return absl::OkStatus();
}

absl::Status ParsePoetryLock(absl::string_view content, Collector& collector) {
  return ForEachPackage(content, collector, [&](const toml::table& package) -> absl::Status {
    const toml::table* const source = package["source"].as_table();
    if (source != nullptr && TextOf(*source, "type") == "directory") {
      collector.Own();
      return absl::OkStatus();
    }
    return collector.Add("PyPI", TextOf(package, "name"), TextOf(package, "version"));
  });
}

absl::Status ParseCargoLock(absl::string_view content, Collector& collector) {
  return ForEachPackage(content, collector, [&](const toml::table& package) -> absl::Status {
    // What has no source lies in the project.
    if (TextOf(package, "source").empty()) {
      collector.Own();
      return absl::OkStatus();
    }
    return collector.Add("crates.io", TextOf(package, "name"), TextOf(package, "version"));
  });
}

}  // namespace shoal::audit
