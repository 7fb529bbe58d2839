#include "src/door/rate.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace shoal::door {

using Clock = Bucket::Clock;
using namespace std::chrono_literals;

Clock::duration Bucket::Take(double cost, double per_minute, Clock::time_point now) {
  const double share = std::min(cost / per_minute, 1.0);
  const auto fills = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::ratio<60>>(share));
  const Clock::time_point full = std::max(full_, now) + fills;
  if (full > now + 1min) return full - now - 1min;
  full_ = full;
  return Clock::duration::zero();
}

Clock::duration AddressRates::Take(const Origin& origin, double cost, Clock::time_point now) {
  if (!origin.has_value() || origin->is_shared()) return Clock::duration::zero();
  const MutexLock lock(mutex_);
  if (buckets_.size() >= sweep_at_) {
    absl::erase_if(buckets_, [now](const auto& entry) { return entry.second.IsFull(now); });
    if (buckets_.size() >= kMostBlocks) buckets_.clear();
    sweep_at_ = std::clamp(2 * buckets_.size(), size_t{1024}, kMostBlocks);
  }
  return buckets_[*origin].Take(cost, per_minute_, now);
}

size_t AddressRates::size() const {
  const MutexLock lock(mutex_);
  return buckets_.size();
}

}  // namespace shoal::door
