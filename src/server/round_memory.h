// The rule for how much memory a round takes at one party, and which of its lists lie on disk. The
// stages and `shoal plan` both use it.
//
// A list goes to memory while there is room, otherwise to a file. Lists get memory in the order in
// which the stages make them: the noise, the opened onions, the list for the next party, the
// answers on their way back. The frontend keeps these for its clients where they lie, or, if that
// is a file, copies them to a list of their own, for which nothing is reserved. Two things are made
// ahead of time where memory is plentiful, so that no client waits for them: the answers' masks
// with the keys of their tags, and the memory in which queries are put in order. Each is made only
// if it leaves as much free as it takes.
//
// The answers get the memory that the lists of the offline stage had, and more if there is more.
// The list for the next party gets enough memory for the answers that will later lie there, so that
// it is touched before clients wait, if that leaves twice as much free.
//
// When a round is drafted, each party checks that there is memory for the round without any
// client's onion (CheckEmptyRound). When a list of onions is announced, its length is known, and
// the round's arena reserves memory for all stages before the first byte is read
// (OnionIntake::Begin). Both happen long before a client sends a query. Nothing is reserved for
// unused slots; reserved memory is touched as onions arrive.
#ifndef SHOAL_SRC_SERVER_ROUND_MEMORY_H_
#define SHOAL_SRC_SERVER_ROUND_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "src/server/round_context.h"

namespace shoal::server {

// The sizes from which the rule follows.
struct RoundSize {
  uint64_t positions = 0;   // N_j: the party's input
  uint64_t noise = 0;       // S_j: its own noise; 0 at the backend
  size_t inner_bytes = 0;   // an onion of the next party; 0 at the backend
  size_t answer_bytes = 0;  // a row and its signature, without the answer tag
  // Of the answers that come to this machine, those that go on to other machines of the party, as
  // far as they need more room than a list of N_(j+1).
  uint64_t others = 0;
  bool batch = false;  // queries go on as a batch (RoundContext::sends_batch); not at the backend
  // In a half of a round of two tiers, else 0: bytes of a record that comes in with a query, and of
  // one that goes on (0 at the tail); bytes of a selection, and buckets.
  size_t part_bytes = 0, forwarded_bytes = 0, selection_bytes = 0;
  uint32_t buckets = 0;

  // N_(j+1), if no position is dead; 0 at the backend.
  uint64_t next_positions() const { return inner_bytes == 0 ? 0 : positions + noise; }
  bool half() const { return buckets > 0; }
};

RoundSize SizeOf(const RoundContext& context, uint64_t positions, uint64_t noise,
                 const Resources& resources);
// The expected number of a party's noise queries, before they are drawn.
uint64_t ExpectedNoise(const RoundContext& context);

// In bytes.
struct ListMemory {
  uint64_t bytes = 0;   // the list
  uint64_t memory = 0;  // at least `bytes`, or 0: in a file, or not made
};

struct RoundMemory {
  // From the offline stage to the end of the round.
  ListMemory pads;     // of all answers; not made where memory is scarce
  ListMemory forward;  // where queries are put in order; allocated online where memory is scarce
  // From the offline stage on.
  ListMemory opened;   // the opened onions
  ListMemory ordered;  // the list for the next party, until that party has it
  // In the online stage: answers with their places, until they have been sent, or clients have
  // them. They lie where `ordered` lay if there is room. At the tail of a half, all answers, which
  // have no places there.
  ListMemory returned;

  // The most that the arena holds at once.
  uint64_t lists() const {
    return ready() + std::max(opened.memory + ordered.memory, returned.memory);
  }
  // The same after the offline stage, when `opened` is gone.
  uint64_t later() const { return ready() + std::max(ordered.memory, returned.memory); }

  // What the offline stage leaves untouched of the answers' memory: a list that is larger than the
  // one that lay there gets new pages.
  uint64_t untouched() const { return returned.memory > ordered.memory ? returned.memory : 0; }

 private:
  uint64_t ready() const { return pads.memory + forward.memory; }
};

// The rule. `free_bytes` is the memory for lists that nobody has reserved (Arena::free_bytes).
RoundMemory DivideMemory(const RoundSize& size, uint64_t free_bytes);
// The same for the sizes that are known once `opened` has its memory.
RoundMemory DivideLater(const RoundSize& size, const ListMemory& opened, uint64_t free_bytes);

// Bytes of the arrays, which are always in memory: from the offline stage to the end of the round,
// and the most in either stage.
uint64_t RestArrayBytes(const RoundSize& size);
uint64_t PeakArrayBytes(const RoundSize& size, const RoundMemory& memory);

// Bytes of the returned answers, each with its place (shuffle::Scatter): those that come, and those
// to this machine's own queries. At the tail of a half those that it makes.
uint64_t ReturnedBytes(const RoundSize& size);

// Memory to forward queries, for every position of the next party.
inline constexpr uint64_t kForwardPositionBytes = 8 + 4;

// RESOURCE_EXHAUSTED if this machine lacks the memory that the round, or all its halves together,
// take at this party even without any client's onion: for noise and arrays.
absl::Status CheckEmptyRound(std::span<const RoundContext> parts, const Resources& resources);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ROUND_MEMORY_H_
