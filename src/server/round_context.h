// What a party's stages know about a round, and the secrets that the party draws for it.
#ifndef SHOAL_SRC_SERVER_ROUND_CONTEXT_H_
#define SHOAL_SRC_SERVER_ROUND_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/query_buckets.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/tagged.h"
#include "src/machines/machines.h"
#include "src/noise/noise.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/sharing/halves.h"
#include "src/sharing/sharing.h"
#include "src/storage/spool.h"

namespace shoal::server {

// A round id from a message. INVALID_ARGUMENT unless it has 32 bytes.
absl::StatusOr<Digest> ParseRoundId(absl::string_view bytes);

// What stages work with; pool and spools are those of all rounds of a party. All must outlive the
// objects that use them.
struct Resources {
  ThreadPool* pool;
  SpoolPlace* spools;  // for lists and answers of a round, which may be larger than memory
  // Set once the round has ended. A stage looks at it between pieces of a few milliseconds, and
  // gives up with all that it holds. Null: never.
  const std::atomic<bool>* ended = nullptr;
  // The machines of this party, for this round. Stages of one round call it in the same order on
  // all of them. May be shared between rounds only where the party has one machine.
  machines::Machines* machines = &machines::Machines::Alone();
  // Called once the round was found to live, before each piece of an output is made, and for
  // answers again when the piece has what it is made of: tests end the round there. The id lies
  // where the rest of that is, and stays as long. Null outside tests.
  const std::function<void(const Digest& round_id)>* making_piece = nullptr;

  // CANCELLED once the round has ended.
  absl::Status CheckLive() const {
    return ended != nullptr && *ended ? absl::CancelledError("the round has ended")
                                      : absl::OkStatus();
  }
};

// The most positions that a party's predecessors can send it. The receiver of a list takes no more,
// even if more are announced.
inline uint64_t MaxPositions(PartyNumber party, uint32_t max_slots, uint64_t max_rows,
                             const noise::Distribution& noise) {
  return max_slots + uint64_t{party.value() - 1} * max_rows * noise.max();
}

// Public facts about a round that follow from the signed header and the party's number. Immutable.
//
// A round of two tiers (docs/protocol.md, section 11) has two of them at a party, one for each
// half. A half is a chain of two parties, whose number and keys these are: party 1 is the half's
// head, party 2 its tail. `round_id` is the half's id, and max_rows the number of buckets.
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
  uint32_t next_machines = 1;  // of the next party

  // What a half has beside that.
  struct OfHalf {
    sharing::Half half;
    sharing::HalfIds ids;
    QueryBuckets buckets;

    size_t selection_bytes() const { return buckets.selection_bytes(); }
    // Of a record that the head gets with a query: its part, and in half A that of B with it, which
    // A's tag covers.
    size_t part_bytes() const {
      return half == sharing::Half::kA ? sharing::PartsBytes(selection_bytes())
                                       : sharing::PartBytes(half, selection_bytes());
    }
    // Of one that the head sends to the tail.
    size_t forwarded_bytes() const { return sharing::ForwardedBytes(half, selection_bytes()); }
  };
  std::optional<OfHalf> half = std::nullopt;  // none in a round for rows

  // Of an answer with its tag, as it comes in, lies and goes out.
  size_t tagged_bytes() const { return sharing::TaggedBytes(answer_bytes); }
  // What this party's answer tags cover.
  sharing::TagCovers tag_covers() const { return sharing::TagCoversAt(is_backend()); }
  // Whether queries for the next party are cut for its machines, or digested by several of this
  // one: both need a batch, and no encoding.
  bool sends_batch(const Resources& resources) const {
    return resources.machines->count() > 1 || next_machines > 1;
  }
  bool is_frontend() const { return party.value() == 1; }
  bool is_backend() const { return party.value() == parties; }
  size_t layers() const { return parties - party.value() + 1; }
  // Of an onion that comes in, at party 2 and later (party 1 gets submissions), and of one that
  // goes on; 0 at the backend.
  size_t onion_bytes() const { return onion::OnionBytes(layers()); }
  size_t inner_bytes() const { return onion::OnionBytes(layers() - 1); }
};

// The secrets of a round that are needed until its offline list is committed to, and are then
// erased: onions, noise and permutation of the round cannot be computed from what is left.
class OfflineSecrets {
 public:
  explicit OfflineSecrets(const Seed& root);

  onion::KeyPair OnionKeyPair() const { return onion::KeyPairFromSecret(onion_.view()); }
  SeededRandom NoiseCounts() const { return SeededRandom(noise_.view(), "shoal noise counts v1"); }
  SeededRandom NoiseOnions(uint64_t chunk) const {
    return SeededRandom(noise_.view(), "shoal noise onions v1", chunk);
  }
  // Keys the order of the noise, of which each of a party's machines makes a part.
  BytesView NoiseOrderKey() const { return noise_order_.view(); }
  BytesView PermutationKey() const { return permutation_.view(); }
  // Keys the search for duplicate seeds, so that senders cannot aim at its buckets.
  BytesView FingerprintKey() const { return fingerprints_.view(); }

 private:
  Seed onion_, noise_, noise_order_, permutation_, fingerprints_;
};

// What the offline stage still needs once its list is committed to.
struct ShuffleKeys {
  explicit ShuffleKeys(const OfflineSecrets& secrets)
      : permutation(secrets.PermutationKey()), fingerprints(secrets.FingerprintKey()) {}

  Seed permutation, fingerprints;
};

// The secrets of a round that are needed until it ends.
class LastingSecrets {
 public:
  explicit LastingSecrets(const Seed& root);

  // Keys the digests of what this party has received and sent.
  BytesView ContentKey() const { return contents_.view(); }
  // Keys the answers to dead positions.
  BytesView DeadAnswerKey() const { return dead_answers_.view(); }
  // What the keys of the round's term are derived from (terms.h).
  Seed TermKey() const { return Seed(term_.view()); }

 private:
  Seed contents_, dead_answers_, term_;
};

// All random choices of a party for one round. Every key is derived from one root, by a domain of
// its own, and the root is wiped at once. None of this is ever stored: a party that has lost it,
// by a restart, has lost the round, and its journal refuses the round for ever.
struct RoundSecrets : OfflineSecrets, LastingSecrets {
  explicit RoundSecrets(Seed root) : OfflineSecrets(root), LastingSecrets(root) {}
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ROUND_CONTEXT_H_
