#include "src/pir/lwe/shape.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/gaussian.h"
#include "src/storage/memory.h"

namespace shoal::pir::lwe {
namespace {

constexpr uint64_t kMaxRows = uint64_t{1} << 36;
// The most columns of a matrix, and the most records in a column.
constexpr uint64_t kMaxSide = uint64_t{1} << 31;
constexpr uint64_t kMaxMatrixBytes = uint64_t{1} << 42;
// Beyond this the matrix gets more rows instead of columns: with more columns hints could drop
// fewer bits, and at some point answers could not be decrypted.
constexpr uint64_t kMostColumns = uint64_t{1} << 17;
// Columns of a query that are made at a time: the sums, and the rows that are expanded for several
// queries, stay in the first two caches.
constexpr uint64_t kTileColumns = 1024;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("pir setup: ", what));
}

}  // namespace

const Kernel& KernelOr(const Kernel* kernel) {
  return kernel == nullptr ? FastestKernel() : *kernel;
}

absl::Status CheckShape(const wire::PirSetup& setup) {
  if (setup.table_id().size() != 32) return Bad("table_id must have 32 bytes");
  if (setup.manifest_digest().size() != 32) return Bad("manifest_digest must have 32 bytes");
  if (!setup.shape().empty()) return Bad("shape is another family's");
  if (setup.rows() == 0 || setup.rows() > kMaxRows) {
    return Bad(absl::StrFormat("rows must be in [1, %d], got %d", kMaxRows, setup.rows()));
  }
  if (setup.record_bytes() == 0 || setup.record_bytes() > kMaxRecordBytes) {
    return Bad(absl::StrFormat("record_bytes must be in [1, %d], got %d", kMaxRecordBytes,
                               setup.record_bytes()));
  }
  if (setup.rows_per_column() == 0 || setup.rows_per_column() > kMaxSide) {
    return Bad(absl::StrFormat("rows_per_column must be in [1, %d], got %d", kMaxSide,
                               setup.rows_per_column()));
  }
  const uint64_t needed = (setup.rows() + setup.rows_per_column() - 1) / setup.rows_per_column();
  if (setup.columns() < needed || setup.columns() % kGroupColumns != 0 ||
      setup.columns() > kMaxSide) {
    return Bad(absl::StrFormat("columns must be a multiple of %d, at least %d, got %d",
                               kGroupColumns, needed, setup.columns()));
  }
  // Neither factor exceeds 2^52.
  if (MatrixRows(setup) > kMaxMatrixBytes / setup.columns()) {
    return Bad("the matrix is larger than 4 TiB");
  }
  return absl::OkStatus();
}

wire::PirSetup MakeShape(absl::string_view engine, const Content& content,
                         const ServerOptions& options, uint64_t divisor) {
  wire::PirSetup setup = SetupOf(engine, content);
  uint64_t rows_per_column = options.shape ? options.shape->rows_per_column() : 0;
  if (rows_per_column == 0 && content.record_bytes > 0) {
    const double square = std::sqrt(static_cast<double>(content.rows) / content.record_bytes);
    rows_per_column = static_cast<uint64_t>(std::max(1.0, std::round(square / divisor)));
    rows_per_column = std::max(rows_per_column, (content.rows + kMostColumns - 1) / kMostColumns);
  }
  rows_per_column = std::max<uint64_t>(1, rows_per_column);
  setup.set_rows_per_column(rows_per_column);
  const uint64_t columns = options.shape ? options.shape->columns() : 0;
  setup.set_columns(columns != 0
                        ? columns
                        : PaddedColumns((content.rows + rows_per_column - 1) / rows_per_column));
  return setup;
}

absl::StatusOr<ByteMatrix> LoadMatrix(const Content& content, const wire::PirSetup& setup,
                                      ThreadPool* pool) {
  SHOAL_ASSIGN_OR_RETURN(ByteMatrix matrix, ByteMatrix::Create(MatrixRows(setup), setup.columns()));
  const uint64_t k = setup.rows_per_column();
  const uint32_t width = setup.record_bytes();
  const auto load = [&](size_t begin, size_t end) {
    Bytes records(kGroupColumns * width);
    for (size_t group = begin; group < end; ++group) {
      for (uint64_t block = 0; block < k; ++block) {
        for (uint64_t i = 0; i < kGroupColumns; ++i) {
          const uint64_t row = (group * kGroupColumns + i) * k + block;
          const MutableBytes record(records.data() + i * width, width);
          if (row < content.rows) {
            content.copy(row, record);
          } else {
            std::fill(record.begin(), record.end(), 0);
          }
        }
        for (uint32_t w = 0; w < width; ++w) {
          uint8_t* out = matrix.Group(block * width + w, group * kGroupColumns);
          for (uint64_t i = 0; i < kGroupColumns; ++i) out[i] = records[i * width + w];
        }
      }
    }
  };
  ParallelFor(pool, setup.columns() / kGroupColumns, 1, load);
  return matrix;
}

absl::Status CheckServerMemory(const Sizes& sizes, const ServerOptions& options,
                               absl::string_view what) {
  const uint64_t there = options.product.size() * sizeof(uint32_t);
  return CheckMemory(sizes.server_bytes - std::min(there, sizes.server_bytes), what);
}

absl::StatusOr<std::vector<uint32_t>> ProductOf(const ByteMatrix& matrix, const Digest& seed,
                                                PackedVectors& room, ServerOptions& options) {
  if (options.product.empty()) {
    return matrix.MultiplyPublic(room, seed, options.pool, options.progress);
  }
  if (options.product.size() != matrix.rows() * kDimension) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pir: a product of %d words for a matrix of %d rows",
                        options.product.size(), matrix.rows()));
  }
  return std::exchange(options.product, {});
}

void SetHint(BytesView hint, wire::PirSetup& setup) {
  setup.set_hint_bytes(hint.size());
  setup.set_hint_digest(ToString(HintDigest(hint)));
}

absl::StatusOr<std::vector<Asked>> BeginQueries(const wire::PirSetup& setup,
                                                std::span<const uint64_t> rows) {
  const Digest id = SetupId(setup);
  std::vector<Asked> asked(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] >= setup.rows()) {
      return absl::OutOfRangeError(
          absl::StrFormat("pir: row %d of a table of %d rows", rows[i], setup.rows()));
    }
    asked[i].row = rows[i];
    AppendQueryHeader(setup, id, asked[i].query);
  }
  return asked;
}

void SetQuery(BytesView query, uint64_t first, uint64_t index, PackedVectors& packed) {
  std::vector<uint32_t> words(packed.length());
  std::memcpy(words.data(), query.data() + kQueryHeaderBytes + first * sizeof(uint32_t),
              words.size() * sizeof(uint32_t));
  packed.Set(index, words);
}

absl::StatusOr<std::vector<std::vector<uint32_t>>> MultiplyChunks(
    const wire::PirSetup& setup, const Digest& id, uint64_t query_bytes,
    std::span<const BytesView> queries, const Kernel& kernel, const ByteMatrix& matrix,
    ThreadPool* pool) {
  for (const BytesView query : queries) {
    SHOAL_RETURN_IF_ERROR(CheckQuery(setup, id, query_bytes, query));
  }
  const uint64_t chunk_rows =
      ChunkBlocks(setup, std::max<size_t>(1, queries.size())) * setup.record_bytes();
  // All vectors use the same memory, one after the other: touching new pages for each would take
  // longer than a chunk's product.
  SHOAL_ASSIGN_OR_RETURN(PackedVectors packed, PackedVectors::Create(kernel, matrix.columns(), 1));
  std::vector<std::vector<uint32_t>> products(queries.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    const uint64_t first = std::min<uint64_t>(i * chunk_rows, matrix.rows());
    const uint64_t count = std::min<uint64_t>(chunk_rows, matrix.rows() - first);
    if (count == 0) continue;
    SetQuery(queries[i], 0, 0, packed);
    products[i] = std::move(matrix.Multiply(packed, first, count, pool)[0]);
  }
  return products;
}

absl::Status CheckRefreshRows(const wire::PirSetup& setup, const Content& content,
                              std::span<const uint64_t> changed_rows) {
  return pir::CheckRefreshRows(setup, setup.rows_per_column() * setup.columns(), content,
                               changed_rows);
}

absl::Status CheckDelta(const wire::PirSetup& setup, const DeltaView& delta,
                        absl::StatusOr<Sizes> (*sizes_of)(const wire::PirSetup& shape)) {
  if (delta.from != SetupId(setup)) {
    return absl::FailedPreconditionError("pir: the delta starts from another epoch");
  }
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, sizes_of(delta.to));
  SHOAL_RETURN_IF_ERROR(CheckHint(delta.to, sizes));
  if (!SameShape(delta.to, setup)) {
    return absl::InvalidArgumentError("pir: the delta leads to a table of another shape");
  }
  return absl::OkStatus();
}

Runs RunsOf(const wire::PirSetup& setup, const Content& content,
            std::span<const uint64_t> changed_rows) {
  const auto at = [&setup, changed_rows](size_t run) -> Run {
    const uint64_t row = changed_rows[run];
    return {.column = row / setup.rows_per_column(),
            .first_row = row % setup.rows_per_column() * setup.record_bytes(),
            .length = setup.record_bytes()};
  };
  const auto read = [&content, changed_rows](size_t run, MutableBytes out) {
    if (const uint64_t row = changed_rows[run]; row < content.rows) {
      content.copy(row, out);
    } else {
      std::fill(out.begin(), out.end(), 0);
    }
  };
  return {.count = changed_rows.size(), .at = at, .read = read};
}

std::optional<Delta> DeltaOf(const Digest& from, const wire::PirSetup& to,
                             std::optional<Bytes> changes) {
  if (!changes) return std::nullopt;
  return Delta{.from = from, .to = to, .changes = *std::move(changes)};
}

PublicProduct::PublicProduct(const Digest& seed, uint64_t columns, const ClientOptions& options)
    : seed_(seed), columns_(columns), kernel_(&KernelOr(options.kernel)), pool_(options.pool) {}

void PublicProduct::Encrypt(std::span<const Wanted> wanted, RandomSource& random) const {
  const GaussianSampler& gaussian = GaussianSampler::Get();
  struct Query {
    SecretVector<int32_t> errors;
    uint8_t* out;
  };
  std::vector<Query> queries;
  for (const Wanted& one : wanted) {
    // There are thousands of samples, so they come from a stream cipher under one seed from the
    // system.
    const Seed seed = random.NewSeed();
    SeededRandom stream(seed.view(), "shoal pir query v1");
    one.secret->resize(kDimension);
    gaussian.Sample(*kernel_, stream, *one.secret);
    Query query{.errors = SecretVector<int32_t>(columns_), .out = nullptr};
    gaussian.Sample(*kernel_, stream, query.errors);
    const size_t start = one.query->size();
    one.query->resize(start + columns_ * sizeof(uint32_t));
    query.out = one.query->data() + start;
    queries.push_back(std::move(query));
  }
  const auto encrypt = [&](size_t begin, size_t end) {
    PublicMatrix matrix(seed_, StreamFor(*kernel_));
    constexpr uint32_t kRows = PublicMatrix::kRowsTogether;
    static_assert(kDimension % kRows == 0);
    SecretVector<int32_t> factors(wanted.size() * kRows);
    SecretVector<uint32_t> sums(wanted.size() * kTileColumns);
    for (size_t t = begin; t < end; ++t) {
      const uint64_t first = t * kTileColumns;
      const uint64_t count = std::min(kTileColumns, columns_ - first);
      std::fill(sums.begin(), sums.end(), 0);
      for (uint32_t k = 0; k < kDimension; k += kRows) {
        for (size_t v = 0; v < wanted.size(); ++v) {
          std::copy_n(wanted[v].secret->data() + k, kRows, factors.data() + v * kRows);
        }
        matrix.AddScaled(*kernel_, k, first, count, factors, sums.data(), kTileColumns);
      }
      for (size_t v = 0; v < wanted.size(); ++v) {
        const uint32_t* sum = sums.data() + v * kTileColumns;
        for (uint64_t j = 0; j < count; ++j) {
          // 1 where the column is the wanted one, without a branch.
          const uint64_t differs = (first + j) ^ wanted[v].column;
          const uint32_t here = static_cast<uint32_t>(1 ^ ((differs | (0 - differs)) >> 63));
          StoreLe<uint32_t>(
              queries[v].out + (first + j) * 4,
              sum[j] + static_cast<uint32_t>(queries[v].errors[first + j]) + (here << kDeltaBits));
        }
      }
    }
  };
  const uint64_t tiles = (columns_ + kTileColumns - 1) / kTileColumns;
  ParallelFor(pool_, tiles, std::max<uint64_t>(1, tiles / (2 * ThreadsOf(pool_))), encrypt);
}

}  // namespace shoal::pir::lwe
