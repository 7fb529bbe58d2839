// Records, the input of a table: pairs of byte strings, and their readers.
#ifndef SHOAL_SRC_TABLE_RECORDS_H_
#define SHOAL_SRC_TABLE_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"

namespace shoal::table {

inline constexpr size_t kMaxKeyBytes = 4096;
inline constexpr size_t kMaxValueBytes = 65535;

// Key and value pairs in the order of their source, in one buffer. Remembers the line of each, so
// that an error found later can name it.
class RecordSet {
 public:
  // `source` is a file's name, for messages.
  explicit RecordSet(std::string source) : source_(std::move(source)) {}

  // INVALID_ARGUMENT "SOURCE:LINE: .." for an over-long key or value.
  absl::Status Add(BytesView key, BytesView value, uint64_t line);

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  BytesView key(size_t i) const {
    return BytesView(buffer_).subspan(entries_[i].offset, entries_[i].key_bytes);
  }
  BytesView value(size_t i) const {
    return BytesView(buffer_).subspan(entries_[i].offset + entries_[i].key_bytes,
                                      entries_[i].value_bytes);
  }
  const std::string& source() const { return source_; }
  // "SOURCE:LINE".
  std::string Where(size_t i) const;

  // INVALID_ARGUMENT names both lines of the first repeated key.
  absl::Status CheckUnique() const;

 private:
  struct Entry {
    uint64_t offset;
    uint64_t line;
    uint32_t key_bytes;
    uint32_t value_bytes;
  };
  std::string source_;
  Bytes buffer_;
  std::vector<Entry> entries_;
};

// UTF-8's, at the beginning of a text that some editors write. No part of a key: ParseTsv and
// ParseCsv skip it.
inline constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";
// INVALID_ARGUMENT if the text begins with a byte order mark of UTF-16.
absl::Status RefuseUtf16(absl::string_view text);

// One record a line: key, one tab, value, line feed (the last may miss). In both, \\ \t \n \r and
// \xHH stand for a backslash, tab, line feed, carriage return and any byte; no other escape is
// known. A line without exactly one tab, an empty line, a carriage return before the line feed and
// a NUL byte, which text in UTF-16 has, are refused. INVALID_ARGUMENT "SOURCE:LINE: ..".
absl::StatusOr<RecordSet> ParseTsv(absl::string_view text, std::string source);

// RFC 4180 with two fields, key and value: quoted fields may hold commas, line breaks and doubled
// quotes; lines end with CRLF or LF. With `header`, the first line is skipped. A quote inside an
// unquoted field, text after a closing quote, another number of fields and a NUL byte are refused.
absl::StatusOr<RecordSet> ParseCsv(absl::string_view text, std::string source, bool header);

// The escapes of ParseTsv, for everything that writes keys and values as TSV. A backslash is \\,
// and all else as Printable writes it: what a terminal would obey or nobody would see, and bytes
// that are not UTF-8, become \xHH.
std::string EscapeTsv(BytesView bytes);
// INVALID_ARGUMENT for an unknown or cut-off escape.
absl::StatusOr<Bytes> UnescapeTsv(absl::string_view text);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_RECORDS_H_
