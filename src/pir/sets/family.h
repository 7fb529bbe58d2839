// Engines whose client keeps hints, XORs of sets of rows: Piano.
#ifndef SHOAL_SRC_PIR_SETS_FAMILY_H_
#define SHOAL_SRC_PIR_SETS_FAMILY_H_

#include "src/pir/engine.h"

namespace shoal::pir::sets {

const Family& SetsFamily();

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_FAMILY_H_
