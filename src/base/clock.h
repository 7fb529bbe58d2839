// Clocks are passed in, so that tests can set the time.
#ifndef SHOAL_SRC_BASE_CLOCK_H_
#define SHOAL_SRC_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

namespace shoal {

class Clock {
 public:
  virtual ~Clock() = default;
  // Since 1970, UTC. Somebody may set it, so it can jump.
  virtual uint64_t NowSeconds() const = 0;
  // Since some moment. It never goes back or jumps.
  virtual uint64_t SteadySeconds() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }
};

class SystemClock final : public Clock {
 public:
  uint64_t NowSeconds() const override {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  }
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_CLOCK_H_
