// The deployment in which a client of the chain looks keys up, for a client that goes on by itself
// when a new epoch of the table or of the roster goes live while it waits for a round.
//
//   Open                the deployment, verified (deployment.h)
//   Follow(call)        call() under the present epoch: keys to rows, slots, queries, answers
//     NewEpochError ->  the deployment again, verified; call() again under the new epoch
//     a round or certificate that does not verify -> the same, if either epoch is newer now
//
// A lookup that begins again maps its keys to the rows of the new table and sends as many queries
// as PaddedCount says for them. Attempts that were made count on.
#ifndef SHOAL_SRC_CLIENT_LIVE_DEPLOYMENT_H_
#define SHOAL_SRC_CLIENT_LIVE_DEPLOYMENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/client/chain_client.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/state.h"
#include "src/client/transport.h"
#include "src/roster/roster.h"

namespace shoal::client {

// Thread-compatible. Calls block.
class LiveDeployment {
 public:
  // As Deployment::Open. Waits for a frontend that does not answer for a minute; if the state has
  // rounds that have not ended, something is under way, and it waits until the last of them
  // expires, if that is later. The pointers, and those in
  // `environment`, must outlive this.
  static absl::StatusOr<std::unique_ptr<LiveDeployment>> Open(
      Transport* transport, const roster::PinnedParties* pins, StateStore* store,
      Environment environment, std::string placement_cache = "", std::string address = "");

  // Valid until Follow returns.
  const Deployment& current() const { return *current_; }

  // Calls `call`, again under every new epoch of the table or roster that `chain` hears of, and
  // returns what it returns at last. `chain` asks in current(). `call` must have delivered nothing
  // when it returns NewEpochError or what is perhaps of a new roster (deployment.h); what it has
  // sent and charged is in the state, as if the program were run again. A roster is taken as at the
  // start: verified with the pins. Errors of Deployment::Open; FAILED_PRECONDITION if the frontend
  // showed a newer epoch than it then served, or if the newer roster has other noise, whatever it
  // is, or names another party for the address: no caller has agreed to that.
  absl::Status Follow(ChainClient& chain, const std::function<absl::Status()>& call);

 private:
  LiveDeployment(Transport* transport, const roster::PinnedParties* pins, StateStore* store,
                 Environment environment, std::string placement_cache, std::string address)
      : transport_(transport),
        pins_(pins),
        store_(store),
        environment_(std::move(environment)),
        placement_cache_(std::move(placement_cache)),
        address_(std::move(address)) {}
  absl::StatusOr<std::unique_ptr<const Deployment>> Fetch(uint64_t wait_until_s);

  Transport* const transport_;
  const roster::PinnedParties* const pins_;
  StateStore* const store_;
  const Environment environment_;
  const std::string placement_cache_;
  const std::string address_;
  std::unique_ptr<const Deployment> current_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_LIVE_DEPLOYMENT_H_
