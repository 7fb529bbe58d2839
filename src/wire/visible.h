// Rounds what other parties, clients and an operator's monitoring see of a party: nothing that is
// measured or counted goes out another way. The time of a stage in nanoseconds would tell about
// cache hits, and so about rows and other clients' queries. docs/threat-model.md, "What a party
// shows", says what is left to be seen.
#ifndef SHOAL_SRC_WIRE_VISIBLE_H_
#define SHOAL_SRC_WIRE_VISIBLE_H_

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

// A number that clients raise one by one, such as that of refused requests: in tens, rounded down,
// so that most of the time a single client's request does not show.
inline uint64_t VisibleRequests(uint64_t number) { return number - number % 10; }

// Bytes that follow from what clients send, such as room on a disk: in MiB, rounded down.
inline uint64_t VisibleBytes(uint64_t bytes) { return bytes >> 20 << 20; }

// StageReport.half, as people call it. What another party's report has there may be anything.
inline const char* HalfName(uint32_t half) {
  constexpr const char* kNames[] = {"", "A", "B"};
  return half < 3 ? kNames[half] : "?";
}

}  // namespace shoal::wire

#endif  // SHOAL_SRC_WIRE_VISIBLE_H_
