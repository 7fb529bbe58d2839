#include "src/pir/sets/tree_pir.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/shaped_engine.h"
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

class TreeEngine final : public ShapedEngine {
 public:
  TreeEngine() : ShapedEngine("treepir", Servers::kPair, /*keeps_state=*/true) {}

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

 protected:
  absl::StatusOr<std::string> ChooseShape(const wire::PirSetup& table) const override {
    SHOAL_ASSIGN_OR_RETURN(const TreeShape shape,
                           TreeShapeFor(table.rows(), table.record_bytes(), kQueries));
    wire::PirSetup setup = table;
    setup.set_shape(EncodeTreeSetupShape(shape.fan_bits, /*read=*/true));
    const auto read = ParseTreeSetup(setup);
    const bool reads = read.ok() && kReadPart * (read->reader_query_bytes + read->answer_bytes) <=
                                        shape.answer_bytes();
    return EncodeTreeSetupShape(shape.fan_bits, reads);
  }
  absl::StatusOr<std::unique_ptr<Server>> MakeServer(wire::PirSetup setup, const Content& content,
                                                     const ServerOptions& options) const override {
    return CreateTreeServer(std::move(setup), content, options);
  }
  absl::StatusOr<std::unique_ptr<Session>> MakeSession(
      const wire::PirSetup& setup, const SessionOptions& options) const override {
    return OpenTreeSession(setup, options.store);
  }
};

}  // namespace

uint32_t TreeHintsOf(const TreeShape& shape) { return std::min(TreeGroupOf(shape), shape.hints); }

std::string EncodeTreeSetupShape(uint32_t fan_bits, bool read) {
  return ToString(Bytes{read ? kReadAnswers : kWholeAnswers, static_cast<uint8_t>(fan_bits)});
}

absl::StatusOr<TreeSetup> ParseTreeSetup(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const BytesView encoded, OwnShape(setup, kShapeBytes));
  if ((encoded[0] != kWholeAnswers && encoded[0] != kReadAnswers) || encoded[1] == 0) {
    return absl::InvalidArgumentError("treepir setup: shape is not one of this version");
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
