#include "src/server/party.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/parallel/thread_pool.h"
#include "src/sharing/batch.h"
#include "src/wire/visible.h"

namespace shoal::server {
namespace {

// Wall and processor time of one stage, or of a piece of it.
class StageTimer {
 public:
  double seconds() const { return wall_.Seconds(); }
  double cpu_seconds() const { return cpu_.Seconds(); }
  void AddTo(wire::StageReport& report) const {
    report.set_seconds(report.seconds() + seconds());
    report.set_cpu_seconds(report.cpu_seconds() + cpu_seconds());
  }

 private:
  const Stopwatch wall_;
  const CpuMeter cpu_;
};

wire::StageReport ReportOf(PartyNumber party, absl::string_view stage) {
  wire::StageReport report;
  report.set_party(party.value());
  report.set_stage(std::string(stage));
  return report;
}

}  // namespace

absl::StatusOr<Digest> ParseRoundId(absl::string_view bytes) {
  Digest id;
  if (bytes.size() != id.size()) return absl::InvalidArgumentError("a round id has 32 bytes");
  std::ranges::copy(AsBytes(bytes), id.begin());
  return id;
}

// The immutable part of a round whose header is signed. The round holds a reference until it ends,
// and so does every call that works on it; the secrets are wiped with the last reference.
struct Party::RoundKeys {
  LastingSecrets secrets;
  RoundContext context;

  // Contents are digested with a MAC under a key that is erased with the round, so that nobody else
  // can find collisions.
  ContentMac Mac(Content content) const {
    return ContentMac(secrets.ContentKey(), ContentName(content));
  }
  Digest MacOf(Content content, BytesView bytes, ThreadPool& pool) const {
    return Mac(content).Of(bytes, pool);
  }
};

// One round. Any thread may ask for its stage (round_stage.h) at any time; only the call that works
// on the round uses what it holds in that stage.
struct Party::OpenRound {
  // What a round holds in each stage. The remaining stages hold nothing.
  struct Drafted {
    RoundSecrets secrets;
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
  struct Queried {                             // also in kAnswered
    std::shared_ptr<OnlineMaterial> material;  // without shares and noise, but at the backend
    wire::QueryBatch queries;
    std::optional<Forwarding> forwarding;  // none at the backend
    Bytes forwarded;  // kept in case the queries come again; none at the backend
    std::optional<AnswerIntake> intake = std::nullopt;  // while answers come in
  };
  using Held = std::variant<std::monostate, Drafted, Prepared, Ready, Queried>;

  OpenRound(wire::RoundHeader d, RoundSecrets drawn, std::shared_ptr<const TableEpoch> t,
            uint64_t now_s, const std::function<void(const wire::StageReport&)>* done)
      : draft(std::move(d)),
        table(std::move(t)),
        drafted_s(now_s),
        stage_done(done),
        held(Drafted{std::move(drawn)}) {}

  const wire::RoundHeader draft;  // as this party sent it on
  // The epoch that the draft names, also after this party has taken another one.
  const std::shared_ptr<const TableEpoch> table;
  const uint64_t drafted_s;                                               // on the steady clock
  const std::function<void(const wire::StageReport&)>* const stage_done;  // the party's

  // Held by the call that works on the round, for a whole stage: making noise takes minutes. Never
  // taken on an I/O thread or under `gate`. Locked by Working alone.
  Mutex work ABSL_ACQUIRED_BEFORE(gate);
  Held held ABSL_GUARDED_BY(work);
  std::atomic<bool> ended = false;  // set by Leave; stages look at it

  // Held briefly, on I/O threads too.
  mutable Mutex gate;
  RoundStage<PartyStage> stage ABSL_GUARDED_BY(gate){PartyStage::kDrafted};
  // Counts the changes of `held`. What was made from an earlier generation is no longer valid.
  uint64_t generation ABSL_GUARDED_BY(gate) = 0;
  KeysPointer keys ABSL_GUARDED_BY(gate);               // from kSigned to the end
  OfflineSecretsPointer secrets ABSL_GUARDED_BY(gate);  // in kSigned and kPrepared
  std::weak_ptr<Intake> intake ABSL_GUARDED_BY(gate);   // one offline list at a time
  // The length of the offline list that was committed to.
  std::optional<uint64_t> list_bytes ABSL_GUARDED_BY(gate);
  // From kReady to the end.
  std::shared_ptr<const OnlineMaterial> material ABSL_GUARDED_BY(gate);
  std::vector<wire::StageReport> reports ABSL_GUARDED_BY(gate);

  RoundCounter counter() const { return RoundCounter(draft.counter()); }

  // FAILED_PRECONDITION unless `to` may come next.
  absl::Status Check(PartyStage to) const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    return stage.Check(to);
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
  std::shared_ptr<Intake> Leave() ABSL_LOCKS_EXCLUDED(gate) {
    ended = true;
    const MutexLock lock(gate);
    const absl::Status left = stage.Advance(PartyStage::kEnded);
    SHOAL_CHECK(left.ok());  // from any stage
    ++generation;
    keys.reset();
    secrets.reset();
    material.reset();
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

  // Makes the party's noise unless that was done.
  absl::Status MakeNoise(const Party& party, const RoundKeys& round_keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // Commits to an offline list, erases what opened it, and runs the rest of the stage: the round is
  // then kReady.
  absl::Status TakeOnions(const Party& party, const RoundKeys& round_keys, IntakeWork& list)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // Commits to queries. Returns them decoded, or nothing if they came before: then the round still
  // holds what was made of them.
  absl::StatusOr<std::optional<wire::QueryBatch>> TakeQueries(BytesView encoded,
                                                              const RoundKeys& round_keys,
                                                              Journal& journal, ThreadPool& pool)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate) {
    SHOAL_RETURN_IF_ERROR(
        Annotate(Check(PartyStage::kQueried), "queries came before the offline stage was done"));
    std::optional<wire::QueryBatch> queries;
    if (const auto* const ready = std::get_if<Ready>(&held)) {
      SHOAL_ASSIGN_OR_RETURN(queries, wire::DecodeQueryBatch(encoded, ready->material->positions));
    }
    SHOAL_RETURN_IF_ERROR(
        journal.CommitRound(counter(), Content::kQueriesInput,
                            round_keys.MacOf(Content::kQueriesInput, encoded, pool)));
    if (!queries.has_value()) SHOAL_RETURN_IF_ERROR(Repeat(PartyStage::kQueried));
    return queries;
  }

  // A stage that is repeated with the same input replaces its report.
  void Report(wire::StageReport report) ABSL_LOCKS_EXCLUDED(gate) {
    report.set_seconds(wire::VisibleSeconds(report.seconds()));
    report.set_cpu_seconds(wire::VisibleSeconds(report.cpu_seconds()));
    if (*stage_done) (*stage_done)(report);
    const MutexLock lock(gate);
    std::erase_if(reports,
                  [&](const wire::StageReport& old) { return old.stage() == report.stage(); });
    reports.push_back(std::move(report));
  }
};

// Holds a round to work on it.
class ABSL_SCOPED_LOCKABLE Party::Working {
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

Resources Party::ResourcesFor(const OpenRound& open) const {
  return {.pool = resources_.pool, .spools = resources_.spools, .ended = &open.ended};
}

namespace {

// INVALID_ARGUMENT unless a party can serve this epoch of the table.
absl::Status CheckTable(const TableEpoch& table, const roster::Roster& roster, bool backend) {
  const size_t answer_bytes = table.facts.row_bytes + signature::kSignatureBytes;
  if (backend && (table.answers.rows != table.facts.rows ||
                  table.answers.bytes.size() != table.facts.rows * answer_bytes)) {
    return absl::InvalidArgumentError("the backend's table does not fit its manifest");
  }
  return noise::CheckPhi(roster.noise(), table.facts.rows);
}

absl::Status CommitTable(const TableEpoch& table, Journal& journal) {
  return journal.CommitEpoch(absl::StrCat("table ", Hex(table.id)), table.epoch,
                             table.facts.manifest_digest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Party>> Party::Create(Options options,
                                                     const signature::SecretKey& key,
                                                     Journal* journal, RandomSource* random,
                                                     const Clock* clock, Resources resources) {
  const uint32_t number = options.number.value();
  if (number < 1 || number > options.roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", number, ": the roster has ", options.roster.size(), " parties"));
  }
  if (!(key.public_key() == options.roster.party(number).key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", number, ": the secret key is not the one that the roster lists"));
  }
  SHOAL_RETURN_IF_ERROR(CheckTable(options.table, options.roster, number == options.roster.size()));
  SHOAL_RETURN_IF_ERROR(journal->CommitEpoch("roster " + options.roster.deployment(),
                                             options.roster.epoch(), options.roster.digest()));
  SHOAL_RETURN_IF_ERROR(CommitTable(options.table, *journal));
  auto table = std::make_shared<const TableEpoch>(std::exchange(options.table, {}));
  return std::unique_ptr<Party>(
      new Party(std::move(options), std::move(table), key, journal, random, clock, resources));
}

Party::Party(Options options, std::shared_ptr<const TableEpoch> table,
             const signature::SecretKey& key, Journal* journal, RandomSource* random,
             const Clock* clock, Resources resources)
    : options_(std::move(options)),
      key_(key),
      journal_(journal),
      random_(random),
      clock_(clock),
      resources_(resources),
      // A Roster exists only with noise parameters that give a distribution.
      noise_(*noise::Distribution::Create(options_.roster.noise())),
      table_(std::move(table)) {}

std::shared_ptr<const TableEpoch> Party::table() const {
  const MutexLock lock(table_mutex_);
  return table_;
}

absl::Status Party::CheckEpoch(const TableEpoch& next) const {
  const std::shared_ptr<const TableEpoch> present = table();
  if (next.id != present->id) {
    return absl::FailedPreconditionError(
        "another table, and no next epoch of the one that is served: its id is a new one");
  }
  if (next.epoch <= present->epoch) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", next.epoch,
                                                      " of the table is not after epoch ",
                                                      present->epoch, ", which is served"));
  }
  return noise::CheckPhi(roster().noise(), next.facts.rows);
}

absl::Status Party::TakeEpoch(TableEpoch next) {
  const MutexLock taking(take_mutex_);
  SHOAL_RETURN_IF_ERROR(CheckEpoch(next));
  SHOAL_RETURN_IF_ERROR(CheckTable(next, roster(), is_backend()));
  SHOAL_RETURN_IF_ERROR(CommitTable(next, *journal_));
  auto shared = std::make_shared<const TableEpoch>(std::move(next));
  const MutexLock lock(table_mutex_);
  std::erase_if(earlier_, [](const auto& epoch) { return epoch.expired(); });
  earlier_.push_back(table_);
  table_ = std::move(shared);
  return absl::OkStatus();
}

absl::Status Party::CheckNewest(const TableEpoch& epoch) const {
  const std::shared_ptr<const TableEpoch> present = table();
  if (present.get() == &epoch) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("has taken epoch ", present->epoch, " of the table meanwhile"));
}

RoundContext Party::MakeContext(const wire::RoundHeader& header, const Digest& round_id) const {
  RoundContext context{.counter = RoundCounter(header.counter()),
                       .round_id = round_id,
                       .party = number(),
                       .parties = roster().size(),
                       .answer_bytes = header.answer_bytes(),
                       .max_rows = header.max_rows(),
                       .max_slots = header.max_slots(),
                       .noise = noise_,
                       .next_recipients = {}};
  return context;
}

absl::StatusOr<wire::RoundHeader> Party::ExtendDraft(const wire::RoundHeader& draft) {
  const uint64_t now_s = clock_->NowSeconds();
  const std::shared_ptr<const TableEpoch> table = this->table();
  if (draft.roster_digest() == AsText(roster().digest()) &&
      draft.manifest_digest().size() == sizeof(Digest) &&
      draft.manifest_digest() != AsText(table->facts.manifest_digest)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "has another epoch of the table than the proposal names: epoch ", table->epoch));
  }
  SHOAL_RETURN_IF_ERROR(
      round::CheckHeader(draft, number().value() - 1, roster(), table->facts, now_s));
  const RoundCounter counter(draft.counter());
  if (counter <= journal_->highest_round()) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", counter.value(), ": counters only rise, and ",
                     journal_->highest_round().value(), " was used"));
  }
  // Refuses an old proposal even if its counter is new: a party whose journal was restored from an
  // old copy must not repeat rounds that the copy lacks.
  if (draft.announced_s() + roster().clock_tolerance_s() < now_s) {
    return absl::UnauthenticatedError(absl::StrCat("round ", counter.value(), ": announced ",
                                                   now_s - draft.announced_s(),
                                                   " seconds ago; is a clock wrong?"));
  }
  EndExpired();
  SHOAL_RETURN_IF_ERROR(CheckEmptyRound(MakeContext(draft, Digest()), resources_));
  // Nobody else adds a draft or a round meanwhile, so that what is checked here still holds below.
  const MutexLock drafting(draft_mutex_);
  {
    const MutexLock lock(mutex_);
    if (drafts_.contains(counter)) {
      return absl::FailedPreconditionError(
          absl::StrCat("round ", counter.value(), ": already drafted here"));
    }
    if (drafts_.size() + rounds_.size() >= options_.max_open_rounds) {
      return absl::ResourceExhaustedError(absl::StrCat("round ", counter.value(), ": ",
                                                       options_.max_open_rounds,
                                                       " rounds are open here already"));
    }
  }
  RoundSecrets secrets(random_->NewSeed());
  wire::RoundHeader extended = draft;
  extended.DiscardUnknownFields();  // only what was checked is sent on
  extended.add_onion_keys(ToString(secrets.OnionKeyPair().public_key));
  const MutexLock lock(mutex_);
  drafts_[counter] = std::make_shared<OpenRound>(extended, std::move(secrets), table,
                                                 clock_->SteadySeconds(), &options_.stage_done);
  return extended;
}

absl::StatusOr<wire::SignedHeader> Party::SignHeader(const wire::SignedHeader& from_next) {
  const wire::RoundHeader& header = from_next.header();
  const RoundCounter counter(header.counter());
  RoundPointer open;
  {
    const MutexLock lock(mutex_);
    if (const auto found = drafts_.find(counter); found != drafts_.end()) open = found->second;
  }
  const std::shared_ptr<const TableEpoch> table = open != nullptr ? open->table : this->table();
  SHOAL_RETURN_IF_ERROR(
      round::CheckHeader(header, roster().size(), roster(), table->facts, clock_->NowSeconds()));
  if (open == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", counter.value(), ": not drafted here, or signed already"));
  }
  // Spares a draft that can no longer be signed the record in the journal. The check that counts
  // is the one below.
  SHOAL_RETURN_IF_ERROR(CheckNewest(*table));
  const Working working(*open);
  SHOAL_RETURN_IF_ERROR(
      Annotate(open->Check(PartyStage::kSigned),
               absl::StrCat("round ", counter.value(), ": not drafted here, or signed already")));
  // The header must be the draft that this party sent on, plus the others' keys.
  wire::RoundHeader completed = open->draft;
  for (int i = completed.onion_keys_size(); i < header.onion_keys_size(); ++i) {
    completed.add_onion_keys(header.onion_keys(i));
  }
  const Digest id = round::RoundId(header);
  if (round::RoundId(completed) != id) {
    return absl::InvalidArgumentError(
        absl::StrCat("round ", counter.value(), ": its header came back changed"));
  }
  RoundContext context = MakeContext(header, id);
  for (uint32_t next = number().value() + 1; next <= roster().size(); ++next) {
    onion::PublicKey key;
    std::ranges::copy(AsBytes(header.onion_keys(static_cast<int>(next) - 1)), key.begin());
    SHOAL_ASSIGN_OR_RETURN(onion::Recipient recipient, onion::Recipient::Create(key));
    context.next_recipients.push_back(std::move(recipient));
  }

  std::vector<signature::Signature> signatures = {};
  if (is_backend()) {
    if (!from_next.signature().empty()) {
      return absl::InvalidArgumentError("round header: signed before the last party");
    }
  } else {
    SHOAL_ASSIGN_OR_RETURN(signature::Signature theirs,
                           signature::Signature::FromBytes(AsBytes(from_next.signature())));
    signatures.push_back(theirs);
  }
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(counter, Content::kHeader, id));
  signatures.push_back(key_.Sign(id));
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum,
                         signature::AggregateSignatures(signatures));
  absl::Status signed_now;
  {
    const MutexLock lock(mutex_);
    const MutexLock gate(open->gate);
    signed_now = CheckNewest(*table);
    if (signed_now.ok()) signed_now = open->stage.Advance(PartyStage::kSigned);
    if (signed_now.ok()) {
      ++open->generation;
      RoundSecrets& secrets = std::get<OpenRound::Drafted>(open->held).secrets;
      open->keys = std::make_shared<const RoundKeys>(
          std::move(static_cast<LastingSecrets&>(secrets)), std::move(context));
      open->secrets =
          std::make_shared<const OfflineSecrets>(std::move(static_cast<OfflineSecrets&>(secrets)));
      open->held = std::monostate();
      drafts_.erase(counter);
      rounds_[id] = open;
    }
  }
  if (!signed_now.ok()) {
    // Ends what was just committed to. No draft of this counter can be signed any more.
    SHOAL_RETURN_IF_ERROR(journal_->EndRound(counter));
    return Annotate(signed_now, absl::StrCat("round ", counter.value(), ": withdrawn or too old"));
  }
  wire::SignedHeader out;
  *out.mutable_header() = header;
  out.DiscardUnknownFields();
  out.set_signature(ToString(sum.bytes()));
  return out;
}

absl::Status Party::Withdraw(RoundCounter counter) {
  std::optional<Digest> signed_round;
  {
    const MutexLock lock(mutex_);
    const bool drafted = DropDraftLocked(counter);
    const auto found = std::ranges::find_if(
        rounds_, [&](const auto& entry) { return entry.second->counter() == counter; });
    if (found != rounds_.end()) signed_round = found->first;
    if (!drafted && !signed_round.has_value()) return absl::OkStatus();
  }
  return signed_round.has_value() ? End(*signed_round) : journal_->EndRound(counter);
}

bool Party::DropDraftLocked(RoundCounter counter) {
  const auto found = drafts_.find(counter);
  if (found == drafts_.end()) return false;
  const RoundPointer open = found->second;
  drafts_.erase(found);
  open->Leave();
  return true;
}

absl::StatusOr<Party::RoundPointer> Party::Find(const Digest& round_id) const {
  const MutexLock lock(mutex_);
  const auto found = rounds_.find(round_id);
  if (found == rounds_.end()) {
    return absl::NotFoundError(
        absl::StrCat("round ", Hex(BytesView(round_id).first(8)), "..: not open here"));
  }
  return found->second;
}

absl::StatusOr<PartyStage> Party::Stage(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  const MutexLock lock(open->gate);
  return open->stage.get();
}

absl::Status Party::OpenRound::MakeNoise(const Party& party, const RoundKeys& round_keys) {
  // The noise is made already, or used up already.
  if (!Check(PartyStage::kPrepared).ok()) return absl::OkStatus();
  SHOAL_ASSIGN_OR_RETURN(const OfflineSecretsPointer drawn, Secrets());
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(NoiseBatch noise,
                         server::MakeNoise(round_keys.context, *drawn, party.ResourcesFor(*this)));
  if (!party.is_backend()) {
    wire::StageReport report = ReportOf(party.number(), "noise");
    report.set_noise_queries(noise.size());
    timer.AddTo(report);
    Report(std::move(report));
  }
  return Become(PartyStage::kPrepared, Prepared{std::move(noise)});
}

absl::Status Party::PrepareNoise(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  const Working working(*open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  return open->MakeNoise(*this, *keys);
}

absl::StatusOr<uint64_t> Party::AnswerBytes(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return open->draft.answer_bytes();
}

Party::InputLimits Party::MaxInput() const {
  uint64_t rows;
  {
    const MutexLock lock(table_mutex_);
    rows = table_->facts.rows;
    for (const auto& earlier : earlier_) {
      if (const auto epoch = earlier.lock()) rows = std::max(rows, epoch->facts.rows);
    }
  }
  const uint64_t positions = std::min<uint64_t>(
      MaxPositions(number(), roster().max_slots(), rows, noise_), OnlineMaterial::kDead - 1);
  return {.offline_bytes = positions * onion::OnionBytes(roster().size() - number().value() + 1),
          .queries_bytes = wire::MaxQueryBatchBytes(static_cast<uint32_t>(positions))};
}

// Output on its way to a neighbour. Checks before every piece that the round still holds what the
// output is made of. Commits to the whole output before it hands out the last piece.
class Party::Outgoing final : public ByteSource {
 public:
  // The constructor and Start need open->work: `inner` reads what the round holds now.
  Outgoing(Party* party, RoundPointer open, const RoundKeys& keys, Content content,
           std::unique_ptr<ByteSource> inner, wire::StageReport report)
      : party_(party),
        open_(std::move(open)),
        content_(content),
        inner_(std::move(inner)),
        report_(std::move(report)),
        mac_(keys.Mac(content)),
        generation_(open_->Generation()),
        size_(inner_->size()) {
    report_.set_bytes_out(size_);
  }

  // Commits to an empty output at once.
  absl::Status Start() { return size() == 0 ? Commit() : absl::OkStatus(); }

  uint64_t size() const override { return size_; }

  absl::StatusOr<BytesView> Next() override {
    if (given_ == size()) return BytesView();
    const Working working(*open_);
    SHOAL_RETURN_IF_ERROR(open_->CheckGeneration(generation_));
    const StageTimer timer;
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, inner_->Next());
    SHOAL_CHECK(!piece.empty() && piece.size() <= size() - given_);
    digest_.Update(piece, *party_->resources_.pool);
    given_ += piece.size();
    timer.AddTo(report_);
    if (given_ == size()) SHOAL_RETURN_IF_ERROR(Commit());
    return piece;
  }

 private:
  absl::Status Commit() {
    const StageTimer timer;
    SHOAL_RETURN_IF_ERROR(
        party_->journal_->CommitRound(open_->counter(), content_, digest_.Finish()));
    timer.AddTo(report_);
    open_->Report(report_);
    return absl::OkStatus();
  }

  Party* const party_;
  const RoundPointer open_;
  const Content content_;
  const std::unique_ptr<ByteSource> inner_;
  wire::StageReport report_;
  const ContentMac mac_;
  ContentMac::Stream digest_{mac_};
  const uint64_t generation_;
  const uint64_t size_;  // a copy, as inner_->size() may read what the round holds
  uint64_t given_ = 0;
};

namespace {

// Reads a list that the round keeps. Holds none of it but the last piece, so that nothing else
// outlives the round, however slowly the piece is taken.
class ListReader final : public ByteSource {
 public:
  explicit ListReader(const std::shared_ptr<OrderedList>& list)
      : list_(list), size_(list->size()) {}
  uint64_t size() const override { return size_; }
  // Expires with this source.
  std::weak_ptr<const void> alive() const { return alive_; }
  absl::StatusOr<BytesView> Next() override {
    const std::shared_ptr<OrderedList> list = list_.lock();
    if (list == nullptr) return absl::FailedPreconditionError("the round has ended");
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, list->Next());
    piece_.assign(piece.begin(), piece.end());
    given_ += piece.size();
    if (given_ == size_) list->Rewind();
    return BytesView(piece_);
  }

 private:
  const std::weak_ptr<OrderedList> list_;
  const uint64_t size_;
  const std::shared_ptr<const void> alive_ = std::make_shared<char>();
  uint64_t given_ = 0;
  SecretVector<uint8_t> piece_;
};

}  // namespace

struct Party::IntakeWork {
  IntakeWork(KeysPointer k, uint64_t b, std::optional<OnionIntake> o)
      : keys(std::move(k)),
        bytes(b),
        onions(std::move(o)),
        mac(keys->Mac(Content::kOfflineInput)) {}
  const KeysPointer keys;
  const uint64_t bytes;
  uint64_t taken = 0;
  // None if a list was committed to before: whether this one is the same, its digest tells.
  std::optional<OnionIntake> onions;
  const ContentMac mac;
  ContentMac::Stream digest{mac};
  double seconds = 0, cpu_seconds = 0;  // spent in Take

  absl::Status Take(BytesView piece, ThreadPool& pool) {
    if (piece.size() > bytes - taken) {
      return absl::InvalidArgumentError("offline list: more bytes than were announced");
    }
    if (onions.has_value()) SHOAL_RETURN_IF_ERROR(onions->Take(piece));
    digest.Update(piece, pool);
    taken += piece.size();
    return absl::OkStatus();
  }
  // INVALID_ARGUMENT unless everything has come.
  absl::Status Check() const {
    if (taken == bytes && (!onions.has_value() || onions->complete())) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("offline list: ended after ", taken, " of ", bytes, " bytes"));
  }
};

Party::Intake::Intake(const Party* party, RoundPointer open, std::unique_ptr<IntakeWork> work)
    : party_(party), open_(std::move(open)), work_(std::move(work)) {}

Party::Intake::~Intake() = default;

std::unique_ptr<Party::IntakeWork> Party::Intake::TakeWork() {
  const MutexLock lock(mutex_);
  return std::move(work_);
}

absl::Status Party::Intake::Take(BytesView piece) {
  const StageTimer timer;
  const MutexLock lock(mutex_);
  if (work_ == nullptr) {
    return absl::FailedPreconditionError(
        "offline list: the round has ended, or the list came anew");
  }
  SHOAL_RETURN_IF_ERROR(work_->Take(piece, *party_->resources_.pool));
  work_->seconds += timer.seconds();
  work_->cpu_seconds += timer.cpu_seconds();
  if (party_->options_.progress && work_->onions.has_value()) {
    party_->options_.progress(open_->counter(), work_->onions->opened(), work_->onions->count());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(const wire::SignedHeader& header,
                                                                   uint64_t bytes) {
  if (number().value() == 1) {
    return absl::InvalidArgumentError("party 1 gets submissions, and no list of onions");
  }
  return BeginIntake(header, bytes, std::nullopt);
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(const wire::SignedHeader& header,
                                                                   uint64_t bytes,
                                                                   uint64_t onions) {
  SHOAL_CHECK(number().value() == 1);
  return BeginIntake(header, bytes, onions);
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginIntake(const wire::SignedHeader& header,
                                                                  uint64_t bytes,
                                                                  std::optional<uint64_t> count) {
  // Only headers that this party has signed are found by their id.
  const absl::StatusOr<RoundPointer> found = Find(round::RoundId(header.header()));
  const std::shared_ptr<const TableEpoch> table = found.ok() ? (*found)->table : this->table();
  // An open round was in its time when it was signed, and EndExpired ends it.
  const uint64_t now_s = found.ok() ? (*found)->draft.announced_s() : clock_->NowSeconds();
  SHOAL_RETURN_IF_ERROR(round::Round::Verify(header, roster(), table->facts, now_s).status());
  SHOAL_RETURN_IF_ERROR(found.status());
  const RoundPointer& open = *found;
  // The connection of a list that is still on its way in has broken, or will: the caller sends one
  // list at a time. The latest one counts, and nothing is left of the other.
  std::shared_ptr<Intake> before;
  {
    const MutexLock lock(open->gate);
    before = std::exchange(open->intake, {}).lock();
  }
  if (before != nullptr) before->TakeWork();
  std::shared_ptr<Intake> intake;
  {
    const MutexLock lock(open->gate);
    if (open->keys == nullptr) return absl::NotFoundError("round ended");
    // The same list may come again. One of another length need not be opened to be refused.
    if (open->list_bytes.has_value() && *open->list_bytes != bytes) {
      return absl::FailedPreconditionError(
          "another offline list was taken before; a round has one for ever");
    }
    std::optional<OnionIntake> onions;
    if (open->secrets != nullptr) {
      const RoundContext& context = open->keys->context;
      SHOAL_ASSIGN_OR_RETURN(
          onions, count.has_value()
                      ? OnionIntake::BeginSubmissions(context, *open->secrets, bytes, *count,
                                                      ResourcesFor(*open))
                      : OnionIntake::Begin(context, *open->secrets, bytes, ResourcesFor(*open)));
    }
    intake.reset(
        new Intake(this, open, std::make_unique<IntakeWork>(open->keys, bytes, std::move(onions))));
    before = std::exchange(open->intake, intake).lock();
  }
  if (before != nullptr) before->TakeWork();  // it began at the same time
  return intake;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(const wire::SignedHeader& header,
                                                           ByteSource& onions) {
  return OfflineFrom(BeginOffline(header, onions.size()), onions);
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(const wire::SignedHeader& header,
                                                           ByteSource& submissions,
                                                           uint64_t onions) {
  return OfflineFrom(BeginOffline(header, submissions.size(), onions), submissions);
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::OfflineFrom(
    absl::StatusOr<std::shared_ptr<Intake>> begun, ByteSource& list) {
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<Intake> intake, std::move(begun));
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, list.Next());
    if (piece.empty()) break;
    SHOAL_RETURN_IF_ERROR(intake->Take(piece));
  }
  return Offline(std::move(intake));
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(std::shared_ptr<Intake> list) {
  // Dies at the end of this call, after which another list may come in.
  const std::shared_ptr<Intake> intake = std::move(list);
  OpenRound& open = *intake->open_;
  const Working working(open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open.Keys());
  const std::unique_ptr<IntakeWork> work = intake->TakeWork();
  if (work == nullptr) return absl::NotFoundError("round ended");
  SHOAL_RETURN_IF_ERROR(work->Check());
  if (std::holds_alternative<OpenRound::Ready>(open.held)) {
    SHOAL_RETURN_IF_ERROR(
        journal_->CommitRound(open.counter(), Content::kOfflineInput, work->digest.Finish()));
    SHOAL_RETURN_IF_ERROR(open.Repeat(PartyStage::kReady));
  } else {
    SHOAL_RETURN_IF_ERROR(open.TakeOnions(*this, *keys, *work));
  }
  auto& ready = std::get<OpenRound::Ready>(open.held);
  if (ready.list == nullptr) return nullptr;
  ready.list->Rewind();
  auto reader = std::make_unique<ListReader>(ready.list);
  ready.reader = reader->alive();
  auto onward = std::make_unique<Outgoing>(this, intake->open_, *keys, Content::kOfflineOutput,
                                           std::move(reader), ready.report);
  SHOAL_RETURN_IF_ERROR(onward->Start());
  return onward;
}

void Party::ListPassedOn(const Digest& round_id) {
  const auto open = Find(round_id);
  if (!open.ok()) return;
  const Working working(**open);
  auto* const ready = std::get_if<OpenRound::Ready>(&(*open)->held);
  // A repeat that hands the list out once more passes it on itself.
  if (ready != nullptr && ready->reader.expired()) ready->list.reset();
}

absl::Status Party::OpenRound::TakeOnions(const Party& party, const RoundKeys& round_keys,
                                          IntakeWork& list) {
  SHOAL_RETURN_IF_ERROR(MakeNoise(party, round_keys));  // unless that was done ahead of time
  SHOAL_RETURN_IF_ERROR(Check(PartyStage::kOffline));
  const StageTimer timer;
  SHOAL_RETURN_IF_ERROR(
      party.journal_->CommitRound(counter(), Content::kOfflineInput, list.digest.Finish()));
  // From here on no other list can be opened, and no other noise or permutation be drawn. If the
  // stage fails now, the round can only end.
  NoiseBatch noise = std::move(std::get<Prepared>(held).noise);
  std::optional<ShuffleKeys> shuffle_keys;
  {
    SHOAL_ASSIGN_OR_RETURN(const OfflineSecretsPointer drawn, Secrets());
    shuffle_keys.emplace(*drawn);
  }
  SHOAL_RETURN_IF_ERROR(Become(PartyStage::kOffline, std::monostate()));
  {
    const MutexLock lock(gate);
    list_bytes = list.bytes;
  }
  wire::StageReport report = ReportOf(party.number(), "offline");
  report.set_seconds(list.seconds);
  report.set_cpu_seconds(list.cpu_seconds);
  report.set_bytes_in(list.bytes);
  report.set_noise_queries(noise.size());
  SHOAL_ASSIGN_OR_RETURN(
      OfflineOutput out,
      RunOffline(round_keys.context, *shuffle_keys, std::move(noise),
                 *std::exchange(list.onions, std::nullopt), party.ResourcesFor(*this)));
  report.set_positions_in(out.material.positions);
  report.set_positions_out(out.material.next_positions);
  timer.AddTo(report);
  return Become(PartyStage::kReady, Ready{std::make_shared<OnlineMaterial>(std::move(out.material)),
                                          std::make_shared<OrderedList>(std::move(out.onions)),
                                          {},
                                          std::move(report)});
}

absl::StatusOr<Bytes> Party::Queries(const Digest& round_id, BytesView encoded) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  const Working working(*open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(std::optional<wire::QueryBatch> queries,
                         open->TakeQueries(encoded, *keys, *journal_, *resources_.pool));
  if (!queries.has_value()) return std::get<OpenRound::Queried>(open->held).forwarded;
  const std::shared_ptr<OnlineMaterial> material = std::get<OpenRound::Ready>(open->held).material;
  SHOAL_ASSIGN_OR_RETURN(Forwarding forwarding,
                         ForwardQueries(keys->context, *material, *queries, *resources_.pool));
  // The way back needs only the queries' places.
  Bytes out = std::move(forwarding.queries);
  SHOAL_RETURN_IF_ERROR(
      journal_->CommitRound(open->counter(), Content::kQueriesOutput,
                            keys->MacOf(Content::kQueriesOutput, out, *resources_.pool)));
  wire::StageReport report = ReportOf(number(), "online");
  report.set_positions_in(queries->positions.size());
  report.set_bytes_in(encoded.size());
  report.set_positions_out(forwarding.count);
  report.set_noise_queries(material->noise.size());
  report.set_bytes_out(out.size());
  // What the queries were made of. The memory is enough for the second copy of what goes out.
  SecretVector<NoiseQuery>().swap(material->noise);
  material->shares = {};
  SHOAL_RETURN_IF_ERROR(
      open->Become(PartyStage::kQueried,
                   OpenRound::Queried{material, *std::move(queries), std::move(forwarding), out}));
  timer.AddTo(report);
  open->Report(std::move(report));
  return out;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::AnswerQueries(const Digest& round_id,
                                                                 BytesView encoded) {
  if (!is_backend()) return absl::FailedPreconditionError("only the backend answers queries");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  const Working working(*open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(std::optional<wire::QueryBatch> queries,
                         open->TakeQueries(encoded, *keys, *journal_, *resources_.pool));
  if (queries.has_value()) {
    std::shared_ptr<OnlineMaterial> material = std::get<OpenRound::Ready>(open->held).material;
    SHOAL_RETURN_IF_ERROR(open->Become(
        PartyStage::kQueried,
        OpenRound::Queried{std::move(material), *std::move(queries), std::nullopt, {}}));
  }
  const auto& queried = std::get<OpenRound::Queried>(open->held);
  wire::StageReport report = ReportOf(number(), "online");
  report.set_positions_in(queried.queries.positions.size());
  report.set_bytes_in(encoded.size());
  timer.AddTo(report);
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<ByteSource> answers,
      server::AnswerQueries(keys->context, keys->secrets, *queried.material, queried.queries,
                            open->table->answers, *resources_.pool));
  SHOAL_RETURN_IF_ERROR(open->Advance(PartyStage::kAnswered));
  auto out = std::make_unique<Outgoing>(this, open, *keys, Content::kAnswersOutput,
                                        std::move(answers), std::move(report));
  SHOAL_RETURN_IF_ERROR(out->Start());
  return out;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Answers(const Digest& round_id,
                                                           ByteSource& answers) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  wire::StageReport report = ReportOf(number(), "answers");
  report.set_bytes_in(answers.size());
  uint64_t generation;
  {
    const Working working(*open);
    SHOAL_RETURN_IF_ERROR(
        Annotate(open->Check(PartyStage::kAnswered), "answers came before the queries"));
    SHOAL_RETURN_IF_ERROR(open->Repeat(PartyStage::kQueried));
    generation = open->Generation();
    auto& queried = std::get<OpenRound::Queried>(open->held);
    queried.intake.reset();  // what came of them before
    // A list of a wrong length is refused, not committed to.
    SHOAL_ASSIGN_OR_RETURN(queried.intake,
                           AnswerIntake::Begin(keys->context, queried.queries, *queried.forwarding,
                                               answers.size(), resources_));
  }
  const ContentMac mac = keys->Mac(Content::kAnswersInput);
  ContentMac::Stream digest(mac);
  // Releases `work` while the next piece is on its way.
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, answers.Next());
    if (piece.empty()) break;
    const Working working(*open);
    SHOAL_RETURN_IF_ERROR(open->CheckGeneration(generation));
    const StageTimer timer;
    digest.Update(piece, *resources_.pool);
    SHOAL_RETURN_IF_ERROR(std::get<OpenRound::Queried>(open->held).intake->Take(piece));
    timer.AddTo(report);
  }
  const Working working(*open);
  SHOAL_RETURN_IF_ERROR(open->CheckGeneration(generation));
  const StageTimer timer;
  auto& queried = std::get<OpenRound::Queried>(open->held);
  if (!queried.intake->complete()) {
    return absl::InvalidArgumentError("answers: not all of them came");
  }
  SHOAL_RETURN_IF_ERROR(
      journal_->CommitRound(open->counter(), Content::kAnswersInput, digest.Finish()));
  report.set_positions_in(queried.forwarding->count);
  report.set_positions_out(queried.queries.positions.size());
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<ByteSource> returned,
      ReturnAnswers(keys->context, keys->secrets, *queried.material, queried.queries,
                    *std::exchange(queried.intake, std::nullopt), resources_));
  SHOAL_RETURN_IF_ERROR(open->Advance(PartyStage::kAnswered));
  timer.AddTo(report);
  auto out = std::make_unique<Outgoing>(this, open, *keys, Content::kAnswersOutput,
                                        std::move(returned), std::move(report));
  SHOAL_RETURN_IF_ERROR(out->Start());
  return out;
}

absl::StatusOr<Spool> Party::MakeAnswerList(const Digest& round_id, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  // The memory, and none of the secrets: these die when the round ends.
  std::shared_ptr<Arena> arena;
  ListMemory reserved;
  {
    const MutexLock lock(open->gate);
    if (open->material == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("answers to keep: the round is ", std::string(Name(open->stage.get()))));
    }
    arena = open->material->arena;
    reserved = open->material->memory.kept;
  }
  SHOAL_ASSIGN_OR_RETURN(Spool kept,
                         server::MakeAnswerList(arena.get(), reserved, bytes, *resources_.spools));
  arena->Touched();
  return kept;
}

absl::Status Party::End(const Digest& round_id) {
  RoundPointer open;
  std::shared_ptr<Intake> intake;
  {
    const MutexLock lock(mutex_);
    const auto found = rounds_.find(round_id);
    if (found == rounds_.end()) return absl::OkStatus();
    open = found->second;
    rounds_.erase(found);
    intake = open->Leave();
  }
  // From here on no list can begin. A list on its way in loses its keys now, whenever the neighbour
  // sends the rest. A call that still works on the round finishes first.
  if (intake != nullptr) intake->TakeWork();
  { const Working working(*open); }
  return journal_->EndRound(open->counter());
}

void Party::EndAll() {
  std::vector<Digest> ids;
  std::vector<RoundCounter> counters;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, open] : rounds_) ids.push_back(id);
    for (const auto& [counter, open] : drafts_) counters.push_back(counter);
  }
  // An end that cannot be stored now is stored at the next start.
  for (const Digest& id : ids) End(id).IgnoreError();
  for (RoundCounter counter : counters) Withdraw(counter).IgnoreError();
}

void Party::EndThose(const std::function<absl::string_view(const OpenRound&, bool draft)>& why) {
  struct Ended {
    RoundPointer open;
    std::shared_ptr<Intake> intake;
    absl::string_view why;
  };
  std::vector<Ended> ended;
  std::set<RoundCounter> unwritten;
  {
    const MutexLock lock(mutex_);
    unwritten.swap(unwritten_);
    const auto end_in = [&](auto& map, bool draft) {
      std::erase_if(map, [&](const auto& entry) {
        const RoundPointer& open = entry.second;
        const absl::string_view reason = why(*open, draft);
        if (reason.empty()) return false;
        ended.push_back({open, open->Leave(), reason});
        unwritten.insert(open->counter());
        return true;
      });
    };
    end_in(rounds_, /*draft=*/false);
    end_in(drafts_, /*draft=*/true);
  }
  for (const Ended& one : ended) {
    if (one.intake != nullptr) one.intake->TakeWork();
    one.open->DropIfEnded();
    if (options_.ended) options_.ended(one.open->counter(), one.why);
  }
  std::erase_if(unwritten, [&](RoundCounter counter) { return journal_->EndRound(counter).ok(); });
  const MutexLock lock(mutex_);
  unwritten_.merge(unwritten);
}

absl::StatusOr<std::vector<RoundCounter>> Party::TakeLive(const wire::SignedLiveRounds& live) {
  SHOAL_RETURN_IF_ERROR(round::CheckLiveRounds(live, roster(), clock_->NowSeconds()));
  const wire::LiveRounds& list = live.list();
  EndThose([&](const OpenRound& open, bool) -> absl::string_view {
    const uint64_t counter = open.draft.counter();
    const bool lives = counter > list.highest_counter() ||
                       std::ranges::binary_search(list.rounds(), counter) ||
                       std::ranges::binary_search(list.drafts(), counter);
    return lives ? "" : "ended by the frontend";
  });
  std::set<RoundCounter> lacking;
  for (const uint64_t counter : list.rounds()) lacking.emplace(counter);
  const MutexLock lock(mutex_);
  heard_s_ = clock_->SteadySeconds();
  for (const auto& [id, open] : rounds_) lacking.erase(open->counter());
  return std::vector<RoundCounter>(lacking.begin(), lacking.end());
}

wire::SignedLiveRounds Party::SignLive(wire::LiveRounds list) const {
  SHOAL_CHECK(number().value() == 1);
  list.set_roster_digest(ToString(roster().digest()));
  list.set_made_s(clock_->NowSeconds());
  return round::SignLiveRounds(std::move(list), key_);
}

void Party::EndExpired() {
  const uint64_t now_s = clock_->SteadySeconds();
  const uint64_t tolerance_s = roster().clock_tolerance_s();
  uint64_t heard_s;
  {
    const MutexLock lock(mutex_);
    heard_s = heard_s_;
  }
  EndThose([&](const OpenRound& open, bool draft) -> absl::string_view {
    // That a draft is new was checked when it came. From then on only the time that passes counts:
    // a wall clock that is set must not erase what clients count on, or keep it for longer.
    const wire::RoundHeader& header = open.draft;
    const uint64_t lifetime_s = draft ? kDraftLifetimeS : header.expires_s() - header.announced_s();
    if (open.drafted_s + lifetime_s + tolerance_s < now_s) return "expired";
    const bool unheard = std::max(heard_s, open.drafted_s) + kUnheardLimitS < now_s;
    return unheard ? "the frontend was not heard of for too long" : "";
  });
}

size_t Party::FirstWrongToken(const Digest& round_id, std::span<const uint32_t> slots,
                              std::span<const sharing::Token> tokens) const {
  SHOAL_CHECK(slots.size() == tokens.size());
  const auto open = Find(round_id);
  if (!open.ok()) return 0;
  // Keeps the material while this reads it: the round may go on or end meanwhile.
  std::shared_ptr<const OnlineMaterial> material;
  {
    const MutexLock lock((*open)->gate);
    material = (*open)->material;
  }
  if (material == nullptr) return 0;
  // Checks tokens up to the first slot that is no living position.
  const auto good = std::ranges::find_if_not(
      slots, [&](uint32_t slot) { return slot < material->positions && !material->dead(slot); });
  const auto known = static_cast<size_t>(good - slots.begin());
  return sharing::FirstWrongToken(material->seeds.data(), slots.first(known), round_id,
                                  tokens.first(known));
}

size_t Party::open_rounds() const {
  const MutexLock lock(mutex_);
  return drafts_.size() + rounds_.size();
}

std::vector<wire::StageReport> Party::Reports(const Digest& round_id) const {
  const auto open = Find(round_id);
  if (!open.ok()) return {};
  const MutexLock lock((*open)->gate);
  return (*open)->reports;
}

}  // namespace shoal::server
