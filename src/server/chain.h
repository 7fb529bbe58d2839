// The chain: what a party does with a message and with its neighbour's answer. A round passes
// through a party by Propose, Offline and Online, in this order, and ends when a list of live
// rounds does not name it.
//
// In a round of two tiers (docs/protocol.md, section 11) Offline and Online are the calls of half
// A. Party 1 makes those of half B, too, as its frontend and its tail:
//
//   party 1                                         party 2, the head of half B
//     | clients' pieces B --------- HeadOffline --------->| opens, noise, shuffle
//     |<-------- list of B -------------------------------|
//     | clients' parts B ---------- HeadQueries --------->| checks, noise, order
//     |<-------- batch of B ------------------------------|
//     | y | T of each query ------- HeadAnswers --------->| way back, masks
//     |<-------- z | T' of each part ----------------------|
#ifndef SHOAL_SRC_SERVER_CHAIN_H_
#define SHOAL_SRC_SERVER_CHAIN_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/server/chain_answers.h"
#include "src/server/part_streams.h"
#include "src/server/party.h"
#include "src/server/slices.h"
#include "src/server/terms.h"
#include "src/signature/bls.h"
#include "src/wire/client.pb.h"
#include "src/wire/query_batch.h"
#include "src/wire/round.pb.h"

namespace shoal::server {

// The calls from a party to the one after it. ChainNode implements them itself, so that a chain can
// run in one process; src/shoald implements them over TLS. Calls block until all later parties have
// done their part. Sources that calls return compute their bytes as they are read. Thread-safe.
//
// UNAVAILABLE, from a call or from a source, means that a link broke, this one or a later one. Then
// the caller of the first party may repeat the call with the same input; nobody else repeats one.
class Link {
 public:
  virtual ~Link() = default;
  virtual absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                                     const wire::SignedLiveRounds& live) = 0;
  // Sends this machine's run of the list.
  virtual absl::Status Offline(const wire::SignedHeader& header, const OwnRun& mine,
                               std::unique_ptr<ByteSource> onions) = 0;
  // There is a part of the answers from each machine that has some of the queries. Errors of a
  // machine that answers after another one has may be the source's.
  virtual absl::StatusOr<std::unique_ptr<PartedSource>> Online(const Digest& round_id,
                                                               const OwnRun& mine,
                                                               QueriesOut queries) = 0;
  // The calls of half B. UNIMPLEMENTED if this link knows none. Each may be repeated with the same
  // input. `mine` says when to give up, `most` how many bytes are taken of what comes back.
  // Returns the list of B.
  virtual absl::StatusOr<std::unique_ptr<ByteSource>> HeadOffline(const wire::SignedHeader& header,
                                                                  const OwnRun& mine,
                                                                  Submissions pieces,
                                                                  uint64_t most);
  // Returns the batch of B over its list, once all of it is here.
  virtual absl::StatusOr<Bytes> HeadQueries(const Digest& round_id, const OwnRun& mine, Bytes parts,
                                            uint64_t most);
  virtual absl::StatusOr<std::unique_ptr<ByteSource>> HeadAnswers(
      const Digest& round_id, const OwnRun& mine, std::unique_ptr<ByteSource> answers,
      uint64_t most);
  // What the round has cost so far, at the called party and all parties after it.
  virtual absl::StatusOr<StageReports> Reports(const Digest& round_id) = 0;
  // Ends what the list says has ended, at the called party and all parties after it. Returns what
  // they lack of the list's rounds.
  virtual absl::StatusOr<ListAnswer> Live(const wire::SignedLiveRounds& live) = 0;

  // The two calls of a refresh of a term (terms.h). UNIMPLEMENTED if this link knows none. Both may
  // be repeated with the same header.
  // The sum of the signatures of the called party and all parties after it.
  virtual absl::StatusOr<signature::Signature> ProposeRefresh(const wire::RefreshHeader& header);
  // The answers, once the called party has all that it masks.
  virtual absl::StatusOr<std::unique_ptr<RefreshAnswers>> Refresh(
      const wire::SignedRefreshHeader& refresh);
};

// What party 1 gets back for the queries of clients in a round of two tiers, half by half: z | T'
// for every used slot, in order.
struct HalvesAnswers {
  std::unique_ptr<AnswerSource> a, b;
};

// One party and its link to the next (null at the backend). Each machine of a party has a node, and
// makes the calls for its own slice, in the same order as the others and with the same `attempt`;
// the calls return the same error at all of them. Propose, Reports and Live are the head's. Terms
// are for parties of one machine. As a link it is one between two parties of one machine.
class ChainNode final : public Link {
 public:
  // Both must outlive the node.
  ChainNode(Party* party, Link* next);

  // Takes the list first, which must name the draft: INVALID_ARGUMENT otherwise. So only the
  // frontend begins rounds, and what has ended takes no room. After an error this party has erased
  // its draft. Parties after it may have signed, and erase the round with the next list.
  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override;
  absl::Status Offline(const wire::SignedHeader& header, const OwnRun& mine,
                       std::unique_ptr<ByteSource> onions) override;
  absl::StatusOr<std::unique_ptr<PartedSource>> Online(const Digest& round_id, const OwnRun& mine,
                                                       QueriesOut queries) override;
  // This machine's slice of a list, of which the intake gets what is in `rest` (Party::Offline).
  absl::Status Offline(const wire::SignedHeader& header, std::shared_ptr<Party::Intake> intake,
                       std::unique_ptr<ByteSource> rest = nullptr);
  // The same at party 1, for its clients' submissions.
  absl::Status Offline(const wire::SignedHeader& header, Submissions submissions,
                       uint64_t attempt = 0);
  // This machine's slice of the queries.
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id, QueriesIn queries,
                                                     const StageTry& stage);
  // The same at party 1, for queries that the caller keeps, in case they have to be sent again.
  absl::StatusOr<std::unique_ptr<AnswerSource>> OnlineOfKept(const Digest& round_id,
                                                             BytesView queries,
                                                             uint64_t attempt = 0);
  // Both at party 1 of a round of two tiers, for what clients have sent. Both halves run at the
  // same time. After UNAVAILABLE they may be called again with the same input. The round ends here
  // if party 2 returns something else than in an earlier try (FAILED_PRECONDITION). Errors: that of
  // the half that failed first.
  //
  // Each source is read once, at the beginning. Returns when party 2 is ready for queries of half
  // A, and this party, which has committed to the list of half B, for those of B.
  absl::Status OfflineOfHalves(const wire::SignedHeader& header, Submissions a, Submissions b);
  // `a`: a batch of records over the slots with parts A | B; `b`: the same with parts B
  // (wire/query_batch.h). The caller keeps both.
  absl::StatusOr<HalvesAnswers> OnlineOfHalves(const Digest& round_id, BytesView a, BytesView b);
  // The calls of the head of half B. Errors: those of Party.
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadOffline(const wire::SignedHeader& header,
                                                          const OwnRun& mine, Submissions pieces,
                                                          uint64_t most) override;
  absl::StatusOr<Bytes> HeadQueries(const Digest& round_id, const OwnRun& mine, Bytes parts,
                                    uint64_t most) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadAnswers(const Digest& round_id,
                                                          const OwnRun& mine,
                                                          std::unique_ptr<ByteSource> answers,
                                                          uint64_t most) override;
  // For pieces that have been taken in.
  absl::StatusOr<std::unique_ptr<ByteSource>> HeadOffline(std::shared_ptr<Party::Intake> intake);
  // INVALID_ARGUMENT if the next party returns reports that no honest party makes.
  absl::StatusOr<StageReports> Reports(const Digest& round_id) override;
  // Returns what this party lacks, if anything, even if the next one is not reached; `reached` is
  // then this party. INVALID_ARGUMENT if the next party lacks what the list does not name, or says
  // that a party before it, or one that the list has not reached, does.
  absl::StatusOr<ListAnswer> Live(const wire::SignedLiveRounds& live) override;
  // Makes its own checks before it asks the next party. Errors: those of Terms::Sign; NOT_FOUND
  // also if this party keeps no terms.
  absl::StatusOr<signature::Signature> ProposeRefresh(const wire::RefreshHeader& header) override;
  // Errors: those of Terms::CheckRefresh, Answer and Return; NOT_FOUND as above.
  absl::StatusOr<std::unique_ptr<RefreshAnswers>> Refresh(
      const wire::SignedRefreshHeader& refresh) override;

  Party& party() { return *party_; }

 private:
  // Ends what the list says has ended, rounds and terms. Errors: those of Party::TakeLive.
  absl::StatusOr<std::vector<RoundCounter>> TakeLive(const wire::SignedLiveRounds& live);
  absl::StatusOr<Terms*> KeptTerms() const;
  absl::Status Offline(const wire::SignedHeader& header, const StageTry& stage,
                       std::unique_ptr<ByteSource> list);
  absl::StatusOr<std::unique_ptr<AnswerSource>> PassOn(const Digest& round_id, QueriesIn queries,
                                                       const StageTry& stage);
  // Queries that the party has forwarded, and their answers; of half A in a round of two tiers.
  absl::StatusOr<std::unique_ptr<AnswerSource>> Forward(const Digest& round_id,
                                                        QueriesOut forwarded, uint64_t attempt,
                                                        std::function<bool()> given_up = nullptr);
  // The list of the party, for the next one, if there is one.
  absl::Status SendList(const wire::SignedHeader& header, std::shared_ptr<Party::Intake> intake,
                        std::unique_ptr<ByteSource> rest, std::function<bool()> given_up);
  // Half B of OfflineOfHalves and of OnlineOfHalves.
  absl::Status OfflineOfB(const wire::SignedHeader& header, Submissions pieces, const OwnRun& mine);
  absl::StatusOr<std::unique_ptr<AnswerSource>> OnlineOfB(const Digest& round_id, BytesView parts,
                                                          const OwnRun& mine);
  // The work of both halves at the same time. Ends the round here after an error that a repeat
  // would meet again.
  absl::Status RunBoth(const Digest& round_id,
                       const std::function<absl::Status(const OwnRun& mine)>& a,
                       const std::function<absl::Status(const OwnRun& mine)>& b);

  Party* const party_;
  Link* const next_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_CHAIN_H_
