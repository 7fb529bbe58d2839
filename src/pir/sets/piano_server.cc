#include "src/pir/sets/piano_server.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/kit/table_server.h"
#include "src/pir/pages.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/stream.h"

namespace shoal::pir::sets {
namespace {

BytesView RecordsAt(const SetShape& shape, BytesView table, uint64_t row, uint64_t rows) {
  return table.subspan(row * shape.record_bytes, rows * shape.record_bytes);
}

// Writes the digest of a chunk among those of all chunks.
void DigestInto(const SetShape& shape, BytesView table, uint32_t chunk, MutableBytes digests) {
  const BytesView records = RecordsAt(shape, table, uint64_t{chunk} << shape.offset_bits,
                                      StreamPieces(shape).ChunkRows(chunk));
  std::ranges::copy(ChunkDigest(chunk, records),
                    digests.begin() + ptrdiff_t{chunk} * ptrdiff_t{sizeof(Digest)});
}

class PianoServer final : public TableServer {
 public:
  // `digests`: of the table's chunks.
  PianoServer(wire::PirSetup setup, const SetShape& shape, ThreadPool* pool, PageBuffer table,
              Bytes digests)
      : TableServer(std::move(setup), std::max<uint64_t>(8, shape.query_bytes()),
                    shape.rows * shape.record_bytes + digests.size(), std::move(table), pool),
        shape_(shape),
        pieces_(shape),
        digests_(std::move(digests)) {}

 protected:
  std::optional<uint64_t> BodyBytes(Role role, uint32_t kind) const override {
    if (role != Role::kSingle || kind > kDigests) return std::nullopt;
    return kind == kQuery ? shape_.query_bytes() : 8;
  }

  absl::StatusOr<Bytes> AnswerTo(uint32_t kind, BytesView body) const override {
    if (kind == kQuery) {
      std::vector<Choice> query(shape_.chunks);
      SHOAL_RETURN_IF_ERROR(DecodeQuery(shape_, body, query));
      Bytes answer(2 * size_t{shape_.record_bytes});
      const MutableBytes both = answer;
      AnswerQuery(shape_, table(), query, both.first(shape_.record_bytes),
                  both.subspan(shape_.record_bytes));
      return answer;
    }
    const uint64_t at = LoadLe<uint64_t>(body.data());
    if (kind == kRecords) {
      if (!pieces_.Begins(at)) {
        return absl::InvalidArgumentError("piano: no piece of the stream begins there");
      }
      const StreamPieces::Piece piece = pieces_.At(shape_.ChunkOf(at), shape_.OffsetOf(at));
      return ToBytes(RecordsAt(shape_, table(), piece.first_row, piece.rows));
    }
    if (at >= digests_.size() || at % kPieceBytes != 0) {
      return absl::InvalidArgumentError("piano: no piece of the digests begins there");
    }
    return ToBytes(BytesView(digests_).subspan(at, pieces_.DigestsPiece(at)));
  }

  void RowsChanged(std::span<const uint64_t> changed_rows, wire::PirSetup& setup) override {
    std::vector<uint32_t> chunks;
    for (const uint64_t row : changed_rows) {
      if (chunks.empty() || chunks.back() != shape_.ChunkOf(row)) {
        chunks.push_back(shape_.ChunkOf(row));
      }
    }
    ParallelForEach(pool(), chunks.size(),
                    [&](size_t i) { DigestInto(shape_, table(), chunks[i], digests_); });
    setup.set_hint_digest(ToString(StreamDigest(shape_, digests_)));
  }

 private:
  const SetShape shape_;
  const StreamPieces pieces_;
  Bytes digests_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> CreatePianoServer(wire::PirSetup setup,
                                                          const Content& content,
                                                          const ServerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const SetShape shape, SetShapeOf(setup));
  // A query reads a row of each chunk: in one place, with its signature.
  SHOAL_ASSIGN_OR_RETURN(PageBuffer table, AllocatePages(shape.rows * shape.record_bytes,
                                                         "piano: the table's records"));
  const MutableBytes records = table;
  Bytes digests(StreamPieces(shape).digests_bytes());
  // In blocks, so that somebody can be told; each chunk is digested while it is in the cache.
  const uint32_t block = std::max<uint32_t>(1, shape.chunks / 64);
  for (uint32_t first = 0; first < shape.chunks; first += block) {
    const uint32_t end = std::min(shape.chunks, first + block);
    ParallelForEach(options.pool, end - first, [&](size_t i) {
      const auto chunk = static_cast<uint32_t>(first + i);
      const uint64_t row = uint64_t{chunk} << shape.offset_bits;
      for (uint64_t k = 0; k < StreamPieces(shape).ChunkRows(chunk); ++k) {
        content.copy(row + k, records.subspan((row + k) * shape.record_bytes, shape.record_bytes));
      }
      DigestInto(shape, records, chunk, digests);
    });
    if (options.progress) options.progress(end, shape.chunks);
  }
  setup.set_hint_digest(ToString(StreamDigest(shape, digests)));
  return std::make_unique<PianoServer>(std::move(setup), shape, options.pool, std::move(table),
                                       std::move(digests));
}

}  // namespace shoal::pir::sets
