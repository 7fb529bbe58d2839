// The chain over TLS: calls to the next party, and calls from the previous one.
#ifndef SHOAL_SRC_SHOALD_PEER_H_
#define SHOAL_SRC_SHOALD_PEER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/net/connection.h"
#include "src/net/server.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/roster/party_keys.h"
#include "src/server/chain.h"
#include "src/server/slices.h"
#include "src/server/terms.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/kept_connections.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/run_calls.h"
#include "src/storage/spool.h"
#include "src/wire/peer.pb.h"

namespace shoal::shoald {

// The answers of a refresh, as they come from the next party.
class RemoteRefresh final : public server::RefreshAnswers {
 public:
  RemoteRefresh(std::unique_ptr<ByteSource> bulk, std::vector<round::RefreshTag> tags)
      : bulk_(std::move(bulk)), tags_(std::move(tags)) {}
  uint64_t size() const override { return bulk_->size(); }
  absl::StatusOr<BytesView> Next() override { return bulk_->Next(); }
  const std::vector<round::RefreshTag>& tags() const override { return tags_; }

 private:
  const std::unique_ptr<ByteSource> bulk_;
  const std::vector<round::RefreshTag> tags_;
};

// Calls to the next party; if it has several machines, to its head, except for the parts of lists,
// which go to the machines that own them (src/server/slices.h). A call opens a connection, as there
// are few calls in a round, with two exceptions: lists of live rounds, one a second, keep theirs;
// and the connection of a list of onions is kept for the same round's queries (CloseEnded).
// Thread-safe.
class RemoteLink final : public server::Link {
 public:
  // Returns the size of a row with its signature in a round's epoch of the table. It bounds what
  // the next party may send back. An error means that the round is not open here (any more): calls
  // for it then end with CANCELLED, as they hold what the round sends and receives.
  using AnswerBytes = std::function<absl::StatusOr<uint64_t>(const Digest& round_id)>;

  // `later`: the number of parties after the next one, which is given more time for each, so that
  // the error of the one before a party that does not answer comes first, and names it.
  // `spools`: where answers of several machines wait for their turn; needed if there are several.
  // `refresh_bytes`: how many bytes the next party answers with in a refresh of a round's term; an
  // error means that the term has ended here. Null if this party keeps no terms.
  RemoteLink(const roster::Party& next, const roster::TlsIdentity* identity,
             AnswerBytes answer_bytes, std::chrono::seconds stage_limit, uint32_t later = 0,
             SpoolPlace* spools = nullptr, AnswerBytes refresh_bytes = nullptr);

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override;
  absl::Status Offline(const wire::SignedHeader& header,
                       std::unique_ptr<ByteSource> onions) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id,
                                                     Bytes queries) override;

  using Mine = server::Mine;
  // Returns when all machines that get something of the run are ready. Errors: those of the first
  // call that failed; the others are then given up. CANCELLED once mine.given_up says so.
  absl::Status OfflineRun(const wire::SignedHeader& header, const Mine& mine,
                          std::unique_ptr<ByteSource> onions) override {
    return runs_.OfflineRun(header, mine, std::move(onions));
  }
  // `queries` is over the positions of the run. Returns when a machine begins to answer: by then
  // the machines of its party have all queries.
  absl::StatusOr<std::unique_ptr<server::PartedSource>> OnlineRun(
      const Digest& round_id, const Mine& mine, const wire::QueryBatch& queries) override {
    return runs_.OnlineRun(round_id, mine, queries);
  }
  absl::StatusOr<server::StageReports> Reports(const Digest& round_id) override;
  // Gives up after two seconds for each party, as the next list follows.
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds& live) override
      ABSL_LOCKS_EXCLUDED(live_mutex_);

  absl::StatusOr<signature::Signature> ProposeRefresh(const wire::RefreshHeader& header) override;
  absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> Refresh(
      const wire::SignedRefreshHeader& refresh) override;

  // What the next party and those after it say of themselves. Gives up as Live does.
  absl::StatusOr<wire::PartyStatesResponse> States(const wire::PartyStatesRequest& request) const;

  // Ends the connections that are kept for rounds that are not open here any more. To be called
  // often: a connection, and with it the keys of what passed over it, is not to outlive its round.
  void CloseEnded();

  // For the end of the process: calls that wait for the rest of the chain, and later ones, return
  // CANCELLED. Lists of live rounds, which are short, are still sent.
  void CancelStages() { cancelled_ = true; }

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  // Of a call that takes `limit` at the next party alone.
  Deadline After(std::chrono::milliseconds limit) const;
  absl::StatusOr<std::unique_ptr<net::Connection>> Connect(Deadline deadline,
                                                           std::function<bool()> cancelled,
                                                           uint32_t machine = 0) const;
  // An error of the connection, named by the party; what the party answered stays as it is.
  absl::Status Named(const absl::Status& status, uint32_t machine = 0) const;
  // Whether calls for a round, or for a refresh of its term, are to end.
  std::function<bool()> Over(const Digest& round_id) const;
  std::function<bool()> TermOver(const Digest& round_id) const;
  // A call without bulk in the answer.
  absl::Status Call(wire::FrameType type, const google::protobuf::MessageLite& request,
                    google::protobuf::MessageLite& response, std::chrono::milliseconds limit,
                    std::function<bool()> cancelled) const;
  // A stage's call to a machine: RunCalls::Options::call.
  absl::StatusOr<RunCalls::Answer> CallStage(const Digest& round_id, uint32_t machine,
                                             const wire::Frame& request, ByteSource* bulk,
                                             uint64_t answer_bulk_bytes,
                                             std::function<bool()> cancelled);

  const roster::Party next_;
  const absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> context_;
  const AnswerBytes answer_bytes_, refresh_bytes_;
  const std::chrono::seconds stage_limit_;
  const uint32_t later_;
  std::atomic<bool> cancelled_ = false;
  KeptConnections kept_;
  RunCalls runs_;
  Mutex live_mutex_;  // held over a call
  std::unique_ptr<net::Connection> live_connection_ ABSL_GUARDED_BY(live_mutex_);
};

// Serves the party before this one.
class PeerService {
 public:
  // How long a connection of a caller may rest. That of a list waits for its round's queries. Only
  // the party before this one connects here, and takes no place of others.
  static constexpr std::chrono::minutes kIdle{30};

  // All must outlive the service. Without `states` nothing is said of parties. `parts` is there if
  // this party or the one before it has several machines; then lists come in parts alone. `node` is
  // null at a machine that is not its party's head, which takes nothing else.
  explicit PeerService(server::ChainNode* node, ChainStates* states = nullptr,
                       PartStages* parts = nullptr)
      : node_(node), states_(states), parts_(parts) {
    SHOAL_CHECK(node_ != nullptr || parts_ != nullptr);
  }

  // Since a list of live rounds was taken, or since the start.
  double SecondsSinceHeard() const { return since_start_.Seconds() - heard_at_s_; }

  absl::StatusOr<wire::FrameLimits> Limits(wire::FrameType type) const;
  void Handle(wire::Frame request, net::Reply reply);
  // Opens the onions of an offline stage while they come in. Other requests are collected first.
  absl::StatusOr<std::unique_ptr<net::BulkSink>> Sink(const wire::Frame& request,
                                                      uint64_t bulk_bytes);

 private:
  class OfflineSink;
  class PartSink;
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
  int Most(int calls) const {
    return parts_ == nullptr ? calls : calls * static_cast<int>(parts_->senders());
  }
  // INVALID_ARGUMENT unless a part is named where there are parts, and none elsewhere.
  absl::Status CheckPart(bool has_part) const;
  absl::StatusOr<Response> Answer(wire::Frame request);

  server::ChainNode* const node_;
  ChainStates* const states_;
  PartStages* const parts_;
  const Stopwatch since_start_;
  std::atomic<double> heard_at_s_ = 0;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> live_refused_ = false;  // the last list, and that was logged
  TaskGroup tasks_;
};

// How a machine takes lists where its party or the one before it has several; `senders`: how many
// that one has. Node and spools must outlive the stages.
PartStages::Options PartsOf(server::ChainNode& node, uint32_t senders, SpoolPlace* spools);

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PEER_H_
