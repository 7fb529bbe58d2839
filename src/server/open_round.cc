#include "src/server/open_round.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/server/checked_output.h"
#include "src/server/machine_messages.h"
#include "src/server/stage_timer.h"
#include "src/wire/visible.h"

namespace shoal::server {
namespace {

constexpr absl::string_view kQueriesTooEarly = "queries came before the offline stage was done";
constexpr absl::string_view kAnswersTooEarly = "answers came before the queries";

// How often a machine tells the others that it is still at a call.
constexpr std::chrono::milliseconds kBetweenWords(250);

constexpr size_t kMostSaidBytes = 1 + 200;
Bytes EncodeReportedStatus(const ReportedStatus& said) {
  Bytes out(1);
  if (!said.has_value()) return out;
  out[0] = static_cast<uint8_t>(1 + static_cast<int>(said->code()));
  Append(out, AsBytes(said->message().substr(0, kMostSaidBytes - 1)));
  return out;
}

absl::StatusOr<ReportedStatus> DecodeReportedStatus(uint32_t from, BytesView bytes) {
  if (bytes.empty() || bytes[0] > 1 + static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return Unannounced(from);
  }
  if (bytes[0] == 0) return ReportedStatus();
  return ReportedStatus(
      absl::Status(static_cast<absl::StatusCode>(bytes[0] - 1), AsText(bytes.subspan(1))));
}

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

// Reads answers that the round keeps, as ListReader reads a list.
class AnswersReader final : public ByteSource {
 public:
  explicit AnswersReader(const std::shared_ptr<const Spool>& answers)
      : answers_(answers), size_(answers->size()) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<BytesView> Next() override {
    const std::shared_ptr<const Spool> answers = answers_.lock();
    if (answers == nullptr) return absl::FailedPreconditionError("the round has ended");
    constexpr uint64_t kPieceBytes = 1 << 20;
    piece_.resize(std::min(kPieceBytes, size_ - given_));
    SHOAL_RETURN_IF_ERROR(answers->Read(given_, piece_));
    given_ += piece_.size();
    return BytesView(piece_);
  }

 private:
  const std::weak_ptr<const Spool> answers_;
  const uint64_t size_;
  uint64_t given_ = 0;
  SecretVector<uint8_t> piece_;
};

}  // namespace

void OfflineLists::Committed() {
  std::vector<wire::StageReport> now;
  {
    const MutexLock lock(mutex_);
    SHOAL_CHECK(missing_ > 0);
    if (--missing_ == 0) now.swap(waiting_);
  }
  if (!told_) return;
  for (const wire::StageReport& report : now) told_(report);
}

void OfflineLists::Tell(const wire::StageReport& report) {
  {
    const MutexLock lock(mutex_);
    if (missing_ > 0) {
      // A list that comes again replaces the report of its stage.
      std::erase_if(waiting_, [&](const wire::StageReport& old) {
        return old.stage() == report.stage() && old.half() == report.half();
      });
      return waiting_.push_back(report);
    }
  }
  if (told_) told_(report);
}

Resources OpenRound::resources() const {
  Resources out = services.resources;
  out.ended = &ended;
  out.machines = machines.get();
  return out;
}

StoreDigest OpenRound::Store(Content content) const {
  if (services.journal == nullptr) return nullptr;
  return [journal = services.journal, content = OfHalf(content, place.half_number()),
          round = counter()](const Digest& digest) {
    return journal->CommitRound(round, content, digest);
  };
}

absl::Status OpenRound::Quiet(const absl::Status& error) const {
  if (!place.half.has_value() || !absl::IsResourceExhausted(error) || lists->all_committed()) {
    return error;
  }
  return absl::ResourceExhaustedError("there is no memory or disk for half of a round");
}

std::optional<Seed> OpenRound::BecomeSigned(const wire::RoundHeader& header, const Digest& round_id,
                                            RoundContext context,
                                            std::shared_ptr<machines::Machines> joined) {
  const absl::Status advanced = stage.Advance(PartyStage::kSigned);
  SHOAL_CHECK(advanced.ok());
  ++generation;
  auto& drafted = std::get<Drafted>(held);
  RoundSecrets& drawn = drafted.secrets;
  id = round_id;
  machines = std::move(joined);
  keys = std::make_shared<const RoundKeys>(std::move(static_cast<LastingSecrets&>(drawn)),
                                           std::move(context), header);
  secrets = std::make_shared<const OfflineSecrets>(std::move(static_cast<OfflineSecrets&>(drawn)));
  std::optional<Seed> root = std::move(drafted.root);
  held = std::monostate();
  return root;
}

// Output on its way to a neighbour.
class OpenRound::Outgoing final : public CheckedOutput<ByteSource> {
 public:
  // The constructor and Start need open->work: `inner` reads what the round holds now.
  Outgoing(std::shared_ptr<OpenRound> open, const RoundKeys& keys, Content content,
           std::unique_ptr<ByteSource> inner, wire::StageReport report)
      : CheckedOutput(keys.context.round_id, inner->size(), std::move(report),
                      open->services.resources.making_piece),
        open_(std::move(open)),
        content_(content),
        inner_(std::move(inner)),
        mac_(keys.Mac(content)),
        generation_(open_->Generation()) {}
  ~Outgoing() override {
    if (!reads_to_the_end_) return;
    const Working working(*open_);
    if (open_->onward == this) open_->FinishOutput();
  }

  // Commits to an empty output at once.
  absl::Status Start() {
    const StageTimer timer;
    const Resources resources = open_->resources();
    SHOAL_ASSIGN_OR_RETURN(PartyContent content,
                           PartyContent::OfList(mac_, size(), *resources.machines));
    source_.emplace(std::move(inner_), std::move(content), open_->Store(content_),
                    resources.machines, resources.pool);
    SHOAL_RETURN_IF_ERROR(source_->Start());
    timer.AddTo(mutable_report());
    return absl::OkStatus();
  }
  // From now on a reader that breaks off leaves the rest to this object.
  void ReadToTheEnd() { reads_to_the_end_ = true; }

  absl::StatusOr<BytesView> Next() override {
    if (all_given()) return BytesView();
    const Working working(*open_);
    return CheckedOutput::Next();
  }
  absl::Status CheckCurrent() const override { return open_->CheckGeneration(generation_); }
  // The last piece comes after the commitment.
  bool committed() const { return source_.has_value() && all_given(); }

 private:
  absl::StatusOr<BytesView> Make() override { return source_->Next(); }
  absl::Status AllTaken() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(open_->work) {
    return open_->OutputIsRead(report());
  }
  absl::Status Failed(const absl::Status& why) override {
    return open_->services.break_off(*open_, why);
  }

  const std::shared_ptr<OpenRound> open_;
  const Content content_;
  std::unique_ptr<ByteSource> inner_;  // until Start
  const ContentMac mac_;
  std::optional<CommittedSource> source_;
  const uint64_t generation_;
  bool reads_to_the_end_ = false;
};

// The same for answers on their way back, with the list in which they lie.
class OpenRound::OutgoingAnswers final : public AnswerSource {
 public:
  OutgoingAnswers(std::shared_ptr<OpenRound> open, const RoundKeys& keys,
                  std::unique_ptr<AnswerSource> answers, wire::StageReport report)
      : answers_(*answers),
        out_(std::move(open), keys, Content::kAnswersOutput, std::move(answers),
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

absl::Status OpenRound::StartOutput(Outgoing& output) {
  SHOAL_RETURN_IF_ERROR(output.Start());
  if (output.size() == 0) return OutputIsRead(output.report());
  if (alone()) return absl::OkStatus();  // nobody waits for what its reader leaves
  output.ReadToTheEnd();
  onward = &output;
  reading = true;
  return absl::OkStatus();
}

absl::Status OpenRound::OutputIsRead(wire::StageReport report) {
  onward = nullptr;
  SHOAL_RETURN_IF_ERROR(Total(report));
  reading = false;
  Report(std::move(report));
  return absl::OkStatus();
}

void OpenRound::FinishOutput() {
  Outgoing* const output = std::exchange(onward, nullptr);
  // After an error the machines have given the round up, and their next call says so.
  while (output != nullptr && !output->committed() && output->CheckCurrent().ok()) {
    const absl::StatusOr<BytesView> piece = output->Take();
    if (!piece.ok() || piece->empty()) break;
  }
  if (output != nullptr && output->committed()) OutputIsRead(output->report()).IgnoreError();
  reading = false;
}

absl::Status OpenRound::MakeNoise(const RoundKeys& round_keys) {
  // The noise is made already, or used up already.
  if (!Check(PartyStage::kPrepared).ok()) return absl::OkStatus();
  SHOAL_ASSIGN_OR_RETURN(const OfflineSecretsPointer drawn, Secrets());
  const StageTimer timer;
  absl::StatusOr<NoiseBatch> made = server::MakeNoise(round_keys.context, *drawn, resources());
  if (!made.ok()) {
    // Without figures: neighbours get it, and what is missing tells how much there was to be.
    return absl::IsCancelled(made.status())
               ? made.status()
               : absl::Status(made.status().code(),
                              "there is no memory or disk for the noise of a round");
  }
  NoiseBatch noise = *std::move(made);
  if (!place.is_last()) {
    noise_report = ReportOf(services.party, "noise", place.half_number());
    noise_report->set_noise_queries(noise.size());
    timer.AddTo(*noise_report);
  }
  return Become(PartyStage::kPrepared, Prepared{std::move(noise)});
}

absl::Status OpenRound::ComeTogether(absl::string_view what, const StageTry& present,
                                     std::optional<uint64_t> records, absl::Status& agreed) {
  FinishOutput();
  const auto later = [] { return absl::AbortedError("a later try of this stage has begun"); };
  for (;;) {
    if (present.attempt < attempt) {
      agreed = later();
      return absl::OkStatus();
    }
    attempt = present.attempt;
    // At party 1 each has its own clients' records.
    const uint64_t told = place.is_first() ? 0 : present.records.value_or(0);
    const std::array<uint64_t, 2> mine = {present.attempt, told};
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

absl::Status OpenRound::Total(wire::StageReport& report) {
  if (alone()) return absl::OkStatus();
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

absl::StatusOr<std::vector<ReportedStatus>> OpenRound::Say(absl::string_view what,
                                                           const ReportedStatus& mine) {
  if (alone()) return std::vector<ReportedStatus>{mine};
  SHOAL_ASSIGN_OR_RETURN(const auto all,
                         machines->Gather(what, EncodeReportedStatus(mine), kMostSaidBytes));
  std::vector<ReportedStatus> said(all.size());
  for (uint32_t of = 0; of < all.size(); ++of) {
    SHOAL_ASSIGN_OR_RETURN(said[of], DecodeReportedStatus(of, all[of]));
  }
  return said;
}

absl::Status OpenRound::SendTogether(absl::string_view what, uint64_t of_try,
                                     const std::function<absl::Status(const OwnRun& mine)>& send) {
  std::atomic<bool> given_up = false;
  const uint32_t rank = machines->rank();
  OwnRun mine{
      .rank = rank, .attempt = of_try, .run = {}, .given_up = [&] { return given_up.load(); }};
  {
    const MutexLock lock(gate);
    if (material == nullptr) return absl::NotFoundError("round ended");
    const std::vector<uint64_t>& places = material->layout.places;
    // Not at the backend.
    if (!places.empty()) mine.run = {places.back(), places[rank], places[rank + 1] - places[rank]};
  }
  if (alone()) {
    absl::Status sent = send(mine);
    if (sent.ok()) ListPassedOn();
    return sent;
  }
  struct {
    Mutex mutex;
    CondVar changed;
    ReportedStatus said ABSL_GUARDED_BY(mutex);
  } own;
  std::thread call([&] {
    const absl::Status sent = send(mine);
    const MutexLock lock(own.mutex);
    own.said = sent;
    own.changed.NotifyAll();
  });
  absl::Status result;
  for (bool all = false; !all;) {
    ReportedStatus now;
    {
      const auto until = std::chrono::steady_clock::now() + kBetweenWords;
      const MutexLock lock(own.mutex);
      while (!own.said.has_value() && own.changed.WaitUntil(own.mutex, until)) {
      }
      now = own.said;
    }
    // While the list is read, its digest is what the machines talk about.
    if (!now.has_value() && reading) continue;
    all = AgreeOnSent(what, now, given_up, result);
  }
  call.join();
  return result;
}

void OpenRound::ListPassedOn() {
  const Working working(*this);
  auto* const ready = std::get_if<Ready>(&held);
  // A repeat that hands the list out once more passes it on itself.
  if (ready != nullptr && ready->reader.expired()) ready->list.reset();
}

bool OpenRound::AgreeOnSent(absl::string_view what, const ReportedStatus& now,
                            std::atomic<bool>& given_up, absl::Status& result) {
  const Working working(*this);
  if (now.has_value()) FinishOutput();
  const auto said = Say(what, now);
  if (!said.ok()) {
    given_up = true;
    result = services.break_off(*this, said.status());
    return true;
  }
  bool all = true;
  for (const ReportedStatus& each : *said) {
    all = all && each.has_value();
    if (each.has_value() && result.ok()) result = *each;
  }
  if (!result.ok()) given_up = true;
  if (!all) return false;
  // In this order of the machines' calls, so that no repeat comes between.
  auto* const ready = std::get_if<Ready>(&held);
  if (result.ok() && ready != nullptr) ready->list.reset();
  return true;
}

absl::Status OpenRound::CheckRecords(const StageTry& present) const {
  if (alone() || place.is_first() || present.records.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "a whole list, where one of several machines gets its slice of one");
}

absl::StatusOr<std::vector<PartyContent::Part>> OpenRound::PartsOfList(uint64_t bytes,
                                                                       const StageTry& present,
                                                                       uint64_t most_bytes) const {
  const uint32_t mine = machines->rank(), count = machines->count();
  if (alone() || place.is_first()) {
    return std::vector<PartyContent::Part>{{.machine = mine, .bytes = bytes}};
  }
  // The slices of all follow from the length of the list.
  const uint64_t records = *present.records;
  const size_t onion_bytes = OnionBytesFor(place.parties, place.party.value());
  if (records > most_bytes / onion_bytes) {
    return absl::InvalidArgumentError("offline list: longer than the header allows");
  }
  std::vector<PartyContent::Part> parts;
  for (uint32_t of = 0; of < count; ++of) {
    parts.push_back({of, machines::RunOf(records, of, count).size() * onion_bytes});
  }
  if (parts[mine].bytes != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("offline list: ", bytes, " bytes are not slice ",
                                                   mine, " of ", records, " records"));
  }
  return parts;
}

absl::StatusOr<std::shared_ptr<ListIntake>> OpenRound::BeginList(uint64_t bytes,
                                                                 const StageTry& present,
                                                                 uint64_t most_bytes) {
  if (place.is_first() && !present.records.has_value()) {
    return absl::InvalidArgumentError("party 1 gets submissions, and no list of onions");
  }
  SHOAL_RETURN_IF_ERROR(CheckRecords(present));
  // The connection of a list that is still on its way in has broken, or will: the caller sends one
  // list at a time. The latest one counts, and nothing is left of the other.
  std::shared_ptr<ListIntake> before;
  {
    const MutexLock lock(gate);
    before = std::exchange(intake, {}).lock();
  }
  if (before != nullptr) before->TakeWork();
  SHOAL_ASSIGN_OR_RETURN(std::vector<PartyContent::Part> parts,
                         PartsOfList(bytes, present, most_bytes));
  const Resources with = resources();
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  auto list = std::make_unique<ListWork>(round_keys, bytes, std::move(parts), *with.machines);
  if (place.is_first() && !alone()) {
    // Submissions have any length.
    const Working working(*this);
    FinishOutput();
    SHOAL_ASSIGN_OR_RETURN(list->content, PartyContent::OfList(list->mac, bytes, *with.machines));
  }
  std::shared_ptr<ListIntake> begun_now;
  {
    const MutexLock lock(gate);
    if (keys == nullptr) return absl::NotFoundError("round ended");
    // The same list may come again. One of another length need not be opened to be refused.
    if (list_bytes.has_value() && *list_bytes != bytes) {
      return absl::FailedPreconditionError(
          "another offline list was taken before; a round has one for ever");
    }
    if (secrets != nullptr) {
      absl::StatusOr<OnionIntake> onions =
          place.is_first() ? OnionIntake::BeginSubmissions(keys->context, *secrets, bytes,
                                                           *present.records, with)
                           : OnionIntake::Begin(keys->context, *secrets, bytes, with);
      if (!onions.ok()) return Quiet(onions.status());
      list->onions = *std::move(onions);
    }
    begun_now = std::make_shared<ListIntake>(shared_from_this(), present, std::move(list));
    before = std::exchange(intake, begun_now).lock();
  }
  if (before != nullptr) before->TakeWork();  // it began at the same time
  return begun_now;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenRound::Offline(ListIntake& list) {
  // What cannot be committed to does not wait for the noise.
  if (const absl::Status whole = list.CheckWhole(); !whole.ok()) {
    return services.break_off(*this, whole);
  }
  const Working working(*this);
  absl::Status agreed;
  if (const absl::Status together =
          ComeTogether("offline list", list.stage(), std::nullopt, agreed);
      !together.ok()) {
    return services.break_off(*this, together);
  }
  SHOAL_RETURN_IF_ERROR(agreed);
  auto onward_list = OfflineOf(list);
  if (!onward_list.ok()) return services.break_off(*this, onward_list.status());
  return onward_list;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenRound::OfflineOf(ListIntake& list_in) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const std::unique_ptr<ListWork> list_work = list_in.TakeWork();
  if (list_work == nullptr) return absl::NotFoundError("round ended");
  SHOAL_RETURN_IF_ERROR(list_work->Check());
  if (std::holds_alternative<Ready>(held)) {
    SHOAL_RETURN_IF_ERROR(
        list_work->content.Commit(Store(Content::kOfflineInput), *resources().machines));
    SHOAL_RETURN_IF_ERROR(Repeat(PartyStage::kReady));
  } else {
    SHOAL_RETURN_IF_ERROR(TakeOnions(*round_keys, *list_work));
  }
  auto& ready = std::get<Ready>(held);
  if (ready.list == nullptr) return nullptr;
  ready.list->Rewind();
  auto reader = std::make_unique<ListReader>(ready.list);
  ready.reader = reader->alive();
  auto output = std::make_unique<Outgoing>(shared_from_this(), *round_keys, Content::kOfflineOutput,
                                           std::move(reader), ready.report);
  SHOAL_RETURN_IF_ERROR(StartOutput(*output));
  return output;
}

absl::Status OpenRound::TakeOnions(const RoundKeys& round_keys, ListWork& list) {
  SHOAL_RETURN_IF_ERROR(MakeNoise(round_keys));  // unless that was done ahead of time
  SHOAL_RETURN_IF_ERROR(Check(PartyStage::kOffline));
  const StageTimer timer;
  SHOAL_RETURN_IF_ERROR(list.content.Commit(Store(Content::kOfflineInput), *resources().machines));
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
  lists->Committed();
  // Clients are bound to the round now. Before, whoever learned the total of the noise could drop
  // the round, and propose others until it is low (docs/threat-model.md, "The total of the noise").
  if (noise_report.has_value()) {
    SHOAL_RETURN_IF_ERROR(Total(*noise_report));  // one machine's share is not to be told
    Report(*std::exchange(noise_report, std::nullopt));
  }
  wire::StageReport report = ReportOf(services.party, "offline", place.half_number());
  report.set_seconds(list.seconds);
  report.set_cpu_seconds(list.cpu_seconds);
  report.set_bytes_in(list.bytes);
  report.set_noise_queries(noise.size());
  absl::StatusOr<OfflineOutput> out =
      RunOffline(round_keys.context, *shuffle_keys, std::move(noise),
                 *std::exchange(list.onions, std::nullopt), resources());
  if (!out.ok()) return Quiet(out.status());
  report.set_positions_in(out->material.positions);
  report.set_positions_out(out->material.next_positions);
  timer.AddTo(report);
  return Become(PartyStage::kReady,
                Ready{std::make_shared<OnlineMaterial>(std::move(out->material)),
                      std::make_shared<OrderedList>(std::move(out->onions)),
                      {},
                      std::move(report)});
}

absl::Status OpenRound::ComeToQueries(const StageTry& present) {
  SHOAL_RETURN_IF_ERROR(CheckRecords(present));
  std::optional<uint64_t> records;
  if (!place.is_first() && present.records.has_value()) {
    const MutexLock lock(gate);
    if (material != nullptr) records = material->layout.positions.back();
  }
  absl::Status agreed;
  const absl::Status together = ComeTogether("queries", present, records, agreed);
  return together.ok() ? agreed : services.break_off(*this, together);
}

absl::StatusOr<QueriesOut> OpenRound::Queries(QueriesIn queries, const StageTry& present) {
  SHOAL_RETURN_IF_ERROR(Annotate(CheckListTaken(PartyStage::kQueried), kQueriesTooEarly));
  const Working working(*this);
  SHOAL_RETURN_IF_ERROR(ComeToQueries(present));
  if (const absl::Status taken = TakeOn(std::move(queries)); !taken.ok()) {
    return services.break_off(*this, taken);
  }
  const Forwarding& forwarding = *std::get<Queried>(held).forwarding;
  if (forwarding.batch != nullptr) return QueriesOut(forwarding.batch);
  return QueriesOut(forwarding.queries);
}

AnswerKeysPointer OpenRound::KeysOfAnswers(const KeysPointer& round_keys,
                                           std::shared_ptr<const OnlineMaterial> made,
                                           wire::QueryBatch queries) const {
  return std::make_shared<const AnswerKeys>(
      AnswerKeys{.context = {round_keys, &round_keys->context},
                 .secrets = {round_keys, &round_keys->secrets},
                 .material = std::move(made),
                 .queries = std::make_shared<const wire::QueryBatch>(std::move(queries)),
                 .table = table});
}

absl::Status OpenRound::TakeOn(QueriesIn in) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const StageTimer timer;
  const Resources with = resources();
  SHOAL_ASSIGN_OR_RETURN(Taken taken, TakeQueries(std::move(in), *round_keys));
  if (!taken.queries.has_value()) return absl::OkStatus();
  const std::shared_ptr<OnlineMaterial> known = std::get<Ready>(held).material;
  SHOAL_ASSIGN_OR_RETURN(Forwarding forwarding,
                         place.half.has_value()
                             ? ForwardParts(round_keys->context, *known, taken.records, with)
                             : ForwardQueries(round_keys->context, *known, *taken.queries, with));
  SHOAL_RETURN_IF_ERROR(CommitQueries(round_keys->Mac(Content::kQueriesOutput), forwarding.queries,
                                      forwarding.batch.get(), known->layout.places,
                                      Store(Content::kQueriesOutput), *with.machines, *with.pool));
  wire::StageReport report = ReportOf(services.party, "online", place.half_number());
  report.set_positions_in(taken.queries->positions.size());
  report.set_bytes_in(taken.bytes);
  report.set_positions_out(forwarding.count);
  report.set_noise_queries(known->noise.size());
  report.set_bytes_out(forwarding.batch == nullptr
                           ? forwarding.queries.size()
                           : wire::EncodedBytes(*forwarding.batch, known->next_positions));
  // What the queries were made of. The memory is enough for the second copy of what goes out.
  SecretVector<NoiseQuery>().swap(known->noise);
  SecretVector<uint8_t>().swap(known->noise_records);
  known->shares = {};
  SHOAL_RETURN_IF_ERROR(Become(
      PartyStage::kQueried,
      Queried{KeysOfAnswers(round_keys, known, *std::move(taken.queries)), std::move(forwarding)}));
  {
    const MutexLock lock(gate);
    forwarded = report.positions_out();
  }
  timer.AddTo(report);
  SHOAL_RETURN_IF_ERROR(Total(report));
  Report(std::move(report));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenRound::AnswerQueries(QueriesIn queries,
                                                                     const StageTry& present) {
  SHOAL_RETURN_IF_ERROR(Annotate(CheckListTaken(PartyStage::kQueried), kQueriesTooEarly));
  const Working working(*this);
  SHOAL_RETURN_IF_ERROR(ComeToQueries(present));
  auto answers = AnswersTo(std::move(queries));
  if (!answers.ok()) return services.break_off(*this, answers.status());
  return answers;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenRound::HalfAnswersTo(QueriesIn in) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(const Taken taken, TakeQueries(std::move(in), *round_keys));
  if (taken.queries.has_value()) {
    // If there is no memory, the round stays as it is: the same queries may come again.
    const std::shared_ptr<OnlineMaterial> known = std::get<Ready>(held).material;
    SHOAL_ASSIGN_OR_RETURN(Spool made, AnswerHalf(round_keys->context, round_keys->secrets, *known,
                                                  taken.records, table->answers, resources()));
    SHOAL_RETURN_IF_ERROR(
        Become(PartyStage::kQueried, HalfAnswered{std::make_shared<const Spool>(std::move(made)),
                                                  taken.queries->positions.size()}));
  }
  const auto& answered = std::get<HalfAnswered>(held);
  wire::StageReport report = ReportOf(services.party, "online", place.half_number());
  report.set_positions_in(answered.queries);
  report.set_bytes_in(taken.bytes);
  timer.AddTo(report);
  SHOAL_RETURN_IF_ERROR(Advance(PartyStage::kAnswered));
  auto out = std::make_unique<Outgoing>(shared_from_this(), *round_keys, Content::kAnswersOutput,
                                        std::make_unique<AnswersReader>(answered.answers),
                                        std::move(report));
  SHOAL_RETURN_IF_ERROR(StartOutput(*out));
  return out;
}

absl::StatusOr<Spool> OpenRound::TakeWhole(Content content, ByteSource& source) {
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const Resources with = resources();
  ThreadPool& pool = *with.pool;
  const ContentMac mac = round_keys->Mac(content);
  PartyContent whole(mac, {{.machine = 0, .bytes = source.size()}}, *with.machines);
  SHOAL_ASSIGN_OR_RETURN(Spool out, with.spools->Create(source.size()));
  for (uint64_t at = 0; at < out.size();) {
    SHOAL_RETURN_IF_ERROR(with.CheckLive());
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, source.Next());
    if (piece.empty() || piece.size() > out.size() - at) {
      return absl::InvalidArgumentError(absl::StrCat(ContentName(content), ": not the ", out.size(),
                                                     " bytes that were announced"));
    }
    whole.Update(piece, pool);
    SHOAL_RETURN_IF_ERROR(out.Write(at, piece, &pool));
    at += piece.size();
  }
  SHOAL_RETURN_IF_ERROR(whole.Commit(Store(content), *with.machines));
  return out;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenRound::AnswersTo(QueriesIn in) {
  if (place.half.has_value()) return HalfAnswersTo(std::move(in));
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  const StageTimer timer;
  SHOAL_ASSIGN_OR_RETURN(Taken taken, TakeQueries(std::move(in), *round_keys));
  if (taken.queries.has_value()) {
    std::shared_ptr<OnlineMaterial> known = std::get<Ready>(held).material;
    SHOAL_RETURN_IF_ERROR(
        Become(PartyStage::kQueried,
               Queried{KeysOfAnswers(round_keys, std::move(known), *std::move(taken.queries)),
                       std::nullopt}));
  }
  const auto& queried = std::get<Queried>(held);
  SHOAL_RETURN_IF_ERROR(KeepTerm(*round_keys));
  wire::StageReport report = ReportOf(services.party, "online");
  report.set_positions_in(queried.keys->queries->positions.size());
  report.set_bytes_in(taken.bytes);
  timer.AddTo(report);
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<ByteSource> answers,
                         server::AnswerQueries(queried.keys, table->answers, resources()));
  SHOAL_RETURN_IF_ERROR(Advance(PartyStage::kAnswered));
  auto out = std::make_unique<Outgoing>(shared_from_this(), *round_keys, Content::kAnswersOutput,
                                        std::move(answers), std::move(report));
  SHOAL_RETURN_IF_ERROR(StartOutput(*out));
  return out;
}

absl::Status OpenRound::KeepTerm(const RoundKeys& round_keys) {
  if (draft.max_refreshes() == 0) return absl::OkStatus();
  const auto& queried = std::get<Queried>(held);
  return services.terms->Keep(
      {.header = round_keys.header,
       .round_id = round_keys.context.round_id,
       .secrets = round_keys.secrets,
       .material = *queried.keys->material,
       .queries = *queried.keys->queries,
       .forwarding = queried.forwarding.has_value() ? &*queried.forwarding : nullptr,
       .table = *table});
}

absl::StatusOr<std::unique_ptr<AnswerSource>> OpenRound::Answers(PartedSource& answers) {
  SHOAL_RETURN_IF_ERROR(Annotate(CheckListTaken(PartyStage::kAnswered), kAnswersTooEarly));
  absl::Status agreed;
  auto out = AnswersOf(answers, agreed);
  if (!out.ok() && agreed.ok()) return services.break_off(*this, out.status());
  return out;
}

// All that a call holds of the round's keys while the neighbour takes its time.
struct OpenRound::AnswersComing {
  uint64_t generation = 0;
  wire::StageReport report = {};
  std::optional<ContentMac> mac = std::nullopt;
  std::optional<PartyContent> content = std::nullopt;  // refers to `mac`
};

absl::Status OpenRound::BeginAnswers(std::span<const uint64_t> part_bytes, AnswersComing& coming) {
  const Resources with = resources();
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  coming.mac.emplace(round_keys->secrets.ContentKey(), ContentName(Content::kAnswersInput));
  const Working working(*this);
  SHOAL_RETURN_IF_ERROR(Annotate(Check(PartyStage::kAnswered), kAnswersTooEarly));
  SHOAL_RETURN_IF_ERROR(Repeat(PartyStage::kQueried));
  coming.generation = Generation();
  auto& queried = std::get<Queried>(held);
  queried.intake.reset();  // what came of them before
  // A list of a wrong length is refused, not committed to.
  SHOAL_ASSIGN_OR_RETURN(queried.intake,
                         AnswerIntake::Begin(round_keys->context, *queried.keys->queries,
                                             *queried.forwarding, part_bytes, with));
  SHOAL_ASSIGN_OR_RETURN(coming.content,
                         PartyContent::OfParts(*coming.mac, part_bytes, *with.machines));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<HalfAnswersIntake>> OpenRound::BeginHalfAnswers(uint64_t bytes) {
  const uint64_t tagged_bytes = round::TaggedAnswerBytes(draft);
  {
    const MutexLock lock(gate);
    if (keys == nullptr) return absl::NotFoundError("round ended");
    if (!forwarded.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(kAnswersTooEarly, " of half B"));
    }
    if (bytes != *forwarded * tagged_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("answers: ", bytes, " bytes, where ",
                                                     *forwarded, " queries of ", tagged_bytes,
                                                     " bytes each were asked"));
    }
    // One at a time, as of a list: the caller has lost the connection over which others come.
    if (const auto before = half_answers.lock(); before != nullptr) before->Drop();
  }
  SHOAL_ASSIGN_OR_RETURN(Spool room, services.resources.spools->Create(bytes));
  auto begun_now = std::make_shared<HalfAnswersIntake>(std::move(room));
  const MutexLock lock(gate);
  if (keys == nullptr) return absl::NotFoundError("round ended");
  if (const auto before = half_answers.lock(); before != nullptr) before->Drop();
  half_answers = begun_now;
  return begun_now;
}

absl::Status OpenRound::TakeAnswers(PartedSource& answers, AnswersComing& coming,
                                    absl::Status& broke_off) {
  ThreadPool& pool = *services.resources.pool;
  for (;;) {
    const absl::StatusOr<PartedSource::Piece> piece = answers.NextOfAny();
    broke_off = piece.status();
    if (!piece.ok() || piece->bytes.empty()) return absl::OkStatus();
    // Released while the next piece is on its way.
    const Working working(*this);
    if (absl::Status current = CheckGeneration(coming.generation); !current.ok()) {
      // Which of two calls with the same answers begins later is chance. That of a caller who still
      // waits must not end the round.
      return place.half.has_value() && !ended ? absl::UnavailableError("answers: they came anew")
                                              : current;
    }
    const StageTimer timer;
    auto& queried = std::get<Queried>(held);
    SHOAL_RETURN_IF_ERROR(queried.intake->TakeAt(piece->offset, piece->bytes));
    coming.content->UpdateAt(piece->offset, piece->bytes, pool);
    timer.AddTo(coming.report);
  }
}

absl::StatusOr<std::unique_ptr<AnswerSource>> OpenRound::AnswersOf(PartedSource& answers,
                                                                   absl::Status& agreed) {
  AnswersComing coming{.report = ReportOf(services.party, "answers", place.half_number())};
  coming.report.set_bytes_in(answers.size());
  SHOAL_RETURN_IF_ERROR(BeginAnswers(answers.part_bytes(), coming));
  absl::Status broke_off;
  SHOAL_RETURN_IF_ERROR(TakeAnswers(answers, coming, broke_off));
  const Working working(*this);
  SHOAL_ASSIGN_OR_RETURN(const auto said, Say("answers came", ReportedStatus(broke_off)));
  for (const ReportedStatus& each : said) {
    if (agreed.ok() && each.has_value()) agreed = *each;
  }
  SHOAL_RETURN_IF_ERROR(agreed);
  return PassAnswersOn(coming);
}

absl::StatusOr<std::unique_ptr<AnswerSource>> OpenRound::PassAnswersOn(AnswersComing& coming) {
  SHOAL_RETURN_IF_ERROR(CheckGeneration(coming.generation));
  const StageTimer timer;
  const Resources with = resources();
  auto& queried = std::get<Queried>(held);
  if (!queried.intake->complete()) {
    return absl::InvalidArgumentError("answers: not all of them came");
  }
  SHOAL_RETURN_IF_ERROR(coming.content->Commit(Store(Content::kAnswersInput), *with.machines));
  SHOAL_ASSIGN_OR_RETURN(const KeysPointer round_keys, Keys());
  SHOAL_RETURN_IF_ERROR(KeepTerm(*round_keys));
  wire::StageReport& report = coming.report;
  report.set_positions_in(queried.forwarding->count);
  report.set_positions_out(queried.keys->queries->positions.size());
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<AnswerSource> returned,
      ReturnAnswers(queried.keys, *std::exchange(queried.intake, std::nullopt), with));
  SHOAL_RETURN_IF_ERROR(Advance(PartyStage::kAnswered));
  timer.AddTo(report);
  auto out = std::make_unique<OutgoingAnswers>(shared_from_this(), *round_keys, std::move(returned),
                                               std::move(report));
  SHOAL_RETURN_IF_ERROR(StartOutput(out->outgoing()));
  return out;
}

absl::StatusOr<OpenRound::Taken> OpenRound::Decode(BytesView encoded, const RoundContext& context,
                                                   uint32_t positions) const {
  Taken taken;
  if (!context.half.has_value()) {
    SHOAL_ASSIGN_OR_RETURN(taken.queries, wire::DecodeQueryBatch(encoded, positions));
    return taken;
  }
  const size_t record_bytes =
      place.is_first() ? context.half->part_bytes() : context.half->forwarded_bytes();
  SHOAL_ASSIGN_OR_RETURN(taken.records, wire::DecodeRecordBatch(encoded, positions, record_bytes));
  taken.queries = wire::QueryBatch{.positions = taken.records.positions, .tallies = {}};
  return taken;
}

absl::StatusOr<OpenRound::Taken> OpenRound::TakeQueries(QueriesIn in, const RoundKeys& round_keys) {
  const Resources with = resources();
  SHOAL_RETURN_IF_ERROR(Annotate(Check(PartyStage::kQueried), kQueriesTooEarly));
  const auto* const ready = std::get_if<Ready>(&held);
  Taken taken;
  BytesView encoded;
  std::span<const uint64_t> slices;  // of the machines
  if (auto* const batch = std::get_if<wire::QueryBatch>(&in)) {
    const OnlineMaterial& known =
        ready != nullptr ? *ready->material : *std::get<Queried>(held).keys->material;
    slices = known.layout.positions;
    if (!batch->positions.empty() && batch->positions.back() >= known.positions) {
      return absl::InvalidArgumentError("a batch over more positions than the list has");
    }
    taken.queries = std::move(*batch);
    taken.bytes = wire::EncodedBytes(*taken.queries, known.positions);
  } else {
    const auto* const owned = std::get_if<Bytes>(&in);
    encoded = owned != nullptr ? BytesView(*owned) : std::get<BytesView>(in);
    if (ready != nullptr) {
      slices = ready->material->layout.positions;
      SHOAL_ASSIGN_OR_RETURN(taken,
                             Decode(encoded, round_keys.context, ready->material->positions));
    } else if (const auto* const queried = std::get_if<Queried>(&held)) {
      slices = queried->keys->material->layout.positions;
    }
    taken.bytes = encoded.size();
  }
  SHOAL_RETURN_IF_ERROR(CommitQueries(round_keys.Mac(Content::kQueriesInput), encoded,
                                      taken.queries.has_value() ? &*taken.queries : nullptr, slices,
                                      Store(Content::kQueriesInput), *with.machines, *with.pool));
  if (ready == nullptr) {
    SHOAL_RETURN_IF_ERROR(Repeat(PartyStage::kQueried));
    taken.queries.reset();
  }
  return taken;
}

void OpenRound::Report(wire::StageReport report) {
  MakeVisible(report);
  {
    const MutexLock lock(gate);
    std::erase_if(reports,
                  [&](const wire::StageReport& old) { return old.stage() == report.stage(); });
    reports.push_back(report);
  }
  lists->Tell(report);
}

}  // namespace shoal::server
