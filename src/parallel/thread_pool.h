// A fixed set of worker threads and a parallel loop over them.
#ifndef SHOAL_SRC_PARALLEL_THREAD_POOL_H_
#define SHOAL_SRC_PARALLEL_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "src/parallel/mutex.h"

namespace shoal {

// Measures what a piece of work costs while other work runs beside it: the processor time, since
// the meter was made, of the calling thread and of pools in loops that this thread runs. Make and
// read it on the same thread. Meters on one thread nest like scopes; an outer one counts the inner
// one's loops too.
class CpuMeter {
 public:
  CpuMeter();
  ~CpuMeter();
  CpuMeter(const CpuMeter&) = delete;
  CpuMeter& operator=(const CpuMeter&) = delete;
  double Seconds() const;

 private:
  friend class ThreadPool;
  void Add(int64_t ns);

  CpuMeter* const outer_;
  const int64_t start_ns_;
  std::atomic<int64_t> helpers_ns_{0};
};

// Thread-safe. Tasks must not throw. The destructor waits for running tasks.
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

  // Calls body(begin, end) over [0, n) in chunks of at most `grain`, on the workers and on the
  // caller, and returns when all are done. May be called from a worker. Concurrent loops share the
  // workers chunk by chunk, so a long loop does not keep the others waiting.
  void ParallelFor(size_t n, size_t grain, const std::function<void(size_t, size_t)>& body);
  // The same for a body that may fail. Runs all chunks and returns the error of the first chunk
  // that failed.
  absl::Status TryParallelFor(size_t n, size_t grain,
                              const std::function<absl::Status(size_t, size_t)>& body);

 private:
  void Work();

  Mutex mutex_;
  CondVar wake_;  // notified of a task, or of the end
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> waiting_ = false;  // whether there are tasks; read without the lock
  std::vector<std::thread> threads_;
};

// How many threads run a loop: those of the pool, if it is not null, and the caller.
inline size_t ThreadsOf(const ThreadPool* pool) { return pool == nullptr ? 1 : pool->size() + 1; }

// ThreadPool::ParallelFor, or one chunk on this thread where there is no pool.
void ParallelFor(ThreadPool* pool, size_t n, size_t grain,
                 const std::function<void(size_t, size_t)>& body);
// Calls body(i) for each i below n, one at a time on each of these threads.
void ParallelForEach(ThreadPool* pool, size_t n, const std::function<void(size_t)>& body);

}  // namespace shoal

#endif  // SHOAL_SRC_PARALLEL_THREAD_POOL_H_
