#include "src/pir/sets/single_pass.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/shaped_engine.h"
#include "src/pir/sets/single_pass_server.h"
#include "src/pir/sets/single_pass_session.h"

namespace shoal::pir::sets {
namespace {

// PirSetup.shape: a version, and u32 the chunks.
constexpr uint8_t kShapeVersion = 3;
constexpr size_t kShapeBytes = 1 + 4;
// Parities are a 32nd of the table, and a query has 64 records.
constexpr uint32_t kChunks = 32;
// The offline server draws the permutations of all rows for each request. With more rows that would
// take seconds, in which the next epoch waits.
constexpr uint64_t kMaxRows = uint64_t{1} << 26;
// A longer answer to one query is no use to anybody.
constexpr uint64_t kMaxAnswerBytes = uint64_t{64} << 20;
constexpr uint64_t kPartBytes = uint64_t{8} << 20;

class SinglePassEngine final : public ShapedEngine {
 public:
  SinglePassEngine() : ShapedEngine("permuted", Servers::kPair, /*keeps_state=*/true) {}

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const SinglePassShape shape, SinglePassShapeOf(setup));
    Sizes sizes;
    sizes.hint_memory_bytes = shape.parity_bytes() + sizeof(uint32_t) * shape.places();
    sizes.prepare_bytes = shape.parity_bytes();
    sizes.query_bytes = 2 * (sizeof(Digest) + shape.query_bytes());
    sizes.answer_bytes = 2 * shape.answer_bytes();
    sizes.server_bytes = 2 * shape.rows * shape.record_bytes;  // a copy at each
    return sizes;
  }

  Work WorkOf(const wire::PirSetup& setup, double) const override {
    const auto shape = SinglePassShapeOf(setup);
    SHOAL_CHECK(shape.ok());
    const auto rows = static_cast<double>(shape->rows);
    const double bytes = shape->record_bytes, chunks = shape->chunks;
    const double requests = (shape->chunk_rows - 1) / SinglePassPartOf(*shape) + 1;
    const double drawn = requests * static_cast<double>(shape->places());
    return {.setup = {{"sets_copy_byte", 2 * rows * bytes}},
            .query = {{"permuted_search", double{1} * shape->chunk_rows}},
            .answer = {{"permuted_row", 2 * chunks}, {"permuted_row_byte", 2 * chunks * bytes}},
            .recover = {{"permuted_recover_byte", chunks * bytes}},
            .prepare = {{"permuted_draw", drawn},
                        {"permuted_hint_row", rows},
                        {"permuted_hint_row_byte", rows * bytes}}};
  }

 protected:
  absl::StatusOr<std::string> ChooseShape(const wire::PirSetup&) const override {
    return EncodePermutedSetupShape(kChunks);
  }
  absl::StatusOr<std::unique_ptr<Server>> MakeServer(wire::PirSetup setup, const Content& content,
                                                     const ServerOptions& options) const override {
    return CreatePermutedServer(std::move(setup), content, options);
  }
  absl::StatusOr<std::unique_ptr<Session>> MakeSession(
      const wire::PirSetup& setup, const SessionOptions& options) const override {
    return OpenPermutedSession(setup, options);
  }
};

}  // namespace

uint32_t SinglePassPartOf(const SinglePassShape& shape) {
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(kPartBytes / shape.record_bytes, 1, shape.chunk_rows));
}

std::string EncodePermutedSetupShape(uint32_t chunks) {
  Bytes encoded = {kShapeVersion};
  AppendLe<uint32_t>(encoded, chunks);
  return ToString(encoded);
}

absl::StatusOr<SinglePassShape> SinglePassShapeOf(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const BytesView encoded, OwnShape(setup, kShapeBytes));
  if (encoded[0] != kShapeVersion) {
    return absl::InvalidArgumentError("permuted setup: shape is not one of this version");
  }
  if (setup.rows() > kMaxRows) {
    return absl::InvalidArgumentError(
        absl::StrCat("permuted setup: ", setup.rows(), " rows, and ", kMaxRows, " are the most"));
  }
  SHOAL_ASSIGN_OR_RETURN(
      const SinglePassShape shape,
      SinglePassShapeFor(setup.rows(), setup.record_bytes(), LoadLe<uint32_t>(encoded.data() + 1)));
  if (shape.answer_bytes() > kMaxAnswerBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("permuted setup: chunks and record_bytes make answers of ",
                     shape.answer_bytes(), " bytes, and ", kMaxAnswerBytes, " is the most"));
  }
  return shape;
}

const Engine& SinglePass() {
  static const SinglePassEngine engine;
  return engine;
}

}  // namespace shoal::pir::sets
