// The applications that every device of a crowd has installed, and when it sleeps.
#ifndef SHOAL_SRC_LOAD_POPULARITY_H_
#define SHOAL_SRC_LOAD_POPULARITY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/bytes.h"
#include "src/load/options.h"

namespace shoal::load {

// The keys of each device, as a function of options and keys alone. Immutable, thread-safe. Memory:
// 12 bytes a key unless zipf is 0.
class Popularity {
 public:
  // The options must have been checked; `keys` must outlive this. No device pads to more than
  // `table_rows`.
  Popularity(const CrowdOptions& options, const CrowdKeys* keys, uint64_t table_rows);

  // The number of queries of a device, and of all devices before it.
  uint64_t QueriesOf(uint32_t device) const;
  uint64_t QueriesBefore(uint32_t device) const;

  // The applications of a device, all different: numbers of keys, or kAbsent + i if the i-th one is
  // in no table.
  std::vector<uint32_t> AppsOf(uint32_t device) const;
  static constexpr uint32_t kAbsent = 1u << 31;
  Bytes KeyOf(uint32_t device, uint32_t app) const;
  // Whether the device sleeps through a refresh.
  bool IsAsleep(uint32_t device, uint32_t refresh) const;
  // For tests: the key of rank 1, 2, .. when zipf is not 0.
  Bytes Ranked(size_t rank) const { return keys_->At(order_[rank - 1]); }

 private:
  const CrowdOptions options_;
  const CrowdKeys* const keys_;
  const uint64_t pad_to_;
  Digest seed_;
  std::vector<uint32_t> order_;     // by rank: number of the key
  std::vector<double> cumulative_;  // weights of ranks 1..i+1
};

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_POPULARITY_H_
