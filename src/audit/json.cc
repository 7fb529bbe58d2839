#include "src/audit/json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
// Boost.JSON without a library of its own: its sources, in this one file.
#include "boost/json/src.hpp"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::audit {
namespace {

constexpr size_t kMaxDepth = 64;

std::string Place(absl::string_view text, size_t at) {
  const absl::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == absl::string_view::npos ? at : at - line_start - 1;
  return absl::StrCat(lines + 1, ":", column + 1);
}

}  // namespace

absl::StatusOr<JsonText> JsonText::Parse(absl::string_view text, std::string source) {
  if (const absl::Status utf16 = table::RefuseUtf16(text); !utf16.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ":1: ", utf16.message()));
  }
  absl::ConsumePrefix(&text, table::kByteOrderMark);
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::json::stream_parser parser({}, options);
  boost::json::error_code error;
  const size_t parsed = parser.write_some(text.data(), text.size(), error);
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ":", Place(text, parsed), ": not JSON: ", what));
  };
  if (error) return wrong(error.message());
  if (text.find_first_not_of(" \t\r\n", parsed) != absl::string_view::npos) {
    return wrong("something follows the value");
  }
  parser.finish(error);
  if (error) return wrong(error.message());
  JsonText result;
  result.source_ = std::make_unique<std::string>(std::move(source));
  result.value_ = std::make_unique<boost::json::value>(parser.release());
  return result;
}

absl::Status JsonView::Wrong(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(*source_, ": ", way_.empty() ? "the whole" : way_, ": ", what));
}

absl::StatusOr<JsonView> JsonView::Get(absl::string_view name) const {
  std::string way = way_.empty() ? std::string(name) : absl::StrCat(way_, ".", name);
  if (!exists()) return JsonView(nullptr, std::move(way), source_);
  if (!value_->is_object()) return Wrong("is not an object");
  const boost::json::value* const found =
      value_->get_object().if_contains({name.data(), name.size()});
  return JsonView(found, std::move(way), source_);
}

absl::StatusOr<std::vector<JsonView>> JsonView::Items() const {
  std::vector<JsonView> items;
  if (!exists()) return items;
  if (!value_->is_array()) return Wrong("is not an array");
  for (const boost::json::value& item : value_->get_array()) {
    items.push_back(JsonView(&item, absl::StrCat(way_, "[", items.size(), "]"), source_));
  }
  return items;
}

absl::StatusOr<std::vector<JsonView::Member>> JsonView::Members() const {
  std::vector<Member> members;
  if (!exists()) return members;
  if (!value_->is_object()) return Wrong("is not an object");
  for (const auto& [name, value] : value_->get_object()) {
    const absl::string_view text(name.data(), name.size());
    // The way ends up on a terminal.
    std::string shown(text);
    std::ranges::replace_if(
        shown, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
    members.push_back({text, JsonView(&value, absl::StrCat(way_, "[\"", shown, "\"]"), source_)});
  }
  return members;
}

absl::StatusOr<absl::string_view> JsonView::Text() const {
  if (!exists()) return absl::string_view();
  if (!value_->is_string()) return Wrong("is not a text");
  const boost::json::string& text = value_->get_string();
  return absl::string_view(text.data(), text.size());
}

absl::StatusOr<bool> JsonView::Bool() const {
  if (!exists()) return false;
  if (!value_->is_bool()) return Wrong("is neither true nor false");
  return value_->get_bool();
}

}  // namespace shoal::audit
