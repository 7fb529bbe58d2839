#include "src/pir/rlwe/hintless.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/pir/rlwe/hintless_server.h"
#include "src/pir/rlwe/hintless_session.h"
#include "src/pir/rlwe/hintless_shape.h"

namespace shoal::pir::rlwe {
namespace {

absl::StatusOr<wire::PirSetup> SetupOf(const Content& content, const ServerOptions& options) {
  wire::PirSetup setup;
  setup.set_engine(std::string(kHintlessName));
  setup.set_table_id(ToString(content.table_id));
  setup.set_epoch(content.epoch);
  setup.set_manifest_digest(ToString(content.manifest_digest));
  setup.set_rows(content.rows);
  setup.set_record_bytes(content.record_bytes);
  if (options.shape.has_value() && !options.shape->shape().empty()) {
    setup.set_shape(options.shape->shape());
  } else {
    SHOAL_ASSIGN_OR_RETURN(const HintlessShape shape,
                           ChooseHintlessShape(content.rows, content.record_bytes));
    setup.set_shape(EncodeHintlessShape(shape));
  }
  SHOAL_RETURN_IF_ERROR(ParseHintlessShape(setup).status());
  return setup;
}

class HintlessEngine final : public Engine {
 public:
  absl::string_view name() const override { return kHintlessName; }
  std::span<const Role> roles() const override {
    static constexpr Role kRoles[] = {Role::kSingle};
    return kRoles;
  }
  bool keeps_state() const override { return false; }

  absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                         const ServerOptions& options) const override {
    return SetupOf(content, options);
  }
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
    return {.setup = {{"hintless_encode", elements}, {"hintless_pack", packs}},
            .query = {{"hintless_block", static_cast<double>(shape->blocks())}},
            .answer = {{"hintless_pass_byte", table * HintlessPasses(shared) / shared},
                       {"hintless_digit_byte", digits * HintlessPasses(shared) / shared}},
            .recover = {{"hintless_recover", packs}}};
  }

  absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                       ServerOptions options) const override;
  absl::StatusOr<std::unique_ptr<Session>> OpenSession(std::span<const wire::PirSetup> setups,
                                                       const SessionOptions&) const override {
    SHOAL_CHECK(setups.size() == 1);
    // Also refuses a setup of another engine, or with a hint.
    SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
    return OpenHintlessSession(setups[0]);
  }
};

}  // namespace
}  // namespace shoal::pir::rlwe
