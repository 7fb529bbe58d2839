// What a party shows its operator's monitoring: figures in Prometheus's text format.
//
// A figure is a rate, an age or a sum over all clients. What clients raise one by one is rounded on
// its way out, as is every time (As, src/wire/visible.h); docs/threat-model.md, "What a party
// shows", goes through the figures. A new one comes with its line there.
#ifndef SHOAL_SRC_SHOALD_METRICS_H_
#define SHOAL_SRC_SHOALD_METRICS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/labels.h"
#include "prometheus/metric_family.h"
#include "prometheus/registry.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"
#include "src/wire/client.pb.h"

namespace shoal::shoald {

// How a figure is shown.
enum class As {
  kItIs,      // everybody can count or compute it: rounds, epochs, times of expiry, stage reports
  kSeconds,   // wire::VisibleSeconds
  kRequests,  // wire::VisibleRequests
  kBytes,     // wire::VisibleBytes
};

// Thread-safe.
class Metrics {
 public:
  // `clock` must outlive the metrics. `party` becomes a label of every figure.
  Metrics(uint32_t party, const Clock* clock);

  // --- figures that are read whenever the page is made ---

  // `read` is called without a lock of this class. It must stay callable until Page is called no
  // more. The same name may come again with other labels.
  void AddGauge(const std::string& name, const std::string& help, As as, prometheus::Labels labels,
                std::function<double()> read) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for what never falls.
  void AddCounter(const std::string& name, const std::string& help, As as,
                  prometheus::Labels labels, std::function<double()> read)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // --- events ---

  // A stage of this party is done. `last` if it was the one after which the round is answered here.
  void StageDone(const wire::StageReport& report, bool last);
  // An error went to `whom`: "clients" or "neighbour".
  void Refused(const std::string& whom, absl::StatusCode code);
  // At party 1: a try of a refresh ended so.
  void RefreshEnded(bool done);
  // A record was made durable.
  void Synced(double seconds);

  // The page.
  std::string Page() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Reading {
    prometheus::MetricType type;
    std::string name, help;
    As as;
    prometheus::Labels labels;
    std::function<double()> read;
  };
  void Add(Reading reading) ABSL_LOCKS_EXCLUDED(mutex_);

  const prometheus::Labels self_;
  const Clock* const clock_;

  // How each family of `registry_` is shown.
  const std::map<std::string, As> shown_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Histogram>& stage_seconds_;
  prometheus::Family<prometheus::Counter>& stage_bytes_;
  prometheus::Family<prometheus::Gauge>& stage_positions_;
  prometheus::Family<prometheus::Gauge>& noise_queries_;
  prometheus::Family<prometheus::Counter>& refused_;
  prometheus::Family<prometheus::Counter>& refreshes_;
  prometheus::Histogram& sync_seconds_;

  mutable Mutex mutex_;
  std::vector<Reading> readings_ ABSL_GUARDED_BY(mutex_);
  uint64_t answered_s_
      ABSL_GUARDED_BY(mutex_);  // on the steady clock: the last round, or the start
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_METRICS_H_
