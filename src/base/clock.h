// Clocks are passed in, so that tests can set the time.
#ifndef SHOAL_SRC_BASE_CLOCK_H_
#define SHOAL_SRC_BASE_CLOCK_H_

#include <time.h>

#include <chrono>
#include <cstdint>

#include "src/base/check.h"

namespace shoal {

class Clock {
 public:
  virtual ~Clock() = default;
  // Since 1970, UTC. Somebody may set it, so it can jump.
  virtual uint64_t NowSeconds() const = 0;
  // Since some moment. It never goes back or jumps, and counts the time that a machine sleeps, but
  // not the time for which a hypervisor pauses it.
  virtual uint64_t SteadyMilliseconds() const {
    timespec now = {};
    SHOAL_CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
  }
  uint64_t SteadySeconds() const { return SteadyMilliseconds() / 1000; }
};

class SystemClock final : public Clock {
 public:
  uint64_t NowSeconds() const override {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  }
};

// For programs that end soon: the wall clock as it was when this object was made, and from then on
// the time that has passed. Whoever sets the wall clock meanwhile changes no deadline.
class UndisturbedClock final : public Clock {
 public:
  explicit UndisturbedClock(const Clock& wall = SystemClock()) : made_s_(wall.NowSeconds()) {}
  uint64_t NowSeconds() const override { return made_s_ + (SteadySeconds() - made_steady_s_); }

 private:
  const uint64_t made_s_;
  const uint64_t made_steady_s_ = SteadySeconds();
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_CLOCK_H_
