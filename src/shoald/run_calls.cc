#include "src/shoald/run_calls.h"

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/parallel/task_group.h"
#include "src/round/header.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;

// How often a call that waits looks whether it is to go on.
constexpr std::chrono::milliseconds kLookAgain(100);

wire::ListPart WirePart(uint32_t from, uint64_t attempt, const server::PartToSend& shipment) {
  wire::ListPart part;
  part.set_from_machine(from);
  part.set_to_machine(shipment.to);
  part.set_attempt(attempt);
  part.set_records(shipment.part.records);
  part.set_first(shipment.part.first);
  part.set_count(shipment.part.count);
  return part;
}

// The first error of several calls. Thread-safe.
class FirstError {
 public:
  void Set(const absl::Status& status) {
    const MutexLock lock(mutex_);
    if (first_.ok()) first_ = status;
  }
  absl::Status Get() const {
    const MutexLock lock(mutex_);
    return first_;
  }
  bool failed() const { return !Get().ok(); }

 private:
  mutable Mutex mutex_;
  absl::Status first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status RunCalls::Offline(const wire::SignedHeader& header, const OwnRun& mine,
                               std::unique_ptr<ByteSource> onions) {
  const size_t onion_bytes =
      server::OnionBytesFor(static_cast<uint32_t>(header.header().machines_size()), options_.party);
  const std::vector<server::PartToSend> shipments =
      server::PartsToSend(mine.run, mine.rank, options_.machines);
  std::vector<uint64_t> sizes;
  for (const server::PartToSend& shipment : shipments) {
    sizes.push_back(shipment.part.count * onion_bytes);
  }
  if (mine.run.count * onion_bytes != onions->size()) {
    return absl::InternalError("not the onions of the run");
  }
  const uint64_t attempt = AttemptOf(mine);
  FirstError error;
  TaskGroup calls;  // each waits for the end of the stage
  const Digest round_id = round::RoundId(header.header());
  const auto cancelled = [&error, &mine, over = Over(round_id)] {
    return error.failed() || over() || (mine.given_up && mine.given_up());
  };
  // Parts are made in order, and so they are sent.
  server::SplitSource(
      std::move(onions), std::move(sizes),
      [&](size_t i, absl::StatusOr<std::unique_ptr<ByteSource>> made) {
        if (!made.ok()) return error.Set(made.status());
        calls.Spawn(
            [&, i,
             part = std::make_shared<std::unique_ptr<ByteSource>>(*std::move(made))]() mutable {
              wire::OfflineRequest request;
              *request.mutable_header() = header;
              if (in_parts()) {
                *request.mutable_part() = WirePart(mine.rank, attempt, shipments[i]);
              }
              const absl::StatusOr<PeerAnswer> answer =
                  options_.call({.request = RequestFrame(FrameType::kOffline, request),
                                 .bulk = part->get(),
                                 .machine = shipments[i].to,
                                 .round_id = round_id,
                                 .cancelled = cancelled});
              wire::OfflineResponse response;
              error.Set(answer.ok() ? wire::ParseFrame(answer->frame, FrameType::kOffline, response)
                                    : answer.status());
              part->reset();
            });
      });
  calls.Wait();
  return error.Get();
}

// The answers to the queries of a run, on their way from several machines.
class RunCalls::RunAnswers final : public server::PartedSource {
 public:
  RunAnswers(uint64_t bytes, SpoolPlace* spools)
      : join_(bytes, spools, nullptr, server::PartJoin::Reading::kAsItComes) {}
  ~RunAnswers() override {
    dropped_ = true;
    join_.Drop();
    calls_.Wait();
  }
  uint64_t size() const override { return join_.size(); }
  std::span<const uint64_t> part_bytes() const override { return part_bytes_; }
  absl::StatusOr<Piece> NextOfAny() override {
    SHOAL_ASSIGN_OR_RETURN(const Piece piece, join_.NextOfAny());
    if (piece.bytes.empty()) SHOAL_RETURN_IF_ERROR(WaitForAll());
    return piece;
  }

  bool given_up() const { return dropped_ || error_.failed() || others_failed_; }
  // The next part, of so many bytes. To be called before anything is read.
  absl::StatusOr<std::unique_ptr<server::PartJoin::Part>> Begin(uint64_t bytes) {
    SHOAL_ASSIGN_OR_RETURN(auto part, join_.Begin(begun_, bytes));
    part_bytes_.push_back(bytes);
    begun_ += bytes;
    return part;
  }
  // After an error of the call nothing more can be read.
  void Spawn(std::function<absl::Status(const std::function<void()>& answered)> call) {
    const MutexLock lock(mutex_);
    ++waiting_;
    calls_.Spawn([this, call = std::move(call)] {
      bool counted = false;
      const auto answered = [&] {
        if (std::exchange(counted, true)) return;
        const MutexLock counting(mutex_);
        --waiting_;
        answered_ = true;
        changed_.NotifyAll();
      };
      const absl::Status done = call(answered);
      if (!done.ok()) {
        // First of all: what it cancels fails after it, and must not take its place.
        error_.Set(done);
        join_.Fail(error_.Get());
      }
      answered();
    });
  }
  // Waits until a machine answers, or one has failed; or another of this party's calls has.
  absl::Status WaitForFirst(const std::function<bool()>& others_failed) {
    const MutexLock lock(mutex_);
    while (waiting_ > 0 && !answered_ && !error_.failed()) {
      changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kLookAgain);
      if (others_failed && others_failed()) others_failed_ = true;
    }
    return error_.Get();
  }

 private:
  // Also those whose parts are empty: a call that was dropped would end the ones after it.
  absl::Status WaitForAll() {
    const MutexLock lock(mutex_);
    while (waiting_ > 0 && !error_.failed()) changed_.Wait(mutex_);
    return error_.Get();
  }

  server::PartJoin join_;
  std::vector<uint64_t> part_bytes_;
  uint64_t begun_ = 0;
  std::atomic<bool> dropped_ = false, others_failed_ = false;
  FirstError error_;
  Mutex mutex_;
  CondVar changed_;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool answered_ ABSL_GUARDED_BY(mutex_) = false;  // a call has been, or has failed
  TaskGroup calls_;
};

absl::StatusOr<std::unique_ptr<ByteSource>> RunCalls::Fetch(const Digest& round_id,
                                                            wire::OnlineRequest request,
                                                            Bytes queries, uint64_t expected,
                                                            std::function<bool()> cancelled) const {
  request.set_round_id(ToString(round_id));
  const uint32_t machine = request.part().to_machine();
  SHOAL_ASSIGN_OR_RETURN(
      PeerAnswer answer,
      options_.call({.request = RequestFrame(FrameType::kOnline, request, std::move(queries)),
                     .answer_bulk_bytes = expected,
                     .machine = machine,
                     .round_id = round_id,
                     .cancelled = std::move(cancelled)}));
  wire::OnlineResponse response;
  SHOAL_RETURN_IF_ERROR(wire::ParseFrame(answer.frame, FrameType::kOnline, response));
  return std::move(answer.bulk);
}

absl::StatusOr<std::unique_ptr<server::PartedSource>> RunCalls::Online(const Digest& round_id,
                                                                       const OwnRun& mine,
                                                                       server::QueriesOut queries) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t answer_bytes, options_.answer_bytes(round_id));
  if (auto* const whole = std::get_if<Bytes>(&queries)) {
    SHOAL_CHECK(!in_parts());
    const uint64_t expected = wire::EncodedQueries(*whole) * answer_bytes;
    SHOAL_ASSIGN_OR_RETURN(auto all,
                           Fetch(round_id, {}, std::move(*whole), expected, Over(round_id)));
    return std::make_unique<server::OnePart>(std::move(all));
  }
  const wire::QueryBatch& run = *std::get<std::shared_ptr<const wire::QueryBatch>>(queries);
  const uint64_t attempt = AttemptOf(mine);
  auto answers = std::make_unique<RunAnswers>(run.positions.size() * answer_bytes, options_.spools);
  const auto cancelled = [raw = answers.get(), over = Over(round_id)] {
    return raw->given_up() || over();
  };
  for (const server::PartToSend& shipment :
       server::PartsToSend(mine.run, mine.rank, options_.machines)) {
    const wire::QueryBatchView batch = server::CutBatch(run, mine.run, shipment.part);
    const uint64_t expected = batch.positions.size() * answer_bytes;
    SHOAL_ASSIGN_OR_RETURN(auto part, answers->Begin(expected));
    wire::OnlineRequest request;
    *request.mutable_part() = WirePart(mine.rank, attempt, shipment);
    answers->Spawn(
        [this, round_id, request = std::move(request), expected, cancelled,
         encoded = wire::EncodeQueryBatch(batch, static_cast<uint32_t>(shipment.part.count)),
         part = std::shared_ptr(std::move(part))](const auto& answered) -> absl::Status {
          SHOAL_ASSIGN_OR_RETURN(const auto got,
                                 Fetch(round_id, request, encoded, expected, cancelled));
          if (got->size() != expected) {
            return absl::InvalidArgumentError(
                absl::StrCat("machine ", request.part().to_machine(), " of party ", options_.party,
                             " sent ", got->size(), " bytes of answers instead of ", expected));
          }
          answered();
          for (;;) {
            SHOAL_ASSIGN_OR_RETURN(const BytesView piece, got->Next());
            if (piece.empty()) return absl::OkStatus();
            SHOAL_RETURN_IF_ERROR(part->Take(piece));
          }
        });
  }
  // A machine answers once its party's machines have all parts of all calls, and agree.
  SHOAL_RETURN_IF_ERROR(answers->WaitForFirst(mine.given_up));
  return answers;
}

}  // namespace shoal::shoald
