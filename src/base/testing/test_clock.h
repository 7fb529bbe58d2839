// The clock of tests.
#ifndef SHOAL_SRC_BASE_TESTING_TEST_CLOCK_H_
#define SHOAL_SRC_BASE_TESTING_TEST_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "src/base/clock.h"

namespace shoal::testing {

// The date in tests.
inline constexpr uint64_t kNowS = 1'800'000'000;

// Stands still until a test moves it. Thread-safe.
class TestClock final : public Clock {
 public:
  explicit TestClock(uint64_t date_s = kNowS) : now_s(date_s) {}
  uint64_t NowSeconds() const override { return now_s; }
  uint64_t SteadyMilliseconds() const override {
    ++steady_reads;
    return passes ? Clock::SteadyMilliseconds() : 1000 * steady_s + steady_ms;
  }

  std::atomic<uint64_t> now_s;
  std::atomic<uint64_t> steady_s = 1000, steady_ms = 0;  // the steady clock is their sum
  // Whether the steady clock is the machine's instead. The date stands still all the same.
  std::atomic<bool> passes = false;
  // How often the steady clock was read: a test waits for others to have looked at it.
  mutable std::atomic<uint64_t> steady_reads = 0;
};

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_TEST_CLOCK_H_
