#include "src/shoald/refresh_driver.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"

namespace shoal::shoald {
namespace {

constexpr std::chrono::milliseconds kTick(100);
constexpr uint64_t kFirstPauseMs = 2'000, kLongestPauseMs = 60'000;

std::string ShortId(const Digest& id) { return Hex(BytesView(id).first(8)); }

}  // namespace

RefreshDriver::RefreshDriver(server::Refreshes* refreshes, server::Link* first, const Clock* clock,
                             std::function<void(const absl::Status&)> ended)
    : refreshes_(refreshes),
      first_(first),
      clock_(clock),
      ended_(std::move(ended)),
      thread_([this] { Loop(); }) {}

RefreshDriver::~RefreshDriver() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void RefreshDriver::Loop() {
  for (;;) {
    const std::vector<Digest> due = refreshes_->WhatIsDue();
    std::erase_if(failed_, [&](const auto& failed) {
      return std::ranges::find(due, failed.first) == due.end();
    });
    // One at a time, the oldest term first, so that what has failed is looked at anew in between.
    for (const Digest& round_id : due) {
      const auto failed = failed_.find(round_id);
      if (failed != failed_.end() && clock_->SteadyMilliseconds() < failed->second.again_ms) {
        continue;
      }
      const absl::Status how = Run(round_id);
      if (ended_) ended_(how);
      const MutexLock lock(mutex_);
      if (stopping_) return;
    }
    const auto next = std::chrono::steady_clock::now() + kTick;
    const MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
  }
}

absl::Status RefreshDriver::Run(const Digest& round_id) {
  const Stopwatch stopwatch;
  const absl::StatusOr<server::Refreshes::Done> done = refreshes_->Run(round_id, *first_);
  if (done.ok()) {
    failed_.erase(round_id);
    spdlog::info("round {}: refresh {} from epoch {} of the table: {} answers in {:.2f} s",
                 done->round.value(), done->header.number(), done->header.epoch(), done->answers,
                 stopwatch.Seconds());
    return absl::OkStatus();
  }
  const absl::Status told = ForOthers(done.status());
  if (told != done.status()) {
    spdlog::error("round {}..: refresh: {}", ShortId(round_id), done.status().ToString());
  }
  if (absl::IsNotFound(done.status())) {
    spdlog::error("round {}..: its term ends: {}", ShortId(round_id), told.ToString());
    refreshes_->End(round_id, told.message());
    return told;
  }
  refreshes_->SetProblem(round_id, told.ToString());
  Failed& failed = failed_[round_id];
  // The first try is too early where other parties take the epoch later.
  if (failed.pause_ms > 0) {
    spdlog::warn("round {}..: the refresh failed: {}; trying again", ShortId(round_id),
                 told.ToString());
  }
  failed.pause_ms = std::clamp(2 * failed.pause_ms, kFirstPauseMs, kLongestPauseMs);
  failed.again_ms = clock_->SteadyMilliseconds() + failed.pause_ms;
  return told;
}

}  // namespace shoal::shoald
