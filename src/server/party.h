// One party of the chain: it makes every check and keeps every state of its rounds. Does no I/O
// except through the journal and the spools.
//
//   header    party 1 --- draft, one more onion key at every hop ---> party m
//             party 1 <--- one more signature at every hop ---------- party m
//   offline   party 1 --- onions ---> 2 --- onions ---> ... ---> party m
//   online    party 1 --- queries --> 2 --- queries --> ... ---> party m
//             party 1 <-- answers --- 2 <-- answers --- ... <--- party m
//   end       party 1 --- live ----> 2 --- live -----> ... ---> party m   every second
//
// Frontend, middle parties and backend are instances of this class and differ only in their
// neighbours. A party of several machines has an instance at each, for its slice of every list: all
// take the same calls of a round in the same order, and return the same errors (below). The caller
// (src/shoald, or a test) moves the bytes: what a call returns goes to the neighbour, and what the
// neighbour answers goes into the next call.
//
// A party drafts and signs rounds of the newest epoch of the table that it has taken (TakeEpoch).
// A round that it has signed ends under the epoch that its header names, whose rows the round
// keeps.
//
// A round of two tiers (docs/protocol.md, section 11) has one header, counter and life, and two
// halves, each with a stage, lists, noise and commitments of its own. Calls of a stage name the
// half; in a round for rows it is not looked at. Whoever ends a round ends both halves.
//
// Before a call returns anything for a neighbour, the journal holds the digest of the call's whole
// input. Before the last piece of an output is handed out, the journal holds the digest of the
// whole output. A call repeated with the same input returns the same bytes; a call with another
// input is refused for ever.
#ifndef SHOAL_SRC_SERVER_PARTY_H_
#define SHOAL_SRC_SERVER_PARTY_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/tagged.h"
#include "src/machines/machines.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/mutex.h"
#include "src/roster/roster.h"
#include "src/round/header.h"
#include "src/round/live_rounds.h"
#include "src/server/journal.h"
#include "src/server/offline.h"
#include "src/server/part_streams.h"
#include "src/server/round_context.h"
#include "src/server/round_stage.h"
#include "src/server/slices.h"
#include "src/server/stage_input.h"
#include "src/server/table_epoch.h"
#include "src/sharing/halves.h"
#include "src/sharing/sharing.h"
#include "src/storage/spool.h"
#include "src/wire/client.pb.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

struct ChainPlace;
class OpenRound;
struct RoundServices;
class Terms;

// A draft that is not completed within this time is dropped.
inline constexpr uint64_t kDraftLifetimeS = 120;

// A round ends at a party that has taken no list of live rounds for this long. Somebody who holds
// the lists back cannot make the party keep the round's secrets until they expire.
inline constexpr uint64_t kUnheardLimitS = 60;

// Earlier epochs of the table that a machine keeps because its head has no newer one.
inline constexpr size_t kMostKept = 8;

// What the others need to open a round.
struct RoundOpening {
  uint32_t number;  // of the round among all of this job, from 1
  wire::SignedHeader header;
  Seed root;
};

// This machine among those of its party (docs/machines.md).
struct PartyMachines {
  uint32_t rank = 0, count = 1;
  // Joins the machines of a round that all open under the same number; called in any order, and
  // once for a number. Held until nothing works on the round any more. Quick, and must not call the
  // party. A party of one machine needs none.
  std::function<absl::StatusOr<std::shared_ptr<machines::Machines>>(uint32_t number,
                                                                    const Digest& round_id)>
      join = nullptr;
  // At the head of several: the others are to open this round; to end it. Quick, and must not call
  // the party.
  std::function<void(const RoundOpening& opening)> opened = nullptr;
  // The same: an error while they do not hear each other, or cannot open rounds of this epoch of
  // the table. No round is drafted then, as it could only fail. Quick, and must not call the party.
  std::function<absl::Status(uint64_t epoch)> ready = nullptr;
  std::function<void(const Digest& round_id)> ended = nullptr;
};

// Thread-safe: calls for different rounds run at the same time, calls for one round in turn.
//
// At a party of several machines, the machines of a round begin a try of a stage together, and tell
// each other how it ended where a link is concerned. All return the same error then, and the round
// goes on. After any other error, at whichever machine, the round ends at all of them: ABORTED.
class Party {
 public:
  struct Options {
    PartyNumber number;
    roster::Roster roster;
    TableEpoch table;
    // The most rounds open at once, so that a neighbour cannot fill this party's memory with
    // drafts.
    size_t max_open_rounds = 16;
    // Shows the progress of long work to people; may be empty. Called often and from any thread, so
    // it should be cheap.
    std::function<void(RoundCounter round, uint64_t opened, uint64_t onions)> progress = nullptr;
    // The same for rounds and drafts that TakeLive and EndExpired end.
    std::function<void(RoundCounter round, absl::string_view why)> ended = nullptr;
    // Told of a stage of this party that is done, with times in hundredths of a second. May be
    // empty. Called from any thread while the round is worked on: it must not call the party.
    std::function<void(const wire::StageReport& report)> stage_done = nullptr;
    PartyMachines machines = {};
    // Where the terms of rounds go; it must outlive the party. Null: no round has a term here.
    Terms* terms = nullptr;
  };

  // The pointers must outlive the party. FAILED_PRECONDITION if the journal has seen a newer roster
  // or table, or another one of the same epoch. INVALID_ARGUMENT for options that do not fit
  // together.
  static absl::StatusOr<std::unique_ptr<Party>> Create(Options options,
                                                       const signature::SecretKey& key,
                                                       Journal* journal, RandomSource* random,
                                                       const Clock* clock, Resources resources);

  // The same at a machine that is not the head: it has no BLS key and no journal, drafts and signs
  // nothing, and takes no lists of live rounds. Open and End are the head's to order.
  static absl::StatusOr<std::unique_ptr<Party>> CreateOther(Options options, RandomSource* random,
                                                            const Clock* clock,
                                                            Resources resources);

  ~Party();

  const roster::Roster& roster() const { return options_.roster; }
  uint32_t rank() const { return options_.machines.rank; }
  size_t max_open_rounds() const { return options_.max_open_rounds; }
  bool has_several_machines() const { return options_.machines.count > 1; }
  // The newest epoch that this party has taken.
  std::shared_ptr<const TableEpoch> table() const ABSL_LOCKS_EXCLUDED(table_mutex_);
  PartyNumber number() const { return options_.number; }
  bool is_backend() const { return number().value() == roster().size(); }
  // Whether this party answers queries from the table: the backend, and both parties of two tiers,
  // as tails of their halves.
  bool answers_from_table() const { return is_backend() || roster().most_in_bucket() != 0; }
  // Null if this party keeps none.
  Terms* terms() const { return options_.terms; }

  // Checks whether this party may take `next`, except for its answers. FAILED_PRECONDITION, naming
  // the epochs, if it is another table or no newer epoch; INVALID_ARGUMENT if the table has too few
  // rows for the noise.
  absl::Status CheckEpoch(const TableEpoch& next) const ABSL_LOCKS_EXCLUDED(table_mutex_);
  // Takes the next epoch of the table, for ever: it is in the journal before this call returns.
  // From then on this party drafts and signs rounds of this epoch alone. Drafts of the epoch before
  // can no longer be signed; signed rounds go on. After an error the party serves the epoch that it
  // had. Errors: those of CheckEpoch; INVALID_ARGUMENT if the backend's answers do not fit;
  // FAILED_PRECONDITION if the journal has another content of that epoch; those of the journal's
  // storage.
  //
  // The head of several machines is to take an epoch when all others have it: they can open rounds
  // of the earlier ones until the head has a newer one. RESOURCE_EXHAUSTED at another machine that
  // keeps kMostKept earlier epochs already.
  absl::Status TakeEpoch(TableEpoch next) ABSL_LOCKS_EXCLUDED(table_mutex_, take_mutex_);

  // Of which epochs this machine can open rounds, rising. At the head that is the newest one.
  std::vector<uint64_t> OpenableEpochs() const ABSL_LOCKS_EXCLUDED(table_mutex_);
  // At a machine that is not the head: the head drafts rounds of this epoch from now on. To be
  // called again and again: earlier epochs are kept for a while, as the head's orders to open what
  // it has signed may be under way.
  void HeadHas(uint64_t epoch) ABSL_LOCKS_EXCLUDED(table_mutex_);
  // The epoch that a header names, if rounds of it can be opened here. FAILED_PRECONDITION
  // otherwise.
  absl::StatusOr<std::shared_ptr<const TableEpoch>> TableOf(const wire::RoundHeader& header) const
      ABSL_LOCKS_EXCLUDED(table_mutex_);

  // Returns the previous party's draft (at party 1 its own, without keys) with this party's onion
  // key added. INVALID_ARGUMENT or UNAUTHENTICATED for a draft that
  // an honest party does not sign; FAILED_PRECONDITION for a counter that was used, or for another
  // epoch of the table than this party's; RESOURCE_EXHAUSTED when too many rounds are open; the
  // error of PartyMachines::ready.
  absl::StatusOr<wire::RoundHeader> ExtendDraft(const wire::RoundHeader& draft)
      ABSL_LOCKS_EXCLUDED(mutex_, draft_mutex_);

  // Commits to the complete header and returns it with this party's signature added to those of the
  // parties after it; the backend signs first. INVALID_ARGUMENT unless the header is this party's
  // draft plus later parties' keys. FAILED_PRECONDITION if there is no such draft (any more), or
  // this party has taken another epoch of the table since it made the draft.
  absl::StatusOr<wire::SignedHeader> SignHeader(const wire::SignedHeader& from_next);

  // Erases the draft or the round with this counter after its proposal failed. OK if there is none.
  absl::Status Withdraw(RoundCounter counter);

  // At a machine that is not the head: opens a round as the head has signed it. INVALID_ARGUMENT or
  // UNAUTHENTICATED for a header that the head does not sign, or that has not this party's onion
  // key; FAILED_PRECONDITION for another epoch of the table than this machine's;
  // RESOURCE_EXHAUSTED when too many rounds are open; ALREADY_EXISTS; those of joining. The
  // machines of the round are told of an error.
  absl::Status Open(const RoundOpening& opening) ABSL_LOCKS_EXCLUDED(mutex_);

  // Makes this party's noise for a round that it has signed, unless that is made already: for the
  // half whose head it is. May be called ahead of time, from any thread.
  absl::Status PrepareNoise(const Digest& round_id);

  // The bytes of an answer with its tag, of one half in a round of two tiers, in a round that this
  // party has signed. NOT_FOUND if it is not open.
  absl::StatusOr<uint64_t> AnswerBytes(const Digest& round_id) const;

  // Bounds on the input of Offline and Queries in any round, of any epoch with open rounds.
  // Receivers read no more.
  struct InputLimits {
    // For so many onions of this length.
    InputLimits(uint64_t onions, size_t onion_bytes);
    uint64_t offline_bytes;
    uint64_t queries_bytes;
    // At the head of half B: of HeadOffline, HeadQueries and HeadAnswers. Else 0.
    uint64_t pieces_bytes = 0;
    uint64_t parts_bytes = 0;
    uint64_t half_answers_bytes = 0;
  };
  InputLimits MaxInput() const;
  // The onions, and so the queries, in that input.
  uint64_t MaxOnions() const;

  // The input of the offline stage while it arrives: opened piece by piece, committed to when
  // complete. A round has at most one living Intake.
  using Intake = ListIntake;
  // Begins an input of `bytes` bytes: of onions, this machine's slice of a list; at party 1, of
  // submissions (offline.h). If another one is on its way in, that one is given up. UNAUTHENTICATED
  // unless the header is signed by all and is the one that this party signed; INVALID_ARGUMENT if
  // `bytes` is not the length of a list for this party, or `stage` lacks the number of records that
  // party 1 and each of several machines needs; FAILED_PRECONDITION once a list of another
  // length was taken. For I/O threads: neither this call nor the intake waits for other long work;
  // but one of several machines of party 1 waits until all begin.
  // The head of half B gets submissions, too, as party 1 does.
  absl::StatusOr<std::shared_ptr<Intake>> BeginOffline(const wire::SignedHeader& header,
                                                       uint64_t bytes, const StageTry& stage = {},
                                                       sharing::Half half = sharing::Half::kA);
  // Returns the list for the next party (empty at the backend), made as it is read. Takes the list
  // from `rest` first, if there is one, whose errors it returns. INVALID_ARGUMENT if the input is
  // not complete. Once the input is committed to, the onion key is erased, and what the noise and
  // the permutation were drawn from. The same input may come again, until queries are taken, and
  // gets the list that was kept, or null once all have sent it; FAILED_PRECONDITION afterwards.
  //
  // One of several machines waits until all have their slices in the same try. ABORTED if another
  // machine is at a later one; INVALID_ARGUMENT if the machines were told lists of different
  // lengths, or not the slices of one.
  //
  // Sources that this and the calls below return must not outlive the party. Reading them gives
  // FAILED_PRECONDITION once the round has ended or an earlier call was repeated.
  absl::StatusOr<std::unique_ptr<ByteSource>> Offline(std::shared_ptr<Intake> intake,
                                                      ByteSource* rest = nullptr);
  // Calls `send` with what this machine has of the list for the next party that Offline has
  // returned, or of the queries that Queries has, when all machines have come so far. Returns OK
  // when all machines' calls have, and else the first error by rank; as soon as one has failed, the
  // calls of the others are told so (OwnRun::given_up). `send` must read the list to its end or
  // destroy it. A list that all have sent is erased, so that queries need not wait for that; but
  // not while a source lives that a repeated call of Offline has returned.
  absl::Status SendTogether(const Digest& round_id, absl::string_view what, uint64_t attempt,
                            const std::function<absl::Status(const OwnRun& mine)>& send);
  // Whether a try of a stage of the round has begun, here and at all other machines: what comes for
  // a later one has to wait. Always true at a party of one machine.
  bool IsAtWork(const Digest& round_id, uint64_t attempt) const;

  // At party 1 of a round of two tiers, before Offline of either half: reads what clients have
  // submitted, pieces A and pieces B, each as Submissions has them, and returns it once the party
  // has committed to all of it. FAILED_PRECONDITION if other submissions were taken before; errors
  // of the sources and of the spools. Each source is read once.
  struct Pieces {
    Spool a, b;
  };
  absl::StatusOr<Pieces> TakePieces(const Digest& round_id, ByteSource& a, ByteSource& b);

  // At every party but the backend: takes this machine's slice of the queries and returns its slice
  // of the next party's. Then erases the noise queries and the shares. The same queries get the
  // same bytes, which are kept. One of several machines waits until all have theirs; errors as
  // Offline. Here and below FAILED_PRECONDITION, naming both stages (round_stage.h), if the stage
  // before is not done.
  //
  // In a half the head's part: parts of queries come in, and what they are for the tail goes out.
  // FAILED_PRECONDITION, here and below, also while a list of the other half is missing.
  absl::StatusOr<QueriesOut> Queries(const Digest& round_id, QueriesIn queries,
                                     const StageTry& stage = {},
                                     sharing::Half half = sharing::Half::kA);
  // At every party but the backend: takes all answers of the next party, in parts as they come, and
  // returns those for the previous one. INVALID_ARGUMENT for a wrong number of bytes; errors of the
  // source. The list that party 1 may take from the source has the memory that the round has
  // reserved for it (round_memory.h), and may outlive the round.
  absl::StatusOr<std::unique_ptr<AnswerSource>> Answers(const Digest& round_id,
                                                        PartedSource& answers,
                                                        sharing::Half half = sharing::Half::kA);
  // At the backend: takes queries and returns the answers for the previous party. At the tail of a
  // half all of them are made first, and what they were made of is erased.
  absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(const Digest& round_id,
                                                            QueriesIn queries,
                                                            const StageTry& stage = {},
                                                            sharing::Half half = sharing::Half::kA);
  // At the head of half B: begins an input of so many bytes of answers, for Answers. If another one
  // is on its way in, that one is given up. INVALID_ARGUMENT unless that is the length of the
  // answers to the queries that went on; FAILED_PRECONDITION before there were any. For I/O
  // threads.
  absl::StatusOr<std::shared_ptr<HalfAnswersIntake>> BeginHalfAnswers(const Digest& round_id,
                                                                      uint64_t bytes);
  // At party 1 of a round of two tiers: the most bytes that party 2, as the head of half B, may
  // return of its list and of a batch over it. NOT_FOUND if the round is not open.
  struct Returned {
    uint64_t list_bytes, batch_bytes;
  };
  absl::StatusOr<Returned> MostReturned(const Digest& round_id) const;
  // At party 1, for `queries` of clients: takes all that party 2, the head of half B, returns, and
  // returns it once it is committed to. INVALID_ARGUMENT for a wrong number of bytes;
  // FAILED_PRECONDITION before this party has answered half B, or if other answers were taken
  // before; errors of the source.
  absl::StatusOr<std::unique_ptr<AnswerSource>> TakeHeadAnswers(const Digest& round_id,
                                                                uint64_t queries,
                                                                ByteSource& answers);

  // Ends every round and draft that the frontend's list says has ended (src/round/live_rounds.h).
  // Returns the list's rounds that are not open here. Errors: those of CheckLiveRounds; nothing has
  // then ended. Waits for no call that works on a round: such a call fails at its next step, and
  // what it holds goes with it. An end that the journal cannot store is tried again at the next
  // call.
  absl::StatusOr<std::vector<RoundCounter>> TakeLive(const wire::SignedLiveRounds& live)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Signs such a list, at party 1.
  wire::SignedLiveRounds SignLive(wire::LiveRounds list) const;

  // Erases the round: seeds, onion key, permutation, noise. Waits for a call that works on it. OK
  // if there is no such round.
  absl::Status End(const Digest& round_id);
  // Erases every round and draft. To be called before the process ends.
  void EndAll();
  // Erases expired rounds, drafts that were not completed in time, and whatever is older than
  // kUnheardLimitS if no list was taken for as long. All times are those that have passed since the
  // draft came, on the steady clock. Waits as TakeLive.
  void EndExpired() ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the first i for which tokens[i] is not the token of position slots[i], or the number of
  // tokens if there is none. Dead positions have no token. At party 1, after Offline. The arrays
  // have equal length.
  // In a round of two tiers these are the tokens of half A.
  size_t FirstWrongToken(const Digest& round_id, std::span<const uint32_t> slots,
                         std::span<const sharing::Token> tokens) const;
  // The same in a round of two tiers for part A | part B of each slot's query (sharing/halves.h),
  // one after the other, by the tag of part A, which covers both.
  size_t FirstWrongPart(const Digest& round_id, std::span<const uint32_t> slots,
                        BytesView parts) const;

  // The number of drafts and rounds that this party holds.
  size_t open_rounds() const ABSL_LOCKS_EXCLUDED(mutex_);

  // The stage of a round that this party has signed and that has not ended, of two halves the
  // earlier one; NOT_FOUND otherwise. Waits for no call that works on the round.
  absl::StatusOr<PartyStage> Stage(const Digest& round_id) const;

  // What the round has cost at this party so far, times in hundredths of a second. Nothing before
  // its offline list is committed to, or those of both halves. Reports are public: the frontend
  // shows them to anybody who asks. An observer of the links can count everything in them but the
  // noise total, which the neighbours can count once the list goes on (docs/threat-model.md).
  std::vector<wire::StageReport> Reports(const Digest& round_id) const;

 private:
  using RoundPointer = std::shared_ptr<OpenRound>;
  // A round, or halves A and B of one.
  using RoundParts = std::vector<RoundPointer>;

  Party(Options options, std::shared_ptr<const TableEpoch> table, const signature::SecretKey* key,
        Journal* journal, RandomSource* random, const Clock* clock, Resources resources);
  static absl::Status CheckOptions(const Options& options);
  absl::Status Open(const RoundOpening& opening, const Digest& id,
                    const std::shared_ptr<machines::Machines>& machines)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<RoundParts> FindAll(const Digest& round_id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // FAILED_PRECONDITION for half B of a round for rows.
  absl::StatusOr<RoundPointer> Find(const Digest& round_id,
                                    sharing::Half half = sharing::Half::kA) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // To be called where the round was taken out of the maps, under their lock: the lists that are on
  // their way in.
  static std::vector<std::shared_ptr<Intake>> Leave(const RoundParts& parts);
  // FAILED_PRECONDITION unless `epoch` is the newest one.
  absl::Status CheckNewest(const TableEpoch& epoch) const ABSL_LOCKS_EXCLUDED(table_mutex_);
  // Ends a draft; false if there is none. Leaves the journal's part to the caller.
  bool DropDraftLocked(RoundCounter counter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends every round and draft for which `why` returns a reason.
  void EndThose(const std::function<absl::string_view(const OpenRound&, bool draft)>& why)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The checks of a draft that need nothing but the draft.
  absl::Status CheckDraft(const wire::RoundHeader& draft, const TableEpoch& table) const;
  // The signatures of the parties after this one.
  absl::StatusOr<std::vector<signature::Signature>> SignaturesOf(
      const wire::SignedHeader& from_next) const;
  // Where this party is in the chain of a round with this header, or in those of its halves.
  std::vector<ChainPlace> PlacesIn(const wire::RoundHeader& header) const;
  RoundContext MakeContext(const wire::RoundHeader& header, const Digest& round_id,
                           const ChainPlace& place) const;
  // The same with the onion keys of the later parties, of a complete header.
  absl::StatusOr<RoundContext> MakeWholeContext(const wire::RoundHeader& header,
                                                const Digest& round_id,
                                                const ChainPlace& place) const;
  // The error of a list that comes in. At party 1 it is this machine's own, for which the others
  // would wait; elsewhere the party before sends the list again.
  absl::Status ListFailed(OpenRound& open, const absl::Status& why);
  // RoundServices::break_off.
  absl::Status Break(OpenRound& open, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status EndInJournal(RoundCounter counter) const;

  // Of the epochs that rounds are open of; buckets and records are 0 without two tiers.
  struct Largest {
    uint64_t rows = 0, buckets = 0, record_bytes = 0, answer_bytes = 0;
  };
  Largest LargestOfEpochs() const ABSL_LOCKS_EXCLUDED(table_mutex_);
  uint64_t MaxOnions(const Largest& largest) const;

  const Options options_;                  // without the table
  const signature::SecretKey* const key_;  // null at a machine that is not the head
  Journal* const journal_;                 // the same
  RandomSource* const random_;
  const Clock* const clock_;
  const Resources resources_;
  const std::unique_ptr<const RoundServices> services_;
  const noise::Distribution noise_;

  Mutex take_mutex_;  // held by TakeEpoch, while the journal writes too
  // Held for moments, on I/O threads too.
  mutable Mutex table_mutex_ ABSL_ACQUIRED_AFTER(mutex_, take_mutex_);
  std::shared_ptr<const TableEpoch> table_ ABSL_GUARDED_BY(table_mutex_);
  // Epochs before it, as long as rounds keep them.
  std::vector<std::weak_ptr<const TableEpoch>> earlier_ ABSL_GUARDED_BY(table_mutex_);
  // At a machine that is not the head: the earlier epochs of which the head may still open rounds,
  // rising, and since when it has a newer one.
  struct Kept {
    std::shared_ptr<const TableEpoch> epoch;
    std::optional<uint64_t> passed_s = std::nullopt;  // on the steady clock
  };
  std::vector<Kept> kept_ ABSL_GUARDED_BY(table_mutex_);

  Mutex draft_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // held by ExtendDraft, over the journal's disk
  // Held briefly: I/O threads take it.
  mutable Mutex mutex_;
  std::map<RoundCounter, RoundParts> drafts_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, RoundParts> rounds_ ABSL_GUARDED_BY(mutex_);
  std::set<RoundCounter> unwritten_ ABSL_GUARDED_BY(mutex_);  // ended, but not yet in the journal
  uint64_t heard_s_ ABSL_GUARDED_BY(mutex_) = 0;              // on the steady clock: the last list
  uint32_t opened_ ABSL_GUARDED_BY(mutex_) = 0;               // rounds, at the head
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_PARTY_H_
