// What a refresh of a term costs two parties: processor time, the time from the rows of the table
// to the answers that lie in a file for party 1's clients, bytes on disk for each position, and
// what is resident in memory while the term sleeps.
//
//   bazel run --config=opt //src/bench:refresh_benchmark -- --queries 1000000 --rows 2406
//   --row-bytes 1024 --noise 193.1
//
// Two parties without network, in one process. The round's outcome is made up, so that a hundred
// million positions do not need an hour of curve work. With --spool-memory-mib, answers that do not
// fit go to files. Before a refresh the memory that nobody uses is given back, as in the hours
// between two epochs. Some answers are checked.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/bench/options.h"
#include "src/parallel/thread_pool.h"
#include "src/plan/synthetic_term.h"
#include "src/sharing/sharing.h"
#include "src/storage/memory.h"
#include "src/storage/spool.h"

namespace shoal::server {
namespace {

struct Sizes {
  uint64_t queries = 1'000'000;
  uint64_t rows = 6250;
  uint64_t row_bytes = 64;
  double noise = 157.7;  // queries a row
  uint64_t threads = 0;
  uint64_t spool_memory_mib = 1 << 20;
  std::string directory = "/tmp";
  uint64_t repeat = 3;
};

int Main(const Sizes& sizes) {
  SystemRandom random;
  ThreadPool pool(sizes.threads);
  SpoolPlace spools(sizes.directory, sizes.spool_memory_mib << 20);
  const size_t answer_bytes = sizes.row_bytes + 48;
  const plan::SyntheticTerm::Shape shape = {
      .queries = sizes.queries,
      .noise = static_cast<uint64_t>(sizes.noise * static_cast<double>(sizes.rows)),
      .rows = sizes.rows,
      .answer_bytes = answer_bytes};
  const uint64_t n = shape.queries, next = n + shape.noise;
  const auto term = plan::SyntheticTerm::Create(shape, sizes.directory, random,
                                                {.pool = &pool, .spools = &spools});
  SHOAL_CHECK(term.ok());

  std::printf("# %lu queries, %lu of noise, %lu rows, answers of %zu bytes, %zu threads\n", n,
              shape.noise, sizes.rows, answer_bytes, pool.size());
  std::printf("step\tpositions\twall_s\tcpu_s\n");
  const auto report = [](const char* step, uint64_t positions, const Stopwatch& wall,
                         const CpuMeter& cpu) {
    std::printf("%s\t%lu\t%.3f\t%.3f\n", step, positions, wall.Seconds(), cpu.Seconds());
    std::fflush(stdout);
  };
  for (const uint32_t party : {1u, 2u}) {
    SHOAL_CHECK((*term)->MakeUp(party).ok());
    const Stopwatch wall;
    const CpuMeter cpu;
    SHOAL_CHECK((*term)->Keep().ok());
    report(party == 1 ? "keep, party 1" : "keep, party 2", party == 1 ? n : next, wall, cpu);
  }
  std::printf("# at rest %.1f bytes a position of both parties\n",
              static_cast<double>((*term)->bytes_at_rest()) / static_cast<double>(n + next));

  // As in Refreshes (src/server/refreshes.h): the answers of the last refresh wait in a file.
  SpoolPlace shown_spools(sizes.directory, 0);
  Spool shown;
  std::vector<double> walls, cpus;
  const uint64_t checked = std::min<uint64_t>({100, plan::SyntheticTerm::kChecked, n});
  const auto tell_asleep = [&] {
    for (int times = 0; times < 2; ++times) spools.GiveBackUnused();
    std::printf("# the term sleeps: %lu MiB resident, the table included\n",
                ResidentMemory() >> 20);
  };
  for (uint64_t repeat = 1; repeat <= sizes.repeat; ++repeat) {
    tell_asleep();
    (*term)->NewTable();
    const Stopwatch wall;
    const CpuMeter cpu;
    SHOAL_CHECK((*term)->SignRefresh().ok());
    auto rows = (*term)->Answer();
    SHOAL_CHECK(rows.ok());
    auto answers = (*term)->Return(**rows, (*rows)->tags());
    SHOAL_CHECK(answers.ok());
    report("  rows to party 1", next, wall, cpu);
    Spool all = *shown_spools.Create((*answers)->size());
    SHOAL_CHECK(FillSpool(**answers, all, &pool).ok());
    std::swap(shown, all);
    const std::vector<round::RefreshTag> tags = (*answers)->tags();
    answers->reset();
    rows->reset();
    report("refresh, both parties", n + next, wall, cpu);
    walls.push_back(wall.Seconds());
    cpus.push_back(cpu.Seconds());
    Bytes answer(sharing::TaggedBytes(answer_bytes));
    for (uint64_t slot = 0; slot < checked; ++slot) {
      SHOAL_CHECK(shown.Read(slot * answer.size(), answer).ok());
      SHOAL_CHECK((*term)->TakesRow(slot, answer, tags));
    }
  }
  tell_asleep();
  std::printf("# medians of %lu refreshes: %.3f s, %.3f s of processor time\n", sizes.repeat,
              Median(walls), Median(cpus));
  std::printf("# the first %lu answers are right; peak memory %lu MiB\n", checked,
              PeakMemoryBytes() >> 20);
  return 0;
}

}  // namespace
}  // namespace shoal::server

int main(int argc, char** argv) {
  shoal::server::Sizes sizes;
  if (const auto end = shoal::bench::ReadOptions(
          argc, argv, 1,
          {{"--queries", &sizes.queries},
           {"--rows", &sizes.rows},
           {"--row-bytes", &sizes.row_bytes},
           {"--noise", &sizes.noise},
           {"--threads", &sizes.threads},
           {"--spool-memory-mib", &sizes.spool_memory_mib},
           {"--directory", &sizes.directory},
           {"--repeat", &sizes.repeat}},
          "refresh_benchmark [--queries Q] [--rows R] [--row-bytes W] [--noise MEAN]\n"
          "         [--threads T] [--spool-memory-mib M] [--directory DIR] [--repeat N]\n")) {
    return *end;
  }
  if (sizes.queries == 0 || sizes.rows == 0 || sizes.repeat > 250) return 2;
  return shoal::server::Main(sizes);
}
