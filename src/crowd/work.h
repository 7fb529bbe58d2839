// What the crowd of the chain and the crowd of an engine have in common: the deployment, the
// connections, and devices that do something over one.
#ifndef SHOAL_SRC_CROWD_WORK_H_
#define SHOAL_SRC_CROWD_WORK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/transport.h"
#include "src/crowd/checker.h"
#include "src/crowd/devices.h"
#include "src/crowd/options.h"
#include "src/crowd/report.h"
#include "src/parallel/thread_pool.h"

namespace shoal::crowd {

// One run. What it refers to outlives it.
struct Work {
  const CrowdOptions& options;
  const client::Environment& environment;
  const client::Deployment& deployment;
  client::Transport& control;  // of no device
  client::Connections& connections;
  ThreadPool* threads;  // of the devices' connections but one; null if there is one
  Devices& devices;
  Checker& checker;
  Recorder& recorder;

  // Ends the connection, or gives it to the next one, before it returns.
  absl::Status OverConnection(const std::function<absl::Status(client::Transport&)>& body) const;

  // The stage in which every device that is not lost does body(unit): alone, or, where connections
  // are shared, in a unit of about so many queries. A unit whose body fails is lost.
  void ForUnits(const std::string& stage, uint64_t queries,
                const std::function<absl::Status(Unit unit)>& body) const;

  // The first error, once all devices are lost.
  absl::Status CheckNotAllLost() const;
};

// The two crowds. Errors are of the whole run: that single devices are lost or answers wrong is in
// the report.

// Through one round of the chain.
absl::Status RunChain(const Work& work);
// Through an engine.
absl::Status RunEngine(const Work& work, pir::Engine engine);

}  // namespace shoal::crowd

#endif  // SHOAL_SRC_CROWD_WORK_H_
