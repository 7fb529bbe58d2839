#include "src/audit/peek.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kEndBytes = 1 << 16;
constexpr uintmax_t kWholeBytes = 1 << 20, kWholeJsonBytes = 1 << 26;

std::string ReadPart(std::ifstream& file, uintmax_t at, uintmax_t bytes) {
  std::string part(bytes, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(at));
  file.read(part.data(), static_cast<std::streamsize>(part.size()));
  part.resize(static_cast<size_t>(file.gcount()));
  return part;
}

// Without bytes of zero and the mark of an encoding.
std::string Letters(std::string text) {
  std::erase(text, '\0');
  for (const absl::string_view mark : {"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"}) {
    if (absl::StartsWith(text, mark)) text.erase(0, mark.size());
  }
  return text;
}

}  // namespace

bool IsCodeOrMedia(absl::string_view name) {
  if (absl::EndsWith(name, ".DS_Store") || absl::EndsWith(name, "Thumbs.db")) return true;
  static constexpr absl::string_view kEnds[] = {
      // Code, and what tests and builds make of it.
      ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".m", ".mm", ".s", ".asm", ".rs",
      ".go", ".py", ".pyi", ".pyx", ".pxd", ".pyc", ".pyo", ".js", ".mjs", ".cjs", ".jsx", ".ts",
      ".tsx", ".mts", ".cts", ".vue", ".svelte", ".java", ".kt", ".scala", ".rb", ".php", ".pl",
      ".pm", ".lua", ".sh", ".bash", ".zsh", ".fish", ".ps1", ".bat", ".cmd", ".cs", ".fs", ".vb",
      ".swift", ".dart", ".ex", ".erl", ".hs", ".ml", ".mli", ".clj", ".sql", ".css", ".scss",
      ".less", ".html", ".htm", ".map", ".el", ".vim", ".tcl", ".awk", ".jl", ".f90", ".proto",
      ".bzl", ".bazel", ".cmake", ".mk", ".m4", ".po", ".mo", ".o", ".a", ".so", ".dll", ".exe",
      ".wasm", ".class", ".node", ".rlib", ".rmeta",
      // Documentation.
      ".md", ".markdown", ".rst", ".adoc", ".tex", ".pod", ".pdf",
      // Images, sounds and letters.
      ".png", ".jpg", ".jpeg", ".gif", ".svg", ".ico", ".webp", ".bmp", ".ttf", ".otf", ".woff",
      ".woff2", ".eot", ".mp3", ".mp4", ".wav", ".ogg", ".webm"};
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return false;
  const std::string end = absl::AsciiStrToLower(name.substr(dot));
  return std::ranges::find(kEnds, end) != std::end(kEnds);
}

absl::string_view WithoutPacking(absl::string_view name) {
  static constexpr absl::string_view kEnds[] = {".gz",  ".tgz",  ".xz",  ".txz", ".zst", ".tzst",
                                                ".bz2", ".tbz2", ".tbz", ".br",  ".lz",  ".lz4",
                                                ".z",   ".lzma", ".zip", ".7z",  ".rar", ".tar"};
  const auto* const end = std::ranges::find_if(
      kEnds, [&](absl::string_view each) { return absl::EndsWithIgnoreCase(name, each); });
  return end == std::end(kEnds) ? "" : name.substr(0, name.size() - end->size());
}

bool IsPacked(absl::string_view text) {
  // Of gzip, xz, zip (also one without files), zstd, bzip2, 7z, rar and lz4.
  static constexpr absl::string_view kBegins[] = {"\x1f\x8b",
                                                  "\xfd"
                                                  "7zXZ",
                                                  "PK\x03\x04",
                                                  "PK\x05\x06",
                                                  "\x28\xb5\x2f\xfd",
                                                  "1AY&SY",
                                                  "7z\xbc\xaf\x27\x1c",
                                                  "Rar!\x1a\x07",
                                                  "\x04\x22\x4d\x18"};
  constexpr size_t kTarHeaderBytes = 512;
  const absl::string_view head = text.substr(0, kTarHeaderBytes);
  // Behind these is how hard bzip2 tried.
  if (absl::ConsumePrefix(&text, "BZh")) text = text.substr(std::min<size_t>(text.size(), 1));
  return std::ranges::any_of(
             kBegins, [&](absl::string_view begin) { return absl::StartsWith(text, begin); }) ||
         absl::StrContains(head, "ustar00") || absl::StrContains(head, "ustar  ");
}

std::optional<std::string> Peek(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || error) return "";
  const uintmax_t size = fs::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return std::nullopt;
  const std::string begin = ReadPart(file, 0, std::min(size, kEndBytes));
  if (begin.size() < std::min(size, kEndBytes)) return std::nullopt;
  std::string text = Letters(begin);
  if (size <= kEndBytes) return text;
  const absl::string_view first = absl::StripLeadingAsciiWhitespace(text);
  const bool is_json = absl::StartsWith(first, "{") || absl::StartsWith(first, "[");
  if (is_json && size > kWholeJsonBytes) return std::nullopt;
  const bool is_whole = is_json || size <= kWholeBytes;
  const uintmax_t more = is_whole ? size - kEndBytes : std::min(size - kEndBytes, kEndBytes);
  std::string end = ReadPart(file, size - more, more);
  std::erase(end, '\0');
  return text + end;
}

bool HasLine(absl::string_view text, absl::string_view beginning) {
  for (size_t at = text.find(beginning); at != absl::string_view::npos;
       at = text.find(beginning, at + 1)) {
    const size_t last = text.substr(0, at).find_last_not_of(" \t\v\f");
    if (last == absl::string_view::npos || text[last] == '\n' || text[last] == '\r') return true;
  }
  return false;
}

}  // namespace shoal::audit
