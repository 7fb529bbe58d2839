// What Small PIR costs on this machine, on one thread:
//
//   small_benchmark [--mib 64] [--record-bytes 2048] [--kernel avx512]
//
// Set-up, a query at its client, answers alone and four together, the first stage's pass over the
// table, and beside it the bandwidth of reading as much memory. Processor time; the best of a few.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "boost/program_options.hpp"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/pir/rlwe/small_server.h"
#include "src/pir/rlwe/small_session.h"
#include "src/pir/rlwe/small_shape.h"
#include "src/pir/rlwe/small_transform.h"

namespace shoal::pir::rlwe {
namespace {

double Seconds(int times, const std::function<void()>& body) {
  double best = 1e99;
  for (int i = 0; i < times; ++i) {
    const Stopwatch cpu(Stopwatch::kProcess);
    body();
    best = std::min(best, static_cast<double>(cpu.Nanoseconds()) * 1e-9);
  }
  return best;
}

void Run(uint64_t mib, uint32_t record_bytes, const SmallKernel& kernel) {
  const uint64_t rows = (mib << 20) / record_bytes;
  const Content content = {.table_id = {1},
                           .epoch = 1,
                           .manifest_digest = {2},
                           .rows = rows,
                           .record_bytes = record_bytes,
                           .copy = [](uint64_t row, MutableBytes out) {
                             // Any bytes, quickly, that differ from row to row.
                             for (size_t i = 0; i < out.size(); ++i) {
                               out[i] =
                                   static_cast<uint8_t>((row * 0x9e3779b97f4a7c15 >> 32) + i * 37);
                             }
                           }};
  const SmallShape shape = *ChooseSmallShape(rows, record_bytes);
  wire::PirSetup setup;
  setup.set_engine(std::string(kSmallPirName));
  setup.set_table_id(ToString(content.table_id));
  setup.set_epoch(content.epoch);
  setup.set_manifest_digest(ToString(content.manifest_digest));
  setup.set_rows(rows);
  setup.set_record_bytes(record_bytes);
  setup.set_shape(EncodeSmallShape(shape));
  std::printf("table %lu MiB, %lu rows of %u bytes; %u rows in %u slices, %u terms, 2^%u outputs\n",
              mib, rows, record_bytes, shape.group_rows, shape.slices, shape.terms, shape.folds);
  std::printf(
      "failure below 2^%.1f; query %lu bytes, answer %lu bytes, encoded %lu MiB, server %lu MiB\n",
      SmallFailureLog2(shape), shape.query_bytes(), shape.answer_bytes(), shape.table_bytes() >> 20,
      shape.server_bytes() >> 20);
  {
    std::vector<uint32_t> words(kDegree, 5);
    const int times = 1000;
    std::printf("transform %.2f us, back %.2f us\n",
                Seconds(3,
                        [&] {
                          for (int i = 0; i < times; ++i) Transform(0, words.data());
                        }) /
                    times * 1e6,
                Seconds(3,
                        [&] {
                          for (int i = 0; i < times; ++i) TransformBack(0, words.data());
                        }) /
                    times * 1e6);
  }
  std::unique_ptr<SmallServer> server;
  std::printf("set-up %.3f s\n",
              Seconds(1, [&] { server = *SmallServer::Create(content, setup, {}, &kernel); }));
  const auto client = *SmallClient::Create(setup);
  SystemRandom random;
  std::vector<SmallAsked> asked(SmallShape::kTogether);
  std::printf("query %.4f s\n", Seconds(1, [&] {
                                  for (size_t i = 0; i < asked.size(); ++i)
                                    asked[i] = client->Ask(i * 7 % rows, random);
                                }) / static_cast<double>(asked.size()));
  std::vector<RequestView> views;
  for (const SmallAsked& each : asked) views.push_back({.kind = 0, .count = 1, .body = each.query});
  std::vector<absl::StatusOr<Bytes>> answers;
  for (const size_t count : {size_t{1}, asked.size()}) {
    const double seconds =
        Seconds(3, [&] { answers = server->Answer(Role::kSingle, std::span(views).first(count)); });
    std::printf("answers, %lu together: %.4f s each\n", count,
                seconds / static_cast<double>(count));
  }
  for (const size_t count : {size_t{1}, asked.size()}) {
    std::vector<BytesView> queries;
    for (size_t i = 0; i < count; ++i) queries.push_back(asked[i].query);
    SmallServer::Phases best = *server->Measure(queries);
    for (int i = 0; i < 3; ++i) {
      const SmallServer::Phases again = *server->Measure(queries);
      best.unpack = std::min(best.unpack, again.unpack);
      best.first_stage = std::min(best.first_stage, again.first_stage);
      best.fold = std::min(best.fold, again.fold);
    }
    const auto n = static_cast<double>(count);
    std::printf(
        "of %lu together, each: unpack %.4f s, first stage %.4f s, fold %.4f s; the pass reads "
        "%.1f GB/s\n",
        count, best.unpack / n, best.first_stage / n, best.fold / n,
        static_cast<double>(shape.table_bytes()) / best.first_stage * 1e-9);
  }
  {
    std::vector<uint64_t> memory(std::min<uint64_t>(shape.table_bytes(), 1 << 30) / 8, 1);
    uint64_t sum = 0;
    const double seconds = Seconds(3, [&] {
      uint64_t parts[4] = {};
      for (size_t i = 0; i < memory.size(); i += 4) {
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
              Seconds(3, [&] { (void)client->Recover(asked[0], *answers[0]); }));
}

}  // namespace
}  // namespace shoal::pir::rlwe

int main(int argc, char** argv) {
  using namespace shoal::pir::rlwe;  // NOLINT: a program of one page
  namespace po = boost::program_options;
  uint64_t mib = 64;
  uint32_t record_bytes = 2048;
  std::string name = FastestSmallKernel().name;
  po::options_description flags;
  flags.add_options()("mib", po::value(&mib))("record-bytes", po::value(&record_bytes))(
      "kernel", po::value(&name));
  po::variables_map map;
  po::store(po::parse_command_line(argc, argv, flags), map);
  po::notify(map);
  for (const SmallKernel* kernel : SupportedSmallKernels()) {
    if (kernel->name == name) Run(mib, record_bytes, *kernel);
  }
}
