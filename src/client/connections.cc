#include "src/client/connections.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::client {
void Connections::Follow(const roster::Roster* roster) {
  HangUp();
  const MutexLock lock(mutex_);
  roster_ = roster;
}

absl::StatusOr<std::unique_ptr<Transport>> Connections::Take() {
  const roster::Roster* roster;
  {
    const MutexLock lock(mutex_);
    roster = roster_;
    if (!idle_.empty()) {
      std::unique_ptr<Transport> transport = std::move(idle_.back());
      idle_.pop_back();
      return transport;
    }
  }
  auto transport = WithRetries(sleep_, connect_);
  if (!transport.ok()) return transport.status();
  SHOAL_RETURN_IF_ERROR((*transport)->RequireParty(*roster, party_));
  return transport;
}

void Connections::Give(std::unique_ptr<Transport> transport) {
  const MutexLock lock(mutex_);
  if (keep_) {
    idle_.push_back(std::move(transport));
  } else {
    past_ = past_ + transport->traffic();
  }
}

void Connections::HangUp() {
  const MutexLock lock(mutex_);
  for (const auto& transport : idle_) past_ = past_ + transport->traffic();
  idle_.clear();
}

Traffic Connections::traffic() const {
  const MutexLock lock(mutex_);
  Traffic sum = past_;
  for (const auto& transport : idle_) sum = sum + transport->traffic();
  return sum;
}

absl::Status ForPieces(size_t total, size_t piece, ThreadPool* threads,
                       const std::function<absl::Status(size_t first, size_t count)>& work) {
  SHOAL_CHECK(piece > 0);
  struct {
    Mutex mutex;
    absl::Status error ABSL_GUARDED_BY(mutex);
  } first;
  const size_t pieces = (total + piece - 1) / piece;
  const auto run = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      {
        const MutexLock lock(first.mutex);
        if (!first.error.ok()) return;
      }
      const absl::Status status = work(i * piece, std::min(piece, total - i * piece));
      if (status.ok()) continue;
      const MutexLock lock(first.mutex);
      if (first.error.ok()) first.error = status;
      return;
    }
  };
  if (threads != nullptr) {
    threads->ParallelFor(pieces, 1, run);
  } else {
    run(0, pieces);
  }
  const MutexLock lock(first.mutex);
  return first.error;
}

}  // namespace shoal::client
