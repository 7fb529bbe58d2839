// Hints of a later epoch. Private to src/pir.
//
// A cell that changes costs kDimension multiply-adds, and two bytes of the delta with a part of its
// run's header; a row of the hint made anew costs a product with the whole public matrix, and as
// many bytes as a row has. Signatures bind the epoch, so that theirs change in every column: those
// rows are sent anew; the bytes of the table's rows that really changed are sent as changes.
//
// Delta::changes:
//   u64 runs    each: u64 column, u64 first row, u32 length, the bytes before, the bytes after
//   rows anew   each: u64 row, kDimension words, rounded as the hint's
// Runs have a byte at least, ascend by column and row, and do not overlap; rows anew ascend. So a
// column of the public matrix is expanded once, and any delta costs a client at most the whole
// public matrix, as a query does, and 1,024 multiply-adds for every two bytes.
#ifndef SHOAL_SRC_PIR_REFRESH_H_
#define SHOAL_SRC_PIR_REFRESH_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/pir/byte_matrix.h"
#include "src/pir/engine.h"

namespace shoal::pir {

// What may have changed in one column, from first_row on.
struct Run {
  uint64_t column = 0;
  uint64_t first_row = 0;
  uint32_t length = 0;
};
// They ascend as a delta's do. Every run is looked at more than once, so that neither a list of
// them nor a whole table's bytes need be held beside the matrix.
struct Runs {
  size_t count = 0;
  std::function<Run(size_t run)> at;
  // What stands there now, into `out` of its length.
  std::function<void(size_t run, MutableBytes out)> read;
};

struct HintedMatrix {
  PackedVectors* room;  // PanelRoom, made before: a refresh that has begun does not fail
  ThreadPool* pool;
  Digest seed;  // of the public matrix
  uint32_t hint_bits_dropped;
  // Of what a client is told; 0: it is told nothing.
  uint64_t max_delta_bytes;
  ByteMatrix* matrix;
  std::vector<uint32_t>* product;  // matrix times public matrix: [row][kDimension]
};

// What part of the product RefreshProduct would make anew, or as many bytes of changes as that.
// Where no client is told, bytes stand for the work: headers of runs do not count.
double RefreshShare(const ByteMatrix& matrix, uint32_t hint_bits_dropped, bool told,
                    const Runs& runs);

// Writes the runs into the matrix and makes the product that of the new matrix; what a client needs
// for the same, unless it has more than max_delta_bytes. The room for these is promised at once.
std::optional<Bytes> RefreshProduct(const HintedMatrix& hinted, const Runs& runs);

// The client's side. INVALID_ARGUMENT: malformed, out of order, or outside of the matrix; the hint
// is then what it was.
absl::Status ApplyChanges(const Kernel& kernel, const Digest& seed, uint32_t hint_bits_dropped,
                          uint64_t columns, BytesView changes, std::vector<uint32_t>& hint);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_REFRESH_H_
