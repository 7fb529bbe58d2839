#include "src/shoal/key_lines.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::commands {
namespace {

// A key has up to 4,096 bytes, each written with up to four.
constexpr size_t kMaxLineBytes = 1 << 16;

}  // namespace

absl::Status KeyLines::Feed(absl::string_view text) {
  for (size_t end; (end = text.find('\n')) != absl::string_view::npos;) {
    SHOAL_RETURN_IF_ERROR(Line(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  if (rest_.size() + text.size() > kMaxLineBytes) return TooLong();
  absl::StrAppend(&rest_, text);
  return absl::OkStatus();
}

absl::Status KeyLines::Finish() { return rest_.empty() ? absl::OkStatus() : Line(""); }

std::string KeyLines::Note() const {
  std::string what = mark_ ? "a byte order mark" : "";
  if (carriage_returns_ > 0) {
    absl::StrAppend(&what, mark_ ? " and " : "", "the carriage returns of ", carriage_returns_,
                    carriage_returns_ == 1 ? " line" : " lines");
  }
  return what.empty() ? "" : absl::StrCat(source_, ": left out of the keys: ", what);
}

absl::Status KeyLines::Line(absl::string_view end) {
  if (rest_.size() + end.size() > kMaxLineBytes) return TooLong();
  ++number_;
  absl::Status status;
  if (rest_.empty()) {
    status = Whole(end);
  } else {
    absl::StrAppend(&rest_, end);
    status = Whole(rest_);
    rest_.clear();
  }
  return status.ok() ? status : Annotate(status, absl::StrCat(source_, ":", number_));
}

absl::Status KeyLines::Whole(absl::string_view line) {
  if (number_ == 1) {
    SHOAL_RETURN_IF_ERROR(table::RefuseUtf16(line));
    mark_ = absl::ConsumePrefix(&line, table::kByteOrderMark);
  }
  if (absl::ConsumeSuffix(&line, "\r")) ++carriage_returns_;
  if (line.find_first_not_of(" \t\r") == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "the line is blank, and no key: remove it (with --escapes, \\x20 is a blank)");
  }
  return take_(line);
}

absl::Status KeyLines::TooLong() const {
  return absl::InvalidArgumentError(absl::StrCat(source_, ":", number_ + 1, ": has more than ",
                                                 kMaxLineBytes, " bytes: no table has such keys"));
}

}  // namespace shoal::commands
