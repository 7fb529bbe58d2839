// Measures elapsed time, and the memory that the process has taken, for reports, logs, calibration
// and benchmarks. Decisions of the protocol use Clock (clock.h) instead, which tests replace.
#ifndef SHOAL_SRC_BASE_STOPWATCH_H_
#define SHOAL_SRC_BASE_STOPWATCH_H_

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace shoal {

// Measures the time since it was made. Copies measure from the same moment.
class Stopwatch {
 public:
  // The kind of time. Processor time does not include other programs' use of the cores.
  enum Time : clockid_t {
    kWall = CLOCK_MONOTONIC,
    kProcess = CLOCK_PROCESS_CPUTIME_ID,  // processor time of all threads of the process
    kThread =
        CLOCK_THREAD_CPUTIME_ID,  // of the calling thread; make and read it on the same thread
  };

  Stopwatch() : Stopwatch(kWall) {}
  explicit Stopwatch(Time time) : time_(time), start_ns_(Now()) {}

  int64_t Nanoseconds() const { return Now() - start_ns_; }
  double Seconds() const { return 1e-9 * static_cast<double>(Nanoseconds()); }

 private:
  int64_t Now() const {
    timespec now = {};
    clock_gettime(time_, &now);
    return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  }

  Time time_;
  int64_t start_ns_;
};

// Processor time of this thread: other programs' use of the cores does not count, but their use of
// the memory has an effect.
inline double ThreadSeconds(const std::function<void()>& body) {
  const Stopwatch stopwatch(Stopwatch::kThread);
  body();
  return stopwatch.Seconds();
}

// 0 if there are none.
inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// The processor nanoseconds of body(), the middle one of three runs.
inline double TypicalNanoseconds(const std::function<void()>& body) {
  std::array<double, 3> ns;
  for (double& each : ns) {
    const Stopwatch cpu(Stopwatch::kProcess);
    body();
    each = static_cast<double>(cpu.Nanoseconds());
  }
  std::sort(ns.begin(), ns.end());
  return ns[1];
}

// The largest amount of the machine's memory that this process has had since it started.
inline uint64_t PeakMemoryBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_STOPWATCH_H_
