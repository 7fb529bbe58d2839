// How fast this machine's memory is, for benchmarks that print how far they are from it.
#ifndef SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
#define SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_

#include <cstddef>

namespace shoal::testing {

// In bytes a second, all threads together.
struct MemoryBandwidth {
  double read;   // one sequential stream a thread, read once
  double write;  // overwritten once, past the caches
  double copy;   // memcpy; what is read and what is written both count
};

// The best of five passes over 128 MiB a thread, far more than the caches hold, in huge pages where
// there are any. Takes about half a second.
MemoryBandwidth MeasureMemoryBandwidth(size_t threads = 1);

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
