#include "src/pir/sets/piano_server.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/pages.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/row_changes.h"
#include "src/pir/sets/stream.h"

namespace shoal::pir::sets {
namespace {

// A delta that is longer than this part of the stream is not worth it.
constexpr uint64_t kMaxDeltaPart = 2;

class PianoServer final : public Server {
 public:
  PianoServer(wire::PirSetup setup, const SetShape& shape, ThreadPool* pool, PageBuffer records)
      : setup_(std::move(setup)),
        shape_(shape),
        pieces_(shape),
        pool_(pool),
        records_(std::move(records)),
        digests_(pieces_.digests_bytes()) {}

  void Load(const Content& content, const std::function<void(uint64_t, uint64_t)>& progress) {
    // In blocks, so that somebody can be told.
    const uint32_t block = std::max<uint32_t>(1, shape_.chunks / 64);
    for (uint32_t first = 0; first < shape_.chunks; first += block) {
      const uint32_t end = std::min(shape_.chunks, first + block);
      ForEach(end - first, [&](size_t i) {
        const auto chunk = static_cast<uint32_t>(first + i);
        const uint64_t row = uint64_t{chunk} << shape_.offset_bits;
        for (uint64_t k = 0; k < pieces_.ChunkRows(chunk); ++k) {
          content.copy(row + k, RecordAt(row + k));
        }
        DigestChunk(chunk);
      });
      if (progress) progress(end, shape_.chunks);
    }
    Sign();
  }

  const wire::PirSetup& setup() const override { return setup_; }
  uint64_t max_request_bytes() const override {
    return sizeof(Digest) + std::max<uint64_t>(8, shape_.query_bytes());
  }

  std::vector<absl::StatusOr<Bytes>> Answer(Role role,
                                            std::span<const RequestView> requests) const override {
    std::vector<absl::StatusOr<Bytes>> answers(requests.size());
    ForEach(requests.size(), [&](size_t i) { answers[i] = AnswerOne(role, requests[i]); });
    return answers;
  }

  absl::StatusOr<double> RefreshShare(const Content& content,
                                      std::span<const uint64_t> changed_rows) const override {
    SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
    return static_cast<double>(changed_rows.size()) / static_cast<double>(shape_.rows);
  }

  absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                               std::span<const uint64_t> changed_rows) override {
    SHOAL_RETURN_IF_ERROR(CheckNext(content, changed_rows));
    std::optional<Bytes> changes = TakeChangedRows(
        changed_rows, shape_.record_bytes, setup_.hint_bytes() / kMaxDeltaPart,
        [this](uint64_t row) { return RecordAt(row); }, content.copy);
    std::vector<uint32_t> chunks;
    for (const uint64_t row : changed_rows) {
      if (chunks.empty() || chunks.back() != shape_.ChunkOf(row)) {
        chunks.push_back(shape_.ChunkOf(row));
      }
    }
    const Digest from = id_;
    ForEach(chunks.size(), [&](size_t i) { DigestChunk(chunks[i]); });
    setup_.set_epoch(content.epoch);
    setup_.set_manifest_digest(ToString(content.manifest_digest));
    Sign();
    if (!changes.has_value()) return std::optional<Delta>();
    return std::optional<Delta>({.from = from, .to = setup_, .changes = *std::move(changes)});
  }

 private:
  void ForEach(size_t count, const std::function<void(size_t)>& body) const {
    if (pool_ == nullptr || count < 2) {
      for (size_t i = 0; i < count; ++i) body(i);
      return;
    }
    pool_->ParallelFor(count, 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) body(i);
    });
  }
  MutableBytes RecordAt(uint64_t row) {
    return MutableBytes(records_).subspan(row * shape_.record_bytes, shape_.record_bytes);
  }
  BytesView RecordsAt(uint64_t row, uint64_t rows) const {
    return BytesView(records_).subspan(row * shape_.record_bytes, rows * shape_.record_bytes);
  }
  void DigestChunk(uint32_t chunk) {
    const Digest digest = ChunkDigest(
        chunk, RecordsAt(uint64_t{chunk} << shape_.offset_bits, pieces_.ChunkRows(chunk)));
    std::ranges::copy(digest, digests_.begin() + ptrdiff_t{chunk} * ptrdiff_t{sizeof digest});
  }
  void Sign() {
    setup_.set_hint_digest(ToString(StreamDigest(shape_, digests_)));
    id_ = SetupId(setup_);
  }

  absl::Status CheckNext(const Content& content, std::span<const uint64_t> changed_rows) const {
    if (!std::ranges::equal(content.table_id, AsBytes(setup_.table_id())) ||
        content.rows != shape_.rows || content.record_bytes != shape_.record_bytes ||
        content.epoch <= setup_.epoch()) {
      return absl::InvalidArgumentError("piano: no later epoch of this table in this shape");
    }
    return CheckChangedRows(changed_rows, shape_.rows);
  }

  absl::StatusOr<Bytes> AnswerOne(Role role, const RequestView& request) const {
    if (role != Role::kSingle || request.kind > kDigests || request.count != 1) {
      return absl::InvalidArgumentError("piano: no request of this engine");
    }
    const uint64_t rest = request.kind == kQuery ? shape_.query_bytes() : 8;
    if (request.body.size() != sizeof(Digest) + rest) {
      return absl::InvalidArgumentError(absl::StrCat("piano: a request of ", request.body.size(),
                                                     " bytes instead of ", sizeof(Digest) + rest));
    }
    if (!std::ranges::equal(request.body.first(sizeof(Digest)), id_)) {
      return absl::FailedPreconditionError(
          "piano: a request for another setup: the table has another epoch");
    }
    const BytesView body = request.body.subspan(sizeof(Digest));
    if (request.kind == kQuery) {
      std::vector<Choice> query(shape_.chunks);
      SHOAL_RETURN_IF_ERROR(DecodeQuery(shape_, body, query));
      Bytes answer(2 * size_t{shape_.record_bytes});
      const MutableBytes both = answer;
      AnswerQuery(shape_, records_, query, both.first(shape_.record_bytes),
                  both.subspan(shape_.record_bytes));
      return answer;
    }
    const uint64_t at = LoadLe<uint64_t>(body.data());
    if (request.kind == kRecords) {
      if (!pieces_.Begins(at)) {
        return absl::InvalidArgumentError("piano: no piece of the stream begins there");
      }
      const StreamPieces::Piece piece = pieces_.At(shape_.ChunkOf(at), shape_.OffsetOf(at));
      return ToBytes(RecordsAt(piece.first_row, piece.rows));
    }
    if (at >= digests_.size() || at % kPieceBytes != 0) {
      return absl::InvalidArgumentError("piano: no piece of the digests begins there");
    }
    return ToBytes(BytesView(digests_).subspan(at, pieces_.DigestsPiece(at)));
  }

  wire::PirSetup setup_;
  const SetShape shape_;
  const StreamPieces pieces_;
  ThreadPool* const pool_;
  // A copy of the table, as a query reads a row of each chunk: in one place, with its signature.
  PageBuffer records_;
  Bytes digests_;
  Digest id_ = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> CreatePianoServer(wire::PirSetup setup,
                                                          const Content& content,
                                                          const ServerOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(const SetShape shape, SetShapeOf(setup));
  SHOAL_ASSIGN_OR_RETURN(PageBuffer records, AllocatePages(shape.rows * shape.record_bytes,
                                                           "piano: the table's records"));
  auto server =
      std::make_unique<PianoServer>(std::move(setup), shape, options.pool, std::move(records));
  server->Load(content, options.progress);
  return server;
}

}  // namespace shoal::pir::sets
