// The memory of one round, which is reserved before it is needed, or refused.
#ifndef SHOAL_SRC_STORAGE_ARENA_H_
#define SHOAL_SRC_STORAGE_ARENA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/storage/spool.h"

namespace shoal {

// An account with a SpoolPlace. Reserving allocates nothing: a list gets memory when it is made,
// from the system or from freed spools. The memory of a freed list is zeroed and stays reserved for
// the arena's next list, until the arena dies. Once a round's lists and its arena are gone, no byte
// of the round is left in the place's memory.
//
// Thread-safe. Its lists may outlive it.
class Arena {
 public:
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Reserves `list_bytes` of the place's memory, or as much as is free; lists that do not fit go to
  // files. `other_bytes` is what the round takes beside its lists.
  //
  // RESOURCE_EXHAUSTED if the machine lacks memory for both, beside what other arenas have reserved
  // and not yet touched. The message begins with `what` and says what to change. Small amounts are
  // never refused, as with CheckMemory.
  static absl::StatusOr<std::shared_ptr<Arena>> Reserve(SpoolPlace* place, uint64_t list_bytes,
                                                        uint64_t other_bytes,
                                                        absl::string_view what);

  // The memory that a list of this arena may get now: the arena's unused reservation, and what
  // nobody has reserved.
  uint64_t free_bytes() const;

  // Sets the arena's reservation to `list_bytes`, which includes living lists: takes more of what
  // is free, or releases what it does not need.
  void Limit(uint64_t list_bytes);

  // Makes a list of `bytes` bytes in memory that holds `memory` bytes, at least as many, so that a
  // later list has room there. In a file if `memory` is 0 or less is free. Errors of
  // SpoolPlace::Create.
  absl::StatusOr<Spool> MakeList(uint64_t bytes, uint64_t memory);
  // Makes a list of zeros in memory; none if there is no room.
  absl::StatusOr<std::optional<Spool>> MakeInMemory(uint64_t bytes);

  // Tells that all reserved memory but `left` bytes has been written to, so that the system counts
  // it as used.
  void Touched(uint64_t left = 0);

 private:
  explicit Arena(SpoolPlace* place) : place_(place) {}

  // Bytes that this round, and all other rounds, have still to touch for the first time.
  std::pair<uint64_t, uint64_t> Untouched(uint64_t other_bytes);

  SpoolPlace::Account& account() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(place_->mutex_) {
    return *account_;
  }

  SpoolPlace* const place_;
  const std::shared_ptr<SpoolPlace::Account> account_ = std::make_shared<SpoolPlace::Account>();
};

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_ARENA_H_
