// What `hintless` costs on this machine, on one thread:
//
//   hintless_benchmark [--rows 65536] [--record-bytes 1072] [--kernel avx512]
//
// Bytes, set-up, a query at its client, answers alone and four together, the pass over the table
// and the packing apart, and beside them the bandwidth of reading as much memory. Processor time,
// the best of a few; for answers, also the medians of processor time and of the wall's clock, which
// other programs' figures are to be compared with.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/pir/kit/measure.h"
#include "src/pir/rlwe/hintless_server.h"
#include "src/pir/rlwe/hintless_session.h"
#include "src/pir/rlwe/hintless_shape.h"

namespace shoal::pir::rlwe {
namespace {

// The medians of the process's time and of the wall's clock.
struct Medians {
  double processor = 0, wall = 0;
};
Medians MedianSeconds(int times, const std::function<void()>& body) {
  std::vector<double> processor, wall;
  for (int i = 0; i < times; ++i) {
    const Stopwatch cpu(Stopwatch::kProcess), clock;
    body();
    processor.push_back(static_cast<double>(cpu.Nanoseconds()) * 1e-9);
    wall.push_back(clock.Seconds());
  }
  return {.processor = Median(processor), .wall = Median(wall)};
}

void Run(uint64_t rows, uint32_t record_bytes, const RingKernel& kernel) {
  const Content content = ContentOfAnyBytes(rows, record_bytes);
  const HintlessShape shape = *ChooseHintlessShape(rows, record_bytes);
  wire::PirSetup setup = SetupOf(kHintlessName, content);
  setup.set_shape(EncodeHintlessShape(shape));
  std::printf("%lu rows of %u bytes, %lu MiB; %u rows in each of %u columns, words of %u bits\n",
              rows, record_bytes, rows * record_bytes >> 20, shape.rows_per_column, shape.columns,
              shape.word_bits);
  std::printf(
      "failure below 2^%.1f; query %lu bytes, answer %lu bytes, together %lu; %lu packs, digits "
      "%lu "
      "MiB, server %lu MiB\n",
      HintlessFailureLog2(shape, MaxPackNorms()), shape.query_bytes(), shape.answer_bytes(),
      shape.query_bytes() + shape.answer_bytes(), shape.packs(), shape.digits_bytes() >> 20,
      shape.server_bytes() >> 20);
  std::unique_ptr<HintlessServer> server;
  const double setup_seconds = LeastSeconds(
      1, [&] { server = *HintlessServer::Create(content, setup, {}, {.ring = &kernel}); });
  std::printf("set-up %.3f s\n", setup_seconds);
  const auto client = *HintlessClient::Create(setup);
  SystemRandom random;
  std::vector<HintlessAsked> asked(HintlessShape::kTogether);
  std::printf("query %.4f s\n", LeastSeconds(1, [&] {
                                  for (size_t i = 0; i < asked.size(); ++i)
                                    asked[i] = client->Ask(i * 7 % rows, random);
                                }) / static_cast<double>(asked.size()));
  std::vector<RequestView> views;
  for (const HintlessAsked& each : asked) {
    views.push_back({.kind = 0, .count = 1, .body = each.query});
  }
  std::vector<absl::StatusOr<Bytes>> answers;
  for (const size_t count : {size_t{1}, asked.size()}) {
    const double seconds = LeastSeconds(
        5, [&] { answers = server->Answer(Role::kSingle, std::span(views).first(count)); });
    HintlessServer::Phases best = {1e99, 1e99};
    std::vector<BytesView> queries;
    for (size_t i = 0; i < count; ++i) queries.push_back(asked[i].query);
    for (int i = 0; i < 5; ++i) {
      const HintlessServer::Phases again = *server->Measure(queries);
      best.pass = std::min(best.pass, again.pass);
      best.pack = std::min(best.pack, again.pack);
    }
    const Medians medians = MedianSeconds(
        5, [&] { answers = server->Answer(Role::kSingle, std::span(views).first(count)); });
    const auto n = static_cast<double>(count);
    std::printf(
        "answers, %lu together: %.4f s each, the pass %.4f s (%.1f GB/s), packing %.4f s (%.1f "
        "GB/s)\n",
        count, seconds / n, best.pass / n,
        static_cast<double>(shape.table_bytes()) / best.pass * 1e-9, best.pack / n,
        static_cast<double>(shape.digits_bytes()) / best.pack * 1e-9);
    std::printf("  medians of 5: processor %.4f s each, wall %.4f s each\n", medians.processor / n,
                medians.wall / n);
  }
  {
    std::vector<uint64_t> memory(std::min<uint64_t>(shape.table_bytes(), 1 << 30) / 8, 1);
    uint64_t sum = 0;
    const double seconds = LeastSeconds(3, [&] {
      uint64_t parts[4] = {};
      for (size_t i = 0; i + 4 <= memory.size(); i += 4) {
        for (size_t j = 0; j < 4; ++j) parts[j] += memory[i + j];
      }
      sum += parts[0] + parts[1] + parts[2] + parts[3];
    });
    std::printf("reading memory: %.1f GB/s%s\n",
                static_cast<double>(memory.size()) * 8 / seconds * 1e-9, sum == 1 ? "!" : "");
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    SHOAL_CHECK(answers[i].ok());
    Bytes wanted(record_bytes);
    content.copy(i * 7 % rows, wanted);
    SHOAL_CHECK(std::ranges::equal(*client->Recover(asked[i], *answers[i]), wanted));
  }
  std::printf("recover %.5f s\n",
              LeastSeconds(3, [&] { (void)client->Recover(asked[0], *answers[0]); }));
}

}  // namespace
}  // namespace shoal::pir::rlwe

int main(int argc, char** argv) {
  using namespace shoal::pir::rlwe;  // NOLINT: a program of one page
  namespace po = boost::program_options;
  uint64_t rows = 1 << 16;
  uint32_t record_bytes = 1072;
  std::string name = FastestRingKernel().name;
  po::options_description flags;
  flags.add_options()("rows", po::value(&rows))("record-bytes", po::value(&record_bytes))(
      "kernel", po::value(&name));
  po::variables_map map;
  po::store(po::parse_command_line(argc, argv, flags), map);
  po::notify(map);
  for (const RingKernel* kernel : SupportedRingKernels()) {
    if (kernel->name == name) Run(rows, record_bytes, *kernel);
  }
}
