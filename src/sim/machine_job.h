// The processes of a party of several machines that were started together, and the links between
// them: what Open MPI is to shoald-machines (src/machines/mpi), on simulated time.
#ifndef SHOAL_SRC_SIM_MACHINE_JOB_H_
#define SHOAL_SRC_SIM_MACHINE_JOB_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "src/base/bytes.h"
#include "src/machines/transport.h"
#include "src/shoald/machine_control.h"
#include "src/sim/scheduler.h"

namespace shoal::sim {

// Chunks of a lane arrive in order, some time after they were sent. Nobody notices that a machine
// has died, or that a link is dead, but by what does not come.
class MachineJob {
 public:
  MachineJob(Scheduler* scheduler, uint64_t seed, uint32_t machines);

  // What the process of a machine gets. Must not outlive the job.
  std::unique_ptr<shoald::MachineJob> Member(uint32_t rank);

  // What passes between two machines, either way, waits until they are unblocked.
  void Block(uint32_t a, uint32_t b) { blocked_.insert(std::minmax(a, b)); }
  void Unblock(uint32_t a, uint32_t b);
  // One bit of the next chunk from one to the other is changed.
  void AlterNext(uint32_t from, uint32_t to) { altered_ = {from, to}; }

  uint64_t chunks() const { return chunks_; }  // that have passed

 private:
  class Process;
  class Link;
  struct Chunk {
    Time arrives = 0;
    Bytes bytes;
  };
  struct Pair {
    std::deque<Chunk> chunks;
    std::optional<Chunk> sign;
  };
  // The lane of a round, or of control.
  struct Lane {
    std::vector<Pair> pairs;                          // from * machines + to
    std::vector<uint64_t> changes;                    // of each machine: chunks, and room
    std::map<uint32_t, std::set<uint32_t>> given_up;  // who gave up, and who has heard of it
  };

  Pair& PairOf(Lane& lane, uint32_t from, uint32_t to) { return lane.pairs[from * machines_ + to]; }
  bool IsBlocked(uint32_t a, uint32_t b) const { return blocked_.contains(std::minmax(a, b)); }
  Time Arrival();
  void Changed(Lane& lane, uint32_t rank);
  // Has the others hear that a machine has given the lane up, if the links allow it.
  void Spread(Lane& lane, uint32_t from);

  Scheduler* const scheduler_;
  Rng rng_;
  const uint32_t machines_;
  Digest id_ = {};
  std::map<uint32_t, Lane> lanes_;  // by number
  std::set<std::pair<uint32_t, uint32_t>> blocked_;
  std::optional<std::pair<uint32_t, uint32_t>> altered_;
  uint64_t chunks_ = 0;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_MACHINE_JOB_H_
