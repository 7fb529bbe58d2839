// The engine `pair` (engine.h): two servers that do not collude each XOR the rows of the table that
// a client's bits select, and the XOR of both answers is the row. (Chor, Goldreich, Kushilevitz,
// Sudan: "Private Information Retrieval", FOCS 1995, section 3.1.)
//
//     client                     offline server                    online server
//       |-- bits, or a key for them --->|                                |
//       |-- the same but for the bit of the row, or the other key ------>|
//       |<- XOR of the selected rows ---|                                |
//       |<- XOR of the selected rows ------------------------------------|
//
//     query to each   epoch (8), setup's id (32), then for each row a bit (src/select/select.h),
//     or,
//                     where it is shorter, a key (point_keys.h): 16 ceil(log2(rows / 128)) + 52
//                     bytes. Up to 16 queries of one length a request.
//     answer of each  one record
//
// There is nothing to prepare or to keep, on either side. The roles are named as those of the other
// engines of two servers, and do the same work.
#ifndef SHOAL_SRC_PIR_PAIR_PAIR_H_
#define SHOAL_SRC_PIR_PAIR_PAIR_H_

#include "src/pir/engine.h"

namespace shoal::pir::pair {

const Engine& Pair();
const Family& PairFamily();

}  // namespace shoal::pir::pair

#endif  // SHOAL_SRC_PIR_PAIR_PAIR_H_
