#include "src/pir/rlwe/hintless.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/pir/kit/measure.h"
#include "src/pir/kit/shaped_engine.h"
#include "src/pir/kit/stateless_session.h"
#include "src/pir/rlwe/hintless_server.h"
#include "src/pir/rlwe/hintless_session.h"
#include "src/pir/rlwe/hintless_shape.h"

namespace shoal::pir::rlwe {
namespace {

class HintlessEngine final : public ShapedEngine {
 public:
  HintlessEngine() : ShapedEngine(kHintlessName, Servers::kOne, /*keeps_state=*/false) {}

  absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& setup) const override {
    SHOAL_ASSIGN_OR_RETURN(const HintlessShape shape, ParseHintlessShape(setup));
    Sizes sizes;
    sizes.query_bytes = shape.query_bytes();
    sizes.answer_bytes = shape.answer_bytes();
    sizes.server_bytes = shape.server_bytes();
    return sizes;
  }
  Work WorkOf(const wire::PirSetup& setup, double together) const override {
    const absl::StatusOr<HintlessShape> shape = ParseHintlessShape(setup);
    SHOAL_CHECK(shape.ok());
    // Of what shares a pass, no more than so many.
    const double shared = std::clamp<double>(together, 1, HintlessShape::kTogether);
    const auto table = static_cast<double>(shape->table_bytes());
    const auto digits = static_cast<double>(shape->digits_bytes());
    const auto packs = static_cast<double>(shape->packs());
    const auto elements = static_cast<double>(shape->outputs() * shape->blocks());
    // The pass is that of src/pir/lwe.
    Work work = {.setup = {{"hintless_encode", elements}, {"hintless_pack", packs}},
                 .query = {{"hintless_block", static_cast<double>(shape->blocks())}},
                 .answer = {{"pir_pass_byte", table / shared},
                            {"pir_word", shape->columns + static_cast<double>(shape->outputs())},
                            {"hintless_digit_byte", digits / shared}},
                 .recover = {{"hintless_recover", packs}}};
    if (shared > 1) {
      const double more = (shared - 1) / shared;
      work.answer.push_back({"pir_query_byte", table * more});
      work.answer.push_back({"hintless_more_digit_byte", digits * more});
    }
    return work;
  }

 protected:
  absl::StatusOr<std::string> ChooseShape(const wire::PirSetup& table) const override {
    SHOAL_ASSIGN_OR_RETURN(const HintlessShape shape,
                           ChooseHintlessShape(table.rows(), table.record_bytes()));
    return EncodeHintlessShape(shape);
  }
  absl::StatusOr<std::unique_ptr<Server>> MakeServer(wire::PirSetup setup, const Content& content,
                                                     const ServerOptions& options) const override {
    return HasShape(options) ? HintlessServer::Create(content, setup, options, {})
                             : HintlessServer::CreateAtFirstDraw(content, setup, options, {});
  }
  absl::StatusOr<std::unique_ptr<Session>> MakeSession(const wire::PirSetup& setup,
                                                       const SessionOptions&) const override {
    return OpenStatelessSession<HintlessClient>(setup);
  }
};

// A server and a client over a table whose values fill `packs` packs and whose columns fill
// `blocks` ring elements. No cost depends on a value.
struct Measured {
  Measured(uint32_t packs, uint32_t blocks, ThreadPool& pool)
      : shape{.rows_per_column = packs,
              .columns = blocks * kDegree,
              .word_bits = kMinWordBits,
              .record_bytes = kDegree},
        content(ContentToMeasure(uint64_t{packs} * blocks * kDegree, kDegree)) {
    ServerOptions options = {.pool = &pool};
    options.shape.emplace().set_shape(EncodeHintlessShape(shape));
    const wire::PirSetup setup = *Hintless().ShapeOf(content, options);
    const Stopwatch set_up(Stopwatch::kProcess);
    server = *HintlessServer::Create(content, setup, options, {});
    setup_ns = static_cast<double>(set_up.Nanoseconds());
    client = *HintlessClient::Create(setup);
  }
  HintlessShape shape;
  Content content;
  std::unique_ptr<HintlessServer> server;
  std::unique_ptr<HintlessClient> client;
  double setup_ns = 0;
};

}  // namespace

const Engine& Hintless() {
  static const HintlessEngine engine;
  return engine;
}

std::vector<Amount> MeasureHintlessUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool) {
  // As many digits as no cache holds; the table's part is measured by src/pir/lwe.
  constexpr uint32_t kPacks = 4;
  const auto blocks = static_cast<uint32_t>(
      std::clamp<uint64_t>(bytes / (uint64_t{kPacks} * kDegree * kDegree), 2, 12));
  const Measured narrow(kPacks, 1, pool), wide(kPacks, blocks, pool);
  constexpr double kValues = kPacks * double{kDegree};
  const double encode = CostOf((wide.setup_ns - narrow.setup_ns) / (kValues * (blocks - 1)));

  std::vector<HintlessAsked> asked(HintlessShape::kTogether);
  const double ask_ns = TypicalNanoseconds([&] {
    for (size_t i = 0; i < asked.size(); ++i) asked[i] = wide.client->Ask(i, random);
  });
  std::vector<BytesView> queries;
  for (const HintlessAsked& each : asked) queries.push_back(each.query);
  const auto pack = [&](size_t count) {
    double best = 1e99;
    for (int i = 0; i < 3; ++i) {
      best = std::min(best, wide.server->Measure(std::span(queries).first(count))->pack);
    }
    return best * 1e9 / static_cast<double>(wide.shape.digits_bytes());
  };
  const double one = CostOf(pack(1));
  const double more = CostOf((pack(asked.size()) - one) / (HintlessShape::kTogether - 1));
  const RequestView view = {.kind = 0, .count = 1, .body = queries[0]};
  const Bytes answer = *wide.server->Answer(Role::kSingle, {&view, 1})[0];
  const double recover_ns =
      TypicalNanoseconds([&] { SHOAL_CHECK(wide.client->Recover(asked[0], answer).ok()); });
  return {
      {"hintless_encode", encode},
      {"hintless_pack", CostOf(narrow.setup_ns / kPacks - encode * kDegree)},
      {"hintless_digit_byte", one},
      {"hintless_more_digit_byte", more},
      {"hintless_block", CostOf(ask_ns / static_cast<double>(asked.size() * blocks))},
      {"hintless_recover", CostOf(recover_ns / kPacks)},
  };
}

}  // namespace shoal::pir::rlwe
