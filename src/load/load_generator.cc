#include "src/load/load_generator.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/retrieval.h"
#include "src/client/state.h"
#include "src/load/checker.h"
#include "src/load/devices.h"
#include "src/load/work.h"
#include "src/parallel/thread_pool.h"
#include "src/round/query_bytes.h"

namespace shoal::load {
namespace {

// Counts the answers and keys of lost devices as failed.
void CountLost(const Devices& devices, CrowdReport& report) {
  for (uint32_t device = 0; device < devices.count(); ++device) {
    if (!devices.IsLost(device)) continue;
    ++report.devices_lost;
    report.answers_failed += devices.QueriesOf(device);
    report.keys_failed += devices.NumberOfKeys(device);
  }
}

// Connections to a party of the roster.
absl::StatusOr<client::TransportFactory> FactoryTo(uint32_t party,
                                                   const client::Deployment& deployment,
                                                   const client::TransportFactory& connect,
                                                   const client::Environment& environment) {
  if (party == deployment.party()) return connect;
  const roster::Roster& roster = deployment.roster();
  if (party == 0 || party > roster.size() || roster.party(party).client_address.empty() ||
      !environment.connect_to) {
    return absl::InvalidArgumentError(
        absl::StrCat("party ", party, " is no party of the roster that serves clients"));
  }
  return client::TransportFactory(
      [connect_to = environment.connect_to, address = roster.party(party).client_address] {
        return connect_to(address);
      });
}

// Draws a machine of the frontend for every device, each as likely as the others. Which numbers the
// devices have tells nothing, so that those of one machine have successive ones.
void DrawMachines(const Devices& devices, RandomSource& random,
                  std::vector<FrontendMachine>& machines) {
  std::vector<uint32_t> drawn(machines.size());
  if (machines.size() == 1) {
    drawn[0] = devices.count();
  } else {
    for (uint32_t i = 0; i < devices.count(); ++i) ++drawn[random.Below(machines.size())];
  }
  uint32_t first = 0;
  for (size_t i = 0; i < machines.size(); ++i) {
    machines[i].devices = {first, first + drawn[i]};
    first += drawn[i];
  }
}

// What is open to the deployment, beside the first connection to it.
struct Connected {
  std::vector<std::unique_ptr<client::Connections>> connections;
  std::vector<std::unique_ptr<client::Transport>> controls;
  std::vector<FrontendMachine> machines;
  std::vector<EngineServer> servers;
};

// As clients do, to each machine of the frontend that devices can draw. Engines are at one.
Connected ConnectMachines(const CrowdOptions& options, const client::Deployment& deployment,
                          const client::TransportFactory& connect,
                          const client::Environment& environment) {
  Connected connected;
  const roster::Party& frontend = deployment.roster().party(1);
  const bool several =
      options.engine == nullptr && frontend.machines > 1 && environment.connect_to != nullptr;
  for (uint32_t machine = 0; machine < (several ? frontend.machines : 1); ++machine) {
    client::TransportFactory factory = connect;
    if (several) {
      factory = [connect_to = environment.connect_to, address = frontend.ClientAddress(machine)] {
        return connect_to(address);
      };
    }
    connected.connections.push_back(std::make_unique<client::Connections>(
        std::move(factory), &deployment.roster(), environment.sleep,
        /*keep=*/!options.own_connections));
    connected.machines.push_back({connected.connections.back().get(), {}});
  }
  return connected;
}

// To the two servers of an engine, of which each may be the one that `connect` leads to.
absl::Status ConnectServers(const CrowdOptions& options, const client::Deployment& deployment,
                            const client::TransportFactory& connect,
                            const client::Environment& environment, Connected& connected) {
  for (const uint32_t party : options.parties) {
    SHOAL_ASSIGN_OR_RETURN(const client::TransportFactory factory,
                           FactoryTo(party, deployment, connect, environment));
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::Transport> control, factory());
    SHOAL_RETURN_IF_ERROR(control->RequireParty(deployment.roster(), party));
    connected.controls.push_back(std::move(control));
    connected.connections.push_back(
        std::make_unique<client::Connections>(factory, &deployment.roster(), environment.sleep,
                                              /*keep=*/!options.own_connections, party));
    connected.servers.push_back(
        {connected.controls.back().get(), connected.connections.back().get()});
  }
  return absl::OkStatus();
}

void HangUp(const Connected& connected, CrowdReport& report) {
  client::Traffic traffic;
  for (const auto& one : connected.connections) {
    one->HangUp();
    traffic = traffic + one->traffic();
  }
  report.bytes_sent = traffic.sent;
  report.bytes_received = traffic.received;
}

// Whether rounds are for rows, which is all that crowds ask. UNIMPLEMENTED.
absl::Status CheckRows(const client::Deployment& deployment) {
  return roster::CheckOneTier("the load generator (shoal simulate)", deployment.roster(),
                              deployment.manifest().content().query_buckets());
}

}  // namespace

absl::StatusOr<CrowdReport> RunLoad(const CrowdOptions& options, const roster::PinnedParties& pins,
                                    const CrowdKeys& keys, const table::UnsignedTable* expected,
                                    const client::TransportFactory& connect,
                                    client::Environment environment, const CrowdProgress& progress,
                                    const TableOpener& open_table) {
  SHOAL_RETURN_IF_ERROR(CheckCrowd(options, keys.size()));
  const Stopwatch wall, cpu(Stopwatch::kProcess);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<client::Transport> control, connect());
  client::MemoryStateStore store;
  SHOAL_ASSIGN_OR_RETURN(
      const client::Deployment deployment,
      client::Deployment::Open(*control, pins, store, environment, options.placement_cache));
  SHOAL_RETURN_IF_ERROR(CheckRows(deployment));
  if (expected != nullptr &&
      table::ManifestDigest(expected->manifest()) != deployment.manifest().digest()) {
    return absl::FailedPreconditionError("the table to compare with is not the deployment's");
  }
  Connected connected = ConnectMachines(options, deployment, connect, environment);
  std::optional<ThreadPool> threads;
  if (options.connections > 1) threads.emplace(options.connections - 1);
  Recorder recorder(progress);
  Devices devices(options, &keys, &deployment);
  DrawMachines(devices, *environment.random, connected.machines);
  Checker checker(&deployment, &devices, expected, options.verify_each);
  CrowdReport& report = recorder.report();
  report.devices = devices.count();
  report.queries = devices.queries();
  report.table_rows = deployment.manifest().rows();
  report.answer_bytes = static_cast<uint32_t>(deployment.fetched_bytes());
  report.compared = expected != nullptr;

  if (options.engine != nullptr && options.engine->roles().size() == 2) {
    SHOAL_RETURN_IF_ERROR(ConnectServers(options, deployment, connect, environment, connected));
  } else {
    connected.servers = {{control.get(), connected.connections[0].get()}};
  }
  const Work work = {options,
                     environment,
                     deployment,
                     *control,
                     connected.machines,
                     connected.servers,
                     threads ? &*threads : nullptr,
                     devices,
                     checker,
                     recorder};
  std::unique_ptr<CrowdTerm> term;
  if (options.engine != nullptr) {
    SHOAL_RETURN_IF_ERROR(RunEngine(work, *options.engine));
  } else {
    SHOAL_ASSIGN_OR_RETURN(term, RunChain(work));
  }
  SHOAL_RETURN_IF_ERROR(client::CheckNotExpired(deployment, *environment.clock));
  CountLost(devices, report);
  HangUp(connected, report);
  if (term != nullptr) {
    RunRefreshes(
        work, *term,
        [&] {
          return client::Deployment::Fetch(*control, pins, store.state(),
                                           environment.clock->NowSeconds(),
                                           options.placement_cache);
        },
        open_table);
  }
  report.seconds = wall.Seconds();
  report.cpu_seconds = cpu.Seconds();
  report.peak_memory_bytes = PeakMemoryBytes();
  return recorder.Take();
}

}  // namespace shoal::load
