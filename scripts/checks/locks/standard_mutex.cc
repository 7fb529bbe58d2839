// A lock that no compiler checks: locks_test must find it.
#include <mutex>

namespace shoal {

class Counter {
 public:
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }

 private:
  std::mutex mutex_;
  int count_ = 0;
};

void CountOne() { Counter().Add(); }

}  // namespace shoal
