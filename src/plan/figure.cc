#include "src/plan/figure.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal::plan {
namespace {

struct Point {
  double x, y;
  bool marked;
};
struct Line {
  std::string name;  // empty if it is the only one
  std::string colour = "#1f5fa8";
  std::vector<Point> points;
};

constexpr double kWidth = 440, kHeight = 300, kLeft = 70, kTop = 50, kRight = 20, kBottom = 50;

// Powers of ten that enclose [low, high].
struct Axis {
  Axis(double low, double high)
      : from(std::floor(std::log10(low))), to(std::ceil(std::log10(high))) {
    if (to <= from) to = from + 1;
  }
  double At(double value) const { return (std::log10(value) - from) / (to - from); }
  double from, to;
};

std::string Panel(double x0, absl::string_view title, absl::string_view x_label,
                  absl::string_view y_label, std::vector<Line> lines) {
  const auto by_x = [](const Point& a, const Point& b) { return a.x < b.x; };
  const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
  std::vector<Point> all;
  for (Line& one : lines) {
    std::erase_if(one.points, [](const Point& p) { return !(p.x > 0 && p.y > 0); });
    std::sort(one.points.begin(), one.points.end(), by_x);
    all.insert(all.end(), one.points.begin(), one.points.end());
  }
  if (all.empty()) return "";
  const auto [first, last] = std::minmax_element(all.begin(), all.end(), by_x);
  const auto [lowest, highest] = std::minmax_element(all.begin(), all.end(), by_y);
  const Axis x(first->x, last->x), y(lowest->y, highest->y);
  const double width = kWidth - kLeft - kRight, height = kHeight - kTop - kBottom;
  const auto px = [&](double value) { return x0 + kLeft + width * x.At(value); };
  const auto py = [&](double value) { return kTop + height * (1 - y.At(value)); };
  std::string out;
  const auto text = [&](double at_x, double at_y, absl::string_view anchor,
                        absl::string_view what) {
    absl::StrAppendFormat(&out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", at_x,
                          at_y, anchor, what);
  };
  const auto line = [&](double xa, double ya, double xb, double yb) {
    absl::StrAppendFormat(
        &out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ccc\"/>\n", xa, ya,
        xb, yb);
  };
  text(x0 + kLeft + width / 2, kTop - 18, "middle", title);
  text(x0 + kLeft + width / 2, kHeight - 8, "middle", x_label);
  absl::StrAppendFormat(&out,
                        "<text transform=\"translate(%.1f,%.1f) rotate(-90)\" "
                        "text-anchor=\"middle\">%s</text>\n",
                        x0 + 14, kTop + height / 2, y_label);
  for (double e = x.from; e <= x.to; ++e) {
    const double at = px(std::pow(10, e));
    line(at, kTop, at, kTop + height);
    text(at, kTop + height + 18, "middle", absl::StrFormat("%g", std::pow(10, e)));
  }
  for (double e = y.from; e <= y.to; ++e) {
    const double at = py(std::pow(10, e));
    line(x0 + kLeft, at, x0 + kLeft + width, at);
    text(x0 + kLeft - 6, at + 4, "end", absl::StrFormat("%g", std::pow(10, e)));
  }
  double legend = kTop + 14;
  for (const Line& one : lines) {
    if (one.points.empty()) continue;
    absl::StrAppendFormat(
        &out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", one.colour);
    for (const Point& p : one.points) absl::StrAppendFormat(&out, "%.1f,%.1f ", px(p.x), py(p.y));
    out += "\"/>\n";
    for (const Point& p : one.points) {
      absl::StrAppendFormat(&out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n",
                            px(p.x), py(p.y), p.marked ? 6 : 3, p.marked ? "#c0392b" : one.colour);
    }
    if (one.name.empty()) continue;
    absl::StrAppendFormat(&out,
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" fill=\"%s\">%s</text>\n",
                          x0 + kLeft + width - 4, legend, one.colour, one.name);
    legend += 15;
  }
  return out;
}

}  // namespace

std::string DrawPlan(const Plan& plan) {
  std::vector<Point> rows, epsilons;
  for (const Alternative& line : plan.by_row_bytes()) {
    if (line.note().empty()) {
      rows.push_back(
          {static_cast<double>(line.row_bytes()), line.price_per_million(), line.chosen()});
    }
  }
  for (const Alternative& line : plan.by_epsilon()) {
    if (line.note().empty()) {
      epsilons.push_back({line.epsilon(), line.mean_per_row(), line.chosen()});
    }
  }
  // The processor time of a query by every engine, from few queries to many.
  std::vector<Line> engines;
  static constexpr const char* kColours[] = {"#1f5fa8", "#c0392b", "#2e8b57"};
  Line online{.name = "chain, online stage", .colour = "#7fb0e0", .points = {}};
  Line two_tiers{.name = "two tiers", .colour = "#7d3c98", .points = {}};
  for (const ChainPoint& point : plan.chain_by_queries()) {
    two_tiers.points.push_back(
        {point.queries_per_record(), point.two_tiers_seconds_per_query(), false});
    online.points.push_back({point.queries_per_record(), point.online_seconds_per_query(), false});
  }
  for (const EngineCosts& engine : plan.engine()) {
    Line line{.name = engine.engine(), .colour = kColours[engines.size() % 3], .points = {}};
    for (const ChainPoint& point : plan.chain_by_queries()) {
      line.points.push_back({point.queries_per_record(),
                             engine.engine() == "chain" ? point.server_seconds_per_query()
                                                        : engine.server_seconds_per_query(),
                             false});
    }
    for (const double meets : {engine.chain_beats_cpu_from_queries_per_record(),
                               engine.chain_online_beats_cpu_from_queries_per_record()}) {
      if (meets > 0) line.points.push_back({meets, engine.server_seconds_per_query(), true});
    }
    if (engine.refused().empty()) engines.push_back(std::move(line));
  }
  engines.push_back(std::move(online));
  engines.push_back(std::move(two_tiers));
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      3 * kWidth, kHeight);
  out +=
      Panel(0, "price of a million queries", "row size, bytes", "price", {{"", "#1f5fa8", rows}});
  out += Panel(kWidth, "noise", "epsilon", "mean noise queries a row and party",
               {{"", "#1f5fa8", epsilons}});
  out += Panel(2 * kWidth, "processor time of a query at the servers", "queries a round / records",
               "seconds", engines);
  return out + "</svg>\n";
}

}  // namespace shoal::plan
