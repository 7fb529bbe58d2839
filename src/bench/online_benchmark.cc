// Compares the online stage of each party with the speed of memory: messages a second through a
// party's own computation (decoding, digests, field arithmetic, places, masks, encoding), the bytes
// that have to be moved, and this machine's memory bandwidth, measured in the same run.
//
//   bazel run --config=opt //src/bench:online_benchmark -- --queries 1000000 --rows 6250
//   --row-bytes 64
//
// Runs two parties without network. The offline stage's output is made up, so that a hundred
// million queries do not need an hour of curve work. With --spool-memory-mib, lists that do not fit
// go to files. Answers are checked.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/bench/options.h"
#include "src/noise/noise.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/thread_pool.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/batch.h"
#include "src/shuffle/permutation.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

constexpr auto kSecret = PageBuffer::Content::kSecret;
constexpr size_t kChunk = 4096;

struct Sizes {
  uint64_t queries = 1'000'000;
  uint64_t rows = 6250;
  uint64_t row_bytes = 64;
  double noise = 157.7;  // queries a row
  uint64_t threads = 0;
  uint64_t spool_memory_mib = 1 << 20;
  std::string spool_directory = "/tmp";
  uint64_t repeat = 3;
  uint64_t masks_ready = 1;
  std::string instruction_set = std::string(NameOf(ActiveInstructionSet()));
};

// Measures one stage and compares it with what memory allows.
class Stage {
 public:
  Stage(const char* name, uint64_t messages, double bytes, double bandwidth)
      : name_(name), messages_(messages), bytes_(bytes), bandwidth_(bandwidth) {}
  ~Stage() {
    const double messages = static_cast<double>(messages_);
    std::printf("%s\t%lu\t%.3f\t%.3f\t%.1f\t%.1f\t%.2f\t%.0f %%\n", name_, messages_, wall_, cpu_,
                messages / wall_ / 1e6, bytes_ / messages, bytes_ / wall_ / 1e9,
                100 * bytes_ / wall_ / bandwidth_);
    std::fflush(stdout);
  }

  // Times the party's own computation, without work outside, such as copies that stand for the
  // sockets.
  template <typename F>
  auto Do(const F& work) {
    const Stopwatch wall;
    const CpuMeter cpu;
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      Add(wall, cpu);
    } else {
      auto result = work();
      Add(wall, cpu);
      return result;
    }
  }

 private:
  void Add(const Stopwatch& wall, const CpuMeter& cpu) {
    wall_ += wall.Seconds();
    cpu_ += cpu.Seconds();
  }
  const char* const name_;
  const uint64_t messages_;
  const double bytes_;
  const double bandwidth_;
  double wall_ = 0, cpu_ = 0;
};

PageBuffer RandomSeeds(uint64_t count, ThreadPool& pool) {
  PageBuffer seeds = *PageBuffer::Create(32 * count, kSecret);
  SystemRandom random;
  const Seed key = random.NewSeed();
  constexpr size_t kBlock = 1 << 16;
  pool.ParallelFor(count, kBlock, [&](size_t begin, size_t end) {
    SeededRandom(key.view(), "shoal online benchmark", begin)
        .Fill(MutableBytes(seeds).subspan(32 * begin, 32 * (end - begin)));
  });
  return seeds;
}

int Main(const Sizes& sizes) {
  SystemRandom random;
  ThreadPool pool(sizes.threads);
  SpoolPlace spools(sizes.spool_directory, sizes.spool_memory_mib << 20);
  const Resources resources = {.pool = &pool, .spools = &spools};
  const uint64_t n = sizes.queries;
  const auto noise = static_cast<uint64_t>(sizes.noise * static_cast<double>(sizes.rows));
  const uint64_t next = n + noise;
  const size_t answer_bytes = sizes.row_bytes + 48;
  const size_t tagged_bytes = sharing::TaggedBytes(answer_bytes);
  const auto distribution = *noise::Distribution::Create({.mechanism = noise::Mechanism::kGeometric,
                                                          .epsilon = 0.1,
                                                          .delta = 1e-6,
                                                          .phi = 1,
                                                          .mode = 128,
                                                          .left_scale = 13.06,
                                                          .right_scale = 42.74});
  const SyntheticRound round({.answer_bytes = answer_bytes,
                              .max_rows = sizes.rows,
                              .max_slots = static_cast<uint32_t>(n),
                              .noise = distribution},
                             random);
  const RoundContext &first = round.context(1), &last = round.context(2);
  const RoundSecrets& secrets = round.secrets(1);

  // The output of the offline stage, made up.
  const Seed key = random.NewSeed();
  OnlineMaterial front, back;
  front.positions = static_cast<uint32_t>(n);
  front.next_positions = back.positions = static_cast<uint32_t>(next);
  front.seeds = RandomSeeds(n, pool);
  back.seeds = RandomSeeds(next, pool);
  back.target = *PageArray<uint32_t>::Create(next, kSecret);  // zeros: all alive
  {
    const PageArray<uint32_t> place = *shuffle::RandomPermutation(next, key.view(), pool);
    front.target = *PageArray<uint32_t>::Create(n, kSecret);
    std::copy_n(place.begin(), n, front.target.begin());
    front.noise.resize(noise);
    for (uint64_t k = 0; k < noise; ++k) {
      front.noise[k] = {place[n + k], static_cast<uint32_t>(random.Below(1 << 30))};
    }
  }
  // The last step of the offline stage: shares, and pads where there is room.
  SpoolPlace nowhere(sizes.spool_directory, 0);
  const std::shared_ptr<Arena> arena =
      *Arena::Reserve(sizes.masks_ready != 0 ? &spools : &nowhere, 0, 0, "a benchmark");
  Arena& room = *arena;
  SHOAL_CHECK(MakeReady(first, room, resources, front).ok() &&
              MakeReady(last, room, resources, back).ok());
  const bool ready = front.pads.size() > 0 && back.pads.size() > 0;
  Bytes table(sizes.rows * answer_bytes);
  random.Fill(table);
  const auto row_of = [&](uint64_t i) {
    return static_cast<uint32_t>(i * 2654435761u % sizes.rows);
  };
  const ContentMac mac(random.NewSeed().view(), "online benchmark");
  const double bandwidth = testing::MeasureMemoryBandwidth(pool.size()).copy;

  std::printf(
      "# %lu queries, %lu of noise, %lu rows, answers of %zu bytes, %zu threads, masks %s; "
      "memory %.1f GB/s\n",
      n, noise, sizes.rows, answer_bytes, pool.size(), ready ? "ready" : "expanded",
      bandwidth / 1e9);
  std::printf(
      "stage\tmessages\twall_s\tcpu_s\tmillion_messages_s\tbytes_a_message\tGB_s\t"
      "of_memory_bandwidth\n");
  for (uint64_t repeat = 0; repeat < sizes.repeat; ++repeat) {
    Bytes encoded;
    {
      // Clients: the first tally of every query, through the seeds of both parties.
      wire::QueryBatch batch;
      batch.positions.resize(n);
      batch.tallies.resize(n);
      pool.ParallelFor(n, kChunk, [&](size_t begin, size_t end) {
        const size_t count = end - begin;
        SecretVector<uint8_t> seeds(64 * count);
        std::vector<uint32_t> rows(count);
        for (size_t i = begin; i < end; ++i) {
          std::ranges::copy(front.seed(static_cast<uint32_t>(i)),
                            seeds.begin() + static_cast<ptrdiff_t>(64 * (i - begin)));
          std::ranges::copy(back.seed(front.target[i]),
                            seeds.begin() + static_cast<ptrdiff_t>(64 * (i - begin) + 32));
          batch.positions[i] = static_cast<uint32_t>(i);
          rows[i - begin] = row_of(i);
        }
        sharing::FirstTallies(seeds, 2, {}, rows, std::span(batch.tallies).subspan(begin, count));
      });
      encoded = wire::EncodeQueryBatch(batch, static_cast<uint32_t>(n));
    }
    const auto dn = static_cast<double>(n), dnext = static_cast<double>(next);
    const auto answer = static_cast<double>(tagged_bytes);
    const double mask =
        ready ? static_cast<double>(sharing::PadBytes(answer_bytes)) : 32;  // a seed
    wire::QueryBatch queries;
    Forwarding forwarding;
    front.forward_memory = *ForwardMemory::MakeReady(front.next_positions, room, pool);
    Bytes forwarded;
    {
      // Shares, tallies and targets in; tallies and places out.
      Stage stage("queries, party 1", n, dn * (8 + 4 + 4) + dnext * 8, bandwidth);
      stage.Do([&] {
        queries = *wire::DecodeQueryBatch(encoded, static_cast<uint32_t>(n));
        mac.Of(encoded, pool);
        forwarding = *ForwardQueries(first, front, queries, resources);
        forwarded = std::move(forwarding.queries);
        mac.Of(forwarded, pool);
      });
    }
    // Answers as they would come from a socket, in memory or in a file.
    Spool sent = *spools.Create(next * tagged_bytes);
    {
      // Shares, tallies, masks and rows in; answers out.
      Stage stage("answers, party 2", next, dnext * (8 + 4 + mask + 2 * answer), bandwidth);
      wire::QueryBatch all;
      AnswerKeysPointer keys;
      const auto source = stage.Do([&] {
        all = *wire::DecodeQueryBatch(forwarded, static_cast<uint32_t>(next));
        mac.Of(forwarded, pool);
        keys = AnswerKeys::Of(last, secrets, back, all);
        return *AnswerQueries(keys, {table, sizes.rows}, resources);
      });
      ContentMac::Stream digest(mac);
      for (uint64_t at = 0;;) {
        const BytesView piece = stage.Do([&] {
          const BytesView made = *source->Next();
          digest.Update(made, pool);
          return made;
        });
        if (piece.empty()) break;
        SHOAL_CHECK(sent.Write(at, piece).ok());
        at += piece.size();
      }
      stage.Do([&] { digest.Finish(); });
    }
    Spool returned = *spools.Create(n * tagged_bytes);
    std::unique_ptr<ByteSource> back_in_order;
    {
      // Answers in, to their places; those of clients, with masks, in again; and out.
      Stage stage("answers, party 1", next, dnext * (2 * answer + 4) + dn * (3 * answer + mask),
                  bandwidth);
      AnswerIntake intake = stage.Do(
          [&] { return *AnswerIntake::Begin(first, queries, forwarding, sent.size(), resources); });
      ContentMac::Stream digest_in(mac), digest_out(mac);
      SpoolSource received(std::move(sent));
      for (;;) {
        const BytesView piece = *received.Next();
        if (piece.empty()) break;
        stage.Do([&] {
          digest_in.Update(piece, pool);
          SHOAL_CHECK(intake.Take(piece).ok());
        });
      }
      const AnswerKeysPointer keys = AnswerKeys::Of(first, secrets, front, queries);
      back_in_order = stage.Do([&] {
        digest_in.Finish();
        return *ReturnAnswers(keys, std::move(intake), resources);
      });
      for (uint64_t at = 0;;) {
        const BytesView piece = stage.Do([&] {
          const BytesView made = *back_in_order->Next();
          digest_out.Update(made, pool);
          return made;
        });
        if (piece.empty()) break;
        SHOAL_CHECK(returned.Write(at, piece, &pool).ok());
        at += piece.size();
      }
      stage.Do([&] { digest_out.Finish(); });
    }
    {
      // Happens after the answers have been sent, when no client waits.
      Stage stage("wiping, party 1", next, dnext * answer, bandwidth);
      stage.Do([&] { back_in_order.reset(); });
    }
    // Clients remove both masks and compare the tag, which leaves the row.
    pool.ParallelFor(n, kChunk, [&](size_t begin, size_t end) {
      const size_t count = end - begin;
      Bytes tagged(count * tagged_bytes), answers(count * answer_bytes), seeds;
      SHOAL_CHECK(returned.Read(begin * tagged_bytes, tagged).ok());
      for (size_t i = begin; i < end; ++i) {
        Append(seeds, front.seed(static_cast<uint32_t>(i)));
        Append(seeds, back.seed(front.target[i]));
      }
      sharing::UnmaskAnswers(seeds, std::vector<Digest>(2), answer_bytes, tagged, answers);
      for (size_t i = 0; i < count; ++i) {
        SHOAL_CHECK(
            std::equal(answers.begin() + static_cast<ptrdiff_t>(i * answer_bytes),
                       answers.begin() + static_cast<ptrdiff_t>((i + 1) * answer_bytes),
                       table.begin() + static_cast<ptrdiff_t>(row_of(begin + i) * answer_bytes)));
      }
    });
  }
  std::printf("# all answers are right; peak memory %lu MiB\n", PeakMemoryBytes() >> 20);
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
           {"--spool-directory", &sizes.spool_directory},
           {"--repeat", &sizes.repeat},
           {"--masks-ready", &sizes.masks_ready},
           {"--instruction-set", &sizes.instruction_set}},
          "online_benchmark [--queries Q] [--rows R] [--row-bytes W] [--noise MEAN]\n"
          "         [--threads T] [--spool-memory-mib M] [--spool-directory DIR]\n"
          "         [--repeat N] [--masks-ready 0|1] [--instruction-set portable|avx2|avx512]\n")) {
    return *end;
  }
  if (sizes.queries == 0 || sizes.rows == 0 || sizes.row_bytes == 0 || sizes.noise < 0 ||
      sizes.queries > (1u << 30) || sizes.rows >> 28 || sizes.row_bytes >> 16 ||
      sizes.noise > 1e6) {
    std::fprintf(stderr,
                 "online_benchmark: 1 to 2^30 queries, rows below 2^28, of up to 65,535 bytes\n");
    return 2;
  }
  for (const shoal::InstructionSet set : shoal::kAllInstructionSets) {
    if (sizes.instruction_set != NameOf(set) || !IsSupported(set)) continue;
    UseInstructionSet(set);
    return shoal::server::Main(sizes);
  }
  std::fprintf(stderr, "online_benchmark: this machine has no instruction set '%s'\n",
               sizes.instruction_set.c_str());
  return 2;
}
