#include "src/cli/printable_stream.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/printable.h"

namespace shoal::cli {
namespace {

// How many bytes at the end of `text` may begin a character that goes on.
size_t Begun(absl::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t bytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return bytes > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::streamsize PrintableStream::Buffer::xsputn(const char* text, std::streamsize count) {
  begun_.append(text, static_cast<size_t>(count));
  const size_t whole = begun_.size() - Begun(begun_);
  to_ << Printable(absl::string_view(begun_).substr(0, whole), "\n\t");
  begun_.erase(0, whole);
  return to_.good() ? count : 0;
}

PrintableStream::Buffer::int_type PrintableStream::Buffer::overflow(int_type character) {
  if (traits_type::eq_int_type(character, traits_type::eof()))
    return traits_type::not_eof(character);
  const char byte = traits_type::to_char_type(character);
  return xsputn(&byte, 1) == 1 ? character : traits_type::eof();
}

int PrintableStream::Buffer::sync() {
  if (!begun_.empty()) to_ << Printable(begun_);
  begun_.clear();
  to_.flush();
  return to_.good() ? 0 : -1;
}

std::string MessageText(absl::string_view text) {
  std::string out;
  for (;;) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::StrAppend(&out, text.substr(0, end));
    text.remove_prefix(end);
    if (text.size() <= 1) return out;  // a line feed at the end adds no line
    text.remove_prefix(1);
    absl::StrAppend(&out, "\n", absl::StartsWith(text, "  ") ? "" : "  ");
  }
}

}  // namespace shoal::cli
