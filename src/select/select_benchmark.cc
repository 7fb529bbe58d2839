// What selections cost on one thread, beside reading the same memory in the same run.
//
//   bazel run --config=opt //src/select:select_benchmark -- --rounds=7 [--sets=avx512,avx2]
//                                                           [--buckets_mib=512] [--cases=bucket,..]
//
// Three cases, for each instruction set of --sets (all that this processor has):
//   bucket    one bucket of 1,024 rows that stays in the cache, by row length and queries together
//   buckets   many buckets in memory, by row length and queries for each of them, in random order
//   table     a whole table, by rows, row length and queries at a time
//
// One line of JSON for each figure, on stdout. "ns_a_byte" is time divided by bytes scanned times
// queries. "of_read" is the rate of bytes times queries against that of reading as many bytes of
// the same pages once, front to back, by the fastest of several loops. "against_one" is the
// throughput against one query at a time. Everything takes turns, round by round, so that other
// programs' load affects all of it alike; seconds are processor time of the thread, figures are
// medians of the rounds, and ratios medians of the rounds' ratios.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/figures.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/base/testing/test_random.h"
#include "src/select/select.h"
#include "src/storage/page_buffer.h"

namespace shoal::select {
namespace {

// Random bytes at hardly any cost.
PageBuffer Pages(uint64_t bytes) {
  PageBuffer pages =
      PageBuffer::Create((bytes + 511) / 512 * 512, PageBuffer::Content::kPublic).value();
  uint64_t state = 1;
  for (uint64_t at = 0; at < pages.size(); at += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    StoreLe<uint64_t>(pages.data() + at, state ^ state >> 29);
  }
  return pages;
}

// Bytes a second of the fastest reader.
double ReadRate(BytesView memory) {
  return testing::FastestReadRate(memory.data(), memory.size() / 512 * 512);
}

// Selections and sums of many queries.
struct Queries {
  Queries(size_t count, size_t places, size_t row_bytes)
      : selections(count * SelectionBytes(places)), sums(count * row_bytes) {
    testing::TestRandom(7).Fill(selections);
    for (size_t q = 0; q < count; ++q) {
      queries.push_back(
          {BytesView(selections).subspan(q * SelectionBytes(places), SelectionBytes(places)),
           MutableBytes(sums).subspan(q * row_bytes, row_bytes)});
    }
  }
  Bytes selections, sums;
  std::vector<Query> queries;
};

struct Options {
  int rounds = 0;
  uint64_t buckets_mib = 0;
  std::vector<InstructionSet> sets;
  std::vector<std::string> cases;
  bool Has(const std::string& name) const {
    return std::find(cases.begin(), cases.end(), name) != cases.end();
  }
};

std::string Figure(absl::string_view of, InstructionSet set, size_t rows, size_t row_bytes,
                   size_t queries, absl::string_view figure) {
  return absl::StrCat("\"case\": \"", of, "\", \"set\": \"", NameOf(set), "\", \"rows\": ", rows,
                      ", \"row_bytes\": ", row_bytes, ", \"queries\": ", queries,
                      ", \"figure\": \"", figure, "\"");
}

constexpr size_t kPlaces = 1024;

void MeasureBucket(const Options& options) {
  for (const size_t row_bytes : {14, 32, 52, 62, 64, 80, 112, 300}) {
    const PageBuffer pages = Pages(kPlaces * row_bytes);
    const BytesView table = BytesView(pages).first(kPlaces * row_bytes);
    const Rows rows = Rows::Strided(table, row_bytes, row_bytes, kPlaces).value();
    Queries all(1024, kPlaces, row_bytes);
    testing::Figures figures;
    for (int round = 0; round < options.rounds; ++round) {
      for (const InstructionSet set : options.sets) {
        UseInstructionSet(set);
        double one = 0;
        for (const size_t queries : {1, 4, 16, 1024}) {
          const size_t times = 2048 / queries;
          const double rate =
              static_cast<double>(table.size() * queries * times) / ThreadSeconds([&] {
                for (size_t i = 0; i < times; ++i) {
                  SHOAL_CHECK(
                      SelectFromTable(rows, kPlaces, std::span(all.queries).first(queries)).ok());
                }
              });
          if (queries == 1) one = rate;
          const auto add = [&](absl::string_view figure, double value) {
            figures.Add(Figure("bucket", set, kPlaces, row_bytes, queries, figure), value);
          };
          add("ns_a_byte", 1e9 / rate);
          add("against_one", rate / one);
        }
      }
    }
    figures.Print();
  }
}

void MeasureBuckets(const Options& options) {
  for (const size_t row_bytes : {62, 300}) {
    const size_t buckets = (options.buckets_mib << 20) / (kPlaces * row_bytes);
    const PageBuffer pages = Pages(buckets * kPlaces * row_bytes);
    const BytesView table(pages);
    // Buckets are asked in the order of their numbers, and lie in memory in another one.
    std::vector<size_t> order(buckets);
    testing::TestRandom random(9);
    for (size_t b = 0; b < buckets; ++b) {
      const size_t other = random.Below(b + 1);
      order[b] = order[other];
      order[other] = b;
    }
    std::vector<Rows> rows;
    for (const size_t at : order) {
      rows.push_back(Rows::Strided(table.subspan(at * kPlaces * row_bytes, kPlaces * row_bytes),
                                   row_bytes, row_bytes, kPlaces)
                         .value());
    }
    for (const size_t each : {1, 4, 16, 64}) {
      Queries all(buckets * each, kPlaces, row_bytes);
      std::vector<BucketQuery> queries;
      for (size_t q = 0; q < all.queries.size(); ++q) {
        queries.push_back({random.Below(buckets), all.queries[q]});
      }
      testing::Figures figures;
      for (int round = 0; round < options.rounds; ++round) {
        const double read = ReadRate(table);
        for (const InstructionSet set : options.sets) {
          UseInstructionSet(set);
          const double rate =
              static_cast<double>(kPlaces * row_bytes * queries.size()) /
              ThreadSeconds([&] { SHOAL_CHECK(SelectFromBuckets(rows, kPlaces, queries).ok()); });
          const auto add = [&](absl::string_view figure, double value) {
            figures.Add(Figure("buckets", set, buckets, row_bytes, each, figure), value);
          };
          add("ns_a_byte", 1e9 / rate);
          add("of_read", rate / read);
          add("read_GB/s", read * 1e-9);
        }
      }
      figures.Print();
    }
  }
}

void MeasureTable(const Options& options) {
  const std::pair<size_t, size_t> shapes[] = {
      {2'500'000, 32}, {2'500'000, 80}, {size_t{1} << 22, 256}};
  for (const auto& [count, row_bytes] : shapes) {
    const PageBuffer pages = Pages(count * row_bytes);
    const BytesView table = BytesView(pages).first(count * row_bytes);
    const Rows rows = Rows::Strided(table, row_bytes, row_bytes, count).value();
    Queries all(64, count, row_bytes);
    testing::Figures figures;
    for (int round = 0; round < options.rounds; ++round) {
      const double read = ReadRate(table);
      for (const InstructionSet set : options.sets) {
        UseInstructionSet(set);
        double one = 0;
        for (const size_t queries : {1, 4, 16, 64}) {
          const double seconds = ThreadSeconds([&] {
            SHOAL_CHECK(SelectFromTable(rows, count, std::span(all.queries).first(queries)).ok());
          });
          const double rate = static_cast<double>(table.size() * queries) / seconds;
          if (queries == 1) one = rate;
          const auto add = [&](absl::string_view figure, double value) {
            figures.Add(Figure("table", set, count, row_bytes, queries, figure), value);
          };
          add("ms_a_query", 1e3 * seconds / static_cast<double>(queries));
          add("ns_a_byte", 1e9 / rate);
          add("of_read", rate / read);
          add("against_one", rate / one);
          add("read_GB/s", read * 1e-9);
        }
      }
    }
    figures.Print();
  }
}

int Main(int argc, char** argv) {
  namespace po = boost::program_options;
  Options options;
  std::string sets, cases;
  po::options_description flags("select_benchmark");
  flags.add_options()("help", "")("rounds", po::value(&options.rounds)->default_value(7))(
      "buckets_mib", po::value(&options.buckets_mib)->default_value(512))(
      "sets", po::value(&sets)->default_value("portable,avx2,avx512"))(
      "cases", po::value(&cases)->default_value("bucket,buckets,table"));
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, flags), values);
  if (values.count("help")) {
    std::cout << flags;
    return 0;
  }
  po::notify(values);
  const std::vector<std::string> names = absl::StrSplit(sets, ',');
  for (const InstructionSet set : kAllInstructionSets) {
    const bool wanted = std::find(names.begin(), names.end(), NameOf(set)) != names.end();
    if (wanted && IsSupported(set)) options.sets.push_back(set);
  }
  options.cases = absl::StrSplit(cases, ',');
  testing::PrintLoad("load average");
  if (options.Has("bucket")) MeasureBucket(options);
  if (options.Has("table")) MeasureTable(options);
  if (options.Has("buckets")) MeasureBuckets(options);
  testing::PrintLoad("load average at the end");
  return 0;
}

}  // namespace
}  // namespace shoal::select

int main(int argc, char** argv) { return shoal::select::Main(argc, argv); }
