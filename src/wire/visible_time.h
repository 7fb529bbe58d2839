// Rounds times for all reports that other parties and clients see. The time of a stage in
// nanoseconds would tell about cache hits, and so about rows and other clients' queries.
#ifndef SHOAL_SRC_WIRE_VISIBLE_TIME_H_
#define SHOAL_SRC_WIRE_VISIBLE_TIME_H_

#include <cmath>
#include <cstdint>

namespace shoal::wire {

// Wall or processor time of one party's stage or of an engine's work, in hundredths of a second.
inline double VisibleSeconds(double seconds) { return std::round(seconds * 100) / 100; }

// Wall time of a stage over the whole chain, in whole milliseconds, rounded down. Any client that
// waits for the stage can measure as much itself.
inline uint64_t VisibleMilliseconds(double seconds) {
  return static_cast<uint64_t>(seconds * 1000);
}

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_VISIBLE_TIME_H_
