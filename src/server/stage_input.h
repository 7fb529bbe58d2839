// What comes in for the stages of a round: of which try, the offline list while it arrives, and
// queries.
#ifndef SHOAL_SRC_SERVER_STAGE_INPUT_H_
#define SHOAL_SRC_SERVER_STAGE_INPUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/server/offline.h"
#include "src/server/party_content.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

class OpenRound;
struct RoundKeys;

// A try of a stage, on which the machines of a party agree before they begin.
struct StageTry {
  // Never falls; rises with every try where this party or the one before it has several machines.
  uint64_t attempt = 0;
  // Of the whole list or batch, where it came in parts; at party 1, the onions in this machine's
  // submissions.
  std::optional<uint64_t> records = std::nullopt;
};

// A batch of queries that comes in: its encoding, which the caller may keep, or the batch itself
// where it came in parts.
using QueriesIn = std::variant<Bytes, BytesView, wire::QueryBatch>;

// What has come of a list of the offline stage.
struct ListWork {
  ListWork(std::shared_ptr<const RoundKeys> k, uint64_t b, std::vector<PartyContent::Part> parts,
           const machines::Machines& machines);

  const std::shared_ptr<const RoundKeys> keys;  // which `onions` refers to
  const uint64_t bytes;
  uint64_t taken = 0;
  // None if a list was committed to before: whether this one is the same, its digest tells.
  std::optional<OnionIntake> onions;
  const ContentMac mac;
  PartyContent content;
  double seconds = 0, cpu_seconds = 0;  // spent in Take

  absl::Status Take(BytesView piece, ThreadPool& pool);
  // INVALID_ARGUMENT unless everything has come.
  absl::Status Check() const;
};

// The list of the offline stage while it arrives, which is opened piece by piece.
// Thread-compatible. The round may end at any time.
class ListIntake {
 public:
  ListIntake(std::shared_ptr<OpenRound> open, const StageTry& stage,
             std::unique_ptr<ListWork> work);
  ListIntake(const ListIntake&) = delete;
  ListIntake& operator=(const ListIntake&) = delete;

  // FAILED_PRECONDITION once the round has ended; INVALID_ARGUMENT beyond the announced end.
  absl::Status Take(BytesView piece) ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t attempt() const { return stage_.attempt; }

  // --- for the round

  const std::shared_ptr<OpenRound>& open() const { return open_; }
  const StageTry& stage() const { return stage_; }
  // Takes out the keys and what they have opened; null if they were taken before. The round's end,
  // and a list that comes anew, take and drop them, however slowly the neighbour sends the rest.
  std::unique_ptr<ListWork> TakeWork() ABSL_LOCKS_EXCLUDED(mutex_);
  // INVALID_ARGUMENT if not everything has come; OK if the work was taken.
  absl::Status CheckWhole() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const std::shared_ptr<OpenRound> open_;
  const StageTry stage_;
  Mutex mutex_;  // held while a piece is opened
  std::unique_ptr<ListWork> work_ ABSL_GUARDED_BY(mutex_);
};

// The tail's answers for half B of a round of two tiers on their way in, where there is room for
// them. Thread-safe. The round may end, or the answers come anew, at any time.
class HalfAnswersIntake {
 public:
  explicit HalfAnswersIntake(Spool room) : room_(std::move(room)) {}

  // FAILED_PRECONDITION once it was dropped; INVALID_ARGUMENT beyond the announced end; errors of
  // the spool.
  absl::Status Take(BytesView piece) ABSL_LOCKS_EXCLUDED(mutex_);
  // All of them. INVALID_ARGUMENT if some are missing; else errors as Take.
  absl::StatusOr<std::unique_ptr<ByteSource>> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  std::optional<Spool> room_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_STAGE_INPUT_H_
