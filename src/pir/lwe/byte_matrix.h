// A matrix of bytes in the kernels' layout, and its products.
//
//   columns   cut into stripes of kStripeColumns; while the rows pass, a stripe's planes of a
//             vector take a small part of the first-level cache
//   stripe    blocks of kBlockRows rows, one after the other
//   block     kernel.h
//
// so that one product reads the matrix once, front to back. It lies in huge pages. A byte d counts
// as d - 128 in every product; both dimensions are padded, rows to kBlockRows, columns to
// kGroupColumns, by bytes 0.
#ifndef SHOAL_SRC_PIR_LWE_BYTE_MATRIX_H_
#define SHOAL_SRC_PIR_LWE_BYTE_MATRIX_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/kernel.h"
#include "src/pir/lwe/public_matrix.h"
#include "src/pir/pages.h"

namespace shoal::pir::lwe {

inline constexpr uint64_t kStripeColumns = 1024;
// Columns of the public matrix that are expanded at a time.
inline constexpr uint64_t kPanelColumns = 2 * kStripeColumns;

// `columns` rounded up to a multiple of kGroupColumns.
constexpr uint64_t PaddedColumns(uint64_t columns) {
  return (columns + kGroupColumns - 1) / kGroupColumns * kGroupColumns;
}

// Several vectors of one length, in the planes of one kernel (kernel.h).
class PackedVectors {
 public:
  // `length`: a multiple of kGroupColumns (checked). RESOURCE_EXHAUSTED as AllocatePages.
  static absl::StatusOr<PackedVectors> Create(const Kernel& kernel, uint64_t length,
                                              uint64_t count);

  // Prepares the same memory for other vectors of the same kernel, which must not be longer than
  // the first ones (checked). All of them have to be set again.
  void Reuse(uint64_t length);

  // Sets vector `index` from all its words.
  void Set(uint64_t index, std::span<const uint32_t> words);
  // Sets the part of vector `index` in stripe `stripe`. Different threads may set different parts.
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

// The number of columns in a stripe of a matrix with `length` columns.
uint64_t StripeLength(uint64_t length, uint64_t stripe);
uint64_t StripeCount(uint64_t length);

// The whole public matrix for `columns` columns, as kDimension vectors.
absl::StatusOr<PackedVectors> PackPublicMatrix(const Kernel& kernel, const Digest& seed,
                                               uint64_t columns, ThreadPool* pool);

// Memory for one panel of the public matrix, in which products work: 8 MiB, touched when it is
// used.
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
  // The kGroupColumns bytes of one group of columns in one row, as writing columns together is
  // cheaper. `column` is a multiple of kGroupColumns.
  uint8_t* Group(uint64_t row, uint64_t column) { return pages_.data() + Offset(row, column); }

  // products[v][r] = sum over columns of (byte(first_row + r, column) - 128) * vector_v[column], r
  // < count. One pass over the rows serves all vectors. If `pool` is null, it runs on this thread.
  std::vector<std::vector<uint32_t>> Multiply(const PackedVectors& vectors, uint64_t first_row,
                                              uint64_t count, ThreadPool* pool) const;

  // The matrix times the public matrix: out[row * kDimension + k]. The public matrix is expanded
  // panel by panel in `room` (PanelRoom), whose kernel is used. `progress` is told done of total,
  // from one thread.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;
  std::vector<uint32_t> MultiplyPublic(PackedVectors& room, const Digest& seed, ThreadPool* pool,
                                       const Progress& progress = nullptr) const;

  // Makes some rows of such a product anew. `rows` must rise (checked). Costs only the work for
  // these rows' blocks.
  void MultiplyPublicRows(PackedVectors& room, const Digest& seed, std::span<const uint64_t> rows,
                          ThreadPool* pool, std::vector<uint32_t>& out) const;

 private:
  ByteMatrix() = default;
  // One panel of the public matrix, in the room that it was packed in. Valid until the next panel
  // is packed.
  struct Panel {
    const PackedVectors* packed;
    uint64_t first_stripe;
    std::vector<uint32_t> centres;  // centres[k]: 128 times the sum of the words of vector k
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

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_BYTE_MATRIX_H_
