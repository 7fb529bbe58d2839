#include "src/base/byte_source.h"

#include <algorithm>

#include "src/base/status_macros.h"

namespace shoal {
namespace {

// A piece stays in the cache while it is worked on.
constexpr size_t kPieceBytes = 1 << 20;

}  // namespace

absl::StatusOr<BytesView> BytesSource::Next() {
  const BytesView rest = BytesView(bytes_).subspan(given_);
  const BytesView piece = rest.first(std::min(rest.size(), kPieceBytes));
  given_ += piece.size();
  return piece;
}

absl::StatusOr<Bytes> ReadAll(ByteSource& source) {
  Bytes all;
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, source.Next());
    if (piece.empty()) return all;
    Append(all, piece);
  }
}

}  // namespace shoal
