// The memory of one round: reserved before it is needed, or refused.
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

// An account with a SpoolPlace. Nothing is allocated by reserving: memory comes from the system,
// or from spools that are gone, when a list is made. The memory of a list that dies goes back to
// the arena, zeroed, for the round's next list, and with the arena to everybody; so once a round's
// lists and its arena are gone, no byte of the round is left in the place's memory.
//
// Thread-safe. Its lists may outlive it.
class Arena {
 public:
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Reserves `list_bytes` of the place's memory, or what is free of it: lists that find no room in
  // memory go to files. `other_bytes`: what the round takes beside its lists.
  //
  // RESOURCE_EXHAUSTED if the machine does not have the memory for both, beside what other arenas
  // have reserved and not yet touched; the message begins with `what` and says what to change. As
  // CheckMemory, little is never refused.
  static absl::StatusOr<std::shared_ptr<Arena>> Reserve(SpoolPlace* place, uint64_t list_bytes,
                                                        uint64_t other_bytes,
                                                        absl::string_view what);

  // What a list of this arena may have in memory now: what is reserved for no list yet, and what
  // nobody has reserved.
  uint64_t free_bytes() const;

  // The arena has at most `list_bytes` from now on, those of living lists among them: takes more of
  // what is free, or lets others have what it does not need.
  void Limit(uint64_t list_bytes);

  // A list whose memory holds `memory` bytes, at least `bytes`: a later one finds room there. In a
  // file if `memory` is 0 or there is less. Errors as of SpoolPlace::Create.
  absl::StatusOr<Spool> MakeList(uint64_t bytes, uint64_t memory);
  // A list of zeros in memory, or none.
  absl::StatusOr<std::optional<Spool>> MakeInMemory(uint64_t bytes);

  // All that was reserved has been written to: from here on it counts in what the machine has left.
  void Touched();

 private:
  explicit Arena(SpoolPlace* place) : place_(place) {}

  // What the round is going to touch for the first time, and what all other rounds are, in bytes.
  std::pair<uint64_t, uint64_t> Untouched(uint64_t other_bytes);

  SpoolPlace::Account& account() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(place_->mutex_) {
    return *account_;
  }

  SpoolPlace* const place_;
  const std::shared_ptr<SpoolPlace::Account> account_ = std::make_shared<SpoolPlace::Account>();
};

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_ARENA_H_
