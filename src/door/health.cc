#include "src/door/health.h"

#include <utility>

namespace shoal::door {

Health::Health(Probe probe, std::chrono::milliseconds pause, std::chrono::milliseconds lasts)
    : probe_(std::move(probe)), pause_(pause), lasts_(lasts), thread_([this] { Run(); }) {}

Health::~Health() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

absl::Status Health::Last() const {
  const MutexLock lock(mutex_);
  if (answered_ == Clock::time_point::max()) return last_;
  if (Clock::now() > answered_ + lasts_) {
    return absl::UnavailableError("the frontend was asked, and nothing is known of it since");
  }
  return last_;
}

bool Health::Stops() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

void Health::Run() {
  while (!Stops()) {
    const absl::Status answer = probe_([this] { return Stops(); });
    const MutexLock lock(mutex_);
    last_ = answer;
    answered_ = Clock::now();
    const Clock::time_point again = answered_ + pause_;
    while (!stopping_ && wake_.WaitUntil(mutex_, again)) {
    }
  }
}

}  // namespace shoal::door
