#include "src/pir/sets/piano.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/shaped_engine.h"
#include "src/pir/sets/piano_server.h"
#include "src/pir/sets/piano_session.h"
#include "src/pir/sets/stream.h"

namespace shoal::pir::sets {
namespace {

// PirSetup.shape: a version, then the queries of a session, u32 little endian.
constexpr uint8_t kShapeVersion = 1;
constexpr size_t kShapeBytes = 1 + 4;
constexpr uint64_t kMinQueries = 16;

std::string EncodeShape(uint32_t queries) {
  Bytes shape = {kShapeVersion};
  AppendLe<uint32_t>(shape, queries);
  return ToString(shape);
}

// About sqrt(rows) ln(rows), the paper's choice: then making a session costs each query about as
// much of the stream as answering it. In whole numbers, so that all parties come to the same.
uint64_t QueriesFor(uint64_t rows) {
  uint64_t root = 1;
  while (root * root < rows) root *= 2;
  return std::max(kMinQueries, root * std::bit_width(rows - 1) * 7 / 10);
}

class PianoEngine final : public ShapedEngine {
 public:
  PianoEngine() : ShapedEngine("piano", Servers::kOne, /*keeps_state=*/true) {}

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) const override {
    SHOAL_ASSIGN_OR_RETURN(const SetShape sets, SetShapeOf(shape));
    const uint64_t table_bytes = sets.rows * sets.record_bytes;
    const uint64_t digests_bytes = StreamPieces(sets).digests_bytes();
    return Sizes{.hint_bytes = table_bytes + digests_bytes,
                 .hint_memory_bytes = HintTable::StateBytes(sets),
                 .query_bytes = sizeof(Digest) + sets.query_bytes(),
                 .answer_bytes = 2 * uint64_t{sets.record_bytes},
                 .server_bytes = table_bytes + digests_bytes};
  }

  Work WorkOf(const wire::PirSetup& shape, double) const override {
    const absl::StatusOr<SetShape> sets = SetShapeOf(shape);
    SHOAL_CHECK(sets.ok());
    const double chunks = sets->chunks, record = sets->record_bytes;
    return {.setup = {{"sets_stream_byte", static_cast<double>(sets->rows) * record}},
            .query = {{"sets_choice", static_cast<double>(sets->sets()) + chunks}},
            .answer = {{"sets_row", chunks}, {"sets_row_byte", chunks * record}},
            .recover = {{"sets_recover_byte", record}}};
  }

 protected:
  absl::StatusOr<std::string> ChooseShape(const wire::PirSetup& table) const override {
    if (table.rows() == 0) return absl::InvalidArgumentError("piano: a table without rows");
    return EncodeShape(static_cast<uint32_t>(QueriesFor(table.rows())));
  }
  absl::StatusOr<std::unique_ptr<Server>> MakeServer(wire::PirSetup setup, const Content& content,
                                                     const ServerOptions& options) const override {
    return CreatePianoServer(std::move(setup), content, options);
  }
  absl::StatusOr<std::unique_ptr<Session>> MakeSession(
      const wire::PirSetup& setup, const SessionOptions& options) const override {
    return OpenPianoSession(setup, options.store);
  }
};

}  // namespace

absl::StatusOr<SetShape> SetShapeOf(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const BytesView shape, OwnShape(setup, kShapeBytes));
  if (shape[0] != kShapeVersion) {
    return absl::InvalidArgumentError("piano setup: shape is not one of this version");
  }
  if (setup.rows() == 0 || setup.rows() > uint64_t{1} << 40) {
    return absl::InvalidArgumentError(absl::StrCat("piano setup: rows: ", setup.rows()));
  }
  return ShapeFor(setup.rows(), setup.record_bytes(), LoadLe<uint32_t>(shape.data() + 1));
}

const Engine& Piano() {
  static const PianoEngine engine;
  return engine;
}

}  // namespace shoal::pir::sets
