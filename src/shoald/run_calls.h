// What a machine sends of a list or of queries to the machines of a party of several
// (src/server/slices.h): a call to each that gets a part, at the same time.
#ifndef SHOAL_SRC_SHOALD_RUN_CALLS_H_
#define SHOAL_SRC_SHOALD_RUN_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/parallel/mutex.h"
#include "src/server/part_streams.h"
#include "src/server/slices.h"
#include "src/shoald/peer_calls.h"
#include "src/storage/spool.h"
#include "src/wire/frame.h"
#include "src/wire/peer.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {

// Thread-safe.
class RunCalls {
 public:
  using Mine = server::Mine;
  struct Options {
    uint32_t party = 2;     // the next one
    uint32_t machines = 1;  // that it has
    // As PeerLink::Options::answer_bytes: an error once the round is not open here (any more).
    std::function<absl::StatusOr<uint64_t>(const Digest& round_id)> answer_bytes;
    // Makes a call to one of these machines, from any thread, for a round. RunCalls sets all but
    // the limit.
    std::function<absl::StatusOr<PeerAnswer>(PeerCall call)> call;
    // Where answers of several machines wait for their turn.
    SpoolPlace* spools = nullptr;
  };

  explicit RunCalls(Options options) : options_(std::move(options)) {}

  // As those of server::Link.
  absl::Status OfflineRun(const wire::SignedHeader& header, const Mine& mine,
                          std::unique_ptr<ByteSource> onions);
  absl::StatusOr<std::unique_ptr<server::PartedSource>> OnlineRun(const Digest& round_id,
                                                                  const Mine& mine,
                                                                  const wire::QueryBatch& queries);
  // The same for the whole of a list, from a party of one machine. Online: FAILED_PRECONDITION
  // unless the list was sent.
  absl::Status Offline(const wire::SignedHeader& header, std::unique_ptr<ByteSource> onions);
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id, BytesView queries);

 private:
  class RunAnswers;
  std::function<bool()> Over(const Digest& round_id) const {
    return [this, round_id] { return !options_.answer_bytes(round_id).ok(); };
  }
  absl::StatusOr<std::unique_ptr<RunAnswers>> Ask(const Digest& round_id, const Mine& mine,
                                                  const wire::QueryBatch& queries,
                                                  server::PartJoin::Reading reading);
  // A call of OnlineRun: gives the answers to `part`.
  absl::Status FetchPart(const Digest& round_id, wire::OnlineRequest request, Bytes queries,
                         uint64_t expected, const std::function<bool()>& cancelled,
                         const std::function<void()>& answered, server::PartJoin::Part& part) const;

  const Options options_;
  std::atomic<uint64_t> attempts_ = 0;
  Mutex mutex_;
  // The lists that a party of one machine has sent, by round: how many onions they had.
  std::map<Digest, uint64_t> lists_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_RUN_CALLS_H_
