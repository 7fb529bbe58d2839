#include "src/shoald/kept_connections.h"

#include <set>
#include <utility>

namespace shoal::shoald {

using Clock = std::chrono::steady_clock;

std::list<KeptConnections::Kept> KeptConnections::TakeIf(
    const std::function<bool(const Kept&)>& which) {
  std::list<Kept> taken;
  for (auto it = kept_.begin(); it != kept_.end();) {
    const auto next = std::next(it);
    if (which(*it)) taken.splice(taken.end(), kept_, it);
    it = next;
  }
  return taken;
}

void KeptConnections::Keep(const Digest& round_id, uint32_t machine,
                           std::unique_ptr<net::Connection> connection) {
  connection->Rest();
  std::list<Kept> gone;  // ended without the lock
  const MutexLock lock(mutex_);
  gone = TakeIf(
      [&](const Kept& kept) { return kept.round_id == round_id && kept.machine == machine; });
  kept_.push_back({round_id, machine, Clock::now(), std::move(connection)});
  if (kept_.size() > options_.most) gone.splice(gone.end(), kept_, kept_.begin());
}

std::unique_ptr<net::Connection> KeptConnections::Take(const Digest& round_id, uint32_t machine) {
  std::list<Kept> taken;
  {
    const MutexLock lock(mutex_);
    taken = TakeIf(
        [&](const Kept& kept) { return kept.round_id == round_id && kept.machine == machine; });
  }
  if (taken.empty() || Clock::now() - taken.front().since > options_.longest) return nullptr;
  return taken.front().connection->IsQuiet() ? std::move(taken.front().connection) : nullptr;
}

void KeptConnections::End(const std::function<bool(const Digest& round_id)>& over) {
  // `over` may take its time, and is asked without the lock.
  std::set<Digest> ids;
  {
    const MutexLock lock(mutex_);
    for (const Kept& kept : kept_) ids.insert(kept.round_id);
  }
  std::erase_if(ids, [&](const Digest& id) { return !over(id); });
  std::list<Kept> gone;  // ended without the lock
  const MutexLock lock(mutex_);
  gone = TakeIf([&](const Kept& kept) { return ids.contains(kept.round_id); });
}

}  // namespace shoal::shoald
