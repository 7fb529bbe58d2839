// A function for those who hold the lock, called without it: locks_test must find it.
#include "src/parallel/mutex.h"

namespace shoal {

class Counter {
 public:
  void Add() { AddLocked(); }

 private:
  void AddLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { ++count_; }

  Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

void CountOne() { Counter().Add(); }

}  // namespace shoal
