#include "src/net/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shoal::net {
namespace {

constexpr size_t kLeastPlaces = 8;

uint64_t BytesOf(uint64_t bytes, uint32_t percent) {
  return percent >= 100 ? bytes : bytes / 100 * percent;
}

}  // namespace

size_t ShareOf(size_t places, uint32_t percent) {
  return std::min(places, std::max(kLeastPlaces, places * percent / 100));
}

AdmissionControl::Permit::Permit(Permit&& other) noexcept
    : places_(std::exchange(other.places_, nullptr)),
      number_(other.number_),
      origin_(other.origin_),
      welcome_(other.welcome_),
      claimed_(std::exchange(other.claimed_, 0)) {}

AdmissionControl::Permit::~Permit() {
  if (places_ == nullptr) return;
  Release();
  const MutexLock lock(places_->mutex_);
  if (welcome_) {
    --places_->all_.connections;
    if (Taken* const block = places_->OfBlock(origin_)) --block->connections;
    places_->Forget(origin_);
  } else {
    places_->RemoveNewcomer(number_, origin_);
  }
}

absl::Status AdmissionControl::Permit::Welcome() {
  const MutexLock lock(places_->mutex_);
  const Limits& limits = places_->limits_;
  if (!places_->origins_.contains(number_)) {
    return absl::UnavailableError("others came meanwhile; try again");  // evicted a moment ago
  }
  Taken* const block = places_->OfBlock(origin_);
  if (block != nullptr &&
      block->connections >= ShareOf(limits.connections, places_->SharesOf(*origin_).connections)) {
    return absl::UnavailableError(
        absl::StrCat("too many connections of ", origin_->ToString(), " at once; try again later"));
  }
  if (places_->all_.connections >= limits.connections) {
    return absl::UnavailableError("too many connections at once; try again later");
  }
  ++places_->all_.connections;
  if (block != nullptr) ++block->connections;
  places_->RemoveNewcomer(number_, origin_);
  welcome_ = true;
  return absl::OkStatus();
}

bool AdmissionControl::Permit::Claim(uint64_t bytes, Room room) {
  const MutexLock lock(places_->mutex_);
  const Limits& limits = places_->limits_;
  const auto fits = [&](uint64_t taken, uint64_t most) {
    return bytes <= most && taken <= most - bytes;
  };
  const uint64_t kept = room == Room::kReserve ? 0 : limits.reserved_bytes;
  if (!fits(places_->all_.buffer_bytes, limits.buffer_bytes - kept)) return false;
  if (Taken* const block = places_->OfBlock(origin_)) {
    const uint32_t share = places_->SharesOf(*origin_).buffers;
    if (!fits(block->buffer_bytes, BytesOf(limits.buffer_bytes, share))) {
      return false;
    }
    block->buffer_bytes += bytes;
  }
  places_->all_.buffer_bytes += bytes;
  claimed_ += bytes;
  return true;
}

void AdmissionControl::Permit::Release() {
  if (claimed_ == 0) return;
  const MutexLock lock(places_->mutex_);
  places_->all_.buffer_bytes -= claimed_;
  if (Taken* const block = places_->OfBlock(origin_)) block->buffer_bytes -= claimed_;
  claimed_ = 0;
}

AdmissionControl::Arrival AdmissionControl::Arrive(uint64_t number, const Origin& origin) {
  const MutexLock lock(mutex_);
  std::optional<uint64_t> evicted;
  Taken* const block = OfBlock(origin);
  if (block != nullptr &&
      block->newcomers.size() >= ShareOf(limits_.newcomers, SharesOf(*origin).newcomers)) {
    evicted = *block->newcomers.begin();
  } else if (all_.newcomers.size() >= limits_.newcomers) {
    evicted = *all_.newcomers.begin();
  }
  // Counts the new one first, so that its block is not forgotten meanwhile.
  all_.newcomers.insert(number);
  if (block != nullptr) block->newcomers.insert(number);
  origins_.emplace(number, origin);
  if (evicted) RemoveNewcomer(*evicted, Origin(origins_.at(*evicted)));
  return {Permit(this, number, origin), evicted};
}

AdmissionControl::Taken* AdmissionControl::OfBlock(const Origin& origin) {
  return origin ? &blocks_[*origin] : nullptr;
}

void AdmissionControl::Forget(const Origin& origin) {
  if (!origin) return;
  const auto found = blocks_.find(*origin);
  if (found == blocks_.end()) return;
  const Taken& taken = found->second;
  if (taken.newcomers.empty() && taken.connections == 0 && taken.buffer_bytes == 0) {
    blocks_.erase(found);
  }
}

void AdmissionControl::RemoveNewcomer(uint64_t number, const Origin& origin) {
  if (origins_.erase(number) == 0) return;  // evicted before
  all_.newcomers.erase(number);
  if (Taken* const block = OfBlock(origin)) block->newcomers.erase(number);
  Forget(origin);
}

}  // namespace shoal::net
