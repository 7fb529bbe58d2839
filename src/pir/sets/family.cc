#include "src/pir/sets/family.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "src/base/check.h"
#include "src/base/stopwatch.h"
#include "src/pir/kit/measure.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/piano.h"
#include "src/pir/sets/single_pass.h"
#include "src/pir/sets/single_pass_sets.h"
#include "src/pir/sets/stream.h"
#include "src/pir/sets/tree_pir.h"
#include "src/pir/sets/tree_sets.h"

namespace shoal::pir::sets {
namespace {

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
  const Seed key = random.NewSeed();
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
  const QueryTimes query = TimeQueries(
      8,
      [&] {
        row = (row * 5 + 99) % shape.rows;
        SHOAL_CHECK(client.Ask(row, 0, online, offline).ok());
      },
      [&] {
        SHOAL_CHECK(ExpandTreeQuery(shape, online, offsets).ok());
        AnswerTreeQuery(shape, table, offsets, answer);
      },
      [&] { SHOAL_CHECK(client.Finish(answer, answer, record).ok()); });
  times.ask_block = query.ask / (double{1} * shape.hints * shape.levels());
  times.row = query.answer / shape.rows_read();
  times.recover = query.recover;
  return times;
}

// What permuted's servers and its client do, over a table of about so many bytes, in nanoseconds.
struct SinglePassTimes {
  double draw = 0, hint_row = 0, search = 0, row = 0, recover_byte = 0;
};
SinglePassTimes SinglePassNs(uint64_t bytes, uint32_t record_bytes, RandomSource& random) {
  constexpr uint32_t kChunks = 32;
  const SinglePassShape shape =
      *SinglePassShapeFor(std::max<uint64_t>(64, bytes / record_bytes), record_bytes, kChunks);
  const Bytes table(shape.rows * record_bytes);
  const Seed seed = random.NewSeed();
  SinglePassTimes times;
  times.draw = TypicalNanoseconds([&] { (void)PermutationsOf(shape, seed); }) /
               static_cast<double>(shape.places());
  Bytes parities(shape.parity_bytes());
  const ParityMaker maker(shape, seed);
  times.hint_row =
      TypicalNanoseconds([&] { maker.Make(table, 0, parities); }) / static_cast<double>(shape.rows);
  SinglePassTable client(shape, PermutationsOf(shape, seed));
  client.AddParities(parities);
  Bytes online(shape.query_bytes()), offline(shape.query_bytes()), record(record_bytes);
  Bytes answer(shape.answer_bytes()), other(shape.answer_bytes());
  const QueryTimes query = TimeQueries(
      16, [&] { SHOAL_CHECK(client.Ask(random.Below(shape.rows), random, online, offline).ok()); },
      [&] {
        SHOAL_CHECK(AnswerPermuted(shape, table, online, answer).ok());
        SHOAL_CHECK(AnswerPermuted(shape, table, offline, other).ok());
      },
      [&] { (void)client.Finish(answer, other, record); });
  times.search = query.ask / shape.chunk_rows;
  times.row = query.answer / (2 * kChunks);
  times.recover_byte = query.recover / static_cast<double>(shape.answer_bytes());
  return times;
}

constexpr Amount kUnits[] = {
    // Piano. At the server, a byte of the table hashed, once an epoch; a row gathered for an
    // answer,
    // and each byte of it. At the client, the choice of one set for a row's chunk, looked at for a
    // query; a byte of a record recovered, and of the hint that takes the spent one's place.
    {"sets_stream_byte", 1.1},
    {"sets_row", 400},
    {"sets_row_byte", 0.6},
    {"sets_choice", 8.9},
    {"sets_recover_byte", 3.4},
    // TreePIR. At both servers, a byte of the table copied, once; a row gathered for an answer, and
    // each byte of it; at the offline server the same for a client's hints. At the client, an AES
    // block of the search for a hint; a byte of a record recovered.
    {"sets_copy_byte", 0.3},
    {"tree_row", 60},
    {"tree_row_byte", 0.1},
    {"tree_hint_row", 5},
    {"tree_hint_row_byte", 0.05},
    {"tree_block", 2},
    {"tree_recover_byte", 1},
    // The engine permuted. At the offline server, a place of a client's permutations drawn, a row
    // added to a parity, and each byte of it; at both, a record copied to an answer, and each byte
    // of it. At the client, a place of the wanted row's chunk looked at; a byte of one answer
    // taken.
    {"permuted_draw", 14},
    {"permuted_hint_row", 25},
    {"permuted_hint_row_byte", 0.12},
    {"permuted_row", 80},
    {"permuted_row_byte", 0.17},
    {"permuted_search", 0.9},
    {"permuted_recover_byte", 0.6},
};

class TheFamily final : public Family {
 public:
  std::span<const Engine* const> engines() const override {
    static const Engine* const engines[] = {&Piano(), &TreePir(), &SinglePass()};
    return engines;
  }

  std::span<const Amount> units() const override { return kUnits; }
  std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                   ThreadPool&) const override {
    std::vector<Amount> units;
    const Bytes chunk(1 << 20);
    const double digest_ns = TypicalNanoseconds([&] { (void)ChunkDigest(0, chunk); });
    units.push_back({"sets_stream_byte", CostOf(digest_ns / static_cast<double>(chunk.size()))});

    const auto split = [&](absl::string_view row, absl::string_view row_byte, double narrow,
                           double wide) { AddRowCosts(row, row_byte, narrow, wide, units); };
    split("sets_row", "sets_row_byte", RowNs(bytes, kNarrowRecord, random),
          RowNs(bytes, kWideRecord, random));

    {
      // A client over a table of zeros: what it costs to ask depends on the sets alone.
      const SetShape shape = *ShapeFor(1 << 14, kWideRecord, 64);
      SecretArray<16> key;
      random.Fill(key.mutable_view());
      const SetFunction sets(key, shape.offset_bits);
      HintTable table(shape, &sets);
      const Bytes records(shape.chunk_rows() * kWideRecord);
      for (uint32_t c = 0; c < shape.chunks; ++c) table.AddChunk(c, records);
      std::vector<Choice> query(shape.chunks);
      Bytes zeros(kWideRecord), record(kWideRecord);
      uint64_t row = 0;
      const QueryTimes times = TimeQueries(
          8, [&] { SHOAL_CHECK(table.Ask(row++ * 99, random, query).ok()); }, [] {},
          [&] { table.Finish(zeros, zeros, record); });
      const double choices = static_cast<double>(shape.sets()) + shape.chunks;
      units.push_back({"sets_choice", CostOf(times.ask / choices)});
      units.push_back({"sets_recover_byte", CostOf(times.recover / kWideRecord)});
    }

    const Bytes from(bytes / 4 + 1);
    Bytes to(from.size());
    const double copy = TypicalNanoseconds([&] { std::ranges::copy(from, to.begin()); });
    units.push_back({"sets_copy_byte", CostOf(copy / static_cast<double>(to.size()))});

    const TreeTimes slim = TreeNs(bytes, kNarrowRecord, random),
                    broad = TreeNs(bytes, kWideRecord, random);
    split("tree_row", "tree_row_byte", slim.row, broad.row);
    split("tree_hint_row", "tree_hint_row_byte", slim.hint_row, broad.hint_row);
    units.push_back({"tree_block", CostOf(broad.ask_block)});
    units.push_back({"tree_recover_byte", CostOf(broad.recover / kWideRecord)});

    const SinglePassTimes few = SinglePassNs(bytes, kNarrowRecord, random),
                          many = SinglePassNs(bytes, kWideRecord, random);
    split("permuted_row", "permuted_row_byte", few.row, many.row);
    split("permuted_hint_row", "permuted_hint_row_byte", few.hint_row, many.hint_row);
    units.push_back({"permuted_draw", CostOf(few.draw)});
    units.push_back({"permuted_search", CostOf(few.search)});
    units.push_back({"permuted_recover_byte", CostOf(many.recover_byte)});
    return units;
  }
};

}  // namespace

const Family& SetsFamily() {
  static const TheFamily family;
  return family;
}

}  // namespace shoal::pir::sets
