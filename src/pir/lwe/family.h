// SimplePIR and DoublePIR as engines (engine.h): one server, a public hint, sessions that keep
// nothing between queries. scheme.h has the kinds of request.
#ifndef SHOAL_SRC_PIR_LWE_FAMILY_H_
#define SHOAL_SRC_PIR_LWE_FAMILY_H_

#include "src/pir/engine.h"

namespace shoal::pir::lwe {

const Engine& SimplePir();
const Engine& DoublePir();
const Family& LweFamily();

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_FAMILY_H_
