#include "src/pir/rlwe/family.h"

#include "src/pir/rlwe/hintless.h"
#include "src/pir/rlwe/small_pir.h"

namespace shoal::pir::rlwe {
namespace {

constexpr Amount kUnits[] = {
    // Small PIR. At the server, a ring element of the table encoded; a byte of the encoded table
    // times the first query of a pass, and times each further one; one automorphism of a query's
    // unpacking, and one product of its second stage. At the client, one ring element of a query;
    // one ring element of an answer.
    {"small_encode", 5.5e+04},
    {"small_pass_byte", 0.041},
    {"small_query_byte", 0.016},
    {"small_unpack", 1.5e+04},
    {"small_fold", 8.5e+04},
    {"small_element", 1.2e+05},
    {"small_recover", 2.5e+04},
    // SimplePIR without a hint, whose pass over the table is SimplePIR's. At the server, once an
    // epoch: a ring element of the table for one row of the hint; a pack of 2,048 values. A byte of
    // the packs' digits times the keys of the first query of a pass, and of each further one. At
    // the
    // client, 2,048 columns of a query; one pack of an answer.
    {"hintless_encode", 1.2e+04},
    {"hintless_pack", 3e+08},
    {"hintless_digit_byte", 0.037},
    {"hintless_more_digit_byte", 0.011},
    {"hintless_block", 1.1e+05},
    {"hintless_recover", 2.7e+04},
};

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&SmallPir(), &Hintless()};
    return engines;
  }
  std::span<const Amount> units() const override { return kUnits; }
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
