#include "src/shoald/metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "prometheus/text_serializer.h"
#include "src/base/check.h"
#include "src/wire/visible.h"

namespace shoal::shoald {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr char kAnsweredAge[] = "shoal_answered_age_seconds";
constexpr char kStageSeconds[] = "shoal_stage_seconds";
constexpr char kStageBytes[] = "shoal_stage_bytes_total";
constexpr char kStagePositions[] = "shoal_stage_positions";
constexpr char kNoiseQueries[] = "shoal_noise_queries";
constexpr char kRefused[] = "shoal_refused_total";
constexpr char kRefreshes[] = "shoal_refreshes_total";
constexpr char kSyncSeconds[] = "shoal_sync_seconds";

const Histogram::BucketBoundaries kStageBounds = {0.1, 1, 5, 15, 60, 300, 1800};
const Histogram::BucketBoundaries kSyncBounds = {0.001, 0.01, 0.1, 1, 10};

double Shown(As as, double value) {
  switch (as) {
    case As::kItIs:
      break;
    case As::kSeconds:
      return wire::VisibleSeconds(value);
    case As::kRequests:
      return static_cast<double>(wire::VisibleRequests(static_cast<uint64_t>(value)));
    case As::kBytes:
      return static_cast<double>(wire::VisibleBytes(static_cast<uint64_t>(value)));
  }
  return value;
}

// A histogram's sum is a time, and its counts are shown as the figure says.
void Round(As as, MetricFamily& family) {
  for (ClientMetric& metric : family.metric) {
    switch (family.type) {
      case MetricType::Counter:
        metric.counter.value = Shown(as, metric.counter.value);
        break;
      case MetricType::Gauge:
        metric.gauge.value = Shown(as, metric.gauge.value);
        break;
      case MetricType::Histogram: {
        const auto shown = [as](uint64_t count) {
          return static_cast<uint64_t>(Shown(as, static_cast<double>(count)));
        };
        metric.histogram.sample_count = shown(metric.histogram.sample_count);
        metric.histogram.sample_sum = Shown(As::kSeconds, metric.histogram.sample_sum);
        for (ClientMetric::Bucket& bucket : metric.histogram.bucket) {
          bucket.cumulative_count = shown(bucket.cumulative_count);
        }
        break;
      }
      default:
        SHOAL_CHECK(false);  // no such figure is made here
    }
  }
}

}  // namespace

Metrics::Metrics(uint32_t party, const Clock* clock)
    : self_{{"party", absl::StrCat(party)}},
      clock_(clock),
      shown_{{kStageSeconds, As::kItIs}, {kStageBytes, As::kItIs},  {kStagePositions, As::kItIs},
             {kNoiseQueries, As::kItIs}, {kRefused, As::kRequests}, {kSyncSeconds, As::kRequests},
             {kRefreshes, As::kItIs}},
      stage_seconds_(prometheus::BuildHistogram()
                         .Name(kStageSeconds)
                         .Help("Wall time of this party's stages, as in the stages' reports")
                         .Labels(self_)
                         .Register(registry_)),
      stage_bytes_(prometheus::BuildCounter()
                       .Name(kStageBytes)
                       .Help("Bytes of this party's stages, both directions together")
                       .Labels(self_)
                       .Register(registry_)),
      stage_positions_(prometheus::BuildGauge()
                           .Name(kStagePositions)
                           .Help("Positions that went into a stage and came out, in the last round")
                           .Labels(self_)
                           .Register(registry_)),
      noise_queries_(prometheus::BuildGauge()
                         .Name(kNoiseQueries)
                         .Help("This party's own noise queries, in the last round")
                         .Labels(self_)
                         .Register(registry_)),
      refused_(prometheus::BuildCounter()
                   .Name(kRefused)
                   .Help("Errors sent, by their code")
                   .Labels(self_)
                   .Register(registry_)),
      refreshes_(prometheus::BuildCounter()
                     .Name(kRefreshes)
                     .Help("Tries of refreshes of terms, by how they ended")
                     .Labels(self_)
                     .Register(registry_)),
      sync_seconds_(prometheus::BuildHistogram()
                        .Name(kSyncSeconds)
                        .Help("Time until a record of the journal or of submissions was durable")
                        .Labels(self_)
                        .Register(registry_)
                        .Add({}, kSyncBounds)),
      answered_s_(clock->SteadySeconds()) {
  noise_queries_.Add({});  // until the first round is told, and at a party without noise
  AddGauge(kAnsweredAge, "Since a round was last answered here, or since the start", As::kSeconds,
           {}, [this] {
             const MutexLock lock(mutex_);
             return static_cast<double>(clock_->SteadySeconds() - answered_s_);
           });
}

void Metrics::Add(Reading reading) {
  const MutexLock lock(mutex_);
  readings_.push_back(std::move(reading));
}
void Metrics::AddGauge(const std::string& name, const std::string& help, As as,
                       prometheus::Labels labels, std::function<double()> read) {
  Add({MetricType::Gauge, name, help, as, std::move(labels), std::move(read)});
}
void Metrics::AddCounter(const std::string& name, const std::string& help, As as,
                         prometheus::Labels labels, std::function<double()> read) {
  Add({MetricType::Counter, name, help, as, std::move(labels), std::move(read)});
}

void Metrics::StageDone(const wire::StageReport& report, bool last) {
  const std::string& stage = report.stage();
  // A round of two tiers has each stage once a half: by a label, so that their sum is the party's.
  const auto of_half = [&](prometheus::Labels labels) {
    if (report.half() != 0) labels["half"] = wire::HalfName(report.half());
    return labels;
  };
  stage_seconds_.Add(of_half({{"stage", stage}}), kStageBounds).Observe(report.seconds());
  const auto count = [&](const char* direction, uint64_t bytes, uint64_t positions) {
    const prometheus::Labels labels = of_half({{"stage", stage}, {"direction", direction}});
    stage_bytes_.Add(labels).Increment(static_cast<double>(bytes));
    stage_positions_.Add(labels).Set(static_cast<double>(positions));
  };
  count("in", report.bytes_in(), report.positions_in());
  count("out", report.bytes_out(), report.positions_out());
  if (stage == "noise") {
    noise_queries_.Add(of_half({})).Set(static_cast<double>(report.noise_queries()));
  }
  if (!last) return;
  const MutexLock lock(mutex_);
  answered_s_ = clock_->SteadySeconds();
}

void Metrics::Refused(const std::string& whom, absl::StatusCode code) {
  refused_.Add({{"whom", whom}, {"reason", absl::AsciiStrToLower(absl::StatusCodeToString(code))}})
      .Increment();
}

void Metrics::RefreshEnded(bool done) {
  refreshes_.Add({{"result", done ? "done" : "failed"}}).Increment();
}

void Metrics::Synced(double seconds) { sync_seconds_.Observe(seconds); }

std::string Metrics::Page() const {
  std::vector<MetricFamily> page = registry_.Collect();
  for (MetricFamily& family : page) Round(shown_.at(family.name), family);
  std::vector<Reading> readings;
  {
    const MutexLock lock(mutex_);
    readings = readings_;
  }
  for (const Reading& reading : readings) {
    ClientMetric metric;
    for (const prometheus::Labels& labels : {self_, reading.labels}) {
      for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    }
    const double value = Shown(reading.as, reading.read());
    reading.type == MetricType::Counter ? metric.counter.value = value : metric.gauge.value = value;
    // Figures of one name stand together.
    auto family = std::ranges::find(page, reading.name, &MetricFamily::name);
    if (family == page.end()) {
      family = page.insert(page.end(), {reading.name, reading.help, reading.type, {}});
    }
    SHOAL_CHECK(family->type == reading.type);
    family->metric.push_back(std::move(metric));
  }
  return prometheus::TextSerializer().Serialize(page);
}

}  // namespace shoal::shoald
