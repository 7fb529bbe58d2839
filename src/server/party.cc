#include "src/server/party.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/server/open_round.h"
#include "src/server/terms.h"
#include "src/sharing/batch.h"

namespace shoal::server {
namespace {

// An order that the head has given before it took a newer epoch of the table has come and is done
// after so long, many times over.
constexpr uint64_t kOrdersArriveWithinS = 10;

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

Party::Options WithMachines(Party::Options options) {
  if (options.machines.count > 1) return options;
  options.machines.join = [](uint32_t,
                             const Digest&) -> absl::StatusOr<std::shared_ptr<machines::Machines>> {
    return Alone();
  };
  return options;
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
    : options_(WithMachines(std::move(options))),
      key_(key),
      journal_(journal),
      random_(random),
      clock_(clock),
      resources_(resources),
      services_(new RoundServices{
          .party = options_.number,
          .parties = options_.roster.size(),
          .journal = journal,
          .terms = options_.terms,
          .resources = resources,
          .progress = options_.progress,
          .stage_done = options_.stage_done,
          .break_off = [this](OpenRound& open,
                              const absl::Status& why) { return Break(open, why); }}),
      // A Roster exists only with noise parameters that give a distribution.
      noise_(*noise::Distribution::Create(options_.roster.noise())),
      table_(std::move(table)) {}

Party::~Party() = default;

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
  if (!is_backend()) context.next_machines = roster().party(number().value() + 1).machines;
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
  if (options_.machines.opened != nullptr) kept = root.Clone();
  OpenRound::Drafted drawn{RoundSecrets(std::move(root)), std::move(kept)};
  wire::RoundHeader extended = draft;
  extended.DiscardUnknownFields();  // only what was checked is sent on
  extended.add_onion_keys(ToString(drawn.secrets.OnionKeyPair().public_key));
  const MutexLock lock(mutex_);
  drafts_[counter] = std::make_shared<OpenRound>(*services_, extended, std::move(drawn), table,
                                                 clock_->SteadySeconds());
  return extended;
}

namespace {

// INVALID_ARGUMENT unless the header is the draft that this party sent on, plus the others' keys.
absl::Status CheckIsOfDraft(const wire::RoundHeader& draft, const wire::RoundHeader& header,
                            const Digest& id) {
  wire::RoundHeader completed = draft;
  for (int i = completed.onion_keys_size(); i < header.onion_keys_size(); ++i) {
    completed.add_onion_keys(header.onion_keys(i));
  }
  if (round::RoundId(completed) != id) {
    return absl::InvalidArgumentError(
        absl::StrCat("round ", header.counter(), ": its header came back changed"));
  }
  return absl::OkStatus();
}

}  // namespace

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
  const OpenRound::Working working(*open);
  SHOAL_RETURN_IF_ERROR(
      Annotate(open->Check(PartyStage::kSigned),
               absl::StrCat("round ", counter.value(), ": not drafted here, or signed already")));
  const Digest id = round::RoundId(header);
  SHOAL_RETURN_IF_ERROR(CheckIsOfDraft(open->draft, header, id));
  SHOAL_ASSIGN_OR_RETURN(RoundContext context, MakeWholeContext(header, id));
  SHOAL_ASSIGN_OR_RETURN(std::vector<signature::Signature> signatures, SignaturesOf(from_next));
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
    absl::StatusOr<std::shared_ptr<machines::Machines>> machines;
    if (signed_now.ok()) {
      machines = options_.machines.join(++opened_, id);
      signed_now = machines.status();
    }
    if (signed_now.ok()) {
      std::optional<Seed> root =
          open->BecomeSigned(header, std::move(context), *std::move(machines));
      // Before anybody can end the round, so that the others hear of both in this order.
      if (root.has_value()) options_.machines.opened({opened_, out, *std::move(root)});
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

absl::StatusOr<std::vector<signature::Signature>> Party::SignaturesOf(
    const wire::SignedHeader& from_next) const {
  if (!is_backend()) {
    SHOAL_ASSIGN_OR_RETURN(signature::Signature theirs,
                           signature::Signature::FromBytes(AsBytes(from_next.signature())));
    return std::vector<signature::Signature>{theirs};
  }
  if (from_next.signature().empty()) return std::vector<signature::Signature>();
  return absl::InvalidArgumentError("round header: signed before the last party");
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
  const auto open = std::make_shared<OpenRound>(
      *services_, header, OpenRound::Drafted{std::move(secrets), std::nullopt}, table,
      clock_->SteadySeconds());
  const OpenRound::Working working(*open);
  const MutexLock lock(mutex_);
  if (rounds_.contains(id)) return absl::AlreadyExistsError("the round is open already");
  if (rounds_.size() >= options_.max_open_rounds) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.max_open_rounds, " rounds are open here already"));
  }
  const MutexLock gate(open->gate);
  open->BecomeSigned(header, std::move(context), machines);
  rounds_[id] = open;
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

absl::StatusOr<std::shared_ptr<OpenRound>> Party::Find(const Digest& round_id) const {
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

absl::Status Party::Break(OpenRound& open, const absl::Status& why) {
  if (open.alone()) return why;
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
  if (!open.ok() || (*open)->alone()) return true;
  const MutexLock lock((*open)->gate);
  return (*open)->begun >= attempt;
}

absl::Status Party::SendTogether(const Digest& round_id, absl::string_view what, uint64_t attempt,
                                 const std::function<absl::Status(const OwnRun& mine)>& send) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return open->SendTogether(what, attempt, send);
}

absl::Status Party::PrepareNoise(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  const OpenRound::Working working(*open);
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  return open->MakeNoise(*keys);
}

absl::StatusOr<uint64_t> Party::AnswerBytes(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return round::TaggedAnswerBytes(open->draft);
}

Party::InputLimits::InputLimits(uint64_t onions, size_t onion_bytes)
    : offline_bytes(onions * onion_bytes),
      queries_bytes(wire::MaxQueryBatchBytes(static_cast<uint32_t>(onions))) {}

Party::InputLimits Party::MaxInput() const {
  return {MaxOnions(), OnionBytesFor(roster().size(), number().value())};
}

uint64_t Party::MaxOnions() const {
  uint64_t rows;
  {
    const MutexLock lock(table_mutex_);
    rows = table_->facts.rows;
    for (const auto& earlier : earlier_) {
      if (const auto epoch = earlier.lock()) rows = std::max(rows, epoch->facts.rows);
    }
  }
  return std::min<uint64_t>(MaxPositions(number(), roster().max_slots(), rows, noise_),
                            OnlineMaterial::kDead - 1);
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(const wire::SignedHeader& header,
                                                                   uint64_t bytes,
                                                                   const StageTry& stage) {
  // Only headers that this party has signed are found by their id.
  const absl::StatusOr<RoundPointer> found = Find(round::RoundId(header.header()));
  const std::shared_ptr<const TableEpoch> table = found.ok() ? (*found)->table : this->table();
  // An open round was in its time when it was signed, and EndExpired ends it.
  const uint64_t now_s = found.ok() ? (*found)->draft.announced_s() : clock_->NowSeconds();
  absl::Status begun = round::Round::Verify(header, roster(), table->facts, now_s).status();
  if (!found.ok()) return begun.ok() ? found.status() : begun;
  if (begun.ok()) {
    auto intake = (*found)->BeginList(bytes, stage, MaxInput().offline_bytes);
    if (intake.ok()) return intake;
    begun = intake.status();
  }
  return ListFailed(**found, begun);
}

absl::Status Party::ListFailed(OpenRound& open, const absl::Status& why) {
  return number().value() == 1 ? Break(open, why) : why;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(std::shared_ptr<Intake> list,
                                                           ByteSource* rest) {
  // Dies at the end of this call, after which another list may come in.
  const std::shared_ptr<Intake> intake = std::move(list);
  while (rest != nullptr) {
    const absl::StatusOr<BytesView> piece = rest->Next();
    absl::Status taken = piece.status();
    if (taken.ok() && piece->empty()) break;
    if (taken.ok()) taken = intake->Take(*piece);
    if (!taken.ok()) return ListFailed(*intake->open(), taken);
  }
  return intake->open()->Offline(*intake);
}

absl::StatusOr<QueriesOut> Party::Queries(const Digest& round_id, QueriesIn queries,
                                          const StageTry& stage) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return open->Queries(std::move(queries), stage);
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::AnswerQueries(const Digest& round_id,
                                                                 QueriesIn queries,
                                                                 const StageTry& stage) {
  if (!is_backend()) return absl::FailedPreconditionError("only the backend answers queries");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return open->AnswerQueries(std::move(queries), stage);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> Party::Answers(const Digest& round_id,
                                                             PartedSource& answers) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return open->Answers(answers);
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
  if (options_.machines.ended) options_.machines.ended(round_id);
  { const OpenRound::Working working(*open); }
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
    bool draft;
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
        ended.push_back({open, open->Leave(), reason, draft});
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
    if (!one.draft && options_.machines.ended) options_.machines.ended(one.open->id);
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
