#include "src/pir/sets/tree_pir.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/sets/tree_server.h"
#include "src/pir/sets/tree_session.h"

namespace shoal::pir::sets {
namespace {

// PirSetup.shape: a version, and fan_bits.
constexpr uint8_t kShapeVersion = 2;
constexpr size_t kShapeBytes = 2;
// Hints are enough for so many queries (TreeShapeFor), and serve more.
constexpr uint64_t kQueries = uint64_t{1} << 20;
// A longer answer to one query is no use to anybody.
constexpr uint64_t kMaxAnswerBytes = uint64_t{64} << 20;

class TreeEngine final : public Engine {
 public:
  absl::string_view name() const override { return "treepir"; }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kOffline, Role::kOnline};
    return kRoles;
  }
  bool keeps_state() const override { return true; }
  bool IsHeavy(Role role, uint32_t kind) const override {
    return role == Role::kOffline && kind == kTreeHints;
  }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const override {
    wire::PirSetup setup;
    setup.set_engine(std::string(name()));
    setup.set_table_id(ToString(content.table_id));
    setup.set_epoch(content.epoch);
    setup.set_manifest_digest(ToString(content.manifest_digest));
    setup.set_rows(content.rows);
    setup.set_record_bytes(content.record_bytes);
    if (options.shape.has_value()) {
      setup.set_shape(options.shape->shape());
    } else {
      SHOAL_ASSIGN_OR_RETURN(const TreeShape shape,
                             TreeShapeFor(content.rows, content.record_bytes, kQueries));
      setup.set_shape(EncodeTreeSetupShape(shape.fan_bits));
    }
    SHOAL_RETURN_IF_ERROR(SizesOfShape(setup).status());
    if (options.shape.has_value() && !SameShape(setup, *options.shape)) {
      return absl::InvalidArgumentError("treepir: a shape that this table does not have");
    }
    return setup;
  }

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const TreeShape shape, TreeShapeOf(setup));
    Sizes sizes;
    sizes.hint_memory_bytes = shape.client_bytes();
    sizes.prepare_bytes = shape.parity_bytes();
    sizes.query_bytes = 2 * (sizeof(Digest) + shape.query_bytes());
    sizes.answer_bytes = 2 * shape.answer_bytes();
    sizes.server_bytes = 2 * shape.table_bytes();  // a copy at each
    return sizes;
  }

  Work WorkOf(const wire::PirSetup& setup, double) const override {
    const auto shape = TreeShapeOf(setup);
    SHOAL_CHECK(shape.ok());
    const double bytes = shape->record_bytes;
    const double table_bytes = static_cast<double>(shape->table_bytes());
    const double blocks = static_cast<double>(shape->hints) * shape->levels();
    const double rows = 2 * shape->rows_read();
    const double hint_rows = static_cast<double>(shape->hints) * shape->chunks;
    return {.setup = {{"sets_copy_byte", 2 * table_bytes}},
            .query = {{"tree_block", blocks}},
            .answer = {{"tree_row", rows}, {"tree_row_byte", rows * bytes}},
            .recover = {{"tree_recover_byte", bytes}},
            .prepare = {{"tree_hint_row", hint_rows}, {"tree_hint_row_byte", hint_rows * bytes}}};
  }

  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const override {
    SHOAL_ASSIGN_OR_RETURN(wire::PirSetup setup, ShapeOf(content, options));
    if (!options.product.empty()) {
      return absl::InvalidArgumentError("treepir: a server of it has no product");
    }
    return CreateTreeServer(std::move(setup), content, options);
  }

  absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const override {
    if (setups.size() != 2 || options.store == nullptr) {
      return absl::InvalidArgumentError("treepir: two setups and a place for the state are needed");
    }
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    // With them the manifest's digest.
    if (SetupId(setups[0]) != SetupId(setups[1])) {
      return absl::InvalidArgumentError("treepir: the servers have different setups");
    }
    return OpenTreeSession(setups[0], options.store);
  }
};

}  // namespace

uint32_t TreeHintsOf(const TreeShape& shape) { return std::min(TreeGroupOf(shape), shape.hints); }

std::string EncodeTreeSetupShape(uint32_t fan_bits) {
  return ToString(Bytes{kShapeVersion, static_cast<uint8_t>(fan_bits)});
}

absl::StatusOr<TreeShape> TreeShapeOf(const wire::PirSetup& setup) {
  const BytesView encoded = AsBytes(setup.shape());
  if (encoded.size() != kShapeBytes || encoded[0] != kShapeVersion || encoded[1] == 0 ||
      setup.rows_per_column() != 0 || setup.columns() != 0 ||
      setup.record_bytes() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        "treepir setup: shape, rows_per_column, columns, record_bytes");
  }
  SHOAL_ASSIGN_OR_RETURN(const TreeShape shape,
                         TreeShapeFor(setup.rows(), setup.record_bytes(), kQueries, encoded[1]));
  if (shape.answer_bytes() > kMaxAnswerBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("treepir setup: rows and record_bytes make answers of ", shape.answer_bytes(),
                     " bytes, and ", kMaxAnswerBytes, " is the most"));
  }
  return shape;
}

const Engine& TreePir() {
  static const TreeEngine engine;
  return engine;
}

}  // namespace shoal::pir::sets
