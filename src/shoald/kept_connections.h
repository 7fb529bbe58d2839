// Connections to the machines of the next party that wait, from a round's list of onions until its
// queries. So no connection has to be made while clients wait for their answers.
#ifndef SHOAL_SRC_SHOALD_KEPT_CONNECTIONS_H_
#define SHOAL_SRC_SHOALD_KEPT_CONNECTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "src/base/bytes.h"
#include "src/net/connection.h"
#include "src/parallel/mutex.h"

namespace shoal::shoald {

// Thread-safe.
class KeptConnections {
 public:
  struct Options {
    // The most connections, as a process has few descriptors for its links. One more takes the
    // place of the oldest.
    size_t most = 128;
    // A connection that has waited for longer is not given out: the other side ends it about then.
    std::chrono::milliseconds longest{25 * 60'000};
  };
  KeptConnections() : KeptConnections(Options()) {}
  explicit KeptConnections(Options options) : options_(options) {}

  // A connection to a machine over which a call for the round has succeeded. It takes the place of
  // an earlier one for the same.
  void Keep(const Digest& round_id, uint32_t machine, std::unique_ptr<net::Connection> connection);
  // Null if there is none, or only one that has ended or has waited for too long.
  std::unique_ptr<net::Connection> Take(const Digest& round_id, uint32_t machine);
  // Ends those of rounds that are over.
  void End(const std::function<bool(const Digest& round_id)>& over) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Kept {
    Digest round_id;
    uint32_t machine;
    std::chrono::steady_clock::time_point since;
    std::unique_ptr<net::Connection> connection;
  };
  // Takes out those that `which` names, in order.
  std::list<Kept> TakeIf(const std::function<bool(const Kept&)>& which)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;                                   // held for moments
  std::list<Kept> kept_ ABSL_GUARDED_BY(mutex_);  // the oldest first
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_KEPT_CONNECTIONS_H_
