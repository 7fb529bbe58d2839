// What a party keeps of a round for its term, on disk (docs/threat-model.md, "Terms").
//
//   term-COUNTER        0600: TermRecord (term.proto), with the keys. Written last, erased first.
//   term-COUNTER.data   0600: the arrays below, encrypted under the record's file key
//
// The arrays, one after the other, little endian:
//   seeds   32 bytes for every used position: its term seed, zeros if the position is dead
//   back     4 bytes for every query that was forwarded, in the order of the message: the number of
//            the used position, or one above all of these if the query was noise; none at the
//            backend
//   rows     4 bytes for every used position, at the backend: the row
//   slots    a bit for every position, used or not, at party 1: whether it was used
//
// The data is in chunks of 64 KiB, each sealed with XChaCha20-Poly1305 under the number of the
// chunk as nonce and the length of all arrays as additional data; a file has a key of its own. So a
// damaged, replaced or truncated file is an error, and is never read as another term.
#ifndef SHOAL_SRC_SERVER_TERM_FILE_H_
#define SHOAL_SRC_SERVER_TERM_FILE_H_

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
  SealedFileWriter(int fd, std::string path, const Seed& key, uint64_t bytes);
  absl::Status Flush(ThreadPool& pool);

  int fd_;
  std::string path_;
  Seed key_;
  uint64_t bytes_;
  uint64_t taken_ = 0, sealed_ = 0;
  SecretVector<uint8_t> waiting_;
  Bytes out_;
};

// Reads such a file anywhere. Thread-safe.
class SealedFile {
 public:
  // DATA_LOSS if the file has not the length that `bytes` give; errors of the file system.
  static absl::StatusOr<std::shared_ptr<SealedFile>> Open(const std::string& path, const Seed& key,
                                                          uint64_t bytes);
  ~SealedFile();
  SealedFile(const SealedFile&) = delete;
  SealedFile& operator=(const SealedFile&) = delete;

  // The range is within the file (checked). DATA_LOSS if it is not what was written.
  absl::Status Read(uint64_t offset, MutableBytes into, ThreadPool* pool = nullptr) const;

 private:
  SealedFile(int fd, std::string path, const Seed& key, uint64_t bytes);
  const int fd_;
  const std::string path_;
  const Seed key_;
  const uint64_t bytes_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_TERM_FILE_H_
