#include "src/server/party.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/server/machine_messages.h"
#include "src/server/party_content.h"
#include "src/server/stage_timer.h"
#include "src/server/terms.h"
#include "src/sharing/batch.h"
#include "src/wire/visible.h"

namespace shoal::server {
namespace {

wire::StageReport ReportOf(PartyNumber party, absl::string_view stage) {
  wire::StageReport report;
  report.set_party(party.value());
  report.set_stage(std::string(stage));
  return report;
}

constexpr absl::string_view kQueriesTooEarly = "queries came before the offline stage was done";
constexpr absl::string_view kAnswersTooEarly = "answers came before the queries";

// How often a machine tells the others that it is still at a call.
constexpr std::chrono::milliseconds kBetweenWords(250);

// What a machine of several says of its part of a call: nothing yet, or how it ended.
using Said = std::optional<absl::Status>;
constexpr size_t kMostSaidBytes = 1 + 200;
// An order that the head has given before it took a newer epoch of the table has come and is done
// after so long, many times over.
constexpr uint64_t kOrdersArriveWithinS = 10;

Bytes EncodeSaid(const Said& said) {
  Bytes out(1);
  if (!said.has_value()) return out;
  out[0] = static_cast<uint8_t>(1 + static_cast<int>(said->code()));
  Append(out, AsBytes(said->message().substr(0, kMostSaidBytes - 1)));
  return out;
}

absl::StatusOr<Said> DecodeSaid(uint32_t from, BytesView bytes) {
  if (bytes.empty() || bytes[0] > 1 + static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return Unannounced(from);
  }
  if (bytes[0] == 0) return Said();
  return Said(absl::Status(static_cast<absl::StatusCode>(bytes[0] - 1), AsText(bytes.subspan(1))));
}

}  // namespace

absl::StatusOr<Digest> ParseRoundId(absl::string_view bytes) {
  Digest id;
  if (bytes.size() != id.size()) return absl::InvalidArgumentError("a round id has 32 bytes");
  std::ranges::copy(AsBytes(bytes), id.begin());
  return id;
}

// The immutable part of a round whose header is signed. The round holds a reference until it ends,
// and so does every call that works on it, with what is in `held`; the secrets are wiped with the
// last reference. Whatever outlives such a call, as a source of bytes does, holds none.
struct Party::RoundKeys {
  LastingSecrets secrets;
  RoundContext context;
  wire::RoundHeader header;  // as all have signed it

  // Contents are digested with a MAC under a key that is erased with the round, so that nobody else
  // can find collisions.
  ContentMac Mac(Content content) const {
    return ContentMac(secrets.ContentKey(), ContentName(content));
  }
};

// One round. Any thread may ask for its stage (round_stage.h) at any time; only the call that works
// on the round uses what it holds in that stage.
struct Party::OpenRound {
  // What a round holds in each stage. The remaining stages hold nothing.
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
    std::optional<Forwarding> forwarding;  // none at the backend
    // The message for the next party, in case the queries come again. Empty at the backend and at
    // one of several machines, where `forwarding` has the batch.
    Bytes forwarded;
    std::optional<AnswerIntake> intake = std::nullopt;  // while answers come in
  };
  using Held = std::variant<std::monostate, Drafted, Prepared, Ready, Queried>;

  OpenRound(wire::RoundHeader d, Held drawn, std::shared_ptr<const TableEpoch> t, uint64_t now_s,
            const std::function<void(const wire::StageReport&)>* done)
      : draft(std::move(d)),
        table(std::move(t)),
        drafted_s(now_s),
        stage_done(done),
        held(std::move(drawn)) {}

  const wire::RoundHeader draft;  // as this party sent it on
  // The epoch that the draft names, also after this party has taken another one.
  const std::shared_ptr<const TableEpoch> table;
  const uint64_t drafted_s;                                               // on the steady clock
  const std::function<void(const wire::StageReport&)>* const stage_done;  // the party's

  // Of a signed round of several machines; null otherwise. Used by the call that works on the
  // round, but for GiveUp.
  Digest id = {};
  std::shared_ptr<machines::Machines> machines;

  // Held by the call that works on the round, for a whole stage: making noise takes minutes. Never
  // taken on an I/O thread or under `gate`. Locked by Working alone.
  Mutex work ABSL_ACQUIRED_BEFORE(gate);
  Held held ABSL_GUARDED_BY(work);
  std::atomic<bool> ended = false;  // set by Leave; stages look at it
  // The report of the noise, until the offline list is committed to: nothing of it is told before.
  std::optional<wire::StageReport> noise_report ABSL_GUARDED_BY(work);
  // At several machines: the latest try that this machine has come to; the output that is being
  // read, and whether there is one.
  uint64_t attempt ABSL_GUARDED_BY(work) = 0;
  Outgoing* onward ABSL_GUARDED_BY(work) = nullptr;
  std::atomic<bool> reading = false;

  // Held briefly, on I/O threads too.
  mutable Mutex gate;
  RoundStage<PartyStage> stage ABSL_GUARDED_BY(gate){PartyStage::kDrafted};
  // Counts the changes of `held`. What was made from an earlier generation is no longer valid.
  uint64_t generation ABSL_GUARDED_BY(gate) = 0;
  uint64_t begun ABSL_GUARDED_BY(gate) = 0;  // the latest try that all machines have come to
  KeysPointer keys ABSL_GUARDED_BY(gate);    // from kSigned to the end
  OfflineSecretsPointer secrets ABSL_GUARDED_BY(gate);  // in kSigned and kPrepared
  std::weak_ptr<Intake> intake ABSL_GUARDED_BY(gate);   // one offline list at a time
  // The length of the offline list that was committed to.
  std::optional<uint64_t> list_bytes ABSL_GUARDED_BY(gate);
  // From kReady to the end.
  std::shared_ptr<const OnlineMaterial> material ABSL_GUARDED_BY(gate);
  std::vector<wire::StageReport> reports ABSL_GUARDED_BY(gate);

  RoundCounter counter() const { return RoundCounter(draft.counter()); }

  // Null without a journal: then the head stores it.
  StoreDigest Store(Journal* journal, Content content) const {
    if (journal == nullptr) return nullptr;
    return [journal, content, round = counter()](const Digest& digest) {
      return journal->CommitRound(round, content, digest);
    };
  }

  // At several machines: waits until all have come to one try of a stage. A machine that is at an
  // earlier one is told so by this call, and comes again; those at the latest one wait for it.
  // Errors that are the same at all machines go to `agreed`; others are returned.
  absl::Status ComeTogether(absl::string_view what, const StageTry& present,
                            std::optional<uint64_t> records, absl::Status& agreed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // What all machines say of their parts of a call, by rank.
  absl::StatusOr<std::vector<Said>> Say(absl::string_view what, const Said& mine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) {
    SHOAL_ASSIGN_OR_RETURN(const auto all,
                           machines->Gather(what, EncodeSaid(mine), kMostSaidBytes));
    std::vector<Said> said(all.size());
    for (uint32_t rank = 0; rank < all.size(); ++rank) {
      SHOAL_ASSIGN_OR_RETURN(said[rank], DecodeSaid(rank, all[rank]));
    }
    return said;
  }

  // Makes a report of this machine's part of a stage one of the party's: sums, and the longest
  // time.
  absl::Status Total(wire::StageReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);

  // Begins to hand an output out; when all of it has been read.
  absl::Status StartOutput(Outgoing& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);
  absl::Status OutputIsRead(wire::StageReport report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);
  // Reads the output that is being read to its end in place of its reader, which has broken off:
  // otherwise the other machines would wait for this one's part of the digest.
  void FinishOutput() ABSL_EXCLUSIVE_LOCKS_REQUIRED(work);

  // FAILED_PRECONDITION unless `to` may come next.
  absl::Status Check(PartyStage to) const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    return stage.Check(to);
  }

  // The same for a call of a neighbour that comes after the offline stage, while the offline list
  // is not committed to; OK afterwards. Such a call must not wait for `work`: how long making noise
  // takes tells how much there is.
  absl::Status CheckListTaken(PartyStage to) const ABSL_LOCKS_EXCLUDED(gate) {
    const MutexLock lock(gate);
    return secrets == nullptr ? absl::OkStatus() : stage.Check(to);
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
    if (machines != nullptr) machines->GiveUp();
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

  // The stages at this machine, once all have come to them. `self` is this round.
  absl::StatusOr<std::unique_ptr<ByteSource>> OfflineOf(Party& party, const RoundPointer& self,
                                                        Intake& list_in)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);
  // Afterwards the round holds the queries for the next party.
  absl::Status TakeOn(Party& party, QueriesIn in) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate);
  absl::StatusOr<std::unique_ptr<ByteSource>> AnswersTo(Party& party, const RoundPointer& self,
                                                        QueriesIn in)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);
  // Waits until all machines have their batches. Ends the round after an error that they have not
  // agreed about.
  absl::Status ComeToQueries(Party& party, const StageTry& present)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // Makes the party's noise unless that was done.
  absl::Status MakeNoise(const Party& party, const RoundKeys& round_keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // What answers to these queries are made of.
  AnswerKeysPointer KeysOfAnswers(const KeysPointer& round_keys,
                                  std::shared_ptr<const OnlineMaterial> made,
                                  wire::QueryBatch queries) const;

  // Stores the round's term, if it has one: before any of this party's answers leaves.
  absl::Status KeepTerm(const Party& party, const RoundKeys& round_keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  // Commits to an offline list, erases what opened it, and runs the rest of the stage: the round is
  // then kReady.
  absl::Status TakeOnions(const Party& party, const RoundKeys& round_keys, IntakeWork& list)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work) ABSL_LOCKS_EXCLUDED(gate);

  struct Taken {
    // Nothing if they came before: then the round still holds what was made of them.
    std::optional<wire::QueryBatch> queries;
    uint64_t bytes;  // of their encoding
  };
  // Commits to queries.
  absl::StatusOr<Taken> TakeQueries(QueriesIn in, const RoundKeys& round_keys, Journal* journal,
                                    const Resources& resources) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work)
      ABSL_LOCKS_EXCLUDED(gate) {
    SHOAL_RETURN_IF_ERROR(Annotate(Check(PartyStage::kQueried), kQueriesTooEarly));
    const auto* const ready = std::get_if<Ready>(&held);
    const OnlineMaterial& known =
        ready != nullptr ? *ready->material : *std::get<Queried>(held).keys->material;
    Taken taken;
    BytesView encoded;
    if (auto* const batch = std::get_if<wire::QueryBatch>(&in)) {
      SHOAL_CHECK(resources.machines->count() > 1);
      if (!batch->positions.empty() && batch->positions.back() >= known.positions) {
        return absl::InvalidArgumentError("a batch over more positions than the list has");
      }
      taken = {std::move(*batch), 0};
      taken.bytes = wire::EncodedBytes(*taken.queries, known.positions);
    } else {
      encoded = std::get<BytesView>(in);
      taken.bytes = encoded.size();
      if (ready != nullptr) {
        SHOAL_ASSIGN_OR_RETURN(taken.queries, wire::DecodeQueryBatch(encoded, known.positions));
      }
    }
    SHOAL_RETURN_IF_ERROR(CommitQueries(
        round_keys.Mac(Content::kQueriesInput), encoded,
        taken.queries.has_value() ? &*taken.queries : nullptr, known.layout.positions,
        Store(journal, Content::kQueriesInput), *resources.machines, *resources.pool));
    if (ready == nullptr) {
      SHOAL_RETURN_IF_ERROR(Repeat(PartyStage::kQueried));
      taken.queries.reset();
    }
    return taken;
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
  Resources resources = resources_;
  resources.ended = &open.ended;
  if (open.machines != nullptr) resources.machines = open.machines.get();
  return resources;
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

absl::Status CommitTable(const TableEpoch& table, Journal* journal) {
  if (journal == nullptr) return absl::OkStatus();  // the head's holds it
  return journal->CommitEpoch(absl::StrCat("table ", Hex(table.id)), table.epoch,
                              table.facts.manifest_digest);
}

}  // namespace

absl::Status Party::CheckOptions(const Options& options) {
  const uint32_t number = options.number.value();
  if (number < 1 || number > options.roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", number, ": the roster has ", options.roster.size(), " parties"));
  }
  const PartyMachines& machines = options.machines;
  if (machines.count != options.roster.party(number).machines || machines.rank >= machines.count ||
      (machines.count > 1 && machines.join == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", number, ": the roster says ", options.roster.party(number).machines,
                     " machines, this is ", machines.rank, " of ", machines.count));
  }
  return CheckTable(options.table, options.roster, number == options.roster.size());
}

absl::StatusOr<std::unique_ptr<Party>> Party::Create(Options options,
                                                     const signature::SecretKey& key,
                                                     Journal* journal, RandomSource* random,
                                                     const Clock* clock, Resources resources) {
  SHOAL_RETURN_IF_ERROR(CheckOptions(options));
  const uint32_t number = options.number.value();
  SHOAL_CHECK(options.machines.rank == 0);
  if (!(key.public_key() == options.roster.party(number).key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", number, ": the secret key is not the one that the roster lists"));
  }
  SHOAL_RETURN_IF_ERROR(journal->CommitEpoch("roster " + options.roster.deployment(),
                                             options.roster.epoch(), options.roster.digest()));
  SHOAL_RETURN_IF_ERROR(CommitTable(options.table, journal));
  auto table = std::make_shared<const TableEpoch>(std::exchange(options.table, {}));
  return std::unique_ptr<Party>(
      new Party(std::move(options), std::move(table), &key, journal, random, clock, resources));
}

absl::StatusOr<std::unique_ptr<Party>> Party::CreateOther(Options options, RandomSource* random,
                                                          const Clock* clock, Resources resources) {
  SHOAL_RETURN_IF_ERROR(CheckOptions(options));
  SHOAL_CHECK(options.machines.rank > 0);
  auto table = std::make_shared<const TableEpoch>(std::exchange(options.table, {}));
  return std::unique_ptr<Party>(new Party(std::move(options), std::move(table), /*key=*/nullptr,
                                          /*journal=*/nullptr, random, clock, resources));
}

Party::Party(Options options, std::shared_ptr<const TableEpoch> table,
             const signature::SecretKey* key, Journal* journal, RandomSource* random,
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
  if (rank() > 0) {
    const MutexLock lock(table_mutex_);
    if (kept_.size() == kMostKept) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this machine keeps the table's epochs ", kept_.front().epoch->epoch, " to ",
                       table_->epoch, ", as its head has taken none of the later ones"));
    }
  }
  SHOAL_RETURN_IF_ERROR(CommitTable(next, journal_));
  auto shared = std::make_shared<const TableEpoch>(std::move(next));
  const MutexLock lock(table_mutex_);
  std::erase_if(earlier_, [](const auto& epoch) { return epoch.expired(); });
  earlier_.push_back(table_);
  if (rank() > 0) kept_.push_back({table_});
  table_ = std::move(shared);
  return absl::OkStatus();
}

std::vector<uint64_t> Party::OpenableEpochs() const {
  const MutexLock lock(table_mutex_);
  std::vector<uint64_t> epochs;
  for (const Kept& kept : kept_) epochs.push_back(kept.epoch->epoch);
  epochs.push_back(table_->epoch);
  return epochs;
}

void Party::HeadHas(uint64_t epoch) {
  const uint64_t now_s = clock_->SteadySeconds();
  std::vector<Kept> dropped;  // without the lock, as there may be much memory behind it
  const MutexLock lock(table_mutex_);
  std::erase_if(kept_, [&](Kept& kept) {
    if (kept.epoch->epoch >= epoch) return false;
    if (!kept.passed_s.has_value()) kept.passed_s = now_s;
    if (now_s - *kept.passed_s < kOrdersArriveWithinS) return false;
    dropped.push_back(std::move(kept));
    return true;
  });
}

absl::StatusOr<std::shared_ptr<const TableEpoch>> Party::TableOf(
    const wire::RoundHeader& header) const {
  const MutexLock lock(table_mutex_);
  if (header.manifest_digest() == AsText(table_->facts.manifest_digest)) return table_;
  for (const Kept& kept : kept_) {
    if (header.manifest_digest() == AsText(kept.epoch->facts.manifest_digest)) return kept.epoch;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "machine ", rank(), " has another epoch of the table than its head: ", table_->epoch));
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

absl::StatusOr<RoundContext> Party::MakeWholeContext(const wire::RoundHeader& header,
                                                     const Digest& round_id) const {
  RoundContext context = MakeContext(header, round_id);
  for (uint32_t next = number().value() + 1; next <= roster().size(); ++next) {
    onion::PublicKey key;
    std::ranges::copy(AsBytes(header.onion_keys(static_cast<int>(next) - 1)), key.begin());
    SHOAL_ASSIGN_OR_RETURN(onion::Recipient recipient, onion::Recipient::Create(key));
    context.next_recipients.push_back(std::move(recipient));
  }
  return context;
}

absl::StatusOr<wire::RoundHeader> Party::ExtendDraft(const wire::RoundHeader& draft) {
  const uint64_t now_s = clock_->NowSeconds();
  const std::shared_ptr<const TableEpoch> table = this->table();
  if (options_.machines.ready != nullptr) {
    SHOAL_RETURN_IF_ERROR(options_.machines.ready(table->epoch));
  }
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
  if (draft.max_refreshes() > 0) {
    if (options_.terms == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("round ", counter.value(), ": has a term, and this party keeps none"));
    }
    SHOAL_RETURN_IF_ERROR(options_.terms->CheckRoom());
  }
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
  Seed root = random_->NewSeed();
  std::optional<Seed> kept;
  if (has_several_machines()) kept = root.Clone();
  OpenRound::Drafted drawn{RoundSecrets(std::move(root)), std::move(kept)};
  wire::RoundHeader extended = draft;
  extended.DiscardUnknownFields();  // only what was checked is sent on
  extended.add_onion_keys(ToString(drawn.secrets.OnionKeyPair().public_key));
  const MutexLock lock(mutex_);
  drafts_[counter] = std::make_shared<OpenRound>(extended, std::move(drawn), table,
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
  SHOAL_ASSIGN_OR_RETURN(RoundContext context, MakeWholeContext(header, id));

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
  signatures.push_back(key_->Sign(id));
  SHOAL_ASSIGN_OR_RETURN(const signature::Signature sum,
                         signature::AggregateSignatures(signatures));
  wire::SignedHeader out;
  *out.mutable_header() = header;
  out.DiscardUnknownFields();
  out.set_signature(ToString(sum.bytes()));
  absl::Status signed_now;
  {
    const MutexLock lock(mutex_);
    const MutexLock gate(open->gate);
    signed_now = CheckNewest(*table);
    if (signed_now.ok()) signed_now = open->stage.Check(PartyStage::kSigned);
    std::shared_ptr<machines::Machines> machines;
    if (signed_now.ok() && has_several_machines()) {
      auto joined = options_.machines.join(++opened_, id);
      signed_now = joined.status();
      if (joined.ok()) machines = *std::move(joined);
    }
    if (signed_now.ok()) signed_now = open->stage.Advance(PartyStage::kSigned);
    if (signed_now.ok()) {
      ++open->generation;
      auto& drafted = std::get<OpenRound::Drafted>(open->held);
      RoundSecrets& secrets = drafted.secrets;
      open->keys = std::make_shared<const RoundKeys>(
          std::move(static_cast<LastingSecrets&>(secrets)), std::move(context), header);
      open->secrets =
          std::make_shared<const OfflineSecrets>(std::move(static_cast<OfflineSecrets&>(secrets)));
      open->id = id;
      open->machines = std::move(machines);
      // Before anybody can end the round, so that the others hear of both in this order.
      if (drafted.root.has_value() && options_.machines.opened) {
        options_.machines.opened({opened_, out, *std::move(drafted.root)});
      }
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
  return out;
}

absl::Status Party::Open(const RoundOpening& opening) {
  SHOAL_CHECK(rank() > 0);
  const Digest id = round::RoundId(opening.header.header());
  // Before all checks: the other machines learn of an error by it.
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<machines::Machines> machines,
                         options_.machines.join(opening.number, id));
  const absl::Status opened = Open(opening, id, machines);
  if (!opened.ok()) machines->GiveUp();
  return opened;
}

absl::Status Party::Open(const RoundOpening& opening, const Digest& id,
                         const std::shared_ptr<machines::Machines>& machines) {
  const wire::RoundHeader& header = opening.header.header();
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<const TableEpoch> table, TableOf(header));
  SHOAL_RETURN_IF_ERROR(
      round::CheckHeader(header, roster().size(), roster(), table->facts, clock_->NowSeconds()));
  RoundSecrets secrets(opening.root.Clone());
  if (header.onion_keys(static_cast<int>(number().value()) - 1) !=
      ToString(secrets.OnionKeyPair().public_key)) {
    return absl::InvalidArgumentError("a round's seed is not that of its header");
  }
  SHOAL_ASSIGN_OR_RETURN(RoundContext context, MakeWholeContext(header, id));
  auto keys = std::make_shared<const RoundKeys>(std::move(static_cast<LastingSecrets&>(secrets)),
                                                std::move(context), header);
  auto drawn =
      std::make_shared<const OfflineSecrets>(std::move(static_cast<OfflineSecrets&>(secrets)));
  auto open = std::make_shared<OpenRound>(header, std::monostate(), table, clock_->SteadySeconds(),
                                          &options_.stage_done);
  const MutexLock lock(mutex_);
  if (rounds_.contains(id)) return absl::AlreadyExistsError("the round is open already");
  if (rounds_.size() >= options_.max_open_rounds) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.max_open_rounds, " rounds are open here already"));
  }
  open->id = id;
  open->machines = machines;
  {
    const MutexLock gate(open->gate);
    SHOAL_RETURN_IF_ERROR(open->stage.Advance(PartyStage::kSigned));
    open->keys = std::move(keys);
    open->secrets = std::move(drawn);
  }
  rounds_[id] = std::move(open);
  return absl::OkStatus();
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
  return signed_round.has_value() ? End(*signed_round) : EndInJournal(counter);
}

absl::Status Party::EndInJournal(RoundCounter counter) const {
  return journal_ == nullptr ? absl::OkStatus() : journal_->EndRound(counter);
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
  absl::StatusOr<NoiseBatch> made =
      server::MakeNoise(round_keys.context, *drawn, party.ResourcesFor(*this));
  if (!made.ok()) {
    // Without figures: neighbours get it, and what is missing tells how much there was to be.
    return absl::IsCancelled(made.status())
               ? made.status()
               : absl::Status(made.status().code(),
                              "there is no memory or disk for the noise of a round");
  }
  NoiseBatch noise = *std::move(made);
  if (!party.is_backend()) {
    noise_report = ReportOf(party.number(), "noise");
    noise_report->set_noise_queries(noise.size());
    timer.AddTo(*noise_report);
  }
  return Become(PartyStage::kPrepared, Prepared{std::move(noise)});
}

absl::Status Party::OpenRound::ComeTogether(absl::string_view what, const StageTry& present,
                                            std::optional<uint64_t> records, absl::Status& agreed) {
  if (machines == nullptr) return absl::OkStatus();
  FinishOutput();
  const auto later = [] { return absl::AbortedError("a later try of this stage has begun"); };
  for (;;) {
    if (present.attempt < attempt) {
      agreed = later();
      return absl::OkStatus();
    }
    attempt = present.attempt;
    const std::array<uint64_t, 2> mine = {present.attempt, present.records};
    SHOAL_ASSIGN_OR_RETURN(const auto all, GatherNumbers(*machines, what, mine));
    bool same = true;
    for (const auto& numbers : all) {
      same = same && numbers[0] == present.attempt;
      if (numbers[0] > present.attempt) agreed = later();
    }
    if (!agreed.ok()) return absl::OkStatus();
    if (!same) continue;
    for (uint32_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank][1] == records.value_or(all[0][1])) continue;
      agreed = absl::InvalidArgumentError(absl::StrCat("machine ", rank, " was told a list of ",
                                                       all[rank][1], " records, and not of ",
                                                       records.value_or(all[0][1])));
      return absl::OkStatus();
    }
    const MutexLock lock(gate);
    begun = present.attempt;
    return absl::OkStatus();
  }
}

absl::Status Party::OpenRound::Total(wire::StageReport& report) {
  if (machines == nullptr) return absl::OkStatus();
  constexpr double kMicro = 1e6;
  const std::array<uint64_t, 7> mine = {static_cast<uint64_t>(report.seconds() * kMicro),
                                        static_cast<uint64_t>(report.cpu_seconds() * kMicro),
                                        report.positions_in(),
                                        report.positions_out(),
                                        report.noise_queries(),
                                        report.bytes_in(),
                                        report.bytes_out()};
  SHOAL_ASSIGN_OR_RETURN(
      const auto all, GatherNumbers(*machines, absl::StrCat("report of ", report.stage()), mine));
  std::array<uint64_t, 7> sum = {};
  for (const auto& numbers : all) {
    for (size_t i = 1; i < sum.size(); ++i) sum[i] += numbers[i];
    sum[0] = std::max(sum[0], numbers[0]);
  }
  report.set_seconds(static_cast<double>(sum[0]) / kMicro);
  report.set_cpu_seconds(static_cast<double>(sum[1]) / kMicro);
  report.set_positions_in(sum[2]);
  report.set_positions_out(sum[3]);
  report.set_noise_queries(sum[4]);
  report.set_bytes_in(sum[5]);
  report.set_bytes_out(sum[6]);
  return absl::OkStatus();
}

absl::Status Party::Break(OpenRound& open, const absl::Status& why) {
  if (open.machines == nullptr) return why;
  std::shared_ptr<OpenRound> broken;
  std::shared_ptr<Intake> intake;
  {
    const MutexLock lock(mutex_);
    const auto found = rounds_.find(open.id);
    if (found != rounds_.end() && found->second.get() == &open) {
      broken = found->second;
      rounds_.erase(found);
      intake = open.Leave();
    }
  }
  if (broken != nullptr) {
    if (intake != nullptr) intake->TakeWork();
    if (options_.machines.ended) options_.machines.ended(open.id);
    if (options_.ended) options_.ended(open.counter(), why.message());
    if (!EndInJournal(open.counter()).ok()) {
      const MutexLock lock(mutex_);
      unwritten_.insert(open.counter());
    }
  }
  // Nobody may take it for a link that broke, after which the stage is tried again.
  return absl::AbortedError(
      absl::StrCat("the party's machines have given the round up: ", why.message()));
}

bool Party::IsAtWork(const Digest& round_id, uint64_t attempt) const {
  const auto open = Find(round_id);
  if (!open.ok() || (*open)->machines == nullptr) return true;
  const MutexLock lock((*open)->gate);
  return (*open)->begun >= attempt;
}

absl::Status Party::SendTogether(const Digest& round_id, absl::string_view what, uint64_t attempt,
                                 const std::function<absl::Status(const Mine& mine)>& send) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  SHOAL_CHECK(open->machines != nullptr);
  std::atomic<bool> given_up = false;
  Mine mine{
      .rank = rank(), .attempt = attempt, .run = {}, .given_up = [&] { return given_up.load(); }};
  {
    const MutexLock lock(open->gate);
    if (open->material == nullptr) return absl::NotFoundError("round ended");
    const std::vector<uint64_t>& places = open->material->layout.places;
    if (!places.empty()) {  // not at the backend
      mine.run = {places.back(), places[rank()], places[rank() + 1] - places[rank()]};
    }
  }
  struct {
    Mutex mutex;
    CondVar changed;
    Said said ABSL_GUARDED_BY(mutex);
  } own;
  std::thread call([&] {
    const absl::Status sent = send(mine);
    const MutexLock lock(own.mutex);
    own.said = sent;
    own.changed.NotifyAll();
  });
  // The first error by rank of those that were told first: the same at all machines, and not that
  // of a call that was given up because of it.
  absl::Status result;
  for (;;) {
    Said now;
    {
      const auto until = std::chrono::steady_clock::now() + kBetweenWords;
      const MutexLock lock(own.mutex);
      while (!own.said.has_value() && own.changed.WaitUntil(own.mutex, until)) {
      }
      now = own.said;
    }
    // While the list is read, its digest is what the machines talk about.
    if (!now.has_value() && open->reading) continue;
    const Working working(*open);
    if (now.has_value()) open->FinishOutput();
    const auto said = open->Say(what, now);
    if (!said.ok()) {
      given_up = true;
      result = Break(*open, said.status());
      break;
    }
    bool all = true;
    for (const Said& each : *said) {
      all = all && each.has_value();
      if (each.has_value() && result.ok()) result = *each;
    }
    if (!result.ok()) given_up = true;
    if (!all) continue;
    // In this order of the machines' calls, so that no repeat comes between.
    auto* const ready = std::get_if<OpenRound::Ready>(&open->held);
    if (result.ok() && ready != nullptr) ready->list.reset();
    break;
  }
  call.join();
  return result;
}

absl::Status Party::PrepareNoise(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  const Working working(*open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  return open->MakeNoise(*this, *keys);
}

absl::StatusOr<uint64_t> Party::AnswerBytes(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return round::TaggedAnswerBytes(open->draft);
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
// output is made of, and once more when the piece is made: the round may end meanwhile, although
// what the piece is made of stays until then. Commits to the whole output before it hands out the
// last piece.
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
  absl::Status Start() {
    const StageTimer timer;
    const Resources resources = party_->ResourcesFor(*open_);
    SHOAL_ASSIGN_OR_RETURN(PartyContent content,
                           PartyContent::OfList(mac_, size_, *resources.machines));
    source_.emplace(std::move(inner_), std::move(content), open_->Store(party_->journal_, content_),
                    resources.machines, resources.pool);
    SHOAL_RETURN_IF_ERROR(source_->Start());
    timer.AddTo(report_);
    return absl::OkStatus();
  }
  // From now on a reader that breaks off leaves the rest to this object.
  void ReadToTheEnd() { reads_to_the_end_ = true; }
  ~Outgoing() override {
    if (!reads_to_the_end_) return;
    const Working working(*open_);
    if (open_->onward == this) open_->FinishOutput();
  }

  uint64_t size() const override { return size_; }
  // The last piece comes after the commitment.
  bool committed() const { return source_.has_value() && given_ == size_; }
  const wire::StageReport& report() const { return report_; }

  absl::StatusOr<BytesView> Next() override {
    if (given_ == size()) return BytesView();
    const Working working(*open_);
    SHOAL_RETURN_IF_ERROR(CheckCurrent());
    const absl::StatusOr<BytesView> piece = Take();
    if (!piece.ok()) return party_->Break(*open_, piece.status());
    if (committed()) {
      if (const absl::Status done = open_->OutputIsRead(report_); !done.ok()) {
        return party_->Break(*open_, done);
      }
    }
    SHOAL_RETURN_IF_ERROR(CheckCurrent());
    return piece;
  }
  // FAILED_PRECONDITION once what the source reads is gone.
  absl::Status CheckCurrent() const { return open_->CheckGeneration(generation_); }
  // The next piece, for who has open->work, while CheckCurrent holds.
  absl::StatusOr<BytesView> Take() {
    if (const auto* const hook = party_->resources_.making_piece) (*hook)();
    const StageTimer timer;
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, source_->Next());
    given_ += piece.size();
    timer.AddTo(report_);
    return piece;
  }

 private:
  Party* const party_;
  const RoundPointer open_;
  const Content content_;
  std::unique_ptr<ByteSource> inner_;  // until Start
  wire::StageReport report_;
  const ContentMac mac_;
  std::optional<CommittedSource> source_;
  const uint64_t generation_;
  const uint64_t size_;  // a copy, as inner_->size() may read what the round holds
  uint64_t given_ = 0;
  bool reads_to_the_end_ = false;
};

absl::Status Party::OpenRound::StartOutput(Outgoing& output) {
  SHOAL_RETURN_IF_ERROR(output.Start());
  if (output.size() == 0) return OutputIsRead(output.report());
  if (machines == nullptr) return absl::OkStatus();
  output.ReadToTheEnd();
  onward = &output;
  reading = true;
  return absl::OkStatus();
}

absl::Status Party::OpenRound::OutputIsRead(wire::StageReport report) {
  onward = nullptr;
  SHOAL_RETURN_IF_ERROR(Total(report));
  reading = false;
  Report(std::move(report));
  return absl::OkStatus();
}

void Party::OpenRound::FinishOutput() {
  Outgoing* const output = std::exchange(onward, nullptr);
  // After an error the machines have given the round up, and their next call says so.
  while (output != nullptr && !output->committed() && output->CheckCurrent().ok()) {
    const absl::StatusOr<BytesView> piece = output->Take();
    if (!piece.ok() || piece->empty()) break;
  }
  if (output != nullptr && output->committed()) OutputIsRead(output->report()).IgnoreError();
  reading = false;
}

// The same for answers on their way back, with the list in which they lie.
class Party::OutgoingAnswers final : public AnswerSource {
 public:
  OutgoingAnswers(Party* party, RoundPointer open, const RoundKeys& keys,
                  std::unique_ptr<AnswerSource> answers, wire::StageReport report)
      : answers_(*answers),
        out_(party, std::move(open), keys, Content::kAnswersOutput, std::move(answers),
             std::move(report)) {}

  Outgoing& outgoing() { return out_; }
  uint64_t size() const override { return out_.size(); }
  absl::StatusOr<BytesView> Next() override { return out_.Next(); }
  bool in_memory() const override { return answers_.in_memory(); }
  Spool TakeList() override {
    SHOAL_CHECK(out_.committed());
    return answers_.TakeList();
  }

 private:
  AnswerSource& answers_;  // which `out_` owns
  Outgoing out_;
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
  IntakeWork(KeysPointer k, uint64_t b, std::vector<PartyContent::Part> parts,
             const machines::Machines& machines)
      : keys(std::move(k)),
        bytes(b),
        mac(keys->Mac(Content::kOfflineInput)),
        content(mac, std::move(parts), machines) {}
  const KeysPointer keys;
  const uint64_t bytes;
  uint64_t taken = 0;
  // None if a list was committed to before: whether this one is the same, its digest tells.
  std::optional<OnionIntake> onions;
  const ContentMac mac;
  PartyContent content;
  double seconds = 0, cpu_seconds = 0;  // spent in Take

  absl::Status Take(BytesView piece, ThreadPool& pool) {
    if (piece.size() > bytes - taken) {
      return absl::InvalidArgumentError("offline list: more bytes than were announced");
    }
    if (onions.has_value()) SHOAL_RETURN_IF_ERROR(onions->Take(piece));
    content.Update(piece, pool);
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

Party::Intake::Intake(const Party* party, RoundPointer open, StageTry stage,
                      std::unique_ptr<IntakeWork> work)
    : party_(party), open_(std::move(open)), stage_(stage), work_(std::move(work)) {}

Party::Intake::~Intake() = default;

absl::Status Party::Intake::CheckWhole() {
  const MutexLock lock(mutex_);
  return work_ == nullptr ? absl::OkStatus() : work_->Check();
}

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
  return BeginIntake(header, bytes, std::nullopt, {});
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(const wire::SignedHeader& header,
                                                                   uint64_t bytes, uint64_t onions,
                                                                   uint64_t attempt) {
  SHOAL_CHECK(number().value() == 1);
  const auto open = Find(round::RoundId(header.header()));
  auto intake = BeginIntake(header, bytes, onions, {.attempt = attempt});
  if (intake.ok() || !open.ok()) return intake;
  return Break(**open, intake.status());  // the other machines wait for this one
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(const wire::SignedHeader& header,
                                                                   uint64_t bytes,
                                                                   const StageTry& stage) {
  SHOAL_CHECK(number().value() > 1 && has_several_machines());
  return BeginIntake(header, bytes, std::nullopt, stage);
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginIntake(const wire::SignedHeader& header,
                                                                  uint64_t bytes,
                                                                  std::optional<uint64_t> count,
                                                                  const StageTry& stage) {
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
  std::vector<PartyContent::Part> parts = {{.machine = rank(), .bytes = bytes}};
  if (has_several_machines() && !count.has_value()) {
    // The slices of all follow from the length of the list.
    const uint32_t machines = options_.machines.count;
    const size_t onion_bytes = OnionBytesFor(roster().size(), number().value());
    parts.clear();
    if (stage.records > MaxInput().offline_bytes / onion_bytes) {
      return absl::InvalidArgumentError("offline list: longer than the header allows");
    }
    for (uint32_t of = 0; of < machines; ++of) {
      parts.push_back({of, machines::RunOf(stage.records, of, machines).size() * onion_bytes});
    }
    if (parts[rank()].bytes != bytes) {
      return absl::InvalidArgumentError(absl::StrCat("offline list: ", bytes,
                                                     " bytes are not slice ", rank(), " of ",
                                                     stage.records, " records"));
    }
  }
  const Resources resources = ResourcesFor(*open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  auto work = std::make_unique<IntakeWork>(keys, bytes, std::move(parts), *resources.machines);
  if (has_several_machines() && count.has_value()) {
    // Submissions have any length.
    const Working working(*open);
    open->FinishOutput();
    SHOAL_ASSIGN_OR_RETURN(work->content,
                           PartyContent::OfList(work->mac, bytes, *resources.machines));
  }
  std::shared_ptr<Intake> intake;
  {
    const MutexLock lock(open->gate);
    if (open->keys == nullptr) return absl::NotFoundError("round ended");
    // The same list may come again. One of another length need not be opened to be refused.
    if (open->list_bytes.has_value() && *open->list_bytes != bytes) {
      return absl::FailedPreconditionError(
          "another offline list was taken before; a round has one for ever");
    }
    if (open->secrets != nullptr) {
      const RoundContext& context = open->keys->context;
      SHOAL_ASSIGN_OR_RETURN(
          work->onions,
          count.has_value()
              ? OnionIntake::BeginSubmissions(context, *open->secrets, bytes, *count, resources)
              : OnionIntake::Begin(context, *open->secrets, bytes, resources));
    }
    intake.reset(new Intake(this, open, stage, std::move(work)));
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
                                                           ByteSource& submissions, uint64_t onions,
                                                           uint64_t attempt) {
  return OfflineFrom(BeginOffline(header, submissions.size(), onions, attempt), submissions);
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::OfflineFrom(
    absl::StatusOr<std::shared_ptr<Intake>> begun, ByteSource& list) {
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<Intake> intake, std::move(begun));
  const auto take = [&]() -> absl::Status {
    for (;;) {
      SHOAL_ASSIGN_OR_RETURN(const BytesView piece, list.Next());
      if (piece.empty()) return absl::OkStatus();
      SHOAL_RETURN_IF_ERROR(intake->Take(piece));
    }
  };
  if (const absl::Status taken = take(); !taken.ok()) return Break(*intake->open_, taken);
  return Offline(std::move(intake));
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(std::shared_ptr<Intake> list) {
  // Dies at the end of this call, after which another list may come in.
  const std::shared_ptr<Intake> intake = std::move(list);
  OpenRound& open = *intake->open_;
  // What cannot be committed to does not wait for the noise.
  if (const absl::Status whole = intake->CheckWhole(); !whole.ok()) return Break(open, whole);
  const Working working(open);
  absl::Status agreed;
  if (const absl::Status together =
          open.ComeTogether("offline list", intake->stage_, std::nullopt, agreed);
      !together.ok()) {
    return Break(open, together);
  }
  SHOAL_RETURN_IF_ERROR(agreed);
  auto onward = open.OfflineOf(*this, intake->open_, *intake);
  if (!onward.ok()) return Break(open, onward.status());
  return onward;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::OpenRound::OfflineOf(Party& party,
                                                                        const RoundPointer& self,
                                                                        Intake& list_in) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const std::unique_ptr<IntakeWork> list_work = list_in.TakeWork();
  if (list_work == nullptr) return absl::NotFoundError("round ended");
  SHOAL_RETURN_IF_ERROR(list_work->Check());
  if (std::holds_alternative<Ready>(held)) {
    SHOAL_RETURN_IF_ERROR(list_work->content.Commit(Store(party.journal_, Content::kOfflineInput),
                                                    *party.ResourcesFor(*this).machines));
    SHOAL_RETURN_IF_ERROR(Repeat(PartyStage::kReady));
  } else {
    SHOAL_RETURN_IF_ERROR(TakeOnions(party, *round_keys, *list_work));
  }
  auto& ready = std::get<Ready>(held);
  if (ready.list == nullptr) return nullptr;
  ready.list->Rewind();
  auto reader = std::make_unique<ListReader>(ready.list);
  ready.reader = reader->alive();
  auto output = std::make_unique<Outgoing>(&party, self, *round_keys, Content::kOfflineOutput,
                                           std::move(reader), ready.report);
  SHOAL_RETURN_IF_ERROR(StartOutput(*output));
  return output;
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
  SHOAL_RETURN_IF_ERROR(list.content.Commit(Store(party.journal_, Content::kOfflineInput),
                                            *party.ResourcesFor(*this).machines));
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
  // Clients are bound to the round now. Before, whoever learned the total of the noise could drop
  // the round, and propose others until it is low (docs/threat-model.md, "The total of the noise").
  if (noise_report.has_value()) {
    SHOAL_RETURN_IF_ERROR(Total(*noise_report));  // one machine's share is not to be told
    Report(*std::exchange(noise_report, std::nullopt));
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

absl::Status Party::OpenRound::ComeToQueries(Party& party, const StageTry& present) {
  if (machines == nullptr) return absl::OkStatus();
  std::optional<uint64_t> records;
  if (party.number().value() > 1) {
    const MutexLock lock(gate);
    if (material != nullptr) records = material->layout.positions.back();
  }
  absl::Status agreed;
  const absl::Status together = ComeTogether("queries", present, records, agreed);
  return together.ok() ? agreed : party.Break(*this, together);
}

absl::StatusOr<Bytes> Party::Queries(const Digest& round_id, BytesView encoded,
                                     const StageTry& stage) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  SHOAL_RETURN_IF_ERROR(Annotate(open->CheckListTaken(PartyStage::kQueried), kQueriesTooEarly));
  const Working working(*open);
  SHOAL_RETURN_IF_ERROR(open->ComeToQueries(*this, stage));
  if (const absl::Status taken = open->TakeOn(*this, encoded); !taken.ok()) {
    return Break(*open, taken);
  }
  return std::get<OpenRound::Queried>(open->held).forwarded;
}

absl::StatusOr<std::shared_ptr<const wire::QueryBatch>> Party::QueriesOfSlice(
    const Digest& round_id, QueriesIn queries, const StageTry& stage) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  SHOAL_RETURN_IF_ERROR(Annotate(open->CheckListTaken(PartyStage::kQueried), kQueriesTooEarly));
  const Working working(*open);
  SHOAL_RETURN_IF_ERROR(open->ComeToQueries(*this, stage));
  if (const absl::Status taken = open->TakeOn(*this, std::move(queries)); !taken.ok()) {
    return Break(*open, taken);
  }
  return std::get<OpenRound::Queried>(open->held).forwarding->batch;
}

AnswerKeysPointer Party::OpenRound::KeysOfAnswers(const KeysPointer& round_keys,
                                                  std::shared_ptr<const OnlineMaterial> made,
                                                  wire::QueryBatch queries) const {
  return std::make_shared<const AnswerKeys>(
      AnswerKeys{.context = {round_keys, &round_keys->context},
                 .secrets = {round_keys, &round_keys->secrets},
                 .material = std::move(made),
                 .queries = std::make_shared<const wire::QueryBatch>(std::move(queries)),
                 .table = table});
}

absl::Status Party::OpenRound::TakeOn(Party& party, QueriesIn in) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const StageTimer timer;
  const Resources resources = party.ResourcesFor(*this);
  SHOAL_ASSIGN_OR_RETURN(Taken taken,
                         TakeQueries(std::move(in), *round_keys, party.journal_, resources));
  if (!taken.queries.has_value()) return absl::OkStatus();
  const std::shared_ptr<OnlineMaterial> known = std::get<Ready>(held).material;
  SHOAL_ASSIGN_OR_RETURN(Forwarding forwarding,
                         ForwardQueries(round_keys->context, *known, *taken.queries, resources));
  // The way back needs only the queries' places.
  Bytes out = std::move(forwarding.queries);
  SHOAL_RETURN_IF_ERROR(CommitQueries(
      round_keys->Mac(Content::kQueriesOutput), out, forwarding.batch.get(), known->layout.places,
      Store(party.journal_, Content::kQueriesOutput), *resources.machines, *resources.pool));
  wire::StageReport report = ReportOf(party.number(), "online");
  report.set_positions_in(taken.queries->positions.size());
  report.set_bytes_in(taken.bytes);
  report.set_positions_out(forwarding.count);
  report.set_noise_queries(known->noise.size());
  report.set_bytes_out(forwarding.batch == nullptr
                           ? out.size()
                           : wire::EncodedBytes(*forwarding.batch, known->next_positions));
  // What the queries were made of. The memory is enough for the second copy of what goes out.
  SecretVector<NoiseQuery>().swap(known->noise);
  known->shares = {};
  SHOAL_RETURN_IF_ERROR(Become(PartyStage::kQueried,
                               Queried{KeysOfAnswers(round_keys, known, *std::move(taken.queries)),
                                       std::move(forwarding), std::move(out)}));
  timer.AddTo(report);
  SHOAL_RETURN_IF_ERROR(Total(report));
  Report(std::move(report));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::AnswerQueries(const Digest& round_id,
                                                                 QueriesIn queries,
                                                                 const StageTry& stage) {
  if (!is_backend()) return absl::FailedPreconditionError("only the backend answers queries");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  SHOAL_RETURN_IF_ERROR(Annotate(open->CheckListTaken(PartyStage::kQueried), kQueriesTooEarly));
  const Working working(*open);
  SHOAL_RETURN_IF_ERROR(open->ComeToQueries(*this, stage));
  auto answers = open->AnswersTo(*this, open, std::move(queries));
  if (!answers.ok()) return Break(*open, answers.status());
  return answers;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::OpenRound::AnswersTo(Party& party,
                                                                        const RoundPointer& self,
                                                                        QueriesIn in) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const StageTimer timer;
  const Resources resources = party.ResourcesFor(*this);
  SHOAL_ASSIGN_OR_RETURN(Taken taken,
                         TakeQueries(std::move(in), *round_keys, party.journal_, resources));
  if (taken.queries.has_value()) {
    std::shared_ptr<OnlineMaterial> known = std::get<Ready>(held).material;
    SHOAL_RETURN_IF_ERROR(
        Become(PartyStage::kQueried,
               Queried{KeysOfAnswers(round_keys, std::move(known), *std::move(taken.queries)),
                       std::nullopt,
                       {}}));
  }
  const auto& queried = std::get<Queried>(held);
  SHOAL_RETURN_IF_ERROR(KeepTerm(party, *round_keys));
  wire::StageReport report = ReportOf(party.number(), "online");
  report.set_positions_in(queried.keys->queries->positions.size());
  report.set_bytes_in(taken.bytes);
  timer.AddTo(report);
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> answers,
                         server::AnswerQueries(queried.keys, table->answers, resources));
  SHOAL_RETURN_IF_ERROR(Advance(PartyStage::kAnswered));
  auto out = std::make_unique<Outgoing>(&party, self, *round_keys, Content::kAnswersOutput,
                                        std::move(answers), std::move(report));
  SHOAL_RETURN_IF_ERROR(StartOutput(*out));
  return out;
}

absl::Status Party::OpenRound::KeepTerm(const Party& party, const RoundKeys& round_keys) {
  if (draft.max_refreshes() == 0) return absl::OkStatus();
  const auto& queried = std::get<Queried>(held);
  return party.options_.terms->Keep(
      {.header = round_keys.header,
       .round_id = round_keys.context.round_id,
       .secrets = round_keys.secrets,
       .material = *queried.keys->material,
       .queries = *queried.keys->queries,
       .forwarding = queried.forwarding.has_value() ? &*queried.forwarding : nullptr,
       .table = *table});
}

absl::StatusOr<std::unique_ptr<AnswerSource>> Party::Answers(const Digest& round_id,
                                                             ByteSource& answers) {
  OnePart whole(&answers);
  return Answers(round_id, whole);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> Party::Answers(const Digest& round_id,
                                                             PartedSource& answers) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  SHOAL_RETURN_IF_ERROR(Annotate(open->CheckListTaken(PartyStage::kAnswered), kAnswersTooEarly));
  absl::Status agreed;
  auto out = AnswersOf(open, answers, agreed);
  if (!out.ok() && agreed.ok()) return Break(*open, out.status());
  return out;
}

absl::StatusOr<std::unique_ptr<AnswerSource>> Party::AnswersOf(const RoundPointer& open,
                                                               PartedSource& answers,
                                                               absl::Status& agreed) {
  const Resources resources = ResourcesFor(*open);
  wire::StageReport report = ReportOf(number(), "answers");
  report.set_bytes_in(answers.size());
  uint64_t generation;
  // All that this call holds of the round's keys while the neighbour takes its time.
  std::optional<ContentMac> mac;
  std::optional<PartyContent> content;
  {
    SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
    mac.emplace(keys->secrets.ContentKey(), ContentName(Content::kAnswersInput));
    const Working working(*open);
    SHOAL_RETURN_IF_ERROR(Annotate(open->Check(PartyStage::kAnswered), kAnswersTooEarly));
    SHOAL_RETURN_IF_ERROR(open->Repeat(PartyStage::kQueried));
    generation = open->Generation();
    auto& queried = std::get<OpenRound::Queried>(open->held);
    queried.intake.reset();  // what came of them before
    // A list of a wrong length is refused, not committed to.
    SHOAL_ASSIGN_OR_RETURN(
        queried.intake, AnswerIntake::Begin(keys->context, *queried.keys->queries,
                                            *queried.forwarding, answers.part_bytes(), resources));
    SHOAL_ASSIGN_OR_RETURN(content,
                           PartyContent::OfParts(*mac, answers.part_bytes(), *resources.machines));
  }
  // Releases `work` while the next piece is on its way.
  absl::Status broke_off;
  for (;;) {
    const absl::StatusOr<PartedSource::Piece> piece = answers.NextOfAny();
    broke_off = piece.status();
    if (!piece.ok() || piece->bytes.empty()) break;
    const Working working(*open);
    SHOAL_RETURN_IF_ERROR(open->CheckGeneration(generation));
    const StageTimer timer;
    auto& queried = std::get<OpenRound::Queried>(open->held);
    SHOAL_RETURN_IF_ERROR(queried.intake->TakeAt(piece->offset, piece->bytes));
    content->UpdateAt(piece->offset, piece->bytes, *resources.pool);
    timer.AddTo(report);
  }
  if (open->machines == nullptr) SHOAL_RETURN_IF_ERROR(broke_off);
  const Working working(*open);
  if (open->machines != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(const auto said, open->Say("answers came", Said(broke_off)));
    for (const Said& each : said) {
      if (agreed.ok() && each.has_value()) agreed = *each;
    }
    SHOAL_RETURN_IF_ERROR(agreed);
  }
  SHOAL_RETURN_IF_ERROR(open->CheckGeneration(generation));
  const StageTimer timer;
  auto& queried = std::get<OpenRound::Queried>(open->held);
  if (!queried.intake->complete()) {
    return absl::InvalidArgumentError("answers: not all of them came");
  }
  SHOAL_RETURN_IF_ERROR(
      content->Commit(open->Store(journal_, Content::kAnswersInput), *resources.machines));
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  SHOAL_RETURN_IF_ERROR(open->KeepTerm(*this, *keys));
  report.set_positions_in(queried.forwarding->count);
  report.set_positions_out(queried.keys->queries->positions.size());
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<AnswerSource> returned,
      ReturnAnswers(queried.keys, *std::exchange(queried.intake, std::nullopt), resources));
  SHOAL_RETURN_IF_ERROR(open->Advance(PartyStage::kAnswered));
  timer.AddTo(report);
  auto out =
      std::make_unique<OutgoingAnswers>(this, open, *keys, std::move(returned), std::move(report));
  SHOAL_RETURN_IF_ERROR(open->StartOutput(out->outgoing()));
  return out;
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
  if (open->machines != nullptr && options_.machines.ended) options_.machines.ended(round_id);
  { const Working working(*open); }
  return EndInJournal(open->counter());
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
    if (one.open->machines != nullptr && options_.machines.ended) {
      options_.machines.ended(one.open->id);
    }
    if (options_.ended) options_.ended(one.open->counter(), one.why);
  }
  std::erase_if(unwritten, [&](RoundCounter counter) { return EndInJournal(counter).ok(); });
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
  return round::SignLiveRounds(std::move(list), *key_);
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
    // Where another machine is the head, it hears for all, and its silence ends this process.
    const bool unheard = rank() == 0 && std::max(heard_s, open.drafted_s) + kUnheardLimitS < now_s;
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
