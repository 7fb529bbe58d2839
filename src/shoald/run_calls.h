// What a machine sends of a list or of queries to the machines of the next party
// (src/server/slices.h): a call to each that gets a part, at the same time. Between two parties of
// one machine each the part is the whole, and is not named as a part.
#ifndef SHOAL_SRC_SHOALD_RUN_CALLS_H_
#define SHOAL_SRC_SHOALD_RUN_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
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
  using OwnRun = server::OwnRun;
  struct Options {
    uint32_t party = 2;     // the next one
    uint32_t machines = 1;  // that it has
    uint32_t senders = 0;   // machines of this party; must be set (checked)
    // As PeerLink::Options::answer_bytes: an error once the round is not open here (any more).
    std::function<absl::StatusOr<uint64_t>(const Digest& round_id)> answer_bytes;
    // Makes a call to one of these machines, from any thread, for a round. RunCalls sets all but
    // the limit.
    std::function<absl::StatusOr<PeerAnswer>(PeerCall call)> call;
    // Where answers of several machines wait for their turn.
    SpoolPlace* spools = nullptr;
  };

  explicit RunCalls(Options options) : options_(std::move(options)) {
    SHOAL_CHECK(options_.senders > 0);
  }

  // As those of server::Link.
  absl::Status Offline(const wire::SignedHeader& header, const OwnRun& mine,
                       std::unique_ptr<ByteSource> onions);
  absl::StatusOr<std::unique_ptr<server::PartedSource>> Online(const Digest& round_id,
                                                               const OwnRun& mine,
                                                               server::QueriesOut queries);

 private:
  class RunAnswers;
  bool in_parts() const { return options_.senders > 1 || options_.machines > 1; }
  // The number of this machine's call: machines of a party agree on one, a machine that is alone
  // counts its calls.
  uint64_t AttemptOf(const OwnRun& mine) {
    return options_.senders > 1 ? mine.attempt : ++attempts_;
  }
  std::function<bool()> Over(const Digest& round_id) const {
    return [this, round_id] { return !options_.answer_bytes(round_id).ok(); };
  }
  // An online call, and the answers to it, `expected` bytes.
  absl::StatusOr<std::unique_ptr<ByteSource>> Fetch(const Digest& round_id,
                                                    wire::OnlineRequest request, Bytes queries,
                                                    uint64_t expected,
                                                    std::function<bool()> cancelled) const;

  const Options options_;
  std::atomic<uint64_t> attempts_ = 0;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_RUN_CALLS_H_
