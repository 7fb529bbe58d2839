// A long byte string that comes in pieces: from the network, a file, or a computation that makes it
// as it is asked for.
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

  // Of the whole string; known from the start.
  virtual uint64_t size() const = 0;

  // The next piece, of any length but none; empty once there were `size` bytes. Valid until the
  // next call. After an error there is nothing more to be had.
  virtual absl::StatusOr<BytesView> Next() = 0;
};

// Bytes that are there as a whole.
class BytesSource final : public ByteSource {
 public:
  explicit BytesSource(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<BytesView> Next() override;

 private:
  const Bytes bytes_;
  uint64_t given_ = 0;
};

// All of it. What the source's error is.
absl::StatusOr<Bytes> ReadAll(ByteSource& source);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_BYTE_SOURCE_H_
