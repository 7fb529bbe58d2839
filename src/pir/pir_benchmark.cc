// What the engines cost on this machine, beside the bandwidth of its memory in the same run.
//
//   pir_benchmark [--table_mib=1024] [--record_bytes=1024] [--engines=simplepir,doublepir]
//                 [--double_record_bytes=1] [--rounds=7] [--batch=1,4,16] [--chunks=16]
//                 [--kernel=avx2]
//
// One line of JSON for each figure, on stdout. Everything runs on one thread, and seconds are its
// processor time. Bandwidth: the
// fastest of several ways to read the same number of bytes from huge pages once, front to back.
// The reading and the engines take turns, round by round, so that a neighbour's load falls on both;
// printed are medians, and the median of the rounds' ratios. "original" is the inner loop of the
// authors' prototype, as the paper describes it (three elements of 10 bits in a word, taken apart
// and multiplied by words), over as many bytes of payload.
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/pir/byte_matrix.h"
#include "src/pir/dispatch.h"
#include "src/pir/engine.h"
#include "src/pir/lwe.h"

namespace shoal::pir {
namespace {

// Processor time of this thread: what other programs do with the cores does not count, only what they
// do to the memory.
double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const std::function<void()>& body) {
  const double start = Now();
  body();
  return Now() - start;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Print(const std::string& engine, const std::string& figure, double value,
           const std::string& unit) {
  std::printf("{\"engine\": \"%s\", \"figure\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"}\n",
              engine.c_str(), figure.c_str(), value, unit.c_str());
  std::fflush(stdout);
}

uint64_t ReadOnce(const uint8_t* data, uint64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (uint64_t i = 0; i < bytes / 8; i += 4) {
    a += words[i];
    b += words[i + 1];
    c += words[i + 2];
    d += words[i + 3];
  }
  return a + b + c + d;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t ReadOnceAvx2(const uint8_t* data, uint64_t bytes) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  for (uint64_t i = 0; i < bytes; i += 256) {
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2048), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2112), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2176), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(data + i + 2240), _MM_HINT_T0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      sums[k] = _mm256_add_epi64(
          sums[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + 32 * k)));
    }
  }
  for (int k = 1; k < 8; ++k) sums[0] = _mm256_add_epi64(sums[0], sums[k]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0));
}
#endif

// Bytes a second, the faster way of those there are.
double Bandwidth(const PageBuffer& pages, uint64_t bytes) {
  volatile uint64_t sink;
  double best = bytes / Seconds([&] { sink = ReadOnce(pages.data(), bytes); });
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    best = std::max(best, bytes / Seconds([&] { sink = ReadOnceAvx2(pages.data(), bytes); }));
  }
#endif
  static_cast<void>(sink);
  return best;
}

// What gcc makes of plain loops with -O3 -march=native, as the authors' build has it.
#if defined(__x86_64__)
#define SHOAL_AS_NATIVE __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define SHOAL_AS_NATIVE
#endif

// The paper's inner loop: eight rows at a time, every word holding three elements of 10 bits.
SHOAL_AS_NATIVE void OriginalAnswer(const uint32_t* matrix, uint64_t rows, uint64_t words, const uint32_t* query,
                    uint32_t* out) {
  for (uint64_t i = 0; i + 8 <= rows; i += 8) {
    uint32_t sums[8] = {};
    for (uint64_t j = 0; j < words; ++j) {
      const uint32_t q0 = query[3 * j], q1 = query[3 * j + 1], q2 = query[3 * j + 2];
      for (int r = 0; r < 8; ++r) {
        const uint32_t packed = matrix[(i + r) * words + j];
        sums[r] += (packed & 1023) * q0 + ((packed >> 10) & 1023) * q1 +
                   ((packed >> 20) & 1023) * q2;
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
      for (uint64_t j = 0; j < columns; ++j) c[i * columns + j] += a[i * inner + k] * b[k * columns + j];
    }
  }
}

double OriginalHintRate() {
  constexpr uint64_t kRows = 256, kInner = 4096, kColumns = kDimension;
  std::vector<uint32_t> a(kRows * kInner, 3), b(kInner * kColumns, 5), c(kRows * kColumns);
  const double seconds = Seconds(
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

// Records that cost nothing to make and are different.
void FillRecord(uint64_t row, MutableBytes out) {
  uint64_t state = row * 0x9e3779b97f4a7c15ull + 1;
  for (size_t i = 0; i < out.size(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    out[i] = static_cast<uint8_t>(state >> 56);
  }
}

void Run(Engine engine, const Options& options, const PageBuffer& pages) {
  const std::string name(EngineName(engine));
  SystemRandom random;
  const Content content = {.table_id = {1},
                           .epoch = 1,
                           .manifest_digest = {},
                           .rows = options.table_bytes / options.record_bytes,
                           .record_bytes = options.record_bytes,
                           .copy = FillRecord};
  std::unique_ptr<Server> server;
  Costs costs;
  costs.setup_seconds = Seconds([&] {
    auto created = CreateServer(engine, content, {.kernel = options.kernel});
    if (!created.ok()) {
      std::cerr << created.status().message() << "\n";
    } else {
      server = *std::move(created);
    }
  });
  if (server == nullptr) return;
  costs.bytes = SizesOf(server->setup()).value();
  const double payload = static_cast<double>(content.rows) * content.record_bytes;
  Print(name, "table", payload, "bytes");
  Print(name, "record", content.record_bytes, "bytes");
  Print(name, "columns", server->setup().columns(), "");
  Print(name, "rows a column", server->setup().rows_per_column(), "");
  Print(name, "hint_bytes", costs.bytes.hint_bytes, "bytes");
  Print(name, "hint_memory_bytes", costs.bytes.hint_memory_bytes, "bytes");
  Print(name, "query_bytes", costs.bytes.query_bytes, "bytes");
  Print(name, "answer_bytes", costs.bytes.answer_bytes, "bytes");
  Print(name, "server_bytes", costs.bytes.server_bytes, "bytes");
  Print(name, "setup_seconds", costs.setup_seconds, "s");
  Print(name, "setup multiply-adds", payload * kDimension / costs.setup_seconds * 1e-9, "G/s");

  for (bool keep : {true, false}) {
    const auto client =
        CreateClient(server->setup(), server->hint(),
                     {.keep_public_matrix = keep, .kernel = options.kernel})
            .value();
    std::vector<double> ask, recover;
    for (int round = 0; round < options.rounds; ++round) {
      const uint64_t row = random.Below(content.rows);
      Asked asked;
      ask.push_back(Seconds([&] { asked = client->Ask(row, random).value(); }));
      const BytesView query = asked.query;
      const Bytes answer = server->Answer({&query, 1})[0].value();
      Bytes record;
      recover.push_back(Seconds([&] { record = client->Recover(asked, answer).value(); }));
      Bytes expected(content.record_bytes);
      FillRecord(row, expected);
      SHOAL_CHECK(record == expected);
    }
    costs.query_seconds = Median(ask);
    costs.recover_seconds = Median(recover);
    Print(name, keep ? "query_seconds" : "query_seconds, matrix expanded again",
          costs.query_seconds, "s");
    if (!keep) {
      std::vector<uint64_t> rows(kMaxQueriesPerRequest);
      for (uint64_t& row : rows) row = random.Below(content.rows);
      std::vector<double> batch;
      for (int round = 0; round < options.rounds; ++round) {
        batch.push_back(Seconds([&] { SHOAL_CHECK(client->Ask(rows, random).ok()); }) /
                        static_cast<double>(rows.size()));
      }
      Print(name, absl::StrFormat("query_seconds, matrix expanded for %d", rows.size()),
            Median(batch), "s");
    }
    if (keep) Print(name, "recover_seconds", costs.recover_seconds, "s");
  }

  const auto client =
      CreateClient(server->setup(), server->hint(), {.kernel = options.kernel}).value();
  double one = 0;
  for (uint64_t batch : options.batches) {
    std::vector<Asked> asked;
    std::vector<BytesView> queries;
    for (uint64_t i = 0; i < batch; ++i) {
      asked.push_back(client->Ask(random.Below(content.rows), random).value());
    }
    for (const Asked& a : asked) queries.push_back(a.query);
    std::vector<double> seconds, bandwidth, share;
    for (int round = 0; round < options.rounds; ++round) {
      bandwidth.push_back(Bandwidth(pages, options.table_bytes));
      seconds.push_back(Seconds([&] { SHOAL_CHECK(server->Answer(queries)[0].ok()); }));
      share.push_back(payload * batch / seconds.back() / bandwidth.back());
    }
    const std::string of = absl::StrFormat(", %d at a time", batch);
    Print(name, "memory bandwidth" + of, Median(bandwidth) * 1e-9, "GB/s");
    Print(name, "answer_seconds" + of, Median(seconds), "s");
    Print(name, "answered" + of, payload * batch / Median(seconds) * 1e-9, "GB/s");
    Print(name, "share of bandwidth" + of, Median(share), "");
    if (batch == 1) one = Median(seconds);
    if (one > 0 && batch > 1) Print(name, "throughput against one" + of, one * batch / Median(seconds), "");
  }
  if (options.chunks > 0) {
    std::vector<Asked> asked;
    std::vector<BytesView> queries;
    for (uint64_t i = 0; i < options.chunks; ++i) asked.push_back(client->Ask(i, random).value());
    for (const Asked& a : asked) queries.push_back(a.query);
    std::vector<double> seconds;
    for (int round = 0; round < options.rounds; ++round) {
      seconds.push_back(Seconds([&] { SHOAL_CHECK(server->AnswerChunks(queries).ok()); }));
    }
    // The paper counts the wanted rows that fall into distinct chunks.
    const double c = static_cast<double>(options.chunks);
    const double distinct = c * (1 - std::pow(1 - 1 / c, c));
    Print(name, absl::StrFormat("effective throughput, one client's batch of %d", options.chunks),
          payload * distinct / Median(seconds) * 1e-9, "GB/s");
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
  {
    // The original over the same bytes: 3 elements of (log2 p =) 9.45 bits a word.
    const uint64_t columns = 32766, words = columns / 3;
    const uint64_t rows = options.table_bytes / (words * 4) / 8 * 8;
    std::vector<uint32_t> query(columns, 0x12345678), out(rows);
    const double payload = rows * columns * std::log2(701.0) / 8;
    std::vector<double> rate, bandwidth;
    for (int round = 0; round < options.rounds; ++round) {
      bandwidth.push_back(Bandwidth(pages, options.table_bytes));
      rate.push_back(payload / Seconds([&] {
                       OriginalAnswer(reinterpret_cast<const uint32_t*>(pages.data()), rows, words,
                                      query.data(), out.data());
                     }));
    }
    Print("original", "memory bandwidth", Median(bandwidth) * 1e-9, "GB/s");
    Print("original", "answered, payload", Median(rate) * 1e-9, "GB/s");
    std::vector<double> hint;
    for (int round = 0; round < options.rounds; ++round) hint.push_back(OriginalHintRate());
    Print("original", "setup multiply-adds", Median(hint) * 1e-9, "G/s");
  }
  {
    PublicMatrix matrix(PublicMatrixSeed("simplepir", {1}, 1));
    const uint64_t columns = PaddedColumns(static_cast<uint64_t>(std::sqrt(options.table_bytes)));
    std::vector<uint32_t> words(columns);
    Print("", "public matrix expanded", Seconds([&] {
            for (uint32_t k = 0; k < kDimension; ++k) matrix.Expand(k, 0, words);
          }),
          "s");
  }
  for (absl::string_view engine : absl::StrSplit(engines, ',')) {
    const auto parsed = ParseEngine(engine);
    if (!parsed.ok()) {
      std::cerr << parsed.status().message() << "\n";
      return 2;
    }
    Options of = options;
    if (*parsed == Engine::kDoublePir) of.record_bytes = static_cast<uint32_t>(double_record_bytes);
    Run(*parsed, of, pages);
  }
  return 0;
}

}  // namespace
}  // namespace shoal::pir

int main(int argc, char** argv) { return shoal::pir::Main(argc, argv); }
