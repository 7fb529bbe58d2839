#include "src/cli/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/printable.h"

namespace shoal::cli {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr uint64_t kCells = 30;

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, bool is_terminal, absl::string_view label)
    : out_(out), is_terminal_(is_terminal), label_(Printable(label)), start_(Clock::now()) {}

ProgressBar::~ProgressBar() {
  // Goes back to the begin of the line and erases the line.
  if (visible_) out_ << "\r\x1b[K" << std::flush;
}

void ProgressBar::Update(uint64_t done, uint64_t total) {
  if (!is_terminal_ || total == 0) return;
  const MutexLock lock(mutex_);
  const Clock::time_point now = Clock::now();
  if (visible_ && now - drawn_ < kRedraw) return;
  visible_ = true;
  drawn_ = now;
  done = std::min(done, total);
  const auto cells = static_cast<size_t>(static_cast<double>(done) / static_cast<double>(total) *
                                         static_cast<double>(kCells));
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  std::string left;
  if (done > 0 && elapsed_s > 0.5) {
    const double left_s = elapsed_s * static_cast<double>(total - done) / static_cast<double>(done);
    left = absl::StrCat("  ", static_cast<int64_t>(left_s + 0.5), " s left");
  }
  out_ << "\r" << label_ << "  [" << std::string(cells, '#') << std::string(kCells - cells, '.')
       << "]  " << done << "/" << total << left << "\x1b[K" << std::flush;
}

Countdown::Countdown(std::ostream& out, bool is_terminal, absl::string_view label,
                     Clock::time_point end)
    : out_(out), label_(Printable(label)), end_(end) {
  if (is_terminal) thread_ = std::thread([this] { Loop(); });
}

Countdown::~Countdown() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
  out_ << "\r\x1b[K" << std::flush;
}

std::string Countdown::Text(const std::string& label, Clock::duration left) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(left).count();
  return seconds > 0 ? absl::StrCat(label, "  ", seconds, " s left")
                     : absl::StrCat(label, "  any moment now");
}

void Countdown::Loop() {
  for (;;) {
    const Clock::time_point now = Clock::now();
    out_ << "\r" << Text(label_, end_ - now) << "\x1b[K" << std::flush;
    const MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, now + std::chrono::seconds(1))) {
    }
    if (stopping_) return;
  }
}

}  // namespace shoal::cli
