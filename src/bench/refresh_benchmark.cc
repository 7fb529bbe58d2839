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
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/testing/parties.h"
#include "src/round/header.h"
#include "src/round/refresh.h"
#include "src/server/journal.h"
#include "src/server/online.h"
#include "src/server/round_context.h"
#include "src/server/terms.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/permutation.h"
#include "src/storage/memory.h"
#include "src/storage/spool.h"

namespace shoal::server {
namespace {

constexpr auto kSecret = PageBuffer::Content::kSecret;

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

class FixedClock final : public Clock {
 public:
  uint64_t NowSeconds() const override { return roster::testing::kNowS; }
  uint64_t SteadyMilliseconds() const override { return 1000; }
};

PageBuffer RandomSeeds(uint64_t count, RandomSource& random, ThreadPool& pool) {
  PageBuffer seeds = *PageBuffer::Create(32 * count, kSecret);
  const Seed key = random.NewSeed();
  constexpr size_t kBlock = 1 << 16;
  pool.ParallelFor(count, kBlock, [&](size_t begin, size_t end) {
    SeededRandom(key.view(), "shoal refresh benchmark", begin)
        .Fill(MutableBytes(seeds).subspan(32 * begin, 32 * (end - begin)));
  });
  return seeds;
}

uint64_t BytesIn(const std::string& directory) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    bytes += entry.file_size();
  }
  return bytes;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

int Main(const Sizes& sizes) {
  SystemRandom random;
  ThreadPool pool(sizes.threads);
  SpoolPlace spools(sizes.directory, sizes.spool_memory_mib << 20);
  const Resources resources = {.pool = &pool, .spools = &spools};
  const FixedClock clock;
  const uint64_t n = sizes.queries;
  const auto noise = static_cast<uint64_t>(sizes.noise * static_cast<double>(sizes.rows));
  const uint64_t next = n + noise;
  const size_t answer_bytes = sizes.row_bytes + 48;

  roster::testing::Parties parties(2, random);
  parties.draft().set_max_slots(1 << 28);
  parties.draft().mutable_term_limit()->set_days(30);
  parties.draft().mutable_term_limit()->set_refreshes(1000);
  const roster::Roster roster = parties.roster(roster::testing::kNowS);

  // An epoch of the table has other bytes than the one before.
  const auto make_epoch = [&](uint64_t epoch) {
    auto bytes = std::make_shared<Bytes>(sizes.rows * answer_bytes);
    random.Fill(*bytes);
    TableEpoch made{.facts = {.manifest_digest = {static_cast<uint8_t>(epoch)},
                              .rows = sizes.rows,
                              .row_bytes = static_cast<uint32_t>(sizes.row_bytes)},
                    .id = {},
                    .epoch = epoch,
                    .answers = {*bytes, sizes.rows}};
    made.holder = std::move(bytes);
    return std::make_shared<const TableEpoch>(std::move(made));
  };
  std::shared_ptr<const TableEpoch> present = make_epoch(1);

  wire::RoundHeader header;
  header.set_counter(1'000);
  header.set_roster_digest(ToString(roster.digest()));
  header.set_manifest_digest(ToString(present->facts.manifest_digest));
  for (int party = 0; party < 2; ++party) header.add_onion_keys(std::string(32, 'k'));
  header.set_max_rows(sizes.rows);
  header.set_answer_bytes(static_cast<uint32_t>(answer_bytes));
  header.set_max_refreshes(1000);
  header.set_term_expires_s(roster::testing::kNowS + 24 * 3600);
  const Digest id = round::RoundId(header);

  const std::string directory = absl::StrCat(sizes.directory, "/refresh-benchmark-", ::getpid());
  std::vector<std::unique_ptr<FileJournal>> journals;
  std::vector<std::unique_ptr<Terms>> terms;
  for (uint32_t party = 1; party <= 2; ++party) {
    const std::string place = absl::StrCat(directory, "/", party);
    journals.push_back(*FileJournal::Open(place + "/journal"));
    terms.push_back(*Terms::Open({.number = PartyNumber(party),
                                  .roster = roster,
                                  .directory = place + "/terms",
                                  .table = [&present] { return present; }},
                                 &parties.keys(party).bls(), journals.back().get(), &random, &clock,
                                 resources));
  }

  std::printf("# %lu queries, %lu of noise, %lu rows, answers of %zu bytes, %zu threads\n", n,
              noise, sizes.rows, answer_bytes, pool.size());
  std::printf("step\tpositions\twall_s\tcpu_s\n");
  const auto report = [](const char* step, uint64_t positions, const Stopwatch& wall,
                         const CpuMeter& cpu) {
    std::printf("%s\t%lu\t%.3f\t%.3f\n", step, positions, wall.Seconds(), cpu.Seconds());
    std::fflush(stdout);
  };

  // The round: query i of party 1 is message place[i]; the backend's message a asks row a mod rows.
  PageArray<uint32_t> place;
  {
    const Seed key = random.NewSeed();
    place = *shuffle::RandomPermutation(next, key.view(), pool);
  }
  const auto material_of = [&](uint64_t count) {
    OnlineMaterial material;
    material.positions = static_cast<uint32_t>(count);
    material.seeds = RandomSeeds(count, random, pool);
    material.target = *PageArray<uint32_t>::Create(count, kSecret);
    return material;
  };
  const auto queries_of = [&](uint64_t count) {
    wire::QueryBatch batch;
    batch.positions.resize(count);
    batch.tallies.resize(count);
    for (uint64_t i = 0; i < count; ++i) {
      batch.positions[i] = static_cast<uint32_t>(i);
      batch.tallies[i] = static_cast<uint32_t>(i % sizes.rows);
    }
    return batch;
  };
  // What the checks of the first answers need of each: the backend's message, and both seeds.
  struct Checked {
    uint64_t message;
    Seed front, back;
  };
  std::vector<Checked> checked(std::min<uint64_t>(n, 100));
  // One party at a time, so that the material of only one is in memory.
  const auto keep = [&](size_t party, const OnlineMaterial& material,
                        const Forwarding* forwarding) {
    const RoundSecrets secrets(random.NewSeed());
    const wire::QueryBatch queries = queries_of(material.positions);
    const Stopwatch wall;
    const CpuMeter cpu;
    SHOAL_CHECK(terms[party]
                    ->Keep({.header = header,
                            .round_id = id,
                            .secrets = secrets,
                            .material = material,
                            .queries = queries,
                            .forwarding = forwarding,
                            .table = *present})
                    .ok());
    report(party == 0 ? "keep, party 1" : "keep, party 2", material.positions, wall, cpu);
  };
  {
    const OnlineMaterial material = material_of(n);
    Forwarding forwarding;
    forwarding.count = forwarding.places = next;
    forwarding.memory = *ForwardMemory::Create(static_cast<uint32_t>(next));
    const std::span<uint32_t> back = forwarding.memory.place();
    for (uint64_t i = 0; i < next; ++i) back[place[i]] = static_cast<uint32_t>(i);
    keep(0, material, &forwarding);
    for (uint32_t i = 0; i < checked.size(); ++i) {
      checked[i].message = place[i];
      checked[i].front = round::TermSeed(material.seed(i), id);
    }
    place = {};
  }
  {
    OnlineMaterial material = material_of(next);
    material.shares = *PageArray<sharing::QueryShare>::Create(next, kSecret);
    for (uint64_t a = 0; a < next; ++a) material.shares[a] = {0, 1};
    keep(1, material, nullptr);
    for (Checked& one : checked) {
      one.back = round::TermSeed(material.seed(static_cast<uint32_t>(one.message)), id);
    }
  }
  const double bytes = static_cast<double>(BytesIn(absl::StrCat(directory, "/1/terms")) +
                                           BytesIn(absl::StrCat(directory, "/2/terms")));
  std::printf("# at rest %.1f bytes a position of both parties\n",
              bytes / static_cast<double>(n + next));

  // As in Refreshes (src/server/refreshes.h): the answers of the last refresh wait in a file.
  SpoolPlace shown_spools(sizes.directory, 0);
  Spool shown;
  std::vector<double> walls, cpus;
  for (uint64_t repeat = 1; repeat <= sizes.repeat; ++repeat) {
    for (int times = 0; times < 2; ++times) spools.GiveBackUnused();
    std::printf("# the term sleeps: %lu MiB resident, the table included\n",
                ResidentMemory() >> 20);
    present = make_epoch(repeat + 1);
    wire::SignedRefreshHeader refresh;
    refresh.mutable_header()->set_round_id(ToString(id));
    refresh.mutable_header()->set_number(static_cast<uint32_t>(repeat));
    refresh.mutable_header()->set_epoch(present->epoch);
    refresh.mutable_header()->set_manifest_digest(ToString(present->facts.manifest_digest));
    const Stopwatch wall;
    const CpuMeter cpu;
    const auto later = terms[1]->Sign(refresh.header(), std::nullopt);
    SHOAL_CHECK(later.ok());
    refresh.set_signature(ToString(terms[0]->Sign(refresh.header(), *later)->bytes()));
    auto rows = terms[1]->Answer(refresh);
    SHOAL_CHECK(rows.ok());
    auto answers = terms[0]->Return(refresh, **rows, (*rows)->tags());
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
    // The first answers: without both masks they are the rows.
    Bytes answer(answer_bytes);
    for (size_t i = 0; i < checked.size(); ++i) {
      SHOAL_CHECK(shown.Read(i * answer_bytes, answer).ok());
      sharing::XorMask(checked[i].front.view(), round::RefreshMasksId(refresh.header(), tags[0]),
                       answer);
      sharing::XorMask(checked[i].back.view(), round::RefreshMasksId(refresh.header(), tags[1]),
                       answer);
      SHOAL_CHECK(std::ranges::equal(
          answer, present->answers.bytes.subspan(checked[i].message % sizes.rows * answer_bytes,
                                                 answer_bytes)));
    }
  }
  for (int times = 0; times < 2; ++times) spools.GiveBackUnused();
  std::printf("# the term sleeps: %lu MiB resident, the table included\n", ResidentMemory() >> 20);
  std::printf("# medians of %lu refreshes: %.3f s, %.3f s of processor time\n", sizes.repeat,
              Median(walls), Median(cpus));
  std::printf("# the first %zu answers are right; peak memory %lu MiB\n", checked.size(),
              PeakMemoryBytes() >> 20);
  terms.clear();
  std::filesystem::remove_all(directory);
  return 0;
}

}  // namespace
}  // namespace shoal::server

int main(int argc, char** argv) {
  shoal::server::Sizes sizes;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = [&] { return std::strtoull(value, nullptr, 10); };
    if (name == "--queries")
      sizes.queries = number();
    else if (name == "--rows")
      sizes.rows = number();
    else if (name == "--row-bytes")
      sizes.row_bytes = number();
    else if (name == "--noise")
      sizes.noise = std::strtod(value, nullptr);
    else if (name == "--threads")
      sizes.threads = number();
    else if (name == "--spool-memory-mib")
      sizes.spool_memory_mib = number();
    else if (name == "--directory")
      sizes.directory = value;
    else if (name == "--repeat")
      sizes.repeat = number();
    else {
      std::fprintf(
          stderr,
          "usage: refresh_benchmark [--queries Q] [--rows R] [--row-bytes W] [--noise MEAN]\n"
          "         [--threads T] [--spool-memory-mib M] [--directory DIR] [--repeat N]\n");
      return 2;
    }
  }
  if (sizes.queries == 0 || sizes.rows == 0 || sizes.repeat > 250) return 2;
  return shoal::server::Main(sizes);
}
