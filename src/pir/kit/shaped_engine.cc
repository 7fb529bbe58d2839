#include "src/pir/kit/shaped_engine.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/pir/kit/checks.h"
#include "src/pir/kit/table_server.h"

namespace shoal::pir {

std::span<const Role> ShapedEngine::roles() const {
  if (servers_ == Servers::kOne) return kSingleRole;
  return kPairRoles;
}

bool ShapedEngine::IsHeavy(Role role, uint32_t kind) const {
  return servers_ == Servers::kPair && keeps_state_ && role == Role::kOffline &&
         kind == PairServer::kHints;
}

bool HasShape(const ServerOptions& options) {
  return options.shape.has_value() && !options.shape->shape().empty();
}

absl::StatusOr<wire::PirSetup> ShapedEngine::ShapeOf(const Content& content,
                                                     const ServerOptions& options) const {
  wire::PirSetup setup = SetupOf(name_, content);
  if (HasShape(options)) {
    setup.set_shape(options.shape->shape());
  } else {
    SHOAL_ASSIGN_OR_RETURN(*setup.mutable_shape(), ChooseShape(setup));
  }
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfShape(setup));
  setup.set_hint_bytes(sizes.hint_bytes);
  return setup;
}

absl::StatusOr<std::unique_ptr<Server>> ShapedEngine::CreateServer(const Content& content,
                                                                   ServerOptions options) const {
  SHOAL_ASSIGN_OR_RETURN(wire::PirSetup setup, ShapeOf(content, options));
  if (!options.product.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": a server of it has no product"));
  }
  return MakeServer(std::move(setup), content, options);
}

absl::StatusOr<std::unique_ptr<Session>> ShapedEngine::OpenSession(
    std::span<const wire::PirSetup> setups, const SessionOptions& options) const {
  if (setups.size() != roles().size() || (keeps_state_ && options.store == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ": ", roles().size() == 1 ? "one setup" : "two setups",
                     keeps_state_ ? " and a place for the state are needed" : " is needed"));
  }
  SHOAL_RETURN_IF_ERROR(SizesOf(setups[0]).status());
  for (const wire::PirSetup& setup : setups.subspan(1)) {
    // With them the manifest's digest.
    if (SetupId(setup) != SetupId(setups[0])) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": the servers have different setups"));
    }
  }
  return MakeSession(setups[0], options);
}

absl::StatusOr<BytesView> OwnShape(const wire::PirSetup& setup, size_t bytes) {
  const auto bad = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(setup.engine(), " setup: ", what));
  };
  if (setup.rows_per_column() != 0 || setup.columns() != 0) {
    return bad("rows_per_column and columns are another family's");
  }
  if (setup.record_bytes() == 0 || setup.record_bytes() > kMaxRecordBytes) {
    return bad(absl::StrCat("record_bytes: ", setup.record_bytes(), ", and ", kMaxRecordBytes,
                            " are the most"));
  }
  const BytesView shape = AsBytes(setup.shape());
  if (shape.size() != bytes) {
    return bad(absl::StrCat("shape has ", shape.size(), " bytes instead of ", bytes));
  }
  return shape;
}

}  // namespace shoal::pir
