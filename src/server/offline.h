// The offline stage of one party (paper, algorithm 2; docs/architecture.md). Computes on bytes;
// does no I/O.
//
//   party j-1 --- N_j onions of 112 * (m - j + 1) bytes ---> party j
//                   open a layer; mark invalid, foreign and duplicate ones dead;
//                   add S_j noise onions for parties j+1..m; shuffle the living and the noise
//   party j --- N_(j+1) = live + S_j onions of 112 * (m - j) bytes ---> party j+1
#ifndef SHOAL_SRC_SERVER_OFFLINE_H_
#define SHOAL_SRC_SERVER_OFFLINE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/thread_pool.h"
#include "src/server/round_context.h"
#include "src/server/round_state.h"

namespace shoal::server {

// This party's noise for one round, made ahead of time: it depends on the header and on the
// party's secrets alone, never on the onions that come in.
struct NoiseBatch {
  Bytes onions;                     // for the next party, onion_bytes of it each
  SecretVector<uint32_t> tallies;   // what the next party is sent for each, online
  size_t size() const { return tallies.size(); }
};

// The backend makes none. Costs one seal for every noise query and following party.
NoiseBatch MakeNoise(const RoundContext& context, const RoundSecrets& secrets, ThreadPool& pool);

struct OfflineOutput {
  RoundState state;
  Bytes onions;  // for the next party; empty at the backend
  uint64_t dead = 0;
};

// INVALID_ARGUMENT if `onions` is not a whole number of this party's onions, or more of them than
// the header allows. A single bad onion is no error: its position is dead. The same arguments give
// the same output, byte for byte, whatever the number of threads.
absl::StatusOr<OfflineOutput> RunOffline(const RoundContext& context, const RoundSecrets& secrets,
                                         const NoiseBatch& noise, BytesView onions,
                                         ThreadPool& pool);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_OFFLINE_H_
