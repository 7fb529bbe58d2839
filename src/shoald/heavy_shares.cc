#include "src/shoald/heavy_shares.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"

namespace shoal::shoald {

double HeavyShares::TakenBy(const Taken& taken, double now) const {
  return std::max(0.0, taken.seconds - (now - taken.at) * limits_.seconds_per_hour / 3600);
}

absl::Status HeavyShares::Add(const Origin& from, double now) {
  if (waiting_ >= limits_.waiting) {
    return absl::ResourceExhaustedError(
        "too many requests for hints wait here; ask again in 60 seconds");
  }
  if (from) {
    Forget(now);
    Taken& taken = taken_[*from];
    taken = {.seconds = TakenBy(taken, now), .at = now, .waiting = taken.waiting};
    if (taken.waiting >= (from->is_shared() ? limits_.waiting_of_group : limits_.waiting_of_one)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          taken.waiting,
          " requests for hints of this address wait here already; ask again in 60 seconds"));
    }
    const double over = taken.seconds - limits_.seconds_per_hour;
    if (over >= 0 && !from->is_shared()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "this address has taken its ", limits_.seconds_per_hour,
          " seconds an hour of the work on hints; ask again in ",
          static_cast<int64_t>(std::ceil(over * 3600 / limits_.seconds_per_hour)) + 1, " seconds"));
    }
    ++taken.waiting;
  }
  ++waiting_;
  return absl::OkStatus();
}

void HeavyShares::Done(const Origin& from, double seconds, double now) {
  SHOAL_CHECK(waiting_ > 0);
  --waiting_;
  if (!from) return;
  Taken& taken = taken_[*from];
  SHOAL_CHECK(taken.waiting > 0);
  taken = {.seconds = TakenBy(taken, now) + seconds, .at = now, .waiting = taken.waiting - 1};
}

void HeavyShares::Forget(double now) {
  if (taken_.size() < forget_at_) return;
  absl::erase_if(taken_, [&](const auto& entry) {
    return entry.second.waiting == 0 && TakenBy(entry.second, now) <= 0;
  });
  forget_at_ = std::max<size_t>(1024, 2 * taken_.size());
}

}  // namespace shoal::shoald
