// What a server of `pair` and its client take, on one thread, beside reading as many bytes in the
// same run.
//
//   bazel run --config=opt //src/pir/pair:pair_benchmark -- --rounds=7
//       [--tables=2500000x32,2500000x80,78125x1072,4194304x256,4194304x304]
//
// A table is rows x bytes of a record. A record of the programs is a row and its signature of 48
// bytes; those without are for comparison with other programs.
//
// One line of JSON for each figure, on stdout: medians of the rounds, in which everything takes
// turns, and for ratios medians of the rounds' ratios. Seconds are processor time of the thread.
// "of_read" is a pass's rate of table bytes against that of reading as many other bytes once, front
// to back, by the fastest of several loops. Answers are verified against the table.
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/testing/figures.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/base/testing/test_random.h"
#include "src/pir/engine.h"
#include "src/pir/kit/measure.h"
#include "src/pir/pair/pair_client.h"
#include "src/pir/pair/pair_server.h"
#include "src/pir/pair/pair_shape.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::pair {
namespace {

struct Bench {
  Bench(uint64_t rows, uint32_t record_bytes)
      : content(ContentOfAnyBytes(rows, record_bytes)),
        name(absl::StrCat(rows, "x", record_bytes)) {
    wire::PirSetup setup = SetupOf("pair", content);
    setup.set_shape(EncodePairShape(ShorterForm(rows)));
    server = *PairTableServer::Create(setup, content, {});
    client = *PairClient::Create(setup);
    const uint64_t bytes = client->shape().table_bytes();
    other = *PageBuffer::Create((bytes + 511) / 512 * 512, PageBuffer::Content::kPublic);
    std::ranges::fill(MutableBytes(other), uint8_t{1});
  }
  // The answers of a role to these queries, of one request.
  Bytes Answer(const std::vector<PairAsked>& asked, size_t role) const {
    Bytes body;
    for (const PairAsked& one : asked) Append(body, one.queries[role]);
    const RequestView request = {
        .kind = 0, .count = static_cast<uint32_t>(asked.size()), .body = body};
    return *server->Answer(kPairRoles[role], {&request, 1})[0];
  }

  const Content content;
  const std::string name;
  std::unique_ptr<PairTableServer> server;
  std::unique_ptr<PairClient> client;
  PageBuffer other;
};

void Verify(const Bench& bench, const std::vector<PairAsked>& asked,
            const std::vector<uint64_t>& rows) {
  const Bytes first = bench.Answer(asked, 0), second = bench.Answer(asked, 1);
  const size_t bytes = bench.content.record_bytes;
  Bytes expected(bytes);
  for (size_t q = 0; q < asked.size(); ++q) {
    const std::array<BytesView, 2> answers = {BytesView(first).subspan(q * bytes, bytes),
                                              BytesView(second).subspan(q * bytes, bytes)};
    bench.content.copy(rows[q], expected);
    SHOAL_CHECK(std::ranges::equal(*bench.client->Recover(asked[q], answers), expected));
  }
}

void Measure(uint64_t rows, uint32_t record_bytes, int rounds) {
  const Bench bench(rows, record_bytes);
  const auto bytes = static_cast<double>(bench.client->shape().table_bytes());
  testing::TestRandom random(1);
  testing::Figures figures;
  const auto add = [&](absl::string_view figure, double value) {
    figures.Add(absl::StrCat("\"table\": \"", bench.name, "\", \"figure\": \"", figure, "\""),
                value);
  };
  add("query_bytes", static_cast<double>(2 * bench.client->shape().query_bytes()));
  add("answer_bytes", 2.0 * record_bytes);
  for (int round = 0; round < rounds; ++round) {
    const double read = testing::FastestReadRate(bench.other.data(), bench.other.size());
    add("read_GB/s", read * 1e-9);
    for (const size_t queries : {size_t{1}, PairTableServer::kTogether}) {
      std::vector<uint64_t> wanted;
      for (size_t q = 0; q < queries; ++q) wanted.push_back(random.Below(rows));
      std::vector<PairAsked> asked;
      const double ask = ThreadSeconds([&] {
        for (const uint64_t row : wanted) asked.push_back(bench.client->Ask(row, random));
      });
      const double pass = ThreadSeconds([&] { (void)bench.Answer(asked, 0); });
      if (round == 0) Verify(bench, asked, wanted);
      const std::string at = absl::StrCat(", ", queries, " a pass");
      const auto count = static_cast<double>(queries);
      add("ask_us_a_query" + at, 1e6 * ask / count);
      add("ms_a_query" + at, 1e3 * pass / count);
      add("of_read" + at, bytes / pass / read);
    }
  }
  figures.Print();
}

int Main(int argc, char** argv) {
  namespace po = boost::program_options;
  int rounds = 0;
  std::string tables;
  po::options_description flags("pair_benchmark");
  flags.add_options()("help", "")("rounds", po::value(&rounds)->default_value(7))(
      "tables", po::value(&tables)->default_value(
                    "2500000x32,2500000x80,78125x1072,4194304x256,4194304x304"));
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, flags), values);
  if (values.count("help")) {
    std::cout << flags;
    return 0;
  }
  po::notify(values);
  testing::PrintLoad("load average");
  for (const absl::string_view table : absl::StrSplit(tables, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(table, 'x');
    uint64_t rows = 0;
    uint32_t record_bytes = 0;
    if (!absl::SimpleAtoi(parts.first, &rows) || !absl::SimpleAtoi(parts.second, &record_bytes)) {
      std::cerr << "pair_benchmark: --tables: " << table << " is not rows x bytes\n";
      return 2;
    }
    Measure(rows, record_bytes, rounds);
  }
  testing::PrintLoad("load average");
  return 0;
}

}  // namespace
}  // namespace shoal::pir::pair

int main(int argc, char** argv) { return shoal::pir::pair::Main(argc, argv); }
