// A client's connections to the frontend: the first one, which lists rounds and serves the
// deployment, and those to the machine that has its slots in a round. Makes calls. What a round's
// silence or refusal means is decided by HeldRounds (held_rounds.h).
#ifndef SHOAL_SRC_CLIENT_ROUND_LINKS_H_
#define SHOAL_SRC_CLIENT_ROUND_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/exchange.h"
#include "src/client/retry_policy.h"
#include "src/client/state.h"
#include "src/client/transport.h"
#include "src/parallel/thread_pool.h"

namespace shoal::client {

// Thread-compatible. The pointers, and those in `environment`, must outlive this.
class RoundLinks {
 public:
  // `connections`: at a time, for steps of several requests.
  RoundLinks(const Deployment* deployment, uint32_t connections, Transport* transport,
             const Environment& environment);
  ~RoundLinks();

  // Goes on under a later deployment of the same parties.
  void Follow(const Deployment* deployment);

  // The first connection.
  Exchange& frontend() { return exchange_; }
  uint32_t machines() const { return deployment_->roster().party(1).machines; }

  // To the machine of a round, or the first connection if the frontend has one machine. `other`: to
  // the machine that comes so many after it. INVALID_ARGUMENT if the roster has no such address.
  absl::StatusOr<Exchange*> ExchangeOf(const HeldRound& held, uint32_t other = 0);
  // Calls work(exchange, first, count) over [0, total) in pieces, over several connections to the
  // round's machine if there are several pieces. Begins no more pieces after an error.
  absl::Status ForPieces(
      const HeldRound& held, size_t total, size_t piece,
      const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work);

  // While a frontend of one machine does not answer: waits from now on until `until_s`
  // (RetryPolicy).
  void WaitUntil(uint64_t until_s, std::string event) {
    retry_policy_.Until(until_s, std::move(event));
  }

  void HangUp();
  Traffic traffic() const;

 private:
  // The link to a machine of the frontend.
  struct Link;
  // The link to the machine of a round; null if that has none.
  absl::StatusOr<Link*> LinkTo(const HeldRound& held, uint32_t other = 0);

  const Deployment* deployment_;
  const uint32_t most_connections_;
  const Environment environment_;
  Transport* const transport_;
  RetryPolicy retry_policy_;
  Exchange exchange_;
  Connections connections_;
  std::map<uint32_t, std::unique_ptr<Link>> links_;  // by machine; made when needed
  Traffic past_;                                     // of ways of earlier rosters
  std::unique_ptr<ThreadPool> lanes_;  // a thread for each connection but one; made when needed
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROUND_LINKS_H_
