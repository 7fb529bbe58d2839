// Whether a lock file is that of the manifests beside it: of package.json (npm), go.mod, Cargo.toml
// and pyproject.toml (Poetry).
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
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

namespace fs = std::filesystem;

constexpr absl::string_view kNodeModules = "node_modules";
// What a name of Python ends before, in a requirement.
constexpr absl::string_view kNameEnds = " \t[(<>=!~@;,";
// What npm has in lock files, at last what it did not have in version 1.
constexpr const char* kKindsOfNeeds[] = {"dependencies", "devDependencies", "optionalDependencies",
                                         "peerDependencies"};
constexpr size_t kOldKinds = 3;

// The content of a file beside a lock file. NOT_FOUND if there is none.
absl::StatusOr<std::string> ReadBeside(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return absl::NotFoundError(path.string());
  return ReadRegular(path.string());
}

// What an entry of a lock file of npm, or a package.json, needs: each name with all that is asked
// for of it.
using Needs = std::map<std::string, std::set<std::string>>;
absl::StatusOr<Needs> NeedsOf(const JsonView& package, std::span<const char* const> kinds) {
  Needs needs;
  for (const char* const kind : kinds) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView view, package.Get(kind));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, view.Members());
    for (const auto& [name, asked] : members) {
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view text, asked.Text());
      needs[std::string(name)].insert(std::string(text));
    }
  }
  return needs;
}

absl::Status SkipStale(absl::string_view name, const std::string& manifest, absl::string_view how,
                       Collector& collector) {
  return collector.Skip(
      name, absl::StrCat("is needed by ", manifest, ", and the lock file was made ", how,
                         ": npm install makes it anew"));
}

// Marks what a package.json needs and its entry in the lock file has not, or otherwise: npm writes
// both at once.
absl::Status CompareWithEntry(const std::string& manifest, const JsonView& package,
                              const JsonView& entry, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const Needs needs, NeedsOf(package, kKindsOfNeeds));
  SHOAL_ASSIGN_OR_RETURN(const Needs of_lock, NeedsOf(entry, kKindsOfNeeds));
  for (const auto& [name, asked] : needs) {
    const auto found = of_lock.find(name);
    if (found != of_lock.end() && std::ranges::includes(found->second, asked)) continue;
    SHOAL_RETURN_IF_ERROR(
        SkipStale(name, manifest,
                  found != of_lock.end() ? "for another version of it" : "without it", collector));
  }
  return absl::OkStatus();
}

// Without an entry (version 1) the packages of the lock file themselves must do. `locked`: their
// versions.
absl::Status CompareWithPackages(const std::string& manifest, const JsonView& package,
                                 const std::map<std::string, std::string>& locked,
                                 Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const Needs needs,
                         NeedsOf(package, std::span(kKindsOfNeeds).first(kOldKinds)));
  for (const auto& [name, asked] : needs) {
    const auto found = locked.find(name);
    if (found == locked.end()) {
      SHOAL_RETURN_IF_ERROR(SkipStale(name, manifest, "without it", collector));
      continue;
    }
    const std::optional<NpmPackage> has = ExactOfNpm(name, found->second);
    for (const std::string& text : asked) {
      const std::optional<NpmPackage> exact = ExactOfNpm(name, text);
      const bool is_same = exact.has_value() && has.has_value() && exact->name == has->name &&
                           CompareTexts(Order::kSemver, exact->version, has->version) == 0;
      if (!exact.has_value() || is_same) continue;
      SHOAL_RETURN_IF_ERROR(AddAskedFor("npm", exact->name, exact->version, manifest, collector));
    }
  }
  return absl::OkStatus();
}

// npm's lock files: of the project, and of its workspaces.
absl::Status CompareNpm(const fs::path& lock, absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, lock.string()));
  SHOAL_ASSIGN_OR_RETURN(const JsonView packages, text.root().Get("packages"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> entries, packages.Members());
  SHOAL_ASSIGN_OR_RETURN(const JsonView dependencies, text.root().Get("dependencies"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> old, dependencies.Members());
  std::map<std::string, std::string> locked;
  for (const auto& [name, package] : old) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView version, package.Get("version"));
    locked.emplace(name, version.Text().value_or(absl::string_view()));
  }
  for (const JsonView::Member& member : entries) {
    absl::string_view name = member.name;
    if (absl::ConsumePrefix(&name, absl::StrCat(kNodeModules, "/"))) locked.emplace(name, "");
  }
  bool has_project = false;
  const auto compare_with = [&](const std::string& manifest,
                                const JsonView* entry) -> absl::Status {
    const absl::StatusOr<std::string> package = ReadBeside(manifest);
    if (absl::IsNotFound(package.status())) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(package.status());
    SHOAL_ASSIGN_OR_RETURN(const JsonText json, JsonText::Parse(*package, manifest));
    return entry != nullptr ? CompareWithEntry(manifest, json.root(), *entry, collector)
                            : CompareWithPackages(manifest, json.root(), locked, collector);
  };
  const auto compare = [&](const fs::path& directory, const JsonView* entry) -> absl::Status {
    const std::string manifest = (directory / "package.json").string();
    const absl::Status compared = compare_with(manifest, entry);
    if (compared.ok() || absl::IsResourceExhausted(compared)) return compared;
    return collector.Skip(manifest, absl::StrCat("cannot be read: ", compared.message()));
  };
  for (const auto& [place, entry] : entries) {
    const fs::path within = fs::path(std::string(place)).lexically_normal();
    has_project |= place.empty();
    // Packages have manifests of their own, which npm read. What lies elsewhere is no part.
    if (absl::StrContains(place, kNodeModules) || within.is_absolute() ||
        (!within.empty() && *within.begin() == "..")) {
      continue;
    }
    SHOAL_RETURN_IF_ERROR(compare(lock.parent_path() / within, &entry));
  }
  return has_project ? absl::OkStatus() : compare(lock.parent_path(), nullptr);
}

// A module with its version, as a line of go.mod has it. The version may be missing.
using Module = std::pair<std::string, std::string>;
struct GoMod {
  std::string go;  // the version of Go that it asks for; empty if it does not say
  std::vector<Module> required;
  std::map<Module, Module> replaced;  // by a directory, if that has no version
};

// The words of a line, without quotes and without a comment. Nothing if a quote has no end.
std::optional<std::vector<std::string>> WordsOf(absl::string_view line) {
  std::vector<std::string> words;
  while (true) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (line.empty() || absl::StartsWith(line, "//")) return words;
    if (line[0] == '"' || line[0] == '`') {
      const size_t end = line.find(line[0], 1);
      if (end == absl::string_view::npos) return std::nullopt;
      const absl::string_view word = line.substr(1, end - 1);
      if (absl::StrContains(word, "\\")) return std::nullopt;
      words.emplace_back(word);
      line.remove_prefix(end + 1);
      continue;
    }
    const bool is_bracket = line[0] == '(' || line[0] == ')';
    const size_t end = is_bracket ? 1 : line.find_first_of(" \t\r()\"`");
    absl::string_view word = line.substr(0, end);
    if (const size_t comment = word.find("//"); comment != absl::string_view::npos) {
      word = word.substr(0, comment);
      words.emplace_back(word);
      return words;
    }
    words.emplace_back(word);
    line.remove_prefix(word.size());
  }
}

// Takes a line of one verb. False if it is not understood.
bool TakeGoLine(absl::string_view verb, const std::vector<std::string>& words, GoMod& mod) {
  if (verb == "require") {
    if (words.size() != 2) return false;
    mod.required.emplace_back(words[0], words[1]);
    return true;
  }
  if (verb == "go" || verb == "toolchain") {
    if (words.size() != 1) return false;
    // The later of the two is used at least; "default" names none.
    const std::string release = GoRelease(words[0]);
    if (words[0] != "default" &&
        (mod.go.empty() || CompareTexts(Order::kSemver, mod.go, release).value_or(-1) < 0)) {
      mod.go = release;
    }
    return true;
  }
  if (verb == "replace") {
    const auto arrow = std::ranges::find(words, "=>");
    const size_t before = arrow - words.begin();
    if (arrow == words.end() || before < 1 || before > 2) return false;
    const size_t after = words.size() - before - 1;
    if (after < 1 || after > 2) return false;
    const Module of = {words[0], before == 2 ? words[1] : ""};
    return mod.replaced.emplace(of, Module(words[before + 1], after == 2 ? words.back() : ""))
        .second;
  }
  // These name no package that is built.
  static constexpr absl::string_view kOthers[] = {"module",  "exclude", "retract",
                                                  "godebug", "tool",    "ignore"};
  return std::ranges::find(kOthers, verb) != std::end(kOthers);
}

// INVALID_ARGUMENT "FILE:LINE: .." for what is not understood.
absl::StatusOr<GoMod> ParseGoMod(absl::string_view content, const std::string& file) {
  GoMod mod;
  std::string block;  // the verb of the lines within brackets
  uint64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    const auto wrong = [&] {
      return WrongAt(file, number, "is no line of go.mod that is understood");
    };
    std::optional<std::vector<std::string>> words = WordsOf(line);
    if (!words.has_value()) return wrong();
    if (words->empty()) continue;
    if (!block.empty() && *words == std::vector<std::string>{")"}) {
      block.clear();
      continue;
    }
    std::string verb = block;
    if (block.empty()) {
      verb = words->front();
      words->erase(words->begin());
      if (*words == std::vector<std::string>{"("}) {
        block = verb;
        continue;
      }
    }
    if (!TakeGoLine(verb, *words, mod)) return wrong();
  }
  if (!block.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ends within brackets: it is cut off"));
  }
  return mod;
}

// Whether a go.mod of this version of Go lists all modules of which something is built, at the
// versions that are used.
bool ListsAll(absl::string_view go) {
  return CompareTexts(Order::kSemver, go, "1.17.0-0").value_or(-1) >= 0;
}

// Any later Go than a go.mod asks for may build the project.
absl::Status AddGoItself(const GoMod& mod, Collector& collector) {
  return mod.go.empty() ? collector.Add("Go", "stdlib", "")
                        : collector.Add("Go", "stdlib", mod.go, Certainty::kPossible,
                                        "go.mod asks for this version of Go or a later one");
}

// Go's: that go.sum has all that go.mod needs, and which Go that is at least. A go.sum names also
// what earlier versions of the project used: what a go.mod that lists all does not is possible at
// most.
absl::Status CompareGo(const fs::path& lock, absl::string_view content, size_t first,
                       Inventory& inventory, Collector& collector) {
  const fs::path manifest = lock.parent_path() / "go.mod";
  const absl::StatusOr<std::string> text = ReadBeside(manifest);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_ASSIGN_OR_RETURN(const GoMod mod, ParseGoMod(*text, manifest.string()));
  // Of modules, and of their go.mod alone: those are not built.
  std::set<Module> sums, hashed;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    sums.emplace(words[0], absl::StripSuffix(words[1], "/go.mod"));
    if (!absl::EndsWith(words[1], "/go.mod")) hashed.emplace(words[0], words[1]);
  }
  std::set<Module> used;
  for (const Module& required : mod.required) {
    auto replaced = mod.replaced.find(required);
    if (replaced == mod.replaced.end()) replaced = mod.replaced.find({required.first, ""});
    const Module& built = replaced == mod.replaced.end() ? required : replaced->second;
    used.insert(built);
    if (built.second.empty() || built.first != required.first) {
      // Of which version of it a copy of the module was made, nobody knows.
      SHOAL_RETURN_IF_ERROR(collector.Add("Go", required.first, ""));
    }
    if (!built.second.empty() && !sums.contains(built)) {
      SHOAL_RETURN_IF_ERROR(
          collector.Skip(absl::StrCat(built.first, " ", built.second),
                         absl::StrCat("is needed by ", manifest.string(),
                                      ", and go.sum does not name it: go mod tidy makes it anew")));
    } else if (!built.second.empty() && !hashed.contains(built)) {
      SHOAL_RETURN_IF_ERROR(
          collector.Add("Go", built.first, built.second, Certainty::kPossible,
                        "go.mod needs it, and go.sum has the hash of its go.mod alone"));
    }
  }
  if (ListsAll(mod.go)) {
    for (size_t i = first; i < inventory.items.size(); ++i) {
      Item& item = inventory.items[i];
      if (item.file != lock.string() || item.version.empty() ||
          used.contains({item.name, item.version})) {
        continue;
      }
      item.certainty = Certainty::kPossible;
      item.doubt = "go.sum names it, and go.mod, which lists all that is built, does not";
    }
  }
  return AddGoItself(mod, collector);
}

// Marks what a manifest in TOML needs and its lock file lacks, or has in another version than the
// one that is asked for alone.
class LockedNames {
 public:
  LockedNames(absl::string_view ecosystem, const fs::path& manifest, absl::string_view tool,
              Collector& collector)
      : ecosystem_(ecosystem), manifest_(manifest.string()), tool_(tool), collector_(collector) {}

  void Add(absl::string_view name) { names_.insert(KeyOrName(ecosystem_, name)); }
  void AddVersion(absl::string_view name, std::string version) {
    versions_[KeyOrName(ecosystem_, name)].push_back(std::move(version));
  }
  // `exact`: empty where more versions than one are asked for.
  absl::Status SkipIfMissing(absl::string_view name, absl::string_view exact = "") {
    const std::string key = KeyOrName(ecosystem_, name);
    if (!names_.contains(key)) {
      return collector_.Skip(
          name, absl::StrCat("is needed by ", manifest_,
                             ", and the lock file was made without it: ", tool_, " makes it anew"));
    }
    const auto is_exact = [&](const std::string& version) {
      return CompareTexts(*OrderOf(ecosystem_), version, exact) == 0;
    };
    if (exact.empty() || std::ranges::any_of(versions_[key], is_exact)) return absl::OkStatus();
    return AddAskedFor(ecosystem_, name, exact, manifest_, collector_);
  }

 private:
  const std::string ecosystem_, manifest_, tool_;
  Collector& collector_;
  std::set<std::string> names_;
  std::map<std::string, std::vector<std::string>> versions_;
};

// The version that a text asks for, if that is one alone: behind one of these marks. Empty for a
// range.
absl::string_view ExactVersion(Order order, std::span<const absl::string_view> marks,
                               absl::string_view asked) {
  asked = absl::StripAsciiWhitespace(asked);
  const auto mark = std::ranges::find_if(
      marks, [&](absl::string_view each) { return absl::ConsumePrefix(&asked, each); });
  asked = absl::StripLeadingAsciiWhitespace(asked);
  return mark != marks.end() && Version::Parse(order, asked).has_value() ? asked : "";
}

// Cargo's: that the package of Cargo.toml has in the lock file all that it needs, also for other
// systems and with other features.
absl::Status CompareCargoNeeds(const toml::table& of, const toml::table& manifest,
                               LockedNames& locked) {
  for (const char* const kind : {"dependencies", "dev-dependencies", "build-dependencies",
                                 "dev_dependencies", "build_dependencies"}) {
    const toml::table* const needs = of[kind].as_table();
    if (needs == nullptr) continue;
    for (const auto& [key, need] : *needs) {
      const toml::node_view<const toml::node> view(need);
      const bool inherits = view["workspace"].value_or(false);
      const toml::node_view<const toml::node> real =
          inherits ? manifest["workspace"]["dependencies"][key.str()] : view;
      static constexpr absl::string_view kMarks[] = {"="};
      const std::string asked =
          real.is_string() ? real.value_or(std::string()) : real["version"].value_or(std::string());
      SHOAL_RETURN_IF_ERROR(locked.SkipIfMissing(real["package"].value_or(std::string(KeyOf(key))),
                                                 ExactVersion(Order::kSemver, kMarks, asked)));
    }
  }
  return absl::OkStatus();
}

absl::Status CompareCargo(const fs::path& lock, absl::string_view content, Collector& collector) {
  const fs::path path = lock.parent_path() / "Cargo.toml";
  const absl::StatusOr<std::string> text = ReadBeside(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_ASSIGN_OR_RETURN(const toml::table file, ParseToml(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const toml::table manifest, ParseToml(*text, collector.file()));
  const std::string name = manifest["package"]["name"].value_or(std::string());
  if (name.empty()) return absl::OkStatus();  // the root of a workspace, which needs nothing itself
  LockedNames locked("crates.io", path, "cargo build", collector);
  const auto add = [&](const toml::table* package) {
    if (package == nullptr) return;
    const std::string of = (*package)["name"].value_or(std::string());
    locked.AddVersion(of, (*package)["version"].value_or(std::string()));
    if (package->contains("source") || of != name) return;
    locked.Add(name);
    const toml::array* const needs = (*package)["dependencies"].as_array();
    for (size_t i = 0; needs != nullptr && i < needs->size(); ++i) {
      const std::string need = (*needs)[i].value_or(std::string());
      locked.Add(need.substr(0, need.find(' ')));
    }
  };
  add(file["root"].as_table());
  const toml::array* const packages = file["package"].as_array();
  for (size_t i = 0; packages != nullptr && i < packages->size(); ++i) {
    add((*packages)[i].as_table());
  }
  SHOAL_RETURN_IF_ERROR(locked.SkipIfMissing(name));
  SHOAL_RETURN_IF_ERROR(CompareCargoNeeds(manifest, manifest, locked));
  const toml::table* const targets = manifest["target"].as_table();
  if (targets == nullptr) return absl::OkStatus();
  for (const auto& [target, of] : *targets) {
    if (!of.is_table()) continue;
    SHOAL_RETURN_IF_ERROR(CompareCargoNeeds(*of.as_table(), manifest, locked));
  }
  return absl::OkStatus();
}

constexpr absl::string_view kPythonConditions[] = {"python", "platform", "markers"};

// Checks one of the needs of a Poetry project: a text, a table, or a list of both.
absl::Status ComparePoetryNeed(absl::string_view name, const toml::node& need,
                               LockedNames& locked) {
  if (IsConditional(need, kPythonConditions)) return absl::OkStatus();
  if (const toml::array* const list = need.as_array(); list != nullptr) {
    for (const toml::node& each : *list) {
      SHOAL_RETURN_IF_ERROR(ComparePoetryNeed(name, each, locked));
    }
    return list->empty() ? locked.SkipIfMissing(name) : absl::OkStatus();
  }
  // A version without a mark is that one alone.
  static constexpr absl::string_view kMarks[] = {"===", "==", ""};
  const toml::node_view<const toml::node> view(need);
  const std::string asked =
      need.is_string() ? view.value_or(std::string()) : view["version"].value_or(std::string());
  return locked.SkipIfMissing(name, ExactVersion(Order::kPep440, kMarks, asked));
}

// Poetry's: that the lock file has all that pyproject.toml needs under all circumstances.
absl::Status ComparePoetryNeeds(const toml::table* needs, LockedNames& locked) {
  if (needs == nullptr) return absl::OkStatus();
  for (const auto& [key, need] : *needs) {
    if (absl::EqualsIgnoreCase(KeyOf(key), "python")) continue;
    SHOAL_RETURN_IF_ERROR(ComparePoetryNeed(KeyOf(key), need, locked));
  }
  return absl::OkStatus();
}

// The same of requirements, "NAME[EXTRA]>=1", with a condition behind a semicolon.
absl::Status CompareRequirements(const toml::array* requirements, LockedNames& locked) {
  static constexpr absl::string_view kMarks[] = {"===", "=="};
  for (size_t i = 0; requirements != nullptr && i < requirements->size(); ++i) {
    const std::string requirement = (*requirements)[i].value_or(std::string());
    const absl::string_view name = absl::StripAsciiWhitespace(absl::string_view(requirement));
    const size_t end = std::min(name.find_first_of(kNameEnds), name.size());
    // A table is another group, which is compared itself.
    if (name.empty() || absl::StrContains(name, ";")) continue;
    absl::string_view asked = absl::StripLeadingAsciiWhitespace(name.substr(end));
    if (absl::StartsWith(asked, "[")) {
      asked.remove_prefix(std::min(asked.size(), asked.find(']') + 1));
      asked = absl::StripLeadingAsciiWhitespace(asked);
    }
    if (absl::ConsumePrefix(&asked, "(")) absl::ConsumeSuffix(&asked, ")");
    SHOAL_RETURN_IF_ERROR(
        locked.SkipIfMissing(name.substr(0, end), ExactVersion(Order::kPep440, kMarks, asked)));
  }
  return absl::OkStatus();
}

absl::Status ComparePoetry(const fs::path& lock, absl::string_view content, Collector& collector) {
  const fs::path path = lock.parent_path() / "pyproject.toml";
  const absl::StatusOr<std::string> text = ReadBeside(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_ASSIGN_OR_RETURN(const toml::table file, ParseToml(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const toml::table manifest, ParseToml(*text, collector.file()));
  LockedNames locked("PyPI", path, "poetry lock", collector);
  const toml::array* const packages = file["package"].as_array();
  for (size_t i = 0; packages != nullptr && i < packages->size(); ++i) {
    const toml::table* const package = (*packages)[i].as_table();
    if (package == nullptr) continue;
    const std::string name = (*package)["name"].value_or(std::string());
    locked.Add(name);
    locked.AddVersion(name, (*package)["version"].value_or(std::string()));
  }
  const auto poetry = manifest["tool"]["poetry"];
  SHOAL_RETURN_IF_ERROR(ComparePoetryNeeds(poetry["dependencies"].as_table(), locked));
  SHOAL_RETURN_IF_ERROR(ComparePoetryNeeds(poetry["dev-dependencies"].as_table(), locked));
  if (const toml::table* const groups = poetry["group"].as_table(); groups != nullptr) {
    for (const auto& [name, group] : *groups) {
      const toml::node_view<const toml::node> view(group);
      SHOAL_RETURN_IF_ERROR(ComparePoetryNeeds(view["dependencies"].as_table(), locked));
    }
  }
  // Poetry locks extras and groups, too, whether they are installed or not.
  const auto project = manifest["project"];
  SHOAL_RETURN_IF_ERROR(CompareRequirements(project["dependencies"].as_array(), locked));
  for (const toml::table* const lists :
       {project["optional-dependencies"].as_table(), manifest["dependency-groups"].as_table()}) {
    if (lists == nullptr) continue;
    for (const auto& [name, list] : *lists) {
      SHOAL_RETURN_IF_ERROR(CompareRequirements(list.as_array(), locked));
    }
  }
  return absl::OkStatus();
}

// Whether a text, a key or a value in it, is or has a word by which tools of Python ask for
// packages.
bool AsksForPackages(absl::string_view text) {
  static constexpr absl::string_view kWords[] = {"depend", "require", "deps"};
  const std::string lower = absl::AsciiStrToLower(text);
  return std::ranges::any_of(
      kWords, [&](absl::string_view word) { return absl::StrContains(lower, word); });
}
bool AsksForPackages(const toml::node& node) {
  if (node.is_string()) return AsksForPackages(node.value_or(std::string()));
  if (const toml::array* const list = node.as_array(); list != nullptr) {
    for (const toml::node& each : *list) {
      if (AsksForPackages(each)) return true;
    }
  }
  if (const toml::table* const table = node.as_table(); table != nullptr) {
    for (const auto& [key, value] : *table) {
      if (AsksForPackages(KeyOf(key)) || AsksForPackages(value)) return true;
    }
  }
  return false;
}

// Whether a requirement is one of the tools that build packages of Python, in any version or from
// one on.
bool IsBuildTool(absl::string_view requirement) {
  static constexpr absl::string_view kTools[] = {
      "setuptools",  "setuptools-scm", "wheel",   "hatchling",         "hatch-vcs",    "flit-core",
      "poetry-core", "pdm-backend",    "maturin", "scikit-build-core", "meson-python", "uv-build"};
  const size_t end = requirement.find_first_of(kNameEnds);
  const std::string name = absl::StrReplaceAll(absl::AsciiStrToLower(requirement.substr(0, end)),
                                               {{"_", "-"}, {".", "-"}});
  if (std::ranges::find(kTools, name) == std::end(kTools)) return false;
  absl::string_view rest = end == absl::string_view::npos ? "" : requirement.substr(end);
  if (absl::StartsWith(rest, "[")) rest.remove_prefix(std::min(rest.size(), rest.find(']') + 1));
  rest = absl::StripAsciiWhitespace(rest);
  return rest.empty() || (absl::StartsWith(rest, ">=") && !absl::StrContains(rest, "==") &&
                          rest.find_first_of("@;~") == absl::string_view::npos);
}

bool PyprojectNeedsNothing(const toml::table& manifest) {
  for (const auto& [key, part] : manifest) {
    if (KeyOf(key) != "project" && KeyOf(key) != "build-system" && KeyOf(key) != "tool")
      return false;
  }
  if (const auto tool = manifest["tool"]; tool && AsksForPackages(*tool.node())) return false;
  const toml::array* const build = manifest["build-system"]["requires"].as_array();
  for (size_t i = 0; build != nullptr && i < build->size(); ++i) {
    if (!IsBuildTool((*build)[i].value_or(std::string()))) return false;
  }
  const auto project = manifest["project"];
  if (!project) return true;
  if (!project.is_table()) return false;
  for (const auto& [key, value] : *project.as_table()) {
    const bool is_empty = (value.is_array() && value.as_array()->empty()) ||
                          (value.is_table() && value.as_table()->empty());
    if (KeyOf(key) == "requires-python" || is_empty) continue;
    // What a tool adds when it builds the project.
    const bool asks =
        KeyOf(key) == "dynamic" ? AsksForPackages(value) : AsksForPackages(KeyOf(key));
    if (asks) return false;
  }
  return true;
}

bool PackageJsonNeedsNothing(const JsonView& manifest) {
  static constexpr absl::string_view kOthers[] = {
      "workspaces", "overrides", "resolutions", "catalog", "catalogs", "pnpm", "jspm"};
  const absl::StatusOr<std::vector<JsonView::Member>> members = manifest.Members();
  return members.ok() && std::ranges::all_of(*members, [&](const JsonView::Member& member) {
           const std::string name = absl::AsciiStrToLower(member.name);
           if (!absl::StrContains(name, "depend") &&
               std::ranges::find(kOthers, name) == std::end(kOthers)) {
             return true;
           }
           const auto inner = member.value.Members();
           const auto items = member.value.Items();
           return (inner.ok() && inner->empty()) || (items.ok() && items->empty());
         });
}

}  // namespace

bool NeedsNothing(const std::string& path) {
  const std::string name = absl::AsciiStrToLower(BaseName(path));
  if (name != "package.json" && name != "go.mod" && name != "pyproject.toml") return false;
  const absl::StatusOr<std::string> content = ReadBeside(path);
  if (!content.ok()) return false;
  if (name == "package.json") {
    const absl::StatusOr<JsonText> text = JsonText::Parse(*content, path);
    return text.ok() && PackageJsonNeedsNothing(text->root());
  }
  if (name == "go.mod") {
    const absl::StatusOr<GoMod> mod = ParseGoMod(*content, path);
    return mod.ok() && mod->required.empty();
  }
  const absl::StatusOr<toml::table> manifest = ParseToml(*content, path);
  return manifest.ok() && PyprojectNeedsNothing(*manifest);
}

absl::Status ReadGoMod(const std::string& path, const Distribution& distribution,
                       Inventory& inventory) {
  SHOAL_ASSIGN_OR_RETURN(const std::string content, ReadBeside(path));
  SHOAL_ASSIGN_OR_RETURN(const GoMod mod, ParseGoMod(content, path));
  Collector collector(path, distribution, inventory);
  return AddGoItself(mod, collector);
}

absl::Status CompareWithManifests(const std::string& lock, const Distribution& distribution,
                                  size_t first, Inventory& inventory) {
  const absl::string_view name = BaseName(lock);
  Collector collector(lock, distribution, inventory);
  const auto compare = [&]() -> absl::Status {
    const absl::StatusOr<std::string> content = ReadBeside(lock);
    SHOAL_RETURN_IF_ERROR(content.status());
    if (name == "go.sum") return CompareGo(lock, *content, first, inventory, collector);
    if (name == "Cargo.lock") return CompareCargo(lock, *content, collector);
    if (name == "poetry.lock") return ComparePoetry(lock, *content, collector);
    return CompareNpm(lock, *content, collector);
  };
  static constexpr absl::string_view kNames[] = {"package-lock.json", "npm-shrinkwrap.json",
                                                 "go.sum", "Cargo.lock", "poetry.lock"};
  if (std::ranges::find(kNames, name) == std::end(kNames)) return absl::OkStatus();
  const absl::Status compared = compare();
  if (compared.ok() || absl::IsResourceExhausted(compared)) return compared;
  return collector.Skip(name,
                        absl::StrCat("cannot be compared with the project: ", compared.message()));
}

}  // namespace shoal::audit
