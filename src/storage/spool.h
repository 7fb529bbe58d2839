// Byte strings that may be larger than memory. They are in memory while there is room, otherwise in
// an unnamed file.
#ifndef SHOAL_SRC_STORAGE_SPOOL_H_
#define SHOAL_SRC_STORAGE_SPOOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/page_buffer.h"

namespace shoal {

class Spool;

// Where a process keeps its spools. Memory of freed spools is zeroed and kept for new ones, as
// getting cleared pages from the system takes longer than most work on them. Thread-safe; must
// outlive its spools.
class SpoolPlace {
 public:
  // At most `memory_bytes` of all spools are in memory; spools that do not fit go to files in
  // `directory`, on any disk of this machine.
  SpoolPlace(std::string directory, uint64_t memory_bytes)
      : directory_(std::move(directory)), memory_bytes_(memory_bytes) {}
  SpoolPlace(const SpoolPlace&) = delete;
  SpoolPlace& operator=(const SpoolPlace&) = delete;

  // Makes a spool in memory if enough of it is neither taken nor reserved (Arena), otherwise in a
  // file. RESOURCE_EXHAUSTED or the file system's error, naming the directory.
  absl::StatusOr<Spool> Create(uint64_t bytes);

  // Bytes of memory that are neither taken nor reserved.
  uint64_t free_bytes() const;

  // Gives the system the kept memory that no spool has used since the call before this one, but for
  // what is reserved. To be called now and then where lists are rare.
  void GiveBackUnused();

  // Whether a spool that needs `memory` bytes reuses spare memory of `kept` bytes: it must fit and
  // take at least a quarter.
  static bool Reuses(uint64_t kept, uint64_t memory) {
    return kept >= memory && kept / 4 <= memory;
  }

  // For tests: bytes in files now.
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  friend class Arena;
  friend class Spool;
  // An arena's account, in bytes. The mutex guards it.
  struct Account {
    uint64_t limit = 0;      // the most that it has
    uint64_t spent = 0;      // in spools that live
    uint64_t unspent = 0;    // reserved for later spools
    uint64_t untouched = 0;  // of the round's memory, possibly not yet touched
  };

  // Makes a spool in memory that is large enough for `memory` bytes, from the account's
  // reservation, if there is an account, and from what is free. None if there is less.
  absl::StatusOr<std::optional<Spool>> CreateInMemory(uint64_t bytes, uint64_t memory,
                                                      std::shared_ptr<Account> account);
  absl::StatusOr<Spool> CreateInFile(uint64_t bytes);
  absl::StatusOr<std::optional<PageBuffer>> Claim(uint64_t bytes, Account* account);
  void Release(PageBuffer memory, Account* account);
  uint64_t FreeBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t SpareBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  const uint64_t memory_bytes_;
  std::atomic<uint64_t> file_bytes_ = 0;

  mutable Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;       // bytes of spools in memory
  uint64_t reserved_ ABSL_GUARDED_BY(mutex_) = 0;   // unspent bytes of all accounts
  uint64_t untouched_ ABSL_GUARDED_BY(mutex_) = 0;  // of all accounts
  // Zeroed memory of freed spools. Together with the living spools it stays within memory_bytes_.
  std::vector<PageBuffer> spare_ ABSL_GUARDED_BY(mutex_);
  // Where each spare was at the last GiveBackUnused.
  std::vector<const uint8_t*> unused_ ABSL_GUARDED_BY(mutex_);
};

// `size` bytes, each written once and read any number of times. A file never has a name (O_TMPFILE,
// 0600), so a crash leaves none behind. Its bytes are encrypted (AES-256-CTR) under a key that
// never leaves memory, so what a disk keeps is noise; because of the cipher a byte may be written
// only once. Nothing authenticates the bytes: the file is as trusted as the process's memory.
//
// Disjoint ranges may be written and read by different threads.
class Spool {
 public:
  Spool() = default;
  Spool(Spool&& other) noexcept { *this = std::move(other); }
  Spool& operator=(Spool&& other) noexcept;
  ~Spool();

  uint64_t size() const { return size_; }
  bool in_memory() const { return fd_ < 0; }
  // The bytes; empty unless the spool is in memory.
  MutableBytes memory() { return MutableBytes(memory_).first(in_memory() ? size_ : 0); }
  BytesView memory() const { return BytesView(memory_).first(in_memory() ? size_ : 0); }

  // Writes zeros to the memory from `from` on, including its room beyond the size, so that the
  // system provides the pages now. To be called before anything else is written there. `from` is
  // within the size (checked). Does nothing for a file.
  void Touch(uint64_t from, ThreadPool& pool);

  // The range is within the size (checked). Errors of the file system. With a pool, all its threads
  // encrypt, decrypt and copy long ranges.
  absl::Status Write(uint64_t offset, BytesView bytes, ThreadPool* pool = nullptr);
  absl::Status Read(uint64_t offset, MutableBytes into, ThreadPool* pool = nullptr) const;
  // Has the system fetch bytes of a file from the disk that will be read next, while others are
  // worked on. The range may end after the spool.
  void WillRead(uint64_t offset, uint64_t bytes) const;

 private:
  friend class SpoolPlace;
  absl::Status Crypt(uint64_t offset, BytesView in, MutableBytes out) const;
  absl::Status WriteOne(uint64_t offset, BytesView bytes);
  absl::Status ReadOne(uint64_t offset, MutableBytes into) const;

  SpoolPlace* place_ = nullptr;
  uint64_t size_ = 0;
  PageBuffer memory_;
  std::shared_ptr<SpoolPlace::Account> account_;  // gets the memory back; may be null
  int fd_ = -1;
  Seed key_;
};

// Reads a spool from front to back and keeps it alive.
class SpoolSource final : public ByteSource {
 public:
  explicit SpoolSource(Spool spool) : spool_(std::move(spool)) {}
  uint64_t size() const override { return spool_.size(); }
  absl::StatusOr<BytesView> Next() override;

 private:
  Spool spool_;
  uint64_t given_ = 0;
  SecretVector<uint8_t> piece_;
};

// Reads a whole source into a spool of the source's size that nothing was written to. The source's
// error; DATA_LOSS if it ends early, INTERNAL if it has more bytes than it announced.
absl::Status FillSpool(ByteSource& source, Spool& spool, ThreadPool* pool = nullptr);

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_SPOOL_H_
