#include "src/table/records.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/base/printable.h"
#include "src/base/status_macros.h"

namespace shoal::table {
namespace {

absl::Status BadLine(const std::string& source, uint64_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(source, ":", line, ": ", what));
}

absl::Status BeginText(const std::string& source, absl::string_view& text) {
  if (const absl::Status status = RefuseUtf16(text); !status.ok()) {
    return BadLine(source, 1, status.message());
  }
  absl::ConsumePrefix(&text, kByteOrderMark);
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return BadLine(
        source, 1 + static_cast<uint64_t>(std::count(text.begin(), text.begin() + nul, '\n')),
        "a NUL byte. Is the text UTF-16? Then convert it: iconv -f UTF-16LE -t UTF-8 FILE "
        "(in TSV, \\x00 is a NUL byte)");
  }
  return absl::OkStatus();
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

absl::Status RecordSet::Add(BytesView key, BytesView value, uint64_t line) {
  if (key.size() > kMaxKeyBytes) {
    return BadLine(source_, line,
                   absl::StrCat("the key has ", key.size(), " bytes, more than ", kMaxKeyBytes));
  }
  if (value.size() > kMaxValueBytes) {
    return BadLine(
        source_, line,
        absl::StrCat("the value has ", value.size(), " bytes, more than ", kMaxValueBytes));
  }
  entries_.push_back({.offset = buffer_.size(),
                      .line = line,
                      .key_bytes = static_cast<uint32_t>(key.size()),
                      .value_bytes = static_cast<uint32_t>(value.size())});
  Append(buffer_, key);
  Append(buffer_, value);
  return absl::OkStatus();
}

std::string RecordSet::Where(size_t i) const {
  return absl::StrCat(source_, ":", entries_[i].line);
}

absl::Status RecordSet::CheckUnique() const {
  std::vector<size_t> order(size());
  std::iota(order.begin(), order.end(), 0);
  // Equal keys stay in the order of their lines.
  std::sort(order.begin(), order.end(), [this](size_t a, size_t b) {
    const auto ordering = AsText(key(a)).compare(AsText(key(b)));
    return ordering != 0 ? ordering < 0 : a < b;
  });
  size_t second = size();
  size_t first = 0;
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i] < second && AsText(key(order[i - 1])) == AsText(key(order[i]))) {
      first = order[i - 1];
      second = order[i];
    }
  }
  if (second == size()) return absl::OkStatus();
  return BadLine(source_, entries_[second].line,
                 absl::StrCat("the key \"", EscapeTsv(key(second)),
                              "\" is there twice, first at line ", entries_[first].line));
}

absl::Status RefuseUtf16(absl::string_view text) {
  if (!absl::StartsWith(text, "\xff\xfe") && !absl::StartsWith(text, "\xfe\xff")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the text is UTF-16; convert it: iconv -f UTF-16 -t UTF-8 FILE");
}

absl::StatusOr<RecordSet> ParseTsv(absl::string_view text, std::string source) {
  RecordSet records(std::move(source));
  SHOAL_RETURN_IF_ERROR(BeginText(records.source(), text));
  uint64_t line = 0;
  while (!text.empty()) {
    ++line;
    const size_t end = text.find('\n');
    const absl::string_view content = text.substr(0, end);
    text = end == absl::string_view::npos ? absl::string_view() : text.substr(end + 1);
    const size_t tab = content.find('\t');
    if (content.empty()) return BadLine(records.source(), line, "the line is empty");
    if (content.back() == '\r') {
      return BadLine(records.source(), line,
                     "the line ends with a carriage return; write \\r if the value does");
    }
    if (tab == absl::string_view::npos) {
      return BadLine(records.source(), line, "no tab between key and value");
    }
    if (content.find('\t', tab + 1) != absl::string_view::npos) {
      return BadLine(records.source(), line, "more than one tab; write \\t inside a field");
    }
    const absl::StatusOr<Bytes> key = UnescapeTsv(content.substr(0, tab));
    if (!key.ok()) return BadLine(records.source(), line, key.status().message());
    const absl::StatusOr<Bytes> value = UnescapeTsv(content.substr(tab + 1));
    if (!value.ok()) return BadLine(records.source(), line, value.status().message());
    SHOAL_RETURN_IF_ERROR(records.Add(*key, *value, line));
  }
  return records;
}

absl::StatusOr<RecordSet> ParseCsv(absl::string_view text, std::string source, bool header) {
  RecordSet records(std::move(source));
  SHOAL_RETURN_IF_ERROR(BeginText(records.source(), text));
  size_t at = 0;
  uint64_t line = 1;
  bool skip = header;
  while (at < text.size()) {
    const uint64_t record_line = line;
    std::vector<std::string> fields;
    bool more = true;
    while (more) {
      std::string field;
      if (at < text.size() && text[at] == '"') {
        const uint64_t quote_line = line;
        for (++at;; ++at) {
          if (at >= text.size()) {
            return BadLine(records.source(), quote_line, "the quote is never closed");
          }
          if (text[at] == '"') {
            if (at + 1 >= text.size() || text[at + 1] != '"') break;
            ++at;
          }
          if (text[at] == '\n') ++line;
          field += text[at];
        }
        ++at;
      } else {
        while (at < text.size() && text[at] != ',' && text[at] != '\n') {
          if (text[at] == '"') {
            return BadLine(records.source(), line, "a quote inside a field without quotes");
          }
          if (text[at] == '\r') {
            if (at + 1 < text.size() && text[at + 1] == '\n') break;
            return BadLine(records.source(), line, "a carriage return outside quotes");
          }
          field += text[at++];
        }
      }
      fields.push_back(std::move(field));
      if (at < text.size() && text[at] == '\r' && at + 1 < text.size() && text[at + 1] == '\n') {
        ++at;
      }
      if (at >= text.size()) {
        more = false;
      } else if (text[at] == '\n') {
        ++at;
        ++line;
        more = false;
      } else if (text[at] == ',') {
        ++at;
      } else {
        return BadLine(records.source(), line, "text after the closing quote");
      }
      if (fields.size() > 2) break;
    }
    if (std::exchange(skip, false)) {
      // A header may have any number of fields: the rest of its line is skipped too.
      if (more) {
        while (at < text.size() && text[at++] != '\n') {
        }
        ++line;
      }
      continue;
    }
    if (fields.size() != 2) {
      return BadLine(records.source(), record_line,
                     fields.size() > 2 ? "more than two fields" : "fewer than two fields");
    }
    SHOAL_RETURN_IF_ERROR(records.Add(AsBytes(fields[0]), AsBytes(fields[1]), record_line));
  }
  return records;
}

std::string EscapeTsv(BytesView bytes) {
  std::string out;
  while (!bytes.empty()) {
    // All but a backslash is escaped as for any text of a terminal.
    const auto backslash = AsText(bytes).find('\\');
    const size_t plain = std::min<size_t>(backslash, bytes.size());
    out += Printable(AsText(bytes.first(plain)));
    if (plain < bytes.size()) out += "\\\\";
    bytes = bytes.subspan(std::min(plain + 1, bytes.size()));
  }
  return out;
}

absl::StatusOr<Bytes> UnescapeTsv(absl::string_view text) {
  Bytes out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(static_cast<uint8_t>(text[i]));
      continue;
    }
    const char kind = ++i < text.size() ? text[i] : '\0';
    switch (kind) {
      case '\\':
        out.push_back('\\');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 'x': {
        const int high = i + 1 < text.size() ? HexDigit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
        if (high < 0 || low < 0) {
          return absl::InvalidArgumentError("\\x wants two hexadecimal digits");
        }
        out.push_back(static_cast<uint8_t>(high << 4 | low));
        i += 2;
        break;
      }
      default:
        return absl::InvalidArgumentError(
            "unknown escape; a backslash is written \\\\ (others: \\t \\n \\r \\xHH)");
    }
  }
  return out;
}

}  // namespace shoal::table
