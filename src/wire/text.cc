#include "src/wire/text.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "src/base/status_macros.h"

namespace shoal::wire {
namespace {

constexpr uint64_t kMaxTextBytes = 1 << 26;

// Keeps the first error. Protobuf counts lines and columns from 0.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(absl::string_view name) : name_(name) {}
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = absl::StrCat(name_, ":", line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  const std::string name_;
  std::string text_;
};

}  // namespace

absl::Status ParseText(absl::string_view text, absl::string_view name,
                       google::protobuf::Message& message) {
  FirstError error(name);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": too long for text format"));
  }
  if (!parser.ParseFromString(std::string(text), &message)) {
    return absl::InvalidArgumentError(
        error.text().empty() ? absl::StrCat(name, ": cannot be parsed") : error.text());
  }
  return absl::OkStatus();
}

absl::Status ReadTextFile(const std::string& path, google::protobuf::Message& message) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxTextBytes));
  return ParseText(text, path, message);
}

std::string PrintText(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(message, &text);
  return text;
}

absl::Status WriteTextFile(const std::string& path, const google::protobuf::Message& message,
                           FileMode mode) {
  return WriteFileAtomically(path, AsBytes(PrintText(message)), mode);
}

}  // namespace shoal::wire
