#include "src/pir/rlwe/family.h"

#include "src/pir/rlwe/hintless.h"
#include "src/pir/rlwe/small_pir.h"

namespace shoal::pir::rlwe {
namespace {

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&SmallPir(), &Hintless()};
    return engines;
  }
  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool& pool) const override {
    std::vector<Amount> units = MeasureSmallUnits(bytes, random, pool);
    for (const Amount& unit : MeasureHintlessUnits(bytes, random, pool)) units.push_back(unit);
    return units;
  }
};

}  // namespace

const Family& RlweFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::rlwe
