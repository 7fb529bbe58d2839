// Threads for work that blocks: a stage of a round, a call to the next party. Few and long, so each
// gets a thread of its own.
#ifndef SHOAL_SRC_SERVER_RUNNER_TASK_GROUP_H_
#define SHOAL_SRC_SERVER_RUNNER_TASK_GROUP_H_

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

namespace shoal::server {

// Thread-safe. Wait, and destruction, wait for all tasks and for those that they have spawned. Tasks
// must not throw.
class TaskGroup {
 public:
  ~TaskGroup() { Wait(); }

  void Wait() {
    for (;;) {
      std::list<Task> last;
      {
        std::lock_guard lock(mutex_);
        if (tasks_.empty()) return;
        last.splice(last.end(), tasks_, tasks_.begin());
      }
      if (last.front().thread.joinable()) last.front().thread.join();
    }
  }

  void Spawn(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    for (auto it = tasks_.begin(); it != tasks_.end();) {
      if (!it->done) {
        ++it;
        continue;
      }
      it->thread.join();  // at its very end
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
  std::mutex mutex_;
  std::list<Task> tasks_;
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_RUNNER_TASK_GROUP_H_
