// How fast this machine's memory is, for benchmarks that print how far they are from it.
#ifndef SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
#define SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

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

// A way to read memory once, front to back. `bytes` is a multiple of 512, and `data` is aligned to
// 64. What it returns depends on all of them, so that no compiler leaves the reading out.
struct Reader {
  const char* name;
  uint64_t (*read)(const uint8_t* data, uint64_t bytes);
};

// Those that this processor has. Which one is the fastest depends on the machine: a benchmark that
// compares itself with reading, in turns and over a table of its own, takes the fastest.
std::vector<Reader> Readers();
// Bytes a second of processor time of the fastest of them, each of which reads these once.
double FastestReadRate(const uint8_t* data, uint64_t bytes);

}  // namespace shoal::testing

#endif  // SHOAL_SRC_BASE_TESTING_MEMORY_BANDWIDTH_H_
