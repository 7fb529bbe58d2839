// A member that is written without its lock: locks_test must find it.
#include "src/parallel/mutex.h"

namespace shoal {

class Counter {
 public:
  void Add() { ++count_; }

 private:
  Mutex mutex_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

void CountOne() { Counter().Add(); }

}  // namespace shoal
