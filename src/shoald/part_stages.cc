#include "src/shoald/part_stages.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/round/header.h"
#include "src/server/part_streams.h"
#include "src/wire/query_batch.h"

namespace shoal::shoald {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);

server::ListPart PartOf(const wire::ListPart& part) {
  return {.records = part.records(), .first = part.first(), .count = part.count()};
}

server::ListPart SliceOf(const server::ListPart& part, const server::Tiling& tiling) {
  return {part.records, tiling.slice().begin, tiling.slice().size()};
}

absl::Status Replaced() { return absl::AbortedError("a later try of this stage has begun"); }

}  // namespace

// One try of the offline stage of a round.
class PartStages::OfflineTry {
 public:
  OfflineTry(uint64_t number, server::Tiling tiling)
      : attempt(number), tiling_(std::move(tiling)) {}

  const uint64_t attempt;

  // Begins a part; the first one begins the stage.
  absl::StatusOr<std::unique_ptr<server::PartJoin::Part>> Begin(
      const std::shared_ptr<OfflineTry>& self, const wire::OfflineRequest& request,
      const Digest& round_id, PartStages& stages) ABSL_LOCKS_EXCLUDED(begin_, mutex_) {
    auto part = TryBegin(self, request, round_id, stages);
    if (!part.ok()) Fail(part.status());
    return part;
  }

  // Ends the try for all machines.
  void Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::shared_ptr<server::PartJoin> join;
    {
      const MutexLock lock(mutex_);
      if (failed_.ok()) failed_ = error;
      join = join_;
    }
    if (join != nullptr) join->Fail(error);
  }

  // The same in a moment; Fail must follow. False, and nothing has changed, if the stage has read
  // its list and is at work on it (`at_work`).
  bool Stop(const absl::Status& error, bool at_work) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (join_ != nullptr && !result_.has_value() && !join_->Stop(error) && at_work) return false;
    if (failed_.ok()) failed_ = error;
    return true;
  }

  absl::Status Wait() ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    while (!result_.has_value()) ended_.Wait(mutex_);
    return *result_;
  }

 private:
  absl::StatusOr<std::unique_ptr<server::PartJoin::Part>> TryBegin(
      const std::shared_ptr<OfflineTry>& self, const wire::OfflineRequest& request,
      const Digest& round_id, PartStages& stages) ABSL_LOCKS_EXCLUDED(begin_, mutex_) {
    const size_t onion_bytes = stages.options_.onion_bytes;
    const server::ListPart part = PartOf(request.part());
    std::shared_ptr<server::PartJoin> join;
    uint64_t first;
    {
      const MutexLock lock(begin_);
      SHOAL_RETURN_IF_ERROR(failed());
      SHOAL_RETURN_IF_ERROR(tiling_.Add(request.part().from_machine(), part));
      const server::ListPart slice = SliceOf(part, tiling_);
      first = slice.first;
      if (!began_) SHOAL_RETURN_IF_ERROR(BeginStage(self, request, round_id, slice, stages));
      began_ = true;
      const MutexLock joining(mutex_);
      join = join_;
    }
    // Without locks, as it makes room for the part.
    return join->Begin((part.first - first) * onion_bytes, part.count * onion_bytes);
  }

  absl::Status BeginStage(const std::shared_ptr<OfflineTry>& self,
                          const wire::OfflineRequest& request, const Digest& round_id,
                          const server::ListPart& slice, PartStages& stages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(begin_) ABSL_LOCKS_EXCLUDED(mutex_) {
    const Options& options = stages.options_;
    const uint64_t bytes = slice.count * options.onion_bytes;
    SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<void> running, stages.CountStage());
    SHOAL_ASSIGN_OR_RETURN(
        auto sink,
        options.offline(request.header(), bytes, {.attempt = attempt, .records = slice.records}));
    const MutexLock lock(mutex_);
    if (!failed_.ok()) return failed_;
    join_ = std::make_shared<server::PartJoin>(
        bytes, options.spools, [open = options.open, round_id] { return open(round_id); });
    stages.tasks_.Spawn([self, join = join_, sink = std::shared_ptr(std::move(sink)),
                         running = std::move(running)] { self->End(Run(*join, *sink)); });
    return absl::OkStatus();
  }

  static absl::Status Run(ByteSource& slice, OnionSink& sink) {
    for (;;) {
      SHOAL_ASSIGN_OR_RETURN(const BytesView piece, slice.Next());
      if (piece.empty()) return sink.Wait();
      SHOAL_RETURN_IF_ERROR(sink.Take(piece));
    }
  }

  absl::Status failed() const ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    return failed_;
  }

  void End(const absl::Status& result) {
    // What still comes is refused.
    Fail(result.ok() ? absl::FailedPreconditionError("the stage is done") : result);
    const MutexLock lock(mutex_);
    result_ = result;
    ended_.NotifyAll();
  }

  Mutex begin_;  // held while the stage begins
  server::Tiling tiling_ ABSL_GUARDED_BY(begin_);
  bool began_ ABSL_GUARDED_BY(begin_) = false;

  mutable Mutex mutex_;  // held for moments
  CondVar ended_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<server::PartJoin> join_ ABSL_GUARDED_BY(mutex_);  // set once
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
};

// One try of the online stage of a round. The call that brings the last part runs the stage.
class PartStages::OnlineTry {
 public:
  OnlineTry(uint64_t number, server::Tiling tiling) : attempt(number), tiling_(std::move(tiling)) {}

  const uint64_t attempt;

  void Fail(const absl::Status& error) ABSL_LOCKS_EXCLUDED(mutex_) {
    Held dropped;
    const MutexLock lock(mutex_);
    dropped = FailLocked(error);
  }

  // The same in a moment; Fail must follow. False, and nothing has changed, if the stage has its
  // batch and is at work on it (`at_work`).
  bool Stop(const absl::Status& error, bool at_work) ABSL_LOCKS_EXCLUDED(mutex_) {
    const MutexLock lock(mutex_);
    if (running_ && at_work) return false;
    if (failed_.ok()) failed_ = error;
    changed_.NotifyAll();
    return true;
  }

  absl::StatusOr<std::unique_ptr<ByteSource>> Take(const std::shared_ptr<OnlineTry>& self,
                                                   const wire::ListPart& wire_part, Bytes queries,
                                                   const Digest& round_id, const Options& options)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    const server::ListPart part = PartOf(wire_part);
    bool last;
    Held dropped;
    {
      const MutexLock lock(mutex_);
      if (!failed_.ok()) return failed_;
      if (absl::Status added = tiling_.Add(wire_part.from_machine(), part); !added.ok()) {
        dropped = FailLocked(added);
        return added;
      }
      parts_[wire_part.from_machine()] = {std::move(queries), part.count};
      last = running_ = tiling_.complete();
    }
    if (last) {
      if (const absl::Status ran = Run(self, round_id, part.records, options); !ran.ok()) Fail(ran);
    }
    for (;;) {
      absl::Status open = options.open(round_id);
      const MutexLock lock(mutex_);
      if (open.ok() && !failed_.ok()) open = failed_;
      const auto answers = answers_.find(wire_part.from_machine());
      if (answers != answers_.end()) {
        auto out = std::move(answers->second);
        answers_.erase(answers);
        return out;
      }
      if (!open.ok()) {
        dropped = FailLocked(open);
        return open;
      }
      changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kLook);
    }
  }

 private:
  // What a try that has failed no longer needs. To be destroyed without the lock: an answer that
  // was not read fails those after it, by Ready.
  struct Held {
    std::map<uint32_t, server::BatchPart> parts;
    std::map<uint32_t, std::unique_ptr<ByteSource>> answers;
  };
  [[nodiscard]] Held FailLocked(const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (failed_.ok()) failed_ = error;
    changed_.NotifyAll();
    return {std::exchange(parts_, {}), std::exchange(answers_, {})};
  }

  absl::Status Run(const std::shared_ptr<OnlineTry>& self, const Digest& round_id, uint64_t records,
                   const Options& options) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<uint32_t> senders;
    std::vector<uint64_t> sizes;
    const auto run = [&]() -> absl::StatusOr<std::unique_ptr<ByteSource>> {
      SHOAL_ASSIGN_OR_RETURN(wire::QueryBatch batch, Batch(senders, sizes));
      return options.online(round_id, std::move(batch), {.attempt = attempt, .records = records});
    };
    absl::StatusOr<std::unique_ptr<ByteSource>> answers = run();
    {
      const MutexLock lock(mutex_);
      running_ = false;
    }
    SHOAL_RETURN_IF_ERROR(answers.status());
    const uint64_t queries = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    const uint64_t answer_bytes = queries == 0 ? 0 : (*answers)->size() / queries;
    if (answer_bytes * queries != (*answers)->size()) {
      return absl::InternalError("the answers of the stage have different sizes");
    }
    for (uint64_t& size : sizes) size *= answer_bytes;
    server::SplitSource(*std::move(answers), std::move(sizes),
                        [self, senders](size_t i, auto part) { self->Ready(senders[i], part); });
    return absl::OkStatus();
  }

  // The batch of all parts, and from whom how many queries came. The error of a try that has
  // failed, which has no parts any more.
  absl::StatusOr<wire::QueryBatch> Batch(std::vector<uint32_t>& senders,
                                         std::vector<uint64_t>& sizes) ABSL_LOCKS_EXCLUDED(mutex_) {
    std::vector<server::BatchPart> parts;
    {
      const MutexLock lock(mutex_);
      if (!failed_.ok()) return failed_;
      for (auto& [from, part] : parts_) {  // the order of the machines is that of the list
        senders.push_back(from);
        sizes.push_back(wire::EncodedQueries(part.encoded));
        parts.push_back(std::move(part));
      }
      parts_.clear();
    }
    return server::JoinBatches(std::move(parts));
  }

  void Ready(uint32_t to, absl::StatusOr<std::unique_ptr<ByteSource>>& part)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    Held dropped;
    const MutexLock lock(mutex_);
    if (!part.ok()) {
      dropped = FailLocked(part.status());
    } else if (failed_.ok()) {
      answers_[to] = *std::move(part);
      changed_.NotifyAll();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  server::Tiling tiling_ ABSL_GUARDED_BY(mutex_);
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // the stage, which has its batch
  std::map<uint32_t, server::BatchPart> parts_ ABSL_GUARDED_BY(mutex_);  // by sender
  std::map<uint32_t, std::unique_ptr<ByteSource>> answers_ ABSL_GUARDED_BY(mutex_);
};

class PartStages::Incoming final : public OnionSink {
 public:
  Incoming(std::shared_ptr<OfflineTry> whole, std::unique_ptr<server::PartJoin::Part> part)
      : try_(std::move(whole)), part_(std::move(part)) {}
  absl::Status Take(BytesView piece) override { return part_->Take(piece); }
  absl::Status Wait() override { return try_->Wait(); }

 private:
  const std::shared_ptr<OfflineTry> try_;
  const std::unique_ptr<server::PartJoin::Part> part_;
};

PartStages::~PartStages() {
  CancelAll();
  tasks_.Wait();
}

void PartStages::CancelAll() {
  std::map<Digest, std::shared_ptr<OfflineTry>> offline;
  std::map<Digest, std::shared_ptr<OnlineTry>> online;
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    offline = offline_;
    online = online_;
  }
  const absl::Status ending = absl::CancelledError("the process is ending");
  for (const auto& [id, present] : offline) present->Fail(ending);
  for (const auto& [id, present] : online) present->Fail(ending);
}

absl::StatusOr<std::shared_ptr<void>> PartStages::CountStage() {
  std::shared_ptr<void> counted(nullptr, [this](void*) { --stages_; });
  if (++stages_ > kMaxStages) {
    return absl::ResourceExhaustedError(absl::StrCat(kMaxStages, " offline stages run already"));
  }
  return counted;
}

server::Party::InputLimits PartStages::MaxInput() const {
  return {options_.most_records(), options_.onion_bytes};
}

server::Tiling PartStages::NewTiling() const {
  return server::Tiling(options_.rank, options_.count, options_.senders, options_.most_records());
}

absl::Status PartStages::CheckPart(bool has_part, const wire::ListPart& part) const {
  if (has_part != in_parts()) {
    return absl::InvalidArgumentError(has_part
                                          ? "a part of a list, where both parties have one "
                                            "machine"
                                          : "a whole list, where a party has several machines");
  }
  if (part.to_machine() == options_.rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a part for machine ", part.to_machine(),
                                                 " came to machine ", options_.rank,
                                                 ": does the roster name the right addresses?"));
}

template <typename Try>
absl::StatusOr<std::shared_ptr<Try>> PartStages::Find(std::map<Digest, std::shared_ptr<Try>>& tries,
                                                      const Digest& round_id, uint64_t attempt,
                                                      std::vector<std::shared_ptr<Try>>& gone) {
  if (cancelled_) return absl::CancelledError("the process is ending");
  SHOAL_RETURN_IF_ERROR(options_.open(round_id));
  for (auto it = tries.begin(); it != tries.end();) {
    const absl::Status open = options_.open(it->first);
    if (open.ok()) {
      ++it;
      continue;
    }
    it->second->Stop(open, /*at_work=*/true);
    gone.push_back(std::move(it->second));
    it = tries.erase(it);
  }
  std::shared_ptr<Try>& present = tries[round_id];
  if (present != nullptr && present->attempt > attempt) {
    return absl::FailedPreconditionError(
        absl::StrCat("try ", attempt, " of this stage came after try ", present->attempt));
  }
  if (present != nullptr && present->attempt < attempt) {
    // Otherwise each try would have a stage of its own, and a list on its way to the next party.
    if (!present->Stop(Replaced(), IsAtWork(round_id, present->attempt))) {
      return absl::UnavailableError(
          absl::StrCat("try ", present->attempt, " of this stage is still at work"));
    }
    gone.push_back(std::exchange(present, nullptr));
  }
  if (present == nullptr) present = std::make_shared<Try>(attempt, NewTiling());
  return present;
}

absl::StatusOr<std::unique_ptr<PartStages::OnionSink>> PartStages::Offline(
    const wire::OfflineRequest& request, uint64_t bytes) {
  SHOAL_RETURN_IF_ERROR(CheckPart(request.has_part(), request.part()));
  if (!in_parts()) return options_.offline(request.header(), bytes, {});
  if (request.part().count() > bytes || request.part().count() * options_.onion_bytes != bytes) {
    return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes for ", request.part().count(),
                                                   " onions of ", options_.onion_bytes));
  }
  const Digest round_id = round::RoundId(request.header().header());
  absl::StatusOr<std::shared_ptr<OfflineTry>> found;
  std::vector<std::shared_ptr<OfflineTry>> gone;
  {
    const MutexLock lock(mutex_);
    found = Find(offline_, round_id, request.part().attempt(), gone);
  }
  for (const auto& each : gone) each->Fail(Replaced());
  SHOAL_RETURN_IF_ERROR(found.status());
  const std::shared_ptr<OfflineTry> present = *std::move(found);
  auto part = present->Begin(present, request, round_id, *this);
  if (!part.ok()) return part.status();
  return std::make_unique<Incoming>(present, *std::move(part));
}

absl::StatusOr<std::unique_ptr<ByteSource>> PartStages::Online(const wire::OnlineRequest& request,
                                                               Bytes queries) {
  const wire::ListPart& part = request.part();
  SHOAL_RETURN_IF_ERROR(CheckPart(request.has_part(), part));
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, server::ParseRoundId(request.round_id()));
  if (!in_parts()) return options_.online(round_id, std::move(queries), {});
  if (part.count() > options_.most_records()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch over ", part.count(), " positions: too many"));
  }
  // It is decoded with the others, once all have come, to its place among them.
  SHOAL_RETURN_IF_ERROR(wire::CheckQueryBatch(queries, static_cast<uint32_t>(part.count())));
  absl::StatusOr<std::shared_ptr<OnlineTry>> found;
  std::vector<std::shared_ptr<OnlineTry>> gone;
  {
    const MutexLock lock(mutex_);
    found = Find(online_, round_id, part.attempt(), gone);
  }
  for (const auto& each : gone) each->Fail(Replaced());
  SHOAL_RETURN_IF_ERROR(found.status());
  const std::shared_ptr<OnlineTry> present = *std::move(found);
  return present->Take(present, part, std::move(queries), round_id, options_);
}

}  // namespace shoal::shoald
