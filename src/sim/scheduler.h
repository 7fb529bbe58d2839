// Simulated time, processes and threads, from one seed.
//
// A simulation runs programs as they are: their threads become fibers of this one thread, of which
// exactly one runs at a time. src/sim/interpose.cc takes the place of the system's functions, so
// that locks, condition variables, threads, clocks and files (disk.h) of simulated processes end up
// here. Whenever a fiber blocks, the scheduler goes on with what comes next on simulated time.
// Nothing else decides what happens, so equal seeds give equal runs:
//
//   - what is due at the same moment comes in an order that the seed decides;
//   - at any lock a fiber may be interrupted for a moment, as by a real scheduler;
//   - a process may die at any of its steps (locks, files, waits). Its fibers then never run again,
//     and nothing is cleaned up but what its disk kept, as after a kill or a power cut.
//
// A simulation is not torn down: what died leaks its memory. So each runs in a process of its own
// (simulator.h).
#ifndef SHOAL_SRC_SIM_SCHEDULER_H_
#define SHOAL_SRC_SIM_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <vector>

#include "src/base/bytes.h"

namespace shoal::sim {

// Nanoseconds since the simulation began.
using Time = int64_t;
inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;

// Numbers from a seed: SplitMix64. Fast; not for secrets that anybody relies on.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // Uniform in [0, bound) but for a negligible bias; bound > 0.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  // Uniform in [from, to].
  int64_t Between(int64_t from, int64_t to) {
    return from + static_cast<int64_t>(Below(static_cast<uint64_t>(to - from) + 1));
  }
  bool Chance(double probability) {
    return static_cast<double>(Next() >> 11) * 0x1p-53 < probability;
  }

 private:
  uint64_t state_;
};

class Disk;

// What survives a process: a name, a disk, memory as long as there is power, and a wall clock that
// somebody may set.
struct Machine {
  std::string name;
  Disk* disk = nullptr;    // null: the real machine's
  Disk* memory = nullptr;  // for files in memory; null: it has no place for them
  Time wall_offset = 0;    // of the wall clock against the right time
};

// One run of a program on a machine.
struct Process {
  Machine* machine = nullptr;
  bool alive = true;
  uint64_t steps = 0;
  // The step at which it dies; 0: never.
  uint64_t dies_at_step = 0;
  // From which its programs draw; null: from the simulation's, as all others.
  Rng* randomness = nullptr;
};

class Fiber;

class Scheduler {
 public:
  explicit Scheduler(uint64_t seed);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The one that runs; null outside of a simulation.
  static Scheduler* Current();
  // The fiber that runs; null on the scheduler's own stack and outside of a simulation.
  static Fiber* CurrentFiber();
  // Its process.
  static Process* CurrentProcess();

  Time now() const { return now_; }
  // The right wall time, in nanoseconds since 1970, and that of the present process's machine.
  Time WallTime() const;

  // How likely a fiber is interrupted at a step. 0 at the beginning.
  void set_interruptions(double probability) { interruptions_ = probability; }
  // Called on the scheduler's stack when a process has died at a step.
  void set_on_death(std::function<void(Process*)> on_death) { on_death_ = std::move(on_death); }

  // Starts a fiber of the process, now.
  Fiber* Spawn(Process* process, std::function<void()> body);
  // Calls `callback` on the scheduler's stack at `time`, or at once if that is over.
  void At(Time time, std::function<void()> callback);

  // Ends the process: its fibers never run again. If the present fiber is one of them, does not
  // return.
  void Kill(Process* process);

  // Runs until `done` returns true, which is asked after every event, or nothing is left to happen.
  void Run(const std::function<bool()>& done);

  // --- on a fiber ---

  void Sleep(Time time);
  // Waits for Wake of the same key; false if `deadline` came first (negative: none).
  bool Block(const void* key, Time deadline = -1);
  // Wakes the fiber that has waited longest, or all. Also callable on the scheduler's stack.
  void Wake(const void* key, bool all);
  // A point at which the process may die and the fiber may be interrupted.
  void Step();
  // Waits for the fiber's end.
  void Join(Fiber* fiber);

  // Everything that happens is added to a digest of the run.
  void Note(uint64_t value) { digest_ = (digest_ ^ value) * 0x9E3779B97F4A7C15u + (digest_ >> 29); }
  void Note(BytesView bytes);
  uint64_t digest() const { return digest_; }
  uint64_t events() const { return events_; }

 private:
  friend class Fiber;
  struct Event {
    Time time;
    uint64_t order;   // among those of one time
    uint64_t number;  // the last word
    Fiber* fiber;     // to resume, or
    std::function<void()> callback;
    uint64_t wait;  // of the fiber: a later wait is not ended
    bool operator>(const Event& other) const {
      if (time != other.time) return time > other.time;
      if (order != other.order) return order > other.order;
      return number > other.number;
    }
  };
  struct Waiter {
    Fiber* fiber;
    uint64_t wait;
  };

  void Push(Time time, Fiber* fiber, std::function<void()> callback);
  void Resume(Fiber* fiber);
  // From the present fiber to the scheduler's stack.
  void SwitchOut();

  Rng rng_;
  Time now_ = 0;
  double interruptions_ = 0;
  uint64_t numbers_ = 0, fibers_ = 0, events_ = 0, digest_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::map<const void*, std::deque<Waiter>> waiters_;
  std::function<void(Process*)> on_death_;
  Process* died_ = nullptr;
  Fiber* running_ = nullptr;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_SCHEDULER_H_
