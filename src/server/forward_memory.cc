#include "src/server/forward_memory.h"

#include <numeric>
#include <optional>
#include <utility>

#include "src/base/status_macros.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

absl::StatusOr<ForwardMemory> ForwardMemory::Create(uint32_t positions) {
  constexpr auto kSecret = PageBuffer::Content::kSecret;
  ForwardMemory memory;
  SHOAL_ASSIGN_OR_RETURN(memory.own_items_, PageArray<Item>::Create(positions, kSecret));
  SHOAL_ASSIGN_OR_RETURN(memory.own_place_, PageArray<uint32_t>::Create(positions, kSecret));
  memory.items_ = memory.own_items_.span();
  memory.place_ = memory.own_place_.span();
  return memory;
}

absl::StatusOr<ForwardMemory> ForwardMemory::MakeReady(uint32_t positions, Arena& arena,
                                                       ThreadPool& pool, bool message) {
  ForwardMemory memory;
  SHOAL_ASSIGN_OR_RETURN(std::optional<Spool> ready,
                         arena.MakeInMemory(kPositionBytes * positions));
  if (!ready.has_value()) return memory;
  memory.ready_ = *std::move(ready);
  memory.ready_.Touch(0, pool);
  uint8_t* const bytes = memory.ready_.memory().data();
  memory.items_ = {reinterpret_cast<Item*>(bytes), positions};
  memory.place_ = {reinterpret_cast<uint32_t*>(bytes + sizeof(Item) * positions), positions};
  if (message) memory.message_.resize(wire::MaxQueryBatchBytes(positions));
  return memory;
}

void ForwardMemory::FreeItems() {
  if (own_items_.empty()) return;
  own_items_ = {};
  items_ = {};
}

UsedItems::UsedItems(std::span<const ForwardMemory::Item> items, ThreadPool& pool)
    : items_(items), start_((items.size() + kBlock - 1) / kBlock + 1) {
  pool.ParallelFor(start_.size() - 1, 1, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      start_[b + 1] = static_cast<uint64_t>(std::ranges::count_if(
          Block(b), [](const ForwardMemory::Item& item) { return item.from != kUnused; }));
    }
  });
  std::partial_sum(start_.begin(), start_.end(), start_.begin());
}

}  // namespace shoal::server
