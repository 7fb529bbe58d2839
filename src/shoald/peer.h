// Calls from the party before this one (those to the next party: peer_link.h).
#ifndef SHOAL_SRC_SHOALD_PEER_H_
#define SHOAL_SRC_SHOALD_PEER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "src/base/stopwatch.h"
#include "src/net/server.h"
#include "src/parallel/task_group.h"
#include "src/server/chain.h"
#include "src/server/slices.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/part_stages.h"
#include "src/storage/spool.h"
#include "src/wire/peer.pb.h"

namespace shoal::shoald {

// Serves the party before this one.
class PeerService {
 public:
  // How long a connection of a caller may rest. That of a list waits for its round's queries. Only
  // the party before this one connects here, and takes no place of others.
  static constexpr std::chrono::minutes kIdle{30};

  // All must outlive the service. `node` is null at a machine that is not its party's head, which
  // takes nothing but lists. Without `states` nothing is said of parties.
  explicit PeerService(PartStages* parts, server::ChainNode* node, ChainStates* states = nullptr)
      : parts_(parts), node_(node), states_(states) {}

  // Since a list of live rounds was taken, or since the start.
  double SecondsSinceHeard() const { return since_start_.Seconds() - heard_at_s_; }

  absl::StatusOr<wire::FrameLimits> Limits(wire::FrameType type) const;
  void Handle(wire::Frame request, net::Reply reply);
  // Opens the onions of an offline stage while they come in, and puts answers for half B of a round
  // of two tiers where there is room. Other requests are collected first.
  absl::StatusOr<std::unique_ptr<net::BulkSink>> Sink(const wire::Frame& request,
                                                      uint64_t bulk_bytes);

 private:
  class OfflineSink;
  class PiecesSink;
  class HalfAnswersSink;
  struct Response {
    wire::Frame frame;
    std::unique_ptr<ByteSource> bulk = nullptr;  // sent in place of the frame's, if there is one
  };
  // Runs `answer` on a thread of its own and replies with what it returns. RESOURCE_EXHAUSTED if
  // `most` calls run already.
  void Run(int most, std::function<absl::StatusOr<Response>()> answer, net::Reply reply);

  // The most calls at once. The party before needs one for each of its stages, and these leave some
  // to proposals, lists of live rounds and reports.
  static constexpr int kMaxCalls = 64, kMaxStageCalls = 56;
  // A machine has a call for each machine of the party before.
  int Most(int calls) const { return calls * static_cast<int>(parts_->senders()); }
  absl::StatusOr<Response> Answer(wire::Frame request);
  // Both calls of a refresh.
  absl::StatusOr<Response> AnswerRefresh(const wire::Frame& request);
  absl::StatusOr<std::unique_ptr<net::BulkSink>> BeginPieces(const wire::Frame& request,
                                                             uint64_t bulk_bytes);
  absl::StatusOr<std::unique_ptr<net::BulkSink>> BeginHalfAnswers(const wire::Frame& request,
                                                                  uint64_t bulk_bytes);

  PartStages* const parts_;
  server::ChainNode* const node_;
  ChainStates* const states_;
  const Stopwatch since_start_;
  std::atomic<double> heard_at_s_ = 0;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> live_refused_ = false;  // the last list, and that was logged
  TaskGroup tasks_;
};

// How a machine takes lists from a party of `senders` machines. Node and spools must outlive the
// stages.
PartStages::Options PartsOf(server::ChainNode& node, uint32_t senders, SpoolPlace* spools);

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PEER_H_
