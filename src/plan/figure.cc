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
                  absl::string_view y_label, std::vector<Point> points) {
  std::erase_if(points, [](const Point& p) { return !(p.x > 0 && p.y > 0); });
  if (points.empty()) return "";
  const auto by_x = [](const Point& a, const Point& b) { return a.x < b.x; };
  const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
  std::sort(points.begin(), points.end(), by_x);
  const auto [lowest, highest] = std::minmax_element(points.begin(), points.end(), by_y);
  const Axis x(points.front().x, points.back().x), y(lowest->y, highest->y);
  const double width = kWidth - kLeft - kRight, height = kHeight - kTop - kBottom;
  const auto px = [&](double value) { return x0 + kLeft + width * x.At(value); };
  const auto py = [&](double value) { return kTop + height * (1 - y.At(value)); };
  std::string out;
  const auto text = [&](double at_x, double at_y, absl::string_view anchor, absl::string_view what) {
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
  out += "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"";
  for (const Point& p : points) absl::StrAppendFormat(&out, "%.1f,%.1f ", px(p.x), py(p.y));
  out += "\"/>\n";
  for (const Point& p : points) {
    absl::StrAppendFormat(&out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%d\" fill=\"%s\"/>\n", px(p.x),
                          py(p.y), p.marked ? 6 : 3, p.marked ? "#c0392b" : "#1f5fa8");
  }
  return out;
}

}  // namespace

std::string DrawPlan(const Plan& plan) {
  std::vector<Point> rows, epsilons;
  for (const Alternative& line : plan.by_row_bytes()) {
    if (line.note().empty()) {
      rows.push_back({static_cast<double>(line.row_bytes()), line.price_per_million(),
                      line.chosen()});
    }
  }
  for (const Alternative& line : plan.by_epsilon()) {
    if (line.note().empty()) {
      epsilons.push_back({line.epsilon(), line.mean_per_row(), line.chosen()});
    }
  }
  std::string out = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      2 * kWidth, kHeight);
  out += Panel(0, "price of a million queries", "row size, bytes", "price", rows);
  out += Panel(kWidth, "noise", "epsilon", "mean noise queries a row and party", epsilons);
  return out + "</svg>\n";
}

}  // namespace shoal::plan
