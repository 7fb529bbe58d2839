// What crowds of the chain and of an engine share: the deployment, the connections, and running
// work for every device.
#ifndef SHOAL_SRC_LOAD_WORK_H_
#define SHOAL_SRC_LOAD_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/base/stopwatch.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/hint_cache.h"
#include "src/client/transport.h"
#include "src/load/checker.h"
#include "src/load/devices.h"
#include "src/load/load_generator.h"
#include "src/load/options.h"
#include "src/load/report.h"
#include "src/parallel/thread_pool.h"
#include "src/wire/manifest.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::load {

// A machine of the frontend, and the devices that have drawn it for the round. An engine's crowd
// asks one.
struct FrontendMachine {
  client::Connections* connections;
  Unit devices;
};

// A server of one of the engine's roles.
struct EngineServer {
  client::Transport* control;  // no device's
  client::Connections* connections;
};

// One run. What it refers to must outlive it.
struct Work {
  const CrowdOptions& options;
  const client::Environment& environment;
  const client::Deployment& deployment;
  client::Transport& control;             // no device's
  std::vector<FrontendMachine> machines;  // all devices, in the order of their numbers
  // In the order of the engine's roles; of one server, the control above and the one machine's
  // connections.
  std::vector<EngineServer> servers;
  ThreadPool* threads;  // one for each connection but one; null if there is only one
  Devices& devices;
  Checker& checker;
  Recorder& recorder;

  // Runs `body` over a connection to a machine. Before it returns, ends the connection or gives it
  // back for the next call.
  static absl::Status OverConnection(const FrontendMachine& machine,
                                     const std::function<absl::Status(client::Transport&)>& body);

  // Runs a stage: calls body(machine, unit) so that units cover all devices that are not lost. A
  // unit is one device, or, where connections are shared, devices of one machine with about
  // `queries` queries. A unit whose body fails is lost. The machines' units take turns.
  void ForUnits(
      const std::string& stage, uint64_t queries,
      const std::function<absl::Status(const FrontendMachine& machine, Unit unit)>& body) const;

  // OK unless all devices are lost; then the first error.
  absl::Status CheckNotAllLost() const;

  // Calls of an engine's server over a connection, which must outlive them, with retries.
  client::EngineCall CallOver(client::Transport& transport) const;

  // Checks the answers of some devices, of which `first` is the first, and counts them with the
  // processor time since `cpu` began. For a round or an engine.
  void Check(uint32_t first, std::span<const AnswersOf> answers, const Stopwatch& cpu) const;
};

// The two crowds. Errors concern the whole run. Lost devices and wrong answers are counted in the
// report.

// What a crowd keeps of a round with a term, in the way of its devices. Indices are those of
// queries.
struct CrowdTerm {
  Digest round_id = {};
  wire::RoundHeader header;
  wire::Manifest manifest;  // of the table under which the rows were asked
  std::vector<uint32_t> slots;
  SecretVector<uint8_t> seeds;  // term seeds of all parties for a slot, party 1's first

  size_t parties() const { return static_cast<size_t>(header.onion_keys_size()); }
};

// How often a device looks whether its round or refresh is ready.
inline constexpr uint32_t kPollMs = 250;
// Requests that a unit of small devices fills.
inline constexpr size_t kUnitPieces = 8;

// Through one round of the chain. Null unless the options ask for refreshes.
absl::StatusOr<std::unique_ptr<CrowdTerm>> RunChain(const Work& work);
// The refreshes of its term, which every device fetches that is not lost and not asleep, whatever
// it has got before. Errors are none of the run but the report's no_more_refreshes. `open_table`
// opens the table of the present epoch, to compare with; it may be empty.
void RunRefreshes(const Work& work, const CrowdTerm& term,
                  const std::function<absl::StatusOr<client::Deployment>()>& fetch_deployment,
                  const TableOpener& open_table);
// Through an engine.
absl::Status RunEngine(const Work& work, const pir::Engine& engine);
// The same for an engine that keeps state.
absl::Status RunSessions(const Work& work, const pir::Engine& engine);

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_WORK_H_
