// The calls of the chain from a party to the next one.
#ifndef SHOAL_SRC_SHOALD_PEER_LINK_H_
#define SHOAL_SRC_SHOALD_PEER_LINK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "src/server/chain.h"
#include "src/server/slices.h"
#include "src/shoald/peer_calls.h"
#include "src/shoald/run_calls.h"
#include "src/storage/spool.h"
#include "src/wire/peer.pb.h"

namespace shoal::shoald {

// Makes requests of the chain's calls, and takes what the next party answers. If the next party has
// several machines, its head is called, except for the parts of lists, which go to the machines
// that own them (src/server/slices.h). Thread-safe.
class PeerLink final : public server::Link {
 public:
  using OwnRun = server::OwnRun;
  // Of a round, or of its term. An error once that is not open here (any more).
  using AnswerBytes = std::function<absl::StatusOr<uint64_t>(const Digest& round_id)>;

  struct Options {
    uint32_t party = 2;     // the next one
    uint32_t machines = 1;  // that it has
    uint32_t senders = 0;   // machines of this party; must be set (checked)
    // The number of parties after the next one, which is given more time for each, so that the
    // error of the one before a party that does not answer comes first, and names it.
    uint32_t later = 0;
    // The size of a row with its signature in a round's epoch of the table. It bounds what the next
    // party may send back. Calls for a round that is not open here end with CANCELLED, as they hold
    // what the round sends and receives.
    AnswerBytes answer_bytes = nullptr;
    // How many bytes the next party answers with in a refresh of a round's term. Null if this party
    // keeps no terms.
    AnswerBytes refresh_bytes = nullptr;
    std::chrono::seconds stage_limit{0};
    // Where answers of several machines wait for their turn; needed if either party has several.
    SpoolPlace* spools = nullptr;
  };

  PeerLink(std::unique_ptr<PeerCalls> calls, Options options);

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override;
  // Returns when all machines that get something of the run are ready. Errors: those of the first
  // call that failed; the others are then given up. CANCELLED once mine.given_up says so.
  absl::Status Offline(const wire::SignedHeader& header, const OwnRun& mine,
                       std::unique_ptr<ByteSource> onions) override {
    return runs_.Offline(header, mine, std::move(onions));
  }
  // Returns when a machine begins to answer: by then the machines of its party have all queries.
  absl::StatusOr<std::unique_ptr<server::PartedSource>> Online(
      const Digest& round_id, const OwnRun& mine, server::QueriesOut queries) override {
    return runs_.Online(round_id, mine, std::move(queries));
  }
  // CANCELLED once mine.given_up says so.
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadOffline(const wire::SignedHeader& header,
                                                          const OwnRun& mine,
                                                          server::Submissions pieces,
                                                          uint64_t most) override;
  absl::StatusOr<Bytes> HeadQueries(const Digest& round_id, const OwnRun& mine, Bytes parts,
                                    uint64_t most) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadAnswers(const Digest& round_id,
                                                          const OwnRun& mine,
                                                          std::unique_ptr<ByteSource> answers,
                                                          uint64_t most) override;
  absl::StatusOr<server::StageReports> Reports(const Digest& round_id) override;
  // Gives up after two seconds for each party, as the next list follows.
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds& live) override;

  // NOT_FOUND if this party keeps no terms.
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
  using Cancelled = std::function<bool()>;
  // Whether calls for a round, or for a refresh of its term, are to end.
  Cancelled Over(const Digest& round_id) const;
  Cancelled TermOver(const Digest& round_id) const;
  // So much, and what the parties after the next one may take.
  std::chrono::milliseconds Within(std::chrono::milliseconds limit) const;
  // A call for half B. Returns the bulk of the response.
  template <typename Response, typename Request>
  absl::StatusOr<std::unique_ptr<ByteSource>> CallHead(wire::FrameType type, Request& request,
                                                       ByteSource& bulk, const Digest& round_id,
                                                       const OwnRun& mine, uint64_t most) const;
  // `call`, which ends when this party does.
  absl::StatusOr<PeerAnswer> Call(PeerCall call) const;
  // The same for a stage: within the stages' limit.
  absl::StatusOr<PeerAnswer> CallStage(PeerCall call) const;
  // A call without bulk.
  template <typename Response>
  absl::StatusOr<Response> Ask(wire::FrameType type, google::protobuf::Message& request,
                               std::chrono::milliseconds limit, Cancelled cancelled) const;

  const std::unique_ptr<PeerCalls> calls_;
  const Options options_;
  std::atomic<bool> cancelled_ = false;
  RunCalls runs_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PEER_LINK_H_
