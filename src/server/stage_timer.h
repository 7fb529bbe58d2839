// Measures and reports what a stage of a round costs.
#ifndef SHOAL_SRC_SERVER_STAGE_TIMER_H_
#define SHOAL_SRC_SERVER_STAGE_TIMER_H_

#include <string>

#include "absl/strings/string_view.h"
#include "src/base/stopwatch.h"
#include "src/base/tagged.h"
#include "src/wire/client.pb.h"
#include "src/wire/visible.h"

namespace shoal::server {

// Wall and processor time of one stage, or of a piece of it.
class StageTimer {
 public:
  double seconds() const { return wall_.Seconds(); }
  double cpu_seconds() const { return cpu_.Seconds(); }
  void AddTo(wire::StageReport& report) const {
    report.set_seconds(report.seconds() + seconds());
    report.set_cpu_seconds(report.cpu_seconds() + cpu_seconds());
  }

 private:
  const Stopwatch wall_;
  const CpuMeter cpu_;
};

// `half`: 1 or 2 in a round of two tiers, else 0.
inline wire::StageReport ReportOf(PartyNumber party, absl::string_view stage, uint32_t half = 0) {
  wire::StageReport report;
  report.set_party(party.value());
  report.set_half(half);
  report.set_stage(std::string(stage));
  return report;
}

// Rounds times to what others may see of them.
inline void MakeVisible(wire::StageReport& report) {
  report.set_seconds(wire::VisibleSeconds(report.seconds()));
  report.set_cpu_seconds(wire::VisibleSeconds(report.cpu_seconds()));
}

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_STAGE_TIMER_H_
