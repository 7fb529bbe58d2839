// An engine's hint on disk. It is fetched once and then brought forward by deltas. Both come in
// pieces, and an interrupted download is continued.
//
//   PATH.setup   the setup that PATH.hint is of (a wire::SignedPirSetup)
//   PATH.hint    as much of the hint as has come
//   PATH.deltas  deltas from that setup on, each: u32 bytes of its head, the head (a
//                wire::GetPirDeltaResponse), the changes; the last delta may be incomplete
// Nothing in the files is secret. A setup that all parties signed has the hint's digest, and that
// of the delta that leads to it. So hints and deltas that a disk, a crash or a server spoilt are
// found by their digests, before anything is asked with them. They are thrown away, and the hint
// is fetched again, once: how often does not depend on any answer. Removing the files costs a
// download.
//
// Deltas are applied again whenever the files are opened. They are not merged into PATH.hint: a
// hint comes rounded, and rounding it a second time would double an error that correctness has no
// room for. If deltas would become longer than the hint, the hint is fetched again.
#ifndef SHOAL_SRC_CLIENT_HINT_CACHE_H_
#define SHOAL_SRC_CLIENT_HINT_CACHE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/client/transport.h"
#include "src/pir/engine.h"
#include "src/roster/roster.h"

namespace shoal::client {

struct HintFetch {
  uint64_t resumed_bytes = 0;   // found on disk
  uint64_t received_bytes = 0;  // of the hint or the delta
  bool by_delta = false;
  // Why some of what was received could not be written to disk. It is used all the same, and
  // fetched again the next time.
  absl::Status unwritten;
  double open_seconds = 0;  // wall time of reading, checking and applying deltas
};

// The engine's session for the server's present `setup`, which the caller has checked
// (pir::CheckSetup), with its hint. What is on disk counts only if the roster's parties signed it.
// If `path` is empty, nothing is kept. `call` is Transport::CallEngine with retries. `progress` is
// told about the download of the hint or the delta, whichever is fetched.
//
// The hint is fetched if the server has no delta, if its delta is not the signed one, or if the
// delta is not worth it. If what was kept is damaged, or the hint that was fetched is not the
// signed one, it is fetched once more. Errors of writing are reported in HintFetch::unwritten. Any
// other error is returned, and the files are kept for the next time: UNAVAILABLE and
// RESOURCE_EXHAUSTED may be temporary. DATA_LOSS if the server's hint is not the signed one,
// RESOURCE_EXHAUSTED if it does not fit the memory.
//
// Pieces have `piece_bytes`, but for the last one: servers send as many as they are asked for, up
// to kHintPieceBytes. Tests ask for fewer.
inline constexpr uint32_t kHintPieceBytes = 1 << 20;
using EngineCall =
    std::function<absl::StatusOr<wire::Frame>(const wire::Frame& request, uint64_t max_bulk_bytes)>;
absl::StatusOr<std::unique_ptr<pir::Session>> ObtainHint(
    const pir::Engine& engine, const wire::SignedPirSetup& setup, const roster::Roster& roster,
    const std::string& path, const EngineCall& call, const pir::SessionOptions& options,
    const std::function<void(uint64_t done, uint64_t total)>& progress, HintFetch& fetch,
    uint32_t piece_bytes = kHintPieceBytes);

// The delta from the setup `from` to that of `to`, which all parties signed, for a session that is
// kept elsewhere. NOT_FOUND: there is none, or it is longer than `max_bytes`, what a new session
// would fetch. DATA_LOSS or INVALID_ARGUMENT: what the server sends is not the signed one.
// RESOURCE_EXHAUSTED: no memory.
absl::StatusOr<pir::Delta> FetchDelta(
    const Digest& from, const wire::SignedPirSetup& to, uint64_t max_bytes, const EngineCall& call,
    const std::function<void(uint64_t done, uint64_t total)>& progress, HintFetch& fetch);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_HINT_CACHE_H_
