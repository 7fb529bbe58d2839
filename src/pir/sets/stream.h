// The stream of a table's records, which a client reads once, chunk by chunk (half_sets.h), in
// pieces; and what says that it is the table's: a digest of every chunk, and one of all of these,
// which is the hint_digest of the setup that all parties signed. So a client checks each chunk when
// it has come, for one pass of a hash, where verifying the signature of every row would cost it a
// hundred times as much.
//
//   digest of chunk c    Transcript("shoal sets chunk v1") over c and the chunk's records as a Blob
//   digest of the stream Transcript("shoal sets stream v1") over rows, record_bytes, and the
//                        digests of all chunks as a Blob
#ifndef SHOAL_SRC_PIR_SETS_STREAM_H_
#define SHOAL_SRC_PIR_SETS_STREAM_H_

#include <cstdint>

#include "src/base/bytes.h"
#include "src/pir/sets/half_sets.h"

namespace shoal::pir::sets {

// A piece of the stream, or of the list of digests, has no more, but for a record that has.
inline constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// How the stream of a table of this shape is cut into pieces: a chunk is one or more pieces with as
// many rows each, but for the last ones.
class StreamPieces {
 public:
  explicit StreamPieces(const SetShape& shape);

  struct Piece {
    uint32_t chunk = 0;
    uint64_t first_row = 0, rows = 0;
    bool ends_chunk = false;
  };
  // The piece of a chunk that begins at this row of it. Checked that there is one.
  Piece At(uint32_t chunk, uint64_t row_of_chunk) const;
  // Whether a piece begins at this row of the table.
  bool Begins(uint64_t row) const;

  uint64_t ChunkRows(uint32_t chunk) const;
  // Of the digests of all chunks, and of a piece of the list from this byte on.
  uint64_t digests_bytes() const { return uint64_t{shape_.chunks} * sizeof(Digest); }
  uint64_t DigestsPiece(uint64_t offset) const;

 private:
  const SetShape shape_;
  uint64_t piece_rows_;
};

Digest ChunkDigest(uint32_t chunk, BytesView records);
Digest StreamDigest(const SetShape& shape, BytesView digests);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_STREAM_H_
