#include "src/table/packages.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"

namespace shoal::table {
namespace {

// apt_preferences(5): below 100, a version is installed only where there is none.
constexpr int kLeastPriority = 100;
// No version has it.
constexpr absl::string_view kCandidateSeparator = " ";
constexpr size_t kMaxToolOutputBytes = size_t{1} << 32;
// dpkg's status file of a large machine has some 10 MB.
constexpr size_t kMaxStatusBytes = size_t{1} << 28;

// The parts of a version, deb-version(7): the epoch stands before the first colon, and the last
// hyphen separates upstream version and revision.
struct VersionParts {
  uint64_t epoch = 0;
  absl::string_view upstream;
  absl::string_view revision;
};

VersionParts Split(absl::string_view version) {
  VersionParts parts;
  const size_t colon = version.find(':');
  if (colon != absl::string_view::npos) {
    if (!absl::SimpleAtoi(version.substr(0, colon), &parts.epoch)) parts.epoch = 0;
    version.remove_prefix(colon + 1);
  }
  const size_t hyphen = version.rfind('-');
  parts.upstream = version.substr(0, hyphen);
  if (hyphen != absl::string_view::npos) parts.revision = version.substr(hyphen + 1);
  return parts;
}

// A tilde sorts before everything, even the end; letters sort before all other characters.
int Rank(absl::string_view text, size_t i) {
  if (i >= text.size() || absl::ascii_isdigit(text[i])) return 0;
  if (text[i] == '~') return -1;
  if (absl::ascii_isalpha(text[i])) return static_cast<uint8_t>(text[i]);
  return static_cast<uint8_t>(text[i]) + 256;
}

// Non-digit runs by rank, digit runs by number, in turn.
int ComparePart(absl::string_view a, absl::string_view b) {
  size_t i = 0, j = 0;
  const auto digit = [](absl::string_view text, size_t at) {
    return at < text.size() && absl::ascii_isdigit(text[at]);
  };
  while (i < a.size() || j < b.size()) {
    while ((i < a.size() && !digit(a, i)) || (j < b.size() && !digit(b, j))) {
      const int left = Rank(a, i), right = Rank(b, j);
      if (left != right) return left < right ? -1 : 1;
      ++i;
      ++j;
    }
    while (i < a.size() && a[i] == '0') ++i;
    while (j < b.size() && b[j] == '0') ++j;
    int first_difference = 0;
    while (digit(a, i) && digit(b, j)) {
      if (first_difference == 0) first_difference = a[i] - b[j];
      ++i;
      ++j;
    }
    if (digit(a, i)) return 1;
    if (digit(b, j)) return -1;
    if (first_difference != 0) return first_difference < 0 ? -1 : 1;
  }
  return 0;
}

// The fields of a stanza that are used here. A field is empty if it is absent.
struct Stanza {
  uint64_t line = 0;
  absl::string_view package, version, architecture, status, source;
};

// Calls visit(stanza) -> Status for every stanza of a deb822 text.
template <typename Visit>
absl::Status ForEachStanza(absl::string_view text, const std::string& source, Visit visit) {
  Stanza stanza;
  uint64_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = text.find('\n');
    const absl::string_view content = text.substr(0, end);
    text = end == absl::string_view::npos ? absl::string_view() : text.substr(end + 1);
    // For dpkg, a value ends at it.
    if (content.find('\0') != absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(source, ":", line, ": is no text"));
    }
    if (content.empty()) {
      if (stanza.line != 0) SHOAL_RETURN_IF_ERROR(visit(stanza));
      stanza = Stanza();
      continue;
    }
    if (content[0] == ' ' || content[0] == '\t') {
      if (stanza.line == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(source, ":", line, ": a continuation without a field"));
      }
      continue;
    }
    const size_t colon = content.find(':');
    if (colon == absl::string_view::npos || colon == 0) {
      return absl::InvalidArgumentError(absl::StrCat(source, ":", line, ": not a field"));
    }
    if (stanza.line == 0) stanza.line = line;
    const absl::string_view name = content.substr(0, colon);
    const absl::string_view value = absl::StripAsciiWhitespace(content.substr(colon + 1));
    for (const auto& [known, field] :
         {std::pair("Package", &Stanza::package), std::pair("Version", &Stanza::version),
          std::pair("Architecture", &Stanza::architecture), std::pair("Status", &Stanza::status),
          std::pair("Source", &Stanza::source)}) {
      // As deb822 has it; a second one could take the place of another package.
      if (!absl::EqualsIgnoreCase(name, known)) continue;
      if (!(stanza.*field).empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(source, ":", line, ": a second field ", known, " of one package"));
      }
      stanza.*field = value;
    }
  }
  if (stanza.line != 0) SHOAL_RETURN_IF_ERROR(visit(stanza));
  return absl::OkStatus();
}

absl::StatusOr<Package> PackageOf(const Stanza& stanza, const std::string& source) {
  for (const auto& [name, value] :
       {std::pair("Package", stanza.package), std::pair("Version", stanza.version),
        std::pair("Architecture", stanza.architecture)}) {
    if (value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ":", stanza.line, ": a package without the field ", name));
    }
  }
  return Package{.name = std::string(stanza.package),
                 .version = std::string(stanza.version),
                 .architecture = std::string(stanza.architecture),
                 .source = std::string(stanza.source)};
}

// Standard output of a program, found on PATH, in the C locale.
absl::StatusOr<std::string> RunTool(std::vector<std::string> arguments) {
  const std::string name = arguments[0];
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, name);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    if (!absl::StartsWith(text, "LC_") && !absl::StartsWith(text, "LANG")) {
      variables.emplace_back(text);
    }
  }
  variables.emplace_back("LC_ALL=C.UTF-8");
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, name.c_str(), &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(fds[1]);
  if (error != 0) {
    ::close(fds[0]);
    return absl::UnavailableError(
        absl::StrCat("cannot run ", name, ": ", ErrnoStatus(error, "").message()));
  }
  std::string output;
  std::vector<char> buffer(1 << 18);
  for (;;) {
    const ssize_t n = ::read(fds[0], buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || output.size() > kMaxToolOutputBytes) break;
    output.append(buffer.data(), static_cast<size_t>(n));
  }
  ::close(fds[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::UnavailableError(absl::StrCat(name, " failed"));
  }
  return output;
}

// "http://deb.debian.org/debian bookworm/main amd64 Packages" -> 500.
absl::StatusOr<std::map<std::string, int, std::less<>>> IndexPriorities() {
  SHOAL_ASSIGN_OR_RETURN(const std::string policy, RunTool({"apt-cache", "policy"}));
  std::map<std::string, int, std::less<>> priorities;
  for (const absl::string_view line : absl::StrSplit(policy, '\n')) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(line);
    const size_t space = text.find(' ');
    int priority = 0;
    if (space == absl::string_view::npos || !absl::SimpleAtoi(text.substr(0, space), &priority)) {
      continue;
    }
    priorities[std::string(text.substr(space + 1))] = priority;
  }
  return priorities;
}

}  // namespace

int CompareVersions(absl::string_view a, absl::string_view b) {
  const VersionParts left = Split(a), right = Split(b);
  if (left.epoch != right.epoch) return left.epoch < right.epoch ? -1 : 1;
  const int upstream = ComparePart(left.upstream, right.upstream);
  return upstream != 0 ? upstream : ComparePart(left.revision, right.revision);
}

std::string PackageKey(absl::string_view name, absl::string_view architecture,
                       absl::string_view native_architecture) {
  if (architecture == "all" || architecture == native_architecture) return std::string(name);
  return absl::StrCat(name, ":", architecture);
}

absl::StatusOr<std::vector<Package>> ParsePackages(absl::string_view text,
                                                   const std::string& source) {
  std::vector<Package> packages;
  SHOAL_RETURN_IF_ERROR(ForEachStanza(text, source, [&](const Stanza& stanza) -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(Package package, PackageOf(stanza, source));
    packages.push_back(std::move(package));
    return absl::OkStatus();
  }));
  return packages;
}

namespace {

// The packages of which `wanted` takes the state.
absl::StatusOr<std::vector<Package>> ParseStatus(absl::string_view text, const std::string& source,
                                                 bool (*wanted)(absl::string_view state)) {
  // As dpkg does: a copy that was cut off has another version than is installed.
  if (!text.empty() && !absl::EndsWith(text, "\n")) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ends within a line: it is cut off"));
  }
  std::vector<Package> packages;
  SHOAL_RETURN_IF_ERROR(ForEachStanza(text, source, [&](const Stanza& stanza) -> absl::Status {
    // Three words: what the administrator wants, an error flag, the state.
    const std::vector<absl::string_view> status =
        absl::StrSplit(stanza.status, ' ', absl::SkipWhitespace());
    if (status.size() != 3) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ":", stanza.line, ": a package without its three words of Status"));
    }
    const std::string state = absl::AsciiStrToLower(status[2]);
    if (!wanted(state)) return absl::OkStatus();
    // dpkg writes no version where the first installation of a package was interrupted.
    if (state == "half-installed" && stanza.version.empty()) return absl::OkStatus();
    SHOAL_ASSIGN_OR_RETURN(Package package, PackageOf(stanza, source));
    packages.push_back(std::move(package));
    return absl::OkStatus();
  }));
  return packages;
}

}  // namespace

absl::StatusOr<std::vector<Package>> ParseInstalled(absl::string_view text,
                                                    const std::string& source) {
  return ParseStatus(text, source, [](absl::string_view state) {
    return state != "not-installed" && state != "config-files";
  });
}

absl::StatusOr<std::vector<Package>> ParseUnpacked(absl::string_view text,
                                                   const std::string& source) {
  return ParseStatus(text, source, [](absl::string_view state) {
    return state != "not-installed" && state != "config-files" && state != "half-installed";
  });
}

absl::StatusOr<std::vector<Package>> ReadInstalled(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxStatusBytes));
  return ParseInstalled(text, path);
}

absl::StatusOr<RecordSet> CandidateVersions(const std::vector<IndexedPackage>& packages,
                                            absl::string_view native_architecture,
                                            std::string source) {
  // Of each package, the newest version of each priority.
  std::map<std::string, std::map<int, absl::string_view, std::greater<>>> newest;
  for (const IndexedPackage& package : packages) {
    absl::string_view& place = newest[PackageKey(package.package.name, package.package.architecture,
                                                 native_architecture)][package.priority];
    if (place.empty() || CompareVersions(package.package.version, place) > 0) {
      place = package.package.version;
    }
  }
  RecordSet records(std::move(source));
  uint64_t line = 0;
  for (const auto& [key, by_priority] : newest) {
    std::vector<absl::string_view> candidates;
    for (const auto& [priority, version] : by_priority) {
      if (candidates.empty() || CompareVersions(version, candidates.back()) > 0) {
        candidates.push_back(version);
      }
    }
    const std::string value = absl::StrJoin(candidates, kCandidateSeparator);
    SHOAL_RETURN_IF_ERROR(records.Add(AsBytes(key), AsBytes(value), ++line));
  }
  return records;
}

std::string NewerCandidate(absl::string_view installed, absl::string_view value) {
  for (const absl::string_view version : absl::StrSplit(value, kCandidateSeparator)) {
    const int order = CompareVersions(version, installed);
    if (order >= 0) return order > 0 ? std::string(version) : "";
  }
  return "";
}

std::string PackagesTableName(absl::string_view native_architecture) {
  return absl::StrCat("debian-packages-", native_architecture);
}

bool IsPackagesTableName(absl::string_view name, absl::string_view native_architecture) {
  return absl::ConsumePrefix(&name, PackagesTableName(native_architecture)) &&
         (name.empty() || absl::StartsWith(name, "-"));
}

absl::StatusOr<std::string> NativeArchitecture() {
  SHOAL_ASSIGN_OR_RETURN(const std::string output, RunTool({"dpkg", "--print-architecture"}));
  return std::string(absl::StripAsciiWhitespace(output));
}

absl::StatusOr<RecordSet> ReadPackageIndex() {
  SHOAL_ASSIGN_OR_RETURN(const std::string native, NativeArchitecture());
  SHOAL_ASSIGN_OR_RETURN(const auto priorities, IndexPriorities());
  SHOAL_ASSIGN_OR_RETURN(const std::string targets,
                         RunTool({"apt-get", "indextargets", "--format",
                                  "$(FILENAME)\t$(DESCRIPTION)", "Created-By: Packages"}));
  std::vector<IndexedPackage> indexed;
  for (const absl::string_view target : absl::StrSplit(targets, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> fields =
        absl::StrSplit(target, absl::MaxSplits('\t', 1));
    const auto& [path, description] = fields;
    const auto found = priorities.find(description);
    // An index that was never fetched has no priority.
    if (found == priorities.end() || found->second < kLeastPriority || !FileExists(path)) continue;
    SHOAL_ASSIGN_OR_RETURN(const std::string text,
                           RunTool({"/usr/lib/apt/apt-helper", "cat-file", path}));
    SHOAL_ASSIGN_OR_RETURN(std::vector<Package> packages, ParsePackages(text, path));
    for (Package& package : packages) {
      indexed.push_back({.package = std::move(package), .priority = found->second});
    }
  }
  if (indexed.empty()) {
    return absl::FailedPreconditionError("apt knows no packages here; run: apt-get update");
  }
  return CandidateVersions(indexed, native, "package index");
}

absl::StatusOr<std::map<std::string, std::string>> AptUpgradable(
    absl::string_view native_architecture) {
  // "bash/oldstable 5.2.15-2+b13 amd64 [upgradable from: 5.2.15-2+b8]"
  SHOAL_ASSIGN_OR_RETURN(const std::string output, RunTool({"apt", "-qq", "list", "--upgradable"}));
  std::map<std::string, std::string> versions;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    const std::vector<absl::string_view> names = absl::StrSplit(words[0], '/');
    if (words.size() < 4 || names.size() != 2) continue;
    versions[PackageKey(names[0], words[2], native_architecture)] = std::string(words[1]);
  }
  return versions;
}

std::set<std::string> PinnedNames() {
  std::set<std::string> names;
  std::vector<std::string> files = {"/etc/apt/preferences"};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/apt/preferences.d", error)) {
    files.push_back(entry.path().string());
  }
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> text = ReadFile(file, kMaxStatusBytes);
    if (!text.ok()) continue;
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      if (!absl::StartsWith(line, "Package:")) continue;
      for (const absl::string_view name :
           absl::StrSplit(line.substr(8), ' ', absl::SkipWhitespace())) {
        const bool plain = name.find_first_of("*?[/:") == absl::string_view::npos;
        names.insert(plain ? std::string(name) : "*");
      }
    }
  }
  return names;
}

}  // namespace shoal::table
