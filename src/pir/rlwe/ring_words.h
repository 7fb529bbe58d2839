// Residues of 27 bits on the wire, and numbers modulo Q from their residues.
#ifndef SHOAL_SRC_PIR_RLWE_RING_WORDS_H_
#define SHOAL_SRC_PIR_RLWE_RING_WORDS_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/pir/rlwe/params.h"

namespace shoal::pir::rlwe {

// Appends the words of a polynomial, 27 bits each, low bits first.
void AppendResidues(std::span<const uint32_t> polynomial, Bytes& out);
// Reads them back. `bytes` has as many as the polynomial takes (checked). INVALID_ARGUMENT if a
// word is not below its prime.
absl::Status ReadResidues(BytesView bytes, std::span<uint32_t> polynomial);

// The number below Q with these residues. In constant time.
uint64_t Compose(uint32_t low, uint32_t high);

// The residue of a number of a Gaussian's size. In constant time.
inline uint32_t Residue(int32_t value, size_t k) {
  return static_cast<uint32_t>(value) + (static_cast<uint32_t>(value >> 31) & kPrime[k]);
}

// x / Q of a whole turn of 2^32, to nearest.
inline uint32_t TurnOf(uint64_t x) {
  return static_cast<uint32_t>(((static_cast<unsigned __int128>(x) << 32) + kModulus / 2) /
                               kModulus);
}

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_RING_WORDS_H_
