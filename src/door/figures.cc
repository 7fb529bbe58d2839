#include "src/door/figures.h"

#include <utility>
#include <vector>

#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "src/base/version.h"
#include "src/wire/visible.h"

namespace shoal::door {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// As they are in Refusal.
constexpr const char* kReasons[] = {"malformed", "too_large",   "foreign_origin", "no_address",
                                    "too_fast",  "no_room",     "too_slow",       "no_frontend",
                                    "no_token",  "spent_token", "no_ohttp"};
static_assert(std::size(kReasons) == static_cast<size_t>(Refusal::kCount));

MetricFamily One(const char* name, const char* help, MetricType type, double value) {
  ClientMetric metric;
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return {name, help, type, {std::move(metric)}};
}

double Rounded(uint64_t number) { return static_cast<double>(wire::VisibleRequests(number)); }

}  // namespace

std::string Figures::Page(uint64_t certificate_expires_s, uint64_t now_s) const {
  constexpr auto kGauge = MetricType::Gauge;
  constexpr auto kCounter = MetricType::Counter;
  std::vector<MetricFamily> page = {
      One("shoal_door_build_info", "1; the version is a label", kGauge, 1),
      One("shoal_door_connections", "Open connections of clients", kGauge, Rounded(connections)),
      One("shoal_door_websockets", "Of these, WebSockets", kGauge, Rounded(web_sockets)),
      One("shoal_door_frontend_connections", "Open connections to the frontend", kGauge,
          Rounded(frontend_connections)),
      One("shoal_door_frontend_handshakes_total", "Connections to the frontend that were begun",
          kCounter, Rounded(frontend_handshakes)),
      One("shoal_door_requests_total", "Frames that were passed to the frontend", kCounter,
          Rounded(requests)),
      One("shoal_door_tokens_total", "Tokens that were spent", kCounter, Rounded(tokens)),
      One("shoal_door_received_bytes_total", "Bytes of requests' frames", kCounter,
          static_cast<double>(wire::VisibleBytes(received_bytes))),
      One("shoal_door_sent_bytes_total", "Bytes of answers' frames", kCounter,
          static_cast<double>(wire::VisibleBytes(sent_bytes))),
  };
  if (certificate_expires_s != 0) {
    page.push_back(
        One("shoal_door_certificate_expires_days", "Days until the certificate expires", kGauge,
            (static_cast<double>(certificate_expires_s) - static_cast<double>(now_s)) / 86400));
  }
  page[0].metric[0].label.push_back({"version", cli::kVersion});
  MetricFamily refusals{
      "shoal_door_refused_total", "Requests and connections that were refused", kCounter, {}};
  for (size_t i = 0; i < refused.size(); ++i) {
    ClientMetric metric;
    metric.label.push_back({"reason", kReasons[i]});
    metric.counter.value = Rounded(refused[i]);
    refusals.metric.push_back(std::move(metric));
  }
  page.push_back(std::move(refusals));
  return prometheus::TextSerializer().Serialize(page);
}

}  // namespace shoal::door
