// What stands behind a shoal_client: one configuration, and calls that take turns.
//
// Nothing is kept between calls but the configuration: every call opens a client
// (src/client/client.h) and ends it, with its locks, connections and threads. So a process may fork
// between calls, other programs may use the state between them, and every lookup is in the
// deployment's present epoch.
#ifndef SHOAL_SRC_LIBSHOAL_HANDLE_H_
#define SHOAL_SRC_LIBSHOAL_HANDLE_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/secret.h"
#include "src/client/chain_client.h"
#include "src/client/client.h"
#include "src/client/config.h"
#include "src/client/retrieval.h"
#include "src/client/transport.h"
#include "src/parallel/mutex.h"
#include "src/pir/engine.h"

namespace shoal::library {

// What a call says while it runs.
struct Report {
  enum class Kind { kTell = 1, kWarn = 2, kCount = 3, kWait = 4 };
  Kind kind = Kind::kTell;
  std::string text;
  uint64_t done = 0, total = 0;  // kCount
  uint64_t due_s = 0;            // kWait
};

struct Call {
  const pir::Engine* engine = nullptr;  // null: the chain
  std::vector<uint32_t> parties = {};
  uint32_t pad = 1;
  client::BeyondPhi beyond_phi = client::BeyondPhi::kRefuse;
  // One call at a time, from any thread. May be empty.
  std::function<void(const Report&)> report = nullptr;
  // The call ends once it is true. May be null.
  const std::atomic<bool>* cancelled = nullptr;
};

// The results of a lookup, in memory. Immutable once the lookup has returned them.
class Answers final : public client::Results {
 public:
  absl::Status Add(BytesView key, const client::Lookup& result) override;
  absl::Status Finish() override { return absl::OkStatus(); }
  void SetTraffic(const client::Traffic& traffic) { traffic_ = traffic; }

  struct Answer {
    client::Lookup::Outcome outcome = client::Lookup::Outcome::kFailed;
    // Of kFound; a zero byte follows.
    BytesView value = {};
    // Of kFailed.
    const char* error = nullptr;
  };
  size_t count() const { return entries_.size(); }
  size_t failed() const { return errors_.size(); }
  Answer Get(size_t index) const;
  const client::Traffic& traffic() const { return traffic_; }

 private:
  struct Entry {
    client::Lookup::Outcome outcome;
    size_t at;    // in values_, or in errors_
    size_t size;  // of the value
  };
  SecretVector<uint8_t> values_;
  std::vector<Entry> entries_;
  std::vector<std::string> errors_;
  client::Traffic traffic_;
};

// Makes a connection whose calls end with CANCELLED once `cancelled` is true.
using Connector = std::function<absl::StatusOr<std::unique_ptr<client::Transport>>(
    const std::string& address, std::function<bool()> cancelled)>;

// Thread-safe.
class Handle {
 public:
  // See shoal_open; `path` is empty for the user's own configuration.
  static absl::StatusOr<std::unique_ptr<Handle>> Open(const std::string& path, Connector connect);

  // See shoal_lookup. `count` is the number of keys. CANCELLED only if the call was cancelled; an
  // error that client::IsInUse if another client uses the state; FAILED_PRECONDITION in the call's
  // own `report`, or if the process was forked while a call ran.
  absl::StatusOr<std::unique_ptr<const Answers>> LookUp(client::Keys& keys, uint64_t count,
                                                        const Call& call);
  // See shoal_prepare. Nothing if the queries do not run out. Errors as LookUp.
  absl::StatusOr<std::optional<uint64_t>> Prepare(const Call& call, bool anew);

 private:
  Handle(client::Config config, Connector connect)
      : config_(std::move(config)), connect_(std::move(connect)) {}

  // Waits until no other call runs, and runs `work` with a client.
  absl::Status Run(const Call& call, const std::function<absl::Status(client::Client&)>& work)
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Begin(const Call& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void End() ABSL_LOCKS_EXCLUDED(mutex_);
  client::Reports ReportsTo(const Call& call, Mutex& one_at_a_time) const;

  const client::Config config_;
  const Connector connect_;
  Mutex mutex_;
  CondVar free_;
  // The process in which a call runs; 0: none does. A process that was forked from it has a copy.
  pid_t user_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal::library

#endif  // SHOAL_SRC_LIBSHOAL_HANDLE_H_
