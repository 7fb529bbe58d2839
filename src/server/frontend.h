// The frontend's side towards clients: slots, submissions, and the life of its rounds. No I/O but
// the journal's and the spools'; the runner moves the bytes and asks `Due` what to do next.
//
//   OPEN_FOR_ONIONS --(window or count)--> SEALED --(offline stage)--> OPEN_FOR_QUERIES
//     --(window or count)--> ANSWERING --(online stage)--> ANSWERED --(window)--> CLOSED
//   and ABORTED from anywhere, for everybody. round_stage.h has it with what the driver sees.
//
// What a client sees of a round depends on times, counts and its own requests alone, never on an
// answer: refusals name a slot, a token or a state.
#ifndef SHOAL_SRC_SERVER_FRONTEND_H_
#define SHOAL_SRC_SERVER_FRONTEND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"
#include "src/round/header.h"
#include "src/server/chain.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/round_stage.h"
#include "src/wire/client.pb.h"

namespace shoal::server {

// When rounds begin and end. A window closes early when its count is reached; a count of 0 means
// that only the window closes it.
struct RoundPlan {
  uint32_t open_ahead = 1;  // rounds that take onions at the same time
  uint32_t onions_window_s = 60;
  uint64_t onions_count = 0;
  uint32_t queries_window_s = 60;
  uint64_t queries_count = 0;
  uint32_t answers_window_s = 120;  // answers wait this long for their owners
  uint32_t stage_limit_s = 3600;    // offline or online stage: longer means something is broken
  uint32_t max_slots = 1 << 20;
  uint32_t max_rounds = 8;  // not yet closed
};

// INVALID_ARGUMENT names the field and the allowed range.
absl::Status CheckPlan(const RoundPlan& plan, const roster::Roster& roster);

// What the driver should do now.
enum class Action {
  kAnnounce,  // draft a header, have it signed, Open it
  kSeal,      // Seal, run the offline stage, OfflineDone
  kAnswer,    // CloseQueries, run the online stage, AnswersReady
  kClose,     // Close, and end the round at all parties
  kAbort,     // Abort, and end the round at all parties
};
struct Due {
  Action action;
  Digest round_id;   // not for kAnnounce
  absl::Status why;  // of kAbort; for the log: it may name files
};

// Thread-safe. What a client's request does is for I/O threads, and waits for no disk, no cipher of
// another request and no stage; SubmitOnions alone waits for the journal.
class Frontend {
 public:
  // `party` is number 1 and outlives this, as journal, clock and resources do.
  static absl::StatusOr<std::unique_ptr<Frontend>> Create(RoundPlan plan, Party* party,
                                                          Journal* journal, const Clock* clock,
                                                          const Resources& resources);

  // --- for the driver: FAILED_PRECONDITION, naming both stages, for what may not come next ---

  // A header without onion keys: the beginning of a round.
  wire::RoundHeader NewDraft();
  // A round that all parties have signed begins to take onions.
  absl::Status Open(const round::Round& round);
  // What is due, oldest round first. A round that is being worked on is not due.
  std::vector<Due> WhatIsDue();
  // No more onions. The input of party 1: the onions in the order of their slots.
  absl::StatusOr<std::unique_ptr<ByteSource>> Seal(const Digest& round_id);
  absl::Status OfflineDone(const Digest& round_id, StageReports reports);
  // No more queries. The input of party 1, encoded.
  absl::StatusOr<Bytes> CloseQueries(const Digest& round_id);
  // One answer for every used slot, in order: what party 1's node returns. Takes all of them before
  // anybody gets one, and asks for `reports` when they are there. Errors of the source and of the
  // spool: the round stays ANSWERING, and the same answers may come again.
  absl::Status AnswersReady(const Digest& round_id, ByteSource& answers,
                            const std::function<StageReports()>& reports);
  // Erases what is held of the round, answers once the last client who is being handed some has
  // them. OK again.
  void Close(const Digest& round_id);
  void Abort(const Digest& round_id, absl::string_view reason);
  absl::StatusOr<wire::SignedHeader> Header(const Digest& round_id) const;

  // --- for clients ---

  wire::ListRoundsResponse ListRounds() const;
  absl::StatusOr<wire::RoundInfo> Info(const Digest& round_id) const;
  absl::StatusOr<wire::RoundState> State(const Digest& round_id) const;
  absl::StatusOr<FrontendStage> Stage(const Digest& round_id) const;
  // Rounds with what their stages cost at every party.
  std::vector<wire::RoundReport> Reports() const;

  // Gives every onion a slot; bytes that have one get the same again. All or nothing. The caller
  // acknowledges after journal->Sync(counter), which one call does for many submissions. Writes to
  // the journal: not for I/O threads.
  // INVALID_ARGUMENT: not a whole number of onions; FAILED_PRECONDITION: the round takes no onions
  // (any more); RESOURCE_EXHAUSTED: the round is full; NOT_FOUND: no such round. Where the journal
  // fails: as StorageFailed.
  struct Submission {
    std::vector<uint32_t> slots;
    RoundCounter counter;
  };
  absl::StatusOr<Submission> SubmitOnions(const Digest& round_id, BytesView onions);
  // The journal has not kept, or not made durable, what clients sent: the round takes no more and
  // is due to be aborted for everybody, unless `why` is UNAVAILABLE, after which nothing is lost.
  // What clients are told: FAILED_PRECONDITION or UNAVAILABLE, and nothing of `why`.
  absl::Status StorageFailed(const Digest& round_id, absl::Status why);

  // Takes a tally for every slot. All or nothing; the same again is fine. INVALID_ARGUMENT: arrays
  // of different lengths, a tally not below p, a slot named twice or not given out;
  // PERMISSION_DENIED: a token that is not the slot's (or a dead slot); FAILED_PRECONDITION: the
  // round takes no queries, or the slot was used for another one; NOT_FOUND: no such round.
  absl::StatusOr<uint32_t> SubmitQueries(const wire::SubmitQueriesRequest& request);

  // Answers of used slots. Codes as above; INVALID_ARGUMENT for more than 2 MiB of answers (one may
  // always be had); FAILED_PRECONDITION: not answered (yet, any more), or a slot that was not used.
  absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest& request) const;

 private:
  struct Entry;
  struct Request {
    std::vector<uint32_t> slots;
    std::vector<sharing::Token> tokens;
  };

  Frontend(RoundPlan plan, Party* party, Journal* journal, const Clock* clock,
           const Resources& resources)
      : plan_(plan), party_(party), journal_(journal), clock_(clock), resources_(resources) {}
  absl::StatusOr<std::shared_ptr<Entry>> Find(const Digest& round_id) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Request> ParseRequest(const Entry& entry, const std::string& slots,
                                       const std::string& tokens) const;
  void End(const Digest& round_id, FrontendStage end, absl::string_view reason);

  const RoundPlan plan_;
  Party* const party_;
  Journal* const journal_;
  const Clock* const clock_;
  const Resources resources_;

  mutable Mutex mutex_;  // taken before an entry's
  uint64_t last_counter_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<Digest, std::shared_ptr<Entry>> rounds_ ABSL_GUARDED_BY(mutex_);
  // Oldest first; the last few closed ones stay for `status`.
  std::deque<Digest> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_FRONTEND_H_
