// The offline stage of one party (paper, algorithm 2; docs/architecture.md). Computes on bytes; no
// I/O but the spools'.
//
//   party j-1 --- N_j onions of 112 * (m - j + 1) bytes ---> party j
//                   open a layer; mark invalid, foreign and duplicate ones dead;
//                   add S_j noise onions for parties j+1..m; shuffle the living and the noise
//   party j --- N_(j+1) = live + S_j onions of 112 * (m - j) bytes ---> party j+1
#ifndef SHOAL_SRC_SERVER_OFFLINE_H_
#define SHOAL_SRC_SERVER_OFFLINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/base/page_buffer.h"
#include "src/base/spool.h"
#include "src/server/round_context.h"
#include "src/server/round_state.h"

namespace shoal::server {

// This party's noise for one round, made ahead of time: it depends on the header and on the
// party's secrets alone, never on the onions that come in.
struct NoiseBatch {
  Spool onions;                     // for the next party, onion_bytes of it each
  SecretVector<uint32_t> tallies;   // what the next party is sent for each, online
  size_t size() const { return tallies.size(); }
};

// The backend makes none. Costs one seal for every noise query and following party. Errors: of the
// spool.
absl::StatusOr<NoiseBatch> MakeNoise(const RoundContext& context, const RoundSecrets& secrets,
                                     const Resources& resources);

// A party's input, opened piece by piece while the rest is still on its way: layers are opened and
// seeds fingerprinted as they come, so that the network and the curve work overlap. Memory (49 bytes
// an onion, and the spool of what is in the onions) grows with what has come, not with what was
// announced. Thread-compatible; the context and the secrets outlive it.
class OnionIntake {
 public:
  // `bytes` in all. INVALID_ARGUMENT if that is not a whole number of this party's onions, or more
  // of them than the header allows. RESOURCE_EXHAUSTED if there is no room for them.
  static absl::StatusOr<OnionIntake> Begin(const RoundContext& context,
                                           const RoundSecrets& secrets, uint64_t bytes,
                                           const Resources& resources);

  // The next bytes, any number. INVALID_ARGUMENT beyond the announced end. Errors of the spool.
  absl::Status Take(BytesView piece);

  bool complete() const { return opened_ == count_; }
  uint64_t opened() const { return opened_; }
  uint64_t count() const { return count_; }

 private:
  friend absl::StatusOr<struct OfflineOutput> RunOffline(const RoundContext&, const RoundSecrets&,
                                                         NoiseBatch, OnionIntake,
                                                         const Resources&);
  struct Fingerprint {
    uint64_t value;
    uint32_t position;
    bool operator<(const Fingerprint& other) const {
      return value != other.value ? value < other.value : position < other.position;
    }
  };

  OnionIntake(const RoundContext& context, const RoundSecrets& secrets, uint64_t count,
              const Resources& resources);
  absl::Status OpenWhole(BytesView onions);
  uint64_t MarkDuplicates();

  const RoundContext* context_;
  Resources resources_;
  onion::KeyPair key_;
  Seed fingerprint_key_;
  uint64_t count_;
  uint64_t opened_ = 0;
  Bytes partial_;  // the beginning of an onion whose end has not come
  PageBuffer seeds_;
  Spool inner_;  // in the order of the input
  PageBuffer valid_;
  PageArray<Fingerprint> prints_;
};

struct OfflineOutput {
  RoundState state;
  // For the next party; nothing at the backend. Put in order as it is read.
  std::unique_ptr<ByteSource> onions;
  uint64_t dead = 0;
};

// Expands seeds into what the online stage needs of them: no client waits for that. RESOURCE_EXHAUSTED
// when there is no memory for the shares; masks that would take more than half of the room that
// spools have in memory are left to be expanded as they are needed.
absl::Status MakeReady(const RoundContext& context, const Resources& resources, RoundState& state);

// INVALID_ARGUMENT if the input is not complete; errors of the spools. A single bad onion is no
// error: its position is dead. The same arguments give the same output, byte for byte, whatever the
// number of threads, wherever the spools are and however the input was cut.
absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         NoiseBatch noise, OnionIntake intake,
                                         const Resources& resources);

// The same for an input that is there as a whole.
absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         NoiseBatch noise, BytesView onions,
                                         const Resources& resources);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_OFFLINE_H_
