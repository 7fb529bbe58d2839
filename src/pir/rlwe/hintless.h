// SimplePIR without a hint, as an engine (engine.h; docs/hintless.md): one server, clients that
// keep nothing.
#ifndef SHOAL_SRC_PIR_RLWE_HINTLESS_H_
#define SHOAL_SRC_PIR_RLWE_HINTLESS_H_

#include <cstdint>
#include <vector>

#include "src/pir/engine.h"

namespace shoal::pir::rlwe {

const Engine& Hintless();

// As Family::MeasureUnits, over tables of about `bytes`.
std::vector<Amount> MeasureHintlessUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_HINTLESS_H_
