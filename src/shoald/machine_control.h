// A process that is one machine of a party of several: its links to the others, and what it does of
// the head's orders (docs/machines.md, "The process of a machine").
#ifndef SHOAL_SRC_SHOALD_MACHINE_CONTROL_H_
#define SHOAL_SRC_SHOALD_MACHINE_CONTROL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/machines/machines.h"
#include "src/machines/transport.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/round/header.h"
#include "src/server/frontend.h"
#include "src/server/party.h"
#include "src/shoald/control.h"
#include "src/shoald/round_steps.h"

namespace shoal::shoald {

// The processes of a party that were started together. Thread-safe, but for Leave.
class MachineJob {
 public:
  virtual ~MachineJob() = default;
  // Machine 0 is the head.
  virtual uint32_t rank() const = 0;
  virtual uint32_t count() const = 0;
  // Drawn at random when the job began, the same at all machines.
  virtual const Digest& id() const = 0;
  // All machines open a lane under the same number, and a number once. Does not wait.
  virtual absl::StatusOr<std::unique_ptr<machines::Transport>> OpenLane(uint32_t number) = 0;
  // Once all lanes are closed here: returns when all machines have left.
  virtual absl::Status Leave() = 0;
};

// The links of a job's machines: one for control, and one for each round. Thread-safe.
class MachineLinks {
 public:
  // `secret` is the party's (roster::MachineKeys), `progress_limit_s` that of all machines
  // (machines::Machines::Options). The pointers must outlive the links; `random` must be
  // thread-safe.
  MachineLinks(MachineJob* job, Seed secret, const Clock* clock, RandomSource* random,
               uint64_t progress_limit_s)
      : job_(job),
        secret_(std::move(secret)),
        clock_(clock),
        random_(random),
        progress_limit_s_(progress_limit_s) {}

  // Of control, for the whole job. To be called once, and early: from then on the others take this
  // machine for one that computes.
  absl::StatusOr<std::shared_ptr<machines::Machines>> JoinControl() { return Join(0, Digest()); }
  // Of a round; `number` is its number in this job, from 1 (server::PartyMachines::join).
  absl::StatusOr<std::shared_ptr<machines::Machines>> Join(uint32_t number, const Digest& round_id);

 private:
  MachineJob* const job_;
  const Seed secret_;
  const Clock* const clock_;
  RandomSource* const random_;
  const uint64_t progress_limit_s_;
};

// Compares the machines' secrets, in the first call of control's machines. To be called as soon as
// they are joined, when all processes of the job have just started. UNAUTHENTICATED, naming the
// file, if another machine has another secret: a start from the same files could only fail again.
// Any other error is UNAVAILABLE. Returns some seconds after the others, if it was these that found
// something: a job has the exit code of the process that ends first.
absl::Status CallRoll(machines::Machines& control, const std::string& keys_directory);

// Control at one machine: at the head it passes orders, at the others it does them. Thread-safe.
class MachineControl final : public Orders {
 public:
  struct Options {
    server::Party* party;
    const Clock* clock;
    // At party 1 alone.
    server::Frontend* frontend = nullptr;
    OwnSteps* own = nullptr;
    // Called once, when no order can come any more: the process is to end.
    std::function<void()> ended = nullptr;
    // At the head: a round that it had signed could not be opened at another machine, and has
    // ended. May be empty.
    std::function<void(const absl::Status& why)> not_opened = nullptr;
    std::chrono::milliseconds period{250};
    // Machines that come to no tick for so long do not hear each other. A link that is dead ends
    // the job much later (machines::Machines::Options).
    std::chrono::milliseconds heard_within{4000};
  };
  // `machines` are those of JoinControl. All pointers must outlive the object. Ticks begin.
  MachineControl(machines::Machines* machines, Options options);
  // Gives the job up unless it has ended. Waits for orders that are being done: what they do must
  // come to an end.
  ~MachineControl() override;

  // Waits until all machines have made this object, and so can take what rounds bring. The error
  // that has ended control before.
  absl::Status AwaitAll();

  // At the head, for its party: server::PartyMachines::opened and ended.
  void Opened(const server::RoundOpening& opening);
  void Ended(const Digest& round_id) { control_.End(round_id); }
  // The same: server::PartyMachines::ready.
  absl::Status ReadyFor(uint64_t epoch) const ABSL_LOCKS_EXCLUDED(mutex_);
  // At the head, before it takes an epoch of the table: waits until all others can open rounds of
  // it. CANCELLED as soon as `cancelled` says so, which is asked often; the error that has ended
  // control.
  absl::Status AwaitEpoch(uint64_t epoch, const std::function<bool()>& cancelled)
      ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status OpenAtAll(const round::Round& round,
                         const std::function<absl::Status()>& own) override;
  absl::Status DoAtAll(const Digest& round_id, wire::RoundStep step, uint64_t attempt,
                       const std::function<absl::Status()>& own) override;
  absl::Status WaitUntilShown(const Digest& round_id, wire::RoundState state) override;

  // At the head, when all rounds have ended: has the other machines end. Returns when they know, or
  // with the error that has ended control before.
  absl::Status Stop();
  // At the others: waits until the head says that this process is to end. DEADLINE_EXCEEDED if it
  // does not within `limit`; the error that has ended control.
  absl::Status AwaitEnd(std::chrono::seconds limit);

 private:
  Control::Options ControlOptions();
  // OK if all others can open rounds of this epoch; else FAILED_PRECONDITION, naming one.
  absl::Status CheckEpochLocked(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How long after a machine has heard of something its clients are shown it.
  uint64_t ShownAfterMs() const;
  absl::Status Obey(const Digest& round_id, const wire::RoundOrder& order);
  absl::Status Open(const wire::RoundOrder& order);

  const Options options_;
  const uint32_t count_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> why_ended_ ABSL_GUARDED_BY(mutex_);
  // At the head: of which epochs the others can open rounds, by rank.
  std::map<uint32_t, std::vector<uint64_t>> epochs_ ABSL_GUARDED_BY(mutex_);
  TaskGroup noise_;  // that is made ahead of time
  Control control_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_MACHINE_CONTROL_H_
