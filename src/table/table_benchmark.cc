// bazel run -c opt //src/table:table_benchmark
// Tables like the package index: names of 4 to 40 bytes, values of 5 to 25.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/roster/testing/parties.h"
#include "src/table/table.h"

namespace shoal::table {
namespace {

using ::shoal::roster::testing::kNowS;
using ::shoal::roster::testing::Parties;
using ::shoal::testing::TestRandom;

RecordSet Records(size_t n) {
  TestRandom random(1);
  RecordSet records("benchmark");
  for (size_t i = 0; i < n; ++i) {
    const std::string key = absl::StrCat(i, std::string(random.Below(36), 'k'));
    const std::string value(5 + random.Below(21), 'v');
    SHOAL_CHECK(records.Add(AsBytes(key), AsBytes(value), i + 1).ok());
  }
  return records;
}

TableOptions Options(uint32_t row_bytes) {
  return {.name = "benchmark",
          .deployment = "test",
          .created_s = kNowS,
          .expires_s = kNowS + 1000,
          .row_bytes = row_bytes};
}

void BM_BuildHashed(benchmark::State& state) {
  TestRandom random(2);
  const RecordSet records = Records(static_cast<size_t>(state.range(0)));
  double fill = 0;
  for (auto _ : state) {
    const auto table = BuildHashed(records, Options(static_cast<uint32_t>(state.range(1))), random);
    SHOAL_CHECK(table.ok());
    fill = table->fill();
  }
  state.counters["fill"] = fill;
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_BuildHashed)
    ->ArgsProduct({{63'666}, {256, 512, 1024, 4096}})
    ->Args({1'000'000, 1024})
    ->Unit(benchmark::kMillisecond);

// Records that change from an epoch to the next one: of a hundred keys one gets another value, of
// two hundred one goes and one comes. Values have 5 to 25 bytes, whatever they had before.
class ChangingRecords {
 public:
  explicit ChangingRecords(size_t n) {
    for (size_t i = 0; i < n; ++i) Add();
  }
  RecordSet Take() const {
    RecordSet records("benchmark");
    for (const auto& [key, value_bytes] : records_) {
      SHOAL_CHECK(records.Add(AsBytes(key), Bytes(value_bytes, 'v'), 1).ok());
    }
    return records;
  }
  void NextEpoch() {
    const size_t n = records_.size();
    for (size_t i = 0; i < n / 100; ++i) records_[random_.Below(n)].second = ValueBytes();
    for (size_t i = 0; i < n / 200; ++i) {
      std::swap(records_[random_.Below(records_.size())], records_.back());
      records_.pop_back();
    }
    while (records_.size() < n) Add();
  }

 private:
  size_t ValueBytes() { return 5 + random_.Below(21); }
  void Add() {
    records_.emplace_back(absl::StrCat(next_++, std::string(random_.Below(36), 'k')), ValueBytes());
  }
  TestRandom random_{6};
  std::vector<std::pair<std::string, size_t>> records_;
  uint64_t next_ = 0;
};

// What a term of 30 epochs costs whose rows are kept: records, bytes of a row, and the percentage
// that the first epoch leaves free in every row. Tells how many keys are displaced after some of
// the epochs, and how many rows there are.
void BM_KeepRows(benchmark::State& state) {
  for (auto _ : state) {
    TestRandom random(7);
    ChangingRecords changing(static_cast<size_t>(state.range(0)));
    TableOptions options = Options(static_cast<uint32_t>(state.range(1)));
    options.room_percent = static_cast<uint32_t>(state.range(2));
    auto table = BuildHashed(changing.Take(), options, random);
    SHOAL_CHECK(table.ok());
    state.counters["rows"] = static_cast<double>(table->rows());
    state.counters["fill"] = table->fill();
    options.room_percent = 0;
    // Signatures say nothing about rows: the chain goes without.
    options.keep_rows = options.sign_all_rows = true;
    for (int epoch = 1; epoch <= 30; ++epoch) {
      const PreviousEpoch previous{.content = *table, .manifest = {}, .signatures = nullptr};
      options.previous = &previous;
      options.epoch = table->manifest().epoch() + 1;
      changing.NextEpoch();
      const RecordSet records = changing.Take();
      table = BuildHashed(records, options, random);
      SHOAL_CHECK(table.ok());
      if (epoch == 1 || epoch == 7 || epoch == 14 || epoch == 30) {
        const std::string after = absl::StrCat("_", epoch);
        state.counters["displaced" + after] =
            static_cast<double>(records.size() - table->manifest().records());
        state.counters["incomplete" + after] =
            static_cast<double>(table->manifest().incomplete_rows());
      }
    }
  }
}
BENCHMARK(BM_KeepRows)
    ->ArgsProduct({{100'000, 2'500'000}, {1024, 4096}, {0, 5, 10, 15, 20, 30}})
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

// All cores. `rows` of 1,024 bytes.
void BM_SignTable(benchmark::State& state) {
  TestRandom random(3);
  ThreadPool pool;
  const Parties parties(2, random);
  const roster::Roster roster = parties.roster();
  const auto table = BuildHashed(Records(20'000), Options(1024), random);
  SHOAL_CHECK(table.ok());
  for (auto _ : state) {
    SHOAL_CHECK(SignTable(*table, nullptr, roster, parties.keys(1).bls(), pool).ok());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(table->rows()));
}
BENCHMARK(BM_SignTable)->Unit(benchmark::kMillisecond)->UseRealTime();

// A client verifies many answers at once, on one thread.
void BM_VerifyAnswers(benchmark::State& state) {
  TestRandom random(4);
  ThreadPool pool;
  const Parties parties(2, random);
  const roster::Roster roster = parties.roster();
  const auto unsigned_table = BuildHashed(Records(20'000), Options(1024), random);
  SHOAL_CHECK(unsigned_table.ok());
  const std::vector<TableShare> shares = {
      *SignTable(*unsigned_table, nullptr, roster, parties.keys(1).bls(), pool),
      *SignTable(*unsigned_table, nullptr, roster, parties.keys(2).bls(), pool)};
  const auto table = AggregateTable(*unsigned_table, roster, shares, kNowS, random, pool);
  SHOAL_CHECK(table.ok());
  const auto n = static_cast<size_t>(state.range(0));
  std::vector<Bytes> bytes;
  std::vector<RowAnswer> answers;
  bytes.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    bytes.emplace_back(table->answer_bytes());
    table->CopyAnswer(i % table->rows(), bytes.back());
    answers.push_back({i % table->rows(), bytes.back()});
  }
  for (auto _ : state) {
    for (const absl::Status& status : table->map().VerifyAnswers(roster, answers, random)) {
      SHOAL_CHECK(status.ok());
    }
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_VerifyAnswers)->Arg(1)->Arg(16)->Arg(128)->Arg(1024)->Unit(benchmark::kMillisecond);

// What a client does for every key: it finds the key's row, and the value in the row.
void BM_RowOfAndFind(benchmark::State& state) {
  TestRandom random(5);
  const RecordSet records = Records(20'000);
  const auto table = BuildHashed(records, Options(1024), random);
  SHOAL_CHECK(table.ok());
  size_t i = 0;
  for (auto _ : state) {
    const BytesView key = records.key(i++ % records.size());
    const uint64_t row = *table->map().RowOf(key);
    benchmark::DoNotOptimize(table->map().Find(row, table->row(row), key));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_RowOfAndFind)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shoal::table
