// The stages of a machine, over lists from the party before. If either party has several machines,
// a list comes in parts, from several machines at a time (src/server/slices.h); otherwise it comes
// whole, and is taken as it is.
//
//   machine 0 of party j --- Offline, part --->|
//   machine 1 of party j --- Offline, part --->| machine k of party j+1: the stage runs over its
//   ..                                         | slice, in order, while the parts come
//   machine i        <--- the stage's result --|
//
// Online it is the same: each call has a batch over its part, and gets the answers to it. A list
// that comes whole has no tries: the party takes the latest one.
#ifndef SHOAL_SRC_SHOALD_PART_STAGES_H_
#define SHOAL_SRC_SHOALD_PART_STAGES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/server/party.h"
#include "src/server/slices.h"
#include "src/storage/spool.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {

// Thread-safe.
class PartStages {
 public:
  // A list of onions, or a part or slice of one, on its way in. Thread-compatible.
  class OnionSink {
   public:
    virtual ~OnionSink() = default;
    virtual absl::Status Take(BytesView piece) = 0;
    // To be called once, when all bytes were taken. Returns when the stage is done here and at all
    // later parties.
    virtual absl::Status Wait() = 0;
  };
  struct Options {
    uint32_t rank = 0, count = 1;  // of this machine in its party
    uint32_t senders = 0;          // machines of the party before; must be set (checked)
    size_t onion_bytes = 0;        // of an onion that comes in
    SpoolPlace* spools = nullptr;
    // The most records of a list that comes in, by what this party knows.
    std::function<uint64_t()> most_records;
    // An error once the round is not open here (any more).
    std::function<absl::Status(const Digest& round_id)> open;
    // Whether this try of a stage, which has all of its slice, is at work, or still waits for this
    // party's other machines, so that a later one may take its place. Null: it is at work.
    std::function<bool(const Digest& round_id, uint64_t attempt)> at_work = nullptr;
    // Begins the offline stage over this machine's slice, of so many bytes; called once for a try,
    // on an I/O thread. An error refuses the call that came first.
    std::function<absl::StatusOr<std::unique_ptr<OnionSink>>(
        const wire::SignedHeader& header, uint64_t bytes, const server::StageTry& stage)>
        offline;
    // Runs the online stage over this machine's slice, for queries at its positions. Returns an
    // answer of the same size for each.
    std::function<absl::StatusOr<std::unique_ptr<ByteSource>>(
        const Digest& round_id, server::QueriesIn queries, const server::StageTry& stage)>
        online;
  };

  explicit PartStages(Options options) : options_(std::move(options)) {
    SHOAL_CHECK(options_.senders > 0);
  }
  // The most offline stages at once. A try that was replaced has one until it notices.
  static constexpr int kMaxStages = 56;

  // Waits for stages that run; what they do in `offline` and `online` must come to an end.
  ~PartStages();
  // For the end of the process: ends all tries, which wait for parts, and refuses new ones.
  void CancelAll();

  uint32_t senders() const { return options_.senders; }
  // Of one part.
  server::Party::InputLimits MaxInput() const;

  // A list or a part that begins, with so many bytes. If a part is destroyed before all bytes were
  // taken, its try has failed. Errors of both calls: INVALID_ARGUMENT for a part where lists come
  // whole, and the other way round; those of `offline` and `online`. Errors of parts, which end
  // their try for all machines if it has begun: INVALID_ARGUMENT for a part that does not fit the
  // others (server::Tiling), is for another machine, or is of another length than its records;
  // FAILED_PRECONDITION for a try before the present one; those of `open`; ABORTED once a later try
  // has begun; UNAVAILABLE when another part broke off, or while the stage of an earlier try, which
  // has read its list, is at work; RESOURCE_EXHAUSTED while kMaxStages run.
  absl::StatusOr<std::unique_ptr<OnionSink>> Offline(const wire::OfflineRequest& request,
                                                     uint64_t bytes);
  // Waits for the other parts and for the stage. The answers are to be read at once: those for the
  // next machine are given out after them.
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const wire::OnlineRequest& request,
                                                     Bytes queries);

 private:
  class OfflineTry;
  class OnlineTry;
  class Incoming;

  bool in_parts() const { return options_.senders > 1 || options_.count > 1; }
  // Of a request that has a part, or has none.
  absl::Status CheckPart(bool has_part, const wire::ListPart& part) const;
  // The try to which the part belongs; a later one takes the place of an earlier one. Drops those
  // of rounds that are over. What `gone` gets is to be failed, without the lock.
  template <typename Try>
  absl::StatusOr<std::shared_ptr<Try>> Find(std::map<Digest, std::shared_ptr<Try>>& tries,
                                            const Digest& round_id, uint64_t attempt,
                                            std::vector<std::shared_ptr<Try>>& gone)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts an offline stage until what it returns is destroyed.
  absl::StatusOr<std::shared_ptr<void>> CountStage();
  server::Tiling NewTiling() const;
  bool IsAtWork(const Digest& round_id, uint64_t attempt) const {
    return options_.at_work == nullptr || options_.at_work(round_id, attempt);
  }

  const Options options_;
  std::atomic<int> stages_ = 0;
  Mutex mutex_;  // held for moments, on I/O threads too
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Digest, std::shared_ptr<OfflineTry>> offline_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<OnlineTry>> online_ ABSL_GUARDED_BY(mutex_);
  TaskGroup tasks_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PART_STAGES_H_
