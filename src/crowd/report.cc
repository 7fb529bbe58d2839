#include "src/crowd/report.h"

#include <algorithm>

namespace shoal::crowd {
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
  checked_.answers_correct += tally.answers_correct;
  checked_.answers_wrong += tally.answers_wrong;
  checked_.answers_failed += tally.answers_failed;
  checked_.keys_found += tally.keys_found;
  checked_.keys_absent += tally.keys_absent;
  checked_.keys_failed += tally.keys_failed;
  check_cpu_seconds_ += cpu_seconds;
  first_error_.Update(tally.first_error);
}

void Recorder::AddError(const absl::Status& why) {
  const MutexLock lock(mutex_);
  first_error_.Update(why);
}

absl::Status Recorder::FirstError() const {
  const MutexLock lock(mutex_);
  return first_error_;
}

CrowdReport Recorder::Take() {
  const MutexLock lock(mutex_);
  report_.answers_correct += checked_.answers_correct;
  report_.answers_wrong += checked_.answers_wrong;
  report_.answers_failed += checked_.answers_failed;
  report_.keys_found += checked_.keys_found;
  report_.keys_absent += checked_.keys_absent;
  report_.keys_failed += checked_.keys_failed;
  report_.seal_cpu_seconds = seal_cpu_seconds_;
  report_.check_cpu_seconds = check_cpu_seconds_;
  report_.first_error = first_error_;
  report_.latency_seconds = LatencyOf(std::move(latencies_));
  const auto queries = static_cast<double>(report_.queries);
  report_.costs.query_seconds = report_.seal_cpu_seconds / queries;
  report_.costs.recover_seconds = report_.check_cpu_seconds / queries;
  return std::move(report_);
}

}  // namespace shoal::crowd
