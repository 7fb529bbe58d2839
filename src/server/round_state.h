// What a party's offline stage hands to its online stage: the only way to get an online stage.
#ifndef SHOAL_SRC_SERVER_ROUND_STATE_H_
#define SHOAL_SRC_SERVER_ROUND_STATE_H_

#include <cstdint>

#include "src/base/bytes.h"
#include "src/base/page_buffer.h"
#include "src/base/secret.h"
#include "src/base/spool.h"
#include "src/server/forward_memory.h"
#include "src/sharing/sharing.h"

namespace shoal::server {

// A noise query of this party, ready to be sent.
struct NoiseQuery {
  uint32_t position;  // among the next party's positions
  uint32_t tally;     // what the next party is sent there
};

// 44 bytes for every position, 8 for every noise query; where memory is plentiful, an answer's for
// every position, its mask, and 16 for every one of the next party.
struct RoundState {
  static constexpr uint32_t kDead = 0xffffffff;

  uint32_t positions = 0;       // N_j: this party's input
  uint32_t next_positions = 0;  // N_(j+1); 0 at the backend
  PageBuffer seeds;             // seed_j of position i at 32 * i; zeros if dead

  // What the online stage needs of the seeds, expanded ahead of time (MakeReady in offline.h): of
  // every position its share, and its mask if there was memory for all of them.
  PageArray<sharing::QueryShare> shares;
  Spool masks;  // empty, or that of position i at answer_bytes * i, in memory

  // Where position i goes among the next party's positions, or kDead. At the backend, which does
  // not shuffle, 0 or kDead.
  PageArray<uint32_t> target;
  SecretVector<NoiseQuery> noise;  // any order
  ForwardMemory forward_memory;    // of no positions: ForwardQueries makes its own

  bool dead(uint32_t position) const { return target[position] == kDead; }
  BytesView seed(uint32_t position) const {
    return BytesView(seeds).subspan(size_t{32} * position, 32);
  }
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ROUND_STATE_H_
