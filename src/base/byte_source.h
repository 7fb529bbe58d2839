// A long byte string that comes in pieces: from the network, from a file, or from a computation
// that makes each piece when it is asked for.
#ifndef SHOAL_SRC_BASE_BYTE_SOURCE_H_
#define SHOAL_SRC_BASE_BYTE_SOURCE_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"

namespace shoal {

// Thread-compatible.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Bytes of the whole string; known from the start.
  virtual uint64_t size() const = 0;

  // The next piece, at least one byte long; empty once `size` bytes have been handed out. A piece
  // is valid until the next call. After an error, do not call again.
  virtual absl::StatusOr<BytesView> Next() = 0;
};

// A source over bytes that are in memory already.
class BytesSource final : public ByteSource {
 public:
  explicit BytesSource(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<BytesView> Next() override;

 private:
  const Bytes bytes_;
  uint64_t given_ = 0;
};

// A source over bytes that somebody else keeps until it is gone; one piece.
class ViewSource final : public ByteSource {
 public:
  explicit ViewSource(BytesView bytes) : bytes_(bytes) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<BytesView> Next() override { return std::exchange(next_, {}); }

 private:
  const BytesView bytes_;
  BytesView next_ = bytes_;
};

// Reads the whole string. Returns the source's error if there is one.
absl::StatusOr<Bytes> ReadAll(ByteSource& source);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_BYTE_SOURCE_H_
