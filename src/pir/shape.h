// How a table becomes a matrix, for both engines. Private to src/pir.
//
// Record r is in column r / k and block r % k, k = rows_per_column: its bytes stand one below the
// other from matrix row (r % k) * record_bytes on.
#ifndef SHOAL_SRC_PIR_SHAPE_H_
#define SHOAL_SRC_PIR_SHAPE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/pir/byte_matrix.h"
#include "src/pir/engine.h"
#include "src/pir/lwe.h"
#include "src/pir/refresh.h"

namespace shoal::pir {

// Answers drop this many bits: 12 of 32 are sent. An error of 2^19 where 2^23 is the room.
inline constexpr uint32_t kAnswerBitsDropped = 20;

// Checks ranges that do not depend on the engine, of a setup or a content.
absl::Status CheckShape(const wire::PirSetup& setup);

// `divisor`: how many times fewer rows of the matrix than a square would have.
wire::PirSetup MakeShape(Engine engine, const Content& content, const ServerOptions& options,
                         uint64_t divisor);

inline uint64_t MatrixRows(const wire::PirSetup& setup) {
  return setup.rows_per_column() * setup.record_bytes();
}

// Blocks of each of so many chunks of the table; the last ones may have fewer, or none.
inline uint64_t ChunkBlocks(const wire::PirSetup& setup, uint64_t chunks) {
  return (setup.rows_per_column() + chunks - 1) / chunks;
}

// The table as such a matrix. RESOURCE_EXHAUSTED as AllocatePages.
absl::StatusOr<ByteMatrix> LoadMatrix(const Content& content, const wire::PirSetup& setup,
                                      ThreadPool* pool);

// RESOURCE_EXHAUSTED unless there is memory for what of a server is not there yet.
absl::Status CheckServerMemory(const Sizes& sizes, const ServerOptions& options,
                               absl::string_view what);

// The options' product, taken out of them, or the matrix times the public matrix of `seed`.
// INVALID_ARGUMENT for a product of another length.
absl::StatusOr<std::vector<uint32_t>> ProductOf(const ByteMatrix& matrix, const Digest& seed,
                                                PackedVectors& room, ServerOptions& options);

// Copies setup's hint fields from the hint.
void SetHint(BytesView hint, wire::PirSetup& setup);

// Queries for these rows, as far as their header. OUT_OF_RANGE as Client::Ask.
absl::StatusOr<std::vector<Asked>> BeginQueries(const wire::PirSetup& setup,
                                                std::span<const uint64_t> rows);
// As Server::Answer; `id` is the setup's.
absl::Status CheckQuery(const wire::PirSetup& setup, const Digest& id, uint64_t query_bytes,
                        BytesView query);
// Makes words [first, first + packed.length()) of a checked query vector `index`.
void SetQuery(BytesView query, uint64_t first, uint64_t index, PackedVectors& packed);
// As Server::AnswerChunks, of one level: the product of chunk i of the matrix's rows and the words of
// query i from its first on, empty where a chunk is. All queries are checked first.
absl::StatusOr<std::vector<std::vector<uint32_t>>> MultiplyChunks(
    const wire::PirSetup& setup, const Digest& id, uint64_t query_bytes,
    std::span<const BytesView> queries, const Kernel& kernel, const ByteMatrix& matrix,
    ThreadPool* pool);

// CheckRefresh, and INVALID_ARGUMENT for a row that neither epoch has.
absl::Status CheckRefreshRows(const wire::PirSetup& setup, const Content& content,
                              std::span<const uint64_t> changed_rows);

// What Apply asks of a delta: it starts at `setup`, and leads to a table of the same shape.
absl::Status CheckDelta(const wire::PirSetup& setup, const DeltaView& delta);

// Where the records of `changed_rows` stand in the matrix, and what stands there in `content`:
// zeros for a row that is no more. All three outlive it.
Runs RunsOf(const wire::PirSetup& setup, const Content& content,
            std::span<const uint64_t> changed_rows);

// None where the changes are not told.
std::optional<Delta> DeltaOf(const Digest& from, const wire::PirSetup& to,
                             std::optional<Bytes> changes);

// The setup of the new epoch, but for the hint.
void SetEpoch(const Content& content, wire::PirSetup& setup);

// The client's product of the public matrix and its secrets.
class PublicProduct {
 public:
  // `columns`: a multiple of kGroupColumns.
  PublicProduct(const Digest& seed, uint64_t columns, const ClientOptions& options);

  // For each of the wanted columns A secret + error + 2^24 * (1 at the column), drawn from `random`:
  // `secret` becomes kDimension words, `query` gets columns words appended. No branch and no
  // address depends on a column, a secret or an error (constant_time_main.cc). The matrix is expanded
  // once for all of them, and never kept: reading it from memory would take about as long.
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

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_SHAPE_H_
