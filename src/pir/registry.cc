#include "src/pir/registry.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/double_pir.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/lwe/simple_pir.h"

namespace shoal::pir {

absl::string_view EngineName(Engine engine) {
  switch (engine) {
    case Engine::kSimplePir:
      return "simplepir";
    case Engine::kDoublePir:
      return "doublepir";
  }
  SHOAL_CHECK(false);
}

absl::StatusOr<Engine> ParseEngine(absl::string_view name) {
  for (Engine engine : kAllEngines) {
    if (EngineName(engine) == name) return engine;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no engine \"", name, "\": simplepir or doublepir"));
}

absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) {
  SHOAL_ASSIGN_OR_RETURN(const Engine engine, ParseEngine(shape.engine()));
  return engine == Engine::kSimplePir ? lwe::SimplePirSizes(shape) : lwe::DoublePirSizes(shape);
}

absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfShape(setup));
  SHOAL_RETURN_IF_ERROR(lwe::CheckHint(setup, sizes));
  return sizes;
}

absl::StatusOr<wire::PirSetup> ShapeOf(Engine engine, const Content& content,
                                       const ServerOptions& options) {
  return engine == Engine::kSimplePir ? lwe::SimplePirShape(content, options)
                                      : lwe::DoublePirShape(content, options);
}

absl::StatusOr<std::unique_ptr<Server>> CreateServer(Engine engine, const Content& content,
                                                     ServerOptions options) {
  if (engine == Engine::kSimplePir) {
    return lwe::SimplePirServer::Create(content, std::move(options));
  }
  return lwe::DoublePirServer::Create(content, std::move(options));
}

absl::StatusOr<std::unique_ptr<Client>> CreateClient(const wire::PirSetup& setup, BytesView hint,
                                                     const ClientOptions& options) {
  SHOAL_RETURN_IF_ERROR(SizesOf(setup).status());
  if (hint.size() != setup.hint_bytes()) {
    return absl::DataLossError(absl::StrFormat("pir: a hint of %d bytes, not %d: truncated?",
                                               hint.size(), setup.hint_bytes()));
  }
  if (ToString(HintDigest(hint)) != setup.hint_digest()) {
    return absl::DataLossError("pir: the hint does not have the setup's digest");
  }
  if (setup.engine() == EngineName(Engine::kSimplePir)) {
    return lwe::SimplePirClient::Create(setup, hint, options);
  }
  return lwe::DoublePirClient::Create(setup, hint, options);
}

}  // namespace shoal::pir
