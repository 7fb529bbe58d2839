// JSON from outside, in bounded depth, with the place of what is wrong.
#ifndef SHOAL_SRC_AUDIT_JSON_H_
#define SHOAL_SRC_AUDIT_JSON_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"

namespace shoal::audit {

// A value of a parsed text. It may be one that is not there: a member that an object lacks, or
// null. Views into the JsonText, which must outlive it.
class JsonView {
 public:
  bool exists() const { return missing_.empty() && !value_->is_null(); }
  bool is_array() const { return exists() && value_->is_array(); }
  bool is_object() const { return exists() && value_->is_object(); }
  bool is_text() const { return exists() && value_->is_string(); }

  // All return INVALID_ARGUMENT "SOURCE: WAY: .." for a value of another type. A value that is not
  // there has no members and no items, and is the empty text.
  absl::StatusOr<JsonView> Get(absl::string_view name) const;
  absl::StatusOr<std::vector<JsonView>> Items() const;
  struct Member;
  absl::StatusOr<std::vector<Member>> Members() const;
  // Those whose names are not among `known`: an object may say more by them than is understood.
  absl::StatusOr<std::vector<Member>> MembersBut(std::span<const absl::string_view> known) const;
  absl::StatusOr<absl::string_view> Text() const;
  // False if it is not there.
  absl::StatusOr<bool> Bool() const;
  // Nothing if it is not there.
  absl::StatusOr<std::optional<int64_t>> Integer() const;

  // The way to a value, "affected[3].ranges[0]", is only looked for here: a copy in every view
  // could take many times the memory of the text.
  absl::Status Wrong(absl::string_view what) const;

 private:
  friend class JsonText;
  struct Whole {
    std::string source;
    boost::json::value root;
  };
  JsonView(const boost::json::value* value, const Whole* whole) : value_(value), whole_(whole) {}

  const boost::json::value* value_;  // of a member that is not there: the nearest that is
  const Whole* whole_;
  std::string missing_ = {};  // from there: ".a.b"
};

struct JsonView::Member {
  absl::string_view name;
  JsonView value;
};

class JsonText {
 public:
  // One JSON value (RFC 8259) of UTF-8, at most 64 deep, whose objects have each member once; a
  // byte order mark is skipped.
  // INVALID_ARGUMENT "SOURCE:LINE:COLUMN: ..".
  static absl::StatusOr<JsonText> Parse(absl::string_view text, std::string source);

  JsonView root() const { return JsonView(&whole_->root, whole_.get()); }

 private:
  JsonText() = default;
  std::unique_ptr<JsonView::Whole> whole_;
};

}  // namespace shoal::audit

#endif  // SHOAL_SRC_AUDIT_JSON_H_
