// Several connections to one party, mostly the frontend, for lookups of many requests. While one
// connection waits for its answer the others send, so that round trips cost little.
#ifndef SHOAL_SRC_CLIENT_CONNECTIONS_H_
#define SHOAL_SRC_CLIENT_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/client/environment.h"
#include "src/client/transport.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"

namespace shoal::client {

// Thread-safe.
class Connections {
 public:
  // `roster` names the party, which `connect` leads to, and must outlive this object, or the next
  // Follow. With `keep`, connections that were given back are reused; otherwise every Take makes a
  // new connection.
  Connections(TransportFactory connect, const roster::Roster* roster, Sleep sleep, bool keep,
              uint32_t party = 1)
      : connect_(std::move(connect)),
        sleep_(std::move(sleep)),
        keep_(keep),
        party_(party),
        roster_(roster) {}

  // The roster that names the frontend from now on. Closes the connections that are not in use.
  void Follow(const roster::Roster* roster);

  absl::StatusOr<std::unique_ptr<Transport>> Take();
  void Give(std::unique_ptr<Transport> transport);

  // Closes the connections that are not in use.
  void HangUp();
  // The traffic of all connections that were given back.
  Traffic traffic() const;

 private:
  const TransportFactory connect_;
  const Sleep sleep_;
  const bool keep_;
  const uint32_t party_;
  mutable Mutex mutex_;
  const roster::Roster* roster_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Transport>> idle_ ABSL_GUARDED_BY(mutex_);
  Traffic past_ ABSL_GUARDED_BY(mutex_);  // of ended connections
};

// Calls work(first, count) over [0, total) in pieces of at most `piece`, roughly in order, on the
// caller's thread and those of `threads` (may be null). After an error begins no more pieces and
// returns the first error.
absl::Status ForPieces(size_t total, size_t piece, ThreadPool* threads,
                       const std::function<absl::Status(size_t first, size_t count)>& work);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CONNECTIONS_H_
