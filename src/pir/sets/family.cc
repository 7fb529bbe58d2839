#include "src/pir/sets/family.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/stream.h"

namespace shoal::pir::sets {
namespace {

// The processor nanoseconds of the middle one of three runs.
double Typical(const std::function<void()>& body) {
  double ns[3];
  for (double& each : ns) {
    const Stopwatch cpu(Stopwatch::kProcess);
    body();
    each = static_cast<double>(cpu.Nanoseconds());
  }
  std::sort(std::begin(ns), std::end(ns));
  return ns[1];
}

double Positive(double ns) { return std::max(0.01, ns); }

// A query to a table of about so many bytes, by the row that it gathers.
double RowNs(uint64_t bytes, uint32_t record_bytes, RandomSource& random) {
  const SetShape shape = *ShapeFor(std::max<uint64_t>(64, bytes / record_bytes), record_bytes, 16);
  const Bytes records(shape.rows * record_bytes);
  constexpr int kQueries = 16;
  std::vector<std::vector<Choice>> queries(kQueries);
  for (std::vector<Choice>& query : queries) {
    Bytes words(2 * size_t{shape.chunks});
    random.Fill(words);
    for (uint32_t c = 0; c < shape.chunks; ++c) {
      const auto word = LoadLe<uint16_t>(&words[2 * size_t{c}]);
      query.push_back({.offset = static_cast<uint16_t>(word & (shape.chunk_rows() - 1)),
                       .bit = static_cast<uint16_t>(word >> 15)});
    }
  }
  Bytes zeros(record_bytes), ones(record_bytes);
  return Typical([&] {
           for (const auto& query : queries) AnswerQuery(shape, records, query, zeros, ones);
         }) /
         (double{kQueries} * shape.chunks);
}

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&Piano()};
    return engines;
  }

  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool&) const override {
    std::vector<Amount> units;
    const Bytes chunk(1 << 20);
    const double digest_ns = Typical([&] { (void)ChunkDigest(0, chunk); });
    units.push_back({"sets_stream_byte", Positive(digest_ns / static_cast<double>(chunk.size()))});

    constexpr uint32_t kNarrow = 64, kWide = 1024;
    const double narrow = RowNs(bytes, kNarrow, random), wide = RowNs(bytes, kWide, random);
    const double byte = Positive((wide - narrow) / (kWide - kNarrow));
    units.push_back({"sets_row", Positive(narrow - kNarrow * byte)});
    units.push_back({"sets_row_byte", byte});

    // A client over a table of zeros: what it costs to ask depends on the sets alone.
    constexpr int kAsked = 8;
    const auto times = [&](uint32_t record_bytes) {
      const SetShape shape = *ShapeFor(1 << 14, record_bytes, 64);
      SecretArray<16> key;
      random.Fill(key.mutable_view());
      const SetFunction sets(key, shape.offset_bits);
      HintTable table(shape, &sets);
      const Bytes records(shape.chunk_rows() * record_bytes);
      for (uint32_t c = 0; c < shape.chunks; ++c) table.AddChunk(c, records);
      std::vector<Choice> query(shape.chunks);
      Bytes zeros(record_bytes), record(record_bytes);
      Stopwatch ask(Stopwatch::kProcess);
      double ask_ns = 0, finish_ns = 0;
      for (int i = 0; i < kAsked; ++i) {
        ask = Stopwatch(Stopwatch::kProcess);
        SHOAL_CHECK(table.Ask(static_cast<uint64_t>(i) * 99, random, query).ok());
        ask_ns += static_cast<double>(ask.Nanoseconds());
        ask = Stopwatch(Stopwatch::kProcess);
        table.Finish(zeros, zeros, record);
        finish_ns += static_cast<double>(ask.Nanoseconds());
      }
      const double choices = static_cast<double>(shape.sets()) + shape.chunks;
      return std::pair(ask_ns / kAsked / choices, finish_ns / kAsked / record_bytes);
    };
    const auto [choice_ns, recover_ns] = times(kWide);
    units.push_back({"sets_choice", Positive(choice_ns)});
    units.push_back({"sets_recover_byte", Positive(recover_ns)});
    return units;
  }
};

}  // namespace

const Family& SetsFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::sets
