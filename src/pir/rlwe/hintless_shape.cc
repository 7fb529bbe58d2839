#include "src/pir/rlwe/hintless_shape.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/shape.h"

namespace shoal::pir::rlwe {
namespace {

constexpr double kModulusReal = static_cast<double>(kModulus);
// The columns of matrices that are chosen, and packs; beyond, other engines are better.
constexpr uint64_t kMaxPacks = 1 << 12;
constexpr uint64_t kMaxColumns = 1 << 17;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("hintless setup: ", what));
}

double Square(double x) { return x * x; }

absl::Status CheckHintlessShape(const HintlessShape& shape, const wire::PirSetup& setup) {
  SHOAL_RETURN_IF_ERROR(lwe::CheckShape(MatrixSetup(setup, shape)));
  if (shape.columns > kMaxColumns) return Bad("too many columns");
  if (shape.packs() > kMaxPacks) return Bad("too many rows of the matrix");
  if (shape.word_bits < kMinWordBits || shape.word_bits > 32) return Bad("word_bits");
  if (shape.draw > HintlessShape::kMaxDraw) return Bad("draw");
  if (HintlessFailureLog2(shape, MaxPackNorms()) > kHintlessMaxFailureLog2) {
    return Bad("answers would be too noisy");
  }
  return absl::OkStatus();
}

}  // namespace

PackNorms MaxPackNorms() {
  // For each value, as many coefficients as the ring has, each of a sum of 2046 digits, or of one
  // digit, or of 2047 remainders and the rounding of the mask.
  constexpr double kMargin = 1.4;
  const double digit = std::ldexp(1, 2 * static_cast<int>(kCollapseGadget.bits)) / 12;
  const double rest = std::ldexp(1, 2 * static_cast<int>(kCollapseGadget.drop())) / 12;
  const double mask = Square(kModulusReal / std::ldexp(1, kHintlessMaskBits)) / 12;
  const double steps = kChains * kChainSteps;
  return {.rotation = kMargin * kDegree * steps * digit,
          .conjugation = kMargin * kDegree * digit,
          .secret = kMargin * kDegree * ((steps + 1) * rest + mask)};
}

uint64_t HintlessShape::digits_bytes() const {
  return packs() * kPackDigitWords * sizeof(uint32_t);
}

uint64_t HintlessShape::server_bytes() const {
  // Two arrays in which a pack is made (hintless_pack.h).
  constexpr uint64_t kRoom = 2 * kPrimes * uint64_t{kDegree} * kDegree * sizeof(uint32_t);
  // Of a query: its planes and words, keys, sums.
  const uint64_t query = 8 * uint64_t{columns} + 4 * kCollapseKeyBytes + 8 * outputs();
  const uint64_t rooms = std::min<uint64_t>(packs(), kPacksTogether);
  return table_bytes() + digits_bytes() + rooms * kRoom + packs() * kPackedMaskBytes +
         kTogether * query;
}

double FirstStageVariance(const HintlessShape& shape, double squares) {
  // The rounding of a word up or down, at random, is within an interval of one step.
  const double step = std::ldexp(1, 32 - static_cast<int>(shape.word_bits));
  const double rounding = step == 1 ? 0 : Square(step / 2);
  return Square(kModulusReal / std::ldexp(1, 32)) * squares * (Square(lwe::kSigma) + rounding);
}

double HintlessFailureLog2(const HintlessShape& shape, const PackNorms& norms) {
  const double worst = Square(lwe::kMaxPlaintext) * shape.columns;
  // Roundings of the hint's rows to Q, and of the rounding of the mask to an integer: half at most
  // for each of the secret's numbers.
  const double rounding = 2 * std::sqrt(kDegree) / 2;
  const double variance = FirstStageVariance(shape, worst) +
                          Square(lwe::kSigma) * (norms.rotation + norms.conjugation +
                                                 Square(std::sqrt(norms.secret) + rounding));
  // Half of a byte's step, less half a step of the body's rounding, and what the rounding of a body
  // to Q and then to 32 bits can be: 1/2 and Q / 2^33.
  const double threshold =
      kModulusReal / 512 - kModulusReal / std::ldexp(1, kHintlessBodyBits + 1) - std::ldexp(1, 22);
  return 1 + std::log2(static_cast<double>(shape.outputs())) -
         Square(threshold) / (2 * variance) / std::log(2.0);
}

absl::StatusOr<HintlessShape> ChooseHintlessShape(uint64_t rows, uint32_t record_bytes) {
  if (rows == 0 || rows > uint64_t{1} << 36 || record_bytes == 0 ||
      record_bytes > kMaxRecordBytes) {
    return Bad("rows or record_bytes");
  }
  std::optional<HintlessShape> best;
  for (uint64_t packs = 1; packs <= kMaxPacks; ++packs) {
    const uint64_t per_column = std::min<uint64_t>(packs * kDegree / record_bytes, rows);
    if (per_column == 0) continue;
    const uint64_t columns = lwe::PaddedColumns((rows + per_column - 1) / per_column);
    if (columns > kMaxColumns) continue;
    HintlessShape shape = {.rows_per_column = static_cast<uint32_t>(per_column),
                           .columns = static_cast<uint32_t>(columns),
                           .word_bits = kMinWordBits,
                           .record_bytes = record_bytes};
    while (HintlessFailureLog2(shape, MaxPackNorms()) > kHintlessMaxFailureLog2 &&
           shape.word_bits < 32) {
      ++shape.word_bits;
    }
    if (HintlessFailureLog2(shape, MaxPackNorms()) > kHintlessMaxFailureLog2) continue;
    const auto bytes = [](const HintlessShape& s) { return s.query_bytes() + s.answer_bytes(); };
    if (!best.has_value() || bytes(shape) < bytes(*best)) best = shape;
    if (per_column == rows) break;
  }
  if (!best.has_value()) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "hintless: %d rows of %d bytes are too many for one query: use another engine", rows,
        record_bytes));
  }
  return *best;
}

std::string EncodeHintlessShape(const HintlessShape& shape) {
  Bytes bytes;
  for (const uint32_t field : {shape.rows_per_column, shape.columns, shape.word_bits, shape.draw}) {
    AppendLe<uint32_t>(bytes, field);
  }
  return ToString(bytes);
}

absl::StatusOr<HintlessShape> ParseHintlessShape(const wire::PirSetup& setup) {
  if (setup.engine() != kHintlessName) return Bad("another engine's");
  if (setup.rows_per_column() != 0 || setup.columns() != 0) {
    return Bad("rows_per_column and columns are another family's");
  }
  const BytesView bytes = AsBytes(setup.shape());
  if (bytes.size() != 4 * sizeof(uint32_t)) return Bad("shape must have 16 bytes");
  const auto field = [&](size_t i) { return LoadLe<uint32_t>(bytes.data() + 4 * i); };
  const HintlessShape shape = {.rows_per_column = field(0),
                               .columns = field(1),
                               .word_bits = field(2),
                               .draw = field(3),
                               .record_bytes = setup.record_bytes()};
  SHOAL_RETURN_IF_ERROR(CheckHintlessShape(shape, setup));
  return shape;
}

wire::PirSetup MatrixSetup(const wire::PirSetup& setup, const HintlessShape& shape) {
  wire::PirSetup matrix = setup;
  matrix.clear_shape();
  matrix.set_rows_per_column(shape.rows_per_column);
  matrix.set_columns(shape.columns);
  return matrix;
}

}  // namespace shoal::pir::rlwe
