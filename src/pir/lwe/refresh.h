// Hints of a later epoch. Private to src/pir.
//
// A byte of the matrix that changes costs kDimension multiply-adds, and in the delta nine bits and
// a part of its run's header. A row of the hint that is made anew costs a product with the whole
// public matrix, and all bytes of the row. It is cheaper where a byte changes in most columns.
//
// Delta::changes:
//   u64 runs    each: u64 column, u64 first row, u32 length; of each byte after less the byte
//               before, d: d mod 256, a byte each; whether d is negative, a bit each, low bits of a
//               byte first, zeros up to a whole byte. No d is -256
//   rows anew   each: u64 row, kDimension words, rounded as the hint's
// Runs have at least one byte, ascend by column and row, and do not overlap; rows anew ascend. So
// each column of the public matrix is expanded at most once, and a delta costs a client at most the
// expansion of the whole public matrix, as a query does, and 1,024 multiply-adds for every nine
// bits.
#ifndef SHOAL_SRC_PIR_LWE_REFRESH_H_
#define SHOAL_SRC_PIR_LWE_REFRESH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/pir/engine.h"
#include "src/pir/lwe/byte_matrix.h"

namespace shoal::pir::lwe {

// Bytes of one column that may have changed, from first_row on.
struct Run {
  uint64_t column = 0;
  uint64_t first_row = 0;
  uint32_t length = 0;
};
// All runs, ascending as in a delta. They are read more than once, so that neither a list of them
// nor all bytes of the table need be held in addition to the matrix.
struct Runs {
  size_t count = 0;
  std::function<Run(size_t run)> at;
  // Reads the run's new bytes into `out`, which has its length.
  std::function<void(size_t run, MutableBytes out)> read;
};

struct HintedMatrix {
  PackedVectors* room;  // PanelRoom, made before: a refresh must not fail half way
  ThreadPool* pool;
  Digest seed;  // of the public matrix
  uint32_t hint_bits_dropped;
  // The most bytes of a delta; 0: no delta is made.
  uint64_t max_delta_bytes;
  ByteMatrix* matrix;
  std::vector<uint32_t>* product;  // matrix times public matrix: [row][kDimension]
};

// The share of the product that RefreshProduct would make anew, where rows with changes count by
// the bytes that these take in a delta. If no delta is made (`told` is false), headers of runs do
// not count.
double RefreshShare(const ByteMatrix& matrix, uint32_t hint_bits_dropped, bool told,
                    const Runs& runs);

// Writes the runs into the matrix and updates the product. Returns the changes that a client needs
// to do the same, unless they have more than max_delta_bytes. Memory for them is reserved at once.
std::optional<Bytes> RefreshProduct(const HintedMatrix& hinted, const Runs& runs);

// The client's side: applies the changes to a hint. INVALID_ARGUMENT: malformed, out of order, or
// outside of the matrix; then the hint is unchanged.
absl::Status ApplyChanges(const Kernel& kernel, const Digest& seed, uint32_t hint_bits_dropped,
                          uint64_t columns, BytesView changes, std::vector<uint32_t>& hint);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_REFRESH_H_
