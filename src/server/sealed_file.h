// A file of secrets that are too many for memory: written once, from the beginning to the end, and
// read anywhere.
//
// The bytes are in chunks of 4 KiB, each sealed as machines::ChunkSeal seals, under its number. The
// key is derived from the caller's, which is used for one file alone, and the length of all bytes.
// So a damaged, truncated or replaced file is an error. The length of the file tells that of the
// bytes.
#ifndef SHOAL_SRC_SERVER_SEALED_FILE_H_
#define SHOAL_SRC_SERVER_SEALED_FILE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"

namespace shoal::server {

// Encrypts a byte string of known length into a new file, in pieces. Thread-compatible.
class SealedFileWriter {
 public:
  // Replaces what is at `path`. Errors of the file system.
  static absl::StatusOr<SealedFileWriter> Create(const std::string& path, const Seed& key,
                                                 uint64_t bytes);
  SealedFileWriter(SealedFileWriter&& other) noexcept;
  SealedFileWriter& operator=(SealedFileWriter&&) = delete;
  ~SealedFileWriter();

  // No more than the announced bytes in all (checked). Errors of the file system.
  absl::Status Write(BytesView piece, ThreadPool& pool);
  // Makes the file durable, once all has been written (checked), but not its name.
  absl::Status Finish();

 private:
  SealedFileWriter(int fd, std::string path, Seed key, uint64_t bytes);
  // Seals and writes what waits, as whole chunks but for the last one of the file.
  absl::Status Flush(ThreadPool& pool);

  int fd_;
  std::string path_;
  Seed key_;
  uint64_t bytes_;
  uint64_t taken_ = 0;
  uint64_t chunks_ = 0;  // written
  SecretVector<uint8_t> waiting_;
  Bytes sealed_;
};

// Reads such a file anywhere. Thread-safe.
class SealedFile {
 public:
  static constexpr uint64_t kChunkBytes = 4096;
  // The length of the file of so many bytes.
  static uint64_t FileBytes(uint64_t bytes);

  // DATA_LOSS if the file has not the length that `bytes` give; errors of the file system.
  static absl::StatusOr<std::shared_ptr<SealedFile>> Open(const std::string& path, const Seed& key,
                                                          uint64_t bytes);
  ~SealedFile();
  SealedFile(const SealedFile&) = delete;
  SealedFile& operator=(const SealedFile&) = delete;

  // The range is within the file (checked). DATA_LOSS if it is not what was written.
  absl::Status Read(uint64_t offset, MutableBytes into, ThreadPool* pool = nullptr) const;
  // Has the system fetch bytes from the disk that will be read next, while others are worked on.
  // The range may end after the file.
  void WillRead(uint64_t offset, uint64_t bytes) const;

 private:
  SealedFile(int fd, std::string path, Seed key, uint64_t bytes);
  absl::Status ReadSealed(uint64_t at, MutableBytes into) const;

  const int fd_;
  const std::string path_;
  const Seed key_;
  const uint64_t bytes_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_SEALED_FILE_H_
