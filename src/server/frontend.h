// The frontend's side towards clients: slots, submissions and the life of its rounds. Does no I/O
// except through the journal and the spools. The driver moves the bytes and asks WhatIsDue what to
// do next. Answers wait for their clients in memory that the round reserved for them when its list
// of onions was announced, or in a file (round_memory.h).
//
//   OPEN_FOR_ONIONS --(window or count)--> SEALED --(offline stage)--> OPEN_FOR_QUERIES
//     --(window or count)--> ANSWERING --(online stage)--> ANSWERED --(window)--> CLOSED
//   and ABORTED from anywhere, for everybody. These are the states that clients are shown
//   (shown_rounds.h); round_stage.h has the stages that the driver sees.
//
// Windows run on the steady clock, from the announcement on: a clock that is set closes none.
//
// The journal keeps which rounds are there. After a restart those that had not closed are ABORTED
// until they would have expired: a client that waits for one learns that it is over, and asks in
// another round.
//
// A round of two tiers (docs/protocol.md, section 11) has the same states. Its submissions have two
// pieces, its queries two parts, its answers two halves: piece A is checked and opened here, as a
// whole submission is in a round for rows, and so are parts A; pieces B and parts B go to party 2
// as they came. The journal keeps submissions as they were received.
//
// A round that was answered leaves its term, if it has one, however it ends then. Refreshes are not
// done here (refreshes.h).
//
// What a client sees of a round depends only on times, counts and its own requests, never on an
// answer. Refusals name a slot, a token or a state.
//
// Where party 1 has several machines, each has a frontend with clients of its own, and the slots
// that it gave them: its slice of the round. Clients of all are shown the same states and totals,
// which the head decides and tells (docs/machines.md, "The frontend"):
//
//   others    Own -----------> what their clients have           -----> head: TakeCounts
//   head      Tell ----------> states, totals, costs of stages   -----> all: Show, from a moment on
//
// Clients may do what a state allows once they are shown it, and no machine comes to a stage that
// clients are not told of: the head decides (Decide) that no onions or queries are taken any more
// before a machine seals its slice; that queries are taken, or answers given, when all machines are
// ready for it. At one machine clients are shown at once what the frontend comes to.
#ifndef SHOAL_SRC_SERVER_FRONTEND_H_
#define SHOAL_SRC_SERVER_FRONTEND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/address_block.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/onion/onion.h"
#include "src/parallel/mutex.h"
#include "src/round/header.h"
#include "src/server/chain.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/round_stage.h"
#include "src/server/shown_rounds.h"
#include "src/server/slot_requests.h"
#include "src/wire/client.pb.h"

namespace shoal::server {

// No chain has a shorter submission: one onion of a single layer.
inline constexpr size_t kShortestSubmissionBytes = onion::SubmissionBytes(2, 1);

// Which rounds get a term. By the calendar, so that clients know when to come: those that are
// announced in the first minutes of each period, counted from 1970 on, UTC.
struct TermPlan {
  uint32_t refreshes = 0;  // at most; 0: no round has a term
  uint32_t days = 1;       // how long a term lasts, from the announcement on
  uint32_t every_hours = 24;
  uint32_t open_minutes = 60;
};

// When rounds begin and end. A window closes early when its count is reached; a count of 0 means
// that only the window closes it. Of one address block at most `block_percent` of a count count, or
// `group_percent`, so that a stranger alone closes no window.
struct RoundPlan {
  uint32_t open_ahead = 1;  // rounds that take onions at the same time
  uint32_t onions_window_s = 60;
  uint64_t onions_count = 0;
  uint32_t queries_window_s = 60;
  uint64_t queries_count = 0;
  uint32_t answers_window_s = 120;  // answers wait this long for their owners
  uint32_t stage_limit_s = 3600;    // the longest that an offline or online stage may take
  uint32_t max_slots = 1 << 20;
  uint32_t max_rounds = 8;  // the most rounds not yet closed
  // What one address block may take of a round's slots, in percent; and one that many share.
  uint32_t block_percent = 25;
  uint32_t group_percent = 100;
  TermPlan terms = {};
};

// INVALID_ARGUMENT names the field and the allowed range. FAILED_PRECONDITION: the plan has terms,
// and the roster allows none, is of two tiers, or has a party of several machines.
absl::Status CheckPlan(const RoundPlan& plan, const roster::Roster& roster);

// Which machine of party 1 a frontend is. Machine 0 is the head.
struct FrontendMachine {
  uint32_t rank = 0;
  uint32_t count = 1;

  bool is_head() const { return rank == 0; }
  bool is_alone() const { return count == 1; }
};

// What the clients of one machine, or of all, have of a round.
struct Counts {
  uint64_t onions = 0;   // slots given out
  uint64_t queries = 0;  // slots used
  // Of these, what counts towards the ends of the windows (slot_quotas.h).
  uint64_t counted_onions = 0, counted_queries = 0;
  // Why what clients sent cannot be stored (any more). May name files.
  absl::Status storage = {};
};

// Of a round of two tiers, both lists with one piece for every submission: pieces A for party 1,
// pieces B for party 2.
struct HalvesSubmissions {
  Submissions a, b;
};

// Of a round of two tiers, both encoded as batches of records over the slots (wire/query_batch.h):
// of half A part A | part B of each query, of half B part B.
struct HalvesQueries {
  Bytes a, b;
};

// How much later than the head a machine may show a state; the head aborts the round otherwise.
inline constexpr uint64_t kMostLateMs = 10'000;

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
  Digest round_id;          // not for kAnnounce
  std::string reason = "";  // of kAbort; for everybody
  absl::Status why = {};    // of kAbort; only for the log, as it may name files
};

// Thread-safe. Calls for clients may be made on I/O threads: except SubmitOnions, which waits for
// the journal, they wait for no disk, stage or other request's cipher.
class Frontend {
 public:
  // `party` must be number 1. It, the journal, the clock and the resources must outlive the
  // frontend. At a machine that is not the head, the journal keeps its own clients' submissions
  // alone, and the frontend makes no drafts and lists, and decides nothing.
  static absl::StatusOr<std::unique_ptr<Frontend>> Create(RoundPlan plan, Party* party,
                                                          Journal* journal, const Clock* clock,
                                                          const Resources& resources,
                                                          FrontendMachine machine = {});

  // --- for the driver: FAILED_PRECONDITION, naming both stages, if the stage may not come next ---
  // At one of several machines these calls are about its own slice. NewDraft to AbortLacked,
  // WhatIsDue and Decide are for the head alone (checked).

  // A header without onion keys, with which a round begins. Its counter is in the journal. Errors
  // of the journal's storage. Not for I/O threads.
  absl::StatusOr<wire::RoundHeader> NewDraft() ABSL_LOCKS_EXCLUDED(mutex_, drafting_);
  // Gives up a draft whose proposal failed. Nothing happens if there is none.
  void Withdraw(RoundCounter counter);
  // Which rounds, drafts and terms live now, for all parties. Terms are party 1's own, but for
  // those of rounds that were aborted before they were answered: what an earlier process has kept
  // whole lives on.
  wire::SignedLiveRounds Live() const;
  // Aborts the rounds that parties have lost. Returns their ids, but for rounds that had ended. A
  // round that is answered needs no other party any more, and stays.
  std::vector<Digest> AbortLacked(const LackedRounds& lacked);
  // Begins to take onions for a round that all parties have signed; at one of several machines,
  // once clients are shown so. Errors of the journal's storage. Not for I/O threads, and neither
  // are Close and Abort.
  absl::Status Open(const round::Round& round);
  // What is due, by what all machines have, oldest round first. Leaves out rounds that the driver
  // works on, except those whose stage has taken longer than the plan allows, however often it was
  // repeated. At several machines a round without onions, or without queries, is not closed but
  // sealed, or answered, as other machines may have got some meanwhile.
  std::vector<Due> WhatIsDue();
  // The driver goes on to this state: from here on nothing is due until it has. Clients are shown
  // it, at several machines when all are told. SEALED and ANSWERING come before Seal and
  // CloseQueries, which make up for it at one machine, and must not be called at several before
  // clients are shown it. OPEN_FOR_ONIONS, OPEN_FOR_QUERIES and ANSWERED are for several machines,
  // once all have come so far. FAILED_PRECONDITION if this machine's stage is another one, or the
  // state is no later than the one before.
  absl::Status Decide(const Digest& round_id, wire::RoundState state);
  // Takes no more onions. Returns the submissions in the order of their slots, as party 1's input.
  absl::StatusOr<Submissions> Seal(const Digest& round_id);
  // The same submissions again, while the offline stage runs. FAILED_PRECONDITION otherwise.
  absl::StatusOr<Submissions> SubmissionsAgain(const Digest& round_id);
  // The same two in a round of two tiers.
  absl::StatusOr<HalvesSubmissions> SealHalves(const Digest& round_id);
  absl::StatusOr<HalvesSubmissions> PiecesAgain(const Digest& round_id);
  // Begins to take queries. NOT_FOUND or FAILED_PRECONDITION also if party 1 does not hold what
  // they need (any more): the round can then only be aborted.
  absl::Status OfflineDone(const Digest& round_id, StageReports reports);
  // Takes no more queries. Returns them encoded, as party 1's input.
  absl::StatusOr<Bytes> CloseQueries(const Digest& round_id);
  // The same in a round of two tiers.
  absl::StatusOr<HalvesQueries> CloseParts(const Digest& round_id);
  // Takes what party 1's node returns: one answer for every used slot, in order. No client gets an
  // answer before all are taken. Keeps the source's list, or a copy of what is in a file. Calls
  // `reports` after that. After an error of the source or the spool the round stays ANSWERING, and
  // the same answers may come again.
  absl::Status AnswersReady(const Digest& round_id, AnswerSource& answers,
                            const std::function<StageReports()>& reports);
  // The same in a round of two tiers, for the answers of both halves.
  absl::Status AnswersReady(const Digest& round_id, AnswerSource& a, AnswerSource& b,
                            const std::function<StageReports()>& reports);
  // Erases what is held of the round. A client that is just being handed answers still gets them.
  // May be called again. Clients are shown the end; at a machine that is not the head, when the
  // head tells it, whichever of both was called.
  void Close(const Digest& round_id);
  void Abort(const Digest& round_id, absl::string_view reason);
  // Why it is ABORTED, also before clients are shown that; otherwise empty.
  std::string AbortReason(const Digest& round_id) const;
  absl::StatusOr<wire::SignedHeader> Header(const Digest& round_id) const;
  // The rounds that have not ended, oldest first.
  std::vector<Digest> OpenRounds() const;

  // --- between the machines of party 1, where it has several (checked, but for Own and Totals);
  // --- none of these calls waits for a disk

  // What this machine's clients have; what those of all have, by what each has said last.
  absl::StatusOr<Counts> Own(const Digest& round_id) const;
  absl::StatusOr<Counts> Totals(const Digest& round_id) const;
  // At the head: what machine `rank`, another one, says. Nothing happens if there is no such round.
  void TakeCounts(uint32_t rank, const Digest& round_id, const Counts& counts);
  // At the head: what has changed of what clients are to be shown, since it was returned last. It
  // has to be given to Show of all machines, this one too, in the order in which it was returned.
  // Reports of at most `most_bytes` in all, encoded, but one at least: rounds that have another
  // state first, as clients may do something then or no more, then those of before a restart, then
  // new numbers; of each, what waits longest comes first.
  std::vector<Told> Tell(size_t most_bytes);
  // At the head: whether Tell has returned all rounds of before a restart. At all machines, once
  // Show has been given them: clients of this one may be told from `from_ms` on that a round is
  // none.
  bool HasToldBefore() const;
  void BeforeIsTold(uint64_t from_ms);
  // Returns when clients of this machine are shown this state, or a later one. It may hear of it
  // later than the head, whose order to go on comes too early then. FAILED_PRECONDITION after
  // kMostLateMs, or if the round ends here meanwhile. Not for I/O threads.
  absl::Status WaitUntilShown(const Digest& round_id, wire::RoundState state) const;
  // From `from_ms` on, on this machine's steady clock, shows clients what the head has told. A
  // round that this machine does not know is shown if the report has its header.
  void Show(const Told& told, uint64_t from_ms);

  // --- for clients; at several machines, of what the head has told. Until it has told all rounds
  // of
  // --- before a restart, UNAVAILABLE in place of NOT_FOUND

  wire::ListRoundsResponse ListRounds() const;
  absl::StatusOr<wire::RoundInfo> Info(const Digest& round_id) const;
  absl::StatusOr<wire::RoundState> State(const Digest& round_id) const;
  absl::StatusOr<FrontendStage> Stage(const Digest& round_id) const;
  // The rounds, with the cost of their stages at every party; of several machines without numbers
  // of positions, noise queries and bytes.
  std::vector<wire::RoundReport> Reports() const;

  // Gives the onions of every submission (src/onion/onion.h) slots in a row, and a submission that
  // is known the same again. In a round of two tiers a submission has two pieces, and onion i of
  // both the same slot. All or nothing. The caller must call journal->Sync(counter) before it
  // acknowledges; one call serves many requests. Writes to the journal, so not for I/O threads.
  // INVALID_ARGUMENT: none, or one that has not the length of a submission, or has the encapsulated
  // key of another one, or in either piece one that came before; FAILED_PRECONDITION: the round
  // takes no onions (any more); RESOURCE_EXHAUSTED: the round is full, or this machine's part of
  // it, or `from` has its share; NOT_FOUND: no such round (a round of an earlier process is ABORTED
  // instead). If the journal fails, the error of StorageFailed. UNAVAILABLE: one of several
  // machines has ended the round, of which clients are about to be told.
  struct Submitted {
    std::vector<uint32_t> first_slots;  // of each submission
    RoundCounter counter;
  };
  absl::StatusOr<Submitted> SubmitOnions(const Digest& round_id,
                                         std::span<const BytesView> submissions,
                                         const Origin& from);
  // To be called when the journal has failed to store what clients sent, or to make it durable.
  // Unless `why` is UNAVAILABLE, which loses nothing, the round takes no more onions and is due to
  // be aborted. Returns the error for clients, FAILED_PRECONDITION or UNAVAILABLE, without the text
  // of `why`.
  absl::Status StorageFailed(const Digest& round_id, absl::Status why);

  // Takes a tally for every slot, or in a round of two tiers two parts. All or nothing; the same
  // request may come again.
  // INVALID_ARGUMENT: arrays of different lengths, or what belongs to the other kind of round, a
  // tally not below p, a slot named twice or not given out; PERMISSION_DENIED: a token that is not
  // the slot's, or the tag of a part A (or a dead slot, or at one of several machines a slot that
  // it has, and has not given out); FAILED_PRECONDITION: the round takes no queries, or the slot
  // was used for another query; UNAVAILABLE: party 1 has lost the round, which is about to be
  // aborted; NOT_FOUND: no such round.
  absl::StatusOr<uint32_t> SubmitQueries(const wire::SubmitQueriesRequest& request);

  // Returns the answers of used slots, in a round of two tiers both halves of each. Codes as above.
  // INVALID_ARGUMENT also for more than 2 MiB of answers, unless it is one answer;
  // FAILED_PRECONDITION: the round is not answered (yet, or any more), or a slot was not used.
  absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest& request) const;

 private:
  struct Entry;

  Frontend(RoundPlan plan, Party* party, Journal* journal, const Clock* clock,
           const Resources& resources, FrontendMachine machine, uint64_t highest_counter,
           EarlierRounds earlier)
      : plan_(plan),
        party_(party),
        journal_(journal),
        clock_(clock),
        resources_(resources),
        machine_(machine),
        started_s_(clock->NowSeconds()),
        started_steady_s_(clock->SteadySeconds()),
        earlier_(std::move(earlier)),
        highest_counter_(highest_counter) {}
  absl::StatusOr<std::shared_ptr<Entry>> Find(const Digest& round_id) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // What clients are told of a round that this machine does not know.
  absl::Status UnknownLocked(const Digest& round_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How many slots of a round this machine gives out.
  uint64_t RoomOf(const round::Round& round) const {
    return round.header().max_slots() / machine_.count;
  }
  // INVALID_ARGUMENT for a slot that was not given out.
  absl::Status CheckGivenOut(const Entry& entry, std::span<const uint32_t> slots) const;
  // The error for a slot whose token, or tag of a part, is wrong, as `what` says. `stage`: in which
  // the caller found the round. A round that has left it meanwhile is the error, not the tokens,
  // which are all wrong then.
  absl::Status WrongSecret(const Entry& entry, FrontendStage stage, uint32_t slot,
                           absl::string_view what) const;
  // Slots and tokens that are right.
  absl::StatusOr<SlotRequest> ParseRequest(const Entry& entry, FrontendStage stage,
                                           const std::string& slots,
                                           const std::string& tokens) const;
  // The two kinds of SubmitQueries.
  absl::StatusOr<uint32_t> SubmitTallies(Entry& entry, const wire::SubmitQueriesRequest& request);
  absl::StatusOr<uint32_t> SubmitParts(Entry& entry, const wire::SubmitQueriesRequest& request);
  // Takes no more onions; takes no more queries, and returns what came of them.
  absl::Status SealOnions(const Digest& round_id);
  struct ClosedQueries;
  absl::StatusOr<ClosedQueries> StopQueries(const Digest& round_id);
  // Takes the answers, of each half if there are two.
  absl::Status TakeAnswers(const Digest& round_id, std::span<AnswerSource* const> halves,
                           const std::function<StageReports()>& reports);
  // Whether a term that party 1 has is named in lists as one whose round is over.
  bool TermLivesLocked(const Digest& round_id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives a draft its term, if it is to have one.
  void AddTerm(wire::RoundHeader& draft) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Stores which rounds are there, and the one that is about to be opened.
  absl::Status KeepRoundsLocked(const round::Round* opening) ABSL_EXCLUSIVE_LOCKS_REQUIRED(keeping_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Both: false if the round had ended before.
  static bool BecomeEnded(Entry& entry, FrontendStage end, absl::string_view reason);
  bool End(const Digest& round_id, FrontendStage end, absl::string_view reason)
      ABSL_LOCKS_EXCLUDED(keeping_, mutex_);

  const RoundPlan plan_;
  Party* const party_;
  Journal* const journal_;
  const Clock* const clock_;
  const Resources resources_;
  const FrontendMachine machine_;

  // When this process began, on both clocks.
  const uint64_t started_s_, started_steady_s_;

  Mutex keeping_ ABSL_ACQUIRED_BEFORE(mutex_);   // held while the journal stores the rounds, too
  Mutex drafting_ ABSL_ACQUIRED_BEFORE(mutex_);  // held by NewDraft, while the journal writes too
  mutable Mutex mutex_;                          // taken before an entry's lock
  EarlierRounds earlier_ ABSL_GUARDED_BY(mutex_);
  uint64_t tells_ ABSL_GUARDED_BY(mutex_) = 0;        // calls of Tell
  uint64_t highest_counter_ ABSL_GUARDED_BY(mutex_);  // of those in the journal
  // On their way through the chain, with the milliseconds of their announcement on the steady
  // clock.
  std::map<uint64_t, uint64_t> drafts_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, std::shared_ptr<Entry>> rounds_ ABSL_GUARDED_BY(mutex_);
  // Oldest first; the last few closed ones stay for `status`.
  std::deque<Digest> order_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_FRONTEND_H_
