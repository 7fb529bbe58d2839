// Byte strings that may be larger than memory: in memory while there is room for them, else in a
// file without a name.
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

// Where a process keeps its spools. Memory of spools that are gone is zeroed and kept for the next
// ones: to get pages from the system and have it clear them takes longer than most of what is done
// with them. Thread-safe; outlives them.
class SpoolPlace {
 public:
  // Spools of together at most `memory_bytes` are in memory; what does not fit goes to files in
  // `directory`, on any disk of this machine.
  SpoolPlace(std::string directory, uint64_t memory_bytes)
      : directory_(std::move(directory)), memory_bytes_(memory_bytes) {}
  SpoolPlace(const SpoolPlace&) = delete;
  SpoolPlace& operator=(const SpoolPlace&) = delete;

  // In memory if so much of it is neither taken nor reserved (Arena), else in a file.
  // RESOURCE_EXHAUSTED, or what the file system says, naming the directory.
  absl::StatusOr<Spool> Create(uint64_t bytes);

  // Of the memory, what is neither taken nor reserved.
  uint64_t free_bytes() const;

  // Whether a spool that needs `memory` bytes is put where one with `kept` bytes was: if it fits,
  // and is not a waste.
  static bool Reuses(uint64_t kept, uint64_t memory) {
    return kept >= memory && kept / 4 <= memory;
  }

  // For tests: bytes in files now.
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  friend class Arena;
  friend class Spool;
  // What an arena has here, in bytes. The mutex guards it.
  struct Account {
    uint64_t limit = 0;      // it has no more than this
    uint64_t spent = 0;      // in spools that live
    uint64_t unspent = 0;    // reserved for later ones
    uint64_t untouched = 0;  // of all that its round takes, what may still be to be touched
  };

  // A spool in memory that is large enough for `memory` bytes: out of what the account has
  // reserved, if there is an account, and of what is free. None if there is less.
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
  // Zeroed; with the spools, within the memory.
  std::vector<PageBuffer> spare_ ABSL_GUARDED_BY(mutex_);
};

// `size` bytes, each written once and read any number of times. A file has no name from the start
// (O_TMPFILE, 0600), so that nothing of it is left behind by a crash, and its bytes are encrypted
// (AES-256-CTR) under a key that never leaves memory: what a disk keeps of it is noise. That is
// also why a byte may be written only once. Nothing authenticates it: the file belongs to the
// process as its memory does.
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
  // The bytes themselves; empty unless in memory.
  MutableBytes memory() { return MutableBytes(memory_).first(in_memory() ? size_ : 0); }
  BytesView memory() const { return BytesView(memory_).first(in_memory() ? size_ : 0); }

  // Writes zeros to the memory from `from` on and to its room beyond the size, so that the system
  // provides it now: before anything else is written there. `from` is within the size (checked).
  // Nothing in a file.
  void Touch(uint64_t from, ThreadPool& pool);

  // Within the size (checked). Errors of the file system. With a pool, what is long is encrypted,
  // decrypted and copied by all its threads.
  absl::Status Write(uint64_t offset, BytesView bytes, ThreadPool* pool = nullptr);
  absl::Status Read(uint64_t offset, MutableBytes into, ThreadPool* pool = nullptr) const;

 private:
  friend class SpoolPlace;
  absl::Status Crypt(uint64_t offset, BytesView in, MutableBytes out) const;
  absl::Status WriteOne(uint64_t offset, BytesView bytes);
  absl::Status ReadOne(uint64_t offset, MutableBytes into) const;

  SpoolPlace* place_ = nullptr;
  uint64_t size_ = 0;
  PageBuffer memory_;
  std::shared_ptr<SpoolPlace::Account> account_;  // that gets the memory back, or null
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

// All of a source in a spool. RESOURCE_EXHAUSTED as Create; the source's error; DATA_LOSS if it
// ends early.
absl::StatusOr<Spool> SpoolAll(ByteSource& source, SpoolPlace& place, ThreadPool* pool = nullptr);

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_SPOOL_H_
