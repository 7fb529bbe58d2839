// Keys from text: one a line, as text files come from any system.
#ifndef SHOAL_SRC_SHOAL_KEY_LINES_H_
#define SHOAL_SRC_SHOAL_KEY_LINES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal::commands {

// Whether text can be a key as somebody wrote it. A key with what nobody sees would be answered
// "absent", with a proof, and somebody would believe it. INVALID_ARGUMENT for what is not UTF-8
// (NUL bytes are of UTF-16), for blanks at either end or alone, and for what IsUnseen: controls,
// tabs, byte order marks, bidirectional controls. Joiners and variation selectors are taken, which
// scripts and emoji need. --escapes is for keys of any bytes.
absl::Status CheckKeyText(absl::string_view text);

// Whether the text has accents apart from their letters, as a normalisation leaves them (NFD) that
// few tables have.
bool HasAccentsApart(absl::string_view text);

// Cuts text that comes in pieces into lines. The last line feed may be missing. A carriage return
// before a line feed and a byte order mark of UTF-8 are no part of a key, as no editor shows them.
// INVALID_ARGUMENT "SOURCE:LINE: .." for a line that CheckKeyText refuses, for one that is too
// long, and for UTF-16.
class KeyLines {
 public:
  using Take = std::function<absl::Status(absl::string_view line)>;
  // `take` outlives this object.
  KeyLines(std::string source, const Take& take) : source_(std::move(source)), take_(take) {}

  absl::Status Feed(absl::string_view text);
  absl::Status Finish();

  // What was left out of the keys, for people; empty if nothing was.
  std::string Note() const;

 private:
  absl::Status Line(absl::string_view end);
  absl::Status Whole(absl::string_view line);
  absl::Status TooLong() const;

  const std::string source_;
  const Take& take_;
  std::string rest_;  // the beginning of a line
  uint64_t number_ = 0;
  uint64_t carriage_returns_ = 0;
  bool mark_ = false;
};

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_KEY_LINES_H_
