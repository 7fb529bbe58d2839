#include "src/server/party.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/query_buckets.h"
#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/server/half_online.h"
#include "src/server/open_round.h"
#include "src/server/terms.h"
#include "src/sharing/batch.h"
#include "src/sharing/halves.h"

namespace shoal::server {
namespace {

// An order that the head has given before it took a newer epoch of the table has come and is done
// after so long, many times over.
constexpr uint64_t kOrdersArriveWithinS = 10;

// INVALID_ARGUMENT unless the noise fits the table: rows, or in two tiers the places of a client's
// queries.
absl::Status CheckPhi(const round::TableFacts& facts, const roster::Roster& roster) {
  const uint64_t most = roster.most_in_bucket();
  const bool two_tiers = most != 0 && facts.query_buckets != 0;
  return noise::CheckPhi(roster.noise(), two_tiers ? most * facts.query_buckets : facts.rows);
}

// INVALID_ARGUMENT unless a party can serve this epoch of the table.
absl::Status CheckTable(const TableEpoch& table, const roster::Roster& roster, bool answers) {
  const size_t answer_bytes = table.facts.row_bytes + signature::kSignatureBytes;
  if (answers && (table.answers.rows != table.facts.rows ||
                  table.answers.bytes.size() != table.facts.rows * answer_bytes)) {
    return absl::InvalidArgumentError("the table that answers come from does not fit its manifest");
  }
  if (table.facts.query_buckets != 0) {
    SHOAL_RETURN_IF_ERROR(QueryBuckets::Check(table.facts.rows, table.facts.query_buckets));
  }
  return CheckPhi(table.facts, roster);
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
  return CheckTable(options.table, options.roster,
                    number == options.roster.size() || options.roster.most_in_bucket() != 0);
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
  return CheckPhi(next.facts, roster());
}

absl::Status Party::TakeEpoch(TableEpoch next) {
  const MutexLock taking(take_mutex_);
  SHOAL_RETURN_IF_ERROR(CheckEpoch(next));
  SHOAL_RETURN_IF_ERROR(CheckTable(next, roster(), answers_from_table()));
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

std::vector<ChainPlace> Party::PlacesIn(const wire::RoundHeader& header) const {
  if (header.query_buckets() == 0) return {{.party = number(), .parties = roster().size()}};
  constexpr uint32_t kOfAHalf = 2;
  return {{.party = number(), .parties = kOfAHalf, .half = sharing::Half::kA},
          {.party = PartyNumber(kOfAHalf + 1 - number().value()),
           .parties = kOfAHalf,
           .half = sharing::Half::kB}};
}

RoundContext Party::MakeContext(const wire::RoundHeader& header, const Digest& round_id,
                                const ChainPlace& place) const {
  RoundContext context{.counter = RoundCounter(header.counter()),
                       .round_id = round_id,
                       .party = place.party,
                       .parties = place.parties,
                       .answer_bytes = header.answer_bytes(),
                       .max_rows = header.max_rows(),
                       .max_slots = header.max_slots(),
                       .noise = noise_,
                       .next_recipients = {}};
  if (place.half.has_value()) {
    const sharing::HalfIds ids(round_id);
    context.half = {.half = *place.half,
                    .ids = ids,
                    .buckets = QueryBuckets(header.max_rows(), header.query_buckets())};
    context.round_id = ids.of(*place.half);
    context.max_rows = header.query_buckets();
  } else if (!is_backend()) {
    context.next_machines = roster().party(number().value() + 1).machines;
  }
  return context;
}

absl::StatusOr<RoundContext> Party::MakeWholeContext(const wire::RoundHeader& header,
                                                     const Digest& round_id,
                                                     const ChainPlace& place) const {
  RoundContext context = MakeContext(header, round_id, place);
  // Half A has the first two keys.
  const uint32_t first = place.half == sharing::Half::kB ? place.parties : 0;
  for (uint32_t next = place.party.value() + 1; next <= place.parties; ++next) {
    onion::PublicKey key;
    std::ranges::copy(AsBytes(header.onion_keys(static_cast<int>(first + next) - 1)), key.begin());
    SHOAL_ASSIGN_OR_RETURN(onion::Recipient recipient, onion::Recipient::Create(key));
    context.next_recipients.push_back(std::move(recipient));
  }
  return context;
}

absl::Status Party::CheckDraft(const wire::RoundHeader& draft, const TableEpoch& table) const {
  const uint64_t now_s = clock_->NowSeconds();
  if (draft.roster_digest() == AsText(roster().digest()) &&
      draft.manifest_digest().size() == sizeof(Digest) &&
      draft.manifest_digest() != AsText(table.facts.manifest_digest)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "has another epoch of the table than the proposal names: epoch ", table.epoch));
  }
  SHOAL_RETURN_IF_ERROR(round::CheckHeader(draft, round::OnionKeysBefore(draft, number().value()),
                                           roster(), table.facts, now_s));
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
  return absl::OkStatus();
}

absl::StatusOr<wire::RoundHeader> Party::ExtendDraft(const wire::RoundHeader& draft) {
  const std::shared_ptr<const TableEpoch> table = this->table();
  if (options_.machines.ready != nullptr) {
    SHOAL_RETURN_IF_ERROR(options_.machines.ready(table->epoch));
  }
  SHOAL_RETURN_IF_ERROR(CheckDraft(draft, *table));
  const RoundCounter counter(draft.counter());
  EndExpired();
  if (draft.max_refreshes() > 0) {
    if (options_.terms == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("round ", counter.value(), ": has a term, and this party keeps none"));
    }
    SHOAL_RETURN_IF_ERROR(options_.terms->CheckRoom());
  }
  const std::vector<ChainPlace> places = PlacesIn(draft);
  std::vector<RoundContext> contexts;
  for (const ChainPlace& place : places) contexts.push_back(MakeContext(draft, Digest(), place));
  SHOAL_RETURN_IF_ERROR(CheckEmptyRound(contexts, resources_));
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
  const Seed root = random_->NewSeed();
  std::vector<OpenRound::Drafted> drawn;
  std::vector<std::string> keys;
  for (const ChainPlace& place : places) {
    std::optional<Seed> kept;
    if (options_.machines.opened != nullptr) kept = root.Clone();
    drawn.push_back(
        {RoundSecrets(place.half.has_value() ? sharing::HalfRoot(root.view(), *place.half)
                                             : root.Clone()),
         std::move(kept)});
    keys.push_back(ToString(drawn.back().secrets.OnionKeyPair().public_key));
  }
  wire::RoundHeader extended = draft;
  extended.DiscardUnknownFields();  // only what was checked is sent on
  round::AddOnionKeys(keys, extended);
  const auto lists = std::make_shared<OfflineLists>(places.size(), services_->stage_done);
  RoundParts parts;
  for (size_t i = 0; i < places.size(); ++i) {
    parts.push_back(std::make_shared<OpenRound>(*services_, places[i], lists, extended,
                                                std::move(drawn[i]), table,
                                                clock_->SteadySeconds()));
  }
  const MutexLock lock(mutex_);
  drafts_[counter] = std::move(parts);
  return extended;
}

namespace {

std::optional<Seed> SignPart(OpenRound& open, const wire::RoundHeader& header, const Digest& id,
                             RoundContext context,
                             const std::shared_ptr<machines::Machines>& machines)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(open.work) {
  const MutexLock gate(open.gate);
  return open.BecomeSigned(header, id, std::move(context), machines);
}

// All parts, of which the caller holds the first one. Returns the root, where other machines need
// it.
std::optional<Seed> SignParts(OpenRound& first, std::span<const std::shared_ptr<OpenRound>> parts,
                              const wire::RoundHeader& header, const Digest& id,
                              std::vector<RoundContext> contexts,
                              const std::shared_ptr<machines::Machines>& machines)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(first.work) {
  std::optional<Seed> root = SignPart(first, header, id, std::move(contexts.front()), machines);
  for (size_t i = 1; i < parts.size(); ++i) {
    OpenRound& part = *parts[i];
    const OpenRound::Working working(part);
    SignPart(part, header, id, std::move(contexts[i]), machines);
  }
  return root;
}

}  // namespace

absl::StatusOr<wire::SignedHeader> Party::SignHeader(const wire::SignedHeader& from_next) {
  const wire::RoundHeader& header = from_next.header();
  const RoundCounter counter(header.counter());
  RoundParts parts;
  {
    const MutexLock lock(mutex_);
    if (const auto found = drafts_.find(counter); found != drafts_.end()) parts = found->second;
  }
  const std::shared_ptr<const TableEpoch> table =
      parts.empty() ? this->table() : parts.front()->table;
  SHOAL_RETURN_IF_ERROR(round::CheckHeader(header, round::OnionKeysOf(header, roster()), roster(),
                                           table->facts, clock_->NowSeconds()));
  if (parts.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", counter.value(), ": not drafted here, or signed already"));
  }
  // Spares a draft that can no longer be signed the record in the journal. The check that counts
  // is the one below.
  SHOAL_RETURN_IF_ERROR(CheckNewest(*table));
  // Keeps other calls of this kind from the other half, too: nothing else works on a draft.
  OpenRound& first = *parts.front();
  const OpenRound::Working working(first);
  SHOAL_RETURN_IF_ERROR(
      Annotate(first.Check(PartyStage::kSigned),
               absl::StrCat("round ", counter.value(), ": not drafted here, or signed already")));
  const Digest id = round::RoundId(header);
  if (!round::Completes(first.draft, header)) {
    return absl::InvalidArgumentError(
        absl::StrCat("round ", counter.value(), ": its header came back changed"));
  }
  std::vector<RoundContext> contexts;
  for (const RoundPointer& part : parts) {
    SHOAL_ASSIGN_OR_RETURN(RoundContext context, MakeWholeContext(header, id, part->place));
    contexts.push_back(std::move(context));
  }
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
    const MutexLock lock(mutex_);  // without which no draft ends
    signed_now = CheckNewest(*table);
    if (signed_now.ok()) signed_now = first.Check(PartyStage::kSigned);
    absl::StatusOr<std::shared_ptr<machines::Machines>> machines;
    if (signed_now.ok()) {
      machines = options_.machines.join(++opened_, id);
      signed_now = machines.status();
    }
    if (signed_now.ok()) {
      std::optional<Seed> root =
          SignParts(first, parts, header, id, std::move(contexts), *machines);
      // Before anybody can end the round, so that the others hear of both in this order.
      if (root.has_value()) options_.machines.opened({opened_, out, *std::move(root)});
      drafts_.erase(counter);
      rounds_[id] = parts;
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
  // Only rounds for rows have several machines.
  const ChainPlace place{.party = number(), .parties = roster().size()};
  RoundSecrets secrets(opening.root.Clone());
  if (header.onion_keys(static_cast<int>(number().value()) - 1) !=
      ToString(secrets.OnionKeyPair().public_key)) {
    return absl::InvalidArgumentError("a round's seed is not that of its header");
  }
  SHOAL_ASSIGN_OR_RETURN(RoundContext context, MakeWholeContext(header, id, place));
  const auto open = std::make_shared<OpenRound>(
      *services_, place, std::make_shared<OfflineLists>(1, services_->stage_done), header,
      OpenRound::Drafted{std::move(secrets), std::nullopt}, table, clock_->SteadySeconds());
  const OpenRound::Working working(*open);
  const MutexLock lock(mutex_);
  if (rounds_.contains(id)) return absl::AlreadyExistsError("the round is open already");
  if (rounds_.size() >= options_.max_open_rounds) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options_.max_open_rounds, " rounds are open here already"));
  }
  const MutexLock gate(open->gate);
  open->BecomeSigned(header, id, std::move(context), machines);
  rounds_[id] = {open};
  return absl::OkStatus();
}

absl::Status Party::Withdraw(RoundCounter counter) {
  std::optional<Digest> signed_round;
  {
    const MutexLock lock(mutex_);
    const bool drafted = DropDraftLocked(counter);
    const auto found = std::ranges::find_if(
        rounds_, [&](const auto& entry) { return entry.second.front()->counter() == counter; });
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
  const RoundParts parts = std::move(found->second);
  drafts_.erase(found);
  Leave(parts);
  return true;
}

std::vector<std::shared_ptr<Party::Intake>> Party::Leave(const RoundParts& parts) {
  std::vector<std::shared_ptr<Intake>> intakes;
  for (const RoundPointer& part : parts) {
    if (auto intake = part->Leave(); intake != nullptr) intakes.push_back(std::move(intake));
  }
  return intakes;
}

absl::StatusOr<std::shared_ptr<OpenRound>> Party::Find(const Digest& round_id,
                                                       sharing::Half half) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundParts parts, FindAll(round_id));
  if (half == sharing::Half::kA) return parts.front();
  if (parts.size() > 1) return parts.back();
  return absl::FailedPreconditionError(absl::StrCat("round ", Hex(BytesView(round_id).first(8)),
                                                    "..: is for rows, and has no half"));
}

absl::StatusOr<Party::RoundParts> Party::FindAll(const Digest& round_id) const {
  const MutexLock lock(mutex_);
  const auto found = rounds_.find(round_id);
  if (found == rounds_.end()) {
    return absl::NotFoundError(
        absl::StrCat("round ", Hex(BytesView(round_id).first(8)), "..: not open here"));
  }
  return found->second;
}

absl::StatusOr<PartyStage> Party::Stage(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundParts parts, FindAll(round_id));
  PartyStage stage = PartyStage::kEnded;
  for (const RoundPointer& part : parts) {
    const MutexLock lock(part->gate);
    stage = std::min(stage, part->stage.get());
  }
  return stage;
}

absl::Status Party::Break(OpenRound& open, const absl::Status& why) {
  if (open.alone()) return why;
  // A round of several machines is for rows.
  RoundParts broken;
  std::vector<std::shared_ptr<Intake>> intakes;
  {
    const MutexLock lock(mutex_);
    const auto found = rounds_.find(open.id);
    if (found != rounds_.end() && found->second.front().get() == &open) {
      broken = std::move(found->second);
      rounds_.erase(found);
      intakes = Leave(broken);
    }
  }
  if (!broken.empty()) {
    for (const auto& intake : intakes) intake->TakeWork();
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
  SHOAL_ASSIGN_OR_RETURN(const RoundParts parts, FindAll(round_id));
  for (const RoundPointer& open : parts) {
    const OpenRound::Working working(*open);
    SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
    SHOAL_RETURN_IF_ERROR(open->MakeNoise(*keys));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Party::AnswerBytes(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  return round::TaggedAnswerBytes(open->draft);
}

Party::InputLimits::InputLimits(uint64_t onions, size_t onion_bytes)
    : offline_bytes(onions * onion_bytes),
      queries_bytes(wire::MaxQueryBatchBytes(static_cast<uint32_t>(onions))) {}

Party::Largest Party::LargestOfEpochs() const {
  Largest largest;
  const auto count = [&](const round::TableFacts& facts) {
    largest.rows = std::max(largest.rows, facts.rows);
    largest.answer_bytes =
        std::max<uint64_t>(largest.answer_bytes, facts.row_bytes + signature::kSignatureBytes);
    if (facts.query_buckets == 0) return;
    const size_t s = QueryBuckets(facts.rows, facts.query_buckets).selection_bytes();
    largest.buckets = std::max<uint64_t>(largest.buckets, facts.query_buckets);
    largest.record_bytes =
        std::max<uint64_t>(largest.record_bytes, sharing::ForwardedBytes(sharing::Half::kA, s));
  };
  const MutexLock lock(table_mutex_);
  count(table_->facts);
  for (const auto& earlier : earlier_) {
    if (const auto epoch = earlier.lock()) count(epoch->facts);
  }
  return largest;
}

uint64_t Party::MaxOnions(const Largest& largest) const {
  const bool two_tiers = largest.buckets != 0 && roster().most_in_bucket() != 0;
  return std::min<uint64_t>(MaxPositions(number(), roster().max_slots(),
                                         two_tiers ? largest.buckets : largest.rows, noise_),
                            OnlineMaterial::kDead - 1);
}

uint64_t Party::MaxOnions() const { return MaxOnions(LargestOfEpochs()); }

Party::InputLimits Party::MaxInput() const {
  const Largest largest = LargestOfEpochs();
  const uint64_t onions = MaxOnions(largest);
  InputLimits limits(onions, OnionBytesFor(roster().size(), number().value()));
  if (largest.buckets == 0 || roster().most_in_bucket() == 0) return limits;
  // Party 2 is the tail of half A and the head of half B. Each list has as many positions at most.
  const uint32_t slots = roster().max_slots();
  limits.queries_bytes =
      wire::MaxRecordBatchBytes(static_cast<uint32_t>(onions), largest.record_bytes);
  limits.pieces_bytes = slots * (kSubmissionLengthBytes + onion::SubmissionBytes(2, 1));
  limits.parts_bytes = wire::MaxRecordBatchBytes(slots, sharing::PartBytes(sharing::Half::kB, 0));
  limits.half_answers_bytes = onions * sharing::TaggedBytes(largest.answer_bytes);
  return limits;
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(const wire::SignedHeader& header,
                                                                   uint64_t bytes,
                                                                   const StageTry& stage,
                                                                   sharing::Half half) {
  // Only headers that this party has signed are found by their id.
  const absl::StatusOr<RoundPointer> found = Find(round::RoundId(header.header()), half);
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

absl::StatusOr<Party::Pieces> Party::TakePieces(const Digest& round_id, ByteSource& a,
                                                ByteSource& b) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer half_a, Find(round_id, sharing::Half::kA));
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer half_b, Find(round_id, sharing::Half::kB));
  if (number().value() != 1) return absl::FailedPreconditionError("clients submit to party 1");
  SHOAL_ASSIGN_OR_RETURN(Spool of_a, half_a->TakeWhole(Content::kOfflineInput, a));
  SHOAL_ASSIGN_OR_RETURN(Spool of_b, half_b->TakeWhole(Content::kPieces, b));
  return Pieces{.a = std::move(of_a), .b = std::move(of_b)};
}

namespace {

absl::Status AnswersItself() {
  return absl::FailedPreconditionError("the backend answers queries itself");
}

// Answers that have all come.
class WholeAnswers final : public AnswerSource {
 public:
  explicit WholeAnswers(Spool answers) : answers_(std::move(answers)) {}
  uint64_t size() const override { return answers_.size(); }
  absl::StatusOr<BytesView> Next() override {
    constexpr uint64_t kPieceBytes = 1 << 20;
    piece_.resize(std::min(kPieceBytes, answers_.size() - given_));
    SHOAL_RETURN_IF_ERROR(answers_.Read(given_, piece_));
    given_ += piece_.size();
    return BytesView(piece_);
  }
  bool in_memory() const override { return answers_.in_memory(); }
  Spool TakeList() override {
    SHOAL_CHECK(given_ == answers_.size());
    return std::move(answers_);
  }

 private:
  Spool answers_;
  uint64_t given_ = 0;
  SecretVector<uint8_t> piece_;
};

}  // namespace

absl::StatusOr<QueriesOut> Party::Queries(const Digest& round_id, QueriesIn queries,
                                          const StageTry& stage, sharing::Half half) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id, half));
  if (open->place.is_last()) return AnswersItself();
  return open->Queries(std::move(queries), stage);
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::AnswerQueries(const Digest& round_id,
                                                                 QueriesIn queries,
                                                                 const StageTry& stage,
                                                                 sharing::Half half) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id, half));
  if (!open->place.is_last()) {
    return absl::FailedPreconditionError("only the backend answers queries");
  }
  return open->AnswerQueries(std::move(queries), stage);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> Party::Answers(const Digest& round_id,
                                                             PartedSource& answers,
                                                             sharing::Half half) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id, half));
  if (open->place.is_last()) return AnswersItself();
  return open->Answers(answers);
}

absl::StatusOr<std::shared_ptr<HalfAnswersIntake>> Party::BeginHalfAnswers(const Digest& round_id,
                                                                           uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id, sharing::Half::kB));
  if (open->place.is_last()) return AnswersItself();
  return open->BeginHalfAnswers(bytes);
}

absl::StatusOr<Party::Returned> Party::MostReturned(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id, sharing::Half::kB));
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer keys, open->Keys());
  const RoundContext& context = keys->context;
  const uint64_t positions = std::min<uint64_t>(
      MaxPositions(context.party, context.max_slots, context.max_rows, context.noise),
      OnlineMaterial::kDead - 1);
  return Returned{.list_bytes = positions * context.onion_bytes(),
                  .batch_bytes = wire::MaxRecordBatchBytes(static_cast<uint32_t>(positions),
                                                           context.half->forwarded_bytes())};
}

absl::StatusOr<std::unique_ptr<AnswerSource>> Party::TakeHeadAnswers(const Digest& round_id,
                                                                     uint64_t queries,
                                                                     ByteSource& answers) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id, sharing::Half::kB));
  {
    const MutexLock lock(open->gate);
    if (!open->place.is_last() || open->stage.get() != PartyStage::kAnswered) {
      return absl::FailedPreconditionError("answers came before half B was answered");
    }
  }
  const uint64_t expected = queries * round::TaggedAnswerBytes(open->draft);
  if (answers.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat("answers: ", answers.size(), " bytes, where ",
                                                   queries, " parts were sent and ", expected,
                                                   " bytes are due"));
  }
  SHOAL_ASSIGN_OR_RETURN(Spool all, open->TakeWhole(Content::kAnswersInput, answers));
  return std::make_unique<WholeAnswers>(std::move(all));
}

absl::Status Party::End(const Digest& round_id) {
  RoundParts parts;
  std::vector<std::shared_ptr<Intake>> intakes;
  {
    const MutexLock lock(mutex_);
    const auto found = rounds_.find(round_id);
    if (found == rounds_.end()) return absl::OkStatus();
    parts = std::move(found->second);
    rounds_.erase(found);
    intakes = Leave(parts);
  }
  // From here on no list can begin. A list on its way in loses its keys now, whenever the neighbour
  // sends the rest. A call that still works on the round finishes first.
  for (const auto& intake : intakes) intake->TakeWork();
  if (options_.machines.ended) options_.machines.ended(round_id);
  for (const RoundPointer& part : parts) const OpenRound::Working working(*part);
  return EndInJournal(parts.front()->counter());
}

void Party::EndAll() {
  std::vector<Digest> ids;
  std::vector<RoundCounter> counters;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, parts] : rounds_) ids.push_back(id);
    for (const auto& [counter, parts] : drafts_) counters.push_back(counter);
  }
  // An end that cannot be stored now is stored at the next start.
  for (const Digest& id : ids) End(id).IgnoreError();
  for (RoundCounter counter : counters) Withdraw(counter).IgnoreError();
}

void Party::EndThose(const std::function<absl::string_view(const OpenRound&, bool draft)>& why) {
  struct Ended {
    RoundParts parts;
    std::vector<std::shared_ptr<Intake>> intakes;
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
        const OpenRound& open = *entry.second.front();
        const absl::string_view reason = why(open, draft);
        if (reason.empty()) return false;
        ended.push_back({entry.second, Leave(entry.second), reason, draft});
        unwritten.insert(open.counter());
        return true;
      });
    };
    end_in(rounds_, /*draft=*/false);
    end_in(drafts_, /*draft=*/true);
  }
  for (const Ended& one : ended) {
    for (const auto& intake : one.intakes) intake->TakeWork();
    for (const RoundPointer& part : one.parts) part->DropIfEnded();
    const OpenRound& open = *one.parts.front();
    if (!one.draft && options_.machines.ended) options_.machines.ended(open.id);
    if (options_.ended) options_.ended(open.counter(), one.why);
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
  for (const auto& [id, parts] : rounds_) lacking.erase(parts.front()->counter());
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

namespace {

// What a round has in its online stage. Keeps it while it is read: the round may go on or end
// meanwhile.
struct Online {
  KeysPointer keys;
  std::shared_ptr<const OnlineMaterial> material;
};
std::optional<Online> OnlineOf(const OpenRound& open) {
  const MutexLock lock(open.gate);
  if (open.keys == nullptr || open.material == nullptr) return std::nullopt;
  return Online{open.keys, open.material};
}

// The number of the first slot that is no living position.
size_t FirstUnknown(const OnlineMaterial& material, std::span<const uint32_t> slots) {
  const auto good = std::ranges::find_if_not(
      slots, [&](uint32_t slot) { return slot < material.positions && !material.dead(slot); });
  return static_cast<size_t>(good - slots.begin());
}

}  // namespace

size_t Party::FirstWrongToken(const Digest& round_id, std::span<const uint32_t> slots,
                              std::span<const sharing::Token> tokens) const {
  SHOAL_CHECK(slots.size() == tokens.size());
  const auto open = Find(round_id);
  if (!open.ok()) return 0;
  const auto online = OnlineOf(**open);
  if (!online.has_value()) return 0;
  const OnlineMaterial& material = *online->material;
  const size_t known = FirstUnknown(material, slots);
  return sharing::FirstWrongToken(material.seeds.data(), slots.first(known),
                                  online->keys->context.round_id, tokens.first(known));
}

size_t Party::FirstWrongPart(const Digest& round_id, std::span<const uint32_t> slots,
                             BytesView parts) const {
  const auto open = Find(round_id);
  if (!open.ok()) return 0;
  const auto online = OnlineOf(**open);
  if (!online.has_value() || !online->keys->context.half.has_value()) return 0;
  const size_t part_bytes = online->keys->context.half->part_bytes();
  SHOAL_CHECK(parts.size() == slots.size() * part_bytes);
  const size_t known = FirstUnknown(*online->material, slots);
  return server::FirstWrongPart(online->keys->context, *online->material, slots.first(known),
                                parts.first(known * part_bytes));
}

size_t Party::open_rounds() const {
  const MutexLock lock(mutex_);
  return drafts_.size() + rounds_.size();
}

std::vector<wire::StageReport> Party::Reports(const Digest& round_id) const {
  const auto parts = FindAll(round_id);
  std::vector<wire::StageReport> reports;
  if (!parts.ok() || !parts->front()->lists->all_committed()) return reports;
  for (const RoundPointer& part : *parts) {
    const MutexLock lock(part->gate);
    reports.insert(reports.end(), part->reports.begin(), part->reports.end());
  }
  return reports;
}

}  // namespace shoal::server
