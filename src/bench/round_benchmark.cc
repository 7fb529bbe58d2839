// Measures the processor time a message of every stage of a round, at every party: the parties' own
// computation, all in one process, without the network. Sizes are flags:
//
//   bazel run --config=opt //src/bench:round_benchmark -- --parties 2 --queries 1000000 --rows 6250
//       --row-bytes 64
//
// The clients' onions are sealed before the clock starts. Answers are checked.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/bench/options.h"
#include "src/noise/noise.h"
#include "src/onion/onion.h"
#include "src/parallel/thread_pool.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/batch.h"
#include "src/sharing/sharing.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

// As a client of the paper's experiments asks in a round.
constexpr size_t kSlotsOfAClient = 1000;

struct Timer {
  Stopwatch wall;
  Stopwatch cpu{Stopwatch::kProcess};
};

void Row(const char* stage, uint32_t party, uint64_t messages, const Timer& start) {
  const double cpu = start.cpu.Seconds();
  std::printf("%s\t%u\t%lu\t%.3f\t%.3f\t%.3f\n", stage, party, messages, start.wall.Seconds(), cpu,
              messages == 0 ? 0 : 1e6 * cpu / static_cast<double>(messages));
  std::fflush(stdout);
}

int Main(uint32_t parties, uint64_t queries, uint64_t rows, size_t row_bytes, size_t threads,
         const noise::Parameters& noise_parameters) {
  SystemRandom random;
  ThreadPool pool(threads);
  SpoolPlace spools("/tmp", uint64_t{1} << 40);  // in memory
  const Resources resources = {.pool = &pool, .spools = &spools};
  const noise::Distribution noise = *noise::Distribution::Create(noise_parameters);
  const size_t answer_bytes = row_bytes + 48;
  const SyntheticRound round({.parties = parties,
                              .answer_bytes = answer_bytes,
                              .max_rows = rows,
                              .max_slots = static_cast<uint32_t>(queries),
                              .noise = noise},
                             random);
  std::printf(
      "# parties %u, queries %lu, rows %lu of %zu bytes, noise of mean %.2f a row and party, "
      "%zu threads\n",
      parties, queries, rows, row_bytes, noise.mean(), pool.size());
  std::printf("stage\tparty\tmessages\twall_s\tcpu_s\tcpu_us_per_message\n");

  // The clients.
  Timer timer;
  constexpr size_t kChunk = 1024;
  const auto [input, seeds] = round.MakeInput(queries, kSlotsOfAClient, random, pool);
  Bytes list = input;
  Row("clients-seal", 0, queries, timer);

  std::vector<OnlineMaterial> materials(parties);
  std::vector<double> offline_cpu(parties);
  for (uint32_t j = 0; j < parties; ++j) {
    timer = {};
    const Stopwatch whole(Stopwatch::kProcess);
    auto made = MakeNoise(round.context(j + 1), round.secrets(j + 1), resources);
    SHOAL_CHECK(made.ok());
    Row("noise", j + 1, made->size(), timer);
    timer = {};
    auto out = RunOffline(round.context(j + 1), round.secrets(j + 1), *std::move(made), list,
                          queries, resources);
    SHOAL_CHECK(out.ok() && out->dead == 0);
    list = *ReadAll(out->onions);
    materials[j] = std::move(out->material);
    Row("offline", j + 1, materials[j].positions, timer);
    offline_cpu[j] = whole.Seconds();
  }
  double total = 0;
  for (double cpu : offline_cpu) total += cpu;
  std::printf("# offline: %.2f s of processor time over all parties\n", total);
  uint64_t state_bytes = 0, pad_bytes = 0, forward_bytes = 0, positions = 0;
  for (const OnlineMaterial& material : materials) {
    state_bytes += material.seeds.size() + sizeof(sharing::QueryShare) * material.shares.size() +
                   4 * material.target.size() + 8 * material.noise.size();
    pad_bytes += material.pads.size();
    forward_bytes += ForwardMemory::kPositionBytes * material.forward_memory.positions() +
                     wire::MaxQueryBatchBytes(material.forward_memory.positions());
    positions += material.positions;
  }
  std::printf(
      "# state at rest: %.1f bytes a position; pads made ahead of time %.1f; to forward queries "
      "in %.1f\n",
      static_cast<double>(state_bytes) / static_cast<double>(positions),
      static_cast<double>(pad_bytes) / static_cast<double>(positions),
      static_cast<double>(forward_bytes) / static_cast<double>(positions));

  // The queries.
  wire::QueryBatch batch;
  batch.positions.resize(queries);
  batch.tallies.resize(queries);
  const auto row_of = [&](uint64_t i) { return static_cast<uint32_t>(i * 2654435761u % rows); };
  pool.ParallelFor(queries, kChunk, [&](size_t begin, size_t end) {
    std::vector<sharing::QueryShare> shares(parties);
    for (size_t i = begin; i < end; ++i) {
      for (uint32_t j = 0; j < parties; ++j) {
        shares[j] = sharing::Expand(BytesView(seeds).subspan((i * parties + j) * 32, 32), {}).share;
      }
      batch.positions[i] = static_cast<uint32_t>(i);
      batch.tallies[i] = sharing::FirstTally(shares, row_of(i));
    }
  });
  Bytes table(rows * answer_bytes);
  random.Fill(table);

  const Timer online;
  std::vector<wire::QueryBatch> batches = {std::move(batch)};
  std::vector<Forwarding> ways;
  for (uint32_t j = 0; j + 1 < parties; ++j) {
    timer = {};
    ways.push_back(*ForwardQueries(round.context(j + 1), materials[j], batches[j], resources));
    batches.push_back(*wire::DecodeQueryBatch(ways[j].queries, materials[j].next_positions));
    Row("queries", j + 1, batches[j + 1].positions.size(), timer);
  }
  // Memory for answers that is reused, like the sockets' buffers of a real chain.
  Bytes answers;
  const auto read = [&](ByteSource& source) {
    answers.resize(source.size());
    size_t at = 0;
    for (;;) {
      const BytesView piece = *source.Next();
      if (piece.empty()) return;
      std::ranges::copy(piece, answers.begin() + static_cast<ptrdiff_t>(at));
      at += piece.size();
    }
  };
  timer = {};
  read(**AnswerQueries(AnswerKeys::Of(round.context(parties), round.secrets(parties),
                                      materials[parties - 1], batches[parties - 1]),
                       {table, rows}, resources));
  Row("answer", parties, batches[parties - 1].positions.size(), timer);
  for (uint32_t j = parties - 1; j-- > 0;) {
    timer = {};
    AnswerIntake intake =
        *AnswerIntake::Begin(round.context(j + 1), batches[j], ways[j], answers.size(), resources);
    SHOAL_CHECK(intake.Take(answers).ok());
    read(**ReturnAnswers(
        AnswerKeys::Of(round.context(j + 1), round.secrets(j + 1), materials[j], batches[j]),
        std::move(intake), resources));
    Row("answers", j + 1, batches[j + 1].positions.size(), timer);
  }
  std::printf("# online: %.3f s wall, %.3f s of processor time over all parties\n",
              online.wall.Seconds(), online.cpu.Seconds());

  Bytes rows_of_all(queries * answer_bytes);
  sharing::UnmaskAnswers(seeds, std::vector<Digest>(parties), answer_bytes, answers, rows_of_all);
  for (uint64_t i = 0; i < queries; ++i) {
    const BytesView mine = BytesView(rows_of_all).subspan(i * answer_bytes, answer_bytes);
    SHOAL_CHECK(std::equal(mine.begin(), mine.end(), table.begin() + row_of(i) * answer_bytes));
  }
  std::printf("# all %lu answers are right; peak memory %lu MiB\n", queries,
              PeakMemoryBytes() >> 20);
  return 0;
}

}  // namespace
}  // namespace shoal::server

int main(int argc, char** argv) {
  uint32_t parties = 2;
  uint64_t queries = 100000, rows = 1000, row_bytes = 64, threads = 0;
  shoal::noise::Parameters noise = {.mechanism = shoal::noise::Mechanism::kGeometric,
                                    .epsilon = 0.1,
                                    .delta = 1e-6,
                                    .phi = 1,
                                    .mode = 128,
                                    .left_scale = 13.06,
                                    .right_scale = 42.74};
  if (const auto end = shoal::bench::ReadOptions(
          argc, argv, 1,
          {{"--parties", &parties},
           {"--queries", &queries},
           {"--rows", &rows},
           {"--row-bytes", &row_bytes},
           {"--threads", &threads},
           {"--mode", &noise.mode},
           {"--left", &noise.left_scale},
           {"--right", &noise.right_scale}},
          "round_benchmark [--parties M] [--queries Q] [--rows R] [--row-bytes W]\n"
          "         [--threads T] [--mode N] [--left SCALE] [--right SCALE]\n"
          "The noise is geometric; its default is (0.1, 1e-6), mean 157.7 a row.\n")) {
    return *end;
  }
  if (parties < 2 || parties > 8 || queries == 0 || rows == 0 || queries > (1u << 30) ||
      rows >> 28) {
    std::fprintf(stderr,
                 "round_benchmark: 2 to 8 parties, at most 2^30 queries, rows below 2^28\n");
    return 2;
  }
  return shoal::server::Main(parties, queries, rows, row_bytes, threads, noise);
}
