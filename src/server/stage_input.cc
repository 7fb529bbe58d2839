#include "src/server/stage_input.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/server/open_round.h"
#include "src/server/stage_timer.h"

namespace shoal::server {

ListWork::ListWork(std::shared_ptr<const RoundKeys> k, uint64_t b,
                   std::vector<PartyContent::Part> parts, const machines::Machines& machines)
    : keys(std::move(k)),
      bytes(b),
      mac(keys->Mac(Content::kOfflineInput)),
      content(mac, std::move(parts), machines) {}

absl::Status ListWork::Take(BytesView piece, ThreadPool& pool) {
  if (piece.size() > bytes - taken) {
    return absl::InvalidArgumentError("offline list: more bytes than were announced");
  }
  if (onions.has_value()) SHOAL_RETURN_IF_ERROR(onions->Take(piece));
  content.Update(piece, pool);
  taken += piece.size();
  return absl::OkStatus();
}

absl::Status ListWork::Check() const {
  if (taken == bytes && (!onions.has_value() || onions->complete())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("offline list: ended after ", taken, " of ", bytes, " bytes"));
}

ListIntake::ListIntake(std::shared_ptr<OpenRound> open, const StageTry& stage,
                       std::unique_ptr<ListWork> work)
    : open_(std::move(open)), stage_(stage), work_(std::move(work)) {}

absl::Status ListIntake::CheckWhole() {
  const MutexLock lock(mutex_);
  return work_ == nullptr ? absl::OkStatus() : work_->Check();
}

std::unique_ptr<ListWork> ListIntake::TakeWork() {
  const MutexLock lock(mutex_);
  return std::move(work_);
}

absl::Status ListIntake::Take(BytesView piece) {
  const StageTimer timer;
  const MutexLock lock(mutex_);
  if (work_ == nullptr) {
    return absl::FailedPreconditionError(
        "offline list: the round has ended, or the list came anew");
  }
  const RoundServices& services = open_->services;
  SHOAL_RETURN_IF_ERROR(work_->Take(piece, *services.resources.pool));
  work_->seconds += timer.seconds();
  work_->cpu_seconds += timer.cpu_seconds();
  // How many onions a half's tail gets tells how much noise the other party has.
  const bool told = !open_->place.half.has_value() || open_->place.is_first();
  if (services.progress && told && work_->onions.has_value()) {
    services.progress(open_->counter(), work_->onions->opened(), work_->onions->count());
  }
  return absl::OkStatus();
}

namespace {

absl::Status CameAnew() {
  return absl::FailedPreconditionError("answers: the round has ended, or they came anew");
}

}  // namespace

absl::Status HalfAnswersIntake::Take(BytesView piece) {
  const MutexLock lock(mutex_);
  if (!room_.has_value()) return CameAnew();
  if (piece.size() > room_->size() - taken_) {
    return absl::InvalidArgumentError("answers: more bytes than were announced");
  }
  SHOAL_RETURN_IF_ERROR(room_->Write(taken_, piece));
  taken_ += piece.size();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ByteSource>> HalfAnswersIntake::TakeAll() {
  const MutexLock lock(mutex_);
  if (!room_.has_value()) return CameAnew();
  if (taken_ != room_->size()) return absl::InvalidArgumentError("answers: not all of them came");
  return std::make_unique<SpoolSource>(*std::exchange(room_, std::nullopt));
}

void HalfAnswersIntake::Drop() {
  const MutexLock lock(mutex_);
  room_.reset();
}

}  // namespace shoal::server
