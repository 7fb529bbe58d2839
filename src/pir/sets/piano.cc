#include "src/pir/sets/piano.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
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

class PianoEngine final : public Engine {
 public:
  absl::string_view name() const override { return "piano"; }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kSingle};
    return kRoles;
  }
  bool keeps_state() const override { return true; }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const override {
    if (content.rows == 0) return absl::InvalidArgumentError("piano: a table without rows");
    wire::PirSetup setup;
    setup.set_engine(std::string(name()));
    setup.set_table_id(ToString(content.table_id));
    setup.set_epoch(content.epoch);
    setup.set_manifest_digest(ToString(content.manifest_digest));
    setup.set_rows(content.rows);
    setup.set_record_bytes(content.record_bytes);
    setup.set_shape(options.shape.has_value()
                        ? options.shape->shape()
                        : EncodeShape(static_cast<uint32_t>(QueriesFor(content.rows))));
    SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfShape(setup));
    setup.set_hint_bytes(sizes.hint_bytes);
    return setup;
  }

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

  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const override {
    SHOAL_ASSIGN_OR_RETURN(wire::PirSetup setup, ShapeOf(content, options));
    if (!options.product.empty()) {
      return absl::InvalidArgumentError("piano: a server of it has no product");
    }
    return CreatePianoServer(std::move(setup), content, options);
  }

  absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const override {
    SHOAL_CHECK(setups.size() == 1 && options.store != nullptr);
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    return OpenPianoSession(setups[0], options.store);
  }
};

}  // namespace

absl::StatusOr<SetShape> SetShapeOf(const wire::PirSetup& setup) {
  const BytesView shape = AsBytes(setup.shape());
  if (shape.size() != kShapeBytes || shape[0] != kShapeVersion) {
    return absl::InvalidArgumentError("piano setup: shape is not one of this version");
  }
  if (setup.rows_per_column() != 0 || setup.columns() != 0) {
    return absl::InvalidArgumentError("piano setup: rows_per_column and columns are for a matrix");
  }
  if (setup.rows() == 0 || setup.rows() > uint64_t{1} << 40) {
    return absl::InvalidArgumentError(absl::StrCat("piano setup: rows: ", setup.rows()));
  }
  if (setup.record_bytes() == 0 || setup.record_bytes() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("piano setup: record_bytes: ", setup.record_bytes()));
  }
  return ShapeFor(setup.rows(), setup.record_bytes(), LoadLe<uint32_t>(shape.data() + 1));
}

const Engine& Piano() {
  static const PianoEngine engine;
  return engine;
}

}  // namespace shoal::pir::sets
