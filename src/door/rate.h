// How much may come in a minute from one connection, or from each address.
#ifndef SHOAL_SRC_DOOR_RATE_H_
#define SHOAL_SRC_DOOR_RATE_H_

#include <chrono>
#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "src/base/address_block.h"
#include "src/parallel/mutex.h"

namespace shoal::door {

// A bucket that holds a minute's worth at most, and fills evenly. Thread-compatible.
class Bucket {
 public:
  using Clock = std::chrono::steady_clock;

  // Takes `cost`, of `per_minute`, and returns zero; or, if there is too little, takes nothing and
  // returns after how long there will be enough. A cost above `per_minute` counts as that.
  Clock::duration Take(double cost, double per_minute, Clock::time_point now);

  bool IsFull(Clock::time_point now) const { return full_ <= now; }

 private:
  // When it is full again.
  Clock::time_point full_ = Clock::time_point::min();
};

// A bucket for each address block. Thread-safe.
class AddressRates {
 public:
  explicit AddressRates(double per_minute) : per_minute_(per_minute) {}

  // As Bucket::Take. Addresses that many share have no bucket: zero.
  Bucket::Clock::duration Take(const Origin& origin, double cost, Bucket::Clock::time_point now)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // How many addresses are remembered.
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

  // More blocks than this are not remembered. Beyond it, all of them are forgotten: a peer with so
  // many addresses gets past a limit by address anyway.
  static constexpr size_t kMostBlocks = 1 << 20;

 private:
  const double per_minute_;
  mutable Mutex mutex_;
  absl::flat_hash_map<AddressBlock, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  // Full buckets are forgotten when there are this many.
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 1024;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_RATE_H_
