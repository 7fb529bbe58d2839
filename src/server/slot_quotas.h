// Which address blocks took the slots of a round, and what that means for others: no block takes
// more than its share of the slots, and none ends a window alone by filling its count. A block that
// many share has a share of its own (AddressBlock::is_shared).
//
// All of it follows from how many slots a block took and used, never from what it asks.
#ifndef SHOAL_SRC_SERVER_SLOT_QUOTAS_H_
#define SHOAL_SRC_SERVER_SLOT_QUOTAS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/base/address_block.h"

namespace shoal::server {

// Thread-compatible. Takes 24 bytes for each block, and 16 for each run of adjacent slots that one
// block took.
class SlotQuotas {
 public:
  // Of one block.
  struct Limits {
    uint64_t slots;    // the most that it may take
    uint64_t onions;   // how many of its slots count at most towards the end of the onions' window,
    uint64_t queries;  // and how many of its queries towards that of the queries' window
  };
  // `percent` of each, and at least 1; with 100, all that is taken counts. A goal of 0 means that
  // there is none.
  static Limits PercentOf(uint32_t percent, uint64_t slots, uint64_t onions_goal,
                          uint64_t queries_goal);

  SlotQuotas(const Limits& limits, const Limits& group_limits)
      : limits_(limits), group_limits_(group_limits) {}

  // Without what was taken.
  SlotQuotas Empty() const { return {limits_, group_limits_}; }
  const Limits& LimitsOf(const AddressBlock& from) const {
    return from.is_shared() ? group_limits_ : limits_;
  }
  // How many slots this block has.
  uint64_t SlotsOf(const Origin& from) const;
  // Whether it may take `count` more.
  bool Fits(const Origin& from, uint64_t count) const;
  // The next `count` slots, in order, have been given to `from`.
  void Add(const Origin& from, uint64_t count);
  // A slot that was given out carries a query now. To be called once for a slot.
  void Use(uint64_t slot);

  // The slots, and the queries, that count towards the ends of the windows.
  uint64_t counted_onions() const { return counted_onions_; }
  uint64_t counted_queries() const { return counted_queries_; }

 private:
  static constexpr size_t kNoBlock = ~size_t{0};  // of an address that no share applies to
  struct Taken {
    uint64_t most_queries;  // that count
    uint64_t slots = 0, queries = 0;
  };
  struct Run {
    uint64_t end;  // one past its last slot; the run begins where the one before ends
    size_t block;  // in taken_
  };

  Limits limits_, group_limits_;
  absl::flat_hash_map<AddressBlock, size_t> numbers_;  // of blocks in taken_
  std::vector<Taken> taken_;
  std::vector<Run> runs_;
  uint64_t counted_onions_ = 0, counted_queries_ = 0;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_SLOT_QUOTAS_H_
