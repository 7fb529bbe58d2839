// An engine's hint on disk: fetched once, brought forward by deltas. Both come in pieces, and go on
// where a download stopped.
//
//   PATH.setup   the setup that PATH.hint is of (a wire::PirSetup)
//   PATH.hint    as much of the hint as has come
//   PATH.deltas  deltas from that setup on, each: u32 bytes of its head, the head (a
//                wire::GetPirDeltaResponse), the changes; of the last one, as much as has come
// Nothing in them is secret. The hint's digest is the setup's, a delta's is its head's; what a
// delta makes of a hint is known to be right only when signatures are checked. So what a disk or a
// crash damaged is found by digests and fetched again; what a server said wrongly makes its answers
// useless until its next hint. Removing the files costs a download.
//
// Deltas are applied again whenever the files are opened. They are not folded into PATH.hint: a
// hint comes rounded, and rounding it a second time would double an error that there is no room
// for. Before they are longer than the hint, the hint is fetched again.
#ifndef SHOAL_SRC_CLIENT_HINT_CACHE_H_
#define SHOAL_SRC_CLIENT_HINT_CACHE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/client/transport.h"
#include "src/pir/engine.h"

namespace shoal::client {

struct HintFetch {
  uint64_t resumed_bytes = 0;   // found on disk
  uint64_t received_bytes = 0;  // of hint or delta
  bool by_delta = false;
  // Why not all that was received is on disk: it is used, and fetched again the next time.
  absl::Status unwritten;
  double open_seconds = 0;  // for all but the server's part: reading, checking, applying deltas
};

// The engine's client for the server's present `setup`, which the caller has checked against the
// table. `path` empty: nothing is kept. `call` is Transport::CallEngine, with retries; `progress`
// is of the hint or of the delta, whichever is fetched.
//
// A delta that the server does not have, that is none, or that is not worth it, makes room for the
// hint. That something cannot be written is HintFetch::unwritten. Any other error is returned and
// leaves what is kept for the next time: UNAVAILABLE and RESOURCE_EXHAUSTED pass. DATA_LOSS if the
// server's hint is not what its setup says, RESOURCE_EXHAUSTED if it does not fit the memory.
using EngineCall =
    std::function<absl::StatusOr<wire::Frame>(const wire::Frame& request, uint64_t max_bulk_bytes)>;
absl::StatusOr<std::unique_ptr<pir::Client>> ObtainHint(
    const wire::PirSetup& setup, const std::string& path, const EngineCall& call,
    const pir::ClientOptions& options,
    const std::function<void(uint64_t done, uint64_t total)>& progress, HintFetch& fetch);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_HINT_CACHE_H_
