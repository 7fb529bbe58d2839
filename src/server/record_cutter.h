// Cuts a stream of bytes, received in pieces of any length, into records of one size.
#ifndef SHOAL_SRC_SERVER_RECORD_CUTTER_H_
#define SHOAL_SRC_SERVER_RECORD_CUTTER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"

namespace shoal::server {

// Copies only records that span pieces. Thread-compatible.
class RecordCutter {
 public:
  RecordCutter(uint64_t records, size_t record_bytes)
      : record_bytes_(record_bytes), left_bytes_(records * record_bytes) {}
  // For so many bytes in all: the last record may be shorter.
  static RecordCutter OfBytes(uint64_t bytes, size_t record_bytes) {
    RecordCutter cutter(0, record_bytes);
    cutter.left_bytes_ = bytes;
    return cutter;
  }

  // Calls `take(BytesView records)` -> absl::Status with one or more whole records at a time, in
  // order, until less than a record is left of the piece. INVALID_ARGUMENT, beginning with `what`,
  // if the piece goes beyond the last record; nothing of it is then taken. Errors of `take`.
  template <typename TakeRecords>
  absl::Status Cut(BytesView piece, absl::string_view what, const TakeRecords& take) {
    if (piece.size() > left_bytes_) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": more bytes than were announced"));
    }
    left_bytes_ -= piece.size();
    if (!begun_.empty()) {
      const size_t missing = std::min(piece.size(), record_bytes_ - begun_.size());
      begun_.insert(begun_.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(missing));
      piece = piece.subspan(missing);
      if (begun_.size() < record_bytes_ && left_bytes_ > 0) return absl::OkStatus();
      SHOAL_RETURN_IF_ERROR(take(BytesView(begun_)));
      begun_.clear();
    }
    const size_t whole = piece.size() / record_bytes_ * record_bytes_;
    if (whole > 0) SHOAL_RETURN_IF_ERROR(take(piece.first(whole)));
    piece = piece.subspan(whole);
    if (piece.empty()) return absl::OkStatus();
    if (left_bytes_ == 0) return take(piece);
    begun_.insert(begun_.end(), piece.begin(), piece.end());
    return absl::OkStatus();
  }

  // Whether all records were cut.
  bool complete() const { return left_bytes_ == 0; }

 private:
  size_t record_bytes_;
  uint64_t left_bytes_;          // not yet received
  SecretVector<uint8_t> begun_;  // the received part of the next record
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_RECORD_CUTTER_H_
