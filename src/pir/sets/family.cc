#include "src/pir/sets/family.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/permuted_pir.h"
#include "src/pir/sets/permuted_sets.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/stream.h"
#include "src/pir/sets/tree_pir.h"
#include "src/pir/sets/tree_sets.h"

namespace shoal::pir::sets {
namespace {

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
  return TypicalNanoseconds([&] {
           for (const auto& query : queries) AnswerQuery(shape, records, query, zeros, ones);
         }) /
         (double{kQueries} * shape.chunks);
}

// What TreePIR's servers and its client do, over a table of about so many bytes, in nanoseconds.
struct TreeTimes {
  double hint_row = 0, row = 0, ask_block = 0, recover = 0;
};
TreeTimes TreeNs(uint64_t bytes, uint32_t record_bytes, RandomSource& random) {
  const TreeShape shape =
      *TreeShapeFor(std::max<uint64_t>(64, bytes / record_bytes), record_bytes, 1 << 20);
  const Bytes table(shape.table_bytes());
  Seed key;
  random.Fill(key.mutable_view());
  const TreeKeys keys = DeriveTreeKeys(shape, key);
  TreeTimes times;
  // Enough of them that a chunk is read for many, as when all are made.
  const uint32_t hints = std::min<uint32_t>(2048, shape.hints);
  Bytes parities(uint64_t{hints} * record_bytes);
  times.hint_row =
      TypicalNanoseconds([&] { MakeTreeParities(shape, table, keys.seed, 0, parities, nullptr); }) /
      (double{1} * hints * shape.chunks);

  // What it costs to ask depends on the sets alone, so all XORs may be zeros.
  const TreeFunction function(shape, keys);
  TreeHints client(shape, &function);
  SHOAL_CHECK(client.TakeParities(Bytes(shape.parity_bytes())).ok());
  Bytes online(shape.query_bytes()), offline(shape.query_bytes()), record(record_bytes);
  Bytes answer(shape.answer_bytes());
  std::vector<uint32_t> offsets(shape.query_offsets());
  uint64_t row = 0;
  double asked = 0, answered = 0, recovered = 0;
  constexpr int kQueries = 8;
  for (int i = 0; i < kQueries; ++i) {
    row = (row * 5 + 99) % shape.rows;
    Stopwatch cpu(Stopwatch::kProcess);
    SHOAL_CHECK(client.Ask(row, 0, online, offline).ok());
    asked += static_cast<double>(cpu.Nanoseconds());
    cpu = Stopwatch(Stopwatch::kProcess);
    SHOAL_CHECK(ExpandTreeQuery(shape, online, offsets).ok());
    AnswerTreeQuery(shape, table, offsets, answer);
    answered += static_cast<double>(cpu.Nanoseconds());
    cpu = Stopwatch(Stopwatch::kProcess);
    SHOAL_CHECK(client.Finish(answer, answer, record).ok());
    recovered += static_cast<double>(cpu.Nanoseconds());
  }
  times.ask_block = asked / kQueries / (double{1} * shape.hints * shape.levels());
  times.row = answered / kQueries / shape.rows_read();
  times.recover = recovered / kQueries;
  return times;
}

// What permuted's servers and its client do, over a table of about so many bytes, in nanoseconds.
struct PermutedTimes {
  double draw = 0, hint_row = 0, search = 0, row = 0, recover_byte = 0;
};
PermutedTimes PermutedNs(uint64_t bytes, uint32_t record_bytes, RandomSource& random) {
  constexpr uint32_t kChunks = 32;
  const PermutedShape shape =
      *PermutedShapeFor(std::max<uint64_t>(64, bytes / record_bytes), record_bytes, kChunks);
  const Bytes table(shape.rows * record_bytes);
  const Seed seed = random.NewSeed();
  PermutedTimes times;
  times.draw = TypicalNanoseconds([&] { (void)PermutationsOf(shape, seed); }) /
               static_cast<double>(shape.places());
  Bytes parities(shape.parity_bytes());
  const ParityMaker maker(shape, seed);
  times.hint_row =
      TypicalNanoseconds([&] { maker.Make(table, 0, parities); }) / static_cast<double>(shape.rows);
  PermutedTable client(shape, PermutationsOf(shape, seed));
  client.AddParities(parities);
  Bytes online(shape.query_bytes()), offline(shape.query_bytes()), record(record_bytes);
  Bytes answer(shape.answer_bytes()), other(shape.answer_bytes());
  double asked = 0, answered = 0, recovered = 0;
  constexpr int kQueries = 16;
  for (int i = 0; i < kQueries; ++i) {
    Stopwatch cpu(Stopwatch::kProcess);
    SHOAL_CHECK(client.Ask(random.Below(shape.rows), random, online, offline).ok());
    asked += static_cast<double>(cpu.Nanoseconds());
    cpu = Stopwatch(Stopwatch::kProcess);
    SHOAL_CHECK(AnswerPermuted(shape, table, online, answer).ok());
    SHOAL_CHECK(AnswerPermuted(shape, table, offline, other).ok());
    answered += static_cast<double>(cpu.Nanoseconds());
    cpu = Stopwatch(Stopwatch::kProcess);
    (void)client.Finish(answer, other, record);
    recovered += static_cast<double>(cpu.Nanoseconds());
  }
  times.search = asked / kQueries / shape.chunk_rows;
  times.row = answered / kQueries / (2 * kChunks);
  times.recover_byte = recovered / kQueries / static_cast<double>(shape.answer_bytes());
  return times;
}

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&Piano(), &TreePir(), &PermutedPir()};
    return engines;
  }

  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool&) const override {
    std::vector<Amount> units;
    const Bytes chunk(1 << 20);
    const double digest_ns = TypicalNanoseconds([&] { (void)ChunkDigest(0, chunk); });
    units.push_back({"sets_stream_byte", Positive(digest_ns / static_cast<double>(chunk.size()))});

    constexpr uint32_t kNarrow = 64, kWide = 1024;
    // What a row costs whose bytes are few, and what each byte adds.
    const auto split = [&](absl::string_view row, absl::string_view row_byte, double narrow,
                           double wide) {
      const double byte = Positive((wide - narrow) / (kWide - kNarrow));
      units.push_back({row, Positive(narrow - kNarrow * byte)});
      units.push_back({row_byte, byte});
    };
    split("sets_row", "sets_row_byte", RowNs(bytes, kNarrow, random), RowNs(bytes, kWide, random));

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

    const Bytes from(bytes / 4 + 1);
    Bytes to(from.size());
    const double copy = TypicalNanoseconds([&] { std::ranges::copy(from, to.begin()); });
    units.push_back({"sets_copy_byte", Positive(copy / static_cast<double>(to.size()))});

    const TreeTimes slim = TreeNs(bytes, kNarrow, random), broad = TreeNs(bytes, kWide, random);
    split("tree_row", "tree_row_byte", slim.row, broad.row);
    split("tree_hint_row", "tree_hint_row_byte", slim.hint_row, broad.hint_row);
    units.push_back({"tree_block", Positive(broad.ask_block)});
    units.push_back({"tree_recover_byte", Positive(broad.recover / kWide)});

    const PermutedTimes few = PermutedNs(bytes, kNarrow, random),
                        many = PermutedNs(bytes, kWide, random);
    split("permuted_row", "permuted_row_byte", few.row, many.row);
    split("permuted_hint_row", "permuted_hint_row_byte", few.hint_row, many.hint_row);
    units.push_back({"permuted_draw", Positive(few.draw)});
    units.push_back({"permuted_search", Positive(few.search)});
    units.push_back({"permuted_recover_byte", Positive(many.recover_byte)});
    return units;
  }
};

}  // namespace

const Family& SetsFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::sets
