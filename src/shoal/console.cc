#include "src/shoal/console.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "src/cli/printable_stream.h"

namespace shoal::commands {

void Console::LineLocked(absl::string_view what) {
  bar_.reset();
  countdown_.reset();
  io_.err << name_ << ": " << cli::MessageText(what) << std::endl;
}

void Console::Tell(absl::string_view what) {
  const MutexLock lock(mutex_);
  if (!quiet_) LineLocked(what);
}

void Console::Warn(absl::string_view what) {
  const MutexLock lock(mutex_);
  LineLocked(absl::StrCat("warning: ", what));
}

void Console::Count(absl::string_view stage, uint64_t done, uint64_t total) {
  const MutexLock lock(mutex_);
  if (quiet_) return;
  countdown_.reset();
  if (stage != stage_) {
    bar_.reset();
    stage_ = std::string(stage);
    if (announce_ && !io_.err_is_terminal) LineLocked(stage);
  }
  if (!io_.err_is_terminal) return;
  if (!bar_) bar_.emplace(io_.bars(), io_.err_is_terminal, stage_);
  bar_->Update(done, total);
  if (done >= total) bar_.reset();
}

void Console::Wait(absl::string_view what, uint64_t seconds) {
  const MutexLock lock(mutex_);
  if (quiet_) return;
  LineLocked(what);
  const auto end = cli::Countdown::Clock::now() + std::chrono::seconds(seconds);
  countdown_.emplace(io_.bars(), io_.err_is_terminal, what, end);
}

}  // namespace shoal::commands
