// What a party's offline stage hands to its online stage. An online stage cannot run without it.
// At one of several machines, positions are those of its slice, counted from its first one; places
// of the next party are numbered over all machines.
#ifndef SHOAL_SRC_SERVER_ONLINE_MATERIAL_H_
#define SHOAL_SRC_SERVER_ONLINE_MATERIAL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/server/forward_memory.h"
#include "src/server/round_memory.h"
#include "src/sharing/sharing.h"
#include "src/storage/arena.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"

namespace shoal::server {

// A noise query of this party, ready to be sent.
struct NoiseQuery {
  uint32_t position;  // among the next party's positions
  uint32_t tally;     // sent to the next party
};

// What belongs to which machine of the party, the same at all of them.
struct PartyLayout {
  // Machine r has positions positions[r] to positions[r + 1] - 1 of the party's, and owns the
  // places places[r] to places[r + 1] - 1; no places at the backend.
  std::vector<uint64_t> positions, places;
  uint32_t buckets = 1;  // of the permutation; each machine owns a run of them (machines::RunOf)
};

// Takes 44 bytes for every position and 8 for every noise query. Where memory is plentiful, also
// takes for every position an answer's mask and the key of its tag (sharing::PadBytes), and 16
// bytes for every position of the next party. In a half of a round of two tiers it takes 36 bytes
// for every position, 8 and a forwarded record for every noise query, and no masks.
struct OnlineMaterial {
  static constexpr uint32_t kDead = 0xffffffff;

  // Holds the pads, forward_memory and the answers; `memory` says how much of it each list has. If
  // the arena is null, there are no pads and no forward_memory, and answers go where there is room.
  std::shared_ptr<Arena> arena;
  RoundMemory memory;

  uint32_t positions = 0;       // N_j: this party's input
  uint32_t next_positions = 0;  // N_(j+1), or this machine's part of them; 0 at the backend
  uint32_t first_position = 0;  // of this machine, among all machines' positions
  uint32_t first_place = 0;     // of those that this machine owns
  PartyLayout layout;
  PageBuffer seeds;  // seed_j of position i at 32 * i; zeros if dead

  // Expanded from the seeds ahead of time (MakeReady in offline.h): the share of every position,
  // and its pad if there was memory for all pads. Nothing in a half.
  PageArray<sharing::QueryShare> shares;
  Spool pads;  // empty, or in memory, with the pad of position i at PadBytes(answer_bytes) * i

  // The place of position i among the next party's positions, or kDead. At the backend, which does
  // not shuffle, 0 or kDead.
  PageArray<uint32_t> target;
  SecretVector<NoiseQuery> noise;  // that have this machine's places, in any order
  // In a half, what the tail is sent for noise[k]: record k, of OfHalf::forwarded_bytes().
  SecretVector<uint8_t> noise_records;
  ForwardMemory forward_memory;  // without positions: ForwardQueries makes it

  bool dead(uint32_t position) const { return target[position] == kDead; }
  BytesView seed(uint32_t position) const {
    return BytesView(seeds).subspan(size_t{32} * position, 32);
  }
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ONLINE_MATERIAL_H_
