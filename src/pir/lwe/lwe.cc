#include "src/pir/lwe/lwe.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace shoal::pir::lwe {
namespace {

// 2^(bits - 1), or 0 if no bits are dropped.
double RoundingError(uint32_t bits) {
  return bits == 0 ? 0 : std::ldexp(1.0, static_cast<int>(bits) - 1);
}

}  // namespace

double FailureLog2(const Decryption& d) {
  const double room = kDelta / 2 - RoundingError(d.answer_bits_dropped);
  if (room <= 0) return 0;
  const double hint_error = RoundingError(d.hint_bits_dropped);
  const double variance =
      kSigma * kSigma *
      (static_cast<double>(kMaxPlaintext) * kMaxPlaintext * static_cast<double>(d.columns) +
       kDimension * hint_error * hint_error);
  return 1 + std::log2(static_cast<double>(d.values)) -
         room * room / (2 * variance) / std::log(2.0);
}

absl::StatusOr<uint32_t> HintBitsToDrop(uint64_t columns, uint64_t values,
                                        uint32_t answer_bits_dropped) {
  for (int bits = kDeltaBits - 1; bits >= 0; --bits) {
    if (FailureLog2({.columns = columns,
                     .values = values,
                     .hint_bits_dropped = static_cast<uint32_t>(bits),
                     .answer_bits_dropped = answer_bits_dropped}) <= kMaxFailureLog2 - 1) {
      return bits;
    }
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "pir: a matrix of %d columns is too wide: its answers could not be decrypted reliably; put "
      "more rows of the table into a column",
      columns));
}

}  // namespace shoal::pir::lwe
