// What one party's part in a round takes of memory, and which of its lists lie on disk: one rule,
// which the stages follow and `shoal plan` asks.
//
// A list goes to memory while there is room for it, in the order in which the stages make them:
// the noise, what is in the onions that came, the list for the next party, the answers on their way
// back. Otherwise it goes to a file. Two things are made ahead of time where memory is plentiful,
// so that no client waits for them: the masks of the answers, and the memory that queries are put
// in order in. Each is made only if it leaves as much free as it takes. Lists of the offline stage
// get memory that is large enough for the answers that will lie there, if that leaves twice as much
// free.
//
// When: as a round is drafted, each party checks that there is memory for what the round takes
// without any onion of a client (CheckEmptyRound). When a list of onions is announced, before
// its first byte is read, their number is known, and the round's arena reserves memory for all
// stages (OnionIntake::Begin). Both are long before a client sends a query. Nothing is reserved for
// slots that nobody has taken, and what is reserved is touched as onions arrive.
#ifndef SHOAL_SRC_SERVER_ROUND_MEMORY_H_
#define SHOAL_SRC_SERVER_ROUND_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "src/server/round_context.h"

namespace shoal::server {

// What decides over memory.
struct RoundSize {
  uint64_t positions = 0;   // N_j: of the party's input
  uint64_t noise = 0;       // S_j: its own noise; 0 at the backend
  size_t inner_bytes = 0;   // an onion of the next party; 0 at the backend
  size_t answer_bytes = 0;  // a row and its signature
  bool frontend = false;    // keeps the answers for its clients

  // N_(j+1), if no position is dead; 0 at the backend.
  uint64_t next_positions() const { return inner_bytes == 0 ? 0 : positions + noise; }
};

RoundSize SizeOf(const RoundContext& context, uint64_t positions, uint64_t noise);
// How much noise every party makes, as far as that is known before it is drawn.
uint64_t ExpectedNoise(const RoundContext& context);

// In bytes.
struct ListMemory {
  uint64_t bytes = 0;   // the list
  uint64_t memory = 0;  // what it gets: its own bytes or more; 0: it is in a file, or not made
};

struct RoundMemory {
  ListMemory opened;   // what is in the onions that came
  ListMemory masks;    // of all answers; not made where memory is scarce
  ListMemory forward;  // for queries to be put in order in; made anew online where it is scarce
  ListMemory ordered;  // the list for the next party, later the answers that come back

  // What the arena is to hold at once.
  uint64_t lists() const { return opened.memory + later(); }
  // The same from the end of the offline stage on.
  uint64_t later() const { return masks.memory + forward.memory + ordered.memory; }
};

// The rule. `free_bytes`: of the memory for lists, what nobody else has (Arena::free_bytes).
RoundMemory DivideMemory(const RoundSize& size, uint64_t free_bytes);
// The same once `opened` has its memory: for the sizes that are known by then.
RoundMemory DivideLater(const RoundSize& size, const ListMemory& opened, uint64_t free_bytes);

// Bytes of the arrays, which are in memory always: from the offline stage to the end of the round,
// and at most, in either stage.
uint64_t RestArrayBytes(const RoundSize& size);
uint64_t PeakArrayBytes(const RoundSize& size, const RoundMemory& memory);

// Answers that come back, each with its place (shuffle::Scatter).
uint64_t ReturnedBytes(const RoundSize& size);

// To forward queries: for every position of the next party.
inline constexpr uint64_t kForwardPositionBytes = 8 + 4;

// RESOURCE_EXHAUSTED if this machine does not have the memory that the round takes at this party
// even if no client sends an onion: the noise, and arrays for it.
absl::Status CheckEmptyRound(const RoundContext& context, const Resources& resources);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ROUND_MEMORY_H_
