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
  if (SmallFailureLog2(shape) > kSmallMaxFailureLog2) return Bad("answers would be too noisy");
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

SmallNoise SmallNoiseOf(const SmallShape& shape) {
  constexpr double n = kDegree;
  constexpr double sigma2 = lwe::kSigma * lwe::kSigma;
  const auto square = [](double x) { return x * x; };
  // Of digits that look uniform, and of what they leave out.
  const auto digits = [&](const Gadget& g) {
    return n * g.digits * std::ldexp(1, 2 * static_cast<int>(g.bits)) / 12;
  };
  const auto rest = [&](const Gadget& g) {
    return n * std::ldexp(1, 2 * static_cast<int>(g.drop())) / 12;
  };

  SmallNoise noise;
  noise.automorphism = sigma2 * (digits(kUnpackGadget) + rest(kUnpackGadget));
  // The doubling at level t, of 2^log: 2^(log - 1 - t) automorphisms, whose errors are taken
  // through as many more doublings, each of which doubles the mean variance.
  const auto unpacked = [&](uint32_t log) {
    double variance = sigma2 * std::ldexp(1, static_cast<int>(log));
    for (uint32_t left = 0; left < log; ++left) {
      variance += noise.automorphism * std::ldexp(1, static_cast<int>(2 * left));
    }
    return variance;
  };
  noise.position = unpacked(shape.pack_log());
  noise.fold_value = unpacked(kFoldPackLog);

  // The worst content aligns with the largest singular value of the map from the key's errors to
  // those of the positions: 1 + sqrt(N / K) times what random content has, for N coefficients of
  // errors that are functions of K numbers.
  const double coefficients = n * shape.terms;
  const double sources = n * (kUnpackGadget.digits + 1);
  noise.first_stage = square(lwe::kMaxPlaintext * (1 + std::sqrt(coefficients / sources))) *
                      coefficients * noise.position;

  // An encryption of a value, and of its product with the secret: the error times the secret, and
  // what the key for the square adds.
  const double product = n * sigma2 * noise.fold_value + sigma2 * digits(kSquareGadget) +
                         rest(kSquareGadget) * n * square(sigma2);
  const double left_out = rest(kFoldGadget) * (sigma2 + 1 / n);
  noise.fold = digits(kFoldGadget) * (product + noise.fold_value) + left_out;
  // Digits at the ends of their range (3 times the variance) that also oscillate like the secret's
  // largest frequency, whose square exceeds the mean ln(n 2^41)-fold with a probability of 2^-41.
  noise.fold_worst = 3 * std::log(n * std::ldexp(1, 41)) * noise.fold;

  noise.total = noise.first_stage;
  if (shape.folds > 0) noise.total += noise.fold_worst + (shape.folds - 1) * noise.fold;
  // The mask's rounding, times the secret.
  noise.total +=
      n * sigma2 / 12 * square(static_cast<double>(kModulus) / std::ldexp(1, kAnswerMaskBits));
  return noise;
}

double SmallFailureLog2(const SmallShape& shape) {
  const double q = static_cast<double>(kModulus);
  // Half a step of a byte, less half a step of the body's rounding, and what rounding Q / 256 to an
  // integer and the mask's rounding of a body can be: below 2^10.
  const double threshold =
      q / 512 - q / std::ldexp(1, static_cast<int>(kAnswerBodyBits) + 1) - 1024;
  const double values = static_cast<double>(shape.slices) * kDegree;
  return 1 + std::log2(values) -
         threshold * threshold / (2 * SmallNoiseOf(shape).total) / std::log(2.0);
}

}  // namespace shoal::pir::rlwe
