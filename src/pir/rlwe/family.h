// Engines over rings of polynomials: Small PIR.
#ifndef SHOAL_SRC_PIR_RLWE_FAMILY_H_
#define SHOAL_SRC_PIR_RLWE_FAMILY_H_

#include "src/pir/engine.h"

namespace shoal::pir::rlwe {

const Family& RlweFamily();

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_FAMILY_H_
