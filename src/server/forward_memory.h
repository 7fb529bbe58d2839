// Memory in which a party permutes queries before it sends them on, and records how to return their
// answers.
#ifndef SHOAL_SRC_SERVER_FORWARD_MEMORY_H_
#define SHOAL_SRC_SERVER_FORWARD_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/parallel/thread_pool.h"
#include "src/server/round_memory.h"
#include "src/storage/arena.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"

namespace shoal::server {

// Twelve bytes for every position of the next party, initially zero. Getting pages from the system
// takes longer than using them, so where memory is plentiful the offline stage gets them ahead of
// the online stage. Movable; an object that was moved from may only be assigned to or destroyed.
// Thread-compatible; different threads may write disjoint parts.
class ForwardMemory {
 public:
  // What the next party will be sent at one of its positions.
  struct Item {
    uint32_t tally;
    uint32_t from;  // 1 + the query's number (noise queries come last); 0: no query
  };

  static constexpr uint64_t kPositionBytes = sizeof(Item) + sizeof(uint32_t);
  static_assert(kPositionBytes == kForwardPositionBytes);

  // Memory for no positions.
  ForwardMemory() = default;
  // RESOURCE_EXHAUSTED if the system has no memory.
  static absl::StatusOr<ForwardMemory> Create(uint32_t positions);
  // The same with touched pages from an arena, and with memory for the message if there will be one
  // (Forwarding). If the arena has no memory left, the result has no positions.
  static absl::StatusOr<ForwardMemory> MakeReady(uint32_t positions, Arena& arena, ThreadPool& pool,
                                                 bool message = true);

  uint32_t positions() const { return static_cast<uint32_t>(place_.size()); }
  std::span<Item> items() { return items_; }
  // place()[a] is the number of the a-th query in the message. Queries that came in are numbered
  // first, noise queries after them.
  std::span<uint32_t> place() { return place_; }
  std::span<const uint32_t> place() const { return place_; }
  // Memory for the message to the next party: empty, or zeros of the message's largest size.
  Bytes& message() { return message_; }

  // Frees the memory of items() unless it belongs to an arena. Keeps place() for the way back.
  void FreeItems();

 private:
  std::span<Item> items_;
  std::span<uint32_t> place_;
  Spool ready_;
  PageArray<Item> own_items_;
  PageArray<uint32_t> own_place_;
  Bytes message_;
};

// The items that have a query, in order.
class UsedItems {
 public:
  // The items must outlive it, and stay as they are.
  UsedItems(std::span<const ForwardMemory::Item> items, ThreadPool& pool);

  uint64_t count() const { return start_.back(); }
  // Calls put(a, position, item) for the a-th of them, for all. Items of one block of 65,536
  // positions are handled in order on one thread.
  template <typename Put>
  void ForEach(ThreadPool& pool, const Put& put) const {
    pool.ParallelFor(start_.size() - 1, 1, [&](size_t begin, size_t end) {
      for (size_t b = begin; b < end; ++b) {
        uint64_t at = start_[b];
        auto position = static_cast<uint32_t>(b * kBlock);
        for (const ForwardMemory::Item& item : Block(b)) {
          const uint32_t mine = position++;
          if (item.from == kUnused) continue;
          put(at, mine, item);
          ++at;
        }
      }
    });
  }

 private:
  static constexpr size_t kBlock = 1 << 16;
  static constexpr uint32_t kUnused = 0;
  std::span<const ForwardMemory::Item> Block(size_t b) const {
    return items_.subspan(b * kBlock, std::min<uint64_t>(kBlock, items_.size() - b * kBlock));
  }

  const std::span<const ForwardMemory::Item> items_;
  std::vector<uint64_t> start_;  // of each block, how many are before it; at last of all
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_FORWARD_MEMORY_H_
