// The costs of the engines on this machine, compared with the bandwidth of its memory in the same
// run.
//
//   pir_benchmark [--table_mib=1024] [--record_bytes=1024] [--engines=simplepir,doublepir]
//                 [--double_record_bytes=1] [--rounds=7] [--batch=1,4,16] [--chunks=16]
//                 [--kernel=avx2]
//
// One line of JSON for each figure, on stdout. Everything runs on one thread, and seconds are its
// processor time. Bandwidth is that of the fastest of several ways to read the same number of bytes
// from huge pages once, front to back. Reading, the original and the engines take turns, round by
// round, so that other programs' load affects all of them alike. Printed are medians, and medians
// of the rounds' ratios. "original" is the inner loop of the authors' prototype, as the paper
// describes it (three elements of 10 bits in a word, taken apart and multiplied by words), over as
// many bytes of payload. "setup multiply-adds" counts only the hint, without loading the table
// (which is timed as a set-up with a given product).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/pir/aes/streams.h"
#include "src/pir/kit/measure.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/scheme.h"

namespace shoal::pir::lwe {
namespace {

std::vector<double> Ratios(const std::vector<double>& values, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < values.size(); ++i) ratios.push_back(values[i] / to[i]);
  return ratios;
}

void Print(const std::string& engine, const std::string& figure, double value,
           const std::string& unit) {
  std::printf("{\"engine\": \"%s\", \"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n",
              engine.c_str(), figure.c_str(), value, unit.c_str());
  std::fflush(stdout);
}

// The original's loops are compiled as in the authors' build, with -O3 -march=native.
#if defined(__x86_64__)
#define SHOAL_AS_NATIVE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define SHOAL_AS_NATIVE
#endif

// The paper's inner loop: eight rows at a time, every word holding three elements of 10 bits.
SHOAL_AS_NATIVE void OriginalAnswer(const uint32_t* matrix, uint64_t rows, uint64_t words,
                                    const uint32_t* query, uint32_t* out) {
  for (uint64_t i = 0; i + 8 <= rows; i += 8) {
    uint32_t sums[8] = {};
    for (uint64_t j = 0; j < words; ++j) {
      const uint32_t q0 = query[3 * j], q1 = query[3 * j + 1], q2 = query[3 * j + 2];
      for (int r = 0; r < 8; ++r) {
        const uint32_t packed = matrix[(i + r) * words + j];
        sums[r] +=
            (packed & 1023) * q0 + ((packed >> 10) & 1023) * q1 + ((packed >> 20) & 1023) * q2;
      }
    }
    for (int r = 0; r < 8; ++r) out[i + r] = sums[r];
  }
}

// Its hint: multiply-adds of 32-bit words.
SHOAL_AS_NATIVE void OriginalProduct(const uint32_t* a, const uint32_t* b, uint64_t rows,
                                     uint64_t inner, uint64_t columns, uint32_t* c) {
  for (uint64_t i = 0; i < rows; ++i) {
    for (uint64_t k = 0; k < inner; ++k) {
      for (uint64_t j = 0; j < columns; ++j)
        c[i * columns + j] += a[i * inner + k] * b[k * columns + j];
    }
  }
}

double OriginalHintRate() {
  constexpr uint64_t kRows = 256, kInner = 4096, kColumns = kDimension;
  std::vector<uint32_t> a(kRows * kInner, 3), b(kInner * kColumns, 5), c(kRows * kColumns);
  const double seconds = ThreadSeconds(
      [&] { OriginalProduct(a.data(), b.data(), kRows, kInner, kColumns, c.data()); });
  volatile uint32_t sink = c[17];
  static_cast<void>(sink);
  return kRows * kInner * kColumns / seconds;
}

struct Options {
  uint64_t table_bytes = 0;
  uint32_t record_bytes = 0;
  int rounds = 0;
  std::vector<uint64_t> batches;
  uint64_t chunks = 0;
  const Kernel* kernel = nullptr;
};

// Makes a record that differs from all others, at hardly any cost.
void FillRecord(uint64_t row, MutableBytes out) {
  uint64_t state = row * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < out.size(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    out[i] = static_cast<uint8_t>(state >> 56);
  }
}

struct Bench {
  std::string name;
  double payload = 0;  // bytes
  uint64_t rows = 0;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;

  // Queries for rows first, first + 1, ...
  std::vector<Asked> Ask(uint64_t first, uint64_t count) const {
    SystemRandom random;
    std::vector<Asked> asked;
    for (uint64_t i = 0; i < count; ++i) {
      asked.push_back(client->Ask((first + i) % rows, random).value());
    }
    return asked;
  }
};

std::vector<BytesView> QueriesOf(const std::vector<Asked>& asked) {
  std::vector<BytesView> queries;
  for (const Asked& one : asked) queries.push_back(one.query);
  return queries;
}

// Set-up, sizes, and the client's part.
Bench SetUp(Scheme engine, const Options& options) {
  Bench bench;
  bench.name = std::string(SchemeName(engine));
  const std::string& name = bench.name;
  SystemRandom random;
  const Content content = {.table_id = {1},
                           .epoch = 1,
                           .manifest_digest = {},
                           .rows = options.table_bytes / options.record_bytes,
                           .record_bytes = options.record_bytes,
                           .copy = FillRecord};
  bench.rows = content.rows;
  bench.payload = static_cast<double>(content.rows) * content.record_bytes;
  // The second server gets the product of the first, so its set-up is all the rest of the work.
  std::vector<uint32_t> product;
  double seconds[2];
  for (double& of : seconds) {
    bench.server.reset();
    of = ThreadSeconds([&] {
      auto created = CreateServer(engine, content, {.product = product}, options.kernel);
      if (!created.ok()) {
        std::cerr << created.status().message() << "\n";
        std::exit(1);
      }
      bench.server = *std::move(created);
    });
    product.assign(bench.server->product().begin(), bench.server->product().end());
  }
  const wire::PirSetup& setup = bench.server->setup();
  const Sizes sizes = SizesOf(setup).value();
  Print(name, "table", bench.payload, "bytes");
  Print(name, "record", content.record_bytes, "bytes");
  Print(name, "columns", setup.columns(), "");
  Print(name, "rows a column", setup.rows_per_column(), "");
  Print(name, "hint_bytes", sizes.hint_bytes, "bytes");
  Print(name, "hint_memory_bytes", sizes.hint_memory_bytes, "bytes");
  Print(name, "query_bytes", sizes.query_bytes, "bytes");
  Print(name, "answer_bytes", sizes.answer_bytes, "bytes");
  Print(name, "server_bytes", sizes.server_bytes, "bytes");
  Print(name, "setup_seconds", seconds[0], "s");
  Print(name, "setup_seconds, product at hand", seconds[1], "s");
  Print(name, "setup multiply-adds", bench.payload * kDimension / (seconds[0] - seconds[1]) * 1e-9,
        "G/s");

  bench.client = CreateClient(setup, bench.server->hint(), {.kernel = options.kernel}).value();
  std::vector<double> ask, recover, together;
  for (int round = 0; round < options.rounds; ++round) {
    const uint64_t row = random.Below(content.rows);
    Asked asked;
    ask.push_back(ThreadSeconds([&] { asked = bench.client->Ask(row, random).value(); }));
    const BytesView query = asked.query;
    const Bytes answer = bench.server->Answer({&query, 1})[0].value();
    Bytes record;
    recover.push_back(
        ThreadSeconds([&] { record = bench.client->Recover(asked, answer).value(); }));
    Bytes expected(content.record_bytes);
    FillRecord(row, expected);
    SHOAL_CHECK(record == expected);
    std::vector<uint64_t> rows(kMaxQueriesPerRequest);
    for (uint64_t& one : rows) one = random.Below(content.rows);
    together.push_back(ThreadSeconds([&] { SHOAL_CHECK(bench.client->Ask(rows, random).ok()); }) /
                       static_cast<double>(rows.size()));
  }
  Print(name, "query_seconds", Median(ask), "s");
  Print(name, absl::StrFormat("query_seconds, %d made together", kMaxQueriesPerRequest),
        Median(together), "s");
  Print(name, "recover_seconds", Median(recover), "s");
  return bench;
}

// The original's answer over the same bytes: 3 elements of (log2 p =) 9.45 bits a word.
struct Original {
  static constexpr uint64_t kColumns = 32766, kWords = kColumns / 3;
  uint64_t rows;
  double payload;
  std::vector<uint32_t> query, out;

  explicit Original(uint64_t bytes)
      : rows(bytes / (kWords * 4) / 8 * 8),
        payload(static_cast<double>(rows * kColumns) * std::log2(701.0) / 8),
        query(kColumns, 0x12345678),
        out(rows) {}
  double Rate(const PageBuffer& pages) {
    return payload / ThreadSeconds([&] {
             OriginalAnswer(reinterpret_cast<const uint32_t*>(pages.data()), rows, kWords,
                            query.data(), out.data());
           });
  }
};

// Runs all benches in every round.
void RunAnswers(const std::vector<Bench>& benches, const Options& options,
                const PageBuffer& pages) {
  Original original(options.table_bytes);
  const auto answered = [&](const Bench& bench, const std::vector<Asked>& asked) {
    const std::vector<BytesView> queries = QueriesOf(asked);
    return bench.payload * static_cast<double>(asked.size()) /
           ThreadSeconds([&] { SHOAL_CHECK(bench.server->Answer(queries)[0].ok()); });
  };
  const std::vector<testing::Reader> readers = testing::Readers();
  std::vector<std::vector<double>> bandwidth(readers.size());
  std::vector<double> of_original;
  struct Rates {
    std::vector<std::vector<Asked>> asked;  // of each batch
    std::vector<Asked> chunks;
    std::vector<double> against_original, against_first, chunked;
    std::vector<std::vector<double>> rate, against_one;  // of each batch
  };
  std::vector<Rates> rates(benches.size());
  for (size_t i = 0; i < benches.size(); ++i) {
    for (uint64_t batch : options.batches) rates[i].asked.push_back(benches[i].Ask(batch, batch));
    rates[i].chunks = benches[i].Ask(0, options.chunks);
    rates[i].rate.resize(options.batches.size());
    rates[i].against_one.resize(options.batches.size());
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < readers.size(); ++i) {
      volatile uint64_t sink;
      bandwidth[i].push_back(static_cast<double>(options.table_bytes) / ThreadSeconds([&] {
                               sink = readers[i].read(pages.data(), options.table_bytes);
                             }));
      static_cast<void>(sink);
    }
    of_original.push_back(original.Rate(pages));
    double first = 0;
    for (size_t i = 0; i < benches.size(); ++i) {
      Rates& of = rates[i];
      double one = 0;
      for (size_t b = 0; b < options.batches.size(); ++b) {
        const double rate = answered(benches[i], of.asked[b]);
        of.rate[b].push_back(rate);
        if (options.batches[b] == 1) {
          one = rate;
          if (i == 0) first = rate;
          of.against_original.push_back(rate / of_original.back());
          if (first > 0) of.against_first.push_back(rate / first);
        } else if (one > 0) {
          of.against_one[b].push_back(rate / one);
        }
      }
      if (options.chunks > 0) {
        // The paper counts the wanted rows that fall into distinct chunks.
        const double c = static_cast<double>(options.chunks);
        const double distinct = c * (1 - std::pow(1 - 1 / c, c));
        const std::vector<BytesView> queries = QueriesOf(of.chunks);
        of.chunked.push_back(benches[i].payload * distinct / ThreadSeconds([&] {
                               SHOAL_CHECK(benches[i].server->AnswerChunks(queries).ok());
                             }));
      }
    }
  }
  size_t fastest = 0;
  for (size_t i = 0; i < readers.size(); ++i) {
    if (Median(bandwidth[i]) > Median(bandwidth[fastest])) fastest = i;
    Print("", absl::StrCat("memory bandwidth, read by ", readers[i].name),
          Median(bandwidth[i]) * 1e-9, "GB/s");
  }
  Print("original", "answered, payload", Median(of_original) * 1e-9, "GB/s");
  for (size_t i = 0; i < benches.size(); ++i) {
    const Rates& of = rates[i];
    const std::string& name = benches[i].name;
    std::vector<double> share;
    for (size_t b = 0; b < options.batches.size(); ++b) {
      if (options.batches[b] == 1) share = Ratios(of.rate[b], bandwidth[fastest]);
      const std::string at = absl::StrFormat(", %d at a time", options.batches[b]);
      Print(name, "answered" + at, Median(of.rate[b]) * 1e-9, "GB/s");
      if (!of.against_one[b].empty()) {
        Print(name, "throughput against one" + at, Median(of.against_one[b]), "");
      }
    }
    if (!share.empty()) {
      Print(name, "share of the bandwidth", Median(share), "");
      Print(name, "payload against the original", Median(of.against_original), "");
      if (i > 0) Print(name, "against " + benches[0].name, Median(of.against_first), "");
    }
    if (options.chunks > 0) {
      Print(name, absl::StrFormat("effective throughput, one client's batch of %d", options.chunks),
            Median(of.chunked) * 1e-9, "GB/s");
    }
  }
}

int Main(int argc, char** argv) {
  namespace po = boost::program_options;
  uint64_t table_mib, double_record_bytes;
  std::string engines, batches, kernel;
  Options options;
  po::options_description flags("pir_benchmark");
  flags.add_options()("help", "")("table_mib", po::value(&table_mib)->default_value(1024))(
      "record_bytes", po::value(&options.record_bytes)->default_value(1024))(
      "double_record_bytes", po::value(&double_record_bytes)->default_value(1))(
      "engines", po::value(&engines)->default_value("simplepir,doublepir"))(
      "rounds", po::value(&options.rounds)->default_value(7))(
      "batch", po::value(&batches)->default_value("1,4,16"))(
      "chunks", po::value(&options.chunks)->default_value(16))(
      "kernel", po::value(&kernel)->default_value(FastestKernel().name));
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, flags), values);
  if (values.count("help")) {
    std::cout << flags;
    return 0;
  }
  po::notify(values);
  options.table_bytes = table_mib << 20;
  for (absl::string_view batch : absl::StrSplit(batches, ',')) {
    options.batches.push_back(std::stoull(std::string(batch)));
  }
  for (const Kernel* k : SupportedKernels()) {
    if (kernel == k->name) options.kernel = k;
  }
  if (options.kernel == nullptr) {
    std::cerr << "no kernel " << kernel << " here\n";
    return 2;
  }
  Print("", std::string("kernel ") + options.kernel->name, 1, "");

  PageBuffer pages = AllocatePages(options.table_bytes, "the bandwidth's bytes").value();
  std::memset(pages.data(), 1, options.table_bytes);
  std::vector<double> hint;
  for (int round = 0; round < options.rounds; ++round) hint.push_back(OriginalHintRate());
  Print("original", "setup multiply-adds", Median(hint) * 1e-9, "G/s");
  {
    const uint64_t columns = PaddedColumns(static_cast<uint64_t>(std::sqrt(options.table_bytes)));
    std::vector<uint32_t> words(columns);
    const auto expand = [&](const CounterStream* stream, const std::string& figure) {
      PublicMatrix matrix(PublicMatrixSeed("simplepir", {1}, 1), stream);
      std::vector<double> seconds;
      for (int round = 0; round < options.rounds; ++round) {
        seconds.push_back(ThreadSeconds([&] {
          for (uint32_t k = 0; k < kDimension; ++k) matrix.Expand(k, 0, words);
        }));
      }
      Print("", figure, Median(seconds), "s");
    };
    expand(nullptr, "public matrix expanded, OpenSSL");
    for (const CounterStream* stream : SupportedStreams()) {
      expand(stream, absl::StrCat("public matrix expanded, ", stream->name));
    }
  }
  std::vector<Bench> benches;
  for (absl::string_view engine : absl::StrSplit(engines, ',')) {
    const auto parsed = ParseScheme(engine);
    if (!parsed.ok()) {
      std::cerr << parsed.status().message() << "\n";
      return 2;
    }
    Options of = options;
    if (*parsed == Scheme::kDoublePir) of.record_bytes = static_cast<uint32_t>(double_record_bytes);
    benches.push_back(SetUp(*parsed, of));
  }
  RunAnswers(benches, options, pages);
  return 0;
}

}  // namespace
}  // namespace shoal::pir::lwe

int main(int argc, char** argv) { return shoal::pir::lwe::Main(argc, argv); }
