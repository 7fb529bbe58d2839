// Processor time: what a benchmark counts so that other programs on the machine do not.
#ifndef SHOAL_SRC_BASE_TESTING_PROCESSOR_TIME_H_
#define SHOAL_SRC_BASE_TESTING_PROCESSOR_TIME_H_

#include <time.h>

namespace shoal::testing {

inline double SecondsOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of the calling thread.
inline double ThreadSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }

// Of all threads of the process.
inline double ProcessSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_PROCESSOR_TIME_H_
