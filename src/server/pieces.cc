#include "src/server/pieces.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/server/offline.h"

namespace shoal::server {
namespace {

constexpr size_t kLength = kSubmissionLengthBytes;

// The bytes of one half of a list of submissions. Each has 2 seals and 2 onions a slot.
uint64_t BytesOfHalf(uint64_t list_bytes, uint64_t slots) {
  const uint64_t onions = 2 * onion::OnionBytes(1) * slots;
  const uint64_t around = kLength + onion::TwoPiecesBytes(0);
  const uint64_t count = onions <= list_bytes ? (list_bytes - onions) / around : 0;
  return count * (kLength + onion::SubmissionBytes(2, 0)) + onions / 2;
}

}  // namespace

PieceSource::PieceSource(std::unique_ptr<ByteSource> submissions, uint64_t slots,
                         sharing::Half half)
    : submissions_(std::move(submissions)),
      half_(half),
      size_(BytesOfHalf(submissions_->size(), slots)) {}

absl::StatusOr<BytesView> PieceSource::Next() {
  if (given_ == size_) return BytesView();
  size_t wanted = kLength;
  for (;;) {
    const size_t more = std::min(rest_.size(), wanted - begun_.size());
    Append(begun_, rest_.first(more));
    rest_ = rest_.subspan(more);
    if (begun_.size() < wanted) {
      SHOAL_ASSIGN_OR_RETURN(rest_, submissions_->Next());
      if (rest_.empty()) return absl::DataLossError("a list of submissions ends too early");
      continue;
    }
    if (wanted > kLength) break;
    const uint32_t bytes = LoadLe<uint32_t>(begun_.data());
    if (onion::TwoPiecesOnions(bytes) == 0) {
      return absl::DataLossError(
          absl::StrCat("a submission of ", bytes, " bytes in a list of those of two pieces"));
    }
    wanted += bytes;
  }
  const size_t each = (begun_.size() - kLength) / 2;
  if (kLength + each > size_ - given_) {
    return absl::DataLossError("a list of submissions has more of them than slots");
  }
  piece_.clear();
  AppendLe(piece_, static_cast<uint32_t>(each));
  Append(piece_,
         BytesView(begun_).subspan(kLength + (half_ == sharing::Half::kA ? 0 : each), each));
  begun_.clear();
  given_ += piece_.size();
  return BytesView(piece_);
}

}  // namespace shoal::server
