// The engines that there are: names, sizes, servers and clients.
#ifndef SHOAL_SRC_PIR_REGISTRY_H_
#define SHOAL_SRC_PIR_REGISTRY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/pir/engine.h"

namespace shoal::pir {

enum class Engine { kSimplePir, kDoublePir };
inline constexpr Engine kAllEngines[] = {Engine::kSimplePir, Engine::kDoublePir};

// "simplepir", "doublepir".
absl::string_view EngineName(Engine engine);
// INVALID_ARGUMENT names those there are.
absl::StatusOr<Engine> ParseEngine(absl::string_view name);

// Bytes of everything that is sent or kept. INVALID_ARGUMENT names the field that is out of range
// or does not fit the others: a setup from the network.
absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup);
// The same of a shape that has no hint yet (ShapeOf).
absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape);

// The setup, without its hint, that a server of this content would have. Errors as CreateServer's,
// but for memory.
absl::StatusOr<wire::PirSetup> ShapeOf(Engine engine, const Content& content,
                                       const ServerOptions& options);

// INVALID_ARGUMENT, or RESOURCE_EXHAUSTED for a table or a hint too large, saying what would do.
absl::StatusOr<std::unique_ptr<Server>> CreateServer(Engine engine, const Content& content,
                                                     ServerOptions options);

// INVALID_ARGUMENT names what is wrong with the setup, DATA_LOSS if the hint is not the setup's.
absl::StatusOr<std::unique_ptr<Client>> CreateClient(const wire::PirSetup& setup, BytesView hint,
                                                     const ClientOptions& options);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_REGISTRY_H_
