// What a setup of the engine `pair` says (pair.h): how queries are written.
#ifndef SHOAL_SRC_PIR_PAIR_PAIR_SHAPE_H_
#define SHOAL_SRC_PIR_PAIR_PAIR_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"
#include "src/pir/pair/point_keys.h"
#include "src/select/select.h"

namespace shoal::pir::pair {

// How the bits of all rows are sent.
enum class Form : uint8_t {
  kVector = 0,  // as they are (src/select/select.h)
  kKey = 1,     // a key that expands to them (point_keys.h)
};

struct PairShape {
  Form form = Form::kVector;
  uint64_t rows = 0;
  uint32_t record_bytes = 0;

  uint32_t levels() const { return LevelsFor(rows); }
  // Of one query to one server, behind the header.
  uint64_t body_bytes() const {
    return form == Form::kVector ? select::SelectionBytes(rows) : PointKeyBytes(levels());
  }
  uint64_t query_bytes() const { return kQueryHeaderBytes + body_bytes(); }
  uint64_t answer_bytes() const { return record_bytes; }
  uint64_t table_bytes() const { return rows * record_bytes; }
};

// The form with the fewer bytes.
Form ShorterForm(uint64_t rows);

// PirSetup.shape.
std::string EncodePairShape(Form form);

// INVALID_ARGUMENT names what is out of range.
absl::StatusOr<PairShape> ParsePairShape(const wire::PirSetup& setup);

}  // namespace shoal::pir::pair

#endif  // SHOAL_SRC_PIR_PAIR_PAIR_SHAPE_H_
