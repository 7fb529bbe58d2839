// What Small PIR's messages look like for a table, how large they are, and how likely a wrong byte
// is (docs/small-pir.md).
#ifndef SHOAL_SRC_PIR_RLWE_SMALL_SHAPE_H_
#define SHOAL_SRC_PIR_RLWE_SMALL_SHAPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"
#include "src/pir/rlwe/params.h"
#include "src/pir/rlwe/ring_kernel.h"

namespace shoal::pir::rlwe {

// A query can take 2^kPackLog positions of the first stage from one ring element, or 2^kFoldPackLog
// values of the second.
inline constexpr uint32_t kPackLog = 6;
inline constexpr uint32_t kFoldPackLog = 4;
// The one automorphism that clients send a key for: X -> X^65 has order 2^kPackLog.
inline constexpr uint32_t kUnpackExponent = 2 * kDegree / (1u << kPackLog) + 1;

// Digits of a public part under the automorphism's key, under the key for the secret's square, and
// of ciphertexts that are folded.
inline constexpr Gadget kUnpackGadget = {.bits = 5, .digits = 11};
inline constexpr Gadget kSquareGadget = {.bits = 14, .digits = 4};
inline constexpr Gadget kFoldGadget = {.bits = 5, .digits = 5};
// The first two leave nothing out.
static_assert(kUnpackGadget.drop() == 0 && kSquareGadget.drop() == 0 && kFoldGadget.drop() == 29);
// What digit i of a folded ciphertext counts: Q / 2^(25 - 5 i), to nearest.
constexpr uint64_t FoldStep(uint32_t i) {
  const uint32_t shift = 54 - kFoldGadget.drop() - kFoldGadget.bits * i;
  return (kModulus + (uint64_t{1} << (shift - 1))) >> shift;
}

// On the wire, an answer's mask is rounded to 24 bits, and its body to 11.
inline constexpr uint32_t kAnswerMaskBits = 24;
inline constexpr uint32_t kAnswerBodyBits = 11;

// A ring element of a query: a residue of 27 bits for each prime and coefficient.
inline constexpr uint64_t kElementBytes = kPrimes * kDegree * kPrimeBits / 8;
inline constexpr uint64_t kSliceAnswerBytes = kDegree * (kAnswerMaskBits + kAnswerBodyBits) / 8;

// Records are cut into groups of `group_rows`, each of which fills `slices` ring elements: a byte a
// coefficient, the rest zeros. Group j * terms + i is at position i of the first stage and at
// position j of the second, i < terms, j < 2^folds.
struct SmallShape {
  uint32_t group_rows = 0;
  uint32_t slices = 0;
  uint32_t terms = 0;
  uint32_t folds = 0;

  bool operator==(const SmallShape&) const = default;

  uint64_t outputs() const { return uint64_t{1} << folds; }  // of the first stage, a slice
  // Those that the table has room for: whole tiles of the kernel.
  uint64_t padded_outputs() const {
    return outputs() < RingKernel::kTileRows ? RingKernel::kTileRows : outputs();
  }
  uint64_t capacity() const { return outputs() * terms * group_rows; }  // rows

  // log2 of the positions in one ring element of the query's first part.
  uint32_t pack_log() const;
  // Ring elements of the parts of a query, in this order: the automorphism's key, the key for the
  // secret's square, the first stage's positions, the second stage's values.
  uint32_t position_elements() const;
  uint32_t fold_values() const { return folds * kFoldGadget.digits; }
  uint32_t fold_elements() const;
  uint32_t elements() const {
    return kUnpackGadget.digits + kSquareGadget.digits + position_elements() + fold_elements();
  }

  uint64_t query_bytes() const { return kQueryHeaderBytes + elements() * kElementBytes; }
  uint64_t answer_bytes() const { return slices * kSliceAnswerBytes; }
  // Of the table as it is multiplied.
  uint64_t table_bytes() const {
    return uint64_t{slices} * padded_outputs() * terms * kPrimes * kDegree * sizeof(uint32_t);
  }
  // Automorphisms that unpacking a query takes.
  uint64_t automorphisms() const;
  // Everything that a server keeps, and what answering kTogether queries takes beside.
  uint64_t server_bytes() const;

  // Queries that share a pass over the table.
  static constexpr uint32_t kTogether = 4;
  static constexpr uint32_t kMaxTerms = 512;
  static constexpr uint32_t kMaxFolds = 12;
};

// Automorphisms that unpack `count` values of a ring element that has room for 2^log
// (small_public.h).
uint64_t UnpackSteps(uint32_t log, uint64_t count);

// A shape for a table, in which at least three quarters of the coefficients are used if one of a
// few more slices allows it. INVALID_ARGUMENT; RESOURCE_EXHAUSTED if the table is too large.
absl::StatusOr<SmallShape> ChooseSmallShape(uint64_t rows, uint32_t record_bytes);

// The setup's field `shape`: four little-endian words in the order of the fields above.
std::string EncodeSmallShape(const SmallShape& shape);
// INVALID_ARGUMENT unless the setup is one of this engine that a server could have.
absl::StatusOr<SmallShape> ParseSmallShape(const wire::PirSetup& setup);

inline constexpr absl::string_view kSmallPirName = "smallpir";

// log2 of a bound of the probability that any byte of an answer is decrypted wrongly, whatever the
// table contains: the theorem of docs/small-pir.md. Grows with the shape, and is below -40 for the
// largest one that is accepted (a test says so).
double SmallFailureLog2(const SmallShape& shape);

// Norms of the maps from the errors of a query's keys to what is unpacked, as they follow from the
// public parts, which are constants. //src/pir/rlwe:small_norms_test computes them.
struct SmallNorms {
  double positions;     // to kMaxTerms positions: the largest singular value
  double values;        // to the values of kMaxFolds folds, as positions
  double values_row;    // the same: the largest sum of squares of one frequency
  double products_row;  // from the square's key to these values' products with the secret
};
inline constexpr SmallNorms kSmallNorms = {
    .positions = 8.0e5, .values = 8.0e4, .values_row = 9.8e9, .products_row = 1.06e13};

// Squares of sub-Gaussian parameters of an error, in units of Z_Q's 1, that hold but with a
// probability of 2^-43 (docs/small-pir.md names them alike).
struct SmallNoise {
  double first_stage = 0;
  double fold = 0;  // of all levels
  double rounding = 0;
  double total() const { return first_stage + fold + rounding; }
};
SmallNoise SmallNoiseOf(const SmallShape& shape);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_SMALL_SHAPE_H_
