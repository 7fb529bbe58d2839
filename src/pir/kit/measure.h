// What families measure their units of work with (Family::MeasureUnits), in nanoseconds of the
// processor, and their benchmarks.
#ifndef SHOAL_SRC_PIR_KIT_MEASURE_H_
#define SHOAL_SRC_PIR_KIT_MEASURE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/stopwatch.h"
#include "src/pir/engine.h"

namespace shoal::pir {

// A cost as plans take it: above zero, also where it is the difference of two that came out alike.
inline double CostOf(double ns) { return std::max(1e-6, ns); }

// A table for measuring: no cost depends on a value.
inline Content ContentToMeasure(uint64_t rows, uint32_t record_bytes) {
  return {.table_id = {1},
          .epoch = 1,
          .manifest_digest = {2},
          .rows = rows,
          .record_bytes = record_bytes,
          .copy = [](uint64_t, MutableBytes out) { std::ranges::fill(out, uint8_t{1}); }};
}

// The two sizes of records from which a row's cost and a byte's are told apart.
inline constexpr uint32_t kNarrowRecord = 64, kWideRecord = 1024;
// What a row costs whose bytes are few, and what each byte adds, from the costs of rows of the two
// sizes.
inline void AddRowCosts(absl::string_view row, absl::string_view row_byte, double narrow_ns,
                        double wide_ns, std::vector<Amount>& units) {
  const double byte = CostOf((wide_ns - narrow_ns) / (kWideRecord - kNarrowRecord));
  units.push_back({row, CostOf(narrow_ns - kNarrowRecord * byte)});
  units.push_back({row_byte, byte});
}

// The parts of one query, on average over some that follow each other.
struct QueryTimes {
  double ask = 0, answer = 0, recover = 0;
};
inline QueryTimes TimeQueries(int queries, const std::function<void()>& ask,
                              const std::function<void()>& answer,
                              const std::function<void()>& recover) {
  QueryTimes times;
  const auto add = [&](double& time, const std::function<void()>& part) {
    const Stopwatch cpu(Stopwatch::kProcess);
    part();
    time += static_cast<double>(cpu.Nanoseconds()) / queries;
  };
  for (int i = 0; i < queries; ++i) {
    add(times.ask, ask);
    add(times.answer, answer);
    add(times.recover, recover);
  }
  return times;
}

// ---- For benchmarks.

// The least processor time of all threads, of so many runs.
inline double LeastSeconds(int times, const std::function<void()>& body) {
  double best = 1e99;
  for (int i = 0; i < times; ++i) {
    const Stopwatch cpu(Stopwatch::kProcess);
    body();
    best = std::min(best, cpu.Seconds());
  }
  return best;
}

// A table of any bytes, quickly made, that differ from row to row.
inline Content ContentOfAnyBytes(uint64_t rows, uint32_t record_bytes) {
  Content content = ContentToMeasure(rows, record_bytes);
  content.copy = [](uint64_t row, MutableBytes out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<uint8_t>((row * 0x9e3779b97f4a7c15 >> 32) + i * 37);
    }
  };
  return content;
}

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_KIT_MEASURE_H_
