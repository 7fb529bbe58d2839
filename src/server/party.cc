#include "src/server/party.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"

namespace shoal::server {
namespace {

Transcript ContentTranscript(Content content) {
  Transcript transcript("shoal round content v1");
  transcript.U64(static_cast<uint64_t>(content));
  return transcript;
}

Digest ContentDigest(Content content, BytesView bytes) {
  return ContentTranscript(content).Blob(bytes).Finish();
}

// Wall and processor time of one stage. The processor time is the whole process's: exact when one
// round is worked on at a time.
class StageTimer {
 public:
  StageTimer(PartyNumber party, absl::string_view stage) {
    report_.set_party(party.value());
    report_.set_stage(std::string(stage));
  }
  wire::StageReport Finish() {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - wall_start_;
    report_.set_seconds(wall.count());
    report_.set_cpu_seconds(CpuSeconds() - cpu_start_);
    return std::move(report_);
  }
  wire::StageReport& report() { return report_; }

 private:
  static double CpuSeconds() {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  wire::StageReport report_;
  const std::chrono::steady_clock::time_point wall_start_ = std::chrono::steady_clock::now();
  const double cpu_start_ = CpuSeconds();
};

}  // namespace

absl::StatusOr<Digest> ParseRoundId(absl::string_view bytes) {
  Digest id;
  if (bytes.size() != id.size()) return absl::InvalidArgumentError("a round id has 32 bytes");
  std::ranges::copy(AsBytes(bytes), id.begin());
  return id;
}

struct Party::OpenRound {
  explicit OpenRound(Seed seed) : secrets(std::move(seed)) {}

  std::mutex mutex;  // one call at a time works on a round
  RoundSecrets secrets;
  wire::RoundHeader draft;               // as this party sent it on
  std::optional<RoundContext> context;   // once the header is signed
  const void* intake = nullptr;          // the Intake that is under way; for comparison alone
  std::optional<NoiseBatch> noise;       // made ahead of time, used up by the offline stage
  std::optional<RoundState> state;       // after the offline stage
  std::optional<wire::QueryBatch> queries;
  std::optional<wire::QueryBatch> forwarded;
  bool ended = false;

  mutable std::mutex reports_mutex;
  std::vector<wire::StageReport> reports;

  RoundCounter counter() const { return RoundCounter(draft.counter()); }

  // A stage that is repeated with the same input replaces its report.
  void Report(wire::StageReport report) {
    // Others see the report. Hundredths of a second tell a user what a stage costs; nanoseconds
    // would tell them of cache hits.
    const auto coarse = [](double seconds) { return std::round(seconds * 100) / 100; };
    report.set_seconds(coarse(report.seconds()));
    report.set_cpu_seconds(coarse(report.cpu_seconds()));
    std::lock_guard lock(reports_mutex);
    std::erase_if(reports, [&](const wire::StageReport& old) {
      return old.stage() == report.stage();
    });
    reports.push_back(std::move(report));
  }
};

absl::StatusOr<std::unique_ptr<Party>> Party::Create(Options options,
                                                     const signature::SecretKey& key,
                                                     Journal* journal, RandomSource* random,
                                                     const Clock* clock, ThreadPool* pool) {
  const uint32_t number = options.number.value();
  if (number < 1 || number > options.roster.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", number, ": the roster has ", options.roster.size(), " parties"));
  }
  if (!(key.public_key() == options.roster.party(number).key)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "party ", number, ": the secret key is not the one that the roster lists"));
  }
  const bool backend = number == options.roster.size();
  const size_t answer_bytes = options.table.row_bytes + signature::kSignatureBytes;
  if (backend && (options.answers.rows != options.table.rows ||
                  options.answers.bytes.size() != options.table.rows * answer_bytes)) {
    return absl::InvalidArgumentError("the backend's table does not fit its manifest");
  }
  SHOAL_RETURN_IF_ERROR(noise::CheckPhi(options.roster.noise(), options.table.rows));
  SHOAL_RETURN_IF_ERROR(journal->CommitEpoch("roster " + options.roster.deployment(),
                                             options.roster.epoch(), options.roster.digest()));
  SHOAL_RETURN_IF_ERROR(journal->CommitEpoch(
      absl::StrCat("table ", Hex(options.table_id)), options.table_epoch,
      options.table.manifest_digest));
  return std::unique_ptr<Party>(
      new Party(std::move(options), key, journal, random, clock, pool));
}

Party::Party(Options options, const signature::SecretKey& key, Journal* journal,
             RandomSource* random, const Clock* clock, ThreadPool* pool)
    : options_(std::move(options)),
      key_(key),
      journal_(journal),
      random_(random),
      clock_(clock),
      pool_(pool),
      // A Roster exists only with noise parameters that give a distribution.
      noise_(*noise::Distribution::Create(options_.roster.noise())) {}

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
  SHOAL_RETURN_IF_ERROR(round::CheckHeader(draft, number().value() - 1, roster(), table(), now_s));
  const RoundCounter counter(draft.counter());
  if (counter <= journal_->highest_round()) {
    return absl::FailedPreconditionError(absl::StrCat("round ", counter.value(),
                                                      ": counters only rise, and ",
                                                      journal_->highest_round().value(),
                                                      " was used"));
  }
  // An honest proposal is fresh, whatever the counter: a journal restored from an old copy cannot
  // be led through the rounds it has forgotten.
  if (draft.announced_s() + roster().clock_tolerance_s() < now_s) {
    return absl::UnauthenticatedError(absl::StrCat("round ", counter.value(), ": announced ",
                                                   now_s - draft.announced_s(),
                                                   " seconds ago; is a clock wrong?"));
  }
  EndExpired();
  std::lock_guard lock(mutex_);
  if (drafts_.contains(counter)) {
    return absl::FailedPreconditionError(
        absl::StrCat("round ", counter.value(), ": already drafted here"));
  }
  if (drafts_.size() + rounds_.size() >= options_.max_open_rounds) {
    return absl::ResourceExhaustedError(
        absl::StrCat("round ", counter.value(), ": ", options_.max_open_rounds,
                     " rounds are open here already"));
  }
  auto open = std::make_shared<OpenRound>(random_->NewSeed());
  SHOAL_RETURN_IF_ERROR(journal_->StoreSeed(counter, open->secrets.seed()));
  open->draft = draft;
  const onion::PublicKey key = open->secrets.OnionKeyPair().public_key;
  open->draft.add_onion_keys(ToString(key));
  drafts_[counter] = open;
  return open->draft;
}

absl::StatusOr<wire::SignedHeader> Party::SignHeader(const wire::SignedHeader& from_next) {
  const wire::RoundHeader& header = from_next.header();
  SHOAL_RETURN_IF_ERROR(
      round::CheckHeader(header, roster().size(), roster(), table(), clock_->NowSeconds()));
  const RoundCounter counter(header.counter());
  RoundPointer open;
  {
    std::lock_guard lock(mutex_);
    const auto found = drafts_.find(counter);
    if (found == drafts_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("round ", counter.value(), ": not drafted here, or signed already"));
    }
    open = found->second;
  }
  std::lock_guard round_lock(open->mutex);
  // What this party sent on, completed by the others' keys and nothing else.
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
  open->context = std::move(context);
  {
    std::lock_guard lock(mutex_);
    drafts_.erase(counter);
    rounds_[id] = open;
  }
  wire::SignedHeader out;
  *out.mutable_header() = header;
  out.set_signature(ToString(sum.bytes()));
  return out;
}

absl::Status Party::DropDraft(RoundCounter counter) {
  {
    std::lock_guard lock(mutex_);
    if (drafts_.erase(counter) == 0) return absl::OkStatus();
  }
  return journal_->EndRound(counter);
}

absl::StatusOr<Party::RoundPointer> Party::Find(const Digest& round_id) const {
  std::lock_guard lock(mutex_);
  const auto found = rounds_.find(round_id);
  if (found == rounds_.end()) {
    return absl::NotFoundError(
        absl::StrCat("round ", Hex(BytesView(round_id).first(8)), "..: not open here"));
  }
  return found->second;
}

void Party::MakeNoiseLocked(OpenRound& open) {
  if (open.noise.has_value()) return;
  StageTimer timer(number(), "noise");
  open.noise = MakeNoise(*open.context, open.secrets, *pool_);
  if (is_backend()) return;  // makes none
  timer.report().set_noise_queries(open.noise->size());
  open.Report(timer.Finish());
}

absl::Status Party::PrepareNoise(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  std::lock_guard lock(open->mutex);
  if (open->ended) return absl::NotFoundError("round ended");
  if (!open->state.has_value()) MakeNoiseLocked(*open);
  return absl::OkStatus();
}

Party::InputLimits Party::MaxInput() const {
  const uint64_t positions = std::min<uint64_t>(
      MaxPositions(number(), roster().max_slots(), table().rows, noise_), RoundState::kDead - 1);
  return {.offline_bytes = positions * onion::OnionBytes(roster().size() - number().value() + 1),
          .queries_bytes = wire::MaxQueryBatchBytes(static_cast<uint32_t>(positions))};
}

Party::Intake::Intake(const Party* party, RoundPointer open, OnionIntake onions, uint64_t bytes)
    : party_(party),
      open_(std::move(open)),
      onions_(std::move(onions)),
      digest_(ContentTranscript(Content::kOfflineInput)) {
  digest_.BeginBlob(bytes);
}

Party::Intake::~Intake() {
  std::lock_guard lock(open_->mutex);
  if (open_->intake == this) open_->intake = nullptr;
}

absl::Status Party::Intake::Take(BytesView piece) {
  StageTimer timer(open_->context->party, "offline");
  SHOAL_RETURN_IF_ERROR(onions_.Take(piece));
  digest_.BlobPiece(piece);
  const wire::StageReport cost = timer.Finish();
  seconds_ += cost.seconds();
  cpu_seconds_ += cost.cpu_seconds();
  if (party_->options_.progress) {
    party_->options_.progress(open_->counter(), onions_.opened(), onions_.count());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Party::Intake>> Party::BeginOffline(
    const wire::SignedHeader& header, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const round::Round round,
                         round::Round::Verify(header, roster(), table(), clock_->NowSeconds()));
  // Only headers that this party has signed are found by their id.
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round.id()));
  std::lock_guard lock(open->mutex);
  if (open->ended) return absl::NotFoundError("round ended");
  if (open->intake != nullptr) {
    return absl::FailedPreconditionError("another offline list is on its way in for this round");
  }
  SHOAL_ASSIGN_OR_RETURN(OnionIntake onions,
                         OnionIntake::Begin(*open->context, open->secrets, bytes, *pool_));
  std::unique_ptr<Intake> intake(new Intake(this, open, std::move(onions), bytes));
  open->intake = intake.get();
  return intake;
}

absl::StatusOr<Bytes> Party::Offline(const wire::SignedHeader& header, BytesView onions) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Intake> intake, BeginOffline(header, onions.size()));
  constexpr size_t kPieceBytes = 16 << 20;
  for (; !onions.empty(); onions = onions.subspan(std::min(kPieceBytes, onions.size()))) {
    SHOAL_RETURN_IF_ERROR(intake->Take(onions.first(std::min(kPieceBytes, onions.size()))));
  }
  return Offline(std::move(intake));
}

absl::StatusOr<Bytes> Party::Offline(std::unique_ptr<Intake> intake) {
  OpenRound& open = *intake->open_;
  std::lock_guard lock(open.mutex);
  if (open.ended) return absl::NotFoundError("round ended");
  if (!intake->onions_.complete()) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ended after ", intake->opened(),
                                                   " of ", intake->count(), " onions"));
  }
  StageTimer timer(number(), "offline");
  const uint64_t bytes_in = intake->count() * open.context->onion_bytes();
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open.counter(), Content::kOfflineInput,
                                              intake->digest_.Finish()));
  MakeNoiseLocked(open);
  SHOAL_ASSIGN_OR_RETURN(OfflineOutput out, RunOffline(*open.context, open.secrets, *open.noise,
                                                       std::move(intake->onions_), *pool_));
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open.counter(), Content::kOfflineOutput,
                                              ContentDigest(Content::kOfflineOutput, out.onions)));
  wire::StageReport& report = timer.report();
  report.set_positions_in(out.state.positions);
  report.set_positions_out(out.state.next_positions);
  report.set_noise_queries(open.noise->size());
  report.set_bytes_in(bytes_in);
  report.set_bytes_out(out.onions.size());
  open.noise.reset();
  // A repetition brings the same state: a batch of queries taken meanwhile stays valid.
  open.state = std::move(out.state);
  wire::StageReport cost = timer.Finish();
  cost.set_seconds(cost.seconds() + intake->seconds_);
  cost.set_cpu_seconds(cost.cpu_seconds() + intake->cpu_seconds_);
  open.Report(std::move(cost));
  return std::move(out.onions);
}

absl::StatusOr<Bytes> Party::Queries(const Digest& round_id, BytesView encoded) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  return TakeQueries(round_id, encoded);
}

absl::StatusOr<Bytes> Party::AnswerQueries(const Digest& round_id, BytesView encoded) {
  if (!is_backend()) return absl::FailedPreconditionError("only the backend answers queries");
  return TakeQueries(round_id, encoded);
}

absl::StatusOr<Bytes> Party::TakeQueries(const Digest& round_id, BytesView encoded) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  std::lock_guard lock(open->mutex);
  if (open->ended || !open->state.has_value()) {
    return absl::FailedPreconditionError("queries came before the offline stage was done");
  }
  StageTimer timer(number(), "online");
  SHOAL_ASSIGN_OR_RETURN(wire::QueryBatch queries,
                         wire::DecodeQueryBatch(encoded, open->state->positions));
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open->counter(), Content::kQueriesInput,
                                              ContentDigest(Content::kQueriesInput, encoded)));
  Bytes out;
  wire::QueryBatch forwarded;  // empty at the backend
  Content content = Content::kAnswersOutput;
  wire::StageReport& report = timer.report();
  report.set_positions_in(queries.positions.size());
  if (is_backend()) {
    SHOAL_ASSIGN_OR_RETURN(
        out, server::AnswerQueries(*open->context, open->secrets, *open->state, queries,
                                   options_.answers, *pool_));
    report.set_bytes_in(encoded.size());
    report.set_bytes_out(out.size());
  } else {
    content = Content::kQueriesOutput;
    SHOAL_ASSIGN_OR_RETURN(forwarded, ForwardQueries(*open->context, *open->state, queries));
    out = wire::EncodeQueryBatch(forwarded, open->state->next_positions);
    report.set_positions_out(forwarded.positions.size());
    report.set_noise_queries(open->state->noise.size());
    report.set_bytes_in(encoded.size());
    report.set_bytes_out(out.size());
  }
  SHOAL_RETURN_IF_ERROR(
      journal_->CommitRound(open->counter(), content, ContentDigest(content, out)));
  open->queries = std::move(queries);
  open->forwarded = std::move(forwarded);
  open->Report(timer.Finish());
  return out;
}

absl::StatusOr<Bytes> Party::Answers(const Digest& round_id, BytesView answers) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  std::lock_guard lock(open->mutex);
  if (open->ended || !open->forwarded.has_value()) {
    return absl::FailedPreconditionError("answers came before the queries");
  }
  StageTimer timer(number(), "answers");
  // A list of a wrong length is no complete input: it is refused, not committed to.
  const uint64_t expected = open->forwarded->positions.size() * open->context->answer_bytes;
  if (answers.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("answers: ", answers.size(), " bytes instead of ", expected));
  }
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open->counter(), Content::kAnswersInput,
                                              ContentDigest(Content::kAnswersInput, answers)));
  SHOAL_ASSIGN_OR_RETURN(Bytes out,
                         ReturnAnswers(*open->context, open->secrets, *open->state, *open->queries,
                                       *open->forwarded, answers, *pool_));
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open->counter(), Content::kAnswersOutput,
                                              ContentDigest(Content::kAnswersOutput, out)));
  wire::StageReport& report = timer.report();
  report.set_positions_in(open->forwarded->positions.size());
  report.set_positions_out(open->queries->positions.size());
  report.set_bytes_in(answers.size());
  report.set_bytes_out(out.size());
  open->Report(timer.Finish());
  return out;
}

absl::Status Party::End(const Digest& round_id) {
  RoundPointer open;
  {
    std::lock_guard lock(mutex_);
    const auto found = rounds_.find(round_id);
    if (found == rounds_.end()) return absl::OkStatus();
    open = found->second;
    rounds_.erase(found);
  }
  std::lock_guard lock(open->mutex);
  open->ended = true;
  open->noise.reset();
  open->state.reset();
  open->queries.reset();
  open->forwarded.reset();
  return journal_->EndRound(open->counter());
}

void Party::EndAll() {
  std::vector<Digest> ids;
  std::vector<RoundCounter> counters;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, open] : rounds_) ids.push_back(id);
    for (const auto& [counter, open] : drafts_) counters.push_back(counter);
  }
  // What cannot be wiped now is wiped at the next start.
  for (const Digest& id : ids) End(id).IgnoreError();
  for (RoundCounter counter : counters) DropDraft(counter).IgnoreError();
}

std::vector<Digest> Party::EndExpired() {
  const uint64_t now_s = clock_->NowSeconds();
  std::vector<Digest> expired;
  std::vector<RoundCounter> dropped;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, open] : rounds_) {
      if (open->draft.expires_s() + roster().clock_tolerance_s() < now_s) expired.push_back(id);
    }
    std::erase_if(drafts_, [&](const auto& entry) {
      const wire::RoundHeader& draft = entry.second->draft;
      if (draft.announced_s() + kDraftLifetimeS + roster().clock_tolerance_s() >= now_s) {
        return false;
      }
      dropped.push_back(entry.first);
      return true;
    });
  }
  // A failure to wipe is reported by the journal's own next call; the memory is gone either way.
  for (const Digest& id : expired) End(id).IgnoreError();
  for (RoundCounter counter : dropped) journal_->EndRound(counter).IgnoreError();
  return expired;
}

bool Party::CheckToken(const Digest& round_id, uint32_t slot, const sharing::Token& token) const {
  const auto open = Find(round_id);
  if (!open.ok()) return false;
  std::lock_guard lock((*open)->mutex);
  const auto& state = (*open)->state;
  if (!state.has_value() || slot >= state->positions || state->dead(slot)) return false;
  return EqualSecret(sharing::Expand(state->seed(slot), round_id).token, token);
}

std::vector<wire::StageReport> Party::Reports(const Digest& round_id) const {
  const auto open = Find(round_id);
  if (!open.ok()) return {};
  std::lock_guard lock((*open)->reports_mutex);
  return (*open)->reports;
}

}  // namespace shoal::server
