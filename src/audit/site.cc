#include "src/audit/site.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNamed = 3;
// How deep packages have parts in directories of others, and how many entries these may have.
constexpr int kMaxShared = 8;
constexpr size_t kMaxSharedEntries = 1 << 16;

// The lines of a file. Nothing if it is no regular one or cannot be read.
std::optional<std::vector<std::string>> LinesOf(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadRegular(path);
  if (!text.ok()) return std::nullopt;
  std::vector<std::string> lines =
      absl::StrSplit(*text, absl::ByAnyChar("\r\n"), absl::SkipWhitespace());
  return lines;
}

// What a module is imported by: "a" for a/, a.py and a.cpython-311-x86_64-linux-gnu.so.
std::string StemOf(absl::string_view name) { return std::string(name.substr(0, name.find('.'))); }

// The same of a path, by its last part.
std::string StemOfPath(absl::string_view path) {
  const absl::string_view name = BaseName(path);
  return absl::StrCat(path.substr(0, path.size() - name.size()), StemOf(name));
}

// Whether Python imports a file of this name.
bool IsModule(absl::string_view name) {
  return absl::EndsWith(name, ".py") || absl::EndsWith(name, ".so") ||
         absl::EndsWith(name, ".pyd") || absl::EndsWith(name, ".pyc");
}

// Whether a line of a .pth is one that tools write, and by which no package comes in.
bool IsHarmless(absl::string_view line) {
  static constexpr absl::string_view kKnown[] = {
      "import _virtualenv", "import coverage; coverage.process_startup()",
      "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'local') == "
      "'local'; enabled and __import__('_distutils_hack').add_shim();",
      "import os; var = 'SETUPTOOLS_USE_DISTUTILS'; enabled = os.environ.get(var, 'stdlib') == "
      "'local'; enabled and __import__('_distutils_hack').add_shim();"};
  line = absl::StripAsciiWhitespace(line);
  // An egg that lies here is read.
  if (absl::StartsWith(line, "./") && absl::EndsWith(line, ".egg") &&
      line.find('/', 2) == absl::string_view::npos) {
    return true;
  }
  // By the last setuptools makes a namespace of what lies here.
  return absl::StartsWith(line, "#") || std::ranges::find(kKnown, line) != std::end(kKnown) ||
         (absl::StartsWith(line, "import sys, types, os;") &&
          absl::StrContains(line, "sys._getframe(1).f_locals['sitedir']") &&
          !absl::StrContains(line, "sys.path"));
}

}  // namespace

void Site::Take(const std::string& name, bool is_directory) {
  if (absl::EndsWith(name, ".dist-info") || absl::EndsWith(name, ".egg-info")) {
    TakeMetadata(name, is_directory);
    return;
  }
  if (absl::EndsWith(name, ".pth")) {
    const auto lines = LinesOf(absl::StrCat(directory_, "/", name));
    if (!lines.has_value() || !std::ranges::all_of(*lines, IsHarmless)) paths_.push_back(name);
    return;
  }
  static constexpr absl::string_view kNoModules[] = {"__pycache__", "bin", "_virtualenv.py"};
  if (std::ranges::find(kNoModules, name) != std::end(kNoModules)) return;
  // What was left over, eggs and links to projects are said or read by their names.
  if (absl::StartsWith(name, "~") || absl::EndsWith(name, ".egg")) return;
  std::error_code error;
  const bool has_something =
      is_directory && !fs::is_empty(absl::StrCat(directory_, "/", name), error);
  if (IsModule(name) || has_something) modules_.push_back(name);
}

// The files that say what a package has: RECORD of wheels and installed-files.txt name its files,
// and in older notations top_level.txt its modules. Where none is there, its name.
void Site::TakeMetadata(const std::string& name, bool is_directory) {
  const std::string directory = absl::StrCat(directory_, "/", name, "/");
  const auto own = [&](absl::string_view module) {
    if (!module.empty()) owned_.insert(StemOf(module));
  };
  const auto list = [&](absl::string_view line) {
    const char end_of_path = absl::ConsumePrefix(&line, "\"") ? '"' : ',';
    const std::string text =
        absl::StrReplaceAll(line.substr(0, line.find(end_of_path)), {{"\\", "/"}});
    absl::string_view path = text;
    absl::ConsumePrefix(&path, "../");
    size_t end = path.find('/');
    for (int depth = 0; depth < kMaxShared && end != absl::string_view::npos; ++depth) {
      listed_.emplace(path.substr(0, end));
      end = path.find('/', end + 1);
    }
    if (end == absl::string_view::npos) listed_.insert(StemOfPath(path));
  };
  bool has_list = false;
  if (is_directory) {
    for (const char* files : {"RECORD", "installed-files.txt"}) {
      const auto lines = LinesOf(directory + files);
      has_list |= lines.has_value();
      for (const std::string& line : lines.value_or(std::vector<std::string>())) list(line);
    }
    if (!has_list) {
      const auto modules = LinesOf(directory + "top_level.txt");
      has_list = modules.has_value();
      for (const std::string& module : modules.value_or(std::vector<std::string>())) own(module);
    }
  }
  if (has_list) return;
  own(absl::StrReplaceAll(
      absl::AsciiStrToLower(name.substr(0, std::min(name.find('-'), name.find('.')))),
      {{"-", "_"}}));
}

bool Site::IsOwned(const std::string& module) const {
  return listed_.contains(module) || listed_.contains(StemOfPath(module));
}

void Site::AddForeign(const std::string& module, int depth, size_t& left,
                      std::vector<std::string>& foreign) const {
  const fs::path directory = fs::path(directory_) / module;
  std::error_code error;
  // A package's parts are its own.
  if (!fs::is_directory(directory, error) || fs::exists(directory / "__init__.py", error)) return;
  for (auto entry = fs::directory_iterator(directory, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const std::string part = absl::StrCat(module, "/", name);
    std::error_code ignored;
    const bool is_directory = entry->is_directory(ignored);
    if (name == "__pycache__" || (!is_directory && !IsModule(name))) continue;
    if (left == 0 || depth == kMaxShared || !IsOwned(part)) {
      foreign.push_back(part);
      if (left == 0) return;
    } else if (is_directory) {
      AddForeign(part, depth + 1, left, foreign);
    }
    left -= left > 0;
  }
  if (error) foreign.push_back(module);
}

std::vector<Unread> Site::NotRead() const {
  std::vector<Unread> unread;
  for (const std::string& name : paths_) {
    unread.push_back({absl::StrCat(directory_, "/", name),
                      "adds directories elsewhere, or runs code that may: give those, too"});
  }
  std::vector<std::string> others;
  size_t left = kMaxSharedEntries;
  for (const std::string& name : modules_) {
    if (owned_.contains(StemOf(name))) continue;
    if (!IsOwned(name)) {
      others.push_back(name);
    } else {
      AddForeign(name, 1, left, others);
    }
  }
  if (others.empty()) return unread;
  std::ranges::sort(others);
  const size_t count = others.size();
  others.resize(std::min(count, kMaxNamed));
  unread.push_back(
      {directory_, absl::StrCat("has ", count, count == 1 ? " module" : " modules",
                                " of which no package here says that it has it: ",
                                absl::StrJoin(others, ", "), count > kMaxNamed ? ", .." : "")});
  return unread;
}

bool SharesTheSystems(const std::string& pyvenv_cfg) {
  const auto lines = LinesOf(pyvenv_cfg);
  if (!lines.has_value()) return true;
  bool says_no = false;
  for (const std::string& line : *lines) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(field.first),
                               "include-system-site-packages")) {
      // Python takes what is not "true" for no, and a file that does not say for yes.
      if (absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(field.second), "true")) return true;
      says_no = true;
    }
  }
  return !says_no;
}

}  // namespace shoal::audit
