// The engines that there are. Programs ask here and nowhere else: a new engine is one line in
// registry.cc.
#ifndef SHOAL_SRC_PIR_REGISTRY_REGISTRY_H_
#define SHOAL_SRC_PIR_REGISTRY_REGISTRY_H_

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/pir/engine.h"

namespace shoal::pir {

std::span<const Family* const> Families();
// Of all families.
std::span<const Engine* const> Engines();

// The engine of that name, or null for "chain", which answers without one. INVALID_ARGUMENT names
// all that there are.
absl::StatusOr<const Engine*> FindEngine(absl::string_view name);

// "chain (default), simplepir, .. hintless or pair": for help texts.
std::string EngineNames();

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_REGISTRY_REGISTRY_H_
