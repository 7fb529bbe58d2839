// Small PIR as an engine (engine.h; docs/small-pir.md): one server, no hint, clients that keep
// nothing.
#ifndef SHOAL_SRC_PIR_RLWE_SMALL_PIR_H_
#define SHOAL_SRC_PIR_RLWE_SMALL_PIR_H_

#include <cstdint>
#include <vector>

#include "src/pir/engine.h"

namespace shoal::pir::rlwe {

const Engine& SmallPir();

// As Family::MeasureUnits, over tables of about `bytes`.
std::vector<Amount> MeasureSmallUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_SMALL_PIR_H_
