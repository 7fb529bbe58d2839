// The parameters of Regev's encryption, common to both engines, and what they guarantee
// (SimplePIR, USENIX Security 2023, sections 3.1 and 4.2; docs/engines.md has the derivations).
//
//   n = 1024, q = 2^32, errors and secrets from the discrete Gaussian of width sigma = 16,
//   plaintexts are bytes: p = 256, Delta = q / p = 2^24 exactly.
//
// The paper has sigma = 6.4 and the largest p that still decrypts correctly. A kernel for bytes
// needs p = 256, which leaves room. The room is spent on a wider error (experiments/lwe/estimate.py
// puts the paper's parameters at 121 bits and these at 133), on small secrets, and on sending hints
// and answers without their low bits.
#ifndef SHOAL_SRC_PIR_LWE_LWE_H_
#define SHOAL_SRC_PIR_LWE_LWE_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace shoal::pir::lwe {

inline constexpr uint32_t kDimension = 1024;  // n
inline constexpr double kSigma = 16;
inline constexpr uint32_t kDeltaBits = 24;  // Delta = 2^24
inline constexpr uint32_t kDelta = 1u << kDeltaBits;
// A byte d of a table enters as d - 128: the error of an answer is a sum of errors times values of
// at most this size.
inline constexpr uint32_t kMaxPlaintext = 128;
// log2 of a bound on the probability that a record comes out wrong.
inline constexpr double kMaxFailureLog2 = -40;

// One linear decryption: `values` numbers are recovered, each from an answer's element (sum over
// `columns` columns) and a row of the hint.
struct Decryption {
  uint64_t columns = 0;
  uint64_t values = 1;
  // Low bits that are not sent; words are rounded to nearest.
  uint32_t hint_bits_dropped = 0;
  uint32_t answer_bits_dropped = 0;
};

// An upper bound for log2 of the probability that any of the values is decrypted wrongly, for any
// content of the table, even one that was chosen with the public matrix known. Errors are
// subgaussian, so that
//   P <= 2 values exp(-T^2 / 2 V),   V = sigma^2 (128^2 columns + n 2^(2 hint_dropped - 2)),
//   T = Delta / 2 - 2^(answer_dropped - 1).
double FailureLog2(const Decryption& decryption);

// The largest number of hint bits that can be dropped with a probability of failure of at most
// 2^-41 (half of what is allowed). INVALID_ARGUMENT if not even 0 is possible, as the matrix has
// too many columns.
absl::StatusOr<uint32_t> HintBitsToDrop(uint64_t columns, uint64_t values,
                                        uint32_t answer_bits_dropped);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_LWE_H_
