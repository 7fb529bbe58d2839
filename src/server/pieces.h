// The halves of clients' submissions in a round of two tiers (docs/protocol.md, section 11): the
// journal keeps submissions as they came, piece A before piece B, and each half takes its pieces.
#ifndef SHOAL_SRC_SERVER_PIECES_H_
#define SHOAL_SRC_SERVER_PIECES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/sharing/halves.h"

namespace shoal::server {

// The pieces of one half, each after its length, from a list of submissions of two pieces, each
// after its length. Copies a submission at a time.
class PieceSource final : public ByteSource {
 public:
  // `slots`: of all submissions in the list, which together with its bytes says how many there are.
  PieceSource(std::unique_ptr<ByteSource> submissions, uint64_t slots, sharing::Half half);

  uint64_t size() const override { return size_; }
  // DATA_LOSS if the list is none of such submissions; errors of the list.
  absl::StatusOr<BytesView> Next() override;

 private:
  const std::unique_ptr<ByteSource> submissions_;
  const sharing::Half half_;
  const uint64_t size_;
  uint64_t given_ = 0;
  BytesView rest_;  // of the list's latest piece
  Bytes begun_;     // a submission with its length, as far as it has come
  Bytes piece_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_PIECES_H_
