// What clients of one address may take of a server's work on heavy requests (Engine::IsHeavy): of
// its time in an hour, and of the places in the queue. A stranger who asks for hints all the time
// takes its share of them and no more, whatever kind of hints they are.
#ifndef SHOAL_SRC_SHOALD_HEAVY_SHARES_H_
#define SHOAL_SRC_SHOALD_HEAVY_SHARES_H_

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "src/base/address_block.h"

namespace shoal::shoald {

// Times are in seconds, of any clock that does not go back. What a block has taken becomes less by
// seconds_per_hour / 3600 in every second: in any hour it gets at most twice its share, and over
// many hours its share. Thread-compatible.
class HeavyShares {
 public:
  struct Limits {
    double seconds_per_hour = 60;  // of one block
    size_t waiting = 64;           // of all blocks
    size_t waiting_of_one = 4;
    // Of a block that many share, to which no limit of time applies.
    size_t waiting_of_group = 32;
  };
  explicit HeavyShares(const Limits& limits) : limits_(limits) {}

  // A request comes, and waits from now on. RESOURCE_EXHAUSTED says in how many seconds it makes
  // sense to ask again: then it does not wait. No limit but that of all blocks applies to requests
  // without an origin.
  absl::Status Add(const Origin& from, double now);
  // One that waited is done, or was given up, and took so long.
  void Done(const Origin& from, double seconds, double now);

  // Blocks of which something is remembered.
  size_t blocks() const { return taken_.size(); }

 private:
  struct Taken {
    double seconds = 0;  // as of `at`
    double at = 0;
    size_t waiting = 0;
  };
  double TakenBy(const Taken& taken, double now) const;
  void Forget(double now);

  const Limits limits_;
  absl::flat_hash_map<AddressBlock, Taken> taken_;
  size_t waiting_ = 0;
  size_t forget_at_ = 1024;  // blocks
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_HEAVY_SHARES_H_
