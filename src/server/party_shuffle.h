// A party's list over its machines: which onions came twice, and the shuffle of what goes on.
//
// Each machine has a slice of the positions that came in and a share of the noise. Positions are
// numbered in the order of the machines, and after all of them the noise. An item goes to the
// machine that owns its bucket (src/shuffle/permutation.h), which puts it in its place:
//
//   machine i --- fingerprints of its seeds, by their first bits ---------> machine j
//   machine i <-- which of them an earlier machine has, too --------------- machine j
//   all ------- how many items of each bucket ----------------------------- all
//   machine i --- bucket, tally, inner onion: what is in j's buckets -----> machine j
//   machine i <-- the places of its positions ----------------------------- machine j
//
// A party of one machine does the same, and nothing passes. What comes out does not depend on the
// number of machines.
#ifndef SHOAL_SRC_SERVER_PARTY_SHUFFLE_H_
#define SHOAL_SRC_SERVER_PARTY_SHUFFLE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/machines/machines.h"
#include "src/server/online_material.h"
#include "src/server/round_context.h"
#include "src/shuffle/permutation.h"
#include "src/shuffle/scatter.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"

namespace shoal::server {

// How many positions and noise queries each machine has, by rank; the same at all machines.
struct Slices {
  std::vector<uint64_t> positions, noise;

  uint64_t items(uint32_t rank) const { return positions[rank] + noise[rank]; }
  // Of all machines before `rank`; of all machines for rank = their number.
  uint64_t positions_before(uint32_t rank) const;
  uint64_t noise_before(uint32_t rank) const;
};
// Tells the others how many this machine has. Errors of Machines.
absl::StatusOr<Slices> GatherSlices(uint64_t positions, uint64_t noise,
                                    machines::Machines& machines);

// Marks the positions whose seeds an earlier machine has, too: valid[i] becomes 0. To be called
// when no two valid positions of this machine have the same seed, so that copies of one onion load
// nobody. Compares fingerprints of 128 bits under `key` (32 bytes), which is the same at all
// machines: two different seeds of N have one fingerprint with probability below N^2 / 2^129.
// Errors of Machines; CANCELLED once the round has ended.
absl::Status MarkDuplicatesElsewhere(const Slices& slices, BytesView key, BytesView seeds,
                                     std::span<uint8_t> valid, const Resources& resources);

// The shuffle of what goes on, from this machine's view. Call in the order of the declarations.
// Movable. Thread-compatible.
class PartyShuffle {
 public:
  // Draws buckets for this machine's items, and learns how many items all machines have in each.
  // Positions i with living[i] == 0 stay behind. `key` is the permutation's. RESOURCE_EXHAUSTED if
  // there is no memory, or if all machines' places do not fit 32 bits; errors of Machines.
  static absl::StatusOr<PartyShuffle> Draw(Slices slices, std::span<const uint8_t> living,
                                           BytesView key, const Resources& resources);

  // The places that this machine owns.
  uint32_t first_place() const { return first_place_; }
  uint32_t places() const { return places_; }

  // The places of all machines, and the buckets.
  void SetLayout(PartyLayout& layout) const;
  // Answers that this machine may have to hold: to its own positions, and to those at its places.
  uint64_t answers() const;

  // Permutes this machine's buckets. Sets target[i] to the place of position i and noise_places[k]
  // to that of noise query k, for those that are in this machine's buckets. RESOURCE_EXHAUSTED.
  absl::Status PlaceOwn(BytesView key, std::span<uint32_t> target,
                        std::span<uint32_t> noise_places);
  // Sends the others' items to their owners, and puts those that come to `scatter`, whose place 0
  // is first_place(). Sets target[i] for positions that were sent. `arrived` gets the noise queries
  // that came. `inner` and `noise_onions` have a record of inner_bytes for each item. Errors of
  // Machines and of the spools; DATA_LOSS if a machine sends what it has not announced; CANCELLED
  // once the round has ended.
  absl::Status MoveOthers(const Spool& inner, const Spool& noise_onions,
                          std::span<const uint32_t> tallies, size_t inner_bytes,
                          shuffle::Scatter& scatter, std::span<uint32_t> target,
                          SecretVector<NoiseQuery>& arrived);

 private:
  explicit PartyShuffle(const Resources& resources) : resources_(resources) {}
  machines::Machines& machines() const { return *resources_.machines; }
  machines::Run BucketsOf(uint32_t rank) const;
  // The counts of a machine, of positions and of noise, by bucket.
  std::span<const uint32_t> Counts(uint32_t rank, bool noise) const;
  // How many items of machine `rank` are in machine `owner`'s buckets.
  uint64_t Sent(uint32_t rank, uint32_t owner, bool noise) const;
  // Where each machine's places begin, and where the last one's end.
  std::vector<uint64_t> PlaceStarts() const;
  // What Sent says at most, by the number of items alone.
  uint64_t MostSent(uint32_t rank, uint32_t owner) const;
  // How many items of earlier slices are in each of this machine's buckets.
  std::vector<uint32_t> Before(uint32_t rank, bool noise) const;

  Resources resources_;
  Slices slices_;
  uint32_t buckets_ = 0;
  shuffle::BucketDraw positions_, noise_;
  SecretVector<uint32_t> counts_;  // of rank r at 2 * buckets_ * r: of positions, then of noise
  uint32_t first_place_ = 0, places_ = 0;
  shuffle::BucketRun run_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_PARTY_SHUFFLE_H_
