// The work of SimplePIR and DoublePIR in units of their own, and what these cost on this machine.
#ifndef SHOAL_SRC_PIR_LWE_UNITS_H_
#define SHOAL_SRC_PIR_LWE_UNITS_H_

#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::pir::lwe {

// Units: "pir_public_byte", a byte of a matrix times the 1024 columns of a public matrix;
// "pir_pass_byte" and "pir_query_byte", a byte times the first query of a pass and times each
// further one; "pir_word", a word of a query or an answer packed or rounded at the server;
// "pir_ask_column", a column of a query made; "simplepir_recover_byte" and
// "doublepir_recover_byte", a byte of a record recovered. As pir::Engine::WorkOf.
Work WorkOf(Scheme scheme, const wire::PirSetup& shape, double together);

// As pir::Family::MeasureUnits.
std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random, ThreadPool& pool);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_UNITS_H_
