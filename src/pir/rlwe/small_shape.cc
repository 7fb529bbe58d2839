#include "src/pir/rlwe/small_shape.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/lwe.h"

namespace shoal::pir::rlwe {
namespace {

constexpr uint64_t kPolynomialBytes = kPrimes * kDegree * sizeof(uint32_t);
constexpr uint64_t kMaxRows = uint64_t{1} << 36;
// Terms of a chosen shape: the vectors of a block stay in the first cache.
constexpr uint32_t kUsualTerms = 256;

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("smallpir setup: ", what));
}

uint64_t Ceil(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

uint32_t LogCeil(uint64_t n) { return static_cast<uint32_t>(std::bit_width(n - 1)); }

absl::Status CheckSmallShape(const SmallShape& shape, uint64_t rows, uint32_t record_bytes) {
  if (rows == 0 || rows > kMaxRows) {
    return Bad(absl::StrFormat("rows must be in [1, %d], got %d", kMaxRows, rows));
  }
  if (record_bytes == 0 || record_bytes > kMaxRecordBytes) {
    return Bad(
        absl::StrFormat("record_bytes must be in [1, %d], got %d", kMaxRecordBytes, record_bytes));
  }
  if (shape.slices == 0 || shape.slices > 2 * kMaxRecordBytes / kDegree) return Bad("slices");
  if (shape.terms == 0 || shape.terms > SmallShape::kMaxTerms) return Bad("terms");
  if (shape.folds > SmallShape::kMaxFolds) return Bad("folds");
  if (shape.group_rows == 0 ||
      uint64_t{shape.group_rows} * record_bytes > uint64_t{shape.slices} * kDegree) {
    return Bad("a group's rows do not fit its slices");
  }
  if (shape.capacity() < rows) return Bad("more rows than there is room for");
  return absl::OkStatus();
}

}  // namespace

uint64_t UnpackSteps(uint32_t log, uint64_t count) {
  uint64_t sum = 0;
  for (uint32_t level = 0; level < log; ++level) {
    const uint64_t nodes = std::min<uint64_t>(uint64_t{1} << level, count);
    sum += nodes << (log - 1 - level);
  }
  return sum;
}

uint32_t SmallShape::pack_log() const { return std::min(kPackLog, LogCeil(terms)); }

uint32_t SmallShape::position_elements() const {
  return static_cast<uint32_t>(Ceil(terms, uint64_t{1} << pack_log()));
}

uint32_t SmallShape::fold_elements() const {
  return static_cast<uint32_t>(Ceil(fold_values(), uint64_t{1} << kFoldPackLog));
}

uint64_t SmallShape::automorphisms() const {
  const auto parts = [](uint32_t log, uint64_t count) {
    const uint64_t room = uint64_t{1} << log;
    uint64_t sum = count / room * UnpackSteps(log, room);
    if (count % room != 0) sum += UnpackSteps(log, count % room);
    return sum;
  };
  return parts(pack_log(), terms) + parts(kFoldPackLog, fold_values());
}

uint64_t SmallShape::server_bytes() const {
  const uint64_t masks = uint64_t{slices} * outputs();
  // Digits of public parts, of automorphisms and of values; masks of values and positions.
  const uint64_t fixed = automorphisms() * kUnpackGadget.digits +
                         fold_values() * (kSquareGadget.digits + 2) + terms + masks;
  // Of a query: its elements, positions, values, the first stage's sums, and masks to fold.
  const uint64_t query = elements() + terms + 3 * uint64_t{fold_values()} + 2 * masks;
  return table_bytes() + (fixed + kTogether * query) * kPolynomialBytes;
}

absl::StatusOr<SmallShape> ChooseSmallShape(uint64_t rows, uint32_t record_bytes) {
  if (rows == 0 || rows > kMaxRows || record_bytes == 0 || record_bytes > kMaxRecordBytes) {
    return Bad("rows or record_bytes");
  }
  SmallShape shape;
  const auto least = static_cast<uint32_t>(Ceil(record_bytes, kDegree));
  double best = 0;
  for (uint32_t slices = least; slices < least + 8 && best < 0.75; ++slices) {
    const uint32_t group_rows = slices * kDegree / record_bytes;
    const double used =
        static_cast<double>(group_rows) * record_bytes / (static_cast<double>(slices) * kDegree);
    if (used <= best) continue;
    best = used;
    shape.slices = slices;
    shape.group_rows = group_rows;
  }
  const uint64_t groups = Ceil(rows, shape.group_rows);
  while (shape.folds < SmallShape::kMaxFolds && Ceil(groups, shape.outputs()) > kUsualTerms) {
    ++shape.folds;
  }
  const uint64_t terms = Ceil(groups, shape.outputs());
  if (terms > SmallShape::kMaxTerms) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "smallpir: %d rows of %d bytes are more than the %d that one query can choose among: use "
        "another engine, or wider rows",
        rows, record_bytes, SmallShape::kMaxTerms * shape.outputs() * shape.group_rows));
  }
  shape.terms = static_cast<uint32_t>(terms);
  SHOAL_RETURN_IF_ERROR(CheckSmallShape(shape, rows, record_bytes));
  return shape;
}

std::string EncodeSmallShape(const SmallShape& shape) {
  Bytes bytes;
  for (const uint32_t field : {shape.group_rows, shape.slices, shape.terms, shape.folds}) {
    AppendLe<uint32_t>(bytes, field);
  }
  return ToString(bytes);
}

absl::StatusOr<SmallShape> ParseSmallShape(const wire::PirSetup& setup) {
  if (setup.engine() != kSmallPirName) return Bad("another engine's");
  if (setup.table_id().size() != 32) return Bad("table_id must have 32 bytes");
  if (setup.manifest_digest().size() != 32) return Bad("manifest_digest must have 32 bytes");
  if (setup.rows_per_column() != 0 || setup.columns() != 0) {
    return Bad("rows_per_column and columns are another family's");
  }
  const BytesView bytes = AsBytes(setup.shape());
  if (bytes.size() != 4 * sizeof(uint32_t)) return Bad("shape must have 16 bytes");
  const auto field = [&](size_t i) { return LoadLe<uint32_t>(bytes.data() + 4 * i); };
  const SmallShape shape = {
      .group_rows = field(0), .slices = field(1), .terms = field(2), .folds = field(3)};
  SHOAL_RETURN_IF_ERROR(CheckSmallShape(shape, setup.rows(), setup.record_bytes()));
  return shape;
}

namespace {

// Good events fail with a probability of 2^-43 together: there are kDegree / 2 of one kind, and
// fewer than 8 others, each with e^-kTail.
const double kTail = 43 * std::log(2.0) + std::log(kDegree / 2 + 8);

// |A z|^2 of sub-Gaussian z of parameter 1 is above this with a probability of e^-kTail at most, if
// `trace` is at least the sum of the squares of A's entries, and `norm` the square of its largest
// singular value (Hsu, Kakade, Zhang, 2012).
double SquareBound(double trace, double norm) {
  return trace + 2 * std::sqrt(trace * norm * kTail) + 2 * norm * kTail;
}

// Squares of bounds of the secret: of its length, and of its largest frequency.
constexpr double kVariance = lwe::kSigma * lwe::kSigma;
double SecretLength() { return kVariance * SquareBound(kDegree, 1); }
double SecretFrequency() {
  const double n = kDegree;
  return kVariance * (n + n * std::sqrt(2 * kTail) + n * kTail);
}

double Square(double x) { return x * x; }

}  // namespace

SmallNoise SmallNoiseOf(const SmallShape& shape) {
  constexpr double n = kDegree;
  const auto power = [](uint32_t e) { return std::ldexp(1.0, static_cast<int>(e)); };
  SmallNoise noise;
  // A table's coefficients are of lwe::kMaxPlaintext at most; the packed elements' own errors have
  // the norm 2^kPackLog.
  noise.first_stage = kVariance * Square(lwe::kMaxPlaintext) * n * shape.terms *
                      (Square(kSmallNorms.positions) + power(2 * kPackLog));
  if (shape.folds > 0) {
    const double of_packed = power(2 * kFoldPackLog);
    const double norm = Square(kSmallNorms.values) + of_packed;
    const double row =
        kSmallNorms.values_row + of_packed * SmallShape::kMaxFolds * kFoldGadget.digits;
    const double values = kVariance * SquareBound(n * row, norm);
    const double times_secret =
        kVariance * SquareBound(row * n * SecretLength(), norm * SecretFrequency());
    const double products =
        kVariance * SquareBound(n * kSmallNorms.products_row, kSmallNorms.products_row);
    const double digit = (power(2 * kFoldGadget.bits) - 1) / 12;
    const double rest = power(2 * kFoldGadget.drop()) / 12;
    noise.fold = 4 * (digit * (Square(std::sqrt(times_secret) + std::sqrt(products)) + values) +
                      shape.folds * rest * (SecretLength() + 1));
  }
  noise.rounding =
      SecretLength() * Square(static_cast<double>(kModulus) / power(kAnswerMaskBits + 1));
  return noise;
}

double SmallFailureLog2(const SmallShape& shape) {
  const double q = static_cast<double>(kModulus);
  // Half a step of a byte, less half a step of the body's rounding, less what is off by a little
  // whatever happens: Q / 256 and FoldStep are rounded, numbers are brought to [0, 2^54) up to 2^14
  // and to 32 bits, all of it times the secret at most.
  const double secret = std::sqrt(kDegree * SecretLength());
  const double threshold = q / 512 - q / std::ldexp(1, static_cast<int>(kAnswerBodyBits) + 1) -
                           (secret + 1) * (std::ldexp(1, 22) + shape.folds * std::ldexp(1, 16));
  const double values = static_cast<double>(shape.slices) * kDegree;
  const double tail = 1 + std::log2(values) -
                      threshold * threshold / (2 * SmallNoiseOf(shape).total()) / std::log(2.0);
  return std::log2(std::exp2(tail) + std::exp2(-43));
}

}  // namespace shoal::pir::rlwe
