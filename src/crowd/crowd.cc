#include "src/crowd/crowd.h"

#include <memory>
#include <optional>
#include <utility>

#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/retrieval.h"
#include "src/client/state.h"
#include "src/crowd/checker.h"
#include "src/crowd/devices.h"
#include "src/crowd/work.h"
#include "src/parallel/thread_pool.h"

namespace shoal::crowd {
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

}  // namespace

absl::StatusOr<CrowdReport> RunCrowd(const CrowdOptions& options, const roster::PinnedParties& pins,
                                     const CrowdKeys& keys, const table::UnsignedTable* expected,
                                     const client::TransportFactory& connect,
                                     client::Environment environment,
                                     const CrowdProgress& progress) {
  SHOAL_RETURN_IF_ERROR(CheckCrowd(options, keys.size()));
  const Stopwatch wall, cpu(Stopwatch::kProcess);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<client::Transport> control, connect());
  client::MemoryStateStore store;
  SHOAL_ASSIGN_OR_RETURN(const client::Deployment deployment,
                         client::Deployment::Open(*control, pins, store, environment));
  if (expected != nullptr &&
      table::ManifestDigest(expected->manifest()) != deployment.manifest().digest()) {
    return absl::FailedPreconditionError("the table to compare with is not the deployment's");
  }
  client::Connections connections(connect, &deployment.roster(), environment.sleep,
                                  /*keep=*/!options.own_connections);
  std::optional<ThreadPool> threads;
  if (options.connections > 1) threads.emplace(options.connections - 1);
  Recorder recorder(progress);
  Devices devices(options, &keys, &deployment);
  Checker checker(&deployment, &devices, expected, options.verify_each);
  CrowdReport& report = recorder.report();
  report.devices = devices.count();
  report.queries = devices.queries();
  report.table_rows = deployment.manifest().rows();
  report.answer_bytes = deployment.manifest().answer_bytes();
  report.compared = expected != nullptr;

  const Work work = {options,  environment, deployment,
                     *control, connections, threads ? &*threads : nullptr,
                     devices,  checker,     recorder};
  SHOAL_RETURN_IF_ERROR(options.engine != nullptr ? RunEngine(work, *options.engine)
                                                  : RunChain(work));
  SHOAL_RETURN_IF_ERROR(client::CheckNotExpired(deployment, *environment.clock));
  connections.HangUp();
  CountLost(devices, report);
  const client::Traffic traffic = connections.traffic();
  report.bytes_sent = traffic.sent;
  report.bytes_received = traffic.received;
  report.seconds = wall.Seconds();
  report.cpu_seconds = cpu.Seconds();
  report.peak_memory_bytes = PeakMemoryBytes();
  return recorder.Take();
}

}  // namespace shoal::crowd
