// Byte strings that pass in parts: joined from parts that come at the same time from several
// senders, and cut into parts for several receivers.
#ifndef SHOAL_SRC_SERVER_PART_STREAMS_H_
#define SHOAL_SRC_SERVER_PART_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/storage/spool.h"

namespace shoal::server {

// A string that comes in parts, each in its order, several at a time, and is read as it comes.
// Thread-compatible.
class PartedSource {
 public:
  struct Piece {
    uint64_t offset;  // in the string
    BytesView bytes;  // of one part; empty once `size` bytes have been handed out
  };
  virtual ~PartedSource() = default;
  virtual uint64_t size() const = 0;
  // The lengths of the parts, in the order of the string; they add up to size().
  virtual std::span<const uint64_t> part_bytes() const = 0;
  // The next bytes of any part that has some. Valid until the next call. After an error, do not
  // call again.
  virtual absl::StatusOr<Piece> NextOfAny() = 0;
};
// Reads the whole string.
absl::StatusOr<Bytes> ReadAll(PartedSource& source);

// A string that comes in one part.
class OnePart final : public PartedSource {
 public:
  explicit OnePart(std::unique_ptr<ByteSource> whole)
      : whole_(std::move(whole)), bytes_(whole_->size()) {}
  uint64_t size() const override { return bytes_; }
  std::span<const uint64_t> part_bytes() const override { return {&bytes_, 1}; }
  absl::StatusOr<Piece> NextOfAny() override;

 private:
  const std::unique_ptr<ByteSource> whole_;
  const uint64_t bytes_;
  uint64_t given_ = 0;
};

// Takes the parts of one string at the same time, and gives the string out while it comes. One
// thread reads, one for each part writes.
//
// In order, by Next: who sends never waits for another sender, nor for who reads. What cannot be
// given out yet lies in spools, of the string's size at most; what Next waits for is handed over at
// once.
//
// As it comes, by NextOfAny: who sends waits until its bytes have been read, each in its turn, and
// nothing lies in spools. But as long as nobody has begun to read, which may be because of those
// who are to send after this one, who sends waits for a moment only, and then its bytes go to
// spools.
class PartJoin final : public ByteSource {
 public:
  class Part;
  enum class Reading { kInOrder, kAsItComes };

  // Of `bytes` in all. `spools` must outlive this object and its parts. Once `over`, asked every
  // tenth of a second while Next waits, returns an error, Next returns that; may be null.
  PartJoin(uint64_t bytes, SpoolPlace* spools, std::function<absl::Status()> over = nullptr,
           Reading reading = Reading::kInOrder);
  ~PartJoin() override;

  // The part of `bytes` from `offset` on: parts must lie within the string and apart from each
  // other (checked). If memory lacks for all of it, reserves room on the disk: errors of
  // SpoolPlace::Create; that of Fail. Thread-safe.
  absl::StatusOr<std::unique_ptr<Part>> Begin(uint64_t offset, uint64_t bytes);

  // From now on Next and the parts return this error, if there was none before; the spools are
  // freed, also of parts that are kept. Thread-safe.
  void Fail(const absl::Status& error);
  // The same in a moment, as Fail, which must follow, frees the spools. False if Next has given all
  // bytes already, and who reads will not hear of it. Thread-safe.
  bool Stop(const absl::Status& error);

  uint64_t size() const override { return size_; }
  // Waits for the bytes, at most a megabyte. Only in order (checked). Errors: that of `over` or of
  // Fail; of the spools; UNAVAILABLE if a part ended early.
  absl::StatusOr<BytesView> Next() override;
  // The same of any part, at most a megabyte or what it took at once; only as it comes (checked).
  absl::StatusOr<PartedSource::Piece> NextOfAny();
  // To be called by who reads, which then reads no more. Fails the join.
  void Drop();

 private:
  struct State;
  absl::StatusOr<BytesView> Spooled(uint64_t at, uint64_t bytes);
  const uint64_t size_;
  const std::function<absl::Status()> over_;
  const std::shared_ptr<State> state_;
  Bytes piece_;
  std::shared_ptr<Spool> held_;  // has what Next returned last, if that is in no piece_
};

// Thread-compatible. A part that is destroyed before it is complete has failed.
class PartJoin::Part {
 public:
  ~Part();
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  // Takes the next bytes. Waits where the join says so. INVALID_ARGUMENT beyond the end of the
  // part; errors of the spool; the error that ended the join.
  absl::Status Take(BytesView piece);
  bool complete() const;

 private:
  friend class PartJoin;
  struct Content;
  // Returns how much of the piece was put. `spool` is that of the next byte, null if it is the
  // first one there.
  absl::StatusOr<size_t> PutToSpool(uint64_t written, BytesView piece,
                                    std::shared_ptr<Spool> spool);
  Part(std::shared_ptr<State> join, std::shared_ptr<Content> content)
      : join_(std::move(join)), content_(std::move(content)) {}
  const std::shared_ptr<State> join_;
  const std::shared_ptr<Content> content_;
};

// Cuts a source into parts of these sizes, which add up to its own (checked), one after the other.
// Calls ready(i, part) once part i - 1 has been read to its end, which Next says by an empty piece:
// so whoever must read in order never holds more than a piece. If a part is destroyed before that,
// ready(j, UNAVAILABLE) follows for all later ones. `ready` is called on the thread that reads or
// destroys the part before, and for part 0 on the caller's; each is called once. A part may be
// given to another thread.
void SplitSource(
    std::unique_ptr<ByteSource> whole, std::vector<uint64_t> sizes,
    std::function<void(size_t part, absl::StatusOr<std::unique_ptr<ByteSource>>)> ready);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_PART_STREAMS_H_
