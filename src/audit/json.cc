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
constexpr size_t kMaxShownName = 64;

std::string Place(absl::string_view text, size_t at) {
  const absl::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == absl::string_view::npos ? at : at - line_start - 1;
  return absl::StrCat(lines + 1, ":", column + 1);
}

// ".name", or ["name"] for a name with other characters, which ends up on a terminal.
std::string Step(absl::string_view name) {
  const auto is_plain = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; };
  if (name.size() <= kMaxShownName && std::ranges::all_of(name, is_plain)) {
    return absl::StrCat(".", name);
  }
  std::string shown(name.substr(0, kMaxShownName));
  std::ranges::replace_if(
      shown, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, '?');
  return absl::StrCat("[\"", shown, name.size() > kMaxShownName ? ".." : "", "\"]");
}

// How many members the objects of a text have, as it is written: outside of strings a colon stands
// in front of each value of one, and nowhere else.
size_t WrittenMembers(absl::string_view text) {
  size_t members = 0;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (in_string && text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      members += text[at] == ':';
    }
  }
  return members;
}

// How many the parsed objects have. As deep as the text, which the parser bounds.
size_t KeptMembers(const boost::json::value& value) {
  size_t members = 0;
  if (value.is_array()) {
    for (const boost::json::value& item : value.get_array()) members += KeptMembers(item);
  } else if (value.is_object()) {
    members += value.get_object().size();
    for (const auto& member : value.get_object()) members += KeptMembers(member.value());
  }
  return members;
}

// Puts the way from a value to one within it in front of `way`. False if it is not there. As deep
// as the text, which the parser bounds.
bool FindWay(const boost::json::value& from, const boost::json::value* wanted, std::string& way) {
  if (&from == wanted) return true;
  if (from.is_array()) {
    size_t i = 0;
    for (const boost::json::value& item : from.get_array()) {
      if (FindWay(item, wanted, way)) {
        way = absl::StrCat("[", i, "]", way);
        return true;
      }
      ++i;
    }
  } else if (from.is_object()) {
    for (const auto& [name, value] : from.get_object()) {
      if (FindWay(value, wanted, way)) {
        way = absl::StrCat(Step({name.data(), name.size()}), way);
        return true;
      }
    }
  }
  return false;
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
  result.whole_ = std::make_unique<JsonView::Whole>(std::move(source), parser.release());
  // The parser keeps one of two members of a name, and readers differ about which.
  if (KeptMembers(result.whole_->root) != WrittenMembers(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(result.whole_->source, ":1: an object has two members of one name"));
  }
  return result;
}

absl::Status JsonView::Wrong(absl::string_view what) const {
  std::string way = missing_;
  FindWay(whole_->root, value_, way);
  absl::string_view shown = way;
  absl::ConsumePrefix(&shown, ".");
  return absl::InvalidArgumentError(
      absl::StrCat(whole_->source, ": ", shown.empty() ? "the whole" : shown, ": ", what));
}

absl::StatusOr<JsonView> JsonView::Get(absl::string_view name) const {
  if (exists() && !value_->is_object()) return Wrong("is not an object");
  const boost::json::value* const found =
      exists() ? value_->get_object().if_contains({name.data(), name.size()}) : nullptr;
  if (found != nullptr) return JsonView(found, whole_);
  JsonView none = *this;
  absl::StrAppend(&none.missing_, ".", name);
  return none;
}

absl::StatusOr<std::vector<JsonView>> JsonView::Items() const {
  std::vector<JsonView> items;
  if (!exists()) return items;
  if (!value_->is_array()) return Wrong("is not an array");
  for (const boost::json::value& item : value_->get_array()) {
    items.push_back(JsonView(&item, whole_));
  }
  return items;
}

absl::StatusOr<std::vector<JsonView::Member>> JsonView::Members() const {
  std::vector<Member> members;
  if (!exists()) return members;
  if (!value_->is_object()) return Wrong("is not an object");
  for (const auto& [name, value] : value_->get_object()) {
    members.push_back({{name.data(), name.size()}, JsonView(&value, whole_)});
  }
  return members;
}

absl::StatusOr<std::vector<JsonView::Member>> JsonView::MembersBut(
    std::span<const absl::string_view> known) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Member> members, Members());
  std::erase_if(members, [&](const Member& member) {
    return std::ranges::find(known, member.name) != known.end();
  });
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

absl::StatusOr<std::optional<int64_t>> JsonView::Integer() const {
  if (!exists()) return std::optional<int64_t>();
  if (!value_->is_int64()) return Wrong("is no whole number");
  return std::optional<int64_t>(value_->get_int64());
}

}  // namespace shoal::audit
