#include "src/pir/lwe/scheme.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/double_pir.h"
#include "src/pir/lwe/shape.h"
#include "src/pir/lwe/simple_pir.h"

namespace shoal::pir::lwe {

absl::string_view SchemeName(Scheme scheme) {
  switch (scheme) {
    case Scheme::kSimplePir:
      return "simplepir";
    case Scheme::kDoublePir:
      return "doublepir";
  }
  SHOAL_CHECK(false);
}

absl::StatusOr<Scheme> ParseScheme(absl::string_view name) {
  for (const Scheme scheme : kAllSchemes) {
    if (SchemeName(scheme) == name) return scheme;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no engine \"", name, "\": simplepir or doublepir"));
}

absl::StatusOr<Asked> Client::Ask(uint64_t row, RandomSource& random) const {
  SHOAL_ASSIGN_OR_RETURN(std::vector<Asked> asked, Ask({&row, 1}, random));
  return std::move(asked[0]);
}

absl::StatusOr<Sizes> SizesOfShape(Scheme scheme, const wire::PirSetup& shape) {
  return scheme == Scheme::kSimplePir ? SimplePirSizes(shape) : DoublePirSizes(shape);
}

absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup) {
  SHOAL_ASSIGN_OR_RETURN(const Scheme scheme, ParseScheme(setup.engine()));
  SHOAL_ASSIGN_OR_RETURN(const Sizes sizes, SizesOfShape(scheme, setup));
  SHOAL_RETURN_IF_ERROR(CheckHint(setup, sizes));
  return sizes;
}

absl::StatusOr<wire::PirSetup> ShapeOf(Scheme scheme, const Content& content,
                                       const ServerOptions& options) {
  return scheme == Scheme::kSimplePir ? SimplePirShape(content, options)
                                      : DoublePirShape(content, options);
}

absl::StatusOr<std::unique_ptr<Server>> CreateServer(Scheme scheme, const Content& content,
                                                     ServerOptions options, const Kernel* kernel) {
  if (scheme == Scheme::kSimplePir) {
    return SimplePirServer::Create(content, std::move(options), kernel);
  }
  return DoublePirServer::Create(content, std::move(options), kernel);
}

absl::StatusOr<std::unique_ptr<Client>> OpenClient(const wire::PirSetup& setup,
                                                   const ClientOptions& options) {
  SHOAL_RETURN_IF_ERROR(SizesOf(setup).status());
  if (setup.engine() == SchemeName(Scheme::kSimplePir)) {
    return SimplePirClient::Create(setup, options);
  }
  return DoublePirClient::Create(setup, options);
}

absl::StatusOr<std::unique_ptr<Client>> CreateClient(const wire::PirSetup& setup, BytesView hint,
                                                     const ClientOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, OpenClient(setup, options));
  SHOAL_RETURN_IF_ERROR(client->TakeHint(hint));
  return client;
}

}  // namespace shoal::pir::lwe
