// What the messages of `hintless` look like for a table, how large they are, and how likely a wrong
// byte is (docs/hintless.md).
#ifndef SHOAL_SRC_PIR_RLWE_HINTLESS_SHAPE_H_
#define SHOAL_SRC_PIR_RLWE_HINTLESS_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"
#include "src/pir/rlwe/params.h"
#include "src/pir/rlwe/ring_kernel.h"

namespace shoal::pir::rlwe {

inline constexpr absl::string_view kHintlessName = "hintless";

// The one digit of a mask under a key: the upper 27 of its 54 bits.
inline constexpr Gadget kCollapseGadget = {.bits = 27, .digits = 1};
static_assert(kCollapseGadget.drop() == 27);

// On the wire, a word of the first stage has at least so many of its 32 bits, the mask of an
// answer 22, its body 11.
inline constexpr uint32_t kMinWordBits = 27;
inline constexpr uint32_t kHintlessMaskBits = 22;
inline constexpr uint32_t kHintlessBodyBits = 11;

// Keys of a query: of X -> X^5 and of X -> X^-1.
inline constexpr uint32_t kCollapseKeys = 2;
inline constexpr uint64_t kCollapseKeyBytes = kPrimes * kDegree * kPrimeBits / 8;
inline constexpr uint64_t kPackedMaskBytes = kDegree * kHintlessMaskBits / 8;
inline constexpr uint64_t kPackedBodyBytes = kDegree * kHintlessBodyBits / 8;

// The parts of the linear forms by which a packed value's error depends on what is secret, each the
// square of a Euclidean norm, for one packed value (docs/hintless.md): in the errors of the key of
// X -> X^5, in those of the key of X -> X^-1, and in the secret.
struct PackNorms {
  double rotation = 0, conjugation = 0, secret = 0;
};
// A server refuses a content for which a value has more. They are 1.4 times what digits and
// remainders have that are uniform in their ranges.
PackNorms MaxPackNorms();

// Record r is in column r / rows_per_column of a matrix of bytes, its bytes in consecutive rows
// from r % rows_per_column * record_bytes on (src/pir/lwe/shape.h). An answer has all rows of the
// matrix, 2048 in a packed ciphertext.
struct HintlessShape {
  uint32_t rows_per_column = 0;
  uint32_t columns = 0;    // a multiple of lwe::kGroupColumns
  uint32_t word_bits = 0;  // of a column's word on the wire, kMinWordBits to 32
  // Counts the public parts that were given up, as their norms were too large.
  uint32_t draw = 0;
  uint32_t record_bytes = 0;  // not encoded: the setup has it

  bool operator==(const HintlessShape&) const = default;

  uint64_t outputs() const { return uint64_t{rows_per_column} * record_bytes; }
  uint64_t packs() const { return (outputs() + kDegree - 1) / kDegree; }
  // Ring elements that the columns take.
  uint64_t blocks() const { return (uint64_t{columns} + kDegree - 1) / kDegree; }
  uint64_t query_bytes() const {
    return kQueryHeaderBytes + uint64_t{columns} * word_bits / 8 +
           kCollapseKeys * kCollapseKeyBytes;
  }
  uint64_t answer_bytes() const { return packs() * (kPackedMaskBytes + kPackedBodyBytes); }
  uint64_t table_bytes() const { return outputs() * columns; }
  // Of the digits that are kept for every pack.
  uint64_t digits_bytes() const;
  // Everything that a server keeps, and what making a pack and answering kTogether queries take
  // beside.
  uint64_t server_bytes() const;

  // Queries that share a pass over the table and the digits.
  static constexpr uint32_t kTogether = 4;
  // Packs that are made at the same time, at most.
  static constexpr size_t kPacksTogether = 4;
  static constexpr uint32_t kMaxDraw = 15;
};

// Steps that a chain of masks takes from one key to the next, of which there are two; pairs of
// words of a step that lie together; bytes of one pack's digits.
inline constexpr size_t kChains = 2;
inline constexpr size_t kChainSteps = kOrbit - 1;
inline constexpr size_t kPackBlocks = kDegree / RingKernel::kBlock;
inline constexpr size_t kPackDigitWords =
    kPrimes * (kChains * kPackBlocks * kChainSteps * RingKernel::kBlock + kDegree);

// The shape with the fewest bytes for one query. INVALID_ARGUMENT; RESOURCE_EXHAUSTED if the table
// is too large.
absl::StatusOr<HintlessShape> ChooseHintlessShape(uint64_t rows, uint32_t record_bytes);

// The setup's field `shape`: four little-endian words, the first four fields in their order.
std::string EncodeHintlessShape(const HintlessShape& shape);
// INVALID_ARGUMENT unless the setup is one of this engine that a server could have.
absl::StatusOr<HintlessShape> ParseHintlessShape(const wire::PirSetup& setup);

// The setup of SimplePIR's matrix of the same table and shape, for functions of src/pir/lwe.
wire::PirSetup MatrixSetup(const wire::PirSetup& setup, const HintlessShape& shape);

// A bound, proved in docs/hintless.md, for log2 of the probability that any byte of an answer is
// decrypted wrongly, whatever the table holds, if the norms of the server's packs are at most
// `norms`.
double HintlessFailureLog2(const HintlessShape& shape, const PackNorms& norms);
inline constexpr double kHintlessMaxFailureLog2 = -40;

// The variance of an error of the first stage, in units of the square of Z_Q's 1, for a row of the
// matrix whose bytes, less 128, have this sum of squares.
double FirstStageVariance(const HintlessShape& shape, double squares);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_HINTLESS_SHAPE_H_
