// The offline stage of one party (paper, algorithm 2; docs/architecture.md). Computes on bytes; its
// only I/O is that of spools.
//
//   party j-1 --- N_j onions of m - j + 1 layers ---> party j
//                   open a layer; mark invalid, foreign and duplicate ones dead;
//                   add S_j noise onions for parties j+1..m; shuffle the living and the noise
//                   (party_shuffle.h: over all machines of the party)
//   party j --- N_(j+1) = live + S_j onions of m - j layers ---> party j+1
//
// Party 1 gets clients' submissions, each with one layer around many onions (src/onion/onion.h).
#ifndef SHOAL_SRC_SERVER_OFFLINE_H_
#define SHOAL_SRC_SERVER_OFFLINE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/server/online_material.h"
#include "src/server/record_cutter.h"
#include "src/server/round_context.h"
#include "src/server/round_memory.h"
#include "src/shuffle/scatter.h"
#include "src/storage/arena.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"

namespace shoal::server {

// A party's noise for one round, or one machine's share of it, made ahead of time. Depends only on
// the header and the party's secrets, never on the onions that come in.
struct NoiseBatch {
  Spool onions;                    // for the next party, of its onion size
  SecretVector<uint32_t> tallies;  // what the next party is sent for each; in a half zeros
  // What it is sent in a half: OfHalf::forwarded_bytes() each.
  SecretVector<uint8_t> forwarded;
  size_t size() const { return tallies.size(); }
};

// Makes this machine's share of a party's noise; the backend has none. Costs one seal for every
// noise query and later party. CANCELLED soon after the round has ended; errors of the spool.
absl::StatusOr<NoiseBatch> MakeNoise(const RoundContext& context, const OfflineSecrets& secrets,
                                     const Resources& resources);

// Party 1's input: all submissions of a round as they were received, each after its length (4
// bytes, little endian). The frontend's journal holds them in the same form.
inline constexpr size_t kSubmissionLengthBytes = 4;
struct Submissions {
  std::unique_ptr<ByteSource> list;
  uint64_t onions = 0;  // in all of them
};

// A party's input, opened while the rest is still on its way: layers are opened and seeds
// fingerprinted piece by piece, so that the network and the curve work overlap. Memory for all
// stages of the round is reserved at the beginning (round_memory.h) and touched as onions arrive.
// Once all of it is open, the intake holds no key. Thread-compatible; the context must outlive it.
class OnionIntake {
 public:
  // Begins an input of `bytes` bytes. INVALID_ARGUMENT if that is not a whole number of this
  // party's onions, or more onions than the header allows. RESOURCE_EXHAUSTED if there is no memory
  // for the round.
  static absl::StatusOr<OnionIntake> Begin(const RoundContext& context,
                                           const OfflineSecrets& secrets, uint64_t bytes,
                                           const Resources& resources);
  // The same at party 1, for submissions with so many onions.
  static absl::StatusOr<OnionIntake> BeginSubmissions(const RoundContext& context,
                                                      const OfflineSecrets& secrets, uint64_t bytes,
                                                      uint64_t onions, const Resources& resources);

  // Takes the next bytes, any number. INVALID_ARGUMENT beyond the announced end, and for what are
  // not submissions. Errors of the spool.
  absl::Status Take(BytesView piece);

  bool complete() const { return opened_ == count_ && left_bytes_ == 0; }
  uint64_t opened() const { return opened_; }
  uint64_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend absl::StatusOr<struct OfflineOutput> RunOffline(const RoundContext&, const ShuffleKeys&,
                                                         NoiseBatch, OnionIntake, const Resources&);
  struct Fingerprint {
    uint64_t value;
    uint32_t position;
    bool operator<(const Fingerprint& other) const {
      return value != other.value ? value < other.value : position < other.position;
    }
  };

  OnionIntake(const RoundContext& context, const OfflineSecrets& secrets, uint64_t bytes,
              uint64_t count, const Resources& resources);
  static absl::StatusOr<OnionIntake> Begin(const RoundContext& context,
                                           const OfflineSecrets& secrets, uint64_t bytes,
                                           uint64_t count, const Resources& resources);
  absl::Status OpenPiece(BytesView piece);
  absl::Status OpenWhole(BytesView onions);
  // Opens the whole submissions at the beginning of `pending_`, and drops them from it.
  absl::Status OpenPending();
  // Makes room for the next `count` onions.
  void Grow(size_t count);
  // Keeps what onions `first` to first + inner.size() / inner_bytes - 1 contained.
  absl::Status Keep(size_t first, size_t count, BytesView inner);
  uint64_t MarkDuplicates();
  // The rest of the stage.
  absl::StatusOr<struct OfflineOutput> Finish(const RoundContext& context, const ShuffleKeys& keys,
                                              NoiseBatch noise, const Resources& resources) &&;

  const RoundContext* context_;
  Resources resources_;
  onion::KeyPair key_;
  Seed fingerprint_key_;
  uint64_t bytes_;
  uint64_t count_;
  uint64_t left_bytes_;  // announced and not taken yet
  uint64_t opened_ = 0;
  RecordCutter cutter_;  // of onions
  Bytes pending_;        // of submissions
  std::shared_ptr<Arena> arena_;
  ListMemory opened_memory_;
  PageBuffer seeds_;
  Spool inner_;  // in input order
  PageBuffer valid_;
  PageArray<Fingerprint> prints_;
};

// A list for the next party, put in order as it is read, any number of times. Thread-compatible.
class OrderedList final : public ByteSource {
 public:
  OrderedList() = default;  // empty: the backend's
  OrderedList(shuffle::Scatter scatter, ThreadPool* pool)
      : scatter_(std::move(scatter)), pool_(pool) {}

  uint64_t size() const override { return scatter_.size(); }
  // Errors of the spool.
  absl::StatusOr<BytesView> Next() override;
  // Back to the beginning.
  void Rewind() { scatter_.Rewind(); }

 private:
  shuffle::Scatter scatter_;
  ThreadPool* pool_ = nullptr;
};

struct OfflineOutput {
  OnlineMaterial material;
  OrderedList onions;
  uint64_t dead = 0;
};

// Expands the shares from the seeds ahead of the online stage, and the masks if the arena has
// memory for them by the rule of round_memory.h. A half has neither. RESOURCE_EXHAUSTED when there
// is no memory for the shares; CANCELLED once the round has ended.
absl::Status MakeReady(const RoundContext& context, Arena& arena, const Resources& resources,
                       OnlineMaterial& material);

// Runs the rest of the stage, on all machines of the party: each has a slice of the input and a
// share of the noise (MakeNoise), and gets a slice of the list for the next party. The machines'
// slices, joined in their order, are what one machine makes of their joined input. INVALID_ARGUMENT
// if the input is not complete, or too long over all machines; CANCELLED soon after the round has
// ended; errors of the spools and of Machines. After an error this machine gives up. No machine has
// a list before all have come to the last message; a fault in that one may leave some with a list
// and others without, and their next calls then fail (src/machines/machines.h). A bad onion is no
// error but makes its position dead. Equal arguments give the same output, byte for byte, for any
// number of threads, any place of the spools and any cutting of the input.
absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const ShuffleKeys& keys,
                                         NoiseBatch noise, OnionIntake intake,
                                         const Resources& resources);

// The same for an input that is complete in memory; `onions` counts those in party 1's submissions,
// and is not used elsewhere.
absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const OfflineSecrets& secrets,
                                         NoiseBatch noise, BytesView input, uint64_t onions,
                                         const Resources& resources);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_OFFLINE_H_
