// The machines of a party as processes that Open MPI's mpirun has started (scripts/party-machines):
// the one folder that includes mpi.h.
//
//   process of machine 0                         process of machine 1
//     lane 7 (Transport) \                        / lane 7
//     lane 8 (Transport) -- one thread == MPI == one thread -- lane 8
//
// One thread of each process makes all calls to MPI. None of them waits for another machine but the
// first and the last one (MPI_Init and MPI_Finalize): the thread tests, and sleeps when nothing
// moves. Chunks are sent in synchronous mode, so that what one machine can have on its way to
// another is bounded, whatever the other one does.
#ifndef SHOAL_SRC_MACHINES_MPI_MPI_JOB_H_
#define SHOAL_SRC_MACHINES_MPI_MPI_JOB_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/machines/transport.h"

namespace shoal::machines {

// Thread-safe, but for Leave.
class MpiJob {
 public:
  // Joins the job in which mpirun has started this process. When the one that started it dies, it
  // gets SIGTERM, and ends kOrphanS seconds later if it is still there. To be called once in a
  // process. UNAVAILABLE if not all machines are there within `limit_s`, or if MPI fails; the
  // process can only end then, with Die.
  static absl::StatusOr<std::unique_ptr<MpiJob>> Join(RandomSource& random, uint64_t limit_s = 60);
  static constexpr uint64_t kOrphanS = 10;
  // Without Leave, mpirun ends the other machines when this process ends, which it must with Die.
  ~MpiJob();
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  // Ends this process at once, after an error and when its objects with secrets are gone: a thread
  // may be inside MPI, which must not be taken down beneath it as exit and main's end would.
  // Nothing is flushed but standard error, which has no buffer.
  [[noreturn]] static void Die(int code);

  uint32_t rank() const;
  uint32_t count() const;
  // A hash of random bytes of every machine: other bytes in every job, the same at all its
  // machines.
  const Digest& id() const;

  // Links to all machines that no other lane's chunks delay. All machines open a lane under the
  // same number, in any order, and a number once in a job: also a machine that only wants to abort
  // it, as the others know of no end of a lane that was never opened, and Leave waits for it. What
  // is sent to a machine that has not opened it yet waits at the sender. The lane must not outlive
  // the job. Abort ends this lane alone, at all machines. INVALID_ARGUMENT for a number above
  // kMaxLane; ALREADY_EXISTS; UNAVAILABLE.
  absl::StatusOr<std::unique_ptr<Transport>> OpenLane(uint32_t number);
  static constexpr uint32_t kMaxLane = (uint32_t{1} << 30) - 2;

  // Leaves the job in good order once all lanes are closed here and at all machines, and returns
  // when all have left. UNAVAILABLE if that takes longer than `limit_s`, or if MPI has failed: the
  // process has to end with Die then.
  absl::Status Leave(uint64_t limit_s = 30);

 private:
  class Engine;
  class Lane;

  explicit MpiJob(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const std::shared_ptr<Engine> engine_;
};

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_MPI_MPI_JOB_H_
