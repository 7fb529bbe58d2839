#include "src/server/party.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/thread_pool.h"
#include "src/sharing/batch.h"

namespace shoal::server {
namespace {

// Wall and processor time of one stage, or of a piece of it.
class StageTimer {
 public:
  double seconds() const {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
    return wall.count();
  }
  double cpu_seconds() const { return cpu_.Seconds(); }
  void AddTo(wire::StageReport& report) const {
    report.set_seconds(report.seconds() + seconds());
    report.set_cpu_seconds(report.cpu_seconds() + cpu_seconds());
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
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

struct Party::OpenRound {
  explicit OpenRound(Seed seed) : secrets(std::move(seed)) {}

  // Fixed once the header is signed, and read without a lock from then on.
  wire::RoundHeader draft;  // as this party sent it on
  std::optional<RoundContext> context;

  // Lets one offline list in at a time, and none once the round has ended: guards the three below,
  // but `ended` is read without it. For moments, on I/O threads too; `mutex` is not taken under it.
  std::mutex gate;
  std::weak_ptr<Intake> intake;
  std::optional<uint64_t> list_bytes;  // of the offline list that was committed to
  std::atomic<bool> ended = false;     // never false again

  // Held by the one call that works on the round, through a whole stage: making noise takes
  // minutes. What it guards is below.
  std::mutex mutex;
  // Until the round has ended. Also read under `gate` alone, as long as `ended` is not set.
  std::optional<RoundSecrets> secrets;
  std::optional<NoiseBatch> noise;       // made ahead of time, used up by the offline stage
  std::optional<RoundState> state;       // after the offline stage
  std::optional<wire::QueryBatch> queries;
  std::optional<Forwarding> forwarding;
  wire::StageReport queries_report;      // of the queries' way, until the backend has answered
  // Counts what makes state, queries or forwarding anew: sources made before are over.
  uint64_t version = 0;

  mutable std::mutex reports_mutex;
  std::vector<wire::StageReport> reports;

  RoundCounter counter() const { return RoundCounter(draft.counter()); }
  // Digests of contents are MACs under a key that dies with the round: nobody else can tell what
  // would collide.
  ContentMac Mac(Content content) const {
    return ContentMac(secrets->ContentKey().view(), ContentName(content));
  }
  Digest MacOf(Content content, BytesView bytes, ThreadPool& pool) const {
    return Mac(content).Of(bytes, pool);
  }

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
                                                     const Clock* clock, Resources resources) {
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
      new Party(std::move(options), key, journal, random, clock, resources));
}

Party::Party(Options options, const signature::SecretKey& key, Journal* journal,
             RandomSource* random, const Clock* clock, Resources resources)
    : options_(std::move(options)),
      key_(key),
      journal_(journal),
      random_(random),
      clock_(clock),
      resources_(resources),
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
  SHOAL_RETURN_IF_ERROR(journal_->StoreSeed(counter, open->secrets->seed()));
  open->draft = draft;
  open->draft.DiscardUnknownFields();  // what goes on is what was checked
  const onion::PublicKey key = open->secrets->OnionKeyPair().public_key;
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
  bool withdrawn;
  {
    std::lock_guard lock(mutex_);
    // Withdrawn, and maybe drafted again: then the seed on disk is of another draft.
    const auto found = drafts_.find(counter);
    withdrawn = found == drafts_.end() || found->second != open;
    if (!withdrawn) {
      drafts_.erase(found);
      rounds_[id] = open;
    }
  }
  if (withdrawn) {
    // What has just been committed to. A draft of the same counter cannot be signed any more.
    SHOAL_RETURN_IF_ERROR(journal_->EndRound(counter));
    return absl::FailedPreconditionError(
        absl::StrCat("round ", counter.value(), ": withdrawn or too old"));
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
    std::lock_guard lock(mutex_);
    const bool drafted = drafts_.erase(counter) > 0;
    const auto found = std::ranges::find_if(
        rounds_, [&](const auto& entry) { return entry.second->counter() == counter; });
    if (found != rounds_.end()) signed_round = found->first;
    if (!drafted && !signed_round.has_value()) return absl::OkStatus();
  }
  return signed_round.has_value() ? End(*signed_round) : journal_->EndRound(counter);
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

absl::Status Party::MakeNoiseLocked(OpenRound& open) {
  if (open.noise.has_value()) return absl::OkStatus();
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(open.noise, MakeNoise(*open.context, *open.secrets, resources_));
  if (is_backend()) return absl::OkStatus();  // makes none
  wire::StageReport report = ReportOf(number(), "noise");
  report.set_noise_queries(open.noise->size());
  timer.AddTo(report);
  open.Report(std::move(report));
  return absl::OkStatus();
}

absl::Status Party::PrepareNoise(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  std::lock_guard lock(open->mutex);
  if (open->ended) return absl::NotFoundError("round ended");
  if (open->state.has_value()) return absl::OkStatus();
  return MakeNoiseLocked(*open);
}

Party::InputLimits Party::MaxInput() const {
  const uint64_t positions = std::min<uint64_t>(
      MaxPositions(number(), roster().max_slots(), table().rows, noise_), RoundState::kDead - 1);
  return {.offline_bytes = positions * onion::OnionBytes(roster().size() - number().value() + 1),
          .queries_bytes = wire::MaxQueryBatchBytes(static_cast<uint32_t>(positions))};
}

// Bytes on their way to a neighbour. Checks before every piece that they still are of this round,
// and commits to the whole of them before it hands out the last piece.
class Party::Outgoing final : public ByteSource {
 public:
  // Called with the round's lock held, as Start is.
  Outgoing(Party* party, RoundPointer open, Content content, std::unique_ptr<ByteSource> inner,
           wire::StageReport report)
      : party_(party),
        open_(std::move(open)),
        content_(content),
        inner_(std::move(inner)),
        report_(std::move(report)),
        mac_(open_->Mac(content)),
        version_(open_->version),
        size_(inner_->size()) {
    report_.set_bytes_out(size_);
  }

  // What has nothing to hand out is committed to at once.
  absl::Status Start() { return size() == 0 ? Commit() : absl::OkStatus(); }

  uint64_t size() const override { return size_; }

  absl::StatusOr<BytesView> Next() override {
    if (given_ == size()) return BytesView();
    std::lock_guard lock(open_->mutex);
    if (open_->ended || open_->version != version_) {
      return absl::FailedPreconditionError("the round has ended, or its stage was begun again");
    }
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
  const uint64_t version_;
  const uint64_t size_;  // the inner one may look at what the round's lock guards
  uint64_t given_ = 0;
};

struct Party::Intake::Work {
  Work(OnionIntake o, const OpenRound& open)
      : onions(std::move(o)), mac(open.Mac(Content::kOfflineInput)) {}
  OnionIntake onions;
  const ContentMac mac;
  ContentMac::Stream digest{mac};
  double seconds = 0, cpu_seconds = 0;  // spent in Take
};

Party::Intake::Intake(const Party* party, RoundPointer open, OnionIntake onions)
    : party_(party),
      open_(std::move(open)),
      work_(std::make_unique<Work>(std::move(onions), *open_)) {}

Party::Intake::~Intake() = default;

std::unique_ptr<Party::Intake::Work> Party::Intake::TakeWork() {
  std::lock_guard lock(mutex_);
  return std::move(work_);
}

absl::Status Party::Intake::Take(BytesView piece) {
  const StageTimer timer;
  std::lock_guard lock(mutex_);
  if (open_->ended || work_ == nullptr) {
    return absl::FailedPreconditionError("offline list: the round has ended");
  }
  SHOAL_RETURN_IF_ERROR(work_->onions.Take(piece));
  work_->digest.Update(piece, *party_->resources_.pool);
  work_->seconds += timer.seconds();
  work_->cpu_seconds += timer.cpu_seconds();
  if (party_->options_.progress) {
    party_->options_.progress(open_->counter(), work_->onions.opened(), work_->onions.count());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Party::Intake>> Party::BeginOffline(
    const wire::SignedHeader& header, uint64_t bytes) {
  SHOAL_ASSIGN_OR_RETURN(const round::Round round,
                         round::Round::Verify(header, roster(), table(), clock_->NowSeconds()));
  // Only headers that this party has signed are found by their id.
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round.id()));
  std::lock_guard lock(open->gate);
  if (open->ended) return absl::NotFoundError("round ended");
  if (!open->intake.expired()) {
    return absl::FailedPreconditionError("another offline list is on its way in for this round");
  }
  // The same list again is fine, and nothing else needs to be opened to see that it is not.
  if (open->list_bytes.has_value() && *open->list_bytes != bytes) {
    return absl::FailedPreconditionError(
        "another offline list was taken before; a round has one for ever");
  }
  SHOAL_ASSIGN_OR_RETURN(OnionIntake onions,
                         OnionIntake::Begin(*open->context, *open->secrets, bytes, resources_));
  std::shared_ptr<Intake> intake(new Intake(this, open, std::move(onions)));
  open->intake = intake;
  return intake;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(const wire::SignedHeader& header,
                                                           ByteSource& onions) {
  SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<Intake> intake, BeginOffline(header, onions.size()));
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, onions.Next());
    if (piece.empty()) break;
    SHOAL_RETURN_IF_ERROR(intake->Take(piece));
  }
  return Offline(std::move(intake));
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Offline(std::shared_ptr<Intake> list) {
  // Dies here, whoever made the argument: then another list may come in.
  const std::shared_ptr<Intake> intake = std::move(list);
  OpenRound& open = *intake->open_;
  std::lock_guard lock(open.mutex);
  if (open.ended) return absl::NotFoundError("round ended");
  const std::unique_ptr<Intake::Work> work = intake->TakeWork();
  if (work == nullptr) return absl::NotFoundError("round ended");
  const uint64_t count = work->onions.count(), list_bytes = count * open.context->onion_bytes();
  if (!work->onions.complete()) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ended after ",
                                                   work->onions.opened(), " of ", count,
                                                   " onions"));
  }
  SHOAL_RETURN_IF_ERROR(MakeNoiseLocked(open));
  const StageTimer timer;
  wire::StageReport report = ReportOf(number(), "offline");
  report.set_seconds(work->seconds);
  report.set_cpu_seconds(work->cpu_seconds);
  report.set_bytes_in(list_bytes);
  report.set_noise_queries(open.noise->size());
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open.counter(), Content::kOfflineInput,
                                              work->digest.Finish()));
  {
    std::lock_guard gate(open.gate);
    open.list_bytes = list_bytes;
  }
  SHOAL_ASSIGN_OR_RETURN(
      OfflineOutput out,
      RunOffline(*open.context, *open.secrets, *std::exchange(open.noise, std::nullopt),
                 std::move(work->onions), resources_));
  report.set_positions_in(out.state.positions);
  report.set_positions_out(out.state.next_positions);
  // A repetition brings the same state; what was made of the one before is made again.
  open.state = std::move(out.state);
  open.queries.reset();
  open.forwarding.reset();
  ++open.version;
  timer.AddTo(report);
  auto onward = std::make_unique<Outgoing>(this, intake->open_, Content::kOfflineOutput,
                                           std::move(out.onions), std::move(report));
  SHOAL_RETURN_IF_ERROR(onward->Start());
  return onward;
}

// Decodes and commits to the queries of a round.
absl::Status Party::TakeQueriesLocked(OpenRound& open, BytesView encoded) {
  if (open.ended || !open.state.has_value()) {
    return absl::FailedPreconditionError("queries came before the offline stage was done");
  }
  const StageTimer timer;
  wire::StageReport report = ReportOf(number(), "online");
  SHOAL_ASSIGN_OR_RETURN(wire::QueryBatch queries,
                         wire::DecodeQueryBatch(encoded, open.state->positions));
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open.counter(), Content::kQueriesInput,
                                              open.MacOf(Content::kQueriesInput, encoded, *resources_.pool)));
  report.set_positions_in(queries.positions.size());
  report.set_bytes_in(encoded.size());
  open.queries = std::move(queries);
  open.forwarding.reset();
  ++open.version;
  timer.AddTo(report);
  open.queries_report = std::move(report);
  return absl::OkStatus();
}

absl::StatusOr<Bytes> Party::Queries(const Digest& round_id, BytesView encoded) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  std::lock_guard lock(open->mutex);
  SHOAL_RETURN_IF_ERROR(TakeQueriesLocked(*open, encoded));
  const StageTimer timer;
  wire::StageReport report = open->queries_report;
  SHOAL_ASSIGN_OR_RETURN(
      Forwarding forwarding,
      ForwardQueries(*open->context, *open->state, *open->queries, *resources_.pool));
  // The way back needs their places alone.
  Bytes out = std::move(forwarding.queries);
  SHOAL_RETURN_IF_ERROR(journal_->CommitRound(open->counter(), Content::kQueriesOutput,
                                              open->MacOf(Content::kQueriesOutput, out, *resources_.pool)));
  report.set_positions_out(forwarding.count);
  report.set_noise_queries(open->state->noise.size());
  report.set_bytes_out(out.size());
  open->forwarding = std::move(forwarding);
  timer.AddTo(report);
  open->Report(std::move(report));
  return out;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::AnswerQueries(const Digest& round_id,
                                                                 BytesView encoded) {
  if (!is_backend()) return absl::FailedPreconditionError("only the backend answers queries");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  std::lock_guard lock(open->mutex);
  SHOAL_RETURN_IF_ERROR(TakeQueriesLocked(*open, encoded));
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<ByteSource> answers,
      server::AnswerQueries(*open->context, *open->secrets, *open->state, *open->queries,
                            options_.answers, *resources_.pool));
  auto out = std::make_unique<Outgoing>(this, open, Content::kAnswersOutput, std::move(answers),
                                        open->queries_report);
  SHOAL_RETURN_IF_ERROR(out->Start());
  return out;
}

absl::StatusOr<std::unique_ptr<ByteSource>> Party::Answers(const Digest& round_id,
                                                           ByteSource& answers) {
  if (is_backend()) return absl::FailedPreconditionError("the backend answers queries itself");
  SHOAL_ASSIGN_OR_RETURN(const RoundPointer open, Find(round_id));
  wire::StageReport report = ReportOf(number(), "answers");
  report.set_bytes_in(answers.size());
  std::unique_lock begin(open->mutex);
  if (open->ended || !open->forwarding.has_value()) {
    return absl::FailedPreconditionError("answers came before the queries");
  }
  // A list of a wrong length is no complete input: it is refused, not committed to.
  SHOAL_ASSIGN_OR_RETURN(std::optional<AnswerIntake> intake,
                         AnswerIntake::Begin(*open->context, *open->queries, *open->forwarding,
                                             answers.size(), resources_));
  const uint64_t version = open->version;
  const ContentMac mac = open->Mac(Content::kAnswersInput);
  begin.unlock();
  ContentMac::Stream digest(mac);
  // The round is not locked while the next piece is on its way.
  const auto check = [&] {
    return !open->ended && open->version == version
               ? absl::OkStatus()
               : absl::FailedPreconditionError(
                     "the round has ended, or its queries were sent again");
  };
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, answers.Next());
    if (piece.empty()) break;
    std::lock_guard lock(open->mutex);
    SHOAL_RETURN_IF_ERROR(check());
    const StageTimer timer;
    digest.Update(piece, *resources_.pool);
    SHOAL_RETURN_IF_ERROR(intake->Take(piece));
    timer.AddTo(report);
  }
  std::lock_guard lock(open->mutex);
  SHOAL_RETURN_IF_ERROR(check());
  const StageTimer timer;
  if (!intake->complete()) return absl::InvalidArgumentError("answers: not all of them came");
  SHOAL_RETURN_IF_ERROR(
      journal_->CommitRound(open->counter(), Content::kAnswersInput, digest.Finish()));
  report.set_positions_in(open->forwarding->count);
  report.set_positions_out(open->queries->positions.size());
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<ByteSource> returned,
      ReturnAnswers(*open->context, *open->secrets, *open->state, *open->queries,
                    *std::exchange(intake, std::nullopt), resources_));
  timer.AddTo(report);
  auto out = std::make_unique<Outgoing>(this, open, Content::kAnswersOutput, std::move(returned),
                                        std::move(report));
  SHOAL_RETURN_IF_ERROR(out->Start());
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
  std::shared_ptr<Intake> intake;
  {
    std::lock_guard gate(open->gate);
    open->ended = true;
    intake = open->intake.lock();
  }
  // No list begins any more, and one that is on its way loses its keys now, whenever the neighbour
  // sends the rest. What still works on the round is this party's own work, and comes to its end.
  if (intake != nullptr) intake->TakeWork();
  std::lock_guard lock(open->mutex);
  open->secrets.reset();
  open->noise.reset();
  open->state.reset();
  open->queries.reset();
  open->forwarding.reset();
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
  for (RoundCounter counter : counters) Withdraw(counter).IgnoreError();
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

size_t Party::FirstWrongToken(const Digest& round_id, std::span<const uint32_t> slots,
                              std::span<const sharing::Token> tokens) const {
  SHOAL_CHECK(slots.size() == tokens.size());
  const auto open = Find(round_id);
  if (!open.ok()) return 0;
  std::lock_guard lock((*open)->mutex);
  const auto& state = (*open)->state;
  if (!state.has_value()) return 0;
  // As far as there are living positions of this round.
  const auto good = std::ranges::find_if_not(slots, [&](uint32_t slot) {
    return slot < state->positions && !state->dead(slot);
  });
  const auto known = static_cast<size_t>(good - slots.begin());
  return sharing::FirstWrongToken(state->seeds.data(), slots.first(known), round_id,
                                  tokens.first(known));
}

std::vector<wire::StageReport> Party::Reports(const Digest& round_id) const {
  const auto open = Find(round_id);
  if (!open.ok()) return {};
  std::lock_guard lock((*open)->reports_mutex);
  return (*open)->reports;
}

}  // namespace shoal::server
