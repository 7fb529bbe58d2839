#include "src/pir/lwe/byte_matrix.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/lwe.h"

namespace shoal::pir::lwe {
namespace {

// Blocks of rows that are multiplied with all vectors before the next blocks. In a pass of queries,
// their part of a stripe stays in the second-level cache, beside that of the next blocks and the
// planes of the vectors.
constexpr uint64_t kPassBlocks = 16;
// The same for a product with the whole public matrix, which no cache holds: the cache also has
// room for the matrix's next columns.
constexpr uint64_t kProductBlocks = 32;

uint64_t PanelCount(uint64_t columns) { return (columns + kPanelColumns - 1) / kPanelColumns; }

size_t GrainFor(ThreadPool* pool, size_t n) {
  return std::max<size_t>(1, n / (4 * ThreadsOf(pool)));
}

}  // namespace

uint64_t StripeCount(uint64_t length) { return (length + kStripeColumns - 1) / kStripeColumns; }

uint64_t StripeLength(uint64_t length, uint64_t stripe) {
  return std::min(kStripeColumns, length - stripe * kStripeColumns);
}

absl::StatusOr<PackedVectors> PackedVectors::Create(const Kernel& kernel, uint64_t length,
                                                    uint64_t count) {
  SHOAL_CHECK(length % kGroupColumns == 0 && count > 0);
  PackedVectors packed;
  packed.kernel_ = &kernel;
  packed.length_ = length;
  packed.count_ = count;
  SHOAL_ASSIGN_OR_RETURN(packed.pages_, AllocatePages(length * count * kPlaneBytesPerColumn,
                                                      "pir: the vectors of a product"));
  packed.totals_.resize(StripeCount(length) * count);
  return packed;
}

void PackedVectors::Reuse(uint64_t length) {
  SHOAL_CHECK(length % kGroupColumns == 0 &&
              length * count_ * kPlaneBytesPerColumn <= pages_.size());
  length_ = length;
}

void PackedVectors::SetStripe(uint64_t index, uint64_t stripe, std::span<const uint32_t> words) {
  SHOAL_CHECK(index < count_ && words.size() == StripeLength(length_, stripe));
  uint8_t* planes = pages_.data() + stripe * kStripeColumns * kPlaneBytesPerColumn * count_ +
                    index * words.size() * kPlaneBytesPerColumn;
  kernel_->pack(words.data(), words.size() / kGroupColumns, planes);
  uint32_t total = 0;
  for (uint32_t word : words) total += word;
  totals_[stripe * count_ + index] = total;
}

void PackedVectors::Set(uint64_t index, std::span<const uint32_t> words) {
  SHOAL_CHECK(words.size() == length_);
  for (uint64_t s = 0; s < StripeCount(length_); ++s) {
    SetStripe(index, s, words.subspan(s * kStripeColumns, StripeLength(length_, s)));
  }
}

uint32_t PackedVectors::total(uint64_t index) const {
  uint32_t total = 0;
  for (uint64_t s = 0; s < StripeCount(length_); ++s) total += totals_[s * count_ + index];
  return total;
}

absl::StatusOr<PackedVectors> PackPublicMatrix(const Kernel& kernel, const Digest& seed,
                                               uint64_t columns, ThreadPool* pool) {
  SHOAL_ASSIGN_OR_RETURN(PackedVectors packed, PackedVectors::Create(kernel, columns, kDimension));
  ParallelFor(pool, kDimension, GrainFor(pool, kDimension), [&](size_t begin, size_t end) {
    PublicMatrix matrix(seed, StreamFor(kernel));
    std::vector<uint32_t> words;
    for (size_t k = begin; k < end; ++k) {
      for (uint64_t s = 0; s < StripeCount(columns); ++s) {
        words.resize(StripeLength(columns, s));
        matrix.Expand(static_cast<uint32_t>(k), s * kStripeColumns, words);
        packed.SetStripe(k, s, words);
      }
    }
  });
  return packed;
}

absl::StatusOr<PackedVectors> PanelRoom(const Kernel& kernel) {
  return PackedVectors::Create(kernel, kPanelColumns, kDimension);
}

absl::StatusOr<ByteMatrix> ByteMatrix::Create(uint64_t rows, uint64_t columns) {
  SHOAL_CHECK(rows > 0 && columns > 0);
  ByteMatrix matrix;
  matrix.rows_ = rows;
  matrix.padded_rows_ = (rows + kBlockRows - 1) / kBlockRows * kBlockRows;
  matrix.columns_ = PaddedColumns(columns);
  SHOAL_ASSIGN_OR_RETURN(matrix.pages_, AllocatePages(matrix.bytes(), "pir: the table"));
  return matrix;
}

std::vector<std::vector<uint32_t>> ByteMatrix::Multiply(const PackedVectors& vectors,
                                                        uint64_t first_row, uint64_t count,
                                                        ThreadPool* pool) const {
  SHOAL_CHECK(vectors.length() == columns_ && first_row + count <= rows_);
  const uint64_t first_block = first_row / kBlockRows;
  const uint64_t blocks = (first_row + count + kBlockRows - 1) / kBlockRows - first_block;
  const uint64_t sum_rows = blocks * kBlockRows;
  std::vector<uint32_t> sums(vectors.count() * sum_rows);
  ParallelFor(pool, blocks, GrainFor(pool, blocks), [&](size_t begin, size_t end) {
    for (uint64_t s = 0; s < StripeCount(columns_); ++s) {
      const uint64_t columns = StripeLength(columns_, s);
      const uint8_t* stripe = pages_.data() + s * kStripeColumns * padded_rows_;
      const uint64_t block_bytes = kBlockRows * columns;
      for (uint64_t b = begin; b < end; b += kPassBlocks) {
        const uint64_t next = std::min<uint64_t>(b + kPassBlocks, end);
        const uint64_t after = std::min<uint64_t>(next + kPassBlocks, end);
        vectors.kernel().multiply(
            stripe + (first_block + b) * block_bytes, next - b, columns / kGroupColumns,
            vectors.stripe(s), vectors.count(), sums.data() + b * kBlockRows, sum_rows,
            stripe + (first_block + next) * block_bytes, (after - next) * block_bytes);
      }
    }
  });
  std::vector<std::vector<uint32_t>> products(vectors.count());
  for (uint64_t v = 0; v < vectors.count(); ++v) {
    const uint32_t centre = kMaxPlaintext * vectors.total(v);
    const uint32_t* from = sums.data() + v * sum_rows + first_row % kBlockRows;
    products[v].assign(from, from + count);
    for (uint32_t& product : products[v]) product -= centre;
  }
  return products;
}

ByteMatrix::Panel ByteMatrix::PackPanel(const Digest& seed, uint64_t panel, ThreadPool* pool,
                                        PackedVectors& room) const {
  SHOAL_CHECK(room.count() == kDimension);
  const uint64_t first_column = panel * kPanelColumns;
  const uint64_t columns = std::min(kPanelColumns, columns_ - first_column);
  room.Reuse(columns);
  Panel packed{.packed = &room,
               .first_stripe = first_column / kStripeColumns,
               .centres = std::vector<uint32_t>(kDimension)};
  ParallelFor(pool, kDimension, GrainFor(pool, kDimension), [&](size_t begin, size_t end) {
    PublicMatrix matrix(seed, StreamFor(room.kernel()));
    std::vector<uint32_t> words(columns);
    for (size_t k = begin; k < end; ++k) {
      matrix.Expand(static_cast<uint32_t>(k), first_column, words);
      room.Set(k, words);
      packed.centres[k] = kMaxPlaintext * room.total(k);
    }
  });
  return packed;
}

void ByteMatrix::AddPublic(const Panel& panel, uint64_t first, uint64_t count,
                           std::vector<uint32_t>& sums, std::vector<uint32_t>& out) const {
  const uint64_t sum_rows = count * kBlockRows;
  const uint64_t first_row = first * kBlockRows;
  sums.assign(kDimension * sum_rows, 0);
  for (uint64_t s = 0; s < StripeCount(panel.packed->length()); ++s) {
    const uint64_t stripe = panel.first_stripe + s;
    const uint64_t columns = StripeLength(columns_, stripe);
    const uint8_t* tiles = pages_.data() + stripe * kStripeColumns * padded_rows_;
    panel.packed->kernel().multiply(tiles + first_row * columns, count, columns / kGroupColumns,
                                    panel.packed->stripe(s), kDimension, sums.data(), sum_rows,
                                    nullptr, 0);
  }
  // Sums are stored vector by vector, the product row by row. Transposing squares touches a cache
  // line of either only once.
  constexpr uint64_t kSquare = 16;
  static_assert(kDimension % kSquare == 0);
  for (uint64_t r = 0; r < sum_rows; r += kSquare) {
    const uint64_t rows = std::min({kSquare, sum_rows - r, rows_ - (first_row + r)});
    for (uint32_t k = 0; k < kDimension; k += kSquare) {
      uint32_t square[kSquare][kSquare];
      for (uint64_t j = 0; j < kSquare; ++j) {
        for (uint64_t i = 0; i < rows; ++i) square[i][j] = sums[(k + j) * sum_rows + r + i];
      }
      for (uint64_t i = 0; i < rows; ++i) {
        uint32_t* row = out.data() + (first_row + r + i) * kDimension + k;
        for (uint64_t j = 0; j < kSquare; ++j) row[j] += square[i][j] - panel.centres[k + j];
      }
    }
  }
}

std::vector<uint32_t> ByteMatrix::MultiplyPublic(PackedVectors& room, const Digest& seed,
                                                 ThreadPool* pool, const Progress& progress) const {
  std::vector<uint32_t> out(rows_ * kDimension);
  const uint64_t blocks = padded_rows_ / kBlockRows;
  const uint64_t chunks = (blocks + kProductBlocks - 1) / kProductBlocks;
  const uint64_t panels = PanelCount(columns_);
  for (uint64_t p = 0; p < panels; ++p) {
    const Panel panel = PackPanel(seed, p, pool, room);
    ParallelFor(pool, chunks, GrainFor(pool, chunks), [&](size_t begin, size_t end) {
      std::vector<uint32_t> sums;
      for (size_t c = begin; c < end; ++c) {
        const uint64_t first = c * kProductBlocks;
        AddPublic(panel, first, std::min(kProductBlocks, blocks - first), sums, out);
      }
    });
    if (progress) progress(p + 1, panels);
  }
  return out;
}

void ByteMatrix::MultiplyPublicRows(PackedVectors& room, const Digest& seed,
                                    std::span<const uint64_t> rows, ThreadPool* pool,
                                    std::vector<uint32_t>& out) const {
  SHOAL_CHECK(std::is_sorted(rows.begin(), rows.end()) && (rows.empty() || rows.back() < rows_));
  // Runs of neighbouring blocks that have such a row.
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  for (uint64_t row : rows) {
    const uint64_t block = row / kBlockRows;
    if (!runs.empty() && block < runs.back().first + runs.back().second) continue;
    if (!runs.empty() && block == runs.back().first + runs.back().second &&
        runs.back().second < kProductBlocks) {
      ++runs.back().second;
    } else {
      runs.emplace_back(block, 1);
    }
  }
  for (const auto& [first, count] : runs) {
    const uint64_t end = std::min(rows_, (first + count) * kBlockRows);
    std::fill(out.begin() + first * kBlockRows * kDimension, out.begin() + end * kDimension, 0);
  }
  for (uint64_t p = 0; p < PanelCount(columns_); ++p) {
    const Panel panel = PackPanel(seed, p, pool, room);
    ParallelFor(pool, runs.size(), GrainFor(pool, runs.size()), [&](size_t begin, size_t end) {
      std::vector<uint32_t> sums;
      for (size_t i = begin; i < end; ++i) {
        AddPublic(panel, runs[i].first, runs[i].second, sums, out);
      }
    });
  }
}

}  // namespace shoal::pir::lwe
