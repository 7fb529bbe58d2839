// How a table becomes a matrix, for both engines. Private to src/pir.
//
// Record r is in column r / k and block r % k, k = rows_per_column: its bytes are in consecutive
// rows of the matrix, from row (r % k) * record_bytes on.
#ifndef SHOAL_SRC_PIR_LWE_SHAPE_H_
#define SHOAL_SRC_PIR_LWE_SHAPE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/refresh.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::pir::lwe {

// Answers drop this many bits, so that 12 of 32 are sent. That adds an error of at most 2^19, where
// 2^23 would be too much.
inline constexpr uint32_t kAnswerBitsDropped = 20;

// Checks ranges that do not depend on the engine, of a setup or a content.
absl::Status CheckShape(const wire::PirSetup& setup);

// The options' shape. Where that has no rows_per_column, the matrix has `divisor` times fewer rows
// than a square one would have, which makes the fewest bytes; where it has no columns, as many as
// the rows need. More leave room: a server that was refreshed keeps those it had.
wire::PirSetup MakeShape(absl::string_view engine, const Content& content,
                         const ServerOptions& options, uint64_t divisor);

inline uint64_t MatrixRows(const wire::PirSetup& setup) {
  return setup.rows_per_column() * setup.record_bytes();
}

// Blocks in each chunk if the table is cut into `chunks` chunks. The last chunks may have fewer, or
// none.
inline uint64_t ChunkBlocks(const wire::PirSetup& setup, uint64_t chunks) {
  return (setup.rows_per_column() + chunks - 1) / chunks;
}

// Loads the table into such a matrix. RESOURCE_EXHAUSTED as AllocatePages.
absl::StatusOr<ByteMatrix> LoadMatrix(const Content& content, const wire::PirSetup& setup,
                                      ThreadPool* pool);

// RESOURCE_EXHAUSTED unless there is memory for the parts of a server that have not been made yet.
absl::Status CheckServerMemory(const Sizes& sizes, const ServerOptions& options,
                               absl::string_view what);

// The options' product, taken out of them, or the matrix times the public matrix of `seed`.
// INVALID_ARGUMENT for a product of another length.
absl::StatusOr<std::vector<uint32_t>> ProductOf(const ByteMatrix& matrix, const Digest& seed,
                                                PackedVectors& room, ServerOptions& options);

// Copies setup's hint fields from the hint.
void SetHint(BytesView hint, wire::PirSetup& setup);

// Begins queries for these rows: writes their headers. OUT_OF_RANGE as Client::Ask.
absl::StatusOr<std::vector<Asked>> BeginQueries(const wire::PirSetup& setup,
                                                std::span<const uint64_t> rows);
// Sets vector `index` to words [first, first + packed.length()) of a query that has been checked.
void SetQuery(BytesView query, uint64_t first, uint64_t index, PackedVectors& packed);
// The products of Server::AnswerChunks, for one level: that of chunk i of the matrix's rows with
// the words of query i from word `first` on. The product is empty if the chunk is. All queries are
// checked first.
absl::StatusOr<std::vector<std::vector<uint32_t>>> MultiplyChunks(
    const wire::PirSetup& setup, const Digest& id, uint64_t query_bytes,
    std::span<const BytesView> queries, const Kernel& kernel, const ByteMatrix& matrix,
    ThreadPool* pool);

// The chunk of a row, in a batch of `chunks` queries (at least 1).
inline uint64_t ChunkOf(const wire::PirSetup& setup, uint64_t chunks, uint64_t row) {
  return row % setup.rows_per_column() / ChunkBlocks(setup, chunks);
}

// Whether a server of `setup` can be refreshed to this content (kit/checks.h): its matrix has the
// room.
absl::Status CheckRefreshRows(const wire::PirSetup& setup, const Content& content,
                              std::span<const uint64_t> changed_rows);

// Checks a delta for Advance: it must start at `setup` and lead to a table of the same shape, by
// the engine's own `sizes_of` (SimplePirSizes).
absl::Status CheckDelta(const wire::PirSetup& setup, const DeltaView& delta,
                        absl::StatusOr<Sizes> (*sizes_of)(const wire::PirSetup& shape));

// The runs of the records of `changed_rows` in the matrix, with their bytes in `content`: zeros for
// a row that no longer exists. All three arguments must outlive the result.
Runs RunsOf(const wire::PirSetup& setup, const Content& content,
            std::span<const uint64_t> changed_rows);

// Nothing if `changes` is nothing.
std::optional<Delta> DeltaOf(const Digest& from, const wire::PirSetup& to,
                             std::optional<Bytes> changes);

// The client's product of the public matrix and its secrets.
class PublicProduct {
 public:
  // `columns`: a multiple of kGroupColumns.
  PublicProduct(const Digest& seed, uint64_t columns, const ClientOptions& options);

  // Computes A secret + error + 2^24 * (1 at the column) for each of the wanted columns, with
  // secret and error drawn from `random`. `secret` becomes kDimension words; `columns` words are
  // appended to `query`. No branch and no address depends on a column, a secret or an error
  // (constant_time_main.cc). The matrix is expanded once for all of them, and never kept: reading
  // it from memory would take about as long.
  struct Wanted {
    uint64_t column = 0;  // below columns
    SecretVector<int32_t>* secret = nullptr;
    Bytes* query = nullptr;
  };
  void Encrypt(std::span<const Wanted> wanted, RandomSource& random) const;

 private:
  Digest seed_ = {};
  uint64_t columns_ = 0;
  const Kernel* kernel_ = nullptr;
  ThreadPool* pool_ = nullptr;
};

const Kernel& KernelOr(const Kernel* kernel);

// The byte that v = 2^24 * (byte - 128) + error stands for.
inline uint8_t DecodeByte(uint32_t v) {
  return static_cast<uint8_t>(((v + kDelta / 2) >> kDeltaBits) + kMaxPlaintext);
}

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_SHAPE_H_
