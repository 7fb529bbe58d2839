#include "src/pir/sets/stream.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/base/hash.h"

namespace shoal::pir::sets {

StreamPieces::StreamPieces(const SetShape& shape) : shape_(shape) {
  const uint64_t pieces = (shape.chunk_rows() * shape.record_bytes - 1) / kPieceBytes + 1;
  piece_rows_ = std::max<uint64_t>(1, shape.chunk_rows() / pieces);
}

uint64_t StreamPieces::ChunkRows(uint32_t chunk) const {
  return std::min(shape_.chunk_rows(), shape_.rows - (uint64_t{chunk} << shape_.offset_bits));
}

StreamPieces::Piece StreamPieces::At(uint32_t chunk, uint64_t row_of_chunk) const {
  SHOAL_CHECK(chunk < shape_.chunks && row_of_chunk < ChunkRows(chunk));
  const uint64_t left = ChunkRows(chunk) - row_of_chunk;
  return {.chunk = chunk,
          .first_row = (uint64_t{chunk} << shape_.offset_bits) + row_of_chunk,
          .rows = std::min(piece_rows_, left),
          .ends_chunk = left <= piece_rows_};
}

bool StreamPieces::Begins(uint64_t row) const {
  return row < shape_.rows && shape_.OffsetOf(row) % piece_rows_ == 0;
}

uint64_t StreamPieces::DigestsPiece(uint64_t offset) const {
  return std::min(kPieceBytes, digests_bytes() - offset);
}

Digest ChunkDigest(uint32_t chunk, BytesView records) {
  return Transcript("shoal sets chunk v1").U64(chunk).Blob(records).Finish();
}

Digest StreamDigest(const SetShape& shape, BytesView digests) {
  return Transcript("shoal sets stream v1")
      .U64(shape.rows)
      .U64(shape.record_bytes)
      .Blob(digests)
      .Finish();
}

}  // namespace shoal::pir::sets
