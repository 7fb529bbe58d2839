// What a party's stages know about a round, and the secrets that the party draws for it.
#ifndef SHOAL_SRC_SERVER_ROUND_CONTEXT_H_
#define SHOAL_SRC_SERVER_ROUND_CONTEXT_H_

#include <cstdint>
#include <vector>

#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/tagged.h"
#include "src/noise/noise.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/spool.h"

namespace shoal::server {

// Shared by the stages of all rounds of a party. Both must outlive the objects that use them.
struct Resources {
  ThreadPool* pool;
  SpoolPlace* spools;  // for lists and answers of a round, which may be larger than memory
};

// The most positions that a party's predecessors can send it. The receiver of a list takes no more,
// even if more are announced.
inline uint64_t MaxPositions(PartyNumber party, uint32_t max_slots, uint64_t max_rows,
                             const noise::Distribution& noise) {
  return max_slots + uint64_t{party.value() - 1} * max_rows * noise.max();
}

// Public facts about a round that follow from the signed header and the party's number. Immutable.
struct RoundContext {
  RoundCounter counter;
  Digest round_id;
  PartyNumber party;
  uint32_t parties;
  size_t answer_bytes;  // a row and its signature
  uint64_t max_rows;    // rows that noise is drawn for; queries name lower row numbers
  uint32_t max_slots;
  noise::Distribution noise;
  // The onion keys of the parties after this one, the next party first; empty at the backend.
  std::vector<onion::Recipient> next_recipients;

  bool is_frontend() const { return party.value() == 1; }
  bool is_backend() const { return party.value() == parties; }
  size_t layers() const { return parties - party.value() + 1; }
  // Of an onion that comes in, at party 2 and later (party 1 gets submissions), and of one that
  // goes on; 0 at the backend.
  size_t onion_bytes() const { return onion::OnionBytes(layers()); }
  size_t inner_bytes() const { return onion::OnionBytes(layers() - 1); }
};

// All random choices of a party for one round, derived from one seed. The seed is durable before
// anything derived from it is sent, and is erased with the round.
class RoundSecrets {
 public:
  explicit RoundSecrets(Seed seed) : seed_(std::move(seed)) {}

  BytesView seed() const { return seed_.view(); }
  onion::KeyPair OnionKeyPair() const;
  SeededRandom NoiseCounts() const { return SeededRandom(seed(), "shoal noise counts v1"); }
  SeededRandom NoiseOnions(uint64_t chunk) const {
    return SeededRandom(seed(), "shoal noise onions v1", chunk);
  }
  Seed PermutationKey() const { return Key("shoal permutation v1"); }
  // Keys the search for duplicate seeds, so that senders cannot aim at its buckets.
  Seed FingerprintKey() const { return Key("shoal fingerprints v1"); }
  // Keys the digests of what this party has received and sent.
  Seed ContentKey() const { return Key("shoal round contents v1"); }
  // Keys the answers to dead positions.
  Seed DeadAnswerKey() const { return Key("shoal dead answers v1"); }

 private:
  Seed Key(absl::string_view domain) const;
  Seed seed_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ROUND_CONTEXT_H_
