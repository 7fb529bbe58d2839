// A matrix of bytes in the kernels' layout, and its products.
//
//   columns   cut into stripes of kStripeColumns; a stripe's planes of a vector are a small part of the
//             first cache, through which the rows pass
//   stripe    blocks of kBlockRows rows, one after the other
//   block     kernel.h
//
// so that one product reads the matrix once, front to back. It lies in huge pages. A byte d counts
// as d - 128 in every product; both dimensions are padded, rows to kBlockRows, columns to
// kGroupColumns, by bytes 0.
#ifndef SHOAL_SRC_PIR_BYTE_MATRIX_H_
#define SHOAL_SRC_PIR_BYTE_MATRIX_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/thread_pool.h"
#include "src/pir/kernel.h"
#include "src/pir/pages.h"
#include "src/pir/public_matrix.h"

namespace shoal::pir {

inline constexpr uint64_t kStripeColumns = 1024;
// Of the public matrix, what is expanded at a time: stripes of so many columns together.
inline constexpr uint64_t kPanelColumns = 2 * kStripeColumns;

// `columns` rounded up to a multiple of kGroupColumns.
constexpr uint64_t PaddedColumns(uint64_t columns) {
  return (columns + kGroupColumns - 1) / kGroupColumns * kGroupColumns;
}

// Several vectors of one length, taken apart for one kernel.
class PackedVectors {
 public:
  // `length`: a multiple of kGroupColumns (checked). RESOURCE_EXHAUSTED as AllocatePages.
  static absl::StatusOr<PackedVectors> Create(const Kernel& kernel, uint64_t length,
                                              uint64_t count);

  // Other vectors of the same kernel in the same room, not longer (checked) than those it was made for;
  // all of them have to be set.
  void Reuse(uint64_t length);

  // Vector `index` from all its words.
  void Set(uint64_t index, std::span<const uint32_t> words);
  // The part of it that is stripe `stripe`. Different parts may be set by different threads.
  void SetStripe(uint64_t index, uint64_t stripe, std::span<const uint32_t> words);

  const Kernel& kernel() const { return *kernel_; }
  uint64_t length() const { return length_; }
  uint64_t count() const { return count_; }
  // The planes of all vectors in a stripe, one vector after the other.
  const uint8_t* stripe(uint64_t stripe) const {
    return pages_.data() + stripe * kStripeColumns * kPlaneBytesPerColumn * count_;
  }
  // Sum of the vector's words, modulo 2^32.
  uint32_t total(uint64_t index) const;

 private:
  PackedVectors() = default;
  const Kernel* kernel_ = nullptr;
  uint64_t length_ = 0;
  uint64_t count_ = 0;
  PageBuffer pages_;
  std::vector<uint32_t> totals_;  // [stripe][vector]
};

// Words of a stripe of `length` columns.
uint64_t StripeLength(uint64_t length, uint64_t stripe);
uint64_t StripeCount(uint64_t length);

// All of the public matrix for `columns` columns, as kDimension vectors.
absl::StatusOr<PackedVectors> PackPublicMatrix(const Kernel& kernel, const Digest& seed,
                                               uint64_t columns, ThreadPool* pool);

// Room for one panel of the public matrix, which products work in: 8 MiB, touched when it is used.
absl::StatusOr<PackedVectors> PanelRoom(const Kernel& kernel);

class ByteMatrix {
 public:
  // All zero bytes. RESOURCE_EXHAUSTED as AllocatePages.
  static absl::StatusOr<ByteMatrix> Create(uint64_t rows, uint64_t columns);

  uint64_t rows() const { return rows_; }
  uint64_t columns() const { return columns_; }  // padded
  uint64_t bytes() const { return padded_rows_ * columns_; }

  uint8_t Get(uint64_t row, uint64_t column) const { return pages_.data()[Offset(row, column)]; }
  void Set(uint64_t row, uint64_t column, uint8_t value) {
    pages_.data()[Offset(row, column)] = value;
  }
  // The kGroupColumns bytes of one group of columns in one row, for whole columns are cheaper to
  // write together. `column` is a multiple of kGroupColumns.
  uint8_t* Group(uint64_t row, uint64_t column) { return pages_.data() + Offset(row, column); }

  // products[v][r] = sum over columns of (byte(first_row + r, column) - 128) * vector_v[column],
  // r < count. All vectors in one pass over the rows. `pool` null: on this thread.
  std::vector<std::vector<uint32_t>> Multiply(const PackedVectors& vectors, uint64_t first_row,
                                              uint64_t count, ThreadPool* pool) const;

  // The matrix times the public matrix: out[row * kDimension + k]. The public matrix is expanded
  // panel by panel in `room`, for whose kernel it is (PanelRoom). done of total, from one thread.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;
  std::vector<uint32_t> MultiplyPublic(PackedVectors& room, const Digest& seed, ThreadPool* pool,
                                       const Progress& progress = nullptr) const;

  // Makes these rows of such a product anew (rising, checked): the cost of their blocks alone.
  void MultiplyPublicRows(PackedVectors& room, const Digest& seed, std::span<const uint64_t> rows,
                          ThreadPool* pool, std::vector<uint32_t>& out) const;

 private:
  ByteMatrix() = default;
  // One panel of the public matrix, in the room that it was packed in, until the next one is.
  struct Panel {
    const PackedVectors* packed;
    uint64_t first_stripe;
    std::vector<uint32_t> centres;  // of vector k: 128 times the sum of its words
  };
  Panel PackPanel(const Digest& seed, uint64_t panel, ThreadPool* pool, PackedVectors& room) const;
  // Adds blocks [first, first + count) times `panel` to `out`.
  void AddPublic(const Panel& panel, uint64_t first, uint64_t count, std::vector<uint32_t>& sums,
                 std::vector<uint32_t>& out) const;
  uint64_t Offset(uint64_t row, uint64_t column) const {
    const uint64_t stripe = column / kStripeColumns;
    const uint64_t inside = column % kStripeColumns;
    const uint64_t stripe_columns = StripeLength(columns_, stripe);
    return stripe * kStripeColumns * padded_rows_ + row / kBlockRows * kBlockRows * stripe_columns +
           inside / kGroupColumns * (kBlockRows * kGroupColumns) +
           row % kBlockRows * kGroupColumns + inside % kGroupColumns;
  }

  uint64_t rows_ = 0;
  uint64_t padded_rows_ = 0;
  uint64_t columns_ = 0;
  PageBuffer pages_;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_BYTE_MATRIX_H_
