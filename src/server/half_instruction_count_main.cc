// Runs AnswerHalf once, for callgrind, which //src/server:half_instruction_count_test has count its
// instructions. A malicious head of a half knows all noise, so that a tail's time could tell it the
// exact counts of buckets.
//
//   half_instruction_count_main --count HALF SELECTIONS BUCKETS
//
// HALF is A or B; SELECTIONS what those that come in half A are (zeros, ones, random); BUCKETS
// which are asked (spread, first, last, ends).
#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/server/half_online.h"
#include "src/server/synthetic_round.h"
#include "src/server/testing/some_noise.h"
#include "src/sharing/halves.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"

namespace shoal::server {
namespace {

constexpr uint32_t kQueries = 300, kBuckets = 9;
constexpr uint64_t kRows = 65 * kBuckets - 4;  // some buckets lack a row
constexpr size_t kAnswerBytes = 62;

uint32_t BucketOf(const std::string& asked, uint32_t query) {
  if (asked == "spread") return query % kBuckets;
  if (asked == "first") return 0;
  if (asked == "last") return kBuckets - 1;
  return query % 7 / 6 * (kBuckets - 1);  // the ends, one more often than the other
}

int Count(const std::string& letter, const std::string& of_selections, const std::string& asked) {
  SystemRandom random;
  const SyntheticTwoTiers round(
      {.answer_bytes = kAnswerBytes, .rows = kRows, .buckets = kBuckets, .noise = SomeNoise()},
      random);
  const sharing::Half half = letter == "A" ? sharing::Half::kA : sharing::Half::kB;
  const RoundContext& tail = round.of(half).context(2);
  OnlineMaterial material;
  material.positions = kQueries;
  material.seeds = *PageBuffer::Create(32 * kQueries, PageBuffer::Content::kSecret);
  random.Fill(material.seeds);
  material.target = *PageArray<uint32_t>::Create(kQueries, PageBuffer::Content::kSecret);

  wire::RecordBatch batch;
  batch.positions.resize(kQueries);
  std::iota(batch.positions.begin(), batch.positions.end(), 0u);
  batch.record_bytes = tail.half->forwarded_bytes();
  batch.records.resize(kQueries * batch.record_bytes);
  std::vector<uint32_t> buckets;
  for (uint32_t i = 0; i < kQueries; ++i) buckets.push_back(BucketOf(asked, i));
  Bytes selections(half == sharing::Half::kA ? kQueries * tail.half->selection_bytes() : 0);
  if (of_selections == "ones") std::ranges::fill(selections, uint8_t{0xff});
  if (of_selections == "random") random.Fill(selections);
  sharing::MakeForwarded(material.seeds.data(), batch.positions, round.ids(), half,
                         tail.half->selection_bytes(), buckets, selections, batch.records);

  Bytes table(kRows * kAnswerBytes);
  random.Fill(table);
  SpoolPlace spools("/tmp", 1 << 30);
  // Its one worker waits, so that this thread does all, and no other one takes a part of it.
  std::atomic<bool> busy = false, done = false;
  ThreadPool pool(1);
  pool.Schedule([&] {
    busy = true;
    busy.notify_one();
    done.wait(false);
  });
  busy.wait(false);
  const auto answers = AnswerHalf(tail, round.of(half).secrets(2), material, batch, {table, kRows},
                                  {.pool = &pool, .spools = &spools});
  SHOAL_CHECK(answers.ok() && answers->size() == kQueries * tail.tagged_bytes());
  done = true;
  done.notify_one();
  return 0;
}

}  // namespace
}  // namespace shoal::server

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4 || arguments[0] != "--count") return 2;
  return shoal::server::Count(arguments[1], arguments[2], arguments[3]);
}
