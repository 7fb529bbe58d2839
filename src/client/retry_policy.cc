#include "src/client/retry_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace shoal::client {
namespace {

constexpr int kLeastAttempts = 6;
// From the third pause on people are told: shorter ones are a connection that was made anew.
constexpr int kToldFrom = 3;
constexpr uint64_t kFirstPauseMs = 200, kLongestPauseMs = 5000;

}  // namespace

std::string TimeText(uint64_t at_s, uint64_t now_s) {
  constexpr uint64_t kHalfDayS = 12 * 3600;
  const bool near = at_s < now_s + kHalfDayS && now_s < at_s + kHalfDayS;
  return absl::FormatTime(near ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S",
                          absl::FromUnixSeconds(static_cast<int64_t>(at_s)), absl::LocalTimeZone());
}

void RetryPolicy::Until(uint64_t until_s, std::string event) {
  const MutexLock lock(mutex_);
  until_s_ = until_s;
  event_ = std::move(event);
}

bool RetryPolicy::Pause(int attempt, const absl::Status& why) {
  const uint64_t now_s = environment_.clock->NowSeconds();
  const uint64_t whole_ms = std::min(kFirstPauseMs << std::min(attempt - 1, 10), kLongestPauseMs);
  uint64_t pause_ms;
  {
    const MutexLock lock(mutex_);
    if (attempt >= kLeastAttempts && now_s >= until_s_) return false;
    pause_ms = whole_ms / 2 + environment_.random->Below(whole_ms / 2 + 1);
    if (attempt >= kToldFrom && now_s < until_s_ && !std::exchange(told_, true)) {
      environment_.Tell(absl::StrCat("the frontend does not answer (", why.message(),
                                     "); waiting until ", TimeText(until_s_, now_s), ", when ",
                                     event_));
    }
  }
  environment_.sleep(static_cast<uint32_t>(pause_ms));
  return true;
}

void RetryPolicy::Answered() {
  const MutexLock lock(mutex_);
  if (std::exchange(told_, false)) environment_.Tell("the frontend answers again");
}

}  // namespace shoal::client
