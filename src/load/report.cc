#include "src/load/report.h"

#include <algorithm>

namespace shoal::load {
namespace {

CrowdReport::Latency LatencyOf(std::vector<std::pair<double, uint64_t>> all) {
  if (all.empty()) return {};
  std::sort(all.begin(), all.end());
  uint64_t total = 0;
  for (const auto& [seconds, queries] : all) total += queries;
  // The smallest latency that at least this share of all queries does not exceed.
  const auto quantile = [&](double share) {
    uint64_t before = 0;
    for (const auto& [seconds, queries] : all) {
      before += queries;
      if (static_cast<double>(before) >= share * static_cast<double>(total)) return seconds;
    }
    return all.back().first;
  };
  return {quantile(0.5), quantile(0.9), quantile(0.99), all.back().first};
}

}  // namespace

Tally& Tally::operator+=(const Tally& more) {
  answers_correct += more.answers_correct;
  answers_wrong += more.answers_wrong;
  answers_failed += more.answers_failed;
  keys_found += more.keys_found;
  keys_absent += more.keys_absent;
  keys_unknown += more.keys_unknown;
  keys_failed += more.keys_failed;
  first_error.Update(more.first_error);
  return *this;
}

void Recorder::AddLatency(double seconds, uint64_t queries) {
  const MutexLock lock(mutex_);
  latencies_.emplace_back(seconds, queries);
}

void Recorder::AddSealing(double cpu_seconds) {
  const MutexLock lock(mutex_);
  seal_cpu_seconds_ += cpu_seconds;
}

void Recorder::AddChecked(const Tally& tally, double cpu_seconds) {
  const MutexLock lock(mutex_);
  tally_ += tally;
  check_cpu_seconds_ += cpu_seconds;
}

void Recorder::AddError(const absl::Status& why) {
  const MutexLock lock(mutex_);
  tally_.first_error.Update(why);
}

absl::Status Recorder::FirstError() const {
  const MutexLock lock(mutex_);
  return tally_.first_error;
}

CrowdReport Recorder::Take() {
  const MutexLock lock(mutex_);
  report_ += tally_;
  report_.seal_cpu_seconds = seal_cpu_seconds_;
  report_.check_cpu_seconds = check_cpu_seconds_;
  report_.latency_seconds = LatencyOf(std::move(latencies_));
  const auto queries = static_cast<double>(report_.queries);
  report_.costs.query_seconds = report_.seal_cpu_seconds / queries;
  report_.costs.recover_seconds = report_.check_cpu_seconds / queries;
  return std::move(report_);
}

}  // namespace shoal::load
