#include "src/parallel/thread_pool.h"

#include <time.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "src/base/check.h"

namespace shoal {
namespace {

// The innermost meter of this thread, or of the thread whose loop it helps with.
thread_local CpuMeter* meter = nullptr;

int64_t ThreadCpuNs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

CpuMeter::CpuMeter() : outer_(meter), start_ns_(ThreadCpuNs()) { meter = this; }
CpuMeter::~CpuMeter() { meter = outer_; }
double CpuMeter::Seconds() const {
  return 1e-9 * static_cast<double>(ThreadCpuNs() - start_ns_ + helpers_ns_);
}
void CpuMeter::Add(int64_t ns) {
  for (CpuMeter* m = this; m != nullptr; m = m->outer_) m->helpers_ns_ += ns;
}

ThreadPool::ThreadPool(size_t threads) {
  if (threads == 0) threads = std::max<size_t>(1, std::thread::hardware_concurrency());
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Schedule(std::function<void()> task) {
  {
    const MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    waiting_ = true;
  }
  wake_.NotifyOne();
}

void ThreadPool::Work() {
  for (;;) {
    std::function<void()> task;
    {
      const MutexLock lock(mutex_);
      while (!stopping_ && tasks_.empty()) wake_.Wait(mutex_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      waiting_ = !tasks_.empty();
    }
    task();
  }
}

void ThreadPool::ParallelFor(size_t n, size_t grain,
                             const std::function<void(size_t, size_t)>& body) {
  SHOAL_CHECK(grain > 0);
  if (n == 0) return;
  struct Loop : std::enable_shared_from_this<Loop> {
    ThreadPool* pool;
    std::atomic<size_t> next{0};
    size_t n, grain;
    CpuMeter* meter;  // the caller's; lives until all chunks are done
    const std::function<void(size_t, size_t)>* body;
    Mutex mutex;
    CondVar done_wake;
    size_t done ABSL_GUARDED_BY(mutex) = 0;
    // Claims chunks one by one. A late helper finds none and never touches `body`, which may be
    // gone by then. A thread reports its chunks and its time when it leaves; until then the caller
    // waits, so its meter lives.
    void Run(bool helper) {
      size_t begin = next.fetch_add(grain);
      if (begin >= n) return;
      const bool metered = helper && meter != nullptr;
      CpuMeter* const own = shoal::meter;
      const int64_t start_ns = metered ? ThreadCpuNs() : 0;
      if (metered) shoal::meter = meter;
      size_t mine = 0;
      bool others_wait = false;
      do {
        const size_t end = std::min(n, begin + grain);
        (*body)(begin, end);
        mine += end - begin;
        others_wait = helper && pool->waiting_;
      } while (!others_wait && (begin = next.fetch_add(grain)) < n);
      if (metered) {
        meter->Add(ThreadCpuNs() - start_ns);
        shoal::meter = own;
      }
      // Queues the rest of this loop behind the tasks that wait.
      if (others_wait && next < n) {
        pool->Schedule([loop = shared_from_this()] { loop->Run(/*helper=*/true); });
      }
      const MutexLock lock(mutex);
      done += mine;
      if (done == n) done_wake.NotifyAll();
    }
  };
  auto loop = std::make_shared<Loop>();
  loop->pool = this;
  loop->n = n;
  loop->grain = grain;
  loop->body = &body;
  loop->meter = meter;
  const size_t chunks = (n + grain - 1) / grain;
  const size_t helpers = std::min(chunks - 1, size());
  for (size_t i = 0; i < helpers; ++i) Schedule([loop] { loop->Run(/*helper=*/true); });
  loop->Run(/*helper=*/false);
  const MutexLock lock(loop->mutex);
  while (loop->done != n) loop->done_wake.Wait(loop->mutex);
}

absl::Status ThreadPool::TryParallelFor(size_t n, size_t grain,
                                        const std::function<absl::Status(size_t, size_t)>& body) {
  struct {
    Mutex mutex;
    size_t chunk ABSL_GUARDED_BY(mutex);
    absl::Status error ABSL_GUARDED_BY(mutex);
  } first{.mutex = {}, .chunk = n, .error = {}};
  ParallelFor(n, grain, [&](size_t begin, size_t end) {
    absl::Status status = body(begin, end);
    if (status.ok()) return;
    const MutexLock lock(first.mutex);
    if (begin >= first.chunk) return;
    first.chunk = begin;
    first.error = std::move(status);
  });
  const MutexLock lock(first.mutex);
  return first.error;
}

void ParallelFor(ThreadPool* pool, size_t n, size_t grain,
                 const std::function<void(size_t, size_t)>& body) {
  if (pool != nullptr) return pool->ParallelFor(n, grain, body);
  if (n > 0) body(0, n);
}

void ParallelForEach(ThreadPool* pool, size_t n, const std::function<void(size_t)>& body) {
  ParallelFor(pool, n, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) body(i);
  });
}

}  // namespace shoal
