#include "src/pir/rlwe/family.h"

#include "src/pir/rlwe/small_pir.h"

namespace shoal::pir::rlwe {
namespace {

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&SmallPir()};
    return engines;
  }
  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool& pool) const override {
    return MeasureSmallUnits(bytes, random, pool);
  }
};

}  // namespace

const Family& RlweFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::rlwe
