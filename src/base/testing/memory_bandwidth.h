// How fast this machine's memory is, for benchmarks that print how far they are from it.
#ifndef SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
#define SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_

#include <cstddef>

namespace shoal::testing {

// Rates in bytes per second of processor time, summed over the threads.
struct MemoryBandwidth {
  double read;   // one sequential stream a thread, read once
  double write;  // one sequential stream a thread, overwritten past the caches
  double copy;   // memcpy, counting the bytes read plus the bytes written
};

// Measures passes over 128 MiB for each thread, far more than the caches hold, in huge pages where
// there are any. Each thread counts its best of nine passes. If other programs keep the threads
// from running at the same time, the sum for several threads comes out too high, and a percentage
// of it too low. Takes about half a second.
MemoryBandwidth MeasureMemoryBandwidth(size_t threads = 1);

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
