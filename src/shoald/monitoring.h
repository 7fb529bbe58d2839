// The monitoring of one process: its figures, whether it is well, and the two pages that show both
// to the operator (docs/operations.md, "Watching a party").
#ifndef SHOAL_SRC_SHOALD_MONITORING_H_
#define SHOAL_SRC_SHOALD_MONITORING_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/base/clock.h"
#include "src/net/page_server.h"
#include "src/net/server.h"
#include "src/parallel/mutex.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/server/frontend.h"
#include "src/server/party.h"
#include "src/server/terms.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/config.pb.h"
#include "src/shoald/metrics.h"
#include "src/shoald/peer.h"
#include "src/shoald/table_epochs.h"

namespace shoal::shoald {

// Thread-safe. Whatever is passed by reference must outlive the last call of Pages, so the object
// that holds Pages dies first.
class Monitoring {
 public:
  // Watches the disks of `config`, and the times of expiry.
  Monitoring(const ServerConfig& config, const roster::Roster& roster,
             const roster::TlsIdentity& identity, const Clock& clock);

  Metrics& metrics() { return metrics_; }

  // What is served of the table.
  void Watch(const TableEpochs& epochs) { epochs_ = &epochs; }
  // `whom` the server serves: "clients" or "neighbour".
  void Watch(const std::string& whom, const net::Server& server);
  // `limit`: the most rounds that the party holds.
  void Watch(const server::Party& party, size_t limit);
  void Watch(const server::Frontend& frontend);
  void Watch(const server::Terms& terms);
  void Watch(const PeerService& peers);
  // The clocks of the neighbours of this party.
  void Watch(const ChainStates& states);
  // The other parties, at the frontend.
  void Watch(const ChainWatch& chain);

  // All that is wrong, one sentence each. For people and for alarms: it tells no more than the
  // figures do.
  std::vector<std::string> Problems() const ABSL_LOCKS_EXCLUDED(mutex_);
  // What this party says of itself to the parties before it, and so to everybody.
  wire::PartyState State() const ABSL_LOCKS_EXCLUDED(mutex_);
  // "/metrics" and "/healthz".
  net::Page PageAt(absl::string_view path) const;

 private:
  // Returns what is wrong in a sentence, empty if nothing is.
  using Check = std::function<std::string()>;
  void AddCheck(Check check) ABSL_LOCKS_EXCLUDED(mutex_);
  static std::vector<std::string> FailuresOf(const std::vector<Check>& checks);
  void WatchDisk(const std::string& name, const std::string& directory);
  uint64_t TableExpiresS() const;
  void WatchExpiry(const std::string& what, std::function<uint64_t()> expires_s);

  const Clock& clock_;
  const roster::Roster& roster_;
  const uint32_t number_;
  const uint64_t certificate_expires_s_;
  std::atomic<const TableEpochs*> epochs_ = nullptr;
  Metrics metrics_;
  mutable Mutex mutex_;
  std::vector<Check> checks_ ABSL_GUARDED_BY(mutex_);  // of this party itself
  std::vector<Check> chain_checks_ ABSL_GUARDED_BY(mutex_);
  const server::Party* party_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t max_rounds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_MONITORING_H_
