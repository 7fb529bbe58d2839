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

absl::StatusOr<ForwardMemory> ForwardMemory::Create(uint32_t positions) {
  ForwardMemory memory;
  SHOAL_ASSIGN_OR_RETURN(memory.own_, PageBuffer::Create(kPositionBytes * positions,
                                                         PageBuffer::Content::kSecret));
  memory.positions_ = positions;
  return memory;
}

absl::StatusOr<ForwardMemory> ForwardMemory::MakeReady(uint32_t positions,
                                                       const Resources& resources) {
  ForwardMemory memory;
  SHOAL_ASSIGN_OR_RETURN(std::optional<Spool> ready,
                         resources.spools->CreateIfRoomy(kPositionBytes * positions));
  if (!ready.has_value()) return memory;
  memory.positions_ = positions;
  memory.ready_ = *std::move(ready);
  const MutableBytes all = memory.ready_.memory();
  resources.pool->ParallelFor(all.size(), kChunkBytes, [&](size_t begin, size_t end) {
    std::ranges::fill(all.subspan(begin, end - begin), 0);  // zero already: this touches it
  });
  memory.message_.resize(wire::MaxQueryBatchBytes(positions));
  return memory;
}

}  // namespace shoal::server
