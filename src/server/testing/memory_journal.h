// A journal without a disk, for tests: it can be started again from what it "wrote".
#ifndef SHOAL_SRC_SERVER_TESTING_MEMORY_JOURNAL_H_
#define SHOAL_SRC_SERVER_TESTING_MEMORY_JOURNAL_H_

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "src/base/check.h"
#include "src/server/journal.h"

namespace shoal::server::testing {

// What survives a crash.
struct Disk {
  std::vector<Bytes> records;
  std::map<RoundCounter, Bytes> seeds;
  std::map<RoundCounter, std::vector<Bytes>> submissions;
  // When not negative: this many more writes succeed.
  int writes_left = -1;
  absl::Status failure = absl::ResourceExhaustedError("disk full");  // of the others
  std::function<void()> before_write = nullptr;                      // may wait: a slow disk

  absl::Status Write() {
    if (before_write) before_write();
    if (writes_left == 0) return failure;
    if (writes_left > 0) --writes_left;
    return absl::OkStatus();
  }
};

class MemoryJournal final : public Journal {
 public:
  // As a process starts over what is on the disk, which outlives the journal.
  explicit MemoryJournal(Disk* disk) : disk_(disk) {
    const std::vector<Bytes> records = disk->records;
    for (const Bytes& record : records) SHOAL_CHECK(Replay(record).ok());
    SHOAL_CHECK(EndOpenRounds().ok());
    disk->seeds.clear();
    disk->submissions.clear();
  }

  absl::Status StoreSeed(RoundCounter round, BytesView seed) override {
    if (absl::Status status = disk_->Write(); !status.ok()) return status;
    std::lock_guard lock(disk_mutex_);
    SHOAL_CHECK(disk_->seeds.emplace(round, ToBytes(seed)).second);
    return absl::OkStatus();
  }
  absl::Status AppendSubmission(RoundCounter round, BytesView record) override {
    if (absl::Status status = disk_->Write(); !status.ok()) return status;
    std::lock_guard lock(disk_mutex_);
    disk_->submissions[round].push_back(ToBytes(record));
    return absl::OkStatus();
  }
  absl::Status Sync(RoundCounter) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter round,
                                                              uint64_t bytes) override {
    std::lock_guard lock(disk_mutex_);
    Bytes all;
    for (const Bytes& record : disk_->submissions[round]) Append(all, record);
    if (all.size() != bytes) return absl::DataLossError("submissions are missing");
    return std::make_unique<BytesSource>(std::move(all));
  }

 protected:
  absl::Status Persist(BytesView record) override {
    if (absl::Status status = disk_->Write(); !status.ok()) return status;
    disk_->records.push_back(ToBytes(record));
    return absl::OkStatus();
  }
  absl::Status WipeSeed(RoundCounter round) override {
    std::lock_guard lock(disk_mutex_);
    disk_->seeds.erase(round);
    return absl::OkStatus();
  }
  absl::Status DeleteSubmissions(RoundCounter round) override {
    std::lock_guard lock(disk_mutex_);
    disk_->submissions.erase(round);
    return absl::OkStatus();
  }

 private:
  std::mutex disk_mutex_;
  Disk* const disk_;
};

}  // namespace shoal::server::testing

#endif  // SHOAL_SRC_SERVER_TESTING_MEMORY_JOURNAL_H_
