// A mutex that does not say what it guards: locks_test must find it.
#include "src/parallel/mutex.h"

namespace shoal {

class Counter {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++count_;
  }

 private:
  Mutex mutex_;
  int count_ = 0;
};

void CountOne() { Counter().Add(); }

}  // namespace shoal
