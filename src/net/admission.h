// What the peers of one server take of its places and buffers, in all and by address block.
//
// A connection begins as a newcomer. It is welcomed once its peer has shown that it may be here.
// The two kinds have places of their own, so that newcomers, however many, take nothing from peers
// that were welcomed. When the places of newcomers are taken, the oldest of them goes; a block that
// has its share of these places loses its own oldest one.
#ifndef SHOAL_SRC_NET_ADMISSION_H_
#define SHOAL_SRC_NET_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "src/base/address_block.h"
#include "src/parallel/mutex.h"

namespace shoal::net {

// The most that one address block may take, in percent of what there is, 1 to 100. A block gets at
// least eight places of a kind, as one client has several connections.
struct BlockShares {
  uint32_t connections = 100;
  uint32_t newcomers = 100;
  uint32_t buffers = 100;
};

// Of `places` that there are, how many a share of `percent` is.
size_t ShareOf(size_t places, uint32_t percent);

// Thread-safe; must outlive its places.
class AdmissionControl {
 public:
  struct Limits {
    size_t connections;  // that were welcomed
    size_t newcomers;
    uint64_t buffer_bytes;
    uint64_t reserved_bytes;  // of buffer_bytes, for requests that keep a server controllable
    BlockShares shares;
    BlockShares group_shares = {};  // of a block that many share
  };
  enum class Room { kGeneral, kReserve };

  // One connection's place and buffers. Frees them when it is destroyed. Thread-compatible.
  class Permit {
   public:
    Permit(Permit&& other) noexcept;
    Permit& operator=(Permit&&) = delete;
    ~Permit();

    const Origin& origin() const { return origin_; }
    bool welcome() const { return welcome_; }
    // From now on this is no newcomer. UNAVAILABLE, and nothing changes: no place for it.
    absl::Status Welcome();
    // Takes room for `bytes` more. False, and nothing changes, if there is none. With kReserve the
    // reserved bytes count as room.
    bool Claim(uint64_t bytes, Room room);
    // Frees what was claimed.
    void Release();

   private:
    friend class AdmissionControl;
    Permit(AdmissionControl* places, uint64_t number, Origin origin)
        : places_(places), number_(number), origin_(std::move(origin)) {}

    AdmissionControl* places_;  // null once it was moved away
    const uint64_t number_;
    const Origin origin_;
    bool welcome_ = false;
    uint64_t claimed_ = 0;
  };

  explicit AdmissionControl(const Limits& limits) : limits_(limits) {}

  // A place for the newcomer `number`. Numbers rise. The newcomer `evicted`, if there is one, has
  // lost its place to it: its connection is to be cut.
  struct Arrival {
    Permit place;
    std::optional<uint64_t> evicted;
  };
  Arrival Arrive(uint64_t number, const Origin& origin) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Taken {
    std::set<uint64_t> newcomers;  // the oldest first
    size_t connections = 0;
    uint64_t buffer_bytes = 0;
  };
  BlockShares SharesOf(const AddressBlock& block) const {
    return block.is_shared() ? limits_.group_shares : limits_.shares;
  }
  // Null for an address that no share applies to.
  Taken* OfBlock(const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveNewcomer(uint64_t number, const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  Mutex mutex_;  // held for moments
  Taken all_ ABSL_GUARDED_BY(mutex_);
  // Of newcomers alone: who evicts one must find its block.
  absl::flat_hash_map<uint64_t, Origin> origins_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<AddressBlock, Taken> blocks_ ABSL_GUARDED_BY(mutex_);  // that have something
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_ADMISSION_H_
