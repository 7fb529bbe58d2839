// Serves engines on a clients' port (src/wire/pir.proto; docs/protocol.md). Any party can.
#ifndef SHOAL_SRC_SHOALD_PIR_SERVICE_H_
#define SHOAL_SRC_SHOALD_PIR_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/stopwatch.h"
#include "src/net/server.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/setup/maker.h"
#include "src/roster/roster.h"
#include "src/shoald/heavy_shares.h"
#include "src/shoald/pass_times.h"
#include "src/table/table.h"
#include "src/wire/frame.h"
#include "src/wire/pir.pb.h"

namespace shoal::shoald {

struct PirServiceOptions {
  // Each once.
  std::vector<const pir::Engine*> engines;
  uint64_t max_hint_bytes = uint64_t{1} << 30;
  ThreadPool* pool = nullptr;  // outlives the service
  // As long as a query waits at most, by the time that the last pass of each engine and role took
  // (pass_times.h), all of whose queries wait in one queue; beyond,
  // RESOURCE_EXHAUSTED. Callers give up after a minute: a server that answers those who are gone
  // answers nobody.
  double max_wait_seconds = 30;
  // Heavy requests (pir::Engine::IsHeavy): threads that work on one beside those of `pool`, at
  // least one, and what one address may take.
  uint32_t heavy_threads = 1;
  HeavyShares::Limits heavy = {};
  // Where what took so long to make is kept for the next start (src/pir/setup/product_file.h);
  // empty: nowhere.
  std::string directory = {};
  // Of making the hints.
  std::function<void(const pir::Engine& engine, uint64_t done, uint64_t total)> progress = nullptr;
};

// An epoch of the table, with the setups of engines that all parties signed, for all of the
// service's engines.
struct ServedTable {
  std::shared_ptr<const table::Table> table;
  std::map<const pir::Engine*, wire::SignedPirSetup> setups;
};
// Reads the setups from the table's directory. NOT_FOUND names an engine whose setup the parties
// have not signed.
absl::StatusOr<ServedTable> ReadServedTable(const std::string& directory,
                                            std::shared_ptr<const table::Table> table,
                                            std::span<const pir::Engine* const> engines);

// Whether there is a setup of each of these engines, and every setup is the table's and signed by
// all parties. INVALID_ARGUMENT if one is missing; errors of pir::CheckSetup.
absl::Status CheckSetups(const ServedTable& served, std::span<const pir::Engine* const> engines,
                         const roster::Roster& roster);

// Thread-safe. One thread of its own answers queries: whatever has come in while it worked is
// answered in one pass over the table, kMaxPass queries at a time. Another one works on heavy
// requests, one at a time in the order in which they came, so that queries do not wait for them.
class PirService {
 public:
  static constexpr size_t kMaxPass = 16;
  // Of queries that wait; beyond, RESOURCE_EXHAUSTED.
  static constexpr uint64_t kMaxWaitingBytes = uint64_t{256} << 20;
  // Of a hint or a delta in one answer: I/O threads copy it, and hold it while a client reads.
  static constexpr uint32_t kMaxPiece = 1 << 20;

  // Makes the hints: minutes for gigabytes. Errors of CheckSetups and pir::MakeServer. `roster`
  // outlives the service.
  static absl::StatusOr<std::unique_ptr<PirService>> Create(const roster::Roster* roster,
                                                            ServedTable served,
                                                            PirServiceOptions options);
  ~PirService();
  PirService(const PirService&) = delete;
  PirService& operator=(const PirService&) = delete;

  // Whether a request is for this service, and what is taken of it.
  static bool Serves(wire::FrameType type);
  absl::StatusOr<wire::FrameLimits> Limits(wire::FrameType type) const;
  void Handle(wire::Frame request, net::Reply reply);

  // A later epoch of the table: hints are refreshed where that saves work, and clients of the epoch
  // before can ask for what changed; others are made anew, beside what goes on answering. On an
  // error nothing has changed, in the directory neither. Calls `commit`, if there is one, once
  // nothing of this service can fail any more and before it serves the epoch; an error of `commit`
  // is returned.
  absl::Status Reload(ServedTable next, const std::function<absl::Status()>& commit = nullptr)
      ABSL_LOCKS_EXCLUDED(reload_mutex_);

 private:
  struct Waiting {
    const pir::Engine* engine;
    pir::Role role;
    uint32_t kind;
    uint32_t count;
    Bytes body;
    net::Reply reply;
  };
  struct Served {
    std::unique_ptr<pir::Server> server;
    wire::SignedPirSetup setup;  // the server's
    Digest id = {};              // the setup's
    // From the epoch before: clients that are further behind fetch the hint.
    std::optional<pir::Delta> delta;
  };

  PirService(const roster::Roster* roster, PirServiceOptions options);
  // Checks that every engine has a setup for this table, which all parties signed.
  // Changes nothing, on disk neither: what it makes may not come to be served.
  absl::StatusOr<pir::Made> Make(const pir::Engine& engine, const pir::Content& content,
                                 const wire::SignedPirSetup& setup, bool products = true) const;
  // Failures are logged: the service runs without.
  void Keep(const pir::Server& server) const;
  void SetSetupSeconds(const pir::Engine& engine, double seconds);
  // NOT_FOUND, with the names of the engines that there are.
  absl::StatusOr<const pir::Engine*> Find(const std::string& name) const;
  // What is no query.
  absl::StatusOr<wire::Frame> Answer(const wire::Frame& request) const
      ABSL_SHARED_LOCKS_REQUIRED(served_mutex_);
  absl::Status Enqueue(wire::Frame& request, net::Reply& reply);
  absl::Status EnqueueHeavy(const pir::Engine* engine, pir::Role role, uint32_t kind, Bytes& body,
                            net::Reply& reply);
  // Of the largest request of queries that any engine takes.
  uint64_t MostQueryBytes() const ABSL_SHARED_LOCKS_REQUIRED(served_mutex_);
  void Work();
  void AnswerPass(std::vector<Waiting> pass);
  void WorkOnHeavy();
  void AnswerHeavy(Waiting waiting);

  const roster::Roster* const roster_;
  const PirServiceOptions options_;
  const Stopwatch since_start_;

  Mutex reload_mutex_;  // of Reload, which runs once at a time
  // Readers answer, Reload writes, for as long as a hint takes to refresh. I/O threads never wait
  // for it.
  mutable SharedMutex served_mutex_ ABSL_ACQUIRED_AFTER(reload_mutex_);
  std::shared_ptr<const table::Table> table_ ABSL_GUARDED_BY(served_mutex_);
  std::map<const pir::Engine*, Served> served_ ABSL_GUARDED_BY(served_mutex_);

  mutable Mutex reports_mutex_;
  std::map<const pir::Engine*, wire::PirReport> reports_ ABSL_GUARDED_BY(reports_mutex_);

  Mutex queue_mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(queue_mutex_) = false;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(queue_mutex_);
  uint64_t waiting_bytes_ ABSL_GUARDED_BY(queue_mutex_) = 0;
  PassTimes pass_times_ ABSL_GUARDED_BY(queue_mutex_){kMaxPass};
  // Other requests that came while a hint was refreshed.
  std::deque<std::pair<wire::Frame, net::Reply>> deferred_ ABSL_GUARDED_BY(queue_mutex_);
  CondVar wake_heavy_;
  std::deque<Waiting> heavy_ ABSL_GUARDED_BY(queue_mutex_);
  HeavyShares heavy_shares_ ABSL_GUARDED_BY(queue_mutex_);
  std::atomic<uint64_t> most_query_bytes_ = 0;
  std::atomic<bool> stop_heavy_ = false;    // Reload waits for what a heavy request reads
  std::unique_ptr<ThreadPool> heavy_pool_;  // beside the thread itself; null: that thread alone
  std::thread worker_, heavy_worker_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PIR_SERVICE_H_
