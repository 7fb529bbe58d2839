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
  const bool is_module = absl::EndsWith(name, ".py") || absl::EndsWith(name, ".so") ||
                         absl::EndsWith(name, ".pyd") || absl::EndsWith(name, ".pyc");
  std::error_code error;
  const bool has_something =
      is_directory && !fs::is_empty(absl::StrCat(directory_, "/", name), error);
  if (is_module || has_something) modules_.push_back(name);
}

// The files that say what a package has: RECORD of wheels, and in older notations the names of its
// modules or its files as they lie beside the egg-info. Where none is there, its name.
void Site::TakeMetadata(const std::string& name, bool is_directory) {
  const std::string directory = absl::StrCat(directory_, "/", name, "/");
  const auto own = [&](absl::string_view path) {
    absl::ConsumePrefix(&path, "\"");
    const std::string stem = StemOf(path.substr(0, path.find_first_of("/\\,")));
    if (!stem.empty()) owned_.insert(stem);
  };
  owned_.insert(absl::StrReplaceAll(
      absl::AsciiStrToLower(name.substr(0, std::min(name.find('-'), name.find('.')))),
      {{"-", "_"}}));
  if (!is_directory) return;
  for (const char* list : {"RECORD", "top_level.txt", "installed-files.txt"}) {
    for (absl::string_view line : LinesOf(directory + list).value_or(std::vector<std::string>())) {
      absl::ConsumePrefix(&line, "../");
      own(line);
    }
  }
}

std::vector<Unread> Site::NotRead() const {
  std::vector<Unread> unread;
  for (const std::string& name : paths_) {
    unread.push_back({absl::StrCat(directory_, "/", name),
                      "adds directories elsewhere, or runs code that may: give those, too"});
  }
  std::vector<std::string> others;
  for (const std::string& name : modules_) {
    if (!owned_.contains(StemOf(name))) others.push_back(name);
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
