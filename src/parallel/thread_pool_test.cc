#include "src/parallel/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/soon.h"

namespace shoal {
namespace {

TEST(ThreadPoolTest, ParallelForCoversEveryIndexOnceAlsoNested) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> hits(1000);
  pool.ParallelFor(10, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      pool.ParallelFor(100, 7, [&, i](size_t b, size_t e) {
        for (size_t k = b; k < e; ++k) ++hits[i * 100 + k];
      });
    }
  });
  for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  pool.ParallelFor(0, 1, [](size_t, size_t) { FAIL(); });
}

TEST(ThreadPoolTest, WithoutAPoolALoopRunsOnItsCaller) {
  EXPECT_EQ(ThreadsOf(nullptr), 1u);
  std::vector<std::pair<size_t, size_t>> chunks;
  ParallelFor(nullptr, 10, 3, [&](size_t begin, size_t end) { chunks.push_back({begin, end}); });
  EXPECT_EQ(chunks, (std::vector<std::pair<size_t, size_t>>{{0, 10}}));
  ParallelFor(nullptr, 0, 3, [](size_t, size_t) { FAIL(); });
}

TEST(ThreadPoolTest, ForEachCallsForEveryNumberOnceWithAPoolAndWithout) {
  ThreadPool pool(3);
  EXPECT_EQ(ThreadsOf(&pool), 4u);
  for (ThreadPool* const some : {&pool, static_cast<ThreadPool*>(nullptr)}) {
    std::vector<std::atomic<int>> hits(100);
    ParallelForEach(some, hits.size(), [&](size_t i) { ++hits[i]; });
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

// While one loop keeps running, both parts of a second loop run at the same time: its caller runs
// one part, and the pool's only worker leaves the first loop to run the other.
TEST(ThreadPoolTest, LoopsShareTheWorkers) {
  ThreadPool pool(1);
  std::atomic<bool> done = false, joined = false;
  std::thread long_loop([&] {
    const auto caller = std::this_thread::get_id();
    pool.ParallelFor(1 << 20, 1, [&](size_t, size_t) {
      if (std::this_thread::get_id() != caller) joined = true;
      if (!done) std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
  });
  EXPECT_TRUE(testing::Soon([&] { return joined.load(); }));
  std::atomic<int> parts = 0, together = 0;
  pool.ParallelFor(2, 1, [&](size_t, size_t) {
    ++parts;
    together += testing::Soon([&] { return parts == 2; }, std::chrono::seconds(10));
  });
  EXPECT_EQ(together, 2);
  done = true;
  long_loop.join();
}

}  // namespace
}  // namespace shoal
