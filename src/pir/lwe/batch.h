// How many queries a lookup of many keys sends: some batches over chunks (SimplePIR's sections 4.3
// and 5.2) and some whole queries.
//
// A batch cuts the matrix's blocks into chunks and sends one query for each. Its answer costs one
// pass, however many chunks there are, while as many whole queries cost a multiple of that. So a
// batch finds one wanted row in each chunk. With B batches, a chunk that has more than B wanted
// rows leaves the others without a place; these get whole queries, of which the plan sends F in any
// case. B and F follow from the number of keys alone.
//
// F is such that, for rows that a hash spread over the table, more than F rows lack a place with
// probability at most 2^-40. If more do, every key has a whole query beside the batches: the server
// sees that, but not how many rows had no place. Loads of chunks are negatively associated
// (Joag-Dev and Proschan, 1983), so that the moment generating function of the sum of what
// overflows is at most the product of the chunks' own. A chunk's load is binomial, or is dominated
// by that in convex order (distinct rows: Hoeffding, 1963).
#ifndef SHOAL_SRC_PIR_LWE_BATCH_H_
#define SHOAL_SRC_PIR_LWE_BATCH_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>

#include "src/pir/lwe/scheme.h"

namespace shoal::pir::lwe {

struct BatchPlan {
  uint64_t batches = 0;
  uint64_t chunks = 0;  // of each batch
  uint64_t whole = 0;   // queries over the whole table
};

// log2 of the probability of more than F rows without a place.
inline constexpr double kOverflowLog2 = -40;

// Plans have batches of so many chunks, and servers take no others.
inline constexpr uint32_t kNumbersOfChunks[] = {4, 8, kMaxQueriesPerRequest};
inline bool IsNumberOfChunks(uint32_t chunks) {
  return std::ranges::find(kNumbersOfChunks, chunks) != std::end(kNumbersOfChunks);
}

// The most whole queries in one request.
uint64_t QueriesPerRequest(const Sizes& sizes);

// The cheapest plan for so many keys. It has whole queries alone if batches save less than a fifth,
// if the table has fewer rows than a column, or if the keys' rows are not spread. Bytes that the
// server passes and bytes that are sent are weighed as if a server passed 20 GB/s and links had 100
// Mbit/s. `setup` and `sizes` are a scheme's own; the result depends on no row.
BatchPlan PlanBatch(const wire::PirSetup& setup, const Sizes& sizes, uint64_t keys, bool spread);

// A lookup by this plan. Gives every wanted row a place in the batches and whole queries. A place
// without a wanted row asks for a row that stands in. `client` outlives the batch; `sizes` are its
// setup's.
std::unique_ptr<Batch> NewBatch(const Client* client, const Sizes& sizes, const Wanted& wanted);

// Bytes of the answer to a batch of `chunks` queries: of SimplePIR a whole answer's share for each
// chunk, of DoublePIR a whole answer for each.
uint64_t ChunkAnswerBytes(const wire::PirSetup& setup, const Sizes& sizes, uint64_t chunks,
                          uint64_t chunk);

// log2 of a bound on the probability that of `keys` spread rows more than `whole` lack a place.
double OverflowLog2(const wire::PirSetup& setup, uint64_t keys, uint64_t batches, uint64_t chunks,
                    uint64_t whole);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_BATCH_H_
