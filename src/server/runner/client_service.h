// Serves clients at the frontend (src/wire/client.proto; docs/protocol.md).
#ifndef SHOAL_SRC_SERVER_RUNNER_CLIENT_SERVICE_H_
#define SHOAL_SRC_SERVER_RUNNER_CLIENT_SERVICE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "src/net/server.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/table/table.h"

namespace shoal::server {

// Thread-safe. Two threads of its own: one makes submissions durable, all that wait with one
// sync; one answers those who wait for a round's next state.
class ClientService {
 public:
  // All outlive the service.
  ClientService(Frontend* frontend, const roster::Roster* roster, const table::Table* table,
                Journal* journal);
  // Waiting requests are dropped.
  ~ClientService();
  ClientService(const ClientService&) = delete;
  ClientService& operator=(const ClientService&) = delete;

  absl::StatusOr<wire::FrameLimits> Limits(wire::FrameType type) const;
  void Handle(wire::Frame request, net::Reply reply);

 private:
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

  // The answer, or nothing if it comes later.
  void Dispatch(const wire::Frame& request, net::Reply& reply);
  absl::Status SubmitOnions(const wire::Frame& request, net::Reply& reply);
  absl::Status WaitRound(const wire::Frame& request, net::Reply& reply);
  // True if answered.
  bool AnswerWaiter(Waiter& waiter, bool at_deadline);
  void SyncLoop();
  void WaitLoop();

  Frontend* const frontend_;
  const roster::Roster* const roster_;
  const table::Table* const table_;
  Journal* const journal_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::vector<Unsynced> unsynced_;
  std::vector<Waiter> waiters_;
  size_t waiters_at_hand_ = 0;  // which WaitLoop looks at just now, beside those
  std::thread sync_thread_;
  std::thread wait_thread_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_RUNNER_CLIENT_SERVICE_H_
