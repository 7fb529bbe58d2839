#include "src/storage/arena.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/storage/memory.h"

namespace shoal {

Arena::~Arena() {
  Touched();
  Limit(0);
}

absl::StatusOr<std::shared_ptr<Arena>> Arena::Reserve(SpoolPlace* place, uint64_t list_bytes,
                                                      uint64_t other_bytes,
                                                      absl::string_view what) {
  std::shared_ptr<Arena> arena(new Arena(place));
  arena->Limit(list_bytes);
  const auto [wanted, others] = arena->Untouched(other_bytes);
  if (absl::Status there = CheckMemory(others + wanted, what); !there.ok()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(there.message(), others > 0 ? " (other rounds' included)" : "",
                     "; smaller rounds (max_slots), fewer at a time (open_ahead), a smaller "
                     "spool_memory_mib or more memory help"));
  }
  return arena;
}

uint64_t Arena::free_bytes() const {
  const MutexLock lock(place_->mutex_);
  return account().unspent + place_->FreeBytes();
}

void Arena::Limit(uint64_t list_bytes) {
  const MutexLock lock(place_->mutex_);
  SpoolPlace::Account& account = this->account();
  account.limit = list_bytes;
  const uint64_t wanted = list_bytes - std::min(list_bytes, account.spent);
  place_->reserved_ -= std::exchange(account.unspent, 0);
  account.unspent = std::min(wanted, place_->FreeBytes());
  place_->reserved_ += account.unspent;
}

absl::StatusOr<Spool> Arena::MakeList(uint64_t bytes, uint64_t memory) {
  SHOAL_CHECK(memory == 0 || memory >= bytes);
  if (memory > 0 || bytes == 0) {
    SHOAL_ASSIGN_OR_RETURN(auto spool, place_->CreateInMemory(bytes, memory, account_));
    if (spool.has_value()) return *std::move(spool);
  }
  return place_->CreateInFile(bytes);
}

absl::StatusOr<std::optional<Spool>> Arena::MakeInMemory(uint64_t bytes) {
  return place_->CreateInMemory(bytes, bytes, account_);
}

std::pair<uint64_t, uint64_t> Arena::Untouched(uint64_t other_bytes) {
  const MutexLock lock(place_->mutex_);
  // Memory of freed spools has been touched already.
  const uint64_t fresh = account().unspent - std::min(account().unspent, place_->SpareBytes());
  const uint64_t others = place_->untouched_;
  account().untouched = fresh + other_bytes;
  place_->untouched_ += account().untouched;
  return {account().untouched, others};
}

void Arena::Touched(uint64_t left) {
  const MutexLock lock(place_->mutex_);
  place_->untouched_ -= std::exchange(account().untouched, left);
  place_->untouched_ += left;
}

}  // namespace shoal
