#include "src/load/work.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"

namespace shoal::load {

absl::Status Work::OverConnection(const FrontendMachine& machine,
                                  const std::function<absl::Status(client::Transport&)>& body) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::Transport> transport, machine.connections->Take());
  const absl::Status status = body(*transport);
  machine.connections->Give(std::move(transport));
  return status;
}

void Work::ForUnits(
    const std::string& stage, uint64_t queries,
    const std::function<absl::Status(const FrontendMachine& machine, Unit unit)>& body) const {
  const Stopwatch stopwatch;
  recorder.BeginQueries();
  std::vector<std::vector<Unit>> units_of;
  size_t most = 0;
  for (const FrontendMachine& machine : machines) {
    units_of.push_back(devices.Units(machine.devices, queries));
    most = std::max(most, units_of.back().size());
  }
  std::vector<std::pair<const FrontendMachine*, Unit>> units;
  for (size_t i = 0; i < most; ++i) {
    for (size_t machine = 0; machine < machines.size(); ++machine) {
      if (i < units_of[machine].size())
        units.emplace_back(&machines[machine], units_of[machine][i]);
    }
  }
  const absl::Status never_fails =
      client::ForPieces(units.size(), 1, threads, [&](size_t i, size_t) {
        const auto& [machine, unit] = units[i];
        if (devices.AllLost(unit)) return absl::OkStatus();
        if (const absl::Status status = body(*machine, unit); !status.ok()) {
          recorder.AddError(Annotate(status, stage));
          devices.Lose(unit);
        }
        recorder.CountQueries(stage, devices.First(unit.end) - devices.First(unit.first));
        return absl::OkStatus();
      });
  SHOAL_CHECK(never_fails.ok());
  for (const FrontendMachine& machine : machines) machine.connections->HangUp();
  recorder.AddStage(stage, stopwatch.Seconds());
}

absl::Status Work::CheckNotAllLost() const {
  return devices.AllLost({0, devices.count()})
             ? Annotate(recorder.FirstError(), "no device got through")
             : absl::OkStatus();
}

client::EngineCall Work::CallOver(client::Transport& transport) const {
  return [this, &transport](const wire::Frame& request, uint64_t max_bulk_bytes) {
    return client::WithRetries(environment.sleep,
                               [&] { return transport.CallEngine(request, max_bulk_bytes); });
  };
}

void Work::Check(uint32_t first, std::span<const AnswersOf> answers, const Stopwatch& cpu) const {
  SeededRandom random = devices.Random("shoal crowd weights v1", first);
  const Tally tally = checker.Check(answers, random);
  recorder.AddChecked(tally, cpu.Seconds());
}

}  // namespace shoal::load
