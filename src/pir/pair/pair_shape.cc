#include "src/pir/pair/pair_shape.h"

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/shaped_engine.h"

namespace shoal::pir::pair {
namespace {

// PirSetup.shape: a version, and the form.
constexpr uint8_t kShapeVersion = 4;
constexpr size_t kShapeBytes = 2;
// Of vectors of 128 KiB; keys are shorter from some hundred rows on.
constexpr uint64_t kMaxVectorRows = uint64_t{1} << 20;
constexpr uint64_t kMaxKeyRows = kLeafRows << kMaxLevels;

}  // namespace

Form ShorterForm(uint64_t rows) {
  if (rows > kMaxVectorRows) return Form::kKey;
  return select::SelectionBytes(rows) <= PointKeyBytes(LevelsFor(rows)) ? Form::kVector
                                                                        : Form::kKey;
}

std::string EncodePairShape(Form form) {
  return {static_cast<char>(kShapeVersion), static_cast<char>(form)};
}

absl::StatusOr<PairShape> ParsePairShape(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const BytesView encoded, OwnShape(setup, kShapeBytes));
  if (encoded[0] != kShapeVersion || encoded[1] > static_cast<uint8_t>(Form::kKey)) {
    return absl::InvalidArgumentError("pair setup: shape is not one of this version");
  }
  const PairShape shape = {.form = static_cast<Form>(encoded[1]),
                           .rows = setup.rows(),
                           .record_bytes = setup.record_bytes()};
  const uint64_t most = shape.form == Form::kVector ? kMaxVectorRows : kMaxKeyRows;
  if (shape.rows == 0 || shape.rows > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("pair setup: ", shape.rows, " rows, and 1 to ", most, " are possible"));
  }
  if (shape.record_bytes > select::kMaxRowBytes) {
    return absl::InvalidArgumentError(absl::StrCat("pair setup: record_bytes: ", shape.record_bytes,
                                                   ", and ", select::kMaxRowBytes,
                                                   " are the most: build the table with shorter "
                                                   "rows"));
  }
  return shape;
}

}  // namespace shoal::pir::pair
