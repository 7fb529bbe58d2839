#include "src/base/stopwatch.h"

#include <unistd.h>

#include <vector>

#include "gtest/gtest.h"

namespace shoal {
namespace {

TEST(StopwatchTest, TheWallGoesOnWhereNothingIsComputed) {
  const Stopwatch wall, process(Stopwatch::kProcess), thread(Stopwatch::kThread);
  const Stopwatch copy = wall;
  usleep(100'000);
  EXPECT_GE(wall.Nanoseconds(), 100'000'000);
  EXPECT_GE(copy.Seconds(), 0.1);
  EXPECT_LT(thread.Seconds(), wall.Seconds() - 0.05);
  EXPECT_LE(thread.Nanoseconds(), process.Nanoseconds());
}

TEST(StopwatchTest, ProcessorTimeGoesOnWhereThereIsWork) {
  const Stopwatch process(Stopwatch::kProcess), thread(Stopwatch::kThread);
  volatile uint64_t sum = 0;
  while (thread.Seconds() < 0.01) sum = sum + 1;
  EXPECT_GE(process.Seconds(), 0.01);
}

TEST(PeakMemoryTest, CountsWhatWasTouchedAndStays) {
  constexpr size_t kBytes = 64 << 20;
  { std::vector<uint8_t> touched(kBytes, 1); }
  EXPECT_GE(PeakMemoryBytes(), kBytes);
}

}  // namespace
}  // namespace shoal
