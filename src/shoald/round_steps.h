// The steps of a round at party 1, in the order in which the driver has them done: on its one
// machine, or on all machines of the party.
//
//                    the driver, at the head                      another machine, by order
//   Open             all take onions, then clients are told         OwnSteps::Open
//   Seal             clients are told, then all seal their slices   OwnSteps::Seal
//   Offline          all run the stage over their slices            OwnSteps::Offline
//   OpenForQueries   all take queries, then clients are told        OwnSteps::OpenForQueries
//   CloseQueries     clients are told, then all close their slices  OwnSteps::CloseQueries
//   Online           all have their answers, then clients are told  OwnSteps::Online
//   End              this machine's; the others' with its order     OwnSteps::End
#ifndef SHOAL_SRC_SHOALD_ROUND_STEPS_H_
#define SHOAL_SRC_SHOALD_ROUND_STEPS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/parallel/mutex.h"
#include "src/round/header.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/wire/client.pb.h"
#include "src/wire/control.pb.h"

namespace shoal::shoald {

// Thread-safe: calls for different rounds run at the same time. Calls block until the step is done,
// at all machines, but for End. Errors: those of Frontend and ChainNode.
class RoundSteps {
 public:
  using MakeReports = std::function<server::StageReports()>;

  virtual ~RoundSteps() = default;
  virtual absl::Status Open(const round::Round& round) = 0;
  // The frontend has decided SEALED. Returns how many onions the round has.
  virtual absl::StatusOr<uint64_t> Seal(const Digest& round_id) = 0;
  // UNAVAILABLE: a link broke, and the same call may come again, with the same input.
  virtual absl::Status Offline(const Digest& round_id) = 0;
  virtual absl::Status OpenForQueries(const Digest& round_id, server::StageReports reports) = 0;
  // The frontend has decided ANSWERING. Returns how many queries the round has.
  virtual absl::StatusOr<uint64_t> CloseQueries(const Digest& round_id) = 0;
  // UNAVAILABLE as for Offline. `reports` is called once the answers are here.
  virtual absl::Status Online(const Digest& round_id, const MakeReports& reports) = 0;
  // An empty reason means in good order.
  virtual void End(const Digest& round_id, const std::string& reason) = 0;
};

// The steps of one machine, for its own slice: all of it at a party of one machine. Where there are
// several, a stage that fails here before this machine meets the others in it ends the round at
// this machine's party, so that they do not wait for it.
class OwnSteps final : public RoundSteps {
 public:
  // Both must outlive the object.
  OwnSteps(server::Frontend* frontend, server::ChainNode* node)
      : frontend_(frontend), node_(node) {}

  absl::Status Open(const round::Round& round) override;
  absl::StatusOr<uint64_t> Seal(const Digest& round_id) override;
  absl::Status Offline(const Digest& round_id) override { return Offline(round_id, 0); }
  absl::Status OpenForQueries(const Digest& round_id, server::StageReports reports) override;
  absl::StatusOr<uint64_t> CloseQueries(const Digest& round_id) override;
  absl::Status Online(const Digest& round_id, const MakeReports& reports) override {
    return Online(round_id, 0, reports);
  }
  void End(const Digest& round_id, const std::string& reason) override;

  // At a machine that is not the head: does what was ordered, in this try of a stage. Seals and
  // closes once its clients are shown so (WaitUntilShown). INVALID_ARGUMENT for no step.
  absl::Status Do(const Digest& round_id, wire::RoundStep step, uint64_t attempt);
  // A certain try of a stage, on which all machines of the party agree. A machine that has its
  // answers does nothing in later tries.
  absl::Status Offline(const Digest& round_id, uint64_t attempt);
  absl::Status Online(const Digest& round_id, uint64_t attempt, const MakeReports& reports);
  // Whether the queries of a round are held here.
  bool HoldsQueries(const Digest& round_id) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::StatusOr<bool> HasTwoTiers(const Digest& round_id) const;
  // The stages, where a machine of several ends its party's round after an error that the others
  // have not heard of: `alone` says so.
  absl::Status TryOffline(const Digest& round_id, uint64_t attempt, bool& alone);
  absl::Status TryOnline(const Digest& round_id, uint64_t attempt, const MakeReports& reports,
                         bool& alone);
  // Returns `done`, after the round's end if it is an error that only this machine has.
  absl::Status Together(const Digest& round_id, absl::Status done, bool alone);

  server::Frontend* const frontend_;
  server::ChainNode* const node_;

  mutable Mutex mutex_;
  // What went to the next party, in case it has to be sent again: a batch, or those of both halves.
  // Until the answers are here.
  using Queries = std::variant<Bytes, server::HalvesQueries>;
  std::map<Digest, std::shared_ptr<const Queries>> queries_ ABSL_GUARDED_BY(mutex_);
};

// How the head's orders reach the other machines. Thread-safe. Calls end with an error when the job
// of the machines does.
class Orders {
 public:
  virtual ~Orders() = default;
  // Has all other machines open the round, or do the step (OwnSteps::Do), and `own` done here
  // meanwhile, on this thread. `attempt` rises with every try of a stage, and is 0 for other steps.
  // Returns when all have done it, or failed: the first error by rank. By then the frontend has
  // taken what each machine counts after its step (TakeCounts).
  virtual absl::Status OpenAtAll(const round::Round& round,
                                 const std::function<absl::Status()>& own) = 0;
  virtual absl::Status DoAtAll(const Digest& round_id, wire::RoundStep step, uint64_t attempt,
                               const std::function<absl::Status()>& own) = 0;
  // Returns when clients of this machine are shown this state, which the frontend has decided, or a
  // later one.
  virtual absl::Status WaitUntilShown(const Digest& round_id, wire::RoundState state) = 0;
};

// The steps of all machines of a party of several, at the head.
class AllSteps final : public RoundSteps {
 public:
  // All must outlive the object.
  AllSteps(server::Frontend* frontend, OwnSteps* own, Orders* orders)
      : frontend_(frontend), own_(own), orders_(orders) {}

  absl::Status Open(const round::Round& round) override;
  absl::StatusOr<uint64_t> Seal(const Digest& round_id) override;
  absl::Status Offline(const Digest& round_id) override;
  absl::Status OpenForQueries(const Digest& round_id, server::StageReports reports) override;
  absl::StatusOr<uint64_t> CloseQueries(const Digest& round_id) override;
  absl::Status Online(const Digest& round_id, const MakeReports& reports) override;
  void End(const Digest& round_id, const std::string& reason) override;

 private:
  server::Frontend* const frontend_;
  OwnSteps* const own_;
  Orders* const orders_;
  std::atomic<uint64_t> attempts_ = 0;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_ROUND_STEPS_H_
