// Serves clients at the frontend (src/wire/client.proto; docs/protocol.md).
#ifndef SHOAL_SRC_SHOALD_CLIENT_SERVICE_H_
#define SHOAL_SRC_SHOALD_CLIENT_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <thread>
#include <vector>

#include "src/base/address_block.h"
#include "src/base/stopwatch.h"
#include "src/net/server.h"
#include "src/parallel/mutex.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/refreshes.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/table_epochs.h"

namespace shoal::shoald {

// Thread-safe. Has three threads: one stores onions, with one sync for all that wait; one answers
// clients that wait for a round's next state; one reads the answers of refreshes from the disk, for
// one address block after the other.
class ClientService {
 public:
  // The pointers must outlive the service. Without `chain` clients hear nothing of the other
  // parties. Without `refreshes` there are no terms.
  ClientService(server::Frontend* frontend, const roster::Roster* roster, const TableEpochs* epochs,
                server::Journal* journal, const ChainWatch* chain = nullptr,
                const server::Refreshes* refreshes = nullptr);
  // Drops waiting requests.
  ~ClientService();
  ClientService(const ClientService&) = delete;
  ClientService& operator=(const ClientService&) = delete;

  absl::StatusOr<wire::FrameLimits> Limits(wire::FrameType type) const;
  // Of requests by which clients follow the rounds, and people the deployment. They are short, and
  // must not wait for room behind uploads.
  static bool IsControl(wire::FrameType type);
  void Handle(wire::Frame request, net::Reply reply);

 private:
  // What waits for the disk.
  struct Waiting {
    wire::Frame request;
    net::Reply reply;
  };
  struct Unsynced {
    RoundCounter round;
    Digest round_id;
    wire::Frame answer;
    net::Reply reply;
  };
  struct Waiter {
    Digest round_id;
    wire::RoundState state;
    std::chrono::steady_clock::time_point deadline;
    net::Reply reply;
  };

  // Of what is answered at once.
  absl::StatusOr<wire::Frame> Answer(const wire::Frame& request);
  // Leaves the request to StoreLoop, because I/O threads must not wait for the disk. The server
  // bounds the bytes of all requests that wait, and of each address block's (net::Server::Options).
  void QueueOnions(wire::Frame& request, net::Reply& reply);
  // Gives the onions slots. Adds the answer to `unsynced`, to be sent after the next sync.
  absl::Status StoreOnions(const wire::Frame& request, net::Reply& reply,
                           std::vector<Unsynced>& unsynced);
  absl::Status WaitRound(const wire::Frame& request, net::Reply& reply);
  // True if answered.
  bool AnswerWaiter(Waiter& waiter, bool at_deadline);
  // Leaves a request for answers of a refresh to FetchLoop.
  void QueueFetch(wire::Frame& request, net::Reply& reply);
  absl::StatusOr<wire::Frame> FetchRefresh(const wire::Frame& request) const;
  absl::StatusOr<wire::Frame> GetRefresh(const wire::Frame& request) const;
  void StoreLoop();
  void WaitLoop();
  void FetchLoop();

  server::Frontend* const frontend_;
  const roster::Roster* const roster_;
  const TableEpochs* const epochs_;
  server::Journal* const journal_;
  const ChainWatch* const chain_;
  const server::Refreshes* const refreshes_;
  const Stopwatch since_start_;

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Waiting> unstored_ ABSL_GUARDED_BY(mutex_);
  // By who asks, and whose turn it is, so that nobody waits for all that somebody else has asked.
  std::map<Origin, std::deque<Waiting>> unfetched_ ABSL_GUARDED_BY(mutex_);
  std::deque<Origin> turns_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  // Waiters that WaitLoop has taken out of `waiters_` for the moment.
  size_t waiters_at_hand_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread store_thread_;
  std::thread wait_thread_;
  std::thread fetch_thread_;  // if there are terms
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_CLIENT_SERVICE_H_
