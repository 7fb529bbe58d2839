// Measures what a stage of a round costs.
#ifndef SHOAL_SRC_SERVER_STAGE_TIMER_H_
#define SHOAL_SRC_SERVER_STAGE_TIMER_H_

#include "src/base/stopwatch.h"
#include "src/wire/client.pb.h"

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

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_STAGE_TIMER_H_
