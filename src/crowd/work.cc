#include "src/crowd/work.h"

#include <memory>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"

namespace shoal::crowd {

absl::Status Work::OverConnection(
    const std::function<absl::Status(client::Transport&)>& body) const {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<client::Transport> transport, connections.Take());
  const absl::Status status = body(*transport);
  connections.Give(std::move(transport));
  return status;
}

void Work::ForUnits(const std::string& stage, uint64_t queries,
                    const std::function<absl::Status(Unit unit)>& body) const {
  const Stopwatch stopwatch;
  recorder.BeginQueries();
  const std::vector<Unit> units = devices.Units({0, devices.count()}, queries);
  const absl::Status never_fails =
      client::ForPieces(units.size(), 1, threads, [&](size_t i, size_t) {
        const Unit unit = units[i];
        if (devices.AllLost(unit)) return absl::OkStatus();
        if (const absl::Status status = body(unit); !status.ok()) {
          recorder.AddError(Annotate(status, stage));
          devices.Lose(unit);
        }
        recorder.CountQueries(stage, devices.First(unit.end) - devices.First(unit.first));
        return absl::OkStatus();
      });
  SHOAL_CHECK(never_fails.ok());
  connections.HangUp();
  recorder.AddStage(stage, stopwatch.Seconds());
}

absl::Status Work::CheckNotAllLost() const {
  return devices.AllLost({0, devices.count()})
             ? Annotate(recorder.FirstError(), "no device got through")
             : absl::OkStatus();
}

}  // namespace shoal::crowd
