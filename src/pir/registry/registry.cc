#include "src/pir/registry/registry.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "src/pir/lwe/family.h"
#include "src/pir/pair/pair.h"
#include "src/pir/rlwe/family.h"
#include "src/pir/sets/family.h"

namespace shoal::pir {
namespace {

// The names of all engines, the last one behind `last_separator`.
std::string Names(absl::string_view last_separator) {
  std::string names;
  const std::span<const Engine* const> engines = Engines();
  for (size_t i = 0; i < engines.size(); ++i) {
    absl::StrAppend(&names,
                    i == 0                    ? ""
                    : i + 1 == engines.size() ? last_separator
                                              : ", ",
                    engines[i]->name());
  }
  return names;
}

}  // namespace

std::span<const Family* const> Families() {
  static const Family* const families[] = {&lwe::LweFamily(), &sets::SetsFamily(),
                                           &rlwe::RlweFamily(), &pair::PairFamily()};
  return families;
}

std::span<const Engine* const> Engines() {
  static const auto* const engines = [] {
    auto* all = new std::vector<const Engine*>;
    for (const Family* family : Families()) {
      all->insert(all->end(), family->engines().begin(), family->engines().end());
    }
    return all;
  }();
  return *engines;
}

absl::StatusOr<const Engine*> FindEngine(absl::string_view name) {
  if (name == "chain") return nullptr;
  for (const Engine* engine : Engines()) {
    if (engine->name() == name) return engine;
  }
  return absl::InvalidArgumentError(absl::StrCat("there are chain, ", Names(" and ")));
}

std::string EngineNames() { return absl::StrCat("chain (default), ", Names(" or ")); }

}  // namespace shoal::pir
