// What the steps of one call of a ChainClient work with.
#ifndef SHOAL_SRC_CLIENT_CHAIN_CALL_H_
#define SHOAL_SRC_CLIENT_CHAIN_CALL_H_

#include <cstdint>
#include <optional>

#include "src/base/bytes.h"
#include "src/client/chain_options.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/round_links.h"
#include "src/client/state.h"
#include "src/pir/costs.h"

namespace shoal::client {

// All outlive the call.
struct ChainCall {
  const Deployment& deployment;
  const ChainOptions& options;
  StateStore& store;
  const Environment& environment;
  RoundLinks& links;
  pir::Costs& costs;
  // Wanted::lookup, for which attempts are counted. None where a step is called by itself.
  std::optional<Digest> lookup;

  uint64_t NowSeconds() const { return environment.clock->NowSeconds(); }
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CHAIN_CALL_H_
