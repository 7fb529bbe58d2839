// A journal without a disk, for tests: it can be started again from what it "wrote".
#ifndef SHOAL_SRC_SERVER_TESTING_MEMORY_JOURNAL_H_
#define SHOAL_SRC_SERVER_TESTING_MEMORY_JOURNAL_H_

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/parallel/mutex.h"
#include "src/server/journal.h"

namespace shoal::server::testing {

// What survives a crash. The journal of one process writes to it on several threads; a test looks
// at it, and says what goes wrong, while none of them does, and needs no lock for that.
struct Disk {
  mutable Mutex mutex;
  std::vector<Bytes> records ABSL_GUARDED_BY(mutex);
  std::map<RoundCounter, std::vector<Bytes>> submissions ABSL_GUARDED_BY(mutex);
  Bytes rounds ABSL_GUARDED_BY(mutex);
  // When not negative: this many more writes succeed.
  int writes_left ABSL_GUARDED_BY(mutex) = -1;
  // Of the others.
  absl::Status failure ABSL_GUARDED_BY(mutex) = absl::ResourceExhaustedError("disk full");
  // May wait: a slow disk. Nothing is locked meanwhile.
  std::function<void()> before_write = nullptr;

  absl::Status Write() ABSL_LOCKS_EXCLUDED(mutex) {
    if (before_write) before_write();
    const MutexLock lock(mutex);
    if (writes_left == 0) return failure;
    if (writes_left > 0) --writes_left;
    return absl::OkStatus();
  }
};

class MemoryJournal final : public Journal {
 public:
  // As a process starts over what is on the disk, which outlives the journal.
  explicit MemoryJournal(Disk* disk) : disk_(disk) {
    std::vector<Bytes> records;
    {
      const MutexLock lock(disk->mutex);
      records = disk->records;
      disk->submissions.clear();
    }
    for (const Bytes& record : records) SHOAL_CHECK(Replay(record).ok());
    SHOAL_CHECK(EndOpenRounds().ok());
  }

  absl::Status AppendSubmission(RoundCounter round, BytesView record) override {
    if (absl::Status status = disk_->Write(); !status.ok()) return status;
    const MutexLock lock(disk_->mutex);
    disk_->submissions[round].push_back(ToBytes(record));
    return absl::OkStatus();
  }
  absl::Status Sync(RoundCounter) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<ByteSource>> ReadSubmissions(RoundCounter round,
                                                              uint64_t bytes) override {
    const MutexLock lock(disk_->mutex);
    Bytes all;
    for (const Bytes& record : disk_->submissions[round]) Append(all, record);
    if (all.size() != bytes) return absl::DataLossError("submissions are missing");
    return std::make_unique<BytesSource>(std::move(all));
  }
  absl::Status StoreRounds(BytesView rounds) override {
    if (absl::Status status = disk_->Write(); !status.ok()) return status;
    const MutexLock lock(disk_->mutex);
    disk_->rounds = ToBytes(rounds);
    return absl::OkStatus();
  }
  absl::StatusOr<Bytes> LoadRounds() const override {
    const MutexLock lock(disk_->mutex);
    return disk_->rounds;
  }

 protected:
  absl::Status Persist(BytesView record) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (absl::Status status = disk_->Write(); !status.ok()) return status;
    const MutexLock lock(disk_->mutex);
    disk_->records.push_back(ToBytes(record));
    return absl::OkStatus();
  }
  absl::Status DeleteSubmissions(RoundCounter round) override {
    const MutexLock lock(disk_->mutex);
    disk_->submissions.erase(round);
    return absl::OkStatus();
  }

 private:
  Disk* const disk_;
};

}  // namespace shoal::server::testing

#endif  // SHOAL_SRC_SERVER_TESTING_MEMORY_JOURNAL_H_
