// The work of SimplePIR and DoublePIR in units of their own, and what these cost on this machine.
#ifndef SHOAL_SRC_PIR_LWE_UNITS_H_
#define SHOAL_SRC_PIR_LWE_UNITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::pir::lwe {

// As pir::Engine::WorkOf, in Units().
Work WorkOf(Scheme scheme, const wire::PirSetup& shape, double together);

// As pir::Family::units and MeasureUnits.
std::span<const Amount> Units();
std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_UNITS_H_
