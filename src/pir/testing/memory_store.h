// A session's store in memory, for tests: what is durable outlives it, and any write can be the
// last one of its process.
#ifndef SHOAL_SRC_PIR_TESTING_MEMORY_STORE_H_
#define SHOAL_SRC_PIR_TESTING_MEMORY_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/pir/engine.h"

namespace shoal::pir::testing {

class MemoryStore final : public SessionStore {
 public:
  // What is durable.
  struct Disk {
    Bytes state;
    std::vector<Bytes> records;
    bool operator==(const Disk&) const = default;
  };

  MemoryStore() = default;
  explicit MemoryStore(Disk disk) : disk_(std::move(disk)) {}
  MemoryStore(const MemoryStore&) = delete;
  MemoryStore& operator=(const MemoryStore&) = delete;

  uint64_t state_bytes() const override { return disk_.state.size(); }
  uint64_t records() const override { return disk_.records.size(); }
  absl::Status Read(uint64_t at, MutableBytes out) const override {
    SHOAL_CHECK(at <= disk_.state.size() && out.size() <= disk_.state.size() - at);
    bytes_read_ += out.size();
    std::copy_n(disk_.state.begin() + static_cast<ptrdiff_t>(at), out.size(), out.begin());
    return absl::OkStatus();
  }
  absl::StatusOr<SecretVector<uint8_t>> ReadRecord(uint64_t number) const override {
    SHOAL_CHECK(number < disk_.records.size());
    const Bytes& record = disk_.records[number];
    return SecretVector<uint8_t>(record.begin(), record.end());
  }
  absl::Status SaveParts(std::span<const BytesView> parts) override {
    Disk next;
    for (const BytesView part : parts) shoal::Append(next.state, part);
    return Write(std::move(next));
  }
  absl::Status Append(BytesView record) override {
    Disk next = disk_;
    next.records.push_back(ToBytes(record));
    return Write(std::move(next));
  }

  absl::Status Change(std::span<const StatePatch> patches) override {
    if (!CanChange()) return absl::FailedPreconditionError("no state that can be changed");
    Disk next = disk_;
    for (const StatePatch& patch : patches) {
      SHOAL_CHECK(patch.at <= next.state.size() &&
                  patch.bytes.size() <= next.state.size() - patch.at);
      std::ranges::copy(patch.bytes, next.state.begin() + static_cast<ptrdiff_t>(patch.at));
    }
    return Write(std::move(next));
  }
  bool CanChange() const override { return !disk_.state.empty() && disk_.records.empty(); }

  const Disk& disk() const { return disk_; }
  uint64_t writes() const { return writes_; }
  // Of the state.
  uint64_t bytes_read() const { return bytes_read_; }
  // From so many more writes on, all fail. The first of them is durable all the same, or is not.
  void KillAfter(uint64_t writes, bool durable) {
    kill_at_ = writes_ + writes;
    durable_ = durable;
  }

 private:
  absl::Status Write(Disk next) {
    const uint64_t write = writes_++;
    if (write < kill_at_ || (write == kill_at_ && durable_)) disk_ = std::move(next);
    return write >= kill_at_ ? absl::UnavailableError("killed") : absl::OkStatus();
  }

  Disk disk_;
  mutable uint64_t bytes_read_ = 0;
  uint64_t writes_ = 0, kill_at_ = ~uint64_t{0};
  bool durable_ = false;
};

}  // namespace shoal::pir::testing

#endif  // SHOAL_SRC_PIR_TESTING_MEMORY_STORE_H_
