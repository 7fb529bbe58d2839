// Threads for work that blocks: a stage of a round, a call to the next party. Each task gets its
// own thread, as tasks are few and long.
#ifndef SHOAL_SRC_PARALLEL_TASK_GROUP_H_
#define SHOAL_SRC_PARALLEL_TASK_GROUP_H_

#include <atomic>
#include <functional>
#include <list>
#include <thread>
#include <utility>

#include "src/parallel/mutex.h"

namespace shoal {

// Thread-safe. Wait and the destructor wait for all tasks and for the tasks that those spawn. Tasks
// must not throw.
class TaskGroup {
 public:
  ~TaskGroup() { Wait(); }

  void Wait() {
    for (;;) {
      std::list<Task> last;
      {
        const MutexLock lock(mutex_);
        if (tasks_.empty()) return;
        last.splice(last.end(), tasks_, tasks_.begin());
      }
      if (last.front().thread.joinable()) last.front().thread.join();
    }
  }

  void Spawn(std::function<void()> work) {
    const MutexLock lock(mutex_);
    for (auto it = tasks_.begin(); it != tasks_.end();) {
      if (!it->done) {
        ++it;
        continue;
      }
      it->thread.join();  // the task is about to end
      it = tasks_.erase(it);
    }
    Task& task = tasks_.emplace_back();
    task.thread = std::thread([&task, work = std::move(work)] {
      work();
      task.done = true;
    });
  }

 private:
  struct Task {
    std::thread thread;
    std::atomic<bool> done = false;
  };
  Mutex mutex_;
  std::list<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_SRC_PARALLEL_TASK_GROUP_H_
