// What hints cost, on one thread: to prepare them, to ask and to answer with them, beside the
// limits of the machine's memory.
//
//   bazel run --config=opt //src/pir/sets:sets_benchmark -- --benchmark_filter=BM_HalfSets
//
// Seconds are processor time of the thread, which other programs' use of the cores does not change;
// their use of the memory does. Arguments are log2 of the rows, bytes of a record, and queries of a
// session or (Permuted) chunks; of Advance also the rows that changed. Counters of an
// answer and of a preparation: "GB/s" of records XORed; "percent" of memory_GB/s, the machine's
// sequential reading. Records of an answer lie anywhere, and for narrow ones a machine cannot read
// as fast: "limit" is the time to read one word of each by a loop that does nothing else, and
// "of_limit" is that time divided by the answer's.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "benchmark/benchmark.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/pir/sets/half_sets.h"
#include "src/pir/sets/single_pass_sets.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {
namespace {

double MemoryRead() {
  static const double read = testing::MeasureMemoryBandwidth(1).read;
  return read;
}

// Records that differ, of the largest table that was asked for.
BytesView Table(uint64_t bytes) {
  static PageBuffer table;
  if (table.size() < bytes) {
    table = PageBuffer::Create(bytes, PageBuffer::Content::kPublic).value();
    uint64_t state = 1;
    for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
      state = state * 6364136223846793005ull + 1442695040888963407ull;
      StoreLe<uint64_t>(table.data() + at, state ^ state >> 29);
    }
  }
  return BytesView(table).first(bytes);
}

SetShape ShapeOf(const benchmark::State& state) {
  return ShapeFor(uint64_t{1} << state.range(0), static_cast<uint32_t>(state.range(1)),
                  static_cast<uint64_t>(state.range(2)))
      .value();
}

// A session, prepared once for all benchmarks of its shape.
struct Session {
  explicit Session(const SetShape& of) : shape(of), key(), function(KeyOf(), of.offset_bits) {
    hints = std::make_unique<HintTable>(shape, &function);
  }
  static SecretArray<16> KeyOf() {
    SecretArray<16> key;
    SystemRandom().Fill(key.mutable_view());
    return key;
  }
  // Seconds of the first `chunks` chunks.
  double Prepare(uint32_t chunks) {
    const BytesView table = Table(shape.rows * shape.record_bytes);
    const uint64_t bytes = std::min(uint64_t{chunks} * shape.chunk_rows() * shape.record_bytes,
                                    uint64_t{table.size()});
    const Stopwatch watch(Stopwatch::kThread);
    hints->AddChunks(0, chunks, table.first(bytes));
    return watch.Seconds();
  }
  // As if all rows were zeros.
  void PrepareNothing() {
    SecretVector<uint8_t> state = hints->EncodeHead();
    StoreLe<uint32_t>(state.data(), shape.chunks);
    SHOAL_CHECK(hints->DecodeHead(state).ok());
  }

  SetShape shape;
  SecretArray<16> key;
  SetFunction function;
  std::unique_ptr<HintTable> hints;
};

void BM_HalfSetsPrepare(benchmark::State& state) {
  const SetShape shape = ShapeOf(state);
  Table(shape.rows * shape.record_bytes);
  double seconds = 0;
  for (auto _ : state) {
    Session session(shape);
    const double once = session.Prepare(shape.chunks);
    state.SetIterationTime(once);
    seconds += once;
  }
  seconds /= static_cast<double>(state.iterations());
  const double choices = static_cast<double>(shape.sets()) * shape.chunks;
  const double records = (0.5 * shape.hints + static_cast<double>(shape.backups)) * shape.chunks;
  state.counters["seconds"] = seconds;
  state.counters["ns_a_choice"] = seconds * 1e9 / choices;
  state.counters["GB/s"] = records * shape.record_bytes / seconds * 1e-9;
  state.counters["percent"] = 100 * records * shape.record_bytes / seconds / MemoryRead();
  state.counters["hint_MB"] = static_cast<double>(shape.parity_bytes()) * 1e-6;
}

// One query after another, client and server. The preparation does not change how long they take,
// and is left out but for some chunks.
void BM_HalfSetsQuery(benchmark::State& state) {
  const SetShape shape = ShapeOf(state);
  const BytesView table = Table(shape.rows * shape.record_bytes);
  Session session(shape);
  session.Prepare(std::min(16u, shape.chunks));
  SystemRandom random;
  std::vector<Choice> query(shape.chunks);
  Bytes sent(shape.query_bytes()), zeros(shape.record_bytes), ones(shape.record_bytes),
      record(shape.record_bytes);
  double ask = 0, answer = 0, finish = 0;
  for (auto _ : state) {
    if (session.hints->backups_left() == 0) {
      state.SkipWithError("all backups are spent");
      break;
    }
    const uint64_t row = random.Below(shape.rows);
    const Stopwatch asking(Stopwatch::kThread);
    SHOAL_CHECK(session.hints->Ask(row, random, query).ok());
    EncodeQuery(shape, query, sent);
    ask += asking.Seconds();
    const Stopwatch answering(Stopwatch::kThread);
    SHOAL_CHECK(DecodeQuery(shape, sent, query).ok());
    AnswerQuery(shape, table, query, zeros, ones);
    const double answered = answering.Seconds();
    answer += answered;
    const Stopwatch finishing(Stopwatch::kThread);
    benchmark::DoNotOptimize(session.hints->Finish(zeros, ones, record));
    finish += finishing.Seconds();
  }
  const auto times = static_cast<double>(state.iterations());
  state.counters["ask_us"] = ask / times * 1e6;
  state.counters["answer_us"] = answer / times * 1e6;
  state.counters["finish_us"] = finish / times * 1e6;
}

// Reads one word of every line of the records at the places.
uint64_t ReadPlaces(const std::vector<const uint8_t*>& places, size_t bytes) {
  uint64_t sum = 0;
  for (const uint8_t* place : places) {
    for (size_t at = 0; at < bytes; at += 64) sum += LoadLe<uint64_t>(place + at);
  }
  return sum;
}

// A server's answers to queries of many clients: every query is another one.
void BM_HalfSetsAnswer(benchmark::State& state) {
  const SetShape shape = ShapeOf(state);
  const BytesView table = Table(shape.rows * shape.record_bytes);
  SystemRandom random;
  // Enough that none finds what another one left in the caches.
  const size_t count = std::max<size_t>(
      64, (size_t{256} << 20) / (shape.chunks * std::max(64u, shape.record_bytes)));
  std::vector<std::vector<Choice>> queries(count, std::vector<Choice>(shape.chunks));
  std::vector<std::vector<const uint8_t*>> places(count);
  std::vector<Bytes> sent(count, Bytes(shape.query_bytes()));
  for (size_t q = 0; q < count; ++q) {
    SetFunction(Session::KeyOf(), shape.offset_bits).OfSet(0, queries[q]);
    EncodeQuery(shape, queries[q], sent[q]);
    for (uint32_t c = 0; c < shape.chunks; ++c) {
      const uint64_t row = (uint64_t{c} << shape.offset_bits) + queries[q][c].offset;
      if (row < shape.rows) places[q].push_back(table.data() + row * shape.record_bytes);
    }
  }
  Bytes zeros(shape.record_bytes), ones(shape.record_bytes);
  std::vector<Choice> query(shape.chunks);
  size_t next = 0;
  double answers = 0, reads = 0;
  for (auto _ : state) {
    // The other's records are not in the cache.
    const Stopwatch reading(Stopwatch::kThread);
    benchmark::DoNotOptimize(ReadPlaces(places[(next + count / 2) % count], shape.record_bytes));
    reads += reading.Seconds();
    const Stopwatch answering(Stopwatch::kThread);
    SHOAL_CHECK(DecodeQuery(shape, sent[next], query).ok());
    AnswerQuery(shape, table, query, zeros, ones);
    const double once = answering.Seconds();
    state.SetIterationTime(once);
    answers += once;
    next = (next + 1) % count;
  }
  const auto times = static_cast<double>(state.iterations());
  const double bytes = static_cast<double>(shape.chunks) * shape.record_bytes;
  state.counters["answer_us"] = answers / times * 1e6;
  state.counters["limit_us"] = reads / times * 1e6;
  state.counters["of_limit"] = reads / answers;
  state.counters["queries/s"] = times / answers;
  state.counters["GB/s"] = bytes * times / answers * 1e-9;
  state.counters["percent"] = 100 * bytes * times / answers / MemoryRead();
}

// A session that follows an epoch: so many rows that changed, which lie all over the table. Half of
// the backups are spent.
void BM_HalfSetsAdvance(benchmark::State& state) {
  const SetShape shape =
      ShapeFor(uint64_t{1} << state.range(0), static_cast<uint32_t>(state.range(1)),
               static_cast<uint64_t>(state.range(2)))
          .value();
  Session session(shape);
  session.PrepareNothing();
  SystemRandom random;
  std::vector<Choice> query(shape.chunks);
  Bytes none(shape.record_bytes), record(shape.record_bytes);
  for (uint32_t i = 0; i < shape.backups / 2; ++i) {
    SHOAL_CHECK(session.hints->Ask(random.Below(shape.rows), random, query).ok());
    session.hints->Finish(none, none, record);
  }
  const auto count = static_cast<uint64_t>(state.range(3));
  Bytes difference(shape.record_bytes, 7);
  double seconds = 0;
  for (auto _ : state) {
    std::vector<RowChange> changes(count);
    const uint64_t first = random.Below(shape.rows / count);
    for (uint64_t i = 0; i < count; ++i) {
      changes[i] = {.row = first + i * (shape.rows / count), .difference = difference};
    }
    const Stopwatch watch(Stopwatch::kThread);
    session.hints->Advance(changes);
    const double once = watch.Seconds();
    state.SetIterationTime(once);
    seconds += once;
  }
  state.counters["us_a_row"] =
      seconds * 1e6 / static_cast<double>(state.iterations()) / static_cast<double>(count);
}

// The tables of the paper, 1 GiB each, and one like the authors' own example.
void Shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({20, 1072, 14'000})->Args({22, 256, 31'000})->Args({24, 64, 68'000});
  benchmark->Args({24, 8, 68'000})->Args({27, 8, 216'000});
}
BENCHMARK(BM_HalfSetsPrepare)
    ->Apply(Shapes)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(BM_HalfSetsQuery)->Apply(Shapes)->Iterations(1000)->Unit(benchmark::kMicrosecond);
void AdvanceShapes(benchmark::internal::Benchmark* benchmark) {
  for (const int rows : {1, 1000, 20'000}) {
    benchmark->Args({20, 1072, 14'000, rows})->Args({22, 256, 31'000, rows});
    benchmark->Args({24, 64, 68'000, rows});
  }
}
BENCHMARK(BM_HalfSetsAdvance)
    ->Apply(AdvanceShapes)
    ->UseManualTime()
    ->MinTime(0.2)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_HalfSetsAnswer)->Apply(Shapes)->UseManualTime()->Unit(benchmark::kMicrosecond);

SinglePassShape SinglePassOf(const benchmark::State& state) {
  return SinglePassShapeFor(uint64_t{1} << state.range(0), static_cast<uint32_t>(state.range(1)),
                            static_cast<uint32_t>(state.range(2)))
      .value();
}

// The offline server's work for one client: permutations and parities.
void BM_SinglePassHint(benchmark::State& state) {
  const SinglePassShape shape = SinglePassOf(state);
  const BytesView table = Table(shape.rows * shape.record_bytes);
  SystemRandom random;
  Bytes parities(shape.parity_bytes());
  double permute = 0, add = 0;
  for (auto _ : state) {
    const Seed seed = random.NewSeed();
    const Stopwatch permuting(Stopwatch::kThread);
    const ParityMaker maker(shape, seed);
    permute += permuting.Seconds();
    const Stopwatch adding(Stopwatch::kThread);
    maker.Make(table, 0, parities);
    add += adding.Seconds();
  }
  const auto times = static_cast<double>(state.iterations());
  const double rate = static_cast<double>(table.size()) * times / add;
  state.counters["permute_ms"] = permute / times * 1e3;
  state.counters["add_ms"] = add / times * 1e3;
  state.counters["GB/s"] = rate * 1e-9;
  state.counters["percent"] = 100 * rate / MemoryRead();
  state.counters["hint_MB"] = static_cast<double>(shape.parity_bytes()) * 1e-6;
}

// Queries, client and one server. Every answer is about other rows: they are not in the caches.
void BM_SinglePassQuery(benchmark::State& state) {
  const SinglePassShape shape = SinglePassOf(state);
  const BytesView table = Table(shape.rows * shape.record_bytes);
  SystemRandom random;
  const Seed seed = random.NewSeed();
  SinglePassTable client(shape, PermutationsOf(shape, seed));
  Bytes parities(shape.parity_bytes());
  ParityMaker(shape, seed).Make(table, 0, parities);
  client.AddParities(parities);
  Bytes online(shape.query_bytes()), offline(shape.query_bytes());
  Bytes of_online(shape.answer_bytes()), of_offline(shape.answer_bytes());
  Bytes record(shape.record_bytes);
  double ask = 0, answer = 0, finish = 0;
  for (auto _ : state) {
    const uint64_t row = random.Below(shape.rows);
    const Stopwatch asking(Stopwatch::kThread);
    SHOAL_CHECK(client.Ask(row, random, online, offline).ok());
    ask += asking.Seconds();
    const Stopwatch answering(Stopwatch::kThread);
    SHOAL_CHECK(AnswerPermuted(shape, table, online, of_online).ok());
    SHOAL_CHECK(AnswerPermuted(shape, table, offline, of_offline).ok());
    answer += answering.Seconds() / 2;
    const Stopwatch finishing(Stopwatch::kThread);
    client.Finish(of_online, of_offline, record);
    finish += finishing.Seconds();
    SHOAL_CHECK(
        std::ranges::equal(record, table.subspan(row * shape.record_bytes, shape.record_bytes)));
  }
  const auto times = static_cast<double>(state.iterations());
  state.counters["ask_us"] = ask / times * 1e6;
  state.counters["answer_us_a_server"] = answer / times * 1e6;
  state.counters["finish_us"] = finish / times * 1e6;
  state.counters["kB"] = 2e-3 * static_cast<double>(shape.query_bytes() + shape.answer_bytes());
}

void SinglePassShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({20, 1072, 32})->Args({20, 1072, 128})->Args({24, 64, 64});
}
BENCHMARK(BM_SinglePassHint)->Apply(SinglePassShapes)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SinglePassQuery)->Apply(SinglePassShapes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shoal::pir::sets
