#include "src/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "src/base/check.h"

namespace shoal {

ThreadPool::ThreadPool(size_t threads) {
  if (threads == 0) threads = std::max<size_t>(1, std::thread::hardware_concurrency());
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Schedule(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void ThreadPool::Work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

void ThreadPool::ParallelFor(size_t n, size_t grain,
                             const std::function<void(size_t, size_t)>& body) {
  SHOAL_CHECK(grain > 0);
  if (n == 0) return;
  struct Loop {
    std::atomic<size_t> next{0};
    size_t n, grain;
    const std::function<void(size_t, size_t)>* body;
    std::mutex mutex;
    std::condition_variable done_wake;
    size_t done = 0;
    // Chunks are claimed one by one; a helper that comes late finds none and never touches
    // `body`, which may be gone by then.
    void Run() {
      for (;;) {
        const size_t begin = next.fetch_add(grain);
        if (begin >= n) return;
        const size_t end = std::min(n, begin + grain);
        (*body)(begin, end);
        std::lock_guard lock(mutex);
        done += end - begin;
        if (done == n) done_wake.notify_all();
      }
    }
  };
  auto loop = std::make_shared<Loop>();
  loop->n = n;
  loop->grain = grain;
  loop->body = &body;
  const size_t chunks = (n + grain - 1) / grain;
  const size_t helpers = std::min(chunks - 1, size());
  for (size_t i = 0; i < helpers; ++i) Schedule([loop] { loop->Run(); });
  loop->Run();
  std::unique_lock lock(loop->mutex);
  loop->done_wake.wait(lock, [&] { return loop->done == n; });
}

}  // namespace shoal
