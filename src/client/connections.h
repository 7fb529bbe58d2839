// Several connections to one frontend, for what takes many requests: while one waits for its answer
// the others send, and nobody waits for round trips.
#ifndef SHOAL_SRC_CLIENT_CONNECTIONS_H_
#define SHOAL_SRC_CLIENT_CONNECTIONS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/thread_pool.h"
#include "src/client/exchange.h"
#include "src/client/transport.h"
#include "src/roster/roster.h"

namespace shoal::client {

// Thread-safe.
class Connections {
 public:
  // `roster` says which frontend it must be, and outlives this. With `keep` a connection that was
  // given back is used again; otherwise everybody gets one of his own.
  Connections(TransportFactory connect, const roster::Roster* roster, Sleep sleep, bool keep)
      : connect_(std::move(connect)), roster_(roster), sleep_(std::move(sleep)), keep_(keep) {}

  absl::StatusOr<std::unique_ptr<Transport>> Take();
  void Give(std::unique_ptr<Transport> transport);

  // Ends those that nobody uses.
  void HangUp();
  // Of all that were given back.
  Traffic traffic() const;

 private:
  const TransportFactory connect_;
  const roster::Roster* const roster_;
  const Sleep sleep_;
  const bool keep_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Transport>> idle_;
  Traffic past_;
};

// Calls work(first, count) over [0, total) in pieces of at most `piece`, on the caller's thread and
// those of `threads` (may be null), in about this order. Begins no more after an error, and returns
// the first one.
absl::Status ForPieces(size_t total, size_t piece, ThreadPool* threads,
                       const std::function<absl::Status(size_t first, size_t count)>& work);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CONNECTIONS_H_
