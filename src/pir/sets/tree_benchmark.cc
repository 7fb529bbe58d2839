// What TreePIR's two servers and its client compute, on one thread, beside what the machine's
// memory and AES units allow in the same run.
//
//   tree_benchmark [--rows=1048576] [--record-bytes=1072] [--fan-bits=0] [--queries=50]
//                  [--rounds=3] [--hints=0] [--kernel=avx512] [--read]
//
// One line of JSON for each figure, on stdout. Seconds are processor time of the thread; printed
// are medians, and the least where other programs' use of caches counts most. `--hints` makes only
// so many of the hints, for long tables, and says so: then queries are asked of hints that have no
// XORs. Records come back right in tree_sets_test; here the ones that do are counted ("records
// right"). `--read` adds what it costs that Small PIR reads the answers ("read: .."): a server's
// answer then is the tree's and all of Small PIR's work.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/pir/engine.h"
#include "src/pir/kit/measure.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/sets/tree_kernel.h"
#include "src/pir/sets/tree_pir.h"
#include "src/pir/sets/tree_sets.h"
#include "src/storage/page_buffer.h"

namespace shoal::pir::sets {
namespace {

struct Options {
  uint64_t rows = 1 << 20;
  uint32_t record_bytes = 1072, fan_bits = 0, hints = 0;
  int queries = 50, rounds = 3;
  std::string kernel;
  bool read = false;
};

double MedianOf(int times, const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) seconds.push_back(ThreadSeconds(body));
  return Median(seconds);
}

void Print(const char* figure, double value, const char* unit) {
  std::printf("{\"engine\": \"treepir\", \"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n",
              figure, value, unit);
  std::fflush(stdout);
}

// Blocks a second, with nodes and children in the first-level cache.
double BlocksPerSecond(const TreeKernel& kernel) {
  constexpr size_t kNodes = 256, kTimes = 20'000;
  Bytes nodes(16 * kNodes), children(16 * kNodes);
  return kNodes * kTimes / MedianOf(3, [&] {
           for (size_t i = 0; i < kTimes; ++i) {
             kernel.expand(nodes.data(), kNodes, i, 1, children.data());
             nodes.swap(children);
           }
         });
}

// Rows a second that the kernel adds up where nothing else is to be done: random rows of one chunk,
// sixteen to a sum.
double RowsPerSecond(const TreeKernel& kernel, const TreeShape& shape, BytesView table) {
  constexpr size_t kSums = 1024, kEach = 16;
  const size_t times = 1 + (size_t{1} << 28) / (kSums * kEach * shape.record_bytes);
  SystemRandom random;
  std::vector<uint32_t> offsets(kSums * kEach);
  for (uint32_t& offset : offsets) {
    offset = static_cast<uint32_t>(random.Below(shape.chunk_rows()));
  }
  Bytes out(kSums * shape.record_bytes);
  const double seconds = MedianOf(3, [&] {
    for (size_t i = 0; i < times; ++i) {
      kernel.sum_rows({.rows = table.data(),
                       .chunk_bytes = 0,
                       .record_bytes = shape.record_bytes,
                       .sums = kSums,
                       .each = kEach,
                       .step_bytes = 0,
                       .offsets = offsets.data(),
                       .stride = kEach},
                      out.data());
    }
  });
  return static_cast<double>(times * kSums * kEach) / seconds;
}

const TreeKernel& KernelOf(const std::string& name) {
  for (const TreeKernel* kernel : SupportedTreeKernels()) {
    if (kernel->name == name) return *kernel;
  }
  SHOAL_CHECK(name.empty());
  return FastestTreeKernel();
}

// The same queries to a server of the engine whose answers are read.
void RunRead(const Options& options, const TreeShape& shape, BytesView table, TreeHints& client,
             RandomSource& random) {
  Content content;
  content.epoch = 1;
  content.rows = shape.rows;
  content.record_bytes = shape.record_bytes;
  content.copy = [&](uint64_t row, MutableBytes out) {
    std::ranges::copy(table.subspan(row * shape.record_bytes, shape.record_bytes), out.begin());
  };
  ServerOptions server_options;
  server_options.shape = TreePir().ShapeOf(content, {}).value();
  server_options.shape->set_shape(EncodeTreeSetupShape(shape.fan_bits, /*read=*/true));
  const auto server = TreePir().CreateServer(content, server_options).value();
  const TreeSetup parsed = ParseTreeSetup(server->setup()).value();
  const auto reader = rlwe::SmallClient::Create(*parsed.reader).value();
  Print("read: up, each server", 32.0 + shape.query_bytes() + parsed.reader_query_bytes, "bytes");
  Print("read: down, each server", parsed.answer_bytes, "bytes");
  Print("whole: down, each server", shape.answer_bytes(), "bytes");

  Bytes queries[2] = {Bytes(shape.query_bytes()), Bytes(shape.query_bytes())};
  Bytes record(shape.record_bytes);
  std::vector<double> ask, answer, finish;
  int right = 0;
  for (int i = 0; i < options.queries; ++i) {
    const uint64_t row = random.Below(shape.rows);
    const auto from = static_cast<uint32_t>(random.Below(shape.hints));
    rlwe::SmallAsked asked[2];
    ask.push_back(ThreadSeconds([&] {
      SHOAL_CHECK(client.Ask(row, from, queries[0], queries[1]).ok());
      for (auto& each : asked) each = reader->Ask(shape.ChunkOf(row), random);
    }));
    Bytes answers[2];
    for (int role = 0; role < 2; ++role) {
      Bytes body = ToBytes(SetupId(server->setup()));
      Append(body, queries[role]);
      Append(body, asked[role].query);
      const RequestView request = {.kind = kTreeQuery, .count = 1, .body = body};
      answer.push_back(ThreadSeconds([&] {
        answers[role] =
            server->Answer(role == 0 ? Role::kOnline : Role::kOffline, {&request, 1})[0].value();
      }));
    }
    finish.push_back(ThreadSeconds([&] {
      const auto online = reader->Recover(asked[0], answers[0]).value();
      const auto offline = reader->Recover(asked[1], answers[1]).value();
      SHOAL_CHECK(client.FinishWith(online, offline, record).ok());
    }));
    right += std::ranges::equal(record, table.subspan(row * shape.record_bytes, record.size()));
  }
  Print("read: client: ask", Median(ask), "s");
  Print("read: server: answer", Median(answer), "s");
  Print("read: client: finish", Median(finish), "s");
  Print("read: records right", right, "");
}

void Run(const Options& options) {
  const TreeKernel& kernel = KernelOf(options.kernel);
  auto of = TreeShapeFor(options.rows, options.record_bytes, 1 << 20, options.fan_bits);
  SHOAL_CHECK(of.ok());
  const TreeShape shape = *of;
  auto table = PageBuffer::Create(shape.table_bytes(), PageBuffer::Content::kPublic);
  SHOAL_CHECK(table.ok());
  SystemRandom random;
  const uint8_t zeros[32] = {};
  SeededRandom(zeros, "tree benchmark")
      .Fill(MutableBytes(*table).first(shape.rows * shape.record_bytes));
  std::printf("{\"engine\": \"treepir\", \"kernel\": \"%s\", \"rows\": %llu, \"levels\": %u}\n",
              kernel.name, static_cast<unsigned long long>(shape.rows), shape.levels());
  Print("hints", shape.hints, "");
  Print("client_bytes", static_cast<double>(shape.client_bytes()), "bytes");
  Print("query_bytes, to each server", static_cast<double>(shape.query_bytes()), "bytes");
  Print("answer_bytes, of each server", static_cast<double>(shape.answer_bytes()), "bytes");

  const double blocks = BlocksPerSecond(kernel);
  const double near = RowsPerSecond(kernel, shape, *table);
  // A row of every chunk once, all over the table.
  std::vector<uint32_t> everywhere(shape.chunks);
  for (uint32_t& offset : everywhere) {
    offset = static_cast<uint32_t>(random.Below(shape.chunk_rows()));
  }
  Bytes all(shape.answer_bytes());
  Print("AES blocks", blocks, "1/s");
  Print("rows added up, of one chunk", near, "1/s");

  const Seed key = random.NewSeed();
  const TreeKeys keys = DeriveTreeKeys(shape, key);
  Bytes parities(shape.parity_bytes());
  const uint32_t hints = options.hints == 0 ? shape.hints : std::min(options.hints, shape.hints);
  const double make = MedianOf(options.rounds, [&] {
    MakeTreeParities(shape, *table, keys.seed, 0,
                     MutableBytes(parities).first(uint64_t{hints} * shape.record_bytes), nullptr,
                     nullptr, kernel);
  });
  const double added = static_cast<double>(hints) * shape.chunks;
  const double made = static_cast<double>(hints) / shape.hints;
  Print(hints == shape.hints ? "hints made" : "hints made, of a part of them", make, "s");
  Print("hints made / all hints", made, "");
  Print("hints: rows added up", added / make, "1/s");
  Print("hints: rows added up / limit of one chunk", added / make / near, "");
  Print("hints: share of AES", added / 4 * 1.1 / blocks / make, "");

  const TreeFunction function(shape, keys, kernel);
  TreeHints client(shape, &function);
  SHOAL_CHECK(client.TakeParities(parities).ok());
  Bytes queries[2] = {Bytes(shape.query_bytes()), Bytes(shape.query_bytes())};
  Bytes answers[2] = {Bytes(shape.answer_bytes()), Bytes(shape.answer_bytes())};
  std::vector<uint32_t> offsets(shape.query_offsets());
  Bytes record(shape.record_bytes);
  std::vector<double> ask, expand, answer, finish, limit;
  int right = 0;
  for (int i = 0; i < options.queries; ++i) {
    const uint64_t row = random.Below(shape.rows);
    const auto from = static_cast<uint32_t>(random.Below(shape.hints));
    ask.push_back(
        ThreadSeconds([&] { SHOAL_CHECK(client.Ask(row, from, queries[0], queries[1]).ok()); }));
    for (int server = 0; server < 2; ++server) {
      expand.push_back(ThreadSeconds(
          [&] { SHOAL_CHECK(ExpandTreeQuery(shape, queries[server], offsets, kernel).ok()); }));
      answer.push_back(
          ThreadSeconds([&] { AnswerTreeQuery(shape, *table, offsets, answers[server], kernel); }));
      // The same number of rows and nothing else: a row of each chunk, in their order.
      for (uint32_t& offset : everywhere) offset = (offset * 5 + 77) & shape.offset_mask();
      limit.push_back(ThreadSeconds([&] {
        kernel.sum_rows({.rows = table->data(),
                         .chunk_bytes = shape.chunk_bytes(),
                         .record_bytes = shape.record_bytes,
                         .sums = shape.chunks,
                         .each = 1,
                         .step_bytes = shape.chunk_bytes(),
                         .offsets = everywhere.data(),
                         .stride = 1},
                        all.data());
      }));
    }
    finish.push_back(
        ThreadSeconds([&] { SHOAL_CHECK(client.Finish(answers[0], answers[1], record).ok()); }));
    right += std::ranges::equal(record,
                                BytesView(*table).subspan(row * shape.record_bytes, record.size()));
  }
  const double read = shape.rows_read() / shape.chunks;
  Print("client: ask", Median(ask), "s");
  Print("client: ask, least", *std::min_element(ask.begin(), ask.end()), "s");
  Print("client: AES / limit",
        static_cast<double>(shape.hints) * shape.levels() / blocks / Median(ask), "");
  Print("client: finish", Median(finish), "s");
  Print("server: expand", Median(expand), "s");
  Print("server: answer", Median(answer), "s");
  Print("server: answer, least", *std::min_element(answer.begin(), answer.end()), "s");
  Print("server: rows read for each chunk", read, "");
  Print("server: answer / reading as many rows", Median(answer) / (read * Median(limit)), "");
  Print("records right", right, "");
  if (options.read) RunRead(options, shape, *table, client, random);
}

}  // namespace
}  // namespace shoal::pir::sets

int main(int argc, char** argv) {
  namespace po = boost::program_options;
  shoal::pir::sets::Options options;
  po::options_description described("options");
  described.add_options()("help", "this text")(
      "rows", po::value(&options.rows)->default_value(options.rows), "of the table")(
      "record-bytes", po::value(&options.record_bytes)->default_value(options.record_bytes),
      "of a row")("fan-bits", po::value(&options.fan_bits)->default_value(0),
                  "2^this children of a node; 1: the paper's tree; 0: two levels")(
      "hints", po::value(&options.hints)->default_value(0), "to make (0: all)")(
      "queries", po::value(&options.queries)->default_value(options.queries), "to ask")(
      "rounds", po::value(&options.rounds)->default_value(options.rounds), "of making hints")(
      "kernel", po::value(&options.kernel)->default_value(""), "portable, avx2 or avx512")(
      "read", po::bool_switch(&options.read), "answers by Small PIR, too");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, described), values);
  po::notify(values);
  if (values.count("help") > 0) {
    std::cout << described;
    return 0;
  }
  shoal::pir::sets::Run(options);
}
