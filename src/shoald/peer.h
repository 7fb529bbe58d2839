// The chain over TLS: calls to the next party, and calls from the previous one.
#ifndef SHOAL_SRC_SHOALD_PEER_H_
#define SHOAL_SRC_SHOALD_PEER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/base/stopwatch.h"
#include "src/net/connection.h"
#include "src/net/server.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/roster/party_keys.h"
#include "src/server/chain.h"
#include "src/shoald/chain_states.h"
#include "src/wire/peer.pb.h"

namespace shoal::shoald {

// Calls to the next party. Every call opens a connection, as there are few calls in a round; only
// lists of live rounds, one a second, keep theirs. Thread-safe.
class RemoteLink final : public server::Link {
 public:
  // Returns the size of a row with its signature in a round's epoch of the table. It bounds what
  // the next party may send back. An error means that the round is not open here (any more): calls
  // for it then end with CANCELLED, as they hold what the round sends and receives.
  using AnswerBytes = std::function<absl::StatusOr<uint64_t>(const Digest& round_id)>;

  // `later`: the number of parties after the next one, which is given more time for each, so that
  // the error of the one before a party that does not answer comes first, and names it.
  RemoteLink(const roster::Party& next, const roster::TlsIdentity* identity,
             AnswerBytes answer_bytes, std::chrono::seconds stage_limit, uint32_t later = 0);

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override;
  absl::Status Offline(const wire::SignedHeader& header,
                       std::unique_ptr<ByteSource> onions) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id,
                                                     Bytes queries) override;
  absl::StatusOr<server::StageReports> Reports(const Digest& round_id) override;
  // Gives up after two seconds for each party, as the next list follows.
  absl::StatusOr<server::LackedRounds> Live(const wire::SignedLiveRounds& live) override
      ABSL_LOCKS_EXCLUDED(live_mutex_);

  // What the next party and those after it say of themselves. Gives up as Live does.
  absl::StatusOr<wire::PartyStatesResponse> States(const wire::PartyStatesRequest& request) const;

  // For the end of the process: calls that wait for the rest of the chain, and later ones, return
  // CANCELLED. Lists of live rounds, which are short, are still sent.
  void CancelStages() { cancelled_ = true; }

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  // Of a call that takes `limit` at the next party alone.
  Deadline After(std::chrono::milliseconds limit) const;
  absl::StatusOr<std::unique_ptr<net::Connection>> Connect(Deadline deadline,
                                                           std::function<bool()> cancelled) const;
  // An error of the connection, named by the party; what the party answered stays as it is.
  absl::Status Named(const absl::Status& status) const;
  // Whether calls for a round are to end.
  std::function<bool()> Over(const Digest& round_id) const;
  // A call without bulk in the answer.
  absl::Status Call(wire::FrameType type, const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite& response, std::chrono::milliseconds limit,
                    std::function<bool()> cancelled, ByteSource* bulk = nullptr) const;

  const uint32_t number_;
  const std::string address_;
  const Digest pin_;
  const roster::TlsIdentity* const identity_;
  const AnswerBytes answer_bytes_;
  const std::chrono::seconds stage_limit_;
  const uint32_t later_;
  std::atomic<bool> cancelled_ = false;
  Mutex live_mutex_;  // held over a call
  std::unique_ptr<net::Connection> live_connection_ ABSL_GUARDED_BY(live_mutex_);
};

// Serves the party before this one.
class PeerService {
 public:
  // Both must outlive the service. Without `states` nothing is said of parties.
  explicit PeerService(server::ChainNode* node, ChainStates* states = nullptr)
      : node_(node), states_(states) {}

  // Since a list of live rounds was taken, or since the start.
  double SecondsSinceHeard() const { return since_start_.Seconds() - heard_at_s_; }

  absl::StatusOr<wire::FrameLimits> Limits(wire::FrameType type) const;
  void Handle(wire::Frame request, net::Reply reply);
  // Opens the onions of an offline stage while they come in. Other requests are collected first.
  absl::StatusOr<std::unique_ptr<net::BulkSink>> Sink(const wire::Frame& request,
                                                      uint64_t bulk_bytes);

 private:
  class OfflineSink;
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
  absl::StatusOr<Response> Answer(wire::Frame request);

  server::ChainNode* const node_;
  ChainStates* const states_;
  const Stopwatch since_start_;
  std::atomic<double> heard_at_s_ = 0;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> live_refused_ = false;  // the last list, and that was logged
  TaskGroup tasks_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PEER_H_
