#include "src/server/forward_memory.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "src/base/status_macros.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

constexpr uint64_t kPositionBytes = sizeof(ForwardMemory::Item) + sizeof(uint32_t);
constexpr size_t kChunkBytes = 1 << 20;

}  // namespace

ForwardMemory& ForwardMemory::operator=(ForwardMemory&& other) noexcept {
  std::swap(positions_, other.positions_);
  std::swap(items_, other.items_);
  std::swap(place_, other.place_);
  std::swap(ready_, other.ready_);
  std::swap(own_items_, other.own_items_);
  std::swap(own_place_, other.own_place_);
  std::swap(message_, other.message_);
  return *this;
}

absl::StatusOr<ForwardMemory> ForwardMemory::Create(uint32_t positions) {
  constexpr auto kSecret = PageBuffer::Content::kSecret;
  ForwardMemory memory;
  SHOAL_ASSIGN_OR_RETURN(memory.own_items_, PageArray<Item>::Create(positions, kSecret));
  SHOAL_ASSIGN_OR_RETURN(memory.own_place_, PageArray<uint32_t>::Create(positions, kSecret));
  memory.positions_ = positions;
  memory.items_ = memory.own_items_.span();
  memory.place_ = memory.own_place_.span();
  return memory;
}

absl::StatusOr<ForwardMemory> ForwardMemory::MakeReady(uint32_t positions,
                                                       const Resources& resources) {
  ForwardMemory memory;
  SHOAL_ASSIGN_OR_RETURN(std::optional<Spool> ready,
                         resources.spools->CreateIfRoomy(kPositionBytes * positions));
  if (!ready.has_value()) return memory;
  memory.ready_ = *std::move(ready);
  const MutableBytes all = memory.ready_.memory();
  resources.pool->ParallelFor(all.size(), kChunkBytes, [&](size_t begin, size_t end) {
    std::ranges::fill(all.subspan(begin, end - begin), 0);  // zero already: this touches it
  });
  memory.positions_ = positions;
  memory.items_ = {reinterpret_cast<Item*>(all.data()), positions};
  memory.place_ = {reinterpret_cast<uint32_t*>(all.data() + sizeof(Item) * positions), positions};
  memory.message_.resize(wire::MaxQueryBatchBytes(positions));
  return memory;
}

void ForwardMemory::FreeItems() {
  if (own_items_.empty()) return;
  own_items_ = {};
  items_ = {};
}

}  // namespace shoal::server
