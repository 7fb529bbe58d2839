// A file that holds a batch's answers from the moment they are fetched until they are verified.
// With it answers need not be in memory, all of them are there before the client looks at the first
// one, and none is fetched twice if the client is interrupted.
//
// The answers are kept under their masks and with their tags, so the file tells nothing without the
// round's seed, which is in the client's state. The file is cut into pieces,
//
//   piece p, at p * (answers of a piece * tagged_bytes + 32):
//     its answers | Transcript("shoal client answers v1") over round id (Blob), p, tagged_bytes,
//                   the answers (Blob)
//
// and a piece that an interrupted process, a full disk or a power cut left incomplete counts as
// missing.
#ifndef SHOAL_SRC_CLIENT_ANSWER_SPOOL_H_
#define SHOAL_SRC_CLIENT_ANSWER_SPOOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"

namespace shoal::client {

class AnswerSpool {
 public:
  // RESOURCE_EXHAUSTED if the file system of `path` has fewer than `bytes` bytes left; OK if it
  // does not say. To be called before anything is charged.
  static absl::Status CheckRoom(const std::string& path, uint64_t bytes);

  // Opens a spool for `count` answers, with the pieces that an earlier run put into the file. An
  // empty `path` means an unnamed file in $TMPDIR or /tmp. PERMISSION_DENIED: others may read the
  // file, or it cannot be made. RESOURCE_EXHAUSTED: no room.
  static absl::StatusOr<std::unique_ptr<AnswerSpool>> Open(const std::string& path,
                                                           const Digest& round_id, size_t count,
                                                           size_t tagged_bytes, size_t piece_bytes);
  ~AnswerSpool();
  AnswerSpool(const AnswerSpool&) = delete;
  AnswerSpool& operator=(const AnswerSpool&) = delete;

  size_t count() const { return count_; }
  // Answers in a piece; the last piece may have fewer.
  size_t per_piece() const { return per_piece_; }
  size_t pieces() const { return (count_ + per_piece_ - 1) / per_piece_; }
  size_t FirstOf(size_t piece) const { return piece * per_piece_; }
  size_t CountOf(size_t piece) const;

  bool Has(size_t piece) const { return has_[piece]; }
  bool complete() const { return missing_ == 0; }

  // Writes a piece of CountOf(piece) answers. Threads may put different pieces at the same time.
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Put(size_t piece, BytesView answers);

  // Reads answers from number `first` on; their pieces must all be there. Thread-safe.
  absl::Status Read(size_t first, MutableBytes answers) const;

 private:
  AnswerSpool(std::string path, int fd, const Digest& round_id, size_t count, size_t tagged_bytes,
              size_t piece_bytes);
  uint64_t OffsetOf(size_t piece) const;
  Digest DigestOf(size_t piece, BytesView answers) const;
  absl::Status FindPieces();
  absl::Status ReadAt(uint64_t offset, MutableBytes bytes) const;
  absl::Status WriteAt(uint64_t offset, BytesView bytes) const;

  const std::string path_;
  const int fd_;
  const Digest round_id_;
  const size_t count_, tagged_bytes_, per_piece_;
  std::vector<uint8_t> has_;  // bytes, not bits, as threads write different ones
  std::atomic<size_t> missing_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ANSWER_SPOOL_H_
