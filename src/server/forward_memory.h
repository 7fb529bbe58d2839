// Where a party puts queries to their places before it sends them on, and their answers' way back.
#ifndef SHOAL_SRC_SERVER_FORWARD_MEMORY_H_
#define SHOAL_SRC_SERVER_FORWARD_MEMORY_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/page_buffer.h"
#include "src/base/spool.h"
#include "src/server/round_context.h"

namespace shoal::server {

// Twelve bytes for every position of the next party, zero at first. To get pages from the system takes
// longer than what is done with them while clients wait: where memory is plentiful they are there from
// the offline stage on. Moves; what was moved from is assigned to or dies. Thread-compatible; disjoint
// parts may be written by different threads.
class ForwardMemory {
 public:
  // What the next party is sent at one of its positions, while it is found out.
  struct Item {
    uint32_t tally;
    uint32_t from;  // which query it comes from, noise after the others, counted from 1; 0: none
  };

  static constexpr uint64_t kPositionBytes = sizeof(Item) + sizeof(uint32_t);

  // Of no positions.
  ForwardMemory() = default;
  // RESOURCE_EXHAUSTED where the system has none.
  static absl::StatusOr<ForwardMemory> Create(uint32_t positions);
  // The same, touched, out of the memory that spools have, and with room for the message beside it;
  // of no positions where that memory is scarce (SpoolPlace::CreateIfRoomy).
  static absl::StatusOr<ForwardMemory> MakeReady(uint32_t positions, const Resources& resources);

  uint32_t positions() const { return static_cast<uint32_t>(place_.size()); }
  std::span<Item> items() { return items_; }
  // For each query that goes out: which of those that came in it comes from.
  std::span<uint32_t> place() { return place_; }
  std::span<const uint32_t> place() const { return place_; }
  // Memory for the message that goes out; empty, or of its largest size, zero.
  Bytes& message() { return message_; }

  // Of what is its own, the places stay alone.
  void FreeItems();

 private:
  std::span<Item> items_;
  std::span<uint32_t> place_;
  Spool ready_;
  PageArray<Item> own_items_;
  PageArray<uint32_t> own_place_;
  Bytes message_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_FORWARD_MEMORY_H_
