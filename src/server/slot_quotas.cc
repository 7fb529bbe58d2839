#include "src/server/slot_quotas.h"

#include <algorithm>

#include "src/base/check.h"

namespace shoal::server {

SlotQuotas::Limits SlotQuotas::PercentOf(uint32_t percent, uint64_t slots, uint64_t onions_goal,
                                         uint64_t queries_goal) {
  const auto share = [&](uint64_t whole) {
    // A goal may be any number, so nothing is multiplied that could overflow.
    return std::max<uint64_t>(1, whole / 100 * percent + whole % 100 * percent / 100);
  };
  if (percent >= 100) {
    // Goals are divided among a party's machines evenly, and clients are not.
    constexpr uint64_t kAll = ~uint64_t{0};
    return {.slots = slots, .onions = kAll, .queries = kAll};
  }
  return {.slots = share(slots), .onions = share(onions_goal), .queries = share(queries_goal)};
}

uint64_t SlotQuotas::SlotsOf(const Origin& from) const {
  if (!from) return 0;
  const auto found = numbers_.find(*from);
  return found == numbers_.end() ? 0 : taken_[found->second].slots;
}

bool SlotQuotas::Fits(const Origin& from, uint64_t count) const {
  if (!from) return true;
  const uint64_t most = LimitsOf(*from).slots;
  return count <= most && SlotsOf(from) <= most - count;
}

void SlotQuotas::Add(const Origin& from, uint64_t count) {
  if (count == 0) return;
  size_t number = kNoBlock;
  if (from) {
    number = numbers_.try_emplace(*from, taken_.size()).first->second;
    const Limits& limits = LimitsOf(*from);
    if (number == taken_.size()) taken_.push_back({.most_queries = limits.queries});
    Taken& taken = taken_[number];
    const uint64_t before = std::min(taken.slots, limits.onions);
    taken.slots += count;
    counted_onions_ += std::min(taken.slots, limits.onions) - before;
  } else {
    counted_onions_ += count;
  }
  const uint64_t end = (runs_.empty() ? 0 : runs_.back().end) + count;
  if (!runs_.empty() && runs_.back().block == number) {
    runs_.back().end = end;
  } else {
    runs_.push_back({end, number});
  }
}

void SlotQuotas::Use(uint64_t slot) {
  const auto run = std::ranges::upper_bound(runs_, slot, {}, &Run::end);
  SHOAL_CHECK(run != runs_.end());
  if (run->block != kNoBlock) {
    Taken& taken = taken_[run->block];
    if (++taken.queries > taken.most_queries) return;
  }
  ++counted_queries_;
}

}  // namespace shoal::server
