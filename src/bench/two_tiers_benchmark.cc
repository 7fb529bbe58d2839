// Measures the processor time a query of every stage of a round of two tiers, at both parties: the
// parties' own computation and its digests, all in one process, without the network. Sizes are
// flags; those that are not given are of 2.5 million records of 4 bytes, 64 in a row:
//
//   bazel run --config=opt //src/bench:two_tiers_benchmark -- --queries 10000 --rows 39063
//       --row-bytes 256 --buckets 39
//
// The noise is the least that gives --epsilon and --delta to a client whose queries differ in one
// bucket. Clients' onions are sealed before the clock starts. All answers are checked.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/query_buckets.h"
#include "src/base/random.h"
#include "src/base/stopwatch.h"
#include "src/bench/options.h"
#include "src/noise/noise.h"
#include "src/noise/search.h"
#include "src/parallel/content_mac.h"
#include "src/parallel/thread_pool.h"
#include "src/server/half_online.h"
#include "src/server/offline.h"
#include "src/server/online.h"
#include "src/server/synthetic_round.h"
#include "src/sharing/halves.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

using sharing::Half;
using sharing::Role;

struct Sizes {
  uint64_t queries = 10'000;
  uint64_t rows = 39'063;
  uint64_t row_bytes = 256;
  uint64_t buckets = 39;
  uint64_t slots_each = 64;  // in a submission
  double epsilon = 0.1;
  double delta = 1e-6;
  uint64_t threads = 1;
  std::string instruction_set = std::string(NameOf(ActiveInstructionSet()));
};

// Processor time, by stage and party, and what of it each query takes.
class Costs {
 public:
  explicit Costs(uint64_t queries) : queries_(static_cast<double>(queries)) {
    std::printf("half\tparty\tstage\tmessages\twall_s\tcpu_s\tcpu_us_a_message\tcpu_us_a_query\n");
  }

  // Runs one stage of a party.
  template <typename Work>
  auto Do(Half half, Role role, bool offline, const char* stage, uint64_t messages,
          const Work& work) {
    const Stopwatch wall, cpu(Stopwatch::kProcess);
    auto result = work();
    const double seconds = cpu.Seconds();
    const int party = (half == Half::kA) == (role == Role::kHead) ? 1 : 2;
    us_[{party, offline}] += 1e6 * seconds / queries_;
    std::printf("%s\t%d\t%s\t%lu\t%.3f\t%.3f\t%.3f\t%.3f\n", half == Half::kA ? "A" : "B", party,
                stage, messages, wall.Seconds(), seconds,
                1e6 * seconds / static_cast<double>(std::max<uint64_t>(1, messages)),
                1e6 * seconds / queries_);
    std::fflush(stdout);
    return result;
  }

  void PrintSums() const {
    double all = 0;
    for (const auto& [of, us] : us_) {
      std::printf("# party %d, %s: %.2f us a query\n", of.first, of.second ? "offline" : "online",
                  us);
      all += us;
    }
    std::printf("# both parties, offline and online: %.2f us a query\n", all);
  }

 private:
  const double queries_;
  std::map<std::pair<int, bool>, double> us_;
};

Bytes ReadSpool(Spool spool) {
  SpoolSource source(std::move(spool));
  return *ReadAll(source);
}

// One half of the round.
struct HalfRound {
  const SyntheticRound& round;
  Half half;
  OnlineMaterial head, tail;

  // Takes the onions of all clients.
  void Offline(const Bytes& input, uint64_t slots, const Resources& resources, Costs& costs) {
    auto noise = costs.Do(half, Role::kHead, true, "noise", 0, [&] {
      return *MakeNoise(round.context(1), round.secrets(1), resources);
    });
    const uint64_t made = noise.size();
    auto first = costs.Do(half, Role::kHead, true, "head offline", slots + made, [&] {
      return *RunOffline(round.context(1), round.secrets(1), std::move(noise), input, slots,
                         resources);
    });
    SHOAL_CHECK(first.dead == 0);
    const Bytes list = *ReadAll(first.onions);
    auto last = costs.Do(half, Role::kTail, true, "tail offline", list.size() / 32, [&] {
      return *RunOffline(round.context(2), round.secrets(2), {}, list, 0, resources);
    });
    SHOAL_CHECK(last.dead == 0);
    head = std::move(first.material);
    tail = std::move(last.material);
    std::printf("# half %s: %lu noise queries\n", half == Half::kA ? "A" : "B", made);
  }

  // Takes the encoded batch of all parts; returns z | T' of all.
  Bytes Online(BytesView encoded, const AnswerTable& table, const Resources& resources,
               Costs& costs) {
    const ContentMac first_mac(round.secrets(1).ContentKey(), "a benchmark");
    const ContentMac last_mac(round.secrets(2).ContentKey(), "a benchmark");
    ThreadPool& pool = *resources.pool;
    const RoundContext &first = round.context(1), &last = round.context(2);
    wire::RecordBatch parts;
    const Forwarding forwarding =
        costs.Do(half, Role::kHead, false, "forward", head.next_positions, [&] {
          first_mac.Of(encoded, pool);
          parts = *wire::DecodeRecordBatch(encoded, head.positions, first.half->part_bytes());
          Forwarding out = *ForwardParts(first, head, parts, resources);
          first_mac.Of(out.queries, pool);
          return out;
        });
    Spool answers = costs.Do(half, Role::kTail, false, "answer", forwarding.count, [&] {
      last_mac.Of(forwarding.queries, pool);
      const auto batch = *wire::DecodeRecordBatch(forwarding.queries, tail.positions,
                                                  last.half->forwarded_bytes());
      Spool out = *AnswerHalf(last, round.secrets(2), tail, batch, table, resources);
      last_mac.Of(out.memory(), pool);
      return out;
    });
    const Bytes came = ReadSpool(std::move(answers));
    return costs.Do(half, Role::kHead, false, "return", forwarding.count, [&] {
      first_mac.Of(came, pool);
      const wire::QueryBatch used = {.positions = parts.positions, .tallies = {}};
      auto intake = *AnswerIntake::Begin(first, used, forwarding, came.size(), resources);
      SHOAL_CHECK(intake.Take(came).ok());
      const auto keys = AnswerKeys::Of(first, round.secrets(1), head, used);
      Bytes out = *ReadAll(**ReturnAnswers(keys, std::move(intake), resources));
      first_mac.Of(out, pool);
      return out;
    });
  }
};

// Encoded, as the heads get them.
std::array<Bytes, 2> EncodeParts(BytesView parts, const SyntheticTwoTiers& round, uint32_t count) {
  const size_t s = round.buckets().selection_bytes();
  const size_t each = sharing::PartsBytes(s), a = sharing::PartBytes(Half::kA, s);
  wire::RecordBatchWriter both(count, count, each), of_b(count, count, each - a);
  for (uint32_t i = 0; i < count; ++i) {
    both.Put(i, i, parts.subspan(i * each, each));
    of_b.Put(i, i, parts.subspan(i * each + a, each - a));
  }
  return {std::move(both).Take(), std::move(of_b).Take()};
}

void CheckAnswers(const SyntheticTwoTiers& round, BytesView seeds, std::span<const uint32_t> rows,
                  BytesView table, size_t answer_bytes, BytesView a, BytesView b) {
  const size_t one = sharing::TaggedBytes(answer_bytes);
  Bytes tagged, answers(rows.size() * answer_bytes);
  for (size_t i = 0; i < rows.size(); ++i) {
    Append(tagged, a.subspan(i * one, one));
    Append(tagged, b.subspan(i * one, one));
  }
  sharing::UnmaskHalves(seeds, round.ids(), round.buckets().selection_bytes(), answer_bytes, tagged,
                        answers);
  for (size_t i = 0; i < rows.size(); ++i) {
    SHOAL_CHECK(std::ranges::equal(BytesView(answers).subspan(i * answer_bytes, answer_bytes),
                                   table.subspan(rows[i] * answer_bytes, answer_bytes)));
  }
}

int Main(const Sizes& sizes) {
  SystemRandom random;
  ThreadPool pool(sizes.threads);
  SpoolPlace spools("/tmp", uint64_t{1} << 40);  // in memory
  const Resources resources = {.pool = &pool, .spools = &spools};
  const auto choice =
      noise::FindLeastNoise({.epsilon = sizes.epsilon, .delta = sizes.delta, .exposure = {}});
  SHOAL_CHECK(choice.ok());
  const size_t answer_bytes = sizes.row_bytes + 48;
  const auto count = static_cast<uint32_t>(sizes.queries);
  const SyntheticTwoTiers round({.answer_bytes = answer_bytes,
                                 .rows = sizes.rows,
                                 .buckets = static_cast<uint32_t>(sizes.buckets),
                                 .max_slots = count,
                                 .noise = *noise::Distribution::Create(choice->parameters)},
                                random);
  std::printf(
      "# %lu queries; %lu rows of %lu bytes in %lu buckets of %u; noise of mean %.2f a bucket "
      "(%g, %g); %s, %zu threads\n"
      "# a query sends %zu bytes of onions and parts and fetches %zu\n",
      sizes.queries, sizes.rows, sizes.row_bytes, sizes.buckets, round.buckets().most_places(),
      choice->mean, sizes.epsilon, sizes.delta, sizes.instruction_set.c_str(), pool.size(),
      64 + 4 + sharing::PartsBytes(round.buckets().selection_bytes()),
      static_cast<size_t>(sharing::HalvesAnswerBytes(answer_bytes)));
  const auto input = round.MakeInput(count, sizes.slots_each, random, pool);
  Bytes table(sizes.rows * answer_bytes);
  random.Fill(table);
  std::vector<uint32_t> rows(count);
  for (uint32_t i = 0; i < count; ++i) {
    rows[i] = static_cast<uint32_t>(i * uint64_t{2654435761} % sizes.rows);
  }
  Bytes parts(count * sharing::PartsBytes(round.buckets().selection_bytes()));
  sharing::MakeParts(input.seeds, round.ids(), round.buckets(), rows, parts);
  const auto [of_a, of_b] = EncodeParts(parts, round, count);

  Costs costs(sizes.queries);
  HalfRound a = {round.of(Half::kA), Half::kA, {}, {}}, b = {round.of(Half::kB), Half::kB, {}, {}};
  a.Offline(input.a, count, resources, costs);
  b.Offline(input.b, count, resources, costs);
  const Bytes returned_a = a.Online(of_a, {table, sizes.rows}, resources, costs);
  const Bytes returned_b = b.Online(of_b, {table, sizes.rows}, resources, costs);
  CheckAnswers(round, input.seeds, rows, table, answer_bytes, returned_a, returned_b);
  costs.PrintSums();
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
           {"--buckets", &sizes.buckets},
           {"--slots-each", &sizes.slots_each},
           {"--epsilon", &sizes.epsilon},
           {"--delta", &sizes.delta},
           {"--threads", &sizes.threads},
           {"--instruction-set", &sizes.instruction_set}},
          "two_tiers_benchmark [--queries Q] [--rows R] [--row-bytes W] [--buckets B]\n"
          "         [--slots-each S] [--epsilon E] [--delta D] [--threads T]\n"
          "         [--instruction-set portable|avx2|avx512]\n")) {
    return *end;
  }
  const absl::Status buckets = shoal::QueryBuckets::Check(sizes.rows, sizes.buckets);
  if (!buckets.ok() || sizes.queries == 0 || sizes.queries > (1u << 28) || sizes.row_bytes == 0 ||
      sizes.row_bytes >> 16 || sizes.slots_each == 0 || sizes.slots_each > 1000) {
    std::fprintf(
        stderr,
        "two_tiers_benchmark: 1 to 2^28 queries, of 1 to 1,000 slots each, over rows of up "
        "to 65,535 bytes. %s\n",
        std::string(buckets.message()).c_str());
    return 2;
  }
  for (const shoal::InstructionSet set : shoal::kAllInstructionSets) {
    if (sizes.instruction_set != NameOf(set) || !IsSupported(set)) continue;
    UseInstructionSet(set);
    return shoal::server::Main(sizes);
  }
  std::fprintf(stderr, "two_tiers_benchmark: this machine has no instruction set '%s'\n",
               sizes.instruction_set.c_str());
  return 2;
}
