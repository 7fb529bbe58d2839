// What every program writes to standard output and standard error goes through here, so that no
// text from outside makes a terminal do anything, whoever forgot that it is from outside.
#ifndef SHOAL_SRC_CLI_PRINTABLE_STREAM_H_
#define SHOAL_SRC_CLI_PRINTABLE_STREAM_H_

#include <ostream>
#include <streambuf>
#include <string>

#include "absl/strings/string_view.h"

namespace shoal::cli {

// A stream that hands on to another one what Printable makes of it, lines and tabs kept. Results in
// TSV and JSON come out as they went in, as table::EscapeTsv and JsonObject escape as much. A
// character's bytes may come in several pieces. Fails as the other stream does, which outlives it.
class PrintableStream final : public std::ostream {
 public:
  explicit PrintableStream(std::ostream& to) : std::ostream(nullptr), buffer_(to) {
    rdbuf(&buffer_);
  }
  ~PrintableStream() override { flush(); }

 private:
  class Buffer final : public std::streambuf {
   public:
    explicit Buffer(std::ostream& to) : to_(to) {}

   protected:
    std::streamsize xsputn(const char* text, std::streamsize count) override;
    int_type overflow(int_type character) override;
    int sync() override;

   private:
    std::ostream& to_;
    std::string begun_;  // of a character whose other bytes have not come
  };

  Buffer buffer_;
};

// The text of an error or a warning: its lines after the first are indented, so that none of them
// can be taken for one that a program begins.
std::string MessageText(absl::string_view text);

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_PRINTABLE_STREAM_H_
