// Messages per second of every function of src/sharing: one by one (but those of two tiers), and in
// batches with every instruction set that the machine has. Arrays are far larger than the caches,
// and positions rise.
//
//   bazel run --config=opt //src/sharing:sharing_benchmark
//   ... -- --benchmark_filter=Answers/112
//
// Rates are per second of processor time, which other programs on the machine do not change, summed
// over the threads. GB/s counts the bytes bytes that must be moved: seeds, positions, tallies and
// tokens once for every read or write that they need, answers twice (read and written). memory_GB/s
// is one sequential read by as many threads, measured in the same run; percent is GB/s as a share
// of it.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "src/base/check.h"
#include "src/base/instruction_set.h"
#include "src/base/query_buckets.h"
#include "src/base/stopwatch.h"
#include "src/base/testing/memory_bandwidth.h"
#include "src/base/testing/test_random.h"
#include "src/sharing/batch.h"
#include "src/sharing/halves.h"

namespace shoal::sharing {
namespace {

using ::shoal::testing::MeasureMemoryBandwidth;
using ::shoal::testing::TestRandom;

constexpr size_t kMessages = size_t{1} << 21;
constexpr size_t kAnswers = size_t{64} << 20;  // bytes
constexpr size_t kPiece = 1024;                // messages a call
constexpr Digest kRoundId = {1};

struct Arrays {
  Arrays()
      : seeds(32 * kMessages),
        positions(kMessages),
        tallies(kMessages, 1),
        shares(kMessages),
        tokens(kMessages),
        answers(kAnswers, 1) {
    TestRandom(1).Fill(seeds);
    std::iota(positions.begin(), positions.end(), 0u);
    ExpandTokens(seeds.data(), positions, kRoundId, tokens);
  }
  BytesView seed(size_t i) const { return BytesView(seeds).subspan(32 * i, 32); }

  Bytes seeds;
  std::vector<uint32_t> positions, tallies;
  std::vector<QueryShare> shares;
  std::vector<Token> tokens;
  Bytes answers;
};

Arrays& Shared() {
  static Arrays arrays;
  return arrays;
}

// One measured function: it handles messages [begin, end), one by one or in a batch.
struct Operation {
  std::string name;
  size_t messages;           // how many there are
  double bytes_per_message;  // that must be moved
  std::function<void(size_t begin, size_t end)> one_by_one, batch;
};

double ReadBandwidth(size_t threads) {
  static std::map<size_t, double> measured;
  const auto [at, fresh] = measured.try_emplace(threads);
  if (fresh) at->second = MeasureMemoryBandwidth(threads).read;
  return at->second;
}

// Every thread works on its own part of the messages.
void Run(benchmark::State& state, const Operation& operation,
         const std::function<void(size_t begin, size_t end)>& call) {
  static double limit;
  if (state.thread_index() == 0) {
    Shared();
    limit = ReadBandwidth(static_cast<size_t>(state.threads()));
  }
  const size_t part = operation.messages / static_cast<size_t>(state.threads());
  const size_t begin = part * static_cast<size_t>(state.thread_index());
  const Stopwatch cpu(Stopwatch::kThread);
  for (auto _ : state) {
    for (size_t at = begin; at < begin + part; at += kPiece) {
      call(at, std::min(begin + part, at + kPiece));
    }
    benchmark::ClobberMemory();
  }
  const double rate =
      static_cast<double>(state.iterations()) * static_cast<double>(part) / cpu.Seconds();
  // The benchmark library sums the counters of all threads.
  state.counters["M/s"] = rate / 1e6;
  state.counters["GB/s"] = rate * operation.bytes_per_message / 1e9;
  state.counters["percent"] = 100 * rate * operation.bytes_per_message / limit;
  if (state.thread_index() == 0) state.counters["memory_GB/s"] = limit / 1e9;
}

std::vector<Operation> Operations() {
  std::vector<Operation> operations;
  operations.push_back(
      {"ExpandShares", kMessages, 32 + 4 + 8,
       [](size_t begin, size_t end) {
         Arrays& arrays = Shared();
         for (size_t i = begin; i < end; ++i) {
           arrays.shares[i] = Expand(arrays.seed(i), kRoundId).share;
         }
       },
       [](size_t begin, size_t end) {
         Arrays& arrays = Shared();
         ExpandShares(arrays.seeds.data(), std::span(arrays.positions).subspan(begin, end - begin),
                      kRoundId, std::span(arrays.shares).subspan(begin, end - begin));
       }});
  operations.push_back(
      {"CheckTokens", kMessages, 32 + 4 + 16,
       [](size_t begin, size_t end) {
         const Arrays& arrays = Shared();
         for (size_t i = begin; i < end; ++i) {
           SHOAL_CHECK(EqualSecret(Expand(arrays.seed(i), kRoundId).token, arrays.tokens[i]));
         }
       },
       [](size_t begin, size_t end) {
         const Arrays& arrays = Shared();
         SHOAL_CHECK(
             FirstWrongToken(arrays.seeds.data(),
                             std::span(arrays.positions).subspan(begin, end - begin), kRoundId,
                             std::span(arrays.tokens).subspan(begin, end - begin)) == end - begin);
       }});
  for (size_t parties : {1, 2, 3, 8}) {
    operations.push_back(
        {absl::StrCat("FirstTallies/", parties), kMessages / parties,
         static_cast<double>(32 * parties + 4 + 4),
         [parties](size_t begin, size_t end) {
           Arrays& arrays = Shared();
           std::vector<QueryShare> shares(parties);
           for (size_t i = begin; i < end; ++i) {
             for (size_t j = 0; j < parties; ++j) {
               shares[j] = Expand(arrays.seed(i * parties + j), kRoundId).share;
             }
             arrays.tallies[i] = FirstTally(shares, arrays.tallies[i]);
           }
         },
         [parties](size_t begin, size_t end) {
           Arrays& arrays = Shared();
           const std::span<uint32_t> tallies =
               std::span(arrays.tallies).subspan(begin, end - begin);
           FirstTallies(
               BytesView(arrays.seeds).subspan(32 * parties * begin, 32 * parties * (end - begin)),
               parties, kRoundId, tallies, tallies);
         }});
  }
  // Masks and tags, and the same from pads. The last case has sixteen blocks a message, and few
  // enough messages for the cache: it measures the ciphers alone.
  for (const auto& [bytes, room] :
       {std::pair(size_t{52}, kAnswers), std::pair(size_t{80}, kAnswers),
        std::pair(size_t{112}, kAnswers), std::pair(size_t{304}, kAnswers),
        std::pair(size_t{1072}, kAnswers), std::pair(size_t{4144}, kAnswers),
        std::pair(size_t{1024}, size_t{256} << 10)}) {
    const std::string of = absl::StrCat("/", bytes, room < kAnswers ? "/cached" : "");
    const size_t tagged = TaggedBytes(bytes);
    const auto one_by_one = [tagged](size_t begin, size_t end) {
      Arrays& arrays = Shared();
      for (size_t i = begin; i < end; ++i) {
        MaskAnswer(arrays.seed(i), kRoundId, TagCovers::kAnswerAndTag,
                   MutableBytes(arrays.answers).subspan(i * tagged, tagged));
      }
    };
    operations.push_back(
        {"Answers" + of, room / tagged, static_cast<double>(36 + 2 * tagged), one_by_one,
         [bytes = bytes, tagged](size_t begin, size_t end) {
           Arrays& arrays = Shared();
           MaskAnswers(
               arrays.seeds.data(), std::span(arrays.positions).subspan(begin, end - begin),
               kRoundId, bytes, TagCovers::kAnswerAndTag,
               MutableBytes(arrays.answers).subspan(begin * tagged, (end - begin) * tagged));
         }});
    // One pad for all: what remains of the work where pads are ready.
    operations.push_back(
        {"FromPads" + of, room / tagged, static_cast<double>(4 + 2 * tagged), one_by_one,
         [bytes = bytes, tagged](size_t begin, size_t end) {
           Arrays& arrays = Shared();
           static const std::vector<uint32_t> first(kPiece, 0);
           MaskAnswersFromPads(
               arrays.seeds.data(), std::span(first).first(end - begin), bytes,
               TagCovers::kAnswerAndTag,
               MutableBytes(arrays.answers).subspan(begin * tagged, (end - begin) * tagged));
         }});
  }
  return operations;
}

// Two tiers over 2.5 million rows of 32 bytes in buckets of 1,024: what a client makes of a query,
// what heads and tails do with it, and what they do with an answer.
struct Tiers {
  static constexpr size_t kQueries = size_t{1} << 15, kAnswerBytes = 80;
  static constexpr size_t kTagged = TaggedBytes(kAnswerBytes);
  const QueryBuckets buckets{2'500'000, 2442};
  const HalfIds ids{kRoundId};
  const size_t s = buckets.selection_bytes();
  std::vector<uint32_t> rows = std::vector<uint32_t>(kQueries, 1'234'567), positions, asked = rows;
  Bytes parts = Bytes(kQueries * PartsBytes(s)), wrong = Bytes(kQueries);
  Bytes forwarded = Bytes(kQueries * ForwardedBytes(Half::kA, s));
  Bytes selections = Bytes(kQueries * s), answers = Bytes(kQueries * kTagged);

  Tiers() {
    for (size_t i = 0; i < kQueries; ++i) {
      positions.push_back(static_cast<uint32_t>(kSeedsPerQuery * i));
    }
    MakeParts(BytesView(Shared().seeds).first(32 * kSeedsPerQuery * kQueries), ids, buckets, rows,
              parts);
    OpenParts(Shared().seeds.data(), positions, ids, Half::kA, s, parts, forwarded, wrong);
    SHOAL_CHECK(wrong == Bytes(kQueries));
  }
  static const uint8_t* Seeds(QuerySeed which) {
    return Shared().seeds.data() + 32 * static_cast<size_t>(which);
  }
  template <typename Items>
  static auto Part(Items& items, size_t begin, size_t end, size_t each = 1) {
    return std::span(items).subspan(begin * each, (end - begin) * each);
  }
};

Tiers& SharedTiers() {
  static Tiers tiers;
  return tiers;
}

std::vector<Operation> TwoTiersOperations() {
  constexpr size_t kQueries = Tiers::kQueries;
  constexpr double kSeed = 36;
  return {
      {"TwoTiers/MakeParts", kQueries, 4 * kSeed + 4 + 200, nullptr,
       [](size_t begin, size_t end) {
         Tiers& t = SharedTiers();
         MakeParts(Tiers::Part(Shared().seeds, begin, end, 32 * kSeedsPerQuery), t.ids, t.buckets,
                   Tiers::Part(t.rows, begin, end),
                   Tiers::Part(t.parts, begin, end, PartsBytes(t.s)));
       }},
      {"TwoTiers/OpenPartsA", kQueries, kSeed + 200 + 148, nullptr,
       [](size_t begin, size_t end) {
         Tiers& t = SharedTiers();
         OpenParts(Tiers::Seeds(QuerySeed::kHeadA), Tiers::Part(t.positions, begin, end), t.ids,
                   Half::kA, t.s, Tiers::Part(t.parts, begin, end, PartsBytes(t.s)),
                   Tiers::Part(t.forwarded, begin, end, ForwardedBytes(Half::kA, t.s)),
                   Tiers::Part(t.wrong, begin, end));
       }},
      {"TwoTiers/OpenForwardedA", kQueries, kSeed + 148 + 132, nullptr,
       [](size_t begin, size_t end) {
         Tiers& t = SharedTiers();
         OpenForwarded(Tiers::Seeds(QuerySeed::kTailA), Tiers::Part(t.positions, begin, end), t.ids,
                       Half::kA, t.buckets,
                       Tiers::Part(t.forwarded, begin, end, ForwardedBytes(Half::kA, t.s)),
                       Tiers::Part(t.asked, begin, end), Tiers::Part(t.selections, begin, end, t.s),
                       Tiers::Part(t.wrong, begin, end));
       }},
      {"TwoTiers/OpenForwardedB", kQueries, kSeed + 20 + 132, nullptr,
       [](size_t begin, size_t end) {
         Tiers& t = SharedTiers();
         OpenForwarded(Tiers::Seeds(QuerySeed::kTailB), Tiers::Part(t.positions, begin, end), t.ids,
                       Half::kB, t.buckets,
                       Tiers::Part(t.forwarded, begin, end, ForwardedBytes(Half::kB, t.s)),
                       Tiers::Part(t.asked, begin, end), Tiers::Part(t.selections, begin, end, t.s),
                       Tiers::Part(t.wrong, begin, end));
       }},
      {"TwoTiers/MaskTail", kQueries, kSeed + 2 * Tiers::kTagged, nullptr,
       [](size_t begin, size_t end) {
         Tiers& t = SharedTiers();
         MaskHalf(Tiers::Seeds(QuerySeed::kTailA), Tiers::Part(t.positions, begin, end), t.ids,
                  Half::kA, Role::kTail, t.s, Tiers::kAnswerBytes,
                  Tiers::Part(t.answers, begin, end, Tiers::kTagged));
       }},
  };
}

std::vector<Operation> AllOperations() {
  std::vector<Operation> all = Operations();
  for (Operation& operation : TwoTiersOperations()) all.push_back(std::move(operation));
  return all;
}

const int kRegistered = [] {
  for (const Operation& operation : AllOperations()) {
    const auto add = [&operation](const std::string& how, int threads, auto run) {
      benchmark::RegisterBenchmark(absl::StrCat(operation.name, "/", how).c_str(), run)
          ->ThreadRange(1, threads)
          ->Unit(benchmark::kMillisecond);
    };
    if (operation.one_by_one != nullptr) {
      add("one_by_one", 1,
          [operation](benchmark::State& state) { Run(state, operation, operation.one_by_one); });
    }
    for (InstructionSet set : kAllInstructionSets) {
      if (!IsSupported(set)) continue;
      add(std::string(NameOf(set)), 2, [operation, set](benchmark::State& state) {
        if (state.thread_index() == 0) UseInstructionSet(set);
        Run(state, operation, operation.batch);
      });
    }
  }
  return 0;
}();

}  // namespace
}  // namespace shoal::sharing
