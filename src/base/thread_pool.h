// A fixed set of worker threads and a parallel loop over them.
#ifndef SHOAL_SRC_BASE_THREAD_POOL_H_
#define SHOAL_SRC_BASE_THREAD_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shoal {

// Thread-safe. Tasks must not throw. Destruction waits for running tasks.
class ThreadPool {
 public:
  // 0 takes one thread per core.
  explicit ThreadPool(size_t threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t size() const { return threads_.size(); }

  // Runs `task` some time later on a worker.
  void Schedule(std::function<void()> task);

  // Calls body(begin, end) over [0, n) in chunks of at most `grain`, on the workers and on
  // the caller, and returns when all are done. May be called from a worker.
  void ParallelFor(size_t n, size_t grain, const std::function<void(size_t, size_t)>& body);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_THREAD_POOL_H_
