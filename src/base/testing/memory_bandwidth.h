// How fast this machine's memory is, for benchmarks that print how far they are from it.
#ifndef SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
#define SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_

#include <cstddef>

namespace shoal::testing {

// In bytes a second of processor time, added up over the threads.
struct MemoryBandwidth {
  double read;   // one sequential stream a thread, read once
  double write;  // overwritten once, past the caches
  double copy;   // memcpy; what is read and what is written both count
};

// Every thread's best of nine passes over 128 MiB of its own, far more than the caches hold, in
// huge pages where there are any. Where other programs keep the threads from running at the same
// time, what several reach together comes out too high, and whatever is compared with it too low.
// Takes about half a second.
MemoryBandwidth MeasureMemoryBandwidth(size_t threads = 1);

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
