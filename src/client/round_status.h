// The result of a step in a round. Like absl::Status, except that it also says whether the client
// has left the round: then another round may do, whereas an error ends the call.
#ifndef SHOAL_SRC_CLIENT_ROUND_STATUS_H_
#define SHOAL_SRC_CLIENT_ROUND_STATUS_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/status_macros.h"

namespace shoal::client {

// Does not convert into absl::Status: nobody forgets by accident that the round was left.
class [[nodiscard]] RoundStatus {
 public:
  RoundStatus() = default;                                          // OK
  RoundStatus(absl::Status status) : reason_(std::move(status)) {}  // NOLINT: still in the round
  static RoundStatus Left(absl::string_view why) { return {absl::AbortedError(why), true}; }

  bool ok() const { return reason_.ok(); }
  // Whether the client has given the round up, and `reason` says why.
  bool left_round() const { return left_; }
  // What the caller of ChainClient is told: ABORTED for a round that was left. An error of that
  // code may also come from elsewhere (a file system that says ESTALE), so only left_round()
  // decides.
  const absl::Status& reason() const { return reason_; }

  RoundStatus Annotated(absl::string_view context) const {
    return {Annotate(reason_, context), left_};
  }

 private:
  RoundStatus(absl::Status reason, bool left) : reason_(std::move(reason)), left_(left) {}
  absl::Status reason_;
  bool left_ = false;
};

// The same with a value. Works with SHOAL_ASSIGN_OR_RETURN in functions that return one of the two.
template <typename T>
class [[nodiscard]] RoundStatusOr {
 public:
  RoundStatusOr(T value) : value_(std::move(value)) {}               // NOLINT
  RoundStatusOr(absl::Status error) : status_(std::move(error)) {}   // NOLINT
  RoundStatusOr(RoundStatus status) : status_(std::move(status)) {}  // NOLINT

  bool ok() const { return value_.has_value(); }
  const RoundStatus& status() const { return status_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }

  // For whoever does not go on in another round.
  absl::StatusOr<T> AsStatusOr() && {
    if (!ok()) return status_.reason();
    return *std::move(value_);
  }

 private:
  std::optional<T> value_;
  RoundStatus status_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROUND_STATUS_H_
