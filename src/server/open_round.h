// One round at a party, or one half of a round of two tiers: its stage, what it holds in each, and
// what the party does with it there. Which rounds there are, and when they end, is the party's to
// say (party.h).
#ifndef SHOAL_SRC_SERVER_OPEN_ROUND_H_
#define SHOAL_SRC_SERVER_OPEN_ROUND_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/base/tagged.h"
#include "src/machines/machines.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/mutex.h"
#include "src/server/half_online.h"
#include "src/server/journal.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/part_streams.h"
#include "src/server/party_content.h"
#include "src/server/round_context.h"
#include "src/server/round_stage.h"
#include "src/server/slices.h"
#include "src/server/stage_input.h"
#include "src/server/table_epoch.h"
#include "src/server/terms.h"
#include "src/sharing/halves.h"
#include "src/wire/client.pb.h"
#include "src/wire/query_batch.h"
#include "src/wire/round.pb.h"

namespace shoal::server {

// The machines of a party of one, for all rounds of a process.
inline std::shared_ptr<machines::Machines> Alone() {
  return {std::shared_ptr<void>(), &machines::Machines::Alone()};
}

// What all rounds of a party work with. Constant.
struct RoundServices {
  PartyNumber party;
  Journal* journal;  // null at a machine that is not the head
  Terms* terms;      // may be null
  Resources resources;
  // Party::Options has them.
  std::function<void(RoundCounter round, uint64_t opened, uint64_t onions)> progress;
  std::function<void(const wire::StageReport& report)> stage_done;
  // Ends a round of several machines after an error that they have not agreed about, at all of
  // them. Returns the error as the callers' callers get it. At a party of one machine, nothing but
  // that error.
  std::function<absl::Status(OpenRound& open, const absl::Status& why)> break_off;
};

// The chain that a round passes through, and this party's place in it. A round for rows passes
// through the roster's parties. Each half of a round of two tiers is a chain of two: party 2 of the
// roster is the first one of half B (docs/protocol.md, section 11).
struct ChainPlace {
  PartyNumber party;
  uint32_t parties;
  std::optional<sharing::Half> half = std::nullopt;

  bool is_first() const { return party.value() == 1; }
  bool is_last() const { return party.value() == parties; }
  // As reports and the journal name it; 0 in a round for rows.
  uint8_t half_number() const { return half.has_value() ? static_cast<uint8_t>(*half) : 0; }
};

// Which of a round's offline lists this party has committed to: one, or that of each half. Until it
// has committed to all, nothing is told of the noise in any of them. Thread-safe.
class OfflineLists {
 public:
  using Told = std::function<void(const wire::StageReport& report)>;
  // `told` may be empty.
  OfflineLists(uint32_t count, const Told& told) : told_(told), missing_(count) {}

  bool all_committed() const ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return missing_ == 0;
  }
  // To be called once for each list. Gives out the reports that waited for the last one.
  void Committed() ABSL_LOCKS_EXCLUDED(mutex_);
  // Gives the report out, at once or with the last list.
  void Tell(const wire::StageReport& report) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const Told told_;
  mutable Mutex mutex_;
  uint32_t missing_ ABSL_GUARDED_BY(mutex_);
  std::vector<wire::StageReport> waiting_ ABSL_GUARDED_BY(mutex_);
};

// What a machine of several says of its part of a call: nothing yet, or how it ended.
using ReportedStatus = std::optional<absl::Status>;

// The immutable part of a round whose header is signed. The round holds a reference until it ends,
// and so does every call that works on it, with what is in `held`; the secrets are wiped with the
// last reference. Whatever outlives such a call, as a source of bytes does, holds none.
struct RoundKeys {
  LastingSecrets secrets;
  RoundContext context;
  wire::RoundHeader header;  // as all have signed it

  // Contents are digested with a MAC under a key that is erased with the round, so that nobody else
  // can find collisions.
  ContentMac Mac(Content content) const {
    return ContentMac(secrets.ContentKey(), ContentName(content));
  }
};

using KeysPointer = std::shared_ptr<const RoundKeys>;
using OfflineSecretsPointer = std::shared_ptr<const OfflineSecrets>;

// One round, or half of one. Any thread may ask for its stage (round_stage.h) at any time; only the
// call that works on the round uses what it holds in that stage.
class OpenRound : public std::enable_shared_from_this<OpenRound> {
 public:
  // What a round, or a half, holds in each stage. The remaining stages hold nothing.
  struct Drafted {
    RoundSecrets secrets;
    std::optional<Seed> root;  // of these, where other machines of the party need it
  };
  struct Prepared {
    NoiseBatch noise;
  };
  struct Ready {
    // Shared with FirstWrongToken, which only reads.
    std::shared_ptr<OnlineMaterial> material;
    // The list for the next party, kept until that party has it in case the list that it was made
    // of comes again: nothing is left from which it could be made again. Null afterwards.
    std::shared_ptr<OrderedList> list;
    // Lives as long as the source that hands the list out.
    std::weak_ptr<const void> reader;
    wire::StageReport report;  // of the stage, without what reading the list costs
  };
  struct Queried {  // also in kAnswered
    // The material without shares and noise, but at the backend. What answers are handed out from:
    // nothing else holds it but a call that makes a piece of them.
    AnswerKeysPointer keys;
    std::optional<Forwarding> forwarding;  // none at the backend; with what went on, for a repeat
    std::optional<AnswerIntake> intake = std::nullopt;  // while answers come in
  };
  // At the tail of a half, also in kAnswered, in place of Queried: all that is left of the queries,
  // and of the seeds that opened and answered them.
  struct HalfAnswered {
    std::shared_ptr<const Spool> answers;
    uint64_t queries;
  };
  using Held = std::variant<std::monostate, Drafted, Prepared, Ready, Queried, HalfAnswered>;

  // `s` must outlive the round. `l` is that of the other half, too.
  OpenRound(const RoundServices& s, const ChainPlace& p, std::shared_ptr<OfflineLists> l,
            wire::RoundHeader d, Held drawn, std::shared_ptr<const TableEpoch> t, uint64_t now_s)
      : services(s),
        place(p),
        lists(std::move(l)),
        draft(std::move(d)),
        table(std::move(t)),
        drafted_s(now_s),
        held(std::move(drawn)) {}

  // --- what a party does with its rounds; Party has the same calls, and says with which errors

  // A list of `most_bytes` at most.
  absl::StatusOr<std::shared_ptr<ListIntake>> BeginList(uint64_t bytes, const StageTry& stage,
                                                        uint64_t most_bytes)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::StatusOr<std::unique_ptr<ByteSource>> Offline(ListIntake& list)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::Status SendTogether(absl::string_view what, uint64_t of_try,
                            const std::function<absl::Status(const OwnRun& mine)>& send)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::StatusOr<QueriesOut> Queries(QueriesIn queries, const StageTry& stage)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::StatusOr<std::unique_ptr<AnswerSource>> Answers(PartedSource& answers)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::StatusOr<std::shared_ptr<HalfAnswersIntake>> BeginHalfAnswers(uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(QueriesIn queries,
                                                            const StageTry& stage)
      ABSL_LOCKS_EXCLUDED(work, gate);
  // At party 1 of a round of two tiers: reads what clients or the other party have sent, commits to
  // it, and returns it. May be repeated with the same bytes.
  absl::StatusOr<Spool> TakeWhole(Content content, ByteSource& source)
      ABSL_LOCKS_EXCLUDED(work, gate);
  // Becomes kSigned, which has to come next (checked). Returns the root of its secrets, where other
  // machines of the party need it.
  std::optional<Seed> BecomeSigned(const wire::RoundHeader& header, const Digest& round_id,
                                   RoundContext context, std::shared_ptr<machines::Machines> joined)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work, gate);
  // Makes the party's noise unless that was done.
  absl::Status MakeNoise(const RoundKeys& round_keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate);

  // --- the round itself

  class Working;
  class Outgoing;
  class OutgoingAnswers;

  // For a stage, which gives up when the round ends.
  Resources resources() const;

  const RoundServices& services;
  const ChainPlace place;
  const std::shared_ptr<OfflineLists> lists;
  const wire::RoundHeader draft;  // as this party sent it on
  // The epoch that the draft names, also after this party has taken another one.
  const std::shared_ptr<const TableEpoch> table;
  const uint64_t drafted_s;  // on the steady clock

  // Of a signed round: its id, also in a half, and the machines of the party. Used by the call that
  // works on the round, but for GiveUp.
  Digest id = {};
  std::shared_ptr<machines::Machines> machines = Alone();
  // Nobody waits for this machine: what comes to it, and what it sends, is the whole.
  bool alone() const { return machines->count() == 1; }

  // Held by the call that works on the round, for a whole stage: making noise takes minutes. Never
  // taken on an I/O thread or under `gate`. Locked by Working alone.
  Mutex work ABSL_ACQUIRED_BEFORE(gate);
  Held held ABSL_GUARDED_BY(work);
  std::atomic<bool> ended = false;  // set by Leave; stages look at it
  // The report of the noise, until the offline list is committed to: nothing of it is told before.
  std::optional<wire::StageReport> noise_report ABSL_GUARDED_BY(work);
  // The latest try that this machine has come to.
  uint64_t attempt ABSL_GUARDED_BY(work) = 0;
  // At several machines: the output that is being read, and whether there is one.
  Outgoing* onward ABSL_GUARDED_BY(work) = nullptr;
  std::atomic<bool> reading = false;

  // Held briefly, on I/O threads too.
  mutable Mutex gate;
  RoundStage<PartyStage> stage ABSL_GUARDED_BY(gate){PartyStage::kDrafted};
  // Counts the changes of `held`. What was made from an earlier generation is no longer valid.
  uint64_t generation ABSL_GUARDED_BY(gate) = 0;
  uint64_t begun ABSL_GUARDED_BY(gate) = 0;  // the latest try that all machines have come to
  KeysPointer keys ABSL_GUARDED_BY(gate);    // from kSigned to the end
  OfflineSecretsPointer secrets ABSL_GUARDED_BY(gate);     // in kSigned and kPrepared
  std::weak_ptr<ListIntake> intake ABSL_GUARDED_BY(gate);  // one offline list at a time
  // The length of the offline list that was committed to.
  std::optional<uint64_t> list_bytes ABSL_GUARDED_BY(gate);
  std::weak_ptr<HalfAnswersIntake> half_answers ABSL_GUARDED_BY(gate);
  // At the head of a half, from kQueried to the end: how many queries went on.
  std::optional<uint64_t> forwarded ABSL_GUARDED_BY(gate);
  // From kReady to the end; at the tail of a half until it has answered.
  std::shared_ptr<const OnlineMaterial> material ABSL_GUARDED_BY(gate);
  std::vector<wire::StageReport> reports ABSL_GUARDED_BY(gate);

  RoundCounter counter() const { return RoundCounter(draft.counter()); }

  // FAILED_PRECONDITION unless `to` may come next.
  absl::Status Check(PartyStage to) const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    return stage.Check(to);
  }

  // The same for a call of a neighbour that comes after the offline stage, while the offline list
  // is not committed to; OK afterwards. Such a call must not wait for `work`: how long making noise
  // takes tells how much there is.
  // In a half, FAILED_PRECONDITION also while that of the other half is not committed to.
  absl::Status CheckListTaken(PartyStage to) const ABSL_LOCKS_EXCLUDED(gate) {
    {
      const MutexLock lock(gate);
      if (secrets != nullptr) return stage.Check(to);
    }
    if (!place.half.has_value() || lists->all_committed()) return absl::OkStatus();
    return absl::FailedPreconditionError("the list of the other half is not committed to");
  }

  // Advances to stage `to`, which holds `content`. FAILED_PRECONDITION, and nothing changes, if
  // `to` may not come next; the round may have ended meanwhile.
  template <typename Content>
  absl::Status Become(PartyStage to, Content content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate) {
    {
      const MutexLock lock(gate);
      SHOAL_RETURN_IF_ERROR(stage.Advance(to));
      ++generation;
      if constexpr (std::is_same_v<Content, Ready>) material = content.material;
      if constexpr (std::is_same_v<Content, HalfAnswered>) material.reset();
      if (to == PartyStage::kOffline) secrets.reset();
    }
    held = std::move(content);
    return absl::OkStatus();
  }

  // The same for a stage that holds what the stage before it held.
  absl::Status Advance(PartyStage to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    return stage.Advance(to);
  }

  // The same for a stage whose input came again. What an earlier call was handing out, or taking,
  // ends.
  absl::Status Repeat(PartyStage to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    SHOAL_RETURN_IF_ERROR(stage.Advance(to));
    ++generation;
    return absl::OkStatus();
  }

  // The keys of a signed round. NOT_FOUND once it has ended.
  absl::StatusOr<KeysPointer> Keys() const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    if (keys == nullptr) return absl::NotFoundError("round ended");
    return keys;
  }

  // What the offline stage needs until its list is committed to. NOT_FOUND afterwards.
  absl::StatusOr<OfflineSecretsPointer> Secrets() const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    if (secrets == nullptr) return absl::NotFoundError("round ended");
    return secrets;
  }

  // Lets go of what needs no wait, so that no call begins and a running one gives up at its next
  // step. To be called once, by whoever took the round out of the party's maps, under their lock.
  // Returns the list that is on its way in, if there is one: the caller takes its work, and calls
  // DropIfEnded.
  std::shared_ptr<ListIntake> Leave() ABSL_LOCKS_EXCLUDED(gate) {
    ended = true;
    const MutexLock lock(gate);
    const absl::Status left = stage.Advance(PartyStage::kEnded);
    SHOAL_CHECK(left.ok());  // from any stage
    ++generation;
    keys.reset();
    secrets.reset();
    material.reset();
    if (const auto answers = half_answers.lock(); answers != nullptr) answers->Drop();
    machines->GiveUp();
    return intake.lock();
  }

  // Drops what an ended round holds, unless a call works on it. That call does so when it is done,
  // which is soon. Other calls may know the round for longer: they wait for a neighbour.
  void DropIfEnded() ABSL_LOCKS_EXCLUDED(work) {
    if (!ended || !work.TryLock()) return;
    held = std::monostate();
    work.Unlock();
  }

  uint64_t Generation() const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    return generation;
  }
  // FAILED_PRECONDITION if `held` has changed since generation `then`, or the round has ended.
  absl::Status CheckGeneration(uint64_t then) const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    if (generation == then && stage.get() != PartyStage::kEnded) return absl::OkStatus();
    return absl::FailedPreconditionError("the round has ended, or its stage was begun again");
  }

 private:
  // Null without a journal: then the head stores it.
  StoreDigest Store(Content content) const;

  // INVALID_ARGUMENT for one of several machines, but at party 1, that was not told how long the
  // whole list is.
  absl::Status CheckRecords(const StageTry& present) const;

  // Waits until all machines have come to one try of a stage. A machine that is at an earlier one
  // is told so by this call, and comes again; those at the latest one wait for it. `records`: how
  // long the list must be, if that is known. Errors that are the same at all machines go to
  // `agreed`; others are returned.
  absl::Status ComeTogether(absl::string_view what, const StageTry& present,
                            std::optional<uint64_t> records, absl::Status& agreed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // What all machines say of their parts of a call, by rank. A machine that is alone says all of an
  // error.
  absl::StatusOr<std::vector<ReportedStatus>> Say(absl::string_view what,
                                                  const ReportedStatus& mine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);

  // The next party has all of a list, and nobody hands it out any more: erases it, so that queries
  // need not wait for that.
  void ListPassedOn() ABSL_LOCKS_EXCLUDED(work, gate);

  // Of SendTogether: tells the others how this machine's call has ended, if it has. Whether those
  // of all have. `result`: the first error by rank of those that were told first, the same at all
  // machines, and not that of a call that was given up because of it.
  bool AgreeOnSent(absl::string_view what, const ReportedStatus& now, std::atomic<bool>& given_up,
                   absl::Status& result) ABSL_LOCKS_EXCLUDED(work, gate);

  // Makes a report of this machine's part of a stage one of the party's: sums, and the longest
  // time.
  absl::Status Total(wire::StageReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);

  // Begins to hand an output out; when all of it has been read.
  absl::Status StartOutput(Outgoing& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);
  absl::Status OutputIsRead(wire::StageReport report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);
  // Reads the output that is being read to its end in place of its reader, which has broken off:
  // otherwise the other machines would wait for this one's part of the digest.
  void FinishOutput() ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);

  // What each machine has of a list of `bytes` bytes here.
  absl::StatusOr<std::vector<PartyContent::Part>> PartsOfList(uint64_t bytes,
                                                              const StageTry& present,
                                                              uint64_t most_bytes) const;

  // The stages at this machine, once all have come to them.
  absl::StatusOr<std::unique_ptr<ByteSource>> OfflineOf(ListIntake& list_in)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);
  // Afterwards the round holds the queries for the next party.
  absl::Status TakeOn(QueriesIn in) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);
  absl::StatusOr<std::unique_ptr<ByteSource>> AnswersTo(QueriesIn in)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);
  // Waits until all machines have their batches. Ends the round after an error that they have not
  // agreed about.
  absl::Status ComeToQueries(const StageTry& present) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate);
  // Answers, step by step; the error that all machines return, if it is one, goes to `agreed`.
  struct AnswersComing;
  absl::Status BeginAnswers(std::span<const uint64_t> part_bytes, AnswersComing& coming)
      ABSL_LOCKS_EXCLUDED(work, gate);
  // Takes what comes. `broke_off`: the source's error.
  absl::Status TakeAnswers(PartedSource& answers, AnswersComing& coming, absl::Status& broke_off)
      ABSL_LOCKS_EXCLUDED(work, gate);
  absl::StatusOr<std::unique_ptr<AnswerSource>> PassAnswersOn(AnswersComing& coming)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);
  absl::StatusOr<std::unique_ptr<AnswerSource>> AnswersOf(PartedSource& answers,
                                                          absl::Status& agreed)
      ABSL_LOCKS_EXCLUDED(work, gate);

  // What answers to these queries are made of.
  AnswerKeysPointer KeysOfAnswers(const KeysPointer& round_keys,
                                  std::shared_ptr<const OnlineMaterial> made,
                                  wire::QueryBatch queries) const;

  // Stores the round's term, if it has one: before any of this party's answers leaves.
  absl::Status KeepTerm(const RoundKeys& round_keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate);

  // Commits to an offline list, erases what opened it, and runs the rest of the stage: the round is
  // then kReady.
  absl::Status TakeOnions(const RoundKeys& round_keys, ListWork& list)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  struct Taken {
    // Nothing if they came before: then the round still holds what was made of them. In a half
    // without tallies: `records` has what came with the positions.
    std::optional<wire::QueryBatch> queries = std::nullopt;
    wire::RecordBatch records = {};
    uint64_t bytes = 0;  // of their encoding
  };
  // Commits to queries.
  absl::StatusOr<Taken> TakeQueries(QueriesIn in, const RoundKeys& round_keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // The same of the bytes, for positions of this round or half.
  absl::StatusOr<Taken> Decode(BytesView encoded, const RoundContext& context,
                               uint32_t positions) const;
  // The tail's part of AnswersTo.
  absl::StatusOr<std::unique_ptr<ByteSource>> HalfAnswersTo(QueriesIn in)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // An error of a half without its figures, until all lists are committed to: what is missing tells
  // how much noise there is. Other errors as they are.
  absl::Status Quiet(const absl::Status& error) const;

  // A stage that is repeated with the same input replaces its report.
  void Report(wire::StageReport report) ABSL_LOCKS_EXCLUDED(gate);
};

// Holds a round to work on it.
class ABSL_SCOPED_LOCKABLE OpenRound::Working {
 public:
  explicit Working(OpenRound& open) ABSL_EXCLUSIVE_LOCK_FUNCTION(open.work) : open_(open) {
    open_.work.Lock();
  }
  ~Working() ABSL_UNLOCK_FUNCTION() {
    open_.work.Unlock();
    open_.DropIfEnded();
  }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  OpenRound& open_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_OPEN_ROUND_H_
