#include "src/pir/sets/tree_pir.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/rlwe/small_pir.h"
#include "src/pir/rlwe/small_shape.h"
#include "src/pir/sets/tree_server.h"
#include "src/pir/sets/tree_session.h"

namespace shoal::pir::sets {
namespace {

// PirSetup.shape: one of these, which says how answers are read, and fan_bits.
constexpr uint8_t kWholeAnswers = 2, kReadAnswers = 3;
constexpr size_t kShapeBytes = 2;
// Hints are enough for so many queries (TreeShapeFor), and serve more.
constexpr uint64_t kQueries = uint64_t{1} << 20;
// A longer answer to one query is no use to anybody.
constexpr uint64_t kMaxAnswerBytes = uint64_t{64} << 20;
// Small PIR reads answers where bytes sent in both directions are at most this part of them. It
// takes a server some twenty times as long as the answer itself.
constexpr uint64_t kReadPart = 8;

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
      setup.set_shape(EncodeTreeSetupShape(shape.fan_bits, /*read=*/true));
      const auto read = ParseTreeSetup(setup);
      if (!read.ok() ||
          kReadPart * (read->reader_query_bytes + read->answer_bytes) > shape.answer_bytes()) {
        setup.set_shape(EncodeTreeSetupShape(shape.fan_bits));
      }
    }
    SHOAL_RETURN_IF_ERROR(SizesOfShape(setup).status());
    if (options.shape.has_value() && !SameShape(setup, *options.shape)) {
      return absl::InvalidArgumentError("treepir: a shape that this table does not have");
    }
    return setup;
  }

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const TreeSetup parsed, ParseTreeSetup(setup));
    const TreeShape& shape = parsed.shape;
    Sizes sizes;
    sizes.hint_memory_bytes = shape.client_bytes();
    sizes.prepare_bytes = shape.parity_bytes();
    // Of each of the two servers.
    sizes.query_bytes = 2 * (sizeof(Digest) + shape.query_bytes() + parsed.reader_query_bytes);
    sizes.answer_bytes = 2 * parsed.answer_bytes;
    sizes.server_bytes = 2 * shape.table_bytes();
    if (parsed.reader.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(const rlwe::SmallShape reader, rlwe::ParseSmallShape(*parsed.reader));
      sizes.server_bytes += 2 * reader.server_bytes();
    }
    return sizes;
  }

  Work WorkOf(const wire::PirSetup& setup, double) const override {
    const auto parsed = ParseTreeSetup(setup);
    SHOAL_CHECK(parsed.ok());
    const TreeShape& shape = parsed->shape;
    const double bytes = shape.record_bytes;
    const double table_bytes = static_cast<double>(shape.table_bytes());
    const double blocks = static_cast<double>(shape.hints) * shape.levels();
    const double rows = 2 * shape.rows_read();
    const double hint_rows = static_cast<double>(shape.hints) * shape.chunks;
    Work work = {
        .setup = {{"sets_copy_byte", 2 * table_bytes}},
        .query = {{"tree_block", blocks}},
        .answer = {{"tree_row", rows}, {"tree_row_byte", rows * bytes}},
        .recover = {{"tree_recover_byte", bytes}},
        .prepare = {{"tree_hint_row", hint_rows}, {"tree_hint_row_byte", hint_rows * bytes}}};
    if (!parsed->reader.has_value()) return work;
    // At both servers its table is made for each query, which has it for itself.
    const Work reader = rlwe::SmallPir().WorkOf(*parsed->reader, 1);
    const auto add = [](const std::vector<Amount>& amounts, std::vector<Amount>& to) {
      for (const Amount& each : amounts) {
        const auto same = std::ranges::find(to, each.unit, &Amount::unit);
        if (same == to.end()) {
          to.push_back({each.unit, 2 * each.amount});
        } else {
          same->amount += 2 * each.amount;
        }
      }
    };
    add(reader.setup, work.answer);
    add(reader.answer, work.answer);
    add(reader.query, work.query);
    add(reader.recover, work.recover);
    return work;
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

std::string EncodeTreeSetupShape(uint32_t fan_bits, bool read) {
  return ToString(Bytes{read ? kReadAnswers : kWholeAnswers, static_cast<uint8_t>(fan_bits)});
}

absl::StatusOr<TreeSetup> ParseTreeSetup(const wire::PirSetup& setup) {
  const BytesView encoded = AsBytes(setup.shape());
  if (encoded.size() != kShapeBytes ||
      (encoded[0] != kWholeAnswers && encoded[0] != kReadAnswers) || encoded[1] == 0 ||
      setup.rows_per_column() != 0 || setup.columns() != 0 ||
      setup.record_bytes() > kMaxRecordBytes) {
    return absl::InvalidArgumentError(
        "treepir setup: shape, rows_per_column, columns, record_bytes");
  }
  TreeSetup parsed;
  SHOAL_ASSIGN_OR_RETURN(parsed.shape,
                         TreeShapeFor(setup.rows(), setup.record_bytes(), kQueries, encoded[1]));
  parsed.answer_bytes = parsed.shape.answer_bytes();
  if (parsed.answer_bytes > kMaxAnswerBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("treepir setup: rows and record_bytes make answers of ", parsed.answer_bytes,
                     " bytes, and ", kMaxAnswerBytes, " is the most"));
  }
  if (encoded[0] == kWholeAnswers) return parsed;
  Content answer;
  answer.epoch = 1;
  answer.rows = parsed.shape.chunks;
  answer.record_bytes = parsed.shape.record_bytes;
  if (setup.table_id().size() != answer.table_id.size()) {
    return absl::InvalidArgumentError("treepir setup: table_id");
  }
  std::ranges::copy(AsBytes(setup.table_id()), answer.table_id.begin());
  SHOAL_ASSIGN_OR_RETURN(parsed.reader, rlwe::SmallPir().ShapeOf(answer, {}));
  SHOAL_ASSIGN_OR_RETURN(const rlwe::SmallShape reader, rlwe::ParseSmallShape(*parsed.reader));
  parsed.reader_query_bytes = reader.query_bytes();
  parsed.answer_bytes = reader.answer_bytes();
  return parsed;
}

const Engine& TreePir() {
  static const TreeEngine engine;
  return engine;
}

}  // namespace shoal::pir::sets
