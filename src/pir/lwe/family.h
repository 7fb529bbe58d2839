// SimplePIR and DoublePIR as engines (engine.h): one server, a public hint, sessions that keep
// nothing between queries.
//
// Kinds of request:
//   0  queries over the whole table, of any clients; answers of Sizes::answer_bytes each
//   1  one batch over chunks (batch.h): query i is over chunk i; answers of ChunkAnswerBytes
#ifndef SHOAL_SRC_PIR_LWE_FAMILY_H_
#define SHOAL_SRC_PIR_LWE_FAMILY_H_

#include "src/pir/engine.h"

namespace shoal::pir::lwe {

inline constexpr uint32_t kWholeQueries = 0;
inline constexpr uint32_t kBatchOverChunks = 1;

const Engine& SimplePir();
const Engine& DoublePir();
const Family& LweFamily();

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_FAMILY_H_
